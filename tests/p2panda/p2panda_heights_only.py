"""A peer that supports log heights only, made from one of ours by filtering what it hears."""

from __future__ import annotations

from p2panda_victim import CODEC

from culm.machine import RemoteProtocolError
from culm.p2panda.messages import Mode, SyncRequest
from culm.wire import cbor
from culm.wire.errors import DecodeError

_REQUEST = b"\x84\x01"


class HeightsOnly:
    """Bytes on their way to a peer that takes a request in the other mode for one in its own.

    silent: it never hears such a request; otherwise it answers with ``Have``.
    """

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._kept = b""
        self._spoilt = False  # there are no further messages

    def heard(self, data: bytes) -> bytes:
        """The bytes that the peer gets now, from these and earlier ones."""
        self._kept += data
        found = b""
        while self._kept and not self._spoilt:
            try:
                size = cbor.Scanner(size_max=1 << 30).scan(self._kept, len(self._kept))
            except DecodeError:
                self._spoilt = True
                break
            if size is None:
                return found
            found += self._changed(self._kept[:size])
            self._kept = self._kept[size:]
        found, self._kept = found + self._kept, b""
        return found

    def _changed(self, encoded: bytes) -> bytes:
        if not encoded.startswith(_REQUEST):
            return encoded
        try:
            message = CODEC.decode(encoded)
        except RemoteProtocolError:  # spoilt on its way
            return encoded
        if not isinstance(message, SyncRequest) or message.mode == Mode.LOG_HEIGHT:
            return encoded
        if self._silent:
            return b""
        return CODEC.encode(SyncRequest(message.session_id, 0, message.schema_ids))
