"""README.md, docs/using.md, CONTRIBUTING.md: links lead to what is there, and commands run."""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from lesson_times import seconds_to_run
from notebook_doors import PYPROJECT, REPOSITORY, ROOT, colab_address

sys.path.insert(0, str(ROOT))
import course

README = (ROOT / "README.md").read_text("utf-8")
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
USING = (ROOT / "docs" / "using.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
SOURCE = (ROOT / "course.py").read_text("utf-8")
COMMANDS = sorted(set(re.findall(r"python3 course\.py [^`\n]+", README + USING + CONTRIBUTING)))
BADGE = re.compile(r"^\[!\[([^\]]+)\]\(([^)]+)\)\]\(([^)]+)\)$", re.M)
LINKS = sorted(set(re.findall(r"\]\(([^)]+)\)", README)))
HEADING = re.compile(r"^## (.+)$", re.M)


def test_the_figure_is_the_one_that_lesson_09_has_stored():
    pytest.importorskip("sphinx", reason="the docs extra is not installed")
    from docs.site.floor import floor

    assert "](docs/floor.svg)" in README
    same = (ROOT / "docs" / "floor.svg").read_bytes() == floor()  # pytest is slow to compare them
    assert same, "run: python docs/site/floor.py"


def test_the_map_has_every_lesson_with_its_title_and_its_file():
    rows = re.findall(r"^\| (\d\d) \| \[(.+?)\]\((\S+?)\) \|", README, re.M)
    titles = []
    for path in LESSONS:
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        number, _, title = first.splitlines()[0].removeprefix("# ").partition(" · ")
        titles.append((number, title, path.relative_to(ROOT).as_posix()))
    assert rows == titles


@pytest.mark.parametrize("link", [link for link in LINKS if "://" not in link])
def test_a_link_leads_to_a_file_of_the_course_or_to_a_section(link):
    file, _, section = link.partition("#")
    assert (ROOT / file).exists()
    anchors = [heading.lower().replace(" ", "-") for heading in HEADING.findall(README)]
    assert file or section in anchors


def test_badges_tell_of_this_repository():
    badges = {name: (picture, target) for name, picture, target in BADGE.findall(README)}
    assert set(badges) == {"tests", "Open in Colab", "Binder", "MIT licence"}
    tests = f"{REPOSITORY}/actions/workflows/test.yml"
    assert badges["tests"] == (f"{tests}/badge.svg", tests)
    assert (ROOT / ".github/workflows/test.yml").is_file()
    assert badges["Open in Colab"][1] == colab_address(LESSONS[0])
    place = REPOSITORY.removeprefix("https://github.com/")
    start = f"https://mybinder.org/v2/gh/{place}/HEAD?urlpath=lab/tree/"
    lesson = Path(badges["Binder"][1].removeprefix(start))
    assert badges["Binder"][1].startswith(start) and ROOT / lesson == LESSONS[0]
    licence = PYPROJECT["project"]["license"]
    assert badges["MIT licence"][0].endswith(f"licence-{licence}-blue")
    assert (ROOT / badges["MIT licence"][1]).read_text("utf-8").startswith(licence)


def test_what_is_told_stands_on_the_first_screens():
    """What it is, the figure, the commands that get, open, run and test it, and the map."""
    wanted = ["# Masked", "](docs/floor.svg)", "git clone", "course.py open  "]
    wanted += ["course.py run  ", "course.py test  ", "| 00 |"]
    places = [README.index(text) for text in wanted]
    assert places == sorted(places)
    assert README[: places[-1]].count("\n") < 32


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_course_py_takes(command, tmp_path, monkeypatch):
    for folder in ("FOLDER", "work/labs"):
        (tmp_path / folder).mkdir(parents=True)
    for begun in ("02_masking_lab", "project"):
        (tmp_path / "work" / "labs" / f"{begun}.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    args = course.parse(shlex.split(command, comments=True)[2:])
    if args.command == "labs":  # which another program reads
        course.parse_labs(args.passed_on)


def test_the_course_is_cloned_from_where_it_is():
    assert f"git clone {REPOSITORY} &&" in USING and f"pip install git+{REPOSITORY}`" in USING
    assert f"git clone {REPOSITORY}\n" in README
    assert f"]({REPOSITORY}/archive/refs/heads/main.zip)" in README


def test_the_sizes_of_the_set_up_are_those_of_course_py():
    told = " ".join(README.split())
    assert f"build is {course.CPU_SIZE} and the CUDA build {course.CUDA_SIZE}" in told
    disk = re.search(r"\((\d+ GB) with the CPU build of torch, (\d+ GB) with CUDA\)", SOURCE)
    assert f"Keep {disk[1]} of the disk free for the CPU build, or {disk[2]} for the" in told


def test_the_time_of_a_run_is_the_sum_of_the_seconds_of_the_lessons():
    """Fourteen to sixteen minutes are called a quarter of an hour."""
    assert "about a quarter of an hour** if the lessons run one after another" in README
    assert sum(map(seconds_to_run, LESSONS)) == pytest.approx(15 * 60, abs=60)


def test_the_package_alone_runs_as_it_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"```python\n(.+?)```", USING, re.S)
    exec(shown, names := {})
    assert names["loss"].item() > 0 and (tmp_path / "my-bert" / "config.json").is_file()


def test_each_test_that_the_page_on_reliability_names_is_there():
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    named = re.findall(r"`(test_\w+)\.(test_\w+)`", page)
    assert len(named) > 30
    files = {path.stem: path for path in (ROOT / "tests").glob("*/test_*.py")}
    for file, test in named:
        tree = ast.parse(files[file].read_text("utf-8"))
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test
