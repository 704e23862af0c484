"""Text in: what is accepted, what is refused, and that no split sees another."""

import json
import os
import random
from pathlib import Path

import pytest
from hub import answer_of, serve, start

from mlm_lib import DATA
from mlm_lib.corpus import SPLITS, load_corpus, pack_blocks


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
    write(tmp_path / "deep" / "notes.md", "Not this.")
    write(tmp_path / ".ipynb_checkpoints" / "a-checkpoint.txt", "An old copy.")
    (tmp_path / "folder.txt").mkdir()
    assert everything(str(tmp_path)) == ["One.", "Three.", "Two."]


def test_a_path_object_is_a_path_even_when_a_corpus_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews" / "a.txt", "Mine.\nAll mine.\nOnly mine.")
    assert everything(Path("reviews")) == ["All mine.", "Mine.", "Only mine."]
    assert len(everything("reviews")) > 100


BAD = {
    "nothing": (" ", None, ["source=' '"]),
    "an unknown name": ("wikipedia", None, ["unknown corpus", "'wikipedia'", "'docs'", "hub:NAME"]),
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
    "a short row": ("a.csv", "label,text\n1,x\n0\n", ["a.csv, line 3", "no text"]),
    "a long row": ("a.csv", "text,label\nGood, but long,1\n", ["a.csv, line 2", "more cells"]),
    "an open quote": ("a.csv", 'text,label\nx,1\n"y,0\nz,1\n', ["a.csv, after line 2"]),
    "a broken line": ("a.jsonl", '{"text": "x"}\n{"text": \n', ["a.jsonl, line 2", "not JSON"]),
    "no object": ("a.jsonl", '{"text": "x"}\n["y"]\n', ["a.jsonl, line 2", "['y']"]),
    "no string": ("a.jsonl", '{"text": "x"}\n\n{"text": 7}\n', ["a.jsonl, line 3", "'text' is 7"]),
    "half a character": ("a.jsonl", '{"text": "x \\ud83d"}\n', ["surrogates"]),
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
        with pytest.raises(ValueError, match="is no .txt, .csv, .jsonl file"):
            load_corpus(source)


def test_the_reviews_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert everything("reviews") == everything(DATA / "reviews.csv")


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
