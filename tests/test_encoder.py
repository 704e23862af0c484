"""The BERT encoder: transformers' numbers at every layer, and padding that cannot be felt."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn as nn
from torch.testing import assert_close
from toys import drawn
from transformers import BertConfig, BertForMaskedLM

from mlm_lib.encoder import BertEncoder, EncoderConfig, attention_weights
from mlm_lib.pretrained import from_hf

V, H, A, T = 40, 16, 4, 9
SIZES = {
    "vocab_size": V,
    "hidden_size": H,
    "num_layers": 3,
    "num_heads": A,
    "intermediate_size": 24,
    "max_length": T,
}
exact = {"rtol": 1e-12, "atol": 1e-12}
either_attention = pytest.mark.parametrize(
    "weights", [False, True], ids=["fused attention", "attention with weights"]
)

# One row of each kind: nothing padded; on the right; on the left; in the middle, and here and
# there; a single word.
REAL = torch.tensor(
    [
        [1] * 9,
        [1] * 5 + [0] * 4,
        [0] * 4 + [1] * 5,
        [1, 0, 1, 1, 0, 0, 1, 1, 0],
        [0] * 6 + [1, 0, 0],
    ]
).bool()
EMPTY = torch.cat(
    [REAL[:3], torch.zeros(1, T, dtype=torch.bool), REAL[3:]]
)  # and one row of nothing else


def ours(dtype=torch.float64, **options):
    return drawn(BertEncoder(EncoderConfig(**SIZES | options)), 0, 0.4).to(dtype).eval()


def batch(real=REAL, seed=0, size=V):
    """Random ids; where `real` is, they do not depend on the seed."""
    fixed, other = (
        torch.randint(size, real.shape, generator=torch.Generator().manual_seed(s))
        for s in (99, seed)
    )
    return torch.where(real, fixed, other)


@cache
def pair(act="gelu", layers=3, heads=A):
    """transformers' model and ours, of the same weights."""
    sizes = {"vocab_size": V, "hidden_size": H, "intermediate_size": 24, "type_vocab_size": 3}
    options = {"hidden_act": act, "layer_norm_eps": 1e-3, "attn_implementation": "eager"}
    config = BertConfig(
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=T,
        **sizes,
        **options,
    )
    theirs = drawn(BertForMaskedLM(config), 0, 0.4).eval()
    return theirs.bert, from_hf(theirs).embedder


def everything(model, ids, mask=None, types=None):
    return model(ids, mask, types, output_hidden_states=True, output_attentions=True)


# ------------------------------------------------------------------------------- equal to BertModel


@pytest.mark.parametrize(
    "options",
    [{}, {"act": "relu"}, {"act": "silu"}, {"act": "gelu_pytorch_tanh"}, {"layers": 1, "heads": 1}],
    ids=str,
)
@pytest.mark.parametrize("mask", [None, REAL.long()], ids=["no mask", "padded"])
@pytest.mark.parametrize("types", [None, batch(size=3)], ids=["one type", "types"])
def test_every_layer_and_every_attention_map_is_that_of_bert_model(options, mask, types):
    theirs, model = pair(**options)
    expected, got = (
        everything(theirs, batch(), mask, types),
        everything(model, batch(), mask, types),
    )
    assert len(got.hidden_states) == len(expected.hidden_states) and len(got.attentions) == len(
        expected.attentions
    )
    for found, wanted in zip(
        [*got.hidden_states, *got.attentions], [*expected.hidden_states, *expected.attentions]
    ):
        assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    assert_close(model(batch(), mask, types), expected.last_hidden_state, rtol=1e-10, atol=1e-10)


@either_attention
def test_the_gradients_are_those_of_bert_model(weights):
    theirs, model = pair()
    ids, types = batch(), batch(size=3)
    signal = (
        torch.randn(*ids.shape, H, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        * REAL[..., None]
    )
    first, last = theirs.encoder.layer[0], theirs.encoder.layer[-1]
    parts = [first.attention.self.query, first.attention.self.key, first.attention.self.value]
    tables, mine = theirs.embeddings, model.embeddings
    wanted = [tables.word_embeddings, tables.position_embeddings, tables.token_type_embeddings]
    wanted += [tables.LayerNorm, *parts, last.attention.output.LayerNorm]
    wanted += [last.intermediate.dense, last.output.dense]
    found = [mine.word, mine.position, mine.token_type, mine.norm]
    found += [model.blocks[0].attention.query_key_value, model.blocks[-1].attention_norm]
    found += [model.blocks[-1].expand, model.blocks[-1].contract]
    expected = torch.autograd.grad(
        theirs(ids, REAL.long(), types).last_hidden_state, [part.weight for part in wanted], signal
    )
    expected = [*expected[:4], torch.cat(expected[4:7]), *expected[7:]]
    output = everything(model, ids, REAL, types).last if weights else model(ids, REAL, types)
    for one, other in zip(
        torch.autograd.grad(output, [part.weight for part in found], signal), expected, strict=True
    ):
        assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_attention_by_hand():
    # 4 dimensions, so a score is half a product: ln 1, ln 3 and, at the padded key, ln 4.
    query = torch.tensor([[[[2.0, 0, 0, 0]]]])
    key = torch.tensor([1.0, 3.0, 4.0]).log()[:, None] * torch.tensor([1.0, 5, 5, 5])
    weights = attention_weights(
        query, key[None, None], torch.tensor([True, True, False]).view(1, 1, 1, 3)
    )
    assert_close(weights, torch.tensor([[[[0.25, 0.75, 0.0]]]]))
    assert_close(
        attention_weights(query, key[None, None]), torch.tensor([[[[1 / 8, 3 / 8, 1 / 2]]]])
    )


def test_what_is_not_asked_for_is_not_returned():
    model, ids = ours(), batch()
    assert model(ids).shape == (5, T, H)
    states, maps = model(ids, output_hidden_states=True), model(ids, output_attentions=True)
    assert states.attentions is None and maps.hidden_states is None
    assert len(states.hidden_states) == 4 and states.hidden_states[-1] is states.last
    assert [weights.shape for weights in maps.attentions] == [(5, A, T, T)] * 3


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1), (2, T)], ids=str)
def test_batches_may_be_empty_short_or_as_long_as_the_positions_reach(shape):
    model, ids = ours(), torch.zeros(shape, dtype=torch.long)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            assert model(ids, torch.ones_like(ids), output_attentions=True).last.shape == (
                *shape,
                H,
            )
            assert model(ids, torch.ones_like(ids)).shape == (*shape, H)


def test_ids_may_be_int32():
    ids, types = batch(), batch(size=2)
    assert torch.equal(ours()(ids.int(), None, types.int()), ours()(ids, None, types))


# ------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize("mode", ["train", "eval", "no gradients"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [T, 150])
@either_attention
def test_what_stands_at_padding_does_not_change_a_single_bit_elsewhere(
    weights, length, dtype, mode
):
    real = REAL.repeat(1, -(-length // T))[:, :length]
    model = ours(dtype, max_length=200, dropout=0.2).train(mode == "train")
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(0)
        with torch.set_grad_enabled(mode != "no gradients"):
            inputs = batch(real, seed), real, batch(real, seed, size=2)
            outputs.append(
                model(*inputs, output_hidden_states=True, output_attentions=weights).hidden_states
            )
    for one, other in zip(*outputs):
        assert torch.equal(one[real], other[real])
        assert not torch.equal(one[~real], other[~real])


@pytest.mark.parametrize("train", [True, False])
@either_attention
def test_no_gradient_leaks_from_real_positions_into_padding(weights, train):
    model, kept = ours(dropout=0.2).train(train), []
    model.embeddings.register_forward_hook(
        lambda module, inputs, output: output.retain_grad() or kept.append(output)
    )
    output = model(batch(EMPTY), EMPTY, output_hidden_states=True, output_attentions=weights).last
    output[EMPTY].square().sum().backward()
    gradient = kept[0].grad
    assert not gradient[~EMPTY].any()
    assert gradient[EMPTY].any(-1).all()


def test_a_row_padded_on_the_right_is_the_row_without_padding():
    model, ids, types = ours(), batch(), batch(size=2)
    padded = everything(model, ids, REAL, types)
    alone = everything(model, ids[1:2, :5], None, types[1:2, :5])
    for one, other in zip(padded.hidden_states, alone.hidden_states):
        assert_close(one[1:2, :5], other, **exact)
    for one, other in zip(padded.attentions, alone.attentions):
        assert_close(one[1:2, :, :5, :5], other, **exact)
    assert_close(model(ids, REAL, types)[1:2, :5], alone.last, **exact)


def test_rows_do_not_see_one_another():
    model, ids = ours(), batch(EMPTY)
    together = model(ids, EMPTY)
    for row in range(len(ids)):
        assert_close(model(ids[row : row + 1], EMPTY[row : row + 1])[0], together[row], **exact)


@pytest.mark.parametrize("mode", ["train", "eval", "no gradients"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@either_attention
def test_a_row_of_padding_alone_gives_no_nan_forward_or_backward(weights, dropout, mode):
    model = ours(torch.float32, dropout=dropout).train(mode == "train")
    for real in (EMPTY, torch.zeros(2, T, dtype=torch.bool)):
        with torch.set_grad_enabled(mode != "no gradients"):
            output = model(batch(real), real, output_hidden_states=True, output_attentions=weights)
        assert all(states.isfinite().all() for states in output.hidden_states)
        if mode != "no gradients":
            gradients = torch.autograd.grad(output.last.square().sum(), list(model.parameters()))
            assert all(gradient.isfinite().all() for gradient in gradients)


@either_attention
def test_a_row_of_padding_alone_does_not_alarm_the_search_for_nan(weights):
    with torch.autograd.set_detect_anomaly(True):
        ours()(
            batch(EMPTY), EMPTY, output_attentions=weights, output_hidden_states=True
        ).last.sum().backward()


@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int32, torch.uint8, torch.float32, torch.float16, torch.float64],
    ids=str,
)
def test_a_mask_may_be_bool_or_hold_0_and_1_of_any_dtype(dtype):
    model, ids = ours(), batch()
    assert torch.equal(model(ids, REAL.to(dtype)), model(ids, REAL))
    assert not torch.allclose(model(ids, REAL), model(ids))


def test_no_mask_means_that_every_token_is_real():
    model, ids = ours(), batch()
    assert torch.equal(model(ids, torch.ones_like(ids)), model(ids))
    assert torch.equal(model(ids, torch.ones_like(ids), torch.zeros_like(ids)), model(ids))


# -------------------------------------------------------------------------------- attention weights


@pytest.mark.parametrize("train", [True, False])
def test_attention_weights_sum_to_1_over_real_keys_and_are_0_at_padding(train):
    model = ours(dropout=0.3).train(train)  # they are shown as they are before dropout
    for weights in model(batch(EMPTY), EMPTY, output_attentions=True).attentions:
        on_real, on_padding = weights * EMPTY[:, None, None], weights * ~EMPTY[:, None, None]
        assert not on_padding.any()
        expected = (
            EMPTY.any(1).double()[:, None, None].expand(-1, A, T)
        )  # 0 where a row has no real key
        assert_close(on_real.sum(-1), expected, **exact)
        assert (weights >= 0).all()


@pytest.mark.parametrize(
    "real", [None, REAL, EMPTY], ids=["no mask", "padded", "with a row of padding"]
)
def test_asking_for_attention_weights_does_not_change_the_output(real):
    model, ids = ours(), batch(EMPTY if real is EMPTY else REAL)
    assert_close(model(ids, real, output_attentions=True).last, model(ids, real), **exact)


# ---------------------------------------------------------------- rows picked inside the last block

SELECTIONS = {
    "(N, H)": lambda states: states[REAL],
    "(B, M, H)": lambda states: states[:, [4, 0, 4]],
    "(B, H)": lambda states: states[:, 0],
    "nothing": lambda states: states[torch.zeros_like(REAL)],
}


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
@either_attention
def test_picking_rows_inside_the_last_block_is_picking_them_afterwards(weights, select, layers):
    model, ids = ours(num_layers=layers), batch()
    options = {"output_hidden_states": True, "output_attentions": weights}
    whole, picked = model(ids, REAL, **options), model(ids, REAL, **options, select=select)
    assert_close(picked.last, select(whole.last), **exact)
    assert_close(picked.hidden_states[:-1], whole.hidden_states[:-1], rtol=0, atol=0)
    assert_close(model(ids, REAL, select=select), select(whole.last), **exact)
    if weights:
        assert_close(picked.attentions, whole.attentions, rtol=0, atol=0)
    signal = torch.randn(
        picked.last.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    parameters = dict(model.named_parameters())
    wanted = torch.autograd.grad(select(whole.last), parameters.values(), signal)
    found = torch.autograd.grad(picked.last, parameters.values(), signal)
    for name, one, other in zip(parameters, found, wanted):
        assert_close(one, other, **exact, msg=lambda message: f"{name}: {message}")
    with torch.no_grad():
        assert_close(model(ids, REAL, select=select), picked.last, **exact)


def test_the_last_block_computes_only_the_picked_rows():
    model, rows = ours(), []
    for block in model.blocks:
        block.expand.register_forward_hook(
            lambda module, inputs, output: rows.append(inputs[0].shape[:-1].numel())
        )
    model(batch(), REAL, select=lambda states: states[:, :2])
    assert rows == [5 * T, 5 * T, 5 * 2]


# -------------------------------------------------------------------------------- without gradients


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_the_way_without_gradients_gives_what_the_way_with_them_gives(activation):
    model = ours(activation=activation)
    expected = model(batch(), REAL)
    with torch.no_grad():
        assert torch.equal(model(batch(), REAL), expected)
    with torch.inference_mode():
        assert torch.equal(model(batch(), REAL), expected)


# ------------------------------------------------------------------------------------ dropout


@either_attention
def test_dropout_acts_in_training_and_not_in_evaluation(weights):
    model, ids = ours(dropout=0.3), batch()
    options = {"output_hidden_states": True, "output_attentions": weights}
    once, again = (model.train()(ids, REAL, **options).hidden_states for _ in range(2))
    assert not any(torch.allclose(*states) for states in zip(once, again))
    once, again = (model.eval()(ids, REAL, **options).hidden_states for _ in range(2))
    assert all(map(torch.equal, once, again))


@either_attention
def test_attention_dropout_may_differ_from_dropout(weights):
    ids, options = batch(), {"output_hidden_states": True, "output_attentions": weights}
    plain = ours(dropout=0.0).train()(ids, REAL, **options).last
    assert torch.equal(plain, ours(dropout=0.0)(ids, REAL, **options).last)
    assert torch.equal(plain, ours(dropout=0.5, attention_dropout=0.0)(ids, REAL, **options).last)
    torch.manual_seed(0)
    states = ours(dropout=0.0, attention_dropout=0.5).train()(ids, REAL, **options).hidden_states
    assert torch.equal(states[0], ours(dropout=0.0).embeddings(ids))
    assert not torch.allclose(states[1], ours(dropout=0.0)(ids, REAL, **options).hidden_states[1])
    assert replace(EncoderConfig(**SIZES, dropout=0.3), dropout=0.1).attention_share == 0.1


def test_with_every_hidden_value_dropped_only_the_norms_are_left():
    model = ours(dropout=1.0).train()
    states = model(batch(), REAL, output_hidden_states=True).hidden_states
    expected = torch.zeros(5, T, H, dtype=torch.float64)  # the embeddings
    assert torch.equal(states[0], expected)
    for block, found in zip(model.blocks, states[1:]):
        expected = block.feed_forward_norm(block.attention_norm(expected))
        assert torch.equal(found, expected)


@either_attention
def test_with_every_attention_weight_dropped_only_the_bias_of_attention_is_left(weights):
    model = ours(dropout=0.0, attention_dropout=1.0).train()
    states = model(
        batch(), REAL, output_hidden_states=True, output_attentions=weights
    ).hidden_states
    for block, before, after in zip(model.blocks, states, states[1:]):
        hidden = block.attention_norm(before + block.attention.output.bias)
        assert_close(after, block.feed_forward_norm(hidden + block.feed_forward(hidden)), **exact)


# ---------------------------------------------------------------------------------- initial weights


@pytest.mark.parametrize("std", [None, 0.1])
def test_a_fresh_encoder_has_berts_initial_weights(std):
    torch.manual_seed(0)
    options = {} if std is None else {"initializer_range": std}
    sizes = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 100,
        "max_length": 50,
        "type_vocab_size": 40,
    }
    model = BertEncoder(EncoderConfig(**SIZES | sizes | options))
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            assert module.weight.std().item() == pytest.approx(std or 0.02, rel=0.05)
            assert module.weight.mean().abs() < 0.1 * (std or 0.02)
        if isinstance(module, nn.Linear):
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and not module.bias.any()


@pytest.mark.parametrize("pad", [0, 7, V - 1, None])
def test_the_pad_row_starts_at_0_and_is_not_moved_by_its_inputs(pad):
    model = BertEncoder(EncoderConfig(**SIZES, pad_token_id=pad))
    ids = torch.arange(V).repeat(2)[: 5 * T].view(5, T)  # every token, and all of them real
    model(ids).square().sum().backward()
    others = torch.arange(V) != (-1 if pad is None else pad)
    for table in (model.embeddings.word.weight, model.embeddings.word.weight.grad):
        assert torch.equal(table.any(1), others)


# ------------------------------------------------------------------------------------ errors


ONES = torch.ones(2, 3, dtype=torch.long)
LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    "name, wrong, words",
    [
        ("input_ids", torch.zeros(2, T + 1).long(), f"{T + 1} tokens.*max_length={T}"),
        ("input_ids", torch.tensor([[1, -1, 2]]), "holds -1; a number from 0 to 39"),
        ("input_ids", torch.tensor([[1, 2, V]]), "holds 40; a number from 0 to 39"),
        ("input_ids", torch.tensor([[1, 2, -100]], dtype=torch.int32), "holds -100"),
        ("input_ids", torch.tensor([1, 2, 3]), r"tensor \(3,\); a tensor \(B, T\)"),
        ("input_ids", torch.zeros(2, 3, 4).long(), r"tensor \(2, 3, 4\)"),
        ("input_ids", torch.zeros(2, 3), "torch.float32.*whole numbers"),
        ("input_ids", torch.zeros(2, 3).bool(), "torch.bool.*whole numbers"),
        ("input_ids", torch.zeros(2, 3, dtype=torch.complex64), "torch.complex64"),
        ("input_ids", [[1, 2, 3], [4, 5, 6]], r"=\[\[1, 2, 3\], .* a tensor \(B, T\)"),
        ("input_ids", None, "=None; a tensor"),
        ("token_type_ids", torch.full((2, 3), -1), "holds -1; a number from 0 to 1"),
        ("token_type_ids", torch.full((2, 3), 2), "holds 2; a number from 0 to 1"),
        ("token_type_ids", torch.zeros(2, 4).long(), r"\(2, 4\).*\(2, 3\), the shape of input_ids"),
        ("token_type_ids", torch.zeros(3).long(), r"\(3,\).*\(2, 3\), the shape of input_ids"),
        ("token_type_ids", torch.zeros(2, 3), "torch.float32"),
        ("token_type_ids", torch.full((2, 3), math.nan), "torch.float32"),
        ("token_type_ids", torch.ones(2, 3).bool(), "torch.bool"),
        ("attention_mask", torch.ones(2, 2), r"\(2, 2\).*\(2, 3\), the shape of input_ids"),
        ("attention_mask", torch.ones(3), r"\(3,\).*\(2, 3\)"),
        ("attention_mask", torch.ones(2, 1, 1, 3), r"\(2, 1, 1, 3\).*\(2, 3\)"),
        ("attention_mask", torch.ones(1, 3), r"\(1, 3\).*\(2, 3\)"),
        ("attention_mask", torch.tensor([[1, 1, 0], [1, 0.5, 0]]), r"holds 0\.5; 1 at real tokens"),
        ("attention_mask", torch.tensor([[0.0, 0, -math.inf], [0, 0, 0]]), "holds -inf"),
        ("attention_mask", torch.tensor([[0.0, 0, -10000], [0, 0, 0]]), "holds -10000"),
        ("attention_mask", torch.tensor([[0.0, 0, LOWEST], [0, 0, 0]]), r"holds -3\.4"),
        ("attention_mask", torch.tensor([[1, 1, math.nan], [1, 1, 1]]), "holds nan"),
        ("attention_mask", torch.tensor([[1, 1, -1], [1, 1, 1]]), "holds -1"),
        ("attention_mask", torch.tensor([[1, 2, 3], [1, 1, 1]]), "holds 2"),
        ("attention_mask", [[1, 1, 1], [1, 1, 1]], r"=\[\[1, 1, 1\], "),
        ("output_attentions", "no", "='no'; True or False"),
        ("output_hidden_states", 1, "=1; True or False"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_encoded_is_refused_by_name_and_value(name, wrong, words):
    with pytest.raises(
        ValueError, match=f"{name}.*{words}" if "max_length" not in words else words
    ):
        ours()(**{"input_ids": ONES} | {name: wrong})


WRONG = {
    **dict.fromkeys([*SIZES, "type_vocab_size"], (0, -1, 2.0, "2", None, True, 2**70)),
    **dict.fromkeys(("dropout", "attention_dropout"), (-0.1, 1.1, math.nan, "0.1", True)),
    **dict.fromkeys(("initializer_range", "layer_norm_eps"), (-1.0, math.nan, math.inf, "1e-12")),
    "activation": ("gelu_new", "GELU", None, ["gelu"]),
    "pad_token_id": (-1, V, 0.5, "0", True),
}


@pytest.mark.parametrize(
    "name, wrong",
    [(name, wrong) for name, values in WRONG.items() for wrong in values]
    + [("num_heads", 3), ("num_heads", 32), ("dropout", None), ("num_layers", 10**9)],
)
def test_a_config_that_makes_no_encoder_is_refused_by_name_and_value(name, wrong):
    with pytest.raises(ValueError) as error:
        EncoderConfig(**SIZES | {name: wrong})
    assert f"{name}={wrong!r}" in str(error.value)


@pytest.mark.parametrize("wrong", [None, SIZES, EncoderConfig])
def test_an_encoder_is_made_from_a_config_alone(wrong):
    with pytest.raises(ValueError, match="config=.* an EncoderConfig is needed"):
        BertEncoder(wrong)


def test_numpy_sizes_become_plain_ones():
    config = EncoderConfig(**SIZES | {"hidden_size": np.int64(H), "dropout": np.float64(0.2)})
    assert type(config.hidden_size) is int and type(config.dropout) is float


# ------------------------------------------------------------------------------------ description


@pytest.mark.parametrize(
    "option",
    [{name: size + 4} for name, size in SIZES.items()]
    + [{"dropout": 0.2}, {"attention_dropout": 0.2}, {"activation": "gelu_tanh"}]
    + [{"layer_norm_eps": 1e-6}, {"pad_token_id": 3}, {"type_vocab_size": 3}, {"num_heads": 2}],
    ids=str,
)
def test_encoders_that_compute_differently_are_described_differently(option):
    same, other = repr(ours()), repr(ours(**option))
    assert repr(ours()) == same != other and " at 0x" not in same
