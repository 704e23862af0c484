"""Prints how long each lesson is: `python tools/lesson_sizes.py [NOTEBOOK ...]`.

Without a name, all lessons are listed.

For the main path and for the section "Deeper" apart: minutes, words of prose, visible lines of code
(folded cells and answers to tasks do not count), and words for each line of code. In courses that
people finish, a lesson has 100 to 270 lines of code, and 7 to 21 words for each line.
"""

import sys
from pathlib import Path

from notebook_form import main_path_and_deeper, minutes, read, words_and_lines

LESSONS = Path(__file__).parent.parent / "notebooks"


def sizes(cells):
    """(minutes, words, lines) of some cells."""
    return (minutes(cells), *words_and_lines(cells))


def row(name, main, deeper):
    """A line of the table: the sizes of the main path, its words for each line, those of Deeper."""
    ratio = f"{main[1] / main[2]:.1f}" if main[2] else "–"
    left, right = ("".join(f"{number:8,}" for number in some) for some in (main, deeper))
    return f"{name:22}{left}{ratio:>14}{right}"


def lines_of_table(paths):
    """The table as a list of lines, of which the last has the sums."""
    names = "".join(f"{name:>8}" for name in ("minutes", "words", "lines"))
    out = [f"{'main path':>46}{'Deeper':>36}", f"{'lesson':22}{names}{'words a line':>14}{names}"]
    total = [[0, 0, 0], [0, 0, 0]]
    for path in paths:
        both = [sizes(cells) for cells in main_path_and_deeper(read(path))]
        out.append(row(path.stem, *both))
        total = [[a + b for a, b in zip(*pair)] for pair in zip(total, both)]
    return [*out, row("all", *total)]


if __name__ == "__main__":
    chosen = [Path(name) for name in sys.argv[1:]]
    print(*lines_of_table(chosen or sorted(LESSONS.glob("[0-9][0-9]_*.ipynb"))), sep="\n")
