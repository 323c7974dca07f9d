"""Secure Scuttlebutt: the layers of a connection, each a machine of its own.

`ClientHandshake` or `ServerHandshake`, then `BoxStream`, and inside it the next protocol::

    then(
        ClientHandshake(identity=..., server=..., ephemeral=PrivateKey.generate()),
        lambda event: over(BoxStream(keys=event.keys), upper)
        if isinstance(event, Authenticated) else None,
    )

What needs PyNaCl is imported when it is first asked for: `culm.ssb.muxrpc` does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm import lazy
from culm.machine import Closed, DataReceived
from culm.ssb.errors import ErrorCode
from culm.ssb.events import Authenticated, BoxStreamEvent, HandshakeEvent, Keys, SessionKeys
from culm.ssb.limits import Limits, Timing
from culm.ssb.states import BoxStreamState, HandshakeState

__all__ = [
    "Authenticated",
    "BoxStreamEvent",
    "Closed",
    "DataReceived",
    "HandshakeEvent",
    "MAIN_NETWORK",
    "BoxStream",
    "BoxStreamState",
    "ClientHandshake",
    "ErrorCode",
    "HandshakeState",
    "Keys",
    "Limits",
    "ServerHandshake",
    "SessionKeys",
    "Timing",
]

__getattr__ = lazy.names(
    __name__,
    {
        "box_stream": ("BoxStream",),
        "secret_handshake": ("MAIN_NETWORK", "ClientHandshake", "ServerHandshake"),
    },
)

if TYPE_CHECKING:
    from culm.ssb.box_stream import BoxStream
    from culm.ssb.secret_handshake import MAIN_NETWORK, ClientHandshake, ServerHandshake
