"""The page on bymux agrees with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from culm.bymux import HalfState, Limits
from culm.bymux.packets import PacketType
from culm.bymux.states import GLOBAL_RULES, STREAM_RULES, Rules

PAGE = Path(__file__).parents[2] / "docs" / "bymux.md"
WORDS = ("Credit", "Write", "Ping", "Pong", "Close", "StopRead")


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, "bymux.md", str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 20
    assert result.failed == 0


def diagram(rules: Rules) -> str:
    lines = ["stateDiagram-v2", "    [*] --> OPEN"]
    for half, row in rules.items():
        for packet_type, outcome in row.items():
            if isinstance(outcome, HalfState) and outcome is not half:
                lines.append(f"    {half.name} --> {outcome.name} : {WORDS[packet_type]}")
    return "\n".join([*lines, "    ENDED --> [*]"])


def table(title: str, rules: Rules) -> str:
    rows = [[title, *WORDS], ["---"] * 7]
    for half, row in rules.items():
        cells = [f"`{half.name}`"]
        for packet_type in PacketType:
            outcome = row[packet_type]
            cells.append("yes" if outcome is half else f"`{outcome.name}`")
        rows.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def test_diagram_is_that_of_the_tables(page: str) -> None:
    assert diagram(STREAM_RULES) == diagram(GLOBAL_RULES)
    assert f"```mermaid\n{diagram(STREAM_RULES)}\n```" in page


def test_tables_are_those_of_the_code(page: str) -> None:
    assert table("A stream's half", STREAM_RULES) in page
    assert table("The global half", GLOBAL_RULES) in page


def test_every_limit_is_listed_with_its_default(page: str) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", page, flags=re.M))
    for name in Limits.__dataclass_fields__:
        number, _, unit = rows[name].partition(" ")
        assert int(number) * (1024 if unit == "KiB" else 1) == getattr(Limits(), name)
