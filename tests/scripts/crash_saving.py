"""Saves a checkpoint, killed at each step or at random, or on a full disk: what then stood."""

import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import time
import warnings

import torch
from killing import killed_at
from transformers import BertTokenizerFast
from transformers.utils import logging

from mlm_lib import pretrained
from mlm_lib.encoder import EncoderConfig
from mlm_lib.engine.files import write_folder
from mlm_lib.masked_lm import MaskedLanguageModel

torch.set_num_threads(1)
# Its lock is shared with forked processes, and one of them may be killed while it holds it.
logging.disable_progress_bar()
root = pathlib.Path(os.environ["ROOT"])
folder = root / "saved"
model = MaskedLanguageModel.from_config(EncoderConfig(600, 4, 1, 2, 4, max_length=8))
tokens = "[PAD] [UNK] [CLS] [SEP] [MASK]".split() + [f"word-number-{i}" for i in range(500)]
tokenizer = BertTokenizerFast(vocab={token: i for i, token in enumerate(tokens)})
NOTES = "notes " * 10_000


def save(number):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(number)
    tokenizer.model_max_length = number
    pretrained.save_pretrained(model, tokenizer, folder)


def prepare(number):
    shutil.rmtree(root)
    (folder / "log").mkdir(parents=True)
    (folder / "README.md").write_text(NOTES)
    (folder / "log" / "loss.txt").write_text(NOTES)
    save(number)


def state():
    """The number that every part of the checkpoint agrees on; None where there is no folder.

    A save that was killed between its last two steps is brought to its end by the next one.
    """
    with contextlib.suppress(InterruptedError), write_folder(folder, pretrained.OWN_FILES):
        raise InterruptedError
    if not folder.exists():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded, its_tokenizer = pretrained.load_checkpoint(folder)
    numbers = {value for p in loaded.parameters() for value in p.unique().tolist()}
    numbers.add(its_tokenizer.model_max_length)
    assert len(numbers) == 1, numbers
    return numbers.pop()


def killed_after(seconds, number):
    """Save one number after the other in a process that ends by SIGKILL after so many seconds."""
    child = os.fork()
    if child == 0:
        try:
            while True:
                save(number)
                number += 1
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def at_each_step(fresh):
    found = []
    while True:
        prepare(1)
        if fresh:
            shutil.rmtree(folder)
        if not killed_at(len(found) + 1, lambda: save(2)):
            return found
        try:
            found.append(state())
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")


def at_random():
    prepare(1)
    random.seed(0)
    started = time.perf_counter()
    save(1)
    span = time.perf_counter() - started
    found = []
    for _ in range(10):
        now = state()
        killed_after(random.uniform(0, 4) * span, now + 1)
        found.append([now, state()])
    return found


def everything():
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def with_room_for(size):
    """What a save says, and whether it left all as it was, on a disk that takes files of `size`."""
    prepare(1)
    before, unlimited = everything(), resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited))
    try:
        save(2)
        said = None
    except OSError as error:
        said = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
    return [said, everything() == before and os.listdir(root) == ["saved"]]


results = {"over": at_each_step(fresh=False), "fresh": at_each_step(fresh=True)}
results["at random"] = at_random()
prepare(1)
sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
del sizes["README.md"]
results["full disk"] = {name: with_room_for(size - 1) for name, size in sizes.items()}
print(json.dumps(results))
