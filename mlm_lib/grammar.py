"""A corpus whose best possible loss is known exactly: documents drawn from a grammar file.

Built in lesson 08. A document belongs to a *world*, a small topic. It draws the world's *latents*
once (a mood, a country with its facts), then walks through the world's *steps*: each is told with
its probability, as one sentence, drawn given the latents; the sentence's slots are filled given
them too. So what is hidden from a reader can be inferred exactly (see `forward_backward`). No model
can predict better than these posteriors: their loss is the floor.

`data/grammar.toml` is our grammar; its first lines explain the format.
"""

import math
import random
from bisect import bisect
from itertools import accumulate, chain, islice

import torch

from mlm_lib import DATA
from mlm_lib.checks import choice, probability, refused, shares, whole_number
from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.estimates import Estimate
from mlm_lib.forward_backward import Evidence, ForwardBackward, Model, side_by_side

CHUNK = 32  # documents whose inference runs side by side
NOTHING = 1e-20  # a share of a sum that float64, with its 16 digits, cannot see


class Floor(Estimate):
    """The least expected loss of any model, over the words that it is asked for."""


class Grammar:
    """Worlds, their vocabulary, and exact inference in them. Make one with `Grammar.load`.

    Attributes:
        worlds: the names of the worlds.
        vocabulary: list of all words, sorted; V is its length.
    """

    @classmethod
    def load(cls, path=None, *, worlds=None):
        """Reads a grammar file.

        Args:
            path: a TOML file; None is the course's own, `data/grammar.toml`.
            worlds: names of the worlds to keep; None keeps all.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a world that the file lacks; a malformed file, with what is wrong in it.
        """
        return cls(read_worlds(DATA / "grammar.toml" if path is None else path, worlds))

    def __init__(self, worlds):
        self.worlds = [world.name for world in worlds]
        fillers = chain.from_iterable(world.fillers for world in worlds)
        self.vocabulary = sorted(set().union(*fillers))
        self._index = {word: index for index, word in enumerate(self.vocabulary)}
        total = sum(world.weight for world in worlds)
        self._worlds = [NumberedWorld(world, world.weight / total, self._index) for world in worlds]
        self._shares = list(accumulate(world.share for world in self._worlds))
        # A word's largest chance in any slot. Evidence divided by it keeps long products far from
        # underflow, and changes no posterior.
        self._scale = torch.stack([world.best for world in self._worlds]).amax(0)  # (V,)

    def sample(self, n, *, seed=0):
        """Draws documents.

        Returns:
            A list of n documents, each a list of words. The first ones do not depend on n.

        Raises:
            ValueError: a negative n or seed.
        """
        return list(islice(self.documents(seed), whole_number("n", n, least=0)))

    def documents(self, seed=0):
        """Draws documents without end: those of `sample`, one at a time."""
        rng = random.Random(whole_number("seed", seed, least=0))
        while True:
            yield self._worlds[draw(rng, self._shares)].sample(rng)

    def log_prob(self, words):
        """log P(document), its end included; -inf for what the grammar cannot say.

        -inf also where each word has its least chance, 700 nats in all below its largest: there
        float64 ends.
        """
        ids = self._ids(words)
        if not len(ids) or (ids < 0).any():
            return -math.inf
        worlds = [world for world in self._worlds if (world.best[ids] > 0).all()]
        return self._log_total(worlds, self._evidence(ids)) + self._scale[ids].log().sum().item()

    def log_prob_of_length(self, length):
        """log P(a document has so many words); -inf for a length that none has.

        `log_prob(words)` less this is log P(words | their number), which no reader who is told the
        number can beat on average.
        """
        nothing = self._evidence(torch.full((length,), -1))
        return self._log_total(self._worlds if length else [], nothing)

    def _log_total(self, worlds, evidence):
        """log P(what is seen), divided by the scale of what is seen; -inf where it cannot be."""
        chance = sum(ForwardBackward(world.model, [evidence]).total().item() for world in worlds)
        return math.log(chance) if chance else -math.inf

    def posteriors(self, words, observed):
        """P(word at t | the observed words elsewhere, and the length), exactly, for all t at once.

        Args:
            words: list of T words; those not observed may be anything.
            observed: (T,) bool, True where the reader sees the word. The word at t itself never
                counts at t.

        Returns:
            (T, V) float64, in the order of `vocabulary`; rows sum to 1.

        Raises:
            ValueError: lengths that differ, or observed words that no document of the grammar has
                there.
        """
        return self.posteriors_of([words], [observed])[0]

    def posteriors_of(self, documents, observed, *, check=True):
        """`posteriors` of many documents at once, which is several times as fast.

        Args:
            documents: list of lists of words.
            observed: for each document (T,) bool.
            check: raise if no document of the grammar reads so; without it, there stands NaN.

        Returns:
            A list of (T, V) float64 tensors.
        """
        evidence = [self._seen(*pair)[1] for pair in zip(documents, observed, strict=True)]
        return [chances.T for chances in self._chances(evidence, documents, check=check)]

    def surprise(self, documents, observed):
        """-log P(word at t | the observed words elsewhere), in nats, for all words of documents.

        Args:
            documents: list of lists of words.
            observed: for each document (T,) bool, as in `posteriors`.

        Returns:
            A list of (T,) float64 tensors.

        Raises:
            ValueError: as `posteriors`.
        """
        pairs = [self._seen(*pair) for pair in zip(documents, observed, strict=True)]
        asked, evidence = [ids[None] for ids, _ in pairs], [seen for _, seen in pairs]
        return [-chance[0].log() for chance in self._chances(evidence, documents, asked)]

    def floor(
        self, documents, *, objective="masked", rate=0.15, mask_share=1.0, random_share=0.0, seed=0,
        random_vocabulary_size=None,
    ):  # fmt: skip
        """The loss of the ideal reader, who knows the grammar: what no model can beat on average.

        Args:
            documents: list of lists of words, drawn from this grammar and not seen in training.
            objective: `"masked"`; or `"forward"` and `"backward"`, the next and the previous word,
                where the end (the start) of a document is one more thing to predict. By the chain
                rule these two agree; and so do all orders in `"any_order"`, where the number of
                words is known beforehand and costs nothing.
            rate: chance of a word to be selected for prediction, each on its own.
            mask_share, random_share: of the selected words these shares are hidden and replaced by
                a random word; the rest stay. Then the reader cannot trust what is visible.
            random_vocabulary_size: how many tokens a random replacement is drawn from, the
                grammar's V words among them; None is V.

        Returns:
            `Floor(nats, standard_error, count)`.

        Raises:
            ValueError: an unknown objective, rates that are no probabilities, documents that the
                grammar cannot say.
        """
        choice("objective", objective, ("masked", "forward", "backward", "any_order"))
        channel = Channel(rate, mask_share, random_share, random_vocabulary_size, len(self._index))
        sums = [-self.log_prob(words) for words in documents]
        for nats, words in zip(sums, documents):
            _possible(nats < math.inf, words)
        counts = [len(words) for words in documents]
        if objective == "masked":
            surprises = self._masked_surprises(documents, channel, seed)
            sums = [surprise.sum().item() for surprise in surprises]
            counts = [len(surprise) for surprise in surprises]
        elif objective == "any_order":
            known = {length: self.log_prob_of_length(length) for length in set(counts)}
            sums = [nats + known[length] for nats, length in zip(sums, counts)]
        else:
            counts = [length + 1 for length in counts]  # the end, or the start
        if not sum(counts):
            raise ValueError(f"no word of these {len(counts)} documents is asked for; give more")
        return Floor.of_rows(torch.tensor(sums, dtype=torch.float64), torch.tensor(counts))

    def _masked_surprises(self, documents, channel, seed):
        """For each document -log P(word | what is visible) at its selected words."""
        generator = torch.Generator().manual_seed(seed)
        evidence, asked, selected = [], [], []
        for words in documents:
            ids = self._ids(words)
            chosen, shown = channel.show(ids, generator)
            evidence.append(self._evidence(shown, channel.true, channel.noise))
            asked.append(torch.stack([ids, shown]))
            selected.append(chosen)
        chances = map(channel.if_selected, asked, self._chances(evidence, documents, asked))
        return [-chance[chosen].log() for chance, chosen in zip(chances, selected)]

    # ------------------------------------------------------------------ what a reader sees

    def _ids(self, words):
        """(T,): the words' numbers, −1 for what is no word of the grammar."""
        if isinstance(words, str):  # which would be read letter by letter
            raise refused("words", words, "a list of words, such as text.split(),")
        return torch.tensor([self._index.get(word, -1) for word in words], dtype=torch.long)

    def _seen(self, words, observed):
        """The ids (T,) of all words, and the `Evidence` of those that are observed."""
        ids, given = self._ids(words), torch.as_tensor(observed, device="cpu")
        observed = given.bool()
        if not len(ids) or observed.shape != ids.shape or (observed != given).any():  # 2 or NaN
            raise refused("observed", given, f"one True or False for each of {len(ids)} words")
        if (observed & (ids < 0)).any():
            wrong = words[(observed & (ids < 0)).nonzero()[0].item()]
            raise ValueError(f"{wrong!r} is not a word of this grammar")
        return ids, self._evidence(ids.masked_fill(~observed, -1))

    def _evidence(self, ids, true=1.0, noise=0.0):
        """What ids (T,) say of the words, if P(shown | word) = true·[shown = word] + noise.

        An id of −1 shows nothing.
        """
        seen, scale = ids >= 0, true * self._scale[ids] + noise
        own, other = torch.where(seen, true / scale, 0.0), torch.where(seen, noise / scale, 1.0)
        return Evidence(ids, own, other)

    # ------------------------------------------------------------------ many documents

    def _chances(self, evidence, documents, asked=None, *, check=True):
        """For each document (A, T): the chances of the asked words, given what is seen elsewhere.

        evidence: one `Evidence` for each document. asked: for each (A, T) ids, where −1 has chance
        0; None asks all V words. Without `check` there stands NaN where nothing is possible.
        """
        # Documents of like length together, so that little is padded; few where V chances are kept.
        order = sorted(range(len(evidence)), key=lambda number: len(documents[number]))
        at_once = CHUNK if asked is None else 8 * CHUNK
        out = [None] * len(order)
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            found = self._weights([evidence[n] for n in part], asked and [asked[n] for n in part])
            for column, number in enumerate(part):
                weights = found[:, : len(documents[number]), column]  # (A + 1, T)
                if check:
                    _possible((weights[-1] > 0).all(), documents[number])
                out[number] = weights[:-1] / weights[-1]
        return out

    def _weights(self, evidence, asked):
        """The weights of the asked words, and last those of any word: (A + 1, T, documents).

        A document is nearly always of one world, and the recursion in the others would find next
        to nothing. So each world first says what it can have at most.
        """
        bounds = [[world.bound(one) for one in evidence] for world in self._worlds]
        bounds = torch.stack([side_by_side(rows, -math.inf) for rows in bounds])  # (W, T, N)
        likeliest = bounds.amax(1).argmax(0)  # (N,)
        rows = len(self.vocabulary) if asked is None else len(asked[0])
        found = torch.zeros(rows + 1, *bounds.shape[1:], dtype=torch.float64)

        def go_through(world, wanted):
            """Adds what a world has of the wanted (N,) documents."""
            numbers = wanted.nonzero().flatten().tolist()
            for start in range(0, len(numbers), CHUNK):
                some = numbers[start : start + CHUNK]
                words = asked and [asked[n] for n in some]
                weights = world.weights([evidence[n] for n in some], words)
                found[:, : weights.shape[1], some] += weights

        # 1. The likeliest world of each document.
        for number, world in enumerate(self._worlds):
            go_through(world, likeliest == number)
        # 2. Any other that could still change the sum.
        least = (found[-1] * NOTHING).log()  # (T, N)
        for number, world in enumerate(self._worlds):
            could = (bounds[number] > least).any(0)
            go_through(world, could & (likeliest != number))
        return found


def _possible(possible, words):
    if not possible:
        told = f"no document of this grammar reads so: {' '.join(map(str, words))[:200]!r}"
        raise ValueError(f"{told}; its world is not loaded, it was cut short, or float64 ends here")


# ------------------------------------------------------------------------------------ one world


class NumberedWorld:
    """One world with its words numbered: drawing from it, and inference in it.

    Shapes: Z states, D fillers, V words, T places, B documents, as in `forward_backward`.

    Args:
        world: a `grammar_file.World`.
        share: the world's share of all documents; 0 for a world that is never drawn.
        index: {word: number below V}, with every word of the world in it.

    Attributes:
        chances: (D, V) float64, P(word | filler).
        best: (V,), the largest chance of each word in any filler; 0 if the world cannot say it.
        model: the `forward_backward.Model`, its prior times the share.
    """

    def __init__(self, world, share, index):
        self.share, self.steps = share, world.steps
        self.chances = torch.zeros(len(world.fillers), len(index), dtype=torch.float64)  # (D, V)
        for row, filler in zip(self.chances, world.fillers):
            for word, chance in filler.items():
                row[index[word]] = chance
        self.best = self.chances.amax(0)  # (V,)
        self.model = Model(world.prior * share, self.steps, self.chances)
        # The running sums that `draw` asks for: of states, then of the sentences of each step in
        # each state, then of words.
        self.state_sums = list(accumulate(world.prior.tolist()))
        weights = [torch.stack([weight for weight, _ in told], 1) for _, told in self.steps]
        self.sentence_sums = [one.cumsum(1).tolist() for one in weights]  # (Z, sentences) each
        self.filler_sums = [(list(one), list(accumulate(one.values()))) for one in world.fillers]

    def sample(self, rng):
        """One document, a list of words, drawn with a `random.Random`."""
        words, state = [], draw(rng, self.state_sums)
        for (chance, sentences), sums in zip(self.steps, self.sentence_sums):
            if chance == 1 or rng.random() < chance:
                _, places = sentences[draw(rng, sums[state])]
                for numbers in places:
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
        rows = []
        for ids in zip(*asked):
            words = side_by_side(ids, -1)  # (T, B)
            rows.append((self.chances[:, words] * weights).sum(0).masked_fill(words < 0, 0.0))
        return torch.stack([*rows, weights.sum(0)])


def draw(rng, sums):
    """An index, with chances in proportion to the steps of the running sums.

    One number of `rng` and a search by halves, whatever the length. What has weight 0 never comes,
    unless all have.
    """
    return min(bisect(sums, rng.random() * sums[-1]), len(sums) - 1)


# ------------------------------------------------------------------------------------ 80/10/10


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
