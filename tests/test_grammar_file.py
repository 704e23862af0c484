"""A grammar file that is wrong is refused by name and line; a right one becomes plain data."""

import doctest
import re
from pathlib import Path

import pytest
import torch

from mlm_lib.engine import grammar_file
from mlm_lib.engine.grammar_file import read_worlds
from mlm_lib.grammar import Grammar

FINE = (Path(__file__).parent / "grammars" / "fine.toml").read_text(encoding="utf-8")
FACTS = '"country capital"\nrows = [\n  "italy rome",\n  "egypt cairo",\n]'

# What stands in FINE, what a user wrote instead, and what the message must name beside the line.
MISTAKES = [
    # not TOML, or not the shape of a grammar
    ("weight = 2", "weight = = 2", "TOML"),
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
    ("{opinion|mood} .", "{opinion} .", "{opinion|latent}"),
    ("{country.capital} was", "{country.river} was", "'country.river'"),
    ("{drink} .", "{drink|mood} .", "{drink|mood}"),
    ("{country} they", "{country|mood} they", "'country' is not a list"),
    ("{drink} .", "{a:drink} .", "'drink' is a list"),
    ("{drink} .", "{drink .", "'{drink'"),
    ("{drink} .", "{drink}s .", "'{drink}s'"),
    ('when.mood = "glad"', 'when.moods = "glad"', "'moods'"),
    ('when.mood = "glad"', 'when.mood = "angry"', "'angry'"),
    (
        "when.mood",
        'when.country.country = "italy", when.country.capital = "cairo", when.mood',
        "no choice of the latents ever leads to",
    ),
    # lists and latents that are empty, doubled, or cannot be drawn
    ('["paint", "clay"]', "[]", "'art'"),
    ('["poor", "weak"]', "[]", "opinion"),
    ('["glad", "sad"]', "[]", "'mood'"),
    ('art = ["paint", "clay"]', 'art = ["paint", "clay", "paint"]', "'art'"),
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
    ("{ tea = 3, juice = 2 }", "{ tea = 0, juice = 0 }", "'drink'"),
    ('["glad", "sad"]', "{ glad = 0, sad = 0 }", "'mood'"),
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


@pytest.fixture
def load(tmp_path):
    def load(text, **options):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return Grammar.load(tmp_path / "mine.toml", **options)

    return load


def complaint(load, text):
    """The message about a file, without its path and line; and the line that it names."""
    with pytest.raises(ValueError, match="mine.toml") as error:
        load(text)
    message = str(error.value).partition("mine.toml")[2]
    return re.sub(r"line \d+", "", message), int(re.search(r"line (\d+)", message)[1])


def line_of(part, text):
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize("right, wrong, named", MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_a_mistake_is_named_with_its_line(load, right, wrong, named):
    message, line = complaint(load, FINE.replace(right, wrong, 1))
    assert named in message and line == line_of(right, FINE), message


def test_without_the_mistakes_the_grammar_is_fine(load):
    assert load(FINE).worlds == ["first", "second"]
    assert all(right in FINE for right, _, _ in MISTAKES)


PARTS = [
    ('[second.steps.end]\nsentences = "fine ."', "sentences"),
    ("[second.steps.end]\nsentences = []", "sentences"),
    ("[second.steps.end]\nprobability = 1.0", "sentences"),
    ('[second.steps.end]\nsentences = ["fine .", 7]', "7"),
    ('[second.steps.end]\nsentences = [{ say = "fine .", when.mood = "glad" }]', "'sad'"),
    ('[second.steps.end]\nprobability = 0.5\nsentences = ["fine ."]', "probability 1"),
    ('[second]\nsteps.end.sentences = ["fine .", "{day} ."]', "'day'"),
    ('[second]\nsteps = ["fine ."]', "steps"),
    ('[second]\nwords = ["fine"]\nsteps.end.sentences = ["fine ."]', "words"),
    ('[second]\nlatents = ["fine"]\nsteps.end.sentences = ["fine ."]', "latents"),
    ('[second.latents.day]\nfacts = "day"\nrows = 7', "7"),
]


@pytest.mark.parametrize("wrong, named", PARTS, ids=[wrong for wrong, _ in PARTS])
def test_a_part_that_is_lacking_or_of_the_wrong_kind_is_placed_in_its_world(load, wrong, named):
    latents = '[second.latents]\nmood = ["glad", "sad"]\n' if "second.steps" in wrong else ""
    message, line = complaint(
        load, f'[first.steps.end]\nsentences = ["fine ."]\n\n{wrong}\n{latents}'
    )
    assert named in message and "second" in message and line >= 4, message


@pytest.mark.parametrize(
    "text",
    ["", "# only a comment", "[films]", "[films]\nweight = 0\nsteps.end.sentences = ['fine .']"],
)
def test_a_file_without_anything_to_draw_is_refused(load, text):
    complaint(load, text)


def test_a_world_may_have_a_dash_in_its_name_and_still_finds_its_lines(load):
    text = FINE.replace("second", "second-one").replace("{opinion|mood}", "{opinion|moods}")
    assert complaint(load, text)[1] == line_of("moods", text)


def test_a_file_that_is_no_text_or_missing_is_refused_by_name(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe[films]")
    for name, kind in (
        ("mine.toml", ValueError),
        ("none.toml", FileNotFoundError),
        (".", FileNotFoundError),
    ):
        with pytest.raises(kind, match=re.escape(str(tmp_path / name))):
            Grammar.load(tmp_path / name)


def test_what_is_read_is_plain_data(load):
    load(FINE)
    first, second = read_worlds(Path(__file__).parent / "grammars" / "fine.toml")
    assert (first.name, first.weight, second.weight) == ("first", 1.0, 2)
    assert first.fillers == [{"a": 1.0}, {"good": 2 / 3, "bad": 1 / 3}, {"day": 1.0}, {".": 1.0}]
    (step,) = first.steps
    assert step.probability == 1 and first.prior.tolist() == step.sentences[0].weight.tolist() == [
        1
    ]
    assert step.sentences[0].places == [[0], [1], [2], [3]]
    # Four states: glad or sad, italy or egypt. The second sentence is for the glad ones.
    assert second.prior.tolist() == [0.25] * 4
    opening = second.steps[0]
    assert opening.probability == 0.5
    weights = torch.stack([sentence.weight for sentence in opening.sentences])
    assert weights.tolist() == [[0.2, 0.2, 0.5, 0.5], [0.6, 0.6, 0, 0], [0.2, 0.2, 0.5, 0.5]]
    countries = [second.fillers[number] for number in opening.sentences[1].places[1][:2]]
    assert countries == [{"italy": 1.0}, {"egypt": 1.0}]
    assert opening.sentences[1].places[1][2:] == [-1, -1]


@pytest.mark.parametrize("path", ["", None, 7, True])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match=f"^path={path!r}; "):
        read_worlds(path)


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(grammar_file).failed == 0


@pytest.mark.parametrize(
    "worlds", ["third", ["first", "third"], [], (), "", 7, [None], [["first"]]]
)
def test_worlds_that_the_file_lacks_are_refused_with_those_it_has(load, worlds):
    with pytest.raises(ValueError, match="first, second"):
        load(FINE, worlds=worlds)


@pytest.mark.parametrize(
    "article, words",
    [
        ("an", "umbrella italian uncle hour heir eight 8 11 80"),
        ("a", "film user european unicorn one ukrainian 1"),
        ("an", "honest unimportant uninhabited"),
        ("a", "usual once"),
    ],
)
def test_the_article_goes_with_the_sound_and_not_with_the_letter(load, article, words):
    for word in words.split():
        grammar = load(
            f'[films]\nlatents.thing = ["{word}"]\nsteps.end.sentences = ["{{a:thing}} {{thing}}"]'
        )
        assert grammar.sample(1) == [[article, word]]
