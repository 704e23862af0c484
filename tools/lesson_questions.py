"""Writes the three questions of a lesson's page into the lesson itself, as one cell of Markdown.

The source is `classroom/questions/NN.toml`. `notebook_form.py` calls this whenever a lesson is
stored, so an edit of the cell is lost, and the questions are changed in that file. The site shows
its own form of the same questions in place of this cell.

Each option is a fold of HTML, which JupyterLab, Colab and GitHub open without a script. Its head is
the option and stands in HTML, where Markdown has no effect. So the only markup that an option may
have is code in backticks.
"""

import re
from html import escape

import nbformat

from classroom.questions import HEADING, INTRODUCTION, questions

CODE = re.compile(r"`([^`]+)`")
OTHER_MARKUP = re.compile(r"[*_$\[\]\\\n]|<[a-z/]")


def set_questions(lesson, number):
    """Insert the questions on the lesson with this number before its references, or renew them."""
    cells = [cell for cell in lesson.cells if not is_questions(cell)]
    end = next((i for i, c in enumerate(cells) if c.source.startswith("## References")), None)
    if end is not None:
        skipped = {"slideshow": {"slide_type": "skip"}}  # slides have no questions
        cells.insert(end, nbformat.v4.new_markdown_cell(source(number), metadata=skipped))
    lesson.cells = cells


def is_questions(cell):
    """Whether a cell is the one that holds the questions."""
    return cell["cell_type"] == "markdown" and "".join(cell["source"]).startswith(HEADING)


def source(number):
    """The text of the cell."""
    parts = [HEADING, f"{INTRODUCTION} Choose an answer, and then open it."]
    for place, one in enumerate(questions(number, "site"), 1):
        parts += [f"### Question {place}", one.ask]
        parts += [fold(option, letter) for letter, option in zip("ABCD", one.options)]
    return "\n\n".join(parts)


def fold(option, letter):
    """An option, which opens on a click and then says whether it is right, and why."""
    verdict = "Wrong" if option.mistake else "Right"
    head = f"<details><summary>{letter}. {in_html(option.say)}</summary>"
    return f"{head}\n\n**{verdict}.** {option.because}\n\n</details>"


def in_html(text):
    """The text of an option in HTML.

    Raises:
        ValueError: it has Markdown other than code.
    """
    if OTHER_MARKUP.search(CODE.sub("", text)):
        raise ValueError(f"an option may have no other Markdown than `code`: {text!r}")
    return CODE.sub(r"<code>\1</code>", escape(text, quote=False))
