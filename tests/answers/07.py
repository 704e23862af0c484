# %% 07.1 right: full tables first, filled row by row
def batch_of(rows):
    T = max(len(row) for row in rows)
    M = max(row.count(MASK_ID) for row in rows)
    ids = torch.full((len(rows), T), PAD_ID)
    places = torch.full((len(rows), M), -1)
    for n, row in enumerate(rows):
        ids[n, : len(row)] = torch.tensor(row)
        blanks = [i for i, token in enumerate(row) if token == MASK_ID]
        places[n, : len(blanks)] = torch.tensor(blanks, dtype=torch.long)
    mask = (torch.arange(T) < torch.tensor([len(row) for row in rows])[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "mask_positions": places}


# %% 07.1 right: zip_longest, and the tokenizer's padding for ids and mask
def batch_of(rows):
    padded = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    blanks = [[i for i in range(len(row)) if row[i] == MASK_ID] for row in rows]
    columns = list(itertools.zip_longest(*blanks, fillvalue=-1))
    return {
        "input_ids": padded["input_ids"],
        "attention_mask": padded["attention_mask"],
        "mask_positions": torch.tensor(columns).T,
    }


# %% 07.1 wrong: positions are filled with 0 | a slot without a question holds -1
def batch_of(rows):
    pad = nn.utils.rnn.pad_sequence
    rows = [torch.tensor(row) for row in rows]
    ids = pad(rows, batch_first=True, padding_value=PAD_ID)
    places = pad([(row == MASK_ID).nonzero()[:, 0] for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "mask_positions": places}


# %% 07.1 wrong: every place counts as a token | padding is 0 in attention_mask
def batch_of(rows):
    pad = nn.utils.rnn.pad_sequence
    rows = [torch.tensor(row) for row in rows]
    ids = pad(rows, batch_first=True, padding_value=PAD_ID)
    blanks = [(row == MASK_ID).nonzero()[:, 0] for row in rows]
    places = pad(blanks, batch_first=True, padding_value=-1)
    mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask, "mask_positions": places}


# %% 07.1 wrong: attention_mask leaves the blanks out | the blank is a token, too
def batch_of(rows):
    pad = nn.utils.rnn.pad_sequence
    rows = [torch.tensor(row) for row in rows]
    ids = pad(rows, batch_first=True, padding_value=PAD_ID)
    blanks = [(row == MASK_ID).nonzero()[:, 0] for row in rows]
    places = pad(blanks, batch_first=True, padding_value=-1)
    mask = ((ids != PAD_ID) & (ids != MASK_ID)).long()
    return {"input_ids": ids, "attention_mask": mask, "mask_positions": places}


# %% 07.1 wrong: padding stands in front | its tokens come first
def batch_of(rows):
    pad = nn.utils.rnn.pad_sequence
    T = max(map(len, rows))
    ids = torch.tensor([[PAD_ID] * (T - len(row)) + row for row in rows])
    blanks = [(row == MASK_ID).nonzero()[:, 0] for row in ids]
    places = pad(blanks, batch_first=True, padding_value=-1)
    return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "mask_positions": places}


# %% 07.1 wrong: only the first blank of each line | has most blanks, three
def batch_of(rows):
    pad = nn.utils.rnn.pad_sequence
    ids = pad([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD_ID)
    places = [[row.index(MASK_ID)] if MASK_ID in row else [-1] for row in rows]
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD_ID).long(),
        "mask_positions": torch.tensor(places),
    }


# %% 07.2 right: all other words are made impossible, then topk over the vocabulary
def best_of(logits, candidates, k):
    closed = torch.full_like(logits, float("-inf"))
    closed[:, candidates] = logits[:, candidates]
    best = closed.softmax(-1).topk(min(k, len(candidates)), dim=-1)
    return best.indices, best.values


# %% 07.2 right: probabilities of all words, divided by the candidates' sum, and a sort
def best_of(logits, candidates, k):
    shares = logits.softmax(-1)[:, candidates]
    shares = shares / shares.sum(-1, keepdim=True)
    shares, order = shares.sort(dim=-1, descending=True)
    return torch.tensor(candidates)[order][:, :k], shares[:, :k]


# %% 07.2 wrong: places in the list instead of ids | places in the list of candidates
def best_of(logits, candidates, k):
    best = logits[:, candidates].softmax(-1).topk(min(k, len(candidates)))
    return best.indices, best.values


# %% 07.2 wrong: shares of the whole vocabulary | all candidates together have only
def best_of(logits, candidates, k):
    best = logits.softmax(-1)[:, candidates].topk(min(k, len(candidates)))
    return torch.tensor(candidates)[best.indices], best.values


# %% 07.2 wrong: top k of all words, candidates not looked at | which is not a candidate
def best_of(logits, candidates, k):
    best = logits.softmax(-1).topk(k)
    return best.indices, best.values


# %% 07.2 wrong: the sum to 1 runs over the k best | not over the k best
def best_of(logits, candidates, k):
    best = logits[:, candidates].topk(min(k, len(candidates)))
    return torch.tensor(candidates)[best.indices], best.values.softmax(-1)


# %% 07.2 wrong: k is not limited by the candidates | return both, and do not ask for five
def best_of(logits, candidates, k):
    best = logits[:, candidates].softmax(-1).topk(k)
    return torch.tensor(candidates)[best.indices], best.values


# %% 07.2 wrong: in the order of the list | best first, whatever their order
def best_of(logits, candidates, k):
    shares = logits[:, candidates].softmax(-1)
    ids = torch.tensor(candidates).expand(len(logits), -1)
    return ids[:, :k], shares[:, :k]


# %% 07.3 right: sets of names, then a list for each of ours
def moved(theirs, table, ours):
    faults = [name for name in theirs if name not in table or table[name] not in ours]
    result = {}
    for name, target in ours.items():
        sources = [theirs[old] for old in theirs if table.get(old) == name]
        if (
            not sources
            or any(source.shape != target.shape for source in sources)
            or any(not torch.equal(source, sources[0]) for source in sources)
        ):
            faults.append(name)
            continue
        result[name] = torch.empty_like(sources[0]).copy_(sources[0])
    if faults:
        raise ValueError(f"does not fit: {sorted(faults)}")
    return result


# %% 07.3 right: four passes, one for each kind of fault
def moved(theirs, table, ours):
    unexpected = {name for name in theirs if table.get(name) not in ours}
    renamed = {}
    for name in sorted(set(theirs) - unexpected):
        renamed.setdefault(table[name], []).append(theirs[name].detach().clone())
    missing = set(ours) - set(renamed)
    wrong = {n for n, ts in renamed.items() if any(t.shape != ours[n].shape for t in ts)}
    apart = {n for n, ts in renamed.items() if not all(torch.equal(t, ts[0]) for t in ts)}
    if unexpected or missing or wrong or apart:
        raise ValueError(f"{unexpected=} {missing=} {wrong=} {apart=}")
    return {name: tensors[0] for name, tensors in renamed.items()}


# %% 07.3 wrong: what is not in the table is skipped | was taken or dropped
def moved(theirs, table, ours):
    found = {table[name]: tensor.clone() for name, tensor in theirs.items() if name in table}
    faults = [name for name in ours if name not in found or found[name].shape != ours[name].shape]
    if faults:
        raise ValueError(str(faults))
    return found


# %% 07.3 wrong: nobody looks for what is missing | it is missing
def moved(theirs, table, ours):
    found = {}
    for name, tensor in theirs.items():
        if table.get(name) not in ours or tensor.shape != ours[table[name]].shape:
            raise ValueError(f"{name} {table.get(name)}")
        found[table[name]] = tensor.clone()
    return found


# %% 07.3 wrong: the second of a tied pair overwrites the first | one was overwritten and lost
def moved(theirs, table, ours):
    found, faults = {}, []
    for name, tensor in theirs.items():
        if table.get(name) not in ours:
            faults.append(name)
            continue
        found[table[name]] = tensor.clone()
    for name, tensor in ours.items():
        if name not in found or found[name].shape != tensor.shape:
            faults.append(name)
    if faults:
        raise ValueError(str(faults))
    return found


# %% 07.3 wrong: two names with one partner are always refused | a checkpoint that fits was refused
def moved(theirs, table, ours):
    found = {}
    for name, tensor in theirs.items():
        partner = table.get(name)
        if partner not in ours or partner in found or tensor.shape != ours[partner].shape:
            raise ValueError(f"{name}, {partner}")
        found[partner] = tensor.clone()
    if set(found) != set(ours):
        raise ValueError(f"missing {set(ours) - set(found)}")
    return found


# %% 07.3 wrong: raises at the first fault | collect all, then raise
def moved(theirs, table, ours):
    found = {}
    for name, tensor in theirs.items():
        partner = table.get(name)
        if partner not in ours:
            raise ValueError(f"unexpected {name}")
        if tensor.shape != ours[partner].shape:
            raise ValueError(f"wrong shape {partner}")
        if partner in found and not torch.equal(found[partner], tensor):
            raise ValueError(f"not tied {partner}")
        found[partner] = tensor.clone()
    for name in ours:
        if name not in found:
            raise ValueError(f"missing {name}")
    return found


# %% 07.3 wrong: the tensors themselves, not copies | the tensors must be copies
def moved(theirs, table, ours):
    found, faults = {}, []
    for name, tensor in theirs.items():
        partner = table.get(name)
        if partner not in ours:
            faults.append(name)
            continue
        if tensor.shape != ours[partner].shape:
            faults.append(partner)
        elif partner in found and not torch.equal(found[partner], tensor):
            faults.append(partner)
        found[partner] = tensor
    faults += [name for name in ours if name not in found]
    if faults:
        raise ValueError(", ".join(faults))
    return found


# %% 07.4 right: the blanks are asked by position
def fill_in_turn(model, input_ids):
    filled, order = input_ids.clone(), []
    places = [i for i, token in enumerate(filled.tolist()) if token == MASK_ID]
    while places:
        answer = model(filled[None], mask_positions=torch.tensor([places]))
        words = answer["logits"][0][:, FIRST_WORD:].softmax(-1)  # (M, V - FIRST_WORD)
        slot, word = divmod(words.argmax().item(), words.shape[1])
        filled[places[slot]] = word + FIRST_WORD
        order.append(places.pop(slot))
    return filled, order


# %% 07.4 right: recursion, probabilities of all tokens with the special ones set to zero
def fill_in_turn(model, input_ids):
    places = (input_ids == MASK_ID).nonzero()[:, 0].tolist()
    if not places:
        return input_ids.clone(), []
    shares = model(input_ids[None])["logits"][0].softmax(-1)
    shares[:, :FIRST_WORD] = 0
    place = max(places, key=lambda i: shares[i].max().item())
    row = input_ids.clone()
    row[place] = shares[place].argmax()
    filled, order = fill_in_turn(model, row)
    return filled, [place, *order]


# %% 07.4 wrong: asked once, filled in order of certainty | have to be asked anew
def fill_in_turn(model, input_ids):
    logits = model(input_ids[None])["logits"][0]
    logits[:, :FIRST_WORD] = -torch.inf
    best = logits.softmax(-1).max(-1)
    places = (input_ids == MASK_ID).nonzero()[:, 0].tolist()
    order = sorted(places, key=lambda place: -best.values[place])
    filled = input_ids.clone()
    filled[order] = best.indices[order]
    return filled, order


# %% 07.4 wrong: from left to right | filled from left to right
def fill_in_turn(model, input_ids):
    filled, order = input_ids.clone(), (input_ids == MASK_ID).nonzero()[:, 0].tolist()
    for place in order:
        filled[place] = model(filled[None])["logits"][0, place, FIRST_WORD:].argmax() + FIRST_WORD
    return filled, order


# %% 07.4 wrong: certainty by the score, not by the probability | scores of two blanks cannot be
def fill_in_turn(model, input_ids):
    filled, order = input_ids.clone(), []
    while (filled == MASK_ID).any():
        best = model(filled[None])["logits"][0][:, FIRST_WORD:].max(-1)
        place = best.values.masked_fill(filled != MASK_ID, -torch.inf).argmax().item()
        filled[place] = best.indices[place] + FIRST_WORD
        order.append(place)
    return filled, order


# %% 07.4 wrong: special tokens may be written | the filling does not end
def fill_in_turn(model, input_ids):
    filled, order = input_ids.clone(), []
    while (filled == MASK_ID).any():
        best = model(filled[None])["logits"][0].softmax(-1).max(-1)
        place = best.values.masked_fill(filled != MASK_ID, -1).argmax().item()
        filled[place] = best.indices[place]
        order.append(place)
    return filled, order


# %% 07.4 wrong: writes into the ids that came in | clone them first
def fill_in_turn(model, input_ids):
    order = []
    while (input_ids == MASK_ID).any():
        shares = model(input_ids[None])["logits"][0].softmax(-1)
        shares[:, :FIRST_WORD] = 0
        shares[input_ids != MASK_ID] = 0
        place, word = divmod(shares.argmax().item(), shares.shape[1])
        input_ids[place] = word
        order.append(place)
    return input_ids, order


# %% 07.5 right: one reading for each set of known places, scored at all that are hidden
def by_known(model, input_ids, places):
    sums, counts = [0.0] * len(places), [0] * len(places)
    for m in range(len(places)):
        for known in itertools.combinations(places, m):
            hidden = [place for place in places if place not in known]
            row = input_ids.clone()
            row[hidden] = MASK_ID
            shares = model(row[None])["logits"][0, hidden].softmax(-1)
            sums[m] += shares.gather(1, input_ids[hidden][:, None]).sum().item()
            counts[m] += len(hidden)
    return [total / count for total, count in zip(sums, counts)]


# %% 07.5 right: positions are asked, known words are bits of a number
def by_known(model, input_ids, places):
    found = {m: [] for m in range(len(places))}
    for place in places:
        others = [p for p in places if p != place]
        for bits in range(2 ** len(others)):
            row = input_ids.clone()
            row[place] = MASK_ID
            for n, other in enumerate(others):
                if not bits >> n & 1:
                    row[other] = MASK_ID
            at = torch.tensor([[place]])
            shares = model(row[None], mask_positions=at)["logits"][0, 0].softmax(-1)
            found[bin(bits).count("1")].append(float(shares[input_ids[place]]))
    return [sum(values) / len(values) for values in found.values()]


# %% 07.5 wrong: m others are hidden instead of known | m others KNOWN, not hidden
def by_known(model, input_ids, places):
    means = []
    for m in range(len(places)):
        found = []
        for place in places:
            others = [other for other in places if other != place]
            for hidden in itertools.combinations(others, m):
                row = input_ids.clone()
                row[[place, *hidden]] = MASK_ID
                shares = model(row[None])["logits"][0, place].softmax(-1)
                found.append(shares[input_ids[place]].item())
        means.append(sum(found) / len(found))
    return means


# %% 07.5 wrong: the word that is asked can be read | is the word that is asked hidden as well
def by_known(model, input_ids, places):
    means = []
    for m in range(len(places)):
        found = []
        for place in places:
            others = [other for other in places if other != place]
            for known in itertools.combinations(others, m):
                row = input_ids.clone()
                row[[other for other in others if other not in known]] = MASK_ID
                shares = model(row[None])["logits"][0, place].softmax(-1)
                found.append(shares[input_ids[place]].item())
        means.append(sum(found) / len(found))
    return means


# %% 07.5 wrong: only the first m others are made known | go over every choice
def by_known(model, input_ids, places):
    means = []
    for m in range(len(places)):
        found = []
        for place in places:
            others = [other for other in places if other != place]
            row = input_ids.clone()
            row[[place, *others[m:]]] = MASK_ID
            shares = model(row[None])["logits"][0, place].softmax(-1)
            found.append(shares[input_ids[place]].item())
        means.append(sum(found) / len(found))
    return means


# %% 07.5 wrong: logarithms of the probabilities | Are these logits, or logarithms
def by_known(model, input_ids, places):
    means = []
    for m in range(len(places)):
        found = []
        for known in itertools.combinations(places, m):
            hidden = [place for place in places if place not in known]
            row = input_ids.clone()
            row[hidden] = MASK_ID
            scores = model(row[None])["logits"][0, hidden].log_softmax(-1)
            found += scores.gather(1, input_ids[hidden][:, None])[:, 0].tolist()
        means.append(sum(found) / len(found))
    return means


# %% 07.5 wrong: only the first place is asked | the mean is that of the probabilities at the places
def by_known(model, input_ids, places):
    place, *others = places
    means = []
    for m in range(len(places)):
        found = []
        for known in itertools.combinations(others, m):
            row = input_ids.clone()
            row[[place, *(other for other in others if other not in known)]] = MASK_ID
            shares = model(row[None])["logits"][0, place].softmax(-1)
            found.append(shares[input_ids[place]].item())
        means.append(sum(found) / len(found))
    return means
