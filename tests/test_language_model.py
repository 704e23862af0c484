"""The language model: each direction against arithmetic in loops, blind to padding as well."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode
from toys import drawn, gradients
from transformers.loss.loss_utils import ForCausalLMLoss

from mlm_lib import checks, encoder, language_model
from mlm_lib.heads import MaskedLMHead
from mlm_lib.labels import IGNORE
from mlm_lib.language_model import (
    LanguageModel,
    LanguageModelEmbedder,
    LSTMContextualizer,
    TransformerContextualizer,
)
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.training import HeldOut, TrainingConfig, train

pytestmark = pytest.mark.usefixtures("one_thread")

V, H, HEADS, LAYERS = 11, 6, 2, 2
LENGTHS = [5, 1, 4, 2]
KEYS = {
    *("loss", "forward_loss", "backward_loss", "batch_weight"),
    *("lm_embeddings", "noncontextual_token_embeddings", "mask"),
}
each_kind = pytest.mark.parametrize("kind", ["lstm", "transformer"])
each_way = pytest.mark.parametrize("bidirectional", [False, True], ids=["one", "both"])
each_side = pytest.mark.parametrize("side", ["none", "right", "left", "both"])


def contextualizer(kind, *, width=H, hidden=H, layers=LAYERS, bidirectional=True, dropout=0.0):
    if kind == "lstm":
        return LSTMContextualizer(
            width, hidden, layers, bidirectional=bidirectional, dropout=dropout
        )
    return TransformerContextualizer(
        hidden, layers, HEADS, bidirectional=bidirectional, dropout=dropout
    )


def build(kind="lstm", *, bidirectional=True, sizes=None, inner_dropout=0.0, seed=0, **options):
    """A small model in float64 and evaluation mode.

    Every parameter is drawn anew, so that no bias is 0 and no scale 1.
    """
    sizes = sizes or {}
    inner = contextualizer(kind, bidirectional=bidirectional, dropout=inner_dropout, **sizes)
    model = LanguageModel(
        V, nn.Embedding(V, sizes.get("width", H)), inner, bidirectional=bidirectional, **options
    )
    return drawn(model, seed, 0.6).eval()


def rows(lengths=LENGTHS, seed=1):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(1, V, (length,), generator=g).tolist() for length in lengths]


def padded(some, side, pad=0, extra=0):
    """Rows as ids and mask, pads on one side or on both, `extra` columns more than needed."""
    length = max(map(len, some)) + extra
    ids, mask = (
        torch.full((len(some), length), pad),
        torch.zeros(len(some), length, dtype=torch.bool),
    )
    for b, row in enumerate(some):
        begin = {"right": 0, "left": length - len(row), "both": (length - len(row)) // 2}[side]
        ids[b, begin : begin + len(row)] = torch.tensor(row)
        mask[b, begin : begin + len(row)] = True
    return ids, mask


def batch(side="right", seed=1):
    return (
        padded(rows([4, 4, 4], seed), "right") if side == "none" else padded(rows(seed=seed), side)
    )


def same(one, other, tolerance=1e-9):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


# --------------------------------------------------------------------------- arithmetic written out


def lstm_by_hand(layers, vectors):
    """Layer by layer, step by step, unit by unit: a list of layers, each a list of states."""
    states = []
    for layer in layers:
        h = c = [torch.zeros((), dtype=torch.float64)] * layer.hidden_size
        out, size = [], layer.hidden_size
        for x in vectors:
            before = torch.stack(h)

            def gate(number, unit):
                row = number * size + unit  # input, forget, cell, output
                into = layer.weight_ih_l0[row] @ x + layer.bias_ih_l0[row]
                return into + layer.weight_hh_l0[row] @ before + layer.bias_hh_l0[row]

            c = [
                gate(1, u).sigmoid() * c[u] + gate(0, u).sigmoid() * gate(2, u).tanh()
                for u in range(size)
            ]
            h = [gate(3, u).sigmoid() * c[u].tanh() for u in range(size)]
            out.append(torch.stack(h))
        vectors = out
        states.append(out)
    return states


def norm_by_hand(norm, x):
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return (x - mean) / (variance + norm.eps) ** 0.5 * norm.weight + norm.bias


def position_by_hand(t, size):
    angles = [t / 10000 ** ((i - i % 2) / size) for i in range(size)]
    return torch.tensor(
        [math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)], dtype=torch.float64
    )


def transformer_by_hand(stack, vectors):
    """Position by position and head by head; a position asks itself and those before it."""
    hidden = [
        norm_by_hand(stack.norm, x) + position_by_hand(t, len(x)) for t, x in enumerate(vectors)
    ]
    states = []
    for block in stack.blocks:
        size, out = len(hidden[0]), []
        D = size // HEADS
        made = [
            block.attention.query_key_value.weight @ x + block.attention.query_key_value.bias
            for x in hidden
        ]
        for t, x in enumerate(hidden):
            heads = []
            for head in range(HEADS):
                query, key, value = (
                    slice(part * size + head * D, part * size + (head + 1) * D) for part in range(3)
                )
                scores = [
                    (made[t][query] @ made[s][key] / math.sqrt(D)).exp() for s in range(t + 1)
                ]
                heads.append(
                    sum(score * made[s][value] for s, score in enumerate(scores)) / sum(scores)
                )
            x = x + block.attention.output.weight @ torch.cat(heads) + block.attention.output.bias
            x = norm_by_hand(block.attention_norm, x)
            wide = block.expand.weight @ x + block.expand.bias
            wide = wide * (1 + torch.erf(wide / math.sqrt(2))) / 2
            out.append(
                norm_by_hand(
                    block.feed_forward_norm, x + block.contract.weight @ wide + block.contract.bias
                )
            )
        hidden = out
        states.append(out)
    return states


def by_hand(model, ids, mask):
    """Losses and layers from the real tokens alone, row by row.

    The backward direction is the same code on a reversed row.
    """
    inner = model.contextualizer
    stacks = [inner.forward_stack] + ([inner.backward_stack] if inner.bidirectional else [])
    one, nothing = (
        inner.output_size // len(stacks),
        torch.zeros(inner.output_size, dtype=torch.float64),
    )
    layers = [[[nothing for _ in row] for row in ids] for _ in range(inner.num_layers)]
    losses = []
    for direction, stack in enumerate(stacks):
        nats = []
        for b, row in enumerate(ids.tolist()):
            places = [t for t in range(len(row)) if mask[b, t]]
            places = places[::-1] if direction else places
            vectors = [model.embedder.weight[row[t]] for t in places]
            read = (
                lstm_by_hand(stack.layers, vectors)
                if hasattr(stack, "layers")
                else transformer_by_hand(stack, vectors)
            )
            for layer, states in zip(layers, read):
                for t, state in zip(places, states):
                    halves = list(layer[b][t].split(one))
                    halves[direction] = state
                    layer[b][t] = torch.cat(halves)
            for i in range(len(places) - 1):
                odds = [
                    (model.softmax.weight[word] @ read[-1][i] + model.softmax.bias[word]).exp()
                    for word in range(V)
                ]
                nats.append((sum(odds) / odds[row[places[i + 1]]]).log())
        losses.append(sum(nats) / len(nats))
    return losses, [torch.stack([torch.stack(row) for row in layer]) for layer in layers]


@each_kind
@each_way
@each_side
def test_losses_layers_and_gradients_are_those_of_the_arithmetic_written_out(
    kind, bidirectional, side
):
    model = build(kind, bidirectional=bidirectional)
    ids, mask = batch(side)
    losses, layers = by_hand(model, ids, mask)
    output = model(ids, mask, all_layers=True)
    same(output["forward_loss"], losses[0])
    for one, other in zip(output["lm_embeddings"], layers, strict=True):
        same(one, other)
    if bidirectional:
        same(output["backward_loss"], losses[1])
    for name in ("loss", "forward_loss", "backward_loss")[: 3 if bidirectional else 2]:
        wanted = {
            "loss": sum(losses) / len(losses),
            "forward_loss": losses[0],
            "backward_loss": losses[-1],
        }[name]
        same(output[name], wanted)
        expected, found = gradients(model, wanted), gradients(model, output[name])
        for parameter in expected:
            same(found[parameter], expected[parameter])


@pytest.mark.parametrize(
    "sizes", [{"width": 5, "hidden": 3, "layers": 3}, {"width": 2, "hidden": 4, "layers": 1}]
)
def test_an_lstm_may_be_of_another_width_than_the_embedder(sizes):
    model = build(sizes=sizes)
    ids, mask = batch("left")
    losses, layers = by_hand(model, ids, mask)
    output = model(ids, mask)
    same(output["loss"], sum(losses) / 2)
    same(output["lm_embeddings"], layers[-1])


def test_a_transformer_of_odd_width_works():
    reader = TransformerContextualizer(5, 1, 1, bidirectional=False)
    model = drawn(LanguageModel(V, nn.Embedding(V, 5), reader)).eval()
    assert model(*batch())["loss"].isfinite()


def test_two_words_by_hand():
    # The state is 0 whatever is read, so the scores are the bias: odds 1 : 2 : 1.
    model = LanguageModel(
        3, nn.Embedding(3, 2), LSTMContextualizer(2, 2, 1, bidirectional=True), bidirectional=True
    )
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        model.softmax.bias[1] = math.log(2)
    output = model(torch.tensor([[1, 2, 1], [2, 1, 0]]))
    # forward: 2 and 1 after 1 2, 1 after 2; backward: 1 and 2 before 2 1, 2 before 1
    assert output["forward_loss"].item() == pytest.approx((math.log(4) + 2 * math.log(2)) / 3)
    assert output["backward_loss"].item() == pytest.approx((2 * math.log(4) + math.log(2)) / 3)
    assert output["loss"].item() == pytest.approx((3 * math.log(4) + 3 * math.log(2)) / 6)
    assert output["batch_weight"].item() == 3


@each_kind
@each_side
def test_a_bidirectional_model_is_two_models_of_one_direction(kind, side):
    both, ids, mask = build(kind), *batch(side)
    one = build(kind, bidirectional=False)
    one.embedder, one.softmax = both.embedder, both.softmax
    output = both(ids, mask)
    one.contextualizer.forward_stack = both.contextualizer.forward_stack
    forward = one(ids, mask)
    same(output["forward_loss"], forward["loss"], 1e-12)
    same(output["lm_embeddings"][..., :H], forward["lm_embeddings"], 1e-12)
    one.contextualizer.forward_stack = both.contextualizer.backward_stack
    backward = one(ids.flip(1), mask.flip(1))
    same(output["backward_loss"], backward["loss"], 1e-12)
    same(output["lm_embeddings"][..., H:], backward["lm_embeddings"].flip(1), 1e-12)


# ---------------------------------------------------------------------------------- other libraries


@each_kind
@each_side
def test_each_loss_is_the_causal_loss_of_transformers(kind, side):
    model, (ids, mask) = build(kind), batch(side)
    output = model(ids, mask)
    forward, backward = output["lm_embeddings"].chunk(2, -1)
    labels = ids.masked_fill(~mask, IGNORE)
    # There a left pad predicts the first token. Ours has seen nothing to predict it from, so that
    # it is no target here.
    labels = labels.masked_fill(torch.cat([~mask[:, :1], ~mask[:, :-1]], 1), IGNORE)
    theirs = ForCausalLMLoss(scores(model, forward), labels, V)
    torch.testing.assert_close(output["forward_loss"].float(), theirs, rtol=1e-5, atol=1e-5)
    labels = ids.masked_fill(~mask, IGNORE).masked_fill(
        torch.cat([~mask[:, 1:], ~mask[:, -1:]], 1), IGNORE
    )
    theirs = ForCausalLMLoss(scores(model, backward).flip(1), labels.flip(1), V)
    torch.testing.assert_close(output["backward_loss"].float(), theirs, rtol=1e-5, atol=1e-5)


def scores(model, states):
    return states @ model.softmax.weight.T + model.softmax.bias


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_stack_is_torchs_lstm_of_several_layers(layers):
    model = build(sizes={"width": 5, "hidden": 4, "layers": layers})
    theirs = nn.LSTM(5, 4, layers, batch_first=True).double()
    ids, mask = batch("none")
    vectors = model.embedder(ids)
    for half, stack, turn in (
        (0, model.contextualizer.forward_stack, ()),
        (1, model.contextualizer.backward_stack, (1,)),
    ):
        named = {
            f"{n[:-1]}{k}": w
            for k, layer in enumerate(stack.layers)
            for n, w in layer.state_dict().items()
        }
        theirs.load_state_dict(named)
        same(
            model(ids, mask)["lm_embeddings"].chunk(2, -1)[half],
            theirs(vectors.flip(turn))[0].flip(turn),
            1e-12,
        )


# ------------------------------------------------------------------------------------ padding


@each_kind
@each_way
@each_side
@pytest.mark.parametrize("pad, extra", [(7, 0), (0, 3), (3, 2)])
def test_a_pad_changes_no_loss_no_gradient_and_no_output_at_real_tokens(
    kind, bidirectional, side, pad, extra
):
    model, some = (
        build(kind, bidirectional=bidirectional),
        rows([4, 4, 4] if side == "none" else LENGTHS),
    )
    ids, mask = padded(some, "right")
    before = model(ids, mask)
    ids, mask = padded(some, "right" if side == "none" else side, pad, extra)
    after = model(ids, mask)
    for name in ("loss", "forward_loss", "backward_loss")[: 3 if bidirectional else 2]:
        same(after[name], before[name], 1e-12)
        expected, found = gradients(model, before[name]), gradients(model, after[name])
        for parameter in expected:
            same(found[parameter], expected[parameter], 1e-12)
    for name in ("lm_embeddings", "noncontextual_token_embeddings"):
        same(after[name][after["mask"]], before[name][before["mask"]], 1e-12)
    assert after["batch_weight"] == before["batch_weight"] == sum(len(row) - 1 for row in some)


@each_kind
@each_side
def test_no_target_is_a_pad_and_no_pad_is_scored(kind, side):
    model, (ids, mask) = build(kind), batch(side)
    asked = []

    def record(module, inputs):
        asked.append(inputs)

    model.softmax.register_forward_pre_hook(record)
    output = model(ids, mask)
    halves, per_row = (
        output["lm_embeddings"].chunk(2, -1),
        [row[real] for row, real in zip(ids, mask)],
    )
    but_last, but_first = slice(None, -1), slice(1, None)
    for (states, targets), half, scored, wanted in zip(
        asked, halves, (but_last, but_first), (but_first, but_last), strict=True
    ):
        assert torch.equal(targets, torch.cat([row[wanted] for row in per_row]))
        assert torch.equal(states, torch.cat([row[real][scored] for row, real in zip(half, mask)]))


@each_kind
@each_side
def test_a_gradient_reaches_no_pad_and_not_the_last_word_of_a_direction(kind, side):
    model, (ids, mask) = build(kind), batch(side)
    vectors = model.embedder(ids).detach().requires_grad_()
    model.embedder = Fixed(vectors)
    output = model(ids, mask)
    last = mask & ~torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    (forward,) = torch.autograd.grad(output["forward_loss"], vectors, retain_graph=True)
    assert torch.equal((forward != 0).any(-1), mask & ~last)
    first = mask & ~torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    (backward,) = torch.autograd.grad(output["backward_loss"], vectors)
    assert torch.equal((backward != 0).any(-1), mask & ~first)


class Fixed(nn.Module):
    """An embedder whose vectors are given."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def forward(self, input_ids):
        return self.vectors


@each_kind
@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e30])
def test_whatever_stands_at_a_pad_does_not_get_out(kind, junk):
    model, (ids, mask) = build(kind), padded(rows(), "both", extra=2)
    expected = model(ids, mask)
    vectors = model.embedder(ids).detach().masked_fill(~mask[..., None], junk).requires_grad_()
    model.embedder = Fixed(vectors)
    output = model(ids, mask)
    same(output["loss"], expected["loss"], 1e-12)
    assert (torch.autograd.grad(output["loss"], vectors)[0][~mask] == 0).all()


@each_kind
@each_way
@each_side
def test_outputs_are_0_at_pads(kind, bidirectional, side):
    ids, mask = batch(side)
    for layer in build(kind, bidirectional=bidirectional)(ids, mask, all_layers=True)[
        "lm_embeddings"
    ]:
        assert (layer[~mask] == 0).all() and (layer[mask] != 0).all()


@each_kind
def test_a_hole_in_a_row_is_not_read_and_its_neighbours_are_no_pair(kind):
    model, ids = build(kind), torch.tensor([[1, 2, 9, 3, 4]])
    mask = torch.tensor([[1, 1, 0, 1, 1]])
    output, closed = model(ids, mask), model(ids[:, [0, 1, 3, 4]])
    same(output["lm_embeddings"][mask == 1], closed["lm_embeddings"][0], 1e-12)
    assert output["batch_weight"] == 2
    forward = scores(model, output["lm_embeddings"][0, [0, 3], :H]).log_softmax(-1)
    same(output["forward_loss"], -(forward[0, 2] + forward[1, 4]) / 2)


@each_kind
@each_way
@pytest.mark.parametrize("lengths", [[1, 1, 1], [1], [1, 0], [0, 0]])
@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize("num_samples", [None, 3])
def test_rows_without_a_pair_give_losses_of_0_and_gradients_of_0(
    kind, bidirectional, lengths, extra, num_samples
):
    ids, mask = padded(rows(lengths), "right", extra=max(extra, not any(lengths)))
    model = build(kind, bidirectional=bidirectional, num_samples=num_samples).train()
    output = model(ids, mask)
    for name in ("loss", "forward_loss", "backward_loss")[: 3 if bidirectional else 2]:
        assert output[name].item() == 0
    assert output["batch_weight"].item() == 0
    output["loss"].backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())
    assert all(p.grad is not None for p in model.contextualizer.parameters())
    assert output["lm_embeddings"].isfinite().all() and (output["lm_embeddings"][~mask] == 0).all()
    assert model.get_metrics() == {"perplexity": 0.0}


@each_kind
@pytest.mark.parametrize("training", [False, True])
def test_a_row_of_pads_among_others_changes_nothing(kind, training):
    model, some = build(kind), rows([4, 2])
    expected, found = model(*padded(some, "right")), model(*padded([some[0], [], some[1]], "right"))
    same(found["loss"], expected["loss"], 1e-12)
    assert (found["lm_embeddings"][1] == 0).all()
    wanted, got = gradients(model, expected["loss"]), gradients(model, found["loss"])
    for name in wanted:
        same(got[name], wanted[name], 1e-12)
    model.train(training)
    assert (
        gradients(model, model(*padded([[], []], "right", extra=3))["loss"])["embedder.weight"]
        .eq(0)
        .all()
    )


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.int32, torch.uint8, torch.float32, torch.float64]
)
def test_a_mask_may_be_of_any_type(dtype):
    model, (ids, mask) = build(), batch("left")
    output = model(ids, mask.to(dtype))
    assert torch.equal(output["mask"], mask)  # (B, T) bool
    assert torch.equal(output["loss"], model(ids, mask)["loss"])


@pytest.mark.parametrize("pad", [0, 5])
def test_without_a_mask_what_is_not_the_pad_is_real(pad):
    model = build(pad_token_id=pad)
    ids, mask = padded([[i if i != pad else 1 for i in row] for row in rows()], "right", pad)
    output = model(ids)
    assert torch.equal(output["mask"], mask)
    assert torch.equal(output["loss"], model(ids, mask)["loss"])


def test_without_a_pad_token_every_token_is_real():
    model, (ids, mask) = build(pad_token_id=None), batch()
    assert torch.equal(model(ids)["loss"], model(ids, torch.ones_like(mask))["loss"])
    assert LanguageModelEmbedder(model)(ids).all()


def test_models_that_compute_differently_are_described_differently():
    same = repr(build())
    assert repr(build()) == same and " at 0x" not in same
    for options in (
        {"bidirectional": False},
        {"pad_token_id": 3},
        {"dropout": 0.1},
        {"kind": "transformer"},
    ):
        assert repr(build(**options)) != same
    embedders = [repr(LanguageModelEmbedder(build(), trainable=flag)) for flag in (False, True)]
    assert embedders[0] != embedders[1]


def test_an_explicit_mask_wins_over_the_pad_token():
    model, ids = build(pad_token_id=3), torch.tensor([[3, 1, 3, 2, 0]])
    assert model(ids)["batch_weight"] == 1  # 2 and 0 alone
    assert model(ids, torch.ones_like(ids))["batch_weight"] == 4
    assert model(ids, torch.tensor([[1, 1, 1, 0, 0]]))["batch_weight"] == 2
    same(
        model(ids, torch.tensor([[1, 1, 1, 0, 0]]))["loss"],
        model(ids[:, :3], torch.ones(1, 3))["loss"],
        1e-12,
    )


# ------------------------------------------------------------------------------------ outputs


@each_kind
@each_way
@pytest.mark.parametrize("layers", [1, 3])
def test_the_output_has_these_keys_and_shapes(kind, bidirectional, layers):
    model, (ids, mask) = build(kind, bidirectional=bidirectional, sizes={"layers": layers}), batch()
    B, T, width = *ids.shape, 2 * H if bidirectional else H
    output = model(ids, mask)
    assert set(output) == KEYS
    for name in ("loss", "forward_loss", "batch_weight"):
        assert output[name].shape == () and output[name].is_floating_point()
    assert (
        output["lm_embeddings"].shape == (B, T, width) and model.contextualizer.output_size == width
    )
    assert output["noncontextual_token_embeddings"].shape == (B, T, H)
    assert torch.equal(output["noncontextual_token_embeddings"], model.embedder(ids))
    if bidirectional:
        same(output["loss"], (output["forward_loss"] + output["backward_loss"]) / 2, 1e-12)
    else:
        assert output["backward_loss"] is None and torch.equal(
            output["loss"], output["forward_loss"]
        )
    every = model(ids, mask, all_layers=True)
    assert (
        set(every) == KEYS
        and isinstance(every["lm_embeddings"], list)
        and len(every["lm_embeddings"]) == layers
    )
    assert all(layer.shape == (B, T, width) for layer in every["lm_embeddings"])
    assert torch.equal(every["lm_embeddings"][-1], output["lm_embeddings"]) and torch.equal(
        every["loss"], output["loss"]
    )
    assert model.num_layers() == layers + 1


@each_kind
def test_embed_gives_the_vectors_of_forward_without_a_loss(kind):
    model, (ids, mask) = build(kind), batch()
    output = model(ids, mask)
    found = model.embed(ids, mask)
    assert set(found) == {"lm_embeddings", "noncontextual_token_embeddings", "mask"}
    assert all(torch.equal(found[name], output[name]) for name in found)
    assert len(model.embed(ids, mask, all_layers=True)["lm_embeddings"]) == LAYERS
    assert model.get_metrics(reset=True)["perplexity"] > 0
    model.embed(ids, mask)
    assert model.get_metrics()["perplexity"] == 0.0


@each_kind
def test_the_batch_does_not_change_what_a_row_gets(kind):
    model, some = build(kind), rows([5, 2, 3])
    together = model(*padded(some, "right"))["lm_embeddings"]
    for b, row in enumerate(some):
        same(together[b, : len(row)], model(*padded([row], "right"))["lm_embeddings"][0], 1e-12)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("num_samples", [None, 4])
def test_ids_may_be_integers_of_two_widths(dtype, num_samples):
    model, (ids, mask) = build(num_samples=num_samples).train(), batch()
    losses = []
    for kind in (torch.int64, dtype):
        torch.manual_seed(0)
        losses.append(model(ids.to(kind), mask)["loss"])
    assert torch.equal(*losses)


class MeanSoFar(nn.Module):
    """A contextualizer of the reader's own."""

    bidirectional, num_layers, output_size = False, 1, H

    def forward(self, embeddings, mask):
        assert mask.dtype == torch.bool and mask.shape == embeddings.shape[:2]
        weights = mask[..., None].to(embeddings)
        return (embeddings * weights).cumsum(1) / weights.cumsum(1).clamp(min=1)


def test_a_contextualizer_of_the_readers_own_needs_only_three_attributes():
    model = drawn(LanguageModel(V, nn.Embedding(V, H), MeanSoFar())).eval()
    ids, mask = batch()
    output = model(ids, mask)
    assert (
        output["backward_loss"] is None
        and output["batch_weight"] == mask[:, 1:].sum()
        and model.num_layers() == 2
    )
    same(output["lm_embeddings"][0, 2], model.embedder(ids[0, :3]).mean(0))


# ------------------------------------------------------------------------------------ dropout


@each_kind
@each_way
def test_dropout_acts_before_the_softmax_only(kind, bidirectional):
    model, (ids, mask) = build(kind, bidirectional=bidirectional, dropout=0.5), batch()
    quiet = model(ids, mask)
    assert torch.equal(quiet["loss"], model(ids, mask)["loss"])
    model.train()
    noisy = [model(ids, mask) for _ in range(5)]
    for output in noisy:
        same(output["lm_embeddings"], quiet["lm_embeddings"], 1e-12)
        same(
            output["noncontextual_token_embeddings"], quiet["noncontextual_token_embeddings"], 1e-12
        )
    assert len({output["loss"].item() for output in noisy} | {quiet["loss"].item()}) == 6


def test_with_all_dropped_only_the_bias_is_left():
    model, (ids, mask) = build(dropout=1.0), batch()
    output = model.train()(ids, mask)
    pairs = mask[:, 1:]
    same(output["forward_loss"], -model.softmax.bias.log_softmax(0)[ids[:, 1:][pairs]].mean())
    same(output["backward_loss"], -model.softmax.bias.log_softmax(0)[ids[:, :-1][pairs]].mean())


@each_kind
def test_dropout_within_the_contextualizer_acts_in_training_only(kind):
    model, (ids, mask) = build(kind, inner_dropout=0.5), batch()
    outputs = [model(ids, mask)["lm_embeddings"] for _ in range(2)]
    assert torch.equal(*outputs)
    model.train()
    noisy = [model(ids, mask, all_layers=True)["lm_embeddings"] for _ in range(2)]
    assert not torch.allclose(noisy[0][-1], noisy[1][-1])
    if (
        kind == "lstm"
    ):  # between layers: what the first one reads and what the last one gives is whole
        assert torch.equal(noisy[0][0], noisy[1][0]) and (noisy[0][-1][mask] != 0).all()


# ------------------------------------------------------------------------------ without the softmax


@each_kind
@pytest.mark.parametrize("num_samples", [None, 3])
def test_delete_softmax_frees_it_and_leaves_the_vectors(kind, num_samples):
    model, (ids, mask) = build(kind, num_samples=num_samples), batch()
    before, count = model.embed(ids, mask)["lm_embeddings"], len(list(model.parameters()))
    model.delete_softmax()
    assert len(list(model.parameters())) == count - 2 and not [
        name for name in model.state_dict() if "softmax" in name
    ]
    assert torch.equal(model.embed(ids, mask)["lm_embeddings"], before)
    assert torch.equal(copy.deepcopy(model).train().embed(ids, mask)["lm_embeddings"], before)
    with pytest.raises(RuntimeError, match="delete_softmax"):
        model(ids, mask)
    model.delete_softmax()  # twice is once


# ------------------------------------------------------------------------------------ metrics


@each_way
def test_the_perplexity_weighs_tokens_not_batches(bidirectional):
    model = build(bidirectional=bidirectional)
    assert model.get_metrics() == {"perplexity": 0.0}
    nats = count = 0
    for lengths in ([5, 4, 5], [2], [1], [3, 1]):
        output = model(*padded(rows(lengths, seed=len(lengths)), "right"))
        nats, count = (
            nats + output["loss"].item() * sum(n - 1 for n in lengths),
            count + sum(n - 1 for n in lengths),
        )
    expected = math.exp(nats / count)
    assert model.get_metrics()["perplexity"] == pytest.approx(expected, rel=1e-9)
    assert model.get_metrics(reset=True)["perplexity"] == pytest.approx(expected, rel=1e-9)
    assert model.get_metrics() == {"perplexity": 0.0}
    output = model(*batch())
    assert model.get_metrics()["perplexity"] == pytest.approx(output["loss"].exp().item())


@pytest.mark.parametrize(
    "scale, perplexity", [(700.0, math.exp(700)), (800.0, math.inf), (1e30, math.inf)]
)
def test_a_perplexity_too_large_for_a_float_is_inf(scale, perplexity):
    model = LanguageModel(
        2, nn.Embedding(2, 2), LSTMContextualizer(2, 2, 1, bidirectional=False)
    ).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        model.softmax.bias[0] = scale
    model(torch.tensor([[1, 1]]))
    assert model.get_metrics()["perplexity"] == pytest.approx(perplexity, rel=1e-6)


def test_the_perplexity_of_weights_that_are_not_numbers_is_not_a_number():
    model = build()
    nn.init.constant_(model.softmax.weight, math.nan)
    model(*batch())
    assert math.isnan(model.get_metrics(reset=True)["perplexity"])
    assert model.get_metrics() == {"perplexity": 0.0}


class Looks(TorchDispatchMode):
    """Counts what makes a program wait for its device: the values of tensors that it asks for."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **kwargs or {})


class Squares(nn.Module):
    """In the place of the softmax, whose own checks look at ids on a processor."""

    def forward(self, embeddings, targets):
        return embeddings.square().sum()


@each_kind
@each_way
@pytest.mark.parametrize("training", [False, True])
def test_a_forward_pass_asks_for_no_value_and_the_metrics_for_two(
    kind, bidirectional, training, monkeypatch
):
    model, (ids, mask) = build(kind, bidirectional=bidirectional).train(training), batch()
    model.softmax = Squares()
    for module in (checks, language_model, encoder):  # as on an accelerator
        monkeypatch.setattr(module, "can_look", lambda tensor: False)
    with Looks() as looks:
        for given in (None, mask, mask.long()):
            loss = model(ids, given)["loss"]
        assert looks.count == 0
        assert loss.item() and looks.count == 1
        assert model.get_metrics()["perplexity"] > 1 and looks.count == 3


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize(
    "move", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), lambda m: m.float()]
)
def test_what_was_counted_moves_along_and_counting_goes_on(mode, move):
    model = build()
    with mode():
        model(*batch())
    before = model.get_metrics()
    moved = move(model)
    assert moved.get_metrics() == before
    moved(*batch(seed=2))
    assert moved.get_metrics() != before
    assert moved is model or model.get_metrics() == before
    assert not moved._nats.requires_grad and moved._nats.dtype == torch.float64


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((V, None, "lstm"), "embedder=None; a module"),
        ((V, nn.Embedding(V, H), None), "contextualizer=None; a module"),
        ((V, nn.Embedding(V, H), nn.LSTM(H, H)), "output_size=None; a whole number"),
    ],
)
def test_parts_that_make_no_language_model_are_refused_by_name(arguments, words):
    with pytest.raises(ValueError, match=words):
        LanguageModel(*arguments)


@pytest.mark.parametrize(
    "option",
    [{"pad_token_id": "0"}, {"pad_token_id": True}, {"pad_token_id": 0.5}]
    + [{"sparse_embeddings": 1, "num_samples": 3}, {"sparse_embeddings": "no"}],
    ids=str,
)
def test_an_option_of_another_kind_is_refused_by_name_and_value(option):
    name, value = next(iter(option.items()))
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        build(**option)


def test_a_bidirectional_that_is_no_flag_is_refused():
    with pytest.raises(ValueError, match="bidirectional=1; True or False"):
        LanguageModel(V, nn.Embedding(V, H), contextualizer("lstm"), bidirectional=1)


def test_lists_and_flags_of_another_kind_are_refused_by_name():
    model, (ids, mask) = build(), batch()
    embedder = LanguageModelEmbedder(model)
    calls = {
        "input_ids": lambda: model(ids.tolist()),
        "mask": lambda: model(ids, mask.tolist()),
        "all_layers": lambda: model(ids, mask, all_layers=1),
        "reset": lambda: model.get_metrics(reset="no"),
        "trainable": lambda: LanguageModelEmbedder(model, trainable=1),
        "language_model": lambda: LanguageModelEmbedder(model.embedder),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name}="):
            call()
    for name, call in {"input_ids": [[1]], "mask": [[1]]}.items():
        with pytest.raises(ValueError, match=f"{name}="):
            embedder(**{"input_ids": ids, "mask": mask} | {name: call})


@pytest.mark.parametrize("inner, outer", [(True, False), (False, True)])
@each_kind
def test_directions_that_differ_are_an_error_with_both(kind, inner, outer):
    with pytest.raises(ValueError, match=f"bidirectional={inner}.* {outer}"):
        LanguageModel(
            V, nn.Embedding(V, H), contextualizer(kind, bidirectional=inner), bidirectional=outer
        )


def test_a_bidirectional_contextualizer_of_odd_width_is_an_error():
    odd = MeanSoFar()
    odd.bidirectional, odd.output_size = True, 7
    with pytest.raises(ValueError, match="output_size=7"):
        LanguageModel(V, nn.Embedding(V, H), odd, bidirectional=True)


@pytest.mark.parametrize("share", [-0.1, 1.5, math.nan, "0.1", None, True])
def test_a_dropout_that_is_no_probability_is_an_error_with_its_value(share):
    for make in (build, lambda **options: LanguageModelEmbedder(build(), **options)):
        with pytest.raises(ValueError, match=f"dropout={share!r}"):
            make(dropout=share)


@pytest.mark.parametrize("size", [0, -3, 2.5, None, True])
def test_a_bad_vocabulary_size_is_an_error(size):
    with pytest.raises(ValueError, match=f"vocab_size={size!r}"):
        LanguageModel(size, nn.Embedding(V, H), contextualizer("lstm"), bidirectional=True)


@pytest.mark.parametrize("samples", [0, V, -1, 2.0])
def test_a_bad_number_of_samples_is_an_error(samples):
    with pytest.raises(ValueError, match=f"num_samples={samples!r}"):
        build(num_samples=samples)


@pytest.mark.parametrize("option", [{"sparse_embeddings": True}, {"frequency_order": range(V)}])
def test_what_belongs_to_the_sampled_softmax_needs_samples(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))}.*num_samples"):
        build(**option)


@pytest.mark.parametrize("call", ["forward", "embed"])
@pytest.mark.parametrize(
    "ids, mask, words",
    [
        ([[1, V]], None, [f"holds {V}", f"from 0 to {V - 1}"]),
        ([[1, -1]], None, ["holds -1", f"from 0 to {V - 1}"]),
        ([[1, 2], [99, 3]], [[1, 1], [0, 1]], ["holds 99"]),  # at a pad as well
        ([1, 2, 3], None, ["(3,)"]),
        ([[[1, 2]]], None, ["(1, 1, 2)"]),
        ([[], []], None, ["(2, 0)"]),
        ([[1, 2, 3]], [[1, 1]], ["(1, 2)", "(1, 3)"]),
        ([[1, 2, 3]], [1, 1, 1], ["(3,)", "(1, 3)"]),
        ([[1, 2, 3]], [[1, 2, 0]], ["holds 2"]),
        ([[1, 2, 3]], [[1.0, 0.5, 0.0]], ["holds 0.5"]),
        ([[1, 2, 3]], [[1, -1, 0]], ["holds -1"]),
        ([[1, 2, 3]], [[1.0, math.nan, 0.0]], ["holds nan"]),
    ],
)
def test_wrong_inputs_are_refused_with_what_is_wrong(call, ids, mask, words):
    model = build()
    with pytest.raises(ValueError) as error:
        getattr(model, call)(
            torch.tensor(ids, dtype=torch.long), None if mask is None else torch.tensor(mask)
        )
    assert [word for word in words if word not in str(error.value)] == [], str(error.value)
    assert model.get_metrics() == {"perplexity": 0.0}


# ---------------------------------------------------------------------------------- sampled softmax


@each_kind
def test_a_sampled_softmax_samples_in_training_and_is_exact_in_evaluation(kind):
    full, sampled, (ids, mask) = build(kind), build(kind, num_samples=3), batch()
    sampled.load_state_dict(full.state_dict())
    for name in ("loss", "forward_loss", "backward_loss"):
        assert torch.equal(sampled(ids, mask)[name], full(ids, mask)[name])
    sampled.train()
    losses = [sampled(ids, mask)["loss"].item() for _ in range(8)]
    assert len(set(losses)) > 1 and max(losses) < full(ids, mask)["loss"].item()
    torch.manual_seed(1)
    once = sampled(ids, mask)["loss"]
    torch.manual_seed(1)
    assert torch.equal(once, sampled(ids, mask)["loss"])


def test_the_frequency_order_reaches_the_sampler():
    order = list(range(V))[::-1]
    model = build(num_samples=3, frequency_order=order)
    assert model.softmax.order.tolist() == order
    with pytest.raises(ValueError, match="frequency_order"):
        build(num_samples=3, frequency_order=[0] * V)


@each_way
def test_sparse_gradients_are_those_of_the_dense_model_and_sparse_adam_takes_them(bidirectional):
    dense = build(bidirectional=bidirectional, num_samples=3).train()
    sparse = build(bidirectional=bidirectional, num_samples=3, sparse_embeddings=True).train()
    for model in (dense, sparse):
        torch.manual_seed(0)
        model(*batch())["loss"].backward()
    for name, parameter in sparse.named_parameters():
        assert parameter.grad.is_sparse == name.startswith("softmax.")
        same(parameter.grad.to_dense(), dense.get_parameter(name).grad, 1e-12)
    before = sparse.softmax.weight.detach().clone()
    touched = sparse.softmax.weight.grad.to_dense().ne(0).any(1)
    torch.optim.SparseAdam(list(sparse.softmax.parameters()), lr=0.1).step()
    moved = (sparse.softmax.weight.detach() != before).any(1)
    assert torch.equal(moved, touched) and moved.any()
    sparse.zero_grad()
    sparse.eval()(*batch())["loss"].backward()
    assert not sparse.softmax.weight.grad.is_sparse  # evaluation is the full softmax


# ----------------------------------------------------------------------------------- as an embedder


def mixture(embedder, model, ids, mask):
    """Number by number over layers, from the language model's own outputs."""
    output = model.embed(ids, mask, all_layers=True)
    copies = 2 if model.bidirectional else 1
    layers = [
        torch.cat([output["noncontextual_token_embeddings"]] * copies, -1),
        *output["lm_embeddings"],
    ]
    weights = [math.exp(s) for s in embedder.scalars.tolist()]
    total = sum(weight / sum(weights) * layer for weight, layer in zip(weights, layers))
    return embedder.gamma.item() * total * mask[..., None]


@each_kind
@each_way
@each_side
def test_the_embedder_mixes_the_layers_with_learned_scalars(kind, bidirectional, side):
    model, (ids, mask) = build(kind, bidirectional=bidirectional), batch(side)
    embedder = LanguageModelEmbedder(model)
    assert embedder.scalars.tolist() == [0.0] * (LAYERS + 1) and embedder.gamma.item() == 1
    assert embedder.output_size == model.contextualizer.output_size == embedder(ids, mask).shape[-1]
    same(embedder(ids, mask), mixture(embedder, model, ids, mask), 1e-12)
    with torch.no_grad():
        embedder.scalars.copy_(torch.tensor([0.3, -1.0, 2.0]))
        embedder.gamma.fill_(-1.7)
    same(embedder(ids, mask), mixture(embedder, model, ids, mask), 1e-12)
    assert (embedder(ids, mask)[~mask] == 0).all()
    same(embedder(ids, mask.float()), embedder(ids, mask), 0)


def test_at_first_every_layer_weighs_the_same():
    model, (ids, mask) = build(bidirectional=False), batch()
    output = model.embed(ids, mask, all_layers=True)
    layers = [output["noncontextual_token_embeddings"], *output["lm_embeddings"]]
    same(LanguageModelEmbedder(model)(ids, mask)[mask], (sum(layers) / 3)[mask])


@pytest.mark.parametrize("pad", [0, 4])
def test_the_embedder_finds_padding_as_the_language_model_does(pad):
    model = build(pad_token_id=pad)
    embedder = LanguageModelEmbedder(model)
    ids, mask = padded([[i if i != pad else 1 for i in row] for row in rows()], "left", pad)
    assert torch.equal(embedder(ids), embedder(ids, mask)) and (embedder(ids)[~mask] == 0).all()
    with pytest.raises(ValueError, match="holds 3"):
        embedder(ids, mask.long() * 3)
    with pytest.raises(ValueError, match="the shape of input_ids"):
        embedder(ids, mask[:, 1:])
    with pytest.raises(ValueError, match="input_ids holds"):
        embedder(ids + V)


@each_kind
@pytest.mark.parametrize("trainable", [False, True])
def test_gradients_reach_the_scalars_and_the_language_model_only_if_it_is_trainable(
    kind, trainable
):
    model, (ids, mask) = build(kind), batch()
    embedder = LanguageModelEmbedder(model, trainable=trainable).train()
    embedder(ids, mask).square().sum().backward()
    assert (embedder.scalars.grad != 0).all() and embedder.gamma.grad != 0
    inner = [*model.embedder.parameters(), *model.contextualizer.parameters()]
    assert all(
        (p.grad is not None and (p.grad != 0).any()) if trainable else p.grad is None for p in inner
    )
    made = []
    model.contextualizer.register_forward_hook(
        lambda module, inputs, output: made.append(output[-1].requires_grad)
    )
    embedder(ids, mask)
    with torch.no_grad():
        assert not embedder(ids, mask).requires_grad
    assert made == [trainable, False]


@pytest.mark.parametrize("trainable", [False, True])
def test_a_frozen_language_model_stays_in_evaluation_mode(trainable):
    model, (ids, mask) = build("transformer", inner_dropout=0.5).train(), batch()
    outer = nn.Sequential(LanguageModelEmbedder(model, trainable=trainable))
    embedder = outer[0]
    assert model.contextualizer.training == trainable  # from the start
    for mode in (True, False, True):
        assert outer.train(mode) is outer and embedder.training == mode
        inner = [*model.contextualizer.modules(), *model.embedder.modules()]
        assert {module.training for module in inner} == {mode and trainable}
    assert torch.equal(embedder(ids, mask), embedder(ids, mask)) == (not trainable)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_embedder_is_of_the_language_models_type(dtype):
    model, (ids, mask) = build().to(dtype), batch()
    embedder = LanguageModelEmbedder(model)
    assert (
        {parameter.dtype for parameter in embedder.parameters()}
        == {embedder(ids, mask).dtype}
        == {dtype}
    )


def test_the_embedders_own_dropout_acts_in_training_only():
    embedder, (ids, mask) = LanguageModelEmbedder(build(), dropout=0.5), batch()
    assert not torch.equal(embedder.train()(ids, mask), embedder(ids, mask))
    assert torch.equal(embedder.eval()(ids, mask), embedder(ids, mask))


@pytest.mark.parametrize(
    "width, hidden, bidirectional",
    [
        (6, 4, True),
        (6, 4, False),
        (4, 6, True),
        (4, 6, False),
        (4, 12, False),
        (8, 4, True),
        (4, 8, False),
    ],
)
def test_a_direction_of_another_width_than_the_embedder_is_an_error_with_both_numbers(
    width, hidden, bidirectional
):
    # The last two have layers that could be stacked: one direction as wide as two copies, two as
    # wide as one.
    model = build(bidirectional=bidirectional, sizes={"width": width, "hidden": hidden})
    with pytest.raises(ValueError, match=rf"{width} wide .* {model.contextualizer.output_size}"):
        LanguageModelEmbedder(model)(*batch())


def test_the_embedder_needs_no_softmax_and_holds_none():
    model, (ids, mask) = build(), batch()
    expected = LanguageModelEmbedder(model)(ids, mask)
    model.delete_softmax()
    embedder = LanguageModelEmbedder(model)
    assert torch.equal(embedder(ids, mask), expected)
    assert not [name for name in LanguageModelEmbedder(build()).state_dict() if "softmax" in name]


@each_kind
@each_way
@pytest.mark.parametrize("trainable", [False, True])
def test_it_is_an_embedder_for_the_masked_language_model(kind, bidirectional, trainable):
    model, (ids, mask) = build(kind, bidirectional=bidirectional), batch("left")
    embedder = LanguageModelEmbedder(model, trainable=trainable)
    masked = MaskedLanguageModel(embedder, MaskedLMHead(embedder.output_size, V)).double().eval()
    same(masked(ids, mask)["logits"], masked.head(embedder(ids, mask)), 1e-12)
    same(masked(ids, mask.long())["logits"], masked(ids)["logits"], 1e-12)
    labels = ids.masked_fill(torch.arange(ids.numel()).view_as(ids) % 3 > 0, IGNORE).masked_fill(
        ~mask, IGNORE
    )
    loss = masked(ids, mask, labels=labels)["loss"]
    loss.backward()
    assert loss.isfinite() and (embedder.scalars.grad != 0).all()
    inner = [p for module in (model.embedder, model.contextualizer) for p in module.parameters()]
    assert all((p.grad is not None) == trainable for p in inner)


def test_training_a_model_on_a_frozen_embedder_leaves_the_language_model_to_the_bit():
    model = build().float()
    before = copy.deepcopy(model.state_dict())
    embedder = LanguageModelEmbedder(model)
    masked = MaskedLanguageModel(embedder, MaskedLMHead(embedder.output_size, V))

    def collate(examples):
        ids, mask = padded(examples, "right")
        return {
            "input_ids": ids,
            "attention_mask": mask.long(),
            "labels": ids.masked_fill(~mask, IGNORE),
        }

    train(masked, DATA, collate, settings(steps=5, weight_decay=0.1))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert (embedder.scalars != 0).all() and embedder.gamma != 1


# ---------------------------------------------------------------------------- copies and precisions


@each_kind
@pytest.mark.parametrize("num_samples", [None, 3])
def test_a_state_dictionary_a_copy_and_a_pickle_give_the_same_model(kind, num_samples):
    model, (ids, mask) = build(kind, num_samples=num_samples), batch()
    expected = model(ids, mask)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build(kind, num_samples=num_samples, seed=5)
    assert loaded(ids, mask)["loss"] != expected["loss"]
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for other in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        output = other(ids, mask)
        assert torch.equal(output["loss"], expected["loss"]) and torch.equal(
            output["lm_embeddings"], expected["lm_embeddings"]
        )


@each_kind
def test_a_pickled_embedder_is_the_same_and_still_frozen(kind):
    embedder, (ids, mask) = LanguageModelEmbedder(build(kind)), batch()
    for other in (copy.deepcopy(embedder), pickle.loads(pickle.dumps(embedder))):
        assert torch.equal(other(ids, mask), embedder(ids, mask))
        assert not other.train().contextualizer.training


@each_kind
@each_way
def test_double_is_double_throughout(kind, bidirectional):
    inner = contextualizer(kind, bidirectional=bidirectional)
    model, (ids, mask) = (
        LanguageModel(V, nn.Embedding(V, H), inner, bidirectional=bidirectional),
        batch(),
    )
    for dtype in (torch.float32, torch.float64):
        output = model.to(dtype)(ids, mask)
        tensors = [output[name] for name in KEYS - {"mask", "backward_loss"}]
        assert {tensor.dtype for tensor in tensors} == {dtype}
    single, double = model.float()(ids, mask)["loss"], model.double()(ids, mask)["loss"]
    assert single.item() == pytest.approx(double.item(), rel=1e-5)


@each_kind
@each_way
@each_side
def test_bf16_autocast_is_finite_and_near(kind, bidirectional, side):
    model, (ids, mask) = build(kind, bidirectional=bidirectional, dropout=0.1).float(), batch(side)
    expected = model(ids, mask)
    embedder = LanguageModelEmbedder(model, trainable=True)
    with torch.autocast("cpu", torch.bfloat16):
        output, mixed = model(ids, mask), embedder(ids, mask)
        model.train()(ids, mask)["loss"].backward()
    assert output["loss"].dtype == torch.float32
    torch.testing.assert_close(output["loss"], expected["loss"], rtol=0.1, atol=0.05)
    assert (
        (output["lm_embeddings"][~mask] == 0).all()
        and mixed.isfinite().all()
        and (mixed[~mask] == 0).all()
    )
    assert all(p.grad.isfinite().all() for p in model.parameters())


@each_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_gives_a_finite_float32_loss(kind, dtype):
    model, (ids, mask) = build(kind).to(dtype), batch("left")
    output = model(ids, mask)
    assert output["loss"].dtype == torch.float32 and output["loss"].isfinite()
    assert (
        output["lm_embeddings"].dtype == dtype
        and LanguageModelEmbedder(model)(ids, mask).dtype == dtype
    )


# ------------------------------------------------------------------------------------ training

DATA = [
    [1 + (start + step) % (V - 1) for step in range(3 + start % 5)] for start in range(40)
]  # each word has one successor


def collate_words(examples):
    ids, mask = padded(examples, "right")
    return {"input_ids": ids, "mask": mask}


def settings(**options):
    return TrainingConfig(
        **{"batch_size": 8, "learning_rate": 1e-2, "precision": "fp32", "device": "cpu"} | options
    )


def fresh(kind="lstm", **options):
    torch.manual_seed(0)
    inner = contextualizer(kind, bidirectional=True, dropout=0.1)
    return LanguageModel(V, nn.Embedding(V, H), inner, bidirectional=True, dropout=0.1, **options)


@each_kind
@pytest.mark.parametrize("options", [{}, {"num_samples": 4}], ids=["full", "sampled"])
def test_it_learns_from_batches_without_labels(kind, options):
    model = fresh(kind, **options)
    held = HeldOut(DATA, collate_words)
    before = held(model)["held_out_loss"]
    history = train(
        model, DATA, collate_words, settings(steps=60, learning_rate=5e-2), evaluate=held
    )
    assert history.tokens > 0 and history.rows[-1]["held_out_loss"] < before / 2
    if not options:
        assert history.rows[-1]["loss"] < history.rows[0]["loss"] / 1.5


@each_kind
@pytest.mark.parametrize("options", [{}, {"num_samples": 4}], ids=["full", "sampled"])
def test_a_resumed_run_goes_on_to_the_bit(kind, options, tmp_path):
    def go(steps, out=None, resume=False):
        model = fresh(kind, **options)
        config = settings(steps=steps, schedule="constant", warmup=2)
        return model, train(model, DATA, collate_words, config, out=out, resume=resume)

    whole, history = go(12)
    go(7, tmp_path)
    resumed, later = go(12, tmp_path, resume=True)
    assert (history.step, history.tokens) == (later.step, later.tokens)
    assert all(
        torch.equal(tensor, resumed.state_dict()[name])
        for name, tensor in whole.state_dict().items()
    )


def test_a_held_out_loss_is_the_mean_over_all_pairs_and_leaves_the_mode_alone():
    model = fresh()
    held = HeldOut(DATA, collate_words, batch_size=7)
    whole = model.eval()(*padded(DATA, "right"))
    assert held.count == whole["batch_weight"]
    assert (
        held(model.train()) == {"held_out_loss": pytest.approx(whole["loss"].item(), rel=1e-5)}
        and model.training
    )


def test_bf16_training_stays_finite():
    model = fresh("transformer")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        history = train(model, DATA, collate_words, settings(steps=10, precision="bf16"))
    assert math.isfinite(history.rows[-1]["loss"]) and model.embedder.weight.dtype == torch.float32
