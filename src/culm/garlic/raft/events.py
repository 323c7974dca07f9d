"""Events of a Raft core.  The last one is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.garlic.raft.model import Configuration, Snapshot
from culm.garlic.raft.states import State
from culm.machine import Closed, Event, RemoteProtocolError, StoreFailed


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
    """Another configuration is in force, since it is known to be committed.

    It is told when the store knows so, too: a server that has been removed may then be destroyed.
    """

    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFailed(Event):
    """The server was not added or removed, or it is unknown whether it was."""

    server_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFailed(Event):
    """`target` does not lead: not in time, another server does, or this one is closed."""

    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipTransferred(Event):
    """`target` leads, as `Raft.transfer_leadership` wanted."""

    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFault(Event):
    """`peer` has said something that no server in its right mind says.

    ``CONTRADICTION``: as leader it denies a committed entry, so one of the two has lost data;
    ``SNAPSHOT_TOO_LARGE``: its snapshot exceeds `Limits.snapshot_size_max`.  Both are refused, and
    a node ends the connection that this came on, with that error, instead of reporting it.

    ``LOST_ENTRIES``: as follower it lacks entries that it had confirmed to this leader, which now
    serves it from there, and counts it only for entries that it confirms anew.
    """

    peer: int
    error: RemoteProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """Values that were proposed here are committed, and applied here: every server applies them.

    Only if a snapshot has replaced them first, or the core was closed, they are not applied here.
    They have indexes that follow each other, and one term.  Values that were proposed one after the
    other are told of together, those of one `Raft.propose` perhaps in parts.

    index, term: those of the first of them; see `Raft.propose`.
    count: the number of values.
    """

    index: int
    term: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """Values that were proposed here are not known to be committed; no further event about them.

    index, term, count: as in `Committed`.
    certain: something else is committed in their place, or a later term before it, so they will
        never be applied.  Otherwise it can no longer be known: a snapshot has replaced that part
        of the log, or this core has been closed.
    """

    index: int
    term: int
    count: int
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded(Event):
    """The leader has appended the values of `Raft.forward`; `Committed` or `Lost` follows.

    forward: the number that was returned.
    index, term: those of the first value.
    count: the number of values.
    """

    forward: int
    index: int
    term: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardFailed(Event):
    """The values of `Raft.forward` are not known to have been appended; nothing more follows.

    certain: they were not appended, and never will be.  Otherwise the leader, or the way to it, was
        lost before it could answer: they may be committed once, or never.
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
    """Leadership ended before `read` was confirmed or, at a follower, the leader did not answer.

    Repeat the read, here or at the new leader.
    """

    read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInstalled(Event):
    """The leader's snapshot has replaced log and state."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Event):
    """This server is no longer a member, or all was silent after it was told to leave.

    It stands for no election, unless the others need its log to elect a leader.
    """


RaftEvent: TypeAlias = (
    RoleChanged
    | LeaderChanged
    | ConfigurationChanged
    | ChangeFailed
    | TransferFailed
    | LeadershipTransferred
    | PeerFault
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
