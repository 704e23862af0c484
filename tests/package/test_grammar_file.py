"""A grammar file that is wrong is refused with what is wrong in it; a right one becomes numbers."""

from pathlib import Path

import pytest
import torch

from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.grammar import Grammar

FINE = (Path(__file__).parents[1] / "grammars" / "fine.toml").read_text(encoding="utf-8")
FACTS = '"country capital"\nrows = [\n  "italy rome",\n  "egypt cairo",\n]'

# What stands in FINE, what a user wrote instead, and what the message must name.
MISTAKES = [
    # not TOML, or not the shape of a grammar
    ("weight = 2", "weight = = 2", "line 8"),
    ("weight = 2", "wieght = 2", "wieght"),
    ("weight = 3 }", "wieght = 3 }", "wieght"),
    ("probability = 0.5", "probabilty = 0.5", "probabilty"),
    ('"i like {art} and {party} .",', '{ sya = "i like {art} and {party} ." },', "sya"),
    ('"i like {art} and {party} .",', '{ say = 7 },', "7"),
    ('when.mood = "glad"', 'when = "glad"', "'glad'"),
    ("opinion.sad = [", "opinion.sad.very = [", "opinion"),
    # slots that lead nowhere
    ("{drink} .", "{drinks} .", "'drinks'"),
    ("{opinion|mood} .", "{opinion|moods} .", "'moods'"),
    ("{opinion|mood} .", "{opinion} .", "{opinion} does not fit"),
    ("{country.capital} was", "{country.river} was", "'country.river'"),
    ("{drink} .", "{drink|mood} .", "{drink|mood}"),
    ("{country} they", "{country|mood} they", "{country|mood} does not fit"),
    ("{drink} .", "{a:drink} .", "{a:drink} does not fit"),
    ("{drink} .", "{drink .", "'{drink'"),
    ("{drink} .", "{drink}s .", "'{drink}s'"),
    ('when.mood = "glad"', 'when.moods = "glad"', "'moods'"),
    ('when.mood = "glad"', 'when.mood = "angry"', "'angry'"),
    ('when.mood = "glad"', 'when.country.capital = "rome"', "{'capital': 'rome'}"),
    ('when.mood', 'when.country = "italy", when."country.capital" = "cairo", when.mood', "italy"),
    # lists and latents that are empty, doubled, or cannot be drawn
    ('["paint", "clay"]', "[]", "words.art"),
    ('["poor", "weak"]', "[]", "opinion"),
    ('["glad", "sad"]', "[]", "latents.mood"),
    ('art = ["paint", "clay"]', 'art = ["paint", "clay", "paint"]', "'paint'"),
    ('["glad", "sad"]', '["glad", "sad", "glad"]', "'glad'"),
    (FACTS, '"country capital capital"\nrows = ["italy rome rome", "egypt x x"]', "'capital'"),
    ('"country capital"', '"capital country"', "'country'"),
    ('"egypt cairo",', '"egypt cairo", "egypt cairo",', "egypt cairo"),
    ('"egypt cairo",', '"egypt new cairo",', "'egypt new cairo'"),
    ('"egypt cairo",', '"egypt",', "'egypt'"),
    ("drink = {", "more = ['milk']\ndrink = {", "'more'"),
    ("grade.sad = [", "grade.angry = ['mad']\ngrade.sad = [", "angry"),
    # numbers
    *[("tea = 3", f"tea = {value}", value.strip('"')) for value in ("-3", "nan", "inf", '"3"')],
    # sums of the largest overflow, and of the smallest nothing is left
    *[("tea = 3", f"tea = {value}", "tea=1") for value in ("1e308", "1e-320", "1" + "0" * 400)],
    *[("weight = 3 }", f"weight = {value} }}", f"={value}") for value in ("-1", "nan", "1e+300")],
    ("weight = 3 }", "weight = 0 }", "in {country} they like"),
    *[("weight = 2", f"weight = {value}", f"weight={value}") for value in ("-2", "nan", "1e+308")],
    ("weight = 2", "weight = true", "weight=True"),
    *[("probability = 0.5", f"probability = {p}", p) for p in ("1.5", "-0.1", "nan", "0")],
    ("{ tea = 3, juice = 2 }", "{ tea = 0, juice = 0 }", "drink"),
    ('["glad", "sad"]', "{ glad = 0, sad = 0 }", "mood"),
    # what is not one word
    *[('"paint"', f'"{word}"', word) for word in ("New York", "new york", "don't", "Paint")],
    *[('"paint"', f'"{word}"', word) for word in ("paint.", "caf\u00e9")],
    ('"paint"', "7", "7"),
    ('art = ["paint", "clay"]', 'art = [["paint"], "clay"]', "['paint']"),
    ('"sad"]', '"Sad"]', "'Sad'"),
    ('"egypt cairo"', '"egypt Cairo"', "'Cairo'"),
    ('"i like', '"I like', "'I'"),
    ("{party} .\",", "{party}.\",", "'{party}.'"),
]  # fmt: skip


# A second world that lacks a part, or has it in another kind.
PARTS = [
    ("[second.steps.end]\nsentences = 'fine .'", "sentences"),
    ("[second.steps.end]\nsentences = []", "sentences"),
    ("[second.steps.end]\nprobability = 1.0", "sentences"),
    ("[second.steps.end]\nsentences = ['fine .', 7]", "7"),
    ("[second.steps.end]\nsentences = [{ say = 'fine .', when.mood = 'glad' }]", "'sad'"),
    ("[second.steps.end]\nprobability = 0.5\nsentences = ['fine .']", "probability 1"),
    ("[second]\nsteps.end.sentences = ['fine .', '{day} .']", "'day'"),
    ("[second]\nsteps = ['fine .']", "steps"),
    ("[second]\nwords = ['fine']\nsteps.end.sentences = ['fine .']", "words"),
    ("[second]\nlatents = ['fine']\nsteps.end.sentences = ['fine .']", "latents"),
    ("[second.latents.day]\nfacts = 'day'\nrows = 7", "7"),
]
NOTHING = ["", "# a comment", "[films]", "[films]\nweight = 0\nsteps.end.sentences = ['fine .']"]


def second_world(wrong):
    latents = "[second.latents]\nmood = ['glad', 'sad']\n" if "second.steps" in wrong else ""
    return f"[first.steps.end]\nsentences = ['fine .']\n{wrong}\n{latents}"


FILES = {wrong: (FINE.replace(right, wrong, 1), named) for right, wrong, named in MISTAKES}
FILES |= {wrong: (second_world(wrong), named) for wrong, named in PARTS}
FILES |= {f"nothing: {text}": (text, "mine.toml") for text in NOTHING}


@pytest.fixture
def load(tmp_path):
    def load(text, **options):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return Grammar.load(tmp_path / "mine.toml", **options)

    return load


@pytest.mark.parametrize("text, named", FILES.values(), ids=FILES)
def test_a_mistake_is_refused_and_quoted(load, text, named):
    with pytest.raises(ValueError, match="mine.toml: ") as error:
        load(text)
    assert named in str(error.value).partition("mine.toml")[2] or named == "mine.toml"


def test_a_mistake_is_told_with_its_world_its_part_and_its_sentence(load):
    with pytest.raises(ValueError) as error:
        load(FINE.replace("{drink} .", "{drinks} ."))
    for part in ("'second'", "steps.opening", "in {country} they like {drinks} .", "'drinks'"):
        assert part in str(error.value)


def test_without_the_mistakes_the_grammar_is_fine(load):
    assert load(FINE).worlds == ["first", "second"]
    assert load(FINE.replace("second", "second-one")).worlds == ["first", "second-one"]
    assert all(right in FINE for right, _, _ in MISTAKES)


def test_a_file_that_is_no_text_or_missing_is_refused(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe[films]")
    with pytest.raises(ValueError, match="mine.toml"):
        Grammar.load(tmp_path / "mine.toml")
    with pytest.raises(FileNotFoundError, match="none.toml"):
        Grammar.load(tmp_path / "none.toml")


@pytest.mark.parametrize("worlds", ["third", ["first", "third"], ""])
def test_worlds_that_the_file_lacks_are_refused_with_those_it_has(load, worlds):
    with pytest.raises(ValueError, match="first, second"):
        load(FINE, worlds=worlds)


def test_what_is_read_is_plain_data():
    first, second = read_worlds(Path(__file__).parents[1] / "grammars" / "fine.toml")
    assert (first.name, first.weight, second.weight) == ("first", 1.0, 2)
    assert first.fillers == [{"a": 1.0}, {"good": 2 / 3, "bad": 1 / 3}, {"day": 1.0}, {".": 1.0}]
    ((probability, ((weight, places),)),) = first.steps
    assert probability == 1 and first.prior.tolist() == weight.tolist() == [1]
    assert places == [[0], [1], [2], [3]]
    # Four states: glad or sad, italy or egypt. The second sentence is for the glad ones.
    assert second.prior.tolist() == [0.25] * 4
    probability, sentences = second.steps[0]
    weights = torch.stack([weight for weight, _ in sentences])
    assert probability == 0.5
    assert weights.tolist() == [[0.2, 0.2, 0.5, 0.5], [0.6, 0.6, 0, 0], [0.2, 0.2, 0.5, 0.5]]
    numbers = sentences[1][1][1]
    assert [second.fillers[number] for number in numbers[:2]] == [{"italy": 1.0}, {"egypt": 1.0}]
    assert numbers[2:] == [-1, -1]


@pytest.mark.parametrize(
    "article, words",
    [
        ("an", "umbrella italian uncle hour heir eight 8 11 80 honest unimportant uninhabited"),
        ("a", "film user european unicorn one ukrainian 1 usual once"),
    ],
)
def test_the_article_goes_with_the_sound_and_not_with_the_letter(load, article, words):
    for word in words.split():
        grammar = load(
            f'[films]\nlatents.thing = ["{word}"]\nsteps.end.sentences = ["{{a:thing}} {{thing}}"]'
        )
        assert grammar.sample(1) == [[article, word]]
