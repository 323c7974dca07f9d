"""Every normative sentence of the specification, its decisions and the paper is tested."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from garlic_rules import BOOK

SHARED = Path(__file__).resolve().parents[3] / "shared"
SEEDS = Path(os.environ.get("CULM_SEEDS", SHARED / "seeds"))
TEXTS = {
    "Specification": SEEDS / "garlic-farm.rst",
    "Decisions": SEEDS.parent / "specs" / "garlic-farm.md",
}


def text_of(source: str) -> str:
    path = TEXTS[source]
    if not path.exists():
        pytest.skip(f"the text is absent: {path} (set CULM_SEEDS)")
    return path.read_text(encoding="utf-8")


def test_every_sentence_of_garlic_farm_and_raft_has_a_test() -> None:
    text, missing = BOOK.report()
    assert missing == 0, text


def test_every_test_that_is_named_exists() -> None:
    assert {test for rule in BOOK.all_rules() for test in rule.tests} - set(
        BOOK.known_tests()
    ) == set()


def test_no_sentence_stands_twice() -> None:
    assert [
        key for key, count in Counter(rule.key for rule in BOOK.all_rules()).items() if count > 1
    ] == []


@pytest.mark.parametrize("source", TEXTS)
def test_every_quotation_is_in_its_text(source: str) -> None:
    text = " ".join(text_of(source).split())
    quoted = [rule.text for rule in BOOK.all_rules() if rule.source == source]
    assert len(quoted) > 40
    assert [quote for quote in quoted if quote not in text] == []


def test_every_row_and_every_field_of_the_specification_is_quoted() -> None:
    text = text_of("Specification")
    fields = [
        " ".join(line.split())
        for block in re.findall(r"lang='dataspec' %\}(.*?)\{% end", text, flags=re.S)
        for line in block.splitlines()
        if line.strip()
    ]
    rows = [" ".join(row.split()) for row in re.findall(r"^\w+ +\d+(?: .*)?$", text, flags=re.M)]
    assert (len(fields), len(rows)) == (42, 22)
    quoted = " ".join(rule.text for rule in BOOK.all_rules() if rule.source == "Specification")
    assert [line for line in (*fields, *rows) if line not in quoted] == []


def test_every_section_of_the_paper_is_there() -> None:
    sections = {rule.section for rule in BOOK.all_rules() if rule.source == "Raft paper"}
    wanted = {"Figure 2", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "6", "7", "8"}
    assert {section.split(",")[0].removeprefix("section ") for section in sections} >= wanted
