"""docs/your_own_work.md: each command and each block of code runs, as it stands on the page.

The blocks are taken from the page. Only names of large models and large numbers are replaced, so
that a block takes seconds. Each test stands in a folder with a reader's files.
"""

import contextlib
import csv
import json
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
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from mlm_lib import pretrain
from mlm_lib.wordpiece import WordPieceTokenizer

ROOT = Path(__file__).resolve().parents[1]
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


@pytest.fixture
def in_python():
    """The names that the Python block of answer 2 has made."""
    return carry_out(blocks("2.", "python"))


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
    pytest.importorskip("tensorboard", reason="the course does not need it")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

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
