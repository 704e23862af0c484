"""Every door that a learner comes through: a notebook opened alone, pip, Binder, a development
container, and a machine without a network."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml
from notebook_doors import GUARD, LINK, PYPROJECT, REPOSITORY, colab_address, is_guard
from notebook_form import normalised, read, text

import mlm_lib
from classroom.edition import student_edition

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
LABS = sorted((ROOT / "classroom" / "solutions").glob("*_lab.ipynb"))
VERSION = PYPROJECT["project"]["version"]
LOWEST = PYPROJECT["project"]["requires-python"].removeprefix(">=")


def tracked():
    """The files of the repository as they are now, without anything that git does not know."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this copy of the course is no git checkout")
    paths = [Path(name) for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


# ---- the cell and the link -----------------------------------------------------------------------


@pytest.mark.parametrize("path", [*LESSONS, *LABS], ids=lambda path: path.stem)
def test_a_notebook_and_its_edition_open_alone(path):
    source = read(path)
    for notebook in [source, *([student_edition(source)] if path in LABS else [])]:
        first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
        told = f"run: python tools/notebook_form.py {path}"
        assert is_guard(first) and "".join(first["source"]) == GUARD.strip(), told
        assert f"]({colab_address(path)})" in "".join(notebook["cells"][0]["source"]), told


def new_notebook(executed):
    cells = [nbformat.v4.new_markdown_cell("# 00 · A title"), nbformat.v4.new_code_cell("x = 1")]
    cells[1].execution_count = 1 if executed else None
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.parametrize("executed", [True, False])
def test_they_are_set_once_and_renewed(executed):
    once = normalised(new_notebook(executed), "notebooks/00_a.ipynb")
    counts = [cell.execution_count for cell in once.cells if cell.cell_type == "code"]
    assert counts == ([1, 2] if executed else [None, None])
    assert once.cells[1].metadata == {
        "tags": ["remove-cell"],
        "jupyter": {"source_hidden": True},
        "slideshow": {"slide_type": "skip"},
    }
    again = nbformat.from_dict(once)
    again.cells[0].source = LINK.sub(
        "\n\n[Open in Colab](https://old.example)", once.cells[0].source
    )
    again.cells[1].source += "\n# an older wording"
    assert text(normalised(again, "notebooks/00_a.ipynb")) == text(once)
    assert len(normalised(new_notebook(executed)).cells) == 2  # elsewhere than in the course


def test_a_lab_leads_to_the_edition_without_solutions():
    assert colab_address(LABS[0]).endswith(f"/blob/labs/{LABS[0].name}")
    assert colab_address(LESSONS[0]).endswith(f"/blob/main/notebooks/{LESSONS[0].name}")


def test_where_the_course_is_found_the_cell_only_imports_it(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    names = {}
    exec(GUARD, names)
    assert set(names) == {"__builtins__", "mlm_lib"}


def test_in_a_copy_of_the_course_the_cell_takes_that_copy(tmp_path):
    (tmp_path / "mlm_lib").mkdir()
    (tmp_path / "mlm_lib" / "__init__.py").write_text("")
    (tmp_path / "notebooks").mkdir()
    program = GUARD + "print(mlm_lib.__file__)"
    # -S: nothing that is installed is seen, the course included.
    done = subprocess.run(
        [sys.executable, "-S", "-"], input=program, cwd=tmp_path / "notebooks",
        env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()).parent == tmp_path / "mlm_lib", done.stderr


# ---- installed -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A clean git repository of the tracked files, as a host would hold it."""
    folder = tmp_path_factory.mktemp("repository")
    for path in tracked():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((ROOT / path).read_bytes())
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
}  # 0: no isolation, by pip's own odd rule


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, repository]
    subprocess.run(command, env={**os.environ, **OFFLINE}, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_its_data(wheel):
    with zipfile.ZipFile(wheel) as file:
        for path in tracked():
            if path.parts[0] in ("mlm_lib", "data"):
                name = (
                    path.as_posix() if path.parts[0] == "mlm_lib" else f"mlm_lib/{path.as_posix()}"
                )
                assert file.read(name) == (ROOT / path).read_bytes(), name
        (metadata,) = [name for name in file.namelist() if name.endswith("/METADATA")]
        told = file.read(metadata).decode()
    assert f"Version: {VERSION}\n" in told and f"Repository, {REPOSITORY}\n" in told


@pytest.mark.slow
@pytest.mark.parametrize("present, kept", [("2.11.0+cu999", True), ("2.10.0", False)])
def test_pip_keeps_a_torch_that_is_recent_enough(wheel, tmp_path, present, kept):
    name = f"torch-{present}.dist-info"
    (tmp_path / name).mkdir()
    (tmp_path / name / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {present}\n"
    )
    env = {**os.environ, **OFFLINE, "PYTHONPATH": str(tmp_path)}  # pip finds this torch first
    env = {name: value for name, value in env.items() if name != "PIP_FIND_LINKS"}
    env["PIP_CONFIG_FILE"] = os.devnull  # which may name a folder of wheels
    command = [sys.executable, "-m", "pip", "install", "--dry-run", wheel]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    asked = "torch" in done.stdout.split("Would install")[-1] or "for torch" in done.stderr
    assert (done.returncode == 0) == kept and asked != kept, done.stdout + done.stderr


@pytest.mark.slow
def test_a_lesson_opened_alone_gets_the_course_and_runs(repository, tmp_path):
    """The cell as it stands, in an environment that has all but the course: git takes the clean
    repository for the one at the address, and pip has no network."""
    venv.create(tmp_path / "bare")
    python = tmp_path / "bare" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    (packages,) = (tmp_path / "bare").glob("[Ll]ib/**/site-packages")
    # The editable install of this checkout is not followed from such a list of folders.
    folders = [folder for folder in sys.path if folder.rstrip("/\\").endswith("-packages")]
    (packages / "others.pth").write_text("\n".join(folders))
    alone = tmp_path / "alone"
    alone.mkdir()
    lesson = LESSONS[6]  # which opens the checkpoint, and is short
    (alone / lesson.name).write_text(text(normalised(read(lesson), lesson)), "utf-8")
    env = {**os.environ, **OFFLINE, "PYTHONPATH": "", "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf"}
    env |= {"GIT_CONFIG_VALUE_0": REPOSITORY}
    spec = alone / "kernels" / "python3"
    spec.mkdir(parents=True)
    launch = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": launch, "display_name": "bare"}))
    env["JUPYTER_PATH"] = str(alone)
    command = [sys.executable, "-m", "papermill", "-k", "python3", lesson.name, "out.ipynb"]
    done = subprocess.run(command, cwd=alone, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    first = next(cell for cell in read(alone / "out.ipynb").cells if cell.cell_type == "code")
    assert "pip gets the course" in first.outputs[0].text
    assert (packages / "mlm_lib" / "data" / "course-bert").is_dir()


# ---- no network ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lesson_runs_where_no_route_leads_out(tmp_path):
    without = [sys.executable, ROOT / "tools" / "without_network.py", sys.executable]
    reach = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    tried = subprocess.run([*without, "-c", reach], capture_output=True, text=True)
    if tried.returncode == 77:
        pytest.skip(tried.stderr.strip() or "only Linux can cut a program's network")
    assert "Network is unreachable" in tried.stderr
    command = [ROOT / "course.py", "run", "--here", "--quick", "--only", "06"]
    done = subprocess.run([*without, *command, "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0 and "1 of 1 lessons ran" in done.stdout, done.stdout + done.stderr


# ---- what other machines are told ----------------------------------------------------------------


def test_no_file_names_another_repository_or_version():
    name = re.escape(REPOSITORY.rsplit("/", 1)[-1])
    for path in tracked():
        if path.suffix in (".md", ".toml", ".cff", ".yml", ".json", ".ipynb"):
            found = (ROOT / path).read_text("utf-8")
            owners = re.findall(rf"https://github\.com/[\w-]+/{name}\b", found)
            assert set(owners) <= {REPOSITORY}, path
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["repository-code"] == REPOSITORY and citation["version"] == VERSION
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)[1]
    assert latest == mlm_lib.__version__ == VERSION


def test_binder_and_the_container_take_the_lowest_python_and_the_pinned_versions():
    assert (ROOT / ".binder/runtime.txt").read_text() == f"python-{LOWEST}\n"
    lines = (ROOT / ".binder/requirements.txt").read_text("utf-8").splitlines()
    assert "-c ../constraints.txt" in lines and any(line.startswith("-e .") for line in lines)
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text("utf-8"))
    assert container["image"].endswith(f"python:{LOWEST}")
    assert "-e '.[test]' -c constraints.txt" in container["postCreateCommand"]


def test_jupyterlab_gets_settings_that_wrap_code_show_pages_and_ask_nobody():
    path = ROOT / ".jupyter/labconfig/default_setting_overrides.json"
    settings = json.loads(path.read_text("utf-8"))
    news = settings["@jupyterlab/apputils-extension:notification"]
    assert news == {"fetchNews": "false", "checkForUpdates": False}
    viewers = settings["@jupyterlab/docmanager-extension:plugin"]["defaultViewers"]
    assert viewers == {"markdown": "Markdown Preview"}  # and not the text, which has no anchors
    assert settings["@jupyterlab/notebook-extension:tracker"]["codeCellConfig"]["lineWrap"]


def test_the_site_is_published_by_the_command_that_builds_it():
    jobs = yaml.safe_load((ROOT / ".github/workflows/site.yml").read_text("utf-8"))["jobs"]
    assert "python3 course.py site" in [step.get("run") for step in jobs["build"]["steps"]]
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert jobs["build"].get("permissions") is None  # reads, as the whole workflow does


def test_what_a_cell_says_of_its_numbers_on_other_devices_stays():
    notebook = new_notebook(executed=True)
    notebook.cells[1].metadata = {"mlm_course": {"tolerance": {"relative": 0.1}}, "editor": "mine"}
    assert normalised(notebook).cells[1].metadata == {
        "mlm_course": {"tolerance": {"relative": 0.1}}
    }
