"""Our training loop against transformers' `Trainer`: `python -m benchmarks.training`.

Both sides train the same BERT from the same weights on the same rows: documentation prose in blocks
of 128 tokens, of which each side's own collator masks 15%. The two sides are timed in turn. Then
each of them trains for a minute with its default settings, and their held-out losses are compared.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.turns import Row, arguments, report
from mlm_lib.corpus import load_corpus, pack_blocks
from mlm_lib.engine.precision import precision_taken
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import from_hf
from mlm_lib.training import HeldOut, TrainingConfig, train
from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

RATE = 5e-4
STEPS, WARM_UP = 12, 3  # steps that are timed in one round; the first three are not counted
STEPS_ON_A_GPU = 60  # because a step takes a fiftieth of a second there
ROUNDS = 3  # rounds of each side


@dataclass(frozen=True)
class Shape:
    """The sizes of a BERT and of its batches."""

    vocab_size: int
    width: int
    layers: int
    heads: int
    length: int
    batch: int

    def new(self):
        """A BERT of transformers with these sizes. Its weights are the same at each call."""
        torch.manual_seed(0)
        return BertForMaskedLM(
            BertConfig(
                vocab_size=self.vocab_size,
                hidden_size=self.width,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                intermediate_size=4 * self.width,
                max_position_embeddings=self.length,
            )
        )


SMALL = Shape(30522, 256, 4, 4, 128, 16)


def rows(args):
    """The rows of the report: tokens per second, and the held-out loss after equal time."""
    given = random_data(SMALL) if args.quick else prose(SMALL)
    for theirs, ours, what, claim in pairs():
        yield loops(what, theirs, ours, SMALL, given, at_least=claim, quick=args.quick)
    if args.quick:
        return
    tokenizer, blocks, held_out = given
    evaluate, losses = HeldOut(held_out, MaskingCollator(tokenizer, seed=1)), []
    for steps, precision in ((their_steps, "default"), (our_steps, "auto")):
        model, _ = steps(SMALL, tokenizer, blocks, precision, seconds=args.seconds)
        model = from_hf(model) if isinstance(model, BertForMaskedLM) else model
        losses.append(evaluate(model)["held_out_loss"])
    what = f"held-out loss after {args.seconds:.0f} s each"
    yield Row(what, "default", "Trainer", *losses, "nats")


def loops(what, theirs, ours, shape, data, *, at_least, device="cpu", quick=False):
    """A row that compares the tokens per second of both loops, which alternate."""
    tokenizer, blocks, *_ = data
    count = STEPS if device == "cpu" or quick else STEPS_ON_A_GPU
    each = [], []
    for _ in range(1 if quick else ROUNDS):
        for steps, precision, found in zip((their_steps, our_steps), (theirs, ours), each):
            _, spent = steps(shape, tokenizer, blocks, precision, steps=count, device=device)
            found.append(shape.batch * shape.length / spent)
    ratios = [our / their for their, our in zip(*each)]
    medians = map(statistics.median, each)
    ends = (None, None) if quick else (min(ratios), max(ratios))
    return Row(what, ours, "Trainer", *medians, "tokens/s", at_least, *ends)


def pairs():
    """The comparisons to make: (their precision, ours, name, claimed ratio)."""
    if precision_taken("cpu")[0] == "bf16":
        yield "default", "auto", "loop, default settings (fp32, bf16)", 5.0
        yield "fp32", "fp32", "loop, the same precision", 2.5
        yield "bf16", "bf16", "loop, the same precision", 4.0
    else:
        yield "default", "auto", "loop, default settings (fp32, fp32)", 2.5


def prose(shape):
    """A tokenizer, and blocks of documentation prose for training and for the held-out loss."""
    texts = load_corpus("docs")
    tokenizer = filled(WordPieceTokenizer.train(texts, shape.vocab_size, min_frequency=1), shape)
    fast = tokenizer.to_hf()

    def blocks(some):
        encoded = fast(some, add_special_tokens=False)["input_ids"]
        packed = pack_blocks(
            encoded, shape.length, cls_id=tokenizer.cls_token_id, sep_id=tokenizer.sep_token_id
        ).tolist()
        return [row for row in packed if tokenizer.pad_token_id not in row]

    return tokenizer, blocks(texts), blocks(load_corpus("docs", "validation")[:1000])


def random_data(shape, count=1024):
    """A tokenizer, and rows of random ids, because the time does not depend on the ids."""
    tokenizer = filled(WordPieceTokenizer({t: i for i, t in enumerate(SPECIAL_TOKENS)}), shape)
    return tokenizer, torch.randint(5, shape.vocab_size, (count, shape.length)).tolist()


def filled(tokenizer, shape):
    """The tokenizer with unused tokens added up to the vocabulary size, as BERT has them."""
    lacking = range(shape.vocab_size - len(tokenizer.vocab))
    more = {f"[unused{number}]": len(tokenizer.vocab) + number for number in lacking}
    return WordPieceTokenizer(tokenizer.vocab | more)


class Clock(TrainerCallback):
    """A callback that notes when each step ended, and ends the training after `seconds`."""

    def __init__(self, steps, seconds, device):
        self.steps, self.seconds, self.device, self.ends = steps, seconds, device, []
        self.begin = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        if self.tick() and self.seconds:
            control.should_training_stop = True

    def tick(self, *_):
        """Notes the time, and returns whether the time is over.

        On a GPU it synchronises before the first and after the last of the counted steps.
        """
        if self.device != "cpu" and len(self.ends) + 1 in (WARM_UP, self.steps):
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        return self.seconds and self.ends[-1] - self.begin >= self.seconds

    @property
    def spent(self):
        """The mean seconds of a counted step."""
        return (self.ends[-1] - self.ends[WARM_UP - 1]) / (len(self.ends) - WARM_UP)


def their_steps(shape, tokenizer, blocks, precision, *, steps=None, seconds=None, device="cpu"):
    """Trains with `Trainer`. Returns the model and the mean seconds of a counted step."""
    clock = Clock(steps, seconds, device)
    with tempfile.TemporaryDirectory() as folder:
        own = {} if precision == "default" else {"bf16": precision == "bf16"}
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=shape.batch,
            max_steps=steps or 10**6,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=device == "cpu",
            seed=0,
            **own,
        )
        trainer = Trainer(
            model=shape.new(),
            args=settings,
            data_collator=DataCollatorForLanguageModeling(tokenizer.to_hf()),
            train_dataset=[{"input_ids": row, "attention_mask": [1] * len(row)} for row in blocks],
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer.model.cpu(), clock.spent


def our_steps(shape, tokenizer, blocks, precision, *, steps=None, seconds=None, device="cpu"):
    """Trains with `train`. Returns the model and the mean seconds of a counted step."""
    clock = Clock(steps, None, device)
    config = TrainingConfig(
        steps=steps,
        seconds=seconds,
        batch_size=shape.batch,
        learning_rate=RATE,
        warmup=0,
        schedule="constant",
        weight_decay=0.0,
        precision=precision,
        device=device,
    )
    model = from_hf(shape.new())
    train(model, blocks, MaskingCollator(tokenizer, seed=0), config, callbacks=[clock.tick])
    return model.cpu(), clock.spent


if __name__ == "__main__":
    given = arguments(
        __doc__,
        **{"--seconds": {"type": float, "default": 60, "help": "of each, for the last row"}},
    )
    report(rows(given), given)
