"""The page on p2panda agrees with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "p2panda.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_examples_run() -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 10
    assert result.failed == 0
