"""Random numbers for each batch, from nothing but the seed, the epoch and the batch. Lesson 02."""

import hashlib
import multiprocessing
import re

import torch

from mlm_lib.checks import whole_number

MARKS = 2**32  # above any mark of an epoch's workers


class BatchSeeds:
    """A generator for each batch, the same ones in any number of DataLoader workers.

    A batch's generator is seeded with a hash of `seed`, the epoch and the batch's number. Without
    workers the batches are counted on and on; in workers from 0 in each epoch.

    Each epoch's workers are new processes, which know nothing of the epochs before. Torch's seed
    does not tell them either, since a program may set it anew before each epoch. Two things do:

    1. The name of a process ends in its number among its parent's children, and a DataLoader starts
       its workers in a row. So all workers of an epoch can name the number of the first: its mark.
    2. One integer in shared memory outlives them: the epochs begun so far and the newest mark. A
       worker that finds another mark than its own begins the next epoch. It is one integer so that
       it is read and written whole: the workers of an epoch may come in any order, or at once, and
       all write the same.

    Args:
        seed: a whole number; with None torch's global generator decides.

    Raises:
        ValueError: a seed that is no whole number.
    """

    def __init__(self, seed=None):
        self.seed = whole_number("seed", seed, least=None, none=True)
        self.batches = 0  # made in this process; in a worker, in this epoch
        self._epoch, self._mark = 0, None
        self._begun = torch.zeros((), dtype=torch.long).share_memory_()  # epochs · MARKS + mark

    def __setstate__(self, state):
        self.__dict__.update(state)
        if not self._begun.is_shared():  # a copy counts for itself, a spawned worker with the rest
            self._begun = (self._begun // MARKS * MARKS).share_memory_()

    def next_generator(self):
        """The generator of the next batch; None, which means the global one, without a seed."""
        if self.seed is None:
            return None
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            epoch, batch = self._begun.item() // MARKS, self.batches
        else:
            self._find_epoch(worker)
            # A DataLoader deals its batches out to the workers in turn.
            epoch, batch = self._epoch, self.batches * worker.num_workers + worker.id
        self.batches += 1
        name = f"{self.seed} {epoch} {batch}".encode()
        digest = hashlib.blake2b(name, digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)

    def _find_epoch(self, worker):
        number = int(re.split("[-:]", multiprocessing.current_process().name)[-1])  # "Process-2:7"
        mark = number - worker.id
        if mark == self._mark:
            return  # not the first batch of this worker
        begun, newest = divmod(self._begun.item(), MARKS)
        if mark != newest:
            begun += 1
            self._begun.fill_(begun * MARKS + mark)
        self._mark, self._epoch, self.batches = mark, begun - 1, 0
