"""Marks a class: one row for everything in a folder, and a copy of each notebook with messages.

Whatever a submission is or does, it costs no other submission its marks. Marks that stand in the
table are kept as long as neither the student's answers nor the lab have changed.
"""

import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from classroom import tables
from classroom.archives import identify, shown
from classroom.feedback import feedback
from classroom.lab import Lab, Refused, Submission, labs, read_lab, read_submission
from classroom.marker import RAN, Limits, Mark, ended, mark
from classroom.remarks import bare, remarks
from mlm_lib.engine.files import write

COLUMNS = ["student", "id", "file", "lab", "status", "points", "possible", "late", "seconds"]
COLUMNS += ["look at", "work"]
TASK = re.compile(r"(\w+)\.(\d+)( says| seconds)?")  # a column of a task's
COMPLETE, MARKED, PARTLY, UNREAD = "complete", "marked", "not all could be run", "not read"
FAILED = "could not be run"
SAME = "the same work as "


@dataclass(frozen=True)
class Found:
    """One thing in the folder: whose it is, and where."""

    student: str
    path: Path
    file: str  # as the table names it
    id: str = ""
    late: int = 0  # days, each counted as soon as it has begun


def reports_of(table: Path) -> Path:
    return table.with_name(f"{table.stem}_reports")


def find_submissions(folder: Path, table: Path) -> list[Found]:
    """Everything in the folder: a folder is a student, and so is a file, by its name.

    Every notebook below a student's folder counts for itself; a folder without one is found, too.
    What begins with a dot is the system's or Jupyter's; the table and the reports are ours.
    """
    found, ours = [], {real(table), real(reports_of(table))}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or real(entry) in ours:
            continue
        student = readable(entry.name if entry.is_dir() else entry.stem)
        # A link is not followed; `leaves` tells it.
        below = [] if entry.is_symlink() else sorted(entry.rglob("*.ipynb"))
        for path in [path for path in below if shown(path, folder)] or [entry]:
            found.append(Found(student, path, readable(path.relative_to(folder).as_posix())))
    return found


def readable(name: str) -> str:
    """A file's name as text, also where it is none, as old archives leave it."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def leaves(path: Path, folder: Path) -> bool:
    """Whether a link on the way to a file leads out of what its student handed in."""
    home = real(folder) / path.relative_to(folder).parts[0]
    return home.is_symlink() or not real(path).is_relative_to(home)


def real(path: Path) -> Path:
    """Where a path leads; a link that leads in a circle leads to itself."""
    return Path(os.path.realpath(path))


def grade(folder: Path, table: Path, limits: Limits, jobs=1, again=False, due=None) -> list[dict]:
    """Mark everything in `folder`, and write `table` after each submission. Returns its rows.

    Args:
        jobs: how many are marked at once.
        again: mark also what has not changed.
        due: a time, after which a file counts as late.

    Raises:
        Refused: `table` exists and is no table of marks; it is left as it is.
    """
    rows = read_table(table)
    sources = {key: read_lab(path) for key, path in labs().items()}
    submissions = identify(find_submissions(folder, table), due)

    def one(found: Found) -> dict:
        old = rows.get((found.student, found.file), {}) | ({"work": ""} if again else {})
        return grade_one(found, folder, sources, limits, old, reports_of(table))

    with ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(one, found) for found in submissions]
        try:
            ending = as_completed(started)
            for future in tqdm(ending, total=len(started), unit="notebook", disable=None):
                row = future.result()
                rows[row["student"], row["file"]] = row
                say_who_agrees(rows.values())
                write_table(table, rows)
        except BaseException:
            ended.set()  # whoever is being marked is given up; the table holds the others
            pool.shutdown(cancel_futures=True)
            raise
    return [rows[key] for key in sorted(rows)]


def grade_one(found: Found, folder: Path, sources, limits: Limits, old: dict, reports: Path):
    """The row of one submission: as `old` when what it is made from has not changed.

    Else a copy of the notebook with messages goes into `reports`. It has its name in the folder
    there, too, by which systems that take a zip of feedback know whose it is.
    """
    row = {name: text for name, text in old.items() if not ours(name)}  # a teacher's own columns
    row |= dict.fromkeys(COLUMNS, "") | {"points": 0, "late": found.late, "status": UNREAD}
    row |= {"student": found.student, "id": found.id, "file": found.file}
    if leaves(found.path, folder):
        says = "a link that leads elsewhere; hand in the file itself"
        return row | {"look at": "a link", "says": says}
    if found.path.is_dir():
        return row | {"says": "no notebook in this folder"}
    try:
        submission = read_submission(found.path, sources)
        lab = sources[submission.key]
        row |= {"lab": lab.path.stem, "possible": lab.points, "work": fingerprint(lab, submission)}
        if old and old["work"] == row["work"] and old["status"] != FAILED:
            # What stands there stays: a teacher may have written it.
            late = found.late if old["late"] in ("", "0") else old["late"]
            return old | {"id": old["id"] or found.id, "late": late}
        row |= {"status": FAILED, "look at": "; ".join(remarks(lab, submission))}
        marks = mark(lab, submission, limits)
        told = json.dumps(feedback(found.path, marks), indent=1)
        write(reports / found.path.relative_to(folder), told)
        return row | summary(lab, marks)
    except Refused as error:
        return row | {"says": str(error)}
    except Exception as error:  # a fault of the marker's own must not stop a class
        return row | {"status": FAILED, "says": f"{type(error).__name__}: {error}"}


def summary(lab: Lab, marks: list[Mark]) -> dict:
    """The columns that a submission's marks fill."""
    points = sum(mark.points for mark in marks)
    whole = all(mark.status in RAN for mark in marks)
    status = COMPLETE if points == lab.points else MARKED if whole else PARTLY
    first = next((one for one in marks if one.points < one.possible), None)
    row = {"status": status, "points": points}
    row["seconds"] = f"{sum(mark.seconds for mark in marks):.1f}"
    row["says"] = f"{first.task}: {first.says}" if first else ""
    for one in marks:
        row[one.task] = one.points
        row[f"{one.task} says"] = one.told
        row[f"{one.task} seconds"] = f"{one.seconds:.1f}"
    return row


def fingerprint(lab: Lab, submission: Submission) -> str:
    """Changes with the answers and our checks, and with nothing else, such as a cell's output."""
    answers = {task: [bare(cell) for cell in cells] for task, cells in submission.answers.items()}
    told = [[asdict(part) for part in lab.parts], answers, submission.loose]
    return "w" + hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:15]


def say_who_agrees(rows) -> None:
    """Name, in the column to look at, whoever handed in the very same answers."""
    counted = [row for row in rows if row["work"] and str(row["points"]) != "0"]
    for row in counted:
        same = {one["student"] for one in counted if one["work"] == row["work"]} - {row["student"]}
        told = [text for text in row["look at"].split("; ") if text and not text.startswith(SAME)]
        told += [SAME + ", ".join(sorted(same))] if same else []
        row["look at"] = "; ".join(told)


# ------------------------------------------------------------------------------------- the table


def ours(column: str) -> bool:
    """Whether a column is written by the marker: one of its own, or of a task."""
    return column in (*COLUMNS, "says") or bool(TASK.fullmatch(column))


def tasks_of(names) -> list[str]:
    """The tasks of which some columns tell, in order."""
    found = {match.group(1, 2) for match in map(TASK.fullmatch, names) if match}
    return [".".join(task) for task in sorted(found, key=lambda task: (task[0], int(task[1])))]


def read_table(table: Path) -> dict[tuple[str, str], dict]:
    """The rows of an earlier run, by student and file. Raises Refused."""
    rows = tables.read(table, {"student", "file", "work"}, "table of marks")
    empty = dict.fromkeys(COLUMNS, "")
    return {(row["student"], row["file"]): empty | row for row in rows}


def write_table(table: Path, rows: dict) -> None:
    names = dict.fromkeys(name for row in rows.values() for name in row)
    tasks = tasks_of(names)
    columns = [*COLUMNS, *tasks, "says", *(f"{task} says" for task in tasks)]
    columns += [*(f"{task} seconds" for task in tasks), *(n for n in names if not ours(n))]
    tables.write_rows(table, columns, (rows[key] for key in sorted(rows)))
