"""The page on Garlic Farm says what the code does."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from culm.garlic.errors import GarlicErrorCode
from culm.garlic.raft import Role, effects
from culm.garlic.raft.change import ChangeState
from culm.garlic.raft.engine import RULES
from culm.garlic.raft.progress import ProgressState

PAGE = Path(__file__).parents[2] / "docs" / "garlic.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, "garlic.md", str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 8
    assert result.failed == 0


def test_the_table_of_roles_is_that_of_the_code(page: str) -> None:
    roles = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
    for kind, rule in RULES.items():
        row = re.search(rf"^\| `{kind.__name__}` \|(.*)\|$", page, flags=re.M)
        assert row is not None, kind
        cells = [cell.strip() == "yes" for cell in row[1].split("|")]
        assert cells == [role in rule.roles for role in roles]


def test_every_error_code_is_explained(page: str) -> None:
    told = page[page.index("## Errors") : page.index("## Differences")]
    assert set(re.findall(r"`([A-Z_]{5,})`", told)) == {code.name for code in GarlicErrorCode}


def test_every_effect_is_explained(page: str) -> None:
    owed = page[page.index("### What a driver owes") : page.index("### Who acts")]
    names = {name for name in effects.__all__ if name != "SnapshotChunk"}
    assert set(re.findall(r"^\| `(\w+)`", owed, flags=re.M)) == names


@pytest.mark.parametrize("states", [ProgressState, ChangeState])
def test_diagrams_name_every_state(
    page: str, states: type[ProgressState] | type[ChangeState]
) -> None:
    diagrams = " ".join(re.findall(r"^```{mermaid}\n(.*?)^```", page, flags=re.M | re.S))
    assert {state.value for state in states} <= set(re.findall(r"\w+", diagrams))
