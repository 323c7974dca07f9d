"""Encodings of numbers in protocols, so that hostile ones can replace them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from culm.wire import varu64

#: The numbers around the limit of some integer width.
EXTREMES: tuple[int, ...] = tuple(
    sorted(
        {
            number
            for power in (0, 7, 8, 14, 16, 31, 32, 53, 63, 64)
            for number in ((1 << power) - 2, (1 << power) - 1, 1 << power, (1 << power) + 1)
            if number >= 0
        }
    )
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """One encoding of numbers.

    encode: the bytes of a number; ``None`` if it has no such encoding.
    size: bytes of the number at an index of some data; 0 if there is none.
    """

    name: str
    encode: Callable[[int], bytes | None]
    size: Callable[[bytes, int], int]

    def places(self, data: bytes) -> list[tuple[int, int]]:
        """The start and end of each possible number in `data`."""
        sizes = ((at, self.size(data, at)) for at in range(len(data)))
        return [(at, at + size) for at, size in sizes if 0 < size <= len(data) - at]

    def __str__(self) -> str:
        return self.name


def _fixed(size: int, order: Literal["big", "little"]) -> Encoding:
    def encode(number: int) -> bytes | None:
        return number.to_bytes(size, order) if number < 1 << 8 * size else None

    return Encoding(f"{order}-endian {size}", encode, lambda data, at: size)


def _varu64(number: int) -> bytes | None:
    return varu64.encode(number) if number <= varu64.MAX else None


def _varu64_size(data: bytes, at: int) -> int:
    return 1 + max(0, data[at] - 247)


def _cbor(number: int) -> bytes | None:
    if number < 24:
        return bytes([number])
    width = next((bits for bits in range(4) if number < 1 << (8 << bits)), None)
    return None if width is None else bytes([24 + width]) + number.to_bytes(1 << width, "big")


def _cbor_size(data: bytes, at: int) -> int:
    short = data[at] & 0x1F  # the three bits above tell the type; the head is the same for all
    if short < 24:
        return 1
    return 1 + (1 << short - 24) if short < 28 else 0


def _cbor_kinds() -> list[Encoding]:
    """Heads of integers, byte strings, texts, arrays and maps, most of which declare a size."""

    def head_of(kind: int) -> Callable[[int], bytes | None]:
        def encode(number: int) -> bytes | None:
            head = _cbor(number)
            return None if head is None else bytes([head[0] | kind << 5]) + head[1:]

        return encode

    return [Encoding(f"CBOR {kind}", head_of(kind), _cbor_size) for kind in range(6)]


def _decimal_size(data: bytes, at: int) -> int:
    """Digits of the number that begins at `at`; 0 within a number."""
    if at and data[at - 1 : at].isdigit():
        return 0
    end = at
    while data[end : end + 1].isdigit():
        end += 1
    return end - at


VARU64 = Encoding("VarU64", _varu64, _varu64_size)
BIG_ENDIAN: Sequence[Encoding] = tuple(_fixed(size, "big") for size in (1, 2, 4, 8))
LITTLE_ENDIAN: Sequence[Encoding] = tuple(_fixed(size, "little") for size in (2, 4, 8))
CBOR: Sequence[Encoding] = tuple(_cbor_kinds())
#: The numbers of HTTP, Bencode and XENC, lengths of strings included.
DECIMAL = Encoding("decimal", lambda number: b"%d" % number, _decimal_size)
EVERY: Sequence[Encoding] = (VARU64, *BIG_ENDIAN, *LITTLE_ENDIAN, *CBOR, DECIMAL)
