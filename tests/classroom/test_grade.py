"""Marking: one notebook, a class, and whatever else lies in the folder."""

import csv
import json
import signal
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest
from filelock import FileLock

from classroom import grade
from classroom.__main__ import main
from classroom.edition import student_edition
from classroom.lab import MARK, ROOT, Refused, labs, read_lab, read_submission
from classroom.marker import Limits, mark
from classroom.tables import as_cell, from_cell

SOURCE = json.loads(labs()["02"].read_text("utf-8"))
LIMITS = ["--seconds", "2", "--memory", "1"]
HEAD = "# TASK 02.1: a coin for each position\n"
# What an answer does, and what the row says of it: three to a notebook, two of which end a process.
ACCIDENTS = {
    "endless": ("while True:\n    pass", "2 seconds"),
    "flood": ("while True:\n    print('x' * 10_000)", "printing 10 MB"),
    "leaves": ("import sys\nsys.exit()", "SystemExit"),
    "swallows": (
        "while True:\n    try:\n        while True:\n            pass\n"
        "    except BaseException:\n        continue",
        "2 seconds",
    ),
    "hog": ("held = []\nwhile True:\n    held.append(bytearray(100_000_000))", "GB of memory"),
    "asks": ("name = input()", "EOFError"),
    "exits": ("import os\nos._exit(3)", "exit status 3"),
    "crashes": ("import ctypes\nctypes.string_at(0)", "ended by itself"),
    "broken": ("def choose(:", "SyntaxError"),
}
PLACES = {name: (f"hapless{n // 3}", f"02.{1 + n % 3}") for n, name in enumerate(ACCIDENTS)}


def notebook(*, instead=None, drop=(), source=SOURCE):
    """The solved lab, with other code in cells whose mark is named, and without some cells."""
    copy = json.loads(json.dumps(source))
    cells = []
    for cell in copy["cells"]:
        mark = MARK.search("".join(cell["source"])) if cell["cell_type"] == "code" else None
        name = f"{mark[1]} {mark[2]}.{mark[3]}" if mark else ""
        if name and name in drop or (name.split(" ")[0] in drop):
            continue
        cell["source"] = (instead or {}).get(name, "".join(cell["source"]))
        cells.append(cell)
    return copy | {"cells": cells}


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")
    return path


def table(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def classroom(tmp_path_factory):
    """A folder with three honest submissions beside everything that may go wrong, and its marks."""
    folder = tmp_path_factory.mktemp("class")
    work = folder / "work"
    unanswered = student_edition(SOURCE)
    wrong = HEAD + "def choose(eligible, rate, generator):\n    return eligible"
    save(work / "anna" / "02_masking_lab.ipynb", notebook())
    save(work / "boris" / "02_masking_lab.ipynb", notebook(instead={"TASK 02.1": wrong}))
    save(work / "chen.ipynb", unanswered)
    accidents = {}
    for name, (student, task) in PLACES.items():
        answers = accidents.setdefault(student, {})
        answers[f"TASK {task}"] = f"# TASK {task}\n{ACCIDENTS[name][0]}"
        save(work / student / "lab.ipynb", notebook(instead=answers))
    save(work / "no_tests.ipynb", notebook(drop=["CHECK"]))
    tampered = {"CHECK 02.1": "# CHECK 02.1 (99 points)\npass", "TASK 02.1": wrong}
    save(work / "tampered.ipynb", notebook(instead=tampered, drop=["TASK 02.2"]))
    twice = notebook()
    twice["cells"] = [cell for cell in twice["cells"] for _ in range(2)]
    save(work / "twice.ipynb", twice)
    bare = {"cells": [{k: c[k] for k in ("cell_type", "source")} for c in notebook()["cells"]]}
    save(work / "=cmd" / "my homework (final).ipynb", bare)
    (work / "empty.ipynb").write_bytes(b"")
    (work / "letter.docx").write_bytes(b"PK\x03\x04")
    (work / "nothing").mkdir()
    (work / "nothing" / "notes.txt").write_text("later")
    (work / ".DS_Store").write_bytes(b"\0")
    out = folder / "marks.csv"
    assert main(["grade", str(work), "--out", str(out), "--jobs", "2", *LIMITS]) == 0
    return work, out


@pytest.mark.slow
def test_honest_work_gets_its_marks_beside_all_else(classroom):
    rows = table(classroom[1])
    anna, boris = rows["anna/02_masking_lab.ipynb"], rows["boris/02_masking_lab.ipynb"]
    assert (anna["status"], anna["points"], anna["possible"]) == ("complete", "12", "12")
    assert (boris["status"], boris["points"]) == ("marked", "10")
    assert boris["02.1"] == "0" and boris["02.1 says"].startswith("wrong: ")
    assert (rows["chen.ipynb"]["status"], rows["chen.ipynb"]["points"]) == ("marked", "0")
    assert rows["chen.ipynb"]["02.5 says"].startswith("unanswered")


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCIDENTS)
def test_an_accident_costs_only_its_own_task(classroom, name):
    student, task = PLACES[name]
    row = table(classroom[1])[f"{student}/lab.ipynb"]
    assert row["status"] == "not all could be run"
    assert row[f"{task} says"].startswith(("stopped: ", "error: ")) and row[task] == "0"
    assert ACCIDENTS[name][1] in row[f"{task} says"]
    assert row["points"] == "4", "the other tasks are marked"
    if ACCIDENTS[name][1] == "2 seconds":
        assert 2 <= float(row[f"{task} seconds"]) < 10, "a stop takes time, too"


@pytest.mark.slow
def test_marks_do_not_rest_on_what_a_student_may_change(classroom):
    rows = table(classroom[1])
    for file in ("no_tests", "twice", "'=cmd/my homework (final)"):
        row = rows[f"{file}.ipynb"]
        assert (row["status"], row["points"], row["lab"]) == ("complete", "12", "02_masking_lab")
    tampered = rows["tampered.ipynb"]
    assert tampered["points"] == "7" and tampered["02.2 says"].startswith("missing")


@pytest.mark.slow
def test_everything_in_the_folder_has_one_row(classroom):
    work, out = classroom
    rows = table(out)
    assert len(rows) == len([entry for entry in work.iterdir() if entry.name != ".DS_Store"])
    for file, words in {
        "empty.ipynb": "is empty",
        "letter.docx": "is not a notebook",
        "nothing": "no notebook in this folder",
    }.items():
        assert rows[file]["status"] == "not read" and words in rows[file]["says"]


@pytest.mark.slow
def test_each_student_gets_the_notebook_back_with_messages(classroom):
    copy = classroom[1].parent / "marks_reports" / "boris" / "02_masking_lab.ipynb"
    text = copy.read_text("utf-8")
    assert "10 of 12 points in all" in text and "02.1: 0 of 2 points, wrong" in text


@pytest.mark.slow
def test_marks_are_kept_until_the_work_changes(classroom, monkeypatch):
    work, out = classroom
    before = table(out)
    marked = []
    real = grade.mark

    def count(lab, submission, limits):
        marked.append(submission)
        return real(lab, submission, limits)

    monkeypatch.setattr(grade, "mark", count)
    touched = notebook()
    touched["cells"][0]["source"] = "# Another title, and outputs do not count"
    save(work / "anna" / "02_masking_lab.ipynb", touched)
    assert main(["grade", str(work), "--out", str(out), *LIMITS]) == 0
    assert not marked and table(out) == before
    save(work / "boris" / "02_masking_lab.ipynb", notebook())
    assert main(["grade", str(work), "--out", str(out), *LIMITS]) == 0
    assert len(marked) == 1 and table(out)["boris/02_masking_lab.ipynb"]["points"] == "12"


def test_a_table_that_is_not_ours_is_left_alone(tmp_path, capsys):
    (tmp_path / "class").mkdir()
    budget = tmp_path / "budget.csv"
    budget.write_text("month,money\nmay,3\n")
    assert main(["grade", str(tmp_path / "class"), "--out", str(budget)]) == 1
    assert "is no table of marks" in capsys.readouterr().err
    assert budget.read_text() == "month,money\nmay,3\n"


def test_the_table_may_stand_among_the_submissions(tmp_path):
    (tmp_path / "notes.txt").write_text("later")
    save(tmp_path / "marks_reports" / "anna" / "lab.ipynb", notebook())
    for _ in range(2):
        assert main(["grade", str(tmp_path), "--out", str(tmp_path / "marks.csv")]) == 0
    assert list(table(tmp_path / "marks.csv")) == ["notes.txt"]


def test_columns_of_a_teachers_own_stay(tmp_path):
    save(tmp_path / "a.ipynb", {"cells": []})
    out = tmp_path / "marks.csv"
    for _ in range(2):
        assert main(["grade", str(tmp_path), "--out", str(out)]) == 0
        text = out.read_text("utf-8-sig").splitlines()
        if "oral" not in text[0]:
            out.write_text(f"{text[0]},oral\n{text[1]},{'+' * 200_000}\n", "utf-8-sig")
    assert table(out)["a.ipynb"]["oral"] == "'" + "+" * 200_000


def test_points_that_a_teacher_gives_for_what_cannot_be_read_stay(tmp_path):
    (tmp_path / "class").mkdir()
    save(tmp_path / "class" / "a.ipynb", {"cells": []})
    out = tmp_path / "marks.csv"
    command = ["grade", str(tmp_path / "class"), "--out", str(out)]
    main(command)
    rows = grade.read_table(out)
    rows["a", "a.ipynb"] |= {"lab": "2", "points": "7", "possible": "12"}
    grade.write_table(out, rows)
    main([*command, "--again"])
    row = table(out)["a.ipynb"]
    assert [row[name] for name in ("status", "lab", "points")] == ["not read", "2", "7"]


def test_text_that_a_spreadsheet_would_run_is_kept_as_text():
    for text in ("=1+1", "+1", "-x", "@x", "'quoted", "plain"):
        assert from_cell(as_cell(text)) == text
    assert as_cell("=1+1") == "'=1+1"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["check", "nowhere.ipynb"], "no file nowhere.ipynb"),
        (["grade", ".", "--jobs", "0"], "--jobs: 0"),
        (["grade", ".", "--jobs", "two"], "--jobs: two is not a whole number from 1 to 1000"),
        (["grade", ".", "--seconds", "-1"], "--seconds: -1"),
        (["grade", ".", "--memory", "nan"], "--memory: nan"),
        (["grade", ".", "--due", "20.11.2026 23:59"], "is not a time such as 2026-11-30T23:59"),
        (["grade", "nowhere.zip"], "there is no folder or file nowhere.zip"),
        (["gradebook", __file__, __file__, "--out", "x", "--late", "10%"], "such as 0.1, from 0"),
        (["start", "99"], "there is no lab 99"),
        (["solution", "99"], "there is no lab 99"),
        ([], "required"),
    ],
)
def test_a_request_that_cannot_be_met_is_told(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.slow
def test_check_tells_what_every_task_came_to(tmp_path, capsys):
    path = save(tmp_path / "x.ipynb", notebook(drop=["TASK 02.2", "TASK 02.3"]))
    assert main(["check", str(path)]) == 0
    told = capsys.readouterr().out
    assert "02_masking_lab: 6 of 12 points" in told
    assert "02.1    2 of 2  right" in told
    assert "02.2    0 of 3  missing: no cell has the mark # TASK 02.2" in told


def test_a_set_up_that_fails_is_not_the_students_fault(monkeypatch):
    lab = read_lab(labs()["02"])
    lab.parts[0] = type(lab.parts[0])("import a_package_that_nobody_has")
    with pytest.raises(Refused, match="a_package_that_nobody_has"):
        mark(lab, read_submission(lab.path), Limits())


@pytest.fixture
def heeded():
    """Tests that a shell runs in the background are started deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_in_the_moment_of_unlocking_does_not_lock_the_table_for_good(tmp_path, monkeypatch):
    texts, sent = [], []

    class Lock(FileLock):
        def release(self, force=False):
            if len(texts) == 2 and not sent:  # the first row is written
                sent.append(True)
                signal.raise_signal(signal.SIGINT)
            super().release(force)

    def written(path, columns, rows, write=grade.tables.write_rows):
        texts.append(write(path, columns, rows))

    monkeypatch.setattr(grade, "FileLock", partial(Lock, timeout=5))
    monkeypatch.setattr(grade.tables, "write_rows", written)
    save(tmp_path / "a.ipynb", {"cells": []})
    assert main(["grade", str(tmp_path), "--out", str(tmp_path / "marks.csv")]) == 130
    assert table(tmp_path / "marks.csv")["a.ipynb"]["status"] == "not read"


@pytest.mark.slow
def test_after_an_interruption_the_same_process_can_mark_again(tmp_path, monkeypatch):
    def interrupted(started):
        raise KeyboardInterrupt

    save(tmp_path / "a.ipynb", notebook())
    command = ["grade", str(tmp_path), "--out", str(tmp_path / "marks.csv")]
    with monkeypatch.context() as patch:
        patch.setattr(grade, "as_completed", interrupted)
        assert main(command) == 130
    assert main(command) == 0
    assert table(tmp_path / "marks.csv")["a.ipynb"]["points"] == "12"


def heed_signals():
    """In the child: tests that a shell or nohup runs in the background are started deaf to them."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a killed marker leaves its child")
@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_marker_that_is_ended_keeps_what_was_marked_and_leaves_no_process(tmp_path, sent):
    work, out = tmp_path / "work", tmp_path / "marks.csv"
    save(work / "a.ipynb", notebook(drop=["TASK"]) | {"cells": []})  # has no mark: told at once
    endless = f"{HEAD}while True:\n    pass"
    save(work / "b.ipynb", notebook(instead={"TASK 02.1": endless}))
    command = [sys.executable, "-m", "classroom", "grade", str(work), "--out", str(out)]
    how = {"cwd": ROOT, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heed_signals}
    process = subprocess.Popen(command, **how)
    while not out.exists() or "has no mark" not in out.read_text("utf-8-sig"):
        time.sleep(0.1)
    while len(psutil.Process(process.pid).children(recursive=True)) < 2:
        time.sleep(0.1)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(getattr(signal, sent))
    told = process.communicate(timeout=60)[1]
    rows = {file: row["status"] for file, row in table(out).items()}
    assert rows == {"a.ipynb": "not read", "b.ipynb": "not marked yet"}
    assert psutil.wait_procs(started, timeout=10)[1] == []
    if sent != "SIGKILL":
        assert process.returncode == 130 and "What was finished before is kept" in told
