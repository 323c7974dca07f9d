"""The box stream: bytes after the secret handshake, sealed in both directions.

A packet is a header box of 34 bytes (the body's size and its authentication tag, sealed) and
the body, at most 4096 bytes, sealed under the next nonce (Scuttlebutt Protocol Guide, "Box
stream").  A header of zeros says goodbye: without it, the bytes may have been cut short on the way.
"""

from __future__ import annotations

from typing import Final

from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from culm.arguments import check_type
from culm.buffer import Buffer
from culm.machine import (
    Closed,
    ContractErrorCode,
    DataReceived,
    LocalProtocolError,
    RemoteProtocolError,
    StreamBase,
)
from culm.ssb.errors import ErrorCode
from culm.ssb.events import BoxStreamEvent, Keys, SessionKeys
from culm.ssb.limits import Limits
from culm.ssb.states import BoxStreamState

BODY_SIZE_MAX = 4096  # bytes
_DEFAULT_LIMITS: Final = Limits()

_TAG_SIZE = 16
_HEADER_SIZE = 2 + _TAG_SIZE
_HEADER_BOX_SIZE = _TAG_SIZE + _HEADER_SIZE
_GOODBYE = bytes(_HEADER_SIZE)
_NONCE_SIZE = 24


class _Boxes:
    """The boxes of one direction: one key, and a nonce that counts up."""

    __slots__ = ("_key", "_nonce")

    def __init__(self, keys: Keys) -> None:
        self._key = keys.key
        self._nonce = int.from_bytes(keys.nonce, "big")

    def _next_nonce(self) -> bytes:
        nonce = self._nonce
        self._nonce = (nonce + 1) % (1 << 8 * _NONCE_SIZE)
        return nonce.to_bytes(_NONCE_SIZE, "big")

    def seal(self, plain: bytes) -> bytes:
        return crypto_secretbox(plain, self._next_nonce(), self._key)

    def seal_packet(self, body: bytes) -> bytes:
        """Seal header and body; the header holds the body's tag, although its nonce comes first."""
        header_nonce = self._next_nonce()
        sealed = self.seal(body)
        header = len(body).to_bytes(2, "big") + sealed[:_TAG_SIZE]
        return crypto_secretbox(header, header_nonce, self._key) + sealed[_TAG_SIZE:]

    def open(self, box: bytes) -> bytes:
        """Raises `RemoteProtocolError` (``BAD_BOX``)."""
        try:
            return crypto_secretbox_open(box, self._next_nonce(), self._key)
        except CryptoError:
            raise RemoteProtocolError(ErrorCode.BAD_BOX) from None


class BoxStream(StreamBase[BoxStreamEvent]):
    """Carries bytes sealed with the keys from a handshake: a `culm.machine.Conduit`.

    Every body received is one `DataReceived`, whole and authenticated.  Sent data is cut into
    bodies of at most 4096 bytes; every call of `send_data` makes packets of its own.

    Errors: ``BAD_BOX`` (tampered with, doubled or out of order), ``BAD_BODY_SIZE``,
    ``TRUNCATED`` (the bytes end without a goodbye from either side).  It holds at most
    `Limits.packets_max` packets of the peer, some 4 KiB each.

    keys
        From `culm.ssb.events.Authenticated`.
    limits
        See `culm.ssb.Limits`.
    """

    def __init__(self, *, keys: SessionKeys, limits: Limits = _DEFAULT_LIMITS) -> None:
        check_type("limits", limits, Limits)
        super().__init__(receive_max=limits.packets_max * (_HEADER_BOX_SIZE + BODY_SIZE_MAX))
        self._sealing = _Boxes(keys.send)
        self._opening = _Boxes(keys.receive)
        self._state = BoxStreamState.OPEN
        self._header: bytes | None = None  # of the packet whose body is due

    @property
    def state(self) -> BoxStreamState:
        return self._state

    def send_data(self, data: Buffer) -> None:
        """Seal `data` for the peer.

        Raises `LocalProtocolError` (``ALREADY_CLOSED``) after `close` or `Closed`, and
        `TypeError` for something that is not a buffer.
        """
        whole = memoryview(data).cast("B")
        if self._closing or self._closed is not None:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        for start in range(0, len(whole), BODY_SIZE_MAX):
            body = bytes(whole[start : start + BODY_SIZE_MAX])
            self._outbox.append(self._sealing.seal_packet(body))

    def _step(self) -> BoxStreamEvent | None:
        if self._closing and self._state is BoxStreamState.OPEN:
            self._state = BoxStreamState.SAID_GOODBYE
        if self._header is None:
            if self._inbox.size < _HEADER_BOX_SIZE:
                return None
            header = self._opening.open(self._inbox.take(_HEADER_BOX_SIZE))
            if header == _GOODBYE:
                self.close()
                return Closed()
            self._header = header
        size = int.from_bytes(self._header[:2], "big")
        if size > BODY_SIZE_MAX:
            raise RemoteProtocolError(ErrorCode.BAD_BODY_SIZE, f"{size}")
        if self._inbox.size < size:
            return None
        tag, self._header = self._header[2:], None
        return DataReceived(data=self._opening.open(tag + self._inbox.take(size)))

    def _step_eof(self) -> BoxStreamEvent | None:
        if self._closing and self._header is None and not self._inbox.size:
            return Closed()
        raise RemoteProtocolError(ErrorCode.TRUNCATED, "no goodbye")

    def _goodbye(self) -> None:
        self._outbox.append(self._sealing.seal(_GOODBYE))

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._state = BoxStreamState.CLOSED
