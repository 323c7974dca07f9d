"""The project, as the tests of the package read it: its files and the README's code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(name: str) -> str:
    """The file `name`, relative to the project's root."""
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(name: str, language: str) -> list[str]:
    """The fenced blocks of one language in a Markdown file."""
    return [body for tag, body in _FENCE.findall(text(name)) if tag == language]
