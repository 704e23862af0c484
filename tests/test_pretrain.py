"""Pretraining from the command line: what a recipe says is done, what it gets wrong costs one line, and a killed run ends
as one that was not.

The corpora are a few hundred lines that a handful of words make up; the models have one layer.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertForMaskedLM

from mlm_lib import DATA, pretrain, training
from mlm_lib.grammar import Grammar
from mlm_lib.pretrain import main, read_recipe
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(pretrain.__file__).resolve().parents[1]
needs_grammar = pytest.mark.skipif(
    not (DATA / "grammar.toml").is_file(), reason="needs data/grammar.toml"
)
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SMALL = """
[tokenizer]
vocab_size = 90
[model]
hidden_size = 16
num_layers = 1
num_heads = 2
max_length = 24
[training]
steps = 6
batch_size = 16
precision = "fp32"
device = "cpu"
"""
GRAMMAR = """
[zoo.latents]
animal = ["lion", "zebra", "bear"]
[zoo.words]
food = ["meat", "grass", "honey"]
[zoo.steps.first]
sentences = ["the {animal} eats {food} .", "here is a {animal} ."]
[zoo.steps.second]
probability = 0.5
sentences = ["it is a {animal} ."]
"""


def lines(number=300, seed=0):
    rng = random.Random(seed)
    names, fruits = (
        "anna ben clara david emma felix".split(),
        "apples bread cheese dates eggs figs".split(),
    )
    for place in range(number):
        who, day = rng.randrange(6), rng.choice(["day", "week", "year"])
        yield f"{names[who]} likes {fruits[who]} and eats {place} {fruits[who]} every {day} ."


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(lines()) + "\n")
    return tmp_path / "corpus.txt"


@pytest.fixture
def recipe(tmp_path, corpus):
    """A function that writes a recipe: the small one, with tables added or lines replaced."""

    def write(more="", data=f'[[data]]\ncorpus = "{corpus}"\n', **replaced):
        text = data + SMALL
        for old, new in replaced.items():
            assert f"\n{old} = " in text
            text = "\n".join(
                f"{old} = {new}" if line.startswith(f"{old} = ") else line
                for line in text.split("\n")
            )
        (tmp_path / "recipe.toml").write_text(text + more)
        return tmp_path / "recipe.toml"

    return write


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """The corpus "grammar" is a small one."""
    (tmp_path / "zoo.toml").write_text(GRAMMAR)
    load = Grammar.load
    monkeypatch.setattr(
        pretrain.Grammar,
        "load",
        classmethod(lambda cls, path=None, worlds=None: load(tmp_path / "zoo.toml")),
    )


def command(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    line = [sys.executable, "-m", "mlm_lib.pretrain", *map(str, arguments)]
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120
    )


def call(*arguments):
    return main([str(argument) for argument in arguments])


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def fails(capsys, *arguments):
    """The one line on stderr of a command that ends with exit status 1."""
    capsys.readouterr()
    assert call(*arguments) == 1
    said = capsys.readouterr().err.rstrip()
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert said.endswith(line)  # `datasets` may log before it what it could not read
    return line


def model_file(out):
    return (out / "model" / "model.safetensors").read_bytes()


# ------------------------------------------------------------------------------------ from end to end


@pytest.mark.slow
def test_the_command_trains_a_model_that_transformers_opens(tmp_path, recipe):
    out = tmp_path / "out"
    file = recipe(
        'log_every = 20\nevaluate_every = 60\nlearning_rate = 0.01\n[show]\nsentences = ["anna likes [MASK]"]\nevery = 60\n'
    )
    done = command("--config", file, "--steps", 120, "--out", out)
    assert done.returncode == 0, done.stderr
    rows = log_of(out)
    assert rows[-1]["step"] == 120 and rows[-1]["loss"] < rows[0]["loss"] - 0.5
    held = [row[name] for row in rows for name in row if name.endswith("_loss")]
    assert len(held) == 2 and held[1] < held[0]
    assert (
        "parameters" in done.stdout
        and "anna likes [MASK]  ->" in done.stdout
        and f"saved {out / 'model'} after 120 steps" in done.stdout
    )
    theirs, tokenizer = (
        BertForMaskedLM.from_pretrained(out / "model").eval(),
        AutoTokenizer.from_pretrained(out / "model"),
    )
    ours, _ = load_checkpoint(out / "model")
    batch = tokenizer(["anna likes [MASK] and eats"], return_tensors="pt")
    assert theirs.dtype == torch.float32 and len(tokenizer) == 90
    torch.testing.assert_close(
        ours(**batch)["logits"], theirs(**batch).logits, rtol=1e-4, atol=1e-4
    )
    assert (
        tokenizer.get_vocab()
        == WordPieceTokenizer.from_vocab(out / "tokenizer" / "vocab.txt").vocab
    )
    last = torch.load(out / "checkpoints" / "step-00000120" / "state.pt", weights_only=True)
    assert last["history"]["step"] == 120


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_may_be_saved_in_half_precision(tmp_path, recipe, dtype):
    out = tmp_path / "out"
    assert call("--config", recipe(f'[save]\ndtype = "{dtype}"\n'), "--out", out) == 0
    theirs = BertForMaskedLM.from_pretrained(out / "model")
    assert str(theirs.dtype) == f"torch.{dtype}"
    assert (
        len(model_file(out))
        < 0.7 * (out / "checkpoints" / "step-00000006" / "model.safetensors").stat().st_size
    )
    assert load_checkpoint(out / "model")[0].head.bias.dtype == torch.float32


def test_pretrain_returns_the_trained_model_its_tokenizer_and_the_history(tmp_path, recipe):
    model, tokenizer, history = pretrain.pretrain(read_recipe(recipe()), tmp_path / "out")
    assert history.step == 6 and len(tokenizer) == 90
    saved, _ = load_checkpoint(tmp_path / "out" / "model")
    assert all(
        torch.equal(one, other)
        for one, other in zip(model.state_dict().values(), saved.state_dict().values())
    )


def test_the_options_go_before_the_file(tmp_path, recipe):
    other = tmp_path / "other.txt"
    other.write_text("\n".join(lines(90, seed=1)))
    out = tmp_path / "out"
    options = [
        "--steps",
        4,
        "--batch-size",
        5,
        "--learning-rate",
        0.25,
        "--seed",
        7,
        "--precision",
        "fp32",
        "--checkpoint-every",
        3,
    ]
    assert (
        call("--config", recipe(), "--corpus", other, *options, "--device", "cpu", "--out", out)
        == 0
    )
    state = torch.load(out / "checkpoints" / "step-00000004" / "state.pt", weights_only=True)[
        "fingerprint"
    ]
    assert [
        state[name] for name in ("batch_size", "learning_rate", "seed", "precision", "examples")
    ] == [5, 0.25, 7, "fp32", 72]
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "step-00000003",
        "step-00000004",
    ]
    assert f"{other}_loss" in log_of(out)[-1]


def test_seconds_are_a_budget(tmp_path, recipe):
    out = tmp_path / "out"
    assert call("--config", recipe(steps=100000), "--seconds", 0.3, "--out", out) == 0
    assert 1 <= log_of(out)[-1]["step"] < 100000


def test_two_runs_are_one_and_another_seed_is_another(tmp_path, recipe):
    for name, seed in ("one", 0), ("two", 0), ("three", 1):
        assert call("--config", recipe(), "--seed", seed, "--out", tmp_path / name) == 0
    one, two, three = (model_file(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three


def test_the_defaults_are_not_changed_by_a_run(tmp_path, recipe):
    before = json.dumps(pretrain.DEFAULTS)
    assert call("--config", recipe(), "--steps", 1, "--out", tmp_path / "out") == 0
    assert json.dumps(pretrain.DEFAULTS) == before
    assert read_recipe() == pretrain.DEFAULTS


def test_out_is_needed(capsys):
    with pytest.raises(SystemExit) as caught:
        call("--corpus", "reviews", "--steps", 1)
    assert caught.value.code == 2 and "--out" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ what a recipe gets wrong

WRONG = {
    "unknown table": ("[modle]\nhidden_size = 4\n", ["modle", "model"]),
    "unknown key": ("[masking]\nshare = 0.1\n", ["masking", "share", "rate"]),
    "unknown key of the training": ("batchsize = 4\n", ["training", "batchsize", "batch_size"]),
    "no TOML": ("[masking\n", ["recipe.toml", "TOML"]),
    "a value instead of a table": None,
    "data as one table": None,
    "unknown key of the data": None,
    "corpus that is no text": None,
    "no data": None,
    "rate": ("[masking]\nrate = 1.5\n", ["rate", "1.5"]),
    "rate in words": ("[masking]\nrate = 'much'\n", ["rate", "much"]),
    "strategy": ("[masking]\nstrategy = 'words'\n", ["strategy", "words"]),
    "dtype": ("[save]\ndtype = 'float7'\n", ["dtype", "float7"]),
    "dtype that is no type": ("[save]\ndtype = 'load'\n", ["dtype", "load"]),
    "a sentence without a blank": (
        "[show]\nsentences = ['anna likes figs']\n",
        ["anna likes figs", "[MASK]"],
    ),
    "shown every 0 steps": ("[show]\nsentences = ['anna [MASK]']\nevery = 0\n", ["every", "0"]),
    "a vocabulary that is not there": (None, ["nowhere"]),
}
FIRST = {
    "a value instead of a table": ("model = 3\n", ["model", "3"]),
    "data as one table": ('[data]\ncorpus = "reviews"\n', ["[[data]]"]),
    "unknown key of the data": (
        '[[data]]\ncorpus = "reviews"\ncopy = 3\n',
        ["data", "copy", "copies"],
    ),
    "corpus that is no text": ("[[data]]\ncorpus = 5\n", ["corpus", "5"]),
    "no data": ("data = []\n", ["data"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_recipe_that_is_wrong_is_one_line_before_anything_is_trained(
    tmp_path, recipe, capsys, monkeypatch, name
):
    monkeypatch.setattr(pretrain, "train", lambda *args, **options: pytest.fail("training began"))
    if name in FIRST:
        text, words = FIRST[name]
        file = recipe(data=text)
        if name == "a value instead of a table":
            file.write_text(text)
    elif name == "a vocabulary that is not there":
        words, file = WRONG[name][1], recipe()
        file.write_text(
            file.read_text().replace("[tokenizer]\n", '[tokenizer]\nfrom = "./no/nowhere"\n')
        )
    else:
        text, words = WRONG[name]
        file = recipe(text)
    line = fails(capsys, "--config", file, "--out", tmp_path / "out")
    assert [word for word in words if word not in line] == [], line


@pytest.mark.parametrize(
    "key, value",
    [("steps", 0), ("steps", '"many"'), ("learning_rate", '"fast"'), ("hidden_size", '"big"'), ("hidden_size", 15), ("num_layers", 0),
     ("max_length", '"long"'), ("vocab_size", 3), ("vocab_size", '"all"'), ("precision", '"fp8"'), ("batch_size", 2.5), ("log_every", 0)],
)  # fmt: skip
def test_a_wrong_number_is_one_line_that_names_it(tmp_path, recipe, capsys, key, value):
    if key in ("learning_rate", "log_every"):
        file = recipe(f"{key} = {value}\n")
    else:
        file = recipe(**{key: value})
    line = fails(capsys, "--config", file, "--out", tmp_path / "out")
    assert str(value).strip('"') in line


def test_files_that_cannot_be_read_are_one_line(tmp_path, capsys):
    out = ["--steps", 1, "--out", tmp_path / "out"]
    assert "no.toml" in fails(capsys, "--config", tmp_path / "no.toml", *out)
    assert str(tmp_path) in fails(capsys, "--config", tmp_path, *out)
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    assert "latin.toml" in fails(capsys, "--config", tmp_path / "latin.toml", *out)
    assert "no.txt" in fails(capsys, "--corpus", tmp_path / "no.txt", *out)
    assert "no-such" in fails(capsys, "--corpus", f"stream:{tmp_path / 'no-such'}", *out)
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in fails(
        capsys, "--corpus", f"stream:{tmp_path / 'empty'}", *out
    )
    assert "unknown corpus" in fails(capsys, "--corpus", "gramar", *out)


def test_a_budget_is_needed(tmp_path, capsys, corpus):
    assert "steps" in fails(capsys, "--corpus", corpus, "--out", tmp_path / "out")


@pytest.mark.slow
def test_a_wrong_recipe_ends_the_command_with_status_1_and_no_traceback(tmp_path, recipe):
    done = command("--config", recipe("[modle]\n"), "--out", tmp_path / "out")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_run_is_not_overwritten_and_its_tokenizer_stays(tmp_path, recipe, capsys):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert "resume" in fails(capsys, "--config", recipe(vocab_size=70), "--out", out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_run_that_failed_before_its_first_checkpoint_does_not_leave_its_tokenizer_to_the_next(
    tmp_path, recipe, capsys
):
    out = tmp_path / "out"
    fails(capsys, "--config", recipe(vocab_size=70, hidden_size=15), "--out", out)
    assert call("--config", recipe(vocab_size=90), "--out", out) == 0
    assert len(AutoTokenizer.from_pretrained(out / "model")) == 90


@pytest.mark.parametrize(
    "key, value", [("hidden_size", 32), ("num_layers", 2), ("batch_size", 8), ("max_length", 30)]
)
def test_a_run_resumed_with_another_recipe_is_one_line(tmp_path, recipe, capsys, key, value):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    before = model_file(out)
    fails(capsys, "--config", recipe(**{key: value}), "--steps", 9, "--resume", "--out", out)
    assert model_file(out) == before


@pytest.mark.parametrize("masking", ["rate = 0.5", 'strategy = "whole_word"'])
def test_a_run_resumed_with_other_masking_is_one_line(tmp_path, recipe, capsys, masking):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    fails(
        capsys,
        "--config",
        recipe(f"[masking]\n{masking}\n"),
        "--steps",
        9,
        "--resume",
        "--out",
        out,
    )


# ------------------------------------------------------------------------------------ resume


def texts_in(root, form):
    """What --corpus is given, and the recipe, for each form of corpus."""
    rows = list(lines(700))
    root.mkdir(parents=True)
    if form == "folder":
        for part in range(3):
            (root / f"{part}.txt").write_text(
                "\n\n".join(rows[part::3]) + "\n"
            )  # blank lines are no texts
    elif form == "jsonl":
        (root / "texts.jsonl").write_text(
            "".join(json.dumps({"id": i, "text": row}) + "\n" for i, row in enumerate(rows))
        )
    else:
        (root / "texts.txt").write_text("\n".join(rows))
    name = {"folder": f"stream:{root}", "jsonl": f"stream:{root / 'texts.jsonl'}"}.get(
        form, str(root / "texts.txt")
    )
    extra = {"memory": "blocks_every = 3\ncopies = 1\n"}.get(form, "held_out = 200\n")
    (root / "recipe.toml").write_text(
        f'[[data]]\ncorpus = "{name}"\n{extra}{SMALL}group_by_length = {str(form == "memory").lower()}\n'
    )
    return root / "recipe.toml"


def run_or_be_killed(arguments, seed=None):
    """The command in a forked process, ended by SIGKILL a random time after a random checkpoint if there is a seed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            save, rng = training.Checkpoints.save, random.Random(seed)
            number, delay = rng.randint(1, 4), 0.03 * rng.random()

            def counted(*args):
                nonlocal number
                number -= 1
                if number == 0:
                    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
                save(*args)

            if seed is not None:
                training.Checkpoints.save = counted
            with open(os.devnull, "w") as sys.stdout:
                status = main(arguments)
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def survive(root):
    """For each form of corpus how the runs ended. Called in a process of its own."""
    import datasets  # noqa: F401  (before the forks)

    torch.set_num_threads(1)
    statuses = {}
    for form in ("memory", "folder", "jsonl"):
        file = texts_in(root / form / "texts", form)
        arguments = ["--config", str(file), "--steps", "110", "--checkpoint-every", "4", "--out"]
        ends = [run_or_be_killed([*arguments, str(root / form / "whole")])]
        ends += [
            run_or_be_killed([*arguments, str(root / form / "killed"), "--resume"], seed)
            for seed in range(4)
        ]
        ends += [run_or_be_killed([*arguments, str(root / form / "killed"), "--resume"])]
        statuses[form] = ends
    print(json.dumps(statuses))


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    script = f"from pathlib import Path\nimport test_pretrain\ntest_pretrain.survive(Path({str(root)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return root, json.loads(done.stdout.splitlines()[-1]), done.stderr


@posix
@pytest.mark.slow
@pytest.mark.parametrize("form", ["memory", "folder", "jsonl"])
def test_a_command_that_was_killed_and_resumed_saves_the_model_of_one_that_was_not(survived, form):
    root, statuses, errors = survived
    assert statuses[form] == [0, *4 * [signal.SIGKILL], 0], errors
    whole, killed = root / form / "whole", root / form / "killed"
    assert model_file(whole) == model_file(killed)
    assert (whole / "tokenizer" / "vocab.txt").read_bytes() == (
        killed / "tokenizer" / "vocab.txt"
    ).read_bytes()
    timed = ("seconds", "tokens_per_second")
    rows = [
        [
            {k: v for k, v in row.items() if k not in timed and "_loss" not in k}
            for row in log_of(out)
        ]
        for out in (whole, killed)
    ]
    assert rows[0] == rows[1] and rows[0][-1]["epoch"] >= 2
    assert sorted(path.name for path in (killed / "checkpoints").iterdir()) == [
        "step-00000108",
        "step-00000110",
    ]


def test_a_finished_command_that_is_resumed_saves_the_same_model(tmp_path, recipe):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    before = model_file(out)
    assert call("--config", recipe(), "--out", out, "--resume") == 0
    assert model_file(out) == before and log_of(out)[-1]["step"] == 6


# ------------------------------------------------------------------------------------ streams


def stream(path, **changes):
    part = pretrain.DEFAULTS["data"][0] | {"corpus": f"stream:{path}", "held_out": 10} | changes
    return pretrain._Stream(part, 0)


@pytest.mark.parametrize("form", ["txt", "jsonl", "csv", "folder"])
def test_a_stream_holds_every_text_of_every_file_once_and_holds_out_the_first(tmp_path, form):
    rows = list(lines(50))
    path = tmp_path / f"texts.{form}"
    if form == "folder":
        (path / "b").mkdir(parents=True)
        (path / "a.txt").write_text("\n".join(rows[:20]))
        (path / "b" / "c.txt").write_text("\n\n  \n".join(rows[20:]))
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"text": row, "label": 1}) + "\n" for row in rows))
    else:
        path.write_text("\n".join(["text", *rows] if form == "csv" else rows))
    data = stream(path)
    tokenizer = WordPieceTokenizer.train(rows, 150)
    assert list(data.texts()) == rows[10:]
    data.encode(tokenizer, 24)
    encoded = [tokenizer.encode(row)[:23] for row in rows]
    assert [row[:23] for row in data.held] == encoded[:10]
    data.dataset.set_epoch(0)
    first = [row["input_ids"][:23] for row in data.dataset]
    data.dataset.set_epoch(1)
    second = [row["input_ids"][:23] for row in data.dataset]
    assert (
        sorted(first) == sorted(second) == sorted(encoded[10:])
        and first != second
        and first != encoded[10:]
    )


def test_a_stream_is_not_read_whole(tmp_path, monkeypatch, capsys):
    path = tmp_path / "texts.jsonl"
    with open(path, "w") as file:
        for row in lines(60_000):
            file.write(json.dumps({"text": row}) + "\n")
    counted, encode = [], pretrain._encode
    monkeypatch.setattr(pretrain, "STREAM_SAMPLE", 500)
    monkeypatch.setattr(pretrain, "STREAM_BUFFER", 300)
    monkeypatch.setattr(
        pretrain,
        "_encode",
        lambda tokenizer, texts, length: (
            counted.append(len(texts)) or encode(tokenizer, texts, length)
        ),
    )
    trained = []
    train = WordPieceTokenizer.train.__func__
    monkeypatch.setattr(
        WordPieceTokenizer,
        "train",
        classmethod(
            lambda cls, texts, *a, **o: train(
                cls, (trained.append(1) or text for text in texts), *a, **o
            )
        ),
    )
    (tmp_path / "recipe.toml").write_text(
        f'[[data]]\ncorpus = "stream:{path}"\nheld_out = 20\n{SMALL}group_by_length = false\n'
    )
    assert call("--config", tmp_path / "recipe.toml", "--out", tmp_path / "out") == 0
    assert len(trained) == 500 and sum(counted) <= 6000


def test_the_command_line_alone_can_train_on_a_stream(tmp_path, monkeypatch):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines(700)))
    monkeypatch.setitem(
        pretrain.DEFAULTS,
        "model",
        pretrain.DEFAULTS["model"] | {"hidden_size": 16, "num_layers": 1, "max_length": 24},
    )
    monkeypatch.setitem(
        pretrain.DEFAULTS, "tokenizer", pretrain.DEFAULTS["tokenizer"] | {"vocab_size": 90}
    )
    assert (
        call(
            "--corpus",
            f"stream:{path}",
            "--steps",
            2,
            "--precision",
            "fp32",
            "--out",
            tmp_path / "out",
        )
        == 0
    )


STREAMS = {
    "mixed": ([], ["stream", "mixed"]),
    "no column": ([{"body": "a"}] * 30, ["text"]),
    "not JSON": ("{'text'\n" * 30, [""]),
    "text that is a number": ([{"text": 5}] * 30, ["text"]),
    "smaller than what is held out": ([{"text": "a b c d e f g"}] * 5, ["held_out"]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_cannot_be_used_is_one_line(tmp_path, corpus, capsys, name):
    rows, words = STREAMS[name]
    path = tmp_path / "texts.jsonl"
    path.write_text(
        rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
    )
    other = f'[[data]]\ncorpus = "{corpus}"\n' if name == "mixed" else ""
    file = tmp_path / "recipe.toml"
    file.write_text(
        f'{other}[[data]]\ncorpus = "stream:{path}"\nheld_out = 10\n{SMALL}group_by_length = false\n'
    )
    line = fails(capsys, "--config", file, "--out", tmp_path / "out")
    assert [word for word in words if word not in line] == [], line


def test_a_folder_of_a_stream_may_hold_other_files(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / "README.md").write_text("About these texts")
    (folder / "texts.txt").write_text("\n".join(lines(30)))
    assert list(stream(folder).texts()) == list(lines(30))[10:]


def test_a_stream_may_have_brackets_in_its_name(tmp_path):
    folder = tmp_path / "texts [1]"
    folder.mkdir()
    (folder / "texts*.txt").write_text("\n".join(lines(30)))
    assert list(stream(folder).texts()) == list(lines(30))[10:]


# ------------------------------------------------------------------------------------ mixtures


def mixture(*parts, seed=0, max_length=24, vocab_size=150):
    data = pretrain._Mixture([pretrain.DEFAULTS["data"][0] | part for part in parts], seed)
    tokenizer = WordPieceTokenizer.train(data.texts(), vocab_size)
    data.encode(tokenizer, max_length)
    return data, tokenizer


def test_copies_are_so_many_of_each_text_in_an_epoch(corpus):
    once, tokenizer = mixture({"corpus": str(corpus)})
    thrice, _ = mixture({"corpus": str(corpus), "copies": 3})
    thrice.encode(tokenizer, 24)
    assert len(once) == 240 and len(thrice) == 720  # 80% of 300 are for training
    assert once[0][0] == tokenizer.cls_token_id and once[0][-1] == tokenizer.sep_token_id
    assert sorted(thrice[i] for i in range(720)) == sorted(3 * [once[i] for i in range(240)])


@pytest.mark.parametrize("every", [1, 2, 3])
def test_blocks_come_round_once_in_so_many_epochs(corpus, every):
    data, tokenizer = mixture({"corpus": str(corpus), "blocks_every": every})
    blocks, epochs = [], []
    for epoch in range(2 * every):
        data.set_epoch(epoch)
        assert [data[i] for i in range(240)] == data.parts[0].encoded
        epochs.append([tuple(data[i]) for i in range(240, len(data))])
        assert all(len(block) == 24 and tokenizer.pad_token_id not in block for block in epochs[-1])
    assert epochs[:every] == epochs[every:]
    blocks = [block for epoch in epochs[:every] for block in epoch]
    assert sorted(blocks) == sorted(map(tuple, data.parts[0].blocks)) and len(set(blocks)) == len(
        blocks
    )


def test_blocks_hold_the_whole_of_long_texts(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("\n".join(" ".join(f"w{i}x{j}" for j in range(40)) for i in range(10)))
    data, tokenizer = mixture({"corpus": str(path), "blocks_every": 1}, max_length=24)
    inner = sum(len(block) - 2 for block in data.parts[0].blocks)
    whole = sum(len(tokenizer.encode(text)) for text in data.parts[0].train)
    assert inner > 0.9 * whole


def test_training_tells_the_mixture_each_epoch(tmp_path, recipe, monkeypatch):
    told, tell = [], pretrain._Mixture.set_epoch
    monkeypatch.setattr(
        pretrain._Mixture, "set_epoch", lambda self, epoch: told.append(epoch) or tell(self, epoch)
    )
    assert call("--config", recipe(batch_size=100), "--steps", 9, "--out", tmp_path / "out") == 0
    assert list(dict.fromkeys(told)) == [0, 1, 2]


def test_each_epoch_of_a_grammar_has_new_documents_and_none_is_held_out(zoo, monkeypatch):
    seeds, sample = [], Grammar.sample
    monkeypatch.setattr(
        Grammar,
        "sample",
        lambda self, n, *, seed=0: seeds.append(seed) or sample(self, n, seed=seed),
    )
    data, tokenizer = mixture({"documents": 50, "held_out": 20})
    epochs = []
    for epoch in (0, 1, 2, 1):
        data.set_epoch(epoch)
        epochs.append([data[i] for i in range(len(data))])
    assert all(len(epoch) == 50 for epoch in epochs)
    assert epochs[1] == epochs[3] and epochs[0] != epochs[1] != epochs[2] != epochs[0]
    mine = set(seeds)
    data.held_out(tokenizer)
    assert pretrain.HELD_OUT_SEED in seeds and pretrain.HELD_OUT_SEED not in mine
    assert mixture({"documents": 50}, seed=1)[0].rows != epochs[0]


def test_the_floor_of_a_grammar_is_below_the_loss_of_an_untrained_model(zoo, tmp_path, capsys):
    file = tmp_path / "recipe.toml"
    file.write_text('[[data]]\ncorpus = "grammar"\ndocuments = 60\nheld_out = 40\n' + SMALL)
    assert call("--config", file, "--out", tmp_path / "out") == 0
    (said,) = [
        line for line in capsys.readouterr().out.splitlines() if "no model can go below" in line
    ]
    floor = float(said.split("below")[1].split()[0])
    assert 0 < floor < log_of(tmp_path / "out")[-1]["grammar_loss"]


def test_a_vocabulary_without_the_words_of_the_grammar_is_one_line_and_a_larger_one_then_works(
    zoo, tmp_path, capsys
):
    data = '[[data]]\ncorpus = "grammar"\ndocuments = 60\nheld_out = 40\n'
    file = tmp_path / "recipe.toml"
    file.write_text(data + SMALL.replace("vocab_size = 90", "vocab_size = 45"))
    assert "raise vocab_size" in fails(capsys, "--config", file, "--out", tmp_path / "out")
    file.write_text(data + SMALL)
    assert call("--config", file, "--out", tmp_path / "out") == 0


def test_a_grammar_and_texts_mix_and_each_is_evaluated(zoo, tmp_path, corpus):
    file = tmp_path / "recipe.toml"
    file.write_text(
        f'[[data]]\ncorpus = "grammar"\ndocuments = 30\nheld_out = 40\n[[data]]\ncorpus = "{corpus}"\ncopies = 2\n{SMALL}'
    )
    file.write_text(file.read_text().replace("vocab_size = 90", "vocab_size = 150"))
    assert call("--config", file, "--out", tmp_path / "out") == 0
    row = log_of(tmp_path / "out")[-1]
    assert {"grammar_loss", f"{corpus}_loss"} <= row.keys()


def test_two_parts_of_one_name_are_both_evaluated(zoo, tmp_path):
    file = tmp_path / "recipe.toml"
    part = '[[data]]\ncorpus = "grammar"\ndocuments = 30\nheld_out = {}\n'
    file.write_text(part.format(40) + part.format(50) + SMALL)
    if call("--config", file, "--out", tmp_path / "out") == 0:  # or it is refused
        assert sum(name.endswith("_loss") for name in log_of(tmp_path / "out")[-1]) == 2


@needs_grammar
@pytest.mark.slow
def test_the_course_s_grammar_trains_from_the_command_line(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        '[[data]]\ncorpus = "grammar"\ndocuments = 300\nheld_out = 30\n' + SMALL.replace("vocab_size = 90", "vocab_size = 8192")
        .replace("max_length = 24", "max_length = 128")
    )  # fmt: skip
    done = command("--config", file, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "no model can go below" in done.stdout and "grammar_loss" in log_of(tmp_path / "out")[-1]


@needs_grammar
def test_the_course_s_grammar_has_other_documents_in_each_epoch():
    data, tokenizer = mixture({"documents": 20}, max_length=128, vocab_size=8192)
    epochs = []
    for epoch in (0, 1, 0):
        data.set_epoch(epoch)
        epochs.append([data[i] for i in range(len(data))])
    assert epochs[0] == epochs[2] != epochs[1] and not any(
        tokenizer.unk_token_id in row for row in epochs[1]
    )
