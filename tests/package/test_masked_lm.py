"""The masked language model: parts of any kind, one loss in three forms, blanks that get words."""

import copy
import math

import pytest
import torch
import torch.nn as nn
from toys import gradients, rows_computed, tokenizer_of

from mlm_lib.encoder import BertEncoder, EncoderConfig
from mlm_lib.heads import MaskedLMHead
from mlm_lib.labels import IGNORE, labels_to_positions
from mlm_lib.losses import masked_cross_entropy
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

PAD, MASK, V, H = 0, 4, 22, 12
TOKENIZER = tokenizer_of(*"abcdefghijklmnopq")
either_tokenizer = pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.to_hf()])
each_kind = pytest.mark.parametrize(
    "kind", ["bert", "modern", "bert+context", "embedding", "embedding+context", "custom"]
)


def mixed(vectors, real):
    """Each vector with the mean of the real ones: (B, T, H), (B, T) to (B, T, H)."""
    weights = real[..., None].to(vectors.dtype)
    mean = (weights * vectors).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
    return torch.tanh(vectors + mean)


class Context(nn.Module):
    """A contextualizer of the reader's own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(H, H)

    def forward(self, vectors, mask):
        assert mask.dtype == torch.bool and mask.shape == vectors.shape[:2]
        return mixed(self.linear(vectors), mask)


class Mixer(nn.Module):
    """An embedder of the reader's own, which takes no segment types."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, H)

    def forward(self, input_ids, attention_mask=None):
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return mixed(self.table(input_ids), real)


def build(kind="bert", *, dtype=torch.float64, **options):
    """A small model of each composition, the same at each call."""
    torch.manual_seed(0)
    if kind == "modern":
        config = ModernConfig(V, H, 2, 3, 20, window=4, initializer_range=0.3)
        embedder, head = config.parts()
    elif kind.startswith("bert"):
        config = EncoderConfig(V, H, 2, 3, 20, max_length=16, dropout=0.0, initializer_range=0.3)
        embedder = BertEncoder(config)
        head = MaskedLMHead(H, token_embedding=embedder.embeddings.word)
    elif kind == "custom":
        embedder, head = Mixer(), MaskedLMHead(H, V)
    else:
        embedder = nn.Embedding(V, H)
        head = MaskedLMHead(H, token_embedding=embedder)
    contextualizer = Context() if kind.endswith("context") else None
    model = MaskedLanguageModel(embedder, head, contextualizer, **options)
    nn.init.normal_(model.head.bias)
    return model.to(dtype).eval()


def batch(rows=4, length=9, seed=0):
    """Ids padded on the right, their mask, and labels at about a third of the real tokens.

    Each row has another number of labels.
    """
    g = torch.Generator().manual_seed(seed)
    mask = (torch.arange(length) < torch.arange(length, length - rows, -1)[:, None]).long()
    ids = torch.randint(5, V, (rows, length), generator=g).masked_fill(mask == 0, PAD)
    asked = (torch.rand(rows, length, generator=g) < 0.35) & mask.bool()
    asked[-1] = False  # nothing is asked of the last row
    asked[0, :4] = True
    return ids.masked_fill(asked, MASK), mask, ids.masked_fill(~asked, IGNORE)


def blanks_of(labels):
    """Labels as positions and targets, padded with −1 and a token id that must not count."""
    positions, targets, weights = labels_to_positions(labels)
    return positions.masked_fill(weights == 0, -1), targets.masked_fill(weights == 0, 7)


def same(one, other, tolerance=1e-12):
    torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def same_gradients(model, loss, expected, places=1e-12):
    found = gradients(model, loss)
    assert set(found) == set(expected) == {name for name, _ in model.named_parameters()}
    for name in expected:
        same(found[name], expected[name], places)


# ------------------------------------------------------------------------------------ composition


@each_kind
def test_the_parts_are_called_one_after_the_other(kind):
    model, (ids, mask, _) = build(kind), batch()
    vectors = model.embedder(ids) if kind.startswith("embedding") else model.embedder(ids, mask)
    if model.contextualizer is not None:
        vectors = model.contextualizer(vectors, mask.bool())
    output = model(ids, mask)
    assert set(output) == {"logits"} and output["logits"].shape == (4, 9, V)
    same(output["logits"], model.head(vectors))


@pytest.mark.parametrize("kind", ["bert", "modern", "bert+context", "embedding+context", "custom"])
def test_the_mask_reaches_whatever_reads_it(kind):
    model, (ids, mask, _) = build(kind), batch()
    real = mask == 1
    other = torch.where(real, ids, 9)
    same(model(ids, mask)["logits"][real], model(other, mask)["logits"][real])
    assert not torch.allclose(model(ids)["logits"][real], model(ids, mask)["logits"][real])
    same(model(ids)["logits"], model(ids, torch.ones_like(mask))["logits"])


def test_segment_types_reach_the_encoder_with_a_mask_and_without():
    model, (ids, mask, labels) = build(), batch()
    types = (torch.arange(9) > 4).long().expand(4, -1)
    for real in (mask, None):
        same(model(ids, real, types)["logits"], model.head(model.embedder(ids, real, types)))
    with_types, without = model(ids, mask, types, labels=labels), model(ids, mask, labels=labels)
    assert not torch.allclose(with_types["loss"], without["loss"])


@pytest.mark.parametrize("kind", ["modern", "embedding", "embedding+context", "custom"])
@pytest.mark.parametrize("masked", [True, False])
def test_segment_types_are_not_lost_on_an_embedder_that_takes_none(kind, masked):
    ids, mask, labels = batch()
    with pytest.raises(TypeError, match="positional arguments"):
        build(kind)(ids, mask if masked else None, torch.zeros_like(ids), labels=labels)


class Picking(nn.Module):
    """An embedder that is none of ours and says that it takes `select`."""

    selects = True

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, H)
        self.picked = 0

    def forward(self, input_ids, attention_mask=None, *, select=None):
        self.picked += select is not None
        vectors = self.table(input_ids)
        return vectors if select is None else select(vectors)


def test_an_embedder_that_says_that_it_selects_is_told_which_rows_are_wanted():
    model, (ids, mask, labels) = MaskedLanguageModel(Picking(), MaskedLMHead(H, V)), batch()
    full = masked_cross_entropy(model(ids, mask)["logits"], labels)
    positions, targets = blanks_of(labels)
    assert model.embedder.picked == 0
    same(model(ids, mask, labels=labels)["loss"], full, 1e-6)
    same(model(ids, mask, mask_positions=positions, target_ids=targets)["loss"], full, 1e-6)
    assert model.embedder.picked == 2
    model.contextualizer = lambda vectors, mask: vectors  # which may look at any row
    same(model(ids, mask, labels=labels)["loss"], full, 1e-6)
    assert model.embedder.picked == 2


@pytest.mark.parametrize("call", ["labels", "mask_positions"])
def test_a_compiled_encoder_still_leaves_out_most_of_its_last_block(call):
    model, (ids, mask, labels) = build(), batch()
    asked = {call: labels if call == "labels" else blanks_of(labels)[0]}
    expected = model(ids, mask, **asked)["logits"]
    rows = rows_computed(model.embedder)
    model.embedder = torch.compile(model.embedder, backend="eager")
    same(model(ids, mask, **asked)["logits"], expected)
    assert rows[-1] == expected.shape[:-1].numel() < rows[0] == ids.numel()


def test_from_config_ties_the_head_to_the_word_embeddings_and_takes_the_activation_and_eps():
    config = EncoderConfig(V, H, 1, 2, 20, activation="relu", layer_norm_eps=1e-3)
    model = MaskedLanguageModel.from_config(config)
    assert model.head.weight is model.embedder.embeddings.word.weight
    assert model.head.activation is torch.nn.functional.relu and model.head.norm.eps == 1e-3
    ids = torch.arange(V)[None, :9]
    loss = model.eval()(ids, labels=ids)["loss"].item()
    assert loss == pytest.approx(math.log(V), abs=0.2)  # small weights know nothing yet


# ---------------------------------------------------------------------------- three forms, one loss


@each_kind
@pytest.mark.parametrize("padded", [True, False])
def test_labels_positions_and_full_logits_give_one_loss_and_one_gradient(kind, padded):
    model, (ids, mask, labels) = build(kind), batch()
    mask = mask if padded else None
    positions, targets = blanks_of(labels)
    full = masked_cross_entropy(model(ids, mask)["logits"], labels)
    expected = gradients(model, full)
    for asked in ({"labels": labels}, {"mask_positions": positions, "target_ids": targets}):
        output = model(ids, mask, **asked)
        same(output["loss"], full)
        same_gradients(model, output["loss"], expected)


@each_kind
def test_the_logits_of_each_form_are_those_of_the_full_form(kind):
    model, (ids, mask, labels) = build(kind), batch()
    full, by_labels = model(ids, mask)["logits"], model(ids, mask, labels=labels)
    assert set(by_labels) == {"loss", "logits"}
    same(by_labels["logits"], full[labels != IGNORE])  # (N, V), row-major
    positions = torch.tensor([[8, 0, 3], [2, 2, 1], [6, 5, 4], [0, 1, 2]])  # in any order, or twice
    for dtype in (torch.int64, torch.int32):
        output = model(ids, mask, mask_positions=positions.to(dtype))
        assert set(output) == {"logits", "probabilities", "top_indices", "blanks"}
        same(output["logits"], full[torch.arange(4)[:, None], positions])


def test_a_row_s_weight_counts_for_each_of_its_labels():
    model, ids = build(), torch.randint(5, V, (3, 6))
    labels = torch.full_like(ids, IGNORE)
    labels[0, 1], labels[1, :4], labels[2, 2:5] = 7, 8, 9
    weights = torch.tensor([6.0, 1.5, 2.0], dtype=torch.float64)
    rows = [model(ids[i : i + 1], labels=labels[i : i + 1])["loss"].item() for i in range(3)]
    total = 6.0 * 1 * rows[0] + 1.5 * 4 * rows[1] + 2.0 * 3 * rows[2]
    found = model(ids, labels=labels, weights=weights)
    assert found["loss"].item() == pytest.approx(total / (6.0 * 1 + 1.5 * 4 + 2.0 * 3))
    assert found["logits"].shape == (8, V)
    even = model(ids, labels=labels, weights=torch.ones(3).double())["loss"]
    same(even, model(ids, labels=labels)["loss"])


# ------------------------------------------------------------------------------ what does not count


@each_kind
@pytest.mark.parametrize("how", ["negative", "on padding", "ignored"])
def test_a_padded_blank_and_an_ignored_target_change_neither_loss_nor_gradient(kind, how):
    model, (ids, mask, _) = build(kind), batch()
    positions = torch.tensor([[1, 2], [3, 0], [5, 6], [4, 1]])
    targets = torch.tensor([[5, 6], [7, 8], [9, 10], [11, 12]])
    kept = model(ids[1:], mask[1:], mask_positions=positions[1:], target_ids=targets[1:])["loss"]
    expected = gradients(model, kept)
    # The whole first row asks for nothing, and neither does a third blank in each of the others.
    positions = torch.cat([positions, torch.full((4, 1), 8)], 1)
    targets = torch.cat([targets, torch.full((4, 1), 13)], 1)
    nothing = torch.tensor([[True] * 3] + [[False, False, True]] * 3)
    if how == "negative":
        positions = positions.masked_fill(nothing, -1)
    elif how == "on padding":
        mask[0, 4:], positions[0] = 0, torch.tensor([4, 6, 8])
    else:
        targets = targets.masked_fill(nothing, IGNORE)
    loss = model(ids, mask, mask_positions=positions, target_ids=targets)["loss"]
    same(loss, kept)
    same_gradients(model, loss, expected)


def test_a_blank_is_padded_where_its_position_is_negative_or_its_token_is_padding():
    model, (ids, mask, _) = build(), batch()
    positions = torch.tensor([[0, 8, -1], [8, 7, 0], [-100, 6, 7], [5, 6, 7]])
    asked = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 1, 0], [1, 0, 0]]).bool()
    assert torch.equal(model(ids, mask, mask_positions=positions)["blanks"], asked)
    assert torch.equal(model(ids, mask_positions=positions)["blanks"], positions >= 0)


@each_kind
@pytest.mark.parametrize("how", ["labels", "no blanks", "negative", "ignored"])
def test_where_nothing_is_asked_the_loss_is_0_with_a_gradient_path(kind, how):
    model, (ids, mask, labels) = build(kind), batch()
    if how == "labels":
        call = {"labels": torch.full_like(labels, IGNORE)}
    else:
        positions = torch.full((4, 0 if how == "no blanks" else 2), -1 if how == "negative" else 1)
        targets = torch.full_like(positions, IGNORE if how == "ignored" else 5)
        call = {"mask_positions": positions, "target_ids": targets}
    loss = model(ids, mask, **call)["loss"]
    assert loss.item() == 0.0
    zeros = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    same_gradients(model, loss, zeros)


# ------------------------------------------------------------------------------------ candidates


@pytest.mark.parametrize("kind", ["bert", "embedding+context"])
@pytest.mark.parametrize("top_k", [1, 3, 1000])
def test_the_candidates_are_the_likeliest_tokens_best_first_with_their_probabilities(kind, top_k):
    model, (ids, mask, labels) = build(kind, top_k=top_k), batch()
    output = model(ids, mask, mask_positions=blanks_of(labels)[0])
    probabilities, indices = output["probabilities"], output["top_indices"]
    every = output["logits"].softmax(-1)
    same(probabilities, every.gather(-1, indices))
    same(probabilities, every.sort(-1, descending=True).values[..., :top_k])
    assert not probabilities.requires_grad and output["logits"].requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_the_probabilities_are_computed_in_float32(dtype):
    output = build(dtype=dtype)(*batch()[:2], mask_positions=torch.ones(4, 1).long())
    assert output["logits"].dtype == dtype
    same(output["probabilities"], output["logits"].float().softmax(-1).topk(5).values, 1e-6)


@either_tokenizer
def test_decode_turns_candidates_into_words_for_any_number_of_blanks(tokenizer):
    model, (ids, mask, _) = build(top_k=3), batch()
    # Three, one, none, and one on padding.
    positions = torch.tensor([[1, 2, 8], [3, -1, -1], [-1, -1, -1], [0, 8, 5]])
    output = model(ids, mask, mask_positions=positions)
    decoded, tokens = model.decode(output, tokenizer), list(TOKENIZER.vocab)
    for words, blanks, best in zip(decoded["words"], output["blanks"], output["top_indices"]):
        for found, real, row in zip(words, blanks, best.tolist()):
            assert found == ([tokens[i] for i in row] if real else [])
    assert all(decoded[name] is output[name] for name in output) and "words" not in output
    none = model(ids, mask, mask_positions=torch.zeros(4, 0, dtype=torch.long))
    assert model.decode(none, tokenizer)["words"] == [[], [], [], []]
    alone = model.decode({"top_indices": torch.tensor([[[5, 6], [7, 8]]])}, tokenizer)
    assert alone["words"] == [[["a", "b"], ["c", "d"]]]


def test_candidates_beyond_the_tokenizers_vocabulary_decode_alike_with_both_tokenizers():
    # A model may have more rows than its tokenizer has tokens: vocabularies are often rounded up.
    model = build(top_k=V)
    few = WordPieceTokenizer({token: i for token, i in TOKENIZER.vocab.items() if i < V - 3})
    output = model(*batch()[:2], mask_positions=torch.ones(4, 1, dtype=torch.long))
    assert model.decode(output, few)["words"] == model.decode(output, few.to_hf())["words"]


# ------------------------------------------------------------------------------------ refusals


def ones(*shape):
    return torch.ones(shape, dtype=torch.long)


@pytest.mark.parametrize(
    "call, message",
    [
        ({"labels": ones(4, 9), "mask_positions": ones(4, 2)}, "give one of them"),
        ({"labels": ones(4, 9), "target_ids": ones(4, 2)}, "give one of them"),
        ({"weights": torch.ones(4)}, "weights without labels"),
        ({"weights": torch.ones(1), "labels": ones(4, 9)}, "weights=.*first column"),
        ({"labels": ones(4, 1)}, "labels=.*shape of input_ids"),
        ({"labels": ones(9)}, "labels=.*shape of input_ids"),
        ({"mask_positions": ones(4, 2), "target_ids": ones(4, 1)}, "target_ids=.*the shape of"),
        ({"mask_positions": ones(1, 2)}, r"mask_positions=.*a tensor \(4, M\)"),
        ({"mask_positions": ones(4)}, r"mask_positions=.*a tensor \(B, M\)"),
        ({"mask_positions": ones(4, 9).bool()}, "mask_positions=.*torch.bool"),
        ({"mask_positions": torch.ones(4, 2)}, "mask_positions=.*torch.float32"),
        ({"attention_mask": ones(4, 1)}, "attention_mask=.*shape of input_ids"),
        ({"attention_mask": 7 * ones(4, 9)}, "attention_mask holds 7"),
        ({"labels": V * ones(4, 9)}, f"holds {V}"),
        ({"labels": -ones(4, 9)}, "holds -1"),
        ({"mask_positions": ones(4, 1), "target_ids": V * ones(4, 1)}, f"holds {V}"),
    ],
)
@pytest.mark.parametrize("kind", ["bert", "embedding"])
def test_what_would_be_answered_wrongly_is_refused(kind, call, message):
    with pytest.raises(ValueError, match=message):
        build(kind)(batch()[0], **call)


@each_kind
@pytest.mark.parametrize("wrong", [9, 500])
def test_a_position_beyond_the_row_is_named(kind, wrong):
    positions = torch.tensor([[0, 1], [2, -1], [3, wrong], [4, 5]])
    words = rf"names \[{wrong}\], first at \[2, 1\]; positions here run from 0 to 8"
    with pytest.raises(IndexError, match=words):
        build(kind)(*batch()[:2], mask_positions=positions)


@pytest.mark.parametrize("kind", ["bert", "embedding", "embedding+context"])
@pytest.mark.parametrize("wrong", [V, -1])
def test_an_id_outside_the_vocabulary_is_refused(kind, wrong):
    with pytest.raises(IndexError):
        build(kind)(torch.tensor([[1, wrong]]))


@pytest.mark.parametrize("option", [{"dropout": -0.1}, {"dropout": 1.1}, {"top_k": 0}], ids=str)
def test_an_option_without_a_meaning_is_refused(option):
    with pytest.raises(ValueError):
        build(**option)


def test_a_head_with_an_output_activation_is_refused():
    with pytest.raises(ValueError, match="the loss needs its logits"):
        MaskedLanguageModel(nn.Embedding(V, H), MaskedLMHead(H, V, output_activation="softmax"))


# ------------------------------------------------------------------------------------ as a module


def test_models_that_compute_differently_are_described_differently():
    assert repr(build()) == repr(build()) != repr(build(top_k=6))
    assert repr(build(dropout=0.1)) != repr(build()) != repr(build("bert+context"))


@each_kind
def test_dropout_falls_on_the_contextual_states_alone_and_only_in_training(kind):
    model, (ids, mask, labels) = build(kind, dropout=0.5), batch()
    seen = []
    model.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    assert torch.equal(model(ids, mask)["logits"], model(ids, mask)["logits"])
    states = seen[0]  # (B, T, H), whole
    model.train()
    for call in ({}, {"labels": labels}):
        model(ids, mask, **call)
        dropped = seen[-1] == 0
        gathered = dropped.dim() == 2  # the encoder left out the rest before the head could
        whole = states[labels != IGNORE] if gathered else states
        assert 0.2 < dropped[whole != 0].double().mean() < 0.8
        same(seen[-1], torch.where(dropped, 0.0, 2 * whole))


@pytest.mark.parametrize(
    "kind", ["bert", "modern", "bert+context", "embedding", "embedding+context"]
)
def test_the_tied_matrix_is_one_parameter_and_stays_one(kind):
    def matrix(model):
        table = model.embedder
        return (table if kind.startswith("embedding") else table.embeddings.word).weight

    model = build(kind, dtype=torch.float32)
    copied = copy.deepcopy(model)
    for one in (model, copied, copy.deepcopy(model).double().float()):
        assert one.head.weight is matrix(one)
        assert sum(weight.shape == (V, H) for weight in one.parameters()) == 1
    ids, mask, labels = batch()
    copied(ids, mask, labels=labels)["loss"].backward()
    torch.optim.SGD(copied.parameters(), lr=1.0).step()
    assert copied.head.weight is matrix(copied)
    assert not torch.equal(matrix(copied), matrix(model))


@pytest.mark.parametrize("kind", ["bert", "modern"])
def test_a_tiny_batch_is_learned_by_heart(kind):
    model, (ids, mask, labels) = build(kind, dtype=torch.float32).train(), batch()
    positions, targets = blanks_of(labels)
    calls = {"labels": labels}, {"mask_positions": positions, "target_ids": targets}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(100):
        loss = model(ids, mask, **calls[step % 2])["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert step or loss > 2
    assert loss < 0.05
    best = model.eval()(ids, mask, mask_positions=positions)["top_indices"][..., 0]
    assert torch.equal(best[positions >= 0], labels[labels != IGNORE])
