"""Makes an autograder for Gradescope from a lab, and marks submissions there.

`write_autograder` packs a lab, the parts of the course that it needs, and the two scripts that
Gradescope requires. Gradescope calls the script `run_autograder` for each submission, and that
script runs this module.
"""

import contextlib
import json
import os
import sys
import zipfile
from pathlib import Path

from classroom.archives import shown
from classroom.lab import ROOT, Lab, Refused, labs, read_lab, read_submission
from classroom.marker import RIGHT, mark
from classroom.remarks import remarks

SCRIPTS = ROOT / "classroom" / "autograder"
NEEDED = "classroom mlm_lib data pyproject.toml constraints.txt README.md LICENSE".split()
STUDENT = "student"  # the user that setup.sh creates


def write_autograder(key: str, out: Path) -> None:
    """Write the autograder of one lab, a zip file for Gradescope. The solutions of the other labs
    are not in it."""
    lab = labs()[key]
    paths = [ROOT / name for name in NEEDED]
    for folder in filter(Path.is_dir, list(paths)):
        found = sorted(path for path in folder.rglob("*") if shown(path, ROOT))
        paths += [path for path in found if path.parent != lab.parent or path == lab]
    files = {path.name: path.read_bytes() for path in SCRIPTS.iterdir()}
    files |= {f"course/{p.relative_to(ROOT)}": p.read_bytes() for p in filter(Path.is_file, paths)}
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name.replace(os.sep, "/"))  # always the same date
            member.external_attr = (0o100644 if "/" in member.filename else 0o100755) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)


def results(lab: Lab, folder: Path) -> dict:
    """The results of the notebook in a folder that was handed in, in the form that Gradescope reads
    from results.json."""
    found = sorted(path for path in folder.rglob("*.ipynb") if shown(path, folder))
    try:
        if len(found) != 1:
            there = f"{len(found)} notebooks" if found else "no notebook"
            raise Refused(f"there is {there} in what was handed in; hand in {lab.path.name}")
        refuse_links(found[0], folder)
        submission = read_submission(found[0], [lab.key])
    except Refused as error:
        return {"score": 0, "output": str(error), "tests": []}
    leave_root()
    tests, score = [], 0
    marks = mark(lab, submission)
    for one, task in zip(marks, lab.tasks):
        status, score = "passed" if one.status == RIGHT else "failed", score + one.points
        points = {"score": one.points, "max_score": one.possible, "status": status}
        tests.append(points | {"name": f"{one.task} {task.title}", "output": one.told})
    told = {"score": score, "output": f"{score} of {lab.points} points", "tests": tests}
    # A hidden test would make Gradescope hide the total as well, and so show students that there
    # is a remark. Gradescope stores `extra_data` and shows it on no page.
    return told | {"extra_data": {"look at": remarks(lab, submission, marks)}}


def refuse_links(path: Path, folder: Path) -> None:
    """Check that no part of the path of a submission is a link. The submission is read with the
    rights of root, so a link could lead to our solutions.

    Raises:
        Refused: a part of the path is a link.
    """
    if os.path.realpath(path) != os.path.join(os.path.realpath(folder), path.relative_to(folder)):
        raise Refused(f"{path.name} is a link that leads elsewhere; hand in the file itself")


def leave_root() -> None:
    """Give up the rights of root and go on as the user `student`, who can neither read a solution
    nor write a result. Nothing happens if setup.sh did not create this user.

    The lab must have been read before. The script that started this process writes the results.
    """
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        user = pwd.getpwnam(STUDENT)
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)


if __name__ == "__main__":  # an error of ours ends the process, and Gradescope gets no score
    (only,) = labs().values()
    print(json.dumps(results(read_lab(only), Path(sys.argv[1])), indent=1))
