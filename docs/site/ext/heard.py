"""What is heard, where a page is listened to, is what stands on it.

MyST-NB names each folded answer "Toggle hidden content", in place of the words on its button.
Sphinx calls a caption of the navigation a heading, and leaves out of which level.
"""

NAME = ' aria-label="Toggle hidden content"'
CAPTION = '<p class="caption" role="heading">'
LEVELLED = '<p class="caption" role="heading" aria-level="2">'


def mend(app, pagename, templatename, context, doctree):
    for part in ("body", "furo_navigation_tree"):
        if part in context:
            context[part] = context[part].replace(NAME, "").replace(CAPTION, LEVELLED)


def setup(app):
    app.connect("html-page-context", mend, priority=900)  # after the theme, which writes the tree
    return {"parallel_read_safe": True, "parallel_write_safe": True}
