"""The error codes of the secret handshake and the box stream."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # The secret handshake
    WRONG_NETWORK = 1  # a hello that was not made with our network key
    BAD_KEY = 2  # a public key with which no secret can be shared
    BAD_PROOF = 3  # the peer has not proved that it owns the expected key
    NOT_ADMITTED = 4  # the client has proved its key, but is not welcome
    HANDSHAKE_TIMEOUT = 5
    # The box stream
    BAD_BOX = 20  # a box that the key does not open
    BAD_BODY_SIZE = 21
    TRUNCATED = 22  # the bytes end without a goodbye
