# %% 08.1 right: two lines, the lower one counts
def rate_at(step, steps, warmup, highest):
    rise = (step + 1) / (warmup + 1)
    fall = (steps - step) / max(1, steps - warmup)
    return float(highest * max(0.0, min(rise, fall)))


# %% 08.1 right: what is left of the budget, as the library counts it
def rate_at(step, steps, warmup, highest):
    if step >= steps:
        return 0.0
    left = 1 - (step - warmup) / (steps - warmup)
    return highest * left if step >= warmup else highest / (warmup + 1) * (step + 1)


# %% 08.1 wrong: step 0 has rate 0 | so it is wasted
def rate_at(step, steps, warmup, highest):
    if step < warmup:
        return highest * step / warmup
    return highest * max(0.0, (steps - step) / (steps - warmup))


# %% 08.1 wrong: the top is reached one step early | warmup + 1 equal parts
def rate_at(step, steps, warmup, highest):
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * max(0.0, (steps - step) / (steps - warmup))


# %% 08.1 wrong: zero at the last step | the last step has a rate of 0
def rate_at(step, steps, warmup, highest):
    if step < warmup:
        return highest * (step + 1) / (warmup + 1)
    return highest * max(0.0, (steps - 1 - step) / (steps - 1 - warmup))


# %% 08.1 wrong: the fall is measured from step 0 | has the highest rate
def rate_at(step, steps, warmup, highest):
    if step < warmup:
        return highest * (step + 1) / (warmup + 1)
    return highest * max(0.0, 1 - step / steps)


# %% 08.1 wrong: negative after the end | the model would climb
def rate_at(step, steps, warmup, highest):
    if step < warmup:
        return highest * (step + 1) / (warmup + 1)
    return highest * (steps - step) / (steps - warmup)


# %% 08.1 wrong: a share of the warm-up is taken where there is none | divides by zero
def rate_at(step, steps, warmup, highest):
    if step <= warmup:
        part = highest / (warmup + 1)
        return part + (highest - part) * step / warmup
    return highest * max(0.0, (steps - step) / (steps - warmup))


# %% 08.2 right: one long vector
def clip(gradients, max_norm):
    flat = torch.cat([torch.zeros(1)] + [g.flatten() for g in gradients if g is not None])
    norm = torch.linalg.vector_norm(flat).item()
    factor = min(1.0, max_norm / (norm + 1e-12))
    return [g if g is None else g.clone().mul_(factor) for g in gradients], norm


# %% 08.2 right: the norm of the norms, and torch's small constant
def clip(gradients, max_norm):
    norms = torch.tensor([g.norm().item() for g in gradients if g is not None])
    norm = float(norms.norm())
    factor = max_norm / (norm + 1e-6)
    clipped = []
    for g in gradients:
        clipped.append(None if g is None else torch.clone(g) if factor > 1 else factor * g)
    return clipped, norm


# %% 08.2 wrong: each tensor by its own norm | over all tensors
def clip(gradients, max_norm):
    clipped, norms = [], []
    for g in gradients:
        norm = 0.0 if g is None else g.norm().item()
        clipped.append(g * (max_norm / norm) if norm > max_norm else g)
        norms.append(norm)
    return clipped, max(norms)


# %% 08.2 wrong: each number is cut at the limit | the direction has changed
def clip(gradients, max_norm):
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients if g is not None))
    return [None if g is None else g.clamp(-max_norm, max_norm) for g in gradients], norm


# %% 08.2 wrong: small gradients are made larger | clipping never makes them larger
def clip(gradients, max_norm):
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients if g is not None))
    factor = max_norm / norm if norm else 1.0
    return [None if g is None else g * factor for g in gradients], norm


# %% 08.2 wrong: None is not foreseen | None ends in an error
def clip(gradients, max_norm):
    norm = math.sqrt(sum((g**2).sum().item() for g in gradients))
    factor = min(1.0, max_norm / norm) if norm else 1.0
    return [g * factor for g in gradients], norm


# %% 08.2 wrong: the norm after the clipping | the one after the clipping
def clip(gradients, max_norm):
    norm = math.sqrt(sum((g**2).sum().item() for g in gradients if g is not None))
    factor = min(1.0, max_norm / norm) if norm else 1.0
    return [None if g is None else g * factor for g in gradients], norm * factor


# %% 08.2 wrong: divides by a norm of zero | gradients of 0
def clip(gradients, max_norm):
    norm = math.sqrt(sum((g**2).sum().item() for g in gradients if g is not None))
    factor = min(1.0, max_norm / norm)
    return [None if g is None else g * factor for g in gradients], norm


# %% 08.3 right: in place, a dictionary for each weight
def adamw_step(weights, gradients, memory, rate, decay):
    for name, weight in weights.items():
        gradient = gradients.get(name)
        if gradient is None:
            continue
        if name not in memory:
            memory[name] = {
                "n": 0,
                "mean": torch.zeros_like(weight),
                "square": torch.zeros_like(weight),
            }
        mine = memory[name]
        mine["n"] += 1
        mine["mean"].lerp_(gradient, 1 - BETAS[0])
        mine["square"].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        mean = mine["mean"] / (1 - BETAS[0] ** mine["n"])
        root = (mine["square"] / (1 - BETAS[1] ** mine["n"])).sqrt()
        if weight.ndim > 1:
            weight.mul_(1 - rate * decay)
        weight.sub_(rate * mean / (root + EPS))


# %% 08.3 right: both corrections are put into the rate and into EPS
def adamw_step(weights, gradients, memory, rate, decay):
    counts = memory.setdefault("counts", {})
    means, squares = memory.setdefault("means", {}), memory.setdefault("squares", {})
    for name in weights:
        w, g = weights[name], gradients[name]
        if g is not None:
            n = counts[name] = counts.get(name, 0) + 1
            means[name] = BETAS[0] * means.get(name, 0.0) + (1 - BETAS[0]) * g
            squares[name] = BETAS[1] * squares.get(name, 0.0) + (1 - BETAS[1]) * g * g
            root = math.sqrt(1 - BETAS[1] ** n)
            size = rate * root / (1 - BETAS[0] ** n)
            pulled = w - rate * decay * w if len(w.shape) > 1 else w
            w.copy_(pulled - size * means[name] / (squares[name].sqrt() + EPS * root))


# %% 08.3 wrong: no correction of the young means | have to be corrected for it
def adamw_step(weights, gradients, memory, rate, decay):
    for name, w in weights.items():
        g = gradients[name]
        if g is None:
            continue
        mean, square = memory.get(name, (0, 0))
        mean = BETAS[0] * mean + (1 - BETAS[0]) * g
        square = BETAS[1] * square + (1 - BETAS[1]) * g**2
        memory[name] = mean, square
        if w.dim() >= 2:
            w *= 1 - rate * decay
        w -= rate * mean / (square.sqrt() + EPS)


# %% 08.3 wrong: decay added to the gradient | it went through the running means
def adamw_step(weights, gradients, memory, rate, decay):
    for name, w in weights.items():
        g = gradients[name]
        if g is None:
            continue
        if w.dim() >= 2:
            g = g + decay * w
        mean, square, n = memory.get(name, (0, 0, 0))
        mean = BETAS[0] * mean + (1 - BETAS[0]) * g
        square = BETAS[1] * square + (1 - BETAS[1]) * g**2
        n += 1
        memory[name] = mean, square, n
        root = (square / (1 - BETAS[1] ** n)).sqrt()
        w -= rate * mean / (1 - BETAS[0] ** n) / (root + EPS)


# %% 08.3 wrong: everything is decayed | not for biases and gains
def adamw_step(weights, gradients, memory, rate, decay):
    for name, w in weights.items():
        g = gradients[name]
        if g is None:
            continue
        mean, square, n = memory.get(name, (0, 0, 0))
        mean = BETAS[0] * mean + (1 - BETAS[0]) * g
        square = BETAS[1] * square + (1 - BETAS[1]) * g**2
        n += 1
        memory[name] = mean, square, n
        w *= 1 - rate * decay
        root = (square / (1 - BETAS[1] ** n)).sqrt()
        w -= rate * mean / (1 - BETAS[0] ** n) / (root + EPS)


# %% 08.3 wrong: EPS under the root | EPS is added to the root
def adamw_step(weights, gradients, memory, rate, decay):
    for name, w in weights.items():
        g = gradients[name]
        if g is None:
            continue
        mean, square, n = memory.get(name, (0, 0, 0))
        mean = BETAS[0] * mean + (1 - BETAS[0]) * g
        square = BETAS[1] * square + (1 - BETAS[1]) * g**2
        n += 1
        memory[name] = mean, square, n
        if w.dim() >= 2:
            w *= 1 - rate * decay
        root = (square / (1 - BETAS[1] ** n) + EPS).sqrt()
        w -= rate * mean / (1 - BETAS[0] ** n) / root


# %% 08.3 wrong: one count of steps for all weights | with its own count of steps
def adamw_step(weights, gradients, memory, rate, decay):
    n = memory["n"] = memory.get("n", 0) + 1
    for name, w in weights.items():
        g = gradients[name]
        if g is None:
            continue
        mean, square = memory.get(name, (0, 0))
        mean = BETAS[0] * mean + (1 - BETAS[0]) * g
        square = BETAS[1] * square + (1 - BETAS[1]) * g**2
        memory[name] = mean, square
        if w.dim() >= 2:
            w *= 1 - rate * decay
        root = (square / (1 - BETAS[1] ** n)).sqrt()
        w -= rate * mean / (1 - BETAS[0] ** n) / (root + EPS)


# %% 08.3 wrong: nothing is remembered | kept in `memory` from call to call
def adamw_step(weights, gradients, memory, rate, decay):
    for name, w in weights.items():
        g = gradients[name]
        if g is None:
            continue
        if w.dim() >= 2:
            w *= 1 - rate * decay
        w -= rate * g / (g.abs() + EPS)


# %% 08.4 right: the four pairs, listed
def floor(heads, slip, rate):
    pairs = {
        (1, 1): heads * (1 - slip),
        (1, 0): heads * slip,
        (0, 0): (1 - heads) * (1 - slip),
        (0, 1): (1 - heads) * slip,
    }
    total = 0.0
    for (a, b), p in pairs.items():
        if p == 0:
            continue
        first = sum(q for (x, _), q in pairs.items() if x == a)
        second = sum(q for (_, y), q in pairs.items() if y == b)
        hidden_both = -math.log(first) - math.log(second)
        seen = -math.log(p / second) - math.log(p / first)
        total += p * (rate * hidden_both + (1 - rate) * seen) / 2
    return total


# %% 08.4 right: tensors, and what the tellings have in common is taken off
def floor(heads, slip, rate):
    coin = torch.tensor([1 - heads, heads], dtype=torch.double)
    told = torch.tensor([[1 - slip, slip], [slip, 1 - slip]], dtype=torch.double)
    joint = coin[:, None] * told
    entropy = [-torch.xlogy(p, p).sum() for p in (joint.sum(1), joint.sum(0), joint)]
    shared = entropy[0] + entropy[1] - entropy[2]
    return float((entropy[0] + entropy[1]) / 2 - (1 - rate) * shared)


# %% 08.4 wrong: bits | nats use math.log
def floor(heads, slip, rate):
    def entropy(p):
        return -sum(q * math.log2(q) for q in (p, 1 - p) if q > 0)

    shows = heads * (1 - slip) + (1 - heads) * slip
    first, second, extra = entropy(heads), entropy(shows), entropy(slip)
    alone = (first + second) / 2
    return rate * alone + (1 - rate) * (extra + first + extra - second) / 2


# %% 08.4 wrong: the cases in each other's place | the two cases are swapped
def floor(heads, slip, rate):
    def entropy(p):
        return -sum(q * math.log(q) for q in (p, 1 - p) if q > 0)

    shows = heads * (1 - slip) + (1 - heads) * slip
    first, second, extra = entropy(heads), entropy(shows), entropy(slip)
    alone, helped = (first + second) / 2, (extra + extra + first - second) / 2
    return (1 - rate) * alone + rate * helped


# %% 08.4 wrong: the first telling is guessed from the second by slip alone | is not guessed
def floor(heads, slip, rate):
    def entropy(p):
        return -sum(q * math.log(q) for q in (p, 1 - p) if q > 0)

    shows = heads * (1 - slip) + (1 - heads) * slip
    return rate * (entropy(heads) + entropy(shows)) / 2 + (1 - rate) * entropy(slip)


# %% 08.4 wrong: both tellings are as frequent as the coin | its own frequency is not that of the
def floor(heads, slip, rate):
    def entropy(p):
        return -sum(q * math.log(q) for q in (p, 1 - p) if q > 0)

    return rate * entropy(heads) + (1 - rate) * min(entropy(slip), entropy(heads))


# %% 08.4 wrong: the logarithm of zero | what never happens
def floor(heads, slip, rate):
    def entropy(p):
        return -p * math.log(p) - (1 - p) * math.log(1 - p)

    shows = heads * (1 - slip) + (1 - heads) * slip
    first, second, extra = entropy(heads), entropy(shows), entropy(slip)
    helped = (extra + extra + first - second) / 2
    return rate * (first + second) / 2 + (1 - rate) * helped


# %% 08.5 right: clones by hand, copied again when they are given back
def snapshot(run):
    weights = [weight.detach().clone() for weight in run.model.parameters()]
    state = copy.deepcopy(run.optimizer.state_dict())
    dice = run.generator.get_state(), torch.random.get_rng_state()
    return {"weights": weights, "state": state, "dice": dice, "step": run.step}


def restore(run, saved):
    with torch.no_grad():
        for weight, kept in zip(run.model.parameters(), saved["weights"]):
            weight.copy_(kept)
    run.optimizer = torch.optim.AdamW(run.model.parameters(), eps=EPS)
    run.optimizer.load_state_dict(copy.deepcopy(saved["state"]))
    texts, dropout = saved["dice"]
    run.generator.set_state(texts)
    torch.random.set_rng_state(dropout)
    run.step = saved["step"]


# %% 08.5 right: one deep copy of everything when taken, and one when given back
def snapshot(run):
    return copy.deepcopy(
        {
            "states": [run.model.state_dict(), run.optimizer.state_dict()],
            "dice": [run.generator.get_state(), torch.get_rng_state()],
            "step": run.step,
        }
    )


def restore(run, saved):
    saved = copy.deepcopy(saved)
    for part, state in zip((run.model, run.optimizer), saved["states"]):
        part.load_state_dict(state)
    run.generator = torch.Generator()
    run.generator.set_state(saved["dice"][0])
    torch.set_rng_state(saved["dice"][1])
    run.step = saved["step"]


# %% 08.5 wrong: state_dict is not copied | the snapshot went along with the run
def snapshot(run):
    return {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "texts": run.generator.get_state(),
        "dropout": torch.get_rng_state(),
        "step": run.step,
    }


def restore(run, saved):
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.generator.set_state(saved["texts"])
    torch.set_rng_state(saved["dropout"])
    run.step = saved["step"]


# %% 08.5 wrong: the optimizer is left out | running means are not those of the snapshot
def snapshot(run):
    return {
        "model": copy.deepcopy(run.model.state_dict()),
        "texts": run.generator.get_state(),
        "dropout": torch.get_rng_state(),
        "step": run.step,
    }


def restore(run, saved):
    run.model.load_state_dict(saved["model"])
    run.generator.set_state(saved["texts"])
    torch.set_rng_state(saved["dropout"])
    run.step = saved["step"]


# %% 08.5 wrong: the step is left out | its learning rate would be another
def snapshot(run):
    return {
        "model": copy.deepcopy(run.model.state_dict()),
        "optimizer": copy.deepcopy(run.optimizer.state_dict()),
        "texts": run.generator.get_state(),
        "dropout": torch.get_rng_state(),
    }


def restore(run, saved):
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
    run.generator.set_state(saved["texts"])
    torch.set_rng_state(saved["dropout"])


# %% 08.5 wrong: the texts begin anew | the resumed run read other texts
def snapshot(run):
    return {
        "model": copy.deepcopy(run.model.state_dict()),
        "optimizer": copy.deepcopy(run.optimizer.state_dict()),
        "dropout": torch.get_rng_state(),
        "step": run.step,
    }


def restore(run, saved):
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
    torch.set_rng_state(saved["dropout"])
    run.step = saved["step"]


# %% 08.5 wrong: dropout is forgotten | what does dropout draw from
def snapshot(run):
    return {
        "model": copy.deepcopy(run.model.state_dict()),
        "optimizer": copy.deepcopy(run.optimizer.state_dict()),
        "texts": run.generator.get_state(),
        "step": run.step,
    }


def restore(run, saved):
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
    run.generator.set_state(saved["texts"])
    run.step = saved["step"]


# %% 08.5 wrong: the optimizer trains on in the snapshot's tensors | the second restore
def snapshot(run):
    return {
        "model": copy.deepcopy(run.model.state_dict()),
        "optimizer": copy.deepcopy(run.optimizer.state_dict()),
        "texts": run.generator.get_state(),
        "dropout": torch.get_rng_state(),
        "step": run.step,
    }


def restore(run, saved):
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])
    run.generator.set_state(saved["texts"])
    torch.set_rng_state(saved["dropout"])
    run.step = saved["step"]
