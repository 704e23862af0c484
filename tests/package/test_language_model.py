"""The language model: each direction against arithmetic in loops, blind to padding as well."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
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
    sinusoids,
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
    options = {"bidirectional": bidirectional, "dropout": dropout}
    if kind == "lstm":
        return LSTMContextualizer(width, hidden, layers, **options)
    return TransformerContextualizer(hidden, layers, HEADS, **options)


def build(kind="lstm", *, bidirectional=True, sizes=None, inner_dropout=0.0, seed=0, **options):
    """A small model in float64 and evaluation mode.

    Every parameter is drawn anew, so that no bias is 0 and no scale 1.
    """
    sizes = sizes or {}
    inner = contextualizer(kind, bidirectional=bidirectional, dropout=inner_dropout, **sizes)
    embedding = nn.Embedding(V, sizes.get("width", H))
    model = LanguageModel(V, embedding, inner, bidirectional=bidirectional, **options)
    return drawn(model, seed, 0.6).eval()


def rows(lengths=LENGTHS, seed=1):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(1, V, (length,), generator=g).tolist() for length in lengths]


def padded(some, side, pad=0, extra=0):
    """Rows as ids and mask, pads on one side or on both, `extra` columns more than needed."""
    length = max(map(len, some)) + extra
    ids = torch.full((len(some), length), pad)
    mask = torch.zeros(len(some), length, dtype=torch.bool)
    for b, row in enumerate(some):
        begin = {"right": 0, "left": length - len(row), "both": (length - len(row)) // 2}[side]
        ids[b, begin : begin + len(row)] = torch.tensor(row)
        mask[b, begin : begin + len(row)] = True
    return ids, mask


def batch(side="right", seed=1):
    return padded(*(rows([4] * 3, seed), "right") if side == "none" else (rows(seed=seed), side))


def same(one, other, tolerance=1e-9):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


# --------------------------------------------------------------------------- arithmetic written out


def lstm_by_hand(layers, vectors):
    """Layer by layer and step by step: a list of layers, each a list of states."""
    states = []
    for layer in layers:
        read, state = [], None
        for x in vectors:
            found, state = layer(x[None], state)
            read.append(found[0])
        vectors = read
        states.append(read)
    return states


def position_by_hand(t, size):
    angles = [t / 10000 ** ((i - i % 2) / size) for i in range(size)]
    numbers = [math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)]
    return torch.tensor(numbers, dtype=torch.float64)


def linear(layer, x):
    return layer.weight @ x + layer.bias


def transformer_by_hand(stack, vectors):
    """Position by position, each by a block that is shown no later one."""
    hidden = [stack.norm(x) + position_by_hand(t, len(x)) for t, x in enumerate(vectors)]
    states = []
    for block in stack.blocks:
        seen = [torch.stack(hidden[: t + 1])[None] for t in range(len(hidden))]
        hidden = [block(some)[0][0, -1] for some in seen]
        states.append(hidden)
    return states


def by_hand(model, ids, mask):
    """Losses and layers from the real tokens alone, row by row.

    The backward direction is the same code on a reversed row.
    """
    inner = model.contextualizer
    stacks = [inner.forward_stack, inner.backward_stack][: 2 if inner.bidirectional else 1]
    read = lstm_by_hand if isinstance(inner, LSTMContextualizer) else transformer_by_hand
    layers = torch.zeros(inner.num_layers, *ids.shape, len(stacks), H, dtype=torch.float64)
    losses = []
    for direction, stack in enumerate(stacks):
        nats = []
        for b, row in enumerate(ids.tolist()):
            places = [t for t in range(len(row)) if mask[b, t]]
            places = places[::-1] if direction else places
            vectors = [model.embedder.weight[row[t]] for t in places]
            found = read(getattr(stack, "layers", stack), vectors)
            for layer, states in enumerate(found):
                for t, state in zip(places, states):
                    layers[layer, b, t, direction, : len(state)] = state
            for state, t in zip(found[-1], places[1:]):
                nats.append(-linear(model.softmax, state).log_softmax(0)[row[t]])
        losses.append(sum(nats) / len(nats))
    width = inner.output_size // len(stacks)
    return losses, list(layers[..., :width].flatten(3))


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
    for one, other in zip(output["lm_embeddings"], layers, strict=True):
        same(one, other)
    due = {"loss": sum(losses) / len(losses), "forward_loss": losses[0]}
    due |= {"backward_loss": losses[1]} if bidirectional else {}
    for name, loss in due.items():
        same(output[name], loss)
        expected, found = gradients(model, loss), gradients(model, output[name])
        for parameter in expected:
            same(found[parameter], expected[parameter])


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_positions_are_the_sines_and_cosines_of_the_paper(size):
    wanted = torch.stack([position_by_hand(t, size) for t in range(30)])
    torch.testing.assert_close(sinusoids(30, size), wanted, rtol=0, atol=1e-12)
    reader = TransformerContextualizer(size, 1, 1, bidirectional=False)
    assert reader(torch.randn(2, 3, size), None).isfinite().all()  # of odd width as well


def test_two_words_by_hand():
    # The state is 0 whatever is read, so the scores are the bias: odds 1 : 2 : 1.
    reader = LSTMContextualizer(2, 2, 1, bidirectional=True)
    model = LanguageModel(3, nn.Embedding(3, 2), reader, bidirectional=True)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        model.softmax.bias[1] = math.log(2)
    output = model(torch.tensor([[1, 2, 1], [2, 1, 0]]))
    # forward: 2 and 1 after 1 2, 1 after 2; backward: 1 and 2 before 2 1, 2 before 1
    assert output["forward_loss"].item() == pytest.approx((math.log(4) + 2 * math.log(2)) / 3)
    assert output["backward_loss"].item() == pytest.approx((2 * math.log(4) + math.log(2)) / 3)
    assert output["batch_weight"].item() == 3


# ---------------------------------------------------------------------------------- other libraries


def scores(model, states):
    return states @ model.softmax.weight.T + model.softmax.bias


@each_kind
@each_side
def test_each_loss_is_the_causal_loss_of_transformers(kind, side):
    model, (ids, mask) = build(kind), batch(side)
    output = model(ids, mask)
    labels = ids.masked_fill(~mask, IGNORE)
    for way, states in zip(("forward", "backward"), output["lm_embeddings"].chunk(2, -1)):
        turn = (1,) if way == "backward" else ()
        logits, asked, real = scores(model, states).flip(turn), labels.flip(turn), mask.flip(turn)
        # There a left pad predicts the first token. Ours has seen nothing to predict it from, so
        # that it is no target here.
        first = real & ~F.pad(real, (1, 0))[:, :-1]
        theirs = ForCausalLMLoss(logits, asked.masked_fill(first, IGNORE), V)
        torch.testing.assert_close(output[f"{way}_loss"].float(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_stack_is_torchs_lstm_of_several_layers(layers):
    model = build(sizes={"width": 5, "hidden": 4, "layers": layers})
    theirs = nn.LSTM(5, 4, layers, batch_first=True).double()
    ids, mask = batch("none")
    vectors, halves = model.embedder(ids), model(ids, mask)["lm_embeddings"].chunk(2, -1)
    inner = model.contextualizer
    for half, stack, turn in zip(halves, (inner.forward_stack, inner.backward_stack), ((), (1,))):
        weights = {}
        for k, layer in enumerate(stack.layers):
            weights |= {f"{name[:-1]}{k}": w for name, w in layer.state_dict().items()}
        theirs.load_state_dict(weights)
        same(half, theirs(vectors.flip(turn))[0].flip(turn), 1e-12)


# ------------------------------------------------------------------------------------ padding


class Fixed(nn.Module):
    """An embedder whose vectors are given."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def forward(self, input_ids):
        return self.vectors


@each_kind
@each_way
@each_side
@pytest.mark.parametrize("pad, extra", [(7, 0), (3, 2)])
def test_a_pad_changes_no_loss_no_gradient_and_no_output_at_real_tokens(
    kind, bidirectional, side, pad, extra
):
    model = build(kind, bidirectional=bidirectional)
    some = rows([4, 4, 4] if side == "none" else LENGTHS)
    before = model(*padded(some, "right"))
    after = model(*padded(some, "right" if side == "none" else side, pad, extra))
    for name in ("loss", "forward_loss", "backward_loss")[: 3 if bidirectional else 2]:
        same(after[name], before[name], 1e-12)
        expected, found = gradients(model, before[name]), gradients(model, after[name])
        for parameter in expected:
            same(found[parameter], expected[parameter], 1e-12)
    for name in ("lm_embeddings", "noncontextual_token_embeddings"):
        same(after[name][after["mask"]], before[name][before["mask"]], 1e-12)
    assert (after["lm_embeddings"][~after["mask"]] == 0).all()
    assert after["batch_weight"] == before["batch_weight"] == sum(len(row) - 1 for row in some)


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
@pytest.mark.parametrize("lengths", [[1, 1, 1], [1, 0], [0, 0]])
@pytest.mark.parametrize("num_samples", [None, 3])
def test_rows_without_a_pair_give_losses_of_0_and_gradients_of_0(
    kind, bidirectional, lengths, num_samples
):
    ids, mask = padded(rows(lengths), "right", extra=1)
    model = build(kind, bidirectional=bidirectional, num_samples=num_samples).train()
    output = model(ids, mask)
    assert output["loss"].item() == output["forward_loss"].item() == 0
    assert output["batch_weight"].item() == 0
    output["loss"].backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())
    assert all(p.grad is not None for p in model.contextualizer.parameters())
    assert output["lm_embeddings"].isfinite().all() and (output["lm_embeddings"][~mask] == 0).all()
    assert model.get_metrics() == {"perplexity": 0.0}


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
def test_a_mask_may_be_of_any_type_and_none_says_that_all_is_real(dtype):
    model, (ids, mask) = build(), batch("left")
    output = model(ids, mask.to(dtype))
    assert torch.equal(output["mask"], mask)  # (B, T) bool
    assert torch.equal(output["loss"], model(ids, mask)["loss"])
    vectors, inner = model.embedder(ids), model.contextualizer
    assert torch.equal(inner(vectors, None), inner(vectors, torch.ones_like(ids).to(dtype)))


@pytest.mark.parametrize("pad", [0, 5, None])
def test_without_a_mask_what_is_not_the_pad_is_real(pad):
    model = build(pad_token_id=pad)
    some = [[i if i != pad else 1 for i in row] for row in rows()]
    ids, mask = padded(some, "left", pad or 0)
    mask = mask if pad is not None else torch.ones_like(mask)
    output, embedder = model(ids), LanguageModelEmbedder(model)
    assert torch.equal(output["mask"], mask)
    assert torch.equal(output["loss"], model(ids, mask)["loss"])
    assert torch.equal(embedder(ids), embedder(ids, mask))


# ------------------------------------------------------------------------------------ outputs


@each_kind
@each_way
@pytest.mark.parametrize("layers", [1, 3])
def test_the_output_has_these_keys_and_shapes(kind, bidirectional, layers):
    model, (ids, mask) = build(kind, bidirectional=bidirectional, sizes={"layers": layers}), batch()
    B, T, width = *ids.shape, 2 * H if bidirectional else H
    output, every = model(ids, mask), model(ids, mask, all_layers=True)
    assert set(output) == set(every) == KEYS
    for name in ("loss", "forward_loss", "batch_weight"):
        assert output[name].shape == () and output[name].is_floating_point()
    assert torch.equal(output["noncontextual_token_embeddings"], model.embedder(ids))
    if bidirectional:
        same(output["loss"], (output["forward_loss"] + output["backward_loss"]) / 2, 1e-12)
    else:
        assert output["backward_loss"] is None
        assert torch.equal(output["loss"], output["forward_loss"])
    assert [layer.shape for layer in every["lm_embeddings"]] == [(B, T, width)] * layers
    assert torch.equal(every["lm_embeddings"][-1], output["lm_embeddings"])
    assert torch.equal(every["loss"], output["loss"])
    assert model.num_layers() == layers + 1 and model.contextualizer.output_size == width


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
    assert output["backward_loss"] is None and output["batch_weight"] == mask[:, 1:].sum()
    same(output["lm_embeddings"][0, 2], model.embedder(ids[0, :3]).mean(0))


def test_models_that_compute_differently_are_described_differently():
    same = repr(build())
    assert repr(build()) == same and " at 0x" not in same
    for options in ({"bidirectional": False}, {"pad_token_id": 3}, {"dropout": 0.1}):
        assert repr(build(**options)) != same
    embedders = [repr(LanguageModelEmbedder(build(), trainable=flag)) for flag in (False, True)]
    assert embedders[0] != embedders[1]


# ------------------------------------------------------------------------------------ dropout


@each_kind
@each_way
def test_dropout_acts_before_the_softmax_only(kind, bidirectional):
    model, (ids, mask) = build(kind, bidirectional=bidirectional, dropout=0.5), batch()
    quiet = model(ids, mask)
    assert torch.equal(quiet["loss"], model(ids, mask)["loss"])
    noisy = [model.train()(ids, mask) for _ in range(5)]
    for output in noisy:
        same(output["lm_embeddings"], quiet["lm_embeddings"], 1e-12)
    assert len({output["loss"].item() for output in noisy} | {quiet["loss"].item()}) == 6


@each_kind
def test_dropout_within_the_contextualizer_acts_in_training_only(kind):
    model, (ids, mask) = build(kind, inner_dropout=0.5), batch()
    assert torch.equal(*[model(ids, mask)["lm_embeddings"] for _ in range(2)])
    model.train()
    one, other = (model(ids, mask, all_layers=True)["lm_embeddings"] for _ in range(2))
    assert not torch.allclose(one[-1], other[-1])
    if kind == "lstm":  # between layers: what the first reads and what the last gives is whole
        assert torch.equal(one[0], other[0]) and (one[-1][mask] != 0).all()


# ------------------------------------------------------------------------------ without the softmax


@each_kind
@pytest.mark.parametrize("num_samples", [None, 3])
def test_delete_softmax_frees_it_and_leaves_the_vectors(kind, num_samples):
    model, (ids, mask) = build(kind, num_samples=num_samples), batch()
    output, before = model(ids, mask), model.embed(ids, mask)
    assert set(before) == {"lm_embeddings", "noncontextual_token_embeddings", "mask"}
    assert all(torch.equal(before[name], output[name]) for name in before)
    mixed = LanguageModelEmbedder(model)(ids, mask)
    model.delete_softmax()
    assert not [name for name in model.state_dict() if "softmax" in name]
    assert torch.equal(model.embed(ids, mask)["lm_embeddings"], before["lm_embeddings"])
    assert torch.equal(LanguageModelEmbedder(model)(ids, mask), mixed)
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
        pairs = sum(length - 1 for length in lengths)
        nats, count = nats + output["loss"].item() * pairs, count + pairs
    assert model.get_metrics()["perplexity"] == pytest.approx(math.exp(nats / count), rel=1e-9)
    model.get_metrics(reset=True)
    assert model.get_metrics() == {"perplexity": 0.0}


@pytest.mark.parametrize(
    "bias, perplexity", [(700.0, math.exp(700)), (800.0, math.inf), (math.nan, math.nan)]
)
def test_a_perplexity_too_large_for_a_float_is_inf_and_of_nan_nan(bias, perplexity):
    reader = LSTMContextualizer(2, 2, 1, bidirectional=False)
    model = LanguageModel(2, nn.Embedding(2, 2), reader).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    nn.init.constant_(model.softmax.bias[:1], bias)
    model(torch.tensor([[1, 1]]))
    found = model.get_metrics()["perplexity"]
    assert found == pytest.approx(perplexity, rel=1e-6, nan_ok=True)


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
def test_a_forward_pass_asks_for_no_value_and_the_metrics_for_two(kind, bidirectional, monkeypatch):
    model, (ids, mask) = build(kind, bidirectional=bidirectional).train(), batch()
    model.softmax = Squares()
    for module in (checks, language_model, encoder):  # as on an accelerator
        monkeypatch.setattr(module, "can_read_without_sync", lambda tensor: False)
    with Looks() as looks:
        for given in (None, mask, mask.long()):
            loss = model(ids, given)["loss"]
        assert looks.count == 0
        assert loss.item() and looks.count == 1
        assert model.get_metrics()["perplexity"] > 1 and looks.count == 3


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("move", [copy.deepcopy, lambda model: model.float()])
def test_what_was_counted_moves_along_and_counting_goes_on(mode, move):
    model = build()
    with mode():
        model(*batch())
    before = model.get_metrics()
    moved = move(model)
    assert moved.get_metrics() == before
    moved(*batch(seed=2))
    assert moved.get_metrics() != before


# ------------------------------------------------------------------------------------ errors

IDS = torch.tensor([[1, 2, 3]])


def odd():
    reader = MeanSoFar()
    reader.bidirectional, reader.output_size = True, H - 1
    return LanguageModel(V, nn.Embedding(V, H - 1), reader, bidirectional=True)


REFUSED = {
    "other directions": (
        lambda: LanguageModel(V, None, contextualizer("lstm")),
        "bidirectional=False",
    ),
    "too many samples": (lambda: build(num_samples=V), f"num_samples={V}"),
    "no order": (lambda: build(num_samples=3, frequency_order=[0] * V), "frequency_order="),
    "no dropout": (lambda: build(dropout=math.nan), "dropout=nan"),
    "no layers": (lambda: contextualizer("lstm", layers=0), "num_layers=0"),
    "heads": (lambda: contextualizer("transformer", hidden=7), "num_heads=2"),
    "an id too many": (lambda: build()(torch.tensor([[1, V]])), "index out of range"),
    "a negative id": (lambda: build()(torch.tensor([[1, -1]])), "index out of range"),
    "one row": (lambda: build()(IDS[0]), r"tensor \(B, T, E\)"),
    "a short mask": (lambda: build()(IDS, IDS[:, 1:]), "mask=.*input_ids"),
    "a mask of ids": (lambda: build().embed(IDS, 3 * IDS), "mask holds"),
    "a mask of NaN": (lambda: build()(IDS, IDS * math.nan), "mask holds nan"),
    "the embedder's mask": (lambda: LanguageModelEmbedder(build())(IDS, 2 * IDS), "mask holds"),
    "halves of unequal width": (lambda: odd()(IDS), "embeddings="),
}


@pytest.mark.parametrize("call, named", REFUSED.values(), ids=REFUSED)
def test_what_would_be_silently_wrong_is_refused(call, named):
    with pytest.raises((ValueError, IndexError), match=named):
        call()


# ---------------------------------------------------------------------------------- sampled softmax


@each_kind
def test_a_sampled_softmax_samples_in_training_and_is_exact_in_evaluation(kind):
    full, sampled, (ids, mask) = build(kind), build(kind, num_samples=3), batch()
    sampled.load_state_dict(full.state_dict())
    for name in ("loss", "forward_loss", "backward_loss"):
        assert torch.equal(sampled(ids, mask)[name], full(ids, mask)[name])
    losses = [sampled.train()(ids, mask)["loss"].item() for _ in range(8)]
    assert len(set(losses)) > 1 and max(losses) < full(ids, mask)["loss"].item()
    order = list(range(V))[::-1]
    assert build(num_samples=3, frequency_order=order).softmax.order.tolist() == order


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


# ----------------------------------------------------------------------------------- as an embedder


def mixture(embedder, model, ids, mask):
    """Number by number over layers, from the language model's own outputs."""
    output = model.embed(ids, mask, all_layers=True)
    lowest = [output["noncontextual_token_embeddings"]] * (2 if model.bidirectional else 1)
    layers = [torch.cat(lowest, -1), *output["lm_embeddings"]]
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
    assert all((p.grad is not None) == trainable for p in inner)
    with torch.no_grad():
        assert not embedder(ids, mask).requires_grad


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


@each_kind
@each_way
@pytest.mark.parametrize("trainable", [False, True])
def test_it_is_an_embedder_for_the_masked_language_model(kind, bidirectional, trainable):
    model, (ids, mask) = build(kind, bidirectional=bidirectional), batch("left")
    embedder = LanguageModelEmbedder(model, trainable=trainable)
    masked = MaskedLanguageModel(embedder, MaskedLMHead(embedder.output_size, V)).double().eval()
    same(masked(ids, mask)["logits"], masked.head(embedder(ids, mask)), 1e-12)
    same(masked(ids, mask.long())["logits"], masked(ids)["logits"], 1e-12)
    loss = masked(ids, mask, labels=ids.masked_fill(~mask, IGNORE))["loss"]
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
        labels = ids.masked_fill(~mask, IGNORE)
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}

    train(masked, DATA, collate, settings(steps=5, weight_decay=0.1))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert (embedder.scalars != 0).all() and embedder.gamma != 1


# ---------------------------------------------------------------------------- copies and precisions


@each_kind
@pytest.mark.parametrize("num_samples", [None, 3])
def test_a_state_dictionary_a_copy_and_a_pickle_give_the_same_model(kind, num_samples):
    model, (ids, mask) = build(kind, num_samples=num_samples), batch()
    loaded = build(kind, num_samples=num_samples, seed=5)
    assert loaded(ids, mask)["loss"] != model(ids, mask)["loss"]
    loaded.load_state_dict(model.state_dict())
    embedder = LanguageModelEmbedder(model)
    for other in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(ids, mask)["loss"], model(ids, mask)["loss"])
    frozen = pickle.loads(pickle.dumps(embedder))
    assert torch.equal(frozen(ids, mask), embedder(ids, mask))
    assert not frozen.train().contextualizer.training


@each_kind
@each_side
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_of_any_precision_the_loss_is_float32_at_least_and_near(kind, side, dtype):
    model, (ids, mask) = build(kind), batch(side)
    expected = model(ids, mask)["loss"].item()
    output = model.to(dtype)(ids, mask)
    assert output["loss"].dtype == torch.promote_types(dtype, torch.float32)
    assert output["lm_embeddings"].dtype == dtype
    assert output["loss"].item() == pytest.approx(
        expected, rel=0.1 if dtype.itemsize == 2 else 1e-5
    )
    embedder = LanguageModelEmbedder(model.float(), trainable=True).train()
    with torch.autocast("cpu", torch.bfloat16):
        output, mixed = model.train()(ids, mask), embedder(ids, mask)
        output["loss"].backward()
    assert output["loss"].dtype == torch.float32
    assert output["loss"].item() == pytest.approx(expected, rel=0.1)
    assert (output["lm_embeddings"][~mask] == 0).all() and (mixed[~mask] == 0).all()
    assert all(p.grad.isfinite().all() for p in model.parameters())


# ------------------------------------------------------------------------------------ training

DATA = [  # each word has one successor
    [1 + (start + step) % (V - 1) for step in range(3 + start % 5)] for start in range(40)
]


def collate_words(examples):
    ids, mask = padded(examples, "right")
    return {"input_ids": ids, "mask": mask}


def settings(**options):
    given = {"batch_size": 8, "learning_rate": 1e-2, "precision": "fp32", "device": "cpu"}
    return TrainingConfig(**given | options)


def fresh(kind="lstm", **options):
    torch.manual_seed(0)
    inner = contextualizer(kind, bidirectional=True, dropout=0.1)
    return LanguageModel(V, nn.Embedding(V, H), inner, bidirectional=True, dropout=0.1, **options)


@each_kind
@pytest.mark.parametrize("options", [{}, {"num_samples": 4}], ids=["full", "sampled"])
def test_it_learns_from_batches_without_labels(kind, options):
    model, held = fresh(kind, **options), HeldOut(DATA, collate_words)
    before = held(model)["held_out_loss"]
    config = settings(steps=60, learning_rate=5e-2)
    history = train(model, DATA, collate_words, config, evaluate=held)
    assert history.tokens > 0 and history.rows[-1]["held_out_loss"] < before / 2


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
    weights = resumed.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in whole.state_dict().items())


def test_a_held_out_loss_is_the_mean_over_all_pairs_and_leaves_the_mode_alone():
    model, held = fresh(), HeldOut(DATA, collate_words, batch_size=7)
    whole = model.eval()(*padded(DATA, "right"))
    assert held.count == whole["batch_weight"]
    found = held(model.train())["held_out_loss"]
    assert found == pytest.approx(whole["loss"].item(), rel=1e-5) and model.training
