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
from mlm_lib.grammar import Grammar
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

GRAMMARS = Path(__file__).parent / "grammars"

# ------------------------------------------------------------------ every document, one by one


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def shares(words):
    weights = (
        words if isinstance(words, dict) else {word: 1 / rank for rank, word in enumerate(words, 1)}
    )
    return {word: weight / sum(weights.values()) for word, weight in weights.items()}


def states(latents):
    """(facts, chance) for each choice of the latents. Facts are named as the slots name them."""
    options = []
    for name, latent in latents.items():
        if "rows" in latent:
            columns = [
                name if fact == name else f"{name}.{fact}" for fact in latent["facts"].split()
            ]
            options.append(
                [
                    (dict(zip(columns, row.split())), 1 / len(latent["rows"]))
                    for row in latent["rows"]
                ]
            )
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
                p = step.get("probability", 1)
                choices = [
                    (words, p * chance)
                    for words, chance in said(step, facts, world.get("words", {}))
                ]
                choices += [((), 1 - p)] if p < 1 else []
                told = [
                    (before + words, q * chance) for before, q in told for words, chance in choices
                ]
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
            rows = [
                (self.ids(words), chance)
                for words, chance in self.chances.items()
                if len(words) == length
            ]
            self.by_length[length] = (
                torch.stack([ids for ids, _ in rows]),
                tensor([p for _, p in rows]),
            )

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
        selected = (1 - mask_share - random_share) * word_stays + random_share * tensor(
            [1 / size] * v + [(size - v) / size, 0]
        )
        selected[:, -1] = mask_share
        return selected, rate * selected + (1 - rate) * word_stays

    def ideal_loss(self, *rates):
        """The expected surprise at a selected word: all documents, all ways to hide and replace."""
        (selected, shown), loss = self.channels(*rates), 0.0
        for ids, chances in self.by_length.values():
            length = ids.shape[1]
            for t in range(length):
                joint = torch.zeros(
                    len(shown), shown.shape[1] ** length, dtype=torch.float64
                )  # word at t, all that is shown
                for row, chance in zip(ids, chances):
                    seen = chance[None]
                    for place, word in enumerate(row):
                        seen = torch.outer(
                            seen, (selected if place == t else shown)[word]
                        ).flatten()
                    joint[row[t]] += seen
                loss -= (
                    torch.special.xlogy(joint, joint / joint.sum(0).clamp(min=1e-300)).sum().item()
                )
        return loss / sum(chance * len(words) for words, chance in self.chances.items())

    def possible_floors(self, words, *rates):
        """The mean surprise of one document for every way to select, hide and replace its words."""
        (selected, shown), (ids, chances), true = (
            self.channels(*rates),
            self.by_length[len(words)],
            self.ids(words),
        )
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
                surprises.append(
                    -(weights[ids[:, t] == true[t]].sum() / weights.sum()).log().item()
                )
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
    assert found == pytest.approx(
        [math.log(chance) for chance in tales.chances.values()], abs=1e-10
    )
    assert sum(map(math.exp, found)) == pytest.approx(1, abs=1e-10)


def test_the_document_list_holds_what_makes_inference_hard(tales, notes):
    """Two tellings of one document, unequal lengths: else the comparisons would be too easy."""
    assert len(tales.chances) > 200 and len(tales.by_length) > 5
    assert len(tales.grammar.worlds) == 2 and set(tales.index) == set().union(*tales.chances)
    assert notes.posteriors(["fine", "good"], [True, False]).amax() < 1


@pytest.mark.parametrize(
    "words",
    ["", "rome", "in rome .", "in italy", "no tea . no tea . no tea .", "no Tea .", "[MASK] ."],
)
def test_log_prob_of_what_the_grammar_cannot_say_is_minus_infinity(tales, words):
    assert tales.grammar.log_prob(words.split()) == -math.inf


def test_samples_come_as_often_as_their_probability_says(tales):
    counts = dict.fromkeys(tales.chances, 0)
    for words in tales.grammar.sample(20_000, seed=3):
        counts[tuple(words)] += 1  # a KeyError here: no document of the grammar
    squares = [
        (counts[words] - 20_000 * p) ** 2 / (20_000 * p) for words, p in tales.chances.items()
    ]
    freedom = len(squares) - 1
    assert abs(sum(squares) - freedom) < 5 * math.sqrt(2 * freedom)  # Pearson's chi-squared test


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_posteriors_are_those_of_the_list_of_documents(tales, share):
    rng = random.Random(share)
    for words in rng.sample(tales.documents, 25):
        observed = [rng.random() < share for _ in words]
        # The reader must not peek: what stands at a place that is not observed makes no difference.
        shown = [word if seen else "[MASK]" for word, seen in zip(words, observed)]
        found = tales.grammar.posteriors(shown, torch.tensor(observed))
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, tales.posteriors(words, observed), rtol=0, atol=1e-10)
        torch.testing.assert_close(found.sum(1), tensor([1.0] * len(words)), rtol=0, atol=1e-10)


def test_surprise_is_minus_the_log_of_the_posterior_for_many_documents_at_once(tales):
    rng = random.Random(1)
    documents = rng.sample(tales.documents, 100)  # of unequal lengths and both worlds
    observed = [[rng.random() < 0.5 for _ in words] for words in documents]
    for words, seen, found in zip(
        documents, observed, tales.grammar.surprise(documents, observed), strict=True
    ):
        expected = -tales.posteriors(words, seen)[range(len(words)), tales.ids(words)].log()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_chain_rule_word_by_word_gives_the_whole_document(tales):
    """Posteriors know the length, so the words cost -log P(words | length)."""
    for words in random.Random(2).sample(tales.documents, 10):
        length = tales.by_length[len(words)][1].sum().log().item()
        before = [[place < t for place in range(len(words))] for t in range(len(words))]
        steps = tales.grammar.surprise([words] * len(words), before)
        cost = sum(step[t].item() for t, step in enumerate(steps))
        assert cost == pytest.approx(length - tales.grammar.log_prob(words), abs=1e-10)


# ------------------------------------------------------------------------------------ the floor


@pytest.mark.parametrize("name", ["fine.toml", "tales.toml"])
def test_the_probability_of_a_length_is_that_of_all_its_documents(name):
    tiny = Tiny(name)
    for length in range(40):
        due = sum(p for words, p in tiny.chances.items() if len(words) == length)
        found = tiny.grammar.log_prob_of_length(length)
        assert math.exp(found) == pytest.approx(due, rel=1e-12)
        assert (found == -math.inf) == (due == 0)
    with pytest.raises(ValueError, match="length=-1; a whole number of at least 0"):
        tiny.grammar.log_prob_of_length(-1)


@pytest.mark.parametrize("name", ["fine.toml", "tales.toml"])
def test_posteriors_of_many_documents_are_those_of_each(name):
    tiny = Tiny(name)
    draw = torch.Generator().manual_seed(0)
    documents = tiny.grammar.sample(70, seed=4)
    observed = [torch.rand(len(words), generator=draw) < 0.5 for words in documents]
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


def test_floor_of_any_order_is_what_the_words_cost_beyond_their_number(tales):
    documents = tales.grammar.sample(50, seed=8)
    floor = tales.grammar.floor(documents, objective="any_order")
    lengths = {
        n: sum(p for words, p in tales.chances.items() if len(words) == n) for n in range(30)
    }
    due = [-math.log(tales.chances[tuple(words)] / lengths[len(words)]) for words in documents]
    assert floor.count == sum(map(len, documents))
    assert floor.nats == pytest.approx(sum(due) / floor.count, rel=1e-12)
    assert floor.nats < tales.grammar.floor(documents, objective="forward").nats


@pytest.mark.parametrize("objective", ["forward", "backward"])
def test_floor_of_the_next_word_counts_the_end_of_each_document(tales, objective):
    documents = tales.grammar.sample(200, seed=1)
    floor = tales.grammar.floor(documents, objective=objective)
    assert floor.count == sum(len(words) + 1 for words in documents)
    assert floor.nats == pytest.approx(
        -sum(math.log(tales.chances[tuple(words)]) for words in documents) / floor.count, rel=1e-10
    )


@pytest.mark.parametrize(
    "rate, mask_share, random_share, size",
    [
        (0.15, 1, 0, None),
        (0.5, 1, 0, None),
        (0.3, 0.8, 0.1, None),
        (0.3, 0.8, 0.1, 9),
        (0.5, 0.3, 0.5, 25),
        (0.6, 0, 0.6, None),
    ],
)
def test_masked_floor_is_the_expected_loss_of_the_ideal_reader(
    notes, rate, mask_share, random_share, size
):
    documents = notes.grammar.sample(3000, seed=5)
    shares = {
        "mask_share": mask_share,
        "random_share": random_share,
        "random_vocabulary_size": size,
    }
    floor = notes.grammar.floor(documents, rate=rate, seed=6, **shares)
    expected = notes.ideal_loss(rate, mask_share, random_share, size or len(notes.index))
    assert 0 < floor.standard_error < 0.05
    assert abs(floor.nats - expected) < 4 * floor.standard_error
    total = sum(map(len, documents))
    assert abs(floor.count - rate * total) < 4 * math.sqrt(total * rate * (1 - rate))


@pytest.mark.parametrize(
    "mask_share, random_share, size", [(0.6, 0, 6), (0.8, 0.1, 6), (0.4, 0.4, 9), (0, 0.5, 6)]
)
def test_masked_floor_of_one_document_is_exact_for_whatever_was_drawn(
    notes, mask_share, random_share, size
):
    """Expected losses hardly change where a reader is slightly wrong; these values do."""
    words, rates = (
        ["fine", "fine", "bad"],
        (0.95, mask_share, random_share, size),
    )  # at 0.95 hardly ever no word is selected
    possible = tensor(list(notes.possible_floors(words, *rates)))
    options = dict(zip(("rate", "mask_share", "random_share", "random_vocabulary_size"), rates))
    found = {notes.grammar.floor([words], seed=seed, **options).nats for seed in range(25)}
    assert len(found) >= 3
    for nats in found:
        assert (possible - nats).abs().min() < 1e-10


@pytest.mark.parametrize(
    "shares",
    [
        {},
        {"mask_share": 0, "random_share": 1},
        {"mask_share": 0.4, "random_share": 0.6, "random_vocabulary_size": 99},
    ],
)
def test_floor_where_nothing_visible_can_be_trusted_is_that_of_a_blind_reader(tales, shares):
    """With all words masked, or all replaced at random, only the length is known."""
    documents = tales.grammar.sample(40, seed=2)
    blind = [
        -tales.posteriors(words, [False] * len(words))[range(len(words)), tales.ids(words)].log()
        for words in documents
    ]
    floor = tales.grammar.floor(documents, rate=1.0, **shares)
    assert floor.count == sum(map(len, documents))
    assert floor.nats == pytest.approx(torch.cat(blind).mean().item(), abs=1e-10)


def test_floor_depends_on_its_seed(tales):
    documents = tales.grammar.sample(50)
    floors = [
        tales.grammar.floor(documents, mask_share=0.8, random_share=0.1, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert floors[0] == floors[1] != floors[2]


def test_floor_of_words_that_always_stay_is_0(tales):
    assert tales.grammar.floor(
        tales.grammar.sample(20), rate=0.5, mask_share=0.0
    ).nats == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("objective", ["masked", "forward", "backward"])
def test_one_document_tells_nothing_of_how_far_floors_scatter(tales, objective):
    floor = tales.grammar.floor(tales.documents[:1], objective=objective, rate=0.9)
    assert math.isfinite(floor.nats) and math.isnan(floor.standard_error)
    two = tales.grammar.floor(tales.documents[:2], objective=objective, rate=0.9)
    assert two.standard_error > 0


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
    assert course.worlds == list(file) and len(course.worlds) == 6
    assert (
        sum(len(step["sentences"]) for world in file.values() for step in world["steps"].values())
        >= 200
    )
    assert len(course.vocabulary) >= 1500 and course.vocabulary == sorted(set(course.vocabulary))
    assert {word for words in documents for word in words} <= set(course.vocabulary)


def test_each_world_opens_alone_and_the_worlds_make_up_the_whole(course):
    alone = [Grammar.load(worlds=[name]) for name in course.worlds]
    assert [grammar.worlds for grammar in alone] == [[name] for name in course.worlds]
    assert set(course.vocabulary) == set().union(*(grammar.vocabulary for grammar in alone))
    words = alone[1].sample(1)[0]
    assert course.log_prob(words) == pytest.approx(
        alone[1].log_prob(words) - math.log(6)
    )  # equal weights, no overlap
    assert Grammar.load(worlds=course.worlds[1]).vocabulary == alone[1].vocabulary


def test_documents_have_2_to_5_sentences_of_single_words(documents):
    for words in documents:
        assert all(re.fullmatch("[a-z]+|[0-9]+|[.,:;?-]", word) for word in words)
        assert words[-1] in ".?" and 2 <= sum(word in ".?" for word in words) <= 5


def test_a_and_an_go_with_the_word_behind_them(documents):
    sounds_otherwise = {
        "european",
        "one",
        "ukrainian",
        "unicorn",
        "uniform",
        "university",
        "uruguayan",
        "useful",
        "hour",
        "honest",
    }
    for words in documents[:2000]:
        for article, word in zip(words, words[1:]):
            if article in ("a", "an"):
                assert (article == "an") == ((word[0] in "aeiou") != (word in sounds_otherwise)), (
                    f"{article} {word}"
                )


def test_samples_depend_on_the_seed_and_not_on_their_number(course, documents):
    assert course.sample(50, seed=0) == documents[:50] == Grammar.load().sample(50)
    assert course.sample(50, seed=1) != documents[:50]
    assert course.sample(0) == []


def test_grammar_txt_is_the_first_sample_and_the_corpus_of_that_name(documents):
    texts = [" ".join(words) for words in documents]
    assert (DATA / "grammar.txt").read_text(encoding="utf-8").splitlines() == texts
    parts = [load_corpus("grammar", split) for split in SPLITS]
    assert sorted(sum(parts, [])) == sorted(texts)
    assert sum(len(set(part)) for part in parts) == len(set(texts))  # no text in two splits
    assert [len(part) for part in parts] == pytest.approx([8000, 1000, 1000], abs=20)


def test_every_word_is_one_token_of_course_bert(course):
    tokenizer = WordPieceTokenizer.from_vocab(DATA / "course-bert" / "vocab.txt")
    assert [
        word
        for word in course.vocabulary
        if tokenizer.tokenize(word) != [word] or word not in tokenizer.vocab
    ] == []


def test_posteriors_are_probabilities_of_documents_that_differ_in_one_word():
    films = Grammar.load(worlds=["films"])
    words = films.sample(1, seed=4)[0]
    rows = films.posteriors(words, [True] * len(words))
    for t in (2, len(words) // 2, len(words) - 3):
        asked = sorted(
            set(rows[t].nonzero().flatten().tolist()) | set(range(0, len(films.vocabulary), 20))
        )
        chances = [
            math.exp(films.log_prob([*words[:t], films.vocabulary[word], *words[t + 1 :]]))
            for word in asked
        ]
        torch.testing.assert_close(
            tensor(chances) / sum(chances), rows[t, asked], rtol=1e-9, atol=1e-12
        )


def test_chain_rule_holds_from_both_ends_and_up_to_the_length(course, documents):
    """-log P(words | length) + log P(words) is log P(length) for all documents of one length."""
    same = [words for words in documents if len(words) == 40][:3]
    before = torch.ones(40, 40).tril(-1).bool()
    lengths = []
    for words in same:
        costs = [
            torch.stack(course.surprise([words] * 40, list(seen))).trace().item()
            for seen in (before, before.T)
        ]
        assert costs[0] == pytest.approx(costs[1], rel=1e-10)
        lengths.append(costs[0] + course.log_prob(words))
    assert len(set(map(tuple, same))) == 3 and lengths == pytest.approx([lengths[0]] * 3, rel=1e-9)
    assert lengths[0] < 0


def test_entropy_is_the_same_from_two_samples(course):
    means, errors = [], []
    for seed in (11, 12):
        costs = [-course.log_prob(words) for words in course.sample(100, seed=seed)]
        means.append(statistics.mean(costs))
        errors.append(statistics.stdev(costs) / math.sqrt(100))
    assert abs(means[0] - means[1]) < 4 * math.hypot(*errors)
    floor = course.floor(course.sample(100, seed=12), objective="forward")
    assert floor.nats * floor.count == pytest.approx(means[1] * 100, rel=1e-9)


@pytest.mark.parametrize(
    "shares", [{}, {"mask_share": 0.8, "random_share": 0.1}], ids=["masked", "corrupted"]
)
def test_the_floor_of_a_thousand_words_takes_less_than_a_second(course, documents, shares):
    """A safety net, far below what a free core does. Processor time, without others."""
    some = documents[:64]
    start = time.process_time()
    course.floor(some, **shares)
    assert sum(map(len, some)) / (time.process_time() - start) > 1000


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("value", [-1, None, True, 1.0, "1", math.nan])
def test_what_is_no_number_of_documents_or_no_seed_is_refused(tales, value):
    """Python's own generator gives a seed of −1 the draws of 1."""
    with pytest.raises(ValueError, match=f"^n={value!r}; "):
        tales.grammar.sample(value)
    with pytest.raises(ValueError, match=f"^seed={value!r}; "):
        tales.grammar.sample(1, seed=value)
    with pytest.raises(ValueError, match=f"^seed={value!r}; "):
        tales.grammar.floor(tales.documents[:2], seed=value)


WHOLE = [["no", "tea", "."]]


@pytest.mark.parametrize(
    "wrong", [None, "no tea .", 7, {"no": 1}, [1, 2, 3], torch.ones(3)], ids=str
)
def test_what_is_no_list_of_words_is_refused(tales, wrong):
    grammar = tales.grammar
    for ask in (grammar.log_prob, lambda words: grammar.surprise([words], [[True] * 3])):
        with pytest.raises(ValueError, match="a list of words"):
            ask(wrong)
    for ask in (grammar.floor, lambda documents: grammar.surprise(documents, [[True] * 3])):
        with pytest.raises(ValueError, match="^documents.*; a list of (lists of )?words"):
            ask(wrong)
    if not isinstance(wrong, list):  # what is not observed may be anything
        with pytest.raises(ValueError, match="^words=.*; a list of words"):
            grammar.posteriors(wrong, [True] * 3)


def test_what_is_not_observed_may_be_anything(tales):
    expected = tales.grammar.posteriors(["no", "tea", "."], [True, False, True])
    for anything in (None, 7, "[MASK]", []):
        found = tales.grammar.posteriors(["no", anything, "."], [1, 0, 1])
        assert torch.equal(found, expected)
    with pytest.raises(ValueError, match="7 is not a word of this grammar"):
        tales.grammar.posteriors(["no", 7, "."], [True] * 3)


@pytest.mark.parametrize(
    "observed",
    [None, "yes", [None] * 3, [True, "no", True], [0, 1, 2], [math.nan] * 3, [[True]] * 3, True],
    ids=str,
)
def test_what_does_not_say_true_or_false_for_each_word_is_refused(tales, observed):
    for ask in (
        lambda: tales.grammar.posteriors(WHOLE[0], observed),
        lambda: tales.grammar.surprise(WHOLE, [observed]),
    ):
        with pytest.raises(ValueError, match="^observed=.*True or False for each of 3 words"):
            ask()


@pytest.mark.parametrize("observed", [None, [], [[True] * 3] * 2, torch.tensor(True), 3], ids=str)
def test_each_document_needs_its_observations(tales, observed):
    with pytest.raises(ValueError, match="^observed=.*one for each of 1 documents"):
        tales.grammar.surprise(WHOLE, observed)


@pytest.mark.parametrize("observed", [True, False])
def test_a_document_cut_short_is_refused_with_that_hint(tales, observed):
    """As a model's max_length cuts it: then no document of this length has these words."""
    cut = next(words for words in tales.documents if len(words) > 8)[:2]
    for ask in (
        lambda: tales.grammar.surprise([*WHOLE, cut], [[True] * 3, [observed] * 2]),
        lambda: tales.grammar.floor([*WHOLE, cut]),
        lambda: tales.grammar.posteriors(cut, [observed] * 2),
    ):
        with pytest.raises(ValueError, match="cut short.*max_length"):
            ask()


@pytest.mark.parametrize(
    "words, observed, named",
    [
        ("in italy .", [True] * 2, r"\(2,\)"),
        ("in italy .", [[True] * 3], r"\(1, 3\)"),
        ("in italy .", [True, False], "3 words"),
        ("", [], "0 words"),
        ("no gin .", [True] * 3, "'gin'"),
        ("rome saw rome", [True] * 3, "'rome saw rome'"),
        ("no tea", [False] * 2, "'no tea'"),  # no document is so short
    ],
)
def test_observations_that_cannot_be_are_refused(tales, words, observed, named):
    for ask in (
        tales.grammar.posteriors,
        lambda words, observed: tales.grammar.surprise([words], [observed]),
    ):
        with pytest.raises(ValueError, match=named):
            ask(words.split(), observed)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"objective": "next"}, "'next'.*masked.*forward.*backward"),
        ({"rate": 1.5}, "rate=1.5"),
        ({"rate": -0.1}, "rate=-0.1"),
        ({"rate": math.nan}, "rate=nan"),
        ({"rate": 0.0}, "rate=0"),
        ({"mask_share": 1.5}, "mask_share=1.5"),
        ({"mask_share": 0.5, "random_share": -0.5}, "random_share=-0.5"),
        ({"mask_share": 0.8, "random_share": 0.3}, "0.8.*0.3"),
        (
            {"mask_share": 0.8, "random_share": 0.1, "random_vocabulary_size": 5},
            "random_vocabulary_size=5",
        ),
    ],
)
def test_a_floor_of_nothing_that_can_be_is_refused_by_value(tales, options, named):
    with pytest.raises(ValueError, match=named):
        tales.grammar.floor([["no", "tea", "."]], **options)
    with pytest.raises(ValueError, match="empty"):
        tales.grammar.floor([], **options)


@pytest.mark.parametrize(
    "words, named",
    [("tea no .", "'tea no .'"), ("no gin .", "gin"), ("no tea", "'no tea'"), ("", None)],
)
@pytest.mark.parametrize(
    "options",
    [
        {"objective": "forward"},
        {"objective": "backward"},
        {"rate": 1e-9},
        {"rate": 1.0},
        {"mask_share": 0.8, "random_share": 0.1},
        {"rate": 1.0, "mask_share": 0.0, "random_share": 1.0},
    ],
    ids=str,
)
def test_a_floor_over_what_the_grammar_cannot_say_is_refused(tales, words, named, options):
    """Its loss would be infinite, or mean nothing; wherever the masks fall."""
    with pytest.raises(ValueError, match=named):
        tales.grammar.floor([*tales.grammar.sample(20), words.split()], **options)
