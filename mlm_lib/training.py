"""The training loop, its settings, an evaluation and a callback. Built in lesson 09.

`train` is the loop of that lesson: make a batch, compute the loss and its gradient, clip, step. It
also logs, evaluates and writes checkpoints. What surrounds the loop is in `engine/run.py`: the
device and the processes, the order of the data, the log, the progress bar and the checkpoints.
"""

import math
from dataclasses import dataclass

import torch
from tqdm.auto import tqdm

from mlm_lib.checks import choice, flag, number, refused, whole_number
from mlm_lib.engine.batches import count_targets, example_length
from mlm_lib.engine.modes import modes_kept
from mlm_lib.engine.run import Run
from mlm_lib.optimizers import Optimizers

# ------------------------------------------------------------------------------------ the loop


def train(model, dataset, collator, config, *, out=None, resume=False, evaluate=None, callbacks=()):
    """Trains a model in place. It makes batches, takes steps, logs, evaluates and writes
    checkpoints::

        config = TrainingConfig(steps=1000, learning_rate=1e-3)
        history = train(model, rows, MaskingCollator(tokenizer, seed=0), config, out="run")

    If the loss or the gradient is NaN or infinite, the run ends with an error. On a CPU each step
    is checked before the optimizer applies it. On a GPU the check runs only when a row of the log,
    an evaluation or a checkpoint is due, because checking makes the program wait for the GPU. No
    checkpoint ever holds NaN, but the weights in memory may.

    `torchrun` can start the program in several processes, which then share each batch.

    `train` seeds the global random generators of Python, numpy and torch with `config.seed`,
    because dropout draws from them. It does not restore the generators afterwards. So the random
    numbers that a program draws after `train` do not depend on the seed that the program had set
    before. If these numbers should depend on that seed, set the seed again after `train`.

    Args:
        model: a `MaskedLanguageModel`, a `LanguageModel`, or a masked language model of
            transformers. Any other module can be trained if it takes a batch as keywords and
            returns a mapping with `loss`, the mean over the labels that are not -100. If the batch
            has `weights` (B,), the loss must be weighted by them. If the batch has no `labels`, as
            for a `LanguageModel`, the loss must be the mean over all pairs of neighbouring real
            tokens, because each pair is one prediction. Modules with sparse gradients, such as
            `nn.Embedding(..., sparse=True)`, are also trained (see `Optimizers`).
        dataset: a sequence of examples, such as a list of lists of ids. A data set of the library
            `datasets`, which is read from the disk, may be larger than the memory. If it has a
            method `set_epoch`, the method is called at the start of each epoch. If it has a method
            `fingerprint`, which returns a dictionary, a resumed run uses the dictionary to check
            that the data are the same.
        collator: turns a list of examples into a batch, a dictionary of tensors, as a
            `MaskingCollator` does. If it has the methods `state_dict`, `load_state_dict` and
            `fingerprint`, they are used for checkpoints.
        config: a `TrainingConfig`.
        out: the folder for `log.jsonl` and `checkpoints/`. None: nothing is written. No other
            program may write to this folder at the same time. If an earlier run left a log in the
            folder and no checkpoint, the old log is renamed `log.1.jsonl`, or to the next free
            number, with a warning.
        resume: whether to go on from the last checkpoint in `out`. If there is no checkpoint, the
            run begins at step 0. On a CPU, with a budget in steps, the final weights are exactly
            those of an uninterrupted run. The run goes on in the precision in which it began.
        evaluate: called as `evaluate(model)` every `evaluate_every` steps and at the end. It
            returns a dictionary of numbers, which are added to the row of the log. A `HeldOut` is
            such an evaluation.
        callbacks: functions, called as `callback(model, step, row)` after each step. `row` is the
            row of the log, or None if no row is written at this step. With `evaluate_at_start` they
            are also called with step 0.

    Returns:
        A `History`.

    Raises:
        TrainingStopped: the loss or the gradient norm is NaN or infinite; the message names the
            step.
        ValueError: the data set is empty; none of the first 100 steps had a label; the model
            returns no loss; `packing` or `head_steps` does not fit the model; the checkpoint is
            damaged, or belongs to another run.
        TypeError: the evaluation returns a number under a name that each row of the log has
            already.
        FileExistsError: `out` holds checkpoints, and `resume` is False.
        BlockingIOError: another program writes to `out`.
        OSError: a checkpoint could not be written. The older checkpoints are intact.
    """
    with Run(model, dataset, collator, config, out, evaluate, callbacks) as run:
        optimizers = Optimizers(model, config, run.device)
        history = run.start(optimizers, resume)
        while not config.over(history.step, history.seconds):
            # 1) A batch, masked afresh.
            batch = collator(run.sampler.next())

            # 2) The loss and its gradient. The batch is one part, unless it is divided by
            #    `gradient_accumulation_steps` or among several processes. Then the gradients of
            #    the parts add up to the gradient of the whole batch.
            loss = 0.0
            for part in run.parts(batch):
                with run.gradients_for(part):
                    with run.autocast():
                        part_loss = run.model(**part.rows).get("loss")
                    part_loss = run.weighted(part_loss, part)
                    part_loss.backward()
                loss = loss + part_loss.detach()
            loss = run.average(loss)

            # 3) Clip. Each trained weight now has the gradient of the whole batch in `weight.grad`.
            #    All gradients together are scaled down to a norm of at most `max_grad_norm`. Each
            #    tensor in `numbers` becomes a number of the row. It has no axes, and is on the
            #    device of the loss. Add your own before `clip` changes the gradients. A weight that
            #    is not trained may have no gradient, or an old one.
            numbers = {}
            numbers["gradient_norm"] = optimizers.clip(config.max_grad_norm)

            # 4) Step, at the learning rate of the schedule. On a CPU `history.add` raises an error
            #    if the loss or a number is NaN, before the step is applied.
            rate = config.learning_rate_at(history.step, history.seconds)
            history.add(loss, numbers, rate, batch)
            optimizers.step(rate)
            optimizers.zero_grad()

            # 5) Log and evaluate, if it is time.
            due, row = run.due(), None
            if due.row:
                row = {
                    "step": history.step,
                    "epoch": run.sampler.epoch,
                    "loss": history.take_mean_loss(),
                    "learning_rate": rate,
                    **history.numbers,
                    "tokens": history.tokens,
                    "seconds": round(history.seconds, 3),
                    "tokens_per_second": run.tokens_per_second(),
                }
            if due.evaluation:
                row = dict(**row, **run.evaluate())  # a name that the row has is a TypeError
            run.report(row)

            # 6) Write a checkpoint, if it is time.
            if due.checkpoint:
                run.save_checkpoint()
    return history


# ------------------------------------------------------------------------------------ settings

# The learning rate after the warm-up. `done` is the fraction of the remaining budget that is used,
# and the result is multiplied by the peak learning rate. A cosine falls slowly, fast, and slowly
# again (Loshchilov & Hutter 2017). "wsd" (warm-up, stable, decay) falls only in the last fifth (Hu
# et al. 2024). Between the warm-up and this fall no step depends on the length of the run, so the
# run can be lengthened there. A warm-up that is a fraction of the budget does depend on the length.
SCHEDULES = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
    "wsd": lambda done: min(1.0, 5 * (1 - done)),
}


@dataclass
class TrainingConfig:
    """The settings of a training run: its length, its steps, and what is written when.

    Args:
        steps: the number of steps of the optimizer. It may be None if `seconds` is given.
        batch_size: the number of rows in a step, in all processes together.
        learning_rate: the peak learning rate, which is reached at the end of the warm-up.
        warmup: the number of steps in which the learning rate rises linearly to its peak. The rate
            of the first step is already above 0. A number below 1 is a fraction of the budget (of
            `steps`, or of `seconds`).
        weight_decay: the weight decay of AdamW (Loshchilov & Hutter 2019). Only matrices decay;
            biases and layer norms do not.
        precision: "fp32", "bf16" or "auto". "bf16" uses torch's autocast, and the weights stay in
            float32. "auto" is the precision, "fp32" or "bf16", that is faster on this machine (see
            `precision_taken`). On a CPU "auto" is decided by measuring times, so name a precision
            if two runs must agree to the bit.
        seed: the seed for the order of the data and for dropout.
        checkpoint_every: the number of steps between two checkpoints. A checkpoint is always
            written at the end.
        checkpoint_seconds: a checkpoint is also written when this many seconds have passed since
            the last checkpoint. At the beginning checkpoints come sooner: after 30 seconds, after
            60, after 120, and so on. So a run that is killed after the first 30 seconds loses at
            most half of its time, and at most `checkpoint_seconds`. None: no checkpoint is written
            by the clock.
        seconds: stop after this much wall-clock time, counting all resumed runs together. The
            schedule then follows the clock, so two runs no longer agree to the bit.
        schedule: how the learning rate changes after the warm-up: "linear", "cosine", "constant",
            or "wsd" (warm-up, stable, decay), which is constant, and falls in the last fifth of the
            budget that follows the warm-up.
        device: "auto", "cpu", "cuda" or "mps". "auto" is a GPU if there is one, and otherwise the
            CPU.
        max_grad_norm: gradients with a larger norm are scaled down to this norm.
        betas, eps: the decay rates of AdamW's two averages, and the small number in its
            denominator. The default of `eps` is BERT's.
        log_every: the number of steps between two rows of the log. A row is always logged at the
            end. None: there is only this row.
        evaluate_every: the number of steps between two evaluations. None: the model is evaluated
            only at the end.
        group_by_length: whether to put rows of similar length into one batch, which saves padding.
        packing: True joins the documents of a batch into one row of tokens, so that no padding is
            computed. No document attends to another document (see lesson 18). The embedder of the
            model must be a `BertEncoder` or a `ModernEncoder`. The attribute `unpadded` of the
            embedder stays True after the training. False leaves the encoder as it is.
        keep: the number of checkpoints that are kept. These are the last checkpoints.
        progress: True shows a progress bar, False shows nothing. None shows a bar in a terminal,
            nothing in a notebook, and elsewhere, as in a batch job, a line from time to time.
        optimizer: "adamw", or "muon", which trains the matrices inside the network by Muon and
            everything else by AdamW, with the same weight decay (see `Optimizers`).
        inner_learning_rate: the peak learning rate of Muon. None: the value of `learning_rate`.
        gradient_accumulation_steps: the number of parts in which each batch is computed, one after
            another. Use more than 1 if a batch does not fit into the memory. The gradients of the
            parts are added, each weighted by its number of labels. The step is that of the whole
            batch, except for rounding and for the random numbers of dropout.
        head_steps: in the first `head_steps` steps only the weights outside `model.embedder` are
            trained, so that a head with random weights does not spoil a trained encoder. A word
            embedding that the head shares with the encoder belongs to the encoder.
        evaluate_at_start: whether to evaluate also before the first step. The numbers are logged as
            the row of step 0.

    Raises:
        ValueError: a value is outside its range.
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
        self.betas = tuple(float(beta) for beta in self.betas)  # AdamW checks their range
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
        """The learning rate of a step. The first step has the number 0. The argument `seconds` is
        the time since the start of the run.

        >>> config = TrainingConfig(steps=10, warmup=4, learning_rate=1.0)
        >>> [round(config.learning_rate_at(step), 2) for step in range(10)]
        [0.2, 0.4, 0.6, 0.8, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17]
        """
        # The fraction of the budget that is used, by steps or by the clock, whichever is further.
        by_step = step / self.steps if self.steps else 0.0
        done = max(by_step, seconds / self.seconds if self.seconds else 0.0)
        warm = self.warmup if self.warmup < 1 else self.warmup / self.steps
        # 1) The warm-up rises from 0 to 1. With a budget in steps, step 0 has a rate above 0
        #    already, because a step with rate 0 would be wasted.
        if done < warm:
            first = (step + 1) / (warm * self.steps + 1) if self.steps else 0.0
            return self.learning_rate * min(1.0, max(done / warm, first))
        # 2) The schedule follows, over the remaining budget.
        after_warm_up = min(1.0, (done - warm) / max(1e-9, 1 - warm))
        # 3) After the end of the budget the rate keeps its last value, and is never below 0.
        return self.learning_rate * max(0.0, SCHEDULES[self.schedule](after_warm_up))

    def over(self, step, seconds):
        """Whether the budget is used up after this many steps and seconds."""
        late = self.seconds is not None and seconds >= self.seconds
        return late or (self.steps is not None and step >= self.steps)


# ------------------------------------------------------------------------------------ held out


class HeldOut:
    """An evaluation: the loss on held-out examples. The examples are masked only once, when the
    `HeldOut` is made.

    Every model, and every evaluation of a run, has to predict the same tokens, so that the losses
    can be compared. Pass a `HeldOut` to `train` as the argument `evaluate`, or call it::

        evaluate = HeldOut(held_out_rows, MaskingCollator(tokenizer, seed=1))
        evaluate(model)  # {"held_out_loss": 5.83}

    The call returns `{name: loss}`. The loss is the mean over all masked tokens, in nats, that is,
    with the natural logarithm. Afterwards each part of the model is in the mode, training or
    evaluation, in which it was before.

    Args:
        examples: held-out examples.
        collator: the collator that masks the examples. Give it a seed of its own.
        batch_size: the number of rows in a batch. Rows of similar length share a batch.
        name: the key of the loss in the dictionary that is returned.

    Raises:
        ValueError: there are no examples, or none of their tokens is masked.
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
                if targets:  # without labels a model of transformers returns NaN
                    batch = {name: rows.to(device) for name, rows in batch.items()}
                    total += model(**batch)["loss"].item() * targets
        return {self.name: total / self.count}


class ShowPredictions:
    """A callback that prints the likeliest tokens for the blanks of some sentences.

    Args:
        tokenizer: a `WordPieceTokenizer` or a tokenizer of transformers.
        sentences: texts with at least one `[MASK]`.
        every: the number of steps between two printouts.
        top_k: the number of tokens that are shown for a blank.

    Raises:
        ValueError: a sentence has no `[MASK]`.
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
