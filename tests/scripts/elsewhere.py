"""`elsewhere.py train`, or `elsewhere.py NOTEBOOK SETTINGS`: on the CPU, then elsewhere.

Prints, as JSON, what training lost and waited for on both, or what a lesson printed on both.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import pretended_device  # noqa: I001 (before all that uses torch)
import matplotlib
import nbformat
from training_toys import ROWS, collator, tiny

from classroom.runner import execute, fresh_names
from mlm_lib.training import SCHEDULES, TrainingConfig, train

KINDS = [{}, {"optimizer": "muon"}, {"packing": True}, {"group_by_length": True}]
KINDS += [{"schedule": name} for name in SCHEDULES]


def trained(device, **settings):
    """The losses that are logged, and what each step without a row waited for."""
    waits, seen = [], pretended_device.waits.copy()

    def count(model, step, row):
        now = pretended_device.waits.copy()
        if row is None:
            waits.append(dict(now - seen))
        seen.update(now - seen)

    config = TrainingConfig(12, 8, log_every=5, device=device, precision="fp32", **settings)
    history = train(tiny(dropout=0.0), ROWS, collator(), config, callbacks=[count])
    return [row["loss"] for row in history.rows], waits


def told(notebook, settings):
    """What a lesson prints."""
    names = fresh_names()
    with contextlib.redirect_stdout(io.StringIO()) as text:
        for number, cell in enumerate(nbformat.read(notebook, as_version=4).cells):
            if cell.cell_type == "code":
                execute(cell.source, f"cell {number}", names)
                if "parameters" in cell.metadata.get("tags", []):
                    names.update(settings)
    return text.getvalue()


if __name__ == "__main__":
    matplotlib.use("agg")
    devices = "cpu", pretended_device.NAME
    if sys.argv[1] == "train":
        found = {str(kind): [trained(one, **kind) for one in devices] for kind in KINDS}
    else:
        settings = json.loads(sys.argv[2])
        found = [told(sys.argv[1], settings | {"DEVICE": one}) for one in devices]
    sys.__stdout__.write(json.dumps(found))
