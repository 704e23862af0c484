"""Generate texts with a masked language model. Built in lesson 17.

`write` starts with a text of `[MASK]` tokens only. At each step the model predicts the token at
every blank, and some blanks are filled. In the next step the model sees the new tokens. Suppose
that one blank is filled at a time, and that its position depends only on the visible tokens. Then
the texts have exactly the probabilities that the chain rule gives with the model's predictions. Two
shortcuts change these probabilities::

  several tokens in a step           are drawn independently of each other, given what is visible
  choosing the position by the draw  keeps likely tokens more often than their probability says

`IdealReader` is the best possible model for texts of a `Grammar`. A trained model can be compared
with it.

Sources: Sahoo et al. 2024 (random positions), Chang et al. 2022 (MaskGIT: confidence, the cosine
schedule), Nie et al. 2025 (LLaDA: draw everywhere, then keep), Wu et al. 2025 (Fast-dLLM: a
threshold). Tokens are drawn by inverse transform sampling in float64. The usual alternative, Gumbel
noise in float32, is at most 16.6, so that unlikely tokens would be drawn too rarely, as at a lower
temperature (Zheng et al. 2024).
"""

import hashlib
import math
from functools import cache
from itertools import count

import torch
import torch.nn as nn

from mlm_lib.checks import choice, id_list, number, probability, whole_number
from mlm_lib.evaluation import check_length, masked_scores, pad_rows
from mlm_lib.labels import IGNORE

RULES = ("random", "confident", "threshold", "keep_confident", "greedy")
SCHEDULES = ("equal", "cosine")
DIGITS = 6  # confidences with the same first 6 digits count as equal; later digits are rounding


def write(
    model, tokenizer, lengths, *, steps=None, rule="random", temperature=1.0, given=None, seed=0,
    schedule="equal", threshold=0.95, batch_size=64, watch=None,
):  # fmt: skip
    """Generate texts of given lengths with a masked language model.

    Args:
        model: a `MaskedLanguageModel`, a model of transformers, or an `IdealReader`.
        tokenizer: a `WordPieceTokenizer` or a transformers tokenizer.
        lengths: the number of tokens of each text, without `[CLS]` and `[SEP]`.
        steps: the number of steps. None: as many as the text has blanks, so that one token is
            written in each step. A text with fewer blanks than `steps` takes one step per blank.
        rule: which blanks are filled in a step, and with which tokens.

            - "random": blanks at random positions. Their tokens are drawn from the model's
              distribution. With one token per step the texts have exactly the probabilities of the
              chain rule.
            - "confident": the blanks at which the most likely token has the highest probability.
              Their tokens are drawn from the model's distribution. With one token per step the
              texts have exactly the probabilities of the chain rule, too.
            - "threshold": all blanks at which the most likely token has a probability above
              `threshold`, or the single most confident blank if there is no such blank. Their
              tokens are drawn from the model's distribution. The number of steps is not given; it
              depends on how many blanks are above the threshold in each step.
            - "keep_confident": tokens are drawn at all blanks, and the most likely draws are kept.
              The texts are biased towards likely tokens.
            - "greedy": the blanks of "confident", but filled with the most likely token instead of
              a drawn token.

        temperature: the logits are divided by this number before a token is drawn. Confidence is
            computed from the original logits.
        given: for each text either a list of its ids, with `[MASK]` at the blanks, or None for a
            text of blanks only. If the whole argument is None, all texts start with blanks only. A
            text without blanks is returned as it is.
        seed: each text gets random numbers of its own, which depend on the seed and on the position
            of the text in the list. So a text depends neither on the other texts nor on
            `batch_size`.
        schedule: "equal" for the same number of tokens in each step, or "cosine" for few tokens in
            the first steps and many in the last; see `reveal_counts`.
        threshold: the probability for the rule "threshold".
        batch_size: how many texts the model reads at once.
        watch: a function `watch(step, rows)` that is called after each step with the texts as lists
            of ids, with `[MASK]` at the blanks that are left. None: no function is called.

    Returns:
        A list of lists of ids, without `[CLS]` and `[SEP]`. No special token is ever written.

    Raises:
        ValueError: a length is negative, or more than the model can read; `steps` is below 1, or is
            given with the rule "threshold"; the rule or the schedule is unknown; the temperature is
            not above 0; a given text does not have its length. An `IdealReader` refuses a length
            that no document of its grammar has.
    """
    choice("rule", rule, RULES)
    choice("schedule", schedule, SCHEDULES)
    number("temperature", temperature, above=0)
    probability("threshold", threshold)
    whole_number("batch_size", batch_size)
    whole_number("steps", steps, none=True)
    if steps is not None and rule == "threshold":
        raise ValueError(f"steps={steps}, but a threshold takes as many as it needs; leave it out")
    drafts = _make_drafts(model, tokenizer, lengths, given, seed)
    for draft in drafts:
        blanks = len(draft.blanks)
        draft.counts = iter(reveal_counts(blanks, steps or blanks, schedule))
    writer = _Writer(model, tokenizer, rule, temperature, threshold)
    for step in count(1):
        unfinished = [draft for draft in drafts if draft.blanks]
        if not unfinished:
            return [draft.row for draft in drafts]
        unfinished.sort(key=lambda draft: len(draft.row))  # so that there is little padding
        for start in range(0, len(unfinished), batch_size):
            writer.step(unfinished[start : start + batch_size])
        if watch:
            watch(step, [list(draft.row) for draft in drafts])


def reveal_counts(blanks, steps, schedule="equal"):
    """Compute how many blanks are filled in each step.

    >>> reveal_counts(10, 4)
    [2, 3, 2, 3]
    >>> reveal_counts(10, 4, "cosine")  # after step i, 1 − cos(π/2 · i/steps) of them are filled
    [1, 2, 3, 4]

    Args:
        blanks: the number of blanks.
        steps: the number of steps. If there are fewer blanks, there are only as many steps as
            blanks.
        schedule: "equal" or "cosine".

    Returns:
        A list of min(blanks, steps) numbers of at least 1, whose sum is `blanks`.
    """
    steps, filled = min(blanks, steps), [0]
    for step in range(1, steps + 1):
        # Rounded down, because the first steps see the least and should not fill more than others.
        wanted = blanks * step // steps
        if schedule == "cosine":
            wanted = round(blanks * (1 - math.cos(math.pi / 2 * step / steps)))
        # At least one blank is filled in each step, and at least one is left for each later step.
        filled.append(min(max(wanted, filled[-1] + 1), blanks - steps + step))
    return [after - before for before, after in zip(filled, filled[1:])]


class _Draft:
    """An unfinished text: its ids, the positions of its blanks, and its own random numbers."""

    def __init__(self, row, mask_token_id, name):
        self.row = row
        self.blanks = [place for place, index in enumerate(row) if index == mask_token_id]
        # A hash of 32 bits, because torch uses only the last 32 bits of a seed.
        digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))

    def uniform(self, size):
        """The draft's next random numbers, (size,) float64 in [0, 1)."""
        return torch.rand(size, generator=self.generator, dtype=torch.float64)

    def fill(self, places, tokens):
        """Write tokens at blanks."""
        for place, token in zip(places, tokens):
            self.row[place] = token
            self.blanks.remove(place)


def _make_drafts(model, tokenizer, lengths, given, seed):
    """Check the lengths and the given texts, and make a draft of each."""
    lengths = id_list("lengths", lengths)
    check_length(model, "the longest text with [CLS] and [SEP]", max(lengths, default=0) + 2)
    given = [None] * len(lengths) if given is None else given
    drafts = []
    for place, (length, row) in enumerate(zip(lengths, given, strict=True)):
        row = [tokenizer.mask_token_id] * length if row is None else id_list(f"given[{place}]", row)
        if len(row) != length:
            wrong = f"given[{place}] has {len(row)} tokens and lengths[{place}] is {length}"
            raise ValueError(f"{wrong}; they must agree, without [CLS] and [SEP]")
        drafts.append(_Draft(row, tokenizer.mask_token_id, f"{seed} {place}"))
    return drafts


class _Writer:
    """Fills blanks of drafts by a rule."""

    def __init__(self, model, tokenizer, rule, temperature, threshold):
        self.model, self.tokenizer, self.rule = model, tokenizer, rule
        self.temperature, self.threshold = temperature, threshold
        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        self.tokens = sorted(set(vocab.values()).difference(tokenizer.all_special_ids))

    def step(self, drafts):
        """Fill the blanks of one step in each draft."""
        # 1. The blanks at which the model predicts: all, or those that will be filled if the rule
        #    does not depend on the prediction.
        asked = [draft.blanks for draft in drafts]
        if self.rule == "random":
            asked = [self._random_blanks(draft) for draft in drafts]
        logits = self._logits(drafts, asked)  # (N, V)
        # 2. A token for each of these blanks, and how confident the model is.
        probabilities = logits.softmax(-1)
        confidence, tokens = probabilities.max(-1)  # (N,) each
        if self.rule != "greedy":
            uniform = torch.cat([draft.uniform(len(some)) for draft, some in zip(drafts, asked)])
            # The largest logit is subtracted first, so that it is 0 at any temperature, even a tiny
            # one, and cannot overflow.
            cooled = (logits - logits.amax(-1, keepdim=True)) / self.temperature
            tokens = sample_tokens(cooled.softmax(-1), uniform)
        if self.rule == "keep_confident":
            confidence = probabilities.gather(1, tokens[:, None])[:, 0]
        # 3. The blanks that are filled.
        sizes = [len(some) for some in asked]
        parts = zip(drafts, asked, tokens.split(sizes), confidence.split(sizes))
        for draft, places, of_draft, confidence_there in parts:
            chosen = self._choose(draft, confidence_there)
            draft.fill([places[number] for number in chosen], of_draft[chosen].tolist())

    def _random_blanks(self, draft):
        """The positions of as many random blanks as this step fills, from left to right."""
        order = draft.uniform(len(draft.blanks)).argsort()[: next(draft.counts)]
        return [draft.blanks[number] for number in sorted(order.tolist())]

    def _choose(self, draft, confidence):
        """The numbers of the blanks that are filled. If blanks are equally confident, the first of
        them are filled.
        """
        if self.rule == "random":
            return list(range(len(confidence)))
        order = confidence.round(decimals=DIGITS).argsort(descending=True, stable=True)
        if self.rule == "threshold":
            return order[: max(1, int((confidence > self.threshold).sum()))].tolist()
        return order[: next(draft.counts)].tolist()

    def _logits(self, drafts, asked):
        """The model's scores at N blanks, (N, V) float64, −∞ for tokens that are never written."""
        ends = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        fields = pad_rows([[ends[0], *draft.row, ends[1]] for draft in drafts], self.tokenizer)
        where = torch.zeros_like(fields["input_ids"], dtype=torch.bool)  # (B, T)
        for row, places in zip(where, asked):
            row[[place + 1 for place in places]] = True
        scores = masked_scores(self.model, fields, where).double()
        allowed = torch.zeros(scores.shape[1], dtype=torch.bool)
        allowed[[token for token in self.tokens if token < len(allowed)]] = True
        scores = scores.masked_fill(~allowed, -math.inf)
        if scores.amax(-1).isneginf().any():
            raise ValueError("the model gives no word a chance at a blank; its weights are broken")
        return scores


def sample_tokens(probabilities, uniform):
    """Draw one index from each row of probabilities, by inverse transform sampling.

    The index is the first one at which the cumulative sum exceeds a uniform random number. The
    random numbers are an argument, so that the same numbers give the same tokens on every device.

    >>> probabilities = torch.tensor([[0.2, 0.0, 0.8]] * 3)
    >>> sample_tokens(probabilities, torch.tensor([0.1, 0.2, 0.9])).tolist()
    [0, 2, 2]

    Args:
        probabilities: (N, V), 0 or larger. A row need not sum to 1. Use float64, because in float32
            the rounding of the cumulative sum over a large vocabulary loses the unlikely tokens.
        uniform: (N,) in [0, 1).

    Returns:
        (N,) long.
    """
    sums = probabilities.cumsum(-1)
    wanted = uniform[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, wanted, right=True)[:, 0]
    # `wanted` may be rounded up to the whole sum. Then the last index of a positive probability is
    # drawn.
    last = ((probabilities > 0) * torch.arange(probabilities.shape[-1])).amax(-1)
    return found.minimum(last)


# ------------------------------------------------------------------------------ the ideal reader


class IdealReader(nn.Module):
    """The best possible masked language model for texts of a `Grammar`: the Bayes-optimal model.

    At each `[MASK]` it gives P(word | the visible words, their positions, the length of the text)
    exactly. It can be used in place of a trained model in `nelbo`, `write`, `fill_mask` and
    `masked_answers`. It has no weights and is not trained. It computes on the CPU in float64.

    Args:
        grammar: a `Grammar`.
        tokenizer: a tokenizer in which each word of the grammar is one token.
        lost: what happens at a text that the grammar cannot produce. False: a ValueError. True:
            every word of the grammar gets the same probability there. This is needed for texts of
            which several words were written in one step, because these can be impossible.

    Raises:
        KeyError: a word of the grammar is not a token.
    """

    def __init__(self, grammar, tokenizer, *, lost=False):
        super().__init__()
        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        self.grammar, self.lost = grammar, lost
        self.columns = torch.tensor([vocab[word] for word in grammar.vocabulary])
        self.size = max(vocab.values()) + 1
        self.words = {index: word for word, index in vocab.items()}
        self.mask_token_id = tokenizer.mask_token_id
        self.frame = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]
        self.nothing = nn.Parameter(torch.zeros(0), requires_grad=False)  # has the device
        self.log_prob_of_length = cache(grammar.log_prob_of_length)

    def forward(self, input_ids, attention_mask=None, labels=None):
        """Compute log-probabilities at all positions, or only at the labels.

        Args:
            input_ids: (B, T), with `[MASK]` at hidden words. `[CLS]`, `[SEP]` and `[PAD]` are not
                part of the document.
            attention_mask: (B, T). It is ignored, because `[PAD]` marks the padding.
            labels: (B, T), −100 at positions that are not predicted, as for a
                `MaskedLanguageModel`.

        Returns:
            A dictionary. Its "logits" are float64 (B, T, V), or with labels (N, V) at the labelled
            positions, and −∞ at tokens that are impossible. With labels there is also "loss", the
            mean over the labels, in nats.

        Raises:
            ValueError: the grammar has no document of this length; or `lost` is False and the
                grammar has no document with these visible words.
        """
        frame = torch.tensor(self.frame)
        places = [(~torch.isin(row, frame)).nonzero()[:, 0] for row in input_ids.cpu()]
        documents, observed = [], []
        for row, some in zip(input_ids.cpu(), places):
            documents.append([self.words.get(index, "") for index in row[some].tolist()])
            observed.append(row[some] != self.mask_token_id)
            if self.log_prob_of_length(len(some)) == -math.inf:
                wrong = f"no document of this grammar has {len(some)} words"
                raise ValueError(f"{wrong}; ask for another length")
        found = self.grammar.posteriors_of(documents, observed, check=not self.lost)
        asked = torch.ones_like(input_ids) if labels is None else labels != IGNORE
        logits = torch.full((*input_ids.shape, self.size), -math.inf, dtype=torch.float64)
        for row, some, wanted, chances in zip(logits, places, asked.bool().cpu(), found):
            wanted, uniform = wanted[some], 1 / len(self.columns)
            # logits[b, places, columns] = log P(word | the visible words at other positions)
            row[some[wanted][:, None], self.columns] = chances[wanted].nan_to_num(uniform).log()
        logits = logits.to(input_ids.device)
        if labels is None:
            return {"logits": logits}
        logits, targets = logits[asked], labels[asked]  # (N, V), (N,)
        own = logits.gather(1, targets.long()[:, None])
        return {"loss": -own.sum() / max(1, len(own)), "logits": logits}

    def extra_repr(self):
        """The settings that `print(reader)` shows."""
        return f"worlds={self.grammar.worlds}, lost={self.lost}"
