"""A process that executes the cells of a notebook one after the other, and is stopped if it exceeds
a limit. The cells may come from anybody.
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
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
from filelock import FileLock, Timeout

from classroom.lab import ROOT, Refused
from classroom.runner import ERROR, UNANSWERED, WRONG, cut

STOPPED = "stopped"
PAUSE = 0.05  # seconds between two checks of the limits
WINDOW = 1.0  # seconds over which the share of a processor is measured
# A program that gets less than this share of a processor, and is not ready to take more, waits.
SHARE = 0.05
READY = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
PATIENCE = 5  # seconds that a process gets to end everything that it started
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
PREFIX, IN_USE = "mlm-marking-", "in use"  # names of a process's folder and of the lock in it
ended = threading.Event()  # set by Ctrl-C: the running markings stop


class Stopped(Exception):
    """The process that executes the cells has ended or must be ended. `fault` says why, in the form
    that `runner.attempt` returns, and `seconds` what the cells took until then."""

    def __init__(self, says: str, seconds: float = 0.0):
        super().__init__(says)
        self.seconds = seconds
        self.fault = {"kind": STOPPED, "says": says, "tasks": []}


@dataclass(frozen=True)
class Limits:
    """What a notebook may use."""

    seconds: float = 60  # for the cells of an answer together, and for each check; see `Clock`
    memory: float = 4  # GB, for the process and its children together
    output: float = 10  # MB that all cells together may print


class Use(NamedTuple):
    """What a process and its descendants use."""

    seconds: float  # of processor time until now, including that of descendants that have ended
    memory: float  # bytes now
    ready: bool  # whether one of them works now, or would work if it got a processor


class Clock:
    """Counts the seconds that cells take, in such a way that other programs on the machine do not
    matter.

    While a program works, its processor time counts. While it waits, for example in `sleep`, the
    time on the wall counts. The time in which it could work, but other programs have the processor,
    does not count.
    """

    def __init__(self, use: Use):
        self.counted, self.since, self.before = 0.0, time.monotonic(), use.seconds

    def read(self, use: Use) -> float:
        """The seconds from the beginning until now."""
        now = time.monotonic()
        passed, worked = now - self.since, max(use.seconds - self.before, 0.0)
        if passed < WINDOW:
            return self.counted + worked
        self.counted += worked if use.ready or worked > SHARE * passed else passed
        self.since, self.before = now, use.seconds
        return self.counted


class Cells:
    """A process that executes cells one after the other, with its own copy of the course, in which
    an answer can do no harm. It is used as a context manager."""

    def __init__(self, limits: Limits, loose=()):
        self.limits, self.loose = limits, loose

    def __enter__(self):
        sweep()
        self.place = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.folder = folder = Path(self.place.name)
        self.lock = FileLock(folder / IN_USE)
        self.lock.acquire()
        self.work = folder / "work"
        self.work.mkdir()
        # If an answer deletes files of the course, it deletes them in this copy.
        for part in ("mlm_lib", "data"):
            shutil.copytree(ROOT / part, folder / "course" / part)
        runner = shutil.copy(ROOT / "classroom" / "runner.py", folder)
        paths = [str(folder / "course"), os.environ.get("PYTHONPATH")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), MARKED: str(folder)}
        # Its size is read from this handle, because an answer may put something else in its place.
        self.printed = open(folder / "printed", "wb")
        self.answer = Future()  # the answer to the last request
        self.answer.set_result(None)
        # The process gets its own group, so that Ctrl-C reaches the marker alone.
        self.process = subprocess.Popen(
            [sys.executable, runner],
            cwd=self.work,
            env=os.environ | ALONE | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.printed,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        return self

    def __exit__(self, *error):
        """End the process and every process that it started. The guard in `runner` does that. If an
        answer has killed the guard, its processes are found by the variable MARKED in their
        environment."""
        found = descent(self.process.pid)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        for one in psutil.process_iter(["environ"]):
            if one in found or (one.info["environ"] or {}).get(MARKED) == str(self.folder):
                with contextlib.suppress(psutil.Error):
                    one.kill()
        # A process that nobody found may hold the other end of a pipe. Then the pipe stays open,
        # because closing it would wait for that process.
        wait([self.answer], PATIENCE)
        if self.answer.done():
            with contextlib.suppress(OSError), self.process:
                pass
        self.printed.close()
        self.lock.release()
        with contextlib.suppress(RecursionError):  # an answer made folders in folders in folders
            self.place.cleanup()

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

    def run(
        self, cells: list[str], label: str, seconds: float | None = None, whole: bool = True
    ) -> tuple[dict | None, float]:
        """Execute cells until one of them fails. Returns its fault or None, and the seconds that
        the cells took.

        Args:
            seconds: the limit for all these cells together, in place of `Limits.seconds`.
            whole: without it, only what the cells import and define is executed.

        Raises:
            Stopped: the process has ended, or has exceeded a limit.
            Refused: Ctrl-C was pressed.
        """
        seconds = seconds or self.limits.seconds
        self.answer, key = Future(), secrets.token_hex(8)
        asked = {"key": key, "cells": cells, "label": label, "loose": self.loose, "whole": whole}
        clock = Clock(self.use())
        # The exchange has its own thread, because the process may never read or answer again.
        threading.Thread(target=self.exchange, args=(asked, self.answer), daemon=True).start()
        while True:
            alive = self.process.poll() is None  # checked before its last answer is read
            wait([self.answer], PAUSE)
            found = self.answer.result() if self.answer.done() else None
            use = self.use()
            spent = clock.read(use)
            reason = self.exceeded(spent, seconds, use.memory)
            if found and not reason:
                return found["fault"], spent
            if ended.is_set():
                raise Refused("interrupted")
            if not found and not alive:
                code = self.process.returncode
                reason = f"the program ended by itself ({SIGNALS.get(code, f'exit status {code}')})"
            if reason:
                raise Stopped(reason, spent)
            time.sleep(PAUSE if self.answer.done() else 0)

    def exceeded(self, spent: float, seconds: float, memory: float) -> str:
        """The message on the limit that is exceeded, or "". It names the limit and nothing that was
        measured, so that it is the same each time."""
        if spent > seconds:
            return f"it was stopped after {seconds:g} seconds: it is endless, or too slow"
        if os.fstat(self.printed.fileno()).st_size > self.limits.output * 1e6:
            return f"it was stopped after printing {self.limits.output:g} MB"
        if memory > self.limits.memory * 1e9:
            return f"it was stopped because it needs more than {self.limits.memory:g} GB of memory"
        return ""

    def use(self) -> Use:
        """What the process and its descendants use."""
        used, held, ready = 0.0, 0.0, False
        for one in descent(self.process.pid):
            with contextlib.suppress(psutil.Error), one.oneshot():
                used += sum(one.cpu_times()[:4])
                held += one.memory_info().rss
                # Other systems than Linux call every process ready.
                ready |= psutil.LINUX and one.status() in READY
        return Use(used, held, ready)


def told(line: bytes, key: str) -> dict | None:
    """The answer that a line of the process holds, as {"fault": a fault or None}. It is None if the
    line is not the answer to the request with this key."""
    try:
        answer = json.loads(line)
        if fault := answer["fault"]:
            kind = fault["kind"] if fault["kind"] in (WRONG, UNANSWERED) else ERROR
            fault = {"kind": kind, "says": cut(str(fault["says"])), "tasks": list(fault["tasks"])}
        return {"fault": fault or None} if answer["key"] == key else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def descent(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def sweep() -> None:
    """Remove the folders that a marker left behind when it was killed. The folder of a marker that
    still runs is locked, except in the moment in which it is made."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{IN_USE}"):
        with contextlib.suppress(OSError, Timeout, RecursionError):
            if not lock.is_file() or time.time() - lock.stat().st_mtime < 60:
                continue
            with FileLock(lock, timeout=0):
                pass
            shutil.rmtree(lock.parent, ignore_errors=True)
