"""The labs' form, the students' editions made from them, and our checks against seeded answers.

A lab's own solutions run twice in `course.py test`. In a kernel, with what they print and draw
against what is stored: nbval. Here, once, by `lab_answers.try_all`: each check by itself, every
seeded answer, and every task as a student gets it, where all tasks before it are solved.
"""

import ast
import json
import os
import re
import subprocess
import sys

import lab_answers
import nbformat
import pytest
from notebook_form import alternative_texts, normalised, read, text

from classroom.__main__ import main
from classroom.edition import (
    HIDDEN,
    SOLUTION,
    own_answers,
    progress,
    remember,
    start,
    student_edition,
)
from classroom.lab import MARK, ROOT, STUB, Refused, labs, read_lab, read_submission
from classroom.runner import UNANSWERED, execute, fresh_names

KEYS = list(labs())
SHARED = {"08": "09", "16": "17"}  # lessons whose tasks are in the lab of the next lesson
LESSONS = sorted(path.name[:2] for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@pytest.fixture(params=KEYS)
def key(request):
    return request.param


def edition(key):
    return student_edition(json.loads(labs()[key].read_text("utf-8")))


def lines_of(source):
    return {re.sub(r"\s+", "", line) for line in source.splitlines()}


# ---- the sources ---------------------------------------------------------------------------------


def test_every_lesson_but_the_first_has_a_lab_and_there_is_a_zoo():
    followed = [number for number in LESSONS[1:] if number not in SHARED]
    assert KEYS == [*followed, "zoo"]
    for number in followed:
        (lesson,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
        assert labs()[number].name == f"{lesson.stem}_lab.ipynb"


def test_a_lab_is_executed_and_in_its_stored_form(key):
    path = labs()[key]
    assert path.read_text("utf-8") == text(normalised(read(path), path)), (
        f"run: python tools/notebook_form.py {path}"
    )
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not any(o.output_type == "error" or o.get("name") == "stderr" for o in outputs)
    drawn = [alt for cell in cells for alt in alternative_texts(cell)]
    assert drawn, "the last task's result is drawn"
    assert min(map(len, drawn)) > 30


def test_tasks_are_numbered_asked_in_words_hinted_and_checked(key):
    lab = read_lab(labs()[key])
    count = len(lab.tasks)
    assert 3 <= count <= 5 or (key == "zoo" and count >= 12)
    assert [task.name for task in lab.tasks] == [f"{key}.{n + 1}" for n in range(count)]
    asked = [cell.source for cell in read(lab.path).cells if cell.cell_type == "markdown"]
    for number, task in enumerate(lab.tasks, start=1):
        (words,) = [cell for cell in asked if re.match(rf"## (Task|Exhibit) {number}:", cell)]
        assert f"({task.points} point" in words
        assert re.findall(r"<summary>(Hint \d)</summary>", words) == ["Hint 1", "Hint 2"]
        assert task.checks and SOLUTION.search(task.solution)
        assert any(HIDDEN.search(check.code) for check in task.checks), "a hidden test, too"
        names = [check.label for check in task.checks]
        assert len(names) == len(set(names)), "of several checks each has a name"
        for check in task.checks:
            asserts = [n for n in ast.walk(ast.parse(check.code)) if isinstance(n, ast.Assert)]
            assert all(node.msg for node in asserts), f"{task.name}: a check without a sentence"


def test_a_check_that_passes_prints_its_points_and_nothing_else(key):
    lab, expected = read_lab(labs()[key]), []
    for task in lab.tasks:
        for check in task.checks:
            name = f"{task.name}, {check.label}" if check.label else task.name
            of = "of the task's" if check.label else "of"
            points = "point" if task.points == 1 else "points"
            expected.append(f"Task {name}: right, {check.points} {of} {task.points} {points}.\n")
    checks = [cell for cell in read(lab.path).cells if cell.source.startswith("# CHECK")]
    assert [["".join(one.text) for one in cell.outputs] for cell in checks] == [
        [e] for e in expected
    ]


def test_a_lab_opens_with_its_points_needs_and_the_time_of_its_tasks(key):
    lab = read_lab(labs()[key])
    first, second = read(lab.path).cells[:2]
    assert re.match(r"# (Lab \d\d · |The bug zoo)", first.source)
    assert "**Time:**" in first.source and "**Needs:**" in first.source
    assert f"**Points:** {lab.points}" in first.source
    told = [cell.source for cell in read(lab.path).cells if cell.cell_type == "markdown"]
    minutes = re.findall(r"^\*(\d+) minutes, difficulty [123] of 3\.\*$", "\n".join(told), re.M)
    assert len(minutes) == len(lab.tasks)
    reading = int(re.search(r"\*\*Time:\*\* (\d+)", first.source)[1]) - sum(map(int, minutes))
    assert 0 <= reading <= 15, "the tasks' minutes, and some to read"
    guide = (ROOT / "docs" / "instructors.md").read_text("utf-8")
    minutes = re.search(r"\*\*Time:\*\* (\d+)", first.source)[1]
    assert re.search(rf"^\| {key} [^|]*\| {minutes}\b", guide, re.M), "the guide tells another time"
    assert f"course.py labs check {key}" in second.source


@pytest.mark.parametrize("lesson, key", SHARED.items())
def test_a_lab_of_two_lessons_names_both(lesson, key):
    assert f"**Needs:** lessons {lesson} and {key}" in read(labs()[key]).cells[0].source


def test_the_lines_of_a_lab_fit_on_the_page_and_its_words_are_not_loud(key):
    for cell in read(labs()[key]).cells:
        if cell.cell_type == "code":
            assert all(len(line) <= 100 for line in cell.source.splitlines()), cell.source
        else:
            assert "!" not in re.sub(r"`[^`]*`", "", cell.source), cell.source
            assert not re.search(r"\b(simply|obviously|let's)\b", cell.source, re.I), cell.source


def test_no_text_of_a_lab_shows_a_name_in_braces_where_its_value_is_meant(key):
    for cell in read(labs()[key]).cells:
        if cell.cell_type == "code":
            tree = ast.parse(re.sub(r"^%.*", "", cell.source, flags=re.M))
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and id(node) not in docstrings:
                    # {found}, {loss:.2f}, but neither {text: its chance} nor {3, 4}
                    assert not re.search(r"\{[A-Za-z_][^{} ]*\}", str(node.value)), node.value


# ---- the student's edition -----------------------------------------------------------------------


def test_the_edition_leaks_no_line_of_a_solution_or_a_hidden_test(key):
    source = read(labs()[key])
    secret, public = set(), set()
    for cell in source.cells:
        for found in [*SOLUTION.finditer(cell.source), *HIDDEN.finditer(cell.source)]:
            secret |= lines_of(found[0])
        public |= lines_of(HIDDEN.sub("", SOLUTION.sub("", cell.source)))
    leaked = {line for line in secret - public if len(line) > 12}
    assert leaked, "the source has solutions"
    shown = set().union(*(lines_of("".join(cell["source"])) for cell in edition(key)["cells"]))
    assert not leaked & shown
    assert "### " not in "".join(
        "".join(cell["source"]) for cell in edition(key)["cells"] if cell["cell_type"] == "code"
    )


def test_the_edition_has_no_outputs_and_is_a_notebook(key):
    nbformat.validate(nbformat.from_dict(edition(key)))
    cells = [cell for cell in edition(key)["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)


def test_the_edition_runs_to_its_first_task_and_says_that_it_waits(key):
    names = fresh_names()
    with pytest.raises(NotImplementedError, match=re.escape(STUB.format(f"{key}.1"))):
        for cell in edition(key)["cells"]:
            if cell["cell_type"] == "code":
                execute("".join(cell["source"]), "cell", names)


def test_work_that_was_begun_is_never_overwritten(tmp_path):
    first, new = start("02", tmp_path)
    assert new and start("02", tmp_path) == (first, False)
    first.write_text(first.read_text("utf-8").replace("waits", "WAITS"), "utf-8")
    begun = first.read_bytes()
    assert start("02", tmp_path) == (first, False) and first.read_bytes() == begun


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on a file's size")
def test_a_full_disk_leaves_no_half_of_a_lab(tmp_path):
    program = (
        "import resource, signal, sys; from pathlib import Path;"
        "from classroom.edition import start;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); start('02', Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "OSError" in done.stderr and list(tmp_path.iterdir()) == []


def test_progress_names_what_was_begun_and_what_the_last_check_found(tmp_path):
    path, _ = start("02", tmp_path)
    assert any(
        re.match(r"02_masking_lab +0 of 5 tasks begun$", line) for line in progress(tmp_path)
    )
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        if "# TASK 02.2" in (source := "".join(cell["source"])):
            cell["source"] = re.sub("raise NotImplementedError.*", "return None", source)
    path.write_text(json.dumps(notebook), "utf-8")
    remember(path, "3 of 12 points", tmp_path)
    remember(tmp_path.parent / "elsewhere.ipynb", "12 of 12 points", tmp_path)
    (line,) = [line for line in progress(tmp_path) if line.startswith("02")]
    assert line.split() == "02_masking_lab 1 of 5 tasks begun 3 of 12 points".split()
    assert list(own_answers(tmp_path)) == ["02.2"]


@pytest.mark.slow
def test_without_the_sources_a_file_is_marked_by_its_own_checks(tmp_path, monkeypatch, capsys):
    whole = read(labs()["02"])
    for cell in whole.cells:
        cell.source = HIDDEN.sub("", cell.source)
    path = tmp_path / "mine.ipynb"
    nbformat.write(whole, path)
    monkeypatch.setattr("classroom.lab.SOURCES", tmp_path / "nowhere")
    assert main(["check", str(path)]) == 0
    assert "mine: 12 of 12 points" in (told := capsys.readouterr().out)
    assert "By the checks that you can see" in told
    for command in (["start"], ["start", "02"], ["solution", "02"]):
        with pytest.raises(SystemExit, match="2"):
            main(command)
        assert "hands them out" in capsys.readouterr().err


@pytest.mark.slow
def test_without_the_sources_a_task_that_waits_leaves_the_others_their_points(
    tmp_path, monkeypatch, capsys
):
    """A student checks a lab that is half done. There is no solution that could stand in."""
    path, _ = start("02", tmp_path)
    begun, whole = read(path), read(labs()["02"])
    for mine, ours in zip(begun.cells, whole.cells):
        if re.match("# TASK 02.[13]", ours.source):
            mine.source = ours.source
    nbformat.write(begun, path)
    monkeypatch.setattr("classroom.lab.SOURCES", tmp_path / "nowhere")
    assert main(["check", str(path)]) == 0
    told = capsys.readouterr().out
    assert "5 of 12 points" in told and told.count("not answered yet") == 3


# ---- reading what students hand in ---------------------------------------------------------------


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip", "is not a notebook"),
        (b"\xff\xfe\x00", "is not a notebook"),
        (b"[1, 2]", "is not a notebook"),
        (b'{"cells": 3}', "is not a notebook"),
        (b'{"cells": ' + b"[" * 100_000, "is not a notebook"),
        (b'{"cells": []}', "has no mark of a lab"),
    ],
)
def test_what_is_no_notebook_is_told_in_a_sentence(tmp_path, content, words):
    path = tmp_path / "odd.ipynb"
    path.write_bytes(content)
    with pytest.raises(Refused, match=f"odd.ipynb {words}"):
        read_submission(path)


def test_a_duplicated_cell_counts_once_it_was_begun(tmp_path):
    cells = [
        {"cell_type": "code", "source": f"# TASK 02.1: coins\n{code}"}
        for code in ("x = 1", f'raise NotImplementedError("{STUB.format("02.1")}")', "x = 2")
    ]
    path = tmp_path / "twice.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    answers = read_submission(path).answers["02.1"]
    assert [answer.splitlines()[1] for answer in answers] == ["x = 1", "x = 2"]


@pytest.mark.parametrize("line", ["# TASK 02.1: x", "#task 02.1", "  #  Task 02.1 : my answer"])
def test_a_mark_survives_how_it_is_typed(line):
    assert MARK.search(f"import torch\n{line}\nx = 1").group(2, 3) == ("02", "1")


# ---- the checks, checked -------------------------------------------------------------------------

BASE = "def f(x):\n    y = x\n    z = x\n    y = x\n    return y + z\n\n\ndef g(x):\n    return x"


@pytest.mark.parametrize(
    "change, old, new",
    [
        ("-    z = x\n+    z = -x", "z = x", "z = -x"),
        ("     return y [-+-]{+-+} z", "y + z", "y - z"),
        ("     z = x\n-    y = x", "    z = x\n    y = x\n", "    z = x\n"),  # which of the two
        (" def f(x):\n+    x = x + 1", "def f(x):", "def f(x):\n    x = x + 1"),
        ("def g(x):\n    return -x", "    return x", "    return -x"),
        ("+import math\n\ndef g(x):\n    return -x", BASE, f"import math\n{BASE[:-1]}-x"),
        ("def h():\n    return 0", "    return x", "    return x\n\n\ndef h():\n    return 0"),
    ],
)
def test_a_change_of_lines_or_of_a_definition_is_made_where_it_fits(change, old, new):
    assert lab_answers.changed(BASE, change) == BASE.replace(old, new)


@pytest.mark.parametrize(
    "change, words",
    [
        ("-    y = x", "not found once, .* y = x"),  # two lines
        ("-    y = 2", "not found once, .* y = 2"),  # none
        ("-    return y + z\n-    z = x", "not found once, .* z = x"),  # the other way round
        ("     z = x", "nothing is changed"),
        ("def g(x):\n    return x", "nothing is changed"),
        ("def g(x):\n    return -x\nstray = 1", "stray = 1"),
        ("stray = 1", "stray = 1"),
    ],
)
def test_a_change_that_does_not_fit_in_one_way_is_refused_with_the_answers_name(change, words):
    text = f"# %% 02.1 wrong: the sign | its sign\n{change}\n"
    with pytest.raises(ValueError, match=rf"02.1 \(the sign\): .*{words}"):
        lab_answers.read_answers(text, {"02.1": BASE})


def test_a_change_is_of_the_last_whole_text_above_it():
    blocks = {
        "right: of the solution": "-    z = x",
        "whole right: by hand": "z = 1",
        "wrong: two | is 2": "-z = 1\n+z = 2",
        "start": "z = 3",
        "wrong: four | is 4": " z = [-3-]{+4+}",
    }
    text = "\n\n".join(f"# %% 02.1 {head}\n{code}" for head, code in blocks.items())
    answers = lab_answers.read_answers(text, {"02.1": BASE, "02.2": "w = 0"})
    found = [(answer.right, answer.what, answer.words, answer.code) for answer in answers]
    assert found == [
        (True, "of the solution", "", BASE.replace("    z = x\n", "")),
        (True, "by hand", "", "z = 1"),
        (False, "two", "is 2", "z = 2"),
        (False, "four", "is 4", "z = 4"),
    ]
    with pytest.raises(ValueError, match="begins with # %%, not with 'z = 1'"):
        lab_answers.read_answers("z = 1", {})


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """What the checks say of a lab's seeded answers, and of the tasks as a student gets them: both
    by the one run of the lab's own solutions in these tests."""
    found = {}

    def of(key):
        if key not in found:
            path, _ = start(key, tmp_path_factory.mktemp(key))
            untouched = [
                lab_answers.Answer(name, False, "not begun", "", cell)
                for name, (cell,) in read_submission(path).answers.items()
            ]
            lab, answers = read_lab(labs()[key]), lab_answers.answers_of(key)
            said = lab_answers.try_all(lab, answers + untouched)
            found[key] = {a: said[a] for a in answers}, {a.task: said[a] for a in untouched}
        return found[key]

    return of


@pytest.fixture
def said(key, tried):
    return tried(key)[0]


def test_every_task_has_four_wrong_answers_and_two_right_ones(key):
    answers = lab_answers.answers_of(key)
    for task in read_lab(labs()[key]).tasks:
        right = [answer.right for answer in answers if answer.task == task.name]
        assert right.count(True) >= 2 and right.count(False) >= 4, task.name
    wrong = [answer for answer in answers if not answer.right]
    assert all(len(answer.words) >= 5 for answer in wrong), "words that name the mistake"
    assert len({answer.code for answer in answers}) == len(answers)


@pytest.mark.slow
def test_right_answers_pass_and_wrong_ones_fail_with_words_that_name_the_mistake(said):
    trouble = [
        f"{answer.task} ({answer.what}): {told}"
        for answer, result in said.items()
        if (told := lab_answers.fails(answer, result))
    ]
    assert not trouble, "\n".join(trouble)


@pytest.mark.slow
def test_every_task_of_the_edition_counts_as_unanswered(key, tried):
    statuses = {task: status for task, (status, *_) in tried(key)[1].items()}
    assert statuses == {task.name: UNANSWERED for task in read_lab(labs()[key]).tasks}


@pytest.mark.slow
def test_the_page_of_answers_is_that_of_a_run(key, said):
    shown = lab_answers.DOCUMENT.read_text("utf-8")
    section = lab_answers.section(read_lab(labs()[key]), said)
    assert f"\n{section}\n" in shown, "run: python tools/lab_answers.py --write"
