"""A `LiveCurve` shows how a run goes, changes nothing in the run, and leaves a figure behind."""

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient
from notebook_form import alternative_texts, normalised, text
from training_toys import ROWS, assert_same, collator, go

from mlm_lib import plots
from mlm_lib.training import HeldOut

ROOT = Path(__file__).parents[2]

RUN = """from mlm_lib import plots
plots.BETWEEN, plots.SHARE = 0, 1e9  # the figure is renewed at each step
def run(last, steps=8):
    live = plots.LiveCurve(steps, levels={"ln V": 4.0, "floor": 0.5})
    for step in range(1, last + 1):
        live.add(step, loss=4 / step, held_out_loss=5 / step)
"""
CELLS = [RUN, "run(8)\nprint('done')", "run(4)\nraise KeyboardInterrupt", "print('later')"]
LEVELS = "A dashed line at 0.5, floor. A dashed line at 4, ln V."
WHOLE = f"at step 8 of 8: training from 4 to 0.5, held out from 5 to 0.62. {LEVELS}"
HALF = f"at step 4 of 8: training from 4 to 1, held out from 5 to 1.2. {LEVELS}"


@pytest.fixture(scope="module")
def stored():
    """A notebook of `CELLS`, executed by a kernel, in the form in which it is stored."""
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    cells[2].metadata["tags"] = ["raises-exception"]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3").execute()
    return normalised(notebook)


def test_the_last_state_of_a_run_is_stored_with_its_text_and_without_a_time(stored):
    figure, printed = stored.cells[1].outputs
    assert figure.data["text/plain"] == f"Losses against steps, {WHOLE}"
    assert alternative_texts(stored.cells[1]) == [figure.data["text/plain"]]
    assert printed.text == "done\n"


def test_an_interrupted_run_keeps_what_was_drawn(stored):
    assert alternative_texts(stored.cells[2]) == [f"Losses against steps, {HALF}"]
    assert [output.output_type for output in stored.cells[3].outputs] == ["stream"]


@pytest.mark.slow
def test_nbval_finds_the_stored_text_again_and_no_other(stored, tmp_path):
    cells = stored.cells[:2]
    for name, form in {"same": str, "other": lambda form: form.replace("0.62", "0.63")}.items():
        form = form(text(nbformat.v4.new_notebook(cells=cells, metadata=stored.metadata)))
        (tmp_path / f"{name}.ipynb").write_text(form, "utf-8")
    options = ["--nbval", "--nbval-current-env", "-p", "no:cacheprovider"]
    options += ["--nbval-sanitize-with", ROOT / "tools" / "nbval_sanitize.cfg"]
    command = [sys.executable, "-m", "pytest", *options, tmp_path]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "1 failed, 3 passed" in told and "other.ipynb::Cell 1" in told, told


@pytest.fixture
def shown(monkeypatch):
    """What is shown in a notebook that is only pretended, in order; `None` for an empty output."""
    import IPython.display

    def show(data, **_):
        found.append(data.get("text/plain"))
        return SimpleNamespace(update=show)

    found, events = [], SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)
    monkeypatch.setattr(plots, "_notebook", lambda: SimpleNamespace(events=events))
    monkeypatch.setattr(IPython.display, "display", show)
    monkeypatch.setattr(plots, "BETWEEN", 0.0)
    monkeypatch.setattr(plots, "SHARE", 1e9)
    return found


def test_train_draws_its_losses_and_ends_with_the_same_weights_to_the_bit(shown):
    def trained(*callbacks):
        evaluate = HeldOut(ROWS[:8], collator(1))
        options = {"evaluate": evaluate, "log_every": 2, "evaluate_every": 5}
        model, history = go(callbacks=callbacks, **options)
        return model, history, (torch.rand(3).tolist(), np.random.rand(), random.random())

    live = plots.LiveCurve(10)
    (with_it, history, drawn), (without, _, others) = trained(live), trained()
    assert_same(with_it, without)
    assert drawn == others, "the next random numbers"
    curves = {"training": "loss", "held out": "held_out_loss"}
    assert live.losses == {name: history.curve(column) for name, column in curves.items()}
    assert "step 9 of 10, about " in shown[-3] and " s left" in shown[-3]
    assert shown[0] is shown[-2] is None, "nbval compares the first, and the last is stored"
    assert "step 10 of 10: " in shown[-1]


def test_without_ipython_the_losses_are_kept_and_nothing_is_printed():
    code = "import sys; sys.modules['IPython'] = None; from mlm_lib import plots\n"
    code += "live = plots.LiveCurve(2)\nfor step in (1, 2): live.add(step, loss=3 / step)\n"
    code += "assert live.losses == {'training': ([1, 2], [3, 1.5])}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_names_of_levels_stand_in_the_order_of_the_levels_and_apart(shown):
    levels = {"ln V": 5.98, "floor": 0.18, "unigram": 5.9, "place": 5.85}
    live = plots.LiveCurve(10, levels=levels)
    live.add(1, loss=6.0)
    names = {name.get_text(): name.get_position()[1] for name in live._names}
    assert list(names) == ["floor 0.18", "place 5.85", "unigram 5.90", "ln V 5.98"]
    heights = np.array([*names.values()])
    assert (np.diff(heights) > 0.0749).all() and 0 < heights[0] and heights[-1] <= 1


def test_places_are_moved_apart_only_as_far_as_needed():
    assert plots._apart([0.1, 0.5, 0.52], gap=0.1) == [0.1, 0.5, 0.6]
    assert plots._apart([0.1, 0.97, 1.0], gap=0.25) == [0.1, 0.75, 1.0]


def test_renewing_takes_at_most_its_share_of_the_time(shown, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(plots.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(plots, "BETWEEN", 1.0)
    monkeypatch.setattr(plots, "SHARE", 0.01)
    live, picture, drawn = plots.LiveCurve(1000), plots.LiveCurve._picture, []

    def slow(self, left):
        clock.now += 0.05
        drawn.append(clock.now)
        return picture(self, left)

    monkeypatch.setattr(plots.LiveCurve, "_picture", slow)
    for step in range(1, 1000):
        clock.now += 0.02
        live.add(step, loss=1.0)
    assert len(drawn) == 5  # at once, after a second, and then in 20 s once in 5
    assert min(np.diff(drawn[1:])) >= 5


class Lazy:
    """A loss on a GPU, which counts how often it is read."""

    def __init__(self):
        self.reads = 0

    def detach(self):
        return self

    clone = detach

    def __float__(self):
        self.reads += 1
        return 1.0


def test_a_loss_on_a_gpu_is_not_read_before_a_figure_needs_it_and_only_once():
    live, loss = plots.LiveCurve(10), Lazy()
    live.add(1, loss=loss)
    assert loss.reads == 0
    assert live.losses == live.losses == {"training": ([1], [1.0])}
    assert loss.reads == 1


def test_a_loss_that_the_loop_overwrites_is_kept_as_it_was():
    live, loss = plots.LiveCurve(10), torch.tensor(2.0)
    live.add(1, loss=loss)
    loss += 1
    assert live.losses["training"] == ([1], [2.0])


def test_a_curve_of_many_losses_is_drawn_through_their_means(monkeypatch):
    monkeypatch.setattr(plots, "MOST_POINTS", 2)
    assert plots._means([1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 8.0]) == ([2, 5], [1.5, 5.0], 3)


def test_a_loss_that_is_not_finite_is_drawn_as_a_gap(shown):
    live = plots.LiveCurve(2)
    live.add(1, loss=3.0)
    live.add(2, loss=float("nan"))
    assert "training from 3 to nan" in shown[-1]


def test_a_wrong_step_is_refused_with_the_remedy():
    live = plots.LiveCurve(100)
    live.add(100, loss=1.0)
    with pytest.raises(ValueError, match="step 101 of a LiveCurve of 100 steps; give"):
        live.add(101, loss=1.0)
    with pytest.raises(ValueError, match="step 1 after step 100; make a new LiveCurve"):
        live.add(1, loss=1.0)


def test_a_level_that_is_no_number_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"levels\['floor'\]=None"):
        plots.LiveCurve(100, levels={"floor": None})
