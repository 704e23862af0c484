"""How sure a measured number is: standard errors of losses, and confidence intervals of means.

Two questions come up whenever a model is measured. *How much would this loss change with other
texts?* `Estimate` answers with a standard error over texts. *How much would this result change with
another seed?* `interval` and `paired` answer with a confidence interval over a few runs. Built in
lesson 14.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from mlm_lib.checks import number, refused, whole_number

# ------------------------------------------------------------------------------------ over texts


class Estimate(NamedTuple):
    """A mean loss with its standard error.

    The standard error treats texts as independent of one another, but not the words of one text,
    because a text that is hard to predict tends to be hard at all of its words.

    - nats: the mean over all words, in nats per word.
    - standard_error: the standard error of this mean, in the same unit.
    - count: the number of words.
    """

    nats: float
    standard_error: float
    count: int

    @classmethod
    def of_rows(cls, sums, counts, *, alone=math.nan):
        """The estimate from the total loss of each row and the number of words in each row.

        Both totals vary from row to row, so the mean is a ratio of two sums. Its standard error is
        that of the ratio estimator: √(R / (R − 1) · Σ (sum − mean · count)²) / Σ count.

        >>> import torch
        >>> Estimate.of_rows(torch.tensor([4.0, 8.0]), torch.tensor([2, 2]))
        Estimate(nats=3.0, standard_error=1.0, count=4)

        Args:
            sums: (R,) the loss of each row, summed over its words, in nats.
            counts: (R,) the number of words of each row.
            alone: the standard error to report if there is only one row, from which no spread can
                be computed.

        Returns:
            An object of this class, so that a subclass such as `Floor` can be made in this way.
        """
        nats, count = sums.sum() / counts.sum(), int(counts.sum())
        if len(sums) == 1:
            return cls(nats.item(), alone, count)
        spread = ((sums - nats * counts) ** 2).sum() * len(sums) / (len(sums) - 1)
        return cls(nats.item(), (spread.sqrt() / count).item(), count)


# ------------------------------------------------------------------------------------ over runs


class Interval(NamedTuple):
    """A mean with its confidence interval, all in the unit of the values.

    In an f-string, the format applies to the mean and to half of the interval's width:

    >>> f"{Interval(0.5, 0.4, 0.6, count=3):.2f}"
    '0.50 ± 0.10'

    - mean: the mean of the values.
    - low, high: the two ends of the interval.
    - count: the number of values.
    """

    mean: float
    low: float
    high: float
    count: int

    def __format__(self, spec):
        return f"{self.mean:{spec}} ± {(self.high - self.low) / 2:{spec}}"

    def excludes(self, value):
        """Whether `value` is outside the interval.

        `excludes(0)` asks whether a difference is more than chance: if it is True, the data would
        be surprising if the true difference were 0.
        """
        return not self.low <= value <= self.high


def interval(values, *, confidence=0.95):
    """The confidence interval of a mean, from a few independent values, such as one loss per seed.

    The interval is mean ± t · s / √n, where s is the standard deviation of the n values and t is
    the quantile of Student's t distribution with n − 1 degrees of freedom (Student 1908). For three
    values t is 4.30, more than twice the 1.96 of the normal distribution, because s itself is
    uncertain when it comes from so few values. The values should be roughly normally distributed.
    The interval shows only chance; an error that all runs share does not change it.

    >>> f"{interval([2.0, 3.0, 4.0]):.2f}"
    '3.00 ± 2.48'

    Args:
        values: two numbers or more.
        confidence: how often an interval made in this way contains the true mean, between 0 and 1.

    Returns:
        An `Interval`.

    Raises:
        ValueError: fewer than two values, a value that is not a finite number, or a confidence that
            is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise refused("confidence", confidence, "a number between 0 and 1")
    values = [number("a value", value) for value in values]
    count = whole_number("the number of values", len(values), least=2)
    mean, error = np.mean(values), np.std(values, ddof=1) / np.sqrt(count)
    half_width = float(stats.t.ppf((1 + confidence) / 2, count - 1) * error)
    return Interval(float(mean), float(mean) - half_width, float(mean) + half_width, count)


def paired(values, others, *, confidence=0.95):
    """The confidence interval of the mean difference between two arms that share their seeds.

    Two arms of an experiment that run with the same seeds start from the same weights and read the
    data in the same order. An effect of the seed on both arms cancels in the difference, so this
    interval is often much narrower than the intervals of the two arms suggest.

    >>> f"{paired([1.3, 2.4, 3.2], [1.0, 2.0, 3.0]):.2f}"
    '0.30 ± 0.25'

    Args:
        values, others: the results of the two arms, in the same order of seeds.
        confidence: as in `interval`.

    Returns:
        An `Interval` of `values` minus `others`.

    Raises:
        ValueError: the two arms have different numbers of results, or `interval` refuses the
            differences.
    """
    differences = [a - b for a, b in zip(values, others, strict=True)]
    return interval(differences, confidence=confidence)
