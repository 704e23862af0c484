"""Finds what a teacher should look at in a student's answers: names by which code could change its
marks, and names that the task forbids.

A remark costs no points. It says which names the code uses, and that is no proof of an intention.
"""

import ast
import builtins
import re
import symtable

from classroom.lab import Given, Lab, Submission

# Names by which code reaches its caller, other processes, or the checks.
REACHING = re.compile(
    r"\b(?:classroom|_getframe|f_back|f_globals|gc|getppid|_exit|builtins|__builtins__|"
    r"__subclasses__|ctypes|setsid)\b|/proc/|sys\.argv"
)
WITHOUT = re.compile(r"^[ \t]*#[ \t]*WITHOUT:[ \t]*(.+)$", re.M)


def remarks(lab: Lab, submission: Submission) -> list[str]:
    """A sentence for each task whose answer a teacher should look at."""
    given, told = "\n".join(part.code for part in lab.parts if isinstance(part, Given)), []
    taken = bound(given) - imports(given).keys() | set(dir(builtins))
    for task in lab.tasks:
        code = "\n".join(submission.answers.get(task.name, []))
        if names := used(code, forbidden(task.solution), imports(given)):
            told.append(f"{task.name} uses {', '.join(names)}")
        if names := sorted(taken & bound(code) - bound(task.solution)):
            told.append(f"{task.name} replaces {', '.join(names)}")
    return told + submission.left_out


def used(code: str, unwanted: list[str], given: dict[str, str]) -> list[str]:
    """The suspicious names that some code uses, and the unwanted names that it uses.

    Args:
        unwanted: dotted names, such as "torch.optim", which also stand for everything below them,
            and attributes, such as ".backward", of whatever object.
        given: what names stand for that other cells import, as `imports` returns it.
    """
    own = imports(code)
    known, found, tree = given | own, list(own.values()), parsed(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append(f".{node.attr}")
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            found.append(".".join([known.get(first, first), *rest]))
    told = [name for name in unwanted if any(f"{one}.".startswith(f"{name}.") for one in found)]
    return [*dict.fromkeys(REACHING.findall(bare(code))), *told]


def bound(code: str) -> set[str]:
    """The names to which a cell assigns a value outside of functions."""
    names = symtable.symtable(ast.unparse(parsed(code)), "a cell", "exec").get_symbols()
    return {one.get_name() for one in names if one.is_assigned() or one.is_imported()}


def parsed(code: str) -> ast.Module:
    """The syntax tree of some code. The tree is empty if the code is not Python."""
    try:
        return ast.parse(code)
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
