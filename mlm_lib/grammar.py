"""A corpus whose best possible loss is known exactly: documents drawn from a grammar file.

A document belongs to a *world*, which is a small topic. First the values of the world's *latents*
are drawn, once for the whole document: a mood, or a country with its facts. Then the document goes
through the *steps* of the world. Each step has a probability to occur. If it occurs, it adds one
sentence, which is drawn from a list, and the slots of the sentence are filled with words. Both
draws depend on the latents.

Because this process is known, the probability of every hidden word given the visible ones can be
computed exactly (see `forward_backward`). These posteriors are the predictions of the ideal reader,
which is the Bayes-optimal predictor. No model has a lower expected loss, so the loss of the ideal
reader is the *floor*: the Bayes-optimal, or irreducible, loss. What a model loses above the floor
is its *gap*, the excess loss.

`data/grammar.toml` is our grammar; its first lines explain the format. Built in lesson 08.
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

CHUNK = 32  # documents whose inference runs side by side, as one batch
NEGLIGIBLE = 1e-20  # a share of a sum that float64, with its 16 digits, does not represent


class Floor(Estimate):
    """The Bayes-optimal loss: the lowest expected loss that any model can have on these words.

    The standard error of the mean treats the documents as independent; see `Estimate`.
    """


class Grammar:
    """A source of documents for which exact probabilities are known. Make one with `Grammar.load`.

    >>> grammar = Grammar.load(worlds=["films"])
    >>> documents = grammar.sample(2, seed=1)
    >>> grammar.log_prob(documents[0]) < 0
    True

    Attributes:
        worlds: the names of the worlds.
        vocabulary: the list of all words, sorted. V is its length.
    """

    @classmethod
    def load(cls, path=None, *, worlds=None):
        """Reads a grammar file.

        Args:
            path: a TOML file; None takes the course's own, `data/grammar.toml`.
            worlds: the names of the worlds to keep; None keeps all.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file lacks a world of these names, or has a mistake. The message says
                where the mistake is and what is wrong.
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
        # The largest chance of each word in any slot. The inference divides by it. Otherwise the
        # product over a long document could underflow; a posterior does not change, because both
        # its numerator and its denominator are divided.
        self._scale = torch.stack([world.best for world in self._worlds]).amax(0)  # (V,)

    def sample(self, n, *, seed=0):
        """Draws documents.

        Returns:
            A list of n documents, each a list of words. With a larger n the same documents come
            first.

        Raises:
            ValueError: n or the seed is negative.
        """
        return list(islice(self.documents(seed), whole_number("n", n, least=0)))

    def documents(self, seed=0):
        """Yields documents one at a time, without end. The first n are those of `sample(n)`."""
        rng = random.Random(whole_number("seed", seed, least=0))
        while True:
            yield self._worlds[draw_index(rng, self._shares)].sample(rng)

    def log_prob(self, words):
        """log P(document), with the event that it ends here.

        Args:
            words: a list of words.

        Returns:
            A number of nats, at most 0; −inf for a document that the grammar cannot produce. It is
            also −inf for an extremely unlikely one, about 700 nats below the product of the largest
            chance of each word, because float64 underflows there.
        """
        ids = self._ids(words)
        if not len(ids) or (ids < 0).any():
            return -math.inf
        worlds = [world for world in self._worlds if (world.best[ids] > 0).all()]
        return self._log_total(worlds, self._evidence(ids)) + self._scale[ids].log().sum().item()

    def log_prob_of_length(self, length):
        """log P(a document has this number of words); −inf if none can have it.

        `log_prob(words) − log_prob_of_length(len(words))` is log P(words | their number). On
        average no model that is given the number of words can assign a higher probability.
        """
        nothing = self._evidence(torch.full((length,), -1))
        return self._log_total(self._worlds if length else [], nothing)

    def _log_total(self, worlds, evidence):
        """log P(visible words) less the logs of their scales; −inf if they are impossible."""
        chance = sum(ForwardBackward(world.model, [evidence]).total().item() for world in worlds)
        return math.log(chance) if chance else -math.inf

    def posteriors(self, words, observed):
        """The exact distribution of the word at each position, given the other observed words.

        These are the predictions of the ideal reader, who knows the grammar and the length of the
        document.

        >>> grammar = Grammar.load(worlds=["films"])
        >>> (words,) = grammar.sample(1)
        >>> visible = [word != "the" for word in words]
        >>> grammar.posteriors(words, visible).shape == (len(words), len(grammar.vocabulary))
        True

        Args:
            words: a list of T words. A word that is not observed may be any string.
            observed: (T,) bool, True where the reader sees the word. At position t the reader never
                uses the word at t itself, observed or not.

        Returns:
            (T, V) float64, in the order of `vocabulary`. Each row sums to 1.

        Raises:
            ValueError: `words` and `observed` have different lengths, or no document of the grammar
                has the observed words at these positions.
        """
        return self.posteriors_of([words], [observed])[0]

    def posteriors_of(self, documents, observed, *, check=True):
        """`posteriors` of many documents at once, which is several times as fast.

        Args:
            documents: a list of lists of words.
            observed: for each document (T,) bool.
            check: whether to raise an error if the observed words of a document are impossible.
                Without the check, its posteriors are NaN.

        Returns:
            A list of (T, V) float64 tensors, one for each document.
        """
        evidence = [
            self._ids_and_evidence(*pair)[1] for pair in zip(documents, observed, strict=True)
        ]
        return [chances.T for chances in self._chances(evidence, documents, check=check)]

    def surprise(self, documents, observed):
        """The loss of the ideal reader at each word: −log P(word at t | other observed words).

        Args:
            documents: a list of lists of words.
            observed: for each document (T,) bool, as in `posteriors`.

        Returns:
            A list of (T,) float64 tensors, in nats, one for each document.

        Raises:
            ValueError: what `posteriors` refuses.
        """
        pairs = [self._ids_and_evidence(*pair) for pair in zip(documents, observed, strict=True)]
        asked, evidence = [ids[None] for ids, _ in pairs], [seen for _, seen in pairs]
        return [-chance[0].log() for chance in self._chances(evidence, documents, asked)]

    def floor(
        self, documents, *, objective="masked", rate=0.15, mask_share=1.0, random_share=0.0, seed=0,
        random_vocabulary_size=None,
    ):  # fmt: skip
        """The loss of the ideal reader on documents: the lowest that a model can reach on average.

        It is the Bayes-optimal (irreducible) loss of a training objective. Compare it with the loss
        of a model on the same documents; the difference is the model's excess loss.

        Args:
            documents: a list of lists of words, drawn from this grammar and not seen in training.
            objective: what is predicted. `"masked"`: selected words, from all visible words.
                `"forward"`: each word and the end of the document, from the words before it.
                `"backward"`: each word and the start of the document, from the words after it. By
                the chain rule, the floors of these two agree. `"any_order"`: the words one by one
                in any order, given their number; by the chain rule, all orders have the same floor.
            rate: the probability that a word is selected, independently of the others.
            mask_share: the share of the selected words that are hidden.
            random_share: the share of the selected words that are replaced by a random word. The
                remaining selected words stay visible and unchanged. With `random_share` above 0 the
                reader cannot be sure that a visible word is the original one.
            seed: seed of the selection, for `"masked"`.
            random_vocabulary_size: the number of tokens that a random replacement is drawn from,
                with the V words of the grammar among them; None means V.

        Returns:
            `Floor(nats, standard_error, count)`.

        Raises:
            ValueError: the objective is unknown, a rate or share is not a probability, a document
                is impossible in this grammar, or no word is selected.
        """
        choice("objective", objective, ("masked", "forward", "backward", "any_order"))
        channel = Channel(rate, mask_share, random_share, random_vocabulary_size, len(self._index))
        sums = [-self.log_prob(words) for words in documents]
        for nats, words in zip(sums, documents):
            _check_possible(nats < math.inf, words)
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
        """For each document, −log P(word | what the reader sees) at its selected words."""
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

    # ------------------------------------------------------------------ what the reader sees

    def _ids(self, words):
        """The words as ids (T,), with −1 for a string that is not a word of the grammar."""
        if isinstance(words, str):  # it would be read letter by letter
            raise refused("words", words, "a list of words, such as text.split(),")
        return torch.tensor([self._index.get(word, -1) for word in words], dtype=torch.long)

    def _ids_and_evidence(self, words, observed):
        """The ids (T,) of all words, and the `Evidence` of the observed ones."""
        ids, given = self._ids(words), torch.as_tensor(observed, device="cpu")
        observed = given.bool()
        if not len(ids) or observed.shape != ids.shape or (observed != given).any():  # 2 or NaN
            raise refused("observed", given, f"one True or False for each of {len(ids)} words")
        if (observed & (ids < 0)).any():
            wrong = words[(observed & (ids < 0)).nonzero()[0].item()]
            raise ValueError(f"{wrong!r} is not a word of this grammar")
        return ids, self._evidence(ids.masked_fill(~observed, -1))

    def _evidence(self, ids, true=1.0, noise=0.0):
        """The `Evidence` of shown ids (T,), if P(shown | word) = true·[shown = word] + noise.

        An id of −1 shows nothing.
        """
        seen, scale = ids >= 0, true * self._scale[ids] + noise
        own, other = torch.where(seen, true / scale, 0.0), torch.where(seen, noise / scale, 1.0)
        return Evidence(ids, own, other)

    # ------------------------------------------------------------------ many documents

    def _chances(self, evidence, documents, asked=None, *, check=True):
        """The chances of candidate words at each position, given the evidence at all others.

        Args:
            evidence: one `Evidence` for each document.
            documents: their words, for their lengths and for error messages.
            asked: for each document (A, T) ids, A candidates at each position. The id −1 has chance
                0. None means all V words.
            check: whether to raise an error if the evidence is impossible. Otherwise the result is
                NaN there.

        Returns:
            For each document (A, T) float64.
        """
        # Documents of similar length are computed together, so that little is padded; fewer of them
        # at once if the chances of all V words are kept.
        order = sorted(range(len(evidence)), key=lambda number: len(documents[number]))
        at_once = CHUNK if asked is None else 8 * CHUNK
        out = [None] * len(order)
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            found = self._weights([evidence[n] for n in part], asked and [asked[n] for n in part])
            for column, number in enumerate(part):
                weights = found[:, : len(documents[number]), column]  # (A + 1, T)
                if check:
                    _check_possible((weights[-1] > 0).all(), documents[number])
                out[number] = weights[:-1] / weights[-1]
        return out

    def _weights(self, evidence, asked):
        """The joint weights of candidate words and evidence, summed over worlds.

        Nearly always one world explains a document and the others contribute almost nothing. The
        recursion in a world is expensive, so each world first gives an upper bound of its weights,
        which is cheap, and only worlds that could change the sum are computed.

        Returns:
            (A + 1, T, documents): the weights of the A candidates, and in the last row the weights
            of all words together, by which the others are divided.
        """
        bounds = [[world.bound(one) for one in evidence] for world in self._worlds]
        bounds = torch.stack([side_by_side(rows, -math.inf) for rows in bounds])  # (W, T, N)
        likeliest = bounds.amax(1).argmax(0)  # (N,)
        rows = len(self.vocabulary) if asked is None else len(asked[0])
        found = torch.zeros(rows + 1, *bounds.shape[1:], dtype=torch.float64)

        def go_through(world, wanted):
            """Adds the weights of a world for the wanted documents, (N,) bool."""
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
        least = (found[-1] * NEGLIGIBLE).log()  # (T, N)
        for number, world in enumerate(self._worlds):
            could = (bounds[number] > least).any(0)
            go_through(world, could & (likeliest != number))
        return found


def _check_possible(possible, words):
    """Refuses a document, or the visible words of one, that the grammar cannot produce."""
    if not possible:
        message = f"no document of this grammar reads so: {' '.join(map(str, words))[:200]!r}"
        reasons = "its world is not loaded, it was cut short, or float64 ends here"
        raise ValueError(f"{message}; {reasons}")


# ------------------------------------------------------------------------------------ one world


class NumberedWorld:
    """One world with ids for its words: it draws documents, and computes posteriors in them.

    Shapes: Z states, D fillers, V words, T positions, B documents, as in `forward_backward`. A
    state is one choice of values for all latents; a filler is a distribution over words for one
    place of a sentence.

    Args:
        world: a `grammar_file.World`.
        share: the world's share of all documents; 0 for a world that is never drawn.
        index: {word: id below V}, with every word of the world in it.

    Attributes:
        chances: (D, V) float64, P(word | filler).
        best: (V,) the largest chance of each word in any filler; 0 if the word is not in the world.
        model: the `forward_backward.Model`, whose prior is multiplied by the share.
    """

    def __init__(self, world, share, index):
        self.share, self.steps = share, world.steps
        self.chances = torch.zeros(len(world.fillers), len(index), dtype=torch.float64)  # (D, V)
        for row, filler in zip(self.chances, world.fillers):
            for word, chance in filler.items():
                row[index[word]] = chance
        self.best = self.chances.amax(0)  # (V,)
        self.model = Model(world.prior * share, self.steps, self.chances)
        # The running sums that `draw_index` takes: of the states, of the sentences of each step in
        # each state, and of the words of each filler.
        self.state_sums = list(accumulate(world.prior.tolist()))
        weights = [torch.stack([weight for weight, _ in step], 1) for _, step in self.steps]
        self.sentence_sums = [one.cumsum(1).tolist() for one in weights]  # (Z, sentences) each
        self.filler_sums = [(list(one), list(accumulate(one.values()))) for one in world.fillers]

    def sample(self, rng):
        """Draws one document, a list of words, with the random numbers of a `random.Random`."""
        words, state = [], draw_index(rng, self.state_sums)
        for (chance, sentences), sums in zip(self.steps, self.sentence_sums):
            if chance == 1 or rng.random() < chance:
                _, places = sentences[draw_index(rng, sums[state])]
                for numbers in places:
                    choices, chances = self.filler_sums[numbers[state]]
                    words.append(
                        choices[0] if len(choices) == 1 else choices[draw_index(rng, chances)]
                    )
        return words

    def bound(self, evidence):
        """An upper bound of the logarithm of the weights at each position, (T,).

        It takes at every other position the filler that fits the evidence best, whether or not such
        a document exists, and therefore needs no recursion.

        Args:
            evidence: the `forward_backward.Evidence` of one document.
        """
        fit = evidence.fit(self.best)  # (T,)
        never = fit == 0
        logs = torch.where(never, 0.0, fit.log())
        never_elsewhere = never.sum() - never.long()
        share = math.log(self.share) if self.share else -math.inf
        return torch.where(never_elsewhere > 0, -math.inf, logs.sum() - logs + share)

    def weights(self, evidence, asked):
        """The joint weights of candidate words and evidence in this world.

        Args:
            evidence: a list of B `Evidence`, one for each document, which has at least one word.
            asked: for each document (A, T) ids, A candidates at each position. The id −1 has weight
                0. None means all V words.

        Returns:
            (A + 1, T, B): the weights of the candidates, and in the last row the weights of all
            words together.
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


def draw_index(rng, sums):
    """Draws an index with a probability proportional to its weight, from running sums of weights.

    It takes one random number and a binary search. An index of weight 0 is never drawn, unless all
    weights are 0.

    >>> draw_index(random.Random(0), [0.0, 3.0, 3.0])
    1

    Args:
        rng: a `random.Random`.
        sums: the running sums, a list of numbers that do not fall.
    """
    return min(bisect(sums, rng.random() * sums[-1]), len(sums) - 1)


# ------------------------------------------------------------------------------------ 80/10/10


class Channel:
    """Masking by 80/10/10 as a noisy channel: what the reader sees, and what it implies.

    In place of a *selected* word w the reader is shown nothing, with probability `mask_share`, or a
    token y, one of N:

        P(y | w, selected) = keep_share·[y = w] + random_share/N

    While predicting one selected word, the reader does not know which of the other words were
    selected, each with probability `rate`. For the other words, therefore,

        P(y | w) = (1 − rate)·[y = w] + rate·P(y | w, selected)
                 = (1 − rate·(1 − keep_share))·[y = w] + rate·random_share/N
                 = true·[y = w] + noise

    Args:
        rate, mask_share, random_share: as in `Grammar.floor`.
        tokens: N, the number of tokens that a random replacement is drawn from; None means V.
        words: V, the number of words of the grammar.
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
        """Draws which words are selected, and what the reader is shown.

        Args:
            ids: (T,) the ids of the words.
            generator: a `torch.Generator`.

        Returns:
            (selected, shown), both (T,): bool, and ids with −1 where nothing is shown.
        """
        selected = torch.rand(len(ids), generator=generator) < self.rate
        roll = torch.rand(len(ids), generator=generator)
        other = torch.randint(self.tokens, (len(ids),), generator=generator)
        # A token that is not a word of the grammar can only be noise, and noise has the same chance
        # for every word. So it tells the reader as much as showing nothing.
        other[other >= self.words] = -1
        hidden = selected & (roll < self.mask_share)
        swapped = selected & ~hidden & (roll < self.mask_share + self.random_share)
        return selected, torch.where(swapped, other, ids).masked_fill(hidden, -1)

    def if_selected(self, asked, chances):
        """P(word | shown token, selected), by Bayes' rule from the chances given all other words.

        Args:
            asked: (2, T) the ids of the true words w and of the shown tokens y.
            chances: (2, T) P(w) and P(y) at each position, given what is shown at all others.

        Returns:
            (T,) P(w | y, selected).
        """
        (word, shown), (p_word, p_shown) = asked, chances
        # Bayes' rule: P(w | y) = P(w)·P(y | w, selected) / Σ_v P(v)·P(y | v, selected), v any word
        #                       = P(w)·(keep·[y = w] + drawn) / (keep·P(y) + drawn)
        channel = self.keep_share * (shown == word).double() + self.drawn
        weighed = p_word * channel / (self.keep_share * p_shown + self.drawn)
        # Where nothing is shown, P(nothing | w, selected) = mask_share cancels, and P(w) stays.
        return torch.where(shown < 0, p_word, weighed)
