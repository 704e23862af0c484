"""Losses, accuracy, bands and calibration: worked by hand, and against loops."""

import math
import random

import pytest
import torch
from readers import TOKENIZER, Says, V, batches_of, both_models, masked_rows
from small_runs import GRAMMAR

from mlm_lib.evaluation import (
    Answers,
    Band,
    by_frequency,
    calibration,
    closed_gap,
    masked_accuracy,
    masked_answers,
    masked_loss,
    mean_nats,
)
from mlm_lib.grammar import Grammar
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import HeldOut

pytestmark = pytest.mark.usefixtures("one_thread")
BATCHES = batches_of(masked_rows(), 4)


def answers(nats, rows, targets=None, ranks=None):
    zeros = [0] * len(nats)
    return Answers(
        torch.tensor(targets or zeros),
        torch.tensor(nats, dtype=torch.float64),
        torch.tensor(ranks or zeros),
        torch.tensor(rows),
    )


# ------------------------------------------------------------------------------------ loss


@both_models
def test_the_loss_is_that_of_held_out_with_each_token_counted_once(model):
    collate = MaskingCollator(TOKENIZER, seed=3)
    held = HeldOut([[2, *[5 + i % 7] * i, 3] for i in range(1, 17)], collate, batch_size=5)
    found = masked_loss(model, held.batches)
    assert found.count == held.count
    assert found.nats == pytest.approx(held(model)["held_out_loss"], rel=1e-6)
    losses = [masked_loss(model, [batch]) for batch in held.batches if (batch["labels"] > 0).any()]
    assert len({one.count for one in losses}) > 1  # a mean of means would be another number
    assert found.nats == pytest.approx(sum(x.nats * x.count for x in losses) / found.count)


def test_the_standard_error_takes_the_tokens_of_a_row_as_one_draw():
    # Rows of sums 3 and 6, counts 2 and 1; mean 9/3. What they lie off: 3 - 2·3 and 6 - 1·3.
    assert mean_nats(answers([1.0, 2.0, 6.0], [4, 4, 9])) == pytest.approx((3.0, 2.0, 3))


def test_the_standard_error_is_that_of_a_bootstrap_over_rows():
    draw, rows = random.Random(0), []
    for _ in range(200):
        hard = draw.gauss(3, 1)
        rows.append([draw.gauss(hard, 0.5) for _ in range(draw.randrange(1, 9))])
    found = mean_nats(answers(sum(rows, []), [n for n, row in enumerate(rows) for _ in row]))
    means = []
    for _ in range(2000):
        some = sum(draw.choices(rows, k=len(rows)), [])
        means.append(sum(some) / len(some))
    assert found.standard_error == pytest.approx(torch.tensor(means).std().item(), rel=0.06)


def test_the_standard_error_is_that_of_the_grammars_floor(tmp_path, monkeypatch):
    path = tmp_path / "zoo.toml"
    path.write_text(GRAMMAR)
    grammar = Grammar.load(path)
    rows = [[1.0, 2.0], [6.0], [0.5, 0.25, 3.0]]
    nats = [torch.tensor(row, dtype=torch.float64) for row in rows]
    monkeypatch.setattr(grammar, "_masked_surprises", lambda *_: nats)
    floor = grammar.floor(grammar.sample(3))
    assert mean_nats(answers(sum(rows, []), [0, 0, 1, 2, 2, 2])) == pytest.approx(tuple(floor))


def test_one_row_tells_nothing_of_how_rows_differ():
    assert mean_nats(answers([1.0, 2.0], [7, 7])) == (1.5, math.inf, 2)


# ------------------------------------------------------------------------------------ accuracy


@both_models
@pytest.mark.parametrize("top_k", [1, 3, V])
def test_the_accuracy_is_the_share_of_tokens_among_the_likeliest(model, top_k):
    hits = []
    for batch in BATCHES:
        with torch.no_grad():
            logits = model(batch["input_ids"], batch["attention_mask"])["logits"]
        best = logits.topk(top_k).indices  # (B, T, k)
        hits += (best == batch["labels"][..., None]).any(-1)[batch["labels"] >= 0].tolist()
    assert masked_accuracy(model, BATCHES, top_k=top_k) == pytest.approx(sum(hits) / len(hits))


@pytest.mark.parametrize("top_k", [1, 4])
def test_a_reader_who_says_nothing_is_right_as_often_as_chance(top_k):
    batch = {"input_ids": torch.arange(V)[None], "labels": torch.arange(V)[None]}
    assert masked_accuracy(Says(torch.zeros(V)), [batch], top_k=top_k) == top_k / V


# ------------------------------------------------------------------------------------ bands

# Tokens 0..4 come 0, 1, 9, 10 and 500 times.
COUNTS = [0, 1, 9, 10, 500]
ASKED = answers(
    [4.0, 2.0, 3.0, 1.0, 0.5], list(range(5)), targets=[0, 1, 2, 3, 4], ranks=[1, 0, 2, 0, 0]
)


@pytest.mark.parametrize("counts", [COUNTS, torch.tensor(COUNTS), torch.tensor(COUNTS).int()])
def test_answers_are_sorted_into_bands_closed_below_and_open_above(counts):
    assert by_frequency(ASKED, counts, edges=iter([1, 10, 100, 200])) == [
        Band(0, 1, 0.0, 4.0, 1),
        Band(1, 10, 0.5, 2.5, 2),
        Band(10, 100, 1.0, 1.0, 1),
        Band(200, math.inf, 1.0, 0.5, 1),
    ]


@both_models
def test_every_answer_stands_in_one_band_and_the_bands_average_to_the_whole(model):
    found = masked_answers(model, BATCHES)
    bands = by_frequency(found, [0, 3, 30, 300] * 4)
    assert len(bands) == 4 and sum(band.count for band in bands) == len(found.ranks)
    for name, whole in (
        ("nats", masked_loss(model, BATCHES).nats),
        ("accuracy", masked_accuracy(model, BATCHES)),
    ):
        total = sum(getattr(band, name) * band.count for band in bands)
        assert total / len(found.ranks) == pytest.approx(whole)


@pytest.mark.parametrize(
    "counts, edges, words",
    [
        (COUNTS[:4], [1], "answers.targets holds 4; a number from 0 to 3"),
        ([*COUNTS[:4], -2], [1], "counts holds -2; a number of at least 0"),
        (COUNTS, [10, 1], r"edges=\[10, 1\]; rising numbers"),
        (COUNTS, [1, 1], r"edges=\[1, 1\]; rising numbers"),
        (COUNTS, [], r"edges=\[\]; rising numbers"),
        (COUNTS, "110", "edges='110'; a list of whole numbers"),
    ],
)
def test_bands_that_cannot_be_are_refused(counts, edges, words):
    with pytest.raises(ValueError, match=words):
        by_frequency(ASKED, counts, edges=edges)


# ------------------------------------------------------------------------------------ calibration


def test_a_calibration_worked_by_hand():
    chances = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [1.0, 0.0]])
    found = calibration(chances, torch.tensor([0, 1, 1, 0]), bins=2)
    # All in the upper bin, three of four right at a mean of 3.1/4; the lower one is left out.
    assert found.count.tolist() == [4] and found.accuracy.tolist() == [0.75]
    assert found.confidence.tolist() == pytest.approx([0.775])
    assert found.error == pytest.approx(0.025)
    # In fifths: 0.6 is the end of the third, 0.7 and 0.8 in the fourth, 1 in the last.
    found = calibration(chances, torch.tensor([0, 1, 1, 0]), bins=5)
    assert found.count.tolist() == [1, 2, 1] and found.accuracy.tolist() == [1.0, 0.5, 1.0]
    assert found.confidence.tolist() == pytest.approx([0.6, 0.75, 1.0])
    assert found.error == pytest.approx((0.4 + 2 * 0.25 + 0) / 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bins", [1, 5, 15, 20])
def test_a_confidence_at_the_end_of_a_bin_belongs_to_it_however_it_is_rounded(dtype, bins):
    for place in range(1, bins + 1):
        rest = 1 - place / bins
        row = [place / bins, *[rest / 40] * 40]
        if row[0] < row[1]:
            continue
        nudged = [row[0] + 0.01, *[(rest - 0.01) / 40] * 40]
        rows = torch.tensor([row, nudged], dtype=dtype) if place < bins else torch.tensor([row] * 2)
        found = calibration(rows, torch.tensor([0, 0]), bins=bins)
        assert len(found.count) == 1 + (place < bins)


def test_certain_answers_stand_in_the_last_bin_and_even_ones_in_the_first():
    chances = torch.stack([torch.eye(50)[3], torch.full((50,), 0.02)])
    found = calibration(chances, torch.tensor([3, 0]))
    assert found.confidence.tolist() == pytest.approx([0.02, 1.0])
    assert found.accuracy.tolist() == [1.0, 1.0]
    assert calibration(chances[:1], torch.tensor([4])).error == 1
    rounded = torch.tensor([[1.0, 0.0], [1.0004, 0.0]])  # a sum of 1 but for rounding
    assert calibration(rounded, torch.tensor([0, 0])).count.tolist() == [2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_reader_whose_answers_come_as_often_as_he_says_is_calibrated(dtype):
    draw = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(8000, 9, generator=draw)
    targets = logits.softmax(-1).multinomial(1, generator=draw)[:, 0]
    assert calibration(logits.to(dtype).softmax(-1), targets).error < 0.02
    assert calibration((3 * logits).to(dtype).softmax(-1), targets).error > 0.1


def test_calibration_is_that_of_a_loop_over_bins():
    draw = torch.Generator().manual_seed(1)
    chances = (2 * torch.randn(300, 5, generator=draw)).double().softmax(-1).requires_grad_()
    targets = torch.randint(5, (300,), generator=draw)
    found, error = calibration(chances, targets, bins=7), 0.0
    for low in range(7):
        inside = [
            (max(row), row.index(max(row)) == target)
            for row, target in zip(chances.tolist(), targets.tolist())
            if low / 7 < max(row) <= (low + 1) / 7
        ]
        error += abs(sum(sure for sure, _ in inside) - sum(right for _, right in inside)) / 300
    assert found.error == pytest.approx(error) and found.count.sum() == 300
    assert not found.confidence.requires_grad


@pytest.mark.parametrize(
    "chances, targets, words",
    [
        ([[0.5, 0.6]], [0], "holds a row of least 0.5 and sum 1.1; numbers from 0 that sum to 1"),
        ([[1.0, 0.0], [1.5, -0.5]], [0, 0], "holds a row of least -0.5 and sum 1;"),
        ([[0.5, math.nan]], [0], "holds a row of least nan and sum nan;"),
        ([[0.5, math.inf]], [0], "holds a row of least 0.5 and sum inf;"),
        ([[0.5, 0.5]], [2], "targets holds 2; a number from 0 to 1"),
        ([[0.5, 0.5]], [-100], "targets holds -100; a number from 0 to 1"),
        ([[0.5, 0.5]], [0, 1], "1 rows of probabilities and 2 targets; one target for each"),
    ],
)
def test_what_is_no_distribution_or_no_target_is_refused(chances, targets, words):
    with pytest.raises(ValueError, match=words):
        calibration(torch.tensor(chances), torch.tensor(targets))


def test_no_answers_have_no_calibration():
    with pytest.raises(ValueError, match="0 rows of probabilities and 0 targets; .* one row at"):
        calibration(torch.ones(0, 5), torch.ones(0).long())


# ------------------------------------------------------------------------------------ the gap


def test_the_closed_gap_is_0_at_the_start_1_at_the_floor_and_may_be_passed():
    assert [closed_gap(loss, 5, 1) for loss in (5, 2, 1, 6, 0.5)] == [0, 0.75, 1, -0.25, 1.125]


@pytest.mark.parametrize("start", [1.0, 0.5])
def test_there_is_no_gap_unless_the_start_lies_above_the_floor(start):
    with pytest.raises(ValueError, match=f"start={start} is not above floor=1.0; a start above"):
        closed_gap(0.7, start, 1.0)
