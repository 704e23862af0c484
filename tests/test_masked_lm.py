"""The masked language model: parts of any kind, one loss in three forms, blanks that get words."""

import copy
import math

import pytest
import torch
import torch.nn as nn
from toys import gradients, tokenizer_of

from mlm_lib.encoder import BertEncoder, EncoderConfig
from mlm_lib.heads import MaskedLMHead
from mlm_lib.labels import IGNORE, labels_to_positions
from mlm_lib.losses import masked_cross_entropy
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

PAD, MASK, V, H = 0, 4, 22, 12
TOKENIZER = tokenizer_of(*"abcdefghijklmnopq")


class Lstm(nn.Module):
    """A contextualizer of the reader's own: an LSTM both ways, blind to padding at the end."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(H, H // 2, batch_first=True, bidirectional=True)

    def forward(self, vectors, mask):
        assert mask.dtype == torch.bool and mask.shape == vectors.shape[:2]
        packed = nn.utils.rnn.pack_padded_sequence(
            vectors, mask.sum(1), batch_first=True, enforce_sorted=False
        )
        return nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=mask.shape[1]
        )[0]


class Mixer(nn.Module):
    """An embedder of the reader's own, which takes a mask but no segment types.

    Each token sees the mean of the real ones.
    """

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, H)

    def forward(self, input_ids, attention_mask=None):
        vectors = self.table(input_ids)
        weights = (
            torch.ones_like(vectors)
            if attention_mask is None
            else attention_mask[..., None].to(vectors.dtype)
        )
        return torch.tanh(
            vectors + (weights * vectors).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        )


def build(kind="bert", *, dtype=torch.float64, **options):
    """A small model of each composition, the same at each call."""
    torch.manual_seed(0)
    if kind in ("bert", "bert+lstm"):
        config = EncoderConfig(V, H, 2, 3, 20, max_length=16, dropout=0.0, initializer_range=0.3)
        encoder = BertEncoder(config)
        head = MaskedLMHead(H, token_embedding=encoder.embeddings.word)
        model = MaskedLanguageModel(
            encoder, head, Lstm() if kind == "bert+lstm" else None, **options
        )
    elif kind == "custom":
        model = MaskedLanguageModel(Mixer(), MaskedLMHead(H, V), **options)
    else:
        embedding = nn.Embedding(V, H)
        head = MaskedLMHead(H, token_embedding=embedding)
        model = MaskedLanguageModel(embedding, head, Lstm() if kind == "lstm" else None, **options)
    nn.init.normal_(model.head.bias)
    return model.to(dtype).eval()


each_kind = pytest.mark.parametrize("kind", ["bert", "bert+lstm", "embedding", "lstm", "custom"])


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


# ------------------------------------------------------------------------------------ composition


@each_kind
def test_the_parts_are_called_one_after_the_other(kind):
    model = build(kind)
    ids, mask, _ = batch()
    takes_mask = kind not in ("embedding", "lstm")
    vectors = model.embedder(ids, mask) if takes_mask else model.embedder(ids)
    contextual = (
        vectors if model.contextualizer is None else model.contextualizer(vectors, mask.bool())
    )
    output = model(ids, mask)
    assert set(output) == {"logits"}
    assert output["logits"].shape == (4, 9, V)
    same(output["logits"], model.head(contextual))


@pytest.mark.parametrize("kind", ["bert", "bert+lstm", "lstm", "custom"])
def test_the_mask_reaches_whatever_reads_it(kind):
    model = build(kind)
    ids, mask, _ = batch()
    other = torch.where(mask == 1, ids, 9)
    same(model(ids, mask)["logits"][mask == 1], model(other, mask)["logits"][mask == 1])
    assert not torch.allclose(
        model(ids)["logits"][mask == 1], model(ids, mask)["logits"][mask == 1]
    )


def test_segment_types_reach_the_encoder():
    model = build()
    ids, mask, labels = batch()
    types = (torch.arange(9) > 4).long().expand(4, -1)
    same(model(ids, mask, types)["logits"], model.head(model.embedder(ids, mask, types)))
    assert not torch.allclose(model(ids, mask, types)["logits"], model(ids, mask)["logits"])
    assert not torch.allclose(
        model(ids, mask, types, labels=labels)["loss"], model(ids, mask, labels=labels)["loss"]
    )


@pytest.mark.parametrize(
    "kind, name", [("embedding", "Embedding"), ("lstm", "Embedding"), ("custom", "Mixer")]
)
def test_segment_types_for_an_embedder_that_takes_none_are_refused_by_its_name(kind, name):
    ids, mask, labels = batch()
    for call in ({}, {"labels": labels}, {"mask_positions": torch.zeros(4, 1, dtype=torch.long)}):
        with pytest.raises(ValueError, match=f"{name} has no use for token_type_ids"):
            build(kind)(ids, mask, torch.zeros_like(ids), **call)


def test_without_a_mask_the_contextualizer_is_told_that_every_token_is_real():
    model = build("lstm")
    ids, mask, _ = batch()
    same(model(ids)["logits"], model(ids, torch.ones_like(mask))["logits"])


def compiled(model, part):
    """The model with one part compiled; the backend runs what the compiler has read as it is."""
    torch.compiler.reset()
    setattr(model, part, torch.compile(getattr(model, part), backend="eager"))
    return model


class Whole(BertEncoder):
    """An encoder whose own forward knows nothing of `select`."""

    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids, attention_mask)


class PassedOn(BertEncoder):
    """An encoder that passes on whatever it is given."""

    def forward(self, *inputs, **options):
        return super().forward(*inputs, **options)


class Picking(nn.Module):
    """An embedder that is no `BertEncoder` and takes `select`, in the place of a mask."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(V, H)

    def forward(self, input_ids, select=None):
        vectors = self.table(input_ids)
        return vectors if select is None else select(vectors)


@pytest.mark.parametrize("kind", [Whole, PassedOn, Picking])
def test_an_embedder_is_asked_what_it_takes_and_not_what_it_is(kind):
    bert, other = build(), build()
    other.embedder = kind() if kind is Picking else kind(bert.embedder.config)
    other.double().load_state_dict(bert.state_dict(), strict=kind is not Picking)
    ids, mask, labels = batch()
    positions, targets = blanks_of(labels)
    full = masked_cross_entropy(other(ids, mask)["logits"], labels)
    same(other(ids, mask, labels=labels)["loss"], full)
    call = {"mask_positions": positions, "target_ids": targets}
    same(other(ids, mask, **call)["loss"], full)
    if kind is not Picking:
        same(full, bert(ids, mask, labels=labels)["loss"])


@pytest.mark.parametrize("call", ["labels", "mask_positions"])
def test_a_compiled_encoder_still_leaves_out_most_of_its_last_block(call):
    model, rows = build(), []
    ids, mask, labels = batch()
    asked = {call: labels if call == "labels" else blanks_of(labels)[0]}
    expected = model(ids, mask, **asked)["logits"]
    last = model.embedder.blocks[-1].expand
    last.register_forward_pre_hook(lambda module, inputs: rows.append(inputs[0].shape[:-1].numel()))
    found = compiled(model, "embedder")(ids, mask, **asked)["logits"]
    same(found, expected)
    assert rows == [expected.shape[:-1].numel()] != [ids.numel()]


@each_kind
@pytest.mark.parametrize("part", ["embedder", "head"])
def test_a_compiled_part_gives_what_it_gave_before(kind, part):
    ids, mask, labels = batch()
    plain, model = build(kind), compiled(build(kind), part)
    for asked in ({}, {"labels": labels}, {"mask_positions": blanks_of(labels)[0]}):
        same(model(ids, mask, **asked)["logits"], plain(ids, mask, **asked)["logits"])
    with pytest.raises(IndexError, match=r"names \[500\], first at \[3, 0\]"):
        model(ids, mask, mask_positions=torch.tensor([[0], [1], [2], [500]]))
    if kind == "custom":
        with pytest.raises(ValueError, match="Mixer has no use for token_type_ids"):
            model(ids, mask, torch.zeros_like(ids))


def test_from_config_ties_the_head_to_the_word_embeddings_and_takes_the_activation_and_eps():
    config = EncoderConfig(V, H, 1, 2, 20, activation="relu", layer_norm_eps=1e-3)
    model = MaskedLanguageModel.from_config(config)
    assert model.head.weight is model.embedder.embeddings.word.weight
    assert model.head.activation is torch.nn.functional.relu
    assert model.head.norm.eps == 1e-3
    loss = model.eval()(torch.arange(V)[None, :9], labels=torch.arange(V)[None, :9])["loss"]
    assert loss.item() == pytest.approx(
        math.log(V), abs=0.2
    )  # small initial weights know nothing yet


# ---------------------------------------------------------------------------- three forms, one loss


@each_kind
@pytest.mark.parametrize("padded", [True, False])
def test_labels_positions_and_full_logits_give_one_loss_and_one_gradient(kind, padded):
    model = build(kind)
    ids, mask, labels = batch()
    mask = mask if padded else None
    positions, targets = blanks_of(labels)
    full = masked_cross_entropy(model(ids, mask)["logits"], labels)
    by_labels = model(ids, mask, labels=labels)
    by_positions = model(ids, mask, mask_positions=positions, target_ids=targets)
    expected = gradients(model, full)
    assert set(expected) == {name for name, _ in model.named_parameters()}
    for output in (by_labels, by_positions):
        same(output["loss"], full)
        found = gradients(model, output["loss"])
        assert set(found) == set(expected)
        for name in expected:
            same(found[name], expected[name])


@each_kind
def test_the_logits_of_each_form_are_those_of_the_full_form(kind):
    model = build(kind)
    ids, mask, labels = batch()
    full = model(ids, mask)["logits"]
    by_labels = model(ids, mask, labels=labels)
    assert set(by_labels) == {"loss", "logits"}
    same(by_labels["logits"], full[labels != IGNORE])  # (N, V), row-major
    positions = torch.tensor(
        [[8, 0, 3], [2, 2, 1], [6, 5, 4], [0, 1, 2]]
    )  # in any order, twice the same
    output = model(ids, mask, mask_positions=positions)
    assert set(output) == {"logits", "probabilities", "top_indices", "blanks"}
    same(output["logits"], full[torch.arange(4)[:, None], positions])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_positions_and_targets_may_be_integers_of_any_width(dtype):
    model = build()
    ids, mask, labels = batch()
    positions, targets = blanks_of(labels)
    output = model(ids, mask, mask_positions=positions.to(dtype), target_ids=targets.to(dtype))
    same(output["loss"], model(ids, mask, labels=labels)["loss"])


# ------------------------------------------------------------------------------ what does not count


@each_kind
@pytest.mark.parametrize("how", ["negative", "on padding", "ignored"])
def test_a_padded_blank_and_an_ignored_target_change_neither_loss_nor_gradient(kind, how):
    model = build(kind)
    ids, mask, _ = batch()
    positions, targets = (
        torch.tensor([[1, 2], [3, 0], [5, 6], [4, 1]]),
        torch.tensor([[5, 6], [7, 8], [9, 10], [11, 12]]),
    )
    kept = model(ids[1:], mask[1:], mask_positions=positions[1:], target_ids=targets[1:])["loss"]
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
    expected, found = gradients(model, kept), gradients(model, loss)
    assert set(found) == set(expected)
    for name in expected:
        same(found[name], expected[name])


def test_a_blank_is_padded_where_its_position_is_negative_or_its_token_is_padding():
    model = build()
    ids, mask, _ = batch()
    positions = torch.tensor([[0, 8, -1], [8, 7, 0], [-100, 6, 7], [5, 6, 7]])
    expected = torch.tensor(
        [[True, True, False], [False, True, True], [False, True, False], [True, False, False]]
    )
    for form in (mask, mask.bool()):
        assert torch.equal(model(ids, form, mask_positions=positions)["blanks"], expected)
    assert torch.equal(model(ids, mask_positions=positions)["blanks"], positions >= 0)


@each_kind
@pytest.mark.parametrize("how", ["labels", "no blanks", "negative", "on padding", "ignored"])
def test_where_nothing_is_asked_the_loss_is_0_with_a_gradient_path(kind, how):
    model = build(kind)
    ids, mask, labels = batch()
    if how == "labels":
        call = {"labels": torch.full_like(labels, IGNORE)}
    else:
        positions = {
            "no blanks": torch.zeros(4, 0),
            "negative": torch.full((4, 2), -1),
            "on padding": torch.full((4, 2), 8),
        }
        positions = positions.get(how, torch.ones(4, 2)).long()
        targets = torch.full_like(positions, IGNORE if how == "ignored" else 5)
        mask[:, 8] = 0
        call = {"mask_positions": positions, "target_ids": targets}
    output = model(ids, mask, **call)
    assert output["loss"].item() == 0.0
    found = gradients(model, output["loss"])
    assert set(found) == {name for name, _ in model.named_parameters()}
    assert all((gradient == 0).all() for gradient in found.values())


# ------------------------------------------------------------------------------------ candidates


@each_kind
@pytest.mark.parametrize("top_k", [1, 3, V])
def test_the_candidates_are_the_likeliest_tokens_best_first_with_their_probabilities(kind, top_k):
    model = build(kind, top_k=top_k, dtype=torch.float32)
    ids, mask, labels = batch()
    output = model(ids, mask, mask_positions=blanks_of(labels)[0])
    probabilities, indices = output["probabilities"], output["top_indices"]
    assert probabilities.shape == indices.shape == (*output["logits"].shape[:2], top_k)
    every = output["logits"].softmax(-1)
    same(probabilities, every.gather(-1, indices), 1e-6)
    same(probabilities, every.sort(-1, descending=True).values[..., :top_k], 1e-6)
    assert (probabilities.diff(dim=-1) <= 0).all()
    assert not probabilities.requires_grad
    assert output["logits"].requires_grad


def test_a_top_k_beyond_the_vocabulary_names_every_token_once():
    output = build(top_k=1000)(*batch()[:2], mask_positions=torch.zeros(4, 1, dtype=torch.long))
    assert output["top_indices"].sort(-1).values.tolist() == [[list(range(V))]] * 4
    same(output["probabilities"].sum(-1), torch.ones_like(output["probabilities"][..., 0]), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_the_probabilities_are_computed_in_float32(dtype):
    model = build(dtype=dtype)
    output = model(*batch()[:2], mask_positions=torch.ones(4, 1, dtype=torch.long))
    assert output["logits"].dtype == dtype
    same(
        output["probabilities"], output["logits"].detach().float().softmax(-1).topk(5).values, 1e-6
    )
    assert not output["probabilities"].requires_grad


def test_in_double_precision_the_probabilities_are_double_too():
    output = build()(*batch()[:2], mask_positions=torch.ones(4, 1, dtype=torch.long))
    same(output["probabilities"], output["logits"].softmax(-1).topk(5).values)


# ------------------------------------------------------------------------------------ words


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.to_hf()], ids=["ours", "transformers"])
def test_decode_turns_candidates_into_words_for_any_number_of_blanks(tokenizer):
    model = build(top_k=3)
    ids, mask, _ = batch()
    positions = torch.tensor(
        [[1, 2, 8], [3, -1, -1], [-1, -1, -1], [0, 8, 5]]
    )  # three, one, none, and one on padding
    output = model(ids, mask, mask_positions=positions)
    decoded = model.decode(output, tokenizer)
    tokens = list(TOKENIZER.vocab)
    for row, blanks in enumerate(
        [(True, True, True), (True, False, False), (False, False, False), (True, False, True)]
    ):
        for slot, real in enumerate(blanks):
            expected = (
                [tokens[i] for i in output["top_indices"][row, slot].tolist()] if real else []
            )
            assert decoded["words"][row][slot] == expected
    assert all(decoded[name] is output[name] for name in output)
    assert "words" not in output


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.to_hf()], ids=["ours", "transformers"])
def test_decode_of_no_blanks_is_an_empty_list_for_each_row(tokenizer):
    model = build()
    output = model(*batch()[:2], mask_positions=torch.zeros(4, 0, dtype=torch.long))
    assert model.decode(output, tokenizer)["words"] == [[], [], [], []]


def test_candidates_beyond_the_tokenizers_vocabulary_decode_alike_with_both_tokenizers():
    # A model may have more rows than its tokenizer has tokens: vocabularies are often rounded up to
    # a multiple of 8.
    model = build(top_k=V)
    few = WordPieceTokenizer(
        {token: index for token, index in TOKENIZER.vocab.items() if index < V - 3}
    )
    output = model(*batch()[:2], mask_positions=torch.ones(4, 1, dtype=torch.long))
    assert model.decode(output, few)["words"] == model.decode(output, few.to_hf())["words"]


@pytest.mark.parametrize("tokenizer", [TOKENIZER, TOKENIZER.to_hf()], ids=["ours", "transformers"])
def test_without_blanks_every_candidate_is_taken_for_real(tokenizer):
    best = torch.tensor([[[5, 6], [7, 8]]])
    assert build().decode({"top_indices": best}, tokenizer)["words"] == [[["a", "b"], ["c", "d"]]]


def test_decode_of_candidates_that_are_no_tensor_says_so():
    with pytest.raises(ValueError, match=r"top_indices=\[\[\[5\]\]\]; a tensor \(B, M, k\)"):
        build().decode({"top_indices": [[[5]]]}, TOKENIZER)


@pytest.mark.parametrize("call", [{}, {"labels": batch()[2]}], ids=["nothing", "labels"])
def test_decode_of_an_output_without_candidates_says_how_to_get_some(call):
    model = build()
    with pytest.raises(KeyError, match="call the model with mask_positions"):
        model.decode(model(*batch()[:2], **call), TOKENIZER)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "call, message",
    [
        ({"labels": (4, 9), "mask_positions": (4, 2)}, "labels and mask_positions"),
        (
            {"labels": (4, 9), "mask_positions": (4, 2), "target_ids": (4, 2)},
            "labels and mask_positions",
        ),
        ({"labels": (4, 9), "target_ids": (4, 2)}, "give one of them"),
        ({"target_ids": (4, 2)}, "target_ids without mask_positions"),
        ({"labels": (4, 8)}, r"labels=.*\(4, 8\).*\(4, 9\), the shape of input_ids"),
        ({"labels": (36,)}, r"labels=.*\(36,\).*\(4, 9\), the shape of input_ids"),
        ({"mask_positions": (4, 2), "target_ids": (4, 3)}, r"target_ids=.*\(4, 3\).*\(4, 2\), the"),
        ({"mask_positions": (4, 2), "target_ids": (4, 1)}, r"target_ids=.*\(4, 1\).*\(4, 2\), the"),
        ({"mask_positions": (4, 2), "target_ids": (8,)}, r"target_ids=.*\(8,\).*\(4, 2\), the"),
        ({"mask_positions": (3, 2)}, r"mask_positions=.*\(3, 2\); a tensor \(4, M\)"),
        ({"mask_positions": (4,)}, r"mask_positions=.*\(4,\); a tensor \(B, M\)"),
    ],
)
@pytest.mark.parametrize("kind", ["bert", "embedding"])
def test_arguments_that_do_not_belong_together_are_refused(kind, call, message):
    ids, mask, _ = batch()
    with pytest.raises(ValueError, match=message):
        build(kind)(
            ids, mask, **{name: torch.ones(shape, dtype=torch.long) for name, shape in call.items()}
        )


@each_kind
@pytest.mark.parametrize("wrong", [9, 10, 500])
def test_a_position_beyond_the_row_is_named(kind, wrong):
    ids, mask, _ = batch()
    positions = torch.tensor([[0, 1], [2, -1], [3, wrong], [4, 5]])
    with pytest.raises(
        IndexError, match=rf"names \[{wrong}\], first at \[2, 1\]; positions here run from 0 to 8"
    ):
        build(kind)(ids, mask, mask_positions=positions)


@each_kind
@pytest.mark.parametrize(
    "positions", [torch.ones(4, 9).bool(), torch.ones(4, 2)], ids=["bool", "float"]
)
def test_positions_that_are_no_integers_are_refused(kind, positions):
    with pytest.raises(ValueError, match=str(positions.dtype)):
        build(kind)(*batch()[:2], mask_positions=positions)


@pytest.mark.parametrize("kind", ["bert", "embedding"])
@pytest.mark.parametrize(
    "call", [{"labels": (9,)}, {"mask_positions": (2,)}], ids=["labels", "positions"]
)
def test_one_row_that_is_no_batch_is_refused_by_its_shape(kind, call):
    with pytest.raises(ValueError, match=r"\(9,"):
        build(kind)(
            batch()[0][0],
            **{name: torch.ones(shape, dtype=torch.long) for name, shape in call.items()},
        )


@pytest.mark.parametrize("kind", ["bert", "embedding"])
@pytest.mark.parametrize("shape", [(4, 8), (9,), (1, 9)])
def test_a_mask_of_another_shape_is_refused(kind, shape):
    with pytest.raises(ValueError, match="attention_mask"):
        build(kind)(
            batch()[0], torch.ones(shape, dtype=torch.long), mask_positions=torch.full((4, 1), 8)
        )


@pytest.mark.parametrize("wrong", [V, 1000, -1])
def test_a_label_or_target_that_the_model_cannot_name_is_refused_by_value(wrong):
    model = build()
    ids, mask, labels = batch()
    labels[0, 0] = wrong
    call = {"mask_positions": torch.zeros(4, 1).long(), "target_ids": torch.full((4, 1), wrong)}
    for asked in ({"labels": labels}, call):
        with pytest.raises(ValueError, match=rf"(label|holds|target) {wrong}\b"):
            model(ids, mask, **asked)


@pytest.mark.parametrize("activation", ["softmax", torch.sigmoid])
def test_a_head_with_an_output_activation_is_refused(activation):
    with pytest.raises(ValueError, match="output_activation=None"):
        MaskedLanguageModel(nn.Embedding(V, H), MaskedLMHead(H, V, output_activation=activation))


@pytest.mark.parametrize(
    "option",
    [{"dropout": value} for value in (-0.1, 1.1, 10, math.nan, True, None, "0.1")]
    + [{"top_k": value} for value in (0, -1, 2.0, None, "5", True)],
    ids=str,
)
def test_an_option_without_a_meaning_is_refused_by_name_and_value(option):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        build(**option)


@pytest.mark.parametrize("parts", [(None, nn.Identity()), (nn.Embedding(V, H), None), ("bert", 3)])
def test_a_part_that_is_no_module_is_refused_by_name(parts):
    with pytest.raises(ValueError, match="(embedder|head)=.*; a module is needed"):
        MaskedLanguageModel(*parts)


@pytest.mark.parametrize("kind", ["bert", "embedding"])
@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "labels", "mask_positions"])
def test_lists_where_tensors_are_due_are_refused_by_name(kind, name):
    ids, mask, _ = batch()
    rows = ids.tolist() if name == "input_ids" else mask.tolist()
    with pytest.raises(ValueError, match=rf"{name}=\[\["):
        build(kind)(**{"input_ids": ids} | {name: rows})
    with pytest.raises(ValueError, match=r"target_ids=\[\["):
        build(kind)(ids, mask_positions=mask, target_ids=rows)


@pytest.mark.parametrize("wrong", [V, -1])
@pytest.mark.parametrize("kind", ["bert", "embedding", "lstm"])
def test_an_id_outside_the_vocabulary_is_named(kind, wrong):
    with pytest.raises(ValueError, match=f"input_ids holds {wrong}; a number from 0 to {V - 1}"):
        build(kind)(torch.tensor([[1, wrong]]))


@each_kind
def test_a_mask_of_other_values_is_refused(kind):
    ids, mask, _ = batch()
    with pytest.raises(ValueError, match="attention_mask holds 7"):
        build(kind)(ids, 7 * mask)


# ------------------------------------------------------------------------------------ as a module


def test_models_that_compute_differently_are_described_differently():
    assert repr(build()) == repr(build()) != repr(build(top_k=6))
    assert repr(build(dropout=0.1)) != repr(build()) != repr(build("bert+lstm"))


@each_kind
def test_dropout_falls_on_the_contextual_states_alone_and_only_in_training(kind):
    model = build(kind, dropout=0.5)
    ids, mask, labels = batch()
    seen = []
    model.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    assert torch.equal(model(ids, mask)["logits"], model(ids, mask)["logits"])
    states = seen[0]  # (B, T, H), whole
    model.train()
    for call in ({}, {"labels": labels}):
        model(ids, mask, **call)
        dropped = seen[-1] == 0
        assert 0.2 < dropped.double().mean() < 0.8
        gathered = (
            dropped.dim() == 2
        )  # the encoder leaves out the other positions before the head could
        same(
            seen[-1],
            torch.where(dropped, 0.0, 2 * (states[labels != IGNORE] if gathered else states)),
        )


def test_dropout_of_0_changes_nothing_in_training():
    model = build().train()
    ids, mask, _ = batch()
    assert torch.equal(model(ids, mask)["logits"], model.eval()(ids, mask)["logits"])


@pytest.mark.parametrize("kind", ["bert", "bert+lstm", "embedding", "lstm"])
def test_the_tied_matrix_is_one_parameter_and_stays_one(kind):
    def matrix(model):
        return (
            model.embedder.embeddings.word if kind.startswith("bert") else model.embedder
        ).weight

    model = build(kind, dtype=torch.float32)
    for copied in (
        model,
        copy.deepcopy(model),
        copy.deepcopy(model).to(torch.float64),
        copy.deepcopy(model).double().float(),
    ):
        assert copied.head.weight is matrix(copied)
        parameters = list(copied.parameters())
        assert sum(parameter is matrix(copied) for parameter in parameters) == 1
        assert sum(parameter.shape == (V, H) for parameter in parameters) == 1
    copied = copy.deepcopy(model)
    assert matrix(copied) is not matrix(model)
    ids, mask, labels = batch()
    copied(ids, mask, labels=labels)["loss"].backward()
    torch.optim.SGD(copied.parameters(), lr=1.0).step()
    assert copied.head.weight is matrix(copied)
    assert not torch.equal(matrix(copied), matrix(model))


@each_kind
def test_a_state_dict_makes_another_model_the_same(kind):
    model, other = build(kind), build(kind)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
    ids, mask, _ = batch()
    assert not torch.allclose(model(ids, mask)["logits"], other(ids, mask)["logits"])
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(ids, mask)["logits"], other(ids, mask)["logits"])


@each_kind
def test_a_step_of_training_lowers_the_loss_and_moves_every_parameter(kind):
    model = build(kind)
    ids, mask, labels = batch()
    before = copy.deepcopy(model.state_dict())
    loss = model(ids, mask, labels=labels)["loss"]
    loss.backward()
    torch.optim.Adam(model.parameters(), lr=1e-4).step()
    assert model(ids, mask, labels=labels)["loss"] < loss
    assert not [
        name for name, tensor in model.state_dict().items() if torch.equal(tensor, before[name])
    ]


@pytest.mark.parametrize("kind", ["bert", "lstm"])
def test_a_tiny_batch_is_learned_by_heart(kind):
    model = build(kind, dtype=torch.float32).train()
    ids, mask, labels = batch()
    positions, targets = blanks_of(labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(100):
        call = (
            {"labels": labels} if step % 2 else {"mask_positions": positions, "target_ids": targets}
        )
        loss = model(ids, mask, **call)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            assert loss > 2
    assert loss < 0.05
    best = model.eval()(ids, mask, mask_positions=positions)["top_indices"][..., 0]
    assert torch.equal(best[positions >= 0], labels[labels != IGNORE])


# ------------------------------------------------------------------------------------ weights


def test_a_row_s_weight_counts_for_each_of_its_labels():
    torch.manual_seed(0)
    model = MaskedLanguageModel.from_config(EncoderConfig(20, 8, 1, 2, 16, dropout=0.0)).double()
    ids = torch.randint(5, 20, (3, 6))
    labels = torch.full_like(ids, IGNORE)
    labels[0, 1], labels[1, :4], labels[2, 2:5] = 7, 8, 9
    weights = torch.tensor([6.0, 1.5, 2.0], dtype=torch.float64)
    rows = [model(ids[i : i + 1], labels=labels[i : i + 1])["loss"].item() for i in range(3)]
    counts = [1, 4, 3]
    total = sum(w * n * nats for w, n, nats in zip(weights.tolist(), counts, rows))
    found = model(ids, labels=labels, weights=weights)
    assert found["loss"].item() == pytest.approx(total / (6.0 * 1 + 1.5 * 4 + 2.0 * 3))
    assert found["logits"].shape == (8, 20)
    plain = model(ids, labels=labels)["loss"]
    assert model(ids, labels=labels, weights=torch.ones(3).double())["loss"].allclose(plain)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"weights": torch.ones(2)}, "weights without labels"),
        ({"weights": torch.ones(3), "labels": torch.full((2, 3), 1)}, "weights=.*first column"),
    ],
)
def test_weights_without_labels_or_of_other_rows_are_refused(options, message):
    model = MaskedLanguageModel.from_config(EncoderConfig(20, 8, 1, 2, 16))
    with pytest.raises(ValueError, match=message):
        model(torch.ones(2, 3, dtype=torch.long), **options)
