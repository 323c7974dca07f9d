"""What a Raft core tells.  The last event is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.garlic.raft.model import Configuration, Snapshot
from culm.garlic.raft.states import State
from culm.machine import Closed, Event, StoreFailed

__all__ = [
    "ChangeFailed",
    "ConfigurationChanged",
    "LeaderChanged",
    "Left",
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
class ReadReady(Event):
    """The state machine is at least as new as `read` demands: read it now."""

    read: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailed(Event):
    """Leadership ended before `read` was confirmed; ask the new leader."""

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
    | ReadReady
    | ReadFailed
    | SnapshotInstalled
    | Left
    | StoreFailed
    | Closed
)
