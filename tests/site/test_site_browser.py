"""The site in a browser: it works under any path, without a network, for every reader."""

import pytest
from browser import barriers, chromium, launched, served, watch

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: chromium)"),
]
LESSON, LAB = "notebooks/09_pretraining.html", "notebooks/labs/02_masking_lab.html"
PAGES = ["index.html", LESSON, LAB, "glossary.html", "api/masking.html", "benchmarks.html"]


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def address(site):
    """The site's, below a path, as on a host that holds other sites, too."""
    with served(site.parent) as root:
        yield f"{root}/{site.name}"


@pytest.fixture
def open_page(browser, address):
    """Opens a page of the site; at the end nothing may have gone wrong on any of them."""
    opened = []

    def open_(name, *, width=1280, scheme="light", base=address):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        opened.append((page, watch(page, base)))
        page.goto(f"{base}/{name}")
        return page

    yield open_
    for page, found in opened:
        page.close()
        assert found == []


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
    page = open_page("notebooks/02_masking.html", width=width, scheme=scheme)
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
def test_code_wraps_on_a_phone(open_page, name):
    page = open_page(name, width=390)
    cut = page.locator("article pre:not(.cell_output pre)").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
    )
    assert cut == []


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


@pytest.mark.parametrize("width, least", [(1280, 10), (390, 9)])
def test_letters_in_figures_can_be_read(open_page, width, least):
    """The course's figures are drawn with 100 dots an inch and letters of 11 points, 15 pixels."""
    page = open_page(LESSON, width=width)
    scales = page.locator(".cell_output img").evaluate_all(
        "images => images.map(i => (i.getBoundingClientRect().width - 16) / i.naturalWidth)"
    )
    assert min(scales) * 15 >= least


def test_what_scrolls_can_be_reached_by_keyboard_and_nothing_else(open_page):
    page = open_page(LESSON, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.wait_for_timeout(300)
    boxes = page.locator("pre, .text_html").evaluate_all(
        "all => all.map(one => [one.scrollWidth > one.clientWidth, one.tabIndex === 0])"
    )
    assert any(wide for wide, _ in boxes)
    assert all(wide == reached for wide, reached in boxes)


def test_the_dark_theme_keeps_figures_on_a_light_card(open_page):
    page = open_page(LESSON, scheme="dark")
    color = "one => getComputedStyle(one).backgroundColor"
    red, green, blue = page.locator("body").evaluate(color)[4:-1].split(",")[:3]
    assert max(map(int, (red, green, blue))) < 60
    assert page.locator(".cell_output img").first.evaluate(color) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name, width", [*((name, 1280) for name in PAGES), (LESSON, 390)])
def test_no_reader_meets_a_barrier(open_page, name, width, scheme):
    page = open_page(name, width=width, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.wait_for_timeout(300)
    assert barriers(page) == []
