"""The most bytes alive at once inside a `with` block. Lessons 05 and 11 measure with it."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Counts the memory of the tensors that operations make, while they live, on any device.

    PyTorch tells a dispatch mode of every operation, also of those of the backward pass. A storage
    that an operation returns and was not given is new; it is forgotten once nothing holds it.
    Tensors from before the block do not count, nor does what lives only inside one operation.

    Attributes:
        peak: the largest number of bytes alive at once after an operation, so far.

    >>> with PeakMemory() as memory:
    ...     total = torch.ones(1000).add(1).sum()
    >>> memory.peak  # ones and their sums, of 4 bytes each
    8000
    """

    def __init__(self):
        super().__init__()
        self.peak, self._alive = 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = _storages((args, kwargs))
        # What was given and is returned is a view, and no memory that was not there.
        self._alive |= {key: size for key, size in _storages(result).items() if key not in given}
        self._alive = {key: size for key, size in self._alive.items() if not key.expired()}
        self.peak = max(self.peak, sum(self._alive.values()))
        return result


def _storages(values):
    """{weak reference: bytes} of the dense tensors in `values`; sparse ones have no storage."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    found = [tensor.untyped_storage() for tensor in tensors if not tensor.is_sparse]
    return {StorageWeakRef(storage): storage.nbytes() for storage in found}
