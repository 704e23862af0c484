"""Texts out of files: paragraphs or lines, a column, JSON lines, a folder. Built in lesson 01."""

import csv
import json
import os
import re
from itertools import groupby, islice
from pathlib import Path

from mlm_lib.checks import path_name, shown

SUFFIXES = (".txt", ".csv", ".jsonl")


def iter_texts(source):
    """The texts of a path one at a time, by the rule of `load_corpus`; no file is held in memory.

    Args:
        source: a `.txt`, `.csv` or `.jsonl` file, a column as in `films.csv:body`, or a folder.

    Returns:
        A generator of non-empty strings, in the order of the files' names and of the texts in them.
        What is wrong inside a file is raised when the texts before it have been given.

    Raises:
        FileNotFoundError: no file at that path.
        ValueError: an empty file, a missing column, a file that is not CSV or JSON lines.
        UnicodeDecodeError: not UTF-8; the message names the file and the byte offset.
    """
    path, column = path_and_column(path_name("source", source))
    files = _files(path)
    return (text for file in files for text in _texts(file, column))


def path_and_column(source):
    """`films.csv:body` is the column body of films.csv, unless a file has that very name."""
    stem, colon, column = source.rpartition(":")
    if colon and Path(stem).suffix.lower() in (".csv", ".jsonl") and not os.path.exists(source):
        return Path(stem), column
    return Path(source), "text"


def _files(path):
    """The path itself, or the files of a folder that hold texts."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_file():
        return [path]
    if not path.is_dir():  # a pipe gives its texts once, and opening one may wait for ever
        raise ValueError(f"{path} is a pipe or a device; save its texts to a file, and name that")
    files = []
    for file in sorted(path.rglob("*")):
        # Nothing hidden: .ipynb_checkpoints, for one, holds copies.
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.suffix.lower() in SUFFIXES and file.is_file() and not hidden:
            files.append(file)
    if not files:
        raise ValueError(f"the folder {path} holds no {', '.join(SUFFIXES)} file")
    return files


def _texts(path, column):
    """The texts of one file, without the blank ones."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} ends in {suffix!r}; load_corpus reads {', '.join(SUFFIXES)}")
    if not any(map(_has_text, _lines(path))):
        raise ValueError(f"{path} is empty")
    if suffix == ".txt":
        texts = _paragraphs(path)
    else:
        rows = _csv_rows(path, column) if suffix == ".csv" else _json_rows(path)
        texts = (_cell(row, column, path, line) for line, row in rows)
    usable = False
    for text in filter(_has_text, texts):
        usable = True
        yield text
    if not usable:
        raise ValueError(f"{path} holds no usable text: every entry is blank")


def _has_text(line):
    return bool(line.strip())


def _lines(path):
    r"""The lines of a UTF-8 file, with a `\n` for each `\r\n` and `\r`; U+2028 ends no line."""
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file):
                yield line if number else line.removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            # The decoder saw a piece of the file, at whose end the buffer now stands.
            start = file.buffer.tell() - len(error.object) + error.start
            bad = error.object[error.start : error.end]
            reason = f"{error.reason}, at byte offset {start} of {path}; save the file as UTF-8"
            raise UnicodeDecodeError("utf-8", bad, start, start + len(bad), reason) from None


def _paragraphs(path):
    """The paragraphs of a text file, each in one line; the lines if it is all one paragraph."""
    starts = (None for filled, _ in groupby(_lines(path), key=_has_text) if filled)
    if len(list(islice(starts, 2))) < 2:
        blocks = _lines(path)
    else:
        groups = groupby(_lines(path), key=_has_text)
        blocks = ("".join(lines) for filled, lines in groups if filled)
    return (" ".join(block.split()) for block in blocks)


def _csv_rows(path, column):
    """(line, row) for each row of a table, the row as a dictionary."""
    longest = min(path.stat().st_size, 2**31 - 1)  # a text may be as long as its file
    csv.field_size_limit(max(csv.field_size_limit(), longest))
    reader = csv.DictReader(_lines(path), strict=True)  # or an open quote swallows the rest
    try:
        columns = list(reader.fieldnames or ())
        if column not in columns:
            raise ValueError(_no_column(path, column, columns))
        if columns.count(column) > 1:
            raise ValueError(f"{path} has several columns {column!r}; rename those not meant")
        for row in reader:
            if None in row:
                raise ValueError(
                    f"{path}, line {reader.line_num}: more cells than columns; "
                    "put quotes round a comma"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}, after line {reader.line_num}: not CSV ({error})") from None


def _json_rows(path):
    """(line, row) for each line that is not blank, the row as a dictionary."""
    for number, line in enumerate(_lines(path), 1):
        if not _has_text(line):
            continue
        try:
            row = json.loads(line.removesuffix("\n"))
        except (ValueError, RecursionError) as error:  # RecursionError: brackets nested too deep
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(
                f"{path}, line {number}: a JSON object is needed, not {type(row).__name__}"
            )
        yield number, row


def _cell(row, column, path, line):
    """The text of a row. JSON can spell half a character, which no tokenizer takes."""
    if column not in row:
        raise ValueError(f"line {line}: {_no_column(path, column, row)}")
    text = row[column]
    if not isinstance(text, str) or re.search("[\ud800-\udfff]", text):
        raise ValueError(
            f"{path}, line {line}: column {column!r} holds {shown(text)}, which is not text"
        )
    return text


def _no_column(path, column, columns):
    have = ", ".join(map(repr, columns)) or "none"
    named = f"Name yours after a colon: '{path}:COLUMN'"
    return f"{path} has no column {column!r}; it has {have}. {named}"
