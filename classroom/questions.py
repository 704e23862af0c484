"""Reads the six questions on each lesson from `classroom/questions/NN.toml`. Three of them are
shown in the lesson and on its page of the site, and three are for the teacher. A wrong option is a
mistake that students make in the labs.

    [[question]]
    for = "site"                   # or "teacher"
    ask = "..."                    # all texts are Markdown
    right = "..."
    because = "..."                # why it is right

    [[question.wrong]]             # three of them
    say = "..."
    mistake = "02.3: kept positions carry no label"    # a task, and a mistake in its row of labs.md
    because = "..."

`python -m classroom.questions 02` prints the questions for the teacher.
"""

import random
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from classroom.lab import Refused

FOLDER = Path(__file__).with_name("questions")
READERS = ("site", "teacher")
HEADING = "## Three questions"  # of their section, in a lesson and on its page
INTRODUCTION = "Each wrong option is a mistake that one can make in the labs."


class NoQuestions(Refused):
    """A file of questions is missing or breaks the form. The sentence says what is wrong, and
    where."""


@dataclass(frozen=True)
class Option:
    """An answer that a question offers, and why it is right or wrong."""

    say: str
    because: str
    mistake: str  # "" for the right answer


@dataclass(frozen=True)
class Question:
    """A multiple-choice question."""

    reader: str  # one of READERS
    ask: str
    options: list[Option]  # in the order in which they are shown


def questions(number: str, reader: str = "", folder: Path = FOLDER) -> list[Question]:
    """The questions on a lesson.

    Args:
        number: the number of the lesson, such as "02".
        reader: "site", which also stands for the lesson itself, or "teacher". Without it, the
            questions for both.
        folder: where the files are.

    Raises:
        NoQuestions: the lesson has no file of questions, or the file breaks the form.
    """
    path = folder / f"{number}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
        here = f"lessons with questions: {known}" if known else "this copy of the course has none"
        raise NoQuestions(f"there are no questions on lesson {number}; {here}")
    try:
        asked = tomllib.loads(path.read_text("utf-8"))["question"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise NoQuestions(f"{path.name} holds no [[question]] that can be read: {error}") from None
    found = []
    for place, one in enumerate(asked, 1):
        try:
            found.append(read(one))
        except (KeyError, TypeError, ValueError) as error:
            told = f"{error} is missing" if isinstance(error, KeyError) else error
            raise NoQuestions(f"{path.name}, question {place}: {told}") from None
    return [one for one in found if reader in ("", one.reader)]


def read(one: dict) -> Question:
    """A question from its table in the file. Its options are shuffled, always in the same way."""
    if one["for"] not in READERS:
        raise ValueError(f"for = {one['for']!r}, and not one of {', '.join(READERS)}")
    options = [Option(joined(one["right"]), joined(one["because"]), "")]
    for wrong in one["wrong"]:
        options.append(Option(joined(wrong["say"]), joined(wrong["because"]), wrong["mistake"]))
    random.Random(one["ask"]).shuffle(options)
    return Question(one["for"], joined(one["ask"]), options)


def joined(text: str) -> str:
    """A text whose wrapped lines are joined, so that each paragraph is one line. Fenced code stays
    as it is."""
    parts = text.strip().split("```")
    parts[::2] = [re.sub(r"(?<=[^\n])\n(?=[^\n])", " ", part) for part in parts[::2]]
    return "```".join(parts)


def sheet(number: str) -> str:
    """The teacher's questions on a lesson in Markdown, and after them the right answers.

    Raises:
        NoQuestions: as `questions`.
    """
    asked = questions(number, "teacher")
    lines, key = [f"# Lesson {number}: {len(asked)} questions"], ["# Key"]
    for place, question in enumerate(asked, 1):
        options = list(zip("ABCD", question.options))
        lines += [f"## {place}", question.ask]
        lines += ["\n".join(f"- {letter}. {option.say}" for letter, option in options)]
        (right,) = [letter for letter, option in options if not option.mistake]
        key += [f"## {place}: {right}"]
        key += ["\n".join(f"- {letter}. {option.because}" for letter, option in options)]
    return "\n\n".join(lines + key) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name one lesson: python -m classroom.questions 02")
    try:
        print(sheet(sys.argv[1].zfill(2)))
    except NoQuestions as error:
        sys.exit(str(error))
