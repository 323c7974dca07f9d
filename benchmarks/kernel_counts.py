"""The cost of each kernel for the same piece of work, in instructions of the processor.

``python benchmarks/kernel_counts.py`` does the work.  `counted` has callgrind look at that in a
process of its own, and tells how many instructions were carried out in the library of each kernel.
Calls out of a kernel (to Python, libsodium, the C library) are not among them.  A busy machine
counts the same; another compiler or another processor does not, and `built_by` names these.
"""

from __future__ import annotations

import platform
import re
import sys
from array import array
from pathlib import Path
from random import Random

import callgrind
from culm import kernels

__all__ = ["TITLES", "built_by", "counted"]

COUNT = 200
ITEMS = 5000


def replicate_entries() -> None:
    """``runs``, ``lzfoo``, ``hashing`` and ``varu64``."""
    from culm.bamboo import MemoryStore
    from culm.machines.sample_logs import make_log
    from culm.point2point import Role
    from culm.point2point.replication import Interest, Replicator
    from culm.wire.multihash import YAMF
    from samples import log
    from two_replicators import End, exchange

    lines = log(1 << 17)
    for count, size in ((COUNT, 100), (2, 1 << 16)):
        payloads = [lines[size * at : size * (at + 1)] for at in range(count)]
        news = make_log(YAMF, 0, count, payload=payloads.__getitem__)
        ends = []
        for role in Role:
            interest = Interest(accept_new_logs=True)
            ends.append(End(Replicator(role=role, interest=interest), MemoryStore(family=YAMF)))
        ends[0].store.append(news[0].entry.log, news)
        exchange(*ends, size_max=1 << 20)
        assert ends[1].store.entry(news[0].entry.log, count).payload_complete


def replicate_operations() -> None:
    """``cbor``, ``operations``, ``hashing``, ``fingerprint`` and ``tree``."""
    from nacl.signing import SigningKey

    from culm.p2panda import MemoryStore, Mode, Policy, Replicator
    from culm.p2panda.author import Author
    from culm.wire.multihash import YASMF
    from two_replicators import End, exchange

    full, empty = MemoryStore(), MemoryStore()
    author, schema = Author(SigningKey(bytes(32)), full), "panda_" + YASMF.hash(b"pandas").hex()
    last = document = author.create(schema, {"name": "panda", "age": 0})
    for age in range(1, COUNT):
        last = author.update(document, {"age": age}, previous=[last])
    ends = []
    for me, peer, store in ((b"a", b"b", empty), (b"b", b"a", full)):
        policy = Policy(asks=me < peer, mode=Mode.SET_RECONCILIATION, live=False)
        machine = Replicator(local_peer=me, remote_peer=peer, policy=policy)
        machine.announce([schema], timestamp=1)
        ends.append(End(machine, store))
    exchange(*ends, size_max=1 << 16)
    assert len(empty.read_new([schema], count_max=COUNT, size_max=1 << 40)) == COUNT


def read_messages() -> None:
    """``classic`` and ``hashing``."""
    from nacl.signing import SigningKey

    from culm.ssb.messages import FeedPlace, create_message, read_message

    last = None
    for number in range(COUNT):
        content = {"type": "post", "text": f"number {number}"}
        made = create_message(SigningKey(bytes(32)), content=content, timestamp=number, last=last)
        last = FeedPlace(made.author, made.sequence, made.id)
        assert read_message(made.data).verify()


def read_parcels() -> None:
    """``xenc``."""
    from culm.oxen.messages import (
        MessageData,
        OneToOne,
        Parcel,
        decode_parcel,
        encode_parcel,
        write_message,
    )

    for number in range(COUNT):
        data = MessageData(b"BBB", b"AAA", number, write_message(OneToOne(2**60, bytes(32))))
        parcel = Parcel(1, 2, data)
        assert decode_parcel(encode_parcel(parcel)) == parcel


def reconcile() -> None:
    """``tree``, ``symbols`` and ``fingerprint``."""
    from culm.reconcile import CompactParameters, CompactSession, Reconciled, Role, Tree
    from culm.testing.link import MachinePair

    chance, trees = Random(1), []
    both = chance.randbytes(32 * ITEMS)
    for _ in Role:
        tree = Tree(item_size=32)
        tree.fill(both + chance.randbytes(32 * COUNT))
        trees.append(tree)
    for parameters in (CompactParameters(), CompactParameters(rateless=True)):
        sides = [
            CompactSession(view=tree, role=role, rng=Random(2), parameters=parameters)
            for tree, role in zip(trees, Role, strict=True)
        ]
        link = MachinePair.of_machines(*sides).run()
        assert Reconciled(keyed=True) in link.left.events


def write_numbers() -> None:
    """``varu64``."""
    from culm.wire import varu64
    from samples import numbers

    values = numbers(ITEMS)
    data = varu64.encode_many(array("Q", values))
    assert b"".join(map(varu64.encode, values)) == varu64.encode_many(values) == data
    assert varu64.decode_many(data)[0] == list(varu64.decode_array(data)[0]) == values
    at = 0
    while at < len(data):
        _, at = varu64.decode(data, at)


def hash_columns() -> None:
    """``hashing`` and ``fingerprint``."""
    from culm.kernels import fingerprint, hashing

    data, offsets = Random(1).randbytes(188 * COUNT), array("i", range(0, 188 * COUNT + 1, 188))
    for function in (hashing.BLAKE2B, hashing.BLAKE3, hashing.SHA256):
        hashing.hash_many(function, data, offsets, b"")
    hashing.verify_many(bytes(32 * COUNT), bytes(64 * COUNT), data, offsets, 0)
    for kind in (fingerprint.SUM, fingerprint.XOR, fingerprint.LTHASH):
        fingerprint.lift_many(kind, data, 188)
        fingerprint.lift_cut(kind, data, array("Q", offsets))


WORKS = (
    replicate_entries,
    replicate_operations,
    read_messages,
    read_parcels,
    reconcile,
    write_numbers,
    hash_columns,
)


TITLES = {f"the kernel {name}": name for name in kernels.NAMES}


def built_by() -> str | None:
    """Processor, compiler and Python, on which the counts depend; none without kernels."""
    try:
        library = kernels.load("varu64", "compiled").__file__
    except ImportError:
        return None
    found = re.search(
        rb"(GCC): \([^)]*\) ([\d.]+)|(clang) version ([\d.]+)", Path(str(library)).read_bytes()
    )
    compiler = b" ".join(filter(None, found.groups())).decode() if found else "a compiler"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{platform.machine()}, {compiler}, Python {python}"


def counted(only: str = "") -> dict[str, float]:
    """Instructions of each kernel with `only` in its title, in thousands."""
    _, part, *_ = callgrind.parts([sys.executable, __file__])
    return {
        title: sum(count for library, count in part.items() if f"/_{name}." in library) / 1000
        for title, name in TITLES.items()
        if only in title
    }


if __name__ == "__main__":
    for name in kernels.NAMES:
        kernels.load(name, "compiled")
    callgrind.mark()
    for each in WORKS:
        each()
    callgrind.mark()
