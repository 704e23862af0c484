"""What a masked language model is worth: its losses, its answers, its trust in itself. Lesson 12.

The model is asked once, by `masked_answers`; most measures are a few lines over what it found. All
take our `MaskedLanguageModel` and transformers' `BertForMaskedLM` alike, leave the model as they
found it, and find the same whatever the batch size.
"""

import math
from typing import NamedTuple

import torch

from mlm_lib.checks import ids, iterable, refused, tensor, unicode_text, whole_number
from mlm_lib.engine.padding import pad_examples
from mlm_lib.estimates import Estimate
from mlm_lib.labels import IGNORE
from mlm_lib.masked_lm import tokens_of
from mlm_lib.masking import marks_pieces
from mlm_lib.training import modes_kept

# ------------------------------------------------------------------------------------ answers


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


def masked_answers(model, batches):
    """What a model says at every label of masked batches.

    Args:
        model: ours or transformers'.
        batches: dicts of `input_ids`, `attention_mask` and `labels`, each (B, T), as
            `MaskingCollator` makes them; `HeldOut.batches` are such.

    Returns:
        `Answers`.

    Raises:
        ValueError: no batch, no label in any of them or one beyond the model's vocabulary, or a
            model whose scores are not finite.
    """
    found, row = [], 0
    for batch in batches:
        batch = {name: rows.cpu() for name, rows in batch.items()}
        asked = batch["labels"] != IGNORE  # (B, T)
        if asked.any():
            scores = masked_scores(model, batch, asked)  # (N, V)
            targets = ids("labels", batch["labels"][asked], "(N,)", size=scores.shape[1])
            targets = targets.long()
            rows = asked.nonzero()[:, 0] + row  # (N,)
            found.append((targets, *nats_and_ranks(scores, targets), rows))
        row += len(asked)
    if not found:
        raise ValueError(f"{row} rows without a label; mask more of them, or at a higher rate")
    return Answers(*(torch.cat(part) for part in zip(*found)))


@torch.no_grad()
def masked_scores(model, batch, asked):
    """(N, V) scores of at least 32 bits on the CPU, at the positions (B, T) that are asked."""
    device = next(model.parameters()).device
    # A model of ours returns these alone when it gets labels, one of transformers all of them.
    batch = {**batch, "labels": torch.where(asked, batch["input_ids"], IGNORE).long()}
    with modes_kept(model):
        model.eval()
        scores = model(**{name: rows.to(device) for name, rows in batch.items()})["logits"]
    scores = (scores if scores.ndim == 2 else scores[asked.to(device)]).cpu()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    best = scores.amax(-1)  # NaN if any is; −∞ for some tokens is fair, for all of them it is not
    if not best.isfinite().all():
        raise ValueError("the model's best score is not finite; its weights are broken")
    return scores


def nats_and_ranks(scores, targets):
    """targets, nats and ranks of scores (N, V)."""
    own = scores.gather(1, targets[:, None])  # (N, 1)
    nats = scores.double().logsumexp(-1) - own[:, 0].double()
    # Among equal scores the lower id comes first, lest a model that says nothing be always right.
    before = torch.arange(scores.shape[1]) < targets[:, None]  # (N, V)
    ranks = ((scores > own) | ((scores == own) & before)).sum(-1)
    return nats, ranks


def encode_checked(model, tokenizer, text):
    """A text's ids, if the model knows each of them and reads as many.

    Raises:
        ValueError: a text with a lone surrogate, with more tokens than the model reads, or with a
            token that was added to the tokenizer and not to the model.
    """
    row = list(tokenizer.encode(unicode_text("text", text)))
    check_length(model, f"{text[:40]!r}…", len(row))
    known, last = getattr(_config(model), "vocab_size", math.inf), max(row, default=0)
    if last >= known:
        token = f"{tokens_of(tokenizer, [last])[0]!r} has the id {last}"
        adds = "resize_token_embeddings of transformers adds rows for new tokens"
        raise ValueError(f"{token}, but this model knows {known} tokens only; {adds}")
    return row


def mask_token_of(tokenizer):
    """The id of a tokenizer's mask token, and how that token is written.

    Raises:
        ValueError: the tokenizer has none.
    """
    index = tokenizer.mask_token_id
    if index is None:
        told = "the tokenizer has no mask token; take the tokenizer of a masked language model"
        raise ValueError(told)
    return index, tokens_of(tokenizer, [index])[0]


def _config(model):
    """The configuration of a model, ours or transformers', or None."""
    own = getattr(getattr(model, "embedder", None), "config", None)
    return getattr(model, "config", own)


def check_length(model, name, length):
    """Refuses more tokens than a model reads, if it tells how many those are."""
    named = "max_position_embeddings" if hasattr(model, "config") else "max_length"  # theirs, ours
    longest = getattr(_config(model), named, None)
    if longest and length > longest:
        raise ValueError(f"{name} has {length} tokens; this model reads {longest}")


def pad_rows(rows, tokenizer):
    """Rows of ids as `input_ids` and `attention_mask`, each (B, T)."""
    fields = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows]
    return pad_examples(fields, tokenizer.pad_token_id)


# ------------------------------------------------------------------------------------ measures


class MaskedLoss(Estimate):
    """nats: the mean over hidden tokens. standard_error: of it, by rows. count: hidden tokens."""


def mean_nats(answers):
    """The mean of -log P over all hidden tokens, each counted once, and how sure that number is.

    A mean of batches' means would count tokens of sparsely masked batches more. The standard error
    treats rows as drawn independently and the tokens of a row as one draw (a ratio estimate), since
    what makes one word of a text hard makes others hard.

    Args:
        answers: of `masked_answers`.

    Returns:
        `MaskedLoss`, in nats; its standard error is `inf` where only one row was asked.
    """
    rows = answers.rows.unique(return_inverse=True)[1]
    return MaskedLoss.of_rows(rows.bincount(answers.nats), rows.bincount(), alone=math.inf)


def masked_accuracy(model, batches, *, top_k=1):
    """The share of hidden tokens, from 0 to 1, that are among the model's `top_k` likeliest.

    Args:
        model, batches: as of `masked_answers`.
        top_k: how many guesses count.

    Raises:
        ValueError: as `masked_answers`; a `top_k` below 1.
    """
    top_k = whole_number("top_k", top_k)
    return (masked_answers(model, batches).ranks < top_k).double().mean().item()


class Calibration(NamedTuple):
    """error: the expected calibration error, from 0 to 1. Per bin that holds anything, in rising
    order: the mean confidence, the share of right first answers, and how many answers it holds."""

    error: float
    confidence: torch.Tensor
    accuracy: torch.Tensor
    count: torch.Tensor


def calibration(probabilities, targets, *, bins=15):
    """Is what a model is 70% sure of right in 70% of cases?

    The expected calibration error: answers are sorted by confidence, the largest probability, into
    bins of equal width; the distance of mean confidence and accuracy is averaged over answers.
    Source: Naeini et al. 2015; Guo et al. 2017.

    Args:
        probabilities: (N, V), rows that sum to 1.
        targets: (N,) the right tokens.
        bins: how many of equal width between 0 and 1.

    Returns:
        `Calibration`; bins without an answer are left out.

    Raises:
        ValueError: what is no distribution, targets outside of it, no answers.
    """
    bins = whole_number("bins", bins)
    probabilities = tensor("probabilities", probabilities, "(N, V)").detach().cpu()
    targets = ids("targets", targets.cpu(), "(N,)", size=probabilities.shape[1])
    if not len(targets) or len(targets) != len(probabilities):
        raise refused("targets", targets, "a target for each row, and a row at least,")
    sums = probabilities.sum(-1, dtype=torch.float64)  # (N,)
    rounding = max(1e-3, 2 * torch.finfo(probabilities.dtype).eps)
    if not ((probabilities >= 0).all() and ((sums - 1).abs() < rounding).all()):  # NaN is refused
        raise refused("probabilities", probabilities, "rows of numbers from 0 that sum to 1")
    best, first = probabilities.max(-1)  # (N,)
    best, right = best.double(), (first == targets).double()
    # Bins are open below and closed above. Rounded as the confidences are, 0.2 is not above 1/5.
    ends = torch.arange(1, bins + 1, dtype=torch.float64) / bins
    place = torch.bucketize(best, ends.to(probabilities.dtype).double()).clamp(max=bins - 1)
    count = place.bincount(minlength=bins)
    held = count > 0
    confidence = place.bincount(best, minlength=bins)[held] / count[held]
    accuracy = place.bincount(right, minlength=bins)[held] / count[held]
    error = ((confidence - accuracy).abs() * count[held]).sum() / len(targets)
    return Calibration(error.item(), confidence, accuracy, count[held])


def closed_gap(loss, start, floor):
    """The share of what there is to learn that was learned: 0 at `start`, 1 at the floor.

    >>> closed_gap(2.0, start=4.0, floor=1.5)
    0.8

    Args:
        loss: the model's, in nats.
        start: of a reader who learned nothing, as the entropy of word frequencies.
        floor: of the ideal reader.

    Raises:
        ValueError: a start that is not above the floor.
    """
    if not start > floor:
        raise ValueError(f"start={start} is not above floor={floor}; a start above it is needed")
    return (start - loss) / (start - floor)


# ------------------------------------------------------------------------------------ blanks


def fill_mask(model, tokenizer, text, *, top_k=5, batch_size=32):
    """The likeliest tokens for the blanks of a text, as transformers' `fill-mask` pipeline gives
    them.

    Args:
        model: ours or transformers'.
        tokenizer: ours or transformers'.
        text: a str with one mask token or more, `[MASK]` in most tokenizers; or a list of them.
        top_k: candidates for a blank, at most as many as the model knows tokens.
        batch_size: texts read at once.

    Returns:
        For a text with one blank a list of `top_k` dicts, best first: `score` (its probability),
        `token` (its id), `token_str` and `sequence` (the text with it). For several blanks a list
        of such lists, whose sequences keep the special tokens. For a list of texts a list of both.

    Raises:
        ValueError: a text without a blank, with a lone surrogate, longer than the model reads, or
            with a token that only the tokenizer knows; a `top_k` or a `batch_size` below 1.
    """
    texts = [text] if isinstance(text, str) else list(text)
    top_k, batch_size = whole_number("top_k", top_k), whole_number("batch_size", batch_size)
    rows, (mask, written) = (
        [encode_checked(model, tokenizer, one) for one in texts],
        mask_token_of(tokenizer),
    )
    for one, row in zip(texts, rows):
        if mask not in row:
            raise ValueError(f"{one!r} has no {written}; write it where a word is to be found")
    found = []
    for start in range(0, len(rows), batch_size):
        some = rows[start : start + batch_size]
        fields = pad_rows(some, tokenizer)
        blank = fields["input_ids"] == mask  # (B, T)
        scores = masked_scores(model, fields, blank)  # (N, V)
        best = scores.softmax(-1).topk(min(top_k, scores.shape[-1]))  # (N, k)
        answers = iter(zip(best.values.tolist(), best.indices.tolist()))
        for row in some:
            blanks = [place for place, index in enumerate(row) if index == mask]
            lists = [_candidates(tokenizer, row, blanks, place, *next(answers)) for place in blanks]
            found.append(lists if len(lists) > 1 else lists[0])
    return found[0] if isinstance(text, str) else found


def _candidates(tokenizer, row, blanks, place, scores, tokens):
    """The dicts of one blank."""
    # As the pipeline: beside other blanks special tokens are shown, but for padding.
    hidden = set(tokenizer.all_special_ids) if len(blanks) == 1 else {tokenizer.pad_token_id}
    found = []
    for score, token in zip(scores, tokens):
        filled = [*row[:place], token, *row[place + 1 :]]
        sequence = _text(tokenizer, [index for index in filled if index not in hidden])
        token_str = _text(tokenizer, [token])
        found.append({"score": score, "token": token, "token_str": token_str, "sequence": sequence})
    return found


def _text(tokenizer, row):
    """A row as text, without ids that only the model has: its rows may outnumber the tokens."""
    known = [index for index, token in zip(row, tokens_of(tokenizer, row)) if token is not None]
    return tokenizer.decode(known)


# ------------------------------------------------------------------------- pseudo-log-likelihood


def pseudo_log_likelihood(model, tokenizer, texts, *, whole_word=False, batch_size=64):
    """How likely a masked model finds whole texts: each token is hidden in turn, and log P summed.

    The result is not the probability of a text, because the answers need not agree with one
    another. It is a score to compare texts by (Salazar et al. 2020). A piece of a split word is
    easy to guess from its other pieces, so with `whole_word` the pieces to its right are hidden
    together with it (Kauf and Ivanova 2023). `[UNK]` is scored like any other token: if it were
    left out, an unknown word would cost nothing, and of two texts the one with more unknown words
    would win. `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]` are seen but not scored.

    Args:
        model, tokenizer: ours or transformers'.
        texts: a list of str.
        whole_word: see above; needs WordPiece's `##` pieces.
        batch_size: rows read at once; a text of n tokens makes n rows.

    Returns:
        A list of float, for each text a log-likelihood in nats, at most 0.

    Raises:
        ValueError: one str for a list, a text without a token, with a lone surrogate, longer than
            the model reads, or with a token that only the tokenizer knows; a `batch_size` below 1;
            `whole_word` without WordPiece.
    """
    whole_number("batch_size", batch_size)
    if whole_word and not marks_pieces(tokenizer):
        raise ValueError("whole_word needs the ## pieces of WordPiece, and this tokenizer has none")
    texts = list(iterable("texts", texts, "texts"))
    rows, (mask, _) = (
        [encode_checked(model, tokenizer, text) for text in texts],
        mask_token_of(tokenizer),
    )
    questions = []  # the text's number; from where to where it is hidden; the first is scored
    for which, row in enumerate(rows):
        places = _scored(tokenizer, row)
        if not places:
            raise ValueError(f"text {which}, {texts[which]!r}, has no token to hide; leave it out")
        pieces = [token.startswith("##") for token in tokens_of(tokenizer, row)]
        for place in places:
            end = place + 1
            while whole_word and end < len(row) and pieces[end]:
                end += 1
            questions.append((which, place, end))
    questions.sort(key=lambda question: len(rows[question[0]]))  # so that little is padded
    totals = [0.0] * len(texts)
    for start in range(0, len(questions), batch_size):
        which, places, ends = zip(*questions[start : start + batch_size])
        hidden = [list(rows[text]) for text in which]
        for row, place, end in zip(hidden, places, ends):
            row[place:end] = [mask] * (end - place)
        fields = pad_rows(hidden, tokenizer)
        asked = torch.zeros_like(fields["input_ids"], dtype=torch.bool)  # (B, T)
        asked[range(len(places)), places] = True
        targets = torch.tensor([rows[text][place] for text, place in zip(which, places)])
        nats, _ = nats_and_ranks(masked_scores(model, fields, asked), targets)
        for text, nat in zip(which, nats.tolist()):
            totals[text] -= nat
    return totals


def pseudo_perplexity(model, tokenizer, texts, *, whole_word=False, batch_size=64):
    """exp of minus the mean pseudo-log-likelihood of a token, over all texts together.

    So a long text counts for more than a short one. Arguments as of `pseudo_log_likelihood`.

    Raises:
        ValueError: as `pseudo_log_likelihood`.
        ZeroDivisionError: no texts.
    """
    texts = list(iterable("texts", texts, "texts"))
    how = {"whole_word": whole_word, "batch_size": batch_size}
    total = sum(pseudo_log_likelihood(model, tokenizer, texts, **how))
    count = sum(len(_scored(tokenizer, tokenizer.encode(text))) for text in texts)
    return torch.tensor(-total / count, dtype=torch.float64).exp().item()  # inf where it overflows


def _scored(tokenizer, row):
    """The places of a row's own tokens, [UNK] among them."""
    frame = {getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad", "mask")}
    return [place for place, index in enumerate(row) if index not in frame]
