"""What surrounds the training loop, so that the loop in `training.py` can be read at a glance.

A `Run` holds the device, the order of the data, the history, the log, the progress bar and the
checkpoints, and it knows how several processes share the work. The loop asks it for the parts of a
batch, for what is due after a step, and for an evaluation or a checkpoint when one is due.
"""

import builtins
import math
import os
import random
import time
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from mlm_lib.checks import path_name
from mlm_lib.engine.batches import BatchSampler, all_gather, shard
from mlm_lib.engine.checkpoints import Checkpoints, RandomStates, fingerprint
from mlm_lib.engine.files import only_writer
from mlm_lib.engine.log import History, Log, Progress, keep_old_log
from mlm_lib.engine.modes import modes_kept
from mlm_lib.engine.precision import device_taken, native_bf16, precision_taken

# Settings that may be different when a run is resumed. `steps` and `seconds` may change so that a
# run can be lengthened. The weights after a step do not depend on the other settings.
SETTINGS_THAT_MAY_CHANGE = (
    "steps", "seconds", "device", "checkpoint_every", "checkpoint_seconds", "log_every",
    "evaluate_every", "evaluate_at_start", "keep", "progress",
)  # fmt: skip
# Settings that earlier versions did not have, each with the value that an old run goes on with.
SETTINGS_ADDED_LATER = {"gradient_accumulation_steps": 1, "head_steps": 0}
FIRST_CHECKPOINT = 30.0  # seconds after which the first checkpoint is due by the clock
# Several processes must agree on whether a checkpoint is due by the clock. To agree costs a message
# to each process, so they do it only once in this number of steps.
AGREE_EVERY = 10


class Part(NamedTuple):
    """A part of a batch, for which this process computes one forward and one backward pass.

    Args:
        rows: the rows of the part, a dictionary of tensors.
        weight: a tensor without axes, by which the loss of the part is multiplied. A process adds
            the weighted losses of its parts, and the mean of the processes' sums is the loss of the
            batch.
        is_last: whether this is the last part that this process computes of the batch.
    """

    rows: dict
    weight: torch.Tensor
    is_last: bool


class Due(NamedTuple):
    """What is due after a step: a row of the log, an evaluation, a checkpoint."""

    row: bool
    evaluation: bool
    checkpoint: bool


class Run:
    """Everything that a training run needs besides the loop itself; to be used in a `with` block.

    Entering the block locks the folder `out`, seeds the random generators, and moves the model to
    the device. `start` then restores the last checkpoint, if there is one, and opens the log.

    Args:
        model, dataset, collator, config, out, evaluate, callbacks: the arguments of `train`.

    Attributes:
        device: a torch.device.
        sampler: the `BatchSampler` that deals out the examples.
        model: the model to be called in the loop. With several processes it is torch's
            `DistributedDataParallel` around the model, which averages the gradients.
        history: the `History`. The attribute exists after the call of `start`.
    """

    def __init__(self, model, dataset, collator, config, out=None, evaluate=None, callbacks=()):
        self.plain_model, self.dataset, self.collator = model, dataset, collator
        self.config, self.out, self.evaluation, self.callbacks = config, out, evaluate, callbacks
        self.device, self.rank, self.processes = _device_and_processes(config)
        self.is_main = self.rank == 0  # only this process writes, and shows how far the run is
        self.sampler = BatchSampler(
            dataset, config.batch_size, config.seed, grouped=config.group_by_length
        )

    def __enter__(self):
        config, model = self.config, self.plain_model
        with ExitStack() as stack:
            if self.out is not None and self.is_main:
                stack.enter_context(only_writer(path_name("out", self.out)))
            seed = (config.seed + self.rank) % 2**32  # each process draws its own dropout
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            model.to(self.device)
            if config.packing:
                encoder = getattr(model, "embedder", None)
                if not hasattr(encoder, "unpadded"):
                    raise ValueError(
                        f"packing=True needs a BertEncoder or ModernEncoder in {type(model)}"
                    )
                encoder.unpadded = True
            self._at_the_end = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._at_the_end.close()

    # -------------------------------------------------------------------------------- the start

    def start(self, optimizers, resume):
        """Restores the last checkpoint, opens the log, and returns the `History` of the run.

        With `evaluate_at_start` it also evaluates, and reports the row of step 0.

        Args:
            optimizers: the `Optimizers` of the model.
            resume: whether to go on from the last checkpoint in `out`.

        Raises:
            ValueError, FileExistsError, OSError: in the cases that `train` describes.
        """
        config, model, processes = self.config, self.plain_model, self.processes
        self.optimizers = optimizers
        self.encoder_weights = []
        if config.head_steps:
            self.encoder_weights = _encoder_weights(model, optimizers.weights)
        if optimizers.sparse and processes > 1:
            raise ValueError("the model has sparse gradients; only one process can train it")
        self.history, self.random_states = History(), RandomStates(self.device, self.rank)
        # What a checkpoint holds besides the weights and the random states, by its name.
        self.stateful = {"optimizer": optimizers, "order": self.sampler, "history": self.history}
        if hasattr(self.collator, "state_dict"):
            self.stateful["collator"] = self.collator
        self.checkpoints = self.log = None
        if self.out is not None:
            self._restore(Path(self.out), resume)
            if self.is_main:
                self.log = _open_log(Path(self.out), self.history)
        if self.is_main:
            _warn_of_a_jump(self.history, config)
            _warn_of_rounding(optimizers, config.learning_rate)
        self.history.budget = {"steps": config.steps, "seconds": config.seconds}
        if not self.history.precision:  # a resumed run goes on in the precision in which it began
            own = ""
            if self.is_main:
                own = _precision(config.precision, self.device, self.history.step)
            self.history.precision = all_gather(own)[0]
        self.model = DistributedDataParallel(model) if processes > 1 else model
        model.train()
        # The model names the inputs whose values it reads on the CPU. If they were copied to a GPU,
        # reading them would make the program wait for it.
        self.cpu_inputs = getattr(model, "cpu_inputs", ())
        self._show_progress()
        if self.evaluation and config.evaluate_at_start and self.history.step == 0:
            row = {"step": 0, "epoch": self.sampler.epoch, "tokens": 0, "seconds": 0.0}
            row = dict(**row, **self.evaluate())
            self._write(row)
            self._call_back(row)
        self.seconds_before, self.tokens_before = self.history.seconds, self.history.tokens
        self.began = self.saved = time.perf_counter()
        return self.history

    def _restore(self, out, resume):
        """Restores the last checkpoint in the folder `out`, if there is one."""
        settings = {
            name: value
            for name, value in vars(self.config).items()
            if name not in SETTINGS_THAT_MAY_CHANGE
        }
        self.fingerprint = fingerprint(self.plain_model, self.dataset, self.collator, settings)
        self.checkpoints = Checkpoints(out / "checkpoints", self.config.keep)
        if self.checkpoints.last() and not resume:
            raise FileExistsError(f"{out} holds checkpoints; pass resume=True, or another out")
        if self.checkpoints.last():
            state = self.checkpoints.restore(
                self.plain_model, self.fingerprint, SETTINGS_ADDED_LATER
            )
            for name, part in self.stateful.items():
                part.load_state_dict(state[name])
            # The random states come last, because the other parts may draw while they load.
            self.random_states.load_state_dict(state["random"])

    def _show_progress(self):
        """Shows a progress bar, or prepares lines of text if nobody could see a bar."""
        config, history = self.config, self.history
        hidden = None if config.progress is None else not config.progress
        self.bar = tqdm(
            total=config.steps, initial=history.step, disable=hidden if self.is_main else True
        )
        self._at_the_end.callback(self.bar.close)
        # In IPython, and so in each notebook, the name __IPYTHON__ exists.
        in_a_notebook = hasattr(builtins, "__IPYTHON__")
        by_lines = config.progress is None and self.bar.disable and not in_a_notebook
        self.lines = None
        if by_lines and self.is_main:
            self.lines = Progress(history, config.steps, config.seconds)

    # -------------------------------------------------------------------------------- a step

    def parts(self, batch):
        """Divides a batch into the parts that this process computes one after another.

        The rows are dealt out to all processes, and within each process to
        `gradient_accumulation_steps` parts, so that a large batch fits into the memory. There are
        no more parts than rows. With one process and no accumulation, the batch is the only part.

        Yields:
            The parts, each a `Part`.
        """
        _refuse_unread_weights(batch, self.plain_model)
        rows_each = math.ceil(len(batch["input_ids"]) / self.processes)
        count = min(rows_each, self.config.gradient_accumulation_steps)
        for number in range(count):
            index = number * self.processes + self.rank
            rows, weight = shard(batch, self.device, index, count * self.processes, self.cpu_inputs)
            yield Part(rows, weight / count, is_last=number == count - 1)

    @contextmanager
    def gradients_for(self, part):
        """A context for the forward and the backward pass of a part.

        In the first `head_steps` steps no gradient is computed for the encoder. With several
        processes, DistributedDataParallel averages the gradients during the backward pass of the
        last part. While the encoder has no gradients it cannot do so, and `average` does it.
        """
        frozen = self._frozen_weights()
        no_sync = self.processes > 1 and (frozen or not part.is_last)
        with _without_gradient(frozen), self.model.no_sync() if no_sync else nullcontext():
            yield

    def autocast(self):
        """A context in which torch computes matrix products in bf16, if the precision is "bf16"."""
        bf16 = self.history.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=bf16)

    def weighted(self, loss, part):
        """The loss that the model returned for a part, times the weight of the part.

        If no token has a label, a model of transformers returns NaN. The weight is 0 then, and the
        product is replaced by 0.

        Raises:
            ValueError: the loss is None, which models of transformers return for a batch without
                `labels`.
        """
        if loss is None:
            told = f"{type(self.plain_model).__name__} returned no loss for a batch of"
            told += f" {', '.join(part.rows)}"
            raise ValueError(f"{told}; let the collator add what the model needs, such as labels")
        return (loss * part.weight).where(part.weight > 0, 0.0)

    def average(self, loss):
        """The mean of the loss over all processes.

        In the first `head_steps` steps it also replaces the gradients by their means, because
        DistributedDataParallel did not.
        """
        if self.processes > 1:
            distributed.all_reduce(loss)
            loss = loss / self.processes
            if self._frozen_weights():
                self.optimizers.average(self.processes)
        return loss

    def _frozen_weights(self):
        """The weights that get no gradient in this step."""
        return self.encoder_weights if self.history.step < self.config.head_steps else []

    # -------------------------------------------------------------------------------- after a step

    def due(self):
        """Says what is due after the step, as a `Due`, and brings `history.seconds` up to date.

        If anything is due, the numbers of the last steps are read back. The clock is read only
        after that, because reading back makes the program wait until a GPU has computed the steps.

        Raises:
            TrainingStopped, ValueError: in the cases that `History.read_back` describes.
        """
        config, history = self.config, self.history
        checkpoint = self.checkpoints is not None and (
            self._is_multiple(config.checkpoint_every) or self._checkpoint_due_by_clock()
        )
        row = self._is_multiple(config.log_every)
        evaluation = self._is_multiple(config.evaluate_every)
        if checkpoint or row or evaluation:
            history.read_back()
        seconds = self.seconds_before + time.perf_counter() - self.began
        # If the budget is in seconds, all processes must stop at the same step.
        history.seconds = all_gather(seconds)[0] if config.seconds else seconds
        is_over = config.over(history.step, history.seconds)
        if is_over:
            history.read_back(last=True)
        evaluation = bool(self.evaluation) and (evaluation or is_over)
        return Due(
            row=row or evaluation or is_over,
            evaluation=evaluation,
            checkpoint=checkpoint or (is_over and self.checkpoints is not None),
        )

    def _is_multiple(self, every):
        """Whether the number of the step is a multiple of `every`, which may be None."""
        return every is not None and self.history.step % every == 0

    def _checkpoint_due_by_clock(self):
        """Whether enough time has passed since the last checkpoint.

        The first checkpoint is due after 30 seconds, the next ones after 1, 2, 4, … minutes, when
        the run has doubled its time. From then on one is due every `checkpoint_seconds`.
        """
        if self.config.checkpoint_seconds is None:
            return False
        if self.processes > 1 and not self._is_multiple(AGREE_EVERY):
            return False
        apart = max(FIRST_CHECKPOINT, self.saved - self.began)
        apart = min(self.config.checkpoint_seconds, apart)
        return all_gather(time.perf_counter() - self.saved >= apart)[0]

    def evaluate(self):
        """The numbers that the evaluation returns, as floats by name.

        The evaluation leaves no trace: the random generators and the modes of the model are put
        back afterwards, so that the training goes on as it would have without it.
        """
        states = self.random_states.get()
        with modes_kept(self.plain_model):
            numbers = self.evaluation(self.plain_model)
        self.random_states.set(states)
        return {name: float(value) for name, value in numbers.items()}

    def tokens_per_second(self):
        """The mean number of tokens in a second, since the run was started or resumed."""
        history = self.history
        tokens = history.tokens - self.tokens_before
        return round(tokens / (history.seconds - self.seconds_before), 1)

    def report(self, row):
        """Writes the row of a step into the history and the log, and calls the callbacks.

        Args:
            row: numbers by name, or None if no row is due. A loss that is NaN is left out, because
                it means that none of the steps had anything to predict.
        """
        if row is not None:
            speed = row["tokens_per_second"]
            self.bar.set_postfix(loss=f"{row['loss']:.3f}", tokens_per_second=f"{speed:.0f}")
            if math.isnan(row["loss"]):
                del row["loss"]
            self._write(row)
        self.bar.update()
        if self.lines:
            self.lines.tell()
        self._call_back(row)

    def _write(self, row):
        """Appends a row to the history and to the log."""
        self.history.rows.append(row)
        if self.log:
            self.log.write(row)

    def _call_back(self, row):
        """Calls the callbacks."""
        for callback in self.callbacks:
            callback(self.plain_model, self.history.step, row)

    def save_checkpoint(self):
        """Writes a checkpoint. Each process must call this method; only the main process writes.

        Raises:
            OSError: in the case that `Checkpoints.save` describes.
        """
        state = {name: part.state_dict() for name, part in self.stateful.items()}
        state["random"] = self.random_states.state_dict()
        if self.is_main:
            state["run"] = self.fingerprint
            self.checkpoints.save(self.history.step, self.plain_model, state)
        all_gather(None)  # no process goes on before the checkpoint is written
        self.saved = time.perf_counter()


# ------------------------------------------------------------------------------------ preparation


def _device_and_processes(config):
    """The device, the rank of this process, and the number of processes, which `torchrun` sets."""
    device = torch.device("cpu") if config.device == "cpu" else device_taken()
    if config.device not in ("auto", device.type):
        raise ValueError(f"device={config.device!r}, but this machine has {device.type!r}")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not distributed.is_initialized():
        # On a machine with GPUs torch would also start NCCL, which needs a GPU for each process.
        distributed.init_process_group("gloo" if device.type == "cpu" else None)
    if not distributed.is_initialized():
        return device, 0, 1
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    if device.type != "cpu":
        device = torch.device(device.type, int(os.environ.get("LOCAL_RANK", rank)))
        torch.accelerator.set_device_index(device.index)
    return device, rank, processes


def _precision(wanted, device, step):
    """The precision of a run whose checkpoint, if it has one, does not say in which it began.

    `step` is the number of steps made. If there are any, an earlier version of the course began the
    run, and that version took bf16 wherever the hardware has it.
    """
    if wanted != "auto":
        return wanted
    if step:
        return "bf16" if native_bf16(device) else "fp32"
    return precision_taken(device)[0]


def _encoder_weights(model, trained):
    """The trained weights of `model.embedder`, which do not change in the first `head_steps` steps.

    Args:
        trained: all trained weights by name.

    Raises:
        ValueError: the model has no embedder, or no weight outside of it is trained.
    """
    if not isinstance(getattr(model, "embedder", None), torch.nn.Module):
        told = f"head_steps needs a model with an `embedder`, which {type(model).__name__} has not"
        raise ValueError(f"{told}; for a model of transformers take from_hf(model)")
    inside = set(model.embedder.parameters())
    encoder = [weight for weight in trained.values() if weight in inside]
    if len(encoder) == len(trained):
        raise ValueError("head_steps is given, but no weight outside model.embedder is trained")
    return encoder


@contextmanager
def _without_gradient(weights):
    """A context in which no gradient is computed for these weights."""
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def _refuse_unread_weights(batch, model):
    """Refuses a batch with `weights` for a model whose `forward` does not name them.

    The models of transformers accept any keyword and ignore those that they do not know. All rows
    would have the same weight then, and no message would say so.
    """
    if "weights" in batch and "weights" not in signature(model.forward).parameters:
        told = f"the batches have weights, which {type(model).__name__} does not name and would"
        raise ValueError(f"{told} leave out; train a MaskedLanguageModel, such as from_hf(model)")


def _open_log(out, history):
    """The log of a run. If a run left a log and no checkpoint, its log is renamed first."""
    path = out / "log.jsonl"
    if history.step == 0 and (old := keep_old_log(path)):
        told = f"{out} holds a log and no checkpoint, so the run begins anew"
        _warn(f"{told}; the old log is now {old.name}")
    return Log(path, history.rows)


def _warn_of_a_jump(history, config):
    """Warns if the learning rate jumps because a resumed run has another budget than before."""
    if not history.budget or config.over(history.step, history.seconds):
        return
    planned = replace(config, **history.budget).learning_rate_at(history.step, history.seconds)
    now = config.learning_rate_at(history.step, history.seconds)
    # A rate between the last rate and the next one that was planned is not a jump.
    low, high = sorted((history.rate, planned))
    if not low - 0.01 * config.learning_rate <= now <= high + 0.01 * config.learning_rate:
        remedy = "schedule='wsd' can be lengthened before its fall without a jump"
        if config.schedule == "wsd":
            remedy = "go on from a checkpoint before the fall of the rate"
        _warn(
            f"with this budget the learning rate jumps from {history.rate:.2g} at step "
            f"{history.step:,} to {now:.2g} at the next one; {remedy}"
        )


def _warn_of_rounding(optimizers, rate):
    """Warns if weights have 16 bits and steps at this rate are too small to change them."""
    share = optimizers.rounded_away(rate)
    if share > 0.01:
        told = f"the weights have 16 bits, and at learning_rate={rate:g} a step is rounded away"
        told += f" in {share:.0%} of their numbers"
        _warn(f"{told}; train model.float() instead, with precision='bf16' if you like")


def _warn(message):
    """Gives a warning that points to the line that called `train`."""
    # Five frames: this one, the function that warns, `Run.start`, `train`, and its caller.
    warnings.warn(message, stacklevel=5)
