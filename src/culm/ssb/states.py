"""The states of a handshake and of a box stream."""

from __future__ import annotations

from enum import Enum

__all__ = ["BoxStreamState", "HandshakeState"]


class BoxStreamState(Enum):
    """Who has said goodbye."""

    OPEN = "open"
    SAID_GOODBYE = "said goodbye"  # we have
    CLOSED = "closed"


class HandshakeState(Enum):
    """Which message of the peer is due."""

    HELLO = "hello"
    PROOF = "proof"  # who the client is: at the server
    ACCEPTANCE = "acceptance"  # that the server takes it: at the client
    DONE = "done"
    CLOSED = "closed"  # without having come that far
