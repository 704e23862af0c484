"""Finds out who handed in the same answers, to all tasks of a lab or to most of them."""

import hashlib
import json
from collections import defaultdict
from dataclasses import asdict

from classroom.lab import STUB, Lab, Submission
from classroom.remarks import bare

MOST = 3  # fewer equal answers are not told, because short tasks have few good solutions
NAMED = 5  # so many files are named


def fingerprint(lab: Lab, submission: Submission) -> str:
    """A hash of the student's answers and of the lab's tasks and checks, and after it a hash of
    each answer, such as `02.1=3f8a09c4`. They do not depend on comments, layout or outputs."""
    answers = {task: [bare(cell) for cell in cells] for task, cells in submission.answers.items()}
    told = ["w" + hashed([[asdict(part) for part in lab.parts], answers, submission.loose], 15)]
    for name, cells in answers.items():
        if not any(STUB.format(name) in cell for cell in cells):
            told.append(f"{name}={hashed(cells, 10)}")
    return " ".join(told)


def hashed(told, digits: int) -> str:
    """The first digits of a hash."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:digits]


def say_who_agrees(rows: list[dict]) -> None:
    """Write into the column "same answers" of the table's rows which other files have answers in
    common with them, such as `in all tasks: bo.ipynb`. Files are compared, and not students,
    because two students may have one name."""
    files, having = defaultdict(list), defaultdict(list)  # by what they hold; who has an answer
    for row in rows:
        row["same answers"] = ""
        if row["work"] and str(row["points"]) != "0":
            files[row["work"]].append(row)
    for work in files:
        for answer in work.split()[1:]:
            having[answer].append(work)
    for work, equal in files.items():
        parts = shared(work, having)
        for row in equal:
            told = [some("in all tasks: ", (one for one in equal if one is not row))]
            for tasks, works in parts.items():
                others = [one for other in works for one in files[other]]
                told.append(some(f"in {tasks}: ", others))
            row["same answers"] = "; ".join(filter(None, told))


def shared(work: str, having: dict[str, list[str]]) -> dict[str, list[str]]:
    """The other works that have most of the answers of `work`, by the tasks of these answers."""
    tasks, found = defaultdict(list), defaultdict(list)
    whole, *answers = work.split()
    for answer in answers:
        for other in having[answer]:
            tasks[other].append(answer.partition("=")[0])
    for other, equal in tasks.items():
        if other != work and len(equal) >= max(MOST, len(answers) // 2 + 1):
            found[", ".join(equal)].append(other)
    return found


def some(what: str, rows) -> str:
    """A text that names the files of some rows, or "" if there are none."""
    names = sorted(row["file"] for row in rows)
    more = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    return f"{what}{', '.join(names[:NAMED])}{more}" if names else ""
