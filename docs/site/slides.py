"""Makes slides from each lesson: `python -m docs.site.slides --out FOLDER`. The build of the site
calls this as well.

They hold what the notebook holds, and nothing is written for them: its title and promise; for each
step the prediction, what answers it, and the sentence to keep; at the end the lab. nbconvert makes
pages of them, and reveal.js, which npm fetches once into `deck/node_modules`, shows them.
"""

import argparse
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from classroom.lab import ROOT, SOURCES
from docs.site.glossary import LINK
from docs.site.npm import fetch

DECK = ROOT / "docs" / "site" / "deck"
REVEAL = DECK / "node_modules" / "reveal.js"
ANSWER = "hide-output"  # the tag of an output that waits for a prediction
BOLD = re.compile(r"\*\*(.+?)\*\*")
# How many columns and rows have room in letters of a size; what is larger gets small ones.
SIZES = {"huge": (54, 6), "large": (70, 9), "medium": (90, 13)}


@dataclass
class Slide:
    heading: str
    text: str = ""
    outputs: list[dict] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def cells(self):
        """As cells of a notebook, of which the first begins a slide."""
        from nbformat.v4 import new_code_cell, new_markdown_cell

        cells = [new_markdown_cell(f"{self.heading}\n\n{self.text}")]
        for output in self.outputs:
            cells.append(new_code_cell(outputs=[output], metadata={"tags": [size(output)]}))
        if self.kept:
            kept = {"tags": ["kept"]}
            cells.append(new_markdown_cell("\n\n".join(self.kept), metadata=kept))
        cells[0].metadata["slideshow"] = {"slide_type": "slide"}
        return cells


def size(output: dict) -> str:
    """How large the letters of an output can be."""
    lines = output.get("text", "").splitlines() or [""]
    need = max(map(len, lines)), len(lines)
    fits = [name for name, room in SIZES.items() if need[0] <= room[0] and need[1] <= room[1]]
    return (fits + ["small"])[0]


def slides(lesson: Path) -> list[Slide]:
    """The slides of a lesson, from its title to its lab."""
    cells = read(lesson)
    sources = [cell.source for cell in cells]
    begin = next(at for at, cell in enumerate(cells) if pictures(cell))  # the way, in the set-up
    (end,) = [at for at, source in enumerate(sources) if source.startswith("## Your turn")]
    title, promise = sources[0].split("\n\n")[:2]
    linked = f"# [{title.removeprefix('# ')}](../notebooks/{lesson.stem}.html)"
    found = [Slide(linked, BOLD.search(promise)[1])]
    heading, asked, open_, last = "#" + title.partition(":")[0], "", None, []
    for cell, source in zip(cells[begin:end], sources[begin:end]):
        if cell.cell_type == "code":
            last = pictures(cell) or [one for one in cell.outputs if one.get("name") == "stdout"]
            if pictures(cell) or last and ANSWER in cell.metadata.get("tags", []):
                open_, asked = Slide(heading, asked, last), ""
                found.append(open_)
            elif last:  # shown if a sentence is kept of it, on a slide of its own
                open_ = None
            continue
        before = ""
        for paragraph in source.split("\n\n"):
            kept = sentences(paragraph, below=bool(last) and not before)
            if paragraph.startswith("## "):
                heading, asked, open_, last, paragraph = paragraph, "", None, [], ""
            elif paragraph.startswith("> **Predict.**"):
                found.append(Slide(heading, f"{before}\n\n{paragraph}".strip()))
                asked, open_, last, paragraph = paragraph, None, [], ""
            elif kept and open_:
                open_.kept += kept
            elif kept:
                open_ = Slide(heading, outputs=last, kept=kept)
                found.append(open_)
            before = "" if kept else paragraph
        last = []
    return [*found, last_slide(lesson, sources[end])]


def read(notebook: Path) -> list[dict]:
    """The cells of a notebook, without the links of its terms to the glossary."""
    from nbformat import read

    cells = read(notebook, as_version=4).cells
    for cell in cells:
        cell.source = LINK.sub(r"\1", cell.source)
    return cells


def pictures(cell: dict) -> list[dict]:
    outputs = cell.get("outputs", [])
    return [one for one in outputs if "<img" in one.get("data", {}).get("text/html", "")]


def sentences(paragraph: str, below: bool) -> list[str]:
    """What a paragraph has in bold, where it is a sentence, and no term and no heading.

    Args:
        below: whether the paragraph stands right below an output, of which the first words tell.
    """
    found = []
    for match in BOLD.finditer(paragraph):
        least = 4 if match.start() or below else 6  # a paragraph's first words may be its heading
        whole = match[1].endswith(".") or match[1][0].isupper()
        if whole and len(match[1].split()) >= least and not match[1].endswith("?"):
            found.append(match[1][0].upper() + match[1][1:].rstrip(".,:;") + ".")
    return found


def last_slide(lesson: Path, turn: str) -> Slide:
    """The lab of a lesson; where there is none, the tasks of the lesson itself."""
    found = re.search(r"/labs/(\w+_lab\.ipynb)\)", turn)  # it may be the lab of the next lesson
    if found is None:
        return Slide(*turn.split("\n\n", 1))
    lab = SOURCES / found[1]
    told = read(lab)[0].source.split("\n\n")
    heading = f"## [{told[0].removeprefix('# ')}](../notebooks/labs/{lab.stem}.html)"
    return Slide(heading, "\n\n".join([*told[1:3], turn.split("\n\n")[-1]]))


def fetch_reveal() -> None:
    """See to reveal.js. Raises SystemExit as `docs.site.npm.fetch`."""
    fetch(REVEAL, DECK, "A page of slides")


def build(out: Path) -> None:
    """Write a page of slides for each lesson, and what shows them, into a folder."""
    from nbconvert import SlidesExporter
    from nbformat.v4 import new_notebook

    fetch_reveal()
    (out / "reveal").mkdir(parents=True, exist_ok=True)
    for name in ("reveal.css", "reveal.js"):
        shutil.copy(REVEAL / "dist" / name, out / "reveal")
    for file in DECK.glob("slides.*"):
        shutil.copy(file, out)
    plain = {"exclude_input": True, "exclude_output_prompt": True, "exclude_anchor_links": True}
    where = {"template_name": DECK.name, "extra_template_basedirs": [str(DECK.parent)]}
    exporter = SlidesExporter(**plain, **where, exclude_input_prompt=True)
    for lesson in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        made = slides(lesson)
        deck = new_notebook(cells=[cell for slide in made for cell in slide.cells()])
        deck.metadata["title"] = made[0].heading.partition("]")[0].removeprefix("# [")
        page, _ = exporter.from_notebook_node(deck)
        (out / f"{lesson.stem}.html").write_text(page, "utf-8")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/slides", metavar="FOLDER")
    text = "only fetch what npm has to fetch, for builds without a network"
    parser.add_argument("--set-up", action="store_true", help=text)
    args = parser.parse_args(argv)
    fetch_reveal() if args.set_up else build(args.out)


if __name__ == "__main__":
    main(sys.argv[1:])
