"""What a Raft core tells, and the codes of its errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from culm.garlic.raft.model import Configuration, Snapshot
from culm.machine import Closed, Event, StoreFailed

__all__ = [
    "ChangeFailed",
    "ConfigurationChanged",
    "LeaderChanged",
    "Left",
    "RaftErrorCode",
    "RaftEvent",
    "ReadFailed",
    "ReadReady",
    "Role",
    "RoleChanged",
    "SnapshotInstalled",
    "TransferFailed",
]


class Role(Enum):
    """Paper, figure 4, and the end of a core's life."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    CLOSED = "closed"


class RaftErrorCode(IntEnum):
    """Why a call was refused."""

    NOT_LEADER = 1
    QUEUE_FULL = 2
    TRANSFER_IN_PROGRESS = 3
    CHANGE_IN_PROGRESS = 4
    NOTHING_COMMITTED = 5
    ALREADY_MEMBER = 6
    NOT_MEMBER = 7
    IS_LEADER = 8
    BAD_ENDPOINT = 9
    VALUE_TOO_LARGE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged(Event):
    """The server has another role, or the same one in another term."""

    role: Role
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
