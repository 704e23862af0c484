"""How a run knows itself again: model, data and settings, as plain values. Built in lesson 08.

Going on with another model or other data would end well and be worth nothing, so a checkpoint holds
the fingerprint of its run, and whoever resumes compares.
"""

import hashlib
import json
import re
from collections.abc import Mapping

from mlm_lib.checks import shown

SAMPLE = 1000  # examples, evenly spaced, by which data are recognised


def fingerprint(model, dataset, collator, settings):
    """What must not change between a run and its continuation, as plain values by name.

    Args:
        model: known by torch's own description of it, by which of its weights are frozen, and by
            its `config` if that has `to_dict`, as in transformers.
        dataset: known by its own `fingerprint()` if it has one. Otherwise a sequence is known by
            its length and a sample of its examples, where the same number gives the same example
            twice, and a stream is not looked into.
        collator: known by its `fingerprint()`, a dictionary; without that method, by nothing.
        settings: of the training, those that the weights depend on.
    """
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    config = getattr(model, "config", None)
    config = _plain(config.to_dict()) if hasattr(config, "to_dict") else {}
    # Where a model came from, and who wrote its file, change nothing in it.
    config = {
        name: value
        for name, value in config.items()
        if not name.startswith("_") and name != "transformers_version"
    }
    declared = _plain(collator.fingerprint()) if _declares(collator) else {}
    return {
        **settings,
        **_named("collator", declared),
        **_named("data", _of_data(dataset)),
        **_named("config", config),
        "frozen": ", ".join(frozen),
        "model": _without_addresses(repr(model)),
    }


def refuse_another_run(was, now, path):
    """Compares a checkpoint's fingerprint with the present one.

    Raises:
        ValueError: the first thing that differs, as it was and as it is now.
    """
    names = [*now, *(name for name in was if name not in now)]
    changed = next((name for name in names if was.get(name) != now.get(name)), None)
    if changed is None:
        return
    old, new = was.get(changed), now.get(changed)
    if changed == "model" and isinstance(old, str):
        lines = zip([*old.split("\n"), ""], [*new.split("\n"), ""])
        old, new = next((one.strip(), other.strip()) for one, other in lines if one != other)
        changed = "another model, whose description says "
    else:
        changed += "="
    raise ValueError(
        f"{path} was trained with {changed}{shown(old)}, now it is {shown(new)}; "
        "resume with what it was, or start anew in another folder"
    )


def _declares(part):
    return callable(getattr(part, "fingerprint", None))


def _named(prefix, values):
    if not isinstance(values, dict):
        return {prefix: values}
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _of_data(dataset):
    if _declares(dataset):
        return _plain(dataset.fingerprint())
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        return {"examples": "a stream"}
    count = len(dataset)
    if _plain(dataset[0]) != _plain(dataset[0]):  # drawn anew at each look, so no sample can tell
        return {"examples": count}
    digest = hashlib.blake2b(digest_size=8)
    for number in range(0, count, -(-count // SAMPLE)):
        digest.update(json.dumps(_plain(dataset[number]), sort_keys=True).encode())
    return {"examples": count, "content": digest.hexdigest()}


def _plain(value):
    """Numbers, texts, lists and dictionaries of whatever holds such: arrays, tensors, tuples."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return _without_addresses(repr(value))


def _without_addresses(text):
    """A description in which functions and objects do not tell where in memory they are.

    >>> _without_addresses("<function gelu at 0x7f3a>")
    '<function gelu>'
    """
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
