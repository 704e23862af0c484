"""`mlm_lib.encoder.drop` against `F.dropout`, on a CPU: `python -m benchmarks.dropout`.

The tensors have the shapes of the encoder's tensors. They are measured on one thread, then on two.
Only the forward pass is timed, because the backward pass of both sides is the same product.
"""

from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.turns import arguments, compared, report
from mlm_lib.encoder import drop

P = 0.1  # the probability that a value is dropped
SHAPES = {
    "hidden, 32 × 32 × 64": (32, 32, 64),
    "hidden, 16 × 128 × 256": (16, 128, 256),
    "hidden, 16 × 128 × 768": (16, 128, 768),
    "attention, 32 × 4 × 32 × 32": (32, 4, 32, 32),
    "attention, 16 × 4 × 128 × 128": (16, 4, 128, 128),
    "attention, 4 × 12 × 512 × 512": (4, 12, 512, 512),
}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def rows(args):
    """A row for each shape, precision and number of threads."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for what, shape in SHAPES.items():
            for precision, dtype in PRECISIONS.items():
                values = torch.randn(shape).to(dtype)
                yield compared(
                    f"{what}, {threads} thread{'s' * (threads > 1)}", precision, "F.dropout",
                    [partial(F.dropout, values, P), partial(drop, values, P)],
                    calls=2, seconds=3.0, quick=args.quick,
                )  # fmt: skip


if __name__ == "__main__":
    given = arguments(__doc__)
    report(rows(given), given)
