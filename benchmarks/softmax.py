"""The sampled softmax against the full softmax: `python -m benchmarks.softmax`.

A sampled step takes about as long with a vocabulary of V = 1,000,000 as with one of 50,000, and a
small part of the time of a full step. A step is the forward pass, the backward pass and the update
by the optimizer, for N = 256 targets, vectors of width D = 128 and 1,000 samples. Memory is the
additional memory of a step at its peak.
"""

import statistics
import time

import torch

from benchmarks.model import peak_memory
from benchmarks.turns import Row, arguments, report, turns
from mlm_lib.softmax import SampledSoftmaxLoss, SoftmaxLoss

N, D, SAMPLES = 256, 128, 1000
SMALL, LARGE = 50_000, 1_000_000
GROWTH = 1.5  # claim: from SMALL to LARGE the time of a sampled step grows at most by this factor
GAIN = 15  # claim: at LARGE a full step takes at least this many times as long as a sampled step


def rows(args):
    """Measure time and memory of a step at both sizes, and the growth of a sampled step."""
    sizes = (SMALL,) if args.quick else (SMALL, LARGE)
    steps = [sampled_step(V) for V in (SMALL, LARGE)]
    small, large = turns(steps, warm_up=20, seconds=20.0, quick=args.quick)
    for V, step, times in zip(sizes, steps, (small, large)):
        full, ours = full_step(V), statistics.median(times)
        claim = GAIN if V == LARGE else None
        what, pair = f"V = {V:,}", (full_time(full), ours)
        yield Row(f"a step, {what}", "fp32", "full softmax", *pair, at_least=claim)
        pair = (peak_memory(side) / 1e6 for side in (full, step))
        yield Row(f"its peak extra memory, {what}", "fp32", "full softmax", *pair, "MB")
    pair = map(statistics.median, (small, large))
    against = f"sampled, V = {SMALL:,}"
    yield Row(f"sampled, V = {LARGE:,}", "fp32", against, *pair, at_least=round(1 / GROWTH, 2))


def sampled_step(V):
    """Make a training step of the sampled softmax, with sparse gradients."""
    loss = SampledSoftmaxLoss(V, D, SAMPLES, sparse=True)
    return step_of(loss, torch.optim.SparseAdam(loss.parameters(), lr=1e-3))


def full_step(V):
    """Make a training step of the full softmax, with the fastest Adam of torch."""
    loss = SoftmaxLoss(V, D)
    return step_of(loss, torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True))


def step_of(loss, optimizer):
    """Make the function that runs one training step on random vectors and targets."""
    embeddings = torch.randn(N, D, requires_grad=True)
    targets = torch.randint(loss.vocab_size, (N,))

    def step():
        loss(embeddings, targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        embeddings.grad = None

    return step


def full_time(step, *, warm_up=2, rounds=7):
    """Measure a full step by itself: the median time, in milliseconds.

    It is too slow, and needs too much memory, to alternate with the other sides as `turns` does.
    """
    times = []
    for _ in range(warm_up + rounds):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm_up:]) * 1000


if __name__ == "__main__":
    given = arguments(__doc__)
    report(rows(given), given)
