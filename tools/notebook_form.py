"""Brings notebooks into the form in which they are stored, so that two executions with the same
outputs give the same file.

`python tools/notebook_form.py notebooks/02_masking.ipynb` rewrites a file in this form. A test
checks that all notebooks have it.
"""

import re
import sys
from base64 import b64decode
from collections import Counter
from html import unescape
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parent.parent))
from glossary_links import link_first_uses
from lesson_questions import is_questions, set_questions
from notebook_doors import is_guard, set_doors

from classroom.lab import MARK, POINTS
from docs.site import glossary
from mlm_lib.plots import bundle

# Tags of cells of which a part is folded and opens on a click.
FOLDED = "hide-output"  # the output, in a cell that answers a prediction
SET_UP = "hide-input"  # the code, in cells of imports and of checks of the parameters
ANSWER = "hide-cell"  # code and output, in a cell that answers a task of "Your turn"

LESSON = re.compile(r"\d\d_\w+(?<!_lab)\.ipynb")  # the name of its file

# In the title cell of a lesson, with the second part if there is a section "Deeper".
MINUTES = re.compile(r"\S+(?: \d+)? minutes to read(?:, and \d+ more for Deeper)?")


def normalised(notebook, path=None):
    """The notebook in its stored form: without traces of who executed it and when, without the
    empty outputs that a `LiveCurve` leaves, and with the pieces of each output stream joined. If
    `path` says where the notebook is stored, it also gets the cell and the link of
    `notebook_doors`, and a lesson the cell of `lesson_questions` and the links of
    `glossary_links`."""
    notebook = nbformat.from_dict(notebook)
    if path is not None:
        set_doors(notebook, path)
    if path is not None and LESSON.fullmatch(Path(path).name):
        set_questions(notebook, Path(path).name[:2])
        main, deeper = main_path_and_deeper(notebook)  # who leaves Deeper out meets each link, too
        not_terms = notebook.metadata.get("mlm_course", {}).get("not_terms", [])
        entries = glossary.entries(glossary.FILE.read_text("utf-8"))
        linked = [cell for cell in [*main, *deeper] if not is_questions(cell)]
        link_first_uses(linked, entries, not_terms)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            **{key: value for key, value in notebook.metadata.items() if key == "mlm_course"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    lab = next((mark[2] for cell in notebook.cells if (mark := mark_of(cell))), None)
    set_points(notebook)
    title = next((c for c in notebook.cells if c.cell_type == "markdown"), None)
    if title and MINUTES.search(title.source):
        main, deeper = (minutes(cells) for cells in main_path_and_deeper(notebook))
        more = f", and {deeper} more for Deeper" if deeper else ""
        title.source = MINUTES.sub(f"About {main} minutes to read{more}", title.source)
    count = given = answers = 0
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        tags = cell.metadata.get("tags")
        kept = {"tags": tags} if tags else {}
        if "mlm_course" in cell.metadata:  # such as the tolerance of its numbers on another device
            kept["mlm_course"] = cell.metadata["mlm_course"]
        if "slideshow" in cell.metadata:  # what the cell is on the lesson's slides
            kept["slideshow"] = {"slide_type": cell.metadata["slideshow"]["slide_type"]}
        if FOLDED in (tags or []):  # the site reads the tag, and JupyterLab reads this
            kept["jupyter"] = {"outputs_hidden": True}
        if SET_UP in (tags or []):
            kept |= {"jupyter": {"source_hidden": True}, "mystnb": prompts("the set-up")}
        if ANSWER in (tags or []):
            answers += 1
            kept["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
            kept["mystnb"] = prompts(f"what answers task {answers}")
        if is_guard(cell):
            kept["jupyter"] = {"source_hidden": True}
            if not lab:
                kept["slideshow"] = {"slide_type": "skip"}
        if lab and cell.cell_type == "code" and not mark_of(cell):
            given += not is_guard(cell)  # the cell that installs the course comes first, as 0
            kept |= {"nbgrader": restored(f"given-{lab}-{given}")}
        kept |= grading(cell)
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type == "code":
            if cell.execution_count is not None:
                count += 1
                cell.execution_count = count
            shown = [output for output in cell.outputs if output.get("data") != {}]
            cell.outputs = [_described(output) for output in _joined(shown)]
    return notebook


def main_path_and_deeper(lesson):
    """The cells of a lesson in two lists: those of the main path, and those of the optional section
    "Deeper", which ends where "Your turn" begins."""
    main, deeper, inside = [], [], False
    for cell in lesson.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            inside = cell.source.startswith("## Deeper")
        (deeper if inside else main).append(cell)
    return main, deeper


def words_and_lines(cells):
    """The number of words of prose in some cells, and the number of lines of code that are visible:
    not folded, and not empty. The cell of questions is not counted, because most of it is folded.
    """
    words = lines = 0
    for cell in cells:
        if cell.cell_type == "markdown":
            words += 0 if is_questions(cell) else len(cell.source.split())
        elif not is_guard(cell) and not {SET_UP, ANSWER} & set(cell.metadata.get("tags", [])):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    return words, lines


def minutes(cells):
    """The minutes that a student needs for some cells of a lesson, rounded to five; 0 for none.

    80 words or 4 lines of code take a minute, and a prediction takes three. That is a little more
    than twice the time of somebody who reads without a stop: readers who judged the lessons as a
    student would asked for two to three times as long, because a student runs the cells, works out
    the predictions and looks back. Folded cells, answers to tasks and the three questions do not
    count.
    """
    words, lines = words_and_lines(cells)
    predictions = sum(
        "**Predict.**" in cell.source for cell in cells if cell.cell_type == "markdown"
    )
    total = words / 80 + lines / 4 + 3 * predictions
    return 5 * max(1, round(total / 5)) if cells else 0


def prompts(what):
    """The texts that the site writes on a folded cell."""
    return {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}


def alternative_texts(cell):
    """The alternative texts of the pictures in a cell's outputs, with "" for a picture without
    one."""
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    images = re.findall(r"<img\b[^>]*>", " ".join(one.get("text/html", "") for one in data))
    found = [re.search(r'\balt="([^"]*)"', image) for image in images]
    bare = sum("image/png" in one and "text/html" not in one for one in data)
    return [unescape(alt[1]) if alt else "" for alt in found] + [""] * bare


def mark_of(cell):
    """The match of a lab's comment `# TASK` or `# CHECK` in a cell, or None."""
    return MARK.search(cell.source) if cell.cell_type == "code" else None


def restored(name):
    """nbgrader's metadata for a given cell. nbgrader restores such a cell before it marks, so that
    a student's change of it has no effect."""
    form = {"schema_version": 3, "grade_id": name, "task": False}
    return form | {"grade": False, "solution": False, "locked": True}


def grading(cell):
    """nbgrader's metadata for a task or a check of a lab, and an empty dict for all other cells."""
    mark = mark_of(cell)
    if mark is None:
        return {}
    asks = mark[1] == "TASK"
    points = POINTS.search(mark[4])
    label = mark[4][: points.start()].strip() if points else ""
    name = [mark[1].lower(), mark[2], mark[3], *([label] if label and not asks else [])]
    form = {"schema_version": 3, "grade_id": "-".join(name), "task": False}
    form |= {"grade": not asks, "solution": asks, "locked": not asks}
    return {"nbgrader": form | ({} if asks else {"points": int(points[1])})}


SAID = re.compile(r"^print\(\"Task \w+\.\d+.*: right, .*\n?\Z", re.M)  # the last line of a check


def set_points(notebook):
    """Let the last line of each check of a lab print the points that the check gives. If a task has
    several checks, the line also has the name of the check. No marker reads this line."""
    marks = [(cell, mark_of(cell)) for cell in notebook.cells]
    checks = [(cell, mark, POINTS.search(mark[4])) for cell, mark in marks if mark]
    checks = [one for one in checks if one[1][1] == "CHECK"]
    possible = Counter()
    for _, mark, points in checks:
        possible[f"{mark[2]}.{mark[3]}"] += int(points[1])
    for cell, mark, points in checks:
        task, label = f"{mark[2]}.{mark[3]}", mark[4][: points.start()].strip()
        name, of = (f"{task}, {label}", "of the task's") if label else (task, "of")
        whole = f"{possible[task]} point{'s' * (possible[task] != 1)}"
        line = f'print("Task {name}: right, {points[1]} {of} {whole}.")'
        cell.source = f"{SAID.sub('', cell.source).rstrip()}\n{line}"


def _joined(outputs):
    """The outputs with neighbouring pieces of the same stream joined, because it depends on timing
    where Jupyter cuts a stream into pieces."""
    out = []
    for output in outputs:
        stream = output.get("name")  # only streams have one
        if out and stream and out[-1].get("name") == stream:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def _described(output):
    """A picture whose alternative text stands in the metadata, changed into the form of
    `plots.bundle`. Every other output stays as it is."""
    data = output.get("data", {})
    alt = output.get("metadata", {}).get("image/png", {}).get("alt")
    if alt and "text/html" not in data:
        shown = bundle(b64decode(data["image/png"]), alt)
        output.data, output.metadata = nbformat.from_dict(shown), {}
    return output


def read(path):
    """Read a notebook file."""
    return nbformat.read(path, as_version=4)


def text(notebook):
    """The content of a notebook's file."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        form = text(normalised(read(name), name))
        Path(name).write_text(form, encoding="utf-8", newline="\n")
