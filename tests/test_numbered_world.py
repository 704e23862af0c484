"""One world as numbered arrays: a small one worked by hand, and bounds that hold."""

import math
import random
from pathlib import Path

import pytest
import torch

from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.forward_backward import Evidence
from mlm_lib.grammar import NumberedWorld, draw, running_sums

pytestmark = pytest.mark.usefixtures("one_thread")

GRAMMARS = Path(__file__).parent / "grammars"
# A cat (3 in 4) or a dog. It runs, and half of the time it then does so "again".
PETS = """
[pets.latents]
animal = { cat = 3, dog = 1 }
[pets.steps.first]
sentences = ["{animal} runs"]
[pets.steps.second]
probability = 0.5
sentences = ["again"]
"""
INDEX = {word: number for number, word in enumerate("again cat dog spare runs".split())}
SHARE = 0.4


@pytest.fixture
def pets(tmp_path):
    (tmp_path / "pets.toml").write_text(PETS)
    (world,) = read_worlds(tmp_path / "pets.toml")
    return NumberedWorld(world, SHARE, INDEX)


def seen(words):
    """Evidence of a document whose "?" are hidden."""
    ids = torch.tensor([INDEX.get(word, -1) for word in words])
    return Evidence(ids, (ids >= 0).double(), (ids < 0).double())


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


class Always:
    """A generator whose numbers are all the same."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


# ------------------------------------------------------------------------------------ drawing


def test_a_draw_comes_as_often_as_its_weight_says():
    rng, weights = random.Random(0), [2, 0, 1, 5]
    counts = [0] * 4
    for _ in range(8000):
        counts[draw(rng, running_sums(weights))] += 1
    for count, weight in zip(counts, weights):
        assert abs(count - 1000 * weight) <= 4 * math.sqrt(1000 * weight)


@pytest.mark.parametrize("weights", [[0, 1, 0], [0, 0, 2, 3, 0], [0.1] * 10 + [0], [0, 1e-12, 0]])
@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_what_has_no_weight_is_never_drawn_at_either_end(weights, number):
    assert weights[draw(Always(number), running_sums(weights))] > 0


def test_one_draw_takes_one_number_of_the_generator():
    rng, other = random.Random(3), random.Random(3)
    draw(rng, [1, 2, 3])
    other.random()
    assert rng.random() == other.random()


def test_samples_of_a_world_are_its_documents_as_often_as_they_should_be(pets):
    rng, counts = random.Random(1), {}
    for _ in range(4000):
        text = " ".join(pets.sample(rng))
        counts[text] = counts.get(text, 0) + 1
    chances = {"cat runs": 3, "cat runs again": 3, "dog runs": 1, "dog runs again": 1}  # of 8
    assert counts.keys() == chances.keys()
    for text, part in chances.items():
        p = part / 8
        assert abs(counts[text] - 4000 * p) < 4 * math.sqrt(4000 * p * (1 - p))


# ------------------------------------------------------------------------------------ inference


def test_a_world_knows_its_own_words_and_how_likely_each_can_be(pets):
    assert pets.knows.tolist() == [True, True, True, False, True]
    assert pets.best.tolist() == [1, 1, 1, 0, 1]


def test_weights_of_words_are_those_worked_by_hand(pets):
    """ "? runs" is told without the second step: 0.4·0.5, of which a cat has 3 in 4."""
    found = pets.weights([seen(["?", "runs"])], None)  # (V + 1, T, B)
    animal = tensor([0, 0.15, 0.05, 0, 0, 0.2])  # again, cat, dog, spare, runs; any
    runs = tensor([0, 0, 0, 0, 0.2, 0.2])
    torch.testing.assert_close(found[:, :, 0], torch.stack([animal, runs], 1))


def test_a_word_s_own_place_does_not_count_for_it(pets):
    """At the place of "dog" a cat is as likely as before; elsewhere the dog is seen."""
    found = pets.weights([seen(["dog", "runs"])], None)[:, :, 0]
    torch.testing.assert_close(found[1:3, 0], tensor([0.15, 0.05]))
    torch.testing.assert_close(found[-1], tensor([0.2, 0.05]))


def test_the_asked_words_of_unequal_documents_have_the_weights_that_all_words_have(pets):
    evidence = [seen(["?", "runs", "?"]), seen(["dog", "?"])]
    asked = [torch.tensor([[1, 4, 0], [2, -1, 3]]), torch.tensor([[2, 4], [-1, 0]])]
    every, found = pets.weights(evidence, None), pets.weights(evidence, asked)
    assert found.shape == (3, 3, 2)
    torch.testing.assert_close(found[-1], every[-1])
    for column, ids in enumerate(asked):
        for row, words in zip(found, ids):
            for place, word in enumerate(words.tolist()):
                due = every[word, place, column] if word >= 0 else tensor(0.0)
                torch.testing.assert_close(row[place, column], due)


@pytest.mark.parametrize("name", ["tales.toml", "notes.toml", "fine.toml"])
def test_no_weight_exceeds_its_bound(name):
    worlds = read_worlds(GRAMMARS / name)
    words = sorted(set().union(*(filler for world in worlds for filler in world.fillers)))
    index = {word: number for number, word in enumerate(words)}
    rng, checked = random.Random(0), 0
    worlds = [NumberedWorld(world, 1 / len(worlds), index) for world in worlds]
    for _ in range(40):
        ids = torch.tensor([index[word] for word in rng.choice(worlds).sample(rng)])
        own = tensor([rng.choice([0.0, 0.7, 1.0]) for _ in ids])
        evidence = Evidence(ids, own, tensor([0.0 if one == 1 else 0.3 for one in own]))
        for world in worlds:
            total = world.weights([evidence], None)[-1, :, 0]
            assert (total <= world.bound(evidence).exp() * (1 + 1e-12)).all()
            checked += (total > 0).sum().item()
    assert checked > 40, "weights of 0 would prove nothing"


def test_the_bound_leaves_out_its_own_place(pets):
    """ "spare" is no word of this world: nothing elsewhere can be, at its own place all can."""
    bound = pets.bound(seen(["spare", "runs"]))
    assert bound.tolist() == [pytest.approx(math.log(SHARE)), -math.inf]
    assert (pets.bound(seen(["spare", "spare"])) == -math.inf).all()


def test_a_world_without_a_share_is_bounded_by_nothing(tmp_path):
    (tmp_path / "pets.toml").write_text(PETS)
    (world,) = read_worlds(tmp_path / "pets.toml")
    assert (NumberedWorld(world, 0.0, INDEX).bound(seen(["?", "runs"])) == -math.inf).all()
