"""The policy of a replicator, and its events."""

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

__all__ = ["OperationLeftOut", "OperationStored", "Policy", "ReplicatorEvent", "RequestedAgain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The actions that a replicator takes by itself.

    asks
        Request a session about all schemas that both have announced, whenever these change; once
        that session is live, leave all others.
    mode
        The mode of the sessions that it requests; that of log heights once the peer has taken
        only such a request.
    live
        Offer live mode when everything has been sent.
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
    """An operation from the peer is valid and in the store."""

    session_id: int
    log: LogKey
    seqnum: int
    operation_id: bytes
    document_id: bytes
    schema_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLeftOut(Event):
    """An entry from the peer that its author has signed, and that is not stored.

    The peer may be honest: the author has forked a log, and the store has another branch than the
    peer; or the peer accepts operations that we do not.  All that depends on it is left out, too;
    in the same log, the session passes it over without an event.
    """

    session_id: int
    log: LogKey
    seqnum: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAgain(Event):
    """The peer did not take our request, which was made again in log height mode.

    It has answered with ``Have``, or not at all: it may support nothing else.
    """

    session_id: int
    new_session_id: int


ReplicatorEvent: TypeAlias = (
    Announced
    | AnnouncementIgnored
    | SessionRequested
    | RequestIgnored
    | RequestDropped
    | RequestRenumbered
    | RequestedAgain
    | OperationStored
    | OperationLeftOut
    | SessionLive
    | SessionEnded
    | MessageIgnored
    | StoreFailed
    | Closed
)
