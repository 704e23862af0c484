"""Which examples come when, and which process takes which of them. Built in lesson 08.

`Order` deals the data out, batch after batch and epoch after epoch. `own_share` is what one of
several processes takes of a batch, weighted so that together they train as one would alone.
"""

import hashlib

import torch
from torch import distributed

from mlm_lib.checks import whole_number

IGNORE = -100  # the label of a position that has none
# Batches whose rows are sorted together when rows of like length share one, as in transformers.
POOL = 50


class Order:
    """The order of the data: it depends on the seed and on nothing else, and can be taken up again.

    Args:
        dataset: a sequence of examples. Its `set_epoch` is called if it has one, and its `lengths`
            are taken, if it has them, for those of its examples.
        batch_size: examples in a batch; the last one of an epoch may be smaller.
        seed: of the permutations.
        grouped: rows of like length share a batch, which saves padding.

    Raises:
        ValueError: an empty dataset.
    """

    def __init__(self, dataset, batch_size, seed=0, *, grouped=False):
        self.dataset, self.seed, self.grouped = dataset, seed, grouped
        self.batch_size = whole_number("batch_size", batch_size)
        if not len(dataset):
            raise ValueError("the dataset is empty; there is nothing to train on")
        self.load_state_dict({"epoch": 0, "place": 0})

    def next(self):
        """The next list of examples; after the last of an epoch comes the first of the next."""
        if self.place == len(self.batches):
            self.load_state_dict({"epoch": self.epoch + 1, "place": 0})
        self.place += 1
        return [self.dataset[number] for number in self.batches[self.place - 1]]

    def state_dict(self):
        """The epoch, and how many of its batches were dealt out."""
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state):
        """Goes on after the batches of `state`."""
        self.epoch, self.place = state["epoch"], state["place"]
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        self.batches = self._numbers()

    def _numbers(self):
        """The epoch's batches, as the numbers of their examples."""
        # 1) A permutation, another one in each epoch.
        digest = hashlib.blake2b(f"{self.seed} order {self.epoch}".encode(), digest_size=8).digest()
        seed = int.from_bytes(digest, "little") >> 1  # 63 bits, which depend on seed and epoch
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        # 2) Where rows of like length share a batch: sorted, but only among their neighbours, so
        #    that an epoch does not go from short to long.
        if self.grouped:
            lengths = getattr(self.dataset, "lengths", None)
            if lengths is None:
                lengths = [example_length(self.dataset[number]) for number in range(len(order))]
            size = POOL * self.batch_size
            pools = [order[start : start + size] for start in range(0, len(order), size)]
            order = [n for pool in pools for n in sorted(pool, key=lengths.__getitem__)]
        # 3) Cut into batches, of which the sorted ones come in random order.
        starts = range(0, len(order), self.batch_size)
        batches = [order[start : start + self.batch_size] for start in starts]
        if self.grouped:
            shuffled = torch.randperm(len(batches), generator=generator).tolist()
            batches = [batches[number] for number in shuffled]
        return batches


def example_length(example):
    """The tokens of an example: a list of ids, or a dictionary with `input_ids`.

    >>> example_length([2, 17, 3]), example_length({"input_ids": [2, 3]})
    (3, 2)
    """
    return len(example["input_ids"] if hasattr(example, "keys") else example)


# ------------------------------------------------------------------------------------ shares


def count_targets(batch):
    """Over how many predictions the loss of a batch is a mean, as a tensor of no axes.

    Its labels that are not −100, each counted as its row weighs where the batch has `weights`; or,
    without labels, its pairs of real neighbours.

    >>> count_targets({"labels": torch.tensor([[-100, 7, -100], [8, 9, -100]])})
    tensor(3)
    """
    if "labels" in batch:
        asked = batch["labels"] != IGNORE  # (B, T)
        return (asked.sum(1) * batch["weights"]).sum() if "weights" in batch else asked.sum()
    real = _real_tokens(batch)
    return (real[:, 1:] & real[:, :-1]).sum()


def own_share(batch, device, rank=0, processes=1, staying=()):
    """What process number `rank` takes of a batch, and how much its loss counts.

    Every process collates the whole batch, which is cheap, so that masks do not depend on how many
    processes there are. The rows are dealt out in turn. A loss is a mean over a process's own
    labels, and gradients are averaged over processes; so a loss counts

        weight = processes · own labels / labels in the batch

    and the average is the mean over all labels. Where there are more processes than rows, those
    without any take the first row, which then counts 0 times.

    Args:
        batch: tensors (B, …) by name.
        device: where to.
        staying: names of tensors that stay where they are.

    Returns:
        (batch, weight, tokens, targets): the own rows and their weight on the device, and of the
        whole batch the real tokens and the predictions. The last three are tensors of no axes, and
        to look at them is left to the caller.
    """
    tokens = _real_tokens(batch).count_nonzero()
    targets = count = count_targets(batch)
    if processes > 1:
        has_rows = rank < len(batch["input_ids"])
        rows = slice(rank, None, processes) if has_rows else slice(1)
        batch = {name: values[rows].contiguous() for name, values in batch.items()}
        count = count_targets(batch) * has_rows
    weight = processes * count / targets.where(targets > 0, 1)
    own = {name: one if name in staying else _moved(one, device) for name, one in batch.items()}
    return own, _moved(weight, device), tokens, targets


def _real_tokens(batch):
    """The mask of real tokens (B, T), under the name that the batch has for it; or all are real."""
    every = torch.ones_like(batch["input_ids"])
    return batch.get("attention_mask", batch.get("mask", every)).bool()


def gathered(value):
    """What each process has for a value, in the order of their ranks; alone, its own only."""
    if not distributed.is_initialized():
        return [value]
    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def _moved(values, device):
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()  # from pinned memory the copy runs beside the program
    return values.to(device, non_blocking=True)
