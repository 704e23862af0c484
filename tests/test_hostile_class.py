"""A class in which everything happens that was ever seen to, marked three times over.

Its lab needs no torch, so that a process begins at once. What each submission is due stands beside
it: points, and words that its row holds. The honest ones among them get all of theirs.
"""

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from classroom.lab import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="what outlives its parent is found on Linux"
    ),
]

GIVEN = "def near(a, b):\n    return abs(a - b) < 1e-9"
TASKS = {
    1: "def double(x):\n    return 2 * x",
    2: "def mean(xs):\n    return sum(xs) / len(xs)",
    3: "PRICE = 3\n\n\ndef total(n):\n    return n * PRICE",
}
WITHOUT = "# WITHOUT: statistics, .count"
CHECKS = {
    "1": "assert near(double(4), 8), f'twice 4 is 8, not {double(4)}'",
    "2 mean": "assert near(mean([1, 2, 6]), 3), f'3 is expected, not {mean([1, 2, 6])}'",
    "2 one": "assert near(mean([5]), 5), 'of one number'",
    "3 total": "assert total(2) == 2 * PRICE, 'n times the price'",
    "3 price": "assert PRICE == 3, 'it costs 3'",
}
POINTS = {"1": 4, "2 mean": 2, "2 one": 2, "3 total": 2, "3 price": 2}
AFTER = {2: "shown = [mean(range(1, n)) for n in range(2, 40)] + [double(n) for n in range(20)]"}
WAITS = 'raise NotImplementedError("Task tiny.{} waits for your code here, in place of this line.")'


def code_cell(source):
    return {"cell_type": "code", "source": source, "metadata": {}, "outputs": []}


def lab(answers=None, *, checks=True):
    """The lab solved, as a notebook, with `answers` in place of some tasks' code."""
    cells = [code_cell(GIVEN)]
    for number, solution in TASKS.items():
        code = {**TASKS, **(answers or {})}[number]
        head = f"# TASK tiny.{number}: a task\n" + f"{WITHOUT}\n" * (number == 2)
        cells.append(code_cell(head + code))
        for name, check in CHECKS.items():
            if checks and name.startswith(str(number)):
                label = name[1:].strip()
                mark = f"# CHECK tiny.{number} {label} ({POINTS[name]} points)\n"
                cells.append(code_cell(mark + check))
        if number in AFTER:
            cells.append(code_cell(AFTER[number]))
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


WRONG_1, HEAD_1 = "def double(x):\n    return x", "# TASK tiny.1\n"
FORK = "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
MARKER = "import os\nparent = os.getppid()\n"
# What stands in task 1 is due 8 of 12 if it only costs itself.
IN_TASK_1 = {
    # reaching for the marks
    "imports_marker": ("from classroom.lab import labs, read_lab", 8, "classroom"),
    "frames": ("import sys\nframe = sys._getframe()\nwhile frame:\n"
               "    part = frame.f_locals.get('part') or {}\n    frame = frame.f_back\n"
               "exec(part['solution'])", 8, "KeyError"),
    "collected": ("import gc\nfor one in gc.get_objects():\n    if isinstance(one, dict) and "
                  "str(one.get('code', '')).startswith('# SOLUTION'):\n        exec(one['code'])",
                  8, "uses gc"),
    "no_execution": ("import __main__, sys\nfor module in list(sys.modules.values()):\n"
                     "    if hasattr(module, 'attempt'):\n        module.attempt = lambda *a: None\n"
                     + WRONG_1, 8, "twice 4"),
    "no_compiler": ("import builtins\nreal = builtins.compile\n"
                    "builtins.compile = lambda code, file, *a, **k: real('' if 'check' in file else "
                    "code, file, *a, **k)\n" + WRONG_1, None, "uses builtins"),
    "tells_points": ("import json, os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, "
                     "json.dumps({'end': 'tiny.1', 'points': 1000, 'done': True, 'fault': None})"
                     ".encode() + b'\\n')\n    except OSError:\n        pass\nos._exit(0)", 8, "_exit"),
    "reads_parent": (MARKER + "said = open(f'/proc/{parent}/cmdline').read()\nassert 'labs' in said",
                     8, "getppid"),
    "equal_to_all": ("class Yes:\n    def __eq__(self, other):\n        return True\n"
                     "    __sub__ = __rsub__ = __abs__ = lambda self, *a: self\n\n\n"
                     "def double(x):\n    return Yes()", 8, "TypeError"),
    # ending what runs
    "exits": ("import sys\nsys.exit(0)", 8, "SystemExit"),
    "exits_at_once": ("import os\nos._exit(0)", 8, "ended by itself"),
    "kills_itself": ("import os\nos.kill(os.getpid(), 9)", 8, "SIGKILL"),
    "kills_parent": (MARKER + "os.kill(parent, 9)\nwhile True:\n    pass", 8, "SIGKILL"),
    "interrupts_parent": (MARKER + "import signal\nos.kill(parent, signal.SIGINT)\nwhile True:\n"
                          "    pass", 8, "stopped"),
    "kills_its_group": ("import os\nos.killpg(0, 9)", 8, "SIGKILL"),
    "crashes": ("import ctypes\nctypes.string_at(0)", 8, "SIGSEGV"),
    # going too far
    "endless": ("while True:\n    pass", 8, "2 seconds"),
    "deaf": ("import signal\nfor one in range(1, 32):\n    try:\n        signal.signal(one, "
             "signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nwhile True:\n    pass",
             8, "2 seconds"),
    "swallows": ("while True:\n    try:\n        while True:\n            pass\n"
                 "    except BaseException:\n        continue", 8, "2 seconds"),
    "floods": ("while True:\n    print('x' * 10_000)", 8, "printing 5 MB"),
    "floods_all": ("import os\nwhile True:\n    for fd in range(3, 12):\n        try:\n"
                   "            os.write(fd, b'{}\\n' * 1000)\n        except OSError:\n"
                   "            pass", 8, "stopped"),
    "eats": ("held = []\nwhile True:\n    held.append(bytearray(20_000_000))", 8, "GB of memory"),
    "large_file": ("with open('large', 'wb') as file:\n    file.seek(2_000_000_000)\n"
                   "    file.write(b'x')", 8, "File too large"),
    "asks": ("name = input()", 8, "EOFError"),
    "deep": ("def down(n):\n    return down(n + 1)\n\n\ndown(0)", 8, "RecursionError"),
    # outliving it
    "daemon": (FORK + "    time.sleep(600)\n    os._exit(0)\n" + TASKS[1], 12, "setsid"),
    "twice_forked": ("import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n"
                     "        os.setsid()\n        time.sleep(600)\n    os._exit(0)\n" + TASKS[1],
                     12, "setsid"),
    "threads": ("import threading, time\nfor _ in range(20):\n"
                "    threading.Thread(target=time.sleep, args=(600,)).start()\n" + TASKS[1], 12, ""),
    "edits_marks": (FORK + "    time.sleep(2)\n    for path in PLACES:\n        open(path, 'w')"
                    ".write('points')\n    os._exit(0)\n", 8, "setsid"),
    "deletes_course": ("import pathlib, shutil\nimport mlm_lib\n"
                       "shutil.rmtree(pathlib.Path(mlm_lib.__file__).parents[1])\n" + TASKS[1],
                       12, ""),
    # odd messages
    "surrogate": ("raise ValueError('\\ud800')", 8, "ValueError"),
    "long": ("raise ValueError('x' * 200_000)", 8, "ValueError"),
    "long_value": ("def double(x):\n    return ['word'] * 20_000", 8, "TypeError"),
    "nul": ("raise ValueError('a\\0b')", 8, "ValueError"),
    "lines": ("raise ValueError('a\\nb\\r\\nc')", 8, "ValueError"),
    "formula": ("raise AssertionError('=cmd()')", 8, "=cmd()"),
    "mute": ("class Odd(Exception):\n    def __str__(self):\n        raise OSError\n\n\nraise Odd", 8,
             "cannot be shown"),
    "no_text": ("class Odd(Exception):\n    def __str__(self):\n        return 3\n\n\nraise Odd", 8,
                "cannot be shown"),
    "syntax": ("def double(:", 8, "SyntaxError"),
    "commands": ("%matplotlib inline\n!ls\n" + TASKS[1] + "\ndouble?", 12, ""),
    "other_library": (TASKS[1] + "\n\n\nimport statistics", 12, ""),
}  # fmt: skip
OTHERS = {
    # our own cell, two tasks later
    "ends_our_cell": ({1: "def double(x):\n    if x > 10:\n        raise SystemExit\n    return 2 * x"},
                      8, "in the lab's next cell: SystemExit"),
    "hangs_our_cell": ({1: "def double(x):\n    while x > 10:\n        pass\n    return 2 * x"}, 8,
                       "its checks pass, and in the lab's next cell: it was stopped"),
    "floods_our_cell": ({1: "def double(x):\n    while x > 10:\n        print('x' * 10_000)\n"
                            "    return 2 * x"}, None, "printing"),
    # one check of two
    "one_check_raises": ({2: "def mean(xs):\n    return sum(xs) / len(xs) if xs[1] else 0"}, 10,
                         "IndexError"),
    "one_check_hangs": ({2: "def mean(xs):\n    while len(xs) == 1:\n        pass\n"
                            "    return sum(xs) / len(xs)"}, 10, "one: it was stopped"),
    "half_done": ({3: TASKS[3].replace("PRICE = 3", "PRICE = 4", 1)}, 10, "it costs 3"),
    "half_waits": ({3: "PRICE = 3\n\n\ndef total(n):\n    " + WAITS.format(3)}, 10, "not answered"),
    "half_cell": ({3: "def total(n):\n    return n * PRICE\n\n\n" + WAITS.format(3)}, 8, "unanswered"),
    "both_told": ({2: "def mean(xs):\n    return 0"}, 8, "of one number"),
    # what a task forbids
    "forbidden": ({2: "from statistics import fmean as mean"}, 12, "tiny.2 uses statistics"),
    "forbidden_method": ({2: TASKS[2] + "\n\n\n[].count(3)"}, 12, "tiny.2 uses .count"),
    "patches": ({1: WRONG_1 + "\n\n\nnear = lambda a, b: True"}, None, ""),
    "patches_builtins": ({1: WRONG_1 + "\n\n\nabs = lambda x: 0"}, None, ""),
    "all_wait": ({n: WAITS.format(n) for n in TASKS}, 0, "unanswered"),
    "emptied": ({n: "" for n in TASKS}, 0, "NameError"),
}  # fmt: skip


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content if isinstance(content, bytes | str) else json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def odd_files(work, due):
    """Files that are no notebook, or that are one in an odd way."""
    whole, text = lab(), json.dumps(lab())
    cells = whole["cells"]
    mistaken = json.dumps(lab({1: WRONG_1})).encode()
    readable = {
        "renamed/my homework (final).ipynb": text,
        "bom.ipynb": "\ufeff" + text,
        "crlf.ipynb": json.dumps(whole, indent=1).replace("\n", "\r\n"),
        "ünï→.ipynb": text,
        "🐍.ipynb": text,
        "=cmd.ipynb": text,
        "deep/er/in/lab.ipynb": text,
        "Anna.ipynb": text,
        "anna.ipynb": mistaken,
        "name:colon.ipynb": text,
        "name_colon.ipynb": mistaken,
        "no_checks.ipynb": lab(checks=False),
        "twice.ipynb": whole | {"cells": [cell for cell in cells for _ in range(2)]},
        "many.ipynb": whole | {"cells": cells + 20_000 * [code_cell("x = 1")]},
        "bare.ipynb": {"cells": [{k: c[k] for k in ("cell_type", "source")} for c in cells]},
        "lines.ipynb": {"cells": [c | {"source": c["source"].splitlines(True)} for c in cells]},
        "large.ipynb": whole | {"padding": "x" * 49_000_000},
        "outputs.ipynb": whole | {"cells": [cell | {"outputs": [{}]} for cell in cells]},
    }
    for name, content in readable.items():
        put(work / name, content)
        due[name] = (8 if name in ("anna.ipynb", "name_colon.ipynb") else 12, "")
    unread = {
        "empty.ipynb": (b"", "is empty"),
        "letter.docx": (b"PK\x03\x04", "is not a notebook"),
        "utf16.ipynb": (text.encode("utf-16"), "is not a notebook"),
        "list.ipynb": (b"[1, 2]", "is not a notebook"),
        "nested.ipynb": (b'{"cells": ' + b"[" * 100_000, "is not a notebook"),
        "no_source.ipynb": (
            b'{"cells": [{"cell_type": "code", "source": null}]}',
            "not a notebook",
        ),
        "no_cells.ipynb": (b'{"cells": []}', "has no mark"),
        "old.ipynb": (b'{"worksheets": [], "nbformat": 3}', "old format"),
        "huge.ipynb": (b" " * 51_000_000, "51 MB"),
        "cut.ipynb": (text[: len(text) // 2].encode(), "is not a notebook"),
        "other.ipynb": (text.replace("tiny.", "huge.").encode(), "has no mark"),
    }
    for name, (content, words) in unread.items():
        put(work / name, content)
        due[name] = (0, words)
    put(work / "nothing" / "notes.txt", b"later")
    due["nothing"] = (0, "no notebook")
    put(work / ".hidden" / "lab.ipynb", whole)
    os.mkfifo(work / "pipe.ipynb")
    for name, target in {
        "colleague.ipynb": "bare.ipynb",
        "zero.ipynb": "/dev/zero",
        "passwords.ipynb": "/etc/passwd",
        "broken.ipynb": "/nowhere",
        "folder_link": "deep",
    }.items():
        (work / name).symlink_to(target if target.startswith("/") else work / target)
        due[name] = (0, "a link")
    due["pipe.ipynb"] = (0, "no file that can be read")
    for name in ("J\udcfcrgen/lab.ipynb", "b\udcf6se.ipynb"):  # Latin-1, as old archives leave it
        put(work / name, whole)
        due[name.encode("utf-8", "backslashreplace").decode()] = (12, "")


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """(what each file is due, the rows of three runs in turn, the reports' folder)."""
    folder = tmp_path_factory.mktemp("class")
    work, out, sources = folder / "work", folder / "marks.csv", folder / "sources"
    source = lab()
    for cell in source["cells"]:
        if "# TASK" in cell["source"]:
            cell["source"] += "\n# SOLUTION"
    put(sources / "tiny_a_lab.ipynb", source)
    due = {}
    places = [str(out), str(folder / "marks_reports" / "honest0.txt")]
    for name, (code, points, words) in IN_TASK_1.items():
        put(work / name / "lab.ipynb", lab({1: code.replace("PLACES", repr(places))}))
        due[f"{name}/lab.ipynb"] = (points, words)
    for name, (answers, points, words) in OTHERS.items():
        put(work / name / "lab.ipynb", lab(answers))
        due[f"{name}/lab.ipynb"] = (points, words)
    for number, name in enumerate("aceikmsuz"):  # between all the others
        code = f"def double(x):\n    honest = {number}\n    return x + x"
        put(work / f"{name}_honest" / "lab.ipynb", lab({1: code}))
        due[f"{name}_honest/lab.ipynb"] = (12, "")
    odd_files(work, due)
    runs = []
    for _ in range(3):
        program = (
            "import sys; from pathlib import Path; import classroom.lab as lab;"
            f"lab.SOURCES = Path({str(sources)!r});"
            "from classroom.__main__ import main; sys.exit(main(sys.argv[1:]))"
        )
        command = [
            sys.executable,
            "-c",
            program,
            "grade",
            str(work),
            "--out",
            str(out),
            "--jobs",
            "2",
        ]
        limits = ["--seconds", "2", "--memory", "0.4", "--output", "5"]
        done = subprocess.run(
            [*command, *limits], cwd=ROOT, capture_output=True, text=True,
            env=os.environ | {"HOSTILE_CLASS": str(folder)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        csv.field_size_limit(2**31 - 1)
        with open(out, encoding="utf-8-sig", newline="") as file:
            runs.append({row["file"].removeprefix("'"): row for row in csv.DictReader(file)})
    return due, runs, folder / "marks_reports"


def test_everything_has_its_row_its_points_and_its_words_three_times(marked):
    due, runs, _ = marked
    assert len(due) >= 83
    for rows in runs:
        assert rows.keys() == due.keys()
        for file, (points, words) in due.items():
            row = rows[file]
            told = " ".join(map(str, row.values()))
            assert points is None or row["points"] == str(points), (file, row)
            assert words in told, (file, row)
            assert int(row["points"]) <= 12 and len(told) < 5000


def test_what_was_marked_is_not_marked_again(marked):
    _, (first, *others), _ = marked
    for rows in others:
        assert {file: row for file, row in rows.items() if row != first[file]} == {}


def test_nothing_that_an_answer_started_goes_on(marked):
    found = (one.info["environ"] or {} for one in psutil.process_iter(["environ"]))
    folder = str(marked[2].parent)
    assert not [one for one in found if one.get("HOSTILE_CLASS") == folder]


def test_each_student_has_a_report_of_his_own(marked):
    _, (rows, *_), reports = marked
    files = [path.name for path in reports.iterdir()]
    assert len({name.casefold() for name in files}) == len(
        {row["student"] for row in rows.values()}
    )
    assert all(stat.S_ISREG(path.stat().st_mode) for path in reports.iterdir())
    texts = {path.read_text("utf-8") for path in reports.glob("[Aa]nna_*.txt")}
    assert len(texts) == 2, "anna is not shown what Anna gets"


def test_equal_work_is_named_to_the_teacher(marked):
    _, (rows, *_), _ = marked
    assert "the same work as" in rows["bare.ipynb"]["look at"]
    assert "the same work as" not in rows["a_honest/lab.ipynb"]["look at"]
