"""Trains while no file may grow past a limit: `python training_on_a_full_disk.py FOLDER`."""

import json
import resource
import sys
from pathlib import Path

import torch
from training_toys import checkpoints, go


def fill_the_disk(root):
    """In a process of its own: no file may grow past the limit once step 6 is done."""
    torch.set_num_threads(1)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    whole, _ = go(checkpoint_every=5)
    outcomes = {}
    for name, size in {"weights": 5000, "state": 25000}.items():
        out = root / name
        try:
            go(
                out,
                checkpoint_every=5,
                callbacks=[lambda model, step, row: limit(size) if step == 6 else None],
            )
            outcome = ["nothing", "", None]
        except Exception as error:
            outcome = [type(error).__name__, str(error), getattr(error, "errno", None)]
        limit(resource.RLIM_INFINITY)
        left = checkpoints(out)
        model, _ = go(out, resume=True)
        same = all(
            torch.equal(one, other)
            for one, other in zip(model.state_dict().values(), whole.state_dict().values())
        )
        outcomes[name] = [*outcome, left, same]
    print(json.dumps(outcomes))


if __name__ == "__main__":
    fill_the_disk(Path(sys.argv[1]))
