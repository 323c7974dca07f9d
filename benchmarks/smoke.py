"""One short run: the speed of the kernels, compared with alternatives, and wire costs.

Prints ratios of speeds and of sizes, never speeds: those are of the machine.  The candidates run by
turns, round by round, time is the processor's, and a ratio is the median of its rounds', so that
other load on the machine hits all alike.  Wire costs are counted.
"""

from __future__ import annotations

import hashlib
import platform
from array import array
from collections.abc import Callable
from random import Random
from statistics import median

import cramjam
import lz4.block
from blake3 import blake3
from nacl.bindings import crypto_sign_open
from nacl.signing import SigningKey

from clock import seconds
from culm import kernels
from culm.kernels import hashing
from culm.wire import lzfoo, varu64
from samples import SAMPLES, loop_decode, loop_encode, numbers
from wire_cost import bound, cost_of, log_of, replicate

SIZE = 1 << 20
SIZE_FOR_LOOPS = 1 << 15
COUNT = 10_000
COUNT_SIGNED = 500
MESSAGE_SIZE = 188  # the signed part of a usual entry
WINDOW = 1 << 16
ROUNDS = 15
ROUNDS_FOR_LOOPS = 5

Work = Callable[[], object]


def speedup(ours: Work, theirs: Work, rounds: int) -> float:
    """The speed of ours, as a multiple of theirs."""
    ours()
    theirs()
    return median(seconds(theirs) / seconds(ours) for _ in range(rounds))


def compare_varu64() -> None:
    values = numbers(COUNT)
    packed, data = array("Q", values), loop_encode(values)
    assert varu64.encode_many(packed) == data
    assert varu64.decode_many(data) == (values, len(data))
    rows: dict[str, tuple[Work, Work]] = {
        "encode many, array": (lambda: varu64.encode_many(packed), lambda: loop_encode(values)),
        "encode many, list": (lambda: varu64.encode_many(values), lambda: loop_encode(values)),
        "decode many, array": (lambda: varu64.decode_array(data), lambda: loop_decode(data)),
        "decode many, list": (lambda: varu64.decode_many(data), lambda: loop_decode(data)),
    }
    print(f"{'VarU64, times as fast as':<28}{'a Python loop':>14}")
    for name, (ours, theirs) in rows.items():
        print(f"{name:<28}{speedup(ours, theirs, ROUNDS_FOR_LOOPS):>14.1f}")


def decompress(data: bytes, size: int, kernel: object) -> bytes:
    decompressor = kernel.Decompressor(WINDOW)  # type: ignore[attr-defined]
    decompressor.begin(size)
    output: bytes = decompressor.decode(data, 0, size)[0]
    return output


def compare_lzfoo() -> None:
    pure = kernels.load("lzfoo", "pure")
    print(f"{'LZFoo, times as fast as':<28}{'pure twin':>14}{'lz4.block':>14}{'snappy':>14}")
    smaller: list[tuple[str, float, float]] = []
    for name, make in SAMPLES.items():
        data, part = make(SIZE), make(SIZE_FOR_LOOPS)
        ours, short = lzfoo.compress(data, WINDOW), lzfoo.compress(part, WINDOW)
        lz4_data, snappy_data = lz4.block.compress(data), cramjam.snappy.compress_raw(data)
        assert decompress(ours, SIZE, lzfoo) == data
        assert decompress(short, len(part), pure) == part
        smaller.append((name, len(lz4_data) / len(ours), len(snappy_data) / len(ours)))
        print_row(
            f"compress {name}",
            (
                lambda part=part: lzfoo.compress(part, WINDOW),
                lambda part=part: pure.Compressor(WINDOW).compress(part),
            ),
            lambda data=data: lzfoo.compress(data, WINDOW),
            lambda data=data: lz4.block.compress(data),
            lambda data=data: cramjam.snappy.compress_raw(data),
        )
        print_row(
            f"decompress {name}",
            (
                lambda short=short: decompress(short, SIZE_FOR_LOOPS, lzfoo),
                lambda short=short: decompress(short, SIZE_FOR_LOOPS, pure),
            ),
            lambda ours=ours: decompress(ours, SIZE, lzfoo),
            lambda data=lz4_data: lz4.block.decompress(data),
            lambda data=snappy_data: cramjam.snappy.decompress_raw(data),
        )
    print(f"\n{'LZFoo, times as small as':<28}{'':>14}{'lz4.block':>14}{'snappy':>14}")
    for name, than_lz4, than_snappy in smaller:
        print(f"{name:<28}{'':>14}{than_lz4:>14.2f}{than_snappy:>14.2f}")


def print_row(name: str, loops: tuple[Work, Work], ours: Work, *others: Work) -> None:
    ratios = [speedup(*loops, ROUNDS_FOR_LOOPS)]
    ratios += [speedup(ours, other, ROUNDS) for other in others]
    print(f"{name:<28}" + "".join(f"{ratio:>14.2f}" for ratio in ratios))


def compare_hashing() -> None:
    key, chance = SigningKey(bytes(32)), Random(1)
    messages = [chance.randbytes(MESSAGE_SIZE) for _ in range(COUNT_SIGNED)]
    signed = [bytes(key.sign(message)) for message in messages]
    public = bytes(key.verify_key)
    data = b"".join(messages)
    offsets = array("i", range(0, len(data) + 1, MESSAGE_SIZE))
    columns = (public * COUNT_SIGNED, b"".join(each[:64] for each in signed), data, offsets)
    rows: dict[str, tuple[Work, Work]] = {
        "verify Ed25519": (
            lambda: hashing.verify_many(*columns, 0),
            lambda: [crypto_sign_open(each, public) for each in signed],
        ),
        "hash BLAKE2b": (
            lambda: hashing.hash_many(hashing.BLAKE2B, data, offsets, b""),
            lambda: [hashlib.blake2b(each).digest() for each in messages],
        ),
        "hash BLAKE3": (
            lambda: hashing.hash_many(hashing.BLAKE3, data, offsets, b""),
            lambda: [blake3(each).digest() for each in messages],
        ),
    }
    print(f"{'Columns, times as fast as':<28}{'a Python loop':>14}")
    for name, (ours, theirs) in rows.items():
        print(f"{name:<28}{speedup(ours, theirs, ROUNDS_FOR_LOOPS):>14.2f}")


def count_wire_cost() -> None:
    count, payload_size = 1000, 100
    said = replicate(log_of(count, payload_size), take_size=1 << 16)[1]
    cost = cost_of(count, payload_size, said)
    print(f"{'Point-2-Point, bytes an entry':<28}{'besides its payload':>27}{'at most':>14}")
    print(f"{f'{count} of {payload_size} bytes':<28}{cost.per_entry:>28.3f}", end="")
    print(f"{bound(payload_size):>14}")
    print(f"{'of which bymux':<28}{cost.bymux_per_entry:>28.3f}")
    assert cost.per_entry <= bound(payload_size)


def main() -> None:
    print(f"culm's kernels: {kernels.IMPLEMENTATION}; {platform.python_implementation()}", end=" ")
    print(f"{platform.python_version()}\n")
    compare_varu64()
    print()
    compare_lzfoo()
    print()
    compare_hashing()
    print()
    count_wire_cost()


if __name__ == "__main__":
    main()
