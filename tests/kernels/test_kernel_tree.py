"""Fingerprint trees: one suite for both twins, and the compiled one against a sorted list."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from itertools import accumulate
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kernel_twins import freeze, twin

from culm.kernels import pure_fingerprint, pure_tree

SUM, XOR, LTHASH = KINDS = range(3)
FULL = 2**64 - 1

kinds = st.sampled_from(KINDS)
bounds = st.binary(max_size=4)


def cut(parts: list[bytes]) -> tuple[bytes, array[int]]:
    return b"".join(parts), array("Q", accumulate(map(len, parts), initial=0))


def state_of(kind: int, items: list[bytes]) -> bytes:
    return pure_fingerprint.lift_cut(kind, *cut(items))


def short_of(kind: int, item: bytes) -> int:
    state = pure_fingerprint.lift(kind, item)
    return int.from_bytes(state[:8], "little") if kind == LTHASH else int.from_bytes(state[8:])


def ring(items: list[bytes], start: bytes, stop: bytes) -> list[bytes]:
    """The items in a ring's range of keys, by plain comparison."""
    if start < stop:
        return [item for item in items if start <= item < stop]
    return [item for item in items if item >= start] + [item for item in items if item < stop]


def check(view: Any, kind: int, items: list[bytes], keys: list[bytes]) -> None:
    """Compare every query of `view` with the sorted `items`."""
    assert len(view) == len(items)
    assert view.read(0, len(items)) == items
    for key in keys:
        assert view.rank(key) == bisect_left(items, key)
        for stop in keys:
            wanted = ring(items, key, stop)
            start, count = view.range(key, stop)
            assert view.read(start, count) == wanted
            assert view.fingerprint(key, stop) == (len(wanted), state_of(kind, wanted))
            assert view.sum(start, count) == state_of(kind, wanted)
            shorts = b"".join(short_of(kind, item).to_bytes(8, "little") for item in wanted)
            assert view.shorts(start, count) == shorts
    for rank, item in enumerate(items):
        assert view.select(rank) == item
        assert item in view
        assert view.find(0, len(items), short_of(kind, item), FULL) == item


class AgainstASortedList(RuleBasedStateMachine):
    """A tree with narrow nodes, its snapshots, and a sorted list for each of them."""

    module: ModuleType

    @initialize(
        kind=st.sampled_from([SUM, SUM, XOR, LTHASH]),
        varying=st.booleans(),
        width=st.sampled_from([4, 5, 6, 8, 64]),
    )
    def begin(self, kind: int, varying: bool, width: int) -> None:
        self.kind, self.varying = kind, varying
        self.tree = self.module.Tree(kind, 2, varying, width)
        self.items: list[bytes] = []
        self.snapshots: list[tuple[Any, list[bytes]]] = []

    def key(self, chance: Random) -> bytes:
        return chance.randbytes(chance.randrange(3) if self.varying else 2)

    def insert(self, item: bytes) -> None:
        at = bisect_left(self.items, item)
        new = self.items[at : at + 1] != [item]
        assert self.tree.insert(item) is new
        if new:
            self.items.insert(at, item)

    def discard(self, item: bytes) -> None:
        known = item in self.items
        assert self.tree.discard(item) is known
        if known:
            self.items.remove(item)

    @rule(count=st.integers(1, 60), chance=st.randoms(use_true_random=False))
    def insert_some(self, count: int, chance: Random) -> None:
        for _ in range(count):
            self.insert(self.key(chance))

    @rule(count=st.integers(1, 60), start=st.integers(0, 2**16 - 64), step=st.sampled_from([1, -1]))
    def insert_a_row(self, count: int, start: int, step: int) -> None:
        for number in range(start, start + count)[::step]:
            self.insert(number.to_bytes(2, "big"))

    @precondition(lambda self: not self.varying)
    @rule(count=st.integers(0, 60), chance=st.randoms(use_true_random=False))
    def insert_many(self, count: int, chance: Random) -> None:
        new = [chance.randbytes(2) for _ in range(count)]
        assert self.tree.insert_many(b"".join(new)) == len({*new} - {*self.items})
        self.items = sorted({*self.items, *new})

    @rule(share=st.sampled_from([0.1, 0.5, 1]), chance=st.randoms(use_true_random=False))
    def discard_some(self, share: float, chance: Random) -> None:
        for item in chance.sample(self.items, int(share * len(self.items))):
            self.discard(item)
        self.discard(self.key(chance))

    @rule(share=st.sampled_from([0.2, 0.9]), first=st.booleans())
    def discard_a_row(self, share: float, first: bool) -> None:
        count = int(share * len(self.items))
        for item in self.items[:count] if first else self.items[len(self.items) - count :]:
            self.discard(item)

    @rule()
    def snapshot(self) -> None:
        self.snapshots.append((self.tree.snapshot(), self.items.copy()))

    @precondition(lambda self: self.snapshots)
    @rule(chance=st.randoms(use_true_random=False))
    def release(self, chance: Random) -> None:
        self.snapshots.pop(chance.randrange(len(self.snapshots)))

    @rule(keys=st.lists(bounds, min_size=1, max_size=3))
    def look(self, keys: list[bytes]) -> None:
        for view, items in [(self.tree, self.items), *self.snapshots]:
            check(view, self.kind, items, keys)

    @rule(keys=st.lists(bounds, min_size=1, max_size=2))
    def freeze_and_look(self, keys: list[bytes]) -> None:
        frozen = freeze(self.module, self.tree, self.kind, 2, self.varying)
        assert frozen.is_sound()
        check(frozen, self.kind, self.items, keys)

    @rule(width=st.sampled_from([4, 7, 64]), keys=st.lists(bounds, min_size=1, max_size=2))
    def load_and_look(self, width: int, keys: list[bytes]) -> None:
        loaded = self.module.Tree(self.kind, 2, self.varying, width)
        loaded.load(*cut(self.items))
        check(loaded, self.kind, self.items, keys)
        self.tree = loaded

    @invariant()
    def is_as_large(self) -> None:
        if hasattr(self, "tree"):
            assert len(self.tree) == len(self.items)

    def teardown(self) -> None:
        """Once no item and no snapshot is left, one empty leaf remains."""
        if hasattr(self, "tree"):
            self.snapshots.clear()
            for item in self.items:
                assert self.tree.discard(item)
            empty = self.module.Tree(self.kind, 2, self.varying, 64)
            assert self.tree.memory <= empty.memory


def machine_for(implementation: Any) -> type[AgainstASortedList]:
    module = twin("tree", implementation)
    return type("Machine", (AgainstASortedList,), {"module": module})


@pytest.mark.parametrize("implementation", ["compiled", "pure"])
def test_a_tree_is_a_sorted_list(implementation):
    machine = machine_for(implementation).TestCase
    machine.settings = settings(settings.default, stateful_step_count=20)
    machine().runTest()


# Step by step, on both twins


@given(
    kinds,
    st.booleans(),
    st.sets(st.binary(min_size=3, max_size=3), max_size=200),
    st.lists(st.binary(max_size=5), min_size=1, max_size=4),
)
def test_frozen_trees_answer_as_trees_do(tree, kind, varying, items, keys):
    source = tree.Tree(kind, 3, varying)
    source.load(*cut(sorted(items)))
    check(freeze(tree, source, kind, 3, varying), kind, sorted(items), keys)


@pytest.mark.costly
@pytest.mark.parametrize("size", [1, 7, 8, 9, 32, 33, 48, 1024])
@pytest.mark.parametrize("varying", [False, True])
def test_items_may_have_any_size(tree, size, varying):
    chance = Random(size)
    items = sorted({chance.randbytes(size) for _ in range(150)})
    if varying:
        items = sorted({*items, b"", *(item[: chance.randrange(size)] for item in items)})
    made = tree.Tree(SUM, size, varying, 8)
    for item in chance.sample(items, len(items)):
        assert made.insert(item)
    check(made, SUM, items, [items[3], items[50] + b"\0", items[-1][:1], b"\xff" * (size + 1)])


def test_shorter_items_come_first_and_zeros_count(tree):
    items = [b"", b"\0", b"\0\0", b"\0\0\0", b"\0\1", b"\1", b"\1\0"]
    made = tree.Tree(SUM, 3, True)
    for item in reversed(items):
        assert made.insert(item)
    keys = [*items, b"\0\0\0\0", b"\0\0\0\1", b"\1\0\0", b"\1\0\0\0\0", b"\2"]
    check(made, SUM, items, keys)
    fixed = tree.Tree(SUM, 2)
    for item in (b"\0\0", b"\0\1", b"\1\0"):
        fixed.insert(item)
    check(fixed, SUM, [b"\0\0", b"\0\1", b"\1\0"], keys)


@given(kinds, st.sets(st.binary(min_size=2, max_size=2), min_size=1, max_size=90), st.data())
def test_ranges_of_ranks_run_over_the_end(tree, kind, items, data):
    ascending = sorted(items)
    made = tree.Tree(kind, 2, False, 4)
    made.load(b"".join(ascending))
    start = data.draw(st.integers(0, len(items)))
    count = data.draw(st.integers(0, len(items)))
    wanted = (ascending * 2)[start : start + count]
    assert made.read(start, count) == wanted
    assert made.sum(start, count) == state_of(kind, wanted)
    assert len(made.slots(start, count)) == 8 * count


@given(kinds, st.sets(st.binary(min_size=2, max_size=2), min_size=2, max_size=90), st.data())
def test_what_is_missing_is_found_by_its_short(tree, kind, items, data):
    ascending = sorted(items)
    made = tree.Tree(kind, 2, False, 5)
    made.load(b"".join(ascending))
    start, count = data.draw(st.integers(0, len(items))), data.draw(st.integers(0, len(items)))
    there = (ascending * 2)[start : start + count]
    mask = data.draw(st.sampled_from([0, 1, 0xFF, 0xFFFF, FULL]))
    short = short_of(kind, data.draw(st.sampled_from(ascending)))
    matching = [item for item in there if not (short_of(kind, item) ^ short) & mask]
    assert made.find(start, count, short, mask) == (matching[0] if matching else None)


@given(kinds, st.sets(st.binary(min_size=2, max_size=2), min_size=2, max_size=90), st.data())
def test_pairs_are_found_by_what_they_combine_to(tree, kind, items, data):
    ascending = sorted(items)
    made = tree.Tree(kind, 2, False, 5)
    made.load(b"".join(ascending))
    pair = data.draw(st.lists(st.sampled_from(ascending), min_size=2, max_size=2, unique=True))
    state = state_of(kind, pair)
    low = int.from_bytes(state[:8], "little") if kind == LTHASH else int.from_bytes(state[8:])
    assert sorted(made.find_pair(0, len(items), low, FULL)) == sorted(pair)
    assert made.find_pair(0, len(items), low ^ 1, FULL) is None
    start, count = made.range(pair[0], pair[1])
    assert made.find_pair(start, count, low, FULL) is None


def test_shorts_that_were_made_to_meet_cost_no_more_than_others():
    """A chain would compare each with all before it."""
    module, count = twin("tree", "compiled"), 1 << 15
    # They fall into one bucket, and so does the searched one.
    step = pow(0x9E3779B185EBCA87, -1, 2**64)
    shorts = b"".join((step * at % 2**64).to_bytes(8, "little") for at in range(count))
    slots = b"".join((at << 32).to_bytes(8) for at in range(count))
    blocks = count // module.BLOCK
    made = module.Frozen(
        SUM, 4, False, count, slots, shorts, bytes(8 * blocks), bytes(16 * (blocks + 1))
    )
    assert made.find_pair(0, count, 2 * count * step % 2**64, FULL) is None
    middle = count // 2
    pair = tuple(at.to_bytes(4) for at in (middle - 1, middle))
    assert made.find_pair(0, count, (count - 1) * step % 2**64, FULL) == pair


@given(
    st.sampled_from([1, 2, 3, 8, 9, 20]),
    st.integers(0, 400),
    st.sampled_from([1, 2, 256]),
    st.randoms(use_true_random=False),
)
def test_sorting_leaves_each_item_once_in_order(tree, size, count, letters, chance):
    items = [bytes(chance.randrange(letters) for _ in range(size)) for _ in range(count)]
    assert tree.sort(b"".join(items), size) == b"".join(sorted({*items}))


def test_sorting_copes_with_any_distribution(tree):
    chance = Random(5)
    spread = [
        [number.to_bytes(24, "big") for number in range(500)],
        [(1 << chance.randrange(190)).to_bytes(24, "big") for _ in range(2000)],
        [bytes(8) + chance.randbytes(2) + bytes(14) for _ in range(3000)],
        [b"\xff" * 23 + chance.randbytes(1) for _ in range(3000)],
        [(number // 7 << 128 | number % 7).to_bytes(24, "big") for number in range(3000)],
    ]
    for items in spread:
        assert tree.sort(b"".join(items), 24) == b"".join(sorted({*items}))


# Snapshots


def test_snapshots_outlive_the_tree_and_each_other(tree):
    chance = Random(8)
    made = tree.Tree(SUM, 2, False, 4)
    snapshots = []
    items: set[bytes] = set()
    for _ in range(40):
        for _ in range(20):
            item = chance.randbytes(2)
            made.insert(item)
            items.add(item)
        for item in chance.sample(sorted(items), 8):
            made.discard(item)
            items.remove(item)
        snapshots.append((made.snapshot(), sorted(items)))
    del made
    while snapshots:
        snapshots.pop(chance.randrange(len(snapshots)))
        for snapshot, there in snapshots[:3]:
            check(snapshot, SUM, there, [b"\x40"])


def test_a_snapshot_of_an_empty_tree_stays_empty(tree):
    made = tree.Tree(SUM, 2)
    before = made.snapshot()
    made.load(b"aabbcc")
    assert (len(before), len(made)) == (0, 3)
    assert before.fingerprint(b"", b"") == (0, bytes(16))


def test_memory_is_given_back(tree_twins):
    compiled = tree_twins[0]
    made = compiled.Tree(SUM, 32)
    chance = Random(2)
    made.load(tree_twins[1].sort(chance.randbytes(32 * 20_000), 32))
    alone = made.memory
    assert alone / len(made) <= 52
    snapshot = made.snapshot()
    assert made.memory == alone
    for item in snapshot.read(0, 20_000):
        made.discard(item)
        made.insert(item)
    assert 1.8 * alone < made.memory < 2.3 * alone
    del snapshot
    assert made.memory < 1.2 * alone


# Arguments that do not fit


def test_items_of_a_wrong_size_are_refused(tree):
    fixed, varying = tree.Tree(SUM, 4), tree.Tree(SUM, 4, True)
    for call in (fixed.insert, fixed.discard, fixed.__contains__):
        for item in (b"", b"abc", b"abcde"):
            with pytest.raises(ValueError, match="an item has 4 bytes"):
                call(item)
    for call in (varying.insert, varying.discard, varying.__contains__):
        with pytest.raises(ValueError, match="at most 4 bytes"):
            call(b"abcde")
    assert varying.insert(b"")


@pytest.mark.parametrize("wrong", [None, 7, "text", bytearray(4), memoryview(b"abcd")])
def test_items_and_bounds_are_bytes(tree, wrong):
    made = tree.Tree(SUM, 4)
    calls: list[Callable[[Any], object]] = [
        made.insert,
        made.discard,
        made.__contains__,
        made.rank,
        lambda bound: made.range(bound, b""),
        lambda bound: made.fingerprint(b"", bound),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call(wrong)


@pytest.mark.parametrize(
    ("start", "count"), [(0, 4), (4, 0), (-1, 1), (0, -1), (2**64, 0), (0, 2**64), (3, 2**63)]
)
def test_ranges_that_are_not_there_are_refused(tree, start, count):
    made = tree.Tree(SUM, 1)
    made.load(b"abc")
    for view in (made, made.snapshot(), freeze(tree, made, SUM, 1, False)):
        for call in (view.sum, view.read, view.slots, view.shorts):
            with pytest.raises(ValueError, match="no range of 3 items"):
                call(start, count)
        for call in (view.find, view.find_pair):
            with pytest.raises(ValueError, match=r"no range of 3 items|at most 16777216"):
                call(start, count, 1, 1)
        for rank in (-1, 3, 2**64):
            with pytest.raises(IndexError):
                view.select(rank)
        for first, last in ((2, 1), (0, 3), (3, 3), (0, 2**63)):
            with pytest.raises(ValueError, match="no such blocks"):
                view.blocks(first, last)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_shorts_have_64_bits(tree, number):
    made = tree.Tree(SUM, 1)
    for call in (made.find, made.find_pair):
        for short, mask in ((number, 0), (0, number)):
            with pytest.raises(OverflowError):
                call(0, 0, short, mask)


def test_only_what_ascends_is_loaded(tree):
    made = tree.Tree(SUM, 1, False, 4)
    row = bytes(range(100))
    for at in range(1, 100):
        for wrong in (row[at - 1], row[max(at - 2, 0)]):
            with pytest.raises(ValueError, match=f"item {at} is not above"):
                made.load(row[:at] + bytes([wrong]) + row[at + 1 :])
            assert len(made) == 0
    made.load(row)
    with pytest.raises(ValueError, match="not empty"):
        made.load(row)
    check(made, SUM, [bytes([number]) for number in row], [b"\x17"])


def test_only_what_fits_is_loaded(tree):
    fixed, varying = tree.Tree(SUM, 2), tree.Tree(SUM, 2, True)
    with pytest.raises(ValueError, match="fill"):
        fixed.load(b"abc")
    with pytest.raises(ValueError, match="fill"):
        fixed.insert_many(b"abc")
    with pytest.raises(ValueError, match="offsets"):
        varying.load(b"abcd")
    with pytest.raises(ValueError, match="one by one"):
        varying.insert_many(b"abcd")
    with pytest.raises(ValueError, match="2 bytes"):
        fixed.load(b"abcd", array("Q", [0, 2, 3]))
    with pytest.raises(ValueError, match="at most 2 bytes"):
        varying.load(b"abcd", array("Q", [0, 3]))
    for offsets in ([0, 5], [2, 1], [2**64 - 1]):
        with pytest.raises(ValueError, match="offsets ascend"):
            varying.load(b"abcd", array("Q", offsets))
    for made in (fixed, varying):
        made.load(b"", array("Q"))
        assert len(made) == 0
    varying.load(b"abcd", array("Q", [1, 1, 3]))
    assert varying.read(0, 2) == [b"", b"bc"]


def test_only_sensible_trees_are_made(tree):
    for arguments in (
        (3, 1),
        (-1, 1),
        (SUM, 0),
        (SUM, 1025),
        (SUM, -1),
        (SUM, 1, False, 3),
        (SUM, 1, False, 65),
    ):
        with pytest.raises(ValueError, match=r"monoid|bytes|entries"):
            tree.Tree(*arguments)
    for size in (0, -1, 1025):
        with pytest.raises(ValueError, match="1 to 1024"):
            tree.sort(b"", size)
    with pytest.raises(ValueError, match="fill"):
        tree.sort(b"abc", 2)


def test_there_are_no_other_views(tree):
    class Mine(tree.View):
        pass

    for make in (
        tree.View,
        Mine,
        tree.Snapshot,
        lambda: tree.Snapshot(None),
        tree.Tree,
        tree.Frozen,
    ):
        with pytest.raises(TypeError):
            make()
    made = tree.Tree(SUM, 1)
    with pytest.raises(TypeError):
        tree.Snapshot(made.snapshot())


def test_no_view_is_made_behind_the_back_of_its_constructor(tree_twins):
    compiled = tree_twins[0]
    for kind in (compiled.View, compiled.Tree, compiled.Snapshot, compiled.Frozen):
        with pytest.raises(TypeError):
            kind.__new__(kind)
        with pytest.raises(TypeError):
            copy(compiled.Tree(SUM, 1).snapshot())


# Arbitrary bytes

PARTS = ("slots", "shorts", "lowest", "states")


def parts_of(view: Any) -> list[bytes]:
    count = len(view)
    lowest, states = view.blocks(0, -(-count // pure_tree.BLOCK) + 1)
    return [view.slots(0, count), view.shorts(0, count), lowest, states]


@pytest.mark.parametrize("part", range(4), ids=PARTS)
@pytest.mark.parametrize("change", [b"\0", -1, 8, -8])
def test_sections_have_the_size_that_the_count_asks_for(tree, part, change):
    made = tree.Tree(SUM, 3, True)
    made.load(*cut([bytes([number]) for number in range(130)]))
    parts = parts_of(made)
    if isinstance(change, bytes):
        parts[part] += change
    else:
        parts[part] = (parts[part] + bytes(8))[:change] if change < 0 else parts[part] + bytes(8)
        parts[part] = parts[part] if len(parts[part]) != len(parts_of(made)[part]) else b""
    with pytest.raises(ValueError, match="size"):
        tree.Frozen(SUM, 3, True, 130, *parts)
    for count in (129, 131, 0, 2**64, -1):
        with pytest.raises(ValueError, match="size"):
            tree.Frozen(SUM, 3, True, count, *parts_of(made))


@given(kinds, st.booleans(), st.integers(0, 200), st.integers(0, 3), st.data())
def test_a_forged_tree_is_told_and_reads_nothing_else(tree, kind, varying, count, part, data):
    made = tree.Tree(kind, 3, varying)
    made.load(*cut([number.to_bytes(3, "big") for number in range(0, 5 * count, 5)]))
    parts = [bytearray(each) for each in parts_of(made)]
    changes = data.draw(st.integers(1, 3))
    for _ in range(changes if parts[part] else 0):
        at = data.draw(st.integers(0, len(parts[part]) - 1))
        parts[part][at] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 127, 128, 255]))
    frozen = tree.Frozen(kind, 3, varying, count, *parts)
    unchanged = [bytes(each) for each in parts] == parts_of(made)
    assert frozen.is_sound() == unchanged
    # Any answer will do, but there must be one.
    assert len(frozen.read(0, count)) == count
    for key in data.draw(st.lists(st.binary(max_size=4), max_size=3)):
        assert 0 <= frozen.rank(key) <= count
        frozen.fingerprint(key, b"\1")
        assert (key[:3].ljust(3, b"\0") in frozen) in (True, False)
    frozen.sum(0, count)
    frozen.find(0, count, 1, 0xFF)
    frozen.find_pair(0, count, 1, 0xFF)


def test_a_frozen_tree_holds_its_bytes(tree):
    made = tree.Tree(SUM, 1)
    made.load(b"abc")
    parts = [bytearray(each) for each in parts_of(made)]
    frozen = tree.Frozen(SUM, 1, False, 3, *parts)
    for part in parts:
        with pytest.raises(BufferError):
            part.append(0)
    assert frozen.read(0, 3) == [b"a", b"b", b"c"]
    del frozen
    for part in parts:
        part.append(0)


# Side by side


@given(kinds, st.booleans(), st.sets(st.binary(min_size=3, max_size=3), max_size=150), st.data())
def test_twins_freeze_alike(tree_twins, kind, varying, items, data):
    made = [module.Tree(kind, 3, varying) for module in tree_twins]
    for item in data.draw(st.permutations(sorted(items))):
        made[0].insert(item)
    made[1].load(*cut(sorted(items)))
    assert parts_of(made[0]) == parts_of(made[1])


@given(kinds, st.integers(1, 150), st.data())
def test_twins_are_deceived_alike(tree_twins, kind, count, data):
    """Items of one size: whatever the sections contain, both read the same in them."""
    source = tree_twins[1].Tree(kind, 2)
    source.load(b"".join(number.to_bytes(2, "big") for number in range(0, 3 * count, 3)))
    parts = [bytearray(each) for each in parts_of(source)]
    for _ in range(data.draw(st.integers(1, 4))):
        part = parts[data.draw(st.integers(0, 3))]
        part[data.draw(st.integers(0, len(part) - 1))] ^= data.draw(st.integers(1, 255))
    compiled, pure = (module.Frozen(kind, 2, False, count, *parts) for module in tree_twins)
    first = data.draw(st.integers(0, count))
    assert compiled.sum(0, first) == pure.sum(0, first)
    assert compiled.read(first, count) == pure.read(first, count)
    assert compiled.shorts(first, count) == pure.shorts(first, count)
    assert compiled.is_sound() == pure.is_sound()
