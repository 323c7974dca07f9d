"""Canonical CBOR (RFC 8949, section 4.2.1): found in a stream as it arrives, and decoded.

`Scanner` reads the heads of an item, refuses non-canonical, too large and too deep ones as
early as possible, and says where the item ends.  `decode` takes a whole item; only it looks at
the order of keys in maps, at duplicates among them, and at whether text is UTF-8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cbor2

from culm.buffer import Buffer
from culm.kernels import cbor as _kernel
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

#: The default limit of nested arrays and maps.
DEPTH_MAX = 16

BYTES, TEXT, ARRAY, MAP, TAG = (
    _kernel.BYTES,
    _kernel.TEXT,
    _kernel.ARRAY,
    _kernel.MAP,
    _kernel.TAG,
)

_DIRECT_MAX = 23  # a larger argument follows the head
_HEAD_SIZE_MAX = 9

_FAULTS = {
    _kernel.LONG_NUMBER: (WireErrorCode.NON_CANONICAL, "a number in too many bytes"),
    _kernel.LONG_FLOAT: (WireErrorCode.NON_CANONICAL, "a float in too many bytes"),
    _kernel.BAD_HEAD: (WireErrorCode.NON_CANONICAL, "a head that says no length"),
    _kernel.TAGGED: (WireErrorCode.BAD_TYPE, "a tag"),
    _kernel.UNKNOWN_SIMPLE: (WireErrorCode.BAD_TYPE, "an unknown simple value"),
    _kernel.TOO_DEEP: (WireErrorCode.LIMIT_EXCEEDED, "arrays are nested too deeply"),
    _kernel.KEY_NO_TEXT: (WireErrorCode.BAD_TYPE, "a key that is no text"),
    _kernel.KEY_ORDER: (WireErrorCode.NON_CANONICAL, "keys do not ascend"),
    _kernel.NO_UTF8: (WireErrorCode.BAD_VALUE, "text that is no UTF-8"),
}


class Scanner:
    """Finds the end of one item as it arrives in pieces.

    size_max: bytes that the item may have.  Declared sizes count at once: a string with all its
        bytes, an array with one byte for each item.
    depth_max: the limit of nested arrays and maps.
    items_max, item_size: the limit of items, those in arrays and maps included, plus one for
        each `item_size` bytes; none has less than a byte.
    pairs: the number of pairs in the maps so far.
    """

    __slots__ = (
        *("_at", "_begun", "_depth_max", "_item_size", "_items_max", "_open", "_owed", "_passed"),
        *("_size_max", "pairs"),
    )

    def __init__(
        self, *, size_max: int, depth_max: int = DEPTH_MAX, items_max: int = 0, item_size: int = 1
    ) -> None:
        self._size_max = size_max
        self._depth_max = depth_max
        self._items_max = items_max
        self._item_size = item_size
        self._begun = 0
        self._at = 0  # where the next head stands
        self._open = [1]  # items that are still to begin: of the whole, then of each open array
        self._owed = 1  # the sum of them
        self._passed = 0  # bytes dropped by now
        self.pairs = 0

    def scan(self, data: bytes | memoryview, end: int) -> int | None:
        """Go on in `data`, which begins with the item, or what is left of it, and has `end` bytes.

        Returns the size of the item once it is whole.  Raises `DecodeError`, the same for every
        chunking: ``LIMIT_EXCEEDED``, ``NON_CANONICAL``, ``BAD_TYPE``.
        """
        at, open, owed, begun = self._at, self._open, self._owed, self._begun
        items_max, item_size, passed = self._items_max, self._item_size, self._passed
        size_max = self._size_max - passed
        while owed and at < end:
            kind, argument = data[at] >> 5, data[at] & 31
            behind = at + 1
            if argument > _DIRECT_MAX or kind >= TAG:
                encoded = bytes(data[at : min(at + _HEAD_SIZE_MAX, end)])
                kind, argument, size = _kernel.head(encoded, 0)
                if size == _kernel.TRUNCATED:
                    break
                if size < 0:
                    raise _fault(passed + at, size)
                behind = at + size
            owed -= 1
            begun += 1
            open[-1] -= 1
            if kind in (ARRAY, MAP):
                if len(open) > self._depth_max:
                    raise _too_much(passed + at, f"over {self._depth_max} nested arrays")
                if kind == MAP:
                    self.pairs += argument
                    argument *= 2
                owed += argument
                open.append(argument)
            elif kind in (BYTES, TEXT):
                behind += argument
            if behind + owed > size_max:
                raise _too_much(passed + at, f"over {self._size_max} bytes")
            if begun > items_max + (passed + behind) // item_size:
                why = f"over {items_max} items, and one for {item_size} bytes"
                raise _too_much(passed + at, why)
            while open and not open[-1]:
                open.pop()
            at = behind
        self._at, self._owed, self._begun = at, owed, begun
        return at if not owed and at <= end else None

    def pass_over(self, end: int) -> int:
        """How many of the `end` bytes are to be dropped, since the rest does not need them."""
        passed = min(self._at, end)
        self._at -= passed
        self._passed += passed
        return passed


def encode(value: Any) -> bytes:
    """The canonical encoding of a value that consists of CBOR's own types.

    Raises `ValueError` for text with half a surrogate pair, which UTF-8 does not have.
    """
    try:
        return cbor2.dumps(value, canonical=True)
    except UnicodeEncodeError as error:
        raise ValueError(f"no UTF-8 for {error.object!a:.100}") from None


@lru_cache(maxsize=4096)
def encode_head(kind: int, argument: int) -> bytes:
    """The first bytes of an item of that major type (0 to 7)."""
    if argument <= _DIRECT_MAX:
        return bytes([kind << 5 | argument])
    width = next((width for width in (1, 2, 4) if argument >> 8 * width == 0), 8)
    return bytes([kind << 5 | 24 + width.bit_length() - 1]) + argument.to_bytes(width, "big")


def decode(data: Buffer, *, depth_max: int = DEPTH_MAX) -> Any:
    """Decode bytes that are one canonical item and nothing else.

    Keys of maps are text, and ascend as text does, which is the order of RFC 8949 only among keys
    of one length.  Raises `Truncated`, and `DecodeError` with ``TRAILING_DATA``,
    ``LIMIT_EXCEEDED`` (`depth_max`), ``NON_CANONICAL``, ``BAD_TYPE``, ``BAD_VALUE`` (no UTF-8).
    """
    encoded = data if type(data) is bytes else bytes(data)
    value, end = _kernel.decode(encoded, 0, depth_max)
    if end < 0:
        raise _fault(value, end)
    if end < len(encoded):
        raise DecodeError(WireErrorCode.TRAILING_DATA, end, "bytes follow the item")
    return value


#: ``decode_first(data, at, depth_max)``: the item at `at`, and where it ends.  A negative end
#: means that there is none: for callers that take right items and leave the rest to `Scanner`.
decode_first = _kernel.decode
#: The end that `decode_first` gives where arrays and maps are nested too deeply.
TOO_DEEP = _kernel.TOO_DEEP


def _fault(at: int, fault: int) -> DecodeError:
    if fault == _kernel.TRUNCATED:
        return Truncated(at)
    code, message = _FAULTS[fault]
    return DecodeError(code, at, message)


def _too_much(at: int, message: str) -> DecodeError:
    return DecodeError(WireErrorCode.LIMIT_EXCEEDED, at, message)
