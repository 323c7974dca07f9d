"""Every normative sentence of the specification is tested."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from ssb_rules import BOOK

SHARED = Path(__file__).resolve().parents[3] / "shared"
SEED = Path(os.environ.get("CULM_SEEDS", SHARED / "seeds")) / "epidemic-broadcast-trees.txt"


def test_every_sentence_has_a_test() -> None:
    text, missing = BOOK.report()
    assert missing == 0, text


def test_every_test_that_is_named_exists() -> None:
    named = {test for rule in BOOK.all_rules() for test in rule.tests}
    assert named - set(BOOK.known_tests()) == set()


def test_every_sentence_of_the_specification_is_quoted_or_explains() -> None:
    if not SEED.exists():
        pytest.skip(f"the text is absent: {SEED} (set CULM_SEEDS)")
    text = " ".join(SEED.read_text(encoding="utf-8").split())
    text = text[text.index("Creating an EBT session") : text.index("Other resources")]
    with BOOK.path.open("rb") as file:
        explanations = tomllib.load(file)["explanations"]
    for part in sorted([rule.text for rule in BOOK.all_rules()] + explanations, key=len)[::-1]:
        assert part in text
        text = text.replace(part, " ", 1)
    assert text.split() == []
