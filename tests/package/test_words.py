"""Text to words: the reference's words for every code point, in linear time."""

import random
import time

import pytest
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from mlm_lib.words import count_words, split_words

CASES = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])


def reference_words(text, lowercase=True):
    normalized = BertNormalizer(lowercase=lowercase).normalize_str(text)
    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(normalized)]


@pytest.mark.slow
@CASES
def test_words_equal_the_reference_for_every_code_point(lowercase):
    """Alone, inside a word, and among marks that canonical ordering may swap with it."""

    def differs(text):
        return split_words(text, lowercase=lowercase) != reference_words(text, lowercase)

    def around(char):
        return f"a{char}b é{char}\u0345\u0334 {char}"

    chars = [chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
    for start in range(0, len(chars), 64):
        some = chars[start : start + 64]
        if differs(" ".join(map(around, some))):
            wrong = [f"U+{ord(char):04X}" for char in some if differs(around(char))]
            pytest.fail(f"{wrong} differ from the reference; run tools/bert_characters.py again")


# Marks that the reference strips, some that it keeps (U+302E, U+1D165), one that parts runs.
MARKS = "\u0301\u0323\u0345\u0344\u0f73\u302e\u302f\U0001d165\U0001d16d\u034f\u1b44"


@pytest.mark.parametrize("seed", range(8))
def test_long_runs_of_marks_are_ordered_as_the_reference_orders_them(seed):
    rng = random.Random(seed)
    run = "".join(rng.choices(rng.sample(MARKS, rng.randint(2, 5)), k=rng.randint(290, 700)))
    for text in (run, f"e{run}", f"Ång é{run}x b", f"\u3042{run}\u304c{run}"):
        assert split_words(text) == reference_words(text)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0f73", "\u302e\U0001d165"], ids=ascii)
def test_a_long_run_of_marks_takes_linear_time(marks):
    def seconds(count):
        start = time.process_time()
        split_words("e" + marks * count)
        return time.process_time() - start

    seconds(10)  # reads the tables
    assert seconds(40_000) < 40 * max(min(seconds(4_000) for _ in range(3)), 1e-3)


def test_normal_text_never_meets_the_sorting_of_long_runs(monkeypatch):
    monkeypatch.setattr(
        "mlm_lib.words._with_sorted_marks", lambda run: pytest.fail(f"sorted {run}")
    )
    text = "Ein naïver Übersetzer liest Καλημέρα, Москва и 北京。 " * 50
    assert split_words(text) == reference_words(text)


def test_words_are_counted_with_their_marks():
    assert count_words(["No, no.", "no?"]) == {"no": 3, ",": 1, ".": 1, "?": 1}
    assert count_words(iter(["No no"]), lowercase=False) == {"No": 1, "no": 1}


def test_one_text_is_not_counted_letter_by_letter():
    with pytest.raises(ValueError, match="texts='one text'; a list of texts"):
        count_words("one text")
