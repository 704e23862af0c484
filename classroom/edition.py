"""Makes the student's edition of a lab, which lacks the solutions and the hidden tests, and finds
out how far a student is."""

import json
import re
from contextlib import suppress
from pathlib import Path

from classroom import copies
from classroom.lab import MARK, ROOT, STUB, Refused, joined, labs, read_lab, read_submission
from mlm_lib.engine.files import write

HOME = ROOT / "work" / "labs"  # ignored by git
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION", re.M | re.S)
HIDDEN = re.compile(r"^[ \t]*### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS\n?", re.M | re.S)


def student_edition(notebook: dict) -> dict:
    """A copy of a lab's notebook, as parsed JSON, without solutions, hidden tests and outputs. The
    checks are folded."""
    notebook = json.loads(json.dumps(notebook))
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = joined(cell)
        mark = MARK.search(source)
        name = f"{mark[2]}.{mark[3]}" if mark else "?"
        waits = rf'\1raise NotImplementedError("{STUB.format(name)}")'
        cell["source"] = HIDDEN.sub("", SOLUTION.sub(waits, source)).rstrip("\n")
        cell["outputs"], cell["execution_count"] = [], None
        if mark and mark[1].upper() == "CHECK":  # its messages give away parts of the answer
            cell["metadata"] = cell["metadata"] | {"jupyter": {"source_hidden": True}}
    return notebook


def start(key: str, folder: Path = HOME) -> tuple[Path, bool]:
    """Write the student's edition of a lab into `folder`, if it is not there yet or if the student
    has not begun it. Returns the path of the notebook, and whether it was written.

    Raises:
        OSError: the folder cannot be written to. Nothing is left there.
    """
    source = labs()[key]
    path, edition = folder / source.name, student_edition(json.loads(source.read_text("utf-8")))
    return path, copies.put(path, edition) in (copies.NEW, copies.RENEWED)


def write_new(path: Path, notebook: dict) -> tuple[Path, bool]:
    """Write a notebook if there is no file at `path`, so that no work is replaced. Returns the
    path, and whether the notebook is new."""
    new = not path.exists()
    if new:
        copies.write_notebook(path, notebook)
    return path, new


def own_answers(folder: Path = HOME) -> dict[str, str]:
    """The cells that answer tasks in the notebooks of a folder, by task. If several notebooks
    answer a task, the newest one counts."""
    found = {}
    for path in sorted(folder.glob("*.ipynb"), key=lambda path: path.stat().st_mtime):
        with suppress(Refused):
            for name, cells in read_submission(path).answers.items():
                found |= {name: cell for cell in cells if STUB.format(name) not in cell}
    return found


def progress(folder: Path = HOME) -> list[str]:
    """A line for each lab: how many of its tasks were begun, and what the last check found."""
    lines, checked, answers = [], last_checks(folder), own_answers(folder)
    for source in labs().values():
        tasks = read_lab(source).tasks
        begun = f"{sum(task.name in answers for task in tasks)} of {len(tasks)} tasks begun"
        told = begun if (folder / source.name).exists() else "no copy yet"
        lines.append(f"{source.stem:<24}{told:<24}{checked.get(source.name, '')}".rstrip())
    return lines


def last_checks(folder: Path) -> dict[str, str]:
    """What the last check of each notebook found, by the name of the notebook."""
    with suppress(OSError, ValueError):  # there is no such file, or it is damaged
        known = json.loads((folder / ".checks.json").read_text("utf-8"))
        return known if isinstance(known, dict) else {}
    return {}


def remember(file: Path, found: str, folder: Path = HOME) -> None:
    """Store what a check found, if the checked file is a notebook of `folder`."""
    if file.resolve().parent == folder.resolve():
        known = last_checks(folder) | {file.name: found}
        write(folder / ".checks.json", json.dumps(known, indent=1))
