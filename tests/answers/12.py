# %% 12.1 right: row by row in plain Python
def mean_and_errors(losses):
    sums, counts = zip(*[(sum(row.tolist()), len(row)) for row in losses if len(row)])
    N, R = sum(counts), len(counts)
    mean = sum(sums) / N
    deviations = sum((loss - mean) ** 2 for row in losses for loss in row.tolist())
    naive = math.sqrt(deviations / (N - 1) / N)
    if R < 2:
        return mean, math.inf, naive
    total = sum((s - mean * n) ** 2 for s, n in zip(sums, counts))
    return mean, math.sqrt(total * R / (R - 1)) / N, naive


# %% 12.1 right: remainders as sums of deviations, their spread by torch.var
def mean_and_errors(losses):
    tokens = torch.cat(list(losses))
    mean = tokens.mean()
    remainders = torch.stack([(row - mean).sum() for row in losses if row.numel() > 0])
    by_rows = math.inf
    if remainders.numel() > 1:  # they add up to 0, so their variance is about 0
        by_rows = float((remainders.var() * len(remainders)).sqrt() / tokens.numel())
    return float(mean), by_rows, float(torch.std(tokens)) / math.sqrt(tokens.numel())


# %% 12.1 wrong: the mean of the rows' means | mean of the rows' means
def mean_and_errors(losses):
    means = torch.stack([row.mean() for row in losses if len(row)])
    tokens = torch.cat(losses)
    error = means.std().item() / len(means) ** 0.5
    return means.mean().item(), error, tokens.std().item() / len(tokens) ** 0.5


# %% 12.1 wrong: the error by rows from the spread of the rows' means | spread of the rows' means
def mean_and_errors(losses):
    means = torch.stack([row.mean() for row in losses if len(row)])
    tokens = torch.cat(losses)
    error = means.std().item() / len(means) ** 0.5
    return tokens.mean().item(), error, tokens.std().item() / len(tokens) ** 0.5


# %% 12.1 wrong: the deviation without the root of N | divide by √N
def mean_and_errors(losses):
    rows = [row for row in losses if len(row)]
    tokens = torch.cat(rows)
    mean, R = tokens.mean(), len(rows)
    total = sum((row.sum() - mean * len(row)) ** 2 for row in rows)
    by_rows = (total * R / (R - 1)).sqrt() / len(tokens) if R > 1 else torch.tensor(math.inf)
    return mean.item(), by_rows.item(), tokens.std().item()


# %% 12.1 wrong: the factor is forgotten | factor R / (R − 1)
def mean_and_errors(losses):
    rows = [row for row in losses if len(row)]
    tokens = torch.cat(rows)
    mean = tokens.mean()
    total = sum((row.sum() - mean * len(row)) ** 2 for row in rows)
    by_rows = total.sqrt() / len(tokens) if len(rows) > 1 else torch.tensor(math.inf)
    return mean.item(), by_rows.item(), (tokens.std() / len(tokens) ** 0.5).item()


# %% 12.1 wrong: divided by the number of rows | not by that of rows
def mean_and_errors(losses):
    rows = [row for row in losses if len(row)]
    tokens = torch.cat(rows)
    mean, R = tokens.mean(), len(rows)
    total = sum((row.sum() - mean * len(row)) ** 2 for row in rows)
    by_rows = (total * R / (R - 1)).sqrt() / R if R > 1 else torch.tensor(math.inf)
    return mean.item(), by_rows.item(), (tokens.std() / len(tokens) ** 0.5).item()


# %% 12.1 wrong: empty rows are counted | R must not count them
def mean_and_errors(losses):
    tokens = torch.cat(losses)
    mean, R = tokens.mean(), len(losses)
    if R == 1:
        return mean.item(), math.inf, (tokens.std() / len(tokens) ** 0.5).item()
    total = sum((row.sum() - mean * len(row)) ** 2 for row in losses)
    by_rows = (total * R / (R - 1)).sqrt() / len(tokens)
    return mean.item(), by_rows.item(), (tokens.std() / len(tokens) ** 0.5).item()


# %% 12.1 wrong: a single row is not thought of | divides by R − 1
def mean_and_errors(losses):
    rows = [row for row in losses if len(row)]
    tokens = torch.cat(rows)
    mean, R = tokens.mean(), len(rows)
    total = sum((row.sum() - mean * len(row)) ** 2 for row in rows)
    by_rows = (total * (R / (R - 1))).sqrt() / len(tokens)
    return mean.item(), by_rows.item(), (tokens.std() / len(tokens) ** 0.5).item()


# %% 12.1 wrong: tensors are returned | floats are needed
def mean_and_errors(losses):
    rows = [row for row in losses if len(row)]
    tokens = torch.cat(rows)
    mean, R = tokens.mean(), len(rows)
    total = sum((row.sum() - mean * len(row)) ** 2 for row in rows)
    by_rows = (total * R / max(R - 1, 0.0)).sqrt() / len(tokens)
    return mean, by_rows, tokens.std() / len(tokens) ** 0.5


# %% 12.2 right: a stable sort, and the place of the target in it; bands by bucketize
def ranks_of(scores, targets):
    order = scores.argsort(dim=-1, descending=True, stable=True)
    return (order == targets[:, None]).long().argmax(-1)


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    found = []
    for number in range(len(edges) + 1):
        good = [rank < k for rank, its in zip(ranks.tolist(), band.tolist()) if its == number]
        found.append((sum(good) / len(good), len(good)) if good else (None, 0))
    return found


# %% 12.2 right: loops
def ranks_of(scores, targets):
    found = []
    for row, target in zip(scores.tolist(), targets.tolist()):
        found.append(
            sum(s > row[target] or (s == row[target] and i < target) for i, s in enumerate(row))
        )
    return torch.tensor(found)


def by_band(ranks, often, edges, k):
    counts, hits = [0] * (len(edges) + 1), [0] * (len(edges) + 1)
    for rank, times in zip(ranks.tolist(), often.tolist()):
        band = sum(times >= edge for edge in edges)
        counts[band] += 1
        hits[band] += rank < k
    return [(hit / n if n else None, n) for hit, n in zip(hits, counts)]


# %% 12.2 wrong: ties are overlooked | is always right
def ranks_of(scores, targets):
    own = scores.gather(1, targets[:, None])
    return (scores > own).sum(1)


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((p < k).float().mean().item() if len(p) else None, len(p)) for p in parts]


# %% 12.2 wrong: all equal scores come before | only those with a lower id
def ranks_of(scores, targets):
    own = scores.gather(1, targets[:, None])
    return (scores >= own).sum(1) - 1


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((p < k).float().mean().item() if len(p) else None, len(p)) for p in parts]


# %% 12.2 wrong: ranks from 1 | has the rank 0
def ranks_of(scores, targets):
    own = scores.gather(1, targets[:, None])
    lower = torch.arange(scores.shape[1]) < targets[:, None]
    return 1 + ((scores > own) | ((scores == own) & lower)).sum(1)


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((p <= k).float().mean().item() if len(p) else None, len(p)) for p in parts]


# %% 12.2 wrong: the order of the sort is taken for the ranks | three ranks here are
def ranks_of(scores, targets):
    order = scores.argsort(dim=-1, descending=True, stable=True)
    return order.gather(1, targets[:, None])[:, 0]


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((p < k).float().mean().item() if len(p) else None, len(p)) for p in parts]


# %% 12.2 wrong: an edge belongs to the band below | from 10 on
def ranks_of(scores, targets):
    return (scores.argsort(descending=True, stable=True) == targets[:, None]).long().argmax(-1)


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges))
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((p < k).float().mean().item() if len(p) else None, len(p)) for p in parts]


# %% 12.2 wrong: the sixth answer counts, too | not among the first five
def ranks_of(scores, targets):
    return (scores.argsort(descending=True, stable=True) == targets[:, None]).long().argmax(-1)


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((p <= k).float().mean().item() if len(p) else None, len(p)) for p in parts]


# %% 12.2 wrong: the mean of an empty band | share NaN
def ranks_of(scores, targets):
    return (scores.argsort(descending=True, stable=True) == targets[:, None]).long().argmax(-1)


def by_band(ranks, often, edges, k):
    band = torch.bucketize(often, torch.tensor(edges), right=True)
    parts = [ranks[band == number] for number in range(len(edges) + 1)]
    return [((part < k).float().mean().item(), len(part)) for part in parts]


# %% 12.2 wrong: the first band is forgotten | make three bands
def ranks_of(scores, targets):
    return (scores.argsort(descending=True, stable=True) == targets[:, None]).long().argmax(-1)


def by_band(ranks, often, edges, k):
    found = []
    for least, most in zip(edges, [*edges[1:], math.inf]):
        part = ranks[(often >= least) & (often < most)]
        found.append(((part < k).float().mean().item() if len(part) else None, len(part)))
    return found


# %% 12.3 right: padded by hand, word ends found from the right, one text's parts summed at the end
def pll(model, tokenizer, texts, whole_word=False):
    encoded = [tokenizer.encode(text) for text in texts]
    longest, made = max(map(len, encoded)), []
    for which, ids in enumerate(encoded):
        ends, end = {}, len(ids) - 1
        for place in reversed(range(1, len(ids) - 1)):
            ends[place] = end if whole_word else place + 1
            if not tokenizer.convert_ids_to_tokens(ids[place]).startswith("##"):
                end = place
        for place, end in ends.items():
            row = ids + [tokenizer.pad_token_id] * (longest - len(ids))
            row[place:end] = [tokenizer.mask_token_id] * (end - place)
            made.append((which, place, row, len(ids)))
    rows = torch.tensor([row for _, _, row, _ in made])
    mask = torch.arange(longest) < torch.tensor([length for *_, length in made])[:, None]
    with torch.inference_mode():
        logits = model(input_ids=rows, attention_mask=mask.long())["logits"]
    totals = [0.0] * len(texts)
    for (which, place, _, _), scores in zip(made, logits):
        here = scores[place]
        totals[which] += float(here[encoded[which][place]] - here.logsumexp(0))
    return totals


# %% 12.3 right: a table of hidden places for each text, cross-entropy, split by text
def pll(model, tokenizer, texts, whole_word=False):
    rows, targets, places, sizes = [], [], [], []
    for text in texts:
        ids = torch.tensor(tokenizer.encode(text))
        n = len(ids) - 2
        tokens = tokenizer.convert_ids_to_tokens(ids.tolist())
        word = torch.tensor([not token.startswith("##") for token in tokens]).long().cumsum(0)
        at, where = torch.arange(len(ids)), torch.arange(1, n + 1)[:, None]
        hide = at == where
        if whole_word:
            hide |= (at > where) & (word == word[where])
        rows += list(torch.where(hide, tokenizer.mask_token_id, ids))
        targets.append(ids[1:-1])
        places.append(where[:, 0])
        sizes.append(n)
    attention = [torch.ones_like(row) for row in rows]
    pad = torch.nn.utils.rnn.pad_sequence
    fields = {"input_ids": pad(rows, True, tokenizer.pad_token_id)}
    fields["attention_mask"] = pad(attention, True, 0)
    logits = model(**fields)["logits"].detach()
    asked = logits[torch.arange(len(rows)), torch.cat(places)]
    nats = torch.nn.functional.cross_entropy(asked, torch.cat(targets), reduction="none")
    return [-part.sum().item() for part in nats.split(sizes)]


# %% 12.3 wrong: one pass without hiding | no token was hidden
def pll(model, tokenizer, texts, whole_word=False):
    found = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text)])
        with torch.no_grad():
            parts = model(input_ids=ids)["logits"].log_softmax(-1)
        found.append(parts.gather(-1, ids[..., None])[0, 1:-1].sum().item())
    return found


# %% 12.3 wrong: a call for each token | times: put all rows in one call
def pll(model, tokenizer, texts, whole_word=False):
    found = []
    for text in texts:
        ids, total = torch.tensor([tokenizer.encode(text)]), 0.0
        for place in range(1, ids.shape[1] - 1):
            row = ids.clone()
            row[0, place] = tokenizer.mask_token_id
            with torch.no_grad():
                scores = model(input_ids=row)["logits"][0, place]
            total += scores.log_softmax(-1)[ids[0, place]].item()
        found.append(total)
    return found


# %% 12.3 wrong: a call for each text | put the rows of all texts in one
def pll(model, tokenizer, texts, whole_word=False):
    found = []
    for text in texts:
        ids = torch.tensor(tokenizer.encode(text))
        at = torch.arange(1, len(ids) - 1)
        rows = ids.repeat(len(at), 1)
        rows[torch.arange(len(at)), at] = tokenizer.mask_token_id
        with torch.no_grad():
            scores = model(input_ids=rows)["logits"][torch.arange(len(at)), at]
        found.append(scores.log_softmax(-1)[torch.arange(len(at)), ids[at]].sum().item())
    return found


# %% 12.3 wrong: the special tokens are asked for, too | [CLS] was hidden
def pll(model, tokenizer, texts, whole_word=False):
    ids = torch.tensor(tokenizer.encode(texts[0]))
    at = torch.arange(len(ids))
    rows = ids.repeat(len(at), 1)
    rows[at, at] = tokenizer.mask_token_id
    with torch.no_grad():
        scores = model(input_ids=rows)["logits"][at, at]
    return [scores.log_softmax(-1)[at, ids].sum().item()]


# %% 12.3 wrong: a token stays hidden when the next is | are earlier ones put back
def pll(model, tokenizer, texts, whole_word=False):
    ids = tokenizer.encode(texts[0])
    row, rows = list(ids), []
    at = torch.arange(1, len(ids) - 1)
    for place in at.tolist():
        row[place] = tokenizer.mask_token_id
        rows.append(list(row))
    with torch.no_grad():
        scores = model(input_ids=torch.tensor(rows))["logits"][at - 1, at]
    return [scores.log_softmax(-1)[at - 1, torch.tensor(ids)[at]].sum().item()]


# %% 12.3 wrong: logits are added up, not their logarithms of P | take ln P (log_softmax
def pll(model, tokenizer, texts, whole_word=False):
    ids = torch.tensor(tokenizer.encode(texts[0]))
    at = torch.arange(1, len(ids) - 1)
    rows = ids.repeat(len(at), 1)
    rows[at - 1, at] = tokenizer.mask_token_id
    with torch.no_grad():
        return [-model(input_ids=rows)["logits"][at - 1, at, ids[at]].sum().item()]


# %% 12.3 wrong: the mean over tokens | the sum is asked for
def pll(model, tokenizer, texts, whole_word=False):
    ids = torch.tensor(tokenizer.encode(texts[0]))
    at = torch.arange(1, len(ids) - 1)
    rows = ids.repeat(len(at), 1)
    rows[at - 1, at] = tokenizer.mask_token_id
    with torch.no_grad():
        scores = model(input_ids=rows)["logits"][at - 1, at]
    return [scores.log_softmax(-1)[at - 1, ids[at]].mean().item()]


# %% 12.3 wrong: padding without an attention mask | got no attention_mask
def pll(model, tokenizer, texts, whole_word=False):
    rows, asked = [], []
    for number, text in enumerate(texts):
        ids = torch.tensor(tokenizer.encode(text))
        for place in range(1, len(ids) - 1):
            row = ids.clone()
            row[place] = tokenizer.mask_token_id
            rows.append(row)
            asked.append((number, place, int(ids[place])))
    batch = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
    with torch.no_grad():
        logits = model(input_ids=batch)["logits"].log_softmax(-1)
    found = [0.0] * len(texts)
    for row, (number, place, target) in enumerate(asked):
        found[number] += logits[row, place, target].item()
    return found


# %% 12.3 wrong: the pieces to the left are hidden, too | stay in view
def pll(model, tokenizer, texts, whole_word=False):
    rows, asked = [], []
    for number, text in enumerate(texts):
        ids = torch.tensor(tokenizer.encode(text))
        tokens = tokenizer.convert_ids_to_tokens(ids.tolist())
        word = torch.tensor([not token.startswith("##") for token in tokens]).long().cumsum(0)
        for place in range(1, len(ids) - 1):
            hide = word == word[place] if whole_word else torch.arange(len(ids)) == place
            rows.append(ids.masked_fill(hide, tokenizer.mask_token_id))
            asked.append((number, place, int(ids[place])))
    batch = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
    with torch.no_grad():
        mask = (batch != tokenizer.pad_token_id).long()
        logits = model(input_ids=batch, attention_mask=mask)["logits"].log_softmax(-1)
    found = [0.0] * len(texts)
    for row, (number, place, target) in enumerate(asked):
        found[number] += logits[row, place, target].item()
    return found


# %% 12.3 wrong: whole_word is ignored | nothing else is hidden
def pll(model, tokenizer, texts, whole_word=False):
    rows, asked = [], []
    for number, text in enumerate(texts):
        ids = torch.tensor(tokenizer.encode(text))
        for place in range(1, len(ids) - 1):
            row = ids.clone()
            row[place] = tokenizer.mask_token_id
            rows.append(row)
            asked.append((number, place, int(ids[place])))
    batch = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
    with torch.no_grad():
        mask = (batch != tokenizer.pad_token_id).long()
        logits = model(input_ids=batch, attention_mask=mask)["logits"].log_softmax(-1)
    found = [0.0] * len(texts)
    for row, (number, place, target) in enumerate(asked):
        found[number] += logits[row, place, target].item()
    return found


# %% 12.3 wrong: all that is hidden along is counted, one row for a word | still has its row
def pll(model, tokenizer, texts, whole_word=False):
    rows, asked = [], []
    for number, text in enumerate(texts):
        ids = torch.tensor(tokenizer.encode(text))
        tokens, place = tokenizer.convert_ids_to_tokens(ids.tolist()), 1
        while place < len(ids) - 1:
            end = place + 1
            while whole_word and tokens[end].startswith("##"):
                end += 1
            row = ids.clone()
            row[place:end] = tokenizer.mask_token_id
            asked += [(number, len(rows), at, int(ids[at])) for at in range(place, end)]
            rows.append(row)
            place = end
    batch = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
    with torch.no_grad():
        mask = (batch != tokenizer.pad_token_id).long()
        logits = model(input_ids=batch, attention_mask=mask)["logits"].log_softmax(-1)
    found = [0.0] * len(texts)
    for number, row, place, target in asked:
        found[number] += logits[row, place, target].item()
    return found


# %% 12.3 wrong: whatever is hidden along is added in each row | count the token alone
def pll(model, tokenizer, texts, whole_word=False):
    rows, asked = [], []
    for number, text in enumerate(texts):
        ids = torch.tensor(tokenizer.encode(text))
        tokens = tokenizer.convert_ids_to_tokens(ids.tolist())
        for place in range(1, len(ids) - 1):
            end = place + 1
            while whole_word and tokens[end].startswith("##"):
                end += 1
            row = ids.clone()
            row[place:end] = tokenizer.mask_token_id
            asked += [(number, len(rows), at, int(ids[at])) for at in range(place, end)]
            rows.append(row)
    batch = torch.nn.utils.rnn.pad_sequence(rows, True, tokenizer.pad_token_id)
    with torch.no_grad():
        mask = (batch != tokenizer.pad_token_id).long()
        logits = model(input_ids=batch, attention_mask=mask)["logits"].log_softmax(-1)
    found = [0.0] * len(texts)
    for number, row, place, target in asked:
        found[number] += logits[row, place, target].item()
    return found


# %% 12.4 right: torch.bucketize and bincount
def reliability(confidence, right, bins):
    ends = torch.arange(1, bins + 1).double() / bins
    place = torch.bucketize(confidence, ends).clamp(max=bins - 1)
    count = place.bincount(minlength=bins)
    filled = count > 0
    says = place.bincount(confidence, minlength=bins)[filled] / count[filled]
    share = place.bincount(right.double(), minlength=bins)[filled] / count[filled]
    error = ((says - share).abs() * count[filled]).sum() / len(confidence)
    return float(error), list(zip(says.tolist(), share.tolist(), count[filled].tolist()))


# %% 12.4 right: sorted into a dictionary, in plain Python
def reliability(confidence, right, bins):
    groups = {}
    for says, good in zip(confidence.tolist(), right.tolist()):
        groups.setdefault(math.ceil(says * bins), []).append((says, good))
    table = []
    for _, group in sorted(groups.items()):
        says, good = zip(*group)
        table.append((sum(says) / len(group), sum(good) / len(group), len(group)))
    total = sum(count for *_, count in table)
    return sum(abs(a - b) * count for a, b, count in table) / total, table


# %% 12.4 wrong: bins closed below, open above | a confidence of 1 belongs to the last bin
def reliability(confidence, right, bins):
    error, table = 0.0, []
    for b in range(bins):
        inside = (confidence >= b / bins) & (confidence < (b + 1) / bins)
        if inside.any():
            says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
            table.append((says, share, int(inside.sum())))
            error += abs(says - share) * int(inside.sum()) / len(confidence)
    return error, table


# %% 12.4 wrong: closed below, and 1 pushed into the last bin | bins are closed above
def reliability(confidence, right, bins):
    place = (confidence * bins).long().clamp(max=bins - 1)
    error, table = 0.0, []
    for b in place.unique().tolist():
        inside = place == b
        says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
        table.append((says, share, int(inside.sum())))
        error += abs(says - share) * int(inside.sum()) / len(confidence)
    return error, table


# %% 12.4 wrong: empty bins are averaged | leave it out
def reliability(confidence, right, bins):
    place, error, table = (confidence * bins).ceil().long() - 1, 0.0, []
    for b in range(bins):
        inside = place == b
        says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
        table.append((says, share, int(inside.sum())))
        error += abs(says - share) * int(inside.sum()) / len(confidence)
    return error, table


# %% 12.4 wrong: every bin counts alike | every bin counts alike
def reliability(confidence, right, bins):
    place, table = (confidence * bins).ceil().long(), []
    for b in place.unique().tolist():
        inside = place == b
        says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
        table.append((says, share, int(inside.sum())))
    return sum(abs(a - b) for a, b, _ in table) / len(table), table


# %% 12.4 wrong: the distances keep their signs | cancel
def reliability(confidence, right, bins):
    place, error, table = (confidence * bins).ceil().long(), 0.0, []
    for b in place.unique().tolist():
        inside = place == b
        says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
        table.append((says, share, int(inside.sum())))
        error += (says - share) * int(inside.sum()) / len(confidence)
    return abs(error), table


# %% 12.4 wrong: the distance of single answers | each single answer
def reliability(confidence, right, bins):
    place, table = (confidence * bins).ceil().long(), []
    for b in place.unique().tolist():
        inside = place == b
        says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
        table.append((says, share, int(inside.sum())))
    return (confidence - right.double()).abs().mean().item(), table


# %% 12.4 wrong: a bin's middle for its mean confidence | not its middle
def reliability(confidence, right, bins):
    place, error, table = (confidence * bins).ceil().long(), 0.0, []
    for b in place.unique().tolist():
        inside = place == b
        says, share = (b - 0.5) / bins, right[inside].double().mean().item()
        table.append((says, share, int(inside.sum())))
        error += abs(says - share) * int(inside.sum()) / len(confidence)
    return error, table


# %% 12.4 wrong: bins of equal number, by quantiles | the bins hold 3, 2 and 1
def reliability(confidence, right, bins):
    error, table = 0.0, []
    for inside in confidence.argsort().tensor_split(bins):
        if len(inside):
            says, share = confidence[inside].mean().item(), right[inside].double().mean().item()
            table.append((says, share, len(inside)))
            error += abs(says - share) * len(inside) / len(confidence)
    return error, table


# %% 12.5 right: a series of temperatures
def temperature_of(logits, targets):
    every, trials = torch.arange(len(targets)), [0.2 * 1.02**step for step in range(163)]
    losses = [-(logits / t).log_softmax(-1)[every, targets].mean().item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    fit, judge = rows.remainder(2).eq(0), rows.remainder(2).eq(1)
    T = temperature_of(logits[fit], targets[fit])
    logits, targets, found = logits[judge].double(), targets[judge], []
    for scores in (logits, logits / T):
        best = scores.softmax(-1).max(-1)
        found.append(reliability(best.values, best.indices == targets, BINS))
    return T, found[0], found[1]


# %% 12.5 right: by gradient, of the logarithm of the temperature
def temperature_of(logits, targets):
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_t], max_iter=60, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits.double() / log_t.exp(), targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    return log_t.exp().item()


def mend(logits, targets, rows):
    sides = [torch.nonzero(rows % 2 == side)[:, 0] for side in (0, 1)]
    T = temperature_of(logits[sides[0]], targets[sides[0]])
    its = logits[sides[1]].double()
    right = its.argmax(-1) == targets[sides[1]]
    before = reliability(its.softmax(-1).amax(-1), right, BINS)
    return T, before, reliability((its / T).softmax(-1).amax(-1), right, BINS)


# %% 12.5 wrong: the factor, not the temperature | it divides
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits * t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    return None


# %% 12.5 wrong: probabilities are divided | before softmax
def temperature_of(logits, targets):
    trials, every = [0.2 * 1.02**step for step in range(163)], torch.arange(len(targets))
    losses = [-(logits.softmax(-1) / t).log()[every, targets].mean().item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    return None


# %% 12.5 wrong: searched above 1 only | look below 1, too
def temperature_of(logits, targets):
    trials = [1.02**step for step in range(82)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    return None


# %% 12.5 wrong: fitted on all questions | was fitted on all questions
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    T, found = temperature_of(logits, targets), []
    for divisor in (1, T):
        best = (logits[rows % 2 == 1] / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets[rows % 2 == 1], BINS))
    return T, *found


# %% 12.5 wrong: the halves are swapped | they judge, the even ones fit
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    fit = rows % 2 == 1
    T, found = temperature_of(logits[fit], targets[fit]), []
    for divisor in (1, T):
        best = (logits[~fit] / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets[~fit], BINS))
    return T, *found


# %% 12.5 wrong: every second question, not row | not every second row
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    T, found = temperature_of(logits[::2], targets[::2]), []
    for divisor in (1, T):
        best = (logits[1::2] / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets[1::2], BINS))
    return T, *found


# %% 12.5 wrong: judged on the rows that fitted it | judged on the even rows
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    logits, targets = logits[rows % 2 == 0], targets[rows % 2 == 0]
    T, found = temperature_of(logits, targets), []
    for divisor in (1, T):
        best = (logits / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets, BINS))
    return T, *found


# %% 12.5 wrong: judged twice with the logits as they came | after is the same as before
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    fit = rows % 2 == 0
    best = logits[~fit].double().softmax(-1).max(-1)
    found = reliability(best[0], best[1] == targets[~fit], BINS)
    return temperature_of(logits[fit], targets[fit]), found, found


# %% 12.5 wrong: the mean confidence is made equal to the share right | not the calibration error
def temperature_of(logits, targets):
    right = (logits.argmax(-1) == targets).double().mean()
    trials = [0.2 * 1.01**step for step in range(325)]
    far = [((logits / t).softmax(-1).amax(-1).mean() - right).abs().item() for t in trials]
    return trials[far.index(min(far))]


def mend(logits, targets, rows):
    fit = rows % 2 == 0
    T, found = temperature_of(logits[fit], targets[fit]), []
    for divisor in (1, T):
        best = (logits[~fit] / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets[~fit], BINS))
    return T, *found


# %% 12.5 wrong: coarse steps | in steps of 2%
def temperature_of(logits, targets):
    trials = [0.25 * step for step in range(1, 21)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    fit = rows % 2 == 0
    T, found = temperature_of(logits[fit], targets[fit]), []
    for divisor in (1, T):
        best = (logits[~fit] / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets[~fit], BINS))
    return T, *found


# %% 12.5 wrong: after is judged on all questions | of odd rows are judged
def temperature_of(logits, targets):
    trials = [0.2 * 1.02**step for step in range(163)]
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    fit = rows % 2 == 0
    T, found = temperature_of(logits[fit], targets[fit]), []
    for divisor in (1, T):
        best = (logits / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets, BINS))
    return T, *found


# %% 12.5 wrong: a tensor is returned | a float is needed
def temperature_of(logits, targets):
    trials = torch.tensor([0.2 * 1.02**step for step in range(163)])
    losses = [torch.nn.functional.cross_entropy(logits / t, targets).item() for t in trials]
    return trials[losses.index(min(losses))]


def mend(logits, targets, rows):
    return None


# %% 12.5 wrong: the calibration error is made smallest | not the calibration error
def temperature_of(logits, targets):
    def error_at(t):
        best = (logits.double() / t).softmax(-1).max(-1)
        return reliability(best[0], best[1] == targets, BINS)[0]

    trials = [0.2 * 1.02**step for step in range(163)]
    return min(trials, key=error_at)


def mend(logits, targets, rows):
    fit = rows % 2 == 0
    T, found = temperature_of(logits[fit], targets[fit]), []
    for divisor in (1, T):
        best = (logits[~fit] / divisor).softmax(-1).max(-1)
        found.append(reliability(best[0].double(), best[1] == targets[~fit], BINS))
    return T, *found
