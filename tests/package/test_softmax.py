"""The full softmax and the sampled one: each number as defined, and what the sampled one learns."""

import bisect
import copy
import decimal
import math
import pickle

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from toys import drawn

from mlm_lib import softmax
from mlm_lib.softmax import (
    SampledSoftmaxLoss,
    SoftmaxLoss,
    frequency_order,
    log_expected_count,
    log_uniform,
    log_uniform_sample,
    sparse_rows,
)

pytestmark = pytest.mark.usefixtures("one_thread")
V, D, N, S = 13, 3, 7, 4
ORDER = torch.tensor([3, 0, 12, 7, 1, 2, 11, 4, 10, 5, 9, 6, 8])
MAKERS = {
    "full": SoftmaxLoss,
    "sampled": lambda *sizes: SampledSoftmaxLoss(*sizes, S),
    "sparse": lambda *sizes: SampledSoftmaxLoss(*sizes, S, sparse=True),
    "ordered": lambda *sizes: SampledSoftmaxLoss(*sizes, S, frequency_order=ORDER),
}
SAMPLED = [name for name in MAKERS if name != "full"]
every_loss = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
every_sampled_loss = pytest.mark.parametrize(
    "make", [MAKERS[name] for name in SAMPLED], ids=SAMPLED
)
exact = {"rtol": 1e-9, "atol": 1e-9}
bitwise = {"rtol": 0, "atol": 0}


def problem(vocab_size=V, width=D, rows=N, seed=0):
    """Random embeddings in float64, and targets of which one comes twice."""
    g = torch.Generator().manual_seed(seed)
    targets = torch.randint(vocab_size, (rows,), generator=g)
    targets[1:2] = targets[:1]
    return torch.randn(rows, width, generator=g, dtype=torch.float64), targets


def results(loss, embeddings, targets, seed=0):
    """The loss, and its gradients by embeddings, weight and bias, dense."""
    loss.zero_grad()
    embeddings = embeddings.clone().requires_grad_()
    torch.manual_seed(seed)
    value = loss(embeddings, targets)
    value.backward()
    tables = [table.grad.to_dense().clone() for table in (loss.weight, loss.bias)]
    return value.detach(), embeddings.grad, *tables


def slow_sample(vocab_size, num_samples):
    """One uniform number after the other, looked up in the cumulative law: (ranks, draws)."""
    cumulative = [math.log(rank + 1) / math.log(vocab_size + 1) for rank in range(vocab_size + 1)]
    ranks, tries = {}, 0
    while len(ranks) < num_samples:
        number = torch.rand((), dtype=torch.float64).item()
        ranks[bisect.bisect_right(cumulative, number) - 1] = None
        tries += 1
    return list(ranks), tries


def slow_shift(rank, vocab_size, tries):
    probability = math.log((rank + 2) / (rank + 1)) / math.log(vocab_size + 1)
    return math.log(1 - (1 - probability) ** tries)


def slow(loss, embeddings, targets, seed=None):
    """What `results` returns, row by row and word by word; a seed means the sampled loss."""
    size = len(loss.bias)
    order = list(range(size)) if getattr(loss, "order", None) is None else loss.order.tolist()
    shift, pool = [0.0] * size, range(size)
    if seed is not None:
        torch.manual_seed(seed)
        ranks, tries = slow_sample(size, loss.num_samples)
        pool = [order[rank] for rank in ranks]
        shift = [slow_shift(order.index(word), size, tries) for word in range(size)]
    weight, bias = loss.weight.tolist(), loss.bias.tolist()
    by_weight, by_bias = [[0.0] * len(row) for row in weight], [0.0] * size
    total, by_embedding = 0.0, []
    for vector, target in zip(embeddings.tolist(), targets.tolist()):
        words = [target, *(word for word in pool if word != target)]
        scores = [
            sum(a * b for a, b in zip(vector, weight[word])) + bias[word] - shift[word]
            for word in words
        ]
        top = max(scores)
        mass = sum(math.exp(score - top) for score in scores)
        total += math.log(mass) + top - scores[0]
        by_embedding.append([0.0] * len(vector))
        for word, score in zip(words, scores):
            error = math.exp(score - top) / mass - (word == target)
            by_bias[word] += error
            for k, number in enumerate(vector):
                by_weight[word][k] += error * number
                by_embedding[-1][k] += error * weight[word][k]
    return tuple(
        torch.tensor(x, dtype=torch.float64) for x in (total, by_embedding, by_weight, by_bias)
    )


class Largest(TorchDispatchMode):
    """The size of the largest dense tensor that any operation inside makes, there or back."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
        dense = [x.numel() for x in tensors if x.layout == torch.strided]
        self.elements = max([self.elements, *dense])
        return made


# --------------------------------------------------------------------------------- the full softmax


def test_two_rows_by_hand():
    # Scores (0, ln 2) and (0, 0): the probabilities of the targets are 2/3 and 1/2, and the sum is
    # not divided by 2.
    loss = SoftmaxLoss(2, 1)
    loss.weight.data, loss.bias.data = torch.tensor([[0.0], [math.log(2)]]), torch.zeros(2)
    found = loss(torch.tensor([[1.0], [0.0]]), torch.tensor([1, 0])).item()
    assert found == pytest.approx(math.log(3 / 2) + math.log(2))


@pytest.mark.parametrize(
    "size, width, rows, seed", [(V, D, N, 0), (1, 2, 3, 1), (2, 1, 1, 2), (30, 5, 12, 3)]
)
def test_the_full_loss_is_its_definition(size, width, rows, seed):
    loss, given = drawn(SoftmaxLoss(size, width)), problem(size, width, rows, seed)
    assert_close(results(loss, *given), slow(loss, *given), **exact)


def test_a_new_loss_has_no_bias_and_scores_of_unit_size():
    torch.manual_seed(0)
    loss = SoftmaxLoss(2000, 50)
    assert not loss.bias.any()
    assert F.linear(torch.randn(20, 50), loss.weight).std().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("at_once", [1, 40, 10**6])
@every_loss
def test_without_gradients_the_logits_are_computed_in_pieces(make, at_once, monkeypatch):
    embeddings, targets = problem(rows=20)
    loss = drawn(make(V, D)).eval()
    with Largest() as together:
        whole = loss(embeddings, targets)
    monkeypatch.setattr(softmax, "LOGITS_AT_ONCE", at_once)
    with torch.no_grad(), Largest() as apart:
        assert_close(loss(embeddings, targets), whole.detach(), **exact)
        assert loss(embeddings[:0], targets[:0]).item() == 0
    # Weight and embeddings stand there anyway; otherwise no more than asked for, or one row.
    assert apart.elements <= max(V * D, 20 * D, min(at_once, 20 * V))
    assert together.elements == 20 * V


# ------------------------------------------------------------------------------------ both


@every_loss
@pytest.mark.parametrize("training", [True, False])
def test_an_empty_batch_has_loss_0_and_gradients_of_0(make, training):
    loss = make(V, D).train(training)
    found = results(loss, torch.empty(0, D), torch.empty(0, dtype=torch.long))
    assert found[0].item() == 0 and found[1].shape == (0, D)
    assert not found[2].any() and not found[3].any()
    assert found[2].shape == (V, D) and found[3].shape == (V,)


@every_loss
@pytest.mark.parametrize("training", [True, False])
def test_targets_may_be_int32(make, training):
    loss, (embeddings, targets) = drawn(make(V, D)).train(training), problem()
    narrow = results(loss, embeddings, targets.int())
    assert_close(narrow, results(loss, embeddings, targets), **bitwise)


@every_loss
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_a_float32_loss_near_the_wide_one(make, training, autocast, dtype):
    loss, (embeddings, targets) = drawn(make(V, D)).train(training), problem(rows=50)
    loss, embeddings = loss.to(torch.float32 if autocast else dtype), embeddings.to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        found = results(loss, embeddings, targets)
    wanted = results(loss.double(), embeddings.double(), targets)
    assert found[0].dtype == torch.float32
    assert_close(found[0].double(), wanted[0], rtol=0.01, atol=0)
    for mine, reference in zip(found[1:], wanted[1:]):
        assert_close(mine.double(), reference, rtol=0.02, atol=0.3)


@every_loss
@pytest.mark.parametrize("training", [True, False])
def test_huge_scores_give_finite_numbers(make, training):
    loss, (embeddings, targets) = drawn(make(V, D), scale=1e15).float().train(training), problem()
    found = results(loss, 1e15 * embeddings.float(), targets)
    assert all(one.isfinite().all() for one in found)


# ------------------------------------------------------------------------------------ the sampler


@settings(deadline=None, max_examples=60)
@given(size=st.integers(2, 120), share=st.floats(0, 1), seed=st.integers(0, 2**63 - 1))
def test_drawing_in_blocks_is_drawing_one_by_one(size, share, seed):
    num_samples = max(1, round(share * (size - 1)))
    torch.manual_seed(seed)
    ranks, tries = log_uniform_sample(size, num_samples)
    torch.manual_seed(seed)
    assert (ranks.tolist(), tries) == slow_sample(size, num_samples)
    assert ranks.dtype == torch.long and len(set(ranks.tolist())) == num_samples <= tries
    assert 0 <= ranks.min() <= ranks.max() < size


@pytest.mark.parametrize("size", [2, 7, 49, 1000, 65_535, 10_000_000])
def test_the_least_and_the_largest_uniform_number_draw_the_first_and_the_last_rank(
    size, monkeypatch
):
    for number, rank in ((0.0, 0), (1 - 2**-53, size - 1)):
        monkeypatch.setattr(
            torch, "rand", lambda *shape, dtype, n=number, **_: torch.full(shape, n, dtype=dtype)
        )
        ranks, tries = log_uniform_sample(size, 1)
        assert (ranks.tolist(), tries) == ([rank], 1)


@pytest.mark.parametrize("size", [1, 2, 13, 793_471])
def test_the_probabilities_are_log_uniform_and_sum_to_1(size):
    probabilities = log_uniform(torch.arange(size), size)
    assert probabilities.dtype == torch.float64
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-12)
    for rank in {0, size // 2, size - 1}:
        assert probabilities[rank].item() == pytest.approx(
            math.log((rank + 2) / (rank + 1)) / math.log(size + 1), rel=1e-9
        )


@pytest.mark.parametrize("size, tries", [(2, 1), (13, 40), (1000, 5000), (793_471, 9000)])
def test_the_expected_count_is_right_to_the_last_digits(size, tries):
    ranks = [0, 1, size // 2, size - 1]
    with decimal.localcontext(prec=60):
        base = decimal.Decimal(size + 1).ln()
        chances = [(decimal.Decimal(rank + 2) / (rank + 1)).ln() / base for rank in ranks]
        expected = [float((1 - (1 - chance) ** tries).ln()) for chance in chances]
    found = log_expected_count(torch.tensor(ranks), size, tries).tolist()
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_words_are_drawn_on_the_cpu_whatever_the_default_device():
    # The device without data stands for an accelerator: a seed must mean the same everywhere.
    torch.manual_seed(0)
    expected = log_uniform_sample(50, 5)
    torch.manual_seed(0)
    with torch.device("meta"):
        ranks, tries = log_uniform_sample(50, 5)
    assert (ranks.tolist(), tries) == (expected[0].tolist(), expected[1])


# ------------------------------------------------------------------------------ the sampled softmax


@settings(deadline=None, max_examples=80)
@given(
    size=st.integers(2, 40), share=st.floats(0, 1), rows=st.integers(1, 9),
    seed=st.integers(0, 2**31), data=st.data(),
)  # fmt: skip
def test_the_sampled_loss_is_its_definition_at_every_size(size, share, rows, seed, data):
    order = data.draw(st.none() | st.permutations(range(size)))
    num_samples = max(1, round(share * (size - 1)))
    options = {"sparse": seed % 2 == 0, "frequency_order": order}
    loss = drawn(SampledSoftmaxLoss(size, D, num_samples, **options), seed)
    given = problem(size, rows=rows, seed=seed)
    assert_close(results(loss, *given, seed), slow(loss, *given, seed), **exact)


def test_a_drawn_target_is_no_rival_in_its_own_row_and_one_in_the_others():
    loss = drawn(SampledSoftmaxLoss(2, 1, 1))
    embeddings, targets = problem(2, 1, 2)[0], torch.tensor([0, 1])
    for seed in range(8):
        torch.manual_seed(seed)
        rival = log_uniform_sample(2, 1)[0].item()
        by_embedding = results(loss, embeddings, targets, seed)[1]
        assert by_embedding[rival].item() == 0  # alone with its target, the row knows the answer
        assert by_embedding[1 - rival].item() != 0


@every_sampled_loss
def test_in_evaluation_it_is_the_full_loss(make):
    full, (embeddings, targets) = drawn(SoftmaxLoss(V, D)), problem()
    loss = make(V, D).double().eval()
    loss.load_state_dict(full.state_dict())
    assert_close(results(loss, embeddings, targets), results(full, embeddings, targets), **bitwise)


@pytest.mark.parametrize("size", [200, 3000])
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_with_all_words_but_one_it_is_within_3_percent_of_the_full_loss(size, scale):
    loss = drawn(SampledSoftmaxLoss(size, 6, size - 1), scale=scale)
    loss.bias.data = log_uniform(torch.arange(size), size).log()
    embeddings, anywhere = problem(size, 6, 200)
    torch.manual_seed(0)
    chances = F.linear(embeddings, loss.weight, loss.bias).softmax(-1)
    likely = chances.multinomial(1)[:, 0]  # as a trained model has them
    with torch.no_grad():
        for targets in (likely, anywhere):
            full = loss.eval()(embeddings, targets).item()
            assert loss.train()(embeddings, targets).item() == pytest.approx(full, rel=0.03)


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_with_fewer_samples_it_lies_below_the_full_loss_and_rises_with_them(scale):
    size = 300
    embeddings, _ = problem(size, 6, 60)
    torch.manual_seed(0)
    targets = log_uniform(torch.arange(size), size).multinomial(60, replacement=True)
    means = []
    for num_samples in (2, 8, 32, 128):
        loss = drawn(SampledSoftmaxLoss(size, 6, num_samples), scale=scale)
        with torch.no_grad():
            means.append(sum(loss(embeddings, targets).item() for _ in range(200)) / 200)
            full = loss.eval()(embeddings, targets).item()
    assert means == sorted(means) and means[-1] < full
    assert means[0] < 0.7 * full


@every_loss
def test_random_numbers_are_used_in_sampled_training_alone(make):
    loss, (embeddings, targets) = drawn(make(V, D)), problem()
    before = torch.get_rng_state()
    loss.eval()(embeddings, targets)
    assert torch.equal(torch.get_rng_state(), before)
    loss.train()(embeddings, targets)
    assert torch.equal(torch.get_rng_state(), before) == (type(loss) is SoftmaxLoss)


@pytest.mark.parametrize("order", [None, "reversed"])
def test_a_training_step_does_no_work_of_the_vocabularys_size(order):
    size = 200_000
    order = None if order is None else torch.arange(size).flip(0)
    loss = SampledSoftmaxLoss(size, 2, 64, sparse=True, frequency_order=order)
    embeddings, targets = problem(size, 2, 32)
    with Largest() as sparse:
        loss(embeddings.float().requires_grad_(), targets).backward()
    assert 32 * 64 <= sparse.elements < size
    loss.sparse = False
    loss.zero_grad()
    with Largest() as dense:  # so that the measure is known to see such work
        loss(embeddings.float(), targets).backward()
    assert dense.elements >= size


# --------------------------------------------------------------------------------- sparse gradients


def test_sparse_gradients_are_the_dense_ones_and_hold_the_drawn_rows_only():
    dense, sparse = (drawn(SampledSoftmaxLoss(100, D, S, sparse=kind)) for kind in (False, True))
    embeddings, targets = problem(100)
    targets[:3] = 11  # a repeated target adds up
    assert_close(results(sparse, embeddings, targets), results(dense, embeddings, targets), **exact)
    for table in (sparse.weight, sparse.bias):
        assert table.grad.is_sparse and table.grad.shape == table.shape
        assert table.grad._nnz() == N + S
    assert not dense.weight.grad.is_sparse and not dense.bias.grad.is_sparse


@pytest.mark.parametrize("shape", [(9,), (9, 2), (9, 2, 3)])
def test_sparse_rows_are_rows_with_a_sparse_gradient(shape):
    table = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([4, 0, 4, 8])
    signal = torch.randn(4, *shape[1:], dtype=torch.float64)
    rows = sparse_rows(table, ids)
    assert torch.equal(rows, table[ids])
    (found,) = torch.autograd.grad(rows, table, signal)
    assert found.is_sparse and found._nnz() == 4
    assert_close(found.to_dense(), torch.autograd.grad(table[ids], table, signal)[0], **exact)


def test_sparse_rows_refuses_an_id_that_is_no_row():
    # table[-1] is the last row, but −1 in a sparse gradient is written outside the table's memory.
    table = torch.zeros(5, 2, requires_grad=True)
    for wrong in (-1, 5):
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            sparse_rows(table, torch.tensor([0, wrong]))


# --------------------------------------------------------------------------- the order of frequency


@pytest.mark.parametrize("sparse", [False, True])
def test_an_order_is_a_relabelling_of_the_ids(sparse):
    with_order = drawn(SampledSoftmaxLoss(V, D, S, sparse=sparse, frequency_order=ORDER))
    without = SampledSoftmaxLoss(V, D, S, sparse=sparse).double()
    without.load_state_dict({name: table[ORDER] for name, table in with_order.state_dict().items()})
    embeddings, ranks = problem()
    for seed in range(5):
        mine = results(with_order, embeddings, ORDER[ranks], seed)
        theirs = results(without, embeddings, ranks, seed)
        assert_close(mine[:2], theirs[:2], **bitwise)
        assert_close([mine[2][ORDER], mine[3][ORDER]], list(theirs[2:]), **bitwise)


def test_the_most_frequent_comes_first_and_the_lower_id_among_equals():
    assert frequency_order([2, 5, 2, 0, 9, 5, 0]).tolist() == [4, 1, 5, 0, 2, 3, 6]
    assert frequency_order(torch.ones(300)).tolist() == list(range(300))
    assert frequency_order(torch.tensor([0.5, 1.5])).tolist() == [1, 0]


@every_sampled_loss
def test_the_state_is_that_of_the_full_softmax(make):
    sampled, full = make(V, D), SoftmaxLoss(V, D)
    assert list(sampled.state_dict()) == list(full.state_dict()) == ["weight", "bias"]
    full.load_state_dict(sampled.state_dict(), strict=True)
    make(V, D).load_state_dict(full.state_dict(), strict=True)


@every_loss
@pytest.mark.parametrize("move", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_copies_and_pickles_are_the_same_loss(make, move):
    loss, (embeddings, targets) = drawn(make(V, D)), problem()
    expected = results(loss, embeddings, targets)
    loss.zero_grad()
    assert_close(results(move(loss), embeddings, targets), expected, **bitwise)


# -------------------------------------------------------------------- does the sampler fit a corpus


def test_the_surprise_by_hand():
    # For V = 3 the chances are ln 2, ln 3/2 and ln 4/3, each over ln 4.
    expected = -(
        math.log(0.5) / 2
        + math.log(math.log(1.5) / math.log(4)) / 4
        + math.log(math.log(4 / 3) / math.log(4)) / 4
    )
    assert expected == pytest.approx(1.0470, abs=1e-4)
    assert SampledSoftmaxLoss(3, 2, 1).check_order([20, 10, 10]) == pytest.approx(expected)
    in_order = SampledSoftmaxLoss(3, 2, 1, frequency_order=[2, 0, 1])
    assert in_order.check_order(torch.tensor([0.5, 0.5, 1.0])) == pytest.approx(expected)


@pytest.mark.parametrize("size", [3, 10_000])
def test_sorted_zipfian_counts_pass_and_others_are_told_the_remedy(size):
    counts = (1e6 / (torch.arange(size) + 1)).long() + 1
    assert SampledSoftmaxLoss(size, 2, 1).check_order(counts) < math.log(size)
    shuffled = counts[torch.randperm(size, generator=torch.Generator().manual_seed(0))]
    for wrong in (counts.flip(0), shuffled) if size > 10 else (counts.flip(0),):
        with pytest.raises(ValueError, match=r"ln V = .*frequency_order=frequency_order\(counts\)"):
            SampledSoftmaxLoss(size, 2, 1).check_order(wrong)
        remedied = SampledSoftmaxLoss(size, 2, 1, frequency_order=frequency_order(wrong))
        expected = SampledSoftmaxLoss(size, 2, 1).check_order(counts)
        assert remedied.check_order(wrong) == pytest.approx(expected)


def test_words_that_are_all_as_frequent_are_not_called_unsorted():
    # They are in order as they stand, and no other order fits them better.
    with pytest.raises(ValueError) as error:
        SampledSoftmaxLoss(50, 2, 5).check_order(torch.ones(50))
    assert "not sorted" not in str(error.value)


# ------------------------------------------------------------------------------------ errors


@every_loss
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("wrong", [V, -1, -100])
def test_a_target_outside_the_vocabulary_is_refused_by_value(make, training, wrong):
    with pytest.raises(ValueError, match=f"targets holds {wrong}; a number from 0 to {V - 1}"):
        make(V, D).train(training)(torch.zeros(3, D), torch.tensor([0, wrong, V - 1]))


@every_loss
@pytest.mark.parametrize(
    "embeddings, targets",
    [((4, D), (3,)), ((4, D + 1), (4,)), ((2, 2, D), (2, 2)), ((4, D), (4, 1)), ((1, D), (4,))],
)
def test_shapes_that_do_not_belong_together_are_refused(make, embeddings, targets):
    with pytest.raises(ValueError, match="(embeddings|targets)="):
        make(V, D)(torch.zeros(embeddings), torch.zeros(targets, dtype=torch.long))


def sampler(**options):
    return SampledSoftmaxLoss(V, D, S, **options)


def counted(*counts):
    return SampledSoftmaxLoss(3, 2, 1).check_order(list(counts))


REFUSED = {
    "no samples": (lambda: SampledSoftmaxLoss(V, D, 0), "num_samples=0.*1 to 12"),
    "as many samples as words": (lambda: SampledSoftmaxLoss(V, D, V), "num_samples=13"),
    "samples that never come": (lambda: log_uniform_sample(7, 8), "num_samples=8.*1 to 7"),
    "an order too short": (lambda: sampler(frequency_order=ORDER[:12]), "frequency_order="),
    "an order with axes": (lambda: sampler(frequency_order=ORDER[None]), "frequency_order="),
    "a word twice": (lambda: sampler(frequency_order=[*range(12), 5]), "each id from 0 to 12 once"),
    "a word too many": (lambda: sampler(frequency_order=[*range(12), 57]), "each id from 0 to 12"),
    "counts of other words": (lambda: counted(1, 2), "counts="),
    "one count for all": (lambda: counted(1), "counts="),
    "a count below 0": (lambda: counted(4, 3, -2), "counts="),
    "a count of NaN": (lambda: counted(4, math.nan, 1), "counts="),
    "an endless count": (lambda: counted(4, math.inf, 1), "counts="),
    "counts of 0": (lambda: frequency_order([0, 0, 0]), "counts="),
    "counts with axes": (lambda: frequency_order([[3, 2, 1]]), "counts="),
}


@pytest.mark.parametrize("call, named", REFUSED.values(), ids=REFUSED)
def test_what_would_be_silently_wrong_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()


# ----------------------------------------------------------------------------------- what it learns


def learn(make, steps=1000, batch=2000):
    """Trains on 8 known distributions over 100 words; the nats above their entropy that remain."""
    torch.manual_seed(0)
    zipf = log_uniform(torch.arange(100), 100).log().float()
    truth = (zipf + torch.randn(8, 100)).softmax(-1)  # Zipfian, each its own way
    contexts, loss = nn.Embedding(8, 8), make(100, 8)
    optimizer = torch.optim.Adam([*contexts.parameters(), *loss.parameters()], lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)
    which = torch.arange(8).repeat_interleave(batch // 8)
    for _ in range(steps):
        words = truth.multinomial(batch // 8, replacement=True).flatten()
        optimizer.zero_grad()
        (loss(contexts(which), words) / batch).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        predicted = F.linear(contexts.weight, loss.weight, loss.bias).log_softmax(-1)
    return (truth * (truth.log() - predicted)).sum(-1).mean().item()


# The full softmax ends 0.001 above the entropy; what the samples add shrinks with the steps, and is
# not a bias.
@pytest.mark.slow
@pytest.mark.parametrize("num_samples, bound", [(10, 0.05), (20, 0.03)])
def test_a_model_trained_on_samples_learns_the_distributions(num_samples, bound):
    assert 0 <= learn(lambda *sizes: SampledSoftmaxLoss(*sizes, num_samples)) < bound


@pytest.mark.slow
def test_a_model_trained_without_the_correction_does_not(monkeypatch):
    def none(ranks, *_):
        return torch.zeros(len(ranks), dtype=torch.float64)

    monkeypatch.setattr(softmax, "log_expected_count", none)
    assert learn(lambda *sizes: SampledSoftmaxLoss(*sizes, 20)) > 0.3
