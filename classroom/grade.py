"""Marks a class: writes a table with a row for each file that was handed in, and a copy of each
notebook with the marker's messages.

Whatever a submission is or does, the other submissions get their marks. A mark in the table is kept
as long as neither the student's answers nor the lab have changed.
"""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from filelock import FileLock
from tqdm import tqdm

from classroom import tables
from classroom.agreement import fingerprint, say_who_agrees
from classroom.archives import Unpacked, shown
from classroom.cells import ended
from classroom.feedback import feedback
from classroom.hand_ins import Found, find, readable, reports_of
from classroom.lab import Lab, Refused, labs, read_lab, read_submission
from classroom.marker import RAN, Limits, Mark, mark
from classroom.remarks import remarks
from classroom.tables import number
from mlm_lib.engine.files import write

COLUMNS = ["student", "id", "file", "lab", "status", "points", "possible", "late", "seconds"]
COLUMNS += ["look at", "same answers", "late found", "work"]
TASK = re.compile(r"(\w+)\.(\d+)( says| seconds)?")  # a column of one task
COMPLETE, MARKED, PARTLY, UNREAD = "complete", "marked", "not all could be run", "not read"
FAILED, WAITING = "could not be run", "not marked yet"


def grade(unpacked: Unpacked, table: Path, limits: Limits, jobs=1, again=False, due=None):
    """Mark everything that was handed in, and write the rows into `table` while they are marked.
    Several runs may write into one table at the same time. Returns the rows of the table.

    Args:
        jobs: how many submissions are marked at once.
        again: also mark submissions that have not changed.
        due: a file that is newer than this time counts as late.

    Raises:
        Refused: `table` exists and is not a table of marks. It is left as it is.
    """
    rows = read_table(table)
    sources = {key: read_lab(path) for key, path in labs().items()}
    submissions = find(unpacked, table, due)
    # If the marking is interrupted, the table says of whom there is no mark yet.
    waiting = {"status": WAITING, "points": 0, "says": "the marking was interrupted; repeat it"}
    keys = [(found.student, found.file) for found in submissions]
    if first := [key for key in keys if key not in rows]:
        put(table, {(s, f): {"student": s, "file": f} | waiting for s, f in first}, new=True)

    def one(found: Found) -> dict:
        old = rows.get((found.student, found.file), {})
        row = grade_one(found, sources, limits, old, again, reports_of(table))
        return row if filled(row) != filled(old) else {}

    new, last, took = {}, 0.0, 0.0
    # Another thread writes the table. Ctrl-C in this one could leave the lock of the table closed,
    # or could be ignored, as Python ignores every exception in the lock's method `__del__`.
    with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(one, found) for found in submissions]
        try:
            ending = as_completed(started)
            for future in tqdm(ending, total=len(started), unit="notebook", disable=None):
                if row := future.result():
                    new[row["student"], row["file"]] = row
                # A table of 2,000 rows takes long to write, so it is not written for each of them.
                if new and time.monotonic() - last > 10 * took:
                    last = time.monotonic()
                    writer.submit(put, table, new).result()
                    new, took = {}, time.monotonic() - last
        except BaseException:
            ended.set()  # stops the running markings; the table gets those that are finished
            pool.shutdown(cancel_futures=True)
            ended.clear()  # all have stopped, and this process may mark again
            writer.submit(put, table, new).result()
            raise
    return put(table, new, whole=True)


def grade_one(found: Found, sources, limits: Limits, old: dict, again: bool, reports: Path) -> dict:
    """The row of one submission. It keeps the marks of the row `old` if neither the answers nor the
    lab changed, unless `again` is true.

    Otherwise the submission is marked, and a copy of the notebook with messages is written into
    `reports`. The copy has the same name and folder as the notebook, because Canvas and Moodle
    recognise by these whose feedback it is.
    """
    row = {name: text for name, text in old.items() if not ours(name)}  # a teacher's own columns
    row |= dict.fromkeys(COLUMNS, "") | {"points": 0, "status": UNREAD}
    row |= {"student": found.student, "file": found.file} | whose(found, old)
    if old.get("status") == UNREAD:  # a teacher may give points for what cannot be read here
        row |= {name: old[name] for name in ("lab", "points", "possible")}
    try:
        if found.leaves:
            says = "a link that leads elsewhere; hand in the file itself"
            return row | {"look at": "a link", "says": says}
        if found.path.is_dir():
            return row | {"says": nothing_in(found.path)}
        submission = read_submission(found.path, sources)
        lab = sources[submission.key]
        row |= {"lab": lab.path.stem, "points": 0, "possible": lab.points}
        row |= {"work": fingerprint(lab, submission)}
        was, now = (one.split() for one in (old.get("work", ""), row["work"]))
        if was[:1] != now[:1] and was[1:] != now[1:]:  # the answers changed, not only the lab
            row |= {"late": row["late found"]}  # what a teacher wrote was about the earlier answers
        if was[:1] == now[:1] and not again and old["status"] != FAILED:
            return old | {name: row[name] for name in ("id", "late", "late found", "work")}
        row |= {"status": FAILED, "look at": "; ".join(remarks(lab, submission))}
        marks = mark(lab, submission, limits)
        row["look at"] = "; ".join(remarks(lab, submission, marks))
        told = json.dumps(feedback(found.path, marks), indent=1)
        write(reports / found.path.relative_to(found.root), told)
        return row | summary(lab, marks)
    except Refused as error:
        return row | {"says": str(error)}
    except Exception as error:  # a bug of the marker must not stop the marking of the class
        return row | {"status": FAILED, "says": f"{type(error).__name__}: {error}"}


def whose(found: Found, old: dict) -> dict:
    """The columns `id` and `late`. What a teacher has written there is kept, and anything else is
    renewed. The column `late found` holds what the marker found, so that one can be told from the
    other. If nothing tells how late a file is, the days of an earlier run are kept."""
    id, late, before = old.get("id", ""), old.get("late", ""), old.get("late found", "")
    now = before if found.late is None else str(found.late)
    return {"id": id or found.id, "late": now if late in ("", before) else late, "late found": now}


def filled(row: dict) -> dict:
    """The cells of a row that are not empty, as text."""
    return {name: str(value) for name, value in row.items() if value != ""}


def nothing_in(folder: Path) -> str:
    """What to say of a folder without a notebook."""
    there = sorted(
        path.name for path in folder.rglob("*") if path.is_file() and shown(path, folder)
    )
    names = ", ".join(readable(name) for name in there[:3]) + ", …" * (len(there) > 3)
    return "no notebook in this folder" + (f", which holds {names}" if there else "")


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


def by_hand(row: dict) -> bool:
    """Whether a teacher has written the points of a row of the table, because they are not the sum
    of the points of the tasks."""
    return number(row["points"]) != sum(number(row[task]) for task in tasks_of(row) if task in row)


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


def put(table: Path, rows: dict, whole=False, new=False) -> list[dict]:
    """Put rows into the table of marks. Rows that another run has written meanwhile stay. Returns
    all rows.

    Args:
        whole: whether the run is at its end, so that all rows can be compared with each other.
        new: whether rows that are in the table already stay as they are.
    """
    table.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(table.with_name(f".{table.name}.lock")):
        there = read_table(table)
        rows = rows | there if new else there | rows
        if whole:
            say_who_agrees(list(rows.values()))
        write_table(table, rows)
    return [rows[key] for key in sorted(rows)]


def write_table(table: Path, rows: dict) -> None:
    """Write the table of marks: our columns, those of the tasks, and a teacher's own."""
    names = dict.fromkeys(name for row in rows.values() for name in row)
    tasks = tasks_of(names)
    columns = [*COLUMNS, *tasks, "says", *(f"{task} says" for task in tasks)]
    columns += [*(f"{task} seconds" for task in tasks), *(n for n in names if not ours(n))]
    tables.write_rows(table, columns, (rows[key] for key in sorted(rows)))
