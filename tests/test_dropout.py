"""Dropout by four decisions from one random number: its share, its mean, each value by itself."""

import math

import pytest
import torch
import torch.nn.functional as F

from mlm_lib import encoder
from mlm_lib.encoder import Dropout, drop


@pytest.mark.parametrize("share", [0.1, 0.37, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_drop_zeroes_its_share_and_keeps_the_mean(share, dtype):
    torch.manual_seed(0)
    values = torch.ones(
        333, 1001, dtype=dtype, requires_grad=True
    )  # a number that is no multiple of 4
    dropped = drop(values, share)
    error = (share * (1 - share) / values.numel()) ** 0.5
    assert abs((dropped == 0).double().mean() - share) < 5 * error + 1e-5
    assert dropped.dtype == dtype and len(dropped.unique()) == 2
    assert dropped.max().item() == pytest.approx(
        1 / (1 - share), rel=1e-2 if dtype == torch.bfloat16 else 1e-3
    )
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped)  # what was dropped gets no gradient


def test_drop_decides_for_each_value_by_itself_and_by_the_seed():
    torch.manual_seed(0)
    kept = drop(torch.ones(40_000, 4), 0.5) > 0
    patterns = (
        (kept * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16)
    )  # four neighbours share one random number
    assert ((patterns - 2500).abs() < 5 * 2500**0.5).all()
    torch.manual_seed(0)
    assert torch.equal(drop(torch.ones(40_000, 4), 0.5) > 0, kept)
    assert torch.equal(drop(torch.ones(3), 0.0), torch.ones(3)) and torch.equal(
        drop(torch.ones(3), 1.0), torch.zeros(3)
    )


def test_the_sixteen_bits_are_those_of_the_generator_and_the_factor_is_exact():
    torch.manual_seed(0)
    dropped = drop(torch.ones(3, 5), 0.25)
    torch.manual_seed(0)
    drawn = torch.empty(4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:15]
    assert torch.equal(dropped.flatten(), torch.where(drawn >= 2**14 - 2**15, 4 / 3, 0.0))


def test_a_share_below_one_in_65536_is_left_to_torch():
    torch.manual_seed(0)
    dropped = drop(torch.ones(1000), 1e-6)
    torch.manual_seed(0)
    assert torch.equal(dropped, F.dropout(torch.ones(1000), 1e-6))


def test_it_changes_neither_its_input_nor_anything_in_evaluation():
    values, layer = torch.ones(100), Dropout(0.5)
    assert (layer(values) == 0).any() and (values == 1).all()
    assert layer.eval()(values) is values
    assert repr(layer) == "Dropout(p=0.5, inplace=False)"


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, "0.1", None, True])
def test_a_share_that_is_no_probability_is_refused_by_value(share):
    with pytest.raises(ValueError, match=f"share={share!r}"):
        drop(torch.ones(3), share)
    with pytest.raises(ValueError, match=f"dropout={share!r}"):
        Dropout(share)


def test_it_can_still_be_had_from_the_encoders_file():
    assert encoder.drop is drop and encoder.Dropout is Dropout
