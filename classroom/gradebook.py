"""Writes the points of a class into a gradebook that Canvas or Moodle exported.

The new file keeps the lines of the exported gradebook, its separator and the columns that identify
a student, so that Canvas or Moodle can import it. `points` holds the rules for late work.
"""

import csv
import io
import re
import unicodedata
from collections import defaultdict
from pathlib import Path

from classroom import tables
from classroom.grade import FAILED, read_table
from classroom.lab import Refused
from classroom.tables import number
from mlm_lib.engine.files import write

# The columns that identify a student in Canvas and in Moodle.
FIRST, LAST = ("FirstName", "First name"), ("LastName", "Last name", "Surname")
IDS = ("ID", "SIS User ID", "SIS Login ID", "ID number", "Username", "Email address")
KEPT = {"Student", *FIRST, *LAST, *IDS, "Integration ID", "Root Account", "Section"}
KEPT |= {"Institution", "Department"}


def points(hand_ins: list[dict], count: str, late: float) -> float:
    """The points of a student for one lab. If your class has other rules, change this function.

    Args:
        hand_ins: the rows of the table of marks for this student and this lab. count: "best" counts
            the hand-in with the most points, "last" the latest one: the one that is
            late by most days, and among equals the last by its name, in which Canvas counts up.
        late: the share of the points that is lost for each day late. A day that has begun counts.
    """
    # Names are sorted by length first, because -10 comes after -2.
    hand_ins.sort(key=lambda row: (number(row["late"]), len(row["file"]), row["file"]))
    share = [max(0, 1 - late * number(row["late"])) for row in hand_ins]
    worth = [number(row["points"]) * part for row, part in zip(hand_ins, share)]
    return worth[-1] if count == "last" else max(worth)


def gradebook(marks: Path, roster: Path, out: Path, count="best", late=0.0) -> list[str]:
    """Write the file `out`: the exported gradebook `roster` with a column of points for each lab in
    the table `marks`.

    Returns:
        A sentence for each row of `marks` that does not count, and for each column whose possible
        points differ.

    Raises:
        Refused: `marks` is not a table of marks, or `roster` is not a gradebook.
    """
    header, lines, separator = tables.parse(roster)
    if not ({"ID", "Section"} <= set(header) or {"ID number", "Email address"} & set(header)):
        raise Refused(
            f"{roster} is no gradebook: one of Canvas has the columns Student, ID, … Section, one "
            "of Moodle First name, Last name, ID number, Email address (export it in English)"
        )
    told, hand_ins, possible = [], defaultdict(list), {}
    for row in read_table(marks).values():
        places, says = find(row, lines), ""
        if not row["lab"] or row["status"] == FAILED:
            says = f"{row['status']}, {row['says']}"
        elif len(places) != 1:
            says = f"{'several' if places else 'nobody'} in {roster.name} can be meant"
        else:
            title = f"lab {row['lab'].split('_')[0]}"
            hand_ins[places[0], title].append(row)
            possible[title] = number(row["possible"])
        told += [f"{row['student']}, {row['file']}: {says}"] if says else []
    columns = {title: column(title, header) for title in sorted(possible)}
    kept = [name for name in header if name in KEPT]
    table = [[*kept, *columns.values()]]
    for place, line in enumerate(lines):
        table.append([line[name] for name in kept])
        for title, name in columns.items():
            there = line.get(name, "")  # kept, because an empty cell would remove points
            if "Points Possible" in line.get("Student", ""):
                there = there or f"{possible[title]:g}"
                if number(there) != possible[title]:
                    told.append(f"{name} counts {there} points there, {possible[title]:g} here")
            elif (place, title) in hand_ins:
                there = f"{round(points(hand_ins[place, title], count, late), 2):g}"
            table[-1].append(there)
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(table)
    write(out, text.getvalue())
    return told


def find(row: dict, lines: list[dict]) -> list[int]:
    """The places of the gradebook's lines that may be the student of a row of marks. A line is
    found by the id and by the name."""
    asked = {row["id"].casefold(), row["student"].casefold()} - {""}
    by_id, by_name = [], []
    for place, line in enumerate(lines):
        if asked & {line.get(name, "").strip().casefold() for name in IDS}:
            by_id.append(place)
        last, _, first = line.get("Student", "").partition(",")
        first += "".join(line.get(name, "") for name in FIRST)
        last += "".join(line.get(name, "") for name in LAST)
        # In the names of files Canvas writes the last name first, and Moodle the first name.
        if squeezed(row["student"]) in {squeezed(first + last), squeezed(last + first)} - {""}:
            by_name.append(place)
    return [place for place in by_id if place in by_name] or by_id + by_name


def column(title: str, header: list[str]) -> str:
    """The name of a lab's column in the gradebook, such as `lab 02 (815)`. It is `title` if the
    gradebook has no such column yet."""
    form = re.compile(rf"(.*: ?)?{re.escape(title)}( \(.*\))?", re.I)
    return next((name for name in header if form.fullmatch(name)), title)


def squeezed(name: str) -> str:
    """A name's letters and digits in lower case, without anything else."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFC", name).casefold()))
