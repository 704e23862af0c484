# %% 14.1 right: numpy's generator, each side permuted by itself, labels in turn
def draw(texts, labels, test_texts, n, seed):
    chance = np.random.default_rng(seed)
    first = {text: place for place, text in reversed(list(enumerate(texts)))}
    free = [place for text, place in first.items() if text not in set(test_texts)]
    sides = [chance.permutation([place for place in free if labels[place] == k]) for k in (1, 0)]
    if any(2 * len(side) < n for side in sides):
        raise ValueError("too few cards")
    return [int(place) for pair in zip(*sides) for place in pair][:n]


# %% 14.1 right: a random key for each place, the smallest keys of each label
def draw(texts, labels, test_texts, n, seed):
    keys = torch.rand(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    found = []
    for label in (0, 1):
        places = [place for place in range(len(texts)) if labels[place] == label]
        places = [place for place in places if texts[place] not in test_texts]
        places = [place for place in places if texts.index(texts[place]) == place]
        places.sort(key=keys.__getitem__)
        if len(places) < n // 2:
            raise ValueError(f"only {len(places)} cards of label {label}")
        found += places[: n // 2]
    return found


# %% 14.1 wrong: the first n of a random order, whatever their labels | a balanced draw has 15
def draw(texts, labels, test_texts, n, seed):
    used, found = set(test_texts), []
    for place in torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist():
        if texts[place] not in used:
            used.add(texts[place])
            found.append(place)
    if n > len(found):
        raise ValueError("too few cards")
    return found[:n]


# %% 14.1 wrong: the test set is not looked at | a text of the test set was drawn
def draw(texts, labels, test_texts, n, seed):
    used, sides = set(), ([], [])
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    for place in order.tolist():
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(place)
    if min(map(len, sides)) < n // 2:
        raise ValueError("too few cards")
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: copies are drawn as if they were other cards | copies of a card are one card
def draw(texts, labels, test_texts, n, seed):
    sides = ([], [])
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    for place in order.tolist():
        if texts[place] not in test_texts:
            sides[labels[place]].append(place)
    if min(map(len, sides)) < n // 2:
        raise ValueError("too few cards")
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: each size has its own random order | must not depend on n
def draw(texts, labels, test_texts, n, seed):
    used, sides = set(test_texts), ([], [])
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1000 * seed + n))
    for place in order.tolist():
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(place)
    if min(map(len, sides)) < n // 2:
        raise ValueError("too few cards")
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: numpy's choice of n at once is no start of a longer one | must not depend on n
def draw(texts, labels, test_texts, n, seed):
    chance, found = np.random.default_rng(seed), []
    first = {text: place for place, text in enumerate(texts) if text not in test_texts}
    for label in (0, 1):
        side = [place for place in first.values() if labels[place] == label]
        found += chance.choice(side, n // 2, replace=False).tolist()
    return found


# %% 14.1 wrong: always the first cards of the list | other seeds give the same draw
def draw(texts, labels, test_texts, n, seed):
    used, sides = set(test_texts), ([], [])
    for place in range(len(texts)):
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(place)
    if min(map(len, sides)) < n // 2:
        raise ValueError("too few cards")
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: the global generator is seeded | must not change what others draw
def draw(texts, labels, test_texts, n, seed):
    torch.manual_seed(seed)
    used, sides = set(test_texts), ([], [])
    for place in torch.randperm(len(texts)).tolist():
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(place)
    if min(map(len, sides)) < n // 2:
        raise ValueError("too few cards")
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: texts are returned, not places | places are ints
def draw(texts, labels, test_texts, n, seed):
    used, sides = set(test_texts), ([], [])
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    for place in order.tolist():
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(texts[place])
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: a tensor of places | a list of places is needed
def draw(texts, labels, test_texts, n, seed):
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    marks = torch.tensor(labels)[order]
    return torch.cat([order[marks == 0][: n // 2], order[marks == 1][: n // 2]])


# %% 14.1 wrong: too few cards make a shorter draw | a ValueError must say so
def draw(texts, labels, test_texts, n, seed):
    used, sides = set(test_texts), ([], [])
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    for place in order.tolist():
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(place)
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.1 wrong: a card with a copy has two chances | cards with a copy are drawn more often
def draw(texts, labels, test_texts, n, seed):
    used, sides = set(test_texts), ([], [])
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    for place in order.tolist():
        if texts[place] not in used:
            used.add(texts[place])
            sides[labels[place]].append(place)
    if min(map(len, sides)) < n // 2:
        raise ValueError("too few cards")
    return sides[0][: n // 2] + sides[1][: n // 2]


# %% 14.2 right: row by row
def pool(hidden, input_ids):
    rows = []
    for states, ids in zip(hidden, input_ids.tolist()):
        words = [place for place, token in enumerate(ids) if token not in (CLS, SEP, PAD)]
        rows.append(states[words].mean(0) if words else torch.zeros_like(states[0]))
    return torch.stack(rows)


# %% 14.2 right: weights that add up to 1, and a product of matrices
def pool(hidden, input_ids):
    special = torch.isin(input_ids, torch.tensor([CLS, SEP, PAD]))  # (B, T)
    counts = (~special).sum(1, keepdim=True)
    weights = (~special).to(hidden.dtype) / torch.where(counts == 0, 1, counts)  # (B, T)
    clean = torch.where(special[:, :, None], torch.zeros_like(hidden), hidden)
    return (weights[:, None] @ clean)[:, 0]


# %% 14.2 wrong: the mean over all T | what stands at padding changes the mean
def pool(hidden, input_ids):
    return hidden.mean(1)


# %% 14.2 wrong: padding only is left out | [CLS] is in the mean
def pool(hidden, input_ids):
    real = input_ids != PAD
    return hidden.masked_fill(~real[..., None], 0).sum(1) / real.sum(1, keepdim=True).clamp(min=1)


# %% 14.2 wrong: [SEP] is taken for a word | [SEP] is in the mean
def pool(hidden, input_ids):
    real = (input_ids != PAD) & (input_ids != CLS)
    return hidden.masked_fill(~real[..., None], 0).sum(1) / real.sum(1, keepdim=True).clamp(min=1)


# %% 14.2 wrong: first and last column are cut off | what stands at padding changes the mean
def pool(hidden, input_ids):
    return hidden[:, 1:-1].mean(1)


# %% 14.2 wrong: a row without words divides by zero | nothing is divided by nothing
def pool(hidden, input_ids):
    words = (input_ids != CLS) & (input_ids != SEP) & (input_ids != PAD)
    return hidden.masked_fill(~words[..., None], 0).sum(1) / words.sum(1, keepdim=True)


# %% 14.2 wrong: divided by the length of the row | divide by the number of words in the row
def pool(hidden, input_ids):
    words = (input_ids != CLS) & (input_ids != SEP) & (input_ids != PAD)
    return hidden.masked_fill(~words[..., None], 0).mean(1)


# %% 14.2 wrong: a product with zeros | zero times NaN is NaN
def pool(hidden, input_ids):
    words = (input_ids != CLS) & (input_ids != SEP) & (input_ids != PAD)
    return (hidden * words[..., None]).sum(1) / words.sum(1, keepdim=True).clamp(min=1)


# %% 14.2 wrong: all special ids of the tokenizer are left out | [UNK] was left out
def pool(hidden, input_ids):
    words = ~torch.isin(input_ids, torch.tensor(tokenizer.all_special_ids))
    total = hidden.masked_fill(~words[..., None], 0).sum(1)
    return total / words.sum(1, keepdim=True).clamp(min=1)


# %% 14.2 wrong: by way of numpy | no gradient comes through
def pool(hidden, input_ids):
    words = ~np.isin(input_ids.numpy(), [CLS, SEP, PAD])
    total = np.where(words[..., None], hidden.detach().numpy(), 0).sum(1)
    mean = total / np.maximum(words.sum(1, keepdims=True), 1)
    return torch.from_numpy(mean).to(hidden.dtype)


# %% 14.2 wrong: zeros are written into the tensor that came in | that came in were changed
def pool(hidden, input_ids):
    words = (input_ids != CLS) & (input_ids != SEP) & (input_ids != PAD)
    total = (hidden * words[..., None]).sum(1)
    hidden[~words] = 0
    return total / words.sum(1, keepdim=True).clamp(min=1)


# %% 14.2 wrong: the largest value, not the mean | is not the mean of both
def pool(hidden, input_ids):
    words = (input_ids != CLS) & (input_ids != SEP) & (input_ids != PAD)
    most = hidden.masked_fill(~words[..., None], -1e9).amax(1)
    return torch.where(words.any(1, keepdim=True), most, 0.0)


# %% 14.2 wrong: padding is taken to be on the right | with padding on the left
def pool(hidden, input_ids):
    lengths = ((input_ids != PAD) & (input_ids != CLS) & (input_ids != SEP)).sum(1)
    rows = [states[1 : 1 + n].sum(0) / max(n, 1) for states, n in zip(hidden, lengths.tolist())]
    return torch.stack(rows)


# %% 14.3 right: einsum and softmax's own fraction, in logs of shifted exponentials
def classify(hidden, weights):
    pooled = torch.einsum("bh,oh->bo", hidden[:, 0, :], weights["bert.pooler.dense.weight"])
    pooled = torch.tanh(weights["bert.pooler.dense.bias"] + pooled)
    logits = torch.einsum("bh,ch->bc", pooled, weights["classifier.weight"])
    return logits + weights["classifier.bias"]


def loss_of(logits, labels):
    shifted = logits - logits.amax(1, keepdim=True)
    log_sum = shifted.exp().sum(1).log()
    return (log_sum - shifted[torch.arange(len(labels)), labels]).sum() / len(labels)


def as_logistic(weights):
    turn = torch.tensor([-1.0, 1.0]).double()
    return turn @ weights["classifier.weight"], turn @ weights["classifier.bias"]


# %% 14.3 right: torch.addmm, log_softmax as a method, a one-hot table
def classify(hidden, weights):
    dense = weights["bert.pooler.dense.weight"].t(), weights["bert.pooler.dense.bias"]
    last = weights["classifier.weight"].t(), weights["classifier.bias"]
    pooled = torch.addmm(dense[1], hidden[:, 0], dense[0]).tanh()
    return torch.addmm(last[1], pooled, last[0])


def loss_of(logits, labels):
    one_hot = torch.eye(logits.shape[1], dtype=logits.dtype)[labels]
    return -(logits.log_softmax(-1) * one_hot).sum(1).mean()


def as_logistic(weights):
    return weights["classifier.weight"].diff(dim=0)[0], weights["classifier.bias"].diff()[0]


# %% 14.3 wrong: the mean of all positions is pooled | another position than the first
def classify(hidden, weights):
    pooled = hidden.mean(1) @ weights["bert.pooler.dense.weight"].T
    pooled = (pooled + weights["bert.pooler.dense.bias"]).tanh()
    return pooled @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: the pooler is left out | bert.pooler.dense.weight has no effect
def classify(hidden, weights):
    return hidden[:, 0] @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: tanh is left out | tanh, between the two layers
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: tanh comes last | tanh stands at the end
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return (pooled @ weights["classifier.weight"].T + weights["classifier.bias"]).tanh()


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: the square matrix is not transposed | stored as (out, in)
def classify(hidden, weights):
    pooled = hidden[:, 0] @ weights["bert.pooler.dense.weight"] + weights["bert.pooler.dense.bias"]
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: the classifier's bias is forgotten | classifier.bias has no effect
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: probabilities are returned | logits are asked for
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    logits = pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]
    return logits.softmax(-1)


def loss_of(logits, labels):
    return -logits.gather(1, labels[:, None]).log().mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: the loss is a sum | take the mean over the rows
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).sum()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: exponentials before the logarithm | logits of 2000 overflow
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    chances = logits.exp() / logits.exp().sum(1, keepdim=True)
    return -chances.gather(1, labels[:, None]).log().mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: a float, whose gradient is lost | loss_of: a tensor is needed
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean().item()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1] - bias[0]


# %% 14.3 wrong: the difference of the classes is turned round | this is P(class 0)
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[0] - matrix[1], bias[0] - bias[1]


# %% 14.3 wrong: the row of class 1 alone | how do both rows of the classifier come in
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1], bias[1] - bias[0]


# %% 14.3 wrong: the bias of class 1 alone | the biases of both classes decide
def classify(hidden, weights):
    pooled = (
        hidden[:, 0] @ weights["bert.pooler.dense.weight"].T + weights["bert.pooler.dense.bias"]
    )
    return pooled.tanh() @ weights["classifier.weight"].T + weights["classifier.bias"]


def loss_of(logits, labels):
    return (logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]).mean()


def as_logistic(weights):
    matrix, bias = weights["classifier.weight"], weights["classifier.bias"]
    return matrix[1] - matrix[0], bias[1]


# %% 14.4 right: how often each card comes, by torch.multinomial, and sorted differences
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("the tables have unlike shapes")
    N = right_a.shape[1]
    picks = torch.multinomial(torch.ones(times, N), N, replacement=True, generator=generator)
    counts = torch.zeros(times, N).double().scatter_add_(1, picks, torch.ones(times, N).double())
    differences = counts @ (right_a.int() - right_b.int()).sum(0).double() / right_a.numel()
    low, high = np.quantile(differences.numpy(), [0.025, 0.975])
    return (right_a.float().mean(dtype=torch.float64) - right_b.double().mean()).item(), *map(
        float, (low, high)
    )


# %% 14.4 right: one resample after another, both tables indexed
def compare(right_a, right_b, times, generator):
    if tuple(right_a.shape) != tuple(right_b.shape):
        raise ValueError("unlike shapes")
    a, b, found = right_a.double(), right_b.double(), []
    for _ in range(times):
        picks = torch.floor(torch.rand(a.shape[1], generator=generator) * a.shape[1]).long()
        found.append((a[:, picks].mean() - b[:, picks].mean()).item())
    low, high = np.percentile(found, [2.5, 97.5])
    return float(a.mean() - b.mean()), float(low), float(high)


# %% 14.4 wrong: b minus a | the sign is wrong
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = (right_b.double() - right_a.double()).mean(0)
    picks = torch.randint(len(per_card), (times, len(per_card)), generator=generator)
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.4 wrong: each classifier is given cards of its own | draw once, for both
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    a, b = right_a.double().mean(0), right_b.double().mean(0)
    picks = torch.randint(len(a), (2, times, len(a)), generator=generator)
    differences = a[picks[0]].mean(1) - b[picks[1]].mean(1)
    low, high = differences.quantile(torch.tensor([0.025, 0.975]).double())
    return (a.mean() - b.mean()).item(), low.item(), high.item()


# %% 14.4 wrong: answers are drawn, not cards | nine answers to one card are one card
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    answers = (right_a.double() - right_b.double()).flatten()
    picks = torch.randint(len(answers), (times, len(answers)), generator=generator)
    low, high = answers[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return answers.mean().item(), low.item(), high.item()


# %% 14.4 wrong: answers are drawn, for each classifier by itself | were drawn one by one
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    a, b = right_a.double().flatten(), right_b.double().flatten()
    differences = torch.stack(
        [
            a[torch.randint(len(a), (len(a),), generator=generator)].mean()
            - b[torch.randint(len(b), (len(b),), generator=generator)].mean()
            for _ in range(times)
        ]
    )
    low, high = differences.quantile(torch.tensor([0.025, 0.975]).double())
    return (a.mean() - b.mean()).item(), low.item(), high.item()


# %% 14.4 wrong: the 5% and 95% quantiles, which make 90% | is right for 95%
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = (right_a.double() - right_b.double()).mean(0)
    picks = torch.randint(len(per_card), (times, len(per_card)), generator=generator)
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.05, 0.95]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.4 wrong: mean and 1.96 standard deviations, no quantiles | take the quantiles
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = (right_a.double() - right_b.double()).mean(0)
    picks = torch.randint(len(per_card), (times, len(per_card)), generator=generator)
    differences = per_card[picks].mean(1)
    mean, reach = per_card.mean().item(), 1.96 * differences.std(unbiased=False).item()
    return mean, mean - reach, mean + reach


# %% 14.4 wrong: drawn without replacement, each draw holds all cards | does not hold the difference
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = (right_a.double() - right_b.double()).mean(0)
    order = [torch.randperm(len(per_card), generator=generator) for _ in range(times)]
    differences = per_card[torch.stack(order)].mean(1)
    low, high = differences.quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.4 wrong: the global generator draws | draw from the generator that is given
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = (right_a.double() - right_b.double()).mean(0)
    picks = torch.randint(len(per_card), (times, len(per_card)))
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.4 wrong: a table of one draw is stretched to the other's shape | were compared
def compare(right_a, right_b, times, generator):
    per_card = (right_a.double() - right_b.double()).mean(0)
    picks = torch.randint(len(per_card), (times, len(per_card)), generator=generator)
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.4 wrong: only the first draw is looked at | they differ by
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = right_a[0].double() - right_b[0].double()
    picks = torch.randint(len(per_card), (times, len(per_card)), generator=generator)
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.4 wrong: tensors without dimensions | floats are needed
def compare(right_a, right_b, times, generator):
    per_card = (right_a.double() - right_b.double()).mean(0)
    picks = torch.randint(len(per_card), (times, len(per_card)), generator=generator)
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean(), low, high


# %% 14.4 wrong: always 1000 resamples | low and high are one number
def compare(right_a, right_b, times, generator):
    if right_a.shape != right_b.shape:
        raise ValueError("unlike shapes")
    per_card = (right_a.double() - right_b.double()).mean(0)
    picks = torch.randint(len(per_card), (1000, len(per_card)), generator=generator)
    low, high = per_card[picks].mean(1).quantile(torch.tensor([0.025, 0.975]).double())
    return per_card.mean().item(), low.item(), high.item()


# %% 14.5 right: words by their standardised difference, judged with a pair of cards left out
def score(found, good, bad):
    chances = found.exp()
    sums = [sum(chances[:, WORDS.index(word)] for word in words) for words in (good, bad)]
    return sums[0].log() - sums[1].log()


def words_and_threshold(found, happy, size=6):
    lean = (found[happy].mean(0) - found[~happy].mean(0)) / found.std(0)
    order = [WORDS[place] for place in lean.argsort(descending=True)]
    good, bad = order[:size], order[-size:]
    scores = score(found, good, bad)
    return good, bad, float(scores[happy].mean() + scores[~happy].mean()) / 2


def choose(ask, texts, labels):
    happy, hits = torch.tensor(labels).bool(), {}
    for prompt in PROMPTS:
        found, fold = ask(prompt, texts), torch.arange(len(texts)) % 5
        hits[prompt] = 0
        for part in range(5):
            rest = fold != part
            good, bad, threshold = words_and_threshold(found[rest], happy[rest])
            called = score(found[~rest], good, bad) > threshold
            hits[prompt] += int((called == happy[~rest]).sum())
    prompt = max(hits, key=hits.get)
    return prompt, *words_and_threshold(ask(prompt, texts), happy)


# %% 14.5 right: every word has a side, the threshold is the best cut, prompts by their separation
def score(found, good, bad):
    columns = {word: found[:, place] for place, word in enumerate(WORDS)}
    good, bad = (torch.stack([columns[word] for word in words]) for words in (good, bad))
    return torch.logsumexp(good, 0) - torch.logsumexp(bad, 0)


def choose(ask, texts, labels):
    best = (-1.0, None)
    happy = torch.tensor(labels) == 1
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = (found[happy].mean(0) - found[~happy].mean(0)).tolist()
        good = [word for word, by in zip(WORDS, lean) if by > 0]
        bad = [word for word, by in zip(WORDS, lean) if by <= 0]
        if not good or not bad:
            continue
        scores = score(found, good, bad)
        apart = (scores[happy].mean() - scores[~happy].mean()) / scores.std()
        cuts = [(a + b) / 2 for a, b in zip(*[sorted(scores.tolist())[k:] for k in (0, 1)])]
        cut = max(cuts, key=lambda cut: int(((scores > cut) == happy).sum()))
        if apart > best[0]:
            best = (float(apart), (prompt, good, bad, cut))
    return best[1]


# %% 14.5 right: one good word and one bad word for the prompt where they tell most
def score(found, good, bad):
    table = torch.tensor([[word in good, word in bad] for word in WORDS]).double()  # (W, 2)
    sums = (found.exp() @ table).log()  # (N, 2)
    return sums[:, 0] - sums[:, 1]


def choose(ask, texts, labels):
    labels = torch.tensor(labels)
    happy, unhappy = (labels == 1).nonzero()[:, 0], (labels == 0).nonzero()[:, 0]
    tried = []
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = (found[happy].mean(0) - found[unhappy].mean(0)) / found.std(0)
        good, bad = [WORDS[int(lean.argmax())]], [WORDS[int(lean.argmin())]]
        scores = score(found, good, bad)
        threshold = (scores[happy].median() + scores[unhappy].median()).item() / 2
        tried.append((lean.abs().mean().item(), prompt, good, bad, threshold))
    return max(tried)[1:]


# %% 14.5 wrong: the words are chosen by hand | the labelled cards tell the sides
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    good = ["great", "wonderful", "superb", "excellent", "brilliant", "amazing"]
    bad = ["boring", "awful", "terrible", "dull", "poor", "weak"]
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        scores = score(ask(prompt, texts), good, bad)
        threshold = (scores[happy].mean() + scores[~happy].mean()) / 2
        hits = (scores[happy].mean() - scores[~happy].mean()).abs()
        if hits > most:
            most, best = hits, (prompt, good, bad, threshold.item())
    return best


# %% 14.5 wrong: the threshold is 0 | where must the threshold lie
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        apart = lean.abs().mean()
        if apart > most:
            most, best = apart, (prompt, order[-4:], order[:4], 0.0)
    return best


# %% 14.5 wrong: the first prompt, whatever the cards say | compare them all
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy, found = torch.tensor(labels) == 1, ask(PROMPTS[0], texts)
    lean = found[happy].mean(0) - found[~happy].mean(0)
    order = [WORDS[place] for place in lean.argsort()]
    scores = score(found, order[-4:], order[:4])
    threshold = (scores[happy].mean() + scores[~happy].mean()) / 2
    return PROMPTS[0], order[-4:], order[:4], threshold.item()


# %% 14.5 wrong: the prompt that is best on the test cards | a text was asked that is not a labelled
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        order = [WORDS[k] for k in (found[happy].mean(0) - found[~happy].mean(0)).argsort()]
        scores = score(found, order[-4:], order[:4])
        threshold = (scores[happy].mean() + scores[~happy].mean()) / 2
        called = score(ask(prompt, TEST), order[-4:], order[:4]) > threshold
        hits = (called == (torch.tensor(TEST_LABELS) == 1)).sum()
        if hits > most:
            most, best = hits, (prompt, order[-4:], order[:4], threshold.item())
    return best


# %% 14.5 wrong: good and bad are exchanged | good and bad are exchanged
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        scores = score(found, order[:4], order[-4:])
        if lean.abs().mean() > most:
            most, best = lean.abs().mean(), (prompt, order[:4], order[-4:], scores.mean().item())
    return best


# %% 14.5 wrong: the mean of ln P in place of the sum of P | add up P, not ln P
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].mean(1) - found[:, bad].mean(1)


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        scores = score(found, order[-4:], order[:4])
        if lean.abs().mean() > most:
            most, best = lean.abs().mean(), (prompt, order[-4:], order[:4], scores.mean().item())
    return best


# %% 14.5 wrong: the difference of two sums of P, without ln | ln 0.6 − ln 0.1
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].exp().sum(1) - found[:, bad].exp().sum(1)


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        scores = score(found, order[-4:], order[:4])
        if lean.abs().mean() > most:
            most, best = lean.abs().mean(), (prompt, order[-4:], order[:4], scores.mean().item())
    return best


# %% 14.5 right: a pair of words by its hits, tried one after another
def score(found, good, bad):
    columns = [[WORDS.index(word) for word in words] for words in (good, bad)]
    sums = [found[:, part].exp().sum(1) for part in columns]
    return (sums[0] / sums[1]).log()


def choose(ask, texts, labels):
    happy, best = torch.tensor(labels) == 1, (-1.0,)
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        for place, word in enumerate(WORDS):
            scores = found[:, place : place + 1] - found  # (N, W), against every other word
            cuts = (scores[happy].mean(0) + scores[~happy].mean(0)) / 2
            hits = ((scores > cuts) == happy[:, None]).double().mean(0)
            hits[place] = 0
            other = int(hits.argmax())
            if hits[other] > best[0]:
                best = hits[other].item(), prompt, [word], [WORDS[other]], cuts[other].item()
    return best[1:]


# %% 14.5 wrong: the mean of P in place of the sum | do not take the mean
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    mean = found[:, good].exp().mean(1) * 2, found[:, bad].exp().mean(1)
    return (mean[0] / mean[1]).log()


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        scores = score(found, order[-4:], order[:4])
        if lean.abs().mean() > most:
            most, best = lean.abs().mean(), (prompt, order[-4:], order[:4], scores.mean().item())
    return best


# %% 14.5 wrong: happy cards are taken to stand where they stood so far | go by their labels
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy = torch.arange(len(texts)) >= len(texts) // 2  # as our `draw` gives them
    if labels[0] != labels[1]:
        happy = torch.arange(len(texts)) % 2 == 1
    most, best = -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        scores = score(found, order[-4:], order[:4])
        if lean.abs().mean() > most:
            most, best = lean.abs().mean(), (prompt, order[-4:], order[:4], scores.mean().item())
    return best


# %% 14.5 wrong: the threshold is a tensor | a float is needed
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy, most, best = torch.tensor(labels) == 1, -1, None
    for prompt in PROMPTS:
        found = ask(prompt, texts)
        lean = found[happy].mean(0) - found[~happy].mean(0)
        order = [WORDS[place] for place in lean.argsort()]
        scores = score(found, order[-4:], order[:4])
        if lean.abs().mean() > most:
            most, best = lean.abs().mean(), (prompt, order[-4:], order[:4], scores.mean())
    return best


# %% 14.5 wrong: a word stands on both sides | good and bad need words, and no common one
def score(found, good, bad):
    good, bad = ([WORDS.index(word) for word in words] for words in (good, bad))
    return found[:, good].logsumexp(1) - found[:, bad].logsumexp(1)


def choose(ask, texts, labels):
    happy, found = torch.tensor(labels) == 1, ask(PROMPTS[1], texts)
    lean = found[happy].mean(0) - found[~happy].mean(0)
    order = [WORDS[place] for place in lean.argsort()]
    return PROMPTS[1], order[8:], order[:16], 0.5
