"""Convert masked-LM labels between the formats of four libraries. Built in lesson 03.

Every format says the same: which tokens of a batch are predicted, and what their original ids are.
Convert when the batch of one library feeds the model of another::

    format      shape        content                                            used by
    labels      (B, T)       the id at predicted tokens, −100 elsewhere         torch, transformers
    minus one   (B, T)       the same with −1 in place of −100                  older code
    positions   3 × (B, M)   positions, ids, and weights that are 0 if unused   KerasHub
    targets     2 × (B, M)   positions, and ids that are −100 if unused         AllenNLP

T is the length of a row. M is the number of slots per row. It is at least as large as the largest
number of labels in a row, and rows with fewer labels leave slots unused.
"""

import torch

from mlm_lib.checks import ids, refused, same_shape
from mlm_lib.engine.batches import IGNORE

LARGEST = 2**31 - 1  # above any id, so that only negative labels other than −100 are refused


def labels_to_positions(labels, max_masks=None):
    """Convert labels (B, T) to KerasHub's format: positions, ids and weights.

    >>> labels = torch.tensor([[-100, 7, -100, 9], [5, -100, -100, -100]])
    >>> [field.tolist() for field in labels_to_positions(labels)]
    [[[1, 3], [0, 0]], [[7, 9], [5, 0]], [[1.0, 1.0], [1.0, 0.0]]]

    Args:
        labels: (B, T), torch.long or torch.int32, −100 at tokens that are not predicted.
        max_masks: M, the number of slots per row. None: the largest number of labels in a row.

    Returns:
        mask_positions (B, M) long, mask_ids (B, M) long and mask_weights (B, M) float. The weight
        is 1 in used slots. Unused slots have position 0, id 0 and weight 0.

    Raises:
        ValueError: `labels` is not such a tensor, or contains a negative number other than −100;
            a row has more than `max_masks` labels. If the surplus labels were dropped, the loss
            would change without a message.
    """
    ids("labels", labels, "(B, T)", size=LARGEST, ignore=IGNORE)
    has_label = labels != IGNORE  # (B, T)
    counts = has_label.sum(1)  # (B,)
    most = int(counts.max()) if len(counts) else 0
    max_masks = most if max_masks is None else max_masks
    if most > max_masks:
        raise ValueError(f"a row has {most} labels, and max_masks is {max_masks}; raise it")
    # The k-th label of a row goes to slot k. The cumulative sum numbers the labels of a row.
    rows, columns = has_label.nonzero(as_tuple=True)  # (N,), (N,)
    slots = has_label.cumsum(1)[rows, columns] - 1  # (N,)
    mask_positions = labels.new_zeros(len(labels), max_masks, dtype=torch.long)
    mask_ids = mask_positions.clone()
    mask_positions[rows, slots] = columns
    mask_ids[rows, slots] = labels[rows, columns].long()
    mask_weights = (torch.arange(max_masks, device=labels.device) < counts[:, None]).float()
    return mask_positions, mask_ids, mask_weights  # each (B, M)


def positions_to_labels(mask_positions, mask_ids, mask_weights, length):
    """Convert KerasHub's positions, ids and weights to labels (B, T); undo `labels_to_positions`.

    >>> one = torch.ones(1, 1)
    >>> positions_to_labels(torch.tensor([[2]]), torch.tensor([[7]]), one, length=4)
    tensor([[-100, -100,    7, -100]])

    Args:
        mask_positions: (B, M) whole numbers. The positions of unused slots do not matter.
        mask_ids: (B, M), torch.long or torch.int32.
        mask_weights: (B, M), above 0 in used slots and 0 in unused slots.
        length: T, the length of a row.

    Returns:
        labels (B, T) long, −100 except at the positions of used slots.

    Raises:
        ValueError: shapes differ; a weight is negative or NaN; a used slot has a position outside
            0..T−1 or a negative id; two used slots of a row have the same position.
    """
    mask_positions = ids("mask_positions", mask_positions, "(B, M)").long()
    same_shape("mask_ids", ids("mask_ids", mask_ids), "mask_positions", mask_positions)
    same_shape("mask_weights", mask_weights, "mask_positions", mask_positions)

    # nonzero synchronises with a GPU anyway, so the checks below cost little more.
    rows, slots = (mask_weights > 0).nonzero(as_tuple=True)  # (N,), (N,)
    columns, answers = mask_positions[rows, slots], mask_ids[rows, slots].long()
    if not (mask_weights >= 0).all():  # NaN fails this too
        raise refused("mask_weights", mask_weights, "a tensor of numbers from 0 on")
    ids("mask_positions", columns.cpu(), "(N,)", size=length)
    ids("mask_ids", answers.cpu(), "(N,)", size=LARGEST)
    positions = rows * length + columns  # (N,), in the flattened batch
    if len(positions.unique()) < len(positions):
        raise ValueError("two slots of a row name one position, so that a label would be lost")
    labels = mask_positions.new_full((len(mask_positions), length), IGNORE)
    labels[rows, columns] = answers
    return labels


def labels_to_targets(labels, max_masks=None):
    """Convert labels (B, T) to AllenNLP's format: positions and ids, −100 in unused slots.

    >>> [field.tolist() for field in labels_to_targets(torch.tensor([[-100, 7], [-100, -100]]))]
    [[[1], [0]], [[7], [-100]]]

    Args:
        labels, max_masks: as in `labels_to_positions`.

    Returns:
        mask_positions (B, M) long and target_ids (B, M) long.

    Raises:
        ValueError: as in `labels_to_positions`.
    """
    mask_positions, mask_ids, mask_weights = labels_to_positions(labels, max_masks)
    return mask_positions, mask_ids.masked_fill(mask_weights == 0, IGNORE)  # both (B, M)


def targets_to_labels(mask_positions, target_ids, length):
    """Convert AllenNLP's positions and ids to labels (B, T); undo `labels_to_targets`.

    >>> targets_to_labels(torch.tensor([[1], [0]]), torch.tensor([[7], [-100]]), length=2)
    tensor([[-100,    7],
            [-100, -100]])

    Args:
        mask_positions: (B, M) whole numbers. The positions of unused slots do not matter.
        target_ids: (B, M), torch.long or torch.int32, −100 in unused slots.
        length: T, the length of a row.

    Raises:
        ValueError: as in `positions_to_labels`.
    """
    return positions_to_labels(mask_positions, target_ids, (target_ids != IGNORE).float(), length)


def labels_to_minus_one(labels):
    """Replace −100 by −1, as older code expects (transformers before 2020).

    >>> labels_to_minus_one(torch.tensor([[-100, 7]]))
    tensor([[-1,  7]])
    """
    return labels.masked_fill(labels == IGNORE, -1)


def minus_one_to_labels(labels):
    """Replace −1 by −100, so that the labels of older code work with PyTorch's losses.

    >>> minus_one_to_labels(torch.tensor([[-1, 7]]))
    tensor([[-100,    7]])
    """
    return labels.masked_fill(labels == -1, IGNORE)
