"""Choose positions, clone the labels, corrupt the input. Built in lessons 02 and 03.

Sources: Devlin et al. 2019 (15%, 80/10/10), the whole-word release of BERT (2019), Joshi et al. 2020 (SpanBERT).
"""

import hashlib
import math
import os
from array import array
from collections.abc import Mapping
from functools import lru_cache
from numbers import Integral, Real

import numpy as np
import torch

from mlm_lib.losses import IGNORE

_EPOCHS = 4096
STRATEGIES = ("token", "whole_word", "span")
_ID_TYPES = (torch.int64, torch.int32)
SPAN_P, SPAN_MAX = 0.2, 10  # SpanBERT's lengths: geometric, at most ten words, 3.8 on average


def mask_tokens(
    input_ids, *, mask_token_id, random_token_ids, special_tokens_mask,
    rate=0.15, mask_share=0.8, random_share=0.1, word_ids=None, spans=False, generator=None,
):  # fmt: skip
    """Hide a share of the tokens and return what was hidden as labels.

    Every position outside `special_tokens_mask` is chosen with probability `rate`. Of the chosen, `mask_share`
    become `[MASK]`, `random_share` become a random token, and the rest stay as they are; all of them keep a label.

    With `word_ids` whole words are chosen, and the 80/10/10 rule holds per word: all the pieces of a word are masked,
    or all are replaced (each by its own random token), or all are kept. With `spans` runs of words are chosen, with
    SpanBERT's lengths; a word's chance is still exactly `rate`, and the rule still holds per word.

    Args:
        input_ids: (B, T) signed integers. Never changed.
        mask_token_id: the id of `[MASK]`.
        random_token_ids: (R,) the ids to draw replacements from; leave the special tokens out of it.
        special_tokens_mask: (B, T), true where a token must not be chosen: special tokens and padding.
        word_ids: (B, T), equal for neighbours that belong to one word, −1 outside words.
        spans: choose runs of neighbouring words; needs `word_ids`.
        generator: a `torch.Generator` on the device of `input_ids`; the global one if None.

    Returns:
        (input_ids, labels), both (B, T) and new; labels are −100 where nothing was chosen.

    Raises:
        ValueError: a rate or share not in 0..1, shares that sum above 1, an empty batch, ids of a type that cannot hold
            −100, shapes that differ, a negative `mask_token_id`, no replacements, or `[MASK]` among them.
    """
    _check_rates(rate, mask_share, random_share)
    if not isinstance(input_ids, torch.Tensor) or special_tokens_mask is None:
        raise ValueError(
            f"input_ids is a {type(input_ids).__name__} and special_tokens_mask a {type(special_tokens_mask).__name__}; "
            "pass tensors of one shape (B, T)"
        )
    if input_ids.dim() != 2 or input_ids.numel() == 0:
        raise ValueError(
            f"input_ids has the shape {tuple(input_ids.shape)}; a batch (B, T) with at least one token is needed"
        )
    if input_ids.dtype not in _ID_TYPES:
        raise ValueError(
            f"input_ids is {input_ids.dtype}; token ids are signed integers, such as torch.long"
        )
    blocked = torch.as_tensor(special_tokens_mask, device=input_ids.device).bool()
    if blocked.shape != input_ids.shape:
        raise ValueError(
            f"special_tokens_mask is {tuple(blocked.shape)}, input_ids {tuple(input_ids.shape)}; they must agree"
        )
    random_token_ids = torch.as_tensor(random_token_ids, device=input_ids.device)
    if mask_token_id is None or mask_token_id < 0:
        raise ValueError(f"mask_token_id is {mask_token_id}; token ids start at 0")
    if random_token_ids.numel() == 0:
        if random_share > 0:
            raise ValueError(f"random_share is {random_share}, but random_token_ids is empty")
    elif (
        random_token_ids.dim() != 1
        or random_token_ids.dtype not in _ID_TYPES
        or int(random_token_ids.min()) < 0
    ):
        raise ValueError(
            f"random_token_ids is {random_token_ids.dtype} {tuple(random_token_ids.shape)} from "
            f"{random_token_ids.min().item()}; pass a list of token ids, each 0 or more"
        )
    if (random_token_ids == mask_token_id).any():
        raise ValueError(
            f"random_token_ids holds {mask_token_id}, the id of [MASK]; pass ordinary tokens only"
        )

    # One uniform number per token (or per word) decides everything: below `rate` it is chosen, and where below
    # `rate` it falls says what becomes of it.
    if word_ids is None:
        if spans:
            raise ValueError("spans are runs of words; pass word_ids as well")
        draws = torch.rand(input_ids.shape, generator=generator, device=input_ids.device)  # (B, T)
    else:
        word_ids = torch.as_tensor(word_ids, device=input_ids.device)
        if word_ids.shape != input_ids.shape:
            raise ValueError(
                f"word_ids is {tuple(word_ids.shape)}, input_ids {tuple(input_ids.shape)}; they must agree"
            )
        blocked = blocked | (word_ids < 0)
        draws = _draw_per_word(word_ids, blocked, rate, spans, generator)
    chosen = _places((draws < rate) & ~blocked)  # (S,) in the batch laid out flat
    draws, tokens = draws.take(chosen), input_ids.flatten()
    masked, labels = tokens.clone(), torch.full_like(tokens, IGNORE)
    labels[chosen] = answers = tokens[chosen]  # before anything is hidden
    corrupted = answers.masked_fill(draws < rate * mask_share, mask_token_id)
    if random_share > 0:
        swapped = _places(
            (draws >= rate * mask_share) & (draws < rate * (mask_share + random_share))
        )
        pick = torch.randint(
            random_token_ids.numel(), swapped.shape, generator=generator, device=swapped.device
        )
        corrupted[swapped] = random_token_ids[pick].to(corrupted.dtype)
    masked[chosen] = corrupted
    return masked.view(input_ids.shape), labels.view(input_ids.shape)


def _places(mask):
    """Where a mask is true, counted through its rows. On a CPU numpy finds them four times as fast as torch."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero().squeeze(1)


def _check_rates(rate, mask_share, random_share):
    for name, value in (("rate", rate), ("mask_share", mask_share), ("random_share", random_share)):
        if not (isinstance(value, Real) and 0 <= value <= 1):  # NaN fails this too
            raise ValueError(f"{name} is {value!r}; it must be a number between 0 and 1")
    if mask_share + random_share > 1 + 1e-9:
        raise ValueError(
            f"mask_share {mask_share} and random_share {random_share} sum to more than 1"
        )


def _draw_per_word(word_ids, blocked, rate, spans, generator):
    """A uniform number per word, spread over its pieces. (B, T)"""
    starts = torch.ones_like(blocked)
    starts[:, 1:] = (word_ids[:, 1:] != word_ids[:, :-1]) | blocked[:, :-1]
    index = (
        (starts & ~blocked).cumsum(1).sub_(1).clamp_(min=0)
    )  # (B, T) the word's number in its row
    shape = (index.shape[0], int(index.max()) + 1)  # (B, W)
    draws = torch.rand(shape, generator=generator, device=index.device)
    if spans:
        draws = torch.where(_cover(shape, rate, generator, index.device), draws * rate, 1.0)
    return draws.gather(1, index)


def _cover(shape, rate, generator, device):
    """Which words lie in a span. Spans start anywhere, also before the row, so that every word's chance is `rate`."""
    rows, words = shape
    start_chance, cumulative = _span_law(rate)
    wide = (rows, words + SPAN_MAX - 1)
    starts = torch.rand(wide, generator=generator, device=device) < start_chance
    lengths = 1 + torch.bucketize(
        torch.rand(wide, generator=generator, device=device), cumulative.to(device)
    )
    place = torch.arange(wide[1], device=device)
    ends = torch.where(starts, place + lengths, 0)  # the first word after the span
    return (ends.cummax(1).values > place)[:, SPAN_MAX - 1 :]  # (B, W)


@lru_cache
def _span_law(rate):
    """The chance to start a span at a word that covers each word with probability `rate`, and the lengths' law."""
    weights = [(1 - SPAN_P) ** k for k in range(SPAN_MAX)]
    reach = [sum(weights[k:]) / sum(weights) for k in range(SPAN_MAX)]  # P(length > k)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        covered = 1 - math.prod(1 - middle * p for p in reach)
        low, high = (middle, high) if covered < rate else (low, middle)
    return high, torch.tensor([1 - p for p in reach[1:]])


# ---------------------------------------------------------------------------------------- the four label formats


def labels_to_positions(labels, max_masks=None):
    """−100 labels to KerasHub's format: where the labels are, what they are, and which of these slots are in use.

    Args:
        labels: (B, T), −100 where there is none.
        max_masks: M; by default the largest number of labels in a row.

    Returns:
        mask_positions, mask_ids (B, M) long and mask_weights (B, M) float. Unused slots are 0 with weight 0.

    Raises:
        ValueError: a row with more than max_masks labels. Dropping some would change the loss without a word.
    """
    if labels.dim() != 2:
        raise ValueError(f"labels have the shape {tuple(labels.shape)}; a batch (B, T) is needed")
    has_label = labels != IGNORE  # (B, T)
    counts = has_label.sum(1)
    most = int(counts.max()) if len(counts) else 0
    if max_masks is None:
        max_masks = most
    elif most > max_masks:
        raise ValueError(
            f"a row has {most} labels, and max_masks is {max_masks}; raise it to {most}"
        )
    rows, columns = has_label.nonzero(as_tuple=True)
    slots = has_label.cumsum(1)[rows, columns] - 1
    shape = (labels.shape[0], max_masks)
    positions, ids = (torch.zeros(shape, dtype=torch.long, device=labels.device) for _ in range(2))
    positions[rows, slots] = columns
    ids[rows, slots] = labels[rows, columns].long()
    weights = (torch.arange(max_masks, device=labels.device) < counts[:, None]).float()
    return positions, ids, weights  # each (B, M)


def positions_to_labels(mask_positions, mask_ids, mask_weights, length):
    """The way back: (B, length) labels, −100 except at the positions of weight above 0.

    Raises:
        ValueError: a used position outside 0..length−1, or two used slots of a row that name the same position.
    """
    used = mask_weights > 0  # (B, M)
    outside = used & ((mask_positions < 0) | (mask_positions >= length))
    if outside.any():
        raise ValueError(
            f"mask_positions holds {mask_positions[outside][0].item()}, outside 0..{length - 1}"
        )
    rows, slots = used.nonzero(as_tuple=True)
    columns = mask_positions[rows, slots]
    labels = torch.full(
        (mask_positions.shape[0], length), IGNORE, dtype=torch.long, device=mask_positions.device
    )
    labels[rows, columns] = mask_ids[rows, slots].long()
    places, counts = (rows * length + columns).unique(return_counts=True)
    if (counts > 1).any():
        twice = places[counts > 1][0].item() % length
        raise ValueError(f"two slots of a row name position {twice}, so one label would be lost")
    return labels


def labels_to_targets(labels, max_masks=None):
    """−100 labels to AllenNLP's format: mask_positions and target_ids, both (B, M), −100 in unused slots."""
    positions, ids, weights = labels_to_positions(labels, max_masks)
    return positions, ids.masked_fill(weights == 0, IGNORE)


def targets_to_labels(mask_positions, target_ids, length):
    """The way back from `labels_to_targets`."""
    return positions_to_labels(mask_positions, target_ids, (target_ids != IGNORE).float(), length)


def labels_to_minus_one(labels):
    """−100 labels to those of older code (transformers before 2020, and TensorFlow's), where −1 means no label."""
    return labels.masked_fill(labels == IGNORE, -1)


def minus_one_to_labels(labels):
    """The way back from `labels_to_minus_one`."""
    return labels.masked_fill(labels == -1, IGNORE)


# ---------------------------------------------------------------------------------------- batches


class MaskingCollator:
    """Turn a list of encoded texts into a padded, freshly masked batch. Works as a DataLoader's `collate_fn`.

    With a `seed` the masks depend on it and on which batch of which epoch this is, and on nothing else: the first epoch
    has the same masks with any number of DataLoader workers, each later epoch has new ones, and a second run repeats
    them all. (Without workers the batches are counted on and on; with them, from 0 in each epoch.)

    Args:
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        strategy: `"token"`, `"whole_word"` or `"span"`; the latter two find words by their `##` pieces.
        pad_to_multiple_of: round the batch's length up; 8 suits tensor cores.

    Call it with a non-empty list of id lists, or of dicts with `input_ids` and, if you like, `attention_mask`,
    `token_type_ids` and `special_tokens_mask`; other keys are left out. Tensors and arrays serve as well as lists. It
    returns `input_ids`, `attention_mask`, `labels` (and `token_type_ids` where given), each (B, T) long.

    Raises:
        ValueError: a tokenizer without `[MASK]` or `[PAD]`, a bad rate, share, strategy or seed, an empty batch or example,
            fields that some examples lack or that differ in length, an id outside the vocabulary.
    """

    def __init__(
        self, tokenizer, *, rate=0.15, mask_share=0.8, random_share=0.1, strategy="token",
        pad_to_multiple_of=None, seed=None,
    ):  # fmt: skip
        _check_rates(rate, mask_share, random_share)
        for name in ("mask", "pad"):
            if getattr(tokenizer, f"{name}_token_id", None) is None:
                raise ValueError(
                    f"this {type(tokenizer).__name__} has no [{name.upper()}] token; add one to its vocabulary"
                )
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy is {strategy!r}; choose one of {', '.join(STRATEGIES)}")
        if pad_to_multiple_of is not None and pad_to_multiple_of < 1:
            raise ValueError(f"pad_to_multiple_of is {pad_to_multiple_of}; it must be 1 or more")
        if not isinstance(seed, Integral | None):
            raise ValueError(f"seed is {seed!r}; a whole number or None is needed")
        self.rate, self.mask_share, self.random_share, self.strategy = (
            rate,
            mask_share,
            random_share,
            strategy,
        )
        self.pad_to_multiple_of, self.seed = pad_to_multiple_of, None if seed is None else int(seed)
        self.mask_token_id, self.pad_token_id = tokenizer.mask_token_id, tokenizer.pad_token_id

        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        size = max(vocab.values()) + 1
        special = sorted(set(tokenizer.all_special_ids))
        # Looking a token up in a table is how special tokens and word pieces are found in a whole batch at once.
        self.is_special = torch.zeros(size, dtype=torch.bool)
        self.is_special[special] = True
        self.random_token_ids = torch.tensor(sorted(set(vocab.values()).difference(special)))
        self.continues = torch.zeros(size, dtype=torch.bool)
        self.continues[[index for token, index in vocab.items() if token.startswith("##")]] = True
        model = type(
            getattr(tokenizer, "backend_tokenizer", None) and tokenizer.backend_tokenizer.model
        ).__name__
        if strategy != "token" and (
            model not in ("NoneType", "WordPiece") or not self.continues.any()
        ):
            raise ValueError(
                f"strategy {strategy!r} finds words by the ## pieces of WordPiece, and this vocabulary has none"
            )
        self._process, self._calls, self._epoch = os.getpid(), 0, 0
        # Each epoch's workers are new processes. What outlives them is this list of epochs, known by their base seed.
        self._epochs = torch.zeros(_EPOCHS, dtype=torch.long).share_memory_()

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._epochs.share_memory_()  # a copy or an unpickled collator has its own, and shares it in turn

    def __call__(self, examples):
        if isinstance(examples, Mapping):
            raise ValueError(
                "a dict of columns was passed; a batch is a list of examples, as a DataLoader gives it"
            )
        if len(examples) == 0:
            raise ValueError("the batch is empty; pass at least one example")
        fields = self._pad(examples)
        input_ids = fields["input_ids"]
        if int(input_ids.min()) < 0 or int(input_ids.max()) >= len(self.is_special):
            wrong = input_ids[(input_ids < 0) | (input_ids >= len(self.is_special))][0].item()
            raise ValueError(
                f"id {wrong} is outside the vocabulary of {len(self.is_special)} tokens"
            )
        blocked = self.is_special[input_ids]
        if "special_tokens_mask" in fields:
            blocked |= fields.pop("special_tokens_mask").bool()
        fields.setdefault("attention_mask", (input_ids != self.pad_token_id).long())
        blocked |= fields["attention_mask"] == 0
        word_ids = None if self.strategy == "token" else (~self.continues[input_ids]).cumsum(1)
        fields["input_ids"], fields["labels"] = mask_tokens(
            input_ids, mask_token_id=self.mask_token_id, random_token_ids=self.random_token_ids,
            special_tokens_mask=blocked, rate=self.rate, mask_share=self.mask_share, random_share=self.random_share,
            word_ids=word_ids, spans=self.strategy == "span", generator=self._next_generator(),
        )  # fmt: skip
        return fields

    def state_dict(self):
        """How many batches were made, so that a later run can go on with the next one's masks."""
        return {"batches": self._calls}

    def load_state_dict(self, state):
        """Goes on after the batches of `state`."""
        self._calls = state["batches"]

    def _pad(self, examples):
        """Rows of unequal length to (B, T) tensors, one for each field."""
        examples = [
            example if isinstance(example, Mapping) else {"input_ids": example}
            for example in examples
        ]
        fillers = {
            "input_ids": self.pad_token_id,
            "attention_mask": 0,
            "token_type_ids": 0,
            "special_tokens_mask": 1,
        }
        fields, lengths = {}, None
        for name, filler in fillers.items():
            if name != "input_ids" and not any(name in example for example in examples):
                continue
            rows = [_row(example, name, number) for number, example in enumerate(examples)]
            lengths = lengths or [len(row) for row in rows]  # of the input_ids, which come first
            for number, (row, length) in enumerate(zip(rows, lengths)):
                if len(row) != length or length == 0:
                    raise ValueError(
                        f"example {number} has {length} input_ids and {len(row)} {name}; leave empty ones out"
                    )
            multiple = self.pad_to_multiple_of or 1
            width = -(-max(lengths) // multiple) * multiple
            flat = torch.frombuffer(bytearray().join(rows), dtype=torch.long)
            if min(lengths) == width:
                fields[name] = flat.view(len(rows), width)
            else:
                real = torch.arange(width) < torch.tensor(lengths)[:, None]  # (B, T)
                fields[name] = torch.full((len(rows), width), filler).masked_scatter_(real, flat)
        return fields

    def _next_generator(self):
        if self.seed is None:
            return None
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            self._epoch = int(self._epochs.count_nonzero())
        elif self._process != os.getpid():  # a worker that has just begun
            self._process, self._calls = os.getpid(), 0
            self._epoch = self._number_epoch(worker.seed - worker.id)
        # A DataLoader deals its batches out to the workers in turn.
        batch = self._calls if worker is None else self._calls * worker.num_workers + worker.id
        self._calls += 1
        digest = hashlib.blake2b(
            f"{self.seed} {self._epoch} {batch}".encode(), digest_size=8
        ).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)

    def _number_epoch(self, base_seed):
        """The place of this epoch in the list. All its workers write the same seed to the same place, in any order."""
        for epoch, known in enumerate(self._epochs.tolist()):
            if known in (0, base_seed):
                self._epochs[epoch] = base_seed
                return epoch
        return base_seed  # after so many epochs the masks are still new, and depend on torch's seed as well


def _row(example, name, number):
    """One field of one example, as 64-bit integers."""
    if name not in example:
        raise ValueError(
            f"example {number} has no {name}; the examples of a batch need the same fields"
        )
    row = example[name]
    try:
        return array("q", row.tolist() if hasattr(row, "tolist") else row)
    except (TypeError, OverflowError) as error:
        raise ValueError(
            f"example {number}: {name} must be a flat list of whole numbers ({error})"
        ) from None
