"""The reader's own copies in work/: nothing that a reader wrote is lost, and links hold there."""

import json
import re

import pytest

from classroom import copies
from classroom.__main__ import main, parse
from classroom.lab import ROOT, labs
from classroom.work import prepare, restore, take_in

LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@pytest.fixture
def course(tmp_path):
    """A course with one lesson. `course.version` writes another version of it."""
    (tmp_path / "notebooks").mkdir()
    lesson = tmp_path / "notebooks" / "03_labels.ipynb"

    class Course:
        copy = tmp_path / "work" / lesson.name

        def version(self, text):
            cell = {"cell_type": "markdown", "metadata": {}, "source": [text]}
            code = {"cell_type": "code", "metadata": {}, "source": ["1"], "outputs": []}
            cells = [cell, code | {"execution_count": None}]
            form = {"metadata": {}, "nbformat": 4, "nbformat_minor": 5}
            lesson.write_text(json.dumps(form | {"cells": cells}), "utf-8")

        def open(self):
            return prepare([lesson], tmp_path)

        def edit(self, change):
            notebook = json.loads(self.copy.read_text("utf-8"))
            change(notebook["cells"])
            self.copy.write_text(json.dumps(notebook), "utf-8")

        def restore(self):
            return restore(lesson, tmp_path)

    one = Course()
    one.version("first")
    one.open()
    return one


def run_all(cells):
    cells[1] |= {"outputs": [{"output_type": "stream", "text": "1"}], "execution_count": 7}
    cells[0]["metadata"] = {"jupyter": {"source_hidden": False}}
    cells[0]["source"] = "".join(cells[0]["source"])  # another form of the same text


def write_down(cells):
    cells[0]["source"] = "My prediction: 0.8"


def test_a_copy_that_was_only_run_is_renewed(course):
    course.edit(run_all)
    assert course.open() == [] and '"execution_count": 7' in course.copy.read_text("utf-8")
    course.version("second")
    assert course.open() == ["Renewed, because you had not changed them: 03_labels."]
    assert "second" in course.copy.read_text("utf-8")
    course.version("third")
    assert course.open() and "third" in course.copy.read_text("utf-8")


def test_a_copy_into_which_the_reader_wrote_is_kept_and_a_newer_version_is_told(course):
    course.edit(write_down)
    before = course.copy.read_bytes()
    assert course.open() == []
    course.version("second")
    (told,) = course.open()
    assert told.endswith("python3 course.py restore 03") and course.copy.read_bytes() == before


@pytest.mark.parametrize("content", ["", "no notebook", '{"cells": []}', '{"cells": 3}'])
def test_a_file_that_no_copy_was_made_of_is_left_as_it_is(course, content):
    course.copy.write_text(content)
    course.version("second")
    assert course.open() == [] and course.copy.read_text() == content


def test_restoring_keeps_the_readers_copy_under_a_name_with_the_date(course):
    course.edit(write_down)
    told = course.restore()
    assert "first" in course.copy.read_text("utf-8")
    (kept,) = [path for path in course.copy.parent.iterdir() if path != course.copy]
    assert re.fullmatch(r"03_labels_\d{4}-\d\d-\d\d_\d{6}\.ipynb", kept.name)
    assert "My prediction" in kept.read_text("utf-8") and told.endswith(kept.name)


def test_labs_of_an_earlier_version_are_moved_and_none_is_lost(tmp_path):
    for folder, name in [("labs", "02"), ("labs", "03"), ("work/labs", "03")]:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(f"{folder} {name}")
    moved, stays = take_in(tmp_path)
    assert "moved from labs/" in moved and "labs/ still holds 03" in stays
    there = {path: path.read_text() for path in tmp_path.rglob("0?")}
    assert there == {
        tmp_path / "work/labs/02": "labs 02",
        tmp_path / "work/labs/03": "work/labs 03",
        tmp_path / "labs/03": "labs 03",
    }
    (tmp_path / "labs" / "03").unlink()
    assert take_in(tmp_path) == [] and not (tmp_path / "labs").exists()


def test_a_file_at_its_old_place_is_named_at_its_new_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "work" / "labs").mkdir(parents=True)
    (tmp_path / "work" / "labs" / "02.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["check", "labs/02.ipynb"])
    assert "your copy is work/labs/02.ipynb" in capsys.readouterr().err


def test_a_lab_is_checked_by_its_number(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("classroom.__main__.ROOT", tmp_path)
    (labs := tmp_path / "work" / "labs").mkdir(parents=True)
    for name in ("02_masking_lab.ipynb", "zoo_lab.ipynb"):
        (labs / name).touch()
    assert (
        parse(["check", "2"]).file == parse(["check", "02"]).file == labs / "02_masking_lab.ipynb"
    )
    assert parse(["check", "zoo"]).file == labs / "zoo_lab.ipynb"
    assert main(["check", "3"]) == 1
    assert "no copy of lab 03 yet; make it by: course.py labs start 03" in capsys.readouterr().err


def test_every_link_of_a_copy_leads_to_a_file(tmp_path):
    """The folder of the course stands for itself; only `work/` is made anew."""
    prepare([*LESSONS, *labs().values()], tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    count = 0
    for path in (tmp_path / "work").rglob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            assert (path.parent / link).is_file(), f"{path.name}: {link}"
            count += link.startswith("labs/")
    assert count == len(LESSONS) - 1


def test_a_copy_holds_no_solution(tmp_path):
    prepare(list(labs().values()), tmp_path)
    for path in (tmp_path / "work" / "labs").iterdir():
        assert "BEGIN SOLUTION" not in path.read_text("utf-8")


def test_a_fingerprint_is_of_the_cells_alone():
    cell = {"cell_type": "code", "source": ["a\n", "b"], "outputs": [1]}
    same = {"cell_type": "code", "source": "a\nb", "id": "x"}
    first, second = ({"cells": [one], "metadata": {}} for one in (cell, same))
    assert copies.fingerprint(first) == copies.fingerprint(second)
    other = {"cells": [same | {"cell_type": "markdown"}], "metadata": {}}
    assert copies.fingerprint(other) != copies.fingerprint(first)
