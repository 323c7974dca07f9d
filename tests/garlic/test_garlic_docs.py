"""The page on Garlic Farm agrees with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from raft_simulator import run_seed

from culm.garlic.raft import State, effects
from culm.garlic.raft.change import Change
from culm.garlic.raft.elector import Elector
from culm.garlic.raft.engine import Engine
from culm.garlic.raft.progress import Progress

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
    roles = (State.FOLLOWER, State.PRE_CANDIDATE, State.CANDIDATE, State.LEADER)
    for kind, rule in Engine.RULES.items():
        row = re.search(rf"^\| `{kind.__name__}` \|(.*)\|$", page, flags=re.M)
        assert row is not None, kind
        cells = [cell.strip() == "yes" for cell in row[1].split("|")]
        assert cells == [role in rule.roles for role in roles]


def test_every_effect_is_explained(page: str) -> None:
    owed = page[page.index("### What a driver owes") : page.index("### Who acts")]
    names = {kind.__name__ for kind in get_args(effects.RaftEffect)}
    assert set(re.findall(r"^\| `(\w+)`", owed, flags=re.M)) == names


class Transitions:
    """Watches an attribute of all objects of a class."""

    def __init__(self, patch: pytest.MonkeyPatch, watched: type, attribute: str) -> None:
        self.seen: set[tuple[str, str]] = set()
        before = watched.__setattr__

        def watch(one: object, name: str, value: Any) -> None:
            old = getattr(one, name, None) if name == attribute else None
            if old is not None:
                self.seen.add((old.value, value.value))
            before(one, name, value)

        patch.setattr(watched, "__setattr__", watch)


@pytest.mark.once
def test_the_diagrams_show_the_transitions_that_happen_and_no_others(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = [
        Transitions(monkeypatch, Elector, "role"),
        Transitions(monkeypatch, Progress, "state"),
        Transitions(monkeypatch, Change, "state"),
    ]
    diagrams = re.findall(r"^```{mermaid}\n(.*?)^```", page, flags=re.M | re.S)
    drawn = [set(re.findall(r"^    (\w+) --> (\w+):", one, flags=re.M)) for one in diagrams]
    both = list(zip(drawn, watched, strict=True))
    for number, seed in enumerate(range(360, 2360)):
        run_seed(seed)
        if number >= 100 and all(shown <= transitions.seen for shown, transitions in both):
            break  # rare ones may take long
    for shown, transitions in both:
        happened = {(old, new) for old, new in transitions.seen if old != new}
        assert shown - transitions.seen == set()
        assert happened - shown == set()
