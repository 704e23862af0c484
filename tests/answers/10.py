# %% 10.1 right: position by position
def targets(ids, mask, direction):
    step = 1 if direction == "forward" else -1
    rows = []
    for tokens, real in zip(ids.tolist(), mask.tolist()):
        row = []
        for t in range(len(tokens)):
            there = 0 <= t + step < len(tokens) and real[t] and real[t + step]
            row.append(tokens[t + step] if there else -100)
        rows.append(row)
    return torch.tensor(rows)


# %% 10.1 right: ids with -100 at pads, shifted with a column of -100, and cleared where a pad asks
def targets(ids, mask, direction):
    answers = torch.where(mask, ids, -100)
    column = torch.full((len(ids), 1), -100)
    if direction == "forward":
        shifted = torch.cat([answers[:, 1:], column], 1)
    else:
        shifted = torch.cat([column, answers[:, :-1]], 1)
    return torch.where(mask, shifted, -100)


# %% 10.1 wrong: roll brings the first token to the end | from the row's other end
def targets(ids, mask, direction):
    step = -1 if direction == "forward" else 1
    real = mask & mask.roll(step, 1)
    return ids.roll(step, 1).masked_fill(~real, -100)


# %% 10.1 wrong: whatever is not padding is a target, also at a pad | who asks must be real
def targets(ids, mask, direction):
    asked = torch.full_like(ids, -100)
    answers = ids.masked_fill(~mask, -100)
    if direction == "forward":
        asked[:, :-1] = answers[:, 1:]
    else:
        asked[:, 1:] = answers[:, :-1]
    return asked


# %% 10.1 wrong: every real token asks, the last one for a pad | a pad is the answer
def targets(ids, mask, direction):
    asked = torch.full_like(ids, -100)
    if direction == "forward":
        asked[:, :-1] = ids[:, 1:]
    else:
        asked[:, 1:] = ids[:, :-1]
    return asked.masked_fill(~mask, -100)


# %% 10.1 wrong: the two directions exchanged | the directions are swapped
def targets(ids, mask, direction):
    pairs = mask[:, :-1] & mask[:, 1:]
    asked = torch.full_like(ids, -100)
    if direction == "backward":
        asked[:, :-1] = ids[:, 1:].masked_fill(~pairs, -100)
    else:
        asked[:, 1:] = ids[:, :-1].masked_fill(~pairs, -100)
    return asked


# %% 10.1 wrong: id 0 is taken for padding | what `mask` says
def targets(ids, mask, direction):
    pairs = (ids[:, :-1] != 0) & (ids[:, 1:] != 0)
    asked = torch.full_like(ids, -100)
    if direction == "forward":
        asked[:, :-1] = ids[:, 1:].masked_fill(~pairs, -100)
    else:
        asked[:, 1:] = ids[:, :-1].masked_fill(~pairs, -100)
    return asked


# %% 10.1 wrong: the answers of the pairs, flat, as in the lesson | one for each position
def targets(ids, mask, direction):
    pairs = mask[:, :-1] & mask[:, 1:]
    return (ids[:, 1:] if direction == "forward" else ids[:, :-1])[pairs]


# %% 10.2 right: one change at a time, in two loops
def sees(read, row):
    T = len(row)
    before = read(row.unsqueeze(0))[0]
    found = torch.zeros(T, T, dtype=torch.bool)
    for s in range(T):
        for word in range(VOCAB_SIZE):
            changed = row.clone()
            changed[s] = word
            after = read(changed.unsqueeze(0))[0]
            found[:, s] |= (after - before).abs().max(-1).values > 1e-9
    return found


# %% 10.2 right: all changes in one batch
def sees(read, row):
    T = len(row)
    places = torch.eye(T, dtype=torch.bool)[:, None]  # (T, 1, T)
    words = torch.arange(VOCAB_SIZE)[None, :, None]
    copies = torch.where(places, words, row)  # (T, V, T)
    out = read(copies.reshape(-1, T)).view(T, VOCAB_SIZE, T, -1)
    spread = out.max(1).values - out.min(1).values  # (T, T, V), [input, output]
    return (spread > 1e-9).any(-1).T


# %% 10.2 wrong: inputs down, outputs across | the matrix is turned over
def sees(read, row):
    before = read(row[None])
    found = torch.zeros(len(row), len(row), dtype=torch.bool)
    for s in range(len(row)):
        copies = row.repeat(VOCAB_SIZE, 1)
        copies[:, s] = torch.arange(VOCAB_SIZE)
        found[s] = ((read(copies) - before).abs() > 1e-9).any(2).any(0)
    return found


# %% 10.2 wrong: a single other word is tried | every other word must be tried
def sees(read, row):
    before = read(row[None])
    found = torch.zeros(len(row), len(row), dtype=torch.bool)
    for s in range(len(row)):
        changed = row.clone()
        changed[s] = (row[s] + 1) % VOCAB_SIZE
        found[:, s] = ((read(changed[None]) - before).abs() > 1e-9).any(2)[0]
    return found


# %% 10.2 wrong: only the most likely word is compared | not only the most likely word
def sees(read, row):
    before = read(row[None]).argmax(-1)
    found = torch.zeros(len(row), len(row), dtype=torch.bool)
    for s in range(len(row)):
        copies = row.repeat(VOCAB_SIZE, 1)
        copies[:, s] = torch.arange(VOCAB_SIZE)
        found[:, s] = (read(copies).argmax(-1) != before).any(0)
    return found


# %% 10.2 wrong: isclose with its usual tolerance | the whisper was not heard
def sees(read, row):
    before = read(row[None])
    found = torch.zeros(len(row), len(row), dtype=torch.bool)
    for s in range(len(row)):
        copies = row.repeat(VOCAB_SIZE, 1)
        copies[:, s] = torch.arange(VOCAB_SIZE)
        found[:, s] = (~torch.isclose(read(copies), before, atol=1e-5)).any(2).any(0)
    return found


# %% 10.2 wrong: earlier changes stay in the copy | the word before it put back
def sees(read, row):
    before, changed = read(row[None]), row.clone()
    found = torch.zeros(len(row), len(row), dtype=torch.bool)
    for s in range(len(row)):
        for word in range(VOCAB_SIZE):
            changed[s] = word
            found[:, s] |= ((read(changed[None]) - before).abs() > 1e-9).any(2)[0]
    return found


# %% 10.2 wrong: the row itself is written to | change a copy
def sees(read, row):
    before = read(row[None])
    found = torch.zeros(len(row), len(row), dtype=torch.bool)
    for s in range(len(row)):
        for word in range(VOCAB_SIZE):
            row[s] = word
            found[:, s] |= ((read(row[None]) - before).abs() > 1e-9).any(2)[0]
    return found


# %% 10.3 right: triangles
def leaks(seen, direction, step=1):
    everything = torch.ones_like(seen)
    return seen & (everything.triu(step) if direction == "forward" else everything.tril(-step))


# %% 10.3 right: each pair by the rule
def leaks(seen, direction, step=1):
    found = torch.zeros_like(seen)
    for t, s in seen.nonzero().tolist():
        found[t, s] = s >= t + step if direction == "forward" else s <= t - step
    return found


# %% 10.3 wrong: the own position counts as forbidden | the input at t itself is allowed
def leaks(seen, direction, step=1):
    t = torch.arange(len(seen))
    forward = t[:, None] + step - 1 <= t
    return seen & (forward if direction == "forward" else forward.T)


# %% 10.3 wrong: what lies beyond the answer only | output 0 answers for token 1
def leaks(seen, direction, step=1):
    t = torch.arange(len(seen))
    forward = t > t[:, None] + step
    return seen & (forward if direction == "forward" else forward.T)


# %% 10.3 wrong: the answer only, not what comes after it | a later output answers for it
def leaks(seen, direction, step=1):
    t = torch.arange(len(seen))
    ahead = t - t[:, None] if direction == "forward" else t[:, None] - t
    return seen & (ahead == step)


# %% 10.3 wrong: always the forward triangle | the direction is not used
def leaks(seen, direction, step=1):
    return seen & torch.ones_like(seen).triu(step)


# %% 10.3 wrong: always one step | is `step` used
def leaks(seen, direction, step=1):
    above = torch.ones_like(seen).triu(1)
    return seen & (above if direction == "forward" else above.T)


# %% 10.3 wrong: everything forbidden, seen or not | combine with `seen`
def leaks(seen, direction, step=1):
    above = torch.ones_like(seen).triu(step)
    return above if direction == "forward" else above.T


# %% 10.3 wrong: the backward step counts to the right | in a mirror
def leaks(seen, direction, step=1):
    t = torch.arange(len(seen))
    if direction == "forward":
        return seen & (t >= t[:, None] + step)
    return seen & (t < t[:, None] + step - 1)


# %% 10.4 right: word by word, as counts
def one_side(pairs):
    left, right = torch.zeros_like(pairs), torch.zeros_like(pairs)
    for v in range(len(pairs)):
        if pairs[v].sum() > 0:
            left[v] = pairs[v] / pairs[v].sum()
        if pairs[:, v].sum() > 0:
            right[v] = pairs[:, v] / pairs[:, v].sum()
    return left, right


def both_sides(left, right, frequency):
    both = torch.zeros(len(left), len(left), len(left), dtype=left.dtype)
    for l in range(len(left)):
        for r in range(len(left)):
            chances = (left[l] * right[r] / frequency).nan_to_num(0)
            if chances.sum() > 0:
                both[l, r] = chances / chances.sum()
    return both


# %% 10.4 right: logarithms and a softmax, with what is impossible put to 0 afterwards
def one_side(pairs):
    return (
        (pairs / pairs.sum(1, keepdim=True)).nan_to_num(0),
        (pairs / pairs.sum(0)).nan_to_num(0).T,
    )


def both_sides(left, right, frequency):
    scores = left.log()[:, None] + right.log()[None] - frequency.clamp(min=1e-300).log()
    return scores.softmax(-1).nan_to_num(0)


# %% 10.4 wrong: right divided by its columns, and not turned | must sum to 1 over the words
def one_side(pairs):
    return pairs / pairs.sum(1, keepdim=True), pairs / pairs.sum(0)


def both_sides(left, right, frequency):
    product = left[:, None] * right[None] / frequency
    return product / product.sum(-1, keepdim=True)


# %% 10.4 wrong: the same table for both sides | right is left again
def one_side(pairs):
    left = pairs / pairs.sum(1, keepdim=True)
    return left, left


def both_sides(left, right, frequency):
    product = left[:, None] * right[None] / frequency
    return product / product.sum(-1, keepdim=True)


# %% 10.4 wrong: not divided by the word's frequency | counted twice
def one_side(pairs):
    words = pairs.sum(1, keepdim=True)
    return pairs / words, pairs.T / words


def both_sides(left, right, frequency):
    product = left[:, None] * right[None]
    return product / product.sum(-1, keepdim=True)


# %% 10.4 wrong: the mean of the two readers | the average of two readers
def one_side(pairs):
    words = pairs.sum(1, keepdim=True)
    return pairs / words, pairs.T / words


def both_sides(left, right, frequency):
    return (left[:, None] + right[None]) / 2


# %% 10.4 wrong: the product as it is | normalise over the word
def one_side(pairs):
    words = pairs.sum(1, keepdim=True)
    return pairs / words, pairs.T / words


def both_sides(left, right, frequency):
    return left[:, None] * right[None] / frequency


# %% 10.4 wrong: left and right exchanged in the product | have changed places
def one_side(pairs):
    words = pairs.sum(1, keepdim=True)
    return pairs / words, pairs.T / words


def both_sides(left, right, frequency):
    product = left[None] * right[:, None] / frequency
    return product / product.sum(-1, keepdim=True)


# %% 10.4 wrong: zeros are not thought of | 0 divided by 0 in one_side
def one_side(pairs):
    words = pairs.sum(1, keepdim=True)
    return pairs / words, pairs.T / words


def both_sides(left, right, frequency):
    product = left[:, None] * right[None] / frequency
    return product / product.sum(-1, keepdim=True)


# %% 10.4 wrong: zeros are thought of on one side only | 0 divided by 0 in both_sides
def one_side(pairs):
    words = pairs.sum(1, keepdim=True)
    words = torch.where(words == 0, 1, words)
    return pairs / words, pairs.T / words


def both_sides(left, right, frequency):
    product = left[:, None] * right[None] / frequency
    return product / product.sum(-1, keepdim=True)
