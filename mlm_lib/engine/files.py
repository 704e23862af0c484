"""Writes files and folders so that nobody ever reads half of one.

The content is first written under another name beside the old file, which it then replaces. If the
program is killed in between, the old file is still there.
"""

import glob
import os
import shutil
import time
import uuid
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock, Timeout

STALE = 3600  # an unfinished folder is deleted when it is older than this, in seconds


def write(path, content):
    """Writes a file completely, or not at all.

    Args:
        path: the path of the file. Its folder is made if it does not exist.
        content: bytes or a text. A text is encoded in UTF-8, and its line ends are not changed.

    Raises:
        OSError: the file cannot be written, for example because the disk is full. The old file is
            still there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(beside, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())  # waits until the content is on the disk
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def write_folder(folder, own):
    """Writes a folder completely, or not at all. The `with` block fills an empty folder::

        with write_folder("my-bert", ["config.json", "*.safetensors"]) as new:
            (new / "config.json").write_text("{}")

    At the end of the block three steps follow. The old folder is renamed `.my-bert.old`, the new
    folder takes its place, and files of the old folder that `own` does not name, such as notes and
    open logs, are moved into the new folder. If the program is killed, either the old folder or the
    new one is complete. If it is killed between two of the steps, the next call of `write_folder`
    does the remaining ones.

    Args:
        folder: the folder to write. It is made if it does not exist, together with its parents.
        own: patterns of file names. Old files with such a name are not moved into the new folder.

    Raises:
        OSError: `folder` is a file, or it cannot be written. Its old content is still there.
    """
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; a folder is needed")
    old = folder.with_name(f".{folder.name}.old")
    _settle(folder, old, own)
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.????????.new"):
        if time.time() - left.stat().st_mtime > STALE:
            shutil.rmtree(left)
    stage = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.new")
    stage.mkdir(parents=True)
    inside = Path.cwd() == folder
    try:
        yield stage
        for file in filter(Path.is_file, stage.rglob("*")):
            with open(file, "rb+") as opened:  # Windows flushes only files open for writing
                os.fsync(opened.fileno())  # on the disk, before the old folder is given up
        if folder.exists():
            shutil.copymode(folder, stage)
            os.rename(folder, old)
        os.rename(stage, folder)
    finally:
        _settle(folder, old, own)
        shutil.rmtree(stage, ignore_errors=True)
        if inside:
            os.chdir(folder)  # the current folder was the old one, which is deleted


def _settle(folder, old, own):
    """Does what a killed program left undone: puts the old folder back or, if the new folder is
    there, moves the files that are not `own` into it."""
    if old.exists() and not folder.exists():
        os.rename(old, folder)
    elif old.exists():
        for entry in list(old.iterdir()):
            if not any(fnmatch(entry.name, name) for name in own):
                place = folder / entry.name
                taken = place.exists()  # the user has made such a file since the program was killed
                os.rename(entry, place.with_name(f"{entry.name}.old") if taken else place)
        shutil.rmtree(old)


@contextmanager
def only_writer(folder):
    """Locks a folder while a `with` block runs, so that no second program writes to it.

    The lock is a file `.lock` in the folder. The operating system frees the lock when the process
    ends, even if the process is killed. The same process may lock a folder twice.

    Raises:
        BlockingIOError: another program has locked the folder.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(folder / ".lock", timeout=0, is_singleton=True).acquire()
    except Timeout:
        told = f"another program writes to {folder}; wait for its end or choose another folder"
        raise BlockingIOError(told) from None
    with held:
        yield
