"""The modern encoder: rotary positions, windows that reach as far as said, no padding."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn as nn
from torch.testing import assert_close
from toys import REAL, drawn, ids_of
from training_toys import VOCAB, assert_same, go
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from mlm_lib.leakage import dependencies
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernBlocks, ModernConfig, ModernEncoder, RotaryEmbedding

pytestmark = pytest.mark.usefixtures("one_thread")

V, H, A, T = 40, 16, 2, 9
SIZES = {"vocab_size": V, "hidden_size": H, "num_layers": 4, "num_heads": A}
SIZES |= {"intermediate_size": 24, "window": 4}
SHARES = ("embedding_dropout", "attention_dropout", "mlp_dropout")
EMPTY = torch.cat([REAL[:3], torch.zeros(1, T).bool(), REAL[3:]])  # and a row of padding alone
exact = {"rtol": 1e-12, "atol": 1e-12}
either = pytest.mark.parametrize("unpadded", [True, False], ids=["unpadded", "padded"])


def ours(dtype=torch.float64, *, unpadded=True, **options):
    encoder = ModernEncoder(ModernConfig(**SIZES | options), unpadded=unpadded)
    return drawn(encoder, 0, 0.4).to(dtype).eval()


# ------------------------------------------------------------------------------------ rotary


def vectors(count, dtype=torch.float64):
    return torch.randn(count, 3, 8, dtype=dtype)  # of three heads of 8


def test_pairs_stand_half_a_head_apart_and_turn_ever_more_slowly():
    turned = RotaryEmbedding(torch.tensor([2]), 4, 100.0).rotate(torch.ones(1, 1, 4))[0, 0]
    # θ^(2i/D) is 1 and 10: angles of 2 and of 0.2.
    expected = [math.cos(angle) - math.sin(angle) for angle in (2, 0.2)]
    expected += [math.cos(angle) + math.sin(angle) for angle in (2, 0.2)]
    assert_close(turned, torch.tensor(expected))


@pytest.mark.parametrize("theta", [10.0, 10_000.0])
def test_a_product_depends_on_the_distance_alone(theta):
    def product(at, other):
        turned = (RotaryEmbedding(torch.tensor([place]), 8, theta) for place in (at, other))
        return (next(turned).rotate(query) * next(turned).rotate(key)).sum(-1)

    query, key = vectors(1), vectors(1)
    for shift in (1, 17, 400):  # angles are of float32
        assert_close(product(3 + shift, 8 + shift), product(3, 8), rtol=0, atol=1e-4)
    assert not torch.allclose(product(3, 9), product(3, 8))


def test_it_is_the_rotation_of_transformers():
    some, rotary = vectors(9, torch.float32), RotaryEmbedding(torch.arange(9), 8, 160_000.0)
    cos, sin = rotary.cos[:, 0], rotary.sin[:, 0].repeat(1, 2)  # (N, D)
    theirs, _ = apply_rotary_pos_emb(some, some, cos, sin, unsqueeze_dim=1)
    assert_close(rotary.rotate(some), theirs, rtol=1e-6, atol=1e-6)
    assert torch.equal(rotary.rotate(some)[0], some[0])  # position 0 changes nothing
    rows = torch.stack([some, some + 1])  # a batch is turned row by row
    assert torch.equal(rotary.rotate(rows)[1], rotary.rotate(rows[1]))


def test_gradients_are_turned_back():
    rotary, some = RotaryEmbedding(torch.tensor([4, 0, 700]), 8, 30.0), vectors(3).requires_grad_()
    assert torch.autograd.gradcheck(rotary.rotate, some)
    assert torch.autograd.gradgradcheck(rotary.rotate, some)


def test_half_precision_is_turned_in_float32_and_its_gradient_is_half_again():
    some, rotary = (
        vectors(4, torch.bfloat16).requires_grad_(),
        RotaryEmbedding(torch.arange(4), 8, 30.0),
    )
    turned = rotary.rotate(some)
    assert turned.dtype == torch.float32
    assert torch.equal(turned, rotary.rotate(some.detach().float()))
    turned.sum().backward()
    assert some.grad.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "wrong", [{"theta": 0}, {"theta": math.nan}, {"positions": torch.ones(2, 2)}]
)
def test_what_would_be_turned_wrongly_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        RotaryEmbedding(**{"positions": torch.arange(3), "head_size": 8, "theta": 10.0} | wrong)


@pytest.mark.parametrize("size", [1, 7])
def test_a_head_that_cannot_be_paired_is_not_turned(size):
    with pytest.raises(RuntimeError):
        RotaryEmbedding(torch.arange(3), size, 10.0).rotate(torch.ones(3, 2, size))


# ------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize(
    "dtype, close", [(torch.float64, 1e-11), (torch.float32, 1e-5), (torch.bfloat16, 0.1)], ids=str
)
@pytest.mark.parametrize("real", [EMPTY, REAL.repeat(1, 6)], ids=["short", "long"])
def test_unpadded_gives_what_padded_gives(real, dtype, close):
    model = ours(dtype, unpadded=True)
    other = copy.deepcopy(model)
    other.unpadded = False
    one, two = (each(ids_of(V, real), real, output_hidden_states=True) for each in (model, other))
    for pair in zip(one.hidden_states, two.hidden_states, strict=True):
        assert_close(*pair, rtol=close, atol=close)
    if dtype == torch.float64:
        signal = torch.randn(one.last.shape, dtype=dtype)
        found = torch.autograd.grad(one.last, list(model.parameters()), signal)
        wanted = torch.autograd.grad(two.last, list(other.parameters()), signal)
        for pair in zip(found, wanted):
            assert_close(*pair, rtol=1e-10, atol=1e-10)


@either
def test_a_document_does_not_feel_where_in_its_row_it_stands(unpadded):
    """Rotary positions know distances alone, so padding on the left is as good as on the right."""
    model = ours(unpadded=unpadded)
    ids = ids_of(V)[:1, :5]
    for shift in range(5):
        shifted, real = torch.zeros(1, T, dtype=torch.long), torch.zeros(1, T, dtype=torch.long)
        shifted[:, shift : shift + 5], real[:, shift : shift + 5] = ids, 1
        found = model(shifted, real)[0, shift : shift + 5]
        assert_close(found, model(ids)[0], rtol=1e-5, atol=1e-5)  # angles are of float32


def test_it_can_be_exported_and_then_computes_padding():
    model, ids = ours(torch.float32), ids_of(V)
    exported = torch.export.export(model, (ids, REAL.long())).module()
    assert_close(exported(ids, REAL.long()), model(ids, REAL.long()), rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------ reach


def reach_of(layers, window, length):
    """Which inputs the outputs of some local layers depend on."""
    config = ModernConfig(**SIZES | {"num_layers": layers + 1, "window": window})
    config.global_every = layers + 1  # the first is global, and left out
    blocks = ModernEncoder(replace(config, initializer_range=0.5)).blocks[1:]
    assert isinstance(blocks, ModernBlocks) and len(blocks) == layers
    return dependencies(blocks, H, direction="forward", length=length)


@pytest.mark.parametrize(
    "layers, window, length", [(1, 2, 12), (1, 5, 12), (2, 4, 12), (3, 2, 12), (1, 2, 30)]
)  # 30 tokens are far beyond eight half windows, and are read piece by piece
def test_the_reach_of_a_window_is_counted_by_its_dependencies(layers, window, length):
    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    assert torch.equal(reach_of(layers, window, length), distance <= layers * (window // 2))


@pytest.mark.slow
def test_a_window_of_128_sees_64_to_each_side_and_itself():
    seen = reach_of(1, 128, 140)
    assert seen[70].sum() == 129 and seen[70].nonzero()[[0, -1]].flatten().tolist() == [6, 134]


def test_a_global_layer_reaches_everything():
    blocks = ModernEncoder(ModernConfig(**SIZES | {"initializer_range": 0.5})).blocks[:1]
    assert dependencies(blocks, H, direction="forward").all()


def test_every_third_layer_is_global_and_its_positions_turn_more_slowly():
    layers = [block.attention for block in ours(num_layers=7).blocks]
    assert [layer.half_window for layer in layers] == [None, 2, 2, None, 2, 2, None]
    assert [layer.theta for layer in layers[:3]] == [160_000.0, 10_000.0, 10_000.0]
    assert {block.attention.half_window for block in ours(global_every=1).blocks} == {None}


def test_attention_weights_are_0_beyond_the_window():
    distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
    model = ours()
    for block, weights in zip(model.blocks, model(ids_of(V), output_attentions=True).attentions):
        reach = T if block.attention.half_window is None else 2
        assert torch.equal(weights.any(0).any(0), distance <= reach)


def test_a_mask_without_a_real_token_is_refused():
    for unpadded in (True, False):
        with pytest.raises(ValueError, match="at least one real token"):
            ours(unpadded=unpadded)(torch.ones(2, 3).long(), torch.zeros(2, 3))


def test_attention_dropout_acts_on_the_weights_and_on_the_output():
    model = ours(attention_dropout=1.0).train()  # nothing of attention is left
    assert model.blocks[0].attention.dropout.p == 1.0
    states = model(ids_of(V), REAL, output_hidden_states=True).hidden_states
    for block, before, after in zip(model.blocks[:-1], states, states[1:]):
        assert_close(after, before + block.feed_forward(block.feed_forward_norm(before)), **exact)


# ------------------------------------------------------------------------ initial weights, training


def test_a_fresh_encoder_has_modernberts_initial_weights():
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 100, "num_layers": 8}
    model = MaskedLanguageModel.from_config(ModernConfig(**SIZES | sizes))
    block, cut = model.embedder.blocks[3], 0.8796  # a normal cut off at 2 σ is narrower
    for part in (model.embedder.embeddings.word, block.attention.query_key_value, block.expand):
        assert part.weight.std().item() == pytest.approx(0.02 * cut, rel=0.05)
    for part in (block.attention.output, block.contract, model.head.dense):  # add to the stream
        assert part.weight.std().item() == pytest.approx(0.02 * cut / 4, rel=0.05)
    for weight in model.parameters():
        assert weight.abs().max() <= 0.04 or (weight == 1).all()
    assert [name for name, _ in model.named_parameters() if "bias" in name] == ["head.bias"]
    assert model.head.tied and isinstance(model.embedder.blocks[0].attention_norm, nn.Identity)


def modern_tiny(**options):
    torch.manual_seed(0)
    config = ModernConfig(len(VOCAB), 16, 3, 2, 24, window=4, **options)
    return MaskedLanguageModel.from_config(config)


def test_five_steps_of_training_lower_the_loss_with_and_without_padding():
    losses = []
    for unpadded in (True, False):
        model = modern_tiny()
        model.embedder.unpadded = unpadded
        _, history = go(model=model, steps=5, learning_rate=0.01, warmup=0, log_every=1)
        losses.append([row["loss"] for row in history.rows])
        assert losses[-1][-1] < losses[-1][0] - 0.01
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_run_that_is_resumed_ends_with_the_same_weights(tmp_path):
    drops = {"attention_dropout": 0.1, "mlp_dropout": 0.1}
    budget = {"schedule": "constant", "warmup": 2}
    whole, _ = go(model=modern_tiny(**drops), steps=6, **budget)
    go(tmp_path, model=modern_tiny(**drops), steps=3, **budget)
    again, _ = go(tmp_path, model=modern_tiny(**drops), steps=6, resume=True, **budget)
    assert_same(whole, again)
