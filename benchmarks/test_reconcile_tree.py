"""Fingerprints and trees, by themselves and beside a loop in C and hoytech/negentropy.

``CULM_RECONCILE_ITEMS`` is the size of the trees, a million by default.  Where two sides are
measured, this is done by turns and in processor time, and the ratio of the medians is printed.
"""

from __future__ import annotations

import itertools
import os
from random import Random
from statistics import median
from time import process_time
from timeit import timeit

import pytest
from blake3 import blake3

from beside import built, measured
from culm import kernels
from culm.kernels import fingerprint
from culm.reconcile import Frozen, Tree, named

COUNT = int(os.environ.get("CULM_RECONCILE_ITEMS", "1000000"))
LATER = 100_000
SIZE = 32
TURNS = 3

pytestmark = pytest.mark.skipif(
    kernels.IMPLEMENTATIONS["tree"] != "compiled", reason="trees of that size ask for the kernel"
)


@pytest.fixture(scope="module")
def ids() -> bytes:
    return Random(1).randbytes(SIZE * (COUNT + LATER))


@pytest.fixture(scope="module")
def first(ids: bytes) -> bytes:
    return ids[: SIZE * COUNT]


@pytest.fixture(scope="module")
def later(ids: bytes) -> list[bytes]:
    return [ids[at : at + SIZE] for at in range(SIZE * COUNT, len(ids), SIZE)]


@pytest.fixture(scope="module")
def tree(first: bytes) -> Tree:
    tree = Tree(item_size=SIZE)
    tree.insert_many(first)
    return tree


def filled(data: bytes) -> Tree:
    tree = Tree(item_size=SIZE)
    tree.fill(data)
    return tree


def ask(tree: Tree | Frozen, keys: list[bytes]) -> None:
    for start, stop in itertools.pairwise(keys):
        tree.fingerprint(start, stop)


@pytest.mark.benchmark(group="reconcile lift")
@pytest.mark.parametrize("size", [16, 32, 48, 85, 256])
@pytest.mark.parametrize("name", ["xxh3-sum", "xxh3-xor"])
def test_lift_many(benchmark, first, size, name):
    data = first[: len(first) // 8 // size * size]
    benchmark(named(name).lift_many, data, size)


@pytest.mark.benchmark(group="reconcile lift")
def test_lift_many_lthash(benchmark, first):
    benchmark(named("blake3-lthash").lift_many, first[: 1000 * SIZE], SIZE)


@pytest.mark.benchmark(group="reconcile build")
def test_fill(benchmark, first):
    benchmark.pedantic(filled, (first,), rounds=TURNS)


@pytest.mark.benchmark(group="reconcile insert")
@pytest.mark.parametrize("after_snapshot", [False, True])
def test_insert(benchmark, first, later, after_snapshot):
    def prepare():
        tree = filled(first)
        snapshot = tree.snapshot() if after_snapshot else None
        return (tree, snapshot), {}

    def insert(tree, snapshot):
        for item in later:
            tree.insert(item)

    benchmark.pedantic(insert, setup=prepare, rounds=TURNS)


@pytest.mark.benchmark(group="reconcile discard")
def test_discard(benchmark, first, later):
    def prepare():
        tree = filled(first)
        tree.insert_many(b"".join(later))
        return (tree,), {}

    def discard(tree):
        for item in later:
            tree.discard(item)

    benchmark.pedantic(discard, setup=prepare, rounds=TURNS)


@pytest.mark.benchmark(group="reconcile fingerprint")
@pytest.mark.parametrize("kind", ["tree", "frozen"])
def test_fingerprint(benchmark, tree, later, kind):
    view = tree if kind == "tree" else Frozen(b"".join(tree.serialise()))
    benchmark.pedantic(ask, (view, later), rounds=TURNS)


@pytest.mark.benchmark(group="reconcile rank and select")
@pytest.mark.parametrize("kind", ["rank", "select"])
def test_rank_and_select(benchmark, tree, later, kind):
    chance = Random(2)
    ranks = [chance.randrange(COUNT) for _ in later]
    calls = {
        "rank": lambda: [tree.rank(key) for key in later],
        "select": lambda: [tree.select(rank) for rank in ranks],
    }
    benchmark.pedantic(calls[kind], rounds=TURNS)


@pytest.mark.benchmark(group="reconcile open")
def test_open(benchmark, tree):
    data = b"".join(tree.serialise())
    benchmark(Frozen, data)


@pytest.mark.parametrize("varying", [False, True])
def test_memory(capsys, first, varying):
    items = [first[at : at + SIZE] for at in range(0, len(first), SIZE)]
    loaded, grown = (Tree(item_size=SIZE, varying=varying) for _ in range(2))
    loaded.load_items(sorted(items))
    for item in items:
        grown.insert(item)
    with capsys.disabled():
        print(f"\nmemory for an item of 32 bytes, {varying=}:", end=" ")
        print(f"loaded {loaded.memory / COUNT:.1f}, grown {grown.memory / COUNT:.1f} bytes")


# Beside others


def seconds(call, *arguments) -> float:
    start = process_time()
    call(*arguments)
    return process_time() - start


def tell(capsys, what: str, ours: list[float], theirs: list[float], target: str) -> None:
    with capsys.disabled():
        print(f"\n{what}: {median(ours):.4g} beside {median(theirs):.4g} ns", end="")
        print(f" = {median(ours) / median(theirs):.2f} ({target})", end="")


def test_lifting_beside_a_loop_in_c(capsys, tmp_path, first):
    program = built("xxh3_loop.c", tmp_path)
    for size in (16, 32, 48, 85, 240, 1000):
        data = first[: len(first) // size * size]
        ours, theirs = [], []
        for _ in range(TURNS):
            theirs.append(measured(program, size, data)["xxh3"])
            lift = min(seconds(named("xxh3-sum").lift_many, data, size) for _ in range(5))
            ours.append(lift * 1e9 * size / len(data))
        tell(capsys, f"lift items of {size} bytes", ours, theirs, "1.25 is 0.8 of its speed")


def test_lthash_beside_numpy_and_blake3(capsys):
    """Sums of two states beside numpy's and a copy; items beside BLAKE3 of the same output size."""
    numpy = pytest.importorskip("numpy")
    chance, lthash = Random(3), fingerprint.LTHASH
    first, second = chance.randbytes(2048), chance.randbytes(2048)
    room, items = bytearray(first), chance.randbytes(SIZE * 1000)
    left, right = (numpy.frombuffer(state, "<u2") for state in (first, second))
    parts = [items[at : at + SIZE] for at in range(0, len(items), SIZE)]
    tasks = {
        "combine": (lambda: fingerprint.combine(lthash, first, second), 5000),
        "numpy": (lambda: left + right, 5000),
        "copy": (lambda: bytes(room), 5000),
        "lift_many": (lambda: fingerprint.lift_many(lthash, items, SIZE), 5),
        "blake3": (lambda: [blake3(part).digest(length=2048) for part in parts], 5),
    }
    found: dict[str, list[float]] = {task: [] for task in tasks}
    for _ in range(5 * TURNS):
        for task, (call, times) in tasks.items():
            found[task].append(timeit(call, timer=process_time, number=times) * 1e9 / times)
    tell(capsys, "add two states, beside numpy", found["combine"], found["numpy"], "at most 1")
    tell(capsys, "add two states, beside a copy", found["combine"], found["copy"], "a limit")
    each = [[time / len(parts) for time in found[task]] for task in ("lift_many", "blake3")]
    tell(capsys, "add an item to a sum, beside its hash alone", *each, "the package's vectors")


def test_trees_beside_negentropy(capsys, tmp_path, ids, first, later):
    program = built("negentropy_tree.cpp", tmp_path)
    tasks = ("build", "insert", "fingerprint")
    ours: dict[str, list[float]] = {task: [] for task in tasks}
    theirs: dict[str, list[float]] = {task: [] for task in tasks}
    for _ in range(TURNS):
        found = measured(program, COUNT, ids)
        theirs["build"].append(found["seal"])
        theirs["insert"].append(found["insert"])
        theirs["fingerprint"].append(found["fingerprint"])
        ours["build"].append(seconds(filled, first) * 1e9)
        tree = Tree(item_size=SIZE)
        tree.insert_many(first)
        ours["insert"].append(seconds(tree.insert_many, b"".join(later)) * 1e9 / LATER)
        ours["fingerprint"].append(seconds(ask, tree, later) * 1e9 / (LATER - 1))
    targets = {"build": "at most 0.7", "insert": "at most 0.7", "fingerprint": "at most 0.3"}
    for task in tasks:
        tell(capsys, task, ours[task], theirs[task], targets[task])
