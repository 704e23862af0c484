"""Runs one notebook's answers between our own set-up and checks. This is the child's side.

    python -m classroom.runner JOB REPORT

JOB is a JSON file that `marker` writes. What happens goes to the file REPORT, one JSON object a
line and each flushed at once, so that printing, crashing or hanging in an answer takes nothing from
what was told before.

It contains accidents, not attackers: an answer runs with the rights of whoever marks it.
"""

import ast
import json
import linecache
import os
import re
import sys
import traceback
import types

RIGHT, WRONG, UNANSWERED, ERROR = "right", "wrong", "unanswered", "error"
MISSING, STOPPED = "missing", "stopped"
RAN = {RIGHT, WRONG, UNANSWERED}  # the others could not be run


def run(parts: list[dict], answers: dict, tell, names: dict, done: dict, loose=()) -> None:
    """Walk through a lab's parts and tell what each task earns.

    Args:
        parts: the lab as JSON: {"given": code}, or {"name", "solution", "checks": [{"label",
            "points", "code"}]}.
        answers: the cells of each task, by its name.
        tell: called with a dictionary as each thing happens: {"begin": name} before a task, with
            None before what is given; {"end": name, "status", "points", "says"} after it.
        names: where the code runs, as `fresh_names` makes them.
        done: tasks marked by an earlier process, with their status: not marked again.
        loose: names that the notebook sets in cells without a mark, for a better message.
    """
    asked = False
    for part in parts:
        if "given" in part:
            tell({"begin": None})
            try:
                execute(part["given"], "given", names)
            except Exception as error:
                if not asked:
                    raise
                # After a task, it may show what the student made: that is no reason to stop.
                tell({"note": describe(error, loose)})
            continue
        asked, name = True, part["name"]
        if name in done:
            cells = answers[name] if done[name] == RIGHT else [part["solution"]]
            for cell in cells:
                execute(cell, f"task {name}", names)
            continue
        tell({"begin": name})
        status, points, says = mark_task(part, answers.get(name), names, loose)
        tell({"end": name, "status": status, "points": points, "says": says})
        if status != RIGHT:  # later tasks that build on this one are judged by themselves
            execute(part["solution"], f"solution {name}", names)


def fresh_names() -> dict:
    """The names that code finds in a notebook before its first cell."""
    return {"__name__": "__main__", "display": lambda *things, **how: None}


def mark_task(part: dict, cells: list[str] | None, names: dict, loose=()) -> tuple[str, int, str]:
    """(status, points, message) of one task: its cells are executed in `names`, then its checks."""
    name = part["name"]
    if not cells:
        return MISSING, 0, f"no cell has the mark # TASK {name}"
    try:
        for cell in cells:
            execute(cell, f"task {name}", names)
    except BaseException as error:
        return judge(error, ERROR, loose)
    points, first = 0, None
    for check in part["checks"]:
        try:
            execute(check["code"], f"check {name}", names)
            points += check["points"]
        except BaseException as error:
            status, _, says = judge(error, WRONG, loose)
            first = first or (status, f"{check['label']}: {says}" if check["label"] else says)
    return (first[0], points, first[1]) if first else (RIGHT, points, "")


def judge(error: BaseException, assertion: str, loose) -> tuple[str, int, str]:
    """What an exception says of an answer. A check that fails is an AssertionError."""
    waits = isinstance(error, NotImplementedError)
    if waits and (not str(error) or "waits for your code here" in str(error)):
        return UNANSWERED, 0, "not answered yet"
    return assertion if isinstance(error, AssertionError) else ERROR, 0, describe(error, loose)


def describe(error: BaseException, loose=()) -> str:
    """The message of a check, or the error with the student's own line."""
    if isinstance(error, AssertionError) and str(error).strip():
        return str(error).strip()
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if frame.filename.startswith(("<task", "<check"))]
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        said += f", in {error.filename}: `{(error.text or '').strip()}`"
    elif places:
        said += f", in line {places[-1].lineno} of {places[-1].filename}: `{places[-1].line}`"
    if isinstance(error, NameError) and error.name in loose:
        said += f". {error.name} is set in a cell without a mark: move it into the task's own cell"
    return said


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
    except (SyntaxError, ValueError, RecursionError):
        return re.sub(r"^([ \t]*)(?:[%!].*|\w[\w.]*\?+)$", r"\1pass", code, flags=re.M)


def main(job: str, report: str) -> None:
    with open(job, encoding="utf-8") as file:
        given = json.load(file)
    channel = open(report, "a", encoding="utf-8")

    def tell(event: dict) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    # An empty one, as a notebook has, whose classes pickle finds.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    module.__dict__.update(fresh_names())
    try:
        run(given["parts"], given["answers"], tell, vars(module), given["done"], given["loose"])
        tell({"done": True})
    except BaseException as error:
        tell({"failed": describe(error)})
    channel.close()
    os._exit(0)  # threads that an answer left behind would keep the process alive


if __name__ == "__main__":
    main(*sys.argv[1:])
