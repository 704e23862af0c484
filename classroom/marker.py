"""Marks one notebook: sends its cells to a process of their own, and stops what goes too far."""

import contextlib
import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from classroom.lab import ROOT, Given, Lab, Submission, Task
from classroom.runner import ERROR, UNANSWERED, WRONG, cut, process_control, tasks_in

RIGHT, MISSING, STOPPED = "right", "missing", "stopped"
RAN = {RIGHT, WRONG, UNANSWERED}  # the others could not be run
SET_UP = 180  # seconds for our own cells, the first of which import torch
PAUSE = 0.05  # seconds between two looks
ended = threading.Event()  # set by Ctrl-C: whatever is being marked is given up


class CouldNotRun(RuntimeError):
    """No task could be marked, for a reason that lies with our set-up or this machine."""


class Stopped(RuntimeError):
    """The process of the cells has ended, or had to be. Says why, and in which tasks it stood."""

    def __init__(self, says: str, tasks=()):
        super().__init__(says)
        self.tasks = list(tasks)


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


@dataclass
class Tried:
    """What is known of a task: each attempt is None where nothing went wrong, else its fault."""

    task: Task
    cells: list[str] | None
    seconds: float = 0.0
    answer: dict | None = None
    ran: bool = False
    checks: dict[int, dict | None] = field(default_factory=dict)
    afterwards: dict | None = None  # what its code did in a cell of ours, every check having passed
    replaced: bool = False  # our solution stands in its place from now on

    @property
    def done(self) -> bool:
        return bool(self.mark)

    @property
    def mark(self) -> Mark | None:
        """The mark, as soon as it is known."""
        name, checks = self.task.name, self.task.checks
        possible = self.task.points
        if not self.cells:
            says = f"no cell has the mark # TASK {name}"
            return Mark(name, 0, possible, MISSING, says)
        if not self.ran:
            return None
        waits = bool(self.answer) and self.answer["kind"] == UNANSWERED
        if self.answer and not waits:
            return Mark(name, 0, possible, self.answer["kind"], self.answer["says"], self.seconds)
        if len(self.checks) < len(checks):
            return None
        if self.afterwards:
            kind, says = self.afterwards["kind"], self.afterwards["says"]
            return Mark(name, 0, possible, kind, says, self.seconds)
        points = sum(checks[n].points for n, fault in self.checks.items() if fault is None)
        # A cell may ask for two things, of which one is there: what the other leaves undefined is
        # no error of the student's.
        faults = [
            (checks[n].label, self.answer if waits and fault["kind"] == ERROR else fault)
            for n, fault in self.checks.items()
            if fault
        ]
        status = next((f["kind"] for _, f in faults if f["kind"] != UNANSWERED), None)
        status = status or (UNANSWERED if faults else RIGHT)
        if status == UNANSWERED and not points:
            faults = [("", faults[0][1])]
        says = "\n".join(f"{label}: {f['says']}".removeprefix(": ") for label, f in faults)
        return Mark(name, points, possible, status, says, self.seconds)


def first_to_look_at(marks: list[Mark]) -> Mark | None:
    """The first task that went wrong; if none did, the first that waits for its answer."""
    open_ = [one for one in marks if one.points < one.possible]
    return next((one for one in open_ if one.status != UNANSWERED), next(iter(open_), None))


def mark(lab: Lab, submission: Submission, limits: Limits = Limits()) -> list[Mark]:
    """The marks of a submission, task by task.

    What has to be stopped takes only itself along: the rest goes on in a new process.

    Raises:
        CouldNotRun: our own set-up failed, or Ctrl-C.
    """
    known = {task.name: Tried(task, submission.answers.get(task.name)) for task in lab.tasks}
    while True:
        with Cells(limits, submission.loose) as cells:
            if walk(lab, known, cells.run):
                return [one.mark for one in known.values()]


def walk(lab: Lab, known: dict[str, Tried], run: Callable) -> bool:
    """Execute a lab from its beginning, and fill in what is not known yet.

    Args:
        run: executes a cell, (code, label) -> (fault or None, seconds), or raises Stopped.

    Returns:
        Whether the end was reached. If not, more is known than before, and a new process is needed.
    """
    before: list[Tried] = []
    for part in lab.parts:
        if isinstance(part, Given):
            if not given(part, before, run):
                return False
            continue
        one = known[part.name]
        before.append(one)
        try:
            if not one.done:
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
                raise CouldNotRun(f"our solution of {part.name}: {stop}") from None
            one.replaced = one.done
            return False
    return True


def given(part: Given, before: list[Tried], run: Callable) -> bool:
    """Execute a cell of ours. A student's function that fails in it costs its own task, and is
    replaced by our solution in the next process."""
    try:
        fault, _ = run(part.code, "given", None if before else SET_UP)
    except Stopped as stop:
        fault = {"kind": STOPPED, "says": str(stop), "tasks": stop.tasks}
    if fault is None:
        return True
    if all(one.replaced for one in before):
        raise CouldNotRun(f"the lab's own cells failed here: {fault['says']}")
    for one in before:
        if one.task.name in fault["tasks"] and one.mark.status == RIGHT:
            kind = ERROR if fault["kind"] == WRONG else fault["kind"]
            says = f"its checks pass, and in the lab's next cell: {fault['says']}"
            one.afterwards = {"kind": kind, "says": says}
        one.replaced = True
    return False


def try_task(one: Tried, run: Callable) -> None:
    """Execute a task's cells, then those of its checks that have not been tried."""
    if one.cells and not (one.ran and one.answer and one.answer["kind"] != UNANSWERED):
        try:
            for cell in one.cells:
                one.answer, seconds = run(cell, f"task {one.task.name}")
                one.seconds += 0 if one.ran else seconds
                if one.answer:
                    break
        except Stopped as stop:
            one.answer = {"kind": STOPPED, "says": str(stop)}
            raise
        finally:
            one.ran = True
    for number, check in enumerate(one.task.checks):
        if one.done or number in one.checks:
            continue
        try:
            one.checks[number], seconds = run(check.code, f"check {one.task.name}")
            one.seconds += seconds
        except Stopped as stop:
            one.checks[number] = {"kind": STOPPED, "says": str(stop)}
            raise


class Cells:
    """A process that executes cells, one after the other, with a copy of the course for its own."""

    def __init__(self, limits: Limits, loose=()):
        self.limits, self.loose = limits, loose

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self.folder.name)
        self.printed, self.trace = folder / "printed", folder / "trace"
        (folder / "work").mkdir()
        # What an answer deletes is its own copy.
        for part in ("mlm_lib", "data"):
            shutil.copytree(ROOT / part, folder / "course" / part)
        runner = shutil.copy(ROOT / "classroom" / "runner.py", folder)
        with family.lock, open(self.printed, "wb") as output:
            self.process = start([runner, self.trace], folder, output)
            family.ours.add(self.process.pid)
        self.answers = queue.Queue(maxsize=100)
        threading.Thread(target=self.listen, daemon=True).start()
        return self

    def __exit__(self, *error):
        kill(self.process)
        for channel in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                channel.close()
        self.folder.cleanup()

    def listen(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed, or no text
            while line := self.process.stdout.readline(1_000_000):
                self.answers.put(line)

    def run(self, code: str, label: str, seconds: float | None = None) -> tuple[dict | None, float]:
        """(what went wrong or None, seconds) of a cell. Raises Stopped, or CouldNotRun."""
        seconds = seconds or self.limits.seconds
        key, since = secrets.token_hex(8), time.monotonic()
        asked = {"key": key, "code": code, "label": label, "loose": self.loose}
        # In a thread of its own, as a process that reads no more would hold up whoever writes.
        line = json.dumps(asked).encode() + b"\n"
        threading.Thread(target=send, args=(self.process.stdin, line), daemon=True).start()
        while True:
            alive = self.process.poll() is None  # asked first: what it told before is read below
            with contextlib.suppress(queue.Empty):
                if answer := told(self.answers.get(timeout=PAUSE), key):
                    return answer
            if ended.is_set():
                raise CouldNotRun("interrupted")
            reason = self.exceeded(seconds, time.monotonic() - since)
            if not alive and self.answers.empty():
                reason = f"the program ended by itself ({ending(self.process.returncode)})"
            if reason:
                raise Stopped(reason, self.where())

    def exceeded(self, seconds: float, passed: float) -> str:
        """Which limit is passed, or ""."""
        if passed > seconds:
            return f"it was stopped after {seconds:g} seconds: an endless loop?"
        if self.printed.stat().st_size > self.limits.output * 1e6:
            return f"it was stopped after printing {self.limits.output:g} MB"
        used = 0
        for one in members(self.process):
            with contextlib.suppress(psutil.Error):
                used += one.memory_info().rss
        allowed = self.limits.memory
        if used > allowed * 1e9:
            return f"it was stopped at {used / 1e9:.1f} GB of memory ({allowed:g} are allowed)"
        return ""

    def where(self) -> list[str]:
        """The tasks in whose code the program stood when it ended, or stands now."""
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(self.process.pid, signal.SIGUSR1)
        trace = ""
        for _ in range(20):  # a busy machine takes its time to answer
            with contextlib.suppress(OSError):
                trace = self.trace.read_text("utf-8", errors="replace")
            if trace.endswith("\n") or self.process.poll() is not None:
                break
            time.sleep(PAUSE)
        return tasks_in(line.split('"')[1] for line in trace.splitlines() if '"<' in line)


def send(channel, line: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # whoever should read has ended
        channel.write(line)
        channel.flush()


def told(line: bytes, key: str) -> tuple[dict | None, float] | None:
    """The answer in a line, or None for a line that is not the one to this request."""
    try:
        answer = json.loads(line)
        fault = answer["fault"]
        if answer["key"] != key:
            return None
        if fault is not None:
            kind = fault["kind"] if fault["kind"] in (WRONG, UNANSWERED, ERROR) else ERROR
            tasks = [str(name) for name in fault["tasks"]]
            fault = {"kind": kind, "says": cut(str(fault["says"])), "tasks": tasks}
        return fault, float(answer["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def start(arguments: list, folder: Path, output) -> subprocess.Popen:
    paths = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder / "course"), paths])),
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",  # as many notebooks at once as there are jobs, and steady results
        "MPLBACKEND": "agg",
        "TOKENIZERS_PARALLELISM": "false",
    }
    # A group of its own, so that Ctrl-C is ours to answer and its children can be found.
    alone = (
        {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        if os.name == "nt"
        else {"start_new_session": True}
    )
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=folder / "work",
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        **alone,
    )


def ending(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit status {code}"


def members(process) -> list[psutil.Process]:
    """The process and whoever descends from it."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    return []


def kill(process) -> None:
    """End a process and all that it started, whatever signals they ignore."""
    found = members(process)
    if hasattr(os, "killpg"):  # reaches also those whose parent has ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for one in found:
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.wait()
    family.forget(process)


class Family:
    """On Linux, whoever outlives the process that started it becomes a child of ours, and is ended.

    `setsid` and a second `fork` take a program out of its group and away from its parents.
    """

    def __init__(self):
        self.lock, self.ours, self.strangers = threading.Lock(), set(), None

    @contextlib.contextmanager
    def gathered(self):
        """Within this block; what has been started before is not touched."""
        with self.lock:
            self.strangers = {one.pid for one in psutil.Process().children()}
            process_control(36, 1)  # PR_SET_CHILD_SUBREAPER
        try:
            yield
        finally:
            with self.lock:
                self.strangers = None
                process_control(36, 0)

    def forget(self, process) -> None:
        with self.lock:
            self.ours.discard(process.pid)
            if sys.platform != "linux" or self.strangers is None:
                return
            for one in psutil.Process().children():
                if one.pid not in self.ours | self.strangers:
                    for descendant in [*one.children(recursive=True), one]:
                        with contextlib.suppress(psutil.Error):
                            descendant.kill()
                    with contextlib.suppress(OSError):
                        os.waitpid(one.pid, 0)


family = Family()
