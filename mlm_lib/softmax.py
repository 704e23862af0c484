"""Softmax losses over a large vocabulary, in full and sampled. Built in lesson 12.

`SoftmaxLoss` scores every token of the vocabulary. `SampledSoftmaxLoss` scores only the target and
a random sample in training, so that the time of a training step does not depend on the size of the
vocabulary. Use the sampled loss if the vocabulary is so large that the full softmax takes most of
the time of a step, and the full loss otherwise.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import ids, refused, whole_number
from mlm_lib.losses import at_least_float32

# By default F.cross_entropy leaves out targets of −100. Here every target counts, so we pass a
# value that no target can have.
NO_TARGET_IGNORED = torch.iinfo(torch.long).min
LOGITS_AT_ONCE = 2**25  # 128 MB of float32; computed at once where no gradient is needed


class SoftmaxLoss(nn.Module):
    """A linear layer that gives each vector a score for every token, and the cross-entropy of the
    softmax of these scores.

    The loss is the sum over the targets, and not their mean.

    >>> loss = SoftmaxLoss(vocab_size=3, embedding_dim=2)
    >>> loss(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]))  # 4 ln 3: all tokens are equally likely
    tensor(4.3944, grad_fn=<AddBackward0>)

    Args:
        vocab_size: V, the size of the vocabulary.
        embedding_dim: D, the width of the vectors.
    """

    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.vocab_size, self.embedding_dim = vocab_size, embedding_dim
        # For vectors whose numbers have variance 1, the scores have variance 1 as well.
        weight = torch.randn(vocab_size, embedding_dim) / embedding_dim**0.5
        self.weight = nn.Parameter(weight)  # (V, D)
        self.bias = nn.Parameter(torch.zeros(vocab_size))  # (V,)

    def forward(self, embeddings, targets):
        """Compute the sum of −log P(target | vector), in nats (the logarithm is the natural one).

        Args:
            embeddings: (N, D), floating point.
            targets: (N,), torch.long or torch.int32, each in 0..V−1. Leave padding out before the
                call.

        Returns:
            A scalar. For N = 0 the loss is 0, and `backward()` gives gradients of 0.

        Raises:
            ValueError: the shapes do not fit; targets have another type or are outside 0..V−1.
        """
        ids("targets", targets, "(N,)", size=self.vocab_size)
        if embeddings.shape != (len(targets), self.embedding_dim):  # one row would be broadcast
            wanted = f"a tensor {len(targets), self.embedding_dim}, a row for each target,"
            raise refused("embeddings", embeddings, wanted)
        return self._loss(embeddings, targets.long())

    def _loss(self, embeddings, targets):
        # Without gradients nothing has to be stored for the backward pass. Then the rows are taken
        # a few at a time, so that memory never holds all logits (N, V) at once.
        at_once = len(targets) if torch.is_grad_enabled() else LOGITS_AT_ONCE // self.vocab_size
        rows = max(1, at_once)
        options = {"reduction": "sum", "ignore_index": NO_TARGET_IGNORED}
        loss = 0
        for vectors, some in zip(embeddings.split(rows), targets.split(rows)):
            logits = at_least_float32(F.linear(vectors, self.weight, self.bias))  # (rows, V)
            loss = loss + F.cross_entropy(logits, some, **options)
        return loss

    def extra_repr(self):
        """The settings that `print(loss)` shows."""
        return f"vocab_size={self.vocab_size}, embedding_dim={self.embedding_dim}"


class SampledSoftmaxLoss(SoftmaxLoss):
    """Sampled softmax: the loss over the target and a random sample of the vocabulary.

    In evaluation mode it is the full softmax.

    In training mode a step costs the same for every size V of the vocabulary. One sample of tokens
    is drawn for the whole batch, from a log-uniform distribution over the frequency ranks, which is
    close to Zipf's law. Draws are repeated until there are `num_samples` different tokens.

    A frequent token is in almost every sample, and a rare token in few. To correct for this, the
    logarithm of each token's expected count in the sample is subtracted from its score. The
    expected count is 1 − (1 − P)^tries, where P is the probability of the token in one draw, and
    tries is the number of draws. This is the candidate sampling of TensorFlow, as in AllenNLP's
    `SampledSoftmaxLoss`; the idea is from Bengio and Senécal 2008 and Jean et al. 2015. If a
    sampled token is the target of a row, it is left out in this row.

    The loss in training mode is lower than the full loss, because the target has fewer competitors.
    The two losses must not be compared. To measure, call `.eval()` first.

    The sample is drawn on the CPU with torch's global generator. Therefore a seed gives the same
    sample on every device.

    Args:
        vocab_size: V, the size of the vocabulary.
        embedding_dim: D, the width of the vectors.
        num_samples: S, the number of different tokens in a sample, less than V. (With all V tokens
            `SoftmaxLoss` is exact and cheaper.)
        sparse: whether gradients are stored only for the rows of the weights that were used.
            `training.train` and `torch.optim.SparseAdam` can work with such sparse gradients.
        frequency_order: (V,) the ids from the most frequent to the rarest; see the function
            `frequency_order`. None: id 0 is the most frequent, and the ids are in this order
            already. The method `check_order` finds out whether the order is needed.

    Raises:
        ValueError: `num_samples` is not in 1..V−1; `frequency_order` does not contain each id once.
    """

    def __init__(
        self, vocab_size, embedding_dim, num_samples, *, sparse=False, frequency_order=None
    ):
        super().__init__(vocab_size, embedding_dim)
        self.num_samples = whole_number("num_samples", num_samples, 1, self.vocab_size - 1)
        self.sparse = sparse
        order = rank = None
        if frequency_order is not None:
            order = torch.as_tensor(frequency_order, device="cpu")
            order = ids("frequency_order", order, "(V,)").long().clone()
            rank = order.argsort()
            if not torch.equal(order[rank], torch.arange(vocab_size, device="cpu")):
                raise refused("frequency_order", order, f"each id from 0 to {vocab_size - 1} once")
        self.register_buffer("order", order, persistent=False)  # (V,) from rank to id
        self.register_buffer("rank", rank, persistent=False)  # (V,) from id to rank

    def _loss(self, embeddings, targets):
        if not self.training:
            return super()._loss(embeddings, targets)
        # 1. Draw S ranks for the batch. Find the token of each rank, and the rank of each target.
        ranks, tries = log_uniform_sample(self.vocab_size, self.num_samples)
        ranks = ranks.to(targets.device)  # (S,)
        sampled = ranks if self.order is None else self.order[ranks]  # (S,)
        target_ranks = targets if self.rank is None else self.rank.index_select(0, targets)  # (N,)
        # 2. Score the target of each vector, and the whole sample for each vector. Of the weights
        #    only these rows are read.
        N, tokens = len(targets), torch.cat([targets, sampled])  # (N + S,)
        weight, bias = self._rows(self.weight, tokens), self._rows(self.bias, tokens)
        true = at_least_float32((embeddings * weight[:N]).sum(-1) + bias[:N])  # (N,)
        others = at_least_float32(F.linear(embeddings, weight[N:], bias[N:]))  # (N, S)
        # 3. Subtract from each score the logarithm of the token's expected count.
        expected = log_expected_count(torch.cat([target_ranks, ranks]), self.vocab_size, tries)
        true, others = true - expected[:N].to(true.dtype), others - expected[N:].to(true.dtype)
        # 4. An accidental hit: the sample contains the target of the row. This token of the sample
        #    is left out of the row by a score of −∞, because e^−∞ = 0.
        others = others.masked_fill(sampled == targets[:, None], -torch.inf)
        # 5. Cross-entropy over 1 + S scores. The target is in column 0.
        scores = torch.cat([true[:, None], others], 1)  # (N, 1 + S)
        return F.cross_entropy(scores, torch.zeros_like(targets), reduction="sum")

    def _rows(self, table, tokens):
        return sparse_rows(table, tokens) if self.sparse else table.index_select(0, tokens)

    def check_order(self, counts):
        """Check that the sampler's order of the tokens fits their frequencies in a corpus.

        The measure is the cross-entropy of the sampler's distribution on the tokens of the corpus:
        −Σ frequency(id) · log P(rank of id). For a sampler that draws all tokens with the same
        probability, the cross-entropy is ln V.

        Args:
            counts: (V,) how often each id occurs in the corpus.

        Returns:
            The cross-entropy, in nats.

        Raises:
            ValueError: the cross-entropy is above ln V, because the ids are not sorted by
                frequency, or because no token is much more frequent than the others. The message
                says which of the two it is, and names the remedy. Also if `counts` has another
                shape, or a negative number, or only zeros.
        """
        frequencies = _counts(counts, self.vocab_size)
        frequencies = frequencies / frequencies.sum()  # (V,)
        ranks = torch.arange(self.vocab_size, device="cpu")
        ranks = ranks if self.rank is None else self.rank.cpu()
        surprise = -log_uniform(ranks, self.vocab_size).log()  # (V,)
        nats, uniform = (frequencies * surprise).sum().item(), math.log(self.vocab_size)
        if nats <= uniform:
            return nats
        # The best order gives the least surprise to the most frequent token, and so on.
        best = (frequencies.sort(descending=True).values * surprise.sort().values).sum().item()
        sort = "pass frequency_order=frequency_order(counts)"
        remedy = sort if best < uniform else "use SoftmaxLoss"
        found = f"the sampler's surprise at these words is {nats:.2f} nats, more than ln V ="
        raise ValueError(
            f"{found} {uniform:.2f}: in the order of frequency it is {best:.2f}; {remedy}"
        )

    def extra_repr(self):
        """The settings that `print(loss)` shows."""
        return f"{super().extra_repr()}, num_samples={self.num_samples}, sparse={self.sparse}"


# ------------------------------------------------------------------------------------ the sampler


def frequency_order(counts):
    """Sort the ids of a vocabulary by frequency, for the argument of `SampledSoftmaxLoss`.

    >>> frequency_order([2, 5, 2, 9]).tolist()
    [3, 1, 0, 2]

    Args:
        counts: (V,) how often each id occurs.

    Returns:
        (V,) long, the ids from the most frequent to the rarest. If two ids have equal counts, the
        lower id comes first.

    Raises:
        ValueError: `counts` has more than one axis, or a negative number, or only zeros.
    """
    return _counts(counts).argsort(descending=True, stable=True)


def log_uniform(ranks, vocab_size):
    """The log-uniform probability of each rank, which is close to Zipf's law.

    P(rank) = log((rank + 2) / (rank + 1)) / log(V + 1), for ranks from 0 to V−1. The probabilities
    sum to 1, because the logarithms of 2/1, 3/2, …, (V + 1)/V sum to log(V + 1).

    >>> [round(p, 2) for p in log_uniform(torch.arange(3), 3).tolist()]
    [0.5, 0.29, 0.21]

    Args:
        ranks: whole numbers, a tensor of any shape.
        vocab_size: V, the size of the vocabulary.

    Returns:
        A tensor of the same shape, in float64, or in float32 on Apple's GPUs, which lack float64.
    """
    ranks = ranks.to(torch.float32 if ranks.device.type == "mps" else torch.float64)
    return (1 / (ranks + 1)).log1p() / math.log(vocab_size + 1)


def log_uniform_sample(vocab_size, num_samples):
    """Draw log-uniform ranks until S = `num_samples` different ranks have been drawn.

    The draws are made on the CPU with torch's global generator.

    Returns:
        ranks (S,) long, in the order in which each was first drawn, and the number of draws that
        were needed, an int.

    Raises:
        ValueError: `num_samples` is not in 1..V.
    """
    num_samples = whole_number("num_samples", num_samples, 1, vocab_size)  # else it would not end
    drawn = torch.empty(0, dtype=torch.long, device="cpu")
    while True:
        # Inverse transform sampling: P(rank < r) = log(r + 1) / log(V + 1) is set to a uniform
        # number in [0, 1) and solved for r.
        more = torch.rand(max(2 * num_samples, len(drawn)), dtype=torch.float64, device="cpu")
        more = ((more * math.log(vocab_size + 1)).exp().long() - 1).clamp_(0, vocab_size - 1)
        drawn = torch.cat([drawn, more])
        # After a stable sort equal ranks are neighbours, and the earliest draw comes first.
        values, positions = drawn.sort(stable=True)
        new = torch.ones_like(values, dtype=torch.bool)
        new[1:] = values[1:] != values[:-1]
        first = positions[new].sort().values  # the draw at which each rank appeared first
        if len(first) >= num_samples:
            return drawn[first[:num_samples]], first[num_samples - 1].item() + 1


def log_expected_count(ranks, vocab_size, tries):
    """The logarithm of the probability that a rank is in the sample: log(1 − (1 − P(rank))^tries).

    Since a rank is in the sample once or not at all, this probability is its expected count.
    """
    return (-torch.expm1(tries * torch.log1p(-log_uniform(ranks, vocab_size)))).log()


class _SparseRows(torch.autograd.Function):
    """`table[ids]` with a sparse gradient, which contains only these rows.

    Unlike `F.embedding(..., sparse=True)`, this function accepts tables of one axis, such as the
    bias.
    """

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)  # refuses an id of −1; table[ids] returns the last row

    @staticmethod
    def backward(ctx, gradient):
        (ids,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(ids[None], gradient, ctx.shape, check_invariants=False), None


sparse_rows = _SparseRows.apply


def _counts(counts, vocab_size=None):
    """Counts as a checked float64 tensor (V,). V is their number if `vocab_size` is None."""
    values = torch.as_tensor(counts, device="cpu").double()
    fits = values.shape == (values.numel() if vocab_size is None else vocab_size,)
    if not fits or not (values >= 0).all() or not 0 < values.sum() < math.inf:
        raise refused("counts", counts, "a number of 0 or more for each id, not all of them 0,")
    return values
