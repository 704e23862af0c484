#!/usr/bin/env python3
"""Sets up the course, runs its lessons, tests them and opens them. You need only Python to start
course.py. Everything else is installed by course.py itself.

    python3 course.py run  [--only 03 08] [--quick] [--labs] [--device auto] [-p NAME=VALUE ...]
                           [--out DIR] [--jobs N]
    python3 course.py test [--quick] [--site] [--style]
    python3 course.py test --device cuda [--only 03 08] [--jobs N]
    python3 course.py lesson NN [--text] [--lab]
    python3 course.py open [-- OPTIONS OF JUPYTERLAB]
    python3 course.py restore NN [--lab]
    python3 course.py labs start [02 ...] | check 02 | status | solution 02
    python3 course.py labs grade FOLDER --out marks.csv | project start | project check FILE
    python3 course.py labs handout FOLDER [--zip]
    python3 course.py site [--serve] [--port 8000]

Every command first makes the folder `.venv` if there is none, and renews this folder if
pyproject.toml or constraints.txt has changed. Then the command runs with the Python of `.venv`.
With `--here`, course.py installs nothing, and the command runs with the Python that you started
course.py with. Use `--here` with conda, on Colab, or on a GPU machine that is already prepared.

If the Python that you start course.py with already has torch, this torch is used. Otherwise `--cpu`
installs the CPU build of torch, and `--cuda` installs its CUDA build. If you give neither option, a
Linux machine with an NVIDIA driver gets the CUDA build, and every other machine gets a
build without CUDA.

Exit status: 0 if all went well; 1 if a lesson or a test failed, or if a file could not be read or
written; 2 if the command could not begin, for example because an option is wrong; 130 after Ctrl-C
or SIGTERM.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("The course needs Python 3.11 or newer; this is Python %d.%d." % sys.version_info[:2])

import argparse
import ast
import collections
import contextlib
import errno
import hashlib
import importlib.util
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import re
import shutil
import signal
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
# A set-up empties this file first and writes it last, so an empty file shows an interrupted set-up.
STAMP = VENV / "course.json"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_SIZE, CUDA_SIZE = "about 200 MB", "about 2.7 GB"  # of torch 2.13 and what it needs, on Linux
AGAIN = "then give the same command again."


class Stop(Exception):
    """Ends the command with a sentence for the user and an exit status, without a traceback."""

    def __init__(self, sentence: str, status: int = 2):
        super().__init__(sentence)
        self.status = status


class Terminated(KeyboardInterrupt):
    """SIGTERM. It is handled like Ctrl-C, but our child processes have not received it."""


def terminated(*_) -> None:
    """A handler of SIGTERM."""
    raise Terminated


# ---- the environment -----------------------------------------------------------------------------


def fingerprint() -> str:
    """A hash of everything that the environment depends on: the requirements, the pinned versions,
    and the path of this folder, because the editable install stores that path."""
    files = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*files, bytes(ROOT)])).hexdigest()


def read_stamp() -> dict | None:
    """What the last set-up wrote about itself. It is None if no set-up was ever begun in .venv,
    and it lacks the key "inputs" if a set-up was begun and not finished."""
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
    except ValueError:
        return {}
    except OSError:
        return None
    return stamp if isinstance(stamp, dict) else {}


def ask(python: str | Path, code: str) -> str | None:
    """What the interpreter `python` prints when it runs `code`. None if the code fails, or if the
    interpreter cannot be started, for example because its path is a dangling link."""
    with contextlib.suppress(OSError):
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=ROOT)
        return answer.stdout if answer.returncode == 0 else None


def is_ready(build: str | None) -> bool:
    """Whether .venv is finished, up to date, and has the build of torch that was asked for."""
    stamp = read_stamp() or {}
    if stamp.get("inputs") != fingerprint() or build not in (None, stamp["asked"], stamp["build"]):
        return False
    return ask(PYTHON, "") is not None


def importable_torch(python: str | Path) -> tuple[str, str] | None:
    """The version and the build ("cpu", "cuda" or "rocm") of the torch that the interpreter
    `python` can import. None if it cannot import torch."""
    # This is pip's name of the version: pip calls PyPI's CUDA wheel 2.13.0, and torch.__version__
    # calls the same wheel 2.13.0+cu130.
    answer = ask(
        python,
        "import torch as t; from importlib.metadata import version; print(version('torch'), "
        "'cuda' if t.version.cuda else 'rocm' if t.version.hip else 'cpu')",
    )
    return tuple(answer.split()[-2:]) if answer else None


def torch_to_keep(python: str, build: str | None) -> str | None:
    """The version of the torch that the interpreter `python` already has, if that torch can be
    kept: it is recent enough, and its build is the one that was asked for. None otherwise."""
    version, found = importable_torch(python) or ("0.0", None)
    minimum = re.search(r'"torch>=([\d.]+)', (ROOT / "pyproject.toml").read_text("utf-8"))[1]
    has, needs = ([int(part) for part in text.split(".")[:2]] for text in (version, minimum))
    return version if has >= needs and build in (None, found) else None


@contextlib.contextmanager
def only_one_set_up():
    """Hold the lock `.venv.lock`, so that only one process sets up the environment.

    The operating system frees the lock when the last process that holds it ends, so the lock is
    never stale. On POSIX systems pip inherits the lock. If this process alone is killed, the pip
    that it started therefore still keeps other set-ups out.
    """
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


def pip_install(*arguments, advice="If it speaks of connections or versions, check the network,"):
    """Run `pip install` in .venv. A terminal shows the line that pip prints at the moment. If pip
    fails, the message holds the last lines that it printed, and `advice`.

    pip is told not to compile what it installs, which saves half a minute, because most of these
    files are never imported and Python compiles the others when they are.
    """
    command = [PYTHON, "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]
    command += ["--no-compile", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    text = {"encoding": "utf-8", "errors": "replace"}
    tail = collections.deque(maxlen=15)
    with subprocess.Popen(command, cwd=ROOT, close_fds=False, **pipes, **text) as process:
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
    if process.returncode == 0:
        return
    if any("No space left" in line for line in tail):
        advice = "The disk is full: make room (3 GB with the CPU build of torch, 10 GB with CUDA),"
    raise Stop("\n".join([*tail, f"pip failed. {advice} {AGAIN}"]), 1)


def torch_arguments(pin: str, build: str | None) -> list[str]:
    """The arguments of `pip install` that bring the right build of torch. pip is first asked which
    packages it would install here, because the user's configuration may name another index."""
    if not sys.platform.startswith("linux"):
        return [pin]  # PyPI's wheels for macOS and Windows are CPU (and MPS) builds
    report = VENV / "torch.json"
    pip_install("--dry-run", "--quiet", "--report", report, pin)
    names = [item["metadata"]["name"] for item in json.loads(report.read_text("utf-8"))["install"]]
    if not any(name.startswith(("nvidia-", "cuda-")) for name in names):
        return [pin]
    driver = shutil.which("nvidia-smi") or Path("/proc/driver/nvidia").exists()
    if build == "cuda" or build is None and driver:
        print(f"  the CUDA build of torch is {CUDA_SIZE} to download; --cpu: {CPU_SIZE}")
        return [pin]
    # +cpu is spelt out, so that pip fails if it cannot reach the index of the CPU builds. Otherwise
    # it would silently download the CUDA build from the usual index.
    return [f"{pin}+cpu", "--extra-index-url", CPU_INDEX, "--retries", "2"]


def make_venv(base: str) -> None:
    """Make an empty .venv with the interpreter `base`, in place of an older one."""
    print(f"Setting up {VENV} (once; a few minutes)")
    if VENV.exists():  # moved in one step, because a half-removed folder could pass for a good one
        shutil.rmtree(OLD_VENV, ignore_errors=True)
        VENV.rename(OLD_VENV)
    VENV.mkdir()
    STAMP.write_text("{}")
    # The child inherits the lock of `only_one_set_up`, as pip does.
    pipes = {"capture_output": True, "text": True, "close_fds": False}
    made = subprocess.run([base, "-m", "venv", VENV], **pipes)
    shutil.rmtree(OLD_VENV, ignore_errors=True)
    if made.returncode:
        advice = "On Debian and Ubuntu install python3-venv; else look at the disk's space;"
        told = f"{made.stdout}{made.stderr}\n{base} could not make {VENV}."
        raise Stop(f"{told} {advice} {AGAIN}", 1)


def set_up(build: str | None) -> None:
    """Make or renew .venv. If this is interrupted, the stamp stays empty, and the next call begins
    from the start."""
    base = sys._base_executable if INSIDE else sys.executable
    stamp = read_stamp()
    build = build or (stamp or {}).get("asked")
    if stamp is None and ask(PYTHON, "") is not None:
        print(f"Adding the course to {VENV}, which was made by hand")  # and is never removed
        base = str(PYTHON)
        subprocess.run([base, "-m", "ensurepip"], capture_output=True)  # some tools leave pip out
    elif stamp and stamp["asked"] == build and ask(PYTHON, "") is not None:
        print(f"Renewing {VENV}: what it is made from has changed")
        base = stamp["base"]
        STAMP.write_text("{}")
    else:
        make_venv(base)

    pip_install("pip>=23.3")  # before 23.3 a --dry-run downloads the wheels it only reports
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    kept = torch_to_keep(base, build)
    if kept:
        print(f"  keeping torch {kept} of {base}")
        folders = ask(base, "import sys; print(*sys.path, sep='\\n')").splitlines(keepends=True)
        packages = [folder for folder in folders if folder.rstrip().endswith("-packages")]
        site_packages = next(VENV.glob("[Ll]ib/**/site-packages"))
        (site_packages / "starting_interpreter.pth").write_text("".join(packages))
    else:
        arguments = torch_arguments(re.search(r"^torch==\S+", constraints, re.M)[0], build)
        print(f"  installing {arguments[0]}")
        more = f" ({CPU_INDEX}), or add --cuda to accept the CUDA build ({CUDA_SIZE})"
        pip_install(*arguments, advice=f"Check the network{more if arguments[1:] else ''},")
    version, found = importable_torch(PYTHON) or (None, None)
    if not version:
        raise Stop(f"torch in {VENV} cannot be imported: try another version of Python.", 1)
    # The other packages are installed with this torch as a constraint, because pip could otherwise
    # replace it by another build.
    held = VENV / "constraints.txt"
    held.write_text(re.sub(r"^torch==\S+", f"torch=={version}", constraints, flags=re.M), "utf-8")
    print("  installing the course and its other packages")
    pip_install("-e", ".[test,docs]", "-c", held)

    draft = STAMP.with_suffix(".draft")
    stamp = {"inputs": fingerprint(), "asked": build, "build": found, "base": base}
    draft.write_text(json.dumps(stamp))
    os.replace(draft, STAMP)
    name = {"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm"}[found]
    print(f"torch {version.split('+')[0]} ({name} build{', kept' if kept else ''}) in {VENV.name}")


def enter_environment(build: str | None, argv: list[str]) -> None:
    """Make sure that .venv is ready, and run the same command with the interpreter of .venv. The
    function returns only if this process already runs inside .venv."""
    if not is_ready(build):
        with only_one_set_up():
            if not is_ready(build):  # another process may have set it up while we waited
                set_up(build)
    if INSIDE:
        return
    # --here comes first, because options after a `--` among the arguments are not ours.
    command = [str(PYTHON), str(ROOT / "course.py"), "--here", *argv]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each kernel would compile all packages
    if os.name == "nt":
        sys.exit(call(command, None))
    sys.stdout.flush()
    os.execv(PYTHON, command)


def call(command: list, env: dict | None, cwd: Path | None = ROOT) -> int:
    """Run a command and return its exit status. Ctrl-C reaches the child as well, and SIGTERM is
    passed on to it. The child decides what to do about it, and we wait until the child has ended.
    """
    process = subprocess.Popen([str(part) for part in command], cwd=cwd, env=env)
    interrupted = False
    while process.poll() is None:
        try:
            process.wait()
        except KeyboardInterrupt as interrupt:
            interrupted = True
            if isinstance(interrupt, Terminated):
                process.terminate()
    if interrupted:
        raise KeyboardInterrupt
    return process.returncode


@contextlib.contextmanager
def child_environment():
    """The environment variables for notebooks and for JupyterLab.

    With them a notebook finds `mlm_lib` even if the package is not installed. JupyterLab gets the
    course's settings from `.jupyter`, and the user's own settings take precedence. The kernel
    `python3` is this interpreter: the user's folder may hold another kernel of that name, but
    Jupyter looks into the folders of JUPYTER_PATH first.
    """
    # The log level hides two warnings of ipykernel: one about unencrypted local sockets in each
    # lesson, and a long one after Ctrl-C.
    launcher = ["-m", "ipykernel_launcher", "--log-level=CRITICAL", "-f", "{connection_file}"]
    spec = {"argv": [sys.executable, *launcher], "language": "python"}
    spec |= {"display_name": "Python 3 (ipykernel)", "metadata": {"debugger": True}}
    env = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "kernels", "python3")
        kernel.mkdir(parents=True)
        (kernel / "kernel.json").write_text(json.dumps(spec))
        settings = str(ROOT / ".jupyter")
        ours = {"JUPYTER_PATH": folder, "JUPYTER_CONFIG_PATH": settings, "PYTHONPATH": str(ROOT)}
        for name, first in ours.items():
            env[name] = os.pathsep.join(filter(None, [first, os.environ.get(name)]))
        yield env


@contextlib.contextmanager
def own_temporary_folder(env: dict):
    """The environment variables `env` with a folder for temporary files that is removed at the end,
    because torchrun, and programs that are killed, leave files behind."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield env | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)


@contextlib.contextmanager
def inherited_by_children(env: dict):
    """Within this context the processes that `multiprocessing` starts have the variables `env`."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent from macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def idle_cores(seconds: float = 0.3) -> int:
    """The number of cores that other programs leave idle at this moment, and at least 1. Systems
    other than Linux do not tell, and then all usable cores are counted.

    More threads than idle cores are slow, because at each operation of torch the threads that have
    a core wait for the thread that has none. Measured was a small training step on two cores:

    ============================  ===========  ==========
    other programs                two threads  one thread
    ============================  ===========  ==========
    none                          30 ms        48 ms
    one that keeps a core busy    109 ms       48 ms
    two that keep a core busy     127 ms       73 ms
    ============================  ===========  ==========
    """

    def spent() -> tuple[int, int]:
        """The ticks that all cores have been idle since the start of the machine, and all ticks."""
        # The first line holds "cpu", then the ticks of user, nice, system, idle, iowait, …
        ticks = [int(field) for field in stat.read_text().splitlines()[0].split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    stat, cores = Path("/proc/stat"), usable_cores()
    try:
        idle, whole = spent()
        time.sleep(seconds)
        idle, whole = (after - before for after, before in zip(spent(), (idle, whole)))
    except (OSError, ValueError):
        return cores
    return max(1, min(cores, round((os.cpu_count() or 1) * idle / max(1, whole))))


# ---- the lessons ---------------------------------------------------------------------------------


def find_lessons(folder: Path, only: list[str] | None = None) -> list[Path]:
    """The files of all lessons in order, or of the lessons in `only`, which are given by number (3
    or 03) or by name (03_labels)."""
    lessons = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not lessons:
        raise Stop(f"There are no lessons (NN_name.ipynb) in {folder}.")
    if only is None:
        return lessons
    chosen = set()
    for name in only:
        stem = name.removesuffix(".ipynb")
        number = int(stem) if stem.isdecimal() else None
        found = [p for p in lessons if p.stem == stem or int(p.stem[:2]) == number]
        if not found:
            stems = ", ".join(p.stem for p in lessons)
            raise Stop(f"There is no lesson {name}. The lessons: {stems}.")
        chosen.update(found)
    return sorted(chosen)


def find_labs(folder: Path, only: str | None = None, solved: bool = False) -> list[Path]:
    """The files of all labs in order, or the lab `only`, which is given as a lesson is. `folder` is
    the folder of the lessons. The folder of a class has the students' editions in place of the
    labs with our solutions, and no labs that are `solved`."""
    classroom = folder.parent / "classroom"
    labs = sorted((classroom / "solutions").glob("*_lab.ipynb"))
    if not labs and not solved:
        labs = sorted((classroom / "labs").glob("*_lab.ipynb"))
    if only is None:
        return labs
    stem = only.removesuffix(".ipynb")
    key = stem.zfill(2) if stem.isdecimal() else stem
    found = [lab for lab in labs if key in (lab.stem, lab.stem.split("_")[0])]
    if not found:
        stems = ", ".join(lab.stem for lab in labs) or "none, your teacher hands them out"
        raise Stop(f"There is no lab {only}. The labs: {stems}.")
    return found


def read_parameters(lesson: Path) -> tuple[set[str], dict]:
    """The names that a lesson's cell with the tag `parameters` sets, and the smaller sizes for
    --quick, which stand in the notebook's metadata."""
    names = set()
    try:
        notebook = json.loads(lesson.read_text("utf-8"))
        for cell in notebook["cells"]:
            if "parameters" in cell["metadata"].get("tags", []):
                for node in ast.parse("".join(cell["source"])).body:
                    targets = getattr(node, "targets", [getattr(node, "target", None)])
                    names |= {target.id for target in targets if isinstance(target, ast.Name)}
        quick = notebook["metadata"].get("mlm_course", {}).get("quick", {})
    except (ValueError, KeyError, SyntaxError) as error:
        what = f"{type(error).__name__}: {error}"
        raise Stop(f"{lesson.name} cannot be read as a lesson: {what}") from None
    stray = ", ".join(sorted(set(quick) - names))
    if stray:
        told = f"{lesson.name}: its metadata gives {stray} for --quick"
        raise Stop(f"{told}, which its parameters cell does not set.")
    return names, quick


def parse_assignments(items: list[str]) -> dict:
    """The values of `-p NAME=VALUE`. VALUE is read as a Python literal if it is one, and as a
    string otherwise. A tuple becomes a list.

    A value that the lesson would receive as something else is refused. papermill writes the values
    into a cell, and as JSON into the notebook's metadata, and JSON has for example no dictionaries
    whose keys are numbers.
    """
    values = {}
    for item in items:
        name, _, text = item.partition("=")
        if not (name.isidentifier() and text):
            raise Stop(f"-p takes NAME=VALUE, not {item!r}; an empty text is NAME=''.")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = text
        if isinstance(value, tuple):
            value = list(value)
        try:
            encoded = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
            arrives = json.loads(encoded) == value
        except (TypeError, ValueError, RecursionError):
            arrives = False
        if not arrives:
            told = f"-p {name}={ascii(text)[1:-1]} cannot be passed to a lesson unchanged"
            kinds = "finite numbers, text, True, False, None, and lists or {'text': ...} of these"
            raise Stop(f"{told}; what can: {kinds}.")
        values[name] = value
    return values


def plan(args) -> list[tuple[Path, dict]]:
    """The lessons to run, each with the values of its parameters. A mistake in the request is
    reported here, before anything runs."""
    given = parse_assignments(args.p) | ({"DEVICE": args.device} if args.device else {})
    lessons = find_lessons(args.notebooks, args.only)
    if args.labs:
        numbers = {lesson.name[:2] for lesson in lessons}
        labs = find_labs(args.notebooks, solved=True)
        if not labs and args.command == "run":
            raise Stop("--labs runs the labs with our solutions, and this folder has none.")
        lessons += [lab for lab in labs if not args.only or lab.name[:2] in numbers]
    if args.out == args.notebooks:
        raise Stop(f"--out {args.out} is where the lessons themselves are; choose another folder.")
    if args.out.exists() and not args.out.is_dir():
        raise Stop(f"--out {args.out} is a file; choose a folder.")
    for target in filter(Path.exists, [args.out / lesson.name for lesson in lessons]):
        if not made_here(target):
            told = f"{target} was not made by this command, which would write over it"
            raise Stop(f"{told}; choose another --out.")
    planned, known = [], set()
    for lesson in lessons:
        names, quick = read_parameters(lesson)
        known |= names
        values = {name: value for name, value in given.items() if name in names}
        planned.append((lesson, (quick if args.quick else {}) | values))
    unknown = ", ".join(sorted(set(given) - known))
    if unknown:
        known = ", ".join(sorted(known)) or "none"
        raise Stop(f"No selected lesson has a parameter {unknown}. They have: {known}.")
    return planned


def made_here(notebook: Path) -> bool:
    """Whether papermill wrote this notebook. papermill marks its notebooks in their metadata."""
    try:
        return "papermill" in json.loads(notebook.read_text("utf-8"))["metadata"]
    except (OSError, ValueError, LookupError, TypeError):
        return False


def check_device(name: str) -> None:
    """Raises Stop if this machine does not have the device."""
    import torch

    try:
        torch.empty(1, device=name).cpu()  # also finds out that there is no cuda:3; "meta" fails
    except (RuntimeError, AssertionError):
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        present = ", ".join(["auto", "cpu", *(kind for kind in there if there[kind])])
        raise Stop(f"There is no device {name} here. Devices: {present}.") from None


def run(args) -> int:
    """Run every lesson, several of them at once, and print a table at the end. A lesson that fails
    does not stop the others."""
    lessons = plan(args)
    for device in {str(values["DEVICE"]) for _, values in lessons if "DEVICE" in values} - {"auto"}:
        check_device(device)
    rows, begun = {}, time.perf_counter()

    def row(lesson: Path, failure: list[str], seconds: float) -> list[str]:
        result = "FAILED" if failure else "ok"
        rows[lesson] = f"{lesson.stem:<36}{seconds:>9.1f}  {result}"
        return [*failure, rows[lesson]]

    run_with_a_bar(args, lessons, row)
    table = [rows[lesson] for lesson, _ in lessons]
    print("", f"{'lesson':<36}{'seconds':>9}  result", *table, "", sep="\n")
    failures = sum(row.endswith("FAILED") for row in table)
    whole = f"{len(table) - failures} of {len(table)} lessons ran to their end"
    print(f"{whole} in {time.perf_counter() - begun:.0f} s. Executed notebooks: {args.out}")
    return 1 if failures else 0


def run_with_a_bar(args, lessons: list, report) -> None:
    """Execute the lessons under a progress bar. When a lesson has ended, call `report` with the
    lesson, the lines of its failure and its seconds, and print the lines that `report` returns."""
    from tqdm import tqdm

    args.out.mkdir(parents=True, exist_ok=True)
    idle = idle_cores()
    jobs = args.jobs or min(idle, 4)
    # disable=None shows a bar on a terminal. Elsewhere a line is printed when a lesson starts.
    bar = tqdm(total=len(lessons), unit="lesson", disable=None)
    with child_environment() as shared, own_temporary_folder(shared) as env, bar:
        env.setdefault("OMP_NUM_THREADS", str(max(1, idle // min(jobs, len(lessons)))))
        with inherited_by_children(env):
            for ended in run_at_once(jobs, lessons, args.out, args.limit, bar):
                bar.update()
                lines = report(*ended)
                with tqdm.external_write_mode():
                    print(*lines, sep="\n")


def run_at_once(jobs: int, lessons: list, out: Path, limit: int, bar):
    """Execute up to `jobs` lessons at once. When a lesson ends, yield the lesson, the lines of its
    failure and its seconds. Each lesson has its own process, because papermill changes the current
    folder, which all threads of a process share."""
    waiting, running = list(reversed(lessons)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                lesson, values = waiting.pop()
                if bar.disable:
                    print(f"{lesson.stem} ({len(lessons) - len(waiting)} of {len(lessons)})")
                answer, pipe = multiprocessing.Pipe(duplex=False)
                told = pipe, lesson, values, out / lesson.name, limit
                process = multiprocessing.get_context("spawn").Process(target=tell, args=told)
                process.start()
                pipe.close()  # so that `recv` raises EOFError if the process is killed
                running[answer] = process, lesson, time.perf_counter()
            bar.set_description(", ".join(lesson.stem for _, lesson, _ in running.values()))
            for answer in multiprocessing.connection.wait(list(running)):
                process, lesson, started = running.pop(answer)
                try:
                    failure = answer.recv()
                except EOFError:
                    failure = ["", f"FAILED {lesson.name}: its process was killed", ""]
                process.join()
                yield lesson, failure, time.perf_counter() - started
    except KeyboardInterrupt:
        for process, _, _ in running.values():
            # Ctrl-C in a terminal reaches the children as well. A signal that somebody sent to this
            # process alone does not, so it is passed on.
            process.join(2)
            if process.is_alive() and os.name != "nt":
                os.kill(process.pid, signal.SIGINT)
            process.join(20)
        raise


def tell(pipe, *told) -> None:
    """Call `run_lesson` in a process of its own, and send what it returns through the pipe."""
    with contextlib.suppress(KeyboardInterrupt):  # `run_lesson` has already reported it
        pipe.send(run_lesson(*told))


def run_lesson(lesson: Path, values: dict, target: Path, limit: int) -> list[str]:
    """Execute one notebook. Returns the lines that describe its failure, and an empty list if the
    notebook ran to its end."""
    import papermill

    how = {"kernel_name": "python3", "language": "python", "cwd": lesson.parent}
    try:
        target.unlink(missing_ok=True)  # else a failure would be looked up in an earlier run's file
        papermill.execute_notebook(
            lesson, target, values, progress_bar=False, execution_timeout=limit, **how
        )
        return []
    except KeyboardInterrupt:
        # The kernel ends as well, and asyncio would print a traceback if nobody asks for its end.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        print(f"\nStopped in {lesson.name}; what ran of it is in {target}")
        raise
    except papermill.PapermillExecutionError as error:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).splitlines()
        lines = [line for line in trace if re.match(r"-+> *\d+", line)][-1:]
        message = "\n".join([*lines, f"{error.ename}: {error.evalue}"])
    except TimeoutError:
        message = f"This cell ran longer than {limit} seconds; --cell-timeout SECONDS allows more."
    except OSError as error:
        message = disk_trouble(error, target.parent)
    except Exception as error:  # for example a kernel that died, or a file that is not a notebook
        message = f"{type(error).__name__}: {error}"
    cell, source = last_cell_started(target)
    where = f" cell {cell}" if cell else ""
    told = [f"| {line}" for line in source.splitlines()] + message.splitlines()
    if cell is not None:
        told.append(f"what ran of it is in {target}")
    elif target.is_file():
        target.unlink()  # the file is incomplete, for example because the disk is full
    return ["", f"FAILED {lesson.name}{where}", *(f"    {line}" for line in told), ""]


def disk_trouble(error: OSError, folder: Path) -> str:
    """The sentence that reports an OSError, with what to do if the disk is full."""
    full = error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None))
    told = f"The disk is full ({error.strerror})" if full else f"{error}"
    return f"{told}. Check the disk's space and {folder}'s permissions, {AGAIN}"


def last_cell_started(executed: Path) -> tuple[int | None, str]:
    """The number and the source of the last cell that papermill began to execute. The lesson's code
    cells are counted from 1. The number is 0 if papermill began no cell, and None if the executed
    notebook cannot be read."""
    try:
        cells = json.loads(executed.read_text("utf-8"))["cells"]
    except (OSError, ValueError):
        return None, ""
    number, last = 0, (0, "")
    for cell in cells:
        ours = "injected-parameters" not in cell["metadata"].get("tags", [])
        if ours and cell["cell_type"] == "code":
            number += 1
            if cell["metadata"].get("papermill", {}).get("start_time"):
                last = number, "".join(cell["source"])
    return last


# ---- the tests -----------------------------------------------------------------------------------

STYLE = ROOT / "tools" / "notebook_style.py"
SEEDED = str(ROOT / "tools" / "seeded_cells.py")
CPU_ONLY = str(ROOT / "tools" / "cpu_only.py")
COMPARED = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "300"]
COMPARED += ["--nbval-sanitize-with", ROOT / "tools" / "nbval_sanitize.cfg"]


@contextlib.contextmanager
def cpu_environment():
    """`child_environment` in which torch finds no GPU, because the stored outputs were computed on
    a CPU. These variables hide the devices of CUDA, ROCm and XPU from all child processes. No
    variable hides Apple's MPS. Therefore each kernel runs at its start the file
    `tools/cpu_only.py`, which hides MPS, and so does tests/conftest.py."""
    with child_environment() as env:
        hidden = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
        hidden |= {"ONEAPI_DEVICE_SELECTOR": "opencl:cpu"}
        yield env | hidden | {"PYTHONSTARTUP": CPU_ONLY}


def test(args) -> int:
    """Run `test_on_the_cpu`, or compare the lessons on another device where one is asked for."""
    return test_on_a_device(args) if args.device else test_on_the_cpu(args)


def test_on_a_device(args) -> int:
    """Execute every lesson and lab on a device and compare what they print with what is stored.
    Labs have no parameter DEVICE, because in a lab `train` chooses the GPU by itself. The last
    lines are like those of `test_on_the_cpu`: each lesson is a step, and each of its cells is a
    check."""
    lessons = plan(args)
    check_device(args.device)
    sys.path.insert(0, str(ROOT / "tools"))
    from compare_outputs import Unreadable, compare

    failed, rows, total = [], {}, collections.Counter()

    def row(lesson: Path, failure: list[str], seconds: float) -> list[str]:
        outcomes, lines = ["failed"], failure
        if not failure:
            try:
                outcomes, lines = compare(lesson, args.out / lesson.name)
            except Unreadable as refused:
                lines = [f"FAILED {refused}"]
        counts = collections.Counter(outcomes)
        total.update(counts)
        failed.extend(line for line in lines if line.startswith("FAILED "))
        rows[lesson] = f"{lesson.stem:<24}{in_counts(counts)} in {seconds:.0f} s"
        return [*lines, rows[lesson]]

    run_with_a_bar(args, lessons, row)
    print("", *failed, *(rows[lesson] for lesson, _ in lessons), in_counts(total), sep="\n")
    return 1 if failed else 0


def test_on_the_cpu(args) -> int:
    """Check the form of the sources, run the tests, execute every lesson and compare its outputs
    with the stored ones. At the end print what failed, a line for each step, and the total."""
    # Each worker gets its share of the cores, because more threads than cores slow each other down.
    # A worker takes whole files (loadfile), and the long ones first: the last lessons train models,
    # and tests/conftest.py puts test files with slow tests before the others.
    cores = usable_cores()
    workers = min(cores, 4)
    pytest = [sys.executable, "-m", "pytest", "-n", workers, "--dist", "loadfile"]
    pytest += ["--no-loadscope-reorder", f"--color={'yes' if sys.stdout.isatty() else 'no'}"]
    left_out = {"not slow": args.quick, "not site": not args.site}
    marks = " and ".join(mark for mark, holds in left_out.items() if holds)
    steps = {
        "size": [sys.executable, ROOT / "tools" / "code_size.py"],
        "format": [sys.executable, "-m", "ruff", "format", "--check", "--no-cache"],
        "lint": [sys.executable, "-m", "ruff", "check", "--no-cache"],
        "tests": [*pytest, *(["-m", marks] if marks else [])],
    }
    if args.style:
        steps["style"] = [sys.executable, STYLE, *find_lessons(args.notebooks)]
    if not args.quick:
        lessons = reversed(find_lessons(args.notebooks))
        steps["notebooks"] = [*pytest, *COMPARED, *lessons, *find_labs(args.notebooks, solved=True)]
    failed, rows, total = [], [], collections.Counter()
    with cpu_environment() as env:
        env.setdefault("OMP_NUM_THREADS", str(cores // workers))
        for name, command in steps.items():
            print(f"\n== {name}")
            report = ROOT / "build" / f"test-{name}.xml"
            report.parent.mkdir(exist_ok=True)
            report.unlink(missing_ok=True)
            own = contextlib.nullcontext(env)
            if name == "notebooks":  # a cell that draws unseeded prints a line that is not stored
                own = own_temporary_folder(env | {"PYTHONSTARTUP": SEEDED})
            command = [*command, *(["--junitxml", report] if "pytest" in command else [])]
            started = time.perf_counter()
            with own as variables:
                status = call(command, variables)
            seconds = time.perf_counter() - started
            cases = read_report(report)
            counts = collections.Counter(outcome for outcome, _, _ in cases)
            if status:  # also for status 5: a step that found nothing to test has not passed
                program = command[2] if command[1] == "-m" else command[1].name
                failed.append(f"FAILED {name} ({program} ended with exit status {status})")
                counts["failed"] = counts["failed"] or 1
            elif not cases:
                counts["passed"] = 1  # a step without pytest counts as one check
            failed += failures(cases)
            rows.append(f"{name:<11}{in_counts(counts)} in {seconds:.0f} s")
            total += counts
    print("", *failed, *rows, in_counts(total), sep="\n")
    return 1 if failed else 0


def in_counts(counts: collections.Counter) -> str:
    """The counts as text, for example "12 passed, 0 failed, 3 skipped"."""
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


def read_report(report: Path) -> list[tuple[str, str, str]]:
    """The outcome, the module and the name of each test in a JUnit report of pytest. The list is
    empty if there is no complete report."""
    cases = []
    with contextlib.suppress(OSError, ElementTree.ParseError):
        for case in ElementTree.parse(report).iter("testcase"):
            tags = {part.tag for part in case}
            outcome = "skipped" if "skipped" in tags else "passed"
            outcome = "failed" if tags & {"failure", "error"} else outcome
            cases.append((outcome, case.get("classname"), case.get("name")))
    return cases


def failures(cases: list[tuple[str, str, str]]) -> list[str]:
    """A line for each test that failed, which holds the name to give to pytest. A notebook gets one
    line: its first failing cell, counted from 1 as `run` counts, and how many other cells
    failed."""
    lines, cells = [], collections.defaultdict(list)
    for _, module, name in (case for case in cases if case[0] == "failed"):
        if module.endswith(".ipynb"):
            cells[module.removesuffix(".ipynb").split(".")[-1]].append(int(name.split()[-1]))
        else:
            # There is no module if pytest could not read the file.
            where = f"{module.replace('.', '/')}.py::" if module else ""
            lines.append(f"FAILED {where}{name}")
    for lesson, (first, *others) in sorted((name, sorted(cells[name])) for name in cells):
        more = f", and {len(others)} more of its cells" if others else ""
        above = f"`Cell {first}` above: pytest counts from 0"
        lines.append(f"FAILED {lesson}.ipynb cell {first + 1} ({above}){more}")
    return lines


def lesson(args) -> int:
    """With --text, write a lesson as a text file to edit. Without it, execute the edited text if it
    is newer than the lesson, and otherwise the lesson. Store what was executed as the lesson, and
    test and compare it. The stored lesson stays as it was if a cell fails."""
    path = lesson_or_lab(args)
    draft = ROOT / "build" / "lessons" / f"{path.stem}.py"
    copy = draft.with_suffix(".ipynb")
    draft.parent.mkdir(parents=True, exist_ok=True)
    python = [sys.executable, "-m"]
    steps = {}
    if args.text:
        steps["text"] = [*python, "jupytext", "--to", "py:percent", "--output", draft, path]
        # They are written again when the lesson is stored.
        steps["links"] = [sys.executable, ROOT / "tools" / "glossary_links.py", draft]
    else:
        shutil.copyfile(path, copy)
        if draft.exists() and draft.stat().st_mtime <= path.stat().st_mtime:
            # This is so after each store, but also if git has written a newer notebook meanwhile.
            print(
                f"{draft} is older than {path.name}, so it is not used: if it holds an edit that "
                "is not yet stored, move it away, write the text again with --text, and repeat "
                "the edit there."
            )
        elif draft.exists():
            back = ["jupytext", "--update", "--to", "ipynb", "--output", copy]
            steps["text"] = [*python, *back, draft]
        steps["execute"] = [sys.executable, ROOT / "tools" / "execute_notebook.py", copy, path]
        tests = ["test_labs.py"] if args.lab else ["test_notebooks.py", "test_lesson_numbers.py"]
        tests = [ROOT / "tests" / "course" / name for name in tests]
        word = args.number if args.lab else path.stem
        steps["tests"] = [*python, "pytest", "-q", *tests, "-k", word]
        steps["compare"] = [*python, "pytest", "-q", *COMPARED, path]
    with cpu_environment() as shared, own_temporary_folder(shared) as env:
        for name, command in steps.items():
            print(f"\n== {name}")
            more = {"PYTHONSTARTUP": SEEDED} if name == "compare" else {}
            status = call(command, {**env, **more})
            if status:
                print(f"FAILED {name} of {path.name} (exit status {status})")
                return 1
        if not args.text and not args.lab:
            call([sys.executable, STYLE, path], env)  # remarks only
    again = f"course.py lesson {args.number}{' --lab' if args.lab else ''}"
    print(
        f"Edit {draft}, then: {again}" if args.text else f"{path} is executed, stored and tested."
    )
    return 0


def lesson_or_lab(args) -> Path:
    """The file of the lesson with the given number or name, or with --lab of its lab."""
    find = find_labs if args.lab else lambda folder, name: find_lessons(folder, [name])
    (path,) = find(args.notebooks, args.number)
    return path


def open_lessons(args) -> int:
    """Open the reader's own copies of the lessons in JupyterLab, and hand on the options that are
    meant for JupyterLab. Copies that are missing are made before."""
    sys.path.insert(0, str(ROOT))
    from classroom import work

    course, options = args.notebooks.parent, args.passed_on
    sources = [*find_lessons(args.notebooks), *find_labs(args.notebooks)]
    for sentence in work.prepare(sources, course):
        print(sentence)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root and not any(option.startswith("--allow-root") for option in options):
        print("You are root, whom JupyterLab serves only with --allow-root: it is added.")
        options = ["--allow-root", *options]
    # The copies' links lead to docs/, so JupyterLab serves the whole course.
    place = [f"--ServerApp.root_dir={course}", "--LabApp.default_url=/lab/tree/work"]
    with child_environment() as env:
        # JupyterLab remembers its open tabs in this folder, apart from the user's other tabs.
        env.setdefault("JUPYTERLAB_WORKSPACES_DIR", str(ROOT / "build" / "jupyterlab"))
        try:
            return call([sys.executable, "-m", "jupyterlab", *place, *options], env)
        except KeyboardInterrupt:  # this is how one ends JupyterLab, so nothing was cut off
            print("\nJupyterLab has ended. What you saved is in work/.")
            return 130


def restore(args) -> int:
    """Put a fresh copy of a lesson or of a lab into `work/`, and keep the reader's older copy."""
    sys.path.insert(0, str(ROOT))
    from classroom import work
    from classroom.lab import Refused

    try:
        print(work.restore(lesson_or_lab(args), args.notebooks.parent))
    except Refused as refused:
        raise Stop(f"{refused}.", 1) from None
    return 0


def parse_labs(argv: list[str]) -> None:
    """Read the arguments of `labs`, so that a mistake in them is reported before a set-up."""
    sys.path.insert(0, str(ROOT))
    from classroom.__main__ import parse

    parse(argv)


def labs(args) -> int:
    """Run `python -m classroom` in the user's current folder, to which the given paths refer."""
    with child_environment() as env, contextlib.suppress(KeyboardInterrupt):  # it is told there
        return call([sys.executable, "-m", "classroom", *args.passed_on], env, cwd=None)
    return 130


# ---- the site ------------------------------------------------------------------------------------


def site(args) -> int:
    """Build the site into build/site, and with --serve show it until Ctrl-C."""
    folder = ROOT / "build" / "site"
    with listen(folder, args.port) if args.serve else contextlib.nullcontext() as server:
        with child_environment() as env:
            status = call(
                [sys.executable, ROOT / "docs" / "site" / "build.py", "--out", folder], env
            )
        if status == 0 and server:
            print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)")
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
    return status


def listen(folder: Path, port: int):
    """A web server of a folder, which only this machine can reach."""
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Handler(SimpleHTTPRequestHandler):
        # These types are given here, because on some Windows systems the registry says that a
        # script is plain text, which a browser would not run.
        extensions_map = SimpleHTTPRequestHandler.extensions_map | {
            ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
            ".html": "text/html", ".json": "application/json", ".wasm": "application/wasm",
        }  # fmt: skip

        def log_message(self, *_):
            pass

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=folder))
    except OSError as error:
        told = f"Port {port} of this machine cannot be had ({error.strerror})"
        raise Stop(f"{told}; choose another, such as --port 0.") from None


# ---- the command ---------------------------------------------------------------------------------

SITE_MODULES = ["sphinx", "myst_nb", "furo", "nbconvert", "onnxscript", "onnxruntime"]
TEST_MODULES = ["ruff", "pytest", "xdist", "nbval", "papermill", "ipykernel", *SITE_MODULES]
COMMANDS = {  # name: (function, modules it needs, its line in --help)
    "run": (
        run,
        ["papermill", "ipykernel", "tqdm", "torch"],
        "execute the lessons in order, and keep the executed notebooks",
    ),
    "test": (
        test,
        TEST_MODULES,
        "run all tests, execute the lessons, and compare their new outputs with the stored ones",
    ),
    "lesson": (
        lesson,
        ["jupytext", "nbclient", "pytest", "nbval"],
        "for authors of lessons. With --text, convert the notebook of a lesson into a text file "
        "that you can edit. Without --text, execute the edited text, test it, and store it",
    ),
    "open": (
        open_lessons,
        ["jupyterlab", "ipykernel", "filelock"],
        "open your own copies of the lessons and labs in JupyterLab. Options after -- are passed "
        "to JupyterLab",
    ),
    "restore": (
        restore,
        ["filelock"],
        "get a fresh copy of a lesson or a lab. The copy that you have changed is kept beside it",
    ),
    "site": (site, SITE_MODULES, "build the web site of the course in the folder build/site"),
    "labs": (
        labs,
        ["torch", "psutil", "tqdm"],
        "get a lab, check your answers, or mark the labs that a class has handed in",
    ),
}
OLD_NAMES = {"lab": "open"}  # an earlier name of a command, which is still taken
# Commands that the folder of a class cannot run, and what they need of the whole course.
FOR_AUTHORS = {lesson: ROOT / "tests" / "course", site: ROOT / "docs" / "labs.md"}
PASS_ON = ("open", "labs")  # commands that hand options which are not ours to another program


def whole_number(least: int, most: int = 10**6):
    """A type for an option of argparse: a whole number from `least` to `most`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}; a number from {least} to {most} is needed")
        return int(text)

    return number


def folder(text: str) -> Path:
    """A type for an option of argparse: the name of a folder, which may not be empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of a folder is needed")
    return Path(text)


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line. `passed_on` of the result holds the options for another program."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    option = common.add_argument
    option(
        "--here",
        action="store_true",
        help="install nothing, and use the Python that you started course.py with",
    )
    option("--notebooks", type=Path, help=argparse.SUPPRESS)  # a folder of other lessons, for tests
    builds = common.add_mutually_exclusive_group()
    for build, text in {"cpu": CPU_SIZE, "cuda": f"{CUDA_SIZE}, on Linux only"}.items():
        text = f"if torch has to be installed, install its {build.upper()} build ({text})"
        builds.add_argument(
            "--" + build, dest="build", action="store_const", const=build, help=text
        )
    form = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="course.py", parents=[common], **form)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (action, _, text) in COMMANDS.items():
        own = {"allow_abbrev": name not in PASS_ON, "add_help": name != "labs"}
        own["aliases"] = [old for old, new in OLD_NAMES.items() if new == name]
        command = commands.add_parser(
            name, parents=[common], help=text, description=f"{text[0].upper()}{text[1:]}.", **own
        )
        option = command.add_argument
        many = {"nargs": "+", "action": "extend"}
        if name == "run":
            names = "execute only these lessons. A lesson is given by its number or its name"
            option("--only", metavar="LESSON", help=names, **many)
            text = "execute a short version of each lesson, with less data and fewer steps"
            option("--quick", action="store_true", help=text)
            devices = ["auto", "cpu", "cuda", "mps"]
            option(
                "--device",
                choices=devices,
                help="the device on which the lessons compute. With auto they take a GPU if there "
                "is one",
            )
            text = "give parameters of the lessons another value, for example SEED=1"
            option("-p", default=[], metavar="NAME=VALUE", help=text, **many)
            text = (
                "the folder into which the executed notebooks are written (default: build/executed)"
            )
            option("--out", type=folder, default=ROOT / "build/executed", metavar="DIR", help=text)
            option("--labs", action="store_true", help="also execute the labs, with our solutions")
            text = (
                "how many lessons are executed at once (default: one for each idle core, at most 4)"
            )
            option("--jobs", type=whole_number(1), metavar="N", help=text)
            text = "the longest time that a cell may take; 0 means no limit (default: 1800)"
            seconds = {"dest": "limit", "type": whole_number(0), "default": 1800}
            option("--cell-timeout", metavar="SECONDS", help=text, **seconds)
        elif name == "test":
            text = "leave out the slow tests, and do not execute the lessons"
            option("--quick", action="store_true", help=text)
            text = "also build the web site, and test it in the browser Chromium"
            option("--site", action="store_true", help=text)
            text = "also check the style of the lessons. A remark on the style counts as a failure"
            option("--style", action="store_true", help=text)
            text = (
                "a device: cuda, cuda:1 or mps. With this option no tests are run. The lessons and "
                "labs are executed on the device, and their new outputs are compared with the "
                "stored ones"
            )
            option("--device", metavar="DEVICE", help=text)
            text = "together with --device: execute only these lessons"
            option("--only", metavar="LESSON", help=text, **many)
            text = (
                "together with --device: how many lessons are executed at once (default: one for "
                "each idle core, at most 4)"
            )
            option("--jobs", type=whole_number(1), metavar="N", help=text)
        elif name in ("lesson", "restore"):
            option("number", metavar="NN", help="the number or the name of the lesson")
            text = "use the lab that belongs to the lesson, and not the lesson itself"
            option("--lab", action="store_true", help=text)
            if name == "lesson":
                text = "only write the text file that can be edited"
                option("--text", action="store_true", help=text)
        elif name == "site":
            text = (
                "when the site is built, serve it to the browsers of this machine, and print its "
                "address"
            )
            option("--serve", action="store_true", help=text)
            text = "the port of this address; 0 means any free port (default: 8000)"
            option("--port", type=whole_number(0, 65535), default=8000, help=text)
    ours = argv.index("--") if "--" in argv else len(argv)
    # The defaults are given here and not by set_defaults, because with set_defaults a command would
    # undo an option that stands before it.
    args = argparse.Namespace(here=False, build=None, notebooks=ROOT / "notebooks")
    args, unknown = parser.parse_known_args(argv[:ours], args)
    args.command = OLD_NAMES.get(args.command, args.command)
    args.passed_on = [*unknown, *argv[ours + 1 :]]
    if args.passed_on and args.command not in PASS_ON:
        parser.error(f"unrecognized arguments: {' '.join(args.passed_on)}")
    args.notebooks = args.notebooks.resolve()
    if args.command == "run":
        args.out = args.out.resolve()
    elif args.command == "test" and args.device:
        if args.quick or args.site or args.style:
            parser.error("--device is for the lessons: leave out --quick, --site and --style")
        # `plan` reads these options, which `run` has.
        args.out = ROOT / "build" / f"executed-{args.device.replace(':', '-')}"
        args.p, args.labs, args.limit = [], True, 1800
    elif args.command == "test" and (args.only or args.jobs):
        parser.error("--only and --jobs need --device: without it, every lesson is compared")
    return args


def main(argv: list[str]) -> int:
    """Run the command that `argv` asks for, and return the exit status."""
    # Each line is written at once, so that it stands in order with the lines of child processes. A
    # character that the terminal cannot show is replaced.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace", line_buffering=True)
    args = parse(argv)
    action, modules, _ = COMMANDS[args.command]
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        if args.build == "cuda" and not sys.platform.startswith("linux"):
            raise Stop("--cuda is for Linux: PyPI has no CUDA build of torch for this system.")
        # A mistake in the request is reported before a set-up, which takes minutes.
        if action is run or action is test and args.device:
            plan(args)
        if action is labs:
            parse_labs(args.passed_on)
        if action in (lesson, restore):
            lesson_or_lab(args)
        if action in FOR_AUTHORS and not FOR_AUTHORS[action].exists():
            told = f"{args.command} is for authors of the course, and there is no"
            raise Stop(f"{told} {FOR_AUTHORS[action]} in this copy of the course.")
        if not args.here:
            enter_environment(args.build, argv)
        if action is test and args.device:  # it executes lessons, and runs no test of the package
            modules = COMMANDS["run"][1]
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            told = f"{sys.executable} lacks {', '.join(missing)}: give it the course's packages"
            command = 'pip install -e ".[test,docs]" -c constraints.txt'
            raise Stop(f"{told} ({command}) or leave out --here.")
        return action(args)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return stop.status
    except OSError as error:
        print(disk_trouble(error, ROOT), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
