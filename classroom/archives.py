"""Unpacks zip files: the one of a class, and those that students handed in.

Whatever a zip file holds, nothing is written outside of the folder that it is unpacked into, no
file is replaced, and one odd zip file costs no other student anything.
"""

import contextlib
import errno
import os
import stat
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from classroom import names
from classroom.lab import Refused

CLASS = 5_000_000_000, 50_000  # bytes and files to which all zip files together may unpack
STUDENT = 200_000_000, 1_000  # the same limits for all zip files of one student together
DEPTH = 3  # so many zip files of a student may be in one another
SYSTEM = ("thumbs.db", "desktop.ini")  # files that Windows keeps in a folder for itself


@dataclass
class Room:
    """How much may still be unpacked."""

    size: int  # bytes
    files: int

    def take(self, members: list[zipfile.ZipInfo], name: str) -> None:
        """Set room aside for the members of a zip file.

        Raises:
            Refused: there is not enough room.
        """
        # The sizes are those that the zip file states, and zipfile never reads more than these.
        size, files = sum(one.file_size for one in members), len(members)
        if size > self.size or files > self.files:
            left = f"{self.size / 1e6:,.0f} MB or {self.files:,} files"
            raise Refused(f"{name} unpacks to more than {left}; so much is not allowed")
        self.size, self.files = self.size - size, self.files - files


@dataclass(frozen=True)
class Unpacked:
    """What a class handed in, after everything was unpacked."""

    roots: list[Path]  # each holds a folder or a file for each student
    opened: set[Path]  # the students' zip files that were unpacked
    told: list[str]  # a sentence for each file that was left out


def unpack(source: Path, place: Path) -> Unpacked:
    """Unpack the zip file of a class, or the zip files in a folder of hand-ins, and the zip files
    in these, into the new folder `place`. `source` is not changed.

    A student's zip file `anna/own.zip` becomes the folder `anna/own`. All files in it get the time
    of the zip file, because that is when they were handed in.

    Raises:
        Refused: the file of the class is not a zip file, or it is too large.
    """
    room, told = Room(*CLASS), []
    if source.is_dir():
        place.mkdir(parents=True)
        roots = [source, place]
    else:
        told += extract(source, place, [room])
        while inner := folder_around(place):
            each = "each file or folder in it is one student's"
            told.append(f"{source.name} holds a single folder, {inner.name}; {each}")
            place = inner
        roots = [place]
    own, opened = defaultdict(lambda: Room(*STUDENT)), set()
    waiting = [(path, path.relative_to(roots[0]), 1) for path in zips(roots[0])]
    for path, name, depth in waiting:  # grows by the zip files that are found in a zip file
        try:
            if depth > DEPTH:
                raise Refused(f"{path.name} is in more than {DEPTH - 1} other zip files")
            inside = unused(name.with_suffix(""), roots)
            time = path.stat().st_mtime
            told += extract(path, place / inside, [own[name.parts[0]], room], time)
            waiting += [(one, one.relative_to(place), depth + 1) for one in zips(place / inside)]
            opened.add(path)
        except Exception as error:  # whatever is wrong with it, the other students do not pay
            stop_if_full(error)
            told.append(f"{name.as_posix()} was not opened: {error}")
    return Unpacked(roots, opened, told)


def folder_around(place: Path) -> Path | None:
    """The only folder in `place`, if the students' files are in it: an operating system that packs
    a folder packs its files with the folder around them."""
    entries = [path for path in place.iterdir() if shown(path, place)]
    if len(entries) != 1 or not entries[0].is_dir() or names.read(entries[0].name):
        return None
    inside = [path for path in entries[0].iterdir() if shown(path, place)]
    one_student = len(inside) == 1 and inside[0].is_file()
    return None if one_student or not inside else entries[0]


def zips(folder: Path) -> list[Path]:
    """The zip files below a folder. A folder or a link with such a name is not one."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() == ".zip")
    return [one for one in found if shown(one, folder) and stat.S_ISREG(one.lstat().st_mode)]


def unused(name: Path, roots: list[Path]) -> Path:
    """The name itself or, if a file has it in one of the folders `roots`, with a number."""
    number, free = 1, name
    while any((root / free).exists() for root in roots):
        number += 1
        free = Path(f"{name}-{number}")
    return free


def extract(archive: Path, folder: Path, rooms: list[Room], time: float | None = None) -> list[str]:
    """Unpack one zip file into a new folder.

    Args:
        rooms: how much may be unpacked.
        time: the time that all files get. By default they get the times in the zip file.

    Returns:
        A sentence for each member that was left out.

    Raises:
        Refused: it is not a zip file, or it is too large. Nothing was written.
    """
    told = []
    try:
        opened = zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Refused(f"{archive.name} cannot be read as a zip file: {error}") from None
    with opened:
        members = opened.infolist()
        for room in rooms:
            room.take(members, archive.name)
        folder.mkdir(parents=True)
        for member in members:
            member.filename = name_of(member)
            try:
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise Refused("it is a link")
                if (folder / member.filename).is_file():
                    raise Refused("there is another of this name")
                path = opened.extract(member, folder)
                with contextlib.suppress(ValueError, OverflowError):  # a date that does not exist
                    when = time or datetime(*member.date_time).timestamp()
                    os.utime(path, (when, when))
            except Exception as error:  # for example: damaged, encrypted, too long a name
                stop_if_full(error)
                told.append(f"{member.filename} was left out: {error or type(error).__name__}")
    return told


def stop_if_full(error: Exception) -> None:
    """Raise an error again if it says that the disk is full, because nothing can go on then."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise error


def shown(path: Path, folder: Path) -> bool:
    """Whether a file below a folder is a person's, and not a file that the operating system, Python
    or Jupyter keeps there for itself."""
    parts = path.relative_to(folder).parts
    return path.name.lower() not in SYSTEM and not any(
        part.startswith((".", "__pyc", "__MAC")) for part in parts
    )


def name_of(member: zipfile.ZipInfo) -> str:
    """The name of a member of a zip file, below the folder that it is unpacked into: the names `a`,
    `/a` and `../a` are one. zipfile reads a name as cp437 if the member lacks the flag for UTF-8,
    but many such names are UTF-8 nevertheless."""
    name = member.filename
    if not member.flag_bits & 0x800:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join(parts) + "/" * name.endswith(("/", "\\"))
