"""Prints how large the code is: `python tools/code_size.py`, and with `-v` a line for each file.

No size is a limit. Whoever makes the package larger says in the commit message who would miss the
new part.

A code line is a line with a token of Python on it, so docstrings, comments and blank lines do not
count. A code line only guards if its one purpose is to refuse a wrong value: it stands in
`checks.py` or is imported from there, it calls a guard and does not use the result, it raises, or
it belongs to an `if` or an `except` that ends with `raise`.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
NO_GUARDS = {"can_read_without_sync", "shown"}  # functions of `checks` that refuse nothing


def files():
    """The files of the package, those of `engine` included."""
    return sorted(p for p in (ROOT / "mlm_lib").rglob("*.py") if p.name != "__init__.py")


def test_lines():
    """The number of lines of the tests. The stored answers to the labs' tasks count as tests."""
    some = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tests" / "answers").glob("*.diff")]
    return sum(path.read_text("utf-8").count("\n") for path in some)


def code_lines(text):
    """The numbers of the lines of a Python source that hold code."""
    docstrings = {row for node in ast.walk(ast.parse(text)) for row in _docstring_rows(node)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {
        row
        for token in tokens
        if token.type not in (*LAYOUT, tokenize.COMMENT)
        for row in range(token.start[0], token.end[0] + 1)
    }
    return held - docstrings


def guard_lines(path):
    """The numbers of the code lines of a file that only guard."""
    text = path.read_text("utf-8")
    if path.stem == "checks":
        return code_lines(text)
    tree = ast.parse(text)
    imported = (node for node in ast.walk(tree) if _from_checks(node))
    guards = {alias.name for node in imported for alias in node.names} - NO_GUARDS
    found = set()
    for node in ast.walk(tree):
        if _guards(node, guards):
            found |= _rows(node)
        elif isinstance(node, ast.Try):
            handlers = [one for one in node.handlers if isinstance(one.body[-1], ast.Raise)]
            found |= {row for one in handlers for row in {node.lineno} | _rows(one)}
        elif isinstance(node, ast.FunctionDef):
            body = [part for part in node.body if not _is_text(part)]
            if body and all(_guards(part, guards) for part in body):
                found |= _rows(node)
    return found & code_lines(text)


def _guards(node, guards):
    if isinstance(node, ast.If):
        return not node.orelse and isinstance(node.body[-1], ast.Raise)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id in guards
    return isinstance(node, ast.Raise) or _from_checks(node)


def _from_checks(node):
    return isinstance(node, ast.ImportFrom) and node.module == "mlm_lib.checks"


def _rows(node):
    return set(range(node.lineno, node.end_lineno + 1))


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _docstring_rows(node):
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    if isinstance(node, kinds) and node.body and _is_text(node.body[0]):
        return _rows(node.body[0])
    return set()


def count(paths):
    """The number of code lines in some files."""
    return sum(len(code_lines(path.read_text("utf-8"))) for path in paths)


def sentence():
    """The sizes of the package, of `classroom` and of the tests, in one sentence."""
    some = files()
    code = count(some)
    top = [path for path in some if path.parent.name == "mlm_lib"]
    guards = sum(len(guard_lines(path)) for path in some)
    room = count((ROOT / "classroom").glob("*.py"))
    return (
        f"mlm_lib: {code:,} code lines in {len(some)} files; "
        f"{1 - count(top) / code:.0%} in engine, which no lesson names; "
        f"{guards / code:.0%} only guard; classroom: {room:,} code lines; "
        f"{test_lines():,} lines of tests"
    )


if __name__ == "__main__":
    for path in files() if "-v" in sys.argv else ():
        print(f"{count([path]):5} {len(guard_lines(path)):4}  {path.relative_to(ROOT)}")
    print(sentence())
