"""The docs corpus: which sentences it keeps, what its cache survives, and when it is read anew."""

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlm_lib.engine import docstrings
from mlm_lib.engine.docstrings import load_docs, prose_sentences

SCRIPTS = Path(__file__).parent / "scripts"
SOURCE = Path(docstrings.__file__).read_text(encoding="utf-8")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def run(script, **environment):
    environment = os.environ | {"PYTHONUTF8": "1"} | environment
    return subprocess.run(
        [sys.executable, SCRIPTS / script],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


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
    assert prose_sentences("Pass a :class:`Tensor` or a :func:`list <builtins.list>` to it.") == [
        "Pass a Tensor or a list to it."
    ]
    assert prose_sentences(
        "See `the guide <https://a.b/c>`_ and [the paper](https://d.e) for more."
    ) == ["See the guide and the paper for more."]
    assert prose_sentences("The *first* and **second** ``word`` are `marked` here.") == [
        "The first and second word are marked here."
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


@pytest.mark.parametrize("docstring", [None, b"Bytes are not text.", ["A list of texts."]])
def test_what_is_no_text_has_no_sentences(docstring):
    with pytest.raises(ValueError, match="docstring=.*; a str is needed"):
        prose_sentences(docstring)


# ------------------------------------------------------------------------------------ reading


MODULE = '''"""The module explains itself in one sentence. The same sentence comes here again."""
raise RuntimeError("imported")

class Thing:
    """The class has a text of its own. The same sentence comes here again."""

    def method(self):
        """The method has a text as well."""

if True:
    async def function():
        def inner():
            """The inner function is read too."""
'''
TEXTS = [
    "The module explains itself in one sentence. The same sentence comes here again.",
    "The class has a text of its own.",
    "The method has a text as well.",
    "The inner function is read too.",
]
NEW = ["Another text is found now."]


@pytest.fixture
def small_docs(tmp_path, monkeypatch):
    """A world with one package, which must not be imported, and one file of a standard library."""
    package = tmp_path / "packages" / "mlm_small_package"
    write(package / "__init__.py", MODULE)
    write(package / "tests" / "a.py", '"""The tests of a package are not read."""')
    write(package / "template.py", '"""The {{template}} is not Python.""" {{')
    write(tmp_path / "stdlib" / "a.py", '"""The standard library is read first."""')
    write(tmp_path / "stdlib" / "site-packages" / "b.py", '"""The other packages are not read."""')
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    names = ("mlm_small_package", "mlm_package_that_is_not_there")
    monkeypatch.setattr(docstrings, "DOCS_PACKAGES", names)
    stdlib = {"stdlib": str(tmp_path / "stdlib")}
    monkeypatch.setattr(docstrings.sysconfig, "get_paths", lambda: stdlib)
    monkeypatch.setattr(docstrings.importlib.metadata, "version", lambda name: "1.0")
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_docs_hold_each_sentence_once_in_order_and_import_nothing(small_docs):
    assert load_docs() == ["The standard library is read first.", *TEXTS]
    assert "mlm_small_package" not in sys.modules


@pytest.mark.filterwarnings("error")
def test_docs_do_not_depend_on_how_warnings_are_shown(small_docs):
    """An invalid escape is a warning, and where warnings are errors it would lose the file."""
    write(small_docs.parent / "stdlib" / "b.py", '"""The file has an odd string."""\nodd = "\\d"\n')
    assert "The file has an odd string." in load_docs()


# ------------------------------------------------------------------------------------ cache


def test_docs_are_read_once_for_each_version_of_a_package(small_docs, monkeypatch):
    first = load_docs()
    read = []
    monkeypatch.setattr(docstrings, "_docstrings", lambda path: read.append(path) or NEW)
    assert load_docs() == first and read == []
    monkeypatch.setattr(docstrings.importlib.metadata, "version", lambda name: "2.0")
    assert load_docs() == NEW and read


@pytest.mark.parametrize(
    "old, new, anew",
    [
        ("_ITEM =", "# What begins an item of a list.\n_ITEM =", False),
        ("of a docstring: no code", "of one docstring: no code", False),
        ("def _sentences", "\n\n\ndef _sentences", False),
        ("4 <= len(words)", "5 <= len(words)", True),
        ("|https?", "", True),
        ('"turtledemo"', '"turtle"', True),
        ("tempfile.gettempdir()", "tempfile.gettempdir( )", False),
    ],
)
def test_docs_are_read_anew_for_another_rule_and_not_for_another_comment(
    small_docs, monkeypatch, tmp_path, old, new, anew
):
    load_docs()
    (cache,) = small_docs.iterdir()
    assert SOURCE.count(old) == 1
    write(tmp_path / "docstrings.py", SOURCE.replace(old, new))
    monkeypatch.setattr(docstrings, "__file__", str(tmp_path / "docstrings.py"))
    load_docs()
    assert len(list(small_docs.iterdir())) == 1 + anew and cache.exists()


@pytest.mark.parametrize("place, step", [(Path, "read_bytes"), (os, "fsync"), (os, "replace")])
def test_an_interrupted_reading_of_docs_leaves_nothing_broken(small_docs, monkeypatch, place, step):
    original = getattr(place, step)

    def interrupted(*args, **options):
        original(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_docs()
    assert len(load_docs()) == 5
    assert len(list(small_docs.iterdir())) == 1
    assert gc.isenabled()


def test_docs_are_read_also_where_nothing_can_be_kept(small_docs, monkeypatch, tmp_path):
    write(tmp_path / "a_file", "in the way")
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "a_file" / "cache"))
    with pytest.warns(UserWarning, match="could not be kept .* MLM_CACHE names another folder"):
        assert load_docs()


@pytest.mark.parametrize("cut", [slice(0), slice(30), slice(-1)])
def test_a_damaged_docs_cache_is_made_anew(small_docs, cut):
    texts = load_docs()
    (cache,) = small_docs.iterdir()
    whole = cache.read_bytes()
    cache.write_bytes(whole[cut] + b"\xff"[: cut.stop == -1])
    assert load_docs() == texts
    assert cache.read_bytes() == whole


@pytest.mark.slow
def test_a_process_killed_while_writing_docs_leaves_no_broken_cache(tmp_path):
    functions = [f'def f{i}():\n    """The word {"x" * i} is here."""' for i in range(8)]
    write(tmp_path / "stdlib" / "a.py", "\n".join(functions))
    places = {"MLM_CACHE": str(tmp_path / "cache"), "STDLIB": str(tmp_path / "stdlib")}
    killed = run("write_docs.py", KILL="yes", **places)
    assert killed.returncode == 9 and any((tmp_path / "cache").iterdir())
    done = run("write_docs.py", KILL="", **places)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is here.") == 8


# ------------------------------------------------------------------------------------ the whole


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """What a first reading of the real docs corpus gives, with an empty cache."""
    done = run("read_docs.py", MLM_CACHE=str(tmp_path_factory.mktemp("cache")))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_docs_take_less_than_two_minutes_and_import_none_of_the_packages(docs):
    assert docs["seconds"] < 120  # 25 on a quiet machine
    assert docs["imported"] == []


@pytest.mark.slow
def test_docs_hold_4_megabytes_of_different_sentences(docs):
    texts = [text for part in docs["parts"].values() for text in part]
    assert sum(len(text.encode()) for text in texts) >= 4_000_000
    sentences = [sentence for text in texts for sentence in docstrings._sentences(text)]
    assert len(sentences) > 40_000
    assert len(set(sentences)) == len(sentences)
    code = re.compile(r"https?:|>>>|[{}<>=]|::")
    assert [sentence for sentence in sentences if code.search(sentence)] == []
