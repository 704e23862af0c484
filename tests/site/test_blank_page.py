"""The page that fills blanks, without a browser: its export, examples, tokenizer and files.

`test_blank_browser.py` opens it.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from blank_toys import FOLDER, module, odd_strings

from docs.site import npm
from mlm_lib import DATA
from mlm_lib.encoder import EncoderConfig
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.site

# ------------------------------------------------------------------------------------ tokenizer


@pytest.fixture(scope="module")
def said_by_node():
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node is installed; the browser test asks Chromium the same")
    tokenizer = WordPieceTokenizer.from_vocab(DATA / "course-bert")
    asked = {
        "folder": str(FOLDER / "page"),
        "vocabulary": list(tokenizer.vocab),
        "characters": json.loads((DATA / "bert_characters.json").read_text("utf-8")),
        "texts": odd_strings(),
    }
    script = Path(__file__).parents[1] / "scripts" / "tokens.mjs"
    options = {"input": json.dumps(asked).encode(), "capture_output": True, "timeout": 120}
    done = subprocess.run([node, script], **options)
    assert done.returncode == 0, done.stderr.decode()
    return [tokenizer.tokenize(text) for text in asked["texts"]], json.loads(done.stdout)


def test_the_odd_strings_hold_what_they_should():
    texts = odd_strings()
    everything = "".join(texts)
    assert len(texts) == 1000 and len(set(texts)) > 950
    assert sum("[MASK]" in text for text in texts) > 150
    assert all(kind in everything for kind in ("é", "中", "\u0301", "😀", "\x00", "x" * 101))


def test_the_page_tokenizes_as_the_course_does(said_by_node):
    expected, said = said_by_node
    wrong = [
        (text, ours, theirs)
        for text, ours, theirs in zip(odd_strings(), expected, said["tokens"])
        if ours != theirs
    ]
    assert not wrong, f"{len(wrong)} differ, first {wrong[0]}"


def test_a_text_taken_apart_for_moving_keeps_its_tokens(said_by_node):
    """Unless words are moved: then the text is what the words are, joined by blanks."""
    expected, said = said_by_node
    wrong = [pair for pair in zip(odd_strings(), expected, said["again"]) if pair[1] != pair[2]]
    assert not wrong, f"{len(wrong)} differ, first {wrong[0]}"


# ------------------------------------------------------------------------------------ export


SIZES = {
    "BERT": EncoderConfig(3000, 32, 2, 4, 64, max_length=24, initializer_range=0.2),
    "ModernBERT": ModernConfig(  # the second layer sees three tokens
        3000, 32, 2, 4, 48, window=2, global_every=2, max_length=24, initializer_range=0.2
    ),
}


@pytest.fixture(scope="module", params=SIZES)
def tiny(request):
    """A model whose weights are float16 numbers, computed with in float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MaskedLanguageModel.from_config(SIZES[request.param]).half().float().eval()


@pytest.fixture(scope="module")
def exported(tiny, tmp_path_factory):
    pytest.importorskip("onnxscript", reason="the docs extra is not installed")
    path = tmp_path_factory.mktemp("export") / "tiny.onnx"
    return path, module("export").export(tiny, path)


ROWS = [[2, 4, 9, 3], [2, 4, 4, 4, 3], [2, *range(5, 26), 4, 3], [2, 7, 4, 8, 4, 9, 3]]


def test_the_file_answers_as_torch_does_at_every_length(tiny, exported):
    chance, weight, count = module("export").largest_difference(tiny, exported[0], ROWS, 4)
    assert count == 7 and chance < 2e-6 and weight < 2e-6


def test_the_file_takes_several_rows_of_one_length(tiny, exported):
    ids, positions = torch.randint(5, 300, (3, 8)), torch.tensor([[1, 5], [2, 2], [7, 0]])
    export = module("export")
    asked = dict(zip(export.INPUTS, (ids.numpy(), positions.numpy())))
    logits, attentions = export.session(exported[0]).run(export.OUTPUTS, asked)
    with torch.no_grad():
        expected = tiny(ids, mask_positions=positions)["logits"]
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-4, atol=1e-4)
    assert attentions.shape == (2, 3, 4, 8, 8)


def test_the_file_of_another_model_is_refused(tiny, exported):
    other = MaskedLanguageModel.from_config(tiny.embedder.config).eval()
    with pytest.raises(ValueError, match="differs from torch .* not to be published"):
        module("export").largest_difference(other, exported[0], ROWS, 4)


def test_the_file_is_half_as_large_and_tells_nothing_of_the_machine(tiny, exported):
    path, size = exported
    weights = sum(parameter.numel() for parameter in tiny.parameters())
    content = path.read_bytes()
    assert len(content) == size < 2 * weights + 60_000 < 4 * weights
    assert str(FOLDER.parents[1]).encode() not in content and b"site-packages" not in content


def test_weights_that_half_precision_would_change_are_refused(tmp_path):
    pytest.importorskip("onnxscript", reason="the docs extra is not installed")
    other = MaskedLanguageModel.from_config(SIZES["BERT"])
    with pytest.raises(ValueError, match="needs a checkpoint saved with dtype float16"):
        module("export").export(other, tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.parametrize("longest, found", [(94, (2, 7, 9)), (6, (2, 6, 6)), (5, (2, 2, 2))])
def test_lengths_are_those_of_the_documents_that_are_short_enough(tmp_path, longest, found):
    """Of ten documents one has 2 words, three have 6, five have 7, and one has 9."""
    path = tmp_path / "zoo.toml"
    path.write_text(
        "[zoo.steps.only]\nsentences = ["
        '{ say = "lions .", weight = 1 }, { say = "a lion eats the meat .", weight = 3 }, '
        '{ say = "a lion and a bear eat .", weight = 5 }, '
        '{ say = "a lion and a bear eat the meat .", weight = 1 }]\n',
        "utf-8",
    )
    lengths = module("build").lengths_of(Grammar.load(path), longest)
    assert tuple(lengths[name] for name in ("least", "typical", "most")) == found


def test_lengths_that_no_document_has_are_refused(zoo):
    with pytest.raises(ValueError, match="longest=3, but the grammar has no document"):
        module("build").lengths_of(zoo, 3)


# ------------------------------------------------------------------------------------ examples


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    path = tmp_path_factory.mktemp("zoo") / "zoo.toml"
    path.write_text(
        "[zoo.latents]\nanimal = { lion = 3, bear = 1 }\n"
        "[zoo.words]\nfood = { meat = 4, fish = 1 }\n"
        '[zoo.steps.first]\nsentences = ["the {animal} eats {food} ."]\n'
        '[zoo.steps.second]\nsentences = ["a {animal} ."]\n',
        "utf-8",
    )
    return Grammar.load(path)


def test_exact_answers_of_a_small_grammar_are_those_by_hand(zoo):
    words = "the lion eats meat . a lion .".split()
    found = module("examples").exact(zoo, words, [1, 6])
    both = found["the [MASK] eats meat . a [MASK] ."]
    assert both == [{"lion": 0.75, "bear": 0.25}] * 2
    assert found["the lion eats [MASK] . a lion ."] == [{"meat": 0.8, "fish": 0.2}]
    assert found["the [MASK] eats meat . a lion ."] == [{"lion": 1.0}]  # the other one tells it
    assert len(found) == 1 + len(words)


@pytest.mark.parametrize("text", ["the lion eats meat .", "the lion sleeps . a lion ."])
def test_what_the_grammar_cannot_say_has_no_exact_answer(zoo, text):
    assert module("examples").exact(zoo, text.split(), [1]) is None


def test_ten_examples_have_an_exact_answer_and_three_have_none():
    """They are documents of the grammar as it is now."""
    grammar, examples = Grammar.load(), module("examples")
    texts = [examples.read(marked) for _, marked in examples.EXAMPLES]
    assert all(hidden for _, hidden in texts)
    possible = [grammar.log_prob(words) > float("-inf") for words, _ in texts]
    assert possible == [True] * 10 + [False] * 3


def test_an_example_of_words_that_are_several_tokens_is_refused(monkeypatch):
    tokenizer, examples = WordPieceTokenizer.from_vocab(DATA / "course-bert"), module("examples")
    monkeypatch.setattr(examples, "EXAMPLES", [("x", "an *unaffable* film")])
    with pytest.raises(ValueError, match="use words of one token"):
        examples.examples(tokenizer)


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("folder", [FOLDER, FOLDER.parent / "deck"], ids=lambda path: path.name)
def test_what_npm_fetches_is_pinned_and_the_lock_names_no_host(folder):
    wanted = json.loads((folder / "package.json").read_text("utf-8"))["dependencies"]
    lock = (folder / "package-lock.json").read_text("utf-8")
    packages = json.loads(lock)["packages"]
    assert all(re.fullmatch(r"\d+(\.\d+)+", version) for version in wanted.values())
    assert packages[""]["dependencies"] == wanted
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all("integrity" in package for name, package in packages.items() if name)
    assert "http" not in lock and "resolved" not in lock


def test_the_page_names_no_other_host_and_only_relative_files():
    for file in sorted((FOLDER / "page").iterdir()):
        text = file.read_text("utf-8")
        hosts = set(re.findall(r"(?:https?:|wss?:)?//([\w.-]+\.\w+|localhost)\S*", text))
        assert hosts <= {"localhost"}, f"{file.name} names {hosts}"
        assert not re.search(r"""(?:src|href|import|from|url\()\s*=?\s*["']/""", text), file.name


def test_without_npm_the_build_says_what_to_install(monkeypatch, tmp_path):
    build = module("build")
    shutil.copy(FOLDER / "package.json", tmp_path)
    monkeypatch.setattr(npm, "RUNTIME", tmp_path / "node_modules" / "onnxruntime-web")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="onnxruntime-web .* npm.* Install Node.js"):
        build.main(["--out", str(tmp_path / "page")])
    assert not (tmp_path / "page").exists()


def test_every_file_of_the_page_says_what_it_holds_in_lines_of_one_screen():
    for file in sorted((FOLDER / "page").glob("*.js")):
        lines = file.read_text("utf-8").splitlines()
        assert max(map(len, lines)) <= 100, file.name
        assert lines[0].startswith("// "), file.name
