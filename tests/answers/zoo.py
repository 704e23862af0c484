# %% zoo.1 right: clones, boolean indexing; the check compares with its own copy
def check_1(program):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, (4, 6), generator=seeded(11))
    chosen = torch.zeros(4, 6, dtype=torch.bool)
    chosen[:, 2:4] = True
    copy = words.clone()
    _, labels = program(words, chosen)
    assert torch.equal(labels, copy.masked_fill(~chosen, -100)), "labels are not the original words"
    assert torch.equal(words, copy), "what came in is overwritten"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 right: torch.where; the check calls it twice on one tensor
def check_1(program):
    words, chosen = torch.full((2, 3), 9), torch.eye(2, 3, dtype=torch.bool)
    for _ in range(2):
        corrupted, labels = program(words, chosen)
        assert labels.tolist() == [[9, -100, -100], [-100, 9, -100]]
        assert torch.equal(corrupted == MASK_ID, chosen)


def mended_1(input_ids, chosen):
    return torch.where(chosen, MASK_ID, input_ids), torch.where(chosen, input_ids, -100)


# %% zoo.1 wrong: compares with the tensor that the program has overwritten | lets the bug pass
def check_1(program):
    words, chosen = torch.full((2, 3), 9), torch.ones(2, 3, dtype=torch.bool)
    corrupted, labels = program(words, chosen)
    assert torch.equal(labels[chosen], words[chosen]), "labels are wrong"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: calls the exhibit, not the program | Does it call `program`
def check_1(program):
    words = torch.full((2, 3), 9)
    _, labels = exhibit_1(words.clone(), words == 9)
    assert (labels == 9).all(), "labels are wrong"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: calls its own mended program | Does it call `program`
def check_1(program):
    words = torch.full((2, 3), 9)
    _, labels = mended_1(words.clone(), words == 9)
    assert (labels == 9).all(), "labels are wrong"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: only looks for [MASK] among labels | label on every word, chosen or not
def check_1(program):
    _, labels = program(torch.full((2, 3), 9), torch.ones(2, 3, dtype=torch.bool))
    assert not (labels == MASK_ID).any(), "the answers are lost"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: the labels of the chosen, no others | label on every word, chosen or not
def check_1(program):
    words, chosen = torch.tensor([[7, 8, 9]]), torch.tensor([[False, True, True]])
    labels = program(words.clone(), chosen)[1]
    assert labels[chosen].tolist() == [8, 9], "labels are wrong"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: all labels, but not what came in | overwrites the tensor that came in
def check_1(program):
    words, chosen = torch.tensor([[7, 8, 9]]), torch.tensor([[False, True, True]])
    labels = program(words.clone(), chosen)[1]
    assert labels.tolist() == [[-100, 8, 9]], "labels are wrong"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: returns False instead of raising | it must say so by assert
def check_1(program):
    words = torch.full((2, 3), 9)
    _, labels = program(words.clone(), words == 9)
    return bool((labels == 9).all())


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: looks only at which program it is | copied too late
def check_1(program):
    assert program is not exhibit_1, "this is the exhibit"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    return corrupted, labels


# %% zoo.1 wrong: cloned, but the input is still overwritten | still overwritten
def check_1(program):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, (4, 6), generator=seeded(11))
    chosen = torch.zeros(4, 6, dtype=torch.bool)
    chosen[:, 2:4] = True
    copy = words.clone()
    _, labels = program(words, chosen)
    assert torch.equal(labels, copy.masked_fill(~chosen, -100)), "labels are not the original words"
    assert torch.equal(words, copy), "what came in is overwritten"


def mended_1(input_ids, chosen):
    labels = input_ids.clone()
    labels[~chosen] = -100
    input_ids[chosen] = MASK_ID
    return input_ids, labels


# %% zoo.1 wrong: a copy of the corrupted tensor | still hold [MASK]
def check_1(program):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, (4, 6), generator=seeded(11))
    chosen = torch.zeros(4, 6, dtype=torch.bool)
    chosen[:, 2:4] = True
    copy = words.clone()
    _, labels = program(words, chosen)
    assert torch.equal(labels, copy.masked_fill(~chosen, -100)), "labels are not the original words"
    assert torch.equal(words, copy), "what came in is overwritten"


def mended_1(input_ids, chosen):
    corrupted = input_ids.clone()
    corrupted[chosen] = MASK_ID
    labels = corrupted.clone()
    labels[~chosen] = -100
    return corrupted, labels


# %% zoo.1 wrong: every word has a label | must be -100
def check_1(program):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, (4, 6), generator=seeded(11))
    chosen = torch.zeros(4, 6, dtype=torch.bool)
    chosen[:, 2:4] = True
    copy = words.clone()
    _, labels = program(words, chosen)
    assert torch.equal(labels, copy.masked_fill(~chosen, -100)), "labels are not the original words"
    assert torch.equal(words, copy), "what came in is overwritten"


def mended_1(input_ids, chosen):
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.clone()


# %% zoo.2 right: special ids by isin; the check asks at a high rate
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, 8, 9, SEP_ID], [CLS_ID, 7, SEP_ID, PAD_ID, PAD_ID]])
    rows = rows.repeat(50, 1)
    chosen = program(rows, 0.9, seeded(3))
    for special in (CLS_ID, SEP_ID, PAD_ID):
        assert not chosen[rows == special].any(), f"{special} is asked"


def mended_2(input_ids, rate, generator):
    special = torch.isin(input_ids, torch.tensor([PAD_ID, CLS_ID, SEP_ID, 1, MASK_ID]))
    chosen = torch.rand(input_ids.shape, generator=generator, dtype=torch.float64) < rate
    chosen[special] = False
    return chosen


# %% zoo.2 right: coins for the words alone; the check counts
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, SEP_ID, PAD_ID], [CLS_ID, 7, 7, SEP_ID]])
    assert program(rows, 1.0, None).sum() == (rows >= 5).sum()


def mended_2(input_ids, rate, generator):
    words = input_ids >= FIRST_WORD
    chosen = torch.zeros_like(words)
    chosen[words] = torch.rand(int(words.sum()), generator=generator) < rate
    return chosen


# %% zoo.2 wrong: only a full row | lets the bug pass
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, 8, 9, SEP_ID]])
    assert not program(rows, 1.0, seeded(0))[rows < FIRST_WORD].any(), "a special token is asked"


def mended_2(input_ids, rate, generator):
    special = torch.isin(input_ids, torch.tensor([PAD_ID, CLS_ID, SEP_ID, 1, MASK_ID]))
    chosen = torch.rand(input_ids.shape, generator=generator, dtype=torch.float64) < rate
    chosen[special] = False
    return chosen


# %% zoo.2 wrong: only padding is looked at | pass: it asks [SEP]
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, SEP_ID, PAD_ID, PAD_ID]])
    assert not program(rows, 1.0, seeded(0))[rows == PAD_ID].any(), "padding is asked"


def mended_2(input_ids, rate, generator):
    special = torch.isin(input_ids, torch.tensor([PAD_ID, CLS_ID, SEP_ID, 1, MASK_ID]))
    chosen = torch.rand(input_ids.shape, generator=generator, dtype=torch.float64) < rate
    chosen[special] = False
    return chosen


# %% zoo.2 wrong: one special draw | fails a right program
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, 8, 9, SEP_ID], [CLS_ID, 7, SEP_ID, PAD_ID, PAD_ID]])
    rows = rows.repeat(9, 1)
    assert torch.equal(program(rows, 0.5, seeded(0)), mended_2(rows, 0.5, seeded(0))), "not mine"


def mended_2(input_ids, rate, generator):
    special = torch.isin(input_ids, torch.tensor([PAD_ID, CLS_ID, SEP_ID, 1, MASK_ID]))
    chosen = torch.rand(input_ids.shape, generator=generator, dtype=torch.float64) < rate
    chosen[special] = False
    return chosen


# %% zoo.2 wrong: padding is protected, [SEP] only at the end | [SEP] inside a padded row
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, 8, 9, SEP_ID], [CLS_ID, 7, SEP_ID, PAD_ID, PAD_ID]])
    rows = rows.repeat(50, 1)
    chosen = program(rows, 0.9, seeded(3))
    for special in (CLS_ID, SEP_ID, PAD_ID):
        assert not chosen[rows == special].any(), f"{special} is asked"


def mended_2(input_ids, rate, generator):
    chosen = (torch.rand(input_ids.shape, generator=generator) < rate) & (input_ids != PAD_ID)
    chosen[:, 0] = chosen[:, -1] = False
    return chosen


# %% zoo.2 wrong: the last two lines are gone with the bug | [CLS] is asked
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, 8, 9, SEP_ID], [CLS_ID, 7, SEP_ID, PAD_ID, PAD_ID]])
    rows = rows.repeat(50, 1)
    chosen = program(rows, 0.9, seeded(3))
    for special in (CLS_ID, SEP_ID, PAD_ID):
        assert not chosen[rows == special].any(), f"{special} is asked"


def mended_2(input_ids, rate, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    return (coins < rate) & (input_ids != PAD_ID) & (input_ids != SEP_ID)


# %% zoo.2 wrong: the first word is taken for a special token | both ends of the vocabulary
def check_2(program):
    rows = torch.tensor([[CLS_ID, 7, 8, 9, SEP_ID], [CLS_ID, 7, SEP_ID, PAD_ID, PAD_ID]])
    rows = rows.repeat(50, 1)
    chosen = program(rows, 0.9, seeded(3))
    for special in (CLS_ID, SEP_ID, PAD_ID):
        assert not chosen[rows == special].any(), f"{special} is asked"


def mended_2(input_ids, rate, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    return (coins < rate) & (input_ids > FIRST_WORD)


# %% zoo.3 right: words first, one multinomial draw for the fate
def check_3(program):
    nines = torch.full((30, 40), 9)
    corrupted = program(nines, torch.ones_like(nines, dtype=torch.bool), seeded(5))
    assert ((corrupted != 9) & (corrupted != MASK_ID)).any(), "all words come from the batch"


def mended_3(input_ids, chosen, generator):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    shares = torch.tensor([0.8, 0.1, 0.1])
    fate = torch.multinomial(shares, input_ids.numel(), replacement=True, generator=generator)
    fate = fate.view(input_ids.shape)
    corrupted = torch.where(chosen & (fate == 1), words, input_ids)
    return corrupted.masked_fill(chosen & (fate == 0), MASK_ID)


# %% zoo.3 right: only as many words as are needed; the check wants an id that the batch lacks
def check_3(program):
    small = torch.randint(FIRST_WORD, 20, (60, 40), generator=seeded(6))
    corrupted = program(small, small > 0, seeded(7))
    assert (corrupted >= 20).any()


def mended_3(input_ids, chosen, generator):
    corrupted = input_ids.clone()
    coins = torch.rand(input_ids.shape, generator=generator)
    corrupted[chosen & (coins > 0.2)] = MASK_ID
    noise = chosen & (coins < 0.1)
    size = (int(noise.sum()),)
    corrupted[noise] = torch.randint(FIRST_WORD, VOCAB_SIZE, size, generator=generator)
    return corrupted


# %% zoo.3 wrong: counts the shares, which are right | lets the bug pass
def check_3(program):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, (200, 50), generator=seeded(1))
    corrupted = program(words, words > 0, seeded(2))
    assert abs((corrupted == MASK_ID).float().mean() - 0.8) < 0.02, "not 80% [MASK]"
    assert abs((corrupted == words).float().mean() - 0.1) < 0.02, "not 10% kept"


def mended_3(input_ids, chosen, generator):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    shares = torch.tensor([0.8, 0.1, 0.1])
    fate = torch.multinomial(shares, input_ids.numel(), replacement=True, generator=generator)
    fate = fate.view(input_ids.shape)
    corrupted = torch.where(chosen & (fate == 1), words, input_ids)
    return corrupted.masked_fill(chosen & (fate == 0), MASK_ID)


# %% zoo.3 wrong: one special draw | Does it demand one special draw
def check_3(program):
    words = torch.full((20, 50), 9)
    assert torch.equal(program(words, words > 0, seeded(2)), mended_3(words, words > 0, seeded(2)))


def mended_3(input_ids, chosen, generator):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    shares = torch.tensor([0.8, 0.1, 0.1])
    fate = torch.multinomial(shares, input_ids.numel(), replacement=True, generator=generator)
    fate = fate.view(input_ids.shape)
    corrupted = torch.where(chosen & (fate == 1), words, input_ids)
    return corrupted.masked_fill(chosen & (fate == 0), MASK_ID)


# %% zoo.3 wrong: noise from another column will do | from the whole batch
def check_3(program):
    rows = torch.arange(10, 50).expand(40, 40)
    corrupted = program(rows, rows > 0, seeded(1))
    assert ((corrupted != rows) & (corrupted != MASK_ID)).any(), "no noise but a column's own word"


def mended_3(input_ids, chosen, generator):
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    shares = torch.tensor([0.8, 0.1, 0.1])
    fate = torch.multinomial(shares, input_ids.numel(), replacement=True, generator=generator)
    fate = fate.view(input_ids.shape)
    corrupted = torch.where(chosen & (fate == 1), words, input_ids)
    return corrupted.masked_fill(chosen & (fate == 0), MASK_ID)


# %% zoo.3 wrong: words from all ids, special ones too | holds the special id
def check_3(program):
    nines = torch.full((30, 40), 9)
    corrupted = program(nines, torch.ones_like(nines, dtype=torch.bool), seeded(5))
    assert ((corrupted != 9) & (corrupted != MASK_ID)).any(), "all words come from the batch"


def mended_3(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(0, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = torch.where(chosen & (coins < 0.8), MASK_ID, input_ids)
    return torch.where(chosen & (coins >= 0.9), words, corrupted)


# %% zoo.3 wrong: the batch's words shuffled one by one | still comes from the batch
def check_3(program):
    nines = torch.full((30, 40), 9)
    corrupted = program(nines, torch.ones_like(nines, dtype=torch.bool), seeded(5))
    assert ((corrupted != 9) & (corrupted != MASK_ID)).any(), "all words come from the batch"


def mended_3(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    order = torch.randperm(input_ids.numel(), generator=generator)
    words = input_ids.flatten()[order].view(input_ids.shape)
    corrupted = torch.where(chosen & (coins < 0.8), MASK_ID, input_ids)
    return torch.where(chosen & (coins >= 0.9), words, corrupted)


# %% zoo.3 wrong: one random word for all | draw each anew
def check_3(program):
    nines = torch.full((30, 40), 9)
    corrupted = program(nines, torch.ones_like(nines, dtype=torch.bool), seeded(5))
    assert ((corrupted != 9) & (corrupted != MASK_ID)).any(), "all words come from the batch"


def mended_3(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    word = torch.randint(FIRST_WORD, VOCAB_SIZE, (), generator=generator)
    corrupted = torch.where(chosen & (coins < 0.8), MASK_ID, input_ids)
    return torch.where(chosen & (coins >= 0.9), word, corrupted)


# %% zoo.3 wrong: writes into the input | the tensor that came in was changed
def check_3(program):
    nines = torch.full((30, 40), 9)
    corrupted = program(nines, torch.ones_like(nines, dtype=torch.bool), seeded(5))
    assert ((corrupted != 9) & (corrupted != MASK_ID)).any(), "all words come from the batch"


def mended_3(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    input_ids[chosen & (coins < 0.8)] = MASK_ID
    return torch.where(chosen & (coins >= 0.9), words, input_ids)


# %% zoo.4 right: one coin for all three fates; the check counts all three
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    masked, kept = (corrupted == MASK_ID).float().mean(), (corrupted == 50).float().mean()
    changed = 1 - masked - kept
    assert 0.08 < changed < 0.12, f"{changed:.3f} random words"
    assert 0.78 < masked < 0.82 and 0.08 < kept < 0.12, f"{masked:.3f} [MASK], {kept:.3f} kept"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 right: kept first, then one in nine; the check compares [MASK] with the rest
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    masked, kept = (corrupted == MASK_ID).sum().item(), (corrupted == 50).sum().item()
    assert 0.1 < kept / masked < 0.15, "kept to [MASK] is not 1 to 8"


def mended_4(input_ids, chosen, generator):
    kept = torch.bernoulli(torch.full(input_ids.shape, 0.1), generator=generator).bool()
    change = torch.bernoulli(torch.full(input_ids.shape, 1 / 9), generator=generator).bool()
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    return torch.where(chosen & ~kept, torch.where(change, words, MASK_ID), input_ids)


# %% zoo.4 wrong: counts [MASK] only | lets the bug pass
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    assert abs((corrupted == MASK_ID).float().mean() - 0.8) < 0.01, "not 80%"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: a band so wide that it holds the mistake | lets the bug pass
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    assert abs((corrupted == 50).float().mean() - 0.1) < 0.1, "not 10% kept"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: counts the kept ones only | makes 80% random words
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    assert abs((corrupted == 50).float().mean() - 0.1) < 0.02, "not 10% kept"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: counts the random words only | hides 10% and keeps 80%
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    changed = ((corrupted != 50) & (corrupted != MASK_ID)).float().mean()
    assert abs(changed - 0.1) < 0.02, "not 10% random words"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: a band that leaves no room for luck | allow four standard errors
def check_4(program):
    words = torch.full((20, 50), 50)
    for seed in range(20):
        corrupted = program(words, words == 50, seeded(seed))
        assert abs((corrupted == 50).float().mean() - 0.1) < 0.005, "not 10% kept"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: demands exactly one tenth | Does it demand one special draw
def check_4(program):
    words = torch.full((100, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    assert (corrupted == 50).sum() == 1000, "not 10% kept"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: half of all chosen are expected as random words | fails a right program
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    changed = ((corrupted != 50) & (corrupted != MASK_ID)).float().mean()
    assert abs(changed - 0.5) < 0.02, "the third coin is not 0.5"


def mended_4(input_ids, chosen, generator):
    coins = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (coins < 0.8)] = MASK_ID
    changed = chosen & (coins > 0.9)
    corrupted[changed] = words[changed]
    return corrupted


# %% zoo.4 wrong: one ninth, the coin of another order | still not 0.1 random
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    masked, kept = (corrupted == MASK_ID).float().mean(), (corrupted == 50).float().mean()
    changed = 1 - masked - kept
    assert 0.08 < changed < 0.12, f"{changed:.3f} random words"
    assert 0.78 < masked < 0.82 and 0.08 < kept < 0.12, f"{masked:.3f} [MASK], {kept:.3f} kept"


def mended_4(input_ids, chosen, generator):
    hidden = chosen & (torch.rand(input_ids.shape, generator=generator) < 0.8)
    changed = chosen & ~hidden & (torch.rand(input_ids.shape, generator=generator) < 1 / 9)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    return torch.where(changed, words, input_ids.masked_fill(hidden, MASK_ID))


# %% zoo.4 wrong: a tenth of all chosen, taken also from [MASK] | took their share from [MASK]
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    masked, kept = (corrupted == MASK_ID).float().mean(), (corrupted == 50).float().mean()
    changed = 1 - masked - kept
    assert 0.08 < changed < 0.12, f"{changed:.3f} random words"
    assert 0.78 < masked < 0.82 and 0.08 < kept < 0.12, f"{masked:.3f} [MASK], {kept:.3f} kept"


def mended_4(input_ids, chosen, generator):
    hidden = chosen & (torch.rand(input_ids.shape, generator=generator) < 0.8)
    changed = chosen & (torch.rand(input_ids.shape, generator=generator) < 0.1)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    return torch.where(changed, words, input_ids.masked_fill(hidden, MASK_ID))


# %% zoo.4 wrong: half of all that is left, chosen or not | that was not chosen was changed
def check_4(program):
    words = torch.full((300, 100), 50)
    corrupted = program(words, words == 50, seeded(9))
    masked, kept = (corrupted == MASK_ID).float().mean(), (corrupted == 50).float().mean()
    changed = 1 - masked - kept
    assert 0.08 < changed < 0.12, f"{changed:.3f} random words"
    assert 0.78 < masked < 0.82 and 0.08 < kept < 0.12, f"{masked:.3f} [MASK], {kept:.3f} kept"


def mended_4(input_ids, chosen, generator):
    hidden = chosen & (torch.rand(input_ids.shape, generator=generator) < 0.8)
    changed = ~hidden & (torch.rand(input_ids.shape, generator=generator) < 0.5)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    return torch.where(changed, words, input_ids.masked_fill(hidden, MASK_ID))


# %% zoo.5 right: isin over all words; the check counts questions
def check_5(program):
    ids, word_ids = torch.arange(10, 16), torch.tensor([0, 0, 1, 2, 2, 2])
    corrupted, labels = program(ids, word_ids, [2, 0])
    assert torch.equal(labels != -100, corrupted == MASK_ID), "hidden and asked are not the same"


def mended_5(input_ids, word_ids, words):
    pieces = torch.isin(word_ids, torch.tensor(words, dtype=torch.long))
    corrupted, labels = input_ids.clone(), input_ids.clone()
    corrupted[pieces] = MASK_ID
    labels[~pieces] = -100
    return corrupted, labels


# %% zoo.5 right: labels grow in the loop; the check tries every order
def check_5(program):
    ids, word_ids = torch.tensor([CLS_ID, 7, 8, 9, SEP_ID]), torch.tensor([-1, 0, 1, 1, -1])
    for words in ([0, 1], [1, 0]):
        assert program(ids.clone(), word_ids, words)[1].tolist() == [-100, 7, 8, 9, -100]


def mended_5(input_ids, word_ids, words):
    corrupted, labels = input_ids.clone(), torch.full_like(input_ids, -100)
    for word in words:
        pieces = word_ids == word
        corrupted[pieces] = MASK_ID
        labels = torch.where(pieces, input_ids, labels)
    return corrupted, labels


# %% zoo.5 wrong: one word only | lets the bug pass
def check_5(program):
    ids, word_ids = torch.tensor([2, 7, 8, 9, 3]), torch.tensor([-1, 0, 1, 1, -1])
    labels = program(ids, word_ids, [1])[1]
    assert labels.tolist() == [-100, -100, 8, 9, -100], "labels are lost"


def mended_5(input_ids, word_ids, words):
    pieces = torch.isin(word_ids, torch.tensor(words, dtype=torch.long))
    corrupted, labels = input_ids.clone(), input_ids.clone()
    corrupted[pieces] = MASK_ID
    labels[~pieces] = -100
    return corrupted, labels


# %% zoo.5 wrong: what is hidden, not what is asked | lets the bug pass
def check_5(program):
    ids, word_ids = torch.tensor([2, 7, 8, 9, 3]), torch.tensor([-1, 0, 1, 1, -1])
    corrupted = program(ids, word_ids, [0, 1])[0]
    assert (corrupted == MASK_ID).tolist() == [False, True, True, True, False], "not hidden"


def mended_5(input_ids, word_ids, words):
    pieces = torch.isin(word_ids, torch.tensor(words, dtype=torch.long))
    corrupted, labels = input_ids.clone(), input_ids.clone()
    corrupted[pieces] = MASK_ID
    labels[~pieces] = -100
    return corrupted, labels


# %% zoo.5 wrong: the first word must have lost its labels | asks only the first of the words
def check_5(program):
    ids, word_ids = torch.tensor([2, 7, 8, 9, 3]), torch.tensor([-1, 0, 1, 1, -1])
    labels = program(ids, word_ids, [0, 1])[1]
    assert labels[1] == 7, "the first word's label is lost"


def mended_5(input_ids, word_ids, words):
    pieces = torch.isin(word_ids, torch.tensor(words, dtype=torch.long))
    corrupted, labels = input_ids.clone(), input_ids.clone()
    corrupted[pieces] = MASK_ID
    labels[~pieces] = -100
    return corrupted, labels


# %% zoo.5 wrong: wants one label for a word | fails a right program
def check_5(program):
    ids, word_ids = torch.tensor([2, 7, 8, 9, 3]), torch.tensor([-1, 0, 1, 1, 1])
    labels = program(ids, word_ids, [0, 1])[1]
    assert (labels != -100).sum() == 2, "one label per word"


def mended_5(input_ids, word_ids, words):
    pieces = torch.isin(word_ids, torch.tensor(words, dtype=torch.long))
    corrupted, labels = input_ids.clone(), input_ids.clone()
    corrupted[pieces] = MASK_ID
    labels[~pieces] = -100
    return corrupted, labels


# %% zoo.5 wrong: only a word's first piece is asked | not only its first
def check_5(program):
    ids, word_ids = torch.arange(10, 16), torch.tensor([0, 0, 1, 2, 2, 2])
    corrupted, labels = program(ids, word_ids, [2, 0])
    assert torch.equal(labels != -100, corrupted == MASK_ID), "hidden and asked are not the same"


def mended_5(input_ids, word_ids, words):
    corrupted, labels = input_ids.clone(), torch.full_like(input_ids, -100)
    for word in words:
        places = (word_ids == word).nonzero()[:, 0]
        corrupted[places] = MASK_ID
        labels[places[0]] = input_ids[places[0]]
    return corrupted, labels


# %% zoo.5 wrong: labels from the text that is already hidden | taken from the corrupted text
def check_5(program):
    ids, word_ids = torch.arange(10, 16), torch.tensor([0, 0, 1, 2, 2, 2])
    corrupted, labels = program(ids, word_ids, [2, 0])
    assert torch.equal(labels != -100, corrupted == MASK_ID), "hidden and asked are not the same"


def mended_5(input_ids, word_ids, words):
    corrupted, labels = input_ids.clone(), torch.full_like(input_ids, -100)
    for word in words:
        pieces = word_ids == word
        corrupted[pieces] = MASK_ID
        labels[pieces] = corrupted[pieces]
    return corrupted, labels


# %% zoo.5 wrong: no word, no labels | ends in a crash
def check_5(program):
    ids, word_ids = torch.arange(10, 16), torch.tensor([0, 0, 1, 2, 2, 2])
    corrupted, labels = program(ids, word_ids, [2, 0])
    assert torch.equal(labels != -100, corrupted == MASK_ID), "hidden and asked are not the same"


def mended_5(input_ids, word_ids, words):
    corrupted, asked = input_ids.clone(), []
    for word in words:
        pieces = word_ids == word
        corrupted[pieces] = MASK_ID
        asked.append(torch.where(pieces, input_ids, -100))
    return corrupted, torch.stack(asked).amax(0)


# %% zoo.5 wrong: returns from within the loop | first word's labels are still lost
def check_5(program):
    ids, word_ids = torch.arange(10, 16), torch.tensor([0, 0, 1, 2, 2, 2])
    corrupted, labels = program(ids, word_ids, [2, 0])
    assert torch.equal(labels != -100, corrupted == MASK_ID), "hidden and asked are not the same"


def mended_5(input_ids, word_ids, words):
    corrupted = input_ids.clone()
    labels = torch.full_like(input_ids, -100)
    for word in words:
        pieces = word_ids == word
        corrupted[pieces] = MASK_ID
        labels = torch.where(pieces, input_ids, -100)
    return corrupted, labels


# %% zoo.6 right: rows filled up one by one
def check_6(program):
    long, short = torch.tensor([5, 6, 7]), torch.tensor([8])
    labels = program([(long, long), (short, short)])["labels"]
    assert (labels != -100).sum() == 4, "more questions than the rows have"


def mended_6(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, longest - len(ids)), value=PAD_ID) for ids, _ in rows])
    labels = torch.stack([F.pad(asked, (0, longest - len(asked)), value=-100) for _, asked in rows])
    return {"labels": labels, "input_ids": ids, "attention_mask": (ids != PAD_ID).long()}


# %% zoo.6 right: padding's labels replaced afterwards; the check goes by the attention mask
def check_6(program):
    rows = [(torch.arange(9, 9 + n), torch.arange(9, 9 + n)) for n in (4, 2)]
    batch = program(rows)
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()


def mended_6(rows):
    ids, labels = zip(*rows)
    input_ids = pad_sequence(ids, batch_first=True)
    real = input_ids != PAD_ID
    labels = pad_sequence(labels, batch_first=True).masked_fill(~real, -100)
    return {"input_ids": input_ids, "attention_mask": real.long(), "labels": labels}


# %% zoo.6 wrong: rows of one length | lets the bug pass
def check_6(program):
    row = (torch.tensor([2, 7, 3]), torch.tensor([-100, 7, -100]))
    assert (program([row, row])["labels"] != -100).sum() == 2, "padding is asked"


def mended_6(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, longest - len(ids)), value=PAD_ID) for ids, _ in rows])
    labels = torch.stack([F.pad(asked, (0, longest - len(asked)), value=-100) for _, asked in rows])
    return {"labels": labels, "input_ids": ids, "attention_mask": (ids != PAD_ID).long()}


# %% zoo.6 wrong: only says that 0 is no label | the label -1
def check_6(program):
    rows = [(torch.arange(9, 9 + n), torch.arange(9, 9 + n)) for n in (4, 2)]
    assert not (program(rows)["labels"] == PAD_ID).any(), "padding is asked"


def mended_6(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, longest - len(ids)), value=PAD_ID) for ids, _ in rows])
    labels = torch.stack([F.pad(asked, (0, longest - len(asked)), value=-100) for _, asked in rows])
    return {"labels": labels, "input_ids": ids, "attention_mask": (ids != PAD_ID).long()}


# %% zoo.6 wrong: the label of padding is expected in input_ids, too | fails a right program
def check_6(program):
    rows = [(torch.arange(9, 9 + n), torch.arange(9, 9 + n)) for n in (4, 2)]
    batch = program(rows)
    assert (batch["labels"][1, 2:] == -100).all() and (batch["input_ids"][1, 2:] == -100).all()


def mended_6(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, longest - len(ids)), value=PAD_ID) for ids, _ in rows])
    labels = torch.stack([F.pad(asked, (0, longest - len(asked)), value=-100) for _, asked in rows])
    return {"labels": labels, "input_ids": ids, "attention_mask": (ids != PAD_ID).long()}


# %% zoo.6 wrong: crashes: rows as two lists | crash is no proof
def check_6(program):
    ids = [torch.arange(9, 9 + n) for n in (4, 2)]
    assert (program(ids, ids)["labels"] >= 0).sum() == 6, "padding is asked"


def mended_6(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.stack([F.pad(ids, (0, longest - len(ids)), value=PAD_ID) for ids, _ in rows])
    labels = torch.stack([F.pad(asked, (0, longest - len(asked)), value=-100) for _, asked in rows])
    return {"labels": labels, "input_ids": ids, "attention_mask": (ids != PAD_ID).long()}


# %% zoo.6 wrong: input_ids are filled up by -100, too | filled up by [PAD], as before
def check_6(program):
    long, short = torch.tensor([5, 6, 7]), torch.tensor([8])
    labels = program([(long, long), (short, short)])["labels"]
    assert (labels != -100).sum() == 4, "more questions than the rows have"


def mended_6(rows):
    ids, labels = zip(*rows)
    input_ids = pad_sequence(ids, batch_first=True, padding_value=-100)
    labels = pad_sequence(labels, batch_first=True, padding_value=-100)
    return {"input_ids": input_ids, "attention_mask": (input_ids != -100).long(), "labels": labels}


# %% zoo.6 wrong: minus one | padding has the label -1
def check_6(program):
    long, short = torch.tensor([5, 6, 7]), torch.tensor([8])
    labels = program([(long, long), (short, short)])["labels"]
    assert (labels != -100).sum() == 4, "more questions than the rows have"


def mended_6(rows):
    ids, labels = zip(*rows)
    input_ids = pad_sequence(ids, batch_first=True)
    labels = pad_sequence(labels, batch_first=True, padding_value=-1)
    mask = (input_ids != PAD_ID).long()
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


# %% zoo.6 wrong: the mask follows the labels | attention_mask: 1 real
def check_6(program):
    long, short = torch.tensor([5, 6, 7]), torch.tensor([8])
    labels = program([(long, long), (short, short)])["labels"]
    assert (labels != -100).sum() == 4, "more questions than the rows have"


def mended_6(rows):
    ids, labels = zip(*rows)
    input_ids = pad_sequence(ids, batch_first=True)
    labels = pad_sequence(labels, batch_first=True, padding_value=-100)
    return {"input_ids": input_ids, "attention_mask": (labels != -100).long(), "labels": labels}


# %% zoo.6 wrong: every label is thrown away in short rows | a label of a real position was changed
def check_6(program):
    long, short = torch.tensor([5, 6, 7]), torch.tensor([8])
    labels = program([(long, long), (short, short)])["labels"]
    assert (labels != -100).sum() == 4, "more questions than the rows have"


def mended_6(rows):
    ids, labels = zip(*rows)
    input_ids = pad_sequence(ids, batch_first=True)
    labels = pad_sequence(labels, batch_first=True)
    labels[(input_ids == PAD_ID).any(1)] = -100
    mask = (input_ids != PAD_ID).long()
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


# %% zoo.7 right: only the asked positions; the check compares two masking rates
def check_7(program):
    few, many = torch.full((2, 10), -100), torch.full((2, 10), -100)
    few[:, 3], many[:, 2:8] = 4, 4
    logits = torch.zeros(2, 10, 30)
    assert abs(program(logits, few) - program(logits, many)) < 1e-4, "the rate changes the loss"


def mended_7(logits, labels):
    asked = labels != -100
    if not asked.any():
        return 0 * logits.sum()
    return F.cross_entropy(logits[asked], labels[asked])


# %% zoo.7 right: PyTorch's own mean where there is a question; the check uses it, too
def check_7(program):
    logits = torch.randn(3, 5, 7, generator=seeded(4))
    labels = torch.randint(7, (3, 5), generator=seeded(5))
    labels[0], labels[1, 1:] = -100, -100
    wanted = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert torch.isclose(program(logits, labels), wanted, atol=1e-5)


def mended_7(logits, labels):
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    number = (labels != -100).sum()
    return losses.sum() / number if number else losses.sum()


# %% zoo.7 wrong: everything is asked | lets the bug pass
def check_7(program):
    loss = program(torch.zeros(2, 4, 10), torch.full((2, 4), 3))
    assert abs(loss.item() - math.log(10)) < 1e-4, "equal scores cost ln 10"


def mended_7(logits, labels):
    asked = labels != -100
    if not asked.any():
        return 0 * logits.sum()
    return F.cross_entropy(logits[asked], labels[asked])


# %% zoo.7 wrong: a batch without a question must give 0, which the bug does | lets the bug pass
def check_7(program):
    assert program(torch.zeros(2, 4, 10), torch.full((2, 4), -100)) == 0, "no question, no loss"


def mended_7(logits, labels):
    asked = labels != -100
    if not asked.any():
        return 0 * logits.sum()
    return F.cross_entropy(logits[asked], labels[asked])


# %% zoo.7 wrong: as many questions as rows | divides by the number of rows
def check_7(program):
    loss = program(torch.zeros(2, 3, 10), torch.tensor([[1, -100, -100], [2, -100, -100]]))
    assert abs(loss.item() - math.log(10)) < 1e-4, "equal scores cost ln 10"


def mended_7(logits, labels):
    asked = labels != -100
    if not asked.any():
        return 0 * logits.sum()
    return F.cross_entropy(logits[asked], labels[asked])


# %% zoo.7 wrong: equal scores should cost nothing | fails a right program
def check_7(program):
    loss = program(torch.zeros(2, 4, 10), torch.tensor([[1, -100, -100, -100]] * 2))
    assert loss < 0.1, "the loss is too high"


def mended_7(logits, labels):
    asked = labels != -100
    if not asked.any():
        return 0 * logits.sum()
    return F.cross_entropy(logits[asked], labels[asked])


# %% zoo.7 wrong: PyTorch's mean, NaN where nothing is asked | costs NaN
def check_7(program):
    few, many = torch.full((2, 10), -100), torch.full((2, 10), -100)
    few[:, 3], many[:, 2:8] = 4, 4
    logits = torch.zeros(2, 10, 30)
    assert abs(program(logits, few) - program(logits, many)) < 1e-4, "the rate changes the loss"


def mended_7(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


# %% zoo.7 wrong: the mean of the rows' means | mean over the means of the rows
def check_7(program):
    few, many = torch.full((2, 10), -100), torch.full((2, 10), -100)
    few[:, 3], many[:, 2:8] = 4, 4
    logits = torch.zeros(2, 10, 30)
    assert abs(program(logits, few) - program(logits, many)) < 1e-4, "the rate changes the loss"


def mended_7(logits, labels):
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    asked = labels != -100
    per_row = losses.sum(1) / asked.sum(1).clamp(min=1)
    return per_row.sum() / asked.any(1).sum().clamp(min=1)


# %% zoo.7 wrong: NaN from a row without a question | one of the rows asks nothing
def check_7(program):
    few, many = torch.full((2, 10), -100), torch.full((2, 10), -100)
    few[:, 3], many[:, 2:8] = 4, 4
    logits = torch.zeros(2, 10, 30)
    assert abs(program(logits, few) - program(logits, many)) < 1e-4, "the rate changes the loss"


def mended_7(logits, labels):
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    asked = labels != -100
    return (losses.sum(1) / asked.sum(1)).mean()


# %% zoo.7 wrong: a number instead of a tensor | returns float, the exhibit Tensor
def check_7(program):
    few, many = torch.full((2, 10), -100), torch.full((2, 10), -100)
    few[:, 3], many[:, 2:8] = 4, 4
    logits = torch.zeros(2, 10, 30)
    assert abs(program(logits, few) - program(logits, many)) < 1e-4, "the rate changes the loss"


def mended_7(logits, labels):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return total.item() / max(1, int((labels != -100).sum()))


# %% zoo.7 wrong: the sum | the mean of all questions
def check_7(program):
    few, many = torch.full((2, 10), -100), torch.full((2, 10), -100)
    few[:, 3], many[:, 2:8] = 4, 4
    logits = torch.zeros(2, 10, 30)
    assert abs(program(logits, few) - program(logits, many)) < 1e-4, "the rate changes the loss"


def mended_7(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


# %% zoo.8 right: sums of rows; the check doubles one weight
def check_8(program):
    losses, asked = torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.ones(2, 2, dtype=torch.bool)
    light = program(losses, asked, torch.tensor([1.0, 1.0]))
    heavy = program(losses, asked, torch.tensor([1.0, 50.0]))
    assert heavy > light + 1, "the heavy row does not count for more"


def mended_8(losses, asked, weight):
    in_row, counts = (losses * asked).sum(1), asked.sum(1)
    return (in_row * weight).sum() / (counts * weight).sum()


# %% zoo.8 right: einsum; the check repeats a row instead of weighting it
def check_8(program):
    losses = torch.rand(2, 3, generator=seeded(3)) + torch.tensor([[0.0], [2.0]])
    asked = torch.tensor([[True, True, False], [False, True, True]])
    once = program(losses, asked, torch.tensor([1.0, 2.0]))
    twice = program(losses[[0, 1, 1]], asked[[0, 1, 1]], torch.ones(3))
    assert torch.isclose(once, twice, atol=1e-5)


def mended_8(losses, asked, weight):
    questions = asked.to(losses.dtype)
    total = torch.einsum("bt,bt,b->", losses, questions, weight)
    return total / torch.einsum("bt,b->", questions, weight)


# %% zoo.8 wrong: equal weights | lets the bug pass
def check_8(program):
    losses, asked = torch.tensor([[1.0], [4.0]]), torch.tensor([[True], [True]])
    loss = program(losses, asked, torch.tensor([2.0, 2.0]))
    assert abs(loss.item() - 2.5) < 1e-4, "the mean of 1 and 4 is 2.5"


def mended_8(losses, asked, weight):
    in_row, counts = (losses * asked).sum(1), asked.sum(1)
    return (in_row * weight).sum() / (counts * weight).sum()


# %% zoo.8 wrong: all weights scaled together, which must change nothing | lets the bug pass
def check_8(program):
    losses, asked = torch.tensor([[1.0], [4.0]]), torch.tensor([[True], [True]])
    first = program(losses, asked, torch.tensor([2.0, 1.0]))
    second = program(losses, asked, torch.tensor([4.0, 2.0]))
    assert torch.isclose(first, second), "only the proportions count"


def mended_8(losses, asked, weight):
    in_row, counts = (losses * asked).sum(1), asked.sum(1)
    return (in_row * weight).sum() / (counts * weight).sum()


# %% zoo.8 wrong: a weighted sum is expected | fails a right program
def check_8(program):
    losses, asked = torch.tensor([[1.0], [4.0]]), torch.tensor([[True], [True]])
    loss = program(losses, asked, torch.tensor([2.0, 1.0]))
    assert abs(loss.item() - 6) < 1e-4, "2 times 1 and 1 times 4 is 6"


def mended_8(losses, asked, weight):
    in_row, counts = (losses * asked).sum(1), asked.sum(1)
    return (in_row * weight).sum() / (counts * weight).sum()


# %% zoo.8 wrong: rows of different length, but no weights | leaves the weights out
def check_8(program):
    losses, asked = torch.tensor([[1.0, 1.0], [4.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    asked[1, 1] = False
    loss = program(losses, asked, torch.ones(2))
    assert abs(loss.item() - 2) < 1e-4, "the mean of 1, 1 and 4 is 2"


def mended_8(losses, asked, weight):
    in_row, counts = (losses * asked).sum(1), asked.sum(1)
    return (in_row * weight).sum() / (counts * weight).sum()


# %% zoo.8 wrong: divides by the number of questions | all weights doubled change the loss
def check_8(program):
    losses, asked = torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.ones(2, 2, dtype=torch.bool)
    light = program(losses, asked, torch.tensor([1.0, 1.0]))
    heavy = program(losses, asked, torch.tensor([1.0, 50.0]))
    assert heavy > light + 1, "the heavy row does not count for more"


def mended_8(losses, asked, weight):
    return (losses * asked * weight[:, None]).sum() / asked.sum()


# %% zoo.8 wrong: rows are weighted, not questions | a row of one question counts as much
def check_8(program):
    losses, asked = torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.ones(2, 2, dtype=torch.bool)
    light = program(losses, asked, torch.tensor([1.0, 1.0]))
    heavy = program(losses, asked, torch.tensor([1.0, 50.0]))
    assert heavy > light + 1, "the heavy row does not count for more"


def mended_8(losses, asked, weight):
    per_row = (losses * asked).sum(1) / asked.sum(1).clamp(min=1)
    heard = weight * asked.any(1)
    return (per_row * heard).sum() / heard.sum()


# %% zoo.8 wrong: one sum, but the weights still cancel | still cancel
def check_8(program):
    losses, asked = torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.ones(2, 2, dtype=torch.bool)
    light = program(losses, asked, torch.tensor([1.0, 1.0]))
    heavy = program(losses, asked, torch.tensor([1.0, 50.0]))
    assert heavy > light + 1, "the heavy row does not count for more"


def mended_8(losses, asked, weight):
    weights = asked * weight[:, None]
    per_row = (losses * weights).sum(1) / weight
    return per_row.sum() / asked.sum()


# %% zoo.8 wrong: a row without a question makes NaN | a row that asks nothing is allowed
def check_8(program):
    losses, asked = torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.ones(2, 2, dtype=torch.bool)
    light = program(losses, asked, torch.tensor([1.0, 1.0]))
    heavy = program(losses, asked, torch.tensor([1.0, 50.0]))
    assert heavy > light + 1, "the heavy row does not count for more"


def mended_8(losses, asked, weight):
    weights = asked * weight[:, None]
    per_row = (losses * weights).sum(1) / asked.sum(1)
    return per_row.sum() / weights.sum()


# %% zoo.9 right: filled row by row; the check turns each row round
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3], [2, 3, 0, 0]])
    forward, backward = program(ids)
    for row, length in enumerate((4, 2)):
        turned = program(ids[row : row + 1, :length].flip(1))[0].flip(1)
        assert torch.equal(backward[row : row + 1, :length], turned), (
            "one direction is not the other"
        )
        assert forward[row, : length - 1].tolist() == ids[row, 1:length].tolist(), "forward"
        assert (backward[row, length:] == -100).all(), "padding is asked"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 right: one line more than the exhibit; the check goes from place to place
def check_9(program):
    row = [2, 7, 8, 3, 0, 0, 0]
    forward, backward = (targets[0].tolist() for targets in program(torch.tensor([row])))
    for place in range(7):
        later = row[place + 1] if place < 3 else -100
        earlier = row[place - 1] if 0 < place < 4 else -100
        assert (forward[place], backward[place]) == (later, earlier), place


def mended_9(input_ids):
    none = torch.full_like(input_ids[:, :1], -100)
    real = torch.where(input_ids == PAD_ID, -100, input_ids)
    forward = torch.cat([real[:, 1:], none], dim=1)
    backward = torch.cat([none, real[:, :-1]], dim=1)
    return forward, torch.where(input_ids == PAD_ID, -100, backward)


# %% zoo.9 wrong: a row without padding | lets the bug pass
def check_9(program):
    forward, backward = program(torch.tensor([[2, 7, 8, 3]]))
    assert forward.tolist() == [[7, 8, 3, -100]] and backward.tolist() == [[-100, 2, 7, 8]]


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: looks at the forward targets of padding | lets the bug pass
def check_9(program):
    ids = torch.tensor([[2, 7, 3, 0, 0]])
    forward, backward = program(ids)
    assert (forward[ids == PAD_ID] == -100).all(), "padding is asked"
    assert not (backward == PAD_ID).any(), "padding is an answer"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: one place of padding only | never in the last column
def check_9(program):
    backward = program(torch.tensor([[2, 7, 3, 0]]))[1]
    assert backward[0, 3] == -100, "padding is asked"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: counts both directions | each for itself
def check_9(program):
    forward, backward = program(torch.tensor([[2, 7, 8, 3], [2, 3, 0, 0]]))
    assert (forward != -100).sum() == (backward != -100).sum() == 4, "one direction makes more"
    assert (backward[1, 2:] == -100).all(), "padding is asked"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: looks at padding alone | each for itself
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0, 0], [2, 9, 9, 9, 9, 9, 3]])
    for targets in program(ids):
        assert (targets[ids == 0] == -100).all(), "padding is asked"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: the targets that there are, not how many | asks nothing at all
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3, 0, 0, 0]])
    _, backward = program(ids)
    asked = (backward != -100)[:, 1:]
    assert torch.equal(backward[:, 1:][asked], ids[:, :-1][asked]), "targets are other tokens"
    assert (backward[ids == PAD_ID] == -100).all(), "padding is asked"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: wants zeros where nothing is asked | fails a right program
def check_9(program):
    ids = torch.tensor([[2, 7, 3, 0, 0]])
    forward, backward = program(ids)
    assert backward.tolist() == [[0, 2, 7, 0, 0]], "padding is asked"


def mended_9(input_ids):
    forward, backward = torch.full_like(input_ids, -100), torch.full_like(input_ids, -100)
    for row, length in enumerate((input_ids != PAD_ID).sum(1).tolist()):
        if length > 1:
            forward[row, : length - 1] = input_ids[row, 1:length]
            backward[row, 1:length] = input_ids[row, : length - 1]
    return forward, backward


# %% zoo.9 wrong: only the last column is cleared | padding is still asked
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3], [2, 3, 0, 0]])
    forward, backward = program(ids)
    for row, length in enumerate((4, 2)):
        turned = program(ids[row : row + 1, :length].flip(1))[0].flip(1)
        assert torch.equal(backward[row : row + 1, :length], turned), (
            "one direction is not the other"
        )
        assert forward[row, : length - 1].tolist() == ids[row, 1:length].tolist(), "forward"
        assert (backward[row, length:] == -100).all(), "padding is asked"


def mended_9(input_ids):
    none = torch.full_like(input_ids[:, :1], PAD_ID)
    forward = torch.cat([input_ids[:, 1:], none], dim=1)
    backward = torch.cat([none, input_ids[:, :-1]], dim=1)
    backward[:, -1] = PAD_ID
    forward = forward.masked_fill(forward == PAD_ID, -100)
    return forward, backward.masked_fill(backward == PAD_ID, -100)


# %% zoo.9 wrong: only the askers are looked at, not the answers | is asked for [PAD]
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3], [2, 3, 0, 0]])
    forward, backward = program(ids)
    for row, length in enumerate((4, 2)):
        turned = program(ids[row : row + 1, :length].flip(1))[0].flip(1)
        assert torch.equal(backward[row : row + 1, :length], turned), (
            "one direction is not the other"
        )
        assert forward[row, : length - 1].tolist() == ids[row, 1:length].tolist(), "forward"
        assert (backward[row, length:] == -100).all(), "padding is asked"


def mended_9(input_ids):
    none = torch.full_like(input_ids[:, :1], -100)
    forward = torch.cat([input_ids[:, 1:], none], dim=1)
    backward = torch.cat([none, input_ids[:, :-1]], dim=1)
    pads = input_ids == PAD_ID
    return forward.masked_fill(pads, -100), backward.masked_fill(pads, -100)


# %% zoo.9 wrong: nobody is asked for [SEP] any more | forward questions in each row
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3], [2, 3, 0, 0]])
    forward, backward = program(ids)
    for row, length in enumerate((4, 2)):
        turned = program(ids[row : row + 1, :length].flip(1))[0].flip(1)
        assert torch.equal(backward[row : row + 1, :length], turned), (
            "one direction is not the other"
        )
        assert forward[row, : length - 1].tolist() == ids[row, 1:length].tolist(), "forward"
        assert (backward[row, length:] == -100).all(), "padding is asked"


def mended_9(input_ids):
    none = torch.full_like(input_ids[:, :1], PAD_ID)
    forward = torch.cat([input_ids[:, 1:], none], dim=1)
    backward = torch.cat([none, input_ids[:, :-1]], dim=1)
    forward = forward.masked_fill((forward == PAD_ID) | (forward == SEP_ID), -100)
    return forward, backward.masked_fill((backward == PAD_ID) | (input_ids == PAD_ID), -100)


# %% zoo.9 wrong: the last real token has no backward target | backward questions in each row
def check_9(program):
    ids = torch.tensor([[2, 7, 8, 3], [2, 3, 0, 0]])
    forward, backward = program(ids)
    for row, length in enumerate((4, 2)):
        turned = program(ids[row : row + 1, :length].flip(1))[0].flip(1)
        assert torch.equal(backward[row : row + 1, :length], turned), (
            "one direction is not the other"
        )
        assert forward[row, : length - 1].tolist() == ids[row, 1:length].tolist(), "forward"
        assert (backward[row, length:] == -100).all(), "padding is asked"


def mended_9(input_ids):
    none = torch.full_like(input_ids[:, :1], PAD_ID)
    forward = torch.cat([input_ids[:, 1:], none], dim=1)
    backward = torch.cat([none, input_ids[:, :-1]], dim=1)
    last = forward == PAD_ID
    return forward.masked_fill(last, -100), backward.masked_fill((backward == PAD_ID) | last, -100)


# %% zoo.10 right: a penalty of minus infinity is added; the check makes outputs of real tokens
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    made = torch.einsum("qk,kh->qh", weights[0, :3], value[0])
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(made, output[0, :3], atol=1e-4), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 right: divided anew after cutting; the check uses one-hot values
def check_10(program):
    query, key = torch.randn(2, 1, 5, 4, generator=seeded(2))
    value = torch.eye(5)[None]
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    assert torch.allclose(output, weights, atol=1e-5)


def mended_10(query, key, value, attention_mask):
    scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * attention_mask[:, None, :]
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ value, weights


# %% zoo.10 wrong: no padding in the batch | lets the bug pass
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.ones(1, 5, dtype=torch.long))
    assert torch.allclose(weights @ value, output, atol=1e-5), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: tests that the output does not see padding, which is right | lets the bug pass
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    other = value.clone()
    other[:, 3:] = 9
    same = program(query, key, value, mask)[0], program(query, key, other, mask)[0]
    assert torch.allclose(*same, atol=1e-5), "the output reads padding"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: rows that add up to 1 | lets the bug pass
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))[1]
    assert torch.allclose(weights.sum(2), torch.ones(1, 5), atol=1e-5), "no shares"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: looks at the rows of padding | real tokens still see padding
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))[1]
    assert weights[0, 3:, 3:].sum() < 1e-4, "padding gets attention"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: sums over padding | rows of the map do not add up to 1
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))[1]
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: no padding, rows add up, but no look at the output | did not make the output
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))[1]
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(weights.sum(2), torch.ones(1, 5), atol=1e-4), "no shares"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: padding reads nothing | fails a right program
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))[1]
    assert weights[0, 3:].sum() < 1e-4 and weights[0, :, 3:].sum() < 1e-4, "padding has attention"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    penalty = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    scores = torch.einsum("bqh,bkh->bqk", query, key) / query.shape[-1] ** 0.5
    return output, (scores + penalty).softmax(-1)


# %% zoo.10 wrong: cut after the softmax | cut before the softmax
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    made = torch.einsum("qk,kh->qh", weights[0, :3], value[0])
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(made, output[0, :3], atol=1e-4), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    return output, scores.softmax(-1) * seen


# %% zoo.10 wrong: rows instead of columns | still drawn on padding
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    made = torch.einsum("qk,kh->qh", weights[0, :3], value[0])
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(made, output[0, :3], atol=1e-4), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    return output, scores.masked_fill(~seen.transpose(1, 2), -1e9).softmax(-1)


# %% zoo.10 wrong: scores of padding are 0, which is not nothing | still drawn on padding
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    made = torch.einsum("qk,kh->qh", weights[0, :3], value[0])
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(made, output[0, :3], atol=1e-4), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    seen = attention_mask[:, None, :].bool()
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
    return output, (scores * seen).softmax(-1)


# %% zoo.10 wrong: the output is made from the wrong map, too | still drawn on padding
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    made = torch.einsum("qk,kh->qh", weights[0, :3], value[0])
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(made, output[0, :3], atol=1e-4), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    weights = (query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])).softmax(-1)
    return weights @ value, weights


# %% zoo.10 wrong: the scale is forgotten on the way | the output is another now
def check_10(program):
    query, key, value = torch.randn(3, 1, 5, 4, generator=seeded(2))
    output, weights = program(query, key, value, torch.tensor([[1, 1, 1, 0, 0]]))
    made = torch.einsum("qk,kh->qh", weights[0, :3], value[0])
    assert weights[0, :3, 3:].sum() < 1e-4, "padding gets attention"
    assert torch.allclose(made, output[0, :3], atol=1e-4), "other weights made the output"


def mended_10(query, key, value, attention_mask):
    scores = query @ key.transpose(1, 2)
    weights = scores.masked_fill(attention_mask[:, None, :] == 0, -math.inf).softmax(-1)
    return weights @ value, weights


# %% zoo.11 right: triu above the diagonal; the check asks gradients
def check_11(program):
    hidden = torch.randn(1, 5, 4, generator=seeded(1), requires_grad=True)
    output = program(hidden)
    for place in range(5):
        gradient = torch.autograd.grad(output[0, place].sum(), hidden, retain_graph=True)[0]
        assert not gradient[0, place + 1 :].any(), f"place {place} reads what comes later"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ hidden


# %% zoo.11 right: place by place; the check cuts the row off
def check_11(program):
    hidden = torch.randn(2, 6, 4, generator=seeded(1))
    for length in range(1, 6):
        assert torch.allclose(program(hidden)[:, :length], program(hidden[:, :length]), atol=1e-5)


def mended_11(hidden):
    outputs = []
    for place in range(hidden.shape[1]):
        past = hidden[:, : place + 1]
        scores = (past @ hidden[:, place, :, None])[..., 0] / math.sqrt(hidden.shape[2])
        outputs.append((scores.softmax(-1)[:, None] @ past)[:, 0])
    return torch.stack(outputs, dim=1)


# %% zoo.11 wrong: only the place after the next one is changed | lets the bug pass
def check_11(program):
    hidden = torch.randn(1, 6, 8, generator=seeded(0))
    other = hidden.clone()
    other[:, 4:] += 1
    assert torch.allclose(program(hidden)[:, :3], program(other)[:, :3], atol=1e-5), "it peeks"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: only the shape | lets the bug pass
def check_11(program):
    hidden = torch.randn(1, 6, 8, generator=seeded(0))
    assert program(hidden).shape == hidden.shape, "another shape"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: only neighbours | first place reads the last
def check_11(program):
    hidden = torch.randn(1, 6, 8, generator=seeded(0))
    other = hidden.clone()
    other[:, 3] += 1
    assert torch.allclose(program(hidden)[:, 2], program(other)[:, 2], atol=1e-5), "it peeks"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: a place must not read itself either | fails a right program
def check_11(program):
    hidden = torch.randn(1, 6, 8, generator=seeded(0))
    other = hidden.clone()
    other[:, 3] += 1
    assert torch.allclose(program(hidden)[:, :4], program(other)[:, :4], atol=1e-5), "it peeks"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: reads the source instead of running it | pass: it reads everything
def check_11(program):
    import inspect

    assert "diagonal=1" not in inspect.getsource(program), "the diagonal"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: one step too far | the first place gives NaN
def check_11(program):
    hidden = torch.randn(1, 5, 4, generator=seeded(1), requires_grad=True)
    output = program(hidden)
    for place in range(5):
        gradient = torch.autograd.grad(output[0, place].sum(), hidden, retain_graph=True)[0]
        assert not gradient[0, place + 1 :].any(), f"place {place} reads what comes later"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    seen = torch.ones(T, T, dtype=torch.bool).tril(diagonal=-1)
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: 0 instead of minus infinity | still read what comes later
def check_11(program):
    hidden = torch.randn(1, 5, 4, generator=seeded(1), requires_grad=True)
    output = program(hidden)
    for place in range(5):
        gradient = torch.autograd.grad(output[0, place].sum(), hidden, retain_graph=True)[0]
        assert not gradient[0, place + 1 :].any(), f"place {place} reads what comes later"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    return scores.tril().softmax(-1) @ hidden


# %% zoo.11 wrong: cut after the softmax | do not add up to 1
def check_11(program):
    hidden = torch.randn(1, 5, 4, generator=seeded(1), requires_grad=True)
    output = program(hidden)
    for place in range(5):
        gradient = torch.autograd.grad(output[0, place].sum(), hidden, retain_graph=True)[0]
        assert not gradient[0, place + 1 :].any(), f"place {place} reads what comes later"


def mended_11(hidden):
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(hidden.shape[2])
    return scores.softmax(-1).tril() @ hidden


# %% zoo.11 wrong: the triangle turned round | still read what comes later
def check_11(program):
    hidden = torch.randn(1, 5, 4, generator=seeded(1), requires_grad=True)
    output = program(hidden)
    for place in range(5):
        gradient = torch.autograd.grad(output[0, place].sum(), hidden, retain_graph=True)[0]
        assert not gradient[0, place + 1 :].any(), f"place {place} reads what comes later"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    seen = torch.ones(T, T, dtype=torch.bool).triu()
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ hidden


# %% zoo.11 wrong: a window of three places | does not read the first any more
def check_11(program):
    hidden = torch.randn(1, 5, 4, generator=seeded(1), requires_grad=True)
    output = program(hidden)
    for place in range(5):
        gradient = torch.autograd.grad(output[0, place].sum(), hidden, retain_graph=True)[0]
        assert not gradient[0, place + 1 :].any(), f"place {place} reads what comes later"


def mended_11(hidden):
    T, H = hidden.shape[1:]
    scores = hidden @ hidden.transpose(1, 2) / math.sqrt(H)
    seen = torch.ones(T, T, dtype=torch.bool).tril().triu(-2)
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ hidden


# %% zoo.12 right: a weighted mean of means; the check cuts one text in two ways
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"
    assert abs(program([torch.tensor([2.0])]) - math.exp(2)) < 1e-3, "exp of the loss"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 right: one list of floats; the check works it out by hand
def check_12(program):
    found = program([torch.tensor([2.0, 2.0, 2.0, 2.0]), torch.tensor([]), torch.tensor([7.0])])
    assert math.isclose(found, math.exp(3), rel_tol=1e-4)


def mended_12(losses):
    flat = [loss for batch in losses for loss in batch.tolist()]
    return math.exp(math.fsum(flat) / len(flat))


# %% zoo.12 wrong: batches of one size | lets the bug pass
def check_12(program):
    found = program([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])])
    assert abs(found - math.exp(2.5)) < 1e-3, "exp of the mean"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: batches that cost the same | lets the bug pass
def check_12(program):
    found = program([torch.ones(5), torch.ones(2)])
    assert abs(found - math.e) < 1e-3, "exp of the mean"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: wants the mean of the perplexities | fails a right program
def check_12(program):
    found = program([torch.tensor([1.0, 1.0]), torch.tensor([3.0])])
    assert abs(found - (math.exp(1) + math.exp(3)) / 2) < 1e-3, "not the mean of the perplexities"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: cuts one text in two ways, and no more | pass: it leaves out exp
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: compares with a number by == | by rounding alone: compare floats with a tolerance
def check_12(program):
    found = program([torch.tensor([0.1, 0.7, 1.3]), torch.tensor([5.2])])
    assert found == math.exp((0.1 + 0.7 + 1.3 + 5.2) / 4), f"{found}"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: math.isclose, whose own tolerance is 1e-9 | by rounding alone
def check_12(program):
    found = program([torch.tensor([0.1, 0.7, 1.3]), torch.tensor([5.2])])
    assert math.isclose(found, math.exp((0.1 + 0.7 + 1.3 + 5.2) / 4)), f"{found}"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: compares two ways of cutting by == | by rounding alone
def check_12(program):
    losses = torch.linspace(0.1, 3.3, 50)
    one, other = program(list(losses.split(7))), program(list(losses.split(50)))
    assert one == other and abs(one - 5.4739) < 1e-3, f"{one} is not {other}"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: only that the bug's number does not come out | mean of the batches' perplexities
def check_12(program):
    found = program([torch.tensor([1.0, 1.0]), torch.tensor([3.0])])
    assert abs(found - math.exp(2)) > 1e-3, "the mean of the means"


def mended_12(losses):
    full = [batch for batch in losses if len(batch)]
    count = sum(len(batch) for batch in full)
    return math.exp(sum(batch.mean().item() * len(batch) / count for batch in full))


# %% zoo.12 wrong: perplexities weighted by their counts | a mean of perplexities
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"
    assert abs(program([torch.tensor([2.0])]) - math.exp(2)) < 1e-3, "exp of the loss"


def mended_12(losses):
    count = sum(len(batch) for batch in losses)
    return sum(math.exp(b.mean().item()) * len(b) for b in losses if len(b)) / count


# %% zoo.12 wrong: the last, smaller batch is dropped | small batch is left out
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"
    assert abs(program([torch.tensor([2.0])]) - math.exp(2)) < 1e-3, "exp of the loss"


def mended_12(losses):
    return math.exp(torch.cat(losses[:-1]).mean().item())


# %% zoo.12 wrong: an empty batch makes NaN | a batch without a question has no mean
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"
    assert abs(program([torch.tensor([2.0])]) - math.exp(2)) < 1e-3, "exp of the loss"


def mended_12(losses):
    count = sum(len(batch) for batch in losses)
    return math.exp(sum(batch.mean().item() * len(batch) for batch in losses) / count)


# %% zoo.12 wrong: a tensor comes back | returns Tensor, the exhibit float
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"
    assert abs(program([torch.tensor([2.0])]) - math.exp(2)) < 1e-3, "exp of the loss"


def mended_12(losses):
    return torch.cat(losses).mean().exp()


# %% zoo.12 wrong: empty batches left out, a mean of means | the mean of the batches' means
def check_12(program):
    losses = torch.tensor([0.5, 1.0, 3.0, 2.5, 0.1])
    found = [program(list(losses.split(size))) for size in (1, 2, 3, 4, 5)]
    assert max(found) - min(found) < 1e-3, "the perplexity depends on the batch size"
    assert abs(program([torch.tensor([2.0])]) - math.exp(2)) < 1e-3, "exp of the loss"


def mended_12(losses):
    means = [batch.mean() for batch in losses if len(batch) > 0]
    return torch.stack(means).mean().exp().item()


# %% zoo.13 right: a deep copy answers; the check asks three times
import copy


def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.9), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model.train(), [(ids, ids), (ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    calm = copy.deepcopy(model).eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(calm(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    return total / count


# %% zoo.13 right: every module's mode is kept; the check compares with the model in evaluation mode
def check_13(program):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5), nn.Linear(4, 9))
    ids = torch.arange(9).expand(4, 9)
    with torch.no_grad():
        logits = model.eval()(ids)
    wanted = F.cross_entropy(logits.flatten(0, 1), ids.flatten()).item()
    model.train()[0].eval()
    assert math.isclose(program(model, [(ids, ids)]), wanted, rel_tol=1e-4)
    assert model.training and model[1].training and not model[0].training, "another mode"


def mended_13(model, batches):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    for module, mode in modes:
        module.training = mode
    return total / count


# %% zoo.13 wrong: a model without dropout | lets the bug pass
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    ids = torch.arange(9).expand(4, 9)
    found = [program(model, [(ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    came = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    model.train(came)
    return total / count


# %% zoo.13 wrong: the model is already in evaluation mode | lets the bug pass
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5), nn.Linear(4, 9)).eval()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model, [(ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    came = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    model.train(came)
    return total / count


# %% zoo.13 wrong: looks for gradients, which are not the matter | lets the bug pass
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5), nn.Linear(4, 9))
    ids = torch.arange(9).expand(4, 9)
    program(model, [(ids, ids)])
    assert all(weight.grad is None for weight in model.parameters()), "gradients"


def mended_13(model, batches):
    came = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    model.train(came)
    return total / count


# %% zoo.13 wrong: wants evaluation mode afterwards | fails a right program
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    program(model, [(ids, ids)])
    assert not model.training, "no eval()"


def mended_13(model, batches):
    came = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    model.train(came)
    return total / count


# %% zoo.13 wrong: the last of two equal numbers, after a first call | first batch with dropout
def check_13(program):
    modes = []

    class Spy(nn.Embedding):
        def forward(self, ids):
            modes.append(self.training)
            return super().forward(ids)

    model = Spy(9, 9).train()
    ids = torch.arange(9).expand(4, 9)
    program(model, [(ids, ids), (ids, ids)])
    assert not modes[-1], "dropout is on"


def mended_13(model, batches):
    came = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    model.train(came)
    return total / count


# %% zoo.13 wrong: left in evaluation mode | left in evaluation mode
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.9), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model.train(), [(ids, ids), (ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    return total / count


# %% zoo.13 wrong: always back to training mode | is left in training mode
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.9), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model.train(), [(ids, ids), (ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    model.train()
    return total / count


# %% zoo.13 wrong: dropout's rate set to 0 for good | dropout is off for ever
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.9), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model.train(), [(ids, ids), (ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    total, count = 0.0, 0
    with torch.no_grad():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    return total / count


# %% zoo.13 wrong: a mean of the batches' means | without dropout it is
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.9), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model.train(), [(ids, ids), (ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    came = model.training
    model.eval()
    with torch.no_grad():
        means = [F.cross_entropy(model(x).transpose(1, 2), y).item() for x, y in batches]
    model.train(came)
    return sum(means) / len(means)


# %% zoo.13 wrong: inference_mode is taken for evaluation mode | another number each time
def check_13(program):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.9), nn.Linear(4, 9)).train()
    ids = torch.arange(9).expand(4, 9)
    found = [program(model.train(), [(ids, ids), (ids, ids)]) for _ in range(3)]
    assert max(found) - min(found) < 1e-5, "three different numbers"


def mended_13(model, batches):
    total, count = 0.0, 0
    with torch.inference_mode():
        for input_ids, labels in batches:
            losses = F.cross_entropy(model(input_ids).transpose(1, 2), labels, reduction="sum")
            total, count = total + losses.item(), count + int((labels != -100).sum())
    return total / count


# %% zoo.14 right: an endless stream, islice; the check stops in the middle of an epoch
import itertools


def check_14(program):
    whole = program(20, 4, 1, 0, 10)
    parts = program(20, 4, 1, 0, 7) + program(20, 4, 1, 7, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), "two pieces are not the whole"
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], program(20, 4, 1, 3, 7)))


def mended_14(count, batch_size, seed, done, steps):
    def stream():
        for epoch in itertools.count():
            order = torch.randperm(count, generator=seeded(1000 * seed + epoch))
            for first in range(0, count - batch_size + 1, batch_size):
                yield order[first : first + batch_size]

    return list(itertools.islice(stream(), done, done + steps))


# %% zoo.14 right: what was done is skipped; the check stops twice and counts rows
def check_14(program):
    for stop, again in ((1, 7), (3, 8), (2, 4), (6, 9)):
        pieces = ((0, stop), (stop, again - stop), (again, 10 - again))
        batches = [batch for piece in pieces for batch in program(20, 4, 1, *piece)]
        for epoch in (batches[:5], batches[5:]):
            rows = torch.cat(epoch)
            assert len(rows.unique()) == 20, f"stopped after {stop} and {again}, rows repeat"


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    skipped = done % per_epoch
    epoch, batches = done // per_epoch, []
    while len(batches) < skipped + steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[skipped : skipped + steps]


# %% zoo.14 wrong: stops at the end of an epoch only | lets the bug pass
def check_14(program):
    whole = torch.stack(program(20, 4, 1, 0, 10))
    rest = torch.stack(program(20, 4, 1, 5, 5))
    assert torch.equal(whole[5:], rest), "the second part is another"


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    skipped = done % per_epoch
    epoch, batches = done // per_epoch, []
    while len(batches) < skipped + steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[skipped : skipped + steps]


# %% zoo.14 wrong: one stop, in the first epoch | not in a later one
def check_14(program):
    for stop in range(1, 5):
        rows = torch.cat(program(20, 4, 1, 0, stop) + program(20, 4, 1, stop, 5 - stop))
        assert len(rows.unique()) == 20, f"stopped after {stop}, an epoch repeats rows"


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    skipped = done % per_epoch
    epoch, batches = done // per_epoch, []
    while len(batches) < skipped + steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[skipped : skipped + steps]


# %% zoo.14 wrong: never stops | lets the bug pass
def check_14(program):
    whole = torch.stack(program(20, 4, 1, 0, 10))
    assert len(whole[:5].unique()) == 20 and len(whole[5:].unique()) == 20, "rows repeat"


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    skipped = done % per_epoch
    epoch, batches = done // per_epoch, []
    while len(batches) < skipped + steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[skipped : skipped + steps]


# %% zoo.14 wrong: demands the mended program's own order | Does it demand one special draw
def check_14(program):
    found, wanted = program(20, 4, 1, 3, 9), mended_14(20, 4, 1, 3, 9)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted)), "another order"


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    skipped = done % per_epoch
    epoch, batches = done // per_epoch, []
    while len(batches) < skipped + steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[skipped : skipped + steps]


# %% zoo.14 wrong: only that it does not begin anew | reads the last batch
def check_14(program):
    first, again = program(20, 4, 1, 0, 1)[0], program(20, 4, 1, 2, 1)[0]
    assert not torch.equal(first, again), "it begins anew"


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    skipped = done % per_epoch
    epoch, batches = done // per_epoch, []
    while len(batches) < skipped + steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[skipped : skipped + steps]


# %% zoo.14 wrong: skips in each epoch | left out or come twice
def check_14(program):
    whole = program(20, 4, 1, 0, 10)
    parts = program(20, 4, 1, 0, 7) + program(20, 4, 1, 7, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), "two pieces are not the whole"
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], program(20, 4, 1, 3, 7)))


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    epoch, batches = done // per_epoch, []
    while len(batches) < steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        cut = order[: per_epoch * batch_size].split(batch_size)
        batches += cut[done % per_epoch :]
        epoch += 1
    return batches[:steps]


# %% zoo.14 wrong: a new seed after each stop | reads others than a run in one piece
def check_14(program):
    whole = program(20, 4, 1, 0, 10)
    parts = program(20, 4, 1, 0, 7) + program(20, 4, 1, 7, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), "two pieces are not the whole"
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], program(20, 4, 1, 3, 7)))


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    epoch, batches = 0, []
    while len(batches) < steps:
        order = torch.randperm(count, generator=seeded(seed + 1000 * done + epoch))
        batches += order[: per_epoch * batch_size].split(batch_size)
        epoch += 1
    return batches[:steps]


# %% zoo.14 wrong: one order for all epochs | all epochs have one order
def check_14(program):
    whole = program(20, 4, 1, 0, 10)
    parts = program(20, 4, 1, 0, 7) + program(20, 4, 1, 7, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), "two pieces are not the whole"
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], program(20, 4, 1, 3, 7)))


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    order = torch.randperm(count, generator=seeded(seed))
    batches = []
    for step in range(done, done + steps):
        place = step % per_epoch
        batches.append(order[place * batch_size : (place + 1) * batch_size])
    return batches


# %% zoo.14 wrong: one batch is read again | again
def check_14(program):
    whole = program(20, 4, 1, 0, 10)
    parts = program(20, 4, 1, 0, 7) + program(20, 4, 1, 7, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), "two pieces are not the whole"
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], program(20, 4, 1, 3, 7)))


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    batches = []
    for step in range(max(done - 1, 0), max(done - 1, 0) + steps):
        epoch, place = divmod(step, per_epoch)
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches.append(order[place * batch_size :][:batch_size])
    return batches


# %% zoo.14 wrong: counts rows where batches are meant | counts batches
def check_14(program):
    whole = program(20, 4, 1, 0, 10)
    parts = program(20, 4, 1, 0, 7) + program(20, 4, 1, 7, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts)), "two pieces are not the whole"
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], program(20, 4, 1, 3, 7)))


def mended_14(count, batch_size, seed, done, steps):
    per_epoch = count // batch_size
    epoch, batches = done // per_epoch, []
    skipped = done % per_epoch
    while len(batches) < steps:
        order = torch.randperm(count, generator=seeded(seed + epoch))
        batches += order[skipped : per_epoch * batch_size].split(batch_size)
        skipped = 0
        epoch += 1
    return batches[:steps]
