"""Write beside, then replace: whoever reads meets the old file or the new one, never half of it."""

import glob
import os
import shutil
import time
import uuid
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock, Timeout

STALE = 3600  # seconds after which what a killed program left beside a folder is deleted


def write(path, content):
    """Writes a file whole, or leaves what was there. The folder is made if it does not exist.

    Args:
        path: where to.
        content: bytes, or text, which is written as UTF-8 with its line ends as they are.

    Raises:
        OSError: the file cannot be written, as on a full disk; what stood there still stands.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(beside, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())  # on the disk, and not only on its way there
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def write_folder(folder, own):
    """Writes a folder whole, or leaves what was there. Fill the empty folder that it yields::

        with write_folder("my-bert", ["config.json", "*.safetensors"]) as stage:
            (stage / "config.json").write_text("{}")

    At the end of the block the old folder is renamed `.my-bert.old`, the new one takes its place,
    and whatever the old one holds besides `own`, such as notes and open logs, is moved there. A
    kill leaves the old folder whole or the new one. Where it fell between these steps, the next
    call first brings them to their end.

    Args:
        folder: where to; made if it does not exist, and its parents too.
        own: patterns of the names that the new folder replaces, whether or not it has such files.

    Raises:
        OSError: the folder is a file, or cannot be written; what it held still stands.
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
            with open(file, "rb+") as opened:  # Windows flushes what is open for writing
                os.fsync(opened.fileno())  # before anything relies on it
        if folder.exists():
            shutil.copymode(folder, stage)
            os.rename(folder, old)
        os.rename(stage, folder)
    finally:
        _settle(folder, old, own)
        shutil.rmtree(stage, ignore_errors=True)
        if inside:
            os.chdir(folder)  # and not in what is deleted


def _settle(folder, old, own):
    """Puts an old folder back, or moves its neighbours to the new one that stands in its place."""
    if old.exists() and not folder.exists():
        os.rename(old, folder)
    elif old.exists():
        for entry in list(old.iterdir()):
            if not any(fnmatch(entry.name, name) for name in own):
                place = folder / entry.name
                taken = place.exists()  # made anew since a kill
                os.rename(entry, place.with_name(f"{entry.name}.old") if taken else place)
        shutil.rmtree(old)


@contextmanager
def only_writer(folder):
    """Holds a folder against other programs by a lock in it. Its holder may take it again.

    The system frees the lock with its process, however that ends, so that it is never stale.

    Raises:
        BlockingIOError: another program holds the folder.
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
