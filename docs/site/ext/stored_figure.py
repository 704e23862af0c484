"""`{stored-figure} LESSON`: a figure that a lesson has stored, on another page.

The directive's argument is the page of the lesson; its content is a part of the alternative text,
by which the figure is found. A lesson without such a figure is an error: nothing else stands in.
"""

import json
import re
from html import escape, unescape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class StoredFigure(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        lesson = Path(self.env.doc2path(self.arguments[0]))
        self.env.note_dependency(lesson)
        wanted = " ".join(self.content)
        for image in images(json.loads(lesson.read_text("utf-8"))):
            if wanted in unescape(image):
                link = nodes.raw("", image, format="html")
                return [nodes.container("", link, classes=["stored-figure"])]
        raise self.error(f"no figure of {lesson.name} tells of {escape(wanted)!r}")


def images(notebook):
    """The stored figures of a notebook, parsed from JSON: `<img ...>` of each, in order."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            yield from re.findall(
                r"<img\b[^>]*>", "".join(output.get("data", {}).get("text/html", ""))
            )


def setup(app):
    app.add_directive("stored-figure", StoredFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
