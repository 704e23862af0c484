"""Cross-entropy at the positions that carry a label, and nowhere else. Built in lesson 04."""

import torch
import torch.nn.functional as F

IGNORE = -100  # the label of a position that has none, as in PyTorch and transformers


def masked_cross_entropy(logits, labels):
    """Mean negative log-likelihood, in nats, over the positions whose label is not −100.

    Equal to `BertForMaskedLM(..., labels=labels).loss`, and computed only where there is a label: of a batch masked
    at 15% this touches 15% of the logits. Unlike there, half-precision logits are widened to float32 first.

    Args:
        logits: (..., V), floating point.
        labels: (...), integer; −100 means no label.

    Returns:
        A scalar. With no label at all it is 0 and still has a gradient path (transformers gives NaN).

    Raises:
        ValueError: shapes that do not belong together; labels that are not integers; a label outside 0..V−1 that is not −100.
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} do not belong together; "
            "logits need one axis more, of the vocabulary's size"
        )
    if labels.dtype not in (torch.int64, torch.int32, torch.int16):
        raise ValueError(f"labels are {labels.dtype}; they must be token ids, such as torch.long, not a mask or scores")
    vocab_size = logits.shape[-1]
    has_label = labels != IGNORE  # (...)
    targets = labels[has_label].long()  # (N,)
    # On an accelerator this look would make the program wait for the device at each step, so it is left to the kernel.
    if targets.device.type == "cpu" and targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < vocab_size:
        wrong = targets[(targets < 0) | (targets >= vocab_size)][0].item()
        raise ValueError(f"label {wrong} is neither {IGNORE} nor in 0..{vocab_size - 1}, the ids that the logits can name")
    # Logits that were computed only where there is a label are taken as they are: a copy of them would be large.
    picked = logits.reshape(-1, vocab_size) if targets.numel() == labels.numel() else logits[has_label]  # (N, V)
    picked = picked.float() if picked.dtype.itemsize < 4 else picked
    return F.cross_entropy(picked, targets, reduction="sum") / max(1, targets.numel())
