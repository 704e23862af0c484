"""The sampled softmax against the full one, at small V and large: `python -m benchmarks.softmax`.

Prints a Markdown table, and exits with 1 if a claim fails: that a sampled step at V = 1,000,000
costs about as much as at 50,000, and a small part of a full one. A step is forward, backward and
the optimizer's update.
"""

import statistics
import sys
import time

import torch

from benchmarks.model import peak_memory
from benchmarks.turns import medians, versions
from mlm_lib.softmax import SampledSoftmaxLoss, SoftmaxLoss

N, D, SAMPLES = 256, 128, 1000
SMALL, LARGE = 50_000, 1_000_000
GROWTH = 1.5  # the factor by which a sampled step grows at most from SMALL to LARGE
GAIN = 15  # how many times more a full one costs at least


def main():
    """Measure, print the table, and say which claims hold."""
    torch.manual_seed(0)
    print(f"{versions()}; N = {N}, D = {D}, {SAMPLES:,} samples\n")
    print("| softmax | V | one step | peak extra memory |\n|---|---:|---:|---:|")
    steps = [sampled_step(V) for V in (SMALL, LARGE)]
    sampled = medians(steps, warm_up=20, seconds=20.0)
    for V, step, ms in zip((SMALL, LARGE), steps, sampled):
        print_row("sampled", V, ms, step)
    full = []
    for V in (SMALL, LARGE):
        step = full_step(V)
        full.append(full_time(step))
        print_row("full", V, full[-1], step)
    growth, gain = sampled[1] / sampled[0], full[1] / sampled[1]
    print("\n| claim | measured | bound |\n|---|---:|---:|")
    print(f"| sampled, V = {LARGE:,} over V = {SMALL:,} | {growth:.2f} | at most {GROWTH} |")
    print(f"| full over sampled, V = {LARGE:,} | {gain:.0f} | at least {GAIN} |")
    if growth > GROWTH or gain < GAIN:
        sys.exit("\na claim does not hold")


def print_row(what, V, ms, step):
    print(f"| {what} | {V:,} | {ms:,.1f} ms | {peak_memory(step) / 1e6:,.1f} MB |", flush=True)


def sampled_step(V):
    """A training step of the sampled softmax, with sparse gradients."""
    loss = SampledSoftmaxLoss(V, D, SAMPLES, sparse=True)
    return step_of(loss, torch.optim.SparseAdam(loss.parameters(), lr=1e-3))


def full_step(V):
    """A training step of the full softmax, with the fastest Adam that torch has."""
    loss = SoftmaxLoss(V, D)
    return step_of(loss, torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True))


def step_of(loss, optimizer):
    embeddings = torch.randn(N, D, requires_grad=True)
    targets = torch.randint(loss.vocab_size, (N,))

    def step():
        loss(embeddings, targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        embeddings.grad = None

    return step


def full_time(step, *, warm_up=2, rounds=7):
    """Median milliseconds of a step that is too slow, and too large, to take turns with others."""
    times = []
    for _ in range(warm_up + rounds):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm_up:]) * 1000


if __name__ == "__main__":
    main()
