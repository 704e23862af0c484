"""What the commands do and print. Each gets its arguments as `__main__` has read them."""

import secrets
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from classroom import edition, scoreboard
from classroom import grade as grading
from classroom import gradebook as books
from classroom.archives import unpack
from classroom.gradescope import write_autograder
from classroom.lab import ROOT, labs, read_lab, read_submission
from classroom.marker import RIGHT, Limits, first_to_look_at, mark
from classroom.remarks import remarks
from classroom.runner import UNANSWERED
from classroom.tables import number


def made(path: Path, new: bool) -> None:
    print(f"{path.relative_to(ROOT)}{'' if new else ' (there already, and not yet begun)'}")


def start(args) -> None:
    for key in args.labs or labs():
        made(*edition.start(key))
    print("Open them with: python course.py lab")


def check(args) -> None:
    submission = read_submission(args.file)
    source = labs().get(submission.key)
    lab = read_lab(source) if source else read_lab(args.file, submission.key)
    marks = mark(lab, submission, Limits(args.seconds, args.memory, args.output))
    found = f"{sum(one.points for one in marks)} of {lab.points} points"
    print(f"{lab.path.stem}: {found}")
    for one in marks:
        told = one.status if one.status in (RIGHT, UNANSWERED) else f"{one.status}: {one.says}"
        print(f"  {one.task:<8}{one.points} of {one.possible}  " + told.replace("\n", f"\n{'':18}"))
    for remark in remarks(lab, submission):
        print(f"Look at this: {remark}")
    if first := first_to_look_at(marks):
        print(f"Look first at task {first.task}: {first.says.splitlines()[0]}")
    if not source:
        print("By the checks of the file itself; whoever teaches has further ones.")
    edition.remember(args.file, found)


def status(args) -> None:
    print("\n".join(edition.progress()))


def solution(args) -> int:
    tried = edition.own_answers()
    tasks = read_lab(labs()[args.lab]).tasks
    for task in tasks:
        waits = "" if task.name in tried else "  waits for a try of your own, in labs/\n"
        print(f"{task.name} {task.title}\n{waits or task.solution}\n")
    return 0 if any(task.name in tried for task in tasks) else 1


def questions(args) -> None:
    from docs.questions import sheet

    print(sheet(args.lesson.zfill(2)))


def grade(args) -> None:
    def bar(futures, count):
        return tqdm(futures, total=count, unit="notebook", disable=None)

    limits = Limits(args.seconds, args.memory, args.output)
    how = {"jobs": args.jobs, "limits": limits, "again": args.again, "bar": bar, "due": args.due}
    packed = args.folder.is_file()
    with TemporaryDirectory() if packed else nullcontext() as place:
        folder = Path(place) / "class" if packed else args.folder
        for sentence in unpack(args.folder, folder) if packed else ():
            print(sentence, file=sys.stderr)
        rows = grading.grade(folder, args.out, **how)
    for found, count in sorted(Counter(row["status"] for row in rows).items()):
        print(f"{count:>5}  {found}")
    if args.due and all(number(row["late"]) for row in rows):
        print("All are late: do the files' times say when the archive was packed?")
    print(f"{args.out} has {len(rows)} rows; reports: {args.out.stem}_reports/")


def gradebook(args) -> None:
    for sentence in books.gradebook(args.marks, args.roster, args.out, args.count, args.late):
        print(sentence)
    print(f"{args.out} can be imported.")


def export(args) -> None:
    write_autograder(args.lab, args.out)
    print(f"{args.out} has {args.out.stat().st_size / 1e6:.0f} MB.")


def project(args) -> None:
    """Begin it; or say the score, and the board with it."""
    from classroom import project as ours  # not before it is asked for, since it imports torch

    if args.step == "start":
        return made(*ours.start())
    seed = secrets.randbelow(2**30) if args.seed is None else args.seed
    rows = scoreboard.read_board(args.board) if args.board else []
    for remark in ours.remarks(ours.read_project(args.file).answers):
        print(f"Look at this: {remark}")
    print(
        f"Seed {seed}; training takes up to {args.seconds:g} seconds of one processor.", flush=True
    )
    row = {scoreboard.NAME: args.name or args.file.resolve().stem}
    row |= ours.check(args.file, seed, args.seconds, Limits(memory=args.memory))
    if args.board and args.seconds == ours.SECONDS:
        scoreboard.append(args.board, row)
    print(f"{row[scoreboard.NATS]} nats above the floor, standard error {row[scoreboard.ERROR]}")
    if args.board and args.seconds != ours.SECONDS:
        print(f"No line on the board, which holds runs of {ours.SECONDS} seconds.")
    print("\n".join(scoreboard.board([*rows, row], scoreboard.references())))
