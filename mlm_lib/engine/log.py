"""What a run did: numbers of steps, rows of them, and a log. Built in lesson 08."""

import json
import math
import sys
import time
from dataclasses import dataclass, field
from itertools import count

import torch

from mlm_lib.engine.files import write

PATIENCE = 100  # steps without a single label, after which a run is ended
FIRST, BETWEEN = 5.0, 30.0  # seconds to the first line of `Progress`, and between two lines


class TrainingStopped(RuntimeError):
    """A loss or gradient was not finite."""


@dataclass
class History:
    """What a training run did.

    Attributes:
        rows: one dictionary for each logged step, as in `log.jsonl`: `step`, `epoch`, `loss` (nats,
            mean since the row before), `learning_rate`, `gradient_norm` (before clipping), `tokens`
            (real ones, so far), `seconds`, `tokens_per_second`, and what the evaluation returned.
            NaN and infinity are `null` in the file. A row has no `loss` if none of its steps had a
            label, or if it is the row of step 0, which `evaluate_at_start` writes.
        step, tokens, seconds: totals, resumed runs included.
        precision: "fp32" or "bf16", in which the run computes.

    While it runs, the numbers of a step stay on the device until somebody looks.
    """

    rows: list = field(default_factory=list)
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    precision: str = ""
    targets: int = field(default=0, repr=False)  # predictions asked for
    norm: float = field(default=0.0, repr=False)  # of the last gradient
    loss_sum: float = field(default=0.0, repr=False)  # of the steps that are in no row yet
    idle: int = field(default=0, repr=False)  # how many of these steps had no label
    rate: float = field(default=0.0, repr=False)  # the learning rate of the last step
    budget: dict = field(default_factory=dict, repr=False)  # the steps and seconds it was meant for
    unread: list = field(default_factory=list, repr=False)

    def curve(self, name):
        """(steps, values) of the rows that have `name`."""
        rows = [row for row in self.rows if name in row]
        return [row["step"] for row in rows], [row[name] for row in rows]

    def add(self, loss, norm, tokens, targets):
        """Counts a step; its numbers, tensors of no axes, are left where they are."""
        self.step += 1
        self.unread.append((torch.stack((loss, norm)), tokens, targets))

    def look(self, last=False):
        """Reads the numbers of the steps since the last look; this is what waits for the device.

        Raises:
            TrainingStopped: those of a step are not finite.
            ValueError: there was no label yet, after many steps or when this was the last.
        """
        first = self.step + 1 - len(self.unread)
        for step, (pair, tokens, targets) in enumerate(self.unread, first):
            loss, self.norm = pair.tolist()
            if not (math.isfinite(loss) and math.isfinite(self.norm)):
                told = f"step {step}: the loss is {loss} and the gradient norm {self.norm}"
                raise TrainingStopped(f"{told}; lower the learning rate, or take 'fp32'")
            self.loss_sum += loss
            self.tokens += tokens.item()
            asked = targets.item()
            self.targets += asked
            self.idle += not asked
        self.unread = []
        if not self.targets and (last or self.step >= PATIENCE):
            told = f"no batch had a label in {self.step} steps"
            raise ValueError(f"{told}; raise the masking rate, or give texts that hold words")

    def mean_loss(self):
        """The mean loss of the steps that are in no row yet; a row is made of it.

        A step without any label has no loss and does not count. The mean over no step is NaN.
        """
        mean = self._mean_of(self.step)
        self.loss_sum, self.idle = 0.0, 0
        return mean

    def last_loss(self):
        """The mean loss of the read steps that are in no row; if there are none, the last row's."""
        mean = self._mean_of(self.step - len(self.unread))
        return self.rows[-1].get("loss", mean) if math.isnan(mean) and self.rows else mean

    def _mean_of(self, step):
        """The mean loss from the last row to a step."""
        steps = step - (self.rows[-1]["step"] if self.rows else 0) - self.idle
        return self.loss_sum / steps if steps > 0 else math.nan

    def state_dict(self):
        """All of it, as plain values."""
        return dict(vars(self))

    def load_state_dict(self, state):
        """Goes on after the steps of `state`."""
        vars(self).update(state)


def keep_old_log(path):
    """Renames a log that no checkpoint belongs to, so that no run writes over it.

    Args:
        path: of the log, such as `out/log.jsonl`, which becomes `out/log.1.jsonl`, or the next
            number that is free.

    Returns:
        The new path, or None if there is no log or the log is empty.
    """
    if not path.exists() or not path.stat().st_size:
        return None
    names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
    return path.rename(next(name for name in names if not name.exists()))


class Progress:
    """Prints how far a run has come, where nobody watches a progress bar in a terminal.

    The first line comes after `FIRST` seconds, and each further line `BETWEEN` seconds after the
    line before. Lines go to the standard error, as a progress bar does.

    Args:
        history: the `History` of the run.
        steps, seconds: the budget of the run; None where it has no such budget.
    """

    def __init__(self, history, steps, seconds):
        self.history, self.steps, self.seconds = history, steps, seconds
        self.first_step, self.begin = history.step, time.perf_counter()
        self.next = self.begin + FIRST

    def tell(self):
        """Prints a line if it is time for one. It has to be called after each step."""
        now, history = time.perf_counter(), self.history
        if now < self.next:
            return
        self.next = now + BETWEEN
        left = []
        if self.steps:
            spent = (now - self.begin) / (history.step - self.first_step)  # seconds of a step
            left.append(spent * (self.steps - history.step))
        if self.seconds:
            left.append(self.seconds - history.seconds)
        of = f" of {self.steps:,}" if self.steps else ""
        loss = "" if math.isnan(history.last_loss()) else f", loss {history.last_loss():.3f}"
        text = f"step {history.step:,}{of}{loss}, about {max(0.0, min(left)):,.0f} s left"
        print(text, file=sys.stderr, flush=True)


class Log:
    """`log.jsonl`: one row a line. A resumed run first drops what came after its checkpoint."""

    def __init__(self, path, rows):
        self.path = path
        write(path, "".join(map(_line, rows)))

    def write(self, row):
        """Adds a row."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(_line(row))


def _line(row):
    # JSON has no NaN and no infinity.
    finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
    return json.dumps(finite) + "\n"
