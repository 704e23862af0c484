"""What a masked model answers at its labels, as a loop over single rows finds it."""

import math

import pytest
import torch
from readers import (
    HF,
    OURS,
    Says,
    V,
    assert_leaves_no_trace,
    batches_of,
    both_models,
    log_probs,
    masked_rows,
)

from mlm_lib.evaluation import masked_answers

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = masked_rows()


def by_hand(model, rows):
    """[(target, nats, rank, row)], one row and one label at a time."""
    found = []
    for number, (ids, labels) in enumerate(rows):
        for logs, target in zip(log_probs(model, ids).tolist(), labels):
            if target != -100:
                order = sorted(range(V), key=lambda token: (-logs[token], token))
                found.append((target, -logs[target], order.index(target), number))
    return found


@both_models
@pytest.mark.parametrize("size", [1, 4, 99])
def test_answers_are_those_of_a_loop_over_single_rows(model, size):
    found, expected = masked_answers(model, batches_of(ROWS, size)), by_hand(model, ROWS)
    targets, nats, ranks, rows = map(list, zip(*expected))
    assert (found.targets.tolist(), found.ranks.tolist()) == (targets, ranks)
    assert found.nats.tolist() == pytest.approx(nats, rel=1e-9) and len(set(ranks)) > 3
    assert found.rows.tolist() == rows and {0, 4, 8}.isdisjoint(rows)  # those without a label


@both_models
def test_the_order_of_the_rows_does_not_matter(model):
    found = masked_answers(model, batches_of(ROWS, 4)).nats
    turned = masked_answers(model, batches_of(ROWS[::-1], 4)).nats
    assert turned.sort().values.tolist() == pytest.approx(found.sort().values.tolist(), rel=1e-9)


@both_models
def test_asking_leaves_no_trace(model):
    assert_leaves_no_trace(model, lambda: masked_answers(model, batches_of(ROWS, 4)).nats.tolist())
    assert not masked_answers(model, batches_of(ROWS, 4)).nats.requires_grad


def test_the_mode_is_put_back_after_an_error_too():
    try:
        with pytest.raises(ValueError):
            masked_answers(OURS.train(), [*batches_of(ROWS, 4), "no batch"])
        assert OURS.training
    finally:
        OURS.eval()


def test_of_equally_likely_tokens_the_first_comes_first_so_that_silence_is_no_answer():
    ids = torch.arange(V)[None]  # each token is asked once
    answers = masked_answers(Says(torch.zeros(V)), [{"input_ids": ids, "labels": ids}])
    assert answers.ranks.tolist() == list(range(V))
    assert answers.nats.tolist() == pytest.approx([math.log(V)] * V)


def test_a_compiled_model_answers_the_same():
    compiled = torch.compile(OURS, backend="eager", dynamic=True)
    batches = batches_of(ROWS, 4)[:1]
    assert masked_answers(compiled, batches).nats.equal(masked_answers(OURS, batches).nats)


@both_models
def test_scores_of_16_bits_are_summed_in_more(model):
    model = type(model).from_config(model.embedder.config) if model is OURS else type(HF)(HF.config)
    model.bfloat16()
    found = masked_answers(model, batches_of(ROWS, 1))
    assert found.nats.dtype == torch.float64
    expected = [nats for _, nats, *_ in by_hand(model, ROWS)]
    assert found.nats.tolist() == pytest.approx(expected, rel=1e-6)


@both_models
def test_batches_from_a_generator_and_of_32_bits_do(model):
    batches = batches_of(ROWS, 4)
    narrow = ({name: rows.int() for name, rows in batch.items()} for batch in batches)
    found = masked_answers(model, narrow)
    assert found.targets.dtype == torch.long
    assert found.nats.equal(masked_answers(model, batches).nats)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(score):
    scores = torch.zeros(V)
    scores[3] = score
    with pytest.raises(ValueError, match=f"best score is {score}; .* load others"):
        masked_answers(Says(scores), batches_of(ROWS, 9))


def test_a_token_may_be_impossible_but_not_all_of_them():
    scores = torch.full((V,), -math.inf)
    with pytest.raises(ValueError, match="best score is -inf"):
        masked_answers(Says(scores), batches_of(ROWS, 9))
    scores[5] = 0.0
    answers = masked_answers(Says(scores), batches_of(ROWS, 9))
    assert {(t == 5, n) for t, n in zip(answers.targets.tolist(), answers.nats.tolist())} == {
        (True, 0.0),
        (False, math.inf),
    }


@both_models
@pytest.mark.parametrize("label", [V, -1])
def test_a_label_that_is_no_token_is_named(model, label):
    batch = {"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[-100, label]])}
    with pytest.raises(ValueError, match=f"labels holds {label}; a number from 0 to 15"):
        masked_answers(model, [batch])


@pytest.mark.parametrize("rows", [[], [([5, 6], [-100, -100])]])
def test_without_a_label_there_is_nothing_to_measure(rows):
    with pytest.raises(ValueError, match=f"{len(rows)} rows without a label; mask more"):
        masked_answers(OURS, batches_of(rows, 2))
