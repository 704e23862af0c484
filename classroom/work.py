"""The folder `work/`, in which a reader works and which git ignores.

    work/02_masking.ipynb             a copy of the lesson
    work/labs/02_masking_lab.ipynb    the student's edition of the lab
    work/labs/project.ipynb           the project

It is beside `notebooks/`, so that the relative links of a lesson to `../docs` hold in its copy. A
lesson's link to its lab leads to GitHub, because the course itself holds no student's edition. In
the copy it leads to `labs/`.
"""

import re
from collections import defaultdict
from pathlib import Path

from classroom import copies
from classroom.edition import student_edition
from classroom.lab import ROOT, joined, read_notebook

LAB = re.compile(r"\]\(https://github\.com/[\w-]+/[\w.-]+/blob/labs/(?=\w+_lab\.ipynb\))")


def with_own_lab(text: str) -> str:
    """A lesson's text in which the link to a lab leads to the folder `labs/` beside the lesson."""
    return LAB.sub("](labs/", text)


def copy_of(source: Path) -> dict:
    """What a reader gets of a lesson or of a lab."""
    notebook = read_notebook(source)
    if source.stem.endswith("_lab"):
        return student_edition(notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = with_own_lab(joined(cell))
    return notebook


def place_of(source: Path, course: Path = ROOT) -> Path:
    """Where the reader's copy of a lesson or of a lab is."""
    work = course / "work"
    return (work / "labs" if source.stem.endswith("_lab") else work) / source.name


def prepare(sources: list[Path], course: Path = ROOT) -> list[str]:
    """Make the copies that are missing, and renew those that the reader has not changed.

    Returns:
        The sentences that tell what was done. There are none if nothing was to be done.
    """
    found = defaultdict(list)
    told = take_in(course)
    for source in sources:
        found[copies.put(place_of(source, course), copy_of(source))].append(source.stem)
    if new := found[copies.NEW]:
        labs = sum(stem.endswith("_lab") for stem in new)
        counts = {"lesson": len(new) - labs, "lab": labs}
        some = [f"{n} {kind}{'s' * (n > 1)}" for kind, n in counts.items() if n]
        told.append(f"Your own copies are in work/, which git ignores. New: {' and '.join(some)}.")
    if renewed := found[copies.RENEWED]:
        told.append(f"Renewed, because you had not changed them: {', '.join(renewed)}.")
    for stem in found[copies.BEHIND]:
        which = stem.split("_")[0] + (" --lab" if stem.endswith("_lab") else "")
        told.append(
            f"The course has a newer {stem} than your copy, which you have changed. For a fresh "
            f"copy beside yours: python3 course.py restore {which}"
        )
    return told


def take_in(course: Path = ROOT) -> list[str]:
    """Move what an earlier version of the course kept in the folder `labs/` into `work/labs/`.
    Returns a sentence for what was moved, and one for what stays because its name is taken."""
    old, new = course / "labs", course / "work" / "labs"
    if not old.is_dir():
        return []
    new.mkdir(parents=True, exist_ok=True)
    entries = list(old.iterdir())
    stay = sorted(entry.name for entry in entries if (new / entry.name).exists())
    for entry in entries:
        if entry.name not in stay:
            entry.rename(new / entry.name)
    if not stay:
        old.rmdir()
    told = ["Your labs are in work/labs/ now; they were moved from labs/."]
    more = f"labs/ still holds {', '.join(stay)}, because work/labs/ has files of these names."
    return told[: len(stay) < len(entries)] + [more] * bool(stay)


def restore(source: Path, course: Path = ROOT) -> str:
    """Put a fresh copy of a lesson or of a lab into `work/`. Returns a sentence that tells where
    the older copy is now.

    Raises:
        classroom.lab.Refused: as `copies.restore`.
    """
    path = place_of(source, course)
    kept = copies.restore(path, copy_of(source))
    told = f"{path.relative_to(course).as_posix()} is a fresh copy."
    return f"{told} Yours is beside it: {kept.name}" if kept else told
