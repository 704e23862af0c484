"""Right and wrong solutions of the labs' tasks, and what our checks say of each.

`tests/answers/KEY.py` holds them, one block each, headed by a line of one of these forms:

    # %% 02.1 right: how it differs from the source's own solution
    # %% 02.1 wrong: the mistake, as a student makes it | words that the message must hold

`python tests/lab_answers.py 02` runs one lab's and prints what the checks say;
`python tests/lab_answers.py --write` runs all and writes docs/labs.md.
"""

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from classroom.lab import ROOT, Lab, labs, read_lab
from classroom.marker import as_json
from classroom.runner import RIGHT, execute, fresh_names, mark_task

HEAD = re.compile(r"^# %% (\w+\.\d+) (right|wrong): (.+)$", re.M)
TOP = """# The labs' checks, checked

Each task's checks are tried on right and on wrong answers, of the kinds that students write. A
wrong answer counts as caught when it fails with a message that names its mistake. A right one is
written in another way than our own solution. `python tests/lab_answers.py --write` wrote this page.
"""
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
    with contextlib.redirect_stdout(io.StringIO()):  # figures print themselves outside a notebook
        for part in as_json(lab):
            if "given" in part:
                execute(part["given"], "given", names)
                continue
            for answer in answers:
                if answer.task == part["name"]:
                    said[answer] = mark_task(part, [answer.code], dict(names))
            # Each in a copy: nothing may build on what a check has defined, not even the next one.
            for check in part["checks"]:
                one = part | {"checks": [check]}
                status, _, says = mark_task(one, [part["solution"]], dict(names))
                assert status == RIGHT, f"our own solution of {part['name']} is {status}: {says}"
            execute(part["solution"], "solution", names)
    return said


def fails(answer: Answer, said: tuple[str, int, str]) -> str:
    """Why the checks' word on an answer is not what it should be, or ""."""
    status, _, says = said
    if answer.right:
        return "" if status == RIGHT else f"a right answer is {status}: {says}"
    if status == RIGHT:
        return "a wrong answer passes"
    return "" if answer.words.lower() in says.lower() else f"the message lacks its words: {says}"


def rows(lab: Lab, said: dict[Answer, tuple[str, int, str]]) -> list[str]:
    """The table's rows: a task, the wrong answers tried and caught, the right ones that passed."""
    lines = []
    for task in lab.tasks:
        mine = [answer for answer in said if answer.task == task.name]
        good = [answer for answer in mine if not fails(answer, said[answer])]
        counts = [
            sum(answer.right == right for answer in answers)
            for right in (False, True)
            for answers in (mine, good)
        ]
        tried, caught, right, passed = counts
        mistakes = "; ".join(answer.what for answer in mine if not answer.right)
        title = task.title.replace("|", "/")
        lines.append(
            f"| {task.name} {title} | {caught} of {tried} | {passed} of {right} | {mistakes} |"
        )
    return lines


def document(tried: dict[str, tuple[Lab, dict]]) -> str:
    lines = [TOP, "| task | wrong answers caught | right ones passed | the mistakes |"]
    lines += ["|---|---|---|---|"]
    for lab, said in tried.values():
        lines += rows(lab, said)
    answers = [answer for _, said in tried.values() for answer in said]
    right = sum(answer.right for answer in answers)
    wrong = len(answers) - right
    return "\n".join([*lines, "", f"In all: {wrong} wrong answers and {right} right ones.", ""])


if __name__ == "__main__":
    keys = [key for key in sys.argv[1:] if key != "--write"] or list(labs())
    tried = {}
    for key in keys:
        lab = read_lab(labs()[key])
        tried[lab.key] = lab, try_all(lab, answers_of(key))
        for answer, said in tried[lab.key][1].items():
            trouble = fails(answer, said)
            print("FAILS" if trouble else "ok   ", answer.task, f"({answer.what})", *said[::2])
            if trouble:
                print("     ", trouble)
    if "--write" in sys.argv:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(document(tried), "utf-8", newline="\n")
