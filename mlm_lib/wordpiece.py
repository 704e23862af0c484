"""WordPiece: learn a vocabulary of word pieces, then cut any text into them. Built in lesson 01.

Text becomes tokens in three steps: normalise and split (`words.py`), then the greedy longest match
of each word against the vocabulary. Pieces that continue a word begin with `##`.

Sources: Wu et al. 2016 (the model), Devlin et al. 2019 (BERT's use of it), and the `tokenizers`
library, whose results this file repeats id for id.
"""

import heapq
import json
import re
import warnings
from collections import Counter, defaultdict
from operator import itemgetter
from pathlib import Path

from mlm_lib.checks import id_list, path_name, whole_number
from mlm_lib.engine.files import write
from mlm_lib.words import BLANK, count_words, split_words

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The special tokens, and the steps of normalisation, by transformers' names in its two files.
NAMED = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
NORMALIZER = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars", "clean_text": "clean_text",
    "normalizer": "type",
}  # fmt: skip
PREFIX = "##"  # marks a piece that continues a word
MAX_WORD_LENGTH = 100  # longer words become [UNK], as in BERT
# The blank that decoding leaves out before a continued word, and as BERT does before these.
_CLOSE_UP = re.compile(f" {PREFIX}| (?=[.,?!]|n't|'m|'s|'ve|'re)")
_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
_CACHED_WORDS = 1 << 17


class WordPieceTokenizer:
    """A vocabulary and the rule for applying it: `BertTokenizerFast` of transformers, id for id.

    Args:
        vocab: dictionary from tokens to ids, the five special tokens among them.
        lowercase: whether text is lower-cased and stripped of accents first.

    Attributes:
        vocab: token -> id, in the order of the ids.
        tokens: id -> token.
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: the special ids.

    Raises:
        ValueError: a special token is missing, or an id has two tokens.
    """

    def __init__(self, vocab, *, lowercase=True):
        missing = [token for token in SPECIAL_TOKENS if token not in vocab]
        if missing:
            raise ValueError(f"the vocabulary of {len(vocab)} tokens lacks {', '.join(missing)}")
        self.vocab = dict(sorted(vocab.items(), key=itemgetter(1)))
        self.tokens = {index: token for token, index in self.vocab.items()}
        if len(self.tokens) != len(vocab):
            raise ValueError("two tokens of the vocabulary share an id; a token has its own")
        self.lowercase = lowercase
        self.pad_token_id, self.unk_token_id, *others = self.all_special_ids
        self.cls_token_id, self.sep_token_id, self.mask_token_id = others
        self._pieces = {}  # stretch of text without white space -> its tokens

    def __len__(self):
        return len(self.vocab)

    @property
    def all_special_ids(self):
        """The ids of `SPECIAL_TOKENS`, in that order."""
        return [self.vocab[token] for token in SPECIAL_TOKENS]

    # -------------------------------------------------------------------------------- training

    @classmethod
    def train(
        cls, texts, vocab_size, *,
        min_frequency=2, lowercase=True, limit_alphabet=1000, initial_alphabet="",
    ):  # fmt: skip
        """Learn a vocabulary: merge, again and again, the two neighbouring pieces seen most often.

        Equal counts are decided by the alphabet (the smaller pair of strings wins), so the same
        texts give the same vocabulary, in any order. The `tokenizers` trainer decides ties by
        internal ids instead; wherever a pair strictly leads, both make the same merge.

        Args:
            texts: an iterable of strings.
            vocab_size: how many tokens to stop at; fewer if the pairs run out.
            min_frequency: a pair seen less often is not merged.
            limit_alphabet: how many of the commonest characters to keep, None for all; words with
                others can only be `[UNK]`.
            initial_alphabet: characters that are kept even if the texts do not hold them, such as
                `string.printable`; a str or a list. They count towards `limit_alphabet`.

        Raises:
            ValueError: texts without a word, or a vocab_size too small for their characters.
        """
        whole_number("vocab_size", vocab_size)
        whole_number("min_frequency", min_frequency, least=0)
        whole_number("limit_alphabet", limit_alphabet, none=True)
        initial = _symbols_of_alphabet(initial_alphabet, lowercase)
        # 1. How often does each word come, and each letter?
        words = count_words(texts, lowercase=lowercase)
        if not words:
            raise ValueError("the texts hold no word to learn from; pass texts with words")
        letters = Counter()
        for word, count in words.items():
            for letter in word:
                letters[letter] += count
        # 2. Words in single letters: stone -> s ##t ##o ##n ##e
        letters.update(dict.fromkeys(initial, 0))
        order = sorted(letters, key=lambda letter: (-letters[letter], letter))
        common = sorted(order, key=lambda letter: letter not in initial)[:limit_alphabet]
        kept = set(common)
        symbols = [symbols_of(word, kept) for word in words]
        # 3. The vocabulary begins with the special tokens, the alphabet and its ## forms.
        continued = {symbol for parts in symbols for symbol in parts[1:]}
        continued |= {PREFIX + letter for letter in kept if initial.get(letter)}
        vocab = dict.fromkeys([*SPECIAL_TOKENS, *sorted(common), *sorted(continued)])
        if len(vocab) > vocab_size:
            raise ValueError(f"vocab_size={vocab_size}; its letters need {len(vocab)}; raise it")
        # 4. Merge until it is full: ##n ##e -> ##ne, ##o ##ne -> ##one, ...
        for left, right in merges(symbols, list(words.values()), min_frequency):
            if len(vocab) >= vocab_size:
                break
            vocab.setdefault(left + right.removeprefix(PREFIX))
        return cls({token: index for index, token in enumerate(vocab)}, lowercase=lowercase)

    # -------------------------------------------------------------------------------- files

    @classmethod
    def from_vocab(cls, path, *, lowercase=None):
        """Read a `vocab.txt`, or the one in a folder: one token a line, in the order of the ids.

        transformers and `save_pretrained` write two more files beside it, `tokenizer.json` and
        `tokenizer_config.json`, which say how the tokenizer treats texts. Both are read, so that a
        cased tokenizer comes back cased. transformers 5 writes no `vocab.txt`; then the vocabulary
        of `tokenizer.json` is taken.

        Args:
            path: the file, or its folder.
            lowercase: whether text is lower-cased and stripped of accents first. None: what the
                files beside `vocab.txt` say, and True where they say nothing.

        Raises:
            ValueError: a token on two lines, or a special token on none; files that contradict each
                other; a tokenizer that does what this class cannot do, such as keep accents while
                it lower-cases. `load_checkpoint` opens such a tokenizer.

        Warns:
            UserWarning: the vocabulary has capital letters or accents, but they are removed from
                every text, although no argument asks for that.
        """
        path = _vocab_file(path)
        said = _said_beside(path)
        lower = said.get("do_lower_case", True) if lowercase is None else lowercase
        _refuse_other_tokenizers(path, said, lower)
        vocab = said.get("vocab")
        if vocab is None or path.exists():
            vocab = _read_vocab(path)
        if said.get("vocab", vocab) != vocab:
            told = f"vocab.txt and tokenizer.json in {path.parent} hold different vocabularies"
            raise ValueError(f"{told}; delete the one that is out of date")
        if lower and lowercase is None and (lost := _never_found(vocab)):
            told = (
                f"{path} holds words such as {lost[0]!r}, but texts are lower-cased and lose their"
            )
            told = (
                f"{told} accents, so that these words are never found; lowercase=False keeps both"
            )
            warnings.warn(told, stacklevel=2)
        return cls(vocab, lowercase=lower)

    def save(self, path):
        """Write `vocab.txt`, whole or not at all. A folder's is the `vocab.txt` in it.

        Raises:
            ValueError: ids with gaps, or a token that holds a line end.
        """
        path = _vocab_file(path)
        if list(self.tokens) != list(range(len(self))):
            raise ValueError("the ids have gaps, which a vocab.txt cannot hold; number them anew")
        if broken := [token for token in self.vocab if re.search("[\n\r]", token)]:
            raise ValueError(f"{broken} hold a line end, which a vocab.txt cannot hold")
        write(path, "".join(token + "\n" for token in self.vocab))

    def to_hf(self):
        """The same tokenizer as transformers' `BertTokenizerFast`: compiled, for large texts."""
        from transformers import BertTokenizerFast

        return BertTokenizerFast(vocab=dict(self.vocab), do_lower_case=self.lowercase)

    # -------------------------------------------------------------------------------- applying

    def tokenize(self, text):
        """Cut a text into tokens. Special tokens written in it, such as `[MASK]`, stay whole."""
        tokens = []
        for position, stretch in enumerate(_SPECIAL.split(text)):
            if position % 2:  # every second stretch is a special token
                tokens.append(stretch)
            else:
                for chunk in BLANK.split(stretch):
                    tokens += self._cut(chunk)
        return tokens

    def encode(self, text, *, add_special_tokens=True):
        """Token ids of a text, between `[CLS]` and `[SEP]` unless told otherwise."""
        ids = [self.vocab[token] for token in self.tokenize(text)]
        return [self.cls_token_id, *ids, self.sep_token_id] if add_special_tokens else ids

    def decode(self, ids):
        """A readable text: pieces joined to words, no blank before `. , ? !` and endings like `'s`.

        Not the text that was encoded: case, accents and the width of white space are gone.

        Raises:
            KeyError: an id outside the vocabulary.
        """
        return _CLOSE_UP.sub("", " ".join(self.tokens[index] for index in id_list("ids", ids)))

    def _cut(self, chunk):
        """The tokens of a stretch without white space, from memory if it came before."""
        pieces = self._pieces.get(chunk)
        if pieces is None:
            pieces = []
            for word in split_words(chunk, lowercase=self.lowercase):
                pieces += match_longest(word, self.vocab)
            if len(self._pieces) >= _CACHED_WORDS:
                self._pieces.clear()
            self._pieces[chunk] = pieces
        return pieces


def match_longest(word, vocab):
    """Greedy longest match from the left; `["[UNK]"]` if some part of the word has no piece at all.

    >>> match_longest("unaffable", {"un", "una", "##aff", "##ff", "##able"})
    ['una', '##ff', '##able']
    """
    if len(word) > MAX_WORD_LENGTH:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        # The longest piece that fits here: all that is left, then a letter less, and so on.
        for end in range(len(word), start, -1):
            piece = PREFIX + word[start:end] if start else word[:end]
            if piece in vocab:
                break
        else:  # not even one letter is a piece: the word is unknown as a whole
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# ------------------------------------------------------------------------------------ merging


def _symbols_of_alphabet(characters, lowercase):
    """{character: whether it can continue a word}, as the tokenizer's normalisation leaves them.

    A punctuation mark is always a word by itself, so that it never continues one.
    """
    found = {}
    for character in characters:
        # "é" becomes "e", "%" stands apart from the "a" before it, and white space leaves nothing.
        first, *apart = split_words("a" + character, lowercase=lowercase)
        found |= dict.fromkeys(first[1:], True) | dict.fromkeys("".join(apart), False)
    return found


def symbols_of(word, kept):
    """The letters of a word: the first bare, the others with the prefix.

    A letter that is not kept leaves a gap: what follows it still does not begin the word.
    """
    parts = [word[0], *(PREFIX + letter for letter in word[1:])]
    return [part for part, letter in zip(parts, word) if letter in kept]


def merges(symbols, counts, min_frequency):
    """Yield the pairs to merge, commonest first. Rewrites `symbols` in place.

    A merge changes only the words that hold the pair, so only their pairs are counted again.
    """
    # 1. count of a pair = sum over the words: how often it stands there × how often the word comes
    pair_counts, where = Counter(), defaultdict(set)
    for word, parts in enumerate(symbols):
        for pair in zip(parts, parts[1:]):
            pair_counts[pair] += counts[word]
            where[pair].add(word)
    # 2. A heap gives the largest count, of equal ones the first pair in the alphabet. Its entries
    #    may be outdated: one is believed only if it equals the pair's count now.
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != pair_counts[pair]:
            continue
        if -count < max(1, min_frequency):
            return
        yield pair
        # 3. Merge it in its words: their old pairs are taken off, the new ones added.
        changed = set()
        for word in where.pop(pair):
            before = symbols[word]
            after = symbols[word] = merged(before, pair)
            for old in zip(before, before[1:]):
                pair_counts[old] -= counts[word]
                changed.add(old)
            for new in zip(after, after[1:]):
                pair_counts[new] += counts[word]
                where[new].add(word)
                changed.add(new)
        # 4. What changed goes onto the heap with its new count.
        for other in changed:
            if pair_counts[other] > 0:
                heapq.heappush(heap, (-pair_counts[other], other))


def merged(parts, pair):
    """The parts of a word with each occurrence of the pair made one, from the left.

    >>> merged(["b", "##a", "##n", "##a", "##n", "##a"], ("##a", "##n"))
    ['b', '##an', '##an', '##a']
    """
    left, right = pair
    parts_now = []
    for part in parts:
        if part == right and parts_now and parts_now[-1] == left:
            parts_now[-1] = left + right.removeprefix(PREFIX)
        else:
            parts_now.append(part)
    return parts_now


# ------------------------------------------------------------------------------------ reading


def _vocab_file(path):
    path = Path(path_name("path", path))
    return path / "vocab.txt" if path.is_dir() else path


def _read_vocab(path):
    """{token: id} of a file with one token a line."""
    # Not str.splitlines(), which would also cut at U+2028, and that may be a token.
    tokens = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    token, count = Counter(tokens).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{path} holds the token {token!r} {count} times; a token has one id")
    return {token: index for index, token in enumerate(tokens)}


def _never_found(vocab):
    """The words of a vocabulary that no text holds once texts are lower-cased."""
    words = [word for word in vocab if word.isalpha() and split_words(word) != [word]]
    return [word for word in words if split_words(word, lowercase=False) == [word]]


def _said_beside(path):
    """What the files beside a `vocab.txt` say of its tokenizer, mostly by transformers' names."""
    said, added = {}, set()
    if path.name != "vocab.txt":  # the files belong only to a vocab.txt
        return said
    # Where two of them say something, the later one counts, as in transformers.
    for file in ("tokenizer.json", "special_tokens_map.json", "tokenizer_config.json"):
        try:
            found = json.loads((path.parent / file).read_text(encoding="utf-8"))
            added |= {token["content"] for token in found.get("added_tokens", [])}
            added |= {token["content"] for token in found.get("added_tokens_decoder", {}).values()}
            if file == "tokenizer.json":
                normalizer, model = found.get("normalizer") or {"type": "none"}, found["model"]
                found = {ours: normalizer.get(theirs) for ours, theirs in NORMALIZER.items()}
                found |= {"model": model.get("type"), "vocab": dict(model["vocab"])}
            for name in (*NAMED, *NORMALIZER, "model", "vocab"):
                value = found.get(name)
                if name in NAMED and isinstance(value, dict):
                    value = value["content"]
                if value is not None:
                    said[name] = value
        except FileNotFoundError:
            continue
        except (ValueError, AttributeError, KeyError, TypeError):
            raise ValueError(f"{path.parent / file} is damaged; save the tokenizer again") from None
    return said | {"added_tokens": sorted(added.difference(SPECIAL_TOKENS))}


def _refuse_other_tokenizers(path, said, lowercase):
    """Refuses what the files beside a vocabulary say, where this class would do something else."""
    does = NAMED | {"strip_accents": lowercase, "tokenize_chinese_chars": True, "clean_text": True}
    does |= {"normalizer": "BertNormalizer", "model": "WordPiece", "added_tokens": []}
    for name, value in said.items():
        if value != does.get(name, value):
            told = f"the tokenizer in {path.parent} has {name}={value!r}"
            known = f"a WordPieceTokenizer has {does[name]!r} there"
            raise ValueError(f"{told}, but {known}; open it with load_checkpoint or transformers")
