"""Both encoders: transformers' numbers at every layer, and padding that cannot be felt.

What only the modern encoder has is tested in `test_modern.py`.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.testing import assert_close
from toys import REAL, drawn, ids_of, rows_computed
from transformers import BertConfig, BertForMaskedLM

from mlm_lib.encoder import BertEncoder, Dropout, EncoderConfig, attention_weights, drop
from mlm_lib.modern import ModernConfig, ModernEncoder
from mlm_lib.pretrained import from_hf

pytestmark = pytest.mark.usefixtures("one_thread")

V, H, A, T = 40, 16, 4, 9
SIZES = {"vocab_size": V, "hidden_size": H, "num_layers": 3, "num_heads": A}
SIZES |= {"intermediate_size": 24, "max_length": T}
SHARES = ("embedding_dropout", "attention_dropout", "mlp_dropout")  # of today's encoder
EMPTY = torch.cat([REAL[:3], torch.zeros(1, T).bool(), REAL[3:]])  # and a row of padding alone
exact = {"rtol": 1e-12, "atol": 1e-12}
either_attention = pytest.mark.parametrize("weights", [False, True], ids=["fused", "with weights"])
each_encoder = pytest.mark.parametrize("kind", ["bert", "unpadded", "padded"])


def ours(kind="bert", dtype=torch.float64, **options):
    """A small `BertEncoder`, or a `ModernEncoder` that computes padding or does not."""
    if kind == "bert":
        encoder = BertEncoder(EncoderConfig(**SIZES | options))
    else:
        config = ModernConfig(**SIZES | {"window": 4} | options)
        encoder = ModernEncoder(config, unpadded=kind == "unpadded")
    return drawn(encoder, 0, 0.4).to(dtype).eval()


def dropping(kind, share):
    """The options that drop this share of everything."""
    return dict.fromkeys(("dropout",) if kind == "bert" else SHARES, share)


@cache
def pair(act="gelu", layers=3, heads=A):
    """transformers' BERT and ours, of the same weights."""
    sizes = {"vocab_size": V, "hidden_size": H, "intermediate_size": 24, "type_vocab_size": 3}
    sizes |= {"num_hidden_layers": layers, "num_attention_heads": heads}
    options = {"hidden_act": act, "layer_norm_eps": 1e-3, "attn_implementation": "eager"}
    config = BertConfig(max_position_embeddings=T, **sizes, **options)
    theirs = drawn(BertForMaskedLM(config), 0, 0.4).eval()
    return theirs.bert, from_hf(theirs).embedder


def everything(model, *inputs):
    return model(*inputs, output_hidden_states=True, output_attentions=True)


# ------------------------------------------------------------------------------------ dropout


@pytest.mark.parametrize("share", [0.1, 0.37, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drop_zeroes_its_share_and_keeps_the_mean(share, dtype):
    values = torch.ones(333, 1001, dtype=dtype, requires_grad=True)  # no multiple of 4
    dropped = drop(values, share)
    error = (share * (1 - share) / values.numel()) ** 0.5
    assert abs((dropped == 0).double().mean() - share) < 5 * error + 1e-5
    assert dropped.dtype == dtype and len(dropped.unique()) == 2
    close = 1e-2 if dtype == torch.bfloat16 else 1e-3
    assert dropped.max().item() == pytest.approx(1 / (1 - share), rel=close)
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped)  # what was dropped gets no gradient


def test_four_neighbours_share_a_random_number_and_are_decided_each_by_itself():
    kept = drop(torch.ones(40_000, 4), 0.5) > 0
    patterns = (kept * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16)
    assert ((patterns - 2500).abs() < 5 * 2500**0.5).all()


def test_the_sixteen_bits_are_those_of_the_generator_and_the_factor_is_exact():
    torch.manual_seed(0)
    dropped = drop(torch.ones(3, 5), 0.25)
    torch.manual_seed(0)
    bits = torch.empty(4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:15]
    assert torch.equal(dropped.flatten(), torch.where(bits >= 2**14 - 2**15, 4 / 3, 0.0))


@pytest.mark.parametrize("share", [0.0, 1e-6, 1.0])
def test_a_share_that_sixteen_bits_cannot_tell_from_0_or_1_is_left_to_torch(share):
    torch.manual_seed(0)
    dropped = drop(torch.ones(1000), share)
    torch.manual_seed(0)
    assert torch.equal(dropped, F.dropout(torch.ones(1000), share))


def test_dropout_changes_neither_its_input_nor_anything_in_evaluation():
    values, layer = torch.ones(100), Dropout(0.5)
    assert (layer(values) == 0).any() and (values == 1).all()
    assert layer.eval()(values) is values


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_no_probability_is_refused(share):
    with pytest.raises(ValueError, match=f"p={share}"):
        drop(torch.ones(3), share)
    with pytest.raises(ValueError):
        Dropout(share)(torch.ones(3))


# ------------------------------------------------------------------------------- equal to BertModel


@pytest.mark.parametrize(
    "act, layers, heads, padded, types",
    [
        ("gelu", 3, A, True, True),
        ("gelu", 3, A, False, False),
        ("relu", 3, A, True, False),
        ("silu", 3, A, False, True),
        ("gelu_pytorch_tanh", 3, A, True, True),
        ("gelu", 1, 1, True, True),
    ],
)
def test_every_layer_and_every_attention_map_is_that_of_bert_model(
    act, layers, heads, padded, types
):
    theirs, model = pair(act, layers, heads)
    inputs = ids_of(V), REAL.long() if padded else None, ids_of(3) if types else None
    expected, got = everything(theirs, *inputs), everything(model, *inputs)
    for name in ("hidden_states", "attentions"):
        for found, wanted in zip(getattr(got, name), getattr(expected, name), strict=True):
            assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    assert_close(model(*inputs), expected.last_hidden_state, rtol=1e-10, atol=1e-10)


@either_attention
def test_the_gradients_are_those_of_bert_model(weights):
    theirs, model = pair()
    ids, types = ids_of(V), ids_of(3)
    signal = torch.randn(*ids.shape, H, dtype=torch.float64) * REAL[..., None]
    first, last = theirs.encoder.layer[0], theirs.encoder.layer[-1]
    parts = [first.attention.self.query, first.attention.self.key, first.attention.self.value]
    tables, mine = theirs.embeddings, model.embeddings
    wanted = [tables.word_embeddings, tables.position_embeddings, tables.token_type_embeddings]
    wanted += [tables.LayerNorm, *parts, last.attention.output.LayerNorm]
    wanted += [last.intermediate.dense, last.output.dense]
    found = [mine.word, mine.position, mine.token_type, mine.norm]
    found += [model.blocks[0].attention.query_key_value, model.blocks[-1].attention_norm]
    found += [model.blocks[-1].expand, model.blocks[-1].contract]
    output = theirs(ids, REAL.long(), types).last_hidden_state
    expected = torch.autograd.grad(output, [part.weight for part in wanted], signal)
    expected = [*expected[:4], torch.cat(expected[4:7]), *expected[7:]]
    output = everything(model, ids, REAL, types).last if weights else model(ids, REAL, types)
    got = torch.autograd.grad(output, [part.weight for part in found], signal)
    for one, other in zip(got, expected, strict=True):
        assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_attention_by_hand():
    # 4 dimensions, so a score is half a product: ln 1, ln 3 and, at the padded key, ln 4.
    query = torch.tensor([[[[2.0, 0, 0, 0]]]])
    key = (torch.tensor([1.0, 3.0, 4.0]).log()[:, None] * torch.tensor([1.0, 5, 5, 5]))[None, None]
    weights = attention_weights(query, key, torch.tensor([True, True, False]).view(1, 1, 1, 3))
    assert_close(weights, torch.tensor([[[[0.25, 0.75, 0.0]]]]))
    assert_close(attention_weights(query, key), torch.tensor([[[[1 / 8, 3 / 8, 1 / 2]]]]))


def test_a_row_padded_on_the_right_is_the_row_without_padding():
    model, ids, types = ours(), ids_of(V), ids_of(2)
    padded = everything(model, ids, REAL, types)
    alone = everything(model, ids[1:2, :5], None, types[1:2, :5])
    for one, other in zip(padded.hidden_states, alone.hidden_states):
        assert_close(one[1:2, :5], other, **exact)
    for one, other in zip(padded.attentions, alone.attentions):
        assert_close(one[1:2, :, :5, :5], other, **exact)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_the_way_without_gradients_gives_what_the_way_with_them_gives(activation):
    model = ours(activation=activation)
    expected = model(ids_of(V), REAL)
    for way in (torch.no_grad(), torch.inference_mode()):
        with way:
            assert torch.equal(model(ids_of(V), REAL), expected)


@either_attention
def test_attention_dropout_may_differ_from_dropout(weights):
    ids, options = ids_of(V), {"output_hidden_states": True, "output_attentions": weights}
    plain = ours(dropout=0.0)(ids, REAL, **options).hidden_states
    assert torch.equal(plain[-1], ours(dropout=0.0).train()(ids, REAL, **options).last)
    states = ours(dropout=0.0, attention_dropout=0.5).train()(ids, REAL, **options).hidden_states
    assert torch.equal(states[0], plain[0]) and not torch.allclose(states[1], plain[1])
    assert replace(EncoderConfig(**SIZES, dropout=0.3), dropout=0.1).attention_dropout_p == 0.1


def test_with_every_hidden_value_dropped_only_the_norms_are_left():
    model = ours(dropout=1.0).train()
    states = model(ids_of(V), REAL, output_hidden_states=True).hidden_states
    expected = torch.zeros(5, T, H, dtype=torch.float64)  # the embeddings
    assert torch.equal(states[0], expected)
    for block, found in zip(model.blocks, states[1:]):
        expected = block.feed_forward_norm(block.attention_norm(expected))
        assert torch.equal(found, expected)


@either_attention
def test_with_every_attention_weight_dropped_only_the_bias_of_attention_is_left(weights):
    model = ours(dropout=0.0, attention_dropout=1.0).train()
    options = {"output_hidden_states": True, "output_attentions": weights}
    states = model(ids_of(V), REAL, **options).hidden_states
    for block, before, after in zip(model.blocks, states, states[1:]):
        hidden = block.attention_norm(before + block.attention.output.bias)
        assert_close(after, block.feed_forward_norm(hidden + block.feed_forward(hidden)), **exact)


@pytest.mark.parametrize("std", [0.02, 0.1])
def test_a_fresh_encoder_has_berts_initial_weights(std):
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 100}
    sizes |= {"max_length": 50, "type_vocab_size": 40}
    options = {} if std == 0.02 else {"initializer_range": std}
    for module in BertEncoder(EncoderConfig(**SIZES | sizes | options)).modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            assert module.weight.std().item() == pytest.approx(std, rel=0.05)
            assert module.weight.mean().abs() < 0.1 * std
        if isinstance(module, nn.Linear):
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and not module.bias.any()


# ----------------------------------------------------------------------------- both: what comes out


@each_encoder
def test_what_is_not_asked_for_is_not_returned(kind):
    model, ids = ours(kind), ids_of(V)
    assert model(ids).shape == (5, T, H)
    states, maps = model(ids, output_hidden_states=True), model(ids, output_attentions=True)
    assert states.attentions is None and maps.hidden_states is None
    assert len(states.hidden_states) == 4 and states.hidden_states[-1] is states.last
    assert [weights.shape for weights in maps.attentions] == [(5, A, T, T)] * 3


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1), (2, T)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float16], ids=str)
@each_encoder
def test_batches_may_be_empty_or_short_and_no_mask_means_that_all_is_real(kind, dtype, shape):
    model, ids = ours(kind), torch.ones(shape, dtype=torch.int32)
    with torch.set_grad_enabled(dtype != torch.bool):
        assert model(ids).shape == (*shape, H)
        assert torch.equal(model(ids, ids.to(dtype)), model(ids))


@pytest.mark.parametrize("train", [True, False])
@each_encoder
def test_attention_weights_sum_to_1_over_real_keys_and_are_0_at_padding(kind, train):
    model = ours(kind, **dropping(kind, 0.3)).train(train)  # shown as they are before dropout
    for weights in model(ids_of(V, EMPTY), EMPTY, output_attentions=True).attentions:
        weights = weights.transpose(1, 2)[EMPTY]  # (N, A, T) of real queries
        assert not (weights * ~EMPTY.repeat_interleave(EMPTY.sum(1), 0)[:, None]).any()
        assert_close(weights.sum(-1), torch.ones(EMPTY.sum(), A).double(), **exact)


@pytest.mark.parametrize("real", [None, EMPTY], ids=["no mask", "padded"])
@each_encoder
def test_asking_for_attention_weights_does_not_change_the_output(kind, real):
    model, ids = ours(kind), ids_of(V, EMPTY)
    assert_close(model(ids, real, output_attentions=True).last, model(ids, real), **exact)


# --------------------------------------------------------------------------------- both: padding


@pytest.mark.parametrize("train", [True, False], ids=["train", "no gradients"])
@pytest.mark.parametrize("dtype, length", [(torch.float32, 150), (torch.bfloat16, T)], ids=str)
@either_attention
@each_encoder
def test_what_stands_at_padding_does_not_change_a_single_bit_elsewhere(
    kind, weights, dtype, length, train
):
    real = REAL.repeat(1, -(-length // T))[:, :length]
    model = ours(kind, dtype, max_length=200, **dropping(kind, 0.2)).train(train)
    options = {"output_hidden_states": True, "output_attentions": weights}
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(0)
        with torch.set_grad_enabled(train):
            outputs.append(model(ids_of(V, real, seed), real, **options).hidden_states)
    for one, other in zip(*outputs):
        assert torch.equal(one[real], other[real])
        assert torch.equal(one[~real], other[~real]) == (kind != "bert")  # today's says 0 there
        assert kind == "bert" or not one[~real].any()


@either_attention
@each_encoder
def test_no_gradient_leaks_from_real_positions_into_padding(kind, weights):
    model, ids = ours(kind, pad_token_id=None, **dropping(kind, 0.2)).train(), ids_of(20, EMPTY)
    ids[~EMPTY] += 20  # tokens that stand at padding alone
    options = {"output_hidden_states": True, "output_attentions": weights}
    model(ids, EMPTY, **options).last[EMPTY].square().sum().backward()
    moved = model.embeddings.word.weight.grad.any(-1)
    assert not moved[20:].any() and moved[ids[EMPTY]].all()


@each_encoder
def test_rows_do_not_see_one_another(kind):
    model, ids = ours(kind), ids_of(V, EMPTY)
    together = model(ids, EMPTY)
    for row in EMPTY.any(1).nonzero()[:, 0].tolist():
        alone = model(ids[row : row + 1], EMPTY[row : row + 1])[0]
        assert_close(alone, together[row], **exact)


@pytest.mark.parametrize("share", [0.0, 0.5])
@either_attention
@each_encoder
def test_a_row_of_padding_alone_gives_no_nan_forward_or_backward(kind, weights, share):
    model = ours(kind, torch.float32, **dropping(kind, share)).train()
    options = {"output_hidden_states": True, "output_attentions": weights}
    with torch.autograd.set_detect_anomaly(True):
        output = model(ids_of(V, EMPTY), EMPTY, **options)
        output.last.square().sum().backward()
    assert all(states.isfinite().all() for states in output.hidden_states)
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


# ---------------------------------------------------------- both: rows picked inside the last block

SELECTIONS = {
    "(N, H)": lambda states: states[REAL],
    "(B, M, H)": lambda states: states[:, [4, 0, 4]],
    "(B, H)": lambda states: states[:, 0],
    "nothing": lambda states: states[torch.zeros_like(REAL)],
}


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
@either_attention
@each_encoder
def test_picking_rows_inside_the_last_block_is_picking_them_afterwards(
    kind, weights, select, layers
):
    model, ids = ours(kind, num_layers=layers), ids_of(V)
    options = {"output_hidden_states": True, "output_attentions": weights}
    whole, picked = model(ids, REAL, **options), model(ids, REAL, **options, select=select)
    assert_close(picked.last, select(whole.last), **exact)
    assert_close(picked.hidden_states[:-1], whole.hidden_states[:-1], rtol=0, atol=0)
    assert_close(picked.attentions, whole.attentions, rtol=0, atol=0)
    signal, parameters = torch.randn(picked.last.shape).double(), list(model.parameters())
    wanted = torch.autograd.grad(select(whole.last), parameters, signal)
    for one, other in zip(torch.autograd.grad(picked.last, parameters, signal), wanted):
        assert_close(one, other, **exact)
    with torch.no_grad():
        assert_close(model(ids, REAL, select=select), picked.last, **exact)


@each_encoder
def test_the_last_block_computes_only_the_picked_rows(kind):
    model = ours(kind)
    rows = rows_computed(model)
    model(ids_of(V), REAL, select=lambda states: states[:, :2])
    assert rows == [REAL.sum() if kind == "unpadded" else 5 * T] * 2 + [5 * 2]


@pytest.mark.parametrize("real", [REAL, EMPTY, REAL.flip(1)], ids=["right", "empty", "left"])
@pytest.mark.parametrize("picks", [None, (1, 4), (4, 8)], ids=["all", "some", "also padding"])
def test_bert_without_padding_is_bert_with_it_at_real_tokens(real, picks):
    numbers = torch.arange(real.numel()).view(real.shape)
    ids, kinds, model, found = numbers * 7 % V, numbers % 2, ours(), []
    select = picks and (lambda states: states[:, slice(*picks)])
    wanted = real if picks is None else real[:, slice(*picks)]
    for model.unpadded in (False, True):
        states = model(ids, real, kinds, select=select)[wanted]
        signal = torch.randn(states.shape, generator=torch.Generator().manual_seed(0)).double()
        found.append([states, *torch.autograd.grad(states, [*model.parameters()], signal)])
    for padded, unpadded in zip(*found):
        assert_close(unpadded, padded, **exact)


def test_bert_computes_no_padding_where_told_so():
    model = ours()
    model.unpadded, rows = True, rows_computed(model)
    model(ids_of(V), REAL, select=lambda states: states[:, :2])
    assert rows == [REAL.sum()] * 2 + [5 * 2]


# ------------------------------------------------------------------ both: dropout and the pad's row


@pytest.mark.parametrize(
    "kind, option",
    [("bert", "dropout"), *((kind, share) for kind in ("unpadded", "padded") for share in SHARES)],
)
@either_attention
def test_each_dropout_acts_in_training_and_not_in_evaluation(kind, option, weights):
    model, ids, none = ours(kind, **{option: 0.3}), ids_of(V), ours(kind, **dropping(kind, 0.0))
    options = {"output_hidden_states": True, "output_attentions": weights}
    plain = none.train()(ids, REAL, **options).last
    assert torch.equal(model(ids, REAL, **options).last, plain)
    once, again = (model.train()(ids, REAL, **options).last for _ in range(2))
    assert not torch.allclose(once, again) and not torch.allclose(once, plain)


@pytest.mark.parametrize("pad", [0, V - 1, None])
@pytest.mark.parametrize(
    "encoder, config", [(BertEncoder, EncoderConfig), (ModernEncoder, ModernConfig)]
)
def test_the_pad_row_starts_at_0_and_is_not_moved_by_its_inputs(encoder, config, pad):
    model = encoder(config(**SIZES, pad_token_id=pad))
    ids = torch.arange(V).repeat(2)[: 5 * T].view(5, T)  # every token, and all of them real
    (model(ids) * torch.randn(H)).sum().backward()
    others = torch.arange(V) != (-1 if pad is None else pad)
    for table in (model.embeddings.word.weight, model.embeddings.word.weight.grad):
        assert torch.equal(table.any(1), others)


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        (
            {"input_ids": torch.tensor([[1, 2, V]])},
            IndexError,
            f"input_ids holds {V}, out of range",
        ),
        ({"input_ids": torch.tensor([[1, -1, 2]])}, IndexError, f"holds -1, .* 0 to {V - 1}"),
        ({"input_ids": torch.tensor([[0, 2**40]])}, IndexError, f"input_ids holds {2**40}"),
        ({"attention_mask": torch.ones(2, 1)}, ValueError, "shape of input_ids"),
        ({"attention_mask": torch.ones(3)}, ValueError, "shape of input_ids"),
        ({"attention_mask": torch.ones(2, 1, 1, 3)}, ValueError, "shape of input_ids"),
        ({"attention_mask": torch.tensor([[1, 1, 0], [1, 0.5, 0]])}, ValueError, r"holds 0\.5"),
        ({"attention_mask": torch.tensor([[0, 0, -math.inf]] * 2)}, ValueError, "holds -inf"),
        ({"attention_mask": torch.tensor([[1, 1, math.nan]] * 2)}, ValueError, "holds nan"),
        ({"attention_mask": torch.tensor([[1, 2, 3]] * 2)}, ValueError, "holds 2"),
    ],
    ids=str,
)
@each_encoder
def test_what_would_be_read_wrongly_is_refused(kind, wrong, error, words):
    with pytest.raises(error, match=words):
        ours(kind)(**{"input_ids": torch.ones(2, 3, dtype=torch.long)} | wrong)


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"input_ids": torch.zeros(2, T + 1).long()}, ValueError, f"{T + 1} .*max_length={T}"),
        ({"token_type_ids": torch.full((2, 3), 2)}, IndexError, "token_type_ids holds 2"),
        ({"token_type_ids": torch.zeros(2, 1).long()}, ValueError, "shape of input_ids"),
        ({"token_type_ids": torch.zeros(3).long()}, ValueError, "shape of input_ids"),
    ],
    ids=str,
)
def test_what_bert_alone_would_read_wrongly_is_refused(wrong, error, words):
    with pytest.raises(error, match=words):
        ours()(**{"input_ids": torch.ones(2, 3, dtype=torch.long)} | wrong)


BOTH = {
    **dict.fromkeys(SIZES, (0, 2.0)),
    **dict.fromkeys(("initializer_range", "layer_norm_eps"), (-1.0, math.nan, math.inf)),
    **{"num_heads": (0, 3, 32), "num_layers": (0, 10**9), "pad_token_id": (-1, V)},
}
BERTS = {
    **dict.fromkeys(("dropout", "attention_dropout"), (-0.1, 1.1, math.nan)),
    **{"type_vocab_size": (-1, 2.0), "activation": ("gelu_new",)},
}
TODAYS = {
    **dict.fromkeys(SHARES, (-0.1, 1.1, math.nan)),
    **dict.fromkeys(("global_theta", "local_theta", "initializer_cutoff"), (0, math.nan)),
    **{"num_heads": (16,), "window": (0, 1), "global_every": (0, 2.0)},  # 16: each of an odd size
}
WRONG = [
    (EncoderConfig, BOTH),
    (EncoderConfig, BERTS),
    (ModernConfig, BOTH),
    (ModernConfig, TODAYS),
]


@pytest.mark.parametrize(
    "config, name, wrong",
    [(config, name, value) for config, table in WRONG for name in table for value in table[name]],
)
def test_a_config_that_makes_no_encoder_is_refused_by_name_and_value(config, name, wrong):
    with pytest.raises(ValueError, match=f"{name}={wrong!r}"):
        config(**SIZES | {name: wrong})


@pytest.mark.parametrize("config", [EncoderConfig, ModernConfig])
def test_numpy_sizes_become_plain_ones(config):
    made = config(**SIZES | {"hidden_size": np.int64(H), "attention_dropout": np.float64(0.2)})
    assert type(made.hidden_size) is int and type(made.attention_dropout) is float


ALL = [{name: 2 * size} for name, size in SIZES.items() if name != "max_length"]
ALL += [{"layer_norm_eps": 1e-6}, {"pad_token_id": 3}, {"num_heads": 2}, {"attention_dropout": 0.2}]
BERTS_OWN = [
    {"dropout": 0.2},
    {"activation": "gelu_tanh"},
    {"type_vocab_size": 3},
    {"type_vocab_size": 0},
    {"max_length": 5},
]
TODAYS_OWN = [{"embedding_dropout": 0.2}, {"mlp_dropout": 0.2}, {"global_every": 2}, {"window": 8}]
TODAYS_OWN += [{"global_theta": 5.0}, {"local_theta": 5.0}]


@pytest.mark.parametrize(
    "kind, option",
    [("bert", one) for one in ALL + BERTS_OWN] + [("padded", one) for one in ALL + TODAYS_OWN],
    ids=str,
)
def test_encoders_that_compute_differently_are_described_differently(kind, option):
    same, other = repr(ours(kind)), repr(ours(kind, **option))
    assert repr(ours(kind)) == same != other and " at 0x" not in same


def test_without_segment_types_two_embeddings_are_summed_and_segment_types_are_refused():
    encoder = BertEncoder(EncoderConfig(**SIZES, dropout=0.0, type_vocab_size=0))
    ids, parts = torch.tensor([[4, 5, 6]]), encoder.embeddings
    expected = parts.norm(parts.word(ids) + parts.position.weight[:3])
    assert torch.equal(parts(ids), expected)
    assert not [name for name, _ in encoder.named_parameters() if "token_type" in name]
    with pytest.raises(ValueError, match="type_vocab_size=0.*leave them out"):
        encoder(ids, token_type_ids=torch.zeros_like(ids))
