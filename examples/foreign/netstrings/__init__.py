"""A chat in netstrings: a machine written from scratch, its spec for the suite, a chat room."""

from foreign.netstrings.connection import (
    Connection,
    ConnectionEvent,
    ErrorCode,
    Joined,
    Limits,
    Said,
    State,
)

__all__ = ["Connection", "ConnectionEvent", "ErrorCode", "Joined", "Limits", "Said", "State"]
