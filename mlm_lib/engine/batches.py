"""Which examples come when, and which process takes which of them. Built in lesson 08.

`Order` deals the data out, batch after batch and epoch after epoch. `own_share` is what one of
several processes takes of a batch, weighted so that together they train as one would alone.
"""

import hashlib
from itertools import islice

import torch

from mlm_lib.checks import can_look, flag, whole_number

IGNORE = -100  # the label of a position that has none
# Batches whose rows are sorted together when rows of like length share one, as in transformers.
POOL = 50


class Order:
    """The order of the data: it depends on the seed and on nothing else, and can be taken up again.

    Args:
        dataset: a sequence of examples, or an iterable that can be read again and again. Its
            `set_epoch` is called if it has one.
        batch_size: examples in a batch; the last one of an epoch may be smaller.
        seed: of the permutations. A stream keeps its own order.
        grouped: rows of like length share a batch, which saves padding.

    Raises:
        ValueError: an empty dataset, one to be read only once, or a stream that is to be grouped.
    """

    def __init__(self, dataset, batch_size, seed=0, *, grouped=False):
        self.batch_size = whole_number("batch_size", batch_size)
        self.seed, self.grouped = whole_number("seed", seed, least=None), flag("grouped", grouped)
        self.dataset, self.sized = dataset, is_sized(dataset)
        if not self.sized and not hasattr(dataset, "__iter__"):
            raise ValueError(f"a {type(dataset).__name__} holds no examples; pass a list of them")
        if self.sized and not len(dataset):
            raise ValueError("the dataset is empty; there is nothing to train on")
        if not self.sized and iter(dataset) is dataset:
            raise ValueError(
                f"a {type(dataset).__name__} can be read only once; "
                "pass a sequence, or a stream of `datasets`"
            )
        if self.grouped and not self.sized:
            raise ValueError(
                "group_by_length needs a dataset with a length, which a stream has not; turn it off"
            )
        self.epoch, self.place, self.batches = 0, 0, None
        self._tell_epoch()

    def next(self):
        """The next list of examples; after the last of an epoch comes the first of the next."""
        while True:
            self.batches = self.batches or self._epoch()
            batch = next(self.batches, None)
            if batch is not None:
                self.place += 1
                return batch
            if not self.place:
                raise ValueError("the dataset is empty; there is nothing to train on")
            self.load_state_dict({"epoch": self.epoch + 1, "place": 0})

    def state_dict(self):
        """The epoch, and how many of its batches were dealt out."""
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state):
        """Goes on after the batches of `state`."""
        self.epoch, self.place, self.batches = state["epoch"], state["place"], None

    def _tell_epoch(self):
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)

    def _epoch(self):
        """The batches of this epoch from `place` on."""
        self._tell_epoch()
        if self.sized:
            for numbers in self._numbers()[self.place :]:
                yield [self.dataset[number] for number in numbers]
            return
        examples = islice(iter(self.dataset), self.place * self.batch_size, None)
        while batch := list(islice(examples, self.batch_size)):
            yield batch

    def _numbers(self):
        """The epoch's batches, as the numbers of their examples."""
        # 1) A permutation, another one in each epoch.
        generator = torch.Generator().manual_seed(_seed(self.seed, "order", self.epoch))
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        # 2) Where rows of like length share a batch: sorted, but only among their neighbours, so
        #    that an epoch does not go from short to long.
        if self.grouped:
            order = self._sorted_in_pools(order)
        # 3) Cut into batches, of which the sorted ones come in random order.
        starts = range(0, len(order), self.batch_size)
        batches = [order[start : start + self.batch_size] for start in starts]
        if self.grouped:
            shuffled = torch.randperm(len(batches), generator=generator).tolist()
            batches = [batches[number] for number in shuffled]
        return batches

    def _sorted_in_pools(self, order):
        lengths = [example_length(self.dataset[number]) for number in range(len(self.dataset))]
        size, result = POOL * self.batch_size, []
        for start in range(0, len(order), size):
            result += sorted(order[start : start + size], key=lengths.__getitem__)
        return result


def is_sized(dataset):
    """Whether examples can be counted and taken by number; otherwise it is a stream."""
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")


def example_length(example):
    """The tokens of an example: a list of ids, or a dictionary with `input_ids`.

    >>> example_length([2, 17, 3]), example_length({"input_ids": [2, 3]})
    (3, 2)
    """
    return len(example["input_ids"] if hasattr(example, "keys") else example)


def _seed(*parts):
    """A number of 63 bits that depends on every part."""
    digest = hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


# ------------------------------------------------------------------------------------ shares


def real_tokens(batch):
    """The mask of real tokens (B, T), under the name that the batch has for it, or None."""
    return batch.get("attention_mask", batch.get("mask"))


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
    real = real_tokens(batch)
    if real is None:
        return torch.tensor(batch["input_ids"][:, 1:].numel())
    return (real[:, 1:].bool() & real[:, :-1].bool()).sum()


def own_share(batch, device, rank=0, processes=1):
    """What process number `rank` takes of a batch, and how much its loss counts.

    Every process collates the whole batch, which is cheap, so that masks do not depend on how many
    processes there are. The rows are dealt out in turn. A loss is a mean over a process's own
    labels, and gradients are averaged over processes; so a loss counts

        weight = processes · own labels / labels in the batch

    and the average is the mean over all labels.

    Args:
        batch: tensors (B, …) by name.
        device: where to.

    Returns:
        (batch, weight, tokens, targets): the own rows on the device, their weight, and of the
        whole batch the real tokens and the predictions. The last three are tensors of no axes, on
        the device that the batch came from: to look at them there is left to the caller.
    """
    real = real_tokens(batch)
    tokens = torch.tensor(batch["input_ids"].numel()) if real is None else real.count_nonzero()
    targets = own = count_targets(batch)
    if processes > 1:
        batch = {name: rows[rank::processes] for name, rows in batch.items()}
        own = count_targets(batch)
    weight = processes * own / targets.where(targets > 0, 1)
    batch = _never_without_labels(batch, own)
    return {name: _moved(rows, device) for name, rows in batch.items()}, weight, tokens, targets


def _never_without_labels(batch, own):
    """The batch, in which a label whose loss counts 0 times stands where there is none.

    Over no labels the mean of a transformers model is NaN, and 0 · NaN is NaN.
    """
    if can_look(own) and own:
        return batch
    batch = {
        name: rows if len(rows) else rows.new_ones(1, *rows.shape[1:])
        for name, rows in batch.items()
    }
    if "labels" in batch:
        labels = batch["labels"]  # (B, T)
        first = labels[:, :1].where(own > 0, 0)  # on an accelerator this asks without waiting
        batch["labels"] = torch.cat((first, labels[:, 1:]), dim=1)
    return batch


def _moved(rows, device):
    if device.type == "cuda" and rows.device.type == "cpu":
        rows = rows.pin_memory()  # from pinned memory the copy runs beside the program
    return rows.to(device, non_blocking=True)
