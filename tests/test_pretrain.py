"""Pretraining from the command line: what a recipe says is done, what it gets wrong costs one line,
and a killed run ends as one that was not.
"""

import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from small_runs import GRAMMAR, SMALL, lines
from transformers import AutoTokenizer, BertForMaskedLM

from mlm_lib import DATA, mixture, pretrain, recipes
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.log import History
from mlm_lib.grammar import Grammar
from mlm_lib.masking import MaskingCollator
from mlm_lib.modern import ModernEncoder
from mlm_lib.pretrain import main
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.recipes import read_recipe
from mlm_lib.training import TrainingConfig
from mlm_lib.wordpiece import WordPieceTokenizer
from mlm_lib.writing import write

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(pretrain.__file__).resolve().parents[1]
SCRIPTS = ROOT / "tests" / "scripts"
needs_grammar = pytest.mark.skipif(
    not (DATA / "grammar.toml").is_file(), reason="needs data/grammar.toml"
)
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(lines()) + "\n")
    return tmp_path / "corpus.txt"


@pytest.fixture
def recipe(tmp_path, corpus):
    """A function that writes a recipe: the small one, with tables added or lines replaced."""

    def write(more="", data=f'[[data]]\ncorpus = "{corpus}"\n', **replaced):
        rows = (data + SMALL).split("\n")
        for name, value in replaced.items():
            (place,) = [i for i, row in enumerate(rows) if row.startswith(f"{name} = ")]
            rows[place] = f"{name} = {value}"
        (tmp_path / "recipe.toml").write_text("\n".join(rows) + more)
        return tmp_path / "recipe.toml"

    return write


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """The corpus "grammar" is a small one."""
    (tmp_path / "zoo.toml").write_text(GRAMMAR)
    load = Grammar.load
    small = classmethod(lambda cls, path=None, worlds=None: load(tmp_path / "zoo.toml"))
    monkeypatch.setattr(mixture.Grammar, "load", small)


class Called(Exception):
    """Training would begin."""


@pytest.fixture
def asked(monkeypatch):
    """A function that carries a recipe out up to the training, and returns what that is given."""
    found = {}

    def train(model, dataset, collator, config, **options):
        found.update(model=model, dataset=dataset, collator=collator, config=config, **options)
        raise Called

    def ask(*arguments):
        with pytest.raises(Called):
            call(*arguments)
        return found

    monkeypatch.setattr(pretrain, "train", train)
    return ask


def run(script, *arguments, **options):
    """A program of the tests' own, or the command."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    own["TOKENIZERS_PARALLELISM"] = "false"
    line = [sys.executable, *script, *map(str, arguments)]
    return subprocess.Popen(
        line, env=os.environ | own, stdout=-1, stderr=-1, text=True, encoding="utf-8", **options
    )


def command(*arguments):
    process = run(["-m", "mlm_lib.pretrain"], *arguments)
    said, error = process.communicate(timeout=120)
    return process.returncode, said, error


def call(*arguments):
    return main([str(argument) for argument in arguments])


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def fails(capsys, *arguments):
    """The one line on stderr of a command that ends with exit status 1."""
    capsys.readouterr()
    assert call(*arguments) == 1
    line = capsys.readouterr().err.rstrip()
    assert line.startswith("error: ") and "\n" not in line
    return line


def files_of(out):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def model_file(out):
    return (out / "model" / "model.safetensors").read_bytes()


# ------------------------------------------------------------------------------------ end to end


@pytest.mark.slow
def test_the_command_trains_a_model_that_transformers_opens(tmp_path, recipe):
    out = tmp_path / "out"
    more = "log_every = 20\nevaluate_every = 60\nlearning_rate = 0.01\n"
    file = recipe(f'{more}[show]\nsentences = ["anna likes [MASK]"]\nevery = 60\n')
    status, said, error = command("--config", file, "--steps", 120, "--out", out)
    assert status == 0, error
    rows = log_of(out)
    assert rows[-1]["step"] == 120 and rows[-1]["loss"] < rows[0]["loss"] - 0.5
    held = [row[name] for row in rows for name in row if name.endswith("_loss")]
    assert len(held) == 2 and held[1] < held[0]
    assert "parameters" in said and "anna likes [MASK]  ->" in said
    assert f"saved {out / 'model'} after 120 steps" in said
    theirs = BertForMaskedLM.from_pretrained(out / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(out / "model")
    ours, _ = load_checkpoint(out / "model")
    batch = tokenizer(["anna likes [MASK] and eats"], return_tensors="pt")
    assert theirs.dtype == torch.float32 and len(tokenizer) == 90
    torch.testing.assert_close(
        ours(**batch)["logits"], theirs(**batch).logits, rtol=1e-4, atol=1e-4
    )
    own = WordPieceTokenizer.from_vocab(out / "tokenizer" / "vocab.txt")
    assert tokenizer.get_vocab() == own.vocab
    last = torch.load(out / "checkpoints" / "step-00000120" / "state.pt", weights_only=True)
    assert last["history"]["step"] == 120


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_may_be_saved_in_half_precision(tmp_path, recipe, dtype):
    out = tmp_path / "out"
    assert call("--config", recipe(f'[save]\ndtype = "{dtype}"\n'), "--out", out) == 0
    theirs = BertForMaskedLM.from_pretrained(out / "model")
    assert str(theirs.dtype) == f"torch.{dtype}"
    whole = (out / "checkpoints" / "step-00000006" / "model.safetensors").stat().st_size
    assert len(model_file(out)) < 0.7 * whole
    assert load_checkpoint(out / "model")[0].head.bias.dtype == torch.float32


def test_pretrain_returns_the_trained_model_its_tokenizer_and_the_history(tmp_path, recipe):
    model, tokenizer, history = pretrain.pretrain(read_recipe(recipe()), tmp_path / "out")
    assert history.step == 6 and len(tokenizer) == 90
    saved, _ = load_checkpoint(tmp_path / "out" / "model")
    for one, other in zip(model.state_dict().values(), saved.state_dict().values()):
        assert torch.equal(one, other)


def test_the_options_go_before_the_file(tmp_path, recipe, asked):
    other = tmp_path / "other.txt"
    other.write_text("\n".join(lines(90, seed=1)))
    options = {
        "--steps": 4, "--batch-size": 5, "--learning-rate": 0.25, "--seed": 7,
        "--precision": "bf16", "--checkpoint-every": 3, "--seconds": 9.5, "--device": "auto",
    }  # fmt: skip
    line = [part for pair in options.items() for part in pair]
    found = asked("--config", recipe(), "--corpus", other, *line, "--out", tmp_path / "out")
    for name, value in options.items():
        assert getattr(found["config"], name[2:].replace("-", "_")) == value
    assert len(found["dataset"]) == 72 and found["collator"].seed == 7


def test_what_the_command_trains_on_is_evaluated_and_kept_as_the_options_say(
    tmp_path, recipe, corpus
):
    out = tmp_path / "out"
    options = ["--steps", 4, "--checkpoint-every", 3, "--out", out]
    assert call("--config", recipe(), *options) == 0
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["step-00000003", "step-00000004"]
    assert f"{corpus}_loss" in log_of(out)[-1]


def test_seconds_are_a_budget(tmp_path, recipe):
    out = tmp_path / "out"
    assert call("--config", recipe(steps=100000), "--seconds", 0.3, "--out", out) == 0
    assert 1 <= log_of(out)[-1]["step"] < 100000


def test_two_runs_are_one_and_another_seed_is_another(tmp_path, recipe):
    for name, seed in ("one", 0), ("two", 0), ("three", 1):
        assert call("--config", recipe(), "--seed", seed, "--out", tmp_path / name) == 0
    one, two, three = (model_file(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three


def test_training_tells_the_mixture_each_epoch(tmp_path, recipe, monkeypatch):
    told, tell = [], mixture.Mixture.set_epoch

    def noted(self, epoch):
        told.append(epoch)
        tell(self, epoch)

    monkeypatch.setattr(mixture.Mixture, "set_epoch", noted)
    assert call("--config", recipe(batch_size=100), "--steps", 9, "--out", tmp_path / "out") == 0
    assert list(dict.fromkeys(told)) == [0, 1, 2]


def test_a_process_that_is_not_the_main_one_writes_nothing(tmp_path, recipe, monkeypatch, capsys):
    file, out = recipe(), tmp_path / "out"
    history = History(rows=[{"loss": 1.0}])
    monkeypatch.setattr(pretrain, "train", lambda *args, **options: history)
    monkeypatch.setenv("RANK", "1")
    assert call("--config", file, "--out", out) == 0
    assert not out.exists() and capsys.readouterr().out == ""


# ------------------------------------------------------------------------------------ defaults


def test_where_a_recipe_is_silent_the_defaults_of_the_classes_hold(tmp_path, corpus, asked):
    found = asked("--corpus", corpus, "--steps", 9, "--out", tmp_path / "out")
    vocab_size = found["model"].embedder.config.vocab_size
    shape = EncoderConfig(vocab_size, 128, 2, 2, 512)
    assert found["model"].embedder.config == shape
    assert asdict(found["config"]) == asdict(TrainingConfig(9, group_by_length=True))
    tokenizer = WordPieceTokenizer.train(list(mixture.Texts(str(corpus)).train), 8192)
    assert len(tokenizer) == vocab_size
    plain = vars(MaskingCollator(tokenizer, seed=0))
    for name in ("rate", "mask_share", "random_share", "strategy", "pad_to_multiple_of", "seed"):
        assert getattr(found["collator"], name) == plain[name]


def test_tables_take_every_argument_of_their_classes(tmp_path, recipe, asked):
    more = "eps = 1e-5\n[masking]\npad_to_multiple_of = 8\n"
    file = recipe(more, max_length='24\nactivation = "relu"\nattention_dropout = 0.25')
    found = asked("--config", file, "--out", tmp_path / "out")
    assert found["config"].eps == 1e-5 and found["collator"].pad_to_multiple_of == 8
    shape = found["model"].embedder.config
    assert (shape.activation, shape.attention_dropout, shape.intermediate_size) == (
        "relu",
        0.25,
        64,
    )


def test_the_recipe_of_course_bert_means_what_it_meant(tmp_path, zoo, asked, monkeypatch):
    """The numbers are those with which course-bert was made."""
    file, sample = DATA / "course-bert" / "recipe.toml", Grammar.sample
    sentences = tomllib.loads(file.read_text(encoding="utf-8"))["show"]["sentences"]
    texts = 9 * [*lines(20), *(text.replace("[MASK]", "") for text in sentences)]
    monkeypatch.setattr(mixture, "load_corpus", lambda source, split: texts)
    monkeypatch.setattr(Grammar, "sample", lambda self, n, *, seed: sample(self, 9, seed=seed))
    found = asked("--config", file, "--out", tmp_path / "out")
    assert [part.settings for part in found["dataset"].parts] == [
        {"corpus": "grammar", "documents": 28000, "held_out": 1000, "worlds": None},
        {"corpus": "reviews", "copies": 4, "blocks_every": None},
        {"corpus": "docs", "copies": 1, "blocks_every": 5},
    ]
    shape = found["model"].embedder.config
    assert shape == EncoderConfig(shape.vocab_size, 256, 4, 4, 1024, 256, dropout=0.1)
    assert found["config"] == TrainingConfig(
        None, 64, 1e-3, 0.02, 0.05, "auto", 0, 1000, 5000, "cosine", betas=(0.9, 0.98),
        log_every=100, evaluate_every=2000, group_by_length=True,
    )  # fmt: skip
    collator, show = found["collator"], found["callbacks"][-1]
    assert (collator.rate, collator.strategy, collator.seed) == (0.2, "whole_word", 0)
    assert (collator.mask_share, collator.random_share) == (0.8, 0.1)
    assert show.every == 2000 and [text for text, _ in show.rows] == sentences
    recipe = read_recipe(file)
    assert recipe["tokenizer"] == {"from": None, "vocab_size": 8192}
    assert recipe["save"] == {"dtype": "float16"}


def test_a_run_does_not_change_the_recipe_or_the_defaults(tmp_path, recipe):
    own, tables = json.dumps(recipes.OWN), read_recipe(recipe())
    before = json.dumps(tables)
    pretrain.pretrain(tables, tmp_path / "out")
    assert (json.dumps(recipes.OWN), json.dumps(tables)) == (own, before)
    assert call("--config", recipe(), "--steps", 1, "--out", tmp_path / "other") == 0
    assert json.dumps(recipes.OWN) == own


# ------------------------------------------------------------------------------------ wrong recipes

WRONG = {
    "unknown table": ("[modle]\nhidden_size = 4\n", ["modle", "model"]),
    "unknown key": ("[masking]\nshare = 0.1\n", ["[masking]", "share", "rate"]),
    "unknown key of the training": ("batchsize = 4\n", ["[training]", "batchsize", "batch_size"]),
    "a key that follows from another": ("[masking]\nseed = 4\n", ["[masking]", "'seed'", "rate"]),
    "no TOML": ("[masking\n", ["recipe.toml", "TOML"]),
    "rate": ("[masking]\nrate = 1.5\n", ["[masking]", "rate", "1.5"]),
    "rate in words": ("[masking]\nrate = 'much'\n", ["[masking]", "rate", "much"]),
    "strategy": ("[masking]\nstrategy = 'words'\n", ["[masking]", "strategy", "words"]),
    "learning rate": ("learning_rate = 'fast'\n", ["[training]", "learning_rate", "fast"]),
    "dtype": ("[save]\ndtype = 'float7'\n", ["[save]", "dtype", "float7"]),
    "dtype that is no type": ("[save]\ndtype = 'load'\n", ["[save]", "dtype", "load"]),
    "a sentence without a blank": (
        "[show]\nsentences = ['anna likes figs']\n",
        ["[show]", "anna likes figs", "[MASK]"],
    ),
    "a sentence that is no text": (
        "[show]\nsentences = [3]\n",
        ["[show]", "sentences=[3]", "texts"],
    ),
    "a sentence instead of a list": (
        "[show]\nsentences = '[MASK]'\n",
        ["[show] sentences='[MASK]'"],
    ),
    "a sentence longer than the model": (
        f"[show]\nsentences = ['anna likes [MASK]{8 * ' and figs'} . and bread']\n",
        ["[show]", "anna", "max_length=24"],
    ),
    "shown every 0 steps": (
        "[show]\nsentences = ['anna [MASK]']\nevery = 0\n",
        ["[show]", "every", "0"],
    ),
}
WRONG_DATA = {
    "data as one table": ('[data]\ncorpus = "reviews"\n', ["[[data]]"]),
    "data as a number": ("data = [3]\n", ["[[data]]", "3"]),
    "no data": ("data = []\n", ["data"]),
    "unknown key": ('[[data]]\ncorpus = "reviews"\ncopy = 3\n', ["[[data]]", "copy", "copies"]),
    "a key of another kind": ("[[data]]\ncopies = 3\n", ["grammar", "copies", "documents"]),
    "a corpus that is no text": ("[[data]]\ncorpus = 5\n", ["[[data]]", "corpus=5"]),
    "an empty corpus": ("[[data]]\ncorpus = ''\n", ["[[data]]", "corpus=''"]),
    "an empty stream": ("[[data]]\ncorpus = 'stream:'\n", ["[[data]]", "stream:"]),
    "no copies": ("[[data]]\ncorpus = 'reviews'\ncopies = 0\n", ["[[data]]", "copies=0"]),
}


def one_line(tmp_path, capsys, file, words):
    line = fails(capsys, "--config", file, "--out", tmp_path / "out")
    assert [word for word in words if word not in line] == [], line
    assert set(files_of(tmp_path / "out")) <= {tmp_path / "out" / ".lock"}


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(pretrain, "train", lambda *args, **options: pytest.fail("training began"))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recipe_is_one_line_before_training(tmp_path, recipe, capsys, no_training, name):
    one_line(tmp_path, capsys, recipe(WRONG[name][0]), WRONG[name][1])


@pytest.mark.parametrize("name", WRONG_DATA)
def test_wrong_data_are_one_line_before_training(tmp_path, recipe, capsys, no_training, name):
    one_line(tmp_path, capsys, recipe(data=WRONG_DATA[name][0]), WRONG_DATA[name][1])


@pytest.mark.parametrize(
    "table, key, value",
    [
        *(("training", "steps", value) for value in (0, '"many"')),
        *(("model", "hidden_size", value) for value in ('"big"', 15, 10**8, 2**80)),
        *(("tokenizer", "vocab_size", value) for value in (3, '"all"')),
        ("training", "precision", '"fp8"'),
        ("training", "batch_size", 2.5),
        *(("model", "num_layers", value) for value in (0, 10**9)),
        *(("model", "max_length", value) for value in ('"long"', 0)),
    ],
)
def test_a_wrong_number_is_one_line_that_names_its_table(
    tmp_path, recipe, capsys, no_training, table, key, value
):
    one_line(tmp_path, capsys, recipe(**{key: value}), [f"[{table}]", key, str(value).strip('"')])


def test_a_model_too_wide_for_the_default_of_its_inner_width_is_one_line(tmp_path, recipe, capsys):
    one_line(tmp_path, capsys, recipe(hidden_size=10**9), ["[model]", "size=", "000000000"])


def test_a_value_instead_of_a_table_is_one_line(tmp_path, capsys):
    (tmp_path / "recipe.toml").write_text("model = 3\n")
    one_line(tmp_path, capsys, tmp_path / "recipe.toml", ["[model]", "3", "table"])


def test_a_vocabulary_that_is_not_there_is_one_line(tmp_path, recipe, capsys, no_training):
    file = recipe(vocab_size='90\nfrom = "./no/nowhere"')
    one_line(tmp_path, capsys, file, ["nowhere"])


def test_files_that_cannot_be_read_are_one_line(tmp_path, capsys):
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    (tmp_path / "empty").mkdir()
    cases = [
        ("--config", tmp_path / "no.toml", "no.toml"),
        ("--config", tmp_path, str(tmp_path)),
        ("--config", tmp_path / "latin.toml", "latin.toml"),
        ("--config", "", "file=''"),
        ("--corpus", tmp_path / "no.txt", "no.txt"),
        ("--corpus", f"stream:{tmp_path / 'no-such'}", "no-such"),
        ("--corpus", f"stream:{tmp_path / 'empty'}", str(tmp_path / "empty")),
        ("--corpus", "gramar", "unknown corpus"),
        ("--corpus", "", "--corpus=''"),
        ("--corpus", " ", "--corpus=' '"),
    ]
    for option, value, word in cases:
        assert word in fails(capsys, option, value, "--steps", 1, "--out", tmp_path / "out")


def test_an_empty_name_of_the_folder_is_refused(capsys, monkeypatch, tmp_path, corpus):
    monkeypatch.chdir(tmp_path)
    assert "--out=''" in fails(capsys, "--corpus", corpus, "--steps", 1, "--out", "")
    assert os.listdir(tmp_path) == ["corpus.txt"]


def test_a_budget_is_needed(tmp_path, capsys, corpus):
    assert "steps" in fails(capsys, "--corpus", corpus, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_out_is_needed(capsys):
    with pytest.raises(SystemExit) as caught:
        call("--corpus", "reviews", "--steps", 1)
    assert caught.value.code == 2 and "--out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_recipe_ends_the_command_with_status_1_and_no_traceback(tmp_path, recipe):
    status, said, error = command("--config", recipe("[modle]\n"), "--out", tmp_path / "out")
    assert status == 1 and said == ""
    assert error.startswith("error: ") and error.count("\n") == 1


@pytest.mark.parametrize(
    "raised, status, said",
    [
        (KeyboardInterrupt, 130, "stopped; --resume"),
        (MemoryError, 1, "error: there is not enough memory"),
    ],
)
def test_a_run_that_is_ended_from_outside_is_one_line(
    tmp_path, recipe, monkeypatch, capsys, raised, status, said
):
    def train(*args, **options):
        raise raised

    monkeypatch.setattr(pretrain, "train", train)
    assert call("--config", recipe(), "--out", tmp_path / "out") == status
    error = capsys.readouterr().err
    assert error.startswith(said) and error.count("\n") == 1


def test_where_no_word_is_ever_hidden_nothing_is_saved(tmp_path, recipe, capsys):
    out = tmp_path / "out"
    fails(capsys, "--config", recipe("[masking]\nrate = 0.0\n"), "--out", out)
    assert not (out / "model").exists()
    vocab, empty = out / "tokenizer" / "vocab.txt", tmp_path / "empty.txt"
    empty.write_text("\n".join(30 * ["\u200b"]))  # no blank, and no token
    data = f'[[data]]\ncorpus = "stream:{empty}"\nheld_out = 0\n'
    other = tmp_path / "other"
    fails(capsys, "--config", recipe(data=data, vocab_size=f'90\nfrom = "{vocab}"'), "--out", other)
    assert not (other / "model").exists()


# ------------------------------------------------------------------------------------ one writer


def test_a_run_is_not_overwritten_and_its_tokenizer_stays(tmp_path, recipe, capsys):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    before = files_of(out)
    assert "resume" in fails(capsys, "--config", recipe(vocab_size=70), "--out", out)
    assert files_of(out) == before


@pytest.mark.parametrize("option", [[], ["--resume"]])
def test_a_finished_model_is_not_overwritten_when_its_checkpoints_are_gone(
    tmp_path, recipe, capsys, option
):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    (out / "checkpoints").rename(tmp_path / "checkpoints")
    before = files_of(out)
    assert str(out) in fails(capsys, "--config", recipe(), "--out", out, *option)
    assert files_of(out) == before


@pytest.mark.slow
def test_a_second_program_is_refused_before_it_writes(tmp_path, recipe, capsys):
    out = tmp_path / "out"
    holder = run([SCRIPTS / "hold_folder.py"], out, stdin=-1)
    try:
        assert holder.stdout.readline() == "held\n"
        line = fails(capsys, "--config", recipe(), "--out", out)
        assert "another program" in line and str(out) in line
        assert set(files_of(out)) == {out / ".lock"}
    finally:
        holder.communicate()
    assert call("--config", recipe(), "--out", out) == 0


def test_a_run_that_failed_before_its_first_checkpoint_does_not_leave_its_tokenizer_to_the_next(
    tmp_path, recipe, capsys
):
    out = tmp_path / "out"
    fails(capsys, "--config", recipe("[masking]\nrate = 2\n", vocab_size=70), "--out", out)
    assert call("--config", recipe(vocab_size=90), "--out", out) == 0
    assert len(AutoTokenizer.from_pretrained(out / "model")) == 90


# ------------------------------------------------------------------------------------ resume


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    process = run([SCRIPTS / "killed_runs.py"], root)
    said, error = process.communicate(timeout=280)
    assert process.returncode == 0, error
    return root, json.loads(said.splitlines()[-1]), error


@posix
@pytest.mark.slow
@pytest.mark.parametrize("form", ["memory", "folder", "jsonl"])
def test_a_command_that_was_killed_and_resumed_saves_the_model_of_one_that_was_not(survived, form):
    root, statuses, errors = survived
    assert statuses[form] == [0, *4 * [signal.SIGKILL], 0], errors
    whole, killed = root / form / "whole", root / form / "killed"
    for name in ("model/model.safetensors", "tokenizer/vocab.txt"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    rows = [log_of(out) for out in (whole, killed)]
    for row in [row for log in rows for row in log]:
        for name in [name for name in row if "_loss" in name or "second" in name]:
            del row[name]
    assert rows[0] == rows[1] and rows[0][-1]["epoch"] >= 2
    kept = sorted(path.name for path in (killed / "checkpoints").iterdir())
    assert kept == ["step-00000108", "step-00000110"]


def test_a_finished_command_that_is_resumed_saves_the_same_model(tmp_path, recipe):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    before = model_file(out)
    assert call("--config", recipe(), "--out", out, "--resume") == 0
    assert model_file(out) == before and log_of(out)[-1]["step"] == 6


def test_a_run_whose_vocabulary_is_gone_is_one_line(tmp_path, recipe, capsys):
    out = tmp_path / "out"
    assert call("--config", recipe(), "--out", out) == 0
    (out / "tokenizer" / "vocab.txt").unlink()
    assert "vocab.txt" in fails(capsys, "--config", recipe(), "--resume", "--out", out)


def texts_edited(out, corpus):
    corpus.write_text(corpus.read_text().replace("anna", "anne"))


def lines_swapped(out, corpus):
    vocab = out / "tokenizer" / "vocab.txt"
    rows = vocab.read_text().split("\n")
    rows[-2], rows[-3] = rows[-3], rows[-2]
    vocab.write_text("\n".join(rows))


EDITS = {
    "width": {"hidden_size": 32},
    "layers": {"num_layers": 2},
    "heads": {"num_heads": 4},
    "length": {"max_length": 30},
    "dropout": {"max_length": "24\ndropout = 0.2"},
    "activation": {"max_length": '24\nactivation = "relu"'},
    "batch": {"batch_size": 8},
    "tokenizer": {"vocab_size": 80},
    "rate": {"more": "[masking]\nrate = 0.5\n"},
    "shares": {"more": "[masking]\nmask_share = 0.7\n"},
    "strategy": {"more": '[masking]\nstrategy = "whole_word"\n'},
    "texts": texts_edited,
    "vocabulary": lines_swapped,
}


@pytest.mark.parametrize("name", EDITS)
def test_a_run_is_not_resumed_with_another_model_vocabulary_masking_or_texts(
    tmp_path, recipe, capsys, corpus, name
):
    out, edit = tmp_path / "out", EDITS[name]
    assert call("--config", recipe(), "--out", out) == 0
    if callable(edit):
        edit(out, corpus)
    file = recipe() if callable(edit) else recipe(**edit)
    before = files_of(out)
    fails(capsys, "--config", file, "--resume", "--out", out)
    assert files_of(out) == before


# ------------------------------------------------------------------------------------ kinds of data


def test_the_command_line_alone_can_train_on_a_stream(tmp_path, monkeypatch):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines(700)))
    small = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "max_length": 24}
    monkeypatch.setitem(recipes.OWN, "model", small)
    monkeypatch.setitem(recipes.OWN, "tokenizer", {"from": None, "vocab_size": 90})
    options = ["--steps", 2, "--precision", "fp32", "--out", tmp_path / "out"]
    assert call("--corpus", f"stream:{path}", *options) == 0
    assert "stream_loss" in log_of(tmp_path / "out")[-1]


STREAMS = {
    "mixed": ([], ["stream", "mixed"]),
    "no column": ([{"body": "a"}] * 30, ["text", "body"]),
    "not JSON": ("{'text'\n" * 30, ["line 1", "JSON"]),
    "text that is a number": ([{"text": 5}] * 30, ["text", "5"]),
    "smaller than what is held out": ([{"text": "a b c d e f g"}] * 5, ["held_out=10"]),
    "exactly what is held out": ([{"text": "a b c d e f g"}] * 10, ["held_out=10"]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_cannot_be_used_is_one_line(tmp_path, corpus, recipe, capsys, name):
    rows, words = STREAMS[name]
    path = tmp_path / "texts.jsonl"
    rows = rows or [{"text": text} for text in lines(30)]
    path.write_text(rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows)))
    other = f'[[data]]\ncorpus = "{corpus}"\n' if name == "mixed" else ""
    data = f'{other}[[data]]\ncorpus = "stream:{path}"\nheld_out = 10\n'
    one_line(tmp_path, capsys, recipe(data=data), words)


def test_the_floor_of_a_grammar_is_below_the_loss_of_an_untrained_model(
    zoo, tmp_path, recipe, capsys
):
    file = recipe(data='[[data]]\ncorpus = "grammar"\ndocuments = 60\nheld_out = 40\n')
    assert call("--config", file, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out.splitlines()
    (line,) = [line for line in said if "no model can go below" in line]
    floor = float(line.split("below")[1].split()[0])
    assert 0 < floor < log_of(tmp_path / "out")[-1]["grammar_loss"]


def test_a_recipe_may_ask_for_a_model_that_writes(zoo, tmp_path, recipe, capsys, asked):
    data = 'objective = "diffusion"\n[[data]]\ndocuments = 60\nheld_out = 40\n'
    found = asked("--config", recipe('[masking]\ndraw = "count"\n', data=data), "--out", tmp_path)
    collator = found["collator"]
    assert isinstance(collator, DiffusionCollator) and (collator.draw, collator.seed) == (
        "count",
        0,
    )
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "no bound can go below" in line]
    look = found["evaluate"](found["model"])
    assert 0 < float(line.split("below")[1].split()[0]) < look["grammar_bound"]
    assert look.keys() == {"grammar_loss", "grammar_bound"}


def test_a_run_that_learns_to_write_ends_and_is_not_resumed_as_another(
    zoo, tmp_path, recipe, capsys
):
    data = "[[data]]\ndocuments = 60\nheld_out = 40\n"
    file = recipe(data='objective = "diffusion"\n' + data)
    assert call("--config", file, "--out", tmp_path / "out") == 0
    row = log_of(tmp_path / "out")[-1]
    assert {"grammar_loss", "grammar_bound"} <= row.keys() and row["loss"] > 0
    model, tokenizer = load_checkpoint(tmp_path / "out" / "model")
    assert len(write(model, tokenizer, [6])[0]) == 6
    capsys.readouterr()
    assert call("--config", recipe(data=data), "--out", tmp_path / "out", "--resume") == 1
    assert "collator" in capsys.readouterr().err


def test_a_recipe_may_ask_for_the_encoder_of_today(tmp_path, recipe, asked):
    modern = {"num_layers": '2\nencoder = "modern"\nwindow = 6'}
    encoder = asked("--config", recipe(**modern), "--out", tmp_path / "out")["model"].embedder
    assert isinstance(encoder, ModernEncoder)
    assert (encoder.config.window, encoder.config.num_layers) == (6, 2)
    assert encoder.config.intermediate_size == encoder.config.hidden_size * 3 // 2


@pytest.mark.parametrize(
    "value, words",
    [
        ('2\nencoder = "old"', ["[model]", "encoder='old'", "bert, modern"]),
        ("2\nwindow = 6", ["[model] has 'window'", "dropout"]),
        ('2\nencoder = "modern"\ndropout = 0.1', ["[model] has 'dropout'", "window"]),
        ('2\nencoder = "modern"\nwindow = 0', ["[model]", "window=0"]),
    ],
)
def test_what_an_encoder_does_not_have_is_one_line(tmp_path, recipe, capsys, value, words):
    one_line(tmp_path, capsys, recipe(num_layers=value), words)


@pytest.mark.parametrize(
    "data, more, words",
    [
        ('objective = "flow"\n', "", "objective='flow'; one of masked, diffusion"),
        ('objective = "diffusion"\n', "[masking]\nrate = 0.2\n", "it may have draw, pad_to"),
        ('objective = "diffusion"\n', '[masking]\ndraw = "t"\n', "[masking] draw='t'; one of"),
        ("", '[masking]\ndraw = "count"\n', "[masking] has 'draw'; it may have rate"),
    ],
)
def test_an_objective_that_is_none_is_one_line(tmp_path, recipe, corpus, capsys, data, more, words):
    file = recipe(more, data=f'{data}[[data]]\ncorpus = "{corpus}"\n')
    one_line(tmp_path, capsys, file, [words])


# ------------------------------------------------------------------------------------ going on from

FROM = '[model]\nfrom = "{}"\ndropout = 0.0\n'
DATA_OF = '[[data]]\ncorpus = "{}"\n'


@pytest.fixture
def going_on(tmp_path, corpus, folder):
    """A function that writes a recipe which goes on from a checkpoint, on texts of its words."""
    words = [word for word in load_checkpoint(folder)[1].get_vocab() if word.isalpha()]
    corpus.write_text("\n".join(" ".join(words[n:] + words[:n]) for n in range(len(words))))

    def write(model=FROM.format("{folder}"), source=folder):
        text = DATA_OF.format(corpus) + model.format(folder=source) + "[training]\nsteps = 1\n"
        (tmp_path / "further.toml").write_text(text)
        return tmp_path / "further.toml"

    return write


@pytest.mark.parametrize("objective", ["masked", "diffusion"])
def test_a_recipe_may_go_on_from_a_checkpoint(tmp_path, going_on, folder, asked, objective):
    file = going_on()
    file.write_text(f'objective = "{objective}"\n' + file.read_text())
    found = asked("--config", file, "--out", tmp_path / "out")
    source, tokenizer = load_checkpoint(folder)
    for name, weight in source.state_dict().items():
        assert torch.equal(found["model"].state_dict()[name], weight), name
    config = found["model"].embedder.config
    assert config.dropout == 0 and config.hidden_size == source.embedder.config.hidden_size
    vocab = (tmp_path / "out" / "tokenizer" / "vocab.txt").read_text().split("\n")[:-1]
    assert vocab == sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)


@pytest.mark.parametrize(
    "model, words",
    [
        ('[model]\nfrom = "{folder}"\nhidden_size = 8\n', ["[model] has 'hidden_size'", "from, "]),
        ('[model]\nfrom = "{folder}"\nmlp_dropout = 0.0\n', ["[model] has 'mlp_dropout'", "tiny"]),
        ('[model]\nfrom = "{folder}"\ndropout = 1.5\n', ["[model] dropout=1.5"]),
        ('[model]\nfrom = ""\n', ["[model]", "''"]),
        (
            '[tokenizer]\nfrom = "course-bert"\n[model]\nfrom = "{folder}"\n',
            ["[tokenizer] is not that of [model] from"],
        ),
    ],
)
def test_what_a_checkpoint_settles_cannot_be_said_again(tmp_path, going_on, capsys, model, words):
    one_line(tmp_path, capsys, going_on(model=model), words)


# ------------------------------------------------------------------------------------ course-writer


def test_the_recipe_of_course_writer_means_what_it_meant(tmp_path, asked, monkeypatch):
    texts = [" ".join(words) for words in Grammar.load(worlds=["films"]).sample(9)]
    monkeypatch.setattr(mixture.Documents, "_sample", lambda self, number, seed: texts)
    found = asked("--config", DATA / "course-writer" / "recipe.toml", "--out", tmp_path / "out")
    assert found["collator"].draw == "count" and found["model"].embedder.config.dropout == 0
    settings = found["dataset"].parts[0].settings
    assert (settings["worlds"], settings["longest"]) == (["films"], 32)
    size = sum(weight.numel() for weight in found["model"].parameters())
    assert 2 * size < 12e6  # bytes of half precision


def test_a_grammar_with_nothing_held_out_is_trained_on(zoo, tmp_path, recipe, capsys):
    file = recipe(data="[[data]]\ndocuments = 60\nheld_out = 0\n")
    assert call("--config", file, "--out", tmp_path / "out") == 0
    assert "floor" not in capsys.readouterr().out
    assert "grammar_loss" not in log_of(tmp_path / "out")[-1]


def test_a_model_too_short_for_the_grammar_is_one_line_that_names_the_least_length(
    zoo, tmp_path, recipe, capsys
):
    data = "[[data]]\ndocuments = 60\nheld_out = 40\n"
    one_line(tmp_path, capsys, recipe(data=data, max_length=7), ["max_length=7", "raise it to 12"])
    assert call("--config", recipe(data=data, max_length=12), "--out", tmp_path / "out") == 0


def test_a_vocabulary_without_the_words_of_the_grammar_is_one_line_and_a_larger_one_then_works(
    zoo, tmp_path, recipe, capsys
):
    data = "[[data]]\ndocuments = 60\nheld_out = 40\n"
    one_line(tmp_path, capsys, recipe(data=data, vocab_size=45), ["raise vocab_size"])
    assert call("--config", recipe(data=data), "--out", tmp_path / "out") == 0


def test_a_grammar_and_texts_mix_and_each_is_evaluated(zoo, tmp_path, recipe, corpus):
    data = f'[[data]]\ndocuments = 30\nheld_out = 40\n[[data]]\ncorpus = "{corpus}"\ncopies = 2\n'
    assert call("--config", recipe(data=data, vocab_size=150), "--out", tmp_path / "out") == 0
    assert {"grammar_loss", f"{corpus}_loss"} <= log_of(tmp_path / "out")[-1].keys()


@needs_grammar
@pytest.mark.slow
def test_the_course_s_grammar_trains_from_the_command_line(tmp_path, recipe):
    data = "[[data]]\ndocuments = 300\nheld_out = 30\n"
    file = recipe(data=data, vocab_size=8192, max_length=128)
    status, said, error = command("--config", file, "--out", tmp_path / "out")
    assert status == 0, error
    assert "no model can go below" in said and "grammar_loss" in log_of(tmp_path / "out")[-1]
