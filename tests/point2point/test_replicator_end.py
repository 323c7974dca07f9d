"""The end of a connection: earlier data goes into the store, and nothing new begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from replicator_support import FETCH, SERVE, SMALL, Cable, World, key_of, news_of, store_of

from culm.bamboo.forks import ForkProof
from culm.bamboo.records import NewEntry

SIZES = (10, 10, 3000, 10)
FORKED, OTHER = (news_of(SIZES, seed=seed) for seed in (2, 1))
PROOF = ForkProof(FORKED[3].entry, news_of(SIZES, seed=2, branch=b"other", fork_at=4)[3].entry)
assert PROOF.verify()


class Fetching:
    """Two logs on their way to the left, each in the middle of its large payload."""

    def __init__(self, logs: Iterable[Iterable[NewEntry]], *, size: int) -> None:
        self.world = World(chunker=lambda size: 100)
        limits = replace(SMALL, connection=replace(SMALL.connection, data_window_max=400))
        self.left = self.world.node(interest=FETCH, limits=limits)
        self.right = self.world.node(store_of(*logs), interest=SERVE, limits=limits)
        self.cable: Cable = self.world.connect(self.left, self.right)
        while self.left.end.machine.state and self.staged(key_of(OTHER)) < size:
            self.world.run(1)

    def staged(self, log: object) -> int:
        stored = self.left.store.entry(log, 3)
        return 0 if stored is None else stored.payload_stored

    def prove(self) -> None:
        """Another writer finds the fork."""
        self.left.store.add_fork(PROOF.log, PROOF)
        self.left.end.machine.stored(PROOF.log)
        self.left.end.drain()
        while self.left.end.effects:
            self.left.end.respond()

    def cut(self) -> None:
        self.world.cut(self.cable)
        self.world.run()


@pytest.mark.parametrize("size", range(200, 3000, 700))
def test_what_came_before_the_end_is_stored_whatever_is_known_by_then(size: int) -> None:
    plain, forked = (Fetching((FORKED, OTHER), size=size) for _ in range(2))
    forked.prove()
    for each in plain, forked:
        each.cut()
        assert each.left.end.closed is not None
        assert each.left.end.machine.unwritten_size == 0
    log = key_of(OTHER)
    assert forked.staged(log) == plain.staged(log)
