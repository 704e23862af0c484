"""The training loop: schedule, precision, log, checkpoints, and resuming to the bit. Built in lesson 08.

`train` reads from top to bottom as a step does: batch, loss, gradient, clipped, applied, written down. Device, mixed
precision and processes are left to Hugging Face `accelerate`.
"""

import hashlib
import io
import json
import math
import os
import random
import re
import shutil
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast, gather_object, set_seed
from safetensors.torch import load, save
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from mlm_lib.losses import IGNORE

SCHEDULES = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
}
POOL = 50  # batches whose rows are sorted together when rows of like length share a batch, as in transformers


class TrainingStopped(RuntimeError):
    """Training met a loss or gradient that is not finite. The weights are those before that step."""


@dataclass
class TrainingConfig:
    """How to train.

    Args:
        steps: optimizer steps; None where `seconds` alone is the budget.
        batch_size: rows in a step, over all processes together.
        learning_rate: its highest value.
        warmup: steps of linear rise from 0; below 1 it is a share of the budget.
        weight_decay: AdamW's (Loshchilov & Hutter 2019), on matrices only: biases and layer norms are left alone.
        precision: "fp32", "bf16" (autocast; weights stay float32), or "auto": bf16 where the hardware has it natively.
        seed: of the order of the data and of dropout.
        checkpoint_every: steps between checkpoints; None keeps only the one at the end.
        seconds: stop after this much wall-clock time, over all resumed runs together. The schedule then follows the
            clock, and two runs agree no longer to the bit.
        schedule: "linear", "cosine" or "constant", after the warm-up.
        device: "auto", "cpu", or whatever `accelerate` finds ("cuda", "mps").
        max_grad_norm: gradients are scaled down to this norm.
        betas, eps: AdamW's; eps is BERT's own.
        log_every, evaluate_every: steps between rows of the log, and between evaluations (None: at the end).
        group_by_length: rows of like length share a batch, which saves padding.
        keep: checkpoints kept, the last ones.
        progress: show a progress bar; None shows it in a terminal only.

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

    def __post_init__(self):
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # a checkpoint holds plain numbers
                setattr(self, name, value.item())
        if self.steps is None and self.seconds is None:
            raise ValueError("steps and seconds are both None; one of them must end the training")
        for name in (
            "steps",
            "checkpoint_every",
            "evaluate_every",
            "batch_size",
            "log_every",
            "keep",
        ):
            self._check(name, int, "a whole number of at least 1", lambda value: value >= 1)
        self._check(
            "seed", int, "a whole number from 0 to 2**32 - 1", lambda value: 0 <= value < 2**32
        )
        for name in ("seconds", "learning_rate", "max_grad_norm", "eps"):
            self._check(name, (int, float), "a number above 0", lambda value: 0 < value < math.inf)
        for name in ("warmup", "weight_decay"):
            self._check(
                name, (int, float), "a number of at least 0", lambda value: 0 <= value < math.inf
            )
        self._check(
            "betas",
            (list, tuple),
            "two numbers in 0..1, 1 excluded",
            lambda value: len(value) == 2 and all(0 <= b < 1 for b in value),
        )
        self.betas = tuple(float(beta) for beta in self.betas)
        self._check("schedule", str, f"one of {', '.join(SCHEDULES)}", SCHEDULES.__contains__)
        self._check("precision", str, "auto, fp32 or bf16", ("auto", "fp32", "bf16").__contains__)
        self._check("device", str, "auto or the name of a device", bool)
        if self.warmup >= 1 and self.steps is None:
            raise ValueError(
                f"warmup={self.warmup} counts steps, but only seconds are given; write it as a share below 1"
            )

    def _check(self, name, kind, wanted, good):
        value = getattr(self, name)
        if value is None and name in ("steps", "seconds", "checkpoint_every", "evaluate_every"):
            return
        if isinstance(value, bool) or not isinstance(value, kind) or not good(value):
            raise ValueError(f"{name}={value!r}; {wanted} is needed")

    def learning_rate_at(self, step, seconds=0.0):
        """The learning rate of step 0, 1, …, `seconds` after the start."""
        shares = [step / self.steps] if self.steps else []
        done = max(shares + ([seconds / self.seconds] if self.seconds else []))
        warm = self.warmup if self.warmup < 1 else self.warmup / self.steps
        if done < warm:
            # In steps the first one already moves a little: a rate of 0 would waste it.
            rise = (
                done / warm
                if not self.steps
                else max(done / warm, (step + 1) / (warm * self.steps + 1))
            )
            return self.learning_rate * min(1.0, rise)
        return self.learning_rate * max(
            0.0, SCHEDULES[self.schedule](min(1.0, (done - warm) / max(1e-9, 1 - warm)))
        )


@dataclass
class History:
    """What a training run did.

    Attributes:
        rows: one dictionary for each logged step, as in `log.jsonl`: `step`, `epoch`, `loss` (nats, mean since the row
            before), `learning_rate`, `gradient_norm` (before clipping), `tokens` (real ones, so far), `seconds`,
            `tokens_per_second`, and what the evaluation returned.
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


def train(model, dataset, collator, config, *, out=None, resume=False, evaluate=None, callbacks=()):
    """Trains a model in place.

    Args:
        model: called with a batch as keywords, it returns a mapping with `loss`, a mean over the labels that are not
            -100: a `MaskedLanguageModel` or a transformers model. Of a batch without `labels` the loss must be a mean
            over all pairs of neighbours, as a `LanguageModel`'s is.
        dataset: a sequence of examples, or an iterable that can be read again and again, such as the streaming
            datasets of `datasets`; its `set_epoch` is called if it has one.
        collator: turns a list of examples into a dictionary of tensors, such as `MaskingCollator`.
        config: a `TrainingConfig`.
        out: folder for `log.jsonl` and `checkpoints/`; None writes nothing.
        resume: go on from the last intact checkpoint in `out`, or from the start if there is none yet. On a CPU, with
            a budget in steps, the final weights are to the bit those of an uninterrupted run.
        evaluate: called as `evaluate(model)` every `evaluate_every` steps and at the end; the numbers it returns go
            into the log. `HeldOut` is one.
        callbacks: called as `callback(model, step, row)` after each step; row is None where nothing was logged.

    Returns:
        A `History`.

    Raises:
        TrainingStopped: a loss or gradient norm that is NaN or infinite; it names the step and the last checkpoint.
        ValueError: an empty dataset, a model without a loss or with sparse gradients, checkpoints of another run.
        FileExistsError: `out` holds checkpoints and `resume` is False.
        OSError: a checkpoint could not be written; those before it are intact.
    """
    accelerator = _accelerator(config)
    main, device = accelerator.is_main_process, accelerator.device
    order = _Order(dataset, config)
    store = Checkpoints(Path(out) / "checkpoints", config.keep) if out is not None else None
    fingerprint = _fingerprint(order, collator, config)
    found = store.open(resume, fingerprint) if store else None
    set_seed(config.seed, device_specific=True)
    model.to(device)
    optimizer = _adamw(model, config, device)
    optimizer.zero_grad()
    history, mean = History(), _Mean()
    if found:
        _restore(found, model, optimizer, collator, order, history, mean, accelerator)
    log = _Log(Path(out) / "log.jsonl", history.rows) if out is not None and main else None
    prepared = DistributedDataParallel(model) if accelerator.num_processes > 1 else model
    model.train()
    seconds_before, begin, tokens_before = history.seconds, time.perf_counter(), history.tokens
    bar = tqdm(
        total=config.steps,
        initial=history.step,
        disable=None if config.progress is None else not config.progress,
    )
    try:
        while not _over(config, history):
            batch = collator(order.next())
            batch, share, tokens = _own_rows(batch, accelerator)
            rate = config.learning_rate_at(history.step, history.seconds)
            for group in optimizer.param_groups:
                group["lr"] = rate

            with accelerator.autocast():
                loss = _loss(prepared(**batch))
            accelerator.backward(loss * share)
            _refuse_sparse_gradients(model)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            value = _sum(loss.detach() * share, accelerator) / accelerator.num_processes
            if not (math.isfinite(value) and math.isfinite(norm.item())):
                raise TrainingStopped(_stopped(history.step + 1, value, norm.item(), store))
            optimizer.step()
            optimizer.zero_grad()

            history.step += 1
            history.tokens += tokens
            history.seconds = _same_for_all(
                seconds_before + time.perf_counter() - begin, accelerator
            )
            mean.add(value)
            over, row = _over(config, history), None
            evaluating = evaluate and (
                over or config.evaluate_every and history.step % config.evaluate_every == 0
            )
            if over or evaluating or history.step % config.log_every == 0:
                speed = (history.tokens - tokens_before) / (history.seconds - seconds_before)
                row = {
                    "step": history.step, "epoch": order.epoch, "loss": mean.take(), "learning_rate": rate,
                    "gradient_norm": norm.item(), "tokens": history.tokens, "seconds": round(history.seconds, 3),
                    "tokens_per_second": round(speed, 1),
                }  # fmt: skip
                if evaluating:
                    row |= _evaluated(evaluate, model, accelerator)
                history.rows.append(row)
                bar.set_postfix(loss=f"{row['loss']:.3f}", tokens_per_second=f"{speed:.0f}")
                if log:
                    log.write(row)
            bar.update()
            for callback in callbacks:
                callback(model, history.step, row)
            if store and (
                over or config.checkpoint_every and history.step % config.checkpoint_every == 0
            ):
                state = _state(fingerprint, optimizer, collator, order, history, mean, accelerator)
                if main:
                    store.save(history.step, model, state)
                accelerator.wait_for_everyone()
    finally:
        bar.close()
        AcceleratorState._reset_state()  # the next program of this process may choose another precision
    return history


class HeldOut:
    """An evaluation on a fixed masked set: masked once, here, and the same for every model that is asked.

    Args:
        examples: held-out examples.
        collator: masks them; give it a seed of its own.
        name: of the number it returns.

    Call it with a model to get `{name: nats per masked token}`, a mean over all masked tokens.

    Raises:
        ValueError: no examples, or none of their tokens masked.
    """

    def __init__(self, examples, collator, *, batch_size=64, name="held_out_loss"):
        examples = sorted(examples, key=_length)
        self.name = name
        self.batches = [
            collator(examples[i : i + batch_size]) for i in range(0, len(examples), batch_size)
        ]
        self.count = sum(_targets(batch) for batch in self.batches)
        if not self.count:
            raise ValueError(
                f"{len(examples)} held-out examples with {self.count} masked tokens; give more of them"
            )

    @torch.no_grad()
    def __call__(self, model):
        device, total = next(model.parameters()).device, 0.0
        with _modes_kept(model):
            model.eval()
            for batch in self.batches:
                targets = _targets(batch)
                if targets:  # without any, the mean of a transformers model is NaN
                    total += (
                        model(**{name: field.to(device) for name, field in batch.items()})[
                            "loss"
                        ].item()
                        * targets
                    )
        return {self.name: total / self.count}


class ShowPredictions:
    """A callback that prints, every so many steps, the likeliest tokens for the blanks of chosen sentences.

    Args:
        tokenizer: ours or transformers'.
        sentences: texts with one `[MASK]` or more.
        every: steps between prints.
        top_k: tokens shown for a blank.

    Raises:
        ValueError: a sentence without `[MASK]`.
    """

    def __init__(self, tokenizer, sentences, *, every=100, top_k=3):
        if every < 1 or top_k < 1:
            raise ValueError(f"every={every} and top_k={top_k}; both must be at least 1")
        self.tokenizer, self.every, self.top_k = tokenizer, every, top_k
        self.rows = [(text, torch.tensor([tokenizer.encode(text)])) for text in sentences]
        for text, ids in self.rows:
            if not (ids == tokenizer.mask_token_id).any():
                raise ValueError(f"{text!r} has no [MASK], so there is nothing to predict")

    @torch.no_grad()
    def __call__(self, model, step, row):
        if step % self.every:
            return
        device = next(model.parameters()).device
        with _modes_kept(model):
            model.eval()
            for text, ids in self.rows:
                logits = model(input_ids=ids.to(device))["logits"][0]  # (T, V)
                best = (
                    logits[ids[0] == self.tokenizer.mask_token_id].topk(self.top_k).indices.tolist()
                )
                words = " | ".join(
                    " ".join(self.tokenizer.decode([index]) for index in blank) for blank in best
                )
                tqdm.write(f"step {step:>6}  {text}  ->  {words}")


# ------------------------------------------------------------------------------------ the parts of a step


def native_bf16(device="cpu"):
    """Whether the hardware multiplies bfloat16 itself; elsewhere bf16 is emulated, and slower than float32."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if torch.device(device).type != "cpu":
        return False
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16") or able.get("bf16"))


def _accelerator(config):
    # accelerate remembers the first device and precision of the process, and refuses others. Each run may choose anew.
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    accelerator = Accelerator(cpu=config.device == "cpu", mixed_precision="no")
    if config.device not in ("auto", accelerator.device.type):
        raise ValueError(
            f"device={config.device!r}, but accelerate finds {accelerator.device.type!r} here; use device='auto'"
        )
    precision = config.precision
    if precision == "auto":
        precision = "bf16" if native_bf16(accelerator.device) else "fp32"
    if accelerator.num_processes > config.batch_size:
        raise ValueError(
            f"batch_size={config.batch_size} is less than the {accelerator.num_processes} processes; raise it"
        )
    if precision == "bf16":
        AcceleratorState._reset_state()
        accelerator = Accelerator(cpu=config.device == "cpu", mixed_precision="bf16")
    return accelerator


def _adamw(model, config, device):
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=fused
    )


def _own_rows(batch, accelerator):
    """This process's rows, the factor that makes the processes' losses one mean over all labels, and the real tokens.

    Every process collates the whole batch, which is cheap, so that masks do not depend on how many there are.
    """
    real = _real(batch)
    tokens = batch["input_ids"].numel() if real is None else int(real.sum())
    processes, rank = accelerator.num_processes, accelerator.process_index
    targets = _targets(batch)
    if processes > 1:
        batch = {
            name: rows[rank::processes] if rank < len(rows) else rows[:0]
            for name, rows in batch.items()
        }
    own = _targets(batch)
    share = processes * own / max(1, targets)  # the processes' gradients are averaged
    if (
        not own
    ):  # a mean over nothing is NaN in transformers; a label whose loss counts 0 times is not
        batch = {
            name: rows.new_ones(1, *rows.shape[1:]) if not len(rows) else rows
            for name, rows in batch.items()
        }
        if "labels" in batch:
            batch["labels"] = batch["labels"].index_fill(1, torch.tensor([0]), 0)
    return (
        {name: rows.to(accelerator.device, non_blocking=True) for name, rows in batch.items()},
        share,
        tokens,
    )


def _targets(batch):
    """Over how many predictions the loss of a batch is a mean: its labels or, without any, its pairs of neighbours."""
    if "labels" in batch:
        return (batch["labels"] != IGNORE).sum().item()
    real = _real(batch)
    if real is None:
        return batch["input_ids"][:, 1:].numel()
    return (real[:, 1:].bool() & real[:, :-1].bool()).sum().item()


def _real(batch):
    """The mask of real tokens, under the name that the batch has for it; None if there is none."""
    return batch.get("attention_mask", batch.get("mask"))


def _sum(value, accelerator):
    return (accelerator.reduce(value, "sum") if accelerator.num_processes > 1 else value).item()


def _same_for_all(seconds, accelerator):
    """The first process's clock: all must agree on the learning rate and on when to stop."""
    if accelerator.num_processes == 1:
        return seconds
    return broadcast(torch.tensor(seconds, dtype=torch.float64, device=accelerator.device)).item()


def _over(config, history):
    late = config.seconds is not None and history.seconds >= config.seconds
    return late or config.steps is not None and history.step >= config.steps


def _loss(output):
    loss = output["loss"] if "loss" in output else None
    if loss is None:
        raise ValueError(
            f"the model returned no loss, only {', '.join(output)}; it must return one when it is given labels"
        )
    return loss


def _refuse_sparse_gradients(model):
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.is_sparse:
            raise ValueError(
                f"{name} has a sparse gradient, which AdamW cannot apply; make the model without, as by sparse_embeddings=False"
            )


@contextmanager
def _modes_kept(model):
    """Puts each module back into training or evaluation mode, whichever it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _evaluated(evaluate, model, accelerator):
    # An evaluation that draws random numbers must not change how training goes on.
    states = _random_states(accelerator.device)
    with _modes_kept(model):
        numbers = {name: float(value) for name, value in evaluate(model).items()}
    _set_random_states(states, accelerator.device)
    return numbers


def _stopped(step, loss, norm, store):
    last = store.last() if store else None
    saved = f"the last good checkpoint is {last}" if last else "no checkpoint was saved"
    return f"step {step}: the loss is {loss} and the gradient norm {norm}; {saved}. Try a lower learning rate or precision='fp32'"


def _length(example):
    return len(example["input_ids"] if hasattr(example, "keys") else example)


class _Mean:
    """The mean of the losses since the last row of the log."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value):
        self.total, self.count = self.total + value, self.count + 1

    def take(self):
        mean = self.total / max(1, self.count)
        self.total, self.count = 0.0, 0
        return mean


# ------------------------------------------------------------------------------------ the order of the data


class _Order:
    """Batch after batch, epoch after epoch, in an order that depends only on the seed; `place` is where it stands."""

    def __init__(self, dataset, config):
        self.dataset, self.size, self.seed, self.grouped = (
            dataset,
            config.batch_size,
            config.seed,
            config.group_by_length,
        )
        self.sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if self.sized and not len(dataset):
            raise ValueError("the dataset is empty; there is nothing to train on")
        if not self.sized and iter(dataset) is dataset:
            raise ValueError(
                f"a {type(dataset).__name__} can be read only once; pass a sequence, or a stream of `datasets`"
            )
        if self.grouped and not self.sized:
            raise ValueError(
                "group_by_length needs a dataset with a length, which a stream has not; turn it off"
            )
        self.epoch, self.place, self.batches = 0, 0, None
        self._set_epoch()
        self.examples = len(dataset) if self.sized else "a stream"

    def next(self):
        """The next list of examples."""
        if self.batches is None:
            self.batches = self._epoch()
        batch = next(self.batches, None)
        if batch is None:
            if not self.place:
                raise ValueError("the dataset is empty; there is nothing to train on")
            self.epoch, self.place, self.batches = self.epoch + 1, 0, None
            return self.next()
        self.place += 1
        return batch

    def _set_epoch(self):
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self.epoch)

    def _epoch(self):
        """The batches of this epoch from `place` on."""
        self._set_epoch()
        if not self.sized:
            rows = islice(iter(self.dataset), self.place * self.size, None)
            while batch := list(islice(rows, self.size)):
                yield batch
            return
        generator = torch.Generator().manual_seed(_seed(self.seed, "order", self.epoch))
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        if self.grouped:
            pool, lengths = (
                POOL * self.size,
                [_length(self.dataset[i]) for i in range(len(self.dataset))],
            )
            order = [
                i
                for start in range(0, len(order), pool)
                for i in sorted(order[start : start + pool], key=lengths.__getitem__)
            ]
        batches = [order[start : start + self.size] for start in range(0, len(order), self.size)]
        if self.grouped:
            batches = [
                batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()
            ]
        for batch in batches[self.place :]:
            yield [self.dataset[i] for i in batch]


def _seed(*parts):
    digest = hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


# ------------------------------------------------------------------------------------ what survives a crash


class Checkpoints:
    """A folder of checkpoints, `step-00000100` and so on, each whole or absent.

    A checkpoint is written under another name, flushed to the disk, and renamed when complete; a manifest holds the
    SHA-256 of each file, so that damage is found when it is read.
    """

    def __init__(self, folder, keep=2):
        self.folder, self.keep = folder, keep

    def steps(self):
        """The steps for which there is a checkpoint, intact or not, in order."""
        names = (re.fullmatch(r"step-(\d+)", path.name) for path in self.folder.glob("step-*"))
        return sorted(int(name[1]) for name in names if name)

    def path(self, step):
        """Where the checkpoint of a step is."""
        return self.folder / f"step-{step:08d}"

    def last(self):
        """The path of the last intact checkpoint, or None."""
        for step in reversed(self.steps()):
            if not self.damage(step):
                return self.path(step)
        return None

    def damage(self, step):
        """What is wrong with a checkpoint, in words; empty if it is intact."""
        try:
            manifest = json.loads((self.path(step) / "manifest.json").read_text(encoding="utf-8"))
            if set(manifest["sha256"]) != {"model.safetensors", "state.pt"}:
                return "manifest.json does not name its two files"
            for name, digest in manifest["sha256"].items():
                if hashlib.sha256((self.path(step) / name).read_bytes()).hexdigest() != digest:
                    return f"{name} is not what was written"
            return (
                ""
                if manifest["step"] == step
                else f"its manifest is that of step {manifest['step']}"
            )
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            return f"manifest.json cannot be read ({error})"

    def open(self, resume, fingerprint):
        """The last intact checkpoint's (step, weights, state) if we resume; None if there is none yet.

        Raises:
            FileExistsError: there are checkpoints and we do not resume.
            ValueError: none of the checkpoints is intact, or they are of another run.
        """
        steps = self.steps()
        if steps and not resume:
            raise FileExistsError(
                f"{self.folder} holds checkpoints; pass resume=True to go on with them, or another out"
            )
        for step in reversed(steps):
            if damage := self.damage(step):
                earlier = "; the one before it is used" if step != steps[0] else ""
                warnings.warn(
                    f"the checkpoint {self.path(step)} is damaged: {damage}{earlier}", stacklevel=3
                )
                continue
            weights = load((self.path(step) / "model.safetensors").read_bytes())
            state = torch.load(self.path(step) / "state.pt", map_location="cpu", weights_only=True)
            _same_run(state, fingerprint, self.path(step))
            return step, weights, state
        if steps:
            raise ValueError(
                f"no checkpoint in {self.folder} is intact; delete the folder to start anew"
            )
        return None

    def save(self, step, model, state):
        """Writes a checkpoint, then removes those before the last `keep`."""
        scratch = self.folder / f".step-{step:08d}"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            scratch.mkdir(parents=True)
            weights = {
                name: tensor.detach().cpu().contiguous()
                for name, tensor in _own_tensors(model).items()
            }
            files = {"model.safetensors": save(weights)}
            buffer = io.BytesIO()
            torch.save(state, buffer)
            files["state.pt"] = buffer.getvalue()
            manifest = {
                "step": step,
                "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
            }
            files["manifest.json"] = json.dumps(manifest, indent=1).encode()
            for name, data in files.items():
                with open(scratch / name, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            shutil.rmtree(
                self.path(step), ignore_errors=True
            )  # a damaged one from before we resumed
            os.replace(scratch, self.path(step))
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            left = self.last()
            raise OSError(
                error.errno,
                f"the checkpoint of step {step} could not be written ({error}); the last one is {left}",
            ) from error
        intact = [other for other in self.steps() if other <= step]
        for old in intact[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)


def _fingerprint(order, collator, config):
    """What must not change between a run and its continuation. A budget may grow."""
    free = (
        "steps",
        "seconds",
        "device",
        "checkpoint_every",
        "log_every",
        "evaluate_every",
        "keep",
        "progress",
    )
    settings = {name: value for name, value in asdict(config).items() if name not in free}
    plain = {
        name: value
        for name, value in getattr(collator, "__dict__", {}).items()
        if isinstance(value, (bool, int, float, str))
    }
    masking = {
        f"collator.{name}": value for name, value in plain.items() if not name.startswith("_")
    }
    return settings | masking | {"examples": order.examples}


def _same_run(state, mine, path):
    for name, value in mine.items():
        was = state["fingerprint"].get(name)
        if (tuple(was) if isinstance(was, list) else was) != value:
            raise ValueError(
                f"{path} was trained with {name}={was!r}, now it is {value!r}; resume with what it was, or start anew"
            )


def _state(fingerprint, optimizer, collator, order, history, mean, accelerator):
    """Everything but the weights that the next step depends on."""
    return {
        "fingerprint": fingerprint,
        "optimizer": optimizer.state_dict(),
        "random": gather_object([_random_states(accelerator.device)]),
        "collator": collator.state_dict() if hasattr(collator, "state_dict") else None,
        "epoch": order.epoch,
        "place": order.place,
        "history": asdict(history),
        "mean": (mean.total, mean.count),
    }


def _own_tensors(model):
    """The tensors of a state dictionary; tied matrices are one tensor and come once."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor for name, tensor in model.state_dict().items() if name in named}


def _restore(found, model, optimizer, collator, order, history, mean, accelerator):
    """Puts a checkpoint's (step, weights, state) back where it was."""
    _, weights, state = found
    mine = {name: tuple(tensor.shape) for name, tensor in _own_tensors(model).items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if mine != theirs:
        name, shape = min(mine.items() ^ theirs.items())
        raise ValueError(
            f"the checkpoint's weights are of another model: only one of the two has {name} of shape {shape}"
        )
    model.load_state_dict(weights, strict=False)
    optimizer.load_state_dict(state["optimizer"])
    if state["collator"] is not None:
        collator.load_state_dict(state["collator"])
    order.epoch, order.place = state["epoch"], state["place"]
    vars(history).update(state["history"])
    mean.total, mean.count = state["mean"]
    rank = accelerator.process_index
    if rank < len(state["random"]):
        _set_random_states(state["random"][rank], accelerator.device)


def _random_states(device):
    version, numbers, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    states = {
        "torch": torch.get_rng_state(),
        "python": (version, numbers, gauss),
        "numpy": (name, keys.tolist(), *rest),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(states, device):
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


class _Log:
    """`log.jsonl`: one row a line. A resumed run first drops what was logged after its checkpoint."""

    def __init__(self, path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}")
        scratch.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        os.replace(scratch, path)
        self.path = path

    def write(self, row):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
