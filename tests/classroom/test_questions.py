"""The questions on the lessons: their form, and that a wrong option is a mistake labs have met."""

import re
from pathlib import Path

import pytest

from classroom.lab import ROOT
from classroom.questions import READERS, NoQuestions, questions, sheet

NUMBERS = [path.name[:2] for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]
MISTAKES = {  # {"02.3": [...]}, and "zoo.4"
    task: re.findall(r"^- (.+)$", told, re.M)
    for task, told in re.findall(
        r"^### (\w+\.\d+) .*\n((?:(?!##).*\n)*)", (ROOT / "docs/labs.md").read_text("utf-8"), re.M
    )
}

every_lesson = pytest.mark.parametrize("number", NUMBERS)


@every_lesson
def test_three_are_for_the_site_and_three_for_whoever_teaches(number):
    for reader in READERS:
        asked = questions(number, reader)
        assert len(asked) == 3
        assert [sum(not option.mistake for option in one.options) for one in asked] == [1, 1, 1]
    assert len({one.ask for one in questions(number)}) == 6


@every_lesson
def test_a_wrong_option_is_a_mistake_that_labs_have_met(number):
    unknown = []
    for option in (option for one in questions(number) for option in one.options):
        task, _, mistake = option.mistake.partition(": ")
        if option.mistake and mistake not in MISTAKES.get(task, []):
            unknown.append(option.mistake)
    assert unknown == [], "not in docs/labs.md"


@every_lesson
def test_four_options_differ_and_nothing_is_empty(number):
    for one in questions(number):
        says = [option.say for option in one.options]
        assert len(set(says)) == 4, one.ask
        assert all([one.ask, *says, *(option.because for option in one.options)]), one.ask


def test_the_right_option_stands_at_no_favourite_place():
    places = [[not o.mistake for o in q.options].index(True) for n in NUMBERS for q in questions(n)]
    assert all(places.count(place) > len(places) / 6 for place in range(4)), "a fair share is 1/4"


def test_wrapped_lines_are_joined_and_code_is_not(tmp_path):
    write(
        tmp_path, ask="What\ndoes this print?\n\n```python\nx = 1\nprint(x)\n```\nIn\none word.\n"
    )
    (one,) = questions("00", folder=tmp_path)
    code = "```python\nx = 1\nprint(x)\n```"
    assert one.ask == f"What does this print?\n\n{code}\nIn one word."


FORM = '''[[question]]
for = "{reader}"
ask = """{ask}"""
right = "yes"
because = "so it is"
{wrong}
'''
WRONG = '[[question.wrong]]\nsay = "{}"\nmistake = "{}"\nbecause = "it is not"\n'


def write(folder: Path, *, reader="site", ask="Is it?", wrong=WRONG.format("no", "02.1: x")):
    (folder / "00.toml").write_text(FORM.format(reader=reader, ask=ask, wrong=wrong), "utf-8")


@pytest.mark.parametrize(
    "change, told",
    [
        ({"reader": "all"}, "00.toml, question 1: for = 'all', and not one of site, teacher"),
        ({"wrong": ""}, "00.toml, question 1: 'wrong' is missing"),
        ({"wrong": "[[question.wrong]]\nsay = 'no'"}, "question 1: 'because' is missing"),
        ({"wrong": "[[question"}, "00.toml holds no .* that can be read"),
    ],
)
def test_a_file_that_breaks_the_form_is_told_in_a_sentence(tmp_path, change, told):
    write(tmp_path, **change)
    with pytest.raises(NoQuestions, match=told):
        questions("00", folder=tmp_path)


def test_a_lesson_without_questions_is_told_in_a_sentence(tmp_path):
    with pytest.raises(NoQuestions, match="no questions on lesson 99; lessons with .*: 00, 01"):
        sheet("99")
    with pytest.raises(NoQuestions, match="this copy of the course has none"):
        questions("02", folder=tmp_path)


def test_the_sheet_keeps_its_key_for_the_end():
    asked, key = sheet("02").split("# Key")
    for place, one in enumerate(questions("02", "teacher"), 1):
        assert one.ask in asked and one.ask not in key
        for letter, option in zip("ABCD", one.options):
            assert f"- {letter}. {option.say}\n" in asked
            assert f"- {letter}. {option.because}\n" in key and option.because not in asked
            if not option.mistake:
                assert f"## {place}: {letter}" in key
