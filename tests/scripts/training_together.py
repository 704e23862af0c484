"""The same runs in one process or, under torchrun, in several: `training_together.py FOLDER`."""

import os
import sys
from contextlib import redirect_stderr
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
from mlm_lib.engine import log, precision
from mlm_lib.training import HeldOut

FEW = {"steps": 9, "batch_size": 4, "data": ROWS[:9]}  # the last batch of an epoch has one row
TOGETHER = {
    "ours": FEW,
    "transformers": FEW,
    "grouped": {"steps": 9, "batch_size": 8, "group_by_length": True, "evaluate_every": 4},
    "language model": FEW | {"evaluate_every": 4},
    "rates": FEW | {"evaluate_every": 4},
    "default device": FEW | {"device": "auto"},
    "in parts": FEW | {"batch_size": 8, "gradient_accumulation_steps": 2},
    "rates in parts": FEW | {"batch_size": 8, "gradient_accumulation_steps": 3},
    "head first": FEW | {"head_steps": 4},
    "head first in parts": FEW | {"head_steps": 4, "gradient_accumulation_steps": 2},
    "start": FEW | {"evaluate_at_start": True},
    "clock": {"steps": None, "seconds": 1.0},
}


def train_together(root):
    """Every run of TOGETHER, in as many processes as there are; each process leaves its weights."""
    torch.set_num_threads(1)
    rank = os.environ.get("RANK", "alone")
    makers = {"transformers": tiny_of_transformers, "language model": tiny_language_model}
    for name, settings in TOGETHER.items():
        model = makers[name]() if name in makers else tiny(dropout=0.0)
        collate = padded if name == "language model" else None
        collate = DiffusionCollator(TOKENIZER, seed=0) if name.startswith("rates") else collate
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
    # Checkpoints by the clock, and lines, at each moment at which they may come.
    log.FIRST = log.BETWEEN = 0.0
    with open(root / f"lines-{rank}.txt", "w") as file, redirect_stderr(file):
        settings = {"steps": 25, "checkpoint_seconds": 1e-9, "keep": 99}
        model, _ = go(root / "by the clock", model=tiny(dropout=0.0), **settings)
    torch.save(model.state_dict(), root / f"by the clock-{rank}.pt")
    # Machines that differ: each process would take another precision.
    precision.native_bf16 = lambda device: True
    precision.layer_times = lambda threads: (2.0, 3.0) if rank == "1" else (3.0, 2.0)
    _, history = go(model=tiny(), steps=2, precision="auto")
    (root / f"precision-{rank}.txt").write_text(history.precision)
    held = HeldOut(ROWS, collator(1))
    settings = {"steps": 60, "learning_rate": 1e-2, "log_every": 1, "progress": False}
    go(root / "drops", model=tiny(), evaluate=held, evaluate_at_start=True, **settings)


if __name__ == "__main__":
    train_together(Path(sys.argv[1]))
