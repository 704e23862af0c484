"""An indented block of a docstring is coloured as Python if it is Python.

The others are formulas, tables and diagrams. Elsewhere on the site a block names its language, and
one that names none is not coloured (`highlight_language` in `conf.py`).
"""

import ast

from docutils import nodes


def colour(app, doctree):
    if app.env.docname.startswith("api/"):
        for block in doctree.findall(nodes.literal_block):
            if "language" not in block and is_python(block.astext()):
                block["language"] = "python"


def is_python(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return text.startswith(">>>")
    return True


def setup(app):
    app.connect("doctree-read", colour, priority=100)  # before Sphinx gives each block a language
    return {"parallel_read_safe": True, "parallel_write_safe": True}
