"""The loss of a masked language model: cross-entropy where there is a label. Built in lesson 04."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from mlm_lib.checks import can_read_without_sync, ids, refused, same_shape
from mlm_lib.labels import IGNORE


def masked_cross_entropy(logits, labels):
    """The mean negative log-likelihood, in nats, over the positions whose label is not −100.

    The value is that of `BertForMaskedLM(..., labels=labels).loss`. Only positions with a label are
    computed: if 15% of the tokens of a batch are masked, only 15% of the logits are used. Unlike in
    transformers, half-precision logits are converted to float32 first.

    >>> logits = torch.tensor([[0.0, 0.0], [3.0, -1.0]])  # V = 2; the first row is undecided
    >>> masked_cross_entropy(logits, torch.tensor([1, -100]))  # ln 2, from the first row alone
    tensor(0.6931)

    Args:
        logits: (..., V), floating point.
        labels: (...), torch.long or torch.int32; −100 means that there is no label.

    Returns:
        A scalar. If there is no label at all, it is 0 and has a gradient of 0, whereas transformers
        returns NaN.

    Raises:
        ValueError: the shapes of logits and labels do not fit; the labels have another type; a
            label is neither −100 nor in 0..V−1. On a GPU the values of the labels are not checked
            first, because the program would have to wait. A wrong label then causes an error of
            CUDA.
    """
    same_shape("labels", labels, "the logits but for their last axis", logits[..., 0])
    vocab_size = logits.shape[-1]
    ids("labels", labels, "(...)", size=vocab_size, ignore=IGNORE)

    # 1. Select the positions that have a label. If all positions have one, the logits are used as
    #    they are, because a copy of them would be large.
    has_label = labels != IGNORE  # (...)
    targets = labels[has_label].long()  # (N,)
    all_have_label = targets.numel() == labels.numel()
    selected = logits.reshape(-1, vocab_size) if all_have_label else logits[has_label]  # (N, V)
    # 2. Sum −log softmax(logits)[target], and divide by the number of labels, or by 1 if it is 0.
    return summed_cross_entropy(selected, targets) / max(1, targets.numel())


def weighted_cross_entropy(logits, targets, weights):
    """The weighted mean of the negative log-likelihood: Σ weight · −log P(target) / Σ weight.

    Use it if some targets count more than others. Masked diffusion, for example, gives each row a
    weight (see `diffusion.DiffusionCollator`). If all weights are equal, the result is the mean.
    Here each position has a weight. In `F.cross_entropy(..., weight=...)` each token of the
    vocabulary has a weight. If a batch is split into parts, the loss of the batch is the weighted
    mean of the losses of the parts, where each part counts with the sum of its weights.

    >>> logits = torch.tensor([[0.0, 0.0], [0.0, -100.0]])  # losses of ln 2 and of almost 0
    >>> weighted_cross_entropy(logits, torch.tensor([0, 0]), torch.tensor([1.0, 3.0]))  # ln 2 / 4
    tensor(0.1733)

    Args:
        logits: (N, V), floating point.
        targets: (N,), torch.long or torch.int32, each in 0..V−1.
        weights: (N,), floating point, 0 or larger.

    Returns:
        A scalar in nats, of type float32 or float64. If there is no target, or if all weights are
        0, it is 0 and has a gradient of 0.

    Raises:
        ValueError: shapes do not fit; a target is outside 0..V−1; a weight is negative or not
            finite. Values on a GPU are not checked, because the program would have to wait.
    """
    ids("targets", targets, "(N,)", size=logits.shape[1])
    same_shape("targets", targets, "a column of the logits", logits[:, 0])
    same_shape("weights", weights, "targets", targets)
    if can_read_without_sync(weights) and not ((weights >= 0) & weights.isfinite()).all():
        raise refused("weights", weights.tolist(), "finite numbers of 0 or more")
    nats = F.cross_entropy(at_least_float32(logits), targets.long(), reduction="none")  # (N,)
    total = weights.sum()
    return (nats * weights).sum() / total.where(total > 0, 1)


# ------------------------------------------------------------------------------------ in parts
#
# Cross-entropy computed a few rows at a time, so that nothing as large as the logits is stored.
#
# For half-precision logits, N × V, `F.cross_entropy` writes four tensors of their size: a float32
# copy, the log-probabilities, the gradient of these, and the gradient of the copy. But the gradient
# of −log softmax(x)[t] is softmax(x) − onehot(t), as the lesson on the loss derives. The softmax of
# a row needs only two numbers besides the logits: their maximum m, and Σ exp(x − m). So only these
# two are stored. The backward pass computes the softmax again, in parts that fit into the cache of
# the CPU.

PART = 2**20  # logits computed at once: 4 MB of float32


def at_least_float32(logits):
    """Convert half-precision numbers to float32; leave float32 and float64 as they are.

    A softmax sums exponentials over the whole vocabulary, and half precision has too few digits for
    such a sum.
    """
    return logits.float() if logits.dtype.itemsize < 4 else logits


def summed_cross_entropy(logits, targets):
    """The sum of −log softmax(logits)[target] over N targets, in nats.

    Args:
        logits: (N, V), floating point.
        targets: (N,), long, each in 0..V−1. This function does not check them.

    Returns:
        A scalar, of type float32 or float64.
    """
    # For float32 logits PyTorch's function is used. The gain would be only a fifth of the gain for
    # half precision, and with PyTorch's function the last bits of a training step agree with
    # transformers.
    halves = logits.dtype.itemsize < 4 and logits.device.type == "cpu"
    if halves and logits.numel() > PART and not torch.compiler.is_compiling():
        return _CrossEntropyInParts.apply(logits, targets)
    return F.cross_entropy(at_least_float32(logits), targets, reduction="sum")


class _CrossEntropyInParts(torch.autograd.Function):
    """The sum of −log softmax(logits)[target], with a backward pass of its own.

    The comment above this class explains how.
    """

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
        of_targets = logits.gather(1, targets[:, None]).squeeze(1)  # (N,)
        return (sums.log() - (of_targets - highest)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, scale):
        logits, targets, highest, sums = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        columns = (logits, targets, highest, scale / sums, gradient)
        for part, some, high, factor, out in zip(*(column.split(ctx.rows) for column in columns)):
            wide = (part - high[:, None]).exp_().mul_(factor[:, None])  # scale · softmax
            wide[torch.arange(len(some)), some] -= scale  # minus scale · one-hot
            out.copy_(wide)
            del wide  # free the memory before the next part is computed
        return gradient, None
