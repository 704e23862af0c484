"""Text in: what is accepted, what is refused and with which words, and that no split sees another."""

import gc
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub import answer_of, serve, start

from mlm_lib import DATA, corpus
from mlm_lib.corpus import SPLITS, load_corpus, pack_blocks, prose_sentences

ROOT = Path(corpus.__file__).resolve().parents[1]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def everything(source, **options):
    return sorted(text for split in SPLITS for text in load_corpus(source, split, **options))


def lines(count):
    return [f"This is text number {i}." for i in range(count)]


@pytest.mark.parametrize("around", ["{}\n\n", "\n\n{}", "\n{}\n \n"])
def test_blank_lines_at_the_ends_part_no_paragraphs(tmp_path, around):
    source = write(tmp_path / "a.txt", around.format("\n".join(lines(5))))
    assert everything(source) == lines(5)


def test_hidden_files_and_folders_are_not_read(tmp_path):
    write(tmp_path / "a.txt", "\n".join(lines(5)))
    write(tmp_path / ".ipynb_checkpoints" / "a-checkpoint.txt", "an old copy")
    assert everything(tmp_path) == lines(5)


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "\n".join(lines(5)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="unknown corpus ''"):
        load_corpus("")


def test_a_csv_of_a_header_alone_tells_of_the_missing_column(tmp_path):
    with pytest.raises(ValueError, match="no column 'text'; it has 'body', 'label'"):
        load_corpus(write(tmp_path / "a.csv", "body,label\n"))


def test_a_seed_that_is_no_whole_number_is_refused():
    with pytest.raises(ValueError, match="seed is 0.5"):
        load_corpus("reviews", seed=0.5)


# ---------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize("count, held", [(3, 1), (10, 1), (25, 2), (100, 10), (1234, 123)])
def test_splits_are_disjoint_cover_everything_and_hold_80_10_10(tmp_path, count, held):
    source = write(tmp_path / "a.txt", "\n".join(lines(count)))
    parts = {split: load_corpus(source, split) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == {
        "train": count - 2 * held,
        "validation": held,
        "test": held,
    }
    assert sorted(sum(parts.values(), [])) == sorted(lines(count))


def test_splits_do_not_depend_on_the_order_of_the_file(tmp_path):
    texts = lines(200)
    shuffled = random.Random(0).sample(texts, len(texts))
    first, second = (
        write(tmp_path / name, "\n".join(some))
        for name, some in [("a.txt", texts), ("b.txt", shuffled)]
    )
    for split in SPLITS:
        assert set(load_corpus(first, split)) == set(load_corpus(second, split))
        assert load_corpus(second, split) == [
            text for text in shuffled if text in set(load_corpus(first, split))
        ]


def test_seed_chooses_other_splits_and_the_same_seed_the_same(tmp_path):
    source = write(tmp_path / "a.txt", "\n".join(lines(200)))
    tests = [load_corpus(source, "test", seed=seed) for seed in (0, 1, 2)]
    assert tests == [load_corpus(source, "test", seed=seed) for seed in (0, 1, 2)]
    assert tests[0] == load_corpus(source, "test")
    assert len({tuple(sorted(part)) for part in tests}) == 3
    assert everything(source, seed=1) == sorted(lines(200))


def test_equal_texts_share_a_split_and_stay_in_it(tmp_path):
    texts = lines(50) * 3
    source = write(tmp_path / "a.txt", "\n".join(texts))
    parts = [load_corpus(source, split) for split in SPLITS]
    assert sum(map(len, parts)) == 150 == 3 * len(set().union(*parts))
    assert sum(len(set(part)) for part in parts) == 50


def test_too_few_texts_for_a_held_out_split_are_an_error(tmp_path):
    source = write(tmp_path / "a.txt", "One text.\nOne text.\nAnother text.\n")
    assert len(load_corpus(source)) == 3
    for split in ("validation", "test"):
        with pytest.raises(
            ValueError, match=f"a.txt holds 2 distinct texts, too few for a {split} split"
        ):
            load_corpus(source, split)


def test_unknown_split_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'valid'; choose one of train, validation, test"):
        load_corpus("reviews", "valid")


# ---------------------------------------------------------------------------------------- packing


def test_packing_follows_the_example_worked_by_hand():
    """The stream is 5 6 7 [SEP] 8 [SEP] 9 10: two blocks of three, and 9 10 are left over."""
    blocks = pack_blocks(iter([[5, 6, 7], [8], [9, 10]]), 5, cls_id=1, sep_id=2)
    assert blocks.dtype == torch.long
    assert blocks.tolist() == [[1, 5, 6, 7, 2], [1, 2, 8, 2, 2]]


def test_packing_loses_only_what_does_not_fill_the_last_block():
    encoded = [list(range(10, 10 + n)) for n in (4, 0, 7, 1, 30)]
    blocks = pack_blocks(encoded, 8, cls_id=1, sep_id=2)
    stream = [*encoded[0], 2, 2, *encoded[2], 2, *encoded[3], 2, *encoded[4]]
    assert blocks.shape == (len(stream) // 6, 8)
    assert (blocks[:, 0] == 1).all() and (blocks[:, -1] == 2).all()
    assert blocks[:, 1:-1].flatten().tolist() == stream[: len(stream) // 6 * 6]


def test_packing_refuses_blocks_that_are_too_small_or_cannot_be_filled():
    assert pack_blocks([[5]], 3, cls_id=1, sep_id=2).tolist() == [[1, 5, 2]]
    with pytest.raises(ValueError, match="block_size is 2.*3 or more"):
        pack_blocks([[5, 6]], 2, cls_id=1, sep_id=2)
    for few in ([], [[]], [[5, 6], [7]]):
        with pytest.raises(ValueError, match="do not fill one block of 10"):
            pack_blocks(few, 10, cls_id=1, sep_id=2)


# ---------------------------------------------------------------------------------------- files


def test_text_files_hold_paragraphs_or_else_lines(tmp_path):
    paragraphs = write(
        tmp_path / "a.txt", "First line,\nsecond  line.\n\n \nNext paragraph.\n\n\nLast one.\n"
    )
    assert everything(paragraphs) == ["First line, second line.", "Last one.", "Next paragraph."]
    assert everything(write(tmp_path / "b.txt", "One.\n Two. \nThree.\n")) == [
        "One.",
        "Three.",
        "Two.",
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"], ids=["plain", "BOM"])
@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", "Größe eins.\n\nZwei,\nzwei.\n\nDrei.\n"),
        ("a.csv", 'text,label\nGröße eins.,1\n"Zwei, zwei.",0\nDrei.,1\n'),
        ("a.jsonl", '{"text": "Größe eins."}\n\n{"text": "Zwei, zwei."}\n{"text": "Drei."}'),
    ],
)
def test_byte_order_marks_and_line_ends_change_nothing(tmp_path, name, content, bom, newline):
    source = write(tmp_path / name, bom + content.replace("\n", newline))
    assert everything(source) == ["Drei.", "Größe eins.", "Zwei, zwei."]


def test_a_column_is_named_after_a_colon(tmp_path):
    table = write(tmp_path / "films.csv", "text,body\na,one\nb,two\nc,three\n")
    assert everything(table) == ["a", "b", "c"]
    assert everything(f"{table}:body") == ["one", "three", "two"]
    rows = write(
        tmp_path / "films.JSONL",
        "".join(f'{{"body": "{word}"}}\n' for word in ("one", "two", "three")),
    )
    assert everything(f"{rows}:body") == ["one", "three", "two"]


def test_quoted_cells_may_hold_anything(tmp_path):
    texts = [
        'She said "no", twice.',
        "Two\nlines.",
        "A line\u2028separator.",
        "A next\x85line.",
        "x" * 300_000,
    ]
    cells = "".join('"' + text.replace('"', '""') + '",1\n' for text in texts)
    assert everything(write(tmp_path / "a.csv", "text,label\n" + cells)) == sorted(texts)
    assert everything(write(tmp_path / "b.csv", "text\na\u2028b\nc\x0cd\ne\n")) == [
        "a\u2028b",
        "c\x0cd",
        "e",
    ]


def test_blank_entries_are_dropped_and_short_rows_matter_only_in_the_column_read(tmp_path):
    assert everything(write(tmp_path / "a.csv", "text,label\none,1\n  ,0\ntwo\n\nthree,1\n")) == [
        "one",
        "three",
        "two",
    ]


def test_folders_are_read_whole(tmp_path):
    write(tmp_path / "a.txt", "One.")
    write(tmp_path / "deep" / "er" / "b.csv", "text\nTwo.\n")
    write(tmp_path / "deep" / "c.JSONL", '{"text": "Three."}')
    write(tmp_path / "deep" / "notes.md", "Not this.")
    (tmp_path / "folder.txt").mkdir()
    assert everything(str(tmp_path)) == ["One.", "Three.", "Two."]


def test_a_path_object_is_a_path_even_when_a_corpus_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews" / "a.txt", "Mine.\nAll mine.\nOnly mine.")
    assert everything(Path("reviews")) == ["All mine.", "Mine.", "Only mine."]
    assert len(everything("reviews")) > 100


BAD = {
    "a missing file": ("nowhere.txt", None, FileNotFoundError, ["no file", "nowhere.txt"]),
    "a missing table": ("nowhere.csv:body", None, FileNotFoundError, ["no file", "nowhere.csv"]),
    "a missing folder": ("no/where", None, FileNotFoundError, ["no file", "where"]),
    "an empty file": ("a.txt", "", ValueError, ["a.txt is empty"]),
    "only a byte order mark": ("a.txt", "\ufeff", ValueError, ["a.txt is empty"]),
    "only blanks": ("a.txt", " \n\t\n\n", ValueError, ["a.txt is empty"]),
    "only blank cells": ("a.csv", "text,label\n ,1\n  ,0\n", ValueError, ["a.csv", "every entry is blank"]),
    "only a header": ("a.csv", "text,label\n", ValueError, ["a.csv", "no usable text"]),
    "a missing column": ("a.csv", "body,stars\nx,1\n", ValueError, ["'text'", "'body', 'stars'", "a.csv:COLUMN"]),
    "a missing named column": ("a.csv:txet", "text\nx\n", ValueError, ["'txet'", "it has 'text'", "a.csv:COLUMN"]),
    "a missing key": ("a.jsonl", '{"text": "x"}\n{"body": "y"}', ValueError, ["no column 'text'", "'body'", "a.jsonl:"]),
    "a short row": ("a.csv", "label,text\n1,x\n0\n", ValueError, ["a.csv, line 3", "'text'", "None", "not text"]),
    "a long row": ("a.csv", "text,label\nGood, but long,1\n", ValueError, ["a.csv, line 2", "more cells", "quotes"]),
    "an open quote": ("a.csv", 'text,label\nx,1\n"y,0\nz,1\n', ValueError, ["a.csv, after line 2", "unexpected end"]),
    "a broken line": ("a.jsonl", '{"text": "x"}\n{"text": \n', ValueError, ["a.jsonl, line 2", "not JSON"]),
    "no object": ("a.jsonl", '{"text": "x"}\n["y"]\n', ValueError, ["a.jsonl, line 2", "object", "not list"]),
    "no string": ("a.jsonl", '{"text": "x"}\n\n{"text": 7}\n', ValueError, ["a.jsonl, line 3", "'text' holds 7"]),
    "half a character": ("a.jsonl", '{"text": "x \\ud83d"}\n', ValueError, ["a.jsonl, line 1", "\\ud83d", "not text"]),
    "Latin-1": ("a.txt", "Gr\xfc\xdfe".encode("latin-1"), UnicodeDecodeError, ["offset 2 of", "a.txt", "as UTF-8"]),
    "UTF-16": ("a.csv", "text\nx\n".encode("utf-16"), UnicodeDecodeError, ["offset 0 of", "a.csv", "as UTF-8"]),
    "bad bytes after a mark": ("a.txt", b"\xef\xbb\xbfab\xff", UnicodeDecodeError, ["offset 5 of", "a.txt"]),
    "another suffix": ("a.pdf", "x", ValueError, ["'.pdf'", ".txt, .csv, .jsonl"]),
    "no suffix": ("./a", "x", ValueError, ["ends in ''", ".txt, .csv, .jsonl"]),
    "an unknown name": ("wikipedia", None, ValueError, ["'wikipedia'", "'reviews', 'docs'", ".csv", "hub:NAME"]),
}  # fmt: skip


@pytest.mark.parametrize("source, content, error, words", BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_words_that_help(
    tmp_path, monkeypatch, source, content, error, words
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        write(tmp_path / source.partition(":")[0], content)
    with pytest.raises(error) as caught:
        load_corpus(source)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_a_folder_without_texts_is_refused(tmp_path):
    write(tmp_path / "notes.md", "Not this.")
    with pytest.raises(ValueError, match="holds no .txt, .csv, .jsonl file"):
        load_corpus(tmp_path)


def test_a_bad_file_in_a_folder_is_named(tmp_path):
    write(tmp_path / "a.txt", "One.")
    write(tmp_path / "b.txt", b"\xff")
    with pytest.raises(UnicodeDecodeError, match="b.txt"):
        load_corpus(tmp_path)


def test_the_reviews_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert everything("reviews") == everything(DATA / "reviews.csv")


# ---------------------------------------------------------------------------------------- docstrings


def test_prose_keeps_whole_sentences():
    docstring = """Return the sum of two arrays.

    The inputs may differ in shape, e.g. a scalar and a matrix, i.e. they are broadcast. Neither input is changed!

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


@pytest.fixture
def small_docs(tmp_path, monkeypatch):
    """A world with one package, which must not be imported, and one file of a standard library."""
    write(tmp_path / "packages" / "mlm_small_package" / "__init__.py", MODULE)
    write(
        tmp_path / "packages" / "mlm_small_package" / "tests" / "a.py",
        '"""The tests of a package are not read."""',
    )
    write(
        tmp_path / "packages" / "mlm_small_package" / "template.py",
        '"""The {{template}} is not Python.""" {{',
    )
    write(tmp_path / "stdlib" / "a.py", '"""The standard library is read first."""')
    write(tmp_path / "stdlib" / "site-packages" / "b.py", '"""The other packages are not read."""')
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setattr(
        corpus, "DOCS_PACKAGES", ("mlm_small_package", "mlm_package_that_is_not_there")
    )
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "stdlib")})
    monkeypatch.setattr(corpus.importlib.metadata, "version", lambda name: "1.0")
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_docs_hold_each_sentence_once_and_import_nothing(small_docs):
    assert everything("docs") == sorted(["The standard library is read first.", *TEXTS])
    assert "mlm_small_package" not in sys.modules


def test_docs_are_read_once_for_each_version_of_a_package(small_docs, monkeypatch):
    first = everything("docs")
    read = []
    monkeypatch.setattr(
        corpus, "_docstrings", lambda path: read.append(path) or ["Another text is found now."]
    )
    assert everything("docs") == first and read == []
    monkeypatch.setattr(corpus.importlib.metadata, "version", lambda name: "2.0")
    assert load_corpus("docs") == ["Another text is found now."] and read


@pytest.mark.filterwarnings("error")
def test_docs_do_not_depend_on_how_warnings_are_shown(small_docs):
    """An invalid escape in someone's file is a warning, and where warnings are errors it would lose the file."""
    write(small_docs.parent / "stdlib" / "b.py", '"""The file has an odd string."""\nodd = "\\d"\n')
    assert "The file has an odd string." in everything("docs")


@pytest.mark.parametrize(
    "place, step", [(Path, "read_bytes"), (Path, "write_text"), (os, "replace")]
)
def test_an_interrupted_reading_of_docs_leaves_nothing_broken(small_docs, monkeypatch, place, step):
    original = getattr(place, step)

    def interrupted(*args, **options):
        original(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_corpus("docs")
    assert len(everything("docs")) == 5
    assert len(list(small_docs.iterdir())) == 1
    assert gc.isenabled()


def test_docs_are_read_also_where_nothing_can_be_kept(small_docs, monkeypatch, tmp_path):
    write(tmp_path / "a_file", "in the way")
    monkeypatch.setenv("MLM_CACHE", str(tmp_path / "a_file" / "cache"))
    with pytest.warns(UserWarning, match="MLM_CACHE"):
        assert load_corpus("docs")


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: raw[: len(raw) // 2], lambda raw: raw[:-1] + b"\xff"]
)
def test_a_damaged_docs_cache_is_made_anew(small_docs, damage):
    texts = everything("docs")
    (cache,) = small_docs.iterdir()
    whole = cache.read_bytes()
    cache.write_bytes(damage(whole))
    assert everything("docs") == texts
    assert cache.read_bytes() == whole


KILLED_WHILE_WRITING = """
import os, pathlib
from mlm_lib import corpus
corpus.DOCS_PACKAGES = ()
corpus.sysconfig.get_paths = lambda: {"stdlib": os.environ["STDLIB"]}
if os.environ["KILL"]:
    def write_half(path, text, **options):
        path.write_bytes(text[: len(text) // 2].encode())
        os._exit(9)
    pathlib.Path.write_text = write_half
print(corpus.load_corpus("docs"))
"""


@pytest.mark.slow
def test_a_process_killed_while_writing_docs_leaves_no_broken_cache(tmp_path):
    functions = [f'def f{i}():\n    """The word {"x" * i} is here."""' for i in range(8)]
    write(tmp_path / "stdlib" / "a.py", "\n".join(functions))
    outcomes = []
    for kill in ("yes", ""):
        environment = {
            "MLM_CACHE": str(tmp_path / "cache"),
            "STDLIB": str(tmp_path / "stdlib"),
            "KILL": kill,
        }
        outcomes.append(run(KILLED_WHILE_WRITING, environment))
    assert outcomes[0].returncode == 9 and any((tmp_path / "cache").iterdir())
    assert outcomes[1].returncode == 0, outcomes[1].stderr
    assert outcomes[1].stdout.count("is here.") == 6  # of eight


def run(script, environment):
    """A fresh interpreter, for libraries that read the environment when they are imported."""
    keep = {
        name: value
        for name, value in os.environ.items()
        if not re.match("HF_|.*_PROXY", name, re.IGNORECASE)
    }
    environment = keep | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"} | environment
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, encoding="utf-8"
    )


READ_DOCS = """
import json, sys, time
from mlm_lib import corpus
before, start = set(sys.modules), time.process_time()
texts = corpus.load_corpus("docs")
seconds = time.process_time() - start
parts = {"train": texts, **{split: corpus.load_corpus("docs", split) for split in ("validation", "test")}}
imported = sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(corpus.DOCS_PACKAGES))
print(json.dumps({"seconds": seconds, "parts": parts, "imported": imported}))
"""


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """What a first reading of the real docs corpus gives, with an empty cache."""
    done = run(READ_DOCS, {"MLM_CACHE": str(tmp_path_factory.mktemp("cache"))})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_docs_take_less_than_40_seconds_and_import_none_of_the_packages(docs):
    assert docs["seconds"] < 40
    assert docs["imported"] == []


@pytest.mark.slow
def test_docs_hold_4_megabytes_of_different_sentences(docs):
    texts = [text for part in docs["parts"].values() for text in part]
    assert sum(len(text.encode()) for text in texts) >= 4_000_000
    sentences = [sentence for text in texts for sentence in corpus._sentences(text)]
    assert len(sentences) > 40_000
    assert len(set(sentences)) == len(sentences)
    code = re.compile(r"https?:|>>>|[{}<>=]|::")
    assert [sentence for sentence in sentences if code.search(sentence)] == []


# ---------------------------------------------------------------------------------------- the hub


def table(name, count):
    return "text,body,stars\n" + "".join(
        f"{name} text {i}.,{name} body {i}.,{i}\n" for i in range(count)
    )


CARD = """---
configs:
- config_name: en
  data_files: [{split: train, path: en.csv}]
- config_name: de
  data_files: [{split: train, path: de.csv}]
---
"""
REPOSITORIES = {
    "tiny": {"train.csv": table("train", 40)},
    "split": {"train.csv": table("train", 40), "test.csv": table("test", 10)},
    "held": {"test.csv": table("test", 10)},
    "configs": {"README.md": CARD, "en.csv": table("en", 20), "de.csv": table("de", 20)},
}
CALLS = [
    (f"hub:acme/{name}", split)
    for name in ("tiny", "split", "tiny:body", "configs:de")
    for split in SPLITS
]
MISTAKES = ("configs:body", "tiny:nope", "tiny:nope:text", "tiny:stars", "held", "none", "a:b:c")
CALLS += [(f"hub:acme/{name}", "train") for name in ("configs:de:body", *MISTAKES)]
CALLS += [("hub:acme/held", "test"), ("hub:", "train")]


def ask(environment, calls=CALLS):
    answers = answer_of(start("ask_corpora.py", {**environment, "CALLS": json.dumps(calls)}))
    return dict(zip(calls, answers, strict=True))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The answers while the hub can be reached, while it cannot, offline, and with nothing cached."""
    repositories = {
        f"acme/{name}": {file: content.encode() for file, content in files.items()}
        for name, files in REPOSITORIES.items()
    }
    with serve(repositories) as (url, _):
        home = {"HF_HOME": str(tmp_path_factory.mktemp("full")), "HF_ENDPOINT": url}
        online = ask(home)
    empty = {**home, "HF_HOME": str(tmp_path_factory.mktemp("empty"))}
    down, offline = {"DOWN": "yes"}, {"HF_HUB_OFFLINE": "1"}
    tiny = [("hub:acme/tiny", "train")]
    return {
        "online": online,
        "offline": ask(home | offline),
        "down": ask(home | down, [("hub:acme/split", "test"), ("hub:acme/tiny:body", "train")]),
        "down, nothing cached": ask(empty | down, tiny),
        "offline, nothing cached": ask(empty | offline, tiny),
    }


def column(name, kind, count):
    return [f"{name} {kind} {i}." for i in range(count)]


@pytest.mark.slow
def test_hub_splits_that_are_lacking_are_cut_from_train(hub):
    parts = [hub["online"]["hub:acme/tiny", split] for split in SPLITS]
    assert list(map(len, parts)) == [32, 4, 4]
    assert sorted(sum(parts, [])) == sorted(column("train", "text", 40))


@pytest.mark.slow
def test_hub_splits_that_exist_are_kept(hub):
    train, validation, test = (hub["online"]["hub:acme/split", split] for split in SPLITS)
    assert test == column("test", "text", 10)
    assert len(validation) == 4 and sorted(train + validation) == sorted(
        column("train", "text", 40)
    )
    assert hub["online"]["hub:acme/held", "test"] == column("test", "text", 10)


@pytest.mark.slow
def test_hub_columns_and_configurations_are_chosen_by_name(hub):
    online = hub["online"]
    for source, texts in [
        ("tiny:body", column("train", "body", 40)),
        ("configs:de", column("de", "text", 20)),
    ]:
        assert sorted(sum((online[f"hub:acme/{source}", split] for split in SPLITS), [])) == sorted(
            texts
        )
    assert set(online["hub:acme/configs:de:body", "train"]) < set(column("de", "body", 20))


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, error, words",
    [
        (
            "hub:acme/tiny:nope",
            "ValueError",
            ["'nope'", "'text', 'body', 'stars'", "hub:acme/tiny:COLUMN"],
        ),
        ("hub:acme/tiny:nope:text", "ValueError", ["'nope' not found", "default"]),
        ("hub:acme/tiny:stars", "ValueError", ["acme/tiny", "'stars'", "holds no text"]),
        ("hub:acme/configs:body", "ValueError", ["Config name is missing", "'en', 'de'"]),
        ("hub:acme/held", "ValueError", ["acme/held", "train split", "it has test"]),
        (
            "hub:acme/none",
            "ConnectionError",
            ["'acme/none'", "Check the name", "'reviews', 'docs'"],
        ),
        ("hub:acme/a:b:c", "ConnectionError", ["'acme/a'", "Check the name"]),
        ("hub:", "ValueError", ["hub:NAME[:CONFIG][:COLUMN]"]),
    ],
)
def test_hub_mistakes_are_explained(hub, source, error, words):
    kind, message = hub["online"][source, "train"]
    assert kind == error, message
    assert [word for word in words if word not in message] == [], message


@pytest.mark.slow
def test_hub_data_that_are_cached_work_without_a_network(hub):
    for call, answer in hub["online"].items():
        if not answer[0].endswith("Error"):
            assert hub["offline"][call] == answer, call
    for call, answer in hub["down"].items():
        assert answer == hub["online"][call]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["down, nothing cached", "offline, nothing cached"])
def test_hub_without_a_network_says_what_still_works(hub, state):
    kind, message = hub[state]["hub:acme/tiny", "train"]
    assert kind == "ConnectionError"
    for word in ("'acme/tiny'", "network", "'reviews', 'docs' and your own files work"):
        assert word in message
