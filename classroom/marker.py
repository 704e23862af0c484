"""Marks one notebook: its cells are executed in a process of their own, which is stopped if it
exceeds a limit.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from classroom.lab import ROOT, Given, Lab, Refused, Submission, Task
from classroom.runner import ERROR, UNANSWERED, WRONG, cut, tasks_in

RIGHT, MISSING, STOPPED = "right", "missing", "stopped"
RAN = {RIGHT, WRONG, UNANSWERED}  # with every other status the answer could not be run
SET_UP = 180  # seconds for the lab's first cell, which imports torch
PAUSE = 0.05  # seconds between two checks of the limits
# The name of a signal by exit status: -n is how subprocess reports it, and 128 + n how a shell
# does.
SIGNALS = {n: f"signal {one.name}" for one in signal.Signals for n in (-one, 128 + one)}
MARKED = "MARKED_IN"  # a variable of the environment, by which all child processes are found
ALONE = {
    "PYTHONIOENCODING": "utf-8",
    "OMP_NUM_THREADS": "1",  # several notebooks run at once, and results are the same
    "MPLBACKEND": "agg",
    "TOKENIZERS_PARALLELISM": "false",
}
ended = threading.Event()  # set by Ctrl-C: the running markings stop


class Stopped(Exception):
    """The process that executes the cells has ended or must be ended. `fault` says why, in the form
    that `runner.attempt` returns."""

    def __init__(self, says: str, tasks=()):
        super().__init__(says)
        self.fault = {"kind": STOPPED, "says": says, "tasks": list(tasks)}


@dataclass(frozen=True)
class Limits:
    """What a notebook may use."""

    seconds: float = 60  # for each cell
    memory: float = 4  # GB, for the process and its children together
    output: float = 10  # MB that all cells together may print


@dataclass(frozen=True)
class Mark:
    """The mark of one task."""

    task: str
    points: int
    possible: int
    status: str
    says: str  # the message of each check that failed, a line each
    seconds: float = 0.0

    @property
    def told(self) -> str:
        return f"{self.status}: {self.says}" if self.says else self.status


@dataclass
class Tried:
    """What is known so far about the answer to a task. A fault is None if nothing went wrong."""

    task: Task
    cells: list[str] | None
    seconds: float = 0.0
    ran: bool = False
    answer: dict | None = None  # the fault of the student's cells
    checks: list[dict | None] = field(default_factory=list)  # the faults of the checks so far
    afterwards: dict | None = None  # the fault in a later given cell, after all checks had passed
    replaced: bool = False  # whether our solution is executed instead from now on

    @property
    def mark(self) -> Mark | None:
        """The mark, or None as long as it is not known."""
        task, whole = self.task, self.afterwards
        waits = bool(self.answer) and self.answer["kind"] == UNANSWERED
        if not self.cells:
            whole = {"kind": MISSING, "says": f"no cell has the mark # TASK {task.name}"}
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


def mark(lab: Lab, submission: Submission, limits: Limits = Limits()) -> list[Mark]:
    """The marks of a submission, one for each task of the lab.

    If an answer has to be stopped, only this answer loses its points. The other tasks are marked in
    a new process.

    Raises:
        Refused: the lab's own cells fail, or Ctrl-C was pressed.
    """
    known = {task.name: Tried(task, submission.answers.get(task.name)) for task in lab.tasks}
    while True:
        with Cells(limits, submission.loose) as cells, contextlib.suppress(Stopped):
            walk(lab, known, cells.run)
            return [one.mark for one in known.values()]


def walk(lab: Lab, known: dict[str, Tried], run: Callable) -> None:
    """Execute a lab from its first cell on, and try the tasks whose mark is not known yet.

    Args:
        known: what is known about each task; it is completed.
        run: executes a cell. It takes the code and a label, and returns a fault or None, and the
            seconds. It may raise Stopped.

    Raises:
        Stopped: the process has ended. `known` holds more than before, and the caller goes on with
        a
            new process.
    """
    before: list[Tried] = []
    for part in lab.parts:
        if isinstance(part, Given):
            given(part, before, run, lab.solved)
            continue
        before.append(one := known[part.name])
        try:
            if not one.mark:
                try_task(one, run)
            elif one.mark.status == RIGHT and not one.replaced:
                for cell in one.cells:
                    run(cell, f"task {part.name}")
            # A later task should not suffer from a wrong answer to this one, so it is tried with
            # our solution of this task. The process gets our solution only now, after the mark is
            # known.
            if lab.solved and (one.replaced or one.mark.status != RIGHT):
                run(part.solution, f"solution {part.name}")
        except Stopped as stop:
            if one.replaced:
                raise Refused(f"our solution of {part.name}: {stop}") from None
            one.replaced = bool(one.mark)
            raise


def given(part: Given, before: list[Tried], run: Callable, solved: bool) -> None:
    """Execute a given cell of the lab. If a student's function fails in it, the task of that
    function loses its points, and the next process executes our solution instead.

    If there are no solutions (`solved` is False), nothing can stand in for an answer that is
    missing or wrong. A cell that needs this answer then fails, and the next tasks are tried.
    """
    try:
        fault, _ = run(part.code, "given", None if before else SET_UP)
    except Stopped as stop:
        fault = stop.fault
    if not fault or (before and not solved and fault["kind"] != STOPPED):
        return
    if all(one.replaced for one in before):
        raise Refused(f"the lab's own cells failed here: {fault['says']}")
    for one in before:
        if one.task.name in fault["tasks"] and one.mark.status == RIGHT:
            kind = ERROR if fault["kind"] == WRONG else fault["kind"]
            says = f"its checks pass, and in the lab's next cell: {fault['says']}"
            one.afterwards = {"kind": kind, "says": says}
        one.replaced = True
    raise Stopped(fault["says"])


def try_task(one: Tried, run: Callable) -> None:
    """Execute the student's cells of a task, and then the checks that have not been tried yet."""
    one.ran = False
    try:
        for cell in one.cells or []:
            one.answer, seconds = run(cell, f"task {one.task.name}")
            one.seconds += seconds
            if one.answer:
                break
        one.ran = True
        for check in () if one.mark else one.task.checks[len(one.checks) :]:
            fault, seconds = run(check.code, f"check {one.task.name}")
            one.checks.append(fault)
            one.seconds += seconds
    except Stopped as stop:
        if one.ran:
            one.checks.append(stop.fault)
        else:
            one.ran, one.answer = True, stop.fault
        raise


class Cells:
    """A process that executes cells one after the other, with its own copy of the course, in which
    an answer can do no harm. It is used as a context manager."""

    def __init__(self, limits: Limits, loose=()):
        self.limits, self.loose = limits, loose

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self.folder.name)
        self.printed, self.trace, self.work = (folder / n for n in ("printed", "trace", "work"))
        self.work.mkdir()
        # If an answer deletes files of the course, it deletes them in this copy.
        for part in ("mlm_lib", "data"):
            shutil.copytree(ROOT / part, folder / "course" / part)
        runner = shutil.copy(ROOT / "classroom" / "runner.py", folder)
        paths = [str(folder / "course"), os.environ.get("PYTHONPATH")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), MARKED: self.folder.name}
        with open(self.printed, "wb") as output:
            # The process gets its own group, so that Ctrl-C reaches the marker alone.
            self.process = subprocess.Popen(
                [sys.executable, runner, self.trace],
                cwd=self.work,
                env=os.environ | ALONE | own,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        return self

    def __exit__(self, *error):
        """Kill the process and every process that it started, including those that have detached
        themselves. The latter are found by the variable MARKED in their environment."""
        with contextlib.suppress(OSError), self.process:  # closes its pipes, and waits for its end
            found = descent(self.process.pid)
            for one in psutil.process_iter(["environ"]):
                if one in found or (one.info["environ"] or {}).get(MARKED) == self.folder.name:
                    with contextlib.suppress(psutil.Error):
                        one.kill()
        self.folder.cleanup()

    def exchange(self, asked: dict, answer: Future) -> None:
        """Send a request, and store in `answer` what the process answers, or None if the process
        ends without an answer."""
        found = None
        with contextlib.suppress(OSError, ValueError):  # the pipe is closed, or holds no text
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
            while not found and (line := self.process.stdout.readline(1_000_000)):
                found = told(line, asked["key"])
        answer.set_result(found)

    def run(self, code: str, label: str, seconds: float | None = None) -> tuple[dict | None, float]:
        """Execute a cell. Returns its fault or None, and the seconds that it took.

        Raises:
            Stopped: the process has ended, or has exceeded a limit.
            Refused: Ctrl-C was pressed.
        """
        seconds = seconds or self.limits.seconds
        answer, key, since = Future(), secrets.token_hex(8), time.monotonic()
        asked = {"key": key, "code": code, "label": label, "loose": self.loose}
        # The exchange has its own thread, because the process may never read or answer again.
        threading.Thread(target=self.exchange, args=(asked, answer), daemon=True).start()
        while True:
            alive = self.process.poll() is None  # checked before its last answer is read
            wait([answer], PAUSE)
            if answer.done() and answer.result():
                return answer.result()
            if ended.is_set():
                raise Refused("interrupted")
            reason = self.exceeded(seconds, time.monotonic() - since)
            if not alive:
                code = self.process.returncode
                reason = f"the program ended by itself ({SIGNALS.get(code, f'exit status {code}')})"
            if reason:
                raise Stopped(reason, self.where())
            time.sleep(PAUSE if answer.done() else 0)

    def exceeded(self, seconds: float, passed: float) -> str:
        """The message on the limit that is exceeded, or ""."""
        if passed > seconds:
            return f"it was stopped after {seconds:g} seconds: an endless loop?"
        if self.printed.stat().st_size > self.limits.output * 1e6:
            return f"it was stopped after printing {self.limits.output:g} MB"
        used, allowed = self.total(lambda one: one.memory_info().rss) / 1e9, self.limits.memory
        if used > allowed:
            return f"it was stopped at {used:.1f} GB of memory ({allowed:g} are allowed)"
        return ""

    def total(self, of: Callable) -> float:
        """The sum of `of(process)` over the process and its descendants."""
        found = 0.0
        for one in descent(self.process.pid):
            with contextlib.suppress(psutil.Error):
                found += of(one)
        return found

    def where(self) -> list[str]:
        """Abort the process, and return the tasks whose code it was executing at that moment."""
        with contextlib.suppress(OSError, AttributeError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGABRT)  # makes faulthandler write the trace
            self.process.wait(2)
        trace = self.trace.read_text("utf-8", "replace") if self.trace.exists() else ""
        return tasks_in(line.split('"')[1] for line in trace.splitlines() if '"<' in line)


def told(line: bytes, key: str) -> tuple[dict | None, float] | None:
    """The answer that a line of the process holds, or None if the line is not the answer to the
    request with this key."""
    try:
        answer = json.loads(line)
        if fault := answer["fault"]:
            kind = fault["kind"] if fault["kind"] in (WRONG, UNANSWERED) else ERROR
            fault = {"kind": kind, "says": cut(str(fault["says"])), "tasks": list(fault["tasks"])}
        return (fault or None, float(answer["seconds"])) if answer["key"] == key else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def descent(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []
