"""Findings from a block of a log by itself: the part of an audit that runs in Python.

A block is 1024 sequence numbers of a log, which differ only in their last ten bits.  Links rarely
leave it: entries after a block can link to at most 42 of the entries up to its end
(`culm.bamboo.links.open_targets`), so in a large log one link in a hundred is left for a join.
Blocks are small enough to spread a log of any size evenly over tasks, and large enough that their
summaries are small beside the rows that they summarise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from culm.bamboo.errors import Reason
from culm.bamboo.links import SEQNUM_MAX, open_targets
from culm.spark.reasons import bits

#: The number of low bits of a sequence number that tell its place in a block.
BLOCK_BITS = 10
#: The ordinal of sequence number 0: ordinals are 64 bits with a sign, and sort as the numbers do.
LOWEST = -(2**63)

#: The columns of a summary of a block, ordinals in place of sequence numbers.
SUMMARY = (
    ("log", "binary"),
    ("block", "bigint"),
    ("rows", "bigint"),
    ("entries", "bigint"),
    ("highest", "bigint"),
    ("forks", "bigint"),
    ("gaps", "bigint"),
    ("unbroken", "bigint"),
    ("forked_at", "bigint"),
    ("lied_at", "bigint"),
    ("ended_at", "bigint"),
    ("back_at", "bigint"),
    ("lipmaa_at", "bigint"),
    ("marks", "array<struct<n:bigint,hash:binary,bits:int>>"),
    ("links", "array<struct<n:bigint,target:bigint,link:binary,hash:binary,bits:int>>"),
    ("opens", "array<struct<n:bigint,hashes:array<binary>>>"),
)

#: The columns of a row that its author has signed: the fields of `Signed`.
SIGNED = (
    ("log", "binary"),
    ("n", "bigint"),
    ("hash", "binary"),
    ("target", "bigint"),
    ("backlink", "binary"),
    ("lipmaalink", "binary"),
    ("ended", "boolean"),
    ("lied", "boolean"),
    ("copies", "bigint"),
)

#: The bits of links.
BACK, LIPMAA = bits(Reason.WRONG_BACKLINK), bits(Reason.WRONG_LIPMAALINK)
_FORK = bits(Reason.FORK)


class Signed(NamedTuple):
    """A row that its author has signed, as the audit needs it; sequence numbers are ordinals.

    A row stands for its `copies`; it `lied` if the payload of one of them shows that.
    """

    log: bytes
    n: int
    hash: bytes
    target: int
    backlink: bytes | None
    lipmaalink: bytes | None
    ended: bool
    lied: bool
    copies: int = 1


@dataclass(slots=True)
class Summary:
    """The summary of a block; fields as in `SUMMARY`.

    ``unbroken`` is the last entry before the first missing one, ``None`` if none is missing;
    ``links`` are those that leave the block, ``opens`` the entries that later blocks can link to.
    """

    log: bytes
    block: int
    rows: int = 0
    entries: int = 0
    highest: int = 0
    forks: int = 0
    gaps: int = 0
    unbroken: int | None = None
    forked_at: int | None = None
    lied_at: int | None = None
    ended_at: int | None = None
    back_at: int | None = None
    lipmaa_at: int | None = None
    marks: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    opens: list[dict[str, Any]] = field(default_factory=list)

    def add_gap(self, before: int) -> None:
        """Note that entries are missing after this one."""
        self.gaps += 1
        self.ends_at(before)

    def ends_at(self, last: int) -> None:
        """Note that the unbroken beginning ends here, unless it has ended before."""
        if self.unbroken is None:
            self.unbroken = last

    def mark_backlink(self, row: Signed) -> None:
        """Note a backlink that does not fit."""
        self.back_at = row.n if self.back_at is None else self.back_at
        self.marks.append({"n": row.n, "hash": row.hash, "bits": BACK})

    def mark_lipmaalink(self, row: Signed) -> None:
        """Note a lipmaalink that does not fit."""
        self.lipmaa_at = row.n if self.lipmaa_at is None else self.lipmaa_at
        self.marks.append({"n": row.n, "hash": row.hash, "bits": LIPMAA})


@lru_cache(maxsize=1 << 12)
def span(block: int) -> tuple[int, int, tuple[int, ...]]:
    """A block's first and last ordinal, and those up to its end that later blocks can link to."""
    first = block << BLOCK_BITS
    last = first + (1 << BLOCK_BITS) - 1
    first = max(first, LOWEST + 1)
    end = last - LOWEST
    # No entry after the largest number could link.
    opens = open_targets(end) if end < SEQNUM_MAX else []
    return first, last, tuple(n + LOWEST for n in opens)


def summarise(rows: list[Signed]) -> Summary:
    """The summary of a block from its rows, at least one, in ascending order of ``n``."""
    log, block = rows[0].log, rows[0].n >> BLOCK_BITS
    first, last, opens = span(block)
    places: dict[int, set[bytes]] = {}
    for row in rows:
        places.setdefault(row.n, set()).add(row.hash)
    found = Summary(
        log, block, rows=sum(row.copies for row in rows), entries=len(places), highest=rows[-1].n
    )
    _look_for_gaps(found, places, first, last)
    for n, hashes in places.items():
        if len(hashes) > 1:
            found.forks += 1
            found.forked_at = n if found.forked_at is None else found.forked_at
            found.marks += [{"n": n, "hash": hash, "bits": _FORK} for hash in sorted(hashes)]
    seen: set[tuple[int, bytes]] = set()
    for row in rows:
        if row.ended and found.ended_at is None:
            found.ended_at = row.n
        if row.lied and found.lied_at is None:
            found.lied_at = row.n
        if (row.n, row.hash) not in seen:
            seen.add((row.n, row.hash))
            _look_at_links(found, places, row, first)
    found.opens = [{"n": n, "hashes": sorted(places[n])} for n in opens if n in places]
    return found


def _look_for_gaps(found: Summary, places: Iterable[int], first: int, last: int) -> None:
    expected = first
    for n in places:
        if n != expected:
            # The join tells whether the entry before the block exists.
            found.add_gap(expected - 1)
        expected = n + 1
    if expected <= last:
        found.ends_at(expected - 1)


def _look_at_links(found: Summary, places: dict[int, set[bytes]], row: Signed, first: int) -> None:
    if row.backlink is not None:
        known = places.get(row.n - 1)
        if known is None and row.n - 1 < first:
            found.links.append(_link(row, row.n - 1, row.backlink, BACK))
        elif known is not None and row.backlink not in known:
            found.mark_backlink(row)
    if row.lipmaalink is not None:
        known = places.get(row.target)
        if known is None and row.target < first:
            found.links.append(_link(row, row.target, row.lipmaalink, LIPMAA))
        elif known is not None and row.lipmaalink not in known:
            found.mark_lipmaalink(row)


def _link(row: Signed, target: int, link: bytes, bits: int) -> dict[str, Any]:
    return {"n": row.n, "target": target, "link": link, "hash": row.hash, "bits": bits}
