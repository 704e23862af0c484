"""Reads and writes tables for spreadsheets: CSV files in UTF-8, in which no text can be taken for a
formula."""

import codecs
import csv
import io
import math
import re
from pathlib import Path

from classroom.lab import Refused
from mlm_lib.engine.files import write

# Where a spreadsheet could take a text for a formula: at its beginning, and after a character at
# which a spreadsheet with other settings ends the cell. The text may have apostrophes there.
FORMULA = r"(?:\A|(?<=[;\t\r\n])){}(?='*[=+\-@＝＋－＠])|\A{}(?='*[\t\r\n])"
UNGUARDED, GUARDED = (re.compile(FORMULA.format(guard, guard)) for guard in ("", "'"))


def parse(path: Path) -> tuple[list[str], list[dict], str]:
    """The names of a table's columns, its rows and its separator.

    Raises:
        Refused: the file cannot be read as a table.
    """
    csv.field_size_limit(2**31 - 1)  # a teacher may have pasted a long text into a cell
    try:
        data = path.read_bytes()
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
        head = text.partition("\n")[0]
        if "\0" in head:  # UTF-16 without a byte order mark
            raise UnicodeError
        separator = max(",;\t", key=head.count)
        file = io.StringIO(text, newline="")
        reader = csv.DictReader(file, restkey="more", restval="", delimiter=separator)
        rows = list(reader)
    except UnicodeError:  # a guess at the encoding could change the names of students
        raise Refused(
            f"{path} is not in UTF-8, and so its letters are not certain; open it in your "
            "spreadsheet and save it again as “CSV UTF-8”"
        ) from None
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
    return UNGUARDED.sub("'", str(value))


def from_cell(text) -> str:
    """The text that `as_cell` was given. Surplus cells of a row are joined by semicolons."""
    return GUARDED.sub("", ";".join(text) if isinstance(text, list) else text)


def number(text) -> float:
    """The number in a cell of a table, also if it is written with a comma, as in 7,5. A text that
    is not a number counts as 0."""
    return float(str(text).replace(",", ".")) if is_number(text) else 0.0


def is_number(text) -> bool:
    """Whether a cell of a table holds a finite number."""
    try:
        return math.isfinite(float(str(text).replace(",", ".")))
    except ValueError:
        return False
