"""Messages in a stream of bytes: where each ends; what is too large is refused before it comes."""

from __future__ import annotations

from culm.buffer import ReceiveBuffer
from culm.machine import RemoteProtocolError
from culm.p2panda.codec import Codec, Form
from culm.p2panda.errors import ErrorCode
from culm.wire.cbor import Scanner
from culm.wire.errors import DecodeError, WireErrorCode

__all__ = ["Framer"]

_ARRAY = 0x80
_ARITIES = range(2, 6)
_DIRECT_MAX = 23
_ONE_BYTE = 24


class Framer:
    """Takes messages from the front of `inbox`, where they stand back to back."""

    __slots__ = ("_codec", "_form", "_inbox", "_scanner")

    def __init__(self, inbox: ReceiveBuffer, codec: Codec) -> None:
        self._inbox = inbox
        self._codec = codec
        self._form: Form | None = None  # of the message that has begun
        self._scanner: Scanner | None = None

    @property
    def size_max(self) -> int:
        """How many bytes the message may have that has begun; 0 between two messages."""
        return 0 if self._form is None else self._form.size_max

    def take(self) -> bytes | None:
        """The next message, if it is all there.

        Raises `RemoteProtocolError`, the same for every chunking: ``MALFORMED``,
        ``UNKNOWN_MESSAGE``, ``MESSAGE_TOO_LARGE``.
        """
        if self._scanner is None:
            self._form = form = self._begin()
            if form is None:
                return None
            self._scanner = Scanner(size_max=form.size_max, depth_max=form.depth_max)
        try:
            size = self._scanner.scan(self._inbox, self._inbox.size)
        except DecodeError as error:
            too_large = error.code is WireErrorCode.LIMIT_EXCEEDED
            code = ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.MALFORMED
            raise RemoteProtocolError(code, str(error)) from None
        if size is None:
            return None
        if self._scanner.pairs:
            raise RemoteProtocolError(ErrorCode.MALFORMED, "a map")
        self._form = self._scanner = None
        return self._inbox.take(size)

    def _begin(self) -> Form | None:
        """What the message must look like that begins here; ``None`` if too little has come."""
        inbox = self._inbox
        if not inbox.size:
            return None
        arity = inbox[0] - _ARRAY
        if arity not in _ARITIES:
            raise RemoteProtocolError(ErrorCode.MALFORMED, "no array of 2 to 5 items")
        if inbox.size < 2:
            return None
        kind = inbox[1]
        if kind == _ONE_BYTE:
            if inbox.size < 3:
                return None
            kind = inbox[2]
            if kind <= _DIRECT_MAX:
                raise RemoteProtocolError(ErrorCode.MALFORMED, "a type in too many bytes")
        elif kind > _DIRECT_MAX:
            raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE, "the type is no small number")
        form = self._codec.forms.get(kind)
        if form is None:
            raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE, f"type {kind}")
        if arity not in form.arities:
            raise RemoteProtocolError(ErrorCode.MALFORMED, f"{arity} items in type {kind}")
        return form
