"""Runs of neighbouring words, with SpanBERT's lengths and an exact rate. A task of lesson 02.

Source: Joshi et al. 2020 (SpanBERT). There spans are drawn until 15% of a text is covered; here
each word may start one, with a chance that covers every word with probability `rate` exactly.
"""

import math
from functools import lru_cache

import torch

from mlm_lib.checks import probability

SPAN_P, SPAN_MAX = 0.2, 10  # lengths: geometric, at most ten words, 3.8 on average


def draw_spans(shape, rate, *, generator=None, device="cpu"):
    """Which of (B, W) words lie in a span, as bool; each does with probability `rate`.

    Raises:
        ValueError: a rate that is no probability.
    """
    rows, words = shape
    start_chance, cumulative = span_law(probability("rate", rate))
    # 1. A span may start anywhere, also at the nine words before the row, so that the first word
    #    of a row is reached as often as one in the middle.
    wide = (rows, words + SPAN_MAX - 1)
    starts = torch.rand(wide, generator=generator, device=device) < start_chance
    # 2. Its length: the place of a uniform number in the lengths' cumulative law.
    uniform = torch.rand(wide, generator=generator, device=device)
    lengths = 1 + torch.bucketize(uniform, cumulative.to(device))
    # 3. A word lies in a span if one that has started by then ends after it.
    place = torch.arange(wide[1], device=device)
    ends = torch.where(starts, place + lengths, 0)  # the first word after the span
    return (ends.cummax(1).values > place)[:, SPAN_MAX - 1 :]  # (B, W)


@lru_cache
def span_law(rate):
    """The chance to start a span at a word, and the cumulative law of the lengths 1..9.

    A word is free if none of the spans reaches it that start k = 0..9 words before, each with
    chance s: rate = 1 − Π (1 − s · P(length > k)). The right side rises with s, so halving finds s.

    >>> chance, lengths = span_law(0.15)
    >>> round(chance, 4), [round(share, 2) for share in lengths.tolist()[:3]]
    (0.0422, [0.22, 0.4, 0.55])
    """
    weights = [(1 - SPAN_P) ** k for k in range(SPAN_MAX)]
    reach = [sum(weights[k:]) / sum(weights) for k in range(SPAN_MAX)]  # P(length > k)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        covered = 1 - math.prod(1 - middle * share for share in reach)
        low, high = (middle, high) if covered < rate else (low, middle)
    return high, torch.tensor([1 - share for share in reach[1:]])
