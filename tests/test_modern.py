"""The encoder of today: no padding computed, windows that reach as far as said, clear errors."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn as nn
from torch.testing import assert_close
from toys import drawn
from training_toys import VOCAB, assert_same, go

from mlm_lib.leakage import dependencies
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernBlocks, ModernConfig, ModernEncoder

pytestmark = pytest.mark.usefixtures("one_thread")

V, H, A, T = 40, 16, 2, 9
SIZES = {"vocab_size": V, "hidden_size": H, "num_layers": 4, "num_heads": A}
SIZES |= {"intermediate_size": 24, "window": 4}
exact = {"rtol": 1e-12, "atol": 1e-12}
either = pytest.mark.parametrize("unpadded", [True, False], ids=["unpadded", "padded"])

# One row of each kind: nothing padded; on the right; on the left; here and there; a single word.
REAL = torch.tensor(
    [
        [1] * 9,
        [1] * 5 + [0] * 4,
        [0] * 4 + [1] * 5,
        [1, 0, 1, 1, 0, 0, 1, 1, 0],
        [0] * 6 + [1, 0, 0],
    ]
).bool()
EMPTY = torch.cat([REAL[:3], torch.zeros(1, T, dtype=torch.bool), REAL[3:]])


def ours(dtype=torch.float64, *, unpadded=True, **options):
    encoder = ModernEncoder(ModernConfig(**SIZES | options), unpadded=unpadded)
    return drawn(encoder, 0, 0.4).to(dtype).eval()


def batch(real=REAL, seed=0, size=V):
    """Random ids; where `real` is, they do not depend on the seed."""
    fixed, other = (
        torch.randint(size, real.shape, generator=torch.Generator().manual_seed(s))
        for s in (99, seed)
    )
    return torch.where(real, fixed, other)


# ------------------------------------------------------------------------------------ padding


@pytest.mark.parametrize("mode", ["train", "eval", "no gradients"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [T, 60])
@either
def test_what_stands_at_padding_does_not_change_a_single_bit(unpadded, length, dtype, mode):
    real = REAL.repeat(1, -(-length // T))[:, :length]
    shares = dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout"), 0.2)
    model = ours(dtype, unpadded=unpadded, **shares).train(mode == "train")
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(0)
        with torch.set_grad_enabled(mode != "no gradients"):
            outputs.append(model(batch(real, seed), real, output_hidden_states=True))
    for one, other in zip(outputs[0].hidden_states, outputs[1].hidden_states):
        assert torch.equal(one, other) and not one[~real].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("real", [REAL, EMPTY, REAL.repeat(1, 6)], ids=["", "empty row", "long"])
def test_unpadded_gives_what_padded_gives(real, dtype):
    model = ours(dtype, unpadded=True)
    other = copy.deepcopy(model)
    other.unpadded = False
    close = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    one, two = (each(batch(real), real, output_hidden_states=True) for each in (model, other))
    for pair in zip(one.hidden_states, two.hidden_states, strict=True):
        assert_close(*pair, rtol=close, atol=close)
    signal = torch.randn(one.last.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    if dtype == torch.float64:
        found = torch.autograd.grad(one.last, list(model.parameters()), signal)
        wanted = torch.autograd.grad(two.last, list(other.parameters()), signal)
        for pair in zip(found, wanted):
            assert_close(*pair, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shapes", [(5 * T, 24), (24,)], ids=["padded", "unpadded"])
def test_unpadded_computes_as_many_tokens_as_are_real(shapes):
    model, seen = ours(unpadded=len(shapes) == 1), []
    for block in model.blocks:
        block.expand.register_forward_hook(
            lambda module, inputs, output: seen.append(inputs[0].shape[:-1].numel())
        )
    model(batch(), REAL)
    assert seen == [REAL.sum() if len(shapes) == 1 else REAL.numel()] * 4


@either
def test_documents_do_not_see_one_another(unpadded):
    model, ids = ours(unpadded=unpadded), batch(EMPTY)
    together = model(ids, EMPTY)
    for row in range(len(ids)):
        if EMPTY[row].any():
            alone = model(ids[row : row + 1], EMPTY[row : row + 1])[0]
            assert_close(alone, together[row], **exact)
    changed = ids.clone()
    changed[0] = (changed[0] + 1) % V
    after = model(changed, EMPTY)
    assert torch.equal(after[1:], together[1:]) and not torch.allclose(after[0], together[0])


@either
def test_a_document_does_not_feel_where_in_its_row_it_stands(unpadded):
    """Rotary positions know distances alone, so padding on the left is as good as on the right."""
    model = ours(unpadded=unpadded)
    ids = batch()[:1, :5]
    alone = model(ids)[0]
    for shift in range(5):
        shifted, real = torch.zeros(1, T, dtype=torch.long), torch.zeros(1, T, dtype=torch.long)
        shifted[:, shift : shift + 5], real[:, shift : shift + 5] = ids, 1
        found = model(shifted, real)[0, shift : shift + 5]
        assert_close(found, alone, rtol=1e-5, atol=1e-5)  # angles are of float32


@pytest.mark.parametrize("mode", ["train", "eval", "no gradients"])
@pytest.mark.parametrize("share", [0.0, 0.5])
@either
def test_a_row_of_padding_alone_gives_no_nan_forward_or_backward(unpadded, share, mode):
    shares = dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout"), share)
    model = ours(torch.float32, unpadded=unpadded, **shares).train(mode == "train")
    for weights in (False, True):
        with (
            torch.set_grad_enabled(mode != "no gradients"),
            torch.autograd.set_detect_anomaly(mode != "no gradients", check_nan=True),
        ):
            output = model(
                batch(EMPTY), EMPTY, output_hidden_states=True, output_attentions=weights
            )
            assert all(states.isfinite().all() for states in output.hidden_states)
            if mode != "no gradients":
                output.last.square().sum().backward()
                assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1), (2, T)], ids=str)
@either
def test_batches_may_be_empty_or_short(unpadded, shape):
    model, ids = ours(unpadded=unpadded), torch.zeros(shape, dtype=torch.long)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            assert model(ids, torch.ones_like(ids)).shape == (*shape, H)
            assert model(ids).shape == (*shape, H)


@either
def test_no_mask_means_that_every_token_is_real(unpadded):
    model, ids = ours(unpadded=unpadded), batch()
    for mask in (torch.ones_like(ids), torch.ones_like(ids).bool(), torch.ones(ids.shape)):
        assert torch.equal(model(ids, mask), model(ids))


def test_it_can_be_exported_and_then_computes_padding():
    model, ids = ours(torch.float32), batch()
    exported = torch.export.export(model, (ids, REAL.long())).module()
    assert_close(exported(ids, REAL.long()), model(ids, REAL.long()), rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------ reach


def reach_of(layers, window, length):
    """Which inputs the outputs of some local layers depend on."""
    config = ModernConfig(**SIZES | {"num_layers": layers + 1, "window": window})
    config.global_every = layers + 1  # the first is global, and left out
    torch.manual_seed(0)
    blocks = ModernEncoder(replace(config, initializer_range=0.5)).blocks[1:]
    assert isinstance(blocks, ModernBlocks) and len(blocks) == layers
    return dependencies(blocks, H, direction="forward", length=length)


@pytest.mark.parametrize("layers, window", [(1, 2), (1, 4), (1, 5), (2, 4), (3, 2)])
def test_the_reach_of_a_window_is_counted_by_its_dependencies(layers, window):
    length = 12
    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    expected = distance <= layers * (window // 2)
    assert torch.equal(reach_of(layers, window, length), expected)


def test_a_window_of_128_sees_64_to_each_side_and_itself():
    seen = reach_of(1, 128, 140)
    assert seen[70].sum() == 129 and seen[70].nonzero()[[0, -1]].flatten().tolist() == [6, 134]


def test_a_window_that_is_read_piece_by_piece_reaches_as_far():
    seen = reach_of(1, 2, 30)  # 30 tokens are far beyond eight reaches
    distance = (torch.arange(30)[:, None] - torch.arange(30)).abs()
    assert torch.equal(seen, distance <= 1)


def test_a_global_layer_reaches_everything():
    blocks = ModernEncoder(ModernConfig(**SIZES | {"initializer_range": 0.5})).blocks[:1]
    assert dependencies(blocks, H, direction="forward").all()


def test_every_third_layer_is_global_and_its_positions_turn_more_slowly():
    layers = [block.attention for block in ours(num_layers=7).blocks]
    assert [layer.reach for layer in layers] == [None, 2, 2, None, 2, 2, None]
    assert [layer.theta for layer in layers[:3]] == [160_000.0, 10_000.0, 10_000.0]
    assert {block.attention.reach for block in ours(global_every=1).blocks} == {None}


# --------------------------------------------------------------------------------- what is returned


def test_what_is_not_asked_for_is_not_returned():
    model, ids = ours(), batch()
    assert model(ids).shape == (5, T, H)
    states, maps = model(ids, output_hidden_states=True), model(ids, output_attentions=True)
    assert states.attentions is None and maps.hidden_states is None
    assert len(states.hidden_states) == 5 and states.hidden_states[-1] is states.last
    assert [weights.shape for weights in maps.attentions] == [(5, A, T, T)] * 4


def test_attention_weights_sum_to_1_within_the_window_and_are_0_at_padding():
    model = ours()
    distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
    output = model(batch(), REAL, output_attentions=True)
    assert_close(output.last, model(batch(), REAL), **exact)
    for block, weights in zip(model.blocks, output.attentions):
        weights = weights.transpose(1, 2)[REAL]  # (N, A, T) of real queries
        assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **exact)
        seen = REAL[:, None].expand(-1, T, -1)
        seen = seen if block.attention.reach is None else seen & (distance <= 2)
        assert not weights[~seen[REAL][:, None].expand_as(weights)].any()


SELECTIONS = {
    "(N, H)": lambda states: states[REAL],
    "(B, M, H)": lambda states: states[:, [4, 0, 4]],
    "(B, H)": lambda states: states[:, 0],
    "nothing": lambda states: states[torch.zeros_like(REAL)],
}


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
@either
def test_picking_rows_inside_the_last_block_is_picking_them_afterwards(unpadded, select, layers):
    model, ids = ours(unpadded=unpadded, num_layers=layers), batch()
    whole = model(ids, REAL, output_hidden_states=True)
    picked = model(ids, REAL, output_hidden_states=True, select=select)
    assert_close(picked.last, select(whole.last), **exact)
    for pair in zip(picked.hidden_states[:-1], whole.hidden_states[:-1], strict=True):
        assert torch.equal(*pair)
    signal = torch.randn(
        picked.last.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(select(whole.last), parameters, signal)
    for pair in zip(torch.autograd.grad(picked.last, parameters, signal), wanted):
        assert_close(*pair, **exact)


@either
def test_the_last_block_computes_only_the_picked_rows(unpadded):
    model, rows = ours(unpadded=unpadded), []
    for block in model.blocks:
        block.expand.register_forward_hook(
            lambda module, inputs, output: rows.append(inputs[0].shape[:-1].numel())
        )
    model(batch(), REAL, select=lambda states: states[:, :2])
    assert rows == [REAL.sum() if unpadded else 5 * T] * 3 + [5 * 2]


def test_a_masked_language_model_asks_only_where_there_are_labels():
    model = MaskedLanguageModel(*drawn_parts())
    ids, labels = batch(), batch(seed=4).masked_fill(~REAL, -100)
    output, whole = model(ids, REAL, labels=labels), model(ids, REAL)["logits"]
    assert model.embedder_selects
    assert_close(output["logits"], whole[labels != -100], **exact)
    blanks = model(ids, REAL, mask_positions=torch.tensor([[0, 4]] * 5))
    assert_close(blanks["logits"], whole[:, [0, 4]], **exact)
    with pytest.raises(ValueError, match="ModernEncoder has no use for token_type_ids"):
        model(ids, REAL, torch.zeros_like(ids))


def drawn_parts():
    encoder, head = ModernConfig(**SIZES).parts()
    drawn(nn.ModuleList([encoder, head]), 0, 0.4)
    return encoder, head


# ------------------------------------------------------------------------------------ dropout


@pytest.mark.parametrize("share", ["embedding_dropout", "attention_dropout", "mlp_dropout"])
@either
def test_each_dropout_acts_in_training_and_not_in_evaluation(unpadded, share):
    model, ids = ours(unpadded=unpadded, **{share: 0.3}), batch()
    plain = ours(unpadded=unpadded)(ids, REAL)
    assert torch.equal(model(ids, REAL), plain)
    once, again = (model.train()(ids, REAL) for _ in range(2))
    assert not torch.allclose(once, again) and not torch.allclose(once, plain)


def test_nothing_is_dropped_unless_asked_for():
    model, ids = ours(), batch()
    assert torch.equal(model.train()(ids, REAL), model.eval()(ids, REAL))


def test_attention_dropout_acts_on_the_weights_and_on_the_output():
    attention = ours(attention_dropout=0.3).blocks[0].attention
    assert attention.dropout.p == 0.3
    model = ours(attention_dropout=1.0).train()  # nothing of attention is left
    states = model(batch(), REAL, output_hidden_states=True).hidden_states
    for block, before, after in zip(model.blocks[:-1], states, states[1:]):
        assert_close(after, before + block.feed_forward(block.feed_forward_norm(before)), **exact)


# ---------------------------------------------------------------------------------- initial weights


def test_a_fresh_encoder_has_modernberts_initial_weights():
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 100, "num_layers": 8}
    model = MaskedLanguageModel.from_config(ModernConfig(**SIZES | sizes))
    block, cut = model.embedder.blocks[3], 0.8796  # a normal cut off at 2 σ is narrower
    stream = [block.attention.output, block.contract, model.head.dense]
    for part in (model.embedder.embeddings.word, block.attention.query_key_value, block.expand):
        assert part.weight.std().item() == pytest.approx(0.02 * cut, rel=0.05)
    for part in stream:
        assert part.weight.std().item() == pytest.approx(0.02 * cut / 4, rel=0.05)
    for weight in model.parameters():
        assert weight.abs().max() <= 0.04 or (weight == 1).all()
    assert [name for name, _ in model.named_parameters() if "bias" in name] == ["head.bias"]
    assert model.head.tied and isinstance(model.embedder.blocks[0].attention_norm, nn.Identity)


@pytest.mark.parametrize("pad", [0, 7, V - 1, None])
def test_the_pad_row_starts_at_0_and_is_not_moved_by_its_inputs(pad):
    model = ModernEncoder(ModernConfig(**SIZES, pad_token_id=pad))
    ids = torch.arange(V).repeat(2)[: 5 * T].view(5, T)  # every token, and all of them real
    (model(ids) * torch.randn(H, generator=torch.Generator().manual_seed(0))).sum().backward()
    others = torch.arange(V) != (-1 if pad is None else pad)
    for table in (model.embeddings.word.weight, model.embeddings.word.weight.grad):
        assert torch.equal(table.any(1), others)


# ------------------------------------------------------------------------------------ training


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


# ------------------------------------------------------------------------------------ errors


ONES = torch.ones(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    "name, wrong, words",
    [
        ("input_ids", torch.tensor([[1, -1, 2]]), "holds -1; a number from 0 to 39"),
        ("input_ids", torch.tensor([[1, 2, V]]), "holds 40; a number from 0 to 39"),
        ("input_ids", torch.tensor([1, 2, 3]), r"tensor \(3,\); a tensor \(B, T\)"),
        ("input_ids", torch.zeros(2, 3), "torch.float32.*whole numbers"),
        ("input_ids", None, "=None; a tensor"),
        ("attention_mask", torch.ones(2, 2), r"\(2, 2\).*\(2, 3\), the shape of input_ids"),
        ("attention_mask", torch.ones(3), r"\(3,\).*\(2, 3\)"),
        ("attention_mask", torch.tensor([[1, 1, 0], [1, 0.5, 0]]), r"holds 0\.5; 1 at real tokens"),
        ("attention_mask", torch.tensor([[1, 2, 3], [1, 1, 1]]), "holds 2"),
        ("attention_mask", torch.zeros(2, 3), "at least one real token"),
        ("attention_mask", torch.zeros(2, 3).bool(), "at least one real token"),
        ("attention_mask", [[1, 1, 1], [1, 1, 1]], r"=\[\[1, 1, 1\], "),
        ("output_attentions", "no", "='no'; True or False"),
        ("output_hidden_states", 1, "=1; True or False"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@either
def test_what_cannot_be_encoded_is_refused_by_name_and_value(unpadded, name, wrong, words):
    with pytest.raises(ValueError, match=f"{name}.*{words}"):
        ours(unpadded=unpadded)(**{"input_ids": ONES} | {name: wrong})


WRONG = {
    **dict.fromkeys([*SIZES, "global_every", "max_length"], (0, -1, 2.0, "2", None, True, 2**70)),
    **dict.fromkeys(("embedding_dropout", "attention_dropout", "mlp_dropout"), (-0.1, 1.1, "0.1")),
    **dict.fromkeys(("initializer_range", "layer_norm_eps"), (-1.0, math.nan, math.inf, "1e-12")),
    **dict.fromkeys(("global_theta", "local_theta", "initializer_cutoff"), (0, -1.0, math.nan)),
    "pad_token_id": (-1, V, 0.5, "0", True),
}


@pytest.mark.parametrize(
    "name, wrong",
    [(name, wrong) for name, values in WRONG.items() for wrong in values]
    + [("window", 1), ("num_heads", 3), ("num_heads", 32), ("num_layers", 10**9)],
)
def test_a_config_that_makes_no_encoder_is_refused_by_name_and_value(name, wrong):
    with pytest.raises(ValueError) as error:
        ModernConfig(**SIZES | {name: wrong})
    assert f"{name}={wrong!r}" in str(error.value)


def test_an_odd_head_size_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="hidden_size=15.*num_heads=3.* 5, which is odd.*pairs"):
        ModernConfig(**SIZES | {"hidden_size": 15, "num_heads": 3})


@pytest.mark.parametrize("wrong", [None, SIZES, ModernConfig])
def test_an_encoder_is_made_from_a_config_alone(wrong):
    with pytest.raises(ValueError, match="config=.* a ModernConfig is needed"):
        ModernEncoder(wrong)
    with pytest.raises(ValueError, match="unpadded='yes'; True or False"):
        ModernEncoder(ModernConfig(**SIZES), unpadded="yes")


def test_numpy_sizes_become_plain_ones():
    config = ModernConfig(**SIZES | {"hidden_size": np.int64(H), "mlp_dropout": np.float64(0.2)})
    assert type(config.hidden_size) is int and type(config.mlp_dropout) is float


@pytest.mark.parametrize(
    "option",
    [{name: size + 4} for name, size in SIZES.items() if name != "num_heads"]
    + [{"embedding_dropout": 0.2}, {"attention_dropout": 0.2}, {"mlp_dropout": 0.2}]
    + [{"layer_norm_eps": 1e-6}, {"pad_token_id": 3}, {"num_heads": 4}, {"global_every": 2}]
    + [{"global_theta": 5.0}, {"local_theta": 5.0}],
    ids=str,
)
def test_encoders_that_compute_differently_are_described_differently(option):
    same, other = repr(ours()), repr(ours(**option))
    assert repr(ours()) == same != other and " at 0x" not in same
