"""What a teacher should look at in an answer: names that reach for the marks, and forbidden ones.

A remark costs no points. It names what the code says, which is no proof of what it meant.
"""

import ast
import builtins
import re
import symtable

from classroom.lab import Given, Lab, Submission

# Names by which code reaches its caller, other processes, or what it is checked with.
REACHING = re.compile(
    r"\b(?:classroom|_getframe|f_back|f_globals|gc|getppid|_exit|builtins|__builtins__|"
    r"__subclasses__|ctypes|setsid)\b|/proc/|sys\.argv|notebooks/labs"
)
WITHOUT = re.compile(r"^[ \t]*#[ \t]*WITHOUT:[ \t]*(.+)$", re.M)


def remarks(lab: Lab, submission: Submission) -> list[str]:
    """A sentence for each task that has something to look at."""
    given, told = "\n".join(part.code for part in lab.parts if isinstance(part, Given)), []
    taken = bound(given) - imports(given).keys() | set(dir(builtins))
    for task in lab.tasks:
        code = "\n".join(submission.answers.get(task.name, []))
        if names := used(code, forbidden(task.solution), imports(given)):
            told.append(f"{task.name} uses {', '.join(names)}")
        if names := sorted(taken & bound(code) - bound(task.solution)):
            told.append(f"{task.name} replaces {', '.join(names)}")
    return told


def used(code: str, unwanted: list[str], given: dict[str, str]) -> list[str]:
    """What code reaches for, and which of some unwanted names it uses: dotted names or what they
    hold, or, after a dot, any attribute of this name. given: as of `imports`."""
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
    """The names that a cell gives a value, outside of functions."""
    names = symtable.symtable(ast.unparse(parsed(code)), "a cell", "exec").get_symbols()
    return {one.get_name() for one in names if one.is_assigned() or one.is_imported()}


def parsed(code: str) -> ast.Module:
    """Code as a tree; an empty one, if it is no Python."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def bare(code: str) -> str:
    """Code without its comments and its layout, or as it is where it is no Python."""
    return ast.unparse(parsed(code)) or code


def forbidden(source: str) -> list[str]:
    """The names in a task's line `# WITHOUT: torch.optim, .backward`."""
    line = WITHOUT.search(source)
    return [name.strip() for name in line[1].split(",")] if line else []


def imports(code: str) -> dict[str, str]:
    """What each imported name stands for: {"F": "torch.nn.functional"}."""
    found = {}
    for node in ast.walk(parsed(code)):
        for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            name = f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name
            first = name if one.asname else one.name.split(".")[0]
            found[one.asname or first] = name if isinstance(node, ast.ImportFrom) else first
    return found
