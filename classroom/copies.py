"""A reader's own copy of one notebook of the course.

A copy remembers in its metadata how its cells were when it was made. As long as they are the same,
the reader has written nothing into it, whatever was executed or folded, and the copy is renewed
when the course has a newer version. A copy into which the reader has written is never replaced.
"""

import hashlib
import json
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from classroom.lab import Refused, joined, read_notebook
from mlm_lib.engine.files import write

# What `put` has found or done.
NEW, RENEWED, CURRENT, BEHIND = "new", "renewed", "current", "behind"
STAMP = "copied"  # in the metadata of a copy: the fingerprint of its cells when it was made
KERNEL = {  # as ipykernel describes itself
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": platform.python_version(),
    },
}


def fingerprint(notebook: dict) -> str:
    """A hash of the kind and the text of all cells. Outputs and metadata do not count."""
    cells = [(cell["cell_type"], joined(cell)) for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def made(notebook: dict) -> dict:
    """The copy of a notebook, with its own fingerprint in its metadata.

    It also holds what JupyterLab would write into it on opening. Otherwise JupyterLab would call
    the copy changed before the reader has done anything.
    """
    course = notebook["metadata"].get("mlm_course", {}) | {STAMP: fingerprint(notebook)}
    cells = []
    for cell in notebook["cells"]:
        hidden = cell["metadata"].get("jupyter", {}).get("outputs_hidden")
        more = {"collapsed": True} if hidden else {}
        cells.append(cell | {"metadata": cell["metadata"] | more})
    metadata = notebook["metadata"] | {"mlm_course": course} | KERNEL
    return notebook | {"cells": cells, "metadata": metadata}


def stamp(notebook: dict) -> str | None:
    """The fingerprint that a copy remembers. None if it remembers none, for example because an
    earlier version of the course has made it."""
    with suppress(KeyError, TypeError):
        return notebook["metadata"]["mlm_course"][STAMP]
    return None


def put(path: Path, notebook: dict) -> str:
    """Make the reader's copy of a notebook at `path`, or renew it if the reader has not changed it.

    Returns:
        NEW or RENEWED if the copy was written, and CURRENT if nothing was to be done. BEHIND means
        that the reader has changed the copy, and that the course has a newer version by now.

    Raises:
        OSError: the copy cannot be written. An older copy is still there.
    """
    if not path.exists():
        write_notebook(path, made(notebook))
        return NEW
    try:
        own = read_notebook(path)
    except Refused:  # it is the reader's file, whatever it is
        return CURRENT
    now, made_from = fingerprint(own), stamp(own)
    if now == fingerprint(notebook):
        return CURRENT
    if now == made_from:
        write_notebook(path, made(notebook))
        return RENEWED
    return CURRENT if made_from in (None, fingerprint(notebook)) else BEHIND


def restore(path: Path, notebook: dict) -> Path | None:
    """Put a fresh copy of a notebook at `path`. What was there gets a name with the date and the
    time; returns its path, or None if nothing was there."""
    kept = None
    if path.exists():
        kept = path.with_stem(f"{path.stem}_{datetime.now():%Y-%m-%d_%H%M%S}")
        if kept.exists():
            raise Refused(f"{kept.name} is there already; give the same command again")
        path.rename(kept)
    write_notebook(path, made(notebook))
    return kept


def write_notebook(path: Path, notebook: dict) -> None:
    """Write a notebook completely, or not at all."""
    write(path, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
