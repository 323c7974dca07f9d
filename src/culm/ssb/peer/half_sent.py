"""Packets that have come in part: their room, and the one that has to go when there is none."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

__all__ = ["HalfSent"]


class _Part(NamedTuple):
    """The part of a packet that has come.

    since: time of the first byte.
    """

    size: int
    since: float


class HalfSent:
    """The packets of all links that have come in part, oldest first.

    size_max: bytes that they may hold together.
    links_max: number of links that there may be.

    Half of the room is for peers that are known, and half for strangers; either may use room that
    the other does not need.  A link that holds no more than an equal share of its half always
    stays.
    """

    def __init__(self, *, size_max: int, links_max: int) -> None:
        self.size = 0
        self._size_max = size_max
        self._share = size_max // (2 * links_max)
        self._parts: dict[int, _Part] = {}  # by number of the link

    def note(self, link: int, size: int, now: float) -> None:
        """Record the bytes that a link holds; if they are fewer than before, the packet is new."""
        part = self._parts.get(link, _Part(0, now))
        self.size += size - part.size
        if size < part.size:
            del self._parts[link]
            part = _Part(0, now)
        if size:
            self._parts[link] = part._replace(size=size)

    def excess(self, now: float, is_known: Callable[[int], bool]) -> int | None:
        """The link that has to end; ``None`` if there is room for all.

        It is the one whose packet comes slowest: of the strangers, if they hold more than half.
        """
        if self.size <= self._size_max:
            return None
        known = {link: part for link, part in self._parts.items() if is_known(link)}
        size_known = sum(part.size for part in known.values())
        if self.size - size_known > self._size_max / 2:
            found = {link: part for link, part in self._parts.items() if link not in known}
        else:
            found = known
        large = (link for link, part in found.items() if part.size > self._share)
        return min(large, key=lambda link: _pace(found[link], now))


def _pace(part: _Part, now: float) -> float:
    """Bytes a second; infinite if the packet has only begun."""
    return part.size / (now - part.since) if now > part.since else inf
