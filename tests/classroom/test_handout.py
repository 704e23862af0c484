"""The folder for a class: it gives nothing away, holds nothing of the teacher's own, and works."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from itertools import pairwise

import pytest

from classroom import handout, lab
from classroom.__main__ import main
from classroom.edition import student_edition
from classroom.handout import for_students, hand_out, without_links
from classroom.lab import ROOT, Refused, labs, read_notebook

ANSWERS = ROOT / "tests" / "answers"
# A short line, such as the head of a loop, may stand anywhere by chance. A line of this length does
# not, and neither do two short ones in a row. Spaces do not count.
IMPORT = re.compile(r"\s*(from|import) ")
LONG, TWO = 50, 40
HEAD = 20  # by so many characters a line is looked up

needs_git = pytest.mark.skipif(
    not (ROOT / ".git").exists() or not shutil.which("git"),
    reason="git says which files are handed out",
)


# ---- what must not be given away -----------------------------------------------------------------


def squashed(text):
    return re.sub(r"\s+", "", text)


def texts(value):
    """Every text of parsed JSON. Some of them are stored as a list of lines."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        yield "".join(value)
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)


def content(path):
    """The text of a file without spaces, and of a notebook that of all its parts."""
    text = path.read_bytes().decode("utf-8", "ignore")
    return squashed("\n".join(texts(json.loads(text))) if path.suffix == ".ipynb" else text)


def secret_blocks():
    """The lines of each solution, each hidden test and each answer on which the checks are tried,
    those of the project's reference among them."""
    for path in labs().values():
        for cell in read_notebook(path)["cells"]:
            block = None
            for line in lab.joined(cell).splitlines():
                if re.match(r"\s*### BEGIN (SOLUTION|HIDDEN TESTS)", line):
                    block = []
                elif re.match(r"\s*### END (SOLUTION|HIDDEN TESTS)", line):
                    yield block
                    block = None
                elif block is not None:
                    block.append(line)
    for path in [*ANSWERS.glob("*.diff"), ANSWERS / "project.py"]:
        changed = re.sub(r"\[-.*?-\]|\{\+|\+\}", "", path.read_text("utf-8"))
        yield from (part.splitlines() for part in re.split(r"^# %%.*\n", changed, flags=re.M)[1:])


def secrets():
    """The long lines of the secret blocks, and the short ones in pairs, by their first characters.

    A lab asks for what its lesson has taught. So a line is no secret if every student can read it:
    in a lesson, in the package, which the lessons build, or in the students' editions.
    """
    found = set()
    for block in secret_blocks():
        block = [line for line in block if not IMPORT.match(line)]  # an import gives nothing away
        lines = [line for line in map(squashed, block) if line]
        found |= {line for line in lines if len(line) >= LONG}
        found |= {a + b for a, b in pairwise(lines) if len(a + b) >= TWO}
    sources = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "mlm_lib").rglob("*.py")]
    editions = [*labs().values(), ROOT / "classroom" / "project.ipynb"]
    public = [content(path) for path in sources]
    public += [squashed("\n".join(texts(student_edition(read_notebook(e))))) for e in editions]
    found -= set(held("\n".join(public), by_head(found)))
    return by_head(found)


def by_head(lines):
    found = {}
    for line in lines:
        found.setdefault(line[:HEAD], []).append(line)
    return found


def held(text, lines):
    """Those of the lines that a text holds."""
    for start in range(len(text) - HEAD + 1):
        for line in lines.get(text[start : start + HEAD], ()):
            if text.startswith(line, start):
                yield line


@pytest.fixture(scope="module")
def secret():
    return secrets()


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The folder for a class, and what was told of it."""
    folder = tmp_path_factory.mktemp("handed") / "class"
    return folder, hand_out(folder, zipped=True)


@needs_git
@pytest.mark.slow
def test_the_folder_holds_no_line_of_a_solution_a_hidden_test_or_a_seeded_answer(given, secret):
    assert sum(map(len, secret.values())) > 5000
    files = [path for path in given[0].rglob("*") if path.is_file()]
    assert {path.name: line for path in files for line in held(content(path), secret)} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lab", "lab as text", "answers", "project"])
def test_the_search_finds_what_is_handed_out_by_mistake(kind, secret, tmp_path):
    path = {"answers": ANSWERS / "02.diff", "project": ANSWERS / "project.py"}.get(kind)
    path = path or labs()["02"]
    if kind == "lab as text":
        path = tmp_path / "lab.txt"
        path.write_text(labs()["02"].read_text("utf-8").replace("\\n", ""), "utf-8")
    assert len(set(held(content(path), secret))) > 5


@needs_git
def test_the_folder_has_the_labs_without_solutions_and_nothing_of_the_marking(given):
    folder, told = given
    editions = sorted(path.name for path in (folder / "classroom" / "labs").iterdir())
    assert editions == sorted(path.name for path in labs().values())
    for path in (folder / "classroom" / "labs").iterdir():
        assert read_notebook(path) == student_edition(read_notebook(lab.SOURCES / path.name))
    for name in (".git", "classroom/solutions", "tests/answers", "docs/labs.md", "work"):
        assert not (folder / name).exists()
    assert re.search(r"has \d{3} files and \d\d MB", told[0])


# ---- a student in it -----------------------------------------------------------------------------


@needs_git
def test_every_link_of_its_pages_and_lessons_leads_to_a_file_as_in_the_course(given):
    (folder, _), count = given, 0
    pages = [folder / "README.md", *(folder / "docs").glob("*.md")]
    for path in [*pages, *(folder / "notebooks").glob("*.ipynb")]:
        text = path.read_text("utf-8")
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join(lab.joined(c) for c in cells if c["cell_type"] == "markdown")
        text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text):
            known = (ROOT / path.relative_to(folder).parent / link).exists()
            assert not known or (path.parent / link).exists(), f"{path.name}: {link}"
            count += known
    assert count > 100


def test_a_link_to_what_is_missing_becomes_text_and_other_links_stay():
    text = "[the guide](instructors.md#dispute), [the project](project.md), [x](../README.md#a)"
    expected = "the guide, [the project](project.md), [x](../README.md#a)"
    assert without_links(text, "docs", {"docs/instructors.md"}) == expected


def test_an_entry_that_leads_to_a_page_for_teachers_is_left_out():
    entries = "- students\n- teachers,\n  see [the guide](instructors.md)\n- all\n"
    row = "| mark | see [it](instructors.md#mark) |\n| learn | [words](glossary.md) |\n"
    expected = "- students\n- all\n| learn | [words](glossary.md) |\n"
    assert for_students(entries + row, "docs") == expected


@needs_git
@pytest.mark.parametrize(
    "command, status, words",
    [
        ("site", 2, "site is for authors of the course"),
        ("lesson 02", 2, "lesson is for authors of the course"),
        ("run --labs", 2, "runs the labs with our solutions, and this folder has none"),
        ("labs solution 02", 2, "no solutions .* ask whoever teaches your class"),
        ("labs grade .", 2, "no solutions .* whoever teaches gives this command"),
        ("labs handout there", 2, "no solutions .* whoever teaches gives this command"),
        ("labs export gradescope 02 --out x.zip", 2, "no solutions .* whoever teaches gives this"),
    ],
)
def test_what_needs_solutions_says_so(given, command, status, words):
    call = [sys.executable, given[0] / "course.py", "--here", *command.split()]
    done = subprocess.run(call, cwd=given[0], capture_output=True, text=True)
    assert done.returncode == status and re.search(words, done.stderr), done.stderr


@needs_git
@pytest.mark.slow
def test_a_student_gets_a_lab_answers_a_task_and_has_it_checked(given, tmp_path):
    folder = shutil.copytree(given[0], tmp_path / "mine")

    def classroom(*arguments):
        call = [sys.executable, "-m", "classroom", *arguments]
        env = os.environ | {"PYTHONPATH": str(folder)}
        done = subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "work/labs/02_masking_lab.ipynb" in classroom("start", "02").replace("\\", "/")
    path = folder / "work" / "labs" / "02_masking_lab.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    (solution,) = (task.solution for task in lab.read_lab(labs()["02"]).tasks[:1])
    for cell in notebook["cells"]:
        if "# TASK 02.1" in lab.joined(cell):
            cell["source"] = solution
    notebook["cells"] = [c for c in notebook["cells"] if "# CHECK" not in lab.joined(c)]
    path.write_text(json.dumps(notebook), "utf-8")
    told = classroom("check", str(path))
    assert "02_masking_lab: 2 of 12 points" in told and "02.2    0 of 3  unanswered" in told
    assert "whoever teaches has further ones" in told
    line = next(line for line in classroom("status").splitlines() if line.startswith("02_"))
    assert line.split(maxsplit=1)[1].split() == "1 of 5 tasks begun 2 of 12 points".split()


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A small course in a repository of git, in which a teacher has worked."""
    if not shutil.which("git"):
        pytest.skip("git says which files are handed out")
    root = tmp_path / "course"
    files = {
        "course.py": "print()",
        "README.md": "# The course\n[one](docs/labs.md)\n",
        "docs/labs.md": "wrong answers",
        "docs/glossary.md": "words",
        "mlm_lib/a.py": "1",
        "new_kind_of_file.txt": "2",
    }
    own = {"work/labs/lab.ipynb": "{}", "docs/marks.csv": "anna", "mlm_lib/notes.txt": "x"}
    for name, text in (files | own).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    solutions = root / "classroom" / "solutions"
    solutions.mkdir(parents=True)
    shutil.copy(labs()["02"], solutions)
    (root / "course.py").chmod(0o755)
    names = [*files, "classroom/solutions"]
    for command in (["init", "-q"], ["add", *names]):
        subprocess.run(["git", *command], cwd=root, check=True)
    for name, value in {"ROOT": root, "SOURCES": solutions}.items():
        monkeypatch.setattr(handout, name, value)
    monkeypatch.setattr(handout, "EDITIONS", root / "classroom" / "labs")
    return root


def names_in(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_only_what_git_tracks_and_a_student_needs_is_handed_out(course, tmp_path):
    (course / "mlm_lib" / "a.py").write_text("changed")
    hand_out(tmp_path / "class")
    edition = "classroom/labs/02_masking_lab.ipynb"
    expected = {"README.md", "course.py", "docs/glossary.md", edition, "mlm_lib/a.py"}
    assert names_in(tmp_path / "class") == expected
    assert (tmp_path / "class" / "mlm_lib" / "a.py").read_text() == "changed"
    assert os.name == "nt" or os.access(tmp_path / "class" / "course.py", os.X_OK)
    readme = (tmp_path / "class" / "README.md").read_text()
    assert readme.startswith("# The course\n\n**This is the copy") and readme.endswith("\none\n")


def test_the_zip_holds_the_folder(course, tmp_path):
    hand_out(tmp_path / "class", zipped=True)
    with zipfile.ZipFile(tmp_path / "class.zip") as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
    assert files == {f"class/{name}" for name in names_in(tmp_path / "class")}


@pytest.mark.parametrize(
    "place, words",
    [
        ("there", "is there already; name a folder that is not"),
        ("taken", "taken.zip is there already"),
        ("course/class", "inside the course; .* as ../class"),
    ],
)
def test_a_place_that_does_not_do_is_told_and_nothing_is_made(course, tmp_path, place, words):
    (tmp_path / "there").mkdir()
    (tmp_path / "taken.zip").touch()
    before = set(tmp_path.rglob("*"))
    with pytest.raises(Refused, match=words):
        hand_out(tmp_path / place, zipped=True)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("case", ["no repository", "another repository", "no git"])
def test_without_git_nothing_is_handed_out(course, tmp_path, case, monkeypatch):
    shutil.rmtree(course / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    if case == "another repository":
        subprocess.run(["git", "init", "-q"], cwd=course, check=True)
    if case == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="git does not know which .* clone the course with git"):
        hand_out(tmp_path / "class")
    assert not (tmp_path / "class").exists()


def test_a_failure_leaves_nothing_behind(course, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handout, "write_notebook", full)
    assert main(["handout", str(tmp_path / "class")]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["course"]
