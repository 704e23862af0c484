"""Labs: get one, check it, mark a class.

    course.py labs start [02 ...]                  your copies, in labs/ (all when none is named)
    course.py labs check labs/02_masking_lab.ipynb
    course.py labs status                          how far you are with each
    course.py labs solution 02                     ours, for the tasks that you have tried
    course.py labs grade FOLDER or CLASS.zip --out marks.csv [--jobs 4] [--due 2026-11-30T23:59]
    course.py labs gradebook marks.csv ROSTER.csv --out FILE [--count last] [--late 0.1]
    course.py labs export gradescope 02 --out autograder_02.zip
    course.py labs project start                   the project's notebook, begun with your answers
    course.py labs project check FILE [--board scores.csv] [--name NAME]

With --here, course.py uses the interpreter at hand and sets nothing up.

Exit status: 0 when the work was done, whatever the marks; 1 when something could not be done; 2 for
a request that cannot be met; 130 after Ctrl-C.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from classroom.lab import Refused, labs


def parse(argv: list[str]) -> argparse.Namespace:
    """Needs nothing but Python, so that a mistake is told before an environment is set up."""
    form = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="course.py labs", **form)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    start = commands.add_parser("start", help="make your copy of a lab")
    start.add_argument("labs", nargs="*", type=a_lab, metavar="NN", help="none: all of them")
    check = commands.add_parser("check", help="mark one notebook on the spot")
    check.add_argument("file", type=a_file, metavar="FILE")
    add_limits(check, seconds=(60, "s"), memory=(4, "GB"), output=(10, "MB"))
    commands.add_parser("status", help="how far you are with each lab")
    solution = commands.add_parser("solution", help="our solution of what you have tried")
    solution.add_argument("lab", type=a_lab, metavar="NN")

    grade = commands.add_parser("grade", help="mark everything in a folder, or in a class's zip")
    grade.add_argument("folder", type=Path, metavar="FOLDER")
    due = datetime.fromisoformat
    grade.add_argument("--due", type=due, metavar="TIME", help="tells by files' times who is late")
    grade.add_argument("--out", type=Path, default=Path("marks.csv"), help="the table of marks")
    half = max(1, (os.cpu_count() or 2) // 2)
    grade.add_argument("--jobs", type=within(1, 1000, int), default=half, help="marked at once")
    grade.add_argument("--again", action="store_true", help="mark also what has not changed")
    add_limits(grade, seconds=(60, "s"), memory=(4, "GB"), output=(10, "MB"))

    book = commands.add_parser("gradebook", help="put points into a gradebook of Canvas or Moodle")
    book.add_argument("marks", type=a_file, metavar="MARKS.csv")
    book.add_argument("roster", type=a_file, metavar="ROSTER.csv", help="the exported gradebook")
    book.add_argument("--out", type=Path, required=True, metavar="FILE", help="the one to import")
    book.add_argument("--count", choices=["best", "last"], default="best", help="of several")
    book.add_argument("--late", type=within(0, 1), default=0.0, help="share that a day takes off")
    export = commands.add_parser("export", help="make a lab's autograder")
    export.add_argument("system", choices=["gradescope"])
    export.add_argument("lab", type=a_lab, metavar="NN")
    export.add_argument("--out", type=Path, required=True, metavar="FILE.zip")

    project = commands.add_parser("project", help="begin the project, or measure it")
    steps = project.add_subparsers(dest="step", metavar="STEP", required=True)
    steps.add_parser("start", help="make its notebook, with your answers to the labs in it")
    measure = steps.add_parser("check", help="train it, and measure it in nats above the floor")
    measure.add_argument("file", type=a_file, metavar="FILE")
    measure.add_argument("--board", type=Path, help="a class's scores, to which this one is added")
    measure.add_argument("--name", help="as the board has it (default: the file's)")
    measure.add_argument("--seed", type=within(0, 2**30, int), help="draws the documents")
    add_limits(measure, seconds=(300, "s of processor time"), memory=(4, "GB"))

    args = parser.parse_args(argv)
    if args.command == "start" and not labs():
        parser.error("there is no notebooks/labs here: whoever teaches hands out the copies")
    if args.command == "gradebook" and args.out in (args.marks, args.roster):
        parser.error(f"--out {args.out} would replace what is read")
    return args


def add_limits(command: argparse.ArgumentParser, **limits) -> None:
    for name, (value, unit) in limits.items():
        text = f"limit in {unit} (default: {value})"
        command.add_argument(f"--{name}", type=within(0, 1e6), default=value, help=text)


def within(least: float, most: float, kind: type = float) -> Callable:
    """A type of argparse: a number between two others."""

    def number(text: str):
        if not least <= (value := kind(text)) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return number


def a_file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def a_lab(text: str) -> str:
    key, known = text.zfill(2) if text.isdecimal() else text.split("_")[0], labs()
    if key not in known:
        raise argparse.ArgumentTypeError(f"there is no lab {key}; the labs: {', '.join(known)}")
    return key


def main(argv: list[str]) -> int:
    args = parse(argv)
    from classroom import commands

    # What asks a program to end does so as Ctrl-C does: nothing that was started goes on.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return getattr(commands, args.command)(args) or 0
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. What was finished before is kept.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
