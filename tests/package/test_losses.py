"""Masked cross-entropy: the mean over the labelled positions, and nothing from any other."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM

from mlm_lib import losses
from mlm_lib.engine.peak_memory import PeakMemory
from mlm_lib.labels import IGNORE
from mlm_lib.losses import masked_cross_entropy, summed_cross_entropy, weighted_cross_entropy


def problem(shape=(3, 7), vocab_size=11, dtype=torch.float32, seed=0):
    """Random logits, and labels at about half of the positions."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, vocab_size, generator=g, dtype=torch.float64).to(dtype)
    labels = torch.randint(vocab_size, shape, generator=g)
    return logits, labels.masked_fill(torch.rand(shape, generator=g) < 0.5, IGNORE)


# ------------------------------------------------------------------------------------ values


def test_two_words_by_hand():
    # Odds of 1 : 3 and of 1 : 1 : 2 are the probabilities 3/4 and 1/4 of the two labels; the third
    # row carries none.
    logits = torch.tensor([[[0, math.log(3), -math.inf], [0, 0, math.log(2)], [5, 6, 7]]])
    loss = masked_cross_entropy(logits, torch.tensor([[1, 0, IGNORE]]))
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_a_model_that_knows_nothing_scores_ln_v():
    loss = masked_cross_entropy(torch.zeros(4, 1000), torch.tensor([0, 999, 5, IGNORE]))
    assert loss.item() == pytest.approx(math.log(1000))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_it_is_the_loss_of_bert_for_masked_lm(dtype, tolerance):
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 32}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(**sizes, initializer_range=0.5)).to(dtype).eval()
    ids = torch.randint(60, (4, 12))
    labels = ids.masked_fill(torch.rand(4, 12) < 0.8, IGNORE)
    output = model(ids, labels=labels)
    loss = masked_cross_entropy(output.logits, labels)
    assert loss.dtype == dtype
    torch.testing.assert_close(loss, output.loss, rtol=tolerance, atol=tolerance)
    bias = model.cls.predictions.bias
    theirs = torch.autograd.grad(output.loss, bias, retain_graph=True)
    ours = torch.autograd.grad(loss, bias)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=tolerance)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 5), length=st.integers(1, 9), vocab_size=st.integers(1, 20),
    seed=st.integers(0, 2**31), scale=st.floats(0, 100),
)  # fmt: skip
def test_it_is_the_mean_of_the_labelled_positions_and_blind_to_the_others(
    rows, length, vocab_size, seed, scale
):
    logits, labels = problem((rows, length), vocab_size, torch.float64, seed)
    logits = logits * scale
    nll = [
        -row.log_softmax(0)[label]
        for row, label in zip(logits.flatten(0, 1), labels.flatten())
        if label != IGNORE
    ]
    expected = torch.stack(nll).mean() if nll else torch.tensor(0.0, dtype=torch.float64)
    loss = masked_cross_entropy(logits, labels)
    torch.testing.assert_close(loss, expected)
    elsewhere = torch.where(labels[..., None] == IGNORE, torch.full_like(logits, math.nan), logits)
    assert masked_cross_entropy(elsewhere, labels) == loss
    flat = masked_cross_entropy(logits.flatten(0, 1), labels.flatten().int())
    assert flat == loss  # (N, V) as well as (B, T, V)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_widened_before_the_loss(dtype):
    logits, labels = problem((40, 50), 300, dtype)
    loss = masked_cross_entropy(logits, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, masked_cross_entropy(logits.float(), labels), rtol=0, atol=0)


def test_huge_logits_give_a_finite_loss_and_gradient():
    logits = torch.tensor([[3e38, -3e38, 0.0], [6e4, 6e4, -6e4]], requires_grad=True)
    loss = masked_cross_entropy(logits, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(math.log(2) / 2)
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


# ------------------------------------------------------------------------------------ gradients


def test_gradients_are_right_and_0_at_a_position_without_a_label():
    logits, labels = problem(dtype=torch.float64)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: masked_cross_entropy(x, labels), logits)
    masked_cross_entropy(logits, labels).backward()
    assert torch.equal((logits.grad != 0).all(-1), labels != IGNORE)


@pytest.mark.parametrize("shape", [(2, 3), (6,), (0, 3)])
@pytest.mark.parametrize("fill", [0.5, math.inf, math.nan])
def test_with_no_label_at_all_the_loss_is_0_and_so_is_its_gradient(shape, fill):
    logits = torch.full((*shape, 4), fill, requires_grad=True)
    loss = masked_cross_entropy(logits, torch.full(shape, IGNORE))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "logits, labels",
    [((2, 3, 5), (2, 4)), ((6, 5), (2, 3)), ((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (1, 3))],
)
def test_shapes_that_do_not_belong_together_are_refused(logits, labels):
    with pytest.raises(ValueError, match="the shape of the logits"):
        masked_cross_entropy(torch.zeros(logits), torch.zeros(labels, dtype=torch.long))


@pytest.mark.parametrize("wrong", [5, 1000, -1, -101])
def test_a_label_that_the_logits_cannot_name_is_refused_by_value(wrong):
    with pytest.raises(ValueError, match=f"labels holds {wrong}"):
        masked_cross_entropy(torch.zeros(1, 4, 5), torch.tensor([[0, wrong, IGNORE, 4]]))


def test_labels_that_are_no_ids_are_refused():
    with pytest.raises(ValueError, match="labels=a torch.float32 tensor"):
        masked_cross_entropy(torch.zeros(2, 5), torch.tensor([1.5, 0.0]))


# ------------------------------------------------------------------------------------ weights


def test_a_weighted_mean_by_hand_and_with_equal_weights_the_plain_one():
    logits, labels = problem(dtype=torch.float64)
    picked, targets = logits[labels != IGNORE], labels[labels != IGNORE]
    each = -picked.log_softmax(-1)[torch.arange(len(targets)), targets]
    weights = torch.rand(len(targets), dtype=torch.float64) + 0.1
    found = weighted_cross_entropy(picked, targets, weights)
    assert found.item() == pytest.approx(((each * weights).sum() / weights.sum()).item())
    plain = masked_cross_entropy(logits, labels)
    assert weighted_cross_entropy(picked, targets, torch.full_like(each, 7.0)).allclose(plain)
    assert weighted_cross_entropy(picked.bfloat16(), targets, weights).dtype == torch.float64


@pytest.mark.parametrize("size", [0, 3])
def test_where_nothing_weighs_the_loss_is_0_with_a_gradient_path(size):
    logits = torch.randn(size, 5, requires_grad=True)
    loss = weighted_cross_entropy(logits, torch.zeros(size, dtype=torch.long), torch.zeros(size))
    loss.backward()
    assert loss == 0 and not logits.grad.any()


@pytest.mark.parametrize(
    "targets, weights, message",
    [
        ([0, 5], [1.0, 1.0], "targets holds 5"),
        ([0], [1.0], "targets=.*the shape of a column of the logits"),
        ([0, 1], [1.0] * 3, "weights=.*the shape of targets"),
        ([0, 1], [1.0, -1.0], "weights="),
        ([0, 1], [1.0, math.inf], "weights="),
        ([0, 1], [1.0, math.nan], "weights="),
    ],
)
def test_weights_that_do_not_belong_are_refused(targets, weights, message):
    with pytest.raises(ValueError, match=message):
        weighted_cross_entropy(torch.zeros(2, 5), torch.tensor(targets), torch.tensor(weights))


# ------------------------------------------------------------------------------------ in parts

by_parts = losses._CrossEntropyInParts.apply


@pytest.fixture
def small_parts(monkeypatch):
    """Three rows of eleven words at once, so that the last part is smaller than the others."""
    monkeypatch.setattr(losses, "PART", 33)


small = pytest.mark.usefixtures("small_parts")


def drawn(dtype, rows=7):
    logits, targets = problem((rows,), dtype=torch.float64)
    return (4 * logits).to(dtype).requires_grad_(), targets.clamp(min=0)


@small
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("huge", [False, True])
def test_the_loss_and_the_gradient_are_torchs(dtype, huge):
    found = []
    for function in (by_parts, lambda x, t: F.cross_entropy(x, t, reduction="sum")):
        logits, targets = drawn(dtype)
        if huge:
            logits.data[:, -1] = -math.inf  # a word that is ruled out
            logits.data[1] *= 1e3
            logits.data[2] += 1e4
            targets = targets.clamp(max=9)
        wide = logits if function is by_parts or dtype.itemsize >= 4 else logits.float()
        loss = function(wide, targets)
        (loss / 4).backward()
        found.append((loss.detach(), logits.grad))
    torch.testing.assert_close(*found)
    assert found[0][0].dtype == max(dtype, torch.float32, key=lambda d: d.itemsize)
    assert found[0][1].dtype == dtype


@small
def test_nothing_but_two_numbers_a_row_are_kept():
    logits, targets = drawn(torch.bfloat16)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        summed_cross_entropy(logits, targets)
    new = [x for x in kept if x.data_ptr() not in (logits.data_ptr(), targets.data_ptr())]
    assert [tuple(x.shape) for x in new] == [(7,), (7,)]


@small
def test_the_way_back_holds_the_gradient_and_one_part():
    loss = by_parts(*drawn(torch.bfloat16, rows=30))
    with PeakMemory() as memory:
        loss.backward()
    gradient, part = 30 * 11 * 2, 3 * 11 * 4
    assert gradient + part <= memory.peak < gradient + 2 * part + 30 * 4, memory.peak


@pytest.mark.parametrize("dtype, part", [(torch.float32, 33), (torch.bfloat16, 77)])
def test_full_precision_and_a_few_logits_are_left_to_torch(monkeypatch, dtype, part):
    monkeypatch.setattr(losses, "PART", part)
    loss = summed_cross_entropy(*drawn(dtype))
    assert type(loss.grad_fn).__name__ == "NllLossBackward0"
