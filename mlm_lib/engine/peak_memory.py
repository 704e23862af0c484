"""Measures how much memory tensors occupy at most inside a `with` block, on any device."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Measures the peak memory of the tensors that are made inside the block.

    Use it to compare two ways of computing the same thing. The backward pass counts if it is inside
    the block. Tensors that were made before the block do not count, and neither does memory that an
    operation needs only while it runs. The measurement can itself cost memory: while it watches,
    PyTorch adds some gradients (of the rows that `index_select` took) into a new matrix, where it
    would otherwise add them in place.

    Attributes:
        peak: the largest number of bytes that tensors occupied after an operation, so far.

    >>> with PeakMemory() as memory:
    ...     total = torch.ones(1000).add(1).sum()
    >>> memory.peak  # 1000 ones and 1000 sums, of 4 bytes each
    8000
    """

    # PyTorch calls a dispatch mode for every operation. If an operation returns a storage that was
    # not among its arguments, the storage is new. It counts until nothing refers to it any more.

    def __init__(self):
        super().__init__()
        self.peak, self._alive = 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = _storages((args, kwargs))
        # A result that shares the storage of an argument is a view and takes no new memory.
        self._alive |= {key: size for key, size in _storages(result).items() if key not in given}
        self._alive = {key: size for key, size in self._alive.items() if not key.expired()}
        self.peak = max(self.peak, sum(self._alive.values()))
        return result


def _storages(values):
    """{weak reference: bytes} of the dense tensors in `values`. Sparse tensors have no storage."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    found = [tensor.untyped_storage() for tensor in tensors if not tensor.is_sparse]
    return {StorageWeakRef(storage): storage.nbytes() for storage in found}
