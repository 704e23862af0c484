"""How sure a mean over a few runs is: Student's t. Lessons 13 and 14 read experiments with it."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from mlm_lib.checks import iterable, number, refused, whole_number


class Interval(NamedTuple):
    """A mean with its confidence interval, all in the unit of the values.

    >>> f"{Interval(0.5, 0.4, 0.6, count=3):.2f}"
    '0.50 ± 0.10'
    """

    mean: float
    low: float
    high: float
    count: int

    def __format__(self, spec):
        return f"{self.mean:{spec}} ± {(self.high - self.low) / 2:{spec}}"

    def excludes(self, value):
        """Whether `value` lies outside: the data and a true mean of `value` hardly agree."""
        return not self.low <= value <= self.high


def interval(values, *, confidence=0.95):
    """The confidence interval of a mean, for a few independent values such as one a seed.

    It is mean ± t · s / √n with the quantile of Student's t at n − 1 degrees of freedom (Student
    1908), which is 4.30 for three values where the normal law has 1.96. It holds where the values
    scatter normally, and tells of chance alone, of no error that all runs share.

    Raises:
        ValueError: fewer than two values, one that is no finite number, or a confidence that does
            not lie between 0 and 1.

    >>> f"{interval([2.0, 3.0, 4.0]):.2f}"
    '3.00 ± 2.48'
    """
    if number("confidence", confidence, above=0) >= 1:
        raise refused("confidence", confidence, "a number between 0 and 1")
    values = [number("a value", value) for value in iterable("values", values, "numbers")]
    count = whole_number("the number of values", len(values), least=2)
    mean, error = np.mean(values), np.std(values, ddof=1) / np.sqrt(count)
    reach = float(stats.t.ppf((1 + confidence) / 2, count - 1) * error)
    return Interval(float(mean), float(mean) - reach, float(mean) + reach, count)


def paired(values, others, *, confidence=0.95):
    """The interval of `values` less `others`, where the k-th of both share their luck.

    Two arms of an experiment run with the same seeds share initial weights and order of data. What
    a seed does to both of them falls out of the difference, which the two intervals apart would
    count twice.

    Raises:
        ValueError: unequal lengths, and what `interval` refuses.

    >>> f"{paired([1.3, 2.4, 3.2], [1.0, 2.0, 3.0]):.2f}"
    '0.30 ± 0.25'
    """
    values, others = list(values), list(others)
    if len(values) != len(others):
        lengths = f"{len(values)} and {len(others)}"
        raise ValueError(f"{lengths} values; pairs need as many of the one as of the other")
    return interval([a - b for a, b in zip(values, others)], confidence=confidence)
