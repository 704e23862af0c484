# %% 11.1 right: the sum of the logarithms by hand, and a search in the running sum
def chances(V, first):
    whole = math.log(V + 1) - math.log(first + 1)
    found = [math.log1p(1 / (r + 1)) / whole if r >= first else 0.0 for r in range(V)]
    return torch.tensor(found, dtype=torch.float64)


def draw(V, first, count, generator):
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    return torch.searchsorted(chances(V, first).cumsum(0), u, right=True).clamp(first, V - 1)


# %% 11.1 right: torch.multinomial, from all that is not left out
def chances(V, first):
    edges = torch.arange(first + 1, V + 2, dtype=torch.float64).log()
    tail = edges.diff() / (edges[-1] - edges[0])
    return torch.cat([torch.zeros(first, dtype=torch.float64), tail])


def draw(V, first, count, generator):
    tail = chances(V, first)[first:]
    return first + torch.multinomial(tail, count, replacement=True, generator=generator)


# %% 11.1 wrong: divided by log(V + 1), as if all ranks could be drawn | must go to the others
def chances(V, first):
    ranks = torch.arange(V).double()
    weights = torch.log((ranks + 2) / (ranks + 1)) / math.log(V + 1)
    return torch.where(ranks < first, 0, weights)


def draw(V, first, count, generator):
    weights = chances(V, first)
    return torch.multinomial(weights, count, replacement=True, generator=generator)


# %% 11.1 wrong: the ranks are counted anew behind the top | do not count the ranks anew
def chances(V, first):
    ranks = torch.arange(V - first).double()
    tail = torch.log((ranks + 2) / (ranks + 1)) / math.log(V - first + 1)
    return torch.cat([torch.zeros(first).double(), tail])


def draw(V, first, count, generator):
    return torch.multinomial(chances(V, first), count, replacement=True, generator=generator)


# %% 11.1 wrong: what falls into the top is moved to the first rank behind it | moved there
def chances(V, first):
    ranks = torch.arange(V).double()
    weights = torch.where(ranks < first, 0, torch.log((ranks + 2) / (ranks + 1)))
    return weights / weights.sum()


def draw(V, first, count, generator):
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    return ((u * math.log(V + 1)).exp().long() - 1).clamp(first, V - 1)


# %% 11.1 wrong: ranks counted from 1 | counted from 0
def chances(V, first):
    ranks = torch.arange(V).double()
    weights = torch.where(ranks < first, 0, torch.log((ranks + 2) / (ranks + 1)))
    return weights / weights.sum()


def draw(V, first, count, generator):
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    return (math.log(first + 1) + u * math.log((V + 1) / (first + 1))).exp().long()


# %% 11.1 wrong: all ranks of the tail are drawn alike | of the draws, where its chance is
def chances(V, first):
    ranks = torch.arange(V).double()
    weights = torch.where(ranks < first, 0, torch.log((ranks + 2) / (ranks + 1)))
    return weights / weights.sum()


def draw(V, first, count, generator):
    return torch.randint(first, V, (count,), generator=generator)


# %% 11.1 wrong: drawn without the generator | use the generator that is given
def chances(V, first):
    ranks = torch.arange(V).double()
    weights = torch.where(ranks < first, 0, torch.log((ranks + 2) / (ranks + 1)))
    return weights / weights.sum()


def draw(V, first, count, generator):
    return torch.multinomial(chances(V, first), count, replacement=True)


# %% 11.2 right: try by try
def among(chances, tries):
    return -(tries * (-chances).log1p()).expm1()


def tries_for(chances, S):
    n = S
    while float(among(chances, n).sum()) + 1e-9 < S:
        n += 1
    return n


# %% 11.2 right: by recursion on the chance that a song still lacks, and a doubling of steps
def among(chances, tries):
    here, there = torch.zeros_like(chances), chances
    while tries:
        if tries % 2:
            here = here + there - here * there
        there = 2 * there - there * there
        tries //= 2
    return here


def tries_for(chances, S):
    n, step = 0, 1
    while among(chances, n + step).sum() < S - 1e-9:
        step *= 2
    while step:
        if among(chances, n + step).sum() < S - 1e-9:
            n += step
        step //= 2
    return n + 1


# %% 11.2 wrong: the expected number of draws | not the chance to be there
def among(chances, tries):
    return tries * chances


def tries_for(chances, S):
    return S


# %% 11.2 wrong: the chance to be absent | absent both times
def among(chances, tries):
    return (1 - chances) ** tries


def tries_for(chances, S):
    n = S
    while among(chances, n).sum() > len(chances) - S:
        n += 1
    return n


# %% 11.2 wrong: the formula as it stands | has lost its digits
def among(chances, tries):
    return 1 - (1 - chances) ** tries


def tries_for(chances, S):
    n = S
    while among(chances, n).sum() < S - 1e-9:
        n += 1
    return n


# %% 11.2 wrong: as many tries as songs, as if none came twice | two tries are not enough
def among(chances, tries):
    return -torch.expm1(tries * torch.log1p(-chances))


def tries_for(chances, S):
    return S


# %% 11.2 wrong: one try more than is needed | the smallest number that reaches them
def among(chances, tries):
    return -torch.expm1(tries * torch.log1p(-chances))


def tries_for(chances, S):
    n = S
    while among(chances, n).sum() < S - 1e-9:
        n += 1
    return n + 1


# %% 11.2 wrong: the number of tries is doubled until it is enough | more than it takes
def among(chances, tries):
    return -torch.expm1(tries * torch.log1p(-chances))


def tries_for(chances, S):
    n = S if S < 2 else 3
    while among(chances, n).sum() < S - 1e-9:
        n *= 2
    return n


# %% 11.3 right: all scores first, then columns of them
def sampled_loss(x, targets, weight, ranks, tries, order):
    p = torch.log((torch.arange(len(weight)) + 2.0) / (torch.arange(len(weight)) + 1.0)).double()
    p = p / math.log(len(weight) + 1)
    by_id = torch.empty(len(weight))
    by_id[order] = torch.log(1 - (1 - p) ** tries).float()
    scores = x @ weight.T - by_id  # (N, V), by id
    rivals = scores[:, order[ranks]]
    hits = order[ranks].expand(len(x), -1) == targets[:, None].expand(-1, len(ranks))
    rivals = rivals.masked_fill(hits, float("-inf"))
    own = scores.gather(1, targets[:, None])
    return (torch.cat([own, rivals], 1).logsumexp(1) - own[:, 0]).mean()


# %% 11.3 right: row by row, hits left out, the table sorted by rank
def sampled_loss(x, targets, weight, ranks, tries, order):
    rank_of = {song: rank for rank, song in enumerate(order.tolist())}
    ranked, log_there = weight[order], among(chances(len(weight), 0), tries).log()
    losses = []
    for row, target in zip(x, targets.tolist()):
        own = rank_of[target]
        places = torch.tensor([own] + [rank for rank in ranks.tolist() if rank != own])
        scores = ranked[places] @ row - log_there[places].to(row.dtype)
        losses.append(-scores.log_softmax(0)[0])
    return torch.stack(losses).mean()


# %% 11.3 wrong: no correction | the correction is missing
def sampled_loss(x, targets, weight, ranks, tries, order):
    rivals = order[ranks]
    own, others = (x * weight[targets]).sum(1), x @ weight[rivals].T
    others = others.masked_fill(rivals == targets[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: only rivals are corrected | the target's is not
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    rivals = order[ranks]
    own, others = (x * weight[targets]).sum(1), x @ weight[rivals].T - log_there[ranks]
    others = others.masked_fill(rivals == targets[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: the correction is added | taken FROM the score
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    rivals = order[ranks]
    own = (x * weight[targets]).sum(1) + log_there[order.argsort()[targets]]
    others = x @ weight[rivals].T + log_there[ranks]
    others = others.masked_fill(rivals == targets[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: the target's chance by its id | find its rank
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    rivals = order[ranks]
    own = (x * weight[targets]).sum(1) - log_there[targets]
    others = x @ weight[rivals].T - log_there[ranks]
    others = others.masked_fill(rivals == targets[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: hits are left in | is a hit and is taken out
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    own = (x * weight[targets]).sum(1) - log_there[order.argsort()[targets]]
    others = x @ weight[order[ranks]].T - log_there[ranks]
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: ranks compared with ids | comparing ids with ids
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    own = (x * weight[targets]).sum(1) - log_there[order.argsort()[targets]]
    others = x @ weight[order[ranks]].T - log_there[ranks]
    others = others.masked_fill(ranks == targets[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: a rival that is a target somewhere is taken out of all rows | the second row only
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    rivals = order[ranks]
    own = (x * weight[targets]).sum(1) - log_there[order.argsort()[targets]]
    others = x @ weight[rivals].T - log_there[ranks]
    others = others.masked_fill(torch.isin(rivals, targets), -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: the rivals' rows are taken by rank | rows of the table taken by id
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    own = (x * weight[targets]).sum(1) - log_there[order.argsort()[targets]]
    others = x @ weight[ranks].T - log_there[ranks]
    others = others.masked_fill(order[ranks] == targets[:, None], -math.inf)
    return F.cross_entropy(torch.cat([own[:, None], others], 1), torch.zeros_like(targets))


# %% 11.3 wrong: summed, as the library does | the losses are summed
def sampled_loss(x, targets, weight, ranks, tries, order):
    log_there = among(chances(len(weight), 0), tries).log().float()
    rivals = order[ranks]
    own = (x * weight[targets]).sum(1) - log_there[order.argsort()[targets]]
    others = x @ weight[rivals].T - log_there[ranks]
    others = others.masked_fill(rivals == targets[:, None], -math.inf)
    scores = torch.cat([own[:, None], others], 1)
    return F.cross_entropy(scores, torch.zeros_like(targets), reduction="sum")


# %% 11.4 right: rows as a set, without any gradient
def against_full(x, targets, weight, order, sizes, rounds):
    losses, rows = [], []
    for S in sizes:
        draws = [log_uniform_sample(len(weight), S) for _ in range(rounds)]
        nats = [sampled_loss(x, targets, weight, *some, order).item() for some in draws]
        touched = [
            len(set(targets.tolist()) | set(order[ranks].tolist())) for ranks, tries in draws
        ]
        losses.append(sum(nats) / rounds)
        rows.append(sum(touched) / rounds)
    return losses, rows


# %% 11.4 right: torch.autograd.grad, rounds outside
def against_full(x, targets, weight, order, sizes, rounds):
    table = weight.detach().clone().requires_grad_()
    found = torch.zeros(2, len(sizes), dtype=torch.float64)
    for _ in range(rounds):
        for place, S in enumerate(sizes):
            loss = sampled_loss(x, targets, table, *log_uniform_sample(len(weight), S), order)
            (gradient,) = torch.autograd.grad(loss, table)
            found[0, place] += loss.item() / rounds
            found[1, place] += len(gradient.abs().sum(1).nonzero()) / rounds
    return found[0].tolist(), found[1].tolist()


# %% 11.4 wrong: gradients of all rounds add up | of earlier rounds remain
def against_full(x, targets, weight, order, sizes, rounds):
    losses, rows = [], []
    for S in sizes:
        table, nats, touched = weight.clone().requires_grad_(), 0, 0
        for _ in range(rounds):
            loss = sampled_loss(x, targets, table, *log_uniform_sample(len(table), S), order)
            loss.backward()
            nats += loss.item()
            touched += (table.grad != 0).any(1).sum().item()
        losses.append(nats / rounds)
        rows.append(touched / rounds)
    return losses, rows


# %% 11.4 wrong: single numbers are counted | not single numbers
def against_full(x, targets, weight, order, sizes, rounds):
    losses, rows = [], []
    for S in sizes:
        nats = touched = 0
        for _ in range(rounds):
            table = weight.clone().requires_grad_()
            loss = sampled_loss(x, targets, table, *log_uniform_sample(len(table), S), order)
            loss.backward()
            nats += loss.item()
            touched += (table.grad != 0).sum().item()
        losses.append(nats / rounds)
        rows.append(touched / rounds)
    return losses, rows


# %% 11.4 wrong: the targets' rows are forgotten | only the rivals' rows
def against_full(x, targets, weight, order, sizes, rounds):
    losses = []
    for S in sizes:
        draws = [log_uniform_sample(len(weight), S) for _ in range(rounds)]
        nats = [sampled_loss(x, targets, weight, *some, order).item() for some in draws]
        losses.append(sum(nats) / rounds)
    return losses, [float(S) for S in sizes]


# %% 11.4 wrong: targets and rivals are added, though some are both | has one row, not two
def against_full(x, targets, weight, order, sizes, rounds):
    losses, rows = [], []
    for S in sizes:
        draws = [log_uniform_sample(len(weight), S) for _ in range(rounds)]
        nats = [sampled_loss(x, targets, weight, *some, order).item() for some in draws]
        losses.append(sum(nats) / rounds)
        rows.append(min(len(targets.unique()) + S, len(weight)))
    return losses, rows


# %% 11.4 wrong: a seed in each round | the same draws
def against_full(x, targets, weight, order, sizes, rounds):
    losses, rows = [], []
    for S in sizes:
        nats = touched = 0
        for _ in range(rounds):
            torch.manual_seed(0)
            table = weight.clone().requires_grad_()
            loss = sampled_loss(x, targets, table, *log_uniform_sample(len(table), S), order)
            loss.backward()
            nats += loss.item()
            touched += (table.grad != 0).any(1).sum().item()
        losses.append(nats / rounds)
        rows.append(touched / rounds)
    return losses, rows


# %% 11.4 wrong: every round's numbers in the lists | the mean over its rounds
def against_full(x, targets, weight, order, sizes, rounds):
    losses, rows = [], []
    for S in sizes:
        for _ in range(rounds):
            table = weight.clone().requires_grad_()
            loss = sampled_loss(x, targets, table, *log_uniform_sample(len(table), S), order)
            loss.backward()
            losses.append(loss.item())
            rows.append((table.grad != 0).any(1).sum().item())
    return losses, rows
