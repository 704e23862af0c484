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

from mlm_lib.encoder import EncoderConfig
from mlm_lib.heads import MaskedLMHead

B, T, H, V = 3, 5, 8, 11
POSITIONS = torch.tensor([[1, 4], [0, 0], [3, 2]])  # unordered, and one position twice
CHOSEN = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 0]]).bool()
FORMS = {"everywhere": None, "positions": POSITIONS, "bool": CHOSEN}
every_form = pytest.mark.parametrize("asked", FORMS.values(), ids=FORMS)
exact = {"rtol": 1e-12, "atol": 1e-12}


def states(batch=B, length=T):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(batch, length, H, generator=draw, dtype=torch.float64)


def pick(everywhere, asked):
    """What stands at the asked positions of (B, T, ...), one position at a time."""
    if asked is None:
        return everywhere
    if asked.dtype == torch.bool:
        return torch.stack([everywhere[b, t] for b in range(B) for t in range(T) if asked[b, t]])
    rows = enumerate(asked.tolist())
    return torch.stack([torch.stack([everywhere[b, t] for t in row]) for b, row in rows])


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
    expected = torch.tensor([[[-1.0, 1.5, -1.0], [1.0, -0.5, 1.0]]])
    assert_close(head(hidden, torch.tensor([[1, 2]])), expected)


@pytest.mark.parametrize("act", ["gelu", "relu"])
@every_form
def test_values_and_gradients_are_those_of_berts_head(asked, act):
    sizes = {"vocab_size": V, "hidden_size": H, "num_attention_heads": 2}
    theirs = BertLMPredictionHead(BertConfig(**sizes, hidden_act=act, layer_norm_eps=1e-3))
    embedding, transform = nn.Embedding(V, H), theirs.transform
    theirs.decoder.weight = embedding.weight
    drawn(theirs)
    ours = MaskedLMHead(H, token_embedding=embedding, activation=act, layer_norm_eps=1e-3).double()
    ours.dense.load_state_dict(transform.dense.state_dict())
    ours.norm.load_state_dict(transform.LayerNorm.state_dict())
    ours.bias.data = theirs.decoder.bias.data.clone()
    hidden = states().requires_grad_()
    expected, got = pick(theirs(hidden), asked), ours(hidden, asked)
    assert_close(got, expected, **exact)
    signal = torch.randn(expected.shape, dtype=torch.float64)
    shared = [hidden, embedding.weight]
    their_parts = [theirs.decoder.bias, *transform.dense.parameters()]
    their_parts += transform.LayerNorm.parameters()
    our_parts = [ours.bias, *ours.dense.parameters(), *ours.norm.parameters()]
    wanted = torch.autograd.grad(expected, shared + their_parts, signal)
    assert_close(torch.autograd.grad(got, shared + our_parts, signal), wanted, **exact)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("masks", [0, 1, 7])
def test_positions_may_have_32_bits_and_be_as_many_as_one_likes(masks, dtype):
    head, hidden = drawn(MaskedLMHead(H, V)), states(2, 300)
    positions = torch.randint(128, (2, masks), dtype=dtype)
    expected = head(hidden)[torch.arange(2)[:, None], positions.long()]
    assert_close(head(hidden, positions), expected, **exact)


def test_states_that_are_gathered_already_may_have_any_shape():
    head = drawn(MaskedLMHead(H, V))
    assert_close(head(states()[CHOSEN]), head(states(), CHOSEN), **exact)
    assert_close(head(states()[0, 0]), head(states())[0, 0], **exact)


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


# ------------------------------------------------------------------------------------ activations


@every_form
def test_softmax_gives_probabilities_over_the_vocabulary(asked):
    logits = drawn(MaskedLMHead(H, V))
    head = drawn(MaskedLMHead(H, V, output_activation="softmax"))
    assert_close(head(states(), asked), logits(states(), asked).softmax(-1), **exact)


ACTIVATIONS = {
    "no name": (None, lambda x: x),
    "linear": ("linear", lambda x: x),
    "relu": ("relu", torch.relu),
    "silu": ("silu", nn.SiLU()),
    "gelu_tanh": ("gelu_tanh", nn.GELU(approximate="tanh")),
    "a callable": (lambda x: x.tanh() / 2, lambda x: x.tanh() / 2),
    "a module": (nn.PReLU().double(), lambda x: torch.where(x > 0, x, x / 4)),
}


@pytest.mark.parametrize("activation, function", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_an_activation_is_a_name_or_anything_that_can_be_called(activation, function):
    head = MaskedLMHead(H, V, activation=activation, output_activation=activation).double()
    expected = nn.functional.linear(head.norm(function(head.dense(states()))), head.weight)
    assert_close(head(states()), function(expected), **exact)


def test_head_and_encoder_know_the_same_names():
    refusals = []
    for make in (MaskedLMHead, lambda *_, **options: EncoderConfig(V, H, 1, 2, 12, **options)):
        with pytest.raises(ValueError, match="activation='swishy'; one of .*gelu_tanh") as caught:
            make(H, V, activation="swishy")
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]


def test_with_kerashubs_settings_it_takes_the_steps_of_its_layer():
    torch.manual_seed(0)
    words = nn.Embedding(100, 32)
    options = {"activation": "relu", "output_activation": "softmax", "layer_norm_eps": 1e-5}
    head = MaskedLMHead(32, token_embedding=words, **options)
    hidden, places = words(torch.randint(100, (16, 50))), torch.randint(50, (16, 5))
    found = head.dense(hidden[torch.arange(16)[:, None], places]).relu()  # (B, M, H)
    normed = nn.functional.layer_norm(found, (32,), head.norm.weight, head.norm.bias, 1e-5)
    assert_close(head(hidden, places), (normed @ words.weight.T + head.bias).softmax(-1))


def test_a_module_that_learns_is_a_part_of_the_head():
    assert "activation.weight" in dict(MaskedLMHead(H, V, activation=nn.PReLU()).named_parameters())


@pytest.mark.parametrize(
    "option", [{"activation": "relu"}, {"activation": None}, {"output_activation": "softmax"}]
)
def test_heads_that_compute_differently_are_described_differently(option):
    same = repr(MaskedLMHead(H, V))
    assert repr(MaskedLMHead(H, V)) == same != repr(MaskedLMHead(H, V, **option))
    assert " at 0x" not in same + repr(MaskedLMHead(H, V, **option))


def test_a_head_without_biases_keeps_that_of_the_projection():
    head = MaskedLMHead(4, 9, bias=False)
    assert [name for name, _ in head.named_parameters() if "bias" in name] == ["bias"]
    hidden = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    dense = nn.functional.gelu(hidden @ head.dense.weight.T)
    expected = nn.functional.layer_norm(dense, (4,), eps=1e-12) @ head.weight.T  # a bias of 0
    assert_close(head(hidden), expected, rtol=1e-4, atol=1e-5)


# -------------------------------------------------------------------- one parameter under two names


def test_a_tied_head_has_no_matrix_of_its_own():
    model = tied_model()
    head, embedding = model["head"], model["embedding"]
    assert head.tied and head.weight is embedding.weight
    assert sum(parameter is embedding.weight for parameter in model.parameters()) == 1
    for one in (model, MaskedLMHead(H, V)):
        assert sum(p.numel() for p in one.parameters()) == V * H + V + H * H + 3 * H


def test_a_fresh_head_has_berts_initial_weights():
    head = MaskedLMHead(64, 500)
    for weight in (head.dense.weight, head.projection):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert abs(weight.mean().item()) < 0.001
    assert not head.dense.bias.any() and not head.bias.any()


def test_the_tied_gradient_is_the_sum_of_the_two_an_untied_pair_would_get():
    model = drawn(tied_model())
    embedding, head = copy.deepcopy(model["embedding"]), copy.deepcopy(model["head"])
    head.token_embedding, head.projection = None, nn.Parameter(embedding.weight.detach().clone())
    ids = torch.randint(V, (B, T))
    model["head"](model["embedding"](ids), POSITIONS).logsumexp(-1).sum().backward()
    head(embedding(ids), POSITIONS).logsumexp(-1).sum().backward()
    assert embedding.weight.grad.any() and head.projection.grad.any()
    both = embedding.weight.grad + head.projection.grad
    assert_close(model["embedding"].weight.grad, both, **exact)


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
    "to_empty": lambda model: model.to("meta").to_empty(device="cpu"),
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

HEADS = {
    "vocab_size and token_embedding are both None": {},
    "vocab_size=7, but token_embedding has 9 rows": {
        "vocab_size": 7,
        "token_embedding": nn.Embedding(9, H),
    },
    "activation='swishy'": {"vocab_size": V, "activation": "swishy"},
    "output_activation='math'": {"vocab_size": V, "output_activation": "math"},
    "layer_norm_eps=-1": {"vocab_size": V, "layer_norm_eps": -1},
    "layer_norm_eps=nan": {"vocab_size": V, "layer_norm_eps": math.nan},
}


@pytest.mark.parametrize("message, options", HEADS.items(), ids=HEADS)
def test_a_head_that_cannot_be_is_refused_when_it_is_made(message, options):
    with pytest.raises(ValueError, match=message):
        MaskedLMHead(H, **options)


@pytest.mark.parametrize("wrong", [-1, T, T + 1, 1000], ids=str)
def test_a_position_outside_the_row_is_named_and_never_answered(wrong):
    positions = POSITIONS.clone()
    positions[1, 0] = wrong  # T lies among the B·T states, but not in this row
    with pytest.raises(IndexError, match=rf"\[{wrong}\], first at \[1, 0\]; .* from 0 to 4"):
        MaskedLMHead(H, V)(states().float(), positions)


QUESTIONS = {
    "fractions": torch.zeros(B, 2),
    "no batch": torch.zeros(2, dtype=torch.long),
    "one row for all": torch.zeros(1, 2, dtype=torch.long),
    "three axes": torch.zeros(B, 2, 1, dtype=torch.long),
    "truth for another length": torch.zeros(B, T + 1, dtype=torch.bool),
    "truth laid out flat": torch.zeros(B * T, dtype=torch.bool),
}


@pytest.mark.parametrize("asked", QUESTIONS.values(), ids=QUESTIONS)
def test_questions_of_another_kind_or_shape_are_refused(asked):
    with pytest.raises(ValueError, match="mask_positions="):
        MaskedLMHead(H, V)(states().float(), asked)


@pytest.mark.parametrize("shape, asked", [((B, T, H + 1), None), ((B, T, H - 1), POSITIONS)])
def test_states_of_another_width_are_not_read(shape, asked):
    with pytest.raises(RuntimeError, match="shape"):
        MaskedLMHead(H, V)(torch.zeros(shape), asked)
