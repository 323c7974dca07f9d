"""The connections that a node makes to its peers, and the requests that wait for them."""

from __future__ import annotations

import random
from collections.abc import Iterable

from culm.garlic.limits import Timing
from culm.garlic.link import Link
from culm.garlic.raft.messages import RaftRequest
from culm.timers import Deadlines, earliest

_DOUBLINGS_MAX = 64  # if the shortest pause is none


class Dials:
    """Owns the connections to peers, by id: being dialled, established, or pausing after a failure.

    While a connection is being made, only the last request to that peer is kept; the core sends
    the others again.

    timing
        The pauses, which double with every connection on which a peer has answered nothing, and the
        wait for an answer while no byte moves, which doubles with every connection given up, until
        a request as large is answered: what the operating system has taken at once may be on its
        way for longer.
    rng
        Shortens pauses by up to a half, so that servers do not all dial at once.
    """

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self._timing, self._rng = timing, rng
        self._failures: dict[int, int] = {}  # connections in a row without any answer
        self._under_way: set[int] = set()
        self._links: dict[int, Link] = {}
        self._pauses: Deadlines[int] = Deadlines()
        self._owed: Deadlines[int] = Deadlines()  # the next look at whether a peer still answers
        self._waits: dict[int, tuple[float, int]] = {}  # a longer wait, and for how many bytes
        self._pending: dict[int, RaftRequest] = {}
        self._stopped = False

    def missing(self, peers: Iterable[int]) -> int | None:
        """One of `peers` to dial now; it counts as being dialled from now on."""
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
        """The connection to `peer` is established."""
        self._under_way.discard(peer)
        self._links[peer] = link
        if peer in self._waits:
            link.doubt(self._waits[peer][1])

    def failed(self, peer: int, now: float) -> None:
        """The dial has failed; no effect if there was none."""
        if peer in self._under_way:
            self._under_way.discard(peer)
            self._pending.pop(peer, None)
            self._wait(peer, now)

    def ended(self, peer: int, now: float, *, in_vain: bool) -> None:
        """The connection to `peer` has ended; in vain if there was no time for its handshake."""
        del self._links[peer]
        self._owed.cancel(peer)
        if not self._stopped:  # those that share few places leave each other time
            self._wait(peer, now, self._timing.handshake_timeout_s if in_vain else 0.0)

    def answered(self, peer: int) -> None:
        """The peer has answered, so the next pause is short again."""
        self._failures.pop(peer, None)

    def _wait(self, peer: int, now: float, longest: float = 0.0) -> None:
        longest = max(longest, self._timing.dial_pause_max_s)
        failures = self._failures.get(peer, 0)
        pause = self._timing.dial_pause_s * 2**failures
        if pause < longest and failures < _DOUBLINGS_MAX:
            self._failures[peer] = failures + 1
        self._pauses.set(peer, now + min(pause, longest) * self._rng.uniform(0.5, 1.0))

    def link_to(self, peer: int) -> Link | None:
        """The link to `peer`, if frames may go over it."""
        link = self._links.get(peer)
        return link if link is not None and link.established else None

    def hold(self, request: RaftRequest) -> None:
        """Keep `request` until there is a link, if one is being made."""
        peer = request.destination
        if peer in self._links or peer in self._under_way:
            self._pending[peer] = request

    def ask(self, link: Link, request: RaftRequest) -> bool:
        """Send `request` over an established link; false if it has no place there."""
        if link.closed or not link.ask(request):
            return False
        peer = request.destination
        if peer not in self._owed and (since := link.quiet_since) is not None:
            self._owed.set(peer, since + self._timing.answer_timeout_s)
        return True

    def established(self, link: Link) -> None:
        """Frames may go over `link`: send the request that has waited for it."""
        peer = link.peer
        request = None if peer is None else self._pending.pop(peer, None)
        if peer is not None and request is not None:
            self.ask(link, request)

    def next_deadline(self) -> float | None:
        return earliest(self._pauses.next(), self._owed.next())

    def advance(self, now: float) -> list[Link]:
        """Let pauses end; returns the connections whose peers have been silent for too long."""
        while self._pauses.pop_due(now) is not None:
            pass
        silent: list[Link] = []
        while (peer := self._owed.pop_due(now)) is not None:
            link = self._links[peer]
            if link.doubted is None:
                self._waits.pop(peer, None)
            wait, _ = self._waits.get(peer, (self._timing.answer_timeout_s, 0))
            if (since := link.quiet_since) is None:
                continue  # looked at again with the next request
            if since + wait > now:
                self._owed.set(peer, since + wait)
            else:
                self._waits[peer] = 2 * wait, link.owed_size
                silent.append(link)
        return silent

    def stop(self) -> None:
        """Dial no more."""
        self._stopped = True
        self._under_way.clear()
        self._pending.clear()
        self._pauses.clear()
        self._owed.clear()
