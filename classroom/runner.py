"""Executes a notebook's cells one by one, as the marker asks. This is the child's side.

A request is a JSON object a line on standard input: {"key", "code", "label", "loose"}.
The answer to it goes to what was standard output, with the request's key: how many seconds the cell
took, and what went wrong in it. What code prints goes to standard error, which the marker points at
a file.

So this process never holds a solution before the mark was told, and never tells points. It contains
accidents, not attackers: an answer runs with the rights of whoever marks it.
"""

import ast
import contextlib
import faulthandler
import json
import linecache
import os
import re
import signal
import sys
import time
import traceback
import types

WRONG, UNANSWERED, ERROR = "wrong", "unanswered", "error"
LONGEST = 500  # characters of a message
LARGEST = 1_000_000_000  # bytes of a file that an answer may write


def attempt(code: str, label: str, names: dict, loose=()) -> dict | None:
    """What went wrong when a cell was executed in `names`, or None.

    Args:
        label: what tracebacks call the cell, such as "task 02.1".
        loose: names that the notebook sets in cells without a mark, for a better message.

    Returns:
        {"kind", "says", "tasks"}: "wrong" for an AssertionError, "unanswered" for what waits for
        its code, else "error"; a message; and the tasks in whose cells the error arose.
    """
    try:
        execute(code, label, names)
        return None
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        kind, says = describe(error, frames, loose)
        tasks = tasks_in(frame.filename for frame in frames)
        return {"kind": kind, "says": cut(says), "tasks": tasks}


def execute(code: str, label: str, names: dict) -> None:
    """Like a notebook's cell, with its lines known to tracebacks."""
    file, code = f"<{label}>", without_magic(code)
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec"), names)


def without_magic(code: str) -> str:
    """The code with notebook commands (%matplotlib, !ls, name?) taken out, if it is Python then."""
    try:
        ast.parse(code)
        return code
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.sub(r"^([ \t]*)(?:[%!].*|\w[\w.]*\?+)$", r"\1pass", code, flags=re.M)


def describe(error: BaseException, frames: traceback.StackSummary, loose=()) -> tuple[str, str]:
    """The kind of an error; and a check's message, or the error with the student's own line."""
    says = "".join(traceback.format_exception_only(error)).strip()
    name, _, message = says.partition(": ")
    if name == "AssertionError" and message:
        return WRONG, message
    if name == "NotImplementedError" and (not message or "waits for your code here" in message):
        return UNANSWERED, "not answered yet"
    places = [frame for frame in frames if frame.filename.startswith(("<task", "<check"))]
    if places and not isinstance(error, SyntaxError):
        says += f", in line {places[-1].lineno} of {places[-1].filename}: `{places[-1].line}`"
    if isinstance(error, NameError) and error.name in loose:
        says += f". {error.name} is set in a cell without a mark: move it into the task's own cell"
    return WRONG if name == "AssertionError" else ERROR, says


def cut(says: str) -> str:
    """A message that fits in a cell of a table, and that any file can hold."""
    says = says.encode("utf-8", "backslashreplace").decode("utf-8")
    return says if len(says) <= LONGEST else f"{says[: LONGEST - 2]} …"


def tasks_in(files) -> list[str]:
    found = (re.fullmatch(r"<task (\w+\.\d+)>", file) for file in files)
    return list(dict.fromkeys(match[1] for match in found if match))


def fresh_names() -> dict:
    """The names that code finds in a notebook before its first cell."""
    return {"__name__": "__main__", "display": lambda *things, **how: None}


def main(trace: str) -> None:
    """Serve requests until there are none. `trace` gets where the program stood at its end."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # an answer that asks for input gets none
    os.dup2(2, 1)
    if hasattr(os, "fork"):
        behind_a_guard()
    faulthandler.enable(open(trace, "w"), all_threads=False)
    # An empty one, as a notebook has, whose classes pickle finds.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    names = vars(module)
    names.update(fresh_names())
    sys.modules["classroom"] = None  # holds the solutions' whereabouts
    for line in requests:
        asked, since = json.loads(line), time.perf_counter()
        fault = attempt(asked["code"], asked["label"], names, asked["loose"])
        told = {"key": asked["key"], "seconds": time.perf_counter() - since, "fault": fault}
        print(json.dumps(told), file=answers, flush=True)
    os._exit(0)  # threads that an answer left behind would keep the process alive


def behind_a_guard() -> None:
    """Go on in a child, so that an answer which ends its parent does not end the marker.

    On Linux both end with whom they were started by.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # a lower one holds already
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    signal.signal(signal.SIGABRT, signal.SIG_IGN)  # it is the child's trace that is asked for
    die_with_parent()
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)  # of a signal, as shells tell it
    die_with_parent()


def die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    main(sys.argv[1])
