"""One guard for each kind of argument, and one wording: the name, the value, what is needed.

A guard returns the value it let through, as a plain Python number where it is one, so that a
constructor reads `self.top_k = whole_number("top_k", top_k)`. What it refuses is a `ValueError`.
"""

import os
import re
import sys
from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
import torch

_SURROGATE = re.compile("[\ud800-\udfff]")
ID_TYPES = (torch.int64, torch.int32)  # what `nn.Embedding` reads; both hold a label of −100


def refused(name, value, wanted):
    """The error of every guard.

    >>> refused("rate", 1.4, "a probability")
    ValueError('rate=1.4; a probability is needed')
    """
    return ValueError(f"{name}={shown(value)}; {wanted} is needed")


def shown(value):
    """A value as a message shows it: a tensor by type and shape, the rest cut at 80 characters."""
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _fitting(name, value, fits, wanted):
    """The value, if it fits."""
    if not fits:
        raise refused(name, value, wanted)
    return value


# ------------------------------------------------------------------------------------ numbers


def whole_number(name, value, least=1, most=None, *, none=False):
    """An int in least..most, numpy's included; True and 1.0 are none. With `none`, None passes too.

    `least=None` lets negative ones through.
    """
    return _number(name, value, Integral, "a whole number", least, most, none=none)


def number(name, value, *, above=None, least=None, none=False):
    """A finite number above `above`, or of at least `least`. With `none`, None passes too."""
    return _number(name, value, Real, "a finite number", least, above=above, none=none)


def probability(name, value):
    """A number in 0..1, both included."""
    return _number(name, value, Real, "a number", least=0, most=1)


def _number(name, value, kind, wanted, least=None, most=None, above=None, none=False):
    """A plain Python number of this kind, within the limits that there are, or the None let by."""
    if none and value is None:
        return None
    plain = value.item() if isinstance(value, np.generic) else value
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if kind is Real:
        fits = fits and abs(plain) <= sys.float_info.max  # Python's integers go beyond
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
    """The two shares of 80/10/10: probabilities that leave room for each other."""
    mask_share = probability("mask_share", mask_share)
    random_share = probability("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        raise ValueError(f"{mask_share=} and {random_share=} sum to more than 1")
    return mask_share, random_share


# ------------------------------------------------------------------------------------ names


def flag(name, value):
    """True or False; the text "no" is neither."""
    return _fitting(name, value, isinstance(value, bool), "True or False")


def choice(name, value, options):
    """One of several names."""
    fits = isinstance(value, str) and value in options
    return _fitting(name, value, fits, f"one of {', '.join(options)}")


def string(name, value):
    """A str; None, bytes and a list of texts are none."""
    return _fitting(name, value, isinstance(value, str), "a str")


def unicode_text(name, value):
    """A str without lone surrogates: halves of a character, which no tokenizer reads."""
    lone = _SURROGATE.search(value)
    return _fitting(
        name, value, not lone, f"a text without the lone surrogate {lone and lone[0]!r}"
    )


def iterable(name, value, things):
    """A list or a generator of things; one str is none, which would be read letter by letter."""
    fits = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    return _fitting(name, value, fits, f"a list of {things}")


def id_list(name, values):
    """The ids of one text as a list of ints, from a list, a tensor or an array of them."""
    values = values.tolist() if hasattr(values, "tolist") else iterable(name, values, "ids")
    plain = [value.tolist() if isinstance(value, torch.Tensor) else value for value in values]
    return [whole_number(f"{name}[{place}]", value, 0) for place, value in enumerate(plain)]


def path_name(name, value):
    """A str or path that is not empty, as a str: an unset shell variable arrives as ''."""
    fits = isinstance(value, (str, os.PathLike)) and os.fspath(value).strip()
    return os.fspath(_fitting(name, value, fits, "a name that is not empty"))


def torch_device(name, value):
    """A torch.device that this machine has, from "cpu", "cuda:1", a number or a torch.device.

    "auto" is CUDA where there is one and otherwise the CPU; Apple's "mps" is taken when named.
    """
    if value == "auto":
        value = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=value).cpu()  # which of "meta" cannot be had
        return torch.device(value)
    except (RuntimeError, AssertionError, TypeError):
        raise refused(name, value, "a device of this machine, such as cpu or cuda,") from None


# ------------------------------------------------------------------------------------ tensors


def can_look(tensor):
    """Whether a look at a tensor's values is free.

    On an accelerator it makes the program wait at each step, and a compiler cannot follow it.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def tensor(name, value, shape):
    """A tensor with as many axes as `shape` names: "(B, T)" two, "(...)" any number."""
    axes = None if "..." in shape else len(re.findall(r"\w+", shape))
    fits = isinstance(value, torch.Tensor) and axes in (None, value.dim())
    return _fitting(name, value, fits, f"a tensor {shape}")


def ids(name, value, shape="(B, T)", *, size=None, ignore=None):
    """Integers of 64 or 32 bits in 0..size−1, or `ignore`; only on a CPU are they looked at."""
    if tensor(name, value, shape).dtype not in ID_TYPES:
        raise refused(name, value, f"a tensor {shape} of whole numbers, torch.long or torch.int32,")
    if size is not None and can_look(value):
        wrong = value != value.clamp(0, size - 1)
        wanted = f"a number from 0 to {size - 1}"
        if ignore is not None:
            wrong &= value != ignore
            wanted += f" or {ignore}"
        _holds_none(name, value, wrong, wanted)
    return value


def known_ids(name, value, size):
    """Ids for an embedding of `size` rows. They are looked at only if they are on a CPU.

    Raises:
        IndexError: an id that is not in 0..size−1. torch raises the same, but names nothing.
    """
    if can_look(value) and value.numel():
        least, most = value.aminmax()
        if least < 0 or most >= size:
            wrong = (least if least < 0 else most).item()
            raise IndexError(
                f"{name} holds {wrong}, out of range: only ids from 0 to {size - 1} are known"
            )
    return value


def same_shape(name, value, other_name, other):
    """A tensor of the shape of another one."""
    if isinstance(value, torch.Tensor) and value.shape == other.shape:
        return value
    raise refused(name, value, f"a tensor {tuple(other.shape)}, the shape of {other_name},")


def real_mask(name, value, other_name, other):
    """1 or True at real tokens, 0 or False at padding, as bool and of another tensor's shape."""
    real = same_shape(name, value, other_name, other) != 0
    if can_look(value):
        _holds_none(name, value, value != real, "1 at real tokens and 0 at padding")
    return real


def _holds_none(name, value, wrong, wanted):
    """Refuses a tensor that is wrong somewhere."""
    if wrong.any():
        raise ValueError(f"{name} holds {value[wrong][0].item()}; {wanted} is needed")
