"""Every row its own rate: what is hidden, how much the row weighs, and that the two belong."""

import pytest
import torch
from readers import both_tokenizers
from toys import tokenizer_of

from mlm_lib.diffusion import DRAWS, DiffusionCollator, hide

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENIZER = tokenizer_of(*"abcdefgh")
ROWS = [[2, *(5 + (3 * row + place) % 8 for place in range(1 + row % 7)), 3] for row in range(21)]
every_draw = pytest.mark.parametrize("draw", DRAWS)


def drawn(draw, rows=4000, length=6, seed=0):
    """hidden (rows, length) and weights (rows,) of rows of words only."""
    hideable = torch.ones(rows, length, dtype=torch.bool)
    return hide(hideable, draw, torch.Generator().manual_seed(seed))


def test_a_batch_by_hand():
    collator = DiffusionCollator(TOKENIZER, draw="count", seed=0)
    batch = collator([[2, 5, 6, 3], [2, 7, 3]])
    assert list(batch) == ["input_ids", "attention_mask", "labels", "weights"]
    # The second row has one word: it is always hidden, and weighs 1.
    assert batch["input_ids"][1].tolist() == [2, 4, 3, 0]
    assert batch["labels"][1].tolist() == [-100, 7, -100, -100]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    count = (batch["labels"][0] != -100).sum().item()
    assert batch["weights"].tolist() == [2 / count, 1.0] and batch["weights"].dtype == torch.float32


@every_draw
@both_tokenizers
def test_words_are_hidden_as_mask_and_what_is_visible_is_what_stood_there(draw, tokenizer):
    collator = DiffusionCollator(tokenizer, draw=draw, seed=1)
    rows = [[2, 5, 1, 6, 11, 3], [2, 9, 3], [5, 6, 7, 8]]
    for _ in range(30):
        batch = collator(rows)
        hidden = batch["labels"] != -100
        assert (batch["input_ids"][hidden] == 4).all()
        back = torch.where(hidden, batch["labels"], batch["input_ids"])
        assert [row[row != 0].tolist() for row in back] == rows
        assert not hidden[back < 5].any()  # [PAD], [UNK], [CLS], [SEP] and [MASK] are no words


@every_draw
def test_a_word_counts_once_in_the_mean_over_the_draws(draw):
    hidden, weights = drawn(draw, rows=20000)
    counts = hidden * weights[:, None]  # (rows, length)
    error = counts.std(0) / len(counts) ** 0.5
    assert ((counts.mean(0) - 1).abs() < 4 * error).all()


def test_any_number_of_words_is_hidden_equally_often_and_the_weights_are_exact():
    hidden, weights = drawn("count", rows=6000)
    counts = hidden.sum(1)
    assert torch.equal(weights * counts, torch.full((6000,), 6.0).double())
    assert counts.min() == 1 and counts.max() == 6
    shares = counts.bincount(minlength=7)[1:] / len(counts)
    assert (shares - 1 / 6).abs().max() < 4 * (5 / 36 / len(counts)) ** 0.5
    # and with so many any of them: each word in a half of the rows in which three are hidden
    some = hidden[counts == 3].double()
    assert (some.mean(0) - 0.5).abs().max() < 4 * 0.5 / len(some) ** 0.5


@pytest.mark.parametrize("draw", ["independent", "stratified"])
def test_rates_are_uniform_and_never_0(draw):
    hidden, weights = drawn(draw, rows=20000, length=1)
    rates = 1 / weights
    assert 0 < rates.min() < 1e-3 and 0.999 < rates.max() <= 1
    assert abs(rates.mean() - 0.5) < 4 / (12 * len(rates)) ** 0.5
    # The hidden ones are as many as their rates say.
    assert abs((hidden[:, 0].double() - rates).mean()) < 4 * (1 / 6 / len(rates)) ** 0.5


def test_stratified_rates_come_one_from_each_part_in_any_order():
    firsts = []
    for seed in range(50):
        rates = 1 / drawn("stratified", rows=8, seed=seed)[1]
        parts = (rates * 8).ceil().long()
        assert sorted(parts.tolist()) == list(range(1, 9))
        firsts.append(parts[0].item())
    assert len(set(firsts)) == 8  # the first row has any part, not always the lowest


def test_the_same_seed_hides_the_same_and_a_run_can_be_taken_up_again():
    def batches(collator, number):
        return [
            {name: rows.tolist() for name, rows in collator(ROWS).items()} for _ in range(number)
        ]

    whole = batches(DiffusionCollator(TOKENIZER, seed=3), 4)
    assert whole == batches(DiffusionCollator(TOKENIZER, seed=3), 4) and whole[0] != whole[1]
    assert whole != batches(DiffusionCollator(TOKENIZER, seed=4), 4)
    first = DiffusionCollator(TOKENIZER, seed=3)
    batches(first, 2)
    second = DiffusionCollator(TOKENIZER, seed=3)
    second.load_state_dict(first.state_dict())
    assert batches(second, 2) == whole[2:]


def test_a_run_knows_its_draw_again():
    one, other = (DiffusionCollator(TOKENIZER, draw=draw).fingerprint() for draw in DRAWS[:2])
    assert {name for name in one if one[name] != other[name]} == {"draw"}


def test_a_batch_can_be_padded_for_tensor_cores():
    batch = DiffusionCollator(TOKENIZER, pad_to_multiple_of=8)(ROWS)
    assert batch["input_ids"].shape == (21, 16) and batch["weights"].shape == (21,)


@pytest.mark.parametrize(
    "examples, options, message",
    [
        ([], {}, "the batch is empty"),
        ([[2, 5, 3], [2, 3]], {}, "example 1 has no word to hide; leave it out"),
        ([[2, 4, 3]], {}, "example 0 has no word to hide"),
        ([[2, 5, 3]], {"draw": "uniform"}, "draw='uniform'; one of independent, stratified, count"),
        ([[2, 5, 3]], {"draw": 0.0}, "draw=0.0; one of"),
        ([[2, 5, 3]], {"seed": 0.5}, "seed=0.5; a whole number"),
        ([[2, 99, 3]], {}, "input_ids holds 99"),
    ],
)
def test_what_cannot_be_masked_is_told(examples, options, message):
    with pytest.raises(ValueError, match=message):
        DiffusionCollator(TOKENIZER, **options)(examples)


def test_a_tokenizer_without_mask_is_refused():
    class Bare:
        pad_token_id = 0

    with pytest.raises(ValueError, match=r"this Bare has no \[MASK\] token"):
        DiffusionCollator(Bare())
