"""The states of a handshake and of a box stream."""

from __future__ import annotations

from enum import Enum


class BoxStreamState(Enum):
    """The stages of a box stream on the way to its end."""

    OPEN = "open"
    SAID_GOODBYE = "said goodbye"  # we have
    CLOSED = "closed"


class HandshakeState(Enum):
    """The message that is due from the peer."""

    HELLO = "hello"
    PROOF = "proof"  # of the client's key: due at the server
    ACCEPTANCE = "acceptance"  # by the server: due at the client
    DONE = "done"
    CLOSED = "closed"  # before it was done
