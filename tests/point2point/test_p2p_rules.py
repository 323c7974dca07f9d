"""No normative sentence of the specification is without a test."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rules import all_rules, report

from culm.point2point import ErrorCode

SHARED = Path(__file__).resolve().parents[3] / "shared"
SEED = Path(os.environ.get("CULM_SEEDS", SHARED / "seeds"))


def test_every_sentence_has_a_test() -> None:
    text, missing = report()
    assert missing == 0, text


@pytest.mark.parametrize("source", sorted({known.source for known in all_rules()}))
def test_every_quotation_is_in_its_text(source: str) -> None:
    path = SEED.parent / source
    if not path.exists():
        pytest.skip(f"the specification is absent: {path} (set CULM_SEEDS)")
    text = " ".join(path.read_text(encoding="utf-8").split())
    quotes = [known.quote for known in all_rules() if known.source == source]
    assert [quote for quote in quotes if quote not in text] == []


def test_both_lists_of_invariants_are_quoted_in_full() -> None:
    path = SEED / "bamboo-point2point.md"
    if not path.exists():
        pytest.skip(f"the specification is absent: {path} (set CULM_SEEDS)")
    lists = re.findall(
        r"^Invariants, drop connection if violated:\n\n((?:- .*\n?)+)",
        path.read_text(encoding="utf-8"),
        flags=re.M,
    )
    assert len(lists) == 2
    for channel, lines in zip(("control", "data"), lists, strict=True):
        quotes = [r.quote for r in all_rules() if r.invariant and r.section == channel]
        for line, quote in zip(lines.splitlines(), quotes, strict=True):
            assert quote in line


def test_every_code_of_an_invariant_exists_and_belongs_to_one_sentence() -> None:
    named = [(code, known.section) for known in all_rules() for code in known.codes]
    assert {code for code, _ in named} <= {code.name for code in ErrorCode}
    assert len(named) == len(set(named))
