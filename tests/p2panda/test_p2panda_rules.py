"""Every normative sentence of p2panda's replication has a test."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from p2panda_rules import BOOK

SHARED = Path(__file__).resolve().parents[3] / "shared"
SEEDS = Path(os.environ.get("CULM_SEEDS", SHARED / "seeds"))
TEXTS = {
    "Specification": SEEDS / "p2panda-replication.txt",
    "Decisions": SEEDS.parent / "specs" / "p2panda.md",
}


def text_of(source: str) -> str:
    path = TEXTS[source]
    if not path.exists():
        pytest.skip(f"the text is absent: {path} (set CULM_SEEDS)")
    return path.read_text(encoding="utf-8")


def squeezed(text: str) -> str:
    """The text without white space, some of which was lost, and without backticks."""
    return re.sub(r"[\s`]", "", text)


def test_every_sentence_of_the_replication_has_a_test() -> None:
    text, missing = BOOK.report()
    assert missing == 0, text


def test_every_test_that_is_named_exists() -> None:
    named = {test for rule in BOOK.all_rules() for test in rule.tests}
    assert named - set(BOOK.known_tests()) == set()


def test_no_sentence_stands_twice() -> None:
    counts = Counter(rule.key for rule in BOOK.all_rules())
    assert [key for key, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("source", TEXTS)
def test_every_quotation_is_in_its_text(source: str) -> None:
    text = squeezed(text_of(source))
    quoted = [rule.text for rule in BOOK.all_rules() if rule.source == source]
    assert [quote for quote in quoted if squeezed(quote) not in text] == []


def test_every_message_and_all_that_must_or_should_be_is_quoted() -> None:
    text = text_of("Specification")
    quoted = [rule.text for rule in BOOK.all_rules() if rule.source == "Specification"]
    types = re.findall(r"<message_type=(\d+) ", text)
    assert len(types) == 12
    for number in types:
        assert [quote for quote in quoted if quote.startswith(f"<message_type={number} ")]
    # From the announcement on: the part before describes the document itself.
    rules = text[text.index("1. Announcement") :]
    words = r"MUST|must|needs? to|should|gets|initiated by|starts with|is asked to"
    for found in re.finditer(rf"\b(?:{words})\b", rules):
        around = squeezed(rules[max(0, found.start() - 250) : found.end() + 250])
        assert [quote for quote in map(squeezed, quoted) if quote in around], found
