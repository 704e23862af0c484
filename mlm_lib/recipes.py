"""Recipes of a pretraining run: what their tables may hold, and what holds where they are silent.

A table of a recipe holds the arguments of one class, whose checks and defaults hold: [[data]] those
of `Documents`, `Texts` or `Stream`, [tokenizer] of `WordPieceTokenizer.train`, [model] of
`EncoderConfig`, [masking] of `MaskingCollator`, [training] of `TrainingConfig`, [show] of
`ShowPredictions`. With `encoder = "modern"` in it, [model] holds the arguments of `ModernConfig`;
with `from = "course-bert"` the weights, shape and tokenizer of a checkpoint are gone on with.
With `objective = "diffusion"` before the tables the model learns to write, and [masking] holds the
arguments of `DiffusionCollator`. Built in lessons 08, 15 and 16.
"""

import inspect
import tomllib
from contextlib import contextmanager
from pathlib import Path

from mlm_lib.checks import choice, path_name, refused
from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.encoder import EncoderConfig
from mlm_lib.masking import MaskingCollator
from mlm_lib.mixture import Documents, Texts
from mlm_lib.modern import ModernConfig
from mlm_lib.stream import Stream
from mlm_lib.training import ShowPredictions, TrainingConfig
from mlm_lib.wordpiece import WordPieceTokenizer


def argument_names(function, *without):
    """The list of names of what a function or a class takes, less some."""
    return [name for name in inspect.signature(function).parameters if name not in without]


# What the tables may hold: arguments, without those that follow from something else.
KEYS = {
    "tokenizer": ["from", *argument_names(WordPieceTokenizer.train, "texts")],
    "model": ["encoder", *argument_names(EncoderConfig, "vocab_size", "pad_token_id")],
    "masking": argument_names(MaskingCollator, "tokenizer", "seed"),
    "training": argument_names(TrainingConfig),
    "show": argument_names(ShowPredictions, "tokenizer"),
    "save": ["dtype"],
}
# The defaults that no class has: a model that a laptop trains, on documents of the grammar.
OWN = {
    "data": {"corpus": "grammar"},
    "tokenizer": {"from": None, "vocab_size": 8192},
    "model": {"hidden_size": 128, "num_layers": 2, "num_heads": 2},
    "training": {"steps": None},
    "show": {"sentences": []},
    "save": {"dtype": "float32"},
}
ENCODERS = {"bert": EncoderConfig, "modern": ModernConfig}  # the first, if [model] says nothing
COLLATORS = {"masked": MaskingCollator, "diffusion": DiffusionCollator}  # by objective
DTYPES = ("float32", "float16", "bfloat16")


def kind_of(corpus):
    """The class for a corpus of this name: `Documents`, `Stream` or `Texts`.

    >>> kind_of("stream:films.csv:body").__name__
    'Stream'
    """
    name = path_name("corpus", corpus)
    if name == "grammar":
        return Documents
    return Stream if name.startswith("stream:") else Texts


def read_recipe(file=None):
    """A recipe as a dictionary of tables: what the file says, before `OWN`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no TOML, or a table or key that a recipe does not have.
    """
    if file is None:
        return complete({})
    if not Path(path_name("file", file)).is_file():
        raise FileNotFoundError(
            f"{file} is not a file; --config takes a recipe such as data/course-bert/recipe.toml"
        )
    try:
        tables = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{file} is no TOML file: {error}") from None
    return complete(tables)


def complete(tables):
    """A recipe with all its tables, in which every name is known; values are looked at later.

    Args:
        tables: a dictionary of tables, as TOML gives them; those that are missing are `OWN`.

    Returns:
        A new dictionary: "objective", "data" as a list of tables, and each table of `KEYS`.

    Raises:
        ValueError: no table where one is needed, or a name that a recipe does not have.
    """
    if not isinstance(tables, dict):
        raise refused("recipe", tables, "a dictionary of tables")
    for name in tables.keys() - {"data", "objective"} - KEYS.keys():
        known = f"objective, data, {', '.join(KEYS)}"
        raise ValueError(f"a recipe has no {name!r}; it may have {known}")
    objective = choice("objective", tables.get("objective", "masked"), COLLATORS)
    sizes = _known("[model]", tables.get("model", {}))
    with named("[model]"):
        encoder = choice("encoder", sizes.get("encoder", "bert"), ENCODERS)
    masking = argument_names(COLLATORS[objective], "tokenizer", "seed")
    goes_on = "from" in sizes
    sizes = ["encoder", *argument_names(ENCODERS[encoder], "vocab_size", "pad_token_id")]
    if goes_on:  # the shape is there, and only what is dropped while training may be another
        names = [name for config in ENCODERS.values() for name in argument_names(config)]
        sizes = ["from", *dict.fromkeys(name for name in names if name.endswith("dropout"))]
    parts = tables.get("data", [{}])
    if not isinstance(parts, list) or not parts:
        raise ValueError(f"data is {parts!r}; one or more [[data]] are needed")
    recipe = {"objective": objective, "data": [_part(part) for part in parts]}
    for name, keys in (KEYS | {"model": sizes, "masking": masking}).items():
        recipe[name] = OWN.get(name, {}) | _known(f"[{name}]", tables.get(name, {}), keys)
    if goes_on:
        recipe["model"] = dict(tables["model"])
        recipe["tokenizer"]["from"] = recipe["tokenizer"]["from"] or recipe["model"]["from"]
    return recipe


def _part(table):
    corpus = (OWN["data"] | _known("[[data]]", table))["corpus"]
    with named("[[data]]"):
        keys = argument_names(kind_of(corpus), "seed")
    return {"corpus": corpus} | _known(f"[[data]] of {corpus!r}", table, keys)


def _known(where, table, keys=None):
    """The table, if it is one and has no other keys."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} is {table!r}; a table is needed")
    for name in table if keys else ():
        if name not in keys:
            raise ValueError(f"{where} has {name!r}; it may have {', '.join(keys)}")
    return table


@contextmanager
def named(table):
    """A context that puts the name of a table before the ValueError that a class raises in it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{table} {error}") from None
