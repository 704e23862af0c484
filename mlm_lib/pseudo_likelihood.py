"""Texts scored by a masked language model: each token hidden in turn. Built in lesson 12."""

import torch

from mlm_lib.answers import encoded, judged, padded, read
from mlm_lib.checks import flag, iterable, whole_number


def pseudo_log_likelihood(model, tokenizer, texts, *, whole_word=False, batch_size=64):
    """How likely a masked model finds whole texts: each token is hidden in turn, and -log P summed.

    No probability of a text: the answers need not agree with one another. A score to compare texts
    by. Source: Salazar et al. 2020. A piece of a split word is easy to guess from its other pieces,
    so with `whole_word` those to its right are hidden with it (Kauf and Ivanova 2023). `[UNK]` is a
    token as any other; `[CLS]`, `[SEP]`, `[PAD]` and `[MASK]` are seen but not scored.

    Args:
        model, tokenizer: ours or transformers'.
        texts: a list of str.
        whole_word: see above; needs WordPiece's `##` pieces.
        batch_size: rows read at once; a text of n tokens makes n rows.

    Returns:
        A list of float, for each text a log-likelihood in nats, at most 0.

    Raises:
        ValueError: one str for a list, a text without a token, or longer than the model reads.
    """
    flag("whole_word", whole_word), whole_number("batch_size", batch_size)
    if isinstance(texts, str):
        raise ValueError(f"texts={texts!r} is one text; give a list of them")
    texts = list(iterable("texts", texts, "texts"))
    rows = [encoded(model, tokenizer, text) for text in texts]
    questions = []  # (text, place, what is hidden with it)
    for number_, (text, row) in enumerate(zip(texts, rows)):
        places = _scored(tokenizer, row)
        if not places:
            raise ValueError(f"text {number_}, {text!r}, has no token to hide; leave it out")
        for place in places:
            end = place + 1
            while whole_word and end < len(row) and _continues(tokenizer, row[end]):
                end += 1
            questions.append((number_, place, end))
    questions.sort(key=lambda question: len(rows[question[0]]))  # so that little is padded
    totals = [0.0] * len(texts)
    for start in range(0, len(questions), batch_size):
        some = questions[start : start + batch_size]
        hidden = []
        for which, place, end in some:
            blanks = [tokenizer.mask_token_id] * (end - place)
            hidden.append([*rows[which][:place], *blanks, *rows[which][end:]])
        fields = padded(hidden, tokenizer)
        asked = torch.zeros_like(fields["input_ids"], dtype=torch.bool)
        asked[range(len(some)), [place for _, place, _ in some]] = True
        targets = torch.tensor([rows[which][place] for which, place, _ in some])
        nats = judged(read(model, fields, asked), targets)[1]
        for (which, _, _), nat in zip(some, nats.tolist()):
            totals[which] -= nat
    return totals


def pseudo_perplexity(model, tokenizer, texts, *, whole_word=False, batch_size=64):
    """exp of minus the mean pseudo-log-likelihood of a token, over all texts together.

    So a long text counts for more than a short one. Arguments as of `pseudo_log_likelihood`.

    Raises:
        ValueError: as `pseudo_log_likelihood`; no texts.
    """
    texts = texts if isinstance(texts, str) else list(iterable("texts", texts, "texts"))
    how = {"whole_word": whole_word, "batch_size": batch_size}
    total = sum(pseudo_log_likelihood(model, tokenizer, texts, **how))
    if not texts:
        raise ValueError("no texts; a perplexity needs one at least")
    count = sum(len(_scored(tokenizer, tokenizer.encode(text))) for text in texts)
    return torch.tensor(-total / count, dtype=torch.float64).exp().item()  # inf where it overflows


def _scored(tokenizer, row):
    """The places of a row's own tokens, [UNK] among them."""
    names = ("cls", "sep", "pad", "mask")
    frame = {getattr(tokenizer, f"{name}_token_id") for name in names}
    return [place for place, index in enumerate(row) if index not in frame]


def _continues(tokenizer, index):
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return tokenizer.convert_ids_to_tokens(index).startswith("##")
    return tokenizer.tokens[index].startswith("##")
