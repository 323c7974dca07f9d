"""What a replicator is to do, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.arguments import check_type
from culm.bamboo.entry import LogKey
from culm.machine import Closed, Event, StoreFailed
from culm.p2panda.errors import Reason
from culm.p2panda.events import (
    Announced,
    AnnouncementIgnored,
    MessageIgnored,
    RequestDropped,
    RequestIgnored,
    RequestRenumbered,
    SessionEnded,
    SessionLive,
    SessionRequested,
)
from culm.p2panda.messages import Mode

__all__ = ["OperationLeftOut", "OperationStored", "Policy", "ReplicatorEvent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a replicator does of itself.

    asks
        It requests a session about all schemas that both have announced, whenever these change;
        when that one is live, it leaves all others.
    mode
        Of the sessions that it requests so.
    live
        It offers live mode when it has sent all.
    """

    asks: bool = True
    mode: Mode = Mode.SET_RECONCILIATION
    live: bool = True

    def __post_init__(self) -> None:
        check_type("asks", self.asks, bool)
        check_type("mode", self.mode, Mode)
        check_type("live", self.live, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStored(Event):
    """An operation of the peer's is valid, and in the store."""

    session_id: int
    log: LogKey
    seqnum: int
    operation_id: bytes
    document_id: bytes
    schema_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLeftOut(Event):
    """An operation of the peer's is valid, but does not fit to what is in the store.

    Its author has forked a log, if the peer is honest, and the store has another branch than the
    peer: nobody is to blame but the author.

    reason: ``FORK``, ``WRONG_LINK``, ``GAP``, ``AFTER_END_OF_LOG`` or ``UNKNOWN_PREVIOUS``.
    """

    session_id: int
    log: LogKey
    seqnum: int
    reason: Reason


ReplicatorEvent: TypeAlias = (
    Announced
    | AnnouncementIgnored
    | SessionRequested
    | RequestIgnored
    | RequestDropped
    | RequestRenumbered
    | OperationStored
    | OperationLeftOut
    | SessionLive
    | SessionEnded
    | MessageIgnored
    | StoreFailed
    | Closed
)
