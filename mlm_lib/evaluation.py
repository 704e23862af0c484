"""Measuring a masked language model: loss, accuracy, calibration, filled blanks, whole texts.

`masked_answers` runs the model once over masked batches, and most measures need only a few lines of
code on the result. Every function with an argument `model` accepts both our `MaskedLanguageModel`
and the masked language models of transformers, such as `BertForMaskedLM`. Such a function evaluates
with dropout off, leaves the model in the mode in which it was (training or evaluation), and gives
the same result for every batch size. A `tokenizer` is a `WordPieceTokenizer` or a tokenizer of
transformers. Losses are in nats, that is, they are computed with the natural logarithm. Built in
lesson 13.
"""

import math
from typing import NamedTuple

import torch

from mlm_lib.checks import ids, iterable, refused, tensor, unicode_text, whole_number
from mlm_lib.engine.modes import modes_kept
from mlm_lib.engine.padding import pad_examples
from mlm_lib.estimates import Estimate
from mlm_lib.labels import IGNORE
from mlm_lib.masked_lm import tokens_of
from mlm_lib.masking import marks_pieces

# ------------------------------------------------------------------------------------ answers


class Answers(NamedTuple):
    """What a model predicted at N hidden tokens.

    - targets: (N,) the ids of the hidden tokens.
    - nats: (N,) −log P(hidden token | visible tokens), the loss at each hidden token, float64.
    - ranks: (N,) how many tokens of the vocabulary have a higher score than the hidden token, or an
      equal score and a lower id. Rank 0 means that the model's first guess was right.
    - rows: (N,) the index of each hidden token's row; rows are numbered through all batches.
    """

    targets: torch.Tensor
    nats: torch.Tensor
    ranks: torch.Tensor
    rows: torch.Tensor


def masked_answers(model, batches):
    """Runs a model over masked batches, and returns the loss and the rank at each hidden token.

    `mean_nats` and `masked_accuracy` are computed from the result. Any measure for a group of
    hidden tokens, such as the accuracy on rare words, can be computed from it as well.

    Args:
        model: a `MaskedLanguageModel` or a masked language model of transformers.
        batches: an iterable of dictionaries with `input_ids`, `attention_mask` and `labels`, each
            (B, T), as `MaskingCollator` makes them. `HeldOut.batches` is such a list.

    Returns:
        `Answers`, in the order of the batches and of the positions in them.

    Raises:
        ValueError: there is no batch; no batch has a label; a label is not an id of the model's
            vocabulary; or the best score at a position is not finite.
    """
    found, row = [], 0
    for batch in batches:
        batch = {name: rows.cpu() for name, rows in batch.items()}
        selected = batch["labels"] != IGNORE  # (B, T)
        if selected.any():
            scores = masked_scores(model, batch, selected)  # (N, V)
            targets = ids("labels", batch["labels"][selected], "(N,)", size=scores.shape[1])
            targets = targets.long()
            rows = selected.nonzero()[:, 0] + row  # (N,)
            found.append((targets, *nats_and_ranks(scores, targets), rows))
        row += len(selected)
    if not found:
        raise ValueError(f"{row} rows without a label; mask more of them, or at a higher rate")
    return Answers(*(torch.cat(part) for part in zip(*found)))


@torch.no_grad()
def masked_scores(model, batch, selected):
    """The scores (logits) of a model at the selected positions of a batch, without dropout.

    Args:
        model: a `MaskedLanguageModel` or a masked language model of transformers.
        batch: a dictionary with `input_ids` and `attention_mask`, each (B, T), on the CPU.
        selected: (B, T) bool, True at N positions.

    Returns:
        (N, V) scores on the CPU, in row-major order, in float32 or the model's precision if that is
        higher.

    Raises:
        ValueError: the highest score at a position is NaN or infinite.
    """
    device = next(model.parameters()).device
    # With labels, our models return scores at labelled positions only; transformers' models return
    # them at all positions.
    batch = {**batch, "labels": torch.where(selected, batch["input_ids"], IGNORE).long()}
    with modes_kept(model):
        model.eval()
        scores = model(**{name: rows.to(device) for name, rows in batch.items()})["logits"]
    scores = (scores if scores.ndim == 2 else scores[selected.to(device)]).cpu()
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # The maximum is NaN if any score is. A score of −∞ excludes a token, which is allowed; if all
    # scores are −∞, the maximum is, too.
    best = scores.amax(-1)
    if not best.isfinite().all():
        raise ValueError("the model's best score is not finite; its weights are broken")
    return scores


def nats_and_ranks(scores, targets):
    """The loss and the rank of each target, computed from the scores of all tokens at its position.

    Args:
        scores: (N, V) logits.
        targets: (N,) ids.

    Returns:
        (nats, ranks), both (N,). A loss is −log softmax(scores)[target] in float64. A rank is the
        number of tokens that have a higher score than the target, or an equal score and a lower id.
        Without the rule for equal scores, a model that gives all tokens the same score would always
        be right.
    """
    own = scores.gather(1, targets[:, None])  # (N, 1)
    nats = scores.double().logsumexp(-1) - own[:, 0].double()
    before = torch.arange(scores.shape[1]) < targets[:, None]  # (N, V)
    ranks = ((scores > own) | ((scores == own) & before)).sum(-1)
    return nats, ranks


def encode_checked(model, tokenizer, text):
    """The ids of a text, after checking that the model can read them.

    Raises:
        ValueError: the text has a character that is not valid Unicode, has more tokens than the
            model can read, or has a token that was added to the tokenizer but not to the model.
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
    """The id of a tokenizer's mask token and the token itself, such as (4, "[MASK]").

    Raises:
        ValueError: the tokenizer has no mask token.
    """
    index = tokenizer.mask_token_id
    if index is None:
        remedy = "take the tokenizer of a masked language model"
        raise ValueError(f"the tokenizer has no mask token; {remedy}")
    return index, tokens_of(tokenizer, [index])[0]


def _config(model):
    """The configuration of a model; None if the model has no configuration."""
    own = getattr(getattr(model, "embedder", None), "config", None)
    return getattr(model, "config", own)


def check_length(model, name, length):
    """Raises an error if a length is above the maximum in the model's configuration. If the
    configuration has no maximum, every length is accepted.

    Args:
        model: a `MaskedLanguageModel` or a masked language model of transformers.
        name: the thing that has this length, such as a text; the error message shows it.
        length: a number of tokens, with the special tokens.

    Raises:
        ValueError: the length is above the largest that the model can read.
    """
    named = "max_position_embeddings" if hasattr(model, "config") else "max_length"  # theirs, ours
    longest = getattr(_config(model), named, None)
    if longest and length > longest:
        raise ValueError(f"{name} has {length} tokens; this model reads {longest}")


def pad_rows(rows, tokenizer):
    """Pads rows of ids to one length: a dictionary of `input_ids` and `attention_mask` (B, T)."""
    fields = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows]
    return pad_examples(fields, tokenizer.pad_token_id)


# ------------------------------------------------------------------------------------ measures


class MaskedLoss(Estimate):
    """A mean loss per hidden token, `nats`, with its `standard_error` over rows, and the number of
    hidden tokens, `count`.
    """


def mean_nats(answers):
    """The loss of a model on held-out text, with its standard error.

    Each hidden token counts once. If the means of the batches were averaged, a token in a batch
    with few hidden tokens would count more than other tokens. The standard error treats the rows as
    independent, but not the tokens within a row (see `mlm_lib.estimates.Estimate`).

    Args:
        answers: the result of `masked_answers`.

    Returns:
        `MaskedLoss(nats, standard_error, count)`. The standard error is `inf` if all hidden tokens
        are in one row, because one row shows no spread.
    """
    rows = answers.rows.unique(return_inverse=True)[1]
    return MaskedLoss.of_rows(rows.bincount(answers.nats), rows.bincount(), alone=math.inf)


def masked_accuracy(model, batches, *, top_k=1):
    """The share of hidden tokens, from 0 to 1, that are among the model's `top_k` likeliest tokens.

    Args:
        model, batches: as in `masked_answers`.
        top_k: how many of the likeliest tokens count as the model's guesses at a position.

    Raises:
        ValueError: `top_k` is below 1; also in the same cases as in `masked_answers`.
    """
    top_k = whole_number("top_k", top_k)
    return (masked_answers(model, batches).ranks < top_k).double().mean().item()


class Calibration(NamedTuple):
    """How well a model's confidence matches its accuracy; see the function `calibration`.

    - error: the expected calibration error, from 0 to 1.
    - confidence: (bins,) the mean confidence in each bin, in rising order. Bins without an answer
      are left out here and below.
    - accuracy: (bins,) the share of right answers in each bin.
    - count: (bins,) the number of answers in each bin.
    """

    error: float
    confidence: torch.Tensor
    accuracy: torch.Tensor
    count: torch.Tensor


def calibration(probabilities, targets, *, bins=15):
    """When the model gives its first guess a probability of 70%, is it right 70% of the time?

    The confidence at a position is the largest probability there, which is the probability of the
    model's first guess. Answers are sorted by confidence into bins of equal width. In each bin the
    distance between the mean confidence and the accuracy is taken. The expected calibration error
    is the mean of these distances, weighted by the number of answers in each bin. Source: Naeini et
    al. 2015; Guo et al. 2017.

    Args:
        probabilities: (N, V), each row sums to 1.
        targets: (N,) the ids of the right tokens.
        bins: the number of bins between 0 and 1.

    Returns:
        `Calibration`.

    Raises:
        ValueError: a row is not a probability distribution, a target is not an id from 0 to V − 1,
            or there are no answers.
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
    # A bin includes its upper end and not its lower one. The ends are rounded to the precision of
    # the probabilities, so that a confidence of 0.2 in float32 is not above 1/5.
    ends = torch.arange(1, bins + 1, dtype=torch.float64) / bins
    place = torch.bucketize(best, ends.to(probabilities.dtype).double()).clamp(max=bins - 1)
    count = place.bincount(minlength=bins)
    held = count > 0
    confidence = place.bincount(best, minlength=bins)[held] / count[held]
    accuracy = place.bincount(right, minlength=bins)[held] / count[held]
    error = ((confidence - accuracy).abs() * count[held]).sum() / len(targets)
    return Calibration(error.item(), confidence, accuracy, count[held])


def closed_gap(loss, start, floor):
    """The share of the possible improvement that a model has reached: 0 at `start`, 1 at the floor.

    The floor is the loss of a reader who knows the true probabilities. No model has a lower
    expected loss. The floor is also called the Bayes-optimal loss or the irreducible loss; its
    reader, the ideal reader, is also called the Bayes-optimal predictor. The gap, `loss − floor`,
    is the excess loss.

    >>> closed_gap(2.0, start=4.0, floor=1.5)
    0.8

    Args:
        loss: the loss of the model, in nats.
        start: the loss of a reader who knows only how frequent each word is. This loss equals the
            entropy of the word frequencies.
        floor: the lowest possible loss. For documents of the grammar
            `mlm_lib.grammar.Grammar.floor` computes it.

    Raises:
        ValueError: `start` is not above `floor`.
    """
    if not start > floor:
        raise ValueError(f"start={start} is not above floor={floor}; a start above it is needed")
    return (start - loss) / (start - floor)


# ------------------------------------------------------------------------------------ blanks


def fill_mask(model, tokenizer, text, *, top_k=5, batch_size=32):
    """The likeliest tokens for the blanks of a text, in the format of transformers' pipeline.

    The results equal those of `transformers.pipeline("fill-mask")`.

    Args:
        model: a `MaskedLanguageModel` or a masked language model of transformers.
        tokenizer: a `WordPieceTokenizer` or a tokenizer of transformers.
        text: a str with at least one mask token, which is `[MASK]` in most tokenizers; or a list of
            such texts.
        top_k: how many of the likeliest tokens to return for each blank; if the vocabulary is
            smaller than this, all tokens are returned.
        batch_size: how many texts the model reads at once. It does not change the result.

    Returns:
        For a text with one blank, a list of `top_k` dictionaries, the likeliest candidate first:
        `score` (its probability), `token` (its id), `token_str` and `sequence` (the text with the
        candidate in the blank). For a text with several blanks, a list of such lists, one for each
        blank; here each `sequence` keeps the special tokens, as in the pipeline. For a list of
        texts, a list of these results.

    Raises:
        ValueError: a text has no blank, is not valid Unicode, is longer than the model can read, or
            has a token that the tokenizer knows but the model does not; `top_k` or `batch_size` is
            below 1.
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
    """The dictionaries of one blank, as `fill_mask` returns them."""
    # As in the pipeline: in a text with several blanks, the sequence keeps all special tokens but
    # the padding.
    hidden = set(tokenizer.all_special_ids) if len(blanks) == 1 else {tokenizer.pad_token_id}
    found = []
    for score, token in zip(scores, tokens):
        filled = [*row[:place], token, *row[place + 1 :]]
        sequence = _text(tokenizer, [index for index in filled if index not in hidden])
        token_str = _text(tokenizer, [token])
        found.append({"score": score, "token": token, "token_str": token_str, "sequence": sequence})
    return found


def _text(tokenizer, row):
    """The text of a row, without ids that the tokenizer does not have.

    A model may have more rows of embeddings than its tokenizer has tokens.
    """
    known = [index for index, token in zip(row, tokens_of(tokenizer, row)) if token is not None]
    return tokenizer.decode(known)


# ------------------------------------------------------------------------- pseudo-log-likelihood


def pseudo_log_likelihood(model, tokenizer, texts, *, whole_word=False, batch_size=64):
    """A score for whole texts: each token is hidden in turn; the score is the sum of their
    log-probabilities.

    Use the score to compare texts (Salazar et al. 2020). It is not the log-probability of the text,
    because each prediction sees all other tokens, so the probabilities do not multiply to one joint
    probability. `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]` are visible but not scored. `[UNK]` is
    scored like any other token. Without this rule, a text would get a better score for each unknown
    word that replaces a known word.

    Args:
        model: a `MaskedLanguageModel` or a masked language model of transformers.
        tokenizer: a `WordPieceTokenizer` or a tokenizer of transformers.
        texts: a list of str.
        whole_word: whether hiding a piece of a word also hides the later pieces of that word. If
            the later pieces stayed visible, the hidden piece would be easy to guess (Kauf and
            Ivanova 2023). The tokenizer must mark pieces by `##`, as WordPiece does.
        batch_size: how many rows the model reads at once. A text of n tokens makes n rows.

    Returns:
        A list with one number of nats for each text, at most 0. Higher means more likely.

    Raises:
        ValueError: `texts` is one str; a text has no token, is not valid Unicode, is longer than
            the model can read, or has a token that the tokenizer knows but the model does not;
            `batch_size` is below 1; `whole_word` is True and the tokenizer does not mark pieces.
    """
    whole_number("batch_size", batch_size)
    if whole_word and not marks_pieces(tokenizer):
        raise ValueError("whole_word needs the ## pieces of WordPiece, and this tokenizer has none")
    texts = list(iterable("texts", texts, "texts"))
    rows, (mask, _) = (
        [encode_checked(model, tokenizer, text) for text in texts],
        mask_token_of(tokenizer),
    )
    # (number of a text, start, end): the tokens from start to before end are hidden, and the one at
    # start is scored.
    questions = []
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
    questions.sort(key=lambda question: len(rows[question[0]]))  # similar lengths: less padding
    totals = [0.0] * len(texts)
    for start in range(0, len(questions), batch_size):
        which, places, ends = zip(*questions[start : start + batch_size])
        hidden = [list(rows[text]) for text in which]
        for row, place, end in zip(hidden, places, ends):
            row[place:end] = [mask] * (end - place)
        fields = pad_rows(hidden, tokenizer)
        selected = torch.zeros_like(fields["input_ids"], dtype=torch.bool)  # (B, T)
        selected[range(len(places)), places] = True
        targets = torch.tensor([rows[text][place] for text, place in zip(which, places)])
        nats, _ = nats_and_ranks(masked_scores(model, fields, selected), targets)
        for text, nat in zip(which, nats.tolist()):
            totals[text] -= nat
    return totals


def pseudo_perplexity(model, tokenizer, texts, *, whole_word=False, batch_size=64):
    """exp(−mean pseudo-log-likelihood per token), over the tokens of all texts together.

    Each token counts once, so a long text counts for more than a short text. A perplexity of k
    means that the model is as uncertain, on average, as if it chose among k equally likely tokens.

    Args:
        model, tokenizer, texts, whole_word, batch_size: as in `pseudo_log_likelihood`.

    Raises:
        ValueError: in the same cases as in `pseudo_log_likelihood`.
        ZeroDivisionError: there are no texts.
    """
    texts = list(iterable("texts", texts, "texts"))
    how = {"whole_word": whole_word, "batch_size": batch_size}
    total = sum(pseudo_log_likelihood(model, tokenizer, texts, **how))
    count = sum(len(_scored(tokenizer, tokenizer.encode(text))) for text in texts)
    return torch.tensor(-total / count, dtype=torch.float64).exp().item()  # inf where it overflows


def _scored(tokenizer, row):
    """The positions of a row that are scored, which are all except [CLS], [SEP], [PAD], [MASK]."""
    frame = {getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad", "mask")}
    return [place for place, index in enumerate(row) if index not in frame]
