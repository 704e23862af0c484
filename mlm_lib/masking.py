"""Mask tokens for masked language modelling: hide some tokens of a text and keep them as labels.

Built in lesson 02. Use `mask_tokens` for a batch that is already a tensor, and `MaskingCollator` as
the `collate_fn` of a `DataLoader`. To add a new way of choosing tokens, write one function and one
line in the table `STRATEGIES`.

Sources: Devlin et al. 2019 (BERT: 15% of the tokens, 80/10/10), the whole-word masking release of
BERT (2019), Joshi et al. 2020 (SpanBERT: spans of words).
"""

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import get_worker_info

from mlm_lib.checks import choice, ids, probability, real_mask, same_shape, shares, whole_number
from mlm_lib.engine.padding import pad_examples
from mlm_lib.labels import IGNORE


def mask_tokens(
    input_ids, *, mask_token_id, random_token_ids, special_tokens_mask,
    rate=0.15, mask_share=0.8, random_share=0.1, word_ids=None, strategy=None, generator=None,
):  # fmt: skip
    """Mask some tokens of a batch, and return the masked batch and the labels.

    Each token outside `special_tokens_mask` is chosen with probability `rate`. The label of a
    chosen token is its original id. In the input, a chosen token becomes `[MASK]` with probability
    `mask_share`, becomes a random token with probability `random_share`, and otherwise stays as it
    is. BERT's values are 0.15, 0.8 and 0.1.

    If `word_ids` is given and the strategy is "whole_word" or "span", whole words are chosen
    instead of single tokens, again each with probability `rate`. All tokens of a word then have the
    same fate: all are masked, or all are replaced (each by a random token of its own), or all are
    kept. With `strategy="span"` the chosen words come in spans of up to ten neighbouring words,
    whose lengths follow SpanBERT's distribution. Each word is still chosen with probability exactly
    `rate`.

    >>> input_ids = torch.tensor([[2, 11, 12, 13, 3]])  # [CLS], three words, [SEP]
    >>> special = torch.tensor([[1, 0, 0, 0, 1]])
    >>> mask_tokens(  # at rate 1 every ordinary token is chosen
    ...     input_ids, mask_token_id=4, random_token_ids=[11, 12, 13], special_tokens_mask=special,
    ...     rate=1.0, mask_share=1.0, random_share=0.0,
    ... )
    (tensor([[2, 4, 4, 4, 3]]), tensor([[-100,   11,   12,   13, -100]]))

    Args:
        input_ids: (B, T), torch.long or torch.int32. The tensor is not changed.
        mask_token_id: the id of `[MASK]`.
        random_token_ids: (R,) the ids from which random tokens are drawn, without special tokens.
        special_tokens_mask: (B, T), true at tokens that must not be chosen, such as `[CLS]`,
            `[SEP]` and padding.
        rate: the probability with which each token, or each word, is chosen.
        mask_share: the probability with which a chosen token becomes `[MASK]`.
        random_share: the probability with which a chosen token becomes a random token.
        word_ids: (B, T) the number of the word that each token belongs to. Neighbouring tokens of
            one word have the same number. The number is −1 at tokens outside of words, and these
            tokens are not chosen.
        strategy: a key of `STRATEGIES`, such as "token". A strategy that chooses whole words needs
            `word_ids`. None means "whole_word" if `word_ids` is given, and "token" otherwise.
        generator: a `torch.Generator` on the device of `input_ids`. None means torch's global
            generator.

    Returns:
        (input_ids, labels), two new tensors (B, T). Labels are −100 at tokens that were not chosen.

    Raises:
        ValueError: a rate or share is not in 0..1, or the shares sum to more than 1; ids are
            neither torch.long nor torch.int32, are negative, or are larger than the type of
            `input_ids` can hold; shapes differ; `random_token_ids` contains `[MASK]`; the strategy
            is unknown, or needs `word_ids` and has none.
    """
    probability("rate", rate)
    shares(mask_share, random_share)
    if strategy is None:
        strategy = "token" if word_ids is None else "whole_word"
    draw, by_word = STRATEGIES[choice("strategy", strategy, STRATEGIES)]
    device, size = input_ids.device, torch.iinfo(input_ids.dtype).max
    ids("input_ids", input_ids, "(B, T)", size=size)
    whole_number("mask_token_id", mask_token_id, 0)
    random_token_ids = torch.as_tensor(random_token_ids, device=device)
    if random_share > 0:
        ids("random_token_ids", random_token_ids, "(R,)", size=size)
        if (random_token_ids == mask_token_id).any():
            raise ValueError(f"random_token_ids holds {mask_token_id}, the id of [MASK]")
    special = torch.as_tensor(special_tokens_mask, device=device).bool()
    same_shape("special_tokens_mask", special, "input_ids", input_ids)
    maskable = ~special  # (B, T)
    if word_ids is not None:
        word_ids = torch.as_tensor(word_ids, device=device)
        same_shape("word_ids", word_ids, "input_ids", input_ids)
        maskable = maskable & (word_ids >= 0)
    elif by_word:
        raise ValueError(f"strategy={strategy!r} chooses whole words; pass word_ids as well")

    # A single random number u per token, or per word, decides everything. If u is below `rate`, the
    # token is chosen. The place of u between 0 and `rate` then decides what becomes of the token.
    # With BERT's values:
    #
    #     0                          0.12       0.135      0.15                     1
    #     |---------- [MASK] ----------|- random -|-- kept --|------ not chosen ------|
    if by_word:
        index, is_word = number_words(word_ids, maskable)  # (B, T), (B, W)
        u = draw(is_word, rate, generator).gather(1, index)  # each token gets the u of its word
    else:
        u = draw(maskable, rate, generator)  # (B, T)
    tokens = input_ids.flatten()
    chosen = true_positions((u < rate) & maskable)  # (N,) positions in the flattened batch
    u, originals = u.take(chosen), tokens.take(chosen)  # (N,) each

    # The labels come first: the original ids are copied before anything is masked.
    labels = torch.full_like(tokens, IGNORE).scatter_(0, chosen, originals)

    # u below rate · mask_share, which is 0.12 for BERT: the token becomes [MASK].
    corrupted = originals.masked_fill(u < rate * mask_share, mask_token_id)
    # u between this and rate · (mask_share + random_share), which is 0.135 for BERT: the token
    # becomes a random token.
    if random_share > 0:
        end = rate * (mask_share + random_share)
        replaced = true_positions((u >= rate * mask_share) & (u < end))
        shape, options = replaced.shape, {"generator": generator, "device": device}
        pick = torch.randint(len(random_token_ids), shape, **options)
        corrupted[replaced] = random_token_ids[pick].to(corrupted.dtype)
    # u between this and rate, which is 0.15 for BERT: the token stays as it is.
    masked = tokens.scatter(0, chosen, corrupted)
    return masked.view(input_ids.shape), labels.view(input_ids.shape)


def true_positions(mask):
    """The positions at which a mask is true, as indices into the flattened mask.

    The position in row b and column t has the index b·T + t. On a CPU numpy finds the positions
    four times as fast as torch does.

    Args:
        mask: (B, T) bool.

    Returns:
        The indices in rising order, a tensor (N,) long.
    """
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero().squeeze(1)


def number_words(word_ids, maskable):
    """Number the words of each row from 0, so that random numbers can be drawn per word.

    A token starts a new word if its number in `word_ids` differs from the number of its left
    neighbour, or if the left neighbour must not be chosen.

    Args:
        word_ids: (B, T), equal at neighbouring tokens of one word.
        maskable: (B, T) bool, true at tokens that may be chosen.

    Returns:
        index (B, T) long, the number of each token's word, and is_word (B, W) bool, true at [b, w]
        if row b has a word with the number w. W is the largest number of words in a row. The
        `index` has no meaning at tokens that must not be chosen.
    """
    starts = maskable.clone()  # (B, T), true at the first token of each word
    starts[:, 1:] &= (word_ids[:, 1:] != word_ids[:, :-1]) | ~maskable[:, :-1]
    index = starts.cumsum(1).sub_(1)  # (B, T), −1 before the first word of a row
    last = index[:, -1:]  # (B, 1)
    is_word = torch.arange(max(1, int(last.max()) + 1), device=index.device) <= last  # (B, W)
    return index.clamp_(min=0), is_word


# ------------------------------------------------------------------------------------ strategies


def draw_independently(maskable, rate, generator):
    """Choose each token, or each word, with probability `rate`, independently of the others.

    Arguments and result are those of `Strategy.draw`.
    """
    return torch.rand(maskable.shape, generator=generator, device=maskable.device)


# SpanBERT's geometric distribution of lengths, cut off at ten words. The mean length is 3.8.
SPAN_P, SPAN_MAX = 0.2, 10


def draw_spans(maskable, rate, generator):
    """Choose spans of neighbouring words, so that each word is chosen with probability `rate`.

    SpanBERT draws spans until 15% of a text is covered. Here each word may start a span, with a
    probability that is set so that each word is covered with probability exactly `rate` (see
    `span_distribution`). Arguments and result are those of `Strategy.draw`.
    """
    rows, words = maskable.shape
    options = {"generator": generator, "device": maskable.device}
    u = torch.rand(maskable.shape, **options)  # (B, W)
    start_probability, cumulative = span_distribution(rate)
    # 1. A span may start at any word, and also at nine imagined words before the row. Without
    #    these, fewer spans would reach the first words of a row than the words in the middle.
    wide = (rows, words + SPAN_MAX - 1)
    starts = torch.rand(wide, **options) < start_probability
    # 2. The length of each span, by inverse transform sampling: a uniform number is looked up in
    #    the cumulative distribution of the lengths.
    uniform = torch.rand(wide, **options)
    lengths = 1 + torch.bucketize(uniform, cumulative.to(maskable.device))
    # 3. A word is covered if a span that started at this word or before ends after this word.
    place = torch.arange(wide[1], device=maskable.device)
    ends = torch.where(starts, place + lengths, 0)  # the first word after the span
    covered = (ends.cummax(1).values > place)[:, SPAN_MAX - 1 :]  # (B, W)
    # The spans decide which words are chosen. So u, scaled to 0..rate, decides only whether a
    # chosen word is masked, replaced or kept.
    return torch.where(covered, u * rate, 1.0)


@lru_cache
def span_distribution(rate):
    """The probability that a span starts at a word, and the distribution of span lengths.

    Take one word. A span starts at the word itself, or at any of the nine words before it, with
    probability s each. A span that starts k words before the word reaches it if the length of the
    span is larger than k. The word stays visible if no span reaches it. So s must solve::

        1 − rate = Π_k (1 − s · P(length > k)),   k = 0, …, 9.

    The right side falls as s rises, so s is found by bisection.

    >>> start_probability, cumulative = span_distribution(0.15)
    >>> round(start_probability, 4), [round(p, 2) for p in cumulative.tolist()[:3]]
    (0.0422, [0.22, 0.4, 0.55])

    Args:
        rate: the probability with which each word is covered by a span.

    Returns:
        s, a float, and the cumulative distribution of the lengths, a tensor (9,) of P(length ≤ 1)
        to P(length ≤ 9).
    """
    weights = [(1 - SPAN_P) ** k for k in range(SPAN_MAX)]
    longer = [sum(weights[k:]) / sum(weights) for k in range(SPAN_MAX)]  # P(length > k)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        covered = 1 - math.prod(1 - middle * p for p in longer)
        low, high = (middle, high) if covered < rate else (low, middle)
    return high, torch.tensor([1 - p for p in longer[1:]])


class Strategy(NamedTuple):
    """A way to choose the tokens of a batch that are to be predicted: an entry of `STRATEGIES`.

    Args:
        draw: a function `draw(maskable, rate, generator)` that returns a random number u for each
            token as a float tensor of the shape of `maskable`. A token is chosen where u < rate.
            For a chosen token u must be uniform in 0..rate, because the value of u also decides
            whether the token is masked, replaced or kept. The argument `maskable` is (B, T) bool,
            true at tokens that may be chosen; u does not matter at the other tokens. `generator` is
            a `torch.Generator` or None.
        by_word: whether words are chosen instead of tokens. If so, `maskable` and u are (B, W),
            with one column for each word of a row, and all tokens of a word share its u.
    """

    draw: Callable
    by_word: bool = False


# The keys are the values of the argument `strategy`. A new way of choosing is one more line here.
STRATEGIES = {
    "token": Strategy(draw_independently),
    "whole_word": Strategy(draw_independently, by_word=True),
    "span": Strategy(draw_spans, by_word=True),
}


# ------------------------------------------------------------------------------------ batches


def marks_pieces(tokenizer):
    """Whether a tokenizer writes ## before the later pieces of a word, as WordPiece does.

    For a transformers tokenizer, the algorithm of the tokenizer decides (`WordPiece`, `BPE` and so
    on). It is not enough to search the vocabulary for ##, because other vocabularies may contain ##
    as an ordinary token, for example from headings in Markdown.

    Args:
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is None or type(backend.model).__name__ == "WordPiece"


class MaskingCollator:
    """Turn a list of encoded texts into a padded and masked batch; the `collate_fn` for training.

    Each call draws new masks, so every epoch sees other masks (dynamic masking, as in RoBERTa).

    Two collators with the same `seed` draw the same masks for their first batches, for their second
    batches, and so on. The workers of a `DataLoader` are new processes in each
    epoch, and each of them counts its batches from 0 again. Therefore the masks of a worker also
    depend on the seed that the `DataLoader` draws for its workers with torch's global generator.

    If `set_epoch(epoch)` is called before each epoch, the masks depend only on `seed`, on the epoch
    and on the number of the batch. The masks are then the same with any number of workers, unless
    the workers are persistent.

    >>> from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
    >>> vocabulary = [*SPECIAL_TOKENS, "a", "good", "film"]
    >>> tokenizer = WordPieceTokenizer({token: index for index, token in enumerate(vocabulary)})
    >>> collate = MaskingCollator(tokenizer, rate=0.5, seed=0)
    >>> batch = collate([tokenizer.encode("a good film"), tokenizer.encode("good")])
    >>> {name: tuple(field.shape) for name, field in batch.items()}
    {'input_ids': (2, 5), 'attention_mask': (2, 5), 'labels': (2, 5)}

    Args:
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        rate, mask_share, random_share: as in `mask_tokens`.
        strategy: a key of `STRATEGIES`, such as "token". A strategy that chooses whole words needs
            a tokenizer that marks the pieces of words with ##.
        pad_to_multiple_of: round the length of the batch up to a multiple of this number. 8 is a
            good value on a GPU, whose matrix units are faster with such lengths. None: the batch is
            as long as its longest example.
        seed: a whole number. None: torch's global generator draws the masks.

    Call the collator with a non-empty list of examples. An example is a list of ids, or a
    dictionary with `input_ids` and optionally `attention_mask`, `token_type_ids` and
    `special_tokens_mask`; other keys are ignored. Tensors and arrays may stand in place of lists.
    The result is a dictionary of `input_ids`, `attention_mask`, `labels` (and `token_type_ids`, if
    given), each a long tensor (B, T).

    Raises:
        ValueError: the tokenizer has no `[MASK]` or no `[PAD]`, or lacks the ## pieces that the
            strategy needs; a rate, share, strategy or seed is invalid; an example is empty; the
            fields of an example differ in length; an id is outside of the vocabulary; an attention
            mask contains a number that is neither 0 nor 1.
    """

    def __init__(
        self, tokenizer, *, rate=0.15, mask_share=0.8, random_share=0.1, strategy="token",
        pad_to_multiple_of=None, seed=None,
    ):  # fmt: skip
        self.rate = probability("rate", rate)
        self.mask_share, self.random_share = shares(mask_share, random_share)
        self.strategy = choice("strategy", strategy, STRATEGIES)
        self.pad_to_multiple_of = whole_number("pad_to_multiple_of", pad_to_multiple_of, none=True)
        self.seed = whole_number("seed", seed, least=None, none=True)
        self.mask_token_id = whole_number("mask_token_id", tokenizer.mask_token_id, 0)
        self.pad_token_id = whole_number("pad_token_id", tokenizer.pad_token_id, 0)

        # Two tables over the vocabulary, so that one indexing operation finds the special tokens,
        # or the ## pieces, of a whole batch.
        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        special = sorted(set(tokenizer.all_special_ids))
        self.is_special = torch.zeros(max(vocab.values()) + 1, dtype=torch.bool)  # (V,)
        self.is_special[special] = True
        self.is_continuation = torch.zeros_like(self.is_special)  # (V,), true at ## pieces
        pieces = [index for token, index in vocab.items() if token.startswith("##")]
        self.is_continuation[pieces] = True
        self.random_token_ids = torch.tensor(sorted(set(vocab.values()).difference(special)))
        self.by_word = STRATEGIES[self.strategy].by_word
        if self.by_word and not (marks_pieces(tokenizer) and self.is_continuation.any()):
            raise ValueError(f"strategy={strategy!r} needs the ## pieces of WordPiece")
        entries = repr(sorted(vocab.items())).encode()
        self.vocabulary = hashlib.blake2b(entries, digest_size=8).hexdigest()
        self.epoch, self.batches, self.epoch_is_set = 0, 0, False

    def set_epoch(self, epoch):
        """Start an epoch: its batches are counted from 0.

        Call this method before each epoch, or never. If it is never called, each epoch still gets
        new masks: the count of batches goes on from epoch to epoch, or, in the workers of a
        `DataLoader`, the masks also depend on the seed that the loader draws for the epoch.
        """
        self.epoch, self.batches, self.epoch_is_set = epoch, 0, True

    def prepare(self, examples):
        """Pad a list of examples, without masking them.

        Returns:
            fields, a dictionary of the padded fields, each a long tensor (B, T); and special (B, T)
            bool, true at special tokens and padding, which must not be masked.

        Raises:
            ValueError: in the same cases as a call of the collator.
        """
        fields = pad_examples(examples, self.pad_token_id, multiple=self.pad_to_multiple_of)
        input_ids = ids("input_ids", fields["input_ids"], size=len(self.is_special))  # (B, T)
        fields.setdefault("attention_mask", (input_ids != self.pad_token_id).long())
        special = self.is_special[input_ids]
        special |= ~real_mask("attention_mask", fields["attention_mask"], "input_ids", input_ids)
        if "special_tokens_mask" in fields:
            special |= fields.pop("special_tokens_mask").bool()
        return fields, special

    def __call__(self, examples):
        """Pad and mask a list of examples; see the description of the class."""
        fields, special = self.prepare(examples)
        input_ids, word_ids = fields["input_ids"], None  # (B, T)
        if self.by_word:  # a new word starts at each token that does not continue a word
            word_ids = (~self.is_continuation[input_ids]).cumsum(1)
        fields["input_ids"], fields["labels"] = mask_tokens(
            input_ids, mask_token_id=self.mask_token_id, random_token_ids=self.random_token_ids,
            special_tokens_mask=special, rate=self.rate, mask_share=self.mask_share,
            random_share=self.random_share, word_ids=word_ids, strategy=self.strategy,
            generator=self.next_generator(),
        )  # fmt: skip
        return fields

    def next_generator(self):
        """The `torch.Generator` of the next batch, or None for a collator without a seed.

        Its seed is a hash of the collator's seed, of the epoch and of the number of the batch. In
        the worker of a `DataLoader`, if `set_epoch` was not called, the hash also contains the seed
        that the loader drew for this epoch. Each call counts one batch.
        """
        if self.seed is None:
            return None
        worker, epoch, batch = get_worker_info(), self.epoch, self.batches
        if worker is not None:  # a DataLoader gives batch 0 to worker 0, batch 1 to worker 1, …
            batch = batch * worker.num_workers + worker.id
            if not self.epoch_is_set:  # the loader draws this difference anew for each epoch
                epoch = f"{epoch} {worker.seed - worker.id}"
        self.batches += 1
        name = f"{self.seed} {epoch} {batch}".encode()
        digest = hashlib.blake2b(name, digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)

    def fingerprint(self):
        """The settings that decide the masks, as a dictionary of plain values.

        A run that is resumed compares this dictionary with the one that was saved, because other
        settings would give other masks.
        """
        names = ("rate", "mask_share", "random_share", "strategy", "pad_to_multiple_of", "seed")
        names += ("mask_token_id", "pad_token_id", "vocabulary")
        return {name: getattr(self, name) for name in names}

    def state_dict(self):
        """The epoch and the number of batches made in it, to be saved with a run."""
        return {"epoch": self.epoch, "batches": self.batches}

    def load_state_dict(self, state):
        """Continue with the batch that follows a saved state, and with its masks."""
        self.epoch, self.batches = state["epoch"], state["batches"]
