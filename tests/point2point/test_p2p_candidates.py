"""The possible places of a sender: each is kept once."""

from __future__ import annotations

from p2p_support import KEY

from culm.point2point import Part, Piece, Proposal
from culm.point2point.messages import Demand
from culm.point2point.pieces import Candidates, Cursor, PieceRange


def test_an_apology_leads_to_each_place_once() -> None:
    """After unreadable metadata, and then its apology, the places are as before.

    With the largest range, it was entry 9's; with the smaller one, entry 12's, since that comes
    next in the certificate pool.  A sender that has passed 9 may go over to the smaller range at
    that point, too.
    """
    range_ = PieceRange(
        Proposal(log=KEY, start=1, lower_certpool=1, expected_hash=None, end=9, upper_certpool=40)
    )
    candidates = Candidates(range_, Demand())
    candidates.may_be_retargeted(5, None, by_sender=True)
    for seqnum in range(1, 9):
        for part in Part:
            assert candidates.possible.piece == Piece(seqnum, part)
            candidates.keep_piece(Piece(seqnum, part))
            candidates.advance(1)
    before = places(candidates)
    assert [cursor.piece for cursor in candidates] == [
        Piece(9, Part.METADATA),
        Piece(12, Part.METADATA),
    ]
    possible = candidates.allowing(metadata_is_due)
    candidates.keep(possible)
    candidates.advance(1)
    assert len(candidates.possible.cursors) == 3
    candidates.go_back_to((Piece(9, Part.METADATA), Piece(12, Part.METADATA)))
    assert places(candidates) == before


def metadata_is_due(cursor: Cursor, demand: Demand) -> None:
    cursor.check_due(Part.METADATA)


def places(candidates: Candidates) -> list[tuple[int | None, int, int]]:
    return [(each.range.bounds.end, each.index, each.offset) for each in candidates]


def test_places_part_only_where_the_next_piece_differs() -> None:
    """Of ranges to entry 9 and to entry 5, the first ten pieces are the same."""
    range_ = PieceRange(Proposal(log=KEY, start=1, lower_certpool=1, expected_hash=None, end=9))
    candidates = Candidates(range_, Demand())
    candidates.may_be_retargeted(5, None, by_sender=True)
    candidates.advance(9)
    candidates.retarget(8, None)
    assert places(candidates) == [(8, 9, 0)]
    candidates.advance(1)
    candidates.retarget(7, None)
    assert places(candidates) == [(7, 10, 0), (5, 10, 0)]
