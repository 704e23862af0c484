"""Four ways to write the same questions: which tokens were hidden, and what they were. Lesson 03.

    labels      (B, T)       the id where a token was hidden, −100 elsewhere   transformers, PyTorch
    minus one   (B, T)       the same with −1                                  older code
    positions   3 × (B, M)   places, ids and weights, 0 in slots without use   KerasHub
    targets     2 × (B, M)   places and ids, −100 in slots without use         AllenNLP

T is the length of a row and M the number of slots, the most labels that a row has.
"""

import torch

from mlm_lib.checks import ids, refused, same_shape
from mlm_lib.engine.batches import IGNORE

LARGEST = 2**31 - 1  # above any id; a negative label that is not −100 is of another format


def labels_to_positions(labels, max_masks=None):
    """−100 labels to KerasHub's format: where the labels are, what they are, which slots are used.

    >>> labels = torch.tensor([[-100, 7, -100, 9], [5, -100, -100, -100]])
    >>> [field.tolist() for field in labels_to_positions(labels)]
    [[[1, 3], [0, 0]], [[7, 9], [5, 0]], [[1.0, 1.0], [1.0, 0.0]]]

    Args:
        labels: (B, T), torch.long or torch.int32, −100 where there is none.
        max_masks: M; by default the largest number of labels in a row.

    Returns:
        mask_positions, mask_ids (B, M) long and mask_weights (B, M) float. Unused slots are 0 with
        weight 0.

    Raises:
        ValueError: labels that are no such tensor, one that is negative and not −100, or a row with
            more than max_masks labels. Dropping some would change the loss without a word.
    """
    ids("labels", labels, "(B, T)", size=LARGEST, ignore=IGNORE)
    has_label = labels != IGNORE  # (B, T)
    counts = has_label.sum(1)  # (B,)
    most = int(counts.max()) if len(counts) else 0
    max_masks = most if max_masks is None else max_masks
    if most > max_masks:
        raise ValueError(f"a row has {most} labels, and max_masks is {max_masks}; raise it")
    # The k-th label of a row goes to slot k: a running count over the row numbers them from 1.
    rows, columns = has_label.nonzero(as_tuple=True)  # (N,), (N,)
    slots = has_label.cumsum(1)[rows, columns] - 1  # (N,)
    mask_positions = labels.new_zeros(len(labels), max_masks, dtype=torch.long)
    mask_ids = mask_positions.clone()
    mask_positions[rows, slots] = columns
    mask_ids[rows, slots] = labels[rows, columns].long()
    mask_weights = (torch.arange(max_masks, device=labels.device) < counts[:, None]).float()
    return mask_positions, mask_ids, mask_weights  # each (B, M)


def positions_to_labels(mask_positions, mask_ids, mask_weights, length):
    """The way back: (B, length) labels, −100 except at the positions of weight above 0.

    >>> one = torch.ones(1, 1)
    >>> positions_to_labels(torch.tensor([[2]]), torch.tensor([[7]]), one, length=4)
    tensor([[-100, -100,    7, -100]])

    Args:
        mask_positions: (B, M) whole numbers; what an unused slot names does not matter.
        mask_ids: (B, M), torch.long or torch.int32.
        mask_weights: (B, M), 0 in unused slots.
        length: T.

    Raises:
        ValueError: shapes that differ, a weight that is negative or NaN, and in used slots a
            position outside 0..length−1, a negative id, or a position that the row names twice.
    """
    mask_positions = ids("mask_positions", mask_positions, "(B, M)").long()
    same_shape("mask_ids", ids("mask_ids", mask_ids), "mask_positions", mask_positions)
    same_shape("mask_weights", mask_weights, "mask_positions", mask_positions)

    # Finding the used slots makes the program wait for any device, so looking at them costs little.
    rows, slots = (mask_weights > 0).nonzero(as_tuple=True)  # (N,), (N,)
    columns, answers = mask_positions[rows, slots], mask_ids[rows, slots].long()
    if not (mask_weights >= 0).all():  # NaN fails this too
        raise refused("mask_weights", mask_weights, "a tensor of numbers from 0 on")
    ids("mask_positions", columns.cpu(), "(N,)", size=length)
    ids("mask_ids", answers.cpu(), "(N,)", size=LARGEST)
    places = rows * length + columns  # (N,)
    if len(places.unique()) < len(places):
        raise ValueError("two slots of a row name one position, so that a label would be lost")
    labels = mask_positions.new_full((len(mask_positions), length), IGNORE)
    labels[rows, columns] = answers
    return labels


def labels_to_targets(labels, max_masks=None):
    """−100 labels to AllenNLP's format: mask_positions and target_ids, −100 in unused slots.

    >>> [field.tolist() for field in labels_to_targets(torch.tensor([[-100, 7], [-100, -100]]))]
    [[[1], [0]], [[7], [-100]]]
    """
    mask_positions, mask_ids, mask_weights = labels_to_positions(labels, max_masks)
    return mask_positions, mask_ids.masked_fill(mask_weights == 0, IGNORE)  # both (B, M)


def targets_to_labels(mask_positions, target_ids, length):
    """The way back from `labels_to_targets`."""
    return positions_to_labels(mask_positions, target_ids, (target_ids != IGNORE).float(), length)


def labels_to_minus_one(labels):
    """−100 labels to those of older code (transformers before 2020), where −1 means no label.

    >>> labels_to_minus_one(torch.tensor([[-100, 7]]))
    tensor([[-1,  7]])
    """
    return labels.masked_fill(labels == IGNORE, -1)


def minus_one_to_labels(labels):
    """The way back from `labels_to_minus_one`."""
    return labels.masked_fill(labels == -1, IGNORE)
