"""Columns of messages: the kernel in use beside loops over PyNaCl, hashlib and libsodium itself.

``CULM_HASHING_COUNT`` is the number of signatures, 20,000 by default.  The candidates run by turns;
ratios are of processor time, except for two threads, which only the wall clock can judge.
"""

from __future__ import annotations

import hashlib
import os
import sys
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from random import Random
from statistics import median
from time import perf_counter, process_time, thread_time

import nacl.bindings
import pytest
from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

from culm import kernels
from culm.kernels import hashing
from sodium import NoLoop, build_loop

COUNT = int(os.environ.get("CULM_HASHING_COUNT", "20000"))
MESSAGE_SIZE = 188  # the signed part of an entry with one link and the longer hashes
TURNS = 5

pytestmark = pytest.mark.skipif(
    kernels.IMPLEMENTATIONS["hashing"] != "compiled", reason="without the kernel it is PyNaCl's"
)


def cut(parts: list[bytes]) -> array:
    return array("i", accumulate(map(len, parts), initial=0))


class Signed:
    """Messages, their signatures and keys, as lists and as columns."""

    def __init__(self, count: int) -> None:
        chance = Random(1)
        keys = [SigningKey(chance.randbytes(32)) for _ in range(50)]
        self.messages = [chance.randbytes(MESSAGE_SIZE) for _ in range(count)]
        signers = [chance.choice(keys) for _ in range(count)]
        pairs = zip(signers, self.messages, strict=True)
        self.signed = [bytes(key.sign(message)) for key, message in pairs]
        self.public = [bytes(key.verify_key) for key in signers]
        self.data, self.offsets = b"".join(self.messages), cut(self.messages)
        self.keys = b"".join(self.public)
        self.signatures = b"".join(signed[:64] for signed in self.signed)

    def by_kernel(self) -> int:
        columns = (self.keys, self.signatures, self.data, self.offsets)
        return sum(hashing.verify_many(*columns, 0))

    def by_pynacl(self) -> int:
        valid = 0
        for signed, key in zip(self.signed, self.public, strict=True):
            try:
                nacl.bindings.crypto_sign_open(signed, key)
            except BadSignatureError:
                continue
            valid += 1
        return valid


@pytest.fixture(scope="module")
def signed() -> Signed:
    return Signed(COUNT)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Signed], int]:
    """libsodium in a loop in C; skips where it is not available."""
    try:
        loop = build_loop(tmp_path_factory.mktemp("raw"))
    except NoLoop as error:
        pytest.skip(f"no libsodium in a loop: {error}")
    return lambda given: loop(given.keys, given.signatures, given.data, given.offsets)


def seconds(clock: Callable[[], float], call: Callable[..., object], *arguments: object) -> float:
    start = clock()
    call(*arguments)
    return clock() - start


def tell(capsys, what: str, ratios: list[float], target: str) -> None:
    with capsys.disabled():
        print(f"\n{what}: {median(ratios):.3f} ({target}); {sys.platform}", end="")


def test_verifying_beside_libsodium(capsys, signed, raw):
    assert raw(signed) == signed.by_kernel() == COUNT
    ratios = [
        seconds(thread_time, raw, signed) / seconds(thread_time, signed.by_kernel)
        for _ in range(TURNS)
    ]
    tell(capsys, "speed of verify_many / libsodium in a loop", ratios, "0.97 or more")


def test_verifying_beside_pynacl(capsys, signed):
    assert signed.by_pynacl() == COUNT
    ratios = [
        seconds(thread_time, signed.by_pynacl) / seconds(thread_time, signed.by_kernel)
        for _ in range(TURNS)
    ]
    tell(capsys, "speed of verify_many / a loop of PyNaCl", ratios, "above 1")


def test_verifying_on_two_threads_beside_pynacl(capsys, signed):
    """By the wall clock, and by the processor: the cost of both threads, for two free cores."""
    walls, costs = [], []
    with ThreadPoolExecutor(2) as pool:

        def both() -> None:
            for done in [pool.submit(signed.by_kernel) for _ in range(2)]:
                done.result()

        for _ in range(TURNS):
            walls.append(2 * seconds(perf_counter, signed.by_pynacl) / seconds(perf_counter, both))
            one = seconds(process_time, signed.by_pynacl)
            costs.append(4 * one / seconds(process_time, both))
    tell(capsys, "verify_many on two threads / a loop of PyNaCl, wall", walls, "1.9 or more")
    tell(capsys, "the same, if both cores are free", costs, "1.9 or more")


FUNCTIONS = {
    "blake2b": (hashing.BLAKE2B, hashlib.blake2b),
    "blake3": (hashing.BLAKE3, blake3),
    "sha256": (hashing.SHA256, hashlib.sha256),
}


def hash_each(function, parts: list[bytes]) -> bytes:
    return b"".join([function(part).digest() for part in parts])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hashing_beside_a_loop(capsys, name):
    """Messages of several sizes: the speed as a multiple of a loop over the library's function."""
    number, function = FUNCTIONS[name]
    found = []
    for size in (32, 100, 252, 500, 1000, 4000, 16_000, 64_000):
        parts = [Random(size).randbytes(size)] * max(16, 2_000_000 // size)
        data, offsets = b"".join(parts), cut(parts)
        ratios = []
        for _ in range(TURNS):
            loop = seconds(thread_time, hash_each, function, parts)
            ours = seconds(thread_time, hashing.hash_many, number, data, offsets, b"")
            ratios.append(loop / ours)
        found.append(f"{size} bytes {median(ratios):.2f}")
    with capsys.disabled():
        print(f"\nspeed of hash_many / a loop, {name}: {', '.join(found)}", end="")
