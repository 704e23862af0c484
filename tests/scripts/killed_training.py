"""Trains whole, and killed ten times and resumed: `python killed_training.py FOLDER`."""

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import torch
from training_toys import ROWS, Stream, draw_in_callback, draws, go

STEPS, KILLS, KEEP = 150, 10, 2
SCENARIOS = {
    "dropout": {},
    "rows of like length": {"group_by_length": True},
    "stream": {"stream": True},
    "draws in evaluation and callback": {
        "evaluate": draws,
        "callbacks": [draw_in_callback],
        "evaluate_every": 5,
    },
}


def train_scenario(name, out, callbacks=(), resume=False):
    settings = {
        "steps": STEPS,
        "batch_size": 4,
        "checkpoint_every": 3,
        "log_every": 2,
        "keep": KEEP,
    } | SCENARIOS[name]
    data = Stream() if settings.pop("stream", False) else ROWS
    go(
        out,
        data=data,
        resume=resume,
        **settings | {"callbacks": [*settings.get("callbacks", ()), *callbacks]},
    )


def in_child(call):
    """Run in a forked process; the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            call()
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
    steps, moment, by_time, seen = rng.randint(1, 8), rng.random(), rng.random() < 0.5, 0

    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(event, args):
        nonlocal seen
        seen += event == "open" or event.startswith(("os.", "shutil."))
        if seen == 1 + int(60 * moment):
            end()

    def callback(model, step, row):
        nonlocal steps
        steps -= 1
        if steps == 0 and by_time:
            threading.Timer(0.03 * moment, end).start()
        elif steps == 0:
            sys.addaudithook(hook)

    return callback


def survive(root):
    """For each scenario the outcome of an uninterrupted and of a killed run."""
    torch.set_num_threads(1)
    outcomes = {}
    for name in SCENARIOS:
        whole, out, kills = root / name / "whole", root / name / "killed", 0
        in_child(lambda: train_scenario(name, whole))
        rng = random.Random(name)
        while kills < KILLS and in_child(
            lambda: train_scenario(name, out, [end_at_random(rng)], resume=True)
        ):
            kills, _ = kills + 1, [rng.random() for _ in range(3)]
        steps = max(
            (int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")), default=0
        )
        in_child(lambda: train_scenario(name, out, resume=True))
        outcomes[name] = {"kills": kills, "steps before the last run": steps}
    return outcomes


if __name__ == "__main__":
    print(json.dumps(survive(Path(sys.argv[1]))))
