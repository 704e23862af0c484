"""On a device that is not the CPU. None is at hand, so one is pretended: see `pretended_device`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LESSONS = {path.stem[:2]: path for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}


def elsewhere(*arguments):
    script = ROOT / "tests" / "scripts" / "elsewhere.py"
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_step_that_is_not_logged_waits_for_no_device_and_the_losses_are_the_cpus():
    for on_cpu, (losses, waits) in elsewhere("train").values():
        assert waits == 9 * [{}]
        assert losses == pytest.approx(on_cpu[0], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("number, sizes", [("03", '{"ROWS": 8, "STEPS": 10}'), ("06", "{}")])
def test_a_lesson_prints_on_another_device_what_it_prints_on_the_cpu(number, sizes):
    here, there = elsewhere(LESSONS[number], sizes)
    for one, other in zip(here.splitlines(), there.splitlines(), strict=True):
        first, second = (re.split(r"(-?\d+\.\d+)", line) for line in (one, other))
        assert first[::2] == second[::2]
        assert [*map(float, first[1::2])] == pytest.approx([*map(float, second[1::2])], abs=0.011)
