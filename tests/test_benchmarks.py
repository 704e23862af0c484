"""What benchmarks/README.md claims is what its tables show, and each benchmark stands in it."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def tables():
    """Each table's header and rows, as lists of cells."""
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.M):
        header, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        )
        yield header, rows


def test_each_measured_ratio_is_at_least_what_is_claimed():
    checked = 0
    for header, rows in tables():
        if header[-2:] != ["ratio", "at least"]:
            continue
        for row in rows:
            assert len(row) == len(header), row
            if row[-1] != "–":
                assert float(row[-2]) >= float(row[-1]), row
                checked += 1
    assert checked > 15


def test_each_claim_in_words_holds():
    for header, rows in tables():
        for what, measured, bound in rows if header == ["claim", "measured", "bound"] else []:
            kind, number = bound.rsplit(" ", 1)
            low, high = sorted((float(measured), float(number)))
            assert {"at most": float(number) == high, "at least": float(number) == low}[kind], what


def test_each_benchmark_has_its_section():
    told = set(re.findall(r"^python -m benchmarks\.(\w+)", TEXT, re.M))
    runs = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert told == runs
