"""Cross-entropy a few rows at a time: nothing as large as the logits is kept. Serves lesson 04.

`F.cross_entropy` of N × V half-precision logits writes four tensors of their size: a float32 copy,
log-probabilities, their gradient, and that of the copy. But the gradient of −log softmax(x)[t] is
softmax(x) − onehot(t), which lesson 04 derives, and a row's softmax needs two numbers besides the
logits: their maximum m and Σ exp(x − m). So these are kept, and the rest is made again on the way
back, in parts that stay in the processor's cache.
"""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

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
