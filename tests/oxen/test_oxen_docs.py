"""The page on Oxen agrees with the code."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from oxen_simulation import simulate
from oxen_support import Table

from culm.oxen import DropReason, Limits, PeerState, Timing
from culm.oxen.messages import Finalize, Synchronize
from culm.oxen.peer import Peer
from culm.oxen.roster import Roster

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
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+|inf) \|", page, flags=re.M))
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        assert float(rows[name]) == getattr(kind(), name)


def test_every_reason_for_dropping_is_explained(page: str) -> None:
    dropped = page[page.index("## What has no effect") : page.index("## Errors")]
    assert re.findall(r"^\| `([A-Z_]+)` \|", dropped, flags=re.M) == [r.name for r in DropReason]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """The transitions of associations from now on."""
    found: set[tuple[str, str]] = set()

    def enter(peer: Peer, state: PeerState, now: float) -> None:
        found.add((peer.state.name, state.name))
        enter_truly(peer, state, now)

    def ending(end: Callable[[Roster, Peer], None]) -> Callable[[Roster, Peer], None]:
        def noted(roster: Roster, peer: Peer) -> None:
            found.add((peer.state.name, "[*]"))
            end(roster, peer)

        return noted

    enter_truly = Peer.enter
    monkeypatch.setattr(Peer, "enter", enter)
    monkeypatch.setattr(Roster, "forget", ending(Roster.forget))
    monkeypatch.setattr(Roster, "bury", ending(Roster.bury))
    return found


def test_the_diagram_shows_every_turn_and_no_other(page: str, turns: set[tuple[str, str]]) -> None:
    diagram = page[page.index("stateDiagram") :]
    drawn = set(re.findall(r"^ +(\S+) --> (\S+)", diagram, flags=re.M))
    for seed in range(20):
        simulate(seed)
    for story in (_of_one_that_is_cut_off, _of_one_that_leaves, _of_one_that_starts_anew):
        story()
    assert turns == {(one, other) for one, other in drawn if one != "[*]"}
    assert {other for one, other in drawn if one == "[*]"} == {
        Peer.__dataclass_fields__["state"].default.name
    }  # type: ignore[attr-defined]


def _of_one_that_is_cut_off() -> None:
    table = Table(timing=Timing(forget_s=600.0))
    table.tell_message(b"C", Synchronize(0, 0))
    table.join(b"P")
    table.wait(81.0)
    table.contact(b"P")
    table.wait(100.0)  # reachable, but it does not synchronize
    table.wait(700.0)
    table.join(b"Q")
    table.tell_message(b"Q", Finalize(1, 0))
    table.wait(90.0)


def _of_one_that_leaves() -> None:
    table = Table()
    table.join(b"P")
    table.tell_message(b"P", Finalize(0, 0))


def _of_one_that_starts_anew() -> None:
    table = Table()
    table.tell_message(b"P", Synchronize(0, 0))
    table.tell_message(b"P", Synchronize(0, 2**50))
    table.join(b"Q", one=2**50)
    for start in (2**51, 2**52):
        table.insist(b"Q", Synchronize(0, start))
        table.accept(b"Q", b"Q")
    table.node.leave()
    table.insist(b"Q", Synchronize(0, 2**53))
