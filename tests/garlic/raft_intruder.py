"""Forgeries in the names of servers, for a while: their effects must end with them.

The forgeries alone break no promise of Raft (forged entries, votes or answers are beyond Raft, with
or without an end): they claim terms, order servers about, deny committed entries, and send endless
snapshots.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from raft_clients import Node

from culm.garlic.raft import Configuration, Snapshot
from culm.garlic.raft import messages as m

STRANGER = 99
FAR = (1, 2, 2**20, 2**32, 2**40, 2**61)  # steps of the claimed terms beyond the victim's


class World(Protocol):
    """The part of a simulator that an intruder sees."""

    nodes: dict[int, Node]

    def running(self) -> list[Node]: ...
    def forge(self, requests: Sequence[m.RaftRequest]) -> None: ...


class Intruder:
    """Draws the forgeries."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._kinds: tuple[Callable[[int, int, int], m.RaftRequest], ...] = (
            self.vote,
            self.heartbeat,
            self._pre_vote,
            self._leave,
            self._transfer,
        )

    def strike(self) -> None:
        """Several requests to one server, in the name of another one or of a stranger."""
        rng, live = self._rng, self._world.running()
        if not live:
            return
        victim = rng.choice(live)
        assert victim.raft is not None
        others = [number for number in self._world.nodes if number != victim.id]
        source = rng.choice([*others, STRANGER])
        if rng.random() < 0.2:
            self._deny(victim, source)
        elif rng.random() < 0.2:
            self._endless(victim, source)
        else:
            term, times = victim.raft.term, rng.choice((1, 2, 6))
            far = [min(2**62, term + rng.choice(FAR)) for _ in range(times)]
            forged = [rng.choice(self._kinds)(source, victim.id, term) for term in far]
            self._world.forge(forged)

    def vote(self, source: int, victim: int, term: int) -> m.RaftRequest:
        transfer = self._rng.random() < 0.5
        return m.VoteRequest(
            source=source,
            destination=victim,
            term=term,
            last_log_index=0,
            last_log_term=0,
            transfer=transfer,
        )

    def heartbeat(self, source: int, victim: int, term: int) -> m.RaftRequest:
        return m.AppendRequest(
            source=source,
            destination=victim,
            term=term,
            previous_index=0,
            previous_term=0,
            commit_index=0,
            entries=(),
        )

    def _pre_vote(self, source: int, victim: int, term: int) -> m.RaftRequest:
        return m.PreVoteRequest(
            source=source, destination=victim, term=term, last_log_index=0, last_log_term=0
        )

    def _leave(self, source: int, victim: int, term: int) -> m.RaftRequest:
        return m.LeaveRequest(
            source=source, destination=victim, term=term, last_log_index=0, commit_index=0
        )

    def _transfer(self, source: int, victim: int, term: int) -> m.RaftRequest:
        return m.TransferRequest(source=source, destination=victim, term=term, last_log_index=0)

    def _deny(self, victim: Node, source: int) -> None:
        """Send another entry in place of a committed one."""
        core = victim.raft
        assert core is not None
        term = core.term + 1
        denial = m.AppendRequest(
            source=source,
            destination=victim.id,
            term=term,
            previous_index=core.commit_index,
            previous_term=term,
            commit_index=0,
            entries=(),
        )
        self._world.forge([denial])

    def _endless(self, victim: Node, source: int) -> None:
        """Chunks of a snapshot whose last one never comes."""
        core = victim.raft
        assert core is not None
        term = core.term + 1
        snapshot = Snapshot(core.last_index + 1000, core.log.last_term, Configuration())
        chunks = [
            m.SnapshotRequest(
                source=source,
                destination=victim.id,
                term=term,
                snapshot=snapshot,
                offset=1000 * number,
                data=bytes(1000),
                done=False,
                commit_index=0,
            )
            for number in range(20)
        ]
        self._world.forge(chunks)
