"""Marks a class: writes a table with a row for each file in a folder, and a copy of each notebook
with the marker's messages.

Whatever a submission is or does, the other submissions get their marks. A mark in the table is kept
as long as neither the student's answers nor the lab have changed.
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
from classroom.cells import ended
from classroom.feedback import feedback
from classroom.lab import Lab, Refused, Submission, labs, read_lab, read_submission
from classroom.marker import RAN, Limits, Mark, mark
from classroom.remarks import bare, remarks
from mlm_lib.engine.files import write

COLUMNS = ["student", "id", "file", "lab", "status", "points", "possible", "late", "seconds"]
COLUMNS += ["look at", "work"]
TASK = re.compile(r"(\w+)\.(\d+)( says| seconds)?")  # a column of one task
COMPLETE, MARKED, PARTLY, UNREAD = "complete", "marked", "not all could be run", "not read"
FAILED = "could not be run"
SAME = "the same work as "


@dataclass(frozen=True)
class Found:
    """A file or folder in the folder of a class, and the student who handed it in."""

    student: str
    path: Path
    file: str  # its name in the table
    id: str = ""
    late: int = 0  # days; a day that has begun counts


def reports_of(table: Path) -> Path:
    """The folder for the copies with messages, beside the table of marks."""
    return table.with_name(f"{table.stem}_reports")


def find_submissions(folder: Path, table: Path) -> list[Found]:
    """Everything in the folder that may be a submission. Each entry of the folder belongs to one
    student, whose name is the name of the entry.

    Every notebook in a student's folder is a submission, and a folder without a notebook is listed,
    too. Names that begin with a dot are skipped, because they belong to the system or to Jupyter,
    and so are the table of marks and the folder of reports.
    """
    found, ours = [], {real(table), real(reports_of(table))}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or real(entry) in ours:
            continue
        student = readable(entry.name if entry.is_dir() else entry.stem)
        # A link is not followed. `grade_one` reports it.
        below = [] if entry.is_symlink() else sorted(entry.rglob("*.ipynb"))
        for path in [path for path in below if shown(path, folder)] or [entry]:
            found.append(Found(student, path, readable(path.relative_to(folder).as_posix())))
    return found


def readable(name: str) -> str:
    """A file's name as text, even if its bytes are not UTF-8, as in old zip files."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def leaves(path: Path, folder: Path) -> bool:
    """Whether the path of a submission contains a link that leads out of the student's own
    files."""
    home = real(folder) / path.relative_to(folder).parts[0]
    return home.is_symlink() or not real(path).is_relative_to(home)


def real(path: Path) -> Path:
    """The path with all links resolved. A link that leads to itself stays as it is."""
    return Path(os.path.realpath(path))


def grade(folder: Path, table: Path, limits: Limits, jobs=1, again=False, due=None) -> list[dict]:
    """Mark all submissions in `folder`, and write `table` after each of them. Returns the rows.

    Args:
        jobs: how many submissions are marked at once.
        again: also mark submissions that have not changed.
        due: a file that is newer than this time counts as late.

    Raises:
        Refused: `table` exists and is not a table of marks. It is left as it is.
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
            ended.set()  # stops the running markings; the table holds those that are finished
            pool.shutdown(cancel_futures=True)
            raise
    return [rows[key] for key in sorted(rows)]


def grade_one(found: Found, folder: Path, sources, limits: Limits, old: dict, reports: Path):
    """The row of one submission. It is the row `old` if neither the answers nor the lab changed.

    Otherwise the submission is marked, and a copy of the notebook with messages is written into
    `reports`. The copy has the same name and folder as the notebook, because Canvas and Moodle
    recognise by these whose feedback it is.
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
            # The value in the table is kept, because a teacher may have written it.
            late = found.late if old["late"] in ("", "0") else old["late"]
            return old | {"id": old["id"] or found.id, "late": late}
        row |= {"status": FAILED, "look at": "; ".join(remarks(lab, submission))}
        marks = mark(lab, submission, limits)
        told = json.dumps(feedback(found.path, marks), indent=1)
        write(reports / found.path.relative_to(folder), told)
        return row | summary(lab, marks)
    except Refused as error:
        return row | {"says": str(error)}
    except Exception as error:  # a bug of the marker must not stop the marking of the class
        return row | {"status": FAILED, "says": f"{type(error).__name__}: {error}"}


def summary(lab: Lab, marks: list[Mark]) -> dict:
    """The columns of the table that are filled from the marks of one submission."""
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
    """A hash of the student's answers and of the lab's tasks and checks. It does not depend on
    comments, layout or outputs."""
    answers = {task: [bare(cell) for cell in cells] for task, cells in submission.answers.items()}
    told = [[asdict(part) for part in lab.parts], answers, submission.loose]
    return "w" + hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:15]


def say_who_agrees(rows) -> None:
    """Write into the column "look at" who else handed in exactly the same answers."""
    counted = [row for row in rows if row["work"] and str(row["points"]) != "0"]
    for row in counted:
        same = {one["student"] for one in counted if one["work"] == row["work"]} - {row["student"]}
        told = [text for text in row["look at"].split("; ") if text and not text.startswith(SAME)]
        told += [SAME + ", ".join(sorted(same))] if same else []
        row["look at"] = "; ".join(told)


# ------------------------------------------------------------------------------------- the table


def ours(column: str) -> bool:
    """Whether the marker writes this column. Other columns are a teacher's own."""
    return column in (*COLUMNS, "says") or bool(TASK.fullmatch(column))


def tasks_of(names) -> list[str]:
    """The tasks that some names of columns belong to, in order."""
    found = {match.group(1, 2) for match in map(TASK.fullmatch, names) if match}
    return [".".join(task) for task in sorted(found, key=lambda task: (task[0], int(task[1])))]


def read_table(table: Path) -> dict[tuple[str, str], dict]:
    """The rows of the table of marks, by student and file.

    Raises:
        Refused: as `tables.read`.
    """
    rows = tables.read(table, {"student", "file", "work"}, "table of marks")
    empty = dict.fromkeys(COLUMNS, "")
    return {(row["student"], row["file"]): empty | row for row in rows}


def write_table(table: Path, rows: dict) -> None:
    """Write the table of marks: our columns, those of the tasks, and a teacher's own."""
    names = dict.fromkeys(name for row in rows.values() for name in row)
    tasks = tasks_of(names)
    columns = [*COLUMNS, *tasks, "says", *(f"{task} says" for task in tasks)]
    columns += [*(f"{task} seconds" for task in tasks), *(n for n in names if not ours(n))]
    tables.write_rows(table, columns, (rows[key] for key in sorted(rows)))
