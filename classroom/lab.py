"""Reads a lab from its notebook: the given cells, the tasks, and the checks of each task.

A comment in a cell says what the cell is. Metadata could say the same, but they are lost if a cell
is copied into another notebook or an editor drops them, and the comment is not.

    # TASK 02.1: choose the positions        the cell for the student's answer
    # CHECK 02.1 (2 points)                  a check of the task before it, and its points
    # CHECK 02.2 coins (2 points)            one of several checks of a task, with its name

Code cells without such a comment are given to the student: the set-up, and cells between tasks.
"""

import ast
import json
import re
import stat
import symtable
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from classroom import unread
from classroom.runner import plain

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "classroom" / "solutions"
EDITIONS = ROOT / "classroom" / "labs"  # in the folder of a class, which holds no solutions
MARK = re.compile(r"^[ \t]*#[ \t]*(TASK|CHECK)[ \t]+(\w+)\.(\d+)\b[ \t:]*(.*)$", re.M | re.I)
POINTS = re.compile(r"\((\d+) points?\)")
LONGEST = 100_000  # characters of a cell in which names are looked for
LARGEST = 50_000_000  # bytes of a notebook, a hundred times as many as a lab with its outputs has


class Refused(Exception):
    """A request cannot be met. The sentence says why, and what is possible instead."""


@dataclass(frozen=True)
class Given:
    """A code cell that is given to the student."""

    code: str


@dataclass(frozen=True)
class Check:
    """A cell that earns the student `points` if it ends without an error."""

    label: str  # such as "proof" or "mend" if the task has several checks, else ""
    points: int
    code: str


@dataclass
class Task:
    """What the student is asked to write, our solution, and the checks."""

    name: str  # "02.1"
    title: str
    solution: str
    checks: list[Check] = field(default_factory=list)

    @property
    def points(self) -> int:
        return sum(check.points for check in self.checks)


@dataclass(frozen=True)
class Lab:
    """A lab: its given cells and its tasks."""

    key: str  # "02", or "zoo"
    path: Path
    parts: list[Given | Task]  # in the order of the notebook
    solved: bool = True  # False for a student's copy: its "solutions" are the student's own answers

    @property
    def tasks(self) -> list[Task]:
        return [part for part in self.parts if isinstance(part, Task)]

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)


@dataclass(frozen=True)
class Submission:
    """What a student handed in."""

    key: str
    answers: dict[str, list[str]]  # for each task the code cells with its comment
    loose: list[str]  # the names that code cells without a comment set
    texts: dict[str, str] = field(default_factory=dict)  # the types of other cells with a comment
    others: list[str] = field(default_factory=list)  # other labs, of which it holds tasks as well

    @property
    def left_out(self) -> list[str]:
        """A sentence on the other labs, if there are any."""
        told = f"the notebook also holds tasks of lab {' and '.join(self.others)}"
        return [f"{told}, which are not marked: hand them in by themselves"] if self.others else []


def code_cells(path: Path) -> list[str]:
    """The source of each code cell of a notebook.

    Raises:
        Refused: as `read_notebook`.
    """
    cells = read_notebook(path)["cells"]
    return [joined(cell) for cell in cells if cell["cell_type"] == "code"]


def read_notebook(path: Path) -> dict:
    """A notebook file as parsed JSON. Files that nbformat would call invalid are read as well.

    Raises:
        Refused: the file is not a notebook.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Refused(f"{path.name} is no file that can be read to its end")
        if path.stat().st_size > LARGEST:
            raise Refused(f"{path.name} has more than {LARGEST / 1e6:.0f} MB, and no lab so much")
        data = path.read_bytes()
        if not data.strip():
            raise Refused(f"{path.name} is empty; save the notebook, and hand it in again")
        notebook = json.loads(data)  # which may be in UTF-8, UTF-16 or UTF-32
        if isinstance(notebook, dict) and "worksheets" in notebook:
            raise Refused(f"{path.name} is saved in an old format; open it and save it again")
        for cell in notebook["cells"]:
            cell["cell_type"], joined(cell)
        return notebook
    except OSError as error:
        raise Refused(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused(f"{path.name} is not a notebook {unread.what(data)}") from None


def joined(cell: dict) -> str:
    """The source of a cell as one text. In the file it may be a list of lines."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def read_lab(path: Path, key: str = "") -> Lab:
    """Read a lab.

    Args:
        path: the notebook of the lab. It can also be a student's copy, and then the student's cells
            take the place of our solutions.
        key: the key of the lab, such as "02", if `path` is a student's copy. Without it the name
            of the file begins with the key.

    Raises:
        Refused: the notebook breaks a rule at the head of this file.
    """
    solved, key = not key, key or path.stem.split("_")[0]
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
    return Lab(key, path, parts, solved)


def labs() -> dict[str, Path]:
    """The notebooks of the labs by key, in the order "01", "02", …, and then labs such as "zoo".
    In the folder of a class they are the students' editions."""
    folder = EDITIONS if without_solutions() else SOURCES
    return {path.stem.split("_")[0]: path for path in sorted(folder.glob("*_lab.ipynb"))}


def without_solutions() -> bool:
    """Whether this is the folder of a class, which `handout` makes."""
    return not SOURCES.is_dir()


def read_submission(path: Path, known=()) -> Submission:
    """Read what a student handed in. The lab is the one that most comments of the notebook name.

    If several cells carry the comment of one task, all cells that the student has begun count, in
    their order. A comment in a cell of another type than code, such as Markdown, does not count,
    but it is reported in `texts`.

    Args:
        known: the keys of the labs that are accepted. By default all labs of this course are.

    Raises:
        Refused: the file is not a notebook, or it names no known lab.
    """
    keys, answers, texts, loose = Counter(), {}, {}, []
    for cell in read_notebook(path)["cells"]:
        source, kind = joined(cell), str(cell["cell_type"])
        marks = [(mark.upper(), key.lower(), n) for mark, key, n, _ in MARK.findall(source)]
        keys.update(key for _, key, _ in marks)
        for task in [f"{key}.{n}" for mark, key, n in marks if mark == "TASK"]:
            if kind == "code":
                answers.setdefault(task, []).append(source)
            else:
                texts[task] = kind.capitalize()
        loose += names_set(source) if kind == "code" and not marks else []
    known = known or labs() or keys
    found = [key for key, _ in keys.most_common() if key in known]
    if not found:
        names = ", ".join(known) or "01, 02, …"
        raise Refused(
            f"{path.name} has no mark of a lab, such as # TASK {next(iter(known), '01')}.1 (the "
            f"labs here are {names}); hand in the lab's notebook, which is in the folder work/labs/"
        )
    for name, cells in answers.items():
        answers[name] = [cell for cell in cells if STUB.format(name) not in cell] or cells[:1]
    key, *others = found
    begun = {name.split(".")[0] for name in answers}
    return Submission(key, answers, loose, texts, [other for other in others if other in begun])


def names_set(code: str) -> list[str]:
    """The names that a cell sets: those that it assigns, defines or imports, and the modules that
    become attributes by an import such as `import os.path`. A very long cell is not looked at."""
    try:
        code = plain(code) if len(code) < LONGEST else ""
        names = symtable.symtable(code, "a cell", "exec").get_symbols()
        nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import)]
    except (SyntaxError, ValueError, RuntimeError, MemoryError):
        return []
    modules = [one.name for node in nodes for one in node.names if "." in one.name]
    return [*(one.get_name() for one in names if one.is_assigned() or one.is_imported()), *modules]


STUB = "Task {} waits for your code here, in place of this line."
