"""What a replicator knows, as values: to look at, and to compare."""

from __future__ import annotations

from dataclasses import dataclass

from culm.bamboo.entry import LogKey
from culm.point2point.states import State

__all__ = ["LogSnapshot", "ReplicatorSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """One log between our store and the peer.

    position
        The last entry of the unbroken log in our store; 0: there is none.
    offered
        The last entry that the peer has spoken of.
    settled
        Whether nothing is under way that will come to an end by itself.
    """

    log: LogKey
    position: int
    offered: int
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorSnapshot:
    """A replicator as it is now.

    logs
        Those that are kept track of, in the order in which they became known.
    settled
        Whether all of them are, as it is kept up to date without looking at each.
    transfers
        Requests for which data may flow, now or once they are confirmed.
    outstanding
        Answers of the store and events that wait for one; see
        `ReplicatorLimits.outstanding_max`.
    unwritten_size, read_ahead_size
        Bytes received that the store has not said to have, and bytes that have been read for
        the peer.
    """

    state: State
    logs: tuple[LogSnapshot, ...]
    settled: bool
    transfers: int
    outstanding: int
    unwritten_size: int
    read_ahead_size: int
