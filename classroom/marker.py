"""Marks one notebook: watches over a process that runs its answers, and stops what goes too far."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from classroom.lab import ROOT, Given, Lab, Submission
from classroom.runner import STOPPED, UNANSWERED

SET_UP = 180  # seconds for our own set-up, which imports torch: never the student's fault
PAUSE = 0.05  # seconds between two looks
ended = threading.Event()  # set by Ctrl-C: whatever is being marked is given up


class CouldNotRun(RuntimeError):
    """No task could be marked, for a reason that lies with our set-up or this machine."""


@dataclass(frozen=True)
class Limits:
    """For one task."""

    seconds: float = 60
    memory: float = 4  # GB, of the process and its children together
    output: float = 10  # MB printed by the notebook up to now; a figure counts as text, too


@dataclass(frozen=True)
class Mark:
    task: str
    points: int
    possible: int
    status: str
    says: str


def first_to_look_at(marks: list[Mark]) -> Mark | None:
    """The first task that went wrong; if none did, the first that waits for its answer."""
    open_ = [one for one in marks if one.points < one.possible]
    return next((one for one in open_ if one.status != UNANSWERED), next(iter(open_), None))


def as_json(lab: Lab) -> list[dict]:
    return [{"given": p.code} if isinstance(p, Given) else asdict(p) for p in lab.parts]


def mark(lab: Lab, submission: Submission, limits: Limits = Limits()) -> list[Mark]:
    """The marks of a submission, task by task.

    A task that has to be stopped takes only itself along: the others go on in a new process.

    Raises:
        CouldNotRun: our own set-up failed, or Ctrl-C.
    """
    found: dict[str, dict] = {}
    while True:
        whole, stopped = run_child(lab, submission, limits, found)
        if stopped:
            task, says = stopped
            found[task] = {"status": STOPPED, "points": 0, "says": says}
        if whole:
            break
    marks = []
    for task in lab.tasks:
        event = found[task.name]
        marks.append(Mark(task.name, event["points"], task.points, event["status"], event["says"]))
    return marks


def run_child(
    lab: Lab, submission: Submission, limits: Limits, found: dict[str, dict]
) -> tuple[bool, tuple[str, str] | None]:
    """One process over the tasks that are not in `found`, which is filled as they end.

    Returns whether the notebook's end was reached, and the task that was stopped, with the reason.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        job, report, printed = (Path(folder, name) for name in ("job.json", "report", "printed"))
        work = Path(folder, "work")
        work.mkdir()
        done = {name: event["status"] for name, event in found.items()}
        sent = {"parts": as_json(lab), "answers": submission.answers, "done": done}
        job.write_text(json.dumps(sent | {"loose": submission.loose}), "utf-8")
        report.touch()
        with open(printed, "wb") as output, open(report, encoding="utf-8") as told:
            process = start([job, report], work, output)
            try:
                return watch(process, told, printed, limits, found)
            finally:
                kill(process)


def start(arguments: list[Path], work: Path, output) -> subprocess.Popen:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
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
        [sys.executable, "-m", "classroom.runner", *map(str, arguments)],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        **alone,
    )


def watch(process, told, printed: Path, limits: Limits, found: dict[str, dict]):
    """Read what the child tells until it ends or must be stopped. Returns as `run_child` does."""
    task, since, line = None, time.monotonic(), ""
    while True:
        alive = process.poll() is None  # asked first: what it told before its end is read below
        for piece in told:
            line += piece
            if not line.endswith("\n"):
                break
            event, line = json.loads(line), ""
            if "begin" in event:
                task, since = event["begin"], time.monotonic()
            elif "end" in event:
                found[event["end"]] = event
                task, since = None, time.monotonic()
            elif "failed" in event:
                raise CouldNotRun(f"the lab's own cells failed here: {event['failed']}")
            elif "done" in event:
                return True, None
        if ended.is_set():
            raise CouldNotRun("interrupted")
        reason = exceeded(process, printed, limits if task else None, time.monotonic() - since)
        if not alive and not reason:
            reason = f"the program ended by itself ({ending(process.returncode)})"
        if reason and task is None:
            raise CouldNotRun(f"outside of any task {reason}")
        if reason:
            return False, (task, reason)
        time.sleep(PAUSE)


def exceeded(process, printed: Path, limits: Limits | None, seconds: float) -> str:
    """Which limit a child is over, or "". Without limits (our own cells) only time counts."""
    if limits is None:
        return f"nothing came back for {SET_UP} seconds" if seconds > SET_UP else ""
    if seconds > limits.seconds:
        return f"it was stopped after {limits.seconds:g} seconds: an endless loop?"
    if printed.stat().st_size > limits.output * 1e6:
        return f"it was stopped after printing {limits.output:g} MB"
    used = 0
    for one in family(process):
        with contextlib.suppress(psutil.Error):
            used += one.memory_info().rss
    if used > limits.memory * 1e9:
        return f"it was stopped at {used / 1e9:.1f} GB of memory ({limits.memory:g} are allowed)"
    return ""


def ending(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit status {code}"


def family(process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    return []


def kill(process) -> None:
    """End the child and all that it started, whatever signals they ignore."""
    members = family(process)
    if hasattr(os, "killpg"):  # reaches also those whose parent has ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for one in members:
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.wait()
