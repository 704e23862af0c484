import numpy as np
import pytest
from scipy import stats

from mlm_lib.evaluation import Interval, interval, paired


def test_the_interval_is_that_of_students_t():
    values = np.random.default_rng(0).normal(size=7)
    mine = interval(values, confidence=0.9)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert np.allclose([mine.low, mine.high], [theirs.low, theirs.high])
    assert mine.count == 7 and np.isclose(mine.mean, values.mean())


def test_three_values_by_hand():
    low, high = 3 - 4.302653 / np.sqrt(3), 3 + 4.302653 / np.sqrt(3)
    assert np.allclose(interval([2, 3, 4]), Interval(3.0, low, high, 3), atol=1e-6)


def test_95_of_100_intervals_hold_the_truth():
    draws = np.random.default_rng(1).normal(5, 2, size=(4000, 3))
    held = np.mean([not interval(three).excludes(5) for three in draws])
    assert abs(held - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000)


def test_pairs_lose_what_both_share():
    luck = np.random.default_rng(2).normal(size=5)
    difference = paired(luck + [0.3, 0.2, 0.3, 0.2, 0.3], luck)
    assert difference.excludes(0) and np.isclose(difference.mean, 0.26)
    assert not Interval(0.1, 0.0, 0.2, 3).excludes(0.2)


def test_equal_values_have_an_interval_of_no_width():
    assert interval([0.5, 0.5]) == Interval(0.5, 0.5, 0.5, 2)


@pytest.mark.parametrize(
    "values, options, message",
    [
        ([1.0], {}, "the number of values=1"),
        ([1.0, float("nan")], {}, "a value=nan"),
        (["0.1", 1.0], {}, "a value='0.1'"),
        ([1.0, 2.0], {"confidence": 1.0}, "confidence=1.0"),
        ([1.0, 2.0], {"confidence": 95}, "confidence=95"),
        (3.0, {}, "values=3.0"),
    ],
)
def test_what_has_no_interval_is_refused(values, options, message):
    with pytest.raises(ValueError, match=message):
        interval(values, **options)


def test_pairs_of_unequal_number_are_refused():
    with pytest.raises(ValueError, match="2 and 3 values"):
        paired([1, 2], [1, 2, 3])
