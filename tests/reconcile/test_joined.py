"""Joined sets give the answers of one tree with all their items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.reconcile import MONOIDS, Fingerprint, Frozen, Tree, View, join
from culm.reconcile.joined import Joined

ITEM_SIZE = 3

Sets = list[set[bytes]]


@st.composite
def disjoint(draw: st.DrawFn) -> Sets:
    """Up to five sets without a common item; items of one set may be close together."""
    size = st.integers(1, ITEM_SIZE)
    letters = st.sampled_from(b"\0\1ab\xff")
    item = size.flatmap(lambda size: st.lists(letters, min_size=size, max_size=size).map(bytes))
    owners = draw(st.dictionaries(item, st.integers(0, 4), max_size=60))
    return [{each for each, owner in owners.items() if owner == number} for number in range(5)]


def tree_of(items: set[bytes], monoid: str = "xxh3-sum") -> Tree:
    tree = Tree(item_size=ITEM_SIZE, varying=True, monoid=monoid)
    tree.load_items(sorted(items))
    return tree


def both(sets: Sets, monoid: str = "xxh3-sum") -> tuple[Joined, Tree]:
    return Joined([tree_of(each, monoid) for each in sets]), tree_of(set().union(*sets), monoid)


@pytest.mark.parametrize("monoid", MONOIDS)
@given(sets=disjoint(), bounds=st.lists(st.binary(max_size=4), min_size=2, max_size=2))
def test_keys_are_asked_of_all_parts(monoid: str, sets: Sets, bounds: list[bytes]):
    joined, tree = both(sets, monoid)
    start, stop = bounds
    assert len(joined) == len(tree)
    assert joined.rank(start) == tree.rank(start)
    assert joined.range(start, stop) == tree.range(start, stop)
    assert joined.fingerprint(start, stop) == tree.fingerprint(start, stop)
    assert list(joined.batches(start, stop, count_max=7)) == list(
        tree.batches(start, stop, count_max=7)
    )
    for item in (b"a", b"ab", b"\0\0", b"abc"):
        assert (item in joined) == (item in tree)


@pytest.mark.parametrize("monoid", MONOIDS)
@given(sets=disjoint(), data=st.data())
def test_ranks_are_found_in_all_parts(monoid: str, sets: Sets, data: st.DataObject):
    joined, tree = both(sets, monoid)
    size = len(tree)
    for _ in range(3):
        start, count = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
        assert joined.read(start, count) == tree.read(start, count)
        assert joined.fingerprint_at(start, count) == tree.fingerprint_at(start, count)
        assert joined.shorts(start, count) == tree.shorts(start, count)
    assert [joined.select(rank) for rank in range(size)] == tree.read(0, size)


@given(sets=disjoint(), data=st.data())
def test_items_are_named_by_their_digests(sets: Sets, data: st.DataObject):
    joined, tree = both(sets)
    items = tree.read(0, len(tree))
    if len(items) < 2:
        return
    monoid = tree.monoid
    one, other = data.draw(st.lists(st.sampled_from(items), min_size=2, max_size=2, unique=True))
    digest = monoid.digest(monoid.lift(one))
    pair = monoid.digest(monoid.combine(monoid.lift(one), monoid.lift(other)))
    start, count = data.draw(st.sampled_from(range(len(items)))), len(items)
    assert joined.find(start, count, digest) == one
    assert joined.find(start, count, bytes(16)) is None
    assert joined.find_pair(start, count, pair) == tree.find_pair(start, count, pair)
    assert set(joined.find_pair(start, count, pair) or ()) == {one, other}
    count = data.draw(st.integers(0, count))
    assert joined.find(start, count, digest) == tree.find(start, count, digest)
    assert joined.find_pair(start, count, pair) == tree.find_pair(start, count, pair)


def test_in_a_large_range_two_items_are_found_if_they_are_in_one_part():
    numbers = [number.to_bytes(2, "big") for number in range(6000)]
    joined, tree = both([set(numbers[::2]), set(numbers[1::2])])

    def digest(first: bytes, second: bytes) -> bytes:
        pair: Fingerprint = tree.monoid.combine(tree.monoid.lift(first), tree.monoid.lift(second))
        return tree.monoid.digest(pair)

    assert joined.find_pair(0, 6000, digest(numbers[0], numbers[4])) == (numbers[0], numbers[4])
    assert joined.find_pair(0, 6000, digest(numbers[0], numbers[3])) is None
    assert joined.find_pair(0, 10, digest(numbers[0], numbers[3])) == (numbers[0], numbers[3])


def test_it_is_written_as_the_tree_is():
    joined, tree = both([{b"a", b"c"}, {b"b"}, set()])
    data = b"".join(joined.serialise())
    assert data == b"".join(tree.serialise())
    assert Frozen(data).read(0, 3) == joined.read(0, 3)


def test_a_compact_session_takes_it_as_a_tree():
    joined, tree = both([{b"a", b"c"}, {b"b"}])
    exchanges = [view.exchange(8, 1, ranges_max=9) for view in (joined, tree)]
    assert exchanges[0].union == exchanges[1].union


def test_parts_stay_as_they_were():
    tree = tree_of({b"a"})
    joined = Joined([tree, tree_of({b"b"})])
    tree.insert(b"c")
    assert joined.read(0, 2) == [b"a", b"b"]
    assert joined.still() is joined


def test_one_part_with_items_is_the_whole():
    tree, empty = tree_of({b"a", b"b"}), tree_of(set())
    for parts in ([tree], [empty, tree], [empty, empty]):
        whole: View = join(parts)
        assert not isinstance(whole, Joined)
        assert len(whole) == sum(map(len, parts))
    assert isinstance(join([tree, tree_of({b"c"})]), Joined)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [Tree(item_size=2), Tree(item_size=3)],
        [Tree(item_size=2), Tree(item_size=2, varying=True)],
        [Tree(item_size=2), Tree(item_size=2, monoid="xxh3-xor")],
    ],
)
def test_parts_are_of_one_kind(parts: list[Tree]):
    with pytest.raises(ValueError, match="of one kind"):
        join(parts)


def test_ranks_that_are_not_there_are_refused():
    joined, _ = both([{b"a"}, {b"b"}])
    for start, count in ((-1, 0), (3, 0), (0, 3), (0, -1)):
        for ask in (joined.read, joined.fingerprint_at, joined.shorts):
            with pytest.raises(ValueError, match="no range"):
                ask(start, count)
    for rank in (-1, 2):
        with pytest.raises(IndexError):
            joined.select(rank)


@pytest.mark.parametrize("uneven", [False, True])
def test_a_place_is_found_in_few_steps(uneven: bool):
    """Even where no part has anything between two items of another one."""
    parts = 4
    count = 4000
    items = [number.to_bytes(2, "big") for number in range(count)]
    if uneven:
        sets = [set(items[part * 1000 : part * 1000 + 1000]) for part in range(parts)]
    else:
        sets = [set(items[part::parts]) for part in range(parts)]
    asked = 0

    class Part:
        def __init__(self, part: View) -> None:
            self.part = part
            self.item_size, self.varying, self.monoid = part.item_size, part.varying, part.monoid

        def still(self) -> Part:
            return self

        def __len__(self) -> int:
            return len(self.part)

        def rank(self, bound: bytes) -> int:
            nonlocal asked
            asked += 1
            return self.part.rank(bound)

        def select(self, rank: int) -> bytes:
            return self.part.select(rank)

    joined = Joined([Part(tree_of(each)) for each in sets])  # type: ignore[misc]
    for rank in range(0, count, 37):
        asked = 0
        assert joined.select(rank) == items[rank]
        assert asked <= 2 * parts * parts * 10


@pytest.mark.parametrize(("count", "found"), [(4096, True), (4097, False)])
def test_a_pair_in_two_parts_is_found_among_so_many_items(count: int, found: bool) -> None:
    """Above that number, building a tree of them would take too long."""
    items = [number.to_bytes(3) for number in range(count)]
    joined = Joined([tree_of({*items[::2]}), tree_of({*items[1::2]})])
    pair = items[0], items[-1 - count % 2]
    digest = joined.monoid.digest(joined.monoid.lift_many(b"".join(pair), ITEM_SIZE))
    assert joined.find_pair(0, count, digest) == (pair if found else None)


def test_pieces_of_the_serialised_form_are_those_of_one_tree() -> None:
    items = {number.to_bytes(3) for number in range(2000)}
    joined, tree = both([{each for each in items if each[-1] % 3 == rest} for rest in range(3)])
    assert [len(piece) for piece in joined.serialise()] == [len(each) for each in tree.serialise()]
    assert b"".join(joined.serialise(piece_size=100)) == b"".join(tree.serialise())
