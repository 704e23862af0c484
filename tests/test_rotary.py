"""Rotary positions: a product knows the distance, and nothing else of where two tokens stand."""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from mlm_lib.modern import Turns

A, D = 3, 8


def vectors(count, seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, A, D, generator=draw, dtype=dtype)


def test_a_quarter_turn_by_hand():
    # Two numbers are one pair, whose angle is the position itself.
    turns = Turns(torch.tensor([1]), 2, 100.0)
    turns.cos, turns.sin = torch.zeros(1, 1, 2), torch.ones(1, 1, 1)
    assert_close(turns.turn(torch.tensor([[[3.0, 4.0]]])), torch.tensor([[[-4.0, 3.0]]]))


def test_pairs_stand_half_a_head_apart_and_turn_ever_more_slowly():
    ones = torch.ones(1, 1, 4)
    turned = Turns(torch.tensor([2]), 4, 100.0).turn(ones)[0, 0]
    # θ^(2i/D) is 1 and 10: angles of 2 and of 0.2.
    expected = [math.cos(angle) - math.sin(angle) for angle in (2, 0.2)]
    expected += [math.cos(angle) + math.sin(angle) for angle in (2, 0.2)]
    assert_close(turned, torch.tensor(expected))


@pytest.mark.parametrize("theta", [10.0, 10_000.0])
def test_a_product_depends_on_the_distance_alone(theta):
    query, key = vectors(1), vectors(1, 1)
    products = []
    for shift in (0, 1, 17, 400):
        at = Turns(torch.tensor([3 + shift, 8 + shift]), D, theta)
        first = at.at(torch.tensor([0])).turn(query)
        products.append((first * at.at(torch.tensor([1])).turn(key)).sum(-1))
    for other in products[1:]:
        assert_close(other, products[0], rtol=0, atol=1e-4)  # angles are of float32
    far = Turns(torch.tensor([9]), D, theta).turn(key)
    assert not torch.allclose((Turns(torch.tensor([3]), D, theta).turn(query) * far).sum(-1), other)


def test_lengths_stay_and_position_0_changes_nothing():
    some = vectors(5)
    turned = Turns(torch.arange(5), D, 50.0).turn(some)
    assert_close(turned.norm(dim=-1), some.norm(dim=-1), rtol=1e-6, atol=1e-6)
    assert torch.equal(turned[0], some[0]) and not torch.allclose(turned[1], some[1])


def test_it_is_the_rotation_of_transformers():
    some = vectors(9, dtype=torch.float32)
    turns = Turns(torch.arange(9), D, 160_000.0)
    cos, sin = turns.cos[:, 0], turns.sin[:, 0].repeat(1, 2)  # (N, D)
    theirs, _ = apply_rotary_pos_emb(some, some, cos, sin, unsqueeze_dim=1)
    assert_close(turns.turn(some), theirs, rtol=1e-6, atol=1e-6)


def test_gradients_are_turned_back():
    turns, some = Turns(torch.tensor([4, 0, 700]), D, 30.0), vectors(3).requires_grad_()
    assert torch.autograd.gradcheck(turns.turn, some)
    assert torch.autograd.gradgradcheck(turns.turn, some)


def test_half_precision_is_turned_in_float32_and_its_gradient_is_half_again():
    some = vectors(4, dtype=torch.bfloat16).requires_grad_()
    turned = Turns(torch.arange(4), D, 30.0).turn(some)
    expected = Turns(torch.arange(4), D, 30.0).turn(some.detach().float())
    assert turned.dtype == torch.float32 and torch.equal(turned, expected)
    turned.sum().backward()
    assert some.grad.dtype == torch.bfloat16


def test_a_batch_of_rows_is_turned_row_by_row():
    turns, some = Turns(torch.arange(5), D, 30.0), vectors(10).view(2, 5, A, D)
    assert torch.equal(turns.turn(some)[1], turns.turn(some[1]))


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"head_size": 7}, "head_size=7.*even"),
        ({"head_size": 0}, "head_size=0; a whole number of at least 2"),
        ({"theta": 0}, "theta=0; a finite number above 0"),
        ({"theta": math.nan}, "theta=nan"),
        ({"positions": torch.zeros(2, 2)}, r"positions=.*a tensor \(N,\)"),
    ],
    ids=str,
)
def test_what_cannot_be_turned_is_refused_by_name(wrong, words):
    with pytest.raises(ValueError, match=words):
        Turns(**{"positions": torch.arange(3), "head_size": 8, "theta": 10.0} | wrong)


def test_whole_numbers_are_not_turned():
    with pytest.raises(ValueError, match="vectors=.*floating-point"):
        Turns(torch.arange(2), 2, 10.0).turn(torch.ones(2, 1, 2).long())
