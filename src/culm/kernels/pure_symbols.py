"""Coded symbols of sets, the specification of `culm.kernels._symbols`.

Two sides make the same row of symbols, each of its own set.  Where one is subtracted from the
other, common items vanish, whatever they are; from about 1.35 symbols for each difference on, the
rest can be told apart.  The row has no end, so the number of symbols need not be known beforehand.

**Mixing.**  ``mix(x)`` is, modulo 2**64: five times by turns ``x ^ x >> 32`` and ``x * M``, with
M = 0xD6E8FEB86659FD93, beginning and ending with the first.

**Words.**  An item is known by its short, 64 bits of its state.  With a `salt` of 64 bits its
**id** is ``mix(short + salt) >> 20``, of 44 bits.  The **seed** of an id is ``mix(id + salt)``, and
its **word** ``id << 20`` with the low 20 bits of the seed, by which a word that is one id's alone
is known.

**Places.**  An id is in symbol 0.  Its next symbol after i is given by a generator,
``s = s * 0xD1342543DE82EF95 + 1`` modulo 2**64, that begins with the seed: by the high 12 bits r
of the new s it is ``i + 1 + ((2 * i + 3) * STEPS[r] >> 17)``, where STEPS[r] is
``isqrt(2**45 // (2 * r + 1)) - 2**16``.  So the share of ids that are in symbol i is about
``2 / (i + 2)``.

A **symbol** is how many ids are in it, and the exclusive or of their words.

**Encoded**, a symbol is a number, then its words in 8 bytes, big-endian.  The number is the
difference of its count to ``n * 2 // (i + 2)``, where n is the count of symbol 0, and of that one
to 0.  It is written as in `culm.kernels.pure_exchange`.

Source: Yang, Gilad and Alizadeh, "Practical Rateless Set Reconciliation" (2024), section 4; the
places come from a table instead of a square root, which is faster and the same everywhere.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from math import isqrt

from culm.kernels.pure_rounds import Fault, Faulty, Reader, put_difference

__all__ = ["SYMBOLS_MAX", "Difference", "Ids", "Symbols"]

#: More symbols than that are not made.
SYMBOLS_MAX = 1 << 24

_WORD_MASK = 2**64 - 1
_MULTIPLIER = 0xD6E8FEB86659FD93
_GENERATOR = 0xD1342543DE82EF95
_CHECK_BITS = 20
_CHECK_MASK = 2**_CHECK_BITS - 1
_ID_MAX = 2**44 - 1

# How much further away the next place is, in 65536ths of i + 3 / 2: to be more than k times that
# has a chance of one in (k + 1)**2.
STEPS = tuple(isqrt(2**45 // (2 * part + 1)) - 65536 for part in range(4096))


def mix(number: int) -> int:
    """64 bits, each of which depends on all of the number's."""
    number = (number ^ number >> 32) * _MULTIPLIER & _WORD_MASK
    number = (number ^ number >> 32) * _MULTIPLIER & _WORD_MASK
    return number ^ number >> 32


def _ids_of(shorts: bytes, salt: int) -> Iterator[int]:
    if len(shorts) % 8:
        raise ValueError("shorts have 8 bytes each")
    for at in range(0, len(shorts), 8):
        short = int.from_bytes(shorts[at : at + 8], "little")
        yield mix(short + salt & _WORD_MASK) >> _CHECK_BITS


def _check_salt(salt: int) -> int:
    if not 0 <= salt <= _WORD_MASK:
        raise OverflowError("a salt has 64 bits")
    return salt


class Row:
    """Symbols, each a count and the exclusive or of words."""

    def __init__(self, salt: int, size: int = 0) -> None:
        self.salt = _check_salt(salt)
        self.counts = [0] * size
        self.words = [0] * size

    def seed(self, identifier: int) -> int:
        """Where the generator of an id begins."""
        return mix(identifier + self.salt & _WORD_MASK)

    def change(self, identifier: int, by: int, start: int = 0) -> list[int]:
        """Put an id in, or take it out, from symbol `start` on; which ones it is in."""
        state = self.seed(identifier)
        word = identifier << _CHECK_BITS | state & _CHECK_MASK
        place = 0
        places: list[int] = []
        while place < len(self.words):
            if place >= start:
                self.counts[place] += by
                self.words[place] ^= word
                places.append(place)
            state = (state * _GENERATOR + 1) & _WORD_MASK
            place += 1 + ((2 * place + 3) * STEPS[state >> 52] >> 17)
        return places


class Symbols:
    """The first `size` symbols of a set, at most `SYMBOLS_MAX`, which is empty in the beginning."""

    def __init__(self, salt: int, size: int) -> None:
        if not 1 <= size <= SYMBOLS_MAX:
            raise ValueError(f"1 to {SYMBOLS_MAX} symbols")
        self._row = Row(salt, size)

    @property
    def size(self) -> int:
        """The number of symbols."""
        return len(self._row.words)

    def add(self, shorts: bytes) -> None:
        """More items, by their shorts: 8 bytes each, little-endian."""
        for identifier in _ids_of(shorts, self._row.salt):
            self._row.change(identifier, 1)

    def encode(self, start: int, stop: int) -> bytes:
        """The symbols from `start` to `stop`."""
        if not 0 <= start <= stop <= self.size:
            raise ValueError("no such symbols")
        counts, words = self._row.counts, self._row.words
        encoded = bytearray()
        for at in range(start, stop):
            put_difference(encoded, counts[at] - _usual(counts[0], at))
            encoded += words[at].to_bytes(8, "big")
        return bytes(encoded)

    def cell(self, at: int) -> tuple[int, int]:
        """The count and the words of a symbol."""
        return self._row.counts[at], self._row.words[at]


class Difference:
    """The difference between both sides' items, read from the other side's symbols."""

    def __init__(self, salt: int) -> None:
        self._row = Row(salt)
        self._total = 0
        self._ready = 0
        self._found: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        """The number of symbols received."""
        return len(self._row.words)

    @property
    def total(self) -> int:
        """The number of items that the other side claims; 0 before its first symbol."""
        return self._total

    def hear(self, data: bytes) -> int:
        """Take the other side's next symbols; 0, or a `culm.kernels.pure_rounds.Fault`.

        With a fault, nothing of the data has been taken.  A symbol has no more ids than there
        are items.
        """
        reader, total = Reader(data), self._total
        symbols: list[tuple[int, int]] = []
        try:
            while reader:
                place = self.size + len(symbols)
                count = reader.count(_usual(total, place))
                total = total if place else count
                if count > total or place >= SYMBOLS_MAX:
                    return Fault.NUMBER
                symbols.append((count, int.from_bytes(reader.take(8), "big")))
        except Faulty as faulty:
            return faulty.fault
        self._total = total
        for count, words in symbols:
            self._row.counts.append(count)
            self._row.words.append(words)
        return 0

    def peel(self, symbols: Symbols) -> bool:
        """Take our own symbols from theirs, and find the rest; returns whether all was found.

        `symbols` are no fewer than have been heard.  Pure ones are looked for in a queue, in
        which a symbol stands once: first those that are new, then those that have changed.
        """
        row = self._row
        if symbols.size < self.size:
            raise ValueError("fewer symbols than the other side's")
        for at in range(self._ready, self.size):
            count, word = symbols.cell(at)
            row.counts[at] -= count
            row.words[at] ^= word
        for identifier, side in self._found:
            row.change(identifier, -side, self._ready)
        self._follow(deque(range(self._ready, self.size)))
        self._ready = self.size
        return not any(row.counts) and not any(row.words)

    def _follow(self, queue: deque[int]) -> None:
        row, waiting = self._row, set(queue)
        # With forged symbols the same id could come and go forever.
        while queue and len(self._found) < self.size:
            at = queue.popleft()
            waiting.remove(at)
            if not self._is_pure(at):
                continue
            side, identifier = row.counts[at], row.words[at] >> _CHECK_BITS
            self._found.append((identifier, side))
            for changed in row.change(identifier, -side):
                if changed not in waiting:
                    waiting.add(changed)
                    queue.append(changed)

    def _is_pure(self, at: int) -> bool:
        row = self._row
        identifier = row.words[at] >> _CHECK_BITS
        if row.counts[at] not in (1, -1):
            return False
        state, place = row.seed(identifier), 0
        if (row.words[at] ^ state) & _CHECK_MASK:
            return False
        while place < at:
            state = (state * _GENERATOR + 1) & _WORD_MASK
            place += 1 + ((2 * place + 3) * STEPS[state >> 52] >> 17)
        return place == at

    @property
    def found(self) -> int:
        """The number of ids found."""
        return len(self._found)

    @property
    def theirs(self) -> list[int]:
        """The ids that have been found of items that the other side has and we have not."""
        return sorted(identifier for identifier, side in self._found if side > 0)

    @property
    def ours(self) -> list[int]:
        """The ids that have been found of items that we have and the other side has not."""
        return sorted(identifier for identifier, side in self._found if side < 0)

    def counts(self, stop: int) -> list[int]:
        """The counts of items not found yet, theirs less ours, in the symbols before `stop`."""
        return self._row.counts[: min(stop, self._ready)]


class Ids:
    """Some ids, and which items have one of them."""

    def __init__(self, salt: int, ids: Iterable[int]) -> None:
        self._salt = _check_salt(salt)
        self._ids = set(array("Q", ids))
        if any(each > _ID_MAX for each in self._ids):
            raise OverflowError("an id has 44 bits")

    def places(self, shorts: bytes) -> list[int]:
        """Which of the items are among them, by their shorts: 8 bytes each, little-endian."""
        found = enumerate(_ids_of(shorts, self._salt))
        return [place for place, identifier in found if identifier in self._ids]


def _usual(total: int, at: int) -> int:
    """The expected number of ids in a symbol; 0 for the first, which holds the count."""
    return total * 2 // (at + 2) if at else 0
