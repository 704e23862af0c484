"""What an ideal reader knows: α, β and their product. Built in lesson 08.

An author draws a hidden state z once (a mood, a country), then walks through K steps. Step k is
told with probability p_k, as one of its sentences s, drawn given z. A sentence has L_s places and
says one word at each, drawn from a *filler*: a list of words with chances. Which filler it is may
depend on z. A reader sees some of the words. What should he expect at each place?

Since a step says a whole sentence, of any length, this is a hidden *semi*-Markov model. Rabiner
(1989), "A tutorial on hidden Markov models and selected applications in speech recognition", has
the recursions for one word a step in equations 18 to 27 and for longer ones in section IV.D.

Shapes: Z states, D fillers, V words, T places, B documents side by side.

    b_d(t)     how well filler d fits what is seen at place t: P(that | d); 1 where nothing is seen
    b_s(t, z)  the same of sentence s, if it begins at t: Π_i b_d(t + i), d its i-th filler given z
    α_k(t, z)  P(z, the turn of step k comes at place t, what is seen before t)
    β_k(t, z)  P(what is seen from t on | z, the turn of step k comes at place t)

    α_0(0, z) = P(z)
    α_k+1(t, z) = (1 − p_k)·α_k(t, z) + p_k·Σ_s P(s | z)·b_s(t − L_s, z)·α_k(t − L_s, z)

    β_K(T, z) = 1, for there the document ends
    β_k(t, z) = (1 − p_k)·β_k+1(t, z) + p_k·Σ_s P(s | z)·b_s(t, z)·β_k+1(t + L_s, z)

    P(all that is seen) = Σ_z α_K(T, z) = Σ_z P(z)·β_0(0, z) = Σ_t,z α_k(t, z)·β_k(t, z) for each k

Such a sum goes through every way to tell the document. Sorted by the filler that stands at place
t, and with what is seen at t itself left out, it is the weight of filler d there:

    w_d(t) = Σ_k,s,i,z α_k(t − i, z)·p_k·P(s | z)·Π_j≠i b_dj(t − i + j)·β_k+1(t − i + L_s, z),

the sum over all sentences whose i-th filler, given z, is d. What the reader expects at t is
P(word v at t | what is seen elsewhere) = Σ_d w_d(t)·P(v | d) / Σ_d w_d(t).
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence


class Step(NamedTuple):
    """A part of the story: told with this probability, as one of these sentences.

    A sentence is a pair (weight, places).
    weight: (Z,) float64, P(sentence | state) once the step is told; 0 where it is impossible.
    places: L lists of Z numbers, the filler at this place in each state; −1 where it is impossible.
    """

    probability: float
    sentences: list


class Evidence(NamedTuple):
    """What a reader sees of a document. The token ids[t] counts own[t]·P(ids[t]) + other[t].

    (1, 0) is a word seen as it stands, (0, 1) a place where nothing is seen, whatever the id there.
    Each is a tensor (T,), or (T, B) for documents side by side.
    """

    ids: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor

    def fit(self, chances):
        """(..., V) -> (..., T): b(t), how well fillers of these word chances fit what is seen."""
        return chances[..., self.ids] * self.own + self.other


class Model:
    """The author: a prior over states, the steps, and the fillers' word chances.

    Args:
        prior: (Z,) float64. A common factor, such as a world's share, passes to all results.
        steps: list of `Step`, or of tuples that hold the same.
        chances: (D, V) float64, P(word | filler).
    """

    def __init__(self, prior, steps, chances):
        self.prior, self.chances = prior, chances
        maps = {}  # the fillers of places where they differ between states: (Z,) numbers
        self.steps = [
            Step(probability, [_Parts(sentence, maps) for sentence in sentences])
            for probability, sentences in steps
        ]
        self.maps = [torch.tensor(numbers) for numbers in maps]


class _Parts:
    """A sentence, its places in two parts.

    Most have the same filler in all states: their fits are multiplied once and not Z times.
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
                # An impossible state has weight 0, so any filler will do for it.
                numbers = tuple(max(number, 0) for number in numbers)
                self.varied.append((offset, maps.setdefault(numbers, len(maps))))
        self.offsets, self.fixed = torch.tensor(fixed, dtype=torch.long).reshape(-1, 2).unbind(1)


class ForwardBackward:
    """The tables α and β of some documents, and what follows from them.

    A step cannot begin just anywhere, so only a window of places is kept: `alpha[k][z, i, b]` is
    α_k(first[k] + i, z) of document b, a tensor (Z, window, B), and `beta[k]` has the same places.

    Args:
        model: a `Model`.
        evidence: list of B `Evidence`, one for each document, at least one word long.

    An author in one of two states says "so" and an opinion, which is always word 1 in state 0 and
    either word 1 or word 2 in state 1. The reader sees neither or only the opinion:

    >>> chances = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])  # (D, V)
    >>> opinion = torch.ones(2), [[0, 0], [1, 2]]  # its weight in each state, and its places
    >>> model = Model(torch.tensor([0.5, 0.5]), [Step(1.0, [opinion])], chances)
    >>> nothing, word = (0.0, 1.0), (1.0, 0.0)
    >>> own, other = torch.tensor([nothing, word]).T
    >>> tables = ForwardBackward(model, [Evidence(torch.tensor([0, 1]), own, other)])
    >>> tables.alpha[1][:, 0, 0]  # in state 0 it is sure to say word 1, in state 1 half as likely
    tensor([0.5000, 0.2500])
    >>> tables.total()
    tensor([0.7500])
    >>> tables.weights()[:, :, 0]  # (D, T): at place 1 the opinion itself does not count
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
        # The turn of step k comes between first[k], if all before it is short, and last[k].
        self.first, self.last = [0], [0]
        for probability, sentences in model.steps:
            shortest = min(sentence.length for sentence in sentences) if probability == 1 else 0
            longest = max(sentence.length for sentence in sentences)
            self.first.append(self.first[-1] + shortest)
            self.last.append(min(self.fit.shape[1], self.last[-1] + longest))

    # ------------------------------------------------------------------ the tables

    @cached_property
    def alpha(self):
        """α, from the first step to the end of the document, in K + 1 tensors (Z, window, B)."""
        alpha = [self.model.prior[:, None, None].expand(-1, 1, len(self.lengths))]
        for k, (probability, sentences) in enumerate(self.model.steps):
            before, after = alpha[-1], self._zeros(k + 1)
            # 1. The step is left out, and the next one begins at the same place.
            if probability < 1:
                after[:, : before.shape[1]] += (1 - probability) * before
            # 2. Or it is told as sentence s, and the next one begins L_s places later.
            for sentence, score in zip(sentences, self._scores[k]):
                begins, ends = self._windows(k, sentence)
                after[:, ends].addcmul_(before[:, begins], score)
            alpha.append(after)
        return alpha

    @cached_property
    def beta(self):
        """β, from the document's end back to the first step, in K + 1 tensors (Z, window, B)."""
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
        """`alpha` or `beta` with all places, for a picture: (K + 1, Z, T + 1, B)."""
        shape = len(table), len(self.model.prior), self.fit.shape[1] + 1, len(self.lengths)
        out = torch.zeros(shape, dtype=self.fit.dtype)
        for row, start, window in zip(out, self.first, table):
            row[:, start : start + window.shape[1]] = window
        return out

    # ------------------------------------------------------------------ what follows from them

    def total(self):
        """(B,): P(all that is seen) = Σ_z α_K(T, z)."""
        return (self.alpha[-1] * self._end).sum((0, 1))

    def weights(self):
        """(D, T, B): w_d(t), the weight of a filler at a place, given what is seen elsewhere."""
        out = torch.zeros_like(self.fit)
        varied = [torch.zeros_like(fit) for fit in self.varied]
        for k, (probability, sentences) in enumerate(self.model.steps):
            for sentence in sentences:
                begins, ends = self._windows(k, sentence)
                # Everything outside the sentence: α·p·P(s | z)·β, (Z, places, B)
                around = self.alpha[k][:, begins] * self.beta[k + 1][:, ends] * probability
                around = around * sentence.weight[:, None, None]
                self._share_out(sentence, self.first[k], around, out, varied)
        for numbers, weight in zip(self.model.maps, varied):
            out.index_add_(0, numbers, weight)
        return out

    def _share_out(self, sentence, start, around, out, varied):
        """Adds a sentence's weight to the filler of each of its places, that place's fit left out.

        Fixed fillers add to `out` (D, T, B), those that differ between states to `varied`.
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
        """[k][s]: p_k·P(s | z)·b_s(t, z) at the places where step k may begin, (Z, places, B)."""
        return [
            [self._score(k, sentence) * probability for sentence in sentences]
            for k, (probability, sentences) in enumerate(self.model.steps)
        ]

    def _score(self, k, sentence):
        start, places = self.first[k], self._windows(k, sentence)[0].stop
        fixed = self.fit.flatten(0, 1)[self._rows(sentence, start, places)]  # (F, places, B)
        score = sentence.weight[:, None, None] * fixed.prod(0)
        for fit in self._fits(sentence, start, places):
            score *= fit
        return score

    def _windows(self, k, sentence):
        """Where a sentence of step k may begin, in alpha[k], and where it ends, in alpha[k + 1]."""
        last = min(self.last[k], self.fit.shape[1] - sentence.length)
        places = max(0, last - self.first[k] + 1)
        shift = self.first[k] + sentence.length - self.first[k + 1]
        return slice(0, places), slice(shift, shift + places)

    def _rows(self, sentence, start, places):
        """(F, places): which rows of fit.flatten(0, 1) are b_d(t + offset) of the fixed fillers."""
        first = sentence.fixed * self.fit.shape[1] + sentence.offsets + start
        return first[:, None] + torch.arange(places)

    def _fits(self, sentence, start, places):
        """[(Z, places, B)]: the same of each place whose filler differs between states."""
        return [
            self.varied[number][:, start + offset : start + offset + places]
            for offset, number in sentence.varied
        ]

    def _zeros(self, k):
        window = max(0, self.last[k] - self.first[k] + 1)
        shape = len(self.model.prior), window, len(self.lengths)
        return torch.zeros(shape, dtype=self.fit.dtype)

    @cached_property
    def _end(self):
        """(window, B): β_K, 1 where the document ends."""
        places = self.first[-1] + torch.arange(max(0, self.last[-1] - self.first[-1] + 1))
        return (places[:, None] == self.lengths).to(self.fit.dtype)


def products_of_others(factors):
    """(N, ...): for each the product of all the others, without division, which a 0 would spoil.

    What stands before it, multiplied up from the left, times what stands behind it, from the right.

    >>> products_of_others(torch.tensor([2.0, 0.0, 5.0]))
    tensor([ 0., 10.,  0.])
    """
    ones = torch.ones_like(factors[:1])
    before = torch.cat([ones, factors[:-1]]).cumprod(0)
    behind = torch.cat([ones, factors[1:].flip(0)]).cumprod(0).flip(0)
    return before * behind


def side_by_side(rows, padding):
    """Rows (T,) of unequal length as columns: (longest T, B)."""
    return pad_sequence(rows, padding_value=padding)
