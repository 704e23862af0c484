"""Reads texts from files: paragraphs or lines, a column of a table, the files of a folder.

`load_corpus` in `mlm_lib.corpus` describes the rules. A *doubt* is a warning about a file that is
read, but perhaps not in the way that its owner meant.
"""

import csv
import gzip
import io
import json
import os
import re
import warnings
import zlib
from collections import Counter
from pathlib import Path

from mlm_lib.checks import path_name, shown

# The suffixes of the files that are read. Some of them are those of tables with columns.
_TABLES = (".csv", ".jsonl", ".json", ".tsv", ".parquet")
_SUFFIXES = (".txt", *_TABLES, ".text")
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# Names, without a suffix, of files that describe the texts of a folder and contain none.
_METADATA_NAMES = {
    "text": re.compile(
        r"(readme|licen[cs]e)([._ -].*)?|copying|copyright|notice|changelog|changes|authors"
        r"|contribut(ors|ing)|citations?|disclaimer|acknowledge?ments?|install|requirements"
        r"|(md5|sha\d+)(sums?)?|checksums?"
    ),
    "json": re.compile(r"dataset_infos?|dataset_dict|state"),
}
_NAMES_SHOWN = 3  # how many names a warning shows of each kind of file that is left out


def read_texts(source, without=()):
    """Reads the texts of a file or folder, by the rules of `load_corpus`.

    One warning names the files of a folder that are left out. Another names a file whose blank
    lines are so far apart that the texts between them can hardly be paragraphs.

    Args:
        source: a file, a folder, or either with a column after a colon, as in `films.csv:body`.
        without: files of the folder that are not read.

    Returns:
        A list of strings that are not blank, ordered by the names of the files and by their place
        in the file.

    Raises:
        FileNotFoundError: there is no file or folder at that path.
        ValueError: a file is of a kind that is not read, is not UTF-8, or lacks the column; or a
            line is not CSV or not JSON. The message names the file and the line.
    """
    doubts = []
    texts = [text for file in text_files(source, without) for text in texts_of(*file, doubts)]
    warn_once(doubts)
    return texts


def text_files(source, without=()):
    """Finds the files of a source without reading them.

    Args:
        source, without: as in `read_texts`.

    Returns:
        A list of pairs (file, column). The column matters for tables only.

    Raises:
        FileNotFoundError, ValueError: the errors of `read_texts` that need no file to be opened.
    """
    name, column = path_name("source", source), None
    if not os.path.exists(name):
        name = os.path.expanduser(name)
    stem, _, last = name.rpartition(":")
    if not os.path.exists(name) and (os.path.exists(stem) or _kind(Path(stem)) in _TABLES):
        name, column = stem, last
    files = _files(Path(name), {os.path.realpath(file) for file in without})
    if column is not None and not any(_kind(file) in _TABLES for file in files):
        raise ValueError(f"{name} holds no table with columns; leave ':{column}' out")
    return [(file, "text" if column is None else column) for file in files]


def texts_of(path, column="text", doubts=None):
    """Reads the texts of one file, without blank ones.

    Args:
        path: the file.
        column: the column to read, if the file is a table.
        doubts: a list, to which a doubt about the file is added. None: the doubt is discarded.
    """
    if _kind(path) in _TABLES:
        texts = [
            _cell(row, column, f"{path}, {place}") for place, row in _rows_of_table(path, column)
        ]
    else:
        texts = _paragraphs(_content(path), path, [] if doubts is None else doubts)
    return [text for text in texts if text.strip()]


def warn_once(doubts):
    """Gives one warning for all doubts, with the first doubt and the number of the others."""
    if doubts:
        more = f" (The same holds for {len(doubts) - 1:,} more of the files.)" * (len(doubts) > 1)
        warnings.warn(doubts[0] + more)


# ------------------------------------------------------------------------------------ which files


def _kind(path):
    """The suffix that decides how a file is read, or None if the file is not read.

    For `a.CSV` and for `a.csv.gz` it is `.csv`.
    """
    name = path.name.lower()
    kind = Path(name.removesuffix(".gz")).suffix
    packed = name.endswith(".gz")
    return kind if kind in _SUFFIXES and not (packed and kind == ".parquet") else None


def _files(path, unwanted):
    """A list of the path itself or, for a folder, of the files in it that are read."""
    if not os.path.exists(path):
        reason = f"no file {shown(str(path))}, and not 'grammar', 'reviews', 'docs' or 'hub:NAME'"
        raise FileNotFoundError(f"unknown corpus: {reason}")
    if path.is_dir():
        files, left = _sorted_out(path, unwanted)
    else:  # `is_file` refuses pipes and devices, from which reading could block for ever
        files, left = [path] if _kind(path) and path.is_file() else [], {}
        if os.path.realpath(path) in unwanted:
            raise ValueError(f"{path} is held out; other texts are needed to train on")
    left_out = "; ".join(f"{len(names):,} {why}: {_some(names)}" for why, names in left.items())
    count = sum(map(len, left.values()))
    if not files:
        kinds = f"{', '.join(_SUFFIXES)} file (all but .parquet also as .gz)"
        holds = f". It holds {left_out}" if left_out else ""
        raise ValueError(f"{path} is no {kinds}, and no folder that holds one{holds}")
    if left:
        kinds = Counter(map(_kind, files)).most_common()
        read = ", ".join(f"{number:,} {kind}" for kind, number in kinds)
        warnings.warn(
            f"{path}: files read: {len(files):,} ({read}); left out: {count:,} ({left_out})"
        )
    return files


def _some(names):
    """The first few of some names, for a warning."""
    return ", ".join(names[:_NAMES_SHOWN]) + ", …" * (len(names) > _NAMES_SHOWN)


def _sorted_out(folder, unwanted):
    """The files of a folder that are read, in order, and {reason: names} of the others."""
    files, left = [], {}

    def leave(why, path):
        left.setdefault(why, []).append(path.relative_to(folder).as_posix())

    def refuse(error):
        raise error  # by default `os.walk` skips a folder that cannot be opened

    for place, folders, names in os.walk(folder, onerror=refuse):
        # Hidden folders are skipped, because .ipynb_checkpoints, for example, contains copies.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(place)
        for name in folders:
            if (here / name).is_symlink():  # it may lead back to a folder that contains it
                leave("link to a folder", here / name)
        # In aclImdb, the film reviews of Maas et al., the texts are in folders that are named after
        # their labels. The folder that contains these folders also contains lists of film pages.
        parts = [here, *(here / name for name in ("train", "test") if name in folders)]
        labelled = any((part / "pos").is_dir() and (part / "neg").is_dir() for part in parts)
        for path in (here / name for name in sorted(names) if not name.startswith(".")):
            if not path.is_file():
                leave("no regular file", path)
            elif os.path.realpath(path) in unwanted:
                leave("held out", path)
            elif _kind(path) is None:
                packed = path.suffix.lower() == ".gz"
                suffix = "".join(path.suffixes[-2:] if packed else path.suffixes[-1:])
                leave(suffix.lower() or "without a suffix", path)
            elif _is_metadata(path):
                leave("about the texts", path)
            elif labelled:
                leave("beside pos and neg", path)
            else:
                files.append(path)
    return sorted(files), left


def _is_metadata(path):
    """Whether a file's name says that it describes texts: a README, a licence or the like."""
    kind = _kind(path)
    of_kind = "json" if kind == ".json" else "text" if kind not in _TABLES else None
    stem = path.name.lower().removesuffix(".gz").removesuffix(kind)
    return of_kind is not None and bool(_METADATA_NAMES[of_kind].fullmatch(stem))


# ------------------------------------------------------------------------------------ plain text


def _content(path):
    """The content of a text file, with \\n at the end of each line."""
    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a complete .gz file ({error})") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _paragraphs(text, path, doubts):
    """The paragraphs of a text, each as one line. A text without blank lines is split by lines."""
    blocks = re.split(r"\n\s*\n", text.strip())
    if len(blocks) == 1:
        return [" ".join(line.split()) for line in text.split("\n")]
    texts = [" ".join(block.split()) for block in blocks]
    lines = [block.count("\n") + 1 for block in blocks]
    words = max(text.count(" ") + 1 for text in texts)
    # A paragraph of a book may have 50 lines, but then most others have far fewer than 10.
    joined = max(lines) >= 200 or (max(lines) >= 50 and sum(lines) >= 10 * len(lines))
    if joined or words >= 10_000:
        found = f"{path} has {len(texts):,} texts, and the longest has {words:,} words"
        rule = "If a file has blank lines, they separate its texts; if it has none"
        doubts.append(f"{found}: are these paragraphs? {rule}, each line is a text.")
    return texts


# ------------------------------------------------------------------------------------ tables


def _rows_of_table(path, column):
    """Yields the rows of a table as (place, {column: cell}); the place is for error messages."""
    kind = _kind(path)
    if kind == ".parquet":
        return _parquet_rows(path, column)
    text = _content(path)
    if kind == ".json":
        return _json_rows(text, path, column)
    return _json_lines(text, path) if kind == ".jsonl" else _csv_rows(text, path, column, kind)


def _csv_rows(text, path, column, kind):
    """Yields the rows of a file with commas or with tabs.

    In a `.tsv` file, quotes count only around a whole cell, and a cell has no line breaks.
    Otherwise one quotation mark in a text would make all lines after it part of the same cell.
    """
    own, quoting = (",", csv.QUOTE_MINIMAL) if kind == ".csv" else ("\t", csv.QUOTE_NONE)
    _refuse_another_separator(text.lstrip("\n").partition("\n")[0], own, path, column)
    csv.field_size_limit(2**31 - 1)  # a text may be long
    # With strict=True, a quotation mark that is never closed is an error.
    reader = csv.DictReader(io.StringIO(text), strict=True, delimiter=own, quoting=quoting)
    try:
        if kind == ".tsv" and reader.fieldnames:
            reader.fieldnames = [_unquoted(name) for name in reader.fieldnames]
        if (reader.fieldnames or []).count(column) > 1:
            raise ValueError(f"{path} has several columns {column!r}; rename all but one of them")
        for row in reader:
            if kind == ".tsv" and isinstance(row.get(column), str):
                row[column] = _unquoted(row[column])
            yield f"line {reader.line_num}", row
    except csv.Error as error:
        raise ValueError(f"{path}, after line {reader.line_num}: not CSV ({error})") from None


def _refuse_another_separator(header, own, path, column):
    """Refuses a table whose columns are not separated by the character of its suffix."""

    def names(separator):
        return [cell.strip().strip('"') for cell in header.split(separator)]

    if column in names(own):
        return
    for separator, called in _SEPARATORS.items():
        lone = len(names(own)) == 1 and separator in header
        if separator != own and separator in header and (lone or column in names(separator)):
            reason = f"{path}, line 1: columns are separated by {called}, not by {_SEPARATORS[own]}"
            remedy = "rename it to .tsv" if separator == "\t" else "save it with commas as .csv"
            raise ValueError(f"{reason}; {remedy}")


def _unquoted(cell):
    """A cell of a .tsv file without quotation marks around it. Marks inside it were doubled."""
    whole = re.fullmatch(r'"((?:[^"]|"")*)"', cell)
    return whole[1].replace('""', '"') if whole else cell


def _json_lines(text, path):
    """Yields (place, value) for each line that is not blank."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"line {number}", _json(line, f"{path}, line {number}")


def _json_rows(text, path, column):
    """Yields the rows of a JSON file, whichever of the usual forms it has.

    The forms are a list of rows, a dictionary that contains such a list, a dictionary of columns,
    and JSON lines.
    """
    if not text.strip():
        return
    first = text.strip().partition("\n")[0]
    try:
        whole = json.loads(text)
    except ValueError as error:
        if first.startswith("{") and first.rstrip().endswith("}"):
            yield from _json_lines(text, path)
            return
        place = f"{path}, line {getattr(error, 'lineno', 1)}"
        raise ValueError(f"{place}: not JSON ({error})") from None
    except RecursionError:
        raise ValueError(f"{path}: not JSON that can be read (nested too deeply)") from None
    rows = [whole]
    if isinstance(whole, list):
        rows = whole
    elif isinstance(whole, dict) and not isinstance(whole.get(column), str):
        cells, lists = (
            whole.get(column),
            [part for part in whole.values() if isinstance(part, list)],
        )
        if isinstance(cells, dict):  # pandas writes a column as {number of a row: cell}
            cells = list(cells.values())
        if isinstance(cells, list):
            rows = [{column: cell} for cell in cells]
        elif len(lists) == 1:
            rows = lists[0]
    for number, row in enumerate(rows, 1):
        yield f"row {number}", {column: row} if isinstance(row, str) else row


def _json(line, place):
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON ({error})") from None


def _parquet_rows(path, column):
    """Yields the rows of a Parquet file, of which only one column is read."""
    import pyarrow  # takes long to import, and only these files need it
    import pyarrow.parquet

    number = 0
    try:
        names = pyarrow.parquet.read_schema(path).names
        if column not in names:
            _cell(dict.fromkeys(names), column, f"{path}, row 1")  # raises, and lists the columns
        for cell in pyarrow.parquet.read_table(path, columns=[column]).column(0):
            number += 1
            yield f"row {number}", {column: cell.as_py()}
    except UnicodeDecodeError:
        raise ValueError(f"{path}, row {number}: {column!r} is not UTF-8") from None
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a complete Parquet file ({reason})") from None


def _cell(row, column, place):
    """The text in a column of a row, after a check that it is a valid text."""
    if not isinstance(row, dict) or column not in row:
        have = shown(list(row) if isinstance(row, dict) else row)
        raise ValueError(f"{place}: no column {column!r} in {have}; write PATH:COLUMN for yours")
    if None in row:  # under this key, csv.DictReader puts cells for which there is no column
        remedy = "quote a cell that holds a comma (in a .tsv file, none may hold a tab)"
        raise ValueError(f"{place}: more cells than columns; {remedy}")
    text = row[column]
    if not isinstance(text, str):
        raise ValueError(f"{place}: {column!r} is {shown(text)}, which is not a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"{text[error.start]!r}, which is half of a surrogate pair and not a character"
        raise ValueError(
            f"{place}: {column!r} holds {half}; write both halves or neither"
        ) from None
    return text
