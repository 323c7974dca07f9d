"""Which test proves which normative sentence of Oxen.

``python tests/oxen/oxen_rules.py`` lists the sentences with their tests.  ``rules.toml``
holds the sentences of the specification and of the decisions that complete it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FILES = (*HERE.glob("test_oxen_*.py"), HERE.parent / "wire" / "test_xenc.py")


@dataclass(frozen=True)
class Rule:
    source: str
    section: str
    text: str
    tests: tuple[str, ...]


def all_rules() -> list[Rule]:
    with (HERE / "rules.toml").open("rb") as file:
        content = tomllib.load(file)
    return [
        Rule(part["source"], part["section"], text, tuple(tests))
        for part in content["part"]
        for text, *tests in part["sentences"]
    ]


def known_tests() -> dict[str, str]:
    """``file.py::test`` of each test's name; of the same names the first counts."""
    found: dict[str, str] = {}
    for path in sorted(FILES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, f"{path.name}::{node.name}")
    return found


def report() -> tuple[str, int]:
    """All sentences with their tests, and how many have none."""
    known, lines, missing, heading = known_tests(), list[str](), 0, ""
    rules = all_rules()
    for rule in rules:
        if heading != f"{rule.source}: {rule.section}":
            heading = f"{rule.source}: {rule.section}"
            lines.append(f"\n{heading}")
        tests = [known[test] for test in rule.tests if test in known]
        missing += not tests
        lines.append(f"  {rule.text}")
        lines += [f"      {test}" for test in tests] or ["      NO TEST"]
    lines.append(f"\n{len(rules)} sentences, {missing} without a test")
    return "\n".join(lines), missing


if __name__ == "__main__":
    text, missing = report()
    print(text)
    sys.exit(missing > 0)
