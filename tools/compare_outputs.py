"""Compares what a lesson prints on one device with what it printed on another device.

`course.py test --device cuda` uses this module. A GPU adds numbers in another order than a CPU and
draws other random numbers, so nbval, which compares texts letter by letter, would refuse nearly
every lesson. Here the text must be equal and the numbers in it must be close.

- What `nbval_sanitize.cfg` replaces (times, addresses, progress bars) is replaced here as well.
- Spaces do not count, because a column moves when a number in it gets one more digit.
- A **measured number** has a decimal point or an exponent, or a percent sign after it. It may
  differ by one unit of its last printed digit, because rounding can fall on the other side, and
  beyond that by a tolerance.
- Every **other integer** is a count, a step, an id or a size, and must be equal. This holds for
  large ones too: a tokenizer that finds 16,820 tokens instead of 16,819 is wrong on any device.
- A lesson's metadata may widen each tolerance: `"mlm_course": {"tolerance": {"relative": 0.1,
  "absolute": 0.05, "integers": 0.02}}`. A cell's metadata may do so for that cell alone. "integers"
  is a relative tolerance for what is otherwise equal, for counts that a model decides.
- Cells tagged `nbval-ignore-output` are not compared. Neither are cells tagged `drawn-on-device`.
  They print results of a model that was trained with dropout, for which each kind of device draws
  other random numbers. These cells are executed, and what they assert must hold.
- Neither images nor the error stream are compared: the warnings in it are about a device. The
  alternative text of a figure is compared.
"""

import json
import math
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

NOT_COMPARED = {"nbval-ignore-output", "drawn-on-device"}
SANITIZED = Path(__file__).with_name("nbval_sanitize.cfg")
# A sign, digits with or without thousands separators, a fraction, an exponent, and a percent sign.
# A sign after a letter or a digit is a hyphen.
NUMBER = re.compile(
    r"((?:(?<!\w)[-+−])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=( ?%)?)"
)


class Unreadable(Exception):
    """A notebook whose tolerance cannot be used. The message is for the reader."""


@dataclass(frozen=True)
class Tolerance:
    """How far a measured number may be from the stored one, beyond a unit of its last digit.

    Attributes:
        relative: a share of the stored number.
        absolute: added to that, in the unit of the number (for a percentage: percentage points).
        integers: a share of the stored integer, for those that are otherwise to be equal.
    """

    relative: float = 0.01
    absolute: float = 0.0
    integers: float = 0.0

    def widened(self, metadata, where):
        """This tolerance, widened by the `metadata` of a notebook or a cell, which never narrow it.

        Raises:
            Unreadable: the metadata give something that is not a tolerance.
        """
        given = metadata.get("mlm_course", {}).get("tolerance", {})
        names = [field.name for field in fields(self)]
        known = isinstance(given, dict) and set(given) <= set(names)
        if not known or not all(is_share(value) for value in given.values()):
            told = f'{where}: its metadata give "tolerance": {json.dumps(given)}'
            raise Unreadable(f"{told}; give numbers from 0 for some of {', '.join(names)}.")
        return replace(self, **{n: max(value, getattr(self, n)) for n, value in given.items()})


def is_share(value):
    """Whether a value is a finite number of at least 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0


def compare(stored, executed):
    """Compare a stored notebook with the same notebook, executed on another device.

    Returns:
        The outcome of each code cell ("passed", "failed", "skipped") in order, and the lines to
        print about the failures.

    Raises:
        Unreadable: a tolerance in the metadata cannot be used.
    """
    ours, theirs = (json.loads(path.read_text("utf-8")) for path in (stored, executed))
    general = Tolerance().widened(ours["metadata"], stored.name)
    first, second = code_cells(ours), code_cells(theirs)
    if len(first) != len(second):
        told = f"{len(first)} code cells are stored and {len(second)} were found"
        return ["failed"], [f"FAILED {stored.name}", f"    {told}"]
    outcomes, lines = [], []
    for number, (one, other) in enumerate(zip(first, second), 1):
        tolerance = general.widened(one["metadata"], f"{stored.name} cell {number}")
        if NOT_COMPARED & set(one["metadata"].get("tags", [])):
            outcomes.append("skipped")
            continue
        pairs = zip(printed(one), printed(other))
        differing = [line for pair in pairs for line in differing_lines(*pair, tolerance)]
        outcomes.append("failed" if differing else "passed")
        if differing:
            lines += [f"FAILED {stored.name} cell {number}", *told_of(*differing[0])]
            if differing[1:]:
                lines.append(f"    and {len(differing) - 1} more lines of this cell")
    return outcomes, lines


def code_cells(notebook):
    """The code cells of a lesson, without the one that papermill adds."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [c for c in cells if "injected-parameters" not in c["metadata"].get("tags", [])]


def printed(cell):
    """The lines that a cell printed, and the lines of the plain text of its other outputs."""
    told, shown = "", ""
    for output in cell["outputs"]:
        if output["output_type"] == "stream" and output["name"] == "stdout":
            told += "".join(output["text"])
        elif output.get("data"):  # a `LiveCurve` leaves an output without data behind
            shown += "".join(output["data"].get("text/plain", "")) + "\n"
    return [sanitized(text).splitlines() for text in (told, shown)]


def sanitized(text):
    """The text in which everything is replaced that differs between any two executions, as nbval
    does it."""
    patterns = re.findall(r"(?m)^regex: (.*)$\n^replace: (.*)$", SANITIZED.read_text("utf-8"))
    for pattern, word in patterns:
        text = re.sub(pattern, word, text)
    return text


def differing_lines(stored, found, tolerance):
    """Yield the stored line, the found line and their difference in words, for each pair of lines
    that differ. None stands for a line that is missing."""
    for one, other in zip(stored, found):
        if why := difference(one, other, tolerance):
            yield one, other, why
    for line in stored[len(found) :]:
        yield line, None, "the line is missing"
    for line in found[len(stored) :]:
        yield None, line, "the line is not stored"


def told_of(stored, found, why):
    """The lines that show a difference."""
    lines = {"stored": stored, "found": found}
    return [*(f"    {name + ':':<8}{line}" for name, line in lines.items() if line is not None),
            f"    ({why})"]  # fmt: skip


def difference(stored, found, tolerance):
    """The difference between two lines in words, or "" if they agree."""
    # Each list holds in turns a text, a number, and a percent sign or None.
    ours, theirs = NUMBER.split(stored), NUMBER.split(found)
    words, their_words = (["".join(text.split()) for text in line[::3]] for line in (ours, theirs))
    if words != their_words:
        return "the text differs"
    for one, percent, other in zip(ours[1::3], ours[2::3], theirs[1::3]):
        apart, allowed = distance(one, other), allowance(one, other, bool(percent), tolerance)
        if apart > allowed * (1 + 1e-9):  # because 0.3 - 0.2 is not exactly 0.1
            return f"{one} and {other} are {apart:.3g} apart, and {allowed:.3g} is allowed"
    return ""


def value_of(number):
    return float(number.replace(",", "").replace("−", "-"))


def distance(one, other):
    return abs(value_of(one) - value_of(other))


def allowance(one, other, percent, tolerance):
    """How far the number `other` may be from the stored number `one`."""
    size = abs(value_of(one))
    if not (percent or is_measured(one) or is_measured(other)):
        return tolerance.integers * size
    return last_digit(one) + tolerance.relative * size + tolerance.absolute


def is_measured(number):
    """Whether the text of a number has a decimal point or an exponent."""
    return bool(re.search("[.eE]", number))


def last_digit(number):
    """One unit of the last printed digit: 0.01 for 3.14, 1e-6 for 5e-06, 1 for 96."""
    digits, _, exponent = number.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
