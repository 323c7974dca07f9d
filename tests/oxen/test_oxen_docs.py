"""The page on Oxen says what the code does."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from culm.oxen import ErrorCode, Limits, PeerState, Timing

PAGE = Path(__file__).parents[2] / "docs" / "oxen.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, "oxen.md", str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 15
    assert result.failed == 0


@pytest.mark.parametrize("kind", [Limits, Timing])
def test_every_limit_and_time_is_listed_with_its_default(page: str, kind: type) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", page, flags=re.M))
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        assert float(rows[name]) == getattr(kind(), name)


def test_every_error_code_is_explained(page: str) -> None:
    errors = page[page.index("## Errors") :]
    assert set(re.findall(r"`([A-Z_]{5,})`", errors)) == {code.name for code in ErrorCode}


def test_every_state_is_in_the_diagram(page: str) -> None:
    diagram = page[page.index("stateDiagram") :]
    found = set(re.findall(r"^ +([A-Z_]+) -->", diagram, flags=re.M))
    assert found == {state.name for state in PeerState}
