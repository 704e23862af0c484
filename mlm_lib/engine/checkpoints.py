"""What survives a kill: checkpoints, each whole or absent. Built in lesson 08.

A run goes on to the bit if all that its next step depends on comes back: the weights, and a
`state_dict` of each other part: optimizer, order of the data, random states, and so on.
"""

import hashlib
import io
import json
import os
import random
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save

from mlm_lib.checks import shown, whole_number
from mlm_lib.engine.batches import gathered, is_sized
from mlm_lib.engine.files import write

WEIGHTS, STATE = "model.safetensors", "state.pt"
SAMPLE = 1000  # examples, evenly spaced, by which data are recognised


class Checkpoints:
    """A folder of checkpoints, `step-00000100` and so on, each whole or absent.

    A checkpoint is written under another name, flushed to the disk, and renamed when complete.

    Args:
        folder: where they are; it need not exist yet.
        keep: how many are kept, the last ones.
    """

    def __init__(self, folder, keep=2):
        self.folder, self.keep = Path(folder), whole_number("keep", keep)

    def steps(self):
        """The steps for which there is a checkpoint, in order."""
        names = (re.fullmatch(r"step-(\d+)", path.name) for path in self.folder.glob("step-*"))
        return sorted(int(name[1]) for name in names if name)

    def path(self, step):
        """Where the checkpoint of a step is."""
        return self.folder / f"step-{step:08d}"

    def last(self):
        """The path of the last checkpoint, or None."""
        return next(map(self.path, reversed(self.steps())), None)

    def open(self, resume=True):
        """The last checkpoint's (path, weights, state) if we resume; None if there is none.

        Raises:
            FileExistsError: there are checkpoints and we do not resume.
            ValueError: the last one is damaged, or was not written here.
        """
        steps = self.steps()
        if not steps:
            return None
        if not resume:
            raise FileExistsError(
                f"{self.folder} holds checkpoints; "
                "pass resume=True to go on with them, or another out"
            )
        path = self.path(steps[-1])
        try:
            weights = load((path / WEIGHTS).read_bytes())
            # Only tensors and plain values: a pickle could otherwise run any code.
            state = torch.load(path / STATE, map_location="cpu", weights_only=True)
            return path, weights, {**state, "run": dict(state["run"])}
        except Exception as error:  # whatever the file holds instead
            before = f"from {self.path(steps[-2])}" if steps[1:] else "from the start"
            raise ValueError(
                f"{path} is damaged, or was not written by this version of the course "
                f"({type(error).__name__}); delete it to go on {before}"
            ) from None

    def save(self, step, model, state):
        """Writes a checkpoint, then removes those before the last `keep`.

        Raises:
            OSError: it could not be written, as on a full disk; those before it are intact.
        """
        weights = {name: weight.cpu().contiguous() for name, weight in _own_tensors(model).items()}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        scratch = self.folder / f".step-{step:08d}"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a kill
        try:
            write(scratch / WEIGHTS, save(weights))
            write(scratch / STATE, buffer.getvalue())
            os.replace(scratch, self.path(step))
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise OSError(
                error.errno,
                f"the checkpoint of step {step} could not be written ({error}); "
                f"the last one is {self.last()}",
            ) from error
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)


def restore(found, model, parts, run):
    """Puts a checkpoint's weights, and the state of each part, back where they were.

    Args:
        found: what `Checkpoints.open` returned.
        parts: by name, objects with `state_dict` and `load_state_dict`.
        run: the present run's `fingerprint`.

    Raises:
        ValueError: the first thing in which the runs differ, as it was and as it is now.
    """
    path, weights, state = found
    for name in [*run, *state["run"]]:
        was, now = state["run"].get(name), run.get(name)
        if was != now:
            raise ValueError(
                f"{path} was trained with {name}={shown(was)}, now it is {shown(now)}; "
                "resume with what it was, or start anew in another folder"
            )
    if weights.keys() != _own_tensors(model).keys():
        raise ValueError(f"{path} holds the weights of another model; start anew in another folder")
    model.load_state_dict(weights, strict=False)  # a tied matrix has two names, and one is here
    for name, part in parts.items():
        part.load_state_dict(state[name])


def _own_tensors(model):
    """The tensors of a state dictionary; tied matrices are one tensor and come once."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor for name, tensor in model.state_dict().items() if name in named}


# ------------------------------------------------------------------------------------ fingerprint


def fingerprint(model, dataset, collator, settings):
    """What must not change between a run and its continuation, as plain values by name.

    Going on with another model or other data would end well and be worth nothing.

    Args:
        model: known by torch's description of it, by the `config` of it and of its parts, and by
            its weights: their names, their shapes, and which of them are frozen.
        dataset: known by its own `fingerprint()`, a dictionary, if it has one. Otherwise a sequence
            is known by its length and a sample of its examples; a stream is not looked into.
        collator: known by its `fingerprint()`; without that method, by nothing.
        settings: of the training, those that the weights depend on.
    """
    known = dict(settings)
    for part, values in (
        ("collator", collator.fingerprint() if hasattr(collator, "fingerprint") else {}),
        ("data", dataset.fingerprint() if hasattr(dataset, "fingerprint") else _of_data(dataset)),
        ("model", _of_model(model)),
    ):
        known |= {f"{part}.{name}": value for name, value in values.items()}
    return json.loads(json.dumps(known, default=_plain))


def _of_data(dataset):
    if not is_sized(dataset):
        return {"examples": "a stream"}
    digest = hashlib.blake2b(digest_size=8)
    for number in range(0, len(dataset), -(-len(dataset) // SAMPLE) or 1):
        digest.update(json.dumps(dataset[number], default=_plain, sort_keys=True).encode())
    return {"examples": len(dataset), "content": digest.hexdigest()}


def _of_model(model):
    known = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        for name, value in getattr(config, "__dict__", {}).items():
            # Where a model came from, and who wrote its file, change nothing in it.
            if not name.startswith("_") and name != "transformers_version":
                known[f"{type(config).__name__}.{name}"] = value
    for number, line in enumerate(_described(model).split("\n")):
        known[f"line {number}"] = line.strip()
    for name, weight in _own_tensors(model).items():
        known[name] = [*weight.shape]
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    return known | {"frozen": ", ".join(frozen)}


def _plain(value):
    """What JSON does not know: tensors and arrays as lists, all else as a text."""
    return value.tolist() if hasattr(value, "tolist") else _described(value)


def _described(value):
    """A description that does not tell where in memory functions and objects are.

    >>> _described(print), _described(torch.nn.functional.silu)
    ('<built-in function print>', '<function silu>')
    """
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


# ------------------------------------------------------------------------------------ random states


class RandomStates:
    """The generators that a step may draw from, of every process, as a part of a checkpoint."""

    def __init__(self, device, rank=0):
        self.device, self.rank = device, rank

    def state_dict(self):
        """The states of all processes in order; each of them must call it."""
        return gathered(self._here())

    def load_state_dict(self, states):
        """Puts this process's states back; with more processes than there were it keeps its own."""
        if self.rank < len(states):
            self._put(states[self.rank])

    @contextmanager
    def kept(self):
        """What is drawn inside does not change what is drawn after it."""
        states = self._here()
        try:
            yield
        finally:
            self._put(states)

    def _here(self):
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

    def _put(self, states):
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)
