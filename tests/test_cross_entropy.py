"""Cross-entropy in parts: the same numbers as torch's, with nothing as large as the logits kept."""

import pytest
import torch
import torch.nn.functional as F

from mlm_lib import losses as cross_entropy
from mlm_lib.engine.peak_memory import PeakMemory
from mlm_lib.losses import summed_cross_entropy

by_parts = cross_entropy._ByParts.apply
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Three rows of eleven words at once, so that the last part is smaller than the others."""
    monkeypatch.setattr(cross_entropy, "PART", 33)


def problem(dtype, rows=7, vocab_size=11):
    draw = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(rows, vocab_size, dtype=torch.float64, generator=draw)
    targets = torch.randint(vocab_size, (rows,), generator=draw)
    return logits.to(dtype).requires_grad_(), targets


def losses(dtype, scale=1.0, change=None):
    """((loss, gradient) of ours, of torch's) on the same logits."""
    found = []
    for function in (by_parts, lambda x, t: F.cross_entropy(x, t, reduction="sum")):
        logits, targets = problem(dtype)
        if change:
            change(logits.data)
        wide = logits if function is by_parts or dtype.itemsize >= 4 else logits.float()
        loss = function(wide, targets)
        (loss * scale).backward()
        found.append((loss.detach(), logits.grad))
    return found


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_loss_and_the_gradient_are_torchs(dtype):
    ours, theirs = losses(dtype, scale=0.25)
    torch.testing.assert_close(ours, theirs)
    assert ours[0].dtype == max(dtype, torch.float32, key=lambda d: d.itemsize)
    assert ours[1].dtype == dtype


def test_the_gradient_agrees_with_finite_differences():
    logits, targets = problem(torch.float64)
    assert torch.autograd.gradcheck(lambda x: by_parts(x, targets), logits)


def test_words_that_are_ruled_out_and_huge_logits_do_no_harm():
    def change(logits):
        logits[:, -1] = -torch.inf
        logits[1] *= 1e4
        logits[2] += 1e30

    ours, theirs = losses(torch.float32, change=change)
    torch.testing.assert_close(ours, theirs)


def test_nothing_but_two_numbers_a_row_are_kept():
    logits, targets = problem(torch.bfloat16)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        summed_cross_entropy(logits, targets)
    new = [x for x in kept if x.data_ptr() not in (logits.data_ptr(), targets.data_ptr())]
    assert [tuple(x.shape) for x in new] == [(7,), (7,)]


def test_the_way_back_holds_the_gradient_and_one_part():
    logits, targets = problem(torch.bfloat16, rows=30)
    loss = by_parts(logits, targets)
    with PeakMemory() as memory:
        loss.backward()
    gradient, part = 30 * 11 * 2, 3 * 11 * 4
    assert gradient + part <= memory.peak < gradient + 2 * part + 30 * 4, memory.peak


@pytest.mark.parametrize("dtype, part", [(torch.float32, 33), (torch.bfloat16, 77)])
def test_full_precision_and_a_few_logits_are_left_to_torch(monkeypatch, dtype, part):
    monkeypatch.setattr(cross_entropy, "PART", part)
    logits, targets = problem(dtype)
    assert type(summed_cross_entropy(logits, targets).grad_fn).__name__ == "NllLossBackward0"
