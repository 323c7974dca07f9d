"""What is known of a log, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from culm.bamboo.entry import LogKey
from culm.point2point.replication.states import PeerStage, Purpose, Stage, Standing
from culm.point2point.states import State

__all__ = ["Facts", "LogSnapshot", "ReplicatorSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is decided from, for one log.  Entries are given by their sequence numbers.

    Of our store:

    loaded
        Whether it has told what it has.
    position, newest
        The last entry of the unbroken log, and the last of all; 0: there is none.
    payload_due
        Whether the payload of the entry at `position` is wanted, and on its way or missing.
    ended
        Whether the author has ended the log, and all of it is there.
    fork
        The first forked entry.
    writing
        Whether entries are on their way into it.

    Of what we want:

    following
        What comes next; otherwise only the ranges that the user asks for.
    live
        The same as long as the connection lasts, and to tell the peer what we have.
    serving
        To serve what is stored to a peer that asks for a range of it.
    probe
        An entry to be compared with the peer's.
    ranges
        How many ranges the user has asked for.
    payload_apart
        Whether the payload of the entry at `position` is one of these.

    Of the peer:

    offered
        The last valid entry that it has spoken of; ``None``: it has not spoken of the log.
    passed
        The last entry that it has only notified us of.
    standing
        Whether anything comes of our proposals.
    told
        It knows that we have all before this entry.
    fork_told
        The first forked entry that it knows of.
    joined
        Whether we take part in a request of the peer for what comes next, or are about to.
    """

    loaded: bool
    position: int
    newest: int
    payload_due: bool
    ended: bool
    fork: int | None
    writing: bool
    following: bool
    live: bool
    serving: bool
    probe: int | None
    ranges: int
    payload_apart: bool
    offered: int | None
    passed: int
    standing: Standing
    told: int
    fork_told: int | None
    joined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """One log between our store and the peer, as it is now.

    stages
        Where our requests are.
    answers
        Where the peer's requests are that are not over, by their ids.
    settled
        Whether nothing is under way that will come to an end by itself.
    """

    log: LogKey
    facts: Facts
    stages: Mapping[Purpose, Stage]
    answers: Mapping[int, PeerStage]
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorSnapshot:
    """A replicator as it is now.

    logs
        Those that are kept track of, in the order in which they became known.
    settled
        Whether nothing waits for the store, and all logs are settled; that is kept up to date
        without looking at each.
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
