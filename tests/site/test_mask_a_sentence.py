"""The page that masks a sentence: its rules and its band are those of `mlm_lib.masking`."""

import json
import math

import pytest
import torch
from blank_toys import odd_strings
from play_toys import FOLDER, ask

from docs.site.play import build
from mlm_lib import DATA, masking
from mlm_lib.corpus import load_corpus
from mlm_lib.masking import MaskingCollator, Strategy, mask_tokens
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.site
MARKER = 7777  # stands for every random token
by_unit = pytest.mark.parametrize("whole", [False, True], ids=["tokens", "whole words"])


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.from_vocab(DATA / "course-bert")


@pytest.fixture(scope="module")
def texts():
    """Reviews, a paragraph, and odd strings, in which special tokens stand before pieces."""
    passage = load_corpus(DATA / "passages.txt")[0]
    return [passage, *load_corpus("reviews")[:40], *odd_strings(300)]


@by_unit
@pytest.mark.parametrize("rate", [0.0, 0.15, 0.4, 1.0])
def test_with_the_same_numbers_the_page_masks_as_the_package_does(
    tokenizer, texts, monkeypatch, whole, rate
):
    generator, calls, expected = torch.Generator().manual_seed(0), [], []
    special = torch.zeros(len(tokenizer), dtype=torch.bool)
    special[tokenizer.all_special_ids] = True
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text)])
        tokens = [tokenizer.tokens[i] for i in ids[0].tolist()]
        numbers = torch.rand(ids.shape, generator=generator)
        if not whole:  # the page gives numbers to tokens that may be chosen, and to no others
            given = numbers.clone()
            numbers = numbers[~special[ids]][None]
        else:
            given = numbers
        # `draw` is asked for as many numbers as there are units; a row of its own for each text.
        drawn = Strategy(lambda maskable, *_: given[:, : maskable.shape[1]], by_word=whole)
        monkeypatch.setitem(masking.STRATEGIES, "given", drawn)
        pieces = torch.tensor([[not token.startswith("##") for token in tokens]])
        read, labels = mask_tokens(
            ids, mask_token_id=tokenizer.mask_token_id, random_token_ids=[MARKER],
            special_tokens_mask=special[ids], rate=rate, word_ids=pieces.cumsum(1),
            strategy="given",
        )  # fmt: skip
        options = {"rate": rate, "maskId": tokenizer.mask_token_id, "wholeWords": whole}
        calls.append(
            ["mask", tokens, ids[0].tolist(), numbers[0].tolist(), options | {"marker": MARKER}]
        )
        expected.append((read[0].tolist(), labels[0].tolist()))
    answers = ask(*calls)
    for text, answer, (read, labels) in zip(texts, answers, expected):
        assert (answer["read"], answer["labels"]) == (read, labels), text
        fated = [fate is not None for fate in answer["fates"]]
        assert fated == [label != -100 for label in labels]
    fates = {fate for answer in answers for fate in answer["fates"]}
    assert fates == ({None, "mask", "random", "kept"} if rate else {None})


@by_unit
def test_the_shares_of_many_draws_are_those_of_the_package(tokenizer, texts, whole):
    many, rate = 4000, 0.15
    ids = tokenizer.encode(texts[0])
    tokens = [tokenizer.tokens[i] for i in ids]
    ordinary = sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids))
    options = {"rate": rate, "maskId": tokenizer.mask_token_id, "wholeWords": whole}
    (answer,) = ask(["draws", tokens, ids, ordinary, many, options])
    counts = torch.tensor(answer["counts"], dtype=torch.float64)  # (draws, fates)

    collate = MaskingCollator(
        tokenizer, rate=rate, strategy="whole_word" if whole else "token", seed=0
    )
    batch = collate([ids] * many)
    chosen = batch["labels"] != -100
    hidden = chosen & (batch["input_ids"] == tokenizer.mask_token_id)
    kept = chosen & (batch["input_ids"] == batch["labels"])
    package = [part.sum(1).double() for part in (hidden, chosen & ~hidden & ~kept, kept)]

    for page, theirs in zip([counts.sum(1), *counts.T], [chosen.sum(1).double(), *package]):
        error = math.sqrt((page.var() + theirs.var()) / many)
        assert abs(page.mean() - theirs.mean()) < 4 * error
        assert page.std().item() == pytest.approx(theirs.std().item(), rel=0.06)
    picked = {int(token): times for token, times in answer["picked"].items()}
    assert set(picked) <= set(ordinary)
    mean = sum(token * times for token, times in picked.items()) / sum(picked.values())
    spread = len(ordinary) / math.sqrt(12 * sum(picked.values()))
    assert abs(mean - sum(ordinary) / len(ordinary)) < 4 * spread


def test_the_band_is_the_one_that_the_lesson_prints():
    lesson = json.loads((FOLDER.parents[2] / "notebooks" / "02_masking.ipynb").read_text("utf-8"))
    stored = "".join(
        line
        for cell in lesson["cells"]
        for output in cell.get("outputs", [])
        for line in output.get("text", [])
    )
    (found,) = ask(["band", [1] * 124, 0.15])
    assert f"mean {found['mean']:.1f}, standard deviation {found['deviation']:.2f}" in stored
    assert f"band {found['low']:.1f} to {found['high']:.1f}" in stored


@pytest.mark.parametrize("rate", [0.0, 0.15, 0.5, 1.0])
def test_the_chance_of_each_count_is_the_binomial_one_and_words_spread_the_band(rate):
    n, sizes = 21, [1, 4, 2, 1, 1, 3]
    single, words, chances, by_word = ask(
        ["band", [1] * n, rate], ["band", sizes, rate],
        ["chances", [1] * n, rate], ["chances", sizes, rate],
    )  # fmt: skip
    binomial = [math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
    assert chances == pytest.approx(binomial, abs=1e-12)
    assert single["deviation"] == pytest.approx(math.sqrt(n * rate * (1 - rate)))
    mean = sum(k * p for k, p in enumerate(by_word))
    variance = sum((k - mean) ** 2 * p for k, p in enumerate(by_word))
    assert words["mean"] == pytest.approx(mean) == rate * sum(sizes)
    assert words["deviation"] == pytest.approx(math.sqrt(max(0, variance)), abs=1e-9)


def test_modules_are_joined_once_each_and_a_clash_of_names_is_refused(tmp_path):
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nimport { c } from "./c.js";\nb;\n')
    (tmp_path / "b.js").write_text('import { c } from "./c.js";\nexport const b = c;\n')
    (tmp_path / "c.js").write_text("export const c = 1;\n")
    assert build.joined(tmp_path / "a.js").split("\n")[1:4] == ["const c = 1;", "", "const b = c;"]
    (tmp_path / "c.js").write_text("export const c = 1;\nconst b = 2;\n")
    with pytest.raises(ValueError, match="b would be defined twice"):
        build.joined(tmp_path / "a.js")


@pytest.mark.parametrize("code", ['import * as b from "./b.js";\n', "export default 1;\n"])
def test_what_cannot_be_joined_is_refused(tmp_path, code):
    (tmp_path / "b.js").write_text("export const b = 1;\n")
    (tmp_path / "a.js").write_text(code)
    with pytest.raises(ValueError, match="a.js"):
        build.joined(tmp_path / "a.js")


def test_every_script_says_what_it_holds_in_lines_of_one_screen():
    for file in FOLDER.rglob("*.js"):
        lines = file.read_text("utf-8").splitlines()
        assert max(map(len, lines)) <= 100, file.name
        assert lines[0].startswith("// "), file.name
