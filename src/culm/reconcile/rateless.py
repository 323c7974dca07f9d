"""A rateless run: one side sends coded symbols until the other one can find the differences.

The initiator sends symbols.  The other side subtracts its own, and either asks for more, or has
found the ids of all items that only one side has: then it sends the items that the initiator lacks,
asks by id for those that it lacks itself, and gets them.

**Rounds** are made of pieces as in `culm.reconcile.run`.  A piece is its kind, a byte, and

| Kind | | Content |
| --- | --- | --- |
| 1 | symbols | the next symbols, encoded as in `culm.kernels.pure_symbols` |
| 2 | more | a number: the symbols asked for, including those already sent |
| 3 | wants | ids of 6 bytes, big-endian, ascending in the round: their items are wanted |
| 4 | items | items, ascending in the round |

An **item** is the number of bytes that it has in common with the beginning of the one before it in
the piece; for items of varying size, the number of bytes that follow; and these bytes.  Numbers are
canonical VarU64.

A round of the initiator consists of symbols, at most 4,096 in its first round and then as many as
were asked for, or of items.  A round of the other side is either one piece that asks for more
symbols, at least a sixteenth more than were sent, or wants and then items, with at least one piece
of items.

Instead of sending a round, either side may end the run by beginning one of ranges, if the symbols
needed are more than it allows, or more than are worthwhile.

Source: Yang, Gilad and Alizadeh, "Practical Rateless Set Reconciliation" (2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from math import ceil, sqrt
from typing import Final

from culm.kernels import symbols as _symbols
from culm.machine import RemoteProtocolError
from culm.reconcile.errors import ErrorCode
from culm.reconcile.frames import Hello
from culm.reconcile.limits import RANGES_MIN, Limits
from culm.reconcile.run import CompactParameters
from culm.reconcile.states import CompactState, Continuation
from culm.reconcile.tree import View
from culm.wire import varu64
from culm.wire.errors import DecodeError

_PIECE_SIZE = 24 * 1024
_SYMBOLS_IN_PIECE = 2048
_SHORTS = 1 << 14
_ROW_MIN = 4096  # a longer row costs hardly more: the first symbols have most of the items
_ID_SIZE = 6
_ID_BITS = 44
_FIRST_MAX = RANGES_MIN
_WORTHWHILE_MIN = 256
_IDS_IN_PIECE = 4096
_SAMPLE = 1024
_SYMBOLS_PER_ID = 1.36
_FIRST_ASKED = 16

#: The kernel's faults, by number.
_FAULTS = {
    1: (ErrorCode.BAD_FRAME, "symbols that are cut"),
    3: (ErrorCode.BAD_NUMBER, "a count that cannot be"),
}


class _PieceKind(IntEnum):
    """The kinds of pieces."""

    SYMBOLS = 1
    MORE = 2
    WANTS = 3
    ITEMS = 4


#: The kinds that may follow a piece of each kind in a round of the other side.
_FOLLOWING: Final[dict[_PieceKind, frozenset[_PieceKind]]] = {
    _PieceKind.SYMBOLS: frozenset({_PieceKind.SYMBOLS}),
    _PieceKind.MORE: frozenset(),
    _PieceKind.WANTS: frozenset({_PieceKind.WANTS, _PieceKind.ITEMS}),
    _PieceKind.ITEMS: frozenset({_PieceKind.ITEMS}),
}

_ANSWERS: Final = frozenset({_PieceKind.MORE, _PieceKind.WANTS, _PieceKind.ITEMS})


def symbols_worthwhile(first: int, second: int) -> int:
    """The number of symbols that are worthwhile between two sets of these sizes.

    With more, about a tenth of both sets differs, and a run of ranges would need fewer bytes, since
    its ids are shorter.
    """
    return max(_WORTHWHILE_MIN, (first + second) // 8)


class RatelessRun:
    """The common part of both sides of a rateless run: our items, and the round being sent."""

    listening = CompactState.TRYING

    def __init__(self, *, view: View, hello: Hello, limits: Limits, is_welcome: bool) -> None:
        self.hello, self.is_welcome = hello, is_welcome
        self._view, self._limits = view, limits
        self._exchange = view.exchange(
            hello.sum_size, hello.id_salt, ranges_max=limits.ranges_max, key=hello.key
        )
        self._row: _symbols.Symbols | None = None
        self._expected: frozenset[_PieceKind] = frozenset()
        self._last_item: bytes | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._piece: bytes | None = None

    def welcome(self, ranges_max: int) -> None:
        """Note that the other side takes part."""
        self.is_welcome = True

    # Our rounds.

    def _answer(self, pieces: Iterator[bytes]) -> Continuation:
        self._pieces = pieces
        self._piece = next(pieces)
        return Continuation.OURS

    @property
    def is_said(self) -> bool:
        """Whether our round has been sent completely."""
        return self._piece is None

    def say(self) -> bytes:
        """The next piece of our round."""
        piece = self._piece
        assert piece is not None
        self._piece = next(self._pieces, None)
        return piece

    def turn_to_listen(self) -> bool:
        """End our round; returns whether the peer has anything to answer."""
        self._last_item = None
        self._expected = self._asked()
        return bool(self._expected)

    def _asked(self) -> frozenset[_PieceKind]:
        """The kinds of pieces that the other side's answer may begin with."""
        raise NotImplementedError

    @property
    def check(self) -> bytes:
        """The check of the union, which the other side has to match."""
        return self.hello.check_of(*self._exchange.union)

    @property
    def is_equal(self) -> bool:
        """Whether the other side's symbols have shown us nothing that differs."""
        return False

    def _symbols(self, count: int) -> _symbols.Symbols:
        """Our first symbols, at least this many."""
        if self._row is None or self._row.size < count:
            size = max(_ROW_MIN, 1 << (count - 1).bit_length())
            self._row = _symbols.Symbols(self.hello.id_salt, size)
            for _, shorts in self._shorts():
                self._row.add(shorts)
        return self._row

    def _shorts(self) -> Iterator[tuple[int, bytes]]:
        """The shorts of all our items, in batches with the rank of the first."""
        size = len(self._view)
        for start in range(0, size, _SHORTS):
            yield start, self._exchange.shorts(start, min(_SHORTS, size - start))

    def _items_of(self, ids: Sequence[int]) -> Iterator[bytes]:
        """Pieces with our items of these ids; at least one piece."""
        wanted = _symbols.Ids(self.hello.id_salt, ids)
        last, piece = b"", bytearray([_PieceKind.ITEMS])
        for start, shorts in self._shorts() if ids else ():
            for place in wanted.places(shorts):
                item = self._view.select(start + place)
                shared = _shared(last, item)
                piece += varu64.encode(shared)
                if self._view.varying:
                    piece += varu64.encode(len(item) - shared)
                piece += item[shared:]
                last = item
                if len(piece) >= _PIECE_SIZE:
                    yield bytes(piece)
                    last, piece = b"", bytearray([_PieceKind.ITEMS])
        yield bytes(piece)

    # The other side's rounds.

    def hear(self, piece: bytes) -> list[bytes]:
        """Take a piece of the other side's round; returns the items that we lack.

        Raises `RemoteProtocolError` if the piece is invalid.
        """
        if piece[0] not in self._expected:
            raise RemoteProtocolError(
                ErrorCode.UNEXPECTED_MESSAGE, "nothing of that kind may follow there"
            )
        kind = _PieceKind(piece[0])
        self._expected = _FOLLOWING[kind]
        if kind is _PieceKind.ITEMS:
            return self._hear_items(piece)
        self._hear_other(kind, piece)
        return []

    def _hear_other(self, kind: _PieceKind, piece: bytes) -> None:
        raise NotImplementedError

    def _hear_items(self, piece: bytes) -> list[bytes]:
        new: list[bytes] = []
        for item in self._read_items(piece):
            if self._last_item is not None and item <= self._last_item:
                raise RemoteProtocolError(ErrorCode.BAD_ITEM, "an item that is not above the last")
            self._last_item = item
            # Two items may have the same id, and one of them may be ours.
            if item not in self._view:
                self._take(self._exchange.add(item))
                new.append(item)
        return new

    def _take(self, short: int) -> None:
        """Note that an item with this short is new to us."""

    def _read_items(self, piece: bytes) -> Iterator[bytes]:
        last, at = b"", 1
        while at < len(piece):
            shared, at = _number(piece, at)
            size = self._view.item_size - shared
            if self._view.varying:
                following, at = _number(piece, at)
                size = min(size, following) if following <= size else -1
            if shared > len(last) or not 0 <= size <= len(piece) - at:
                raise RemoteProtocolError(ErrorCode.BAD_ITEM, "an item of a wrong size")
            item = last[:shared] + piece[at : at + size]
            if size and last[shared : shared + 1] == item[shared : shared + 1]:
                raise RemoteProtocolError(ErrorCode.BAD_ITEM, "an item that says too much")
            yield item
            last, at = item, at + size

    def turn_to_speak(self) -> Continuation:
        """End the other side's round.

        Raises `RemoteProtocolError` if it has not answered everything.
        """
        raise NotImplementedError


class _SymbolSender(RatelessRun):
    """The side that sends symbols, and then the items that are wanted."""

    def __init__(self, *, view: View, hello: Hello, limits: Limits, first: int) -> None:
        super().__init__(view=view, hello=hello, limits=limits, is_welcome=False)
        self._sent = self._more = first
        self._wants: list[int] | None = None
        self._answer(self._coded(0, first))

    def _coded(self, start: int, stop: int) -> Iterator[bytes]:
        row = self._symbols(stop)
        for at in range(start, stop, _SYMBOLS_IN_PIECE):
            last = min(at + _SYMBOLS_IN_PIECE, stop)
            yield bytes([_PieceKind.SYMBOLS]) + row.encode(at, last)

    def _asked(self) -> frozenset[_PieceKind]:
        return _ANSWERS if self._wants is None else frozenset()

    def _hear_other(self, kind: _PieceKind, piece: bytes) -> None:
        if kind is _PieceKind.MORE:
            self._more, end = _number(piece, 1)
            if end != len(piece) or self._more < _least_after(self._sent):
                raise RemoteProtocolError(ErrorCode.BAD_NUMBER, "symbols that cannot be asked for")
            return
        wants = self._wants = self._wants or []
        if len(piece) % _ID_SIZE != 1:
            raise RemoteProtocolError(ErrorCode.BAD_FRAME, "an id that is cut")
        for at in range(1, len(piece), _ID_SIZE):
            wanted = int.from_bytes(piece[at : at + _ID_SIZE], "big")
            if wanted >> _ID_BITS or (wants and wanted <= wants[-1]) or len(wants) >= self._sent:
                raise RemoteProtocolError(ErrorCode.BAD_NUMBER, "an id that cannot be wanted")
            wants.append(wanted)

    def turn_to_speak(self) -> Continuation:
        if self._more > self._sent:
            if self._more > self._limits.symbols_max:
                return Continuation.ANOTHER_RUN
            start, self._sent = self._sent, self._more
            return self._answer(self._coded(start, self._sent))
        if self._expected != _FOLLOWING[_PieceKind.ITEMS]:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "items have not been sent")
        if self._wants is None:
            return Continuation.OVER
        return self._answer(self._items_of(self._wants))


class _Receiver(RatelessRun):
    """The side that receives symbols, and finds the differences."""

    def __init__(self, *, view: View, hello: Hello, limits: Limits) -> None:
        super().__init__(view=view, hello=hello, limits=limits, is_welcome=True)
        self._difference = _symbols.Difference(hello.id_salt)
        self._least, self._asked_for = 1, _FIRST_MAX
        self._wanted: _symbols.Ids | None = None
        self._expected = frozenset({_PieceKind.SYMBOLS})

    def _asked(self) -> frozenset[_PieceKind]:
        if self._wanted is None:
            return frozenset({_PieceKind.SYMBOLS})
        return frozenset({_PieceKind.ITEMS} if self._difference.theirs else ())

    def _hear_other(self, kind: _PieceKind, piece: bytes) -> None:
        fault = self._difference.hear(piece[1:])
        if fault:
            raise RemoteProtocolError(*_FAULTS[fault])
        if self._difference.size > self._asked_for:
            raise RemoteProtocolError(ErrorCode.BAD_NUMBER, "more symbols than were asked for")

    @property
    def is_equal(self) -> bool:
        return self._wanted is not None and not (self._difference.theirs or self._difference.ours)

    def _take(self, short: int) -> None:
        if self._wanted is not None and not self._wanted.places(short.to_bytes(8, "little")):
            raise RemoteProtocolError(ErrorCode.BAD_ITEM, "an item that was not asked for")

    def turn_to_speak(self) -> Continuation:
        if self._wanted is not None:
            return Continuation.OVER
        heard, total = self._difference.size, self._difference.total
        if heard < self._least:
            raise RemoteProtocolError(ErrorCode.BAD_NUMBER, "fewer symbols than were asked for")
        size, symbols_max = len(self._view), self._limits.symbols_max
        worthwhile = min(symbols_max, symbols_worthwhile(size, total))
        # The difference of the sizes is the least number of items that differ.
        if heard > symbols_max or abs(total - size) > worthwhile:
            return Continuation.ANOTHER_RUN
        row = self._symbols(heard)
        if self._difference.peel(row):
            return self._answer(self._found())
        wanted = max(_least_after(heard), _symbols_needed(self._difference, row))
        if wanted > worthwhile:
            return Continuation.ANOTHER_RUN
        self._least = self._asked_for = wanted
        return self._answer(iter([bytes([_PieceKind.MORE]) + varu64.encode(wanted)]))

    def _found(self) -> Iterator[bytes]:
        theirs = self._difference.theirs
        self._wanted = _symbols.Ids(self.hello.id_salt, theirs)
        for start in range(0, len(theirs), _IDS_IN_PIECE):
            some = theirs[start : start + _IDS_IN_PIECE]
            ids = b"".join(each.to_bytes(_ID_SIZE, "big") for each in some)
            yield bytes([_PieceKind.WANTS]) + ids
        yield from self._items_of(self._difference.ours)


def rateless_run(
    *, view: View, hello: Hello, begins: bool, parameters: CompactParameters, limits: Limits
) -> RatelessRun:
    """One side of a rateless run with the parameters of `hello`.

    `view` must not change.
    """
    if begins:
        return _SymbolSender(view=view, hello=hello, limits=limits, first=parameters.first_symbols)
    return _Receiver(view=view, hello=hello, limits=limits)


def _symbols_needed(difference: _symbols.Difference, ours: _symbols.Symbols) -> int:
    """The number of symbols that will most likely suffice.

    If d ids differ, and one side has c more than the other, the difference of the counts of a
    symbol has a mean of ``c * p`` and a variance of ``d * p * (1 - p)``, where p is its share of
    all ids, estimated by that of ours.
    """
    total, *counts = difference.counts(_SAMPLE)
    size, _ = ours.cell(0)
    seen = squares = 0
    for at, count in enumerate(counts, 1):
        among, _ = ours.cell(at)
        if 0 < among < size:
            seen += 1
            squares += (count * size - total * among) ** 2 // (among * (size - among))
    differences = difference.found + max(abs(total), squares // max(1, seen))
    # The error to expect of an estimate from n symbols.
    margin = 1 + sqrt(2 / (seen + 1))
    return _FIRST_ASKED + ceil(_SYMBOLS_PER_ID * margin * differences + 2 * sqrt(differences))


def _least_after(sent: int) -> int:
    """The least number of symbols to ask for, so that the session ends."""
    return sent + sent // 16 + 1


def _number(piece: bytes, at: int) -> tuple[int, int]:
    try:
        return varu64.decode(piece, at, canonical=True)
    except DecodeError as error:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, str(error)) from None


def _shared(first: bytes, second: bytes) -> int:
    """The length of the common prefix."""
    at = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        at += 1
    return at
