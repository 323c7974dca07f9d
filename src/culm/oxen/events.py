"""Events of a cluster for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from culm.machine import Closed, Event


class Delivery(Enum):
    """How a message was sent."""

    DATAGRAM = "datagram"
    """At least once, in any order."""
    IN_ORDER = "in-order"
    """Exactly once, in the order in which the peer sent its one-to-one messages to us."""
    IN_ORDER_BROADCAST = "in-order broadcast"
    """Exactly once, in the order in which the peer broadcast."""


class LeaveReason(Enum):
    """Why a peer is no longer in the cluster."""

    FINALIZED = "finalized"
    """It said goodbye, and all that it had sent in order was delivered."""
    RESTARTED = "restarted"
    """It started anew; it joins again as soon as it has synchronized."""
    OUT_OF_STEP = "out of step"
    """It counts messages as delivered that never came; both start anew, and it joins again."""


class FailReason(Enum):
    """Why a message may not have been delivered."""

    PEER_LEFT = "peer left"
    PEER_RESTARTED = "peer restarted"
    PEER_UNREACHABLE = "peer unreachable"
    OUT_OF_STEP = "out of step"
    """The association started anew: the peer counted messages as delivered that never came."""
    QUEUE_FULL = "queue full"
    """The queue of a peer that does not answer had no room for a broadcast."""
    TOO_LARGE = "too large"
    """A broadcast was larger than the peer takes in pieces, or a datagram never arrived."""
    PEER_FORGOTTEN = "peer forgotten"
    """The user has called `Node.forget`."""
    NODE_CLOSED = "node closed"
    """The node left without having got the acknowledgement in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(Event):
    """A message has arrived."""

    peer: bytes
    data: bytes
    delivery: Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined(Event):
    """A new node has joined the cluster: it and this node have synchronized with each other."""

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft(Event):
    """A node has left the cluster of its own accord, or has restarted."""

    peer: bytes
    reason: LeaveReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerUnreachable(Event):
    """A node is given up: it can no longer be reached in any useful way.

    Also issued for a server that was asked for help to join and never answered.
    """

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerReachable(Event):
    """A node that was given up can be reached again, and has synchronized again."""

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerForgotten(Event):
    """The search for a node has ended: to get it back, join it again.

    It was given up long ago, had to make room for another one (`Limits.peers_max`), or was
    forgotten at the user's request (`Node.forget`).
    """

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsChanged(Event):
    """A peer has new tags: `tags` is the whole table.

    A peer that has just joined, or is reachable again, has none until this event follows.
    """

    peer: bytes
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A peer has delivered a message, which is not sent again.

    `message` is the number that the sending call returned; a broadcast is delivered to each
    peer separately.  The peer has acknowledged the datagram, or the message in order and all
    before it: its node has handed them to its user or, if it had given us up, does so when it has
    joined again.  The protocol does not reveal whether that user has processed them.
    """

    peer: bytes
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(Event):
    """A message was not acknowledged, and is not sent again.

    `message` is the number that the sending call returned; a broadcast fails for each
    peer separately.  The message may have been delivered all the same.
    """

    peer: bytes
    message: int
    reason: FailReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SendWaiting(Event):
    """A large message has to wait for a place at the peer, which is receiving too many others.

    See `Limits.assemblies_max`.  `message` is the number that the sending call returned.
    Later messages in the same stream wait, too; datagrams and the other stream go on.
    `SendResumed` or `SendFailed` follows.
    """

    peer: bytes
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResumed(Event):
    """A large message that had to wait has found a place at the peer, and is being sent."""

    peer: bytes
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writable(Event):
    """The full queue of a peer has room again, or no longer holds up broadcasts.

    The latter happens when the peer does not answer for three timeouts in a row, or has no place
    for a large message: from then on it misses broadcasts that find its queue full.
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
    | SendWaiting
    | SendResumed
    | Writable
    | Closed
)
