"""Marks a class: one row for everything in a folder, and a report for each student.

Whatever a submission is or does, it costs no other submission its marks. Marks that stand in the
table are kept as long as neither the student's answers nor the lab have changed.
"""

import csv
import hashlib
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from classroom.lab import Lab, NotALab, Submission, labs, read_lab, read_submission
from classroom.marker import CouldNotRun, Limits, Mark, as_json, ended, first_to_look_at, mark
from classroom.runner import RAN
from mlm_lib.engine.files import write

COLUMNS = ["student", "file", "lab", "status", "points", "possible", "work"]
COMPLETE, MARKED, PARTLY, UNREAD = "complete", "marked", "not all could be run", "not read"
FAILED = "could not be run"
FORMULA = ("=", "+", "-", "@", "\t")  # what a spreadsheet may take for the beginning of one


class NotOurTable(ValueError):
    """The file that should hold the marks holds something else."""


@dataclass(frozen=True)
class Found:
    """One thing in the folder: whose it is, and where."""

    student: str
    path: Path
    file: str  # as the table names it


def reports_of(table: Path) -> Path:
    return table.with_name(f"{table.stem}_reports")


def find_submissions(folder: Path, table: Path) -> list[Found]:
    """Everything in the folder: a folder is a student, and so is a file, by its name.

    Every notebook below a student's folder counts for itself; a folder without one is found, too.
    What begins with a dot is the system's or Jupyter's; the table and the reports are ours.
    """
    found, ours = [], {table.resolve(), reports_of(table).resolve()}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.resolve() in ours:
            continue
        if not entry.is_dir():
            found.append(Found(entry.stem, entry, entry.name))
            continue
        notebooks = sorted(
            path
            for path in entry.rglob("*.ipynb")
            if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
        for path in notebooks or [entry]:
            found.append(Found(entry.name, path, path.relative_to(folder).as_posix()))
    return found


def grade(folder: Path, table: Path, *, jobs: int, limits: Limits, again: bool, bar) -> list[dict]:
    """Mark everything in `folder`, and write `table` after each submission. Returns its rows.

    Args:
        bar: called with the list of submissions' futures; yields them as they end (a tqdm).
        again: mark also what has not changed.

    Raises:
        NotOurTable: `table` exists and is no table of marks; it is left as it is.
    """
    rows = read_table(table)
    sources = {key: read_lab(path) for key, path in labs().items()}
    with ThreadPoolExecutor(jobs) as pool:
        started = []
        for found in find_submissions(folder, table):
            old = None if again else rows.get((found.student, found.file))
            started.append(pool.submit(grade_one, found, sources, limits, old))
        try:
            for future in bar(as_completed(started), len(started)):
                row = future.result()
                rows[row["student"], row["file"]] = row
                write_table(table, rows)
                write_report(table, row["student"], rows)
        except BaseException:
            ended.set()  # whoever is being marked is given up; the table holds the others
            pool.shutdown(cancel_futures=True)
            raise
    return [rows[key] for key in sorted(rows)]


def grade_one(found: Found, sources: dict[str, Lab], limits: Limits, old: dict | None) -> dict:
    """The row of one submission: `old` itself when what it is made from has not changed."""
    row = {"student": found.student, "file": found.file, "points": 0, "possible": ""}
    if found.path.is_dir():
        return row | {"status": UNREAD, "lab": "", "work": "", "says": "no notebook in this folder"}
    try:
        submission = read_submission(found.path)
    except NotALab as error:
        return row | {"status": UNREAD, "lab": "", "work": "", "says": str(error)}
    lab = sources[submission.key]
    work = fingerprint(lab, submission)
    if old and old["work"] == work and old["status"] != FAILED:
        return old
    row |= {"lab": lab.path.stem, "possible": lab.points, "work": work}
    try:
        marks = mark(lab, submission, limits)
    except CouldNotRun as error:
        return row | {"status": FAILED, "says": str(error)}
    except Exception as error:  # a fault of the marker's own must not stop a class
        return row | {"status": FAILED, "says": f"{type(error).__name__}: {error}"}
    return row | summary(lab, marks)


def summary(lab: Lab, marks: list[Mark]) -> dict:
    """The columns that a submission's marks fill."""
    points = sum(mark.points for mark in marks)
    whole = all(mark.status in RAN for mark in marks)
    status = COMPLETE if points == lab.points else MARKED if whole else PARTLY
    first = first_to_look_at(marks)
    row = {"status": status, "points": points}
    row["says"] = f"{first.task}: {first.says}" if first else ""
    for one in marks:
        row[one.task] = one.points
        row[f"{one.task} says"] = f"{one.status}: {one.says}" if one.says else one.status
    return row


def fingerprint(lab: Lab, submission: Submission) -> str:
    """Changes with the answers and our checks, and with nothing else, such as a cell's output."""
    told = [as_json(lab), submission.answers, submission.loose]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def read_table(table: Path) -> dict[tuple[str, str], dict]:
    """The rows of an earlier run, by student and file."""
    if not table.exists():
        return {}
    try:
        text = table.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise NotOurTable(f"{table} cannot be read as a table of marks: {error}") from None
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if text.strip() and (not rows or not set(COLUMNS) <= rows[0].keys()):
        raise NotOurTable(f"{table} is no table of marks; choose another name for --out")
    rows = [{name: from_cell(text) for name, text in row.items()} for row in rows]
    return {(row["student"], row["file"]): row for row in rows}


def write_table(table: Path, rows: dict) -> None:
    """Whole or not at all, so that a full disk or Ctrl-C leaves the table of a moment before."""
    tasks = {name for row in rows.values() for name in row if name and name[-1].isdecimal()}
    names = [*COLUMNS, *sorted(tasks, key=place_of), "says"]
    names += [f"{task} says" for task in sorted(tasks, key=place_of)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", extrasaction="ignore", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(
        {name: as_cell(value) for name, value in rows[key].items()} for key in sorted(rows)
    )
    write(table, "\ufeff" + text.getvalue())  # the mark by which Excel knows UTF-8


def place_of(task: str) -> tuple[str, int]:
    lab, number = task.rsplit(".", 1)
    return lab, int(number)


def as_cell(value) -> str:
    """Text that no spreadsheet takes for a formula: names and messages come from students."""
    text = str(value)
    return "'" + text if text.startswith(FORMULA) else text


def from_cell(text: str | None) -> str:
    text = text or ""
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA) else text


def write_report(table: Path, student: str, rows: dict) -> None:
    """What a student may read: every task with its points, its status and what to look at."""
    name = "".join(letter if letter.isalnum() or letter in "-_. " else "_" for letter in student)
    mine = [rows[key] for key in sorted(rows) if key[0] == student]
    text = "\n".join(report(row) for row in mine)
    write(reports_of(table) / f"{name}.txt", text.replace("\n", os.linesep))


def report(row: dict) -> str:
    """One submission in words."""
    head = f"{row['file']}: {row['status']}"
    if row["possible"] != "":
        head = f"{row['file']}: {row['points']} of {row['possible']} points, {row['status']}"
    tasks = sorted((name for name in row if name and name[-1].isdecimal() and row[name] != ""))
    lines = [
        f"  {name}  {row[name]}  {row[f'{name} says']}" for name in sorted(tasks, key=place_of)
    ]
    return "\n".join([head, *(lines or [f"  {row['says']}"]), ""])
