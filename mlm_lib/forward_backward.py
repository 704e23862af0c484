"""Exact predictions of hidden words: the forward–backward algorithm. Built in lesson 08.

`grammar.Grammar` uses this module to compute the lowest possible loss on its documents. The grammar
draws a document in this way. It draws a hidden state z, such as a mood or a country, once for the
document. Then it goes through K steps. Step k occurs with probability p_k; then one of its
sentences s is drawn with probability P(s | z). A sentence has L_s positions. At each position one
word is drawn from a *filler*: a list of words with probabilities. The filler at a position may
depend on z. A reader sees some of the words. Which words should the reader expect at the other
positions?

In the literature this is a hidden *semi*-Markov model: a hidden Markov model in which one step can
give several words. Rabiner (1989), "A tutorial on hidden Markov models and selected applications in
speech recognition", has the recursions for one word per step in equations 18 to 27, and for longer
steps in section IV.D.

Shapes: Z states, D fillers, V words, T positions, B documents next to each other in one tensor.

Steps are numbered from 0 to K − 1, and positions from 0 to T − 1. Four probabilities are computed::

    b_d(t)     P(what is seen at position t | filler d); 1 where nothing is seen
    b_s(t, z)  Π_i b_d(t + i), where d is the i-th filler of s in state z:
               P(what is seen at t and the next positions | z; sentence s begins at t)
    α_k(t, z)  P(the state is z, and steps 0 to k − 1 fill exactly the positions before t, and
               what is seen there)
    β_k(t, z)  P(steps k to K − 1 fill exactly the positions from t on, and what is seen there | z)

The recursion for α starts at the beginning of the document::

    α_0(0, z) = P(z)
    α_k+1(t, z) = (1 − p_k)·α_k(t, z) + p_k·Σ_s P(s | z)·b_s(t − L_s, z)·α_k(t − L_s, z)

The recursion for β starts at the end of the document::

    β_K(T, z) = 1
    β_k(t, z) = (1 − p_k)·β_k+1(t, z) + p_k·Σ_s P(s | z)·b_s(t, z)·β_k+1(t + L_s, z)

Both tables give the probability of everything that is seen::

    P(all that is seen) = Σ_z α_K(T, z) = Σ_z P(z)·β_0(0, z) = Σ_t,z α_k(t, z)·β_k(t, z) for each k

This is a sum over all ways to produce the document. Take only those ways in which filler d is at
position t, and leave out what is seen at t itself. Their sum is the weight of filler d at t::

    w_d(t) = Σ_k,s,i,z α_k(t − i, z)·p_k·P(s | z)·Π_j≠i b_dj(t − i + j)·β_k+1(t − i + L_s, z)

Here d_j is the j-th filler of sentence s in state z. The sum goes over all k, s, i and z for which
d_i, the filler at position i of the sentence, is d. The sentence then begins at t − i. The
prediction is::

    P(word v at t | what is seen at other positions) = Σ_d w_d(t)·P(v | d) / Σ_d w_d(t).
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence


class Step(NamedTuple):
    """A step of the grammar, which occurs with some probability, as one of several sentences.

    Args:
        probability: p_k, the probability that the step occurs at all.
        sentences: a list of pairs (weight, places).

            - weight: (Z,) float64, P(sentence | state, the step occurs). It is 0 in a state in
              which the sentence is impossible.
            - places: a list of L lists of Z numbers. `places[i][z]` is the index of the filler at
              position i in state z, or −1 if the sentence is impossible in state z.
    """

    probability: float
    sentences: list


class Evidence(NamedTuple):
    """What a reader sees of a document.

    For a filler with word probabilities P, the probability of what is seen at t is
    own[t]·P[ids[t]] + other[t]. With own = 1 and other = 0 the word is visible. With own = 0 and
    other = 1 nothing is seen, and the id does not matter. Values in between describe a word that
    may have been replaced by another word.

    Args:
        ids: (T,) long, or (T, B) for B documents next to each other.
        own: of the shape of `ids`, floating point.
        other: of the shape of `ids`, floating point.
    """

    ids: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor

    def fit(self, chances):
        """Takes word probabilities (..., V) of fillers and returns b_d(t) for each, (..., T)."""
        return chances[..., self.ids] * self.own + self.other


class Model:
    """A grammar in numbers: a prior over states, steps, and the word probabilities of fillers.

    Args:
        prior: (Z,) float64, P(z). The prior need not sum to 1; if it is multiplied by a number,
            such as the probability of a world, all results are multiplied by this number.
        steps: a list of `Step`, or of tuples with the same content.
        chances: (D, V) float64, P(word | filler).
    """

    def __init__(self, prior, steps, chances):
        self.prior, self.chances = prior, chances
        # For positions at which the filler depends on the state: {Z numbers of fillers: index}.
        maps = {}
        self.steps = [
            Step(probability, [_Sentence(sentence, maps) for sentence in sentences])
            for probability, sentences in steps
        ]
        self.maps = [torch.tensor(numbers) for numbers in maps]


class _Sentence:
    """A sentence whose positions are sorted into two kinds.

    At most positions the filler is the same in all states. These fillers are `fixed`, and `offsets`
    holds their positions in the sentence. The product of their b_d is computed once instead of Z
    times. At the other positions, `varied`, the filler depends on the state.
    """

    def __init__(self, sentence, maps):
        self.weight, places = sentence
        self.length = len(places)
        fixed, self.varied = [], []  # (offset, filler) and (offset, number of a map)
        for offset, numbers in enumerate(places):
            possible = {number for number in numbers if number >= 0}
            if len(possible) == 1:
                fixed.append((offset, *possible))
            else:
                # In an impossible state the sentence has weight 0, so that any filler will do.
                numbers = tuple(max(number, 0) for number in numbers)
                self.varied.append((offset, maps.setdefault(numbers, len(maps))))
        self.offsets, self.fixed = torch.tensor(fixed, dtype=torch.long).reshape(-1, 2).unbind(1)


class ForwardBackward:
    """The tables α and β of several documents, and the results that follow from them.

    A step can begin only at some positions, so only a window of positions is stored. The window of
    step k starts at position `first[k]`, where step k begins if every earlier step adds as few
    words as it can. `alpha[k][z, i, b]` is α_k(first[k] + i, z) of document b. Each `alpha[k]` is a
    tensor (Z, window, B), and `beta[k]` has the same window.

    Args:
        model: a `Model`.
        evidence: a list of B `Evidence`, one for each document. Each document must have at least
            one word.

    As an example, take documents of two words in one step. The first word is always word 0. The
    second is an opinion: word 1 in state 0, and word 1 or word 2 with equal probability in state 1.
    Both states have the same probability. The reader sees only the opinion, which is word 1.

    >>> chances = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])  # (D, V)
    >>> sentence = torch.ones(2), [[0, 0], [1, 2]]  # P(sentence | state); the fillers by state
    >>> model = Model(torch.tensor([0.5, 0.5]), [Step(1.0, [sentence])], chances)
    >>> own, other = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])  # only position 1 is seen
    >>> tables = ForwardBackward(model, [Evidence(torch.tensor([0, 1]), own, other)])
    >>> tables.alpha[1][:, 0, 0]  # P(state, word 1 is seen): 1/2 · 1 and 1/2 · 1/2
    tensor([0.5000, 0.2500])
    >>> tables.total()
    tensor([0.7500])
    >>> tables.weights()[:, :, 0]  # (D, T); for position 1 the word that is seen there is left out
    tensor([[0.7500, 0.0000],
            [0.0000, 0.5000],
            [0.0000, 0.5000]])
    """

    def __init__(self, model, evidence):
        self.model = model
        self.lengths = torch.tensor([len(one.ids) for one in evidence])  # (B,)
        ids, own, other = zip(*evidence)
        together = Evidence(side_by_side(ids, 0), side_by_side(own, 0.0), side_by_side(other, 1.0))
        self.fit = together.fit(model.chances)  # (D, T, B): b_d(t); 1 at padding
        self.varied = [self.fit[numbers] for numbers in model.maps]  # (Z, T, B) each
        # Step k can begin at positions first[k] to last[k], depending on the sentences before it.
        self.first, self.last = [0], [0]
        for probability, sentences in model.steps:
            shortest = min(sentence.length for sentence in sentences) if probability == 1 else 0
            longest = max(sentence.length for sentence in sentences)
            self.first.append(self.first[-1] + shortest)
            self.last.append(min(self.fit.shape[1], self.last[-1] + longest))

    # ------------------------------------------------------------------ the tables

    @cached_property
    def alpha(self):
        """α_0 to α_K, a list of K + 1 tensors (Z, window, B)."""
        alpha = [self.model.prior[:, None, None].expand(-1, 1, len(self.lengths))]
        for k, (probability, sentences) in enumerate(self.model.steps):
            before, after = alpha[-1], self._zeros(k + 1)
            # 1. The step is left out, and the next step begins at the same position.
            if probability < 1:
                after[:, : before.shape[1]] += (1 - probability) * before
            # 2. Or the step occurs as sentence s, and the next step begins L_s positions later.
            for sentence, score in zip(sentences, self._scores[k]):
                begins, ends = self._windows(k, sentence)
                after[:, ends].addcmul_(before[:, begins], score)
            alpha.append(after)
        return alpha

    @cached_property
    def beta(self):
        """β_0 to β_K, a list of K + 1 tensors (Z, window, B)."""
        beta = [self._end.expand(len(self.model.prior), -1, -1)]
        for k in reversed(range(len(self.model.steps))):
            probability, sentences = self.model.steps[k]
            later, earlier = beta[0], self._zeros(k)
            if probability < 1:
                earlier += (1 - probability) * later[:, : earlier.shape[1]]
            for sentence, score in zip(sentences, self._scores[k]):
                begins, ends = self._windows(k, sentence)
                earlier[:, begins].addcmul_(score, later[:, ends])
            beta.insert(0, earlier)
        return beta

    def whole(self, table):
        """`alpha` or `beta` at all positions instead of windows: one tensor (K + 1, Z, T + 1, B).

        Use it to print or draw a table. The values outside the windows are 0.
        """
        shape = len(table), len(self.model.prior), self.fit.shape[1] + 1, len(self.lengths)
        out = torch.zeros(shape, dtype=self.fit.dtype)
        for row, start, window in zip(out, self.first, table):
            row[:, start : start + window.shape[1]] = window
        return out

    # ------------------------------------------------------------------ what follows from them

    def total(self):
        """P(all that is seen) = Σ_z α_K(T, z) of each document, (B,)."""
        return (self.alpha[-1] * self._end).sum((0, 1))

    def weights(self):
        """w_d(t), the weight of each filler at each position, (D, T, B).

        The weight at a position depends only on what is seen at the other positions.
        """
        out = torch.zeros_like(self.fit)
        varied = [torch.zeros_like(fit) for fit in self.varied]
        for k, (probability, sentences) in enumerate(self.model.steps):
            for sentence in sentences:
                begins, ends = self._windows(k, sentence)
                # Everything outside of the sentence: α·p·P(s | z)·β, (Z, places, B)
                around = self.alpha[k][:, begins] * self.beta[k + 1][:, ends] * probability
                around = around * sentence.weight[:, None, None]
                self._add_weights(sentence, self.first[k], around, out, varied)
        for numbers, weight in zip(self.model.maps, varied):
            out.index_add_(0, numbers, weight)
        return out

    def _add_weights(self, sentence, start, around, out, varied):
        """Add the weight of a sentence to the filler at each of its positions.

        At each position the b_d of this position is left out of the product. Weights of fillers
        that are the same in all states are added to `out` (D, T, B). Weights of fillers that depend
        on the state are added to `varied`.
        """
        places = around.shape[1]
        rows, fits = self._rows(sentence, start, places), self._fits(sentence, start, places)
        fixed = self.fit.flatten(0, 1)[rows]  # (F, places, B)
        inside = around
        for fit in fits:
            inside = inside * fit
        others = products_of_others(fixed) * inside.sum(0)
        out.flatten(0, 1).index_put_((rows,), others, accumulate=True)
        if fits:
            around = around * fixed.prod(0)
            products = products_of_others(torch.stack(fits)) if len(fits) > 1 else [1.0]
            for (offset, number), others in zip(sentence.varied, products):
                varied[number][:, start + offset :][:, :places] += around * others

    # ------------------------------------------------------------------ the parts of the recursion

    @cached_property
    def _scores(self):
        """p_k·P(s | z)·b_s(t, z) as [k][s], where step k can begin: (Z, places, B) each."""
        return [
            [self._score(k, sentence) * probability for sentence in sentences]
            for k, (probability, sentences) in enumerate(self.model.steps)
        ]

    def _score(self, k, sentence):
        """P(s | z)·b_s(t, z) at the positions where step k can begin, (Z, places, B)."""
        start, places = self.first[k], self._windows(k, sentence)[0].stop
        fixed = self.fit.flatten(0, 1)[self._rows(sentence, start, places)]  # (F, places, B)
        score = sentence.weight[:, None, None] * fixed.prod(0)
        for fit in self._fits(sentence, start, places):
            score *= fit
        return score

    def _windows(self, k, sentence):
        """Two slices. The first has the places in the window of step k at which a sentence can
        begin. The second has the places in the window of step k + 1 at which the next step begins
        after this sentence.
        """
        last = min(self.last[k], self.fit.shape[1] - sentence.length)
        places = max(0, last - self.first[k] + 1)
        shift = self.first[k] + sentence.length - self.first[k + 1]
        return slice(0, places), slice(shift, shift + places)

    def _rows(self, sentence, start, places):
        """Where b_d(t + offset) of the F fixed fillers is in `fit.flatten(0, 1)`, (F, places)."""
        first = sentence.fixed * self.fit.shape[1] + sentence.offsets + start
        return first[:, None] + torch.arange(places)

    def _fits(self, sentence, start, places):
        """b_d(t + offset) where the filler depends on the state, a list of (Z, places, B)."""
        return [
            self.varied[number][:, start + offset : start + offset + places]
            for offset, number in sentence.varied
        ]

    def _zeros(self, k):
        """An empty table for step k, (Z, window, B)."""
        window = max(0, self.last[k] - self.first[k] + 1)
        shape = len(self.model.prior), window, len(self.lengths)
        return torch.zeros(shape, dtype=self.fit.dtype)

    @cached_property
    def _end(self):
        """β_K: 1 at the position where the document ends and 0 elsewhere, (window, B)."""
        places = self.first[-1] + torch.arange(max(0, self.last[-1] - self.first[-1] + 1))
        return (places[:, None] == self.lengths).to(self.fit.dtype)


def products_of_others(factors):
    """For each of N factors, the product of all other factors, (N, ...).

    The result is computed without division, because a factor may be 0. It is the product of the
    factors before this factor, times the product of the factors after it.

    >>> products_of_others(torch.tensor([2.0, 0.0, 5.0]))
    tensor([ 0., 10.,  0.])
    """
    ones = torch.ones_like(factors[:1])
    before = torch.cat([ones, factors[:-1]]).cumprod(0)
    after = torch.cat([ones, factors[1:].flip(0)]).cumprod(0).flip(0)
    return before * after


def side_by_side(rows, padding):
    """Put B tensors (T,) of different lengths next to each other, padded to (longest T, B)."""
    return pad_sequence(rows, padding_value=padding)
