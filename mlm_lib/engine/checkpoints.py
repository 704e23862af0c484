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
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save

from mlm_lib.checks import shown
from mlm_lib.engine.batches import gathered
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
        self.folder, self.keep = Path(folder), keep

    def all(self):
        """The paths of the checkpoints, the last one at the end."""
        return sorted(self.folder.glob("step-" + 8 * "[0-9]"))

    def last(self):
        """The path of the last checkpoint, or None."""
        return max(self.all(), default=None)

    def last_step(self):
        """The number of steps that the last checkpoint has made, or None if there is none."""
        return int(self.last().name.removeprefix("step-")) if self.last() else None

    def save(self, step, model, state):
        """Writes a checkpoint, then removes those before the last `keep`.

        Raises:
            OSError: it could not be written, as on a full disk; those before it are intact.
        """
        weights = {name: weight.cpu().contiguous() for name, weight in _own_tensors(model).items()}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        scratch = self.folder / ".unfinished"
        shutil.rmtree(scratch, ignore_errors=True)  # left by a kill
        try:
            write(scratch / WEIGHTS, save(weights))
            write(scratch / STATE, buffer.getvalue())
            os.replace(scratch, self.folder / f"step-{step:08d}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for old in self.all()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, model, parts, run, added=()):
        """Puts the last checkpoint's weights, and the state of each part, back where they were.

        Args:
            parts: by name, objects with `state_dict` and `load_state_dict`.
            run: the present run's `fingerprint`.
            added: the settings that an earlier version of the course did not write into the
                fingerprint, each with the value that it had then.

        Raises:
            ValueError: it is damaged, or was not written here; or the first thing in which the runs
                differ, as it was and as it is now.
        """
        *before, path = ["the start", *self.all()]
        try:
            weights = load((path / WEIGHTS).read_bytes())
            # Only tensors and plain values: a pickle could otherwise run any code.
            state = torch.load(path / STATE, map_location="cpu", weights_only=True)
            then = dict(added) | state["run"]
        except Exception as error:  # whatever the file holds instead
            told = f"{path} is damaged, or another version's ({type(error).__name__})"
            raise ValueError(f"{told}; delete it to go on from {before[-1]}") from None
        for name in [*run, *then]:
            if then.get(name) != run.get(name) and not _only_said_otherwise(name, then, run):
                was, now = shown(then.get(name)), shown(run.get(name))
                told = f"{path} was trained with {name}={was}, now it is {now}"
                raise ValueError(f"{told}; resume with what it was, or start in another folder")
        # A tied matrix has two names, and one is here.
        own = {name: weights[name] for name in _own_tensors(model)}
        model.load_state_dict(own, strict=False)
        for name, part in parts.items():
            part.load_state_dict(state[name])


def _only_said_otherwise(name, then, run):
    """Whether one run gives attention's dropout as a number, and the other gives None for it.

    None means that it is the same as `dropout`. The number that is used is also in the lines that
    describe the model, and these lines must agree.
    """
    values = then.get(name, 0), run.get(name, 0)
    return name == "model.EncoderConfig.attention_dropout" and None in values


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
        dataset: known by its own `fingerprint()`, a dictionary, if it has one; otherwise by its
            length and a sample of its examples.
        collator: known by its `fingerprint()`; without that method, by nothing.
        settings: of the training, those that the weights depend on.
    """
    parts = {
        "collator": collator.fingerprint() if hasattr(collator, "fingerprint") else {},
        "data": dataset.fingerprint() if hasattr(dataset, "fingerprint") else _of_data(dataset),
        "model": _of_model(model),
    }
    known = dict(settings)
    for part, values in parts.items():
        known |= {f"{part}.{name}": value for name, value in values.items()}
    return json.loads(json.dumps(known, default=_plain))


def _of_data(dataset):
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
    lines = _described(model).split("\n")
    known |= {f"line {number}": line.strip() for number, line in enumerate(lines)}
    known |= {name: [*weight.shape] for name, weight in _own_tensors(model).items()}
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
        return gathered(self.here())

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
        """Puts states of this process back."""
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)
