"""Runs the lessons of CALLS, [number, parameters] each, and prints as JSON what each printed."""

import io
import json
import os
import sys
import types
from contextlib import redirect_stdout
from pathlib import Path

import matplotlib
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "course"))
from test_lesson_settings import run

from classroom.runner import fresh_names

matplotlib.use("agg")
torch.set_num_threads(1)
answers = []
for number, values in json.loads(os.environ["CALLS"]):
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(fresh_names())
    with redirect_stdout(io.StringIO()) as said:
        run(number, values, vars(main))
    answers.append(said.getvalue())
print(json.dumps(answers))
