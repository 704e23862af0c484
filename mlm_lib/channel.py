"""How a masked document reaches its reader, and Bayes' rule to undo it. Built in lesson 08."""

import torch

from mlm_lib.checks import probability, shares, whole_number


class Channel:
    """How a document reaches the reader: 80/10/10, as lesson 02 does it, and how to undo it.

    Of a word w that is *selected* he is shown a token y, one of N, or nothing:

        P(y | w, selected) = keep_share·[y = w] + random_share/N       P(nothing) = mask_share

    He does not know which of the other words were selected, each at the given rate, so there

        P(y | w) = (1 − rate)·[y = w] + rate·P(y | w, selected)
                 = (1 − rate·(1 − keep_share))·[y = w] + rate·random_share/N
                 = true·[y = w] + noise
    """

    def __init__(self, rate, mask_share, random_share, tokens, words):
        self.rate = probability("rate", rate)
        self.mask_share, self.random_share = shares(mask_share, random_share)
        self.keep_share = max(0.0, 1 - self.mask_share - self.random_share)
        tokens = whole_number("random_vocabulary_size", tokens, words, none=True) or words
        self.words, self.tokens = words, tokens  # V and N
        self.drawn = self.random_share / self.tokens  # chance of each random word
        self.true = 1 - self.rate * (1 - self.keep_share)
        self.noise = self.rate * self.random_share / self.tokens

    def show(self, ids, generator):
        """Which words (T,) are selected, and what is shown of all: ids (T,), −1 for nothing."""
        selected = torch.rand(len(ids), generator=generator) < self.rate
        roll = torch.rand(len(ids), generator=generator)
        other = torch.randint(self.tokens, (len(ids),), generator=generator)
        # A token that is no word of the grammar says nothing: noise shows it, whatever the word.
        other[other >= self.words] = -1
        hidden = selected & (roll < self.mask_share)
        swapped = selected & ~hidden & (roll < self.mask_share + self.random_share)
        return selected, torch.where(swapped, other, ids).masked_fill(hidden, -1)

    def if_selected(self, asked, chances):
        """(T,): P(w | y, selected), of words w, shown as y, from P(w) and P(y) given the rest.

        asked: (2, T), the ids of w and of y. chances: (2, T), their chances given what is shown
        elsewhere, as if nothing were shown here.
        """
        (word, shown), (p_word, p_shown) = asked, chances
        # Bayes' rule: P(w | y) = P(w)·P(y | w, selected) / Σ_v P(v)·P(y | v, selected), v any word
        #                       = P(w)·(keep·[y = w] + drawn) / (keep·P(y) + drawn)
        channel = self.keep_share * (shown == word).double() + self.drawn
        weighed = p_word * channel / (self.keep_share * p_shown + self.drawn)
        # Where nothing is shown, P(nothing | w, selected) = mask_share cancels, and P(w) stays.
        return torch.where(shown < 0, p_word, weighed)
