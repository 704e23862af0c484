"""The student's edition of a lab: without solutions, hidden tests and outputs."""

import itertools
import json
import re
from pathlib import Path

from classroom.lab import MARK, ROOT, STUB, labs

HOME = ROOT / "labs"  # ignored by git
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION", re.M | re.S)
HIDDEN = re.compile(
    r"^[ \t]*### BEGIN HIDDEN TESTS\n.*?^[ \t]*### END HIDDEN TESTS\n?", re.M | re.S
)


def student_edition(notebook: dict) -> dict:
    """A copy of a lab's source, as parsed JSON, that gives nothing away."""
    notebook = json.loads(json.dumps(notebook))
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        mark = MARK.search(source)
        name = f"{mark[2]}.{mark[3]}" if mark else "?"
        waits = rf'\1raise NotImplementedError("{STUB.format(name)}")'
        cell["source"] = HIDDEN.sub("", SOLUTION.sub(waits, source)).rstrip("\n")
        cell["outputs"], cell["execution_count"] = [], None
    return notebook


def start(key: str, folder: Path = HOME) -> tuple[Path, bool]:
    """Write the student's edition of a lab into `folder`: its path, and whether it is new.

    An edition that is there and untouched is left alone; one that was begun is never overwritten:
    the new copy gets the next free name.

    Raises:
        OSError: the folder cannot be written to; nothing is left there.
    """
    source = labs()[key]
    text = json.dumps(student_edition(json.loads(source.read_text("utf-8"))), indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = folder / (source.stem + (f"_{number}" if number > 1 else "") + source.suffix)
        try:
            file = open(path, "x", encoding="utf-8", newline="\n")
        except FileExistsError:
            if path.is_file() and path.read_bytes() == text.encode():
                return path, False
            continue
        try:
            with file:
                file.write(text)
        except BaseException:  # a full disk: half a lab is worse than none
            path.unlink()
            raise
        return path, True
