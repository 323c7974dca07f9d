"""LZFoo: byte-oriented LZ77 compression, in streams of packets with a shared history.

A `Compressor` and the `Decompressor` at the other end go through the same packets in the
same order.  Each packet helps to shorten the next ones: a copy may point back by up to `window`
bytes, over any number of packets.  Neither of them sees uncompressed packets.

    >>> compressor, decompressor = Compressor(window=65536), Decompressor(window=65536)
    >>> packet = compressor.compress(b"a bamboo log of a bamboo log")
    >>> decompressor.begin(28)
    >>> decompressor.decode(packet, 0, 65536)
    (b'a bamboo log of a bamboo log', 19)
    >>> decompressor.finish()

Source of the format: AljoschaMeyer/lzfoo; the shared history and its window come from
Bamboo Point-2-Point, "Compression".  A window is 0..WINDOW_MAX bytes; anything else
is a ``ValueError``.
"""

from __future__ import annotations

from culm.buffer import Buffer
from culm.kernels import lzfoo as _kernel
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

#: The largest window, in bytes: 1 GiB.
WINDOW_MAX = _kernel.WINDOW_MAX

_FAULTS = {
    _kernel.BAD_LENGTH: (
        WireErrorCode.BAD_LENGTH,
        "an element is longer than the rest of the packet",
    ),
    _kernel.ZERO_OFFSET: (WireErrorCode.BAD_OFFSET, "a copy from offset zero"),
    _kernel.FAR_OFFSET: (WireErrorCode.BAD_OFFSET, "a copy from before the window or the history"),
    _kernel.TRAILING: (WireErrorCode.TRAILING_DATA, "bytes after the end of the packet"),
}

#: ``Compressor(window, level=1)``: makes packets.  With a window of 0 they hold literals only.
#: Level 1 is quick; level 2 takes some twenty times as long, and makes about a tenth fewer
#: bytes.  Any `Decompressor` reads either.
#:
#: ``compress(data, size_max=None)`` returns the packet for `data`, of at most
#: ``len(data) + len(data) // 256 + 2`` bytes.  If it would be larger than `size_max`, the
#: result is ``None`` and the compressor is as before, so that `data` can be sent raw.
#:
#: ``rest()`` gives back all memory but that of the history, for a compressor that has nothing to
#: do for a while; the next packet makes the table anew.
#:
#: The same calls give the same bytes on every machine.  Memory: two windows, the table of
#: the match finder (as large as the compressed data, up to one window and 512 KiB; for level 2
#: six times as large, up to six windows and 6 MiB) and the memory of one packet; none of it
#: before there is data.  The time grows with the data and with nothing else, whatever its bytes
#: are; a refusal of level 2 costs the time of a window, too.
Compressor = _kernel.Compressor


class Decompressor:
    """Decodes packets that arrive and leave in any pieces.

    For each packet: `begin` with its uncompressed size, `decode` until the input is over
    and nothing is `pending`, `finish`.  Input and output may be cut anywhere; the bytes
    and the error, if there is one, are the same for every cut.

    Memory: `window` bytes at most, growing as data comes, and `out_max` in each call,
    whatever a packet claims.  The time grows with input and output alike, and elements of
    length zero are input: to limit both is to limit the time.
    """

    __slots__ = ("_kernel",)

    def __init__(self, window: int) -> None:
        self._kernel = _kernel.Decompressor(window)

    @property
    def window(self) -> int:
        """How far back copies may point, in bytes."""
        return self._kernel.window

    @property
    def remaining(self) -> int:
        """How many bytes of the packet are yet to be made."""
        return self._kernel.remaining

    @property
    def position(self) -> int:
        """How many compressed bytes of the packet have been read."""
        return self._kernel.position

    @property
    def pending(self) -> bool:
        """More can be had from `decode` without further input: bytes, or an error."""
        return self._kernel.pending

    def begin(self, size: int) -> None:
        """Declare a packet of `size` bytes, uncompressed: 0..2**64-1.

        Raises ``ValueError`` if the packet before is not complete or was at fault.
        """
        self._kernel.begin(size)

    def decode(self, data: Buffer, offset: int, out_max: int) -> tuple[bytes, int]:
        """Decode ``data[offset:]``, which must not reach beyond the packet.

        Returns the output, of at most `out_max` bytes, and how many bytes were read.  Pass the
        rest again; once the packet's last byte has been made, a rest is an error.

        Raises `DecodeError` once everything before the fault was returned, and then
        always; its `offset` counts the compressed bytes of the packet:

        - ``BAD_LENGTH``: an element is longer than the rest of the declared size,
        - ``BAD_OFFSET``: a copy's offset is zero, or points before the window or the
          start of the history,
        - ``TRAILING_DATA``: there are bytes after the declared size was reached.
        """
        output, read = self._kernel.decode(data, offset, out_max)
        if not output:
            self._raise_fault()
        return output, read

    def finish(self) -> None:
        """Check that the packet is complete when there is no more input for it.

        Raises `Truncated` if it is not, the `DecodeError` that `decode` owes, or
        ``ValueError`` if bytes are pending.
        """
        self._raise_fault()
        if self.pending:
            raise ValueError("bytes of the packet are pending")
        if self.remaining:
            raise Truncated(self.position, "a packet ends before its declared size")

    def packet(self, data: Buffer, size: int) -> bytes:
        """Decode a packet that has come whole: `begin`, `decode`, `finish`.

        Raises their errors, without giving the output before a fault.  Memory: `size` bytes,
        which the caller has to limit.
        """
        kernel = self._kernel
        kernel.begin(size)
        output, read = kernel.decode(data, 0, size)
        while read < len(data) or kernel.pending:  # too much, or nothing in many bytes
            more, more_read = self.decode(data, read, size)
            output, read = output + more, read + more_read
        if kernel.fault or kernel.remaining:
            self.finish()
        return output

    def _raise_fault(self) -> None:
        if self._kernel.fault:
            code, message = _FAULTS[self._kernel.fault]
            raise DecodeError(code, self._kernel.fault_position, message)


def compress(data: Buffer, window: int, level: int = 1) -> bytes:
    """Compress `data` on its own."""
    packet = Compressor(window, level).compress(data)
    assert packet is not None
    return packet


def decompress(data: Buffer, size_max: int, window: int) -> bytes:
    """Decompress `data`, which stands on its own, to at most `size_max` bytes.

    Raises `Truncated` if the last element is cut short, and `DecodeError`:
    ``LIMIT_EXCEEDED`` if there would be more than `size_max` bytes, ``BAD_OFFSET`` as
    `Decompressor.decode` does.
    """
    kernel = _kernel.Decompressor(window)
    kernel.begin(size_max)
    pieces: list[bytes] = []
    offset, size = 0, memoryview(data).nbytes
    piece_size = max(_PIECE_SIZE, _EXPANSION * size)
    while offset < size or kernel.pending:
        output, read = kernel.decode(data, offset, piece_size)
        if kernel.fault:
            code, message = _FAULTS[kernel.fault]
            if kernel.fault in (_kernel.BAD_LENGTH, _kernel.TRAILING):
                code, message = WireErrorCode.LIMIT_EXCEEDED, f"more than {size_max} bytes"
            raise DecodeError(code, kernel.fault_position, message)
        pieces.append(output)
        offset += read
    if not kernel.between_elements:
        raise Truncated(size, "an element is cut short")
    return b"".join(pieces)


# The step of `decompress`: as a rule all at once, so that no pieces have to be joined.
_PIECE_SIZE = 1 << 20
_EXPANSION = 4
