"""Tables as spreadsheets have them: CSV in UTF-8, in which no text is taken for a formula."""

import csv
import io
from pathlib import Path

from classroom.lab import Refused
from mlm_lib.engine.files import write

FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet may take for the beginning of one


def parse(path: Path) -> tuple[list[str], list[dict], str]:
    """The columns of a table, its rows, and its separator. Raises Refused."""
    csv.field_size_limit(2**31 - 1)  # a cell may hold what a teacher has pasted
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
    """The rows of a table of ours; none where there is no file yet. Raises Refused."""
    header, rows, _ = parse(path) if path.exists() else ([], [], "")
    if header and not needed <= set(header):
        raise Refused(f"{path} is no {kind}, and is left as it is; name another file")
    return [{name: from_cell(text) for name, text in row.items()} for row in rows]


def write_rows(path: Path, columns: list[str], rows) -> None:
    """Whole or not at all, so that a full disk or Ctrl-C leaves the table of a moment before."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: as_cell(value) for name, value in row.items()} for row in rows)
    # The mark by which Excel knows UTF-8.
    write(path, ("\ufeff" + text.getvalue()).encode("utf-8", "backslashreplace"))


def as_cell(value) -> str:
    """Text that no spreadsheet takes for a formula: names and messages come from students."""
    text = str(value)
    return "'" + text if text.startswith(FORMULA) else text


def from_cell(text) -> str:
    text = ";".join(text) if isinstance(text, list) else text
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text


def number(text) -> float:
    """A number that somebody may have written into a table, 7,5 as well; what is none is 0."""
    try:
        return float(str(text).replace(",", "."))
    except ValueError:
        return 0.0
