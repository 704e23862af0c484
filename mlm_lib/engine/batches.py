"""Batches: the order of the examples, what a batch counts, and how several processes share it.

`train` and the loop in the lesson on pretraining take their batches from a `BatchSampler`. It deals
out the examples of a data set, batch after batch and epoch after epoch. `shard` cuts out the rows
of a batch that one of several processes computes. It also returns a weight for the loss of these
rows. With these weights several processes train as one process would.
"""

import hashlib

import torch
from torch import distributed

from mlm_lib.checks import whole_number

IGNORE = -100  # the label of a position that is not predicted, as in PyTorch and transformers
# With `grouped`, rows are sorted by length within pools of this many batches, as in transformers.
POOL = 50


class BatchSampler:
    """Deals out the examples of a data set in random order, one batch at a time, without end.

    The order depends only on the seed and the number of the epoch: random numbers that are drawn
    elsewhere do not change it. A run that was interrupted can go on with the next batch, because
    the place in the order can be saved and loaded.

    Args:
        dataset: a sequence of examples. If it has a method `set_epoch`, the method is called at the
            start of each epoch. If it has an attribute `lengths`, `grouped` reads the lengths of
            the examples there and need not read the examples themselves.
        batch_size: the number of examples in a batch. The last batch of an epoch may be smaller.
        seed: the seed of the random order.
        grouped: whether to put examples of similar length into one batch, which saves padding.

    Raises:
        ValueError: the data set is empty.

    >>> sampler = BatchSampler(["a", "b", "c"], batch_size=2)
    >>> [len(sampler.next()) for _ in range(4)]
    [2, 1, 2, 1]
    """

    def __init__(self, dataset, batch_size, seed=0, *, grouped=False):
        self.dataset, self.seed, self.grouped = dataset, seed, grouped
        self.batch_size = whole_number("batch_size", batch_size)
        if not len(dataset):
            raise ValueError("the dataset is empty; there is nothing to train on")
        self.load_state_dict({"epoch": 0, "place": 0})

    def next(self):
        """The next batch, as a list of examples. After the last batch a new epoch begins."""
        if self.place == len(self.batches):
            self.load_state_dict({"epoch": self.epoch + 1, "place": 0})
        self.place += 1
        return [self.dataset[index] for index in self.batches[self.place - 1]]

    def state_dict(self):
        """The number of the epoch, and how many of its batches have been dealt out."""
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state):
        """Goes to the place that `state_dict` saved, so that `next` gives the batch after it."""
        self.epoch, self.place = state["epoch"], state["place"]
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)
        self.batches = self._batches_of_epoch()

    def _batches_of_epoch(self):
        """The batches of the present epoch, each a list of indices into the data set."""
        # 1) A permutation of the indices, which is different in each epoch.
        digest = hashlib.blake2b(f"{self.seed} order {self.epoch}".encode(), digest_size=8).digest()
        seed = int.from_bytes(digest, "little") >> 1  # 63 bits, which depend on seed and epoch
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        # 2) With `grouped`, the indices are sorted by length within pools of some batches. If the
        #    whole epoch were sorted, it would go from short rows to long rows.
        if self.grouped:
            lengths = getattr(self.dataset, "lengths", None)
            if lengths is None:
                lengths = [example_length(self.dataset[index]) for index in range(len(order))]
            size = POOL * self.batch_size
            pools = [order[start : start + size] for start in range(0, len(order), size)]
            order = [index for pool in pools for index in sorted(pool, key=lengths.__getitem__)]
        # 3) The order is cut into batches. Sorted batches are shuffled once more.
        starts = range(0, len(order), self.batch_size)
        batches = [order[start : start + self.batch_size] for start in starts]
        if self.grouped:
            shuffled = torch.randperm(len(batches), generator=generator).tolist()
            batches = [batches[number] for number in shuffled]
        return batches


def example_length(example):
    """The number of tokens in an example: a list of ids, or a dictionary with `input_ids`.

    >>> example_length([2, 17, 3]), example_length({"input_ids": [2, 3]})
    (3, 2)
    """
    return len(example["input_ids"] if hasattr(example, "keys") else example)


# ------------------------------------------------------------------------------------ counts


def count_tokens(batch):
    """The number of tokens in a batch without its padding, as a tensor without axes.

    >>> count_tokens({"input_ids": torch.ones(2, 3), "mask": torch.tensor([[1, 1, 0], [1, 1, 1]])})
    tensor(5)
    """
    return _real_tokens(batch).count_nonzero()


def count_targets(batch):
    """The number of predictions over which the loss of a batch is a mean, a tensor without axes.

    With `labels`, these are the labels that are not −100. If the batch also has `weights`, each
    label counts as much as the weight of its row. Without `labels`, as for a language model, each
    pair of neighbouring tokens is a prediction. Pairs with padding do not count.

    >>> count_targets({"labels": torch.tensor([[-100, 7, -100], [8, 9, -100]])})
    tensor(3)
    >>> count_targets({"labels": torch.tensor([1, 0])})  # labels of a classifier, one for each text
    tensor(2)
    """
    if "labels" in batch:
        has_label = batch["labels"] != IGNORE  # (B, T), or (B,) for a classifier
        if "weights" not in batch:
            return has_label.sum()
        return (has_label.sum(1) * batch["weights"]).sum()  # (B,) labels of a row times its weight
    real = _real_tokens(batch)
    return (real[:, 1:] & real[:, :-1]).sum()


def _real_tokens(batch):
    """A bool tensor (B, T): True at tokens, False at padding. All True without a mask."""
    no_padding = torch.ones_like(batch["input_ids"])
    return batch.get("attention_mask", batch.get("mask", no_padding)).bool()


# ------------------------------------------------------------------------------------ processes


def shard(batch, device, index=0, count=1, cpu_inputs=()):
    """Cuts a batch into `count` parts and returns one of them, with the weight of its loss.

    Several processes train on one batch: every process makes the whole batch, which is cheap, and
    computes one part of it. In this way the masks do not depend on the number of processes. Part
    `index` has the rows `index`, `index + count`, `index + 2 * count` and so on.

    The loss of a part is a mean over its own labels, and the gradients of the parts are averaged.
    The average is the gradient of the whole batch if each loss is first multiplied by::

        weight = count * labels in the part / labels in the batch

    If there are more parts than rows, a part without rows takes the first row with weight 0.

    Args:
        batch: a dictionary of tensors (B, …).
        device: the rows and the weight are moved to this device.
        index: the number of the part, from 0.
        count: the number of parts.
        cpu_inputs: names of tensors that are not moved, because the model reads them on the CPU.

    Returns:
        (rows, weight): a dictionary of the part's rows, and a tensor without axes.

    >>> ids = torch.tensor([[5], [6], [7]])
    >>> batch = {"input_ids": ids, "labels": ids}
    >>> rows, weight = shard(batch, torch.device("cpu"), index=0, count=2)
    >>> rows["input_ids"].tolist(), round(weight.item(), 3)
    ([[5], [7]], 1.333)
    """
    targets = own_targets = count_targets(batch)
    if count > 1:
        has_rows = index < len(batch["input_ids"])
        rows = slice(index, None, count) if has_rows else slice(1)
        batch = {name: values[rows].contiguous() for name, values in batch.items()}
        own_targets = count_targets(batch) * has_rows
    weight = count * own_targets / targets.where(targets > 0, 1)
    rows = {
        name: values if name in cpu_inputs else _moved(values, device)
        for name, values in batch.items()
    }
    return rows, _moved(weight, device)


def all_gather(value):
    """Collects a value from each process, and returns a list of them in the order of the ranks.

    Each process must call this function, and each gets the whole list. If there is only one
    process, the list has one value.
    """
    if not distributed.is_initialized():
        return [value]
    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def _moved(values, device):
    """The tensor on the device."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()  # a copy from pinned memory runs while the program goes on
    return values.to(device, non_blocking=True)
