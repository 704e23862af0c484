"""Reading a grammar file: its words and sentences as the numbers that `mlm_lib.grammar` works with.

The first lines of `data/grammar.toml` explain the format. A mistake is told with the world, the
part of it and the sentence that it stands in.
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

# What BERT's tokenizer takes for one word, and the grammar for one token.
WORD = re.compile(r"[a-z]+|[0-9]+|[.,:;?-]")
# {a:animal}, {country.capital}, {opinion|mood}: an article or none, a name, the latent behind |
SLOT = re.compile(r"\{(a:)?([a-z_]+(?:\.[a-z_]+)?)(?:\|([a-z_]+(?:\.[a-z_]+)?))?\}")
# "an" by sound: a vowel, except those spoken like "you" or "one"; a silent h; 8, 11 and 18.
AN = re.compile(
    r"(?!uni(?![nm])|eu|ukr|uru|one$|once$|us[aeu])[aeiou]|hour|hono|hones|heir|8|1[18]$"
)
SMALL, LARGE = 1e-12, 1e12  # weights between them neither vanish nor overflow in sums and products
FREE = "drawn freely"  # what decides a word from a list that hangs on no latent


class World(NamedTuple):
    """One topic. Shapes: Z states, a state being one choice for every latent.

    - name, weight: how it is called, and how often documents are of it beside the other worlds.
    - prior: (Z,) float64, the chance of each state.
    - steps: list of (probability, sentences). A sentence is (weight, places): (Z,) float64, its
      chance once the step is told, and for each of its words the filler in each state, a list of Z
      numbers, where -1 stands in a state in which the sentence is impossible.
    - fillers: list of {word: chance}, what can stand at a place of a sentence.
    - kinds: {word: the latent that decides it, or `FREE`}, of the words that fill slots. One that
      fills several counts for the first of them, but for a list drawn freely last of all.
    """

    name: str
    weight: float
    prior: torch.Tensor
    steps: list
    fillers: list
    kinds: dict


def read_worlds(path, worlds=None):
    """Reads a grammar file.

    Args:
        path: a TOML file.
        worlds: a name or a list of names of worlds to keep; None keeps all.

    Returns:
        A list of `World`, in the order of the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a world that the file lacks, or a malformed file; the message quotes what is
            wrong.
    """
    with _inside(path):
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        worlds = [worlds] if isinstance(worlds, str) else worlds
        names = tables if worlds is None else [choice("worlds", name, tables) for name in worlds]
        found = [_Reader().world(name, tables[name]) for name in tables if name in names]
        if not any(world.weight for world in found):
            raise ValueError("no world has a weight above 0, so there is nothing to draw")
    return found


@contextmanager
def _inside(place):
    """Puts a place before the message of what is found wrong in it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


class _Reader:
    """Reads one world, and checks it.

    Attributes:
        states: list of Z states, each {name: word} with the names that slots use, such as
            {"mood": "good", "country": "italy", "country.capital": "rome"}.
        lists: {name: {value of a latent: {word: chance}}}; the value is None in a list for all.
        fillers: {what it is: (number, {word: chance})}.
        kinds: as in `World`.
    """

    def world(self, name, table):
        with _inside(f"world {name!r}"):
            _table("it", table, ("weight", "latents", "words", "steps"))
            weight = _weight("weight", table.get("weight", 1.0))
            self.states, prior = _states(_each(_latent, table, "latents"))
            self.lists = _each(_list, table, "words")
            self.fillers, self.kinds = {}, {}
            steps = list(_each(self._step, table, "steps").values())
            if all(probability < 1 for probability, _ in steps):
                raise ValueError("no step has probability 1, so a document could be empty")
            lists = {(key, part) for key, parts in self.lists.items() for part in parts}
            if lists - self.fillers.keys():
                raise ValueError(f"lists used by no sentence: {lists - self.fillers.keys()}")
        fillers = [filler for _, filler in self.fillers.values()]
        return World(name, weight, prior, steps, fillers, self.kinds)

    # ------------------------------------------------------------------ steps and sentences

    def _step(self, name, value):
        """(probability, sentences)."""
        _table("it", value, ("probability", "sentences"))
        told = probability("probability", value.get("probability", 1.0))
        if not told:
            raise ValueError("probability is 0, so its sentences can never be said")
        sentences = []
        for entry in _items("sentences", value.get("sentences"), once=False):
            with _inside(repr(entry)):
                sentences.append(self._sentence(entry))
        total = torch.stack([weight for weight, _ in sentences]).sum(0)  # (Z,)
        if not total.all():
            raise ValueError(f"nothing can be said here when {self.states[total.argmin()]}")
        return told, [(weight / total, places) for weight, places in sentences]

    def _sentence(self, entry):
        """(weight, places), the weight not yet divided by those of the whole step."""
        entry = {"say": entry} if isinstance(entry, str) else entry
        text = _table("it", entry, ("say", "when", "weight")).get("say")
        if not isinstance(text, str) or not text.split():
            raise ValueError("it says nothing")
        weight = _weight("weight", entry.get("weight", 1.0))
        possible = self._possible(_table("when", entry.get("when", {})))
        if not weight or not any(possible):
            raise ValueError("its weight is 0, or no choice of the latents ever leads to it")
        places = [self._place(token, possible) for token in text.split()]
        return weight * torch.tensor(possible, dtype=torch.float64), places

    def _possible(self, when):
        """[Z bools]: the states in which all conditions hold."""
        possible = [True] * len(self.states)
        for name, wanted in when.items():
            values = self._values(name)
            wanted = wanted if isinstance(wanted, list) else [wanted]
            if not all(value in values for value in wanted):
                raise ValueError(f"{name} is one of {set(values)}, never {wanted}")
            possible = [can and value in wanted for can, value in zip(possible, values)]
        return possible

    def _values(self, name):
        """[Z words]: a latent, or a fact of one such as `country.capital`, in each state."""
        if name not in self.states[0]:
            known = ", ".join(self.states[0])
            raise ValueError(f"{name!r} is neither a list nor a latent ({known})")
        return [state[name] for state in self.states]

    def _place(self, token, possible):
        """[Z numbers]: the filler here in each state, -1 where the sentence is impossible."""
        slot = SLOT.fullmatch(token)
        if slot is None:
            return [self._filler(_word(token), {token: 1.0})] * len(self.states)
        article, name, given = slot.groups()
        if name not in self.lists and not given:  # the value of a latent, or the article before it
            kind, words = name, self._values(name)
            told = [article_of(word) for word in words] if article else words
            fillers = [(word, {word: 1.0}) for word in told]
        else:  # a word from a list, which may hang on the value of a latent
            parts = self.lists.get(name, {})
            if article or not parts or (None in parts) == bool(given):
                raise ValueError(f"{token} does not fit; write {{LIST|latent}} if it hangs on one")
            values = self._values(given) if given else [None] * len(self.states)
            lacking = {value for value, can in zip(values, possible) if can} - parts.keys()
            if lacking:
                raise ValueError(f"the list {name!r} has nothing for {lacking}")
            kind, words = given or FREE, itertools.chain(*parts.values())
            fillers = [((name, value), parts.get(value)) for value in values]
        for word in words:
            if self.kinds.get(word, FREE) == FREE:
                self.kinds[word] = kind.partition(".")[0]  # the country of `country.capital`
        return [self._filler(*one) if can else -1 for one, can in zip(fillers, possible)]

    def _filler(self, what, chances):
        """The number of a filler: the next one if it is new."""
        return self.fillers.setdefault(what, (len(self.fillers), chances))[0]


# ------------------------------------------------------------------------------- parts of a world


def _each(read, table, part):
    """{name: what `read(name, value)` makes} of each entry of a part, such as `latents`."""
    found = {}
    for name, value in _table(part, table.get(part, {})).items():
        with _inside(f"{part}.{name}"):
            found[name] = read(name, value)
    return found


def _latent(name, value):
    """[({name in slots: word}, weight)]: the values of a latent, each with its facts."""
    if not isinstance(value, dict) or "rows" not in value:
        return [({name: word}, chance) for word, chance in _chances(value, zipf=False).items()]
    facts = str(_table("it", value, ("facts", "rows")).get("facts", "")).split()
    if _items("facts", facts)[0] != name:
        raise ValueError(f"facts are {facts}; {name!r} comes first")
    found = []
    for row in _items("rows", value["rows"]):
        words = [_word(word) for word in str(row).split()]
        if len(words) != len(facts):
            raise ValueError(f"{row!r} has {len(words)} words for {len(facts)} facts")
        keys = [name, *(f"{name}.{fact}" for fact in facts[1:])]
        found.append((dict(zip(keys, words)), 1))
    return found


def _states(latents):
    """One state for each choice of the latents, and their chances, (Z,)."""
    states, prior = [], []
    for rows in itertools.product(*latents.values()):
        states.append({key: word for row, _ in rows for key, word in row.items()})
        prior.append(math.prod(weight for _, weight in rows))
    return states, torch.tensor(prior, dtype=torch.float64) / sum(prior)


def _list(name, value):
    """{None: {word: chance}}, or {value of a latent: {word: chance}}."""
    hangs = isinstance(value, dict) and all(isinstance(one, list | dict) for one in value.values())
    parts = value if hangs else {None: value}
    return {key: _chances(part, zipf=True) for key, part in parts.items()}


def _chances(value, zipf):
    """{word: chance} of a table of weights, or of a list: by Zipf's law, or all alike."""
    if isinstance(value, list):
        words = enumerate(_items("it", value), 1)
        value = {_word(word): 1 / rank if zipf else 1 for rank, word in words}
    for word, weight in _table("it", value).items():
        _weight(_word(word), weight)
    total = sum(value.values())
    if not total:
        raise ValueError("it is empty, or all weights are 0")
    return {word: weight / total for word, weight in value.items() if weight}


def article_of(word):
    """The article that goes with a word's sound.

    >>> article_of("hour"), article_of("european"), article_of("11"), article_of("uncle")
    ('an', 'a', 'an', 'an')
    """
    return "an" if AN.match(word) else "a"


# ------------------------------------------------------------------------------------ guards


def _table(name, value, keys=None):
    if not isinstance(value, dict):
        raise refused(name, value, "a table")
    unknown = value.keys() - set(keys or value)
    if unknown:
        raise ValueError(f"{name} has {unknown}; there may be {', '.join(keys)}")
    return value


def _items(name, values, once=True):
    if not isinstance(values, list) or not values:
        raise refused(name, values, "a list that holds something")
    doubled = [value for value in values if once and values.count(value) > 1]
    if doubled:
        raise ValueError(f"{name} has {doubled[0]!r} twice")
    return values


def _word(word):
    if not isinstance(word, str) or not WORD.fullmatch(word):
        raise ValueError(f"{word!r} is not one word of a-z, one number, or one of . , : ; ? -")
    return word


def _weight(name, value):
    if type(value) in (int, float) and (value == 0 or SMALL <= value <= LARGE):  # NaN is neither
        return value
    raise refused(name, value, f"0 or a number from {SMALL:g} to {LARGE:g}")
