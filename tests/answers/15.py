# %% 15.1 right: row by row, with random.sample and plain lists
def hide(input_ids, seed):
    chance = random.Random(seed)
    corrupted, labels, weights = input_ids.clone(), torch.full_like(input_ids, -100), []
    for row, ids in enumerate(input_ids.tolist()):
        words = [place for place, index in enumerate(ids) if index > 4]
        k = chance.randint(1, len(words))
        for place in chance.sample(words, k):
            corrupted[row, place], labels[row, place] = MASK_ID, ids[place]
        weights.append(len(words) / k)
    return corrupted, labels, torch.tensor(weights)


def loss_of(nats, labels, weights):
    total, words = 0, 0
    for row, own, weight in zip(nats, labels, weights):
        asked = row[own != -100]
        total, words = total + weight * asked.sum(), words + weight * len(asked)
    return total / words


# %% 15.1 right: a permutation of each row's words, float64 weights, sums by where
def hide(input_ids, seed):
    draw = np.random.default_rng(seed)
    ids = input_ids.numpy()
    lengths = (ids >= 5).sum(1)
    k = draw.integers(1, lengths + 1)
    hidden = np.zeros(ids.shape, dtype=bool)
    for row in range(len(ids)):
        hidden[row, draw.permutation(np.flatnonzero(ids[row] >= 5))[: k[row]]] = True
    hidden = torch.from_numpy(hidden)
    labels = torch.where(hidden, input_ids, -100)
    return torch.where(hidden, MASK_ID, input_ids), labels, torch.from_numpy(lengths / k)


def loss_of(nats, labels, weights):
    paid = torch.where(labels == -100, 0.0, nats)
    words = weights @ (labels != -100).sum(1).to(weights.dtype)
    return (paid * weights[:, None]).sum() / words


# %% 15.1 wrong: the weight is forgotten | the weights are all 1
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    weights = torch.ones(len(input_ids))
    return input_ids.masked_fill(hidden, MASK_ID), input_ids.masked_fill(~hidden, -100), weights


# %% 15.1 wrong: [CLS] and [SEP] are hidden, too | only words
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids != PAD_ID
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: L is the width of the batch | L counts words
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, input_ids.shape[1] / counts


# %% 15.1 wrong: the weight stands on its head | turn them round
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, counts / words.sum(1)


# %% 15.1 wrong: the weight is that of the sum over k, 1 / k | the weights are 1 / k
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, 1 / counts


# %% 15.1 wrong: a rate for each row and coins, weighed by 1 / t | some rows hide nothing
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    rates = 1 - torch.rand(len(input_ids), 1, generator=generator)
    hidden = (torch.rand(input_ids.shape, generator=generator) < rates) & (input_ids >= 5)
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, 1 / rates[:, 0]


# %% 15.1 wrong: one k for the whole batch | each draws its own k
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    share = torch.rand(1, generator=generator)
    counts = 1 + (share * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: k stops one short of L | k goes up to L
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    most = (words.sum(1) - 1).clamp(min=1)
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * most).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: the first k words are hidden | any k of them alike
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    hidden = (words.cumsum(1) <= counts[:, None]) & words
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: small k are drawn more often, since they weigh more | all alike
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) ** 2 * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: the first and the last column are taken for the special tokens | only words
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.ones_like(input_ids, dtype=torch.bool)
    words[:, 0], words[:, -1] = False, False
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: torch's global generator is seeded | a global generator
def hide(input_ids, seed):
    torch.manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids)) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


# %% 15.1 wrong: the batch is changed in place | the tensor that came in was changed
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    input_ids[hidden] = MASK_ID
    return input_ids, labels, words.sum(1) / counts


# %% 15.1 wrong: the loss is the mean over hidden words | the mean over hidden words
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


def loss_of(nats, labels, weights):
    return nats[labels != -100].mean()


# %% 15.1 wrong: the loss is divided by the number of labels | not by the number of labels
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


def loss_of(nats, labels, weights):
    asked = labels != -100
    return (weights[:, None] * nats)[asked].sum() / asked.sum()


# %% 15.1 wrong: the loss is a mean of the rows' means | long rows count more
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


def loss_of(nats, labels, weights):
    asked = labels != -100
    return (nats.masked_fill(~asked, 0).sum(1) / asked.sum(1)).mean()


# %% 15.1 wrong: a product with zeros lets NaN through | 0 · nan is NaN
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


def loss_of(nats, labels, weights):
    asked = (labels != -100).float()
    return (weights[:, None] * nats * asked).sum() / (weights[:, None] * asked).sum()


# %% 15.1 wrong: the loss is a new tensor without a gradient | no gradient comes through
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    counts = 1 + (torch.rand(len(input_ids), generator=generator) * words.sum(1)).long()
    keys = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    hidden = keys.argsort(1).argsort(1) < counts[:, None]
    labels = input_ids.masked_fill(~hidden, -100)
    return input_ids.masked_fill(hidden, MASK_ID), labels, words.sum(1) / counts


def loss_of(nats, labels, weights):
    asked = labels != -100
    total = sum(w * row[own].sum().item() for w, row, own in zip(weights, nats, asked))
    return torch.tensor(float(total / (weights * asked.sum(1)).sum()))


# %% 15.1 wrong: only [CLS], [SEP] and padding are left out | no id below 5 is a word
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = (input_ids != CLS_ID) & (input_ids != SEP_ID) & (input_ids != PAD_ID)
    L = words.sum(1)
    k = (torch.rand(len(input_ids), generator=generator) * L).long() + 1
    luck = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2)
    hidden = luck.argsort(1).argsort(1) < k[:, None]
    return input_ids.masked_fill(hidden, MASK_ID), input_ids.masked_fill(~hidden, -100), L / k


def loss_of(nats, labels, weights):
    asked = labels != -100
    nats = nats.masked_fill(~asked, 0)
    return (weights[:, None] * nats).sum() / (weights * asked.sum(1)).sum()


# %% 15.1 wrong: words begin above 5 | words begin at 5
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids > 5
    L = words.sum(1)
    k = (torch.rand(len(input_ids), generator=generator) * L).long() + 1
    luck = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2)
    hidden = luck.argsort(1).argsort(1) < k[:, None]
    return input_ids.masked_fill(hidden, MASK_ID), input_ids.masked_fill(~hidden, -100), L / k


def loss_of(nats, labels, weights):
    asked = labels != -100
    nats = nats.masked_fill(~asked, 0)
    return (weights[:, None] * nats).sum() / (weights * asked.sum(1)).sum()


# %% 15.1 wrong: one random number serves for k and for a word | any k of them alike
def hide(input_ids, seed):
    words = input_ids >= 5
    L = words.sum(1)
    luck = torch.rand(input_ids.shape, generator=torch.Generator().manual_seed(seed))
    k = (luck[:, 1] * L).long() + 1
    hidden = luck.masked_fill(~words, 2).argsort(1).argsort(1) < k[:, None]
    return input_ids.masked_fill(hidden, MASK_ID), input_ids.masked_fill(~hidden, -100), L / k


def loss_of(nats, labels, weights):
    asked = labels != -100
    nats = nats.masked_fill(~asked, 0)
    return (weights[:, None] * nats).sum() / (weights * asked.sum(1)).sum()


# %% 15.1 wrong: a rounded product makes k, so that the ends are rare | all alike
def hide(input_ids, seed):
    generator = torch.Generator().manual_seed(seed)
    words = input_ids >= 5
    L = words.sum(1)
    k = (torch.rand(len(input_ids), generator=generator) * L).round().long().clamp(1)
    luck = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2)
    hidden = luck.argsort(1).argsort(1) < k[:, None]
    return input_ids.masked_fill(hidden, MASK_ID), input_ids.masked_fill(~hidden, -100), L / k


def loss_of(nats, labels, weights):
    asked = labels != -100
    nats = nats.masked_fill(~asked, 0)
    return (weights[:, None] * nats).sum() / (weights * asked.sum(1)).sum()


# %% 15.2 right: the mean over all orders, a reader asked once for each step
def exact_bound(read, text):
    orders, total = list(itertools.permutations(range(len(text)))), 0.0
    for order in orders:
        row = [BLANK] * len(text)
        for place in order:
            total -= math.log(read(row)[place][text[place]])
            row[place] = text[place]
    return total / len(orders)


def floor(world, text):
    others = [world[other] for other in world if len(other) == len(text)]
    return math.log(sum(others)) - math.log(world[text])


# %% 15.2 right: the area by quadrature, which is exact for a polynomial in t
def exact_bound(read, text):
    length = len(text)
    nodes, shares_of = np.polynomial.legendre.leggauss(length)
    area = 0.0
    for hidden in itertools.product((False, True), repeat=length):
        if not any(hidden):
            continue
        table = read([BLANK if gone else word for gone, word in zip(hidden, text)])
        nats = sum(-math.log(table[place][text[place]]) for place in table)
        for t, share in zip((nodes + 1) / 2, shares_of / 2):
            k = sum(hidden)
            area += share / t * t**k * (1 - t) ** (length - k) * nats
    return float(area)


def floor(world, text):
    chances = shares({other: p for other, p in world.items() if len(other) == len(text)})
    return -math.log(chances[text])


# %% 15.2 right: what is still to pay for a set of blanks, by recursion
def rest(read, text, hidden):
    if not hidden:
        return 0.0
    table = read([BLANK if place in hidden else word for place, word in enumerate(text)])
    first = [-math.log(table[place][text[place]]) for place in hidden]
    later = [rest(read, text, hidden - {place}) for place in hidden]
    return (sum(first) + sum(later)) / len(hidden)


def exact_bound(read, text):
    return rest(read, text, frozenset(range(len(text))))


def floor(world, text):
    return -math.log(world[text] / sum(world[t] for t in world if len(t) == len(text)))


# %% 15.2 wrong: from left to right, as a language model | one order, from left to right
def exact_bound(read, text):
    row, nats = [BLANK] * len(text), 0.0
    for place, word in enumerate(text):
        nats -= math.log(read(row)[place][word])
        row[place] = word
    return nats


# %% 15.2 wrong: each word alone is hidden: pseudo-log-likelihood | each word alone was hidden
def exact_bound(read, text):
    nats = 0.0
    for place, word in enumerate(text):
        nats -= math.log(read([*text[:place], BLANK, *text[place + 1 :]])[place][word])
    return nats


# %% 15.2 wrong: all words are hidden at once | all words were hidden at once
def exact_bound(read, text):
    table = read([BLANK] * len(text))
    return -sum(math.log(table[place][word]) for place, word in enumerate(text))


# %% 15.2 wrong: the choices of a k are averaged, without 1 / k | look at 1/k
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / math.comb(length, k)
    return total


# %% 15.2 wrong: every choice of hidden words counts alike | a plain mean over the choices
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (2**length - 1)
    return total


# %% 15.2 wrong: the sum of all choices | a plain sum over the choices
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats
    return total


# %% 15.2 wrong: nats per word | nats of the whole text are asked
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total / length


# %% 15.2 wrong: bits | these are bits
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log2(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total


# %% 15.2 wrong: the logarithm is not negated | the sign is wrong
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total


# %% 15.2 wrong: the mean over orders is taken of P | not of P
def exact_bound(read, text):
    chances = []
    for order in itertools.permutations(range(len(text))):
        row, chance = [BLANK] * len(text), 1.0
        for place in order:
            chance *= read(row)[place][text[place]]
            row[place] = text[place]
        chances.append(chance)
    return -math.log(sum(chances) / len(chances))


# %% 15.2 wrong: an estimate from a thousand random orders | sampling is not exact
def exact_bound(read, text):
    chance, total = random.Random(0), 0.0
    for _ in range(1000):
        row = [BLANK] * len(text)
        for place in chance.sample(range(len(text)), len(text)):
            total -= math.log(read(row)[place][text[place]])
            row[place] = text[place]
    return total / 1000


# %% 15.2 wrong: from left to right and back, the mean of both | all orders count
def exact_bound(read, text):
    total = 0.0
    for order in (range(len(text)), reversed(range(len(text)))):
        row = [BLANK] * len(text)
        for place in order:
            total -= math.log(read(row)[place][text[place]]) / 2
            row[place] = text[place]
    return total


# %% 15.2 wrong: the floor pays for the length, too | pays for the length
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total


def floor(world, text):
    return -math.log(world[text])


# %% 15.2 wrong: the length is paid for twice | the length is paid for twice
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total


def floor(world, text):
    of_length = sum(chance for other, chance in world.items() if len(other) == len(text))
    return -math.log(world[text] * of_length)


# %% 15.2 wrong: the floor is the entropy of the texts of this length | what texts pay on average
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total


def floor(world, text):
    chances = shares({other: p for other, p in world.items() if len(other) == len(text)})
    return -sum(p * math.log(p) for p in chances.values())


# %% 15.2 wrong: the floor in nats per word | nats of the whole text are asked
def exact_bound(read, text):
    total, length = 0.0, len(text)
    for k in range(1, length + 1):
        for places in itertools.combinations(range(length), k):
            row = [BLANK if place in places else word for place, word in enumerate(text)]
            nats = -sum(math.log(read(row)[place][text[place]]) for place in places)
            total += nats / (k * math.comb(length, k))
    return total


def floor(world, text):
    of_length = sum(chance for other, chance in world.items() if len(other) == len(text))
    return -math.log(world[text] / of_length) / len(text)


# %% 15.2 wrong: the hidden are known by their words, not by their places | words of 1 nat each
def exact_bound(read, text):
    total = 0.0
    for k in range(1, len(text) + 1):
        for hidden in itertools.combinations(text, k):
            table = read([BLANK if word in hidden else word for word in text])
            nats = sum(-math.log(table[place][text[place]]) for place in table)
            total += nats / k / math.comb(len(text), k)
    return total


def floor(world, text):
    of_length = math.fsum(chance for other, chance in world.items() if len(other) == len(text))
    return -math.log(world[text] / of_length)


# %% 15.3 right: numpy draws from a seed of chance, write by recursion
def fill(row, table, count, rule, chance):
    draw = np.random.default_rng(chance.getrandbits(64))
    places = draw.permutation(list(table)).tolist()
    if rule == "confident":
        places.sort(key=lambda place: max(table[place].values()), reverse=True)
    words = {}
    for place in places[:count]:
        names, chances = list(table[place]), np.array(list(table[place].values()), float)
        words[place] = names[draw.choice(len(names), p=chances / chances.sum())]
    return [words.get(place, word) for place, word in enumerate(row)]


def write(read, row, counts, rule, chance):
    if not counts:
        return tuple(row)
    return write(read, fill(row, read(row), counts[0], rule, chance), counts[1:], rule, chance)


# %% 15.3 right: inverts a cumulative sum, takes one place after another, reads after each step
def fill(row, table, count, rule, chance):
    left, filled = dict(table), row[:]
    while left and count:
        place = max(left, key=lambda place: max(left[place].values()))
        if rule == "random":
            place = chance.choice(sorted(left))
        luck = chance.random() * sum(left[place].values())
        for word, share in left.pop(place).items():
            filled[place] = word
            luck -= share
            if luck < 0:
                break
        count -= 1
    return filled


def write(read, row, counts, rule, chance):
    table = read(row)
    for count in counts:
        row = fill(row, table, count, rule, chance)
        table = read(row)
    return tuple(row)


# %% 15.3 wrong: the likeliest word is taken | the rare word never comes
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = max(table[place], key=table[place].get)
    return row


# %% 15.3 wrong: all blanks are drawn, and the likeliest draws are kept | must not decide which blank is filled
def fill(row, table, count, rule, chance):
    drawn = {p: chance.choices(list(d), d.values())[0] for p, d in table.items()}
    places = chance.sample(list(table), min(count, len(table)))
    if rule == "confident":
        places = sorted(table, key=lambda place: -table[place][drawn[place]])[:count]
    row = list(row)
    for place in places:
        row[place] = drawn[place]
    return row


# %% 15.3 wrong: any word of the place, whatever its chance | the word with a chance of 0.10
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choice(list(table[place]))
    return row


# %% 15.3 wrong: one random number for all blanks of a step | a draw of its own
def fill(row, table, count, rule, chance):
    places, luck = list(table), chance.random()
    chance.shuffle(places)
    if rule == "confident":
        places.sort(key=lambda place: -max(table[place].values()))
    row = list(row)
    for place in places[:count]:
        words = list(table[place])
        sums = np.cumsum([table[place][word] for word in words])
        row[place] = words[int(np.searchsorted(sums, luck * sums[-1], side="right"))]
    return row


# %% 15.3 wrong: the row is filled in place | return a new list
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: from left to right, whatever the rule | one of two blanks is filled in 1.00
def fill(row, table, count, rule, chance):
    row = list(row)
    for place in sorted(table)[:count]:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: the least confident blanks come first | 0.9 here
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: confidence is a small entropy | the last two are due
def fill(row, table, count, rule, chance):
    def entropy(place):
        return -sum(p * math.log(p) for p in table[place].values() if p)

    places = chance.sample(list(table), len(table))
    if rule == "confident":
        places.sort(key=entropy)
    row = list(row)
    for place in places[:count]:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: a sample larger than what there is to sample from | all are filled
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, count)
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: blanks are drawn with repetition, so some step fills fewer | both are filled, each once
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = set(chance.choices(places, k=count))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: the global random module draws | use no other luck
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = random.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = random.choices(list(table[place]), table[place].values())[0]
    return row


# %% 15.3 wrong: a tuple is returned by fill | a list of three words is needed
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return tuple(row)


# %% 15.3 wrong: the reader is asked once | the row as it then stands
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


def write(read, row, counts, rule, chance):
    table = read(row)
    for count in counts:
        blanks = {place: table[place] for place in table if row[place] == BLANK}
        row = fill(row, blanks, count, rule, chance)
    return tuple(row)


# %% 15.3 wrong: the reader is asked again after each word | do not see one another
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


def write(read, row, counts, rule, chance):
    for _ in range(sum(counts)):
        row = fill(row, read(row), 1, rule, chance)
    return tuple(row)


# %% 15.3 wrong: the reader sees only what stands to the left | the row as it then stands
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


def write(read, row, counts, rule, chance):
    for count in counts:
        first = row.index(BLANK)
        table = read([*row[:first], *[BLANK] * (len(row) - first)])
        table = {place: table[place] for place in table if row[place] == BLANK}
        row = fill(row, table, count, rule, chance)
    return tuple(row)


# %% 15.3 wrong: everything is written anew, what was given, too | what was given has to stay
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


def write(read, row, counts, rule, chance):
    row = [BLANK] * len(row)
    for count in counts:
        row = fill(row, read(row), count, rule, chance)
    return tuple(row)


# %% 15.3 wrong: a list is returned by write | a tuple of six words is needed
def fill(row, table, count, rule, chance):
    places = list(table)
    if rule == "random":
        places = chance.sample(places, min(count, len(places)))
    else:
        places = sorted(places, key=lambda place: -max(table[place].values()))[:count]
    row = list(row)
    for place in places:
        row[place] = chance.choices(list(table[place]), table[place].values())[0]
    return row


def write(read, row, counts, rule, chance):
    for count in counts:
        row = fill(row, read(row), count, rule, chance)
    return list(row)


# %% 15.3 wrong: the order of confidence is fixed by the first look | choose anew in each step
def fill(row, table, count, rule, chance):
    places = list(table)
    chance.shuffle(places)
    if rule == "confident":
        places.sort(key=lambda place: -max(table[place].values()))
    row = list(row)
    for place in places[:count]:
        row[place] = chance.choices(list(table[place]), list(table[place].values()))[0]
    return row


def write(read, row, counts, rule, chance):
    table, row = read(row), list(row)
    order = list(table)
    chance.shuffle(order)
    if rule == "confident":
        order.sort(key=lambda place: -max(table[place].values()))
    for count in counts:
        table = read(row)
        row = fill(row, {place: table[place] for place in order[:count]}, count, rule, chance)
        order = order[count:]
    return tuple(row)


# %% 15.3 wrong: what was handed over is filled in place by write | work on a copy
def fill(row, table, count, rule, chance):
    places = list(table)
    chance.shuffle(places)
    if rule == "confident":
        places.sort(key=lambda place: -max(table[place].values()))
    row = list(row)
    for place in places[:count]:
        row[place] = chance.choices(list(table[place]), list(table[place].values()))[0]
    return row


def write(read, row, counts, rule, chance):
    for count in counts:
        row[:] = fill(row, read(row), count, rule, chance)
    return tuple(row)


# %% 15.4 right: entropies of all choices of places, and the best plan step by step
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    means = [0.0]
    for k in range(1, length + 1):
        entropies = []
        for places in itertools.combinations(range(length), k):
            parts = Counter()
            for text, chance in texts.items():
                parts[tuple(text[place] for place in places)] += chance
            entropies.append(-sum(p * math.log(p) for p in parts.values()))
        means.append(sum(entropies) / len(entropies))
    return [after - before for before, after in zip(means, means[1:])]


def cost(h, counts):
    starts = np.cumsum([0, *counts[:-1]])
    return float(np.dot(counts, np.array(h)[starts]))


def cheapest(h, steps):
    best = {0: (0.0, [])}
    for step in range(steps):
        longer = {}
        for words, (paid, plan) in best.items():
            for count in range(1, len(h) - words - (steps - step - 1) + 1):
                new = paid + count * h[words], [*plan, count]
                longer[words + count] = min(longer.get(words + count, new), new)
        best = longer
    return best[len(h)][1]


# %% 15.4 right: place by place and answer by answer, the plan by recursion
def surprises(world, length):
    texts = {text: p for text, p in world.items() if len(text) == length}
    read, total, h = reader(world), sum(texts.values()), [0.0] * length
    for mask in itertools.product((0, 1), repeat=length):
        k, weight = sum(mask), 1 / math.comb(length, sum(mask))
        for text, chance in texts.items():
            table = read([word if seen else BLANK for seen, word in zip(mask, text)])
            for place, chances in table.items():
                h[k] -= weight * chance / total * math.log(chances[text[place]]) / (length - k)
    return h


def cost(h, counts):
    visible, paid = 0, 0.0
    for count in counts:
        paid += count * h[visible]
        visible += count
    return paid


def cheapest(h, steps, start=0):
    left = len(h) - start
    if steps == 1:
        return [left]
    plans = [[n, *cheapest(h, steps - 1, start + n)] for n in range(1, left - steps + 2)]
    return min(plans, key=lambda plan: cost(h[start:], plan))


# %% 15.4 wrong: the visible words are the first k | any k of them are visible
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, [range(k)]
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


# %% 15.4 wrong: divided by L where L − k words are hidden | only the L − k hidden ones are
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / length)
    return h


# %% 15.4 wrong: the hidden words are added up | the sum over the hidden words
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices))
    return h


# %% 15.4 wrong: the chances are those among all texts | add up to 1
def surprises(world, length):
    texts = {text: p for text, p in world.items() if len(text) == length}
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


# %% 15.4 wrong: begins with one visible word | the list is one off
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(1, length + 1):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / max(1, length - k))
    return h


# %% 15.4 wrong: bits | these are bits
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log2(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


# %% 15.4 wrong: the joint surprise of what is hidden | what all hidden words cost together
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    whole, h = -sum(p * math.log(p) for p in texts.values()), []
    for k in range(length):
        entropies = []
        for places in itertools.combinations(range(length), k):
            parts = Counter()
            for text, chance in texts.items():
                parts[tuple(text[place] for place in places)] += chance
            entropies.append(whole + sum(p * math.log(p) for p in parts.values()))
        h.append(sum(entropies) / len(entropies))
    return h


# %% 15.4 wrong: every text counts alike | weigh the texts
def surprises(world, length):
    texts = shares({text: 1 for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


# %% 15.4 wrong: each step pays h once | each step pays h once
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(h[sum(counts[:step])] for step, count in enumerate(counts))


# %% 15.4 wrong: h is taken where the step ends | where a step ends
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    h = [*h, 0.0]
    return sum(count * h[sum(counts[: step + 1])] for step, count in enumerate(counts))


# %% 15.4 wrong: h is taken at the number of the step | number of the step
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[step] for step, count in enumerate(counts))


# %% 15.4 wrong: the excess is returned | `cost` is all that is paid
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts)) - sum(h)


# %% 15.4 wrong: equal shares | equal shares
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    ends = [len(h) * step // steps for step in range(steps + 1)]
    return [after - before for before, after in zip(ends, ends[1:])]


# %% 15.4 wrong: one word in each step, and the rest in the last | there is a plan of three steps that costs 14
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    return [1] * (steps - 1) + [len(h) - steps + 1]


# %% 15.4 wrong: most words first | there is a plan of three steps that costs 14
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    cuts = itertools.combinations(range(1, len(h)), steps - 1)
    plans = [[b - a for a, b in zip((0, *cut), (*cut, len(h)))] for cut in cuts]
    return sorted(min(plans, key=lambda plan: cost(h, plan)), reverse=True)


# %% 15.4 wrong: the cosine, few words first, whatever h is | h need not fall evenly
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    filled = [0]
    for step in range(1, steps + 1):
        wanted = round(len(h) * (1 - math.cos(math.pi / 2 * step / steps)))
        filled.append(min(max(wanted, filled[-1] + 1), len(h) - steps + step))
    return [after - before for before, after in zip(filled, filled[1:])]


# %% 15.4 wrong: the best among plans that never fall | h need not fall evenly
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    cuts = itertools.combinations(range(1, len(h)), steps - 1)
    plans = [[b - a for a, b in zip((0, *cut), (*cut, len(h)))] for cut in cuts]
    return min((plan for plan in plans if plan == sorted(plan)), key=lambda plan: cost(h, plan))


# %% 15.4 wrong: a step may fill nothing | must add up to 6
def surprises(world, length):
    texts = shares({text: p for text, p in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        nats, choices = 0.0, list(itertools.combinations(range(length), k))
        for visible, (text, chance) in itertools.product(choices, texts.items()):
            table = read([word if t in visible else BLANK for t, word in enumerate(text)])
            nats -= chance * sum(math.log(table[t][text[t]]) for t in table)
        h.append(nats / len(choices) / (length - k))
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    return [0] * (steps - 1) + [len(h)]


# %% 15.4 right: the expected surprise as an entropy of the answers, the plan by recursion
def surprises(world, length):
    texts = shares({text: chance for text, chance in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        total, number = 0.0, math.comb(length, k) * (length - k)
        for seen in itertools.combinations(range(length), k):
            for text, chance in texts.items():
                table = read([word if p in seen else BLANK for p, word in enumerate(text)])
                for answers in table.values():
                    total -= chance * sum(p * math.log(p) for p in answers.values()) / number
        h.append(total)
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    def best(start, left):
        if left == 1:
            return (len(h) - start) * h[start], [len(h) - start]
        options = []
        for count in range(1, len(h) - start - left + 2):
            paid, rest = best(start + count, left - 1)
            options.append((count * h[start] + paid, [count, *rest]))
        return min(options)

    return best(0, steps)[1]


# %% 15.4 wrong: the dearest step is cut in two, again and again | there is a plan of three steps
def surprises(world, length):
    texts = shares({text: chance for text, chance in world.items() if len(text) == length})
    read, h = reader(texts), []
    for k in range(length):
        total, number = 0.0, math.comb(length, k) * (length - k)
        for seen in itertools.combinations(range(length), k):
            for text, chance in texts.items():
                table = read([word if p in seen else BLANK for p, word in enumerate(text)])
                total -= chance * sum(math.log(table[p][text[p]]) for p in table) / number
        h.append(total)
    return h


def cost(h, counts):
    return sum(count * h[sum(counts[:step])] for step, count in enumerate(counts))


def cheapest(h, steps):
    plan = [len(h)]
    while len(plan) < steps:
        cuts = [
            plan[:step] + [first, count - first] + plan[step + 1 :]
            for step, count in enumerate(plan)
            for first in range(1, count)
        ]
        plan = min(cuts, key=lambda one: cost(h, one))
    return plan


# %% 15.5 right: cells from both lists by numpy, and scipy's own test
def p_value(texts, chances):
    if set(texts) - set(chances):
        return 0.0
    order = sorted(chances, key=lambda text: chances[text])
    count = Counter(texts)
    cells, bucket = [], []
    for text in order:
        bucket.append(text)
        if sum(chances[one] for one in bucket) * len(texts) >= 5:
            cells.append(bucket)
            bucket = []
    if bucket:
        cells = [*cells[:-1], [*cells[-1], *bucket]] if cells else [bucket]
    if len(cells) < 2:
        return 1.0
    seen = np.array([sum(count[one] for one in cell) for cell in cells], float)
    due = np.array([sum(chances[one] for one in cell) for cell in cells])
    return float(stats.chisquare(seen, due / due.sum() * seen.sum()).pvalue)


# %% 15.5 right: honest draws are judged by the same cells, without a table of χ²
def p_value(texts, chances):
    count, n = Counter(texts), len(texts)
    if not set(count) <= set(chances):
        return 0.0
    order = sorted(chances, key=chances.get)
    chance = np.array([chances[text] for text in order])
    cell = np.maximum(np.ceil(np.cumsum(chance) * n / 5).astype(int), 1)
    groups = (cell[:, None] == np.unique(cell)).astype(float)  # (texts, cells)
    due = n * chance @ groups

    def odd(numbers):
        return ((numbers @ groups - due) ** 2 / due).sum(-1)

    seen = np.array([count[text] for text in order])
    draws = np.random.default_rng(0).multinomial(n, chance / chance.sum(), size=2000)
    return float((odd(draws) >= odd(seen) - 1e-9).mean())


# %% 15.5 right: the largest deviation of a cell, times the number of cells
def p_value(texts, chances):
    n, seen = len(texts), Counter(texts)
    if any(chances.get(text, 0) == 0 for text in texts):
        return 0.0
    cells, count, share = [], 0, 0.0
    for text, chance in sorted(chances.items(), key=lambda item: item[1]):
        count, share = count + seen[text], share + chance
        if n * share >= 5:
            cells.append((count, share))
            count, share = 0, 0.0
    if share and cells:
        cells[-1] = cells[-1][0] + count, cells[-1][1] + share
    if len(cells) < 2:
        return 1.0
    ps = [stats.binomtest(count, n, min(1, share)).pvalue for count, share in cells]
    return min(1.0, min(ps) * (len(cells) - 1))


# %% 15.5 wrong: 1 − p | is this 1 − p
def p_value(texts, chances):
    seen, cells = Counter(texts), [[0, 0.0]]
    if any(text not in chances for text in seen):
        return 0.0
    for text in sorted(chances, key=chances.get):
        if cells[-1][1] >= 5:
            cells.append([0, 0.0])
        cells[-1][0] += seen[text]
        cells[-1][1] += len(texts) * chances[text]
    if cells[-1][1] < 5 and len(cells) > 1:
        count, expected = cells.pop()
        cells[-1][0] += count
        cells[-1][1] += expected
    if len(cells) == 1:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return float(stats.chi2.cdf(statistic, len(cells) - 1))


# %% 15.5 wrong: as many degrees of freedom as cells | one degree of freedom
def p_value(texts, chances):
    seen, cells = Counter(texts), [[0, 0.0]]
    if any(text not in chances for text in seen):
        return 0.0
    for text in sorted(chances, key=chances.get):
        if cells[-1][1] >= 5:
            cells.append([0, 0.0])
        cells[-1][0] += seen[text]
        cells[-1][1] += len(texts) * chances[text]
    if cells[-1][1] < 5 and len(cells) > 1:
        count, expected = cells.pop()
        cells[-1][0] += count
        cells[-1][1] += expected
    if len(cells) == 1:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return float(stats.chi2.sf(statistic, len(cells)))


# %% 15.5 wrong: one side only | look to both sides
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if any(text not in chances for text in seen):
        return 0.0
    text = max(chances, key=chances.get)
    spread = math.sqrt(n * chances[text] * (1 - chances[text]))
    return float(stats.norm.sf((seen[text] - n * chances[text]) / max(spread, 1e-9)))


# %% 15.5 wrong: nats a text against the truth, and no counts | compare each text's count
def p_value(texts, chances):
    if any(text not in chances for text in texts):
        return 0.0
    mean = -sum(p * math.log(p) for p in chances.values())
    spread = math.sqrt(sum(p * (math.log(p) + mean) ** 2 for p in chances.values()))
    found = -np.mean([math.log(chances[text]) for text in texts])
    return float(2 * stats.norm.sf(abs(found - mean) / max(spread, 1e-9) * len(texts) ** 0.5))


# %% 15.5 wrong: impossible texts are passed over | p is not 0
def p_value(texts, chances):
    seen, cells = Counter(texts), [[0, 0.0]]
    for text in sorted(chances, key=chances.get):
        if cells[-1][1] >= 5:
            cells.append([0, 0.0])
        cells[-1][0] += seen[text]
        cells[-1][1] += len(texts) * chances[text]
    if cells[-1][1] < 5 and len(cells) > 1:
        count, expected = cells.pop()
        cells[-1][0] += count
        cells[-1][1] += expected
    if len(cells) == 1:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


# %% 15.5 wrong: every text is a cell, however rare | they must join
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if any(text not in chances for text in seen):
        return 0.0
    if len(chances) == 1:
        return 1.0
    statistic = sum((seen[t] - n * p) ** 2 / (n * p) for t, p in chances.items())
    return float(stats.chi2.sf(statistic, len(chances) - 1))


# %% 15.5 wrong: the rare ones make one cell, and it stays alone | no cell of its own
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if any(text not in chances for text in seen):
        return 0.0
    rest, cells = [0, 0.0], []
    for text, chance in chances.items():
        if n * chance >= 5:
            cells.append((seen[text], n * chance))
        else:
            rest = [rest[0] + seen[text], rest[1] + n * chance]
    if rest[1]:
        cells.append(rest)
    if len(cells) == 1:
        return 1.0
    statistic = sum((count - due) ** 2 / due for count, due in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


# %% 15.5 wrong: each text by itself, judged by two thousand honest draws | so let them join
def p_value(texts, chances):
    count, n = Counter(texts), len(texts)
    if not set(count) <= set(chances):
        return 0.0
    chance = np.array(list(chances.values()), float)
    chance = chance / chance.sum()
    seen = np.array([count[text] for text in chances])

    def odd(numbers):
        wide = (numbers - n * chance) ** 2 / (n * chance)
        return wide.sum(-1)

    draws = np.random.default_rng(0).multinomial(n, chance, size=2000)
    return float((odd(draws) >= odd(seen) - 1e-9).mean())


# %% 15.5 wrong: rare texts are left out | leave none out
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if any(text not in chances for text in seen):
        return 0.0
    often = shares({t: p for t, p in chances.items() if n * p >= 5} or {None: 1})
    if len(often) == 1:
        return 1.0
    m = sum(seen[text] for text in often)
    statistic = sum((seen[t] - m * p) ** 2 / (m * p) for t, p in often.items())
    return float(stats.chi2.sf(statistic, len(often) - 1))


# %% 15.5 wrong: a text that never came is not counted | never came
def p_value(texts, chances):
    seen, cells = Counter(texts), [[0, 0.0]]
    if any(text not in chances for text in seen):
        return 0.0
    for text in sorted(seen, key=chances.get):
        if cells[-1][1] >= 5:
            cells.append([0, 0.0])
        cells[-1][0] += seen[text]
        cells[-1][1] += len(texts) * chances[text]
    if len(cells) == 1:
        return 1.0
    total = sum(due for _, due in cells) / len(texts)
    statistic = sum((count - due / total) ** 2 / due * total for count, due in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


# %% 15.5 wrong: shares are compared, not counts | between 0.04 and 0.06
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if any(text not in chances for text in seen):
        return 0.0
    statistic = sum((seen[t] / n - p) ** 2 / p for t, p in chances.items())
    return float(stats.chi2.sf(statistic, max(1, len(chances) - 1)))


# %% 15.5 wrong: divided by what was seen | ZeroDivisionError
def p_value(texts, chances):
    seen, cells = Counter(texts), [[0, 0.0]]
    if any(text not in chances for text in seen):
        return 0.0
    for text in sorted(chances, key=chances.get):
        if cells[-1][1] >= 5:
            cells.append([0, 0.0])
        cells[-1][0] += seen[text]
        cells[-1][1] += len(texts) * chances[text]
    if cells[-1][1] < 5 and len(cells) > 1:
        count, expected = cells.pop()
        cells[-1][0] += count
        cells[-1][1] += expected
    if len(cells) == 1:
        return 1.0
    statistic = sum((count - expected) ** 2 / count for count, expected in cells)
    return float(stats.chi2.sf(statistic, len(cells) - 1))


# %% 15.5 wrong: a verdict instead of a number | a number from 0 to 1
def p_value(texts, chances):
    seen, cells = Counter(texts), [[0, 0.0]]
    if any(text not in chances for text in seen):
        return 0.0
    for text in sorted(chances, key=chances.get):
        if cells[-1][1] >= 5:
            cells.append([0, 0.0])
        cells[-1][0] += seen[text]
        cells[-1][1] += len(texts) * chances[text]
    if cells[-1][1] < 5 and len(cells) > 1:
        count, expected = cells.pop()
        cells[-1][0] += count
        cells[-1][1] += expected
    if len(cells) == 1:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return bool(stats.chi2.sf(statistic, len(cells) - 1) < 0.05)


# %% 15.5 wrong: cells end where five were seen, not expected | so let them join
def p_value(texts, chances):
    seen, n, cells, came, due = Counter(texts), len(texts), [], 0, 0.0
    if set(seen) - set(chances):
        return 0.0
    for text in sorted(chances, key=chances.get):
        came, due = came + seen[text], due + n * chances[text]
        if came >= 5:
            cells.append([came, due])
            came, due = 0, 0.0
    if len(cells) < 2:
        return 1.0
    cells[-1][0] += came
    cells[-1][1] += due
    x = sum((came - due) ** 2 / due for came, due in cells)
    return float(stats.chi2.sf(x, len(cells) - 1))


# %% 15.5 wrong: the likeliest deviation of any text, as if it alone had been looked at | one of twenty
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if set(seen) - set(chances):
        return 0.0
    return float(min(stats.binomtest(seen[t], n, min(p, 1)).pvalue for t, p in chances.items()))


# %% 15.5 wrong: the two sides of a coin are two findings | count as two
def p_value(texts, chances):
    seen, n = Counter(texts), len(texts)
    if set(seen) - set(chances):
        return 0.0
    each = [stats.binomtest(seen[t], n, min(p, 1)).pvalue for t, p in chances.items()]
    return float(min(1, len(each) * min(each)))
