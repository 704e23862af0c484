"""Makes slides of each lesson: `python -m docs.site.slides --out FOLDER`. The build of the site
calls this as well.

The lessons' own `slideshow` metadata say what is on a slide, and nbconvert makes pages of them.
Only three things are done here: formulas become MathML, links lead to the site, and of the title's
cell a slide shows the promise. npm fetches reveal.js, which shows the pages, once into
`deck/node_modules`.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

from classroom.lab import ROOT
from classroom.work import with_own_lab
from docs.site.ext.mathml import markup
from docs.site.glossary import LINK
from docs.site.npm import REVEAL, fetch

DECK = ROOT / "docs" / "site" / "deck"
BOLD = re.compile(r"\*\*.+?\*\*")
KEYS = "Space: go on. S: the lecturer's notes. F: the whole screen. ?: all keys."


def page(lesson: Path) -> str:
    """The slides of a lesson, as HTML."""
    from nbconvert import SlidesExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from nbformat import read

    class Renderer(IPythonRenderer):
        def block_math(self, body):
            return markup(body, block=True)

        def inline_math(self, body):
            return markup(body)

    def html(source):
        renderer = Renderer(escape=False, exclude_anchor_links=True)
        return MarkdownWithMath(renderer=renderer).render(source)

    notebook = read(lesson, as_version=4)
    for cell in notebook.cells:
        cell.source = for_site(cell.source) if cell.cell_type == "markdown" else cell.source
    title, promise = notebook.cells[0].source.split("\n\n")[:2]
    title = title.removeprefix("# ")
    heading = f"# [{title}](../notebooks/{lesson.stem}.html)"
    notebook.cells[0].source = f"{heading}\n\n{BOLD.match(promise)[0]}\n\n*{KEYS}*"
    notebook.metadata["title"] = title
    exporter = SlidesExporter(
        template_name=DECK.name,
        extra_template_basedirs=[str(DECK.parent)],
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    exporter.register_filter("markdown2html", html)
    return exporter.from_notebook_node(notebook)[0]


def for_site(source: str) -> str:
    """A text whose links lead from the folder of the slides to the pages of the site. Terms are not
    links on a slide."""
    source = with_own_lab(LINK.sub(r"\1", source))
    source = re.sub(r"\]\(\.\./docs/([\w/]+)\.md", r"](../\1.html", source)
    return re.sub(r"\]\(((?:labs/)?\w+)\.ipynb", r"](../notebooks/\1.html", source)


def fetch_reveal() -> None:
    """See to reveal.js. Raises SystemExit as `docs.site.npm.fetch`."""
    fetch(REVEAL, "A page of slides")


def build(out: Path) -> None:
    """Write a page of slides for each lesson, and what shows them, into a folder."""
    fetch_reveal()
    (out / "reveal").mkdir(parents=True, exist_ok=True)
    for name in ("reveal.css", "reveal.js", "plugin/notes.js"):
        shutil.copy(REVEAL / "dist" / name, out / "reveal")
    for file in DECK.glob("slides.*"):
        shutil.copy(file, out)
    for lesson in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        (out / f"{lesson.stem}.html").write_text(page(lesson), "utf-8")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/slides", metavar="FOLDER")
    build(parser.parse_args(argv).out)


if __name__ == "__main__":
    main(sys.argv[1:])
