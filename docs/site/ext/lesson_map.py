"""`{lesson-map}`: every lesson with its number, its title and its minutes, as a list of links, and
the hours of all."""

import re

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

# The sentence of a lesson's title cell that `tools/notebook_form.py` writes.
MINUTES = re.compile(r"About (\d+) minutes to read(?:, and (\d+) more for Deeper)?")


class LessonMap(SphinxDirective):
    def run(self):
        return [nodes.container("", classes=["lesson-map"])]


def fill_in(app, doctree, docname):
    """Once all pages are read: before that, a title is not yet known."""
    for place in list(doctree.findall(nodes.container)):
        if "lesson-map" not in place["classes"]:
            continue
        items, total, further = nodes.bullet_list(), 0, 0
        for page in sorted(app.env.found_docs):
            if page.startswith("notebooks/") and page.count("/") == 1:
                told = MINUTES.search(app.env.get_doctree(page).astext())
                line = nodes.paragraph("", "", link(app, docname, page))
                line += nodes.inline("", f"{told[1]} min", classes=["minutes"])
                items += nodes.list_item("", line)
                total += int(told[1])
                further += int(told[2] or 0)
        place += items
        hours = f"To read and run all lessons takes about {total / 60:.0f} hours"
        if further:
            hours += f", and their sections Deeper {further / 60:.0f} more"
        place += nodes.paragraph("", f"{hours}.")


def link(app, docname, page):
    target = app.builder.get_relative_uri(docname, page)
    number, _, title = app.env.titles[page].astext().partition(" · ")
    parts = nodes.inline("", number, classes=["number"]), nodes.Text(title)
    return nodes.reference("", "", *parts, internal=True, refuri=target)


def setup(app):
    app.add_directive("lesson-map", LessonMap)
    app.connect("doctree-resolved", fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
