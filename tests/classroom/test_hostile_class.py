"""A class in which everything happens that was ever seen to, marked three times over.

Its lab needs no torch, so that a process begins at once. What each submission is due stands beside
it: points, and words that its row holds. The honest ones among them get all of theirs.
"""

import csv
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from classroom.grade import readable
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


WRONG_1 = "def double(x):\n    return x"
HEAD = re.compile(r"^# %% (\w+) \| (\d) \| (\d+|\?) ?\|? ?(.*)\n", re.M)


def answers():
    """{who: (task, code, points or None, words)} of `answers/hostile.txt`."""
    text = (Path(__file__).parents[1] / "answers").joinpath("hostile.txt").read_text("utf-8")
    for name, number in (("double", 1), ("mean", 2), ("total", 3)):
        text = text.replace(f"{{{name}}}", TASKS[number])
    _, *pieces = HEAD.split(text)
    return {
        who: (int(task), code.strip().replace("{waits}", WAITS.format(task)),
              None if points == "?" else int(points), words)
        for who, task, points, words, code in zip(*[iter(pieces)] * 5)
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
        "utf16.ipynb": text.encode("utf-16"),
        "crlf.ipynb": json.dumps(whole, indent=1).replace("\n", "\r\n"),
        "ünï→.ipynb": text,
        "🐍.ipynb": text,
        "=cmd.ipynb": text,
        "deep/er/in/lab.ipynb": text,
        f"{250 * 'n'}/lab.ipynb": text,
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
        "list.ipynb": (b"[1, 2]", "is not a notebook"),
        "nested.ipynb": (b'{"cells": ' + b"[" * 100_000, "is not a notebook"),
        "no_source.ipynb": (
            b'{"cells": [{"cell_type": "code", "source": null}]}',
            "not a notebook",
        ),
        "no_cells.ipynb": (b'{"cells": []}', "has no mark"),
        "old.ipynb": (b'{"worksheets": [], "nbformat": 3}', "old format"),
        "huge.ipynb": (b" " * 51_000_000, "more than 50 MB"),
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
        "circle.ipynb": "circle.ipynb",
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
    places = [str(out), str(folder / "marks_reports" / "a_honest" / "lab.ipynb")]
    for name, (task, code, points, words) in answers().items():
        put(work / name / "lab.ipynb", lab({task: code.replace("PLACES", repr(places))}))
        due[f"{name}/lab.ipynb"] = (points, words)
    for name, code, words in (("all_wait", WAITS, "unanswered"), ("emptied", "", "NameError")):
        put(work / name / "lab.ipynb", lab({n: code.format(n) for n in TASKS}))
        due[f"{name}/lab.ipynb"] = (0, words)
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


def test_what_was_marked_is_handed_back_by_its_own_name(marked):
    _, (rows, *_), reports = marked
    copies = [path for path in reports.rglob("*") if not path.is_dir()]
    assert all(stat.S_ISREG(path.lstat().st_mode) for path in copies)
    told = {readable(path.relative_to(reports).as_posix()) for path in copies}
    assert told == {file for file, row in rows.items() if "tiny.1" in row and row["tiny.1"] != ""}


def test_equal_work_is_named_to_the_teacher(marked):
    _, (rows, *_), _ = marked
    assert rows["bare.ipynb"]["same answers"].startswith("in all tasks: ")
    assert rows["a_honest/lab.ipynb"]["same answers"] == ""
