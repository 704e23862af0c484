"""What a teacher is told to look at: every way in which a mark was forged, and nothing honest."""

import json
import re

import pytest
from lab_answers import answers_of
from project_notebooks import own_cells

from classroom import project
from classroom.edition import student_edition
from classroom.lab import Check, Given, Lab, Submission, Task, joined, labs, read_lab, read_notebook
from classroom.marker import Mark
from classroom.remarks import forbidden, remarks

# Code that reaches for its marks, and what is told of it.
CHEATS = {
    "import inspect\nfor one in inspect.stack(): one": "uses inspect",
    "from inspect import currentframe as now\nnow()": "uses currentframe, inspect",
    "import sys\nsys._getframe().f_back.f_locals": "uses _getframe, f_back, f_locals",
    "try:\n    1 / 0\nexcept Exception as error:\n    error.__traceback__.tb_frame": "tb_frame",
    "(x for x in ()).gi_frame": "uses gi_frame",
    "getattr(error, '__traceback__')": "uses __traceback__",
    "import linecache\nlinecache.cache": "uses linecache",
    "import sys\ndel sys.modules['json']": "uses sys.modules",
    "from sys import modules as m\nm['json'] = None": "uses sys.modules",
    "import importlib.util as u\nu.find_spec('x')": "uses importlib",
    "__import__('cla' + 'ssroom')": "uses __import__",
    "from os import *": "uses import *",
    "near.__globals__['near'] = None": "uses __globals__",
    "near.__code__ = (lambda a, b: True).__code__": "uses __code__",
    "exec('x = 1')": "uses exec",
    "globals()['near'] = 1": "uses globals",
    "open('../class' + 'room/x')": "uses open",
    "from pathlib import Path\nPath('a').read_text()": "uses .read_text",
    "import os\nfor x in os.walk('/'): x": "uses os.walk",
    "import torch\ntorch.equal = lambda a, b: True": "changes torch.equal",
    "import torch\ntorch.Tensor.__eq__ = None": "changes torch.Tensor.__eq__",
    "import torch.testing as t\nt.assert_close = print": "changes torch.testing.assert_close",
    "F.relu = print": "changes torch.nn.functional.relu",
    "import json\njson.dumps, x = print, 1": "changes json.dumps",
    "for F.relu in [print]: pass": "changes torch.nn.functional.relu",
    "import torch\nsetattr(torch, 'equal', print)": "uses setattr",
    "import torch\nvars(torch)['equal'] = print": "uses vars",
    "import torch\ntorch.__dict__['equal'] = print": "uses .__dict__",
    "def near(a, b): return True": "replaces near",
    "abs = lambda x: 0": "replaces abs",
    "class Yes:\n    def __eq__(self, other): return True": "defines __eq__",
    "class Yes:\n    __sub__ = __abs__ = lambda self, *a: 0": "defines __abs__, __sub__",
    "class Near(float): pass": "defines a kind of float",
    "import fractions as f\nclass Near(f.Fraction): pass": "defines a kind of Fraction",
    "import torch\nclass Near(torch.Tensor): pass": "defines a kind of Tensor",
    "Near = type('Near', (float,), {})": "defines a class by type()",
    "from transformers import DataCollatorForLanguageModeling": "imports transformers.Data",
    "import torch\nimport mlm_lib.masking as m": "imports mlm_lib.masking",
    "import statistics": "uses statistics",
    "%matplotlib inline\nfrom statistics import mean": "uses statistics",
    "mean = xs.count": "uses .count",
}
HONEST = {
    "model.eval()": "a method that has the name of a function of Python's",
    "import re\nre.compile('x')": "the same",
    "def load(open):\n    return open()": "a name of the student's own",
    "def inspect(x):\n    return x\ninspect(1)": "the name of a module for a function",
    "head.decoder.weight = weight": "an attribute of an object of the lab's",
    "def forward(model):\n    model.training = False": "an attribute of an argument",
    "class Block(torch.nn.Module):\n    def __init__(self): pass": "an ordinary class",
    "'a frame of gc and classroom, inspect it'": "words in a text",
    "import math as m\nx = m.pi": "an import of Python's own",
    "from torch.nn.functional import gelu": "an import of what the lab imports",
}


def lab(code="def double(x):\n    return 2 * x"):
    source = f"# TASK tiny.1: a task\n# WITHOUT: statistics, .count\n{code}"
    given = Given(
        "import torch\nimport torch.nn.functional as F\ndef near(a, b):\n    return a == b"
    )
    return Lab("tiny", None, [given, Task("tiny.1", "a task", source, [Check("", 2, "")])])


def told(code):
    return remarks(lab(), Submission("tiny", {"tiny.1": [code]}, []))


@pytest.mark.parametrize("code", CHEATS)
def test_every_way_in_which_a_mark_was_forged_is_told(code):
    assert CHEATS[code] in "; ".join(told(code))


@pytest.mark.parametrize("code", HONEST)
def test_what_only_looks_like_it_is_not(code):
    assert told(code) == []


@pytest.mark.slow
@pytest.mark.parametrize("key", list(labs()))
def test_right_answers_are_left_in_peace(key):
    ours = read_lab(labs()[key])
    cells = {task.name: [task.solution] for task in ours.tasks}
    for answer in answers_of(key):
        cells[answer.task] += [answer.code] * answer.right
    known = {
        "04": ["04.1 uses .log_softmax", "04.2 uses .cross_entropy"],
        "06": ["06.2 uses .scaled_dot_product_attention"],
        "17": ["17.2 replaces rest"],
    }
    assert remarks(ours, Submission(key, cells, [])) == known.get(key, [])


@pytest.mark.parametrize("key", list(labs()))
def test_what_a_task_must_do_without_is_told_in_words(key):
    """In the text of the task, or in the second cell of the lab, which is for all tasks."""
    cells = [c for c in read_notebook(labs()[key])["cells"] if c["cell_type"] == "markdown"]
    texts = [joined(cell) for cell in cells]
    assert "your functions must leave their arguments as they are" in texts[1]
    for number, task in enumerate(read_lab(labs()[key]).tasks, start=1):
        (own,) = [text for text in texts if re.match(rf"## (Task|Exhibit) {number}:", text)]
        told = re.sub("[^a-z]", "", f"{texts[1]} {own}".lower())
        for name in forbidden(task.solution):
            assert re.sub("[^a-z]", "", name.split(".")[-1].lower()) in told, (task.name, name)


# ---- points for nothing --------------------------------------------------------------------------

WAITS = 'raise NotImplementedError("Task tiny.1 waits for your code here, in place of this line.")'
SOLVED = "    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
ONE = f"def double(x):\n{SOLVED}"
TWO = f"{ONE}\n\n\ndef half(x):\n{SOLVED}"
VALUE = "### BEGIN SOLUTION\nX = 1\n### END SOLUTION"
STUB = f"def double(x):\n    {WAITS}\n"


@pytest.mark.parametrize(
    "solution, answer, remark",
    [
        (ONE, STUB, True),
        (ONE, f"x = 1\nimport math\n{STUB}", True),
        (
            ONE,
            f'def double(x):\n    """Twice x."""\n    y = 2 * x\n    {WAITS}\n    return y',
            True,
        ),
        (ONE, f"def double(x):\n    return 2 * x\n    {WAITS}", False),
        (ONE, "def double(x):\n    return 2 * x", False),
        (TWO, f"{STUB}def half(x):\n    {WAITS}", True),
        (TWO, f"{STUB}def half(x):\n    return x / 2", False),
        (VALUE, WAITS, True),
        (VALUE, "X = 1", False),
    ],
)
def test_a_task_that_still_waits_and_has_points_is_told(solution, answer, remark):
    submission = Submission("tiny", {"tiny.1": [answer]}, [])
    for points in (0, 1):
        found = remarks(lab(solution), submission, [Mark("tiny.1", points, 2, "right", "")])
        expected = ["tiny.1 has points, and nothing is written there"] if remark and points else []
        assert found == expected


def test_a_task_without_a_cell_that_has_points_is_told():
    marks = [Mark("tiny.1", 2, 2, "right", "")]
    assert len(remarks(lab(), Submission("tiny", {}, []), marks)) == 1


@pytest.mark.parametrize("key", list(labs()))
def test_in_every_lab_an_untouched_task_with_points_would_be_told_and_a_solved_one_not(key):
    ours = read_lab(labs()[key])
    edition = student_edition(json.loads(labs()[key].read_text("utf-8")))
    texts = [cell["source"] for cell in edition["cells"] if cell["cell_type"] == "code"]
    marks = [Mark(task.name, 1, 1, "right", "") for task in ours.tasks]
    empty = {t.name: [s for s in texts if f"# TASK {t.name}:" in s] for t in ours.tasks}
    found = remarks(ours, Submission(key, empty, []), marks)
    assert sum("nothing is written" in one for one in found) == len(marks)
    whole = {task.name: [task.solution] for task in ours.tasks}
    assert not any(
        "nothing is written" in o for o in remarks(ours, Submission(key, whole, []), marks)
    )


# ---- the project ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, words",
    [
        ("import importlib\nimportlib.import_module('mlm_' + 'lib')", "importlib"),
        ("__import__('mlm_lib.grammar')", "__import__"),
        ("import sys\ndel sys.modules['mlm_lib']", "sys.modules"),
        ("from mlm_lib.grammar import Grammar", "mlm_lib"),
        ("open('../course/data/grammar.txt')", "open"),
        ("import torch\ntorch.save = None", "torch.save"),
        ("class Near(float): pass", "a kind of float"),
    ],
)
def test_a_project_that_reaches_for_the_grammar_is_told(code, words):
    assert words in project.remarks({"project.16": [code]})


def test_the_reference_of_the_project_is_left_in_peace():
    assert project.remarks({"project": list(own_cells().values())}) == []


@pytest.mark.parametrize("nats, remark", [("0.0000", True), ("0.0100", True), ("0.2000", False)])
def test_a_score_that_is_too_good_is_told(nats, remark):
    assert project.too_good({project.NATS: nats}) == remark
