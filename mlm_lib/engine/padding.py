"""Padding: makes one tensor of rows of different lengths, as a batch needs it."""

from array import array
from collections.abc import Mapping

import torch

# The optional fields, and their values at padding: no attention, token type 0, a special token.
FILLERS = {"attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1}


def pad_examples(examples, pad_token_id, *, multiple=None):
    """Pads examples of different lengths to the length of the longest, and stacks them.

    >>> pad_examples([[5, 6, 7], [8]], pad_token_id=0)["input_ids"].tolist()
    [[5, 6, 7], [8, 0, 0]]

    Args:
        examples: B lists, tensors or arrays of ids; or dictionaries of these, with the keys
            `input_ids` and, optionally, `attention_mask`, `token_type_ids` and
            `special_tokens_mask`. Other entries of the dictionaries are left out.
        pad_token_id: the id of padding in `input_ids`.
        multiple: T is rounded up to a multiple of this number. Some GPUs are faster then.

    Returns:
        A dictionary of long tensors (B, T). T is the length of the longest example, rounded
            up if `multiple` is given.

    Raises:
        ValueError: there is no example, an example is empty, or its fields differ in length.
        KeyError, TypeError: some examples lack a field, or a field does not hold whole numbers.
    """
    examples = [one if isinstance(one, Mapping) else {"input_ids": one} for one in examples]
    if not examples:
        raise ValueError("the batch is empty; at least one example is needed")
    fillers = {name: FILLERS[name] for name in FILLERS if any(name in one for one in examples)}
    fields, lengths = {}, None
    for name, filler in {"input_ids": pad_token_id, **fillers}.items():
        values = (one[name] for one in examples)
        rows = [array("q", row.tolist() if hasattr(row, "tolist") else row) for row in values]
        lengths = lengths or [len(row) for row in rows]  # those of `input_ids`, the first field
        for number, (row, length) in enumerate(zip(rows, lengths)):
            if len(row) != length or length == 0:
                wrong = f"example {number} has {length} input_ids and {len(row)} {name}"
                raise ValueError(f"{wrong}; leave empty ones out")
        # The rows are joined into one, whose numbers then fill the places without padding.
        flat = torch.frombuffer(bytearray().join(rows), dtype=torch.long)
        width = -(-max(lengths) // (multiple or 1)) * (multiple or 1)  # rounded up
        real = torch.arange(width) < torch.tensor(lengths)[:, None]  # (B, T)
        fields[name] = torch.full(real.shape, filler).masked_scatter_(real, flat)
    return fields
