"""Checkpoints, from which a training run that was killed goes on as if nothing had happened.

A checkpoint holds everything that the next step depends on: the weights, and the state of the
optimizer, of the order of the data, of the random generators, and so on. With all of it a resumed
run ends with the same weights, to the bit, as a run that was not interrupted.
"""

import hashlib
import io
import json
import os
import pickle
import random
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from mlm_lib.checks import shown
from mlm_lib.engine.batches import all_gather
from mlm_lib.engine.files import write

WEIGHTS, STATE = "model.safetensors", "state.pt"
SAMPLE = 1000  # how many examples, evenly spaced, a data set is recognised by
# The errors that show that a file is missing, cut off, altered, or not a checkpoint at all. They
# were found by altering checkpoints at random. Other errors are not a sign of damage: the file may
# not be read, for example, or there is too little memory, or a library is missing.
DAMAGED = (
    FileNotFoundError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError,
    AssertionError, struct.error, pickle.UnpicklingError, SafetensorError,
)  # fmt: skip


class Checkpoints:
    """A folder of checkpoints, `step-00000100` and so on. Each of them is complete.

    A checkpoint is written under another name, flushed to the disk, and renamed when it is
    complete. If the program is killed before the end, no checkpoint of this step exists, and the
    one before it is still there.

    Args:
        folder: the folder for the checkpoints. It is made when the first one is saved.
        keep: how many of the last checkpoints are kept.
    """

    def __init__(self, folder, keep=2):
        self.folder, self.keep = Path(folder), keep

    def all(self):
        """The paths of the checkpoints, in the order of their steps."""
        return sorted(self.folder.glob("step-" + 8 * "[0-9]"))

    def last(self):
        """The path of the last checkpoint, or None if there is none."""
        return max(self.all(), default=None)

    def last_step(self):
        """The step of the last checkpoint, or None if there is none."""
        return int(self.last().name.removeprefix("step-")) if self.last() else None

    def save(self, step, model, state):
        """Writes a checkpoint, and deletes old ones so that `keep` of them are left.

        Args:
            step: the number of steps made.
            model: its weights are written to `model.safetensors`.
            state: a dictionary of tensors and plain values, written to `state.pt`. Its entry `run`
                is the `fingerprint` of the run.

        Raises:
            OSError: the checkpoint could not be written, for example because the disk is full. The
                older checkpoints are intact.
        """
        weights = {name: weight.cpu().contiguous() for name, weight in _own_tensors(model).items()}
        buffer = io.BytesIO()
        torch.save(state, buffer)
        scratch = self.folder / ".unfinished"
        shutil.rmtree(scratch, ignore_errors=True)  # a program that was killed may have left it
        try:
            write(scratch / WEIGHTS, save(weights))
            write(scratch / STATE, buffer.getvalue())
            os.replace(scratch, self.folder / f"step-{step:08d}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for old in self.all()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, model, run, added=()):
        """Loads the weights of the last checkpoint into the model, and returns the saved state.

        Args:
            model: a model with the same modules as the one that was saved.
            run: the `fingerprint` of the present run.
            added: the settings that an earlier version of the course did not write into the
                fingerprint, each with the value that it had then.

        Returns:
            The dictionary that was given to `save`.

        Raises:
            ValueError: a file of the checkpoint is missing or damaged, or was not written by this
                course; or the two runs differ. The message names the first difference, with its
                value in the checkpoint and its value now.
        """
        *before, path = ["the start", *self.all()]
        try:
            weights = load((path / WEIGHTS).read_bytes())
            file = io.BytesIO((path / STATE).read_bytes())
            # `weights_only` reads tensors and plain values. Any other pickle could run any code.
            state = torch.load(file, map_location="cpu", weights_only=True)
        except DAMAGED as error:
            raise self._damaged(path, before[-1], error) from error
        if not (isinstance(state, dict) and isinstance(state.get("run"), dict)):
            raise self._damaged(path, before[-1], f"{STATE} describes no run")
        _refuse_another_run(path, dict(added) | state["run"], run)
        # A matrix that is tied has two names in the model and one name in the file.
        own = {name: weights[name] for name in _own_tensors(model)}
        model.load_state_dict(own, strict=False)
        return state

    def _damaged(self, path, before, error):
        what = type(error).__name__ if isinstance(error, Exception) else error
        told = f"{path} is damaged, or another version's ({what})"
        return ValueError(f"{told}; delete it to go on from {before}")


def _refuse_another_run(path, then, now):
    """Compares the fingerprint in a checkpoint with the present one, and refuses a difference."""
    for name in [*now, *then]:
        if then.get(name) != now.get(name) and not _same_dropout(name, then, now):
            was, is_now = shown(then.get(name)), shown(now.get(name))
            told = f"{path} was trained with {name}={was}, now it is {is_now}"
            raise ValueError(f"{told}; resume with what it was, or start in another folder")


def _same_dropout(name, then, now):
    """Whether the dropout of attention is a number in one fingerprint and None in the other.

    None means that the dropout of attention is equal to `dropout`, so a number and None can mean
    the same. If they do not, the fingerprints differ in another entry as well, because torch's
    description of the model contains the number that is used.
    """
    values = then.get(name, 0), now.get(name, 0)
    return name == "model.EncoderConfig.attention_dropout" and None in values


def _own_tensors(model):
    """The tensors of the model's state dictionary by name. A tied matrix is listed once."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor for name, tensor in model.state_dict().items() if name in named}


# ------------------------------------------------------------------------------------ fingerprint


def fingerprint(model, dataset, collator, settings):
    """What must be the same when a run is resumed, as plain values by name.

    A run that goes on with another model or with other data would end without an error, and its
    weights would be worth nothing. `Checkpoints.restore` therefore compares fingerprints.

    Args:
        model: the fingerprint holds torch's description of the model, the `config` of the model and
            of its parts, the names and shapes of its weights, and which weights are frozen.
        dataset: if it has a method `fingerprint`, the dictionary that this method returns is used.
            Otherwise the length of the data set and a sample of its examples are used.
        collator: if it has a method `fingerprint`, the dictionary that this method returns is used.
            Otherwise nothing is recorded.
        settings: the settings of the training on which the weights depend.
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
    """The length of a data set, and a digest of `SAMPLE` of its examples."""
    digest = hashlib.blake2b(digest_size=8)
    for number in range(0, len(dataset), -(-len(dataset) // SAMPLE) or 1):
        digest.update(json.dumps(dataset[number], default=_plain, sort_keys=True).encode())
    return {"examples": len(dataset), "content": digest.hexdigest()}


def _of_model(model):
    """The configurations, the description, the shapes and the frozen weights of a model."""
    known = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        for name, value in getattr(config, "__dict__", {}).items():
            # The file from which a model came, and the version that wrote it, change nothing.
            if not name.startswith("_") and name != "transformers_version":
                known[f"{type(config).__name__}.{name}"] = value
    lines = _described(model).split("\n")
    known |= {f"line {number}": line.strip() for number, line in enumerate(lines)}
    known |= {name: [*weight.shape] for name, weight in _own_tensors(model).items()}
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    return known | {"frozen": ", ".join(frozen)}


def _plain(value):
    """For a value that JSON does not know: a tensor or an array as a list, others as a text."""
    return value.tolist() if hasattr(value, "tolist") else _described(value)


def _described(value):
    """Python's description of a value, without addresses in memory, which change in each process.

    >>> _described(print), _described(torch.nn.functional.silu)
    ('<built-in function print>', '<function silu>')
    """
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


# ------------------------------------------------------------------------------------ random states


class RandomStates:
    """The states of the random generators from which a training step may draw.

    These are torch's generators on the CPU and on the device, Python's and numpy's. A checkpoint
    holds the states of all processes, because each process draws its own dropout.

    Args:
        device: the device of the training, a torch.device.
        rank: the number of this process.
    """

    def __init__(self, device, rank=0):
        self.device, self.rank = device, rank

    def state_dict(self):
        """The states of all processes, in the order of their ranks. Each process must call it."""
        return all_gather(self.get())

    def load_state_dict(self, states):
        """Sets the generators of this process to the states that were saved for its rank.

        If the run had fewer processes when it was saved, the generators of the additional processes
        are not changed.
        """
        if self.rank < len(states):
            self.set(states[self.rank])

    def get(self):
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

    def set(self, states):
        """Sets the generators of this process to what `get` returned."""
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)
