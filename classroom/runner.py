"""Executes the cells of a notebook one by one, when the marker asks for it. The marker starts this
file as a process of its own.

The marker sends a request as a line of JSON on standard input: {"key", "cells", "label", "loose",
"whole"}. The answer is a line on standard output that holds the key of the request, and the error
of the first cell that failed, if there was one. Everything that cells print goes to standard error,
which the marker writes into a file.

This process gets the solution of a task only after the marker knows the mark of that task, and it
never decides about points. It protects against accidents and not against attacks, because an answer
runs with the rights of the person who marks it.
"""

import ast
import contextlib
import json
import linecache
import os
import re
import signal
import sys
import traceback
import types

WRONG, UNANSWERED, ERROR = "wrong", "unanswered", "error"
LONGEST = 500  # characters of a message
READABLE = 100_000  # characters of a cell in which commands of notebooks are looked for
LARGEST = 1_000_000_000  # bytes of a file that an answer may write
# The cell magics of IPython that execute the rest of their cell as Python.
EXECUTING = re.compile(r"\A\s*%%(?:time|capture|prun)\b.*")


def attempt(code: str, label: str, names: dict, loose=(), whole=True) -> dict | None:
    """Execute a cell in the namespace `names`, and return its error, or None if there was none.

    Args:
        label: the name of the cell in tracebacks, such as "task 02.1".
        loose: names that the notebook sets in cells without a comment, for a better message.
        whole: without it, only what the cell imports and defines is executed.

    Returns:
        A dict of three. "kind" is "wrong" for an AssertionError, "unanswered" if the code still
        waits to be written, and "error" otherwise. "says" is the message, and "tasks" holds the
        tasks in whose cells the error arose.
    """
    try:
        execute(code if whole else definitions(code), label, names)
        return None
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        kind, says = describe(error, frames, loose, code.splitlines(), f"<{label}>")
        tasks = tasks_in(frame.filename for frame in frames)
        return {"kind": kind, "says": cut(says), "tasks": tasks}


def execute(code: str, label: str, names: dict) -> None:
    """Execute a cell in the namespace `names`. Tracebacks can show the lines of a student's cell.
    They cannot show those of our own cells, because an answer could read a solution or a hidden
    test in this way, and hand it out in a message.

    What a check defines is forgotten after it, and is never seen by an answer, which may have a
    function of the same name."""
    file, code = f"<{label}>", plain(code)
    if label.startswith("task"):
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    if "get_ipython" in code:
        import IPython

        # A cell may import it from either place.
        IPython.get_ipython = IPython.core.getipython.get_ipython = get_ipython
    exec(compile(code, file, "exec"), dict(names) if label.startswith("check") else names)


def plain(code: str) -> str:
    """The code as plain Python. Commands of notebooks, such as %matplotlib, !ls and name?, become
    calls of `get_ipython()`. Code that is plain Python stays as it is, and so does very long code,
    because IPython would take minutes for it."""
    code = EXECUTING.sub("", code)
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        from IPython.core.inputtransformer2 import TransformerManager

        with contextlib.suppress(SyntaxError, ValueError, RuntimeError, MemoryError):
            return TransformerManager().transform_cell(code) if len(code) < READABLE else code
    return code


def get_ipython() -> "Shell":
    """The shell of the cell that calls this function."""
    return Shell(sys._getframe(1).f_globals)


class Shell:
    """Stands in for the object that `get_ipython()` returns in a notebook. The command %time
    executes its line. All other commands do nothing, whether they draw, install or list files."""

    def __init__(self, names: dict):
        self.user_ns = names

    def run_line_magic(self, name: str, line: str, *more, **options):
        if name not in ("time", "prun"):
            return None
        try:
            code = compile(line, f"<%{name}>", "eval")
        except SyntaxError:
            code = compile(line, f"<%{name}>", "exec")
        return eval(code, self.user_ns)

    def getoutput(self, *more, **options):
        from IPython.utils.text import SList

        return SList()

    def __getattr__(self, name: str):
        return self

    def __call__(self, *more, **options) -> None:
        return None

    def __contains__(self, item) -> bool:
        return False


def definitions(code: str) -> str:
    """What a cell imports and defines, and the constants that it sets."""

    def stays(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            with contextlib.suppress(ValueError, TypeError, MemoryError, RecursionError):
                ast.literal_eval(node.value)
                return True
        kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return isinstance(node, kinds)

    return ast.unparse(ast.Module([n for n in ast.parse(plain(code)).body if stays(n)], []))


def describe(
    error: BaseException, frames: traceback.StackSummary, loose=(), lines=(), file: str = ""
) -> tuple[str, str]:
    """The kind of an error and its message: the message of a check, or the error with the line of
    the student's code or of the check. `lines` are those of the cell that was executed, and `file`
    is its name in tracebacks."""
    says = "".join(traceback.format_exception_only(error)).strip()
    name, _, message = says.partition(": ")
    if name == "AssertionError" and message:
        return WRONG, message
    if name == "NotImplementedError" and (not message or "waits for your code here" in message):
        return UNANSWERED, "not answered yet"
    places = [frame for frame in frames if frame.filename.startswith(("<task", "<check"))]
    if places and not isinstance(error, SyntaxError):
        place = places[-1]
        line = place.line or (lines[place.lineno - 1].strip() if place.filename == file else "")
        says += f", in line {place.lineno} of {place.filename}" + f": `{line}`" * bool(line)
    if (missing := missing_name(error)) in loose:
        says += f". {missing} is set in a cell without a mark: move it into the task's own cell"
    return WRONG if name == "AssertionError" else ERROR, says


def missing_name(error: BaseException) -> str | None:
    """The name that an error misses, such as "np", or "os.path" if a module was not imported."""
    if isinstance(error, AttributeError) and isinstance(error.obj, types.ModuleType):
        return f"{error.obj.__name__}.{error.name}"
    return error.name if isinstance(error, NameError) else None


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
    names = {"__name__": "__main__", "get_ipython": get_ipython}
    return names | {"display": lambda *things, **how: None}


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # code that asks for input gets none
    os.dup2(2, 1)
    if hasattr(os, "fork"):
        behind_a_guard()
    # The cells run in a new, empty module __main__, as in a notebook, so that pickle finds classes.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    names = vars(module)
    names.update(fresh_names())
    sys.modules["classroom"] = None  # cannot be imported, because it knows where the solutions are
    for line in requests:
        asked, fault = json.loads(line), None
        for code in asked["cells"]:
            fault = attempt(code, asked["label"], names, asked["loose"], asked["whole"])
            if fault:
                break
        print(json.dumps({"key": asked["key"], "fault": fault}), file=answers, flush=True)
    os._exit(0)  # ends the process even if code has left threads running


def behind_a_guard() -> None:
    """Go on in a child process. The parent process becomes a guard. When the child ends, when the
    marker ends, or when the marker asks for it by SIGTERM, the guard ends everything that the child
    has started. If an answer kills its parent process, it kills the guard and not the marker.
    """
    import resource

    import psutil

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # a lower limit is already set
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    control(PR_SET_CHILD_SUBREAPER, 1)  # a process that loses its parent becomes the guard's child
    number = os.fork()
    if not number:
        return control(PR_SET_PDEATHSIG, signal.SIGKILL)
    guard, child = psutil.Process(), psutil.Process(number)

    def leave(code: int) -> None:
        with contextlib.suppress(psutil.Error):  # it has ended by itself
            child.kill()
        # Python's own helper removes the shared memory that the child has left. It ends by itself
        # then, and gets two seconds for that.
        spared = "multiprocessing.resource_tracker"
        while left := guard.children(recursive=True):
            for one in left:
                with contextlib.suppress(psutil.Error):
                    if not spared or spared not in " ".join(one.cmdline()):
                        one.kill()
            psutil.wait_procs(left, timeout=2)
            spared = ""
        os._exit(code if code >= 0 else 128 - code)  # a shell reports a signal in this way

    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, lambda number, frame: leave(-number))
    control(PR_SET_PDEATHSIG, signal.SIGTERM)
    while (ended := os.wait())[0] != number:  # an orphan has ended
        pass
    leave(os.waitstatus_to_exitcode(ended[1]))


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def control(option: int, value: int) -> None:
    """Ask Linux for something that concerns this process: a signal when its parent ends, or to
    become the parent of its orphaned descendants."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
