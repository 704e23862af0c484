"""With these commands a student gets the labs and checks the answers, and a teacher hands out the
labs and marks what a class has handed in.

For a student:

    python3 course.py labs start [02 03 ...]
    python3 course.py labs check 02            or: check FILE, for any notebook
    python3 course.py labs status
    python3 course.py labs solution 02
    python3 course.py labs project start
    python3 course.py labs project check FILE

For a teacher (docs/instructors.md explains these commands):

    python3 course.py labs handout FOLDER [--zip]
    python3 course.py labs grade FOLDER --out marks.csv                 or: grade CLASS.zip
    python3 course.py labs gradebook marks.csv ROSTER.csv --out FILE
    python3 course.py labs export gradescope 02 --out autograder_02.zip

Most commands have options, for example for late work. Write `python3 course.py labs COMMAND
--help` to see them.

Like every command of course.py, a command of labs first sets up the environment in the folder
`.venv` if that is needed. If you write `python3 course.py --here labs COMMAND`, nothing is set up,
and the command runs with the Python that you started course.py with.

Exit status: 0 if the command did its work, even if every answer was wrong; 1 if the command began
and could not do its work, for example because a file is not a notebook; 2 if the command did not
begin, because an argument is wrong, for example because there is no lab with this number; 130 after
Ctrl-C.
"""

import argparse
import glob
import os
import re
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from classroom.lab import ROOT, Refused, labs, without_solutions

NO_LABS = "there are no labs in this copy of the course: your teacher hands them out"
NO_SOLUTIONS = (
    "this copy of the course has no solutions (classroom/solutions), which `labs {}` needs: {}"
)
# The commands that need them, and what to do in the folder of a class.
FROM_SOLUTIONS = dict.fromkeys(
    ("grade", "export", "handout"), "whoever teaches gives this command in the whole course"
) | {"solution": "ask whoever teaches your class"}
# The default of a limit, and what is limited.
SECONDS = 60, "seconds for the answer to a task, and again for each of its checks"
MEMORY = 4, "gigabytes of memory for a notebook"
OUTPUT = 10, "megabytes that a notebook may print"


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line. This needs only Python's standard library, so that course.py can
    report a mistake before it sets up an environment."""
    form = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="course.py labs", **form)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, text: str, to=commands) -> argparse.ArgumentParser:
        """Add a command. `text` is its line in the list of commands, and opens its own help."""
        return to.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")

    one_lab = {"type": a_lab, "metavar": "NN"}
    start = add("start", "make your own copies of the labs in the folder work/labs/")
    text = "the number of a lab, such as 02; if you name no lab, a copy of every lab is made"
    start.add_argument("labs", nargs="*", help=text, **one_lab)

    check = add("check", "mark one notebook, and print the points and what is wrong")
    text = "the number of a lab, for your own copy in work/labs/, or the path of a notebook"
    check.add_argument("file", type=a_notebook, metavar="NN|FILE", help=text)
    add_limits(check, seconds=SECONDS, memory=MEMORY, output=OUTPUT)

    add(
        "status", "show how many tasks of each lab you have begun, and the last points that you got"
    )

    solution = add("solution", "print our solutions of those tasks of a lab that you have tried")
    solution.add_argument("lab", help="the number of the lab", **one_lab)

    handout = add(
        "handout", "make a copy of the course for a class, without solutions and hidden tests"
    )
    text = "the folder to make, which must not exist yet and must be outside of the course"
    handout.add_argument("folder", type=Path, metavar="FOLDER", help=text)
    handout.add_argument("--zip", action="store_true", help="also write this folder as FOLDER.zip")

    grade = add(
        "grade", "mark all notebooks that a class has handed in, and write a table of marks"
    )
    text = "a folder that holds a folder or a file of each student, or a zip file of such a folder"
    grade.add_argument("folder", type=something, metavar="FOLDER|CLASS.zip", help=text)
    text = "the table of marks to write or to complete (default: marks.csv)"
    grade.add_argument("--out", type=Path, default=Path("marks.csv"), metavar="FILE", help=text)
    text = (
        "the time until which work is accepted, such as 2026-11-30T23:59, by the clock of this "
        "machine; a file that was changed later counts as late; a date alone means the end of the "
        "day"
    )
    grade.add_argument("--due", type=a_time, metavar="TIME", help=text)
    half = max(1, (os.cpu_count() or 2) // 2)
    text = f"how many notebooks are marked at the same time (default on this machine: {half})"
    grade.add_argument("--jobs", type=within(1, 1000, int), default=half, metavar="N", help=text)
    text = "also mark notebooks that have a mark in the table and have not changed since then"
    grade.add_argument("--again", action="store_true", help=text)
    add_limits(grade, seconds=SECONDS, memory=MEMORY, output=OUTPUT)

    book = add("gradebook", "write the points into a gradebook that Canvas or Moodle has exported")
    text = "the table of marks that `labs grade` has written"
    book.add_argument("marks", type=a_file, metavar="MARKS.csv", help=text)
    text = "the gradebook that you have exported from Canvas or Moodle; it is not changed"
    book.add_argument("roster", type=a_file, metavar="ROSTER.csv", help=text)
    text = "the gradebook to write, which you import into Canvas or Moodle"
    book.add_argument("--out", type=Path, required=True, metavar="FILE", help=text)
    text = (
        "which hand-in counts if a student has handed in a lab several times: the one with the "
        "most points after the deduction for late days (best, the default), or the last one (last)"
    )
    book.add_argument("--count", choices=["best", "last"], default="best", help=text)
    text = (
        "the share of its points that a hand-in loses for each day late, from 0 to 1; 0.1 takes "
        "away a tenth for each day (default: 0)"
    )
    book.add_argument("--late", type=within(0, 1), default=0.0, metavar="SHARE", help=text)
    text = (
        "a table of the teams of a group assignment, with the columns team and member and a line "
        "for each member"
    )
    book.add_argument("--teams", type=a_file, metavar="TEAMS.csv", help=text)

    export = add("export", "make a program that marks one lab on Gradescope (an autograder)")
    export.add_argument("system", choices=["gradescope"], help="the system that runs the program")
    export.add_argument("lab", help="the number of the lab", **one_lab)
    text = "the zip file to write, which you upload to Gradescope"
    export.add_argument("--out", type=Path, required=True, metavar="FILE.zip", help=text)

    project = add(
        "project", "begin the project, which docs/project.md describes, or measure your model"
    )
    steps = project.add_subparsers(dest="step", metavar="STEP", required=True)
    text = (
        "make the notebook work/labs/project.ipynb, which holds your answers to the labs where the "
        "project needs them"
    )
    add("start", text, steps)
    measure = add(
        "check",
        "train the model of a project's notebook, and print how many nats its loss is above the "
        "lowest possible loss",
        steps,
    )
    measure.add_argument("file", type=a_file, metavar="FILE", help="the notebook of the project")
    text = "a table of scores, to which a line with this score is added"
    measure.add_argument("--board", type=Path, metavar="SCORES.csv", help=text)
    text = "the name in this line (default: the name of the notebook)"
    measure.add_argument("--name", help=text)
    text = "the seed with which the documents are drawn, to repeat a check (default: a new one)"
    measure.add_argument("--seed", type=within(0, 2**30, int), help=text)
    training = "seconds of processor time that the training may take"
    add_limits(measure, seconds=(300, training), memory=MEMORY)

    args = parser.parse_args(argv)
    if args.command == "start" and not labs():
        parser.error(NO_LABS)
    if args.command in FROM_SOLUTIONS and without_solutions():
        parser.error(NO_SOLUTIONS.format(args.command, FROM_SOLUTIONS[args.command]))
    if args.command == "gradebook" and args.out in (args.marks, args.roster, args.teams):
        parser.error(f"--out {args.out} would replace what is read")
    return args


def add_limits(command: argparse.ArgumentParser, **limits) -> None:
    """Add an option for each limit: name=(default, what is limited)."""
    for name, (value, what) in limits.items():
        text = f"the largest number of {what} (default: {value})"
        number = {"type": within(0, 1e6), "default": value, "metavar": "N"}
        command.add_argument(f"--{name}", help=text, **number)


def within(least: float, most: float, kind: type = float) -> Callable:
    """A type for an option of argparse: a number from `least` to `most`."""

    def number(text: str):
        try:
            if least <= (value := kind(text)) <= most:
                return value
        except ValueError:
            pass
        what = "whole number" if kind is int else "number, such as 0.1," if most == 1 else "number"
        raise argparse.ArgumentTypeError(f"{text} is not a {what} from {least:g} to {most:g}")

    return number


def a_file(text: str) -> Path:
    """A type for an option of argparse: the path of a file that exists."""
    if not Path(text).is_file():
        moved = Path("work", text)  # an earlier version of the course had the folder labs/
        more = f"; your copy is {moved.as_posix()}" if moved.is_file() else ""
        raise argparse.ArgumentTypeError(f"there is no file {text}{more}")
    return Path(text)


def a_time(text: str) -> datetime:
    """A type for an option of argparse: a time, or a date, which stands for the end of that day."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text} is not a time such as 2026-11-30T23:59, or a date such as 2026-11-30"
        ) from None
    return time.replace(hour=23, minute=59) if re.fullmatch(r"[\d-]+", text) else time


def something(text: str) -> Path:
    """A type for an option of argparse: the path of a file or of a folder that exists."""
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no folder or file {text}")
    return Path(text)


def a_notebook(text: str) -> Path:
    """A type for an option of argparse: a file, or the place of the student's copy of the lab with
    this number."""
    key, home = text.zfill(2) if text.isdecimal() else text, ROOT / "work" / "labs"
    if not Path(text).exists():
        if key in labs():
            return home / labs()[key].name
        # A student who was handed the copies has no sources of the labs.
        if copies := sorted(home.glob(f"{glob.escape(key)}_*lab.ipynb")):
            return copies[0]
    return a_file(text)


def a_lab(text: str) -> str:
    """A type for an option of argparse: a lab, by its number or its name; returns its key."""
    key, known = text.zfill(2) if text.isdecimal() else text.split("_")[0], labs()
    if not known:
        raise argparse.ArgumentTypeError(NO_LABS)
    if key not in known:
        raise argparse.ArgumentTypeError(f"there is no lab {key}; the labs: {', '.join(known)}")
    return key


def find_working_folder() -> None:
    """Check that the folder still exists in which the command was given.

    Raises:
        Refused: it was deleted. Otherwise many calls would fail with an error that names no file.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise Refused(
            "the folder in which you gave this command was deleted; cd to another"
        ) from None


def main(argv: list[str]) -> int:
    """Run the command that `argv` asks for, and return the exit status."""
    args = parse(argv)
    from classroom import commands
    from classroom.work import take_in

    # These signals are handled like Ctrl-C, so that every process which was started is ended, too.
    # SIGHUP comes when a terminal is closed, and is left ignored if `nohup` ignores it.
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows lacks one
    before = {one: signal.getsignal(one) for one in (getattr(signal, name) for name in names)}
    for one in before:
        if before[one] != signal.SIG_IGN:
            signal.signal(one, signal.default_int_handler)
    try:
        find_working_folder()
        # `check` leaves the folder of an earlier version as it is, because FILE may be in it.
        if args.command in ("start", "status", "solution") or vars(args).get("step") == "start":
            for sentence in take_in():
                print(sentence)
        return getattr(commands, args.command)(args) or 0
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. What was finished before is kept.", file=sys.stderr)
        return 130
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
