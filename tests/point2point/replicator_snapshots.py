"""Replicators as values, to look at."""

from __future__ import annotations

from dataclasses import dataclass

from culm.point2point import State
from culm.point2point.replication import Replicator
from culm.point2point.replication.log_sync import LogSync


@dataclass(frozen=True, kw_only=True)
class ReplicatorSnapshot:
    """A replicator as it is now.

    settled
        Whether nothing waits for the store, and all logs are settled; that is kept up to date
        without looking at each.
    transfers
        Requests for which data may flow, now or once they are confirmed.
    outstanding
        Answers of the store and events that wait for one.
    """

    state: State
    logs: tuple[LogSync, ...]
    settled: bool
    transfers: int
    outstanding: int
    unwritten_size: int
    read_ahead_size: int


def replicator_as_it_is(machine: Replicator) -> ReplicatorSnapshot:
    work, logs, transfers = machine._work, machine._logs, machine._transfers
    return ReplicatorSnapshot(
        state=machine.state,
        logs=tuple(machine.logs.values()),
        settled=not work.load and logs.settled,
        transfers=transfers.count,
        outstanding=work.load,
        unwritten_size=work.unwritten_size,
        read_ahead_size=transfers.room.size,
    )
