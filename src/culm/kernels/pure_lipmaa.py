"""Targets of lipmaalinks, for the pure twins that need them; `culm.bamboo.links` explains them."""

from __future__ import annotations

__all__ = ["lipmaa"]


def lipmaa(seqnum: int) -> int:
    """The target of the lipmaalink; that of the backlink for entries that have no other.

    Entry u(k) = (3^k - 1) / 2 links to u(k - 1); others to the entry before the largest
    block of u(k) entries that ends with them.
    """
    tops = [1]
    while tops[-1] < seqnum:
        tops.append(3 * tops[-1] + 1)
    if tops[-1] == seqnum:
        return tops[-2] if len(tops) > 1 else 0
    index = seqnum - 1
    for top in reversed(tops[:-1]):
        index %= top
        if index == top - 1:
            return seqnum - top
    raise AssertionError("every entry ends a block of one")
