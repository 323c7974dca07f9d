"""Which test proves which normative sentence of the specification.

``python tests/point2point/rules.py`` lists the sentences with their tests.  A test names
what it proves with ``@rule("...")``: a quotation, word for word, from ``rules.toml``.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it

import normative

HERE = Path(__file__).parent
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    section: str
    quote: str
    codes: tuple[str, ...] = ()
    invariant: bool = False
    source: str = "seeds/bamboo-point2point.md"

    @property
    def key(self) -> str:
        """What tests say; the channel comes along where both lists have the same words."""
        return f"{self.section}: {self.quote}" if self.invariant else self.quote

    @property
    def heading(self) -> str:
        return f"Invariants, {self.section} channel" if self.invariant else self.section

    @property
    def text(self) -> str:
        return f"{self.quote} [{', '.join(self.codes)}]" if self.codes else self.quote


def rule(*keys: str) -> Callable[[F], F]:
    """The test proves these sentences (``"data: ..."`` for one of the lists of invariants)."""
    unknown = set(keys) - {known.key for known in all_rules()}
    if unknown:
        raise ValueError(f"not in rules.toml: {unknown}")
    return lambda test: test


def all_rules() -> list[Rule]:
    with (HERE / "rules.toml").open("rb") as file:
        content = tomllib.load(file)
    found = [
        Rule(each["section"], quote, source=each.get("source", Rule.source))
        for each in content["rule"]
        for quote in each["quotes"]
    ]
    return found + [
        Rule(each["channel"], each["quote"], tuple(each["codes"]), invariant=True)
        for each in content["invariant"]
    ]


def proofs() -> dict[str, list[str]]:
    """The tests that name each rule, as ``file.py::test``."""
    found: dict[str, list[str]] = {known.key: [] for known in all_rules()}
    for name, test in normative.test_functions(HERE):
        for decorator in test.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "rule":
                for argument in decorator.args:
                    found[ast.literal_eval(argument)].append(name)
    return found


def report() -> tuple[str, int]:
    """All sentences with their tests, and how many have none."""
    return normative.report(all_rules(), proofs())


if __name__ == "__main__":
    text, missing = report()
    print(text)
    sys.exit(missing > 0)
