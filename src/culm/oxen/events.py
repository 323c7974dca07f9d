"""What happens in a cluster, as its user sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from culm.machine import Closed, Event

__all__ = [
    "Delivered",
    "Delivery",
    "FailReason",
    "LeaveReason",
    "MessageReceived",
    "NodeEvent",
    "PeerForgotten",
    "PeerJoined",
    "PeerLeft",
    "PeerReachable",
    "PeerUnreachable",
    "SendFailed",
    "TagsChanged",
    "Writable",
]


class Delivery(Enum):
    """How a message was sent."""

    DATAGRAM = "datagram"
    """At least once, in any order."""
    IN_ORDER = "in-order"
    """Exactly once, in the order in which the peer sent its one-to-one messages to us."""
    IN_ORDER_BROADCAST = "in-order broadcast"
    """Exactly once, in the order in which the peer broadcast."""

    __hash__ = object.__hash__  # looked up for every message: quicker than by name


class LeaveReason(Enum):
    """Why a peer is no longer of the cluster."""

    FINALIZED = "finalized"
    """It said goodbye, and all that it had sent in order was delivered."""
    RESTARTED = "restarted"
    """It started anew; it joins again as soon as it has synchronized."""


class FailReason(Enum):
    """Why a message may not have been delivered."""

    PEER_LEFT = "peer left"
    PEER_RESTARTED = "peer restarted"
    PEER_UNREACHABLE = "peer unreachable"
    QUEUE_FULL = "queue full"
    """A broadcast for which the queue of a peer that does not answer has no room."""
    TOO_LARGE = "too large"
    """A broadcast that is larger than what the peer takes in pieces."""
    PEER_FORGOTTEN = "peer forgotten"
    """Our user wants to know no more of the peer: `Node.forget`."""
    NODE_CLOSED = "node closed"
    """The node could not wait longer for the acknowledgement when it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(Event):
    """A message has arrived."""

    peer: bytes
    data: bytes
    delivery: Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined(Event):
    """A fresh node has joined the cluster: it and we have synchronized with each other."""

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft(Event):
    """A node has left the cluster voluntarily, or has started anew."""

    peer: bytes
    reason: LeaveReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerUnreachable(Event):
    """We give up: the node is not usefully reachable.

    Also said of a server that was asked for help to join and never answered.
    """

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerReachable(Event):
    """A node that was given up is reachable again, and has synchronized again."""

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerForgotten(Event):
    """A node is no longer looked for: to have it back, join again.

    It was given up long ago, or our user has said so (`Node.forget`).
    """

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsChanged(Event):
    """A peer says this of itself from now on: `tags` are all that it has.

    Whoever joins, or is reachable again, is taken to have none until this follows.
    """

    peer: bytes
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A peer has delivered a message, which is not resent.

    `message` is the number that the sending call returned; a broadcast is delivered to each
    peer on its own.  The peer has acknowledged a datagram, or a message in order and all before
    it: its node has handed them to its user.  The protocol does not tell us what that one has
    made of it.
    """

    peer: bytes
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(Event):
    """A message was not acknowledged, and is no longer resent.

    `message` is the number that the sending call returned; a broadcast fails for each
    peer on its own.  The message may have been delivered all the same.
    """

    peer: bytes
    message: int
    reason: FailReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Writable(Event):
    """The queue of a peer that was full has room again, or keeps no broadcast waiting any more.

    The latter when the peer does not answer, to three timeouts in a row: from then on it misses
    the broadcasts for which it has no room.
    """

    peer: bytes


NodeEvent: TypeAlias = (
    MessageReceived
    | PeerJoined
    | PeerLeft
    | PeerUnreachable
    | PeerReachable
    | PeerForgotten
    | TagsChanged
    | Delivered
    | SendFailed
    | Writable
    | Closed
)
