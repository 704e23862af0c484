"""Unpadded against padded, and ModernBERT against transformers': `python -m benchmarks.modern`.

Both sides have the same weights, batch and precision. With `--ways` the program compares ways to
keep documents apart in attention instead.
"""

import statistics
import sys

import torch
import torch.nn.functional as F
from transformers import ModernBertConfig, ModernBertForMaskedLM

from benchmarks.model import precision_context, precisions
from benchmarks.turns import arguments, compared, report, turns, versions
from mlm_lib.corpus import load_corpus
from mlm_lib.encoder import EncoderConfig, attend
from mlm_lib.labels import IGNORE
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.masking import MaskingCollator
from mlm_lib.modern import ModernConfig
from mlm_lib.pretrained import from_hf, load_checkpoint
from mlm_lib.unpadded import Padded, Unpadded

LAYERS, WIDTH, HEADS = 4, 256, 4
BATCHES = 32, 256  # numbers of reviews in a batch; the claim is made for the larger batch
CLAIM, STEP_CLAIM = 1.3, 1.25
BASE = {"layers": 22, "width": 768, "heads": 12, "vocab_size": 50368}  # ModernBERT-base
SMALL = {"layers": 4, "width": 256, "heads": 4, "vocab_size": 50368}
SHAPES = {  # {what: (sizes, number of rows, tokens of a row; None: reviews of any length)}
    "4 layers of 256, 16 × 128": (SMALL, 16, 128),
    "4 layers of 256, 32 reviews": (SMALL, 32, None),
}


def rows(args):
    """The rows for unpadded against padded, and for a training step against transformers'."""
    for count in BATCHES:
        batch = reviews(count)
        for kind, model in models().items():
            yield from unpadded_rows(kind, model, batch, count, args.quick)
    shapes = SHAPES | ({} if args.quick else {"ModernBERT-base, 4 × 128": (BASE, 4, 128)})
    for sparse in (False, True):
        for what, shape in shapes.items():
            for precision in precisions():
                yield compared(
                    f"training step, {what}{', sparse_prediction' * sparse}", precision,
                    "transformers", training_step(precision, *shape, sparse=sparse),
                    at_least=None if sparse else STEP_CLAIM, warm_up=1, least=5, seconds=25.0,
                    quick=args.quick,
                )  # fmt: skip


def models():
    """Three models of one size at V = 8,192: ModernBERT, BERT without and with dropout."""
    sizes = {"num_layers": LAYERS, "num_heads": HEADS}
    today = ModernConfig(8192, WIDTH, intermediate_size=3 * WIDTH // 2, **sizes)
    plain, usual = (
        EncoderConfig(8192, WIDTH, intermediate_size=4 * WIDTH, dropout=p, **sizes)
        for p in (0.0, 0.1)
    )
    configs = {"": today, "BERT, ": plain, "BERT with dropout, ": usual}
    return {kind: MaskedLanguageModel.from_config(config) for kind, config in configs.items()}


def reviews(count):
    """A masked batch of whole reviews of the course, padded to the longest of them."""
    _, tokenizer = load_checkpoint("course-bert")
    texts = load_corpus("reviews")
    picked = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:count]
    rows = tokenizer([texts[i] for i in picked])["input_ids"]
    return MaskingCollator(tokenizer, seed=0)(rows)


def unpadded_rows(kind, model, batch, count, quick):
    """A row for each precision, in real tokens a second.

    ModernBERT is measured in inference as well, the others in a training step only.
    """
    inputs, real = (batch["input_ids"], batch["attention_mask"]), batch["attention_mask"].sum()
    losses = []

    def side(precision, unpadded, train):
        def run():
            model.embedder.unpadded = unpadded
            with precision_context(precision), torch.set_grad_enabled(train):
                found = model(**batch)["loss"] if train else model.embedder(*inputs)
            if train:
                losses.append(found.item())
                found.backward()
                model.zero_grad()

        return run

    for precision in precisions():
        for what in ("training step",) if kind else ("encoder, inference", "training step"):
            sides = [side(precision, way, what == "training step") for way in (False, True)]
            claimed = not kind and count == BATCHES[-1] and precision == "fp32"
            yield compared(
                f"{kind}{what}, {count} reviews", precision, "padded", sides, tokens=real.item(),
                at_least=CLAIM if claimed else None, warm_up=1, least=5, seconds=12.0, quick=quick,
            )  # fmt: skip
        if precision == "fp32" and "dropout" not in kind and max(losses) - min(losses) > 1e-5:
            sys.exit(f"losses of padded and unpadded differ by {max(losses) - min(losses)}")
        losses.clear()


def training_step(precision, sizes, rows, length, *, sparse=False):
    """A training step of transformers' ModernBERT and of ours.

    A step is forward pass, loss, backward pass and AdamW. With `sparse`, transformers' head
    computes the labelled positions only, as ours always does.
    """
    config = ModernBertConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["width"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=3 * sizes["width"] // 2,
        sparse_prediction=sparse,
    )
    theirs = ModernBertForMaskedLM(config)
    ours = from_hf(theirs)
    if length is None:
        batch = reviews(rows)
    else:
        ids = torch.randint(5, sizes["vocab_size"], (rows, length))
        labels = torch.where(torch.rand(ids.shape) < 0.15, ids, IGNORE)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    def step(model):
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)

        def run():
            with precision_context(precision):
                loss = model(**batch)["loss"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    return step(theirs), step(ours)


# ------------------------------------------------------------------------------------ ways


def print_ways():
    """Print how long attention takes, forward and backward, in each of the `WAYS`."""
    real = reviews(BATCHES[-1])["attention_mask"].bool()
    print(f"{versions()}\n")
    print("| way | precision | forward and backward ms |\n|---|---|---:|")
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        shape = real.sum(), HEADS, WIDTH // HEADS
        parts = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]

        def side(way):
            def run():
                torch.autograd.grad(way(real, *parts).sum(), parts)

            return run

        times = turns([side(way) for way in WAYS.values()], warm_up=1, least=5, seconds=15.0)
        for name, taken in zip(WAYS, times):
            print(f"| {name} | {precision} | {statistics.median(taken):.0f} |", flush=True)


def one_by_one(real, *parts):
    """One call of attention for each document: (N, A, D) thrice to (N, A·D)."""
    layout = Unpadded(real)
    layout.calls = [(1, length) for count, length in layout.calls for _ in range(count)]
    return layout.mix(*parts, attend)[0]


def by_length(real, *parts):
    """One call of attention for all documents of one length, as the package does it."""
    return Unpadded(real).mix(*parts, attend)[0]


def padded_again(real, *parts):
    """Padding is put back for attention only, masked there, and left out again afterwards."""
    layout, padded = Unpadded(real), Padded(real, real.shape, real.device)
    rows = [layout.put(part.flatten(1)).unflatten(-1, (HEADS, -1)) for part in parts]
    return layout.take(padded.mix(*rows, attend)[0])


def one_mask(real, *parts):
    """One row of all tokens, with a mask (N, N) that is True within each document."""
    document = real.nonzero()[:, 0]
    query, key, value = (part.transpose(0, 1)[None] for part in parts)
    mask = document[:, None] == document
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed[0].transpose(0, 1).flatten(1)


WAYS = {
    "attention called once for each length": by_length,
    "attention called once for each document": one_by_one,
    "padded for attention only": padded_again,
    "all documents in one row, with a mask": one_mask,
}

if __name__ == "__main__":
    given = arguments(
        __doc__, **{"--ways": {"action": "store_true", "help": "ways to keep documents apart"}}
    )
    print_ways() if given.ways else report(rows(given), given)
