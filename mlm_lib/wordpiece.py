"""WordPiece: learns a vocabulary of word pieces, and splits any text into these pieces.

A text becomes tokens in three steps. First the text is normalised, and then it is split into words
(both in `words.py`). Then each word is split from the left: each time, the longest piece of the
vocabulary that fits is taken. Pieces that continue a word begin with `##`.

With the same vocabulary, this module gives the same ids as the `tokenizers` library. The two
trainers may learn different vocabularies if pairs have equal counts; see
`WordPieceTokenizer.train`.

Sources: Wu et al. 2016 (the method), Devlin et al. 2019 (its use in BERT), and the `tokenizers`
library. Built in lesson 01.
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
# transformers writes a tokenizer's settings to two files. These are the names of the special tokens
# there ("mask_token": "[MASK]", …), and the names of the steps of normalisation: in
# tokenizer_config.json, and in tokenizer.json.
SPECIAL_TOKEN_NAMES = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
NORMALIZER_NAMES = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars", "clean_text": "clean_text",
    "normalizer": "type",
}  # fmt: skip
PREFIX = "##"  # marks a piece that continues a word
MAX_WORD_LENGTH = 100  # longer words become [UNK], as in BERT
# The spaces that decoding removes: before a piece that continues a word, and, as in BERT, before
# these marks and endings.
_REMOVED_SPACE = re.compile(f" {PREFIX}| (?=[.,?!]|n't|'m|'s|'ve|'re)")
_SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
_CACHE_SIZE = 1 << 17  # stretches of text whose pieces are remembered


class WordPieceTokenizer:
    """Splits texts into word pieces. The ids are the same as those of transformers'
    `BertTokenizerFast` with the same vocabulary.

    >>> texts = ["stones and a stone", "a stone"]
    >>> tokenizer = WordPieceTokenizer.train(texts, 30, min_frequency=1)
    >>> tokenizer.tokenize("Stones")
    ['stones']

    Args:
        vocab: a dictionary from tokens to ids, with the five special tokens.
        lowercase: whether texts are lower-cased and stripped of accents first.

    Attributes:
        vocab: {token: id}, in the order of the ids.
        tokens: {id: token}.
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: the ids of the
            special tokens.

    Raises:
        ValueError: a special token is missing, or two tokens have the same id.
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
        self._pieces = {}  # a cache: {stretch of text without white space: its tokens}

    def __len__(self):
        return len(self.vocab)

    @property
    def all_special_ids(self):
        """The ids of the special tokens, in the order of `SPECIAL_TOKENS`."""
        return [self.vocab[token] for token in SPECIAL_TOKENS]

    # -------------------------------------------------------------------------------- training

    @classmethod
    def train(
        cls, texts, vocab_size, *,
        min_frequency=2, lowercase=True, limit_alphabet=1000, initial_alphabet="",
    ):  # fmt: skip
        """Learns a vocabulary: it merges the most frequent pair of neighbouring pieces repeatedly.

        If several pairs have the same count, the pair that comes first in the alphabet is merged.
        Therefore the same texts give the same vocabulary in whatever order they come. For pairs
        with equal counts, the trainer of `tokenizers` chooses in another way, so its vocabulary
        can differ. If one pair is more frequent than all others, both trainers merge this pair.

        Args:
            texts: an iterable of str.
            vocab_size: the number of tokens at which training stops. The vocabulary is smaller if
                no pairs are left before that.
            min_frequency: a pair that occurs less often is not merged.
            lowercase: whether texts are lower-cased and stripped of accents first.
            limit_alphabet: how many of the most frequent characters to keep. None: all. A word
                with any other character becomes `[UNK]`.
            initial_alphabet: characters to keep even if the texts do not have them, such as
                `string.printable`; a str or a list. These characters are included in the number
                `limit_alphabet`.

        Returns:
            A new tokenizer.

        Raises:
            ValueError: the texts have no word, or `vocab_size` is too small for their characters.
        """
        whole_number("vocab_size", vocab_size)
        whole_number("min_frequency", min_frequency, least=0)
        whole_number("limit_alphabet", limit_alphabet, none=True)
        initial = _symbols_of_alphabet(initial_alphabet, lowercase)
        # 1. Count each word and each letter.
        words = count_words(texts, lowercase=lowercase)
        if not words:
            raise ValueError("the texts hold no word to learn from; pass texts with words")
        letters = Counter()
        for word, count in words.items():
            for letter in word:
                letters[letter] += count
        # 2. Split each word into single letters: stone -> s ##t ##o ##n ##e
        letters.update(dict.fromkeys(initial, 0))
        order = sorted(letters, key=lambda letter: (-letters[letter], letter))
        common = sorted(order, key=lambda letter: letter not in initial)[:limit_alphabet]
        kept = set(common)
        symbols = [symbols_of(word, kept) for word in words]
        # 3. Begin the vocabulary with the special tokens, the alphabet and its ## forms.
        continued = {symbol for parts in symbols for symbol in parts[1:]}
        continued |= {PREFIX + letter for letter in kept if initial.get(letter)}
        vocab = dict.fromkeys([*SPECIAL_TOKENS, *sorted(common), *sorted(continued)])
        if len(vocab) > vocab_size:
            raise ValueError(f"vocab_size={vocab_size}; its letters need {len(vocab)}; raise it")
        # 4. Merge until the vocabulary is full: ##n ##e -> ##ne, ##o ##ne -> ##one, …
        for left, right in merges(symbols, list(words.values()), min_frequency):
            if len(vocab) >= vocab_size:
                break
            vocab.setdefault(left + right.removeprefix(PREFIX))
        return cls({token: index for index, token in enumerate(vocab)}, lowercase=lowercase)

    # -------------------------------------------------------------------------------- files

    @classmethod
    def from_vocab(cls, path, *, lowercase=None):
        """Reads a tokenizer from a `vocab.txt`, which has one token per line in the order of ids.

        When transformers or our `save_pretrained` saves a tokenizer, the folder of `vocab.txt` also
        has the files `tokenizer.json` and `tokenizer_config.json`, with the settings of the
        tokenizer. Both files are read, so a tokenizer that was saved without lower-casing is loaded
        without it. transformers 5 writes no `vocab.txt`; then the vocabulary of `tokenizer.json` is
        used.

        Args:
            path: the file `vocab.txt`, or the folder of the saved tokenizer.
            lowercase: whether texts are lower-cased and stripped of accents first. If None, the
                setting in the files beside `vocab.txt` is used; if they have none, True is used.

        Raises:
            ValueError: a token is on two lines, or a special token is missing; the files contradict
                each other; or the tokenizer does something that this class cannot do, such as
                lower-casing without stripping accents. `load_checkpoint` opens such a tokenizer.

        Warns:
            UserWarning: `lowercase` was not given, and texts will be lower-cased and stripped of
                accents although the vocabulary has words with capital letters or accents.
        """
        path = _vocab_file(path)
        settings = _settings_beside(path)
        lower = settings.get("do_lower_case", True) if lowercase is None else lowercase
        _refuse_other_tokenizers(path, settings, lower)
        vocab = settings.get("vocab")
        if vocab is None or path.exists():
            vocab = _read_vocab(path)
        if settings.get("vocab", vocab) != vocab:
            reason = f"vocab.txt and tokenizer.json in {path.parent} hold different vocabularies"
            raise ValueError(f"{reason}; delete the one that is out of date")
        if lower and lowercase is None and (lost := _never_found(vocab)):
            warnings.warn(
                f"{path} holds words such as {lost[0]!r}, but texts are lower-cased and lose their"
                " accents, so that these words are never found; lowercase=False keeps both",
                stacklevel=2,
            )
        return cls(vocab, lowercase=lower)

    def save(self, path):
        """Writes the vocabulary to a file, one token per line, in the order of ids.

        After a crash there is either the whole old file or the whole new file, never half a file.

        Args:
            path: a file, or a folder; in a folder, the file is named `vocab.txt`.

        Raises:
            ValueError: the ids have gaps, or a token contains the end of a line.
        """
        path = _vocab_file(path)
        if list(self.tokens) != list(range(len(self))):
            raise ValueError("the ids have gaps, which a vocab.txt cannot hold; number them anew")
        if broken := [token for token in self.vocab if re.search("[\n\r]", token)]:
            raise ValueError(f"{broken} hold a line end, which a vocab.txt cannot hold")
        write(path, "".join(token + "\n" for token in self.vocab))

    def to_hf(self):
        """Converts this tokenizer to a `BertTokenizerFast`, which is compiled and much faster than
        this class.
        """
        from transformers import BertTokenizerFast

        return BertTokenizerFast(vocab=dict(self.vocab), do_lower_case=self.lowercase)

    # -------------------------------------------------------------------------------- applying

    def tokenize(self, text):
        """Splits a text into tokens. Special tokens in the text, such as `[MASK]`, stay whole.

        Returns:
            A list of str, without `[CLS]` and `[SEP]`.
        """
        tokens = []
        for position, stretch in enumerate(_SPECIAL.split(text)):
            if position % 2:  # re.split with a group: text, special token, text, special token, …
                tokens.append(stretch)
            else:
                for chunk in BLANK.split(stretch):
                    tokens += self._split_chunk(chunk)
        return tokens

    def encode(self, text, *, add_special_tokens=True):
        """The token ids of a text, a list of int.

        Args:
            text: a str.
            add_special_tokens: whether to put `[CLS]` before the text and `[SEP]` after it.
        """
        ids = [self.vocab[token] for token in self.tokenize(text)]
        return [self.cls_token_id, *ids, self.sep_token_id] if add_special_tokens else ids

    def decode(self, ids):
        """A readable text from ids: the pieces of a word are joined, and there is no space before
        a punctuation mark such as a full stop or a comma.

        The result is not always the text that was encoded, because encoding loses the amount of
        white space and, with `lowercase`, also case and accents.

        Raises:
            KeyError: an id is not in the vocabulary.
        """
        return _REMOVED_SPACE.sub("", " ".join(self.tokens[index] for index in id_list("ids", ids)))

    def _split_chunk(self, chunk):
        """The tokens of a stretch of text without white space, from the cache if possible."""
        pieces = self._pieces.get(chunk)
        if pieces is None:
            pieces = []
            for word in split_words(chunk, lowercase=self.lowercase):
                pieces += match_longest(word, self.vocab)
            if len(self._pieces) >= _CACHE_SIZE:
                self._pieces.clear()
            self._pieces[chunk] = pieces
        return pieces


def match_longest(word, vocab):
    """Splits a word into pieces from the left, always taking the longest piece that fits.

    >>> match_longest("unaffable", {"un", "una", "##aff", "##ff", "##able"})
    ['una', '##ff', '##able']

    Args:
        word: a str without white space.
        vocab: the pieces, as a dictionary or a set.

    Returns:
        A list of pieces. The whole word becomes `["[UNK]"]` if at some place in the word no piece
        fits, or if the word has more than 100 characters.
    """
    if len(word) > MAX_WORD_LENGTH:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        # Try all letters that are left as one piece, then one letter fewer, and so on.
        for end in range(len(word), start, -1):
            piece = PREFIX + word[start:end] if start else word[:end]
            if piece in vocab:
                break
        else:  # not even one letter is a piece, so the whole word is unknown
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# ------------------------------------------------------------------------------------ merging


def _symbols_of_alphabet(characters, lowercase):
    """The characters of an initial alphabet after normalisation, as {character: can it continue}.

    A letter can continue a word. A punctuation mark cannot, because it is always a word by itself.
    """
    found = {}
    for character in characters:
        # After the "a", a letter continues the word ("é" as "e"), a mark such as "%" becomes a word
        # of its own, and white space disappears.
        first, *apart = split_words("a" + character, lowercase=lowercase)
        found |= dict.fromkeys(first[1:], True) | dict.fromkeys("".join(apart), False)
    return found


def symbols_of(word, kept):
    """The letters of a word as pieces: the first without prefix, the others with `##`.

    Letters that are not kept are left out. A letter after such a gap keeps its prefix, because it
    does not begin the word.

    >>> symbols_of("cat", {"a", "t"})
    ['##a', '##t']
    """
    parts = [word[0], *(PREFIX + letter for letter in word[1:])]
    return [part for part, letter in zip(parts, word) if letter in kept]


def merges(symbols, counts, min_frequency):
    """Yields the pairs to merge, the most frequent first, and merges each of them.

    A merge changes only the words that contain the pair, so only their pairs are counted again.

    Args:
        symbols: the pieces of each word, a list of lists, which is changed in place.
        counts: how often each word occurs.
        min_frequency: a pair that occurs less often is not merged.
    """
    # 1. The count of a pair is the sum, over all words that contain it, of the words' counts.
    pair_counts, where = Counter(), defaultdict(set)
    for word, parts in enumerate(symbols):
        for pair in zip(parts, parts[1:]):
            pair_counts[pair] += counts[word]
            where[pair].add(word)
    # 2. A heap gives the pair with the largest count. If several pairs have this count, it gives
    #    the pair that comes first in the alphabet. An entry of the heap may be out of date, so it
    #    is used only if its count equals the present count of its pair.
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != pair_counts[pair]:
            continue
        if -count < max(1, min_frequency):
            return
        yield pair
        # 3. Merge the pair in its words: subtract the counts of their old pairs, add the new ones.
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
        # 4. Push each pair whose count has changed.
        for other in changed:
            if pair_counts[other] > 0:
                heapq.heappush(heap, (-pair_counts[other], other))


def merged(parts, pair):
    """The pieces of a word after merging each occurrence of a pair, from the left.

    >>> merged(["b", "##a", "##n", "##a", "##n", "##a"], ("##a", "##n"))
    ['b', '##an', '##an', '##a']
    """
    left, right = pair
    merged_parts = []
    for part in parts:
        if part == right and merged_parts and merged_parts[-1] == left:
            merged_parts[-1] = left + right.removeprefix(PREFIX)
        else:
            merged_parts.append(part)
    return merged_parts


# ------------------------------------------------------------------------------------ reading


def _vocab_file(path):
    path = Path(path_name("path", path))
    return path / "vocab.txt" if path.is_dir() else path


def _read_vocab(path):
    """The vocabulary {token: id} of a file with one token per line."""
    # str.splitlines() would also split at U+2028, which may be a token.
    tokens = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    token, count = Counter(tokens).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{path} holds the token {token!r} {count} times; a token has one id")
    return {token: index for index, token in enumerate(tokens)}


def _never_found(vocab):
    """The words of a vocabulary that cannot occur in a lower-cased text without accents."""
    words = [word for word in vocab if word.isalpha() and split_words(word) != [word]]
    return [word for word in words if split_words(word, lowercase=False) == [word]]


def _settings_beside(path):
    """A tokenizer's settings, by name, from the files in the folder of its `vocab.txt`."""
    settings, added = {}, set()
    if path.name != "vocab.txt":  # under another name, the files may belong to another vocabulary
        return settings
    # If two of the files have a setting, that of the later one counts, as in transformers.
    for file in ("tokenizer.json", "special_tokens_map.json", "tokenizer_config.json"):
        try:
            found = json.loads((path.parent / file).read_text(encoding="utf-8"))
            added |= {token["content"] for token in found.get("added_tokens", [])}
            added |= {token["content"] for token in found.get("added_tokens_decoder", {}).values()}
            if file == "tokenizer.json":
                normalizer, model = found.get("normalizer") or {"type": "none"}, found["model"]
                found = {ours: normalizer.get(theirs) for ours, theirs in NORMALIZER_NAMES.items()}
                found |= {"model": model.get("type"), "vocab": dict(model["vocab"])}
            for name in (*SPECIAL_TOKEN_NAMES, *NORMALIZER_NAMES, "model", "vocab"):
                value = found.get(name)
                if name in SPECIAL_TOKEN_NAMES and isinstance(value, dict):
                    value = value["content"]
                if value is not None:
                    settings[name] = value
        except FileNotFoundError:
            continue
        except (ValueError, AttributeError, KeyError, TypeError):
            raise ValueError(f"{path.parent / file} is damaged; save the tokenizer again") from None
    return settings | {"added_tokens": sorted(added.difference(SPECIAL_TOKENS))}


def _refuse_other_tokenizers(path, settings, lowercase):
    """Refuses settings with which transformers' tokenizer would give other ids than this class."""
    ours = SPECIAL_TOKEN_NAMES | {
        "strip_accents": lowercase,
        "tokenize_chinese_chars": True,
        "clean_text": True,
    }
    ours |= {"normalizer": "BertNormalizer", "model": "WordPiece", "added_tokens": []}
    for name, value in settings.items():
        if value != ours.get(name, value):
            reason = f"the tokenizer in {path.parent} has {name}={value!r}"
            known = f"a WordPieceTokenizer has {ours[name]!r} there"
            raise ValueError(f"{reason}, but {known}; open it with load_checkpoint or transformers")
