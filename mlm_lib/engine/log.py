"""What a training run reports: its history, the file `log.jsonl`, and lines about its progress."""

import json
import math
import sys
import time
from dataclasses import dataclass, field
from itertools import count

import torch

from mlm_lib.checks import can_read_without_sync
from mlm_lib.engine.batches import count_targets, count_tokens
from mlm_lib.engine.files import write

PATIENCE = 100  # a run is ended if none of its first 100 steps had a label
FIRST, BETWEEN = 5.0, 30.0  # seconds to the first line of `Progress`, and between two lines


class TrainingStopped(RuntimeError):
    """The loss or the norm of the gradient was NaN or infinite."""


@dataclass
class History:
    """What a training run did: its logged rows, and its totals.

    `train` returns it. To draw a curve::

        steps, losses = history.curve("loss")

    Attributes:
        rows: one dictionary for each logged step, as in `log.jsonl`: `step`, `epoch`, `loss` (in
            nats, the mean of all steps since the previous row), `learning_rate`, `gradient_norm`
            (before clipping), `tokens` (so far, without padding), `seconds`, `tokens_per_second`,
            and the numbers that the evaluation returned. In the file, NaN and infinity are `null`.
            A row has no `loss` if none of its steps had a label. The row of step 0, which
            `evaluate_at_start` writes, has no `loss` either.
        step: the number of steps made, including those before the run was resumed; `tokens` and
            `seconds` are totals in the same sense.
        tokens: the number of tokens, without padding.
        seconds: the wall-clock time of the training.
        precision: the precision in which the run computes, "fp32" or "bf16".

    On a GPU, reading a number back makes the program wait until the GPU has computed it. Therefore
    the numbers of a step stay on the GPU until `read_back` is called.
    """

    rows: list = field(default_factory=list)
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    precision: str = ""
    targets: int = field(default=0, repr=False)  # predictions so far, as `count_targets` counts
    numbers: dict = field(default_factory=dict, repr=False)  # of the last step that was read back
    loss_sum: float = field(default=0.0, repr=False)  # over the steps since the last row
    idle: int = field(default=0, repr=False)  # how many of these steps had no label
    rate: float = field(default=0.0, repr=False)  # the learning rate of the last step
    budget: dict = field(default_factory=dict, repr=False)  # the `steps` and `seconds` of the run
    unread: list = field(default_factory=list, repr=False)  # steps that were not read back

    def curve(self, name):
        """The rows that have a number of this name, as two lists: (steps, numbers).

        >>> history = History(rows=[{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}])
        >>> history.curve("loss")
        ([1, 2], [3.0, 2.5])
        """
        rows = [row for row in self.rows if name in row]
        return [row["step"] for row in rows], [row[name] for row in rows]

    def add(self, loss, numbers, rate, batch):
        """Counts a step. On a CPU its numbers are read back at once.

        Args:
            loss: the loss of the step, a tensor without axes.
            numbers: what else the log shows of the step, such as `gradient_norm`: a dictionary of
                tensors without axes, on the device of the loss.
            rate: the learning rate of the step.
            batch: the batch of the step, whose tokens and targets are counted.

        Raises:
            TrainingStopped, ValueError: in the cases that `read_back` describes, if it is called.
        """
        self.step += 1
        self.rate = rate
        values = torch.stack((loss, *numbers.values()))  # one tensor, which is read back at once
        self.unread.append((values, list(numbers), count_tokens(batch), count_targets(batch)))
        if can_read_without_sync(loss):
            self.read_back()

    def read_back(self, last=False):
        """Reads the numbers of all steps that were not read back yet, and waits for them on a GPU.

        Args:
            last: whether the run is at its end.

        Raises:
            TrainingStopped: the loss or another number of a step is NaN or infinite.
            ValueError: no step had a label, and the run is at its end or has made 100 steps.
        """
        first = self.step + 1 - len(self.unread)
        for step, (values, names, tokens, targets) in enumerate(self.unread, first):
            loss, *others = values.tolist()
            self.numbers = dict(zip(names, others))
            if not all(map(math.isfinite, (loss, *others))):
                told = f"step {step}: the loss is {loss}"
                for name, number in self.numbers.items():
                    told += f" and the {name.replace('_', ' ')} {number}"
                raise TrainingStopped(f"{told}; lower the learning rate, or take 'fp32'")
            self.loss_sum += loss
            self.tokens += tokens.item()
            labels = targets.item()
            self.targets += labels
            self.idle += not labels
        self.unread = []
        if not self.targets and (last or self.step >= PATIENCE):
            told = f"no batch had a label in {self.step} steps"
            raise ValueError(f"{told}; raise the masking rate, or give texts that hold words")

    def take_mean_loss(self):
        """The mean loss of the steps since the last row. The sum then begins at 0 again.

        Steps without a label have no loss and do not count. If none of the steps had a label, the
        mean is NaN.
        """
        mean = self._mean_loss(self.step)
        self.loss_sum, self.idle = 0.0, 0
        return mean

    def last_loss(self):
        """The most recent mean loss that is known without reading anything back.

        It is the mean over the steps since the last row that were read back, or the loss of the
        last row if there are no such steps.
        """
        mean = self._mean_loss(self.step - len(self.unread))
        return self.rows[-1].get("loss", mean) if math.isnan(mean) and self.rows else mean

    def _mean_loss(self, step):
        """The mean loss of the steps from the last row to `step`, or NaN if none had a label."""
        steps = step - (self.rows[-1]["step"] if self.rows else 0) - self.idle
        return self.loss_sum / steps if steps > 0 else math.nan

    def state_dict(self):
        """All attributes, as plain values."""
        return dict(vars(self))

    def load_state_dict(self, state):
        """Goes on after the steps of `state`.

        Another version of the course may have saved it. Attributes that only one of the two
        versions has are ignored.
        """
        vars(self).update({name: value for name, value in state.items() if name in vars(self)})


# ------------------------------------------------------------------------------------ log.jsonl


class Log:
    """The file `log.jsonl`, in which each line is a row of the log.

    A resumed run goes on after its last checkpoint. The rows that were logged after the checkpoint
    will be computed again, so they are removed from the file first.

    Args:
        path: the path of the file.
        rows: the rows up to the checkpoint, which the file keeps.
    """

    def __init__(self, path, rows):
        self.path = path
        write(path, "".join(map(_line, rows)))

    def write(self, row):
        """Appends a row to the file."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(_line(row))


def _line(row):
    """A row as a line of JSON. JSON has no NaN and no infinity, so both become `null`."""
    finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
    return json.dumps(finite) + "\n"


def keep_old_log(path):
    """Renames a log that belongs to no checkpoint, so that no run overwrites it.

    Args:
        path: the path of the log, such as `out/log.jsonl`. The file is renamed `out/log.1.jsonl`
            or, if there is such a file, gets the next number that is free.

    Returns:
        The new path, or None if there is no log or the log is empty.
    """
    if not path.exists() or not path.stat().st_size:
        return None
    names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
    return path.rename(next(name for name in names if not name.exists()))


# ------------------------------------------------------------------------------------ progress


class Progress:
    """Prints how far a run has come, if there is no terminal for a progress bar.

    The first line comes after `FIRST` seconds, and each further line `BETWEEN` seconds after the
    line before. The lines go to the standard error, as a progress bar does.

    Args:
        history: the `History` of the run.
        steps, seconds: the budget of the run. None: the run has no budget of this kind.
    """

    def __init__(self, history, steps, seconds):
        self.history, self.steps, self.seconds = history, steps, seconds
        self.first_step, self.begin = history.step, time.perf_counter()
        self.next = self.begin + FIRST

    def tell(self):
        """Prints a line if it is time for one. Call this method after each step."""
        now, history = time.perf_counter(), self.history
        if now < self.next:
            return
        self.next = now + BETWEEN
        left = []
        if self.steps:
            seconds_per_step = (now - self.begin) / (history.step - self.first_step)
            left.append(seconds_per_step * (self.steps - history.step))
        if self.seconds:
            left.append(self.seconds - history.seconds)
        of = f" of {self.steps:,}" if self.steps else ""
        loss = "" if math.isnan(history.last_loss()) else f", loss {history.last_loss():.3f}"
        text = f"step {history.step:,}{of}{loss}, about {max(0.0, min(left)):,.0f} s left"
        print(text, file=sys.stderr, flush=True)
