"""Right and wrong solutions of the labs' tasks, and what our checks say of each.

`tests/answers/KEY.py` holds them, one block each, headed by a line of one of these forms:

    # %% 02.1 right: how it differs from the source's own solution
    # %% 02.1 wrong: the mistake, as a student makes it | words that the message must hold

`python tests/lab_answers.py` runs them all and writes the table in docs/labs.md;
`python tests/lab_answers.py 02` runs one lab's and prints what the checks say.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from classroom.lab import ROOT, Lab, labs, read_lab
from classroom.marker import as_json
from classroom.runner import RIGHT, execute, fresh_names, mark_task

HEAD = re.compile(r"^# %% (\w+\.\d+) (right|wrong): (.+)$", re.M)
DOCUMENT = ROOT / "docs" / "labs.md"


@dataclass(frozen=True)
class Answer:
    task: str
    right: bool
    what: str
    words: str  # that the message must hold; "" for a right one
    code: str


def answers_of(key: str) -> list[Answer]:
    text = (Path(__file__).parent / "answers" / f"{key}.py").read_text("utf-8")
    _, *pieces = HEAD.split(text)
    answers = []
    for task, kind, what, code in zip(*[iter(pieces)] * 4):
        what, _, words = what.partition(" | ")
        answers.append(Answer(task, kind == "right", what.strip(), words.strip(), code.strip()))
    return answers


def try_all(lab: Lab, answers: list[Answer]) -> dict[Answer, tuple[str, int, str]]:
    """What the checks say of each answer, where all tasks before it have the source's solution."""
    said, names = {}, fresh_names()
    for part in as_json(lab):
        if "given" in part:
            execute(part["given"], "given", names)
            continue
        for answer in answers:
            if answer.task == part["name"]:
                said[answer] = mark_task(part, [answer.code], dict(names))
        status, points, says = mark_task(part, [part["solution"]], names)
        assert status == RIGHT, f"the source's own solution of {part['name']}: {status}, {says}"
    return said


def fails(answer: Answer, said: tuple[str, int, str]) -> str:
    """Why the checks' word on an answer is not what it should be, or ""."""
    status, _, says = said
    if answer.right:
        return "" if status == RIGHT else f"a right answer is {status}: {says}"
    if status == RIGHT:
        return "a wrong answer passes"
    return "" if answer.words.lower() in says.lower() else f"the message lacks its words: {says}"


if __name__ == "__main__":
    for key in sys.argv[1:] or labs():
        lab = read_lab(labs()[key])
        for answer, said in try_all(lab, answers_of(key)).items():
            trouble = fails(answer, said)
            print("FAILS" if trouble else "ok   ", answer.task, f"({answer.what})", *said[::2])
            if trouble:
                print("     ", trouble)
