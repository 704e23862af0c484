"""What readers search for in other words than a page has, or in numbers.

Sphinx's search looks up the words of a question one by one. It leaves out numbers, so that it
finds nothing for "80/10/10", and it wants each word on the page itself, so that "loss stuck" finds
nothing where a curve "stays". An entry of the index is compared with the whole question and comes
first. `docs/site/searched.toml` holds such entries. A term of the glossary that has a hyphen is
found without it, too.
"""

import tomllib
from pathlib import Path

from sphinx import addnodes
from sphinx.util import logging

FILE = Path(__file__).resolve().parents[1] / "searched.toml"
logger = logging.getLogger(__name__)


def entries():
    """[(question, page, place on the page or "")]"""
    places = tomllib.loads(FILE.read_text("utf-8"))
    return [(one, *place.partition("#")[::2]) for place, asked in places.items() for one in asked]


def add_entries(app, doctree):
    found = []
    for ask, page, place in entries():
        if page == app.env.docname:
            found.append((ask, id_of(doctree, place) if place else ""))
    if app.env.docname == "glossary":
        for node in doctree.findall(addnodes.index):
            found += [(e[1].replace("-", " "), e[2]) for e in node["entries"] if "-" in e[1]]
    if found:
        single = [("single", ask, place, "main", None) for ask, place in found]
        doctree.insert(0, addnodes.index(entries=single))


def id_of(doctree, place):
    """The id of a place that Sphinx's search can look up: one that begins with a letter."""
    if place not in doctree.ids:
        logger.warning("%s leads to a place that is not there: #%s", FILE.name, place)
        return ""
    return next(one for one in doctree.ids[place]["ids"] if one[0].isalpha())


def setup(app):
    app.connect("doctree-read", add_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
