"""Recipes for pretraining: reads the TOML file, fills in defaults, and builds objects from it.

A recipe is a dictionary of tables, one for each part of a run. `read_recipe` makes it from a file
and the options of the command line; `build_from_table` passes one table to the class or function
that takes it, and turns a mistake in the table into one clear sentence.
"""

import tomllib
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import get_args

from mlm_lib.checks import refused
from mlm_lib.engine.command_line import TRAINING_OPTIONS, no_such

# The values of a recipe that are used if neither the file nor an option gives them. They differ
# from the defaults of the classes: the model is so small that a laptop can train it, and each batch
# holds rows of similar length.
DEFAULTS = {
    "objective": "masked", "data": [{"corpus": "grammar"}], "tokenizer": {"vocab_size": 8192},
    "model": {"hidden_size": 128, "num_layers": 2, "num_heads": 2}, "masking": {},
    "training": {"steps": None, "group_by_length": True},
    "show": {"sentences": []}, "save": {"dtype": "float32"},
}  # fmt: skip
# The types of keys whose parameters have neither an annotation nor a default that shows the type.
TYPES_BY_KEY = {
    "sentences": [list], "worlds": [list], "initial_alphabet": [str, list], "lowercase": [bool],
}  # fmt: skip
# {type of a value in a recipe: what an error message calls it}, and {type of a parameter: the type
# of its value in a recipe} where the two types differ.
TYPE_NAMES = {bool: "true or false", Real: "a number", str: "a text in quotes", list: "a list"}
TOML_TYPES = {int: Real, float: Real, tuple: list}
# Keys that `pretrain` takes out of a table before it builds an object from the rest. An error
# message lists them among the keys that exist.
KEYS_OF_PRETRAIN = {
    "[[data]]": ["corpus", "prepared"],
    "[tokenizer]": ["vocab_file"],
    "[model]": ["encoder", "from"],
}


def read_recipe(file=None, options=None):
    """Reads a recipe, and completes it with the options of the command line and with `DEFAULTS`.

    Args:
        file: a TOML file, or None for a recipe of defaults.
        options: {name: value} from the command line. An option replaces what the file says.

    Returns:
        A dictionary of tables, as `fill_in_defaults` makes it.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not TOML, or has a table that a recipe does not have.
    """
    tables = {} if file is None else _read_toml(file)
    recipe, options = fill_in_defaults(tables), options or {}  # this also checks the tables
    if data := {name: options[name] for name in ("corpus", "prepared") if name in options}:
        tables = tables | {"data": [data]}
    if "from" in options:
        tables = tables | {"model": tables.get("model", {}) | {"from": options["from"]}}
    training = {name: options[name] for name in TRAINING_OPTIONS if name in options}
    return fill_in_defaults(tables | {"training": recipe["training"] | training})


def _read_toml(file):
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise ValueError(f"{file}: {error}") from error


def fill_in_defaults(tables):
    """A new recipe that has every table, with the values of `DEFAULTS` where `tables` has none.

    The values in the tables are checked later, by the classes that take them.

    >>> fill_in_defaults({"model": {"num_layers": 4}})["model"]
    {'hidden_size': 128, 'num_layers': 4, 'num_heads': 2}

    Raises:
        ValueError: `tables` has a table that a recipe does not have, or a value of another kind
            where a table is needed.
    """
    recipe = DEFAULTS | tables
    for name, value in recipe.items():
        if name not in DEFAULTS:
            raise ValueError(no_such("a recipe", name, DEFAULTS))
        default = DEFAULTS[name]
        if not isinstance(value, type(default)):
            raise ValueError(f"[{name}] is {value!r}; something like {default!r} is needed")
        recipe[name] = default | value if isinstance(default, dict) else value
    for part in recipe["data"]:
        if not isinstance(part, dict):
            raise ValueError(f"data holds {part!r}; something like {DEFAULTS['data'][0]} is needed")
    # A checkpoint has its own sizes and tokenizer, and a vocabulary file its own size. The defaults
    # would contradict them.
    if "from" in recipe["model"]:
        recipe["model"] = dict(tables["model"])
    if "from" in recipe["model"] or "vocab_file" in recipe["tokenizer"]:
        recipe["tokenizer"] = dict(tables.get("tokenizer", {}))
    return recipe


def build_from_table(table, build, values, /, *arguments, **settings):
    """Calls a class or function with the values of a table as its keyword arguments.

    The names and the types of the values are checked before the call, against the signature of
    `build`. During the call only a `ValueError` counts as a mistake in the recipe, because the
    checks of our classes raise it. Any other error is a bug of ours and keeps its traceback.

    >>> build_from_table("[save]", lambda dtype="float32": dtype, {"dtyp": "float16"})
    Traceback (most recent call last):
    ValueError: [save] has no 'dtyp'; dtype is the nearest name; there are: dtype

    Args:
        table: the name of the table, which begins each error message.
        build: the class or function to call.
        values: the table, a dictionary.
        arguments, settings: further arguments of `build`, which a recipe cannot set.

    Raises:
        ValueError: the table has a key that `build` does not have, lacks a key that `build` needs,
            or has a value that is of a wrong type or that `build` refuses.
    """
    call = signature(build)
    parameters = list(call.parameters.values())[len(arguments) :]
    keys = {each.name: each for each in parameters if each.name not in settings}
    for name, value in values.items():
        if name not in keys:
            names = [*dict.fromkeys([*keys, *KEYS_OF_PRETRAIN.get(table, [])])]
            raise ValueError(no_such(table, name, names))
        types = TYPES_BY_KEY.get(name) or _toml_types(keys[name])
        if types and value is not None and not isinstance(value, tuple(types)):
            wanted = " or ".join(TYPE_NAMES[one] for one in types)
            raise ValueError(f"{table} {refused(name, value, wanted)}")
    try:
        call.bind(*arguments, **settings, **values)
    except TypeError as error:  # a key without a default is missing
        raise ValueError(f"{table} {error}") from error
    try:
        return build(*arguments, **settings, **values)
    except ValueError as error:
        raise ValueError(f"{table} {error}") from error


def _toml_types(parameter):
    """The TOML types that a parameter takes, which its annotation or its default shows; else []."""
    annotated = parameter.annotation is not parameter.empty
    annotation = parameter.annotation if annotated else type(parameter.default)
    types = {TOML_TYPES.get(one, one) for one in get_args(annotation) or [annotation]}
    types -= {type(None)}
    return list(types) if types <= TYPE_NAMES.keys() else []
