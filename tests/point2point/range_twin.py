"""A plain twin of `Range` and `Cursor`: lists of pieces, searched from front to back."""

from __future__ import annotations

from collections import deque
from functools import cache

from culm.point2point import Proposal

HORIZON = 60  # entries in a range without end

METADATA, PAYLOAD = 0, 1
Place = tuple[int, int]  # sequence number, part


@cache
def lipmaa(n: int) -> int:
    """The definition of the specification of bamboo, word for word."""

    def g(n: int) -> int:
        k = 1
        while (3**k - 1) // 2 < n:
            k += 1
        return k if n == (3**k - 1) // 2 else g(n - (3 ** (k - 1) - 1) // 2)

    for k in range(1, 10):
        if n == (3**k - 1) // 2:
            return n - 3 ** (k - 1)
    return n - (3 ** g(n) - 1) // 2


@cache
def path(from_: int, to: int) -> frozenset[int]:
    """The entries of a shortest path of links, found by looking everywhere."""
    paths = deque([(from_,)])
    while paths:
        here = paths.popleft()
        if here[-1] == to:
            return frozenset(here)
        for target in {here[-1] - 1, lipmaa(here[-1])}:
            if target >= to:
                paths.append((*here, target))
    raise AssertionError


@cache
def top(n: int) -> int:
    return next(u for k in range(1, 9) if (u := (3**k - 1) // 2) >= n)


def pieces(proposal: Proposal, end: int | None, upper: int | None) -> list[Place]:
    """Decision 15, word for word."""
    start = proposal.start
    found: list[Place] = []
    if proposal.lower_certpool is not None:
        pool = path(start, 1)
        found += [(n, METADATA) for n in range(proposal.lower_certpool, start) if n in pool]
    last = HORIZON if end is None else end
    for n in range(start, last + 1):
        if proposal.sparse and end is not None and n not in path(end, start):
            continue
        begins_inside = proposal.start_offset is not None and n == start
        if not proposal.payload_only and not begins_inside:
            found.append((n, METADATA))
        found.append((n, PAYLOAD))
    if end is not None:
        pool = path(top(end), end)
        highest = top(end) if upper is None else upper
        found += [(n, METADATA) for n in range(end + 1, highest + 1) if n in pool]
    return found


def index_after(pieces: list[Place], place: Place | None) -> int:
    """The number of pieces that come no later than `place`."""
    return 0 if place is None else sum(piece <= place for piece in pieces)
