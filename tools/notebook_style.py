"""Prints remarks on the style of lessons: `python tools/notebook_style.py NOTEBOOK ...`.

`test_notebooks.py` fails where a reader could not go on. A remark here is about a rule that an
author may break for a reason. The exit status is 1 if there is a remark.
"""

import ast
import re
import sys
from pathlib import Path

from lesson_questions import is_questions
from notebook_doors import LINK, is_guard
from notebook_form import alternative_texts, main_path_and_deeper, read


def remarks(lesson):
    """Yield a sentence for each place of a lesson that breaks a rule.

    The section "Deeper" is for readers who want more, so only its place is looked at.
    """
    headings = [c.source for c in lesson.cells if c.source.startswith("## ")]
    before = [
        next_to for one, next_to in zip(headings, headings[1:]) if one.startswith("## Deeper")
    ]
    if not all(heading.startswith("## Your turn") for heading in before):
        yield "the section Deeper does not stand directly before Your turn"
    cells = [cell for cell in main_path_and_deeper(lesson)[0] if not is_questions(cell)]
    told = [LINK.sub("", cell.source) for cell in cells if cell.cell_type == "markdown"]
    code = [cell for cell in cells if cell.cell_type == "code" and not is_guard(cell)]
    yield from of_the_order(told)
    yield from of_the_steps(cells, told, code)
    for cell in told:
        yield from of_prose(cell)
    for cell in code:
        yield from of_code(cell.source)


def of_the_order(told):
    first, second, *_ = told
    if not (re.match(r"# \d\d · ", first) and "to run" in first and "Needs:" in first):
        yield "the title cell lacks the number, the seconds to run, or what it needs"
    if not second.startswith("## Objectives"):
        yield "the second cell is not the objectives"
    tasks, recap, last = told[-3:]
    if not (tasks.startswith("## Your turn") and len(re.findall(r"^\d\. ", tasks, re.M)) >= 2):
        yield "two tasks or more stand under ## Your turn, third from the end"
    if not (recap.startswith("## Recap") and last.startswith("## References")):
        yield "recap and references close the lesson"
    if not 3 <= len(re.findall(r"\((?:19|20)\d\d\)", last)) <= 6 or "**Next:**" not in last:
        yield "three to six references with their years, and the next lesson"
    if not any(re.search(r"^## Equal to", cell, re.M) for cell in told):
        yield "no section shows what it is equal to"


def of_the_steps(cells, told, code):
    if sum("**Predict.**" in cell for cell in told) < 2:
        yield "the reader is asked to predict less than twice"
    trees = [ast.parse(cell.source) for cell in code]
    asserts = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    if sum(node.msg is not None for node in asserts) < 3:
        yield "fewer than three asserts say what ought to be true"
    for cell, following in zip(cells, cells[1:]):
        if alternative_texts(cell) and not following.source.startswith("**"):
            yield f"a figure without a sentence to keep below it: {cell.source[:60]!r}"


def of_prose(cell):
    if "!" in re.sub(r"`[^`]*`|\*[^*]+\*", "", cell):
        yield f"an exclamation mark: {cell[:60]!r}"
    if loud := re.search(
        r"\b(simply|obviously|let's|dive in)\b|[\U0001F300-\U0001FAFF]", cell, re.I
    ):
        yield f"{loud.group()!r}: {cell[:60]!r}"


def of_code(source):
    lines = source.splitlines()
    yield from (f"{len(line)} characters: {line!r}" for line in lines if len(line) > 100)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            yield f"a lambda with a name is a function: {source[:60]!r}"


if __name__ == "__main__":
    found = [f"{name}: {one}" for name in sys.argv[1:] for one in remarks(read(Path(name)))]
    print(*found, sep="\n")
    sys.exit(bool(found))
