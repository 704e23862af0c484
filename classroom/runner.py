"""Executes the cells of a notebook one by one, when the marker asks for it. The marker starts this
file as a process of its own.

The marker sends a request as a line of JSON on standard input: {"key", "code", "label", "loose"}.
The answer is a line on standard output that holds the key of the request, the seconds that the cell
took, and the error of the cell, if there was one. Everything that cells print goes to standard
error, which the marker writes into a file.

This process gets the solution of a task only after the marker knows the mark of that task, and it
never decides about points. It protects against accidents and not against attacks, because an answer
runs with the rights of the person who marks it.
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
    """Execute a cell in the namespace `names`, and return its error, or None if there was none.

    Args:
        label: the name of the cell in tracebacks, such as "task 02.1".
        loose: names that the notebook sets in cells without a comment, for a better message.

    Returns:
        A dict of three. "kind" is "wrong" for an AssertionError, "unanswered" if the code still
        waits to be written, and "error" otherwise. "says" is the message, and "tasks" holds the
        tasks in whose cells the error arose.
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
    """Execute a cell in the namespace `names`. Tracebacks can show its lines."""
    file, code = f"<{label}>", without_magic(code)
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec"), names)


def without_magic(code: str) -> str:
    """The code without IPython's commands (%matplotlib, !ls, name?). Code that is plain Python
    stays as it is."""
    try:
        ast.parse(code)
        return code
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.sub(r"^([ \t]*)(?:[%!].*|\w[\w.]*\?+)$", r"\1pass", code, flags=re.M)


def describe(error: BaseException, frames: traceback.StackSummary, loose=()) -> tuple[str, str]:
    """The kind of an error and its message: the message of a check, or the error with the line of
    the student's code."""
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
    """The message, shortened for a cell of a table, with only characters that UTF-8 can encode."""
    says = says.encode("utf-8", "backslashreplace").decode("utf-8")
    return says if len(says) <= LONGEST else f"{says[: LONGEST - 2]} …"


def tasks_in(files) -> list[str]:
    """The tasks whose cells are among the names of files in a traceback."""
    found = (re.fullmatch(r"<task (\w+\.\d+)>", file) for file in files)
    return list(dict.fromkeys(match[1] for match in found if match))


def fresh_names() -> dict:
    """The namespace of a notebook before its first cell."""
    return {"__name__": "__main__", "display": lambda *things, **how: None}


def main(trace: str) -> None:
    """Answer requests until standard input ends. If the process is aborted, faulthandler writes the
    lines that it was executing into the file `trace`."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # code that asks for input gets none
    os.dup2(2, 1)
    if hasattr(os, "fork"):
        behind_a_guard()
    faulthandler.enable(open(trace, "w"), all_threads=False)
    # The cells run in a new, empty module __main__, as in a notebook, so that pickle finds classes.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    names = vars(module)
    names.update(fresh_names())
    sys.modules["classroom"] = None  # cannot be imported, because it knows where the solutions are
    for line in requests:
        asked, since = json.loads(line), time.perf_counter()
        fault = attempt(asked["code"], asked["label"], names, asked["loose"])
        told = {"key": asked["key"], "seconds": time.perf_counter() - since, "fault": fault}
        print(json.dumps(told), file=answers, flush=True)
    os._exit(0)  # ends the process even if code has left threads running


def behind_a_guard() -> None:
    """Go on in a child process. If an answer kills its parent process, it then kills this guard and
    not the marker. On Linux the child and the guard end when the process that started them ends.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # a lower limit is already set
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    signal.signal(signal.SIGABRT, signal.SIG_IGN)  # only the child writes its trace
    die_with_parent()
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)  # a shell reports a signal in this way
    die_with_parent()


def die_with_parent() -> None:
    """Let Linux kill this process when its parent ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    main(sys.argv[1])
