"""A Chromium in which pages of the site are opened, as a reader opens them."""

import pytest
from browser import launched, served, watch


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def address(site):
    """The address of the site. It is below a path, as on a host that holds other sites as well."""
    with served(site.parent) as root:
        yield f"{root}/{site.name}"


@pytest.fixture
def open_page(browser, address):
    """Opens pages. At the end nothing may have gone wrong in any of them, and no other host may
    have been asked for anything. Pages with the same settings share a window and its storage."""
    windows, opened = {}, []

    def open_(name, *, width=1280, base=address, **settings):
        settings |= {"viewport": {"width": width, "height": 844}}
        window = windows.get(key := str(settings)) or browser.new_context(**settings)
        windows[key] = window
        page = window.new_page()
        opened.append((name, watch(page, base)))
        page.goto(f"{base}/{name}")
        return page

    yield open_
    for window in windows.values():
        window.close()
    assert not [(name, found) for name, found in opened if found]
