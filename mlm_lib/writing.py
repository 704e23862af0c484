"""Writing with a masked LM: from all blanks, a few words at a time. Built in lesson 15.

At each step the model says what it expects at every blank, each by itself. Some blanks are filled,
and the next step sees them. Filled one at a time, at places chosen by what is visible, the words
come out as the model's own chain rule has them. Two short cuts change that:

  several words in a step   are drawn as if each knew nothing of the others
  a look at the drawn word  before it is kept or thrown away: the likely ones are kept more often

Sources: Sahoo et al. 2024 (random places), Chang et al. 2022 (MaskGIT: confidence, the cosine), Nie
et al. 2025 (LLaDA: draw, then keep), Wu et al. 2025 (Fast-dLLM: a threshold). Words are drawn by
inverting a cumulative sum in float64: Gumbel noise in float32 ends at 16.6, which lowers the
temperature when many are drawn at once (Zheng et al. 2024).
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
DIGITS = 6  # of a confidence; what differs beyond is noise of the arithmetic


def write(
    model, tokenizer, lengths, *, steps=None, rule="random", temperature=1.0, given=None, seed=0,
    schedule="equal", threshold=0.95, batch_size=64, watch=None,
):  # fmt: skip
    """Writes texts of given lengths.

    Args:
        model: ours, transformers', or an `IdealReader`.
        tokenizer: ours or transformers'.
        lengths: how many tokens each text has, without `[CLS]` and `[SEP]`.
        steps: in how many steps; None is one token a step. A text with fewer blanks needs as many.
        rule: which blanks are filled in a step, and by what.
            "random": any, drawn. Exact, one at a time.
            "confident": those whose likeliest token is the most likely, drawn. Exact likewise.
            "threshold": all whose likeliest token is likelier than `threshold`, or else the most
            confident one, drawn. It needs as many steps as it needs.
            "keep_confident": all are drawn, and the likeliest draws are kept. Biased.
            "greedy": as "confident", but the likeliest token and not a drawn one.
        temperature: the logits are divided by it before a draw; confidence is taken before that.
        given: for each text its tokens, `[MASK]` where a blank is, or None for nothing but blanks.
            A text without a blank comes back as it is.
        seed: each text has its own random numbers, by the seed and its place in the list, so that
            it depends neither on the other texts nor on `batch_size`.
        schedule: "equal" shares in each step, or "cosine": few tokens first; see `reveal_counts`.
        threshold: see above.
        batch_size: rows read at once.
        watch: called as `watch(step, rows)` after each step, rows as they stand, `[MASK]` at what
            is still blank.

    Returns:
        A list of lists of ids, without `[CLS]` and `[SEP]`. Special tokens are never written.

    Raises:
        ValueError: a length below 0 or beyond what the model reads; steps below 1, or with a
            threshold; an unknown rule, a temperature of 0 or below; a given text of another length.
            An `IdealReader` refuses lengths that its grammar has not.
    """
    choice("rule", rule, RULES)
    choice("schedule", schedule, SCHEDULES)
    number("temperature", temperature, above=0)
    probability("threshold", threshold)
    whole_number("batch_size", batch_size)
    whole_number("steps", steps, none=True)
    if steps is not None and rule == "threshold":
        raise ValueError(f"steps={steps}, but a threshold takes as many as it needs; leave it out")
    drafts = _drafts(model, tokenizer, lengths, given, seed)
    for draft in drafts:
        blanks = len(draft.blanks)
        draft.counts = iter(reveal_counts(blanks, steps or blanks, schedule))
    pen = _Pen(model, tokenizer, rule, temperature, threshold)
    for step in count(1):
        unfinished = [draft for draft in drafts if draft.blanks]
        if not unfinished:
            return [draft.row for draft in drafts]
        unfinished.sort(key=lambda draft: len(draft.row))  # so that little is padded
        for start in range(0, len(unfinished), batch_size):
            pen.fill(unfinished[start : start + batch_size])
        if watch:
            watch(step, [list(draft.row) for draft in drafts])


def reveal_counts(blanks, steps, schedule="equal"):
    """How many of so many blanks are filled in each step: min(blanks, steps) numbers from 1 on.

    >>> reveal_counts(10, 4)
    [2, 3, 2, 3]
    >>> reveal_counts(10, 4, "cosine")  # 1 − cos(π/2·step/steps) of them are filled after a step
    [1, 2, 3, 4]
    """
    steps, filled = min(blanks, steps), [0]
    for step in range(1, steps + 1):
        # Rounded down: the first steps, which see least, do not get more than their share.
        wanted = blanks * step // steps
        if schedule == "cosine":
            wanted = round(blanks * (1 - math.cos(math.pi / 2 * step / steps)))
        # At least one in each step, and one left for each that comes.
        filled.append(min(max(wanted, filled[-1] + 1), blanks - steps + step))
    return [after - before for before, after in zip(filled, filled[1:])]


class _Draft:
    """A text in the making: its ids, the places still blank, and its own random numbers."""

    def __init__(self, row, mask_token_id, name):
        self.row = row
        self.blanks = [place for place, index in enumerate(row) if index == mask_token_id]
        # A hash, since torch looks only at the last 32 bits of a seed.
        digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))

    def uniform(self, size):
        """(size,) float64 in [0, 1)."""
        return torch.rand(size, generator=self.generator, dtype=torch.float64)

    def fill(self, places, tokens):
        for place, token in zip(places, tokens):
            self.row[place] = token
            self.blanks.remove(place)


def _drafts(model, tokenizer, lengths, given, seed):
    """The drafts to begin with, checked."""
    lengths = id_list("lengths", lengths)
    check_length(model, "the longest text with [CLS] and [SEP]", max(lengths, default=0) + 2)
    given = [None] * len(lengths) if given is None else given
    drafts = []
    for place, (length, row) in enumerate(zip(lengths, given, strict=True)):
        row = [tokenizer.mask_token_id] * length if row is None else id_list(f"given[{place}]", row)
        if len(row) != length:
            told = f"given[{place}] has {len(row)} tokens and lengths[{place}] is {length}"
            raise ValueError(f"{told}; they must agree, without [CLS] and [SEP]")
        drafts.append(_Draft(row, tokenizer.mask_token_id, f"{seed} {place}"))
    return drafts


class _Pen:
    """Fills some blanks of some drafts, by a rule."""

    def __init__(self, model, tokenizer, rule, temperature, threshold):
        self.model, self.tokenizer, self.rule = model, tokenizer, rule
        self.temperature, self.threshold = temperature, threshold
        vocab = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else tokenizer.vocab
        self.tokens = sorted(set(vocab.values()).difference(tokenizer.all_special_ids))

    def fill(self, drafts):
        """One step of each draft."""
        asked = [draft.blanks for draft in drafts]
        if self.rule == "random":  # chosen before the model is asked, which then says no more
            asked = [self._any(draft) for draft in drafts]
        logits = self._logits(drafts, asked)  # (N, V)
        chances = logits.softmax(-1)
        confidence, tokens = chances.max(-1)  # (N,) each
        if self.rule != "greedy":
            uniform = torch.cat([draft.uniform(len(some)) for draft, some in zip(drafts, asked)])
            # The best less itself is 0, and stays it when divided by next to nothing.
            cooled = (logits - logits.amax(-1, keepdim=True)) / self.temperature
            tokens = drawn(cooled.softmax(-1), uniform)
        if self.rule == "keep_confident":
            confidence = chances.gather(1, tokens[:, None])[:, 0]
        sizes = [len(some) for some in asked]
        parts = zip(drafts, asked, tokens.split(sizes), confidence.split(sizes))
        for draft, places, words, sure in parts:
            chosen = self._chosen(draft, sure)
            draft.fill([places[number] for number in chosen], words[chosen].tolist())

    def _any(self, draft):
        """As many random blanks as it is the turn of, in the order of their places."""
        order = draft.uniform(len(draft.blanks)).argsort()[: next(draft.counts)]
        return [draft.blanks[number] for number in sorted(order.tolist())]

    def _chosen(self, draft, confidence):
        """Which of the asked blanks are filled; among equally confident ones the first."""
        if self.rule == "random":
            return list(range(len(confidence)))
        order = confidence.round(decimals=DIGITS).argsort(descending=True, stable=True)
        if self.rule == "threshold":
            return order[: max(1, int((confidence > self.threshold).sum()))].tolist()
        return order[: next(draft.counts)].tolist()

    def _logits(self, drafts, asked):
        """(N, V) float64 scores at asked places, −∞ for tokens that are never written."""
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


def drawn(chances, uniform):
    """One index for each row: the first whose cumulative sum exceeds a uniform number.

    >>> drawn(torch.tensor([[0.2, 0.0, 0.8]] * 3), torch.tensor([0.1, 0.2, 0.9])).tolist()
    [0, 2, 2]

    Args:
        chances: (N, V), 0 or more; float64 lest the last ones be lost.
        uniform: (N,) in [0, 1).
    """
    sums = chances.cumsum(-1)
    wanted = uniform[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, wanted, right=True)[:, 0]
    # A number may round up to the whole sum: then it is the last index with a chance.
    last = ((chances > 0) * torch.arange(chances.shape[-1])).amax(-1)
    return found.minimum(last)


# ------------------------------------------------------------------------------ the ideal reader


class IdealReader(nn.Module):
    """Answers `[MASK]` with P(word | the visible words, their places, the length), exactly.

    It stands wherever a model can: in `nelbo`, `write`, `fill_mask` and `masked_answers`. It has
    nothing to learn, and computes on the CPU in float64.

    Args:
        grammar: a `Grammar`.
        tokenizer: each word of the grammar is one of its tokens.
        lost: what to do with a text that no document of the grammar agrees with. False: an error.
            True: find each word of the grammar equally likely there, as needs a reader of what is
            written several words at once.

    Raises:
        KeyError: a word of the grammar that is no token.
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
        self.nothing = nn.Parameter(torch.zeros(0), requires_grad=False)  # tells the device
        self.log_prob_of_length = cache(grammar.log_prob_of_length)

    def forward(self, input_ids, attention_mask=None, labels=None):
        """Log-probabilities everywhere, or at the labels.

        Args:
            input_ids: (B, T), `[MASK]` where a word is hidden. `[CLS]`, `[SEP]` and `[PAD]` are no
                part of the document.
            attention_mask: (B, T); not needed.
            labels: (B, T), −100 where nothing is asked, as of a `MaskedLanguageModel`.

        Returns:
            {"logits": (B, T, V) or, with labels, (N, V)} float64, −∞ for what is impossible there.
            With labels also "loss", the mean over them.

        Raises:
            ValueError: a length that no document has; unless `lost`, visible words that none has.
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
            # logits[b, places, columns] = log P(word | the visible words elsewhere), (T, V)
            row[some[wanted][:, None], self.columns] = chances[wanted].nan_to_num(uniform).log()
        logits = logits.to(input_ids.device)
        if labels is None:
            return {"logits": logits}
        logits, targets = logits[asked], labels[asked]  # (N, V), (N,)
        own = logits.gather(1, targets.long()[:, None])
        return {"loss": -own.sum() / max(1, len(own)), "logits": logits}

    def extra_repr(self):
        """What `print(reader)` says of it."""
        return f"worlds={self.grammar.worlds}, lost={self.lost}"
