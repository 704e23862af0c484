"""The full softmax over a large vocabulary, and the sampled one. Built in lesson 11."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import ids, refused, whole_number
from mlm_lib.losses import at_least_float32

# F.cross_entropy would pass over −100 in silence; here every target counts.
NO_LABEL_IS_IGNORED = torch.iinfo(torch.long).min
LOGITS_AT_ONCE = 2**25  # 128 MB of float32, where no gradient is wanted


class SoftmaxLoss(nn.Module):
    """A projection to the vocabulary and the cross-entropy of its softmax, summed.

    Args:
        vocab_size: V.
        embedding_dim: D, the width of what comes in.

    Raises:
        RuntimeError, TypeError, ZeroDivisionError: what is no size.
    """

    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.vocab_size, self.embedding_dim = vocab_size, embedding_dim
        # Scores of unit size for embeddings of unit size.
        weight = torch.randn(vocab_size, embedding_dim) / embedding_dim**0.5
        self.weight = nn.Parameter(weight)  # (V, D)
        self.bias = nn.Parameter(torch.zeros(vocab_size))  # (V,)

    def forward(self, embeddings, targets):
        """The sum of -log P(target | embedding), in nats.

        Args:
            embeddings: (N, D), floating point.
            targets: (N,), torch.long or torch.int32, in 0..V−1; leave padding out before.

        Returns:
            A scalar. For N = 0 it is 0 and still has a gradient path.

        Raises:
            ValueError: shapes that do not belong together, targets of another type or outside
                0..V−1.
        """
        ids("targets", targets, "(N,)", size=self.vocab_size)
        if embeddings.shape != (len(targets), self.embedding_dim):  # one row would be broadcast
            wanted = f"a tensor {len(targets), self.embedding_dim}, a row for each target,"
            raise refused("embeddings", embeddings, wanted)
        return self._loss(embeddings, targets.long())

    def _loss(self, embeddings, targets):
        # Without gradients nothing is kept for later, so that rows can be taken a few at a time and
        # the logits (N, V) never stand in memory all at once.
        at_once = len(targets) if torch.is_grad_enabled() else LOGITS_AT_ONCE // self.vocab_size
        rows = max(1, at_once)
        options = {"reduction": "sum", "ignore_index": NO_LABEL_IS_IGNORED}
        loss = 0
        for some, answers in zip(embeddings.split(rows), targets.split(rows)):
            logits = at_least_float32(F.linear(some, self.weight, self.bias))  # (rows, V)
            loss = loss + F.cross_entropy(logits, answers, **options)
        return loss

    def extra_repr(self):
        return f"vocab_size={self.vocab_size}, embedding_dim={self.embedding_dim}"


class SampledSoftmaxLoss(SoftmaxLoss):
    """The target's score against those of `num_samples` random words; in evaluation, of all words.

    The cost of a training step does not depend on V. One set of words is drawn for the whole batch,
    from a log-uniform (Zipfian) distribution over the frequency rank, again and again until there
    are `num_samples` different ones. A word drawn often stands for few, so from each score the
    logarithm of the word's expected count is taken, 1 − (1 − P)^tries (the candidate sampling of
    TensorFlow, as in AllenNLP's `SampledSoftmaxLoss`; Bengio and Senécal 2008 and Jean et al. 2015
    on the idea). A drawn word that is the target of a row is no rival in that row. The training
    loss lies below the full one and must not be compared with it.

    Words are drawn on the CPU, by torch's global generator: a seed means the same on every device.

    Args:
        vocab_size, embedding_dim: V and D.
        num_samples: S different words drawn for a batch, less than V; with all of them
            `SoftmaxLoss` is exact and cheaper.
        sparse: give the weights sparse gradients, which `train` and `torch.optim.SparseAdam` apply.
        frequency_order: (V,) ids, the most frequent first; None means that the ids are sorted so
            already. `frequency_order(counts)` makes one, `check_order` tells whether it is needed.

    Raises:
        ValueError: no samples, or as many as there are words; an order that is no permutation.
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
        self.register_buffer("order", order, persistent=False)  # (V,) rank to id
        self.register_buffer("rank", rank, persistent=False)  # (V,) id to rank

    def _loss(self, embeddings, targets):
        if not self.training:
            return super()._loss(embeddings, targets)
        # 1. Draw S ranks for the batch, and find words by rank and ranks by word.
        ranks, tries = log_uniform_sample(self.vocab_size, self.num_samples)
        ranks = ranks.to(targets.device)  # (S,)
        sampled = ranks if self.order is None else self.order[ranks]  # (S,)
        target_ranks = targets if self.rank is None else self.rank.index_select(0, targets)  # (N,)
        # 2. Score the target of each row, and all samples in each row. Only these rows are read.
        N, words = len(targets), torch.cat([targets, sampled])  # (N + S,)
        weight, bias = self._rows(self.weight, words), self._rows(self.bias, words)
        true = at_least_float32((embeddings * weight[:N]).sum(-1) + bias[:N])  # (N,)
        rivals = at_least_float32(F.linear(embeddings, weight[N:], bias[N:]))  # (N, S)
        # 3. From each score take the logarithm of the word's expected count.
        expected = log_expected_count(torch.cat([target_ranks, ranks]), self.vocab_size, tries)
        true, rivals = true - expected[:N].to(true.dtype), rivals - expected[N:].to(true.dtype)
        # 4. An accidental hit, the row's own target among the samples, is no rival: e^−∞ = 0.
        rivals = rivals.masked_fill(sampled == targets[:, None], -torch.inf)
        # 5. Cross-entropy over 1 + S scores, the answer in column 0.
        scores = torch.cat([true[:, None], rivals], 1)  # (N, 1 + S)
        return F.cross_entropy(scores, torch.zeros_like(targets), reduction="sum")

    def _rows(self, table, words):
        return sparse_rows(table, words) if self.sparse else table.index_select(0, words)

    def check_order(self, counts):
        """Does the sampler fit a corpus? The surprise of one who expects its samples at the words.

        Args:
            counts: (V,) how often each id occurs.

        Returns:
            -Σ share(id) · log P(rank of id), in nats; ln V for a sampler that draws all words
            alike, less for a good one.

        Raises:
            ValueError: counts of another shape, all zero, or a surprise above ln V: this sampler is
                worse than a uniform one, since the ids are not sorted by frequency, or since no
                word is much more frequent than others.
        """
        shares = _counts(counts, self.vocab_size)
        shares = shares / shares.sum()  # (V,)
        ranks = torch.arange(self.vocab_size, device="cpu")
        ranks = ranks if self.rank is None else self.rank.cpu()
        surprise = -log_uniform(ranks, self.vocab_size).log()  # (V,)
        nats, uniform = (shares * surprise).sum().item(), math.log(self.vocab_size)
        if nats <= uniform:
            return nats
        # The most frequent word at the least surprise: what the best order would give.
        best = (shares.sort(descending=True).values * surprise.sort().values).sum().item()
        sort = "pass frequency_order=frequency_order(counts)"
        remedy = sort if best < uniform else "use SoftmaxLoss"
        told = f"the sampler's surprise at these words is {nats:.2f} nats, more than ln V ="
        raise ValueError(
            f"{told} {uniform:.2f}: in the order of frequency it is {best:.2f}; {remedy}"
        )

    def extra_repr(self):
        return f"{super().extra_repr()}, num_samples={self.num_samples}, sparse={self.sparse}"


# ------------------------------------------------------------------------------------ the sampler


def frequency_order(counts):
    """(V,) counts to (V,) ids, the most frequent first; among equals the lower id comes first.

    >>> frequency_order([2, 5, 2, 9]).tolist()
    [3, 1, 0, 2]

    Raises:
        ValueError: counts that are not one number for each id, negative, or all zero.
    """
    return _counts(counts).argsort(descending=True, stable=True)


def log_uniform(ranks, vocab_size):
    """P(rank) = log((rank + 2) / (rank + 1)) / log(V + 1): Zipf's law, nearly.

    In float64 where the device has it. The chances of all ranks sum to 1, as the logarithms of
    2/1, 3/2, … (V + 1)/V sum to log(V + 1).

    >>> [round(chance, 2) for chance in log_uniform(torch.arange(3), 3).tolist()]
    [0.5, 0.29, 0.21]
    """
    ranks = ranks.to(torch.float32 if ranks.device.type == "mps" else torch.float64)
    return (1 / (ranks + 1)).log1p() / math.log(vocab_size + 1)


def log_uniform_sample(vocab_size, num_samples):
    """Draws log-uniform ranks until S = `num_samples` different ones are there.

    Returns:
        ((S,) ranks in the order of their first draw, how many draws that took).

    Raises:
        ValueError: no samples, or more than there are words.
    """
    num_samples = whole_number("num_samples", num_samples, 1, vocab_size)  # more never come
    drawn = torch.empty(0, dtype=torch.long, device="cpu")
    while True:
        # A uniform u in [0, 1) to a rank: P(rank < r) = log(r + 1) / log(V + 1), solved for r.
        more = torch.rand(max(2 * num_samples, len(drawn)), dtype=torch.float64, device="cpu")
        more = ((more * math.log(vocab_size + 1)).exp().long() - 1).clamp_(0, vocab_size - 1)
        drawn = torch.cat([drawn, more])
        # Sorted, equal ranks are neighbours, the first drawn before the others.
        values, places = drawn.sort(stable=True)
        new = torch.ones_like(values, dtype=torch.bool)
        new[1:] = values[1:] != values[:-1]
        first = places[new].sort().values  # when each rank came for the first time
        if len(first) >= num_samples:
            return drawn[first[:num_samples]], first[num_samples - 1].item() + 1


def log_expected_count(ranks, vocab_size, tries):
    """log(1 − (1 − P(rank))^tries), the logarithm of a rank's chance to be among the samples."""
    return (-torch.expm1(tries * torch.log1p(-log_uniform(ranks, vocab_size)))).log()


class _SparseRows(torch.autograd.Function):
    """`table[ids]`, whose gradient holds these rows only, for tables of any dimension."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)  # unlike table[ids], no id of -1 means the last row

    @staticmethod
    def backward(ctx, gradient):
        (ids,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(ids[None], gradient, ctx.shape, check_invariants=False), None


sparse_rows = _SparseRows.apply


def _counts(counts, vocab_size=None):
    """Counts as float64: one for each of `vocab_size` ids, or of as many as there are."""
    found = torch.as_tensor(counts, device="cpu").double()
    right = found.shape == (found.numel() if vocab_size is None else vocab_size,)
    if not right or not (found >= 0).all() or not 0 < found.sum() < math.inf:
        raise refused("counts", counts, "a number of 0 or more for each id, not all of them 0,")
    return found
