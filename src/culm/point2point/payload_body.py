"""The body of a payload packet, raw or compressed, as it comes in."""

from __future__ import annotations

from culm.buffer import ReceiveBuffer
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.limits import Limits
from culm.wire.errors import DecodeError, Truncated
from culm.wire.lzfoo import Decompressor

__all__ = ["Inflation", "PayloadBody"]


class PayloadBody:
    """Takes the body of one packet after the other from `inbox`, in pieces.

    All compressed packets of the connection share one history, whatever their requests.  So packets
    that nobody wants any more are inflated, too, as long as wanted ones may follow.
    """

    __slots__ = (
        "_decompressor",
        "_inbox",
        "_inflation",
        "_left",
        "_size",
        "_unpacks",
        "open",
        "piece_size_max",
        "wanted",
    )

    def __init__(self, inbox: ReceiveBuffer, *, limits: Limits) -> None:
        self.open = False
        self.wanted = True  # not everything that comes is discarded
        self._inbox = inbox
        self.piece_size_max = limits.packet_size_max
        """How many bytes `take` gives at most."""
        self._inflation = Inflation(
            factor=limits.inflation_factor_max, burst=limits.inflation_burst_max
        )
        self._decompressor: Decompressor | None = None
        self._size = 0  # bytes of payload
        self._left = 0  # bytes on the wire that have not been taken
        self._unpacks = False

    def establish(self, window: int) -> None:
        """The decompression window (bytes) is known."""
        if window:
            self._decompressor = Decompressor(window)

    def want_no_more(self) -> None:
        """Nothing that comes from now on is of use: inflate nothing."""
        self.wanted = self._unpacks = False

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
        if packed_size is not None:
            if self._decompressor is None:
                raise Violation(ErrorCode.COMPRESSION_WINDOW, "no compression was negotiated")
            if self.wanted:
                self._inflation.check(size, packed_size)
                self._decompressor.begin(size)
        self.open, self._size = True, size
        self._left = size if packed_size is None else packed_size
        self._unpacks = packed_size is not None and self.wanted

    def unpack(self, packed: bytes, size: int) -> bytes:
        """The `size` bytes of a whole packet that is compressed; raises `Violation`."""
        assert self._decompressor is not None
        self._inflation.take_packet(size, len(packed))
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
        size = min(self._inbox.size, self._left, self.piece_size_max)
        if self._left and not size:
            raise Truncated(0)
        self._left -= size
        self.open = self._left > 0
        return self._inbox.take(size)

    def _unpack(self) -> bytes:
        decompressor, inflation = self._decompressor, self._inflation
        assert decompressor is not None
        readable = min(self._left, self.piece_size_max)
        unread = min(readable, self._inbox.size)
        if self._left and not unread and not decompressor.pending:
            raise Truncated(0)
        room = inflation.room(unread)
        if not room and decompressor.remaining:
            if unread < readable:
                raise Truncated(0)  # more of it may be made when more of it has come
            raise Violation(ErrorCode.INFLATION, f"more than the next {readable} bytes allow")
        if room < self.piece_size_max and decompressor.pending:
            unread = 0  # which lets a copy go on, and is read after it
        try:
            packed = self._inbox.peek(unread)
            data, read = decompressor.decode(packed, 0, min(room, self.piece_size_max))
            self._inbox.consume(read)
            self._left -= read
            inflation.made(len(data), read)
            if not self._left and not decompressor.pending:
                decompressor.finish()
                inflation.end_packet()
                self.open = False
        except DecodeError as error:
            raise Violation(ErrorCode.BAD_COMPRESSION, str(error)) from None
        return data


class Inflation:
    """How far the peer's compressed bytes may expand, in proportion to what has come.

    `factor`: how many, on average; `burst`: by how many bytes that may be exceeded, ever.
    Allowance that a packet leaves unused is lost at its end, so that any k bytes in a row become at
    most ``burst + k * factor``.
    """

    __slots__ = ("_burst", "_factor", "_left")

    def __init__(self, *, factor: int, burst: int) -> None:
        self._factor = factor
        self._burst = self._left = burst

    def check(self, size: int, packed_size: int) -> None:
        """A packet may declare these sizes; raises `Violation`."""
        if size > self.room(packed_size):
            raise _too_much(size, packed_size)

    def room(self, unread_size: int) -> int:
        """How many bytes may be made, with so many compressed ones at hand."""
        return max(0, self._left + self._factor * unread_size)

    def take_packet(self, size: int, packed_size: int) -> None:
        """A whole packet of these sizes has come, and may be made; raises `Violation`."""
        left = self._left + self._factor * packed_size - size
        if left < 0:
            raise _too_much(size, packed_size)
        self._left = min(left, self._burst)

    def made(self, size: int, read_size: int) -> None:
        """`size` bytes have been made, and `read_size` compressed ones been read."""
        self._left += self._factor * read_size - size

    def end_packet(self) -> None:
        """A packet is complete."""
        self._left = min(self._left, self._burst)


def _too_much(size: int, packed_size: int) -> Violation:
    return Violation(ErrorCode.INFLATION, f"{size} bytes of {packed_size}")
