"""The settings of Sphinx, which builds the site. `docs/site/build.py` gathers the pages and calls
Sphinx."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

project = "Masked language modelling, built from scratch"
author = copyright = "The MLM course authors"
language = "en"

extensions = [
    *("myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.githubpages"),
    *("sphinx_copybutton", "ext.docstring_blocks", "ext.doors", "ext.folds", "ext.heard"),
    *("ext.lesson_map", "ext.mathml", "ext.names", "ext.quiz", "ext.searched"),
    *("ext.stored_figure", "ext.terms"),
]
templates_path = ["templates"]
exclude_patterns = ["plain"]
html_context = {"blank": tags.has("blank")}  # noqa: F821 (Sphinx gives the tags)
nitpicky = True
# Types of other packages, in the signatures of ours: their own pages are not on this site.
nitpick_ignore_regex = [("py:.*", r"(torch|numpy|collections|pathlib|typing)\..*")]

# Lessons are shown with the outputs that they were committed with, and never executed here.
nb_execution_mode = "off"
nb_code_prompt_show, nb_code_prompt_hide = "Show the answer", "Hide the answer"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2  # a link such as page.md#a-section leads to a section on the site, too
html_math_renderer = "mathml"

highlight_language = "none"  # a block that names no language is a diagram, or what a program prints
copybutton_selector = "div.highlight:not(.cell_output *) pre"
copybutton_exclude = ".linenos, .gp, .go"

# {pages: the level of the headings whose sections are folded}
folded_sections = {
    "labs": 3,
    "notebooks/labs/*": 2,
    "your_own_work": 2,
    "instructors": 2,
    "scaling": 2,
    "reliability": 2,
    "benchmarks": 2,
}

default_role = "name"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_favicon = "static/mark.svg"
html_copy_source = html_show_sourcelink = False
html_use_index = html_domain_indices = False  # no page leads there: one searches
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
html_sidebars = {
    "**": [
        *("sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html"),
        *("sidebar/navigation.html", "sidebar/blank.html", "sidebar/scroll-end.html"),
    ]
}
