"""In each lesson, the first use of a term of the glossary leads there."""

import re

from docutils import nodes

from .quiz import question

LESSON = re.compile(r"notebooks/\d\d_\w+")
CLOSED = (nodes.reference, nodes.literal, nodes.title, nodes.raw, nodes.math, question)


def entries(app):
    """The glossary: [(terms, id, definition)]. The terms of one entry mean the same."""
    found = []
    for item in app.env.get_doctree("glossary").findall(nodes.definition_list_item):
        terms = list(item.findall(nodes.term))
        meaning = item.next_node(nodes.definition).next_node(nodes.paragraph)
        found.append(([term.astext() for term in terms], terms[0]["ids"][0], meaning.astext()))
    return found


def link_first_uses(app, doctree, docname):
    if not LESSON.fullmatch(docname):
        return
    open_ = {term.lower(): entry for entry in entries(app) for term in entry[0]}
    words = sorted(map(re.escape, open_), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(words)})s?(?![\w-])", re.I)  # plurals, too
    glossary = app.builder.get_relative_uri(docname, "glossary")
    for text in list(doctree.findall(nodes.Text)):
        parts, end = [], 0
        for match in pattern.finditer(text) if is_prose(text) else ():
            terms, anchor, meaning = open_.get(match[1].lower()) or (None, None, None)
            if terms is None:
                continue
            parts.append(nodes.Text(text[end : match.start()]))
            look = {"classes": ["term"], "reftitle": meaning, "internal": True}
            parts.append(nodes.reference("", match[0], refuri=f"{glossary}#{anchor}", **look))
            end = match.end()
            for term in terms:
                del open_[term.lower()]
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def is_prose(text):
    """Whether a text stands in a paragraph, and in no link, code, title, formula or question."""
    above, node = [], text.parent
    while node is not None:
        above.append(node)
        node = node.parent
    closed = any(isinstance(node, CLOSED) for node in above)
    return not closed and any(isinstance(node, nodes.paragraph) for node in above)


def setup(app):
    app.connect("doctree-resolved", link_first_uses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
