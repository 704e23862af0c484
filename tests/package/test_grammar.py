"""The grammar: exact against every document listed one by one."""

import itertools
import math
import random
import re
import statistics
import time
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from mlm_lib import DATA
from mlm_lib.corpus import SPLITS, load_corpus
from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.forward_backward import Evidence
from mlm_lib.grammar import Grammar, NumberedWorld, draw_index
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

GRAMMARS = Path(__file__).parents[1] / "grammars"

# ------------------------------------------------------------------ every document, one by one


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def shares(words):
    if not isinstance(words, dict):
        words = {word: 1 / rank for rank, word in enumerate(words, 1)}
    return {word: weight / sum(words.values()) for word, weight in words.items()}


def states(latents):
    """(facts, chance) for each choice of the latents. Facts are named as the slots name them."""
    options = []
    for name, latent in latents.items():
        if "rows" in latent:
            facts = latent["facts"].split()
            columns = [name if fact == name else f"{name}.{fact}" for fact in facts]
            rows = [dict(zip(columns, row.split())) for row in latent["rows"]]
            options.append([(row, 1 / len(rows)) for row in rows])
        else:
            weights = latent if isinstance(latent, dict) else dict.fromkeys(latent, 1)
            options.append([({name: word}, share) for word, share in shares(weights).items()])
    for choice in itertools.product(*options):
        yield (
            {key: word for facts, _ in choice for key, word in facts.items()},
            math.prod(chance for _, chance in choice),
        )


def is_true(when, facts, prefix=""):
    return all(
        is_true(value, facts, f"{prefix}{key}.")
        if isinstance(value, dict)
        else facts[prefix + key] in (value if isinstance(value, list) else [value])
        for key, value in when.items()
    )


def said(step, facts, lists):
    """(words, chance) for all that a step can say."""
    entries = [{"say": entry} if isinstance(entry, str) else entry for entry in step["sentences"]]
    weights = [entry.get("weight", 1) * is_true(entry.get("when", {}), facts) for entry in entries]
    for entry, weight in zip(entries, weights):
        places = []
        for token in entry["say"].split() if weight else ():
            name, _, key = token.strip("{}").partition("|")
            if token[0] != "{":
                places.append({token: 1})
            elif name.startswith("a:"):
                places.append({"an" if facts[name[2:]][0] in "aeiou" else "a": 1})
            elif name in facts:
                places.append({facts[name]: 1})
            else:
                places.append(shares(lists[name][facts[key]] if key else lists[name]))
        for choice in itertools.product(*(place.items() for place in places)) if weight else ():
            words, chances = zip(*choice)
            yield words, weight / sum(weights) * math.prod(chances)


def every_document(text):
    """{document: probability}."""
    found, worlds = defaultdict(float), tomllib.loads(text).values()
    for world in worlds:
        share = world.get("weight", 1) / sum(world.get("weight", 1) for world in worlds)
        for facts, chance in states(world.get("latents", {})):
            told = [((), share * chance)]
            for step in world["steps"].values():
                p, ways = step.get("probability", 1), said(step, facts, world.get("words", {}))
                ways = [(words, p * q) for words, q in ways] + [((), 1 - p)] * (p < 1)
                told = [(begun + words, q * p) for begun, q in told for words, p in ways]
            for words, chance in told:
                found[words] += chance
    return dict(found)


class Tiny:
    """A grammar and the list of all its documents."""

    def __init__(self, name):
        path = GRAMMARS / name
        self.grammar, self.chances = Grammar.load(path), every_document(path.read_text())
        self.documents = [list(words) for words in self.chances]
        self.index = {word: number for number, word in enumerate(self.grammar.vocabulary)}
        self.by_length = {}  # (N, T) ids and (N,) chances of the documents of each length
        for length in {len(words) for words in self.documents}:
            same = {words: p for words, p in self.chances.items() if len(words) == length}
            ids = torch.stack([self.ids(words) for words in same])
            self.by_length[length] = ids, tensor(list(same.values()))

    def ids(self, words):
        return torch.tensor([self.index[word] for word in words])

    def posteriors(self, words, observed):
        """What `Grammar.posteriors` promises, by going through all documents of this length."""
        ids, chances = self.by_length[len(words)]
        wrong = (ids != self.ids(words)) & torch.tensor(observed)  # (N, T)
        fits = wrong.sum(1, keepdim=True) - wrong.long() == 0  # nothing is wrong elsewhere
        out = torch.zeros(len(words), len(self.index), dtype=torch.float64)
        for t, row in enumerate(out):
            row.index_add_(0, ids[:, t], chances * fits[:, t])
        return out / out.sum(1, keepdim=True)

    def channels(self, rate, mask_share, random_share, size):
        """(V, V + 2): chances of what is shown of a selected word, and of one that may be selected.

        The last two columns are a token that is no word of the grammar, and the mask.
        """
        v = len(self.index)
        word_stays = torch.eye(v, v + 2, dtype=torch.float64)
        drawn = random_share * tensor([1 / size] * v + [(size - v) / size, 0])
        selected = (1 - mask_share - random_share) * word_stays + drawn
        selected[:, -1] = mask_share
        return selected, rate * selected + (1 - rate) * word_stays

    def ideal_loss(self, *rates):
        """The expected surprise at a selected word: all documents, all ways to hide and replace."""
        (selected, shown), loss = self.channels(*rates), 0.0
        for ids, chances in self.by_length.values():
            length = ids.shape[1]
            for t in range(length):
                joint = torch.zeros(len(shown), shown.shape[1] ** length, dtype=torch.float64)
                for row, seen in zip(ids, chances[:, None]):  # joint: word at t, all that is shown
                    for place, word in enumerate(row):
                        channel = selected if place == t else shown
                        seen = torch.outer(seen, channel[word]).flatten()
                    joint[row[t]] += seen
                posterior = joint / joint.sum(0).clamp(min=1e-300)
                loss -= torch.special.xlogy(joint, posterior).sum().item()
        return loss / sum(chance * len(words) for words, chance in self.chances.items())

    def possible_floors(self, words, *rates):
        """The mean surprise of one document for every way to select, hide and replace its words."""
        (selected, shown), true = self.channels(*rates), self.ids(words)
        ids, chances = self.by_length[len(words)]
        options = [
            [(False, word), *((True, column) for column in selected[word].nonzero().flatten())]
            for word in true
        ]
        for outcome in itertools.product(*options):
            surprises = []
            for t in (t for t, (chosen, _) in enumerate(outcome) if chosen):
                weights = chances
                for place, (_, column) in enumerate(outcome):
                    weights = weights * (selected if place == t else shown)[ids[:, place], column]
                chance = weights[ids[:, t] == true[t]].sum() / weights.sum()
                surprises.append(-chance.log().item())
            if surprises:
                yield statistics.mean(surprises)


@pytest.fixture(scope="module")
def tales():
    return Tiny("tales.toml")


@pytest.fixture(scope="module")
def notes():
    return Tiny("notes.toml")


def test_log_prob_is_that_of_every_document_in_the_list(tales):
    assert sum(tales.chances.values()) == pytest.approx(1, abs=1e-12)
    found = [tales.grammar.log_prob(words) for words in tales.documents]
    expected = [math.log(chance) for chance in tales.chances.values()]
    assert found == pytest.approx(expected, abs=1e-10)


def test_the_document_list_holds_what_makes_inference_hard(tales, notes):
    """Two tellings of one document, unequal lengths: else the comparisons would be too easy."""
    assert len(tales.chances) > 200 and len(tales.by_length) > 5
    assert len(tales.grammar.worlds) == 2 and set(tales.index) == set().union(*tales.chances)
    assert notes.posteriors(["fine", "good"], [True, False]).amax() < 1


@pytest.mark.parametrize(
    "words", ["", "in rome .", "in italy", "no tea . no tea . no tea .", "no Tea ."]
)
def test_log_prob_of_what_the_grammar_cannot_say_is_minus_infinity(tales, words):
    assert tales.grammar.log_prob(words.split()) == -math.inf


@pytest.mark.parametrize("name", ["fine.toml", "tales.toml"])
def test_the_probability_of_a_length_is_that_of_all_its_documents(name):
    tiny = Tiny(name)
    for length in range(40):
        due = sum(p for words, p in tiny.chances.items() if len(words) == length)
        found = tiny.grammar.log_prob_of_length(length)
        assert math.exp(found) == pytest.approx(due, rel=1e-12)
        assert (found == -math.inf) == (due == 0)


def test_samples_come_as_often_as_their_probability_says(tales):
    counts = dict.fromkeys(tales.chances, 0)
    for words in tales.grammar.sample(20_000, seed=3):
        counts[tuple(words)] += 1  # a KeyError here: no document of the grammar
    due = {words: 20_000 * p for words, p in tales.chances.items()}
    squares = [(counts[words] - many) ** 2 / many for words, many in due.items()]
    freedom = len(squares) - 1
    assert abs(sum(squares) - freedom) < 5 * math.sqrt(2 * freedom)  # Pearson's chi-squared test


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_posteriors_are_those_of_the_list_of_documents(tales, share):
    rng = random.Random(share)
    for words in rng.sample(tales.documents, 25):
        observed = [rng.random() < share for _ in words]
        # The reader must not peek: what stands at a place that is not observed makes no difference.
        shown = [word if seen else "[MASK]" for word, seen in zip(words, observed)]
        found = tales.grammar.posteriors(shown, torch.tensor(observed))
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, tales.posteriors(words, observed), rtol=0, atol=1e-10)


def test_surprise_is_minus_the_log_of_the_posterior_for_many_documents_at_once(tales):
    rng = random.Random(1)
    documents = rng.sample(tales.documents, 100)  # of unequal lengths and both worlds
    observed = [[rng.random() < 0.5 for _ in words] for words in documents]
    surprises = tales.grammar.surprise(documents, observed)
    for words, seen, found in zip(documents, observed, surprises, strict=True):
        expected = -tales.posteriors(words, seen)[range(len(words)), tales.ids(words)].log()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["fine.toml", "tales.toml"])
def test_posteriors_of_many_documents_are_those_of_each(name):
    tiny = Tiny(name)
    generator = torch.Generator().manual_seed(0)
    documents = tiny.grammar.sample(70, seed=4)
    observed = [torch.rand(len(words), generator=generator) < 0.5 for words in documents]
    found = tiny.grammar.posteriors_of(documents, observed)
    for table, words, seen in zip(found, documents, observed):
        assert torch.allclose(table, tiny.posteriors(words, seen.tolist()), rtol=1e-10)
    assert tiny.grammar.posteriors_of([], []) == []


def test_where_no_document_reads_so_posteriors_are_an_error_or_nan(tales):
    documents = ["no no no no .".split(), "no tea . no juice .".split()]
    observed = [[True] * len(words) for words in documents]
    with pytest.raises(ValueError, match="no document of this grammar reads so: 'no no"):
        tales.grammar.posteriors_of(documents, observed)
    wrong, right = tales.grammar.posteriors_of(documents, observed, check=False)
    assert wrong.isnan().all() and torch.allclose(right.sum(1), torch.ones(6).double())


# ------------------------------------------------------------------------------------ one world


class Always:
    """A generator whose numbers are all the same."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.mark.parametrize("weights", [[0, 1, 0], [0, 0, 2, 3, 0], [0.1] * 10 + [0], [0, 1e-12, 0]])
def test_what_has_no_weight_is_never_drawn_at_either_end(weights):
    for number in (0.0, 0.5, 1 - 2**-53):
        assert weights[draw_index(Always(number), list(itertools.accumulate(weights)))] > 0


def worlds_of(name):
    """The worlds of a grammar with equal shares, and {word: number}."""
    worlds = read_worlds(GRAMMARS / name)
    words = sorted(set().union(*(filler for world in worlds for filler in world.fillers)))
    index = {word: number for number, word in enumerate(words)}
    return [NumberedWorld(world, 1 / len(worlds), index) for world in worlds], index


def doubtful(ids, rng):
    """Evidence of some ids: each seen, half seen or hidden."""
    own = tensor([rng.choice([0.0, 0.7, 1.0]) for _ in ids])
    return Evidence(ids, own, tensor([0.0 if one == 1 else 0.3 for one in own]))


def test_the_asked_words_of_unequal_documents_have_the_weights_that_all_words_have():
    (world, _), index = worlds_of("tales.toml")
    rng = random.Random(2)
    documents = [torch.tensor([index[word] for word in world.sample(rng)]) for _ in range(6)]
    evidence = [doubtful(ids, rng) for ids in documents]
    asked = [torch.stack([ids, ids.flip(0), torch.full_like(ids, -1)]) for ids in documents]
    every, found = world.weights(evidence, None), world.weights(evidence, asked)
    torch.testing.assert_close(found[-1], every[-1])
    for column, rows in enumerate(asked):
        for row, ids in zip(found, rows):
            due = every[ids, torch.arange(len(ids)), column] * (ids >= 0)
            torch.testing.assert_close(row[: len(ids), column], due)


@pytest.mark.parametrize("name", ["tales.toml", "notes.toml", "fine.toml"])
def test_no_weight_exceeds_its_bound(name):
    worlds, index = worlds_of(name)
    rng, checked = random.Random(0), 0
    for _ in range(40):
        ids = torch.tensor([index[word] for word in rng.choice(worlds).sample(rng)])
        evidence = doubtful(ids, rng)
        for world in worlds:
            total = world.weights([evidence], None)[-1, :, 0]
            assert (total <= world.bound(evidence).exp() * (1 + 1e-12)).all()
            checked += (total > 0).sum().item()
    assert checked > 40, "weights of 0 would prove nothing"


def test_a_world_without_a_share_is_never_drawn_and_bounded_by_nothing(tmp_path):
    text = (GRAMMARS / "fine.toml").read_text().replace("weight = 2", "weight = 0")
    (tmp_path / "one.toml").write_text(text)
    grammar = Grammar.load(tmp_path / "one.toml")
    assert {tuple(words) for words in grammar.sample(50)} <= {
        ("a", "good", "day", "."),
        ("a", "bad", "day", "."),
    }
    found = grammar.posteriors(["a", "good", "day", "."], [True, False, True, True])
    assert found[1].max().item() == pytest.approx(2 / 3)


# ------------------------------------------------------------------------------------ the floor


def test_floor_of_any_order_is_what_the_words_cost_beyond_their_number(tales):
    documents = tales.grammar.sample(50, seed=8)
    floor = tales.grammar.floor(documents, objective="any_order")
    lengths = {n: chances.sum().item() for n, (_, chances) in tales.by_length.items()}
    due = [-math.log(tales.chances[tuple(words)] / lengths[len(words)]) for words in documents]
    assert floor.count == sum(map(len, documents))
    assert floor.nats == pytest.approx(sum(due) / floor.count, rel=1e-12)


@pytest.mark.parametrize("objective", ["forward", "backward"])
def test_floor_of_the_next_word_counts_the_end_of_each_document(tales, objective):
    documents = tales.grammar.sample(200, seed=1)
    floor = tales.grammar.floor(documents, objective=objective)
    assert floor.count == sum(len(words) + 1 for words in documents)
    nats = -sum(math.log(tales.chances[tuple(words)]) for words in documents)
    assert floor.nats == pytest.approx(nats / floor.count, rel=1e-10)


def options(rate, mask_share, random_share, size):
    shares = {"mask_share": mask_share, "random_share": random_share}
    return {"rate": rate, **shares, "random_vocabulary_size": size}


@pytest.mark.slow
@pytest.mark.parametrize(
    "rates", [(0.15, 1, 0, None), (0.3, 0.8, 0.1, None), (0.5, 0.3, 0.5, 25), (0.6, 0, 0.6, None)]
)
def test_masked_floor_is_the_expected_loss_of_the_ideal_reader(notes, rates):
    documents = notes.grammar.sample(3000, seed=5)
    floor = notes.grammar.floor(documents, seed=6, **options(*rates))
    expected = notes.ideal_loss(*rates[:3], rates[3] or len(notes.index))
    assert 0 < floor.standard_error < 0.05
    assert abs(floor.nats - expected) < 4 * floor.standard_error
    total, rate = sum(map(len, documents)), rates[0]
    assert abs(floor.count - rate * total) < 4 * math.sqrt(total * rate * (1 - rate))


@pytest.mark.parametrize("shares", [(0.6, 0, 6), (0.8, 0.1, 6), (0.4, 0.4, 9), (0, 0.5, 6)])
def test_masked_floor_of_one_document_is_exact_for_whatever_was_drawn(notes, shares):
    """Expected losses hardly change where a reader is slightly wrong; these values do."""
    words, rates = ["fine", "fine", "bad"], (0.95, *shares)  # hardly ever no word is selected
    possible = tensor(list(notes.possible_floors(words, *rates)))
    floors = [notes.grammar.floor([words], seed=seed, **options(*rates)) for seed in range(25)]
    assert len({floor.nats for floor in floors}) >= 3
    for floor in floors:
        assert (possible - floor.nats).abs().min() < 1e-10


@pytest.mark.parametrize("shares", [(1, 0, None), (0, 1, None), (0.4, 0.6, 99)])
def test_floor_where_nothing_visible_can_be_trusted_is_that_of_a_blind_reader(tales, shares):
    """With all words masked, or all replaced at random, only the length is known."""
    documents, blind = tales.grammar.sample(40, seed=2), []
    for words in documents:
        chances = tales.posteriors(words, [False] * len(words))
        blind.append(-chances[range(len(words)), tales.ids(words)].log())
    floor = tales.grammar.floor(documents, **options(1.0, *shares))
    assert floor.count == sum(map(len, documents))
    assert floor.nats == pytest.approx(torch.cat(blind).mean().item(), abs=1e-10)


def test_floor_depends_on_its_seed_and_is_0_where_all_words_stay(tales):
    documents, shares = tales.grammar.sample(50), {"mask_share": 0.8, "random_share": 0.1}
    floors = [tales.grammar.floor(documents, seed=seed, **shares) for seed in (1, 1, 2)]
    assert floors[0] == floors[1] != floors[2]
    assert tales.grammar.floor(documents, mask_share=0.0).nats == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("objective", ["masked", "forward", "backward"])
def test_one_document_tells_nothing_of_how_far_floors_scatter(tales, objective):
    floor = tales.grammar.floor(tales.documents[:1], objective=objective, rate=0.9)
    assert math.isfinite(floor.nats) and math.isnan(floor.standard_error)
    two = tales.grammar.floor(tales.documents[:2], objective=objective, rate=0.9)
    assert two.standard_error > 0


@pytest.mark.slow
def test_standard_error_is_how_far_floors_scatter(notes):
    expected, errors = notes.ideal_loss(0.3, 1, 0, 1), []
    for seed in range(60):
        floor = notes.grammar.floor(notes.grammar.sample(100, seed=seed), rate=0.3, seed=seed)
        errors.append((floor.nats - expected) / floor.standard_error)
    assert 0.75 < math.sqrt(statistics.mean(error**2 for error in errors)) < 1.3


# ------------------------------------------------------------------ the course's grammar


@pytest.fixture(scope="module")
def course():
    return Grammar.load()


@pytest.fixture(scope="module")
def documents(course):
    return course.sample(10_000, seed=0)


def test_it_is_as_rich_as_promised(course, documents):
    file = tomllib.loads((DATA / "grammar.toml").read_text())
    steps = [step for world in file.values() for step in world["steps"].values()]
    assert course.worlds == list(file) and len(course.worlds) == 6
    assert sum(len(step["sentences"]) for step in steps) >= 200
    assert len(course.vocabulary) >= 1500 and course.vocabulary == sorted(set(course.vocabulary))
    assert {word for words in documents for word in words} <= set(course.vocabulary)


def test_each_world_opens_alone_and_the_worlds_make_up_the_whole(course):
    alone = [Grammar.load(worlds=name) for name in course.worlds]
    assert [grammar.worlds for grammar in alone] == [[name] for name in course.worlds]
    assert set(course.vocabulary) == set().union(*(grammar.vocabulary for grammar in alone))
    words = alone[1].sample(1)[0]  # equal weights, no overlap
    assert course.log_prob(words) == pytest.approx(alone[1].log_prob(words) - math.log(6))
    assert Grammar.load(worlds=course.worlds[1:2]).vocabulary == alone[1].vocabulary


def test_documents_have_2_to_5_sentences_of_single_words_and_the_right_articles(documents):
    odd = "european one ukrainian unicorn uniform university uruguayan useful hour honest".split()
    for words in documents[:3000]:
        assert all(re.fullmatch("[a-z]+|[0-9]+|[.,:;?-]", word) for word in words)
        assert words[-1] in ".?" and 2 <= sum(word in ".?" for word in words) <= 5
        for article, word in zip(words, words[1:]):
            if article in ("a", "an"):
                assert (article == "an") == ((word[0] in "aeiou") != (word in odd)), word


def test_samples_depend_on_the_seed_and_not_on_their_number(course, documents):
    assert course.sample(50, seed=0) == documents[:50] == Grammar.load().sample(50)
    assert course.sample(50, seed=1) != documents[:50]


def test_grammar_txt_is_the_first_sample_and_the_corpus_of_that_name(documents):
    texts = [" ".join(words) for words in documents]
    assert (DATA / "grammar.txt").read_text(encoding="utf-8").splitlines() == texts
    parts = [load_corpus("grammar", split) for split in SPLITS]
    assert sorted(sum(parts, [])) == sorted(texts)
    assert sum(len(set(part)) for part in parts) == len(set(texts))  # no text in two splits
    assert [len(part) for part in parts] == pytest.approx([8000, 1000, 1000], abs=20)


def test_every_word_is_one_token_of_course_bert(course):
    tokenizer = WordPieceTokenizer.from_vocab(DATA / "course-bert" / "vocab.txt")
    assert set(course.vocabulary) <= tokenizer.vocab.keys()
    assert all(tokenizer.tokenize(word) == [word] for word in course.vocabulary)


def test_posteriors_are_probabilities_of_documents_that_differ_in_one_word():
    films = Grammar.load(worlds=["films"])
    words = films.sample(1, seed=4)[0]
    rows = films.posteriors(words, [True] * len(words))
    for t in (2, len(words) // 2, len(words) - 3):
        possible = rows[t].nonzero().flatten().tolist()
        asked = sorted({*possible, *range(0, len(films.vocabulary), 20)})
        versions = [[*words[:t], films.vocabulary[word], *words[t + 1 :]] for word in asked]
        chances = tensor([math.exp(films.log_prob(version)) for version in versions])
        torch.testing.assert_close(chances / chances.sum(), rows[t, asked], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_chain_rule_holds_from_both_ends_and_up_to_the_length(course, documents):
    """-log P(words | length) + log P(words) is log P(length) for all documents of one length."""
    same = [words for words in documents if len(words) == 40][:3]
    before, lengths = torch.ones(40, 40).tril(-1).bool(), []
    for words in same:
        tables = [course.surprise([words] * 40, list(seen)) for seen in (before, before.T)]
        forward, backward = (torch.stack(table).trace().item() for table in tables)
        assert forward == pytest.approx(backward, rel=1e-10)
        lengths.append(forward + course.log_prob(words))
    assert lengths == pytest.approx([course.log_prob_of_length(40)] * 3, rel=1e-9)


def test_entropy_is_the_same_from_two_samples(course):
    floors = [course.floor(course.sample(100, seed=s), objective="forward") for s in (11, 12)]
    errors = [floor.standard_error for floor in floors]
    assert abs(floors[0].nats - floors[1].nats) < 4 * math.hypot(*errors)


@pytest.mark.parametrize("shares", [{}, {"mask_share": 0.8, "random_share": 0.1}], ids=str)
def test_the_floor_of_a_thousand_words_takes_less_than_a_second(course, documents, shares):
    """A safety net, far below what a free core does. Processor time, without others."""
    some = documents[:64]
    start = time.process_time()
    course.floor(some, **shares)
    assert sum(map(len, some)) / (time.process_time() - start) > 1000


# ------------------------------------------------------------------------------------ bad input

TEA, SEEN = "no tea .".split(), [True] * 3
REFUSED = {
    "a seed of -1 would draw what 1 draws": (lambda g: g.sample(1, seed=-1), "seed=-1"),
    "fewer than no documents": (lambda g: g.sample(-1), "n=-1"),
    "a text would be read by letters": (lambda g: g.log_prob("no tea ."), "a list of words"),
    "texts would, too": (lambda g: g.floor(["no tea ."]), "a list of words"),
    "too few observations": (lambda g: g.posteriors(TEA, [True] * 2), "3 words"),
    "observations of another shape": (lambda g: g.posteriors(TEA, [[True] * 3]), "3 words"),
    "one observation for all": (lambda g: g.posteriors(TEA, True), "3 words"),
    "2 is neither true nor false": (lambda g: g.posteriors(TEA, [0, 1, 2]), "3 words"),
    "NaN is neither": (lambda g: g.posteriors(TEA, [math.nan] * 3), "3 words"),
    "no words": (lambda g: g.posteriors([], []), "0 words"),
    "a word it has not": (lambda g: g.posteriors(["no", "gin", "."], SEEN), "'gin'"),
    "no such document": (lambda g: g.posteriors(["rome", "saw", "rome"], SEEN), "rome saw rome"),
    "fewer observations than documents": (lambda g: g.surprise([TEA, TEA], [SEEN]), "shorter"),
    "an objective it has not": (lambda g: g.floor([TEA], objective="next"), "'next'"),
    "a rate above 1": (lambda g: g.floor([TEA], rate=1.5), "rate=1.5"),
    "a rate of NaN": (lambda g: g.floor([TEA], rate=math.nan), "rate=nan"),
    "a rate that selects nothing": (lambda g: g.floor([TEA], rate=0.0), "1 documents"),
    "no documents": (lambda g: g.floor([], objective="forward"), "0 documents"),
    "a share below 0": (lambda g: g.floor([TEA], random_share=-0.5), "random_share=-0.5"),
    "shares above 1": (lambda g: g.floor([TEA], mask_share=0.8, random_share=0.3), "0.8.*0.3"),
    "fewer random tokens than words": (
        lambda g: g.floor([TEA], random_vocabulary_size=5),
        "random_vocabulary_size=5",
    ),
}


@pytest.mark.parametrize("ask, named", REFUSED.values(), ids=REFUSED)
def test_what_would_be_silently_wrong_is_refused(tales, ask, named):
    with pytest.raises(ValueError, match=named):
        ask(tales.grammar)


def test_what_is_not_observed_may_be_anything(tales):
    expected = tales.grammar.posteriors(TEA, [True, False, True])
    for anything in (None, 7, "[MASK]"):
        assert torch.equal(tales.grammar.posteriors(["no", anything, "."], [1, 0, 1]), expected)


def test_a_document_cut_short_is_refused_with_that_hint(tales):
    """As a model's max_length cuts it: then no document of this length has these words."""
    cut = next(words for words in tales.documents if len(words) > 8)[:2]
    for ask in (
        lambda: tales.grammar.surprise([TEA, cut], [SEEN, [False] * 2]),
        lambda: tales.grammar.floor([TEA, cut]),
        lambda: tales.grammar.posteriors(cut, [True] * 2),
    ):
        with pytest.raises(ValueError, match="cut short"):
            ask()


@pytest.mark.parametrize("words", ["tea no .", "no gin .", "no tea", ""])
@pytest.mark.parametrize(
    "given", [{"objective": "forward"}, {"rate": 1e-9}, {"mask_share": 0.0, "random_share": 1.0}]
)
def test_a_floor_over_what_the_grammar_cannot_say_is_refused(tales, words, given):
    """Its loss would be infinite, or mean nothing; wherever the masks fall."""
    with pytest.raises(ValueError, match=f"reads so: '{words}'"):
        tales.grammar.floor([*tales.grammar.sample(20), words.split()], **given)
