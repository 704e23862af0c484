"""The site in a browser, as somebody uses it who comes back: search, folds, what has been done."""

from functools import partial
from urllib.parse import quote

import pytest
from browser import barriers, chromium, watch

from docs.site.ext.searched import entries

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: chromium)"),
]
SCREENS = 20  # of a phone, 844 pixels tall


@pytest.fixture
def open_page(open_page):
    """Opens pages on a phone."""
    return partial(open_page, width=390)


# ---- search --------------------------------------------------------------------------------------


def first_hit(page):
    hit = page.locator("#search-results li > a").first
    hit.wait_for()
    return hit.get_attribute("href")


# A section may have several ids, and Sphinx takes only one that begins with a letter.
SAME_SECTION = """([one, other]) => document.getElementById(one).closest("section") ===
    document.getElementById(other).closest("section")"""
FOUND = [
    ("80/10/10", "notebooks/02_masking.html#id1"),
    ("whole word masking", "glossary.html#term-whole-word-masking"),
    ("whole-word masking", "glossary.html#term-whole-word-masking"),
    ("perplexity", "glossary.html#term-perplexity"),
    ("loss stuck", "read_your_curve.html"),
    ("accidental hit", "glossary.html#term-accidental-hit"),
    ("mask_tokens", "api/masking.html#mlm_lib.masking.mask_tokens"),
]


@pytest.mark.parametrize("way", ["served", "from a folder"])
@pytest.mark.parametrize("asked, place", FOUND)
def test_the_search_leads_first_to_the_page_that_answers(open_page, site, way, asked, place):
    base = {} if way == "served" else {"base": site.resolve().as_uri()}
    page = open_page(f"search.html?q={quote(asked, safe='')}", **base)
    assert first_hit(page) == place


def test_each_question_that_the_site_foresees_finds_its_place(open_page):
    page = open_page("index.html")
    root = page.url.rpartition("/")[0]
    for asked, docname, place in entries():
        page.goto(f"{root}/search.html?q={quote(asked, safe='')}")
        hit = first_hit(page)
        assert hit.partition("#")[0] == f"{docname}.html", asked
        if place:
            page.goto(f"{root}/{hit}")
            assert page.evaluate(SAME_SECTION, [hit.partition("#")[2], place]), asked


# ---- folds ---------------------------------------------------------------------------------------


def test_only_lessons_are_longer_than_twenty_screens_of_a_phone(open_page, site):
    page = open_page("index.html")
    root, long = page.url.rpartition("/")[0], {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        lesson = name.startswith("notebooks/") and not name.startswith("notebooks/labs/")
        if lesson or name.startswith(("slides/", "fill-the-blank/")):
            continue
        if "This page has moved" in path.read_text("utf-8"):
            continue
        page.goto(f"{root}/{name}")
        height = page.evaluate("document.documentElement.scrollHeight")
        if height > SCREENS * 844:
            long[name] = height
    assert long == {}


def fold_of(page, title):
    return page.locator("details.fold", has=page.locator("summary", has_text=title))


def test_a_fold_opens_by_keyboard_and_all_open_by_a_button(open_page):
    page = open_page("notebooks/labs/02_masking_lab.html")
    fold = fold_of(page, "eighty, ten, ten")
    assert fold.get_attribute("open") is None
    fold.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert fold.get_attribute("open") is not None
    page.get_by_role("button", name="Open all sections").click()
    assert page.locator("details.fold:not([open])").count() == 0
    page.get_by_role("button", name="Close all sections").click()
    assert page.locator("details.fold[open]").count() == 0
    assert barriers(page) == []


def test_a_link_to_a_section_opens_its_fold(open_page):
    page = open_page("labs.html#eighty-ten-ten")
    fold = fold_of(page, "02.3 eighty, ten, ten")
    fold.locator("li").first.wait_for()
    assert page.locator("details.fold[open]").count() == 1
    page.wait_for_function(
        """() => {
            const top = document.querySelector("details.fold[open]").getBoundingClientRect().top;
            return top >= 0 && top < innerHeight;
        }"""
    )


def test_a_link_on_the_page_opens_a_fold_as_well(open_page):
    page = open_page("your_own_work.html")
    page.evaluate("location.hash = 'onnx'")
    page.locator("#onnx details[open]").first.wait_for()


def test_a_word_that_was_searched_is_seen_in_its_fold(open_page):
    page = open_page("search.html?q=casefold")
    page.locator("#search-results a", has_text="checks, checked").click()
    page.wait_for_url("**/labs.html*")
    page.locator(".highlighted").first.wait_for()
    assert all(
        page.locator(".highlighted").evaluate_all("all => all.map(w => w.checkVisibility())")
    )


# ---- what has been done --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["served", "from a folder"])
def test_a_lesson_is_marked_as_done_and_the_mark_is_taken_away(open_page, site, way):
    base = {} if way == "served" else {"base": site.resolve().as_uri()}
    home = open_page("index.html", **base)
    assert home.locator(".done-mark").count() == 0 and home.locator(".you-are-here").count() == 0
    lesson = open_page("notebooks/00_start_here.html", **base)
    lesson.get_by_role("button", name="Mark this lesson as done").click()
    assert lesson.locator(".sidebar-tree .done-mark").count() == 1
    home.reload()
    assert home.locator(".lesson-map .done-mark").count() == 1
    here = home.locator(".you-are-here")
    assert "1 of 20 lessons" in here.inner_text()
    assert here.get_by_role("link").get_attribute("href").endswith("01_tokenization.html")
    if way == "served":  # axe reads style sheets, and a browser refuses that to a page of a folder
        assert barriers(home) == [] and barriers(lesson) == []
    lesson.get_by_role("button", name="Remove the mark").click()
    home.reload()
    assert home.locator(".done-mark").count() == 0


def test_no_cookie_is_set(open_page):
    page = open_page("notebooks/00_start_here.html")
    page.get_by_role("button", name="Mark this lesson as done").click()
    assert page.context.cookies() == []


@pytest.mark.parametrize("kept", ["nothing", "null", "{}", "[3]"])
def test_where_nothing_useful_is_kept_the_page_goes_on(browser, address, kept):
    page = browser.new_page()
    found = watch(page, address)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('not here'); }});"
        if kept == "nothing"
        else f"localStorage.setItem('mlm-course-done', '{kept}');"
    )
    page.goto(f"{address}/notebooks/00_start_here.html")
    shown = page.get_by_role("button", name="Mark this lesson as done").count()
    assert shown == (kept != "nothing") and page.locator(".done-mark").count() == 0
    ours = [one for one in found if "not here" not in one]  # the theme itself reads its storage
    page.close()
    assert ours == []


# ---- the look ------------------------------------------------------------------------------------


def test_a_section_and_its_parts_have_headings_of_different_size(open_page):
    page = open_page("notebooks/02_masking.html")
    size = "one => parseFloat(getComputedStyle(one).fontSize)"
    h1, h2, h3 = (
        page.locator(f"article {name}").first.evaluate(size) for name in ("h1", "h2", "h3")
    )
    assert h1 > 1.2 * h2 and h2 > 1.2 * h3


def test_the_button_of_an_answer_has_all_four_edges(open_page):
    page = open_page("notebooks/02_masking.html")
    widths = page.locator("details.hide > summary").evaluate_all(
        "all => all.map(one => getComputedStyle(one).borderWidth)"
    )
    assert set(widths) == {"1px"}


def test_code_is_copied_by_a_button(open_page):
    page = open_page("notebooks/02_masking.html")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    cell = page.locator(".cell_input .highlight:visible").first
    button = cell.get_by_role("button", name="Copy")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.copybtn.success')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()
    assert page.locator(".cell_output .copybtn").count() == 0
