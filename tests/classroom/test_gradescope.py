"""The autograder for Gradescope, executed as it is there, with this interpreter for its own."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from classroom.__main__ import main
from classroom.lab import labs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="Gradescope runs on Linux"),
]


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


def test_each_task_is_a_test_with_its_message(home):
    lab = json.loads(labs()["02"].read_text("utf-8"))
    for cell in lab["cells"]:
        if "# TASK 02.1" in "".join(cell["source"]):
            cell["source"] = "# TASK 02.1\ndef choose(eligible, rate, generator):\n    return gc"
    status, told = run(home, lab=json.dumps(lab))
    assert status == 0 and told["score"] == 10 == sum(one.get("score", 0) for one in told["tests"])
    first, second, last = told["tests"][0], told["tests"][1], told["tests"][-1]
    assert first["status"] == "failed" and (first["score"], first["max_score"]) == (0, 2)
    assert first["output"].startswith("error: ") and "visibility" not in first
    assert second["status"] == "passed" and second["name"].startswith("02.2 ")
    assert "02.1 uses gc" in last["output"] and last["visibility"] == "hidden"


@pytest.mark.parametrize(
    "files, words",
    [
        ({}, "no notebook"),
        ({"a": "{}", "b": "{}"}, "2 notebooks"),
        ({"a": "no json"}, "is not a notebook"),
        ({"a": '{"cells": [{"cell_type": "code", "source": "# TASK 03.1"}]}'}, "KEY one of 02"),
    ],
)
def test_what_cannot_be_marked_gets_a_sentence_and_no_points(home, files, words):
    status, told = run(home, **files)
    assert status == 0 and told["score"] == 0 and words in told["output"]


def test_a_failure_of_ours_gives_no_score(home):
    package = home / "source" / "course" / "mlm_lib"
    package.rename(home / "elsewhere")
    try:
        status, told = run(home, lab=labs()["02"].read_text("utf-8"))
    finally:
        (home / "elsewhere").rename(package)
    assert status != 0 and told is None


def test_the_autograder_holds_one_lab_and_what_gradescope_asks_for(home):
    source = home / "source"
    assert [path.name for path in source.rglob("*_lab.ipynb")] == [labs()["02"].name]
    assert all(os.access(source / name, os.X_OK) for name in ("setup.sh", "run_autograder"))
    assert subprocess.run(["bash", "-n", source / "setup.sh"]).returncode == 0
