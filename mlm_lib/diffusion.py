"""A masked LM as a model of whole texts: the bound on their likelihood. Built in lesson 15.

The loss at one masking rate is no likelihood; the area under the curve of the loss against the rate
is one, or a bound on one. Hide each of L words with probability t, and weight the row by 1/t:

    NELBO(x) = ∫₀¹ (1/t)·E[Σ_{i hidden} −log p(x_i | visible)] dt
             = Σ_k (1/k)·E_{k hidden}[Σ_{i hidden} −log p(x_i | visible)]
             = E_order[Σ_j −log p(x_σ(j) | x_σ(1), …, x_σ(j−1))] ≥ −log P(x | L)

since ∫ t^(k−1)·(1−t)^(L−k) dt = 1/(k·C(L, k)). The third line is the loss of a model that reads
and writes in a random order. Sources: Austin et al. 2021, Sahoo et al. 2024, Zheng et al. 2024
(their proposition 3.1), Nie et al. 2025; Hoogeboom et al. 2022 for the orders.

Masked at 15%, a model learns to fill few blanks. To write, it must fill any number of them: so a
`DiffusionCollator` gives each row a rate of its own, and says what the row counts. Rates may be
spread evenly over a batch (Kingma et al. 2021), or the number of hidden words drawn instead of a
rate (Nie et al. 2025, eq. 6).
"""

import math

import torch

from mlm_lib.checks import choice, id_list, refused, whole_number
from mlm_lib.estimates import Estimate
from mlm_lib.evaluation import check_length, masked_scores, nats_and_ranks
from mlm_lib.labels import IGNORE
from mlm_lib.masking import MaskingCollator

DRAWS = ("independent", "stratified", "count")
MOST = 16  # words of an exact sum; 2^16 subsets are as many as a reader waits for


def hide(hideable, draw, generator=None):
    """Draws how much of each row is hidden, and which of its words.

    Args:
        hideable: (B, T) bool, true at the words; each row has L of them, one at least.
        draw: "independent": a rate t, uniform in (0, 1], for each row; each word is hidden with
            probability t, and the weight is 1/t. "stratified": the same, but the rates of the rows
            are one from each of B equal parts of (0, 1]. "count": k words, uniform from 1 to L,
            any k of them alike, and the weight is L/k.
        generator: a torch.Generator of the CPU; None is the global one.

    Returns:
        hidden (B, T) bool and weights (B,) float64. The mean of weight · hidden is 1 at each word.
    """
    choice("draw", draw, DRAWS)
    rows = len(hideable)

    def uniform(*shape):  # in [0, 1), of 53 bits: float32 would have no rates below 6e-8
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    numbers = uniform(*hideable.shape)  # (B, T)
    if draw == "count":
        lengths = hideable.sum(1)  # (B,)
        counts = 1 + (uniform(rows) * lengths).long()
        ranks = numbers.masked_fill(~hideable, 2.0).argsort(1).argsort(1)  # (B, T)
        return (ranks < counts[:, None]) & hideable, lengths / counts.double()
    rates = 1 - uniform(rows)  # (B,), in (0, 1]
    if draw == "stratified":
        # In a random order: in a batch sorted by length the shortest row would always be first.
        rates = (torch.randperm(rows, generator=generator) + rates) / rows
    return (numbers < rates[:, None]) & hideable, 1 / rates


class DiffusionCollator(MaskingCollator):
    """Turn a list of encoded texts into a padded batch, each row masked at a rate of its own.

    What is hidden is always `[MASK]`, and what is visible can be trusted. Special tokens and
    padding are never hidden.

    Args:
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        draw: "independent" or "stratified" rates, or "count"; see `hide`.
        pad_to_multiple_of, seed: as in `MaskingCollator`.

    Call it as a `MaskingCollator`. Beside `input_ids`, `attention_mask` and `labels`, each (B, T),
    it returns `weights` (B,) float32: a row's summed loss times its weight is, in the mean over the
    draws, the bound on −log P(row | its length), in nats.

    A `MaskedLanguageModel` makes of it Σ weight·sum / Σ weight·(hidden words), over the rows, in
    nats per word: below the line stands the number of words, exactly with a count, and with rates
    in the mean. Such a ratio is biased, but little: by 0.2% in batches of 16 documents.

    Raises:
        ValueError: as `MaskingCollator`; an unknown draw, an example without a word to hide.
    """

    def __init__(self, tokenizer, *, draw="stratified", pad_to_multiple_of=None, seed=None):
        super().__init__(
            tokenizer, rate=1.0, mask_share=1.0, random_share=0.0,
            pad_to_multiple_of=pad_to_multiple_of, seed=seed,
        )  # fmt: skip
        self.draw = choice("draw", draw, DRAWS)  # before there is a batch to hide

    def prepare(self, examples):
        """As a `MaskingCollator` does, and each row must have a word to hide."""
        fields, blocked = super().prepare(examples)
        empty = blocked.all(1).nonzero()
        if len(empty):
            raise ValueError(f"example {empty[0].item()} has no word to hide; leave it out")
        return fields, blocked

    def __call__(self, examples):
        fields, blocked = self.prepare(examples)
        input_ids = fields["input_ids"]  # (B, T)
        hidden, weights = hide(~blocked, self.draw, self.next_generator())
        fields["input_ids"] = input_ids.masked_fill(hidden, self.mask_token_id)
        fields["labels"] = input_ids.masked_fill(~hidden, IGNORE)
        return fields | {"weights": weights.float()}

    def fingerprint(self):
        """What must stay the same between a run and its continuation, as plain values."""
        return super().fingerprint() | {"draw": self.draw}


class Bound(Estimate):
    """An estimate of the bound on -log P(text | length), in nats per word, over `count` words."""


def nelbo(model, tokenizer, rows, *, samples=1, draw="count", seed=0, batch_size=64):
    """Estimates the bound on texts: in the mean over the seeds it is exact.

    Args:
        model: ours, transformers', or an `IdealReader`.
        tokenizer: ours or transformers'.
        rows: encoded texts, as `DiffusionCollator` takes them.
        samples: how often each row is masked.
        draw: "count", "independent" or "stratified"; see `hide`. With rates the variance has no
            bound: at a rate near 0 a word that is hidden all the same weighs 1/t, so the standard
            error of a few rows tells too little. Stratified are the rates of all rows together;
            the standard error does not know it.
        seed: of what is hidden.
        batch_size: rows read at once. It does not matter for the result.

    Returns:
        A `Bound`. A word is any token but the special ones.

    Raises:
        ValueError: no rows, one without a word or longer than the model reads, an unknown draw.
    """
    whole_number("samples", samples)
    generator = torch.Generator().manual_seed(seed)
    collator = DiffusionCollator(tokenizer, draw=draw)
    fields, blocked = collator.prepare(list(rows))
    check_length(model, "the longest row", blocked.shape[1])
    words = (~blocked).sum(1).double()  # (R,)
    sums = torch.zeros_like(words)
    for _ in range(samples):
        hidden, weights = hide(~blocked, draw, generator)
        sums += weights * _hidden_nats(model, fields, hidden, collator.mask_token_id, batch_size)
    return Bound.of_rows(sums / samples, words)


def _hidden_nats(model, fields, hidden, mask_token_id, batch_size):
    """(R,) float64: Σ −log P(word) over the hidden words of each row."""
    total = torch.zeros(len(hidden), dtype=torch.float64)
    # Where each row ends: the place, counted from 1, of its last real token.
    widths = (fields["attention_mask"] * torch.arange(1, hidden.shape[1] + 1)).amax(1)  # (R,)
    for some in widths.argsort(stable=True).split(batch_size):  # of like length
        asked = hidden[some, : widths[some].max()]  # (B, T)
        if not asked.any():
            continue
        batch = {name: field[some, : asked.shape[1]] for name, field in fields.items()}
        targets = batch["input_ids"][asked]  # (N,)
        batch["input_ids"] = batch["input_ids"].masked_fill(asked, mask_token_id)
        nats, _ = nats_and_ranks(masked_scores(model, batch, asked), targets)
        total.index_add_(0, some[asked.nonzero()[:, 0]], nats)
    return total


def exact_nelbo(log_posteriors, words):
    """The bound on one short text, summed over every choice of hidden words.

    Args:
        log_posteriors: called as `log_posteriors(words, observed)`, observed (T,) bool, it returns
            (T, V): log P(word at t | the observed words). What stands at observed places does not
            matter. `log_posteriors(model, tokenizer)` makes one of a model.
        words: T ids from 0 to V−1, at most 16 of them.

    Returns:
        Nats of the whole text.

    Raises:
        ValueError: no words or too many, or a table of another length.
    """
    words = id_list("words", words)
    length = whole_number("len(words)", len(words), 1, MOST)
    ids, places, terms = torch.tensor(words), torch.arange(length), []
    for number in range(1, 2**length):
        hidden = (number >> places) % 2 == 1  # (T,): the digits of the number
        table = log_posteriors(words, ~hidden)
        if len(table) != length:
            raise refused("log_posteriors(…)", table, f"a tensor ({length}, V)")
        k = int(hidden.sum())
        nats = -table[places[hidden], ids[hidden]].double().sum().item()
        terms.append(nats / (k * math.comb(length, k)))
    return math.fsum(terms)


def log_posteriors(model, tokenizer):
    """A model's answers in the form that `exact_nelbo` asks for.

    Args:
        model: ours, transformers', or an `IdealReader`.
        tokenizer: ours or transformers'.

    Returns:
        A function of words, T ids, and observed, (T,) bool, that returns (T, V) float64. The words
        stand between `[CLS]` and `[SEP]`, those not observed as `[MASK]`.
    """

    def answers(words, observed):
        hidden = [tokenizer.mask_token_id if not seen else w for w, seen in zip(words, observed)]
        row = torch.tensor([[tokenizer.cls_token_id, *hidden, tokenizer.sep_token_id]])
        asked = torch.ones_like(row, dtype=torch.bool)  # (1, T + 2)
        asked[:, [0, -1]] = False
        fields = {"input_ids": row, "attention_mask": torch.ones_like(row)}
        return masked_scores(model, fields, asked).double().log_softmax(-1)  # (T, V)

    return answers
