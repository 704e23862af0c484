"""The two pages that one can play with, in a browser: a sentence to mask, a curve to check."""

import base64
import json
import math
from functools import partial

import pytest
from browser import barriers, chromium, served

from docs.site.play import build
from mlm_lib import DATA
from mlm_lib.corpus import load_corpus
from mlm_lib.wordpiece import WordPieceTokenizer

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: chromium)"),
]
MASKING, CURVE = (f"{name}/index.html" for name in build.PAGES.values())
LOG = '{"step": 10, "loss": 9.5}\n{"step": 20, "loss": 9.0, "held_out_loss": 9.1}\n'
every_page = pytest.mark.parametrize("name", [MASKING, CURVE])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both pages alone; they are the same within the site."""
    out = tmp_path_factory.mktemp("play") / "site"
    build.build(out)
    return out


@pytest.fixture(scope="module")
def address(folder):
    with served(folder.parent) as root:
        yield f"{root}/{folder.name}"


@pytest.fixture
def open_page(open_page):
    """Opens pages for a reader who wants no motion, unless a test says otherwise."""
    return partial(open_page, reduced_motion="reduce")


def give(page, **files):
    """Choose files, by their names with _ in place of the point."""
    chosen = [
        {"name": name.replace("_", ".", 1), "mimeType": "text/plain", "buffer": text.encode()}
        for name, text in files.items()
    ]
    page.set_input_files("#files", chosen)


# ------------------------------------------------------------------------------------ both


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nobody_is_kept_out_and_nothing_is_wider_than_the_page(open_page, name, scheme, width):
    page = open_page(name, width=width, color_scheme=scheme)
    if name == CURVE:
        page.get_by_role("button", name="thirty documents, repeated").click()
        page.click("#numbers summary")
        page.click("details:has(#texts) summary")
    else:
        page.click("#many")
        page.check("#words")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert barriers(page) == []


@every_page
def test_the_theme_that_was_chosen_on_the_site_holds_here(open_page, name):
    page = open_page(name, color_scheme="light")
    color = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(color)
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    assert page.evaluate(color) != light


@every_page
def test_a_page_that_was_opened_as_a_file_works(open_page, folder, name):
    page = open_page(name, base=folder.resolve().as_uri())
    if name == CURVE:
        page.get_by_role("button", name="a sound run").click()
        assert page.is_visible("#chart svg")
        page.click("details:has(#texts) summary")
        text = {"name": "t.txt", "mimeType": "text/plain", "buffer": b"a film a film"}
        page.set_input_files("#texts", text)
        page.get_by_text("4 tokens of course-bert").wait_for()
    else:
        assert page.inner_text("#status").startswith("Draw 1: ")


@every_page
def test_a_page_weighs_little_and_asks_for_few_files(open_page, folder, name):
    page = open_page(name)
    names = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    files = [folder / one.split(f"/{folder.name}/")[1] for one in names if one.startswith("http")]
    assert len(files) <= 5
    assert sum(file.stat().st_size for file in files) < 130_000


def test_both_are_reached_from_the_site_and_lead_back(open_page, site):
    base = site.resolve().as_uri()
    ways = {
        "notebooks/02_masking.html": MASKING,
        "notebooks/09_pretraining.html": CURVE,
        "read_your_curve.html": CURVE,
    }
    page = open_page(MASKING, base=base)
    for way, name in ways.items():
        page.goto(f"{base}/{way}")
        page.locator(f'article a[href$="{name}"]').click()
        page.wait_for_url(f"**/{name}")
    page.get_by_role("button", name="another vocabulary").click()
    page.locator("#verdict a").click()
    page.wait_for_url("**/read_your_curve.html#another-vocabulary")
    assert page.locator("#another-vocabulary").is_visible()
    for title, name in {"Mask a sentence": MASKING, "Check your curve": CURVE}.items():
        page.locator(".sidebar-tree").get_by_role("link", name=title).click()
        page.wait_for_url(f"**/{name}")
        page.get_by_role("link", name="← The course").click()
        page.wait_for_url("**/index.html")


# ------------------------------------------------------------------------------------ masking


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.from_vocab(DATA / "course-bert")


def row(page):
    """What the boxes say: (token, what the model reads, label) for each."""
    return page.locator("#tokens li").evaluate_all(
        "all => all.map((one) => [...one.querySelectorAll('.token-name, .reads, .label')]"
        ".map((part) => part.textContent))"
    )


def test_the_boxes_show_the_tokens_of_the_course_and_their_labels(open_page, tokenizer):
    page = open_page(MASKING)
    passage = load_corpus(DATA / "passages.txt")[0]
    page.select_option("#examples", label="the paragraph of the lesson")
    boxes = row(page)
    assert [token for token, _, _ in boxes] == tokenizer.tokenize(f"[CLS] {passage} [SEP]")
    ids = tokenizer.vocab
    fates = page.locator("#tokens li").evaluate_all("all => all.map((one) => one.className)")
    assert {"card mask", "card "} <= set(fates)
    for (token, read, label), fate in zip(boxes, fates):
        assert label == ("−100" if fate == "card " else str(ids[token]))
        if fate in ("card ", "card kept"):
            assert read == token
        if fate == "card mask":
            assert read == "[MASK]"


def test_the_counts_are_those_of_the_boxes_and_the_line(open_page):
    page = open_page(MASKING)
    page.select_option("#examples", label="the paragraph of the lesson")
    for _ in range(3):
        page.click("#again")
        number = {
            fate: page.locator(f"#tokens .{fate}").count() for fate in ("mask", "random", "kept")
        }
        cells = page.locator("#counts tbody tr td:nth-child(2)").all_inner_texts()
        chosen = sum(number.values())
        assert cells == [str(n) for n in (chosen, *number.values(), 122 - chosen)]
        assert page.locator("#line .stroke.chosen").count() == chosen
        assert f": {chosen} of 122 tokens" in page.inner_text("#status")
    assert page.inner_text("#status").startswith("Draw 4: ")


def test_a_higher_rate_adds_tokens_and_takes_none_away(open_page):
    page = open_page(MASKING)
    chosen = set()
    page.focus("#rate")
    for _ in range(6):
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        labels = [label for _, _, label in row(page)]
        now = {place for place, label in enumerate(labels) if label != "−100"}
        assert chosen <= now
        chosen = now
    assert page.inner_text("#rate-shown") == "75%" and len(chosen) > 8


def test_whole_words_share_their_fate(open_page):
    page = open_page(MASKING)
    page.check("#words")
    page.fill("#rate", "50")
    for _ in range(10):
        page.click("#again")
        fates = page.locator("#tokens li").evaluate_all("all => all.map((one) => one.className)")
        tokens = [token for token, _, _ in row(page)]
        for place, token in enumerate(tokens):
            if token.startswith("##"):
                assert fates[place] == fates[place - 1]


def test_draws_fill_the_band(open_page):
    page = open_page(MASKING)
    page.select_option("#examples", label="the paragraph of the lesson")
    mean, deviation = 122 * 0.15, math.sqrt(122 * 0.15 * 0.85)
    band = f"from {mean - 1.96 * deviation:.1f} to {mean + 1.96 * deviation:.1f} tokens"
    assert band in page.inner_text("#band-text")
    assert "there is one draw" in page.inner_text("#inside")
    for _ in range(10):
        page.click("#many")
    told = page.inner_text("#inside").split()
    assert told[1] == "1,001" and 0.92 < int(told[3]) / 1001 < 0.98
    page.fill("#rate", "40")  # the same draws, at another rate
    assert page.inner_text("#inside").startswith("Of 1,001 draws")


def test_who_wants_motion_sees_the_band_fill(open_page):
    page = open_page(MASKING, reduced_motion="no-preference")
    page.click("#many")
    page.get_by_text("Of 101 draws").wait_for()


def test_a_text_without_a_token_is_told(open_page):
    page = open_page(MASKING)
    page.fill("#text", " ")
    page.get_by_text("Write a word or more").wait_for()
    assert not page.is_visible("#tokens") and page.is_disabled("#again")
    page.fill("#text", "one")
    page.get_by_text("of 1 token").wait_for()
    assert len(row(page)) == 3


# ------------------------------------------------------------------------------------ curves


def test_an_example_is_drawn_with_its_lines_and_told(open_page):
    page = open_page(CURVE)
    page.get_by_role("button", name="labels copied after masking").focus()
    page.keyboard.press("Enter")
    assert "copied after masking" in page.inner_text("#verdict")
    assert page.locator("#chart .curve").count() == 2
    assert page.locator("#chart line.landmark").count() == 3
    told = page.locator("#chart svg").get_attribute("aria-label")
    assert "ln V at 5.73, unigram line at 4.53, floor at 0.19" in told
    checks = page.locator("#checks li").all_inner_texts()
    assert len(checks) == 8 and "A fault." in checks[0]
    page.click("#numbers summary")
    assert page.locator("#numbers tbody tr").count() == 31  # 30 of the log, and step 0


def test_a_file_gets_v_from_its_config_or_from_the_field(open_page):
    page = open_page(CURVE)
    give(page, log_jsonl=LOG)
    page.get_by_text("log.jsonl is open.").wait_for()
    assert "ln V = 10.33" in page.inner_text("#checks")
    give(page, config_json=json.dumps({"vocab_size": 8192}))
    page.get_by_text("V is 8,192, from config.json.").wait_for()
    assert page.input_value("#size") == "8192" and "ln V = 9.01" in page.inner_text("#checks")
    page.fill("#size", "1000")
    assert "ln V = 6.91" in page.inner_text("#checks")
    page.fill("#size", "")
    assert "Give the size of the vocabulary" in page.inner_text("#trouble")


def test_the_lines_of_an_example_do_not_stay_for_a_file(open_page):
    page = open_page(CURVE)
    page.get_by_role("button", name="a sound run").click()
    give(page, log_jsonl=LOG)
    page.get_by_text("log.jsonl is open.").wait_for()
    fields = [page.input_value(f"#{name}") for name in ("size", "unigram", "floor")]
    assert fields == ["30522", "", ""]


def test_the_unigram_line_is_computed_from_a_text(open_page):
    page = open_page(CURVE)
    give(page, log_jsonl=LOG, vocab_txt="[UNK]\na\nb\n")
    page.get_by_text("V is 3, from vocab.txt.").wait_for()
    page.click("details:has(#texts) summary")
    text = {"name": "t.txt", "mimeType": "text/plain", "buffer": b"a b a b c"}
    page.set_input_files("#texts", text)
    page.get_by_text("4 tokens of your vocab.txt").wait_for()
    assert page.input_value("#unigram") == f"{math.log(2):.4f}"
    page.check("#eighty")
    line = 0.9 * math.log(2) + 0.2 * math.log(2)
    assert f"unigram line at {line:.2f}" in page.locator("#chart svg").get_attribute("aria-label")


def test_a_held_out_loss_can_be_chosen_where_there_are_two(open_page):
    page = open_page(CURVE)
    give(page, a_csv="step,loss,eval_a_loss,eval_b_loss\n10,9,9,8\n20,8,9.5,7\n")
    page.select_option("#held", "eval_b_loss")
    check = page.locator('[data-check="rises"]')
    assert "ends at 7.00" in check.inner_text()
    page.select_option("#held", "eval_a_loss")
    assert "ends at 9.50" in check.inner_text()


def test_a_bad_file_is_told_and_a_good_one_after_it_is_read(open_page):
    page = open_page(CURVE)
    give(page, a_csv="epoch,loss\n1,2\n")
    page.get_by_text("a.csv has no column of steps.").wait_for()
    assert not page.is_visible("#result") and page.inner_text("#status") == "No file is open."
    give(page, log_jsonl=LOG)
    page.get_by_text("log.jsonl is open.").wait_for()
    assert not page.is_visible("#trouble") and page.is_visible("#result")


def test_a_file_can_be_dropped_anywhere_on_the_page(open_page):
    page = open_page(CURVE)
    page.evaluate(
        """(content) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([atob(content)], "log.jsonl"));
          const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
          document.querySelector("h1").dispatchEvent(new DragEvent("drop", options));
        }""",
        base64.b64encode(LOG.encode()).decode(),
    )
    page.get_by_text("log.jsonl is open.").wait_for()
