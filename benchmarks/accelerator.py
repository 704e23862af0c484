"""One GPU, against transformers and its own peak: `python -m benchmarks.accelerator --device cuda`.

In bf16 under autocast, with a fused AdamW, transformers' attention by SDPA. A share of the peak is
the operations of a step's matrix products (lesson 19 counts them) over those that the largest
products reach in the same run. With `--quick` sizes are tiny, so that a CPU can try all of it.
"""

import gc
import time

import torch

from benchmarks.training import Shape, loops, random_data
from benchmarks.turns import Row, arguments, compared, report
from mlm_lib.labels import IGNORE
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig
from mlm_lib.pretrained import from_hf

ASKED = 0.15
TINY = Shape(120, 32, 2, 2, 16, 2)
SHAPES = {  # (shape, the share of the peak and the times Trainer's loop that we claim)
    "BERT-base, 512": (Shape(30522, 768, 12, 12, 512, 32), 0.25, 1.4),
    "course-bert, 128": (Shape(8192, 256, 4, 4, 128, 256), None, 1.5),
}
MODERN = {"vocab_size": 50368, "width": 768, "layers": 22, "heads": 12}  # ModernBERT-base
LONGEST, DOCUMENTS, PUBLISHED = 1024, 64, 300_000  # tokens, rows, tokens a second


def rows(args):
    """Steps, their share of the peak and their memory, whole loops, and a batch without padding."""
    top = peak(args)
    for name, (shape, share, times) in SHAPES.items():
        shape = TINY if args.quick else shape
        tokens = shape.batch * shape.length
        batch, asked = random_batch(shape, args.device)
        sides = [step_of(new().to(args.device), batch, args.device) for new in makers(shape)]
        row = compared(f"training step, {name}", "bf16", "transformers", sides,
                       tokens=tokens, warm_up=5, least=20, quick=args.quick)  # fmt: skip
        yield row
        del sides
        reached = row.ours / tokens * operations(shape, asked) / 1e12
        what = f"products of a step, {name}"
        yield Row(what, "bf16", "the peak", top, reached, "10¹² operations/s", share)
        if args.device == "cuda":
            pair = (most_memory(new, batch, args.device) / 1e6 for new in makers(shape))
            yield Row(f"peak memory of a step, {name}", "bf16", "transformers", *pair, "MB", 1.0)
        yield loops(f"loop, {name}", "bf16", "bf16", shape, random_data(shape, 40 * shape.batch),
                    at_least=times, device=args.device, quick=args.quick)  # fmt: skip
    yield without_padding(args)


def wait(device):
    if device != "cpu":
        torch.cuda.synchronize()


def peak(args):
    """The most operations in a second, in 10¹², of ten products of large matrices in bf16."""
    n, best = 256 if args.quick else 8192, float("inf")
    one, other = (torch.randn(n, n, device=args.device).bfloat16() for _ in range(2))
    for _ in range(10):
        wait(args.device)
        begin = time.perf_counter()
        one @ other
        wait(args.device)
        best = min(best, time.perf_counter() - begin)
    return 2 * n**3 / best / 1e12


def operations(shape, asked):
    """Of the products of our training step: the last block's second half is for `asked` places."""
    H, places = shape.width, shape.batch * shape.length
    mixing = places * (6 * H * H + 4 * shape.length * H)  # Q, K, V; scores and weighted values
    alone = 18 * H * H  # of each token: output, feed-forward
    forward = shape.layers * mixing + ((shape.layers - 1) * places + asked) * alone
    return 3 * (forward + asked * (2 * H * H + 2 * H * shape.vocab_size))


def step_of(model, batch, device):
    """Forward, loss, backward and AdamW, to their end."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)

    def run():
        with torch.autocast(device, torch.bfloat16):
            loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wait(device)

    return run


def random_batch(shape, device):
    """A batch of random ids, and how many places it asks."""
    ids = torch.randint(5, shape.vocab_size, (shape.batch, shape.length), device=device)
    labels = torch.where(torch.rand(ids.shape, device=device) < ASKED, ids, IGNORE)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    return batch, (labels != IGNORE).sum().item()


def makers(shape):
    """Two functions that make their model and ours, with the same weights at each call."""
    return shape.new, lambda: from_hf(shape.new())


def most_memory(new, batch, device):
    """The most bytes that a model, its optimizer and a step hold on the device.

    What is there before the model is made does not count, so that no other model is measured.
    """
    gc.collect()
    before = torch.cuda.memory_allocated()
    step = step_of(new().to(device), batch, device)
    step()  # the first one, in which AdamW makes its two means
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


def without_padding(args):
    """ModernBERT-base on documents of many lengths, real tokens only, against what is published."""
    sizes = MODERN if not args.quick else MODERN | {"vocab_size": 120, "width": 32, "layers": 2}
    longest, count = (16, 4) if args.quick else (LONGEST, DOCUMENTS)
    heads = 2 if args.quick else sizes["heads"]
    config = ModernConfig(sizes["vocab_size"], sizes["width"], sizes["layers"], heads,
                          3 * sizes["width"] // 2)  # fmt: skip
    lengths = torch.randint(longest // 16, longest + 1, (count, 1))
    mask = (torch.arange(longest) < lengths).long()  # it stays on the CPU, where all is planned
    ids = torch.randint(5, config.vocab_size, mask.shape)
    labels = torch.where((torch.rand(ids.shape) < ASKED) & mask.bool(), ids, IGNORE)
    batch = {"input_ids": ids.to(args.device), "attention_mask": mask}
    batch["labels"] = labels.to(args.device)
    model = MaskedLanguageModel.from_config(config).to(args.device)
    ours = step_of(model, batch, args.device)
    row = compared("ModernBERT-base without padding, training step", "bf16", "published",
                   (None, ours), tokens=mask.sum().item(), warm_up=5, quick=args.quick)  # fmt: skip
    row.theirs = PUBLISHED  # by others, on an H100 and with kernels of their own: we claim nothing
    return row


if __name__ == "__main__":
    given = arguments(__doc__)
    report(rows(given), given)
