"""What a teacher should look at in an answer: names that reach for the marks, and forbidden ones.

A remark costs no points. It names what the code says, which is no proof of what it meant.
"""

import ast
import builtins
import re

from classroom.lab import Given, Lab, Submission

# Names by which code reaches its caller, other processes, or what it is checked with.
REACHING = re.compile(
    r"\b(?:classroom|_getframe|f_back|f_globals|gc|getppid|_exit|builtins|__builtins__|"
    r"__subclasses__|ctypes|setsid)\b|/proc/|sys\.argv|notebooks/labs"
)
WITHOUT = re.compile(r"^[ \t]*#[ \t]*WITHOUT:[ \t]*(.+)$", re.M)


def remarks(lab: Lab, submission: Submission) -> list[str]:
    """A sentence for each task that has something to look at."""
    given, told = "\n".join(p.code for p in lab.parts if isinstance(p, Given)), []
    taken = bound(given) - imports(given).keys() | set(dir(builtins))
    for task in lab.tasks:
        code = "\n".join(submission.answers.get(task.name, []))
        tree = parsed(code)
        shown = ast.unparse(tree) if tree else code  # without comments
        names = list(dict.fromkeys(REACHING.findall(shown)))
        names += [n for n in forbidden(task.solution) if tree and uses(tree, n, imports(given))]
        if names:
            told.append(f"{task.name} uses {', '.join(names)}")
        if replaced := sorted(taken & bound(code) - bound(task.solution)):
            told.append(f"{task.name} replaces {', '.join(replaced)}")
    return told


def bound(code: str) -> set[str]:
    """The names that a cell gives a value, outside of functions."""
    found = set(imports(code))
    for node in getattr(parsed(code), "body", []):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            walked = (one for one in ast.walk(node) if isinstance(one, ast.Name))
            found |= {one.id for one in walked if isinstance(one.ctx, ast.Store)}
    return found


def parsed(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def forbidden(source: str) -> list[str]:
    """The names in a task's line `# WITHOUT: torch.optim, .backward`."""
    line = WITHOUT.search(source)
    return [name.strip() for name in line[1].split(",")] if line else []


def imports(code: str) -> dict[str, str]:
    """What each imported name stands for: {"F": "torch.nn.functional"}."""
    found = {}
    for node in ast.walk(parsed(code) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            for one in node.names:
                whole = one.name if one.asname else one.name.split(".")[0]
                found[one.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                found[one.asname or one.name] = f"{node.module}.{one.name}"
    return found


def uses(tree: ast.Module, name: str, given: dict[str, str]) -> bool:
    """Whether code uses a dotted name or what it holds; after a dot, any attribute of this name."""
    own = imports(ast.unparse(tree))
    known, found = given | own, list(own.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and name == f".{node.attr}":
            return True
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            found.append(".".join([known.get(first, first), *rest]))
    return any(f"{whole}.".startswith(f"{name}.") for whole in found)
