"""What a run did: numbers of steps, rows of them, and a log. Built in lesson 08."""

import json
import math
from dataclasses import dataclass, field

import torch

from mlm_lib.engine.files import write

PATIENCE = 100  # steps without a single label, after which a run is ended


class TrainingStopped(RuntimeError):
    """A loss or gradient was not finite."""


@dataclass
class History:
    """What a training run did.

    Attributes:
        rows: one dictionary for each logged step, as in `log.jsonl`: `step`, `epoch`, `loss` (nats,
            mean since the row before), `learning_rate`, `gradient_norm` (before clipping), `tokens`
            (real ones, so far), `seconds`, `tokens_per_second`, and what the evaluation returned.
            NaN and infinity are `null` in the file.
        step, tokens, seconds: totals, resumed runs included.

    While it runs, the numbers of a step stay on the device until somebody looks.
    """

    rows: list = field(default_factory=list)
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    targets: int = field(default=0, repr=False)  # predictions asked for
    norm: float = field(default=0.0, repr=False)  # of the last gradient
    loss_sum: float = field(default=0.0, repr=False)  # of the steps that are in no row yet
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
            self.targets += targets.item()
        self.unread = []
        if not self.targets and (last or self.step >= PATIENCE):
            told = f"no batch had a label in {self.step} steps"
            raise ValueError(f"{told}; raise the masking rate, or give texts that hold words")

    def mean_loss(self):
        """The mean loss of the steps that are in no row yet; a row is made of it."""
        steps = self.step - (self.rows[-1]["step"] if self.rows else 0)
        mean, self.loss_sum = self.loss_sum / steps, 0.0
        return mean

    def state_dict(self):
        """All of it, as plain values."""
        return dict(vars(self))

    def load_state_dict(self, state):
        """Goes on after the steps of `state`."""
        vars(self).update(state)


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
