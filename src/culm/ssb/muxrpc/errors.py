"""The rules of muxrpc, each with a code of its own."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """The rule that was broken, by the peer (in `Closed`) or by the caller (raised)."""

    BAD_BODY_TYPE = 1
    """A packet whose body is neither bytes, text nor JSON."""
    BODY_TOO_LARGE = 2
    """A packet that declares a larger body than the limits allow."""
    UNKNOWN_CALL = 3
    """The number of a call that was never made, or, by the caller, of one that is over."""
    WRONG_PACKET = 4
    """A reply in a stream, or a packet of a stream in an async call."""
    UNEXPECTED_VALUE = 5
    """A value from the side that sends none in a call of that type."""
    TRUNCATED = 7
    """The bytes ended inside a packet, or without a goodbye."""

    CALL_ENDED = 8
    """The caller has ended the call before, or it is over."""
    EMPTY_BODY = 9
    """The caller sends an empty body, which peers take for a goodbye."""
    NUMBERS_EXHAUSTED = 10
    """The caller has made 2^31 - 1 calls."""
