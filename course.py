#!/usr/bin/env python3
"""The course's front door: sets up, runs, tests and opens it. It needs only Python.

    python3 course.py run  [--only 03 08] [--quick] [--device auto] [-p NAME=VALUE ...] [--out DIR]
    python3 course.py test [--quick]
    python3 course.py lab

Every command first sees to `.venv` (made when absent, renewed when pyproject.toml or constraints.txt has changed)
and goes on inside it. `--here` uses the interpreter at hand instead: conda, Colab, a prepared GPU machine.

torch: a torch that the starting interpreter can already import is kept. Otherwise `--cpu` asks for the CPU build and
`--cuda` for the CUDA build; without either, Linux gets the CUDA build only where there is an NVIDIA driver.

Exit status: 0 when all went well, 1 when something failed, 2 for a request that cannot be met, 130 after Ctrl-C.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("The course needs Python 3.11 or newer; this is Python %d.%d." % sys.version_info[:2])

import argparse
import ast
import collections
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
INSIDE = Path(sys.prefix).resolve() == VENV
OLD_VENV = ROOT / ".venv.old"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = (
    VENV / "course.json"
)  # emptied first and written last, so that an interrupted set-up is known by it
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_SIZE, CUDA_SIZE = "about 200 MB", "about 2.7 GB"  # of torch 2.13 and what it needs, on Linux
AGAIN = "then give the same command again."


class Stop(Exception):
    """An anticipated end: a sentence for the user and an exit status."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


# ---- the environment --------------------------------------------------------------------------------------------


def fingerprint() -> str:
    """What an environment depends on. The folder counts too: the editable install holds its path."""
    files = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*files, bytes(ROOT)])).hexdigest()


def read_stamp() -> dict | None:
    """None: no set-up was ever begun in .venv. Without "inputs": one was begun and not finished."""
    try:
        return json.loads(STAMP.read_text("utf-8"))
    except ValueError:
        return {}
    except OSError:
        return None


def starts(python: Path) -> bool:
    """False also for a link to a Python that has since been removed."""
    with contextlib.suppress(OSError):
        return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    return False


def is_ready(build: str | None) -> bool:
    stamp = read_stamp() or {}
    return (
        stamp.get("inputs") == fingerprint()
        and build in (None, stamp["asked"], stamp["build"])
        and starts(PYTHON)
    )


def importable_torch(python) -> tuple[str, str] | None:
    """(version, "cpu" or "cuda" or "rocm") of the torch that `python` can import, if it can."""
    # The version that pip knows it by: PyPI's CUDA wheel is 2.13.0 to pip and calls itself 2.13.0+cu130.
    code = (
        "import torch as t; from importlib.metadata import version; "
        "print(version('torch'), 'cuda' if t.version.cuda else 'rocm' if t.version.hip else 'cpu')"
    )
    with contextlib.suppress(OSError):
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=ROOT)
        return tuple(answer.stdout.split()[-2:]) if answer.returncode == 0 else None


def torch_to_keep(python: str, build: str | None) -> str | None:
    """The version of the starting interpreter's torch, if it is recent enough and not of a build ruled out."""

    def number(version: str) -> list[int]:
        return [int(part) for part in version.split(".")[:2]]

    version, found = importable_torch(python) or ("0.0", None)
    minimum = re.search(r'"torch>=([\d.]+)', (ROOT / "pyproject.toml").read_text("utf-8"))[1]
    return version if number(version) >= number(minimum) and build in (None, found) else None


@contextlib.contextmanager
def only_one_set_up():
    """Hold .venv.lock. The system frees it with the last process that holds it, so it is never stale; on POSIX pip
    inherits it, so that when this process alone is killed nobody builds beside the pip it leaves behind."""
    with open(ROOT / ".venv.lock", "a+") as file:
        for attempt in range(10**6):
            try:
                if os.name == "nt":
                    import msvcrt

                    file.seek(0)
                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                else:
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                if attempt == 0:
                    print("Another set-up is at work in this folder; waiting for it.")
                time.sleep(1)
        os.set_inheritable(file.fileno(), True)
        yield


def pip(
    *arguments,
    advice: str = "pip failed. If it speaks of connections or missing versions, check the network,",
):
    """Run .venv's pip. On a terminal its current line is shown; when it fails, its last lines and what to do."""
    command = [PYTHON, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    tail = collections.deque(maxlen=15)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
        cwd=ROOT,
        close_fds=False,
    ) as process:
        try:
            for line in process.stdout:
                tail.append("    " + line.rstrip())
                if sys.stdout.isatty():
                    print("\r" + line.strip()[:78].ljust(78), end="\r", flush=True)
        except KeyboardInterrupt:
            process.kill()
            raise
    if sys.stdout.isatty():
        print(" " * 78, end="\r")
    if process.returncode:
        if any("No space left" in line for line in tail):
            advice = (
                "The disk is full: make room (3 GB with the CPU build of torch, 10 GB with CUDA),"
            )
        raise Stop("\n".join([*tail, f"{advice} {AGAIN}"]), 1)


def torch_arguments(pin: str, build: str | None) -> list[str]:
    """What to give pip to get torch, after asking what the user's own configuration of pip would bring."""
    if not sys.platform.startswith("linux"):
        return [pin]  # PyPI's wheels for macOS and Windows are CPU (and MPS) builds
    report = VENV / "torch.json"
    pip("install", "--dry-run", "--quiet", "--report", report, pin)
    names = [item["metadata"]["name"] for item in json.loads(report.read_text("utf-8"))["install"]]
    if not any(name.startswith(("nvidia-", "cuda-")) for name in names):
        return [pin]
    if (
        build == "cuda"
        or build is None
        and (shutil.which("nvidia-smi") or Path("/proc/driver/nvidia").exists())
    ):
        print(
            f"  the CUDA build of torch is {CUDA_SIZE} to download; --cpu asks for the CPU build, {CPU_SIZE}"
        )
        return [pin]
    # The local version +cpu, spelt out: with the index out of reach pip then fails and does not fall back on CUDA.
    return [f"{pin}+cpu", "--extra-index-url", CPU_INDEX, "--retries", "2"]


def make_venv(base: str) -> None:
    print(f"Setting up {VENV} (once; a few minutes)")
    if (
        VENV.exists()
    ):  # out of the way in one step: a half-removed environment could pass for a good one
        shutil.rmtree(OLD_VENV, ignore_errors=True)
        VENV.rename(OLD_VENV)
    VENV.mkdir()
    STAMP.write_text("{}")
    made = subprocess.run([base, "-m", "venv", VENV], capture_output=True, text=True)
    shutil.rmtree(OLD_VENV, ignore_errors=True)
    if made.returncode:
        raise Stop(
            f"{made.stdout}{made.stderr}\n{base} could not make {VENV}. On Debian and Ubuntu install "
            f"python3-venv; else look at the disk's space; {AGAIN}",
            1,
        )


def set_up(build: str | None) -> None:
    """Make or renew .venv. Whatever interrupts this leaves the stamp empty, and the next call begins afresh."""
    base = sys._base_executable if INSIDE else sys.executable
    stamp = read_stamp()
    build = build or (stamp or {}).get("asked")
    if stamp is None and starts(PYTHON):
        print(
            f"Adding the course to {VENV}, which was made by hand"
        )  # so it is filled, never removed
        base = str(PYTHON)
        subprocess.run([base, "-m", "ensurepip"], capture_output=True)  # some tools leave pip out
    elif stamp and stamp["asked"] == build and starts(PYTHON):
        print(f"Renewing {VENV}: what it is made from has changed")
        base = stamp["base"]
        STAMP.write_text("{}")
    else:
        make_venv(base)

    pip("install", "pip>=23.3")  # before 23.3 a --dry-run downloads the wheels that it only reports
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    kept = torch_to_keep(base, build)
    if kept:
        print(f"  keeping torch {kept} of {base}")
        code = "import sys; print(*[p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))], sep='\\n')"
        folders = subprocess.run(
            [base, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        (next(VENV.glob("[Ll]ib/**/site-packages")) / "starting_interpreter.pth").write_text(
            folders
        )
    else:
        arguments = torch_arguments(re.search(r"^torch==\S+", constraints, re.M)[0], build)
        print(f"  installing {arguments[0]}")
        pip(
            "install",
            *arguments,
            advice="torch could not be installed. Check the network"
            + (
                f" ({CPU_INDEX}), or add --cuda to accept the CUDA build ({CUDA_SIZE}),"
                if arguments[1:]
                else ","
            ),
        )
    version, found = importable_torch(PYTHON) or (None, None)
    if not version:
        raise Stop(
            f"torch is installed in {VENV} but cannot be imported: try another version of Python.",
            1,
        )
    # The rest is held to the torch that is there, lest pip exchange one build for another.
    held = VENV / "constraints.txt"
    held.write_text(re.sub(r"^torch==\S+", f"torch=={version}", constraints, flags=re.M), "utf-8")
    print("  installing the course and its other packages")
    pip("install", "-e", ".[test]", "-c", held)

    draft = STAMP.with_suffix(".draft")
    draft.write_text(
        json.dumps({"inputs": fingerprint(), "asked": build, "build": found, "base": base})
    )
    os.replace(draft, STAMP)
    name = {"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm"}[found]
    print(f"torch {version.split('+')[0]} ({name} build{', kept' if kept else ''}) in {VENV.name}")


def enter_environment(build: str | None, argv: list[str]) -> None:
    """See to .venv and go on inside it. Returns only when this process is inside already."""
    if not is_ready(build):
        with only_one_set_up():
            if not is_ready(build):  # whoever held the lock before may have done it
                set_up(build)
    if INSIDE:
        return
    command = [str(PYTHON), str(ROOT / "course.py"), *argv, "--here"]
    if os.name == "nt":
        sys.exit(call(command, None))
    sys.stdout.flush()
    os.execv(PYTHON, command)


def call(command: list, env: dict | None) -> int:
    """Run to the end and return the exit status. Ctrl-C reaches the child as well: it decides, we wait for it."""
    process = subprocess.Popen([str(part) for part in command], cwd=ROOT, env=env)
    interrupted = False
    while process.poll() is None:
        try:
            process.wait()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return process.returncode


@contextlib.contextmanager
def child_environment():
    """Variables that let notebooks find mlm_lib uninstalled and make the kernel `python3` this very Python:
    the user's folder may hold a kernelspec of that name, but JUPYTER_PATH comes first."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "kernels", "python3")
        kernel.mkdir(parents=True)
        (kernel / "kernel.json").write_text(
            json.dumps(
                {
                    # Quiet: newer ipykernels warn of unencrypted local sockets once a lesson, and print tracebacks on Ctrl-C.
                    "argv": [
                        sys.executable,
                        "-m",
                        "ipykernel_launcher",
                        "--log-level=CRITICAL",
                        "-f",
                        "{connection_file}",
                    ],
                    "display_name": "Python 3 (ipykernel)",
                    "language": "python",
                    "metadata": {"debugger": True},
                }
            )
        )
        first = {
            name: os.pathsep.join([value, *filter(None, [os.environ.get(name)])])
            for name, value in {"JUPYTER_PATH": folder, "PYTHONPATH": str(ROOT)}.items()
        }
        yield {**os.environ, **first, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


# ---- the lessons ------------------------------------------------------------------------------------------------


def find_lessons(folder: Path, only: list[str] | None = None) -> list[Path]:
    """All lessons in order, or those named by number (3, 03) or by name (03_label_cloning)."""
    lessons = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not lessons:
        raise Stop(f"There are no lessons (NN_name.ipynb) in {folder}.", 2)
    chosen = set()
    for name in only or []:
        stem = name.removesuffix(".ipynb")
        found = [
            p
            for p in lessons
            if p.stem == stem or stem.isdecimal() and int(p.stem[:2]) == int(stem)
        ]
        if not found:
            raise Stop(
                f"There is no lesson {name}. The lessons: {', '.join(p.stem for p in lessons)}.", 2
            )
        chosen.update(found)
    return [p for p in lessons if only is None or p in chosen]


def read_parameters(lesson: Path) -> tuple[set[str], dict]:
    """The names set in the cell tagged `parameters`, and the metadata's smaller sizes for --quick."""
    try:
        notebook = json.loads(lesson.read_text("utf-8"))
        cells = [
            cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])
        ]
        body = [node for cell in cells for node in ast.parse("".join(cell["source"])).body]
        quick = notebook["metadata"].get("mlm_course", {}).get("quick", {})
    except (ValueError, KeyError, SyntaxError) as error:
        raise Stop(
            f"{lesson.name} cannot be read as a lesson: {type(error).__name__}: {error}", 2
        ) from None
    targets = [
        t for node in body for t in getattr(node, "targets", [getattr(node, "target", None)])
    ]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    stray = ", ".join(sorted(set(quick) - names))
    if stray:
        raise Stop(
            f"{lesson.name}: its metadata gives {stray} for --quick, which its parameters cell does not set.",
            2,
        )
    return names, quick


def parse_assignments(items: list[str]) -> dict:
    """NAME=VALUE; the value is a Python literal where it reads as one, else a string."""
    values = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not (name.isidentifier() and equals):
            raise Stop(f"-p takes NAME=VALUE, not {item!r}.", 2)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        values[name] = (
            list(value) if isinstance(value, tuple) else value
        )  # papermill writes a tuple as a string
    return values


def plan(args) -> list[tuple[Path, dict]]:
    """The lessons to run, each with the values for its parameters. What is asked wrongly ends here."""
    given = parse_assignments(args.p) | ({"DEVICE": args.device} if args.device else {})
    declared = [
        (lesson, *read_parameters(lesson)) for lesson in find_lessons(args.notebooks, args.only)
    ]
    if args.out == args.notebooks:
        raise Stop(
            f"--out {args.out} is where the lessons themselves are; choose another folder.", 2
        )
    if args.out.exists() and not args.out.is_dir():
        raise Stop(f"--out {args.out} is a file; choose a folder.", 2)
    known = set().union(*(names for _, names, _ in declared))
    unknown = sorted(set(given) - known)
    if unknown:
        raise Stop(
            f"No selected lesson has a parameter {', '.join(unknown)}. "
            f"They have: {', '.join(sorted(known)) or 'none'}.",
            2,
        )
    return [
        (
            lesson,
            (quick if args.quick else {}) | {name: given[name] for name in given if name in names},
        )
        for lesson, names, quick in declared
    ]


def check_device(name: str) -> None:
    import torch

    present = (
        ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    )
    try:
        torch.empty(1, device=name)  # tells also whether there is a cuda:3
    except (RuntimeError, AssertionError):
        raise Stop(
            f"There is no device {name} here. Devices: auto, {', '.join(present)}.", 2
        ) from None


def run(args) -> int:
    """Run every lesson, also after one has failed, and close with a table."""
    lessons = plan(args)
    for device in {str(values["DEVICE"]) for _, values in lessons if "DEVICE" in values} - {"auto"}:
        check_device(device)
    from tqdm import tqdm

    args.out.mkdir(parents=True, exist_ok=True)
    rows, failures = [], 0
    with (
        child_environment() as env,
        tqdm(lessons, unit="lesson", disable=None) as bar,
    ):  # None: on terminals only
        os.environ.update(env)
        for lesson, values in bar:
            bar.set_description(lesson.stem)
            started = time.perf_counter()
            failure = run_lesson(lesson, values, args.out / lesson.name, bar.disable)
            failures += bool(failure)
            rows.append(
                f"{lesson.stem:<36}{time.perf_counter() - started:>9.1f}  {'FAILED' if failure else 'ok'}"
            )
            with tqdm.external_write_mode():
                print(*failure, rows[-1], sep="\n")
    print("", f"{'lesson':<36}{'seconds':>9}  result", *rows, "", sep="\n")
    print(
        f"{len(rows) - failures} of {len(rows)} lessons ran to their end. Executed notebooks: {args.out}"
    )
    return 1 if failures else 0


def run_lesson(lesson: Path, values: dict, target: Path, plain: bool) -> list[str]:
    """Execute one notebook. The lines that tell of its failure: none when it ran to its end."""
    import papermill

    target.unlink(missing_ok=True)  # a failure must not be read off the notebook of an earlier run
    bar = False if plain else {"desc": "  cells", "position": 1, "leave": False}
    try:
        papermill.execute_notebook(
            lesson,
            target,
            values,
            kernel_name="python3",
            language="python",
            cwd=lesson.parent,
            progress_bar=bar,
        )
        return []
    except KeyboardInterrupt:
        print(f"\nStopped in {lesson.name}; what ran of it is in {target}")
        raise
    except papermill.PapermillExecutionError as error:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).splitlines()
        message = "\n".join(
            [
                *[line for line in trace if re.match(r"-+> *\d+", line)][-1:],
                f"{error.ename}: {error.evalue}",
            ]
        )
    except (
        Exception
    ) as error:  # a kernel that died, a file that is no notebook: a failure like any other
        message = f"{type(error).__name__}: {error}"
    number, source = last_cell_started(target)
    return [
        "",
        f"FAILED {lesson.name} cell {number}",
        *(f"    | {line}" for line in source.splitlines()),
        *(f"    {line}" for line in message.splitlines()),
        f"    what ran of it is in {target}",
        "",
    ]


def last_cell_started(executed: Path) -> tuple[int, str]:
    """Number (among the lesson's code cells, from 1) and source of the last cell that papermill began."""
    notebook = json.loads(executed.read_text("utf-8")) if executed.exists() else {"cells": []}
    cells = [
        cell
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
        and "injected-parameters" not in cell["metadata"].get("tags", [])
    ]
    started = [
        (number, "".join(cell["source"]))
        for number, cell in enumerate(cells, 1)
        if cell["metadata"].get("papermill", {}).get("start_time")
    ]
    return started[-1] if started else (0, "")


def test(args) -> int:
    """Run the tests; then execute every lesson and compare its outputs with the stored ones."""
    report = ROOT / "build" / "test-notebooks.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadfile",
        f"--color={'yes' if sys.stdout.isatty() else 'no'}",
    ]
    steps = {"tests": [*pytest, *(["-m", "not slow"] if args.quick else [])]}
    if not args.quick:
        steps["notebooks"] = [
            *pytest,
            "--nbval",
            "--nbval-current-env",
            "--nbval-cell-timeout",
            "300",
            "--nbval-sanitize-with",
            ROOT / "tests" / "nbval_sanitize.cfg",
            "--junitxml",
            report,
            *find_lessons(args.notebooks),
        ]
    failed = []
    with child_environment() as env:
        # Two workers at once: each gets half of the cores, or their threads would fight over them.
        env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))
        for name, command in steps.items():
            print(f"\n== {name}")
            status = call(command, env)
            if status:  # 5 included: a step that found nothing to test has not passed
                failed.append(f"FAILED {name} (pytest ended with exit status {status})")
    for line in [*failed, *failed_cells(report)]:
        print(line)
    return 1 if failed else 0


def failed_cells(report: Path) -> list[str]:
    """A line for each notebook that failed, naming its first failing cell; numbers from 1, as `run` gives them."""
    cells = collections.defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else []:
        if case.find("failure") is not None or case.find("error") is not None:
            name = case.get("classname").removesuffix(".ipynb").split(".")[-1]
            cells[name].append(int(re.sub(r"\D", "", case.get("name")) or -1) + 1)
    return [
        f"FAILED {name}.ipynb cell {min(numbers)} (`Cell {min(numbers) - 1}` above: pytest counts from 0)"
        + (f", and {len(numbers) - 1} more of its cells" if numbers[1:] else "")
        for name, numbers in sorted(cells.items())
    ]


def lab(args) -> int:
    with child_environment() as env:
        return call([sys.executable, "-m", "jupyterlab", args.notebooks], env)


# ---- the command ------------------------------------------------------------------------------------------------

COMMANDS = {  # name: (function, or None while not yet built; modules it needs; its line in --help)
    "run": (run, ["papermill", "ipykernel", "tqdm", "torch"], "execute the lessons in order"),
    "test": (
        test,
        ["pytest", "xdist", "nbval", "ipykernel"],
        "run the tests and check the lessons' stored outputs",
    ),
    "lab": (lab, ["jupyterlab", "ipykernel"], "open the lessons in JupyterLab"),
    "site": (None, [], "build the course's web site"),
    "labs": (None, [], "build the graded exercises"),
}


def parse(argv: list[str]) -> argparse.Namespace:
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "--here", action="store_true", help="use the interpreter at hand; set nothing up"
    )
    builds = common.add_mutually_exclusive_group()
    for build, text in {"cpu": f"{CPU_SIZE}", "cuda": f"{CUDA_SIZE}; Linux"}.items():
        builds.add_argument(
            f"--{build}",
            dest="build",
            action="store_const",
            const=build,
            help=f"set up with the {build.upper()} build of torch ({text})",
        )
    common.add_argument(
        "--notebooks", type=Path, help=argparse.SUPPRESS
    )  # another folder of lessons, for tests
    parser = argparse.ArgumentParser(
        prog="course.py",
        parents=[common],
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(here=False, build=None, notebooks=ROOT / "notebooks")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parsers = {
        name: commands.add_parser(
            name, parents=[common], help=text + ("" if action else " (not yet built)")
        )
        for name, (action, _, text) in COMMANDS.items()
    }
    option = parsers["run"].add_argument
    option(
        "--only",
        nargs="+",
        action="extend",
        metavar="LESSON",
        help="lessons by number or name: 3, 03, 03_name",
    )
    option(
        "--quick", action="store_true", help="the smaller sizes that the lessons themselves name"
    )
    option("--device", choices=["auto", "cpu", "cuda", "mps"], help="set DEVICE in the lessons")
    option(
        "-p",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="set parameters of the lessons",
    )
    option(
        "--out",
        type=Path,
        default=ROOT / "build" / "executed",
        metavar="DIR",
        help="where executed notebooks go (default: build/executed)",
    )
    parsers["test"].add_argument(
        "--quick", action="store_true", help="leave out slow tests and the lessons"
    )
    args = parser.parse_args(argv)
    args.notebooks = args.notebooks.resolve()
    if args.command == "run":
        args.out = args.out.resolve()
    return args


def main(argv: list[str]) -> int:
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # in order with what children print; odd characters do not end us
        stream.reconfigure(errors="replace", line_buffering=True)
    args = parse(argv)
    action, modules, _ = COMMANDS[args.command]
    try:
        if action is None:
            raise Stop(f"course.py {args.command}: not yet built.", 2)
        if args.build == "cuda" and not sys.platform.startswith("linux"):
            raise Stop("--cuda is for Linux: PyPI has no CUDA build of torch for this system.", 2)
        if action is run:
            plan(args)  # a mistake is told before the minutes of a set-up
        if not args.here:
            enter_environment(args.build, argv)
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            raise Stop(
                f"{sys.executable} lacks {', '.join(missing)}: give it the course's packages "
                '(pip install -e ".[test]" -c constraints.txt) or leave out --here.',
                2,
            )
        return action(args)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return stop.status
    except OSError as error:
        print(
            f"{error}. Check the disk's space and this folder's permissions, {AGAIN}",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
