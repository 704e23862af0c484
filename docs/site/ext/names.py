"""`name` in a docstring: a link where it names something public of the package, else code."""

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.util.nodes import make_refnode

KINDS = {"function", "class", "method", "exception", "module"}


def name_role(role, rawtext, text, lineno, inliner, options=None, content=None):
    text = nodes.unescape(text)
    here = inliner.document.settings.env.ref_context.get("py:module")
    code = nodes.literal("", text)
    return [pending_xref("", code, reftype="name", reftarget=text, module=here)], []


def resolve(app, env, node, content):
    """What a name means: in its own module first, then the only one of that name, else nothing.

    A module is meant by `words.py` or `mlm_lib.words` alone: many an argument is named like one.
    """
    if node.get("reftype") != "name":
        return None
    target = node["reftarget"].removesuffix("()")
    if target.endswith(".py"):
        target = f"mlm_lib.{target.removesuffix('.py')}"
    objects = {n: o for n, o in env.domains["py"].objects.items() if o.objtype in KINDS}
    inside = f"{node['module']}.{target}"
    # Outside its module a method is named with its class: mlm_lib.masking.mask_tokens has two dots.
    ends = [
        f for f in objects if f.endswith(f".{target}") and f.count(".") == 2 + target.count(".")
    ]
    found = [full for full in (target, inside) if full in objects] or ends
    if len(found) != 1:
        return content
    entry, docname = objects[found[0]], node["refdoc"]
    return make_refnode(app.builder, docname, entry.docname, entry.node_id, content, found[0])


def setup(app):
    app.add_role("name", name_role)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
