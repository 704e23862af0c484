"""What the name of a file or folder in an archive of Canvas or Moodle tells of who handed it in.

In a group assignment the name is the team's. Canvas then writes the id of one member, and Moodle
the number of the team, so that the id alone does not say whose the work is.
"""

import re
from dataclasses import dataclass

# What follows the student in a name of Canvas: the file's id and its name, or what was typed in.
FILE = r"_(?:[1-9]\d*_.+|(?:text|link)\.html)"
# adamsanna_LATE_4711_815_02_masking_lab-1.ipynb: the student, the user's id, the file's id.
CANVAS = re.compile(rf"(?P<name>[^\sA-Z]+?)_(?P<late>LATE_)?(?P<id>[1-9]\d*){FILE}", re.S)
# LATE_anon_x7Kq2_815_02_masking_lab.ipynb: in anonymous marking there is no user's id.
ANONYMOUS = re.compile(rf"(?P<late>LATE_)?(?P<name>anon_[^\W_]+){FILE}", re.S)
# Anna Adams_4711_assignsubmission_file_, which is a folder, or the beginning of a file's name.
MOODLE = re.compile(r"(?P<name>.+?)(?:_(?P<id>\d+))?_assignsubmission_[a-z]+(?:_.*)?", re.S)


@dataclass(frozen=True)
class Told:
    """What a name tells."""

    student: str
    id: str = ""  # "" if the name holds none
    late: int | None = None  # days, as far as the name tells; None if it tells nothing


def read(name: str) -> Told | None:
    """What the name of a file or folder tells, or None if neither Canvas nor Moodle wrote it.

    Canvas writes that a file is late, but not by how much, so it counts as one day late.
    """
    if found := ANONYMOUS.fullmatch(name):
        return Told(found["name"], late=int(bool(found["late"])))
    if found := CANVAS.fullmatch(name):
        return Told(found["name"], found["id"], int(bool(found["late"])))
    if found := MOODLE.fullmatch(name):
        # "Participant 7" is Moodle's own name for the number; its "ID number" is another one.
        return Told(found["name"], f"Participant {found['id']}" if found["id"] else "")
    return None
