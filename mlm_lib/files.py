"""Write beside, then replace: whoever reads meets the old file or the new one, never half of it."""

import contextlib
import os
import uuid
from pathlib import Path

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
