"""Looks at a built site in a real browser: ``python docs/browse_site.py docs/_build/html``.

Every page is opened in a light and a dark window, and those at the top on the screen of a telephone
too. Wrong is what a reader would run into: a script that fails, a picture that is not drawn, a
request that leaves the site, a page that is wider than the window, a table of few columns that is
cut off, a title or a name in a table that is broken within a word, a search that finds nothing, and
labels of a diagram that lie on one another. Pictures of all that was seen go to ``screenshots``
beside the site, for people to look at.

It needs playwright, from PyPI, and a Chromium: the one that ``CULM_BROWSER`` names, one on the
path (on Debian: ``apt install chromium-headless-shell``), or playwright's own. Where there is none,
it says so and exits with status 0: nothing was checked, and nothing failed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from check_site import faults
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
WINDOW = (1280, 900)
TELEPHONE = (390, 844)
SCHEMES = ("light", "dark")
# All pages at the top, and one of each other kind, which are made of the same parts.
ON_A_TELEPHONE = ("*.html", "decisions/index.html", "api/culm.bymux.html")
LEFT_OUT = {"_static", "_modules"}  # the latter: hundreds of listings, all alike
FOUND = "#search-results ul.search li > a"
# What people look for, and a page that has to be among the first that a search names.
SEARCHED = {
    "lipmaa": "bamboo",
    "cancel": "driving",
    "restart": "production",
    "backup": "production",
    "metrics": "production",
    "shutdown": "driving",
    "timeout": "production",
    "tls": "services",
    "certificate": "glossary",
}
SEEN_FIRST = 6
LINKS = f"""[...document.querySelectorAll('{FOUND}')].map(link => link.getAttribute('href'))"""
# Results come one by one, and below a line that says in the end how many there are.
DONE = f"""document.querySelectorAll('{FOUND}').length >= {SEEN_FIRST}
    || /finished/.test(document.querySelector('.search-summary')?.innerText ?? 'finished')"""
PICTURE_HEIGHT_MAX = 16_000  # pixels; of what is taller Chromium takes only the top

UNDRAWN = """[...document.images].filter(image =>
    image.getClientRects().length && !(image.complete && image.naturalWidth)).map(i => i.src)"""
# What is wider than the window, unless it is in a part that scrolls by itself.
WIDE = """(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const scrolls = e => { for (; e; e = e.parentElement)
        if (getComputedStyle(e).overflowX !== 'visible' && e !== document.body
            && e !== document.documentElement) return true; return false; };
    return [...document.querySelectorAll('main *')].filter(e =>
        e.getBoundingClientRect().right > width + 1 && !scrolls(e))
        .slice(0, 1).map(e => (e.tagName + ' ' + e.textContent.trim()).slice(0, 60));
})()"""
# Tables of which one sees only a part, though they have few columns; others may scroll.
CUT = """[...document.querySelectorAll('.table-wrapper')]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && e.querySelector('tr').cells.length <= 3)
    .map(e => e.textContent.trim().replace(/\\s+/g, ' ').slice(0, 60))"""
# Names in tables, and titles, that are broken within a word.
BROKEN = r"""[...document.querySelectorAll('.table-wrapper code, h1')].flatMap(code => {
    const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), found = [];
    for (let text; (text = texts.nextNode());)
        for (const word of text.data.matchAll(/[a-z0-9]+/gi)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (range.getClientRects().length > 1) found.push(code.textContent.slice(0, 60));
        }
    return found;
})"""
# Pairs of labels with more than a sliver in common.  A label's own box is larger than its text.
LABELS = """(() => {
    const named = [...document.querySelectorAll('.edgeLabel .label, .nodeLabel, .messageText')]
        .map(e => [e.textContent.trim(), e.getBoundingClientRect()])
        .filter(([text, box]) => text && box.width && box.height);
    const found = [];
    named.forEach(([text, a], i) => named.slice(i + 1).forEach(([other, b]) => {
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 3 && y > 3) found.push(text + ' | ' + other);
    }));
    return found;
})()"""


class Silent(SimpleHTTPRequestHandler):
    """Serves files as they are now, and says nothing of it."""

    def send_head(self) -> Any:
        """Answer in full: a date tells no two changes in one second apart."""
        del self.headers["If-Modified-Since"]
        return super().send_head()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send a file, unless the browser has gone on to another page."""
        with suppress(ConnectionError):
            super().copyfile(source, outputfile)

    def log_message(self, *args: object) -> None:
        """Not on the terminal."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Where a browser finds the site; from files it would not let the search read the pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@dataclass
class Visit:
    """What was wrong with the pages opened in one window; `home` is where the site is served."""

    page: Page
    site: Path
    home: str
    wrong: list[str]
    patience_ms: int = 20_000  # of a search, whose index takes a while

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self._requested(request.url))
        self.page.on("requestfailed", lambda request: self._failed(request.url, request.failure))
        self.page.on("pageerror", lambda error: self.wrong.append(f"script error: {error}"))
        self.page.on(
            "console",
            lambda said: self.wrong.append(f"console: {said.text}") if said.type == "error" else 0,
        )

    def _failed(self, url: str, why: str | None) -> None:
        if why != "net::ERR_ABORTED":  # we have gone on to another page
            self.wrong.append(f"failed: {url}")

    def _requested(self, url: str) -> None:
        if not url.startswith((self.home, "data:", "blob:")):
            self.wrong.append(f"leaves the site: {url}")

    def open(self, path: Path, query: str = "") -> list[str]:
        """Open a page; what is wrong with it."""
        self.wrong.clear()
        url = self.home + path.relative_to(self.site).as_posix() + query
        self.page.goto(url, wait_until="load")
        if path.suffix == ".svg":
            return [*self.wrong, *(f"labels overlap: {e}" for e in self.page.evaluate(LABELS))]
        self.page.evaluate("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
        drawn = [f"not drawn: {e}" for e in self.page.evaluate(UNDRAWN)]
        wide = [f"too wide: {e}" for e in self.page.evaluate(WIDE)]
        cut = [f"table cut off: {e}" for e in self.page.evaluate(CUT)]
        broken = [f"broken in a word: {e}" for e in self.page.evaluate(BROKEN)]
        return [*self.wrong, *drawn, *wide, *cut, *broken]

    def picture(self, target: Path) -> None:
        """Write down what the page looks like."""
        height = self.page.evaluate("document.documentElement.scrollHeight")
        target.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(
            path=target, full_page=height <= PICTURE_HEIGHT_MAX, animations="disabled"
        )

    def search(self) -> Iterator[str]:
        """Search as a reader does; the index is a script that the page loads."""
        for word, page in SEARCHED.items():
            yield from self.open(self.site / "search.html", f"?q={word}")
            try:
                self.page.wait_for_selector(FOUND, timeout=self.patience_ms)
                self.page.wait_for_function(DONE, timeout=self.patience_ms)
            except Exception as error:  # playwright's own, of a type that it does not promise
                yield f"no page found for {word!r}: {error}"
                continue
            first = [re.split("[?#]", link)[0] for link in self.page.evaluate(LINKS)][:SEEN_FIRST]
            if f"{page}.html" not in first:
                yield f"a search for {word!r} names {first} before {page}.html"


def browse(browser: Browser, site: Path, home: str, screenshots: Path) -> Iterator[str]:
    """A line for each thing that is wrong; pictures are written on the way."""
    pages = sorted(path for path in site.rglob("*.html") if not LEFT_OUT & set(path.parts))
    telephone = [path for names in ON_A_TELEPHONE for path in sorted(site.glob(names))]
    windows = [(scheme, scheme, WINDOW, pages) for scheme in SCHEMES]
    windows.append(("telephone", "light", TELEPHONE, telephone))
    for name, scheme, (width, height), wanted in windows:
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": height},
        )
        visit = Visit(context.new_page(), site, home, [])
        for path in wanted:
            place = path.relative_to(site)
            yield from (f"{place}, {name}: {fault}" for fault in visit.open(path))
            visit.picture(screenshots / name / place.with_suffix(".png"))
        yield from (f"search, {name}: {fault}" for fault in visit.search())
        visit.picture(screenshots / name / "search.png")
        if name == "light":
            for path in sorted(site.glob("_static/diagrams/*.svg")):
                place = path.relative_to(site)
                yield from (f"{place}: {fault}" for fault in visit.open(path))
        context.close()


def browser_path(own: str) -> str | None:
    """The browser to use: named, on the path, or playwright's `own`."""
    named = os.environ.get("CULM_BROWSER")
    if named:
        return named
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or (own if Path(own).exists() else None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, as playwright has them; ``None`` if there is none."""
    with sync_playwright() as playwright:
        path = browser_path(playwright.chromium.executable_path)
        if path is None:
            yield None
            return
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def main(folder: str) -> int:
    """Print what is wrong; the exit status is 1 if anything is."""
    site = Path(folder).resolve()
    screenshots = site.parent / "screenshots"
    with chromium() as browser:
        if browser is None:
            print(
                "SKIPPED: no browser was found, and the site was not looked at. Install one"
                " (apt install chromium-headless-shell) or name it with CULM_BROWSER."
            )
            return 0
        version = browser.version
        with served(site) as home:
            found = [*faults(site), *browse(browser, site, home, screenshots)]
    seen = len(list(screenshots.rglob("*.png")))
    print("\n".join([*found, f"Chromium {version}: {len(found)} faults, {seen} pictures in"]))
    print(screenshots)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
