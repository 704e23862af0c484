"""Pretraining from the command line: what a recipe says is done, what it gets wrong costs one line,
a killed run ends as one that was not, and a mixture holds what it should in each epoch.
"""

import copy
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict
from functools import partial
from pathlib import Path

import psutil
import pytest
import tiny_bert
import torch
from small_runs import GRAMMAR, SMALL, lines
from transformers import AutoTokenizer, BertForMaskedLM

from mlm_lib import DATA, pretrain, training_data
from mlm_lib.corpus import load_corpus
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine import command_line
from mlm_lib.engine import recipe as engine_recipe
from mlm_lib.engine.batches import BatchSampler
from mlm_lib.engine.log import History, TrainingStopped
from mlm_lib.engine.prepared import TokenizedCorpus
from mlm_lib.engine.recipe import fill_in_defaults, read_recipe
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.modern import ModernEncoder
from mlm_lib.pretrain import main
from mlm_lib.pretrained import load_checkpoint, save_pretrained
from mlm_lib.training import TrainingConfig
from mlm_lib.training_data import HELD_OUT_SEED, DataMixture, GrammarCorpus, TextCorpus
from mlm_lib.wordpiece import WordPieceTokenizer
from mlm_lib.writing import write

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(pretrain.__file__).resolve().parents[1]
SCRIPTS = ROOT / "tests" / "scripts"
OUT, CORPUS = Path("out"), Path("corpus.txt")
TEXTS = '[[data]]\ncorpus = "corpus.txt"\n'
ZOO = "[[data]]\ndocuments = 60\nheld_out = 40\n"


@pytest.fixture(autouse=True)
def corpus(tmp_path, monkeypatch):
    """Each test stands in a folder of its own, beside some texts."""
    monkeypatch.chdir(tmp_path)
    CORPUS.write_text("\n".join(lines()) + "\n")


def recipe(more="", data=TEXTS, **replaced):
    """Writes a recipe: the small one, with tables added or lines replaced."""
    rows = (data + SMALL).split("\n")
    for name, value in replaced.items():
        (place,) = [i for i, row in enumerate(rows) if row.startswith(f"{name} = ")]
        rows[place] = f"{name} = {value}"
    Path("recipe.toml").write_text("\n".join(rows) + more)
    return "recipe.toml"


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """The corpus "grammar" is a small one."""
    (tmp_path / "zoo.toml").write_text(GRAMMAR)
    load = Grammar.load
    small = classmethod(lambda cls, path=None, worlds=None: load(tmp_path / "zoo.toml"))
    monkeypatch.setattr(Grammar, "load", small)


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
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")])
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    own["TOKENIZERS_PARALLELISM"] = "false"
    line = [sys.executable, *script, *map(str, arguments)]
    return subprocess.Popen(
        line, env=os.environ | own, stdout=-1, stderr=-1, text=True, encoding="utf-8", **options
    )


def call(*arguments, out=OUT):
    return main([*map(str, arguments), "--out", str(out)])


def log_of(out=OUT):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def fails(capsys, *arguments, out=OUT):
    """The one line on stderr of a command that ends with exit status 1."""
    capsys.readouterr()
    assert call(*arguments, out=out) == 1
    line = capsys.readouterr().err.rstrip()
    assert line.startswith("error: ") and "\n" not in line
    return line


def files_of(out=OUT):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def model_file(out=OUT):
    return (out / "model" / "model.safetensors").read_bytes()


# ------------------------------------------------------------------------------------ end to end


@pytest.mark.slow
def test_the_command_trains_a_model_that_transformers_opens():
    more = "log_every = 20\nevaluate_every = 60\nlearning_rate = 0.01\n"
    file = recipe(f'{more}[show]\nsentences = ["anna likes [MASK]"]\nevery = 60\n')
    process = run(["-m", "mlm_lib.pretrain"], "--config", file, "--steps", 120, "--out", OUT)
    said, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    rows = log_of()
    assert rows[-1]["step"] == 120 and rows[-1]["loss"] < rows[0]["loss"] - 0.5
    held = [row[name] for row in rows for name in row if name.endswith("_loss")]
    assert len(held) == 2 and held[1] < held[0]
    assert "parameters" in said and "anna likes [MASK]  ->" in said
    assert f"saved {OUT / 'model'} after 120 steps" in said
    theirs = BertForMaskedLM.from_pretrained(OUT / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(OUT / "model")
    ours, _ = load_checkpoint(OUT / "model")
    batch = tokenizer(["anna likes [MASK] and eats"], return_tensors="pt")
    assert theirs.dtype == torch.float32 and len(tokenizer) == 90
    torch.testing.assert_close(
        ours(**batch)["logits"], theirs(**batch).logits, rtol=1e-4, atol=1e-4
    )
    own = WordPieceTokenizer.from_vocab(OUT / "tokenizer" / "vocab.txt")
    assert tokenizer.get_vocab() == own.vocab


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_may_be_saved_in_half_precision(dtype):
    assert call("--config", recipe(f'[save]\ndtype = "{dtype}"\n')) == 0
    assert str(BertForMaskedLM.from_pretrained(OUT / "model").dtype) == f"torch.{dtype}"
    assert load_checkpoint(OUT / "model")[0].head.bias.dtype == torch.float32


def test_pretrain_returns_what_it_saves_and_does_not_change_recipe_or_defaults():
    tables = read_recipe(recipe())
    before = copy.deepcopy((tables, engine_recipe.DEFAULTS))
    model, tokenizer, history = pretrain.pretrain(tables, OUT)
    assert history.step == 6 and len(tokenizer) == 90
    saved, _ = load_checkpoint(OUT / "model")
    for one, other in zip(model.state_dict().values(), saved.state_dict().values()):
        assert torch.equal(one, other)
    assert (tables, engine_recipe.DEFAULTS) == before


def test_the_options_go_before_the_file(asked):
    Path("other.txt").write_text("\n".join(lines(90, seed=1)))
    options = {
        "--steps": 4, "--batch-size": 5, "--learning-rate": 0.25, "--seed": 7,
        "--precision": "bf16", "--checkpoint-every": 3, "--seconds": 9.5, "--device": "auto",
    }  # fmt: skip
    line = [part for pair in options.items() for part in pair]
    found = asked("--config", recipe(), "--corpus", "other.txt", *line)
    for name, value in options.items():
        assert getattr(found["config"], name[2:].replace("-", "_")) == value
    assert found["dataset"].parts[0].counts["texts"] == 81 and found["collator"].seed == 7


def test_two_runs_are_one_and_another_seed_is_another():
    for name, seed in ("one", 0), ("two", 0), ("three", 1):
        assert call("--config", recipe(), "--seed", seed, out=name) == 0
    one, two, three = (model_file(Path(name)) for name in ("one", "two", "three"))
    assert one == two != three


def test_a_process_that_is_not_the_main_one_writes_nothing(monkeypatch, capsys):
    history = History(rows=[{"loss": 1.0}])
    monkeypatch.setattr(pretrain, "train", lambda *args, **options: history)
    monkeypatch.setenv("RANK", "1")
    assert call("--config", recipe()) == 0
    assert not OUT.exists() and capsys.readouterr().out == ""


# ------------------------------------------------------------------------------------ recipes


def test_where_a_recipe_is_silent_the_defaults_of_the_classes_hold(asked):
    found = asked("--corpus", CORPUS, "--steps", 9)
    vocab_size = found["model"].embedder.config.vocab_size
    assert found["model"].embedder.config == EncoderConfig(vocab_size, 128, 2, 2, 512)
    assert asdict(found["config"]) == asdict(TrainingConfig(9, group_by_length=True))
    tokenizer = WordPieceTokenizer.train(TextCorpus("corpus.txt").train, 8192)
    assert len(tokenizer) == vocab_size
    assert found["collator"].fingerprint() == MaskingCollator(tokenizer, seed=0).fingerprint()


@pytest.mark.slow
def test_the_recipe_of_course_bert_means_what_it_meant(zoo, asked, monkeypatch):
    """The numbers are those with which course-bert was made."""
    file, sample = DATA / "course-bert" / "recipe.toml", Grammar.sample
    sentences = tomllib.loads(file.read_text(encoding="utf-8"))["show"]["sentences"]
    texts = 9 * [*lines(20), *(text.replace("[MASK]", "") for text in sentences)]
    monkeypatch.setattr(
        training_data, "split_to_train", lambda *asked, **more: (texts, texts, texts)
    )
    monkeypatch.setattr(Grammar, "sample", lambda self, n, *, seed: sample(self, 9, seed=seed))
    found = asked("--config", file)
    grammar, reviews, docs = found["dataset"].parts
    assert (grammar.documents, grammar.held_out, grammar.longest) == (28000, 1000, None)
    assert (reviews.name, reviews.copies, reviews.blocks_every) == ("reviews", 4, None)
    assert (docs.name, docs.copies, docs.blocks_every) == ("docs", 1, 5)
    shape = found["model"].embedder.config
    assert shape == EncoderConfig(
        shape.vocab_size, 256, 4, 4, 1024, 256, dropout=0.1, attention_dropout=0.0
    )
    assert found["config"] == TrainingConfig(
        None, 64, 1e-3, 0.02, 0.05, "auto", 0, 500, 6945, "cosine", betas=(0.9, 0.98),
        log_every=100, evaluate_every=2000, group_by_length=True, packing=True,
        optimizer="muon", inner_learning_rate=1.5e-3,
    )  # fmt: skip
    collator, show = found["collator"], found["callbacks"][-1]
    assert (collator.rate, collator.strategy, collator.seed) == (0.15, "token", 0)
    assert (collator.mask_share, collator.random_share) == (0.8, 0.1)
    assert show.every == 2000 and [text for text, _ in show.rows] == sentences
    tables = read_recipe(file)
    assert fill_in_defaults(tables) == tables
    assert tables["tokenizer"]["vocab_size"] == 8192 and tables["save"] == {"dtype": "float16"}
    assert set("~“—€") < set(tables["tokenizer"]["initial_alphabet"])


def test_the_recipe_of_course_writer_means_what_it_meant(asked, monkeypatch):
    texts = [" ".join(words) for words in Grammar.load(worlds=["films"]).sample(9)]
    monkeypatch.setattr(GrammarCorpus, "_sample", lambda self, number, seed: texts)
    found = asked("--config", DATA / "course-writer" / "recipe.toml")
    assert found["collator"].draw == "count" and found["model"].embedder.config.dropout == 0
    assert found["dataset"].parts[0].longest == 32
    size = sum(weight.numel() for weight in found["model"].parameters())
    assert 2 * size < 12e6  # bytes of half precision


# ------------------------------------------------------------------------------------ mistakes

# What is added to the recipe, or the lines that are replaced, and words of the refusal.
WRONG = {
    "unknown table": ("[modle]\nhidden_size = 4\n", ["modle", "model"]),
    "unknown key": ("[masking]\nshare = 0.1\n", ["[masking]", "'share'"]),
    "a key that follows from another": ("[masking]\nseed = 4\n", ["[masking]", "'seed'"]),
    "no TOML": ("[masking\n", ["recipe.toml", "Expected ']'"]),
    "dtype that is no type": ("[save]\ndtype = 'load'\n", ["[save]", "dtype", "load"]),
    "a sentence without a blank": ("[show]\nsentences = ['figs']\n", ["[show]", "figs", "[MASK]"]),
    "a sentence longer than the model": (
        f"[show]\nsentences = ['anna likes [MASK]{8 * ' and figs'} . and bread']\n",
        ["[show]", "anna", "max_length=24"],
    ),
    "steps": ({"steps": 0}, ["[training]", "steps=0"]),
    "width": ({"hidden_size": 15}, ["[model]", "hidden_size=15"]),
    "vocabulary": ({"vocab_size": 3}, ["[tokenizer]", "vocab_size=3"]),
    "unknown encoder": ({"num_layers": '1\nencoder = "old"'}, ["[model]", "encoder='old'"]),
    "a size that follows": ({"num_layers": "1\nvocab_size = 6"}, ["[model]", "'vocab_size'"]),
    "data as one table": ({"data": '[data]\ncorpus = "reviews"\n'}, ["[data] is {'corpus'"]),
    "unknown objective": ({"data": 'objective = "flow"\n' + ZOO}, ["objective='flow'"]),
    "a key of another kind": ({"data": "[[data]]\ncopies = 3\n"}, ["[[data]]", "'copies'"]),
    "a seed of its own": ({"data": "[[data]]\nseed = 3\n"}, ["[[data]]", "'seed'"]),
    "an empty corpus": ({"data": "[[data]]\ncorpus = ''\n"}, ["[[data]]", "''"]),
    "no copies": ({"data": "[[data]]\ncorpus = 'reviews'\ncopies = 0\n"}, ["[[data]]", "copies=0"]),
    "too short for any": (
        {"data": "[[data]]\nlongest = 2\ndocuments = 9\n"},
        ["[[data]]", "longest=2"],
    ),
}


def one_line(capsys, file, words):
    line = fails(capsys, "--config", file)
    assert [word for word in words if word not in line] == [], line
    assert set(files_of()) <= {OUT / ".lock"}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recipe_is_one_line_before_training(zoo, capsys, name):
    change, words = WRONG[name]
    change = {"more": change} if isinstance(change, str) else change
    one_line(capsys, recipe(**change), words)


def test_options_and_files_that_will_not_do_are_one_line(capsys):
    Path("latin.toml").write_bytes(b"# caf\xe9\n")
    Path("three.toml").write_text("model = 3\n")
    train = ["--corpus", CORPUS, "--steps", 1]
    cases = [
        (["--config", "no.toml"], "no.toml"),
        (["--config", ".."], "'..'"),
        (["--config", "latin.toml"], "latin.toml"),
        (["--config", "three.toml"], "[model] is 3"),
        (["--config", ""], "'.'"),
        (["--corpus", "no.txt"], "no.txt"),
        (["--corpus", "gramar"], "unknown corpus"),
        (["--corpus", " "], "source=' '"),
        (["--steps", 0], "steps=0"),
        (["--device", "tpu9"], "tpu9"),
    ]
    for option, word in cases:
        assert word in fails(capsys, *train, *option), option
    assert "steps" in fails(capsys, "--corpus", CORPUS)  # a budget is needed
    assert "out=''" in fails(capsys, *train, out="")


@pytest.mark.parametrize(
    "raised, status, said",
    [
        (KeyboardInterrupt, 130, "stopped at step 0; there is no checkpoint yet"),
        (MemoryError, 1, "error: there is not enough memory"),
    ],
)
def test_a_run_that_is_ended_from_outside_is_one_line(monkeypatch, capsys, raised, status, said):
    def train(*args, **options):
        raise raised

    monkeypatch.setattr(pretrain, "train", train)
    assert call("--config", recipe()) == status
    error = capsys.readouterr().err
    assert error.startswith(said) and error.count("\n") == 1


# ------------------------------------------------------------------------------------ one writer


@pytest.mark.parametrize("gone, option", [(False, []), (True, []), (True, ["--resume"])])
def test_a_run_is_not_overwritten_and_its_tokenizer_stays(tmp_path, capsys, gone, option):
    assert call("--config", recipe()) == 0
    if gone:
        (OUT / "checkpoints").rename(tmp_path / "checkpoints")
    before = files_of()
    line = fails(capsys, "--config", recipe(vocab_size=70), *option)
    assert str(OUT) in line and files_of() == before


@pytest.mark.slow
def test_a_second_program_is_refused_before_it_writes(capsys):
    holder = run([SCRIPTS / "hold_folder.py"], OUT, stdin=-1)
    try:
        assert holder.stdout.readline() == "held\n"
        line = fails(capsys, "--config", recipe())
        assert "another program" in line and str(OUT) in line
        assert set(files_of()) == {OUT / ".lock"}
    finally:
        holder.communicate()
    assert call("--config", recipe()) == 0


def test_a_run_that_failed_at_its_start_does_not_leave_its_tokenizer_to_the_next(capsys):
    fails(capsys, "--config", recipe("[masking]\nrate = 0.0\n", vocab_size=70))
    assert not (OUT / "model").exists()  # no word was ever hidden
    assert call("--config", recipe(vocab_size=90)) == 0
    assert len(AutoTokenizer.from_pretrained(OUT / "model")) == 90


# ------------------------------------------------------------------------------------ resume


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    process = run([SCRIPTS / "killed_runs.py"], root)
    said, error = process.communicate(timeout=280)
    assert process.returncode == 0, error
    return root, json.loads(said.splitlines()[-1]), error


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
@pytest.mark.parametrize("form", ["masked", "diffusion"])
def test_a_command_that_was_killed_and_resumed_saves_the_model_of_one_that_was_not(survived, form):
    root, statuses, errors = survived
    assert statuses[form] == [0, *4 * [signal.SIGKILL], 0], errors
    whole, killed = root / form / "whole", root / form / "killed"
    for name in ("model/model.safetensors", "tokenizer/vocab.txt"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    rows = [log_of(out) for out in (whole, killed)]
    for row in [row for log in rows for row in log]:
        for name in [name for name in row if "second" in name]:
            del row[name]
    assert rows[0] == rows[1] and rows[0][-1]["epoch"] >= 1
    kept = sorted(path.name for path in (killed / "checkpoints").iterdir())
    assert kept == ["step-00000108", "step-00000110"]


def test_a_finished_command_that_is_resumed_saves_the_same_model():
    assert call("--config", recipe()) == 0
    before = model_file()
    assert call("--config", recipe(), "--resume") == 0
    assert model_file() == before and log_of()[-1]["step"] == 6


def texts_edited():
    CORPUS.write_text(CORPUS.read_text().replace("anna", "anne"))


def lines_swapped():
    vocab = OUT / "tokenizer" / "vocab.txt"
    rows = vocab.read_text().split("\n")
    rows[-2], rows[-3] = rows[-3], rows[-2]
    vocab.write_text("\n".join(rows))


def vocabulary_gone():
    (OUT / "tokenizer" / "vocab.txt").unlink()


MODERN = {"num_layers": '1\nencoder = "modern"'}
EDITS = {
    "heads": {"num_heads": 4},
    "dropout": {"max_length": "24\ndropout = 0.2"},
    "batch": {"batch_size": 8},
    "tokenizer": {"vocab_size": 80},
    "rate": {"more": "[masking]\nrate = 0.5\n"},
    "objective": {"data": 'objective = "diffusion"\n' + TEXTS},
    "copies": {"data": TEXTS + "copies = 2\n"},
    "length": {"max_length": 30},
    "length of an encoder without a table of positions": MODERN | {"max_length": 12},
    "texts": texts_edited,
    "vocabulary": lines_swapped,
    "no vocabulary": vocabulary_gone,
}


@pytest.mark.parametrize("name", EDITS)
def test_a_run_is_not_resumed_with_another_model_vocabulary_masking_or_texts(capsys, name):
    edit = EDITS[name]
    assert call("--config", recipe(**MODERN if "encoder" in name else {})) == 0
    if callable(edit):
        edit()
    else:
        recipe(**edit)
    before = files_of()
    fails(capsys, "--config", "recipe.toml", "--resume")
    assert files_of() == before


# ------------------------------------------------------------------------------------ the grammar


def test_a_grammar_and_texts_mix_and_the_floor_is_below_an_untrained_model(zoo, capsys):
    data = f"{ZOO}{TEXTS}copies = 2\n"
    assert call("--config", recipe(data=data, vocab_size=150)) == 0
    said, last = capsys.readouterr().out.splitlines(), log_of()[-1]
    (line,) = [line for line in said if "no model can go below" in line]
    assert 0 < float(line.split("below")[1].split()[0]) < last["grammar_loss"]
    assert last["corpus.txt_loss"] > 0


def test_a_recipe_may_ask_for_a_model_that_writes(zoo, capsys, asked):
    file = recipe('[masking]\ndraw = "count"\n', data='objective = "diffusion"\n' + ZOO)
    found = asked("--config", file)
    collator = found["collator"]
    assert isinstance(collator, DiffusionCollator)
    assert (collator.draw, collator.seed) == ("count", 0)
    said, look = capsys.readouterr().out.splitlines(), found["evaluate"](found["model"])
    floors = [float(line.split("below")[1].split()[0]) for line in said if "no model" in line]
    assert 0 < floors[0] < look["grammar_loss"] and 0 < floors[1] < look["grammar_bound"]


def test_a_text_of_unknown_words_does_not_end_a_run_that_learns_to_write():
    CORPUS.write_text(CORPUS.read_text() + 20 * "😀 😁\n☃ ☃ ☃\n")
    data = 'objective = "diffusion"\n' + TEXTS
    file = recipe(data=data, vocab_size="100\nlimit_alphabet = 30")
    with pytest.warns(UserWarning, match=r"20 texts of .* no known word"):
        assert call("--config", file, "--steps", 25) == 0
    model, tokenizer = load_checkpoint(OUT / "model")
    assert len(write(model, tokenizer, [6])[0]) == 6


@pytest.mark.parametrize("change", [{"max_length": 7}, {"vocab_size": 45}])
def test_what_is_too_small_for_the_grammar_is_one_line_that_names_a_remedy(zoo, capsys, change):
    least = {"max_length": ["max_length=7", "raise it to 12"], "vocab_size": ["raise vocab_size"]}
    one_line(capsys, recipe(data=ZOO, **change), least[min(change)])
    assert call("--config", recipe(data=ZOO, max_length=12)) == 0


def test_a_recipe_may_ask_for_the_encoder_of_today(asked):
    modern = {"num_layers": '2\nencoder = "modern"\nwindow = 6'}
    encoder = asked("--config", recipe(**modern))["model"].embedder
    assert isinstance(encoder, ModernEncoder)
    assert (encoder.config.window, encoder.config.num_layers) == (6, 2)
    assert encoder.config.intermediate_size == encoder.config.hidden_size * 3 // 2


# ------------------------------------------------------------------------------------ going on from


@pytest.fixture
def going_on(folder):
    """A function that writes a recipe which goes on from a checkpoint, on texts of its words."""
    words = [word for word in load_checkpoint(folder)[1].get_vocab() if word.isalpha()]
    CORPUS.write_text("\n".join(" ".join(words[n:] + words[:n]) for n in range(len(words))))

    def write(model='from = "{folder}"\ndropout = 0.0\n', before="", source=folder):
        model = f"[model]\n{model.format(folder=source)}"
        Path("further.toml").write_text(f"{before}{TEXTS}{model}[training]\nsteps = 1\n")
        return "further.toml"

    return write


@pytest.mark.parametrize("objective", ["masked", "diffusion"])
def test_a_recipe_may_go_on_from_a_checkpoint(going_on, folder, asked, objective):
    file = going_on(before=f'objective = "{objective}"\n')
    found = asked("--config", file)
    source, _ = load_checkpoint(folder)
    for name, weight in source.state_dict().items():
        assert torch.equal(found["model"].state_dict()[name], weight), name
    config = found["model"].embedder.config
    assert config.dropout == 0 and config.hidden_size == source.embedder.config.hidden_size


def test_a_checkpoint_keeps_its_own_tokenizer(tmp_path, going_on):
    tokens = [*tiny_bert.TOKENS[:5], *"The the Cat cat sat . ##s".split()]
    cased = WordPieceTokenizer({token: at for at, token in enumerate(tokens)}, lowercase=False)
    shape = EncoderConfig(len(tokens), 8, 1, 2, 16, max_length=16)
    save_pretrained(MaskedLanguageModel.from_config(shape), cased, tmp_path / "cased")
    CORPUS.write_text("\n".join(f"The Cat sat {'. ' * n}" for n in range(1, 40)))
    file = going_on(source=tmp_path / "cased")
    for option in [], ["--resume"]:
        assert call("--config", file, *option) == 0
        _, tokenizer = load_checkpoint(OUT / "model")
        assert tokenizer.encode("The Cat sat") == cased.encode("The Cat sat") != [2, 1, 1, 1, 3]


@pytest.mark.parametrize(
    "model, words",
    [
        ('from = "{folder}"\nnum_heads = 4\n', ["[model] has 'num_heads'"]),
        ('from = "{folder}"\nmlp_dropout = 0.0\n', ["[model]", "'mlp_dropout'"]),
        ('from = "{folder}"\ndropout = 1.5\n', ["[model] dropout=1.5"]),
        ('from = ""\n', ["[model]", "''"]),
        ('from = "{folder}"\n[tokenizer]\nvocab_size = 50\n', ["[tokenizer]", "leave this"]),
    ],
)
def test_what_a_checkpoint_settles_cannot_be_said_again(going_on, capsys, model, words):
    one_line(capsys, going_on(model), words)


# ------------------------------------------------------------------------------------ mixtures


def encoded(*parts, max_length=24, vocab_size=150):
    """A mixture that is ready for training, and its tokenizer."""
    data = DataMixture(parts, {})
    tokenizer = WordPieceTokenizer.train(data.tokenizer_texts(), vocab_size)
    data.encode(tokenizer, max_length)
    return data, tokenizer


def epochs_of(data, *numbers):
    found = []
    for epoch in numbers:
        data.set_epoch(epoch)
        found.append([list(row) for row in data])
    return found


def test_copies_are_so_many_of_each_text_in_an_epoch():
    once, tokenizer = encoded(TextCorpus("corpus.txt"))
    thrice, _ = encoded(TextCorpus("corpus.txt", copies=3))
    thrice.encode(tokenizer, 24)
    assert len(once) == 270 and len(thrice) == 810  # 90% of 300 are for training
    assert list(once) == [tokenizer.encode(text) for text in once.parts[0].train]
    assert sorted(thrice) == sorted(3 * list(once))


@pytest.mark.parametrize("every", [1, 2, 3])
def test_blocks_come_round_once_in_so_many_epochs(every):
    data, tokenizer = encoded(TextCorpus("corpus.txt", blocks_every=every))
    epochs = epochs_of(data, *range(2 * every))
    assert all(rows[:270] == data.parts[0].rows for rows in epochs)
    blocks = [rows[270:] for rows in epochs]
    assert blocks[:every] == blocks[every:]
    once = [tuple(block) for epoch in blocks[:every] for block in epoch]
    assert sorted(once) == sorted(map(tuple, data.parts[0].blocks)) and len(set(once)) == len(once)
    assert all(len(block) == 24 and tokenizer.pad_token_id not in block for block in once)


def write_long_texts(path="long.txt"):
    """Ten texts of forty tokens and more."""
    Path(path).write_text("\n".join(" ".join(f"w{i}x{j}" for j in range(40)) for i in range(10)))
    return path


def test_long_texts_make_several_rows_that_hold_all_of_them_and_are_whole_in_blocks():
    data, tokenizer = encoded(TextCorpus(write_long_texts(), blocks_every=1))
    part = data.parts[0]
    for texts, rows in ((part.train, part.rows), (part.validation, part.held_out_rows)):
        assert max(map(len, rows)) == 24 and len(rows) > 2 * len(texts)
        assert {(row[0], row[-1]) for row in rows} == {(2, 3)}
        inner = [token for row in rows for token in row[1:-1]]
        assert inner == [token for text in texts for token in tokenizer.encode(text)[1:-1]]
    tokens = sum(len(tokenizer.encode(text)) - 2 for text in part.train)
    assert part.counts["kept"] == part.counts["tokens"] == tokens
    assert f"{len(part.rows)} rows keep 100.0% of {tokens:,} tokens" in part.describe()
    inner = sum(len(block) - 2 for block in part.blocks)
    assert inner > 0.9 * tokens


@pytest.mark.parametrize("most", [6, 12, 24])
def test_rows_in_memory_are_those_on_disk(tmp_path, most):
    data, tokenizer = encoded(TextCorpus(write_long_texts(), validation_share=0), max_length=most)
    disk = TokenizedCorpus("long.txt", prepared=tmp_path / "rows", validation_share=0)
    disk.encode(tokenizer.to_hf(), most)
    assert list(disk.rows) == list(data) and disk.counts["kept"] == data.parts[0].counts["kept"]


def test_a_share_of_the_tokens_that_is_not_kept_is_told_and_never_rounded_up():
    CORPUS.write_text("\n".join([*lines(300), "☃ ☃"]))
    part = TextCorpus("corpus.txt", validation_share=0)
    tokenizer = WordPieceTokenizer.train(lines(), 150, limit_alphabet=40)
    with pytest.warns(UserWarning, match="1 texts of corpus.txt hold no known word"):
        part.encode(tokenizer.to_hf(), 24)
    assert (
        "99.9% of" in part.describe()
        and "301 texts are trained on, 0 are held out" in part.describe()
    )


def test_what_holds_no_known_word_is_one_line(capsys):
    CORPUS.write_text("\n".join(f"☃{n}" for n in range(9)))
    Path("own.txt").write_text("\n".join(lines()))
    for data in (TEXTS, TEXTS + 'prepared = "rows"\n'):
        words = Path("words.txt")
        words.write_text("\n".join([*tiny_bert.TOKENS[:5], "anna"]))
        tokenizer = WordPieceTokenizer.from_vocab(words)
        shape = EncoderConfig(len(tokenizer), 8, 1, 2, 16, max_length=16)
        save_pretrained(MaskedLanguageModel.from_config(shape), tokenizer, "start")
        Path("further.toml").write_text(f'{data}[model]\nfrom = "start"\n[training]\nsteps = 1\n')
        assert call("--config", "further.toml") == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert "corpus.txt: none of" in line and "that the vocabulary knows" in line


@pytest.mark.parametrize("data", [TEXTS, TEXTS + 'prepared = "rows"\n'])
def test_a_row_without_room_for_a_token_is_one_line(capsys, data):
    for most in (1, 2):
        line = fails(capsys, "--config", recipe(data=data, max_length=most))
        assert f"max_length={most}; a whole number of at least 3" in line


def test_texts_of_ones_own_to_evaluate_on_leave_every_text_to_train_on(capsys, asked):
    Path("own").mkdir()
    CORPUS.rename("own/corpus.txt")
    Path("own/valid.txt").write_text("\n".join(lines(40, seed=1)))
    table = '[[data]]\ncorpus = "own"\n'
    for prepared in ("", 'prepared = "rows"\n'):
        file = recipe(data=f'{table}{prepared}validation = "own/valid.txt"\n')
        with pytest.warns(UserWarning, match="1 held out: valid.txt"):
            found = asked("--config", file)
        counts = found["dataset"].parts[0].counts
        assert (counts["texts"], counts["held"]) == (300, 40)
        assert sum(found["dataset"].lengths) - 2 * len(found["dataset"]) == counts["tokens"]
        assert "own: 300 texts are trained on, 40 are held out" in capsys.readouterr().out
    both = f'{table}validation = "own/valid.txt"\nvalidation_share = 0.2\n'
    assert "leave one of them out" in fails(capsys, "--config", recipe(data=both))
    again = f'{table}validation = "no.txt"\n'
    assert "no file 'no.txt'" in fails(capsys, "--config", recipe(data=again))


def test_texts_that_are_trained_on_and_evaluated_on_are_told():
    Path("some.txt").write_text("\n".join([*lines(7), "a text of its own"]))
    with pytest.warns(UserWarning, match="7 of the texts of some.txt are also in corpus.txt"):
        TextCorpus("corpus.txt", validation="some.txt")


@pytest.mark.parametrize("share, held", [(0, 0), (0.1, 30), (0.5, 150)])
def test_a_share_of_the_texts_is_held_out_and_every_other_text_is_trained_on(capsys, share, held):
    assert call("--config", recipe(data=f"{TEXTS}validation_share = {share}\n")) == 0
    said = f"corpus.txt: {300 - held} texts are trained on, {held} are held out"
    assert said in capsys.readouterr().out
    assert ("corpus.txt_loss" in log_of()[-1]) == bool(held)


def test_the_test_split_of_the_courses_reviews_is_neither_trained_on_nor_evaluated_on():
    data, tokenizer = encoded(TextCorpus("reviews"), vocab_size=300)
    splits = [load_corpus("reviews", split) for split in ("train", "validation", "test")]
    assert [data.parts[0].train, data.parts[0].validation] == splits[:2]
    assert f"the {len(splits[2])} of the test split are not used" in data.describe()[0]


@pytest.mark.slow
@pytest.mark.parametrize("disk", [False, True])
def test_a_run_begun_by_the_rules_of_an_earlier_version_ends_as_it_would_have(
    monkeypatch, capsys, disk
):
    write_long_texts("corpus.txt")
    CORPUS.write_text("\n".join([CORPUS.read_text(), *lines()]))
    data = TEXTS + 'prepared = "rows"\n' * disk
    recipe('schedule = "constant"\nwarmup = 0\n', data=data)
    with monkeypatch.context() as earlier:  # a run of that version, from its start
        mixture = partial(DataMixture, legacy=True)
        earlier.setattr(pretrain, "DataMixture", lambda *given, legacy: mixture(*given))
        for out, steps in (("whole", 12), ("parts", 6)):
            assert call("--config", "recipe.toml", "--steps", steps, out=out) == 0
    capsys.readouterr()
    assert call("--config", "recipe.toml", "--steps", 12, "--resume", out="parts") == 0
    assert "begun by an earlier version, and goes on by its rules" in capsys.readouterr().out
    assert model_file(Path("whole")) == model_file(Path("parts"))
    if not disk:
        part = TextCorpus("corpus.txt")
        part.use_legacy_rules()
        tokenizer = load_checkpoint("parts/model")[1]
        part.encode(tokenizer, 24)
        whole = tokenizer(load_corpus("corpus.txt"))["input_ids"]
        assert part.rows == [row if len(row) < 25 else row[:23] + row[-1:] for row in whole]
    assert call("--config", "recipe.toml", "--steps", 6, out="new") == 0
    assert call("--config", "recipe.toml", "--steps", 12, "--resume", out="new") == 0
    assert "earlier version" not in capsys.readouterr().out


def test_a_fingerprint_tells_tokenizers_of_one_vocabulary_apart():
    data, tokenizer = encoded(TextCorpus("corpus.txt"))
    known = data.fingerprint()
    data.encode(tokenizer.to_hf(), 24)
    assert data.fingerprint() == known
    for name in ("lowercase", "strip_accents", "handle_chinese_chars"):
        other = tokenizer.to_hf()
        setattr(other.backend_tokenizer.normalizer, name, False)
        data.encode(other, 24)
        found = data.fingerprint()
        assert {key for key in known if found[key] != known[key]} == {"normalizer"}


def test_each_epoch_of_a_grammar_has_new_documents_of_other_seeds_than_those_held_out(
    zoo, monkeypatch
):
    seeds, documents = [], Grammar.documents

    def noted(self, seed):
        seeds.append(seed)
        return documents(self, seed)

    monkeypatch.setattr(Grammar, "documents", noted)
    data, _ = encoded(GrammarCorpus(documents=50, held_out=20, seed=1))
    epochs = epochs_of(data, 0, 1, 2, 1)
    assert epochs[1] == epochs[3] and epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert seeds.count(HELD_OUT_SEED) == 1
    assert {*seeds} == {HELD_OUT_SEED, 200_000, 200_001, 200_002}


def test_a_grammar_may_hold_nothing_out_and_then_long_documents_are_cut(zoo):
    data, tokenizer = encoded(GrammarCorpus(documents=50, held_out=0), max_length=6)
    assert data.evaluations(tokenizer) == ([], {}) and max(map(len, data)) == 6


def test_short_documents_are_the_short_ones_of_all_and_their_floor_is_their_own():
    every = GrammarCorpus(documents=400, held_out=0, worlds=["films"])
    part = GrammarCorpus(documents=25, held_out=5, worlds=["films"], longest=32)
    short = [text for text in every.train if len(text.split()) <= 32]
    assert part.train == short[:25] and len(short) > 25
    held = [text.split() for text in part.validation]
    nats = [part.grammar.log_prob_of_length(len(one)) - part.grammar.log_prob(one) for one in held]
    assert part.bound_floor() == pytest.approx(sum(nats) / sum(map(len, held)))


def test_two_parts_of_one_name_are_evaluated_under_two(zoo):
    data, tokenizer = encoded(
        *(GrammarCorpus(documents=30, held_out=number) for number in (20, 30))
    )
    looks, floors = data.evaluations(tokenizer)
    assert [look.name for look in looks] == list(floors) == ["grammar_loss", "grammar_1_loss"]


def test_rows_of_a_part_may_be_any_sequences(tmp_path):
    datasets = pytest.importorskip("datasets")
    data, tokenizer = encoded(TextCorpus("corpus.txt"))
    rows = list(data)
    stored = datasets.Dataset.from_dict({"input_ids": rows})
    stored.save_to_disk(tmp_path / "rows")
    data.parts[0].rows = datasets.load_from_disk(tmp_path / "rows")["input_ids"]
    data.set_epoch(1)
    assert list(data) == rows


def test_a_fingerprint_tells_texts_apart_is_the_same_in_every_epoch_and_survives_a_checkpoint(
    zoo, tmp_path
):
    edited = tmp_path / "edited.txt"  # as many texts of the same length, another word
    edited.write_text("\n".join(lines()).replace("anna", "anne"))
    few = partial(GrammarCorpus, documents=20)
    parts = [TextCorpus("corpus.txt"), TextCorpus(str(edited)), few(), few(held_out=9), few(seed=1)]
    found = [DataMixture([part], {"a": 1}).fingerprint() for part in parts]
    assert len({str(one) for one in found}) == len(found) and found[0]["a"] == 1
    data, _ = encoded(few())
    data.set_epoch(3)
    torch.save(data.fingerprint(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True)["texts"] == found[2]["texts"]


# ---------------------------------------------------------------- several processes


def torchrun(processes, *said):
    """The command in so many processes, started."""
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    line += [str(processes), "-m", "mlm_lib.pretrain", "--config", "recipe.toml", *said]
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(line, env=os.environ | own, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_run_that_lost_a_process_goes_on_with_any_number_of_them_again_and_again():
    more = 'schedule = "constant"\nwarmup = 0\ncheckpoint_every = 5\n[save]\n'
    recipe(more, steps=1_000_000, max_length="24\ndropout = 0.0")
    lost = torchrun(2, "--out", "parts")
    while not list(Path("parts").glob("checkpoints/step-*")):
        assert lost.poll() is None
        time.sleep(0.1)
    children = psutil.Process(lost.pid).children(recursive=True)
    next(one for one in children if one.environ().get("RANK") == "1").kill()
    begin, (_, told) = time.time(), lost.communicate()
    assert lost.returncode != 0 and time.time() - begin < 60
    assert "error: this process failed, or another one ended" in told
    assert "--resume goes on from there" in told
    reached = max(int(path.name[5:]) for path in Path("parts/checkpoints").glob("step-*"))
    for processes, steps in ((1, reached + 7), (3, reached + 12)):
        run = torchrun(processes, "--out", "parts", "--resume", "--steps", str(steps))
        assert run.communicate() and run.returncode == 0
    assert main(["--config", "recipe.toml", "--out", "whole", "--steps", str(reached + 12)]) == 0
    whole, parts = (load_checkpoint(f"{out}/model")[0].state_dict() for out in ("whole", "parts"))
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=1e-4, msg=name)


# ------------------------------------------------------------------------------- the command's help


def test_help_and_wrong_options_are_answered_before_torch_is_loaded():
    code = """if True:
        import runpy, sys
        for line in (["--help"], [], ["--out", "run", "--epochs", "3"]):
            sys.argv[1:] = line
            try:
                runpy.run_module("mlm_lib.pretrain", run_name="__main__")
            except SystemExit as end:
                print(end.code, {"torch", "transformers", "numpy"} & sys.modules.keys())
    """
    process = run(["-c", code])
    said, error = process.communicate(timeout=60)
    ends = [line for line in said.splitlines() if line.endswith("set()")]
    assert ends == ["0 set()", "2 set()", "2 set()"], error
    first, second = [line for line in error.splitlines() if line.startswith("error: ")]
    assert "--out; --help explains every option" in first
    assert "'--epochs'; its name here is --steps; steps = epochs * rows / batch_size" in second


def test_help_explains_every_option_with_the_default_that_holds(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    options = {
        name: told for group in command_line.OPTIONS.values() for name, told in group.items()
    }
    config = TrainingConfig(1)
    for name, told in options.items():
        assert f"--{name.replace('_', '-')}" in said and told["help"] in said
        if hasattr(config, name) and name != "steps":
            stated = re.search(r"\(default: (.*)\)$", told["help"])
            held = getattr(config, name)
            found = "none" if stated is None else stated[1]
            assert found == ("none" if held is None else f"{held:g}" if held != "auto" else held)
    assert "(default: grammar)" in options["corpus"]["help"]
    assert engine_recipe.DEFAULTS["data"] == [{"corpus": "grammar"}]
    assert "(default: a new model with 2 layers of width 128)" in options["from"]["help"]
    sizes = engine_recipe.DEFAULTS["model"]
    assert (sizes["num_layers"], sizes["hidden_size"]) == (2, 128)
    assert "the last two are kept" in options["checkpoint_seconds"]["help"] and config.keep == 2


@pytest.mark.parametrize(
    "given, meant",
    [
        ("--lr=0.1", "its name here is --learning-rate"),
        ("--per-device-train-batch-size", "its name here is --batch-size"),
        ("--output-dir", "there are: --corpus"),
        ("--mlm-probability", "a recipe has rate in its table [masking]"),
        ("--stpes", "--steps is the nearest name"),
        ("my_texts.txt", "there are: --corpus"),
    ],
)
def test_an_option_that_does_not_exist_is_answered_by_one_that_does(capsys, given, meant):
    with pytest.raises(SystemExit, match="2"):
        main(["--out", "run", given])
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"the command has no '{given.split('=')[0]}'" in line and meant in line


# ------------------------------------------------------------------------------- keys, kinds

NO_SUCH = {
    "epochs": ("[training]", "epochs = 3", "its name here is steps; steps = epochs * rows / batch"),
    "num_train_epochs": ("[training]", "num_train_epochs = 3", "its name here is steps; steps ="),
    "max_steps": ("[training]", "max_steps = 3", "its name here is steps; there are: steps, batch"),
    "lr": ("[training]", "lr = 0.1", "its name here is learning_rate"),
    "another table": ("[training]", "rate = 0.3", "a recipe has rate in its table [masking]"),
    "their rate": ("[masking]", "mlm_probability = 0.3", "its name here is rate; there are: rate"),
    "their length": ("[model]", "max_seq_length = 9", "its name here is max_length"),
    "a letter": ("[model]", 'form = "course-bert"', "from is the nearest name"),
    "two letters": ("[tokenizer]", "vocabsize = 9", "vocab_size is the nearest name"),
    "of data": ("[[data]]", "copie = 2", "copies is the nearest name; there are: corpus, copies"),
    "of show": ("[show]", "sentence = []", "sentences is the nearest name"),
    "nothing near": ("[save]", "zzz = 1", "there are: dtype"),
}


def with_line(table, line):
    """The small recipe with a line more in a table."""
    text = f"{TEXTS}{SMALL}"
    text = text if table in text else f"{text}{table}\n"
    Path("recipe.toml").write_text(text.replace(f"{table}\n", f"{table}\n{line}\n"))
    return "recipe.toml"


@pytest.mark.parametrize("name", NO_SUCH)
def test_a_key_that_does_not_exist_is_answered_by_one_that_does(capsys, name):
    table, line, meant = NO_SUCH[name]
    one_line(capsys, with_line(table, line), [f"{table} has no {line.split(' = ')[0]!r}; {meant}"])


def test_a_key_that_does_not_exist_beside_from_is_answered_too(going_on, capsys):
    file = going_on('from = "{folder}"\nmax_len = 4\n')
    one_line(capsys, file, ["[model] has no 'max_len'", "max_length is the nearest name"])


KINDS = {
    "a number in quotes": ("[tokenizer]", 'vocab_size = "300"', "vocab_size='300'; a whole number"),
    "a size in quotes": ("[model]", 'hidden_size = "16"', "hidden_size='16'; a number is"),
    "half a size": ("[model]", "hidden_size = 16.5", "hidden_size=16.5; a whole number from 1"),
    "a switch as a word": ("[training]", 'packing = "no"', "packing='no'; true or false is"),
    "a switch as a number": ("[tokenizer]", "lowercase = 0", "lowercase=0; true or false is"),
    "one text": ("[show]", 'sentences = "a [MASK] b"', "sentences='a [MASK] b'; a list is"),
    "no text": ("[show]", "sentences = [3]", "sentences=3; a str is"),
    "one number of two": ("[training]", "betas = 0.9", "betas=0.9; a list is"),
    "a list of one": ("[training]", "betas = [0.9]", "betas=(0.9,); a pair of numbers is"),
    "a list": ("[masking]", 'strategy = ["span"]', "strategy=['span']; a text in quotes is"),
    "a date": ("[training]", "seconds = 2026-01-01", "seconds=datetime.date(2026, 1, 1); a number"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_value_of_another_kind_is_refused_with_table_and_key(capsys, name):
    table, line, words = KINDS[name]
    one_line(capsys, drop(line.split(" = ")[0], with_line(table, line)), [f"{table} {words}"])


def drop(key, file):
    """Takes the second line of a key out of a recipe, where it was there before."""
    rows = Path(file).read_text().split("\n")
    places = [place for place, row in enumerate(rows) if row.startswith(f"{key} = ")]
    Path(file).write_text("\n".join(row for n, row in enumerate(rows) if n not in places[1:]))
    return file


@pytest.mark.parametrize("data", ['data = ["reviews"]\n', "data = [3]\n"])
def test_data_that_are_no_tables_are_refused(capsys, data):
    one_line(capsys, recipe(data=data), ["data holds", "something like {'corpus': 'grammar'}"])


def test_worlds_in_quotes_are_not_read_letter_by_letter(capsys):
    file = recipe(data='[[data]]\nworlds = "films"\n')
    one_line(capsys, file, ["[[data]] worlds='films'; a list is needed"])


@pytest.mark.parametrize("size", [20_000_000, 400_000_000])
def test_a_model_that_no_memory_holds_is_one_line(capsys, size):
    one_line(
        capsys, recipe(hidden_size=size), ["[model]", f"hidden_size={size}", "lower its sizes"]
    )


@pytest.mark.parametrize("error", [TypeError, RuntimeError, KeyError, AttributeError])
@pytest.mark.parametrize("place", ["COLLATORS", "TextCorpus", "ShowPredictions", "TrainingConfig"])
def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch, error, place):
    def broken(*arguments, **settings):
        raise error("ours")

    taken = MaskingCollator if place == "COLLATORS" else getattr(pretrain, place)
    broken.__signature__ = inspect.signature(taken)
    monkeypatch.setattr(pretrain, place, {"masked": broken} if place == "COLLATORS" else broken)
    with pytest.raises(error, match="ours"):
        call("--config", recipe('[show]\nsentences = ["anna [MASK]"]\n'))


# ------------------------------------------------------------------------------- a stopped run


@pytest.fixture
def stopped(monkeypatch):
    """A function that lets the command run until a step, where an error is raised."""

    def stop(error, step, *options):
        told = pretrain.PrintEvaluations.__call__

        def call_until(self, model, now, row):
            told(self, model, now, row)
            if now == step:
                raise type(error)(*error.args)  # a new one, without the notes of another test

        with monkeypatch.context() as patch:
            patch.setattr(pretrain.PrintEvaluations, "__call__", call_until)
            return call("--config", recipe(), *options)

    return stop


GOES_ON = "the last checkpoint is of step 4; --resume goes on from there\n"


@pytest.mark.parametrize(
    "error, status, said",
    [
        (KeyboardInterrupt(), 130, f"stopped at step 5; {GOES_ON}"),
        (OSError("the disk is full"), 1, f"error: the disk is full; stopped at step 5; {GOES_ON}"),
        (TrainingStopped("NaN"), 1, f"error: NaN; stopped at step 5; {GOES_ON}"),
        (MemoryError(), 1, f"error: there is not enough memory; stopped at step 5; {GOES_ON}"),
    ],
)
@pytest.mark.parametrize("every", [("--checkpoint-every", 2), ("--checkpoint-seconds", 0.000001)])
def test_a_stopped_run_says_what_there_is_and_goes_on_from_there(
    stopped, capsys, error, status, said, every
):
    assert call("--config", recipe(), out="whole") == 0
    assert stopped(error, 5, *every) == status
    assert capsys.readouterr().err == said
    assert call("--config", recipe(), "--resume") == 0
    assert "going on from step 4\n" in capsys.readouterr().out
    assert model_file() == model_file(Path("whole"))


def test_a_batch_system_that_ends_a_job_is_told_what_there_is(monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def end_at_5(position, model, step, row):
        position.step = step
        if step == 5:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(pretrain.PrintEvaluations, "__call__", end_at_5)
    assert call("--config", recipe(), "--checkpoint-every", 2) == 143
    assert capsys.readouterr().err == f"stopped at step 5; {GOES_ON}"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_run_that_stops_before_its_first_checkpoint_says_so_and_its_log_is_kept(stopped, capsys):
    assert stopped(KeyboardInterrupt(), 3) == 130
    told = "stopped at step 3; there is no checkpoint yet; --resume would begin anew\n"
    assert capsys.readouterr().err == told
    (OUT / "log.jsonl").write_text('{"step": 1}\n')
    with pytest.warns(UserWarning, match="log.1.jsonl"):
        assert call("--config", "recipe.toml", "--resume") == 0
    assert "out holds no checkpoint, so the run begins at step 0\n" in capsys.readouterr().out
    assert (OUT / "log.1.jsonl").read_text() == '{"step": 1}\n' and log_of()[-1]["step"] == 6


def test_ctrl_c_while_the_texts_are_read_says_what_there_is(monkeypatch, capsys):
    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    for option, left in ([], "there is no checkpoint yet"), (["--resume"], "is of step 6"):
        with monkeypatch.context() as patch:
            patch.setattr(pretrain, "_data_part", stopped)
            assert call("--config", recipe(), *option) == 130
        told = capsys.readouterr().err
        assert told.startswith("stopped before the first step; ") and left in told
        assert option or call("--config", recipe()) == 0


def test_a_run_that_does_not_fit_its_checkpoints_is_not_told_to_resume(capsys):
    assert call("--config", recipe()) == 0
    line = fails(capsys, "--config", recipe(batch_size=8), "--resume")
    assert "batch_size=16, now it is 8" in line and "goes on from there" not in line


def test_a_run_keeps_checkpoints_by_the_clock_unless_it_is_told_otherwise(asked):
    assert asked("--config", recipe())["config"].checkpoint_seconds == 300
    found = asked("--config", recipe(), "--checkpoint-seconds", 60)
    assert found["config"].checkpoint_seconds == 60 and found["config"].keep == 2


# ------------------------------------------------------------------------------- what it prints


def test_a_run_prints_what_it_does_and_how_its_model_is_used(capsys):
    every = ["--checkpoint-every", 3, "--checkpoint-seconds", 90]
    assert call("--config", recipe(precision='"auto"'), *every) == 0
    said = capsys.readouterr().out
    rows = int(re.search(r"an epoch has (\d+) rows with [\d,]+ tokens in all", said)[1])
    assert f"and takes {-(-rows // 16)} steps of 16 rows" in said
    assert re.search(r"corpus.txt: 270 texts are trained on, 30 are held out", said)
    assert (
        "checkpoints are written every 90 seconds (the first ones sooner) and every 3 steps, and at"
        in said
    )
    assert re.search(r"precision: (fp32|bf16), because .*\n", said)
    use = said.splitlines()[-1]
    for name in re.findall(r"(?:pipeline\('fill-mask', |load_checkpoint\()('.*?')\)", use):
        assert load_checkpoint(name.strip("'"))
    assert use.count("'out") == 2


# ------------------------------------------------------------------------------- a vocabulary


@pytest.fixture
def vocabulary():
    """A cased vocabulary, as lesson 01 makes and saves one, in a folder."""
    texts = [line.replace("anna", "Anna") for line in lines()]
    CORPUS.write_text("\n".join(texts) + "\n")
    tokenizer = WordPieceTokenizer.train(texts, 70, lowercase=False)
    Path("words").mkdir()
    tokenizer.save("words")
    return tokenizer


def of_vocabulary(more="", file="words", data=TEXTS):
    text = data + SMALL.replace("vocab_size = 90", f'vocab_file = "{file}"\n{more}')
    Path("recipe.toml").write_text(text)
    return "recipe.toml"


@pytest.mark.parametrize("file", ["words", "words/vocab.txt", "~/words"])
def test_a_vocabulary_of_ones_own_is_used_as_it_is(vocabulary, asked, monkeypatch, file):
    monkeypatch.setenv("HOME", str(Path.cwd()))
    found = asked("--config", of_vocabulary("lowercase = false\n", file))
    assert found["model"].embedder.config.vocab_size == len(vocabulary)
    texts = found["dataset"].parts[0].train
    *row, _ = found["dataset"][0]  # a long text makes several rows, each with a [SEP] at its end
    assert row == vocabulary.encode(texts[0])[: len(row)]
    assert any("Anna" in text for text in texts)


def test_a_run_with_a_vocabulary_of_ones_own_goes_on_with_its_copy(vocabulary, stopped, capsys):
    text = Path(of_vocabulary("lowercase = false\n")).read_text()
    assert call("--config", "recipe.toml", out="whole") == 0
    Path("words/vocab.txt").write_text("nothing\n")
    assert call("--config", "recipe.toml", out="other") == 1
    (Path("whole") / "model").rename("before")
    assert Path("recipe.toml").read_text() == text
    assert call("--config", "recipe.toml", "--resume", out="whole") == 0
    assert model_file(Path("whole")) == (Path("before") / "model.safetensors").read_bytes()
    saved = AutoTokenizer.from_pretrained("whole/model")
    assert saved.get_vocab() == vocabulary.vocab
    assert saved("Anna likes figs")["input_ids"] == vocabulary.encode("Anna likes figs")


def test_the_tokenizer_of_a_run_opens_in_transformers_and_treats_texts_alike(vocabulary):
    assert call("--config", of_vocabulary("lowercase = false\n")) == 0
    opened = AutoTokenizer.from_pretrained(OUT / "tokenizer")
    assert opened("Anna likes figs")["input_ids"] == vocabulary.encode("Anna likes figs")


@pytest.mark.parametrize(
    "more, words",
    [
        ("vocab_size = 80\n", ["has no 'vocab_size'", "there are: vocab_file, lowercase"]),
        ("min_frequency = 3\n", ["has no 'min_frequency'"]),
        ('initial_alphabet = "abc"\n', ["has no 'initial_alphabet'"]),
        ('lowercase = "no"\n', ["lowercase='no'; true or false"]),
    ],
)
def test_keys_that_a_vocabulary_settles_are_refused_beside_it(vocabulary, capsys, more, words):
    one_line(capsys, of_vocabulary(more), ["[tokenizer] with vocab_file", *words])


@pytest.mark.parametrize(
    "content, words",
    [
        (None, ["[tokenizer] vocab_file='words'; there is no file", "vocab.txt with one token"]),
        ("a\nb\n", ["[tokenizer]", "lacks [PAD]"]),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", ["[tokenizer]", "'a' 2 times"]),
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n☃\n", ["knows"]),
        (b"[PAD]\ncaf\xe9\n", ["[tokenizer]", "words is not UTF-8"]),
    ],
)
def test_a_vocabulary_that_will_not_do_is_one_line(capsys, content, words):
    Path("words").mkdir()
    if content is not None:
        content = content if isinstance(content, bytes) else content.encode()
        Path("words/vocab.txt").write_bytes(content)
    line = fails(capsys, "--config", of_vocabulary())
    assert [word for word in words if word not in line] == [], line


def test_the_small_learning_rate_of_a_step_is_printed_with_its_digits(capsys):
    row = {"loss": 1.23456, "learning_rate": 1.2341e-7, "a_loss": 2.0}
    pretrain.PrintEvaluations(quiet=False)(None, 3, row)
    assert json.loads(capsys.readouterr().out) == row | {"loss": 1.2346, "learning_rate": 1.234e-7}


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_command_says_that_a_learned_vocabulary_is_of_lower_cased_texts(
    asked, capsys, lowercase
):
    key = f"lowercase = {str(lowercase).lower()}"
    text = TEXTS + SMALL.replace("vocab_size = 90", f"vocab_size = 90\n{key}")
    Path("recipe.toml").write_text(text)
    asked("--config", "recipe.toml")
    assert ("of lower-cased texts without accents" in capsys.readouterr().out) == lowercase


def test_the_grammar_needs_its_own_words_in_a_vocabulary(zoo, vocabulary, capsys):
    one_line(capsys, of_vocabulary(data=ZOO), ["words of the grammar are no tokens"])


# ------------------------------------------------------------------------------- continuing


def test_the_option_from_goes_on_from_a_checkpoint_and_looks_at_it_before(folder, asked, going_on):
    going_on()
    found = asked("--from", folder, "--corpus", CORPUS, "--steps", 3)
    source, _ = load_checkpoint(folder)
    for name, weight in source.state_dict().items():
        assert torch.equal(found["model"].state_dict()[name], weight), name
    assert found["config"].evaluate_at_start and found["config"].steps == 3


def test_the_option_from_goes_before_the_recipe(folder, asked, going_on, tmp_path):
    file = going_on('from = "nowhere"\ndropout = 0.0\n')
    config = asked("--config", file, "--from", folder)["model"].embedder.config
    assert (config.dropout, config.hidden_size) == (0.0, 8)


def test_only_a_model_that_has_learned_is_evaluated_before_the_first_step(going_on, asked):
    file = going_on()
    assert asked("--config", file)["config"].evaluate_at_start
    Path(file).write_text(Path(file).read_text() + "evaluate_at_start = false\n")
    assert not asked("--config", file)["config"].evaluate_at_start
    assert not asked("--config", recipe())["config"].evaluate_at_start


@pytest.fixture
def on_long_texts(going_on):
    """A function that writes a recipe, as `going_on` does, on texts of up to 117 words."""

    def write(*arguments, **settings):
        file = going_on(*arguments, **settings)
        CORPUS.write_text("\n".join(n * "a b c " for n in range(1, 40)))
        return file

    return write


def test_the_log_of_a_continued_model_holds_what_training_changed(on_long_texts):
    assert call("--config", on_long_texts()) == 0
    before, after = log_of()
    assert before["step"] == 0 and "loss" not in before and after["step"] == 1
    assert before["corpus.txt_loss"] > 0 < after["corpus.txt_loss"] != before["corpus.txt_loss"]


@pytest.mark.parametrize("length", [3, 7, 20])
def test_shorter_rows_leave_a_checkpoint_its_positions(on_long_texts, capsys, length):
    file = on_long_texts(f'from = "{{folder}}"\nmax_length = {length}\n')
    assert call("--config", file) == 0
    model, tokenizer = load_checkpoint(OUT / "model")
    assert model.embedder.config.max_length == 20
    assert len(model.embedder.embeddings.position.weight) == 20
    data = DataMixture([TextCorpus("corpus.txt")], {})
    data.encode(tokenizer, length)
    assert max(map(len, data)) == length
    batch = BatchSampler(data, 32, 0, grouped=True).next()
    assert log_of()[-1]["tokens"] == sum(map(len, batch))
    told = f"at most {length} tokens; the model keeps its 20 positions"
    assert (told in capsys.readouterr().out) == (length < 20)


@pytest.mark.parametrize("length, words", [(21, "at most 20 tokens"), (2, "of at least 3")])
def test_rows_that_a_checkpoint_cannot_read_are_refused(going_on, capsys, length, words):
    file = going_on(f'from = "{{folder}}"\nmax_length = {length}\n')
    one_line(capsys, file, [f"[model] max_length={length}", words])


def test_a_continued_run_is_not_resumed_with_rows_of_another_length(on_long_texts, capsys):
    nine, eight = (f'from = "{{folder}}"\nmax_length = {length}\n' for length in (9, 8))
    assert call("--config", on_long_texts(nine)) == 0
    line = fails(capsys, "--config", on_long_texts(eight), "--resume")
    assert "max_length=9, now it is 8" in line


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_a_model_of_sentence_transformers_goes_on_and_its_head_may_come_first(
    folder, going_on, place
):
    file = going_on('from = "sentences"\ndropout = 0.0\n')
    modules = [{"path": place, "type": "sentence_transformers.models.Transformer"}]
    modules += [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    Path("sentences/1_Pooling").mkdir(parents=True)
    Path("sentences/modules.json").write_text(json.dumps(modules))
    encoder = BertForMaskedLM.from_pretrained(folder).bert
    encoder.save_pretrained(Path("sentences") / place)
    AutoTokenizer.from_pretrained(folder).save_pretrained(Path("sentences") / place)
    Path(file).write_text(Path(file).read_text() + "head_steps = 2\n")
    for steps, still in (2, True), (3, False):
        out = f"out{steps}"
        with pytest.warns(UserWarning, match="fresh"):
            assert call("--config", file, "--steps", steps, out=out) == 0
        after = BertForMaskedLM.from_pretrained(f"{out}/model").bert
        same = [
            torch.equal(one, other) for one, other in zip(encoder.parameters(), after.parameters())
        ]
        assert all(same) == still
