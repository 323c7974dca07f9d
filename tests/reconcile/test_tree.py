"""Fingerprint trees as users see them; `tests/kernels/test_kernel_tree.py` tries everything."""

from __future__ import annotations

import mmap
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.reconcile import MONOIDS, Frozen, Tree, named

every_name = pytest.mark.parametrize("name", MONOIDS)


def made_of(items: list[bytes], name: str = "xxh3-sum") -> Tree:
    tree = Tree(item_size=len(items[0]), monoid=name)
    tree.load(b"".join(items))
    return tree


def noise(count: int, size: int = 4, seed: int = 1) -> list[bytes]:
    chance = Random(seed)
    return sorted({chance.randbytes(size) for _ in range(count)})


def test_a_tree_is_told_what_it_holds():
    tree = Tree(item_size=32)
    assert (tree.item_size, tree.varying, tree.monoid) == (32, False, named("xxh3-sum"))
    assert (len(tree), tree.fingerprint()) == (0, tree.monoid.neutral)
    other = Tree(item_size=9, varying=True, monoid="blake3-lthash")
    assert (other.item_size, other.varying, other.monoid) == (9, True, named("blake3-lthash"))
    with pytest.raises(ValueError, match="no monoid is named"):
        Tree(item_size=1, monoid="md5")


@every_name
@given(items=st.sets(st.binary(min_size=2, max_size=2), min_size=1, max_size=80), data=st.data())
def test_ranges_of_keys_and_of_ranks_have_one_fingerprint(name, items, data):
    tree = made_of(sorted(items), name)
    start, stop = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))
    fingerprint = tree.fingerprint(start, stop)
    assert fingerprint == tree.fingerprint_at(*tree.range(start, stop))
    there = tree.read(*tree.range(start, stop))
    assert fingerprint == tree.monoid.lift_many(b"".join(there), 2)


@every_name
def test_a_ring_from_a_key_to_itself_is_everything(name):
    items = noise(200)
    tree = made_of(items, name)
    for bound in (b"", items[0], items[100], b"\xff" * 5):
        assert tree.fingerprint(bound, bound) == tree.fingerprint()
        assert tree.range(bound, bound)[1] == 200


@every_name
def test_the_two_parts_of_a_ring_make_the_whole(name):
    items = noise(300)
    tree = made_of(items, name)
    for x, y in ((items[10], items[200]), (b"", items[5]), (items[299], b"\xff" * 9)):
        parts = tree.fingerprint(x, y), tree.fingerprint(y, x)
        assert tree.monoid.combine(*parts) == tree.fingerprint()


def test_items_in_any_order_fill_a_tree():
    items = noise(500)
    shuffled = Random(3).sample([*items, *items[::3]], len(items) + len(items[::3]))
    filled = Tree(item_size=4)
    filled.fill(b"".join(shuffled))
    inserted = Tree(item_size=4)
    assert inserted.insert_many(b"".join(shuffled)) == 500
    assert filled.read(0, 500) == inserted.read(0, 500) == items
    assert filled.fingerprint() == inserted.fingerprint()
    with pytest.raises(ValueError, match="load_items"):
        Tree(item_size=4, varying=True).fill(b"")


def test_items_of_varying_size_are_loaded_one_behind_the_other():
    items = sorted({item[: 1 + item[0] % 4] for item in noise(300)})
    tree = Tree(item_size=4, varying=True)
    tree.load_items(iter(items))
    assert tree.read(0, len(tree)) == items
    fixed = Tree(item_size=2)
    fixed.load_items([b"ab", b"cd"])
    assert b"cd" in fixed
    with pytest.raises(ValueError, match="not above"):
        Tree(item_size=4, varying=True).load_items([b"b", b"a"])


def test_batches_are_of_the_moment_of_the_call():
    items = noise(100)
    tree = made_of(items)
    batches = tree.batches(items[90], items[20], count_max=7)
    for item in items:
        tree.discard(item)
    wanted = items[90:] + items[:20]
    assert list(batches) == [wanted[at : at + 7] for at in range(0, 30, 7)]
    assert list(tree.batches()) == []
    with pytest.raises(ValueError, match="at least one"):
        tree.batches(count_max=0)


def test_a_snapshot_is_the_tree_as_it_was():
    items = noise(400)
    tree = made_of(items[:200])
    snapshot = tree.snapshot()
    before = tree.fingerprint()
    for item in items[200:]:
        assert tree.insert(item)
    for item in items[:100]:
        assert tree.discard(item)
    assert snapshot.read(0, 200) == items[:200]
    assert snapshot.fingerprint() == before
    assert (snapshot.item_size, snapshot.monoid) == (4, tree.monoid)
    assert tree.read(0, 300) == items[100:]
    assert tree.memory > 0


@pytest.mark.parametrize("name", ["xxh3-sum", "xxh3-xor"])
@pytest.mark.parametrize("size", [4, 6, 8, 12, 16])
def test_the_difference_of_two_sides_names_what_one_of_them_has_more(name, size):
    items = noise(300)
    ours, theirs = made_of(items, name), made_of([*items[:120], *items[121:]], name)
    difference = ours.monoid.subtract(ours.fingerprint(), theirs.fingerprint())
    digest = ours.monoid.digest(difference, size)
    assert difference.count == 1
    assert ours.find(0, 300, digest) == items[120]
    assert theirs.find(0, 299, digest) is None
    assert ours.find(0, 120, digest) is None


@pytest.mark.parametrize("name", ["xxh3-sum", "xxh3-xor"])
@pytest.mark.parametrize("size", [6, 8, 12, 16])
def test_the_difference_names_two_items_as_well(name, size):
    items = noise(300)
    ours = made_of(items, name)
    theirs = made_of([*items[:120], *items[121:200], *items[201:]], name)
    difference = ours.monoid.subtract(ours.fingerprint(), theirs.fingerprint())
    digest = ours.monoid.digest(difference, size)
    assert difference.count == 2
    assert ours.find_pair(0, 300, digest) == (items[120], items[200])
    assert theirs.find_pair(0, 298, digest) is None


def test_what_agrees_in_64_bits_only_is_not_found():
    tree = made_of(noise(50))
    item, pair = tree.select(20), (tree.select(3), tree.select(40))
    state = tree.monoid.lift(item).state
    assert tree.find(0, 50, state) == item
    assert tree.find(0, 50, bytes(8) + state[8:]) is None
    both = tree.monoid.combine(*map(tree.monoid.lift, pair)).state
    assert tree.find_pair(0, 50, both) == pair
    assert tree.find_pair(0, 50, bytes(8) + both[8:]) is None


def test_digests_that_name_nothing_are_refused():
    tree = made_of(noise(50))
    for digest in (b"", bytes(17)):
        for call in (tree.find, tree.find_pair):
            with pytest.raises(ValueError, match="1 to 16 bytes"):
                call(0, 50, digest)
    hashed = made_of(noise(50), "blake3-lthash")
    for call in (hashed.find, hashed.find_pair):
        with pytest.raises(ValueError, match="have no difference"):
            call(0, 50, bytes(8))


@every_name
def test_shorts_are_those_of_the_monoid(name):
    tree = made_of(noise(30), name)
    wanted = b"".join(tree.monoid.short(item).to_bytes(8, "little") for item in tree.read(0, 30))
    assert tree.shorts(0, 30) == wanted


# The serialised form


@every_name
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
@pytest.mark.parametrize("piece_size", [1, 100, 1 << 20])
def test_equal_sets_have_equal_bytes_however_they_came_about(name, varying, count, piece_size):
    items = noise(count)
    grown = Tree(item_size=5 if varying else 4, varying=varying, monoid=name)
    for item in Random(2).sample(items, count):
        grown.insert(item)
    grown.insert(b"gone")
    grown.discard(b"gone")
    loaded = Tree(item_size=5 if varying else 4, varying=varying, monoid=name)
    loaded.load_items(items)
    data = b"".join(grown.serialise(piece_size=piece_size))
    assert data == b"".join(loaded.serialise())
    frozen = Frozen(data)
    assert frozen.is_sound()
    assert (frozen.item_size, frozen.varying) == (grown.item_size, varying)
    assert frozen.monoid is named(name)
    assert frozen.read(0, count) == items
    assert frozen.fingerprint() == grown.fingerprint()
    assert b"".join(frozen.serialise()) == b"".join(grown.snapshot().serialise()) == data


def test_a_tree_changes_while_it_is_being_serialised():
    items = noise(300)
    tree = made_of(items)
    wanted = b"".join(tree.serialise())
    pieces = tree.serialise(piece_size=64)
    begun = next(pieces)
    for item in items[::2]:
        tree.discard(item)
    assert begun + b"".join(pieces) == wanted


def test_pieces_are_about_as_large_as_asked_for():
    tree = made_of(noise(2000))
    assert max(map(len, tree.serialise(piece_size=1000))) <= 1000


def test_a_tree_is_used_where_it_lies(tmp_path):
    items = noise(1000)
    path = tmp_path / "tree"
    with path.open("wb") as file:
        file.writelines(made_of(items).serialise())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        frozen = Frozen(mapped)
        assert frozen.read(*frozen.range(items[500], items[510])) == items[500:510]
        with pytest.raises(BufferError):
            mapped.close()
        del frozen


def test_a_frozen_tree_answers_what_a_tree_answers():
    items = noise(700)
    tree = made_of(items)
    frozen = Frozen(b"".join(tree.serialise()))
    for start, stop in ((items[3], items[600]), (items[600], items[3]), (b"", b"")):
        assert frozen.fingerprint(start, stop) == tree.fingerprint(start, stop)
        assert list(frozen.batches(start, stop)) == list(tree.batches(start, stop))
    digest = tree.monoid.digest(tree.monoid.lift(items[99]), 8)
    assert frozen.find(0, 700, digest) == items[99]
    assert items[4] in frozen
    assert frozen.rank(items[4]) == 4
