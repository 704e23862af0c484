"""Cross-entropy at the positions that carry a label. Built in lesson 04."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from mlm_lib.checks import can_look, ids, refused, same_shape
from mlm_lib.labels import IGNORE


def masked_cross_entropy(logits, labels):
    """Mean negative log-likelihood, in nats, over the positions whose label is not −100.

    Equal to `BertForMaskedLM(..., labels=labels).loss`, and computed only where there is a label:
    of a batch masked at 15% this touches 15% of the logits. Unlike there, half-precision logits are
    widened to float32 first.

    >>> import torch
    >>> logits = torch.tensor([[0.0, 0.0], [3.0, -1.0]])  # two words; the first row knows nothing
    >>> masked_cross_entropy(logits, torch.tensor([1, -100]))  # ln 2
    tensor(0.6931)

    Args:
        logits: (..., V), floating point.
        labels: (...), torch.long or torch.int32; −100 means no label.

    Returns:
        A scalar. With no label at all it is 0 and still has a gradient path (transformers: NaN).

    Raises:
        ValueError: shapes that do not belong together, labels of another type, or a label outside
            0..V−1 that is not −100 (which on an accelerator is left to the kernel to find).
    """
    same_shape("labels", labels, "the logits but for their last axis", logits[..., 0])
    vocab_size = logits.shape[-1]
    ids("labels", labels, "(...)", size=vocab_size, ignore=IGNORE)

    # 1. Pick the positions with a label. Logits that were computed only there are taken as they
    #    are: a copy of them would be large.
    has_label = labels != IGNORE  # (...)
    targets = labels[has_label].long()  # (N,)
    all_have_one = targets.numel() == labels.numel()
    picked = logits.reshape(-1, vocab_size) if all_have_one else logits[has_label]  # (N, V)
    # 2. Sum −log softmax(logits)[target], and divide by how many there are, or by 1 for none.
    return summed_cross_entropy(picked, targets) / max(1, targets.numel())


def weighted_cross_entropy(logits, targets, weights):
    """Σ weight · −log P(target) / Σ weight, in nats: the mean if all weights are equal. Lesson 15.

    As `F.cross_entropy(…, weight=…)` has it, but the weights are those of the answers and not of
    the vocabulary. Of parts of a batch, each counted as the sum of its weights, the mean is that of
    the batch.

    >>> import torch
    >>> logits = torch.tensor([[0.0, 0.0], [0.0, -100.0]])  # ln 2, and next to nothing
    >>> weighted_cross_entropy(logits, torch.tensor([0, 0]), torch.tensor([1.0, 3.0]))
    tensor(0.1733)

    Args:
        logits: (N, V), floating point.
        targets: (N,), torch.long or torch.int32, each in 0..V−1.
        weights: (N,), floating point, 0 or more.

    Returns:
        A scalar of float32 at least. With no target at all it is 0 and still has a gradient path.

    Raises:
        ValueError: shapes that do not belong together, a target outside 0..V−1, or a weight that is
            negative or not finite.
    """
    ids("targets", targets, "(N,)", size=logits.shape[1])
    same_shape("targets", targets, "a column of the logits", logits[:, 0])
    same_shape("weights", weights, "targets", targets)
    if can_look(weights) and not ((weights >= 0) & weights.isfinite()).all():
        raise refused("weights", weights.tolist(), "finite numbers of 0 or more")
    nats = F.cross_entropy(at_least_float32(logits), targets.long(), reduction="none")  # (N,)
    total = weights.sum()
    return (nats * weights).sum() / total.where(total > 0, 1)


# ------------------------------------------------------------------------------------ in parts
#
# Cross-entropy a few rows at a time: nothing as large as the logits is kept.
#
# `F.cross_entropy` of N × V half-precision logits writes four tensors of their size: a float32
# copy, log-probabilities, their gradient, and that of the copy. But the gradient of
# −log softmax(x)[t] is softmax(x) − onehot(t), which lesson 04 derives, and a row's softmax needs
# two numbers besides the logits: their maximum m and Σ exp(x − m). So these are kept, and the rest
# is made again on the way back, in parts that stay in the processor's cache.

PART = 2**20  # logits at once: 4 MB of float32


def at_least_float32(logits):
    """Half-precision numbers widened: a sum over a vocabulary of exponentials needs the digits."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def summed_cross_entropy(logits, targets):
    """Σ −log softmax(logits)[target], in nats, as a scalar of float32 at least.

    Args:
        logits: (N, V), floating point.
        targets: (N,), long, each in 0..V−1; the caller sees to that.
    """
    # float32 logits are left to torch, as in transformers: there the gain is a fifth of this one,
    # and the last bits of a step agree with theirs.
    halves = logits.dtype.itemsize < 4 and logits.device.type == "cpu"
    if halves and logits.numel() > PART and not torch.compiler.is_compiling():
        return _ByParts.apply(logits, targets)
    return F.cross_entropy(at_least_float32(logits), targets, reduction="sum")


class _ByParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        ctx.rows = max(1, PART // logits.shape[1])
        highest = at_least_float32(logits.amax(1))  # (N,)
        sums = torch.empty_like(highest)  # (N,)
        parts = zip(logits.split(ctx.rows), highest.split(ctx.rows), sums.split(ctx.rows))
        for part, high, out in parts:
            torch.sum((part - high[:, None]).exp_(), 1, out=out)
        ctx.save_for_backward(logits, targets, highest, sums)
        # −log softmax(x)[t] = log Σ exp(x − m) − (x[t] − m)
        answers = logits.gather(1, targets[:, None]).squeeze(1)
        return (sums.log() - (answers - highest)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, scale):
        logits, targets, highest, sums = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        columns = (logits, targets, highest, scale / sums, gradient)
        for part, answers, high, factor, out in zip(*(some.split(ctx.rows) for some in columns)):
            wide = (part - high[:, None]).exp_().mul_(factor[:, None])  # scale · softmax
            wide[torch.arange(len(answers)), answers] -= scale  # minus scale · one-hot
            out.copy_(wide)
            del wide  # or it would live on while the next part is made
        return gradient, None
