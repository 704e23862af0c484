"""The board of the project: a CSV file with a line for each score, and the reference scores."""

import csv
import io
import re
import statistics
from collections import defaultdict
from datetime import date
from pathlib import Path

from filelock import FileLock

from classroom.grade import as_cell, from_cell
from mlm_lib.engine.files import write

COLUMNS = ["name", "nats above the floor", "standard error", "processor seconds"]
COLUMNS += ["parameters", "date", "seed"]
NAME, NATS, ERROR, USED, *_ = COLUMNS
CAREFUL, NEIGHBOURS, FREQUENCIES = "a careful student", "neighbours", "frequencies"
SHORT, LESSON, NOTHING = "a careful student, 100 seconds", "lesson 08", "nothing learned"
REFERENCES = Path(__file__).with_name("project_scores.csv")
PAGE = Path(__file__).parents[1] / "docs" / "project.md"


class NotOurBoard(ValueError):
    """The file that should hold the board holds something else."""


def read_board(path: Path) -> list[dict]:
    """The lines of a board; none where there is no file yet. Raises NotOurBoard."""
    if not path.exists():
        return []
    try:
        text = path.read_text("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="", restkey="more")
        rows, ours = list(reader), {*COLUMNS} <= {*(reader.fieldnames or COLUMNS)}
        for row in rows:
            float(row[NATS]), float(row[ERROR])
    except (OSError, ValueError, KeyError, csv.Error):
        ours = False
    if not ours:
        raise NotOurBoard(f"{path} is no board of the project; choose another name for --board")
    return [{name: from_cell(value) for name, value in row.items()} for row in rows]


def line(found, used: float, parameters="", seed="") -> dict:
    """The columns of a score, but for the name. found: a `grammar.Estimate`."""
    nats, error = f"{found.nats:.4f}", f"{found.standard_error:.4f}"
    told = [nats, error, f"{used:.0f}", parameters, date.today().isoformat(), seed]
    return dict(zip(COLUMNS[1:], told))


def append(path: Path, row: dict) -> None:
    """Add a line, whole or not at all. Two checks that end at once both have theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        rows = [*read_board(path), row]
        text = io.StringIO()
        columns = list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows({name: as_cell(value) for name, value in row.items()} for row in rows)
        write(path, "\ufeff" + text.getvalue())  # the mark by which Excel knows UTF-8


def references(path: Path = REFERENCES) -> dict[str, dict]:
    """What each reference came to: {name: its mean, least, most, seconds, seeds}."""
    scores, seconds = defaultdict(list), defaultdict(list)
    for row in read_board(path):
        scores[row[NAME]].append(float(row[NATS]))
        seconds[row[NAME]].append(float(row[USED]))
    return {
        name: {
            "mean": statistics.mean(found),
            "least": min(found),
            "most": max(found),
            "seconds": statistics.mean(seconds[name]),
            "seeds": len(found),
        }
        for name, found in scores.items()
    }


def scale(known: dict[str, dict]) -> dict[int, float]:
    """For so many points of ten a score of at most so many nats. Equal factors from 10 to 6."""
    full, passed = known[CAREFUL]["most"], known[NEIGHBOURS]["mean"]
    steps = {10 - n: full * (passed / full) ** (n / 4) for n in range(5)}
    return steps | {3: known[FREQUENCIES]["mean"]}


def fill(page: str, known: dict[str, dict]) -> str:
    """The page with the numbers of what is known: in its tables, and behind each *name*."""
    for name, one in known.items():
        mean, spread = f"{one['mean']:.2f}", f"{one['least']:.2f} to {one['most']:.2f}"
        row = f"| {name} | {mean} | {spread} | {one['seeds']} | {one['seconds']:.0f} |"
        page = re.sub(rf"^\| {name} \|.*$", row, page, flags=re.M)
        page = re.sub(rf"(\*{name}\*,) [\d.]+", rf"\1 {mean}", page)
    for points, nats in scale(known).items():
        page = re.sub(
            rf"^\| {points} points \|.*$", f"| {points} points | {nats:.2f} |", page, flags=re.M
        )
    return page


def board(rows: list[dict], known: dict[str, dict]) -> list[str]:
    """The lines to print: every score, the best first, with the references between them."""
    told = [(float(row[NATS]), row[NAME], f"± {float(row[ERROR]):.3f}") for row in rows]
    for name, one in known.items():
        spread = f"reference, {one['seeds']} seeds: {one['least']:.3f} to {one['most']:.3f}"
        told.append((one["mean"], f"[{name}]", spread))
    told.append((0.0, "[the floor]", "reference, exact"))
    width = max(len(name) for _, name, _ in told)
    return [f"{nats:8.3f}  {name:<{width}}  {note}" for nats, name, note in sorted(told)]
