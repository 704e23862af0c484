"""Slides are what a lesson holds, and nothing else: chosen, complete, and on the screen."""

import sys

import pytest
from browser import barriers, chromium, launched, served, watch
from built_site import ROOT, read_page
from glossary_links import unlinked
from nbformat import v4, write
from notebook_form import FOLDED, alternative_texts, read

sys.path.insert(0, str(ROOT))
from docs.site import build as site_builder
from docs.site import npm, slides

LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def printed(text, tag=None):
    output = v4.new_output("stream", name="stdout", text=text)
    return v4.new_code_cell(outputs=[output], metadata={"tags": [tag] if tag else []})


def figure():
    html = {"text/html": '<img src="data:," alt="A figure.">', "text/plain": "figure"}
    return v4.new_code_cell(outputs=[v4.new_output("display_data", html)])


@pytest.fixture
def made(tmp_path):
    """Makes the slides of a lesson with these cells between its set-up and its tasks."""

    def of(*cells):
        cells = [v4.new_markdown_cell(one) if isinstance(one, str) else one for one in cells]
        front = [v4.new_markdown_cell("# 99 · Ends: of words\n\n**A promise.** Long."), figure()]
        tasks = v4.new_markdown_cell("## Your turn\n\n1. Count.")
        write(v4.new_notebook(cells=[*front, *cells, tasks]), tmp_path / "99_ends.ipynb")
        title, way, *found, last = slides.slides(tmp_path / "99_ends.ipynb")
        assert "[99 · Ends: of words]" in title.heading and title.text == "A promise."
        assert way.heading == "## 99 · Ends" and way.outputs
        assert (last.heading, last.text) == ("## Your turn", "1. Count.")
        return found

    return of


def test_a_prediction_comes_before_its_answer_which_repeats_it(made):
    ask = "> **Predict.** How many?"
    question, answer = made(
        "## Why", f"It is so.\n\n{ask}", printed("3\n", FOLDED), "**So it is.**"
    )
    assert (question.heading, question.text) == ("## Why", f"It is so.\n\n{ask}")
    assert question.outputs == [] and question.kept == []
    assert (answer.text, answer.outputs[0].text) == (ask, "3\n")


def test_a_sentence_is_kept_with_the_output_above_it_and_a_term_is_not(made):
    (slide,) = made("## Why", figure(), "A **term**, and **it ends with a full stop.** More.")
    assert slide.kept == ["It ends with a full stop."] and slide.outputs
    first, second = made(figure(), "Seen.", printed("4\n"), "**This is of the second cell alone.**")
    assert first.kept == [] and second.kept == ["This is of the second cell alone."]
    assert second.outputs[0].text == "4\n"


def test_what_is_printed_beside_the_way_and_a_heading_in_bold_are_left_out(made):
    assert made("## Why", printed("5\n"), "**Short heading words.** A text.", "Is **it so?**") == []


@every_lesson
def test_no_prediction_and_no_figure_of_a_lesson_is_missing(lesson):
    cells = read(lesson).cells
    told = [unlinked(cell.source) for cell in cells]
    asked = [p for text in told for p in text.split("\n\n") if p.startswith("> **Predict.**")]
    found = slides.slides(lesson)
    places = [
        at for at, one in enumerate(found) if not one.outputs and "> **Predict.**" in one.text
    ]
    assert [found[at].text.split("\n\n")[-1] for at in places] == asked and len(asked) > 1
    assert all(found[at + 1].text == one for at, one in zip(places, asked)), "its answer is next"
    shown = [output for slide in found for output in slide.outputs]
    assert sum("data" in output for output in shown) == sum(map(len, map(alternative_texts, cells)))


def test_without_npm_the_site_is_built_without_slides_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(slides, "REVEAL", tmp_path / "reveal.js")
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


@pytest.fixture(scope="module")
def window(decks):
    """A page of a browser, and the address of the slides."""
    if chromium() is None:
        pytest.skip("no Chromium here (Debian: chromium)")
    with served(decks.parent) as root, launched() as browser:
        yield browser.new_page(viewport={"width": 1280, "height": 720}), root


OUTSIDE = """() => {
    const room = document.querySelector(".slides").getBoundingClientRect();
    return [...Reveal.getCurrentSlide().querySelectorAll("h1, h2, p, li, pre, img")].filter(one => {
        const box = one.getBoundingClientRect();
        return box.top < room.top - 1 || box.bottom > room.bottom + 1 || box.right > room.right + 1
            || one.scrollWidth > one.clientWidth + 1;
    }).map(one => `${Reveal.getState().indexh}: ${one.textContent || one.alt}`);
}"""


@pytest.mark.site
@every_lesson
def test_every_slide_fits_on_the_screen_and_nothing_comes_from_elsewhere(window, lesson):
    page, root = window
    found = watch(page, root)
    page.goto(f"{root}/slides/{lesson.stem}.html")
    page.wait_for_function("Reveal.isReady()")
    count = page.evaluate("Reveal.getTotalSlides()")
    assert count == len(slides.slides(lesson))
    for place in range(count):
        page.evaluate(f"Reveal.slide({place})")
        assert page.evaluate(OUTSIDE) == []
        small = "all => all.filter(one => one.complete && one.naturalWidth < 300)"
        assert page.locator("section.present img").evaluate_all(small) == []
    assert barriers(page) == [] and found == []
