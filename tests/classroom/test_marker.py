"""Who pays when a notebook has to be stopped, what counts, and what an answer may leave or read.

Most tests execute cells in this process, without a marker's process of its own.
"""

import inspect
import itertools
import os
import sys
import time

import psutil
import pytest
from test_hostile_class import AFTER, TASKS, code_cell, lab, put

from classroom import cells, marker
from classroom.cells import IN_USE, PREFIX, Cells, Clock, Limits, Stopped, Use, sweep
from classroom.lab import Refused, read_lab, read_submission
from classroom.remarks import remarks
from classroom.runner import attempt, fresh_names

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux finds such processes")


def handed_in(folder, notebook):
    """A notebook as a submission to the small lab."""
    put(folder / "x.ipynb", notebook)
    return read_submission(folder / "x.ipynb", ["tiny", "05"])


def small_lab(folder):
    put(folder / "tiny_a_lab.ipynb", lab())
    return read_lab(folder / "tiny_a_lab.ipynb")


def statuses(folder, answers):
    """The status of each task of the small lab, with other answers to some tasks."""
    found = marker.mark(small_lab(folder), handed_in(folder, lab(answers)))
    return {int(one.task[-1]): one.status for one in found}


# ---- who pays ------------------------------------------------------------------------------------


@pytest.fixture
def pretended(monkeypatch):
    """Cells without a process. In a cell `takes(n)` takes n seconds. The function that this fixture
    gives sets how much slower each process is than it should be, one after the other."""
    factors = itertools.repeat(1)

    class Pretended:
        def __init__(self, limits, loose):
            self.limits, self.loose, self.factor = limits, loose, next(factors)

        def __enter__(self):
            self.names = fresh_names() | {"takes": self.takes}
            return self

        def __exit__(self, *error):
            pass

        def takes(self, seconds):
            self.left -= seconds * self.factor
            if self.left < 0:
                raise SystemExit

        def run(self, cells, label, seconds=None, whole=True):
            self.left, fault = seconds or self.limits.seconds, None
            for code in cells:
                fault = attempt(code, label, self.names, self.loose, whole)
                if self.left < 0:
                    raise Stopped("too slow")
                if fault:
                    break
            return fault, 0.0

    def on(machine):
        nonlocal factors
        factors = itertools.cycle(machine)

    monkeypatch.setattr(marker, "Cells", Pretended)
    return on


def slow(task, seconds):
    """A right answer that takes some seconds for each call."""
    return TASKS[task].replace(":\n", f":\n    takes({seconds})\n", 1)


# The lab's own cell after task 2 calls double 20 times, and mean 38 times.
CALLS_1 = "PRICE = 3\n\n\ndef total(n):\n    return n * PRICE + sum(double(0) for _ in range(40))"
HELPS = "import math\nNONE = 0\n\n\ndef none():\n    return NONE * math.pi\n\n\n"
HELPED = CALLS_1.replace("double(0)", "double(none())")


@pytest.mark.parametrize("machine", [(1,), (1.4,), (0.8,), (1, 1.4, 0.8), (1.4, 0.8)])
@pytest.mark.parametrize(
    "answers, paid",
    [
        ({1: slow(1, 2), 3: CALLS_1}, {}),
        ({1: HELPS + slow(1, 2), 3: HELPED}, {}),
        ({1: slow(1, 2), 2: slow(2, 1)}, {}),
        ({1: slow(1, 40), 3: CALLS_1}, {1}),
        ({1: slow(1, 99), 3: CALLS_1}, {1}),
        ({2: slow(2, 4), 3: CALLS_1}, {2}),
        ({1: slow(1, 2), 3: slow(3, 99)}, {3}),
        ({1: slow(1, 40), 2: slow(2, 40), 3: slow(3, 99)}, {1, 2, 3}),
        ({1: "takes(40)\n" + TASKS[1], 2: "takes(40)\n" + TASKS[2]}, {}),
        ({1: "takes(99)\n" + TASKS[1], 2: "class Odd:\n    takes(99)\n" + TASKS[2]}, {1, 2}),
    ],
)
def test_only_an_answer_that_is_too_slow_alone_pays_on_whatever_machine(
    pretended, tmp_path, answers, paid, machine
):
    pretended(machine)
    found = statuses(tmp_path, answers)
    assert found == {task: "stopped" if task in paid else "right" for task in TASKS}


def test_a_cell_of_the_lab_that_is_too_slow_without_any_answer_is_the_labs_fault(
    pretended, tmp_path, monkeypatch
):
    monkeypatch.setitem(AFTER, 2, "takes(99)")
    with pytest.raises(Refused, match="the lab's own cells failed here: too slow"):
        statuses(tmp_path, {3: CALLS_1})


def test_without_solutions_a_cell_that_is_too_slow_is_left_out(pretended, tmp_path):
    submission = handed_in(tmp_path, lab({1: slow(1, 4), 3: slow(3, 99)}))
    mine = read_lab(tmp_path / "x.ipynb", "tiny")
    before = list(mine.parts)
    assert [one.status for one in marker.mark(mine, submission)] == ["right", "right", "stopped"]
    assert mine.parts == before


# ---- what counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share, ready, counted",
    [(1, True, 100), (0.3, True, 30), (0.01, True, 1), (0.01, False, 100), (0.2, False, 20)],
)
def test_the_time_in_which_others_have_the_processor_does_not_count(
    monkeypatch, share, ready, counted
):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = Clock(Use(7.0, 0, True))
    for _ in range(1000):
        now += 0.1
        found = clock.read(Use(7.0 + share * now, 0, ready))
    assert found == pytest.approx(counted, abs=1)


@pytest.fixture
def process(monkeypatch):
    """A process for cells, without its copy of the course, and with small limits."""
    monkeypatch.setattr(cells.shutil, "copytree", lambda *where: None)
    with Cells(Limits(0.5, 0.2, 0.1)) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, says",
    [
        ("end = time.process_time() + .2\nwhile time.process_time() < end: pass", "0.5 seconds"),
        ("time.sleep(9)", "0.5 seconds: it is endless, or too slow"),
        ("print('x' * 50_000)", "printing 0.1 MB"),
        ("held.append(bytes([1]) * 80_000_000)", "more than 0.2 GB of memory"),
    ],
)
def test_cells_are_stopped_if_they_exceed_a_limit_together(process, code, says):
    with pytest.raises(Stopped, match=says):
        process.run(["import time\nheld = []", *4 * [code]], "task tiny.1")


# ---- what an answer leaves behind ----------------------------------------------------------------

LEAVES = """
import multiprocessing.shared_memory, os, subprocess, sys
held = multiprocessing.shared_memory.SharedMemory("{name}", create=True, size=1000)
subprocess.run([sys.executable, "-c", '''
import os, sys
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(99) # {name}"], {{}})
'''])
"""


def lives(name):
    found = psutil.process_iter(["cmdline"])
    return any(name in " ".join(one.info["cmdline"] or []) for one in found)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("ends", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_shared_memory_and_a_process_without_its_environment_are_found(monkeypatch, ends):
    monkeypatch.setattr(cells.shutil, "copytree", lambda *where: None)
    name = f"left-{os.getpid()}-{len(ends)}"
    with Cells(Limits()) as process:
        assert process.run([LEAVES.format(name=name)], "task tiny.1")[0] is None
        assert lives(name) and os.path.exists(f"/dev/shm/{name}")
        if ends:
            with pytest.raises(Stopped, match="ended by itself"):
                process.run([ends], "task tiny.1")
    assert not lives(name) and not os.path.exists(f"/dev/shm/{name}")


REPLACES = """
import os
for name in os.listdir(".."):
    if os.path.isfile(path := os.path.join("..", name)):
        os.remove(path)
        os.mkfifo(path)
"""


@linux
@pytest.mark.slow
def test_what_an_answer_does_with_our_files_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(cells.shutil, "copytree", lambda *where: None)
    with Cells(Limits(0.5)) as process:
        assert process.run([REPLACES], "task tiny.1")[0] is None
        with pytest.raises(Stopped, match="0.5 seconds"):
            process.run(["while True: pass"], "task tiny.1")
    assert not process.folder.exists()


def test_folders_of_a_marker_that_was_killed_are_removed_and_those_in_use_are_not(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cells.shutil, "copytree", lambda *where: None)
    left, new = (tmp_path / f"{PREFIX}{name}" / IN_USE for name in ("left", "new"))
    put(left, b"")
    put(new, b"")
    hour_ago = time.time() - 3600
    os.utime(left, (hour_ago, hour_ago))
    with Cells(Limits()) as process:
        os.utime(process.folder / IN_USE, (hour_ago, hour_ago))
        sweep()
        assert process.work.exists() and new.exists() and not left.parent.exists()


# ---- what an answer may read and say -------------------------------------------------------------


@pytest.mark.parametrize("label", ["solution tiny.1", "check tiny.1", "given"])
def test_code_of_ours_cannot_be_read_by_an_answer(label):
    names = fresh_names() | {"inspect": inspect}
    assert attempt("def secret():\n    return 42", label, names) is None
    for code in ("inspect.getsource(secret)", f"__import__('linecache').getlines('<{label}>')"):
        assert "42" not in attempt(f"raise AssertionError({code})", "task tiny.2", names)["says"]


def test_a_check_takes_no_name_away_from_an_answer():
    names = fresh_names()
    answer = "def _half(x):\n    return x / 2\n\ndef quarter(x):\n    return _half(_half(x))"
    check = "def _half(a, b):\n    return 1\n\nassert quarter(4) == _half(0, 0), 'not a quarter'"
    assert attempt(answer, "task tiny.1", names) is None
    assert attempt(check, "check tiny.1", names) is None
    assert names["_half"](4) == 2


def test_the_line_of_a_check_that_fails_is_told():
    says = attempt("x = 1\n\nassert y == x", "check tiny.1", fresh_names())["says"]
    assert says.endswith("name 'y' is not defined, in line 3 of <check tiny.1>: `assert y == x`")


COMMANDS = {
    "%time x = 3": 3,
    "x = %time 1 + 2": 3,
    "%%time\nx = 3": 3,
    "\n%%capture out\n%matplotlib inline\nx = 3": 3,
    "%matplotlib inline\ntime = 2\nx = (5\n%time)": 1,
    "x = !ls": [],
    "x = !ls\nx = x.s": "",
    "x = %pwd": None,
    "!pip install \\\n    nothing\nx = 3": 3,
    "?len\nx = 3": 3,
    "len??\nx = 3": 3,
    "if True:\n    %autoreload 2\n    !ls\n    x = 3": 3,
    "get_ipython().run_line_magic('matplotlib', 'inline')\nx = 3": 3,
    "from IPython import get_ipython\nget_ipython().system('ls')\nx = 3": 3,
    "x = 'IPKernelApp' in get_ipython().config": False,
    "get_ipython().events.register('post_run_cell', print)\nx = 3": 3,
    "x = '''\n%time\n!ls\n'''": "\n%time\n!ls\n",
}


@pytest.mark.parametrize("code", COMMANDS)
def test_commands_of_notebooks_do_no_harm(code):
    names = fresh_names()
    assert attempt(code, "task tiny.1", names) is None
    assert names["x"] == COMMANDS[code]


@pytest.mark.parametrize(
    "loose, code",
    [
        ("import numpy as np", "np.ones(3)"),
        ("%matplotlib inline\nimport numpy as np\n!ls", "np.ones(3)"),
        ("from math import (sin,\n    cos)", "cos(0)"),
        ("if True:\n    def helper(x): return x", "helper(3)"),
        ("a, (*b, helper) = range(3), range(3)", "helper + 1"),
        ("import csv.of_mine", "import csv\ncsv.of_mine.read()"),
    ],
)
def test_a_name_that_a_cell_without_a_mark_sets_is_named(tmp_path, loose, code):
    notebook = {"cells": [code_cell(loose), code_cell(f"# TASK tiny.1\n{code}")]}
    submission = handed_in(tmp_path, notebook)
    (cell,) = submission.answers["tiny.1"]
    says = attempt(cell, "task tiny.1", fresh_names(), submission.loose)["says"]
    assert says.endswith("is set in a cell without a mark: move it into the task's own cell")
    assert "in line 2 of <task tiny.1>" in says or "in line 3" in says


# ---- what a notebook holds -----------------------------------------------------------------------


@pytest.mark.parametrize("kind, name", [("markdown", "Markdown"), ("raw", "Raw")])
def test_a_task_whose_cell_is_text_is_told_how_to_turn_it_back(pretended, tmp_path, kind, name):
    notebook = lab()
    for cell in notebook["cells"]:
        if "# TASK tiny.2" in cell["source"]:
            cell["cell_type"] = kind
    found = marker.mark(small_lab(tmp_path), handed_in(tmp_path, notebook))
    assert [one.status for one in found] == ["right", "missing", "right"]
    assert f"is there as text, because its type is {name}: select the cell" in found[1].says


def test_a_notebook_in_which_all_answers_are_text_is_still_one_of_its_lab(tmp_path):
    texts = [
        {"cell_type": "raw", "source": f"# TASK tiny.{n}\n{code}"} for n, code in TASKS.items()
    ]
    submission = handed_in(tmp_path, {"cells": texts})
    assert (submission.key, submission.answers, len(submission.texts)) == ("tiny", {}, 3)


def test_the_second_lab_in_a_notebook_is_named(tmp_path):
    notebook = lab()
    notebook["cells"].append(code_cell("# TASK 05.1\nx = 1"))
    (told,) = remarks(small_lab(tmp_path), handed_in(tmp_path, notebook))
    assert told.startswith("the notebook also holds tasks of lab 05, which are not marked")
