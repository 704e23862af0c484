"""The student's edition of a lab, without solutions and hidden tests; and how far a student is."""

import itertools
import json
import re
from contextlib import suppress
from pathlib import Path

from classroom.lab import MARK, ROOT, STUB, NotALab, joined, labs, read_lab, read_submission
from mlm_lib.engine.files import write

HOME = ROOT / "labs"  # ignored by git
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION", re.M | re.S)
HIDDEN = re.compile(r"^[ \t]*### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS\n?", re.M | re.S)


def student_edition(notebook: dict) -> dict:
    """A copy of a lab's source, as parsed JSON, that gives nothing away."""
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
    return write_new(folder / source.name, text)


def write_new(first: Path, text: str) -> tuple[Path, bool]:
    """Write a file that overwrites nothing, under the first free name: its path, and whether it is
    new. One that is there with this very text is left alone."""
    for number in itertools.count(1):
        path = first.with_stem(first.stem + (f"_{number}" if number > 1 else ""))
        if not path.exists():
            write(path, text)
            return path, True
        if path.is_file() and path.read_bytes() == text.encode():
            return path, False


def own_answers(folder: Path = HOME) -> dict[str, str]:
    """What the labs in a folder answer, by task; of several answers the newest copy's."""
    found = {}
    for path in copies("", folder):
        with suppress(NotALab):
            for name, cells in read_submission(path).answers.items():
                found |= {name: cell for cell in cells if STUB.format(name) not in cell}
    return found


def copies(stem: str, folder: Path) -> list[Path]:
    """A student's copies of a lab, the newest last."""
    return sorted(folder.glob(f"{stem}*.ipynb"), key=lambda path: path.stat().st_mtime)


def progress(folder: Path = HOME) -> list[str]:
    """A line for each lab: its tasks that were begun, and what its last check found."""
    lines, checked, answers = [], last_checks(folder), own_answers(folder)
    for source in labs().values():
        tasks, mine = read_lab(source).tasks, copies(source.stem, folder)
        begun = sum(task.name in answers for task in tasks)
        told = f"{begun} of {len(tasks)} tasks begun" if mine else "no copy yet"
        last = [checked[path.name] for path in mine if path.name in checked]
        lines.append(f"{source.stem:<24}{told:<24}{''.join(last[-1:])}".rstrip())
    return lines


def last_checks(folder: Path) -> dict[str, str]:
    """What the last check of each copy found, by the copy's name."""
    try:
        return dict(json.loads((folder / ".checks.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def remember(file: Path, found: str, folder: Path = HOME) -> None:
    """Note what a check of one of the student's copies found; of other files nothing is noted."""
    if file.resolve().parent == folder.resolve():
        known = last_checks(folder) | {file.name: found}
        write(folder / ".checks.json", json.dumps(known, indent=1))
