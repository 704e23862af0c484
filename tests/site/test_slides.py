"""Slides are the lesson's own cells, few words at a time, complete, and on the screen."""

import re
import shutil
import sys

import jupytext
import pytest
from browser import barriers, chromium, launched, served, watch
from built_site import ROOT, read_page
from glossary_links import unlinked
from nbformat import v4, write
from notebook_form import ANSWER, FOLDED, SET_UP, alternative_texts, main_path_and_deeper, read

sys.path.insert(0, str(ROOT))
from docs.site import build as site_builder
from docs.site import npm, slides

LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
BEGINS, SHOWN = {"slide", "subslide"}, {"slide", "subslide", "fragment"}
# Cells with these first characters are whole slides, or no prose.
WHOLE = ("# ", "## Objectives", "## Your turn", "## Recap")
NO_PROSE = (">", "|", "$$", "```", "- ", "1. ")


def kind(cell):
    return cell.metadata["slideshow"]["slide_type"]


def shown(cells):
    return [cell for cell in cells if kind(cell) in SHOWN]


def prose(cell):
    """What a cell says without its heading, or "" if it is no prose."""
    told = unlinked(cell.source)
    told = re.sub(r"^## .*\n*", "", told)
    return "" if cell.cell_type == "code" or told.startswith((*WHOLE, *NO_PROSE)) else told


@every_lesson
def test_every_cell_says_in_jupyters_words_what_it_is_on_the_slides(lesson):
    cells = read(lesson).cells
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells]
    assert set(kinds) <= {*SHOWN, "notes", "skip"}, f"no type: {kinds.index(None)}"
    hidden = [cell for cell in cells if ANSWER in cell.metadata.get("tags", [])]
    assert {kind(cell) for cell in [*main_path_and_deeper(read(lesson))[1], *hidden]} <= {"skip"}


@every_lesson
def test_every_section_of_the_main_path_shows_its_idea_in_thirty_words(lesson):
    main = main_path_and_deeper(read(lesson))[0]
    starts = [at for at, cell in enumerate(main) if cell.source.startswith("## ")]
    for start, end in zip(starts, [*starts[1:], len(main)]):
        heading = main[start].source.split("\n")[0]
        told = [len(prose(cell).split()) for cell in shown(main[start:end]) if prose(cell)]
        if not heading.startswith((*WHOLE, "## Three questions", "## References")):
            assert kind(main[start]) == "slide" and told and min(told) <= 30, heading
            assert max(told) <= 60, f"too many words on a slide of {heading!r}: {max(told)}"


@every_lesson
def test_a_prediction_is_followed_by_its_answer(lesson):
    cells = shown(read(lesson).cells)
    asked = [at for at, cell in enumerate(cells) if "**Predict.**" in cell.source]
    assert len(asked) > 1
    assert all(cells[at].source.startswith("> **Predict.**") for at in asked)
    answers = [cells[at + 1] for at in asked]
    assert all(cell.get("outputs") and FOLDED in cell.metadata["tags"] for cell in answers)


@every_lesson
def test_no_figure_of_the_main_path_is_missing_and_no_code_is_longer_than_ten_lines(lesson):
    main = main_path_and_deeper(read(lesson))[0]
    figures = [c for c in main if alternative_texts(c) and ANSWER not in c.metadata.get("tags", [])]
    assert figures == [cell for cell in shown(main) if alternative_texts(cell)]
    code = [cell for cell in shown(main) if cell.cell_type == "code"]
    plain = [c for c in code if not {SET_UP, "slide-hide-input"} & set(c.metadata.get("tags", []))]
    assert max([len(cell.source.splitlines()) for cell in plain], default=0) <= 10


def test_a_text_to_edit_keeps_the_types():
    notebook = read(LESSONS[2])
    again = jupytext.reads(jupytext.writes(notebook, "py:percent"), "py:percent")
    assert list(map(kind, again.cells)) == list(map(kind, notebook.cells))


@pytest.fixture
def made(tmp_path):
    """Makes the page of a lesson with some markdown cells after its title."""

    def of(*cells):
        title = "# 99 · Ends\n\n**A promise.** Long.\n\nNeeds: lesson 98."
        cells = [v4.new_markdown_cell(one) if isinstance(one, str) else one for one in cells]
        write(v4.new_notebook(cells=[v4.new_markdown_cell(title), *cells]), tmp_path / "99_e.ipynb")
        return slides.page(tmp_path / "99_e.ipynb")

    return of


def test_the_first_slide_is_the_title_with_its_promise_alone(made):
    page = made()
    assert '<a href="../notebooks/99_e.html">99 · Ends</a>' in page and "A promise." in page
    assert "Long." not in page and "Needs" not in page


def test_formulas_are_mathml_and_links_lead_to_the_site(made):
    page = made(
        r"So $\tfrac49$, see [there](../docs/read_your_curve.md) and [it](labs/02_m_lab.ipynb)."
    )
    assert "<mn>4</mn>" in page and "tfrac" not in page
    assert 'href="../read_your_curve.html"' in page
    assert 'href="../notebooks/labs/02_m_lab.html"' in page


def test_a_tag_keeps_long_code_off_the_slide_and_not_its_output(made):
    printed = v4.new_output("stream", name="stdout", text="4 of 9\n")
    tags = {"tags": ["slide-hide-input"]}
    page = made(v4.new_code_cell("count = 4", outputs=[printed], metadata=tags))
    assert "4 of 9" in page and "count" not in page


def test_without_npm_the_site_is_built_without_slides_and_says_so(monkeypatch, tmp_path, capsys):
    shutil.copy(slides.DECK / "package.json", tmp_path)
    monkeypatch.setattr(slides, "REVEAL", tmp_path / "node_modules" / "reveal.js")
    monkeypatch.setattr(npm.shutil, "which", lambda name: None)
    assert not site_builder.has_slides()
    told = capsys.readouterr().out
    assert "reveal.js" in told and "npm" in told and "the site has no slides" in told


# ---- in the site ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def decks(site):
    if not (site / "slides").is_dir():
        pytest.skip("the site was built without slides: npm, which fetches reveal.js, is not here")
    return site / "slides"


@pytest.mark.site
@every_lesson
def test_a_lesson_and_its_slides_lead_to_each_other(site, decks, lesson):
    there = read_page(site / "notebooks" / f"{lesson.stem}.html").all("a")
    assert f"../slides/{lesson.stem}.html" in [link.get("href") for link in there]
    back = read_page(decks / f"{lesson.stem}.html")
    assert f"../notebooks/{lesson.stem}.html" in [link.get("href") for link in back.all("a")]


@pytest.mark.site
def test_the_links_of_a_deck_lead_to_pages_of_the_site(decks):
    for deck in [decks / f"{lesson.stem}.html" for lesson in LESSONS]:
        links = [link.get("href", "") for link in read_page(deck).all("a")]
        places = [link.split("#")[0] for link in links if link.startswith("../")]
        assert [place for place in places if not (decks / place).is_file()] == [], deck.name


@pytest.fixture(scope="module")
def window(decks):
    """A page of a browser, and the address of the slides."""
    if chromium() is None:
        pytest.skip("no Chromium here (Debian: chromium)")
    with served(decks.parent) as root, launched() as browser:
        yield browser.new_page(viewport={"width": 1280, "height": 720}), root


# A slide is measured when its letters have been fitted, which takes a frame or two.
OUTSIDE = """async () => {
    for (let frame = 0; frame < 6; frame++) await new Promise(requestAnimationFrame);
    const slide = Reveal.getCurrentSlide();
    const room = document.querySelector(".slides").getBoundingClientRect();
    return [...slide.querySelectorAll("h1, h2, p, li, pre, img, math, table")].filter(one => {
        const box = one.getBoundingClientRect();
        return !one.closest("aside") && (box.bottom > room.bottom + 1 || box.right > room.right + 1
            || one.matches("pre") && (one.scrollWidth > one.clientWidth
                || parseFloat(getComputedStyle(one).fontSize) < 16));
    }).map(one => `${Reveal.getSlidePastCount() + 1}: ${one.textContent || one.alt}`);
}"""


@pytest.mark.site
@every_lesson
def test_every_slide_fits_on_the_screen_and_nothing_comes_from_elsewhere(window, lesson):
    page, root = window
    found = watch(page, root)
    page.goto(f"{root}/slides/{lesson.stem}.html")
    page.wait_for_function("Reveal.isReady()")
    page.evaluate("Reveal.configure({fragments: false})")
    kinds = [kind(cell) for cell in read(lesson).cells]
    count = page.evaluate("Reveal.getTotalSlides()")
    assert count == sum(one in BEGINS for one in kinds)
    for _ in range(count):
        assert page.evaluate(OUTSIDE) == []
        page.evaluate("Reveal.next()")
    assert page.evaluate("Reveal.isLastSlide()")
    assert barriers(page) == [] and found == []


@pytest.mark.site
def test_slides_follow_a_dark_desktop_and_figures_keep_a_white_ground(window):
    page, root = window
    page.emulate_media(color_scheme="dark")
    page.goto(f"{root}/slides/02_masking.html")
    page.wait_for_function("Reveal.isReady()")
    colour = "one => getComputedStyle(one).backgroundColor"
    dark, card = (page.locator(at).first.evaluate(colour) for at in ("body", ".slides img"))
    assert max(map(int, re.findall(r"\d+", dark))) < 40 and card == "rgb(255, 255, 255)"
    for _ in range(8):
        page.evaluate("Reveal.next()")
    assert barriers(page) == []
    page.emulate_media(color_scheme="light")


@pytest.mark.site
def test_the_key_s_opens_the_lecturers_notes_without_a_network(window):
    page, root = window
    found = []
    page.context.on("request", lambda one: found.append(one.url))
    page.goto(f"{root}/slides/02_masking.html")
    page.wait_for_function("Reveal.isReady()")
    page.evaluate("Reveal.slide(4)")
    with page.context.expect_page() as opened:
        page.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    cells = read(LESSONS[2]).cells
    start = next(at for at, one in enumerate(cells) if one.source.startswith("## Which tokens"))
    told = next(cell.source for cell in cells[start:] if kind(cell) == "notes")
    first = unlinked(told).split(".")[0]
    notes.filter(has_text=first).wait_for(timeout=10_000)
    assert [url for url in found if not url.startswith((root, "data:", "about:", "blob:"))] == []
    opened.value.close()
