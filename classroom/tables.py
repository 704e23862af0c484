"""Reads and writes tables for spreadsheets: CSV files in UTF-8, in which no text can be taken for a
formula."""

import csv
import io
from pathlib import Path

from classroom.lab import Refused
from mlm_lib.engine.files import write

FORMULA = ("=", "+", "-", "@", "\t")  # with these a formula may begin


def parse(path: Path) -> tuple[list[str], list[dict], str]:
    """The names of a table's columns, its rows and its separator.

    Raises:
        Refused: the file cannot be read as a table.
    """
    csv.field_size_limit(2**31 - 1)  # a teacher may have pasted a long text into a cell
    try:
        text = path.read_bytes().decode("utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        file = io.StringIO(text, newline="")
        reader = csv.DictReader(file, restkey="more", restval="", delimiter=separator)
        rows = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise Refused(f"{path} cannot be read as a table: {error}") from None
    return list(reader.fieldnames or []), rows, separator


def read(path: Path, needed: set[str], kind: str) -> list[dict]:
    """The rows of a table that we wrote, and no rows if the file does not exist.

    Args:
        needed: the columns that the table must have.
        kind: what the table is, for the message.

    Raises:
        Refused: the file is not a table, or a column is missing.
    """
    header, rows, _ = parse(path) if path.exists() else ([], [], "")
    if header and not needed <= set(header):
        raise Refused(f"{path} is no {kind}, and is left as it is; name another file")
    return [{name: from_cell(text) for name, text in row.items()} for row in rows]


def write_rows(path: Path, columns: list[str], rows) -> None:
    """Write a table. It is written as a whole or not at all, so that after Ctrl-C or on a full disk
    the earlier table is still there."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: as_cell(value) for name, value in row.items()} for row in rows)
    # Excel reads a file as UTF-8 if it begins with this byte order mark.
    write(path, ("\ufeff" + text.getvalue()).encode("utf-8", "backslashreplace"))


def as_cell(value) -> str:
    """The text of a cell. A text that a spreadsheet would run as a formula gets an apostrophe in
    front, because names and messages come from students."""
    text = str(value)
    return "'" + text if text.startswith(FORMULA) else text


def from_cell(text) -> str:
    """The text that `as_cell` was given. Surplus cells of a row are joined by semicolons."""
    text = ";".join(text) if isinstance(text, list) else text
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text


def number(text) -> float:
    """The number in a cell of a table, also if it is written with a comma, as in 7,5. A text that
    is not a number counts as 0."""
    try:
        return float(str(text).replace(",", "."))
    except ValueError:
        return 0.0
