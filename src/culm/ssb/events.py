"""The events of the secret handshake and the box stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from culm.machine import Closed, DataReceived, Event


@dataclass(frozen=True, slots=True)
class Keys:
    """The key and nonce of one direction of a box stream.

    key: 32 bytes.
    nonce: 24 bytes, for the first box; every further box takes the next one.
    """

    key: bytes = field(repr=False)
    nonce: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKeys:
    """The keys from a handshake for the `BoxStream` after it."""

    send: Keys
    receive: Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated(Event):
    """The handshake has succeeded: the other side has proved that it owns the key `peer`.

    peer: its long-term public key (Ed25519, 32 bytes).
    """

    peer: bytes
    keys: SessionKeys


HandshakeEvent: TypeAlias = Authenticated | Closed
BoxStreamEvent: TypeAlias = DataReceived | Closed
