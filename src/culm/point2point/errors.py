"""Error codes of Bamboo Point-2-Point: one for each rule that a peer or a caller can break."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from culm.machine import ProtocolError, ProtocolErrorCode
from culm.wire.errors import Truncated


class ErrorCode(ProtocolErrorCode):
    """Which rule was broken.

    The same code is raised (`LocalProtocolError`) when the caller is about to break a
    rule, and carried by ``Closed`` (`RemoteProtocolError`) when the peer broke it.
    """

    # The connection
    MUX_VIOLATION = 2  # the multiplexer below failed; its error is in the message
    UNEXPECTED_EOF = 3
    PEER_SILENT = 4
    PEER_STALLED = 5

    # The control channel
    UNUSED_CONTROL_BYTE = 20
    CREDIT_OVERFLOW = 21
    NO_CREDIT = 22
    WRONG_ID_PARITY = 23
    ID_IN_USE = 24
    UNKNOWN_REQUEST = 25
    REQUEST_CANCELLED = 26
    CONFIRMATION_WITHOUT_EAGERNESS = 27
    END_BEFORE_START = 28
    UPPER_CERTPOOL_BEFORE_END = 29
    LOWER_CERTPOOL_AFTER_START = 30
    LOWER_CERTPOOL_NOT_IN_POOL = 31
    SIZE_MIN_DECREASED = 32
    SIZE_MAX_INCREASED = 33
    ZERO_SEQNUM = 34
    SPARSE_WITHOUT_END = 35
    BAD_HASH = 36
    BOGUS_PROOF = 37
    BAD_CANCEL_CONFIRMATION = 38
    NOT_CONFIRMED = 39
    SPARSE_END_FIXED = 40
    TOO_MANY_ADJUSTMENTS = 41
    ALREADY_CONFIRMED = 42

    # The data channel
    UNUSED_DATA_BYTE = 60
    SWITCH_TO_UNKNOWN_REQUEST = 61
    NO_CURRENT_REQUEST = 62
    ALREADY_MARKED_CANCELLED = 63
    PIECE_OUT_OF_TURN = 64
    PAST_END = 65
    PAYLOAD_SIZE_EXCEEDED = 66
    EAGERNESS_VIOLATED = 67
    SKIP_DISPROVED = 68
    PAYLOAD_MANDATORY = 69
    COMPRESSION_WINDOW = 70
    BAD_COMPRESSION = 71
    NON_CANONICAL = 72
    BACKLINK_MISSING = 73
    BACKLINK_REDUNDANT = 74
    INVALID_DATA = 75
    APOLOGY_IN_SAFE_MODE = 76
    APOLOGY_FOR_VALID_DATA = 77
    SECOND_APOLOGY = 78
    APOLOGY_OWED = 79
    CATCH_UP_ONLY = 80
    UNWANTED_PAYLOAD = 81
    EMPTY_PACKET = 82
    AFTER_END_OF_LOG = 83
    UNKNOWN_PAYLOAD_SIZE = 84
    INFLATION = 85


class Violation(ProtocolError):
    """A rule of the protocol is broken; the caller knows by which side."""

    code: ErrorCode


@contextmanager
def decoding(code: ErrorCode) -> Generator[None]:
    """Bytes that nothing can complete break the rule of that code; `Truncated` passes through."""
    try:
        yield
    except Truncated:
        raise
    except ValueError as error:  # a `DecodeError`, or of values that do not go together
        raise Violation(code, str(error)) from None
