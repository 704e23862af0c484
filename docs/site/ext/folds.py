"""Sections that are folded, on pages that would be very long otherwise.

`folded_sections` of `conf.py` says for patterns of pages the level of the headings whose sections
are folded. `site.js` opens a fold that a link or a search leads to.
"""

from fnmatch import fnmatch

from docutils import nodes


def fold(app, doctree, docname):
    level = next(
        (deep for pages, deep in app.config.folded_sections.items() if fnmatch(docname, pages)),
        None,
    )
    if level is None:
        return
    for section in list(doctree.findall(nodes.section)):
        if depth(section) == level:
            at = section.first_child_matching_class(nodes.title)
            opening = nodes.raw("", '<details class="fold"><summary>', format="html")
            section.insert(at, opening)
            section.insert(at + 2, nodes.raw("", "</summary>", format="html"))
            section += nodes.raw("", "</details>", format="html")


def depth(section):
    """The level of a section's heading: 1 for the title of the page."""
    levels = 1
    while isinstance(section.parent, nodes.section):
        section, levels = section.parent, levels + 1
    return levels


def setup(app):
    app.add_config_value("folded_sections", {}, "env")
    app.connect("doctree-resolved", fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
