"""Texts of unequal length to the equal rows of a batch, as lesson 02 needs them."""

from array import array
from collections.abc import Mapping

import torch

# The optional fields, and what stands at padding: no attention, type 0, and special.
FILLERS = {"attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1}


def pad_examples(examples, pad_token_id, *, multiple=None):
    """Lists of ids, or dicts of such fields, to one tensor for each field.

    >>> pad_examples([[5, 6, 7], [8]], pad_token_id=0)["input_ids"].tolist()
    [[5, 6, 7], [8, 0, 0]]

    Args:
        examples: id lists, tensors or arrays, or dicts of them with `input_ids` and, if you like,
            `attention_mask`, `token_type_ids`, `special_tokens_mask`; other keys are left out.
        pad_token_id: what fills up `input_ids`.
        multiple: round T up to a multiple of it.

    Returns:
        dict of (B, T) long tensors, T the longest example's length.

    Raises:
        ValueError: no example, or an empty one, or fields that differ in length.
        KeyError, TypeError: a field that some examples lack, or that holds no whole numbers.
    """
    examples = [one if isinstance(one, Mapping) else {"input_ids": one} for one in examples]
    if not examples:
        raise ValueError("the batch is empty; at least one example is needed")
    fillers = {name: FILLERS[name] for name in FILLERS if any(name in one for one in examples)}
    fields, lengths = {}, None
    for name, filler in {"input_ids": pad_token_id, **fillers}.items():
        values = (one[name] for one in examples)
        rows = [array("q", row.tolist() if hasattr(row, "tolist") else row) for row in values]
        lengths = lengths or [len(row) for row in rows]  # of the input_ids, which come first
        for number, (row, length) in enumerate(zip(rows, lengths)):
            if len(row) != length or length == 0:
                wrong = f"example {number} has {length} input_ids and {len(row)} {name}"
                raise ValueError(f"{wrong}; leave empty ones out")
        # All rows behind one another, then dealt out to the places that are no padding.
        flat = torch.frombuffer(bytearray().join(rows), dtype=torch.long)
        width = -(-max(lengths) // (multiple or 1)) * (multiple or 1)  # rounded up
        real = torch.arange(width) < torch.tensor(lengths)[:, None]  # (B, T)
        fields[name] = torch.full(real.shape, filler).masked_scatter_(real, flat)
    return fields
