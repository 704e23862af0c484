"""What each command of `course.py labs` does and prints. `__main__` has read the arguments."""

import secrets
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from classroom import edition
from classroom import grade as grading
from classroom import gradebook as books
from classroom.archives import unpack
from classroom.gradescope import write_autograder
from classroom.handout import hand_out
from classroom.lab import ROOT, Refused, labs, read_lab, read_submission, without_solutions
from classroom.marker import Limits, mark
from classroom.remarks import remarks
from classroom.tables import number


def made(path: Path, new: bool) -> None:
    """Print the path of a notebook, and whether it was there before."""
    print(f"{path.relative_to(ROOT)}{'' if new else ' (there already)'}")


def start(args) -> None:
    """Make the student's copies of some labs, or of all labs."""
    for key in args.labs or labs():
        made(*edition.start(key))
    print("Open them with: python3 course.py open")


def check(args) -> None:
    """Mark one notebook, and print the points and the messages of each task."""
    if not args.file.exists():
        key = args.file.name.split("_")[0]
        raise Refused(f"there is no copy of lab {key} yet; make it by: course.py labs start {key}")
    submission = read_submission(args.file)
    source = labs().get(submission.key, args.file)
    solved = source != args.file and not without_solutions()
    lab = read_lab(source) if solved else read_lab(source, submission.key)
    marks = mark(lab, submission, Limits(args.seconds, args.memory, args.output))
    found = f"{sum(one.points for one in marks)} of {lab.points} points"
    print(f"{lab.path.stem}: {found}")
    for one in marks:
        told = one.told.replace("\n", f"\n{'':18}")
        print(f"  {one.task:<8}{one.points} of {one.possible}  {told}")
    for remark in remarks(lab, submission, marks):
        print(f"Look at this: {remark}")
    if not solved:
        print("By the checks that you can see; whoever teaches has further ones.")
    edition.remember(args.file, found)


def status(args) -> None:
    """Print how far the student is with each lab."""
    print("\n".join(edition.progress()))


def solution(args) -> None:
    """Print our solutions of a lab's tasks, but only of tasks that the student has tried."""
    tried = edition.own_answers()
    for task in read_lab(labs()[args.lab]).tasks:
        waits = "" if task.name in tried else "  waits for a try of your own, in work/labs/\n"
        print(f"{task.name} {task.title}\n{waits or task.solution}\n")


def grade(args) -> None:
    """Mark the notebooks of a class, and print how many submissions have which status."""
    limits = Limits(args.seconds, args.memory, args.output)
    before = grading.read_table(args.out)
    with TemporaryDirectory() as place:
        unpacked = unpack(args.folder, Path(place) / "class")
        for sentence in unpacked.told:
            print(sentence, file=sys.stderr)
        rows = grading.grade(unpacked, args.out, limits, args.jobs, args.again, args.due)
    for row in rows:
        old = before.get((row["student"], row["file"]), row)
        if grading.by_hand(old) and str(row["points"]) != old["points"]:
            told = f"{old['points']} points that were written by hand became {row['points']}"
            print(f"{row['student']}, {row['file']}: was marked anew, and the {told}")
    if args.due:
        late = sum(number(row["late"]) > 0 for row in rows)
        due = args.due.astimezone()  # a time may have been given with another time zone
        print(f"Due {due:%Y-%m-%d %H:%M} by the clock of this machine: {late} are late")
    for found, count in sorted(Counter(row["status"] for row in rows).items()):
        print(f"{count:>5}  {found}")
    for name, what in {"look at": "a remark", "same answers": "answers of others"}.items():
        if count := sum(bool(row[name]) for row in rows):
            print(f"{count:>5}  have {what} in the column {name}")
    kinds = Counter(row["lab"] for row in rows if row["lab"])
    if len(kinds) > 1:  # somebody may have handed in the notebook of another lab
        told = ", ".join(f"{count} of {name}" for name, count in kinds.most_common())
        print(f"The table holds several labs: {told}")
    print(f"{args.out} has {len(rows)} rows; reports: {args.out.stem}_reports/")


def gradebook(args) -> None:
    """Write the points of a class into a gradebook, and print what does not agree."""
    for sentence in books.gradebook(
        args.marks, args.roster, args.out, args.count, args.late, args.teams
    ):
        print(sentence)


def export(args) -> None:
    """Write the autograder of a lab for Gradescope."""
    write_autograder(args.lab, args.out)
    print(f"{args.out} has {args.out.stat().st_size / 1e6:.0f} MB.")


def handout(args) -> None:
    """Make the folder for a class, and print what it holds."""
    for sentence in hand_out(args.folder, args.zip):
        print(sentence)


def project(args) -> None:
    """Make the notebook of the project, or measure it and print the score within the board."""
    from classroom import project as ours  # imported here, because it imports torch

    if args.step == "start":
        return made(*ours.start())
    seed = secrets.randbelow(2**30) if args.seed is None else args.seed
    rows = ours.read_board(args.board) if args.board else []
    if names := ours.remarks(ours.read_project(args.file).answers):
        print(f"Look at this: it uses {', '.join(names)}")
    print(f"Seed {seed}; training may take {args.seconds:g} s of one processor.", flush=True)
    row = {ours.NAME: args.name or args.file.resolve().stem}
    row |= ours.check(args.file, seed, args.seconds, Limits(memory=args.memory))
    if ours.too_good(row):
        print("Look at this: no honest model of ours came so close to the floor.")
    print(f"{row[ours.NATS]} nats above the floor, standard error {row[ours.ERROR]}")
    if args.board and args.seconds == ours.SECONDS:
        ours.append(args.board, row)
    elif args.board:
        print(f"No line on the board, which holds runs of {ours.SECONDS} seconds.")
    print("\n".join(ours.board([*rows, row])))
