"""Marks a class: one row for everything in a folder, and a report for each student.

Whatever a submission is or does, it costs no other submission its marks. Marks that stand in the
table are kept as long as neither the student's answers nor the lab have changed.
"""

import ast
import csv
import hashlib
import io
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from classroom.archives import identify
from classroom.feedback import write_feedback
from classroom.lab import Lab, NotALab, Submission, labs, read_lab, read_submission
from classroom.marker import RAN, CouldNotRun, Limits, Mark, ended, family, first_to_look_at, mark
from classroom.remarks import remarks
from mlm_lib.engine.files import write

COLUMNS = ["student", "id", "file", "lab", "status", "points", "possible", "late", "seconds"]
COLUMNS += ["look at", "work"]
COMPLETE, MARKED, PARTLY, UNREAD = "complete", "marked", "not all could be run", "not read"
FAILED = "could not be run"
FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet may take for the beginning of one
SAME = "the same work as "


class NotOurTable(ValueError):
    """The file that should hold the marks holds something else."""


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
        notebooks = sorted(
            path
            for path in entry.rglob("*.ipynb")
            if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
        if entry.is_symlink():  # not followed: `leaves` says so
            notebooks = []
        for path in notebooks or [entry]:
            file = readable(path.relative_to(folder).as_posix())
            found.append(Found(student, path, file))
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


def grade(
    folder: Path, table: Path, *, jobs: int, limits: Limits, again: bool, bar, due=None
) -> list[dict]:
    """Mark everything in `folder`, and write `table` after each submission. Returns its rows.

    Args:
        bar: called with the list of submissions' futures; yields them as they end (a tqdm).
        again: mark also what has not changed.
        due: a time, after which a file counts as late.

    Raises:
        NotOurTable: `table` exists and is no table of marks; it is left as it is.
    """
    rows = read_table(table)
    sources = {key: read_lab(path) for key, path in labs().items()}
    submissions = identify(find_submissions(folder, table), due)
    students = {found.student for found in submissions} | {student for student, _ in rows}
    with family.gathered(), ThreadPoolExecutor(jobs) as pool:
        started = []
        for found in submissions:
            old = rows.get((found.student, found.file))
            reports = reports_of(table) / report_name(found.student, students)
            how = (found, folder, sources, limits, old, again, reports)
            started.append(pool.submit(grade_one, *how))
        try:
            for future in bar(as_completed(started), len(started)):
                row = future.result()
                rows[row["student"], row["file"]] = row
                say_who_agrees(rows.values())
                write_table(table, rows)
                write_report(table, row["student"], rows, students)
        except BaseException:
            ended.set()  # whoever is being marked is given up; the table holds the others
            pool.shutdown(cancel_futures=True)
            raise
    return [rows[key] for key in sorted(rows)]


def grade_one(
    found: Found, folder: Path, sources, limits: Limits, old: dict | None, again, reports: Path
) -> dict:
    """The row of one submission: as `old` when what it is made from has not changed.

    Else a copy of the notebook with messages goes into `reports`.
    """
    row = {"student": found.student, "id": found.id, "file": found.file, "late": found.late}
    row |= {"lab": "", "points": 0, "possible": "", "seconds": "", "look at": "", "work": ""}
    # What a teacher wrote into columns of his own stays.
    own = {name: text for name, text in (old or {}).items() if not ours(name)}
    if leaves(found.path, folder):
        says = "a link that leads elsewhere; hand in the file itself"
        return own | row | {"status": UNREAD, "look at": "a link", "says": says}
    if found.path.is_dir():
        return own | row | {"status": UNREAD, "says": "no notebook in this folder"}
    try:
        submission = read_submission(found.path, sources)
    except NotALab as error:
        return own | row | {"status": UNREAD, "says": str(error)}
    lab = sources[submission.key]
    work = fingerprint(lab, submission)
    if old and not again and old["work"] == work and old["status"] != FAILED:
        # What stands there stays: a teacher may have written it.
        late = found.late if old["late"] in ("", "0") else old["late"]
        return old | {"id": old["id"] or found.id, "late": late}
    row |= {"lab": lab.path.stem, "possible": lab.points, "work": work}
    row["look at"] = "; ".join(remarks(lab, submission))
    try:
        marks = mark(lab, submission, limits)
        inside = found.path.relative_to(folder)
        write_feedback(found.path, marks, reports.joinpath(*inside.parts[1:] or inside.parts))
        return own | row | summary(lab, marks)
    except CouldNotRun as error:
        return own | row | {"status": FAILED, "says": str(error)}
    except Exception as error:  # a fault of the marker's own must not stop a class
        return own | row | {"status": FAILED, "says": f"{type(error).__name__}: {error}"}


def summary(lab: Lab, marks: list[Mark]) -> dict:
    """The columns that a submission's marks fill."""
    points = sum(mark.points for mark in marks)
    whole = all(mark.status in RAN for mark in marks)
    status = COMPLETE if points == lab.points else MARKED if whole else PARTLY
    first = first_to_look_at(marks)
    row = {"status": status, "points": points}
    row["seconds"] = f"{sum(mark.seconds for mark in marks):.1f}"
    row["says"] = f"{first.task}: {first.says}" if first else ""
    for one in marks:
        row[one.task] = one.points
        row[f"{one.task} says"] = f"{one.status}: {one.says}" if one.says else one.status
        row[f"{one.task} seconds"] = f"{one.seconds:.1f}"
    return row


def fingerprint(lab: Lab, submission: Submission) -> str:
    """Changes with the answers and our checks, and with nothing else, such as a cell's output."""
    answers = {
        task: [normalised(cell) for cell in cells] for task, cells in submission.answers.items()
    }
    told = [[asdict(part) for part in lab.parts], answers, submission.loose]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def normalised(code: str) -> str:
    """Code without its comments and its layout, or as it is where it is no Python."""
    try:
        return ast.unparse(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code


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
    task = column.split(" ")[0]
    return column in (*COLUMNS, "says") or (
        "." in task and task[-1:].isdecimal() and column[len(task) :] in ("", " says", " seconds")
    )


def read_table(table: Path) -> dict[tuple[str, str], dict]:
    """The rows of an earlier run, by student and file."""
    if not table.exists():
        return {}
    csv.field_size_limit(2**31 - 1)  # a cell may hold what a teacher has pasted
    try:
        text = table.read_bytes().decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), restkey="more"))
    except (OSError, ValueError, csv.Error) as error:
        raise NotOurTable(f"{table} cannot be read as a table of marks: {error}") from None
    if text.strip() and (not rows or not {"student", "file", "work"} <= rows[0].keys()):
        raise NotOurTable(f"{table} is no table of marks; choose another name for --out")
    rows = [{name: from_cell(text) for name, text in row.items()} for row in rows]
    empty = dict.fromkeys(COLUMNS, "")
    return {(row["student"], row["file"]): empty | row for row in rows}


def write_table(table: Path, rows: dict) -> None:
    """Whole or not at all, so that a full disk or Ctrl-C leaves the table of a moment before."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    tasks = sorted({name.split(" ")[0] for name in names if is_task(name)}, key=place_of)
    told = [f"{task} {what}" for what in ("says", "seconds") for task in tasks]
    own = [name for name in names if not ours(name)]
    columns = [*COLUMNS, *tasks, "says", *told, *own]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(
        {name: as_cell(value) for name, value in rows[key].items()} for key in sorted(rows)
    )
    # The mark by which Excel knows UTF-8.
    write(table, ("\ufeff" + text.getvalue()).encode("utf-8", "backslashreplace"))


def is_task(column: str) -> bool:
    return ours(column) and "." in column.split(" ")[0]


def place_of(task: str) -> tuple[str, int]:
    lab, number = task.rsplit(".", 1)
    return lab, int(number)


def as_cell(value) -> str:
    """Text that no spreadsheet takes for a formula: names and messages come from students."""
    text = str(value)
    return "'" + text if text.startswith(FORMULA) else text


def from_cell(text) -> str:
    text = ";".join(text) if isinstance(text, list) else text or ""
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text


# ------------------------------------------------------------------------------------ the reports


def report_name(student: str, students) -> str:
    """A file's name for a student's report, which no other student's has on any system."""
    name = "".join(letter if letter.isalnum() or letter in "-_. " else "_" for letter in student)
    twins = Counter(one.casefold() for one in students)[student.casefold()]
    if name == student and twins < 2 and len(name.encode()) < 200:
        return name
    return f"{name[:50]}_{hashlib.sha256(student.encode()).hexdigest()[:6]}"


def write_report(table: Path, student: str, rows: dict, students) -> None:
    """What a student may read: every task with its points, its status and what to look at."""
    mine = [rows[key] for key in sorted(rows) if key[0] == student]
    text = "\n".join(report(row) for row in mine).encode("utf-8", "backslashreplace")
    path = reports_of(table) / f"{report_name(student, students)}.txt"
    write(path, text.replace(b"\n", os.linesep.encode()))


def report(row: dict) -> str:
    """One submission in words."""
    head = f"{row['file']}: {row['status']}"
    if row["possible"] != "":
        head = f"{row['file']}: {row['points']} of {row['possible']} points, {row['status']}"
    tasks = sorted((name for name in row if is_task(name) and " " not in name), key=place_of)
    lines = [
        f"  {name}  {row[name]}  " + str(row[f"{name} says"]).replace("\n", "\n         ")
        for name in tasks
        if row[name] != ""
    ]
    return "\n".join([head, *(lines or [f"  {row['says']}"]), ""])
