"""The order of the data, and the parts of a batch."""

import numpy as np
import pytest
import torch
from training_toys import ROWS, Renewed, Seen, draw_in_callback, go

from mlm_lib.engine.batches import BatchSampler, count_targets, count_tokens, shard

pytestmark = pytest.mark.usefixtures("one_thread")


def test_each_epoch_is_another_permutation_that_depends_on_the_seed_only():
    one, again, other = Seen(), Seen(), Seen()
    go(steps=18, collate=one)
    go(steps=18, collate=again, learning_rate=1e-5, log_every=1, callbacks=[draw_in_callback])
    go(steps=18, collate=other, seed=1)
    assert one.batches == again.batches != other.batches
    epochs = [sum(one.batches[i : i + 6], []) for i in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(46)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])
    assert list(map(len, one.batches[:6])) == [8, 8, 8, 8, 8, 6]  # the last rows are used too


def test_grouped_batches_hold_rows_of_like_length_and_cover_the_epoch():
    seen = Seen()
    go(steps=12, collate=seen, group_by_length=True)
    for epoch in (seen.batches[:6], seen.batches[6:]):
        assert sorted(sum(epoch, [])) == list(range(46))
        lengths = [[len(ROWS[i]) for i in batch] for batch in epoch]
        assert max(max(batch) - min(batch) for batch in lengths) <= 3  # of 10 without groups
        means = list(map(np.mean, lengths))
        assert means != sorted(means) and means != sorted(means, reverse=True)
    assert seen.batches[:6] != seen.batches[6:]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_dataset_is_told_the_epoch(grouped):
    seen = Seen()
    go(steps=8, batch_size=4, collate=seen, data=Renewed(), group_by_length=grouped)
    epochs = [seen.batches[:2], seen.batches[2:5], seen.batches[5:7]]
    rows = [range(8), range(8, 17), range(16, 24)]
    assert [sorted(sum(epoch, [])) for epoch in epochs] == list(map(list, rows))


@pytest.mark.parametrize("stop", [4, 5, 7])  # the first epochs have 2, 3 and 2 batches
@pytest.mark.parametrize("grouped", [False, True])
def test_a_resumed_run_goes_on_with_the_next_example(tmp_path, stop, grouped):
    settings = {"batch_size": 4, "group_by_length": grouped}
    whole, first, second = Seen(), Seen(), Seen()
    go(steps=14, collate=whole, data=Renewed(), **settings)
    go(tmp_path, steps=stop, collate=first, data=Renewed(), **settings)
    go(tmp_path, steps=14, collate=second, data=Renewed(), resume=True, **settings)
    assert first.batches + second.batches == whole.batches


def test_data_that_are_empty_or_no_sequence_are_refused():
    with pytest.raises(ValueError, match="empty"):
        go(data=[])
    with pytest.raises(TypeError):
        go(data=iter(ROWS))


def test_a_dataset_smaller_than_a_batch_is_used_whole():
    seen = Seen()
    go(steps=3, collate=seen, data=ROWS[:3])
    assert [sorted(batch) for batch in seen.batches] == [[0, 1, 2]] * 3


def test_an_order_goes_on_where_its_state_says():
    whole, resumed = BatchSampler(ROWS, 8, 5), BatchSampler(ROWS, 8, 5)
    dealt = [whole.next() for _ in range(9)]
    resumed.load_state_dict({"epoch": 1, "place": 2})
    assert resumed.next() == dealt[8] and resumed.state_dict() == {"epoch": 1, "place": 3}


# ------------------------------------------------------------------------------------ parts

CPU = torch.device("cpu")
LABELS = torch.tensor([[-100, 7, -100], [8, 9, 10], [-100, -100, -100]])
BATCH = {"input_ids": torch.arange(9).view(3, 3), "mask": LABELS != 0, "labels": LABELS}


def mean_label(batch):
    """The mean over labels, weighted by row, as a loss is; over none it is NaN."""
    each = (batch["labels"] != -100) * batch.get("weights", torch.ones(3))[
        : len(batch["labels"]), None
    ]
    return (batch["labels"] * each).sum() / each.sum()


@pytest.mark.parametrize("row_weights", [None, [5.0, 0.5, 2.0], [0.05, 0.005, 0.02]])
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_weighted_shares_add_up_to_the_mean_over_all_labels(processes, row_weights):
    given = BATCH | ({"weights": torch.tensor(row_weights)} if row_weights else {})
    total = 0.0
    for rank in range(processes):
        share, weight = shard(given, CPU, rank, processes)
        total += (mean_label(share) * weight).where(weight > 0, 0.0).item() / processes
    due = 4 if row_weights is None else row_weights[0] + 3 * row_weights[1]
    assert (count_tokens(given).item(), count_targets(given).item()) == (9, pytest.approx(due))
    assert total == pytest.approx(mean_label(given).item())


def test_a_process_without_rows_takes_one_that_counts_0_times():
    batch, weight = shard(BATCH, CPU, 3, 4)
    assert batch["labels"].tolist() == [[-100, 7, -100]] and weight == 0


def test_without_labels_pairs_of_real_neighbours_are_counted():
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    ids = torch.zeros(2, 4)
    assert count_targets({"input_ids": ids, "mask": mask}) == 2
    assert count_targets({"input_ids": ids}) == 6
