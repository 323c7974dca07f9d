"""Bounds on the memory that a peer may make a node use, and the waits of its connections."""

from __future__ import annotations

from dataclasses import dataclass, field

from culm.arguments import check_int, check_numbers, check_type
from culm.garlic.raft.limits import Limits as RaftLimits
from culm.garlic.raft.limits import Timing as RaftTiming

# With 0 for one of these no connection serves.
_NEVER_0 = ("unanswered_max", "links_max", "strangers_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the data of a peer, each with its worst-case memory.

    Raises `ValueError` for one below 0, and for a 0 with which no connection would serve.

    log_size_max
        Bytes of log entries in one request; a connection buffers one such request and its header.
    entries_max
        Log entries in one request or one log pack; about 150 bytes each beside their values.
    inflated_size_max
        Bytes of one log pack after inflation; held twice while it is taken apart.
    servers_max
        Servers of one configuration.
    endpoint_size_max
        Bytes of one server's endpoint.
    head_size_max
        Bytes of one HTTP head of the handshake.
    term_max
        A term above this is refused, so that a single message cannot use up the terms, which have
        63 bits on the wire.
    unanswered_max
        Requests that may be unanswered on one connection.  Beyond that a listener reads no further
        request before all answers have been taken from `data_to_send` (backpressure), and a
        dialler's `send_request` refuses with ``QUEUE_FULL``.  For its own requests a node uses
        the core's limit of messages in flight instead.
    links_max
        Of a node, concurrent accepted connections of guests: authenticated or, without a handshake,
        from their first request on.  When all places are held, the guest that has been idle for
        longest, and for the longest election timeout at least, makes way for the next.  One
        connection of each server of the configuration does not count.
    strangers_max
        Of a node, concurrent accepted connections of others; when there are more, the oldest is
        ended.
    raft
        The limits of the core.  They are lowered where its requests would not fit the frames.
    """

    log_size_max: int = 64 * 1024 * 1024
    entries_max: int = 65536
    inflated_size_max: int = 64 * 1024 * 1024
    servers_max: int = 1024
    endpoint_size_max: int = 1024
    head_size_max: int = 16 * 1024
    term_max: int = 2**62
    unanswered_max: int = 64
    links_max: int = 256
    strangers_max: int = 64
    raft: RaftLimits = field(default_factory=RaftLimits)

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in _NEVER_0:
            check_int(name, getattr(self, name), 1)
        check_type("raft", self.raft, RaftLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a node, in seconds.  Raises `ValueError` for one below 0.

    handshake_timeout_s
        The time within which a connection has to become established.
    answer_timeout_s
        The wait after which a connection that we have made is given up, and made anew, if answers
        are owed to us and no byte moves.  It doubles each time, until the peer has answered a
        request as large.  It should be well above the times of `raft`, and a peer's slowest write.
    dial_pause_s, dial_pause_max_s
        The pause before a server is dialled again; pauses double from the former to the latter
        until it answers.
    raft
        The times of the core.
    """

    handshake_timeout_s: float = 10.0
    answer_timeout_s: float = 30.0
    dial_pause_s: float = 0.025
    dial_pause_max_s: float = 1.0
    raft: RaftTiming = field(default_factory=RaftTiming)

    def __post_init__(self) -> None:
        check_numbers(self)
        check_type("raft", self.raft, RaftTiming)
