"""The project's notebook: what a student begins with, and what is read from it.

`project_notebook.txt` holds it as text. There a line `# FROM 02.1` stands for the student's own
answer to that task of a lab, and `# WRITE` for what no lab has built.
"""

import ast
import json
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from classroom.edition import HOME, write_new
from classroom.lab import MARK, STUB, NotALab, Submission, read_submission
from classroom.remarks import REACHING, imports, parsed, uses

KEY = "project"
TEXT = Path(__file__).with_suffix(".txt")
BUILT = ["torch.optim", "torch.nn.Transformer", "torch.nn.TransformerEncoder"]
BUILT += ["torch.nn.TransformerEncoderLayer", "torch.nn.MultiheadAttention"]
BUILT += ["torch.nn.CrossEntropyLoss", "torch.nn.functional.cross_entropy"]
BUILT += ["torch.nn.functional.multi_head_attention_forward", "torch.nn.utils.clip_grad_norm_"]
FROM = re.compile(r"^# FROM (\w+\.\d+)$", re.M)
SOLUTION = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION\n?", re.M)


def start(folder: Path = HOME) -> tuple[Path, bool]:
    """Write the notebook with the student's answers to the labs: its path, and whether it is new.

    One that was begun is never overwritten.
    """
    text = json.dumps(notebook(own_answers(folder)), indent=1) + "\n"
    return write_new(folder / f"{KEY}.ipynb", text)


def notebook(answers: dict[str, str]) -> dict:
    """The notebook to begin with; `answers` holds cells of the labs by their task, as "02.1"."""
    cells = []
    for part in re.split(r"^# %%", TEXT.read_text("utf-8"), flags=re.M)[1:]:
        head, _, source = part.partition("\n")
        cell = {"metadata": {}, "id": f"{KEY}-{len(cells)}", "source": source.strip("\n")}
        if "[markdown]" in head:
            text = re.sub(r"^# ?", "", cell["source"], flags=re.M)
            cells.append(cell | {"cell_type": "markdown", "source": text})
            continue
        if mark := MARK.search(source):
            cell["source"] = filled(cell["source"], f"{KEY}.{mark[3]}", answers)
        cells.append(cell | {"cell_type": "code", "execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def filled(source: str, name: str, answers: dict[str, str]) -> str:
    """A cell with the student's own answer in it, or with what says that it waits for one."""
    waits = f'raise NotImplementedError("{STUB.format(name)}")'
    source = source.replace("# WRITE", waits)
    if wanted := FROM.search(source):
        own = SOLUTION.sub("", MARK.sub("", answers.get(wanted[1], ""))).strip("\n")
        source = FROM.sub(lambda _: own or f"# Your answer to task {wanted[1]}.\n{waits}", source)
    return source


def own_answers(folder: Path) -> dict[str, str]:
    """What the student's copies of the labs answer to the tasks that the notebook builds on."""
    found = {}
    for name in FROM.findall(TEXT.read_text("utf-8")):
        copies = folder.glob(f"{name[:2]}_*.ipynb")
        for path in sorted(copies, key=lambda path: path.stat().st_mtime):  # the newest last
            with suppress(NotALab):
                cells = read_submission(path, [name[:2]]).answers.get(name, [])
                found |= {name: cell for cell in cells if STUB.format(name) not in cell}
    return found


def read_project(path: Path) -> Submission:
    """The marked cells, which the check runs, and the names that others set. Raises NotALab."""
    submission = read_submission(path, [KEY])
    ours = {t: cells for t, cells in submission.answers.items() if t.startswith(f"{KEY}.")}
    return replace(submission, answers=ours)


def reaches_for_the_grammar(answers: dict[str, list[str]]) -> str:
    """Where a marked cell imports what holds the answers, or ""."""
    for task, cells in answers.items():
        for name in imports("\n".join(cells)).values():
            if name.split(".")[0] in ("mlm_lib", "classroom"):
                return f"{task} imports {name}; marked cells use nothing of the course's"
    return ""


def remarks(answers: dict[str, list[str]]) -> list[str]:
    """What is imported beyond torch and Python's own, and what stands in for something to build."""
    given, told = imports("\n".join(cell for cells in answers.values() for cell in cells)), []
    for task, cells in answers.items():
        code = "\n".join(cells)
        known = {"torch", "numpy", *sys.stdlib_module_names}
        names = {name.split(".")[0] for name in imports(code).values()} - known
        tree = parsed(code) or ast.Module([], [])
        names |= set(REACHING.findall(ast.unparse(tree)))
        names |= {name for name in BUILT if uses(tree, name, given)}
        told += [f"{task} uses {', '.join(sorted(names))}"] if names else []
    return told
