"""A pretended accelerator: its tensors say that they are elsewhere, and compute on the CPU.

Two devices in one operation fail as on CUDA, and so does `numpy()`; what would make a program wait
is counted in `waits`. To be imported before torch. Its foundation is private: for tests alone.
"""

import collections
import types

import torch
from torch.utils import _device, backend_registration
from torch.utils._pytree import tree_map

NAME = "pretend"
DEVICE = torch.device("cpu")  # until the name is known to torch
waits = collections.Counter()

as_it_was = {name: getattr(torch, name) for name in ("tensor", "as_tensor", "arange", "linspace")}

# Operations that may see both devices: copies, and looks into a table by indices of the CPU.
COPIES = {"_to_copy", "copy_", "to", "_copy_from", "_copy_from_and_resize"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
ON_BOTH = COPIES | INDEXED | {"_unsafe_index_put", "_pack_padded_sequence"}
# Operations whose result, or its shape, the program has to know before it goes on.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"}


def here(value):
    """A value as the CPU has it: the tensor inside, or the CPU in place of the device."""
    if isinstance(value, Elsewhere):
        return value.inner
    return torch.device("cpu") if is_pretended(value) else value


def is_pretended(value):
    return isinstance(value, (torch.device, str)) and str(value).split(":")[0] == NAME


class Elsewhere(torch.Tensor):
    """A tensor of the pretended device, around one of the CPU."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=DEVICE, requires_grad=inner.requires_grad,
        )  # fmt: skip
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})

    # Lists and ranges among indices would become tensors inside torch, where no backend of Python
    # is asked.
    def __getitem__(self, where):
        return super().__getitem__(without_lists(where))

    def __setitem__(self, where, value):
        if self.requires_grad or getattr(value, "requires_grad", False):
            return super().__setitem__(without_lists(where), value)
        self.inner.detach()[tree_map(here, where)] = here(value)

    def __repr__(self, **options):
        return repr(self.detach().inner)

    def __format__(self, form):
        waits["format"] += 1
        return format(self.detach().inner if self.dim() else self.detach().inner.item(), form)

    def storage(self):  # by which safetensors knows what is shared
        return self.inner.storage()

    def numpy(self, *args, **kwargs):
        raise TypeError(f"{NAME} device type tensor; use Tensor.cpu() before numpy()")

    __array__ = numpy


def tolist(self, as_it_was=torch.Tensor.tolist):
    waits["tolist"] += isinstance(self, Elsewhere)
    return as_it_was(here(self.detach()))


def without_lists(where):
    if isinstance(where, tuple):
        return (*map(without_lists, where),)
    return as_it_was["tensor"](list(where)) if isinstance(where, (list, range)) else where


def run(operation, args, kwargs):
    """One operation of torch, computed on the CPU; what comes out is where it would be."""
    name = operation._schema.name.removeprefix("aten::")
    tensors = []
    tree_map(lambda x: tensors.append(x) if isinstance(x, torch.Tensor) else None, (args, kwargs))
    elsewhere = any(isinstance(one, Elsewhere) for one in tensors)
    if elsewhere:
        left = [one for one in tensors if not isinstance(one, Elsewhere) and one.dim()]
        index_of_cpu = name in INDEXED and not isinstance(args[0], Elsewhere)
        if index_of_cpu or (left and name not in ON_BOTH):
            raise RuntimeError(
                f"Expected tensors on one device, but found {DEVICE} and cpu ({name})"
            )
        waits[name] += name in WAITING
    with torch.utils._python_dispatch._disable_current_modes():
        result = operation(*tree_map(here, args), **tree_map(here, kwargs))
    # What was written into is given back as it came.
    if "out" in kwargs and isinstance(kwargs["out"], Elsewhere):
        return kwargs["out"]
    for argument, given in zip(operation._schema.arguments, args):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and isinstance(given, torch.Tensor) and len(operation._schema.returns) == 1:
            return given
    if name == "_pack_padded_sequence":
        return wrapped(result[0]), result[1]  # how many rows are left at each step: the CPU's
    asked = kwargs.get("device")
    if is_pretended(asked) or (asked is None and elsewhere):
        return tree_map(wrapped, result)
    return result


def wrapped(value):
    bare = isinstance(value, torch.Tensor) and not isinstance(value, Elsewhere)
    return Elsewhere(value) if bare else value


# ------------------------------------------------------------------------------------ the backend


def set_up():
    """Tells torch of the device."""
    global DEVICE
    nothing = dict.fromkeys(("synchronize", "empty_cache", "_lazy_init"), lambda *given: None)
    module = types.ModuleType(f"torch.{NAME}")
    vars(module).update(
        nothing, is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: 1,
        current_device=lambda: 0, set_device=lambda index: None, _is_in_bad_fork=lambda: False,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        manual_seed=torch.default_generator.manual_seed, manual_seed_all=lambda seed: None,
        get_rng_state=lambda *device: torch.get_rng_state(),
        set_rng_state=lambda state, *device: torch.set_rng_state(state),
    )  # fmt: skip
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
    DEVICE = torch.device(NAME, 0)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda operation, *args, **kwargs: run(operation, args, kwargs), "PrivateUse1")
    _device._device_constructors()  # so that torch remembers the makers of tensors as they are
    for name, make in as_it_was.items():
        setattr(torch, name, made_elsewhere(make))
    torch.Generator, torch.Tensor.tolist = GeneratorOf, tolist
    torch.accelerator.synchronize = lambda *device: None  # nothing runs beside the program
    torch.nn.modules.rnn._VF = types.SimpleNamespace(lstm=on_the_cpu(torch._VF.lstm))
    torch.nn.Module._apply = keeping_ties(torch.nn.Module._apply)
    return library


def made_elsewhere(make):
    """A maker of tensors that makes them on the CPU, and takes them where they were asked for."""

    def made(*args, **options):
        if not is_pretended(options.get("device")):
            return make(*args, **options)
        del options["device"]
        gradient = options.pop("requires_grad", False)
        result = make(*map(here, args), **options).to(DEVICE)
        return result.requires_grad_() if gradient else result

    return made


def on_the_cpu(function):
    """A function that off the CPU calls kernels which no backend of Python can have."""

    def called(input, *rest):
        if not isinstance(input, Elsewhere):
            return function(input, *rest)
        args = tree_map(lambda x: x.cpu() if isinstance(x, Elsewhere) else x, (input, *rest))
        return tree_map(lambda x: x.to(DEVICE), function(*args))

    return called


class GeneratorKind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, GeneratorKind.of_torch)


GeneratorKind.of_torch = torch.Generator


class GeneratorOf(metaclass=GeneratorKind):
    """`torch.Generator`; that of the pretended device is the CPU's."""

    def __new__(cls, device="cpu"):
        return GeneratorKind.of_torch("cpu" if is_pretended(device) else device)


def keeping_ties(apply):
    """`Module._apply`, which makes new parameters of such tensors: tied ones stay one."""

    def applied(self, function, *args, **kwargs):
        places = collections.defaultdict(list)
        for module in self.modules():
            for name, parameter in module._parameters.items():
                places[parameter].append((module, name))
        result = apply(self, function, *args, **kwargs)
        for parameter, (first, *others) in places.items():
            for module, name in others if parameter is not None else ():
                module._parameters[name] = first[0]._parameters[first[1]]
        return result

    return applied


LIBRARY = set_up()  # which lasts as long as somebody holds it
