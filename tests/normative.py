"""Which tests prove which normative sentences: the common part of the rooms' lists."""

from __future__ import annotations

import ast
import sys
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path


@dataclass(frozen=True)
class Rule:
    """A sentence and the names of the tests that prove it."""

    source: str
    section: str
    text: str
    tests: tuple[str, ...]
    codes: tuple[str, ...] = ()  # of errors, where the book has any

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
            Rule(part["source"], part["section"], text, tuple(tests), tuple(codes))
            for part in content["part"]
            for (text, *tests), codes in zip_longest(
                part["sentences"], part.get("codes", ()), fillvalue=()
            )
        ]

    def known_tests(self) -> dict[str, str]:
        """``file.py::test``, by the test's name."""
        return {
            node.name: f"{path.name}::{node.name}"
            for folder in self.folders
            for path in sorted(folder.glob("test_*.py"))
            if path.name.startswith(self.prefixes)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }

    def proofs(self) -> dict[str, list[str]]:
        """The existing tests of each rule."""
        known = self.known_tests()
        return {
            rule.key: [known[test] for test in rule.tests if test in known]
            for rule in self.all_rules()
        }

    def report(self) -> tuple[str, int]:
        """All sentences with their tests, and how many have none."""
        lines: list[str] = []
        rules, proofs, missing, heading = self.all_rules(), self.proofs(), 0, ""
        for rule in rules:
            if rule.heading != heading:
                heading = rule.heading
                lines.append(f"\n{heading}")
            lines.append(f"  {rule.text}")
            lines += [f"      {name}" for name in proofs[rule.key]] or ["      NO TEST"]
            missing += not proofs[rule.key]
        lines.append(f"\n{len(rules)} sentences, {missing} without a test")
        return "\n".join(lines), missing

    def main(self) -> None:
        """Print the report; exit with 1 if a sentence has no test."""
        text, missing = self.report()
        print(text)
        sys.exit(missing > 0)
