# %% 03.1 right: clones, written to by index
def hide(input_ids, chosen):
    special = sum(input_ids == token for token in SPECIAL_IDS.tolist()).bool()
    labels, masked = input_ids.clone(), input_ids.clone()
    where = torch.logical_and(chosen, torch.logical_not(special))
    masked[where] = MASK_ID
    labels[torch.logical_not(where)] = IGNORE
    return masked, labels


# %% 03.1 right: torch.where, the choice corrected token by token
def hide(input_ids, chosen):
    special = set(SPECIAL_IDS.tolist())
    plain = [[token not in special for token in row] for row in input_ids.tolist()]
    asked = chosen & torch.tensor(plain)
    return torch.where(asked, MASK_ID, input_ids), torch.where(asked, input_ids, -100)


# %% 03.1 wrong: labels are taken after hiding | labels hold [MASK]
def hide(input_ids, chosen):
    asked = chosen & ~torch.isin(input_ids, SPECIAL_IDS)
    masked = input_ids.masked_fill(asked, MASK_ID)
    labels = masked.clone()
    labels[~asked] = IGNORE
    return masked, labels


# %% 03.1 wrong: an alias in place of a clone | the ids that came in were changed
def hide(input_ids, chosen):
    asked = chosen & ~torch.isin(input_ids, SPECIAL_IDS)
    labels = input_ids.masked_fill(~asked, IGNORE)
    masked = input_ids
    masked[asked] = MASK_ID
    return masked, labels


# %% 03.1 wrong: careless choices are believed | a special token is never asked
def hide(input_ids, chosen):
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, IGNORE)


# %% 03.1 wrong: only the labels are corrected | [CLS] was hidden
def hide(input_ids, chosen):
    asked = chosen & ~torch.isin(input_ids, SPECIAL_IDS)
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~asked, IGNORE)


# %% 03.1 wrong: zero where nothing is asked | the label -100, not 0
def hide(input_ids, chosen):
    asked = chosen & ~torch.isin(input_ids, SPECIAL_IDS)
    return input_ids.masked_fill(asked, MASK_ID), input_ids * asked


# %% 03.1 wrong: every position keeps its label | nobody chose has a label
def hide(input_ids, chosen):
    asked = chosen & ~torch.isin(input_ids, SPECIAL_IDS)
    labels = input_ids.masked_fill(input_ids == PAD_ID, IGNORE)
    return input_ids.masked_fill(asked, MASK_ID), labels


# %% 03.1 wrong: only [CLS] and [SEP] are spared | padding was asked
def hide(input_ids, chosen):
    ends = torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id])
    asked = chosen & ~torch.isin(input_ids, ends)
    return input_ids.masked_fill(asked, MASK_ID), input_ids.masked_fill(~asked, IGNORE)


# %% 03.1 wrong: the first and the last column are spared | [SEP] was asked
def hide(input_ids, chosen):
    asked = chosen & (input_ids != PAD_ID)
    asked[:, 0] = asked[:, -1] = False
    return input_ids.masked_fill(asked, MASK_ID), input_ids.masked_fill(~asked, IGNORE)


# %% 03.1 wrong: the choice itself is corrected | correct a copy of it
def hide(input_ids, chosen):
    chosen &= ~torch.isin(input_ids, SPECIAL_IDS)
    return input_ids.masked_fill(chosen, MASK_ID), input_ids.masked_fill(~chosen, IGNORE)


# %% 03.2 right: each character of a mark asks for its token
def mark(text, spans):
    row = tokenizer(text, return_tensors="pt")
    chosen = torch.zeros(row.input_ids.shape, dtype=torch.bool)
    for first, end in spans:
        for place in range(first, end):
            token = row.char_to_token(place)
            if token is not None:
                chosen[0, token] = True
    return row.input_ids, chosen


# %% 03.2 right: words that touch a mark, and the tokens of the words
def mark(text, spans):
    row = tokenizer(text)
    chosen = []
    for word in row.word_ids():
        begins, ends = (0, 0) if word is None else row.word_to_chars(word)
        chosen.append(any(begins < end and first < ends for first, end in spans))
    return torch.tensor([row.input_ids]), torch.tensor([chosen])


# %% 03.2 wrong: the piece at the first character only | only the first piece was chosen
def mark(text, spans):
    row = tokenizer(text, return_tensors="pt")
    chosen = torch.zeros(row.input_ids.shape, dtype=torch.bool)
    for first, _ in spans:
        chosen[0, row.char_to_token(first)] = True
    return row.input_ids, chosen


# %% 03.2 wrong: the empty range of special tokens passes | chose [CLS] or [SEP]
def mark(text, spans):
    row = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    first, end = row.offset_mapping.unbind(-1)
    chosen = torch.zeros_like(row.input_ids, dtype=torch.bool)
    for left, right in spans:
        chosen |= (first >= left) & (end <= right)
    return row.input_ids, chosen


# %% 03.2 wrong: the ids of the word are looked for anywhere | both were chosen
def mark(text, spans):
    input_ids = tokenizer(text, return_tensors="pt").input_ids
    wanted = [
        token
        for first, end in spans
        for token in tokenizer(text[first:end], add_special_tokens=False).input_ids
    ]
    return input_ids, torch.isin(input_ids, torch.tensor(wanted, dtype=torch.long))


# %% 03.2 wrong: the word is looked up as one token | chose nothing
def mark(text, spans):
    input_ids = tokenizer(text, return_tensors="pt").input_ids
    chosen = torch.zeros_like(input_ids, dtype=torch.bool)
    for first, end in spans:
        token = tokenizer.convert_tokens_to_ids(text[first:end].lower())
        if token != tokenizer.unk_token_id:
            chosen |= input_ids == token
    return input_ids, chosen


# %% 03.2 wrong: ranges that only touch pass, too | neighbours of the mark
def mark(text, spans):
    row = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    first, end = row.offset_mapping.unbind(-1)
    chosen = torch.zeros_like(row.input_ids, dtype=torch.bool)
    for left, right in spans:
        chosen |= (first <= right + 1) & (left - 1 <= end) & (end > 0)
    return row.input_ids, chosen


# %% 03.2 wrong: the first place of the word in the text | look for the place, not for the word
def mark(text, spans):
    row = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    first, end = row.offset_mapping.unbind(-1)
    chosen = torch.zeros_like(row.input_ids, dtype=torch.bool)
    for left, right in spans:
        size = right - left
        left = text.index(text[left:right])
        chosen |= (first < left + size) & (left < end)
    return row.input_ids, chosen


# %% 03.2 wrong: only the last mark counts | each mark of the list counts
def mark(text, spans):
    row = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    first, end = row.offset_mapping.unbind(-1)
    chosen = torch.zeros_like(row.input_ids, dtype=torch.bool)
    for left, right in spans:
        chosen = (first < right) & (left < end)
    return row.input_ids, chosen


# %% 03.2 wrong: one word for each mark | a mark may cover several words
def mark(text, spans):
    row = tokenizer(text, return_tensors="pt")
    chosen = torch.zeros(row.input_ids.shape, dtype=torch.bool)
    for first, _ in spans:
        left, right = row.word_to_tokens(row.char_to_word(first))
        chosen[0, left:right] = True
    return row.input_ids, chosen


# %% 03.2 wrong: no special tokens | [CLS] and [SEP] included
def mark(text, spans):
    row = tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, return_tensors="pt"
    )
    first, end = row.offset_mapping.unbind(-1)
    chosen = torch.zeros_like(row.input_ids, dtype=torch.bool)
    for left, right in spans:
        chosen |= (first < right) & (left < end)
    return row.input_ids, chosen


# %% 03.2 wrong: lists in place of tensors | a tensor of shape (1, T)
def mark(text, spans):
    row = tokenizer(text, return_offsets_mapping=True)
    chosen = [any(a < right and left < b for left, right in spans) for a, b in row.offset_mapping]
    return row.input_ids, chosen


# %% 03.3 right: pad_sequence of torch
def pad(rows):
    from torch.nn.utils.rnn import pad_sequence

    ids, labels = zip(*rows)
    ones = [torch.ones_like(row) for row in ids]
    fields = {"input_ids": (ids, PAD_ID), "attention_mask": (ones, 0), "labels": (labels, -100)}
    return {
        name: pad_sequence(list(field), batch_first=True, padding_value=value)
        for name, (field, value) in fields.items()
    }


# %% 03.3 right: lists, filled up before they become tensors
def pad(rows):
    width = max(len(ids) for ids, _ in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for ids, labels in rows:
        missing = width - len(ids)
        batch["input_ids"].append(ids.tolist() + [PAD_ID] * missing)
        batch["attention_mask"].append([1] * len(ids) + [0] * missing)
        batch["labels"].append(labels.tolist() + [IGNORE] * missing)
    return {name: torch.tensor(field) for name, field in batch.items()}


# %% 03.3 wrong: labels are padded like ids | asks for the token [PAD]
def pad(rows):
    width = max(len(ids) for ids, _ in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for ids, labels in rows:
        fill = ids.new_full((width - len(ids),), PAD_ID)
        batch["input_ids"].append(torch.cat([ids, fill]))
        batch["attention_mask"].append(torch.cat([torch.ones_like(ids), torch.zeros_like(fill)]))
        batch["labels"].append(torch.cat([labels, fill]))
    return {name: torch.stack(field) for name, field in batch.items()}


# %% 03.3 wrong: ids are padded like labels | padding in the ids is [PAD]
def pad(rows):
    width = max(len(ids) for ids, _ in rows)
    ids, labels = torch.full((2, len(rows), width), -100)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for row, (tokens, answers) in enumerate(rows):
        ids[row, : len(tokens)], labels[row, : len(tokens)] = tokens, answers
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


# %% 03.3 wrong: rows are cut to the shortest | rows were cut to the shortest
def pad(rows):
    width = min(len(ids) for ids, _ in rows)
    ids = torch.stack([ids[:width] for ids, _ in rows])
    labels = torch.stack([labels[:width] for _, labels in rows])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


# %% 03.3 wrong: padding at the left | padding stands at the left
def pad(rows):
    width = max(len(ids) for ids, _ in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for ids, labels in rows:
        missing = width - len(ids)
        batch["input_ids"].append([PAD_ID] * missing + ids.tolist())
        batch["attention_mask"].append([0] * missing + [1] * len(ids))
        batch["labels"].append([IGNORE] * missing + labels.tolist())
    return {name: torch.tensor(field) for name, field in batch.items()}


# %% 03.3 wrong: every position is attended to | its rows add up to the lengths
def pad(rows):
    from torch.nn.utils.rnn import pad_sequence

    ids, labels = zip(*rows)
    ids = pad_sequence(list(ids), batch_first=True, padding_value=PAD_ID)
    labels = pad_sequence(list(labels), batch_first=True, padding_value=-100)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


# %% 03.3 wrong: the mask is read from the ids | the mask was read from the ids
def pad(rows):
    from torch.nn.utils.rnn import pad_sequence

    ids, labels = zip(*rows)
    ids = pad_sequence(list(ids), batch_first=True, padding_value=PAD_ID)
    labels = pad_sequence(list(labels), batch_first=True, padding_value=-100)
    return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "labels": labels}


# %% 03.3 wrong: the mask says where the labels are | its rows add up to the lengths
def pad(rows):
    from torch.nn.utils.rnn import pad_sequence

    ids, labels = zip(*rows)
    ids = pad_sequence(list(ids), batch_first=True, padding_value=PAD_ID)
    labels = pad_sequence(list(labels), batch_first=True, padding_value=-100)
    return {"input_ids": ids, "attention_mask": (labels != -100).long(), "labels": labels}


# %% 03.3 wrong: a fixed width | not (2,
def pad(rows):
    shape = len(rows), 64
    ids, labels = torch.full(shape, PAD_ID), torch.full(shape, IGNORE)
    mask = torch.zeros(shape, dtype=torch.long)
    for row, (tokens, answers) in enumerate(rows):
        ids[row, : len(tokens)], labels[row, : len(tokens)] = tokens, answers
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


# %% 03.3 wrong: float tensors, as torch.zeros makes them | must be torch.long
def pad(rows):
    shape = len(rows), max(len(ids) for ids, _ in rows)
    ids, labels = torch.zeros(shape) + PAD_ID, torch.zeros(shape) + IGNORE
    mask = torch.zeros(shape)
    for row, (tokens, answers) in enumerate(rows):
        ids[row, : len(tokens)], labels[row, : len(tokens)] = tokens, answers
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


# %% 03.3 wrong: lists in the dictionary | is no tensor
def pad(rows):
    width = max(len(ids) for ids, _ in rows)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for ids, labels in rows:
        missing = width - len(ids)
        batch["input_ids"].append(ids.tolist() + [PAD_ID] * missing)
        batch["attention_mask"].append([1] * len(ids) + [0] * missing)
        batch["labels"].append(labels.tolist() + [IGNORE] * missing)
    return batch


# %% 03.4 right: a running count gives the slots, scatter the way back
def write(labels, form):
    asked = labels != -100
    rows, columns = asked.nonzero(as_tuple=True)
    slots = asked.cumsum(1)[rows, columns] - 1
    most = int(asked.sum(1).max())
    positions = torch.zeros(len(labels), most, dtype=torch.long)
    ids, weights = positions.clone(), torch.zeros(len(labels), most)
    positions[rows, slots], ids[rows, slots], weights[rows, slots] = columns, labels[asked], 1.0
    return {
        "labels": labels.clone(),
        "minus one": torch.where(asked, labels, -1),
        "positions": (positions, ids, weights),
        "targets": (positions, torch.where(weights > 0, ids, -100)),
    }[form]


def read(fields, form, length):
    if form in ("labels", "minus one"):
        return torch.where(fields < 0, -100, fields)
    if form == "positions":
        positions, ids, weights = fields
        targets = torch.where(weights > 0, ids, -100)
    else:
        positions, targets = fields
    wide = torch.full((len(positions), length + 1), -100)
    where = torch.where(targets == -100, length, positions)
    return wide.scatter(1, where, targets)[:, :length]


# %% 03.4 right: lists of Python
def write(labels, form):
    if form == "labels":
        return labels + 0
    if form == "minus one":
        return torch.tensor([[-1 if x == -100 else x for x in row] for row in labels.tolist()])
    found = [[(t, x) for t, x in enumerate(row) if x != -100] for row in labels.tolist()]
    most = max(map(len, found))
    empty = 0 if form == "positions" else -100
    shape = len(found), most
    positions = torch.tensor([[t for t, _ in r] + [0] * (most - len(r)) for r in found]).long()
    ids = torch.tensor([[x for _, x in r] + [empty] * (most - len(r)) for r in found]).long()
    weights = torch.tensor([[1] * len(r) + [0] * (most - len(r)) for r in found])
    fields = positions.view(shape), ids.view(shape), weights.view(shape)
    return fields if form == "positions" else fields[:2]


def read(fields, form, length):
    if form == "labels":
        return fields + 0
    if form == "minus one":
        return torch.tensor([[-100 if x == -1 else x for x in row] for row in fields.tolist()])
    labels = [[-100] * length for _ in fields[0]]
    for b, (places, ids) in enumerate(zip(fields[0].tolist(), fields[1].tolist())):
        for m, (place, token) in enumerate(zip(places, ids)):
            used = fields[2][b, m] > 0 if form == "positions" else token != -100
            if used:
                labels[b][place] = token
    return torch.tensor(labels).view(len(labels), length)


# %% 03.4 wrong: unused slots are written, too | an unused slot
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    positions = labels.new_zeros(len(labels), int(asked.sum(1).max()))
    ids, weights = positions.clone(), positions.clone()
    for row, found in enumerate(asked):
        places = found.nonzero().flatten()
        positions[row, : len(places)] = places
        ids[row, : len(places)] = labels[row, places]
        weights[row, : len(places)] = 1
    if form == "positions":
        return positions, ids, weights
    return positions, ids.masked_fill(weights == 0, IGNORE)


def read(fields, form, length):
    if form == "labels":
        return fields.clone()
    if form == "minus one":
        return fields.masked_fill(fields == -1, IGNORE)
    labels = torch.full((len(fields[0]), length), IGNORE)
    return labels.scatter(1, fields[0], fields[1])


# %% 03.4 wrong: a slot is in use if its id is not 0 | a label with id 0 is lost
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    positions = labels.new_zeros(len(labels), int(asked.sum(1).max()))
    ids, weights = positions.clone(), positions.clone()
    for row, found in enumerate(asked):
        places = found.nonzero().flatten()
        positions[row, : len(places)] = places
        ids[row, : len(places)] = labels[row, places]
        weights[row, : len(places)] = 1
    if form == "positions":
        return positions, ids, weights
    return positions, ids.masked_fill(weights == 0, IGNORE)


def read(fields, form, length):
    if form == "labels":
        return fields.clone()
    if form == "minus one":
        return fields.masked_fill(fields == -1, IGNORE)
    positions, ids = fields[:2]
    labels = torch.full((len(positions), length), IGNORE)
    row, slot = (ids > 0).nonzero(as_tuple=True)
    labels[row, positions[row, slot]] = ids[row, slot]
    return labels


# %% 03.4 wrong: a slot is in use if its position is not 0 | the label at position 0 is lost
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    positions = labels.new_zeros(len(labels), int(asked.sum(1).max()))
    ids, weights = positions.clone(), positions.clone()
    for row, found in enumerate(asked):
        places = found.nonzero().flatten()
        positions[row, : len(places)] = places
        ids[row, : len(places)] = labels[row, places]
        weights[row, : len(places)] = 1
    if form == "positions":
        return positions, ids, weights
    return positions, ids.masked_fill(weights == 0, IGNORE)


def read(fields, form, length):
    if form == "labels":
        return fields.clone()
    if form == "minus one":
        return fields.masked_fill(fields == -1, IGNORE)
    positions, ids = fields[:2]
    labels = torch.full((len(positions), length), IGNORE)
    row, slot = (positions > 0).nonzero(as_tuple=True)
    labels[row, positions[row, slot]] = ids[row, slot]
    return labels


# %% 03.4 wrong: as many slots as positions | slots a row
def write(labels, form):
    asked = labels != IGNORE
    places = torch.arange(labels.shape[1]).expand(labels.shape)
    return {
        "labels": labels.clone(),
        "minus one": labels.masked_fill(~asked, -1),
        "positions": (places * asked, labels * asked, asked.long()),
        "targets": (places * asked, labels),
    }[form]


def read(fields, form, length):
    if form == "minus one":
        return fields.masked_fill(fields == -1, IGNORE)
    if form == "labels":
        return fields.clone()
    return fields[1] if form == "targets" else fields[1].masked_fill(fields[2] == 0, IGNORE)


# %% 03.4 wrong: -100 stays in the unused slots of positions | belongs to `targets`
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    positions = labels.new_zeros(len(labels), int(asked.sum(1).max()))
    ids, weights = torch.full_like(positions, IGNORE), positions.clone()
    for row, found in enumerate(asked):
        places = found.nonzero().flatten()
        positions[row, : len(places)] = places
        ids[row, : len(places)] = labels[row, places]
        weights[row, : len(places)] = 1
    return (positions, ids, weights) if form == "positions" else (positions, ids)


def read(fields, form, length):
    if form == "labels":
        return fields.clone()
    if form == "minus one":
        return fields.masked_fill(fields == -1, IGNORE)
    positions, ids = fields[:2]
    labels = torch.full((len(positions), length), IGNORE)
    row, slot = (ids != IGNORE).nonzero(as_tuple=True)
    labels[row, positions[row, slot]] = ids[row, slot]
    return labels


# %% 03.4 wrong: zero stays in the unused slots of targets | targets are -100 in unused slots
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    positions = labels.new_zeros(len(labels), int(asked.sum(1).max()))
    ids, weights = positions.clone(), positions.clone()
    for row, found in enumerate(asked):
        places = found.nonzero().flatten()
        positions[row, : len(places)] = places
        ids[row, : len(places)] = labels[row, places]
        weights[row, : len(places)] = 1
    return (positions, ids, weights) if form == "positions" else (positions, ids)


def read(fields, form, length):
    return fields


# %% 03.4 wrong: every row is as full as the first | the fullest row
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    places = asked.nonzero()[:, 1].view(len(labels), -1)
    ids = labels[asked].view(len(labels), -1)
    return (places, ids, torch.ones_like(ids)) if form == "positions" else (places, ids)


def read(fields, form, length):
    return fields


# %% 03.4 wrong: minus one is written into what came in | changed the labels that came in
def write(labels, form):
    if form == "labels":
        return labels
    if form == "minus one":
        labels[labels == IGNORE] = -1
        return labels
    return None


def read(fields, form, length):
    return fields


# %% 03.4 wrong: minus one is read as it is | -1 is left in what was read
def write(labels, form):
    if form == "labels":
        return labels.clone()
    if form == "minus one":
        return labels.masked_fill(labels == IGNORE, -1)
    asked = labels != IGNORE
    positions = labels.new_zeros(len(labels), int(asked.sum(1).max()))
    ids, weights = positions.clone(), positions.clone()
    for row, found in enumerate(asked):
        places = found.nonzero().flatten()
        positions[row, : len(places)] = places
        ids[row, : len(places)] = labels[row, places]
        weights[row, : len(places)] = 1
    if form == "positions":
        return positions, ids, weights
    return positions, ids.masked_fill(weights == 0, IGNORE)


def read(fields, form, length):
    if form in ("labels", "minus one"):
        return fields.clone()
    positions, ids = fields[:2]
    used = fields[2] > 0 if form == "positions" else ids != IGNORE
    labels = torch.full((len(positions), length), IGNORE)
    row, slot = used.nonzero(as_tuple=True)
    labels[row, positions[row, slot]] = ids[row, slot]
    return labels


# %% 03.5 right: a number for each kind, then one look for each
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    number = torch.where(special, 4, 3)
    number[asked] = 1
    number[asked & (input_ids == labels)] = 2
    number[asked & (input_ids == MASK_ID)] = 0
    found = {}
    for place, kind in enumerate(["[MASK]", "random", "kept", "visible", "silent"]):
        where = number == place
        found[kind] = where, float((nll * where).sum() / where.sum().clamp(min=1))
    return found


# %% 03.5 right: position by position
def by_kind(input_ids, labels, nll):
    kinds = ("[MASK]", "random", "kept", "visible", "silent")
    where = {kind: torch.zeros_like(labels, dtype=torch.bool) for kind in kinds}
    losses = {kind: [] for kind in kinds}
    special = set(SPECIAL_IDS.tolist())
    for b in range(len(labels)):
        for t in range(labels.shape[1]):
            token, label = input_ids[b, t].item(), labels[b, t].item()
            if label == -100:
                kind = "silent" if token in special else "visible"
            elif token == MASK_ID:
                kind = "[MASK]"
            else:
                kind = "kept" if token == label else "random"
            where[kind][b, t] = True
            losses[kind].append(nll[b, t].item())
    return {k: (where[k], sum(losses[k]) / max(len(losses[k]), 1)) for k in kinds}


# %% 03.5 wrong: hidden positions are random, too | a hidden position counts as random
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    kinds = {
        "[MASK]": asked & (input_ids == MASK_ID),
        "random": asked & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & ~special,
        "silent": ~asked & special,
    }
    return {k: (w, nll[w].mean().item() if w.any() else 0.0) for k, w in kinds.items()}


# %% 03.5 wrong: every word that is not hidden is visible | kept position carries a label
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    kinds = {
        "[MASK]": asked & hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~special,
        "silent": ~asked & special,
    }
    return {k: (w, nll[w].mean().item() if w.any() else 0.0) for k, w in kinds.items()}


# %% 03.5 wrong: special tokens are visible | counts as visible
def by_kind(input_ids, labels, nll):
    asked, hidden = labels != IGNORE, input_ids == MASK_ID
    kinds = {
        "[MASK]": asked & hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & (input_ids != PAD_ID),
        "silent": ~asked & (input_ids == PAD_ID),
    }
    return {k: (w, nll[w].mean().item() if w.any() else 0.0) for k, w in kinds.items()}


# %% 03.5 wrong: the mean over all positions | divide by the positions of this kind
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    kinds = {
        "[MASK]": asked & hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & ~special,
        "silent": ~asked & special,
    }
    return {k: (w, (nll * w).mean().item()) for k, w in kinds.items()}


# %% 03.5 wrong: the mean over nothing | not nan
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    kinds = {
        "[MASK]": asked & hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & ~special,
        "silent": ~asked & special,
    }
    return {k: (w, nll[w].mean().item()) for k, w in kinds.items()}


# %% 03.5 wrong: [MASK] is looked for without its label | a [MASK] without a label
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    kinds = {
        "[MASK]": hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & ~special,
        "silent": ~asked & special & ~hidden,
    }
    return {k: (w, nll[w].mean().item() if w.any() else 0.0) for k, w in kinds.items()}


# %% 03.5 wrong: kept and visible are one kind | kept: the input shows the very label
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    random = asked & ~hidden & (input_ids != labels)
    kinds = {
        "[MASK]": asked & hidden,
        "random": random,
        "kept": ~hidden & ~random & ~special,
        "visible": ~asked & ~special,
        "silent": ~asked & special,
    }
    return {k: (w, nll[w].mean().item() if w.any() else 0.0) for k, w in kinds.items()}


# %% 03.5 wrong: padding is left out | every position is of exactly one kind
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    kinds = {
        "[MASK]": asked & hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & ~special,
        "silent": ~asked & special & (input_ids != PAD_ID),
    }
    return {k: (w, nll[w].mean().item() if w.any() else 0.0) for k, w in kinds.items()}


# %% 03.5 wrong: only the means | a pair
def by_kind(input_ids, labels, nll):
    asked, special = labels != IGNORE, torch.isin(input_ids, SPECIAL_IDS)
    hidden = input_ids == MASK_ID
    kinds = {
        "[MASK]": asked & hidden,
        "random": asked & ~hidden & (input_ids != labels),
        "kept": asked & (input_ids == labels),
        "visible": ~asked & ~special,
        "silent": ~asked & special,
    }
    return {k: nll[w].mean().item() if w.any() else 0.0 for k, w in kinds.items()}
