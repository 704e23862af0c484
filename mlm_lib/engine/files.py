"""Write beside, then replace: whoever reads meets the old file or the new one, never half of it."""

import contextlib
import ctypes
import glob
import os
import shutil
import time
import uuid
from fnmatch import fnmatch
from pathlib import Path

STALE = 3600  # seconds untouched, after which what a killed writer left beside a folder is deleted
_held = {}  # folders that this process writes to: {path: (lock file, how often it was taken)}


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
        with contextlib.suppress(OSError):
            beside.unlink()


@contextlib.contextmanager
def write_folder(folder, own):
    """Writes a folder whole, or leaves what was there. Fill the empty folder that it yields::

        with write_folder("my-bert", ["config.json", "*.safetensors"]) as stage:
            (stage / "config.json").write_text("{}")

    At the end of the block it takes the place of `folder`, in one step on Linux: a kill before that
    leaves the old folder, a kill after it the new one. What the old one holds besides `own`, as
    notes, logs and sub-folders, stays and is not copied: an open log goes on growing.

    Args:
        folder: where to; made if it does not exist, and its parents too.
        own: patterns of the names that the new folder replaces, whether or not it has such files.

    Raises:
        OSError: the folder is a file, or cannot be written; what it held still stands.
    """
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; a folder is needed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    here = Path.cwd()
    old = stage = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.stage")
    stage.mkdir()
    try:
        yield stage
        # 1. What is new is on the disk before anything relies on it.
        for file in stage.rglob("*"):
            _flush(file)
        # 2. All else gets a second name in the new folder, so that a kill at any moment leaves it
        #    in the folder that stands, and what is hidden beside holds nothing of its own.
        if folder.is_dir():
            shutil.copymode(folder, stage)
        for entry in _others(folder, own):
            _double(entry, stage / entry.name)
        # 3. The step that counts.
        old = _replace(folder, stage)
        # 4. A sub-folder cannot have two names, so that step 2 made another with the same files.
        #    The old one comes back, and with it what was written since.
        for entry in _others(old, own):
            if not _exchange(entry, folder / entry.name) and not (folder / entry.name).exists():
                os.rename(entry, folder / entry.name)
    finally:
        if here.is_relative_to(folder) and here.exists():
            os.chdir(here)  # stay at this name, and not in what is deleted next
        for left in {old, stage}:
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def only_writer(folder):
    """Holds a folder against other programs by a lock in it. Its holder may take it again.

    The system frees the lock with its process, however that ends, so that it is never stale.

    Raises:
        BlockingIOError: another program holds the folder.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file, times = _held.get(folder, (None, 0))
    if not times:
        file = open(folder / ".lock", "a+b")
        try:
            _lock(file)
        except OSError:
            file.close()
            raise BlockingIOError(
                f"another program writes to {folder}; wait for its end or choose another folder"
            ) from None
    _held[folder] = file, times + 1
    try:
        yield
    finally:
        file, times = _held.pop(folder)
        if times > 1:
            _held[folder] = file, times - 1
        else:
            file.close()  # which frees it


def _lock(file):
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ------------------------------------------------------------------------------------ its steps


def _clear(folder):
    """Deletes what killed writers left beside a folder, unless it is all that there is of it."""
    beside = f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}"
    if not folder.exists():  # killed between two renames, on a system without an exchange
        for aside in list(folder.parent.glob(f"{beside}.aside"))[:1]:
            os.rename(aside, folder)
    for kind in ("stage", "aside"):
        for left in list(folder.parent.glob(f"{beside}.{kind}")):
            with contextlib.suppress(OSError):
                changed = max(left.stat().st_mtime, left.stat().st_ctime)
                if time.time() - changed > STALE:
                    shutil.rmtree(left)


def _others(folder, own):
    """What a folder holds besides names of these patterns."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    return [entry for entry in entries if not any(fnmatch(entry.name, name) for name in own)]


def _double(entry, place):
    """A second name for a file, or for every file below a folder."""
    if os.path.ismount(entry):
        raise OSError(f"{entry} is a disk of its own, which cannot move; save to another folder")
    if entry.is_dir() and not entry.is_symlink():
        shutil.copytree(entry, place, symlinks=True, copy_function=_link)
    else:
        _link(entry, place)


def _link(file, place):
    try:
        os.link(file, place, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system where a file has one name
        shutil.copy2(file, place, follow_symlinks=False)
        _flush(Path(place))


def _flush(file):
    """Makes sure that a file is on the disk, and not only on its way there."""
    if file.is_file() and not file.is_symlink():
        # Windows flushes what is open for writing.
        with open(file, "rb+" if os.name == "nt" else "rb") as opened:
            os.fsync(opened.fileno())


def _replace(folder, stage):
    """Puts `stage` in the place of `folder`, and returns where the old one is now."""
    if not folder.exists():
        os.rename(stage, folder)
        return stage
    if _exchange(folder, stage):
        return stage
    # Two steps where the system has no single one. Between them the old folder stands beside.
    aside = stage.with_suffix(".aside")
    os.rename(folder, aside)
    try:
        os.rename(stage, folder)
    except BaseException:
        os.rename(aside, folder)
        raise
    return aside


def _exchange(one, other):
    """Swaps two names in a single step by Linux's renameat2; False where that does not work."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
