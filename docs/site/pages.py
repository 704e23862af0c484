"""Gathers the pages of the site in one folder, from which Sphinx builds the site.

The pages of docs/ are at the top of the folder. Lessons are in `notebooks/` and the students'
editions of the labs in `notebooks/labs/`, as a reader has them in `work/`, so that the links
between them hold. A page for each module of the package is written into `api/`.
"""

import json
import re
import shutil
from pathlib import Path

from classroom.edition import student_edition
from classroom.lab import labs
from classroom.questions import HEADING, INTRODUCTION
from classroom.work import with_own_lab
from docs.site import glossary
from docs.site.addresses import COLAB, colab

ROOT = Path(__file__).resolve().parents[2]
MODULE = re.compile(r"`mlm_lib/(\w+)\.py`")


def gather(folder: Path) -> None:
    """Write all pages into the new folder `folder`."""
    (folder / "notebooks" / "labs").mkdir(parents=True)
    (folder / "api").mkdir()
    plain = folder / "plain" / "notebooks"  # what a reader downloads; no page is made from it
    (plain / "labs").mkdir(parents=True)
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, folder)
    # Pages of docs/ are at the top of the folder, beside notebooks/.
    told = glossary.FILE.read_text("utf-8").replace("](../notebooks/", "](notebooks/")
    (folder / glossary.FILE.name).write_text(glossary.page(told), "utf-8")
    shutil.copytree(ROOT / "docs" / "curves", folder / "curves")
    shutil.copy(ROOT / "benchmarks" / "README.md", folder / "benchmarks.md")
    lessons, titles = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")), {}
    for lesson in lessons:
        shutil.copy(lesson, plain)
        (folder / "notebooks" / lesson.name).write_text(lesson_page(lesson), "utf-8")
        titles[lesson.name[:2]] = title(lesson)
    for lab in labs().values():
        edition = student_edition(json.loads(lab.read_text("utf-8")))
        (plain / "labs" / lab.name).write_text(json.dumps(edition, indent=1), "utf-8")
        add_doors(edition["cells"], lab)
        (folder / "notebooks" / "labs" / lab.name).write_text(json.dumps(edition), "utf-8")
    write_api(folder / "api", titles, lesson_of_each_module(lessons))


def lesson_page(lesson: Path) -> str:
    """A lesson with three cells that only the site shows: the ways to its file and its slides, its
    questions as buttons, in place of the lesson's own cell of them, and a place to mark it as done.
    Links to the glossary become Sphinx's references to its terms, and the link to the lab leads to
    its page."""
    notebook = json.loads(lesson.read_text("utf-8"))
    terms = glossary.entries(glossary.FILE.read_text("utf-8"))
    cells = [c for c in notebook["cells"] if not "".join(c["source"]).startswith(HEADING)]
    notebook["cells"] = cells
    add_invitation(cells, lesson.name[:2])
    for cell in cells:
        if cell["cell_type"] == "markdown":
            told = glossary.with_roles(with_own_lab("".join(cell["source"])), terms)
            # The pages of docs/ are at the top of the folder.
            cell["source"] = told.replace("](../docs/", "](../")
    (end,) = [at for at, cell in enumerate(cells) if "".join(cell["source"]).startswith(END)]
    cells.insert(end, site_cell("quiz", QUIZ.format(number=lesson.name[:2])))
    cells.append(site_cell("done", DONE.format(lesson=lesson.stem[3:])))
    add_doors(cells, lesson)
    return json.dumps(notebook)


def site_cell(name: str, source: str) -> dict:
    return {"id": name, "cell_type": "markdown", "metadata": {}, "source": source}


def add_doors(cells: list[dict], notebook: Path) -> None:
    """Put the line of links below the title cell, in place of the notebook's own link to Colab."""
    told = "".join(cells[0]["source"])
    cells[0]["source"] = COLAB.sub("", told)
    options = f":title: {told.splitlines()[0].removeprefix('# ')}\n"
    if address := colab(told):
        options += f":colab: {address}\n"
    doors = f"```{{notebook-doors}} {notebook.stem}\n{options}```"
    cells.insert(1, site_cell("doors", doors))


END = "## References"
QUIZ = f"""{HEADING}

{INTRODUCTION}

```{{{{quiz}}}} {{number}}
```"""
# `site.js` makes a button of it, and remembers a lesson by its name, since numbers may change.
DONE = '<div class="mark-done" data-lesson="{lesson}" hidden></div>'


def title(notebook: Path) -> str:
    """The heading of a notebook, such as "02 · Masking: ..."."""
    first = json.loads(notebook.read_text("utf-8"))["cells"][0]["source"]
    return "".join(first).splitlines()[0].removeprefix("# ")


def lesson_of_each_module(lessons: list[Path]) -> dict[str, str]:
    """The number of the lesson that builds a module or, if no lesson builds it, first uses it.

    A lesson names its modules in its first cell, after "Builds" and after "Uses". What lesson 00
    uses is used by all lessons and belongs to none of them.
    """
    built, used = {}, {}
    for lesson in lessons:
        opening = "".join(json.loads(lesson.read_text("utf-8"))["cells"][0]["source"])
        builds, _, uses = opening.partition("Uses")
        for names, found in ((builds, built), (uses, used)):
            for name in MODULE.findall(names):
                found.setdefault(name, lesson.name[:2])
    return {name: number for name, number in (used | built).items() if number != "00"}


def write_api(folder: Path, titles: dict[str, str], of_module: dict[str, str]) -> None:
    """Write a page for each module, and a page that lists the modules by their lesson."""
    groups: dict[str, list[str]] = {}
    for module in sorted((ROOT / "mlm_lib").rglob("[a-z]*.py")):
        name = ".".join(module.relative_to(ROOT / "mlm_lib").with_suffix("").parts)
        groups.setdefault(of_module.get(name, ""), []).append(name)
        page = f"{name}\n{'=' * len(name)}\n\n.. automodule:: mlm_lib.{name}\n"
        (folder / f"{name}.rst").write_text(page, "utf-8")
    lines = ["The package", "===========", "", INTRODUCTION, ""]
    for number in sorted(groups, key=lambda number: (not number, number)):
        heading = titles.get(number, f"Lesson {number}" if number else "Behind the lessons")
        lines += [heading, "-" * len(heading), "", ".. toctree::", "   :maxdepth: 1", ""]
        lines += [*(f"   {name}" for name in groups[number]), ""]
    (folder / "index.rst").write_text("\n".join(lines), "utf-8")


INTRODUCTION = """``mlm_lib`` holds what the lessons build, under the lessons' names for it. What
the lessons use and do not explain line by line is in ``mlm_lib.engine``. ``import mlm_lib`` imports
nothing else: take what you need, ``from mlm_lib.masking import mask_tokens``."""


# For a lesson: the heading before which it invites to a page of `docs/site/play`, and how.
INVITATIONS = {
    "02": (
        "## Static or dynamic?",
        'The page <a href="../mask-a-sentence/index.html">Mask a sentence</a> masks a sentence of '
        "your own in this browser. You choose the rate, draw again and again, and see how the "
        "counts fill the sampling band.",
    ),
    "09": (
        "## Deeper",
        'If you have the log file of a training of your own, the page <a href="../your-curve/'
        'index.html">Check your curve</a> draws it in this browser and says what is wrong with it.',
    ),
}


def add_invitation(cells: list[dict], number: str) -> None:
    """Add to the cells of lesson `number` the one that invites to a page, if it has one."""
    if number in INVITATIONS:
        heading, told = INVITATIONS[number]
        (at,) = [at for at, c in enumerate(cells) if "".join(c["source"]).startswith(heading)]
        cell = {"id": "play", "cell_type": "markdown", "metadata": {}, "source": f"<p>{told}</p>"}
        cells.insert(at, cell)
