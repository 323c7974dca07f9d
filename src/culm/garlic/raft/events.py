"""What a Raft core tells.  The last event is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.garlic.raft.model import Configuration, Snapshot
from culm.garlic.raft.states import State
from culm.machine import Closed, Event, StoreFailed

__all__ = [
    "ChangeFailed",
    "Committed",
    "ConfigurationChanged",
    "ForwardFailed",
    "Forwarded",
    "LeaderChanged",
    "Left",
    "Lost",
    "RaftEvent",
    "ReadFailed",
    "ReadReady",
    "RoleChanged",
    "SnapshotInstalled",
    "TransferFailed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged(Event):
    """The server has another role, or the same one in another term."""

    role: State
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged(Event):
    """The believed leader of `term`; ``None``: unknown."""

    leader: int | None
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationChanged(Event):
    """Another configuration is in force; as soon as it is known to be committed."""

    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFailed(Event):
    """The server was not added or removed, or it is not known whether it was."""

    server_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFailed(Event):
    """`target` did not take over in time; we lead on."""

    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """Values that were proposed here are committed: every state machine will apply them.

    index, term: of the first of them, as `Raft.propose` returned it, or of what is left of its
        values if some of them were told of before.
    count: how many values.
    """

    index: int
    term: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """Values that were proposed here are not known to be committed, and nothing more is told.

    index, term, count: as of `Committed`.
    certain: something else is committed in their place, so that nobody will ever apply them.
        Otherwise it cannot be told any more: a snapshot has replaced that part of the log, or
        this core has been closed.
    """

    index: int
    term: int
    count: int
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded(Event):
    """The leader has appended the values of `Raft.forward`; `Committed` or `Lost` follows.

    forward: the number that was returned.
    index, term: of the first of them.
    count: how many values.
    """

    forward: int
    index: int
    term: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardFailed(Event):
    """The values of `Raft.forward` are not known to have been appended, and nothing more is told.

    certain: they were not, and never will be.  Otherwise the leader, or the way there, was lost
        before it could tell: they may be committed, once, or never.
    """

    forward: int
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReady(Event):
    """The state machine is at least as new as `read` demands: read it now."""

    read: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailed(Event):
    """Leadership ended before `read` was confirmed, or, at a follower, the leader did not answer.

    Ask again: here, or the new leader.
    """

    read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInstalled(Event):
    """The leader's snapshot has replaced log and state."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """This server is no member any more; it stands for no election."""


RaftEvent: TypeAlias = (
    RoleChanged
    | LeaderChanged
    | ConfigurationChanged
    | ChangeFailed
    | TransferFailed
    | Committed
    | Lost
    | Forwarded
    | ForwardFailed
    | ReadReady
    | ReadFailed
    | SnapshotInstalled
    | Left
    | StoreFailed
    | Closed
)
