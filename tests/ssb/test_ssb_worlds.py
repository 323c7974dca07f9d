"""Whole peers have the same in the end, whatever happened to them before.

``CULM_SSB_WORLDS_SEEDS`` sets the number of worlds of each kind, ``CULM_SSB_WORLDS_FIRST_SEED`` the
first one.
"""

from __future__ import annotations

import pytest
from peer_worlds import World

from culm.ssb.ebt.sources import Sources
from culm.testing import captures
from effort import seeds

STEPS = (60, 120, 250, 400)


@captures.of_failures
def tell(seed: int, *, mixed: bool = False) -> World:
    world = World(seed, mixed=mixed).suffer(STEPS[seed % len(STEPS)]).recover()
    assert (world.unequal(), world.forked()) == ([], []), f"seed {seed}"
    return world


@pytest.mark.parametrize("mixed", [False, True], ids=["sessions", "some without"])
@pytest.mark.parametrize("part", range(2))
def test_all_that_follow_a_feed_have_the_same_of_it(part: int, mixed: bool) -> None:
    for seed in seeds("SSB_WORLDS", usual=16, long=10_000)[part::2]:
        tell(seed, mixed=mixed)


@pytest.mark.parametrize("seed", [9, 13])
def test_canary_who_never_looks_for_another_source_lacks_something(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sources, "_seek", lambda self, feed: self._forget(feed))
    monkeypatch.setattr(Sources, "_decide", lambda self, feed: None)
    with pytest.raises(AssertionError, match="seed"):
        tell(seed, mixed=False)
