"""docs/your_own_work.md: each command and each block of code runs, as it stands on the page.

The blocks are taken from the page. Only names of large models and large numbers are replaced, so
that a block takes seconds. Each test stands in a folder with a reader's files.
"""

import contextlib
import csv
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from small_runs import lines
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

from mlm_lib import pretrain
from mlm_lib.corpus import SPLITS, load_corpus
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.wordpiece import WordPieceTokenizer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your_own_work.md").read_text("utf-8")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.M | re.S)
ANSWERS = re.split(r"^## ", PAGE, flags=re.M)[1:]
LANGUAGES = {"sh", "toml", "python", "json"}
COMMAND = "python -m mlm_lib.pretrain "

pytestmark = pytest.mark.usefixtures("one_thread")


def blocks(start, language=None):
    """(language, code) of each block of the answer whose heading starts like this."""
    (answer,) = [text for text in ANSWERS if text.startswith(start)]
    found = [
        (kind, re.sub(f"^{indent}", "", code, flags=re.M))
        for indent, kind, code in BLOCK.findall(answer)
    ]
    return [(kind, code) for kind, code in found if language in (None, kind)]


def with_small_names(code, changes):
    """The code with names and numbers replaced; each of them must stand in it."""
    for name, other in changes.items():
        assert name in code, f"the page says no longer {name!r}"
        code = code.replace(name, other)
    return code


# What is replaced wherever it stands.
EVERYWHERE = {
    "bert-base-uncased": "tiny-bert", "max_length = 128": "max_length = 24",
    "max_length=128": "max_length=24", "learning_rate = 5e-5": "learning_rate = 3e-3",
    "learning_rate=5e-5": "learning_rate=3e-3", "--learning-rate 5e-5": "--learning-rate 3e-3",
    "steps = 2000": "steps = 12", "steps=2000": "steps=12", "--steps 2000": "--steps 12",
    "every = 200": "every = 4", "every=200": "every=4", "head_steps = 500": "head_steps = 6",
    "hidden_size = 256": "hidden_size = 32", "num_layers = 4": "num_layers = 1",
}  # fmt: skip


def carry_out(found, names=None, changes={}):
    """Does with the blocks what a reader would do, in their order; returns the names they made."""
    names = {} if names is None else names
    for kind, code in found:
        code = with_small_names(code, changes)
        for name, other in EVERYWHERE.items():
            code = code.replace(name, other)
        if kind == "toml":
            assert code.startswith("# recipe.toml\n")
            Path("recipe.toml").write_text(code, "utf-8")
        elif kind == "sh":
            assert pretrain.main(options_of(code)) == 0
        elif kind == "python":
            exec(compile(code, "a block of the page", "exec"), names)
    return names


def options_of(code):
    """The options of a block that is one command of `pretrain`."""
    command = code.replace("\\\n", " ").strip()
    assert command.startswith(COMMAND) and "\n" not in command
    return shlex.split(command.removeprefix(COMMAND))


def log_of(folder):
    return [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]


# ------------------------------------------------------------------------------ a reader's files

FRUITS = {"apples", "bread", "cheese", "dates", "eggs", "figs"}


def labelled(number, seed):
    """Texts of two kinds of label, which the last words give away."""
    return [
        {"text": text, "label": "daily" if " day " in text else "rare"}
        for text in lines(number, seed)
    ]


def tagged(number, seed):
    for text in lines(number, seed):
        words = text.split()
        tags = ["FOOD" if word in FRUITS else "O" for word in words]
        yield {"words": words, "tags": ["PERSON", *tags[1:]]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Texts, labels, tags, a checkpoint, and the model of answer 1."""
    folder = tmp_path_factory.mktemp("work")
    texts = list(lines())
    (folder / "my_texts.txt").write_text("\n".join(texts) + "\n")
    (folder / "my_validation.txt").write_text("\n".join(lines(40, seed=1)) + "\n")
    with open(folder / "my_labels.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        writer.writerows(labelled(200, seed=2))
    rows = map(json.dumps, tagged(200, seed=3))
    (folder / "my_tags.jsonl").write_text("\n".join(rows) + "\n")
    tokenizer = WordPieceTokenizer.train(texts, 90)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 48}
    BertForMaskedLM(BertConfig(vocab_size=90, **sizes)).save_pretrained(folder / "tiny-bert")
    tokenizer.to_hf().save_pretrained(folder / "tiny-bert")
    with contextlib.chdir(folder):
        carry_out(blocks("1.", "sh")[:1])
    return folder


@pytest.fixture(autouse=True)
def work(files, tmp_path, monkeypatch):
    """Each test stands in a copy of these files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def in_python():
    """The names that the Python block of answer 2 has made."""
    return carry_out(blocks("2.", "python"))


# ------------------------------------------------------------------------------------ the page


def test_each_block_is_of_a_kind_that_a_test_runs_and_each_answer_has_one():
    assert [text.split()[0] for text in ANSWERS[:10]] == [f"{n}." for n in range(1, 11)]
    for answer in ANSWERS:
        kinds = [kind for kind, _ in blocks(answer.split("\n")[0])]
        assert kinds and set(kinds) <= LANGUAGES
    assert PAGE.count("```") == 2 * sum(len(BLOCK.findall(answer)) for answer in ANSWERS)


def test_the_page_is_reached_from_the_readme_the_home_and_using():
    for page, link in {
        "README.md": "(docs/your_own_work.md)",
        "docs/index.md": "(your_own_work.md)",
        "docs/using.md": "(your_own_work.md)",
    }.items():
        assert link in (ROOT / page).read_text("utf-8"), page
    hidden = re.findall(r"```{toctree}\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.S)
    assert any("\nyour_own_work\n" in tree for tree in hidden)


def test_links_of_the_page_lead_to_pages():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        path = ROOT / (
            "notebooks/" + Path(link).name if link.startswith("notebooks/") else f"docs/{link}"
        )
        assert "://" in link or path.is_file(), link


# ------------------------------------------------------------------------------------ 1 to 3


def test_training_on_texts_saves_a_model_and_logs_the_loss_that_the_page_names():
    held = re.search(r"with `_loss` after it, here `(\S+)`", PAGE)[1]
    assert log_of("run")[-1]["step"] == 12 and held in log_of("run")[-1]
    assert "model.safetensors" in [path.name for path in Path("run/model").iterdir()]


def test_the_recipe_evaluates_on_the_validation_file_and_trains_on_all_other_texts(capsys):
    carry_out(blocks("1.")[1:])
    said = capsys.readouterr().out
    assert "300 texts are trained on, 40 are held out" in said
    evaluated = [row["step"] for row in log_of("run-validated") if "my_texts.txt_loss" in row]
    assert evaluated == [4, 8, 12]
    config = AutoConfig.from_pretrained("run-validated/model")
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (32, 1, 4)


@pytest.mark.parametrize(
    "source", ["my_table.csv", "my_table.csv:body", "my_folder/", "my_folder:body"]
)
def test_a_source_of_the_table_is_read(source):
    assert f"`{source}`" in PAGE
    texts = list(lines(20))
    Path("my_folder").mkdir()
    Path("my_folder/one.txt").write_text("\n".join(texts[:10]))
    table = "\n".join(["text,body", *(f"{text},other {text}" for text in texts[10:])])
    Path("my_table.csv").write_text(table)
    Path("my_folder/two.csv").write_text(table)
    found = [text for split in SPLITS for text in load_corpus(source, split)]
    before = "other " if source.endswith("body") else ""
    rest = [] if source.startswith("my_table") else texts[:10]
    assert sorted(found) == sorted([*rest, *(before + text for text in texts[10:])])


def test_a_checkpoint_is_continued_and_its_loss_before_is_told():
    carry_out(blocks("2.", "sh")[:1])
    first, *others = [row for row in log_of("continued") if "my_texts.txt_loss" in row]
    assert first["step"] == 0 and others[-1]["my_texts.txt_loss"] < first["my_texts.txt_loss"]
    before, _ = load_checkpoint("tiny-bert")
    after, tokenizer = load_checkpoint("continued/model")
    assert after.embedder.config == before.embedder.config
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained("tiny-bert").get_vocab()


def test_rows_are_shorter_than_the_checkpoints_and_the_model_keeps_its_positions(capsys):
    carry_out(blocks("2.")[1:3])
    assert (
        "a row has at most 24 tokens; the model keeps its 48 positions" in capsys.readouterr().out
    )
    assert AutoConfig.from_pretrained("continued-128/model").max_position_embeddings == 48


@pytest.mark.parametrize("steps", [6, 12])
def test_while_the_head_is_trained_first_the_encoder_stays_to_the_bit(steps):
    BertModel.from_pretrained("tiny-bert").save_pretrained("headless")
    AutoTokenizer.from_pretrained("tiny-bert").save_pretrained("headless")
    changes = {
        "sentence-transformers/all-MiniLM-L6-v2": "headless",
        "steps = 2000": f"steps = {steps}",
    }
    with pytest.warns(UserWarning, match="fresh"):
        carry_out(blocks("2.", "toml")[1:], changes=changes)
        carry_out(blocks("2.", "sh")[2:])
        before, _ = load_checkpoint("headless")
    after, _ = load_checkpoint("head-first/model")
    pairs = zip(before.embedder.parameters(), after.embedder.parameters())
    assert all(torch.equal(*pair) for pair in pairs) == (steps == 6)
    assert not torch.equal(before.head.dense.weight, after.head.dense.weight)


def test_the_same_in_python_has_the_evaluation_before_and_saves_the_model(in_python, capsys):
    log = log_of("continued-in-python")
    assert [row["step"] for row in log if "held_out_loss" in row] == [0, 4, 8, 12]
    assert log[-1]["held_out_loss"] < log[0]["held_out_loss"]
    saved, _ = load_checkpoint("continued-in-python/model")
    assert in_python["held_out"](saved)["held_out_loss"] == pytest.approx(log[-1]["held_out_loss"])
    assert max(map(len, in_python["rows"])) <= 24


def test_words_that_are_added_are_tokens_by_themselves_and_are_trained():
    with open("my_texts.txt", "a") as file:
        file.writelines(f"{name} eats the stenosis .\n" for name in ("anna", "ben", "clara") * 9)
    carry_out(blocks("3.")[:2])
    before, tokenizer = load_checkpoint("with-words")
    after, same = load_checkpoint("with-words-trained/model")
    word = tokenizer.convert_tokens_to_ids("stenosis")
    for text in "the stenosis", "Stenosis!", "(stenosis)":
        assert "stenosis" in tokenizer.tokenize(text) == same.tokenize(text)
    assert "stenosis" not in tokenizer.tokenize("restenosis") + tokenizer.tokenize("stenosises")
    moved = after.embedder.embeddings.word.weight - before.embedder.embeddings.word.weight
    assert moved[word].abs().max() > 1e-3


def test_what_the_page_says_of_pieces_and_of_words_within_words_is_so():
    pieces = re.search(r"`course-bert` cuts \*(\w+)\* into `([^`]+)`", PAGE)
    _, tokenizer = load_checkpoint("course-bert")
    assert tokenizer.tokenize(pieces[1]) == pieces[2].split()
    tokenizer.add_tokens([pieces[1]])
    assert tokenizer.tokenize("restenosis") == "re stenosis".split()
    assert "*restenosis* would become `re stenosis`" in PAGE


def test_a_vocabulary_of_ones_own_is_learned_and_used():
    Path("my_texts.txt").write_text("\n".join(text.capitalize() for text in lines()))
    carry_out(blocks("3.")[2:])
    words = Path("vocab.txt").read_text().splitlines()
    tokenizer = AutoTokenizer.from_pretrained("own-vocabulary/model")
    assert Path("own-vocabulary/tokenizer/vocab.txt").read_text().splitlines() == words
    assert [*tokenizer.get_vocab()] and set(tokenizer.get_vocab()) == set(words)
    assert tokenizer.tokenize("Anna likes") == ["Anna", "likes"]


# ------------------------------------------------------------------------------------ 4 to 8


@pytest.mark.slow
def test_sentence_vectors_are_means_without_padding_and_find_a_text_by_itself(capsys):
    texts = Path("my_texts.txt").read_text().split("\n")
    names = carry_out(blocks("4.")[:1], changes={"a question": texts[7]})
    found = capsys.readouterr().out.splitlines()
    assert len(found) == 3 and found[0] == f"1.000  {texts[7]}"
    short, long = "anna likes figs", " ".join(texts[:2])
    alone, beside = names["vectors"]([short]), names["vectors"]([short, long])
    torch.testing.assert_close(alone[0], beside[0], rtol=0, atol=1e-6)
    ids = names["tokenizer"](short, return_tensors="pt")
    (hidden,) = names["encoder"](**ids).last_hidden_state.detach()  # (T, H)
    mean = sum(hidden) / len(hidden)
    torch.testing.assert_close(alone[0], mean / mean.norm(), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_sentence_transformers_computes_the_same_vectors():
    pytest.importorskip("sentence_transformers", reason="the course does not need it")
    texts = Path("my_texts.txt").read_text().split("\n")
    names = carry_out(blocks("4."), changes={})
    ours = names["vectors"](texts[:8])
    torch.testing.assert_close(torch.tensor(names["found"]).cpu(), ours, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_classifier_learns_labels_of_a_table_and_is_opened_again(capsys):
    names = carry_out(blocks("5.")[:1])
    assert names["trainer"].evaluate()["eval_accuracy"] > 0.95
    assert names["model"].config.id2label == {0: "daily", 1: "rare"}
    capsys.readouterr()
    carry_out(
        blocks("5.")[1:], changes={"a new text": "ben likes figs and eats 4 figs every day ."}
    )
    assert "'label': 'daily'" in capsys.readouterr().out


@pytest.mark.slow
def test_the_first_token_of_a_word_has_its_tag_and_no_other_token_has_one(capsys):
    (line,) = blocks("6.", "json")[0][1].splitlines()
    names = carry_out(blocks("6.", "python")[:1])
    words, tags = ["anna", "eats", "987654", "figs-bread"], ["PERSON", "O", "O", "FOOD"]
    row = {"words": words, "tags": tags}
    expected = [-100]
    for word, tag in zip(words, tags):
        pieces = names["tokenizer"].tokenize(word)
        expected += [names["number"][tag]] + [-100] * (len(pieces) - 1)
    assert names["encode"](row)["labels"] == [*expected, -100]
    assert expected.count(-100) > 4  # words of several tokens were among them
    assert set(json.loads(line)) == set(row) and len(json.loads(line)["tags"]) == 5
    assert names["trainer"].evaluate()["eval_loss"] < 0.1
    capsys.readouterr()
    carry_out(blocks("6.", "python")[1:], changes={"Anna lives in Paris .": "emma likes figs ."})
    told = capsys.readouterr().out
    assert "'entity_group': 'PERSON'" in told and "'word': 'figs'" in told


@pytest.mark.slow
def test_the_exported_model_computes_the_same_for_batches_of_other_sizes(capsys):
    pytest.importorskip("onnxscript", reason="the docs extra is not installed")
    names = carry_out(blocks("7."))
    assert float(re.search(r"tensor\((.+)\)", capsys.readouterr().out.splitlines()[-1])[1]) < 1e-4
    texts = Path("my_texts.txt").read_text().split("\n")
    for some in [texts[0]], ["[MASK]", texts[1], texts[2], "anna"], [" ".join(texts[:3])] * 7:
        batch = names["tokenizer"](some, padding=True, return_tensors="pt")
        fed = {name: rows.numpy() for name, rows in batch.items()}
        (exported,) = names["session"].run(["logits"], fed)
        with torch.no_grad():
            logits = names["model"](**batch).logits
        torch.testing.assert_close(torch.tensor(exported), logits, rtol=0, atol=1e-4)


class Writer:
    """Stands in for TensorBoard's writer."""

    def __init__(self, folder):
        self.folder, self.scalars, self.closed = folder, [], False

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def close(self):
        self.closed = True


def test_the_callback_for_tensorboard_writes_each_number_of_the_log(in_python, monkeypatch):
    stand_in = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    writer = carry_out(blocks("8.", "python")[:1], in_python)["writer"]
    log = log_of("logged")
    assert writer.folder == "logged/tensorboard" and writer.closed
    assert writer.scalars == [
        (name, value, row["step"]) for row in log for name, value in row.items()
    ]
    assert [row["step"] for row in log if "held_out_loss" in row] == [0, 4, 8, 12]


@pytest.mark.slow
def test_tensorboard_reads_what_the_callback_wrote(in_python):
    reader = "tensorboard.backend.event_processing.event_accumulator"
    EventAccumulator = pytest.importorskip(reader, reason="not needed").EventAccumulator
    carry_out(blocks("8.", "python")[:1], in_python)
    (events := EventAccumulator("logged/tensorboard")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("held_out_loss")]
    rows = [row for row in log_of("logged") if "held_out_loss" in row]
    assert found == [(row["step"], pytest.approx(row["held_out_loss"])) for row in rows]


def test_the_callback_for_weights_and_biases_logs_each_row(in_python, monkeypatch):
    rows, settings = [], {}
    stand_in = types.SimpleNamespace(
        init=lambda project, config: settings.update(config),
        log=lambda row, step: rows.append((step, row)),
        finish=lambda: rows.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    carry_out(blocks("8.", "python")[1:], in_python)
    assert rows == [*((row["step"], row) for row in log_of("logged-again")), "finished"]
    assert settings["steps"] == 12 and settings["learning_rate"] == 3e-3


# ------------------------------------------------------------------------------------ 9 and later


def test_a_step_is_computed_in_parts_and_the_best_checkpoint_is_kept(in_python, capsys):
    names = carry_out(blocks("9.", "python"), in_python)
    assert names["config"].gradient_accumulation_steps == 8 and names["config"].batch_size == 256
    step, loss = capsys.readouterr().out.splitlines()[-1].split()
    log = [row for row in log_of("stopped-early") if "held_out_loss" in row]
    best = min(log, key=lambda row: row["held_out_loss"])
    assert (int(step), float(loss)) == (best["step"], best["held_out_loss"])
    kept, _ = load_checkpoint("best")
    assert names["held_out"](kept)["held_out_loss"] == pytest.approx(best["held_out_loss"])


@pytest.mark.parametrize(
    "losses, best, stops",
    [
        ([3.0, 2.0, 2.1, 2.2, 2.3, 2.4], 1, False),
        ([3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5], 1, True),
        ([3.0, 2.0, 2.1, 2.2, 2.3, 2.4, 1.9, 2.0], 6, False),
        ([3.0, 3.1, 3.2, 3.3, 3.4, 3.5], 0, True),
    ],
)
def test_training_stops_after_five_evaluations_without_a_lower_loss(in_python, losses, best, stops):
    names = carry_out(blocks("9.", "python"), in_python)
    names["losses"].clear()
    model, bias = names["model"], names["model"].head.bias
    stopped = []
    for step, loss in enumerate(losses):
        bias.data.fill_(step)
        try:
            names["keep_best"](model, 2 * step, None)  # a step without a row changes nothing
            names["keep_best"](model, 2 * step + 1, {"loss": 9.0, "held_out_loss": loss})
        except names["Enough"]:
            stopped.append(step)
    assert stopped == ([len(losses) - 1] if stops else [])
    assert load_checkpoint("best")[0].head.bias[0] == best


def test_the_line_for_a_recipe_computes_a_step_in_parts():
    (line,) = re.findall(r"In a recipe, write `([^`]+)` in the table `\[training\]`", PAGE)
    Path("recipe.toml").write_text(f"[training]\n{line}\n")
    assert (
        pretrain.main(
            options_of(f"{COMMAND}--config recipe.toml --corpus my_texts.txt --steps 2 --out parts")
        )
        == 0
    )
    assert log_of("parts")[-1]["step"] == 2


@pytest.mark.slow
def test_the_command_for_several_machines_runs_with_two_processes_of_one():
    (code,) = (code for kind, code in blocks("10."))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    changes = {"nnodes=4": "nnodes=1", "per-node=8": "per-node=2", "/shared/run": "shared-run"}
    code = with_small_names(code, changes | {"first-machine:29500": f"127.0.0.1:{port}"})
    Path("recipe.toml").write_text('[[data]]\ncorpus = "my_texts.txt"\n[training]\nsteps = 4\n')
    torchrun, *options = shlex.split(code.replace("\\\n", " "))
    assert torchrun == "torchrun"
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "torch.distributed.run", *options]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert log_of("shared-run")[-1]["step"] == 4
    BertForMaskedLM.from_pretrained("shared-run/model")


def test_a_model_of_transformers_is_trained_with_gradient_checkpointing(in_python):
    names = carry_out(blocks("What the course does not have"), in_python)
    assert names["model"].is_gradient_checkpointing
    log = [row for row in log_of("checkpointed") if "held_out_loss" in row]
    assert log[-1]["held_out_loss"] < log[0]["held_out_loss"]
    BertForMaskedLM.from_pretrained("checkpointed/model")
