"""The same runs in one process or, under torchrun, in several: `training_together.py FOLDER`."""

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
from mlm_lib.training import HeldOut

FEW = {"steps": 9, "batch_size": 4, "data": ROWS[:9]}  # the last batch of an epoch has one row
TOGETHER = {
    "ours": FEW,
    "transformers": FEW,
    "grouped": {"steps": 9, "batch_size": 8, "group_by_length": True, "evaluate_every": 4},
    "language model": FEW | {"evaluate_every": 4},
    "rates": FEW | {"evaluate_every": 4},
    "default device": FEW | {"device": "auto"},
    "clock": {"steps": None, "seconds": 1.0},
}


def train_together(root):
    """Every run of TOGETHER, in as many processes as there are; each process leaves its weights."""
    torch.set_num_threads(1)
    rank = os.environ.get("RANK", "alone")
    makers = {"transformers": tiny_of_transformers, "language model": tiny_language_model}
    for name, settings in TOGETHER.items():
        model = makers[name]() if name in makers else tiny(dropout=0.0)
        collates = {"language model": padded, "rates": DiffusionCollator(TOKENIZER, seed=0)}
        collate = collates.get(name)
        held = HeldOut(ROWS[-10:], collate or collator(1))
        go(root / name, model=model, collate=collate, evaluate=held, log_every=1, **settings)
        torch.save(model.state_dict(), root / f"{name}-{rank}.pt")
    try:  # gradients that processes cannot average
        go(model=tiny_language_model(True, num_samples=5), collate=padded, steps=2)
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
