"""The training loop: a budget, a schedule, steps, and a log of them. Built in lesson 08.

`train` reads from top to bottom as a step does: batch, loss, gradient, clipped, counted, applied,
written down, kept. Precision is left to torch's autocast, the order of the data to `batches.py`,
surviving a crash to `checkpoints.py`, and starting several processes to `torchrun`.
"""

import builtins
import math
import os
import random
import time
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from mlm_lib.checks import can_look, choice, flag, number, path_name, refused, whole_number
from mlm_lib.engine.batches import Order, count_targets, example_length, gathered, own_share
from mlm_lib.engine.checkpoints import Checkpoints, RandomStates, fingerprint
from mlm_lib.engine.files import only_writer
from mlm_lib.engine.log import History, Log, Progress, keep_old_log
from mlm_lib.engine.precision import device_taken, native_bf16, precision_taken
from mlm_lib.optimizers import Optimizers

# ------------------------------------------------------------------------------------ settings

# The learning rate after the warm-up, as a share of its highest value, when a share `done` of what
# was left is done. Cosine is slow, fast, slow (Loshchilov & Hutter 2017). "wsd", warm-up, stable,
# decay, falls in the last fifth only (Hu et al. 2024): up to there no step depends on how many will
# follow, and a run can be lengthened.
SCHEDULES = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
    "wsd": lambda done: min(1.0, 5 * (1 - done)),
}
# Settings that may change between a run and its continuation. A budget may grow.
FREE = "steps seconds device checkpoint_every checkpoint_seconds log_every evaluate_every".split()
FREE += "evaluate_at_start keep progress".split()
# Settings that earlier versions did not have, with the values that their runs go on with.
ADDED = {"gradient_accumulation_steps": 1, "head_steps": 0}
FIRST_CHECKPOINT = 30.0  # seconds after which a run keeps its first checkpoint by the clock
# After every so many steps several processes agree on whether a checkpoint is due by the clock.
AGREE_EVERY = 10


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
        precision: "fp32", "bf16" (autocast; weights stay float32), or "auto", which takes what is
            faster on this machine (see `precision_taken`). On a processor "auto" is decided by a
            clock, so name a precision if two runs must agree to the bit.
        seed: of the order of the data and of dropout.
        checkpoint_every: steps between checkpoints. There is always one at the end.
        checkpoint_seconds: a checkpoint is also written when so many seconds have passed since the
            last one. At the beginning checkpoints come sooner: after 30 seconds, and then whenever
            the run has doubled its time. So a run that is killed loses at most half of its time,
            and at most `checkpoint_seconds`. None writes no checkpoint by the clock.
        seconds: stop after this much wall-clock time, over all resumed runs together. The schedule
            then follows the clock, and two runs agree no longer to the bit.
        schedule: "linear", "cosine", "constant" or "wsd", after the warm-up.
        device: "auto", "cpu", "cuda" or "mps"; "auto" takes an accelerator where there is one.
        max_grad_norm: gradients are scaled down to this norm.
        betas, eps: AdamW's; eps is BERT's own.
        log_every, evaluate_every: steps between rows of the log, and between evaluations; None has
            one at the end.
        group_by_length: rows of like length share a batch, which saves padding.
        packing: padding is not computed: the documents of a batch are one row of real tokens, and
            unable to see one another (lesson 16). For a model whose embedder is a `BertEncoder` or
            a `ModernEncoder`; it stays so after training. False leaves the encoder as it is.
        keep: checkpoints kept, the last ones.
        progress: show a progress bar. None shows a bar in a terminal, nothing in a notebook, and
            elsewhere, such as in a batch job, a line from time to time.
        optimizer: "adamw", or "muon": the matrices inside the network are Muon's, with the same
            weight decay, and AdamW has the rest; see `Optimizers`.
        inner_learning_rate: the highest value of Muon's; None is `learning_rate`.
        gradient_accumulation_steps: the rows of a step are computed in so many parts, one after
            another, for a batch that does not fit into the memory. The gradients of the parts are
            added, each weighted by its number of labels. The step is that of the whole batch,
            except for rounding and for what dropout draws.
        head_steps: in the first so many steps only the weights outside `model.embedder` are
            trained, so that a head with random weights does not spoil a trained encoder. A word
            embedding that the head shares belongs to the encoder.
        evaluate_at_start: also evaluate before the first step. The numbers are a row of step 0.

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
    log_every: int | None = 10
    evaluate_every: int | None = None
    group_by_length: bool = False
    packing: bool = False
    keep: int = 2
    progress: bool | None = None
    optimizer: str = "adamw"
    inner_learning_rate: float | None = None
    checkpoint_seconds: float | None = 300.0
    gradient_accumulation_steps: int = 1
    head_steps: int = 0
    evaluate_at_start: bool = False

    def __post_init__(self):
        for name in ("batch_size", "keep", "gradient_accumulation_steps"):
            setattr(self, name, whole_number(name, getattr(self, name)))
        for name in ("steps", "checkpoint_every", "evaluate_every", "log_every"):
            setattr(self, name, whole_number(name, getattr(self, name), none=True))
        for name in (
            "learning_rate", "max_grad_norm", "eps", "seconds", "inner_learning_rate",
            "checkpoint_seconds",
        ):  # fmt: skip
            setattr(self, name, number(name, getattr(self, name), above=0, none=True))
        for name in ("warmup", "weight_decay"):
            setattr(self, name, number(name, getattr(self, name), least=0))
        self.seed = whole_number("seed", self.seed, least=0, most=2**32 - 1)
        self.head_steps = whole_number("head_steps", self.head_steps, least=0)
        flag("evaluate_at_start", self.evaluate_at_start)
        self.betas = tuple(float(beta) for beta in self.betas)  # AdamW looks at them
        if len(self.betas) != 2:
            raise refused("betas", self.betas, "a pair of numbers")
        choice("schedule", self.schedule, SCHEDULES)
        choice("precision", self.precision, ("auto", "fp32", "bf16"))
        choice("optimizer", self.optimizer, ("adamw", "muon"))
        if self.inner_learning_rate and self.optimizer != "muon":
            raise ValueError("inner_learning_rate is Muon's; set optimizer='muon'")
        if self.steps is None and (self.seconds is None or self.warmup >= 1):
            raise ValueError("without steps, give seconds, and warmup as a share below 1")

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


# ------------------------------------------------------------------------------------ training


def train(model, dataset, collator, config, *, out=None, resume=False, evaluate=None, callbacks=()):
    """Trains a model in place.

    A loss or gradient that is not finite ends the run. On a CPU each step is looked at before it is
    applied. An accelerator would have to be waited for: there it is when a row, an evaluation or a
    checkpoint is due, so that no checkpoint holds NaN, but the model in memory may.

    Args:
        model: called with a batch as keywords, it returns a mapping with `loss`, a mean over the
            labels that are not -100, weighted if the batch has `weights` of its rows (B,): a
            `MaskedLanguageModel` or, without weights, a transformers model. Of a batch
            without `labels` the loss must be a mean over all pairs of neighbours, as a
            `LanguageModel`'s is. Sparse gradients are applied by SparseAdam, if their modules say
            `sparse=True` (see `Optimizers`).
        dataset: a sequence of examples; one of `datasets` on disk may exceed the memory. Its
            `set_epoch` is called if it has one, and so is its `fingerprint`, a dictionary by which
            a resumed run knows its data.
        collator: turns a list of examples into a dictionary of tensors, such as `MaskingCollator`.
            Its `state_dict`, `load_state_dict` and `fingerprint` are called if it has them.
        config: a `TrainingConfig`.
        out: folder for `log.jsonl` and `checkpoints/`; None writes nothing. No other program may
            write there at the same time. If a run ended before its first checkpoint, its log is
            renamed `log.1.jsonl` (or the next free number), with a warning.
        resume: go on from the last checkpoint in `out`, or from the start if there is none yet. On
            a CPU, with a budget in steps, the final weights are to the bit those of an
            uninterrupted run. The run goes on in the precision in which it began.
        evaluate: called as `evaluate(model)` every `evaluate_every` steps and at the end; the
            numbers it returns by name go into the log. `HeldOut` is one.
        callbacks: called as `callback(model, step, row)` after each step; row is None where nothing
            was logged. With `evaluate_at_start` they are also called with step 0 and its row.

    Returns:
        A `History`.

    Raises:
        TrainingStopped: a loss or gradient norm that is NaN or infinite; it names the step.
        ValueError: an empty dataset, one without a label in 100 steps, a model that returns no
            loss, `packing` or `head_steps` for a model that they do not fit, checkpoints that are
            damaged or of another run.
        TypeError: an evaluation whose numbers are named as what each row has already.
        FileExistsError: `out` holds checkpoints and `resume` is False.
        BlockingIOError: another program writes to `out`.
        OSError: a checkpoint could not be written; those before it are intact.
    """
    device, rank, processes = _place(config)
    order = Order(dataset, config.batch_size, config.seed, grouped=config.group_by_length)
    with nullcontext() if out is None or rank else only_writer(path_name("out", out)):
        # What the run is made of. Each process has a dropout of its own.
        seed = (config.seed + rank) % 2**32
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        model.to(device)
        if config.packing:
            encoder = getattr(model, "embedder", None)
            if not hasattr(encoder, "unpadded"):
                raise ValueError(
                    f"packing=True needs a BertEncoder or ModernEncoder in {type(model)}"
                )
            encoder.unpadded = True
        optimizers = Optimizers(model, config, device)
        inside = _encoder_weights(model, optimizers.weights) if config.head_steps else []
        if optimizers.sparse and processes > 1:
            raise ValueError("the model has sparse gradients; only one process can train it")
        history, random_states = History(), RandomStates(device, rank)
        parts = {"optimizer": optimizers, "order": order, "history": history}
        parts |= {"collator": collator} if hasattr(collator, "state_dict") else {}
        parts["random"] = random_states  # the last: what the others do may draw
        store = log = None
        if out is not None:
            settings = {name: value for name, value in vars(config).items() if name not in FREE}
            run = fingerprint(model, dataset, collator, settings)
            store = Checkpoints(Path(out) / "checkpoints", config.keep)
            if store.last() and not resume:
                raise FileExistsError(f"{out} holds checkpoints; pass resume=True, or another out")
            if store.last():
                store.restore(model, parts, run, ADDED)
            log = _log(Path(out), history) if rank == 0 else None
        if rank == 0:
            _warn_of_a_jump(history, config)
            _warn_of_rounding(optimizers, config.learning_rate)
        history.budget = {"steps": config.steps, "seconds": config.seconds}
        if (
            not history.precision
        ):  # a run keeps its first precision, and all processes have the same
            began = "" if rank else _precision(config.precision, device, history.step)
            history.precision = gathered(began)[0]
        prepared = DistributedDataParallel(model) if processes > 1 else model
        model.train()
        # What asks is left on the CPU where the model can take it from there, and nobody waits.
        staying = getattr(model, "cpu_inputs", ())
        bf16 = history.precision == "bf16"
        hidden = None if config.progress is None else not config.progress
        bar = tqdm(total=config.steps, initial=history.step, disable=True if rank else hidden)
        # In IPython, and so in each notebook, the name __IPYTHON__ exists.
        unseen = config.progress is None and bar.disable and not hasattr(builtins, "__IPYTHON__")
        progress = Progress(history, config.steps, config.seconds) if unseen and not rank else None

        def due(every):
            return every is not None and history.step % every == 0

        def due_by_the_clock():
            if config.checkpoint_seconds is None or (processes > 1 and not due(AGREE_EVERY)):
                return False
            apart = min(config.checkpoint_seconds, max(FIRST_CHECKPOINT, kept - begin))
            return gathered(time.perf_counter() - kept >= apart)[0]

        def evaluated():
            states = random_states.here()  # what it draws changes nothing that follows
            with modes_kept(model):
                numbers = evaluate(model)
            random_states.put(states)
            return {name: float(value) for name, value in numbers.items()}

        if evaluate and config.evaluate_at_start and history.step == 0:
            row = {"step": 0, "epoch": order.epoch, "tokens": 0, "seconds": 0.0}
            row = dict(**row, **evaluated())
            history.rows.append(row)
            if log:
                log.write(row)
            for callback in callbacks:
                callback(model, 0, row)

        seconds_before, tokens_before = history.seconds, history.tokens
        begin = kept = time.perf_counter()
        while not config.over(history.step, history.seconds):
            # 1) A batch, masked anew. Its rows are dealt out to the processes, and to the turns in
            #    which each process computes its own.
            batch = collator(order.next())
            _refuse_weights_unread(batch, model)
            turns = -(-len(batch["input_ids"]) // processes)  # no more than there are rows
            turns = min(turns, config.gradient_accumulation_steps)
            still = inside if history.step < config.head_steps else []

            # 2) The loss over all processes and turns, and its gradient. After the last turn
            #    DistributedDataParallel averages the gradients; if some weights stand still,
            #    `optimizers.average` does it. Over no labels the mean of a transformers model is
            #    NaN; it counts 0 times.
            loss = 0.0
            for turn in range(turns):
                place = turn * processes + rank
                own, weight, tokens, targets = own_share(
                    batch, device, place, turns * processes, staying
                )
                apart = processes > 1 and (turn < turns - 1 or still)
                with without_gradient(still), prepared.no_sync() if apart else nullcontext():
                    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                        part = _loss(prepared(**own), model, own)
                    part = (part * (weight / turns)).where(weight > 0, 0.0)
                    part.backward()
                loss = loss + part.detach()
            if processes > 1:
                distributed.all_reduce(loss)
                loss = loss / processes
                if still:
                    optimizers.average(processes)

            # 3) The gradient clipped, the step counted, and applied at its rate.
            norm = optimizers.clip(config.max_grad_norm)
            rate = history.rate = config.learning_rate_at(history.step, history.seconds)
            history.add(loss, norm, tokens, targets)
            if can_look(loss):
                history.look()
            optimizers.step(rate)
            optimizers.zero_grad()

            # 4) A look at the numbers comes before the clock, as it waits for the device.
            keeping = store and (due(config.checkpoint_every) or due_by_the_clock())
            if keeping or due(config.log_every) or due(config.evaluate_every):
                history.look()
            seconds = seconds_before + time.perf_counter() - begin
            # Where the clock is the budget, all must stop at the same step.
            history.seconds = gathered(seconds)[0] if config.seconds else seconds
            over = config.over(history.step, history.seconds)
            if over:
                history.look(last=True)

            # 5) Written down.
            row = None
            evaluating = evaluate and (over or due(config.evaluate_every))
            if over or due(config.log_every) or evaluating:
                speed = (history.tokens - tokens_before) / (history.seconds - seconds_before)
                loss = history.mean_loss()
                row = {
                    "step": history.step, "epoch": order.epoch, "loss": loss,
                    "learning_rate": rate, "gradient_norm": history.norm, "tokens": history.tokens,
                    "seconds": round(history.seconds, 3), "tokens_per_second": round(speed, 1),
                }  # fmt: skip
                if math.isnan(loss):
                    del row["loss"]  # there was nothing to predict
                if evaluating:
                    row = dict(**row, **evaluated())  # Python refuses a name that the row has
                history.rows.append(row)
                bar.set_postfix(loss=f"{loss:.3f}", tokens_per_second=f"{speed:.0f}")
                if log:
                    log.write(row)
            bar.update()
            if progress:
                progress.tell()
            for callback in callbacks:
                callback(model, history.step, row)

            # 6) Kept. Every process gives its part of the state, and the first one writes it.
            if keeping or (store and over):
                state = {name: part.state_dict() for name, part in parts.items()}
                if rank == 0:
                    store.save(history.step, model, state | {"run": run})
                gathered(None)  # nobody goes on before it is written
                kept = time.perf_counter()
        bar.close()
    return history


def _place(config):
    """The device, this process's number, and how many there are, as `torchrun` tells them."""
    device = torch.device("cpu") if config.device == "cpu" else device_taken()
    if config.device not in ("auto", device.type):
        raise ValueError(f"device={config.device!r}, but this machine has {device.type!r}")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not distributed.is_initialized():
        distributed.init_process_group()
    if not distributed.is_initialized():
        return device, 0, 1
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    if device.type != "cpu":
        device = torch.device(device.type, int(os.environ.get("LOCAL_RANK", rank)))
        torch.accelerator.set_device_index(device.index)
    return device, rank, processes


def _precision(wanted, device, step):
    """The precision of a run whose state names none; `step` is how many steps it has made."""
    if wanted != "auto":
        return wanted
    if step:  # begun by an earlier version, which took bf16 wherever the hardware has it
        return "bf16" if native_bf16(device) else "fp32"
    return precision_taken(device)[0]


def _encoder_weights(model, trained):
    """The trained weights of `model.embedder`. The head steps need some outside it as well."""
    if not isinstance(getattr(model, "embedder", None), torch.nn.Module):
        told = f"head_steps needs a model with an `embedder`, which {type(model).__name__} has not"
        raise ValueError(f"{told}; for a model of transformers take from_hf(model)")
    inside = set(model.embedder.parameters())
    encoder = [weight for weight in trained.values() if weight in inside]
    if len(encoder) == len(trained):
        raise ValueError("head_steps is given, but no weight outside model.embedder is trained")
    return encoder


def _log(out, history):
    """The log of a run. The log of a run that left no checkpoint is kept under another name."""
    path = out / "log.jsonl"
    if history.step == 0 and (old := keep_old_log(path)):
        told = f"{out} holds a log and no checkpoint, so the run begins anew"
        warnings.warn(f"{told}; the old log is now {old.name}", stacklevel=3)
    return Log(path, history.rows)


def _warn_of_a_jump(history, config):
    """Warns if a run that goes on with another budget would get quite another learning rate."""
    if not history.budget or config.over(history.step, history.seconds):
        return
    planned = replace(config, **history.budget).learning_rate_at(history.step, history.seconds)
    now = config.learning_rate_at(history.step, history.seconds)
    # Between the last rate and the one that was planned next there is no jump.
    low, high = sorted((history.rate, planned))
    if not low - 0.01 * config.learning_rate <= now <= high + 0.01 * config.learning_rate:
        remedy = "schedule='wsd' can be lengthened before its fall without a jump"
        if config.schedule == "wsd":
            remedy = "go on from a checkpoint before the fall of the rate"
        warnings.warn(
            f"with this budget the learning rate jumps from {history.rate:.2g} at step "
            f"{history.step:,} to {now:.2g} at the next one; {remedy}", stacklevel=3
        )  # fmt: skip


def _warn_of_rounding(optimizers, rate):
    """Warns of weights of 16 bits, which steps much smaller than themselves do not change."""
    share = optimizers.rounded_away(rate)
    if share > 0.01:
        told = f"the weights have 16 bits, and at learning_rate={rate:g} a step is rounded away"
        told += f" in {share:.0%} of their numbers"
        warnings.warn(
            f"{told}; train model.float() instead, with precision='bf16' if you like", stacklevel=3
        )


def _loss(output, model, batch):
    """The loss of an output. Without labels a model of transformers returns no loss."""
    loss = output.get("loss")
    if loss is None:
        told = f"{type(model).__name__} returned no loss for a batch of {', '.join(batch)}"
        raise ValueError(f"{told}; let the collator add what the model needs, such as labels")
    return loss


@contextmanager
def without_gradient(weights):
    """Lets weights stand still: no gradient is computed for them."""
    for weight in weights:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def _refuse_weights_unread(batch, model):
    """transformers' models take any keyword and forget those unknown, so a model must name it."""
    if "weights" in batch and "weights" not in signature(model.forward).parameters:
        told = f"the batches have weights, which {type(model).__name__} does not name and would"
        raise ValueError(f"{told} leave out; train a MaskedLanguageModel, such as from_hf(model)")


# ------------------------------------------------------------------------------------ held out
#
# Looks at a model in the midst of its training, which leave no trace.


@contextmanager
def modes_kept(model):
    """Puts each module back into training or evaluation mode, whichever it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class HeldOut:
    """An evaluation on a fixed masked set: masked once, here, and the same for every model.

    Args:
        examples: held-out examples.
        collator: masks them; give it a seed of its own.
        batch_size: rows in a batch. Rows of like length share one.
        name: of the number it returns.

    Call it with a model to get `{name: nats per masked token}`, a mean over all masked tokens.

    Raises:
        ValueError: no examples, or none of their tokens masked.
    """

    def __init__(self, examples, collator, *, batch_size=64, name="held_out_loss"):
        size, self.name = whole_number("batch_size", batch_size), name
        examples = sorted(examples, key=example_length)
        starts = range(0, len(examples), size)
        self.batches = [collator(examples[start : start + size]) for start in starts]
        self.count = sum(count_targets(batch).item() for batch in self.batches)
        if not self.count:
            raise ValueError(f"{len(examples)} held-out examples with 0 masked tokens; give more")

    @torch.no_grad()
    def __call__(self, model):
        device, total = next(model.parameters()).device, 0.0
        with modes_kept(model):
            model.eval()
            for batch in self.batches:
                targets = count_targets(batch).item()
                if targets:  # without any, the mean of a transformers model is NaN
                    batch = {name: rows.to(device) for name, rows in batch.items()}
                    total += model(**batch)["loss"].item() * targets
        return {self.name: total / self.count}


class ShowPredictions:
    """A callback that prints the likeliest tokens for the blanks of chosen sentences.

    Args:
        tokenizer: ours or transformers'.
        sentences: texts with one `[MASK]` or more.
        every: steps between prints.
        top_k: tokens shown for a blank.

    Raises:
        ValueError: a sentence without `[MASK]`.
    """

    def __init__(self, tokenizer, sentences, *, every=100, top_k=3):
        self.every, self.top_k = whole_number("every", every), whole_number("top_k", top_k)
        self.tokenizer = tokenizer
        self.rows = [(text, torch.tensor([tokenizer.encode(text)])) for text in sentences]
        for text, ids in self.rows:  # (1, T)
            if not (ids == tokenizer.mask_token_id).any():
                written = getattr(tokenizer, "mask_token", "[MASK]")
                raise ValueError(f"{text!r} has no {written}, so there is nothing to predict")

    @torch.no_grad()
    def __call__(self, model, step, row):
        if step % self.every:
            return
        device = next(model.parameters()).device
        with modes_kept(model):
            model.eval()
            for text, ids in self.rows:
                logits = model(input_ids=ids.to(device))["logits"][0]  # (T, V)
                blanks = logits[ids[0] == self.tokenizer.mask_token_id]  # (blanks, V)
                best = blanks.topk(min(self.top_k, blanks.shape[1])).indices.tolist()  # best first
                words = [" ".join(self.tokenizer.decode([i]) for i in one) for one in best]
                tqdm.write(f"step {step:>6}  {text}  ->  {' | '.join(words)}")
