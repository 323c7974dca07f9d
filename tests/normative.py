"""Which tests prove which normative sentences: what the rooms' lists have in common."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Rule:
    """A sentence and the names of the tests that prove it."""

    source: str
    section: str
    text: str
    tests: tuple[str, ...]

    @property
    def heading(self) -> str:
        return f"{self.source}: {self.section}"

    @property
    def key(self) -> str:
        return f"{self.heading}: {self.text}"


@dataclass(frozen=True)
class RuleBook:
    """The sentences of ``path``, and the tests of some folders whose files begin with `prefixes`.

    Names of tests are unique there.
    """

    path: Path
    folders: tuple[Path, ...]
    prefixes: tuple[str, ...] = ("test_",)

    def all_rules(self) -> list[Rule]:
        with self.path.open("rb") as file:
            content = tomllib.load(file)
        return [
            Rule(part["source"], part["section"], text, tuple(tests))
            for part in content["part"]
            for text, *tests in part["sentences"]
        ]

    def known_tests(self) -> dict[str, str]:
        """``file.py::test`` of each test's name."""
        return {
            name.partition("::")[2]: name
            for name, _ in test_functions(*self.folders)
            if name.startswith(self.prefixes)
        }

    def proofs(self) -> dict[str, list[str]]:
        """The tests of each rule that exist."""
        known = self.known_tests()
        return {
            rule.key: [known[test] for test in rule.tests if test in known]
            for rule in self.all_rules()
        }

    def report(self) -> tuple[str, int]:
        """All sentences with their tests, and how many have none."""
        return report(self.all_rules(), self.proofs())

    def main(self) -> None:
        """Print the report; exit with 1 if a sentence has no test."""
        text, missing = self.report()
        print(text)
        sys.exit(missing > 0)
