"""What the caller can do wrong, and why a datagram or a message had no effect."""

from __future__ import annotations

from enum import IntEnum

from culm.machine import ProtocolErrorCode

__all__ = ["DropReason", "ErrorCode"]


class ErrorCode(ProtocolErrorCode):
    """Which rule the caller broke; nothing has changed then."""

    NOT_STARTED = 1
    """`start` or `join` comes first."""
    ALREADY_STARTED = 2
    BAD_SID = 3
    """A server ID is `bytes`, neither empty nor longer than `Limits.sid_size_max`, and here
    not the node's own."""
    NOT_JOINED = 4
    """No peer of that server ID has joined; also one that was given up or is leaving."""
    PAYLOAD_TOO_LARGE = 5
    """The parcel could exceed `Limits.datagram_size_max`; in order, the message is larger than
    `Limits.message_size_max` allows here or at that peer."""
    QUEUE_FULL = 6
    """`Limits.queue_max` messages wait for a peer's acknowledgement."""
    PEERS_LIMIT = 7
    """`Limits.peers_max` or `Limits.candidates_max` servers are known already."""
    NO_TIME = 8
    """`advance` comes before `start` and `join`: numbers are made of the time."""
    NO_KEYS = 9
    """The node was built without keys, and so has none that could be replaced."""
    TAGS_LIMIT = 10
    """More than 64 tags, or than `Limits.tags_size_max` bytes of them."""


class DropReason(IntEnum):
    """Why something had no effect.  `Node.dropped` counts them; none of them is fatal."""

    TOO_LARGE = 1
    """A datagram longer than `Limits.datagram_size_max`."""
    MALFORMED = 2
    """Not an XENC dictionary of the parcel schema, or `d` is no message."""
    INBOX_FULL = 3
    """A datagram when `Limits.inbox_size_max` bytes had not been looked at."""
    OUTBOX_FULL = 4
    """A parcel to be sent when `Limits.outbox_max` parcels had not been taken."""
    FROM_SELF = 5
    """A datagram or a message that bears our own server ID as its origin."""
    STRAY_KEEPALIVE = 6
    """A `kk` for a `ka` that was not sent, is answered or is too old."""
    NO_ROUTE = 7
    """A parcel to be forwarded for which there is no link but the one it came by."""
    FORWARDED_BEFORE = 8
    """A parcel to be forwarded too soon after the same one: a loop or a duplicate."""
    NOT_SYNCHRONIZED = 9
    """A message received before synchronization."""
    STALE_SYNCHRONIZE = 10
    """A synchronize or finalize message of an association that is over."""
    GIVEN_UP = 11
    """A message from or to a peer that was given up."""
    DUPLICATE = 12
    """An in-order message that came before.  It is acknowledged again."""
    BEYOND_WINDOW = 13
    """An in-order message too far ahead of the next one.  It is not acknowledged."""
    PEERS_LIMIT = 14
    """A server that would be one too many."""
    STRAY_ACKNOWLEDGE = 15
    """An acknowledgement of a message that was not sent or is acknowledged."""
    UNPROVED = 16
    """A datagram to somebody who has not proved that it arrives there, beyond three times the bytes
    that came from there; and what such a one says of others, or wants to be forwarded."""
    ASSEMBLIES_LIMIT = 17
    """A piece of a message when `Limits.assemblies_max` were being put together.  It is not
    acknowledged."""
    INCOMPLETE = 18
    """A piece without those before it, or one that makes more than `Limits.message_size_max`."""
    UNAUTHENTICATED = 19
    """A datagram that was sealed with none of our keys, or not by that server for us."""
    REPLAYED = 20
    """A sealed datagram that came before, or may have."""
