"""Training: each step is the step of the textbook, alone and with others."""

import copy
import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from scripts.training_together import TOGETHER
from training_toys import (
    ROWS,
    TOKENIZER,
    VOCAB,
    Recorder,
    Seen,
    assert_same,
    assert_says,
    checkpoints,
    collator,
    draw_in_callback,
    draws,
    go,
    log_of,
    padded,
    run_script,
    timeless,
    tiny,
    tiny_language_model,
    tiny_of_transformers,
    weights,
)
from transformers import BertForMaskedLM, DataCollatorForLanguageModeling

from mlm_lib import training
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.engine.log import History, TrainingStopped
from mlm_lib.pretrained import from_hf, to_hf
from mlm_lib.training import HeldOut, TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------- a step


@pytest.mark.parametrize("norm", [0.05, 1e9])
def test_steps_are_those_of_torchs_adamw_with_decay_on_matrices_only(norm):
    ours = tiny(dropout=0.0)
    theirs = to_hf(ours)
    assert isinstance(theirs, BertForMaskedLM)
    batch = collator()(ROWS[:8])
    plain = [
        p for name, p in theirs.named_parameters() if name.endswith("bias") or "LayerNorm" in name
    ]
    decayed = [p for p in theirs.parameters() if not any(p is other for other in plain)]
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-2)
    theirs.train()
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        theirs(**batch).loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(theirs.parameters(), norm).item())
        optimizer.step()
    _, history = go(
        model=ours, collate=lambda examples: batch, steps=3, log_every=1, learning_rate=0.01,
        schedule="constant", warmup=0, weight_decay=0.3, betas=(0.8, 0.95), eps=1e-2,
        max_grad_norm=norm,
    )  # fmt: skip
    again = to_hf(ours).state_dict()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(again[name], weight, rtol=1e-5, atol=1e-6, msg=name)
    assert history.curve("gradient_norm")[1] == pytest.approx(
        norms, rel=1e-4
    )  # before it is clipped


def test_a_model_without_biases_and_one_with_frozen_weights_train():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(len(VOCAB), 4), nn.Linear(4, len(VOCAB), bias=False)

        def forward(self, input_ids, attention_mask, labels):
            return {
                "loss": F.cross_entropy(self.out(self.table(input_ids)).transpose(1, 2), labels)
            }

    bag = Bag()
    before = weights(bag)
    go(model=bag)
    assert not torch.equal(bag.table.weight, before["table.weight"])
    frozen = tiny()
    frozen.embedder.requires_grad_(False)
    before = weights(frozen)
    go(model=frozen)
    changed = {
        name
        for name, weight in frozen.state_dict().items()
        if not torch.equal(weight, before[name])
    }
    assert changed and all(name.startswith("head.") for name in changed)


def test_the_rate_of_a_row_is_the_one_the_step_was_taken_with():
    _, history = go(steps=6, log_every=1, warmup=2)
    assert history.curve("learning_rate")[1] == [
        TrainingConfig(steps=6, warmup=2).learning_rate_at(step) for step in range(6)
    ]


def test_a_row_holds_the_mean_loss_since_the_row_before_and_the_real_tokens_so_far():
    model = Recorder()
    _, history = go(model=model, steps=7, log_every=3)
    steps, losses = history.curve("loss")
    assert steps == [3, 6, 7]
    assert losses == pytest.approx(
        [np.mean(model.losses[:3]), np.mean(model.losses[3:6]), model.losses[6]]
    )
    tokens = np.cumsum([(batch["input_ids"] != 0).sum().item() for batch in model.batches])
    assert history.curve("tokens")[1] == [tokens[2], tokens[5], tokens[6]]
    assert history.tokens == tokens[-1] < sum(batch["input_ids"].numel() for batch in model.batches)
    assert [row["epoch"] for row in history.rows] == [0, 0, 1]
    assert all(tuple(row) == training.ROW for row in history.rows)


def test_a_wall_clock_budget_ends_the_training_and_counts_resumed_runs(tmp_path):
    model, history = go(tmp_path, steps=None, seconds=0.3, warmup=0.1)
    assert history.seconds >= 0.3 and history.step > 1
    again = go(tmp_path, steps=None, seconds=0.3, warmup=0.1, resume=True)[1]
    assert again.step == history.step
    longer = go(tmp_path, steps=None, seconds=0.5, warmup=0.1, resume=True)[1]
    assert longer.step > history.step and longer.seconds >= 0.5


def test_the_model_learns():
    rows = [[2, *(5 + (i + j) % 2 for j in range(8)), 3] for i in range(20)]
    _, history = go(data=rows, steps=150, learning_rate=1e-2)
    assert history.rows[-1]["loss"] < 1 < 3 < history.rows[0]["loss"]


# ---------------------------------------------------------------- evaluation and callbacks


def test_an_evaluation_that_draws_random_numbers_does_not_change_the_training():
    one = go(steps=12, evaluate=draws, evaluate_every=2)[0]
    assert_same(one, go(steps=12)[0])
    assert one.training


def test_evaluations_come_every_so_many_steps_and_at_the_end():
    _, history = go(
        evaluate=lambda model: {"answer": torch.tensor(42)}, evaluate_every=4, log_every=5
    )
    assert history.curve("answer") == ([4, 8, 10], [42.0, 42.0, 42.0])
    assert [row["step"] for row in history.rows] == [4, 5, 8, 10]
    assert go(evaluate=lambda model: {"answer": 1}, log_every=5)[1].curve("answer")[0] == [10]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_null_in_the_log(tmp_path, value):
    _, history = go(tmp_path, evaluate=lambda model: {"answer": value})
    text = (tmp_path / "log.jsonl").read_text()
    row = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert row["answer"] is None and str(history.rows[-1]["answer"]) == str(value)
    go(tmp_path, resume=True, evaluate=lambda model: {"answer": value})
    assert (tmp_path / "log.jsonl").read_text() == text


@pytest.mark.parametrize(
    "numbers, words",
    [
        ({"loss": 99}, ["'loss'", "another name"]),
        ({"epoch": 1}, ["'epoch'"]),
        (None, ["evaluate returned None", "numbers by name"]),
        ({"answer": "many"}, ["many", "numbers by name"]),
        (3.5, ["3.5", "numbers by name"]),
    ],
)
def test_what_an_evaluation_returns_has_names_of_its_own(numbers, words):
    with pytest.raises(ValueError) as caught:
        go(steps=1, evaluate=lambda model: numbers)
    assert_says(caught.value, words)


def test_a_callback_is_called_after_each_step_with_the_row_if_there_is_one():
    calls = []
    _, history = go(
        steps=5, log_every=2, callbacks=[lambda model, step, row: calls.append((step, row))]
    )
    assert [step for step, _ in calls] == [1, 2, 3, 4, 5]
    assert [row for _, row in calls if row] == history.rows and [
        row is None for _, row in calls
    ] == [True, False, True, False, False]


def test_the_curve_of_a_history_leaves_out_rows_without_the_name():
    history = History(rows=[{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "x": 1.0}])
    assert history.curve("loss") == ([1, 2], [3.0, 2.0])
    assert history.curve("x") == ([2], [1.0]) and history.curve("y") == ([], [])


@pytest.mark.parametrize("loss", ["none", "absent"])
def test_a_model_without_a_loss_is_a_value_error(loss):
    class Lossless(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, **batch):
            return {"logits": self.weight} | ({"loss": None} if loss == "none" else {})

    with pytest.raises(ValueError, match="loss"):
        go(model=Lossless())


# ---------------------------------------------------------------- precision and device


@pytest.mark.slow
def test_bf16_keeps_float32_weights_and_leaves_no_trace():
    model, history = go(steps=5, precision="bf16", evaluate=HeldOut(ROWS, collator(1)))
    assert {p.dtype for p in model.parameters()} == {torch.float32} and "forward" not in vars(model)
    copied = tiny(seed=1)
    copied.load_state_dict(model.state_dict())
    batch = collator()(ROWS[:8])
    assert model.eval()(**batch)["loss"].item() == copied.eval()(**batch)["loss"].item()
    assert model(**batch)["logits"].dtype == torch.float32
    assert np.isfinite(history.rows[-1]["held_out_loss"])


def test_runs_of_different_precision_follow_each_other_in_one_process():
    alone = go(steps=3)[0]
    low = go(steps=3, precision="bf16")[0]
    assert_same(go(steps=3)[0], alone)
    assert_same(go(steps=3, precision="bf16")[0], low)
    assert not torch.equal(low.head.dense.weight, alone.head.dense.weight)


@pytest.mark.parametrize(
    "precision, native, autocast",
    [("auto", False, False), ("auto", True, True), ("bf16", False, True), ("fp32", True, False)],
)
def test_auto_is_bf16_only_where_the_hardware_has_it(monkeypatch, precision, native, autocast):
    monkeypatch.setattr(training, "native_bf16", lambda device="cpu": native)
    model = Recorder()
    go(model=model, steps=2, precision=precision)
    assert model.autocast == {autocast}


def test_fp32_is_fp32_whatever_accelerate_launch_has_set(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    model = Recorder()
    go(model=model, steps=2, precision="fp32")
    assert model.autocast == {False}


def test_after_bf16_another_program_can_use_accelerate_in_its_own_precision():
    from accelerate import Accelerator

    go(steps=1, precision="bf16")
    assert Accelerator(cpu=True, mixed_precision="no").mixed_precision == "no"


def test_a_device_that_is_not_here_is_an_error():
    with pytest.raises(ValueError, match="device='mars'"):
        go(device="mars")


# ---------------------------------------------------------------- losses that are not finite


class Poisoned(nn.Module):
    """A model whose loss or gradient is not finite at one call."""

    def __init__(self, call, kind):
        super().__init__()
        self.inner, self.call, self.kind, self.calls = tiny(), call, kind, 0

    def forward(self, **batch):
        output = self.inner(**batch)
        self.calls += 1
        if self.calls == self.call:
            weight = self.inner.head.bias
            output["loss"] = {
                "nan": lambda loss: loss * float("nan"),
                "inf": lambda loss: loss + float("inf"),
                "gradient": lambda loss: loss + (0 * weight).sum().sqrt(),
            }[self.kind](output["loss"])
        return output


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient"])
@pytest.mark.parametrize("folder", [True, False])
def test_a_loss_or_gradient_that_is_not_finite_stops_before_the_step(tmp_path, kind, folder):
    model, before = Poisoned(8, kind), []
    with pytest.raises(TrainingStopped) as caught:
        go(
            tmp_path if folder else None, model=model, checkpoint_every=3,
            callbacks=[lambda model, step, row: before.append(weights(model))],
        )  # fmt: skip
    last = str(tmp_path / "checkpoints" / "step-00000006") if folder else "no checkpoint"
    assert_says(caught.value, ["step 8", last, "inf" if kind == "inf" else "nan"])
    assert len(before) == 7
    assert_same(model, before[-1])
    assert torch.isfinite(model(**collator()(ROWS[:4]))["loss"])


@pytest.fixture(params=["fused", "not fused"])
def waiting(request, monkeypatch):
    """As on an accelerator: a look would make the program wait. Which steps were looked at."""
    monkeypatch.setattr(training, "can_look", lambda tensor: False)
    if request.param == "not fused":  # nothing to tell it, so each step must be seen
        adamw = torch.optim.AdamW
        monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **o: adamw(*a, **o | {"fused": False}))
    looks, look = [], training.Meter.look

    def counted(self, step, store, last=False):
        looks.append(step) if self.steps else None
        look(self, step, store, last)

    monkeypatch.setattr(training.Meter, "look", counted)
    return looks


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient"])
def test_where_a_look_costs_a_wait_the_steps_after_it_are_not_applied_either(waiting, kind):
    model, before = Poisoned(5, kind), []
    with pytest.raises(TrainingStopped) as caught:
        go(model=model, callbacks=[lambda model, step, row: before.append(weights(model))])
    assert_says(caught.value, ["step 5", "inf" if kind == "inf" else "nan"])
    assert waiting[-1] in (5, 10)
    assert_same(model, before[3])  # of step 4


def test_looks_come_when_something_is_due_and_change_no_number(waiting, tmp_path):
    settings = {"steps": 25, "evaluate_every": 8, "evaluate": lambda model: {"x": 1}}
    model, history = go(tmp_path, checkpoint_every=7, **settings)
    assert waiting in ([7, 8, 10, 14, 16, 20, 21, 24, 25], list(range(1, 26)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "can_look", lambda tensor: True)
        free, rows = go(**settings)
    assert_same(model, free)
    assert timeless(rows.rows) == timeless(history.rows) and rows.tokens == history.tokens


def test_no_more_than_a_hundred_steps_go_without_a_look(monkeypatch):
    monkeypatch.setattr(training, "can_look", lambda tensor: False)
    seen = []
    with pytest.raises(TrainingStopped, match="step 3: "):
        go(
            steps=300, log_every=1000, batch_size=1, model=Poisoned(3, "nan"),
            callbacks=[lambda model, step, row: seen.append(step)],
        )  # fmt: skip
    assert len(seen) == 99


@pytest.mark.parametrize("kind", ["nan", "gradient"])
def test_a_model_whose_training_was_stopped_can_be_trained_again(kind):
    model = Poisoned(8, kind)
    with pytest.raises(TrainingStopped):
        go(model=model)
    copied = Poisoned(0, kind)
    copied.load_state_dict(model.state_dict())
    assert_same(go(model=model, steps=3)[0], go(model=copied, steps=3)[0])


def test_gradients_left_from_before_do_not_enter_the_first_step():
    model = tiny()
    model(**collator()(ROWS[:4]))["loss"].backward()
    assert_same(go(model=model, steps=3)[0], go(steps=3)[0])


def test_the_first_step_can_be_the_one_that_is_not_finite(tmp_path):
    model = Poisoned(1, "nan")
    before = weights(model)
    with pytest.raises(TrainingStopped, match="step 1.*no checkpoint"):
        go(tmp_path, model=model)
    assert_same(model, before)


# ---------------------------------------------------------------- nothing to learn

NOTHING = {
    "special tokens only": {"data": [[2, 3]] * 20},
    "rate 0": {"collate": collator(rate=0.0)},
    "rows of one token": {"model": tiny_language_model(), "data": [[5]] * 9, "collate": padded},
}


@pytest.mark.parametrize("settings", NOTHING.values(), ids=NOTHING)
def test_a_run_that_never_sees_a_label_is_an_error_and_not_a_success(tmp_path, settings):
    with pytest.raises(ValueError, match="no batch had a label in 10 steps"):
        go(tmp_path, **settings)
    assert not (tmp_path / "checkpoints").exists()


def test_without_a_label_a_long_run_ends_early_and_a_late_label_is_enough():
    seen = []
    count = [lambda model, step, row: seen.append(step)]
    with pytest.raises(ValueError, match="no batch had a label in 100 steps"):
        go(steps=1000, batch_size=1, data=[[2, 3]], callbacks=count)
    assert len(seen) == 99

    def late(examples):
        batch = collator(rate=0.5)(examples)
        if len(seen) < 99 + 9:
            batch["labels"].fill_(-100)
        return batch

    assert go(collate=late, callbacks=count)[1].rows[-1]["loss"] > 0


# ---------------------------------------------------------------- doors

DOORS = {
    "model": {"model": "bert"},
    "collator": {"collate": "mask"},
    "evaluate": {"evaluate": 3},
    "callbacks": {"callbacks": draw_in_callback},
    "resume": {"resume": "yes"},
    "out": {"out": ""},
    "evaluate.name": {"evaluate": HeldOut(ROWS, collator(), name="loss")},
}


@pytest.mark.parametrize("name, settings", DOORS.items(), ids=DOORS)
def test_a_bad_argument_is_an_error_that_names_it(name, settings):
    with pytest.raises(ValueError, match=f"{name}=.* is needed"):
        go(**settings)
    with pytest.raises(ValueError, match="config=.* a TrainingConfig is needed"):
        training.train(tiny(), ROWS, collator(), {"steps": 3})


def test_a_model_without_weights_to_train_and_a_batch_that_is_none_are_refused():
    with pytest.raises(ValueError, match="no weights to train"):
        go(model=tiny().requires_grad_(False))
    with pytest.raises(ValueError, match="the collator returned .*; a dictionary"):
        go(collate=lambda examples: examples)


# ---------------------------------------------------------------- other models and collators


def test_a_model_and_a_collator_of_transformers_train_and_resume(tmp_path):
    def run(out=None, **settings):
        collate = DataCollatorForLanguageModeling(TOKENIZER.to_hf())
        return go(
            out,
            model=tiny_of_transformers(0.1),
            data=[{"input_ids": row} for row in ROWS],
            collate=collate,
            **settings,
        )

    whole, history = run(steps=12)
    assert history.rows[-1]["loss"] > 0
    run(tmp_path, steps=12, checkpoint_every=7)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000012")
    assert_same(run(tmp_path, steps=12, resume=True)[0], whole)


@pytest.mark.parametrize("draw", ["stratified", "count"])
def test_rows_with_rates_of_their_own_train_and_resume(tmp_path, draw):
    def run(out=None, **settings):
        collate = DiffusionCollator(TOKENIZER, draw=draw, seed=0)
        return go(out, collate=collate, **settings)

    whole, history = run(steps=12)
    assert history.rows[-1]["loss"] > 0
    run(tmp_path, steps=12, checkpoint_every=7)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000012")
    assert_same(run(tmp_path, steps=12, resume=True)[0], whole)
    assert_same(run(steps=12, batch_size=8)[0], whole)
    with pytest.raises(AssertionError):  # the weights are heeded
        collate = DiffusionCollator(TOKENIZER, draw=draw, seed=0)
        assert_same(go(steps=12, collate=lambda rows: without_weights(collate(rows)))[0], whole)


def without_weights(batch):
    return {name: rows for name, rows in batch.items() if name != "weights"}


def test_the_logged_loss_of_weighted_rows_is_their_weighted_mean():
    collate = DiffusionCollator(TOKENIZER, draw="count", seed=0)
    model, history = go(collate=collate, model=tiny(dropout=0.0), steps=1, log_every=1)
    rows = [row for row in history.rows if row["step"] == 1]
    seen = Seen()
    seen.inner = DiffusionCollator(TOKENIZER, draw="count", seed=0)
    go(collate=seen, steps=1)
    examples = [ROWS[number] for number in seen.batches[0]]
    batch = DiffusionCollator(TOKENIZER, draw="count", seed=0)(examples)
    logits = tiny(dropout=0.0)(batch["input_ids"], batch["attention_mask"])["logits"]
    nats = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    sums = nats.view(batch["labels"].shape).sum(1) * batch["weights"]
    words = sum(len(row) - 2 for row in examples)
    assert rows[0]["loss"] == pytest.approx(sums.sum().item() / words, rel=1e-5)


def test_a_model_that_would_forget_the_weights_is_refused():
    collate = DiffusionCollator(TOKENIZER, seed=0)
    with pytest.raises(ValueError, match="which a BertForMaskedLM leaves out of its loss; train"):
        go(model=tiny_of_transformers(), collate=collate)
    assert go(model=from_hf(tiny_of_transformers()), collate=collate)[1].step == 10
    assert go(model=Recorder(), collate=collate)[1].step == 10  # hands all of a batch on


def test_a_data_set_of_the_datasets_library_trains():
    from datasets import Dataset

    model, _ = go(data=Dataset.from_dict({"input_ids": ROWS}), group_by_length=True)
    assert_same(model, go(data=[{"input_ids": row} for row in ROWS], group_by_length=True)[0])


def test_a_model_whose_output_is_a_plain_dictionary_trains_as_one_whose_output_is_not():
    inner = tiny_of_transformers()
    assert_same(go(model=Recorder(copy.deepcopy(inner)))[0].inner, go(model=inner)[0])


def test_a_batch_without_labels_does_not_stop_a_model_of_transformers():
    def collate(examples):
        batch = collator()(examples)
        collate.calls += 1
        if collate.calls == 3:
            batch["labels"].fill_(-100)
        return batch

    collate.calls = 0
    assert go(model=tiny_of_transformers(), collate=collate)[1].step == 10


def test_without_labels_the_tokens_and_the_held_out_mean_are_those_of_the_real_tokens():
    model, history = go(
        model=tiny_language_model(),
        collate=padded,
        steps=1,
        batch_size=len(ROWS),
        evaluate=HeldOut(ROWS[:5], padded, batch_size=2),
    )
    assert history.tokens == sum(map(len, ROWS))
    sums = [(len(row) - 1) * model(torch.tensor([row]))["loss"].item() for row in ROWS[:5]]
    assert history.rows[-1]["held_out_loss"] == pytest.approx(
        sum(sums) / sum(len(row) - 1 for row in ROWS[:5]), rel=1e-5
    )


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    run_script("training_together", one)
    run_script("training_together", two, processes=2)
    return one, two


def load(path):
    return torch.load(path, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TOGETHER if name != "clock"])
def test_two_processes_train_as_one(together, name):
    one, two = together
    assert [
        path.read_text()
        for path in (*one.glob("*.txt"), *two.glob("*.txt"))
        if path.name.startswith(name)
    ] == []
    alone = load(one / f"{name}-alone.pt")
    for rank in (0, 1):
        for weight, tensor in load(two / f"{name}-{rank}.pt").items():
            torch.testing.assert_close(
                tensor, alone[weight], rtol=1e-5, atol=1e-5, msg=f"{weight} of process {rank}"
            )
    rows = [timeless(log_of(folder / name)) for folder in (one, two)]
    assert (
        [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]] == list(range(1, 10))
    )
    for mine, theirs in zip(*rows):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TOGETHER, "dropout in 1"])
def test_all_processes_hold_the_same_weights(together, name):
    one, other = (load(together[1] / f"{name}-{rank}.pt") for rank in (0, 1))
    assert_same(one, other)


@pytest.mark.slow
def test_two_processes_go_on_to_the_bit(together):
    assert_same(load(together[1] / "dropout in 1-0.pt"), load(together[1] / "dropout in 2-0.pt"))
    assert checkpoints(together[1] / "dropout in 2") == ["step-00000003", "step-00000006"]


@pytest.mark.slow
def test_a_folder_that_is_held_is_refused_by_all_processes(together):
    texts = [(together[1] / f"refused-{rank}.txt").read_text() for rank in (0, 1)]
    assert texts[0] == texts[1] and "another program writes to" in texts[0]


@pytest.mark.slow
def test_sparse_gradients_are_refused_by_all_processes_since_they_cannot_be_averaged(together):
    texts = [(together[1] / f"sparse-{rank}.txt").read_text() for rank in (0, 1)]
    assert texts[0] == texts[1] and "softmax.bias has sparse gradients" in texts[0]
    assert (together[0] / "sparse-alone.txt").read_text() == "trained"


def test_processes_that_would_each_train_on_everything_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(ValueError, match="WORLD_SIZE=2, .*processes=1.*torchrun"):
        go(device="auto")
