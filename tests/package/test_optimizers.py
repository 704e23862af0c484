"""One step over all weights: Muon, and sparse gradients, which leave untouched rows as they are."""

import shutil
from contextlib import nullcontext

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from training_toys import ROWS, VOCAB, assert_same, go, padded, tiny, tiny_language_model, weights

from mlm_lib.optimizers import Optimizers, inner_matrices, sparse_weights
from mlm_lib.training import TrainingConfig

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
EMBEDDING, WEIGHT, BIAS = "embedder.weight", "softmax.weight", "softmax.bias"


def language_model(sparse=True, **options):
    """A language model with a large table at either end."""
    return tiny_language_model(sparse, **{"num_samples": 5} | options)


def run(out=None, model=None, **settings):
    model = language_model() if model is None else model
    return go(out, model=model, collate=settings.pop("collate", padded), **settings)


class Table(nn.Module):
    """The mean of some rows of a table, in all their numbers; a batch says which."""

    def __init__(self, sparse, size=9):
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.Embedding(size, 4, sparse=sparse)
        self.out = nn.Linear(4, 1)

    def forward(self, input_ids, labels):
        return {"loss": self.out(self.rows(input_ids)).square().mean()}


def collate(examples):
    ids = torch.tensor(examples)
    return {"input_ids": ids, "labels": ids}


def pair(data, **settings):
    """The same table, trained with sparse gradients and with dense ones."""
    settings = {"collate": collate, "data": data, "weight_decay": 0.0, "eps": 1e-12} | settings
    return [run(model=Table(sparse), **settings)[0] for sparse in (True, False)]


def same(one, other, **tolerance):
    for (name, tensor), expected in zip(one.state_dict().items(), other.state_dict().values()):
        torch.testing.assert_close(tensor, expected, msg=name, **tolerance)


# ---------------------------------------------------------------- which weights


def test_the_modules_say_which_gradients_will_be_sparse():
    assert sparse_weights(language_model()) == [EMBEDDING, WEIGHT, BIAS]
    assert sparse_weights(language_model(sparse=False)) == sparse_weights(tiny()) == []
    model = language_model()
    model(**padded(ROWS[:4]))["loss"].backward()
    found = [name for name, p in model.named_parameters() if p.grad.is_sparse]
    assert found == sparse_weights(model)


def test_a_matrix_tied_between_two_sparse_modules_is_sparse_and_with_a_dense_one_dense():
    both = language_model()
    both.softmax.weight = both.embedder.weight
    assert sparse_weights(both) == [EMBEDDING, BIAS]
    assert run(model=both, steps=3)[1].step == 3
    one = language_model()
    one.embedder = nn.Embedding(len(VOCAB), 16)
    one.softmax.weight = one.embedder.weight
    assert sparse_weights(one) == [BIAS]
    assert run(model=one, steps=3)[1].step == 3


@pytest.mark.parametrize("said", [True, False])
def test_a_gradient_of_another_kind_than_foretold_is_refused_by_torch(said):
    class Other(Table):
        def forward(self, input_ids, labels):
            vectors = F.embedding(input_ids, self.rows.weight, sparse=not said)
            return {"loss": self.out(vectors).square().mean()}

    with pytest.raises(RuntimeError, match="(?i)sparse"):
        run(model=Other(sparse=said), data=[[1, 2]], collate=collate)


# ---------------------------------------------------------------- a step


def test_where_every_step_touches_every_row_it_is_adam():
    data = [list(range(9)), [*range(8, -1, -1)]]
    sparse, dense = pair(data, steps=12, batch_size=1, learning_rate=0.1, max_grad_norm=0.02)
    same(sparse, dense, rtol=1e-4, atol=1e-5)
    assert not torch.equal(sparse.rows.weight, Table(True).rows.weight)


def test_the_first_step_is_adams_in_the_touched_rows_and_none_elsewhere():
    sparse, dense = pair([[1, 4, 4], [7, 1, 4]], steps=1, learning_rate=0.1, max_grad_norm=0.1)
    same(sparse, dense, rtol=1e-4, atol=1e-5)
    moved = (sparse.rows.weight != Table(True).rows.weight).any(1)
    assert moved.nonzero().flatten().tolist() == [1, 4, 7]


def test_a_row_that_is_not_touched_again_moves_no_further_where_adam_would():
    data = [[1, 2], *[[3, 4]] * 5]
    by_steps = {}
    for sparse in (True, False):
        seen = []

        def remember(model, step, row):
            seen.append(model.rows.weight.detach().clone())

        model, order = Table(sparse), iter(data)
        options = {"collate": lambda examples: collate([next(order)]), "callbacks": [remember]}
        run(model=model, data=data, steps=6, learning_rate=0.1, warmup=0, **options)
        by_steps[sparse] = seen
    assert torch.equal(by_steps[True][0][1:3], by_steps[True][-1][1:3])
    assert not torch.equal(by_steps[False][0][1:3], by_steps[False][-1][1:3])


def test_rows_with_sparse_gradients_are_not_decayed_and_the_other_matrices_are():
    data = [[1, 2]]
    plain, decayed = (
        run(model=Table(True), data=data, collate=collate, steps=1, weight_decay=decay)[0]
        for decay in (0.0, 0.9)
    )
    assert torch.equal(plain.rows.weight, decayed.rows.weight)
    assert not torch.equal(plain.out.weight, decayed.out.weight)


def test_clipping_adds_up_a_rows_parts_before_it_squares_them():
    model = Table(True)
    optimizers = Optimizers(model, TrainingConfig(steps=1), CPU)
    model(**collate([[3, 3, 3, 3]]))["loss"].backward()
    dense = Table(False)
    dense(**collate([[3, 3, 3, 3]]))["loss"].backward()
    expected = torch.nn.utils.clip_grad_norm_(dense.parameters(), 0.05)
    torch.testing.assert_close(optimizers.clip(0.05), expected)
    for mine, theirs in zip(model.parameters(), dense.parameters()):
        torch.testing.assert_close(mine.grad.to_dense(), theirs.grad)


class Largest(TorchDispatchMode):
    """The most numbers that one operation wrote anew; a sum in place returns the table it is in."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if (
            isinstance(result, torch.Tensor)
            and not result.is_sparse
            and "add_" not in str(function)
        ):
            self.elements = max(self.elements, result.numel())
        return result


def test_a_step_does_no_work_of_the_size_of_its_tables():
    size = 50_000
    model = language_model(vocab_size=size)
    optimizers, largest = Optimizers(model, TrainingConfig(steps=1), CPU), Largest()
    for later in (False, True):
        model(**padded(ROWS[:4]))["loss"].backward()
        with largest if later else nullcontext():  # the first step makes the running means
            optimizers.clip(1.0)
            optimizers.step(1e-3)
        optimizers.zero_grad()
    assert 0 < largest.elements < size


# ---------------------------------------------------------------- Muon


class Net(nn.Module):
    """A table of words, two linear layers and a norm; the table is shared with the last layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.decoder = nn.Embedding(9, 4), nn.Linear(4, 9)
        self.inner, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.decoder.weight = self.words.weight

    def forward(self, input_ids, labels):
        logits = self.decoder(self.norm(self.inner(self.words(input_ids))))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten())}


NET_ROWS = [[1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7, 8], [8, 1, 7, 2]]


def stepped(optimizer, decay=0.1, rate=0.01):
    """The net before and after one step, and the gradients between."""
    model = Net()
    config = TrainingConfig(steps=1, optimizer=optimizer, weight_decay=decay)
    optimizers = Optimizers(model, config, CPU)
    model(**collate(NET_ROWS))["loss"].backward()
    before = weights(model)
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    optimizers.step(rate)
    return before, weights(model), gradients


def test_muon_takes_the_matrices_inside_alone_and_no_table_of_words():
    assert inner_matrices(Net()) == ["inner.weight"]
    untied = nn.ModuleDict({"decoder": nn.Linear(4, 9), "dense": nn.Linear(4, 4)})
    assert inner_matrices(untied) == ["dense.weight"]
    _, ours, _ = stepped("muon")
    _, adamw, _ = stepped("adamw")
    changed = {name for name in ours if not torch.equal(ours[name], adamw[name])}
    assert changed == {"inner.weight"}


def test_muon_s_first_step_has_nearly_equal_singular_values_and_adamw_s_size():
    """Jordan et al. 2024: a step along U·Vᵀ of the gradient; Liu et al. 2025: 0.2·√n times it."""
    before, after, gradients = stepped("muon", decay=0.0, rate=0.01)
    step = (before["inner.weight"] - after["inner.weight"]) / (0.01 * 0.2 * 4**0.5)
    left, sizes, right = torch.linalg.svd(gradients["inner.weight"])
    values = torch.diagonal(left.T @ step @ right.T)
    assert 0.6 < values[:3].min() and values[:3].max() < 1.3, "five steps of Newton and Schulz"
    assert sizes[2] < 0.5 * sizes[0], "equal from the start they would prove nothing"


def test_muon_decays_weights_as_adamw_does():
    before, plain, _ = stepped("muon", decay=0.0)
    _, decayed, _ = stepped("muon", decay=0.5)
    due = plain["inner.weight"] - 0.01 * 0.5 * before["inner.weight"]
    torch.testing.assert_close(decayed["inner.weight"], due)


MADE = {
    "dense": (lambda: language_model(False), {}),
    "sparse": (language_model, {}),
    "muon": (Net, {"optimizer": "muon", "data": NET_ROWS, "collate": collate, "batch_size": 2}),
}


@pytest.mark.parametrize("make, settings", MADE.values(), ids=MADE)
def test_a_resumed_run_goes_on_to_the_bit_and_not_with_another_optimizer(tmp_path, make, settings):
    settings = {"steps": 8, "schedule": "cosine", "warmup": 2, "optimizer": "adamw"} | settings
    whole, history = run(model=make(), **settings)
    run(tmp_path, model=make(), checkpoint_every=5, **settings)
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000008")
    other = "muon" if settings["optimizer"] == "adamw" else "adamw"
    with pytest.raises(ValueError, match=f"optimizer='{settings['optimizer']}'.*'{other}'"):
        run(tmp_path, model=make(), resume=True, **settings | {"optimizer": other})
    resumed, after = run(tmp_path, model=make(), resume=True, **settings)
    assert_same(resumed, whole)
    assert (after.step, after.tokens) == (history.step, history.tokens)


def test_muon_and_sparse_gradients_stand_side_by_side():
    model = Table(True)
    optimizers = Optimizers(model, TrainingConfig(steps=1, optimizer="muon"), CPU)
    assert optimizers.state_dict().keys() >= {"sparse", "muon"}
    model(**collate([[3, 4]]))["loss"].backward()
    before = weights(model)
    optimizers.step(0.01)
    assert all(not torch.equal(before[name], weight) for name, weight in weights(model).items())


def test_muon_s_rate_follows_the_schedule_up_to_its_own():
    options = {"learning_rate": 1e-3, "weight_decay": 0.0}
    moved = []
    for own in (None, 4e-3):
        model = Net()
        config = TrainingConfig(steps=1, optimizer="muon", inner_learning_rate=own, **options)
        optimizers, before = Optimizers(model, config, CPU), weights(model)
        model(**collate(NET_ROWS))["loss"].backward()
        optimizers.step(5e-4)
        moved.append({name: weight - before[name] for name, weight in weights(model).items()})
    for name, step in moved[0].items():
        factor = 4 if name == "inner.weight" else 1
        torch.testing.assert_close(moved[1][name], factor * step, rtol=1e-2, atol=1e-7)
