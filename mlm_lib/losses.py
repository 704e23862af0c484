"""Cross-entropy at the positions that carry a label. Built in lesson 04."""

import torch.nn.functional as F

from mlm_lib.checks import floats, ids, same_shape, tensor
from mlm_lib.cross_entropy import at_least_float32, summed_cross_entropy
from mlm_lib.labels import IGNORE
from mlm_lib.softmax import (  # noqa: F401 (lesson 11 and the models import the softmax from here)
    SampledSoftmaxLoss,
    SoftmaxLoss,
    frequency_order,
    log_expected_count,
    log_uniform,
    log_uniform_sample,
    sparse_rows,
)


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
    floats("logits", logits, "(..., V)")
    tensor("labels", labels, "(...)")
    if logits.dim() == 0 or logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits are {tuple(logits.shape)} and labels {tuple(labels.shape)}; "
            "logits with one axis more, of the vocabulary's size, are needed"
        )
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
        ValueError: shapes that do not belong together, or a target outside 0..V−1.
    """
    floats("logits", logits, "(N, V)")
    ids("targets", targets, "(N,)", size=logits.shape[1])
    same_shape("targets", targets, "a column of the logits", logits[:, 0])
    same_shape("weights", floats("weights", weights, "(N,)"), "targets", targets)
    nats = F.cross_entropy(at_least_float32(logits), targets.long(), reduction="none")  # (N,)
    total = weights.sum()
    return (nats * weights).sum() / total.where(total > 0, 1)
