"""The server's end of a WebSocket by wsproto: a machine around it, its spec, an echo."""

from foreign.websockets.connection import (
    Connection,
    ConnectionEvent,
    ErrorCode,
    Limits,
    Opened,
    Received,
    State,
)

__all__ = ["Connection", "ConnectionEvent", "ErrorCode", "Limits", "Opened", "Received", "State"]
