"""A number in a lesson's prose is one that a cell prints or sets, rounded.

Found is a number that stands near a printed one and differs: within 15% of it, and no rounding of
any number of the lesson. A number that is nowhere near a printed one says something else (a year, a
size of another model) and is left to the reader; words ("about a half") may approximate.
"""

import re
from pathlib import Path

import pytest
from notebook_form import read

from classroom.questions import HEADING

LESSONS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))
NUMBER = re.compile(r"(?<![\w.,/-])[-−]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w/]|\.\d)%?")
COMMAND = re.compile(  # what a reader types, or the name of a lesson or lab, states no result
    r"`python3 [^`]*`|\b[Ll](?:essons?|abs?) \d\d(?:(?:,| and| or| to)+ \d\d)*"
)
TIME = re.compile(r"\s*(?:ns|µs|ms|s|seconds?|min|minutes?|hours?)\b")
SCALES = (1, 100, 0.01, 1e-3, 1e-6)  # a share as a percentage and back, thousands, millions
NEAR = 0.15


def numbers(text):
    """(value, digits behind the point) of each number in a text, but for years and times."""
    found = []
    for match in NUMBER.finditer(text):
        plain = match[0].rstrip("%,").replace(",", "").replace("−", "-")
        year = re.fullmatch(r"(19|20)\d\d", plain)
        if plain and not year and not TIME.match(text, match.end()):
            found.append((float(plain), len(plain.partition(".")[2]) if "e" not in plain else 9))
    return found


def printed(cell):
    """The text of what a cell printed, and the alternative text of its figures."""
    parts = []
    for output in cell.get("outputs", []):
        parts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    return "\n".join(parts)


def is_rounding(value, digits, of):
    """Whether `value`, written with so many digits, is `of` rounded, in one of the scales."""
    half = 0.5 * 10**-digits + 1e-9
    return any(abs(abs(of) * scale - abs(value)) <= half for scale in SCALES)


def is_near(value, other):
    """Whether two numbers, or one and the other as a percentage, differ by a little."""
    sizes = (abs(other) * scale for scale in SCALES[:3])
    return any(0 < abs(size - abs(value)) <= NEAR * abs(value) for size in sizes)


def strays(lesson):
    """(number, printed number near it, sentence) for each number in prose that no cell bears out.

    Cells count as near up to two with output before the prose, and one after it.
    """
    source = [cell.source for cell in lesson.cells if cell.cell_type == "code"]
    known = numbers("\n".join([*source, *map(printed, lesson.cells)]))
    with_output = [i for i, cell in enumerate(lesson.cells) if printed(cell)]
    found = []
    for place, cell in enumerate(lesson.cells):
        if cell.cell_type != "markdown" or cell.source.startswith(("## References", "# ", HEADING)):
            continue
        before = [i for i in with_output if i < place][-2:]
        after = [i for i in with_output if i > place][:1]
        near = numbers("\n".join(printed(lesson.cells[i]) for i in before + after))
        for value, digits in numbers(COMMAND.sub("", cell.source)):
            if (
                abs(value) < 3
                and not digits
                or any(is_rounding(value, digits, n) for n, _ in known)
            ):
                continue
            close = [n for n, _ in near if is_near(value, n)]
            if close:
                found.append((value, close[0], cell.source[:70]))
    return found


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_number_in_the_prose_is_the_one_that_is_printed(path):
    assert strays(read(path)) == []


def cells(prose, output):
    code = {"cell_type": "code", "source": "", "outputs": [{"text": output}]}
    return type("", (), {"cells": [Cell(code), Cell(cell_type="markdown", source=prose)]})


class Cell(dict):
    __getattr__ = dict.__getitem__


@pytest.mark.parametrize(
    "prose, output, stray",
    [
        ("at least 85% of them", "share 0.862", True),
        ("to 0.3 at most", "0.28 and 0.31", False),
        ("falls to 4.8", "loss 4.83", False),
        ("falls to 4.7", "loss 4.83", True),
        ("an answer of 9.01 nats", "ln V = 9.0109", False),
        ("8,192 tokens", "V = 8192", False),
        ("about half of 60 seconds", "58.1", False),
        ("in 1953", "1950 words", False),
    ],
)
def test_a_wrong_number_is_found_and_a_rounded_one_is_not(prose, output, stray):
    assert bool(strays(cells(prose, output))) == stray
