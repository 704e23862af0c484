"""Training: each step is the step of the textbook, alone and with others."""

import builtins
import json
import random
import re
import sys
import weakref

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from scripts.training_together import TOGETHER, train_together
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

from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.engine import log
from mlm_lib.engine import precision as engine_precision
from mlm_lib.engine import run as engine_run
from mlm_lib.engine.log import History, TrainingStopped
from mlm_lib.engine.precision import precision_taken
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig
from mlm_lib.pretrained import from_hf, to_hf
from mlm_lib.training import HeldOut, ShowPredictions, TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")


def tiny_modern():
    torch.manual_seed(0)
    return MaskedLanguageModel.from_config(ModernConfig(len(VOCAB), 16, 2, 2, 24, window=4))


# ---------------------------------------------------------------- settings and schedule

RATES = [
    ({"steps": 10, "warmup": 0}, {0: 1, 1: 0.9, 5: 0.5, 9: 0.1}),
    ({"steps": 10, "warmup": 4}, {0: 1 / 5, 1: 2 / 5, 3: 4 / 5, 4: 1, 7: 0.5, 9: 1 / 6}),
    ({"steps": 10, "warmup": 0.4}, {0: 1 / 5, 1: 2 / 5, 3: 4 / 5, 4: 1, 7: 0.5, 9: 1 / 6}),
    ({"steps": 10, "warmup": 4, "schedule": "constant"}, {0: 1 / 5, 3: 4 / 5, 4: 1, 9: 1}),
    ({"steps": 10, "warmup": 0, "schedule": "cosine"}, {0: 1, 5: 0.5, 2: 0.9045085, 8: 0.0954915}),
    ({"steps": 10, "warmup": 0, "schedule": "wsd"}, {0: 1, 7: 1, 8: 1, 9: 0.5}),
    ({"steps": 12, "warmup": 2, "schedule": "wsd"}, {0: 1 / 3, 9: 1, 11: 0.5}),
    ({"steps": 12, "warmup": 4, "schedule": "cosine"}, {4: 1, 6: 0.8535534, 8: 0.5, 10: 0.1464466}),
    ({"steps": 1, "warmup": 0.1}, {0: 1 / 1.1}),
]


@pytest.mark.parametrize("settings, rates", RATES)
def test_the_learning_rate_follows_the_schedule(settings, rates):
    config = TrainingConfig(learning_rate=2.0, **settings)
    found = {step: config.learning_rate_at(step) / 2 for step in rates}
    assert found == pytest.approx(rates, abs=1e-6)


def test_with_seconds_the_learning_rate_follows_the_clock_or_the_steps_whichever_is_further():
    config = TrainingConfig(steps=None, seconds=100, warmup=0.2, learning_rate=1.0)
    rates = {0: 0, 10: 0.5, 20: 1, 60: 0.5, 100: 0, 120: 0}
    assert {at: config.learning_rate_at(1000, at) for at in rates} == pytest.approx(rates)
    both = TrainingConfig(steps=10, seconds=100, warmup=0, learning_rate=1.0)
    found = both.learning_rate_at(2, 50), both.learning_rate_at(8, 50)
    assert found == pytest.approx((0.5, 0.2))


NAN, INF = float("nan"), float("inf")
BAD = {
    "steps": [0, 1.5], "batch_size": [0], "learning_rate": [0, NAN, INF], "warmup": [-0.1, NAN],
    "inner_learning_rate": [0, 0.01],  # the latter is Muon's
    "weight_decay": [-1], "precision": ["fp16"], "schedule": ["step"], "optimizer": ["sgd"],
    "checkpoint_every": [0], "seconds": [0], "max_grad_norm": [0], "eps": [0], "log_every": [0],
    "betas": [(0.9, 1.0), (-0.1, 0.9)], "evaluate_every": [0], "keep": [0], "seed": [-1, 2**32],
    "device": ["mars"], "checkpoint_seconds": [0, -1, NAN, INF],
    "gradient_accumulation_steps": [0, 1.5, -2], "head_steps": [-1, 0.5],
    "evaluate_at_start": ["no", 1],
}  # fmt: skip


@pytest.mark.parametrize("name, value", [(name, bad) for name in BAD for bad in BAD[name]])
def test_a_value_outside_its_range_is_an_error_that_names_it(name, value):
    with pytest.raises(ValueError, match=name.removesuffix("s")):
        go(**{name: value})


@pytest.mark.parametrize("settings", [{}, {"seconds": 9, "warmup": 5}])
def test_a_budget_is_needed_and_a_warm_up_that_follows_it(settings):
    with pytest.raises(ValueError, match="give seconds, and warmup as a share"):
        TrainingConfig(steps=None, **settings)


def test_numbers_of_numpy_in_a_configuration_can_be_resumed(tmp_path):
    settings = {"learning_rate": np.float64(1e-3), "weight_decay": np.float32(0.01)}
    settings |= {"batch_size": np.int64(8), "betas": [np.float64(0.5), 0.9]}
    go(tmp_path, **settings)
    assert go(tmp_path, steps=11, resume=True, **settings)[1].step == 11


# ---------------------------------------------------------------- a step


@pytest.mark.parametrize("norm", [0.05, 1e9])
def test_steps_are_those_of_torchs_adamw_with_decay_on_matrices_only(norm):
    ours = tiny(dropout=0.0)
    theirs = to_hf(ours)
    assert isinstance(theirs, BertForMaskedLM)
    batch = collator()(ROWS[:8])
    named = list(theirs.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for p in theirs.parameters() if not any(p is other for other in plain)]
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-2)
    theirs.train()
    norms = []  # before they are clipped
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
    assert history.curve("gradient_norm")[1] == pytest.approx(norms, rel=1e-4)


def test_frozen_weights_stay():
    model = tiny()
    model.embedder.requires_grad_(False)
    before = weights(model)
    go(model=model)
    now = weights(model)
    changed = {name for name in now if not torch.equal(now[name], before[name])}
    assert changed and all(name.startswith("head.") for name in changed)


def test_gradients_left_from_before_do_not_enter_the_first_step():
    model = tiny()
    model(**collator()(ROWS[:4]))["loss"].backward()
    assert_same(go(model=model, steps=3)[0], go(steps=3)[0])


class Watched(nn.Module):
    """A model that notes how many of its earlier outputs are still in memory at each call."""

    def __init__(self):
        super().__init__()
        self.inner, self.outputs, self.alive = tiny(), [], []

    def forward(self, **batch):
        self.alive.append(sum(output() is not None for output in self.outputs))
        output = self.inner(**batch)
        self.outputs.append(weakref.ref(output["logits"]))
        return output


def test_the_logits_of_a_step_are_not_kept_in_memory_for_the_next_one():
    model = Watched()
    go(model=model, steps=4, gradient_accumulation_steps=2)
    assert model.alive == 8 * [0]


def test_the_model_learns():
    rows = [[2, *(5 + (i + j) % 2 for j in range(8)), 3] for i in range(20)]
    _, history = go(data=rows, steps=150, learning_rate=1e-2)
    assert history.rows[-1]["loss"] < 1 < 3 < history.rows[0]["loss"]


# ---------------------------------------------------------------- rows, evaluations, callbacks


def test_a_row_holds_the_mean_loss_since_the_row_before_and_the_real_tokens_so_far():
    model = Recorder()
    _, history = go(model=model, steps=7, log_every=3, warmup=2)
    steps, losses = history.curve("loss")
    assert steps == [3, 6, 7]
    means = [np.mean(model.losses[:3]), np.mean(model.losses[3:6]), model.losses[6]]
    assert losses == pytest.approx(means)
    tokens = np.cumsum([(batch["input_ids"] != 0).sum().item() for batch in model.batches])
    assert history.curve("tokens")[1] == [tokens[2], tokens[5], tokens[6]]
    assert history.tokens == tokens[-1] < sum(batch["input_ids"].numel() for batch in model.batches)
    assert [row["epoch"] for row in history.rows] == [0, 0, 1]
    config = TrainingConfig(steps=7, warmup=2)  # the rate is the one the step was taken with
    assert history.curve("learning_rate")[1] == [
        config.learning_rate_at(step - 1) for step in steps
    ]


def test_a_wall_clock_budget_ends_the_training_and_counts_resumed_runs(tmp_path):
    settings = {"steps": None, "warmup": 0.1}
    _, history = go(tmp_path, seconds=0.3, **settings)
    assert history.seconds >= 0.3 and history.step > 1
    assert go(tmp_path, seconds=0.3, resume=True, **settings)[1].step == history.step
    longer = go(tmp_path, seconds=0.5, resume=True, **settings)[1]
    assert longer.step > history.step and longer.seconds >= 0.5


def test_evaluations_come_every_so_many_steps_and_at_the_end():
    _, history = go(
        evaluate=lambda model: {"answer": torch.tensor(42)}, evaluate_every=4, log_every=5
    )
    assert history.curve("answer") == ([4, 8, 10], [42.0, 42.0, 42.0])
    assert [row["step"] for row in history.rows] == [4, 5, 8, 10]
    assert go(evaluate=lambda model: {"answer": 1}, log_every=5)[1].curve("answer")[0] == [10]
    with pytest.raises(TypeError, match="'loss'"):  # each row has one
        go(steps=1, evaluate=lambda model: {"loss": 99})


@pytest.mark.parametrize("evaluate", [draws, HeldOut(ROWS[:9], collator(1))])
def test_an_evaluation_does_not_change_the_training(evaluate):
    model, _ = go(steps=12, evaluate=evaluate, evaluate_every=2)
    assert_same(model, go(steps=12)[0])
    assert model.training


@pytest.mark.parametrize("value", [NAN, -INF])
def test_what_is_not_finite_is_null_in_the_log(tmp_path, value):
    _, history = go(tmp_path, evaluate=lambda model: {"answer": value})
    text = (tmp_path / "log.jsonl").read_text()
    row = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert row["answer"] is None and str(history.rows[-1]["answer"]) == str(value)
    go(tmp_path, resume=True, evaluate=lambda model: {"answer": value})
    assert (tmp_path / "log.jsonl").read_text() == text


def test_a_callback_is_called_after_each_step_with_the_row_if_there_is_one():
    calls = []
    callbacks = [lambda model, step, row: calls.append((step, row))]
    _, history = go(steps=5, log_every=2, callbacks=callbacks)
    (second, fourth, last) = history.rows
    assert calls == [(1, None), (2, second), (3, None), (4, fourth), (5, last)]


def test_a_number_that_is_added_to_a_step_is_read_back_and_has_to_be_finite():
    history, batch = History(), {"input_ids": torch.ones(1, 2), "labels": torch.tensor([[1, -100]])}
    loss, numbers = torch.tensor(2.0), {"gradient_norm": torch.tensor(1.0), "x": torch.tensor(0.5)}
    history.add(loss, numbers, 0.1, batch)
    assert history.numbers == {"gradient_norm": 1.0, "x": 0.5}
    told = "step 2: the loss is 2.0 and the gradient norm 1.0 and the x nan"
    with pytest.raises(TrainingStopped, match=told):
        history.add(loss, numbers | {"x": torch.tensor(torch.nan)}, 0.1, batch)


def test_the_curve_of_a_history_leaves_out_rows_without_the_name():
    history = History(rows=[{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "x": 1.0}])
    assert history.curve("loss") == ([1, 2], [3.0, 2.0])
    assert history.curve("x") == ([2], [1.0]) and history.curve("y") == ([], [])


# ---------------------------------------------------------------- precision


@pytest.mark.slow
def test_bf16_keeps_float32_weights_and_leaves_no_trace():
    model, history = go(steps=5, precision="bf16", evaluate=HeldOut(ROWS, collator(1)))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    copied = tiny(seed=1)
    copied.load_state_dict(model.state_dict())
    batch = collator()(ROWS[:8])
    assert model.eval()(**batch)["loss"].item() == copied.eval()(**batch)["loss"].item()
    assert model(**batch)["logits"].dtype == torch.float32
    assert np.isfinite(history.rows[-1]["held_out_loss"])
    assert_same(go(steps=3)[0], go(steps=3)[0])


MACHINES = {  # whether it has instructions for bfloat16, seconds in fp32 and in bf16
    "none": (False, (9.0, 1.0)), "fast": (True, (3.0, 1.0)), "slow": (True, (1.0, 1.5)),
    "a little slow": (True, (1.0, 1.01)), "as fast": (True, (1.0, 1.0)),
}  # fmt: skip


@pytest.fixture
def machine(monkeypatch):
    def pretend(name):
        native, times = MACHINES[name]
        monkeypatch.setattr(engine_precision, "native_bf16", lambda device="cpu": native)
        monkeypatch.setattr(engine_precision, "layer_times", lambda threads: times)
        monkeypatch.setattr(engine_run, "native_bf16", lambda device="cpu": native)

    return pretend


@pytest.mark.parametrize(
    "precision, name, taken",
    [
        ("auto", "none", "fp32"), ("auto", "fast", "bf16"), ("auto", "slow", "fp32"),
        ("auto", "a little slow", "fp32"), ("auto", "as fast", "fp32"), ("bf16", "slow", "bf16"),
        ("bf16", "none", "bf16"), ("fp32", "fast", "fp32"),
    ],
)  # fmt: skip
def test_auto_is_what_is_faster_on_this_machine(machine, precision, name, taken):
    machine(name)
    model = Recorder()
    _, history = go(model=model, steps=2, precision=precision)
    assert model.autocast == {taken == "bf16"} and history.precision == taken


@pytest.mark.parametrize("name, taken", [("none", "fp32"), ("fast", "bf16"), ("slow", "fp32")])
def test_what_auto_takes_is_told_with_its_reason(machine, name, taken):
    machine(name)
    found, reason = precision_taken("cpu")
    assert found == taken
    due = {
        "none": "no instructions for bfloat16",
        "fast": "3000.0 ms in fp32 and only 1000.0 ms in bf16",
        "slow": "1000.0 ms in fp32 and even 1500.0 ms in bf16",
    }
    assert due[name] in reason


def test_on_a_gpu_auto_is_bf16_where_the_gpu_has_it(machine, monkeypatch):
    for name, taken in (("slow", "bf16"), ("none", "fp32")):  # no processor is asked there
        machine(name)
        assert precision_taken("cuda")[0] == taken


def test_a_layer_is_timed_once_and_draws_no_random_number():
    engine_precision.layer_times.cache_clear()
    state = torch.get_rng_state()
    with torch.no_grad():
        times = engine_precision.layer_times(1)
    assert all(0 < seconds < 60 for seconds in times) and len(times) == 2
    assert engine_precision.layer_times(1) is times
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("began, goes_on", [("fast", "slow"), ("slow", "fast"), ("none", "fast")])
def test_a_resumed_run_keeps_the_precision_in_which_it_began(machine, tmp_path, began, goes_on):
    machine(began)
    settings = {"precision": "auto", "schedule": "constant", "warmup": 0}
    go(tmp_path, steps=2, **settings)
    machine(goes_on)
    resumed, history = go(tmp_path, steps=4, resume=True, **settings)
    assert history.precision == precision_of(began)
    machine(began)
    assert_same(resumed, go(steps=4, **settings)[0])


def precision_of(name):
    native, (fp32, bf16) = MACHINES[name]
    return "bf16" if native and bf16 < fp32 else "fp32"


@pytest.mark.parametrize("name, taken", [("slow", "bf16"), ("fast", "bf16"), ("none", "fp32")])
def test_a_run_of_an_earlier_version_goes_on_in_what_it_took(machine, tmp_path, name, taken):
    machine(name)
    go(tmp_path, steps=2, precision="auto")
    without(tmp_path, history=("precision", "budget", "rate", "idle"))
    assert go(tmp_path, steps=4, precision="auto", resume=True)[1].precision == taken


def without(out, history=(), run=()):
    """Makes the last checkpoint one of an earlier version, which did not write these names."""
    file = max((out / "checkpoints").iterdir()) / "state.pt"
    state = torch.load(file, weights_only=True)
    for part, names in (("history", history), ("run", run)):
        for name in names:
            del state[part][name]
    torch.save(state, file)


# ---------------------------------------------------------------- losses that are not finite


class Poisoned(nn.Module):
    """A model whose loss or gradient is not finite at one call."""

    def __init__(self, call, kind):
        super().__init__()
        make = tiny if kind != "sparse" else lambda: tiny_language_model(True, num_samples=5)
        self.inner, self.call, self.kind, self.calls = make(), call, kind, 0

    def forward(self, **batch):
        loss = self.inner(**batch)["loss"]
        self.calls += 1
        if self.calls == self.call and self.kind == "gradient":
            loss = loss + (0 * next(self.inner.parameters()).sum()).sqrt()
        elif self.calls == self.call:
            loss = loss * (INF if self.kind == "inf" else NAN)
        return {"loss": loss}


def poisoned(call, kind):
    return {"model": Poisoned(call, kind), "collate": padded if kind == "sparse" else collator()}


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient", "sparse"])
def test_a_loss_or_gradient_that_is_not_finite_stops_before_the_step(tmp_path, kind):
    run, before = poisoned(8, kind), []
    keep = [lambda model, step, row: before.append(weights(model))]
    with pytest.raises(TrainingStopped) as caught:
        go(tmp_path, checkpoint_every=3, callbacks=keep, **run)
    assert_says(caught.value, ["step 8", "inf" if kind == "inf" else "nan"])
    assert len(before) == 7 and checkpoints(tmp_path) == ["step-00000003", "step-00000006"]
    assert_same(run["model"], before[-1])
    # It can be trained again, and the gradients of the bad step are forgotten.
    copied = poisoned(0, kind)
    copied["model"].load_state_dict(before[-1])
    assert_same(
        go(steps=3, **run | {"collate": copied["collate"]})[0].inner,
        go(steps=3, **copied | {"collate": poisoned(0, kind)["collate"]})[0].inner,
    )


@pytest.fixture
def read_at(monkeypatch):
    """As on a GPU, where reading a value back synchronises: the steps after which that was done."""
    monkeypatch.setattr(log, "can_read_without_sync", lambda tensor: False)
    steps, read_back = [], History.read_back

    def counted(self, last=False):
        steps.append(self.step) if self.unread else None
        read_back(self, last)

    monkeypatch.setattr(History, "read_back", counted)
    return steps


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient", "sparse"])
@pytest.mark.parametrize(
    "due, step", [({}, 10), ({"checkpoint_every": 6}, 6), ({"log_every": 9}, 9)]
)
def test_where_reading_back_is_a_sync_no_checkpoint_holds_nan(read_at, tmp_path, kind, due, step):
    go(tmp_path, steps=3, **poisoned(0, kind))
    with pytest.raises(TrainingStopped) as caught:
        go(tmp_path, resume=True, **due, **poisoned(2, kind))
    assert_says(caught.value, ["step 5", "inf" if kind == "inf" else "nan"])
    assert read_at[-1] == step and checkpoints(tmp_path) == ["step-00000003"]


def test_numbers_are_read_back_when_something_is_due_and_are_the_same(read_at, tmp_path):
    settings = {"steps": 25, "evaluate_every": 8, "evaluate": lambda model: {"x": 1}}
    model, history = go(tmp_path, checkpoint_every=7, **settings)
    assert read_at == [7, 8, 10, 14, 16, 20, 21, 24, 25]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "can_read_without_sync", lambda tensor: True)
        free, rows = go(**settings)
    assert_same(model, free)
    assert timeless(rows.rows) == timeless(history.rows) and rows.tokens == history.tokens


# ---------------------------------------------------------------- nothing to learn

NOTHING = {
    "special tokens only": {"data": [[2, 3]] * 20},
    "rate 0": {"collate": collator(rate=0.0)},
    "rows of one token": {"model": tiny_language_model(), "data": [[5]] * 9, "collate": padded},
    "of transformers": {"model": tiny_of_transformers(), "data": [[2, 3]] * 20},
}


@pytest.mark.parametrize("settings", NOTHING.values(), ids=NOTHING)
def test_a_run_that_never_sees_a_label_is_an_error_and_not_a_success(tmp_path, settings):
    with pytest.raises(ValueError, match="no batch had a label in 10 steps"):
        go(tmp_path, **settings)
    assert not (tmp_path / "checkpoints").exists()


def test_without_a_label_a_long_run_ends_early():
    with pytest.raises(ValueError, match="in 100 steps"):
        go(steps=1000, batch_size=1, data=[[2, 3]])


@pytest.mark.parametrize("make", [tiny, tiny_of_transformers])
def test_a_batch_without_labels_counts_nothing(make):
    def collate(examples):
        batch = collator()(examples)
        collate.calls += 1
        if collate.calls == 3:
            batch["labels"].fill_(-100)
        return batch

    collate.calls = 0
    _, history = go(model=make(), collate=collate, log_every=1)
    assert "loss" not in history.rows[2] and history.rows[2]["gradient_norm"] == 0.0
    assert history.step == 10 and history.rows[-1]["loss"] > 0


@pytest.mark.parametrize("log_every", [1, 2, 5])
def test_steps_without_a_label_do_not_lower_the_logged_loss(log_every):
    model = Recorder(tiny(dropout=0.0))

    def collate(examples):
        batch = collator()(examples)
        if len(model.losses) % 2:  # of each second batch
            batch["labels"].fill_(-100)
        return batch

    _, history = go(model=model, collate=collate, log_every=log_every)
    losses = np.array(model.losses).reshape(-1, log_every)
    places = np.arange(10).reshape(-1, log_every) % 2 == 0
    due = [row[kept].mean() for row, kept in zip(losses, places) if kept.any()]
    assert history.curve("loss")[1] == pytest.approx(due)
    assert len(history.rows) == 10 / log_every and 3 < np.mean(due) < 4


@pytest.mark.parametrize("keys", [["input_ids"], ["input_ids", "attention_mask"]])
@pytest.mark.parametrize("make", [tiny, tiny_of_transformers, lambda: tiny_of_transformers().bert])
def test_a_model_that_returns_no_loss_is_refused_with_what_its_batches_lack(make, keys):
    def collate(examples):
        batch = collator()(examples)
        return {name: batch[name] for name in keys}

    with pytest.raises(ValueError, match=f"no loss for a batch of {', '.join(keys)}; .* labels"):
        go(model=make(), collate=collate)


# ---------------------------------------------------------------- other models and collators


def test_after_a_run_the_global_generators_stand_where_its_seed_left_them():
    drawn = []
    for before, seed in ((1, 0), (2, 0), (2, 5)):
        random.seed(before), np.random.seed(before), torch.manual_seed(before)
        go(steps=2, model=tiny_of_transformers(), seed=seed)
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert drawn[0] == drawn[1]
    assert all(one != other for one, other in zip(drawn[1], drawn[2]))


@pytest.mark.parametrize("kind", ["transformers", "stratified", "count"])
def test_other_models_and_collators_train_and_resume(tmp_path, kind):
    def run(out=None, **settings):
        if kind == "transformers":
            collate = DataCollatorForLanguageModeling(TOKENIZER.to_hf())
            data = [{"input_ids": row} for row in ROWS]
            return go(out, model=tiny_of_transformers(0.1), data=data, collate=collate, **settings)
        return go(out, collate=DiffusionCollator(TOKENIZER, draw=kind, seed=0), **settings)

    whole, history = run(steps=12, schedule="constant", warmup=2)
    assert history.rows[-1]["loss"] > 0
    run(tmp_path, steps=7, schedule="constant", warmup=2)
    assert_same(run(tmp_path, steps=12, schedule="constant", warmup=2, resume=True)[0], whole)


def test_the_logged_loss_of_weighted_rows_is_their_weighted_mean():
    collate = DiffusionCollator(TOKENIZER, draw="count", seed=0)
    _, history = go(collate=collate, model=tiny(dropout=0.0), steps=1, log_every=1)
    seen = Seen()
    go(collate=seen, steps=1)
    examples = [ROWS[number] for number in seen.batches[0]]
    batch = DiffusionCollator(TOKENIZER, draw="count", seed=0)(examples)
    logits = tiny(dropout=0.0)(batch["input_ids"], batch["attention_mask"])["logits"]
    nats = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    sums = nats.view(batch["labels"].shape).sum(1) * batch["weights"]
    words = sum(len(row) - 2 for row in examples)
    assert history.rows[0]["loss"] == pytest.approx(sums.sum().item() / words, rel=1e-5)


def test_a_model_that_would_forget_the_weights_is_refused():
    collate = DiffusionCollator(TOKENIZER, seed=0)
    with pytest.raises(ValueError, match="BertForMaskedLM does not name"):
        go(model=tiny_of_transformers(), collate=collate)
    assert go(model=from_hf(tiny_of_transformers()), collate=collate)[1].step == 10


def test_a_data_set_of_the_datasets_library_trains():
    from datasets import Dataset

    model, _ = go(data=Dataset.from_dict({"input_ids": ROWS}), group_by_length=True)
    assert_same(model, go(data=[{"input_ids": row} for row in ROWS], group_by_length=True)[0])


@pytest.mark.parametrize("kind", ["bert", "modern"])
@pytest.mark.parametrize("grouped", [False, True])
def test_packing_leaves_padding_out_and_trains_as_before(kind, grouped):
    settings = {"steps": 12, "log_every": 1, "group_by_length": grouped}
    losses = []
    for packing in (False, True):
        model = tiny(dropout=0.0) if kind == "bert" else tiny_modern()
        model.embedder.unpadded = False
        _, history = go(model=model, packing=packing, **settings)
        assert model.embedder.unpadded == packing
        losses.append(history.curve("loss")[1])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_packing_is_refused_by_a_model_that_cannot():
    with pytest.raises(ValueError, match="packing"):
        go(model=tiny_of_transformers(), packing=True)


# ---------------------------------------------------------------- a step in parts


def of_rates(examples):
    return DiffusionCollator(TOKENIZER, draw="independent", seed=len(examples))(examples)


IN_PARTS = {
    "ours": lambda: {},
    "batches of one row": lambda: {"data": ROWS[:9], "batch_size": 8},
    "weights": lambda: {"collate": of_rates},
    "transformers": lambda: {"model": tiny_of_transformers(), "collate": collator(rate=0.05)},
    "without labels": lambda: {"model": tiny_language_model(), "collate": padded},
    "sparse": lambda: {"model": tiny_language_model(True), "collate": padded},
    "packed": lambda: {"packing": True},
}


@pytest.mark.parametrize("number", [2, 3, 50])
@pytest.mark.parametrize("kind", IN_PARTS)
def test_a_step_in_parts_is_that_of_the_whole_batch(kind, number):
    found = []
    for parts in (1, number):
        settings = {"model": tiny(dropout=0.0), "steps": 7, "log_every": 1} | IN_PARTS[kind]()
        found.append(go(gradient_accumulation_steps=parts, **settings))
    (whole, rows), (model, others) = found
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, whole.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)
    for row, other in zip(timeless(rows.rows), timeless(others.rows), strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_a_part_holds_its_share_of_the_rows_and_no_more_parts_are_made_than_rows():
    model = Recorder()
    go(model=model, steps=6, gradient_accumulation_steps=3)  # the sixth batch has 6 of 46 rows
    assert [len(batch["input_ids"]) for batch in model.batches] == 5 * [3, 3, 2] + [2, 2, 2]
    model = Recorder()
    go(model=model, steps=2, data=ROWS[:9], gradient_accumulation_steps=20)
    assert [len(batch["input_ids"]) for batch in model.batches] == 9 * [1]


# ---------------------------------------------------------------- the head first


def moved(model, **settings):
    """Of each step, the names of the weights that it has moved."""
    seen, found = [weights(model)], []

    def look(model, step, row):
        seen.append(weights(model))
        found.append({n for n in seen[-1] if not torch.equal(seen[-1][n], seen[-2][n])})

    go(model=model, callbacks=[look], warmup=0, schedule="constant", **settings)
    return found


HEADS = {
    "ours": lambda: {"model": tiny()},
    "muon": lambda: {"model": tiny(), "optimizer": "muon"},
    "today's": lambda: {"model": tiny_modern()},
    "of transformers": lambda: {"model": from_hf(tiny_of_transformers(0.1))},
    "language model": lambda: {"model": tiny_language_model(), "collate": padded},
    "in parts": lambda: {"model": tiny(), "gradient_accumulation_steps": 3},
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_encoder_stays_to_the_bit_while_the_head_learns_and_moves_afterwards(kind):
    steps = moved(steps=6, head_steps=4, **HEADS[kind]())
    for names in steps[:4]:
        assert names and not any(name.startswith("embedder.") for name in names)
        assert not any("token_embedding" in name for name in names)  # a tied one is the encoder's
    for names in steps[4:]:
        assert any(name.startswith("embedder.") for name in names)
        assert any(name.startswith(("head.", "softmax", "contextualizer.")) for name in names)


def test_head_steps_are_those_of_an_encoder_that_is_frozen_by_hand():
    by_hand = tiny()
    by_hand.embedder.requires_grad_(False)
    settings = {"schedule": "constant", "warmup": 0, "steps": 5}
    assert_same(go(head_steps=9, **settings)[0], go(model=by_hand, **settings)[0])


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_a_run_resumed_among_the_heads_steps_goes_on_to_the_bit(tmp_path, stop):
    settings = {"schedule": "constant", "warmup": 0, "head_steps": 4}
    whole, _ = go(steps=8, **settings)
    go(tmp_path, steps=stop, **settings)
    assert_same(go(tmp_path, steps=8, resume=True, **settings)[0], whole)


@pytest.mark.parametrize("call", [2, 9])
def test_after_head_steps_weights_are_frozen_that_were_frozen_before_and_no_others(call):
    model = poisoned(call, "nan")["model"]
    model.embedder = model.inner.embedder  # of which it has the weights
    model.embedder.blocks[0].requires_grad_(False)
    before = [weight.requires_grad for weight in model.parameters()]
    with pytest.raises(TrainingStopped):
        go(model=model, head_steps=4)
    assert [weight.requires_grad for weight in model.parameters()] == before
    assert set(before) == {True, False}


def test_head_steps_of_a_model_that_has_no_such_parts_are_refused():
    with pytest.raises(ValueError, match=r"BertForMaskedLM has not; .* from_hf\(model\)"):
        go(model=tiny_of_transformers(), head_steps=1)
    model = tiny()
    model.head.requires_grad_(False)
    with pytest.raises(ValueError, match="no weight outside model.embedder"):
        go(model=model, head_steps=1)


# ---------------------------------------------------------------- an evaluation at the start


def test_an_evaluation_at_the_start_is_a_row_of_step_0_without_a_loss(tmp_path):
    before = HeldOut(ROWS[:9], collator(1))(tiny())["held_out_loss"]
    seen = []
    settings = {"evaluate": HeldOut(ROWS[:9], collator(1)), "evaluate_at_start": True}
    settings["callbacks"] = [lambda model, step, row: seen.append((step, row))]
    _, history = go(tmp_path, log_every=5, **settings)
    first = {"step": 0, "epoch": 0, "tokens": 0, "seconds": 0.0, "held_out_loss": before}
    assert history.rows[0] == log_of(tmp_path)[0] == first and seen[0] == (0, first)
    assert history.curve("held_out_loss")[0] == [0, 10] and history.curve("loss")[0] == [5, 10]
    _, plain = go(log_every=5)
    assert history.curve("loss") == plain.curve("loss")


@pytest.mark.parametrize("evaluate", [draws, HeldOut(ROWS[:9], collator(1))])
def test_an_evaluation_at_the_start_changes_no_weight_and_is_not_repeated(tmp_path, evaluate):
    settings = {"evaluate": evaluate, "evaluate_at_start": True, "schedule": "constant"}
    settings["warmup"] = 0
    go(tmp_path, steps=4, **settings)
    model, history = go(tmp_path, steps=8, resume=True, **settings)
    assert_same(model, go(steps=8, schedule="constant", warmup=0)[0])
    assert [row["step"] for row in history.rows] == [0, 4, 8]


def test_without_an_evaluation_there_is_nothing_to_do_at_the_start():
    assert [row["step"] for row in go(evaluate_at_start=True)[1].rows] == [10]


# ---------------------------------------------------------------- lines where there is no bar


@pytest.fixture
def often(monkeypatch):
    """As if a line came due at each step."""
    monkeypatch.setattr(log, "FIRST", 0.0)
    monkeypatch.setattr(log, "BETWEEN", 0.0)


def test_without_a_terminal_a_line_tells_step_loss_and_seconds_left(often, capsys):
    _, history = go(steps=12, log_every=5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 12
    form = r"step (\d+) of 12, loss (\d\.\d{3}), about (\d+) s left"
    found = [re.fullmatch(form, line).groups() for line in lines]
    assert [int(step) for step, _, _ in found] == list(range(1, 13))
    steps, losses = history.curve("loss")
    assert [found[step - 1][1] for step in steps] == [f"{loss:.3f}" for loss in losses]


@pytest.mark.parametrize("kind", ["progress=False", "progress=True", "terminal", "notebook"])
def test_where_a_bar_is_shown_or_none_is_wanted_or_in_a_notebook_there_is_no_line(
    often, capsys, monkeypatch, kind
):
    progress = {"progress=False": False, "progress=True": True}.get(kind)
    if kind == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    if kind == "notebook":
        monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    go(progress=progress)
    told = capsys.readouterr()
    assert "s left" not in told.err and told.out == ""
    assert bool(told.err) == (kind in ("progress=True", "terminal"))


@pytest.mark.parametrize(
    "steps, seconds, text",
    [
        (100, None, "step 30 of 100, loss 2.500, about 140 s left"),
        (None, 1000.0, "step 30, loss 2.500, about 940 s left"),
        (100, 100.0, "step 30 of 100, loss 2.500, about 40 s left"),
        (30, None, "step 30 of 30, loss 2.500, about 0 s left"),
    ],
)
def test_lines_come_soon_and_then_every_half_minute(monkeypatch, capsys, steps, seconds, text):
    now = [1000.0]
    monkeypatch.setattr(log.time, "perf_counter", lambda: now[0])
    history = History(rows=[{"step": 0, "x": 1.0}])
    progress = log.Progress(history, steps, seconds)
    told = []
    for step in range(1, 31):  # of two seconds
        now[0] += 2.0
        history.step, history.seconds, history.loss_sum = step, 2.0 * step, 2.5 * step
        progress.tell()
        told += [(2 * step, line) for line in capsys.readouterr().err.splitlines()]
    assert [at for at, _ in told] == [6, 36]
    now[0] += 6.0  # a minute and six seconds
    progress.tell()
    if steps != 30 and seconds is None:
        text = "step 30 of 100, loss 2.500, about 154 s left"  # the last step took longer
    assert capsys.readouterr().err.strip() == text


# ---------------------------------------------------------------- weights of 16 bits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rate", [1e-5, 1e-6, 1e-8])
def test_16_bit_weights_that_a_small_rate_cannot_move_are_told_with_the_remedy(dtype, rate):
    model = tiny().to(dtype)
    numbers = torch.cat([weight.flatten() for weight in model.parameters()])
    share = (numbers + rate == numbers).double().mean().item()
    with pytest.warns(UserWarning, match=r"train model\.float\(\)") as told:
        go(model=model, learning_rate=rate, steps=2)
    assert [f"{share:.0%} of their numbers" in str(one.message) for one in told] == [True]


@pytest.mark.filterwarnings("error")
def test_weights_that_move_are_not_warned_of():
    go(steps=2, learning_rate=1e-6)
    go(steps=2, learning_rate=1e-6, precision="bf16")
    go(steps=2, learning_rate=0.1, model=tiny().bfloat16())


# ---------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    train_together(one)
    run_script("training_together", two, processes=2)
    return one, two


def load(path):
    return torch.load(path, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TOGETHER if name != "clock"])
def test_two_processes_train_as_one(together, name):
    one, two = together
    alone = load(one / f"{name}-alone.pt")
    for weight, tensor in load(two / f"{name}-0.pt").items():
        torch.testing.assert_close(tensor, alone[weight], rtol=1e-5, atol=1e-5, msg=weight)
    rows = [timeless(log_of(folder / name)) for folder in together]
    assert [row["step"] for row in rows[0]] == list(range(name != "start", 10))
    assert len(rows[0]) == len(rows[1])
    for mine, theirs in zip(*rows):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_all_processes_hold_the_same_weights_and_go_on_to_the_bit(together):
    for name in (*TOGETHER, "dropout in 1"):
        assert_same(*(load(together[1] / f"{name}-{rank}.pt") for rank in (0, 1)))
    assert_same(*(load(together[1] / f"dropout in {runs}-0.pt") for runs in (1, 2)))
    assert checkpoints(together[1] / "dropout in 2") == ["step-00000003", "step-00000006"]


@pytest.mark.slow
def test_with_dropout_two_processes_share_masks_and_order_and_learn_as_much_as_one(together):
    one, two = (log_of(folder / "drops") for folder in together)
    for name in ("step", "epoch", "tokens"):
        assert [row[name] for row in one] == [row[name] for row in two]
    rates = [[row["learning_rate"] for row in rows[1:]] for rows in (one, two)]
    assert rates[0] == rates[1]
    assert [row["loss"] for row in one[1:]] != [row["loss"] for row in two[1:]]
    before, *after = one[0]["held_out_loss"], *(rows[-1]["held_out_loss"] for rows in (one, two))
    assert one[0]["held_out_loss"] == pytest.approx(two[0]["held_out_loss"], rel=1e-6)
    assert abs(after[0] - after[1]) < 0.02 < 0.1 < before - max(after)


@pytest.mark.slow
def test_all_processes_keep_checkpoints_by_one_clock_and_one_of_them_tells_how_far_it_is(together):
    one, two = together
    assert checkpoints(two / "by the clock") == [f"step-{step:08d}" for step in (10, 20, 25)]
    assert len(checkpoints(one / "by the clock")) == 25
    assert_same(*(load(two / f"by the clock-{rank}.pt") for rank in (0, 1)))
    lines = [(two / f"lines-{rank}.txt").read_text().splitlines() for rank in (0, 1)]
    assert [len(some) for some in lines] == [25, 0] and lines[0][9].startswith("step 10 of 25, ")


@pytest.mark.slow
def test_processes_whose_machines_differ_compute_in_one_precision(together):
    files = [together[0] / "precision-alone.txt"]
    files += [together[1] / f"precision-{rank}.txt" for rank in (0, 1)]
    assert [file.read_text() for file in files] == ["bf16", "bf16", "bf16"]


@pytest.mark.slow
def test_sparse_gradients_are_refused_by_all_processes_since_they_cannot_be_averaged(together):
    texts = [(together[1] / f"sparse-{rank}.txt").read_text() for rank in (0, 1)]
    assert texts[0] == texts[1] and "has sparse gradients" in texts[0]
    assert (together[0] / "sparse-alone.txt").read_text() == "trained"


# ---------------------------------------------------------------- held out


def test_held_out_is_the_mean_over_masked_tokens_and_the_same_each_time():
    model = tiny()
    model.embedder.eval()  # each part stays in its mode
    modes = [module.training for module in model.modules()]
    held = HeldOut([row for row in ROWS if len(row) < 12], collator(1), batch_size=5, name="mine")
    found = held(model)
    assert held(model) == found and [module.training for module in model.modules()] == modes
    total = count = 0
    model.eval()
    for batch in held.batches:
        logits = model(batch["input_ids"], batch["attention_mask"])["logits"].flatten(0, 1)
        total += F.cross_entropy(logits, batch["labels"].flatten(), reduction="sum").item()
        count += (batch["labels"] != -100).sum().item()
    assert held.count == count and found == {"mine": pytest.approx(total / count, rel=1e-5)}
    assert held(model) == found and not model.training


def test_held_out_with_a_batch_without_masks_works_with_a_model_of_transformers():
    held = HeldOut(ROWS[:12], collator(1), batch_size=1)
    assert any((batch["labels"] == -100).all() for batch in held.batches)
    found = held(tiny_of_transformers())["held_out_loss"]
    assert found == pytest.approx(np.log(len(VOCAB)), abs=0.5)


def test_without_labels_the_tokens_and_the_held_out_mean_are_those_of_the_real_tokens():
    held = HeldOut(ROWS[:5], padded, batch_size=2)
    run = {"model": tiny_language_model(), "collate": padded, "evaluate": held}
    model, history = go(steps=1, batch_size=len(ROWS), **run)
    assert history.tokens == sum(map(len, ROWS))
    sums = [(len(row) - 1) * model(torch.tensor([row]))["loss"].item() for row in ROWS[:5]]
    mean = sum(sums) / sum(len(row) - 1 for row in ROWS[:5])
    assert history.rows[-1]["held_out_loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("examples", [[], [[2, 3]]])
def test_held_out_without_a_masked_token_is_an_error(examples):
    with pytest.raises(ValueError, match=f"{len(examples)} held-out examples"):
        HeldOut(examples, collator())


# ---------------------------------------------------------------- predictions shown


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.to_hf()], ids=["ours", "transformers"])
def test_show_predictions_prints_words_for_each_blank_and_changes_nothing(tokenizer, capsys):
    show = ShowPredictions(tokenizer, ["a [MASK] c [MASK]", "[MASK]"], every=4, top_k=2)
    model, _ = go(steps=9, callbacks=[show])
    lines = [line for line in capsys.readouterr().out.splitlines() if "->" in line]
    assert [line.split()[1] for line in lines] == ["4", "4", "8", "8"]
    first, second = lines[0].split("->")[1].split("|"), lines[1].split("->")[1].split("|")
    assert [len(blank.split()) for blank in (*first, *second)] == [2, 2, 2]
    assert "a [MASK] c [MASK]" in lines[0] and model.training
    assert_same(model, go(steps=9)[0])


def test_show_predictions_prints_the_likeliest_and_no_more_words_than_there_are(capsys):
    model = tiny()
    with torch.no_grad():
        model.head.bias[VOCAB.index("q")] = 100
    ShowPredictions(TOKENIZER, ["a [MASK] c"], every=1, top_k=1)(model, 5, None)
    assert capsys.readouterr().out.strip() == "step      5  a [MASK] c  ->  q"
    ShowPredictions(TOKENIZER, ["[MASK]"], every=1, top_k=99)(tiny(), 1, None)
    assert len(capsys.readouterr().out.split("->")[1].split()) == len(VOCAB)


def test_show_predictions_refuses_a_sentence_without_a_blank_and_to_show_nothing():
    with pytest.raises(ValueError, match="'a b' has no"):
        ShowPredictions(TOKENIZER, ["a [MASK]", "a b"])
    for name in ("every", "top_k"):
        with pytest.raises(ValueError, match=f"{name}=0"):
            ShowPredictions(TOKENIZER, ["[MASK]"], **{name: 0})
