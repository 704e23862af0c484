"""English prose from the docstrings on the learner's disk: the "docs" corpus of `load_corpus`.

The packages that the course installs anyway hold four megabytes of it, so no network is needed.
Nothing is imported and nothing runs: files are parsed, and whole sentences are kept, each once.
"""

import ast
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
import warnings
from pathlib import Path

from tqdm.auto import tqdm

from mlm_lib.checks import string
from mlm_lib.engine.files import write

# All of these come with the course.
DOCS_PACKAGES = (
    "torch", "numpy", "matplotlib", "transformers", "pandas", "sympy", "networkx", "datasets",
    "huggingface_hub", "accelerate", "IPython", "fsspec", "PIL", "fontTools", "jinja2", "tornado",
)  # fmt: skip
# Tests say little in prose; vendored copies, and transformers' models, say one thing many times.
_SKIPPED = {
    "test", "tests", "testing", "_vendor", "models", "idlelib", "lib2to3", "turtledemo",
    "site-packages",
}  # fmt: skip


def load_docs():
    """One text for each docstring that holds prose, in the order of the files.

    The first call takes half a minute. Its result is kept in the folder that `MLM_CACHE` names, or
    in the user's cache, until Python, a package or the code of this file changes.
    """
    specs = {name: importlib.util.find_spec(name) for name in DOCS_PACKAGES}
    specs = {name: spec for name, spec in specs.items() if spec is not None}
    cache = _cache_folder() / f"docs-{_key(specs)}.json"
    try:
        return json.loads(cache.read_text("utf-8"))
    except (OSError, ValueError):  # not there, or damaged: a list that was cut does not parse
        pass
    roots = [Path(sysconfig.get_paths()["stdlib"])]
    for spec in specs.values():
        roots += map(Path, spec.submodule_search_locations or ())
    texts = _read(roots)
    try:
        write(cache, json.dumps(texts, indent=0))
    except OSError as error:  # the texts are here all the same
        warnings.warn(
            f"the docs corpus could not be kept for the next time ({error}); "
            "MLM_CACHE names another folder"
        )
    return texts


# ------------------------------------------------------------------------------------ cache


def _key(packages):
    """A name for everything that the result depends on."""
    owners = importlib.metadata.packages_distributions()
    versions = [
        f"{name} {importlib.metadata.version(owners.get(name, [name])[0])}" for name in packages
    ]
    code = _code(Path(__file__).read_text("utf-8"))
    key = "\n".join([sys.version, code, *versions])
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def _code(source):
    """What a program does, apart from how it is written: no comments, no docstrings, no layout.

    >>> _code("x = (1)  # one") == _code("x = 1")
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)


def _cache_folder():
    if "MLM_CACHE" in os.environ:
        return Path(os.environ["MLM_CACHE"])
    home = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "mlm-course"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "mlm-course"


# ------------------------------------------------------------------------------------ docstrings


def _read(roots):
    """The prose of each docstring below some folders. A sentence counts where it first occurs."""
    files = []
    for root in roots:
        found = sorted(root.rglob("*.py"))
        files += [file for file in found if not _SKIPPED & set(file.relative_to(root).parts)]
    seen, texts = set(), []
    collecting = gc.isenabled()
    gc.disable()  # a syntax tree frees itself; searching each for cycles takes most of the time
    try:
        for file in tqdm(files, desc="reading docstrings", unit="file"):
            for docstring in _docstrings(file):
                # A dictionary keeps the order, and once what a docstring says twice.
                sentences = prose_sentences(docstring)
                fresh = dict.fromkeys(line for line in sentences if line not in seen)
                seen.update(fresh)
                if fresh:
                    texts.append(" ".join(fresh))
    finally:
        if collecting:
            gc.enable()
    return texts


def _docstrings(path):
    """Every docstring of a file, in its order."""
    try:
        with warnings.catch_warnings(action="ignore"):  # the file's own style is not our concern
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and files for other Python versions
        return
    stack = [tree]
    while stack:
        node = stack.pop()
        # Definitions sit in bodies, of classes, functions, `if` and `try`; expressions hold none.
        stack.extend(reversed(getattr(node, "body", ())))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if docstring := ast.get_docstring(node):
                yield docstring


# ------------------------------------------------------------------------------------ prose

# :class:`~torch.Tensor` and :func:`list <builtins.list>` -> torch.Tensor and list
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`]*>)?`")
# [a page](https://a.b) and `a page <https://a.b>`_ -> a page
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)|`([^`<]+?)\s*<[^`]*>`_+")
_MARKS = re.compile(r"`+|\*\*|(?<!\w)[*_](?=\w)|(?<=\w)\*(?!\w)")
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
    for paragraph in re.split(r"\n\s*\n", string("docstring", docstring)):
        lines = paragraph.split("\n")
        # 1. Prose is flush: an indent that changes is code or a field, a mark in front an item.
        indents = {len(line) - len(line.lstrip()) for line in lines}
        if len(indents) > 1 or any(map(_ITEM.match, lines)):
            continue
        # 2. Markup goes, the words that it marks stay.
        words = _ROLE.sub(r"\1", " ".join(paragraph.split()))
        words = _LINK.sub(lambda link: link.group(1) or link.group(2), words)
        # 3. Of the sentences, those that look like English.
        sentences += filter(_is_prose, _sentences(_MARKS.sub("", words)))
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
    """A capital, a full stop, 4 to 60 words, 80% of them letters alone, nothing like code."""
    words = sentence.split()
    if not 4 <= len(words) <= 60 or not sentence.isascii():
        return False
    if not sentence[0].isupper() or sentence[-1] not in ".!?":
        return False
    if _CODE.search(re.sub(r"\b(e\.g|i\.e)\.", "", sentence)):
        return False
    return sum(word.strip(".,;:!?()'\"").isalpha() for word in words) >= 0.8 * len(words)
