"""One-way readers: each size refused by its name, every position counted, and masks of two forms.

That they compute what they should, stand by stand, is tested through the language model, and that
they cannot peek in the tests of leakage.
"""

import math

import pytest
import torch

from mlm_lib import language_model
from mlm_lib.language_model import (
    Contextualizer,
    LSTMContextualizer,
    TransformerContextualizer,
    sinusoids,
)

pytestmark = pytest.mark.usefixtures("one_thread")

H = 6
MAKERS = {
    "lstm": lambda **options: LSTMContextualizer(H, H, 2, **{"bidirectional": True} | options),
    "transformer": lambda **options: TransformerContextualizer(
        H, 2, 2, **{"bidirectional": True} | options
    ),
}
each_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
VECTORS = torch.randn(2, 4, H, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0]])


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_positions_are_the_sines_and_cosines_of_the_paper(size):
    wanted = torch.zeros(30, size, dtype=torch.float64)
    for t in range(30):
        for i in range(size):
            angle = t / 10000 ** ((i - i % 2) / size)
            wanted[t, i] = math.cos(angle) if i % 2 else math.sin(angle)
    torch.testing.assert_close(sinusoids(30, size), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "num_layers"])
@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "2"])
def test_a_bad_size_of_the_lstm_is_an_error_with_its_name(name, size):
    with pytest.raises(ValueError, match=f"{name}={size!r}"):
        LSTMContextualizer(
            **{"input_size": 2, "hidden_size": 2, "num_layers": 1} | {name: size},
            bidirectional=True,
        )


@pytest.mark.parametrize("name", ["hidden_size", "num_layers", "num_heads"])
@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "2"])
def test_a_bad_size_of_the_transformer_is_an_error_with_its_name(name, size):
    with pytest.raises(ValueError, match=f"{name}={size!r}"):
        TransformerContextualizer(
            **{"hidden_size": 2, "num_layers": 1, "num_heads": 1} | {name: size}, bidirectional=True
        )


def test_heads_that_do_not_divide_the_width_are_an_error():
    with pytest.raises(ValueError, match="hidden_size=6.*num_heads=4"):
        TransformerContextualizer(6, 1, 4, bidirectional=False)


@each_kind
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_mask_of_0_and_1_says_what_a_bool_says_and_none_says_that_all_is_real(
    make, bidirectional
):
    module = make(bidirectional=bidirectional).eval()
    assert torch.equal(module(VECTORS, MASK), module(VECTORS, MASK.bool()))
    assert torch.equal(module(VECTORS, None), module(VECTORS, torch.ones_like(MASK)))


@each_kind
def test_nothing_is_looked_at_where_a_look_is_not_free(make, monkeypatch):
    module = make().eval()
    expected = module(VECTORS, MASK.bool()), module(VECTORS, torch.ones_like(MASK).bool())
    with monkeypatch.context() as patch:
        patch.setattr(language_model, "can_look", lambda tensor: False)
        patch.setattr(torch.Tensor, "__bool__", lambda tensor: pytest.fail("a look"))
        found = module(VECTORS, MASK.bool()), module(VECTORS, torch.ones_like(MASK).bool())
    torch.testing.assert_close(found, expected)


@each_kind
@pytest.mark.parametrize(
    "vectors, mask, words",
    [
        (VECTORS.tolist(), MASK, "embeddings=.*; a tensor"),
        (VECTORS[0], None, r"embeddings=.*\(4, 6\); a tensor \(B, T, E\)"),
        (VECTORS, MASK[:, 1:], r"mask=.*\(2, 3\); a tensor \(2, 4\)"),
        (VECTORS, MASK.tolist(), "mask=.*; a tensor"),
        (VECTORS, 2 * MASK, "mask holds 2"),
    ],
    ids=["list", "one row", "short mask", "mask list", "other values"],
)
def test_vectors_and_masks_that_cannot_be_read_are_refused(make, vectors, mask, words):
    with pytest.raises(ValueError, match=words):
        make()(vectors, mask)


@each_kind
@pytest.mark.parametrize("share", [-0.1, 1.5, math.nan, "0.1", None, True])
def test_a_dropout_that_is_no_probability_is_an_error_with_its_value(make, share):
    with pytest.raises(ValueError, match=f"dropout={share!r}"):
        make(dropout=share)


@each_kind
@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_a_direction_is_a_flag(make, wrong):
    with pytest.raises(ValueError, match=f"bidirectional={wrong!r}; True or False"):
        make(bidirectional=wrong)


@pytest.mark.parametrize(
    "arguments, name",
    [
        ((None, 1, 2, False), "make_stack"),
        ((torch.nn.Identity, 0, 2, False), "num_layers"),
        ((torch.nn.Identity, 1, 2.5, True), "output_size"),
        ((torch.nn.Identity, 1, 2, 1), "bidirectional"),
    ],
)
def test_a_contextualizer_of_the_readers_own_stack_is_checked_as_well(arguments, name):
    with pytest.raises(ValueError, match=f"{name}="):
        Contextualizer(*arguments)


@pytest.mark.parametrize(
    "name", ["Contextualizer", "LSTMContextualizer", "TransformerContextualizer", "sinusoids"]
)
def test_it_can_still_be_had_from_the_language_models_file(name):
    assert getattr(language_model, name) is getattr(language_model, name)
