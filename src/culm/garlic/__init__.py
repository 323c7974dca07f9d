"""Garlic Farm: Raft over the wire of JRaft, with a handshake.

`Node` is a server of a cluster; `culm.garlic.raft` its core without bytes;
`culm.garlic.handshake` comes before both, where it is wanted.
"""

from culm.garlic.connection import Connection
from culm.garlic.errors import ErrorCode
from culm.garlic.events import (
    Authenticated,
    Challenged,
    ConnectionEvent,
    DialWanted,
    HandshakeEvent,
    LinkClosed,
    NodeEffect,
    NodeEvent,
    RequestReceived,
    ResponseReceived,
)
from culm.garlic.limits import Limits, Timing
from culm.garlic.link import Link
from culm.garlic.messages import Extension, MessageType, RequestFrame, ResponseFrame
from culm.garlic.node import Node
from culm.garlic.sessions import ClientSession, Outcome, Sessions
from culm.garlic.states import ConnectionRole, ConnectionState
from culm.garlic.store import MemoryStore, StateMachine, Store, recover
from culm.garlic.values import decode_configuration, encode_configuration

__all__ = [
    "Authenticated",
    "Challenged",
    "ConnectionEvent",
    "DialWanted",
    "HandshakeEvent",
    "LinkClosed",
    "NodeEvent",
    "RequestReceived",
    "ResponseReceived",
    "ClientSession",
    "Connection",
    "ConnectionRole",
    "ConnectionState",
    "ErrorCode",
    "Extension",
    "Limits",
    "Link",
    "MemoryStore",
    "MessageType",
    "Node",
    "NodeEffect",
    "Outcome",
    "RequestFrame",
    "ResponseFrame",
    "Sessions",
    "StateMachine",
    "Store",
    "Timing",
    "decode_configuration",
    "encode_configuration",
    "recover",
]
