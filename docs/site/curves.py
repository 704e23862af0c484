"""Draws the loss curves of `docs/read_your_curve.md`: `python docs/site/curves.py`.

A small model is trained on the films of our grammar, as in lesson 09: once correctly, and once with
each of six faults. The pictures and the numbers are written to `docs/curves/`. They show the loss
in the log of the training, and the loss on held-out texts that is computed without the fault.
"""

import json
import math
from collections import Counter
from pathlib import Path

import torch

from mlm_lib import plots
from mlm_lib.encoder import EncoderConfig
from mlm_lib.grammar import Grammar
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.training import HeldOut, TrainingConfig, train
from mlm_lib.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

FOLDER = Path(__file__).resolve().parents[1] / "curves"
STEPS, EVERY = 600, 20
DRAWN = "sound labels_after_masking labels_everywhere padding repeated rate vocabulary".split()
grammar = Grammar.load(worlds=["films"])
words = [*SPECIAL_TOKENS, *grammar.vocabulary]
tokenizer = WordPieceTokenizer({word: number for number, word in enumerate(words)})


def rows_of(documents):
    return [tokenizer.encode(" ".join(words)) for words in documents]


documents, held_out = grammar.sample(2000, seed=0), grammar.sample(100, seed=1)
texts, held = rows_of(documents), rows_of(held_out)


def masking(seed=0):
    return MaskingCollator(tokenizer, mask_share=1.0, random_share=0.0, seed=seed)


def new_model():
    torch.manual_seed(0)
    return MaskedLanguageModel.from_config(
        EncoderConfig(
            len(words),
            hidden_size=64,
            num_layers=2,
            num_heads=2,
            intermediate_size=256,
            max_length=max(map(len, texts + held)),
            dropout=0.0,
            initializer_range=0.05,
        )  # fmt: skip
    )


# ------------------------------------------------------------------------------------ the faults


def masked_before_the_copy(batch):
    """The labels are taken from what is masked already: each of them is [MASK]."""
    asked = batch["labels"] != -100
    return batch | {"labels": batch["labels"].masked_fill(asked, tokenizer.mask_token_id)}


def asked_everywhere(batch):
    """Tokens that can be seen keep their labels, too, where -100 should stand."""
    seen = (batch["labels"] == -100) & batch["attention_mask"].bool()
    return batch | {"labels": torch.where(seen, batch["input_ids"], batch["labels"])}


def padding_asked(batch):
    """At padding the labels say [PAD], where -100 should stand."""
    padding = ~batch["attention_mask"].bool()
    return batch | {"labels": batch["labels"].masked_fill(padding, tokenizer.pad_token_id)}


def of_another_vocabulary(rows):
    """The same words under other numbers, as another tokenizer gives them; special ones stay."""
    first = len(SPECIAL_TOKENS)
    others = torch.randperm(len(words) - first, generator=torch.Generator().manual_seed(0)) + first
    numbers = [*range(first), *others.tolist()]
    return [[numbers[token] for token in row] for row in rows]


def run(texts, held, *, model=None, fault=dict, rate=3e-3, steps=STEPS):
    """What the log says, [step, loss] each, and the loss on held-out texts, rightly asked."""
    model, masks, look = model or new_model(), masking(), HeldOut(held, masking(seed=1))
    config = TrainingConfig(
        steps, 16, rate, schedule="constant", warmup=20, seed=0, precision="fp32", device="cpu",
        progress=False, log_every=EVERY, evaluate_every=5 * EVERY,
    )  # fmt: skip
    first = look(model)["held_out_loss"]
    rows = train(model, texts, lambda some: fault(masks(some)), config, evaluate=look).rows
    log = [[row["step"], round(row["loss"], 3)] for row in rows]
    true = [[0, round(first, 3)]]
    true += [[r["step"], round(r["held_out_loss"], 3)] for r in rows if "held_out_loss" in r]
    return {"log": log, "held_out": true}


def curves(steps=STEPS):
    """{name: a run}, the sound one first."""
    sound = new_model()
    found = {"sound": run(texts, held, model=sound, steps=steps)}
    found["labels_after_masking"] = run(texts, held, fault=masked_before_the_copy, steps=steps)
    found["labels_everywhere"] = run(texts, held, fault=asked_everywhere, steps=steps)
    found["padding"] = run(texts, held, fault=padding_asked, steps=steps)
    found["rate"] = run(texts, held, rate=1e-1, steps=steps)
    found["repeated"] = run(texts[:30], held, steps=steps)
    others = of_another_vocabulary(texts), of_another_vocabulary(held)
    found["vocabulary"] = run(*others, model=sound, steps=steps)
    # Not drawn, but told: a rate too low, and eight rows again and again.
    found["rate_low"] = run(texts, held, rate=3e-5, steps=steps)
    for name, rate in {"eight": 1e-1, "eight_tenth": 1e-2}.items():
        found[name] = run(texts[:8], held, rate=rate, steps=min(300, steps))
    return found


def landmarks():
    counts = Counter(word for words in documents for word in words)
    shares = [count / counts.total() for count in counts.values()]
    unigram = -sum(share * math.log(share) for share in shares)
    floor = grammar.floor(held_out).nats
    found = {"ln V": math.log(len(words)), "unigram entropy": unigram, "floor": floor}
    return {name: round(nats, 3) for name, nats in found.items()}


def draw(name, one, lines):
    """A run as a picture: the log, the truth, and the landmarks."""
    ax = plots.axes(width=5, height=2.4)
    for (label, nats), color in zip(lines.items(), (plots.CHANCE, plots.CHANCE, plots.FLOOR)):
        ax.axhline(nats, color=color, linestyle="--", linewidth=1)
        ax.annotate(f" {label}", (STEPS, nats), va="center", color=color, fontsize=8)
    ax.plot(*zip(*one["held_out"]), ":", color=plots.LIBRARY, linewidth=2)
    ax.plot(*zip(*one["log"]), color=plots.OURS)
    ax.set(xlim=(0, STEPS), ylim=(0, None), xlabel="steps", ylabel="nats")
    (FOLDER / f"{name}.svg").write_bytes(plots.svg(ax.figure))


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines, found = landmarks(), curves()
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps({"landmarks": lines, "runs": found}).replace('}, "', '},\n"')
    (FOLDER / "curves.json").write_text(text + "\n", "utf-8")
    for name in DRAWN:
        draw(name, found[name], lines)
