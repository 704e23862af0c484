# %% 09.1 right: sampled numbers, doubles found by a set of keys
def split(texts, share, seed):
    seen, different = set(), []
    for text in texts:
        key = " ".join(text.split()).casefold()
        if key not in seen:
            seen.add(key)
            different.append(text)
    chosen = set(random.Random(seed).sample(range(len(different)), round(share * len(different))))
    learn = [text for number, text in enumerate(different) if number not in chosen]
    return learn, [different[number] for number in sorted(chosen)]


# %% 09.1 right: the list backwards, so that the first spelling overwrites; a permutation of torch
def split(texts, share, seed):
    first = {tuple(text.lower().split()): text for text in reversed(texts)}
    different = list(first.values())
    order = torch.randperm(len(different), generator=torch.Generator().manual_seed(seed)).tolist()
    count = round(share * len(different))
    return [different[n] for n in order[count:]], [different[n] for n in order[:count]]


# %% 09.1 wrong: doubles are not looked for | letter by letter
def split(texts, share, seed):
    mine = random.Random(seed).sample(texts, len(texts))
    count = round(share * len(mine))
    return mine[count:], mine[:count]


# %% 09.1 wrong: only exact doubles are removed | with other blanks
def split(texts, share, seed):
    mine = list(dict.fromkeys(texts))
    random.Random(seed).shuffle(mine)
    count = round(share * len(mine))
    return mine[count:], mine[:count]


# %% 09.1 wrong: white space is made even, capitals are not | typed in capitals
def split(texts, share, seed):
    mine = list({" ".join(text.split()): text for text in reversed(texts)}.values())
    random.Random(seed).shuffle(mine)
    count = round(share * len(mine))
    return mine[count:], mine[:count]


# %% 09.1 wrong: the keys come back | kept as typed
def split(texts, share, seed):
    mine = list(dict.fromkeys(" ".join(text.lower().split()) for text in texts))
    random.Random(seed).shuffle(mine)
    count = round(share * len(mine))
    return mine[count:], mine[:count]


# %% 09.1 wrong: the end of the list is held out | side by side
def split(texts, share, seed):
    first = {}
    for text in texts:
        first.setdefault(" ".join(text.lower().split()), text)
    mine = list(first.values())
    count = len(mine) - round(share * len(mine))
    return mine[:count], mine[count:]


# %% 09.1 wrong: the last spelling is kept | a later one
def split(texts, share, seed):
    mine = list({" ".join(text.lower().split()): text for text in texts}.values())
    random.Random(seed).shuffle(mine)
    count = round(share * len(mine))
    return mine[count:], mine[:count]


# %% 09.2 right: each text is asked alone
def per_text(model, batch):
    modes = [module.training for module in model.modules()]
    model.eval()
    found = []
    with torch.no_grad():
        for row in range(len(batch["labels"])):
            one = {name: part[row : row + 1] for name, part in batch.items()}
            found.append(model(**one)["loss"])
    for module, mode in zip(model.modules(), modes):
        module.training = mode
    return torch.stack(found)


# %% 09.2 right: losses added up by row number, in a copy of the model
@torch.inference_mode()
def per_text(model, batch):
    rows, columns = torch.where(batch["labels"] != -100)
    logits = copy.deepcopy(model).eval()(**batch)["logits"]
    targets = batch["labels"][rows, columns]
    losses = -logits.log_softmax(-1)[torch.arange(len(rows)), targets]
    count = len(batch["labels"])
    sums = torch.zeros(count).index_add(0, rows, losses)
    return sums / torch.bincount(rows, minlength=count)


# %% 09.2 wrong: dropout is left on | dropout is on while you measure
@torch.no_grad()
def per_text(model, batch):
    labels = batch["labels"]
    logits = model(**batch)["logits"]
    losses = torch.zeros(labels.shape)
    losses[labels != -100] = F.cross_entropy(logits, labels[labels != -100], reduction="none")
    return losses.sum(1) / (labels != -100).sum(1)


# %% 09.2 wrong: the model is left in evaluation mode | is left in evaluation mode
@torch.no_grad()
def per_text(model, batch):
    model.eval()
    labels = batch["labels"]
    logits = model(**batch)["logits"]
    losses = torch.zeros(labels.shape)
    losses[labels != -100] = F.cross_entropy(logits, labels[labels != -100], reduction="none")
    return losses.sum(1) / (labels != -100).sum(1)


# %% 09.2 wrong: train() at the end | parts can have modes of their own
@torch.no_grad()
def per_text(model, batch):
    model.eval()
    labels = batch["labels"]
    logits = model(**batch)["logits"]
    losses = torch.zeros(labels.shape)
    losses[labels != -100] = F.cross_entropy(logits, labels[labels != -100], reduction="none")
    model.train()
    return losses.sum(1) / (labels != -100).sum(1)


# %% 09.2 wrong: the mean over the whole row | most positions were not asked
@torch.no_grad()
def per_text(model, batch):
    calm, labels = copy.deepcopy(model).eval(), batch["labels"]
    losses = torch.zeros(labels.shape)
    asked = labels != -100
    losses[asked] = F.cross_entropy(calm(**batch)["logits"], labels[asked], reduction="none")
    return losses.mean(1)


# %% 09.2 wrong: one number for all | one number for each of 3 texts
@torch.no_grad()
def per_text(model, batch):
    return copy.deepcopy(model).eval()(**batch)["loss"]


# %% 09.2 wrong: gradients are kept | keep the graph
def per_text(model, batch):
    calm, labels = copy.deepcopy(model).eval(), batch["labels"]
    losses = torch.zeros(labels.shape)
    asked = labels != -100
    losses[asked] = F.cross_entropy(calm(**batch)["logits"], labels[asked], reduction="none")
    return losses.sum(1) / asked.sum(1)


# %% 09.2 wrong: the attention mask is left out | the padding of short texts
@torch.no_grad()
def per_text(model, batch):
    calm, labels = copy.deepcopy(model).eval(), batch["labels"]
    losses = torch.zeros(labels.shape)
    asked = labels != -100
    logits = calm(batch["input_ids"], labels=labels)["logits"]
    losses[asked] = F.cross_entropy(logits, labels[asked], reduction="none")
    return losses.sum(1) / asked.sum(1)


# %% 09.3 right: by hand with lists
def interval(before, after):
    changes = [b - a for a, b in zip(before.tolist(), after.tolist())]
    count = len(changes)
    mean = sum(changes) / count
    variance = sum((change - mean) ** 2 for change in changes) / (count - 1)
    margin = 1.96 * (variance / count) ** 0.5
    return mean, mean - margin, mean + margin


def verdict(before, after):
    change, low, high = interval(before, after)
    if low <= 0 <= high:
        return "unclear"
    return "fell" if change < 0 else "rose"


# %% 09.3 right: in float64, by the variance
def interval(before, after):
    change = (after.double() - before.double()).mean()
    margin = 1.96 * ((after.double() - before.double()).var() / after.numel()).sqrt()
    return float(change), float(change - margin), float(change + margin)


def verdict(before, after):
    ends = interval(before, after)[1:]
    below, above = max(ends) < 0, min(ends) > 0
    return {(True, False): "fell", (False, True): "rose"}.get((below, above), "unclear")


# %% 09.3 wrong: before minus after | the sign is wrong
def interval(before, after):
    change = (before - after).mean().item()
    margin = 1.96 * (before - after).std().item() / len(before) ** 0.5
    return change, change - margin, change + margin


def verdict(before, after):
    _, low, high = interval(before, after)
    return "fell" if low > 0 else "rose" if high < 0 else "unclear"


# %% 09.3 wrong: two independent samples | treated as two samples
def interval(before, after):
    change = (after.mean() - before.mean()).item()
    margin = 1.96 * ((before.var() + after.var()) / len(before)).sqrt().item()
    return change, change - margin, change + margin


def verdict(before, after):
    _, low, high = interval(before, after)
    return "fell" if high < 0 else "rose" if low > 0 else "unclear"


# %% 09.3 wrong: the root of n is forgotten | how single texts vary
def interval(before, after):
    change = (after - before).mean().item()
    margin = 1.96 * (after - before).std().item()
    return change, change - margin, change + margin


def verdict(before, after):
    _, low, high = interval(before, after)
    return "fell" if high < 0 else "rose" if low > 0 else "unclear"


# %% 09.3 wrong: the verdict looks at the mean alone | holds 0 claims nothing
def interval(before, after):
    change = (after - before).mean().item()
    margin = 1.96 * (after - before).std().item() / len(before) ** 0.5
    return change, change - margin, change + margin


def verdict(before, after):
    return "fell" if interval(before, after)[0] < 0 else "rose"


# %% 09.3 wrong: a rise is never told | lies above 0 rose
def interval(before, after):
    change = (after - before).mean().item()
    margin = 1.96 * (after - before).std().item() / len(before) ** 0.5
    return change, change - margin, change + margin


def verdict(before, after):
    return "fell" if interval(before, after)[2] < 0 else "unclear"


# %% 09.3 wrong: the standard deviation divides by n | divide by n - 1
def interval(before, after):
    change = (after - before).mean().item()
    margin = 1.96 * (after - before).std(correction=0).item() / len(before) ** 0.5
    return change, change - margin, change + margin


def verdict(before, after):
    _, low, high = interval(before, after)
    return "fell" if high < 0 else "rose" if low > 0 else "unclear"


# %% 09.4 right: an optimizer for each part, gradients asked only of what learns
def tune(model, batches, rates):
    model.train()
    optimizers, losses, chosen = [], [], []
    for start, rate in rates.items():
        part = [p for name, p in model.named_parameters() if name.startswith(start + ".")]
        optimizers.append(torch.optim.AdamW(part, lr=rate, weight_decay=0.0))
        chosen += part
    for batch in batches:
        loss = model(**batch)["loss"]
        for weight, gradient in zip(chosen, torch.autograd.grad(loss, chosen)):
            weight.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 right: a group for each parameter, the others frozen and thawed at the end
def tune(model, batches, rates):
    groups = []
    for name, weight in model.named_parameters():
        start = [start for start in rates if name.startswith(start)]
        weight.requires_grad_(bool(start))
        if start:
            groups.append(dict(params=[weight], lr=rates[start[0]], weight_decay=0.0))
    optimizer = torch.optim.AdamW(groups)
    optimizer.zero_grad()
    model.train()
    losses = []
    for batch in batches:
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().item())
    model.requires_grad_(True).eval()
    return losses


# %% 09.4 wrong: one rate for all | both parts moved alike
def tune(model, batches, rates):
    optimizer = torch.optim.AdamW(model.parameters(), lr=max(rates.values()), weight_decay=0.0)
    model.train()
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 wrong: gradients are never cleared | cleared of those before
def tune(model, batches, rates):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if name.startswith(start)], "lr": rate}
        for start, rate in rates.items()
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    model.train()
    losses = []
    for batch in batches:
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 wrong: the head's own parameters, with the tied matrix | although only the head
def tune(model, batches, rates):
    seen, groups = set(), []
    for part, rate in rates.items():
        mine = [p for p in getattr(model, part).parameters() if p not in seen]
        seen.update(mine)
        groups.append({"params": mine, "lr": rate})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    model.train()
    losses = []
    for batch in batches:
        model.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 wrong: weight decay as AdamW has it | weight decay is on
def tune(model, batches, rates):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if name.startswith(start)], "lr": rate}
        for start, rate in rates.items()
    ]
    optimizer = torch.optim.AdamW(groups)
    model.train()
    losses = []
    for batch in batches:
        model.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 wrong: in the mode in which it came | dropout is off during the steps
def tune(model, batches, rates):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if name.startswith(start)], "lr": rate}
        for start, rate in rates.items()
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    losses = []
    for batch in batches:
        model.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 wrong: what is frozen is never thawed | stays frozen in the next
def tune(model, batches, rates):
    groups = []
    for name, weight in model.named_parameters():
        start = name.split(".")[0]
        if start in rates:
            groups.append({"params": [weight], "lr": rates[start]})
        else:
            weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    model.train()
    losses = []
    for batch in batches:
        model.zero_grad()
        loss = model(**batch)["loss"]
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.4 wrong: a new optimizer for each step | one and the same for all steps
def tune(model, batches, rates):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if name.startswith(start)], "lr": rate}
        for start, rate in rates.items()
    ]
    model.train()
    losses = []
    for batch in batches:
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        model.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


# %% 09.5 right: written in place into a copy, tied tensors once
def mix(before, after, share):
    middle, done = copy.deepcopy(before), set()
    late = after.state_dict()
    for name, weight in middle.state_dict().items():
        if weight.is_floating_point() and weight.data_ptr() not in done:
            weight.mul_(1 - share).add_(share * late[name])
            done.add(weight.data_ptr())
    return middle


def weigh(before, after, shares, measure):
    start = measure(before)
    now = [measure(mix(before, after, share)) for share in shares]
    return [(share, start[0] - new, old - start[1]) for share, (new, old) in zip(shares, now)]


# %% 09.5 right: parameters and buffers of a copy of the second model
@torch.no_grad()
def mix(before, after, share):
    middle = copy.deepcopy(after)
    for mine, first in zip(middle.parameters(), before.parameters()):
        mine.copy_((1 - share) * first + share * mine)
    for mine, first in zip(middle.buffers(), before.buffers()):
        if mine.is_floating_point():
            mine.copy_((1 - share) * first + share * mine)
        else:
            mine.copy_(first)
    return middle


def weigh(before, after, shares, measure):
    found = []
    for share in shares:
        (new, old), (new_now, old_now) = measure(before), measure(mix(before, after, share))
        found += [(share, new - new_now, old_now - old)]
    return found


# %% 09.5 wrong: loaded into the first model | `before` was changed
def mix(before, after, share):
    late = after.state_dict()
    before.load_state_dict(
        {
            name: torch.lerp(w, late[name], share) if w.is_floating_point() else w
            for name, w in before.state_dict().items()
        }
    )
    return before


def weigh(before, after, shares, measure):
    new, old = measure(before)
    pairs = [(share, measure(mix(before, after, share))) for share in shares]
    return [(share, new - now[0], now[1] - old) for share, now in pairs]


# %% 09.5 wrong: the share on the wrong side | the wrong side
def mix(before, after, share):
    early, late, middle = before.state_dict(), after.state_dict(), copy.deepcopy(before)
    mixed = {
        name: share * w + (1 - share) * late[name] if w.is_floating_point() else w
        for name, w in early.items()
    }
    middle.load_state_dict(mixed)
    return middle


def weigh(before, after, shares, measure):
    new, old = measure(before)
    pairs = [(share, measure(mix(before, after, share))) for share in shares]
    return [(share, new - now[0], now[1] - old) for share, now in pairs]


# %% 09.5 wrong: in place, the tied matrix twice | mixed twice
def mix(before, after, share):
    middle, late = copy.deepcopy(before), after.state_dict()
    for name, weight in middle.state_dict().items():
        if weight.is_floating_point():
            weight += share * (late[name] - weight)
    return middle


def weigh(before, after, shares, measure):
    new, old = measure(before)
    pairs = [(share, measure(mix(before, after, share))) for share in shares]
    return [(share, new - now[0], now[1] - old) for share, now in pairs]


# %% 09.5 wrong: parameters only | and buffers
@torch.no_grad()
def mix(before, after, share):
    middle = copy.deepcopy(before)
    for mine, other in zip(middle.parameters(), after.parameters()):
        mine.lerp_(other, share)
    return middle


def weigh(before, after, shares, measure):
    new, old = measure(before)
    pairs = [(share, measure(mix(before, after, share))) for share in shares]
    return [(share, new - now[0], now[1] - old) for share, now in pairs]


# %% 09.5 wrong: a dictionary instead of a model | a model is needed
def mix(before, after, share):
    late = after.state_dict()
    return {
        name: torch.lerp(w, late[name], share) if w.is_floating_point() else w
        for name, w in before.state_dict().items()
    }


def weigh(before, after, shares, measure):
    new, old = measure(before)
    pairs = [(share, measure(mix(before, after, share))) for share in shares]
    return [(share, new - now[0], now[1] - old) for share, now in pairs]


# %% 09.5 wrong: gains with the sign of losses | is a gain, above 0
def mix(before, after, share):
    late, middle = after.state_dict(), copy.deepcopy(before)
    mixed = {
        name: torch.lerp(w, late[name], share) if w.is_floating_point() else w
        for name, w in before.state_dict().items()
    }
    middle.load_state_dict(mixed)
    return middle


def weigh(before, after, shares, measure):
    new, old = measure(before)
    pairs = [(share, measure(mix(before, after, share))) for share in shares]
    return [(share, now[0] - new, now[1] - old) for share, now in pairs]
