"""The states of connections and handshakes."""

from __future__ import annotations

from enum import Enum

__all__ = ["ConnectionRole", "ConnectionState", "HandshakeState"]


class ConnectionRole(Enum):
    """Who opened the connection; only the dialler sends requests."""

    DIALLER = "dialler"
    LISTENER = "listener"


class ConnectionState(Enum):
    """A connection is open until `Closed`; closing while answers are still owed."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class HandshakeState(Enum):
    """The state of a handshake."""

    WAITING = "waiting"  # for the request (server), for the response (client)
    DONE = "done"
    REFUSED = "refused"
