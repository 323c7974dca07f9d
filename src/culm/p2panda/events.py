"""Events of a connection and of a replicator.  The last one is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from culm.bamboo.entry import LogKey
from culm.machine import Closed, Event, RemoteProtocolError, StoreFailed
from culm.p2panda.errors import Reason
from culm.p2panda.heights import Height
from culm.p2panda.messages import Mode, RangeMessage


class Ignored(Enum):
    """The reason why something had no effect."""

    OLD_TIMESTAMP = "old timestamp"
    """An announcement that is not later than the one before."""
    UNKNOWN_VERSION = "unknown version"
    """An announcement of another version of the protocol."""
    NO_SCHEMAS = "no schemas"
    """A request about nothing."""
    NOT_ANNOUNCED = "not announced"
    """A request about schemas of which we have not announced all."""
    UNKNOWN_MODE = "unknown mode"
    DUPLICATE = "duplicate"
    """A request about schemas about which a session is running."""
    COLLISION = "collision"
    """A request that crossed ours, which goes first."""
    ID_IN_USE = "id in use"
    """A request with the id of a session that is running."""
    TOO_MANY_SESSIONS = "too many sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced(Event):
    """The peer has announced the schemas in which it is interested now."""

    schema_ids: tuple[str, ...]
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementIgnored(Event):
    """An announcement had no effect."""

    timestamp: int
    reason: Ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequested(Event):
    """The peer has asked for a session, and it has begun."""

    session_id: int
    mode: Mode
    schema_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestIgnored(Event):
    """The peer has asked for a session and gets no answer."""

    session_id: int
    reason: Ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDropped(Event):
    """Our request crossed one of the peer's, which takes precedence: ours is over."""

    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRenumbered(Event):
    """Our request had the same id as one of the peer's, and was sent again with another id."""

    session_id: int
    new_session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveReceived(Event):
    """The heights of all logs of the peer, each log once."""

    session_id: int
    heights: tuple[Height, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReceived(Event):
    """One of the seven messages of set reconciliation."""

    session_id: int
    message: RangeMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReceived(Event):
    """An entry and its operation, encoded and not yet validated."""

    session_id: int
    entry: bytes
    operation: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesReceived(Event):
    """Entries with their operations, in place of as many `EntryReceived`."""

    session_id: int
    entries: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneReceived(Event):
    """The peer has sent everything that it had."""

    session_id: int
    live_mode: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLive(Event):
    """Both sides have sent all entries found missing, and stay: new ones may follow.

    Log heights, or fingerprints of a strong monoid, show that nothing is missing.
    """

    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Event):
    """A session is over, with the error if there was one; the connection continues."""

    session_id: int
    error: RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageIgnored(Event):
    """A message of a session that does not exist."""

    session_id: int


ConnectionEvent: TypeAlias = (
    Announced
    | AnnouncementIgnored
    | SessionRequested
    | RequestIgnored
    | RequestDropped
    | RequestRenumbered
    | HaveReceived
    | RangeReceived
    | EntryReceived
    | EntriesReceived
    | DoneReceived
    | SessionLive
    | SessionEnded
    | MessageIgnored
    | Closed
)


# Events of a replicator, besides.


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
