"""Messages cut out of a byte stream; one that is too large is refused before it is complete."""

from __future__ import annotations

from culm.buffer import ReceiveBuffer
from culm.kernels import cbor as _kernel
from culm.machine import RemoteProtocolError
from culm.p2panda.codec import ENTRY_SIZE_MAX, Codec, Form
from culm.p2panda.errors import ErrorCode
from culm.p2panda.messages import MessageType, SendEntry
from culm.wire import cbor
from culm.wire.cbor import Scanner
from culm.wire.errors import DecodeError, WireErrorCode

__all__ = ["Framer"]

_ARRAY = 0x80
_ARITIES = range(2, 6)
_DIRECT_MAX = 23
_ONE_BYTE = 24
_FRONT_SIZE = 3  # at most, of the bytes that tell a message's type
_ENTRY = b"\x84\x02"  # the first bytes of an entry's message, before the session id
_FRONT_SIZE_MAX = 2 + 3 * 9  # of an entry's message, besides the entry and the operation
_RUN_MAX = 64
_RUN_SIZE_MAX = 1 << 16


class Framer:
    """Takes messages, which stand back to back, from the front of `inbox`.

    skip_max: the size of an operation that is passed over since it is too large.
    left: bytes of such an operation that are still to come.
    """

    __slots__ = ("_codec", "_form", "_inbox", "_scanner", "_skip_max", "left")

    def __init__(self, inbox: ReceiveBuffer, codec: Codec, *, skip_max: int = 0) -> None:
        self._inbox = inbox
        self._codec = codec
        self._form: Form | None = None  # of the message that has begun
        self._scanner: Scanner | None = None
        self._skip_max = skip_max
        self.left = 0

    @property
    def size_max(self) -> int:
        """The size that the next message may have, as far as its first bytes tell."""
        return _FRONT_SIZE if self._form is None else self._form.size_max

    def take(self) -> bytes | SendEntry | None:
        """The next message, if it is complete; an entry alone if its operation is too large.

        Raises `RemoteProtocolError`, the same for every chunking: ``MALFORMED``,
        ``UNKNOWN_MESSAGE``, ``MESSAGE_TOO_LARGE``.
        """
        if self.left:
            skipped = min(self.left, self._inbox.size)
            self._inbox.consume(skipped)
            self.left -= skipped
        if self.left:
            return None
        if self._scanner is None:
            self._form = form = self._begin()
            if form is None:
                return None
            self._scanner = Scanner(
                size_max=form.size_max,
                depth_max=form.depth_max,
                items_max=form.items_max,
                item_size=form.item_size,
            )
        try:
            with self._inbox.view() as data:
                size = self._scanner.scan(data, len(data))
        except DecodeError as error:
            too_large = error.code is WireErrorCode.LIMIT_EXCEEDED
            if too_large and (entry := self._without_operation()) is not None:
                return entry
            code = ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.MALFORMED
            raise RemoteProtocolError(code, str(error)) from None
        if size is None:
            return None
        if self._scanner.pairs:
            raise RemoteProtocolError(ErrorCode.MALFORMED, "a map")
        self._form = self._scanner = None
        return self._inbox.take(size)

    def entry_session(self) -> int | None:
        """The session of the next message, if that is an entry and the session's id is small."""
        inbox = self._inbox
        if self._scanner is not None or self.left or inbox.size < 3 or inbox.peek(2) != _ENTRY:
            return None
        session_id = inbox[2]
        if session_id <= _DIRECT_MAX:
            return session_id
        if session_id == _ONE_BYTE and inbox.size > 3 and inbox[3] > _DIRECT_MAX:
            return inbox[3]
        return None

    def take_entries(self) -> tuple[tuple[bytes, bytes], ...]:
        """Entries and operations of the session that `entry_session` returned, in order.

        Only complete ones, up to the first that is unusual: that one is left for `take`.
        """
        data = self._inbox.peek(_RUN_SIZE_MAX)
        front = data[: 4 if data[2] == _ONE_BYTE else 3]
        found: list[tuple[bytes, bytes]] = []
        behind = 0
        while len(found) < _RUN_MAX and data.startswith(front, behind):
            message, end = cbor.decode_first(data, behind, 1)
            if end < 0:
                break
            _, _, entry, operation = message
            if not self._codec.is_entry(entry, operation):
                break
            found.append((entry, operation))
            behind = end
        self._inbox.consume(behind)
        return tuple(found)

    def _without_operation(self) -> SendEntry | None:
        """An entry alone, if its operation is the part that is too large and is passed over."""
        if self._form is not self._codec.forms[MessageType.ENTRY]:
            return None
        data = self._inbox.peek(_FRONT_SIZE_MAX + ENTRY_SIZE_MAX)
        session_id, end = cbor.decode_first(data, 2, 0)
        entry, end = cbor.decode_first(data, end, 0) if end > 0 else (b"", end)
        if type(session_id) is not int or not self._codec.is_entry(entry, b"") or end < 0:
            return None
        kind, size, head_size = _kernel.head(data[end : end + 9], 0)
        if kind != cbor.BYTES or head_size < 0 or size > self._skip_max:
            return None
        self._inbox.consume(end + head_size)
        self.left = size
        self._form = self._scanner = None
        return SendEntry(session_id, entry, None)

    def _begin(self) -> Form | None:
        """The form of the message that begins here; ``None`` if too little has arrived."""
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
