"""Texts out of files: paragraphs or lines, a column, JSON lines, a folder. Built in lesson 01."""

import csv
import io
import json
import os
import re
from pathlib import Path

from mlm_lib.checks import path_name, shown

_SUFFIXES = (".txt", ".csv", ".jsonl")


def read_texts(source):
    """The texts of a path, by the rule of `load_corpus`.

    Args:
        source: a `.txt`, `.csv` or `.jsonl` file, a column as in `films.csv:body`, or a folder.

    Returns:
        A list of strings that are not blank, in the order of the files' names and of the texts in
        them.

    Raises:
        FileNotFoundError: no file at that path.
        ValueError: no UTF-8, a missing column, or a line that is no CSV or no JSON. It names the
            file and the line.
    """
    return [text for file in text_files(source) for text in texts_of(*file)]


def text_files(source):
    """(file, column) of each file that a path stands for; errors as of `read_texts`."""
    name, column = path_name("source", source), "text"
    stem, _, last = name.rpartition(":")
    if Path(stem).suffix.lower() in (".csv", ".jsonl") and not os.path.exists(name):
        name, column = stem, last
    return [(file, column) for file in _files(Path(name))]


def texts_of(path, column="text"):
    """The texts of one file, without blank ones."""
    return [text for text in _texts(path, column) if text.strip()]


def _files(path):
    """The path itself, or the files of a folder that hold texts."""
    if not os.path.exists(path):
        told = f"no file {shown(str(path))}, and not 'reviews', 'docs' or 'hub:NAME'"
        raise FileNotFoundError(f"unknown corpus: {told}")
    files = [path]
    if path.is_dir():  # nothing hidden: .ipynb_checkpoints, for one, holds copies
        files = sorted(path.rglob("*"))
        files = [file for file in files if "/." not in f"/{file.relative_to(path).as_posix()}"]
    # No pipe or device: to read one may be to wait for ever.
    files = [file for file in files if file.suffix.lower() in _SUFFIXES and file.is_file()]
    if not files:
        raise ValueError(f"{path} is no {', '.join(_SUFFIXES)} file, nor a folder that holds one")
    return files


def _texts(path, column):
    """The texts of one file, blank ones among them."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # its line ends are \n from here on
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from None
    if path.suffix.lower() == ".txt":
        return _paragraphs(text)
    rows = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
    return [_cell(row, column, f"{path}, line {line}") for line, row in rows(text, path, column)]


def _paragraphs(text):
    """The paragraphs of a text, each in one line; the lines if it is all one paragraph."""
    blocks = re.split(r"\n\s*\n", text.strip())
    blocks = text.split("\n") if len(blocks) == 1 else blocks
    return [" ".join(block.split()) for block in blocks]


def _csv_rows(text, path, column):
    """(line, {column: cell}) for each row."""
    csv.field_size_limit(2**31 - 1)  # a text may be long
    reader = csv.DictReader(io.StringIO(text), strict=True)  # or an open quote swallows the rest
    try:
        if (reader.fieldnames or []).count(column) > 1:
            raise ValueError(f"{path} has several columns {column!r}; rename those not meant")
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}, after line {reader.line_num}: not CSV ({error})") from None


def _json_rows(text, path, column):
    """(line, what stands in it) for each line that is not blank."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None


def _cell(row, column, place):
    """The text in a row's column."""
    if not isinstance(row, dict) or column not in row:
        have = shown(list(row) if isinstance(row, dict) else row)
        raise ValueError(f"{place}: no column {column!r} in {have}; write FILE:COLUMN for yours")
    if None in row:  # where the reader puts what has no column
        raise ValueError(f"{place}: more cells than columns; quote what holds a comma")
    if not isinstance(row[column], str):
        raise ValueError(f"{place}: {column!r} is {shown(row[column])}, and no text")
    return row[column]
