"""Our model against transformers' `BertForMaskedLM`, in one process: `python -m benchmarks.model`.

Both sides have the same weights, batch, precision and optimizer.
"""

import json
import math
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertForMaskedLM

from benchmarks.turns import Row, arguments, compared, report
from mlm_lib.engine.precision import precision_taken
from mlm_lib.labels import IGNORE
from mlm_lib.losses import masked_cross_entropy
from mlm_lib.pretrained import from_hf

LAYERS, WIDTH, HEADS = 4, 256, 4
BATCH, LENGTH, RATE = 16, 128, 0.15
STEP_CLAIMS = {30522: 3.0, 8192: 1.7}  # vocabulary size: times as fast
MEMORY_CLAIM, MEMORY_BATCH = 5.0, 32
INFERENCE_CLAIMS = {"fp32": 0.95, "bf16": 1.0}
AUTO_CLAIM = 0.97  # precision "auto" has at least this share of the faster precision's speed


def rows(args):
    """The rows for a training step, for the head's memory and loss, and for inference."""
    for vocab_size, claim in STEP_CLAIMS.items():
        for precision in precisions():
            yield compared(
                f"training step, V = {vocab_size:,}", precision, "transformers",
                training_step(vocab_size, precision), at_least=claim, least=15, seconds=25.0,
                quick=args.quick,
            )  # fmt: skip
    taken, _ = precision_taken("cpu")
    for precision in ("fp32", "bf16"):
        yield compared(
            "training step, both sides ours, V = 8,192", f"auto ({taken})", f"ours in {precision}",
            [our_step(precision), our_step(taken)], at_least=AUTO_CLAIM, least=15, seconds=25.0,
            quick=args.quick,
        )  # fmt: skip
    what = f"head's peak extra memory, {MEMORY_BATCH} × {LENGTH}, V = 30,522"
    yield Row(what, "fp32", "transformers", *head_memory(30522), "MB", MEMORY_CLAIM)
    if hasattr(F, "linear_cross_entropy"):  # since PyTorch 2.13
        for precision in ("fp32", "bf16"):
            what = "a linear layer and its loss, 307 labels, V = 30,522"
            sides = linear_and_loss(30522, precision)
            yield compared(what, precision, "F.linear_cross_entropy", sides, least=15, seconds=8.0,
                           quick=args.quick)  # fmt: skip
    for precision in precisions():
        for what in ("encoder, inference", "encoder, inference, a third padding"):
            sides = inference(precision, padded="padding" in what)
            claim = INFERENCE_CLAIMS[precision]
            yield compared(what, precision, "transformers", sides, at_least=claim, calls=2,
                           seconds=12.0, quick=args.quick)  # fmt: skip


def precisions():
    """The precisions to measure: fp32, and bf16 where the CPU is faster in it."""
    return ["fp32", "bf16"] if precision_taken("cpu")[0] == "bf16" else ["fp32"]


def precision_context(precision):
    """Autocast to bf16, or nothing."""
    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()


def both(vocab_size):
    """transformers' model, ours with the same weights, and a batch: ids and labels.

    The probability of dropout is that of BERT, 0.1.
    """
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
    )
    theirs = BertForMaskedLM(config)
    input_ids = torch.randint(5, vocab_size, (BATCH, LENGTH))
    labels = torch.where(torch.rand(input_ids.shape) < RATE, input_ids, IGNORE)
    return theirs, from_hf(theirs), input_ids, labels


def training_step(vocab_size, precision):
    """A training step of each side: forward pass, loss, backward pass and AdamW."""
    theirs, ours, input_ids, labels = both(vocab_size)
    attention_mask = torch.ones_like(input_ids)
    return (
        step(theirs, lambda: theirs(input_ids, attention_mask, labels=labels).loss, precision),
        step(ours, lambda: ours(input_ids, attention_mask, labels=labels)["loss"], precision),
    )


def our_step(precision):
    """A training step of our side alone."""
    return training_step(8192, precision)[1]


def step(model, loss, precision):
    """A function that makes one training step of a model with the loss that `loss()` computes."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)

    def run():
        with precision_context(precision):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def linear_and_loss(vocab_size, precision):
    """The logits of 15% of the positions, their loss and the backward pass.

    The first side is torch's one function for all of this; the second is ours, in two parts.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    hidden = torch.randn(round(RATE * BATCH * LENGTH), WIDTH, dtype=dtype, requires_grad=True)
    weight = (0.02 * torch.randn(vocab_size, WIDTH)).to(dtype).requires_grad_()
    labels = torch.randint(vocab_size, hidden.shape[:1])

    def side(loss):
        return lambda: torch.autograd.grad(loss(), (hidden, weight))

    return (
        side(lambda: F.linear_cross_entropy(hidden, weight, labels)),
        side(lambda: masked_cross_entropy(F.linear(hidden, weight), labels)),
    )


def inference(precision, *, padded):
    """The encoder's forward pass without gradients, on both sides."""
    theirs, ours, input_ids, _ = both(8192)
    lengths = torch.randint(LENGTH // 3, LENGTH + 1, (BATCH, 1)) if padded else LENGTH
    attention_mask = (torch.arange(LENGTH) < lengths).expand(BATCH, LENGTH).long()
    theirs.eval(), ours.eval()

    def side(encoder):
        def run():
            with torch.no_grad(), precision_context(precision):
                encoder(input_ids, attention_mask)

        return run

    return side(theirs.bert), side(ours.embedder)


def head_memory(vocab_size):
    """The peak extra memory of the head in forward pass, loss and backward pass, in megabytes."""
    theirs, ours, _, _ = both(vocab_size)
    hidden = torch.randn(MEMORY_BATCH, LENGTH, WIDTH, requires_grad=True)
    shape = hidden.shape[:2]
    labels = torch.where(torch.rand(shape) < RATE, torch.randint(5, vocab_size, shape), IGNORE)

    def their_head():
        logits = theirs.cls(hidden)
        F.cross_entropy(logits.view(-1, vocab_size), labels.view(-1)).backward()

    def our_head():
        labelled = labels != IGNORE
        masked_cross_entropy(ours.head(hidden, labelled), labels[labelled]).backward()

    return [peak_memory(head) / 1e6 for head in (their_head, our_head)]


def peak_memory(run):
    """The largest number of bytes in use at once during a call, minus those in use at its start."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        recorded.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted(
        (event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]"
    )
    peak = now = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak or math.nan


if __name__ == "__main__":
    given = arguments(__doc__)
    report(rows(given), given)
