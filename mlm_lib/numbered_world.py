"""One world of a grammar as numbered arrays: drawing from it, and its weights. Built in lesson 08.

A grammar file gives words and sentences. Here each word has its number in the vocabulary, so that
the fillers become one array, and the sums that a draw needs are made once. `Grammar` holds several
such worlds, each with its share of the documents.
"""

import itertools
import math
from bisect import bisect

import torch

from mlm_lib.forward_backward import ForwardBackward, Model, side_by_side


class NumberedWorld:
    """One world with its words numbered: drawing from it, and inference in it.

    Shapes: Z states, D fillers, V words, T places, B documents, as in `forward_backward`.

    Args:
        world: a `grammar_file.World`.
        share: the world's share of all documents; 0 for a world that is never drawn.
        index: {word: number below V}, with every word of the world in it.

    Attributes:
        chances: (D, V) float64, P(word | filler).
        best: (V,), the largest chance of each word in any filler.
        knows: (V,) bool, which words the world can say.
        model: the `forward_backward.Model`, its prior times the share.
    """

    def __init__(self, world, share, index):
        self.share, self.steps = share, world.steps
        self.chances = torch.zeros(len(world.fillers), len(index), dtype=torch.float64)  # (D, V)
        for row, filler in zip(self.chances, world.fillers):
            for word, chance in filler.items():
                row[index[word]] = chance
        self.best = self.chances.amax(0)  # (V,)
        self.knows = self.best > 0
        self.model = Model(world.prior * share, world.steps, self.chances)
        # What `draw` draws from: states, then for each step and state sentences, then words.
        self.state_sums = running_sums(world.prior.tolist())
        self.sentence_sums = []
        for _, sentences in world.steps:
            weights = torch.stack([sentence.weight for sentence in sentences])  # (sentences, Z)
            self.sentence_sums.append([running_sums(column) for column in weights.T.tolist()])
        self.filler_sums = [(list(one), running_sums(one.values())) for one in world.fillers]

    def sample(self, rng):
        """One document, a list of words, drawn with a `random.Random`."""
        words, state = [], draw(rng, self.state_sums)
        for step, sums in zip(self.steps, self.sentence_sums):
            if step.probability == 1 or rng.random() < step.probability:
                for numbers in step.sentences[draw(rng, sums[state])].places:
                    choices, chances = self.filler_sums[numbers[state]]
                    words.append(choices[0] if len(choices) == 1 else choices[draw(rng, chances)])
        return words

    def bound(self, evidence):
        """(T,): the logarithm of what no weight at a place, given what is seen elsewhere, exceeds.

        At every other place stands the filler that fits best there. That costs no recursion.
        evidence: the `forward_backward.Evidence` of one document.
        """
        fit = evidence.fit(self.best)  # (T,)
        never = fit == 0
        logs = torch.where(never, 0.0, fit.log())
        never_elsewhere = never.sum() - never.long()
        share = math.log(self.share) if self.share else -math.inf
        return torch.where(never_elsewhere > 0, -math.inf, logs.sum() - logs + share)

    def weights(self, evidence, asked):
        """The weights of the asked words, or of all, and last those of any: (A + 1, T, B).

        Args:
            evidence: list of B `Evidence`, one for each document, at least one word long.
            asked: for each document (A, T) ids, where −1 has weight 0; None asks all V words.
        """
        weights = ForwardBackward(self.model, evidence).weights()  # (D, T, B)
        if asked is None:
            all_words = torch.einsum("dtb,dv->vtb", weights, self.chances)
            return torch.cat([all_words, weights.sum(0, keepdim=True)])
        out = torch.zeros(len(asked[0]) + 1, *weights.shape[1:], dtype=torch.float64)
        for row, ids in zip(out, zip(*asked)):
            words = side_by_side(ids, -1)  # (T, B)
            row[:] = (self.chances[:, words] * weights).sum(0).masked_fill(words < 0, 0.0)
        out[-1] = weights.sum(0)
        return out


def running_sums(values):
    """The list of sums of the first one, two, ... values: what `draw` draws from.

    >>> running_sums([1, 0, 3])
    [1, 1, 4]
    """
    return list(itertools.accumulate(values))


def draw(rng, sums):
    """An index, with chances in proportion to the steps of the running sums.

    One number of `rng` and a search by halves, whatever the length. What has weight 0 never comes,
    unless all have.
    """
    return min(bisect(sums, rng.random() * sums[-1]), len(sums) - 1)
