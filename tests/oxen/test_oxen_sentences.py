"""Every normative sentence of the specification and of its decisions is tested."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from oxen_rules import BOOK

SHARED = Path(__file__).resolve().parents[3] / "shared"
SEEDS = Path(os.environ.get("CULM_SEEDS", SHARED / "seeds"))
TEXTS = {
    "Specification": SEEDS / "oxen.md",
    "Decisions": SEEDS.parent / "specs" / "oxen.md",
}


def test_every_sentence_has_a_test() -> None:
    text, missing = BOOK.report()
    assert missing == 0, text


def test_every_test_that_is_named_exists() -> None:
    assert {test for rule in BOOK.all_rules() for test in rule.tests} - set(
        BOOK.known_tests()
    ) == set()


def test_no_sentence_stands_twice() -> None:
    counts = Counter((rule.source, rule.section, rule.text) for rule in BOOK.all_rules())
    assert [key for key, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("source", TEXTS)
def test_every_quotation_is_in_its_text(source: str) -> None:
    path = TEXTS[source]
    if not path.exists():
        pytest.skip(f"the text is absent: {path} (set CULM_SEEDS)")
    text = " ".join(path.read_text(encoding="utf-8").split())
    quoted = [rule.text for rule in BOOK.all_rules() if rule.source == source]
    assert len(quoted) > 20
    assert [quote for quote in quoted if quote not in text] == []
