"""Looks at a model in the midst of its training, which leave no trace."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from training_toys import (
    ROWS,
    TOKENIZER,
    VOCAB,
    assert_same,
    collator,
    go,
    tiny,
    tiny_of_transformers,
)

from mlm_lib.training import HeldOut, ShowPredictions

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_held_out_evaluation_does_not_change_the_training():
    held = HeldOut(ROWS[:9], collator(1))
    assert_same(go(steps=12, evaluate=held, evaluate_every=2)[0], go(steps=12)[0])


def test_held_out_is_the_mean_over_masked_tokens_and_the_same_each_time():
    model = tiny()
    held = HeldOut([row for row in ROWS if len(row) < 12], collator(1), batch_size=5, name="mine")
    total = count = 0
    model.eval()
    for batch in held.batches:
        logits = model(batch["input_ids"], batch["attention_mask"])["logits"]
        total += F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum"
        ).item()
        count += (batch["labels"] != -100).sum().item()
    assert held.count == count
    found = held(model)
    assert found == {"mine": pytest.approx(total / count, rel=1e-5)}
    assert held(model) == found and not model.training
    model.train()
    assert held(model) == found and model.training


def test_held_out_leaves_each_part_of_a_model_in_its_mode():
    model = tiny().train()
    model.embedder.eval()
    before = [module.training for module in model.modules()]
    HeldOut(ROWS, collator(1))(model)
    assert [module.training for module in model.modules()] == before


def test_held_out_with_a_batch_without_masks_works_with_a_model_of_transformers():
    collate = collator(1)
    assert any((collate([row])["labels"] == -100).all() for row in sorted(ROWS[:12], key=len))
    held = HeldOut(ROWS[:12], collator(1), batch_size=1)
    assert held(tiny_of_transformers())["held_out_loss"] == pytest.approx(
        np.log(len(VOCAB)), abs=0.5
    )


@pytest.mark.parametrize("examples", [[], [[2, 3]]])
def test_held_out_without_a_masked_token_is_an_error(examples):
    with pytest.raises(ValueError, match=f"{len(examples)} held-out examples"):
        HeldOut(examples, collator())


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.to_hf()], ids=["ours", "transformers"])
def test_show_predictions_prints_words_for_each_blank(tokenizer, capsys):
    show = ShowPredictions(tokenizer, ["a [MASK] c [MASK]", "[MASK]"], every=4, top_k=2)
    model, _ = go(steps=9, callbacks=[show])
    lines = [line for line in capsys.readouterr().out.splitlines() if "->" in line]
    assert [line.split()[1] for line in lines] == ["4", "4", "8", "8"]
    first, second = lines[0].split("->")[1].split("|"), lines[1].split("->")[1].split("|")
    assert [len(blank.split()) for blank in (*first, *second)] == [2, 2, 2]
    assert "a [MASK] c [MASK]" in lines[0] and model.training


def test_show_predictions_prints_the_likeliest_and_does_not_change_the_training(capsys):
    show = ShowPredictions(TOKENIZER, ["a [MASK] c"], every=1, top_k=1)
    assert_same(go(callbacks=[show])[0], go()[0])
    model = tiny()
    with torch.no_grad():
        model.head.bias[VOCAB.index("q")] = 100
    capsys.readouterr()
    show(model.eval(), 5, None)
    assert (
        capsys.readouterr().out.strip() == "step      5  a [MASK] c  ->  q" and not model.training
    )


def test_show_predictions_refuses_a_sentence_without_a_blank():
    with pytest.raises(ValueError, match="'a b' has no"):
        ShowPredictions(TOKENIZER, ["a [MASK]", "a b"])


BAD = {
    "examples": lambda: HeldOut(None, collator()),
    "collator": lambda: HeldOut(ROWS, None),
    "batch_size": lambda: HeldOut(ROWS, collator(), batch_size=0),
    "name": lambda: HeldOut(ROWS, collator(), name=""),
    "every": lambda: ShowPredictions(TOKENIZER, ["[MASK]"], every=True),
    "top_k": lambda: ShowPredictions(TOKENIZER, ["[MASK]"], top_k=0),
    "sentences": lambda: ShowPredictions(TOKENIZER, "[MASK]"),
}


@pytest.mark.parametrize("name, call", BAD.items(), ids=BAD)
def test_a_bad_argument_is_an_error_that_names_it(name, call):
    with pytest.raises(ValueError, match=f"{name}=.* is needed"):
        call()


def test_no_more_words_are_shown_than_there_are(capsys):
    ShowPredictions(TOKENIZER, ["[MASK]"], every=1, top_k=99)(tiny(), 1, None)
    assert len(capsys.readouterr().out.split("->")[1].split()) == len(VOCAB)
