"""Writes the measured reference scores into the page of the project, `docs/project.md`."""

import re
from collections import defaultdict
from pathlib import Path
from statistics import mean

from classroom.project import NAME, NATS, REFERENCES, USED, read_board

PAGE = Path(__file__).parents[1] / "project.md"
CAREFUL, NEIGHBOURS, FREQUENCIES = "a careful student", "neighbours", "frequencies"
SHORT, LESSON, NOTHING = "a careful student, 100 seconds", "lesson 09", "nothing learned"


def measured() -> dict[str, dict]:
    """What each reference came to: {name: its mean, least, most, seconds, seeds}."""
    found = defaultdict(list)
    for row in read_board(REFERENCES):
        found[row[NAME]].append((float(row[NATS]), float(row[USED])))
    known = {}
    for name, runs in found.items():
        nats, seconds = zip(*runs)
        known[name] = {"mean": mean(nats), "least": min(nats), "most": max(nats)}
        known[name] |= {"seconds": mean(seconds), "seeds": len(runs)}
    return known


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
