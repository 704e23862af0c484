"""Adds to each notebook what it needs to be opened alone: a first code cell that installs the
course if it is missing, and a link that opens the notebook on Colab. Both are made from the address
of the repository in pyproject.toml.

The link is a text. A badge would be a picture on another host, which every reader's browser would
fetch.
"""

import re
import tomllib
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REPOSITORY = PYPROJECT["project"]["urls"]["Repository"]
COLAB = "https://colab.research.google.com"
EDITIONS = "labs"  # the branch that holds the students' editions; notebooks/labs has the solutions

FIRST_LINE = "# Gets the course where it is not installed, as on Colab. Elsewhere it does nothing."
GUARD = f"""{FIRST_LINE}
try:
    import mlm_lib
except ModuleNotFoundError:
    import importlib, pathlib, subprocess, sys

    copies = [folder for folder in pathlib.Path.cwd().parents if (folder / "mlm_lib").is_dir()]
    sys.path += map(str, copies[:1])  # use the copy of the course that holds this notebook
    if not copies:
        print("pip gets the course; this takes a minute or two.")
        course = "git+{REPOSITORY}"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", course]
        done = subprocess.run(pip, capture_output=True, text=True)
        assert done.returncode == 0, "pip could not get the course:\\n" + done.stderr
        importlib.invalidate_caches()
    import mlm_lib
"""
TAG = "remove-cell"  # the site does not show this cell; JupyterLab shows it folded
LINK = re.compile(r"\n*^\[Open in Colab\]\([^)\n]*\)[ \t]*$", re.M)


def is_guard(cell):
    """Whether a cell is the one that installs the course if it is missing."""
    return cell["cell_type"] == "code" and "".join(cell["source"]).startswith(FIRST_LINE)


def colab_address(path):
    """The address at which Colab opens a notebook. For a lab it opens the student's edition."""
    path = Path(path)
    lab = path.resolve().parent.name == "labs"
    place = f"{EDITIONS}/{path.name}" if lab else f"main/notebooks/{path.name}"
    return f"{COLAB}/github/{REPOSITORY.removeprefix('https://github.com/')}/blob/{place}"


def set_doors(notebook, path):
    """Insert into a notebook the cell that installs the course, before its first code cell, and the
    link to Colab, into its title cell.

    Execution counts stay as they are. If the other cells were executed, the inserted cell has the
    count 0.
    """
    cells = [cell for cell in notebook.cells if not is_guard(cell)]
    place = next((i for i, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    executed = any(cell.get("execution_count") is not None for cell in cells)
    guard = nbformat.v4.new_code_cell(GUARD.strip(), metadata={"tags": [TAG]})
    guard.execution_count = 0 if executed else None
    notebook.cells = [*cells[:place], guard, *cells[place:]]
    title = notebook.cells[0]
    if title.cell_type == "markdown":
        link = f"\n\n[Open in Colab]({colab_address(path)})"
        title.source = LINK.sub("", title.source).rstrip() + link
