"""Writes the points of a class into a gradebook that Canvas or Moodle exported.

The new file keeps the lines of the exported gradebook, its separator and the columns that identify
a student, so that Canvas or Moodle can import it. `points` holds the rules for late work.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from pathlib import Path

from classroom.grade import FAILED, UNREAD, WAITING, read_table
from classroom.lab import Refused
from classroom.roster import FIRST, IDS, LAST, Roster, parts
from classroom.tables import is_number, number
from mlm_lib.engine.files import write

KEPT = {"Student", *FIRST, *LAST, *IDS, "Integration ID", "Root Account", "Section"}
KEPT |= {"Institution", "Department"}
LISTED = 40  # so many students without a mark are named
WORKSHEET = {"Identifier", "Grade"}  # columns of Moodle's grading worksheet of one assignment


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


def gradebook(
    marks: Path, roster: Path, out: Path, count="best", late=0.0, teams: Path | None = None
) -> list[str]:
    """Write the file `out`: the exported gradebook `roster` with the points for each lab in the
    table `marks`. If `roster` is Moodle's grading worksheet of an assignment, it keeps all of its
    columns, and the points are its grades.

    Returns:
        A sentence for each row of `marks` that does not count, for each team without a row, for
        each column of points with the students who have no mark there, and for each column whose
        possible points differ.

    Raises:
        Refused: `marks` is not a table of marks, or `roster` is not a gradebook, or it is not
            certain into which column the points belong.
    """
    book = Roster(roster, teams)
    header, worksheet = book.header, WORKSHEET <= set(book.header)
    if not (
        worksheet or {"ID", "Section"} <= set(header) or {"ID number", "Email address"} & {*header}
    ):
        raise Refused(
            f"{roster} is no gradebook: one of Canvas has the columns Student, ID, … Section, one "
            "of Moodle First name, Last name, ID number, Email address, and a grading worksheet of "
            "Moodle Identifier and Grade (export it in English)"
        )
    told, hand_ins, possible = book.told, defaultdict(list), {}
    for row in read_table(marks).values():
        try:
            if row["status"] in (FAILED, WAITING) or not row["lab"]:
                given = row["status"] == UNREAD and number(row["points"])
                more = "; for its points to count, write the lab's number into the column lab"
                raise Refused(f"{row['status']}, {row['says']}" + more * bool(given))
            places = book.find(row)
            told += doubtful(row)
        except Refused as error:
            told.append(f"{row['student']}, {row['file']}: {error}")
            continue
        key = row["lab"].split("_")[0]
        key = key.zfill(2) if key.isdecimal() else key  # a spreadsheet makes 2 of 02
        possible[key] = number(row["possible"]) or possible.get(key, 0)
        for place in places:
            hand_ins[place, key].append(row)
    told += [f"{teams.name}, {team}: {marks.name} has no work of this team" for team in book.idle]
    if worksheet and len(possible) > 1:
        labs = " and ".join(sorted(possible))
        raise Refused(f"{roster} is for one assignment, but {marks} holds the labs {labs}")
    columns = {key: "Grade" if worksheet else column(key, header) for key in sorted(possible)}
    for key, name in columns.items():
        new = "" if name in header else f", which is new: {roster.name} has no column for it"
        told.append(f"the points of lab {key} are in the column {name}{new}")
    kept = [name for name in header if worksheet or name in KEPT]
    table = [list(dict.fromkeys([*kept, *columns.values()]))]
    for place, line in enumerate(book.lines):
        for key, name in columns.items():
            there = line.setdefault(name, "")  # kept, because an empty cell would remove points
            if "Points Possible" in line.get("Student", ""):
                line[name] = there or f"{possible[key]:g}"
                if number(line[name]) != possible[key]:
                    told.append(
                        f"{name} is out of {there} there, and out of {possible[key]:g} here"
                    )
            elif (place, key) in hand_ins:
                most = next((line[name] for name in header if name.lower() == "maximum grade"), "")
                if most and number(most) != possible[key]:
                    told.append(f"{name} is out of {most} there, and out of {possible[key]:g} here")
                line[name] = f"{round(points(hand_ins[place, key], count, late), 2):g}"
        table.append([line[name] for name in table[0]])
    for key, name in columns.items():
        lacking = [line for at, line in students(book) if (at, key) not in hand_ins]
        if lacking:
            told.append(f"{name}: {marks.name} has no points for {some(lacking)}")
    text = io.StringIO()
    csv.writer(text, delimiter=book.separator).writerows(table)
    write(out, text.getvalue())
    return list(dict.fromkeys(told))


def doubtful(row: dict) -> list[str]:
    """A sentence if the points of a row are fewer than none, or more than all.

    Raises:
        Refused: the points, or the days late, are not a number.
    """
    for name, text in {"points": row["points"], "days late": row["late"] or "0"}.items():
        if not is_number(text):
            raise Refused(f"its {name} are {text!r}, which is not a number, so it does not count")
    most = number(row["possible"])
    if number(row["points"]) < 0 or number(row["points"]) > most > 0:
        points = f"{row['points']} points of {row['possible']}"
        return [f"{row['student']}, {row['file']}: has {points}; it counts as it is written"]
    return []


def students(book: Roster) -> list[tuple[int, dict]]:
    """The lines of a gradebook that are a student's, with their places. Canvas's line of possible
    points, and the student that Canvas invents for tests, are none."""
    found = []
    for place, line in enumerate(book.lines):
        name = line.get("Student", "")
        invented = "Points Possible" in name or name == "Student, Test"
        if not invented and any(line.get(column) for column in ("Student", *FIRST, *LAST, *IDS)):
            found.append((place, line))
    return found


def called(line: dict) -> str:
    """The name in a line of a gradebook, or an id if the line has no name."""
    return ", ".join(filter(None, parts(line))) or id_of(line)


def id_of(line: dict) -> str:
    """The first id in a line of a gradebook, or "" if there is none."""
    return next(filter(None, (line.get(column, "") for column in IDS)), "")


def some(lines: list[dict]) -> str:
    """How many students these lines of a gradebook are, and the names of the first ones. If two
    of them have one name, their ids are told as well."""
    twice = {name for name, n in Counter(map(called, lines)).items() if n > 1}
    names = [called(one) + f" ({id_of(one)})" * (called(one) in twice) for one in lines]
    more = f"; and {len(names) - LISTED} more" if len(names) > LISTED else ""
    count = f"{len(names)} student{'s' * (len(names) > 1)}"
    return f"{count}: {'; '.join(names[:LISTED])}{more}"


def column(key: str, header: list[str]) -> str:
    """The name of a lab's column in the gradebook, such as `lab 02 (815)`, `Lab 2: masking (815)`
    or `Assignment: lab 02 (Real)`. It is `lab 02` if the gradebook has no such column yet.

    Raises:
        Refused: several columns have such a name.
    """
    number = f"0*{int(key)}" if key.isdecimal() else re.escape(key)
    # Moodle can export a grade as (Real), which are points, as (Percentage) and as (Letter).
    title, kind = r"( ?[:.–—-] [^()]*?)?", r"( \((?!percentage|letter).*\))?"
    form = re.compile(rf"(.*: ?)?lab[ _-]?{number}{title}{kind}", re.I)
    found = [name for name in header if form.fullmatch(name)]
    if len(found) > 1:
        raise Refused(f"several columns can be that of lab {key}: {', '.join(found)}; rename one")
    return found[0] if found else f"lab {key}"
