"""HTTP/1.1 by h11: a machine around it, its spec for the suite, a server."""

from foreign.http1.connection import (
    Connection,
    ConnectionEvent,
    ErrorCode,
    Limits,
    Requested,
    Responded,
    Role,
    State,
)

__all__ = [
    "Connection",
    "ConnectionEvent",
    "ErrorCode",
    "Limits",
    "Requested",
    "Responded",
    "Role",
    "State",
]
