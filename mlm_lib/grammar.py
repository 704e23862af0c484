"""A corpus whose best possible loss is known exactly: documents drawn from a grammar file. Built in lesson 08.

A document belongs to a *world*, a small topic. It draws the world's *latents* once (a mood, a country with its facts),
then walks through the world's *steps*: each is told with its probability, as one sentence, drawn given the latents; the
sentence's slots are filled given them too. That is a hidden Markov model over (latents, step, sentence, place in the
sentence), so what is hidden from a reader can be inferred exactly, by the forward–backward algorithm (Rabiner 1989,
"A tutorial on hidden Markov models"). No model can predict better than these posteriors: their loss is the floor.

`data/grammar.toml` is our grammar; its first lines explain the format.
"""

import itertools
import math
import random
import re
import tomllib
from bisect import bisect
from pathlib import Path
from typing import NamedTuple

import torch

from mlm_lib import DATA

WORD = re.compile(
    r"[a-z]+|[0-9]+|[.,:;?-]"
)  # what BERT's tokenizer takes for one word and the grammar for one token
SLOT = re.compile(r"\{(a:)?([a-z_]+)(?:\.([a-z_]+))?(?:\|([a-z_]+)(?:\.([a-z_]+))?)?\}")
CHUNK = 32  # documents whose inference runs side by side
NOTHING = 1e-20  # a share of the evidence that float64 cannot see


class Floor(NamedTuple):
    """The least expected loss of any model: nats per predicted word, its standard error, and the words it was taken over."""

    nats: float
    standard_error: float
    count: int


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
            ValueError: a world that the file lacks, or a malformed file; the message names the line.
        """
        path = Path(DATA / "grammar.toml" if path is None else path)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is not a file; give the path of a grammar, or None for the course's own"
            )
        source = _Source(path)
        worlds = [worlds] if isinstance(worlds, str) else worlds
        worlds = list(source.tables) if worlds is None else list(worlds)
        if not worlds or set(worlds) - set(source.tables):
            raise ValueError(f"worlds={worlds!r}: choose among {', '.join(source.tables)}")
        chosen = [
            _World(source, name, table) for name, table in source.tables.items() if name in worlds
        ]
        if not sum(world.weight for world in chosen):
            raise source.error("no world has a weight above 0, so there is nothing to draw")
        return cls(chosen)

    def __init__(self, worlds):
        total = sum(world.weight for world in worlds)
        self._worlds, self.worlds = worlds, [world.name for world in worlds]
        self._shares = list(itertools.accumulate(world.weight / total for world in worlds))
        self.vocabulary = sorted(set().union(*(world.words for world in worlds)))
        self._index = {word: index for index, word in enumerate(self.vocabulary)}
        for world in worlds:
            world.compile(self._index, world.weight / total)
        # Every word's largest chance in any slot: dividing by it keeps long products far from underflow.
        self._scale = torch.stack([world.chances.amax(0) for world in worlds]).amax(0)  # (V,)

    def sample(self, n, *, seed=0):
        """Draws documents.

        Returns:
            A list of n documents, each a list of words. The first ones do not depend on n.

        Raises:
            ValueError: a negative n.
        """
        if n < 0:
            raise ValueError(f"n={n}: a number of documents is 0 or more")
        rng = random.Random(seed)
        return [self._worlds[_draw(rng, self._shares)].sample(rng) for _ in range(n)]

    def log_prob(self, words):
        """The natural logarithm of a document's probability, its end included; -inf for what the grammar cannot say."""
        ids = self._ids(words)
        if not len(ids) or (ids < 0).any():
            return -math.inf
        chance = sum(
            world.chance(ids, self._look(ids)) for world in self._worlds if world.knows[ids].all()
        )
        return math.log(chance) + self._scale[ids].log().sum().item() if chance else -math.inf

    def posteriors(self, words, observed):
        """P(word at t | the observed words elsewhere, and the length), exactly, for all t at once.

        Args:
            words: T words; those not observed may be anything.
            observed: (T,) bool, True where the reader sees the word. The word at t itself never counts at t.

        Returns:
            (T, V) float64, in the order of `vocabulary`; rows sum to 1.

        Raises:
            ValueError: lengths that differ, or observed words that no document of the grammar has there.
        """
        ids, look = self._seen(words, observed)
        found = sum(world.words_at(ids, look) for world in self._worlds)  # (T, V)
        return found / self._possible(found.sum(-1), words)[:, None]

    def surprise(self, documents, observed):
        """-log P(word at t | the observed words elsewhere), in nats, for every word of many documents.

        Args:
            documents: lists of words.
            observed: for each document (T,) bool, as in `posteriors`.

        Returns:
            A list of (T,) float64 tensors.

        Raises:
            ValueError: as `posteriors`.
        """
        pairs = [self._seen(words, seen) for words, seen in zip(documents, observed, strict=True)]
        ids, looks = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return [-chance.log() for chance in self._chances(ids, looks, documents, [ids])[0]]

    def floor(
        self, documents, *, objective="masked", rate=0.15, mask_share=1.0, random_share=0.0, seed=0,
        random_vocabulary_size=None,
    ):  # fmt: skip
        """The loss of the ideal reader, who knows the grammar: what no model can beat on average.

        Args:
            documents: lists of words, drawn from this grammar and not seen in training.
            objective: `"masked"`; or `"forward"` and `"backward"`, the next and the previous word, where the end (the
                start) of a document is one more thing to predict. By the chain rule these two agree.
            rate: chance of a word to be selected for prediction, each on its own.
            mask_share, random_share: of the selected words these shares are hidden and replaced by a random word; the
                rest stay. Below 1 the reader no longer trusts what is visible, and the floor accounts for that.
            random_vocabulary_size: how many tokens a random replacement is drawn from, the grammar's V words among
                them (for a tokenizer with more tokens than the grammar has words). None is V.

        Returns:
            `Floor(nats, standard_error, count)`; the standard error treats documents, not words, as independent.

        Raises:
            ValueError: an unknown objective, rates that are no probabilities, documents that the grammar cannot say.
        """
        if not documents:
            raise ValueError(
                "documents is empty; a floor needs some, such as grammar.sample(1000, seed=1)"
            )
        whole = [-self.log_prob(words) for words in documents]
        for words, nats in zip(documents, whole):
            self._possible(torch.tensor(nats).isfinite(), words)
        if objective in ("forward", "backward"):
            surprises = torch.tensor(whole, dtype=torch.float64)
            counts = torch.tensor([len(words) + 1.0 for words in documents])
        elif objective == "masked":
            surprises = self._masked_surprises(
                documents, rate, mask_share, random_share, seed, random_vocabulary_size
            )
            counts = torch.tensor([float(len(surprise)) for surprise in surprises])
            if not counts.sum():
                raise ValueError(
                    f"rate={rate} selected no word of these {len(documents)} documents; pass more of them"
                )
        else:
            raise ValueError(f"objective={objective!r}: choose masked, forward or backward")
        sums = torch.stack([surprise.sum() for surprise in surprises])
        nats = (sums.sum() / counts.sum()).item()
        spread = ((sums - nats * counts) ** 2).sum() * len(sums) / max(1, len(sums) - 1)
        return Floor(nats, (spread.sqrt() / counts.sum()).item(), int(counts.sum()))

    def _masked_surprises(self, documents, rate, mask_share, random_share, seed, random_size):
        """For each document -log P(word | what is visible) at its selected words."""
        for name, value in (
            ("rate", rate),
            ("mask_share", mask_share),
            ("random_share", random_share),
        ):
            if not 0 <= value <= 1:
                raise ValueError(f"{name}={value!r} is not a probability")
        if mask_share + random_share > 1 + 1e-9:
            raise ValueError(
                f"mask_share={mask_share} and random_share={random_share} add up to more than 1"
            )
        size = len(self._index) if random_size is None else random_size
        if size < len(self._index):
            raise ValueError(
                f"random_vocabulary_size={size}, but the grammar has {len(self._index)} words"
            )
        keep_share = max(0.0, 1 - mask_share - random_share)
        true, noise = (
            1 - rate * (1 - keep_share),
            rate * random_share / size,
        )  # chances to show the word, and any token
        generator = torch.Generator().manual_seed(seed)
        ids, visible, looks, selected = [], [], [], []
        for words in documents:
            ids.append(self._seen(words, [True] * len(words))[0])
            chosen = torch.rand(len(words), generator=generator) < rate
            roll = torch.rand(len(words), generator=generator)
            other = torch.randint(size, (len(words),), generator=generator)
            other[other >= len(self._index)] = -1  # a token that is no word of the grammar
            hidden, swapped = (
                chosen & (roll < mask_share),
                chosen & (roll >= mask_share) & (roll < mask_share + random_share),
            )
            shown = torch.where(swapped, other, ids[-1])
            visible.append(shown.masked_fill(hidden, -1))
            looks.append(self._look(visible[-1], true, noise))
            selected.append(chosen)
        at_true, at_shown = self._chances(visible, looks, documents, [ids, visible])
        out = []
        for number, chosen in enumerate(selected):
            chance, shown = at_true[number], visible[number]
            # The reader is asked about selected words, and knows that a selected word which is visible was kept or drawn.
            drawn = random_share / size
            channel = keep_share * (shown == ids[number]).double() + drawn
            weighed = chance * channel / (keep_share * at_shown[number] + drawn)
            out.append(-torch.where(shown < 0, chance, weighed)[chosen].log())
        return out

    def _chances(self, seen, looks, documents, asked):
        """For each list of ids in `asked`, the chance of these words given what is seen elsewhere: lists of (T,)."""
        order = sorted(range(len(seen)), key=lambda number: len(seen[number]))
        out = [[None] * len(seen) for _ in asked]
        for start in range(0, len(order), 8 * CHUNK):
            part = order[start : start + 8 * CHUNK]
            found = self._weights(
                [seen[n] for n in part],
                [looks[n] for n in part],
                [[ids[n] for n in part] for ids in asked],
            )
            for column, number in enumerate(part):
                length = len(seen[number])
                total = self._possible(found[-1, :length, column], documents[number])
                for which in range(len(asked)):
                    out[which][number] = found[which, :length, column] / total
        return out

    def _weights(self, seen, looks, asked):
        """The weights of the asked words, and last those of any word: (asked + 1, T, documents).

        The likeliest world of each document goes first. Another counts only where it could change the sum.
        """
        bounds = [
            [world.bound(*one) for one in zip(seen, looks)] for world in self._worlds
        ]  # (T,) each
        first = [
            max(range(len(bounds)), key=lambda world: bounds[world][n].amax())
            for n in range(len(seen))
        ]
        found = torch.zeros(len(asked) + 1, max(map(len, seen)), len(seen), dtype=torch.float64)
        for others in (False, True):
            least = (found[-1] * NOTHING).log()
            for number, world in enumerate(self._worlds):
                part = [n for n in range(len(seen)) if (first[n] != number) == others]
                if others:
                    part = [n for n in part if (bounds[number][n] > least[: len(seen[n]), n]).any()]
                if part:
                    ask = [[ids[n] for n in part] for ids in asked]
                    weights = world.chances_at(
                        [seen[n] for n in part], [looks[n] for n in part], ask
                    )
                    found[:, : weights.shape[1], part] += weights
        return found

    def _possible(self, total, words):
        """The evidence's weight, or an error where it has none."""
        if not (total > 0).all():
            raise ValueError(
                f"no document of this grammar reads so: {' '.join(words)[:200]!r}; are all its worlds loaded?"
            )
        return total

    def _ids(self, words):
        return torch.tensor([self._index.get(word, -1) for word in words], dtype=torch.long)

    def _seen(self, words, observed):
        """Ids (T,), -1 where a word is not observed, and how each is looked at, (T, 2)."""
        observed = torch.as_tensor(observed, dtype=torch.bool)
        if observed.shape != (len(words),) or not len(words):
            raise ValueError(
                f"observed has shape {tuple(observed.shape)} for {len(words)} words; one value for each word is needed"
            )
        ids = self._ids(words)
        if (observed & (ids < 0)).any():
            wrong = words[(observed & (ids < 0)).nonzero()[0].item()]
            raise ValueError(f"{wrong!r} is not a word of this grammar")
        return ids, self._look(ids.masked_fill(~observed, -1))

    def _look(self, ids, true=1.0, noise=0.0):
        """(T, 2): seeing the token ids[t] is worth first·P(it) + second, scaled; (0, 1) where nothing is seen."""
        seen = ids >= 0
        scale = true * self._scale[ids] + noise
        return torch.stack(
            [torch.where(seen, true / scale, 0.0), torch.where(seen, noise / scale, 1.0)], 1
        )


class _World:
    """One topic: its latents, steps and sentences, checked, and inference within it.

    Shapes: Z states (one choice for every latent), D fillers (what can fill a place in a sentence, given a state),
    V words, T places, B documents side by side.
    """

    def __init__(self, source, name, table):
        self.source, self.name, self.used = source, name, set()
        self._only(table, ("weight", "latents", "words", "steps"), name)
        self.weight = self._weight(table.get("weight", 1.0), name, "weight")
        self.latents = {
            key: self._latent(key, value) for key, value in self._table(table, "latents")
        }
        self.lists = {key: self._list(key, value) for key, value in self._table(table, "words")}
        self.states, prior = [], []
        for choice in itertools.product(*self.latents.values()):
            self.states.append({key: row for key, (row, _) in zip(self.latents, choice)})
            prior.append(math.prod(weight for _, weight in choice))
        self.prior = torch.tensor(prior, dtype=torch.float64) / sum(prior)  # (Z,)
        self.fillers, self.numbers = {}, {}  # {what it is: {word: chance}}, and its number
        self.steps = [self._step(key, value) for key, value in self._table(table, "steps")]
        if all(probability < 1 for probability, _ in self.steps):
            raise self._error(
                "no step has probability 1, so a document could be empty", f"{name}.steps"
            )
        lists = (
            (key, part)
            for key, words in self.lists.items()
            for part in (words if _depends(words) else [None])
        )
        for key, part in lists:
            if (key, part) not in self.used:
                unused = f"{key}.{part}" if part else key
                raise self._error(
                    f"the list {unused!r} is used by no sentence", f"{name}.words", key=unused
                )
        self.words = {word for filler in self.fillers.values() for word in filler}
        # Running sums of weights, from which `_draw` draws.
        self.state_sums = list(itertools.accumulate(self.prior.tolist()))
        self.sentence_sums = [
            [
                list(itertools.accumulate(column))
                for column in zip(*(s.weight.tolist() for s in sentences))
            ]
            for _, sentences in self.steps
        ]
        self.filler_sums = [
            (list(f), list(itertools.accumulate(f.values()))) for f in self.fillers.values()
        ]

    # ------------------------------------------------------------------ reading the file

    def _error(self, message, table, text="", key=""):
        return self.source.error(f"world {self.name!r}: {message}", table, text, key)

    def _table(self, table, name):
        value = table.get(name, {})
        if not isinstance(value, dict):
            raise self._error(f"{name} is {value!r}; a table is needed", self.name, key=name)
        return value.items()

    def _only(self, table, keys, where):
        if not isinstance(table, dict):
            raise self._error(f"{where} is {table!r}; a table is needed", where, str(table))
        for key in table.keys() - set(keys):
            raise self._error(f"{where} has {key!r}; it may have {', '.join(keys)}", where, key)

    def _weight(self, value, where, text="", top=math.inf, key=""):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value <= top
            or value == math.inf
        ):
            limit = "0 or more" if top == math.inf else f"in 0..{top}"
            raise self._error(
                f"{key or 'here'}: {value!r} is no weight; give a number, {limit}", where, text, key
            )
        return value

    def _word(self, word, where):
        if not isinstance(word, str) or not WORD.fullmatch(word):
            raise self._error(
                f"{word!r} is not one word of a-z, one number, or one of . , : ; ? -",
                where,
                str(word),
            )
        return word

    def _list(self, name, value, nested=True):
        """{word: chance}, or {value of a latent: {word: chance}}."""
        where = f"{self.name}.words"
        if not isinstance(value, list | dict) or not value:
            raise self._error(f"the list {name!r} is empty or no list", where, key=name)
        if (
            nested
            and isinstance(value, dict)
            and all(isinstance(part, list | dict) for part in value.values())
        ):
            return {
                key: self._list(f"{name}.{key}", part, nested=False) for key, part in value.items()
            }
        if isinstance(value, list):
            value = {word: 1 / rank for rank, word in enumerate(self._once(value, name, where), 1)}
        return self._chances(value, name, where)

    def _once(self, words, name, where):
        for word in words:
            if words.count(word) > 1:
                raise self._error(f"{name!r} has {word!r} twice", where, str(word), name)
        return words

    def _chances(self, weights, name, where):
        """{word: chance} of {word: weight}."""
        weights = {
            self._word(word, where): self._weight(weight, where, key=name)
            for word, weight in weights.items()
        }
        if not sum(weights.values()):
            raise self._error(f"all weights of {name!r} are 0", where, key=name)
        return {word: weight / sum(weights.values()) for word, weight in weights.items() if weight}

    def _latent(self, name, value):
        """A list of (row, weight); a row is {fact: word}, the latent's own name being its first fact."""
        where = f"{self.name}.latents"
        if isinstance(value, dict) and "rows" in value:
            where = f"{where}.{name}"
            self._only(value, ("facts", "rows"), where)
            facts, rows = str(value.get("facts", "")).split(), value["rows"]
            if not facts or facts[0] != name or len(set(facts)) < len(facts):
                raise self._error(
                    f"{name!r} needs facts, each once, that begin with {name!r}; it has {facts}",
                    where,
                    "facts",
                )
            if not isinstance(rows, list) or not rows:
                raise self._error(
                    f"{name!r} has rows = {rows!r}; an array of texts is needed", where, "rows"
                )
            for row in self._once(rows, name, where):
                if len(str(row).split()) != len(facts):
                    raise self._error(
                        f"{row!r} has {len(str(row).split())} words for {len(facts)} facts",
                        where,
                        str(row),
                    )
            return [
                ({fact: self._word(word, where) for fact, word in zip(facts, str(row).split())}, 1)
                for row in rows
            ]
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = dict.fromkeys(self._once(value, name, where), 1)
        if not isinstance(value, dict) or not value:
            raise self._error(
                f"the latent {name!r} is empty, or neither an array, a table of weights, nor facts and rows",
                where,
                key=name,
            )
        return [
            ({name: word}, weight) for word, weight in self._chances(value, name, where).items()
        ]

    def _step(self, name, value):
        """(probability, sentences)."""
        where = f"{self.name}.steps.{name}"
        self._only(value, ("probability", "sentences"), where)
        probability = self._weight(value.get("probability", 1.0), where, "probability", top=1)
        if not isinstance(value.get("sentences"), list) or not value["sentences"]:
            raise self._error("has no sentences", where)
        if not probability:
            raise self._error(
                "has probability 0, so its sentences can never be said", where, "probability"
            )
        sentences = [self._sentence(where, entry) for entry in value["sentences"]]
        total = torch.stack([sentence.weight for sentence in sentences]).sum(0)  # (Z,)
        if not total.all():
            state = {
                key: row[key] for key, row in self.states[(total == 0).nonzero()[0].item()].items()
            }
            raise self._error(f"nothing can be said here when {state}", where)
        for sentence in sentences:
            sentence.weight /= total
        return probability, sentences

    def _sentence(self, where, entry):
        entry = {"say": entry} if isinstance(entry, str) else entry
        self._only(entry, ("say", "when", "weight"), where)
        text = entry.get("say")
        if not isinstance(text, str) or not text.split():
            raise self._error(
                f"{entry!r} says nothing", where, "say" if text is None else str(text)
            )
        weight, when = self._weight(entry.get("weight", 1.0), where, text), entry.get("when", {})
        if not isinstance(when, dict):
            raise self._error(
                f"when = {when!r}; write when.latent = {when!r}, in {text!r}", where, text
            )
        possible = [
            all(self._holds(key, value, state, where, text) for key, value in _flat(when))
            for state in self.states
        ]
        if not weight:
            raise self._error(f"{text!r} has weight 0, so it is never said", where, text)
        if not any(possible):
            raise self._error(f"no choice of the latents ever leads to {text!r}", where, text)
        places = [self._place(token, possible, where, text) for token in text.split()]
        return _Sentence(weight * torch.tensor(possible, dtype=torch.float64), places)

    def _fact(self, latent, fact, where, text):
        if latent not in self.latents or (fact or latent) not in self.latents[latent][0][0]:
            known = [
                key if fact == key else f"{key}.{fact}"
                for key, rows in self.latents.items()
                for fact in rows[0][0]
            ]
            name = f"{latent}.{fact}" if fact else latent
            raise self._error(
                f"{name!r} is neither a list nor a latent ({', '.join(known)}), in {text!r}",
                where,
                text,
            )
        return lambda state: state[latent][fact or latent]

    def _holds(self, key, wanted, state, where, text):
        value = self._fact(*(key.split(".", 1) + [None])[:2], where, text)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        latent = key.split(".")[0]
        for one in wanted:
            if not any(value({latent: row}) == one for row, _ in self.latents[latent]):
                raise self._error(f"{key} is never {one!r}, in {text!r}", where, text)
        return value(state) in wanted

    def _place(self, token, possible, where, text):
        """The number of the filler at this place in each state: Z numbers, -1 where the sentence is impossible."""
        slot = SLOT.fullmatch(token)
        if slot is None:
            if "{" in token or not WORD.fullmatch(token):
                raise self._error(
                    f"{token!r} is neither a slot nor one word of a-z, one number, or one of . , : ; ? -, in {text!r}",
                    where,
                    text,
                )
            return [self._filler(token, {token: 1.0})] * len(self.states)
        article, name, fact, given, given_fact = slot.groups()
        if name in self.lists and not article and not fact:
            words, depends = self.lists[name], _depends(self.lists[name])
            if depends != bool(given):
                remedy = f"write {{{name}|latent}}" if depends else "leave out what stands behind |"
                raise self._error(
                    f"{token} does not fit the list {name!r}; {remedy}, in {text!r}", where, text
                )
            key = self._fact(given, given_fact, where, text) if given else None
            fill = lambda state: (
                ((name, key(state)), words.get(key(state))) if given else ((name,), words)
            )
        elif given or article and name in self.lists:
            raise self._error(
                f"{token}: {name!r} is {'a' if article else 'not a'} list, in {text!r}", where, text
            )
        else:
            value = self._fact(name, fact, where, text)
            one = (lambda state: _article(value(state))) if article else value
            fill = lambda state: (one(state), {one(state): 1.0})
        numbers = []
        for state, can in zip(self.states, possible):
            what, filler = fill(state) if can else (None, {})
            if filler is None:
                raise self._error(
                    f"the list {name!r} has nothing for {what[1]!r}, in {text!r}", where, text
                )
            if can and isinstance(what, tuple):
                self.used.add((name, what[1] if given else None))
            numbers.append(self._filler(what, filler) if can else -1)
        return numbers

    def _filler(self, what, filler):
        self.fillers.setdefault(what, filler)
        return self.numbers.setdefault(what, len(self.numbers))

    # ------------------------------------------------------------------ drawing

    def sample(self, rng):
        state, words = _draw(rng, self.state_sums), []
        for (probability, sentences), sums in zip(self.steps, self.sentence_sums):
            if probability == 1 or rng.random() < probability:
                for numbers in sentences[_draw(rng, sums[state])].places:
                    choices, chances = self.filler_sums[numbers[state]]
                    words.append(choices[0] if len(choices) == 1 else choices[_draw(rng, chances)])
        return words

    # ------------------------------------------------------------------ inference

    def compile(self, index, share):
        """Numbers the words by `index`; `share` is the world's share of the documents."""
        self.share = share
        self.chances = torch.zeros(len(self.fillers), len(index), dtype=torch.float64)  # (D, V)
        for row, filler in zip(self.chances, self.fillers.values()):
            for word, chance in filler.items():
                row[index[word]] = chance
        self.best = self.chances.amax(0)  # (V,): the largest chance of each word anywhere
        self.knows = self.best > 0
        self.maps = []  # fillers that differ between states: (Z,) each
        for _, sentences in self.steps:
            for sentence in sentences:
                sentence.compile(self.maps)

    def bound(self, ids, look):
        """(T,): the logarithm of what no weight at a place, given what is seen elsewhere, can exceed."""
        fit = look[:, 0] * self.best[ids] + look[:, 1]
        never = fit == 0
        logs = torch.where(never, 0.0, fit.log())
        elsewhere = never.sum() - never.long()
        return torch.where(
            elsewhere > 0, -math.inf, logs.sum() - logs + math.log(self.share or math.exp(-700))
        )

    def chance(self, ids, look):
        """The chance of a document, scaled as `Grammar._look` scales it."""
        return _Batch(self, [ids], [look]).total().item()

    def words_at(self, ids, look):
        """The weight of each word at each place, given what is seen elsewhere: (T, V)."""
        return torch.einsum(
            "dt,dv->tv", _Batch(self, [ids], [look]).weights()[:, :, 0], self.chances
        )

    def chances_at(self, seen, looks, asked):
        """The weights of the asked words, for each list of ids in `asked`, and of any word: (asked + 1, T, documents)."""
        length = max(map(len, seen))
        out = torch.zeros(len(asked) + 1, length, len(seen), dtype=torch.float64)
        for start in range(0, len(seen), CHUNK):
            part = slice(start, start + CHUNK)
            weights = _Batch(self, seen[part], looks[part]).weights()  # (D, t, b)
            for row, ids in zip(out, asked):
                words = _side_by_side(ids[part], -1)  # (t, b)
                row[: len(words), part] = (
                    (self.chances[:, words] * weights).sum(0).masked_fill(words < 0, 0.0)
                )
            out[-1, : weights.shape[1], part] = weights.sum(0)
        return out


class _Sentence:
    """One sentence of a step: its weight in each state (Z,), and for each place the fillers' numbers in each state."""

    def __init__(self, weight, places):
        self.weight, self.places = weight, places

    def compile(self, maps):
        """Parts the places into those with the same filler in all states and the others, which go through `maps`."""
        fixed, self.varied, self.length = [], [], len(self.places)
        for offset, numbers in enumerate(self.places):
            real = [number for number in numbers if number >= 0]
            if len(set(real)) == 1:
                fixed.append((offset, real[0]))
                continue
            mapped = [max(number, 0) for number in numbers]
            if mapped not in maps:
                maps.append(mapped)
            self.varied.append((offset, maps.index(mapped)))
        self.offsets, self.fixed = torch.tensor(fixed, dtype=torch.long).reshape(-1, 2).unbind(1)


class _Batch:
    """Forward–backward over a few documents of one world, with whole sentences as steps.

    `forward[k]` holds, for every place where step k may begin, the weight of what is seen before it, with each state.
    """

    def __init__(self, world, ids, looks):
        self.world, self.lengths = world, torch.tensor([len(row) for row in ids])
        words = _side_by_side(ids, 0).clamp(min=0)  # (T, B)
        first = _side_by_side([look[:, 0] for look in looks], 0.0)
        second = _side_by_side([look[:, 1] for look in looks], 1.0)
        self.length = len(words)
        self.fit = (
            world.chances[:, words] * first + second
        )  # (D, T, B): how well each filler fits what is seen there
        self.varied = [self.fit[numbers] for numbers in world.maps]  # (Z, T, B) each
        begin = (world.prior * world.share)[:, None, None].expand(-1, 1, len(ids))
        self.forward, self.starts = (
            [begin],
            [0],
        )  # forward[k] is (Z, window, B), its first place is starts[k]
        self.scores = []
        for probability, sentences in world.steps:
            before, start = self.forward[-1], self.starts[-1]
            shortest, longest = (
                pick(sentence.length for sentence in sentences) for pick in (min, max)
            )
            first_place = start + (shortest if probability == 1 else 0)
            last_place = min(self.length, start + before.shape[1] - 1 + longest)
            after = torch.zeros(
                len(before), max(0, last_place - first_place + 1), len(ids), dtype=torch.float64
            )
            if probability < 1:
                after[:, : before.shape[1]] += (1 - probability) * before
            scores = []
            for sentence in sentences:
                places = max(0, min(before.shape[1], self.length - sentence.length - start + 1))
                scores.append(self._score(sentence, start, places) * probability)  # (Z, places, B)
                shift = start + sentence.length - first_place
                after[:, shift : shift + places].addcmul_(before[:, :places], scores[-1])
            self.scores.append(scores)
            self.forward.append(after)
            self.starts.append(first_place)

    def _score(self, sentence, start, places):
        """(Z, places, B): the chance of the sentence in each state, times how well it fits if it begins there."""
        score = sentence.weight[:, None, None] * self._fixed(sentence, start, places).prod(0)
        for offset, number in sentence.varied:
            score *= self.varied[number][:, start + offset : start + offset + places]
        return score

    def _fixed(self, sentence, start, places):
        """(F, places, B): how well the F places with the same filler in all states fit."""
        return self.fit.flatten(0, 1)[self._rows(sentence, start, places)]

    def _rows(self, sentence, start, places):
        return (sentence.fixed * self.length + sentence.offsets + start)[:, None] + torch.arange(
            places
        )

    def _end(self):
        """(window, B): 1 where the document ends."""
        return (
            self.starts[-1] + torch.arange(self.forward[-1].shape[1])[:, None] == self.lengths
        ).double()

    def total(self):
        """(B,): the weight of everything seen."""
        return (self.forward[-1] * self._end()).sum((0, 1))

    def weights(self):
        """(D, T, B): the weight of each filler at each place, given what is seen elsewhere."""
        out = torch.zeros_like(self.fit)
        varied = [torch.zeros_like(fit) for fit in self.varied]
        backward = self._end().expand_as(
            self.forward[-1]
        )  # the weight of what is seen from a place on
        for k in reversed(range(len(self.scores))):
            probability, sentences = self.world.steps[k]
            before, start = self.forward[k], self.starts[k]
            earlier = torch.zeros_like(before)
            if probability < 1:
                earlier += (1 - probability) * backward[:, : before.shape[1]]
            for sentence, score in zip(sentences, self.scores[k]):
                places = score.shape[1]
                shift = start + sentence.length - self.starts[k + 1]
                rest = backward[:, shift : shift + places]
                earlier[:, :places].addcmul_(score, rest)
                self._share_out(
                    sentence, start, before[:, :places] * rest * probability, out, varied
                )
            backward = earlier
        for numbers, weight in zip(self.world.maps, varied):
            out.index_add_(0, torch.tensor(numbers), weight)
        return out

    def _share_out(self, sentence, start, around, out, varied):
        """Adds the weight of this sentence to the fillers of each of its places, the fit of that place left out."""
        places = around.shape[1]
        around = around * sentence.weight[:, None, None]  # (Z, places, B)
        fixed = self._fixed(sentence, start, places)
        fits = [
            self.varied[number][:, start + offset : start + offset + places]
            for offset, number in sentence.varied
        ]
        inside = around
        for fit in fits:
            inside = inside * fit
        others = _product_of_others(fixed) * inside.sum(0)
        out.flatten(0, 1).index_put_(
            (self._rows(sentence, start, places),), others, accumulate=True
        )
        if fits:
            around = around * fixed.prod(0)
        for (offset, number), others in zip(sentence.varied, _product_of_others(fits)):
            varied[number][:, start + offset : start + offset + places] += around * others


def _product_of_others(factors):
    """For each of a list of tensors the product of all the others, without division, which a 0 would spoil."""
    if isinstance(factors, list):
        if len(factors) < 2:
            return [1.0] * len(factors)
        factors = torch.stack(factors)
    ones = torch.ones_like(factors[:1])
    before = torch.cat([ones, factors[:-1]]).cumprod(0)
    after = torch.cat([ones, factors[1:].flip(0)]).cumprod(0).flip(0)
    return before * after


def _side_by_side(rows, filler):
    """Rows of unequal length as columns: (T, B)."""
    return torch.nn.utils.rnn.pad_sequence(rows, padding_value=filler)


def _draw(rng, sums):
    """An index, with chances in proportion to the steps of the running sums."""
    return min(bisect(sums, rng.random() * sums[-1]), len(sums) - 1)


def _depends(words):
    """Whether a list holds a sub-list for each value of a latent."""
    return isinstance(next(iter(words.values())), dict)


def _article(word):
    return (
        "an"
        if re.match(
            r"(?!uni(?![nm])|eu|ukr|uru|one$|once$|us[aeu])[aeiou]|hour|hono|hones|heir|8|1[18]$",
            word,
        )
        else "a"
    )


def _flat(table, prefix=""):
    """{"country.continent": …} of nested tables, as TOML's dotted keys make them."""
    for key, value in table.items():
        yield from (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
        )


class _Source:
    """The text of a grammar file and where things stand in it."""

    def __init__(self, path):
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.tables = tomllib.loads(self.text)  # its errors name line and column
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path} is no TOML file: {error}") from None
        if not self.tables:
            raise self.error("no world in it")

    def error(self, message, table="", text="", key=""):
        """A ValueError that names the line: the first in the table that has the text or begins with the key, else its head.

        A table without a head of its own is looked for in the one around it.
        """
        best, inside, head = 1, not table, ""
        first = re.compile(rf"\s*(\S+\.)?{re.escape(key)}\s*[.=]")
        for number, line in enumerate(self.text.splitlines(), 1):
            found = re.match(r"\s*\[([\w.\" -]+)\]\s*(#.*)?$", line)
            if found:
                inside = (
                    f"{table}.".startswith(f"{found[1]}.")
                    or f"{found[1]}.".startswith(f"{table}.")
                    or not table
                )
                around = f"{table}.".startswith(f"{found[1]}.")
                if inside and table and (not head or around and len(found[1]) > len(head)):
                    best, head = number, found[1]
            if inside and (text and text in line or key and first.match(line)):
                best = number
                break
        return ValueError(f"{self.path}, line {best}: {message}")
