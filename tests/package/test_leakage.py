"""The detector of leaks: every cheat is named, no honest reader is, and none notices the test."""

import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from mlm_lib.grammar import Floor, Grammar
from mlm_lib.labels import IGNORE
from mlm_lib.language_model import LanguageModel, LSTMContextualizer, TransformerContextualizer
from mlm_lib.leakage import assert_above_floor, assert_no_leaks, dependencies, find_leaks

pytestmark = pytest.mark.usefixtures("one_thread")

E, T = 6, 8
DIRECTIONS = ("forward", "backward")
each_direction = pytest.mark.parametrize("direction", DIRECTIONS)


def forbidden(direction="forward", length=T):
    """Where a language model must not look: [output, input]."""
    places = torch.arange(length)
    return (places > places[:, None]) if direction == "forward" else (places < places[:, None])


def pairs(*some, length=T):
    """A matrix that is True at these pairs of output and input."""
    matrix = torch.zeros(length, length, dtype=torch.bool)
    for output, seen in some:
        matrix[output, seen] = True
    return matrix


def seeded(make, seed=0):
    torch.manual_seed(seed)
    return make()


class Apply(nn.Module):
    """A function of (B, T, E) as a module; `mode` is the only one in which it acts."""

    def __init__(self, function, bidirectional=False, mode=None):
        super().__init__()
        self.function, self.bidirectional, self.mode = function, bidirectional, mode

    def forward(self, inputs):
        return inputs if self.mode not in (None, self.training) else self.function(inputs)


class Convolution(nn.Module):
    """A convolution over time with `before` pads on the left."""

    def __init__(self, kernel, before):
        super().__init__()
        self.pads, self.convolution = (before, kernel - 1 - before), nn.Conv1d(E, E, kernel)

    def forward(self, inputs):
        return self.convolution(nn.functional.pad(inputs.mT, self.pads)).mT


class Fourier(nn.Module):
    """A long causal convolution by Fourier transforms, whose rounding reaches every position."""

    def __init__(self, kernel):
        super().__init__()
        self.kernel = nn.Parameter(kernel)

    def forward(self, inputs):
        length = inputs.shape[1]
        kernel = torch.fft.rfft(self.kernel[:length], 2 * length, dim=0)
        product = torch.fft.rfft(inputs, 2 * length, dim=1) * kernel
        return torch.fft.irfft(product, 2 * length, dim=1)[:, :length]


class Attention(nn.Module):
    """One head with an additive mask: `mask(T)` is (T, T), True where a query (row) may look."""

    def __init__(self, mask, low=-1e4, turned=None):
        super().__init__()
        self.mask, self.low, self.turned, self.bidirectional = mask, low, turned, turned is not None
        self.query, self.key, self.value = (nn.Linear(E, E) for _ in range(3))

    def attend(self, inputs, mask):
        hidden = self.low * (~mask(inputs.shape[1])).to(inputs)
        scores = self.query(inputs) @ self.key(inputs).mT + hidden
        return scores.softmax(-1) @ self.value(inputs)

    def forward(self, inputs):
        masks = [self.mask, self.turned] if self.bidirectional else [self.mask]
        return torch.cat([self.attend(inputs, mask) for mask in masks], -1)


def until(offset=0):
    """A causal mask that is off by `offset`."""
    return lambda length: torch.ones(length, length).tril(offset).bool()


def from_(offset=0):
    return lambda length: torch.ones(length, length).triu(offset).bool()


def everywhere(length):
    return torch.ones(length, length).bool()


# ----------------------------------------------------------------------------------- honest readers

HONEST = {
    "lstm": lambda: LSTMContextualizer(E, 3, 3, bidirectional=False, dropout=0.3),
    "lstm, both": lambda: LSTMContextualizer(E, 5, 2, bidirectional=True, dropout=0.5),
    "transformer": lambda: TransformerContextualizer(E, 1, 2, bidirectional=False),
    "transformer, both": lambda: TransformerContextualizer(E, 2, 3, bidirectional=True),
    "torch's lstm of one layer": lambda: nn.LSTM(E, 4, bidirectional=True, batch_first=True),
    "torch's gru of one direction": lambda: nn.GRU(E, 4, 3, batch_first=True, dropout=0.2),
    "dilated convolutions": lambda: nn.Sequential(Convolution(2, 1), nn.GELU(), Convolution(4, 3)),
    "attention with a mask of -1e4": lambda: Attention(until()),
    "attention in both directions": lambda: Attention(until(), turned=from_()),
    "fourier": lambda: Fourier(torch.randn(64, E)),
    "identity": nn.Identity,
    "position-wise": lambda: nn.Sequential(
        nn.Linear(E, 9), nn.LayerNorm(9), nn.Dropout(0.5), nn.GELU(), nn.Linear(9, E)
    ),
    "running maximum": lambda: Apply(lambda x: x.cummax(1).values),
    "nothing seen": lambda: Apply(torch.zeros_like),
}


@pytest.mark.parametrize("make", HONEST.values(), ids=HONEST)
def test_an_honest_reader_has_no_leak(make):
    module = seeded(make)
    for direction in DIRECTIONS if getattr(module, "bidirectional", False) else ("forward",):
        leaks = find_leaks(module, E, direction=direction)
        assert leaks.shape == (T, T) and leaks.dtype == torch.bool and not leaks.any()
    assert_no_leaks(module, E)


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 13])
def test_honest_contextualizers_are_honest_at_any_length(length):
    for make in ("lstm, both", "transformer, both"):
        for direction in DIRECTIONS:
            found = dependencies(seeded(HONEST[make]), E, direction=direction, length=length)
            assert torch.equal(found, ~forbidden(direction, length))  # it sees all that it may
        assert_no_leaks(seeded(HONEST[make]), E, length=length)


@pytest.mark.parametrize("length", [8, 64])
@pytest.mark.parametrize("first", [1.0, 1e-4, 0.0])
def test_the_rounding_of_a_fourier_transform_is_no_leak(length, first):
    # A weak first tap: where a position hardly sees itself, rounding is large beside what it sees,
    # and a layer norm enlarges it; it is still rounding.
    kernel = torch.randn(64, E, generator=torch.Generator().manual_seed(0))
    kernel[0] *= first
    fourier = nn.Sequential(Fourier(kernel), nn.LayerNorm(E))
    for module in (fourier[0], fourier)[: 2 if first == 1 else 1]:
        assert not find_leaks(module, E, direction="forward", length=length).any()


@pytest.mark.parametrize("function", [lambda x: x.mul_(2), lambda x: x.relu_()])
def test_an_honest_module_may_change_its_input_in_place(function):
    assert not find_leaks(Apply(function), E, direction="forward").any()
    cheat = Apply(lambda x: function(x) + peek(x))
    assert torch.equal(find_leaks(cheat, E, direction="forward"), NEXT)


def test_dependencies_of_simple_modules_are_exact():
    assert torch.equal(dependencies(nn.Identity(), E, direction="forward"), torch.eye(T).bool())
    assert not dependencies(Apply(torch.zeros_like), E, direction="forward").any()
    near = torch.ones(T, T).bool().tril(1).triu(-1)
    convolution = seeded(lambda: Convolution(3, 1))
    assert torch.equal(dependencies(convolution, E, direction="forward"), near)
    flipped = dependencies(Apply(lambda x: x.flip(1)), E, direction="backward", length=5)
    assert torch.equal(flipped, torch.eye(5).flip(1).bool())


# ------------------------------------------------------------------------------------ cheats


class Stacked(nn.Module):
    """The mistake: a bidirectional LSTM whose second layer reads both directions of the first."""

    bidirectional, num_layers = True, 2

    def __init__(self, width=E, hidden=4):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, 2, bidirectional=True, batch_first=True)
        self.output_size = 2 * hidden

    def forward(self, embeddings, mask):
        lengths, options = mask.sum(1), {"batch_first": True}
        packed = nn.utils.rnn.pack_padded_sequence(
            embeddings, lengths, enforce_sorted=False, **options
        )
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], **options)[0]


class Swapped(LSTMContextualizer):
    """Its halves stand in the wrong order."""

    def forward(self, embeddings, mask, *, all_layers=False):
        return torch.cat(super().forward(embeddings, mask).chunk(2, -1)[::-1], -1)


class Layers(nn.Module):
    """Returns a list of layers; the top one leaks."""

    def __init__(self, bidirectional=False):
        super().__init__()
        self.bidirectional = bidirectional

    def forward(self, inputs, mask):
        assert mask.dtype == torch.bool and mask.shape == inputs.shape[:2] and mask.all()
        return [inputs, inputs + inputs.roll(-1, 1)]


def peek(inputs, by=1):
    """What stands `by` places further on, 0 where nothing does."""
    return nn.functional.pad(inputs, (0, 0, 0, by))[:, by:]


def one_pair(output, seen):
    def cheat(inputs):
        outputs = inputs.clone()
        outputs[:, output] += inputs[:, seen]
        return outputs

    return cheat


NEXT = pairs(*((t, t + 1) for t in range(T - 1)))
ALL = forbidden()
BOTH = {"bidirectional": True, "batch_first": True}
CHEATS = {
    "stacked bidirectional lstm": (Stacked, ALL),
    "torch's own stacked bidirectional lstm": (lambda: nn.LSTM(E, 4, 2, **BOTH), ALL),
    "mask off by one": (lambda: Attention(until(1)), NEXT),
    "unmasked attention": (lambda: Attention(everywhere), ALL),
    "a mask that is not low enough": (lambda: Attention(until(), low=-9.0), ALL),
    "centred convolution": (lambda: Convolution(3, 1), NEXT),
    "layer norm over time": (lambda: Apply(lambda x: F.layer_norm(x.mT, (T,)).mT), ALL),
    "mean over time": (lambda: Apply(lambda x: x + x.mean(1, keepdim=True)), ALL),
    "halves swapped": (lambda: Swapped(E, 4, 1, bidirectional=True), ALL),
    "in training only": (lambda: Apply(lambda x: x + peek(x), mode=True), NEXT),
    "in evaluation only": (lambda: Apply(lambda x: x + peek(x), mode=False), NEXT),
    "detached": (lambda: Apply(lambda x: x + peek(x.detach())), NEXT),
    "rounded": (lambda: Apply(lambda x: x + peek(x.round())), NEXT),
    "without gradients": (lambda: Apply(torch.no_grad()(lambda x: x + peek(x))), NEXT),
    "its sum is constant": (lambda: nn.Sequential(Apply(peek), nn.LayerNorm(E)), NEXT),
    "its sum is constant and its share tiny": (
        lambda: Apply(lambda x: torch.cat([F.layer_norm(x + 1e-11 * peek(x), (E,)), x], -1)), NEXT,
    ),
    "a gradient that is not a number": (
        lambda: Apply(lambda x: x + (peek(x) - peek(x).detach()).abs().sqrt()), ALL,
    ),
    "one pair in the middle": (lambda: Apply(one_pair(3, 5)), pairs((3, 5))),
    "a tiny share": (lambda: Apply(lambda x: x + 1e-8 * peek(x)), NEXT),
    "a list of layers": (Layers, NEXT),
    "nan where the future is large": (
        lambda: Apply(lambda x: x + torch.where(peek(x) > -9, torch.nan, 0.0)), None,
    ),
    "index of the maximum": (lambda: Apply(lambda x: x + x.argmax(1, keepdim=True)), None),
    "sorted over time": (lambda: Apply(lambda x: x.sort(1).values), None),
}  # fmt: skip


@pytest.mark.parametrize("make, expected", CHEATS.values(), ids=CHEATS)
def test_a_cheat_is_found_where_it_looks(make, expected):
    module = seeded(make)
    leaks = find_leaks(module, E, direction="forward")
    assert not (leaks & ~forbidden()).any()
    assert leaks.any() if expected is None else torch.equal(leaks, expected)
    output, seen = leaks.nonzero()[0].tolist()
    where = f"output at position {output}, .*position {output + 1}, .*position {seen} "
    with pytest.raises(AssertionError, match=f"{where}.*{leaks.sum()} of 28"):
        assert_no_leaks(module, E)


BACKWARD_CHEATS = {
    "mask off by one": (lambda: Attention(until(), turned=from_(-1)), NEXT.T),
    "a forward mask for both": (lambda: Attention(until(), turned=until()), forbidden("backward")),
    "unmasked": (lambda: Attention(until(), turned=everywhere), forbidden("backward")),
    "halves that see one place too far": (
        lambda: Apply(lambda x: torch.cat([x, x + x.roll(1, 1)], -1), bidirectional=True), NEXT.T,
    ),
}  # fmt: skip


@pytest.mark.parametrize("make, expected", BACKWARD_CHEATS.values(), ids=BACKWARD_CHEATS)
def test_a_cheat_of_the_backward_half_is_found_and_named(make, expected):
    module = seeded(make)
    assert torch.equal(find_leaks(module, E, direction="backward"), expected)
    assert not find_leaks(module, E, direction="forward").any()
    output, seen = expected.nonzero()[0].tolist()
    where = f"backward output at position {output}, .*position {output - 1}, .*position {seen} "
    with pytest.raises(AssertionError, match=f"{where}.*from its own"):
        assert_no_leaks(module, E)


@each_direction
def test_both_halves_of_a_cheat_see_all(direction):
    for module in (Stacked(), Swapped(E, 4, 1, bidirectional=True)):
        assert torch.equal(find_leaks(module, E, direction=direction), forbidden(direction))


class WithWeights(nn.Module):
    """Returns (states, weights) as attention often does; only the weights are causal."""

    def forward(self, inputs):
        scores = (inputs @ inputs.mT).masked_fill(~until()(inputs.shape[1]), -torch.inf)
        weights = scores.softmax(-1)
        return weights @ inputs + peek(inputs), weights


def test_of_layers_the_top_is_tested_and_of_states_and_weights_the_states():
    layers = find_leaks(Layers(bidirectional=True), E, direction="forward")
    assert torch.equal(layers, NEXT)
    assert torch.equal(find_leaks(WithWeights(), E, direction="forward"), NEXT)


def test_a_pair_far_apart_is_found_if_the_inputs_are_long_enough():
    leaks = find_leaks(Apply(one_pair(3, 37)), E, direction="forward", length=40)
    assert torch.equal(leaks, pairs((3, 37), length=40))


@pytest.mark.parametrize("share", [1.0, 1e-11])
def test_a_leak_that_some_inputs_close_is_open_for_another(share):
    module = Apply(lambda x: x + share * peek(x) * (peek(x)[..., :1] > 0))
    leaks = find_leaks(module, E, direction="forward")
    assert leaks.sum() > 4 and not (leaks & ~NEXT).any()


def test_a_detached_leak_from_another_row_is_found():
    leaks = find_leaks(Apply(lambda x: x + peek(x.roll(1, 0))), E, direction="forward")
    assert torch.equal(leaks, NEXT)


# ------------------------------------------------------------------------------- nothing is touched


class Mixed(nn.Module):
    """Statistics, dropout, frozen weights and gradients, all of which a test could disturb."""

    bidirectional = True

    def __init__(self):
        super().__init__()
        self.inner = LSTMContextualizer(E, 3, 2, bidirectional=True, dropout=0.5)
        self.norm, self.dropout = nn.BatchNorm1d(E), nn.Dropout()
        self.register_buffer("unsaved", torch.ones(3), persistent=False)

    def forward(self, inputs, mask):
        self.unsaved += 1
        return self.dropout(self.inner(self.norm(inputs.mT).mT, mask))


def state(module):
    """All that a test could disturb in a module."""
    return {
        "values": {name: tensor.clone() for name, tensor in module.state_dict().items()},
        "gradients": module.norm.weight.grad.clone(),
        "trained": [p.requires_grad for p in module.parameters()],
        "modes": [part.training for part in module.modules()],
        "buffer": module.unsaved.clone(),
    }


def test_the_tested_module_and_the_random_state_are_left_as_they_were():
    module = seeded(Mixed).train()
    module.norm.eval()
    module.inner.forward_stack.requires_grad_(False)
    module.norm.weight.grad = torch.full_like(module.norm.weight, 7.0)
    before, random = state(module), torch.get_rng_state()
    with pytest.raises(AssertionError):  # the batch norm tells
        assert_no_leaks(module, E)
    dependencies(module, E, direction="backward", length=3, seed=4)
    with pytest.raises(ValueError):
        find_leaks(Apply(lambda x: x[:, 1:]), E, direction="forward")
    assert torch.equal(torch.get_rng_state(), random)
    torch.testing.assert_close(state(module), before, rtol=0, atol=0)


def test_no_other_devices_random_state_is_set(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    find_leaks(nn.Identity(), E, direction="forward")
    assert seeds == []


class NoDoubleHere(nn.Identity):
    """Stands for a module on a device without float64, to be left before the type is changed."""

    here = True

    def cpu(self):
        self.here = False
        return super().cpu()

    def double(self):
        assert not self.here, "this device has no float64"
        return super().double()


def test_a_module_on_a_device_without_float64_is_moved_first():
    assert not find_leaks(NoDoubleHere(), E, direction="forward").any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_modules_of_any_precision_are_tested_alike(dtype):
    honest = seeded(HONEST["transformer, both"]).to(dtype)
    assert not find_leaks(honest, E, direction="backward").any()
    assert torch.equal(find_leaks(seeded(Stacked).to(dtype), E, direction="forward"), ALL)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_the_answer_does_not_depend_on_the_callers_gradient_mode(context):
    tiny = Apply(lambda x: x + 1e-11 * peek(x))  # only a gradient shows it
    with context():
        assert not find_leaks(seeded(HONEST["transformer"]), E, direction="forward").any()
        assert torch.equal(find_leaks(tiny, E, direction="forward"), NEXT)


def test_the_answer_is_the_same_each_time_and_the_inputs_are_the_seeds():
    rare, found = Apply(lambda x: x + (peek(x)[..., :1] > 1.5)), []
    for seed in (0, 0, 1, 2, 3):
        torch.rand(5)
        found.append(find_leaks(rare, E, direction="forward", seed=seed).tolist())
    assert found[0] == found[1] and found.count(found[0]) < 5


# ------------------------------------------------------------------------------------ errors

REFUSED = {
    "direction='Forward'": lambda: find_leaks(nn.Identity(), E, direction="Forward"),
    "direction='both'": lambda: dependencies(nn.Identity(), E, direction="both"),
    "length=1": lambda: assert_no_leaks(nn.Identity(), E, length=1),
    "(4, 7, 6)": lambda: assert_no_leaks(Apply(lambda x: x[:, 1:]), E),
    "(4, 8)": lambda: assert_no_leaks(Apply(lambda x: x.sum(-1)), E),
    "(8, 4, 6)": lambda: assert_no_leaks(Apply(lambda x: x.transpose(0, 1)), E),
    "batch_first=True": lambda: assert_no_leaks(nn.LSTM(E, 4), E),
    "loss=nan": lambda: assert_above_floor(math.nan, Floor(1.0, 0.0, 10)),
    "loss=inf": lambda: assert_above_floor(math.inf, Floor(1.0, 0.0, 10)),
    "floor=nan": lambda: assert_above_floor(1.0, Floor(math.nan, 0.0, 10)),
    "chance=2": lambda: assert_above_floor(1.0, Floor(1.0, 0.0, 10), chance=2),
    "chance=nan": lambda: assert_above_floor(1.0, Floor(1.0, 0.0, 10), chance=math.nan),
}


@pytest.mark.parametrize("named, call", REFUSED.items(), ids=REFUSED)
def test_what_would_show_no_leak_whatever_there_is_is_refused(named, call):
    with pytest.raises(ValueError) as error:
        call()
    assert named in str(error.value)


# ---------------------------------------------------------------------------- the floor: arithmetic


@pytest.mark.parametrize("chance, count, nats", [(1e-9, 100, 2.5), (0.01, 7, 0.4), (0.5, 1, 1.0)])
def test_the_threshold_is_the_logarithm_of_the_chance_over_the_count(chance, count, nats):
    floor = Floor(nats, 0.1, count)
    threshold = nats + math.log(chance) / count
    for loss in (threshold + 1e-9, nats, 1e9, torch.tensor(nats)):
        assert_above_floor(loss, floor, chance=chance)
    with pytest.raises(AssertionError, match=f"{threshold - 1e-9:.4f}.*{nats:.4f}.*{count} words"):
        assert_above_floor(threshold - 1e-9, floor, chance=chance)


# -------------------------------------------------------------------------------- the floor: models

LETTERS = """
[letters]
[letters.latents]
mood = { good = 2, bad = 1 }
[letters.words]
sound.good = { ba = 5, be = 3, bi = 2, bo = 1 }
sound.bad = { bo = 6, bu = 3, ba = 1 }
[letters.steps.first]
sentences = ["{sound|mood} {sound|mood} {sound|mood}"]
[letters.steps.second]
probability = 0.5
sentences = ["{sound|mood} {sound|mood}", "{sound|mood}"]
"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    path = tmp_path_factory.mktemp("letters") / "grammar.toml"
    path.write_text(LETTERS)
    return Grammar.load(path)


def as_batch(grammar, documents):
    """Ids with a start and an end, padded on the right, and their mask."""
    some = [[1, *(3 + grammar.vocabulary.index(word) for word in words), 2] for words in documents]
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in some], batch_first=True)
    return ids, ids != 0


WIDTH = 24
READERS = {
    "lstm": lambda: LSTMContextualizer(WIDTH, WIDTH, 1, bidirectional=True),
    "transformer": lambda: TransformerContextualizer(WIDTH, 1, 2, bidirectional=True, dropout=0.0),
    "stacked": lambda: Stacked(WIDTH, WIDTH),
}


@pytest.fixture(scope="module")
def trained(letters):
    """The held-out documents, and each reader's two losses on them after a short training."""
    documents, held_out = letters.sample(3000, seed=1), letters.sample(400, seed=2)
    ids, mask = as_batch(letters, documents)
    found = {}
    for name, make in READERS.items():
        torch.manual_seed(0)
        size = 3 + len(letters.vocabulary)
        model = LanguageModel(size, nn.Embedding(size, WIDTH), make(), bidirectional=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(150):
            rows = torch.randint(len(ids), (64,))
            optimizer.zero_grad()
            model(ids[rows], mask[rows])["loss"].backward()
            optimizer.step()
        with torch.no_grad():
            output = model.eval()(*as_batch(letters, held_out))
        found[name] = {"model": model} | {d: output[f"{d}_loss"].item() for d in DIRECTIONS}
        assert output["batch_weight"].item() == letters.floor(held_out, objective="forward").count
    return held_out, found


@pytest.mark.slow
@each_direction
def test_a_reader_that_peeks_falls_below_the_floor_and_only_it_is_flagged(
    letters, trained, direction
):
    held_out, found = trained
    floor = letters.floor(held_out, objective=direction)
    for name in ("lstm", "transformer"):
        assert floor.nats - 0.01 < found[name][direction] < floor.nats + 0.15
        assert_above_floor(found[name][direction], floor)
    loss = found["stacked"][direction]
    assert loss < floor.nats / 2
    with pytest.raises(AssertionError, match=f"{loss:.4f} is below the floor of {floor.nats:.4f}"):
        assert_above_floor(loss, floor)


@pytest.mark.slow
@each_direction
@pytest.mark.parametrize("name", READERS)
def test_a_trained_readers_ratio_has_mean_1_if_it_is_honest_and_far_more_if_not(
    letters, trained, direction, name
):
    documents = letters.sample(2000, seed=6)
    ids, mask = as_batch(letters, documents)
    model = trained[1][name]["model"]
    with torch.no_grad():
        half = model.embed(ids, mask)["lm_embeddings"].chunk(2, -1)[DIRECTIONS.index(direction)]
        logs = (half @ model.softmax.weight.T + model.softmax.bias).double().log_softmax(-1)
    scored, targets = (slice(None, -1), slice(1, None))[:: 1 if direction == "forward" else -1]
    labels = ids[:, targets].masked_fill(~(mask[:, 1:] & mask[:, :-1]), IGNORE)
    nats = F.cross_entropy(logs[:, scored].mT, labels, reduction="none", ignore_index=IGNORE)
    author = torch.tensor([letters.log_prob(words) for words in documents], dtype=torch.float64)
    ratios = (-nats.sum(1) - author).exp()
    error = ratios.std() / len(ratios) ** 0.5
    if name == "stacked":
        assert ratios.mean() > 10
    else:
        assert ratios.mean() < 1 + 4 * error and error < 0.1
