"""Runs, killed and resumed again and again, beside whole ones: `python killed_runs.py FOLDER`.

For each form of recipe one run is left alone, and one is ended by SIGKILL four times, each a random
time after a random checkpoint. The last line of the output is JSON: how each command ended.
"""

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import torch
from small_runs import SMALL, lines

from mlm_lib.engine.checkpoints import Checkpoints
from mlm_lib.pretrain import main

MODERN = ('[model]\nencoder = "modern"', '[training]\noptimizer = "muon"')
FORMS = {
    "masked": ("", "blocks_every = 3\n", "[model]", "[training]"),
    "diffusion": ('objective = "diffusion"\n', "copies = 2\n", *MODERN),
}


def recipe_for(form, root):
    """Writes the texts and their recipe."""
    root.mkdir(parents=True)
    (root / "texts.txt").write_text("\n".join(lines(700)))
    before, data, model, training = FORMS[form]
    small = SMALL.replace("[model]", model).replace("[training]", training)
    text = f'{before}[[data]]\ncorpus = "{root / "texts.txt"}"\n{data}{small}'
    (root / "recipe.toml").write_text(text)
    return root / "recipe.toml"


def run_or_be_killed(arguments, seed=None):
    """The command in a forked process, which is killed if there is a seed. Returns its status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        save, rng = Checkpoints.save, random.Random(seed)
        number, delay = rng.randint(1, 4), 0.03 * rng.random()

        def counted(*args):
            nonlocal number
            number -= 1
            if number == 0:
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            save(*args)

        if seed is not None:
            Checkpoints.save = counted
        with open(os.devnull, "w") as sys.stdout:
            status = main(arguments)
    finally:
        os._exit(status)


if __name__ == "__main__":
    torch.set_num_threads(1)
    statuses = {}
    for form in FORMS:
        root = Path(sys.argv[1]) / form
        file = recipe_for(form, root / "texts")
        command = ["--config", str(file), "--steps", "110", "--checkpoint-every", "4", "--out"]
        whole, killed = (
            [*command, str(root / "whole")],
            [*command, str(root / "killed"), "--resume"],
        )
        ends = [run_or_be_killed(whole), *(run_or_be_killed(killed, seed) for seed in range(4))]
        statuses[form] = [*ends, run_or_be_killed(killed)]
    print(json.dumps(statuses))
