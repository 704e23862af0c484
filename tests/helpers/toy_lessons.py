"""Lessons of a few cells, for tests of what reads a lesson."""

from nbformat import v4

DEEPER = "## Deeper\n\nThis section is optional.\n\n### 1. Why?"


def lesson(*cells):
    """A notebook of Markdown cells, given as texts, and of code cells."""
    return v4.new_notebook(
        cells=[v4.new_markdown_cell(one) if isinstance(one, str) else one for one in cells]
    )


def code(source, *tags):
    return v4.new_code_cell(source, metadata={"tags": list(tags)})
