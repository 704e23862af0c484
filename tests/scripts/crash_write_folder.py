"""Kills write_folder at each step that touches files, and prints what then stood in the folder."""

import contextlib
import json
import os
import shutil
from pathlib import Path

from killing import killed_at

from mlm_lib.engine import files

root = Path(os.environ["ROOT"])
folder = root / "saved"
OWN = ["config", "weights"]
NOTES = {"README.md": "notes", "log/loss.txt": "1.0", "log/2024/deep.txt": "deep"}


def save(number):
    with files.write_folder(folder, OWN) as stage:
        for name in OWN:
            (stage / name).write_text(str(number))


def prepare(fresh):
    shutil.rmtree(root)
    root.mkdir()
    if not fresh:
        for name, note in NOTES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(note)
        save(1)


def inodes():
    return [(folder / name).stat().st_ino for name in NOTES if (folder / name).exists()]


def number():
    """That of the folder; None where there is none; a sentence if it is mixed."""
    numbers = {(folder / name).read_text() for name in OWN} if folder.exists() else {None}
    return numbers.pop() if len(numbers) == 1 else f"mixed: {numbers}"


def state(before):
    """The number that stands in the folder, after whoever saves next has settled what was left."""
    killed = number()
    with contextlib.suppress(InterruptedError), files.write_folder(folder, OWN):
        raise InterruptedError
    settled = number()
    if killed not in (settled, None) or inodes() != before:
        return f"{killed} became {settled}, or notes were lost or copied"
    return settled and int(settled)


results = {}
for mode in ("over", "fresh"):
    found, alive = [], True
    while alive:
        prepare(fresh=mode == "fresh")
        before = inodes()
        alive = killed_at(len(found) + 1, lambda: save(2))
        if alive:
            try:
                found.append(state(before))
            except OSError as error:
                found.append(repr(error))
    results[mode] = found
print(json.dumps(results))
