"""The parts of the pure twin of `Exchange`: numbers, bounds, ranges and questions about them.

The form of a round is specified in `culm.kernels.pure_exchange`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

GROUP = 8  # ranges of which one byte says whether anything is said of them
KEYS_MAX = 2048  # parts of a range, at most
RANKS_ROOM = 16384  # bytes for parts with bounds, about
LIST_MAX = 512  # ids in one list
FEW_LISTED = 4  # bits that need no byte of their own
ID_SIZE = 4
FULL_SHARE = 4  # of the ranges there may be: beyond that part none is split any more
COUNT_MAX = 2**62 - 1
_NUMBER_SIZE_MAX = 9
_FEW = 15


class Fault(IntEnum):
    """The faults of a round of the other side."""

    CUT = 1  # it goes on after the end
    KIND = 2  # nothing of that kind may follow there
    NUMBER = 3  # not in its shortest form, too large or too small
    BOUND = 4  # not inside the range, or no room for that many parts
    ITEM = 5  # not inside of the range, or not above the one before
    RANGES = 6  # too many ranges are asked about
    MORE = 7  # all has been answered


class Faulty(Exception):
    """Raised by a `Reader`, and by who reads; never leaves the kernel."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


class Said(IntEnum):
    """A statement about a range."""

    ITEMS = 0
    ITEMS_MORE = 1
    KEYS = 2
    RANKS = 3
    LIST = 4
    LIST_PART = 5
    SUM = 6
    WANT = 7
    WANT_MORE = 8


class Form(IntEnum):
    """The shape of rounds."""

    PLAIN = 0
    ASKING = 1  # ours are explicit
    ANSWERING = 2  # theirs are


class Asked(IntEnum):
    """Our last statement about a range."""

    SUM = 0
    LIST = 1
    WANT = 2
    ANYTHING = 3  # nothing is remembered


class Question(IntEnum):
    """The other side's statement about a range, or the state of our answer."""

    SUM = 0
    UNKNOWN = 1  # it differs, neither side has said how
    LIST = 2
    SEND = 3
    GO_ON = 4  # with a list of ours


@dataclass(slots=True)
class Range:
    """A range of keys, and those of our items in it: `count` from the rank `start` on."""

    lower: bytes
    upper: bytes | None
    start: int
    count: int

    @property
    def cut(self) -> int:
        """The number of leading bytes that all its keys share."""
        return 0 if self.upper is None else common(self.lower, self.upper)


@dataclass(slots=True)
class Open(Range):
    """A range that we have asked about."""

    kind: Asked
    base: int = 0  # the count to which the answer's is a difference


@dataclass(slots=True)
class Heard(Range):
    """A range that we are asked about, after `skip` equal ones."""

    kind: Question
    skip: int = 0
    sum: int = 0
    theirs: int = 0  # their count
    their_sum: int = 0
    echo: bool = False  # it answers a sum of ours by their own
    ids: Sequence[int] = ()
    ranks: Sequence[int] = ()
    done: int = 0  # of `ranks`, already said


class Reader:
    """Bytes that are read from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        self._at += size
        if self._at > len(self._data):
            raise Faulty(Fault.CUT)
        return self._data[self._at - size : self._at]

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """A number that is not negative."""
        value = 0
        for place in range(_NUMBER_SIZE_MAX):
            byte = self.byte()
            value |= (byte & 127) << 7 * place
            if byte < 128:
                if byte == 0 and place:
                    break
                return value
        raise Faulty(Fault.NUMBER)

    def difference(self) -> int:
        """A number that may be negative."""
        value = self.number()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def count(self, base: int) -> int:
        """A count as a difference to `base`."""
        count = base + self.difference()
        if not 0 <= count <= COUNT_MAX:
            raise Faulty(Fault.NUMBER)
        return count

    def few(self, half: int) -> int:
        """A number that begins in half a byte."""
        return half if half < _FEW else _FEW + self.number()

    def bound(self, before: bytes, size_max: int) -> bytes:
        """A bound that is cut against the one before it."""
        byte = self.byte()
        shared, size = self.few(byte >> 4), self.few(byte & 15)
        if shared > len(before) or shared + size > size_max:
            raise Faulty(Fault.BOUND)
        return before[:shared] + self.take(size)


def put_number(out: bytearray, value: int) -> None:
    """Append a number that is not negative."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def put_difference(out: bytearray, value: int) -> None:
    """Append a number that may be negative."""
    put_number(out, 2 * value if value >= 0 else -2 * value - 1)


def put_said(out: bytearray, said: Said, number: int) -> None:
    """Append how something begins that is said of a range."""
    out.append(said | min(number, _FEW) << 4)
    if number >= _FEW:
        put_number(out, number - _FEW)


def put_bound(out: bytearray, bound: bytes, before: bytes) -> None:
    """Append a bound, cut against the one before it."""
    shared = common(before, bound)
    size = len(bound) - shared
    out.append(min(shared, _FEW) << 4 | min(size, _FEW))
    for number in (shared, size):
        if number >= _FEW:
            put_number(out, number - _FEW)
    out += bound[shared:]


def common(first: bytes, second: bytes) -> int:
    """With how many equal bytes two keys begin."""
    size = min(len(first), len(second))
    return next((at for at in range(size) if first[at] != second[at]), size)


def share(count: int, parts: int, part: int) -> int:
    """The share of `count` that each part has."""
    return count * (part + 1) // parts - count * part // parts


def bound_size_max(item_size: int) -> int:
    """The most bytes a bound has; equal steps end with the eighth."""
    return item_size + 7


def steps(whole: Range, parts: int, item_size: int) -> list[bytes] | None:
    """The bounds between equal steps in the keys; None if there is no room for them."""
    cut = whole.cut
    if cut >= item_size:
        return None
    low = int.from_bytes(whole.lower[cut : cut + 8].ljust(8, b"\0"), "big")
    high = 1 << 64
    if whole.upper is not None:
        high = int.from_bytes(whole.upper[cut : cut + 8].ljust(8, b"\0"), "big")
    if high - low < parts:
        return None
    cuts = [low + (high - low) * part // parts for part in range(1, parts)]
    return [whole.lower[:cut] + at.to_bytes(8, "big").rstrip(b"\0") for at in cuts]


def separator(below: bytes, above: bytes) -> bytes:
    """The shortest key above the one and not above the other."""
    return above[: common(below, above) + 1]
