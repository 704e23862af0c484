"""Reads docs/glossary.md, for the links of the lessons to it and for its page of the site.

The file is plain Markdown, so that it can be read wherever it is opened. An entry is

    ### <a id="term-byte-pair-encoding"></a>byte-pair encoding · BPE

    A vocabulary that ...

All terms of a heading mean the same, and `anchor` makes the id from the first one.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "glossary.md"
HEADING = re.compile(r'^### <a id="([\w-]+)"></a>(.+)\n', re.M)
LINK = re.compile(r"\[([^\]]*)\]\(\.\./docs/glossary\.md#([\w-]+)\)")  # as lessons have it


@dataclass(frozen=True)
class Entry:
    """What the glossary tells of a term."""

    anchor: str
    terms: tuple[str, ...]
    meaning: str


def entries(text: str) -> list[Entry]:
    """The entries of the glossary, from the text of its file."""
    _, *parts = HEADING.split(text)
    return [
        Entry(anchor, tuple(terms.split(" · ")), meaning.strip())
        for anchor, terms, meaning in zip(*[iter(parts)] * 3)
    ]


def anchor(term: str) -> str:
    """The id of an entry, made from its first term as Sphinx makes it."""
    plain = term.encode("ascii", "ignore").decode()
    return "term-" + re.sub("[^A-Za-z0-9]+", "-", plain).strip("-")


def page(text: str) -> str:
    """The glossary in the form that Sphinx reads, in which its terms can be referred to."""
    lines = [HEADING.split(text)[0].rstrip(), "", "```{glossary}", ":sorted:", ""]
    for entry in entries(text):
        meaning = [f"  {line}".rstrip() for line in entry.meaning.splitlines()]
        lines += [*entry.terms, *meaning, ""]
    return "\n".join(lines) + "```\n"


def with_roles(text: str, found: list[Entry]) -> str:
    """A lesson's text in which each link to the glossary is Sphinx's reference to a term."""
    first = {entry.anchor: entry.terms[0] for entry in found}
    return LINK.sub(lambda link: f"{{term}}`{link[1]} <{first[link[2]]}>`", text)
