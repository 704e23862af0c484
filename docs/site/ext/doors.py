"""Ways from a page to the course itself.

`{course-doors}` is the line of home that says where the course is. `{notebook-doors} 02_masking` is
the line at the head of a lesson: its file, Colab, its slides, its source, and where to report an
error. A lab has no link to its source, which holds the solutions. Each notebook is put beside its
page, so that it can be downloaded wherever the site is.
"""

import shutil
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from docs.site.addresses import colab_of_the_first_lesson, of_course, of_file


def link(text, address, attributes=""):
    return f'<a href="{escape(address)}"{attributes}>{escape(text)}</a>'


def line(links):
    told = '<span aria-hidden="true"> · </span>'.join(links)
    return nodes.raw("", f'<p class="doors-line">{told}</p>', format="html")


class CourseDoors(SphinxDirective):
    def run(self):
        links = [link(text, address) for text, address in of_course().items()]
        if address := colab_of_the_first_lesson():
            links.append(link("Open lesson 00 in Colab", address))
        return [line(links)] if links else []


class NotebookDoors(SphinxDirective):
    required_arguments = 1
    option_spec = {"colab": directives.uri, "title": directives.unchanged}

    def run(self):
        stem, lab = self.arguments[0], "/labs/" in self.env.docname
        links = [link("Download the notebook", f"{stem}.ipynb", " download")]
        if "colab" in self.options:
            links.append(link("Open in Colab", self.options["colab"]))
        if not lab and self.env.app.tags.has("slides"):
            links.append(link("Slides of this lesson", f"../slides/{stem}.html"))
        there = of_file(f"notebooks/{stem}.ipynb", self.options["title"])
        if lab:
            there.pop("Edit on GitHub", None)
        return [line(links + [link(text, address) for text, address in there.items()])]


def copy_notebooks(app, exception):
    """`docs/site/pages.py` puts the notebooks as readers get them into the folder `plain`."""
    plain = Path(app.srcdir, "plain")
    if exception is None and plain.is_dir():
        shutil.copytree(plain, app.outdir, dirs_exist_ok=True)


def setup(app):
    app.add_directive("course-doors", CourseDoors)
    app.add_directive("notebook-doors", NotebookDoors)
    app.connect("build-finished", copy_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
