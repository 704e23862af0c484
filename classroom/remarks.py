"""Finds what a teacher should look at in a student's answers: names by which code could change its
marks, objects that could mislead a check, names that the task forbids, and points for nothing.

A remark costs no points. It says what the code uses, and that is no proof of an intention.
"""

import ast
import builtins
import re
import symtable
import sys

from classroom.edition import student_edition
from classroom.lab import Given, Lab, Submission
from classroom.runner import plain

# Names by which code reaches its caller, the checks, other processes, or files. They are written as
# `found_in` writes them.
REACHING = """
    classroom inspect traceback linecache importlib runpy pkgutil builtins gc ctypes subprocess
    multiprocessing unittest sys.modules sys.argv sys.path sys.meta_path sys.settrace sys.setprofile
    sys.stdin sys.stdout sys.stderr os.kill os.killpg os.fork os.system os.popen os.environ os.open
    os.walk io.open exec eval compile globals locals vars setattr delattr open .listdir .scandir
    .iterdir .glob .rglob .read_text .read_bytes .fromfile .loadtxt .genfromtxt
    .__dict__ .__class__
""".split()
# Names that no text holds by chance. They are found in strings as well, because `getattr` takes
# names as strings.
WORDS = re.compile(
    r"\b(?:_getframe|_current_frames|currentframe|f_back|f_globals|f_locals|f_builtins|tb_frame|"
    r"gi_frame|cr_frame|ag_frame|__traceback__|__builtins__|__import__|__subclasses__|__globals__|"
    r"__closure__|__code__|__loader__|__spec__|getppid|_exit|setsid)\b|/proc/"
)
# Kinds whose objects the checks compare, and methods that decide what a comparison says.
COMPARED = set("""
    int float complex bool str bytes list tuple dict set frozenset Fraction Decimal Number Tensor
    ndarray
""".split())  # fmt: skip
COMPARING = set("""
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __float__ __sub__ __rsub__ __abs__ __array__
    __torch_function__ __instancecheck__ __getattribute__
""".split())  # fmt: skip
WITHOUT = re.compile(r"^[ \t]*#[ \t]*WITHOUT:[ \t]*(.+)$", re.M)


def remarks(lab: Lab, submission: Submission, marks=()) -> list[str]:
    """A sentence for each thing that a teacher should look at.

    Args:
        marks: the marks of the submission, in which points for nothing are looked for.
    """
    given, told = "\n".join(part.code for part in lab.parts if isinstance(part, Given)), []
    known = imports(given)
    taken = bound(given) - known.keys() | set(dir(builtins))
    for task in lab.tasks:
        code = "\n".join(submission.answers.get(task.name, []))
        found = {
            "imports": foreign(code, known),
            "uses": used(code, forbidden(task.solution), known),
            "changes": changed(code, known),
            "replaces": sorted(taken & bound(code) - bound(task.solution)),
            "defines": misleading(code),
        }
        told += [f"{task.name} {what} {', '.join(names)}" for what, names in found.items() if names]
    points = {mark.task for mark in marks if mark.points}
    for task in lab.tasks:
        if task.name in points and not answered(submission.answers.get(task.name, []), task):
            told.append(f"{task.name} has points, and nothing is written there")
    return told + submission.left_out


def used(code: str, unwanted: list[str], given: dict[str, str]) -> list[str]:
    """The suspicious names that some code uses, and the unwanted names that it uses.

    Args:
        unwanted: dotted names, such as "torch.optim", which also stand for everything below them,
            and attributes, such as ".backward", of whatever object.
        given: what names stand for that other cells import, as `imports` returns it.
    """
    found = found_in(code, given)
    return [
        *["import *"] * ("*" in imports(code)),
        *dict.fromkeys(WORDS.findall(bare(code))),
        *(
            name
            for name in dict.fromkeys([*REACHING, *unwanted])
            if any(f"{one}.".startswith(f"{name}.") for one in found)
        ),
    ]


def foreign(code: str, given: dict[str, str]) -> list[str]:
    """What some code imports although neither Python nor a cell of the lab has it. A lab asks that
    only what is imported there is used."""
    free = [*given.values(), *sys.stdlib_module_names]
    new = dict.fromkeys(imports(code).values())
    return [one for one in new if not any(f"{one}.".startswith(f"{name}.") for name in free)]


def found_in(code: str, given: dict[str, str]) -> list[str]:
    """The names that some code uses. Each is dotted, with what it stands for in place of an
    imported name, and each attribute is also listed by itself, such as ".backward"."""
    own, tree = imports(code), parsed(code)
    known, found = given | own, list(own.values())
    local = {node.id for node in ast.walk(tree) if is_name(node, ast.Store)}
    local |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append(f".{node.attr}")
        if isinstance(node, ast.Attribute) or is_name(node, ast.Load) and node.id not in local:
            found.append(full(node, known))
    return found


def changed(code: str, given: dict[str, str]) -> list[str]:
    """The attributes of imported modules and classes to which some code assigns a value."""
    known, found = given | imports(code), []
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            first = ast.unparse(node).split(".")[0]
            found += [full(node, known)] if first in known or first in dir(builtins) else []
    return list(dict.fromkeys(found))


def misleading(code: str) -> list[str]:
    """The classes of some code whose objects could mislead a check: kinds of numbers, of tensors
    and of collections, and classes that say themselves what is equal to them."""
    found = []
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.ClassDef):
            kinds = {ast.unparse(base).split(".")[-1] for base in node.bases} & COMPARED
            own = {getattr(part, "name", "") for part in node.body}
            own |= {
                one.id for part in node.body for one in ast.walk(part) if is_name(one, ast.Store)
            }
            found += [f"a kind of {kind}" for kind in sorted(kinds)] + sorted(own & COMPARING)
        if isinstance(node, ast.Call) and is_name(node.func) and node.func.id == "type":
            found += ["a class by type()"] * (len(node.args) == 3)
    return found


def answered(cells: list[str], task) -> bool:
    """Whether something is written in place of a line of the student's edition that waits."""
    edition = {"cell_type": "code", "source": task.solution}
    (cell,) = student_edition({"cells": [edition]})["cells"]
    places = waits(cell["source"])
    return bool(cells) and not (places and places <= waits("\n".join(cells)))


def waits(code: str) -> set[str]:
    """The functions of some code that only wait to be written, and "" if a line that waits is in
    no function. What follows after such a line is never executed."""
    found = set()
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.Module | ast.FunctionDef):
            for part in node.body:
                if isinstance(part, ast.Return):
                    break
                if isinstance(part, ast.Raise) and "waits for your code" in ast.unparse(part):
                    found.add(getattr(node, "name", ""))
    return found


def full(node: ast.AST, known: dict[str, str]) -> str:
    """A name or an attribute, dotted, with what it stands for in place of an imported name."""
    first, *rest = ast.unparse(node).split(".")
    return ".".join([known.get(first, first), *rest])


def is_name(node: ast.AST, how: type = ast.expr_context) -> bool:
    """Whether a node of a syntax tree is a plain name, and is used in this way."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, how)


def bound(code: str) -> set[str]:
    """The names to which a cell assigns a value outside of functions."""
    names = symtable.symtable(ast.unparse(parsed(code)), "a cell", "exec").get_symbols()
    return {one.get_name() for one in names if one.is_assigned() or one.is_imported()}


def parsed(code: str) -> ast.Module:
    """The syntax tree of some code. The tree is empty if the code is not Python."""
    try:
        return ast.parse(plain(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def bare(code: str) -> str:
    """The code without comments and layout. Code that is not Python stays as it is."""
    return ast.unparse(parsed(code)) or code


def forbidden(source: str) -> list[str]:
    """The names that a task forbids, by a comment such as `# WITHOUT: torch.optim, .backward`."""
    line = WITHOUT.search(source)
    return [name.strip() for name in line[1].split(",")] if line else []


def imports(code: str) -> dict[str, str]:
    """What each name that some code imports stands for, such as {"F": "torch.nn.functional"}."""
    found = {}
    for node in ast.walk(parsed(code)):
        for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            name = f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name
            first = name if one.asname else one.name.split(".")[0]
            found[one.asname or first] = name if isinstance(node, ast.ImportFrom) else first
    return found
