"""Texts out of files: paragraphs or lines, a column, JSON lines, a folder. Built in lesson 01."""

import csv
import json
import os
import re
from itertools import groupby
from pathlib import Path

from mlm_lib.checks import path_name, shown

_SUFFIXES = (".txt", ".csv", ".jsonl")
_SURROGATE = re.compile("[\ud800-\udfff]")


def iter_texts(source):
    """The texts of a path one at a time, by the rule of `load_corpus`; no file is held in memory.

    Args:
        source: a `.txt`, `.csv` or `.jsonl` file, a column as in `films.csv:body`, or a folder.

    Returns:
        A generator of non-empty strings, in the order of the files' names and of the texts in them.

    Raises:
        FileNotFoundError: no file at that path.
        ValueError: no text, no UTF-8, a missing column, or a line that is no CSV or no JSON. It
            names the file and the line, after the texts before it were given.
    """
    name, column = path_name("source", source), "text"
    stem, _, last = name.rpartition(":")
    if Path(stem).suffix.lower() in (".csv", ".jsonl") and not os.path.exists(name):
        name, column = stem, last
    files = _files(Path(name))
    return (text for file in files for text in _texts(file, column))


def _files(path):
    """The path itself, or the files of a folder that hold texts."""
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"unknown corpus: there is no file {shown(str(path))}; known by name are 'grammar', "
            "'reviews', 'docs' and 'hub:NAME[:CONFIG][:COLUMN]'"
        )
    files = [path]
    if path.is_dir():  # nothing hidden: .ipynb_checkpoints, for one, holds copies
        files = sorted(path.rglob("*"))
        files = [file for file in files if "/." not in f"/{file.relative_to(path).as_posix()}"]
    # No pipe or device: it gives its texts once, and to open one may be to wait for ever.
    files = [file for file in files if file.suffix.lower() in _SUFFIXES and file.is_file()]
    if not files:
        raise ValueError(f"{path} is no {', '.join(_SUFFIXES)} file, nor a folder that holds one")
    return files


def _texts(path, column):
    """The texts of one file, without the blank ones."""
    read = {".txt": _paragraphs, ".csv": _csv_cells, ".jsonl": _json_cells}[path.suffix.lower()]
    empty = True
    for text in read(path, column):
        if text.strip():
            empty = False
            yield text
    if empty:
        raise ValueError(f"{path} holds no text")


def _lines(path):
    r"""The lines of a UTF-8 file, with a `\n` for each `\r\n` and `\r`; U+2028 ends no line."""
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if _SURROGATE.search(line):  # what a byte becomes that is not UTF-8
                raise ValueError(f"{path}, line {number}: not UTF-8; save the file as UTF-8")
            yield line


def _paragraphs(path, column):
    """The paragraphs of a text file, each in one line; the lines if it is all one paragraph."""
    count = sum(filled for filled, _ in groupby(_lines(path), key=_has_text))
    for filled, lines in groupby(_lines(path), key=_has_text):
        if filled:
            blocks = lines if count == 1 else ["".join(lines)]
            yield from (" ".join(block.split()) for block in blocks)


def _has_text(line):
    return bool(line.strip())


def _csv_cells(path, column):
    csv.field_size_limit(2**31 - 1)  # a text may be long
    reader = csv.DictReader(_lines(path), strict=True)  # or an open quote swallows the rest
    try:
        if (reader.fieldnames or []).count(column) > 1:
            raise ValueError(f"{path} has several columns {column!r}; rename those not meant")
        for row in reader:
            yield _cell(row, column, path, reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, after line {reader.line_num}: not CSV ({error})") from None


def _json_cells(path, column):
    for number, line in enumerate(_lines(path), 1):
        if _has_text(line):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
            yield _cell(row, column, path, number)


def _cell(row, column, path, line):
    """The text in a row's column."""
    if not isinstance(row, dict) or column not in row:
        have = shown(list(row) if isinstance(row, dict) else row)
        raise ValueError(
            f"{path}, line {line}: no column {column!r} in {have}; "
            f"name yours after a colon: '{path}:COLUMN'"
        )
    if None in row:  # where the reader puts what has no column
        raise ValueError(f"{path}, line {line}: more cells than columns; quote what holds a comma")
    if not isinstance(row[column], str) or _SURROGATE.search(row[column]):  # half a character
        raise ValueError(f"{path}, line {line}: {column!r} is {shown(row[column])}, and no text")
    return row[column]
