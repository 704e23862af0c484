"""Marks one notebook: tries the answer to each task, in processes that are stopped if they exceed a
limit.

The points of a task do not depend on how busy the machine is, or on where a program was when it was
stopped. If a process is stopped or ends while other answers are in it, nobody can tell whose fault
that is. Each answer that may have caused it is then tried alone: in a new process, in which our
solutions are in the places of all other answers. What happens there decides.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from classroom.cells import STOPPED, Cells, Limits, Stopped
from classroom.lab import Given, Lab, Refused, Submission, Task
from classroom.runner import ERROR, UNANSWERED, WRONG

RIGHT, MISSING = "right", "missing"
RAN = {RIGHT, WRONG, UNANSWERED}  # with every other status the answer could not be run
SET_UP = 180  # seconds for the lab's first cell, which imports torch
# How much of an answer is executed in the next process, once its mark is known. A later answer may
# need what an earlier one imports or defines, even if our solution replaces the earlier answer.
NOTHING, DEFINITIONS, WHOLE = range(3)


@dataclass(frozen=True)
class Mark:
    """The mark of one task."""

    task: str
    points: int
    possible: int
    status: str
    says: str  # the message of each check that failed, a line each
    seconds: float = 0.0  # as `cells.Clock` counts them

    @property
    def told(self) -> str:
        return f"{self.status}: {self.says}" if self.says else self.status


@dataclass
class Tried:
    """What is known so far about the answer to a task. A fault is None if nothing went wrong."""

    task: Task
    cells: list[str] | None
    text: str = ""  # the kind of a cell that has the task's mark and is not a code cell
    seconds: float = 0.0
    ran: bool = False
    answer: dict | None = None  # the fault of the student's cells
    checks: list[dict | None] = field(default_factory=list)  # the faults of the checks so far
    afterwards: dict | None = None  # the fault in a later given cell, after all checks had passed
    kept: int = WHOLE  # how much of the answer is executed from now on
    suspected: bool = False  # whether it may have caused a stop, and is to be tried alone

    @property
    def mark(self) -> Mark | None:
        """The mark, or None as long as it is not known."""
        task, whole = self.task, self.afterwards
        waits = bool(self.answer) and self.answer["kind"] == UNANSWERED
        if not self.cells:
            whole = {"kind": MISSING, "says": self.missing()}
        elif self.answer and not waits:
            whole = self.answer
        elif not self.ran or len(self.checks) < len(task.checks):
            return None
        if whole:
            return Mark(task.name, 0, task.points, whole["kind"], whole["says"], self.seconds)
        tried = list(zip(task.checks, self.checks))
        points = sum(check.points for check, fault in tried if not fault)
        # A task may ask for two functions, of which the student has written one. The missing one
        # makes checks fail with a NameError, which counts as unanswered and not as an error.
        faults = [
            (check.label, self.answer if waits and fault["kind"] == ERROR else fault)
            for check, fault in tried
            if fault
        ]
        kinds = [fault["kind"] for _, fault in faults]
        status = next((k for k in kinds if k != UNANSWERED), UNANSWERED if kinds else RIGHT)
        if status == UNANSWERED and not points:
            faults = [("", faults[0][1])]
        says = "\n".join(f"{label}: {f['says']}".removeprefix(": ") for label, f in faults)
        return Mark(task.name, points, task.points, status, says, self.seconds)

    @property
    def right(self) -> bool:
        return bool(self.mark) and self.mark.status == RIGHT

    def missing(self) -> str:
        """The message that no code cell answers the task."""
        mark = f"the mark # TASK {self.task.name}"
        if not self.text:
            return f"no cell has {mark}"
        return (
            f"the cell with {mark} is there as text, because its type is {self.text}: select the "
            f"cell, choose Code in place of {self.text} in the toolbar, save, and hand it in again"
        )


def mark(lab: Lab, submission: Submission, limits: Limits = Limits()) -> list[Mark]:
    """The marks of a submission, one for each task of the lab.

    If an answer has to be stopped, only this answer loses its points. The other tasks are marked in
    a new process.

    Raises:
        Refused: the lab's own cells fail, or Ctrl-C was pressed.
    """
    lab = replace(lab, parts=list(lab.parts))  # a cell may be taken out of it
    answers, texts = submission.answers, submission.texts
    known = {
        task.name: Tried(task, answers.get(task.name), texts.get(task.name, ""))
        for task in lab.tasks
    }

    def ends(alone: Tried | None = None) -> bool:
        """Whether a new process gets to the end of the lab without being stopped."""
        with Cells(limits, submission.loose) as cells, contextlib.suppress(Stopped):
            walk(lab, known, cells.run, alone)
            return True
        return False

    while not ends():
        for one in [one for one in known.values() if one.suspected]:
            while one.kept == WHOLE and (one.right or not one.mark) and not ends(alone=one):
                pass
            one.kept, one.suspected = min(one.kept, DEFINITIONS), False
    return [one.mark for one in known.values()]


def walk(lab: Lab, known: dict[str, Tried], run: Callable, alone: Tried | None = None) -> None:
    """Execute a lab from its first cell on, and try the tasks whose mark is not known yet.

    Args:
        known: what is known about each task; it is completed.
        run: executes cells, as `Cells.run`.
        alone: the only task that is tried, with our solutions in the places of all other answers.

    Raises:
        Stopped: the process has ended. `known` holds more than before, and the caller goes on with
            a new process.
    """
    before: list[Tried] = []
    for part in lab.parts:
        if isinstance(part, Given):
            given(part, before, run, lab, alone)
            continue
        one = known[part.name]
        own = one is alone if alone else one.kept == WHOLE  # whether the answer is executed whole
        if own and not one.mark:
            try_task(one, run, final=bool(alone) or not before)
        else:
            again(one, run, own and one.right)
        before.append(one)
        if one is alone and not one.right:
            return
        # A later task should not suffer from a wrong answer to this one, so it is tried with our
        # solution of this task. The process gets our solution only now, after the mark is known.
        if lab.solved and not (own and one.right):
            try:
                run([part.solution], f"solution {part.name}")
            except Stopped as stop:
                raise step_back(before, alone, f"our solution of {part.name}: {stop}") from None


def again(one: Tried, run: Callable, whole: bool) -> None:
    """Execute an answer once more in a new process, so that later cells can use it. Without `whole`
    only its definitions are executed."""
    if one.mark and one.cells and one.kept != NOTHING:
        try:
            run(one.cells, f"task {one.task.name}", whole=whole)
        except Stopped:
            one.kept = DEFINITIONS if whole else NOTHING
            raise


def try_task(one: Tried, run: Callable, final: bool = True) -> None:
    """Execute the student's cells of a task, and then the checks that have not been tried yet.

    Args:
        final: whether a stop costs the answer its points. Otherwise the answer is suspected.
    """
    one.ran = False
    try:
        one.answer, seconds = run(one.cells, f"task {one.task.name}")
        one.seconds += seconds
        one.ran = True
        for check in () if one.mark else one.task.checks[len(one.checks) :]:
            fault, seconds = run([check.code], f"check {one.task.name}")
            one.checks.append(fault)
            one.seconds += seconds
    except Stopped as stop:
        if not final:
            one.suspected = True
            raise
        one.seconds += stop.seconds
        if one.ran:
            one.checks.append(stop.fault)
        else:
            one.ran, one.answer, one.kept = True, stop.fault, NOTHING
        raise


def given(
    part: Given, before: list[Tried], run: Callable, lab: Lab, alone: Tried | None = None
) -> None:
    """Execute a given cell of the lab. If a student's function fails in it, the task of that
    function loses its points, and the next process executes our solution instead.

    If there are no solutions (`lab.solved` is False), nothing can stand in for an answer that is
    missing or wrong. A cell that needs this answer then fails, and the next tasks are tried. A cell
    that has to be stopped is left out from then on.
    """
    try:
        fault, _ = run([part.code], "given", None if before else SET_UP)
    except Stopped as stop:
        fault = stop.fault
    if not fault:
        return
    stopped = fault["kind"] == STOPPED
    if before and not lab.solved:
        if not stopped:
            return
        lab.parts.remove(part)
        raise Stopped(fault["says"])
    # The answers that are executed whole in this process. Only they can be to blame.
    placed = [one for one in before if one.right and one.kept == WHOLE and alone in (None, one)]
    if stopped and placed and not alone:
        for one in placed:
            one.suspected = True
        raise Stopped(fault["says"])
    blamed = [one for one in placed if stopped or one.task.name in fault["tasks"]]
    for one in blamed:
        kind = ERROR if fault["kind"] == WRONG else fault["kind"]
        says = f"its checks pass, and in the lab's next cell: {fault['says']}"
        one.afterwards = {"kind": kind, "says": says}
    if blamed:
        raise Stopped(fault["says"])
    if not (alone and placed):
        raise step_back(before, alone, f"the lab's own cells failed here: {fault['says']}")


def step_back(before: list[Tried], alone: Tried | None, says: str) -> Stopped:
    """Let the next process execute less of the answers to some tasks, because a cell of ours failed
    after them, and no answer can be blamed.

    Raises:
        Refused: nothing of these answers was executed, so that the fault is ours.
    """
    others = [one for one in before if one is not alone]
    whole = any(one.right and one.kept == WHOLE for one in others) and not alone
    most = DEFINITIONS if whole else NOTHING
    if all(one.kept == NOTHING for one in others):
        raise Refused(says)
    for one in others:
        one.kept = min(one.kept, most)
    return Stopped(says)
