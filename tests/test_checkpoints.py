"""Checkpoints: what is stopped goes on to the bit, and what is damaged is found."""

import errno
import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from scripts.killed_training import KILLS, SCENARIOS, STEPS
from training_toys import (
    ROWS,
    assert_same,
    assert_says,
    checkpoints,
    contents,
    draws,
    go,
    log_of,
    run_script,
    timeless,
    tiny,
    weights,
)

from mlm_lib.engine.checkpoints import Checkpoints, restore
from mlm_lib.engine.log import History

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------- resume: killed again and again

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    return root, json.loads(run_script("killed_training", root))


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_killed_ten_times_ends_with_the_weights_of_one_that_was_not(survived, name):
    root, outcomes = survived
    whole, killed = root / name / "whole", root / name / "killed"
    assert (
        outcomes[name]["kills"] == KILLS and 0 < outcomes[name]["steps before the last run"] < STEPS
    )
    last = [folder / "checkpoints" / f"step-{STEPS:08d}" for folder in (whole, killed)]
    assert len({(path / "model.safetensors").read_bytes() for path in last}) == 1
    one, other = (torch.load(path / "state.pt", weights_only=True) for path in last)
    for index, moments in one["optimizer"]["state"].items():
        assert_same(moments, other["optimizer"]["state"][index])
    assert torch.equal(one["random"][0]["torch"], other["random"][0]["torch"])


@posix
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_killed_ten_times_logs_each_step_once_and_keeps_the_last_checkpoints(survived, name):
    whole, killed = survived[0] / name / "whole", survived[0] / name / "killed"
    rows = log_of(killed)
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert timeless(rows) == timeless(log_of(whole))
    assert checkpoints(killed) == checkpoints(whole) == ["step-00000147", "step-00000150"]
    assert sorted(path.name for path in killed.iterdir()) == [".lock", "checkpoints", "log.jsonl"]


# ---------------------------------------------------------------- resume: in one process


@pytest.mark.parametrize(
    "settings",
    [{}, {"group_by_length": True}, {"log_every": 4}, {"evaluate": draws, "evaluate_every": 3}],
)
@pytest.mark.parametrize(
    "stop", [3, 6, 7, 12]
)  # an epoch has 6 batches: in its middle, at its end, after it
def test_a_resumed_run_goes_on_to_the_bit(tmp_path, settings, stop):
    whole, history = go(steps=15, schedule="constant", warmup=2, **settings)
    go(
        tmp_path,
        steps=stop,
        schedule="constant",
        warmup=2,
        **{**settings, "evaluate_every": 100, "log_every": 4},
    )
    settings.setdefault("log_every", 4)
    resumed, later = go(tmp_path, steps=15, schedule="constant", warmup=2, resume=True, **settings)
    assert_same(whole, resumed)
    assert (history.step, history.tokens) == (later.step, later.tokens)
    assert later.seconds > 0 and log_of(tmp_path) == later.rows


def test_a_stream_of_datasets_goes_on_to_the_bit(tmp_path):
    from datasets import Dataset

    def stream():
        rows = Dataset.from_dict({"input_ids": ROWS}).to_iterable_dataset(num_shards=2)
        return rows.shuffle(seed=3, buffer_size=7)

    whole, history = go(data=stream(), steps=15, log_every=1)
    go(tmp_path, data=stream(), steps=15, log_every=1, checkpoint_every=8)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000015")
    resumed, later = go(tmp_path, data=stream(), steps=15, log_every=1, resume=True)
    assert_same(whole, resumed)
    assert timeless(later.rows) == timeless(history.rows)


def test_with_resume_and_no_checkpoint_the_run_starts_from_the_start(tmp_path):
    (tmp_path / "log.jsonl").write_text("torn")
    model, history = go(tmp_path, resume=True)
    assert_same(model, go()[0])
    assert log_of(tmp_path) == history.rows


def test_a_finished_run_that_is_resumed_changes_nothing(tmp_path):
    model, history = go(tmp_path)
    before = contents(tmp_path)
    again, later = go(tmp_path, model=tiny(seed=1), resume=True)
    assert_same(model, again)
    assert contents(tmp_path) == before and later.rows == history.rows and later.step == 10


def test_a_resumed_run_with_more_steps_goes_on(tmp_path):
    go(tmp_path)
    seen = []
    _, history = go(
        tmp_path, steps=13, resume=True, callbacks=[lambda model, step, row: seen.append(step)]
    )
    assert (
        seen == [11, 12, 13]
        and history.step == 13
        and [row["step"] for row in log_of(tmp_path)] == [10, 13]
    )


def test_without_resume_checkpoints_are_not_overwritten(tmp_path):
    go(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(FileExistsError) as caught:
        go(tmp_path)
    assert_says(caught.value, [str(tmp_path), "resume=True"])
    assert contents(tmp_path) == before


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


def flipped(name):
    def damage(folder):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


def torn(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-9])


def missing(name):
    return lambda folder: (folder / name).unlink()


def written(name, content):
    content = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(content)


def of_another_step(folder):
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("step-00000005"), folder)


def emptied(folder):
    for path in folder.iterdir():
        path.unlink()


def names_no_files(folder):
    (folder / "manifest.json").write_text(json.dumps({"step": 10, "sha256": {}}))
    flipped("model.safetensors")(folder)


def names_one_file(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]["state.pt"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    missing("state.pt")(folder)


DAMAGES = {
    "torn weights": (torn("model.safetensors"), "model.safetensors is not what was written"),
    "torn state": (torn("state.pt"), "state.pt is not what was written"),
    "torn manifest": (torn("manifest.json"), "manifest.json cannot be read"),
    "flipped weights": (flipped("model.safetensors"), "model.safetensors is not what was written"),
    "flipped state": (flipped("state.pt"), "state.pt is not what was written"),
    "no weights": (missing("model.safetensors"), "model.safetensors is missing"),
    "no state": (missing("state.pt"), "state.pt is missing"),
    "no manifest": (missing("manifest.json"), "manifest.json is missing"),
    "no files": (emptied, "manifest.json is missing"),
    "empty manifest": (written("manifest.json", ""), "manifest.json cannot be read"),
    "manifest {}": (written("manifest.json", "{}"), "manifest.json cannot be read"),
    "manifest []": (written("manifest.json", "[]"), "manifest.json cannot be read"),
    "manifest null": (written("manifest.json", "null"), "manifest.json cannot be read"),
    "manifest in binary": (written("manifest.json", b"\xff\xfe\0"), "manifest.json cannot be read"),
    "manifest without files": (names_no_files, "manifest.json"),
    "manifest without the state": (names_one_file, "manifest.json"),
    "manifest of another step": (of_another_step, "step 5"),
}  # fmt: skip


@pytest.mark.parametrize("damage, why", DAMAGES.values(), ids=DAMAGES)
def test_of_a_damaged_checkpoint_the_one_before_is_used_with_a_warning(out, trained, damage, why):
    folder = out / "checkpoints" / "step-00000010"
    damage(folder)
    with pytest.warns(UserWarning) as caught:
        model, history = go(out, resume=True)
    (warning,) = caught
    assert_says(warning.message, [str(folder), why, "the one before it is used"])
    assert_same(model, trained[1])
    assert [row["step"] for row in log_of(out)] == [10] and history.step == 10
    assert checkpoints(out) == ["step-00000005", "step-00000010"]
    assert not Checkpoints(out / "checkpoints").damage(10)  # it was written anew


def test_if_all_checkpoints_are_damaged_there_is_an_error(out):
    for folder in (out / "checkpoints").iterdir():
        torn("model.safetensors")(folder)
    before = contents(out)
    with pytest.warns(UserWarning), pytest.raises(ValueError) as caught:
        go(out, resume=True)
    assert_says(caught.value, [str(out / "checkpoints"), "no checkpoint"])
    assert contents(out) == before


def test_a_half_written_checkpoint_is_ignored(out, trained):
    (out / "checkpoints" / "step-00000010").rename(out / "checkpoints" / ".step-00000010")
    (out / "checkpoints" / ".step-00000010" / "manifest.json").unlink()
    for name in (".step-00000012", "step-abc", "step-00000099.old"):
        (out / "checkpoints" / name).mkdir()
    assert Checkpoints(out / "checkpoints").last().name == "step-00000005"
    model, _ = go(out, resume=True)
    assert_same(model, trained[1])
    assert Checkpoints(out / "checkpoints").steps() == [5, 10]


def test_a_manifest_holds_the_sha_256_of_every_other_file(out):
    for folder in (out / "checkpoints").iterdir():
        manifest = json.loads((folder / "manifest.json").read_text())
        files = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.iterdir()
            if path.suffix != ".json"
        }
        assert manifest == {"step": int(folder.name[5:]), "sha256": files} and len(files) == 2


@pytest.mark.parametrize("keep", [1, 3])
def test_no_more_checkpoints_are_kept_than_asked(tmp_path, keep):
    go(tmp_path, checkpoint_every=2, keep=keep)
    assert checkpoints(tmp_path) == [f"step-{step:08d}" for step in (2, 4, 6, 8, 10)[-keep:]]


def test_without_checkpoint_every_there_is_one_at_the_end(tmp_path):
    go(tmp_path, steps=7)
    assert checkpoints(tmp_path) == ["step-00000007"]


def test_without_out_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    go(checkpoint_every=2)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- a disk that refuses


@posix
@pytest.mark.slow
def test_a_full_disk_is_an_os_error_and_the_checkpoint_before_can_be_resumed(tmp_path):
    outcomes = json.loads(run_script("training_on_a_full_disk", tmp_path))
    assert set(outcomes) == {"weights", "state"}
    for name, (kind, message, number, left, same) in outcomes.items():
        assert kind == "OSError" and number == errno.EFBIG, message
        assert_says(
            message,
            [
                "step 10 could not be written",
                str(tmp_path / name / "checkpoints" / "step-00000005"),
            ],
        )
        assert left == ["step-00000005"] and same


@pytest.mark.parametrize("function", ["mkdir", "fsync", "replace"])
def test_a_checkpoint_that_cannot_be_written_is_an_os_error_that_names_the_last_one(
    tmp_path, monkeypatch, function
):
    whole, _ = go()
    before = {}

    def refuse(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    def break_it(model, step, row):
        if step == 6:
            before.update(contents(tmp_path / "checkpoints"))
            monkeypatch.setattr(os, function, refuse)

    with pytest.raises(OSError) as caught:
        go(tmp_path, checkpoint_every=5, callbacks=[break_it])
    monkeypatch.undo()
    assert caught.value.errno == errno.ENOSPC
    assert_says(
        caught.value, ["step 10", "No space left", str(tmp_path / "checkpoints" / "step-00000005")]
    )
    assert contents(tmp_path / "checkpoints") == before and checkpoints(tmp_path) == [
        "step-00000005"
    ]
    assert_same(go(tmp_path, resume=True)[0], whole)


# ---------------------------------------------------------------- files of others


class Evil:
    """A pickle that would write a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("content", ["a pickle that runs code", "no pickle", "a list"])
def test_a_state_that_was_not_written_here_is_refused_in_one_sentence(out, tmp_path, content):
    folder = out / "checkpoints" / "step-00000010"
    if content == "a list":
        torch.save([1], folder / "state.pt")
    else:
        evil = pickle.dumps(Evil(tmp_path / "ran"))
        (folder / "state.pt").write_bytes(evil if "code" in content else b"hello")
    manifest = json.loads((folder / "manifest.json").read_text())
    state = (folder / "state.pt").read_bytes()
    manifest["sha256"]["state.pt"] = hashlib.sha256(state).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError) as caught:
        go(out, resume=True)
    assert_says(caught.value, [str(folder), "not read", "start anew"])
    assert "weights_only" not in str(caught.value) and caught.value.__suppress_context__
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_without_the_state_of_a_part_is_refused(out):
    path = out / "checkpoints" / "step-00000010"
    found = (10, load_file(path / "model.safetensors"), {"fingerprint": {}, "history": {}})
    with pytest.raises(ValueError, match="no state of meter, order"):
        restore(found, tiny(), {"history": History(), "meter": None, "order": None})


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


@pytest.mark.parametrize(
    "door", [lambda: Checkpoints(""), lambda: Checkpoints(None), lambda: Checkpoints("x", keep=0)]
)
def test_a_folder_needs_a_name_and_keeps_at_least_one(door):
    with pytest.raises(ValueError, match="is needed"):
        door()
