"""The pages on Secure Scuttlebutt agree with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("ssb*.md")}


@pytest.mark.parametrize("page", sorted(page for page, text in PAGES.items() if ">>>" in text))
def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGES[page], flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, page, page, 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 5
    assert result.failed == 0
