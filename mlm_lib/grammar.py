"""A corpus whose best possible loss is known exactly: documents drawn from a grammar file.

A document belongs to a *world*, which is a small topic. A world has *latents*: a latent is a hidden
value, such as a mood or a country, that is drawn once for each document. Then the document goes
through the *steps* of the world. Each step has a probability to occur. If it occurs, a sentence is
drawn from the list of the step, and words are drawn for the slots of the sentence. The latents can
change the probabilities of both draws, that of the sentence and that of the words.

Because this process is known, the probability of every hidden word given the visible words can be
computed exactly (see `forward_backward`). These probabilities, the posteriors, are the predictions
of the ideal reader, which is the Bayes-optimal predictor. No model has a lower expected loss, so
the loss of the ideal reader is the *floor*: the Bayes-optimal, or irreducible, loss. The model's
loss minus the floor is its *gap*, the excess loss. All losses are in nats, that is, they are
computed with the natural logarithm.

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
    """The Bayes-optimal loss: the lowest expected loss that any model can have on some words.

    The attributes are `nats`, the mean loss; `standard_error`, which treats the documents as
    independent; and `count`, the number of words. See `Estimate`.
    """


class Grammar:
    """A source of documents for which exact probabilities are known. Make one with `Grammar.load`.

    >>> grammar = Grammar.load(worlds=["films"])
    >>> documents = grammar.sample(2, seed=1)
    >>> grammar.log_prob(documents[0]) < 0
    True

    Attributes:
        worlds: the names of the worlds.
        vocabulary: the list of all words, sorted. V is the number of words in it.
    """

    @classmethod
    def load(cls, path=None, *, worlds=None):
        """Reads a grammar file.

        Args:
            path: a TOML file. None: the grammar of the course, `data/grammar.toml`.
            worlds: the names of the worlds to keep. None: all worlds are kept.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file has no world of one of these names, or has a mistake. The message
                says where the mistake is and what is wrong.
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
        # The largest probability of each word in any slot. The inference divides by this number.
        # Otherwise the product over a long document could underflow. A posterior does not change,
        # because both its numerator and its denominator are divided.
        self._scale = torch.stack([world.best for world in self._worlds]).amax(0)  # (V,)

    def sample(self, n, *, seed=0):
        """Draws documents.

        Returns:
            A list of n documents, each a list of words. The first documents do not depend on n, so
            `sample(5)` begins with the documents of `sample(2)`.

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
        """The log-probability that a document has exactly these words and then ends.

        Args:
            words: a list of words.

        Returns:
            A number of nats, at most 0; −inf for a document that the grammar cannot produce. It is
            also −inf for a possible document that is extremely unlikely, because float64 cannot
            hold so small a number. This happens at about e^−700 times the product of the largest
            probability of each word.
        """
        ids = self._ids(words)
        if not len(ids) or (ids < 0).any():
            return -math.inf
        worlds = [world for world in self._worlds if (world.best[ids] > 0).all()]
        return self._log_total(worlds, self._evidence(ids)) + self._scale[ids].log().sum().item()

    def log_prob_of_length(self, length):
        """log P(a document has this number of words); −inf if no document can have this number.

        `log_prob(words) − log_prob_of_length(len(words))` is log P(words | their number). Averaged
        over documents, this is the best that a model can reach if it knows the number of words.
        """
        nothing = self._evidence(torch.full((length,), -1))
        return self._log_total(self._worlds if length else [], nothing)

    def _log_total(self, worlds, evidence):
        """log P(visible words) minus the logarithms of their scales; −inf if these words are
        impossible.
        """
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
        """The `posteriors` of many documents at once, which is several times faster than calling
        `posteriors` for each document.

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
            ValueError: in the same cases as in `posteriors`.
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
            objective: what is predicted, and from which words. `"masked"`: selected words, from all
                visible words. `"forward"`: each word and the end of the document, from the words
                before. `"backward"`: each word and the start of the document, from the words after.
                The floors of `"forward"` and `"backward"` are equal, because in both directions the
                product of the predicted probabilities is the probability of the document (the chain
                rule of probability). `"any_order"`: the words one by one in any order, given their
                number; for the same reason all orders have the same floor.
            rate: the probability that a word is selected, independently of the others.
            mask_share: the share of the selected words that are hidden.
            random_share: the share of the selected words that are replaced by a random word. The
                remaining selected words stay visible and unchanged. With `random_share` above 0 the
                reader cannot be sure that a visible word is the original one.
            seed: seed of the selection, for `"masked"`.
            random_vocabulary_size: the number of tokens from which a random replacement is drawn.
                The V words of the grammar are among them. None: V.

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

        The bracket [shown = word] is 1 if the shown word is the true word, and 0 otherwise. Where
        an id is −1, nothing is shown. All probabilities of a shown word are divided by its scale.
        """
        seen, scale = ids >= 0, true * self._scale[ids] + noise
        own, other = torch.where(seen, true / scale, 0.0), torch.where(seen, noise / scale, 1.0)
        return Evidence(ids, own, other)

    # ------------------------------------------------------------------ many documents

    def _chances(self, evidence, documents, asked=None, *, check=True):
        """The probabilities of candidate words at each position, given the evidence at all other
        positions.

        Args:
            evidence: one `Evidence` for each document.
            documents: the words of the documents, for their lengths and for error messages.
            asked: for each document (A, T) ids, A candidates at each position. The id −1 has
                probability 0. None: all V words are candidates.
            check: whether to raise an error if the evidence is impossible. Without the check, the
                result of such a document is NaN.

        Returns:
            For each document (A, T) float64.
        """
        # Documents of similar length are computed together, so that there is little padding. If the
        # probabilities of all V words are kept, fewer documents are computed at once.
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
        """For each candidate word at each position: P(the candidate there, and what is seen at the
        other positions), summed over all worlds.

        The arguments are those of `NumberedWorld.weights`.

        Nearly always one world explains a document, and the other worlds contribute almost nothing.
        The recursion in a world is expensive. Therefore each world first gives an upper bound of
        its weights, which is cheap, and only worlds that could change the sum are computed.

        Returns:
            (A + 1, T, documents): the weights of the A candidates, and in the last row the weights
            of all words together. A weight divided by that of all words together is the posterior
            probability of the candidate.
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

        # 1. The world with the largest bound, for each document.
        for number, world in enumerate(self._worlds):
            go_through(world, likeliest == number)
        # 2. Every other world that could still change the sum.
        least = (found[-1] * NEGLIGIBLE).log()  # (T, N)
        for number, world in enumerate(self._worlds):
            could = (bounds[number] > least).any(0)
            go_through(world, could & (likeliest != number))
        return found


def _check_possible(possible, words):
    """Raises an error for a document, or visible words, that the grammar cannot produce."""
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
        best: (V,) the largest probability of each word in any filler; 0 if the word is not in the
            world.
        model: the `forward_backward.Model` of this world. Its prior is multiplied by the share.
    """

    def __init__(self, world, share, index):
        self.share, self.steps = share, world.steps
        self.chances = torch.zeros(len(world.fillers), len(index), dtype=torch.float64)  # (D, V)
        for row, filler in zip(self.chances, world.fillers):
            for word, chance in filler.items():
                row[index[word]] = chance
        self.best = self.chances.amax(0)  # (V,)
        self.model = Model(world.prior * share, self.steps, self.chances)
        # The cumulative sums that `draw_index` needs: those of the probabilities of the states, of
        # the sentences of each step in each state, and of the words of each filler.
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
        """For each position, a number that log `weights(…)` cannot exceed, (T,).

        For position t it assumes the best-fitting filler at each of the other positions, even if no
        document has all these fillers. Therefore the tables of the forward–backward algorithm are
        not needed.

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
        """For each candidate word at each position: P(the candidate there, and what is seen at the
        other positions), in this world.

        Args:
            evidence: a list of B `Evidence`, one for each document. Each document must have at
                least one word.
            asked: for each document (A, T) ids, A candidates at each position. The id −1 has weight
                0. None: all V words are candidates.

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
    """Draws an index with a probability proportional to its weight. The argument is the list of
    cumulative sums of the weights.

    This needs one random number and a binary search. An index of weight 0 is never drawn, unless
    all weights are 0.

    >>> draw_index(random.Random(0), [0.0, 3.0, 3.0])
    1

    Args:
        rng: a `random.Random`.
        sums: the cumulative sums of the weights, a list of numbers in which no number is smaller
            than the number before.
    """
    return min(bisect(sums, rng.random() * sums[-1]), len(sums) - 1)


# ------------------------------------------------------------------------------------ 80/10/10


class Channel:
    """BERT's 80/10/10 masking as random noise: what the reader sees, and what the reader can
    conclude. In information theory this is a *noisy channel*.

    In place of a *selected* word w the reader is shown nothing with probability `mask_share`.
    Otherwise the reader is shown a token y, which is one of N tokens, with the probability::

        P(y | w, selected) = keep_share·[y = w] + random_share/N

    Here keep_share = 1 − mask_share − random_share, and [y = w] is 1 if y equals w and 0 otherwise.

    While predicting one selected word, the reader does not know whether another word was selected
    too: each was selected with probability `rate`. Therefore, for the other words::

        P(y | w) = (1 − rate)·[y = w] + rate·P(y | w, selected)
                 = (1 − rate·(1 − keep_share))·[y = w] + rate·random_share/N
                 = true·[y = w] + noise

    Args:
        rate, mask_share, random_share: as in `Grammar.floor`.
        tokens: N, the number of tokens from which a random replacement is drawn. None: V.
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
            Two tensors, selected (T,) bool and shown (T,) ids. The id is −1 where nothing is shown.
        """
        selected = torch.rand(len(ids), generator=generator) < self.rate
        roll = torch.rand(len(ids), generator=generator)
        other = torch.randint(self.tokens, (len(ids),), generator=generator)
        # A token that is not a word of the grammar can only be noise, and noise is equally likely
        # for every word. So such a token tells the reader no more than showing nothing.
        other[other >= self.words] = -1
        hidden = selected & (roll < self.mask_share)
        swapped = selected & ~hidden & (roll < self.mask_share + self.random_share)
        return selected, torch.where(swapped, other, ids).masked_fill(hidden, -1)

    def if_selected(self, asked, chances):
        """P(word | shown token, selected), computed with Bayes' rule from `chances`, the
        probabilities given what is shown at all other positions.

        Args:
            asked: (2, T) the ids of the true words w and of the shown tokens y.
            chances: (2, T) P(w) and P(y) at each position, given what is shown at all other
                positions.

        Returns:
            (T,) P(w | y, selected).
        """
        (word, shown), (p_word, p_shown) = asked, chances
        # Bayes' rule: P(w | y) = P(w)·P(y | w, selected) / Σ_v P(v)·P(y | v, selected), v any word
        #                       = P(w)·(keep·[y = w] + drawn) / (keep·P(y) + drawn)
        channel = self.keep_share * (shown == word).double() + self.drawn
        weighed = p_word * channel / (self.keep_share * p_shown + self.drawn)
        # Where nothing is shown, P(nothing | w, selected) = mask_share for every w. This factor
        # cancels, and P(w) remains.
        return torch.where(shown < 0, p_word, weighed)
