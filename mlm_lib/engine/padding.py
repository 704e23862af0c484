"""Texts of unequal length to the equal rows of a batch, as lesson 02 needs them."""

from array import array
from collections.abc import Mapping

import torch

from mlm_lib.checks import refused, whole_number

FILLERS = {"input_ids": None, "attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1}


def pad_examples(examples, pad_token_id, *, multiple=None):
    """Lists of ids, or dicts of such fields, to one tensor for each field.

    >>> pad_examples([[5, 6, 7], [8]], pad_token_id=0)["input_ids"].tolist()
    [[5, 6, 7], [8, 0, 0]]

    Args:
        examples: id lists, tensors or arrays, or dicts of them with `input_ids` and, if you like,
            `attention_mask`, `token_type_ids`, `special_tokens_mask`; other keys are left out.
        pad_token_id: what fills up `input_ids`. Padding has attention 0, type 0, and is special.
        multiple: round T up to a multiple of it.

    Returns:
        dict of (B, T) long tensors, T the longest example's length.

    Raises:
        ValueError: no example, or an empty one, fields that some examples lack or that differ in
            length, or what is no flat list of whole numbers.
    """
    if isinstance(examples, Mapping) or not hasattr(examples, "__len__"):
        raise refused("examples", examples, "a list of examples, as a DataLoader gives it,")
    if len(examples) == 0:
        raise ValueError("the batch is empty; at least one example is needed")
    multiple = whole_number("multiple", multiple, none=True) or 1
    examples = [
        example if isinstance(example, Mapping) else {"input_ids": example} for example in examples
    ]
    fields, lengths = {}, None
    for name, filler in (FILLERS | {"input_ids": pad_token_id}).items():
        if name != "input_ids" and not any(name in example for example in examples):
            continue
        rows = [_row(example, name, number) for number, example in enumerate(examples)]
        lengths = lengths or [len(row) for row in rows]  # of the input_ids, which come first
        for number, (row, length) in enumerate(zip(rows, lengths)):
            if len(row) != length or length == 0:
                raise ValueError(
                    f"example {number} has {length} input_ids and {len(row)} {name}; "
                    "leave empty ones out"
                )
        # All rows behind one another, then dealt out to the places that are no padding.
        flat = torch.frombuffer(bytearray().join(rows), dtype=torch.long)
        width = -(-max(lengths) // multiple) * multiple  # rounded up
        if min(lengths) == width:
            fields[name] = flat.view(len(rows), width)
        else:
            real = torch.arange(width) < torch.tensor(lengths)[:, None]  # (B, T)
            fields[name] = torch.full((len(rows), width), filler).masked_scatter_(real, flat)
    return fields


def _row(example, name, number):
    """One field of one example, as 64-bit integers."""
    if name not in example:
        raise ValueError(
            f"example {number} has no {name}; the examples of a batch need the same fields"
        )
    row = example[name]
    try:
        return array("q", row.tolist() if hasattr(row, "tolist") else row)
    except (TypeError, OverflowError) as error:
        raise ValueError(
            f"example {number}: {name} must be a flat list of whole numbers ({error})"
        ) from None
