"""The masked-LM head: the right score at each asked position, and one matrix with the embedding."""

import copy
import io
import math
import pickle

import pytest
import torch
import torch.nn as nn
from torch.testing import assert_close
from toys import drawn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLMPredictionHead

from mlm_lib.heads import MaskedLMHead

B, T, H, V = 3, 5, 8, 11
POSITIONS = torch.tensor([[1, 4], [0, 0], [3, 2]])  # unordered, and one position twice
CHOSEN = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 0]]).bool()
FORMS = {"everywhere": None, "positions": POSITIONS, "bool": CHOSEN}
every_form = pytest.mark.parametrize("asked", FORMS.values(), ids=FORMS)
exact = {"rtol": 1e-12, "atol": 1e-12}


def states(batch=B, length=T, seed=0):
    return torch.randn(
        batch, length, H, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def pick(everywhere, asked):
    """What stands at the asked positions of (B, T, ...), one position at a time."""
    if asked is None:
        return everywhere
    if asked.dtype == torch.bool:
        return torch.stack([everywhere[b, t] for b in range(B) for t in range(T) if asked[b, t]])
    return torch.stack(
        [torch.stack([everywhere[b, t] for t in row]) for b, row in enumerate(asked.tolist())]
    )


def tied_model(vocab_size=V, dtype=torch.float32):
    """An embedding, and a head that is tied to it."""
    embedding = nn.Embedding(vocab_size, H, dtype=dtype)
    return nn.ModuleDict(
        {"embedding": embedding, "head": MaskedLMHead(H, token_embedding=embedding).to(dtype)}
    )


# ------------------------------------------------------------------------------------ values


def test_two_positions_by_hand():
    # With an identity for the dense layer, relu makes (−1, 4) to (0, 4), and layer norm that to
    # (−1, 1).
    head = MaskedLMHead(2, 3, activation="relu")
    with torch.no_grad():
        head.dense.weight.copy_(torch.eye(2))
        head.projection.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]))
        head.bias.copy_(torch.tensor([0.0, 0.5, 0.0]))
    hidden = torch.tensor([[[9.0, 9.5], [-1.0, 4.0], [3.0, 1.0]]])
    assert_close(
        head(hidden, torch.tensor([[1, 2]])), torch.tensor([[[-1.0, 1.5, -1.0], [1.0, -0.5, 1.0]]])
    )


@pytest.mark.parametrize("tied", [True, False])
@every_form
def test_it_is_the_arithmetic_of_the_paper_number_by_number(asked, tied):
    embedding = nn.Embedding(V, H) if tied else None
    head = drawn(MaskedLMHead(H, V, token_embedding=embedding))
    weights = {name: parameter.tolist() for name, parameter in head.named_parameters()}
    matrix = (embedding.weight if tied else head.projection).tolist()

    def slow(x):
        rows = zip(weights["dense.weight"], weights["dense.bias"])
        x = [sum(w * value for w, value in zip(row, x)) + bias for row, bias in rows]
        x = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x]
        mean = sum(x) / H
        deviation = math.sqrt(sum((value - mean) ** 2 for value in x) / H + 1e-12)
        x = [
            (v - mean) / deviation * w + b
            for v, w, b in zip(x, weights["norm.weight"], weights["norm.bias"])
        ]
        return [
            sum(w * value for w, value in zip(row, x)) + bias
            for row, bias in zip(matrix, weights["bias"])
        ]

    expected = torch.tensor(
        [[slow(x) for x in row] for row in states().tolist()], dtype=torch.float64
    )
    assert_close(head(states(), asked), pick(expected, asked), **exact)


@pytest.mark.parametrize("act", ["gelu", "relu"])
@every_form
def test_values_and_gradients_are_those_of_berts_head(asked, act):
    config = BertConfig(
        vocab_size=V, hidden_size=H, num_attention_heads=2, hidden_act=act, layer_norm_eps=1e-3
    )
    theirs, embedding = BertLMPredictionHead(config), nn.Embedding(V, H)
    theirs.decoder.weight = embedding.weight
    drawn(theirs)
    ours = MaskedLMHead(H, token_embedding=embedding, activation=act, layer_norm_eps=1e-3).double()
    transform = theirs.transform
    ours.dense.load_state_dict(transform.dense.state_dict())
    ours.norm.load_state_dict(transform.LayerNorm.state_dict())
    ours.bias.data = theirs.decoder.bias.data.clone()
    hidden = states().requires_grad_()
    expected, got = pick(theirs(hidden), asked), ours(hidden, asked)
    assert_close(got, expected, **exact)
    theirs_of = [
        transform.dense.weight,
        transform.dense.bias,
        transform.LayerNorm.weight,
        transform.LayerNorm.bias,
    ]
    ours_of = [ours.dense.weight, ours.dense.bias, ours.norm.weight, ours.norm.bias]
    signal = torch.randn(
        expected.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    wanted = torch.autograd.grad(
        expected, [hidden, embedding.weight, theirs.decoder.bias, *theirs_of], signal
    )
    found = torch.autograd.grad(got, [hidden, embedding.weight, ours.bias, *ours_of], signal)
    for mine, reference in zip(found, wanted):
        assert_close(mine, reference, **exact)


def test_the_three_forms_have_the_shapes_of_their_questions():
    head, hidden = MaskedLMHead(H, V), states().float()
    assert head(hidden).shape == (B, T, V)
    assert head(hidden, POSITIONS).shape == (B, 2, V)
    assert head(hidden, CHOSEN).shape == (5, V)


def test_states_that_are_gathered_already_may_have_any_shape():
    head = drawn(MaskedLMHead(H, V))
    assert_close(head(states()[CHOSEN]), head(states(), CHOSEN), **exact)
    assert_close(head(states()[0, 0]), head(states())[0, 0], **exact)


def test_the_number_of_masks_may_change_from_call_to_call():
    head = drawn(MaskedLMHead(H, V))
    everywhere = head(states())
    for masks in (1, 7, 2, 0, T):
        positions = torch.randint(T, (B, masks), generator=torch.Generator().manual_seed(masks))
        assert head(states(), positions).shape == (B, masks, V)
        assert_close(
            head(states(), positions), everywhere[torch.arange(B)[:, None], positions], **exact
        )


def test_padded_positions_get_scores_that_a_weight_of_0_takes_out_of_the_gradient():
    head = drawn(MaskedLMHead(H, V))
    gradients = []
    for padding in (0, 3):  # the second slot of row 0 is padding: what it names must not matter
        hidden = states().requires_grad_()
        logits = head(hidden, torch.tensor([[2, padding], [1, 4], [0, 1]]))
        weights = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
        gradients.append(torch.autograd.grad((logits.square().sum(-1) * weights).sum(), hidden)[0])
    assert torch.equal(*gradients)
    assert (gradients[0][0, 2] != 0).any() and (gradients[0][0, [0, 1, 3, 4]] == 0).all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("length", [5, 128, 300])
def test_positions_may_be_integers_of_any_width(length, dtype):
    head, hidden = drawn(MaskedLMHead(H, V)), states(2, length)
    positions = (
        torch.tensor([[0, 4], [3, 1]]) if length == 5 else torch.tensor([[0, 127], [100, 1]])
    )
    assert torch.equal(head(hidden, positions.to(dtype)), head(hidden, positions))


@every_form
def test_states_and_questions_need_not_be_contiguous(asked):
    head = drawn(MaskedLMHead(H, V))
    scattered = asked if asked is None else asked.t().contiguous().t()
    assert torch.equal(
        head(states().transpose(0, 1).contiguous().transpose(0, 1), scattered),
        head(states(), asked),
    )


# ------------------------------------------------------------------------------------ activations


@every_form
def test_softmax_gives_probabilities_over_the_vocabulary(asked):
    embedding = nn.Embedding(V, H)
    logits = drawn(MaskedLMHead(H, token_embedding=embedding))
    scores = logits(states(), asked)
    for name, expected in (
        ("softmax", scores.softmax(-1)),
        ("log_softmax", scores.log_softmax(-1)),
        ("softmin", (-scores).softmax(-1)),
        ("normalize", nn.functional.normalize(scores, dim=-1)),
    ):
        head = MaskedLMHead(H, token_embedding=embedding, output_activation=name).double()
        head.load_state_dict(logits.state_dict())
        assert_close(head(states(), asked), expected, **exact)


def test_an_output_activation_may_be_any_callable():
    head = drawn(MaskedLMHead(H, V, output_activation=lambda logits: logits.tanh() / 2))
    halves = head(states())
    head.output_activation = None
    assert_close(halves, head(states()).tanh() / 2, **exact)


def test_an_activation_may_be_a_name_a_function_or_a_module_that_learns():
    by_name = drawn(MaskedLMHead(H, V, activation="relu"))
    assert torch.equal(
        drawn(MaskedLMHead(H, V, activation=torch.relu))(states()), by_name(states())
    )
    assert not torch.allclose(drawn(MaskedLMHead(H, V))(states()), by_name(states()))
    assert "activation.weight" in dict(MaskedLMHead(H, V, activation=nn.PReLU()).named_parameters())


def test_without_an_activation_the_head_is_affine_before_its_norm():
    head = drawn(MaskedLMHead(H, V, activation=None))
    assert torch.equal(head(states()), drawn(MaskedLMHead(H, V, activation=lambda x: x))(states()))


# -------------------------------------------------------------------- one parameter under two names


def test_a_tied_head_has_no_matrix_of_its_own():
    model = tied_model()
    head, embedding = model["head"], model["embedding"]
    assert head.tied and head.weight is embedding.weight
    assert sum(parameter is embedding.weight for parameter in model.parameters()) == 1
    assert sum(p.numel() for p in model.parameters()) == V * H + V + H * H + 3 * H
    assert sum(p.numel() for p in MaskedLMHead(H, V).parameters()) == V * H + V + H * H + 3 * H


def test_a_head_with_its_own_matrix_says_so():
    head = MaskedLMHead(H, V)
    assert not head.tied and head.weight is head.projection and head.weight.shape == (V, H)
    assert "tied=False" in repr(head) and "tied=True" in repr(tied_model()["head"])


def test_the_vocabulary_size_may_be_said_besides_the_embedding():
    assert MaskedLMHead(H, V, token_embedding=nn.Embedding(V, H)).vocab_size == V
    assert MaskedLMHead(H, token_embedding=nn.Embedding(V, H)).vocab_size == V


def test_tying_leaves_the_embedding_as_it_is():
    embedding = nn.Embedding(V, H)
    before = embedding.weight.detach().clone()
    MaskedLMHead(H, token_embedding=embedding)
    assert torch.equal(embedding.weight, before)


def test_a_fresh_head_has_berts_initial_weights():
    torch.manual_seed(0)
    head = MaskedLMHead(64, 500)
    for weight in (head.dense.weight, head.projection):
        assert (
            weight.std().item() == pytest.approx(0.02, rel=0.05)
            and abs(weight.mean().item()) < 0.001
        )
    assert not head.dense.bias.any() and not head.bias.any()


def test_the_tied_gradient_is_the_sum_of_the_two_an_untied_pair_would_get():
    model = drawn(tied_model())
    apart = nn.ModuleDict({"embedding": nn.Embedding(V, H), "head": MaskedLMHead(H, V)}).double()
    apart["embedding"].load_state_dict(model["embedding"].state_dict())
    weights = {
        name: value
        for name, value in model["head"].state_dict().items()
        if not name.startswith("token_embedding")
    }
    apart["head"].load_state_dict(weights | {"projection": model["embedding"].weight.detach()})
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))
    for pair in (model, apart):
        pair["head"](pair["embedding"](ids), POSITIONS).logsumexp(-1).sum().backward()
    assert apart["embedding"].weight.grad.any() and apart["head"].projection.grad.any()
    assert_close(
        model["embedding"].weight.grad,
        apart["embedding"].weight.grad + apart["head"].projection.grad,
        **exact,
    )


def test_a_step_of_training_moves_both_ends():
    model = tied_model()
    head, embedding = model["head"], model["embedding"]
    before = embedding.weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    head(embedding(torch.tensor([[1, 2, 3]])), torch.tensor([[1]])).logsumexp(-1).sum().backward()
    optimizer.step()
    assert not torch.equal(embedding.weight, before)
    assert head.weight is embedding.weight


def test_saving_writes_the_matrix_once_and_loading_finds_it_tied():
    model = tied_model(vocab_size=10_000)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    assert file.tell() < 1.5 * model["embedding"].weight.nbytes
    file.seek(0)
    fresh = tied_model(vocab_size=10_000)
    fresh.load_state_dict(torch.load(file))
    assert fresh["head"].weight is fresh["embedding"].weight
    assert torch.equal(fresh["head"](states().float()), model["head"](states().float()))


def empty_from_meta(model):
    return model.to("meta").to_empty(device="cpu")


def assigned(model):
    with torch.device("meta"):
        fresh = tied_model()
    fresh.load_state_dict(model.state_dict(), assign=True)
    return fresh


def head_and_embedding_moved_apart(model):
    model["head"].double()
    model["embedding"].bfloat16()
    return model.float()


MOVES = {
    "dtype": lambda model: model.to(torch.float64),
    "only the embedding moved": lambda model: model["embedding"].double() and model,
    "only the head moved": lambda model: model["head"].double() and model,
    "one after the other": head_and_embedding_moved_apart,
    "to_empty": empty_from_meta,
    "only the embedding to_empty": lambda model: (
        model["embedding"].to("meta").to_empty(device="cpu") and model
    ),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "assign": assigned,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_the_tie_holds_when_the_model_is_moved_or_copied(move):
    model = move(tied_model())
    head, embedding = model["head"], model["embedding"]
    assert head.weight is embedding.weight
    assert head.weight.device.type == "cpu"
    assert sum(parameter is embedding.weight for parameter in model.parameters()) == 1
    for parameter in model.double().parameters():
        nn.init.zeros_(parameter)
    nn.init.ones_(head.norm.bias)
    nn.init.constant_(embedding.weight, 2)
    assert (head(states()) == 2 * H).all()  # the head computes with it, too


def test_a_copy_shares_nothing_with_its_original():
    model = tied_model()
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin["embedding"].weight)
    assert model["head"].weight.any()


# ------------------------------------------------------------------------------------ nothing asked

NOTHING = {
    "N = 0": (B, T, torch.zeros(B, T, dtype=torch.bool), (0, V)),
    "M = 0": (B, T, torch.zeros(B, 0, dtype=torch.long), (B, 0, V)),
    "B = 0": (0, T, torch.zeros(0, 2, dtype=torch.long), (0, 2, V)),
    "B = 0, bool": (0, T, torch.zeros(0, T, dtype=torch.bool), (0, V)),
    "T = 0": (B, 0, torch.zeros(B, 0, dtype=torch.long), (B, 0, V)),
    "T = 0, bool": (B, 0, torch.zeros(B, 0, dtype=torch.bool), (0, V)),
    "T = 0, everywhere": (B, 0, None, (B, 0, V)),
}


@pytest.mark.parametrize("batch, length, asked, shape", NOTHING.values(), ids=NOTHING)
def test_where_nothing_is_asked_there_is_no_score_and_a_gradient_of_0(batch, length, asked, shape):
    model = tied_model(dtype=torch.float64)
    hidden = states(batch, length).requires_grad_()
    logits = model["head"](hidden, asked)
    assert logits.shape == shape
    logits.sum().backward()
    assert hidden.grad is not None and not hidden.grad.any()
    assert all(
        parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters()
    )


# ------------------------------------------------------------------------------------ errors


def test_neither_a_vocabulary_size_nor_an_embedding_is_an_error():
    with pytest.raises(ValueError, match="vocab_size and token_embedding are both None"):
        MaskedLMHead(H)


@pytest.mark.parametrize(
    "sizes, numbers",
    [
        ((H, V + 1), (V + 1, V)),
        ((H, V - 1), (V - 1, V)),
        ((H + 1, V), (H + 1, H)),
        ((H + 1, None), (H + 1, H)),
    ],
)
def test_an_embedding_of_another_size_is_refused_with_both_numbers(sizes, numbers):
    with pytest.raises(
        ValueError, match=rf"={numbers[0]}, but token_embedding (has|is) {numbers[1]} "
    ):
        MaskedLMHead(*sizes, token_embedding=nn.Embedding(V, H))


@pytest.mark.parametrize("wrong", [0, -3, 8.0, "8", True], ids=repr)
def test_sizes_that_are_no_sizes_are_refused_by_name_and_value(wrong):
    with pytest.raises(ValueError, match=rf"hidden_size={wrong!r}"):
        MaskedLMHead(wrong, V)
    with pytest.raises(ValueError, match=rf"vocab_size={wrong!r}"):
        MaskedLMHead(H, wrong)


def test_an_embedding_is_asked_for_and_not_its_weight():
    with pytest.raises(ValueError, match="token_embedding"):
        MaskedLMHead(H, token_embedding=nn.Embedding(V, H).weight)


@pytest.mark.parametrize("wrong", ["swishy", 3, "", "math", "glu", "cross_entropy", []], ids=repr)
@pytest.mark.parametrize("which", ["activation", "output_activation"])
def test_an_unknown_activation_is_refused_at_once_and_by_name(which, wrong):
    with pytest.raises(ValueError) as error:
        MaskedLMHead(H, V, **{which: wrong})
    assert f"{which}={wrong!r}; a callable" in str(error.value)


def test_looking_an_activation_up_draws_no_random_number():
    states = []
    for activation in (None, "gumbel_softmax"):
        torch.manual_seed(0)
        MaskedLMHead(H, V, activation=activation)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("eps", [-1, math.nan, math.inf, "1e-12", None, True], ids=repr)
def test_an_eps_that_is_no_number_of_0_or_more_is_refused(eps):
    with pytest.raises(ValueError, match=f"layer_norm_eps={eps!r}"):
        MaskedLMHead(H, V, layer_norm_eps=eps)


@pytest.mark.parametrize(
    "option", [{"activation": "relu"}, {"activation": None}, {"output_activation": "softmin"}]
)
def test_heads_that_compute_differently_are_described_differently(option):
    same = repr(MaskedLMHead(H, V))
    assert repr(MaskedLMHead(H, V)) == same != repr(MaskedLMHead(H, V, **option))
    assert " at 0x" not in same + repr(MaskedLMHead(H, V, **option))


@pytest.mark.parametrize("wrong", [-1, T, 1000], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_a_position_outside_the_row_is_named_and_never_answered(dtype, wrong):
    positions = POSITIONS.to(dtype).clone()
    positions[2, 1] = wrong
    with pytest.raises(
        IndexError, match=rf"\[{wrong}\], first at \[2, 1\]; positions here run from 0 to 4"
    ):
        MaskedLMHead(H, V)(states().float(), positions)


def test_a_position_of_the_next_row_is_an_error_in_this_one():
    with pytest.raises(
        IndexError, match=r"names \[5, 6\]"
    ):  # 5 and 6 lie among the B·T states, but not in row 0
        MaskedLMHead(H, V)(states().float(), torch.tensor([[6], [5], [0]]))


@pytest.mark.parametrize(
    "asked, quoted",
    [
        (torch.zeros(B, 2), "torch.float32"),
        (torch.zeros(B, T, dtype=torch.float64), "torch.float64"),
        (torch.zeros(B, 2, dtype=torch.complex64), "torch.complex64"),
        (torch.zeros(2, dtype=torch.long), r"\(2,\)"),
        (torch.tensor(2), r"\(\)"),
        (torch.zeros(1, 2, dtype=torch.long), r"\(1, 2\).*\(3, M\)"),
        (torch.zeros(B, 2, 1, dtype=torch.long), r"\(3, 2, 1\)"),
        (torch.zeros(B, T + 1, dtype=torch.bool), r"\(3, 6\).*\(3, 5\)"),
        (torch.zeros(B - 1, T, dtype=torch.bool), r"\(2, 5\).*\(3, 5\)"),
        (torch.zeros(B * T, dtype=torch.bool), r"\(15,\).*\(3, 5\)"),
        ([[0, 1], [0, 1], [0, 1]], r"mask_positions=\[\[0, 1\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_questions_of_another_kind_or_shape_are_refused_with_what_they_are(asked, quoted):
    with pytest.raises(ValueError, match=quoted):
        MaskedLMHead(H, V)(states().float(), asked)


@pytest.mark.parametrize(
    "shape, asked",
    [
        ((B, T, H + 1), None),
        ((H + 1,), None),
        ((B, T, H - 1), POSITIONS),
        ((T, H), POSITIONS),
        ((B, T, 1, H), CHOSEN),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
def test_states_that_the_head_cannot_read_are_refused_by_shape(shape, asked):
    with pytest.raises(ValueError) as error:
        MaskedLMHead(H, V)(torch.zeros(shape), asked)
    assert f"hidden=a torch.float32 tensor {shape}; a tensor (B, T" in str(error.value)


def test_states_that_are_no_tensor_are_refused():
    with pytest.raises(ValueError, match=r"hidden=\[\[0.0\]\]; a tensor"):
        MaskedLMHead(1, V)([[0.0]])


def test_a_head_without_biases_keeps_that_of_the_projection():
    head = MaskedLMHead(4, 9, bias=False)
    assert [name for name, _ in head.named_parameters() if "bias" in name] == ["bias"]
    hidden = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    dense = nn.functional.gelu(hidden @ head.dense.weight.T)
    expected = nn.functional.layer_norm(dense, (4,), eps=1e-12) @ head.weight.T  # a bias of 0
    assert_close(head(hidden), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="bias='no'; True or False"):
        MaskedLMHead(4, 9, bias="no")
