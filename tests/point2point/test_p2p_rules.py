"""Every normative sentence of the specification has a test."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from p2p_rules import BOOK, invariants

from culm.point2point import ErrorCode

SHARED = Path(__file__).resolve().parents[3] / "shared"
SEEDS = Path(os.environ.get("CULM_SEEDS", SHARED / "seeds"))
TEXTS = {
    "Specification": SEEDS / "bamboo-point2point.md",
    "Decisions": SEEDS.parent / "specs" / "point2point.md",
}


def test_every_sentence_has_a_test() -> None:
    text, missing = BOOK.report()
    assert missing == 0, text


def test_every_test_that_is_named_exists() -> None:
    named = {test for rule in BOOK.all_rules() for test in rule.tests}
    assert named - set(BOOK.known_tests()) == set()


@pytest.mark.parametrize("source", TEXTS)
def test_every_quotation_is_in_its_text(source: str) -> None:
    path = TEXTS[source]
    if not path.exists():
        pytest.skip(f"the specification is absent: {path} (set CULM_SEEDS)")
    text = " ".join(path.read_text(encoding="utf-8").split())
    quotes = [rule.text for rule in BOOK.all_rules() if rule.source == source]
    assert len(quotes) > 20
    assert [quote for quote in quotes if quote not in text] == []


def test_both_lists_of_invariants_are_quoted_in_full() -> None:
    path = TEXTS["Specification"]
    if not path.exists():
        pytest.skip(f"the specification is absent: {path} (set CULM_SEEDS)")
    lists = re.findall(
        r"^Invariants, drop connection if violated:\n\n((?:- .*\n?)+)",
        path.read_text(encoding="utf-8"),
        flags=re.M,
    )
    assert len(lists) == 2
    for channel, lines in zip(("control", "data"), lists, strict=True):
        for line, rule in zip(lines.splitlines(), invariants(channel), strict=True):
            assert rule.text in line


def test_every_code_of_an_invariant_exists_and_belongs_to_one_sentence() -> None:
    rules = (*invariants("control"), *invariants("data"))
    named = [(code, rule.section) for rule in rules for code in rule.codes]
    assert {code for code, _ in named} <= {code.name for code in ErrorCode}
    assert len(named) == len(set(named))
