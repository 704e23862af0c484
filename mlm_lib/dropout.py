"""Dropout by four decisions from one random number. Lesson 06 builds the encoder that it serves.

Random numbers are the dearest part of dropout on a processor: `F.dropout` draws one for each value,
and that took a fifth of a training step in bf16. One number of 64 bits holds four of 16 bits, and
16 bits are enough to decide. `python -m benchmarks.dropout` compares the two.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.checks import probability

LEVELS = 2**16  # what 16 bits can tell apart


def drop(values, share):
    """Dropout (Srivastava et al. 2014): a value is 0 with chance p, else 1/(1 − p) times itself.

    Unbiased: a value v has the mean p · 0 + (1 − p) · v/(1 − p) = v. The p that decides and the p
    of the factor are the same, `share` rounded to 1/65,536 (0.1 is 0.100006), so that rounding
    changes how much is dropped, by 0.00001 at most, and not the mean. The factor has the precision
    of the values: in bf16, 1/0.9 is 1.109, as in `F.dropout`.

    Args:
        values: (...), floating point, on any device; off the CPU, `F.dropout` is called.
        share: p, the chance of each value to be dropped.

    Returns:
        A new tensor (...). Where a value was dropped, its gradient is 0 as well.

    Raises:
        ValueError: a share that is no probability.

    >>> drop(torch.ones(3), 1.0)
    tensor([0., 0., 0.])
    """
    cut = round(probability("share", share) * LEVELS)  # p = cut / 65,536
    if values.device.type != "cpu" or cut in (0, LEVELS):
        return F.dropout(values, share)
    # 1) Draw a quarter as many numbers of 64 bits as there are values, and read each as four of 16.
    count = values.numel()
    wide = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    narrow = wide.view(torch.int16)[:count].view(values.shape)  # −32,768..32,767, all as likely
    # 2) `cut` of these 65,536 numbers drop their value; the others keep it.
    kept = narrow >= cut - LEVELS // 2
    # 3) Multiply by 0 or by 1/(1 − p).
    return values * kept.to(values.dtype).mul_(LEVELS / (LEVELS - cut))


class Dropout(nn.Dropout):
    """`nn.Dropout` by way of `drop`: it acts in training only.

    Args:
        share: the chance of each value to be dropped.

    Raises:
        ValueError: a share that is no probability.
    """

    def __init__(self, share):
        super().__init__(probability("dropout", share))

    def forward(self, values):
        """(...) to (...)."""
        return drop(values, self.p) if self.training else values
