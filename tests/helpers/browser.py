"""A Chromium for tests that look at pages as a reader does."""

import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def chromium():
    """The path of a Chromium on this machine, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=OPTIONS)
        yield browser
        browser.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """The address of a server of this folder's files, without a / at its end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def watch(page, address):
    """A list that fills with what should not happen: messages of errors, requests elsewhere."""
    found = []
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on("console", lambda message: message.type == "error" and found.append(message.text))

    def look(request):
        if not request.url.startswith((address, "data:")):
            found.append(f"asked for {request.url}")

    page.on("request", look)
    return found


def barriers(page):
    """What axe finds of critical or serious weight: (rule, the first element concerned)."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    heavy = [one for one in found if one["impact"] in ("critical", "serious")]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in heavy]
