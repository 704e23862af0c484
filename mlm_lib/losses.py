"""Cross-entropy: at the positions that carry a label (lesson 04), of a full softmax, of a sampled one (lesson 11)."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

IGNORE = -100  # the label of a position that has none, as in PyTorch and transformers
NO_LABEL_IS_IGNORED = torch.iinfo(
    torch.long
).min  # by F.cross_entropy, which would pass over −100 in silence
LOGITS_AT_ONCE = 2**25  # 128 MB of float32, where no gradient is wanted


def masked_cross_entropy(logits, labels):
    """Mean negative log-likelihood, in nats, over the positions whose label is not −100.

    Equal to `BertForMaskedLM(..., labels=labels).loss`, and computed only where there is a label: of a batch masked
    at 15% this touches 15% of the logits. Unlike there, half-precision logits are widened to float32 first.

    Args:
        logits: (..., V), floating point.
        labels: (...), integer; −100 means no label.

    Returns:
        A scalar. With no label at all it is 0 and still has a gradient path (transformers gives NaN).

    Raises:
        ValueError: shapes that do not belong together; labels that are not integers; a label outside 0..V−1 that is not −100.
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} do not belong together; "
            "logits need one axis more, of the vocabulary's size"
        )
    if labels.dtype not in (torch.int64, torch.int32, torch.int16):
        raise ValueError(
            f"labels are {labels.dtype}; they must be token ids, such as torch.long, not a mask or scores"
        )
    vocab_size = logits.shape[-1]
    has_label = labels != IGNORE  # (...)
    targets = labels[has_label].long()  # (N,)
    # On an accelerator this look would make the program wait for the device at each step, so it is left to the kernel.
    if (
        targets.device.type == "cpu"
        and targets.numel()
        and not 0 <= int(targets.min()) <= int(targets.max()) < vocab_size
    ):
        wrong = targets[(targets < 0) | (targets >= vocab_size)][0].item()
        raise ValueError(
            f"label {wrong} is neither {IGNORE} nor in 0..{vocab_size - 1}, the ids that the logits can name"
        )
    # Logits that were computed only where there is a label are taken as they are: a copy of them would be large.
    picked = (
        logits.reshape(-1, vocab_size) if targets.numel() == labels.numel() else logits[has_label]
    )  # (N, V)
    return F.cross_entropy(_wide(picked), targets, reduction="sum") / max(1, targets.numel())


class SoftmaxLoss(nn.Module):
    """A projection to the vocabulary and the cross-entropy of its softmax, summed. Built in lesson 11.

    Args:
        vocab_size: V.
        embedding_dim: D, the width of what comes in.

    Raises:
        ValueError: a size that is not a positive integer.
    """

    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        for name, size in (("vocab_size", vocab_size), ("embedding_dim", embedding_dim)):
            if type(size) is not int or size < 1:
                raise ValueError(f"{name}={size!r} is not a positive integer")
        self.vocab_size, self.embedding_dim = vocab_size, embedding_dim
        self.weight = nn.Parameter(torch.randn(vocab_size, embedding_dim) / embedding_dim**0.5)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, embeddings, targets):
        """The sum of -log P(target | embedding), in nats.

        Args:
            embeddings: (N, D), floating point.
            targets: (N,), integers in 0..V−1.

        Returns:
            A scalar. For N = 0 it is 0 and still has a gradient path.

        Raises:
            ValueError: shapes that do not belong together, targets that are not integers or outside 0..V−1.
        """
        self._check(embeddings, targets)
        return self._full(embeddings, targets.long())

    def _full(self, embeddings, targets):
        # Without gradients nothing is kept, so that rows can be taken a few at a time and (N, V) never stands in memory.
        rows = max(
            1, len(targets) if torch.is_grad_enabled() else LOGITS_AT_ONCE // self.vocab_size
        )
        parts = zip(embeddings.split(rows), targets.split(rows))
        return sum(
            F.cross_entropy(
                _wide(F.linear(x, self.weight, self.bias)),
                t,
                reduction="sum",
                ignore_index=NO_LABEL_IS_IGNORED,
            )
            for x, t in parts
        )

    def _check(self, embeddings, targets):
        if (
            embeddings.dim() != 2
            or embeddings.shape[1] != self.embedding_dim
            or embeddings.shape[:1] != targets.shape
        ):
            raise ValueError(
                f"embeddings {tuple(embeddings.shape)} and targets {tuple(targets.shape)}; this loss reads "
                f"(N, {self.embedding_dim}) and (N,)"
            )
        if targets.dtype not in (torch.int64, torch.int32, torch.int16):
            raise ValueError(
                f"targets are {targets.dtype}; they must be token ids, such as torch.long"
            )
        if (
            targets.device.type == "cpu"
            and targets.numel()
            and not 0 <= int(targets.min()) <= int(targets.max()) < self.vocab_size
        ):
            wrong = targets[(targets < 0) | (targets >= self.vocab_size)][0].item()
            raise ValueError(
                f"target {wrong} is outside 0..{self.vocab_size - 1}; leave padding out before the loss"
            )

    def extra_repr(self):
        """What `print(loss)` says of it."""
        return f"vocab_size={self.vocab_size}, embedding_dim={self.embedding_dim}"


class SampledSoftmaxLoss(SoftmaxLoss):
    """In training, the target's score against those of `num_samples` words drawn at random; in evaluation, the full softmax.

    The cost of a training step does not depend on V. One set of words is drawn for the whole batch, from a log-uniform
    (Zipfian) distribution over the frequency rank, P(r) = log((r + 2) / (r + 1)) / log(V + 1), again and again until
    there are `num_samples` different ones. A word drawn often stands for few, so from each score the logarithm of the
    word's expected count is taken, 1 − (1 − P)^tries (the candidate sampling of TensorFlow, as in AllenNLP's
    `SampledSoftmaxLoss`; Bengio and Senécal 2008 and Jean et al. 2015 on the idea). A drawn word that is the target of
    a row is no rival in that row. The training loss lies below the full one and must not be compared with it.

    Words are drawn on the CPU, by torch's global generator, so that a seed means the same on every device.

    Args:
        vocab_size, embedding_dim: V and D.
        num_samples: different words drawn for a batch, less than V.
        sparse: give the weights sparse gradients, for `torch.optim.SparseAdam`.
        frequency_order: (V,) ids, the most frequent first; None means that the ids are sorted so already.
            `frequency_order(counts)` makes one, `check_order` tells whether it is needed.

    Raises:
        ValueError: a size that is not a positive integer, as many samples as words, an order that is no permutation.
    """

    def __init__(
        self, vocab_size, embedding_dim, num_samples, *, sparse=False, frequency_order=None
    ):
        super().__init__(vocab_size, embedding_dim)
        if type(num_samples) is not int or not 1 <= num_samples < vocab_size:
            raise ValueError(
                f"num_samples={num_samples!r} must be a whole number from 1 to {vocab_size - 1}, fewer than the {vocab_size} "
                "words; with all of them SoftmaxLoss is exact and cheaper"
            )
        self.num_samples, self.sparse = num_samples, sparse
        order = None if frequency_order is None else _permutation(frequency_order, vocab_size)
        self.register_buffer("order", order, persistent=False)  # rank to id
        self.register_buffer(
            "rank", None if order is None else order.argsort(), persistent=False
        )  # id to rank

    def forward(self, embeddings, targets):
        """The summed loss, sampled in training and full in evaluation; arguments and errors as in `SoftmaxLoss`."""
        self._check(embeddings, targets)
        targets = targets.long()
        return (
            self._sampled(embeddings, targets) if self.training else self._full(embeddings, targets)
        )

    def _sampled(self, embeddings, targets):
        ranks, tries = log_uniform_sample(self.vocab_size, self.num_samples)
        ranks = ranks.to(targets.device)
        sampled = ranks if self.order is None else self.order[ranks]  # (S,)
        target_ranks = targets if self.rank is None else self.rank.index_select(0, targets)
        ids, N = torch.cat([targets, sampled]), len(targets)
        weight, bias = (
            self._rows(self.weight, ids),
            self._rows(self.bias, ids),
        )  # (N + S, D), (N + S,)
        expected = log_expected_count(torch.cat([target_ranks, ranks]), self.vocab_size, tries)
        true = _wide((embeddings * weight[:N]).sum(-1) + bias[:N])  # (N,)
        rivals = _wide(F.linear(embeddings, weight[N:], bias[N:]))  # (N, S)
        true, rivals = true - expected[:N].to(true.dtype), rivals - expected[N:].to(true.dtype)
        rivals = rivals.masked_fill(sampled == targets[:, None], -torch.inf)  # accidental hits
        return F.cross_entropy(
            torch.cat([true[:, None], rivals], 1), torch.zeros_like(targets), reduction="sum"
        )

    def _rows(self, table, ids):
        return sparse_rows(table, ids) if self.sparse else table.index_select(0, ids)

    def check_order(self, counts):
        """Whether the sampler fits a corpus: the mean surprise at the corpus's words of one who expects its samples.

        Args:
            counts: (V,) how often each id occurs.

        Returns:
            -Σ share(id) · log P(rank of id), in nats; ln V for a sampler that draws all words alike, less for a good one.

        Raises:
            ValueError: counts of another shape, all zero, or a surprise above ln V: this sampler is worse than a
                uniform one, since the ids are not sorted by frequency, or since no word is much more frequent than others.
        """
        counts = _counts(counts, self.vocab_size)
        ranks = (
            torch.arange(self.vocab_size, device="cpu") if self.rank is None else self.rank.cpu()
        )
        surprise = -log_uniform(ranks, self.vocab_size).log()
        nats = (counts / counts.sum() * surprise).sum().item()
        uniform = math.log(self.vocab_size)
        if nats > uniform:
            best = (
                (counts.sort(descending=True).values / counts.sum() * surprise.sort().values)
                .sum()
                .item()
            )
            remedy = (
                f"in the order of frequency it is {best:.2f}; pass frequency_order=frequency_order(counts)"
                if best < uniform
                else "these words are too evenly frequent for a log-uniform sampler; use SoftmaxLoss"
            )
            raise ValueError(
                f"the sampler's surprise at these words is {nats:.2f} nats, more than ln V = {uniform:.2f}: {remedy}"
            )
        return nats

    def extra_repr(self):
        """What `print(loss)` says of it."""
        return f"{super().extra_repr()}, num_samples={self.num_samples}, sparse={self.sparse}"


def frequency_order(counts):
    """(V,) counts to (V,) ids, the most frequent first; among equals the lower id comes first.

    Raises:
        ValueError: counts that are not one number for each id, negative, or all zero.
    """
    counts = torch.as_tensor(counts, device="cpu")
    return _counts(counts, counts.numel()).argsort(descending=True, stable=True)


def log_uniform(ranks, vocab_size):
    """P(rank) = log((rank + 2) / (rank + 1)) / log(V + 1), in float64 where the device has it: Zipf's law, nearly."""
    ranks = ranks.to(torch.float32 if ranks.device.type == "mps" else torch.float64)
    return (1 / (ranks + 1)).log1p() / math.log(vocab_size + 1)


def log_uniform_sample(vocab_size, num_samples):
    """Draws log-uniform ranks until `num_samples` different ones are there: ((S,) ranks, how many draws that took)."""
    drawn = torch.empty(0, dtype=torch.long, device="cpu")
    while True:
        more = torch.rand(max(2 * num_samples, len(drawn)), dtype=torch.float64, device="cpu")
        more = ((more * math.log(vocab_size + 1)).exp().long() - 1).clamp_(0, vocab_size - 1)
        drawn = torch.cat([drawn, more])
        values, places = drawn.sort(stable=True)
        new = torch.ones_like(values, dtype=torch.bool)
        new[1:] = values[1:] != values[:-1]
        first = places[new].sort().values  # where each rank came for the first time
        if len(first) >= num_samples:
            return drawn[first[:num_samples]], first[num_samples - 1].item() + 1


def log_expected_count(ranks, vocab_size, tries):
    """log(1 − (1 − P(rank))^tries), the logarithm of a rank's chance to be among the samples."""
    return (-torch.expm1(tries * torch.log1p(-log_uniform(ranks, vocab_size)))).log()


class _SparseRows(torch.autograd.Function):
    """`table[ids]` whose gradient holds these rows only; `F.embedding(sparse=True)` for tables of any dimension."""

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


def _permutation(order, vocab_size):
    """A copy of an order of all ids, checked."""
    order = torch.as_tensor(order, device="cpu")
    if order.dtype not in (torch.int64, torch.int32, torch.int16) or order.shape != (vocab_size,):
        raise ValueError(
            f"frequency_order is {order.dtype}, {tuple(order.shape)}; it must be integers ({vocab_size},)"
        )
    order = order.long().clone()
    times = torch.bincount(order.clamp(0, vocab_size - 1), minlength=vocab_size)
    wrong = (order < 0) | (order >= vocab_size) | (times[order.clamp(0, vocab_size - 1)] > 1)
    if wrong.any():
        raise ValueError(
            f"frequency_order holds {order[wrong][0].item()}, outside 0..{vocab_size - 1} or twice; each id stands there once"
        )
    return order


def _wide(logits):
    return logits.float() if logits.dtype.itemsize < 4 else logits


def _counts(counts, vocab_size):
    counts = torch.as_tensor(counts, device="cpu").double()
    if (
        counts.shape != (vocab_size,)
        or not counts.isfinite().all()
        or (counts < 0).any()
        or not counts.sum()
    ):
        raise ValueError(
            f"counts {tuple(counts.shape)} must be one number of 0 or more for each of {vocab_size} ids, not all 0"
        )
    return counts
