"""The docs corpus: which sentences it keeps, what its cache survives, and when it is read anew."""

import json
import os
import re
import sys
import time

import pytest

from mlm_lib.engine import docstrings
from mlm_lib.engine.docstrings import load_docs, prose_sentences


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


# ------------------------------------------------------------------------------------ sentences


def test_prose_keeps_whole_sentences():
    docstring = """Return the sum of two arrays.

    The inputs may differ in shape, e.g. a scalar and a matrix, i.e. they are broadcast. Neither
    input is changed!

    A sentence may run
    over two lines. Dr. Smith et al. showed that this holds. It reads numbers, letters, etc.
    """
    assert prose_sentences("\n".join(line.strip() for line in docstring.split("\n"))) == [
        "Return the sum of two arrays.",
        "The inputs may differ in shape, e.g. a scalar and a matrix, i.e. they are broadcast.",
        "Neither input is changed!",
        "A sentence may run over two lines.",
        "Dr. Smith et al. showed that this holds.",
        "It reads numbers, letters, etc.",
    ]


def test_prose_keeps_the_words_of_links_and_roles():
    docstring = """Pass a :class:`Tensor` or a :func:`list <builtins.list>` to it. See `the guide
<https://a.b/c>`_ and [the paper](https://d.e). The *first* and **second** ``word`` are `marked`."""
    assert prose_sentences(docstring) == [
        "Pass a Tensor or a list to it.",
        "See the guide and the paper.",
        "The first and second word are marked.",
    ]


@pytest.mark.parametrize(
    "paragraph",
    [
        ">>> print(1)\n1",
        "    The indented block is an example of code.\nIt has another indent.",
        ":param x: The first number of the sum.\n:returns: The sum of all numbers.",
        "Args:\n    x: The first number of the sum.",
        "Parameters\n----------\nx : int\n    The first number of the sum.",
        "- The first item of a list.\n- The second item of a list.",
        "1. The first item of a list.\n2. The second item of a list.",
        "* The only item of a list.",
        ".. note:: The text of this note is not kept.",
        "| name | The meaning of the name. |",
        "The call f(x) returns one number.",
        "The value of x = 3 is kept.",
        "The name torch.nn is a module.",
        "The page is at https://example.org for you.",
        "The path is data/files for now.",
        "no capital at the start of this sentence.",
        "No full stop at the end of this sentence",
        "Too short here.",
        "The sentence goes on in a formula, i.e.",
        "The naïve sentence has an accent in it.",
        "The 12 34 56 78 are numbers mostly.",
    ],
)
def test_prose_leaves_out_what_is_no_sentence(paragraph):
    docstring = f"The first sentence is kept.\n\n{paragraph}\n\nThe last sentence is kept."
    assert prose_sentences(docstring) == [
        "The first sentence is kept.",
        "The last sentence is kept.",
    ]


@pytest.mark.parametrize("piece", ["A. ", "e.g. ", "[", "`"])
def test_a_docstring_of_one_mark_over_and_over_takes_no_minutes(piece):
    start = time.process_time()
    assert prose_sentences(piece * 40_000) == []
    assert time.process_time() - start < 10


# ------------------------------------------------------------------------------------ reading


MODULE = '''"""The module explains itself in one sentence. The same sentence comes here again."""
raise RuntimeError("imported")

class Thing:
    """The class has a text of its own. The same sentence comes here again."""

    def method(self):
        """The method has a text as well."""

if True:
    async def function():
        odd = "\\d"  # a warning, which must not lose the file where warnings are errors
        def inner():
            """The inner function is read too."""
'''
TEXTS = [
    "The module explains itself in one sentence. The same sentence comes here again.",
    "The class has a text of its own.",
    "The method has a text as well.",
    "The inner function is read too.",
]
NAMES = ("mlm_small_package",)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A world with one package, which must not be imported, and an empty cache."""
    package = tmp_path / "packages" / "mlm_small_package"
    write(package / "__init__.py", MODULE)
    write(package / "tests" / "a.py", '"""The tests of a package are not read."""')
    write(package / "template.py", '"""The {{template}} is not Python.""" {{')
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(docstrings.importlib.metadata, "version", lambda name: "1.0")
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.filterwarnings("error")
def test_docs_hold_each_sentence_once_in_order_and_import_nothing(cache):
    assert load_docs(NAMES) == TEXTS
    assert "mlm_small_package" not in sys.modules


def test_docs_are_read_once_for_each_version_of_a_package_and_of_the_rules(cache, monkeypatch):
    assert load_docs(NAMES) == TEXTS
    new = ["Another text is found now."]
    monkeypatch.setattr(docstrings, "_docstrings", lambda path: new)
    assert load_docs(NAMES) == TEXTS
    monkeypatch.setattr(docstrings.importlib.metadata, "version", lambda name: "2.0")
    assert load_docs(NAMES) == new
    monkeypatch.setattr(docstrings.importlib.metadata, "version", lambda name: "1.0")
    assert load_docs(NAMES) == TEXTS
    monkeypatch.setattr(docstrings, "_RULES_VERSION", docstrings._RULES_VERSION + 1)
    assert load_docs(NAMES) == new


def test_an_interrupted_reading_leaves_nothing_broken(cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_docs(NAMES)
    assert load_docs(NAMES) == TEXTS and len(list(cache.iterdir())) == 1


def test_docs_are_read_also_where_nothing_can_be_kept(cache, monkeypatch, tmp_path):
    write(tmp_path / "a_file", "in the way")
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "a_file" / "cache"))
    assert load_docs(NAMES) == TEXTS


@pytest.mark.parametrize("cut", [slice(0), slice(30), slice(-1)])
def test_a_damaged_cache_is_made_anew(cache, cut):
    load_docs(NAMES)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[cut] + b"\xff"[: cut.stop == -1])
    assert load_docs(NAMES) == TEXTS == json.loads(whole)
    assert kept.read_bytes() == whole


@pytest.mark.slow
def test_docs_hold_2_megabytes_of_different_sentences_without_code():
    texts = load_docs()
    assert sum(map(len, texts)) > 1_800_000
    sentences = [sentence for text in texts for sentence in docstrings._sentences(text)]
    assert len(set(sentences)) == len(sentences) > 20_000
    code = re.compile(r"https?:|>>>|[{}<>=]|::")
    assert [sentence for sentence in sentences if code.search(sentence)] == []
