"""Executes a draft of a lesson and stores it: `python tools/execute_notebook.py DRAFT NOTEBOOK`.

If a cell fails, the stored notebook stays as it was.
"""

import os
import sys
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook_form import normalised, read, text


def execute(draft, target):
    """Execute the draft in the folder of the notebook, and replace the notebook in one step."""
    notebook = read(draft)
    where = {"metadata": {"path": str(target.parent)}}
    NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=where).execute()
    draft.write_text(text(normalised(notebook, target)), encoding="utf-8", newline="\n")
    os.replace(draft, target)


if __name__ == "__main__":
    try:
        execute(*map(Path, sys.argv[1:]))
    except CellExecutionError as error:
        sys.exit(f"{error}\n{sys.argv[2]} is as it was.")
