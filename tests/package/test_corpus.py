"""Text in: what is accepted, what is refused, and that no split sees another."""

import gzip
import json
import os
import random
import warnings
from pathlib import Path

import pytest
from hub import answer_of, serve, start

from mlm_lib import DATA
from mlm_lib.corpus import SPLITS, load_corpus, pack_blocks, split_to_train


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def everything(source, **options):
    return sorted(text for split in SPLITS for text in load_corpus(source, split, **options))


def lines(count):
    return [f"This is text number {i}." for i in range(count)]


# ---------------------------------------------------------------------------------------- splits


@pytest.mark.parametrize("count, held", [(3, 1), (10, 1), (25, 2), (100, 10), (1234, 123)])
def test_splits_are_disjoint_cover_everything_and_hold_80_10_10(tmp_path, count, held):
    source = write(tmp_path / "a.txt", "\n".join(lines(count)))
    parts = [load_corpus(source, split) for split in SPLITS]
    assert [len(part) for part in parts] == [count - 2 * held, held, held]
    assert sorted(sum(parts, [])) == sorted(lines(count))


def test_splits_depend_on_the_seed_and_not_on_the_order_of_the_file(tmp_path):
    texts = lines(200)
    first = write(tmp_path / "a.txt", "\n".join(texts))
    shuffled = random.Random(0).sample(texts, len(texts))
    second = write(tmp_path / "b.txt", "\n".join(shuffled))
    tests = set()
    for seed in (0, 1, 2):
        part = set(load_corpus(first, "test", seed=seed))
        assert load_corpus(second, "test", seed=seed) == [text for text in shuffled if text in part]
        tests.add(frozenset(part))
    assert len(tests) == 3 and set(load_corpus(first, "test")) in tests


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
        with pytest.raises(ValueError, match=f"a.txt holds 2 distinct texts; a {split} split"):
            load_corpus(source, split)


# ---------------------------------------------------------------------------------------- packing


def test_packing_loses_only_what_does_not_fill_the_last_block():
    encoded = [list(range(10, 10 + n)) for n in (4, 7, 1, 30)]
    blocks = pack_blocks(encoded, 8, cls_id=1, sep_id=2)
    stream = [*encoded[0], 2, *encoded[1], 2, *encoded[2], 2, *encoded[3]]
    assert blocks.shape == (len(stream) // 6, 8)
    assert (blocks[:, 0] == 1).all() and (blocks[:, -1] == 2).all()
    assert blocks[:, 1:-1].flatten().tolist() == stream[: len(stream) // 6 * 6]


def test_packing_puts_no_separators_around_an_empty_text():
    blocks = pack_blocks([[], [5, 6], [], [7], []], 6, cls_id=1, sep_id=2)
    assert blocks.tolist() == [[1, 5, 6, 2, 7, 2]]


@pytest.mark.parametrize(
    "few, size, told",
    [
        ([], 10, "0 tokens do not fill one block of 10"),
        ([[5, 6], [7]], 10, "4 tokens do not fill one block of 10"),
        ([[5]], 2, "block_size=2; a whole number of at least 3"),
    ],
)
def test_packing_refuses_blocks_that_cannot_be_filled(few, size, told):
    assert pack_blocks([[5]], 3, cls_id=1, sep_id=2).tolist() == [[1, 5, 2]]
    with pytest.raises(ValueError, match=told):
        pack_blocks(few, size, cls_id=1, sep_id=2)


# ---------------------------------------------------------------------------------------- files


def test_text_files_hold_paragraphs_or_else_lines(tmp_path):
    paragraphs = write(tmp_path / "a.txt", "First line,\nsecond  line.\n\n \nNext.\n\n\nThird.\n")
    assert everything(paragraphs) == ["First line, second line.", "Next.", "Third."]
    one_a_line = write(tmp_path / "b.txt", "One.\n Two. \nThree.\n")
    assert everything(one_a_line) == ["One.", "Three.", "Two."]
    for around in ("{}\n\n", "\n\n{}", "\n{}\n \n"):  # blank lines at the ends part nothing
        source = write(tmp_path / "c.txt", around.format("\n".join(lines(5))))
        assert everything(source) == lines(5)


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
    rows = write(tmp_path / "a.JSONL", '{"body": "one"}\n{"body": "two"}\n{"body": "three"}\n')
    assert everything(f"{rows}:body") == ["one", "three", "two"]


def test_cells_may_hold_anything_and_rows_may_be_short(tmp_path):
    texts = ["A line\u2028separator.", "A next\x85line.", 'She said "no", twice.', "Two\nlines."]
    texts += ["x" * 300_000]
    cells = "".join('"' + text.replace('"', '""') + '",1\n' for text in texts)
    assert everything(write(tmp_path / "a.csv", "text,label\n" + cells)) == sorted(texts)
    bare = write(tmp_path / "b.csv", "text\na\u2028b\nc\x0cd\ne\n")
    assert everything(bare) == ["a\u2028b", "c\x0cd", "e"]
    short = write(tmp_path / "c.csv", "text,label\none,1\n  ,0\ntwo\n\nthree,1\n")
    assert everything(short) == ["one", "three", "two"]  # blank ones are dropped


def test_folders_are_read_whole(tmp_path):
    write(tmp_path / "a.txt", "One.")
    write(tmp_path / "deep" / "er" / "b.csv", "text\nTwo.\n")
    write(tmp_path / "deep" / "c.JSONL", '{"text": "Three."}')
    write(tmp_path / ".ipynb_checkpoints" / "a-checkpoint.txt", "An old copy.")
    (tmp_path / "folder.txt").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left out that anybody would miss
        assert everything(str(tmp_path)) == ["One.", "Three.", "Two."]


QUOTED = ['One, "quoted.', 'Two "times".', 'Three."']
ROWS = [{"text": text, "label": 1} for text in QUOTED]
FILES = {
    "a.tsv": 'label\ttext\n1\tOne, "quoted.\n0\t"Two ""times""."\n1\tThree."\n',
    "a.csv": 'text\n"One, ""quoted."\n"Two ""times""."\n"Three."""\n',
    "a.text": "\n".join(QUOTED),
    "a.txt": "\n\n".join(QUOTED),
    "a.jsonl": "\n".join(map(json.dumps, ROWS)),
    "lines.json": "\n\n".join(map(json.dumps, ROWS)) + "\n",
    "a.json": json.dumps(ROWS, indent=1),
    "strings.json": json.dumps(QUOTED),
    "under a name.json": json.dumps({"version": 1, "data": ROWS}),
    "columns.json": json.dumps({"id": [1, 2, 3], "text": QUOTED}),
    "pandas.json": json.dumps({"text": dict(enumerate(QUOTED))}),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read_also_when_it_is_packed(tmp_path, name, packed):
    content = FILES[name].encode()
    path = tmp_path / (f"{name}.gz" if packed else name)
    assert everything(write(path, gzip.compress(content) if packed else content)) == sorted(QUOTED)


def test_a_parquet_file_is_read_by_its_column(tmp_path):
    pandas = pytest.importorskip("pandas")
    source = tmp_path / "a.parquet"
    table = pandas.DataFrame({"text": ["One.", "Two.", " "], "body": ["a", None, "b"]})
    table.to_parquet(source)
    assert load_corpus(source) == ["One.", "Two."]
    for column, told in (("body", "row 2: 'body' is None"), ("nope", "'nope' in ['text', 'body']")):
        with pytest.raises(ValueError) as caught:
            load_corpus(f"{source}:{column}")
        assert "a.parquet" in str(caught.value) and told in str(caught.value)
    source.write_bytes(source.read_bytes()[:-9])
    with pytest.raises(ValueError, match="a.parquet: not a complete Parquet file"):
        load_corpus(source)


def test_a_folder_names_what_it_leaves_out_and_readmes_and_licences_are_no_texts(tmp_path):
    write(tmp_path / "a.txt", "One.")
    write(tmp_path / "license_plates.csv", "text\nTwo.\n")
    for name in ("README.txt", "LICENSE-2.0.txt", "deep/readme_de.TXT.gz", "dataset_infos.json"):
        write(tmp_path / name, "About these texts.")
    for name in ("1.pdf", "2.pdf", "3.PDF", "4.pdf", "notes.md", "made", "b.tar.gz"):
        write(tmp_path / name, "x")
    with pytest.warns(UserWarning) as told:
        assert sorted(load_corpus(tmp_path)) == ["One.", "Two."]
    (told,) = (str(one.message) for one in told)
    for part in (
        "files read: 2 (1 .txt, 1 .csv); left out: 11 (",
        "4 .pdf: 1.pdf, 2.pdf, 3.PDF, …", "1 .md: notes.md", "1 without a suffix: made",
        "1 .tar.gz: b.tar.gz",
        "4 about the texts: LICENSE-2.0.txt, README.txt, dataset_infos.json, …",
    ):  # fmt: skip
        assert part in told, told
    assert load_corpus(tmp_path / "README.txt") == ["About these texts."]  # which was asked for


@pytest.mark.parametrize("inside", ["", "train", "."])
def test_of_the_layout_of_aclimdb_the_reviews_alone_are_read(tmp_path, inside):
    root = tmp_path / "data" / "aclImdb"
    for part in ("train", "test"):
        for kind in ("pos", "neg", "unsup")[: 3 if part == "train" else 2]:
            write(root / part / kind / "0_9.txt", f"A review, {part} {kind}.<br />Seen twice.")
            write(root / part / f"urls_{kind}.txt", "http://www.imdb.com/title/tt0/usercomments")
        write(root / part / "labeledBow.feat", "9 0:9 1:1")
    for name in ("README", "imdb.vocab", "imdbEr.txt"):
        write(root / name, "0.0490972013402")
    source = {"": root, "train": root / "train", ".": tmp_path / "data"}[inside]
    with pytest.warns(UserWarning, match="beside pos and neg"):
        texts = (
            load_corpus(source) + load_corpus(source, "validation") + load_corpus(source, "test")
        )
    assert len(texts) == (3 if inside == "train" else 5)
    assert all(text.startswith("A review") for text in texts)


def test_a_column_of_all_tables_of_a_folder_and_a_home_folder(tmp_path, monkeypatch):
    write(tmp_path / "my" / "a.csv", "text,body\na,one\n")
    write(tmp_path / "my" / "b" / "b.tsv", "body\ttext\ntwo\tb\n")
    write(tmp_path / "my" / "c.jsonl", '{"body": "three"}')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for source in (f"{tmp_path}/my:body", "~/my:body"):
        assert everything(source) == ["one", "three", "two"]
    assert load_corpus("~/my/a.csv:body") == ["one"]
    write(tmp_path / "only" / "a.txt", "x")
    for source in ("~/only:body", "~/only/a.txt:body"):
        with pytest.raises(ValueError, match="holds no table with columns; leave ':body' out"):
            load_corpus(source)


GIANTS = {
    "one blank line": [500, 500],
    "two blank lines near the end": [990, 5, 5],
    "a long beginning": [900] + 100 * [1],
}


@pytest.mark.parametrize("name", GIANTS)
def test_blank_lines_that_part_a_file_into_giants_are_told(tmp_path, name):
    parts = ["\n".join(f"Text {n} {m} of these." for m in range(n)) for n in GIANTS[name]]
    source = write(tmp_path / "a.txt", "\n\n".join(parts))
    words = 5 * max(GIANTS[name])
    told = f"{len(parts)} texts, and the longest has {words:,} words: are these paragraphs"
    with pytest.warns(UserWarning, match=told):
        load_corpus(source)


def test_paragraphs_of_a_book_are_not_doubted(tmp_path):
    book = "\n\n".join("\n".join(70 * "x" for _ in range(1 + n**2 % 61)) for n in range(300, 302))
    book += "\n\n" + "\n\n".join("A line.\nAnother line." for _ in range(40))
    source = write(tmp_path / "book.txt", book)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_corpus(source), load_corpus("grammar"), load_corpus(DATA / "passages.txt")


def test_a_path_object_is_a_path_even_when_a_corpus_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews" / "a.txt", "Mine.\nAll mine.\nOnly mine.")
    assert everything(Path("reviews")) == ["All mine.", "Mine.", "Only mine."]
    assert len(everything("reviews")) > 100


BAD = {
    "nothing": (" ", None, ["source=' '"]),
    "an unknown name": (
        "wikipedia", None, ["unknown corpus", "'wikipedia'", "'grammar'", "hub:NAME"]
    ),
    "a text": ("One text. " * 500, None, ["unknown corpus", "'One text."]),
    "a missing table": ("nowhere.csv:body", None, ["no file 'nowhere.csv'"]),
    "a missing folder": ("no/where", None, ["no file", "where"]),
    "another suffix": ("a.pdf", "x", ["a.pdf", ".txt, .csv, .jsonl"]),
    "an empty file": ("a.txt", "", ["a.txt holds 0 distinct texts"]),
    "only a byte order mark": ("a.txt", "\ufeff", ["a.txt holds 0 distinct texts"]),
    "only blank cells": ("a.csv", "text,label\n ,1\n  ,0\n", ["a.csv holds 0 distinct texts"]),
    "a missing column": ("a.csv", "body,stars\nx,1\n", ["a.csv, line 2", "['body', 'stars'"]),
    "a missing named column": ("a.csv:txet", "text\nx\n", ["'txet'", "['text']"]),
    "two columns of one name": ("a.csv", "text,label,text\nx,1,y\n", ["several columns 'text'"]),
    "a missing key": ("a.jsonl", '{"text": "x"}\n{"body": "y"}', ["a.jsonl, line 2", "['body']"]),
    "a short row": ("a.csv", "label,text\n1,x\n0\n", ["a.csv, line 3", "not a text"]),
    "a long row": ("a.csv", "text,label\nGood, but long,1\n", ["a.csv, line 2", "more cells"]),
    "an open quote": ("a.csv", 'text,label\nx,1\n"y,0\nz,1\n', ["a.csv, after line 2"]),
    "a broken line": ("a.jsonl", '{"text": "x"}\n{"text": \n', ["a.jsonl, line 2", "not JSON"]),
    "no object": ("a.jsonl", '{"text": "x"}\n["y"]\n', ["a.jsonl, line 2", "['y']"]),
    "no string": ("a.jsonl", '{"text": "x"}\n\n{"text": 7}\n', ["a.jsonl, line 3", "'text' is 7"]),
    "half a character": ("a.jsonl", '{"text": "x \\ud83d"}\n', ["line 1", "'\\ud83d'", "half"]),
    "the other half": ("a.json", '["x", {"text": "\\ude00 y"}]', ["a.json, row 2", "half"]),
    "halves in the wrong order": ("a.jsonl:b", '\n{"b": "\\ude00\\ud83d"}', ["a.jsonl, line 2"]),
    "half a character in bytes": ("a.txt", b"x\n\xed\xa0\xbd\n", ["a.txt, line 2", "not UTF-8"]),
    "half a character in a table": ("a.tsv", b"text\nx\n\xed\xb8\x80\n", ["a.tsv, line 3"]),
    "semicolons": ("a.csv", "text;stars\nGood, but long;1\n", ["a.csv, line 1", "semicolons"]),
    "quotes and semicolons": ("a.csv", '"id";"text"\n1;"x, y"\n', ["semicolons", "with commas"]),
    "tabs in commas' place": ("a.csv", "id\ttext\n1\tx\n", ["tabs", "rename it to .tsv"]),
    "commas in tabs' place": ("a.tsv", "id,text\n1,x\n", ["commas, not by tabs"]),
    "bars and a named column": ("a.csv:body", "id|body\n1|x\n", ["vertical bars"]),
    "a tab too many": ("a.tsv", "text\tn\nGood\tbut\t1\n", ["a.tsv, line 2", "more cells"]),
    "a packed file cut short": ("a.txt.gz", gzip.compress(b"x\n")[:-9], ["not a complete .gz"]),
    "a file that is not packed": ("a.csv.gz", "text\nx\n", ["a.csv.gz: not a complete .gz file"]),
    "broken JSON": ("a.json", '[{"text": "x"},\n{"text" "y"}]', ["a.json, line 2", "not JSON"]),
    "JSON without rows": ("a.json", '{"a": 1, "b": 2}', ["a.json, row 1", "['a', 'b']"]),
    "Markdown": ("a.md", "x", ["a.md is no .txt"]),
    "Latin-1": ("a.txt", "Gr\xfc\xdfe".encode("latin-1"), ["a.txt, line 1", "not UTF-8"]),
    "UTF-16": ("a.csv", "text\nx\n".encode("utf-16"), ["a.csv, line 1", "not UTF-8"]),
    "bad bytes far in a file": ("a.jsonl", b'{"text": "x"}\r\n' * 9999 + b"\xff", ["line 10000:"]),
    "a character cut at the end": ("a.txt", b"x\n" * 49_999 + b"\xf0\x9f", ["a.txt, line 50000:"]),
}  # fmt: skip


@pytest.mark.parametrize("source, content, words", BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_words_that_help(tmp_path, monkeypatch, source, content, words):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "here" / "a.txt", "An empty name is not the current folder.")
    if content is not None:
        write(tmp_path / source.partition(":")[0], content)
    missing = words[0].startswith(("unknown", "no file"))
    with pytest.raises(FileNotFoundError if missing else ValueError) as caught:
        load_corpus(source)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    for source in (tmp_path / "pipe.txt", "/dev/zero", tmp_path):
        with pytest.raises(ValueError, match=r"is no .txt, .csv, .*file"):
            load_corpus(source)


def test_the_reviews_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert everything("reviews") == everything(DATA / "reviews.csv")


# ---------------------------------------------------------------------------------------- training


def test_what_a_run_trains_on_and_holds_out_is_everything_of_ones_own_files(tmp_path):
    source = write(tmp_path / "a.txt", "\n".join(lines(200)))
    for share, count in ((None, 20), (0.1, 20), (0.25, 50), (0.001, 1), (0, 0)):
        train, held, test = split_to_train(source, share)
        assert (len(held), test) == (count, []) and sorted(train + held) == sorted(lines(200))
    assert split_to_train(source)[1] == load_corpus(source, "validation")
    with pytest.raises(ValueError, match="validation_share=1.0 holds out all 200 distinct texts"):
        split_to_train(source, 1.0)


def test_the_test_split_of_the_courses_corpora_is_not_trained_on():
    splits = {split: load_corpus("reviews", split) for split in SPLITS}
    assert split_to_train("reviews") == tuple(splits.values())
    for share in (0, 0.3):
        train, held, test = split_to_train("reviews", share)
        assert test == splits["test"] and not {*test} & {*train, *held}
        assert sorted(train + held) == sorted(splits["train"] + splits["validation"])
        assert len({*held}) == round(share * len(set().union(*splits.values())))


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
MISTAKES = ("configs:body", "tiny:nope", "tiny:nope:text", "tiny:stars", "held", "none")
CALLS += [(f"hub:acme/{name}", "train") for name in ("configs:de:body", *MISTAKES)]
CALLS += [("hub:acme/held", "test")]
NEVER = ("hub:acme/never", "train")  # what nobody has cached


def ask(environment, calls=CALLS):
    answers = answer_of(start("ask_corpora.py", {**environment, "CALLS": json.dumps(calls)}))
    return dict(zip(calls, answers, strict=True))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The answers while the hub can be reached, while it cannot, and offline."""
    repositories = {
        f"acme/{name}": {file: content.encode() for file, content in files.items()}
        for name, files in REPOSITORIES.items()
    }
    with serve(repositories) as (url, _):
        home = {"HF_HOME": str(tmp_path_factory.mktemp("full")), "HF_ENDPOINT": url}
        online = ask(home)
    few = [("hub:acme/split", "test"), ("hub:acme/tiny:body", "train"), NEVER]
    return {
        "online": online,
        "offline": ask(home | {"HF_HUB_OFFLINE": "1"}, [*CALLS, NEVER]),
        "down": ask(home, few),
    }


def column(name, kind, count):
    return sorted(f"{name} {kind} {i}." for i in range(count))


@pytest.mark.slow
def test_hub_splits_are_kept_and_those_that_are_lacking_are_cut_from_train(hub):
    parts = [hub["online"]["hub:acme/tiny", split] for split in SPLITS]
    assert list(map(len, parts)) == [32, 4, 4]
    assert sorted(sum(parts, [])) == column("train", "text", 40)
    train, validation, test = (hub["online"]["hub:acme/split", split] for split in SPLITS)
    assert sorted(test) == column("test", "text", 10) and len(validation) == 4
    assert sorted(train + validation) == column("train", "text", 40)
    assert sorted(hub["online"]["hub:acme/held", "test"]) == column("test", "text", 10)


@pytest.mark.slow
def test_hub_columns_and_configurations_are_chosen_by_name(hub):
    online = hub["online"]
    wanted = {"tiny:body": column("train", "body", 40), "configs:de": column("de", "text", 20)}
    for source, texts in wanted.items():
        assert sorted(sum((online[f"hub:acme/{source}", part] for part in SPLITS), [])) == texts
    assert set(online["hub:acme/configs:de:body", "train"]) < set(column("de", "body", 20))


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, error, words",
    [
        ("tiny:nope", "ValueError", ["'nope'", "'text', 'body', 'stars'", "tiny:COLUMN"]),
        ("tiny:nope:text", "ValueError", ["'nope' not found", "default"]),
        ("tiny:stars", "ValueError", ["acme/tiny", "'stars'", "holds no text"]),
        ("configs:body", "ValueError", ["Config name is missing", "'en', 'de'"]),
        ("held", "KeyError", ["train"]),
        ("none", "ConnectionError", ["'acme/none'", "Check the name", "'reviews', 'docs'"]),
    ],
)
def test_hub_mistakes_are_explained(hub, source, error, words):
    kind, message = hub["online"][f"hub:acme/{source}", "train"]
    assert kind == error, message
    assert [word for word in words if word not in message] == [], message


@pytest.mark.slow
def test_hub_data_that_are_cached_work_without_a_network(hub):
    for call, answer in hub["online"].items():
        if not answer[0].endswith("Error"):
            assert hub["offline"][call] == answer, call
    for call in hub["down"].keys() - {NEVER}:
        assert hub["down"][call] == hub["online"][call]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["down", "offline"])
def test_hub_without_a_network_says_what_still_works(hub, state):
    kind, message = hub[state][NEVER]
    assert kind == "ConnectionError"
    for word in ("'acme/never'", "network", "'reviews', 'docs' and your own files work"):
        assert word in message
