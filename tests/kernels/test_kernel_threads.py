"""Kernels in several threads at once, with separate objects, or sharing constant ones.

On an ordinary interpreter threads take turns wherever the lock is released, as often as the
shortest switch interval allows.  On a free-threaded one they run in parallel, in kernels that
declare support for it.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest
from kernel_twins import twin
from runs_model import make_run
from test_kernel_classic import written
from test_kernel_symbols import told_apart
from test_kernel_tree import cut, freeze

from culm import kernels
from culm.wire.multihash import YAMF

SOURCES = Path(__file__).resolve().parents[2] / "cext"
THREADS, ROUNDS = 4, 3
# Kernels without state between calls. In `lzfoo` and `symbols` an object belongs to one thread at a
# time, and so do a tree and its snapshots in `tree`: there the lock keeps calls whole.
WITHOUT_STATE = {"cbor", "classic", "fingerprint", "hashing", "operations", "runs", "varu64"}
WITHOUT_STATE |= {"xenc"}

CHANCE = Random(15)
NUMBERS = array("Q", (CHANCE.getrandbits(CHANCE.randrange(1, 65)) for _ in range(200)))
ITEMS = sorted({CHANCE.randbytes(8) for _ in range(400)})
OFFSETS = array("q", range(0, 3201, 8))
MESSAGE = written()
RUN = make_run(YAMF, 1, [10, 200, 0, 3000]).arguments()
VALUE = {b"list": [1, 2, b"three", {b"deep": b"x" * 40}], b"n": 2**40}
TEXT = b"".join(b"line %d of %d\n" % (index, index % 7) for index in range(3000))


def use_varu64(kernel: ModuleType) -> object:
    encoded = kernel.encode_many(NUMBERS)
    assert encoded == b"".join(map(kernel.encode, NUMBERS))
    return encoded, kernel.decode_many(encoded, 0, len(NUMBERS), True)


def use_cbor(kernel: ModuleType) -> object:
    return kernel.decode(b"\x83\x01\x62hi\xa1\x01\x58\x04abcd", 0, 10)


def use_fingerprint(kernel: ModuleType) -> object:
    data, cuts = cut(ITEMS)
    return [(kernel.lift_many(kind, data, 8), kernel.lift_cut(kind, data, cuts)) for kind in (0, 1)]


def use_hashing(kernel: ModuleType) -> object:
    data = b"".join(ITEMS)
    hashes = [kernel.hash_many(function, data, OFFSETS, b"") for function in range(3)]
    keys, signatures = bytes(32 * 20), bytes(64 * 20)
    return hashes, kernel.verify_many(keys, signatures, data, OFFSETS[:21], 0)


def use_xenc(kernel: ModuleType) -> object:
    encoded = kernel.encode(VALUE, 10)
    return encoded, kernel.decode(encoded, 10, 1000, None)


def use_lzfoo(kernel: ModuleType) -> object:
    compressor, decompressor = kernel.Compressor(1 << 14), kernel.Decompressor(1 << 14)
    packet = compressor.compress(TEXT)
    decompressor.begin(len(TEXT))
    return packet, decompressor.decode(packet, 0, len(TEXT))


def use_tree(kernel: ModuleType) -> object:
    tree = kernel.Tree(0, 8, False, 16)
    tree.insert_many(b"".join(ITEMS[::2]))
    snapshot = tree.snapshot()
    for item in ITEMS[1::2]:
        tree.insert(item)
    return [view.fingerprint(b"\x20", b"\xe0") for view in (tree, snapshot)], len(snapshot)


ID = b"\x00\x20" + bytes(32)
USES: dict[str, Callable[[ModuleType], object]] = {
    "cbor": use_cbor,
    "classic": lambda kernel: kernel.scan(MESSAGE),
    "fingerprint": use_fingerprint,
    "hashing": use_hashing,
    "lzfoo": use_lzfoo,
    "operations": lambda kernel: kernel.read([1, 0, "a", {"b": [ID], "c": [[ID]]}]),
    "runs": lambda kernel: kernel.read(*RUN),
    "symbols": lambda kernel: told_apart(kernel, 7, 50, 10, 10, [20, 60]),
    "tree": use_tree,
    "varu64": use_varu64,
    "xenc": use_xenc,
}


@contextmanager
def turns_as_short_as_can_be() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def at_once(*works: Callable[[], object]) -> list[list[object]]:
    """The results of each piece of work, time after time, all of them started together."""
    start = Barrier(len(works))

    def go_through(work: Callable[[], object]) -> list[object]:
        start.wait(timeout=60)
        return [work() for _ in range(ROUNDS)]

    with turns_as_short_as_can_be(), ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(go_through, works))


def test_every_kernel_is_used():
    assert USES.keys() == set(kernels.NAMES)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_threads_with_objects_of_their_own_do_not_disturb_each_other(name):
    kernel = twin(name, "compiled")
    wanted = USES[name](kernel)
    assert wanted == USES[name](twin(name, "pure"))
    results = at_once(*[lambda: USES[name](kernel)] * THREADS)
    assert results == [[wanted] * ROUNDS] * THREADS


def test_threads_in_different_kernels_do_not_disturb_each_other():
    used = {name: twin(name, "compiled") for name in kernels.NAMES}
    wanted = [USES[name](kernel) for name, kernel in used.items()]
    works = [lambda name=name: USES[name](used[name]) for name in used]
    assert at_once(*works) == [[value] * ROUNDS for value in wanted]


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "snapshot"])
def test_threads_read_one_tree_that_nobody_changes(frozen):
    kernel = twin("tree", "compiled")
    tree = kernel.Tree(0, 8, False, 16)
    tree.insert_many(b"".join(ITEMS))
    view: Any = freeze(kernel, tree, 0, 8, False) if frozen else tree.snapshot()

    def read() -> object:
        return [
            (view.rank(item), view.fingerprint(item, ITEMS[-1]), view.select(at))
            for at, item in enumerate(ITEMS[:100])
        ]

    wanted = read()
    assert at_once(*[read] * THREADS) == [[wanted] * ROUNDS] * THREADS


def test_a_snapshot_stays_what_it_is_while_another_thread_changes_the_tree():
    kernel = twin("tree", "compiled")
    tree = kernel.Tree(0, 8, False, 16)
    tree.insert_many(b"".join(ITEMS[::2]))
    snapshot = tree.snapshot()
    wanted = snapshot.read(0, len(snapshot))

    def change() -> None:
        for item in ITEMS[1::2]:
            tree.insert(item)
        for item in ITEMS[1::2]:
            tree.discard(item)

    changed, read = at_once(change, lambda: snapshot.read(0, len(snapshot)))
    assert (changed, read) == ([None] * ROUNDS, [wanted] * ROUNDS)
    assert tree.read(0, len(tree)) == wanted


def test_kernels_without_state_say_that_they_need_no_lock():
    first_lines = {
        path.stem: path.read_text(encoding="utf-8").partition("\n")[0]
        for path in SOURCES.glob("*.pyx")
    }
    said = {name for name, line in first_lines.items() if "freethreading_compatible=True" in line}
    assert said == WITHOUT_STATE


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this is no free-threaded Python"
)
@pytest.mark.parametrize("name", sorted(WITHOUT_STATE))
def test_a_kernel_without_state_leaves_the_lock_off(name):
    twin(name, "compiled")
    # The imports of the hashing kernels decide for themselves.
    imports = "import nacl.bindings, blake3; " if name == "hashing" else ""
    told = subprocess.run(
        [
            *(sys.executable, "-c"),
            f"import sys; sys.path[:] = {sys.path!r}; {imports}"
            "before = sys._is_gil_enabled(); "
            f"import culm.kernels._{name}; print(before, sys._is_gil_enabled())",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert told[0] == told[1]
