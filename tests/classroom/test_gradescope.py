"""The autograder for Gradescope, executed as it is there, with this interpreter for its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from classroom import gradescope
from classroom.__main__ import main
from classroom.lab import labs, read_lab

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Gradescope runs on Linux")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder laid out as /autograder is, with the autograder of lab 02."""
    home = tmp_path_factory.mktemp("autograder")
    assert main(["export", "gradescope", "02", "--out", str(home / "02.zip")]) == 0
    with zipfile.ZipFile(home / "02.zip") as archive:
        for member in archive.infolist():
            path = archive.extract(member, home / "source")
            os.chmod(path, member.external_attr >> 16)
    (home / "results").mkdir()
    return home


def run(home, **files):
    """The exit status for these files, and the results if there are any."""
    for name in ("submission", "results"):
        shutil.rmtree(home / name, ignore_errors=True)
        (home / name).mkdir()
    for name, content in files.items():
        (home / "submission" / f"{name}.ipynb").write_text(content, "utf-8")
    places = {"AUTOGRADER": str(home), "PYTHON": sys.executable}
    command = [home / "source" / "run_autograder"]
    done = subprocess.run(command, cwd=home, env=os.environ | places, stderr=subprocess.PIPE)
    told = home / "results" / "results.json"
    return done.returncode, json.loads(told.read_text("utf-8")) if told.exists() else None


@pytest.mark.slow
def test_each_task_is_a_test_with_its_message(home):
    lab = json.loads(labs()["02"].read_text("utf-8"))
    for cell in lab["cells"]:
        if "# TASK 02.1" in "".join(cell["source"]):
            cell["source"] = "# TASK 02.1\ndef choose(eligible, rate, generator):\n    return gc"
    status, told = run(home, lab=json.dumps(lab))
    assert status == 0 and told["score"] == 10 == sum(one.get("score", 0) for one in told["tests"])
    first, second = told["tests"][:2]
    assert first["status"] == "failed" and (first["score"], first["max_score"]) == (0, 2)
    assert first["output"].startswith("error: ")
    assert second["status"] == "passed" and second["name"].startswith("02.2 ")
    assert told["extra_data"] == {"look at": ["02.1 uses gc"]}
    # Gradescope hides the total from students as soon as any test is hidden.
    assert "visibility" not in str(told) and "uses gc" not in str(told["tests"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "files, words",
    [
        ({}, "no notebook"),
        ({"a": "{}", "b": "{}"}, "2 notebooks"),
        ({"a": "no json"}, "is not a notebook"),
        ({"a": '{"cells": [{"cell_type": "code", "source": "# TASK 03.1"}]}'}, "labs here are 02"),
    ],
)
def test_what_cannot_be_marked_gets_a_sentence_and_no_points(home, files, words):
    status, told = run(home, **files)
    assert status == 0 and told["score"] == 0 and words in told["output"]


def link(folder):
    (folder / "lab.ipynb").symlink_to(labs()["02"])


def link_beside(folder):
    (folder / "other.txt").write_text(labs()["02"].read_text("utf-8"), "utf-8")
    (folder / "lab.ipynb").symlink_to("other.txt")


def circle(folder):
    (folder / "lab.ipynb").symlink_to("lab.ipynb")


def link_to_a_folder(folder):
    (folder / "mine").symlink_to(labs()["02"].parent)


def device(folder):
    (folder / "lab.ipynb").symlink_to("/dev/zero")


def pipe(folder):
    os.mkfifo(folder / "lab.ipynb")


def directory(folder):
    (folder / "lab.ipynb").mkdir()


@pytest.mark.parametrize(
    "place, words",
    [
        (link, "is a link"),
        (link_beside, "is a link"),
        (circle, "cannot be read"),
        (device, "is a link"),
        (link_to_a_folder, "no notebook|notebooks|is a link"),
        (pipe, "no file that can be read"),
        (directory, "no file that can be read"),
    ],
)
def test_nothing_but_a_file_of_the_submission_itself_is_read(tmp_path, place, words):
    place(tmp_path)
    told = gradescope.results(read_lab(labs()["02"]), tmp_path)
    assert told["score"] == 0 and told["tests"] == [] and re.search(words, told["output"])


@pytest.mark.parametrize("links", [True, False])
def test_a_folder_that_is_reached_by_a_link_is_not_taken_for_one(tmp_path, links, monkeypatch):
    """The folder of submissions itself may be a link."""
    monkeypatch.setattr(gradescope, "mark", lambda lab, submission: [])
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    shutil.copy(labs()["02"], tmp_path / "real" / "lab.ipynb")
    told = gradescope.results(read_lab(labs()["02"]), tmp_path / ("way" if links else "real"))
    assert "0 of 12 points" in told["output"]


@pytest.mark.slow
def test_a_failure_of_ours_gives_no_score(home):
    package = home / "source" / "course" / "mlm_lib"
    package.rename(home / "elsewhere")
    try:
        status, told = run(home, lab=labs()["02"].read_text("utf-8"))
    finally:
        (home / "elsewhere").rename(package)
    assert status != 0 and told is None


@pytest.mark.slow
def test_the_autograder_holds_one_lab_and_what_gradescope_asks_for(home):
    source = home / "source"
    assert [path.name for path in source.rglob("*_lab.ipynb")] == [labs()["02"].name]
    assert all(os.access(source / name, os.X_OK) for name in ("setup.sh", "run_autograder"))
    assert subprocess.run(["bash", "-n", source / "setup.sh"]).returncode == 0
