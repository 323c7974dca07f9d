"""Why a Secure Scuttlebutt connection ends, and what a caller may not do."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode

__all__ = ["ErrorCode"]


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # The secret handshake
    WRONG_NETWORK = 1  # a hello that was not made with our network key
    BAD_KEY = 2  # a public key with which no secret can be shared
    BAD_PROOF = 3  # the peer does not have the key that it should have
    NOT_ADMITTED = 4  # the client is who it says, and is not wanted
    HANDSHAKE_TIMEOUT = 5
    # The box stream
    BAD_BOX = 20  # a box that the key does not open
    BAD_BODY_SIZE = 21
    TRUNCATED = 22  # the bytes end without a goodbye
