# %% 02.1 right: a random order of comparison, numbers drawn as doubles
def choose(eligible, rate, generator):
    lots = torch.rand(*eligible.shape, generator=generator, dtype=torch.float64)
    return torch.where(eligible, lots < rate, False)


# %% 02.1 right: torch.bernoulli over a tensor of rates that is zero where nothing is eligible
def choose(eligible, rate, generator):
    return torch.bernoulli(eligible.float() * rate, generator=generator).bool()


# %% 02.1 wrong: special tokens are chosen, too | a special position was chosen
def choose(eligible, rate, generator):
    return torch.rand(eligible.shape, generator=generator) < rate


# %% 02.1 wrong: exactly 15% of each row | flip a coin per position
def choose(eligible, rate, generator):
    order = torch.rand(eligible.shape, generator=generator).masked_fill(~eligible, 2).argsort(1)
    chosen = torch.zeros_like(eligible)
    number = round(rate * int(eligible[0].sum()))
    return chosen.scatter(1, order[:, :number], True) & eligible


# %% 02.1 wrong: one coin for a whole row | each position needs a coin of its own
def choose(eligible, rate, generator):
    return eligible & (torch.rand(len(eligible), 1, generator=generator) < rate)


# %% 02.1 wrong: the global generator is used | use the generator that is given
def choose(eligible, rate, generator):
    return eligible & (torch.rand(eligible.shape) < rate)


# %% 02.1 wrong: one row of coins for all rows | rows must not share their coins
def choose(eligible, rate, generator):
    return eligible & (torch.rand(1, eligible.shape[1], generator=generator) < rate)


# %% 02.1 wrong: positions that stay are taken for the chosen | were chosen, not 0.15
def choose(eligible, rate, generator):
    return eligible & (torch.rand(eligible.shape, generator=generator) > rate)


# %% 02.1 wrong: the rate is written into the function | use the rate that is given
def choose(eligible, rate, generator):
    return eligible & (torch.rand(eligible.shape, generator=generator) < 0.15)


# %% 02.1 wrong: ones and zeros, not bool | a bool tensor of shape
def choose(eligible, rate, generator):
    return torch.bernoulli(eligible * rate, generator=generator)


# %% 02.2 right: the tree as nested pairs, the second coin solved from the mask's share
def shares(first, second):
    random = first * second
    return first - random, random, 1 - first


def coins(mask_share, random_share):
    first = random_share + mask_share
    return first, (1 - mask_share / first if first > 0 else Fraction(0))


# %% 02.2 right: what is kept comes first, division guarded by an exception
def shares(first, second):
    kept = 1 - first
    mask = (1 - kept) * (1 - second)
    return mask, 1 - kept - mask, kept


def coins(mask_share, random_share):
    kept = 1 - mask_share - random_share
    try:
        return 1 - kept, random_share / (1 - kept)
    except ZeroDivisionError:
        return Fraction(0), Fraction(1, 2)


# %% 02.2 wrong: the second coin is taken as a share of all | multiplied by `first`
def shares(first, second):
    return first * (1 - second), second, 1 - first


def coins(mask_share, random_share):
    return mask_share + random_share, random_share


# %% 02.2 wrong: mask and random are swapped | swapped
def shares(first, second):
    return first * second, first * (1 - second), 1 - first


def coins(mask_share, random_share):
    return mask_share + random_share, mask_share / (mask_share + random_share)


# %% 02.2 wrong: one tenth of all is the second coin | flipped only after the first came up
def shares(first, second):
    return first * (1 - second), first * second, 1 - first


def coins(mask_share, random_share):
    return mask_share + random_share, random_share


# %% 02.2 wrong: random against mask | is not random : mask
def shares(first, second):
    return first * (1 - second), first * second, 1 - first


def coins(mask_share, random_share):
    return mask_share + random_share, random_share / mask_share


# %% 02.2 wrong: the first coin is the mask's share | [MASK] or by a random word
def shares(first, second):
    return first * (1 - second), first * second, 1 - first


def coins(mask_share, random_share):
    return mask_share, random_share / (mask_share + random_share)


# %% 02.2 wrong: nothing replaced is not thought of | divide by zero
def shares(first, second):
    return first * (1 - second), first * second, 1 - first


def coins(mask_share, random_share):
    replaced = mask_share + random_share
    return replaced, random_share / replaced


# %% 02.2 wrong: decimal numbers | floats are not exact
def shares(first, second):
    first, second = float(first), float(second)
    return first * (1 - second), first * second, 1 - first


def coins(mask_share, random_share):
    return float(mask_share + random_share), float(random_share / (mask_share + random_share))


# %% 02.3 right: a clone, an order of fates drawn with multinomial, words drawn only where needed
def corrupt(input_ids, chosen, generator):
    labels = torch.where(chosen, input_ids, -100)
    corrupted = input_ids.clone()
    number = int(chosen.sum())
    odds = torch.tensor([0.8, 0.1, 0.1])
    fates = torch.multinomial(odds, number, replacement=True, generator=generator)
    asked = corrupted[chosen]
    asked[fates == 0] = MASK_ID
    drawn = torch.randint(FIRST_WORD, VOCAB_SIZE, (int((fates == 1).sum()),), generator=generator)
    asked[fates == 1] = drawn
    corrupted[chosen] = asked
    return corrupted, labels


# %% 02.3 right: two coins, the random words drawn first
def corrupt(input_ids, chosen, generator):
    span = VOCAB_SIZE - FIRST_WORD
    words = (torch.rand(input_ids.shape, generator=generator) * span).long() + FIRST_WORD
    replaced = (
        chosen & torch.bernoulli(torch.full(input_ids.shape, 0.9), generator=generator).bool()
    )
    by_word = torch.rand(input_ids.shape, generator=generator) < 1 / 9
    labels = input_ids.clone()
    labels[~chosen] = -100
    corrupted = input_ids.clone()
    corrupted[replaced] = MASK_ID
    corrupted[replaced & by_word] = words[replaced & by_word]
    return corrupted, labels


# %% 02.3 wrong: labels are taken from the corrupted tensor | labels hold [MASK]
def corrupt(input_ids, chosen, generator):
    lot = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.clone()
    corrupted[chosen & (lot < 0.8)] = MASK_ID
    swapped = chosen & (lot >= 0.8) & (lot < 0.9)
    corrupted[swapped] = words[swapped]
    return corrupted, corrupted.masked_fill(~chosen, -100)


# %% 02.3 wrong: an alias in place of a clone | the tensor that came in was changed
def corrupt(input_ids, chosen, generator):
    labels = input_ids.masked_fill(~chosen, -100)
    lot = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids
    corrupted[chosen & (lot < 0.8)] = MASK_ID
    swapped = chosen & (lot >= 0.8) & (lot < 0.9)
    corrupted[swapped] = words[swapped]
    return corrupted, labels


# %% 02.3 wrong: a tenth of the fifth that [MASK] left becomes a random word | only among those
def corrupt(input_ids, chosen, generator):
    labels = input_ids.masked_fill(~chosen, -100)
    masked = chosen & (torch.rand(input_ids.shape, generator=generator) < 0.8)
    swapped = chosen & ~masked & (torch.rand(input_ids.shape, generator=generator) < 0.1)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.masked_fill(masked, MASK_ID)
    return torch.where(swapped, words, corrupted), labels


# %% 02.3 wrong: kept positions carry no label | also one that keeps its token
def corrupt(input_ids, chosen, generator):
    lot = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.masked_fill(chosen & (lot < 0.8), MASK_ID)
    corrupted = torch.where(chosen & (lot >= 0.8) & (lot < 0.9), words, corrupted)
    return corrupted, input_ids.masked_fill(corrupted == input_ids, -100)


# %% 02.3 wrong: random words begin at zero | begin at FIRST_WORD
def corrupt(input_ids, chosen, generator):
    labels = input_ids.masked_fill(~chosen, -100)
    lot = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(0, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.masked_fill(chosen & (lot < 0.8), MASK_ID)
    return torch.where(chosen & (lot >= 0.8) & (lot < 0.9), words, corrupted), labels


# %% 02.3 wrong: one random word for the whole batch | come from few ids only
def corrupt(input_ids, chosen, generator):
    labels = input_ids.masked_fill(~chosen, -100)
    lot = torch.rand(input_ids.shape, generator=generator)
    word = torch.randint(FIRST_WORD, VOCAB_SIZE, (1,), generator=generator)
    corrupted = input_ids.masked_fill(chosen & (lot < 0.8), MASK_ID)
    return torch.where(chosen & (lot >= 0.8) & (lot < 0.9), word, corrupted), labels


# %% 02.3 wrong: random words are tokens of the batch, shuffled | taken from the batch itself
def corrupt(input_ids, chosen, generator):
    labels = input_ids.masked_fill(~chosen, -100)
    lot = torch.rand(input_ids.shape, generator=generator)
    order = torch.randperm(input_ids.numel(), generator=generator)
    words = input_ids.flatten()[order].view_as(input_ids)
    corrupted = input_ids.masked_fill(chosen & (lot < 0.8), MASK_ID)
    return torch.where(chosen & (lot >= 0.8) & (lot < 0.9), words, corrupted), labels


# %% 02.3 wrong: labels at every position | labels must be -100 where nothing is asked
def corrupt(input_ids, chosen, generator):
    lot = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, input_ids.shape, generator=generator)
    corrupted = input_ids.masked_fill(chosen & (lot < 0.8), MASK_ID)
    corrupted = torch.where(chosen & (lot >= 0.8) & (lot < 0.9), words, corrupted)
    return corrupted, input_ids.clone()


# %% 02.3 wrong: every chosen position becomes [MASK] | became [MASK], not 0.8
def corrupt(input_ids, chosen, generator):
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, -100)


# %% 02.4 right: a dictionary of coins, flipped when a word is first met
def choose_words(word_ids, rate, generator):
    coins = {-1: False}
    for word in word_ids.tolist():
        if word not in coins:
            coins[word] = torch.rand(1, generator=generator).item() < rate
    return torch.tensor([coins[word] for word in word_ids.tolist()], dtype=torch.bool)


# %% 02.4 right: torch.unique numbers the words, one lot each, and -1 gets a lot that never wins
def choose_words(word_ids, rate, generator):
    numbers, place = word_ids.unique(return_inverse=True)
    lots = torch.rand(len(numbers), generator=generator, dtype=torch.float64)
    lots[numbers < 0] = 2
    return lots[place] < rate


# %% 02.4 wrong: -1 looks up the coin of the last word | -1 is no word
def choose_words(word_ids, rate, generator):
    coins = torch.rand(int(word_ids.max()) + 1, generator=generator) < rate
    return coins[word_ids]


# %% 02.4 wrong: a coin for each piece | must be chosen together
def choose_words(word_ids, rate, generator):
    return (torch.rand(word_ids.shape, generator=generator) < rate) & (word_ids >= 0)


# %% 02.4 wrong: a word is chosen when any of its pieces is | whatever their length
def choose_words(word_ids, rate, generator):
    pieces = (torch.rand(word_ids.shape, generator=generator) < rate) & (word_ids >= 0)
    return torch.isin(word_ids, word_ids[pieces])


# %% 02.4 wrong: one coin for the whole row | all words share one coin
def choose_words(word_ids, rate, generator):
    coin = torch.rand(1, generator=generator) < rate
    return coin & (word_ids >= 0)


# %% 02.4 wrong: a row without words is not thought of | a row without a word
def choose_words(word_ids, rate, generator):
    words = int(word_ids.max()) + 1
    if words == 0:
        return torch.zeros(0, dtype=torch.bool)
    coins = torch.rand(words, generator=generator) < rate
    return coins[word_ids.clamp(min=0)] & (word_ids >= 0)


# %% 02.4 wrong: the numbers of the chosen words | one bool per position
def choose_words(word_ids, rate, generator):
    words = int(word_ids.max()) + 1
    coins = torch.rand(words, generator=generator) < rate
    return coins[word_ids.clamp(min=0)].long() * (word_ids >= 0)


# %% 02.5 right: what was never asked shrinks
def ever_asked(eligible, rate, epochs, generator):
    never, found = eligible.clone(), []
    for _ in range(epochs):
        never &= ~choose(eligible, rate, generator)
        found.append(1 - never.sum().item() / eligible.sum().item())
    return found


# %% 02.5 right: all draws first, then the running maximum over the epochs
def ever_asked(eligible, rate, epochs, generator):
    draws = torch.stack([choose(eligible, rate, generator) for _ in range(epochs)])
    asked = draws.int().cummax(0).values.bool()
    return [row[eligible].double().mean().item() for row in asked]


# %% 02.5 wrong: one draw for all epochs | static masking
def ever_asked(eligible, rate, epochs, generator):
    asked = choose(eligible, rate, generator)
    return [(asked.sum() / eligible.sum()).item()] * epochs


# %% 02.5 wrong: what was asked before is forgotten | what was asked once stays asked
def ever_asked(eligible, rate, epochs, generator):
    draws = [choose(eligible, rate, generator) for _ in range(epochs)]
    return [(asked.sum() / eligible.sum()).item() for asked in draws]


# %% 02.5 wrong: the draws are added up | must not be counted again
def ever_asked(eligible, rate, epochs, generator):
    total, found = 0, []
    for _ in range(epochs):
        total += choose(eligible, rate, generator).sum().item()
        found.append(total / eligible.sum().item())
    return found


# %% 02.5 wrong: special positions are counted, too | count eligible positions only
def ever_asked(eligible, rate, epochs, generator):
    asked, found = torch.zeros_like(eligible), []
    for _ in range(epochs):
        asked = asked | choose(eligible, rate, generator)
        found.append(asked.float().mean().item())
    return found


# %% 02.5 wrong: only the last share | a list of shares is needed
def ever_asked(eligible, rate, epochs, generator):
    asked = torch.zeros_like(eligible)
    for _ in range(epochs):
        asked = asked | choose(eligible, rate, generator)
    return (asked.sum() / eligible.sum()).item()


# %% 02.5 wrong: the generator is seeded anew in each epoch | static masking
def ever_asked(eligible, rate, epochs, generator):
    asked, found = torch.zeros_like(eligible), []
    for _ in range(epochs):
        asked = asked | choose(eligible, rate, generator.manual_seed(0))
        found.append((asked.sum() / eligible.sum()).item())
    return found


# %% 02.1 wrong: the generator is seeded inside | use the generator as it comes
def choose(eligible, rate, generator):
    generator.manual_seed(0)
    return eligible & (torch.rand(eligible.shape, generator=generator) < rate)


# %% 02.1 wrong: a fixed number over the whole batch | the same number in all
def choose(eligible, rate, generator):
    places = eligible.flatten().nonzero().flatten()
    number = round(rate * len(places))
    chosen = torch.zeros(eligible.numel(), dtype=torch.bool)
    chosen[places[torch.randperm(len(places), generator=generator)[:number]]] = True
    return chosen.view_as(eligible)


# %% 02.2 wrong: the way of the tree is forgotten for one side | multiplied by
def shares(first, second):
    return first - second, second, 1 - first


def coins(mask_share, random_share):
    return mask_share + random_share, random_share / (mask_share + random_share)


# %% 02.3 wrong: the last word of the vocabulary is never drawn | included
def corrupt(input_ids, chosen, generator):
    labels = input_ids.masked_fill(~chosen, -100)
    lot = torch.rand(input_ids.shape, generator=generator)
    words = torch.randint(FIRST_WORD, VOCAB_SIZE - 1, input_ids.shape, generator=generator)
    corrupted = torch.where(chosen & (lot < 0.8), MASK_ID, input_ids)
    return torch.where(chosen & (lot >= 0.8) & (lot < 0.9), words, corrupted), labels


# %% 02.4 wrong: a text without any word crashes | a text without any word
def choose_words(word_ids, rate, generator):
    coins = torch.rand(int(word_ids.max()) + 1, generator=generator) < rate
    return coins[word_ids] & (word_ids != -1)


# %% 02.5 wrong: the formula instead of draws | run `choose`
def ever_asked(eligible, rate, epochs, generator):
    return [1 - (1 - rate) ** epoch for epoch in range(1, epochs + 1)]


# %% 02.5 wrong: what was asked is taken out of `eligible` itself | `eligible` itself was changed
def ever_asked(eligible, rate, epochs, generator):
    count, found, left = int(eligible.sum()), [], eligible
    for _ in range(epochs):
        left &= ~choose(left, rate, generator)
        found.append(1 - int(left.sum()) / count)
    return found
