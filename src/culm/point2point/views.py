"""Where the sender of a track may be: one cursor for each range that may be in force."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.pieces import Cursor, Part, Piece, Range

__all__ = ["Views"]


class Views:
    """Cursors, the oldest possibility first.  There is always one, and hardly ever another."""

    __slots__ = ("_cursors",)

    def __init__(self, range_: Range) -> None:
        self._cursors = [Cursor(range_)]

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._cursors)

    def __len__(self) -> int:
        return len(self._cursors)

    @property
    def first(self) -> Cursor:
        """The cursor under the oldest possibility."""
        return self._cursors[0]

    def retarget(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for the sender from now on."""
        self._cursors = [_retargeted(self._cursors[0], end, upper_certpool)]

    def may_be_retargeted(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for the sender now or later."""
        known = self._cursors
        new = (_retargeted(cursor, end, upper_certpool) for cursor in known)
        self._cursors = known + [c for c in dict.fromkeys(new) if c not in known]

    def narrow(self, check: Callable[[Cursor], None]) -> None:
        """Keep the cursors that pass `check`; raise its first `Violation` if none does."""
        if len(self._cursors) == 1:
            check(self._cursors[0])
            return
        kept: list[Cursor] = []
        violation: Violation | None = None
        for cursor in self._cursors:
            try:
                check(cursor)
            except Violation as error:
                violation = violation or error
            else:
                kept.append(cursor)
        if not kept:
            assert violation is not None
            raise violation
        self._cursors = kept

    def check_part(self, part: Part) -> None:
        """That part of an entry may be due."""
        self.narrow(lambda cursor: _check_part(cursor, part))

    def keep(self, seqnum: int) -> None:
        """The piece that is due turned out to be of that entry."""
        if len(self._cursors) > 1:
            self._cursors = [c for c in self._cursors if c.piece and c.piece.seqnum == seqnum]

    def advance(self, count: int) -> None:
        """Pass `count` pieces."""
        for cursor in self._cursors:
            cursor.move(cursor.index + count)

    def advance_inside(self, size: int) -> None:
        """Pass `size` bytes of the payload that is due."""
        for cursor in self._cursors:
            cursor.offset += size

    def go_back_to(self, piece: Piece) -> None:
        """Return to the beginning of the piece that is due, or of the one before."""
        for cursor in self._cursors:
            cursor.move(cursor.index if cursor.piece == piece else cursor.index - 1)


def _retargeted(cursor: Cursor, end: int | None, upper_certpool: int | None) -> Cursor:
    return cursor.retargeted(cursor.range.tightened(end, upper_certpool))


def _check_part(cursor: Cursor, part: Part) -> None:
    if cursor.piece is None:
        raise Violation(ErrorCode.PAST_END)
    if cursor.piece.part is not part:
        raise Violation(
            ErrorCode.PIECE_OUT_OF_TURN,
            f"{part.name.lower()} although {cursor.piece.part.name.lower()} "
            f"of entry {cursor.piece.seqnum} is due",
        )
