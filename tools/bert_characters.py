"""Writes data/bert_characters.json: what the reference tokenizer does to each single character.

`python tools/bert_characters.py` asks the installed `tokenizers` about every code point. It also
needs `unicodedata2`, a newer copy of Python's `unicodedata`, to know which characters the reference
is too old to decompose. The test of all 1.1 million code points says when to run this again.
"""

import json
from pathlib import Path

from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

CODE_POINTS = [point for point in range(1, 0x110000) if not 0xD800 <= point <= 0xDFFF]


def normalizer(**on):
    """The reference's normalizer with every step off but the ones named."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return BertNormalizer(**{**off, **on}).normalize_str


def runs(points):
    """[3, 4, 5, 9] -> [[3, 5], [9, 9]]"""
    out = []
    for point in points:
        if out and point == out[-1][1] + 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return out


def classes():
    import unicodedata2

    clean, strip = normalizer(clean_text=True), normalizer(strip_accents=True)
    lower = normalizer(lowercase=True)
    decompose, split = NFD().normalize_str, BertPreTokenizer().pre_tokenize_str

    def moves(char):
        # Canonical ordering: a mark of a higher class swaps with U+0334, of class 1, and one of
        # class 1 with U+0345.
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
