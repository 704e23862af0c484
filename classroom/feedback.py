"""A copy of a student's notebook, with our messages in it."""

import json
import re
from pathlib import Path

from classroom.lab import MARK, joined, read_cells
from classroom.marker import Mark
from mlm_lib.engine.files import write

OURS = {"tags": ["feedback"]}  # the metadata of our cells
BARE = {"metadata": {}, "nbformat": 4, "nbformat_minor": 4}
BARE_CELL = {"metadata": {}, "source": ""}
BARE_CODE = BARE_CELL | {"outputs": [], "execution_count": None}


def feedback(path: Path, marks: list[Mark]) -> dict:
    """The notebook at `path`, which the marker has read, with a message after each task's cells.

    Messages of an earlier copy are replaced. A task without a cell is told at the top.
    """
    read_cells(path)  # refuses what an answer may have put in its own file's place since
    notebook = BARE | json.loads(path.read_text("utf-8-sig"))
    cells = [cell for cell in notebook["cells"] if cell.get("metadata") != OURS]
    last = {}
    for place, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            for mark in MARK.finditer(joined(cell.get("source", ""))):
                last[f"{mark[2].lower()}.{mark[3]}"] = place
    earned, possible = sum(one.points for one in marks), sum(one.possible for one in marks)
    told = [message(f"**{earned} of {possible} points in all.**")]
    told += [about(one) for one in marks if one.task not in last]
    for place, cell in enumerate(cells):
        told.append((BARE_CODE if cell["cell_type"] == "code" else BARE_CELL) | cell)
        told += [about(one) for one in marks if last.get(one.task) == place]
    if notebook["nbformat_minor"] not in range(5):  # from version 4.5 on a cell has an id
        told = [{"id": f"feedback-{place}"} | cell for place, cell in enumerate(told)]
    return notebook | {"cells": told}


def about(one: Mark) -> dict:
    text = f"**{one.task}: {one.points} of {one.possible} points, {one.status}.**"
    return message(f"{text}\n\n{fenced(one.says)}" if one.says else text)


def fenced(text: str) -> str:
    """A block of code, which nothing in the text can end or turn into markup."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{ticks}text\n{text}\n{ticks}"


def message(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": OURS, "source": text}


def write_feedback(path: Path, marks: list[Mark], target: Path) -> None:
    write(target, json.dumps(feedback(path, marks), indent=1))
