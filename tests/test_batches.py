"""The order of the data, and the shares of a batch."""

import numpy as np
import pytest
import torch
from training_toys import ROWS, Recorder, Seen, Stream, draw_in_callback, go

from mlm_lib import labels
from mlm_lib.engine import batches
from mlm_lib.engine.batches import Order, count_targets, own_share

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_epoch_is_another_permutation_that_depends_on_the_seed_only():
    one, again, other = Seen(), Seen(), Seen()
    go(steps=18, collate=one)
    go(
        steps=18,
        collate=again,
        learning_rate=1e-5,
        checkpoint_every=3,
        log_every=1,
        callbacks=[draw_in_callback],
    )
    go(steps=18, collate=other, seed=1)
    assert one.batches == again.batches != other.batches
    epochs = [sum(one.batches[i : i + 6], []) for i in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(46)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])
    assert [len(batch) for batch in one.batches[:6]] == [
        8,
        8,
        8,
        8,
        8,
        6,
    ]  # the last rows are used too


def test_grouped_batches_hold_rows_of_like_length_and_cover_the_epoch():
    seen = Seen()
    go(steps=12, collate=seen, group_by_length=True)
    for epoch in (seen.batches[:6], seen.batches[6:]):
        assert sorted(sum(epoch, [])) == list(range(46))
        spreads = [
            max(lengths) - min(lengths)
            for lengths in ([len(ROWS[i]) for i in batch] for batch in epoch)
        ]
        assert max(spreads) <= 3  # of 10 without groups
        means = [np.mean([len(ROWS[i]) for i in batch]) for batch in epoch]
        assert means != sorted(means) and means != sorted(means, reverse=True)
    assert seen.batches[:6] != seen.batches[6:]


def test_grouping_saves_padding():
    def width(**settings):
        model = Recorder()
        go(model=model, steps=6, **settings)
        return sum(batch["input_ids"].numel() for batch in model.batches)

    assert width(group_by_length=True) < 0.9 * width()


def test_a_stream_is_read_in_its_own_order_and_told_the_epoch():
    seen, stream = Seen(), Stream()
    go(steps=13, collate=seen, data=stream)
    for epoch in (0, 1):
        stream.set_epoch(epoch)
        assert sum(seen.batches[6 * epoch : 6 * epoch + 6], []) == [
            ROWS.index(row) for row in stream
        ]
    assert [len(batch) for batch in seen.batches] == [8, 8, 8, 8, 8, 6, 8, 8, 8, 8, 8, 6, 8]


def test_a_stream_is_read_no_further_than_the_steps_need():
    stream = Stream()
    go(steps=2, data=stream)
    assert stream.read <= 16


@pytest.mark.parametrize("stop", [4, 6, 8])
def test_a_resumed_stream_goes_on_with_the_next_example(tmp_path, stop):
    whole, first, second = Seen(), Seen(), Seen()
    go(steps=14, collate=whole, data=Stream())
    go(tmp_path, steps=stop, collate=first, data=Stream())
    go(tmp_path, steps=14, collate=second, data=Stream(), resume=True)
    assert first.batches + second.batches == whole.batches


class Renewed:
    """A dataset with a length that holds other rows, and another number of them, in each epoch."""

    def __init__(self):
        self.rows = ROWS[:8]

    def set_epoch(self, epoch):
        self.rows = ROWS[8 * epoch : 8 * epoch + 8 + epoch % 2]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_dataset_with_a_length_is_told_the_epoch_too(grouped):
    seen = Seen()
    go(steps=8, batch_size=4, collate=seen, data=Renewed(), group_by_length=grouped)
    epochs = [seen.batches[:2], seen.batches[2:5], seen.batches[5:7]]
    assert [sorted(sum(epoch, [])) for epoch in epochs] == [
        list(range(8)),
        list(range(8, 17)),
        list(range(16, 24)),
    ]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_dataset_that_is_renewed_in_each_epoch_can_be_resumed(tmp_path, stop, grouped):
    whole, first, second = Seen(), Seen(), Seen()
    settings = {"batch_size": 4, "group_by_length": grouped}
    go(steps=8, collate=whole, data=Renewed(), **settings)
    go(tmp_path, steps=stop, collate=first, data=Renewed(), **settings)
    go(tmp_path, steps=8, collate=second, data=Renewed(), resume=True, **settings)
    assert first.batches + second.batches == whole.batches


@pytest.mark.parametrize(
    "once",
    [iter(ROWS), (row for row in ROWS), map(list, ROWS)],
    ids=["iterator", "generator", "map"],
)
def test_what_can_be_read_only_once_is_refused(once):
    with pytest.raises(ValueError, match=f"a {type(once).__name__} can be read only once"):
        go(data=once)


@pytest.mark.parametrize("empty", [[], Stream([])], ids=["list", "stream"])
def test_an_empty_dataset_is_refused(empty):
    with pytest.raises(ValueError, match="empty"):
        go(data=empty)


def test_a_stream_cannot_be_grouped_by_length():
    with pytest.raises(ValueError, match="group_by_length"):
        go(data=Stream(), group_by_length=True)


def test_a_dataset_smaller_than_a_batch_is_used_whole():
    seen = Seen()
    go(steps=3, collate=seen, data=ROWS[:3])
    assert [sorted(batch) for batch in seen.batches] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("nothing", [None, 3])
def test_what_holds_no_examples_is_refused(nothing):
    with pytest.raises(ValueError, match="holds no examples"):
        go(data=nothing)


def test_an_order_goes_on_where_its_state_says():
    whole, resumed = Order(ROWS, 8, 5), Order(ROWS, 8, 5)
    dealt = [whole.next() for _ in range(9)]
    resumed.load_state_dict({"epoch": 1, "place": 2})
    assert resumed.next() == dealt[8] and resumed.state_dict() == {"epoch": 1, "place": 3}


# ------------------------------------------------------------------------------------ shares

CPU = torch.device("cpu")
LABELS = torch.tensor([[-100, 7, -100], [8, 9, 10], [-100, -100, -100]])
BATCH = {"input_ids": torch.arange(9).view(3, 3), "mask": LABELS != 0, "labels": LABELS}


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_weighted_shares_add_up_to_the_mean_over_all_labels(processes):
    total = 0.0
    for rank in range(processes):
        batch, weight, tokens, targets = own_share(BATCH, CPU, rank, processes)
        labels = batch["labels"]
        total += weight.item() * labels[labels != -100].double().mean().item() / processes
        assert (tokens.item(), targets.item()) == (9, 4)
        assert (labels != -100).any()  # or a mean over none would be NaN
    assert total == pytest.approx((7 + 8 + 9 + 10) / 4)


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_shares_of_rows_with_weights_add_up_to_the_weighted_mean(processes):
    given = BATCH | {"weights": torch.tensor([5.0, 0.5, 2.0])}
    total = 0.0
    for rank in range(processes):
        batch, weight, _, targets = own_share(given, CPU, rank, processes)
        asked = batch["labels"] != -100
        each = asked * batch["weights"][:, None]
        mean = (batch["labels"] * each).sum() / each.sum()
        total += (weight * mean).item() / processes
        assert targets.item() == 5 * 1 + 0.5 * 3
    assert total == pytest.approx((5 * 7 + 0.5 * (8 + 9 + 10)) / 6.5)


def test_weights_far_below_1_are_no_less_exact():
    given = BATCH | {"weights": torch.tensor([0.05, 0.005, 0.02])}
    shares = [own_share(given, CPU, rank, 2)[1].item() for rank in range(2)]
    assert sum(shares) == pytest.approx(2.0)


@pytest.mark.parametrize("free", [True, False])
def test_a_share_without_labels_counts_nothing_and_the_batch_stays_as_it_was(monkeypatch, free):
    if not free:  # as on an accelerator, where a look would make the program wait
        monkeypatch.setattr(batches, "can_look", lambda tensor: False)
    before = LABELS.clone()
    for rank, weights_are_0 in ((0, False), (2, True)):
        batch, weight, _, _ = own_share(BATCH, CPU, rank, 3)
        assert (weight == 0) == weights_are_0
        assert batch["labels"].tolist() == (
            [[0, -100, -100]] if weights_are_0 else [[-100, 7, -100]]
        )
    assert torch.equal(LABELS, before)


def test_without_labels_pairs_of_real_neighbours_are_counted():
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    ids = torch.zeros(2, 4)
    assert count_targets({"input_ids": ids, "mask": mask}) == 2
    assert count_targets({"input_ids": ids}) == 6


def test_no_label_is_the_same_number_here_and_where_labels_are_written():
    assert batches.IGNORE == labels.IGNORE  # two files of one tier, which import nothing of theirs
