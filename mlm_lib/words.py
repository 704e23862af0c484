"""From text to words, as BERT does it: the two steps that come before WordPiece.

*Normalising* removes control characters, puts spaces around Chinese characters, lower-cases, and
strips accents. *Splitting* cuts at white space and around each punctuation mark. The result equals
that of the `tokenizers` library for every code point of Unicode. Source: Devlin et al. 2019, and
`tokenizers`. Built in lesson 01.
"""

import json
import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import groupby

from mlm_lib import DATA
from mlm_lib.checks import iterable

BLANK = re.compile("[ \t\n\r]+")  # always separates words, whatever the neighbouring characters
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")
_ASCII_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHINESE = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
# A long run of characters that may contain many combining marks. There are none below U+0300.
_LONG_RUN = re.compile("[^\0-\u02ff]{300,}")


def split_words(text, *, lowercase=True):
    """Normalises a text and splits it into words and single punctuation marks.

    >>> split_words("Don't stop: it's 9.5, naïve!")
    ['don', "'", 't', 'stop', ':', 'it', "'", 's', '9', '.', '5', ',', 'naive', '!']

    Args:
        text: a str.
        lowercase: whether to lower-case the text and strip accents.

    Returns:
        A list of str.

    Raises:
        ValueError: the text has half of a surrogate pair, which is not valid Unicode text.
    """
    if text.isascii():  # the same steps, but faster, because no tables are needed
        text = _ASCII_CONTROL.sub("", text)
        return _ASCII_WORDS.findall(text.lower() if lowercase else text)
    chars = _characters()
    if lone := _SURROGATE.search(text):
        raise ValueError(f"the text holds a lone surrogate, {lone.group()!r}; decode it again")
    # 1. Control characters are removed, and each Chinese character becomes a word.
    text = chars["control"].sub("", text)
    text = chars["chinese"].sub(r" \g<0> ", text)
    if lowercase:
        # 2. é is decomposed into e and a mark, and the mark is removed. The second, fourth, … parts
        #    consist of characters that `tokenizers` does not decompose.
        parts = chars["undecomposed"].split(text)
        parts[::2] = map(_decomposed, parts[::2])
        text = chars["mark"].sub("", "".join(parts))
        # 3. Each letter is lower-cased by itself. In a whole word, str.lower() turns a Σ at the
        #    end into ς, whereas `tokenizers` turns it into σ.
        text = "".join(chars["lower"].get(char) or char.lower() for char in text)
    # 4. Split. The pattern captures punctuation only, so that a space leaves None in the list.
    return [word for word in chars["split"].split(text) if word]


def count_words(texts, *, lowercase=True):
    """Counts how often each word occurs in some texts.

    >>> count_words(["No, no.", "no?"])
    Counter({'no': 3, ',': 1, '.': 1, '?': 1})
    """
    chunks = Counter()
    for text in iterable("texts", texts, "texts"):  # a single str is refused
        chunks.update(BLANK.split(text))
    words = Counter()
    for chunk, count in chunks.items():  # each distinct chunk is normalised only once
        for word in split_words(chunk, lowercase=lowercase):
            words[word] += count
    return words


def _decomposed(text):
    """The text in Unicode's form NFD: letters before their marks, marks in canonical order.

    `unicodedata` sorts a run of n marks by insertion, in n² steps, so that a hostile text of marks
    could take hours. Long runs are therefore sorted here first, in n log n steps.
    """
    return unicodedata.normalize("NFD", _LONG_RUN.sub(_with_sorted_marks, text))


def _with_sorted_marks(match):
    """The matched characters decomposed, with each run of marks in canonical order."""
    letters = "".join(unicodedata.normalize("NFD", letter) for letter in match.group())
    runs = groupby(letters, key=lambda char: unicodedata.combining(char) > 0)
    return "".join("".join(sorted(run, key=unicodedata.combining)) for _, run in runs)


@cache
def _characters():
    """The character classes of the library `tokenizers`, as compiled patterns.

    `tokenizers` has fixed tables that say which characters are marks, punctuation or control
    characters, whereas the tables of Python change with its releases. Therefore the tables are read
    from a file, `data/bert_characters.json`.
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
