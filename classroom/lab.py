"""A lab, read from its notebook: what is given, what is asked, and how it is checked.

A line of text in a cell says what the cell is, since text survives what metadata does not: a
renamed file, an editor that drops metadata, a cell pasted into another notebook.

    # TASK 02.1: choose the positions        the cell for a student's answer
    # CHECK 02.1 (2 points)                  what must hold for the points; follows its task
    # CHECK 02.2 coins (2 points)            one of several for a task, each with its name

Code cells without such a line are given: the set-up, and what stands between tasks.
"""

import json
import re
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "notebooks" / "labs"
MARK = re.compile(r"^[ \t]*#[ \t]*(TASK|CHECK)[ \t]+(\w+)\.(\d+)\b[ \t:]*(.*)$", re.M | re.I)
POINTS = re.compile(r"\((\d+) points?\)")
LOOSE = re.compile(r"^(?:(?:def|class)[ \t]+|(?=\w+[ \t]*=))(\w+)", re.M)  # names that a cell sets
LARGEST = 50_000_000  # bytes of a notebook; a lab with all its outputs has a hundredth of it


class Refused(Exception):
    """Something asked for cannot be done. The sentence says why, and what can."""


@dataclass(frozen=True)
class Given:
    """A cell that everybody has."""

    code: str


@dataclass(frozen=True)
class Check:
    """A cell that earns `points` when it ends without an error."""

    label: str  # "proof" and "mend" where a task has several, else ""
    points: int
    code: str


@dataclass
class Task:
    name: str  # "02.1"
    title: str
    solution: str
    checks: list[Check] = field(default_factory=list)

    @property
    def points(self) -> int:
        return sum(check.points for check in self.checks)


@dataclass(frozen=True)
class Lab:
    key: str  # "02", or "zoo"
    path: Path
    parts: list[Given | Task]  # in their order

    @property
    def tasks(self) -> list[Task]:
        return [part for part in self.parts if isinstance(part, Task)]

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)


@dataclass(frozen=True)
class Submission:
    """What a student's notebook holds: the cells of each task, and names set in unmarked cells."""

    key: str
    answers: dict[str, list[str]]
    loose: list[str]


def code_cells(path: Path) -> list[str]:
    """The code of a notebook, cell by cell. Raises Refused, as `read_notebook`."""
    cells = read_notebook(path)["cells"]
    return [joined(cell) for cell in cells if cell["cell_type"] == "code"]


def read_notebook(path: Path) -> dict:
    """A notebook file as parsed JSON, also one that nbformat finds invalid.

    Raises Refused, with a sentence, for whatever is no notebook.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Refused(f"{path.name} is no file that can be read to its end")
        if path.stat().st_size > LARGEST:
            raise Refused(f"{path.name} has more than {LARGEST / 1e6:.0f} MB, and no lab so much")
        text = path.read_text("utf-8-sig")
        if not text.strip():
            raise Refused(f"{path.name} is empty")
        notebook = json.loads(text)
        if isinstance(notebook, dict) and "worksheets" in notebook:
            raise Refused(f"{path.name} is saved in an old format; open it and save it again")
        for cell in notebook["cells"]:
            cell["cell_type"], joined(cell)
        return notebook
    except OSError as error:
        raise Refused(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{path.name} is not a notebook ({type(error).__name__})") from None


def joined(cell: dict) -> str:
    """A cell's source, which is a text or a list of lines."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def read_lab(path: Path, key: str = "") -> Lab:
    """The lab that `path` holds: a source, whose name begins with its key, or, with another name, a
    student's copy, of which the tasks' cells then stand where solutions do.

    Raises Refused for one that breaks the rules above.
    """
    key = key or path.stem.split("_")[0]
    parts: list[Given | Task] = []
    for source in code_cells(path):
        mark = MARK.search(source)
        if mark is None:
            parts.append(Given(source))
            continue
        name, rest = f"{mark[2]}.{mark[3]}", mark[4].strip()
        if mark[2] != key:
            raise Refused(f"{path.name}: a mark says {name}, but the lab's key is {key}")
        if mark[1].upper() == "TASK":
            parts.append(Task(name, rest, source))
            continue
        points, task = POINTS.search(rest), parts[-1] if parts else None
        if not isinstance(task, Task) or task.name != name or points is None:
            raise Refused(f"{path.name}: CHECK {name} needs (N points) and its task right before")
        task.checks.append(Check(rest[: points.start()].strip(), int(points[1]), source))
    return Lab(key, path, parts)


def labs() -> dict[str, Path]:
    """The labs' sources by key, in order: "01", "02", … and at last those with a name."""
    return {path.stem.split("_")[0]: path for path in sorted(SOURCES.glob("*_lab.ipynb"))}


def read_submission(path: Path, known=()) -> Submission:
    """What the notebook at `path` answers, to the lab that most of its marks name.

    Args:
        known: keys of labs; those of the labs here, if none are given.

    Of several cells with one mark those that were begun count, in their order. Raises Refused.
    """
    keys, answers, loose = Counter(), {}, []
    for source in code_cells(path):
        marks = [(kind.upper(), key.lower(), n) for kind, key, n, _ in MARK.findall(source)]
        keys.update(key for _, key, _ in marks)
        for kind, key, n in marks:
            if kind == "TASK":
                answers.setdefault(f"{key}.{n}", []).append(source)
        loose += [] if marks else LOOSE.findall(source)
    known = known or labs() or keys
    key = next((key for key, _ in keys.most_common() if key in known), None)
    if key is None:
        names = ", ".join(known) or "01, 02, …"
        raise Refused(f"{path.name} has no mark of a lab (# TASK KEY.N, with KEY one of {names})")
    for name, cells in answers.items():
        answers[name] = [cell for cell in cells if STUB.format(name) not in cell] or cells[:1]
    return Submission(key, answers, loose)


STUB = "Task {} waits for your code here, in place of this line."
