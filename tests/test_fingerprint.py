"""Fingerprints: a run is not gone on with as another one."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn as nn
from training_toys import (
    ROWS,
    SIZES,
    TOKENIZER,
    VOCAB,
    Stream,
    assert_same,
    assert_says,
    collator,
    contents,
    go,
    tiny_of_transformers,
)

from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.checkpoints import fingerprint, refuse_another_run
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


def test_numbers_of_numpy_in_a_configuration_can_be_resumed(tmp_path):
    settings = {"learning_rate": np.float64(1e-3), "weight_decay": np.float32(0.01)}
    go(tmp_path, **settings)
    assert go(tmp_path, steps=11, resume=True, **settings)[1].step == 11


class Declared(MaskingCollator):
    """A collator that declares what its masks depend on."""

    def fingerprint(self):
        return {"rate": self.rate, "strategy": self.strategy, "seed": self.seed}


def other_collator(tokenizer=TOKENIZER, **options):
    return {"collate": Declared(tokenizer, **{"seed": 0} | options)}


def changed(rows):
    """As many rows, one token of which is another."""
    return [*rows[:30], [2, 30, *rows[30][2:]], *rows[31:]]


PIECES = WordPieceTokenizer(TOKENIZER.vocab | {"##a": 31})
CHANGES = {
    "seed": ({"seed": 3}, ["seed=0", "3"]),
    "batch_size": ({"batch_size": 4}, ["batch_size=8", "4"]),
    "learning_rate": ({"learning_rate": 0.25}, ["learning_rate=0.0005", "0.25"]),
    "schedule": ({"schedule": "cosine"}, ["schedule='linear'", "'cosine'"]),
    "betas": ({"betas": (0.5, 0.75)}, ["betas=(0.9, 0.999)", "(0.5, 0.75)"]),
    "precision": ({"precision": "bf16"}, ["precision='fp32'", "'bf16'"]),
    "group_by_length": ({"group_by_length": True}, ["group_by_length=False", "True"]),
    "number of examples": ({"data": ROWS[:40]}, ["46", "40"]),
    "one token of the data": ({"data": changed(ROWS)}, ["data.content="]),
    "stream": ({"data": Stream()}, ["46", "stream"]),
    "rate of the collator": (other_collator(rate=0.25), ["0.15", "0.25"]),
    "strategy of the collator": (other_collator(PIECES, strategy="span"), ["token", "span"]),
    "seed of the collator": (other_collator(seed=5), ["0", "5"]),
}  # fmt: skip


@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_a_run_resumed_as_another_is_an_error_with_both_values(tmp_path, change, words):
    go(tmp_path, **other_collator())
    before = contents(tmp_path)
    with pytest.raises(ValueError) as caught:
        go(tmp_path, **{"steps": 20, "resume": True} | other_collator() | change)
    assert_says(caught.value, [str(tmp_path), *words])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("changes", [{"hidden_size": 8}, {"num_layers": 2}, {"max_length": 20}])
def test_a_checkpoint_of_another_model_is_a_value_error(tmp_path, changes):
    go(tmp_path)
    other = MaskedLanguageModel.from_config(EncoderConfig(len(VOCAB), **SIZES | changes))
    with pytest.raises(ValueError, match="another model"):
        go(tmp_path, model=other, steps=20, resume=True)


@pytest.mark.parametrize(
    "free",
    [
        {"log_every": 3},
        {"checkpoint_every": 2},
        {"keep": 1},
        {"evaluate_every": 4},
        {"progress": False},
    ],
)
def test_what_does_not_touch_the_weights_may_change(tmp_path, free):
    go(tmp_path, steps=10, checkpoint_every=5)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000010")
    assert_same(go(tmp_path, resume=True, **free)[0], go()[0])


def frozen():
    model = tiny_of_transformers()
    model.bert.embeddings.requires_grad_(False)
    return model


OTHER_MODELS = {
    "dropout": (lambda: tiny_of_transformers(0.25), ["hidden_dropout_prob=0.0", "0.25"]),
    "activation": (lambda: tiny_of_transformers(hidden_act="relu"), ["hidden_act='gelu'", "relu"]),
    "heads": (lambda: tiny_of_transformers(num_attention_heads=4), ["num_attention_heads=2", "4"]),
    "frozen weights": (frozen, ["frozen=''", "bert.embeddings.word_embeddings.weight"]),
}  # fmt: skip


@pytest.mark.parametrize("other, words", OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_a_model_of_the_same_shapes_that_computes_something_else_is_refused(tmp_path, other, words):
    go(tmp_path, model=tiny_of_transformers(), steps=3)
    with pytest.raises(ValueError) as caught:
        go(tmp_path, model=other(), steps=5, resume=True)
    assert_says(caught.value, [str(tmp_path), *words])
    go(tmp_path, model=tiny_of_transformers(), steps=5, resume=True)


def test_of_another_description_of_a_model_the_first_line_that_differs_is_shown():
    was, now = (nn.Sequential(nn.Linear(2, 2), nn.Dropout(rate)) for rate in (0.1, 0.25))
    with pytest.raises(ValueError, match=r"here was trained with another model.*p=0.1.*p=0.25"):
        refuse_another_run(of(model=was), of(model=now), "here")


def test_a_collator_that_counts_its_calls_can_be_resumed(tmp_path):
    class Counting:
        """Declares nothing, so nothing of it is compared."""

        def __init__(self):
            self.calls, self.inner = 0, collator()

        def __call__(self, examples):
            self.calls += 1
            return self.inner(examples)

    mine = Counting()
    go(tmp_path, steps=3, collate=mine)
    assert go(tmp_path, steps=5, collate=mine, resume=True)[1].step == 5


class Data(list):
    """A dataset that says for itself what it is."""

    def __init__(self, rows, name):
        super().__init__(rows)
        self.name = name

    def fingerprint(self):
        return self.name


class Drawn(list):
    """A dataset whose rows are drawn anew at each look."""

    def __getitem__(self, index):
        return [2, *torch.randint(5, 31, (4,)).tolist(), 3]


def of(dataset=ROWS, model=None, collate=None):
    return fingerprint(model or nn.Linear(2, 2), dataset, collate, {})


def test_data_are_known_by_their_own_fingerprint_or_by_a_sample():
    assert of(Data(ROWS, "one")) == of(Data(ROWS[:3], "one")) != of(Data(ROWS, "two"))
    assert of(Data(ROWS, {"a": 1}))["data.a"] == 1
    as_arrays = [np.array(row) for row in ROWS]
    assert of(ROWS) == of(as_arrays) == of([torch.tensor(row) for row in ROWS]) != of(ROWS[::-1])
    assert of([{"input_ids": row} for row in ROWS]) != of(ROWS)
    assert of(Drawn(ROWS)) == of(Drawn(ROWS)) and of(Drawn(ROWS))["data.examples"] == 46
    assert of(Stream()) == of(Stream(ROWS[:2]))


def test_of_much_data_a_thousand_examples_are_read():
    class Counted(list):
        read = 0

        def __getitem__(self, index):
            Counted.read += 1
            return super().__getitem__(index)

    of(Counted([[number] for number in range(12345)]))
    assert 900 < Counted.read <= 1002


def test_where_in_memory_a_function_is_does_not_matter():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.function = lambda x: x

        def extra_repr(self):
            return f"function={self.function}, object={object()!r}"

    assert of(model=Layer()) == of(model=Layer())
    assert "0x" not in of(model=Layer())["model"]


def test_what_is_written_down_can_be_read_back_without_running_code(tmp_path):
    class Odd:
        def fingerprint(self):
            return {"ids": np.arange(3), "rate": np.float32(0.5), "tensor": torch.ones(2), 7: (1,)}

    mine = of(collate=Odd(), model=tiny_of_transformers())
    torch.save(mine, tmp_path / "mine.pt")
    refuse_another_run(torch.load(tmp_path / "mine.pt", weights_only=True), mine, tmp_path)
    assert mine["collator.ids"] == [0, 1, 2] and mine["collator.7"] == [1]


@pytest.mark.parametrize("was, now", [({"a": 1}, {}), ({}, {"a": 1}), ({"a": 1}, {"a": True + 1})])
def test_what_only_one_of_two_runs_has_is_a_difference(was, now):
    with pytest.raises(ValueError, match="here was trained with a="):
        refuse_another_run(was, now, "here")
