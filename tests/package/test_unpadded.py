"""Documents in one row: each is mixed by itself, whatever its neighbours, holes and length."""

import pytest
import torch
from torch.testing import assert_close

from mlm_lib.encoder import attend
from mlm_lib.unpadded import LONG_DOCUMENT, Padded, Unpadded

A, D = 2, 4
exact = {"rtol": 1e-12, "atol": 1e-12}


def rows(shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, A, D, generator=draw, dtype=torch.float64)


def mask_of(lengths, width=None):
    return torch.arange(width or max(lengths)) < torch.tensor(lengths)[:, None]


def holes(shape, seed=0):
    real = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    real[:, 0] = True
    return real


def by_definition(parts, real, half_window):
    """Attention written as softmax over whom each token sees, one token at a time."""
    mixed = torch.zeros(*real.shape, A * D, dtype=torch.float64)
    query, key, value = parts
    for row, at in real.nonzero().tolist():
        there = real[row].nonzero().squeeze(1)
        if half_window is not None:
            there = there[(there - at).abs() <= half_window]
        scores = torch.einsum("ad,sad->as", query[row, at], key[row, there]) / D**0.5
        mixed[row, at] = torch.einsum("as,sad->ad", scores.softmax(-1), value[row, there]).flatten()
    return mixed


BATCHES = {
    "padded on the right": mask_of([9, 3, 1]),
    "padded on the left": mask_of([9, 3, 1]).flip(1),
    "with holes": holes((3, 12)),
    "an empty row": mask_of([5, 0, 2]),
    "nothing padded": mask_of([6, 6]),
    "one token": mask_of([1]),
    "long": mask_of([3 * LONG_DOCUMENT + 5, 2, 2 * LONG_DOCUMENT], 3 * LONG_DOCUMENT + 7),
    "long, of one length": mask_of([2 * LONG_DOCUMENT] * 2),
    "long, with holes": holes((3, 5 * LONG_DOCUMENT)),
}


@pytest.mark.parametrize("real", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("half_window", [None, 1, 2, 3])
def test_both_layouts_mix_as_the_definition_says(real, half_window):
    parts = [rows(real.shape, seed) for seed in range(3)]
    expected = by_definition(parts, real, half_window)
    short, padded = Unpadded(real), Padded(real, real.shape, real.device)
    mixed = short.put(short.mix(*map(short.take, parts), attend, half_window)[0])
    assert_close(mixed, expected, **exact)
    assert_close(padded.put(padded.mix(*parts, attend, half_window)[0]), expected, **exact)


@pytest.mark.parametrize("real", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("half_window", [None, 1, 3])
def test_gradients_of_both_layouts_are_the_same(real, half_window):
    found = []
    for layout in (Unpadded(real), Padded(real, real.shape, real.device)):
        parts = [rows(real.shape, seed).requires_grad_() for seed in range(3)]
        mixed = layout.put(layout.mix(*map(layout.take, parts), attend, half_window)[0])
        found.append(torch.autograd.grad((mixed * rows(real.shape, 7).flatten(2)).sum(), parts))
    for one, other in zip(*found):
        assert_close(one, other, **exact)
        assert not one[~real].any()


def test_long_documents_are_read_in_windows_and_never_whole():
    real, asked = mask_of([4 * LONG_DOCUMENT] * 2), []

    def watched(query, key, value, mask, dropout_p):
        asked.append((query.shape[2], key.shape[2]))
        return attend(query, key, value, mask, dropout_p=dropout_p)

    layout = Unpadded(real)
    layout.mix(*(layout.take(rows(real.shape)) for _ in range(3)), watched, 2)
    assert asked == [(4, 8)]  # pieces of 2·2, each with 2 more at both ends


def test_documents_of_one_length_are_mixed_in_one_call():
    assert Unpadded(mask_of([4, 4, 4], 6)).calls == [(3, 4)]
    assert Unpadded(mask_of([4, 0, 3, 4, 9])).calls == [(1, 3), (2, 4), (1, 9)]


@pytest.mark.parametrize("real", BATCHES.values(), ids=BATCHES)
def test_there_and_back(real):
    batch, layout = rows(real.shape).flatten(2), Unpadded(real)
    assert layout.take(batch).shape == (real.sum(), A * D)
    back = layout.put(layout.take(batch))
    assert torch.equal(back[real], batch[real]) and not back[~real].any()


SELECTIONS = {
    "(N, H)": lambda states: states[holes(states.shape[:2], 3)],
    "(B, M, H)": lambda states: states[:, [4, 0, 4]],
    "(B, H)": lambda states: states[:, 0],
    "nothing": lambda states: states[torch.zeros(states.shape[:2], dtype=torch.bool)],
}


@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("real", [holes((4, 7)), mask_of([7, 0, 2]), torch.zeros(2, 7).bool()])
def test_picking_rows_needs_no_padding_either(select, real):
    batch, layout = rows(real.shape).flatten(2), Unpadded(real)
    expected = select(batch * real[..., None])
    assert torch.equal(layout.pick(layout.take(batch), select), expected)
    padded = Padded(real, real.shape, real.device)
    assert torch.equal(padded.pick(batch, select), expected)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)], ids=str)
def test_batches_may_be_empty(shape):
    layout = Unpadded(torch.ones(shape, dtype=torch.bool))
    parts = [layout.take(rows(shape)) for _ in range(3)]
    assert layout.put(layout.mix(*parts, attend, 2)[0]).shape == (*shape, A * D)


@pytest.mark.parametrize("half_window", [None, 2])
def test_the_kernel_is_told_where_documents_end(monkeypatch, half_window):
    real = mask_of([9, 3, 0, 1])

    def kernel(query, key, value, ends, same_ends, longest, same_longest, window_size):
        assert ends is same_ends and longest == same_longest == 9
        mixed = []
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist()):
            parts = [part[None, start:end] for part in (query, key, value)]
            row = torch.ones(1, end - start, dtype=torch.bool)
            near = half_window and window_size[0]
            mixed.append(by_definition(parts, row, near)[0].unflatten(-1, (A, D)))
        assert window_size == ((-1, -1) if half_window is None else (2, 2))
        return torch.cat(mixed)

    monkeypatch.setattr("mlm_lib.unpadded.varlen_attn", kernel)
    monkeypatch.setattr(Unpadded, "_kernel_fits", lambda *_: True)
    parts, layout = [rows(real.shape, seed) for seed in range(3)], Unpadded(real)
    mixed = layout.put(layout.mix(*map(layout.take, parts), attend, half_window)[0])
    assert_close(mixed, by_definition(parts, real, half_window), **exact)
