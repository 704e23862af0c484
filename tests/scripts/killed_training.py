"""Trains whole, and killed ten times and resumed: `python killed_training.py FOLDER`."""

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import torch
from training_toys import ROWS, Renewed, draw_in_callback, draws, go

STEPS, KILLS = 150, 10
SCENARIOS = {
    "dropout": {},
    "rows of like length": {"group_by_length": True},
    "other rows in each epoch": {"data": Renewed()},
    "draws in evaluation and callback": {"evaluate": draws, "evaluate_every": 5},
}


def train_scenario(name, out, *callbacks):
    settings = {
        "steps": STEPS,
        "batch_size": 4,
        "checkpoint_every": 3,
        "log_every": 2,
        "data": ROWS,
    }
    callbacks = [draw_in_callback, *callbacks] if "callback" in name else callbacks
    go(out, resume=True, callbacks=callbacks, **settings | SCENARIOS[name])


def in_child(*arguments):
    """Train in a forked process; the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            train_scenario(*arguments)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"a run ended with status {status}"
    return status


def end_at_random(rng):
    """A callback that ends the process at a random moment: a random time, or a random number of
    file operations, after a random step."""
    last, moment, by_time, seen = rng.randint(1, 8), rng.random(), rng.random() < 0.5, 0

    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, args):
        nonlocal seen
        seen += event == "open" or event.startswith(("os.", "shutil."))
        if seen == 1 + int(60 * moment):
            end()

    def callback(model, step, row):
        nonlocal last
        last -= 1
        if last == 0 and by_time:
            threading.Timer(0.03 * moment, end).start()
        elif last == 0:
            sys.addaudithook(hook)

    return callback


if __name__ == "__main__":
    torch.set_num_threads(1)
    outcomes = {}
    for name in SCENARIOS:
        whole, killed = (Path(sys.argv[1]) / name / end for end in ("whole", "killed"))
        in_child(name, whole)
        rng, kills = random.Random(name), 0
        while kills < KILLS and in_child(name, killed, end_at_random(rng)):
            kills += 1
            rng = random.Random(f"{name} {kills}")
        found = [int(path.name[5:]) for path in (killed / "checkpoints").glob("step-*")]
        in_child(name, killed)
        outcomes[name] = {"kills": kills, "steps before the last run": max(found, default=0)}
    print(json.dumps(outcomes))
