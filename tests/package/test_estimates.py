"""Confidence intervals of a mean over a few runs, and the standard error of a mean over texts."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from mlm_lib.estimates import Estimate, Interval, interval, paired


def test_the_interval_is_that_of_students_t():
    values = np.random.default_rng(0).normal(size=7)
    mine = interval(values, confidence=0.9)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert np.allclose([mine.low, mine.high], [theirs.low, theirs.high])
    assert mine.count == 7 and np.isclose(mine.mean, values.mean())
    low, high = 3 - 4.302653 / np.sqrt(3), 3 + 4.302653 / np.sqrt(3)
    assert np.allclose(interval([2, 3, 4]), Interval(3.0, low, high, 3), atol=1e-6)
    assert interval([0.5, 0.5]) == Interval(0.5, 0.5, 0.5, 2)


def test_pairs_lose_what_both_share():
    luck = np.random.default_rng(2).normal(size=5)
    difference = paired(luck + [0.3, 0.2, 0.3, 0.2, 0.3], luck)
    assert difference.excludes(0) and np.isclose(difference.mean, 0.26)
    assert not Interval(0.1, 0.0, 0.2, 3).excludes(0.2)
    with pytest.raises(ValueError):
        paired([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    "values, confidence, message",
    [
        ([1.0], 0.95, "the number of values=1"),
        ([1.0, math.nan], 0.95, "a value=nan"),
        ([1.0, 2.0], 1.0, "confidence=1.0"),
        ([1.0, 2.0], 95, "confidence=95"),
        ([1.0, 2.0], math.nan, "confidence=nan"),
    ],
)
def test_what_has_no_interval_is_refused(values, confidence, message):
    with pytest.raises(ValueError, match=message):
        interval(values, confidence=confidence)


def test_the_standard_error_is_that_of_texts_and_not_of_words():
    """Means of many samples of ten texts scatter as the estimate of one sample says on average."""
    draw = torch.Generator().manual_seed(0)
    hard = torch.randn(4000, 10, generator=draw).double()  # how hard each text is, at all its words
    counts = torch.randint(1, 30, (4000, 10), generator=draw)
    found = [Estimate.of_rows((row + 3) * count, count) for row, count in zip(hard, counts)]
    scatter = torch.tensor([one.nats for one in found]).std().item()
    said = torch.tensor([one.standard_error for one in found]).square().mean().sqrt().item()
    assert (
        said == pytest.approx(scatter, rel=0.1) and said > 2 / counts.sum(1).float().mean() ** 0.5
    )


def test_one_row_alone_has_no_standard_error():
    one = torch.tensor([3.0]), torch.tensor([2])
    assert Estimate.of_rows(*one)[:1] == (1.5,) and math.isnan(Estimate.of_rows(*one)[1])
    assert Estimate.of_rows(*one, alone=math.inf) == (1.5, math.inf, 2)
