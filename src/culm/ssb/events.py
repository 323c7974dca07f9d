"""What happens on a Secure Scuttlebutt connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from culm.machine import Closed, DataReceived, Event

__all__ = ["Authenticated", "BoxStreamEvent", "HandshakeEvent", "Keys", "SessionKeys"]


@dataclass(frozen=True, slots=True)
class Keys:
    """What one direction of a box stream is sealed with.

    key: 32 bytes.
    nonce: 24 bytes, of the first box; every further box takes the next one.
    """

    key: bytes = field(repr=False)
    nonce: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKeys:
    """What a `SecretHandshake` leaves to the `BoxStream` after it."""

    send: Keys
    receive: Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated(Event):
    """The handshake is over: the peer has proved that it owns `peer`.

    peer: its long-term public key (Ed25519, 32 bytes).
    """

    peer: bytes
    keys: SessionKeys


HandshakeEvent: TypeAlias = Authenticated | Closed
BoxStreamEvent: TypeAlias = DataReceived | Closed
