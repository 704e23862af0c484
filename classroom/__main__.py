"""Labs: get a lab, check your answers, mark a class.

    course.py labs start [02 ...]                  make your copies of these labs, or of all labs
    course.py labs check 02                        mark your copy of a lab; or check FILE
    course.py labs status                          show how far you are with each lab
    course.py labs solution 02                     show our solutions of tasks that you have tried
    course.py labs grade FOLDER or CLASS.zip --out marks.csv [--jobs 4] [--due 2026-11-30T23:59]
    course.py labs gradebook marks.csv ROSTER.csv --out FILE [--late 0.1] [--teams teams.csv]
    course.py labs export gradescope 02 --out autograder_02.zip
    course.py labs handout FOLDER [--zip]          make the folder for a class, without solutions
    course.py labs project start                   make the project's notebook from your answers
    course.py labs project check FILE [--board scores.csv] [--name NAME]

With --here, course.py uses the interpreter that you started it with, and sets nothing up.

Exit status: 0 if the work was done, whatever the marks are; 1 if something could not be done; 2 if
the request cannot be met; 130 after Ctrl-C.
"""

import argparse
import glob
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from classroom.lab import ROOT, Refused, labs, without_solutions

NO_LABS = "there are no labs in this copy of the course: your teacher hands them out"
NO_SOLUTIONS = (
    "this copy of the course has no solutions (classroom/solutions): {} is for whoever teaches"
)
FROM_SOLUTIONS = ("solution", "grade", "export", "handout")  # commands that need them


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line. This needs only Python's standard library, so that course.py can
    report a mistake before it sets up an environment."""
    form = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="course.py labs", **form)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    start = commands.add_parser("start", help="make your copy of a lab")
    start.add_argument(
        "labs", nargs="*", type=a_lab, metavar="NN", help="the labs' numbers (default: all)"
    )
    check = commands.add_parser("check", help="mark one notebook and print the result")
    check.add_argument("file", type=a_notebook, metavar="NN", help="the number of a lab, or a file")
    add_limits(check, seconds=(60, "s"), memory=(4, "GB"), output=(10, "MB"))
    commands.add_parser("status", help="show how far you are with each lab")
    solution = commands.add_parser("solution", help="show our solutions of the tasks you tried")
    solution.add_argument("lab", type=a_lab, metavar="NN")

    grade = commands.add_parser("grade", help="mark all notebooks of a folder or a zip")
    grade.add_argument("folder", type=Path, metavar="FOLDER")
    due = datetime.fromisoformat
    grade.add_argument("--due", type=due, metavar="TIME", help="when a file counts as late")
    grade.add_argument(
        "--out", type=Path, default=Path("marks.csv"), help="the table of marks to write"
    )
    half = max(1, (os.cpu_count() or 2) // 2)
    grade.add_argument(
        "--jobs", type=within(1, 1000, int), default=half, help="notebooks marked at once"
    )
    grade.add_argument("--again", action="store_true", help="also mark unchanged notebooks")
    add_limits(grade, seconds=(60, "s"), memory=(4, "GB"), output=(10, "MB"))

    book = commands.add_parser(
        "gradebook", help="write points into a gradebook of Canvas or Moodle"
    )
    book.add_argument("marks", type=a_file, metavar="MARKS.csv")
    book.add_argument("roster", type=a_file, metavar="ROSTER.csv", help="the exported gradebook")
    book.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to import")
    book.add_argument(
        "--count", choices=["best", "last"], default="best", help="of several hand-ins"
    )
    teams = "a table with the columns team and member, with a line for each member"
    book.add_argument("--teams", type=a_file, metavar="TEAMS.csv", help=teams)
    book.add_argument("--late", type=within(0, 1), default=0.0, help="share lost for each day late")
    export = commands.add_parser("export", help="make an autograder of a lab")
    export.add_argument("system", choices=["gradescope"])
    export.add_argument("lab", type=a_lab, metavar="NN")
    export.add_argument("--out", type=Path, required=True, metavar="FILE.zip")

    handout = commands.add_parser(
        "handout", help="make the folder for a class, without solutions and hidden tests"
    )
    handout.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that is not there")
    handout.add_argument("--zip", action="store_true", help="also write FOLDER.zip")

    project = commands.add_parser("project", help="begin the project, or measure your model")
    steps = project.add_subparsers(dest="step", metavar="STEP", required=True)
    steps.add_parser("start", help="make the project's notebook from your answers to the labs")
    measure = steps.add_parser(
        "check", help="train the model, and measure it in nats above the floor"
    )
    measure.add_argument("file", type=a_file, metavar="FILE")
    measure.add_argument(
        "--board", type=Path, help="a table of scores, to which this score is added"
    )
    measure.add_argument("--name", help="the name on the board (default: the file's name)")
    measure.add_argument("--seed", type=within(0, 2**30, int), help="seed of the documents")
    add_limits(measure, seconds=(300, "s of processor time"), memory=(4, "GB"))

    args = parser.parse_args(argv)
    if args.command == "start" and not labs():
        parser.error(NO_LABS)
    if args.command in FROM_SOLUTIONS and without_solutions():
        parser.error(NO_SOLUTIONS.format(f"labs {args.command}"))
    if args.command == "gradebook" and args.out in (args.marks, args.roster, args.teams):
        parser.error(f"--out {args.out} would replace what is read")
    return args


def add_limits(command: argparse.ArgumentParser, **limits) -> None:
    """Add an option for each limit: name=(default, unit)."""
    for name, (value, unit) in limits.items():
        text = f"limit in {unit} (default: {value})"
        command.add_argument(f"--{name}", type=within(0, 1e6), default=value, help=text)


def within(least: float, most: float, kind: type = float) -> Callable:
    """A type for an option of argparse: a number from `least` to `most`."""

    def number(text: str):
        if not least <= (value := kind(text)) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return number


def a_file(text: str) -> Path:
    """A type for an option of argparse: the path of a file that exists."""
    if not Path(text).is_file():
        moved = Path("work", text)  # an earlier version of the course had the folder labs/
        more = f"; your copy is {moved.as_posix()}" if moved.is_file() else ""
        raise argparse.ArgumentTypeError(f"there is no file {text}{more}")
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
