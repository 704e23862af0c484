"""Reads and checks a grammar file, and makes the arrays that `mlm_lib.grammar` computes with.

The first lines of `data/grammar.toml` explain the format. The message about a mistake names the
world, the part of the world and the sentence in which it is.
"""

import itertools
import math
import re
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from mlm_lib.checks import choice, probability, refused

# A token of the grammar: what BERT's tokenizer treats as one word.
WORD = re.compile(r"[a-z]+|[0-9]+|[.,:;?-]")
# A slot, such as {a:animal}, {country.capital} or {opinion|mood}: a name. There may be an article
# before the name, and a latent after it.
SLOT = re.compile(r"\{(a:)?([a-z_]+(?:\.[a-z_]+)?)(?:\|([a-z_]+(?:\.[a-z_]+)?))?\}")
# Words that take "an" because of their sound. They begin with a vowel that is not spoken as in
# "you" or "one", or with a silent h, or with 8, or they are the number 11 or 18.
TAKES_AN = re.compile(
    r"(?!uni(?![nm])|eu|ukr|uru|one$|once$|us[aeu])[aeiou]|hour|hono|hones|heir|8|1[18]$"
)
SMALL, LARGE = 1e-12, 1e12  # limits for weights, so that sums and products keep their precision
NO_LATENT = "drawn freely"  # stands for the latent of a word that depends on no latent


class World(NamedTuple):
    """One topic of a grammar.

    A *latent* is a hidden fact about a document, such as the mood of its writer. A *state* is one
    choice of a value for each latent. There are Z states.

    - name: the name of the world.
    - weight: how often documents are of this world, relative to the weights of the other worlds.
    - prior: (Z,) float64, the probability of each state.
    - steps: a list of (probability, sentences). A sentence is a pair (weight, places). Its weight
      is a tensor (Z,) float64: the probability of the sentence in each state, given that the step
      occurs. `places` has a list of Z numbers for each word of the sentence. They are the numbers
      of the filler at this place in each state, or −1 if the sentence is impossible in the state.
    - fillers: a list of {word: probability}. A filler is a distribution over words.
    - kinds: {word: the latent that decides it, or `NO_LATENT`}, for the words that fill slots. If a
      word fills several kinds of slots, the first of them counts. A latent is preferred to
      `NO_LATENT`.
    """

    name: str
    weight: float
    prior: torch.Tensor
    steps: list
    fillers: list
    kinds: dict


def read_worlds(path, worlds=None):
    """Reads the worlds of a grammar file.

    Args:
        path: a TOML file.
        worlds: the name of the world to keep, or a list of such names. None: all worlds are kept.

    Returns:
        A list of `World`, in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a world of these names is not in the file, or the file has a mistake. The
            message quotes what is wrong.
    """
    with _place_in_errors(path):
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        worlds = [worlds] if isinstance(worlds, str) else worlds
        names = tables if worlds is None else [choice("worlds", name, tables) for name in worlds]
        found = [_WorldReader().world(name, tables[name]) for name in tables if name in names]
        if not any(world.weight for world in found):
            raise ValueError("no world has a weight above 0, so there is nothing to draw")
    return found


@contextmanager
def _place_in_errors(place):
    """Within this context, the message of a ValueError begins with the place of the mistake."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


class _WorldReader:
    """Reads and checks one world.

    Attributes:
        states: a list of Z states, each {name in a slot: word}, such as
            {"mood": "good", "country": "italy", "country.capital": "rome"}.
        lists: {name of a list: {value of a latent: {word: probability}}}. The value is None if the
            list does not depend on a latent.
        fillers: {key: (number, {word: probability})}, where equal fillers have equal keys.
        kinds: as in `World`.
    """

    def world(self, name, table):
        with _place_in_errors(f"world {name!r}"):
            _checked_table("it", table, ("weight", "latents", "words", "steps"))
            weight = _checked_weight("weight", table.get("weight", 1.0))
            self.states, prior = _all_states(_read_each(_read_latent, table, "latents"))
            self.lists = _read_each(_read_list, table, "words")
            self.fillers, self.kinds = {}, {}
            steps = list(_read_each(self._step, table, "steps").values())
            if all(probability < 1 for probability, _ in steps):
                raise ValueError("no step has probability 1, so a document could be empty")
            lists = {(key, part) for key, parts in self.lists.items() for part in parts}
            if lists - self.fillers.keys():
                raise ValueError(f"lists used by no sentence: {lists - self.fillers.keys()}")
        fillers = [filler for _, filler in self.fillers.values()]
        return World(name, weight, prior, steps, fillers, self.kinds)

    # ------------------------------------------------------------------ steps and sentences

    def _step(self, name, value):
        """A step as (probability, sentences), as in `World`."""
        _checked_table("it", value, ("probability", "sentences"))
        chance = probability("probability", value.get("probability", 1.0))
        if not chance:
            raise ValueError("probability is 0, so its sentences can never be said")
        sentences = []
        for entry in _checked_items("sentences", value.get("sentences"), once=False):
            with _place_in_errors(repr(entry)):
                sentences.append(self._sentence(entry))
        total = torch.stack([weight for weight, _ in sentences]).sum(0)  # (Z,)
        if not total.all():
            raise ValueError(f"nothing can be said here when {self.states[total.argmin()]}")
        return chance, [(weight / total, places) for weight, places in sentences]

    def _sentence(self, entry):
        """A sentence as (weight, places), before its weight is divided by the sum of the step."""
        entry = {"say": entry} if isinstance(entry, str) else entry
        text = _checked_table("it", entry, ("say", "when", "weight")).get("say")
        if not isinstance(text, str) or not text.split():
            raise ValueError("it says nothing")
        weight = _checked_weight("weight", entry.get("weight", 1.0))
        possible = self._possible(_checked_table("when", entry.get("when", {})))
        if not weight or not any(possible):
            raise ValueError("its weight is 0, or no choice of the latents ever leads to it")
        places = [self._place(token, possible) for token in text.split()]
        return weight * torch.tensor(possible, dtype=torch.float64), places

    def _possible(self, when):
        """Whether all conditions hold in a state, as a list of Z bools."""
        possible = [True] * len(self.states)
        for name, wanted in when.items():
            values = self._values(name)
            wanted = wanted if isinstance(wanted, list) else [wanted]
            if not all(value in values for value in wanted):
                raise ValueError(f"{name} is one of {set(values)}, never {wanted}")
            possible = [can and value in wanted for can, value in zip(possible, values)]
        return possible

    def _values(self, name):
        """The value of a latent, or of a fact such as `country.capital`, in each of Z states."""
        if name not in self.states[0]:
            known = ", ".join(self.states[0])
            raise ValueError(f"{name!r} is neither a list nor a latent ({known})")
        return [state[name] for state in self.states]

    def _place(self, token, possible):
        """The number of the filler in each of the Z states; −1 where the sentence is impossible."""
        slot = SLOT.fullmatch(token)
        if slot is None:
            return [self._filler(_checked_word(token), {token: 1.0})] * len(self.states)
        article, name, given = slot.groups()
        if name not in self.lists and not given:  # the value of a latent, or the article before it
            kind, words = name, self._values(name)
            shown = [article_of(word) for word in words] if article else words
            fillers = [(word, {word: 1.0}) for word in shown]
        else:  # a word from a list, which may depend on the value of a latent
            parts = self.lists.get(name, {})
            if article or not parts or (None in parts) == bool(given):
                raise ValueError(f"{token} does not fit; write {{LIST|latent}} if it hangs on one")
            values = self._values(given) if given else [None] * len(self.states)
            lacking = {value for value, can in zip(values, possible) if can} - parts.keys()
            if lacking:
                raise ValueError(f"the list {name!r} has nothing for {lacking}")
            kind, words = given or NO_LATENT, itertools.chain(*parts.values())
            fillers = [((name, value), parts.get(value)) for value in values]
        for word in words:
            if self.kinds.get(word, NO_LATENT) == NO_LATENT:
                self.kinds[word] = kind.partition(".")[0]  # the country of `country.capital`
        return [self._filler(*one) if can else -1 for one, can in zip(fillers, possible)]

    def _filler(self, what, chances):
        """The number of a filler; a new filler gets the next number."""
        return self.fillers.setdefault(what, (len(self.fillers), chances))[0]


# ------------------------------------------------------------------------------- parts of a world


def _read_each(read, table, part):
    """Reads each entry of a part of a world, such as `latents`: {name: read(name, value)}."""
    found = {}
    for name, value in _checked_table(part, table.get(part, {})).items():
        with _place_in_errors(f"{part}.{name}"):
            found[name] = read(name, value)
    return found


def _read_latent(name, value):
    """The values of a latent with their facts, as a list of ({name in a slot: word}, weight)."""
    if not isinstance(value, dict) or "rows" not in value:
        return [({name: word}, chance) for word, chance in _normalized(value, zipf=False).items()]
    facts = str(_checked_table("it", value, ("facts", "rows")).get("facts", "")).split()
    if _checked_items("facts", facts)[0] != name:
        raise ValueError(f"facts are {facts}; {name!r} comes first")
    found = []
    for row in _checked_items("rows", value["rows"]):
        words = [_checked_word(word) for word in str(row).split()]
        if len(words) != len(facts):
            raise ValueError(f"{row!r} has {len(words)} words for {len(facts)} facts")
        keys = [name, *(f"{name}.{fact}" for fact in facts[1:])]
        found.append((dict(zip(keys, words)), 1))
    return found


def _all_states(latents):
    """All Z combinations of values of the latents, and their probabilities (Z,)."""
    states, prior = [], []
    for rows in itertools.product(*latents.values()):
        states.append({key: word for row, _ in rows for key, word in row.items()})
        prior.append(math.prod(weight for _, weight in rows))
    return states, torch.tensor(prior, dtype=torch.float64) / sum(prior)


def _read_list(name, value):
    """A list of words as {value of a latent: {word: probability}}; the value may be None."""
    per_value = isinstance(value, dict) and all(
        isinstance(part, list | dict) for part in value.values()
    )
    parts = value if per_value else {None: value}
    return {key: _normalized(part, zipf=True) for key, part in parts.items()}


def _normalized(value, zipf):
    """{word: probability} from a table of weights or from a list of words.

    The words of a list have equal weights or, with `zipf`, weights 1, 1/2, 1/3, … by Zipf's law.
    """
    if isinstance(value, list):
        words = enumerate(_checked_items("it", value), 1)
        value = {_checked_word(word): 1 / rank if zipf else 1 for rank, word in words}
    for word, weight in _checked_table("it", value).items():
        _checked_weight(_checked_word(word), weight)
    total = sum(value.values())
    if not total:
        raise ValueError("it is empty, or all weights are 0")
    return {word: weight / total for word, weight in value.items() if weight}


def article_of(word):
    """The article "a" or "an" that goes with the sound of a word.

    >>> article_of("hour"), article_of("european"), article_of("11"), article_of("uncle")
    ('an', 'a', 'an', 'an')
    """
    return "an" if TAKES_AN.match(word) else "a"


# ------------------------------------------------------------------------------------ guards


def _checked_table(name, value, keys=None):
    """The value, after a check that it is a table, and that it has no keys other than `keys`."""
    if not isinstance(value, dict):
        raise refused(name, value, "a table")
    unknown = value.keys() - set(keys or value)
    if unknown:
        raise ValueError(f"{name} has {unknown}; there may be {', '.join(keys)}")
    return value


def _checked_items(name, values, once=True):
    """The values, after a check that they are a list that is not empty and, with `once`, has no
    value twice."""
    if not isinstance(values, list) or not values:
        raise refused(name, values, "a list that holds something")
    doubled = [value for value in values if once and values.count(value) > 1]
    if doubled:
        raise ValueError(f"{name} has {doubled[0]!r} twice")
    return values


def _checked_word(word):
    """The word, after a check that it is one token of the grammar."""
    if not isinstance(word, str) or not WORD.fullmatch(word):
        raise ValueError(f"{word!r} is not one word of a-z, one number, or one of . , : ; ? -")
    return word


def _checked_weight(name, value):
    """The value, after a check that it is 0 or a number within the limits for weights."""
    if type(value) in (int, float) and (value == 0 or SMALL <= value <= LARGE):  # NaN is neither
        return value
    raise refused(name, value, f"0 or a number from {SMALL:g} to {LARGE:g}")
