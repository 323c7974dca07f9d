"""Errors of the caller, and reasons why a datagram or a message had no effect."""

from __future__ import annotations

from enum import IntEnum

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """The rule that the caller broke; the call has changed nothing."""

    NOT_STARTED = 1
    """Call `start` or `join` first."""
    ALREADY_STARTED = 2
    BAD_SID = 3
    """A server ID is non-empty `bytes`, at most `Limits.sid_size_max` long, and not the node's
    own ID in `join`."""
    NOT_JOINED = 4
    """No peer with that server ID has joined, or it was given up or is leaving."""
    PAYLOAD_TOO_LARGE = 5
    """The parcel could exceed `Limits.datagram_size_max`, and a message in order also exceeds
    `Limits.message_size_max`, here or at that peer."""
    QUEUE_FULL = 6
    """`Limits.queue_max` messages wait for a peer's acknowledgement."""
    PEERS_LIMIT = 7
    """`Limits.peers_max` or `Limits.candidates_max` servers are already known."""
    NO_TIME = 8
    """Call `advance` before `start` and `join`: sequence numbers are made from the time."""
    NO_KEYS = 9
    """The node was built without keys, and so has none to replace."""
    TAGS_LIMIT = 10
    """More than 64 tags, or tags of more than `Limits.tags_size_max` bytes."""


class DropReason(IntEnum):
    """Why a datagram, parcel or message had no effect; never fatal, counted in `Node.dropped`."""

    TOO_LARGE = 1
    """A datagram longer than `Limits.datagram_size_max`."""
    MALFORMED = 2
    """Not an XENC dictionary of the parcel schema, or without a message in `d`; or a parcel that a
    server is said to send to itself."""
    INBOX_FULL = 3
    """A datagram for which the inbox had no room (`Limits.inbox_size_max`)."""
    OUTBOX_FULL = 4
    """A parcel to be sent while `Limits.outbox_max` parcels waited to be taken."""
    FROM_SELF = 5
    """A datagram or a message with our own server ID as its origin."""
    STRAY_KEEPALIVE = 6
    """A `kk` for a `ka` that was never sent, is already answered or is too old."""
    NO_ROUTE = 7
    """A parcel without a link to leave by, other than the one that it came by."""
    FORWARDED_BEFORE = 8
    """A parcel to be forwarded that is the same as a recent one: a loop or a duplicate."""
    NOT_SYNCHRONIZED = 9
    """A message received before synchronization."""
    STALE_SYNCHRONIZE = 10
    """A synchronize, finalize or tags message of another association."""
    GIVEN_UP = 11
    """A message from or to a peer that was given up."""
    DUPLICATE = 12
    """An in-order message that arrived before.  It is acknowledged again."""
    BEYOND_WINDOW = 13
    """An in-order message too far ahead of the next one.  It is not acknowledged."""
    PEERS_LIMIT = 14
    """A server for which there is no room, or a stranger that had to make room for another."""
    STRAY_ACKNOWLEDGE = 15
    """An acknowledgement of a message that was never sent or is already acknowledged."""
    UNPROVED = 16
    """A datagram to a server that has yet to prove that it receives ours, beyond three times the
    bytes that came from there; or gossip, or a parcel to be forwarded, from such a server."""
    ASSEMBLIES_LIMIT = 17
    """The first piece of a message while `Limits.assemblies_max` others were being put together.
    It is not acknowledged."""
    INCOMPLETE = 18
    """A piece without its predecessors, or one that makes the message exceed
    `Limits.message_size_max`."""
    UNAUTHENTICATED = 19
    """A datagram sealed with none of our keys, or not by that server for us."""
    REPLAYED = 20
    """A sealed datagram that arrived before, or may have."""
