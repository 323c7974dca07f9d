"""Events of a connection of frames, and of the handshake before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.garlic.messages import Extension, RequestFrame, ResponseFrame
from culm.garlic.raft.effects import RaftEffect
from culm.garlic.raft.events import RaftEvent
from culm.garlic.raft.model import Server
from culm.machine import Closed, Event, RemoteProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived(Event):
    """The peer has sent a request; answer with `Connection.send_response`, in their order."""

    request: RequestFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived(Event):
    """The peer has answered `request`, the oldest one that was unanswered."""

    request: RequestFrame
    response: ResponseFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated(Event):
    """The handshake has succeeded; frames follow.

    `user` is the authenticated user (on the client: ourselves); `cluster` and `version` are those
    of the path.  `extensions` are those that both sides understand besides JRaft's frames.
    """

    user: str
    cluster: str
    version: str
    extensions: frozenset[Extension] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenged(Event):
    """The server has sent its challenge: the next connection will carry credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialWanted(Event):
    """The node needs a connection to `server`: dial it, then call `Node.dialled`.

    If that fails, call `Node.dial_failed`; the event is repeated later.
    """

    server: Server


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClosed(Event):
    """A connection of a node has ended: send its remaining bytes, and close it."""

    link: int
    peer: int | None
    error: RemoteProtocolError | None


HandshakeEvent: TypeAlias = Authenticated | Challenged | Closed
ConnectionEvent: TypeAlias = RequestReceived | ResponseReceived | Closed
NodeEvent: TypeAlias = RaftEvent | DialWanted | LinkClosed  # `Closed` is one of the core's
NodeEffect: TypeAlias = RaftEffect
