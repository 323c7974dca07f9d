"""The connections that a node makes: to whom, and what waits for them."""

from __future__ import annotations

import random
from collections.abc import Iterable

from culm.garlic.link import Link
from culm.garlic.raft.messages import Request
from culm.timers import Deadlines

__all__ = ["Dials"]

_DOUBLINGS_MAX = 64  # beyond that it is the longest pause


class Dials:
    """Owns who is dialled, by id: under way, there, or given a pause after a failure.

    Of the requests to a peer whose connection is on its way the last one is kept; the core
    sends the others again.

    pause, pause_max
        Seconds before a peer is dialled again, at first and at most: they double with every
        connection on which it has not answered anything.
    rng
        Where pauses get shorter from, by up to a half, so that not all servers dial at once.
    """

    __slots__ = (
        "_failures",
        "_links",
        "_pause",
        "_pause_max",
        "_pauses",
        "_pending",
        "_rng",
        "_stopped",
        "_under_way",
    )

    def __init__(self, pause: float, pause_max: float, rng: random.Random) -> None:
        self._pause, self._pause_max, self._rng = pause, pause_max, rng
        self._failures: dict[int, int] = {}  # connections in a row without any answer
        self._under_way: set[int] = set()
        self._links: dict[int, Link] = {}
        self._pauses: Deadlines[int] = Deadlines()
        self._pending: dict[int, Request] = {}
        self._stopped = False

    def missing(self, peers: Iterable[int]) -> int | None:
        """One of `peers` that is not dialled; it is under way from now on."""
        if self._stopped:
            return None
        for peer in peers:
            if peer not in self._links and peer not in self._under_way and peer not in self._pauses:
                self._under_way.add(peer)
                return peer
        return None

    def under_way(self, peer: int) -> bool:
        return peer in self._under_way

    def made(self, peer: int, link: Link) -> None:
        """The connection to `peer` is there."""
        self._under_way.discard(peer)
        self._links[peer] = link

    def failed(self, peer: int, now: float) -> None:
        """Nobody was there; nothing if that was not under way."""
        if peer in self._under_way:
            self._under_way.discard(peer)
            self._pending.pop(peer, None)
            self._wait(peer, now)

    def ended(self, peer: int, now: float) -> None:
        """The connection to `peer` is there no more."""
        del self._links[peer]
        if not self._stopped:
            self._wait(peer, now)

    def answered(self, peer: int) -> None:
        """The peer is there, and does its work."""
        self._failures.pop(peer, None)

    def _wait(self, peer: int, now: float) -> None:
        failures = self._failures.get(peer, 0)
        pause = self._pause_max
        if failures < _DOUBLINGS_MAX:
            pause = min(pause, self._pause * 2**failures)
        self._failures[peer] = min(failures + 1, _DOUBLINGS_MAX)
        self._pauses.set(peer, now + pause * self._rng.uniform(0.5, 1.0))

    def ask(self, request: Request) -> Link | None:
        """Send `request`, hold or drop it; the link that it leaves on."""
        peer = request.destination
        link = self._links.get(peer)
        if link is not None and link.established:
            if not link.closed:
                link.ask(request)
            return link
        if link is not None or peer in self._under_way:
            self._pending[peer] = request
        return None

    def established(self, link: Link) -> None:
        """Frames may go over `link`: what has waited for that does."""
        request = None if link.peer is None else self._pending.pop(link.peer, None)
        if request is not None:
            link.ask(request)

    def next_deadline(self) -> float | None:
        return self._pauses.next()

    def advance(self, now: float) -> None:
        while self._pauses.pop_due(now) is not None:
            pass

    def stop(self) -> None:
        """Nobody is dialled any more."""
        self._stopped = True
        self._under_way.clear()
        self._pending.clear()
        self._pauses.clear()
