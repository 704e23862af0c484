"""What benchmarks/README.md claims is what its tables show, and its command does what it says."""

import json
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.accelerator import TINY, makers, most_memory, random_batch
from benchmarks.turns import HEADER, Row, compared, line, report

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


def tables():
    """The rows of each table of a suite, as {column: cell}."""
    for block in re.findall(r"(?:^\|.*\|\n)+", TEXT, re.M):
        header, _, *rows = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()
        )
        if header == HEADER:
            assert all(len(row) == len(HEADER) for row in rows)
            yield [dict(zip(HEADER, row)) for row in rows]


def front_door(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)], capture_output=True, text=True,
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_each_measured_ratio_is_at_least_what_is_claimed():
    claimed = [row for rows in tables() for row in rows if row["at least"] != "–"]
    assert len(claimed) > 15
    for row in claimed:
        assert float(row["ratio"]) >= float(row["at least"]), row


def test_each_benchmark_has_its_section():
    told = set(re.findall(r"^python -m benchmarks\.(\w+)", TEXT, re.M))
    files = (ROOT / "benchmarks").glob("[a-z]*.py")
    assert told == {path.stem for path in files if "__main__" in path.read_text("utf-8")}


def test_a_ratio_says_how_many_times_better_ours_is():
    assert Row("a step", "fp32", "them", 30.0, 10.0).ratio == 3
    assert Row("a step", "fp32", "them", 10.0, 30.0, "tokens/s").ratio == 3
    alone = Row("what they cannot do", "", "them", None, 10.0)
    assert alone.ratio is None and not alone.missed
    assert len(line(alone.cells()).split("|")) == len(HEADER) + 2


def test_a_claim_that_is_missed_ends_the_program_with_a_sentence(capsys):
    args = SimpleNamespace(device="cpu", quick=False, json=None)
    slow = Row("a step", "fp32", "them", 10.0, 20.0, at_least=2.0)
    with pytest.raises(SystemExit, match=r"a step fp32: 0\.500, and at least 2\.0 is claimed"):
        report([slow], args)
    assert "| a step | fp32 | them | 10.00 ms | 20.00 ms | 0.50 |" in capsys.readouterr().out
    report([slow], SimpleNamespace(device="cpu", quick=True, json=None))  # which judges nothing


def test_sides_take_turns_and_rates_follow_from_their_medians():
    order = []
    row = compared(
        "both", "", "them", [lambda: order.append("them"), lambda: order.append("us")], tokens=7,
        warm_up=1, rounds=4, least=1,
    )  # fmt: skip
    assert order == ["them", "us"] * 5
    assert row.unit == "tokens/s" and row.low <= row.high


def test_the_memory_of_a_step_is_that_of_one_model_alone(monkeypatch):
    """On a pretended GPU, which holds the weights of all models that are alive."""
    alive = weakref.WeakSet()

    def held():
        return sum(weight.nbytes for model in alive for weight in model.parameters())

    def new():
        model = makers(TINY)[1]()
        alive.add(model)
        return model

    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, held)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    other, (batch, _) = new(), random_batch(TINY, "cpu")
    assert most_memory(new, batch, "cpu") == held()  # of two models alike, one is measured
    assert set(alive) == {other}  # and it is gone afterwards


@pytest.mark.slow
def test_the_front_door_tries_the_suite_for_a_gpu_and_writes_what_it_found(tmp_path):
    done = front_door("--only", "accelerator", "--quick", "--out", tmp_path / "found")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "found" / "measured.json").read_text("utf-8"))["accelerator"][
        "rows"
    ]
    table = (tmp_path / "found" / "table.md").read_text("utf-8")
    assert len(rows) >= 7 and all(row["what"] in table for row in rows)
    assert (tmp_path / "found" / "ratios.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_request_that_cannot_be_met_is_told_with_its_value(tmp_path):
    (tmp_path / "file").touch()
    for wrong in (["--only", "cooking"], ["--out", tmp_path / "file"], ["--threads", 0]):
        done = front_door("--quick", *wrong)
        assert done.returncode == 2 and str(wrong[1]) in done.stderr
