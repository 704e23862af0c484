"""Makes the folder that a teacher hands out to a class: the course as a student uses it, with the
students' editions of the labs in `classroom/labs`. It holds no solution, no hidden test, none of
the answers on which we tried the checks, and no history.

Only files that git tracks are handed out, so that nothing of the teacher's own, such as a table of
marks or the folder `work/`, ever is.
"""

import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from classroom.copies import write_notebook
from classroom.edition import student_edition
from classroom.lab import EDITIONS, ROOT, SOURCES, Refused, read_notebook

# What is handed out is named, so that a new file of another kind is not handed out by mistake.
HANDED_OUT = """
    .devcontainer .gitattributes .gitignore .jupyter CITATION.cff LICENSE README.md benchmarks
    classroom constraints.txt course.py data docs environment.yml mlm_lib notebooks pyproject.toml
    tests/conftest.py tests/grammars tests/helpers tests/package tests/scripts tools
""".split()
# docs/labs.md lists the mistakes of each task, and in the bug zoo to find the mistake is the task.
# The questions for a class are stored with their key.
KEPT_BACK = """
    classroom/autograder classroom/questions classroom/solutions docs/instructors.md docs/labs.md
""".split()
NOTE = """
**This is the copy of the course for your class.** `python3 course.py open` puts your own copies of
the lessons and labs into the folder `work/`, and `python3 course.py labs check 02` marks lab 02.
Whoever teaches the class has the solutions and further checks. So this folder lacks some of the
files that the pages mention, and you need not clone anything.
"""
ENTRY = re.compile(r"^(?:- |\|).*\n(?: {2}.*\n)*", re.M)  # of a list, or a row of a table
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def hand_out(folder: Path, zipped: bool = False) -> list[str]:
    """Make the folder for a class, and with `zipped` also a zip file of it beside it. Returns the
    sentences that tell what was made.

    Raises:
        Refused: `folder` or the zip file is there already, `folder` is inside the course, or git
            does not know which files belong to the course. Nothing is made.
    """
    folder = Path(os.path.abspath(folder))
    archive = folder.with_name(f"{folder.name}.zip")
    for path in [folder, archive][: 1 + zipped]:
        if os.path.lexists(path):
            raise Refused(f"{path} is there already; name a folder that is not")
    if folder.resolve().is_relative_to(ROOT):
        raise Refused(f"{folder} is inside the course; name a folder outside, as ../{folder.name}")
    names = tracked()
    given = {name for name in names if within(name, HANDED_OUT) and not within(name, KEPT_BACK)}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        made = Path(place, folder.name)
        for name in sorted(given):
            copy(name, made, set(names) - given)
        for path in (ROOT / name for name in names):
            if path.parent == SOURCES and path.name.endswith("_lab.ipynb"):
                edition = student_edition(read_notebook(path))
                write_notebook(made / EDITIONS.relative_to(ROOT) / path.name, edition)
        told = [f"{folder} has {size(made)}."]
        if zipped:
            whole = Path(shutil.make_archive(str(made), "zip", place, folder.name))
            told.append(f"{archive} has {whole.stat().st_size / 1e6:.0f} MB.")
            whole.rename(archive)
        made.rename(folder)
    return [*told, "Try it as a student would: python3 course.py open, in that folder."]


def tracked() -> list[str]:
    """The names of the files of the course that git tracks.

    Raises:
        Refused: git is not installed, or the course is not in a repository.
    """
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
        names, why = os.fsdecode(done.stdout).split("\0")[:-1], os.fsdecode(done.stderr).strip()
    except FileNotFoundError:
        names, why = [], "git is not installed"
    if "course.py" not in names:
        raise Refused(
            f"git does not know which files in {ROOT} belong to the course and which are yours "
            f"({why or 'it tracks none of them'}); clone the course with git, and give the command "
            "there"
        )
    return [name for name in names if (ROOT / name).is_file()]


def within(name: str, places: list[str]) -> bool:
    """Whether a file is one of these places, or is below one of them."""
    return any(name == place or name.startswith(f"{place}/") for place in places)


def copy(name: str, folder: Path, missing: set[str]) -> None:
    """Copy a file of the course. In a page, a link to one of the `missing` files becomes text, and
    an entry of a list or of a table that leads to a page for teachers is left out."""
    source, target = ROOT / name, folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    if target.suffix == ".md":
        place = posixpath.dirname(name)
        text = for_students(source.read_text("utf-8"), place)
        text = without_links(text, place, missing)
        if name == "README.md":
            title, rest = text.split("\n", 1)
            text = f"{title}\n{NOTE}{rest}"
        target.write_text(text, "utf-8", newline="\n")


def without_links(text: str, place: str, missing: set[str]) -> str:
    """The text of a page in the folder `place` with the words of links to `missing` files in place
    of these links."""

    def one(link: re.Match) -> str:
        return link[1] if leads_to(link, place) in missing else link[0]

    return LINK.sub(one, text)


def for_students(text: str, place: str) -> str:
    """The text of a page in the folder `place` without the entries of lists and tables that link to
    a page for teachers."""

    def one(entry: re.Match) -> str:
        links = LINK.finditer(entry[0])
        return "" if any(within(leads_to(link, place), KEPT_BACK) for link in links) else entry[0]

    return ENTRY.sub(one, text)


def leads_to(link: re.Match, place: str) -> str:
    """The name of the file to which a link of a page in the folder `place` leads."""
    return posixpath.normpath(posixpath.join(place, link[2]))


def size(folder: Path) -> str:
    """How many files a folder holds, and how many megabytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{len(sizes)} files and {sum(sizes) / 1e6:.0f} MB"
