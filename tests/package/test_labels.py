"""The four label formats: each leads back to the labels, and none loses one without a word."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lib.labels import (
    IGNORE,
    labels_to_minus_one,
    labels_to_positions,
    labels_to_targets,
    minus_one_to_labels,
    positions_to_labels,
    targets_to_labels,
)
from mlm_lib.losses import masked_cross_entropy

lengths = st.integers(1, 8)
label_rows = lengths.flatmap(
    lambda length: st.lists(
        st.lists(st.just(IGNORE) | st.integers(0, 30), min_size=length, max_size=length),
        min_size=1,
        max_size=5,
    )
)


@settings(deadline=None, max_examples=60)
@given(rows=label_rows, spare=st.integers(0, 3), dtype=st.sampled_from([torch.long, torch.int32]))
def test_every_label_format_leads_back_to_the_labels(rows, spare, dtype):
    labels = torch.tensor(rows)
    length, most = labels.shape[1], int((labels != IGNORE).sum(1).max())
    for max_masks in (None, most + spare):
        positions = labels_to_positions(labels.to(dtype), max_masks)
        targets = labels_to_targets(labels.to(dtype), max_masks)
        assert torch.equal(positions_to_labels(*positions, length), labels)
        assert torch.equal(targets_to_labels(*targets, length), labels)
    assert torch.equal(minus_one_to_labels(labels_to_minus_one(labels)), labels)


def test_a_hand_worked_row_in_the_four_formats():
    # Id 0 is a label like any other.
    labels = torch.tensor([[-100, 0, -100, 9], [-100, -100, 5, -100]])
    positions, ids, weights = labels_to_positions(labels)
    assert positions.tolist() == [[1, 3], [2, 0]]
    assert ids.tolist() == [[0, 9], [5, 0]]
    assert weights.tolist() == [[1, 1], [1, 0]]
    assert labels_to_targets(labels)[1].tolist() == [[0, 9], [5, -100]]
    assert labels_to_minus_one(labels).tolist() == [[-1, 0, -1, 9], [-1, -1, 5, -1]]


def test_rows_without_labels_leave_their_slots_unused():
    positions, ids, weights = labels_to_positions(torch.tensor([[-100, -100], [3, 4]]))
    assert weights.tolist() == [[0, 0], [1, 1]]
    assert ids[0].tolist() == positions[0].tolist() == [0, 0]
    none = labels_to_positions(torch.full((3, 4), -100))
    assert [field.shape for field in none] == [(3, 0)] * 3
    assert (positions_to_labels(*none, 4) == -100).all()


def test_max_masks_adds_unused_slots_and_refuses_to_drop_labels():
    labels = torch.tensor([[1, 2, -100], [3, -100, -100]])
    assert labels_to_positions(labels, 5)[2].tolist() == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    for convert in (labels_to_positions, labels_to_targets):
        with pytest.raises(ValueError, match="a row has 2 labels, and max_masks is 1; raise it"):
            convert(labels, 1)


def test_what_an_unused_slot_names_does_not_matter():
    unused = torch.tensor([[1.0, 0.0]])
    labels = positions_to_labels(torch.tensor([[0, 99]]), torch.tensor([[7, -5]]), unused, 4)
    assert labels.tolist() == [[7, -100, -100, -100]]


def test_positions_may_have_32_bits():
    positions = torch.tensor([[100, 3]] * 40)
    ids, weights = positions * 5, torch.ones(40, 2)
    expected = positions_to_labels(positions, ids, weights, 120)
    assert torch.equal(positions_to_labels(positions.int(), ids, weights, 120), expected)
    assert torch.equal(targets_to_labels(positions.int(), ids, 120), expected)


GOOD = {
    "mask_positions": torch.tensor([[0, 1], [2, 3]]),
    "mask_ids": torch.tensor([[7, 8], [9, 10]]),
    "mask_weights": torch.ones(2, 2),
    "length": 4,
}
REFUSED = {
    "a position outside": {"mask_positions": [[0, 4], [0, 1]]},
    "a negative position": {"mask_positions": [[0, -1], [0, 1]]},
    "fractional positions": {"mask_positions": [[0.0, 1.0], [2.0, 3.0]]},
    "truth values": {"mask_positions": [[True, False]] * 2},
    "no label in a used slot": {"mask_ids": [[7, -100], [9, 8]]},
    "fractional ids": {"mask_ids": [[7.0, 8.0], [9.0, 9.0]]},
    "one column of ids": {"mask_ids": [[7], [8]]},
    "one row of weights": {"mask_weights": [[1.0, 1.0]]},
    "NaN weights": {"mask_weights": [[1.0, float("nan")], [1.0, 1.0]]},
    "negative weights": {"mask_weights": [[1.0, 1.0], [-2.0, 1.0]]},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_positions_that_would_lose_or_invent_a_label_are_refused(change):
    ((name, values),) = change.items()
    with pytest.raises(ValueError, match=name):
        positions_to_labels(**GOOD | {name: torch.tensor(values)})


def test_a_place_that_is_named_twice_is_refused():
    with pytest.raises(ValueError, match="one position"):
        positions_to_labels(**GOOD | {"mask_positions": torch.tensor([[2, 2], [0, 1]])})


@pytest.mark.parametrize("convert", [labels_to_positions, labels_to_targets])
@pytest.mark.parametrize(
    "wrong",
    [torch.tensor([-100, 7]), torch.tensor([[7.0]]), torch.tensor([[-1, 7]])],
    ids=["one row", "float", "the older format"],
)
def test_labels_that_would_be_read_wrongly_are_refused(convert, wrong):
    with pytest.raises(ValueError, match="labels"):
        convert(wrong)


def test_the_four_formats_give_one_loss():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(100, (8, 24), generator=g)
    labels[torch.rand(8, 24, generator=g) < 0.6] = IGNORE
    logits = torch.randn(8, 24, 100, generator=g)
    positions, mask_ids, weights = labels_to_positions(labels, max_masks=20)
    at = logits.gather(1, positions[..., None].expand(-1, -1, 100))  # (B, M, V)
    nll = -at.log_softmax(-1).gather(2, mask_ids[..., None]).squeeze(2)
    minus_one = labels_to_minus_one(labels).flatten()
    losses = [
        masked_cross_entropy(logits, labels),
        (nll * weights).sum() / weights.sum(),
        masked_cross_entropy(at, labels_to_targets(labels, max_masks=20)[1]),
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), minus_one, ignore_index=-1),
    ]
    torch.testing.assert_close(torch.stack(losses), losses[0].expand(4))
