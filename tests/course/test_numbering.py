"""A number that names a lesson or a lab names the one that it means.

Lessons have been renumbered once, and a number that was left behind would send a reader to another
lesson without any sign. These tests compare numbers with names that stand beside them.
"""

import json
import re
from pathlib import Path

import pytest

from classroom.lab import labs

ROOT = Path(__file__).parents[2]
LESSONS = {path.name[:2]: path for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))}
TEXTS = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("data/**/*.md"),
    *ROOT.glob("data/**/*.toml"), *ROOT.glob("mlm_lib/**/*.py"), *ROOT.glob("classroom/**/*.toml"),
    *ROOT.glob("tools/*.py"), *ROOT.glob("docs/site/**/*.py"),
]  # fmt: skip
LINK = re.compile(r"\[[Ll]esson (\d\d)\]\((?:\.\./)?(?:notebooks/)?(\d\d)_\w+\.ipynb[^)]*\)")
SEVERAL = r"((?:\d\d|,| |and|or|to|\n)*\d\d)"
NAMED = re.compile(rf"\b[Ll]essons?[ \n]{SEVERAL}\b(?!\.\d)")
NAMED_LABS = re.compile(rf"\b[Ll]abs?(?: start)?[ \n]{SEVERAL}\b(?!\.\d)")


def prose(path):
    """The text of a file; of a notebook, its Markdown and its code."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


ALL = [
    path for path in [*TEXTS, *LESSONS.values(), *labs().values()] if path.name != "CHANGELOG.md"
]


@pytest.fixture(params=ALL, ids=lambda path: path.relative_to(ROOT).as_posix())
def text(request):
    return prose(request.param)


def test_lessons_and_labs_that_are_named_exist(text):
    named = {number for some in NAMED.findall(text) for number in re.findall(r"\d\d", some)}
    assert named <= LESSONS.keys()
    tried = {number for some in NAMED_LABS.findall(text) for number in re.findall(r"\d\d", some)}
    assert tried <= labs().keys()


def test_a_link_leads_to_the_lesson_that_its_text_names(text):
    assert all(told == file for told, file in LINK.findall(text))


def test_a_module_says_the_number_of_the_lesson_that_builds_it():
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d\d) \| \[[^|]+\| ([^|]+)\|", readme, re.M)
    built = {name: number for number, files in rows for name in re.findall(r"`(\w+)\.py`", files)}
    assert len(built) > 15
    for name, number in built.items():
        told = re.search(rf"Built in lessons? {SEVERAL}", prose(ROOT / "mlm_lib" / f"{name}.py"))
        assert told is None or number in told[1], name


@pytest.mark.parametrize("number", LESSONS)
def test_a_lesson_needs_earlier_ones_and_leads_to_the_next(number):
    cells = json.loads(LESSONS[number].read_text("utf-8"))["cells"]
    first, last = "".join(cells[0]["source"]), "".join(cells[-1]["source"])
    assert first.startswith(f"# {number} · ")
    needs = re.search(rf"Needs:[^.]*?lessons? {SEVERAL}", first)
    assert needs is None or max(re.findall(r"\d\d", needs[1])) < number
    follows = re.search(r"\*\*Next:\*\* lesson (\d\d)", last)
    assert follows is None or int(follows[1]) == int(number) + 1


@pytest.mark.parametrize("number", LESSONS)
def test_the_command_that_a_lesson_shows_runs_this_lesson(number):
    assert set(re.findall(r"--only (\d\d)", prose(LESSONS[number]))) <= {number}


@pytest.mark.parametrize("page", ["data/README.md", "docs/using.md", "docs/your_own_work.md"])
def test_a_command_beside_the_name_of_a_lesson_runs_this_lesson(page):
    found = 0
    for line in (ROOT / page).read_text("utf-8").splitlines():
        run = re.findall(r"--only (\d\d) -p", line)
        named = re.findall(r"[Ll]esson (\d\d)", line)
        assert not named or set(run) <= set(named), line
        found += bool(run)
    assert found


@pytest.mark.parametrize("key", [key for key in labs() if key != "zoo"])
def test_a_lab_has_the_number_of_a_lesson_that_it_needs(key):
    first = json.loads(labs()[key].read_text("utf-8"))["cells"][0]["source"]
    assert "".join(first).startswith(f"# Lab {key} · ")
    assert key in re.search(rf"\*\*Needs:\*\* lessons? {SEVERAL}", "".join(first))[1]


def test_a_task_that_a_question_names_is_of_a_lab_that_has_such_a_task():
    for path in (ROOT / "classroom" / "questions").glob("*.toml"):
        named = re.findall(r'^mistake = "(\d\d)\.(\d)', path.read_text("utf-8"), re.M)
        assert named and {number for number, _ in named} <= labs().keys(), path.name
