"""How many bytes compressed data may become."""

from __future__ import annotations

from culm.point2point.errors import ErrorCode, Violation

__all__ = ["INFLATION_FACTOR", "Inflation", "padding"]

# What we send becomes at most so many times its size, and so much do we allow by default.
INFLATION_FACTOR = 256


class Inflation:
    """What the peer's compressed bytes may become: so many bytes for each of them that has come.

    `factor`: how many, on average; `burst`: by how many bytes that may be exceeded, ever.
    What is saved up by bytes that become less is lost at the end of a packet, so that any
    k bytes in a row become at most ``burst + k * factor``.
    """

    __slots__ = ("_burst", "_factor", "_left")

    def __init__(self, *, factor: int, burst: int) -> None:
        self._factor = factor
        self._burst = self._left = burst

    def check(self, size: int, packed_size: int) -> None:
        """A packet may declare these sizes; raises `Violation`."""
        if size > self.room(packed_size):
            raise Violation(ErrorCode.INFLATION, f"{size} bytes of {packed_size}")

    def room(self, unread_size: int) -> int:
        """How many bytes may be made, with so many compressed ones at hand."""
        return max(0, self._left + self._factor * unread_size)

    def take_packet(self, size: int, packed_size: int) -> None:
        """A whole packet of these sizes has come, and may be made; raises `Violation`."""
        left = self._left + self._factor * packed_size - size
        if left < 0:
            raise Violation(ErrorCode.INFLATION, f"{size} bytes of {packed_size}")
        self._left = min(left, self._burst)

    def made(self, size: int, read_size: int) -> None:
        """`size` bytes have been made, and `read_size` compressed ones been read."""
        self._left += self._factor * read_size - size

    def end_packet(self) -> None:
        """A packet is complete."""
        self._left = min(self._left, self._burst)


def padding(size: int, packed_size: int) -> bytes:
    """Elements of length zero to go before a packet of `size` bytes that is packed too well."""
    return bytes(max(0, -(-size // INFLATION_FACTOR) - packed_size))
