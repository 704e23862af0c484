"""Checks arguments. There is one function for each kind of argument, and all of them raise a
`ValueError` of the same form: the name of the argument, its value, and what is needed instead.

Each function returns the value that it has checked, so that a constructor can be written as
`self.top_k = whole_number("top_k", top_k)`. A number is returned as a plain Python number, even if
a number of numpy was given.
"""

import os
import re
import sys
from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
import torch

_SURROGATE = re.compile("[\ud800-\udfff]")
ID_TYPES = (torch.int64, torch.int32)  # what `nn.Embedding` takes; both can hold −100


def refused(name, value, wanted):
    """The error that all checks raise. It is returned here, so that a check reads `raise
    refused(…)`.

    >>> refused("rate", 1.4, "a probability")
    ValueError('rate=1.4; a probability is needed')
    """
    return ValueError(f"{name}={shown(value)}; {wanted} is needed")


def shown(value):
    """A value in the form in which messages show it.

    A tensor is shown by its dtype and shape, and any other value by its `repr`, of which at most 80
    characters are kept.

    >>> shown(torch.zeros(2, 3))
    'a torch.float32 tensor (2, 3)'
    """
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _fitting(name, value, fits, wanted):
    """Return the value if `fits` is true.

    Raises:
        ValueError: `fits` is false.
    """
    if not fits:
        raise refused(name, value, wanted)
    return value


# ------------------------------------------------------------------------------------ numbers


def whole_number(name, value, least=1, most=None, *, none=False):
    """Check that a value is a whole number from `least` to `most`.

    An int of numpy is accepted and returned as an int of Python. True and 1.0 are refused.

    Args:
        name: the name of the argument, for the message.
        value: the value to check.
        least: the smallest number allowed. None: there is no smallest one.
        most: the largest number allowed. None: there is no largest one.
        none: whether None is allowed as well.

    Raises:
        ValueError: the value is something else.
    """
    return _number(name, value, Integral, "a whole number", least, most, none=none)


def number(name, value, *, above=None, least=None, none=False):
    """Check that a value is a finite number, greater than `above` and at least `least`, if these
    are given. With `none=True`, None is allowed as well.

    Raises:
        ValueError: the value is something else.
    """
    return _number(name, value, Real, "a finite number", least, above=above, none=none)


def probability(name, value):
    """Check that a value is a number from 0 to 1, both included.

    Raises:
        ValueError: the value is something else.
    """
    return _number(name, value, Real, "a number", least=0, most=1)


def _number(name, value, kind, wanted, least=None, most=None, above=None, none=False):
    """Check that a value is a number of this kind within the limits, and return it as a plain
    Python number."""
    if none and value is None:
        return None
    plain = value.item() if isinstance(value, np.generic) else value
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if kind is Real:
        fits = fits and abs(plain) <= sys.float_info.max  # an int can be larger than any float
    if least is not None:
        fits = fits and plain >= least
        wanted += f" of at least {least}" if most is None else f" from {least} to {most}"
    if most is not None:
        fits = fits and plain <= most
    if above is not None:
        fits = fits and plain > above
        wanted += f" above {above}"
    _fitting(name, value, fits, wanted)
    return plain


def shares(mask_share, random_share):
    """Check the two shares of BERT's 80/10/10: both are probabilities, and their sum is at most 1.

    Raises:
        ValueError: a share is not a probability, or the sum is larger than 1.
    """
    mask_share = probability("mask_share", mask_share)
    random_share = probability("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        raise ValueError(f"{mask_share=} and {random_share=} sum to more than 1")
    return mask_share, random_share


# ------------------------------------------------------------------------------------ names


def flag(name, value):
    """Check that a value is True or False. A text such as "no" is refused.

    Raises:
        ValueError: the value is something else.
    """
    return _fitting(name, value, isinstance(value, bool), "True or False")


def choice(name, value, options):
    """Check that a value is one of several names.

    Raises:
        ValueError: the value is not among `options`. The message lists them.
    """
    fits = isinstance(value, str) and value in options
    return _fitting(name, value, fits, f"one of {', '.join(options)}")


def string(name, value):
    """Check that a value is a str. None, bytes and a list of texts are refused.

    Raises:
        ValueError: the value is something else.
    """
    return _fitting(name, value, isinstance(value, str), "a str")


def unicode_text(name, value):
    """Check that a str holds no lone surrogate, which is half of a character and which no tokenizer
    can read.

    Raises:
        ValueError: the text holds one.
    """
    lone = _SURROGATE.search(value)
    return _fitting(
        name, value, not lone, f"a text without the lone surrogate {lone and lone[0]!r}"
    )


def iterable(name, value, things):
    """Check that a value is a list, a generator or another iterable. A single str is refused,
    because it would be read letter by letter.

    Raises:
        ValueError: the value is something else. The message says "a list of" `things`.
    """
    fits = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    return _fitting(name, value, fits, f"a list of {things}")


def id_list(name, values):
    """The token ids of one text as a list of ints. They are given as a list, a tensor or an array.

    Raises:
        ValueError: an id is not a whole number of at least 0.
    """
    values = values.tolist() if hasattr(values, "tolist") else iterable(name, values, "ids")
    plain = [value.tolist() if isinstance(value, torch.Tensor) else value for value in values]
    return [whole_number(f"{name}[{place}]", value, 0) for place, value in enumerate(plain)]


def path_name(name, value):
    """Check that a value is a str or a path that is not empty, and return it as a str. An empty
    name is what a shell passes on for a variable that is not set.

    Raises:
        ValueError: the value is something else, or it is empty.
    """
    fits = isinstance(value, (str, os.PathLike)) and os.fspath(value).strip()
    return os.fspath(_fitting(name, value, fits, "a name that is not empty"))


def torch_device(name, value):
    """The torch.device that a value names, such as "cpu", "cuda:1", a number or a torch.device.

    "auto" is the first CUDA GPU if there is one, and the CPU otherwise. Apple's GPU is used only if
    it is named, as "mps".

    Raises:
        ValueError: this machine has no such device.
    """
    if value == "auto":
        value = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=value).cpu()  # fails for "meta", which holds no values
        return torch.device(value)
    except (RuntimeError, AssertionError, TypeError):
        raise refused(name, value, "a device of this machine, such as cpu or cuda,") from None


# ------------------------------------------------------------------------------------ tensors


def can_read_without_sync(tensor):
    """Whether the values of a tensor can be read without a *sync*, a wait for a GPU.

    Reading a value back from a GPU makes the program wait until the GPU has finished all its work,
    and `torch.compile` cannot compile code that depends on a value. Therefore values are checked
    only if this function returns True.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def tensor(name, value, shape):
    """Check that a value is a tensor with as many axes as `shape` names: "(B, T)" stands for two,
    and "(...)" for any number.

    Raises:
        ValueError: the value is something else.
    """
    axes = None if "..." in shape else len(re.findall(r"\w+", shape))
    fits = isinstance(value, torch.Tensor) and axes in (None, value.dim())
    return _fitting(name, value, fits, f"a tensor {shape}")


def ids(name, value, shape="(B, T)", *, size=None, ignore=None):
    """Check that a value is a tensor of ids.

    Args:
        name: the name of the argument, for the message.
        value: the value to check.
        shape: the axes that the tensor must have, written as for `tensor`.
        size: the ids must be smaller than this number. None: the values are not checked.
        ignore: a further value that is allowed, such as −100 in labels.

    The dtype is checked on every device. The values are checked only if this needs no sync, which
    means on a CPU.

    Raises:
        ValueError: the value is not such a tensor, or it holds a wrong id.
    """
    if tensor(name, value, shape).dtype not in ID_TYPES:
        raise refused(name, value, f"a tensor {shape} of whole numbers, torch.long or torch.int32,")
    if size is not None and can_read_without_sync(value):
        wrong = value != value.clamp(0, size - 1)
        wanted = f"a number from 0 to {size - 1}"
        if ignore is not None:
            wrong &= value != ignore
            wanted += f" or {ignore}"
        _holds_none(name, value, wrong, wanted)
    return value


def known_ids(name, value, size):
    """Check that all ids are smaller than `size`, the number of rows of an embedding. The ids are
    checked only if they are on a CPU, because on a GPU this would need a sync.

    Raises:
        IndexError: an id is not from 0 to size − 1. torch raises an IndexError as well, but its
            message does not name the id.
    """
    if can_read_without_sync(value) and value.numel():
        least, most = value.aminmax()
        if least < 0 or most >= size:
            wrong = (least if least < 0 else most).item()
            raise IndexError(
                f"{name} holds {wrong}, out of range: only ids from 0 to {size - 1} are known"
            )
    return value


def same_shape(name, value, other_name, other):
    """Check that a value is a tensor of the same shape as the tensor `other`.

    Raises:
        ValueError: the value is something else.
    """
    if isinstance(value, torch.Tensor) and value.shape == other.shape:
        return value
    raise refused(name, value, f"a tensor {tuple(other.shape)}, the shape of {other_name},")


def real_mask(name, value, other_name, other):
    """Check that a value is an attention mask and return it as a bool tensor: 1 or True at real
    tokens, 0 or False at padding. It must have the shape of the tensor `other`.

    Raises:
        ValueError: the shape differs, or, on a CPU, a value is neither 0 nor 1.
    """
    real = same_shape(name, value, other_name, other) != 0
    if can_read_without_sync(value):
        _holds_none(name, value, value != real, "1 at real tokens and 0 at padding")
    return real


def _holds_none(name, value, wrong, wanted):
    """Check that the bool tensor `wrong` is False everywhere.

    Raises:
        ValueError: it is True somewhere. The message shows the first such entry of `value`.
    """
    if wrong.any():
        raise ValueError(f"{name} holds {value[wrong][0].item()}; {wanted} is needed")
