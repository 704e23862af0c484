"""Links the first use of each term in a lesson to its entry in docs/glossary.md.

`notebook_form.py` calls this whenever a lesson is stored. `python tools/glossary_links.py FILE ...`
takes the links out of texts, so that a text to edit has none. If a word of a lesson means something
else than the term, such as the heads of a coin, the lesson's metadata names it:
`"mlm_course": {"not_terms": ["head"]}`.

The address is relative. It opens the glossary from JupyterLab without a network, from a file on
GitHub, and on the site, which makes its own kind of link of it.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.site.glossary import LINK

TARGET = "../docs/glossary.md"  # seen from a lesson
# What is no prose: code, formulas, links and what else stands in brackets, tags, headings.
CLOSED = re.compile(
    r"^```.*?^```|^ {4}.*?$|^#+ .*?$|(`+)(?!`).+?(?<!`)\1(?!`)|\$\$.+?\$\$|\$[^$\n]+\$"
    r"|!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?|<[^<>\s][^<>]*>|https?://\S+",
    re.M | re.S,
)


def link_first_uses(cells, found, not_terms=()):
    """Set the links in the cells of a lesson, in the order in which the cells are given.

    The title cell and the references get none. Earlier links are taken out first, so that storing a
    lesson again changes nothing.

    Args:
        found: the entries of the glossary.
        not_terms: terms that get no link.
    """
    entries = {term.lower(): entry for entry in found for term in entry.terms}
    for term in not_terms:
        if entries.pop(term.lower(), None) is None:
            raise ValueError(f"not_terms names {term!r}, and docs/glossary.md has no such term")
    done = set()
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = unlinked(cell.source)
            if not cell.source.startswith(("# ", "## References")):
                cell.source = linked(cell.source, entries, done)


def linked(text, entries, done):
    """A text in which the first use of each term is a link.

    A longer term is taken before a shorter one that it contains, also if it gets no link: in
    "token id" the word "token" is not a use of the term "token".

    Args:
        entries: {term in small letters: its entry}
        done: the entries that have a link already. Those that get one are added.
    """
    longest_first = sorted(map(re.escape, entries), key=len, reverse=True)
    names = "|".join(longest_first).replace(r"\ ", r"[ \n]")  # a term can go on in the next line
    term = re.compile(rf"(?<![\w-])({names})s?(?![\w-])", re.I)  # the plural, too

    def link(match):
        entry = entries[" ".join(match[1].lower().split())]
        if entry in done:
            return match[0]
        done.add(entry)
        return f"[{match[0]}]({TARGET}#{entry.anchor})"

    parts, end = [], 0
    for closed in CLOSED.finditer(text):
        parts += [term.sub(link, text[end : closed.start()]), closed[0]]
        end = closed.end()
    return "".join(parts) + term.sub(link, text[end:])


def unlinked(text):
    """A text in which the links to the glossary are the words that they stand on."""
    return LINK.sub(r"\1", text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        text = Path(name).read_text("utf-8")
        Path(name).write_text(unlinked(text), encoding="utf-8", newline="\n")
