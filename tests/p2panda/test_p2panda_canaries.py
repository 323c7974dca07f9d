"""Broken replicators, on purpose: the simulation notices each of them.

Unless it is noticed, 100,000 quiet seeds prove nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from p2panda_simulation import run_p2panda_seed

from culm.p2panda import Offers, Replicator
from culm.p2panda.intake import Arrival, Intake
from culm.p2panda.serving import Serving
from culm.p2panda.store import MemoryStore
from culm.replication import Pauses

SEEDS = 200  # tried for each of them
Break = Callable[[pytest.MonkeyPatch], None]
CANARIES: dict[str, tuple[Break, int]] = {}


def canary(first: int) -> Callable[[Break], Break]:
    """Enter a canary known to sing in seed `first`: the search begins there."""

    def enter(break_it: Break) -> Break:
        CANARIES[break_it.__name__.replace("_", " ")] = break_it, first
        return break_it

    return enter


def nothing(*arguments: Any) -> None:
    """Replaces a method."""


@canary(9000)
def what_is_written_later_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Serving, "wake", nothing)


@canary(9001)
def what_does_not_fit_into_one_read_is_left_out(patch: pytest.MonkeyPatch) -> None:
    read = MemoryStore.read

    def read_once(self: MemoryStore, spans: Any, *, after: int, **bounds: int) -> Any:
        return [] if after else read(self, spans, after=after, **bounds)

    patch.setattr(MemoryStore, "read", read_once)


@canary(9010)
def whoever_was_refused_does_not_ask_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pauses, "begin", nothing)


@canary(9008)
def log_heights_are_never_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicator, "_ask_for_heights", lambda *arguments: False)


@canary(9019)
def the_mode_that_failed_is_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicator, "_choose_mode", nothing)


@canary(9017)
def signatures_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Arrival, "verified", lambda self, signed: setattr(self, "signed", True))


@canary(9000)
def what_the_peer_was_once_sent_is_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    span = Offers.span
    patch.setattr(Offers, "everything", lambda self: False)
    patch.setattr(
        Offers, "span", lambda self, log, theirs, ours: span(self, log, max(theirs, ours - 1), ours)
    )


@canary(9209)
def a_log_that_grew_meanwhile_is_left_out_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Intake, "_conflict", lambda self, conflict: self._rest())


def notices(seed: int) -> bool:
    try:
        run_p2panda_seed(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", CANARIES)
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, first = CANARIES[name]
    break_it(monkeypatch)
    assert any(notices(seed) for seed in range(first, first + SEEDS))
