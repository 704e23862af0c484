"""Training: what is stopped goes on to the bit, what is damaged is found, and each step is the step of the textbook.

Most tests train a BERT of one layer for a dozen steps. Those about crashes do it in processes that end by SIGKILL.
"""

import copy
import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

from mlm_lib import training
from mlm_lib.encoder import EncoderConfig
from mlm_lib.language_model import LanguageModel, LSTMContextualizer
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import to_hf
from mlm_lib.training import (
    HeldOut,
    History,
    ShowPredictions,
    TrainingConfig,
    TrainingStopped,
    train,
)
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(training.__file__).resolve().parents[1]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
TOKENIZER = WordPieceTokenizer({token: index for index, token in enumerate(VOCAB)})
SIZES = {
    "hidden_size": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_length": 16,
}
ROWS = [
    [2, *(5 + (3 * i + j) % 26 for j in range(3 + 7 * i % 11)), 3] for i in range(46)
]  # 5 to 15 tokens


def tiny(dropout=0.1, seed=0):
    torch.manual_seed(seed)
    return MaskedLanguageModel.from_config(EncoderConfig(len(VOCAB), **SIZES, dropout=dropout))


def tiny_of_transformers(dropout=0.0):
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForMaskedLM(
        BertConfig(vocab_size=len(VOCAB), max_position_embeddings=16, **sizes, **drops)
    )


def tiny_language_model(**options):
    torch.manual_seed(0)
    contextualizer = LSTMContextualizer(16, 16, 1, bidirectional=True)
    return LanguageModel(
        len(VOCAB), nn.Embedding(len(VOCAB), 16), contextualizer, bidirectional=True, **options
    )


def padded(rows):
    """A batch without labels, as a language model wants it."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "mask": ids != 0}


def collator(seed=0, **options):
    return MaskingCollator(TOKENIZER, seed=seed, **options)


def go(
    out=None,
    *,
    model=None,
    data=ROWS,
    collate=None,
    resume=False,
    evaluate=None,
    callbacks=(),
    **settings,
):
    """Train the tiny model; settings are those of the configuration."""
    model = model or tiny()
    config = TrainingConfig(
        **{"steps": 10, "batch_size": 8, "precision": "fp32", "device": "cpu"} | settings
    )
    history = train(
        model,
        data,
        collate or collator(),
        config,
        out=out,
        resume=resume,
        evaluate=evaluate,
        callbacks=callbacks,
    )
    return model, history


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one, other):
    """Two models or dictionaries of weights, to the bit."""
    one, other = (x if isinstance(x, dict) else x.state_dict() for x in (one, other))
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def assert_says(error, words):
    assert [word for word in words if word not in str(error)] == [], str(error)


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def timeless(rows):
    """Rows of the log without what a clock says."""
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "tokens_per_second")}
        for row in rows
    ]


def checkpoints(out):
    return sorted(path.name for path in (out / "checkpoints").iterdir())


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Stream:
    """An iterable that can be read again and again, in another order in each epoch."""

    def __init__(self, rows=ROWS):
        self.rows, self.epoch, self.read = rows, None, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(len(self.rows)))
        random.Random(self.epoch).shuffle(order)
        for index in order:
            self.read += 1
            yield self.rows[index]


class Seen:
    """A collator that remembers which examples it was given."""

    def __init__(self):
        self.batches, self.inner = [], collator()

    def __call__(self, examples):
        self.batches.append([ROWS.index(example) for example in examples])
        return self.inner(examples)


class Recorder(nn.Module):
    """A model that remembers its batches and losses, and whether autocast was on. Its output is a plain dictionary."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner, self.batches, self.losses, self.autocast = inner or tiny(), [], [], set()

    def forward(self, **batch):
        output = self.inner(**batch)
        self.batches.append(batch)
        self.losses.append(output["loss"].item())
        self.autocast.add(torch.is_autocast_enabled("cpu"))
        return {"loss": output["loss"]}


def draws(model):
    """An evaluation that draws random numbers of every kind, and leaves the model in evaluation mode."""
    model.eval()
    return {"drawn": torch.rand(1).item() + random.random() + np.random.rand()}


def draw_in_callback(model, step, row):
    torch.rand(step % 3), random.random(), np.random.rand(step % 2)


# ------------------------------------------------------------------------------------ resume: killed again and again

STEPS, KILLS, KEEP = 150, 10, 2
SCENARIOS = {
    "dropout": {},
    "rows of like length": {"group_by_length": True},
    "stream": {"stream": True},
    "draws in evaluation and callback": {
        "evaluate": draws,
        "callbacks": [draw_in_callback],
        "evaluate_every": 5,
    },
}


def train_scenario(name, out, callbacks=(), resume=False):
    settings = {
        "steps": STEPS,
        "batch_size": 4,
        "checkpoint_every": 3,
        "log_every": 2,
        "keep": KEEP,
    } | SCENARIOS[name]
    data = Stream() if settings.pop("stream", False) else ROWS
    go(
        out,
        data=data,
        resume=resume,
        **settings | {"callbacks": [*settings.get("callbacks", ()), *callbacks]},
    )


def in_child(call):
    """Run in a forked process; the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"a run ended with status {status}"
    return status


def end_at_random(rng):
    """A callback that ends the process at a random moment: a random time after, or a random number of file operations
    after, a random step."""
    steps, moment, by_time, seen = rng.randint(1, 8), rng.random(), rng.random() < 0.5, 0

    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, args):
        nonlocal seen
        seen += event == "open" or event.startswith(("os.", "shutil."))
        if seen == 1 + int(60 * moment):
            end()

    def callback(model, step, row):
        nonlocal steps
        steps -= 1
        if steps == 0 and by_time:
            threading.Timer(0.03 * moment, end).start()
        elif steps == 0:
            sys.addaudithook(hook)

    return callback


def survive(root):
    """For each scenario the outcome of an uninterrupted and of a killed run. Called in a process of its own."""
    torch.set_num_threads(1)
    outcomes = {}
    for name in SCENARIOS:
        whole, out, kills = root / name / "whole", root / name / "killed", 0
        in_child(lambda: train_scenario(name, whole))
        rng = random.Random(name)
        while kills < KILLS and in_child(
            lambda: train_scenario(name, out, [end_at_random(rng)], resume=True)
        ):
            kills, _ = kills + 1, [rng.random() for _ in range(3)]
        steps = max(
            (int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")), default=0
        )
        in_child(lambda: train_scenario(name, out, resume=True))
        outcomes[name] = {"kills": kills, "steps before the last run": steps}
    print(json.dumps(outcomes))


def fresh_python(call, *arguments, processes=None, folder=None):
    """Call a function of this file in a fresh interpreter, or in several under torchrun; what it printed."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "1",
        "PYTHONUTF8": "1",
    }
    script = f"from pathlib import Path\nimport test_training\ntest_training.{call}(*map(Path, {[str(a) for a in arguments]!r}))\n"
    command = [sys.executable, "-c", script]
    if processes:
        file = folder / "run.py"
        file.write_text(script)
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node",
            str(processes),
            str(file),
        ]
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    return root, json.loads(fresh_python("survive", root).splitlines()[-1])


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
    assert sorted(path.name for path in killed.iterdir()) == ["checkpoints", "log.jsonl"]


# ------------------------------------------------------------------------------------ resume: in one process


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


def test_numbers_of_numpy_in_a_configuration_can_be_resumed(tmp_path):
    settings = {"learning_rate": np.float64(1e-3), "weight_decay": np.float32(0.01)}
    go(tmp_path, **settings)
    assert go(tmp_path, steps=11, resume=True, **settings)[1].step == 11


def other_collator(**options):
    return {"collate": collator(**{"seed": 0} | options)}


CHANGES = {
    "seed": ({"seed": 3}, ["seed=0", "3"]),
    "batch_size": ({"batch_size": 4}, ["batch_size=8", "4"]),
    "learning_rate": ({"learning_rate": 0.25}, ["learning_rate=0.0005", "0.25"]),
    "schedule": ({"schedule": "cosine"}, ["schedule='linear'", "'cosine'"]),
    "betas": ({"betas": (0.5, 0.75)}, ["betas=(0.9, 0.999)", "(0.5, 0.75)"]),
    "precision": ({"precision": "bf16"}, ["precision='fp32'", "'bf16'"]),
    "group_by_length": ({"group_by_length": True}, ["group_by_length=False", "True"]),
    "number of examples": ({"data": ROWS[:40]}, ["46", "40"]),
    "stream": ({"data": Stream()}, ["46", "stream"]),
    "rate of the collator": (other_collator(rate=0.25), ["0.15", "0.25"]),
    "strategy of the collator": ({"collate": MaskingCollator(WordPieceTokenizer(TOKENIZER.vocab | {"##a": 31}), strategy="span", seed=0)}, ["token", "span"]),
    "seed of the collator": (other_collator(seed=5), ["0", "5"]),
}  # fmt: skip


@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_a_run_resumed_as_another_is_an_error_with_both_values(tmp_path, change, words):
    go(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError) as caught:
        go(tmp_path, steps=20, resume=True, **change)
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


# ------------------------------------------------------------------------------------ damaged checkpoints


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
    return lambda folder: (folder / name).write_text(content)


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
    "manifest in binary": (lambda folder: (folder / "manifest.json").write_bytes(b"\xff\xfe\0"), "manifest.json cannot be read"),
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
    assert not training.Checkpoints(out / "checkpoints").damage(10)  # it was written anew


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
    assert training.Checkpoints(out / "checkpoints").last().name == "step-00000005"
    model, _ = go(out, resume=True)
    assert_same(model, trained[1])
    assert training.Checkpoints(out / "checkpoints").steps() == [5, 10]


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


# ------------------------------------------------------------------------------------ a disk that refuses


def fill_the_disk(root):
    """In a process of its own: no file may grow past the limit once step 6 is done."""
    torch.set_num_threads(1)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    whole, _ = go(checkpoint_every=5)
    outcomes = {}
    for name, size in {"weights": 5000, "state": 25000}.items():
        out = root / name
        try:
            go(
                out,
                checkpoint_every=5,
                callbacks=[lambda model, step, row: limit(size) if step == 6 else None],
            )
            outcome = ["nothing", "", None]
        except Exception as error:
            outcome = [type(error).__name__, str(error), getattr(error, "errno", None)]
        limit(resource.RLIM_INFINITY)
        left = checkpoints(out)
        model, _ = go(out, resume=True)
        same = all(
            torch.equal(one, other)
            for one, other in zip(model.state_dict().values(), whole.state_dict().values())
        )
        outcomes[name] = [*outcome, left, same]
    print(json.dumps(outcomes))


@posix
@pytest.mark.slow
def test_a_full_disk_is_an_os_error_and_the_checkpoint_before_can_be_resumed(tmp_path):
    outcomes = json.loads(fresh_python("fill_the_disk", tmp_path).splitlines()[-1])
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


# ------------------------------------------------------------------------------------ losses that are not finite


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


# ------------------------------------------------------------------------------------ a step


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
        model=ours, collate=lambda examples: batch, steps=3, log_every=1, learning_rate=0.01, schedule="constant", warmup=0,
        weight_decay=0.3, betas=(0.8, 0.95), eps=1e-2, max_grad_norm=norm,
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


RATES = [
    ({"steps": 10, "warmup": 0}, {0: 1, 1: 0.9, 5: 0.5, 9: 0.1}),
    ({"steps": 10, "warmup": 4}, {0: 1 / 5, 1: 2 / 5, 3: 4 / 5, 4: 1, 7: 0.5, 9: 1 / 6}),
    ({"steps": 10, "warmup": 0.4}, {0: 1 / 5, 1: 2 / 5, 3: 4 / 5, 4: 1, 7: 0.5, 9: 1 / 6}),
    ({"steps": 10, "warmup": 4, "schedule": "constant"}, {0: 1 / 5, 3: 4 / 5, 4: 1, 9: 1}),
    ({"steps": 10, "warmup": 0, "schedule": "cosine"}, {0: 1, 5: 0.5, 2: 0.9045085, 8: 0.0954915}),
    ({"steps": 12, "warmup": 4, "schedule": "cosine"}, {4: 1, 6: 0.8535534, 8: 0.5, 10: 0.1464466}),
    ({"steps": 1, "warmup": 0.1}, {0: 1 / 1.1}),
    ({"steps": 1, "warmup": 0}, {0: 1}),
]


@pytest.mark.parametrize("settings, rates", RATES)
def test_the_learning_rate_follows_the_schedule(settings, rates):
    config = TrainingConfig(learning_rate=2.0, **settings)
    assert {step: config.learning_rate_at(step) / 2 for step in rates} == pytest.approx(
        rates, abs=1e-6
    )


def test_with_seconds_the_learning_rate_follows_the_clock_or_the_steps_whichever_is_further():
    config = TrainingConfig(steps=None, seconds=100, warmup=0.2, learning_rate=1.0)
    rates = {0: 0, 10: 0.5, 20: 1, 60: 0.5, 100: 0, 120: 0}
    assert {at: config.learning_rate_at(1000, at) for at in rates} == pytest.approx(rates)
    both = TrainingConfig(steps=10, seconds=100, warmup=0, learning_rate=1.0)
    assert both.learning_rate_at(2, 50) == pytest.approx(0.5) and both.learning_rate_at(
        8, 50
    ) == pytest.approx(0.2)


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


# ------------------------------------------------------------------------------------ evaluation and callbacks


def test_an_evaluation_that_draws_random_numbers_does_not_change_the_training():
    one = go(steps=12, evaluate=draws, evaluate_every=2)[0]
    assert_same(one, go(steps=12)[0])
    assert one.training


def test_a_held_out_evaluation_does_not_change_the_training():
    held = HeldOut(ROWS[:9], collator(1))
    assert_same(go(steps=12, evaluate=held, evaluate_every=2)[0], go(steps=12)[0])


def test_evaluations_come_every_so_many_steps_and_at_the_end():
    _, history = go(
        evaluate=lambda model: {"answer": torch.tensor(42)}, evaluate_every=4, log_every=5
    )
    assert history.curve("answer") == ([4, 8, 10], [42.0, 42.0, 42.0])
    assert [row["step"] for row in history.rows] == [4, 5, 8, 10]
    assert go(evaluate=lambda model: {"answer": 1}, log_every=5)[1].curve("answer")[0] == [10]


def test_a_callback_is_called_after_each_step_with_the_row_if_there_is_one():
    calls = []
    _, history = go(
        steps=5, log_every=2, callbacks=[lambda model, step, row: calls.append((step, row))]
    )
    assert [step for step, _ in calls] == [1, 2, 3, 4, 5]
    assert [row for _, row in calls if row] == history.rows and [
        row is None for _, row in calls
    ] == [True, False, True, False, False]


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


def test_the_curve_of_a_history_leaves_out_rows_without_the_name():
    history = History(rows=[{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "x": 1.0}])
    assert history.curve("loss") == ([1, 2], [3.0, 2.0])
    assert history.curve("x") == ([2], [1.0]) and history.curve("y") == ([], [])


# ------------------------------------------------------------------------------------ configuration


BAD = [
    ("steps", 0), ("steps", -1), ("steps", 1.5), ("steps", True), ("steps", "10"), ("batch_size", 0), ("batch_size", None),
    ("learning_rate", 0), ("learning_rate", float("nan")), ("learning_rate", float("inf")), ("learning_rate", "fast"),
    ("learning_rate", None), ("warmup", -0.1), ("warmup", float("nan")), ("warmup", "0.1"), ("weight_decay", -1), ("precision", "fp16"),
    ("precision", None), ("schedule", "step"), ("schedule", ["linear"]), ("checkpoint_every", 0), ("seconds", 0), ("seconds", -5),
    ("max_grad_norm", 0), ("max_grad_norm", None), ("betas", (0.9,)), ("betas", (0.9, 1.0)), ("betas", (-0.1, 0.9)), ("betas", 0.9),
    ("eps", 0), ("eps", None), ("log_every", 0), ("log_every", None), ("evaluate_every", 0), ("keep", 0), ("keep", None),
    ("seed", -1), ("seed", None), ("seed", 1.5), ("seed", 2**32), ("seed", "a"), ("device", "gpu7"), ("device", None),
]  # fmt: skip


@pytest.mark.parametrize("name, value", BAD)
def test_a_value_outside_its_range_is_an_error_that_names_it(name, value):
    with pytest.raises(ValueError) as caught:
        go(**{name: value})
    assert_says(caught.value, [name, repr(value)[:5]])


def test_a_budget_is_needed_and_warmup_in_steps_needs_steps():
    with pytest.raises(ValueError, match="steps and seconds"):
        TrainingConfig(steps=None)
    with pytest.raises(ValueError, match="warmup=5"):
        TrainingConfig(steps=None, seconds=9, warmup=5)


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


# ------------------------------------------------------------------------------------ precision and device


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


# ------------------------------------------------------------------------------------ the order of the data


def test_each_epoch_is_another_permutation_that_depends_on_the_seed_only():
    one, again, other = Seen(), Seen(), Seen()
    go(steps=18, collate=one)
    go(
        steps=18,
        collate=again,
        learning_rate=1e-5,
        checkpoint_every=3,
        log_every=1,
        callbacks=[draw_in_callback],
    )
    go(steps=18, collate=other, seed=1)
    assert one.batches == again.batches != other.batches
    epochs = [sum(one.batches[i : i + 6], []) for i in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(46)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])
    assert [len(batch) for batch in one.batches[:6]] == [
        8,
        8,
        8,
        8,
        8,
        6,
    ]  # the last rows are used too


def test_grouped_batches_hold_rows_of_like_length_and_cover_the_epoch():
    seen = Seen()
    go(steps=12, collate=seen, group_by_length=True)
    for epoch in (seen.batches[:6], seen.batches[6:]):
        assert sorted(sum(epoch, [])) == list(range(46))
        spreads = [
            max(lengths) - min(lengths)
            for lengths in ([len(ROWS[i]) for i in batch] for batch in epoch)
        ]
        assert max(spreads) <= 3  # of 10 without groups
        means = [np.mean([len(ROWS[i]) for i in batch]) for batch in epoch]
        assert means != sorted(means) and means != sorted(means, reverse=True)
    assert seen.batches[:6] != seen.batches[6:]


def test_grouping_saves_padding():
    def width(**settings):
        model = Recorder()
        go(model=model, steps=6, **settings)
        return sum(batch["input_ids"].numel() for batch in model.batches)

    assert width(group_by_length=True) < 0.9 * width()


def test_a_stream_is_read_in_its_own_order_and_told_the_epoch():
    seen, stream = Seen(), Stream()
    go(steps=13, collate=seen, data=stream)
    for epoch in (0, 1):
        stream.set_epoch(epoch)
        assert sum(seen.batches[6 * epoch : 6 * epoch + 6], []) == [
            ROWS.index(row) for row in stream
        ]
    assert [len(batch) for batch in seen.batches] == [8, 8, 8, 8, 8, 6, 8, 8, 8, 8, 8, 6, 8]


def test_a_stream_is_read_no_further_than_the_steps_need():
    stream = Stream()
    go(steps=2, data=stream)
    assert stream.read <= 16


@pytest.mark.parametrize("stop", [4, 6, 8])
def test_a_resumed_stream_goes_on_with_the_next_example(tmp_path, stop):
    whole, first, second = Seen(), Seen(), Seen()
    go(steps=14, collate=whole, data=Stream())
    go(tmp_path, steps=stop, collate=first, data=Stream())
    go(tmp_path, steps=14, collate=second, data=Stream(), resume=True)
    assert first.batches + second.batches == whole.batches


class Renewed:
    """A dataset with a length that holds other rows, and another number of them, in each epoch."""

    def __init__(self):
        self.rows = ROWS[:8]

    def set_epoch(self, epoch):
        self.rows = ROWS[8 * epoch : 8 * epoch + 8 + epoch % 2]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_dataset_with_a_length_is_told_the_epoch_too(grouped):
    seen = Seen()
    go(steps=8, batch_size=4, collate=seen, data=Renewed(), group_by_length=grouped)
    epochs = [seen.batches[:2], seen.batches[2:5], seen.batches[5:7]]
    assert [sorted(sum(epoch, [])) for epoch in epochs] == [
        list(range(8)),
        list(range(8, 17)),
        list(range(16, 24)),
    ]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_dataset_that_is_renewed_in_each_epoch_can_be_resumed(tmp_path, stop, grouped):
    whole, first, second = Seen(), Seen(), Seen()
    settings = {"batch_size": 4, "group_by_length": grouped}
    go(steps=8, collate=whole, data=Renewed(), **settings)
    go(tmp_path, steps=stop, collate=first, data=Renewed(), **settings)
    go(tmp_path, steps=8, collate=second, data=Renewed(), resume=True, **settings)
    assert first.batches + second.batches == whole.batches


@pytest.mark.parametrize(
    "once",
    [iter(ROWS), (row for row in ROWS), map(list, ROWS)],
    ids=["iterator", "generator", "map"],
)
def test_what_can_be_read_only_once_is_refused(once):
    with pytest.raises(ValueError, match=f"a {type(once).__name__} can be read only once"):
        go(data=once)


@pytest.mark.parametrize("empty", [[], Stream([])], ids=["list", "stream"])
def test_an_empty_dataset_is_refused(empty):
    with pytest.raises(ValueError, match="empty"):
        go(data=empty)


def test_a_stream_cannot_be_grouped_by_length():
    with pytest.raises(ValueError, match="group_by_length"):
        go(data=Stream(), group_by_length=True)


def test_a_dataset_smaller_than_a_batch_is_used_whole():
    seen = Seen()
    go(steps=3, collate=seen, data=ROWS[:3])
    assert [sorted(batch) for batch in seen.batches] == [[0, 1, 2]] * 3


# ------------------------------------------------------------------------------------ other models and collators


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


# ------------------------------------------------------------------------------------ several processes

TOGETHER = {
    "ours": {
        "steps": 9,
        "batch_size": 4,
        "data": ROWS[:9],
    },  # the last batch of an epoch has one row
    "transformers": {"steps": 9, "batch_size": 4, "data": ROWS[:9]},
    "grouped": {"steps": 9, "batch_size": 8, "group_by_length": True, "evaluate_every": 4},
    "language model": {"steps": 9, "batch_size": 4, "data": ROWS[:9], "evaluate_every": 4},
    "clock": {"steps": None, "seconds": 1.0},
}


def train_together(root):
    """Every run of TOGETHER, in as many processes as there are; each process leaves its weights."""
    torch.set_num_threads(1)
    rank = os.environ.get("RANK", "alone")
    for name, settings in TOGETHER.items():
        makers = {"transformers": tiny_of_transformers, "language model": tiny_language_model}
        model = makers[name]() if name in makers else tiny(dropout=0.0)
        collate = padded if name == "language model" else None
        evaluate = HeldOut(ROWS[-10:], collate or collator(1))
        try:
            go(
                root / name,
                model=model,
                collate=collate,
                evaluate=evaluate,
                log_every=1,
                **settings,
            )
        except TrainingStopped as error:
            (root / f"{name}-{rank}.txt").write_text(str(error))
        torch.save(model.state_dict(), root / f"{name}-{rank}.pt")
    for steps in ([6], [3, 6]):  # with dropout, which each process draws for itself
        out = root / f"dropout in {len(steps)}"
        for number in steps:
            model, _ = go(out, steps=number, schedule="constant", warmup=0, resume=True)
        torch.save(model.state_dict(), root / f"dropout in {len(steps)}-{rank}.pt")


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


def test_sparse_gradients_are_refused_by_name():
    with pytest.raises(ValueError, match="softmax.*sparse_embeddings=False"):
        go(model=tiny_language_model(num_samples=5, sparse_embeddings=True), collate=padded)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    fresh_python("train_together", one)
    fresh_python("train_together", two, processes=2, folder=two)
    return one, two


def load(path):
    return torch.load(path, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ours", "transformers", "grouped", "language model"])
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
