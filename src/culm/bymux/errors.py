"""The rules of bymux, each with a code of its own."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """Which rule was broken: by the peer (in `Closed`) or by the caller (raised).

    Codes that start with ``GLOBAL_`` are the forms that a rule takes in global packets.
    """

    UNKNOWN_PACKET_TYPE = 1
    """A header byte of packet type 6 or 7."""
    UNKNOWN_STREAM = 2
    """The id of no active stream; also of one that has ended just before."""

    CREDIT_OVERFLOW = 3
    """The credit of a stream would exceed 2^64 - 1."""
    CREDIT_ON_INFINITE = 4
    """Nonzero credit for a stream whose credit is infinite."""
    CREDIT_AFTER_STOP_READ = 5
    WRITE_PAST_CREDIT = 6
    """A Write of more bytes than there is credit for."""
    WRITE_AFTER_CLOSE = 7
    SECOND_CLOSE = 8
    SECOND_STOP_READ = 9
    PING_AFTER_END = 10
    """A Ping after both Close and StopRead."""
    PONG_AFTER_END = 11
    """A Pong after both Close and StopRead."""

    GLOBAL_CREDIT_OVERFLOW = 12
    """The credit for creations would exceed 2^64 - 1."""
    GLOBAL_CREDIT_AFTER_STOP_READ = 13
    GLOBAL_SECOND_CLOSE = 14
    GLOBAL_SECOND_STOP_READ = 15
    GLOBAL_PING_AFTER_END = 16
    GLOBAL_PONG_AFTER_END = 17

    CREATION_WITHOUT_CREDIT = 18
    CREATION_AFTER_CLOSE = 19
    """A creation after the global Close of the same endpoint."""
    WRONG_PARITY = 20
    """An odd id of the proactive endpoint, or an even one of the reactive endpoint."""
    ID_ACTIVE = 21
    """A creation with the id of a stream that has not ended."""
    STREAMS_LIMIT = 22
    """More streams alive than `Limits.streams_max`."""

    EOF_IN_PACKET = 23
    """The bytes ended inside of a packet."""
    EOF_WITH_STREAMS = 24
    """The bytes ended between two packets, but streams were alive."""

    CONSUMED_TOO_MUCH = 25
    """The caller reported more bytes as consumed than had come up."""
