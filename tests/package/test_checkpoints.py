"""Checkpoints: what is stopped goes on to the bit, and as no other run."""

import errno
import json
import os
import pickle
import re
import shutil
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn
from scripts.killed_training import KILLS, SCENARIOS, STEPS
from training_toys import (
    ROWS,
    TOKENIZER,
    Renewed,
    assert_same,
    assert_says,
    checkpoints,
    collator,
    contents,
    draws,
    go,
    log_of,
    run_script,
    timeless,
    tiny,
    tiny_of_transformers,
    weights,
)

from mlm_lib.engine.checkpoints import Checkpoints, fingerprint
from mlm_lib.modern import ModernConfig, ModernEncoder
from mlm_lib.wordpiece import WordPieceTokenizer

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------- resume: killed again and again


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    return root, json.loads(run_script("killed_training", root))


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_killed_ten_times_ends_as_one_that_was_not(survived, name):
    root, outcomes = survived
    assert outcomes[name]["kills"] == KILLS
    assert 0 < outcomes[name]["steps before the last run"] < STEPS
    whole, killed = root / name / "whole", root / name / "killed"
    last = [folder / "checkpoints" / f"step-{STEPS:08d}" for folder in (whole, killed)]
    assert len({(path / "model.safetensors").read_bytes() for path in last}) == 1
    one, other = (torch.load(path / "state.pt", weights_only=True) for path in last)
    for index, moments in one["optimizer"]["state"].items():
        assert_same(moments, other["optimizer"]["state"][index])
    assert torch.equal(one["random"][0]["torch"], other["random"][0]["torch"])
    # Each step is logged once, the last checkpoints are kept, and nothing else is left behind.
    rows = log_of(killed)
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert timeless(rows) == timeless(log_of(whole))
    assert checkpoints(killed) == checkpoints(whole) == ["step-00000147", "step-00000150"]
    names = {path.name for path in killed.iterdir()}
    old = {name for name in names if re.fullmatch(r"log\.\d+\.jsonl", name)}  # killed early
    assert names - old == {".lock", "checkpoints", "log.jsonl"}


# ---------------------------------------------------------------- resume: in one process


@pytest.mark.parametrize(
    "settings", [{}, {"group_by_length": True}, {"evaluate": draws, "evaluate_every": 3}]
)
@pytest.mark.parametrize("stop", [3, 6, 7, 12])  # an epoch has 6 batches
def test_a_resumed_run_goes_on_to_the_bit(tmp_path, settings, stop):
    settings = {"schedule": "constant", "warmup": 2, "log_every": 4} | settings
    whole, history = go(steps=15, **settings)
    go(tmp_path, steps=stop, **settings | {"evaluate_every": 100})
    resumed, later = go(tmp_path, steps=15, resume=True, **settings)
    assert_same(whole, resumed)
    assert (history.step, history.tokens) == (later.step, later.tokens)
    assert later.seconds > 0 and log_of(tmp_path) == later.rows


@pytest.mark.parametrize("resume", [False, True])
def test_a_log_that_no_checkpoint_belongs_to_is_kept_and_the_run_begins_anew(tmp_path, resume):
    for number in (1, 2, 3):
        (tmp_path / "log.jsonl").write_text(f"of the {number}. run")
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        told = rf"no checkpoint, so the run begins anew; the old log is now log.{number}.jsonl"
        with pytest.warns(UserWarning, match=told):
            model, history = go(tmp_path, resume=resume)
        assert_same(model, go()[0])
        assert log_of(tmp_path) == history.rows
    old = [(tmp_path / f"log.{number}.jsonl").read_text() for number in (1, 2, 3)]
    assert old == ["of the 1. run", "of the 2. run", "of the 3. run"]


def test_half_a_line_at_the_end_of_the_log_is_gone_after_resuming(tmp_path):
    """The log is not flushed to the disk, so a power cut may leave half a line."""
    go(tmp_path, steps=5, schedule="constant")
    with open(tmp_path / "log.jsonl", "a") as log:
        log.write('{"step": 6, "epo')
    _, history = go(tmp_path, steps=7, schedule="constant", resume=True)
    assert log_of(tmp_path) == history.rows


@pytest.mark.filterwarnings("error")
def test_where_no_row_would_be_lost_nothing_is_said_and_no_log_is_kept(tmp_path):
    (tmp_path / "log.jsonl").touch()  # of a run that was ended before its first row
    go(tmp_path, steps=5, schedule="constant", resume=True)
    go(tmp_path, steps=7, schedule="constant", resume=True)
    assert [row["step"] for row in log_of(tmp_path)] == [5, 7]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".lock", "checkpoints", "log.jsonl"]


def test_a_finished_run_that_is_resumed_changes_nothing_and_with_more_steps_goes_on(tmp_path):
    model, history = go(tmp_path)
    before = contents(tmp_path)
    again, later = go(tmp_path, model=tiny(seed=1), resume=True)
    assert_same(model, again)
    assert contents(tmp_path) == before and later.rows == history.rows and later.step == 10
    seen = [lambda model, step, row: steps.append(step)]
    steps = []
    go(tmp_path, steps=13, resume=True, callbacks=seen)
    assert steps == [11, 12, 13] and [row["step"] for row in log_of(tmp_path)] == [10, 13]


def test_a_run_whose_dropout_of_attention_is_said_otherwise_goes_on(tmp_path):
    settings = {"schedule": "constant", "warmup": 2}
    go(tmp_path, model=tiny(attention_dropout=0.1), steps=6, **settings)
    resumed, _ = go(tmp_path, steps=12, resume=True, **settings)
    assert_same(go(steps=12, **settings)[0], resumed)
    with pytest.raises(ValueError, match="dropout=0.2"):
        go(tmp_path, model=tiny(attention_dropout=0.2), steps=15, resume=True, **settings)


def test_a_run_is_lengthened_from_the_stable_part_of_its_schedule(tmp_path):
    def run(out=None, **settings):
        return go(out, schedule="wsd", warmup=2, log_every=1, **settings)

    _, short = run(tmp_path, steps=10, checkpoint_every=5)
    _, last = sorted((tmp_path / "checkpoints").glob("step-*"))  # where the rate has fallen
    shutil.rmtree(last)
    whole, history = run(steps=20)
    assert_same(run(tmp_path, steps=20, resume=True)[0], whole)
    rates = [[row["learning_rate"] for row in one.rows] for one in (short, history)]
    assert rates[0][:8] == rates[1][:8] and rates[0][9] < rates[1][9]


JUMPS = {  # steps of a run, of its continuation, settings, and what is told
    "linear": (10, 30, {}, ["from 5e-05 at step 10 to 0.00033 at the next", "schedule='wsd'"]),
    "cosine": (10, 20, {"schedule": "cosine"}, ["from 1.2e-05", "to 0.00025", "schedule='wsd'"]),
    "shorter": (10, 6, {"stop": 4}, ["from 0.00035 at step 4 to 0.00017", "schedule='wsd'"]),
    "of a fallen rate": (10, 20, {"schedule": "wsd"}, ["to 0.0005", "checkpoint before the fall"]),
}


def in_two(out, first, second, stop=None, **settings):
    """A run of so many steps, stopped after some of them, and what its continuation is told."""
    settings = {"warmup": 0, "checkpoint_every": 1, "keep": 99} | settings
    go(out, steps=first, **settings)
    for path in (out / "checkpoints").iterdir():
        if stop and int(path.name[5:]) > stop:
            shutil.rmtree(path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        go(out, steps=second, resume=True, **settings)
    return [str(one.message) for one in told]


@pytest.mark.parametrize("first, second, settings, words", JUMPS.values(), ids=JUMPS)
def test_a_learning_rate_that_jumps_on_resuming_is_told(tmp_path, first, second, settings, words):
    (told,) = in_two(tmp_path, first, second, **settings)
    assert_says(told, words)


SMOOTH = {
    "wsd before its fall": (10, 30, {"schedule": "wsd", "stop": 7}),
    "constant": (10, 30, {"schedule": "constant"}),
    "the same budget": (10, 10, {"stop": 5}),
    "in the warm-up": (10, 10, {"warmup": 6, "stop": 3}),
    "a step more": (100, 101, {"stop": 60}),
    "finished": (10, 10, {}),
}


@pytest.mark.parametrize("first, second, settings", SMOOTH.values(), ids=SMOOTH)
def test_a_learning_rate_that_goes_on_as_planned_is_not_told(tmp_path, first, second, settings):
    assert in_two(tmp_path, first, second, **settings) == []


def test_a_jump_is_told_where_the_clock_is_the_budget(tmp_path):
    go(tmp_path, steps=None, seconds=0.2)
    jumps = pytest.warns(UserWarning, match="learning rate jumps from")
    with pytest.raises(KeyboardInterrupt), jumps:
        go(tmp_path, steps=None, seconds=2.0, resume=True, callbacks=[stop])


def stop(model, step, row):
    raise KeyboardInterrupt


ADDED = ["gradient_accumulation_steps", "head_steps"]


def test_a_checkpoint_that_was_written_before_there_were_these_settings_goes_on(tmp_path):
    settings = {"schedule": "constant", "warmup": 0}
    go(tmp_path, steps=5, **settings)
    file = tmp_path / "checkpoints" / "step-00000005" / "state.pt"
    state = torch.load(file, weights_only=True)
    for name in ADDED:
        del state["run"][name]
    for name in ("precision", "budget", "rate", "idle"):
        del state["history"][name]
    torch.save(state, file)
    for name, value in {"gradient_accumulation_steps": 2, "head_steps": 3}.items():
        with pytest.raises(ValueError, match=f"with {name}=[01], now it is {value}"):
            go(tmp_path, steps=8, resume=True, **settings, **{name: value})
    assert_same(go(tmp_path, steps=8, resume=True, **settings)[0], go(steps=8, **settings)[0])


# ---------------------------------------------------------------- checkpoints by the clock


class Clock:
    """A clock that goes on by so many seconds after each step."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds = 1e6, seconds
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def __call__(self, model, step, row):
        self.now += self.seconds


@pytest.mark.parametrize(
    "seconds, settings, steps",
    [
        # The clock is read before each step's own seconds are added to it.
        (100.0, {}, [2, 5, 9, 10]),
        (301.0, {}, [2, 4, 6, 8, 10]),
        (29.0, {}, [3, 7, 10]),
        (1.0, {}, [10]),
        (100.0, {"checkpoint_seconds": None}, [10]),
        (100.0, {"checkpoint_seconds": 450.0}, [2, 5, 10]),
        (4.0, {"checkpoint_seconds": 10.0}, [4, 8, 10]),
        (100.0, {"checkpoint_every": 6}, [2, 5, 6, 10]),
        (100.0, {"keep": 2}, [9, 10]),
    ],
)
def test_a_checkpoint_is_kept_by_the_clock(tmp_path, monkeypatch, seconds, settings, steps):
    whole, _ = go()
    clock = Clock(monkeypatch, seconds)
    model, _ = go(tmp_path, callbacks=[clock], **{"keep": 99} | settings)
    assert checkpoints(tmp_path) == [f"step-{step:08d}" for step in steps]
    assert_same(model, whole)


@pytest.mark.parametrize("end", [3, 7, 8])
def test_ctrl_c_loses_the_steps_since_the_last_checkpoint_by_the_clock(tmp_path, end):
    def press(model, step, row):
        if step == end:
            raise KeyboardInterrupt

    kept = Checkpoints(tmp_path / "checkpoints")
    assert kept.last_step() is None
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, checkpoint_seconds=1e-9, callbacks=[press])
    assert kept.last_step() == end - 1
    assert_same(go(tmp_path, resume=True)[0], go()[0])


def test_without_resume_checkpoints_are_not_overwritten(tmp_path):
    go(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(FileExistsError) as caught:
        go(tmp_path)
    assert_says(caught.value, [str(tmp_path), "resume=True"])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("keep", [1, 3])
def test_no_more_checkpoints_are_kept_than_asked_and_one_at_the_end(tmp_path, keep):
    go(tmp_path, checkpoint_every=4, keep=keep)
    assert checkpoints(tmp_path) == [f"step-{step:08d}" for step in (4, 8, 10)[-keep:]]


def test_without_out_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    go(checkpoint_every=2)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- damaged checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of ten steps with two checkpoints, and its weights."""
    out = tmp_path_factory.mktemp("trained") / "out"
    model, _ = go(out, checkpoint_every=5)
    return out, weights(model)


@pytest.fixture
def out(trained, tmp_path):
    return Path(shutil.copytree(trained[0], tmp_path / "out"))


class Evil:
    """A pickle that would write a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def torn(path):
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES = {
    "torn": torn,
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "something else": lambda path: path.write_bytes(b"hello"),
    "a list": lambda path: torch.save([1], path),
    "code": lambda path: path.write_bytes(pickle.dumps(Evil(path.parents[3] / "ran"))),
    "of an earlier version": lambda path: torch.save({"fingerprint": {}, "step": 10}, path),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", ["model.safetensors", "state.pt"])
def test_a_damaged_checkpoint_is_refused_with_the_name_of_the_one_before(
    out, trained, tmp_path, name, damage
):
    last, before = (out / "checkpoints" / f"step-{step:08d}" for step in (10, 5))
    damage(last / name)
    files = contents(out)
    with pytest.raises(ValueError) as caught:
        go(out, resume=True)
    assert_says(caught.value, [str(last), "damaged", f"delete it to go on from {before}"])
    assert contents(out) == files and not (tmp_path / "ran").exists()
    shutil.rmtree(last)
    assert_same(go(out, resume=True)[0], trained[1])


@pytest.mark.parametrize("error", [MemoryError, ImportError, PermissionError])
def test_what_is_no_fault_of_the_checkpoint_is_not_called_damage(out, monkeypatch, error):
    def fail(*args, **options):
        raise error("not its fault")

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(error, match="not its fault"):
        go(out, resume=True)


def test_if_the_only_checkpoint_is_damaged_the_run_can_start_anew(out):
    shutil.rmtree(out / "checkpoints" / "step-00000005")
    torn(out / "checkpoints" / "step-00000010" / "state.pt")
    with pytest.raises(ValueError, match="delete it to go on from the start"):
        go(out, resume=True)


def test_weights_of_another_model_in_a_checkpoint_are_refused(out, tmp_path):
    go(tmp_path / "other", model=tiny_of_transformers())
    theirs, ours = (
        folder / "checkpoints" / "step-00000010" / "model.safetensors"
        for folder in (tmp_path / "other", out)
    )
    shutil.copy(theirs, ours)
    with pytest.raises(KeyError, match="embedder"):
        go(out, resume=True)


def test_a_half_written_checkpoint_is_ignored(out, trained):
    (out / "checkpoints" / "step-00000010").rename(out / "checkpoints" / ".unfinished")
    for name in ("step-abc", "step-00000099.old"):
        (out / "checkpoints" / name).mkdir()
    assert Checkpoints(out / "checkpoints").last().name == "step-00000005"
    assert_same(go(out, resume=True)[0], trained[1])
    assert checkpoints(out) == ["step-00000005", "step-00000010", "step-00000099.old", "step-abc"]


# ---------------------------------------------------------------- a disk that refuses


@posix
@pytest.mark.slow
def test_a_full_disk_is_an_os_error_and_the_checkpoint_before_can_be_resumed(tmp_path):
    outcomes = json.loads(run_script("training_on_a_full_disk", tmp_path))
    assert set(outcomes) == {"weights", "state"}
    for name, (kind, message, number, left, same) in outcomes.items():
        assert kind == "OSError" and number == errno.EFBIG, message
        assert left == ["step-00000005"] and same


@pytest.mark.parametrize("function", ["mkdir", "replace"])
def test_a_checkpoint_that_cannot_be_written_leaves_those_before_it(
    tmp_path, monkeypatch, function
):
    def refuse(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    def break_it(model, step, row):
        if step == 6:
            monkeypatch.setattr(os, function, refuse)

    with pytest.raises(OSError, match="No space left"):
        go(tmp_path, checkpoint_every=5, callbacks=[break_it])
    monkeypatch.undo()
    assert checkpoints(tmp_path) == ["step-00000005"]
    assert_same(go(tmp_path, resume=True)[0], go()[0])


@posix
def test_a_folder_that_another_program_writes_to_is_refused(tmp_path):
    import fcntl

    with open(tmp_path / ".lock", "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another program writes to"):
            go(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert go(tmp_path)[1].step == 10  # freed with its holder
    assert go(tmp_path, steps=11, resume=True)[1].step == 11


# ---------------------------------------------------------------- no other run


def modern(**sizes):
    """As `tiny`, but its `max_length` is in no weight's shape."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 24} | sizes
    encoder = ModernEncoder(ModernConfig(31, **sizes))
    return type(tiny())(encoder, tiny().head)


def frozen():
    model = tiny_of_transformers()
    model.bert.embeddings.requires_grad_(False)
    return model


PIECES = WordPieceTokenizer(TOKENIZER.vocab | {"##a": 31})
CHANGED = [*ROWS[:30], [2, 30, *ROWS[30][2:]], *ROWS[31:]]  # one token is another
HF = {"model": tiny_of_transformers()}
CHANGES = {
    "seed": ({}, {"seed": 3}, ["seed=0", "3"]),
    "batch_size": ({}, {"batch_size": 4}, ["batch_size=8", "4"]),
    "learning_rate": ({}, {"learning_rate": 0.25}, ["learning_rate=0.0005", "0.25"]),
    "schedule": ({}, {"schedule": "cosine"}, ["schedule='linear'", "'cosine'"]),
    "betas": ({}, {"betas": (0.5, 0.75)}, ["betas=[0.9, 0.999]", "[0.5, 0.75]"]),
    "precision": ({}, {"precision": "bf16"}, ["precision='fp32'", "'bf16'"]),
    "group_by_length": ({}, {"group_by_length": True}, ["group_by_length=False", "True"]),
    "parts": ({}, {"gradient_accumulation_steps": 2}, ["gradient_accumulation_steps=1", "2"]),
    "head first": ({"head_steps": 2}, {"head_steps": 4}, ["head_steps=2", "4"]),
    "number of examples": ({}, {"data": ROWS[:40]}, ["46", "40"]),
    "one token of the data": ({}, {"data": CHANGED}, ["data.content="]),
    "rate": ({}, {"collate": collator(rate=0.25)}, ["collator.rate=0.15", "0.25"]),
    "seed of the masks": ({}, {"collate": collator(5)}, ["collator.seed=0", "5"]),
    "width": ({}, {"model": tiny(hidden_size=8)}, ["16", "8"]),
    "layers": ({}, {"model": tiny(num_layers=2)}, ["num_layers=1", "2"]),
    "dropout": ({}, {"model": tiny(0.25)}, ["dropout=0.1", "0.25"]),
    "longest row": ({"model": modern()}, {"model": modern(max_length=6)}, ["max_length", "6"]),
    "activation": (HF, {"model": tiny_of_transformers(hidden_act="relu")}, ["gelu", "relu"]),
    "heads": (HF, {"model": tiny_of_transformers(num_attention_heads=4)}, ["heads=2", "4"]),
    "frozen weights": (HF, {"model": frozen()}, ["frozen=''", "bert.embeddings.word"]),
}  # fmt: skip


@pytest.mark.parametrize("first, change, words", CHANGES.values(), ids=CHANGES)
def test_a_run_resumed_as_another_is_an_error_with_both_values(tmp_path, first, change, words):
    go(tmp_path, steps=3, **first)
    before = contents(tmp_path)
    with pytest.raises(ValueError) as caught:
        go(tmp_path, **{"steps": 5, "resume": True} | first | change)
    assert_says(caught.value, [str(tmp_path), *words])
    assert contents(tmp_path) == before
    assert go(tmp_path, steps=5, resume=True, **first)[1].step == 5


FREE = {"log_every": 3, "checkpoint_every": 2, "keep": 1, "evaluate_every": 4, "progress": False}
FREE |= {"checkpoint_seconds": 1e-9, "evaluate_at_start": True}


@pytest.mark.parametrize("name", FREE)
def test_what_does_not_touch_the_weights_may_change(tmp_path, name):
    go(tmp_path, steps=10, checkpoint_every=5)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000010")
    assert_same(go(tmp_path, resume=True, **{name: FREE[name]})[0], go()[0])


def of(dataset=ROWS, model=None, collate=None):
    return fingerprint(model or nn.Linear(2, 2), dataset, collate, {})


def test_data_are_known_by_their_own_fingerprint_or_by_a_sample():
    assert of(Renewed())["data.name"] == "renewed"
    as_arrays = [np.array(row) for row in ROWS]
    assert of(ROWS) == of(as_arrays) == of([torch.tensor(row) for row in ROWS]) != of(ROWS[::-1])
    assert of([{"input_ids": row} for row in ROWS]) != of(ROWS)

    class Counted(list):
        read = 0

        def __getitem__(self, index):
            Counted.read += 1
            return super().__getitem__(index)

    of(Counted([[number] for number in range(12345)]))
    assert 900 < Counted.read <= 1000


def test_a_fingerprint_is_plain_and_says_nothing_of_places_in_memory():
    class Layer(nn.Module):
        def extra_repr(self):
            return f"function={self.apply.__func__}, object={object()!r}"

    class Odd:
        def fingerprint(self):
            return {"ids": np.arange(3), "rate": np.float32(0.5), 7: (1,), "of": torch.relu}

    mine, again = of(model=Layer(), collate=Odd()), of(model=Layer(), collate=Odd())
    assert mine == again and "0x" not in json.dumps(mine)
    assert mine["collator.ids"] == [0, 1, 2] and mine["collator.7"] == [1]
