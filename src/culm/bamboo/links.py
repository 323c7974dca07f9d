"""The links of a log: lipmaa numbers, shortest paths, certificate pools.

Every entry but the first links to the one before it (backlink) and to an older one
chosen such that paths stay short (lipmaalink).  The scheme is that of Buldas and Laud,
"New linking schemes for digital time-stamping" (1998), as Bamboo numbers it.

Write u(k) = (3^k - 1) / 2: 1, 4, 13, 40, ...  The log is a nest of blocks: a block of
level k + 1 is three blocks of level k and one more entry, u(k + 1) entries in all.  The
last entry of a block of level k links to the entry just before the block; if there is
none, because the block begins the log, to u(k - 1).

Links do not cross: no entry after an entry n links to an entry between n and the target
of its lipmaalink.  Most results of this module follow from that, and so does all that
`culm.bamboo.verify` can afford to forget.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable
from itertools import pairwise

SEQNUM_MAX = 2**64 - 1

# u(0) = 0, u(1), ...; u(42) is the first above SEQNUM_MAX.
_TOPS: list[int] = [(3**k - 1) // 2 for k in range(43)]

# Levels of the entries 1 .. u(_RULER_LEVEL), that is g(n) of the specification.
_RULER_LEVEL = 10


def _ruler(level: int) -> bytes:
    levels = b""
    for k in range(1, level + 1):
        levels = levels * 3 + bytes([k])
    return levels


_RULER = _ruler(_RULER_LEVEL)


def _level(seqnum: int) -> int:
    """Of the blocks that end with this entry, the level of the largest: g(n).

    For the entries of most logs `_RULER` has it; callers in a hurry look there first.
    """
    index = seqnum - 1
    for k in range(bisect_left(_TOPS, seqnum), _RULER_LEVEL - 1, -1):
        index %= _TOPS[k]
        if index == _TOPS[k] - 1:
            return k
    return _RULER[index]


def lipmaa(seqnum: int) -> int:
    """Number of the entry to which the lipmaalink of entry `seqnum` points; 0 for entry 1."""
    level = _RULER[seqnum - 1] if seqnum <= len(_RULER) else _level(seqnum)
    top = _TOPS[level]
    return seqnum - top if seqnum != top else _TOPS[level - 1]


def has_lipmaalink(seqnum: int) -> bool:
    """Whether the entry encodes a lipmaalink, that is one distinct from its backlink."""
    return (_RULER[seqnum - 1] if seqnum <= len(_RULER) else _level(seqnum)) > 1


def shortest_path(from_: int, to: int) -> list[int]:
    """The shortest path of links from `from_` down to `to`, both included, descending.

    Its length grows with the logarithm of the distance.  Because links do not cross,
    every path between the two goes through every entry of this one: a set of entries
    holds a path exactly if it holds this path.

    Raises `ValueError` unless ``from_ >= to >= 1``.
    """
    if not 1 <= to <= from_:
        raise ValueError(f"no links lead from entry {from_} to entry {to}")
    path, blocks = [from_], _blocks(from_)
    while from_ > to:
        level = blocks.pop()
        before = from_ - _TOPS[level]
        if before >= to:
            from_ = before
        elif not before and _TOPS[level - 1] >= to:
            from_ = _TOPS[level - 1]
            blocks.append(level - 1)
        else:
            from_ -= 1
            blocks += 3 * [level - 1]
        path.append(from_)
    return path


def _blocks(seqnum: int) -> list[int]:
    """The levels of the largest blocks of which the entries up to `seqnum` consist, in order.

    The lipmaalink of `seqnum` leads over the last of them, and its backlink to the last of the
    three blocks inside that.
    """
    blocks: list[int] = []
    level = bisect_right(_TOPS, seqnum)
    while seqnum:
        level -= 1
        count, seqnum = divmod(seqnum, _TOPS[level])
        blocks += count * [level]
    return blocks


def pool_top(seqnum: int) -> int:
    """The smallest u(k) at or above `seqnum`, where its certificate pool ends.

    Above u(41) = 18236498188585393201 this is u(42), an entry that cannot exist because
    sequence numbers end at 2**64 - 1.
    """
    return _TOPS[bisect_left(_TOPS, seqnum)]


def lower_pool(seqnum: int) -> list[int]:
    """The certificate pool at and below `seqnum`: the path to entry 1, ascending."""
    return shortest_path(seqnum, 1)[::-1]


def upper_pool(seqnum: int) -> list[int]:
    """The certificate pool above `seqnum`: the path from `pool_top`, ascending.

    Numbers beyond 2**64 - 1 are left out.
    """
    pool = shortest_path(pool_top(seqnum), seqnum)[-2::-1]
    return pool[: bisect_right(pool, SEQNUM_MAX)]


def certificate_pool(seqnum: int) -> list[int]:
    """The entries that a peer stores to hold entry `seqnum` verifiably for good, ascending.

    For any x < y the union of their pools holds a path of links from y through x to 1.
    """
    return lower_pool(seqnum) + upper_pool(seqnum)


def certificate_gaps(wanted: Iterable[int], present: Container[int]) -> list[int]:
    """The entries that `present` lacks for the subset `wanted` to count as verified, ascending.

    A subset is verified as a whole if one path of links leads from its newest entry to
    entry 1 through all the others ("Partial Replication and Log Verification").  All
    of `present` has to be verified entry by entry.
    """
    stops = sorted({0, *wanted})
    return [
        number
        for older, newer in pairwise(stops)
        for number in shortest_path(newer, older or 1)[::-1]
        if number > older and number not in present
    ]


def open_targets(head: int) -> list[int]:
    """The entries up to `head` to which entries after `head` can link, ascending.

    These hashes are all that verifying or authoring the rest of a log takes.  There are
    at most 42 of them: `head` itself, the entry before each block that is still open,
    and the newest u(k).
    """
    top = bisect_right(_TOPS, head) - 1
    targets = [_TOPS[top]]
    index = head
    for k in range(top, 0, -1):
        index %= _TOPS[k]
        if head - index != targets[-1]:
            targets.append(head - index)
    return targets if head else []
