"""A school that runs nbgrader can use the sources as they are: full marks for our solutions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from classroom.lab import ROOT, labs, read_lab

pytest.importorskip("nbgrader", reason='pip install -e ".[classroom]"')


@pytest.mark.slow
def test_each_source_is_generated_and_graded_with_full_marks(tmp_path):
    from nbgrader.api import Gradebook

    for path in labs().values():
        for folder in ("source/labs", "submitted/ada/labs"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / folder)
    # Ada has changed what is given: it is put back before her work runs.
    work = tmp_path / "submitted/ada/labs" / labs()["02"].name
    changed = work.read_text("utf-8").replace("FIRST_WORD = 5 ", "FIRST_WORD = 500 ")
    assert changed != work.read_text("utf-8")
    work.write_text(changed, "utf-8")
    env = dict(os.environ)  # nbgrader calls alembic by its name
    for name, first in {"PYTHONPATH": ROOT, "PATH": Path(sys.executable).parent}.items():
        env[name] = os.pathsep.join(filter(None, [str(first), env.get(name)]))
    for command in (["generate_assignment", "labs", "--create"], ["autograde", "labs", "--create"]):
        subprocess.run(
            [sys.executable, "-m", "nbgrader", *command], cwd=tmp_path, env=env, check=True
        )
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        graded = {n.name: n for n in book.find_submission("labs", "ada").notebooks}
        for path in labs().values():
            assert graded[path.stem].score == graded[path.stem].max_score == read_lab(path).points
