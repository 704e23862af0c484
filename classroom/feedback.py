"""Makes a copy of a student's notebook that holds the marker's messages."""

import re
from pathlib import Path

from classroom.lab import MARK, joined, read_notebook
from classroom.marker import Mark

OURS = {"tags": ["feedback"]}  # the metadata of the cells that hold our messages
# The fields that Jupyter requires of a notebook and of its cells.
BARE = {"metadata": {}, "nbformat": 4, "nbformat_minor": 4}
CELL = {"metadata": {}, "source": ""}
CODE = CELL | {"outputs": [], "execution_count": None}


def feedback(path: Path, marks: list[Mark]) -> dict:
    """The notebook at `path`, with a message after the cells of each task.

    Messages from an earlier marking are removed. The message of a task that has no cell is at the
    top.

    Raises:
        Refused: the file is not a notebook any more, because a student's answer replaced it while
        it
            was executed.
    """
    notebook, last = BARE | read_notebook(path), {}
    cells = [cell for cell in notebook["cells"] if cell.get("metadata") != OURS]
    for place, cell in enumerate(cells):
        for mark in MARK.finditer(joined(cell)) if cell["cell_type"] == "code" else ():
            last[f"{mark[2].lower()}.{mark[3]}"] = place
    earned, possible = sum(one.points for one in marks), sum(one.possible for one in marks)
    told = [message(f"**{earned} of {possible} points in all.**")]
    told += [about(one) for one in marks if one.task not in last]
    for place, cell in enumerate(cells):
        told.append((CODE if cell["cell_type"] == "code" else CELL) | cell)
        told += [about(one) for one in marks if last.get(one.task) == place]
    if notebook["nbformat_minor"] not in range(5):  # cells have an id since version 4.5
        told = [{"id": f"feedback-{place}"} | cell for place, cell in enumerate(told)]
    return notebook | {"cells": told}


def about(one: Mark) -> dict:
    """The cell with the message on one task. The message is in a block of code, so that Markdown
    in it has no effect, and the fence is longer than any run of backticks in the message."""
    text = f"**{one.task}: {one.points} of {one.possible} points, {one.status}.**"
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", one.says))])
    return message(f"{text}\n\n{ticks}text\n{one.says}\n{ticks}" if one.says else text)


def message(text: str) -> dict:
    """A Markdown cell with the metadata by which our messages are found again."""
    return {"cell_type": "markdown", "metadata": OURS, "source": text}
