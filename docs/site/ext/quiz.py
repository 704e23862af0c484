"""`{quiz} 02`: the questions on a lesson that are for its page.

Where scripts run, `site.js` makes a button of each option, which tells at once whether it is right,
and why. Where none runs, all that is told stands in a fold.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from classroom.questions import FOLDER, questions


class question(nodes.General, nodes.Element):
    """A fieldset, whose legend counts."""


class Quiz(SphinxDirective):
    required_arguments = 1

    def run(self):
        (number,) = self.arguments
        self.env.note_dependency(FOLDER / f"{number}.toml")
        asked = questions(number, "site")
        return [
            self.shown(one, f"Question {place} of {len(asked)}", f"question-{place}")
            for place, one in enumerate(asked, 1)
        ]

    def shown(self, one, legend, name):
        told = [f"**{'Wrong' if o.mistake else 'Right'}.** {o.because}" for o in one.options]
        kinds = ["wrong" if option.mistake else "right" for option in one.options]
        options = self.list_of([option.say for option in one.options], kinds)
        ask = nodes.container("", *self.parse_text_to_nodes(one.ask), ids=[name])
        fold = nodes.raw("", "<details><summary>Show the key</summary>", format="html")
        end = nodes.raw("", "</details>", format="html")
        return question("", ask, options, fold, self.list_of(told, kinds), end, legend=legend)

    def list_of(self, texts, kinds):
        found = nodes.enumerated_list(enumtype="upperalpha")
        for text, kind in zip(texts, kinds):
            found += nodes.list_item("", *self.parse_text_to_nodes(text), classes=[kind])
        return found


def visit(translator, node):
    name = node[0]["ids"][0]
    opening = f'<fieldset class="quiz" aria-describedby="{name}"><legend>{node["legend"]}</legend>'
    translator.body.append(opening)


def depart(translator, node):
    translator.body.append("</fieldset>")


def setup(app):
    app.add_node(question, html=(visit, depart))
    app.add_directive("quiz", Quiz)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
