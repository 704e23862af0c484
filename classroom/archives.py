"""Unpacks the zip file of a class, and finds out which student handed in which file.

Canvas and Moodle write the name and the number of a student into the name of a file or a folder. A
plain zip file holds a folder or a file for each student. Whatever a zip file holds, nothing is
written outside of the folder that it is unpacked into.
"""

import contextlib
import errno
import math
import os
import re
import stat
import zipfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from classroom.lab import Refused

# adamsanna_LATE_4711_815_02_masking_lab-1.ipynb: the student, the user's id, the file's id.
CANVAS = re.compile(r"(?P<name>[^\sA-Z]+?)_(?P<late>LATE_)?(?P<id>[1-9]\d*)_[1-9]\d*_.+", re.S)
# Anna Adams_4711_assignsubmission_file_, which is a folder, or the beginning of a file's name.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+(_.*)?", re.S)
CLASS = 5_000_000_000, 50_000  # bytes and files to which the zip file of a class may unpack
STUDENT = 200_000_000, 1_000  # the same limits for a zip file that a student handed in


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpack the zip file of a class into a new folder. A zip file that a student handed in is
    unpacked as well, into a folder beside it.

    Returns:
        A sentence for each file that was left out. The zip file of a student stays as it is if it
        cannot be unpacked.

    Raises:
        Refused: the file of the class is not a zip file, or it is too large.
    """
    told = extract(archive, folder, *CLASS)
    for own in sorted(folder.rglob("*.zip")):
        inside = own.with_suffix("")
        try:
            told += extract(own, inside, *STUDENT)
            own.unlink()
        except (Refused, FileExistsError) as error:
            told.append(f"{own.relative_to(folder)}: {error}")
    return told


def extract(archive: Path, folder: Path, size: int, files: int) -> list[str]:
    """Unpack one zip file of at most `size` bytes and `files` files; returns as `unpack`."""
    told = []
    try:
        opened = zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Refused(f"{archive.name} cannot be read as a zip: {error}") from None
    with opened:
        members = opened.infolist()
        # The sizes are those that the zip file states, and zipfile never reads more than these.
        if sum(one.file_size for one in members) > size or len(members) > files:
            most = f"{size / 1e6:,.0f} MB or {files:,} files"
            raise Refused(f"{archive.name} unpacks to more than {most}; so much is not allowed")
        folder.mkdir(parents=True)
        for member in members:
            member.filename = name_of(member).replace("\\", "/")
            try:
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise Refused("it is a link")
                if (folder / member.filename).is_file():
                    raise Refused("there is another of this name")
                path = opened.extract(member, folder)  # never writes outside of `folder`
                with contextlib.suppress(ValueError, OverflowError):  # a date that does not exist
                    os.utime(path, (datetime(*member.date_time).timestamp(),) * 2)
            except Exception as error:  # for example: damaged, encrypted, too long a name
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise
                told.append(f"{member.filename} was left out: {error or type(error).__name__}")
    return told


def shown(path: Path, folder: Path) -> bool:
    """Whether a file below a folder is a person's, and not a file that the operating system, Python
    or Jupyter keeps there for itself."""
    parts = path.relative_to(folder).parts
    return not any(part.startswith((".", "__pyc", "__MAC")) for part in parts)


def name_of(member: zipfile.ZipInfo) -> str:
    """The name of a file in a zip file. zipfile reads a name as cp437 if the file lacks the flag
    for UTF-8, but many such names are UTF-8 nevertheless."""
    if not member.flag_bits & 0x800:
        with contextlib.suppress(UnicodeError):
            return member.filename.encode("cp437").decode("utf-8")
    return member.filename


def identify(submissions: list, due: datetime | None = None) -> list:
    """Add to each submission the student and the days by which it is late, as far as the name and
    the time of its file tell them.

    Canvas writes that a file is late, but not by how much, so it counts as one day late. The times
    of the files do not help, because Canvas sets them to the time at which it packed them. For all
    other files their time decides, if `due` is given.
    """
    named = []
    for one in submissions:
        top = one.file.split("/")[0]
        found = MOODLE.fullmatch(top) or CANVAS.fullmatch(top)
        # A file is in time until the end of the minute that `due` names.
        late = (one.path.lstat().st_mtime - due.timestamp() - 60) / 86400 if due else 0
        if found:
            id = found["id"]
            if found.re is CANVAS:
                late = 1 if found["late"] else 0
            else:
                id = f"Participant {id}"  # Moodle's name for it; its "ID number" is another
            one = replace(one, student=found["name"], id=id)
        named.append(replace(one, late=max(0, math.ceil(late))))
    return named
