# %% 06.1 right: reshape and permute
def split_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


def merge_heads(x):
    return x.permute(0, 2, 1, 3).flatten(2)


# %% 06.1 right: chunks along the last axis, stacked
def split_heads(x, heads):
    return torch.stack(x.chunk(heads, -1), 1)


def merge_heads(x):
    return torch.cat(list(x.unbind(1)), -1)


# %% 06.1 wrong: one view and no transpose | a view alone mixes tokens
def split_heads(x, heads):
    batch, length, width = x.shape
    return x.view(batch, heads, length, width // heads)


def merge_heads(x):
    batch, heads, length, depth = x.shape
    return x.reshape(batch, length, heads * depth)


# %% 06.1 wrong: the axes are left in the order B, T, A, D | (B, A, T, D) is
def split_heads(x, heads):
    return x.view(*x.shape[:2], heads, -1)


def merge_heads(x):
    return x.flatten(2)


# %% 06.1 wrong: numbers are dealt out to the heads in turn | dealt out in turn
def split_heads(x, heads):
    return x.view(*x.shape[:2], -1, heads).permute(0, 3, 1, 2)


def merge_heads(x):
    return x.permute(0, 2, 3, 1).flatten(2)


# %% 06.1 wrong: merged without swapping the axes back | swap the axes back
def split_heads(x, heads):
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def merge_heads(x):
    batch, heads, length, depth = x.shape
    return x.reshape(batch, length, heads * depth)


# %% 06.1 wrong: three heads of four numbers, whatever is asked | with 1 heads
def split_heads(x, heads):
    return x.view(*x.shape[:2], 3, 4).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


# %% 06.2 right: torch's own for the output, einsum and exp for the weights
def attention(query, key, value, real):
    scores = torch.einsum("baid,bajd->baij", query, key) * query.shape[-1] ** -0.5
    scores = torch.where(real[:, None, None, :], scores, float("-inf"))
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    mask = real[:, None, None, :]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask), weights


# %% 06.2 right: a bias is added to the scores
def attention(query, key, value, real):
    bias = torch.zeros(real.shape, dtype=query.dtype).masked_fill_(~real, float("-inf"))
    scores = torch.matmul(query, key.mT) / torch.tensor(query.shape[-1], dtype=query.dtype).sqrt()
    weights = torch.softmax(scores + bias[:, None, None], dim=3)
    return torch.einsum("baij,bajd->baid", weights, value), weights


# %% 06.2 wrong: the weights of padding are set to 0 after the softmax | not after it
def attention(query, key, value, real):
    weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
    weights = weights * real[:, None, None, :]
    return weights @ value, weights


# %% 06.2 wrong: not divided by the root of D | divided by the root of D
def attention(query, key, value, real):
    scores = (query @ key.transpose(-1, -2)).masked_fill(~real[:, None, None, :], float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights


# %% 06.2 wrong: the mask stands on the queries | are QUERIES masked
def attention(query, key, value, real):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~real[:, None, :, None], float("-inf")).softmax(-1)
    return weights @ value, weights


# %% 06.2 wrong: the softmax goes over the queries | does the softmax run over them
def attention(query, key, value, real):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~real[:, None, None, :], float("-inf")).softmax(-2)
    return weights @ value, weights


# %% 06.2 wrong: padding is not masked at all | padding still has weight
def attention(query, key, value, real):
    weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
    return weights @ value, weights


# %% 06.2 wrong: only the output is returned | two tensors are needed
def attention(query, key, value, real):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=real[:, None, None, :])


# %% 06.2 wrong: exp without subtracting the largest score | large scores overflow
def attention(query, key, value, real):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    grown = scores.exp() * real[:, None, None, :]
    weights = grown / grown.sum(-1, keepdim=True)
    return weights @ value, weights


# %% 06.3 right: bands of triangular matrices
def window_mask(real, reach):
    length = real.shape[1]
    near = torch.ones(length, length).tril(reach).triu(-reach).bool()
    return near.unsqueeze(0).logical_and(real.unsqueeze(1))


# %% 06.3 right: row by row
def window_mask(real, reach):
    batch, length = real.shape
    mask = torch.zeros(batch, length, length, dtype=torch.bool)
    for i in range(length):
        first = max(0, i - reach)
        mask[:, i, first : i + reach + 1] = real[:, first : i + reach + 1]
    return mask


# %% 06.3 wrong: only words before are seen | looks to both sides
def window_mask(real, reach):
    places = torch.arange(real.shape[1])
    distance = places[:, None] - places[None, :]
    return (distance >= 0) & (distance <= reach) & real[:, None, :]


# %% 06.3 wrong: one place too few | exactly two places before
def window_mask(real, reach):
    places = torch.arange(real.shape[1])
    return ((places[:, None] - places[None, :]).abs() < reach) & real[:, None, :]


# %% 06.3 wrong: padding on the query's side | padding is seen
def window_mask(real, reach):
    places = torch.arange(real.shape[1])
    return ((places[:, None] - places[None, :]).abs() <= reach) & real[:, :, None]


# %% 06.3 wrong: queries on padding see nothing | softmax is NaN
def window_mask(real, reach):
    places = torch.arange(real.shape[1])
    near = (places[:, None] - places[None, :]).abs() <= reach
    return near & real[:, None, :] & real[:, :, None]


# %% 06.3 wrong: the word itself is left out | a word may see itself
def window_mask(real, reach):
    places = torch.arange(real.shape[1])
    distance = (places[:, None] - places[None, :]).abs()
    return (distance <= reach) & (distance > 0) & real[:, None, :]


# %% 06.3 wrong: numbers instead of bools | True and False are needed
def window_mask(real, reach):
    places = torch.arange(real.shape[1])
    return ((places[:, None] - places[None, :]).abs() <= reach).float() * real[:, None, :]


# %% 06.4 right: a power of the matrix
def spread(mask, layers):
    return torch.linalg.matrix_power(mask.double(), layers) > 0


# %% 06.4 right: sets of places, layer by layer
def spread(mask, layers):
    seen = [{i} for i in range(len(mask))]
    for _ in range(layers):
        keys = [row.nonzero().flatten().tolist() for row in mask]
        seen = [set().union(*(seen[k] for k in row)) for row in keys]
    found = torch.zeros_like(mask)
    for i, places in enumerate(seen):
        found[i, sorted(places)] = True
    return found


# %% 06.4 wrong: the mask of one layer, for any number of them | no farther than one
def spread(mask, layers):
    return mask


# %% 06.4 wrong: the reach doubles in each layer | 6 places far, not
def spread(mask, layers):
    reached = mask
    for _ in range(layers - 1):
        reached = (reached.double() @ reached.double()) > 0
    return reached


# %% 06.4 wrong: one layer too many | exactly what its mask shows
def spread(mask, layers):
    reached = mask
    for _ in range(layers):
        reached = (mask.double() @ reached.double()) > 0
    return reached


# %% 06.4 wrong: the product of transposed masks | a mask need not be symmetric
def spread(mask, layers):
    reached = torch.eye(len(mask), dtype=torch.bool)
    for _ in range(layers):
        reached = (mask.T.double() @ reached.double()) > 0
    return reached


# %% 06.4 wrong: counts of ways instead of True and False | a (T, T) tensor of bools
def spread(mask, layers):
    return torch.linalg.matrix_power(mask.double(), layers)


# %% 06.5 right: forward-mode by two sides, with torch's own attention
def influence(x, reach, layers, place, step=1e-4):
    near = window_mask(torch.ones(1, len(x), dtype=torch.bool), reach)

    def stack(batch):
        for _ in range(layers):
            batch = batch + F.scaled_dot_product_attention(batch, batch, batch, attn_mask=near)
        return batch[:, place]

    moved = x.repeat(len(x), 1, 1) + step * torch.eye(len(x), dtype=x.dtype)[:, :, None]
    return (stack(moved) - stack(x[None])).norm(dim=-1) / step


# %% 06.5 right: a loop over queries, each with its own slice of keys
def influence(x, reach, layers, place, step=1e-4):
    def run(x):
        for _ in range(layers):
            rows = []
            for i, query in enumerate(x):
                keys = x[max(0, i - reach) : i + reach + 1]
                weights = torch.softmax(keys @ query / len(query) ** 0.5, 0)
                rows.append(query + weights @ keys)
            x = torch.stack(rows)
        return x[place]

    found = torch.zeros(len(x), dtype=x.dtype)
    for j in range(len(x)):
        change = torch.zeros_like(x)
        change[j] = step
        found[j] = (run(x + change) - run(x)).norm() / step
    return found


# %% 06.5 wrong: no residual connection | each layer's output is ADDED
def influence(x, reach, layers, place, step=1e-4):
    near = window_mask(torch.ones(1, len(x), dtype=torch.bool), reach)[0]

    def stack(x):
        for _ in range(layers):
            scores = x @ x.T / x.shape[-1] ** 0.5
            x = scores.masked_fill(~near, float("-inf")).softmax(-1) @ x
        return x

    before = stack(x)[place]
    moved = [x + step * (torch.arange(len(x)) == j)[:, None] for j in range(len(x))]
    return torch.stack([(stack(one)[place] - before).norm() / step for one in moved])


# %% 06.5 wrong: only the first layer has the window | is every layer windowed
def influence(x, reach, layers, place, step=1e-4):
    near = window_mask(torch.ones(1, len(x), dtype=torch.bool), reach)[0]

    def stack(x):
        for layer in range(layers):
            scores = x @ x.T / x.shape[-1] ** 0.5
            if layer == 0:
                scores = scores.masked_fill(~near, float("-inf"))
            x = x + scores.softmax(-1) @ x
        return x

    before = stack(x)[place]
    moved = [x + step * (torch.arange(len(x)) == j)[:, None] for j in range(len(x))]
    return torch.stack([(stack(one)[place] - before).norm() / step for one in moved])


# %% 06.5 wrong: each layer reads the first input again | the second layer reads what the first wrote
def influence(x, reach, layers, place, step=1e-4):
    near = window_mask(torch.ones(1, len(x), dtype=torch.bool), reach)[0]

    def stack(first):
        x = first
        for _ in range(layers):
            scores = first @ first.T / first.shape[-1] ** 0.5
            x = x + scores.masked_fill(~near, float("-inf")).softmax(-1) @ first
        return x

    before = stack(x)[place]
    moved = [x + step * (torch.arange(len(x)) == j)[:, None] for j in range(len(x))]
    return torch.stack([(stack(one)[place] - before).norm() / step for one in moved])


# %% 06.5 wrong: the change is not divided by the step | and the change by the step
def influence(x, reach, layers, place, step=1e-4):
    near = window_mask(torch.ones(1, len(x), dtype=torch.bool), reach)

    def stack(batch):
        for _ in range(layers):
            batch = batch + F.scaled_dot_product_attention(batch, batch, batch, attn_mask=near)
        return batch[:, place]

    moved = x.repeat(len(x), 1, 1) + step * torch.eye(len(x), dtype=x.dtype)[:, :, None]
    return (stack(moved) - stack(x[None])).norm(dim=-1)


# %% 06.5 wrong: x is changed in place | x itself was changed
def influence(x, reach, layers, place, step=1e-4):
    near = window_mask(torch.ones(1, len(x), dtype=torch.bool), reach)

    def stack(x):
        batch = x[None]
        for _ in range(layers):
            batch = batch + F.scaled_dot_product_attention(batch, batch, batch, attn_mask=near)
        return batch[0, place]

    before, changes = stack(x), []
    for j in range(len(x)):
        x[j] += step
        changes.append((stack(x) - before).norm() / step)
    return torch.stack(changes)
