"""One truth for dependencies, pyproject.toml: everything else that names them agrees with it."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires, version
from pathlib import Path

import nbformat
import pytest
import yaml
from lowest_versions import lowest_versions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import course

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python3 course.py test"
README = (ROOT / "README.md").read_text("utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CORE = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(text) for text in texts]
    for name, texts in PYPROJECT["project"]["optional-dependencies"].items()
}
DIRECT = CORE + EXTRAS["test"] + EXTRAS["docs"]


def pins():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_conda_installs_the_course_as_pip_does_with_the_pinned_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    python, pip, of_pip = environment["dependencies"]
    assert python == "python" + PYPROJECT["project"]["requires-python"] and pip == "pip"
    assert of_pip == {"pip": ["-c constraints.txt", "-e .[test,docs]"]}


def test_every_file_that_asks_for_the_cpu_build_of_torch_names_the_same_index():
    files = [".binder/requirements.txt", ".devcontainer/devcontainer.json"]
    for name in [*files, "classroom/autograder/setup.sh"]:
        told = (ROOT / name).read_text("utf-8")
        assert re.findall(r"--extra-index-url (\S+)", told) == [course.CPU_INDEX], name


def test_constraints_pin_every_direct_dependency_within_its_range():
    assert set(pins()) == {requirement.name for requirement in DIRECT}
    for requirement in DIRECT:
        assert requirement.specifier.contains(pins()[requirement.name]), requirement


def test_constraints_hold_on_every_platform():
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9-]+==\d+(\.\d+)*", line), line


def test_the_lowest_versions_are_the_lower_bounds_of_what_is_pinned():
    lowest = dict(line.split("==") for line in lowest_versions())
    assert list(lowest) == [requirement.name for requirement in DIRECT] and set(lowest) == set(
        pins()
    )
    for requirement in DIRECT:
        (bound,) = [one.version for one in requirement.specifier if one.operator == ">="]
        assert lowest[requirement.name] == bound


@pytest.mark.parametrize(
    "name, version, works",
    [
        ("filelock", "3.13.4", False),  # there a folder's holder cannot take its lock again
        ("filelock", "3.14.0", False),
        ("filelock", "3.15.0", False),  # withdrawn as broken
        ("filelock", "3.15.1", True),
        ("tqdm", "4.66.2", False),  # datasets 4 asks for 4.66.3
        ("tqdm", "4.66.3", True),
    ],
)
def test_bounds_leave_out_the_versions_that_do_not_work(name, version, works):
    (requirement,) = [r for r in CORE if r.name == name]
    assert requirement.specifier.contains(version) == works


@pytest.mark.parametrize(
    "name, version",
    [("torch", "2.11.0"), ("torch", "2.13.0"), ("torch", "2.13.0+cpu"), ("transformers", "5.17.0")],
)
def test_ranges_admit_the_supported_versions(name, version):
    (requirement,) = [r for r in CORE if r.name == name]
    assert requirement.specifier.contains(version)


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_ranges_end_before_the_next_major_version(name):
    (requirement,) = [r for r in CORE if r.name == name]
    assert not requirement.specifier.contains(f"{Version(pins()[name]).major + 1}.0")


def test_floors_are_those_that_transformers_sets_at_its_own_floor():
    """From the metadata of transformers 5.17.0; pip could never install less beside it."""
    asked = {"huggingface-hub": "1.5", "tokenizers": "0.23.1", "safetensors": "0.8"}
    floors = {r.name: str(r.specifier).split(",")[-1] for r in CORE}
    assert floors["transformers"] == ">=5.17"
    assert {name: floors[name] for name in asked} == {n: f">={v}" for n, v in asked.items()}


def test_what_the_pinned_transformers_asks_for_is_pinned_so():
    if version("transformers") != pins()["transformers"]:
        pytest.skip("another transformers is installed than the one that is pinned")
    asked = [Requirement(text) for text in requires("transformers")]
    asked = [r for r in asked if r.name in pins() and (not r.marker or r.marker.evaluate())]
    assert {"huggingface-hub", "tokenizers", "safetensors"} <= {r.name for r in asked}
    for requirement in asked:
        assert requirement.specifier.contains(pins()[requirement.name]), requirement


def test_the_formatter_looks_at_everything_but_what_its_own_list_leaves_out():
    """Which names .venv and build among others: `exclude` would replace it, this adds to it."""
    assert "exclude" not in PYPROJECT["tool"]["ruff"]
    assert PYPROJECT["tool"]["ruff"]["extend-exclude"] == ["*.ipynb"]


def python_sources():
    # What stands in tests/ under other names is run by hand or by tests, and states its needs.
    folders = ("mlm_lib", "mlm_lib/engine", "classroom", "benchmarks", "docs/site", "docs/site/*")
    for pattern in ("tests/*/test_*.py", *(f"{folder}/*.py" for folder in folders)):
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT), path.read_text("utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":  # IPython's own lines are no Python
                yield path.relative_to(ROOT), re.sub(r"(?m)^\s*[%!].*$", "", cell.source)


@pytest.mark.slow
def test_everything_imported_is_declared():
    declared = {canonicalize_name(r.name) for r in [*CORE, *sum(EXTRAS.values(), [])]}
    declared |= {"mlm-course", "ipython"}  # ipykernel is IPython's kernel
    own = {
        "course",
        "mlm_lib",
        "classroom",
        "benchmarks",
        "scripts",
        "docs",
        *(
            p.stem
            for pattern in ("tests/*/*.py", "tools/*.py", "docs/site/*/*.py")
            for p in ROOT.glob(pattern)
        ),
    }
    distributions = packages_distributions()
    for path, source in python_sources():
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - own:
                providers = {canonicalize_name(d) for d in distributions.get(name, [name])}
                assert providers & declared, (
                    f"{path} imports {name}, which pyproject.toml does not name"
                )


def test_no_other_file_lists_dependencies():
    others = ("requirements*.txt", "docs/requirements*.txt", "setup.py", "setup.cfg", "Pipfile")
    assert [path.name for pattern in others for path in ROOT.glob(pattern)] == []
    told = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    assert re.findall(r"pip install (.*)", told) == ['-e ".[classroom]" -c constraints.txt']


def read_workflow(name="test.yml", job="test"):
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text("utf-8"))["jobs"][job]


def test_the_workflow_calls_the_script_that_checks_here_and_then_what_takes_longer():
    """What is green there is green here: the first step is the whole of the script."""
    first, *more = [step["run"] for step in read_workflow()["steps"] if "run" in step]
    assert first == ".ci/run ${{ matrix.os != 'ubuntu-latest' && '--portable' || '' }}"
    assert more[0] == "python3 course.py run --quick --labs"
    assert "pytest tests/classroom/test_nbgrader.py" in more[1] and len(more) == 2


@pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")
@pytest.mark.parametrize(
    "arguments, options", [([], "--style --site"), (["--portable"], "--style")]
)
@pytest.mark.parametrize("fails", ["nothing", "test"])
def test_the_script_tests_by_the_command_of_the_readme(tmp_path, arguments, options, fails):
    """With programs that only note how they were called; on other systems the site is left out."""
    log, programs = tmp_path / "log", tmp_path / "programs"
    programs.mkdir()
    for name in ("python3", "npm", "chromium"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n[ "$2" != {fails} ]\n')
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    script = ["bash", ROOT / ".ci/run", *arguments, "--here"]
    done = subprocess.run(script, env=os.environ | {"PATH": path}, capture_output=True)
    assert log.read_text().splitlines()[-1] == f"{COMMAND} {options} --here" and COMMAND in README
    assert done.returncode == (fails == "test")


def test_workflow_covers_the_systems_and_the_lowest_python():
    matrix = read_workflow()["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert PYPROJECT["project"]["requires-python"] == ">=" + matrix["python"][0]


def test_the_lowest_versions_are_tested_with_the_lowest_python():
    job = read_workflow(job="lowest")
    _, python, *steps = job["steps"]
    assert ">=" + python["with"]["python-version"] == PYPROJECT["project"]["requires-python"]
    commands = [line for step in steps for line in step["run"].splitlines()]
    assert commands == [
        "python3 tools/lowest_versions.py > lowest.txt",
        "mv lowest.txt constraints.txt",
        f"{COMMAND} --quick",
    ]


def test_the_gpu_workflow_is_started_by_hand_may_only_read_and_gives_commands_that_exist():
    workflow = yaml.safe_load((ROOT / ".github/workflows/gpu.yml").read_text("utf-8"))
    assert list(workflow[True]) == ["workflow_dispatch"]  # to YAML 1.1 the key `on` is a truth
    assert workflow["permissions"] == {"contents": "read"}
    job = read_workflow("gpu.yml", "gpu")
    assert "permissions" not in job and job["runs-on"] == ["self-hosted", "${{ inputs.runner }}"]
    script = "\n".join(step.get("run", "") for step in job["steps"])
    assert "${{" not in script  # an input that is written into a script would be executed there
    given = [
        course.parse(line.replace("${LESSONS:+--only $LESSONS}", "--only 03 08").split())
        for line in re.findall(r"course\.py (.*) \| tee", script)
    ]
    found = [(args.command, args.device, args.build, args.only) for args in given]
    assert found == [(command, "cuda", "cuda", ["03", "08"]) for command in ("run", "test")]
    assert "-m benchmarks --device cuda --out build/tables/benchmarks" in script


@pytest.mark.parametrize("file", ["gpu.yml", "site.yml", "test.yml"])
def test_workflows_take_the_same_versions_of_the_same_actions(file):
    text = (ROOT / ".github/workflows" / file).read_text("utf-8")
    known = {"checkout": "v5", "setup-python": "v6", "upload-artifact": "v4"}
    known |= {"download-artifact": "v4", "upload-pages-artifact": "v4", "deploy-pages": "v4"}
    # What is pinned by its commit has its version after it.
    for action, taken in re.findall(r"uses: actions/([\w-]+)@(?:\w{40} # )?(v\d+)", text):
        assert known[action] == taken
    assert len(re.findall("uses: actions/.*v[0-9]", text)) == text.count("uses:")


def test_a_job_that_may_write_names_its_actions_by_commit():
    found = 0
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text("utf-8"))
        for job in workflow["jobs"].values():
            rights = job.get("permissions", workflow["permissions"])
            used = [step["uses"] for step in job["steps"] if "uses" in step]
            if "write" in rights.values():
                found += 1
                assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in used), used
    assert found == 2


@pytest.mark.parametrize(
    "stored, computed, same",
    [
        ("took 12.3 ms", "took 8.1 ms", True),
        ("<Figure at 0x7f01aa22bb10>", "<Figure at 0x7fe9aa22bb10>", True),
        ("1,024 tokens/s", "998.5 tokens/s", True),
        (" 40%|####      | 4/10", " 50%|#####     | 5/10", True),
        (
            'src="data:image/svg+xml;base64,iV/5s=" alt="a"',
            'src="data:image/svg+xml;base64,iV" alt="a"',
            True,
        ),
        ('src="data:image/png;base64,iV" alt="a"', 'src="data:image/png;base64,iV" alt="b"', False),
        ("loss 6.91", "loss 6.92", False),
        ("15% of 100 steps", "15% of 101 steps", False),
    ],
)
def test_stored_outputs_are_compared_but_for_what_varies(stored, computed, same):
    from nbval.plugin import get_sanitize_patterns

    patterns = get_sanitize_patterns((ROOT / "tools/nbval_sanitize.cfg").read_text("utf-8"))

    def sanitize(text):
        for pattern, replacement in dict(patterns).items():
            text = re.sub(pattern, replacement, text)
        return text

    assert (sanitize(stored) == sanitize(computed)) == same
