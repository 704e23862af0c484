"""Asking a masked language model: hide, read, compare. Built in lesson 12.

It takes our `MaskedLanguageModel` and transformers' `BertForMaskedLM` alike, leaves the model as it
found it, and finds the same whatever the batch size.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from mlm_lib.checks import ids, iterable, shown, string
from mlm_lib.held_out import modes_kept
from mlm_lib.labels import IGNORE
from mlm_lib.padding import pad_examples


class Answers(NamedTuple):
    """A model's answers to N questions, each a hidden token.

    targets: (N,) the hidden tokens.
    nats: (N,) -log P(hidden token | what was seen), float64.
    ranks: (N,) how many tokens it found likelier; 0 is a right first answer.
    rows: (N,) the row that each question stood in, counted over all batches.
    """

    targets: torch.Tensor
    nats: torch.Tensor
    ranks: torch.Tensor
    rows: torch.Tensor


@torch.no_grad()
def masked_answers(model, batches):
    """What a model says at every label of masked batches.

    Args:
        model: ours or transformers'.
        batches: dicts of `input_ids`, `attention_mask` and `labels`, each (B, T), as
            `MaskingCollator` makes them; `HeldOut.batches` are such.

    Returns:
        `Answers`.

    Raises:
        ValueError: no batch, one without labels, no label in any of them or one beyond the model's
            vocabulary, or a model whose scores are not finite.
    """
    found, row = [], 0
    with modes_kept(model):
        model.eval()
        for batch in iterable("batches", batches, "masked batches"):
            if not isinstance(batch, Mapping) or "labels" not in batch:
                have = shown(list(batch) if isinstance(batch, Mapping) else batch)
                raise ValueError(f"batches holds {have}; a list of dicts with labels is needed")
            batch = {name: rows.cpu() for name, rows in batch.items()}
            asked = batch["labels"] != IGNORE  # (B, T)
            if asked.any():
                scores = scores_at(model, batch, asked)  # (N, V)
                targets = ids("labels", batch["labels"][asked], "(N,)", size=scores.shape[1])
                found.append((*judged(scores, targets.long()), asked.nonzero()[:, 0] + row))
            row += len(asked)
    if not found:
        raise ValueError(f"{row} rows without a label; mask more of them, or at a higher rate")
    return Answers(*(torch.cat(part) for part in zip(*found)))


def scores_at(model, batch, asked):
    """(N, V) scores of at least 32 bits on the CPU, at the positions (B, T) that are asked."""
    device = next(model.parameters()).device
    # A model of ours returns these alone when it gets labels, one of transformers all of them.
    labels = torch.where(asked, batch["input_ids"], IGNORE).long()
    batch = {**batch, "labels": labels}
    scores = model(**{name: rows.to(device) for name, rows in batch.items()})["logits"]
    scores = (scores if scores.ndim == 2 else scores[asked.to(device)]).cpu()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    best = scores.amax(-1)  # NaN if any is; −∞ for some tokens is fair, for all of them it is not
    if not best.isfinite().all():
        wrong = best[~best.isfinite()][0].item()
        raise ValueError(f"the model's best score is {wrong}; its weights are broken, load others")
    return scores


def judged(scores, targets):
    """targets, nats and ranks of scores (N, V)."""
    own = scores.gather(1, targets[:, None])  # (N, 1)
    nats = scores.double().logsumexp(-1) - own[:, 0].double()
    # Among equal scores the lower id comes first, lest a model that says nothing be always right.
    before = torch.arange(scores.shape[1]) < targets[:, None]  # (N, V)
    ranks = ((scores > own) | ((scores == own) & before)).sum(-1)
    return targets, nats, ranks


def encoded(model, tokenizer, text):
    """A text's ids, if the model reads as many."""
    row = list(tokenizer.encode(string("text", text)))
    longest = longest_row(model)
    if longest and len(row) > longest:
        told = f"{text[:40]!r}… has {len(row)} tokens, and this model reads {longest}"
        raise ValueError(f"{told}; cut the text")
    return row


def longest_row(model):
    """The most tokens that a model reads, if it tells."""
    ours = getattr(getattr(model, "embedder", None), "config", None)
    theirs = getattr(model, "config", None)
    limit = getattr(ours, "max_length", None)
    return limit or getattr(theirs, "max_position_embeddings", None)


def padded(rows, tokenizer):
    """Rows of ids as `input_ids` and `attention_mask`, each (B, T)."""
    fields = pad_examples(rows, tokenizer.pad_token_id)
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    fields["attention_mask"] = (torch.arange(fields["input_ids"].shape[1]) < lengths).long()
    return fields


@torch.no_grad()
def read(model, fields, asked):
    """`scores_at` of a model in evaluation mode, which keeps the mode it had."""
    with modes_kept(model):
        model.eval()
        return scores_at(model, fields, asked)
