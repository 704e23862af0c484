"""What survives a kill: checkpoints, each whole or absent. Built in lesson 08.

A run goes on to the bit if all that its next step depends on comes back: the weights, and a
`state_dict` of each other part: optimizer, order of the data, random states, and so on.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object
from safetensors.torch import load, save

from mlm_lib.checks import flag, path_name, shown, whole_number
from mlm_lib.engine.files import write

# ------------------------------------------------------------------------------------ fingerprint
#
# How a run knows itself again: model, data and settings, as plain values. Built in lesson 08.
#
# Going on with another model or other data would end well and be worth nothing, so a checkpoint holds
# the fingerprint of its run, and whoever resumes compares.


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


WEIGHTS, STATE, MANIFEST = "model.safetensors", "state.pt", "manifest.json"


class Checkpoints:
    """A folder of checkpoints, `step-00000100` and so on, each whole or absent.

    A checkpoint is written under another name, flushed to the disk, and renamed when complete; a
    manifest holds the SHA-256 of each file, so that damage is found when it is read.

    Args:
        folder: where they are; it need not exist yet.
        keep: how many are kept, the last ones.
    """

    def __init__(self, folder, keep=2):
        self.folder, self.keep = Path(path_name("folder", folder)), whole_number("keep", keep)

    def steps(self):
        """The steps for which there is a checkpoint, intact or not, in order."""
        names = (re.fullmatch(r"step-(\d+)", path.name) for path in self.folder.glob("step-*"))
        return sorted(int(name[1]) for name in names if name)

    def path(self, step):
        """Where the checkpoint of a step is."""
        return self.folder / f"step-{step:08d}"

    def last(self):
        """The path of the last intact checkpoint, or None."""
        intact = (self.path(step) for step in reversed(self.steps()) if not self.damage(step))
        return next(intact, None)

    def damage(self, step):
        """What is wrong with a checkpoint, in words; empty if it is intact."""
        folder = self.path(step)
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if set(manifest["sha256"]) != {WEIGHTS, STATE}:
                return f"{MANIFEST} does not name its two files"
            for name, digest in manifest["sha256"].items():
                if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                    return f"{name} is not what was written"
            if manifest["step"] != step:
                return f"its manifest is that of step {manifest['step']}"
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            return f"{MANIFEST} cannot be read ({error})"
        return ""

    def open(self, resume=True):
        """The last intact checkpoint's (step, weights, state) if we resume; None if there is none.

        Raises:
            FileExistsError: there are checkpoints and we do not resume.
            ValueError: none of the checkpoints is intact, or the last one was not written here.
        """
        steps = self.steps()
        if steps and not flag("resume", resume):
            raise FileExistsError(
                f"{self.folder} holds checkpoints; "
                "pass resume=True to go on with them, or another out"
            )
        for step in reversed(steps):
            path, damage = self.path(step), self.damage(step)
            if damage:
                earlier = "; the one before it is used" if step != steps[0] else ""
                warnings.warn(f"the checkpoint {path} is damaged: {damage}{earlier}", stacklevel=3)
                continue
            return step, *_read(path)
        if steps:
            raise ValueError(
                f"no checkpoint in {self.folder} is intact; delete the folder to start anew"
            )
        return None

    def save(self, step, model, state):
        """Writes a checkpoint, then removes those before the last `keep`.

        Raises:
            OSError: it could not be written, as on a full disk; those before it are intact.
        """
        weights = {
            name: tensor.detach().cpu().contiguous() for name, tensor in own_tensors(model).items()
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        files = {WEIGHTS: save(weights), STATE: buffer.getvalue()}
        sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files[MANIFEST] = json.dumps({"step": step, "sha256": sums}, indent=1)
        scratch = self.folder / f".step-{step:08d}"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True)
            for name, content in files.items():
                write(scratch / name, content)
            shutil.rmtree(self.path(step), ignore_errors=True)  # a damaged one, from before
            os.replace(scratch, self.path(step))
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise OSError(
                error.errno,
                f"the checkpoint of step {step} could not be written ({error}); "
                f"the last one is {self.last()}",
            ) from error
        earlier = [other for other in self.steps() if other <= step]
        for old in earlier[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)


def _read(path):
    """A checkpoint's weights and state. Its sums are right, but who wrote it is not known."""
    try:
        weights = load((path / WEIGHTS).read_bytes())
        # Only tensors and plain values: a pickle could otherwise run any code.
        with warnings.catch_warnings(action="ignore"):  # torch's remarks on foreign files
            state = torch.load(path / STATE, map_location="cpu", weights_only=True)
        if not isinstance(state["fingerprint"], dict):
            raise TypeError("the fingerprint is no dictionary")
    except Exception as error:
        reason = type(error).__name__  # torch's text advises to read it without protection
        raise ValueError(
            f"{path} holds something else than tensors and plain values ({reason}), so it was not "
            "written here and is not read; delete it, and resume from the one before or start anew"
        ) from None
    return weights, state


def own_tensors(model):
    """The tensors of a state dictionary; tied matrices are one tensor and come once."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor for name, tensor in model.state_dict().items() if name in named}


def restore(found, model, parts):
    """Puts a checkpoint's weights, and the state of each part, back where they were.

    Args:
        found: what `Checkpoints.open` returned.
        parts: by name, objects with `state_dict` and `load_state_dict`.

    Raises:
        ValueError: weights of other names or shapes, or a part without a state.
    """
    _, weights, state = found
    mine, theirs = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for tensors in (own_tensors(model), weights)
    )
    if mine != theirs:
        name, shape = min(mine.items() ^ theirs.items())
        raise ValueError(
            "the checkpoint's weights are of another model: "
            f"only one of the two has {name} of shape {shape}"
        )
    if missing := parts.keys() - state.keys():
        raise ValueError(
            f"the checkpoint has no state of {', '.join(sorted(missing))}, "
            "so it cannot go on to the bit; start anew"
        )
    model.load_state_dict(weights, strict=False)
    for name, part in parts.items():
        part.load_state_dict(state[name])


# ------------------------------------------------------------------------------------ random states


class RandomStates:
    """The generators that a step may draw from, of every process, as a part of a checkpoint."""

    def __init__(self, device, rank=0):
        self.device, self.rank = device, rank

    def state_dict(self):
        """The states of all processes in order; each of them must call it."""
        return gather_object([self.here()])

    def load_state_dict(self, states):
        """Puts this process's states back; with more processes than there were it keeps its own."""
        if self.rank < len(states):
            self.put(states[self.rank])

    def here(self):
        """The states of this process, as tensors and plain values."""
        name, keys, *rest = np.random.get_state()
        states = {
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "numpy": (name, keys.tolist(), *rest),
        }
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def put(self, states):
        """The way back from `here`."""
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)

    @contextlib.contextmanager
    def kept(self):
        """What is drawn inside does not change what is drawn after it."""
        states = self.here()
        try:
            yield
        finally:
            self.put(states)
