"""The site of the documentation: MkDocs builds it, and Chromium opens its pages."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from chromium import Chromium, find_chromium
from documents import ROOT

DESK, PHONE = 1200, 390  # pixels
LONGEST = 30  # seconds until a page has done what a reader asked for
PACKAGES = ("mkdocs", "material", "mkdocstrings")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, which any warning of MkDocs fails."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed: run `make docs` once to install it")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["make", "--silent", ".cache/links/tt"], cwd=ROOT, check=True)
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def address(site):
    """Yield the address of a server for the site: browsers do not search pages of file:// URLs."""
    handler = functools.partial(_QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    if find_chromium() is None:
        pytest.skip("Chromium is not installed: install Debian's `chromium` to open pages")
    with Chromium() as started:
        yield started


def wait_for(browser, expression):
    """Return the value of an expression as soon as it is true."""
    until = time.monotonic() + LONGEST
    while not (value := browser.value(expression)):
        assert time.monotonic() < until, expression
        time.sleep(0.05)
    return value


def pages_of(site):
    return sorted(path.relative_to(site) for path in site.rglob("*.html"))


def test_every_document_is_a_page(site):
    documents = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.with_suffix(".md") for path in pages_of(site)}
    assert pages == documents | {Path("404.md")}


def test_every_page_fits_a_phone_and_loads_nothing_from_elsewhere(site, address, browser):
    for page in pages_of(site):
        browser.open(f"{address}/{page}", width=PHONE)
        assert browser.value("document.documentElement.scrollWidth") <= PHONE, page
        assert browser.complaints() == [], page
        asked = [url for url in browser.requests() if not url.startswith(("data:", address))]
        assert asked == [], page


def test_a_search_finds_the_page_of_a_command(address, browser):
    browser.open(f"{address}/index.html", width=DESK)
    browser.value(
        "(() => { const query = document.querySelector('[data-md-component=search-query]');"
        "query.focus(); query.value = 'tt evaluate';"
        "query.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true })); })()"
    )
    links = "[...document.querySelectorAll('.md-search-result__link')].map(e => e.href).join(' ')"
    assert f"{address}/reference/commands/evaluate.html" in wait_for(browser, links)


def brightness(browser):
    """Return the brightness of the page's background, from 0 to 255."""
    color = browser.value("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_switch(address, browser, scheme):
    browser.open(f"{address}/index.html", width=DESK, scheme=scheme)
    names = {"light": "default", "dark": "slate"}
    theme = "document.body.dataset.mdColorScheme"
    wait_for(browser, f"{theme} === {names[scheme]!r}")
    assert (brightness(browser) > 128) == (scheme == "light")
    switch = "[...document.querySelectorAll('[data-md-component=palette] label')]"
    for name in ("default", "slate", names[scheme]):  # light, dark, and the system's again
        browser.value(f"{switch}.find((label) => !label.hidden).click()")
        wait_for(browser, f"{theme} === {name!r}")
