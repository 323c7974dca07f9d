"""The body of a payload packet, raw or compressed, as it comes in."""

from __future__ import annotations

from culm.buffer import ReceiveBuffer
from culm.point2point.errors import ErrorCode, Violation
from culm.wire.errors import DecodeError, Truncated
from culm.wire.lzfoo import Decompressor

__all__ = ["PayloadBody"]


class PayloadBody:
    """Takes the body of one packet after the other from `inbox`, in pieces.

    The history of compressed packets is the connection's, whatever requests they are of.
    """

    __slots__ = ("_decompressor", "_inbox", "_left", "_piece_size_max", "_size", "_unpacks", "open")

    def __init__(self, inbox: ReceiveBuffer, *, piece_size_max: int) -> None:
        self.open = False
        self._inbox = inbox
        self._piece_size_max = piece_size_max
        self._decompressor: Decompressor | None = None
        self._size = 0  # bytes of payload
        self._left = 0  # bytes on the wire that have not been taken
        self._unpacks = False

    def establish(self, window: int) -> None:
        """The decompression window (bytes) is known."""
        if window:
            self._decompressor = Decompressor(window)

    @property
    def piece_size_max(self) -> int:
        """How many bytes `take` gives at most."""
        return self._piece_size_max

    @property
    def can_unpack(self) -> bool:
        """Whether compression was negotiated."""
        return self._decompressor is not None

    @property
    def is_empty(self) -> bool:
        """Whether the packet brings no payload."""
        return not self._size

    def begin(self, size: int, packed_size: int | None) -> None:
        """A packet with `size` bytes of payload begins, compressed to `packed_size`."""
        self.open, self._size = True, size
        self._unpacks = packed_size is not None
        self._left = size if packed_size is None else packed_size
        if self._unpacks:
            if self._decompressor is None:
                raise Violation(ErrorCode.COMPRESSION_WINDOW, "no compression was negotiated")
            self._decompressor.begin(size)

    def unpack(self, packed: bytes, size: int) -> bytes:
        """The `size` bytes of a whole packet that is compressed; raises `Violation`."""
        assert self._decompressor is not None
        try:
            return self._decompressor.packet(packed, size)
        except DecodeError as error:
            raise Violation(ErrorCode.BAD_COMPRESSION, str(error)) from None

    def take(self) -> bytes:
        """Take what there is of the payload, at most a piece.

        Raises `Truncated` if there is nothing, and `Violation`.
        """
        if self._unpacks:
            return self._unpack()
        size = min(self._inbox.size, self._left, self._piece_size_max)
        if self._left and not size:
            raise Truncated(0)
        self._left -= size
        self.open = self._left > 0
        return self._inbox.take(size)

    def _unpack(self) -> bytes:
        decompressor = self._decompressor
        assert decompressor is not None
        packed = self._inbox.peek(min(self._left, self._piece_size_max))
        if self._left and not packed and not decompressor.pending:
            raise Truncated(0)
        try:
            data, read = decompressor.decode(packed, 0, self._piece_size_max)
            self._inbox.consume(read)
            self._left -= read
            if not self._left and not decompressor.pending:
                decompressor.finish()
                self.open = False
        except DecodeError as error:
            raise Violation(ErrorCode.BAD_COMPRESSION, str(error)) from None
        return data
