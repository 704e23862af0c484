"""Text to words, as BERT does it: the two steps before WordPiece. Built in lesson 01.

Normalise: drop control characters, set Chinese characters apart, lower-case, strip accents. Split:
at white space, and around each punctuation mark. Source: Devlin et al. 2019, and the `tokenizers`
library, whose words these are for every code point of Unicode.
"""

import json
import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import groupby

from mlm_lib import DATA
from mlm_lib.checks import iterable

BLANK = re.compile("[ \t\n\r]+")  # parts words, whatever stands around it
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")
_ASCII_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHINESE = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_CROWD = re.compile("[^\0-\u02ff]{300,}")  # the only place for 300 marks: below U+0300 is none


def split_words(text, *, lowercase=True):
    """Normalise a text and split it into words and single punctuation marks.

    >>> split_words("Don't stop: it's 9.5, naïve!")
    ['don', "'", 't', 'stop', ':', 'it', "'", 's', '9', '.', '5', ',', 'naive', '!']

    Args:
        text: a str.
        lowercase: whether letters lose their case and their accents.

    Raises:
        ValueError: a lone surrogate, which is not Unicode text.
    """
    if text.isascii():  # the same steps, which here need no tables
        text = _ASCII_CONTROL.sub("", text)
        return _ASCII_WORDS.findall(text.lower() if lowercase else text)
    chars = _characters()
    if lone := _SURROGATE.search(text):
        raise ValueError(f"the text holds a lone surrogate, {lone.group()!r}; decode it again")
    # 1. Control characters go, and each Chinese character is a word.
    text = chars["control"].sub("", text)
    text = chars["chinese"].sub(r" \g<0> ", text)
    if lowercase:
        # 2. é -> e and a mark -> e. Every second part is one that the reference does not decompose.
        parts = chars["undecomposed"].split(text)
        parts[::2] = map(_decomposed, parts[::2])
        text = chars["mark"].sub("", "".join(parts))
        # 3. Letter by letter: str.lower() would give a last Σ its final form ς, the reference σ.
        text = "".join(chars["lower"].get(char) or char.lower() for char in text)
    # 4. Split. Only punctuation is captured: where a space has parted two words, None stands.
    return [word for word in chars["split"].split(text) if word]


def count_words(texts, *, lowercase=True):
    """How often each word occurs, as a Counter.

    >>> count_words(["No, no.", "no?"])
    Counter({'no': 3, ',': 1, '.': 1, '?': 1})
    """
    chunks = Counter()
    for text in iterable("texts", texts, "texts"):  # one text alone would be taken by letters
        chunks.update(BLANK.split(text))
    words = Counter()
    for chunk, count in chunks.items():  # each distinct one is normalised once
        for word in split_words(chunk, lowercase=lowercase):
            words[word] += count
    return words


def _decomposed(text):
    """The text in NFD: letters apart from their marks, and neighbouring marks in canonical order.

    `unicodedata` orders a run of n marks by insertion, in n² steps; sorted first, in n log n.
    """
    return unicodedata.normalize("NFD", _CROWD.sub(_ordered, text))


def _ordered(crowd):
    letters = "".join(unicodedata.normalize("NFD", letter) for letter in crowd.group())
    runs = groupby(letters, key=lambda char: unicodedata.combining(char) > 0)
    return "".join("".join(sorted(run, key=unicodedata.combining)) for _, run in runs)


@cache
def _characters():
    """The reference's character classes as compiled patterns.

    Which characters are marks, punctuation or controls was frozen in the reference when it was
    built; Python's own tables move with each release. So `data/bert_characters.json` says it.
    """
    table = json.loads((DATA / "bert_characters.json").read_text(encoding="utf-8"))

    def inside(name):
        return "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in table[name])

    return {
        "control": re.compile(f"[\0{inside('control')}]+"),
        "chinese": re.compile(f"[{_CHINESE}]"),
        "undecomposed": re.compile(f"([{inside('undecomposed')}]+)"),
        "mark": re.compile(f"[{inside('mark')}]+"),
        "split": re.compile(f"([{inside('punctuation')}])|[{_SPACES}]+"),
        "lower": table["lower"],
    }
