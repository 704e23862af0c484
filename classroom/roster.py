"""Finds the lines of a gradebook to which a hand-in belongs: a student's, or those of a team.

A student is found by the id and by the name. Where the two contradict each other, nobody gets
points, because in a group assignment the name is the team's, and the id is another one.
"""

import re
import unicodedata
from collections import defaultdict
from pathlib import Path

from classroom import names, tables
from classroom.lab import Refused

# The columns that identify a student in Canvas and in Moodle.
FIRST, LAST = ("FirstName", "First name"), ("LastName", "Last name", "Surname")
IDS = ("ID", "SIS User ID", "SIS Login ID", "ID number", "Username", "Email address", "Identifier")

BY_ID = "write an id into the column id"


class Roster:
    """The lines of a gradebook, by the students' ids, names and teams."""

    def __init__(self, path: Path, teams: Path | None = None):
        """
        Args:
            path: the exported gradebook.
            teams: a table with the columns team and member, with a line for each member.

        Raises:
            Refused: a table cannot be read, or `teams` lacks a column.
        """
        self.name = path.name
        self.header, self.lines, self.separator = tables.parse(path)
        self.table = teams.name if teams else ""
        self.ids, self.names, self.teams = (defaultdict(list) for _ in range(3))
        self.told = []  # a sentence for each member of a team who is not found, or is in two
        self.idle = {}  # the teams of the table of teams of which no row was looked for, in order
        for place, line in enumerate(self.lines):
            for id in {line.get(column, "").strip().casefold() for column in IDS} - {""}:
                self.ids[id].append(place)
            for name in spellings(line):
                self.names[name].append(place)
            if team := line.get("Group"):  # in Moodle's worksheet of a group assignment
                self.teams[team].append(place)
        if teams:
            self.add_teams(teams)

    def add_teams(self, path: Path) -> None:
        """Read the table of teams."""
        header, lines, _ = tables.parse(path)
        if not {"team", "member"} <= set(header):
            raise Refused(f"{path} needs the columns team and member, with a line for each member")
        team_of = {}
        for line in lines:
            team, member = line["team"], line["member"]
            try:
                place = self.student(member, remedy="write a name or an id as it is there")
            except Refused as error:
                self.told.append(f"{path.name}, {member}: {error}")
                continue
            if team_of.setdefault(place, team) != team:
                self.told.append(f"{path.name}, {member}: is in {team_of[place]} and in {team}")
            self.teams[team].append(place)
            self.idle[team] = None

    def find(self, row: dict) -> list[int]:
        """The places of the lines to which a row of the table of marks belongs.

        Raises:
            Refused: nobody is found, or it is not certain who is meant.
        """
        entry = row["file"].split("/")[0]
        if team := self.team(row["student"], entry):
            self.idle.pop(team, None)
            return self.teams[team]
        told = names.read(entry)
        written = row["id"] != (told.id if told else "")
        no_team = f"; if it is a team, {self.table} has no team of this name" * bool(self.table)
        return [self.student(row["student"], row["id"], written, BY_ID + no_team)]

    def team(self, name: str, entry: str) -> str:
        """The team that has a name, or that the name of a file of Canvas begins with; else "".
        Canvas leaves out spaces, and what follows a team's name may look like a part of it."""
        found = [""]
        for team in self.teams:
            start = re.sub(r"\W", "", team).lower()
            in_canvas = start and re.match(rf"{start}_(LATE_)?\d", entry)
            if in_canvas or team.strip() == name or squeezed(team) == squeezed(name) != "":
                found.append(team)
        return max(found, key=len)

    def student(self, name: str, id="", written=False, remedy=BY_ID) -> int:
        """The place of a student's line.

        Args:
            name: the name, or one of the ids, since a student's folder may have it as its name.
            written: whether a teacher has written the id. It counts more than the name then.
            remedy: what helps if it is not certain who is meant, for the message.
        """
        by_name = {*self.names.get(squeezed(name), ()), *self.ids.get(name.strip().casefold(), ())}
        found = by_name
        if id and not (id.startswith("Participant ") and "Identifier" not in self.header):
            by_id = set(self.ids.get(id.strip().casefold(), ()))
            nameless = not any(spellings(self.lines[place]) for place in by_id)
            found = by_id & by_name or (by_id if written or nameless else set())
            if not found and written:
                raise Refused(f"nobody in {self.name} has the id {id}")
            if not found and by_id | by_name:
                raise Refused(
                    f"in {self.name} the id {id} is {self.whose(by_id)}, and the name is "
                    f"{self.whose(by_name)}; if this is the work of a team, name its members with "
                    "--teams, else write another id of the student into the column id"
                )
        if not found:
            raise Refused(f"nobody in {self.name} has this name; {remedy}")
        if len(found) > 1:
            raise Refused(f"several in {self.name} can be meant; {remedy}")
        return found.pop()

    def whose(self, places: set[int]) -> str:
        """The names of the students at some places, for a message."""
        found = [" ".join(filter(None, parts(self.lines[place]))) for place in sorted(places)]
        return " and ".join(f"that of {name}" for name in found) or "nobody's"


def parts(line: dict) -> tuple[str, str]:
    """The last name and the first name in a line of a gradebook. If the line has only the whole
    name, as in Moodle's worksheets, it takes the place of the first name."""
    last, _, first = line.get("Student", "").partition(",")
    last += "".join(line.get(name, "") for name in LAST)
    first += "".join(line.get(name, "") for name in (*FIRST, "Full name"))
    return last.strip(), first.strip()


def spellings(line: dict) -> set[str]:
    """The student's name as `squeezed` writes it. In the names of files Canvas writes the last name
    first, and Moodle the first name."""
    last, first = parts(line)
    return {squeezed(first + last), squeezed(last + first)} - {""}


def squeezed(name: str) -> str:
    """A name's letters and digits in lower case, without anything else."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFC", name).casefold()))
