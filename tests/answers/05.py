# %% 05.1 right: places in the flat list of all states
def gather(hidden, positions):
    B, T, H = hidden.shape
    flat = positions + T * torch.arange(B)[:, None]
    return hidden.reshape(B * T, H).index_select(0, flat.flatten()).view(*positions.shape, H)


# %% 05.1 right: torch.gather along the places
def gather(hidden, positions):
    return hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))


# %% 05.1 right: a product with one-hot rows
def gather(hidden, positions):
    return F.one_hot(positions, hidden.shape[1]).to(hidden) @ hidden


# %% 05.1 wrong: the positions of row 0 for all | all rows were asked where row 0 was
def gather(hidden, positions):
    return hidden[:, positions[0]]


# %% 05.1 wrong: all positions for each row | which row it belongs to
def gather(hidden, positions):
    return hidden[:, positions]


# %% 05.1 wrong: the flat list without an offset | all answers come from row 0
def gather(hidden, positions):
    return hidden.flatten(0, 1)[positions]


# %% 05.1 wrong: one coordinate of each state | a whole hidden state
def gather(hidden, positions):
    return hidden.gather(1, positions[..., None])


# %% 05.1 wrong: an offset of M places a row | what positions say for row b
def gather(hidden, positions):
    offset = positions.shape[1] * torch.arange(len(hidden))[:, None]
    return hidden.flatten(0, 1)[positions + offset]


# %% 05.1 wrong: one list of states for the whole batch | (B, M, H) = (3, 2, 4) is needed
def gather(hidden, positions):
    asked = torch.zeros(hidden.shape[:2], dtype=torch.bool).scatter(1, positions, True)
    return hidden[asked]


# %% 05.1 wrong: a new tensor of numbers | no gradient goes back
def gather(hidden, positions):
    pairs = zip(hidden.tolist(), positions.tolist())
    return torch.tensor([[row[place] for place in places] for row, places in pairs])


# %% 05.1 wrong: positions are sorted first | what positions say for row b
def gather(hidden, positions):
    rows = torch.arange(len(hidden))[:, None]
    return hidden[rows, positions.sort(1).values]


# %% 05.2 right: the normal distribution of torch.special, variance and rsqrt
def gelu(x):
    return x * torch.special.ndtr(x)


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias


# %% 05.2 right: erfc, and a norm of the centred vector
def gelu(x):
    return 0.5 * x * torch.erfc(-x * 0.5**0.5)


def layer_norm(x, weight, bias, eps):
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    squares = torch.linalg.vector_norm(centred, dim=-1, keepdim=True) ** 2
    return torch.addcmul(bias, weight, centred / (squares / x.shape[-1] + eps) ** 0.5)


# %% 05.2 wrong: GELU by tanh | approximation by tanh
def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


# %% 05.2 wrong: erf without the root of two | gelu(-1
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x))


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


# %% 05.2 wrong: ReLU | this is ReLU
def gelu(x):
    return x.clamp(min=0)


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


# %% 05.2 wrong: the variance of a sample | divided by H - 1
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (x.var(-1, keepdim=True) + eps).sqrt() * weight + bias


# %% 05.2 wrong: eps outside the root | added to the variance, under the root
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (x.std(-1, correction=0, keepdim=True) + eps) * weight + bias


# %% 05.2 wrong: no eps at all | Where does eps belong
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / x.std(-1, correction=0, keepdim=True) * weight + bias


# %% 05.2 wrong: the batch is normed, not the vector | centre along the last axis
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    return (x - x.mean(0)) / (x.var(0, correction=0) + eps).sqrt() * weight + bias


# %% 05.2 wrong: divided by the variance, without the root | Is the root taken
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps) * weight + bias


# %% 05.2 wrong: scale and shift are left out | scale and shift are missing
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt()


# %% 05.2 wrong: one scale for the whole batch | Is the root taken, and for each vector by itself
def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean() + eps).sqrt() * weight + bias


# %% 05.3 right: a linear layer whose weight is the embedding's
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        size = token_embedding.embedding_dim
        self.dense, self.norm = nn.Linear(size, size), nn.LayerNorm(size, eps=1e-12)
        self.decoder = nn.Linear(size, token_embedding.num_embeddings)
        self.decoder.weight = token_embedding.weight
        nn.init.zeros_(self.decoder.bias)
        self.bias = self.decoder.bias

    def forward(self, hidden):
        return self.decoder(self.norm(F.gelu(self.dense(hidden))))


# %% 05.3 right: the parameter itself, and einsum
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        self.weight = token_embedding.weight
        V, H = self.weight.shape
        self.bias = nn.Parameter(self.weight.new_zeros(V))
        self.norm = nn.LayerNorm([H], eps=1e-12)
        self.dense = nn.Linear(H, H)

    def forward(self, hidden):
        state = self.norm(gelu(self.dense(hidden)))
        return torch.einsum("...h,vh->...v", state, self.weight) + self.bias


# %% 05.3 wrong: a matrix of its own with the same numbers | tied, there is one
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.weight = nn.Parameter(token_embedding.weight.detach().clone())
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.norm(gelu(self.dense(hidden))) @ self.weight.T + self.bias


# %% 05.3 wrong: a second parameter in the same memory | share their memory
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.weight = nn.Parameter(token_embedding.weight.data)
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.norm(gelu(self.dense(hidden))) @ self.weight.T + self.bias


# %% 05.3 wrong: the transposed matrix as a parameter | share their memory
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.weight = nn.Parameter(token_embedding.weight.T)
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.norm(gelu(self.dense(hidden))) @ self.weight + self.bias


# %% 05.3 wrong: the numbers without their gradient | .data and .detach() cut that path
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        state = self.norm(gelu(self.dense(hidden)))
        return state @ self.token_embedding.weight.data.T + self.bias


# %% 05.3 wrong: a function that goes on using the embedding of the start | the tie came undone
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape

        def score(state):
            return state @ token_embedding.weight.T

        self.score = score
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.score(self.norm(gelu(self.dense(hidden)))) + self.bias


# %% 05.3 wrong: the transpose is kept from the start | Compute it in forward
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.matrix = token_embedding.weight.T
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.norm(gelu(self.dense(hidden))) @ self.matrix + self.bias


# %% 05.3 wrong: one bias for all tokens | one bias for each of the 20 tokens
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        H = token_embedding.embedding_dim
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, hidden):
        state = self.norm(gelu(self.dense(hidden)))
        return state @ self.token_embedding.weight.T + self.bias


# %% 05.3 wrong: the bias is a plain tensor | neither trained nor saved
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = torch.zeros(V)

    def forward(self, hidden):
        state = self.norm(gelu(self.dense(hidden)))
        return state @ self.token_embedding.weight.T + self.bias


# %% 05.3 wrong: the bias is never added | never added to the scores
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.norm(gelu(self.dense(hidden))) @ self.token_embedding.weight.T


# %% 05.3 wrong: no activation | GELU is missing
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        return self.norm(self.dense(hidden)) @ self.token_embedding.weight.T + self.bias


# %% 05.3 wrong: GELU after the norm | GELU comes before the norm
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        state = gelu(self.norm(self.dense(hidden)))
        return state @ self.token_embedding.weight.T + self.bias


# %% 05.3 wrong: PyTorch's eps | BERT's layer norm has 1e-12
class Head(nn.Module):
    def __init__(self, token_embedding):
        super().__init__()
        V, H = token_embedding.weight.shape
        self.token_embedding = token_embedding
        self.dense, self.norm = nn.Linear(H, H), nn.LayerNorm(H)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, hidden):
        state = self.norm(gelu(self.dense(hidden)))
        return state @ self.token_embedding.weight.T + self.bias


# %% 05.4 right: each pair of names is compared by `is`
def ties(model):
    left, groups = list(model.named_parameters(remove_duplicate=False)), []
    while left:
        _, first = left[0]
        group = [name for name, parameter in left if parameter is first]
        left = [(name, parameter) for name, parameter in left if parameter is not first]
        groups += [group] if len(group) > 1 else []
    return groups


# %% 05.4 right: modules are walked by hand, parameters are keys
def ties(model):
    names = {}
    for prefix, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                names.setdefault(parameter, set()).add(f"{prefix}.{name}".lstrip("."))
    return [sorted(group) for group in names.values() if len(group) > 1]


# %% 05.4 right: a state_dict that keeps the parameters
def ties(model):
    state = {name: id(value) for name, value in model.state_dict(keep_vars=True).items()}
    groups = [[name for name in state if state[name] == place] for place in set(state.values())]
    return [group for group in groups if len(group) > 1]


# %% 05.4 wrong: names are listed once | name each only once
def ties(model):
    names = {}
    for name, parameter in model.named_parameters():
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


# %% 05.4 wrong: state_dict's new tensors are compared | state_dict() makes new tensors
def ties(model):
    state = model.state_dict()
    groups = {}
    for name, value in state.items():
        groups.setdefault(id(value), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


# %% 05.4 wrong: equal numbers count as a tie | equal numbers are no tie
def ties(model):
    groups = []
    for name, value in model.state_dict().items():
        for group in groups:
            other = model.state_dict()[group[0]]
            if value.shape == other.shape and torch.equal(value, other):
                group.append(name)
                break
        else:
            groups.append([name])
    return [group for group in groups if len(group) > 1]


# %% 05.4 wrong: matrices with equal numbers count as a tie | a copy was grouped
def ties(model):
    groups = {}
    for name, value in model.state_dict().items():
        if value.dim() == 2:
            groups.setdefault(tuple(value.flatten().tolist()), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


# %% 05.4 wrong: one memory counts as a tie | an optimizer sees two
def ties(model):
    names = {}
    for name, value in model.state_dict().items():
        names.setdefault(value.data_ptr(), []).append(name)
    return [group for group in names.values() if len(group) > 1]


# %% 05.4 wrong: single names are groups, too | leave it out
def ties(model):
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return list(names.values())


# %% 05.4 wrong: pairs instead of groups | one group of three
def ties(model):
    named, pairs = list(model.named_parameters(remove_duplicate=False)), []
    for i, (name, parameter) in enumerate(named):
        for other, second in named[i + 1 :]:
            if parameter is second:
                pairs.append([name, other])
    return pairs


# %% 05.4 wrong: only the second names | leave it out
def ties(model):
    first = {name for name, _ in model.named_parameters()}
    return [[name] for name in model.state_dict() if name not in first]


# %% 05.4 wrong: a flat list of names | a list of groups of names is needed
def ties(model):
    first = {name for name, _ in model.named_parameters()}
    return [name for name in model.state_dict() if name not in first]


# %% 05.5 right: places by nonzero, parts by range, log-probabilities by logsumexp
def held_out_loss(head, hidden, labels, budget):
    batch, place = (labels != -100).nonzero(as_tuple=True)
    rows = max(1, budget // (16 * head.bias.numel()))
    losses = [0.0]
    for start in range(0, len(batch), rows):
        where = batch[start : start + rows], place[start : start + rows]
        with torch.inference_mode():
            logits = head(hidden[where])
            truth = logits.gather(1, labels[where][:, None]).squeeze(1)
            losses.append((logits.logsumexp(-1) - truth).sum().item())
            del logits, truth
    return sum(losses) / max(1, len(batch))


# %% 05.5 right: means of parts, weighted by their size, a position at a time
@torch.no_grad()
def held_out_loss(head, hidden, labels, budget):
    seen, loss = 0, 0.0
    for states, answers in zip(hidden, labels):
        for place in (answers != -100).nonzero().flatten().tolist():
            seen += 1
            here = F.cross_entropy(head(states[place]), answers[place]).item()
            loss += (here - loss) / seen
    return loss


# %% 05.5 wrong: everything is scored, then selected | scored 1024 positions
def held_out_loss(head, hidden, labels, budget):
    asked = labels != -100
    if not asked.any():
        return 0.0
    with torch.no_grad():
        return F.cross_entropy(head(hidden)[asked], labels[asked]).item()


# %% 05.5 wrong: all asked positions at once | Score them in parts
def held_out_loss(head, hidden, labels, budget):
    asked = labels != -100
    if not asked.any():
        return 0.0
    with torch.no_grad():
        return F.cross_entropy(head(hidden[asked]), labels[asked]).item()


# %% 05.5 wrong: in parts, but autograd remembers them | keeps the logits of each part alive
def held_out_loss(head, hidden, labels, budget):
    asked = labels != -100
    states, targets = hidden[asked], labels[asked]
    rows, total = max(1, budget // (16 * len(head.bias))), 0
    for some, theirs in zip(states.split(rows), targets.split(rows)):
        total = total + F.cross_entropy(head(some), theirs, reduction="sum")
    return float(total) / max(1, len(targets))


# %% 05.5 wrong: all logits are kept in a list | a list or autograd
def held_out_loss(head, hidden, labels, budget):
    asked = labels != -100
    states, targets = hidden[asked], labels[asked]
    rows = max(1, budget // (16 * len(head.bias)))
    if not len(targets):
        return 0.0
    with torch.no_grad():
        logits = [head(some) for some in states.split(rows)]
        return F.cross_entropy(torch.cat(logits), targets).item()


# %% 05.5 wrong: the parts' means are averaged | Are parts of unequal size averaged
def held_out_loss(head, hidden, labels, budget):
    asked = labels != -100
    states, targets = hidden[asked], labels[asked]
    rows, means = max(1, budget // (16 * len(head.bias))), []
    with torch.no_grad():
        for some, theirs in zip(states.split(rows), targets.split(rows)):
            means.append(F.cross_entropy(head(some), theirs).item())
    return sum(means) / max(1, len(means))


# %% 05.5 wrong: the last part is lost | is a last part lost
def held_out_loss(head, hidden, labels, budget):
    asked = labels != -100
    states, targets = hidden[asked], labels[asked]
    rows, total = max(1, budget // (16 * len(head.bias))), 0.0
    with torch.no_grad():
        for part in range(len(targets) // rows):
            here = slice(part * rows, (part + 1) * rows)
            total += F.cross_entropy(head(states[here]), targets[here], reduction="sum").item()
    return total / max(1, len(targets))


# %% 05.5 wrong: a row of the batch at a time | fewer rows at a time
def held_out_loss(head, hidden, labels, budget):
    total, count = 0.0, 0
    with torch.no_grad():
        for states, answers in zip(hidden, labels):
            asked = answers != -100
            count += asked.sum().item()
            logits = head(states[asked])
            total += F.cross_entropy(logits, answers[asked], reduction="sum").item()
    return total / max(1, count)


# %% 05.5 wrong: parts of a fixed size | compute the rows of a part
def held_out_loss(head, hidden, labels, budget):
    states, targets, total = hidden[labels != -100], labels[labels != -100], 0.0
    with torch.no_grad():
        for some, theirs in zip(states.split(16), targets.split(16)):
            total += F.cross_entropy(head(some), theirs, reduction="sum").item()
    return total / max(1, len(targets))


# %% 05.5 wrong: divided by all positions | divided by all 1024 positions
def held_out_loss(head, hidden, labels, budget):
    states, targets, total = hidden[labels != -100], labels[labels != -100], 0.0
    rows = max(1, budget // (16 * len(head.bias)))
    with torch.no_grad():
        for some, theirs in zip(states.split(rows), targets.split(rows)):
            total += F.cross_entropy(head(some), theirs, reduction="sum").item()
    return total / labels.numel()


# %% 05.5 wrong: no label divides by zero | a batch without any label
def held_out_loss(head, hidden, labels, budget):
    states, targets, total = hidden[labels != -100], labels[labels != -100], 0.0
    rows = max(1, budget // (16 * len(head.bias)))
    with torch.no_grad():
        for some, theirs in zip(states.split(rows), targets.split(rows)):
            total += F.cross_entropy(head(some), theirs, reduction="sum").item()
    return total / len(targets)


# %% 05.5 wrong: a tensor is returned | a Python float is needed
def held_out_loss(head, hidden, labels, budget):
    states, targets, total = hidden[labels != -100], labels[labels != -100], 0.0
    rows = max(1, budget // (16 * len(head.bias)))
    with torch.no_grad():
        for some, theirs in zip(states.split(rows), targets.split(rows)):
            total = total + F.cross_entropy(head(some), theirs, reduction="sum")
    return total / max(1, len(targets))


# %% 05.5 wrong: all positions in parts, -100 is left to the loss | scored 1024 positions
def held_out_loss(head, hidden, labels, budget):
    rows, total = max(1, budget // (16 * len(head.bias))), 0.0
    with torch.no_grad():
        for some, theirs in zip(hidden.flatten(0, 1).split(rows), labels.flatten().split(rows)):
            total += F.cross_entropy(head(some), theirs, reduction="sum").item()
    return total / max(1, (labels != -100).sum().item())


# %% 05.5 wrong: the budget is for the logits alone | their log-probabilities are alive
def held_out_loss(head, hidden, labels, budget):
    states, targets, total = hidden[labels != -100], labels[labels != -100], 0.0
    rows = max(1, budget // (4 * len(head.bias)))
    with torch.no_grad():
        for some, theirs in zip(states.split(rows), targets.split(rows)):
            total += F.cross_entropy(head(some), theirs, reduction="sum").item()
    return total / max(1, len(targets))
