"""α, β and the weights of fillers: exact against every telling of a document, one by one."""

import math
import random

import pytest
import torch

from mlm_lib.forward_backward import Evidence, ForwardBackward, Model, Step, products_of_others

STATES, FILLERS, WORDS = 3, 5, 4
PROBABILITIES = [0.6, 1.0, 0.3, 1.0]  # of the steps; so that some may be left out


def author(seed):
    """(prior, steps, chances), with words and sentences that are impossible in some states."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)

    def shares(*shape):
        """Random shares along the first axis, about a third of them 0, never all."""
        values = torch.rand(shape, generator=generator, dtype=torch.float64)
        values[1:] *= torch.rand(values[1:].shape, generator=generator) > 0.33
        return values / values.sum(0)

    def place(weight):
        if rng.random() < 0.5:
            return [rng.randrange(FILLERS)] * STATES
        return [rng.randrange(FILLERS) if share else -1 for share in weight.tolist()]

    steps = []
    for probability in PROBABILITIES:
        weights = shares(rng.randint(1, 3), STATES)
        places = [[place(weight) for _ in range(rng.randint(1, 3))] for weight in weights]
        steps.append(Step(probability, list(zip(weights, places))))
    return shares(STATES), steps, shares(WORDS, FILLERS).T


def seen(length, seed):
    """Evidence of a document: some words as they stand, some doubtful ones, some hidden."""
    generator = torch.Generator().manual_seed(seed)
    looks = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.7, 0.1]], dtype=torch.float64)
    own, other = looks[torch.randint(3, (length,), generator=generator)].T
    return Evidence(torch.randint(WORDS, (length,), generator=generator), own, other)


def tellings(steps, state):
    """(chance, fillers) for every way to tell some steps in a state."""
    stories = [(1.0, [])]
    for step in steps:
        later = [(chance * (1 - step.probability), told) for chance, told in stories]
        for weight, places in step.sentences:
            share = step.probability * weight[state].item()
            fillers = [numbers[state] for numbers in places]
            later += [(chance * share, told + fillers) for chance, told in stories]
        stories = [(chance, told) for chance, told in later if chance]
    return stories


def fits(fit, fillers, start=0):
    """[b_d(t)] of these fillers from a place on."""
    return [fit[filler, start + t].item() for t, filler in enumerate(fillers)]


def listed(prior, steps, fit):
    """α and β (K + 1, Z, T + 1) and the weights (D, T), by going through all tellings."""
    length = fit.shape[1]
    alpha = torch.zeros(len(steps) + 1, STATES, length + 1, dtype=torch.float64)
    beta, weights = torch.zeros_like(alpha), torch.zeros_like(fit)
    for state in range(STATES):
        for k in range(len(steps) + 1):
            for chance, told in tellings(steps[:k], state):
                if len(told) <= length:
                    chance *= prior[state].item() * math.prod(fits(fit, told))
                    alpha[k, state, len(told)] += chance
            for chance, told in tellings(steps[k:], state):
                start = length - len(told)
                if start >= 0:
                    beta[k, state, start] += chance * math.prod(fits(fit, told, start))
        for chance, told in tellings(steps, state):
            if len(told) == length:
                here = fits(fit, told)
                for t, filler in enumerate(told):
                    others = math.prod(here[:t] + here[t + 1 :])
                    weights[filler, t] += prior[state].item() * chance * others
    return alpha, beta, weights


def tables(seed, lengths):
    prior, steps, chances = author(seed)
    evidence = [seen(length, 10 * seed + length) for length in lengths]
    documents = [listed(prior, steps, one.fit(chances)) for one in evidence]
    return ForwardBackward(Model(prior, steps, chances), evidence), documents


def assert_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("seed", range(12))
def test_alpha_beta_and_weights_are_those_of_every_telling(seed):
    found, documents = tables(seed, lengths=[4, 7, 5, 2])
    for b, (alpha, beta, weights) in enumerate(documents):
        length = weights.shape[1]
        assert_equal(found.whole(found.alpha)[:, :, : length + 1, b], alpha)
        assert_equal(found.whole(found.beta)[:, :, : length + 1, b], _only_reached(beta, found))
        assert_equal(found.weights()[:, :length, b], weights)
        assert_equal(found.total()[b], alpha[-1, :, length].sum())


def _only_reached(beta, found):
    """β at places where the turn of a step cannot come is of no use, and not kept."""
    beta = beta.clone()
    for row, first, last in zip(beta, found.first, found.last):
        row[:, :first], row[:, last + 1 :] = 0, 0
    return beta


def test_the_toys_are_not_too_easy():
    totals = [table.sum() for seed in range(12) for table in tables(seed, [4, 7, 5, 2])[1][0]]
    weights = torch.cat([tables(seed, [6])[1][0][2].flatten() for seed in range(12)])
    assert sum(total > 0 for total in totals) > 20 and 0.1 < (weights > 0).double().mean() < 0.9
    models = [Model(*author(seed)) for seed in range(12)]
    assert sum(len(model.maps) > 0 for model in models) > 6  # fillers that differ between states


@pytest.mark.parametrize("seed", range(4))
def test_alpha_times_beta_sums_to_the_same_total_at_every_step(seed):
    found, _ = tables(seed, lengths=[6, 5])
    product = found.whole(found.alpha) * found.whole(found.beta)  # (K + 1, Z, T + 1, B)
    assert_equal(product.sum((1, 2)), found.total().expand(len(PROBABILITIES) + 1, -1))
    weighed = (found.weights() * found.fit).sum(0)  # (T, B): what stands at t counts again
    for b, length in enumerate([6, 5]):
        assert_equal(weighed[:length, b], found.total()[b].expand(length))


def test_documents_side_by_side_are_as_each_alone():
    prior, steps, chances = author(1)
    evidence = [seen(length, length) for length in (3, 8, 1, 5)]
    together = ForwardBackward(Model(prior, steps, chances), evidence).weights()
    for b, one in enumerate(evidence):
        alone = ForwardBackward(Model(prior, steps, chances), [one]).weights()[:, :, 0]
        assert_equal(together[:, : len(one.ids), b], alone)


@pytest.mark.parametrize("length", [1, 3, 40])
def test_what_is_too_short_or_too_long_to_be_told_has_no_weight(length):
    sentence = torch.ones(1, dtype=torch.float64), [[0], [0]]
    steps = [Step(1.0, [sentence]), Step(0.5, [sentence]), Step(1.0, [sentence])]
    model = Model(torch.ones(1).double(), steps, torch.ones(1, WORDS).double())
    found = ForwardBackward(model, [seen(length, 0)])
    assert found.total().tolist() == [0] and not found.weights().any()


def test_products_of_others_need_no_division():
    factors = torch.tensor([[2.0, 0.0], [0.0, 0.0], [5.0, 3.0]])
    expected = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 0.0]])
    assert torch.equal(products_of_others(factors), expected)
    assert products_of_others(factors[:1]).tolist() == [[1.0, 1.0]]
    assert len(products_of_others(factors[:0])) == 0
