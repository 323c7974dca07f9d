"""The report in a real browser; runs in `tox -e site`, where there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from culm.spark.page import Code, Query, Section, Table, bars, html_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

pytest.importorskip("playwright.sync_api", reason="tox -e site installs playwright")
import browse_site

COUNT = 40
QUERY = Query(f"SELECT * FROM parquet.`/{'deep/' * 30}verdicts` WHERE log = X'{'ab' * 40}'")
ROWS = [
    (Code(f"{at:08x}…/0", f"{at:064x}/0"), bar, "FORK" if at % 4 else "GAP", QUERY)
    for at, bar in enumerate(bars(range(COUNT)))
]
TABLES = [
    Table("Logs", ("log", "entries", "why", "the rows"), ROWS),
    Table("By file", ("", "rows", "the rows"), [("x" * 200, 1, QUERY)]),
]
WIDE, NARROW = (1280, 900), (390, 844)


@pytest.fixture(scope="module", params=[WIDE, NARROW])
def page(request: pytest.FixtureRequest) -> Iterator[Any]:
    with browse_site.chromium() as browser:
        if browser is None:
            pytest.skip("no browser")
        width, height = request.param
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_content(html_of("title", "lead", "failed", [], [Section("What", TABLES)]))
        yield page


def test_nothing_of_a_row_is_beside_the_screen(page: Any) -> None:
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate(
        "[...document.querySelectorAll('.table')].filter(e => e.scrollWidth > e.clientWidth).length"
    )
    assert wide == 0


def test_a_query_makes_its_row_tall_only_when_it_is_opened(page: Any) -> None:
    first = page.locator("tbody tr").first
    line = page.evaluate("parseFloat(getComputedStyle(document.body).lineHeight)")
    lines = 1 if page.viewport_size["width"] == WIDE[0] else 5
    assert first.bounding_box()["height"] <= line * (lines + 1)
    assert not first.locator("details code").is_visible()
    first.locator("summary").click()
    assert first.locator("details code").is_visible()
    first.locator("summary").click()


@pytest.mark.parametrize(
    ("wanted", "count"),
    [("gap", COUNT // 4), ("FORK 00000001…", 1), (f"{7:064x}", 1), ("select", 0), ("", COUNT)],
)
def test_rows_are_filtered_by_words_and_counted(page: Any, wanted: str, count: int) -> None:
    [field] = page.locator("input").all()
    field.fill(wanted)
    rows = page.locator("table").first.locator("tbody tr").all()
    assert sum(row.is_visible() for row in rows) == count
    told = page.locator("output").text_content()
    assert told == (f"{count} of {COUNT}" if wanted else "")
