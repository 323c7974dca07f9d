"""Which tests prove which normative sentences: what the rooms' lists have in common."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

TestFunction = ast.FunctionDef


class Sentence(Protocol):
    """A normative sentence, under a heading; `key` is what it is found by."""

    @property
    def heading(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def key(self) -> str: ...


def test_functions(*folders: Path) -> Iterator[tuple[str, TestFunction]]:
    """All tests of the folders, as ``file.py::test`` and their syntax."""
    for folder in folders:
        for path in sorted(folder.glob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    yield f"{path.name}::{node.name}", node


test_functions.__test__ = False  # type: ignore[attr-defined]


def report(sentences: Iterable[Sentence], proofs: Mapping[str, Sequence[str]]) -> tuple[str, int]:
    """All sentences with their tests, and how many have none."""
    lines: list[str] = []
    missing, count, heading = 0, 0, ""
    for sentence in sentences:
        count += 1
        if sentence.heading != heading:
            heading = sentence.heading
            lines.append(f"\n{heading}")
        lines.append(f"  {sentence.text}")
        tests = proofs[sentence.key]
        lines += [f"      {name}" for name in tests] or ["      NO TEST"]
        missing += not tests
    lines.append(f"\n{count} sentences, {missing} without a test")
    return "\n".join(lines), missing
