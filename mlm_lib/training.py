"""The training loop: a budget, a schedule, steps, and a log of them. Built in lesson 08.

`train` reads from top to bottom as a step does: batch, loss, gradient, clipped, applied, counted,
written down, kept. Devices and processes are left to Hugging Face `accelerate`, precision to
torch's autocast, the order of the data to `batches.py`, surviving a crash to `checkpoints.py`.
"""

import math
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import broadcast, broadcast_object_list, parse_flag_from_env, reduce, set_seed
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from mlm_lib.checks import (
    can_look,
    choice,
    flag,
    function,
    number,
    path_name,
    refused,
    shown,
    whole_number,
)
from mlm_lib.engine.batches import Order, count_targets, example_length, own_share
from mlm_lib.engine.checkpoints import (
    Checkpoints,
    RandomStates,
    fingerprint,
    refuse_another_run,
    restore,
)
from mlm_lib.engine.files import only_writer
from mlm_lib.engine.log import PATIENCE, ROW, History, Log, Meter
from mlm_lib.optimizers import Optimizers

# ------------------------------------------------------------------------------------ schedule
#
# How to train: every setting of a run, its budget, and the learning rate along it. Lesson 08.


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


# ------------------------------------------------------------------------------------ held out
#
# Looks at a model in the midst of its training that leave no trace. Built in lesson 08.
#
# `HeldOut` measures it on rows that it is not trained on, `ShowPredictions` fills chosen blanks.


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
        size, collator = whole_number("batch_size", batch_size), function("collator", collator)
        if not hasattr(examples, "__iter__"):
            raise refused("examples", examples, "a list of examples")
        examples = sorted(examples, key=example_length)
        self.name = path_name("name", name)
        starts = range(0, len(examples), size)
        self.batches = [collator(examples[start : start + size]) for start in starts]
        self.count = sum(count_targets(batch).item() for batch in self.batches)
        if not self.count:
            raise ValueError(
                f"{len(examples)} held-out examples with 0 masked tokens; give more of them"
            )

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
        if isinstance(sentences, str) or not all(isinstance(text, str) for text in sentences):
            raise refused("sentences", sentences, "a list of texts")
        self.tokenizer = tokenizer
        self.rows = [(text, torch.tensor([tokenizer.encode(text)])) for text in sentences]
        for text, ids in self.rows:  # (1, T)
            if not (ids == tokenizer.mask_token_id).any():
                raise ValueError(f"{text!r} has no [MASK], so there is nothing to predict")

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
                words = " | ".join(self._words(blank) for blank in blanks)
                tqdm.write(f"step {step:>6}  {text}  ->  {words}")

    def _words(self, blank):
        """The likeliest tokens of one blank's logits (V,), the best first."""
        best = blank.topk(min(self.top_k, len(blank))).indices.tolist()
        return " ".join(self.tokenizer.decode([index]) for index in best)


# Some of these names are only passed on: they are imported from here elsewhere.

# Settings that may change between a run and its continuation. A budget may grow.
FREE = (
    *("steps", "seconds", "device", "checkpoint_every", "log_every", "evaluate_every"),
    *("keep", "progress"),
)


def train(model, dataset, collator, config, *, out=None, resume=False, evaluate=None, callbacks=()):
    """Trains a model in place.

    A step whose loss or gradient is not finite is not applied, nor is any after it. That is decided
    on the device. The program itself looks at each step's numbers where that costs nothing; on an
    accelerator, which it would make wait, when a row, an evaluation or a checkpoint is due, and
    after 100 steps at the latest.

    Args:
        model: called with a batch as keywords, it returns a mapping with `loss`, a mean over the
            labels that are not -100, weighted if the batch has `weights` of its rows (B,): a
            `MaskedLanguageModel` or, without weights, a transformers model. Of a batch
            without `labels` the loss must be a mean over all pairs of neighbours, as a
            `LanguageModel`'s is. Sparse gradients are applied by SparseAdam, if their modules say
            `sparse=True` (see `Optimizers`). With these, as with Muon, an accelerator is waited
            for at each step.
        dataset: a sequence of examples, or an iterable that can be read again and again, such as
            the streaming datasets of `datasets`; its `set_epoch` is called if it has one, and so is
            its `fingerprint`, by which a resumed run knows its data.
        collator: turns a list of examples into a dictionary of tensors, such as `MaskingCollator`.
            Its `state_dict`, `load_state_dict` and `fingerprint` are called if it has them.
        config: a `TrainingConfig`.
        out: folder for `log.jsonl` and `checkpoints/`; None writes nothing. No other program may
            write there at the same time.
        resume: go on from the last intact checkpoint in `out`, or from the start if there is none
            yet. On a CPU, with a budget in steps, the final weights are to the bit those of an
            uninterrupted run.
        evaluate: called as `evaluate(model)` every `evaluate_every` steps and at the end; the
            numbers it returns go into the log. `HeldOut` is one.
        callbacks: called as `callback(model, step, row)` after each step; row is None where nothing
            was logged.

    Returns:
        A `History`.

    Raises:
        TrainingStopped: a loss or gradient norm that is NaN or infinite; it names the step and the
            last checkpoint.
        ValueError: an empty dataset, one without a label in 100 steps, a model without a loss or
            with sparse gradients that no module foretold, checkpoints of another run.
        FileExistsError: `out` holds checkpoints and `resume` is False.
        BlockingIOError: another program writes to `out`.
        OSError: a checkpoint could not be written; those before it are intact.
    """
    callbacks = _doors(model, collator, config, out, resume, evaluate, callbacks)
    machine = _machine(config)
    device, main, processes = machine.device, machine.is_main_process, machine.num_processes
    order = Order(dataset, config.batch_size, config.seed, grouped=config.group_by_length)
    with ExitStack() as at_the_end:
        store = found = log = None
        if out is not None:
            at_the_end.enter_context(_one_writer(out, machine))
            settings = {name: value for name, value in vars(config).items() if name not in FREE}
            run = fingerprint(model, dataset, collator, settings)
            store = Checkpoints(Path(out) / "checkpoints", config.keep)
            found = store.open(resume)
            if found:
                refuse_another_run(found[2]["fingerprint"], run, store.path(found[0]))
        # Each process has a dropout of its own.
        set_seed((config.seed + machine.process_index) % 2**32)
        model.to(device)
        optimizers = Optimizers(model, config, device)
        if optimizers.sparse and processes > 1:
            raise ValueError(
                f"{min(optimizers.sparse)} has sparse gradients, which several processes cannot "
                f"average; use one process instead of {processes}"
            )
        meter, history = Meter(device), History()
        random_states = RandomStates(device, machine.process_index)
        parts = {"optimizer": optimizers, "order": order, "history": history, "meter": meter}
        parts |= {"collator": collator} if hasattr(collator, "state_dict") else {}
        parts["random"] = random_states  # the last: what the others do may draw
        if found:
            restore(found, model, parts)
        if out is not None and main:
            log = Log(Path(out) / "log.jsonl", history.rows)
        prepared = DistributedDataParallel(model) if processes > 1 else model
        model.train()
        bf16 = config.precision == "bf16" or (config.precision == "auto" and native_bf16(device))
        free = can_look(torch.empty(0, device=device))
        hidden = None if config.progress is None else not config.progress
        bar = tqdm(total=config.steps, initial=history.step, disable=hidden)
        at_the_end.callback(bar.close)
        seconds_before, tokens_before, begin = history.seconds, history.tokens, time.perf_counter()

        while not config.over(history.step, history.seconds):
            # 1) A batch, masked anew, and what this process takes of it.
            batch = _batch(collator(order.next()), model)
            batch, weight, tokens, targets = own_share(
                batch, device, machine.process_index, processes
            )

            # 2) The loss over all processes, and its gradient, which they average by themselves.
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = _loss(prepared(**batch))
            (loss * weight).backward()
            loss = loss.detach() * weight
            loss = reduce(loss, "sum") / processes if processes > 1 else loss

            # 3) The gradient clipped and applied at this step's rate, unless it is not finite: told
            #    by `skip`, the optimizer changes nothing, and nobody waits for the device.
            norm = optimizers.clip(config.max_grad_norm)
            skip = meter.add(loss, norm, tokens, targets)
            if not optimizers.can_skip:  # what cannot be told must be seen
                meter.look(history.step + 1, store)
            rate = config.learning_rate_at(history.step, history.seconds)
            optimizers.step(rate, skip)
            optimizers.zero_grad()

            # 4) Counted. A look at the numbers comes before the clock, as it waits for the device.
            history.step += 1
            logging, evaluating, saving = (
                every is not None and history.step % every == 0
                for every in (config.log_every, config.evaluate_every, config.checkpoint_every)
            )
            if free or logging or evaluating or saving or len(meter.steps) >= PATIENCE:
                meter.look(history.step, store)
            history.seconds = _agreed(seconds_before + time.perf_counter() - begin, config, machine)
            over = config.over(history.step, history.seconds)
            if over:
                meter.look(history.step, store, last=True)
            history.tokens = meter.tokens

            # 5) Written down.
            row = None
            if logging or over or (evaluating and evaluate):
                speed = (history.tokens - tokens_before) / (history.seconds - seconds_before)
                row = {
                    "step": history.step,
                    "epoch": order.epoch,
                    "loss": meter.mean_loss(),
                    "learning_rate": rate,
                    "gradient_norm": meter.norm,
                    "tokens": history.tokens,
                    "seconds": round(history.seconds, 3),
                    "tokens_per_second": round(speed, 1),
                }
                if evaluate and (evaluating or over):
                    with random_states.kept(), modes_kept(model):
                        row |= _evaluated(evaluate(model), row)
                history.rows.append(row)
                bar.set_postfix(loss=f"{row['loss']:.3f}", tokens_per_second=f"{speed:.0f}")
                if log:
                    log.write(row)
            bar.update()
            for callback in callbacks:
                callback(model, history.step, row)

            # 6) Kept. Every process gives its part of the state, and the first one writes it.
            if store and (saving or over):
                state = {name: part.state_dict() for name, part in parts.items()}
                if main:
                    store.save(history.step, model, state | {"fingerprint": run})
                machine.wait_for_everyone()
    return history


def _doors(model, collator, config, out, resume, evaluate, callbacks):
    """Refuses arguments of `train` that are no such thing; the callbacks as a list."""
    if not isinstance(model, torch.nn.Module):
        raise refused("model", model, "a torch module")
    if not isinstance(config, TrainingConfig):
        raise refused("config", config, "a TrainingConfig")
    function("collator", collator)
    function("evaluate", evaluate, none=True)
    if getattr(evaluate, "name", None) in ROW:  # found now, and not at the end of a long run
        raise refused("evaluate.name", evaluate.name, f"a name other than {', '.join(ROW)}")
    if out is not None:
        path_name("out", out)
    flag("resume", resume)
    if not isinstance(callbacks, (list, tuple)):
        raise refused("callbacks", callbacks, "a list of functions")
    return [function("callbacks", callback) for callback in callbacks]


def native_bf16(device="cpu"):
    """Whether the hardware multiplies bfloat16 itself; elsewhere it is emulated, and slower."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16") or able.get("bf16"))


def _machine(config):
    """The device, and this process among the others, as accelerate sees them."""
    if not torch.distributed.is_initialized():
        # It remembers the first device of the program and refuses others. Each run chooses anew.
        PartialState._reset_state()
    # Where it may look for an accelerator and finds none, it takes each of several processes for
    # the only one. So it is told.
    none_here = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    machine = PartialState(cpu=config.device == "cpu" or none_here)
    if config.device not in ("auto", machine.device.type):
        raise ValueError(
            f"device={config.device!r}, but accelerate finds {machine.device.type!r} here; "
            "use device='auto'"
        )
    started = os.environ.get("WORLD_SIZE", "1")
    if started != str(machine.num_processes):
        raise ValueError(
            f"WORLD_SIZE={started}, but accelerate sees processes={machine.num_processes}, which "
            "would each train on everything; start them by torchrun, or with device='cpu'"
        )
    if machine.num_processes > config.batch_size:
        raise ValueError(
            f"batch_size={config.batch_size} is less than the {machine.num_processes} processes; "
            "raise it"
        )
    return machine


@contextmanager
def _one_writer(out, machine):
    """Holds the folder by the first process. If it cannot be had, all of them say so."""
    with ExitStack() as held:
        refusal = [None]
        if machine.is_main_process:
            try:
                held.enter_context(only_writer(out))
            except OSError as error:
                refusal = [error]
        broadcast_object_list(refusal)
        if refusal[0] is not None:
            raise refusal[0]
        yield


def _batch(batch, model):
    if not isinstance(batch, Mapping):
        raise ValueError(f"the collator returned {shown(batch)}; a dictionary of tensors is needed")
    if "weights" in batch:  # transformers' models take any keyword, and forget those unknown
        reads = signature(getattr(model, "_orig_mod", model).forward).parameters
        if "labels" in reads and "weights" not in reads:
            raise ValueError(
                f"the batches have weights, which a {type(model).__name__} leaves out of its loss; "
                "train a MaskedLanguageModel, such as from_hf(model)"
            )
    return batch


def _loss(output):
    loss = output["loss"] if "loss" in output else None
    if loss is None:
        raise ValueError(
            f"the model returned no loss, only {', '.join(output)}; "
            "it must return one when it is given labels"
        )
    return loss


def _agreed(seconds, config, machine):
    """The first process's clock where it is the budget: all must stop at the same step."""
    if machine.num_processes == 1 or config.seconds is None:
        return seconds
    return broadcast(torch.tensor(seconds, dtype=torch.float64, device=machine.device)).item()


def _evaluated(numbers, row):
    """What an evaluation returned, as plain numbers under names that the row has not yet."""
    try:
        numbers = {name: float(value) for name, value in numbers.items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"evaluate returned {shown(numbers)}; a dictionary of numbers by name is needed"
        ) from None
    if taken := numbers.keys() & row.keys():
        raise ValueError(
            f"evaluate returned {min(taken)!r}, which each row has already; give it another name"
        )
    return numbers
