"""Ranges, cursors and sets of numbers, against twins that list everything."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from p2p_support import KEY
from range_twin import HORIZON, METADATA, PAYLOAD, index_after, lipmaa, path, pieces, top

from culm.bamboo.links import SEQNUM_MAX, lower_pool
from culm.intervals import Intervals
from culm.point2point import Part, Piece, Proposal
from culm.point2point.pieces import Cursor, PieceRange
from culm.testing.suite.meter import Meter
from culm.wire.multihash import YAMF

HASH = YAMF.hash(b"")


@st.composite
def proposals(draw: st.DrawFn, *, finite: bool | None = None) -> Proposal:
    start = draw(st.integers(1, 40))
    offset = draw(st.none() | st.integers(0, 9))
    lower = None if offset is not None else draw(st.sampled_from(sorted(path(start, 1))))
    sparse = draw(st.booleans())
    end = upper = None
    if sparse or (finite if finite is not None else draw(st.booleans())):
        end = draw(st.integers(start, 45))
        upper = draw(st.integers(end, 60))
    return Proposal(
        log=KEY,
        start=start,
        lower_certpool=lower,
        expected_hash=None if lower == 1 else HASH,
        end=end,
        upper_certpool=upper,
        start_offset=offset,
        payload_only=draw(st.booleans()),
        sparse=sparse,
    )


@st.composite
def ranges(draw: st.DrawFn) -> PieceRange:
    """As proposed, or adjusted."""
    proposal = draw(proposals())
    range_ = PieceRange(proposal)
    for _ in range(draw(st.integers(0, 2))):
        end = draw(st.none() | st.integers(proposal.start, 45))
        upper = draw(st.none() | st.integers(end or 45, 60)) if end or proposal.end else None
        range_ = tightened(range_, end, upper)
    return range_


def tightened(range_: PieceRange, end: int | None, upper_certpool: int | None) -> PieceRange:
    return PieceRange(range_.proposal, range_.bounds.tightened(end, upper_certpool))


def listed(range_: PieceRange) -> list[tuple[int, int]]:
    return pieces(range_.proposal, range_.end, range_.upper_certpool)


def places(range_: PieceRange) -> st.SearchStrategy[int]:
    return st.integers(0, len(listed(range_)) - 1)


@given(ranges())
def test_pieces_are_those_of_the_list(range_: PieceRange) -> None:
    twin = listed(range_)
    assert [range_.piece(index) for index in range(len(twin))] == twin
    if range_.end is not None:
        assert range_.count == len(twin)
        assert range_.piece(len(twin)) is None
        assert range_.piece(len(twin) + 7) is None


@given(ranges(), st.tuples(st.integers(1, HORIZON), st.sampled_from([METADATA, PAYLOAD])))
def test_index_after_counts_the_pieces_up_to_any_place(
    range_: PieceRange, place: tuple[int, int]
) -> None:
    piece = Piece(place[0], Part(place[1]))
    assert range_.index_after(piece) == index_after(listed(range_), place)


@given(ranges(), st.none() | st.integers(1, 60), st.none() | st.integers(1, 80))
def test_tightening_takes_the_smaller_numbers(
    range_: PieceRange, end: int | None, upper: int | None
) -> None:
    assume(end is None or end >= range_.proposal.start)
    new = tightened(range_, end, upper)
    assert new.end == min((n for n in (range_.end, end) if n is not None), default=None)
    uppers = (range_.upper_certpool, upper)
    assert new.upper_certpool == min((n for n in uppers if n is not None), default=None)
    assert new.bounds.is_within(range_.bounds)
    assert (new == range_) == range_.bounds.is_within(new.bounds)
    assert tightened(new, end, upper) == new
    assert hash(tightened(range_, None, None)) == hash(range_)
    assert PieceRange(range_.proposal, new.bounds) == new


@given(st.data())
def test_a_cursor_keeps_its_place_in_a_smaller_range(data: st.DataObject) -> None:
    range_ = data.draw(ranges())
    index = data.draw(places(range_))
    end = data.draw(st.integers(range_.proposal.start, 45))
    cursor = Cursor(range_, index)
    if cursor.piece is not None and cursor.piece.part is Part.PAYLOAD:
        cursor.offset += data.draw(st.integers(0, 5))
    moved = cursor.retargeted(tightened(range_, end, None))
    twin = listed(moved.range)
    last = listed(range_)[index - 1] if index else None
    assert moved.index == index_after(twin, last)
    assert moved.piece == (twin[moved.index] if moved.index < len(twin) else None)
    starts_here = moved.piece == (range_.proposal.start, PAYLOAD)
    start = (range_.proposal.start_offset or 0) if starts_here else 0
    assert moved.offset == (cursor.offset if moved.piece == cursor.piece else start)


@given(st.data())
def test_behind_is_what_the_other_has_passed(data: st.DataObject) -> None:
    range_ = data.draw(ranges())
    other_range = tightened(range_, data.draw(st.integers(range_.proposal.start, 45)), None)
    index = data.draw(places(range_))
    ahead = data.draw(places(other_range))
    last = listed(other_range)[ahead - 1] if ahead else None
    assume(last is None or last[0] <= HORIZON)  # a range without end goes on beyond it
    passed = index_after(listed(range_), last)
    assert Cursor(range_, index).is_behind(Cursor(other_range, ahead)) == max(0, passed - index)


@given(st.data())
def test_places_are_in_order_whatever_the_range(data: st.DataObject) -> None:
    range_ = data.draw(ranges())
    index = data.draw(places(range_))
    cursor = Cursor(range_, index)
    before = cursor.place
    assert before == ((*listed(range_)[index - 1], 1 << 64) if index else (0, 0, 0))
    if cursor.piece is not None and cursor.piece.part is Part.PAYLOAD:
        inside = cursor.copy()
        inside.offset += 1
        assert before < inside.place < Cursor(range_, index + 1).place
        assert cursor.place == before


@given(ranges())
def test_a_range_begins_at_its_offset_and_nowhere_else(range_: PieceRange) -> None:
    for index, piece in enumerate(listed(range_)[:20]):
        starts_here = piece == (range_.proposal.start, PAYLOAD)
        expected = range_.proposal.start_offset or 0
        assert Cursor(range_, index).offset == (expected if starts_here else 0)


def huge(**options: object) -> PieceRange:
    defaults: dict[str, object] = {"log": KEY, "expected_hash": HASH, "end": None}
    proposal = Proposal(**{**defaults, **options})  # type: ignore[arg-type]
    return PieceRange(proposal)


def test_a_log_ends_at_the_greatest_number() -> None:
    range_ = huge(start=SEQNUM_MAX - 1, lower_certpool=SEQNUM_MAX - 1)
    assert range_.count == 4
    assert [range_.piece(index) for index in (0, 3, 4)] == [
        (SEQNUM_MAX - 1, METADATA),
        (SEQNUM_MAX, PAYLOAD),
        None,
    ]
    assert huge(start=1, lower_certpool=1, expected_hash=None).count == 2 * SEQNUM_MAX


@pytest.mark.parametrize("sparse", [False, True])
def test_the_greatest_numbers_cost_no_more_than_small_ones(sparse: bool) -> None:
    def look() -> None:
        for n in (2**63, SEQNUM_MAX - 1, SEQNUM_MAX):
            pool = lower_pool(n)
            range_ = huge(
                start=n, lower_certpool=pool[1], end=n, upper_certpool=SEQNUM_MAX, sparse=sparse
            )
            assert range_.count is not None
            found = [range_.piece(index) for index in range(range_.count)]
            assert found[: len(pool) - 2] == [(m, METADATA) for m in pool[1:-1]]
            assert (n, PAYLOAD) in found
            assert found == sorted(piece for piece in found if piece is not None)

    meter = Meter()
    meter.allow(20_000)
    meter.count(look)


def test_half_of_all_pieces_are_passed_at_once() -> None:
    meter = Meter()
    meter.allow(4_000)
    meter.count(pass_half_of_all)


def pass_half_of_all() -> None:
    range_ = huge(start=1, lower_certpool=1, expected_hash=None)
    cursor = Cursor(range_)
    cursor.move(2**63)
    assert cursor.piece == (2**62 + 1, METADATA)
    tight = cursor.retargeted(tightened(range_, 2**62 + 5, None))
    assert tight.piece == cursor.piece
    assert Cursor(range_).is_behind(tight) == 2**63
    sparse = huge(
        start=1,
        lower_certpool=1,
        expected_hash=None,
        end=2**64 - 1,
        upper_certpool=2**64 - 1,
        sparse=True,
    )
    assert 40 < sparse.count < 400


@given(ranges(), st.integers(0, 2 * HORIZON))
def test_whole_entries_are_metadata_and_payload_in_a_row(range_: PieceRange, index: int) -> None:
    count = 0
    following = [range_.piece(index + n) for n in range(2 * HORIZON)]
    while count < HORIZON:
        two = following[2 * count : 2 * count + 2]
        first = following[0]
        if first is None or two != [
            (first.seqnum + count, METADATA),
            (first.seqnum + count, PAYLOAD),
        ]:
            break
        count += 1
    found = range_.entries_from(index)
    if range_.proposal.sparse:  # entries may follow each other there, but need not
        assert found == 0
    else:
        assert min(found, HORIZON) == count


def test_whole_entries_are_counted_up_to_the_last_one_that_a_log_can_have() -> None:
    range_ = huge(start=SEQNUM_MAX - 5, lower_certpool=SEQNUM_MAX - 5)
    assert [range_.entries_from(index) for index in (0, 1, 2, 10, 12)] == [6, 0, 5, 1, 0]
    assert huge(start=1, lower_certpool=1, expected_hash=None).entries_from(0) == SEQNUM_MAX


_set_steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "discard", "last", "run", "join"]),
        st.integers(0, 30),
        st.integers(0, 9),
    )
)


@given(_set_steps)
def test_intervals_are_a_set(steps: list[tuple[str, int, int]]) -> None:
    intervals, twin = Intervals(), set[int]()
    for step, number, more in steps:
        if step == "run":
            intervals.add_run(number, number + more)
            twin |= set(range(number, number + more + 1))
        elif step == "add":
            intervals.add(number)
            twin.add(number)
        elif step == "discard":
            intervals.discard(number)
            twin.discard(number)
        elif step == "join":
            intervals.join_lowest(1 + number % 5)
            starts = sorted(n for n in twin if n - 1 not in twin)
            if len(starts) > 1 + number % 5:
                twin |= set(range(starts[0], starts[-1 - number % 5]))
        else:
            intervals.keep_last(number % 5)
            starts = sorted(n for n in twin if n - 1 not in twin)
            keep = number % 5
            lowest = starts[-keep] if 0 < keep <= len(starts) else (0 if keep else 99)
            twin = {n for n in twin if n >= lowest}
        assert [n for n in range(-1, 43) if n in intervals] == sorted(twin)
        assert len(intervals) == len([n for n in twin if n - 1 not in twin])


def test_the_twin_knows_the_published_numbers() -> None:
    """The first targets of lipmaalinks."""
    known = [1, 2, 1, 4, 5, 6, 4, 8, 9, 10, 8, 4]
    assert [lipmaa(n) for n in range(2, 14)] == known
    assert sorted(path(13, 1)) == [1, 4, 13]
    assert top(14) == 40
