"""Marks one notebook: sends its cells to a process of their own, and stops what goes too far."""

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
RAN = {RIGHT, WRONG, UNANSWERED}  # the others could not be run
SET_UP = 180  # seconds for our own cells, the first of which import torch
PAUSE = 0.05  # seconds between two looks
# By exit status, as subprocess and as shells tell them.
SIGNALS = {n: f"signal {one.name}" for one in signal.Signals for n in (-one, 128 + one)}
MARKED = "MARKED_IN"  # in the environment of whatever an answer starts
ALONE = {
    "PYTHONIOENCODING": "utf-8",
    "OMP_NUM_THREADS": "1",  # as many notebooks at once as there are jobs, and steady results
    "MPLBACKEND": "agg",
    "TOKENIZERS_PARALLELISM": "false",
}
ended = threading.Event()  # set by Ctrl-C: whatever is being marked is given up


class Stopped(Exception):
    """The process of the cells has ended, or is of no use any more. Its fault is as a cell's."""

    def __init__(self, says: str, tasks=()):
        super().__init__(says)
        self.fault = {"kind": STOPPED, "says": says, "tasks": list(tasks)}


@dataclass(frozen=True)
class Limits:
    seconds: float = 60  # of a cell
    memory: float = 4  # GB, of the process and its children together
    output: float = 10  # MB printed by the notebook up to now; a figure counts as text, too


@dataclass(frozen=True)
class Mark:
    task: str
    points: int
    possible: int
    status: str
    says: str  # what every check that failed says, a line each
    seconds: float = 0.0

    @property
    def told(self) -> str:
        return f"{self.status}: {self.says}" if self.says else self.status


@dataclass
class Tried:
    """What is known of a task. A fault is None where nothing went wrong."""

    task: Task
    cells: list[str] | None
    seconds: float = 0.0
    ran: bool = False
    answer: dict | None = None  # the fault of its cells
    checks: list[dict | None] = field(default_factory=list)  # of those tried so far
    afterwards: dict | None = None  # what its code did in a cell of ours, every check having passed
    replaced: bool = False  # our solution stands in its place from now on

    @property
    def mark(self) -> Mark | None:
        """The mark, as soon as it is known."""
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
        # A cell may ask for two things, of which one is there: what the other leaves undefined is
        # no error of the student's.
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
    """The marks of a submission, task by task.

    What has to be stopped takes only itself along: the rest goes on in a new process.

    Raises:
        Refused: our own set-up failed, or Ctrl-C.
    """
    known = {task.name: Tried(task, submission.answers.get(task.name)) for task in lab.tasks}
    while True:
        with Cells(limits, submission.loose) as cells, contextlib.suppress(Stopped):
            walk(lab, known, cells.run)
            return [one.mark for one in known.values()]


def walk(lab: Lab, known: dict[str, Tried], run: Callable) -> None:
    """Execute a lab from its beginning, and fill in what is not known yet.

    Args:
        run: executes a cell, (code, label) -> (fault or None, seconds), or raises Stopped.

    Raises:
        Stopped: more is known than before, and a new process is needed for the rest.
    """
    before: list[Tried] = []
    for part in lab.parts:
        if isinstance(part, Given):
            given(part, before, run)
            continue
        before.append(one := known[part.name])
        try:
            if not one.mark:
                try_task(one, run)
            elif one.mark.status == RIGHT and not one.replaced:
                for cell in one.cells:
                    run(cell, f"task {part.name}")
            # Later tasks that build on this one are judged by themselves. Only now, when its mark
            # is known, does the solution go to where the student's code is.
            if one.replaced or one.mark.status != RIGHT:
                run(part.solution, f"solution {part.name}")
        except Stopped as stop:
            if one.replaced:
                raise Refused(f"our solution of {part.name}: {stop}") from None
            one.replaced = bool(one.mark)
            raise


def given(part: Given, before: list[Tried], run: Callable) -> None:
    """Execute a cell of ours. A student's function that fails in it costs its own task, and is
    replaced by our solution in the next process."""
    try:
        fault, _ = run(part.code, "given", None if before else SET_UP)
    except Stopped as stop:
        fault = stop.fault
    if not fault:
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
    """Execute a task's cells, then those of its checks that have not been tried."""
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
    """A process that executes cells, one after the other, with a copy of the course for its own."""

    def __init__(self, limits: Limits, loose=()):
        self.limits, self.loose = limits, loose

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self.folder.name)
        self.printed, self.trace, self.work = (folder / n for n in ("printed", "trace", "work"))
        self.work.mkdir()
        # What an answer deletes is its own copy.
        for part in ("mlm_lib", "data"):
            shutil.copytree(ROOT / part, folder / "course" / part)
        runner = shutil.copy(ROOT / "classroom" / "runner.py", folder)
        paths = [str(folder / "course"), os.environ.get("PYTHONPATH")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), MARKED: self.folder.name}
        with open(self.printed, "wb") as output:
            # A group of its own, so that Ctrl-C is ours to answer.
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
        """End the process and all that it started, whatever signals they ignore, and whoever was
        to outlive its parent: what was set for the process, it has as well."""
        with contextlib.suppress(OSError), self.process:  # which closes its pipes, and waits for it
            found = descent(self.process.pid)
            for one in psutil.process_iter(["environ"]):
                if one in found or (one.info["environ"] or {}).get(MARKED) == self.folder.name:
                    with contextlib.suppress(psutil.Error):
                        one.kill()
        self.folder.cleanup()

    def exchange(self, asked: dict, answer: Future) -> None:
        """Send a request, and wait for the answer to it; None if there will be none."""
        found = None
        with contextlib.suppress(OSError, ValueError):  # closed, or no text
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
            while not found and (line := self.process.stdout.readline(1_000_000)):
                found = told(line, asked["key"])
        answer.set_result(found)

    def run(self, code: str, label: str, seconds: float | None = None) -> tuple[dict | None, float]:
        """(what went wrong or None, seconds) of a cell. Raises Stopped, or Refused."""
        seconds = seconds or self.limits.seconds
        answer, key, since = Future(), secrets.token_hex(8), time.monotonic()
        asked = {"key": key, "code": code, "label": label, "loose": self.loose}
        # In a thread of its own, as a process may neither read nor answer any more.
        threading.Thread(target=self.exchange, args=(asked, answer), daemon=True).start()
        while True:
            alive = self.process.poll() is None  # asked first: what it told before is read below
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
        """Which limit is passed, or ""."""
        if passed > seconds:
            return f"it was stopped after {seconds:g} seconds: an endless loop?"
        if self.printed.stat().st_size > self.limits.output * 1e6:
            return f"it was stopped after printing {self.limits.output:g} MB"
        used, allowed = self.total(lambda one: one.memory_info().rss) / 1e9, self.limits.memory
        if used > allowed:
            return f"it was stopped at {used:.1f} GB of memory ({allowed:g} are allowed)"
        return ""

    def total(self, of: Callable) -> float:
        """What the process and its descendants come to, those that are gone left out."""
        found = 0.0
        for one in descent(self.process.pid):
            with contextlib.suppress(psutil.Error):
                found += of(one)
        return found

    def where(self) -> list[str]:
        """The tasks in whose code the program stood at its end, which this brings about."""
        with contextlib.suppress(OSError, AttributeError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGABRT)  # at which faulthandler writes the trace
            self.process.wait(2)
        trace = self.trace.read_text("utf-8", "replace") if self.trace.exists() else ""
        return tasks_in(line.split('"')[1] for line in trace.splitlines() if '"<' in line)


def told(line: bytes, key: str) -> tuple[dict | None, float] | None:
    """The answer in a line, or None for a line that is not the one to this request."""
    try:
        answer = json.loads(line)
        if fault := answer["fault"]:
            kind = fault["kind"] if fault["kind"] in (WRONG, UNANSWERED) else ERROR
            fault = {"kind": kind, "says": cut(str(fault["says"])), "tasks": list(fault["tasks"])}
        return (fault or None, float(answer["seconds"])) if answer["key"] == key else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def descent(pid: int) -> list[psutil.Process]:
    """A process and whoever descends from it."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []
