"""The student's edition of a lab, without solutions and hidden tests; and how far a student is."""

import itertools
import json
import re
from pathlib import Path

from classroom.lab import MARK, ROOT, STUB, Lab, NotALab, labs, read_lab, read_submission
from mlm_lib.engine.files import write

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
    return write_new(folder / source.name, text)


def write_new(first: Path, text: str) -> tuple[Path, bool]:
    """Write a file that overwrites nothing, under the first free name: its path, and whether it is
    new. One that is there with this very text is left alone."""
    first.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = first.with_stem(first.stem + (f"_{number}" if number > 1 else ""))
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


def copies(key: str, folder: Path = HOME) -> list[Path]:
    """The student's copies of a lab, the newest first."""
    found = folder.glob(f"{labs()[key].stem}*.ipynb")
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def tried_tasks(lab: Lab, folder: Path = HOME) -> set[str]:
    """The names of the tasks that some copy of the student's answers."""
    tried = set()
    for path in copies(lab.key, folder):
        try:
            answers = read_submission(path).answers
        except NotALab:
            continue
        tried |= {name for name, cells in answers.items() if STUB.format(name) not in cells[0]}
    return tried


def progress(folder: Path = HOME) -> list[str]:
    """A line for each lab: its tasks that were begun, and what its last check found."""
    lines, checked = [], last_checks(folder)
    for key, source in labs().items():
        lab, mine = read_lab(source), copies(key, folder)
        begun = len(tried_tasks(lab, folder))
        told = f"{begun} of {len(lab.tasks)} tasks begun" if mine else "no copy yet"
        last = next((checked[path.name] for path in mine if path.name in checked), "")
        lines.append(f"{source.stem:<24}{told:<24}{last}".rstrip())
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
