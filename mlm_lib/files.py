"""Write beside, then replace: whoever reads meets the old file or the new one, never half of it."""

import contextlib
import os
import uuid
from pathlib import Path


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
