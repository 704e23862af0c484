"""A class's archive, unpacked, and whose each file in it is.

Canvas and Moodle write a student's name and number into the name of a file or a folder; a plain zip
holds a folder or a file for each student. Whatever an archive holds, nothing is written outside of
the folder that it is unpacked into.
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
# Anna Adams_4711_assignsubmission_file_, a folder; or the beginning of a file's name.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+(_.*)?", re.S)
CLASS = 5_000_000_000, 50_000  # bytes and files that an archive may unpack to
STUDENT = 200_000_000, 1_000  # the same for what a student has packed


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpack a class's zip into a new folder, and what students have packed themselves beside it.

    Returns:
        A sentence for each thing that was left out. A student's own zip that cannot be unpacked
        stays as it is.

    Raises:
        Refused: the class's zip is no zip, or too large.
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
    told = []
    try:
        opened = zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Refused(f"{archive.name} cannot be read as a zip: {error}") from None
    with opened:
        members = opened.infolist()
        # As the archive tells it: no more than that is read from it.
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
                path = opened.extract(member, folder)  # which leads nowhere else, whatever its name
                with contextlib.suppress(ValueError, OverflowError):  # the 0th of a month
                    os.utime(path, (datetime(*member.date_time).timestamp(),) * 2)
            except Exception as error:  # damaged, encrypted, a name that is too long
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise
                told.append(f"{member.filename} was left out: {error or type(error).__name__}")
    return told


def shown(path: Path, folder: Path) -> bool:
    """Whether a file below a folder is none of the system's, Python's or Jupyter's own."""
    parts = path.relative_to(folder).parts
    return not any(part.startswith((".", "__pyc", "__MAC")) for part in parts)


def name_of(member: zipfile.ZipInfo) -> str:
    """A file's name. Without its mark for UTF-8 zipfile reads cp437; many such names are UTF-8."""
    if not member.flag_bits & 0x800:
        with contextlib.suppress(UnicodeError):
            return member.filename.encode("cp437").decode("utf-8")
    return member.filename


def identify(submissions: list, due: datetime | None = None) -> list:
    """Say of each submission whose it is and how late, where its file's name and time tell.

    Canvas notes that work is late, not by how much: this counts as a day, since its archives hold
    the time at which they were packed. For all else the file's time decides, if `due` is given.
    """
    named = []
    for one in submissions:
        top = one.file.split("/")[0]
        found = MOODLE.fullmatch(top) or CANVAS.fullmatch(top)
        # The minute that `due` names belongs to it.
        late = (one.path.lstat().st_mtime - due.timestamp() - 60) / 86400 if due else 0
        if found:
            id = found["id"]
            if found.re is CANVAS:
                late = 1 if found["late"] else 0
            else:
                id = f"Participant {id}"  # as Moodle calls it, whose "ID number" is another
            one = replace(one, student=found["name"], id=id)
        named.append(replace(one, late=max(0, math.ceil(late))))
    return named
