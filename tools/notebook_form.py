"""The stored form of a notebook: what an executed file keeps, so that two true executions differ in
nothing else.

`python tools/notebook_form.py notebooks/02_masking.ipynb` brings files into this form; a test holds
all of them to it.
"""

import re
import sys
from html import unescape
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parent.parent))
from notebook_doors import is_guard, set_doors

from classroom.lab import MARK, POINTS
from mlm_lib.plots import bundle

FOLDED = "hide-output"  # the tag of a cell that answers a prediction: its output opens on a click
SET_UP = "hide-input"  # of imports and of the parameters' check: their code opens on a click
ANSWER = "hide-cell"  # of what answers a task of "Your turn": code and output open on a click

MINUTES = re.compile(r"\S+(?: \d+)? minutes to read")  # in a lesson's title cell


def normalised(notebook, path=None):
    """The same notebook without traces of who ran it, when, and how its output happened to be cut
    into pieces; with what lets it be opened alone, if `path` says where it is stored."""
    notebook = nbformat.from_dict(notebook)
    if path is not None:
        set_doors(notebook, path)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            **{key: value for key, value in notebook.metadata.items() if key == "mlm_course"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    lab = next((mark[2] for cell in notebook.cells if (mark := mark_of(cell))), None)
    title = next((c for c in notebook.cells if c.cell_type == "markdown"), None)
    if title and MINUTES.search(title.source):
        title.source = MINUTES.sub(f"About {minutes(notebook)} minutes to read", title.source)
    count = given = answers = 0
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        tags = cell.metadata.get("tags")
        kept = {"tags": tags} if tags else {}
        if "mlm_course" in cell.metadata:  # such as how far its numbers may be on another device
            kept["mlm_course"] = cell.metadata["mlm_course"]
        if FOLDED in (tags or []):  # for the site the tag says it, for JupyterLab this
            kept["jupyter"] = {"outputs_hidden": True}
        if SET_UP in (tags or []):
            kept |= {"jupyter": {"source_hidden": True}, "mystnb": prompts("the set-up")}
        if ANSWER in (tags or []):
            answers += 1
            kept["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
            kept["mystnb"] = prompts(f"what answers task {answers}")
        if is_guard(cell):
            kept["jupyter"] = {"source_hidden": True}
        if lab and cell.cell_type == "code" and not mark_of(cell):
            given += not is_guard(cell)  # it comes first, as 0
            kept |= {"nbgrader": restored(f"given-{lab}-{given}")}
        kept |= grading(cell)
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type == "code":
            if cell.execution_count is not None:
                count += 1
                cell.execution_count = count
            cell.outputs = [_described(output) for output in _joined(cell.outputs)]
    return notebook


def minutes(lesson):
    """What a first reading takes, to five minutes: 150 words or 10 lines of code in one, and one
    and a half for each prediction; set-up and answers to tasks are folded, and not counted."""
    words = lines = predictions = 0
    for cell in lesson.cells:
        if cell.cell_type == "markdown":
            words += len(cell.source.split())
            predictions += "**Predict.**" in cell.source
        elif not is_guard(cell) and not {SET_UP, ANSWER} & set(cell.metadata.get("tags", [])):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    return 5 * max(1, round((words / 150 + lines / 10 + 1.5 * predictions) / 5))


def prompts(what):
    """What the site writes on a folded cell."""
    return {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}


def alternative_texts(cell):
    """The alternative text of each picture among a cell's outputs; "" for one without any."""
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    images = re.findall(r"<img\b[^>]*>", " ".join(one.get("text/html", "") for one in data))
    found = [re.search(r'\balt="([^"]*)"', image) for image in images]
    bare = sum("image/png" in one and "text/html" not in one for one in data)
    return [unescape(alt[1]) if alt else "" for alt in found] + [""] * bare


def mark_of(cell):
    return MARK.search(cell.source) if cell.cell_type == "code" else None


def restored(name):
    """nbgrader's metadata for a given cell: whatever a student made of it, it runs as it was."""
    form = {"schema_version": 3, "grade_id": name, "task": False}
    return form | {"grade": False, "solution": False, "locked": True}


def grading(cell):
    """nbgrader's metadata for a cell of a lab, by its mark; nothing for other cells."""
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


def _joined(outputs):
    """Neighbouring pieces of one stream as one: where a stream is cut depends on timing."""
    out = []
    for output in outputs:
        stream = output.get("name")  # only streams have one
        if out and stream and out[-1].get("name") == stream:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def _described(output):
    """A picture that was stored with its text beside it, as one that carries it."""
    data = output.get("data", {})
    alt = output.get("metadata", {}).get("image/png", {}).get("alt")
    if alt and "text/html" not in data:
        output.data, output.metadata = nbformat.from_dict(bundle(data["image/png"], alt)), {}
    return output


def read(path):
    return nbformat.read(path, as_version=4)


def text(notebook):
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        form = text(normalised(read(name), name))
        Path(name).write_text(form, encoding="utf-8", newline="\n")
