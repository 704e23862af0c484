"""What a run did: numbers of steps, rows of them, and a log. Built in lesson 08."""

import json
import math
from dataclasses import asdict, dataclass, field

import torch

from mlm_lib.engine.files import write

ROW = (
    *("step", "epoch", "loss", "learning_rate", "gradient_norm"),
    *("tokens", "seconds", "tokens_per_second"),
)  # what every row of the log has
PATIENCE = 100  # steps without a look at their numbers, and steps without a single label


class TrainingStopped(RuntimeError):
    """A loss or gradient was not finite. The weights are those from before that step."""


@dataclass
class History:
    """What a training run did.

    Attributes:
        rows: one dictionary for each logged step, as in `log.jsonl`: `step`, `epoch`, `loss` (nats,
            mean since the row before), `learning_rate`, `gradient_norm` (before clipping), `tokens`
            (real ones, so far), `seconds`, `tokens_per_second`, and what the evaluation returned.
            NaN and infinity are `null` in the file.
        step, tokens, seconds: totals, resumed runs included.
    """

    rows: list = field(default_factory=list)
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def curve(self, name):
        """(steps, values) of the rows that have `name`."""
        rows = [row for row in self.rows if name in row]
        return [row["step"] for row in rows], [row[name] for row in rows]

    def state_dict(self):
        """All of it, as plain values."""
        return asdict(self)

    def load_state_dict(self, state):
        """Goes on after the steps of `state`."""
        vars(self).update(state)


class Meter:
    """The numbers of the steps since the last look, left on the device so that it need not wait."""

    def __init__(self, device):
        self.steps, self.bad = [], torch.zeros((), device=device)
        self.total, self.count, self.norm, self.tokens, self.targets = 0.0, 0, 0.0, 0, 0

    def add(self, loss, norm, tokens, targets):
        """Takes a step's numbers; 1 if it, or one before it, must not be applied, else 0."""
        pair = torch.stack((loss, norm))
        self.steps.append((pair, tokens, targets))
        # 0 · x is 0 for a finite x, and NaN for infinity and NaN. NaN plus anything stays NaN.
        self.bad = self.bad + (0 * pair).sum().float()
        return (self.bad != 0).float()

    def look(self, step, store, last=False):
        """Reads the numbers of the steps up to `step`; this is what waits for the device.

        Raises:
            TrainingStopped: those of a step are not finite.
            ValueError: there was no label yet, after many steps or when this was the last.
        """
        if self.steps:
            pairs, tokens, targets = (torch.stack(column).tolist() for column in zip(*self.steps))
            for before, (loss, norm) in zip(range(len(pairs) - 1, -1, -1), pairs):
                if not (math.isfinite(loss) and math.isfinite(norm)):
                    raise TrainingStopped(_stopped(step - before, loss, norm, store))
                self.total, self.count, self.norm = self.total + loss, self.count + 1, norm
            self.tokens, self.targets = self.tokens + sum(tokens), self.targets + sum(targets)
            self.steps = []
        if not self.targets and (last or step >= PATIENCE):
            raise ValueError(
                f"no batch had a label in {step} steps, so there was nothing to learn; raise the "
                "masking rate, or give texts that hold more than special tokens"
            )

    def mean_loss(self):
        """The mean loss since it was last asked for."""
        mean, self.total, self.count = self.total / max(1, self.count), 0.0, 0
        return mean

    def state_dict(self):
        """What has been counted and not been written down yet."""
        return {name: getattr(self, name) for name in ("total", "count", "tokens", "targets")}

    def load_state_dict(self, state):
        """Goes on after the steps of `state`."""
        vars(self).update(state)


def _stopped(step, loss, norm, store):
    last = store.last() if store else None
    saved = f"the last good checkpoint is {last}" if last else "no checkpoint was saved"
    return (
        f"step {step}: the loss is {loss} and the gradient norm {norm}; {saved}. "
        "Try a lower learning rate or precision='fp32'"
    )


class Log:
    """`log.jsonl`: one row a line. A resumed run first drops what came after its checkpoint."""

    def __init__(self, path, rows):
        self.path = path
        write(path, "".join(map(self._line, rows)))

    def write(self, row):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(self._line(row))

    def _line(self, row):
        # JSON has no NaN and no infinity.
        bad = {name for name, value in row.items() if not math.isfinite(value)}
        return json.dumps({name: None if name in bad else row[name] for name in row}) + "\n"
