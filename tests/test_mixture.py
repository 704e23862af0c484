"""What is trained on: a mixture holds what it should in each epoch, a stream every text once."""

import json
from functools import partial

import pytest
import torch
from small_runs import GRAMMAR, lines

from mlm_lib import DATA, mixture, stream
from mlm_lib.corpus import load_corpus
from mlm_lib.grammar import Grammar
from mlm_lib.mixture import Documents, Mixture, Texts
from mlm_lib.recipes import kind_of
from mlm_lib.stream import Stream
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

needs_grammar = pytest.mark.skipif(
    not (DATA / "grammar.toml").is_file(), reason="needs data/grammar.toml"
)


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(lines()) + "\n")
    return str(tmp_path / "corpus.txt")


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """The grammar is a small one."""
    (tmp_path / "zoo.toml").write_text(GRAMMAR)
    load = Grammar.load
    small = classmethod(lambda cls, path=None, worlds=None: load(tmp_path / "zoo.toml"))
    monkeypatch.setattr(mixture.Grammar, "load", small)


def encoded(*parts, max_length=24, vocab_size=150):
    """A mixture that is ready for training, and its tokenizer."""
    data = Mixture(parts)
    tokenizer = WordPieceTokenizer.train(data.texts(), vocab_size)
    data.encode(tokenizer, max_length)
    return data, tokenizer


def epochs_of(data, *numbers):
    found = []
    for epoch in numbers:
        data.set_epoch(epoch)
        found.append([list(row) for row in data])
    return found


@pytest.mark.parametrize(
    "name, kind",
    [("grammar", Documents), ("stream:a.txt", Stream), ("reviews", Texts), ("./grammar", Texts)],
)
def test_the_name_of_a_corpus_says_its_kind(name, kind):
    assert kind_of(name) is kind


REFUSED = {
    "corpus": lambda: kind_of(""),
    "parts": lambda: Mixture([]),
    "copies": lambda: Texts("reviews", copies=0),
    "blocks_every": lambda: Texts("reviews", blocks_every=True),
    "documents": lambda: Documents(documents=2.5),
    "held_out": lambda: Documents(held_out=-1),
    "longest": lambda: Documents(longest=5),
    "worlds": lambda: Documents(worlds="zoo"),
    "seed": lambda: Documents(seed=None),
    "stream:": lambda: Stream("stream:"),
    "max_length": lambda: Mixture([Texts("reviews")]).encode(None, 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_that_will_not_do_is_named(name):
    with pytest.raises(ValueError, match=f"^{name}="):
        REFUSED[name]()


# ------------------------------------------------------------------------------------ mixtures


def test_copies_are_so_many_of_each_text_in_an_epoch(corpus):
    once, tokenizer = encoded(Texts(corpus))
    thrice, _ = encoded(Texts(corpus, copies=3))
    thrice.encode(tokenizer, 24)
    assert len(once) == 240 and len(thrice) == 720  # 80% of 300 are for training
    assert once[0][0] == tokenizer.cls_token_id and once[0][-1] == tokenizer.sep_token_id
    assert sorted(thrice) == sorted(3 * list(once))


@pytest.mark.parametrize("every", [1, 2, 3])
def test_blocks_come_round_once_in_so_many_epochs(corpus, every):
    data, tokenizer = encoded(Texts(corpus, blocks_every=every))
    epochs = epochs_of(data, *range(2 * every))
    assert all(rows[:240] == data.parts[0].encoded for rows in epochs)
    blocks = [rows[240:] for rows in epochs]
    assert blocks[:every] == blocks[every:]
    once = [tuple(block) for epoch in blocks[:every] for block in epoch]
    assert sorted(once) == sorted(map(tuple, data.parts[0].blocks)) and len(set(once)) == len(once)
    assert all(len(block) == 24 and tokenizer.pad_token_id not in block for block in once)


def test_blocks_hold_the_whole_of_long_texts(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("\n".join(" ".join(f"w{i}x{j}" for j in range(40)) for i in range(10)))
    data, tokenizer = encoded(Texts(str(path), blocks_every=1))
    inner = sum(len(block) - 2 for block in data.parts[0].blocks)
    assert inner > 0.9 * sum(len(tokenizer.encode(text)) for text in data.parts[0].train)


def test_each_epoch_of_a_grammar_has_new_documents_and_none_is_held_out(zoo, monkeypatch):
    seeds, sample = [], Grammar.sample

    def noted(self, n, *, seed=0):
        seeds.append((seed, n))
        return sample(self, n, seed=seed)

    monkeypatch.setattr(Grammar, "sample", noted)
    data, _ = encoded(Documents(documents=50, held_out=20))
    epochs = epochs_of(data, 0, 1, 2, 1)
    assert all(len(rows) == 50 for rows in epochs)
    assert epochs[1] == epochs[3] and epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert [seed for seed, number in seeds if number == 20] == [mixture.HELD_OUT_SEED]
    assert mixture.HELD_OUT_SEED not in [seed for seed, number in seeds if number == 50]
    other, _ = encoded(Documents(documents=50, held_out=20, seed=1))
    assert list(other) != epochs[0]


def test_a_grammar_may_hold_nothing_out(zoo):
    data, _ = encoded(Documents(documents=50, held_out=0))
    assert data.held_out() == [] and data.floors() == {} and len(data) == 50


def test_documents_that_are_cut_short_are_refused_and_the_length_named_is_the_least(zoo):
    part = Documents(documents=50, held_out=20)
    with pytest.raises(ValueError, match="^max_length=6 cuts .* raise it to 12"):
        encoded(part, max_length=6)
    with pytest.raises(ValueError, match="raise it to 12"):
        encoded(part, max_length=11)
    data, _ = encoded(part, max_length=12)
    assert 0 < data.floors()["grammar"] < 3
    assert len(encoded(Documents(documents=50, held_out=0), max_length=6)[0]) == 50


@needs_grammar
def test_short_documents_are_the_short_ones_of_all_and_their_floor_is_their_own():
    every = Documents(documents=400, held_out=0, worlds=["films"])
    part = Documents(documents=25, held_out=5, worlds=["films"], longest=32)
    short = [text for text in every.own if len(text.split()) <= 32]
    lengths = every.grammar.sample(20000, seed=1)
    share = sum(len(words) <= 32 for words in lengths) / 20000
    assert part.share == pytest.approx(share, abs=4 * (share / 20000) ** 0.5)
    assert part.own == short[:25] and len(short) > 25
    encoded(part, max_length=40, vocab_size=1024)
    held = [text.split() for text in part._sample(5, mixture.HELD_OUT_SEED)]
    nats = [part.grammar.log_prob_of_length(len(one)) - part.grammar.log_prob(one) for one in held]
    assert part.bound_floor() == pytest.approx(sum(nats) / sum(map(len, held)))
    assert part.settings["longest"] == 32 and "longest" not in every.settings


@needs_grammar
def test_the_course_s_grammar_has_other_documents_in_each_epoch():
    data, tokenizer = encoded(Documents(documents=20), max_length=128, vocab_size=8192)
    epochs = epochs_of(data, 0, 1, 0)
    assert epochs[0] == epochs[2] != epochs[1]
    assert not any(tokenizer.unk_token_id in row for row in epochs[1])


def test_two_parts_of_one_name_are_evaluated_under_two(zoo):
    data, _ = encoded(*(Documents(documents=30, held_out=number) for number in (20, 30)))
    assert [held.name for held in data.held_out()] == ["grammar_loss", "grammar_1_loss"]
    assert list(data.floors()) == ["grammar", "grammar_1"]


def test_a_stream_cannot_be_mixed(corpus):
    with pytest.raises(ValueError, match=f"'stream:{corpus}' cannot be mixed"):
        Mixture([Texts(corpus), Stream(f"stream:{corpus}", held_out=10)])


# ------------------------------------------------------------------------------------ streams


def written(path, rows):
    """Texts as a file or a folder of the kind that the path's ending says; returns the path."""
    objects = [json.dumps({"text": row, "label": 1}) for row in rows]
    texts = {"csv": ["text", *rows], "jsonl": objects, "blank": ["\n" + row for row in rows]}
    if path.suffix == ".folder":
        (path / "b").mkdir(parents=True)
        (path / "a.txt").write_text("\n".join(rows[:20]))
        (path / "b" / "c.txt").write_text("\n\n  \n".join(rows[20:]))
    else:
        path.write_text("\n".join(texts.get(path.suffix[1:], rows)))
    return path


def stream_of(path, held_out=10):
    return Stream(f"stream:{path}", held_out=held_out)


@pytest.mark.parametrize("form", ["txt", "jsonl", "csv", "folder"])
def test_a_stream_holds_every_text_of_every_file_once_and_holds_out_the_first(tmp_path, form):
    rows = list(lines(50))
    data = stream_of(written(tmp_path / f"texts.{form}", rows))
    tokenizer = WordPieceTokenizer.train(rows, 150)
    assert list(data.texts()) == rows[10:]
    data.encode(tokenizer, 24)
    ids = [tokenizer.encode(row)[:23] for row in rows]
    assert [row[:23] for row in data.held] == ids[:10]
    first, second, again = ([row[:23] for row in rows] for rows in epochs_of(data, 0, 1, 0))
    assert sorted(first) == sorted(second) == sorted(ids[10:])
    assert first == again != second and first != ids[10:]


def test_a_stream_reads_paragraphs_where_load_corpus_does(tmp_path):
    rows = list(lines(72))
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join("\n".join(rows[i : i + 3]) for i in range(0, 72, 3)))
    whole = {text for split in ("train", "validation", "test") for text in load_corpus(path, split)}
    assert set(stream_of(path, 0).texts()) == whole and len(whole) == 24


def test_a_stream_may_name_a_column(tmp_path):
    (tmp_path / "films.csv").write_text(
        "".join(f"{i},{row}\n" for i, row in enumerate(["body", *lines(30)]))
    )
    assert list(stream_of(f"{tmp_path / 'films.csv'}:body").texts()) == list(lines(30))[10:]
    with pytest.raises(ValueError, match="no column 'text'"):
        stream_of(tmp_path / "films.csv")


def test_a_folder_of_a_stream_may_hold_other_files_and_brackets_in_its_name(tmp_path):
    folder = tmp_path / "texts [1]"
    folder.mkdir()
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / "README.md").write_text("About these texts")
    (folder / "texts*.txt").write_text("\n".join(lines(30)))
    assert list(stream_of(folder).texts()) == list(lines(30))[10:]


def test_a_stream_is_not_read_whole(tmp_path, monkeypatch):
    read, iter_texts = [], stream.iter_texts

    def counted(source):
        for text in iter_texts(source):
            read.append(text)
            yield text

    monkeypatch.setattr(stream, "iter_texts", counted)
    monkeypatch.setattr(stream, "SAMPLE", 500)
    monkeypatch.setattr(stream, "BUFFER", 300)
    data = stream_of(written(tmp_path / "texts.jsonl", list(lines(20_000))))
    tokenizer = WordPieceTokenizer.train(data.texts(), 90)
    data.encode(tokenizer, 24)
    assert data.fingerprint() and data.held_out() and len(read) < 1100
    assert [row[0] for row, _ in zip(data, range(100))] == 100 * [tokenizer.cls_token_id]
    assert len(read) < 4000  # datasets encodes a thousand rows at a time


# ------------------------------------------------------------------------------------ fingerprints


def fingerprint(part, tokenizer, max_length=24):
    data = part if isinstance(part, Stream) else Mixture([part])
    data.encode(tokenizer, max_length)
    return data.fingerprint()


@pytest.mark.parametrize("kind", ["memory", "stream", "grammar"])
def test_a_fingerprint_is_the_same_in_every_epoch_and_survives_a_checkpoint(
    zoo, corpus, kind, tmp_path
):
    part = {
        "memory": lambda: Texts(corpus),
        "stream": lambda: stream_of(corpus),
        "grammar": partial(Documents, documents=30),
    }
    data = part[kind]()
    data = data if kind == "stream" else Mixture([data])
    data.encode(WordPieceTokenizer.train(data.texts(), 150), 24)
    before = data.fingerprint()
    data.set_epoch(3)
    torch.save(before, tmp_path / "state.pt")
    assert data.fingerprint() == before == torch.load(tmp_path / "state.pt", weights_only=True)


def test_a_fingerprint_tells_texts_settings_and_vocabularies_apart(zoo, tmp_path, corpus):
    tokenizer = WordPieceTokenizer.train([*lines(), *9 * Grammar.load().vocabulary], 200)
    swapped = dict(tokenizer.vocab)
    swapped["anna"], swapped["likes"] = swapped["likes"], swapped["anna"]
    (tmp_path / "new").mkdir()
    edited = tmp_path / "new" / "corpus.txt"  # as many texts of the same length, another word
    edited.write_text("\n".join(lines()).replace("anna", "anne"))
    moved = tmp_path / "new" / "moved" / "corpus.txt"
    moved.parent.mkdir()
    moved.write_text("\n".join(lines()))
    few = partial(Documents, documents=20)

    found = [fingerprint(part, tokenizer) for part in (
        Texts(corpus), Texts(str(edited)), Texts(corpus, copies=2), Texts(corpus, blocks_every=2),
        stream_of(corpus), stream_of(edited), stream_of(corpus, 11),
        few(held_out=5), few(held_out=6), few(documents=9), few(seed=1),
    )]  # fmt: skip
    found.append(fingerprint(Texts(corpus), WordPieceTokenizer(swapped)))
    assert len({str(one) for one in found}) == len(found)
    assert fingerprint(Texts(str(moved)), tokenizer) == found[0]
