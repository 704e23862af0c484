"""Settings and the learning rate along a run."""

import numpy as np
import pytest
from training_toys import assert_says, go

from mlm_lib.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")

RATES = [
    ({"steps": 10, "warmup": 0}, {0: 1, 1: 0.9, 5: 0.5, 9: 0.1}),
    ({"steps": 10, "warmup": 4}, {0: 1 / 5, 1: 2 / 5, 3: 4 / 5, 4: 1, 7: 0.5, 9: 1 / 6}),
    ({"steps": 10, "warmup": 0.4}, {0: 1 / 5, 1: 2 / 5, 3: 4 / 5, 4: 1, 7: 0.5, 9: 1 / 6}),
    ({"steps": 10, "warmup": 4, "schedule": "constant"}, {0: 1 / 5, 3: 4 / 5, 4: 1, 9: 1}),
    ({"steps": 10, "warmup": 0, "schedule": "cosine"}, {0: 1, 5: 0.5, 2: 0.9045085, 8: 0.0954915}),
    ({"steps": 12, "warmup": 4, "schedule": "cosine"}, {4: 1, 6: 0.8535534, 8: 0.5, 10: 0.1464466}),
    ({"steps": 1, "warmup": 0.1}, {0: 1 / 1.1}),
    ({"steps": 1, "warmup": 0}, {0: 1}),
]


@pytest.mark.parametrize("settings, rates", RATES)
def test_the_learning_rate_follows_the_schedule(settings, rates):
    config = TrainingConfig(learning_rate=2.0, **settings)
    assert {step: config.learning_rate_at(step) / 2 for step in rates} == pytest.approx(
        rates, abs=1e-6
    )


def test_with_seconds_the_learning_rate_follows_the_clock_or_the_steps_whichever_is_further():
    config = TrainingConfig(steps=None, seconds=100, warmup=0.2, learning_rate=1.0)
    rates = {0: 0, 10: 0.5, 20: 1, 60: 0.5, 100: 0, 120: 0}
    assert {at: config.learning_rate_at(1000, at) for at in rates} == pytest.approx(rates)
    both = TrainingConfig(steps=10, seconds=100, warmup=0, learning_rate=1.0)
    assert both.learning_rate_at(2, 50) == pytest.approx(0.5) and both.learning_rate_at(
        8, 50
    ) == pytest.approx(0.2)


NAN, INF = float("nan"), float("inf")
BAD = {
    "steps": [0, -1, 1.5, True, "10", np.float64(3)],
    "batch_size": [0, None],
    "learning_rate": [0, NAN, INF, "fast", None, True],
    "warmup": [-0.1, NAN, "0.1"],
    "weight_decay": [-1],
    "precision": ["fp16", None],
    "schedule": ["step", ["linear"]],
    "checkpoint_every": [0],
    "seconds": [0, -5],
    "max_grad_norm": [0, None],
    "betas": [(0.9,), (0.9, 1.0), (-0.1, 0.9), 0.9, "ab"],
    "eps": [0, None],
    "log_every": [0, None],
    "evaluate_every": [0],
    "keep": [0, None, INF],
    "seed": [-1, None, 1.5, 2**32, "a", True],
    "device": ["gpu7", None, " "],
    "group_by_length": ["yes", 1],
    "progress": ["no"],
}
BAD = [(name, value) for name, values in BAD.items() for value in values]


@pytest.mark.parametrize("name, value", BAD)
def test_a_value_outside_its_range_is_an_error_that_names_it(name, value):
    with pytest.raises(ValueError) as caught:
        go(**{name: value})
    assert_says(caught.value, [name, repr(value)[:5]])


def test_a_budget_is_needed_and_warmup_in_steps_needs_steps():
    with pytest.raises(ValueError, match="steps and seconds"):
        TrainingConfig(steps=None)
    with pytest.raises(ValueError, match="warmup=5"):
        TrainingConfig(steps=None, seconds=9, warmup=5)


def test_numbers_of_numpy_become_plain_ones():
    given = {"steps": np.int64(5), "learning_rate": np.float32(0.5), "betas": [np.float64(0.5), 0]}
    config = TrainingConfig(**given)
    kinds = [type(value) for value in (config.steps, config.learning_rate, *config.betas)]
    assert kinds == [int, float, float, float]
