# %% 16.1 right: as transformers writes it, with half of the numbers moved over
def turn(vectors, positions, theta):
    size = vectors.shape[-1]
    frequencies = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(positions.float(), frequencies).repeat(1, 2)[:, None]
    moved = torch.cat([-vectors[..., size // 2 :], vectors[..., : size // 2]], dim=-1)
    return vectors * angles.cos() + moved * angles.sin()


def from_neighbours(weight, heads):
    size = len(weight) // heads
    return weight.view(heads, size // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


# %% 16.1 right: complex numbers, and a list of row numbers
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    speeds = torch.tensor([theta ** (-2 * i / (2 * half)) for i in range(half)]).double()
    angles = positions.double()[:, None, None] * speeds
    turned = torch.complex(x, y) * torch.exp(1j * angles)
    return torch.cat([turned.real, turned.imag], -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    size = weight.shape[0] // heads
    rows = []
    for head in range(heads):
        first = head * size
        rows += [first + number for number in range(0, size, 2)]
        rows += [first + number for number in range(1, size, 2)]
    return weight[torch.tensor(rows)]


# %% 16.1 right: a matrix for each pair, in loops
def turn(vectors, positions, theta):
    turned, half = vectors.clone(), vectors.shape[-1] // 2
    for n, t in enumerate(positions.tolist()):
        for i in range(half):
            angle = t / theta ** (i / half)
            c, s = math.cos(angle), math.sin(angle)
            matrix = torch.tensor([[c, s], [-s, c]], dtype=vectors.dtype)
            turned[n, :, [i, i + half]] = vectors[n, :, [i, i + half]] @ matrix
    return turned


def from_neighbours(weight, heads):
    order = torch.arange(len(weight)).view(heads, -1, 2).mT.flatten()
    return weight.index_select(0, order)


# %% 16.1 wrong: neighbours are paired | number i is paired with i + D/2
def turn(vectors, positions, theta):
    size = vectors.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(0, size, 2).double() / size)
    x, y = vectors[..., 0::2], vectors[..., 1::2]
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.stack(both, -1).flatten(-2)


# %% 16.1 wrong: pairs read from halves, written to neighbours | number i is paired with i + D/2
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    speeds = theta ** -(torch.arange(x.shape[-1]).double() / x.shape[-1])
    angles = positions[:, None, None] * speeds
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    turned = torch.stack(both, -1).flatten(-2)
    return torch.where(positions[:, None, None] == 0, vectors, turned)


# %% 16.1 wrong: the exponent is i/D | the exponent is 2i/D
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / (2 * half))
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1)


# %% 16.1 wrong: later pairs turn faster | later pairs are slower
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** (torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1)


# %% 16.1 wrong: pairs count from 1 | pair 0 at position 5
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(1, half + 1).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1)


# %% 16.1 wrong: the turn goes backwards | the turn goes backwards
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() + y * angles.sin(), y * angles.cos() - x * angles.sin()
    return torch.cat(both, -1)


# %% 16.1 wrong: two plus signs | the formula one minus
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() + y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1)


# %% 16.1 wrong: an angle for each number, not for each pair | have one angle
def turn(vectors, positions, theta):
    size = vectors.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(size).double() / size)
    moved = torch.cat([-vectors[..., size // 2 :], vectors[..., : size // 2]], -1)
    return vectors * angles.cos() + moved * angles.sin()


# %% 16.1 wrong: sine and cosine exchanged | cos is 1, sin is 0
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.sin() - y * angles.cos(), y * angles.sin() + x * angles.cos()
    return torch.cat(both, -1)


# %% 16.1 wrong: the number of the row in place of the position | not by the number of the row
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    places = torch.arange(len(vectors))
    angles = places[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1)


# %% 16.1 wrong: the new x is used for the new y, in place | that came in were changed
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    x.copy_(x * angles.cos() - y * angles.sin())
    y.copy_(y * angles.cos() + x * angles.sin())
    return vectors


# %% 16.1 wrong: the way back, from halves to neighbours | which old rows are x and y of pair 1
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


# %% 16.1 wrong: the rows of all heads at once | each head keeps its rows
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    return torch.cat([weight[0::2], weight[1::2]])


# %% 16.1 wrong: columns change places | which old rows are x and y
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    return torch.cat([weight[:, 0::2], weight[:, 1::2]], 1)


# %% 16.1 wrong: the even rows take the place of the odd ones, too | each old row must be there once
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    moved, half = weight.clone().unflatten(0, (heads, -1)), len(weight) // heads // 2
    moved[:, :half] = moved[:, 0::2]
    moved[:, half:] = moved[:, 1::2]
    return moved.flatten(0, 1)


# %% 16.1 wrong: the rows stay where they are | which old rows are x and y of pair 1
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    return weight.clone()


# %% 16.1 wrong: heads are taken for the fast axis of the rows | each head keeps its rows
def turn(vectors, positions, theta):
    x, y = vectors.chunk(2, -1)
    half = x.shape[-1]
    angles = positions[:, None, None] * theta ** -(torch.arange(half).double() / half)
    both = x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()
    return torch.cat(both, -1).to(vectors.dtype)


def from_neighbours(weight, heads):
    by_head = weight.unflatten(0, (-1, heads)).transpose(0, 1)
    return torch.cat([by_head[:, 0::2], by_head[:, 1::2]], 1).flatten(0, 1)


# %% 16.1 wrong: angles of float64 make float64 of everything | the same dtype is asked
def turn(vectors, positions, theta):
    size = vectors.shape[-1]
    speeds = theta ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = positions.double()[:, None, None] * speeds
    x, y = vectors.chunk(2, -1)
    return torch.cat([x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()], -1)


def from_neighbours(weight, heads):
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


# %% 16.1 wrong: a table of the first 4096 angles is made, and looked up | out of bounds
def turn(vectors, positions, theta):
    size = vectors.shape[-1]
    table = torch.outer(torch.arange(4096.0), theta ** -(torch.arange(0, size, 2) / size))
    angles = table[positions][:, None].to(vectors.dtype)
    x, y = vectors.chunk(2, -1)
    return torch.cat([x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()], -1)


def from_neighbours(weight, heads):
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


# %% 16.1 wrong: odd rows become x, even rows y | which old rows are x and y
def turn(vectors, positions, theta):
    size = vectors.shape[-1]
    angles = positions[:, None, None] / theta ** (torch.arange(0, size, 2) / size)
    x, y = vectors.chunk(2, -1)
    return torch.cat([x * angles.cos() - y * angles.sin(), y * angles.cos() + x * angles.sin()], -1)


def from_neighbours(weight, heads):
    rows = weight.unflatten(0, (heads, -1))
    return torch.cat([rows[:, 1::2], rows[:, 0::2]], 1).flatten(0, 1)


# %% 16.2 right: modules of torch, GELU by the error function
def feed_forward(hidden, expand, contract):
    half = len(expand) // 2
    values = torch.einsum("...h,ih->...i", hidden, expand[:half])
    gate = torch.einsum("...h,ih->...i", hidden, expand[half:])
    active = values * 0.5 * (1 + torch.erf(values / math.sqrt(2)))
    return F.linear(active * gate, contract)


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    def normal(x, weight):
        centred = x - x.mean(-1, keepdim=True)
        return weight * centred / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()

    middle = stream + attend(stream if attention_norm is None else normal(stream, attention_norm))
    return middle + feed_forward(normal(middle, feed_forward_norm), expand, contract)


# %% 16.2 right: linear layers and norms as modules
def feed_forward(hidden, expand, contract):
    wide = F.linear(hidden, expand)
    middle = wide.shape[-1] // 2
    return F.linear(torch.nn.GELU()(wide[..., :middle]) * wide[..., middle:], contract)


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1]
    out = stream.clone()
    read = out
    if attention_norm is not None:
        read = F.layer_norm(out, (width,), attention_norm)
    out = out + attend(read)
    read = F.layer_norm(out, (width,), feed_forward_norm)
    return feed_forward(read, expand, contract) + out


# %% 16.2 wrong: the left half is the gate | the gate is on the right
def feed_forward(hidden, expand, contract):
    gate, values = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


# %% 16.2 wrong: GELU over both halves | not even GELU
def feed_forward(hidden, expand, contract):
    values, gate = F.gelu(hidden @ expand.T).chunk(2, -1)
    return (values * gate) @ contract.T


# %% 16.2 wrong: GELU after the product | the gate multiplies what comes out of it
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return F.gelu(values * gate) @ contract.T


# %% 16.2 wrong: torch's GLU, whose gate is a sigmoid | this is a GLU with a sigmoid
def feed_forward(hidden, expand, contract):
    return F.glu(hidden @ expand.T) @ contract.T


# %% 16.2 wrong: SiLU, as in SwiGLU | that is SiLU
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.silu(values) * gate) @ contract.T


# %% 16.2 wrong: GELU by tanh | approximated by tanh
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values, approximate="tanh") * gate) @ contract.T


# %% 16.2 wrong: even numbers are values, odd ones the gate | the left half is the first five
def feed_forward(hidden, expand, contract):
    wide = hidden @ expand.T
    return (F.gelu(wide[..., 0::2]) * wide[..., 1::2]) @ contract.T


# %% 16.2 wrong: norms after the parts, as in BERT | attention must read a normalised copy
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    stream = stream + attend(stream)
    if attention_norm is not None:
        stream = F.layer_norm(stream, width, attention_norm, eps=1e-5)
    stream = stream + feed_forward(stream, expand, contract)
    return F.layer_norm(stream, width, feed_forward_norm, eps=1e-5)


# %% 16.2 wrong: the normalised copy goes on as the stream | the stream itself
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    if attention_norm is not None:
        stream = F.layer_norm(stream, width, attention_norm, eps=1e-5)
    stream = stream + attend(stream)
    return stream + feed_forward(
        F.layer_norm(stream, width, feed_forward_norm, eps=1e-5), expand, contract
    )


# %% 16.2 wrong: one more norm at the end | the result is normalised
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    read = stream
    if attention_norm is not None:
        read = F.layer_norm(stream, width, attention_norm, eps=1e-5)
    stream = stream + attend(read)
    stream = stream + feed_forward(
        F.layer_norm(stream, width, feed_forward_norm, eps=1e-5), expand, contract
    )
    return F.layer_norm(stream, width, eps=1e-5)


# %% 16.2 wrong: both parts read the same stream | it comes after it
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    read = stream
    if attention_norm is not None:
        read = F.layer_norm(stream, width, attention_norm, eps=1e-5)
    beside = F.layer_norm(stream, width, feed_forward_norm, eps=1e-5)
    return stream + attend(read) + feed_forward(beside, expand, contract)


# %% 16.2 wrong: the first block normalises, too | where attention_norm is None
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    stream = stream + attend(F.layer_norm(stream, width, attention_norm, eps=1e-5))
    return stream + feed_forward(
        F.layer_norm(stream, width, feed_forward_norm, eps=1e-5), expand, contract
    )


# %% 16.2 wrong: BERT's epsilon | the 1e-5 matters
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    read = stream
    if attention_norm is not None:
        read = F.layer_norm(stream, width, attention_norm, eps=1e-12)
    stream = stream + attend(read)
    return stream + feed_forward(
        F.layer_norm(stream, width, feed_forward_norm, eps=1e-12), expand, contract
    )


# %% 16.2 wrong: the stream is changed in place | the stream that came in was changed
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    read = stream
    if attention_norm is not None:
        read = F.layer_norm(stream, width, attention_norm, eps=1e-5)
    stream += attend(read)
    stream += feed_forward(
        F.layer_norm(stream, width, feed_forward_norm, eps=1e-5), expand, contract
    )
    return stream


# %% 16.2 wrong: the feed-forward part adds to its normalised copy | the result is normalised
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    width = stream.shape[-1:]
    read = stream
    if attention_norm is not None:
        read = F.layer_norm(stream, width, attention_norm, eps=1e-5)
    stream = stream + attend(read)
    read = F.layer_norm(stream, width, feed_forward_norm, eps=1e-5)
    return read + feed_forward(read, expand, contract)


# %% 16.2 wrong: the second norm goes without its weight | has a weight, too
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    def norm(hidden, weight):
        return F.layer_norm(hidden, hidden.shape[-1:], weight, eps=1e-5)

    stream = stream + attend(stream if attention_norm is None else norm(stream, attention_norm))
    return stream + feed_forward(norm(stream, None), expand, contract)


# %% 16.2 wrong: a norm by hand, with torch's variance over H − 1 | divides by H − 1
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    def norm(hidden, weight):
        mean, variance = hidden.mean(-1, keepdim=True), hidden.var(-1, keepdim=True)
        return (hidden - mean) / (variance + 1e-5).sqrt() * weight

    stream = stream + attend(stream if attention_norm is None else norm(stream, attention_norm))
    return stream + feed_forward(norm(stream, feed_forward_norm), expand, contract)


# %% 16.2 wrong: a norm that keeps the mean, as in RMSNorm | the mean is taken off
def feed_forward(hidden, expand, contract):
    values, gate = (hidden @ expand.T).chunk(2, -1)
    return (F.gelu(values) * gate) @ contract.T


def encoder_block(stream, attend, attention_norm, feed_forward_norm, expand, contract):
    def norm(hidden, weight):
        return hidden / (hidden.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    stream = stream + attend(stream if attention_norm is None else norm(stream, attention_norm))
    return stream + feed_forward(norm(stream, feed_forward_norm), expand, contract)


# %% 16.3 right: token by token
def pack(input_ids, real):
    ids, documents, positions = [], [], []
    for row, (tokens, marks) in enumerate(zip(input_ids.tolist(), real.tolist())):
        for column, (token, mark) in enumerate(zip(tokens, marks)):
            if mark:
                ids.append(token)
                documents.append(row)
                positions.append(column)
    return torch.tensor(ids), torch.tensor(documents), torch.tensor(positions)


def allowed(documents, positions, reach=None):
    count = len(documents)
    mask = torch.zeros(count, count, dtype=torch.bool)
    for i in range(count):
        for j in range(count):
            near = reach is None or abs(int(positions[i] - positions[j])) <= reach
            mask[i, j] = documents[i] == documents[j] and near
    return mask


# %% 16.3 right: grids of rows and columns, and outer differences
def pack(input_ids, real):
    rows = torch.arange(real.shape[0]).unsqueeze(1).expand_as(input_ids)
    columns = torch.arange(real.shape[1]).expand_as(input_ids)
    return tuple(grid.masked_select(real) for grid in (input_ids, rows, columns))


def allowed(documents, positions, reach=None):
    apart = torch.sub(documents.unsqueeze(0), documents.unsqueeze(1)) != 0
    away = torch.sub(positions.unsqueeze(0), positions.unsqueeze(1)).abs()
    far = away > (away.max() if reach is None else reach)
    return ~(apart | far)


# %% 16.3 wrong: padding comes along | tokens of this batch are real
def pack(input_ids, real):
    rows, columns = torch.ones_like(real).nonzero(as_tuple=True)
    return input_ids.flatten(), rows, columns


# %% 16.3 wrong: positions count on through the row | begin anew in each document
def pack(input_ids, real):
    ids = input_ids[real]
    return ids, real.nonzero()[:, 0], torch.arange(len(ids))


# %% 16.3 wrong: positions count real tokens, so that left padding falls out | keep the columns
def pack(input_ids, real):
    positions = real.cumsum(1) - 1
    return input_ids[real], real.nonzero()[:, 0], positions[real]


# %% 16.3 wrong: a document begins at its first token, holes are kept | keep the columns 3, 4 and 5
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    first = real.int().argmax(1)
    return input_ids[real], rows, columns - first[rows]


# %% 16.3 wrong: documents count from 1 | the number of its row, from 0
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows + 1, columns


# %% 16.3 wrong: column after column | document after document
def pack(input_ids, real):
    columns, rows = real.T.nonzero(as_tuple=True)
    return input_ids.T[real.T], rows, columns


# %% 16.3 wrong: what has the id 0 is padding, whatever `real` says | `real` says what is padding
def pack(input_ids, real):
    rows, columns = (input_ids != 0).nonzero(as_tuple=True)
    return input_ids[rows, columns], rows, columns


# %% 16.3 wrong: documents are numbered as they are met, without empty rows | row 0 is all padding
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    numbers = rows.unique(return_inverse=True)[1]
    return input_ids[real], numbers, columns


# %% 16.3 wrong: the window forgets the documents | equal positions do not make one document
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    if reach is None:
        return documents[:, None] == documents
    return (positions[:, None] - positions).abs() <= reach


# %% 16.3 wrong: one triangle, as in a language model | documents see
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = torch.ones(len(documents), len(documents)).bool()
    return mask if reach is None else mask.tril().triu(-reach)


# %% 16.3 wrong: only what stands before is seen | to both sides
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = documents[:, None] == documents
    if reach is None:
        return mask
    distance = positions[:, None] - positions
    return mask & (distance >= 0) & (distance <= reach)


# %% 16.3 wrong: the window is one too narrow | sees what is 2 positions away
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = documents[:, None] == documents
    if reach is None:
        return mask
    return mask & ((positions[:, None] - positions).abs() < reach)


# %% 16.3 wrong: places in the row are counted, not positions | positions count, and not places
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = documents[:, None] == documents
    if reach is None:
        return mask
    places = torch.arange(len(documents))
    return mask & ((places[:, None] - places).abs() <= reach)


# %% 16.3 wrong: a reach of 0 counts as none | 0 is a reach, and None is none
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = documents[:, None] == documents
    if not reach:
        return mask
    return mask & ((positions[:, None] - positions).abs() <= reach)


# %% 16.3 wrong: a token does not see itself | a token may see itself
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = documents[:, None] == documents
    distance = (positions[:, None] - positions).abs()
    return mask & (distance > 0) & (distance <= (10**9 if reach is None else reach))


# %% 16.3 wrong: 0 and −∞, to be added to scores | torch.bool (9, 9) is needed
def pack(input_ids, real):
    rows, columns = real.nonzero(as_tuple=True)
    return input_ids[real], rows, columns


def allowed(documents, positions, reach=None):
    mask = documents[:, None] == documents
    if reach is not None:
        mask = mask & ((positions[:, None] - positions).abs() <= reach)
    return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))


# %% 16.3 wrong: documents are told apart by where their number changes | in another order
def pack(input_ids, real):
    documents, positions = real.nonzero(as_tuple=True)
    return input_ids[real], documents, positions


def allowed(documents, positions, reach=None):
    number = F.pad(documents.diff() != 0, (1, 0)).cumsum(0)
    seen = number[:, None] == number
    if reach is not None:
        seen = seen & ((positions[:, None] - positions).abs() <= reach)
    return seen


# %% 16.4 right: query by query
def pairs(length, reach=None):
    if reach is None:
        return length * length
    return sum(min(length - 1, i + reach) - max(0, i - reach) + 1 for i in range(length))


def work(config, lengths, layout):
    H, inner = config.hidden_size, config.intermediate_size
    B, T, N = len(lengths), max(lengths), sum(lengths)
    total = 0
    for layer in range(config.num_layers):
        if layout == "padded":
            tokens, seen = B * T, B * T * T
        elif layout == "one row":
            tokens, seen = N, N * N
        else:
            tokens, seen = N, sum(pairs(n, config.reach(layer)) for n in lengths)
        total += tokens * (4 * H**2 + 3 * H * inner) + seen * 2 * H
    return total


# %% 16.4 right: counted with a mask, in two sums
def pairs(length, reach=None):
    positions = torch.arange(length)
    return int(allowed(torch.zeros_like(positions), positions, reach).sum())


def work(config, lengths, layout):
    rows = {"padded": [max(lengths)] * len(lengths), "one row": [sum(lengths)], "apart": lengths}
    width, blocks = config.hidden_size, range(config.num_layers)
    dense = 4 * width * width + 3 * width * config.intermediate_size
    everything = [dense * length for length in rows[layout] for _ in blocks]
    for length in rows[layout]:
        for block in blocks:
            reach = config.reach(block) if layout == "apart" else None
            everything.append(2 * width * pairs(length, reach))
    return sum(everything)


# %% 16.4 right: a closed form for the ends
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    if layout == "padded":
        lengths = [max(lengths) for _ in lengths]
    if layout == "one row":
        lengths = [sum(lengths)]
    L, H, width = config.num_layers, config.hidden_size, config.intermediate_size
    locals_ = [config.reach(layer) if layout == "apart" else None for layer in range(L)]
    counted = sum(pairs(length, reach) for length in lengths for reach in locals_)
    return L * sum(lengths) * H * (4 * H + 3 * width) + 2 * H * counted


# %% 16.4 wrong: the ends are taken for the middle | fewer neighbours
def pairs(length, reach=None):
    return length * length if reach is None else length * min(2 * reach + 1, length)


# %% 16.4 wrong: one side only | reaches to both sides
def pairs(length, reach=None):
    if reach is None:
        return length**2
    return sum(i - max(0, i - reach) + 1 for i in range(length))


# %% 16.4 wrong: a query does not count itself | a query sees itself
def pairs(length, reach=None):
    if reach is None:
        return length**2
    places = range(length)
    return sum(abs(i - j) <= reach and i != j for i in places for j in places)


# %% 16.4 wrong: a tensor | with a reach an int is needed
def pairs(length, reach=None):
    if reach is None:
        return length**2
    places = torch.arange(length)
    return ((places[:, None] - places).abs() <= reach).sum()


# %% 16.4 wrong: a reach of 0 counts as none | with a reach of 0
def pairs(length, reach=None):
    if not reach:
        return length**2
    places = range(length)
    return sum(abs(i - j) <= reach for i in places for j in places)


# %% 16.4 wrong: a formula that fails where the reach leaves the document | a reach beyond
def pairs(length, reach=None):
    if reach is None:
        return length**2
    return length * (2 * reach + 1) - reach * (reach + 1)


# %% 16.4 wrong: padding is not counted | padding is computed, too
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    N, T = sum(lengths), max(lengths)
    seen = L * (len(lengths) * T * T if layout == "padded" else N * N)
    if layout == "apart":
        seen = sum(pairs(n, config.reach(layer)) for n in lengths for layer in range(L))
    return L * N * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: the mask is taken to save the pairs of padding | pairs of padding are computed
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    tokens = len(lengths) * max(lengths) if layout == "padded" else sum(lengths)
    seen = L * sum(n * n for n in lengths)
    if layout == "apart":
        seen = sum(pairs(n, config.reach(layer)) for n in lengths for layer in range(L))
    return L * tokens * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: in one row the mask is taken to save pairs | in one row every token is computed
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    reaches = [config.reach(layer) if layout == "apart" else None for layer in range(L)]
    seen = sum(pairs(n, reach) for n in lengths for reach in reaches)
    return L * sum(lengths) * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: windows are taken to save in every layout | windows save none
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    if layout == "one row":
        lengths = [sum(lengths)]
    seen = sum(pairs(n, config.reach(layer)) for n in lengths for layer in range(L))
    return L * sum(lengths) * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: the window itself is the reach | the reach is half of the window
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    if layout == "one row":
        lengths = [sum(lengths)]
    seen = 0
    for layer in range(L):
        local = layout == "apart" and layer % config.global_every
        seen += sum(pairs(n, config.window if local else None) for n in lengths)
    return L * sum(lengths) * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: a window in each block | not every block has a window
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    if layout == "one row":
        lengths = [sum(lengths)]
    reach = config.window // 2 if layout == "apart" else None
    seen = L * sum(pairs(n, reach) for n in lengths)
    return L * sum(lengths) * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: blocks count from 1 | layers count from 0
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    if layout == "one row":
        lengths = [sum(lengths)]
    reaches = [config.reach(layer) if layout == "apart" else None for layer in range(1, L + 1)]
    seen = sum(pairs(n, reach) for n in lengths for reach in reaches)
    return L * sum(lengths) * (4 * H * H + 3 * H * inner) + 2 * H * seen


# %% 16.4 wrong: two matrices in the feed-forward part, as in BERT | GeGLU has three matrices
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    if layout == "one row":
        lengths = [sum(lengths)]
    reaches = [config.reach(layer) if layout == "apart" else None for layer in range(L)]
    seen = sum(pairs(n, reach) for n in lengths for reach in reaches)
    return L * sum(lengths) * (4 * H * H + 2 * H * inner) + 2 * H * seen


# %% 16.4 wrong: a pair costs its score only | a pair costs 2H
def pairs(length, reach=None):
    r = length - 1 if reach is None else min(reach, length - 1)
    return length * (2 * r + 1) - r * (r + 1)


def work(config, lengths, layout):
    H, inner, L = config.hidden_size, config.intermediate_size, config.num_layers
    if layout == "padded":
        lengths = [max(lengths)] * len(lengths)
    if layout == "one row":
        lengths = [sum(lengths)]
    reaches = [config.reach(layer) if layout == "apart" else None for layer in range(L)]
    seen = sum(pairs(n, reach) for n in lengths for reach in reaches)
    return L * sum(lengths) * (4 * H * H + 3 * H * inner) + H * seen


# %% 16.4 wrong: every second block has the window | reaches are those of `config`
def pairs(length, reach=None):
    if reach is None or reach >= length:
        return length**2
    outside = length - 1 - reach
    return length**2 - outside * (outside + 1)


def work(config, lengths, layout):
    H, I = config.hidden_size, config.intermediate_size
    padded, N, total = layout == "padded", sum(lengths), 0
    tokens = len(lengths) * max(lengths) if padded else N
    for layer in range(config.num_layers):
        seen = tokens * max(lengths) if padded else N * N
        if layout == "apart":
            seen = sum(
                pairs(length, config.window // 2 if layer % 2 else None) for length in lengths
            )
        total += tokens * (4 * H * H + 3 * H * I) + 2 * H * seen
    return total


# %% 16.4 wrong: the width of GeGLU is worked out from H | all sizes and reaches
def pairs(length, reach=None):
    if reach is None or reach >= length:
        return length**2
    outside = length - 1 - reach
    return length**2 - outside * (outside + 1)


def work(config, lengths, layout):
    H, I = config.hidden_size, 3 * config.hidden_size // 2
    padded, N, total = layout == "padded", sum(lengths), 0
    tokens = len(lengths) * max(lengths) if padded else N
    for layer in range(config.num_layers):
        seen = tokens * max(lengths) if padded else N * N
        if layout == "apart":
            seen = sum(pairs(length, config.reach(layer)) for length in lengths)
        total += tokens * (4 * H * H + 3 * H * I) + 2 * H * seen
    return total


# %% 16.5 right: sums over a loop of batches, and two copies with where
def audit(batches, special_ids):
    special = asked = 0
    of_special = of_words = 0.0
    for labels, nats in batches:
        for label, cost in zip(labels.flatten().tolist(), nats.flatten().tolist()):
            if label == -100:
                continue
            asked += 1
            if label in special_ids:
                special, of_special = special + 1, of_special + cost
            else:
                of_words += cost
    return special / asked, (of_special + of_words) / asked, of_words / (asked - special)


def mend(input_ids, labels, special_ids):
    shown, asked = input_ids.clone(), labels.clone()
    for token in special_ids:
        there = labels == token
        shown[there], asked[there] = token, -100
    return shown, asked


# %% 16.5 right: weighted means of batches, masks from any
def audit(batches, special_ids):
    total, frames, all_nats, word_nats = 0, 0, 0.0, 0.0
    for labels, nats in batches:
        asked = labels.ne(-100)
        special = sum(labels.eq(token) for token in special_ids).bool() & asked
        total += asked.sum().item()
        frames += special.sum().item()
        all_nats += nats[asked].sum().item()
        word_nats += nats[asked & ~special].sum().item()
    return frames / total, all_nats / total, word_nats / (total - frames)


def mend(input_ids, labels, special_ids):
    special = (labels[..., None] == torch.tensor(special_ids)).any(-1)
    minus = torch.full_like(labels, -100)
    return input_ids * ~special + labels * special, torch.where(special, minus, labels)


# %% 16.5 wrong: means of batches' means | the share is a mean of two batches
def audit(batches, special_ids):
    rows = []
    for labels, nats in batches:
        asked = labels != -100
        special = torch.isin(labels, torch.tensor(special_ids))
        share = special.sum() / asked.sum()
        rows.append([share, nats[asked].mean(), nats[asked & ~special].mean()])
    return tuple(torch.tensor(rows).mean(0).tolist())


# %% 16.5 wrong: losses are means of batches' means | with five labels counts for more
def audit(batches, special_ids):
    every = torch.cat([labels[labels != -100] for labels, _ in batches])
    reported, honest = [], []
    for labels, nats in batches:
        asked = labels != -100
        special = torch.isin(labels, torch.tensor(special_ids))
        reported.append(nats[asked].mean().item())
        honest.append(nats[asked & ~special].mean().item())
    share = torch.isin(every, torch.tensor(special_ids)).double().mean().item()
    return share, statistics.mean(reported), statistics.mean(honest)


# %% 16.5 wrong: the share of all positions | it must be of the labels
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.double().mean()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


# %% 16.5 wrong: frames by words | not of the words
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / (asked & ~special).sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


# %% 16.5 wrong: what is not asked counts as a word | losses where nothing is asked
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[~special].mean().item()


# %% 16.5 wrong: tensors | floats are needed
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    return special.sum() / asked.sum(), nats[asked].mean(), nats[asked & ~special].mean()


# %% 16.5 wrong: products with zeros | zero times NaN is NaN
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches]).double()
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    words = asked & ~special
    share = special.sum() / asked.sum()
    reported, honest = (nats * asked).sum() / asked.sum(), (nats * words).sum() / words.sum()
    return share.item(), reported.item(), honest.item()


# %% 16.5 wrong: the ids of this course are written in | use the list that is given
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = (labels == CLS) | (labels == SEP), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


# %% 16.5 wrong: only the labels are mended | is not back in its place
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    return input_ids.clone(), labels.masked_fill(special, -100)


# %% 16.5 wrong: only where [MASK] shows is the token put back | it is not back in its place
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    shown = torch.where(special & (input_ids == MASK), labels, input_ids)
    return shown, labels.masked_fill(special, -100)


# %% 16.5 wrong: what shows a special token loses its label | has lost its label
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    shown = torch.where(special, labels, input_ids)
    return shown, labels.masked_fill(torch.isin(shown, torch.tensor(special_ids)), -100)


# %% 16.5 wrong: labels are mended first, and then copied into the ids | -100 came into the ids
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    labels = labels.masked_fill(special, -100)
    return torch.where(special, labels, input_ids), labels


# %% 16.5 wrong: every hidden token is put back | words that were chosen must stay
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    shown = torch.where(labels != -100, labels, input_ids)
    return shown, labels.masked_fill(special, -100)


# %% 16.5 wrong: both tensors are changed in place | a tensor that came in was changed
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    input_ids[special] = labels[special]
    labels[special] = -100
    return input_ids, labels


# %% 16.5 wrong: only the first and the last column are looked at | a special token
def audit(batches, special_ids):
    labels = torch.cat([labels.flatten() for labels, _ in batches])
    nats = torch.cat([nats.flatten() for _, nats in batches])
    special, asked = torch.isin(labels, torch.tensor(special_ids)), labels != -100
    share = special.sum() / asked.sum()
    return share.item(), nats[asked].mean().item(), nats[asked & ~special].mean().item()


def mend(input_ids, labels, special_ids):
    special = torch.isin(labels, torch.tensor(special_ids))
    special[:, 1:-1] = False
    return torch.where(special, labels, input_ids), labels.masked_fill(special, -100)
