"""The page with all states shows those of the code."""

from __future__ import annotations

import pytest
import states_page


def test_the_page_is_made_of_the_tables_of_the_code(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite-transcripts"):
        states_page.PAGE.write_text(states_page.page(), encoding="utf-8")
    shown = states_page.PAGE.read_text(encoding="utf-8")
    assert shown == states_page.page(), "pytest --rewrite-transcripts does it"


def test_every_machine_is_on_the_page() -> None:
    assert states_page.missing() == set()


def test_every_protocols_page_leads_to_it() -> None:
    pages = {link.partition("#")[0] for _, link, _, _ in states_page.SECTIONS}
    pages |= {"ssb-ebt.md", "ssb-history.md", "ssb-muxrpc.md"}
    texts = {name: (states_page.DOCS / name).read_text(encoding="utf-8") for name in pages}
    assert {name for name, text in texts.items() if "](states.md#" not in text} == set()
