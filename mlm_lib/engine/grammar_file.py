"""Reading a grammar file, and refusing a wrong one with its line. Built in lesson 08.

The first lines of `data/grammar.toml` explain the format. What comes out is plain data: for each
world the chances of its states, its steps with their sentences, and the fillers of their places.
"""

import itertools
import math
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from mlm_lib.checks import choice, path_name, probability, refused
from mlm_lib.forward_backward import Sentence, Step

# ------------------------------------------------------------------------------------ grammar lines
#
# The text of a grammar file, and which of its lines a mistake stands in. Built in lesson 08.


HEAD = re.compile(r"\s*\[([\w.\" -]+)\]\s*(#.*)?$")


class GrammarText:
    """The text of a grammar file and its tables."""

    def __init__(self, path):
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.tables = tomllib.loads(self.text)  # its errors name line and column
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path} is no TOML file: {error}") from None
        if not self.tables:
            raise Where(self).error("no world in it")


@dataclass(frozen=True)
class Where:
    """A place in a grammar file: a world, a table, and a text in its line or a key before it."""

    file: GrammarText
    world: str = ""
    table: str = ""
    text: str = ""
    key: str = ""

    def at(self, **changes):
        return replace(self, **changes)

    def error(self, message):
        """A ValueError that names file, line and world."""
        world = f"world {self.world!r}: " if self.world else ""
        return ValueError(f"{self.file.path}, line {self._line()}: {world}{message}")

    def told(self, message):
        """The same about a part of a sentence, which it quotes."""
        return self.error(f"{message}, in {self.text!r}")

    def _line(self):
        """The first line in the table that has the text or begins with the key, else its head.

        A table without a head of its own is looked for in the one around it.
        """
        best, inside, nearest = 1, not self.table, ""
        begins = re.compile(rf"\s*(\S+\.)?{re.escape(self.key)}\s*[.=]")
        for number, line in enumerate(self.file.text.splitlines(), 1):
            head = HEAD.match(line)
            if head:
                around = f"{self.table}.".startswith(f"{head[1]}.")
                inside = around or not self.table or f"{head[1]}.".startswith(f"{self.table}.")
                nearer = not nearest or (around and len(head[1]) > len(nearest))
                if inside and self.table and nearer:
                    best, nearest = number, head[1]
            has_text = self.text and self.text in line
            if inside and (has_text or (self.key and begins.match(line))):
                return number
        return best


# What BERT's tokenizer takes for one word, and the grammar for one token.
WORD = re.compile(r"[a-z]+|[0-9]+|[.,:;?-]")
ONE_WORD = "one word of a-z, one number, or one of . , : ; ? -"
# {a:animal}, {country.capital}, {opinion|mood}: an article or none, a name, the latent behind |
SLOT = re.compile(r"\{(a:)?([a-z_]+(?:\.[a-z_]+)?)(?:\|([a-z_]+(?:\.[a-z_]+)?))?\}")
# "an" by sound: a vowel, except those spoken like "you" or "one"; a silent h; 8, 11 and 18.
AN = re.compile(
    r"(?!uni(?![nm])|eu|ukr|uru|one$|once$|us[aeu])[aeiou]|hour|hono|hones|heir|8|1[18]$"
)
SMALL, LARGE = 1e-12, 1e12  # weights between them neither vanish nor overflow in sums and products


class World(NamedTuple):
    """One topic. Shapes: Z states, a state being one choice for every latent.

    name, weight: how it is called, and how often documents are of it beside the other worlds.
    prior: (Z,) float64, the chance of each state.
    steps: list of `forward_backward.Step`, whose sentences number the fillers.
    fillers: list of {word: chance}, what can stand at a place of a sentence.
    """

    name: str
    weight: float
    prior: torch.Tensor
    steps: list
    fillers: list


def read_worlds(path, worlds=None):
    """Reads a grammar file.

    Args:
        path: a TOML file.
        worlds: a name or a list of names of worlds to keep; None keeps all.

    Returns:
        A list of `World`, in the order of the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a world that the file lacks, or a malformed file; the message names the line.
    """
    path = Path(path_name("path", path))
    if not path.is_file():
        remedy = "give the path of a grammar, or None for the course's own"
        raise FileNotFoundError(f"{path} is not a file; {remedy}")
    file = GrammarText(path)
    names = list(file.tables) if worlds is None else worlds
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple | set) or not names:
        raise refused("worlds", worlds, f"None, or some of {', '.join(file.tables)},")
    for name in names:
        choice("worlds", name, file.tables)
    found = [_Reader(file, name).world() for name in file.tables if name in names]
    if not any(world.weight for world in found):
        raise Where(file).error("no world has a weight above 0, so there is nothing to draw")
    return found


class _Reader:
    """Reads one world, and checks it.

    Attributes:
        states: list of Z states, each {name: word} with the names that slots use, such as
            {"mood": "good", "country": "italy", "country.capital": "rome"}.
        lists: {name: {value of a latent: {word: chance}}}; the value is None in a list for all.
        fillers: {what it is: (number, {word: chance})}.
    """

    def __init__(self, file, name):
        self.name, self.where, self.used = name, Where(file, name, name), set()
        table = self._table(file.tables[name], ("weight", "latents", "words", "steps"), self.where)
        self.weight = _weight("weight", table.get("weight", 1.0), self.where.at(text="weight"))
        latents = {key: self._latent(key, value) for key, value in self._part(table, "latents")}
        self.lists = {key: self._list(key, value) for key, value in self._part(table, "words")}
        self.latents, self.fillers, self.states, prior = list(latents), {}, [], []
        for rows in itertools.product(*latents.values()):
            self.states.append({key: word for row, _ in rows for key, word in row.items()})
            prior.append(math.prod(weight for _, weight in rows))
        self.prior = torch.tensor(prior, dtype=torch.float64) / sum(prior)  # (Z,)
        self.steps = [self._step(key, value) for key, value in self._part(table, "steps")]

    def world(self):
        if all(step.probability < 1 for step in self.steps):
            message = "no step has probability 1, so a document could be empty"
            raise self._at("steps").error(message)
        for name, parts in self.lists.items():
            for part in parts:
                if (name, part) not in self.used:
                    unused = f"{name}.{part}" if part else name
                    message = f"the list {unused!r} is used by no sentence"
                    raise self._at("words", key=unused).error(message)
        fillers = [filler for _, filler in self.fillers.values()]
        return World(self.name, self.weight, self.prior, self.steps, fillers)

    def _at(self, part, **hint):
        return self.where.at(table=f"{self.name}.{part}", **hint)

    def _part(self, table, name):
        value = table.get(name, {})
        if not isinstance(value, dict):
            raise self.where.at(key=name).error(f"{name} is {value!r}; a table is needed")
        return value.items()

    def _table(self, table, keys, where):
        if not isinstance(table, dict):
            where = where.at(text=str(table))
            raise where.error(f"{where.table} is {table!r}; a table is needed")
        for key in sorted(table.keys() - set(keys)):
            message = f"{where.table} has {key!r}; it may have {', '.join(keys)}"
            raise where.at(text=key).error(message)
        return table

    # ------------------------------------------------------------------ latents and lists

    def _latent(self, name, value):
        """[(row, weight)]: the values of a latent with their facts, named as slots name them."""
        if isinstance(value, dict) and "rows" in value:
            return self._rows(name, value)
        where = self._at("latents", key=name)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = dict.fromkeys(_once(value, name, where), 1)
        if not isinstance(value, dict) or not value:
            forms = "neither an array, a table of weights, nor facts and rows"
            raise where.error(f"the latent {name!r} is empty, or {forms}")
        return [({name: word}, chance) for word, chance in _chances(value, name, where).items()]

    def _rows(self, name, value):
        where = self._at(f"latents.{name}")
        self._table(value, ("facts", "rows"), where)
        facts, rows = str(value.get("facts", "")).split(), value["rows"]
        if not facts or facts[0] != name or len(set(facts)) < len(facts):
            message = f"{name!r} needs facts, each once, that begin with {name!r}; it has {facts}"
            raise where.at(text="facts").error(message)
        if not isinstance(rows, list) or not rows:
            message = f"{name!r} has rows = {rows!r}; an array of texts is needed"
            raise where.at(text="rows").error(message)
        keys = [name, *(f"{name}.{fact}" for fact in facts[1:])]
        found = []
        for row in _once(rows, name, where):
            words = str(row).split()
            if len(words) != len(facts):
                message = f"{row!r} has {len(words)} words for {len(facts)} facts"
                raise where.at(text=str(row)).error(message)
            found.append((dict(zip(keys, [_word(word, where) for word in words])), 1))
        return found

    def _list(self, name, value):
        """{None: {word: chance}}, or {value of a latent: {word: chance}}."""
        parts = list(value.values()) if isinstance(value, dict) else []
        if parts and all(isinstance(part, list | dict) for part in parts):
            return {key: self._words(f"{name}.{key}", part) for key, part in value.items()}
        return {None: self._words(name, value)}

    def _words(self, name, value):
        where = self._at("words", key=name)
        if not isinstance(value, list | dict) or not value:
            raise where.error(f"the list {name!r} is empty or no list")
        if isinstance(value, list):
            words = [_word(word, where) for word in _once(value, name, where)]
            value = {word: 1 / rank for rank, word in enumerate(words, 1)}  # Zipf's law
        return _chances(value, name, where)

    # ------------------------------------------------------------------ steps and sentences

    def _step(self, name, value):
        where = self._at(f"steps.{name}")
        self._table(value, ("probability", "sentences"), where)
        told = where.at(text="probability")
        try:
            chance = probability("probability", value.get("probability", 1.0))
        except ValueError as error:
            raise told.error(error) from None
        if not isinstance(value.get("sentences"), list) or not value["sentences"]:
            raise where.error("has no sentences")
        if not chance:
            raise told.error("has probability 0, so its sentences can never be said")
        sentences = [self._sentence(where, entry) for entry in value["sentences"]]
        total = torch.stack([sentence.weight for sentence in sentences]).sum(0)  # (Z,)
        if not total.all():
            state = self.states[(total == 0).nonzero()[0].item()]
            state = {latent: state[latent] for latent in self.latents}
            raise where.error(f"nothing can be said here when {state}")
        return Step(chance, [Sentence(weight / total, places) for weight, places in sentences])

    def _sentence(self, where, entry):
        """A sentence, its weights (Z,) not yet divided by those of the whole step."""
        entry = {"say": entry} if isinstance(entry, str) else entry
        self._table(entry, ("say", "when", "weight"), where)
        text = entry.get("say")
        if not isinstance(text, str) or not text.split():
            where = where.at(text="say" if text is None else str(text))
            raise where.error(f"{entry!r} says nothing")
        where = where.at(text=text)
        weight = _weight("weight", entry.get("weight", 1.0), where)
        possible = self._possible(entry.get("when", {}), where)
        if not weight:
            raise where.error(f"{text!r} has weight 0, so it is never said")
        if not any(possible):
            raise where.error(f"no choice of the latents ever leads to {text!r}")
        places = [self._place(token, possible, where) for token in text.split()]
        return Sentence(weight * torch.tensor(possible, dtype=torch.float64), places)

    def _possible(self, when, where):
        """[Z bools]: the states in which all conditions hold."""
        if not isinstance(when, dict):
            raise where.told(f"when = {when!r}; write when.latent = {when!r}")
        possible = [True] * len(self.states)
        for key, wanted in _flat(when):
            name = self._fact(key, where)
            values = [state[name] for state in self.states]
            wanted = wanted if isinstance(wanted, list) else [wanted]
            for one in wanted:
                if one not in values:
                    raise where.told(f"{key} is never {one!r}")
            possible = [can and value in wanted for can, value in zip(possible, values)]
        return possible

    def _fact(self, name, where):
        """The name of a latent or of a fact of one, as states have it."""
        latent, _, fact = name.partition(".")
        name = latent if fact == latent else name
        if name not in self.states[0]:
            known = ", ".join(self.states[0])
            raise where.told(f"{name!r} is neither a list nor a latent ({known})")
        return name

    def _place(self, token, possible, where):
        """[Z numbers]: the filler here in each state, −1 where the sentence is impossible."""
        slot = SLOT.fullmatch(token)
        if slot is None:
            if "{" in token or not WORD.fullmatch(token):
                raise where.told(f"{token!r} is neither a slot nor {ONE_WORD}")
            return [self._filler(token, {token: 1.0})] * len(self.states)
        article, name, given = slot.groups()
        if name in self.lists:
            depends = None not in self.lists[name]
            if article:
                raise where.told(f"{token}: {name!r} is a list, and a: goes before a latent")
            if depends != bool(given):
                remedy = f"write {{{name}|latent}}" if depends else "leave out what stands behind |"
                raise where.told(f"{token} does not fit the list {name!r}; {remedy}")
            given = given and self._fact(given, where)
        elif given:
            raise where.told(f"{token}: {name!r} is not a list")
        else:
            name = self._fact(name, where)
        numbers = [-1] * len(self.states)
        for index, state in enumerate(self.states):
            if possible[index] and name in self.lists:
                numbers[index] = self._from_list(name, given and state[given], where)
            elif possible[index]:
                word = article_of(state[name]) if article else state[name]
                numbers[index] = self._filler(word, {word: 1.0})
        return numbers

    def _from_list(self, name, part, where):
        if part not in self.lists[name]:
            raise where.told(f"the list {name!r} has nothing for {part!r}")
        self.used.add((name, part))
        return self._filler((name, part), self.lists[name][part])

    def _filler(self, what, filler):
        return self.fillers.setdefault(what, (len(self.fillers), filler))[0]


# ------------------------------------------------------------------------------------ values


def article_of(word):
    """The article that goes with a word's sound.

    >>> article_of("hour"), article_of("european"), article_of("11"), article_of("uncle")
    ('an', 'a', 'an', 'an')
    """
    return "an" if AN.match(word) else "a"


def _weight(name, value, where):
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not (value == 0 or SMALL <= value <= LARGE):  # NaN is neither
        raise where.error(refused(name, value, f"0 or a number from {SMALL:g} to {LARGE:g}"))
    return value


def _word(word, where):
    if not isinstance(word, str) or not WORD.fullmatch(word):
        hint = where if isinstance(word, list | dict) else where.at(text=str(word), key="")
        raise hint.error(f"{word!r} is not {ONE_WORD}")
    return word


def _once(words, name, where):
    for word in words:
        if words.count(word) > 1:
            raise where.at(text=str(word), key=name).error(f"{name!r} has {word!r} twice")
    return words


def _chances(weights, name, where):
    """{word: chance} of {word: weight}."""
    for word, weight in weights.items():
        _word(word, where)
        _weight(f"{name}: {word}", weight, where)
    total = sum(weights.values())
    if not total:
        raise where.error(f"all weights of {name!r} are 0")
    return {word: weight / total for word, weight in weights.items() if weight}


def _flat(table, prefix=""):
    """("country.capital", value) of nested tables, as TOML's dotted keys make them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
