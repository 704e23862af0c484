"""English prose from the docstrings of installed packages: the "docs" corpus of `load_corpus`.

The packages that the course needs contain two megabytes of such prose, so this corpus needs no
network. Their files are parsed, without importing or running them. Only whole sentences are kept,
and each sentence only once.
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

# The course installs them in the versions of `constraints.txt`, on which course-bert was trained.
DOCS_PACKAGES = (
    "torch", "numpy", "matplotlib", "transformers", "datasets", "huggingface_hub", "accelerate",
)  # fmt: skip
# Folders that are skipped. Tests have little prose. Copies of other packages, and the models of
# transformers, repeat the same sentences. numpy has distutils only for some versions of Python.
_SKIPPED_FOLDERS = {"test", "tests", "testing", "_vendor", "models", "distutils"}
# Raise this number by 1 if a change in this file changes which sentences are kept. Then the caches
# of the former version are not used.
_RULES_VERSION = 2


def load_docs(packages=DOCS_PACKAGES):
    """Loads the prose of all docstrings of some packages.

    The first call takes some seconds. Its result is cached, for these versions of the packages, in
    the folder that the environment variable `MLM_CACHE` names, or in ~/.cache/mlm-course.

    Args:
        packages: the names of installed packages.

    Returns:
        A list with one text for each docstring that has prose, in the order of the files.
    """
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    key = hashlib.blake2b("\n".join(versions).encode(), digest_size=8).hexdigest()
    folder = os.environ.get("MLM_CACHE") or os.path.expanduser("~/.cache/mlm-course")
    cache = Path(folder, f"docs-{_RULES_VERSION}-{key}.json")
    try:
        return json.loads(cache.read_text("utf-8"))
    except (OSError, ValueError):  # there is no cache, or it is damaged
        texts = _read_packages(packages)
    with contextlib.suppress(OSError):  # without a writable folder, nothing is cached
        write(cache, json.dumps(texts, indent=0))
    return texts


# ------------------------------------------------------------------------------------ docstrings


def _read_packages(packages):
    """The prose of each docstring of some packages. A sentence that came before is left out."""
    files = []
    for name in packages:
        for root in map(Path, importlib.util.find_spec(name).submodule_search_locations):
            found = sorted(root.rglob("*.py"), key=Path.as_posix)  # the same order on each system
            files += [
                file for file in found if not _SKIPPED_FOLDERS & set(file.relative_to(root).parts)
            ]
    seen, texts = set(), []
    for file in tqdm(files, desc="reading docstrings", unit="file"):
        for docstring in _docstrings(_parsed(file)):
            # A dictionary keeps the order, and holds a sentence that occurs twice only once.
            fresh = dict.fromkeys(one for one in prose_sentences(docstring) if one not in seen)
            seen.update(fresh)
            if fresh:
                texts.append(" ".join(fresh))
    return texts


def _parsed(path):
    """The syntax tree of a file; None for a file that this version of Python cannot parse."""
    with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings(action="ignore"):
        return ast.parse(path.read_bytes())


def _docstrings(node):
    """Yields every docstring of a syntax tree, in order."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield ast.get_docstring(node) or ""
    # Definitions are in the bodies of classes, functions, `if` and `try`, never in expressions.
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
    """The whole English sentences of a docstring, without markup, code, tables, fields or lists.

    >>> prose_sentences("Adds `x`, e.g. a tensor, to a list. It returns f(x).")
    ['Adds x, e.g. a tensor, to a list.']
    """
    sentences = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        lines = paragraph.split("\n")
        # 1. In prose, all lines have the same indent. A changing indent means code or a field, and
        #    a mark at the start of a line means an item of a list.
        indents = {len(line) - len(line.lstrip()) for line in lines}
        if len(indents) > 1 or any(map(_ITEM.match, lines)):
            continue
        # 2. Remove markup, and keep the words that it marks.
        words = _LINK.sub(r"\1\2", _ROLE.sub(r"\1", " ".join(paragraph.split())))
        # 3. Keep the sentences that look like English.
        sentences += filter(_is_prose, _sentences(_MARKS.sub("", words)))
    return sentences


def _sentences(text):
    """Yields the sentences of a text.

    A sentence ends with a full stop, question mark or exclamation mark before a capital letter,
    unless a full stop belongs to an abbreviation.
    """
    held = []
    for part in _SENTENCE_END.split(text):
        held.append(part)
        if not _ABBREVIATED.search(part):
            yield " ".join(held)
            held = []
    # The last sentence may end with "etc." or "et al.", but not with "i.e.".
    if held and re.search(r"\b(?:etc|al|[A-Z])\.$", part):
        yield " ".join(held)


def _is_prose(sentence):
    """Whether a sentence looks like English prose.

    It begins with a capital letter, ends with a mark, has 4 to 60 words of which 80% consist of
    letters, and contains nothing that looks like code.
    """
    if not _SENTENCE.fullmatch(sentence) or _CODE.search(re.sub(r"\b(e\.g|i\.e)\.", "", sentence)):
        return False
    words = sentence.split()
    letters = sum(word.strip(".,;:!?()'\"").isalpha() for word in words)
    return 4 <= len(words) <= 60 and letters >= 0.8 * len(words)
