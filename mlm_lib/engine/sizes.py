"""Tries a function on batches of unusual sizes, for the hidden tests of the labs.

Most examples have a few rows of a few tokens, so that a function can be right there and wrong for
one row, for rows of one token, or for a large batch. It can also change its arguments, or return
one of them in place of a new tensor. `try_sizes` tries all of this by one call.
"""

import functools
import inspect
import math
import traceback
from numbers import Real

import torch

from mlm_lib.checks import shown

SIZES = {1: [(1,), (150,)], 2: [(1, 5), (4, 1), (1, 1), (50, 70)]}  # by the number of axes


def try_sizes(
    function,
    right,
    make,
    axes=("row", "token"),
    sizes=None,
    *,
    fresh=True,
    where="",
    near=1e-4,
    between=" of ",
):
    """Compare a student's function with a right one on batches of several sizes.

    Args:
        function: the student's function, or another object that can be called.
        right: a function that returns the right result. It may be slow.
        make: returns the arguments for a size, such as ``make(rows, tokens)``. It is called several
            times with the same seed of torch, and has to return equal arguments each time.
        axes: what each number of a size counts, for the messages.
        sizes: the sizes to try. By default one row, rows of one token, one row of one token, and a
            large batch.
        fresh: whether the result may not share memory with an argument.
        where: what is special about these arguments, for the messages: " of padding only".
        near: how far a float may be from the right one, relative to it.
        between: what stands between the two numbers of a size in the messages, as in "1 row of 5
            tokens".

    Raises:
        AssertionError: the function fails, returns something else than the right function, changes
            an argument, or returns one. The message says for which size.
    """
    name = getattr(function, "__name__", "<lambda>")  # an object with __call__ need not have one
    name = "your function" if name == "<lambda>" else f"`{name}`"
    for size in sizes or SIZES[len(axes)]:
        given, kept, ours = (_drawn(make, size) for _ in range(3))
        said = f"In a test with {_counted(size, axes, between)}{where}, "
        try:
            found = function(*given)
        except NotImplementedError:  # the code still waits to be written
            raise
        except Exception as error:
            raise AssertionError(f"{said}{name} ended in {_told(error, function)}") from error
        names = _arguments(function, len(given))
        for argument, now, before in zip(names, given, kept):
            assert not difference(now, before, near=0), (
                f"{said}{name} changed its argument {argument}. Leave it as it is, and write "
                "into a copy."
            )
        different = difference(found, right(*ours), near)
        if different:
            place, how = different
            result = f"`{name.strip('`')}(...){place}`" if place else f"the result of {name}"
            raise AssertionError(f"{said}{result} {how}")
        for argument, now in zip(names, given):
            assert not fresh or not _shared(found, now), (
                f"{said}{name} returned its argument {argument} itself, or a view of it. Return "
                "a new tensor that has its own memory."
            )


def difference(found, wanted, near=1e-4, place=""):
    """Where a result differs from the right one, and how: a pair of texts, or None.

    >>> difference((torch.zeros(3), 1), (torch.zeros(1, 3), 1))
    ('[0]', 'is a tensor of shape (3,), and (1, 3) is needed: is there a .squeeze()?')

    Only tensors, numbers, texts, sets, and lists, tuples and dicts of them are compared.
    """
    if isinstance(wanted, torch.Tensor):
        return _tensors_differ(found, wanted, near, place)
    if isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)):
            return place, f"is {shown(found)}, and a {type(wanted).__name__} is needed."
        if len(found) != len(wanted):
            return place, f"has the length {len(found)}, and {len(wanted)} is needed."
        keys = range(len(wanted))
    elif isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            return place, f"is {shown(found)}, and a dict with the keys {list(wanted)} is needed."
        keys = wanted
    elif isinstance(wanted, (Real, str, set, type(None))):
        same = found == wanted or isinstance(wanted, float) and _near(found, wanted, near)
        return None if same else (place, f"is {shown(found)}, and {shown(wanted)} is needed.")
    else:
        return None
    parts = (difference(found[key], wanted[key], near, f"{place}[{key!r}]") for key in keys)
    return next(filter(None, parts), None)


def _tensors_differ(found, wanted, near, place):
    """As `difference`, for a right result that is a tensor."""
    if not isinstance(found, torch.Tensor):
        return place, f"is {shown(found)}, and a tensor is needed."
    if found.shape != wanted.shape:
        alike = [[n for n in one.shape if n != 1] for one in (found, wanted)]
        squeezed = alike[0] == alike[1] and found.dim() < wanted.dim()
        shapes = f"is a tensor of shape {tuple(found.shape)}, and {tuple(wanted.shape)} is needed"
        return place, shapes + (": is there a .squeeze()?" if squeezed else ".")
    if _kind(found) != _kind(wanted) or _kind(wanted) == "float" and _coarser(found, wanted):
        return place, f"is {found.dtype}, and {wanted.dtype} is needed."
    found, wanted = found.detach().to(wanted.dtype), wanted.detach()
    if _kind(wanted) == "float":
        wrong = ~found.isclose(wanted, rtol=near, atol=near / 100, equal_nan=True)
    else:
        wrong = found != wanted
    if not wrong.any():
        return None
    first = tuple(wrong.nonzero()[0].tolist())
    values = (f"{one[first].item():.6g}" for one in (found, wanted))
    if _kind(wanted) == "bool":
        values = (str(one[first].item()) for one in (found, wanted))
    return f"{place}{list(first) or ''}", "is {}, and {} is needed.".format(*values)


def _kind(tensor):
    if tensor.dtype == torch.bool:
        return "bool"
    return "float" if tensor.is_floating_point() else "whole"


def _coarser(found, wanted):
    return torch.finfo(found.dtype).eps > torch.finfo(wanted.dtype).eps


def _near(found, wanted, near):
    """Whether a number, which may be a tensor without an axis, is near to a float."""
    number = isinstance(found, Real) or isinstance(found, torch.Tensor) and found.dim() == 0
    if not number or math.isnan(found):
        return number and math.isnan(wanted)
    return math.isclose(found, wanted, rel_tol=near, abs_tol=near / 100)


def _drawn(make, size):
    """The arguments for a size, always from the same seed. The global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make(*size)


def _counted(size, axes, between):
    """A size in words, such as "1 row of 5 tokens"."""
    return between.join(f"{n} {axis if n == 1 else _plural(axis)}" for n, axis in zip(size, axes))


def _plural(axis):
    return f"{axis}es" if axis.endswith("s") else f"{axis}s"


def _arguments(function, number):
    """What the messages call each argument: its name, or its number if the function names none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that is not written in Python
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [f"`{one.name}`" for one in parameters if one.kind in kinds]
    return (names + [str(place + 1) for place in range(len(names), number)])[:number]


def _code(function):
    """The code that runs when a function, a partial function or an object is called, or None."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        function = type(function).__call__
    return getattr(function, "__code__", None)


def _told(error, function):
    """An error with the line of the function in which it arose."""
    file = _code(function)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [one.line for one in frames if file and one.filename == file.co_filename and one.line]
    line = f", in the line `{lines[-1]}`" if lines else ""
    return f"{type(error).__name__}: {error}{line}"


def _memory(value):
    """Where the tensors of a value have their numbers."""
    if isinstance(value, torch.Tensor):
        return {value.untyped_storage().data_ptr()} - {0}
    if isinstance(value, dict):
        value = list(value.values())
    return set().union(*map(_memory, value)) if isinstance(value, (list, tuple)) else set()


def _shared(found, argument):
    """Whether a result and an argument are one list, or share the memory of a tensor."""
    same = found is argument and isinstance(found, (list, dict))
    return bool(same or _memory(found) & _memory(argument))
