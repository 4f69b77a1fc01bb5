"""A browser for the tests of the page, and a server of made-up views.

Needs Playwright and Chromium; where they are missing the tests skip, or fail if
POTLUCK_BROWSER_REQUIRED is set, as it is in the gate. POTLUCK_CHROMIUM names another browser.
"""

import os
import shutil
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from show.web.made_views import made_run
from show.web.stand_in_page_server import Told, serving

WAIT_MS = 15_000
"""Longest wait for anything on a busy machine."""


def refuse(why):
    """Skip what cannot be done here, or fail where it must not be missing."""
    (pytest.fail if os.environ.get("POTLUCK_BROWSER_REQUIRED") else pytest.skip)(why)


@pytest.fixture
def axe():
    """The audit for accessibility."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ModuleNotFoundError:
        refuse("axe-playwright-python is not installed; pip install axe-playwright-python")
    return Axe()


@pytest.fixture(scope="module")
def browser():
    """One Chromium for the tests of a file; while it is there, none can run an event loop."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = os.environ.get("POTLUCK_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    if not program:
        refuse("there is no Chromium here; set POTLUCK_CHROMIUM to one")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        refuse("playwright is not installed; pip install playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opening(browser):
    """A function that opens an address. At the end: no error was told, and no other host asked."""
    contexts, complaints = [], []

    def open_page(address, *, expects_errors=False, **options):
        # Without motion a click never waits for a scroll to end.
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        if not expects_errors:
            page.on("console", lambda told: complaints.append(f"{told.type}: {told.text}"))
        host = urlsplit(address).netloc
        page.on(
            "request",
            lambda request: (
                urlsplit(request.url).netloc in (host, "")
                or complaints.append(f"asked {request.url}")
            ),
        )
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def show(browser):
    with opening(browser) as show:
        yield show


@pytest.fixture
def told():
    return Told(made_run())


@pytest.fixture
def address(told):
    with serving(told) as address:
        yield address
