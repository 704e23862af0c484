"""Execute a draft and store it as a notebook: `python tools/execute_notebook.py DRAFT NOTEBOOK`.

The notebook stays as it was if a cell fails.
"""

import os
import sys
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook_form import normalised, read, text


def execute(draft, target):
    """The draft runs in the folder of the notebook that it becomes, and is stored in one step."""
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
