"""The likeliest tokens for the blanks of a text. Built in lesson 12."""

from mlm_lib.answers import encoded, padded, read
from mlm_lib.checks import iterable, whole_number


def fill_mask(model, tokenizer, text, *, top_k=5, batch_size=32):
    """The likeliest tokens for the blanks of a text, as transformers' `fill-mask` pipeline gives
    them.

    Args:
        model: ours or transformers'.
        tokenizer: ours or transformers'.
        text: a str with one `[MASK]` or more, or a list of them.
        top_k: candidates for a blank.
        batch_size: texts read at once.

    Returns:
        For a text with one blank a list of `top_k` dicts, best first: `score` (its probability),
        `token` (its id), `token_str` and `sequence` (the text with it). For several blanks a list
        of such lists, whose sequences keep the special tokens. For a list of texts a list of both.

    Raises:
        ValueError: what is no text, one without a blank or longer than the model reads; a `top_k`
            above V.
    """
    texts = [text] if isinstance(text, str) else list(iterable("text", text, "texts"))
    top_k, batch_size = whole_number("top_k", top_k), whole_number("batch_size", batch_size)
    rows = [encoded(model, tokenizer, one) for one in texts]
    for one, row in zip(texts, rows):
        if tokenizer.mask_token_id not in row:
            raise ValueError(f"{one!r} has no [MASK]; write it where a word is to be found")
    found = []
    for start in range(0, len(rows), batch_size):
        some = rows[start : start + batch_size]
        fields = padded(some, tokenizer)
        blank = fields["input_ids"] == tokenizer.mask_token_id  # (B, T)
        scores = read(model, fields, blank)  # (N, V)
        if top_k > scores.shape[1]:
            raise ValueError(f"top_k={top_k} of a vocabulary of {scores.shape[1]}; ask for fewer")
        best = scores.softmax(-1).topk(top_k)
        answers = iter(zip(best.values.tolist(), best.indices.tolist()))
        for row in some:
            blanks = [place for place, index in enumerate(row) if index == tokenizer.mask_token_id]
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
    if not hasattr(tokenizer, "convert_ids_to_tokens"):  # ours refuses what it does not know
        row = [index for index in row if index in tokenizer.tokens]
    return tokenizer.decode(row)
