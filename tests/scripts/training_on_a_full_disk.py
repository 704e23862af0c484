"""Trains while no file may grow past a limit: `python training_on_a_full_disk.py FOLDER`."""

import json
import resource
import sys
from pathlib import Path

import torch
from training_toys import checkpoints, go


def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def fill_the_disk(out, size):
    """How the run ended, what it left, and whether it could be gone on with to the bit."""
    full = [lambda model, step, row: limit(size) if step == 6 else None]
    try:
        go(out, checkpoint_every=5, callbacks=full)
        outcome = ["nothing", "", None]
    except Exception as error:
        outcome = [type(error).__name__, str(error), getattr(error, "errno", None)]
    limit(resource.RLIM_INFINITY)
    left = checkpoints(out)
    resumed, whole = (go(*where, resume=True)[0].state_dict().values() for where in ([out], []))
    return [*outcome, left, all(map(torch.equal, resumed, whole))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    sizes = {"weights": 5000, "state": 25000}
    print(json.dumps({name: fill_the_disk(root / name, size) for name, size in sizes.items()}))
