"""Choose positions, clone the labels, corrupt the input. Built in lesson 02.

Sources: Devlin et al. 2019 (15%, 80/10/10), the whole-word release of BERT (2019), Joshi et al.
2020 (SpanBERT's runs of words).
"""

import hashlib
import math
from functools import lru_cache

import numpy as np
import torch
from torch.utils.data import get_worker_info

from mlm_lib.checks import choice, ids, probability, real_mask, same_shape, shares, whole_number
from mlm_lib.engine.padding import pad_examples
from mlm_lib.labels import IGNORE


def mask_tokens(
    input_ids, *, mask_token_id, random_token_ids, special_tokens_mask,
    rate=0.15, mask_share=0.8, random_share=0.1, word_ids=None, spans=False, generator=None,
):  # fmt: skip
    """Hide a share of the tokens and return what was hidden as labels.

    Every position outside `special_tokens_mask` is chosen with probability `rate`. Of the chosen,
    `mask_share` become `[MASK]`, `random_share` become a random token, and the rest stay as they
    are; all of them keep a label.

    With `word_ids` whole words are chosen, and the 80/10/10 rule holds per word: all the pieces of
    a word are masked, or all are replaced (each by its own random token), or all are kept. With
    `spans` runs of words are chosen, with SpanBERT's lengths; a word's chance is still exactly
    `rate`, and the rule still holds per word.

    Args:
        input_ids: (B, T), torch.long or torch.int32. Never changed.
        mask_token_id: the id of `[MASK]`.
        random_token_ids: (R,) the ids to draw replacements from; leave the special tokens out.
        special_tokens_mask: (B, T), true where a token must not be chosen: special tokens, padding.
        word_ids: (B, T), equal for neighbours that belong to one word, −1 outside words.
        spans: choose runs of neighbouring words; needs `word_ids`.
        generator: a `torch.Generator` on the device of `input_ids`; the global one if None.

    Returns:
        (input_ids, labels), both (B, T) and new; labels are −100 where nothing was chosen.

    Raises:
        ValueError: a rate or share not in 0..1, shares that sum above 1, ids of another type,
            negative, or beyond what the type of `input_ids` holds, shapes that differ, `[MASK]`
            among the replacements, spans without words.
    """
    probability("rate", rate)
    shares(mask_share, random_share)
    device, size = input_ids.device, torch.iinfo(input_ids.dtype).max
    draw = {"generator": generator, "device": device}
    ids("input_ids", input_ids, "(B, T)", size=size)
    whole_number("mask_token_id", mask_token_id, 0)
    random_token_ids = torch.as_tensor(random_token_ids, device=device)
    if random_share > 0:
        ids("random_token_ids", random_token_ids, "(R,)", size=size)
        if (random_token_ids == mask_token_id).any():
            raise ValueError(f"random_token_ids holds {mask_token_id}, the id of [MASK]")
    blocked = torch.as_tensor(special_tokens_mask, device=device).bool()
    same_shape("special_tokens_mask", blocked, "input_ids", input_ids)

    # One uniform number u per token (or per word) decides everything: below `rate` it is chosen,
    # and where below `rate` it falls says what becomes of it.
    #
    #     0                          0.12       0.135      0.15                     1
    #     |---------- [MASK] ----------|- random -|-- kept --|------ not chosen ------|
    if word_ids is not None:
        word_ids = torch.as_tensor(word_ids, device=device)
        same_shape("word_ids", word_ids, "input_ids", input_ids)
        blocked = blocked | (word_ids < 0)
        draws = _draw_per_word(word_ids, blocked, rate, spans, generator)  # (B, T)
    elif spans:
        raise ValueError("spans are runs of words; pass word_ids as well")
    else:
        draws = torch.rand(input_ids.shape, **draw)  # (B, T)
    tokens = input_ids.flatten()
    chosen = _places((draws < rate) & ~blocked)  # (S,) in the batch laid out flat
    draws, answers = draws.take(chosen), tokens.take(chosen)

    # Labels first: the answers are cloned before anything is hidden.
    labels = torch.full_like(tokens, IGNORE).scatter_(0, chosen, answers)

    # u in [0, rate · mask_share), for BERT [0, 0.12): [MASK].
    corrupted = answers.masked_fill(draws < rate * mask_share, mask_token_id)
    # u up to rate · (mask_share + random_share), for BERT [0.12, 0.135): a random token.
    if random_share > 0:
        end = rate * (mask_share + random_share)
        swapped = _places((draws >= rate * mask_share) & (draws < end))
        pick = torch.randint(len(random_token_ids), swapped.shape, **draw)
        corrupted[swapped] = random_token_ids[pick].to(corrupted.dtype)
    # u up to rate, for BERT [0.135, 0.15): kept as it is.
    masked = tokens.scatter(0, chosen, corrupted)
    return masked.view(input_ids.shape), labels.view(input_ids.shape)


def _places(mask):
    """Where a mask is true, counted through its rows. On a CPU numpy is four times as fast."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero().squeeze(1)


# ------------------------------------------------------------------------ whole words and spans


def _draw_per_word(word_ids, blocked, rate, spans, generator):
    """A uniform number per word, spread over its pieces. (B, T)"""
    # A word starts where its number differs from its neighbour's, or behind a blocked place.
    starts = torch.ones_like(blocked)
    starts[:, 1:] = (word_ids[:, 1:] != word_ids[:, :-1]) | blocked[:, :-1]
    index = (starts & ~blocked).cumsum(1).sub_(1).clamp_(min=0)  # (B, T) a word's place in its row
    shape = (len(index), int(index.max()) + 1)  # (B, W)
    draws = torch.rand(shape, generator=generator, device=index.device)
    if spans:
        # The choice is made, and what is left of u, spread over [0, rate), says what becomes of it.
        covered = draw_spans(shape, rate, generator=generator, device=index.device)
        draws = torch.where(covered, draws * rate, 1.0)
    return draws.gather(1, index)


SPAN_P, SPAN_MAX = 0.2, 10  # lengths: geometric, at most ten words, 3.8 on average


def draw_spans(shape, rate, *, generator=None, device="cpu"):
    """Which of (B, W) words lie in a span, as bool; each does with probability `rate`.

    SpanBERT draws spans until 15% of a text is covered. Here each word may start one, with a chance
    that covers every word with probability `rate` exactly. A task of lesson 02.
    """
    rows, words = shape
    start_chance, cumulative = span_law(rate)
    # 1. A span may start anywhere, also at the nine words before the row, so that the first word
    #    of a row is reached as often as one in the middle.
    wide = (rows, words + SPAN_MAX - 1)
    starts = torch.rand(wide, generator=generator, device=device) < start_chance
    # 2. Its length: the place of a uniform number in the lengths' cumulative law.
    uniform = torch.rand(wide, generator=generator, device=device)
    lengths = 1 + torch.bucketize(uniform, cumulative.to(device))
    # 3. A word lies in a span if one that has started by then ends after it.
    place = torch.arange(wide[1], device=device)
    ends = torch.where(starts, place + lengths, 0)  # the first word after the span
    return (ends.cummax(1).values > place)[:, SPAN_MAX - 1 :]  # (B, W)


@lru_cache
def span_law(rate):
    """The chance to start a span at a word, and the cumulative law of the lengths 1..9.

    A word is free if none of the spans reaches it that start k = 0..9 words before, each with
    chance s: rate = 1 − Π (1 − s · P(length > k)). The right side rises with s, so halving finds s.

    >>> chance, lengths = span_law(0.15)
    >>> round(chance, 4), [round(share, 2) for share in lengths.tolist()[:3]]
    (0.0422, [0.22, 0.4, 0.55])
    """
    weights = [(1 - SPAN_P) ** k for k in range(SPAN_MAX)]
    reach = [sum(weights[k:]) / sum(weights) for k in range(SPAN_MAX)]  # P(length > k)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        covered = 1 - math.prod(1 - middle * share for share in reach)
        low, high = (middle, high) if covered < rate else (low, middle)
    return high, torch.tensor([1 - share for share in reach[1:]])


# ------------------------------------------------------------------------------------ batches


def marks_pieces(tokenizer):
    """Whether ## stands before what continues a word, as in WordPiece.

    A byte-level vocabulary may hold ## as well, for a heading. transformers tells by a model.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is None or type(backend.model).__name__ == "WordPiece"


class MaskingCollator:
    """Turn a list of encoded texts into a padded, freshly masked batch: a `collate_fn`.

    Each epoch has new masks. A program that is run again with the same `seed` has the same masks
    again, in the collator's first batch, in its second, and so on. The workers of a `DataLoader`
    are new processes in each epoch, and count their batches from 0 again. Therefore their masks
    depend also on the seed that the loader draws for them with torch's generator. If
    `set_epoch(epoch)` is called before each epoch, the masks depend only on `seed`, on the epoch
    and on the number of the batch. They are then the same with any number of workers, unless the
    workers are persistent.

    Args:
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        rate, mask_share, random_share: as in `mask_tokens`.
        strategy: `"token"`, `"whole_word"` or `"span"`; the latter two find words by `##` pieces.
        pad_to_multiple_of: round the batch's length up; 8 suits tensor cores.
        seed: a whole number; with None torch's global generator decides.

    Call it with a non-empty list of id lists, or of dicts with `input_ids` and, if you like,
    `attention_mask`, `token_type_ids` and `special_tokens_mask`; other keys are left out. Tensors
    and arrays serve as well as lists. It returns `input_ids`, `attention_mask`, `labels` (and
    `token_type_ids` where given), each (B, T) long.

    Raises:
        ValueError: a tokenizer without `[MASK]` or `[PAD]`, a bad rate, share, strategy or seed, an
            empty example, fields that differ in length, an id outside the vocabulary, an attention
            mask of other numbers than 0 and 1.
    """

    def __init__(
        self, tokenizer, *, rate=0.15, mask_share=0.8, random_share=0.1, strategy="token",
        pad_to_multiple_of=None, seed=None,
    ):  # fmt: skip
        self.rate = probability("rate", rate)
        self.mask_share, self.random_share = shares(mask_share, random_share)
        self.strategy = choice("strategy", strategy, ("token", "whole_word", "span"))
        self.pad_to_multiple_of = whole_number("pad_to_multiple_of", pad_to_multiple_of, none=True)
        self.seed = whole_number("seed", seed, least=None, none=True)
        self.mask_token_id = whole_number("mask_token_id", tokenizer.mask_token_id, 0)
        self.pad_token_id = whole_number("pad_token_id", tokenizer.pad_token_id, 0)

        # Looking a token up in a table finds special tokens and pieces in a whole batch at once.
        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        special = sorted(set(tokenizer.all_special_ids))
        self.is_special = torch.zeros(max(vocab.values()) + 1, dtype=torch.bool)  # (V,)
        self.is_special[special] = True
        self.random_token_ids = torch.tensor(sorted(set(vocab.values()).difference(special)))
        self.continues = torch.zeros_like(self.is_special)  # (V,) the ## pieces
        self.continues[[index for token, index in vocab.items() if token.startswith("##")]] = True
        if strategy != "token" and not (marks_pieces(tokenizer) and self.continues.any()):
            raise ValueError(f"strategy={strategy!r} needs the ## pieces of WordPiece")
        table = repr(sorted(vocab.items())).encode()
        self.vocabulary = hashlib.blake2b(table, digest_size=8).hexdigest()
        self.epoch, self.batches, self.told = 0, 0, False

    def set_epoch(self, epoch):
        """Begin an epoch: its batches are counted from 0. Call it before each epoch or never."""
        self.epoch, self.batches, self.told = epoch, 0, True

    def prepare(self, examples):
        """The padded fields of a batch, and (B, T) bool, true where nothing may be hidden."""
        fields = pad_examples(examples, self.pad_token_id, multiple=self.pad_to_multiple_of)
        input_ids = ids("input_ids", fields["input_ids"], size=len(self.is_special))  # (B, T)
        fields.setdefault("attention_mask", (input_ids != self.pad_token_id).long())
        blocked = self.is_special[input_ids]
        blocked |= ~real_mask("attention_mask", fields["attention_mask"], "input_ids", input_ids)
        if "special_tokens_mask" in fields:
            blocked |= fields.pop("special_tokens_mask").bool()
        return fields, blocked

    def __call__(self, examples):
        fields, blocked = self.prepare(examples)
        input_ids = fields["input_ids"]  # (B, T)
        # A word's number in its row: one more at each token that does not continue a word.
        word_ids = None if self.strategy == "token" else (~self.continues[input_ids]).cumsum(1)
        fields["input_ids"], fields["labels"] = mask_tokens(
            input_ids, mask_token_id=self.mask_token_id, random_token_ids=self.random_token_ids,
            special_tokens_mask=blocked, rate=self.rate, mask_share=self.mask_share,
            random_share=self.random_share, word_ids=word_ids, spans=self.strategy == "span",
            generator=self.next_generator(),
        )  # fmt: skip
        return fields

    def next_generator(self):
        """The next batch's random numbers, from seed, epoch and batch; without a seed None."""
        if self.seed is None:
            return None
        worker, epoch, batch = get_worker_info(), self.epoch, self.batches
        if worker is not None:  # a DataLoader deals its batches out to the workers in turn
            batch = batch * worker.num_workers + worker.id
            if not self.told:  # by what the loader drew for this epoch and all its workers
                epoch = f"{epoch} {worker.seed - worker.id}"
        self.batches += 1
        name = f"{self.seed} {epoch} {batch}".encode()
        digest = hashlib.blake2b(name, digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)

    def fingerprint(self):
        """What must stay the same between a run and its continuation, as plain values."""
        names = ("rate", "mask_share", "random_share", "strategy", "pad_to_multiple_of", "seed")
        names += ("mask_token_id", "pad_token_id", "vocabulary")
        return {name: getattr(self, name) for name in names}

    def state_dict(self):
        """How many batches were made, so that a later run can go on with the next one's masks."""
        return {"epoch": self.epoch, "batches": self.batches}

    def load_state_dict(self, state):
        """Goes on after the batches of `state`."""
        self.epoch, self.batches = state["epoch"], state["batches"]
