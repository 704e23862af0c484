"""course.py: what it refuses, what an interrupted set-up leaves, how it tells of what failed."""

import ast
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "course.py").read_text("utf-8")


@pytest.fixture
def course():
    spec = importlib.util.spec_from_file_location("course", ROOT / "course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_lesson(folder, name, *cells, parameters='SEED = 0\nDEVICE = "auto"', quick=None):
    """A lesson whose first code cell is its parameters cell; returns its path."""
    notebook = nbformat.v4.new_notebook(metadata={"mlm_course": {"quick": quick}} if quick else {})
    notebook.cells = [
        nbformat.v4.new_markdown_cell(f"# {name}"),
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *map(nbformat.v4.new_code_cell, cells),
    ]
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def lessons(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    write_lesson(
        folder, "01_words", "print(SEED)", parameters="SEED = 0\nSIZE = 100", quick={"SIZE": 10}
    )
    write_lesson(folder, "12_scores", "print(DEVICE)")
    return folder


def write_labs(lessons, *names):
    """Labs of these names, where the labs of `lessons` are."""
    folder = lessons.parent / "classroom" / "solutions"
    folder.mkdir(parents=True)
    for name in names:
        write_lesson(folder, name)


# ---- what course.py is made of -------------------------------------------------------------------


def test_starts_with_the_standard_library_alone():
    top_level = [
        node for node in ast.parse(SOURCE).body if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    names = {
        alias.name for node in top_level if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {node.module for node in top_level if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_what_course_py_imports_does_not_import_it():
    for path in (ROOT / "classroom").glob("*.py"):
        assert not re.search(r"^\s*(from|import) course\b", path.read_text("utf-8"), re.M), path


def test_older_python_gets_one_sentence():
    ast.parse(SOURCE, feature_version=(3, 6))  # else an older Python would stop at a SyntaxError
    code = "import sys; sys.version_info = (3, 8, 18); exec(sys.stdin.read())"
    answer = subprocess.run(
        [sys.executable, "-c", code], input=SOURCE, capture_output=True, encoding="utf-8"
    )
    assert answer.returncode == 1
    assert answer.stderr.strip() == "The course needs Python 3.11 or newer; this is Python 3.8."


# ---- what is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        ("3", 3), ("1e-3", 1e-3), ("True", True), ("None", None), ("[1, 2]", [1, 2]), ("-1", -1),
        ("(1, 2)", [1, 2]), ("'3'", "3"), ("course-bert", "course-bert"), ("''", ""),
        ("a=b", "a=b"), ("[[1, 2], [3]]", [[1, 2], [3]]), ("'\\u00e9\\n'", "é\n"),
        ("{'a': [None, 2.5]}", {"a": [None, 2.5]}),
    ],
)  # fmt: skip
def test_p_values_are_literals_else_strings(course, text, value):
    parsed = course.parse_assignments([f"NAME={text}"])["NAME"]
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    "text",
    ["((1, 2), (3,))", "[(1, 2)]", "{1: 2}", "{True: 1}", "{None: 1}", "b'x'", "[b'x']", "{1, 2}"]
    + ["2j", "...", "1e999", "-1e999", "[1e999]", r"'\ud800'", "\udcff", r"{'\ud800': 1}"],
)
def test_p_refuses_what_a_lesson_would_get_as_something_else(course, text):
    with pytest.raises(course.Stop, match="^-p NAME=.* cannot be passed to a lesson unchanged; "):
        course.parse_assignments([f"NAME={text}"])


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--only", "7"], "01_words, 12_scores"),
        (["-p", "SEED={1: 2}"], "-p SEED={1: 2} cannot"),
        (["--only", "words"], "01_words, 12_scores"),
        (["-p", "SPEED=1"], "DEVICE, SEED, SIZE"),
        (["--only", "12", "-p", "SIZE=1"], "DEVICE, SEED."),
        (["--only", "1", "--device", "cpu"], "SEED, SIZE"),
        (["-p", "SEED"], "NAME=VALUE"),
        (["-p", "SEED="], "NAME=''"),
    ],
)
def test_a_mistake_is_told_before_any_set_up(course, lessons, monkeypatch, capsys, arguments, told):
    monkeypatch.setattr(course, "enter_environment", lambda *_: pytest.fail("the set-up began"))
    assert course.main(["run", "--notebooks", str(lessons), *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("built, asked, served", [(0, True, 1), (0, False, 0), (1, True, 0)])
def test_a_site_is_served_when_it_was_built_and_asked_for(
    course, monkeypatch, capsys, built, asked, served
):
    calls = []
    monkeypatch.setattr(course, "call", lambda command, env: calls.append(command) or built)
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", lambda self: calls.append("served"))
    arguments = ["--serve", "--port", "0"] if asked else []
    assert course.main(["site", "--here", *arguments]) == built
    folder = ROOT / "build" / "site"
    first = [sys.executable, ROOT / "docs" / "site" / "build.py", "--out", folder]
    assert calls == [first, *served * ["served"]]
    assert ("http://127.0.0.1:" in capsys.readouterr().out) == bool(served)


def test_what_is_served_is_read_under_its_own_kind(course, tmp_path):
    (tmp_path / "page.mjs").write_text("export {}")
    with course.listen(tmp_path, 0) as server:
        Thread(target=server.handle_request, daemon=True).start()
        page = f"http://127.0.0.1:{server.server_port}/page.mjs"
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert answer.headers["Content-Type"] == "text/javascript"


def test_a_port_that_cannot_be_had_is_told_before_the_site_is_built(course, monkeypatch, capsys):
    monkeypatch.setattr(course, "call", lambda *_: pytest.fail("the site was built"))
    with course.listen(Path(), 0) as server:
        taken = str(server.server_port)
        assert course.main(["site", "--here", "--serve", "--port", taken]) == 2
    assert f"Port {taken} " in capsys.readouterr().err
    for port in ("70000", "-1"):
        with pytest.raises(SystemExit):
            course.main(["site", "--here", "--serve", f"--port={port}"])
        assert f"{port}; a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("held", ['{"cells": []}', '{"metadata": {"kernelspec": {}}}', "no JSON"])
def test_no_notebook_is_written_over_that_this_command_did_not_make(
    course, lessons, tmp_path, monkeypatch, capsys, held
):
    monkeypatch.setattr(course, "enter_environment", lambda *_: pytest.fail("the set-up began"))
    (tmp_path / "mine").mkdir()
    own = tmp_path / "mine" / "01_words.ipynb"
    own.write_text(held)
    run = ["run", "--notebooks", str(lessons), "--out", str(own.parent)]
    assert course.main([*run, "--only", "1"]) == 2
    assert f"{own} was not made by this command" in capsys.readouterr().err
    assert own.read_text() == held
    own.write_text('{"cells": [], "metadata": {"papermill": {}}}')
    args = course.parse([*run, "--only", "1"])
    assert [lesson.name for lesson, _ in course.plan(args)] == [own.name]


def test_a_folder_without_a_name_and_a_limit_below_0_are_refused(course, capsys):
    for option in (["--out", ""], ["--cell-timeout=-5"], ["--jobs", "0"]):
        with pytest.raises(SystemExit):
            course.main(["run", *option])
        named = f"argument {option[0].partition('=')[0]}: "
        assert named in (told := capsys.readouterr().err) and "is needed" in told


@pytest.mark.parametrize("stamp", ["[1]", '"x"', "7", "{"])
def test_a_stamp_that_is_none_means_a_set_up_that_did_not_end(course, tmp_path, monkeypatch, stamp):
    monkeypatch.setattr(course, "STAMP", tmp_path / "course.json")
    (tmp_path / "course.json").write_text(stamp)
    assert course.read_stamp() == {} and not course.is_ready(None)


def test_an_unknown_command_lists_the_known_ones(course, capsys):
    with pytest.raises(SystemExit) as stop:
        course.main(["walk"])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert all(f"'{name}'" in told for name in course.COMMANDS)


@pytest.mark.parametrize("command", ["run", "test"])
@pytest.mark.parametrize("arguments", [["--port", "8889"], ["--", "--quick"]])
def test_only_open_takes_options_that_are_not_ours(course, capsys, command, arguments):
    with pytest.raises(SystemExit) as stop:
        course.main([command, *arguments])
    assert stop.value.code == 2 and "unrecognized arguments: --" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "open", "labs"])
def test_an_option_that_stands_before_the_command_counts(course, command):
    args = course.parse(["--here", "--cpu", command])
    assert args.here and args.build == "cpu"


def test_open_still_has_its_old_name(course):
    assert vars(course.parse(["lab", "--port", "1"])) == vars(course.parse(["open", "--port", "1"]))


def test_a_mistake_about_labs_is_told_before_a_set_up(course, monkeypatch, capsys):
    monkeypatch.setattr(course, "enter_environment", lambda *_: pytest.fail("set up"))
    with pytest.raises(SystemExit) as stop:
        course.main(["labs", "check", "nowhere.ipynb"])
    assert stop.value.code == 2 and "no file nowhere.ipynb" in capsys.readouterr().err


def test_labs_run_in_the_users_own_folder(course, monkeypatch, tmp_path):
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(course, "call", lambda command, env, cwd: calls.append((command, cwd)) or 0)
    assert course.main(["labs", "--here", "grade", ".", "--jobs", "2"]) == 0
    command = [sys.executable, "-m", "classroom", "grade", ".", "--jobs", "2"]
    assert calls == [(command, None)]


def test_the_variables_for_children_are_taken_back(course):
    """Otherwise a program would go on with a folder for temporary files that is no longer there."""
    before = dict(os.environ)
    with course.inherited_by_children({**before, "ONLY_FOR_CHILDREN": "1"}):
        assert os.environ["ONLY_FOR_CHILDREN"] == "1"
    assert dict(os.environ) == before


def test_run_takes_the_labs_of_its_lessons_when_asked(course, lessons):
    write_labs(lessons, "01_words_lab", "12_scores_lab", "zoo_lab")

    def planned(*arguments):
        args = course.parse(["run", "--notebooks", str(lessons), *arguments])
        return [lesson.stem for lesson, _ in course.plan(args)]

    assert planned() == ["01_words", "12_scores"]
    assert planned("--labs")[2:] == ["01_words_lab", "12_scores_lab", "zoo_lab"]
    assert planned("--labs", "--only", "12") == ["12_scores", "12_scores_lab"]


@pytest.mark.parametrize(
    "user, arguments, passed_on",
    [
        (1000, [], []),
        (1000, ["--port", "8889", "--no-browser"], ["--port", "8889", "--no-browser"]),
        (1000, ["--", "--port", "8889", "--cpu"], ["--port", "8889", "--cpu"]),
        (0, ["--port", "8889"], ["--allow-root", "--port", "8889"]),
        (0, ["--", "--port", "8889", "--allow-root"], ["--port", "8889", "--allow-root"]),
    ],
)
def test_open_passes_options_on_and_serves_root(
    course, lessons, monkeypatch, capsys, user, arguments, passed_on
):
    calls = []
    monkeypatch.setattr(course, "call", lambda command, env: calls.append(command) or 0)
    monkeypatch.setattr(course.os, "geteuid", lambda: user, raising=False)
    assert course.main(["open", "--here", "--notebooks", str(lessons), *arguments]) == 0
    place = [f"--ServerApp.root_dir={lessons.parent}", "--LabApp.default_url=/lab/tree/work"]
    assert calls == [[sys.executable, "-m", "jupyterlab", *place, *passed_on]]
    added = "--allow-root" in passed_on and "--allow-root" not in arguments
    assert ("You are root" in capsys.readouterr().out) == added


def test_open_makes_the_readers_copies_and_tells_it_once(course, lessons, monkeypatch, capsys):
    monkeypatch.setattr(course, "call", lambda command, env: 0)
    write_labs(lessons, "01_words_lab", "zoo_lab")
    start = ["open", "--here", "--notebooks", str(lessons)]
    assert course.main(start) == 0
    work = lessons.parent / "work"
    made = sorted(path.relative_to(work).as_posix() for path in work.rglob("*.ipynb"))
    assert made == ["01_words.ipynb", "12_scores.ipynb"] + [
        "labs/01_words_lab.ipynb",
        "labs/zoo_lab.ipynb",
    ]
    assert "New: 2 lessons and 2 labs." in capsys.readouterr().out
    assert course.main(start) == 0 and "work/" not in capsys.readouterr().out


def test_restore_puts_a_fresh_copy_beside_the_readers_own(course, lessons, capsys):
    write_labs(lessons, "01_words_lab", "zoo_lab")
    ask = ["restore", "--here", "--notebooks", str(lessons)]
    copy = lessons.parent / "work" / "01_words.ipynb"
    copy.parent.mkdir()
    copy.write_text("mine")
    assert course.main([*ask, "1"]) == 0
    (kept,) = copy.parent.glob("01_words_2*.ipynb")
    assert kept.read_text() == "mine" and nbformat.read(copy, as_version=4).cells
    assert kept.name in capsys.readouterr().out
    assert course.main([*ask, "zoo", "--lab"]) == 0
    assert (copy.parent / "labs" / "zoo_lab.ipynb").exists()
    assert course.main([*ask, "7"]) == 2 and "There is no lesson 7" in capsys.readouterr().err
    assert course.main([*ask, "7", "--lab"]) == 2
    assert "There is no lab 7. The labs: 01_words_lab, zoo_lab" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda:99", "meta"])
def test_an_absent_device_is_told_with_those_present(course, lessons, capsys, device):
    run = ["run", "--here", "--notebooks", str(lessons), "--out", str(lessons / "out")]
    assert course.main([*run, "-p", f"DEVICE={device}"]) == 2
    assert f"no device {device}" in (told := capsys.readouterr().err) and "auto, cpu" in told
    assert not (lessons / "out").exists()


@pytest.mark.parametrize(
    "only, stems",
    [
        (None, ["01_words", "12_scores"]),
        (["1"], ["01_words"]),
        (["01"], ["01_words"]),
        (["12_scores", "1"], ["01_words", "12_scores"]),
        (["12_scores.ipynb"], ["12_scores"]),
    ],
)
def test_only_takes_numbers_and_names_and_keeps_the_order(course, lessons, only, stems):
    assert [lesson.stem for lesson in course.find_lessons(lessons, only)] == stems


def test_values_reach_the_lessons_that_have_them_and_p_wins_over_quick(course, lessons):
    def planned(*arguments):
        args = course.parse(["run", "--notebooks", str(lessons), *arguments])
        return [values for _, values in course.plan(args)]

    assert planned() == [{}, {}]
    assert planned("--quick") == [{"SIZE": 10}, {}]
    assert planned("--quick", "-p", "SIZE=20", "SEED=1") == [{"SIZE": 20, "SEED": 1}, {"SEED": 1}]
    assert planned("--device", "cpu") == [{}, {"DEVICE": "cpu"}]


def test_quick_may_only_name_what_the_parameters_cell_sets(course, lessons, capsys):
    write_lesson(lessons, "13_rates", quick={"STEPS": 1})
    assert course.main(["run", "--here", "--notebooks", str(lessons)]) == 2
    assert "13_rates.ipynb" in (told := capsys.readouterr().err) and "STEPS" in told


def test_here_without_the_packages_names_them(lessons):
    answer = subprocess.run(
        [sys.executable, "-S", ROOT / "course.py", "run", "--here", "--notebooks", lessons],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert (
        answer.returncode == 2
        and "lacks papermill" in answer.stderr
        and "Traceback" not in answer.stderr
    )


# ---- the set-up ----------------------------------------------------------------------------------


@pytest.fixture
def house(course, tmp_path, monkeypatch):
    """course.py moved to an empty folder; its environments are real but without pip, and `calls`
    counts pip's calls."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    for name in ("VENV", "OLD_VENV", "PYTHON", "STAMP"):
        monkeypatch.setattr(course, name, tmp_path / getattr(course, name).relative_to(ROOT))
    monkeypatch.setattr(course, "ROOT", tmp_path)
    monkeypatch.setattr(
        course, "INSIDE", True
    )  # so that nothing is executed in place of these tests
    monkeypatch.setattr(course, "torch_arguments", lambda pin, build: [pin])
    monkeypatch.setattr(
        course,
        "importable_torch",
        lambda python: ("2.13.0+cpu", "cpu") if python == course.PYTHON else None,
    )
    real_run = subprocess.run
    faster = {"venv": ["--without-pip"], "ensurepip": ["--version"]}
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda command, **options: real_run([*command, *faster.get(command[2], [])], **options),
    )
    course.calls = []
    monkeypatch.setattr(
        course, "pip_install", lambda *arguments, **_: course.calls.append(arguments)
    )
    return course


def test_a_finished_set_up_is_left_alone(house):
    house.enter_environment(None, [])
    assert house.calls
    house.calls.clear()
    house.enter_environment(None, [])
    assert house.calls == []


def test_torch_comes_first_and_holds_the_rest(house):
    house.enter_environment(None, [])
    torch, rest = house.calls[-2:]
    assert torch[0].startswith("torch==") and ".[test,docs]" in rest
    assert "torch==2.13.0+cpu\n" in Path(rest[-1]).read_text("utf-8")


def test_a_kept_torch_is_found_in_the_folders_of_its_interpreter(house, monkeypatch):
    kept = {house.PYTHON: ("2.13.0+cpu", "cpu"), sys._base_executable: ("2.12.0", "cpu")}
    monkeypatch.setattr(house, "importable_torch", lambda python: kept.get(python))
    house.enter_environment(None, [])
    assert all("torch==" not in argument for call in house.calls for argument in map(str, call))
    (written,) = house.VENV.glob("[Ll]ib/**/starting_interpreter.pth")
    folders = written.read_text().splitlines()
    assert folders and all(Path(folder).name.endswith("-packages") for folder in folders)


def test_it_goes_on_inside_with_what_was_asked(house, monkeypatch):
    monkeypatch.setattr(house, "INSIDE", False)
    monkeypatch.setattr(house.os, "name", "posix")
    executed = []
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # each kernel would compile its packages
    monkeypatch.setattr(house.os, "execv", lambda path, command: executed.append(command[2:]))
    house.enter_environment(None, ["open", "--", "--port", "8889"])
    assert executed == [["--here", "open", "--", "--port", "8889"]]
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("first_time", [True, False])
def test_after_an_interruption_the_next_call_begins_afresh(house, monkeypatch, step, first_time):
    if not first_time:
        house.enter_environment(None, [])
        (house.ROOT / "constraints.txt").write_text("torch==2.13.0\n")
        house.calls.clear()

    def interrupted(*arguments, **_):
        if len(house.calls) == step:
            (house.VENV / "half_installed").touch()
            raise KeyboardInterrupt
        house.calls.append(arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(house, "pip_install", interrupted)
        house.enter_environment(None, [])
    assert not house.is_ready(None)
    house.enter_environment(None, [])
    assert house.is_ready(None)
    assert not (house.VENV / "half_installed").exists()


@pytest.mark.parametrize(
    "remains", ["nothing in it", "a stamp cut short", "a dangling interpreter"]
)
def test_a_broken_environment_is_replaced(house, remains):
    house.VENV.mkdir()
    if remains == "a stamp cut short":
        house.STAMP.write_text('{"inputs": "4')
    elif remains == "a dangling interpreter":
        stamp = {
            "inputs": house.fingerprint(),
            "asked": None,
            "build": "cpu",
            "base": sys.executable,
        }
        house.STAMP.write_text(json.dumps(stamp))
    house.enter_environment(None, [])
    assert house.is_ready(None) and not house.OLD_VENV.exists()


def test_changed_requirements_renew_in_place(house):
    house.enter_environment(None, [])
    (house.VENV / "added_by_the_reader").touch()
    (house.ROOT / "constraints.txt").write_text("torch==2.13.0\n")
    assert not house.is_ready(None)
    house.enter_environment(None, [])
    assert house.is_ready(None) and (house.VENV / "added_by_the_reader").exists()


def test_an_environment_made_by_hand_is_filled_and_kept(house):
    subprocess.run([sys.executable, "-m", "venv", house.VENV], check=True)
    (house.VENV / "added_by_the_reader").touch()
    house.enter_environment(None, [])
    assert house.is_ready(None) and (house.VENV / "added_by_the_reader").exists()


def test_another_build_of_torch_makes_another_environment(house):
    house.enter_environment(None, [])
    assert house.is_ready("cpu") and not house.is_ready("cuda")


def test_two_set_ups_do_not_run_at_once(house, monkeypatch):
    def stop_waiting(seconds):
        raise TimeoutError

    monkeypatch.setattr(house.time, "sleep", stop_waiting)
    with house.only_one_set_up():
        with pytest.raises(TimeoutError), house.only_one_set_up():
            pytest.fail("both hold the lock")
    with house.only_one_set_up():
        pass


@pytest.mark.parametrize(
    "complaint, told",
    [
        ("ERROR: [Errno 28] No space left on device", "The disk is full"),
        ("ERROR: No matching distribution found for torch", "check the network"),
    ],
)
def test_a_failed_install_shows_its_last_lines_and_what_to_do(
    course, tmp_path, monkeypatch, complaint, told
):
    (tmp_path / "pip.py").write_text(
        f"print('early\\n' * 50, flush=True)\nraise SystemExit({complaint!r})"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(course, "PYTHON", sys.executable)
    with pytest.raises(course.Stop) as stop:
        course.pip_install("torch")
    lines = str(stop.value).splitlines()
    assert (
        stop.value.status == 1 and complaint in lines[-2] and told in lines[-1] and len(lines) < 20
    )


@pytest.mark.parametrize(
    "brings, driver, build, chosen",
    [
        (["torch", "numpy"], False, None, ["torch==2.13.0"]),
        (["torch", "nvidia-cublas"], False, None, ["torch==2.13.0+cpu", "--extra-index-url"]),
        (["torch", "cuda-toolkit"], True, None, ["torch==2.13.0"]),
        (["torch", "cuda-toolkit"], True, "cpu", ["torch==2.13.0+cpu", "--extra-index-url"]),
        (["torch", "cuda-toolkit"], False, "cuda", ["torch==2.13.0"]),
    ],
)
def test_cuda_comes_only_with_a_driver_or_when_asked_for(
    course, tmp_path, monkeypatch, brings, driver, build, chosen
):
    def reporting_pip(*arguments, **_):
        report = {"install": [{"metadata": {"name": name}} for name in brings]}
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps(report))

    monkeypatch.setattr(course, "pip_install", reporting_pip)
    monkeypatch.setattr(course, "VENV", tmp_path)
    monkeypatch.setattr(course.sys, "platform", "linux")
    monkeypatch.setattr(
        course.shutil, "which", lambda name: "/usr/bin/nvidia-smi" if driver else None
    )
    monkeypatch.setattr(course.Path, "exists", lambda path: False)
    assert course.torch_arguments("torch==2.13.0", build)[:2] == chosen


@pytest.mark.parametrize(
    "has, build, kept",
    [
        (("2.13.0+cpu", "cpu"), None, "2.13.0+cpu"),
        (("2.11.0+cu130", "cuda"), None, "2.11.0+cu130"),
        (("2.10.1", "cuda"), None, None),
        (("2.9.1", "cpu"), None, None),
        (("2.13.0", "cuda"), "cpu", None),
        (None, None, None),
    ],
)
def test_the_readers_torch_is_kept_when_it_will_do(course, monkeypatch, has, build, kept):
    monkeypatch.setattr(course, "importable_torch", lambda python: has)
    assert course.torch_to_keep("python", build) == kept


# ---- run and test --------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A reader whose own folder holds a kernelspec `python3` that leads nowhere."""
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {"argv": ["/no/such/python"], "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")


def run_command(folder, *arguments):
    command = [sys.executable, ROOT / "course.py", "run", "--here", "--notebooks", folder]
    return [*command, "--out", folder / "out", *arguments]


def run_lessons(folder, *arguments, **options):
    options |= {"stdin": subprocess.DEVNULL, "capture_output": True, "encoding": "utf-8"}
    return subprocess.run(run_command(folder, *arguments), **options)


@pytest.mark.slow
@pytest.mark.notebook
def test_a_broken_cell_is_named_and_the_other_lessons_still_run(tmp_path, elsewhere):
    check = (
        f"import os, sys\n"
        f"assert os.path.realpath(sys.executable) == {os.path.realpath(sys.executable)!r}\n"
        f"assert os.path.samefile('.', {str(tmp_path)!r})\nimport mlm_lib\n"
        f"assert os.environ['GOMP_SPINCOUNT'] == '77'"
    )
    write_lesson(
        tmp_path, "01_broken", "rate = SEED", "print('before')\n1 / (rate - 4)", "print('after')"
    )
    write_lesson(tmp_path, "02_whole", check)
    answer = run_lessons(tmp_path, "-p", "SEED=4", env={**os.environ, "GOMP_SPINCOUNT": "77"})
    assert answer.returncode == 1, answer.stdout + answer.stderr
    for told in (
        "FAILED 01_broken.ipynb cell 3\n",
        "| 1 / (rate - 4)\n",
        "> 2 1 / (rate - 4)\n",
        "ZeroDivisionError: division by zero\n",
        "1 of 2 lessons ran to their end",
    ):
        assert told in answer.stdout
    kept = nbformat.read(tmp_path / "out" / "01_broken.ipynb", as_version=4)
    texts = [output.get("text") for cell in kept.cells for output in cell.get("outputs", [])]
    assert "before\n" in texts
    assert (tmp_path / "out" / "02_whole.ipynb").exists()


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit for the size of files")
def test_a_full_disk_is_told_as_the_lessons_failure_and_the_next_one_runs(tmp_path):
    def small_files():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    write_lesson(tmp_path, "01_large", "print('x' * 30_000)")
    write_lesson(tmp_path, "02_small", "print('x')")
    answer = run_lessons(tmp_path, preexec_fn=small_files)
    assert answer.returncode == 1 and "Traceback" not in answer.stdout + answer.stderr
    assert "FAILED 01_large.ipynb\n    The disk is full (File too large). Check" in answer.stdout
    assert "1 of 2 lessons ran to their end" in answer.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["02_small.ipynb"]


@pytest.mark.slow
@pytest.mark.notebook
def test_each_lesson_is_named_at_its_start_and_a_cell_is_ended_in_time(tmp_path):
    write_lesson(tmp_path, "01_asleep", "import time; time.sleep(600)")
    write_lesson(tmp_path, "02_awake", "print('x')")
    answer = run_lessons(tmp_path, "--cell-timeout", "2", "--jobs", "1", timeout=300)
    lines = answer.stdout.splitlines()
    assert answer.returncode == 1 and lines[0] == "01_asleep (1 of 2)"
    failed = lines.index("FAILED 01_asleep.ipynb cell 2")
    assert lines[failed + 1] == "    | import time; time.sleep(600)"
    assert lines[failed + 2].startswith("    This cell ran longer than 2 seconds; --cell-timeout")
    assert failed < lines.index("02_awake (2 of 2)") and "1 of 2 lessons" in lines[-1]


def heed_ctrl_c():
    """In the child: tests that a shell runs in the background are started deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_with_130_and_keeps_what_ran(tmp_path):
    write_lesson(tmp_path, "01_long", "print('begun')", "import time; time.sleep(600)")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(run_command(tmp_path), preexec_fn=heed_ctrl_c, **pipes)
    kept = tmp_path / "out" / "01_long.ipynb"
    for _ in range(300):
        if kept.exists() and "begun\\n" in kept.read_text("utf-8"):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert (
        process.returncode == 130 and "Stopped in 01_long.ipynb" in told and "Traceback" not in told
    )
    assert "begun\\n" in kept.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
def test_sigterm_ends_jupyterlab_as_well(lessons):
    command = [sys.executable, ROOT / "course.py", "open", "--here", "--notebooks", lessons]
    command += ["--", "--no-browser", "--port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        address = next(re.finditer(r"http://localhost:(\d+)/lab", "".join(until_lab(process))))
        process.terminate()
        assert process.wait(30) == 130
    with pytest.raises(OSError), socket.create_connection(("localhost", int(address[1])), 5):
        pytest.fail("JupyterLab still answers")


def until_lab(process):
    """The lines of JupyterLab's log up to the one that tells its address."""
    for line in process.stdout:
        yield line
        if "http://localhost:" in line:
            return


@pytest.fixture
def steps(course, lessons, tmp_path, monkeypatch):
    """`course.py test` whose steps are not run: each takes the next of `ends`, a status or a report
    as pytest writes it, and is noted in `commands` with its environment."""
    monkeypatch.setattr(course, "ROOT", tmp_path)
    course.ends, course.commands = [], []

    def note(command, env):
        course.commands.append((command, env))
        end = course.ends.pop(0)
        if isinstance(end, int):
            return end
        cases = [
            f"<testcase classname='{m}' name='{n}'>{'<%s/>' % o * bool(o)}</testcase>"
            for m, n, o in end
        ]
        Path(command[-1]).write_text(
            f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
        )
        return int(any(outcome in ("failure", "error") for _, _, outcome in end))

    monkeypatch.setattr(course, "call", note)
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda name: name)
    course.start = lambda *more: course.main(["test", "--here", "--notebooks", str(lessons), *more])
    return course


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("status", [1, 5])
def test_every_step_counts_and_so_does_finding_no_test(steps, capsys, step, status):
    steps.ends = [0] * step + [status] + [0] * (5 - step)
    assert steps.start("--style") == 1 and steps.ends == []
    told = capsys.readouterr().out.splitlines()
    name = ["size", "format", "lint", "tests", "style", "notebooks"][step]
    program = ["code_size.py", "ruff", "ruff", "pytest", "notebook_style.py", "pytest"][step]
    assert f"FAILED {name} ({program} ended with exit status {status})" in told
    assert told[-1] == "5 passed, 1 failed, 0 skipped"


def test_the_last_lines_count_the_tests_and_name_those_that_failed(steps, capsys):
    tests = [("tests.test_a", "test_one[x.y]", ""), ("tests.test_a", "test_two", "failure")]
    tests += [("tests.test_a", "test_three", "skipped"), ("", "tests.test_b", "error")]
    cells = [("notebooks.01_words.ipynb", f"Cell {n}", "failure" * (n in (2, 4))) for n in range(5)]
    steps.ends = [0, 0, 1, tests, cells]
    assert steps.start() == 1
    told = capsys.readouterr().out.splitlines()
    assert [re.sub(r" in \d+ s$", "", line) for line in told[-13:]] == [
        "",
        "FAILED lint (ruff ended with exit status 1)",
        "FAILED tests (pytest ended with exit status 1)",
        "FAILED tests/test_a.py::test_two",
        "FAILED tests.test_b",
        "FAILED notebooks (pytest ended with exit status 1)",
        "FAILED 01_words.ipynb cell 3 (`Cell 2` above: pytest counts from 0), "
        "and 1 more of its cells",
        "size       1 passed, 0 failed, 0 skipped",
        "format     1 passed, 0 failed, 0 skipped",
        "lint       0 passed, 1 failed, 0 skipped",
        "tests      1 passed, 2 failed, 1 skipped",
        "notebooks  3 passed, 2 failed, 0 skipped",
        "6 passed, 5 failed, 1 skipped",
    ]
    assert [line.endswith(" s") for line in told[-6:]] == [True] * 5 + [False]


def test_a_report_cut_short_counts_as_none(steps, capsys, monkeypatch):
    def cut_short(command, env):
        if "pytest" in command:
            Path(command[-1]).write_text("<testsuites><testsu")
        return int("pytest" in command)

    monkeypatch.setattr(steps, "call", cut_short)
    assert steps.start("--quick") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize(
    "options, marks",
    [
        (["--quick"], "not slow and not site"),
        (["--quick", "--site"], "not slow"),
        ([], "not site"),
        (["--site"], None),
    ],
)
def test_slow_tests_and_those_of_the_site_are_left_out_or_asked_for(steps, options, marks):
    steps.ends = [0] * 5
    assert steps.start(*options) == 0
    (tests, *notebooks) = [command for command, _ in steps.commands if "-n" in command]
    assert tests[tests.index("-m", 2) + 1 :][:1] == [marks] if marks else "-m" not in tests[2:]
    assert bool(notebooks) == ("--quick" not in options)


def test_what_a_killed_program_leaves_in_the_folder_for_temporary_files_is_removed(
    steps, monkeypatch, own_temporary_folder
):
    """In these tests, and where `course.py test` executes the lessons."""
    code = "import os, tempfile; print(tempfile.mkdtemp()); os._exit(9)"

    def left(env):
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        return Path(done.stdout.strip())

    folders = []
    monkeypatch.setattr(steps, "call", lambda command, env: folders.append(left(env)) or 0)
    steps.start()
    here, in_a_lesson = folders[-2:]
    assert here.parent == Path(own_temporary_folder)
    assert in_a_lesson.parent.parent == here.parent and not in_a_lesson.exists()


def test_the_last_lessons_which_train_are_begun_first(steps, lessons):
    steps.ends = [0, 0, 0, 0, 0]
    steps.start()
    command = steps.commands[-1][0]
    order = [command.index(lessons / f"{stem}.ipynb") for stem in ("12_scores", "01_words")]
    assert order == sorted(order) and "--no-loadscope-reorder" in command


@pytest.mark.parametrize(
    "cores, own, workers, threads",
    [(1, None, 1, "1"), (2, None, 2, "1"), (8, None, 4, "2"), (2, "2", 2, "2")],
)
def test_each_worker_gets_its_share_of_the_cores(steps, monkeypatch, cores, own, workers, threads):
    monkeypatch.setattr(steps.os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if own:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    steps.ends = [0, 0, 0, 0, 0]
    steps.start()
    shared_out = [(command, env) for command, env in steps.commands if "-n" in command]
    assert len(shared_out) == 2  # the tests and the lessons
    for command, env in shared_out:
        assert command[command.index("-n") + 1] == workers and env["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    "busy, threads", [(0, 4), (0.4, 4), (1, 3), (2.6, 1), (4, 1), (9, 1), (None, 4)]
)
def test_a_lesson_takes_the_cores_that_others_leave(course, monkeypatch, busy, threads):
    """A clock of /proc/stat that says how many of four cores were busy; None: there is no clock."""
    ticks = iter([0, 100])

    def read(path, *_):
        if busy is None:
            raise FileNotFoundError(path)
        tick = next(ticks)
        used = round(tick * min(busy, 4))
        return f"cpu  {used} 0 0 {4 * tick - used} 0 0 0 0 0 0\ncpu0 1 2 3\n"

    monkeypatch.setattr(course.Path, "read_text", read)
    monkeypatch.setattr(course.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(course.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(course, "usable_cores", lambda: 4)
    assert course.idle_cores() == threads


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize(
    "own, least, most", [({}, 1, max(1, os.cpu_count() // 2)), ({"OMP_NUM_THREADS": "7"}, 7, 7)]
)
def test_lessons_run_side_by_side_and_share_the_cores(tmp_path, own, least, most):
    meet = (
        "import os, pathlib, time\npathlib.Path(SELF).touch()\n"
        "while not pathlib.Path(OTHER).exists(): time.sleep(0.05)\n"
        f"assert {least} <= int(os.environ['OMP_NUM_THREADS']) <= {most}"
    )
    for name, other in (("01_one", "02_two"), ("02_two", "01_one")):
        write_lesson(tmp_path, name, f"SELF, OTHER = {name!r}, {other!r}", meet)
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | own
    answer = run_lessons(tmp_path, "--jobs", "2", "--cell-timeout", "60", env=env)
    assert answer.returncode == 0 and "2 of 2 lessons" in answer.stdout, answer.stdout


@pytest.mark.slow
@pytest.mark.notebook
def test_a_failed_comparison_names_notebook_and_cell(course, tmp_path):
    path = write_lesson(tmp_path, "01_changed", "print(1)", "print(2)")
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells[1:], 1):
        cell.execution_count = number
        cell.outputs = [nbformat.v4.new_output("stream", text="1\n")] if number > 1 else []
    nbformat.write(notebook, path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval"]
    report = tmp_path / "report.xml"
    command += ["--nbval-current-env", "--junitxml", report, path]
    subprocess.run(command, cwd=tmp_path, capture_output=True)
    cases = course.read_report(report)
    assert [outcome for outcome, _, _ in cases] == ["passed", "passed", "failed"]
    assert [line.split(" (")[0] for line in course.failures(cases)] == [
        "FAILED 01_changed.ipynb cell 3"
    ]


@pytest.mark.slow
@pytest.mark.notebook
def test_a_cell_that_draws_before_a_seed_is_found(steps, tmp_path):
    steps.ends = [0, 0, 0, 0, 0]
    steps.start()
    failed = {
        "torch.manual_seed(SEED); _ = torch.rand(2)": 0,
        "_ = torch.rand(2, generator=torch.Generator())": 0,
        "_ = torch.rand(2)": 2,
        "_ = torch.rand(2); _ = torch.manual_seed(SEED)": 2,
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", "--junitxml", tmp_path / "report.xml"]
    for place, cell in enumerate(failed):
        path = write_lesson(tmp_path, f"0{place}_drawn", f"import torch; {cell}", "pass")
        notebook = nbformat.read(path, as_version=4)
        for number, code in enumerate(notebook.cells[1:], 1):
            code.execution_count = number  # or nbval would not compare
        nbformat.write(notebook, path)
        command.append(path)
    env = {**os.environ, "PYTHONSTARTUP": steps.commands[-1][1]["PYTHONSTARTUP"]}
    subprocess.run(command, cwd=tmp_path, env=env, capture_output=True)
    outcomes = [outcome for outcome, _, _ in steps.read_report(tmp_path / "report.xml")]
    expected = [["passed"] * (3 - count) + ["failed"] * count for count in failed.values()]
    assert outcomes == sum(expected, [])


# A machine with an accelerator, pretended in each Python below: this file goes into a folder of
# PYTHONPATH. The first kind has a driver that heeds the variable, as CUDA's does. The second kind
# is a device of torch that no variable hides, as Apple's MPS is.
CUDA_LIKE = """
import os, torch
torch.cuda.is_available = lambda: os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")
"""
MPS_LIKE = f"""
import sys
sys.path.append({str(ROOT / "tests" / "helpers")!r})
import pretended_device
"""
WHERE_LESSONS_RUN = """
import torch
from mlm_lib.checks import torch_device
print(torch_device("DEVICE", DEVICE))
"""
WHERE_TRAIN_RUNS = """
import torch
print(torch.accelerator.current_accelerator(check_available=True))
"""


def pretend(folder, kind, env):
    """The environment `env` on a machine with a pretended accelerator."""
    (folder / "sitecustomize.py").write_text(kind)
    return env | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def without_what_hides(env):
    """`env` as it is outside of `course.py test`, which may have started these tests."""
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR")
    return {k: v for k, v in env.items() if k not in (*hidden, "PYTHONSTARTUP")}


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("mended", [True, False])
@pytest.mark.parametrize(
    "kind, cell, on_cpu",
    [(CUDA_LIKE, WHERE_LESSONS_RUN, "cpu\n"), (MPS_LIKE, WHERE_TRAIN_RUNS, "None\n")],
)
def test_outputs_of_the_cpu_are_stored_and_compared_where_there_is_an_accelerator(
    steps, lessons, tmp_path, kind, cell, on_cpu, mended
):
    """In a kernel with the variables of `course.py`; without them, to see that they act."""
    steps.ends = [0] * 9
    steps.start()
    steps.main(["lesson", "1", "--here", "--notebooks", str(lessons)])
    env, env_of_lesson = (steps.commands[number][1] for number in (4, 5))
    assert env["CUDA_VISIBLE_DEVICES"] == env_of_lesson["CUDA_VISIBLE_DEVICES"]
    assert Path(env_of_lesson["PYTHONSTARTUP"]).name == "cpu_only.py"  # which the other one imports
    path = write_lesson(lessons, "01_words", cell)
    notebook = nbformat.read(path, as_version=4)
    for number, code in enumerate(notebook.cells[1:], 1):
        code.execution_count = number
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text=on_cpu)]
    nbformat.write(notebook, path)
    env = pretend(tmp_path, kind, env if mended else without_what_hides(env))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", path]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == mended and ("2 passed" in done.stdout) == mended, done.stdout


ON_A_DEVICE = ["test", "--here", "--device"]


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--device", "cuda", "--quick"], "--device is for the lessons"),
        (["--device", "mps", "--style"], "--device is for the lessons"),
        (["--only", "3"], "--only and --jobs need --device"),
        (["--jobs", "2"], "--only and --jobs need --device"),
    ],
)
def test_options_that_do_not_go_together_are_refused(course, capsys, arguments, told):
    with pytest.raises(SystemExit) as stop:
        course.main(["test", "--here", *arguments])
    assert stop.value.code == 2 and told in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda:99", "meta", "gpu"])
def test_a_comparison_on_an_absent_device_is_refused(course, lessons, capsys, device):
    assert course.main([*ON_A_DEVICE, device, "--notebooks", str(lessons)]) == 2
    assert f"no device {device}" in capsys.readouterr().err


@pytest.fixture
def executed(course, lessons, monkeypatch, tmp_path):
    """`course.py test --device`, whose executions are not done: 01_words printed `course.prints`,
    and 12_scores failed where `course.fails` says so."""
    monkeypatch.setattr(course, "ROOT", tmp_path)
    monkeypatch.setattr(course, "check_device", lambda name: None)
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda name: name)
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    course.fails = False

    def with_output(path, text):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text=text)]
        return notebook

    def run_at_once(jobs, planned, out, limit, bar):
        assert all(values.get("DEVICE") == "mps" for path, values in planned[1:])
        for path, _ in planned:
            failure = ["", f"FAILED {path.name} cell 2", "    no"] * course.fails
            nbformat.write(with_output(path, course.prints), out / path.name)
            yield path, failure if path.name.startswith("12") else [], 1.0

    monkeypatch.setattr(course, "run_at_once", run_at_once)
    for path in lessons.glob("*.ipynb"):
        nbformat.write(with_output(path, "loss 6.91 of 100"), path)
    course.start = lambda: course.main([*ON_A_DEVICE, "mps", "--notebooks", str(lessons)])
    return course


@pytest.mark.parametrize(
    "prints, fails, told",
    [
        (
            "loss 6.93 of 100",
            False,
            ["01_words 2 passed, 0 failed", "12_scores 2 passed, 0 failed"],
        ),
        (
            "loss 6.93 of 101",
            False,
            ["01_words 1 passed, 1 failed", "12_scores 1 passed, 1 failed"],
        ),
        (
            "loss 7.91 of 100",
            False,
            ["01_words 1 passed, 1 failed", "12_scores 1 passed, 1 failed"],
        ),
        ("loss 6.91 of 100", True, ["01_words 2 passed, 0 failed", "12_scores 0 passed, 1 failed"]),
    ],
)
def test_a_comparison_on_a_device_counts_cells_and_closes_as_test_does(
    executed, capsys, prints, fails, told
):
    executed.prints, executed.fails = prints, fails
    wrong = sum(" 1 failed" in line for line in told)
    assert executed.start() == bool(wrong)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in told:
        assert f"{line}, 0 skipped in 1 s" in lines
    assert lines[-1] == f"{4 - wrong - fails} passed, {wrong} failed, 0 skipped"
    assert lines[-4 - wrong : -3].count("FAILED 12_scores.ipynb cell 2") == bool(wrong)
    if wrong and not fails:
        assert "stored: loss 6.91 of 100" in lines and f"found: {prints}" in lines


def test_a_comparison_on_a_device_needs_only_what_run_needs(executed, monkeypatch):
    needed = executed.COMMANDS["run"][1]
    monkeypatch.setattr(
        executed.importlib.util, "find_spec", lambda name: name if name in needed else None
    )
    executed.prints = "loss 6.91 of 100"
    assert executed.start() == 0


@pytest.mark.slow
@pytest.mark.notebook
def test_a_planted_number_is_found_on_another_device_and_a_close_one_is_not(tmp_path):
    """End to end: three cells are computed on a pretended device, one of which prints its name."""
    cells = {
        "import torch\nx = torch.ones(3, device=DEVICE)\nprint(x.device)": "pretend:0\n",
        "print(f'loss {x.sum() / 7:.4f}')": "loss 0.4285\n",  # 3/7 is 0.42857
        "print(f'gain {x.sum() / 7:.4f}')": "gain 0.5286\n",
    }
    path = write_lesson(tmp_path, "01_words", *cells)
    notebook = nbformat.read(path, as_version=4)
    for cell, text in zip(notebook.cells[2:], cells.values()):
        cell.outputs = [nbformat.v4.new_output("stream", text=text)]
    nbformat.write(notebook, path)
    command = [sys.executable, ROOT / "course.py", *ON_A_DEVICE, "pretend", "--notebooks", tmp_path]
    env = pretend(tmp_path, MPS_LIKE, without_what_hides(os.environ))
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    failure = lines.index("FAILED 01_words.ipynb cell 4")
    assert lines[failure + 1 : failure + 4] == [
        "    stored: gain 0.5286",
        "    found:  gain 0.4286",
        "    (0.5286 and 0.4286 are 0.1 apart, and 0.00539 is allowed)",
    ]
    assert lines[-1] == "3 passed, 1 failed, 0 skipped"


def test_a_lesson_goes_from_edited_text_to_the_comparison(steps, lessons, tmp_path):
    def asked(*options):
        steps.commands.clear()
        steps.ends = [0] * 5
        assert steps.main(["lesson", "1", *options, "--here", "--notebooks", str(lessons)]) == 0
        return [next(w for w in map(str, c[1:]) if w != "-m") for c, _ in steps.commands]

    execute, style = "execute_notebook.py", "notebook_style.py"
    assert [Path(word).name for word in asked()] == [execute, "pytest", "pytest", style]
    assert [Path(word).name for word in asked("--text")] == ["jupytext", "glossary_links.py"]
    draft = tmp_path / "build/lessons/01_words.py"
    draft.write_text("# %%")
    later = (lessons / "01_words.ipynb").stat().st_mtime + 1
    os.utime(draft, (later, later))
    names = [Path(word).name for word in asked()]
    assert names == ["jupytext", execute, "pytest", "pytest", style]


def test_an_edited_text_that_is_older_than_the_lesson_is_told_and_not_used(
    steps, lessons, tmp_path, capsys
):
    """As after an edit and a `git pull` that brings a newer lesson."""
    steps.ends = [0] * 10
    command = ["lesson", "1", "--here", "--notebooks", str(lessons)]
    assert steps.main(command) == 0 and "is not used" not in capsys.readouterr().out
    draft = tmp_path / "build/lessons/01_words.py"
    draft.write_text("# %%")
    earlier = (lessons / "01_words.ipynb").stat().st_mtime - 1
    os.utime(draft, (earlier, earlier))
    assert steps.main(command) == 0
    assert f"{draft} is older than 01_words.ipynb, so it is not used" in capsys.readouterr().out
    assert not any("jupytext" in map(str, command) for command, _ in steps.commands)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("cell, stored", [("print(6 * 7)", "42"), ("print(1 / 0)", "old")])
def test_a_draft_that_fails_leaves_the_notebook_as_it_was(tmp_path, cell, stored):
    target = write_lesson(tmp_path, "01_words", "print('old')")
    (tmp_path / "drafts").mkdir()
    draft = write_lesson(tmp_path / "drafts", "01_words", cell)
    script = [sys.executable, ROOT / "tools/execute_notebook.py", draft, target]
    done = subprocess.run(script, capture_output=True, text=True)
    assert bool(done.returncode) == (stored == "old") and stored in target.read_text("utf-8")


def test_torch_is_held_to_the_version_that_pip_knows(course, tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "__version__ = '9.9.0+cu130'\nclass version: cuda, hip = '13.0', None\n"
    )
    (tmp_path / "torch-9.9.0.dist-info").mkdir()
    (tmp_path / "torch-9.9.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 9.9.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert course.importable_torch(sys.executable) == ("9.9.0", "cuda")


@pytest.mark.parametrize(
    "out, told", [("notebooks", "lessons themselves"), ("a_file", "is a file")]
)
def test_the_lessons_and_other_files_are_never_overwritten(
    course, lessons, tmp_path, capsys, out, told
):
    (tmp_path / "a_file").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert (
        course.main(["run", "--here", "--notebooks", str(lessons), "--out", str(tmp_path / out)])
        == 2
    )
    assert told in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_jupyterlab_gets_the_courses_settings_and_keeps_its_tabs_apart(
    course, monkeypatch, lessons
):
    environments = []
    monkeypatch.setattr(course, "call", lambda command, env: environments.append(env) or 0)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/of/the/user")
    monkeypatch.delenv("JUPYTERLAB_WORKSPACES_DIR", raising=False)
    assert course.main(["open", "--here", "--notebooks", str(lessons)]) == 0
    (env,) = environments
    folders = env["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert folders == [str(ROOT / ".jupyter"), "/of/the/user"]
    assert env["JUPYTERLAB_WORKSPACES_DIR"] == str(ROOT / "build" / "jupyterlab")
