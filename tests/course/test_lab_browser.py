"""JupyterLab as `course.py open` opens it: a reader's copies of a lesson and of a lab run from the
first cell to the last, their links lead to copies, and nobody outside this machine is asked for
anything."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from browser import chromium, launched, watch
from notebook_form import normalised, read, text

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "notebooks" / "00_start_here.ipynb"
WITH_LAB = ROOT / "notebooks" / "02_masking.ipynb"
LONG_LINES = ROOT / "notebooks" / "09_pretraining.ipynb"
LAB = ROOT / "classroom" / "solutions" / "02_masking_lab.ipynb"
OTHER = LAB.with_name("03_labels_lab.ipynb")

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: chromium)"),
]

# Python imports it first of all, in the server and in its kernels: it writes down whom they ask.
LISTENER = """
import os, sys

def listen(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        whom = arguments[1:] if event == "socket.connect" else arguments
        with open(os.environ["ASKED"], "a") as file:
            print(event, whom, file=file)

sys.addaudithook(listen)
"""

CODE_IN_VIEW = """() => [...document.querySelectorAll(".jp-CodeCell .cm-scroller")].map(
    code => [code.innerText.slice(0, 80), code.scrollWidth, code.clientWidth])"""
# Down by half a window; true at the end.
SCROLL = """() => {
    const panel = document.querySelector(".jp-WindowedPanel-outer");
    panel.scrollBy(0, panel.clientHeight / 2);
    return panel.scrollTop + panel.clientHeight >= panel.scrollHeight - 2;
}"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder with a home that is empty, a course of three lessons and two labs, and what listens
    to the server. The reader has solved lab 02, and has never opened the others."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("home", "listener", "course/docs", "course/work/labs"):
        (folder / name).mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "glossary.md", folder / "course" / "docs")
    (folder / "listener" / "sitecustomize.py").write_text(LISTENER)
    for path in (LESSON, WITH_LAB, LONG_LINES, LAB, OTHER):
        place = folder / "course" / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text(normalised(read(path), path)), "utf-8")
    shutil.copy(folder / "course" / LAB.relative_to(ROOT), folder / "course" / "work" / "labs")
    return folder


@pytest.fixture(scope="module")
def server(house):
    """(address, token) of a JupyterLab begun by course.py."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    env |= {"HOME": str(house / "home"), "ASKED": str(house / "asked.txt")}
    env["PYTHONPATH"] = os.pathsep.join([str(house / "listener"), str(ROOT)])
    command = [sys.executable, ROOT / "course.py", "open", "--here", "--notebooks"]
    command += [house / "course" / "notebooks", "--", "--no-browser", "--port=0"]
    env["JUPYTERLAB_WORKSPACES_DIR"] = str(house / "workspaces")  # and not this checkout's
    log = house / "log.txt"
    with (
        open(log, "w") as file,
        subprocess.Popen(command, cwd=house, env=env, stdout=file, stderr=file) as process,
    ):
        try:
            yield wait_for(lambda: address_in(log.read_text()), 120, log.read_text)
        finally:
            with contextlib.suppress(Exception):
                ask(*address_in(log.read_text()), "api/shutdown", data=b"")
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def address_in(log):
    found = re.search(r"(http://localhost:\d+)/\S*\?token=(\w+)", log)
    return found and found.groups()


def ask(address, token, what, data=None):
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"{address}/{what}", data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def wait_for(look, seconds, told=str):
    """What `look` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, told()
        time.sleep(0.2)
    return found


@pytest.fixture
def open_notebook(server):
    """Opens a notebook, or with "" only JupyterLab, in a window too narrow for a line of 100
    characters; at the end nothing may have gone wrong."""
    address, token = server
    with launched() as browser:
        page = browser.new_page(viewport={"width": 1024, "height": 768})
        page.set_default_timeout(60_000)
        found = watch(page, address)

        def open_(name):
            page.goto(f"{address}/lab/tree/work/{name}?token={token}&reset")
            if name:
                page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content")
                page.wait_for_selector("text=/Python 3 .ipykernel. . Idle/")
            return page

        yield open_
        assert found == []


def choose(page, menu, entry):
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}")).click()


def saved(page, path):
    """The code cells, as JupyterLab has just written them; none while it is writing."""
    page.keyboard.press("Control+s")
    page.wait_for_timeout(1000)
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
    except ValueError:
        return []
    return [cell for cell in cells if cell["cell_type"] == "code"]


def picture_is_seen(page):
    image = page.locator(".jp-OutputArea-output img").first
    image.scroll_into_view_if_needed()
    return image.is_visible() and image.evaluate("image => image.naturalWidth") > 300


@pytest.mark.parametrize("name", [LESSON.name, f"labs/{LAB.name}"])
def test_it_runs_from_the_first_cell_to_the_last(open_notebook, server, house, name):
    page = open_notebook(name)
    copy = house / "course" / "work" / name
    choose(page, "Edit", "Clear Outputs of All Cells")

    def cleared():
        cells = saved(page, copy)
        return cells and not any(cell["outputs"] for cell in cells)

    wait_for(cleared, 60)
    assert page.locator(".jp-OutputArea-output img").count() == 0

    choose(page, "Kernel", "Restart Kernel and Run All Cells")
    page.locator(".jp-Dialog button", has_text="Restart").click()
    page.locator(".jp-Dialog").wait_for(state="detached")

    def ran():
        cells = saved(page, copy)
        counts = [cell["execution_count"] for cell in cells]
        return cells if cells and counts == list(range(1, len(cells) + 1)) else None

    cells = wait_for(ran, 240, lambda: copy.read_text("utf-8"))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert picture_is_seen(page)

    choose(page, "Kernel", "Shut Down Kernel")
    wait_for(lambda: json.loads(ask(*server, "api/kernels")) == [], 20)


def test_no_code_is_cut_off_and_nothing_pops_up(open_notebook):
    page = open_notebook(LONG_LINES.name)
    widths = {}
    for _ in range(100):  # only the cells near the window exist
        widths |= {begin: (width, room) for begin, width, room in page.evaluate(CODE_IN_VIEW)}
        if page.evaluate(SCROLL):
            break
        page.wait_for_timeout(100)
    assert len(widths) > 15
    assert {begin: both for begin, both in widths.items() if both[0] > both[1]} == {}
    assert page.locator(".jp-Dialog, .Toastify__toast").count() == 0
    assert picture_is_seen(page)  # as it is stored, in a notebook that nobody has trusted yet


def test_a_term_leads_to_its_entry_in_the_glossary(open_notebook):
    page = open_notebook(LESSON.name)
    link = page.locator(".jp-Notebook a", has_text=re.compile("^vocabulary$")).first
    link.scroll_into_view_if_needed()
    link.click()
    entry = page.locator(".jp-MarkdownViewer h3", has_text=re.compile("^vocabulary"))
    entry.wait_for()
    room = page.locator(".jp-MarkdownViewer").bounding_box()
    wait_for(lambda: entry.bounding_box()["y"] < room["y"] + room["height"], 20)
    assert entry.bounding_box()["y"] >= room["y"], "it is the first that is seen, or near it"


def seen_files(page):
    return page.locator(".jp-DirListing-itemText").all_inner_texts()


def scroll_to(page, found):
    """Scroll down a notebook until an element exists: only the cells near the window do."""
    for _ in range(200):
        if found.count() or page.evaluate(SCROLL):
            break
        page.wait_for_timeout(50)
    found.scroll_into_view_if_needed()


def test_it_opens_where_the_readers_copies_are_and_no_solution_is_in_sight(open_notebook):
    """The way of a student: from the first page to the lesson, and from there to the lab."""
    page = open_notebook("")
    page.locator(".jp-DirListing-item", has_text=WITH_LAB.name).wait_for()
    assert seen_files(page) == ["labs", LESSON.name, WITH_LAB.name, LONG_LINES.name]
    page.locator(".jp-DirListing-item", has_text=WITH_LAB.name).dblclick()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content")
    link = page.locator(".jp-Notebook a", has_text=re.compile("^the lab$"))
    scroll_to(page, link)
    link.click()
    page.locator(".lm-TabBar-tabLabel", has_text=LAB.name).wait_for()
    assert not [name for name in seen_files(page) if "solution" in name]


@pytest.mark.parametrize("name", [WITH_LAB.name, f"labs/{OTHER.name}"])
def test_a_copy_that_was_only_opened_is_not_called_changed(open_notebook, name):
    page = open_notebook(name)
    page.wait_for_timeout(3000)  # JupyterLab writes what the kernel says about itself
    assert page.locator(".jp-mod-dirty").count() == 0


def test_a_question_answers_when_an_option_is_opened(open_notebook):
    page = open_notebook(WITH_LAB.name)
    option = page.locator(".jp-Notebook details", has_text="0.80 and 0.25")
    scroll_to(page, option)
    why = option.locator("p", has_text=re.compile("^Right"))
    assert not why.is_visible()
    option.locator("summary").click()
    assert why.is_visible()


def test_nobody_outside_was_asked_and_the_readers_own_settings_are_as_they_were(house, server):
    asked = (house / "asked.txt").read_text().splitlines()
    assert asked, "the listener hears the server bind its port"
    local = r"'localhost'|'127\.0\.0\.1'|'::1'|None|\(b?''|\('?/"
    assert [line for line in asked if not re.search(local, line)] == []
    own = house / "home" / ".jupyter"
    assert [path for path in own.rglob("*") if path.is_file() and path.name != "migrated"] == []
