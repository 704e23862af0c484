"""The built site: what its pages hold, where their links lead, what they ask of other hosts."""

import json
import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from built_site import ROOT, read_page
from notebook_form import ANSWER, FOLDED, SET_UP, alternative_texts, read

from classroom.lab import labs, read_lab
from classroom.questions import questions

sys.path.insert(0, str(ROOT))
from docs.site import addresses, glossary
from docs.site import build as site_builder
from docs.site import pages as site_pages
from docs.site.moved import MOVED

pytestmark = pytest.mark.site
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MODULES = [f"engine.{path.stem}" for path in (ROOT / "mlm_lib/engine").glob("[a-z]*.py")]
MODULES += [path.stem for path in (ROOT / "mlm_lib").glob("[a-z]*.py")]

every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


@pytest.fixture(scope="session")
def pages(site):
    """{path below the site: page}"""
    return {str(p.relative_to(site).as_posix()): read_page(p) for p in site.rglob("*.html")}


def page_of(pages, lesson):
    return pages[f"notebooks/{lesson.stem}.html"]


# ---- what is there -------------------------------------------------------------------------------


def test_every_lesson_lab_and_module_has_its_page(pages):
    expected = {f"notebooks/{path.stem}.html" for path in LESSONS}
    expected |= {f"notebooks/labs/{path.stem}.html" for path in labs().values()}
    expected |= {f"api/{name}.html" for name in MODULES}
    others = {"index", "glossary", "benchmarks", "practise", "instructors", "labs", "search"}
    assert expected | {f"{name}.html" for name in others} <= set(pages)


def test_an_old_address_leads_to_the_page_of_the_same_lesson(pages):
    for old, new in MOVED.items():
        assert old.split("_", 1)[1] == new.split("_", 1)[1]
        for place in (f"notebooks/{old}.html", f"notebooks/labs/{old}_lab.html"):
            (link,) = pages[place].all("a")
            assert place.replace(old, new) in pages
            assert link["href"] == Path(place.replace(old, new)).name


def test_home_maps_all_lessons_and_shows_the_floor(pages):
    home = pages["index.html"]
    assert all(f"notebooks/{path.stem}.html" in links(home) for path in LESSONS)
    (figure,) = [image for image in home.all("img") if "floor" in image["alt"]]
    assert figure["src"].startswith("data:image/svg+xml;base64,")
    assert "python3 course.py run" in home.text and "python3 course.py open" in home.text


def test_home_has_two_doors_and_says_where_the_course_is(pages):
    home = pages["index.html"]
    doors = [a["href"] for a in home.classed("door")]
    assert doors[-1] == "notebooks/00_start_here.html"
    assert doors[:-1] == ["fill-the-blank/index.html"] * ("fill-the-blank/index.html" in pages)
    assert home.tags.index(("a", home.classed("door")[0])) < home.tags.index(("h2", {}))
    found = {a["href"] for a in home.all("a")}
    assert set(addresses.of_course().values()) <= found
    assert addresses.colab_of_the_first_lesson() in found


def test_home_shows_the_hours_of_the_three_ways(pages):
    rows = re.findall(
        r"^\| (?:A|Four) .*$", (ROOT / "docs/how_to_take.md").read_text("utf-8"), re.M
    )
    assert len(rows) == 3
    assert all(bare(row) in bare(pages["index.html"].text) for row in rows)


def test_the_words_in_the_figure_of_home_are_explained_under_it(pages):
    text = " ".join(pages["index.html"].text.split())
    for name in ("ln V", "unigram entropy", "place and length", "floor"):
        assert name in text, name


@every_lesson
def test_a_lesson_leads_to_its_file_and_to_where_one_reports_an_error(site, pages, lesson):
    page = page_of(pages, lesson)
    (download,) = [a["href"] for a in page.all("a") if "download" in a]
    assert (site / "notebooks" / download).read_bytes() == lesson.read_bytes()
    stored = addresses.colab("".join(read(lesson).cells[0].source))
    assert stored and [a.get("href") for a in page.all("a")].count(stored) == 1
    there = addresses.of_file(f"notebooks/{lesson.name}", site_pages.title(lesson))
    assert set(there.values()) <= {a.get("href") for a in page.all("a")}


@pytest.mark.parametrize("key", labs())
def test_a_lab_gives_the_students_edition_and_no_way_to_its_solutions(site, pages, key):
    stem = labs()[key].stem
    page = pages[f"notebooks/labs/{stem}.html"]
    (download,) = [a["href"] for a in page.all("a") if "download" in a]
    text = (site / "notebooks" / "labs" / download).read_text("utf-8")
    assert "BEGIN SOLUTION" not in text and "notebook-doors" not in text
    assert not [a for a in page.all("a") if f"edit/main/notebooks/labs/{stem}" in a.get("href", "")]


@every_lesson
def test_a_lesson_calls_the_page_of_its_lab_the_lab(pages, lesson):
    page = (page_of(pages, lesson)).text
    assert "(solutions)" not in page
    assert lesson.name.startswith("00") or "the lab" in page


@every_lesson
def test_a_lesson_shows_every_figure_with_its_text(pages, lesson):
    stored = [alt for cell in read(lesson).cells for alt in alternative_texts(cell)]
    shown = [image["alt"] for image in page_of(pages, lesson).all("img")]
    assert shown == stored and min(map(len, stored)) > 30


def test_no_picture_of_the_site_is_without_its_text(pages):
    for name, page in pages.items():
        assert all((image.get("alt") or "").strip() for image in page.all("img")), name


@every_lesson
def test_a_lesson_shows_the_outputs_that_are_stored_with_it(pages, lesson):
    text = "".join(page_of(pages, lesson).text.split())
    for cell in read(lesson).cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stdout":
                assert "".join(output.text.split()) in text, output.text[:80]


@every_lesson
def test_the_set_up_and_all_answers_are_folded(pages, lesson):
    cells = [(cell.metadata.get("tags", []), cell) for cell in read(lesson).cells]
    answers = sum(FOLDED in tags and bool(cell.outputs) for tags, cell in cells)
    set_up = sum(SET_UP in tags for tags, _ in cells)
    tasks = sum(ANSWER in tags for tags, _ in cells)
    folded = page_of(pages, lesson).classed("hide")
    assert len(folded) == answers + set_up + tasks and answers and set_up >= 2 and tasks >= 2
    assert not any("open" in attributes for attributes in folded)
    assert page_of(pages, lesson).text.count("Show the set-up") == set_up
    assert page_of(pages, lesson).text.count("Show what answers task") == tasks
    assert not any("aria-label" in a for a in page_of(pages, lesson).all("summary"))
    assert page_of(pages, lesson).text.count("Show the answer") == answers


@pytest.mark.parametrize("key", labs())
def test_a_lab_is_shown_as_students_get_it(pages, key):
    path = labs()[key]
    text = "".join(pages[f"notebooks/labs/{path.stem}.html"].text.split())
    assert "BEGINSOLUTION" not in text and "BEGINHIDDENTESTS" not in text
    for task in read_lab(path).tasks:
        assert "".join(f"Task {task.name} waits for your code here".split()) in text
        (solution,) = re.findall("### BEGIN SOLUTION(.*?)### END", task.solution, re.S)[:1]
        assert "".join(solution.split()) not in text


def bare(text):
    """Letters and digits alone: what Markdown and typography leave as it is."""
    return re.sub(r"[\W_]", "", text)


@every_lesson
def test_a_lesson_ends_with_its_questions_and_their_answers_in_a_fold(pages, lesson):
    page = page_of(pages, lesson)
    text, asked = bare(page.text), questions(lesson.name[:2], "site")
    assert len(page.classed("quiz")) == len(asked) == 3
    for one in asked:
        says = "".join(option.say for option in one.options)
        told = "".join(f"{'Wrong' if o.mistake else 'Right'}. {o.because}" for o in one.options)
        code = one.ask.replace("```python", "")
        assert bare(f"{code}{says}Show the key{told}") in text, one.ask
        assert text.count(bare(code)) == 1, "the lesson's own cell of questions is left out"
    assert len(page.classed("right")) == 2 * 3 and len(page.classed("wrong")) == 2 * 9
    for one in questions(lesson.name[:2], "teacher"):
        assert bare(one.ask.replace("```python", "")) not in text, "this one is for a class"


# ---- links ---------------------------------------------------------------------------------------


def links(page):
    """Where a page leads, and what it is made of: all that is no other host's and no data."""
    found = [a["href"] for a in page.all("a") + page.all("link") if a.get("href")]
    found += [a["src"] for a in page.all("script") + page.all("img") if a.get("src")]
    return [one for one in found if not urlsplit(one).scheme]


def test_every_link_leads_to_a_page_and_to_a_place_on_it(site, pages):
    for name, page in pages.items():
        for link in links(page):
            path, place = unquote(urlsplit(link).path), unquote(urlsplit(link).fragment)
            target = (site / name).parent / path if path else site / name
            assert target.is_file(), f"{name} leads to {link}"
            if place and target.suffix == ".html":
                key = target.resolve().relative_to(site.resolve()).as_posix()
                assert place in pages[key].ids, f"{name} leads to {link}"


def test_links_hold_wherever_the_site_is_put(pages):
    for name, page in pages.items():
        assert not [link for link in links(page) if link.startswith("/")], name


OWN = re.compile(r"(?!https?:|//)")


def test_nothing_is_fetched_from_another_host(site, pages):
    """Links that a reader may follow lead anywhere; what a browser fetches by itself is ours."""
    for name, page in pages.items():
        for tag, attributes in page.tags:
            if tag != "a":
                found = [attributes.get(key) or "" for key in ("src", "href", "srcset", "data")]
                assert all(OWN.match(one) for one in found), f"{name}: {tag} {found}"
    for sheet in site.rglob("*.css"):
        found = re.findall(r"url\(\s*['\"]?([^)]*)|@import\s+['\"](.*?)['\"]", sheet.read_text())
        assert all(OWN.match("".join(one)) for one in found), f"{sheet.name}: {found}"


def test_formulas_need_no_script(pages):
    (lab,) = [page for name, page in pages.items() if "01_tokenization_lab" in name]
    assert lab.all("math") and "\\cdot" not in lab.text
    scripts = {a["src"] for page in pages.values() for a in page.all("script") if a.get("src")}
    assert scripts and not [one for one in scripts if "mathjax" in one.lower()]


# ---- the glossary and the package ----------------------------------------------------------------


def test_every_entry_of_the_glossary_is_on_its_page(pages):
    page = pages["glossary.html"]
    for entry in glossary.entries(glossary.FILE.read_text("utf-8")):
        assert entry.anchor in page.ids
        assert all(bare(term) in bare(page.text) for term in entry.terms)


@every_lesson
def test_a_link_of_a_lesson_to_the_glossary_shows_the_definition(pages, lesson):
    sources = [cell.source for cell in read(lesson).cells if cell.cell_type == "markdown"]
    stored = [link[2] for source in sources for link in glossary.LINK.finditer(source)]
    shown = page_of(pages, lesson).classed("term")
    assert [a["href"] for a in shown] == [f"../glossary.html#{anchor}" for anchor in stored]
    assert stored and all(len(a["title"]) > 20 for a in shown)


def test_the_package_is_told_page_by_page_and_its_names_lead_on(pages):
    masking, training = pages["api/masking.html"], pages["api/training.html"]
    assert "mlm_lib.masking.mask_tokens" in masking.ids
    assert "masked_lm.html#mlm_lib.masked_lm.MaskedLanguageModel" in links(training)
    assert "#mlm_lib.masking.mask_tokens" in links(masking), "the link to a name itself"
    for word in ("rate", "generator"):  # an argument, which is no name of the package
        assert not [link for link in links(masking) if link.endswith(f".{word}")]
    told = "an argument is no module, though there is one of its name"
    assert "spans.html#module-mlm_lib.masking" not in links(masking), told


def test_each_module_stands_under_the_lesson_that_builds_it():
    built = site_pages.lesson_of_each_module(sorted((ROOT / "notebooks").glob("*.ipynb")))
    assert built["masking"] == "02" and built["encoder"] == "06" and built["modern"] == "18"
    assert built["corpus"] == "01" and not {"checks", "plots"} & built.keys()
    told = (ROOT / "README.md").read_text("utf-8")
    for number, files in re.findall(r"^\| (\d\d) \|[^|]*\|([^|]*)\|", told, re.M):
        assert all(built[name] == number for name in re.findall(r"`(\w+)\.py`", files)), number


def test_the_search_knows_the_words_of_lessons_and_the_names_of_the_package(site):
    index = (site / "searchindex.js").read_text("utf-8")
    assert '"mask_tokens"' in index and '"notebooks/12_sampled_softmax"' in index


def test_the_site_is_small(site):
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    blank = sum(size for path, size in sizes.items() if "fill-the-blank" in path.parts)
    pages = [path for path in sizes if path.suffix == ".html"]
    assert max(sizes[path] for path in pages) < 1e6
    assert sum(sizes.values()) - blank < 2e5 * len(pages)


def test_only_python_is_coloured_as_python(site):
    home = (site / "index.html").read_text("utf-8")
    assert "highlight-none" in home and "highlight-python" not in home
    package = [path.read_text("utf-8") for path in (site / "api").glob("*.html")]
    assert any("highlight-python" in page for page in package), "docstrings have examples"
    assert any("highlight-none" in page for page in package), "and formulas"


@every_lesson
def test_the_title_of_a_paper_holds_no_link_to_the_glossary(pages, lesson):
    tags = page_of(pages, lesson).tags
    (start,) = [at for at, (_, a) in enumerate(tags) if a.get("id") == "references"]
    assert not [a for _, a in tags[start:] if "term" in (a.get("class") or "").split()]


# ---- building it ---------------------------------------------------------------------------------


@pytest.fixture
def one_page(monkeypatch):
    """A site of a single page, whose text is given."""

    def gather_text(text):
        def gather(folder):
            folder.mkdir(parents=True)
            (folder / "index.md").write_text(text, "utf-8")

        monkeypatch.setattr(site_pages, "gather", gather)

    monkeypatch.setattr(site_builder, "BLANK", Path("nowhere"))
    monkeypatch.setattr(site_builder, "has_slides", lambda: False)
    return gather_text


def test_a_warning_fails_and_leaves_the_site_that_was_there(tmp_path, one_page, capsys):
    out = tmp_path / "site"
    one_page("# Home\n\nWhole.\n")
    assert site_builder.main(["--out", str(out)]) == 0
    assert "Whole." in (out / "index.html").read_text("utf-8")
    one_page("# Home\n\n[broken](nowhere.md)\n")
    assert site_builder.main(["--out", str(out)]) != 0
    assert "nowhere.md" in capsys.readouterr().err
    assert "Whole." in (out / "index.html").read_text("utf-8")
    assert list(tmp_path.iterdir()) == [out], "nothing half-built is left behind"


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, one_page, capsys):
    (tmp_path / "letter.txt").write_text("dear")
    one_page("# Home\n")
    assert site_builder.main(["--out", str(tmp_path)]) == 2
    assert "something else than a site" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_figure_that_its_lesson_has_not_is_an_error():
    from docs.site.ext.stored_figure import images

    notebook = json.loads(LESSONS[9].read_text("utf-8"))
    assert any("floor" in unescape(image) for image in images(notebook))
    assert not any("no figure says this" in image for image in images(notebook))
