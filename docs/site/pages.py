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

ROOT = Path(__file__).resolve().parents[2]
MODULE = re.compile(r"`mlm_lib/(\w+)\.py`")


def gather(folder: Path) -> None:
    """Write all pages into the new folder `folder`."""
    (folder / "notebooks" / "labs").mkdir(parents=True)
    (folder / "api").mkdir()
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, folder)
    # Pages of docs/ are at the top of the folder, beside notebooks/.
    told = glossary.FILE.read_text("utf-8").replace("](../notebooks/", "](notebooks/")
    (folder / glossary.FILE.name).write_text(glossary.page(told), "utf-8")
    shutil.copytree(ROOT / "docs" / "curves", folder / "curves")
    shutil.copy(ROOT / "benchmarks" / "README.md", folder / "benchmarks.md")
    lessons, titles = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")), {}
    for lesson in lessons:
        (folder / "notebooks" / lesson.name).write_text(lesson_page(lesson), "utf-8")
        titles[lesson.name[:2]] = title(lesson)
    for lab in labs().values():
        edition = student_edition(json.loads(lab.read_text("utf-8")))
        (folder / "notebooks" / "labs" / lab.name).write_text(json.dumps(edition), "utf-8")
    write_api(folder / "api", titles, lesson_of_each_module(lessons))


def lesson_page(lesson: Path) -> str:
    """A lesson with two cells that only the site shows: the link to its slides, and its questions
    as buttons, before the references and in place of the lesson's own cell of them. Links to the
    glossary become Sphinx's references to its terms, and the link to the lab leads to its page."""
    notebook = json.loads(lesson.read_text("utf-8"))
    terms = glossary.entries(glossary.FILE.read_text("utf-8"))
    cells = [c for c in notebook["cells"] if not "".join(c["source"]).startswith(HEADING)]
    notebook["cells"] = cells
    for cell in cells:
        if cell["cell_type"] == "markdown":
            told = glossary.with_roles(with_own_lab("".join(cell["source"])), terms)
            # The pages of docs/ are at the top of the folder.
            cell["source"] = told.replace("](../docs/", "](../")
    (end,) = [at for at, cell in enumerate(cells) if "".join(cell["source"]).startswith(END)]
    for place, name, text in ((end, "quiz", QUIZ), (1, "slides", SLIDES)):
        source = text.format(number=lesson.name[:2], stem=lesson.stem)
        cell = {"id": name, "cell_type": "markdown", "metadata": {}, "source": source}
        cells.insert(place, cell)
    return json.dumps(notebook)


END = "## References"
QUIZ = f"""{HEADING}

{INTRODUCTION}

```{{{{quiz}}}} {{number}}
```"""
SLIDES = """```{{only}} slides
<p><a href="../slides/{stem}.html">Slides of this lesson</a></p>
```"""


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
