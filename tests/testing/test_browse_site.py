"""Faults that a real browser finds in a site; runs in `tox -e site`, where there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

pytest.importorskip("playwright.sync_api", reason="tox -e site installs playwright")
import browse_site

PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><main>{}</main>
<div id="search-results"><ul class="search"><li><a href="index.html">x</a></li></ul></div>"""

TABLE = """<div class="table-wrapper" style="overflow-x: auto">
<table style="width: 900px"><tr>{}</table></div>"""

NAMES = """<div class="table-wrapper"><table><td style="display: block; width: 6em">
<code style="overflow-wrap: anywhere; font: 16px monospace">{}</code></table></div>"""

TITLE = '<h1 style="width: 8em; overflow-wrap: break-word; font: 16px monospace">{}</h1>'


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browse_site.Visit]:
    with browse_site.chromium() as browser:
        if browser is None:
            pytest.skip("no browser")
        page = browser.new_context(viewport={"width": 400, "height": 300}).new_page()
        site = tmp_path_factory.mktemp("site")
        with browse_site.served(site) as home:
            yield browse_site.Visit(page, site, home, [])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("<p>all is well</p>", None),
        ("<script>missing()</script>", "script error: missing is not defined"),
        ('<img src="gone.png" width=9 height=9>', "not drawn: "),
        ('<img src="http://127.0.0.1:9/p.png">', "leaves the site: http://127.0.0.1:9/p.png"),
        ('<div style="width: 900px">wide</div>', "too wide: DIV wide"),
        (TABLE.format("<td>one<td>two<td>three"), "table cut off: onetwothree"),
        (TABLE.format("<td>one<td>two<td>three<td>four"), None),
        (NAMES.format("a_name<wbr>.ofparts"), None),
        (NAMES.format("a_name.ofparts"), "broken in a word: a_name.ofparts"),
        (TITLE.format("by a symptom"), None),
        (TITLE.format("by troubleshooting"), "broken in a word: by troubleshooting"),
        ('<div style="overflow-x: auto"><div style="width: 900px">wide</div></div>', None),
    ],
)
def test_what_a_reader_would_run_into_is_found(
    visit: browse_site.Visit, content: str, fault: str | None
) -> None:
    page = visit.site / f"{len(list(visit.site.iterdir()))}.html"  # a browser remembers pages
    page.write_text(PAGE.format(content))
    found = visit.open(page)
    assert bool(found) == bool(fault)
    assert fault is None or any(line.startswith(fault) for line in found)


@pytest.mark.parametrize(("x", "overlap"), [(20, True), (200, False)])
def test_labels_on_one_another_are_found(visit: browse_site.Visit, x: int, overlap: bool) -> None:
    picture = visit.site / f"{x}.svg"
    picture.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="99">'
        '<text class="messageText" x="10" y="50">one label</text>'
        f'<text class="messageText" x="{x}" y="52">another</text></svg>'
    )
    assert visit.open(picture) == (["labels overlap: one label | another"] if overlap else [])


def test_a_search_that_finds_nothing_or_other_pages_is_a_fault(
    visit: browse_site.Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = visit.site / "search.html"
    links = [
        f'<li><a href="{name}.html?x">x</a></li>' for name in set(browse_site.SEARCHED.values())
    ]
    item = PAGE[PAGE.index("<li>") : PAGE.index("</ul>")]
    page.write_text(PAGE.replace(item, "".join(links)).format("a page"))
    assert list(visit.search()) == []
    page.write_text(PAGE.format("a page"))
    assert len(list(visit.search())) == len(browse_site.SEARCHED)
    page.write_text(PAGE.replace(item, "").format("a page"))
    monkeypatch.setattr(visit, "patience_ms", 50)
    assert "no page found" in next(visit.search())
