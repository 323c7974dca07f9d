"""The page on machines of one's own shows the chat as it is, and its examples run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/own-machines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)


def test_what_is_shown_is_the_chats_own_text() -> None:
    files = [
        *sorted((ROOT / "examples/foreign/netstrings").glob("*.py")),
        ROOT / "tests/foreign/test_netstrings.py",
    ]
    texts = [file.read_text(encoding="utf-8") for file in files]
    shown = [block for block in BLOCKS if ">>>" not in block]
    assert len(shown) > 10
    assert [block for block in shown if not any(block in text for text in texts)] == []


def test_the_examples_run() -> None:
    for block in BLOCKS:
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, {}, "own-machines.md", None, 0)
            assert doctest.DocTestRunner().run(test) == doctest.TestResults(0, len(test.examples))
