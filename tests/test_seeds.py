"""A batch's random numbers depend on seed, epoch and batch, in any number of workers."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import DataLoader
from toys import tokenizer_of

from mlm_lib.masking import BatchSeeds, MaskingCollator

TOKENIZER = tokenizer_of(*(f"w{i}" for i in range(5, 90)), "##s")
ROWS = torch.randint(5, 90, (40, 30), generator=torch.Generator().manual_seed(0)).tolist()
quiet = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def masks(**options):
    return MaskingCollator(TOKENIZER, **{"rate": 0.3, "seed": 5} | options)


def loader(workers=0, collator=None, rows=ROWS, **options):
    collator = masks() if collator is None else collator
    return DataLoader(rows, batch_size=4, collate_fn=collator, num_workers=workers, **options)


def labels_of(batches):
    return [fields["labels"] for fields in batches]


def equal(ones, others):
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


def all_new(*epochs):
    """No batch of one epoch has the labels of the same batch in another."""
    return not any(
        torch.equal(one[place], other[place])
        for number, one in enumerate(epochs)
        for other in epochs[:number]
        for place in range(len(one))
    )


# ---------------------------------------------------------------------------------- without workers


@pytest.mark.parametrize("seed", [None, 5])
def test_masks_are_dynamic(seed):
    collator = masks(seed=seed)
    assert not torch.equal(collator(ROWS)["labels"], collator(ROWS)["labels"])


@pytest.mark.parametrize("strategy", ["token", "whole_word", "span"])
def test_two_collators_with_one_seed_agree_call_by_call(strategy):
    one, other, third = (masks(strategy=strategy, seed=seed) for seed in (0, 0, 6))
    state = torch.get_rng_state()
    for _ in range(3):
        expected = one(ROWS)["labels"]
        assert torch.equal(other(ROWS)["labels"], expected)
        assert not torch.equal(third(ROWS)["labels"], expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_collator_goes_on_from_a_stored_state_with_the_next_batch():
    collator, other = masks(), masks()
    collator(ROWS)
    other.load_state_dict(collator.state_dict())
    assert torch.equal(other(ROWS)["labels"], collator(ROWS)["labels"])
    assert collator.state_dict() == other.state_dict() == {"batches": 2}


@pytest.mark.parametrize("wrong", [-1, 1.5, "2", None, True])
def test_a_state_that_counts_no_batches_is_refused(wrong):
    with pytest.raises(ValueError, match=f"batches={wrong!r}; a whole number of at least 0"):
        masks().load_state_dict({"batches": wrong})


@pytest.mark.parametrize("wrong", [3.0, "3", True, torch.Generator()])
def test_a_seed_that_is_no_whole_number_is_refused(wrong):
    with pytest.raises(ValueError, match="seed=.*; a whole number is needed"):
        BatchSeeds(wrong)


# ------------------------------------------------------------------------------------ in workers


@quiet
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_first_epoch_does_not_depend_on_the_number_of_workers(workers):
    assert equal(labels_of(loader(workers)), labels_of(loader(0)))


@quiet
def test_nor_do_the_later_epochs_or_other_loaders_between_them():
    epochs = []
    for workers, between in ((1, 0), (3, 0), (1, 2)):
        batches = loader(workers)
        epochs.append([])
        for _ in range(3):
            epochs[-1] += labels_of(batches)
            labels_of(loader(between, masks(seed=9)))
    assert equal(epochs[0], epochs[1]) and equal(epochs[0], epochs[2])


@quiet
@pytest.mark.parametrize(
    "options", [{}, {"workers": 2}, {"workers": 2, "persistent_workers": True}], ids=str
)
@pytest.mark.parametrize("reseed", [False, True])
def test_every_epoch_has_new_masks_whatever_torch_is_seeded_with(options, reseed):
    batches, epochs = loader(**options), []
    for _ in range(3):
        if reseed:
            torch.manual_seed(3)
        epochs.append(labels_of(batches))
    assert all_new(*epochs)


@quiet
def test_two_fresh_loaders_agree_in_every_epoch_whatever_the_global_seed():
    epochs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        batches = loader(2)
        epochs.append(labels_of(batches) + labels_of(batches))
    assert equal(*epochs)


@quiet
def test_two_loaders_over_one_collator_have_epochs_of_their_own():
    collator = masks()
    one, other = loader(2, collator), loader(1, collator)
    assert all_new(*(labels_of(batches) for batches in (one, other, one, other)))


@quiet
def test_trying_the_collator_out_first_does_not_shift_what_workers_do():
    collator = masks()
    collator(ROWS)
    assert equal(labels_of(loader(2, collator)), labels_of(loader(0)))


@quiet
def test_an_epoch_that_is_broken_off_counts_for_all_workers_alike():
    epochs = []
    for _ in range(3):
        batches = loader(2)
        next(iter(batches))
        epochs.append(labels_of(batches))
    assert equal(epochs[0], epochs[1]) and equal(epochs[0], epochs[2])


@quiet
def test_going_on_without_workers_gives_new_masks():
    collator = masks()
    assert all_new(labels_of(loader(2, collator)), labels_of(loader(0, collator)))


@quiet
@pytest.mark.parametrize("seed", [None, 5])
def test_workers_do_not_repeat_one_anothers_masks(seed):
    batches = labels_of(loader(3, masks(seed=seed), rows=[ROWS[0]] * 24))
    assert len({tuple(labels.flatten().tolist()) for labels in batches}) == 6


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_give_the_same_masks_and_new_ones_in_each_epoch(method):
    batches, epochs = loader(2, multiprocessing_context=method), []
    for _ in range(2):
        torch.manual_seed(3)
        epochs.append(labels_of(batches))
    assert equal(epochs[0], labels_of(loader(0)))
    assert all_new(*epochs)


# ------------------------------------------------------------------------------------ copies


@quiet
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["deepcopy", "pickle"]
)
def test_a_copy_goes_on_like_the_original_also_in_workers(copied):
    collator = masks()
    collator(ROWS)
    twin = copied(collator)
    assert torch.equal(twin(ROWS)["labels"], collator(ROWS)["labels"])
    batches = loader(2, copied(masks()))
    first, second = labels_of(batches), labels_of(batches)
    assert equal(first, labels_of(loader(0))) and all_new(first, second)


@quiet
def test_an_original_and_its_copy_count_their_epochs_apart():
    original = masks()
    first = labels_of(loader(2, original))
    twin = copy.deepcopy(original)
    second = labels_of(loader(2, twin))
    assert all_new(first, second)
    assert equal(labels_of(loader(2, original)), second)


@quiet
def test_a_copy_in_another_program_takes_none_of_its_processes_for_an_earlier_epoch():
    # There the numbers of the processes begin again, and may be those of the epoch before.
    collator = masks()
    first = labels_of(loader(1, collator))
    marked = collator._seeds._begun.item()
    twin = pickle.loads(pickle.dumps(collator))
    assert twin._seeds._begun.item() < marked
    assert all_new(first, labels_of(loader(1, twin)))
