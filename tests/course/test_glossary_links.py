"""The glossary, and the links by which the terms of a lesson lead to it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from glossary_links import link_first_uses, linked
from nbformat import from_dict
from notebook_form import main_path_and_deeper, normalised, read
from toy_lessons import DEEPER, code, lesson

from docs.site import glossary
from docs.site.glossary import LINK, Entry

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
ENTRIES = glossary.entries(glossary.FILE.read_text("utf-8"))
# Entries whose lesson does not use the term yet. It is taken out when the lesson does.
NOT_YET = set()

TOYS = [
    Entry("term-token", ("token",), "A piece."),
    Entry("term-token-id", ("token id",), "A number."),
    Entry("term-byte-pair-encoding", ("byte-pair encoding", "BPE"), "Joins."),
]


def link(words, term="token"):
    return f"[{words}](../docs/glossary.md#term-{term})"


def linked_text(text):
    return linked(text, {term.lower(): entry for entry in TOYS for term in entry.terms}, set())


# ---- what is linked ------------------------------------------------------------------------------


def test_the_first_use_is_linked_and_no_other():
    assert linked_text("Tokens and a token.") == f"{link('Tokens')} and a token."


def test_of_two_terms_the_longer_one_is_taken():
    told = "A token id, the token id, then a token."
    once = f"A {link('token id', 'token-id')}, the token id, then a {link('token')}."
    assert linked_text(told) == once


def test_the_names_of_one_entry_get_one_link():
    named = f"**{link('BPE', 'byte-pair-encoding')}** is byte-pair encoding."
    assert linked_text("**BPE** is byte-pair encoding.") == named


def test_a_term_that_goes_on_in_the_next_line_is_one():
    assert linked_text("a token\nid") == "a " + link("token\nid", "token-id")


@pytest.mark.parametrize(
    "closed",
    [
        "## A token\n",
        "`token`",
        "`` a ` token ``",
        "```\na token\n```",
        "    token = 1",
        "$token$",
        "$$\ntoken\n$$",
        "[a token](labs/x.ipynb)",
        "![a token](x.png)",
        "[token]",
        "<a title='token'>",
        "https://example.org/token",
        "subtoken, token-level, tokenizer, _token",
    ],
)
def test_what_is_no_prose_is_left_alone(closed):
    assert linked_text(f"{closed}\n\nA token.") == f"{closed}\n\nA {link('token')}."


def test_prose_between_two_pieces_of_code_is_linked():
    assert linked_text("`a` token `b`") == f"`a` {link('token')} `b`"


def test_the_title_the_references_and_code_cells_get_no_link():
    cells = lesson("# Token\n\nA token.", code("# a token"), "## References\n\nA token.").cells
    before = [cell.source for cell in cells]
    link_first_uses(cells, TOYS)
    assert [cell.source for cell in cells] == before


def test_a_lesson_can_say_that_a_word_is_not_the_term():
    cells = lesson("A token, BPE.").cells
    link_first_uses(cells, TOYS, ["token"])
    assert cells[0].source == f"A token, {link('BPE', 'byte-pair-encoding')}."
    with pytest.raises(ValueError, match="'tokn'"):
        link_first_uses(cells, TOYS, ["tokn"])


# ---- how it is stored ----------------------------------------------------------------------------


def test_storing_writes_links_and_storing_again_changes_nothing():
    notebook = lesson("# T", "A token, a seed.", DEEPER, "An epoch.", "## Your turn", "An epoch.")
    once = normalised(notebook, "notebooks/99_ends.ipynb")
    assert sum(len(LINK.findall(cell.source)) for cell in once.cells) == 3
    assert not any(LINK.search(cell.source) for cell in main_path_and_deeper(once)[1]), (
        "linked outside Deeper"
    )
    assert normalised(from_dict(once), "notebooks/99_ends.ipynb") == once


def test_a_lab_gets_no_links():
    cells = normalised(lesson("# T", "A token."), "notebooks/labs/99_ends_lab.ipynb").cells
    assert not any(LINK.search(cell.source) for cell in cells)


def test_a_text_to_edit_has_no_links(tmp_path):
    draft = tmp_path / "lesson.py"
    draft.write_text(f"# %% [markdown]\n# A {link('token')}, [a lab](labs/x.ipynb).\n", "utf-8")
    subprocess.run([sys.executable, ROOT / "tools" / "glossary_links.py", draft], check=True)
    assert draft.read_text("utf-8") == "# %% [markdown]\n# A token, [a lab](labs/x.ipynb).\n"


def links_of(path):
    cells = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    return [found for source in cells for found in LINK.finditer(source)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_link_leads_to_an_entry_of_this_name_and_no_two_to_the_same(path):
    terms = {entry.anchor: [term.lower() for term in entry.terms] for entry in ENTRIES}
    found = links_of(path)
    for one in found:
        words = " ".join(one[1].lower().split())
        assert words in terms[one[2]] or words.removesuffix("s") in terms[one[2]]
    anchors = [one[2] for one in found]
    assert anchors and len(set(anchors)) == len(anchors)


# ---- the glossary itself -------------------------------------------------------------------------


def test_entries_are_sorted_named_once_and_have_the_id_of_their_term():
    terms = [term.lower() for entry in ENTRIES for term in entry.terms]
    assert len(set(terms)) == len(terms)
    first = [entry.terms[0].lower() for entry in ENTRIES]
    assert first == sorted(first)
    assert [entry.anchor for entry in ENTRIES] == [glossary.anchor(e.terms[0]) for e in ENTRIES]
    headings = re.findall(r"^#.*", glossary.FILE.read_text("utf-8"), re.M)
    assert len(headings) == 1 + len(ENTRIES), "a heading does not have the form of an entry"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.terms[0])
def test_an_entry_names_the_lesson_that_uses_its_term(entry):
    told = re.search(r"\[Lesson (\d\d)\]\(\.\./notebooks/(\1_\w+\.ipynb)\)\.$", entry.meaning)
    assert told, "the lesson that introduces the term is missing, or its link is another's"
    path = ROOT / "notebooks" / told[2]
    used = any(one[2] == entry.anchor for one in links_of(path))
    in_its_title = entry.terms[0].lower() in read(path).cells[0].source.lower()
    if entry.terms[0] in NOT_YET:
        assert not used, "its lesson uses the term now: take it out of NOT_YET"
    else:
        assert used or in_its_title, f"{told[2]} does not use the term"


def test_the_page_of_the_site_has_the_terms_and_the_text_of_each_entry():
    told = "# Glossary\n\nTerms.\n\n" + '### <a id="term-a"></a>a · b\n\nOne.\n\nTwo.\n'
    page = "# Glossary\n\nTerms.\n\n```{glossary}\n:sorted:\n\na\nb\n  One.\n\n  Two.\n```\n"
    assert glossary.page(told) == page


def test_on_the_site_a_link_is_a_reference_to_the_first_term():
    told = f"**{link('BPE', 'byte-pair-encoding')}** and [a lab](labs/x.ipynb)"
    roles = "**{term}`BPE <byte-pair encoding>`** and [a lab](labs/x.ipynb)"
    assert glossary.with_roles(told, TOYS) == roles
