"""What was accepted ends: with each limit at its least value everything reaches every peer.

A finite attack ends, too: guests do harm, and are gone in the end.

``CULM_SSB_LEAST_SEEDS`` sets the number of worlds, ``CULM_SSB_LEAST_FIRST_SEED`` the first one.
"""

from __future__ import annotations

import pytest
from peer_least import Least

from culm.ssb.ebt.session import PeerSession
from culm.ssb.history import HistoryServer
from effort import seeds

WORLDS = seeds("SSB_LEAST", usual=40, long=5_000)


@pytest.mark.parametrize("seed", WORLDS)
def test_with_the_least_of_everything_all_comes_to_all(seed: int) -> None:
    Least(seed).live(80).settle()


def test_canary_calls_that_never_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryServer, "_end_oldest", lambda server: False)
    assert any(fails(seed) for seed in range(40))


def test_canary_whoever_lies_of_a_feed_ends_it_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: set[str] = set()
    monkeypatch.setattr(PeerSession, "distrust", lambda session, feed: wrong.add(feed))
    monkeypatch.setattr(PeerSession, "distrusts", lambda session, feed: feed in wrong)
    assert any(fails(seed) for seed in range(40))


def fails(seed: int) -> bool:
    try:
        Least(seed).live(80).settle()
    except AssertionError:
        return True
    return False
