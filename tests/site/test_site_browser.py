"""The site in a browser: it works under any path, without a network, for every reader."""

import io

import pytest
from browser import barriers, chromium
from matplotlib.image import imread

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: chromium)"),
]
LESSON, LAB = "notebooks/09_pretraining.html", "notebooks/labs/02_masking_lab.html"
PAGES = ["index.html", LESSON, LAB, "glossary.html", "api/masking.html", "benchmarks.html"]


@pytest.mark.parametrize("width", [390, 1280])
def test_home_shows_its_whole_figure_and_leads_to_a_lesson(open_page, width):
    page = open_page("index.html", width=width)
    figure = page.locator(".stored-figure img")
    assert figure.is_visible() and figure.evaluate("image => image.naturalWidth") > 300
    ends = "image => image.parentElement.scrollWidth - image.parentElement.clientWidth"
    assert figure.evaluate(ends) == 0
    page.locator(".lesson-map a", has_text="Masking").click()
    page.wait_for_url("**/notebooks/02_masking.html")
    assert page.locator("h1").inner_text().startswith("02")


def test_a_lesson_shows_its_figures_and_keeps_its_answers_until_asked(open_page):
    page = open_page(LESSON)
    shown = page.locator(".cell_output img").evaluate_all(
        "images => images.map(image => [image.alt.length > 30, image.naturalWidth > 300])"
    )
    assert shown and all(map(all, shown))
    answer = page.locator("details.hide", has=page.locator(".cell_output")).first
    inside, button = answer.locator(".cell_output"), answer.locator("summary")
    assert not inside.is_visible() and button.inner_text().strip() == "Show the answer"
    button.focus()
    page.keyboard.press("Enter")
    assert inside.is_visible() and button.inner_text().strip() == "Hide the answer"


def test_a_term_leads_to_its_place_in_the_glossary(open_page):
    page = open_page("notebooks/02_masking.html")
    page.locator("a.term", has_text="sampling band").click()
    page.wait_for_url("**/glossary.html#term-sampling-band")
    assert page.locator("#term-sampling-band").is_visible()


@pytest.mark.parametrize("way", ["served", "from a folder"])
def test_a_search_finds_a_lesson(open_page, site, way):
    base = {} if way == "served" else {"base": site.resolve().as_uri()}
    page = open_page("index.html", **base)
    page.locator("input[name=q]").first.fill("accidental hit")
    page.keyboard.press("Enter")
    hit = page.locator("#search-results a", has_text="Sampled softmax").first
    hit.wait_for()
    hit.click()
    page.wait_for_url("**/notebooks/12_sampled_softmax.html*")


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_a_choice_tells_at_once_and_another_may_follow(open_page, width, scheme):
    page = open_page("notebooks/02_masking.html", width=width, color_scheme=scheme)
    box = page.locator("fieldset.quiz").first
    told = box.locator("[role=status]:not(:empty)")
    assert box.get_by_role("button").count() == 4 and told.count() == 0
    assert not page.get_by_text("Show the key").count()
    box.locator(".wrong button").first.focus()
    page.keyboard.press("Enter")
    assert told.count() == 1 and told.inner_text().startswith("Wrong. ")
    box.locator(".right button").click()
    assert told.count() == 2 and box.locator(".right [role=status]").inner_text()[:7] == "Right. "
    box.locator(".right button").click()
    assert told.count() == 2
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_answers_stand_in_a_fold(browser, address):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{address}/notebooks/02_masking.html")
    box = page.locator("fieldset.quiz").first
    answer = box.get_by_text("Right.")
    assert not box.get_by_role("button").count() and not answer.is_visible()
    box.get_by_text("Show the key").click()
    assert answer.is_visible()
    page.close()


WIDE = [
    "using.html",
    "instructors.html",
    "labs.html",
    "notebooks/13_evaluation.html",
]  # have tables


@pytest.mark.parametrize(
    "name, width", [*((name, 390) for name in [*PAGES, *WIDE]), (LESSON, 1100), (LESSON, 1280)]
)
def test_no_page_is_wider_than_its_window(open_page, name, width):
    page = open_page(name, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width


@pytest.mark.parametrize("name", ["index.html", "using.html", LESSON])
def test_code_keeps_its_lines_on_a_phone(open_page, name):
    page = open_page(name, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    looks = page.locator("article pre").evaluate_all(
        """all => all.map(
            one => [one.scrollWidth > one.clientWidth, getComputedStyle(one).whiteSpace]
        )"""
    )
    assert {look for _, look in looks} == {"pre"}
    assert name != LESSON or any(scrolls for scrolls, _ in looks)


@pytest.mark.parametrize("name", ["benchmarks.html", "instructors.html", "glossary.html"])
def test_a_page_that_is_no_lesson_has_at_most_twenty_screens_of_a_phone(open_page, name):
    page = open_page(name, width=390)
    assert page.evaluate("document.documentElement.scrollHeight") <= 20 * 844


def test_code_of_a_hundred_characters_fits_its_line(open_page):
    page = open_page(LESSON)
    lines = page.evaluate(
        """() => {
            const pre = document.querySelector(".cell_input pre").cloneNode();
            pre.textContent = "x".repeat(100);
            document.querySelector(".cell_input .highlight").append(pre);
            const line = document.createRange();
            line.selectNodeContents(pre);
            return new Set([...line.getClientRects()].map(box => box.top)).size;
        }"""
    )
    assert lines == 1


PIXELS = 11 * 4 / 3  # of the letters of a figure, which are drawn with 11 points


def test_letters_in_figures_can_be_read(open_page):
    page = open_page(LESSON)
    scales = page.locator(".cell_output img").evaluate_all(
        "images => images.map(one => one.width / one.naturalWidth)"
    )
    assert min(scales) * PIXELS >= 10


def test_on_a_phone_a_figure_is_seen_whole_and_a_tap_enlarges_it(open_page):
    page = open_page(LESSON, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    figures, large = page.locator(".cell_output .figure"), page.locator("dialog.enlarged")
    for figure in figures.all():
        box = figure.locator("img").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    figures.first.locator("img").click()
    assert large.locator("img").evaluate("one => one.width === one.naturalWidth")
    assert large.locator("img").get_attribute("alt") == figures.first.locator("img").get_attribute(
        "alt"
    )
    assert barriers(page) == []
    large.get_by_role("button", name="Close").click()
    assert not large.is_visible()


def test_a_figure_is_enlarged_with_the_keyboard_and_the_focus_comes_back(open_page):
    page = open_page(LESSON, width=390)
    button = page.get_by_role("button", name="Enlarge the figure").first
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog.enlarged").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog.enlarged").is_visible()
    assert button.evaluate("one => one === document.activeElement")


def test_a_figure_in_its_full_size_has_no_button(open_page):
    page = open_page("read_your_curve.html")
    assert page.locator(".figure img").first.is_visible()
    assert not page.locator(".figure button:visible").count()


def test_what_scrolls_can_be_reached_by_keyboard_and_nothing_else(open_page):
    page = open_page(LESSON, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.wait_for_timeout(300)
    boxes = page.locator("pre, .text_html").evaluate_all(
        "all => all.map(one => [one.scrollWidth > one.clientWidth, one.tabIndex === 0])"
    )
    assert any(wide for wide, _ in boxes)
    assert all(wide == reached for wide, reached in boxes)


@pytest.mark.parametrize("chosen", ["by the system", "on the page"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_follow_the_theme(open_page, theme, chosen):
    if chosen == "by the system":
        page = open_page(LESSON, color_scheme=theme)
    else:
        page = open_page(LESSON, color_scheme={"light": "dark", "dark": "light"}[theme])
        page.evaluate(f"document.body.dataset.theme = '{theme}'")
    picture = page.locator(".cell_output img").first.screenshot()
    drawn = 255 * imread(io.BytesIO(picture))[..., :3]  # (height, width, 3)
    color = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    ground = [int(part) for part in color[4:-1].split(",")[:3]]
    assert drawn[2, 2].round().tolist() == ground, "the ground of the page"
    assert drawn.mean() > 200 if theme == "light" else drawn.mean() < 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name, width", [*((name, 1280) for name in PAGES), (LESSON, 390)])
def test_no_reader_meets_a_barrier(open_page, name, width, scheme):
    page = open_page(name, width=width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.wait_for_timeout(300)
    assert barriers(page) == []
