"""WordPiece: equal to `BertTokenizerFast` id for id, to the `tokenizers` trainer by merges."""

import copy
import csv
import json
import pickle
import random
import string
import time
import warnings
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from transformers import BertTokenizerFast

from mlm_lib import DATA, wordpiece
from mlm_lib.corpus import load_corpus
from mlm_lib.wordpiece import PREFIX, SPECIAL_TOKENS, WordPieceTokenizer

CASES = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])


# ------------------------------------------------------------------------------------ material


def span(first, last):
    return [chr(point) for point in range(first, last + 1)]


# Each class of characters has tripped a tokenizer. Every text below mixes several of them.
CLASSES = {
    "ascii": span(0x21, 0x7E),
    "letters": list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "controls": span(0x00, 0x1F) + span(0x7F, 0x9F) + list("\xad\ufeff\u200e\u202e\u2066"),
    "spaces": list("  \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u205f\u3000"),
    "precomposed": span(0xC0, 0x17F) + span(0x1E00, 0x1EFF),
    "combining": span(0x300, 0x36F) + list("\u0591\u05b0\u0e38\u0f71\u3099\u20d0"),
    "newer than Unicode 9": list(
        "\u1c89\ua7cb\ua7dc\U00010d50\u08d3\u0c04\u0c3c\u1ac1\u1df6\u1dfb\ua8ff\U00010f46"
        "\U00010eab\U0001e130\U00011a34"
    ),
    "hangul": [
        *span(0xAC00, 0xAC40), *span(0x1100, 0x1112), *span(0x1161, 0x1175), *span(0x11A8, 0x11C2),
    ],
    "chinese": list(
        "中文北京字\u3400\u4dbf\uf900\ufaff\U00020000\U0002a6df\U0002a700\U0002b820\U0002ceb0"
        "\U0002f800\U00030000"
    ),
    "kana": list("ひらがなカタカナがパ々〆ー"),
    "arabic": list("\u0645\u0631\u062d\u0628\u0627\u064e\u0651\u0623\u0622\u06f1\u0640\u061f"),
    "devanagari": list("\u0928\u092e\u0938\u094d\u0924\u0947\u093c\u0929\u0964\u0967"),
    "emoji": [
        "\U0001f469\u200d\U0001f4bb", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
        "\U0001f1e8\U0001f1ed", "\U0001fae8",
    ],
    "zero width": list("\u200b\u200c\u200d\u2060\ufe0e"),
    "case": list("ΣσςΑΣİIıßẞǅŉꭰᏸÅKΩ\u1c80ﬁ"),
    "odd": list("\ufffd\ue000\uf8ff\U000f0000\u0378\ufdd0\uffff\U0010ffff\U000e0001"),
    "symbols": list("—–…“”’«»¿¡§¶©®™°№½²€£¥₿×÷≠∞√←⇒"),
    "special tokens": [
        *SPECIAL_TOKENS, "[[MASK]]", "[MASK", "MASK]", "[mask]", "[UNK][SEP]", "[CLS ]", "##",
        "[ MASK ]",
    ],
    "words": [
        "the", "The", "unaffable", "don't", "e.g.", "naïve", "1,234.5", "x" * 99, "y" * 100,
        "z" * 101, "é" * 100, "É" * 101,
    ],
}  # fmt: skip
PIECES = list(CLASSES.values())


@cache
def nasty_texts(count, seed):
    """Texts of 0 to 24 pieces. Their classes are chosen first: small ones come as often."""
    rng = random.Random(seed)
    texts = [""]
    while len(texts) < count:
        some = rng.sample(PIECES, rng.randint(1, 4))
        texts.append("".join(rng.choice(rng.choice(some)) for _ in range(rng.randint(0, 24))))
    return texts


def review_texts():
    with open(DATA / "reviews.csv", encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def vocabulary(*tokens):
    return {token: index for index, token in enumerate(tokens)}


# The special tokens stand in no particular place: nothing may rely on [PAD] being 0.
TINY = vocabulary("a", "##b", "[SEP]", "[MASK]", "b", "##a", "[UNK]", "the", "[PAD]", "[CLS]")
MARKS = vocabulary(
    *SPECIAL_TOKENS, "#", "##", "###", "####", "##a", "#a", "a", "...", ".", "?!", "--", "-",
    "##.", "'", "n't", "'s", "'re", "[", "]", "##]", "mask", "[mask]", "mas", "##k", "é", "e",
    "##e", "##é", ",x", "!", "中", "##文", "文", "\u0301", "1", "##23",
)  # fmt: skip


def trained_vocabulary():
    """One for both cases, with pieces in many scripts."""
    texts = review_texts() + nasty_texts(1500, seed=1)
    cased = WordPieceTokenizer.train(
        texts, 5000, lowercase=False, limit_alphabet=800, min_frequency=1
    )
    uncased = WordPieceTokenizer.train(texts, 5000, limit_alphabet=800, min_frequency=1)
    return vocabulary(*dict.fromkeys([*cased.vocab, *uncased.vocab]))


trained = pytest.fixture(scope="module", name="trained")(trained_vocabulary)


@pytest.fixture(params=["trained", "tiny", "marks"])
def vocab(request):
    return {"tiny": TINY, "marks": MARKS}.get(request.param) or request.getfixturevalue("trained")


def reference_for(tokenizer):
    return BertTokenizerFast(vocab=dict(tokenizer.vocab), do_lower_case=tokenizer.lowercase)


def assert_same_ids(tokenizer, texts):
    reference = reference_for(tokenizer)
    expected = reference(texts, return_attention_mask=False, return_token_type_ids=False)[
        "input_ids"
    ]
    for text, ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text) == ids, (
            f"{text!a} becomes {reference.convert_ids_to_tokens(ids)}"
        )


# ------------------------------------------------------------------------------------ equal


@pytest.mark.slow
@CASES
def test_ids_equal_the_reference_on_nasty_texts(vocab, lowercase):
    assert_same_ids(WordPieceTokenizer(vocab, lowercase=lowercase), nasty_texts(4000, seed=0))


@CASES
def test_to_hf_gives_the_tokenizer_that_transformers_builds(vocab, lowercase):
    tokenizer = WordPieceTokenizer(vocab, lowercase=lowercase)
    converted, reference = tokenizer.to_hf(), reference_for(tokenizer)
    assert converted.backend_tokenizer.to_str() == reference.backend_tokenizer.to_str()
    assert converted.special_tokens_map == reference.special_tokens_map
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(converted, f"{name}_token_id") == getattr(tokenizer, f"{name}_token_id")


@CASES
def test_ids_equal_the_reference_on_the_shipped_texts(trained, lowercase):
    passages = (DATA / "passages.txt").read_text(encoding="utf-8").split("\n\n")
    assert_same_ids(WordPieceTokenizer(trained, lowercase=lowercase), review_texts() + passages)


def test_decoding_equals_the_reference(vocab):
    tokenizer = WordPieceTokenizer(vocab)
    rng = random.Random(0)
    sequences = [
        [rng.randrange(len(vocab)) for _ in range(rng.randint(0, 12))] for _ in range(3000)
    ]
    sequences += [tokenizer.encode(text) for text in nasty_texts(1000, seed=2)]
    reference = reference_for(tokenizer)
    for ids in sequences:
        assert tokenizer.decode(ids) == reference.decode(ids), reference.convert_ids_to_tokens(ids)


def test_decoding_joins_pieces_takes_tensors_and_refuses_foreign_ids():
    tokenizer = WordPieceTokenizer(vocabulary(*SPECIAL_TOKENS, "play", "##ing", "well", ".", "##s"))
    assert tokenizer.decode([2, 5, 6, 7, 8, 3]) == "[CLS] playing well. [SEP]"
    assert tokenizer.decode([]) == ""
    for ids in (torch.tensor([5, 6]), np.array([5, 6]), iter([5, np.int64(6)])):
        assert tokenizer.decode(ids) == "playing"
    with pytest.raises(KeyError, match="10"):
        tokenizer.decode([5, 10])


def test_longest_piece_wins_and_one_unknown_part_spoils_the_word():
    tokenizer = WordPieceTokenizer(
        vocabulary(*SPECIAL_TOKENS, "un", "una", "##aff", "##ff", "##able", "##ab")
    )
    assert tokenizer.tokenize("Unaffable") == ["una", "##ff", "##able"]
    assert tokenizer.tokenize("unaffables") == ["[UNK]"]
    assert tokenizer.tokenize("un[MASK]able") == ["un", "[MASK]", "[UNK]"]


def test_encoding_does_not_depend_on_what_was_encoded_before(monkeypatch):
    texts = nasty_texts(300, seed=3)
    fresh = [WordPieceTokenizer(MARKS).encode(text) for text in texts]
    monkeypatch.setattr(wordpiece, "_CACHE_SIZE", 3)
    reused = WordPieceTokenizer(MARKS)
    assert [reused.encode(text) for text in texts] == fresh
    assert [reused.encode(text) for text in reversed(texts)] == fresh[::-1]
    assert len(reused._pieces) <= 3


@CASES
@pytest.mark.parametrize(
    "text", ["\ud800", "fine until here \udfff", "[MASK]\ud83d", "[MASK] [SEP]\ude00[MASK]"]
)
def test_a_lone_surrogate_is_refused_by_name(lowercase, text):
    lone = next(char for char in text if "\ud800" <= char <= "\udfff")
    with pytest.raises(ValueError, match="lone surrogate") as caught:
        WordPieceTokenizer(TINY, lowercase=lowercase).encode(text)
    assert repr(lone) in str(caught.value)
    str(caught.value).encode()  # the message itself can be printed


# ------------------------------------------------------------------------------------ training

TEN_WORDS = ["one tone stone one", "stone tone one", "bone one lone"]


def test_training_follows_the_example_worked_by_hand():
    """one 4, tone 2, stone 2, bone 1, lone 1.

    ##n ##e: all 10 words. Then ##o ##ne: all but the four `one`, 6. Then o ##ne: 4. Three pairs are
    left with 2, ##t ##one (in stone), s ##t, t ##one; the first in the alphabet is ##t ##one. That
    leaves s ##tone and t ##one. bone and lone come once, below min_frequency.
    """
    tokenizer = WordPieceTokenizer.train(TEN_WORDS, 100)
    alphabet = ["b", "e", "l", "n", "o", "s", "t", "##e", "##n", "##o", "##t"]
    merges = ["##ne", "##one", "one", "##tone", "stone", "tone"]
    assert list(tokenizer.vocab) == [*SPECIAL_TOKENS, *alphabet, *merges]
    assert tokenizer.tokenize("Stone tones") == ["stone", "[UNK]"]
    assert tokenizer.tokenize("lone tent") == ["l", "##one", "t", "##e", "##n", "##t"]


def test_min_frequency_and_vocab_size_each_end_training():
    size = len(SPECIAL_TOKENS) + 11  # the special tokens and the alphabet

    def merges(vocab_size, **options):
        return list(WordPieceTokenizer.train(TEN_WORDS, vocab_size, **options).vocab)[size:]

    assert merges(100, min_frequency=5) == ["##ne", "##one"]
    assert merges(100, min_frequency=1)[-2:] == ["bone", "lone"]
    assert merges(size + 1) == ["##ne"] and merges(size) == []
    with pytest.raises(ValueError, match=f"vocab_size={size - 1};.* {size}"):
        merges(size - 1)


def test_limit_alphabet_keeps_the_commonest_characters():
    texts = ["ccc xxx cx ca az"]
    tokenizer = WordPieceTokenizer.train(texts, 100, limit_alphabet=2, min_frequency=99)
    assert list(tokenizer.vocab) == [*SPECIAL_TOKENS, "c", "x", "##c", "##x"]
    assert tokenizer.tokenize("cx ca") == ["c", "##x", "[UNK]"]


def test_an_initial_alphabet_is_kept_though_no_text_holds_it():
    signs = string.ascii_letters + string.digits + string.punctuation + "“”‘’–—…€½"
    tokenizer = WordPieceTokenizer.train(TEN_WORDS, 250, initial_alphabet=signs)
    unseen = "<br /> 5€ 3½ “zebra” — it’s 100% [new], isn't it… #1 @you $2 a_b\\c^d `e` {f|g} ~h"
    assert "[UNK]" not in tokenizer.tokenize(unseen)
    assert "[UNK]" in WordPieceTokenizer.train(TEN_WORDS, 250).tokenize(unseen)
    # A sign that always stands apart continues no word, and a capital letter is lower-cased first.
    assert not {"##%", "##“", "A", "##A"} & set(tokenizer.vocab)
    assert {"##z", "##5", "##€", "##½"} <= set(tokenizer.vocab)
    cased = WordPieceTokenizer.train(TEN_WORDS, 250, lowercase=False, initial_alphabet=["A", "é"])
    assert {"A", "##A", "é", "##é"} <= set(cased.vocab)
    # The merges are those of the texts alone.
    plain = WordPieceTokenizer.train(TEN_WORDS, 10**6)
    assert set(plain.vocab) < set(
        WordPieceTokenizer.train(TEN_WORDS, 10**6, initial_alphabet="%").vocab
    )


def test_an_initial_alphabet_comes_first_within_the_limit():
    texts = ["ccc xxx cx ca az"]
    tokenizer = WordPieceTokenizer.train(
        texts, 100, limit_alphabet=2, min_frequency=99, initial_alphabet="z"
    )
    assert list(tokenizer.vocab) == [*SPECIAL_TOKENS, "c", "z", "##c", "##z"]


@pytest.mark.parametrize(
    "texts, options, told",
    [
        ([" \n", "\x00"], {}, "no word"),
        ("one text", {}, "a list of"),
        (TEN_WORDS, {"limit_alphabet": -1}, "limit_alphabet=-1; a whole number"),
    ],
)
def test_training_refuses_what_would_go_wrong_in_silence(texts, options, told):
    with pytest.raises(ValueError, match=told):
        WordPieceTokenizer.train(texts, 100, **options)


def test_training_ignores_the_order_of_the_texts_and_reads_any_iterable():
    texts = review_texts()
    shuffled = random.Random(0).sample(texts, len(texts))
    first = WordPieceTokenizer.train(texts, 1500)
    assert list(WordPieceTokenizer.train(iter(shuffled), 1500).vocab) == list(first.vocab)
    assert list(first.vocab.values()) == list(range(1500))


def reference_training(texts, vocab_size, *, lowercase=True, limit_alphabet=1000):
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    options = {"min_frequency": 2, "limit_alphabet": limit_alphabet, "show_progress": False}
    options |= {"vocab_size": vocab_size, "special_tokens": list(SPECIAL_TOKENS)}
    tokenizer.train_from_iterator(texts, WordPieceTrainer(**options))
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.get)


@pytest.fixture
def ends_at_a_tie(monkeypatch):
    """Training stops before the first merge that two pairs could claim."""
    merges = wordpiece.merges

    def spy(symbols, counts, min_frequency):
        for pair in merges(symbols, counts, min_frequency):
            now = Counter()
            for parts, count in zip(symbols, counts, strict=True):
                for neighbours in zip(parts, parts[1:]):
                    now[neighbours] += count
            assert now[pair] == max(now.values()), f"{pair} is not the commonest pair"
            if list(now.values()).count(now[pair]) > 1:
                return
            yield pair

    monkeypatch.setattr(wordpiece, "merges", spy)


def assert_same_training(texts, vocab_size, *, merges, **options):
    """Both trainers learn the same tokens, and at least so many merges in the same order."""
    ours = list(WordPieceTokenizer.train(texts, vocab_size, **options).vocab)
    reference = reference_training(texts, len(ours), **options)
    assert set(ours) == set(reference)
    assert ours[-merges:] == reference[-merges:]
    assert all(len(token.removeprefix(PREFIX)) > 1 for token in ours[-merges:])


@pytest.mark.parametrize("seed", range(4))
def test_training_equals_the_reference_while_every_maximum_is_unique(ends_at_a_tie, seed):
    """Short words of few letters, each many times: their pairs have large, different counts."""
    rng = random.Random(seed)
    words = {
        "".join(rng.choices("abcdef", k=rng.randint(1, 3))): rng.randint(1, 800) for _ in range(150)
    }
    texts = [f"{word} " * count for word, count in words.items()]
    assert_same_training(rng.sample(texts, len(texts)), 400, merges=18)


@pytest.mark.slow
@CASES
def test_training_equals_the_reference_on_natural_words_up_to_the_first_tie(
    ends_at_a_tie, lowercase
):
    rng = random.Random(1)
    words = wordpiece.count_words(review_texts(), lowercase=lowercase)
    texts = [f"{word} " * (words[word] * rng.randint(1, 20)) for word in sorted(words)]
    assert_same_training(texts, 400, merges=60, lowercase=lowercase)


def test_training_equals_the_reference_with_a_limited_alphabet(ends_at_a_tie):
    """x is left out; what follows it in a word is still no beginning of a word."""
    counts = {"ab": 900, "bc": 410, "cb": 390, "xbc": 203, "ca": 150, "axc": 101, "x": 5}
    texts = [f"{word} " * count for word, count in counts.items()]
    assert_same_training(texts, 100, merges=5, limit_alphabet=3)


@pytest.mark.slow
def test_training_8192_tokens_on_5_megabytes_takes_less_than_a_minute():
    texts = load_corpus("docs")
    texts *= 5_000_000 // sum(map(len, texts)) + 1
    start = time.process_time()
    assert len(WordPieceTokenizer.train(texts, 8192)) == 8192
    assert time.process_time() - start < 60


# ------------------------------------------------------------------------------------ files


@CASES
def test_a_saved_vocabulary_comes_back_whole(tmp_path, trained, lowercase):
    tokenizer = WordPieceTokenizer(trained, lowercase=lowercase)
    tokenizer.save(tmp_path)
    for path in (tmp_path, str(tmp_path / "vocab.txt")):
        back = WordPieceTokenizer.from_vocab(path, lowercase=lowercase)
        assert back.vocab == trained and list(back.vocab) == list(trained)
        assert back.encode("Ça [MASK] naïve") == tokenizer.encode("Ça [MASK] naïve")
    assert (tmp_path / "vocab.txt").read_bytes().count(b"\n") == len(trained)
    assert BertTokenizerFast.from_pretrained(tmp_path).get_vocab() == trained


CASED = vocabulary(*SPECIAL_TOKENS, "a", "##nna", "Anna", "likes", "ü", "über", "uber", "中")
SAMPLE = "Anna likes [MASK] über anna 中Anna"


def write_reference(folder, vocab=CASED, *, old=True, without=(), **settings):
    """What transformers writes; with a vocab.txt, as its older versions did."""
    BertTokenizerFast(vocab=dict(vocab), **settings).save_pretrained(folder)
    if old:
        (folder / "vocab.txt").write_text("\n".join(vocab), encoding="utf-8")
    for file in without:
        (folder / file).unlink()


@pytest.mark.parametrize("old", [True, False], ids=["with vocab.txt", "without"])
@pytest.mark.parametrize(
    "settings, without, lowercase",
    [
        ({"do_lower_case": False}, [], False),
        ({"do_lower_case": False, "strip_accents": False}, [], False),
        ({"do_lower_case": False}, ["tokenizer_config.json"], False),
        ({"do_lower_case": True}, [], True),
        ({"strip_accents": True}, ["tokenizer_config.json"], True),
    ],
)
@pytest.mark.filterwarnings("ignore:.*lower-cased")
def test_a_folder_of_transformers_says_how_its_texts_are_read(
    tmp_path, old, settings, without, lowercase
):
    write_reference(tmp_path, old=old, without=without, **settings)
    ours = WordPieceTokenizer.from_vocab(tmp_path)
    assert (ours.vocab, ours.lowercase) == (CASED, lowercase)
    reference = BertTokenizerFast(vocab=dict(CASED), **settings)
    assert ours.encode(SAMPLE) == reference.encode(SAMPLE)
    assert WordPieceTokenizer.from_vocab(tmp_path / "vocab.txt").encode(SAMPLE) == ours.encode(
        SAMPLE
    )
    if "strip_accents" not in settings:  # who says it himself is believed
        again = WordPieceTokenizer.from_vocab(tmp_path, lowercase=not lowercase)
        assert again.lowercase != lowercase


@pytest.mark.filterwarnings("ignore:.*lower-cased")
def test_a_setting_beside_the_vocabulary_is_heeded_without_a_tokenizer_json(tmp_path):
    write_reference(tmp_path, without=["tokenizer.json"], do_lower_case=False)
    assert WordPieceTokenizer.from_vocab(tmp_path).tokenize("Anna über") == ["Anna", "über"]
    # The settings are those of vocab.txt, and of no other file.
    (tmp_path / "vocab.txt").rename(tmp_path / "words.txt")
    assert WordPieceTokenizer.from_vocab(tmp_path / "words.txt").lowercase


OTHER_MASK = CASED | {"<mask>": len(CASED)}
OTHERS = {
    "accents kept": ({"strip_accents": False}, "strip_accents=False"),
    "accents lost": ({"do_lower_case": False, "strip_accents": True}, "strip_accents=True"),
    "Chinese words": ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars=False"),
    "another mask": ({"vocab": OTHER_MASK, "mask_token": "<mask>"}, "mask_token='<mask>'"),
    "another unknown": ({"vocab": OTHER_MASK, "unk_token": "<mask>"}, "unk_token='<mask>'"),
}


@pytest.mark.parametrize("without", ["", "tokenizer.json"])
@pytest.mark.parametrize("settings, words", OTHERS.values(), ids=OTHERS)
def test_a_folder_whose_tokenizer_does_something_else_is_refused(
    tmp_path, settings, words, without
):
    write_reference(tmp_path, without=[without] if without else [], **settings)
    with pytest.raises(ValueError, match=f"{words}.*load_checkpoint"):
        WordPieceTokenizer.from_vocab(tmp_path)


def rewritten(file, change):
    """A change of one of the JSON files of a folder."""

    def act(folder):
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        change(content)
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return act


DESCRIBED = "tokenizer.json"
CHANGES = {
    "an added word": (
        rewritten(DESCRIBED, lambda said: said["added_tokens"].append({"content": "Covid"})),
        "added_tokens=.'Covid'.*load_checkpoint",
    ),
    "an added word, as older files tell it": (
        rewritten(
            "tokenizer_config.json",
            lambda said: said.update(added_tokens_decoder={"12": {"content": "Covid"}}),
        ),
        "added_tokens=.'Covid'",
    ),
    "no normalization": (
        rewritten(DESCRIBED, lambda said: said.update(normalizer=None)),
        "normalizer='none'",
    ),
    "another normalization": (
        rewritten(DESCRIBED, lambda said: said.update(normalizer={"type": "NFC"})),
        "normalizer='NFC'",
    ),
    "byte pairs": (
        rewritten(DESCRIBED, lambda said: said["model"].update(type="BPE")),
        "model='BPE'",
    ),
    "another vocabulary": (
        rewritten(DESCRIBED, lambda said: said["model"]["vocab"].update(more=99)),
        "vocab.txt and tokenizer.json .* different vocabularies",
    ),
    "a list": (
        lambda folder: (folder / DESCRIBED).write_text("[1]"),
        "tokenizer.json is damaged; save",
    ),
    "half a file": (
        lambda folder: (folder / "tokenizer_config.json").write_text('{"do_lower'),
        "tokenizer_config.json is damaged; save",
    ),
}


@pytest.mark.parametrize("change, words", CHANGES.values(), ids=CHANGES)
def test_files_beside_a_vocabulary_that_contradict_it_are_refused(tmp_path, change, words):
    write_reference(tmp_path, do_lower_case=False)
    change(tmp_path)
    with pytest.raises(ValueError, match=words) as caught:
        WordPieceTokenizer.from_vocab(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("word", ["Anna", "über", "ÜBER", "한국"])
def test_a_vocabulary_that_lower_case_text_never_reaches_is_told_unless_it_was_asked_for(
    tmp_path, word
):
    WordPieceTokenizer(vocabulary(*SPECIAL_TOKENS, "a", "中国", "[X]", word)).save(tmp_path)
    with pytest.warns(UserWarning, match=f"words such as '{word}'.*lowercase=False") as caught:
        assert WordPieceTokenizer.from_vocab(tmp_path).lowercase
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lowercase in (True, False):
            WordPieceTokenizer.from_vocab(tmp_path, lowercase=lowercase)
        WordPieceTokenizer(vocabulary(*SPECIAL_TOKENS, "a", "中国", "[X]")).save(tmp_path)
        WordPieceTokenizer.from_vocab(tmp_path)


def test_tokens_that_are_line_separators_elsewhere_survive_a_file(tmp_path):
    odd = ["\u2028", "##\u2028", "\x85", "a\u2029b", "\x0b", "\x1c", "\ufffd", "##\xa0"]
    vocab = vocabulary(*SPECIAL_TOKENS, *odd)
    WordPieceTokenizer(vocab).save(tmp_path)
    assert WordPieceTokenizer.from_vocab(tmp_path).vocab == vocab


@pytest.mark.parametrize("start, end", [("", "\r\n"), ("\ufeff", "\n"), ("\ufeff", "\r\n")])
@pytest.mark.parametrize("last", [True, False], ids=["a newline at its end", "none"])
def test_a_vocabulary_saved_on_windows_is_read_the_same(tmp_path, start, end, last):
    text = start + end.join(TINY) + end * last
    (tmp_path / "vocab.txt").write_text(text, encoding="utf-8", newline="")
    assert WordPieceTokenizer.from_vocab(tmp_path).vocab == TINY


@pytest.mark.parametrize(
    "lines, told",
    [
        ([*SPECIAL_TOKENS, "a", "b", "a"], "vocab.txt holds the token 'a' 2 times"),
        (["[PAD]", "[UNK]", "[CLS]", "a"], r"lacks \[SEP\], \[MASK\]"),
        ([""], r"lacks \[PAD\], \[UNK\]"),
    ],
)
def test_files_that_are_no_vocabulary_are_refused(tmp_path, lines, told):
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        WordPieceTokenizer.from_vocab(tmp_path)


def test_a_vocabulary_that_a_file_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="share an id"):
        WordPieceTokenizer(TINY | {"extra": 0})
    for extra, told in [({"b": 99}, "gaps"), ({"\n": 10}, "line end"), ({"a\r": 10}, "line end")]:
        with pytest.raises(ValueError, match=told):
            WordPieceTokenizer(TINY | extra).save(tmp_path)
    with pytest.raises(ValueError, match="path=''; a name that is not empty"):
        WordPieceTokenizer(TINY).save("")
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    WordPieceTokenizer(TINY).save(tmp_path)
    with pytest.raises(ValueError):  # a surrogate cannot be written
        WordPieceTokenizer(MARKS | {"\ud800": len(MARKS)}).save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["vocab.txt"]
    assert WordPieceTokenizer.from_vocab(tmp_path).vocab == TINY


def test_copies_and_pickles_work_like_the_original():
    """A worker process of a DataLoader gets its tokenizer through pickle."""
    tokenizer = WordPieceTokenizer(MARKS, lowercase=False)
    texts = nasty_texts(50, seed=4)
    expected = [tokenizer.encode(text) for text in texts]
    for twin in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert [twin.encode(text) for text in texts] == expected
        assert (twin.vocab, twin.lowercase, twin.mask_token_id) == (MARKS, False, MARKS["[MASK]"])
