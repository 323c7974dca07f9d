"""Which test proves which normative sentence of Oxen.

``python tests/oxen/oxen_rules.py`` lists the sentences with their tests.  ``rules.toml``
holds the sentences of the specification and of the decisions that complete it.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import normative

HERE = Path(__file__).parent
FOLDERS = (HERE, HERE.parent / "wire")


@dataclass(frozen=True)
class Rule:
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


def all_rules() -> list[Rule]:
    with (HERE / "rules.toml").open("rb") as file:
        content = tomllib.load(file)
    return [
        Rule(part["source"], part["section"], text, tuple(tests))
        for part in content["part"]
        for text, *tests in part["sentences"]
    ]


def known_tests() -> dict[str, str]:
    """``file.py::test`` of each test's name; of Oxen's and XENC's files only."""
    return {
        name.partition("::")[2]: name
        for name, _ in normative.test_functions(*FOLDERS)
        if name.startswith(("test_oxen_", "test_xenc"))
    }


def proofs() -> dict[str, list[str]]:
    """The tests of each rule that exist."""
    known = known_tests()
    return {rule.key: [known[test] for test in rule.tests if test in known] for rule in all_rules()}


def report() -> tuple[str, int]:
    """All sentences with their tests, and how many have none."""
    return normative.report(all_rules(), proofs())


if __name__ == "__main__":
    text, missing = report()
    print(text)
    sys.exit(missing > 0)
