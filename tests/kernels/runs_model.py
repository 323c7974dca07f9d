"""Runs of entries put together by hand: logs of any sequence numbers, and their packets."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from culm.bamboo.entry import Entry
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.wire.multihash import HashFamily

HEAD = bytes(range(100, 132)) + b"\xf9\x01\x00"  # an author, and log 256


def varu64(value: int, octets: int = 0) -> bytes:
    """In `octets` bytes after the first one, or in more if these are too few."""
    if value < 248 and not octets:
        return bytes([value])
    octets = max(octets, (value.bit_length() + 7) // 8, 1)
    return bytes([247 + octets]) + value.to_bytes(octets, "big")


@dataclass
class Packets:
    """One entry on the wire; a field set here need not be true of the entry."""

    entry: Entry
    body: bytes
    compressed: bool = False
    first: int = 128
    backlink: bytes = b""
    payload_hash: bytes = b""
    payload_first: int | None = None
    announced: int | None = None
    packed_size: int | None = None
    octets: dict[str, int] = field(default_factory=dict)  # by the names of the numbers

    def encode(self) -> bytes:
        size = self.entry.payload_size
        announced = size if self.announced is None else self.announced
        packed_size = len(self.body) if self.packed_size is None else self.packed_size
        payload_first = self.payload_first
        return b"".join(
            (
                bytes([self.first]),
                self.backlink,
                varu64(size, self.octets.get("size", 0)),
                self.payload_hash or self.entry.payload_hash,
                self.entry.signature,
                bytes([8 + self.compressed if payload_first is None else payload_first]),
                varu64(announced, self.octets.get("announced", 0)),
                varu64(packed_size, self.octets.get("packed", 0)) if self.compressed else b"",
                self.body,
            )
        )


@dataclass
class Run:
    """Entries that follow each other, and the hashes of older ones to which they link."""

    family: HashFamily
    start: int
    links: dict[int, bytes]
    packets: list[Packets]

    def encode(self) -> bytes:
        return b"".join(each.encode() for each in self.packets)

    def arguments(self, **changes: Any) -> list[Any]:
        """The arguments of `read` for this run, in order."""
        arguments = {
            "data": self.encode(),
            "head": HEAD,
            "seqnum": self.start,
            "count_max": 1000,
            "size_min": 0,
            "size_max": 2**64 - 1,
            "links": self.links,
            "prefix": self.family.prefix,
            "link_size": self.family.encoded_size,
            "hash": self.family.hash,
        }
        assert changes.keys() <= arguments.keys()
        return list((arguments | changes).values())

    def expected(self) -> list[tuple[Any, ...]]:
        """The expected result of reading the whole run."""
        records: list[tuple[Any, ...]] = []
        end = 0
        for each in self.packets:
            entry = each.entry
            end += len(each.encode())
            records.append(
                (
                    entry.seqnum,
                    entry.lipmaalink,
                    entry.backlink,
                    entry.payload_size,
                    entry.payload_hash,
                    entry.signature,
                    entry.encode(),
                    entry.hash(),
                    each.body,
                    each.compressed,
                    end,
                )
            )
        return records


def make_run(family: HashFamily, start: int, sizes: list[int], seed: int = 0) -> Run:
    """Entries from `start` on with payloads of these sizes, some of them "compressed".

    They are unsigned, and their links to entries before `start` lead nowhere.
    """
    chance = Random(seed)
    hashes: dict[int, bytes] = {}
    links: dict[int, bytes] = {}
    packets: list[Packets] = []

    def link(target: int) -> bytes:
        if target in hashes:
            return hashes[target]
        return links.setdefault(target, family.hash(chance.randbytes(8)))

    for seqnum, size in enumerate(sizes, start):
        compressed = chance.random() < 0.4
        body = chance.randbytes(chance.randint(0, 2 * size) if compressed else size)
        entry = Entry(
            family=family,
            author=HEAD[:32],
            log_id=256,
            seqnum=seqnum,
            lipmaalink=link(lipmaa(seqnum)) if has_lipmaalink(seqnum) else None,
            backlink=link(seqnum - 1) if seqnum > 1 else None,
            payload_size=size,
            payload_hash=family.hash(body),
            signature=chance.randbytes(64),
        )
        hashes[seqnum] = entry.hash()
        packets.append(Packets(entry, body, compressed))
    return Run(family, start, links, packets)
