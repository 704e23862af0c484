"""Writes data/bert_characters.json, which says what BERT's reference tokenizer does to each single
character.

`python tools/bert_characters.py` asks the installed library `tokenizers` about every code point.
It also needs `unicodedata2`, a newer copy of Python's `unicodedata`, to know which characters the
reference does not decompose because it is too old. A test compares all 1.1 million code points
with the file, and its message says when this has to be run again.
"""

import json
from pathlib import Path

from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

CODE_POINTS = [point for point in range(1, 0x110000) if not 0xD800 <= point <= 0xDFFF]


def normalizer(**on):
    """The normalizer of the reference with only the named steps switched on."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return BertNormalizer(**{**off, **on}).normalize_str


def runs(points):
    """The runs of successive numbers: [3, 4, 5, 9] becomes [[3, 5], [9, 9]]."""
    out = []
    for point in points:
        if out and point == out[-1][1] + 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return out


def classes():
    """The content of the file: for each kind of character its runs of code points."""
    import unicodedata2

    clean, strip = normalizer(clean_text=True), normalizer(strip_accents=True)
    lower = normalizer(lowercase=True)
    decompose, split = NFD().normalize_str, BertPreTokenizer().pre_tokenize_str

    def moves(char):
        # Canonical ordering sorts combining marks by their class. U+0334 has class 1, so a mark of
        # a higher class changes places with it. U+0345 has a high class, for marks of class 1.
        text = "a" + char + "\u0334" if unicodedata2.combining(char) > 1 else "a\u0345" + char
        return decompose(text) != text

    def unknown(char):
        decomposition = unicodedata2.decomposition(char)
        if decomposition and not decomposition.startswith("<"):
            return decompose(char) == char
        return unicodedata2.combining(char) > 0 and not moves(char)

    chars = [chr(point) for point in CODE_POINTS]
    return {
        "control": runs(ord(c) for c in chars if clean(c) == ""),
        "mark": runs(ord(c) for c in chars if strip(c) == ""),
        "punctuation": runs(ord(c) for c in chars if len(split(f"a{c}b")) == 3),
        "undecomposed": runs(ord(c) for c in chars if unknown(c)),
        "lower": {c: lower(c) for c in chars if lower(c) != c.lower()},
    }


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "data" / "bert_characters.json"
    lines = [
        f'"{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in classes().items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
    print(path.name, path.stat().st_size, "bytes")
