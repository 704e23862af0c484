"""The page that fills blanks, as the site holds it, served and opened in a Chromium."""

import json
import shutil

import pytest
import torch
from blank_toys import FOLDER, odd_strings, served
from browser import barriers, chromium

from mlm_lib import DATA
from mlm_lib.grammar import Grammar
from mlm_lib.pretrained import load_checkpoint
from mlm_lib.wordpiece import WordPieceTokenizer
from mlm_lib.writing import sample_tokens, write

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: chromium)"),
]
WRITER = DATA / "course-writer"
SENTENCES = [
    "i have watched this [MASK] and it was awesome .",
    "Return a [MASK] of strings, or raise an [MASK]!",
    "The café's film — naïve, 中文 — was a complete waste of [MASK].",
]
WAIT = 60_000  # milliseconds; a machine may be busy


@pytest.fixture(scope="module")
def folder(site):
    """The page's folder, which lies in the site's."""
    if not (site / "fill-the-blank").is_dir():
        pytest.skip(
            "the site was built without this page: npm, which fetches its runtime, is not here"
        )
    return site / "fill-the-blank"


@pytest.fixture(scope="module")
def lengths(folder):
    """Which lengths the page offers."""
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    return settings["writer"]["lengths"]


@pytest.fixture(scope="module")
def server(folder):
    """Where the page is, below the paths of the site and of its host; and what was missing."""
    with served(folder.parents[1]) as (url, missing):
        yield f"{url}/{folder.parent.name}/{folder.name}/", missing


@pytest.fixture(scope="module")
def bert():
    return load_checkpoint("course-bert")


@pytest.fixture
def open_page(browser, server):
    """A function that opens the page; at the end nothing may have gone wrong in it."""
    url, missing = server
    host = url.split("/", 3)[2]
    contexts, trouble = [], []

    def opened(wait="#answer:not([hidden])", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda told: trouble.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda asked: trouble.append(asked.url) if _outside(asked) else None)
        page.goto(url + "index.html")
        page.click("#fetch")
        page.wait_for_selector(wait)
        return page

    def _outside(request):
        return not request.url.startswith((f"http://{host}/", "data:", "blob:"))

    yield opened
    for context in contexts:
        context.close()
    assert trouble == [] and missing == []


@pytest.fixture
def page(open_page):
    return open_page()


# ------------------------------------------------------------------------------------ helpers


def ask(page, text):
    """Type a text and wait for the answer to it."""
    asked = page.evaluate("page.asked")
    page.fill("#text", text)
    page.wait_for_function(f"page.asked > {asked} && page.shown?.number === page.asked")


def settled(page):
    page.wait_for_function("page.shown?.number === page.asked")


def column(page, name):
    """{word: number} of a column of the table."""
    return page.evaluate(
        """(name) => {
          const heads = [...document.querySelectorAll("#bars thead th")].map((e) => e.textContent);
          const at = heads.indexOf(name) - 1;
          return Object.fromEntries([...document.querySelectorAll("#bars tbody tr")].map((row) =>
            [row.cells[0].textContent, Number(row.querySelectorAll(".number")[at].dataset.value)]));
        }""",
        name,
    )


def torch_says(bert, text):
    """(probabilities (M, V), attentions (L, A, T, T), the blanks' places) for a text."""
    model, tokenizer = bert
    ids = torch.tensor([tokenizer.encode(text)])
    places = (ids[0] == tokenizer.mask_token_id).nonzero().flatten()
    with torch.no_grad():
        chances = model(ids)["logits"][0, places].softmax(-1)
        looked = model.embedder(ids, output_attentions=True).attentions
    return chances, torch.cat(looked), places.tolist()


def assert_column_is(column, chances, tokenizer, tolerance=1e-3):
    words = [word for word in column if word != "all others"]
    expected = {word: chances[tokenizer.get_vocab()[word]].item() for word in words}
    assert len(words) >= 8 and sum(column.values()) == pytest.approx(1, abs=1e-6)
    assert {word: column[word] for word in words} == pytest.approx(expected, abs=tolerance)
    assert chances.topk(8).values.tolist() == pytest.approx(
        sorted(expected.values(), reverse=True)[:8], abs=tolerance
    )


def words_of(page):
    return page.locator("#words button").all_inner_texts()


def choose(page, label):
    asked = page.evaluate("page.asked")
    page.select_option("#examples", label=label)
    page.wait_for_function(f"page.asked > {asked} && page.shown?.number === page.asked")


# ------------------------------------------------------------------------------------ asking


@pytest.mark.parametrize("text", SENTENCES)
def test_probabilities_are_those_of_torch(page, bert, text):
    ask(page, text)
    chances, _, places = torch_says(bert, text)
    assert page.is_visible("#which") == (len(places) > 1)
    for blank in range(len(places)):
        if len(places) > 1:
            page.select_option("#blanks", str(blank))
        assert_column_is(column(page, "model"), chances[blank], bert[1], 1e-5)
    first = bert[1].convert_ids_to_tokens(chances[-1].argmax().item())
    assert first in page.inner_text("#status")


def test_a_burst_of_keys_is_one_question(page):
    before = page.evaluate("page.asked")
    page.evaluate(
        """() => { for (const end of "abcdefgh") {
          text.value = "a [MASK] " + end; text.dispatchEvent(new Event("input")); } }"""
    )
    page.wait_for_function(f"page.asked > {before} && page.shown?.number === page.asked")
    page.wait_for_timeout(500)
    assert page.evaluate("page.asked") == before + 1
    assert page.get_attribute("#bars", "data-text") == "a [MASK] h"


@pytest.mark.parametrize(
    "text, told",
    [
        ("no blank at all", "Write [MASK], in capitals"),
        ("[mask]", "Write [MASK], in capitals"),
        ("", "Write [MASK], in capitals"),
        ("very " * 300 + "[MASK]", "301 tokens; the model reads 254"),
    ],
)
def test_what_cannot_be_asked_is_told(page, text, told):
    page.fill("#text", text)
    page.get_by_text(told).wait_for()
    assert not page.is_visible("#answer")
    ask(page, "and then a [MASK] again .")
    assert page.is_visible("#answer")


def test_a_blank_is_inserted_at_the_cursor(page):
    ask(page, "a [MASK] of strings")
    page.evaluate("text.setSelectionRange(2, 8)")
    page.click("#insert")
    settled(page)
    assert page.input_value("#text") == "a [MASK] of strings"
    page.evaluate("text.setSelectionRange(0, 0)")
    page.click("#insert")
    settled(page)
    assert page.input_value("#text") == "[MASK]a [MASK] of strings"
    assert page.locator("#blanks option").count() == 2


# ------------------------------------------------------------------------------------ moving


def test_a_word_is_moved_by_buttons_keys_and_drag(page, bert):
    text = "the film was great and the music was [MASK] ."
    ask(page, text)
    before = column(page, "model")
    page.click("#words li:nth-child(2) button")
    page.click("#move-right")
    settled(page)
    moved = "the was film great and the music was [MASK] ."
    assert page.input_value("#text") == moved and words_of(page) == moved.split()
    assert_column_is(column(page, "model"), torch_says(bert, moved)[0][0], bert[1])
    was = column(page, "before")  # what the model said of the same word before the move
    assert {word: was[word] for word in before if word in was and word != "all others"} == {
        word: before[word] for word in before if word in was and word != "all others"
    }
    page.focus("#words li:nth-child(3) button")
    page.keyboard.press("Shift+ArrowLeft")
    settled(page)
    assert page.input_value("#text") == text
    assert page.evaluate("document.activeElement.textContent") == "film"
    assert "film is now word 2 of 10" in page.inner_text("#moved")
    page.keyboard.press("ArrowRight")
    assert page.locator('#words button[aria-pressed="true"]').inner_text() == "was"

    start = page.locator("#words li:nth-child(4) button").bounding_box()
    end = page.locator("#words li:nth-child(9) button").bounding_box()
    page.mouse.move(start["x"] + 5, start["y"] + 5)
    page.mouse.down()
    page.mouse.move(start["x"] + 40, start["y"] + 5, steps=3)
    page.mouse.move(end["x"] + 5, end["y"] + 5, steps=3)
    page.mouse.up()
    settled(page)
    dragged = "the film was and the music was [MASK] great ."
    assert page.input_value("#text") == dragged
    assert_column_is(column(page, "model"), torch_says(bert, dragged)[0][0], bert[1])


def test_at_the_ends_a_word_goes_no_further(page):
    ask(page, "one [MASK] .")
    assert page.is_disabled("#move-left") and page.is_disabled("#move-right")  # none is selected
    page.click("#words li:nth-child(1) button")
    assert page.is_disabled("#move-left") and page.is_enabled("#move-right")
    page.keyboard.press("Shift+ArrowLeft")
    page.click("#words li:nth-child(3) button")
    assert page.is_enabled("#move-left") and page.is_disabled("#move-right")
    assert page.input_value("#text") == "one [MASK] ."


def test_a_word_is_hidden_and_shown_again(page, bert):
    ask(page, "the capital of france is [MASK] .")
    page.click("#words li:nth-child(4) button")
    page.click("text=Hide the word")
    settled(page)
    hidden = "the capital of [MASK] is [MASK] ."
    assert page.input_value("#text") == hidden
    assert_column_is(column(page, "model"), torch_says(bert, hidden)[0][0], bert[1])
    page.click("text=Show the word")
    settled(page)
    assert page.input_value("#text") == "the capital of france is [MASK] ."


# ------------------------------------------------------------------------------------ attention


def test_each_heads_attention_is_that_of_torch(page, bert):
    text = SENTENCES[0]
    ask(page, text)
    _, attentions, places = torch_says(bert, text)
    layers, heads = attentions.shape[:2]
    assert page.locator("#heads button").count() == layers * heads == 16
    for layer in range(layers):
        for head in range(heads):
            button = page.get_by_label(f"layer {layer + 1}, head {head + 1}", exact=True)
            button.click()
            assert button.get_attribute("aria-pressed") == "true"
            shown = page.eval_on_selector_all(
                "#weights .number", "all => all.map((one) => Number(one.dataset.value))"
            )
            expected = attentions[layer, head, places[0]].tolist()
            assert shown == pytest.approx(expected, abs=1e-4)
    pieces = page.locator("#weights .piece").all_inner_texts()
    assert pieces == ["[CLS]", *bert[1].tokenize(text), "[SEP]"]
    most = pieces[max(range(len(expected)), key=expected.__getitem__)]
    told = "itself" if most == "[MASK]" else most
    assert told in page.inner_text("#looked").split("then")[0]


# ------------------------------------------------------------------------------------ exact


def test_the_switch_shows_the_grammars_posteriors(page, bert):
    grammar = Grammar.load()
    choose(page, "a thriller")
    assert "exact" not in page.inner_text("#bars thead")
    page.check("#exact")
    words = page.input_value("#text").split()
    place = words.index("[MASK]")
    chances = grammar.posteriors(words, [word != "[MASK]" for word in words])[place]
    expected = dict(zip(grammar.vocabulary, chances.tolist()))
    shown = column(page, "exact")
    assert {w: p for w, p in shown.items() if w != "all others"} == pytest.approx(
        {word: expected.get(word, 0.0) for word in shown if word != "all others"}, abs=2e-6
    )
    assert set(grammar.vocabulary[i] for i in chances.topk(5).indices) <= set(shown)
    assert page.locator("#bars .fill.exact").count() == len(shown)


def test_with_another_word_hidden_the_exact_answer_follows(page):
    choose(page, "a sum")
    page.check("#exact")
    assert column(page, "exact")["five"] == 1
    page.click('#words button:text-is("[MASK]")')
    page.click("text=Show the word")
    page.get_by_text("Write [MASK]").wait_for()
    page.click('#words button:text-is("three")')
    page.click("text=Hide the word")
    settled(page)
    assert column(page, "exact")["three"] == 1  # the sum tells it


def test_where_no_exact_answer_is_known_the_page_says_so(page):
    choose(page, "documentation")
    page.check("#exact")
    assert "No exact answer is at hand" in page.inner_text("#why")
    assert "exact" not in page.inner_text("#bars thead")
    page.uncheck("#exact")
    assert "No exact answer" not in page.inner_text("#why")


# ------------------------------------------------------------------------------------ writing


def written(page, **fields):
    """Write a text and return it as tokens, and the order in which they came."""
    for name, value in fields.items():
        if name == "rule":
            page.select_option("#rule", value)
        else:
            page.fill(f"#{name}", str(value))
            page.dispatch_event(f"#{name}", "change")
    page.click("#write")
    page.wait_for_function("document.querySelector('#written').textContent.startsWith('Written')")
    slots = page.locator("#paper .slot")
    return slots.all_inner_texts(), [
        int(number) for number in slots.evaluate_all("all => all.map((one) => one.dataset.order)")
    ]


def test_greedy_writing_is_that_of_the_course(page, lengths):
    model, tokenizer = load_checkpoint(str(WRITER))
    steps, length = [], lengths["typical"]
    (expected,) = write(
        model, tokenizer, [length], rule="greedy", watch=lambda step, rows: steps.append(rows[0])
    )
    tokens, order = written(page, length=length, rule="greedy")
    assert tokens == tokenizer.convert_ids_to_tokens(expected)
    blank = tokenizer.mask_token_id
    came = [sum(row[place] == blank for row in steps) + 1 for place in range(length)]
    assert order == came


def mulberry32(seed):
    """The page's random numbers."""
    while True:
        seed = (seed + 0x6D2B79F5) % 2**32
        mixed = (seed ^ seed >> 15) * (seed | 1) % 2**32
        mixed ^= (mixed + (mixed ^ mixed >> 7) * (mixed | 61)) % 2**32
        yield (mixed ^ mixed >> 14) % 2**32 / 2**32


def drawn_text(length, rule, temperature, seed):
    """A text drawn with the page's random numbers, by torch."""
    model, tokenizer = load_checkpoint(str(WRITER))
    mask, numbers = tokenizer.mask_token_id, mulberry32(seed)
    row = [tokenizer.cls_token_id, *[mask] * length, tokenizer.sep_token_id]
    while mask in row:
        blanks = [place for place, index in enumerate(row) if index == mask]
        if rule == "random":
            blanks = [blanks[int(next(numbers) * len(blanks))]]
        with torch.no_grad():
            logits = model(torch.tensor([row]))["logits"][0, blanks].double()
        logits[:, tokenizer.all_special_ids] = -torch.inf
        best = (1e6 * logits.softmax(-1).amax(-1)).round().argmax()
        chances = (logits[best] / temperature).softmax(-1)[None]
        row[blanks[best]] = sample_tokens(chances, torch.tensor([next(numbers)]).double()).item()
    return tokenizer.convert_ids_to_tokens(row[1:-1])


@pytest.mark.parametrize("rule, temperature", [("confident", 1), ("random", 1.5)])
def test_drawn_words_are_those_that_torch_draws_with_the_same_numbers(
    page, lengths, rule, temperature
):
    length = lengths["least"]
    tokens, _ = written(page, length=length, rule=rule, temperature=temperature, seed=7)
    assert tokens == drawn_text(length, rule, temperature, 7)


@pytest.mark.parametrize("rule", ["confident", "random"])
def test_drawn_writing_repeats_with_its_seed_and_writes_no_special_token(page, lengths, rule):
    length = lengths["least"]
    first = written(page, length=length, rule=rule, seed=3)
    again = written(page, length=length, rule=rule, seed=3)
    other = written(page, length=length, rule=rule, seed=4)
    assert first == again != other
    assert sorted(first[1]) == list(range(1, length + 1))
    assert not any(token.startswith("[") for token in first[0] + other[0])


def test_writing_goes_word_by_word_and_stops(page, lengths):
    most = lengths["most"]
    page.fill("#length", str(most))
    page.dispatch_event("#length", "change")
    page.click("#step")
    page.wait_for_selector("#paper .filled")
    assert page.locator("#paper .filled").count() == 1
    assert page.inner_text("#written").startswith("Step 1")
    page.click("#write")
    page.wait_for_function("document.querySelectorAll('#paper .filled').length > 3")
    page.click("#stop")
    page.wait_for_function("!document.querySelector('#write').disabled")
    page.wait_for_timeout(300)
    stopped = page.locator("#paper .filled").count()
    page.wait_for_timeout(500)
    assert 3 < page.locator("#paper .filled").count() == stopped < most


def test_a_length_that_no_document_has_is_refused(page, lengths):
    assert page.input_value("#length") == str(lengths["typical"])
    page.fill("#length", str(lengths["most"] + 1))
    page.dispatch_event("#length", "change")
    assert page.inner_text("#written").startswith("How many words:")
    page.click("#write")
    page.wait_for_timeout(300)
    assert page.locator("#paper .filled").count() == 0


def test_without_a_writer_the_page_does_without(folder, browser, tmp_path):
    shutil.copytree(folder, tmp_path / "page", copy_function=shutil.copyfile)
    settings = tmp_path / "page" / "settings.json"
    content = json.loads(settings.read_text("utf-8"))
    del content["writer"]
    settings.write_text(json.dumps(content), "utf-8")
    with served(tmp_path) as (url, _):
        page = browser.new_page()
        page.goto(f"{url}/page/")
        page.click("#fetch")
        page.wait_for_selector("#answer:not([hidden])", timeout=WAIT)
        assert not page.is_visible("#writing")
        page.close()


# ------------------------------------------------------------------------------------ the page


def test_the_page_tokenizes_in_this_browser_as_the_course_does(page):
    texts, tokenizer = odd_strings(), WordPieceTokenizer.from_vocab(DATA / "course-bert")
    found = page.evaluate("texts => texts.map((text) => page.tokenizer.tokenize(text))", texts)
    assert found == [tokenizer.tokenize(text) for text in texts]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out(open_page, scheme):
    page = open_page(color_scheme=scheme)
    choose(page, "a thriller, three blanks")
    page.check("#exact")
    page.click("#words li:nth-child(3) button")
    page.click("#move-right")
    settled(page)
    page.click("#step")
    page.wait_for_selector("#paper .filled")
    assert barriers(page) == []


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_needs_no_scrolling_sideways(open_page, width):
    page = open_page(viewport={"width": width, "height": 800})
    choose(page, "a good movie")
    page.check("#exact")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("text", "bars", "heads", "weights", "paper"):
        box = page.locator(f"#{name}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_the_link_leads_back_to_the_course(page):
    page.click("text=The course")
    page.wait_for_url("**/site/index.html")
    page.locator(".lesson-map").wait_for()


def test_opened_as_a_file_the_page_says_what_to_do(folder, browser):
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    told = page.inner_text("#notice")
    assert "opened as a file" in told and "python3 -m http.server" in told
    page.close()


def test_a_model_that_does_not_come_is_told_and_can_be_fetched_again(browser, server):
    page = browser.new_page()
    page.route("**/course-bert.onnx", lambda route: route.fulfill(status=503, body="busy"))
    page.goto(server[0])
    page.click("#fetch")
    page.get_by_text("The model could not be fetched").wait_for(timeout=WAIT)
    assert "503" in page.inner_text("#status")
    page.unroute("**/course-bert.onnx")
    page.click("#fetch")
    page.wait_for_selector("#answer:not([hidden])", timeout=WAIT)
    page.close()


def test_nothing_large_is_fetched_before_it_is_asked_for(browser, server, folder):
    page, responses, asked = browser.new_page(), [], []
    page.on("response", lambda response: responses.append(response))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server[0])
    button = page.get_by_role("button", name="Fetch the model")
    button.wait_for()
    page.wait_for_load_state("networkidle")
    sizes = {response.url: len(response.body()) for response in responses}
    assert sum(sizes.values()) < 250_000, sizes
    before = set(asked)
    told = page.evaluate(
        """() => new Promise(resolve => {
            const status = document.getElementById("status"), seen = [];
            new MutationObserver(() => {
                seen.push(status.textContent);
                if (page_is_there()) resolve(seen);
            }).observe(status, {childList: true});
            const page_is_there = () => !document.getElementById("answer").hidden;
            document.getElementById("fetch").click();
        })"""
    )
    large = [url for url in set(asked) - before if not url.startswith("blob:")]
    fetched = sum((folder / url.rpartition("/")[2]).stat().st_size for url in large)
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    assert settings["fetched"] == pytest.approx(fetched, rel=0.01)
    all_of_it = f"{settings['fetched'] / 1e6:.1f}"
    assert any(f"{all_of_it} of {all_of_it} MB" in line for line in told), told
    page.close()


@pytest.mark.parametrize("device, chosen", [("dark", "light"), ("light", "dark")])
def test_the_page_follows_the_theme_that_was_chosen_on_the_site(browser, server, device, chosen):
    context = browser.new_context(color_scheme=device)
    page, home = context.new_page(), context.new_page()
    home.goto(server[0] + "../index.html")
    page.goto(server[0])
    back = "getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}
    assert page.evaluate(back) == colours[device]
    home.evaluate(f"localStorage.setItem('theme', '{chosen}')")
    page.wait_for_function(f"{back} === '{colours[chosen]}'")
    page.reload()
    assert page.evaluate(back) == colours[chosen]
    page.get_by_role("button", name="Fetch the model").wait_for()
    assert barriers(page) == []
    home.evaluate("localStorage.setItem('theme', 'auto')")
    page.wait_for_function(f"{back} === '{colours[device]}'")
    context.close()


def test_the_build_publishes_the_page_and_nothing_of_npm(folder):
    names = {file.name for file in folder.iterdir()}
    assert {file.name for file in (FOLDER / "page").iterdir()} < names
    assert not [name for name in names if name.startswith((".", "node_modules", "package"))]
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size < 38e6, "each model has 11 MB, their program 14 MB"
