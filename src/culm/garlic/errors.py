"""Reasons for the end of a Garlic Farm connection, and for the refusal of a call."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # Bad frames of the peer
    UNKNOWN_MESSAGE_TYPE = 1
    LOG_TOO_LARGE = 2
    TOO_MANY_ENTRIES = 3
    BAD_LOG_ENTRY = 4
    UNKNOWN_VALUE_TYPE = 5
    BAD_VALUE = 6
    INFLATED_TOO_LARGE = 7
    NUMBER_TOO_LARGE = 8
    TRUNCATED = 9
    # Good frames that break a rule
    RESPONSE_AS_REQUEST = 20
    UNEXPECTED_RESPONSE = 21
    WRONG_SOURCE = 22
    WRONG_DESTINATION = 23
    WRONG_ENTRIES = 24
    # The handshake
    BAD_HTTP = 40
    NOT_FOUND = 41
    UNAUTHORIZED = 42
    UPGRADE_REFUSED = 43
    HEAD_TOO_LARGE = 44
    HANDSHAKE_TIMEOUT = 45
    CROWDED_OUT = 46
    # Silence of the peer
    ANSWER_TIMEOUT = 50
    # Mistakes of the caller
    QUEUE_FULL = 60
    WRONG_STATE = 61
    UNKNOWN_PEER = 63
    VALUE_TOO_LARGE = 64
