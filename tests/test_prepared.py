"""Rows on disk: what a list of them gives, made once, whole or not at all."""

import numpy as np
import pytest
from datasets import Dataset
from small_runs import SMALL, lines
from toys import tokenizer_of
from training_toys import ROWS, assert_same, go

from mlm_lib.engine.prepared import Prepared, Rows, rows_of
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


def prepared(folder, most=12, **options):
    part = Prepared(folder / "texts", prepared=folder / "arrow", **options)
    part.encode(WORDS, most)
    return part


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_on_disk_are_all_rows_in_their_order(folder, workers):
    part = prepared(folder, workers=workers)
    every = list(rows_of(part.files, WORDS, 12))
    assert list(part.rows) == [row["input_ids"] for row in every if not row["held"]]
    assert part.held == [row["input_ids"] for row in every if row["held"]]
    assert part.rows.lengths.tolist() == [*map(len, part.rows)]
    assert max(part.rows.lengths) == 12 and 0 < len(part.held) < len(every) / 4


def test_a_long_text_is_cut_into_rows_that_hold_all_of_it(folder):
    rows = [row["input_ids"] for row in rows_of([(folder / "texts" / "1.txt", "text")], WORDS, 12)]
    inner = [token for row in rows for token in row[1:-1]]
    texts = (folder / "texts" / "1.txt").read_text().split("\n")
    assert inner == [i for ids in WORDS(texts)["input_ids"] for i in ids[1:-1]]


@pytest.mark.parametrize("grouped", [False, True])
def test_training_on_rows_from_disk_is_training_on_a_list_to_the_bit(tmp_path, grouped):
    disk = Dataset.from_dict({"input_ids": ROWS}).with_format("numpy")
    rows = Rows(disk, np.array([*map(len, ROWS)]), np.arange(len(ROWS)))
    models = [go(data=data, group_by_length=grouped)[0] for data in (ROWS, rows)]
    assert_same(*models)


@pytest.mark.parametrize("change", ["files", "vocabulary", "max_length"])
def test_rows_of_something_else_are_refused_by_what_differs(folder, change):
    prepared(folder)
    tokens, most = WORDS, 12
    if change == "files":
        (folder / "texts" / "3.txt").write_text("more\n")
    elif change == "vocabulary":
        tokens = tokenizer_of("other", "words").to_hf()
    else:
        most = 10
    with pytest.raises(ValueError, match=f"arrow was prepared with other {change};"):
        Prepared(folder / "texts", prepared=folder / "arrow").encode(tokens, most)


def test_what_was_made_by_half_is_made_anew_and_what_is_whole_is_not(folder, monkeypatch):
    first = list(prepared(folder).rows)
    (folder / "arrow" / "prepared.json").unlink()
    for left in (folder / "arrow" / "rows").glob("*.arrow"):
        left.write_bytes(b"half")
    assert list(prepared(folder).rows) == first
    monkeypatch.setattr(Prepared, "_make", None)
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
