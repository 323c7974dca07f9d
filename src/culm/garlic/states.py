"""The states of connections and handshakes."""

from __future__ import annotations

from enum import Enum


class ConnectionRole(Enum):
    """The side that opened the connection, and the other; only the dialler sends requests."""

    DIALLER = "dialler"
    LISTENER = "listener"


class ConnectionState(Enum):
    """A connection is open until `Closed`, or closing from a call of `close` on."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class HandshakeState(Enum):
    """The state of a handshake."""

    WAITING = "waiting"  # for the request (server), for the response (client)
    DONE = "done"
    REFUSED = "refused"
