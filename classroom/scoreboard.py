"""The board of the project: a CSV file with a line for each score, and the reference scores."""

import statistics
from collections import defaultdict
from datetime import date
from pathlib import Path

from filelock import FileLock

from classroom import tables
from classroom.tables import number

NAME, NATS, ERROR = "name", "nats above the floor", "standard error"
COLUMNS = [NAME, NATS, ERROR, USED := "processor seconds", "date", "seed"]
REFERENCES = Path(__file__).with_name("project_scores.csv")


def read_board(path: Path) -> list[dict]:
    """The lines of a board; none where there is no file yet. Raises NotOurTable."""
    kind = "board of the project; choose another name for --board"
    return tables.read(path, {*COLUMNS}, kind)


def line(found, used: float, seed) -> dict:
    """The columns of a score, but for the name. found: a `grammar.Estimate`."""
    nats, error = f"{found.nats:.4f}", f"{found.standard_error:.4f}"
    told = [nats, error, f"{used:.0f}", date.today().isoformat(), seed]
    return dict(zip(COLUMNS[1:], told))


def append(path: Path, row: dict) -> None:
    """Add a line, whole or not at all. Two checks that end at once both have theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        rows = [*read_board(path), row]
        columns = dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)])
        tables.write_rows(path, list(columns), rows)


def references(path: Path = REFERENCES) -> dict[str, dict]:
    """What each reference came to: {name: its mean, least, most, seconds, seeds}."""
    groups = defaultdict(list)
    for row in read_board(path):
        groups[row[NAME]].append((number(row[NATS]), number(row[USED])))
    found = {}
    for name, runs in groups.items():
        nats, seconds = zip(*runs)
        found[name] = {"mean": statistics.mean(nats), "least": min(nats), "most": max(nats)}
        found[name] |= {"seconds": statistics.mean(seconds), "seeds": len(runs)}
    return found


def board(rows: list[dict], known: dict[str, dict]) -> list[str]:
    """The lines to print: every score, the best first, with the references between them."""
    told = [(number(row[NATS]), row[NAME], f"± {number(row[ERROR]):.3f}") for row in rows]
    for name, one in known.items():
        spread = f"reference, {one['seeds']} seeds: {one['least']:.3f} to {one['most']:.3f}"
        told.append((one["mean"], f"[{name}]", spread))
    told.append((0.0, "[the floor]", "reference, exact"))
    width = max(len(name) for _, name, _ in told)
    return [f"{nats:8.3f}  {name:<{width}}  {note}" for nats, name, note in sorted(told)]
