"""docs/read_your_curve.md: its numbers are those of the stored runs, its checks find the faults."""

import json
import re
import types

import pytest

from docs.site import curves

PAGE = (curves.FOLDER.parent / "read_your_curve.md").read_text("utf-8")
STORED = json.loads((curves.FOLDER / "curves.json").read_text("utf-8"))
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def page():
    """The functions of the page."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    return types.SimpleNamespace(**names)


def test_each_number_of_the_page_is_one_of_the_stored_runs():
    points = [nats for one in STORED["runs"].values() for rows in one.values() for _, nats in rows]
    known = {f"{nats:.2f}" for nats in [*points, *STORED["landmarks"].values()]}
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    assert set(re.findall(r"(?<![\d.])\d+\.\d\d(?!\d)", prose)) <= known | {"10.33"}


def test_each_picture_is_shown():
    assert re.findall(r"\]\(curves/(\w+)\.svg\)", PAGE) == curves.DRAWN
    assert all((curves.FOLDER / f"{name}.svg").is_file() for name in curves.DRAWN)


@pytest.mark.slow
def test_the_stored_runs_come_out_again():
    again = curves.curves(steps=2 * curves.EVERY)
    for name in again.keys() - {"vocabulary"}:  # which goes on from the end of the sound one
        for (_, before), (_, now) in zip(STORED["runs"][name]["log"], again[name]["log"]):
            assert now == pytest.approx(before, abs=0.02), name
    assert curves.landmarks() == pytest.approx(STORED["landmarks"], abs=0.002)


@pytest.mark.parametrize(
    "fault, check",
    [
        (curves.masked_before_the_copy, "check_answers"),
        (curves.asked_everywhere, "check_share"),
        (curves.padding_asked, "check_padding"),
    ],
)
def test_the_check_of_a_fault_finds_it_and_no_other_does(page, fault, check):
    checks = {
        "check_answers": lambda batch: page.check_answers(batch, curves.tokenizer),
        "check_share": page.check_share,
        "check_padding": page.check_padding,
    }
    batch = curves.masking()(curves.texts[:16])
    for name, one in checks.items():
        one(batch)
        if name == check:
            with pytest.raises(AssertionError):
                one(fault(batch))
        else:
            one(fault(batch))


@pytest.mark.slow
def test_eight_rows_are_learned_by_heart_only_at_the_lower_rate(page):
    given = curves.new_model, curves.texts, curves.masking()
    high, low = (page.loss_on_eight_rows(*given, rate) for rate in (0.1, 0.01))
    unigram = STORED["landmarks"]["unigram entropy"]
    assert low < 1 and high > unigram - 1


def test_repeats_and_a_start_above_ln_v_are_found(page):
    page.check_repeats(["a", "b", "c"])
    with pytest.raises(AssertionError, match="33%"):
        page.check_repeats(["a", "a", "a"])
    ln_v, unigram, mixed = page.lines(curves.texts, curves.tokenizer)
    assert ln_v == pytest.approx(STORED["landmarks"]["ln V"], abs=1e-3) and mixed < unigram < ln_v
    starts = {name: one["held_out"][0][1] for name, one in STORED["runs"].items()}
    page.check_start(starts["sound"], curves.tokenizer)
    with pytest.raises(AssertionError, match="9.37"):
        page.check_start(starts["vocabulary"], curves.tokenizer)
