"""The bound: three ways to one number, estimated without bias, and what is hidden for it."""

import itertools
import math

import numpy as np
import pytest
import torch
from readers import (
    HF,
    OURS,
    TOKENIZER,
    Says,
    V,
    assert_leaves_no_trace,
    both_models,
    both_tokenizers,
)
from toys import tokenizer_of
from writing_toys import GRAMMARS, World

from mlm_lib.diffusion import (
    DRAWS,
    Bound,
    DiffusionCollator,
    exact_nelbo,
    log_posteriors,
    nelbo,
    sample_masks,
)
from mlm_lib.pretrained import from_hf
from mlm_lib.training import HeldOut

pytestmark = pytest.mark.usefixtures("one_thread")

TALES, PAIRS = World(GRAMMARS / "tales.toml"), World(GRAMMARS / "pairs.toml")
LETTERS = tokenizer_of(*"abcdefgh")
ROWS = [[2, *(5 + (3 * row + place) % 8 for place in range(1 + row % 7)), 3] for row in range(21)]
ROW = [5, 9, 11, 6, 7]  # a ##b abc b c
every_draw = pytest.mark.parametrize("draw", DRAWS)


def tables(answers, words):
    """{hidden places: log P at each place} for every choice of hidden places."""
    found, places = {}, range(len(words))
    for k in range(1, len(words) + 1):
        for hidden in itertools.combinations(places, k):
            observed = torch.tensor([place not in hidden for place in places])
            found[hidden] = answers(words, observed)[places, words]
    return found


def mean_over_orders(answers, words):
    """(mean, least and largest) nats of the chain rule over every order of the words."""
    table, totals = tables(answers, words), []
    for order in itertools.permutations(range(len(words))):
        hidden, total = set(order), 0.0
        for place in order:
            total -= table[tuple(sorted(hidden))][place].item()
            hidden.remove(place)
        totals.append(total)
    return math.fsum(totals) / len(totals), min(totals), max(totals)


def area(answers, words):
    """∫₀¹ (1/t)·E[Σ −log P of the hidden] dt by quadrature, exact for a polynomial in t."""
    table, length, total = tables(answers, words), len(words), 0.0
    nodes, weights = np.polynomial.legendre.leggauss(length)
    for t, weight in zip((nodes + 1) / 2, weights / 2):
        for hidden, row in table.items():
            k = len(hidden)
            chance = t**k * (1 - t) ** (length - k)
            total -= weight / t * chance * row[list(hidden)].sum().item()
    return total


# ------------------------------------------------------------------------------------ identities


@pytest.mark.parametrize(
    "text", ["rome again . no city .", "no tea . no juice .", "the tea was fine ."]
)
def test_for_the_ideal_reader_all_ways_lead_to_the_likelihood_given_the_length(text):
    words = text.split()
    ids, answers = TALES.encode(words), log_posteriors(TALES.reader, TALES.tokenizer)
    nats = TALES.grammar.log_prob_of_length(len(words)) - TALES.grammar.log_prob(words)
    assert exact_nelbo(answers, ids) == pytest.approx(nats, abs=1e-9)
    assert area(answers, ids) == pytest.approx(nats, abs=1e-9)
    assert mean_over_orders(answers, ids) == pytest.approx((nats, nats, nats), abs=1e-9)


def test_the_grammar_s_own_posteriors_serve_as_well():
    words = "fine film great".split()
    index = {word: place for place, word in enumerate(PAIRS.grammar.vocabulary)}

    def answers(ids, observed):
        return PAIRS.grammar.posteriors([PAIRS.grammar.vocabulary[i] for i in ids], observed).log()

    nats = PAIRS.grammar.log_prob_of_length(3) - PAIRS.grammar.log_prob(words)
    assert exact_nelbo(answers, [index[word] for word in words]) == pytest.approx(nats, abs=1e-9)


@both_models
@both_tokenizers
def test_for_an_untrained_model_three_ways_lead_to_one_number(model, tokenizer):
    answers = log_posteriors(model, tokenizer)
    exact = exact_nelbo(answers, ROW)
    mean, least, largest = mean_over_orders(answers, ROW)
    assert exact == pytest.approx(mean, abs=1e-9) and exact == pytest.approx(
        area(answers, ROW), abs=1e-9
    )
    assert largest - least > 0.1  # whose orders do not agree


def test_two_words_by_hand():
    # P(first) = 1/2, P(first | second) = 1/4; P(second) = 1/8, P(second | first) = 1/16.
    alone, given = torch.tensor([0.5, 0.125]).log(), torch.tensor([0.25, 0.0625]).log()

    def answers(words, observed):
        return torch.where(observed.any(), given, alone)[:, None].expand(2, 3)

    # The orders: 1/2 · 1/16 and 1/8 · 1/4, both 1/32; then another, 1/2 · 1/8, which is not.
    assert exact_nelbo(answers, [0, 2]) == pytest.approx(math.log(32))
    given[0] = math.log(0.5)
    assert exact_nelbo(answers, [0, 2]) == pytest.approx((math.log(32) + math.log(16)) / 2)


def test_a_reader_who_knows_nothing_pays_ln_v_for_each_word():
    model = Says(torch.zeros(V))
    assert exact_nelbo(log_posteriors(model, TOKENIZER), ROW) == pytest.approx(5 * math.log(V))
    bound = nelbo(model, TOKENIZER, [[2, *ROW, 3], [2, 5, 3]])
    assert bound.nats == pytest.approx(math.log(V)) and bound.count == 6
    assert bound.standard_error == pytest.approx(0, abs=1e-6)


# ------------------------------------------------------------------------------------ estimates


@every_draw
@both_models
def test_the_estimate_is_unbiased(model, draw):
    exact = exact_nelbo(log_posteriors(model, TOKENIZER), ROW) / len(ROW)
    bound = nelbo(model, TOKENIZER, [[2, *ROW, 3]] * 1500, draw=draw, seed=1)
    assert abs(bound.nats - exact) < 4 * bound.standard_error
    assert bound.standard_error < 0.1 * exact and bound.count == 1500 * len(ROW)


@every_draw
def test_the_loss_of_a_collator_s_batch_is_unbiased(draw):
    collator = DiffusionCollator(TOKENIZER, draw=draw, seed=0)
    batch = collator([[2, *ROW, 3]] * 1500)
    hidden = batch["labels"] != -100
    with torch.no_grad():
        logits = OURS(batch["input_ids"], batch["attention_mask"])["logits"].log_softmax(-1)
    nats = -logits.gather(2, batch["labels"].clamp(min=0)[..., None])[..., 0] * hidden  # (B, T)
    sums = nats.sum(1) * batch["weights"]
    exact = exact_nelbo(log_posteriors(OURS, TOKENIZER), ROW)
    assert abs(sums.mean() - exact) < 4 * sums.std() / 1500**0.5


class Copies(Says):
    """Sure of "a" as soon as one word is visible, and else without an idea."""

    def forward(self, input_ids, attention_mask=None, labels=None):
        seen = (input_ids >= 5).any(1)  # (B,)
        scores = torch.zeros(*input_ids.shape, V, dtype=torch.float64)
        scores[seen, :, 5] = 50.0
        return {"logits": scores}


def test_stratified_rates_scatter_less_and_so_does_a_count():
    # Of 8 words, all hidden with probability t⁸, the estimate is 8·ln V·[all hidden]/t. In units of
    # (8·ln V)² its variance is 1/7 − 1/64, of which the part between the rates, 1/15 − 1/64, is
    # stratified away; with a count it is 1/8 − 1/64.
    model, rows = Copies(torch.zeros(V)), [[2, *[5] * 8, 3]] * 24

    def spread(draw):
        found = [nelbo(model, TOKENIZER, rows, draw=draw, seed=seed).nats for seed in range(400)]
        return torch.tensor(found).var().item() * 24 / math.log(V) ** 2

    independent, stratified, count = map(spread, ("independent", "stratified", "count"))
    assert independent == pytest.approx(1 / 7 - 1 / 64, rel=0.25)
    assert stratified == pytest.approx(1 / 7 - 1 / 15, rel=0.25)
    assert count == pytest.approx(1 / 8 - 1 / 64, rel=0.25)


def test_the_ideal_reader_s_estimate_is_near_the_floor():
    documents = TALES.grammar.sample(300, seed=2)
    rows = [[2, *TALES.encode(words), 3] for words in documents]
    bound = nelbo(TALES.reader, TALES.tokenizer, rows, samples=2)
    floor = TALES.grammar.floor(documents, objective="any_order")
    assert bound.count == floor.count == sum(map(len, documents))
    assert abs(bound.nats - floor.nats) < 4 * bound.standard_error
    # Two samples are nearer than one.
    once = nelbo(TALES.reader, TALES.tokenizer, rows)
    assert bound.standard_error < once.standard_error


@every_draw
def test_the_batch_size_does_not_matter_and_the_seed_does(draw):
    rows = [[2, *ROW[: 1 + place % 5], 3] for place in range(17)]
    found = [nelbo(OURS, TOKENIZER, rows, draw=draw, batch_size=size) for size in (1, 5, 64)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] == pytest.approx(found[2], rel=1e-9)
    assert nelbo(OURS, TOKENIZER, rows, draw=draw, seed=1).nats != found[0].nats


@both_models
@both_tokenizers
def test_ours_and_transformers_are_bounded_alike_and_rows_may_be_dicts(model, tokenizer):
    rows = [[2, *ROW, 3], [2, 5, 6, 3], [5, 7]]
    plain = nelbo(OURS, TOKENIZER, rows, samples=3)
    dicts = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows]
    for given in (rows, iter(rows), dicts, [torch.tensor(row) for row in rows]):
        assert nelbo(model, tokenizer, given, samples=3) == pytest.approx(plain, rel=1e-9)


def test_of_one_row_there_is_no_standard_error():
    bound = nelbo(OURS, TOKENIZER, [[2, *ROW, 3]], samples=4)
    assert isinstance(bound, Bound) and math.isnan(bound.standard_error) and bound.count == 5


def test_what_a_model_calls_impossible_has_no_finite_bound():
    scores = torch.zeros(V)
    scores[5] = -math.inf
    assert nelbo(Says(scores), TOKENIZER, [[2, 5, 3], [2, 6, 3]]).nats == math.inf


@both_models
def test_measuring_leaves_no_trace(model):
    rows = [[2, *ROW, 3]] * 3
    assert_leaves_no_trace(model, lambda: nelbo(model, TOKENIZER, rows))
    assert_leaves_no_trace(model, lambda: exact_nelbo(log_posteriors(model, TOKENIZER), ROW))


def test_a_held_out_look_weighs_its_rows_as_the_bound_does():
    rows = [[2, *ROW[: 2 + place % 4], 3] for place in range(9)]
    look = HeldOut(rows, DiffusionCollator(TOKENIZER, draw="count", seed=0), batch_size=4)
    assert look.count == pytest.approx(sum(len(row) - 2 for row in rows), rel=1e-6)
    total = 0.0
    for batch in look.batches:
        for place in range(len(batch["labels"])):
            one = {name: column[place : place + 1] for name, column in batch.items()}
            hidden = (one["labels"] != -100).sum()
            del one["weights"]
            with torch.no_grad():
                total += (HF(**one)["loss"] * hidden * batch["weights"][place]).item()
    assert look(OURS)["held_out_loss"] == pytest.approx(total / look.count, rel=1e-6)


def test_bfloat16_is_bounded_about_as_float32():
    model = from_hf(HF).float()
    rows = [[2, *ROW, 3]] * 8
    precise = nelbo(model, TOKENIZER, rows).nats
    assert nelbo(model.bfloat16(), TOKENIZER, rows).nats == pytest.approx(precise, rel=0.05)


# ------------------------------------------------------------------------------------ bad input


# ------------------------------------------------------------------------------------ hiding


def drawn(draw, rows=4000, length=6, seed=0):
    """hidden (rows, length) and weights (rows,) of rows of words only."""
    maskable = torch.ones(rows, length, dtype=torch.bool)
    return sample_masks(maskable, draw, torch.Generator().manual_seed(seed))


def test_a_batch_by_hand():
    collator = DiffusionCollator(LETTERS, draw="count", seed=0)
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

    whole = batches(DiffusionCollator(LETTERS, seed=3), 4)
    assert whole == batches(DiffusionCollator(LETTERS, seed=3), 4) and whole[0] != whole[1]
    assert whole != batches(DiffusionCollator(LETTERS, seed=4), 4)
    first = DiffusionCollator(LETTERS, seed=3)
    batches(first, 2)
    second = DiffusionCollator(LETTERS, seed=3)
    second.load_state_dict(first.state_dict())
    assert batches(second, 2) == whole[2:]


def test_a_run_knows_its_draw_again():
    one, other = (DiffusionCollator(LETTERS, draw=draw).fingerprint() for draw in DRAWS[:2])
    assert {name for name in one if one[name] != other[name]} == {"draw"}


# ------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    "rows, options, told",
    [
        ([], {}, "empty"),
        ([[2, 5, 3], [2, 3]], {}, "example 1 has no token to mask"),
        ([[2, *[5] * 19, 3]], {}, "21 tokens.* reads 20"),
        ([[2, 99, 3]], {}, "99"),
        ([[2, 5, 3]], {"samples": 0}, "samples=0"),
        ([[2, 5, 3]], {"draw": "t"}, "draw='t'"),
    ],
)
def test_what_cannot_be_bounded_is_told(rows, options, told):
    with pytest.raises(ValueError, match=told):
        nelbo(OURS, TOKENIZER, rows, **options)


@pytest.mark.parametrize("words", [[], [5] * 17])
def test_a_sum_over_nothing_or_over_more_subsets_than_one_waits_for_is_refused(words):
    with pytest.raises(ValueError, match=f"={len(words)}; a whole number from 1 to 16"):
        exact_nelbo(log_posteriors(OURS, TOKENIZER), words)


def test_a_table_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"\(1, V\)"):
        exact_nelbo(lambda words, observed: torch.zeros(2, 3), [0])


def test_an_unknown_way_to_hide_is_refused_by_name():
    with pytest.raises(ValueError, match="draw='stratifed'; one of independent, stratified, count"):
        sample_masks(torch.ones(2, 5, dtype=torch.bool), "stratifed")
