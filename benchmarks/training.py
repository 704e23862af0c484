"""Our training loop against transformers' `Trainer`: `python -m benchmarks.training`.

Prints two Markdown tables, tokens per second and held-out loss after equal time, and exits with 1
if a ratio is below what we claim. Both sides train a BERT of the same size from the same weights on
the same rows, documentation prose in blocks of 128 tokens, with their own collator, 15% masked, and
take turns.
"""

import argparse
import statistics
import sys
import tempfile
import time

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

from benchmarks.turns import versions
from mlm_lib.corpus import load_corpus, pack_blocks
from mlm_lib.masking import MaskingCollator
from mlm_lib.pretrained import from_hf
from mlm_lib.training import HeldOut, TrainingConfig, native_bf16, train
from mlm_lib.wordpiece import WordPieceTokenizer

VOCAB_SIZE, LENGTH, BATCH, RATE = 30522, 128, 16, 5e-4
WIDTH, LAYERS, HEADS = 256, 4, 4
STEPS, WARM_UP = 12, 3  # steps of a turn, of which the first ones are not counted
ROUNDS = 3  # turns of each side


def main():
    """Time both sides in every precision, print the tables, and say which claims hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds",
        type=float,
        default=60,
        help="training time of each side for the second table; 0 leaves it out",
    )
    args = parser.parse_args()
    tokenizer, blocks, held_out = data()
    names = "precision (transformers, ours) | transformers tokens/s | ours tokens/s"
    print(f"{versions()}\n\n| {names} | ratio | at least |\n|---|---:|---:|---:|---:|")
    short = []
    for theirs, ours, what, claim in rows():
        their, our = [], []
        for _ in range(ROUNDS):
            their += their_steps(tokenizer, blocks, theirs, steps=STEPS)[1]
            our += our_steps(tokenizer, blocks, ours, steps=STEPS)[1]
        their, our = (BATCH * LENGTH / statistics.median(times) for times in (their, our))
        print(f"| {what} | {their:,.0f} | {our:,.0f} | {our / their:.1f} | {claim} |", flush=True)
        if our / their < claim:
            short.append(f"{what}: {our / their:.2f} times as fast, and we claim {claim}")
    if args.seconds:
        evaluate = HeldOut(held_out, MaskingCollator(tokenizer, seed=1))
        print(f"\n| default settings, {args.seconds:.0f} s each | tokens seen | held-out loss |")
        print("|---|---:|---:|")
        model, times = their_steps(tokenizer, blocks, "default", seconds=args.seconds)
        print_outcome("transformers", times, evaluate(from_hf(model)))
        model, times = our_steps(tokenizer, blocks, "auto", seconds=args.seconds)
        print_outcome("ours", times, evaluate(model))
    if short:
        sys.exit("\n" + "\n".join(short))


def print_outcome(side, times, numbers):
    tokens = len(times) * BATCH * LENGTH
    print(f"| {side} | {tokens:,} | {numbers['held_out_loss']:.2f} |", flush=True)


def rows():
    """(their precision, ours, name, claimed ratio)."""
    if native_bf16():
        yield "default", "auto", "default settings (fp32, bf16)", 5.0
        yield "fp32", "fp32", "fp32, fp32", 2.5
        yield "bf16", "bf16", "bf16, bf16", 4.0
    else:
        yield "default", "auto", "default settings (fp32, fp32)", 2.5


def data():
    """A tokenizer of VOCAB_SIZE tokens, and blocks of LENGTH tokens to train on and to hold out."""
    texts = load_corpus("docs")
    tokenizer = WordPieceTokenizer.train(texts, VOCAB_SIZE, min_frequency=1)
    # The prose has fewer pieces than BERT's vocabulary.
    for number in range(VOCAB_SIZE - len(tokenizer)):
        tokenizer.vocab[f"[unused{number}]"] = len(tokenizer.vocab)
    tokenizer = WordPieceTokenizer(tokenizer.vocab)
    fast = tokenizer.to_hf()

    def blocks(some):
        encoded = fast(some, add_special_tokens=False)["input_ids"]
        packed = pack_blocks(
            encoded, LENGTH, cls_id=tokenizer.cls_token_id, sep_id=tokenizer.sep_token_id
        ).tolist()
        return [row for row in packed if tokenizer.pad_token_id not in row]

    return tokenizer, blocks(texts), blocks(load_corpus("docs", "validation")[:1000])


def new_model(tokenizer):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=LENGTH,
    )
    return BertForMaskedLM(config)


class Clock(TrainerCallback):
    """Seconds of each step, and an end when `seconds` are over."""

    def __init__(self, seconds=None):
        self.seconds, self.times, self.begin = seconds, [], None

    def on_step_begin(self, args, state, control, **kwargs):
        self.begin = self.begin or time.perf_counter()
        self.last = getattr(self, "last", self.begin)

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now
        if self.seconds and now - self.begin >= self.seconds:
            control.should_training_stop = True


def their_steps(tokenizer, blocks, precision, *, steps=10**6, seconds=None):
    """Trains with `Trainer`; the model and the seconds of each counted step."""
    model, clock = new_model(tokenizer), Clock(seconds)
    with tempfile.TemporaryDirectory() as folder:
        own = {} if precision == "default" else {"bf16": precision == "bf16"}
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            max_steps=steps,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
            **own,
        )
        rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in blocks]
        collator = DataCollatorForLanguageModeling(tokenizer.to_hf())
        trainer = Trainer(
            model=model,
            args=arguments,
            data_collator=collator,
            train_dataset=rows,
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return model, clock.times if seconds else clock.times[WARM_UP:]


def our_steps(tokenizer, blocks, precision, *, steps=None, seconds=None):
    """Trains with `train`; the model and the seconds of each counted step."""
    model, times, last = from_hf(new_model(tokenizer)), [], time.perf_counter()

    def clock(model, step, row):
        nonlocal last
        now = time.perf_counter()
        times.append(now - last)
        last = now

    config = TrainingConfig(
        steps=steps,
        seconds=seconds,
        batch_size=BATCH,
        learning_rate=RATE,
        warmup=0,
        schedule="constant",
        weight_decay=0.0,
        precision=precision,
        device="cpu",
    )
    train(model, blocks, MaskingCollator(tokenizer, seed=0), config, callbacks=[clock])
    return model, times if seconds else times[WARM_UP:]


if __name__ == "__main__":
    main()
