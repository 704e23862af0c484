"""A masking rate of its own for each row, and what the row then counts. Built in lesson 15.

Masked at 15%, a model learns to fill few blanks. To write, it must fill any number of them. So each
row draws its own rate t, and its loss is weighted so that the mean over the draws is a bound on
−log P(row | its length):

    ∫₀¹ (1/t)·E[Σ_{i hidden} −log p(x_i | visible)] dt

Sources: Sahoo et al. 2024 (MDLM, eq. 10 and 11; rates spread evenly over a batch, as in Kingma et
al. 2021), Nie et al. 2025 (LLaDA, eq. 3; with the number of hidden words drawn instead, eq. 6).
"""

import torch

from mlm_lib.checks import choice
from mlm_lib.masking import IGNORE, MaskingCollator

DRAWS = ("independent", "stratified", "count")


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
        self.draw = choice("draw", draw, DRAWS)

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
        hidden, weights = hide(~blocked, self.draw, self._seeds.next_generator())
        fields["input_ids"] = input_ids.masked_fill(hidden, self.mask_token_id)
        fields["labels"] = input_ids.masked_fill(~hidden, IGNORE)
        return fields | {"weights": weights.float()}

    def fingerprint(self):
        """What must stay the same between a run and its continuation, as plain values."""
        return super().fingerprint() | {"draw": self.draw}
