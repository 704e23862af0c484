# The cells of the project that no lab builds. The others are the labs' own solutions.
# ruff: noqa: F821

# %%
# TASK project.2: words to ids
PAD, MASK, FIRST = 0, 1, 2


def to_ids(rows, number):
    """rows of words, {word: its id} -> ids (B, T)."""
    ids = torch.full((len(rows), max(map(len, rows))), PAD)
    for line, row in zip(ids, rows):
        line[: len(row)] = torch.tensor([number[word] for word in row])
    return ids


def batches(rows, size, rng):
    """Rows of like length together, so that little is padded; without end."""
    while True:
        rows, found = rng.sample(rows, len(rows)), []
        for start in range(0, len(rows), 50 * size):
            some = sorted(rows[start : start + 50 * size], key=len)
            found += [some[n : n + size] for n in range(0, len(some), size)]
        rng.shuffle(found)
        yield from found


def slots(chosen):
    """chosen (B, T) bool -> positions (B, M), each row's chosen places first; which slots are."""
    order = chosen.long().sort(dim=1, descending=True, stable=True)
    most = int(chosen.sum(1).max())
    return order.indices[:, :most], order.values[:, :most].bool()


# %%
# TASK project.11: the model
class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, real):
        parts = self.parts(self.norm(x)).chunk(3, -1)
        output, _ = attention(*(split_heads(part, self.heads) for part in parts), real)
        x = x + self.out(merge_heads(output))
        return x + self.narrow(gelu(self.wide(self.second_norm(x))))


class Model(nn.Module):
    def __init__(self, tokens, longest, width=96, layers=2, heads=4):
        super().__init__()
        self.words = nn.Embedding(tokens, width)
        self.before, self.behind = nn.Embedding(longest, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = Head(self.words)
        for weight in self.parameters():
            if weight.dim() >= 2:
                nn.init.normal_(weight, std=0.05)

    def forward(self, ids, positions):
        """ids (B, T), positions (B, M) -> logits (B, M, V). A place counts from both ends."""
        real, before = ids != PAD, torch.arange(ids.shape[1])
        behind = (real.sum(1, keepdim=True) - 1 - before).clamp(min=0)  # (B, T)
        x = self.words(ids) + self.before(before) + self.behind(behind)
        for layer in self.layers:
            x = layer(x, real)
        return self.head(gather(x, positions))


# %%
# TASK project.16: train, and predict
SEED = 0
RATE, DECAY, LONGEST = 3e-3, 0.01, 128


def train(documents, vocabulary, seconds):
    """-> predict(rows, asked), as the contract says."""
    since = time.process_time()
    torch.manual_seed(SEED)
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    number = {word: place for place, word in enumerate(vocabulary, FIRST)}
    model, memory = Model(len(vocabulary) + FIRST, LONGEST), {}
    weights = dict(model.named_parameters())
    for rows in batches(documents, 32, rng):
        used = time.process_time() - since
        if used > 0.98 * seconds:
            break
        ids = to_ids(rows, number)
        chosen = choose(ids != PAD, rng.uniform(0.15, 0.4), generator)
        if not chosen.any():
            continue
        positions, wanted = slots(chosen)
        labels = ids.gather(1, positions).masked_fill(~wanted, -100)
        loss = masked_loss(model(ids.masked_fill(chosen, MASK), positions), labels)
        model.zero_grad()
        loss.backward()
        gradients, _ = clip([weight.grad for weight in weights.values()], 1.0)
        rate = rate_at(used, 0.98 * seconds, 0.05 * seconds, RATE)
        with torch.no_grad():
            adamw_step(weights, dict(zip(weights, gradients)), memory, rate, DECAY)

    @torch.no_grad()
    def predict(rows, asked):
        found = []
        for row, places in zip(rows, asked):
            ids, positions = to_ids([row], number), torch.tensor([places])
            ids[0, places] = MASK
            found.append(model(ids, positions)[0, :, FIRST:].log_softmax(-1))
        return found

    predict.parameters = sum(weight.numel() for weight in weights.values())
    return predict
