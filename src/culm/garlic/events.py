"""What happens on a connection of frames, and in the handshake before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.garlic.messages import Extension, Request, Response
from culm.garlic.raft.effects import RaftEffect
from culm.garlic.raft.events import RaftEvent
from culm.garlic.raft.model import Server
from culm.machine import Closed, Event, RemoteProtocolError

__all__ = [
    "Authenticated",
    "Challenged",
    "ConnectionEvent",
    "DialWanted",
    "HandshakeEvent",
    "LinkClosed",
    "NodeEffect",
    "NodeEvent",
    "RequestReceived",
    "ResponseReceived",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived(Event):
    """The peer asks; answer with `Connection.send_response`, in the order of requests."""

    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived(Event):
    """The peer answers `request`, the oldest one that was unanswered."""

    request: Request
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated(Event):
    """The handshake is over; frames follow.

    `user` is who was authenticated (on the client: who we are); `cluster` and `version`
    are those of the path.  `extensions` is what both sides understand beside JRaft's frames.
    """

    user: str
    cluster: str
    version: str
    extensions: frozenset[Extension] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenged(Event):
    """The server wants credentials, and has said which: the next connection has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialWanted(Event):
    """A node will have something to say to `server`: dial it, then call `Node.dialled`.

    If that does not work out, call `Node.dial_failed`; it is asked for again later.
    """

    server: Server


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClosed(Event):
    """A connection of a node has ended: send what is left of it, and close it."""

    link: int
    peer: int | None
    error: RemoteProtocolError | None


HandshakeEvent: TypeAlias = Authenticated | Challenged | Closed
ConnectionEvent: TypeAlias = RequestReceived | ResponseReceived | Closed
NodeEvent: TypeAlias = RaftEvent | DialWanted | LinkClosed  # `Closed` is one of the core's
NodeEffect: TypeAlias = RaftEffect
