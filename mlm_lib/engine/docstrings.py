"""English prose from the docstrings on the learner's disk: the "docs" corpus of `load_corpus`.

Packages that the course installs anyway hold two megabytes of it, so no network is needed.
Nothing is imported and nothing runs: files are parsed, and whole sentences are kept, each once.
"""

import ast
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import warnings
from pathlib import Path

from tqdm.auto import tqdm

from mlm_lib.engine.files import write

# All come with the course, in the versions of `constraints.txt`, and `course-bert` has read them.
DOCS_PACKAGES = (
    "torch", "numpy", "matplotlib", "transformers", "datasets", "huggingface_hub", "accelerate",
)  # fmt: skip
# Tests say little in prose; vendored copies, and transformers' models, say one thing many times.
# numpy brings distutils to some versions of Python only.
_SKIPPED = {"test", "tests", "testing", "_vendor", "models", "distutils"}
_RULES = 2  # one more whenever this file keeps other sentences: what is cached is read anew


def load_docs(packages=DOCS_PACKAGES):
    """One text for each docstring of some packages that holds prose, in the order of the files.

    The first call takes some seconds. Its result is kept in the folder that `MLM_CACHE` names, or
    in ~/.cache/mlm-course, for these versions of the packages.
    """
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    key = hashlib.blake2b("\n".join(versions).encode(), digest_size=8).hexdigest()
    folder = os.environ.get("MLM_CACHE") or os.path.expanduser("~/.cache/mlm-course")
    cache = Path(folder, f"docs-{_RULES}-{key}.json")
    try:
        return json.loads(cache.read_text("utf-8"))
    except (OSError, ValueError):  # not there, or damaged: a list that was cut does not parse
        texts = _read(packages)
    with contextlib.suppress(OSError):  # where nothing can be kept, they are read each time
        write(cache, json.dumps(texts, indent=0))
    return texts


# ------------------------------------------------------------------------------------ docstrings


def _read(packages):
    """The prose of each docstring of some packages. A sentence counts where it first occurs."""
    files = []
    for name in packages:
        for root in map(Path, importlib.util.find_spec(name).submodule_search_locations):
            found = sorted(root.rglob("*.py"), key=Path.as_posix)  # alike on each system
            files += [file for file in found if not _SKIPPED & set(file.relative_to(root).parts)]
    seen, texts = set(), []
    for file in tqdm(files, desc="reading docstrings", unit="file"):
        for docstring in _docstrings(_parsed(file)):
            # A dictionary keeps the order, and once what a docstring says twice.
            fresh = dict.fromkeys(one for one in prose_sentences(docstring) if one not in seen)
            seen.update(fresh)
            if fresh:
                texts.append(" ".join(fresh))
    return texts


def _parsed(path):
    """A file's syntax tree; None of templates and of files for other Python versions."""
    with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings(action="ignore"):
        return ast.parse(path.read_bytes())


def _docstrings(node):
    """Every docstring of a syntax tree, in its order."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield ast.get_docstring(node) or ""
    # Definitions sit in bodies, of classes, functions, `if` and `try`; expressions hold none.
    for inner in getattr(node, "body", ()):
        yield from _docstrings(inner)


# ------------------------------------------------------------------------------------ prose

# :class:`~torch.Tensor` and :func:`list <builtins.list>` -> torch.Tensor and list
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`]*>)?`")
# [a page](https://a.b) and `a page <https://a.b>`_ -> a page
_LINK = re.compile(r"\[([^\[\]]+)\]\([^)]*\)|`([^`<]+?)\s*<[^`]*>`_+")
_MARKS = re.compile(r"`+|\*\*|(?<!\w)[*_](?=\w)|(?<=\w)\*(?!\w)")
_SENTENCE = re.compile(r"[A-Z][\0-\x7f]*[.!?]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_ABBREVIATED = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|al|Fig|Eq|No|Dr|Mr|St)\.|\b[A-Z]\.)$")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|\.\.|:|>>>|@|\||#)")
_CODE = re.compile(r"[{}<>=\\|~^_#@\[\]$%*/]|\w\.\w|\w\(|::|https?")


def prose_sentences(docstring):
    """The whole English sentences of a docstring: no code, tables, fields or lists, no markup.

    >>> prose_sentences("Adds `x`, e.g. a tensor, to a list. It returns f(x).")
    ['Adds x, e.g. a tensor, to a list.']
    """
    sentences = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.split("\n")
        # 1. Prose is flush: an indent that changes is code or a field, a mark in front an item.
        indents = {len(line) - len(line.lstrip()) for line in lines}
        if len(indents) > 1 or any(map(_ITEM.match, lines)):
            continue
        # 2. Markup goes, the words that it marks stay.
        words = _LINK.sub(r"\1\2", _ROLE.sub(r"\1", " ".join(paragraph.split())))
        # 3. Of the sentences, those that look like English.
        sentences += filter(_is_prose, _sentences(_MARKS.sub("", words)))
    return sentences


def _sentences(text):
    """Split after a full stop before a capital, unless the stop belongs to an abbreviation."""
    held = []
    for part in _SENTENCE_END.split(text):
        held.append(part)
        if not _ABBREVIATED.search(part):
            yield " ".join(held)
            held = []
    if held and re.search(r"\b(?:etc|al|[A-Z])\.$", part):  # may end a paragraph; "i.e." cannot
        yield " ".join(held)


def _is_prose(sentence):
    """A capital, a full stop, 4 to 60 words, 80% of them letters alone, nothing like code."""
    if not _SENTENCE.fullmatch(sentence) or _CODE.search(re.sub(r"\b(e\.g|i\.e)\.", "", sentence)):
        return False
    words = sentence.split()
    letters = sum(word.strip(".,;:!?()'\"").isalpha() for word in words)
    return 4 <= len(words) <= 60 and letters >= 0.8 * len(words)
