"""Rows on disk: what a list of them gives, made once, whole or not at all."""

import copy
import os
import random
import shutil
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset
from small_runs import SMALL, lines
from toys import tokenizer_of
from training_toys import ROWS, assert_same, go

from mlm_lib.engine import prepared as engine
from mlm_lib.engine.prepared import ArrowRows, TokenizedCorpus, tokenized_rows
from mlm_lib.pretrain import main

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = tokenizer_of(*sorted({word for line in lines() for word in line.split()})).to_hf()


@pytest.fixture
def folder(tmp_path):
    """Three files of texts, a long one among them."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        texts = [f"{line} number {number}" for line in lines()]
        texts += [" ".join(lines())] * (number == 1)
        (tmp_path / "texts" / f"{number}.txt").write_text("\n".join(texts))
    return tmp_path


def prepared(folder, most=12, tokens=WORDS, **options):
    part = TokenizedCorpus(folder / "texts", prepared=folder / "arrow", **options)
    part.encode(tokens, most)
    return part


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_on_disk_are_all_rows_in_their_order(folder, workers):
    part = prepared(folder, workers=workers)
    every = list(tokenized_rows(part.files, WORDS, 12))
    assert list(part.rows) == [row["input_ids"] for row in every if not row["held"]]
    assert part.held_out_rows == [row["input_ids"] for row in every if row["held"]]
    assert part.rows.lengths.tolist() == [*map(len, part.rows)]
    assert max(part.rows.lengths) == 12 and 0 < len(part.held_out_rows) < len(every) / 4


def test_a_long_text_is_cut_into_rows_that_hold_all_of_it(folder):
    rows = [
        row["input_ids"]
        for row in tokenized_rows([(folder / "texts" / "1.txt", "text")], WORDS, 12)
    ]
    inner = [token for row in rows for token in row[1:-1]]
    texts = (folder / "texts" / "1.txt").read_text().split("\n")
    assert inner == [i for ids in WORDS(texts)["input_ids"] for i in ids[1:-1]]


@pytest.mark.parametrize("grouped", [False, True])
def test_training_on_rows_from_disk_is_training_on_a_list_to_the_bit(tmp_path, grouped):
    disk = Dataset.from_dict({"input_ids": ROWS}).with_format("numpy")
    rows = ArrowRows(disk, np.array([*map(len, ROWS)]), np.arange(len(ROWS)))
    models = [go(data=data, group_by_length=grouped)[0] for data in (ROWS, rows)]
    assert_same(*models)


def edited(folder, name="1.txt", old="anna", new="anne"):
    """Other words of the same length in one of the files."""
    path = folder / "texts" / name
    path.write_text(path.read_text().replace(old, new))


def edited_with_its_date_kept(folder):
    path = folder / "texts" / "2.txt"
    then = path.stat()
    edited(folder, "2.txt")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))


CASED, ACCENTS = copy.deepcopy(WORDS), copy.deepcopy(WORDS)
CASED.backend_tokenizer.normalizer.lowercase = False
ACCENTS.backend_tokenizer.normalizer.strip_accents = False
OTHER = tokenizer_of("other", "words").to_hf()
# What is done to the texts, how the rows are asked for then, and what differs by the refusal.
CHANGES = {
    "a file more": (lambda folder: (folder / "texts" / "3.txt").write_text("more"), {}, "files"),
    "a file less": (lambda folder: (folder / "texts" / "0.txt").unlink(), {}, "files"),
    "another word": (edited, {}, "contents of 1.txt"),
    "another word of the same date": (edited_with_its_date_kept, {}, "contents of 2.txt"),
    "vocabulary": (None, {"tokens": OTHER}, "vocabulary"),
    "capitals": (None, {"tokens": CASED}, "normalizer"),
    "accents": (None, {"tokens": ACCENTS}, "normalizer"),
    "length": (None, {"most": 10}, "max_length"),
    "share": (None, {"validation_share": 0.2}, "validation_share"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_something_else_are_refused_by_what_differs(folder, change):
    prepared(folder)
    do, asked, told = CHANGES[change]
    if do is not None:
        do(folder)
    with pytest.raises(ValueError, match=f"arrow was prepared with other {told};"):
        prepared(folder, **asked)


def test_another_column_is_other_rows(tmp_path):
    (tmp_path / "a.csv").write_text("text,body\n" + "\n".join(f"{one},{one}" for one in lines()))
    said = {"prepared": tmp_path / "arrow"}
    TokenizedCorpus(f"{tmp_path}/a.csv", **said).encode(WORDS, 12)
    with pytest.raises(ValueError, match="prepared with other columns;"):
        TokenizedCorpus(f"{tmp_path}/a.csv:body", **said).encode(WORDS, 12)


def test_files_that_are_touched_or_copied_are_the_same_and_read_only_once_more(folder, monkeypatch):
    first, read = list(prepared(folder).rows), []
    digest_of = engine.digest_of
    monkeypatch.setattr(engine, "digest_of", lambda x: read.append(x) or digest_of(x))
    os.utime(folder / "texts" / "1.txt")
    (folder / "texts").rename(folder / "moved")
    shutil.copytree(folder / "moved", folder / "texts")
    for count in (3, 0):
        read.clear()
        assert list(prepared(folder).rows) == first
        assert sum(str(one).endswith(".txt") for one in read) == count


@pytest.mark.parametrize("seed", range(6))
def test_damaged_rows_are_refused_by_name_before_any_is_read(folder, seed):
    prepared(folder, workers=2)
    draw = random.Random(seed)
    path = draw.choice(sorted((folder / "arrow" / "rows").glob("*.arrow")))
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 + draw.randrange(255)
    path.write_bytes(content if seed else content[:-1])
    with pytest.raises(ValueError, match=f"{path.name} is damaged; delete .*arrow"):
        prepared(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{path.name} is missing; delete .*arrow"):
        prepared(folder)


@pytest.mark.parametrize("content", ["", "{", "3", "null", '{"files": [], "max_length": 12}'])
def test_a_folder_that_does_not_say_what_it_holds_is_refused(folder, content):
    prepared(folder)
    (folder / "arrow" / "prepared.json").write_text(content)
    with pytest.raises(ValueError, match="damaged|earlier version"):
        prepared(folder)


BAD = {
    "Latin-1": ("b.txt", "Gr\xfc\xdfe".encode("latin-1"), "b.txt, line 1: not UTF-8"),
    "half a character": ("b.jsonl", b'{"text": "\\ud83d"}', "b.jsonl, line 1: 'text' holds '"),
    "no column": ("b.csv", b"body\nx\n", "b.csv, line 2: no column 'text'"),
    "no JSON": ("b.json", b'[{"text": "x"},\n}', "b.json, line 2: not JSON"),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", BAD)
def test_files_that_cannot_be_read_are_one_sentence_from_any_worker(folder, name, workers):
    file, content, told = BAD[name]
    (folder / "texts" / file).write_bytes(content)
    with pytest.raises(ValueError, match=told):
        prepared(folder, workers=workers)
    (folder / "texts" / file).unlink()
    assert len(prepared(folder).rows) > 900  # and nothing of it is left


def test_what_cannot_become_rows_is_one_sentence(folder):
    for most in (2, 1, 0):
        with pytest.raises(ValueError, match=f"max_length={most}; a whole number of at least 3"):
            prepared(folder, most=most)
    with pytest.raises(ValueError, match="texts: none of .* texts .* that the vocabulary knows"):
        prepared(folder, tokens=OTHER)
    for corpus in ("grammar", "reviews", "hub:acme/tiny"):
        with pytest.raises(ValueError, match=f"made of files, and '{corpus}' is not a file"):
            TokenizedCorpus(corpus, prepared=folder / "arrow")
    for share in (1, 1.5, -0.1):
        with pytest.raises(ValueError, match=f"validation_share={share}"):
            TokenizedCorpus(folder / "texts", prepared=folder / "arrow", validation_share=share)


def test_texts_of_ones_own_to_evaluate_on_leave_every_text_to_train_on(folder):
    (folder / "texts" / "valid.txt").write_text("\n".join(lines(40, seed=1)))
    with pytest.warns(UserWarning, match="1 held out: valid.txt"):
        part = prepared(folder, validation=folder / "texts" / "valid.txt")
    assert part.held_out_rows == WORDS(list(lines(40, seed=1)))["input_ids"]
    counts = {"texts": 901, "held": 40, "unknown": 0}
    assert counts.items() <= part.counts.items() and part.counts["tokens"] == part.counts["kept"]
    assert "901 texts are trained on, 40 are held out" in part.describe()
    with pytest.raises(ValueError, match="validation_share=0.1 are given; leave one of them out"):
        prepared(folder, validation="x.txt", validation_share=0.1)


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.25])
def test_a_share_of_the_texts_is_held_out_and_counted(folder, share):
    files, counts = [(folder / "texts" / f"{number}.txt", "text") for number in range(3)], Counter()
    rows = list(tokenized_rows(files, WORDS, 24, share, counts))
    assert counts["texts"] + counts["held"] == 901
    assert abs(counts["held"] / 901 - share) <= 3 * (share / 901) ** 0.5
    assert sum(row["length"] - 2 for row in rows if not row["held"]) == counts["kept"]


def test_what_was_made_by_half_is_made_anew_and_what_is_whole_is_not(folder, monkeypatch):
    first = list(prepared(folder).rows)
    (folder / "arrow" / "prepared.json").unlink()
    for left in (folder / "arrow" / "rows").glob("*.arrow"):
        left.write_bytes(b"half")
    assert list(prepared(folder).rows) == first
    monkeypatch.setattr(TokenizedCorpus, "_make_rows", None)
    assert list(prepared(folder).rows) == first


def test_a_run_reads_them_and_resumes_to_the_bit(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "small.toml").write_text(SMALL + 'schedule = "constant"\nwarmup = 0\n')
    said = ["--config", "small.toml", "--corpus", "texts", "--prepared", "arrow"]
    for out, steps in (("whole", (12,)), ("parts", (6, 12))):
        for number in steps:
            assert main([*said, "--out", out, "--steps", str(number), "--resume"]) == 0
    whole, parts = (folder / out / "model" / "model.safetensors" for out in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
