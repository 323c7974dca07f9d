"""muxrpc: calls in both directions over one connection (Scuttlebutt Protocol Guide, "RPC")."""

from culm.machine import Closed
from culm.ssb.muxrpc.calls import Call
from culm.ssb.muxrpc.connection import Connection
from culm.ssb.muxrpc.errors import ErrorCode
from culm.ssb.muxrpc.events import (
    CallEnded,
    CallReceived,
    ConnectionEvent,
    ReplyReceived,
    ValueReceived,
)
from culm.ssb.muxrpc.limits import Limits
from culm.ssb.muxrpc.manifest import Manifest
from culm.ssb.muxrpc.requests import BodyType, CallError, CallType
from culm.ssb.muxrpc.states import CallState, State

__all__ = [
    "CallEnded",
    "CallReceived",
    "Closed",
    "ConnectionEvent",
    "ReplyReceived",
    "ValueReceived",
    "BodyType",
    "Call",
    "CallError",
    "CallState",
    "CallType",
    "Connection",
    "ErrorCode",
    "Limits",
    "Manifest",
    "State",
]
