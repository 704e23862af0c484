"""The four label formats: each leads back to the labels, and none loses one without a word."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlm_lib import labels as rooms
from mlm_lib import losses, masking
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


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_positions_of_any_whole_type_are_widened(dtype):
    # Row times length runs beyond 127 and 255 long before a position does.
    positions = torch.tensor([[100, 3]] * 40)
    ids, weights = positions * 5, torch.ones(40, 2)
    expected = positions_to_labels(positions, ids, weights, 120)
    assert torch.equal(positions_to_labels(positions.to(dtype), ids, weights, 120), expected)
    assert torch.equal(targets_to_labels(positions.to(dtype), ids, 120), expected)


GOOD = {
    "mask_positions": torch.tensor([[0, 1], [2, 3]]),
    "mask_ids": torch.tensor([[7, 8], [9, 10]]),
    "mask_weights": torch.ones(2, 2),
    "length": 4,
}
nan = float("nan")
REFUSED = {
    "positions outside": ({"mask_positions": [[0, 4], [0, 1]]}, "mask_positions holds 4; a number"),
    "negative positions": ({"mask_positions": [[0, -1], [0, 1]]}, "mask_positions holds -1"),
    "a place named twice": ({"mask_positions": [[2, 2], [0, 1]]}, "name position 2"),
    "no label in a used slot": ({"mask_ids": [[7, -100], [9, 8]]}, "mask_ids holds -100; a token"),
    "one column of weights": ({"mask_weights": [[1.0], [1.0]]}, "mask_weights=a torch.float32 te"),
    "one row of weights": ({"mask_weights": [[1.0, 1.0]]}, "(1, 2); a tensor (2, 2), the shape of"),
    "one column of ids": ({"mask_ids": [[7], [8]]}, "mask_ids=a torch.int64 tensor (2, 1)"),
    "NaN weights": ({"mask_weights": [[1.0, nan], [1.0, 1.0]]}, "mask_weights holds nan; a weight"),
    "negative weights": ({"mask_weights": [[1.0, 1.0], [-2.0, 1.0]]}, "mask_weights holds -2.0"),
    "fractional positions": ({"mask_positions": [[0.0, 1.0], [2.0, 3.0]]}, "mask_positions=a tor"),
    "truth values": ({"mask_positions": [[True, False]] * 2}, "mask_positions=a torch.bool tensor"),
    "fractional ids": ({"mask_ids": [[7.0, 8.0], [9.0, 9.0]]}, "mask_ids=a torch.float32 tensor"),
    "a negative length": ({"length": -1}, "length=-1; a whole number of at least 0 is needed"),
    "a length of truth": ({"length": True}, "length=True"),
}


@pytest.mark.parametrize("change, message", REFUSED.values(), ids=REFUSED)
def test_positions_that_would_lose_or_invent_a_label_are_refused(change, message):
    change = {k: v if k == "length" else torch.tensor(v) for k, v in change.items()}
    with pytest.raises(ValueError, match=re.escape(message)):
        positions_to_labels(**GOOD | change)


@pytest.mark.parametrize("name", ["mask_positions", "mask_ids", "mask_weights"])
@pytest.mark.parametrize("wrong", [[[0, 1], [2, 3]], None, "7"], ids=["list", "None", "text"])
def test_what_is_no_tensor_is_refused_by_name(name, wrong):
    with pytest.raises(ValueError, match=f"{name}="):
        positions_to_labels(**GOOD | {name: wrong})


@pytest.mark.parametrize(
    "convert",
    [
        labels_to_positions,
        labels_to_targets,
        labels_to_minus_one,
        minus_one_to_labels,
        lambda wrong: targets_to_labels(GOOD["mask_positions"], wrong, 4),
    ],
    ids=["positions", "targets", "minus one", "from minus one", "from targets"],
)
@pytest.mark.parametrize(
    "wrong",
    [[[-100, 7]], None, torch.tensor([[7.0]]), torch.tensor([[7]], dtype=torch.int16)],
    ids=["list", "None", "float", "int16"],
)
def test_labels_that_are_no_tensor_of_ids_are_refused(convert, wrong):
    with pytest.raises(ValueError, match="(labels|target_ids)=.* tensor"):
        convert(wrong)


@pytest.mark.parametrize("wrong", [True, 1.5, -1, "3"])
def test_a_number_of_slots_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match=f"max_masks={wrong!r}"):
        labels_to_positions(torch.tensor([[-100, -100]]), wrong)


def test_labels_of_one_row_need_a_batch_axis():
    with pytest.raises(ValueError, match=r"labels=a torch.int64 tensor \(2,\); a tensor \(B, T\)"):
        labels_to_positions(torch.tensor([-100, 7]))


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


@pytest.mark.parametrize("old, names", [(masking, dir(rooms)), (losses, ["IGNORE"])])
def test_what_moved_is_still_found_where_lessons_import_it_from(old, names):
    moved = [name for name in names if name == "IGNORE" or "_to_" in name]
    assert moved and all(getattr(old, name) is getattr(rooms, name) for name in moved)
