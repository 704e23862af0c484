"""Shows the definition of a term when the pointer rests on a link to its entry in the glossary."""

from docutils import nodes


def definitions(app):
    """What each entry of the glossary says, by its place on the page."""
    found = {}
    for item in app.env.get_doctree("glossary").findall(nodes.definition_list_item):
        meaning = item.next_node(nodes.definition).next_node(nodes.paragraph).astext()
        for term in item.findall(nodes.term):
            found |= dict.fromkeys(term["ids"], meaning)
    return found


def explain(app, doctree, docname):
    """Give each link to a term its definition, and the class by which its look is known."""
    links = [one for one in doctree.findall(nodes.reference) if leads_to_a_term(one)]
    meanings = definitions(app) if links else {}
    for link in links:
        place = (link.get("refuri") or "").rpartition("#")[2] or link.get("refid")
        link["reftitle"] = meanings[place]
        link["classes"].append("term")


def leads_to_a_term(link):
    return any("std-term" in child["classes"] for child in link.findall(nodes.inline))


def setup(app):
    app.connect("doctree-resolved", explain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
