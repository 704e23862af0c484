"""Prints how large the package is, and how much of it only guards: `python tools/budget.py -v`.

No size is a limit. Whoever makes the package larger says in the commit who would miss the new part.

A code line has a token on it: no docstring, comment or blank. A line only guards if it stands in
`checks.py`, imports from there, calls a guard for nothing but its refusal, raises, or belongs to a
condition or a handler that ends in raising.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYOUT = tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
NO_GUARDS = {"can_look", "shown"}  # of `checks`, what refuses nothing


def files():
    """The files of the package, below `engine` as well."""
    return sorted(p for p in (ROOT / "mlm_lib").rglob("*.py") if p.name != "__init__.py")


def test_lines():
    """The students' answers, which are changes of the labs' solutions, among them."""
    some = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tests" / "answers").glob("*.diff")]
    return sum(path.read_text("utf-8").count("\n") for path in some)


def code_lines(text):
    """The numbers of the lines that hold code."""
    told = {row for node in ast.walk(ast.parse(text)) for row in _docstring_rows(node)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {
        row
        for token in tokens
        if token.type not in (*LAYOUT, tokenize.COMMENT)
        for row in range(token.start[0], token.end[0] + 1)
    }
    return held - told


def guard_lines(path):
    """Those of them that only guard."""
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


def measured():
    """(files, files at the top, code lines, lines that only guard, lines of tests)."""
    some = files()
    code = sum(len(code_lines(path.read_text("utf-8"))) for path in some)
    top = sum(path.parent.name == "mlm_lib" for path in some)
    return len(some), top, code, sum(len(guard_lines(path)) for path in some), test_lines()


def sentence():
    count, top, code, guards, tests = measured()
    room = sum(len(code_lines(p.read_text("utf-8"))) for p in (ROOT / "classroom").glob("*.py"))
    return (
        f"mlm_lib: {code:,} code lines in {count} files, {top} at the top; "
        f"{guards / code:.0%} only guard; classroom: {room:,} code lines; {tests:,} lines of tests"
    )


if __name__ == "__main__":
    for path in files() if "-v" in sys.argv else ():
        lines = len(code_lines(path.read_text("utf-8")))
        print(f"{lines:5} {len(guard_lines(path)):4}  {path.relative_to(ROOT)}")
    print(sentence())
