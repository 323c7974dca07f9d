"""Bymux: many streams over one, with flow control.

https://github.com/AljoschaMeyer/bymux
"""

from culm.bymux.connection import Connection
from culm.bymux.errors import ErrorCode
from culm.bymux.events import (
    CloseReceived,
    ConnectionEvent,
    CreationCredit,
    PingReceived,
    PongReceived,
    StopReadReceived,
    StreamCreated,
    StreamCredit,
    StreamData,
    StreamEnded,
)
from culm.bymux.handles import Stream
from culm.bymux.initial import VANILLA, InitialState, InitialStream
from culm.bymux.limits import Limits
from culm.bymux.packets import INFINITE
from culm.bymux.states import HalfState, Role, State, StreamState
from culm.machine import Closed

__all__ = [
    "CloseReceived",
    "Closed",
    "ConnectionEvent",
    "CreationCredit",
    "PingReceived",
    "PongReceived",
    "StopReadReceived",
    "StreamCreated",
    "StreamCredit",
    "StreamData",
    "StreamEnded",
    "INFINITE",
    "VANILLA",
    "Connection",
    "ErrorCode",
    "HalfState",
    "InitialState",
    "InitialStream",
    "Limits",
    "Role",
    "State",
    "Stream",
    "StreamState",
]
