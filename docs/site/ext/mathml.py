"""Formulas as MathML, which browsers draw by themselves: no script, no font, no other host."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def inline(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(translator, node):
    formula = tex2mathml(node.astext()).replace("<math ", '<math display="block" ', 1)
    translator.body.append(f"<div>{formula}</div>")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
