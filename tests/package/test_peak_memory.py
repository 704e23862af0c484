import torch

from mlm_lib.engine.peak_memory import PeakMemory


def test_what_died_before_does_not_count():
    with PeakMemory() as memory:
        for _ in range(5):
            torch.ones(1000)
    assert memory.peak == 4000


def test_views_and_tensors_from_before_do_not_count():
    before = torch.ones(1000)
    with PeakMemory() as memory:
        kept = before.view(10, 100).t()[3:]
        before.add_(1)
    assert memory.peak == 0 and kept.shape == (97, 10)


def test_the_backward_pass_counts():
    x = torch.ones(1000, requires_grad=True)
    with PeakMemory() as forward:
        loss = x.exp().sum()
    with PeakMemory() as both:
        loss = x.exp().sum()
        loss.backward()
    assert both.peak > forward.peak >= 4000


def test_sparse_gradients_pass():
    table = torch.nn.Embedding(100_000, 8, sparse=True)
    with PeakMemory() as memory:
        table(torch.tensor([1, 2])).sum().backward()
    assert table.weight.grad.is_sparse and memory.peak < 100_000 * 8
