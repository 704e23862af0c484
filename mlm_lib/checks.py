"""One guard for each kind of argument, and one wording: the name, the value, what is needed.

A guard returns the value it let through, as a plain Python number where it is one, so that a
constructor reads `self.top_k = whole_number("top_k", top_k)`. What it refuses is a `ValueError`.
"""

import math
import os
import re
import sys
from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
import torch

ID_TYPES = (torch.int64, torch.int32)  # what `nn.Embedding` reads; both hold a label of −100
LARGEST = sys.float_info.max  # Python's integers go beyond


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


# ------------------------------------------------------------------------------------ numbers


def whole_number(name, value, least=1, most=None, *, none=False):
    """An int in least..most, numpy's included; True and 1.0 are none. With `none`, None passes too.

    `least=None` lets negative ones through.
    """
    if none and value is None:
        return None
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if isinstance(value, Integral) and not isinstance(value, bool) and low <= value <= high:
        return int(value)
    limits = "" if least is None else f" of at least {least}"
    limits = limits if most is None else f" from {least} to {most}"
    raise refused(name, value, f"a whole number{limits}")


def number(name, value, *, above=None, least=None, none=False):
    """A finite number above `above`, or of at least `least`. With `none`, None passes too."""
    if none and value is None:
        return None
    plain = _plain(value)
    in_range = (above is None or plain > above) and (least is None or plain >= least)
    if in_range and abs(plain) <= LARGEST:
        return plain
    limits = "" if above is None else f" above {above}"
    limits = limits if least is None else f" of at least {least}"
    raise refused(name, value, f"a finite number{limits}")


def probability(name, value):
    """A number in 0..1, both included."""
    plain = _plain(value)
    if 0 <= plain <= 1:
        return plain
    raise refused(name, value, "a probability, a number from 0 to 1,")


def shares(mask_share, random_share):
    """The two shares of 80/10/10: probabilities that leave room for each other."""
    mask_share = probability("mask_share", mask_share)
    random_share = probability("random_share", random_share)
    if mask_share + random_share > 1 + 1e-9:
        both = f"mask_share={mask_share} and random_share={random_share}"
        raise ValueError(f"{both} sum to more than 1; what they leave of 1 is the share kept")
    return mask_share, random_share


def _plain(value):
    """A Python number of a real one, numpy's included; NaN, which is in no range, of the rest."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    return value.item() if isinstance(value, np.generic) else value


# ------------------------------------------------------------------------------------ names


def flag(name, value):
    """True or False; the text "no" is neither."""
    if isinstance(value, bool):
        return value
    raise refused(name, value, "True or False")


def choice(name, value, options):
    """One of several names."""
    if isinstance(value, str) and value in options:
        return value
    raise refused(name, value, f"one of {', '.join(options)}")


def string(name, value):
    """A str; None, bytes and a list of texts are none."""
    if isinstance(value, str):
        return value
    raise refused(name, value, "a str")


def iterable(name, value, things):
    """A list or a generator of things; one str is none, which would be read letter by letter."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return value
    raise refused(name, value, f"a list of {things}")


def id_list(name, values):
    """The ids of one text as a list of ints, from a list, a tensor or an array of them."""
    values = values.tolist() if hasattr(values, "tolist") else values
    values = list(iterable(name, values, "ids"))
    if set(map(type, values)) <= {int} and min(values, default=0) >= 0:
        return values  # nearly always, and without a loop in Python
    plain = [value.tolist() if isinstance(value, torch.Tensor) else value for value in values]
    return [whole_number(f"{name}[{place}]", value, 0) for place, value in enumerate(plain)]


def path_name(name, value):
    """A str or path that is not empty, as a str: an unset shell variable arrives as ''."""
    if isinstance(value, (str, os.PathLike)) and os.fspath(value).strip():
        return os.fspath(value)
    raise refused(name, value, "a name that is not empty")


def torch_device(name, value):
    """A torch.device that this machine has, from "cpu", "cuda:1", a number or a torch.device.

    "auto" is CUDA where there is one and otherwise the CPU; Apple's "mps" is taken when named.
    """
    if value == "auto":
        value = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(value)
        torch.empty(0, device=found)
        return found
    except (RuntimeError, AssertionError, TypeError):
        raise refused(name, value, "a device of this machine, such as cpu or cuda,") from None


def function(name, value, *, none=False):
    """Something that can be called. With `none`, None passes too."""
    if callable(value) or (none and value is None):
        return value
    raise refused(name, value, "a function")


# ------------------------------------------------------------------------------------ tensors


def can_look(tensor):
    """Whether a look at a tensor's values is free.

    On an accelerator it makes the program wait at each step, and a compiler cannot follow it.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def tensor(name, value, shape):
    """A tensor with as many axes as `shape` names: "(B, T)" two, "(..., V)" any number."""
    axes = None if "..." in shape else len(re.findall(r"\w+", shape))
    if isinstance(value, torch.Tensor) and axes in (None, value.dim()):
        return value
    raise refused(name, value, f"a tensor {shape}")


def as_tensor(name, value, device):
    """A tensor of what holds numbers: a list, a range, an array or a tensor."""
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise refused(name, value, "a tensor or a list of numbers") from None


def floats(name, value, shape):
    """A tensor of floating-point numbers."""
    if tensor(name, value, shape).is_floating_point():
        return value
    raise refused(name, value, f"a tensor {shape} of floating-point numbers")


def integers(name, value, shape="(B, M)"):
    """Integers of any type, widened to 64 bits: int8 ends at 127, and rows are longer."""
    kind = tensor(name, value, shape).dtype
    if kind == torch.bool or kind.is_floating_point or kind.is_complex:
        raise refused(name, value, f"a tensor {shape} of whole numbers")
    return value.long()


def ids(name, value, shape="(B, T)", *, size=None, ignore=None):
    """Integers of 64 or 32 bits in 0..size−1, or `ignore`; only on a CPU are they looked at."""
    if tensor(name, value, shape).dtype not in ID_TYPES:
        raise refused(name, value, f"a tensor {shape} of whole numbers, torch.long or torch.int32,")
    if size is not None and can_look(value):
        real = value if ignore is None else value[value != ignore]
        if real.numel() and (real.min() < 0 or real.max() >= size):
            wrong = real[(real < 0) | (real >= size)][0].item()
            besides = "" if ignore is None else f" or {ignore}"
            raise ValueError(
                f"{name} holds {wrong}; a number from 0 to {size - 1}{besides} is needed"
            )
    return value


def same_shape(name, value, other_name, other):
    """A tensor of the shape of another one."""
    if isinstance(value, torch.Tensor) and value.shape == other.shape:
        return value
    raise refused(name, value, f"a tensor {tuple(other.shape)}, the shape of {other_name},")


def real_mask(name, value, other_name, other):
    """1 or True at real tokens, 0 or False at padding, as bool and of another tensor's shape."""
    same_shape(name, value, other_name, other)
    real = value != 0
    if can_look(value) and not (value == real).all():
        wrong = value[value != real][0].item()
        raise ValueError(f"{name} holds {wrong}; 1 at real tokens and 0 at padding is needed")
    return real
