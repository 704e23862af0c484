"""Labs: get one, check it, mark a class.

    course.py labs start [02 ...]                  your copies, in labs/ (all when none is named)
    course.py labs check labs/02_masking_lab.ipynb
    course.py labs status                          how far you are with each
    course.py labs solution 02                     ours, for the tasks that you have tried
    course.py labs grade FOLDER or CLASS.zip --out marks.csv [--jobs 4] [--due 2026-11-30T23:59]
    course.py labs gradebook marks.csv ROSTER.csv --out FILE [--count last] [--late 0.1]
    course.py labs questions 02                    three for a class, and their key
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
from datetime import datetime
from pathlib import Path


def parse(argv: list[str]) -> argparse.Namespace:
    """Needs nothing but Python, so that a mistake is told before an environment is set up."""
    form = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="course.py labs", **form)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    start = commands.add_parser("start", help="make your copy of a lab")
    start.add_argument("labs", nargs="*", metavar="NN", help="2, 02, zoo; none: all of them")
    check = commands.add_parser("check", help="mark one notebook on the spot")
    check.add_argument("file", type=Path, metavar="FILE")
    commands.add_parser("status", help="how far you are with each lab")
    solution = commands.add_parser("solution", help="our solution of what you have tried")
    solution.add_argument("labs", nargs=1, metavar="NN")
    asked = commands.add_parser("questions", help="a lesson's three questions for a class")
    asked.add_argument("lesson", metavar="NN")
    grade = commands.add_parser("grade", help="mark everything in a folder, or in a class's zip")
    grade.add_argument("folder", type=Path, metavar="FOLDER")
    text = "tell by the files' times how many days late they are"
    grade.add_argument("--due", type=datetime.fromisoformat, metavar="TIME", help=text)
    text = "the table of marks; reports go beside it, into MARKS_reports/"
    grade.add_argument(
        "--out", type=Path, default=Path("marks.csv"), metavar="MARKS.csv", help=text
    )
    text = "notebooks marked at once (default: half the cores)"
    grade.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help=text)
    grade.add_argument("--again", action="store_true", help="mark also what has not changed")
    for command in (check, grade):
        limits = {"seconds": (60, "s"), "memory": (4, "GB"), "output": (10, "MB")}
        for name, (value, unit) in limits.items():
            text = f"limit of a cell in {unit} (default: {value})"
            command.add_argument(f"--{name}", type=float, default=value, metavar=unit, help=text)
    add_project(commands)
    book = commands.add_parser("gradebook", help="put points into a gradebook of Canvas or Moodle")
    book.add_argument("marks", type=Path, metavar="MARKS.csv")
    book.add_argument("roster", type=Path, metavar="ROSTER.csv", help="the exported gradebook")
    book.add_argument("--out", type=Path, required=True, metavar="FILE", help="the one to import")
    text = "which of several hand-ins of a lab (default: best)"
    book.add_argument("--count", choices=["best", "last"], default="best", help=text)
    text = "share of the points that each day begun takes off (default: 0)"
    book.add_argument("--late", type=float, default=0.0, metavar="SHARE", help=text)
    export = commands.add_parser("export", help="make a lab's autograder")
    export.add_argument("system", choices=["gradescope"])
    export.add_argument("labs", nargs=1, metavar="NN")
    export.add_argument("--out", type=Path, required=True, metavar="FILE.zip")
    args = parser.parse_args(argv)
    read = {"check": ["file"], "gradebook": ["marks", "roster"]}.get(args.command, [])
    for path in (getattr(args, name) for name in read):
        if not path.is_file():
            parser.error(f"there is no file {path}")
        if path == getattr(args, "out", None):
            parser.error(f"--out {path} would replace what is read")
    if args.command == "grade" and not (args.folder.is_dir() or args.folder.suffix == ".zip"):
        parser.error(f"{args.folder} is not a folder of submissions")
    if args.command == "grade" and args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: at least one notebook has to be marked at a time")
    if args.command == "gradebook" and not 0 <= args.late <= 1:
        parser.error(f"--late {args.late}: a share lies between 0 and 1")
    for name in ("seconds", "memory", "output"):
        if not getattr(args, name, 1) > 0:
            parser.error(f"--{name} {getattr(args, name)}: a limit is above zero")
    if args.command in ("start", "solution", "export"):
        args.labs = [key.zfill(2) if key.isdecimal() else key.split("_")[0] for key in args.labs]
        from classroom.lab import labs

        if not labs():
            parser.error(
                "this copy of the course has no notebooks/labs, from which the labs are made: "
                "whoever teaches hands out the copies"
            )
        for key in set(args.labs) - labs().keys():
            parser.error(f"there is no lab {key}; the labs: {', '.join(labs())}")
    return args


def add_project(commands) -> None:
    project = commands.add_parser("project", help="begin the project, or measure it")
    steps = project.add_subparsers(dest="step", metavar="STEP", required=True)
    steps.add_parser("start", help="make its notebook, with your answers to the labs in it")
    measure = steps.add_parser("check", help="train it, and measure it in nats above the floor")
    measure.add_argument("file", type=a_file, metavar="FILE")
    text = "the scores of a class; gets a line with this one"
    measure.add_argument("--board", type=Path, metavar="SCORES.csv", help=text)
    measure.add_argument("--name", help="as the board has it (default: the file's)")
    text = "draws the documents; without it they are drawn anew"
    measure.add_argument("--seed", type=a_seed, metavar="N", help=text)
    for name, value, unit in (("seconds", 300, "s of processor time"), ("memory", 4, "GB")):
        text = f"limit in {unit} (default: {value})"
        measure.add_argument(f"--{name}", type=float, default=value, metavar="X", help=text)


def a_file(name: str) -> Path:
    if not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {name}")
    return Path(name)


def a_seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not 0, 1, 2 or another whole number")
    return int(text)


def start(args) -> int:
    from classroom.edition import start as write_edition
    from classroom.lab import ROOT, labs

    for key in args.labs or labs():
        path, new = write_edition(key)
        print(f"{path.relative_to(ROOT)}{'' if new else ' (there already, and not yet begun)'}")
    print("Open them with: python course.py lab")
    return 0


def check(args) -> int:
    from classroom.edition import remember
    from classroom.lab import NotALab, labs, read_lab, read_submission
    from classroom.marker import RIGHT, CouldNotRun, Limits, family, first_to_look_at, mark
    from classroom.remarks import remarks
    from classroom.runner import UNANSWERED

    try:
        submission = read_submission(args.file)
        source = labs().get(submission.key)
        lab = read_lab(source) if source else read_lab(args.file, submission.key)
        with family.gathered():
            marks = mark(lab, submission, Limits(args.seconds, args.memory, args.output))
    except (NotALab, CouldNotRun) as error:
        print(error, file=sys.stderr)
        return 1
    points = sum(one.points for one in marks)
    print(f"{lab.path.stem}: {points} of {lab.points} points")
    for one in marks:
        told = one.status if one.status in (RIGHT, UNANSWERED) else f"{one.status}: {one.says}"
        print(f"  {one.task:<8}{one.points} of {one.possible}  " + told.replace("\n", f"\n{'':18}"))
    for remark in remarks(lab, submission):
        print(f"Look at this: {remark}")
    first = first_to_look_at(marks)
    if first:
        print(f"Look first at task {first.task}: {first.says.splitlines()[0]}")
    if not source:
        print("By the checks of the file itself; whoever teaches has further ones.")
    remember(args.file, f"{points} of {lab.points} points")
    return 0


def status(args) -> int:
    from classroom.edition import progress

    for line in progress():
        print(line)
    return 0


def solution(args) -> int:
    from classroom.edition import tried_tasks
    from classroom.lab import labs, read_lab

    lab = read_lab(labs()[args.labs[0]])
    tried = tried_tasks(lab)
    for task in lab.tasks:
        waits = "" if task.name in tried else "  waits for a try of your own, in labs/\n"
        print(f"{task.name} {task.title}\n{waits or task.solution}\n")
    return 0 if tried else 1


def questions(args) -> int:
    from docs.questions import NoQuestions, sheet

    try:
        print(sheet(args.lesson.zfill(2)))
    except NoQuestions as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def grade(args) -> int:
    from collections import Counter
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from tqdm import tqdm

    from classroom.archives import Refused, unpack
    from classroom.grade import NotOurTable
    from classroom.grade import grade as mark_folder
    from classroom.marker import Limits

    def bar(futures, count):
        return tqdm(futures, total=count, unit="notebook", disable=None)

    limits = Limits(args.seconds, args.memory, args.output)
    how = {"jobs": args.jobs, "limits": limits, "again": args.again, "bar": bar, "due": args.due}
    packed = not args.folder.is_dir()
    try:
        with TemporaryDirectory() if packed else nullcontext() as place:
            if packed:
                args.folder, archive = Path(place) / "class", args.folder
                for sentence in unpack(archive, args.folder):
                    print(sentence, file=sys.stderr)
            rows = mark_folder(args.folder, args.out, **how)
    except (NotOurTable, Refused) as error:
        print(error, file=sys.stderr)
        return 2
    for status, count in sorted(Counter(row["status"] for row in rows).items()):
        print(f"{count:>5}  {status}")
    if args.due and all(float(row["late"] or 0) for row in rows):
        print("All are late: do the files' times say when the archive was packed?")
    print(f"{args.out} has {len(rows)} rows; reports: {args.out.stem}_reports/")
    return 0


def project(args) -> int:
    from classroom.project import begin, measure

    return begin(args) if args.step == "start" else measure(args)


def gradebook(args) -> int:
    from classroom.grade import NotOurTable
    from classroom.gradebook import NotARoster
    from classroom.gradebook import gradebook as write_gradebook

    try:
        told = write_gradebook(args.marks, args.roster, args.out, args.count, args.late)
    except (NotARoster, NotOurTable) as error:
        print(error, file=sys.stderr)
        return 2
    for sentence in told:
        print(sentence)
    print(f"{args.out} can be imported.")
    return 0


def export(args) -> int:
    from classroom.gradescope import write_autograder

    write_autograder(args.labs[0], args.out)
    print(f"{args.out} has {args.out.stat().st_size / 1e6:.0f} MB.")
    return 0


def main(argv: list[str]) -> int:
    args = parse(argv)
    # What asks a program to end does so as Ctrl-C does: nothing that was started goes on.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return globals()[args.command](args)
    except OSError as error:
        print(f"{error}. Check the disk's space and its permissions.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = " What was marked before stands in the table." * (args.command == "grade")
        print(f"\nInterrupted.{kept}", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
