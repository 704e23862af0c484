"""What a masked language model is worth: its losses, its answers, its trust in itself. Lesson 12.

`answers.py` asks the model, once; every measure here is a few lines over what it found.
"""

import math
from typing import NamedTuple

import torch

from mlm_lib.answers import Answers, masked_answers  # noqa: F401
from mlm_lib.blanks import fill_mask  # noqa: F401
from mlm_lib.checks import as_tensor, floats, ids, integers, iterable, number, whole_number
from mlm_lib.pseudo_likelihood import pseudo_log_likelihood, pseudo_perplexity  # noqa: F401


class MaskedLoss(NamedTuple):
    """nats: the mean over hidden tokens. standard_error: of it, by rows. count: hidden tokens."""

    nats: float
    standard_error: float
    count: int


class Band(NamedTuple):
    """Tokens that the training text holds from `least` to below `most` times."""

    least: int
    most: float
    accuracy: float
    nats: float
    count: int


class Calibration(NamedTuple):
    """error: the expected calibration error, from 0 to 1. Per bin that holds anything, in rising
    order: the mean confidence, the share of right first answers, and how many answers it holds."""

    error: float
    confidence: torch.Tensor
    accuracy: torch.Tensor
    count: torch.Tensor


def masked_loss(model, batches):
    """The mean of -log P over all hidden tokens, each counted once, and how sure that number is.

    A mean of batches' means would count tokens of sparsely masked batches more. The standard error
    treats rows as drawn independently and the tokens of a row as one draw (a ratio estimate), since
    what makes one word of a text hard makes others hard.

    Args:
        model, batches: as of `masked_answers`.

    Returns:
        `MaskedLoss`, in nats; its standard error is `inf` where only one row was asked.

    Raises:
        ValueError: as `masked_answers`.
    """
    return mean_nats(masked_answers(model, batches))


def mean_nats(answers):
    """`masked_loss` of answers that were collected before."""
    rows = answers.rows.unique(return_inverse=True)[1]
    sums = torch.zeros(int(rows.max()) + 1, dtype=torch.float64).index_add(0, rows, answers.nats)
    counts = rows.bincount().double()  # (rows,)
    count, nats = len(rows), (sums.sum() / counts.sum()).item()
    if len(sums) == 1:
        return MaskedLoss(nats, math.inf, count)
    spread = ((sums - nats * counts) ** 2).sum() * len(sums) / (len(sums) - 1)
    return MaskedLoss(nats, (spread.sqrt() / count).item(), count)


def masked_accuracy(model, batches, *, top_k=1):
    """The share of hidden tokens, from 0 to 1, that are among the model's `top_k` likeliest.

    Args:
        model, batches: as of `masked_answers`.
        top_k: how many guesses count.

    Raises:
        ValueError: as `masked_answers`; a `top_k` below 1.
    """
    top_k = whole_number("top_k", top_k)
    return (masked_answers(model, batches).ranks < top_k).double().mean().item()


def by_frequency(answers, counts, *, edges=(1, 10, 100, 1000, 10_000)):
    """Answers sorted by how often the training text holds the hidden token.

    Args:
        answers: of `masked_answers`.
        counts: (V,) whole numbers, of each token, as `bincount` of the training ids gives them.
        edges: rising; the first band lies below the first edge, the last from the last edge on.

    Returns:
        A list of `Band`, of those that hold a hidden token.

    Raises:
        ValueError: a hidden token outside of `counts`, counts below 0 or not whole, edges that do
            not rise.
    """
    edges = [whole_number("edges", edge) for edge in iterable("edges", edges, "whole numbers")]
    if not edges or edges != sorted(set(edges)):
        raise ValueError(f"edges={edges}; rising numbers are needed, such as 1, 10, 100")
    counts = integers("counts", as_tensor("counts", counts, "cpu"), "(V,)")
    if (counts < 0).any():
        raise ValueError(f"counts holds {counts.min().item()}; a number of at least 0 is needed")
    ids("answers.targets", answers.targets, "(N,)", size=len(counts))
    often = counts[answers.targets]  # (N,)
    bands = []
    for least, most in zip([0, *edges], [*edges, math.inf]):
        part = (often >= least) & (often < most)
        if part.any():
            right, nats = (answers.ranks[part] == 0).double(), answers.nats[part]
            band = Band(least, most, right.mean().item(), nats.mean().item(), int(part.sum()))
            bands.append(band)
    return bands


def calibration(probabilities, targets, *, bins=15):
    """Is what a model is 70% sure of right in 70% of cases?

    The expected calibration error: answers are sorted by confidence, the largest probability, into
    bins of equal width; the distance of mean confidence and accuracy is averaged over answers.
    Source: Naeini et al. 2015; Guo et al. 2017.

    Args:
        probabilities: (N, V), rows that sum to 1.
        targets: (N,) the right tokens.
        bins: how many of equal width between 0 and 1.

    Returns:
        `Calibration`; bins without an answer are left out.

    Raises:
        ValueError: what is no distribution, targets outside of it, no answers.
    """
    bins = whole_number("bins", bins)
    probabilities = floats("probabilities", probabilities, "(N, V)").detach().cpu()
    targets = ids("targets", targets, "(N,)").cpu()
    ids("targets", targets, "(N,)", size=probabilities.shape[1])
    if not len(targets) or len(targets) != len(probabilities):
        pair = f"{len(probabilities)} rows of probabilities and {len(targets)} targets"
        raise ValueError(f"{pair}; one target for each row is needed, and one row at least")
    least, sums = probabilities.amin(-1), probabilities.sum(-1, dtype=torch.float64)  # (N,)
    rounding = max(1e-3, 2 * torch.finfo(probabilities.dtype).eps)
    wrong = ~((least >= 0) & ((sums - 1).abs() < rounding))  # NaN is wrong, too
    if wrong.any():
        row = f"a row of least {least[wrong][0]:.4g} and sum {sums[wrong][0]:.4g}"
        raise ValueError(
            f"probabilities holds {row}; numbers from 0 that sum to 1, as of softmax, are needed"
        )
    best, first = probabilities.max(-1)  # (N,)
    best, right = best.double(), (first == targets).double()
    # Bins are open below and closed above. Rounded as the confidences are, 0.2 is not above 1/5.
    ends = torch.arange(1, bins + 1, dtype=torch.float64) / bins
    place = torch.bucketize(best, ends.to(probabilities.dtype).double()).clamp(max=bins - 1)
    count = place.bincount(minlength=bins)
    held = count > 0
    confidence = place.bincount(best, minlength=bins)[held] / count[held]
    accuracy = place.bincount(right, minlength=bins)[held] / count[held]
    error = ((confidence - accuracy).abs() * count[held]).sum() / len(targets)
    return Calibration(error.item(), confidence, accuracy, count[held])


def closed_gap(loss, start, floor):
    """The share of what there is to learn that was learned: 0 at `start`, 1 at the floor.

    >>> closed_gap(2.0, start=4.0, floor=1.5)
    0.8

    Args:
        loss: the model's, in nats.
        start: of a reader who learned nothing, as the entropy of word frequencies.
        floor: of the ideal reader.

    Raises:
        ValueError: a start that is not above the floor.
    """
    loss, start, floor = (
        number(name, value) for name, value in (("loss", loss), ("start", start), ("floor", floor))
    )
    if start <= floor:
        raise ValueError(f"start={start} is not above floor={floor}; a start above it is needed")
    return (start - loss) / (start - floor)
