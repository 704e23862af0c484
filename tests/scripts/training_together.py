"""The same runs in one process or, under torchrun, in several: `training_together.py FOLDER`."""

import fcntl
import os
import sys
from pathlib import Path

import torch
from training_toys import (
    ROWS,
    TOKENIZER,
    collator,
    go,
    padded,
    tiny,
    tiny_language_model,
    tiny_of_transformers,
)

from mlm_lib.diffusion import DiffusionCollator
from mlm_lib.engine.log import TrainingStopped
from mlm_lib.training import HeldOut

TOGETHER = {
    "ours": {
        "steps": 9,
        "batch_size": 4,
        "data": ROWS[:9],
    },  # the last batch of an epoch has one row
    "transformers": {"steps": 9, "batch_size": 4, "data": ROWS[:9]},
    "grouped": {"steps": 9, "batch_size": 8, "group_by_length": True, "evaluate_every": 4},
    "language model": {"steps": 9, "batch_size": 4, "data": ROWS[:9], "evaluate_every": 4},
    "rates": {"steps": 9, "batch_size": 4, "data": ROWS[:9], "evaluate_every": 4},
    "default device": {"steps": 9, "batch_size": 4, "data": ROWS[:9], "device": "auto"},
    "clock": {"steps": None, "seconds": 1.0},
}


def train_together(root):
    """Every run of TOGETHER, in as many processes as there are; each process leaves its weights."""
    torch.set_num_threads(1)
    rank = os.environ.get("RANK", "alone")
    for name, settings in TOGETHER.items():
        makers = {"transformers": tiny_of_transformers, "language model": tiny_language_model}
        model = makers[name]() if name in makers else tiny(dropout=0.0)
        collates = {"language model": padded, "rates": DiffusionCollator(TOKENIZER, seed=0)}
        collate = collates.get(name)
        evaluate = HeldOut(ROWS[-10:], collate or collator(1))
        try:
            go(
                root / name,
                model=model,
                collate=collate,
                evaluate=evaluate,
                log_every=1,
                **settings,
            )
        except TrainingStopped as error:
            (root / f"{name}-{rank}.txt").write_text(str(error))
        torch.save(model.state_dict(), root / f"{name}-{rank}.pt")
    folder = root / "held"
    folder.mkdir(exist_ok=True)
    with open(folder / ".lock", "a+b") as file:
        if rank in ("0", "alone"):  # as another program would
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            go(folder)
        except BlockingIOError as error:
            (root / f"refused-{rank}.txt").write_text(str(error))
    try:  # gradients that processes cannot average
        model = tiny_language_model(num_samples=5, sparse_embeddings=True)
        go(model=model, collate=padded, steps=2)
        (root / f"sparse-{rank}.txt").write_text("trained")
    except ValueError as error:
        (root / f"sparse-{rank}.txt").write_text(str(error))
    for steps in ([6], [3, 6]):  # with dropout, which each process draws for itself
        out = root / f"dropout in {len(steps)}"
        for number in steps:
            model, _ = go(out, steps=number, schedule="constant", warmup=0, resume=True)
        torch.save(model.state_dict(), root / f"dropout in {len(steps)}-{rank}.pt")


if __name__ == "__main__":
    train_together(Path(sys.argv[1]))
