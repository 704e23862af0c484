"""The figures that the lessons and labs have stored: a reader can read each word in them."""

import base64
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from built_site import ROOT
from dark_theme import in_the_dark
from notebook_form import alternative_texts, read

from mlm_lib import plots

NOTEBOOKS = sorted(ROOT.glob("notebooks/[0-9]*.ipynb")) + sorted(
    ROOT.glob("notebooks/**/*_lab.ipynb")
)
STYLE = re.compile(r"([\w-]+): ([^;]+)")
NUMBER = re.compile(r"-?\d+\.?\d*")
every_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def figures(notebook):
    """The stored figures of a notebook, as SVG elements."""
    html = json.dumps(json.loads(Path(notebook).read_text("utf-8"))["cells"])
    for stored in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", html):
        yield ElementTree.fromstring(base64.b64decode(stored))


def words(figure):
    """(word, its colour, the colour under its first letter) of each text of a figure. Pixels of an
    image, such as those of a heat map, are not looked at."""
    surfaces, found = [((-9e9, -9e9, 9e9, 9e9), "#ffffff")], []

    def walk(element, left, top):
        tag, look = element.tag.rpartition("}")[2], dict(STYLE.findall(element.get("style", "")))
        moved = re.match(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        left, top = (left + float(moved[1]), top + float(moved[2])) if moved else (left, top)
        if tag == "path" and look.get("fill", "#000000") != "none" and element.get("id") is None:
            points = np.array(NUMBER.findall(element.get("d")), float).reshape(-1, 2)
            box = (*points.min(0), *points.max(0))
            opacity = float(look.get("fill-opacity", look.get("opacity", 1)))
            surfaces.append((box, blended(look.get("fill", "#000000"), opacity)))
        elif tag == "text":
            first = element if element.get("x") else next(iter(element), element)
            x = left + float(first.get("x", "0").split()[0])
            y = top + float(first.get("y", "0").split()[0]) - 3
            under = [color for box, color in surfaces if holds(box, x, y)][-1]
            found.append(("".join(element.itertext()), look.get("fill", "#000000"), under))
        elif tag != "defs":
            for child in element:
                walk(child, left, top)

    walk(figure, 0.0, 0.0)
    return found


def holds(box, x, y):
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def blended(color, opacity):
    """The colour that a surface has on white."""
    return matplotlib.colors.to_hex(1 - opacity * (1 - np.array(matplotlib.colors.to_rgb(color))))


@every_notebook
def test_each_figure_is_stored_as_an_svg(notebook):
    count = sum(len(alternative_texts(cell)) for cell in read(notebook).cells)
    assert len(list(figures(notebook))) == count, "execute the notebook again"


@every_notebook
def test_each_word_of_a_figure_can_be_read_on_what_is_under_it(notebook):
    for figure in figures(notebook):
        for word, color, under in words(figure):
            assert plots.contrast(color, under) >= 4.5, f"{word!r}: {color} on {under}"
            pair = in_the_dark(color), in_the_dark(under)
            assert plots.contrast(*pair) >= 4.5, f"{word!r}, in the dark theme: {color} on {under}"


def test_words_with_little_contrast_would_be_found():
    ax = plots.axes()
    ax.text(0.1, 0.5, "orange", color="#E69F00")
    plots.square(ax, 0.5, 0.4, 0.4, 0.2, "#0072B2")
    ax.text(0.7, 0.5, "grey", ha="center", va="center", color="#727272")
    found = {
        word: (color, under)
        for word, color, under in words(ElementTree.fromstring(plots.svg(ax.figure)))
    }
    assert found["orange"] == ("#e69f00", "#ffffff") and found["grey"] == ("#727272", "#0072b2")
