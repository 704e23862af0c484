"""WordPiece: learn a vocabulary of word pieces, then cut any text into them. Built in lesson 01.

Text becomes tokens in three steps: normalise (drop control characters, lower-case, strip accents), split
(at white space, around punctuation and around Chinese characters), and the greedy longest match of each word
against the vocabulary. Pieces that continue a word begin with `##`.

Sources: Wu et al. 2016 (the model), Devlin et al. 2019 (BERT's normalisation), and the `tokenizers` library, whose
results this file repeats id for id.
"""

import heapq
import json
import os
import re
import unicodedata
import uuid
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from mlm_lib import DATA

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"  # marks a piece that continues a word
MAX_WORD_LENGTH = 100  # longer words become [UNK], as in BERT
_CLOSE_UP = (
    ".",
    ",",
    "?",
    "!",
    "n't",
    "'m",
    "'s",
    "'ve",
    "'re",
)  # decoded without a blank before them, as in BERT
_CACHED_WORDS = 1 << 17


class WordPieceTokenizer:
    """A vocabulary and the rule for applying it. Equal to transformers' `BertTokenizerFast`, id for id.

    Attributes:
        vocab: token -> id, in the order of the ids.
        lowercase: whether text is lower-cased and stripped of accents first.
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.
    """

    def __init__(self, vocab, *, lowercase=True):
        missing = [token for token in SPECIAL_TOKENS if token not in vocab]
        if missing:
            raise ValueError(
                f"the vocabulary of {len(vocab)} tokens lacks {', '.join(missing)}; add them to it"
            )
        self.vocab = dict(sorted(vocab.items(), key=lambda item: item[1]))
        self.lowercase = lowercase
        self.tokens = {index: token for token, index in self.vocab.items()}
        if len(self.tokens) != len(self.vocab):
            raise ValueError("two tokens of the vocabulary share an id")
        (
            self.pad_token_id,
            self.unk_token_id,
            self.cls_token_id,
            self.sep_token_id,
            self.mask_token_id,
        ) = (self.vocab[token] for token in SPECIAL_TOKENS)
        self._pieces = {}  # stretch of text without white space -> its tokens

    def __len__(self):
        return len(self.vocab)

    @property
    def all_special_ids(self):
        return [self.vocab[token] for token in SPECIAL_TOKENS]

    # ------------------------------------------------------------------------------------ training

    @classmethod
    def train(cls, texts, vocab_size, *, min_frequency=2, lowercase=True, limit_alphabet=1000):
        """Learn a vocabulary by merging, again and again, the pair of neighbouring pieces seen most often.

        The order is special tokens, the alphabet, its `##` forms, then the merges as they were made. Equal counts are
        decided by the alphabet (the smaller pair of strings wins), so the same texts always give the same vocabulary,
        in any order. The `tokenizers` trainer decides ties by internal ids instead; wherever a pair strictly leads,
        both make the same merge.

        Args:
            texts: an iterable of strings.
            vocab_size: how many tokens to stop at; fewer if the pairs run out.
            min_frequency: a pair seen less often is not merged.
            limit_alphabet: the commonest characters to keep; words with others can only be `[UNK]`.

        Raises:
            ValueError: texts without a word, or a vocab_size too small for the special tokens and the alphabet.
        """
        if isinstance(texts, str):
            raise ValueError("texts is one string; pass a list of texts")
        words = count_words(texts, lowercase=lowercase)
        if not words:
            raise ValueError("the texts hold no word to learn from")
        counts = list(words.values())
        letters = Counter()
        for word, count in words.items():
            for letter in word:
                letters[letter] += count
        alphabet = sorted(
            sorted(letters, key=lambda letter: (-letters[letter], letter))[:limit_alphabet]
        )
        kept = set(alphabet)
        # A letter that is not kept leaves a gap: the letters after it go on as `##`, for they do not start the word.
        symbols = [
            [part for letter, part in zip(word, _symbols(word)) if letter in kept] for word in words
        ]
        continued = sorted({symbol for parts in symbols for symbol in parts[1:]})
        vocab = dict.fromkeys([*SPECIAL_TOKENS, *alphabet, *continued])
        if len(vocab) > vocab_size:
            raise ValueError(
                f"vocab_size is {vocab_size}, but the special tokens and the characters of these texts "
                f"alone make {len(vocab)}; raise vocab_size or lower limit_alphabet ({limit_alphabet})"
            )
        for pair in _merges(symbols, counts, min_frequency):
            if len(vocab) >= vocab_size:
                break
            vocab.setdefault(pair[0] + pair[1].removeprefix(PREFIX))
        return cls({token: index for index, token in enumerate(vocab)}, lowercase=lowercase)

    # ------------------------------------------------------------------------------------ files

    @classmethod
    def from_vocab(cls, path, *, lowercase=True):
        """Read a `vocab.txt`, one token a line, in the order of the ids. A folder stands for the `vocab.txt` in it."""
        path = _vocab_file(path)
        # Only \n, \r\n and \r end a line here: a token may well be U+2028, which str.splitlines() would cut at.
        tokens = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        twice = [token for token, count in Counter(tokens).items() if count > 1]
        if twice:
            lines = [number for number, token in enumerate(tokens, 1) if token == twice[0]]
            raise ValueError(
                f"{path} holds the token {twice[0]!r} on lines {lines}; a token has one id"
            )
        return cls({token: index for index, token in enumerate(tokens)}, lowercase=lowercase)

    def save(self, path):
        """Write `vocab.txt`. Either the whole file is there afterwards, or what was there before."""
        path = _vocab_file(path)
        if sorted(self.tokens) != list(range(len(self.tokens))):
            raise ValueError("the ids have gaps, which a vocab.txt cannot express")
        if broken := [token for token in self.vocab if "\n" in token or "\r" in token]:
            raise ValueError(
                f"the token {broken[0]!r} holds a line end, which a vocab.txt cannot express"
            )
        half = path.with_name(
            f"{path.name}.{uuid.uuid4().hex}"
        )  # written beside its name, then moved
        try:
            lines = (self.tokens[index] + "\n" for index in range(len(self.tokens)))
            half.write_text("".join(lines), encoding="utf-8", newline="\n")
            os.replace(half, path)
        finally:
            half.unlink(missing_ok=True)

    def to_hf(self):
        """The same tokenizer as transformers' `BertTokenizerFast`: compiled, so made for large texts."""
        from transformers import BertTokenizerFast

        return BertTokenizerFast(vocab=dict(self.vocab), do_lower_case=self.lowercase)

    # ------------------------------------------------------------------------------------ applying

    def tokenize(self, text):
        """Cut a text into tokens. Special tokens written in the text, such as `[MASK]`, stay whole."""
        tokens = []
        for position, stretch in enumerate(_SPECIAL.split(text)):
            if position % 2:
                tokens.append(stretch)
                continue
            for chunk in _BLANK.split(stretch):
                if chunk:
                    tokens += self._cut(chunk)
        return tokens

    def encode(self, text, *, add_special_tokens=True):
        """Token ids of a text, between `[CLS]` and `[SEP]` unless told otherwise."""
        ids = [self.vocab[token] for token in self.tokenize(text)]
        return [self.cls_token_id, *ids, self.sep_token_id] if add_special_tokens else ids

    def decode(self, ids):
        """A readable text: pieces joined to words, and no blank before `. , ? !` and endings like `'s`. Not the text
        that was encoded: case, accents and the width of white space are gone.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        text = ""
        for position, index in enumerate(map(int, ids)):
            if index not in self.tokens:
                raise ValueError(f"id {index} is not in the vocabulary of {len(self)} tokens")
            token = self.tokens[index]
            if position and token.startswith(PREFIX):
                text += token.removeprefix(PREFIX)
            elif position and not token.startswith(_CLOSE_UP):
                text += " " + token
            else:
                text += token
        return text

    def _cut(self, chunk):
        pieces = self._pieces.get(chunk)
        if pieces is None:
            pieces = [
                p
                for word in split_words(chunk, lowercase=self.lowercase)
                for p in match_longest(word, self.vocab)
            ]
            if len(self._pieces) >= _CACHED_WORDS:
                self._pieces.clear()
            self._pieces[chunk] = pieces
        return pieces


def match_longest(word, vocab):
    """Greedy longest match from the left; `["[UNK]"]` if some part of the word has no piece at all."""
    if len(word) > MAX_WORD_LENGTH:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = PREFIX + word[start:end] if start else word[:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# ---------------------------------------------------------------------------------------- text to words

_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
_BLANK = re.compile("[ \t\n\r]+")
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9\s]")
_ASCII_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"


def split_words(text, *, lowercase=True):
    """Normalise a text and split it into words and single punctuation marks, as BERT does.

    Which characters are marks, punctuation or controls was frozen in the reference when it was built, and Python's
    own tables move with each release. So the classes are read from `data/bert_characters.json`.

    Raises:
        ValueError: a lone surrogate, which is not Unicode text.
    """
    if text.isascii():
        text = _ASCII_CONTROL.sub("", text)
        return _ASCII_WORDS.findall(text.lower() if lowercase else text)
    chars = _characters()
    if (lone := chars["surrogate"].search(text)) is not None:
        near = text[max(0, lone.start() - 20) : lone.start() + 20]
        raise ValueError(
            f"the text holds a lone surrogate, {lone.group()!r}, in {near!r}; decode it again"
        )
    text = chars["control"].sub("", text)
    text = chars["chinese"].sub(r" \g<0> ", text)
    if lowercase:
        known = chars["undecomposed"].split(
            text
        )  # every second stretch is one the reference does not decompose
        text = "".join(
            part if i % 2 else unicodedata.normalize("NFD", part) for i, part in enumerate(known)
        )
        text = chars["mark"].sub("", text)
        # Letter by letter: str.lower() would choose the final form of a Greek sigma, the reference does not.
        text = "".join(chars["lower"].get(char) or char.lower() for char in text)
    return [word for word in chars["split"].split(text) if word and not chars["space"].match(word)]


@cache
def _characters():
    """The reference's character classes as compiled patterns."""
    table = json.loads((DATA / "bert_characters.json").read_text(encoding="utf-8"))

    def inside(name):
        return "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in table[name])

    return {
        "surrogate": re.compile("[\ud800-\udfff]"),
        "control": re.compile(f"[\0{inside('control')}]+"),
        "chinese": re.compile(f"[{_CHINESE}]"),
        "undecomposed": re.compile(f"([{inside('undecomposed')}]+)"),
        "mark": re.compile(f"[{inside('mark')}]+"),
        "split": re.compile(f"([{inside('punctuation')}]|[{_SPACES}]+)"),
        "space": re.compile(f"[{_SPACES}]"),
        "lower": table["lower"],
    }


def count_words(texts, *, lowercase=True):
    """How often each word occurs. Each distinct stretch of text is normalised once, however often it comes."""
    chunks = Counter()
    for text in texts:
        chunks.update(_BLANK.split(text))
    words = Counter()
    for chunk, count in chunks.items():
        for word in split_words(chunk, lowercase=lowercase):
            words[word] += count
    return words


# ---------------------------------------------------------------------------------------- learning the merges


def _symbols(letters):
    return [letter if i == 0 else PREFIX + letter for i, letter in enumerate(letters)]


def _merges(symbols, counts, min_frequency):
    """Yield the pairs to merge, commonest first. Rewrites `symbols` in place.

    A merge changes only the words that hold the pair, so only their pairs are counted again. The heap may hold
    outdated counts; an entry is believed only if it equals the pair's count now.
    """
    pair_counts, where = Counter(), defaultdict(set)
    for word, parts in enumerate(symbols):
        for pair in zip(parts, parts[1:]):
            pair_counts[pair] += counts[word]
            where[pair].add(word)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != pair_counts[pair]:
            continue
        if -count < max(1, min_frequency):
            return
        yield pair
        changed = set()
        for word in where.pop(pair):
            before = symbols[word]
            after = _merged(before, pair)
            for old in zip(before, before[1:]):
                pair_counts[old] -= counts[word]
                changed.add(old)
            for new in zip(after, after[1:]):
                pair_counts[new] += counts[word]
                where[new].add(word)
                changed.add(new)
            symbols[word] = after
        for other in changed:
            if pair_counts[other] > 0:
                heapq.heappush(heap, (-pair_counts[other], other))


def _merged(parts, pair):
    """The word's parts with each occurrence of the pair, from the left, made one."""
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1].removeprefix(PREFIX))
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def _vocab_file(path):
    path = Path(path)
    return path / "vocab.txt" if path.is_dir() else path
