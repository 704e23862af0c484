"""Text in: load it, check it, split it, pack it. Built in lesson 01.

Everything here works on plain strings and lists. Four sources need no network: our grammar's documents,
our own reviews, the docstrings of the packages that the course installs anyway, and your files.
"""

import ast
import contextlib
import csv
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import sysconfig
import tempfile
import uuid
import warnings
from itertools import groupby, islice
from pathlib import Path

import torch
from tqdm.auto import tqdm

from mlm_lib import DATA
from mlm_lib.checks import choice, path_name, shown, whole_number

SPLITS = ("train", "validation", "test")
NAMED = ("grammar", "reviews", "docs")
_SHIPPED = {"grammar": "grammar.txt", "reviews": "reviews.csv"}
SUFFIXES = (".txt", ".csv", ".jsonl")

# The packages whose docstrings make the "docs" corpus. All of them come with the course.
DOCS_PACKAGES = (
    "torch", "numpy", "matplotlib", "transformers", "pandas", "sympy", "networkx", "datasets",
    "huggingface_hub", "accelerate", "IPython", "fsspec", "PIL", "fontTools", "jinja2", "tornado",
)  # fmt: skip
# Tests say little in prose; vendored copies, and the model folders of transformers, say one thing many times.
_SKIPPED = {
    "test",
    "tests",
    "testing",
    "_vendor",
    "models",
    "idlelib",
    "lib2to3",
    "site-packages",
    "turtledemo",
}


def load_corpus(source, split="train", *, seed=0):
    """Return the texts of one split of a corpus, as a list of non-empty strings.

    Args:
        source: `"grammar"` (a sample of `data/grammar.toml`'s documents), `"reviews"`, `"docs"`, a path, or `"hub:NAME[:CONFIG][:COLUMN]"`.
            A path names a `.txt` file (paragraphs parted by blank lines; without blank lines, one text a line),
            a `.csv` or `.jsonl` file (column `text`; another is named after a colon, as in `films.csv:body`),
            or a folder of such files.
        split: `"train"` (80%), `"validation"` (10%) or `"test"` (10%). A hub data set keeps the splits it has.
        seed: chooses another division into splits. The division depends on the texts and the seed alone,
            never on their order; equal texts always share a split, so no split can see another's text.

    Raises:
        ValueError: unknown name or split, an empty file, a missing column, a split with nothing in it.
        FileNotFoundError: no file at that path.
        UnicodeDecodeError: the file is not UTF-8; the message names the file and the byte offset.
        ConnectionError: a hub name without a network and not in the local cache.
    """
    choice("split", split, SPLITS)
    seed = whole_number("seed", seed, least=None)  # anything else may split differently elsewhere
    # Path("docs") is the folder of that name, "docs" the corpus.
    name = "" if isinstance(source, os.PathLike) else source
    source = path_name("source", source)
    if name.startswith("hub:"):
        return _from_hub(name, split, seed)
    if name == "docs":
        texts = _docs()
    elif name in _SHIPPED:
        texts = list(iter_texts(DATA / _SHIPPED[name]))
    else:
        path, _ = _path_and_column(source)
        if not os.path.exists(path) and len(path.parts) < 2 and path.suffix.lower() not in SUFFIXES:
            raise ValueError(
                f"unknown corpus {shown(source)}; known are {', '.join(map(repr, NAMED))}, a path ending in "
                f"{', '.join(SUFFIXES)} or to a folder of these, and 'hub:NAME[:CONFIG][:COLUMN]'"
            )
        texts = list(iter_texts(source))
    return _split(texts, split, seed, source)


def pack_blocks(encoded, block_size, *, cls_id, sep_id):
    """Cut a stream of encoded texts into full blocks, so that no position is padding.

    Args:
        encoded: an iterable of lists of token ids, without special tokens.
        block_size: the length of a block, its `[CLS]` and `[SEP]` included.

    Returns:
        A long tensor (n, block_size): `[CLS]`, block_size − 2 ids, `[SEP]`. Texts follow each other with one `[SEP]`
        between them; what is left over at the end, shorter than a block, is not used.

    Raises:
        ValueError: block_size below 3, or too few ids for one block.
    """
    if block_size < 3:
        raise ValueError(
            f"block_size is {block_size}; it must hold [CLS], [SEP] and at least one token, so 3 or more"
        )
    stream = []
    for ids in encoded:
        if stream:
            stream.append(sep_id)
        stream.extend(ids)
    inner = block_size - 2
    n = len(stream) // inner
    if n == 0:
        raise ValueError(
            f"{len(stream)} tokens do not fill one block of {block_size}; use more text or smaller blocks"
        )
    body = torch.tensor(stream[: n * inner], dtype=torch.long).view(n, inner)
    return torch.cat(
        [torch.full((n, 1), cls_id), body, torch.full((n, 1), sep_id)], dim=1
    )  # (n, block_size)


# ---------------------------------------------------------------------------------------- splits


def _split(texts, split, seed, source):
    """Order the distinct texts by a hash and cut: exact proportions, and blind to the order of the file."""
    rank = sorted(
        set(texts),
        key=lambda text: hashlib.blake2b(f"{seed}\0{text}".encode(), digest_size=8).digest(),
    )
    held = max(1, round(0.1 * len(rank))) if len(rank) >= 3 else 0
    bounds = {"validation": (0, held), "test": (held, 2 * held), "train": (2 * held, len(rank))}
    chosen = set(rank[slice(*bounds[split])])
    if not chosen:
        raise ValueError(
            f"{source} holds {len(rank)} distinct texts, too few for a {split} split; 3 are needed"
        )
    return [text for text in texts if text in chosen]


# ------------------------------------------------------------------------------------ files


def iter_texts(source):
    """The texts of a path one at a time, by the rule of `load_corpus`. The files are never in memory whole.

    Args:
        source: a `.txt`, `.csv` or `.jsonl` file, a column after a colon (`films.csv:body`), or a folder.

    Returns:
        A generator of non-empty strings, in the order of the files' names and of the texts in them.

    Raises:
        FileNotFoundError: no file at that path; at the call. What is wrong inside a file is raised where it is met:
        ValueError: an empty file, a missing column, a file that is not CSV or JSON lines.
        UnicodeDecodeError: the file is not UTF-8; the message names the file and the byte offset.
    """
    path, column = _path_and_column(path_name("source", source))
    files = _files(path)
    return (text for file in files for text in _texts(file, column))


def _path_and_column(source):
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
    """The lines of a UTF-8 file, each with its `\n`, whatever ended them. Nothing else ends a line, not U+2028."""
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file):
                yield line if number else line.removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            # The decoder saw only a piece of the file, and the buffer stands at the end of that piece.
            start = file.buffer.tell() - len(error.object) + error.start
            bad = error.object[error.start : error.end]
            reason = f"{error.reason}, at byte offset {start} of {path}; save the file as UTF-8"
            raise UnicodeDecodeError("utf-8", bad, start, start + len(bad), reason) from None


def _paragraphs(path):
    """The paragraphs of a text file, each on one line; of a file that is one paragraph, its lines."""
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
    # strict: an open quote would swallow the rest
    reader = csv.DictReader(_lines(path), strict=True)
    try:
        columns = reader.fieldnames or ()
        if column not in columns:
            raise ValueError(_no_column(path, column, columns))
        if columns.count(column) > 1:
            raise ValueError(
                f"{path} has {columns.count(column)} columns {column!r}; rename those not meant"
            )
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
    return (
        f"{path} has no column {column!r}; it has {have}. Name yours after a colon: '{path}:COLUMN'"
    )


# ---------------------------------------------------------------------------------------- the hub


def _from_hub(source, split, seed):
    """`hub:NAME`, `hub:NAME:COLUMN` or `hub:NAME:CONFIG:COLUMN`, through `datasets` and its local cache."""
    _, name, *rest = source.split(":")
    if not name or len(rest) > 2:
        raise ValueError(f"{source!r} is not of the form 'hub:NAME[:CONFIG][:COLUMN]'")
    try:
        tables, column = _open_tables(name, *rest)
    except OSError as error:  # also ConnectionError and "not found"
        raise ConnectionError(
            f"could not get {name!r} from the hub ({type(error).__name__}: {error}). "
            "Check the name and the network. Without a network 'reviews', 'docs' and your own files work."
        ) from error
    own = split if split in tables else "train"
    if own not in tables:
        raise ValueError(
            f"{name} has neither a {split} nor a train split; it has {', '.join(tables)}"
        )
    if column not in tables[own].column_names:
        columns = ", ".join(map(repr, tables[own].column_names))
        raise ValueError(
            f"{name} has no column {column!r}; it has {columns}. Name yours last: 'hub:{name}:COLUMN'"
        )
    texts = [text for text in tables[own][column] if isinstance(text, str) and text.strip()]
    if not texts:
        raise ValueError(f"{name}: column {column!r} of the {own} split holds no text")
    # A held-out split that the data set lacks is cut from its training split.
    missing = [part for part in SPLITS if part not in tables]
    if split in missing:
        return _split(texts, split, seed, source)
    cut = (
        {text for part in missing for text in _split(texts, part, seed, source)}
        if split == "train"
        else ()
    )
    return [text for text in texts if text not in cut]


def _open_tables(name, *rest):
    """All splits, and the column to read. A single part after the name is a configuration if one is so called."""
    from datasets import load_dataset  # heavy, and only this source needs it

    if len(rest) != 1:
        return load_dataset(name, *rest[:1]), rest[-1] if rest else "text"
    try:
        return load_dataset(name, rest[0]), "text"
    except ValueError:
        return load_dataset(name), rest[0]


# ---------------------------------------------------------------------------------------- docstrings


def _docs():
    """English prose from docstrings, one text per docstring; computed once per set of package versions."""
    found = {
        name: spec for name in DOCS_PACKAGES if (spec := importlib.util.find_spec(name)) is not None
    }
    owners = importlib.metadata.packages_distributions()
    versions = [
        f"{name} {importlib.metadata.version(owners.get(name, [name])[0])}" for name in found
    ]
    key = "\n".join([sys.version, Path(__file__).read_text("utf-8"), *versions])
    cache = (
        _cache_folder() / f"docs-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.json"
    )
    try:
        return json.loads(cache.read_text("utf-8"))
    except (
        OSError,
        ValueError,
    ):  # not there, or damaged: one JSON list, so a cut file does not parse
        pass
    roots = [Path(sysconfig.get_paths()["stdlib"])]
    roots += [
        Path(place) for spec in found.values() for place in spec.submodule_search_locations or ()
    ]
    texts = _read_docs(roots)
    half = cache.with_name(
        f"{cache.name}.{uuid.uuid4().hex}"
    )  # then moved: a reader never meets half a file
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(json.dumps(texts, indent=0), encoding="utf-8")
        os.replace(half, cache)
    except OSError as error:  # the texts are here all the same
        warnings.warn(
            f"the docs corpus could not be kept for the next time ({error}); MLM_CACHE names another folder"
        )
    finally:
        with contextlib.suppress(OSError):
            half.unlink()
    return texts


def _read_docs(roots):
    files = [
        file
        for root in roots
        for file in sorted(root.rglob("*.py"))
        if not _SKIPPED & set(file.relative_to(root).parts)
    ]
    seen, texts = set(), []
    collecting = gc.isenabled()
    gc.disable()  # a syntax tree frees itself; searching each for cycles would take most of the time
    try:
        for file in tqdm(files, desc="reading docstrings", unit="file"):
            for docstring in _docstrings(file):
                fresh = [s for s in prose_sentences(docstring) if not (s in seen or seen.add(s))]
                if fresh:
                    texts.append(" ".join(fresh))
    finally:
        if collecting:
            gc.enable()
    return texts


def _cache_folder():
    if "MLM_CACHE" in os.environ:
        return Path(os.environ["MLM_CACHE"])
    home = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "mlm-course"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "mlm-course"


def _docstrings(path):
    """Every docstring of a file, read from its syntax tree: nothing is imported and nothing runs."""
    try:
        with warnings.catch_warnings(action="ignore"):  # the file's own style is not our concern
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and files for other Python versions
        return
    stack = [tree]
    while stack:
        node = stack.pop()
        # Definitions sit in the bodies of modules, classes, functions and if or try blocks; expressions hold none.
        stack.extend(reversed(getattr(node, "body", ())))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if docstring := ast.get_docstring(node):
                yield docstring


_ROLE = re.compile(
    r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`]*>)?`"
)  # :class:`~torch.Tensor` -> torch.Tensor
_LINK = re.compile(
    r"\[([^\]]+)\]\([^)]*\)|`([^`<]+?)\s*<[^`]*>`_+"
)  # Markdown and reST links -> their text
_MARKS = re.compile(r"`+|\*\*|(?<!\w)[*_](?=\w)|(?<=\w)\*(?!\w)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|al|Fig|Eq|No|Dr|Mr|St)\.|\b[A-Z]\.)$")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|\.\.|:|>>>|@|\||#)")
_CODE = re.compile(r"[{}<>=\\|~^_#@\[\]$%*/]|\w\.\w|\w\(|::|https?")


def prose_sentences(docstring):
    """The whole English sentences of a docstring, without its markup, code, tables, fields and lists."""
    sentences = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.split("\n")
        indent = len(lines[0]) - len(lines[0].lstrip())
        if any(_ITEM.match(line) for line in lines) or any(
            len(line) - len(line.lstrip()) != indent for line in lines
        ):
            continue
        text = _LINK.sub(
            lambda m: m.group(1) or m.group(2), _ROLE.sub(r"\1", " ".join(paragraph.split()))
        )
        sentences += filter(_is_prose, _sentences(_MARKS.sub("", text)))
    return sentences


def _sentences(text):
    """Split after a full stop before a capital, unless the stop belongs to an abbreviation."""
    held = ""
    for part in _SENTENCE_END.split(text):
        held = f"{held} {part}" if held else part
        if not _ABBREVIATED.search(held):
            yield held
            held = ""
    if re.search(r"\b(?:etc|al|[A-Z])\.$", held):  # these may end a paragraph; "i.e." cannot
        yield held


def _is_prose(sentence):
    """A capital, a full stop, four words or more, nothing that looks like code, and mostly letters."""
    words = sentence.split()
    if not (
        4 <= len(words) <= 60
        and sentence[0].isupper()
        and sentence[-1] in ".!?"
        and sentence.isascii()
    ):
        return False
    if _CODE.search(re.sub(r"\b(e\.g|i\.e)\.", "", sentence)):
        return False
    return sum(word.strip(".,;:!?()'\"").isalpha() for word in words) >= 0.8 * len(words)
