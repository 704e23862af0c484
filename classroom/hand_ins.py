"""Finds what a class handed in, and which student handed in which file."""

import math
import os
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from classroom import names
from classroom.archives import Unpacked, shown

# A browser may put .txt or .json at the end of a notebook's name.
NOTEBOOK = re.compile(r".*\.ipynb(\.txt|\.json)?", re.I | re.S)


@dataclass(frozen=True)
class Found:
    """A file or folder of a class, and the student who handed it in."""

    path: Path
    root: Path  # the folder of the class, or the one into which its zip files were unpacked
    student: str
    id: str = ""
    late: int | None = None  # days; a day that has begun counts; None if nothing tells them

    @property
    def file(self) -> str:
        """The name in the table."""
        return readable(self.path.relative_to(self.root).as_posix())

    @property
    def is_notebook(self) -> bool:
        return bool(NOTEBOOK.fullmatch(self.path.name))

    @property
    def leaves(self) -> bool:
        """Whether the path contains a link that leads out of the student's own files."""
        home = real(self.root) / self.path.relative_to(self.root).parts[0]
        return home.is_symlink() or not real(self.path).is_relative_to(home)


def find(unpacked: Unpacked, table: Path, due: datetime | None = None) -> list[Found]:
    """Everything that may be a submission. Each entry of the class's folders belongs to one
    student, whose name is the name of the entry, unless Canvas or Moodle wrote that name.

    Every notebook of a student is a submission. An entry without a notebook is listed if the
    student has no other entry with one. The table of marks and the folder of reports are not
    listed.

    Args:
        due: a file that is newer than this counts as late, unless its name tells whether it is.
            The times of Canvas's files do not help, because Canvas sets them to the time at which
            it packed them.
    """
    ours, entries, found = {real(table), real(reports_of(table))}, defaultdict(list), []
    for root in unpacked.roots:
        for entry in sorted(root.iterdir()):
            if shown(entry, root) and real(entry) not in ours and entry not in unpacked.opened:
                entries[entry.name].append(entry)
    for places in entries.values():
        paths = [path for entry in places for path in notebooks(entry)] or places[:1]
        found += [identified(path, places[0], unpacked.roots, due) for path in paths]
    served = {(one.student, one.id) for one in found if one.is_notebook}
    return [one for one in found if one.is_notebook or (one.student, one.id) not in served]


def notebooks(entry: Path) -> list[Path]:
    """The notebooks in a student's folder. A link is not followed, because marking reports it."""
    below = [] if entry.is_symlink() else sorted(entry.rglob("*"))
    return [path for path in below if NOTEBOOK.fullmatch(path.name) and shown(path, entry)]


def identified(path: Path, entry: Path, roots: list[Path], due: datetime | None) -> Found:
    """A file or folder with the student who handed it in, as far as the name of the entry tells,
    and with the days by which it is late."""
    root = [root for root in roots if path.is_relative_to(root)][-1]
    told = names.read(readable(entry.name))
    if told is None:
        told = names.Told(readable(entry.name if entry.is_dir() else entry.stem))
    late = told.late
    if late is None and due:
        # Nobody hands in a folder at a time, so the newest of its files tells the time.
        files = [path] if path.is_symlink() or not path.is_dir() else path.rglob("*")
        with suppress(OSError, ValueError):  # marking reports a file that cannot be looked at
            time = max(one.lstat().st_mtime for one in files if one == path or shown(one, path))
            # A file is in time until the end of the minute that `due` names.
            late = max(0, math.ceil((time - due.timestamp() - 60) / 86400))
    return Found(path, root, told.student, told.id, late)


def readable(name: str) -> str:
    """A file's name as text, even if its bytes are not UTF-8, as in old zip files."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def reports_of(table: Path) -> Path:
    """The folder for the copies with messages, beside the table of marks."""
    return table.with_name(f"{table.stem}_reports")


def real(path: Path) -> Path:
    """The path with all links resolved. A link that leads to itself stays as it is."""
    return Path(os.path.realpath(path))
