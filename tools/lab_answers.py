"""Tries the checks of the labs on right and on wrong answers, and says where a check is wrong.

`tests/answers/KEY.diff` holds the answers to the lab KEY. Each answer is a block of lines, and the
first line of a block has one of these forms:

    # %% 02.1 right: how it differs from the source's own solution
    # %% 02.1 wrong: the mistake, as a student makes it | words that the message must hold

A block is a change of our own solution, whose docstrings and comments are removed before. A line
that begins with - is deleted, and a line that begins with + is inserted. A line that begins with a
space is kept and says where the change is. In a kept line [-this-] is deleted and {+this+} is
inserted. A deleted or kept line must be the next line of the solution, or must occur in it only
once. At the end of a block there may be whole functions or classes. Each replaces the one of the
same name, or is added at the end.

    # %% 02.1 whole right: ...

A block with this form holds a whole answer. The blocks of the same task below it are changes of
this answer.

    # %% 02.1 start

A block with this form holds a text that is not an answer. The blocks of the same task below it are
changes of this text.

`python tools/lab_answers.py 02` tries the answers to one lab and prints what the checks say, with
the whole text of each answer on which the checks are wrong. With `--write` it tries the answers to
all labs and writes docs/labs.md.
"""

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from classroom.lab import ROOT, Given, Lab, Task, joined, labs, read_lab, read_notebook
from classroom.marker import RIGHT, Tried, try_task
from classroom.runner import attempt, execute, fresh_names

HEAD = re.compile(r"^# %% (\w+\.\d+) (whole )?(start|right|wrong)(?:: (.+))?$", re.M)
MARKS = re.compile(r"\[-(.*?)-\]|\{\+(.*?)\+\}")
DEFINITION = re.compile(r"^(?:@.+\n)*(?:def|class) (\w+).*(?:\n+[ \t)\]}].*)*", re.M)
FOLDER = ROOT / "tests" / "answers"
TOP = """# The labs' checks, checked

This page is for a teacher who wants to know which wrong answers the checks of the labs catch, and
how far a mark can be trusted. For each task it lists the mistakes on which the checks were tried.
Look up a task before you teach it, to see what students may do wrong, or when a student disputes a
mark.

## How the checks were tried

Each task's checks are tried on wrong answers, of the kinds that students write, and on right
answers that are written in another way than our own solution. A wrong answer counts as caught if
it fails with a message that names its mistake. A right answer has to pass with every point. In all,
the checks are tried on {wrong} wrong answers and {right} right ones. The tests of the course try
all of them again.

Many of these answers were written by people who had not seen the checks. They worked from the
students' editions of the labs. The first five rounds had the labs 02, 03, 05, 07, 10, 11, 12, 14,
15, 18 and, from the third round on, 19. The sixth round had the labs 02 to 07, 10 to 13 and 17.
Before each new round the checks were mended, so that they caught what they had missed.

| round | wrong: caught at first | after mending | right: passed at first | after mending |
|---|---|---|---|---|
| first round | 187 of 233 | 233 | 138 of 147 | 145 |
| second round, other people | 89 of 98 | 98 | 96 of 96 | 96 |
| third round, others again | 147 of 159 | 159 | 53 of 53 | 53 |
| fourth round, others again | 154 of 159 | 158 | 53 of 53 | 53 |
| fifth round, others again | 195 of 201 | 201 | 71 of 71 | 71 |
| sixth round, others again | 653 of 790 | 781 | 149 of 158 | 158 |

In the sixth round the writers looked for edge cases on purpose, such as a batch of one, a padding
in the middle, a very large number or a second call. So more of their answers passed at first. Of
the answers that were caught, the message named the mistake of 477 at first, and of 755 after
mending.

After the fifth round, two of these people went on. They knew by then what the messages of the
checks say, and found some forty mistakes that passed. Most of these were at the edges: a batch of
one row, a loss of 0, the first block. By now 35 of them are caught, and the others still pass.

The tests keep only two to four right answers for each task. So they try fewer right answers than
the table shows.

## What the checks do not catch

- **Expect a few plausible mistakes in a hundred to pass.** In the fourth and fifth round, 11 of 360
  wrong answers passed at first. Of the edge cases of the sixth round every sixth one did.
- Of the nine answers of the sixth round that still pass, eight count as right here, because the
  task does not forbid what they do. The ninth, in task 02.3, draws with shares of 205, 25 and 26 in
  256 in place of 80%, 10% and 10%, a difference that a quick check cannot see.
- One wrong answer of the first five rounds still passes. It seeds a generator with a hash of two
  numbers. Two different pairs of numbers can have the same hash, but this is so rare that the
  checks do not see it.
- Two right answers still fail, because they keep more in memory than their task allows.
- Two answers of the fifth round count as right here, although the people who wrote them meant them
  to be wrong, because the same answer had been accepted in an earlier round. One uses `casefold`
  in task 10.1, and the other counts rows that get no gradient in task 12.4.

## The mistakes, task by task

Each line below names one mistake that the checks of its task catch. In the exhibits of the bug zoo,
an answer has two parts: a check that has to prove the mistake of the program, and the mended
program. There a line names what is wrong with the one or the other.
"""
DOCUMENT = ROOT / "docs" / "labs.md"


@dataclass(frozen=True)
class Answer:
    """An answer to a task, and what the checks should say about it."""

    task: str
    right: bool
    what: str
    words: str  # that the message must hold; "" for a right answer
    code: str


def answers_of(key: str) -> list[Answer]:
    """The answers to one lab."""
    bases = {task.name: plain(task.solution) for task in read_lab(labs()[key]).tasks}
    return read_answers((FOLDER / f"{key}.diff").read_text("utf-8"), bases)


def read_answers(text: str, bases: dict[str, str]) -> list[Answer]:
    """The answers of a file. `bases` holds for each task the text that the blocks change.

    Raises:
        ValueError: a change does not fit, or fits in several places. The message names the answer.
    """
    before, *pieces = HEAD.split(text)
    if before.strip():
        raise ValueError(f"a block begins with # %%, not with {before.splitlines()[0]!r}")
    bases, answers = dict(bases), []
    for task, whole, kind, what, code in zip(*[iter(pieces)] * 5):
        what, _, words = (what or "").partition(" | ")
        code = code.strip("\n")
        if whole or kind == "start":
            bases[task] = code
        else:
            try:
                code = changed(bases[task], code)
            except ValueError as error:
                raise ValueError(f"{task} ({what}): {error}") from None
        if kind != "start":
            answers.append(Answer(task, kind == "right", what.strip(), words.strip(), code))
    return answers


def plain(solution: str) -> str:
    """A solution without docstrings and comments, as a student writes it."""
    text = re.sub(r"^[ \t]*#.*\n?|[ \t]+# .*$", "", solution, flags=re.M)
    return re.sub(r'^[ \t]+""".*?"""\n', "", text, flags=re.M | re.S).strip()


def changed(base: str, change: str) -> str:
    """The text `base` after the change of a block."""
    start = DEFINITION.search(change)
    end = start.start() if start else len(change)
    text = with_lines(base, change[:end].splitlines())
    if rest := DEFINITION.sub("", change[end:]).strip():
        raise ValueError(f"neither a line of a change nor of a definition: {rest.splitlines()[0]}")
    for new in DEFINITION.finditer(change, end):
        old = next((old for old in DEFINITION.finditer(text) if old[1] == new[1]), None)
        if old is None:
            text = f"{text}\n\n\n{new[0]}"
        else:
            text = text[: old.start()] + new[0] + text[old.end() :]
    if text == base:
        raise ValueError("nothing is changed")
    return text


def with_lines(base: str, change: list[str]) -> str:
    """The text `base` after the deleted and inserted lines of a block."""
    old, new, place = base.splitlines(), [], 0  # `place`: how many of the old lines are done
    for sign, line in [(line[0], line[1:]) for line in change if line]:
        if sign == "+":
            new.append(line)
            continue
        if sign not in "- ":
            raise ValueError(f"neither a line of a change nor of a definition: {sign}{line}")
        looked_for = MARKS.sub(lambda mark: mark[1] or "", line)
        follows = old[place : place + 1] == [looked_for]
        found = place if follows else old.index(looked_for) if looked_for in old else -1
        if found < place or not follows and old.count(looked_for) > 1:
            raise ValueError(f"not found once, after the line before it: {looked_for}")
        new += old[place:found]
        if sign == " ":
            new.append(MARKS.sub(lambda mark: mark[2] or "", line))
        place = found + 1
    return "\n".join(new + old[place:]).strip()


def try_all(lab: Lab, answers: list[Answer]) -> dict[Answer, tuple[str, int, str]]:
    """What the checks say about each answer. All tasks before it have our own solution."""
    said, names = {}, fresh_names()
    with contextlib.redirect_stdout(io.StringIO()):  # outside of a notebook figures print a text
        for part in lab.parts:
            if isinstance(part, Given):
                execute(part.code, "given", names)
                continue
            for answer in answers:
                if answer.task == part.name:
                    said[answer] = judged(part, answer.code, dict(names))
            execute(part.solution, "solution", names)
            for check in part.checks:
                try:
                    execute(check.code, f"check {part.name}", names)
                except Exception as error:
                    raise AssertionError(f"our own solution of {part.name} fails") from error
    return said


def judged(task: Task, code: str, names: dict) -> tuple[str, int, str]:
    """The status, the points and the message of an answer, which is marked in this process."""
    one = Tried(task, [code])
    try_task(one, lambda cells, label: (attempt(*cells, label, names), 0.0))
    return one.mark.status, one.mark.points, one.mark.says


def fails(answer: Answer, said: tuple[str, int, str]) -> str:
    """How the checks are wrong about an answer, or "" if they are right."""
    status, _, says = said
    if answer.right:
        return "" if status == RIGHT else f"a right answer is {status}: {says}"
    if status == RIGHT:
        return "a wrong answer passes"
    return "" if answer.words.lower() in says.lower() else f"the message lacks its words: {says}"


def section(lab: Lab, said: dict[Answer, tuple[str, int, str]]) -> str:
    """The section of docs/labs.md on a lab. For each task it says how many wrong answers are caught
    and how many right answers pass, and lists the mistakes that were tried."""
    heading = read_notebook(lab.path)["cells"][0]
    title = joined(heading).splitlines()[0].removeprefix("# ")
    lines = [f"## [{title}](notebooks/labs/{lab.path.name})"]
    for task in lab.tasks:
        mine = [answer for answer in said if answer.task == task.name]
        good = [answer for answer in mine if not fails(answer, said[answer])]
        counts = [
            sum(answer.right == right for answer in answers)
            for right in (False, True)
            for answers in (mine, good)
        ]
        tried, caught, right, passed = counts
        lines += [
            f"### {task.name} {task.title}",
            f"Caught: {caught} of {tried} wrong answers. Passed: {passed} of {right} right ones.",
            "\n".join(f"- {answer.what}" for answer in mine if not answer.right),
        ]
    return "\n\n".join(lines)


def document(tried: dict[str, tuple[Lab, dict]]) -> str:
    """The text of docs/labs.md."""
    answers = [answer for _, said in tried.values() for answer in said]
    right = sum(answer.right for answer in answers)
    top = TOP.format(wrong=len(answers) - right, right=right)
    return "\n".join([top, *(f"{section(lab, said)}\n" for lab, said in tried.values())])


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
                print(f"      {trouble}\n{answer.code}")
    if "--write" in sys.argv:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(document(tried), "utf-8", newline="\n")
