"""How to train: every setting of a run, its budget, and the learning rate along it. Lesson 08."""

import math
from dataclasses import dataclass

from mlm_lib.checks import choice, flag, number, path_name, refused, whole_number


def linear(done):
    """From 1 down to 0 in a straight line.

    >>> linear(0.25)
    0.75
    """
    return 1 - done


def cosine(done):
    """From 1 down to 0 along half a cosine: slow, fast, slow (Loshchilov & Hutter 2017)."""
    return 0.5 * (1 + math.cos(math.pi * done))


def constant(done):
    """1 to the end."""
    return 1.0


SCHEDULES = {"linear": linear, "cosine": cosine, "constant": constant}


@dataclass
class TrainingConfig:
    """How to train.

    Args:
        steps: optimizer steps; None where `seconds` alone is the budget.
        batch_size: rows in a step, over all processes together.
        learning_rate: its highest value.
        warmup: steps of linear rise from 0; below 1 it is a share of the budget.
        weight_decay: AdamW's (Loshchilov & Hutter 2019), on matrices only: biases and layer norms
            are left alone.
        precision: "fp32", "bf16" (autocast; weights stay float32), or "auto": bf16 where the
            hardware has it natively.
        seed: of the order of the data and of dropout.
        checkpoint_every: steps between checkpoints; None keeps only the one at the end.
        seconds: stop after this much wall-clock time, over all resumed runs together. The schedule
            then follows the clock, and two runs agree no longer to the bit.
        schedule: "linear", "cosine" or "constant", after the warm-up.
        device: "auto", "cpu", or whatever `accelerate` finds ("cuda", "mps").
        max_grad_norm: gradients are scaled down to this norm.
        betas, eps: AdamW's; eps is BERT's own.
        log_every, evaluate_every: steps between rows of the log, and between evaluations (None: at
            the end).
        group_by_length: rows of like length share a batch, which saves padding.
        keep: checkpoints kept, the last ones.
        progress: show a progress bar; None shows it in a terminal only.
        optimizer: "adamw", or "muon": the matrices inside the network are Muon's, with the same
            weight decay, and AdamW has the rest; see `Optimizers`.
        inner_learning_rate: the highest value of Muon's; None is `learning_rate`.

    Raises:
        ValueError: a value outside its range.
    """

    steps: int | None
    batch_size: int = 32
    learning_rate: float = 5e-4
    warmup: float = 0.1
    weight_decay: float = 0.01
    precision: str = "auto"
    seed: int = 0
    checkpoint_every: int | None = None
    seconds: float | None = None
    schedule: str = "linear"
    device: str = "auto"
    max_grad_norm: float = 1.0
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-6
    log_every: int = 10
    evaluate_every: int | None = None
    group_by_length: bool = False
    keep: int = 2
    progress: bool | None = None
    optimizer: str = "adamw"
    inner_learning_rate: float | None = None

    def __post_init__(self):
        for name in ("steps", "checkpoint_every", "evaluate_every"):
            setattr(self, name, whole_number(name, getattr(self, name), none=True))
        for name in ("batch_size", "log_every", "keep"):
            setattr(self, name, whole_number(name, getattr(self, name)))
        for name in ("learning_rate", "max_grad_norm", "eps"):
            setattr(self, name, number(name, getattr(self, name), above=0))
        for name in ("warmup", "weight_decay"):
            setattr(self, name, number(name, getattr(self, name), least=0))
        self.seconds = number("seconds", self.seconds, above=0, none=True)
        self.seed = whole_number("seed", self.seed, least=0, most=2**32 - 1)
        self.schedule = choice("schedule", self.schedule, SCHEDULES)
        self.precision = choice("precision", self.precision, ("auto", "fp32", "bf16"))
        self.device = path_name("device", self.device)
        self.optimizer = choice("optimizer", self.optimizer, ("adamw", "muon"))
        name = "inner_learning_rate"
        self.inner_learning_rate = number(name, self.inner_learning_rate, above=0, none=True)
        if self.inner_learning_rate and self.optimizer != "muon":
            raise ValueError(f"{name}={self.inner_learning_rate} is Muon's; set optimizer='muon'")
        self.group_by_length = flag("group_by_length", self.group_by_length)
        self.progress = None if self.progress is None else flag("progress", self.progress)
        pair = isinstance(self.betas, (list, tuple)) and len(self.betas) == 2
        if not pair or not all(0 <= number("betas", beta) < 1 for beta in self.betas):
            raise refused("betas", self.betas, "a pair of numbers in 0..1, 1 excluded,")
        self.betas = tuple(float(beta) for beta in self.betas)
        if self.steps is None and self.seconds is None:
            raise ValueError("steps and seconds are both None; one of them must end the training")
        if self.warmup >= 1 and self.steps is None:
            raise ValueError(
                f"warmup={self.warmup} counts steps, but only seconds are given; "
                "write it as a share below 1"
            )

    def learning_rate_at(self, step, seconds=0.0):
        """The learning rate of step 0, 1, …, `seconds` after the start.

        >>> config = TrainingConfig(steps=10, warmup=4, learning_rate=1.0)
        >>> [round(config.learning_rate_at(step), 2) for step in range(10)]
        [0.2, 0.4, 0.6, 0.8, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17]
        """
        # How much of the budget is used up, 0 to 1: by steps or by the clock, what is further.
        by_step = step / self.steps if self.steps else 0.0
        done = max(by_step, seconds / self.seconds if self.seconds else 0.0)
        warm = self.warmup if self.warmup < 1 else self.warmup / self.steps
        # 1) Warm-up: a line from 0 to 1. By steps, step 0 moves already, or it would be wasted.
        if done < warm:
            first = (step + 1) / (warm * self.steps + 1) if self.steps else 0.0
            return self.learning_rate * min(1.0, max(done / warm, first))
        # 2) The schedule: from 1 on, over what is left of the budget.
        left = min(1.0, (done - warm) / max(1e-9, 1 - warm))
        # 3) After the end: what the schedule ends with, and never below 0.
        return self.learning_rate * max(0.0, SCHEDULES[self.schedule](left))

    def over(self, step, seconds):
        """Whether the budget is used up."""
        late = self.seconds is not None and seconds >= self.seconds
        return late or (self.steps is not None and step >= self.steps)
