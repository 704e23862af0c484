"""`mlm_lib.encoder.drop` against `F.dropout`, on a processor: `python -m benchmarks.dropout`.

The two take turns on tensors of the encoder's shapes, with one thread and with two. Prints a
Markdown table. The forward pass is timed; backward, both make the same product of the gradient.
"""

import torch
import torch.nn.functional as F

from benchmarks.turns import medians, versions
from mlm_lib.encoder import drop

SHARE = 0.1
SHAPES = {
    "hidden, 32 × 32 × 64": (32, 32, 64),
    "hidden, 16 × 128 × 256": (16, 128, 256),
    "hidden, 16 × 128 × 768": (16, 128, 768),
    "attention, 32 × 4 × 32 × 32": (32, 4, 32, 32),
    "attention, 16 × 4 × 128 × 128": (16, 4, 128, 128),
    "attention, 4 × 12 × 512 × 512": (4, 12, 512, 512),
}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def main():
    """Measure every row and print the table."""
    print(f"{versions()}; share {SHARE}\n")
    print(
        "| what | precision | threads | F.dropout | ours | ratio |\n|---|---|---:|---:|---:|---:|"
    )
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for what, shape in SHAPES.items():
            for precision, dtype in PRECISIONS.items():
                theirs, ours = turns(torch.randn(shape).to(dtype))
                row = f"| {what} | {precision} | {threads} | {theirs:.3f} ms | {ours:.3f} ms"
                print(f"{row} | {theirs / ours:.2f} |", flush=True)


def turns(values):
    """Median milliseconds of `F.dropout` and of `drop` on the same values."""

    def theirs():
        F.dropout(values, SHARE)

    def ours():
        drop(values, SHARE)

    return medians((theirs, ours), calls=2, seconds=3.0)


if __name__ == "__main__":
    main()
