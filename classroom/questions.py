"""Six questions for each lesson, in `classroom/questions/NN.toml`: three stand on the lesson's page
of the site, three are for whoever teaches. A wrong option is a mistake that labs have seen made.

    [[question]]
    for = "site"                   # or "teacher"
    ask = "..."                    # Markdown, as all texts here
    right = "..."
    because = "..."                # why it is right

    [[question.wrong]]             # three of them
    say = "..."
    mistake = "02.3: kept positions carry no label"    # a task, and a mistake of its row in labs.md
    because = "..."

`python -m classroom.questions 02` prints the teacher's.
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


class NoQuestions(Refused):
    """The sentence says what a file of questions lacks, and where."""


@dataclass(frozen=True)
class Option:
    say: str
    because: str
    mistake: str  # "" for the right one


@dataclass(frozen=True)
class Question:
    reader: str  # one of READERS
    ask: str
    options: list[Option]  # in the order in which they are shown


def questions(number: str, reader: str = "", folder: Path = FOLDER) -> list[Question]:
    """The questions on a lesson, "02": all of them, or those for one of READERS.

    Raises:
        NoQuestions: a lesson without questions, or a file that breaks the form.
    """
    path = folder / f"{number}.toml"
    if not path.is_file():
        raise NoQuestions(f"there are no questions on lesson {number}")
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
    """A question as it stands in the file. Its options are shuffled, always in the same way."""
    if one["for"] not in READERS:
        raise ValueError(f"for = {one['for']!r}, and not one of {', '.join(READERS)}")
    options = [Option(joined(one["right"]), joined(one["because"]), "")]
    for wrong in one["wrong"]:
        options.append(Option(joined(wrong["say"]), joined(wrong["because"]), wrong["mistake"]))
    random.Random(one["ask"]).shuffle(options)
    return Question(one["for"], joined(one["ask"]), options)


def joined(text: str) -> str:
    """A text with a line for each paragraph, where it was wrapped; fenced code as it is."""
    parts = text.strip().split("```")
    parts[::2] = [re.sub(r"(?<=[^\n])\n(?=[^\n])", " ", part) for part in parts[::2]]
    return "```".join(parts)


def sheet(number: str) -> str:
    """The teacher's questions on a lesson in Markdown, with their key after them.

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
    print(sheet(sys.argv[1]))
