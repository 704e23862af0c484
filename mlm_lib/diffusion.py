"""Measures how probable a whole text is under a masked language model; the method is called masked
diffusion.

Built in lesson 16. Use `DiffusionCollator` to train a model that is to write texts (see `writing`),
and `nelbo` to measure what probability such a model gives to a text.

The loss at one masking rate does not tell the probability of a text. But if the loss per masked
token is plotted against the masking rate, the area under the curve is an upper bound of −log P per
token. Let x be a text of L tokens. Mask each token of x with probability t, and weight the loss of
the text by 1/t. Then::

    NELBO(x) = ∫₀¹ (1/t)·E[Σ_{i masked} −log p(x_i | visible)] dt
             = Σ_k (1/k)·E_{k masked}[Σ_{i masked} −log p(x_i | visible)]
             = E_order[Σ_j −log p(x_σ(j) | x_σ(1), …, x_σ(j−1))] ≥ −log P(x | L).

NELBO stands for negative evidence lower bound: it is the negative of a lower bound of log P(x), so
it is an upper bound of −log P(x). The logarithm is the natural one, so that the unit is the nat.
The second line follows from the first. At rate t, each set of k tokens is masked with probability
t^k·(1−t)^(L−k); divide by t and integrate from 0 to 1. The integral is 1/(k·C(L, k)), where C(L, k)
is the number of ways to choose k tokens of L. The third line is the loss of a model that reads and
writes the tokens in a random order σ.

A model that was trained at a rate of 15% has learned to fill few blanks. A model that writes a text
must fill any number of blanks. Therefore `DiffusionCollator` draws a new masking rate for each row,
and also returns the weight 1/t of the row.

Sources: Austin et al. 2021, Sahoo et al. 2024, Zheng et al. 2024 (proposition 3.1) and Nie et al.
2025 for the bound; Hoogeboom et al. 2022 for the random orders; Kingma et al. 2021 for rates that
are spread evenly over a batch; Nie et al. 2025 (equation 6) for drawing the number of masked tokens
instead of a rate.
"""

import math

import torch

from mlm_lib.checks import choice, id_list, refused, whole_number
from mlm_lib.estimates import Estimate
from mlm_lib.evaluation import check_length, masked_scores, nats_and_ranks
from mlm_lib.labels import IGNORE
from mlm_lib.masking import MaskingCollator

DRAWS = ("independent", "stratified", "count")
MAX_TOKENS = 16  # the longest text of an exact sum, which then has 2^16 − 1 terms


def sample_masks(maskable, draw, generator=None):
    """Draw which tokens of each row are masked, and the weight of each row's loss.

    On average, weight · masked is 1 at each token. Therefore the average of the weighted loss is
    the bound.

    >>> masked, weights = sample_masks(torch.ones(1, 4, dtype=torch.bool), "count")
    >>> (masked.sum(1) * weights).tolist()  # k tokens are masked, and the weight is 4/k
    [4.0]

    Args:
        maskable: (B, T) bool, true at tokens that may be masked. L is the number of such tokens in
            a row; it must be at least 1.
        draw: how many tokens of a row are masked.

            - "independent": a rate t is drawn for each row, uniform in (0, 1]. Each token is masked
              with probability t, and the weight is 1/t.
            - "stratified": as "independent", but (0, 1] is divided into B equal parts, and the rate
              of each row is drawn from another part. The rates of a batch are then spread evenly.
            - "count": a number k is drawn for each row, uniform from 1 to L. Then k tokens of the
              row are masked, each choice of k tokens being equally likely, and the weight is L/k.

        generator: a `torch.Generator` of the CPU. None: torch's global generator.

    Returns:
        masked (B, T) bool and weights (B,) float64.

    Raises:
        ValueError: `draw` is not one of these names.
    """
    choice("draw", draw, DRAWS)
    rows = len(maskable)

    def uniform(*shape):  # in [0, 1), as float64: float32 has no number between 0 and 6e-8 there
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    numbers = uniform(*maskable.shape)  # (B, T)
    if draw == "count":
        lengths = maskable.sum(1)  # (B,)
        counts = 1 + (uniform(rows) * lengths).long()
        ranks = numbers.masked_fill(~maskable, 2.0).argsort(1).argsort(1)  # (B, T)
        return (ranks < counts[:, None]) & maskable, lengths / counts.double()
    rates = 1 - uniform(rows)  # (B,), in (0, 1]
    if draw == "stratified":
        # The parts are given to the rows in a random order. Otherwise, if batches are sorted by
        # length, the shortest row would always get the lowest rate.
        rates = (torch.randperm(rows, generator=generator) + rates) / rows
    return (numbers < rates[:, None]) & maskable, 1 / rates


class DiffusionCollator(MaskingCollator):
    """Turn a list of encoded texts into a padded batch whose rows are masked at different rates.

    Use this collator instead of a `MaskingCollator` to train a model that is to write texts. Every
    chosen token becomes `[MASK]`. No chosen token is replaced by a random token or kept, so the
    model can trust the visible tokens. Special tokens and padding are never masked.

    Call it in the same way as a `MaskingCollator`. In addition to `input_ids`, `attention_mask` and
    `labels`, each (B, T), the batch has `weights`, (B,) float32. Multiply the sum of a row's losses
    by the weight of the row; the average of this product over the random masks is the bound on
    −log P(row | its length), in nats.

    From such a batch a `MaskedLanguageModel` computes its loss in nats per token, as a sum over the
    rows divided by another sum over the rows::

        Σ weight · (sum of the row's losses) / Σ weight · (number of the row's masked tokens)

    With `draw="count"` the denominator is exactly the number of tokens. With the other two values
    of `draw`, the denominator is this number only on average, and the quotient has a small bias,
    0.2% in batches of 16 documents. The function `nelbo` has no such bias, because it divides by
    the number of tokens itself.

    Args:
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        draw: "independent", "stratified" or "count"; see `sample_masks`.
        pad_to_multiple_of, seed: as in `MaskingCollator`.

    Raises:
        ValueError: in the same cases as in `MaskingCollator`; also if `draw` is unknown, or an
            example has no token to mask.
    """

    def __init__(self, tokenizer, *, draw="stratified", pad_to_multiple_of=None, seed=None):
        super().__init__(
            tokenizer, rate=1.0, mask_share=1.0, random_share=0.0,
            pad_to_multiple_of=pad_to_multiple_of, seed=seed,
        )  # fmt: skip
        self.draw = choice("draw", draw, DRAWS)

    def prepare(self, examples):
        """Pad a list of examples, as `MaskingCollator.prepare` does, without masking them.

        Raises:
            ValueError: in the same cases as in `MaskingCollator.prepare`; also if an example has no
                token to mask.
        """
        fields, special = super().prepare(examples)
        empty = special.all(1).nonzero()
        if len(empty):
            raise ValueError(f"example {empty[0].item()} has no token to mask; leave it out")
        return fields, special

    def __call__(self, examples):
        """Pad and mask a list of examples; see the description of the class."""
        fields, special = self.prepare(examples)
        input_ids = fields["input_ids"]  # (B, T)
        masked, weights = sample_masks(~special, self.draw, self.next_generator())
        fields["input_ids"] = input_ids.masked_fill(masked, self.mask_token_id)
        fields["labels"] = input_ids.masked_fill(~masked, IGNORE)
        return fields | {"weights": weights.float()}

    def fingerprint(self):
        """The settings that decide the masks, as a dictionary of plain values."""
        return super().fingerprint() | {"draw": self.draw}


class Bound(Estimate):
    """An estimate of the bound on −log P(text | length).

    The attributes are `nats`, the mean per token; `standard_error`; and `count`, the number of
    tokens. See `Estimate`.
    """


def nelbo(model, tokenizer, rows, *, samples=1, draw="count", seed=0, batch_size=64):
    """Estimate the bound on −log P(text | length), averaged over the tokens of several texts.

    Each row is masked at random, and the loss at the masked tokens of a row is weighted as in
    `DiffusionCollator`. The sum of these losses is divided by the number of tokens, so the estimate
    is unbiased: its average over all seeds is the bound itself. For a text of at most 16 tokens
    `exact_nelbo` computes the bound without randomness.

    Args:
        model: a `MaskedLanguageModel`, a model of transformers, or an `IdealReader`.
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        rows: a list of encoded texts, as `DiffusionCollator` takes them.
        samples: how many times each row is masked.
        draw: "count", "independent" or "stratified"; see `sample_masks`. Use "count" unless you
            have a reason. With "independent" or "stratified", a rate t near 0 gives a huge weight
            1/t, so the variance of the estimate is infinite. The standard error of a few rows is
            then too small. With "stratified" the rates of all rows also depend on each other, which
            the standard error does not take into account.
        seed: the seed of the random masks.
        batch_size: how many rows the model reads at once. It does not change the result.

    Returns:
        A `Bound`: nats per token, its standard error, and the number of tokens, without special
        tokens.

    Raises:
        ValueError: there are no rows; a row has no token to mask, or is longer than the model can
            read; `draw` is unknown.
    """
    whole_number("samples", samples)
    generator = torch.Generator().manual_seed(seed)
    collator = DiffusionCollator(tokenizer, draw=draw)
    fields, special = collator.prepare(list(rows))
    check_length(model, "the longest row", special.shape[1])
    lengths = (~special).sum(1).double()  # (R,)
    sums = torch.zeros_like(lengths)
    for _ in range(samples):
        masked, weights = sample_masks(~special, draw, generator)
        sums += weights * _masked_nats(model, fields, masked, collator.mask_token_id, batch_size)
    return Bound.of_rows(sums / samples, lengths)


def _masked_nats(model, fields, masked, mask_token_id, batch_size):
    """The sum of −log P(token) over the masked tokens of each row, (R,) float64."""
    total = torch.zeros(len(masked), dtype=torch.float64)
    # The length of each row is the position, counted from 1, of its last token without padding.
    widths = (fields["attention_mask"] * torch.arange(1, masked.shape[1] + 1)).amax(1)  # (R,)
    for some in widths.argsort(stable=True).split(batch_size):  # rows of similar length
        asked = masked[some, : widths[some].max()]  # (B, T)
        if not asked.any():
            continue
        batch = {name: field[some, : asked.shape[1]] for name, field in fields.items()}
        targets = batch["input_ids"][asked]  # (N,)
        batch["input_ids"] = batch["input_ids"].masked_fill(asked, mask_token_id)
        nats, _ = nats_and_ranks(masked_scores(model, batch, asked), targets)
        total.index_add_(0, some[asked.nonzero()[:, 0]], nats)
    return total


def exact_nelbo(log_posteriors, words):
    """Compute the bound on −log P(text | length) of one short text, without randomness.

    The bound is a sum over all sets of masked tokens. A text of T tokens has 2^T − 1 such sets, and
    the model is called once for each set, so T is limited to 16.

    >>> def coin_flips(words, observed):  # each token is 0 or 1 with probability 1/2
    ...     return torch.full((len(words), 2), 0.5).log()
    >>> round(exact_nelbo(coin_flips, [0, 1, 1]), 4)  # 3 ln 2
    2.0794

    Args:
        log_posteriors: a function `log_posteriors(words, observed)`, where `observed` is (T,) bool.
            It returns (T, V): at each position the log-probabilities of the tokens, given the
            observed tokens. The values at observed positions do not matter. To get such a function
            from a model, call this module's `log_posteriors(model, tokenizer)`.
        words: a list of the T ids of the text, each from 0 to V−1.

    Returns:
        The bound in nats, for the whole text.

    Raises:
        ValueError: the text is empty or has more than 16 tokens, or `log_posteriors` does not
            return T rows.
    """
    words = id_list("words", words)
    length = whole_number("len(words)", len(words), 1, MAX_TOKENS)
    ids, positions, terms = torch.tensor(words), torch.arange(length), []
    for subset in range(1, 2**length):
        masked = (subset >> positions) % 2 == 1  # (T,): the binary digits of the number
        table = log_posteriors(words, ~masked)
        if len(table) != length:
            raise refused("log_posteriors(…)", table, f"a tensor ({length}, V)")
        k = int(masked.sum())
        nats = -table[positions[masked], ids[masked]].double().sum().item()
        terms.append(nats / (k * math.comb(length, k)))
    return math.fsum(terms)


def log_posteriors(model, tokenizer):
    """Turns a model into the function that `exact_nelbo` needs.

    Args:
        model: a `MaskedLanguageModel`, a model of transformers, or an `IdealReader`.
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.

    Returns:
        A function of `words`, a list of T ids, and `observed`, (T,) bool. It puts the words between
        `[CLS]` and `[SEP]`, replaces each word that is not observed by `[MASK]`, and returns the
        log-probabilities of the model at the T positions, (T, V) float64.
    """

    def answers(words, observed):
        hidden = [tokenizer.mask_token_id if not seen else w for w, seen in zip(words, observed)]
        row = torch.tensor([[tokenizer.cls_token_id, *hidden, tokenizer.sep_token_id]])
        asked = torch.ones_like(row, dtype=torch.bool)  # (1, T + 2)
        asked[:, [0, -1]] = False
        fields = {"input_ids": row, "attention_mask": torch.ones_like(row)}
        return masked_scores(model, fields, asked).double().log_softmax(-1)  # (T, V)

    return answers
