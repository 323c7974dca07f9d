"""Known servers: peers, and those that have left."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from culm.oxen.context import Context
from culm.oxen.links import Links
from culm.oxen.messages import Synchronize
from culm.oxen.numbers import Numbers
from culm.oxen.outgoing import Outgoing
from culm.oxen.peer import Peer, Tombstone
from culm.oxen.states import PeerState


class Roster:
    """All peers by their IDs, and the tombstones of those that have left.

    While a peer is given up, or has long not answered since, there is one more place, so that it
    does not keep out a live server: a server that joins there takes over its place.

    A tombstone keeps its place in the last contact table, so that acknowledgements find
    their way for as long as the peer may ask for them.
    """

    def __init__(self, context: Context, links: Links) -> None:
        self.peers: dict[bytes, Peer] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        self._links = links
        self._limits, self._timing = context.limits, context.timing
        self._rng, self._clock = context.rng, context.clock
        self._numbers = Numbers(self._clock, self._rng)
        self.broadcast_sequence = 0
        """The number of our last broadcast."""

    def begin(self) -> None:
        """Start numbering broadcasts; the time must be known."""
        self.broadcast_sequence = self._numbers.next_start()

    def next_broadcast(self) -> int:
        """Take the number of our next broadcast, which is then the last one."""
        self.broadcast_sequence += 1
        return self.broadcast_sequence

    def next_start(self, above: int) -> int:
        """A start for one-to-one messages, above `above` and all numbers of other associations."""
        return self._numbers.next_start(above)

    def has_room_for(self, *, trusted: bool, speaks: bool = False) -> bool:
        """Whether there is room for one more server.

        Strangers, which are not trusted, have places of their own, and make room for all others,
        and in time for each other: the latest is as likely to be honest as earlier ones.

        speaks: a message of it has come, or our user has named it.  A candidate of which none has
            come, and which has acknowledged nothing, makes room for it: it may be out of reach.
        """
        taken = self._is_full() and not self._strangers()
        if taken or (trusted and self._has_all_candidates()):
            return speaks and bool(self._silent())
        return trusted or self._may_be_replaced(self.in_the_way(trusted=False))

    def _may_be_replaced(self, stranger: Peer | None) -> bool:
        """Whether the oldest stranger has to go, by a chance that grows with the time it has had.

        Those who ask at the same time would push each other out before any can prove itself.
        """
        if stranger is None:
            return True
        age = self._clock.unix - stranger.met
        return age >= self._rng.random() * self._timing.redelivery_max_s

    def in_the_way(self, *, trusted: bool) -> Peer | None:
        """The stranger or silent candidate, if any, that has to go to make room for one more."""
        if trusted and self._has_all_candidates():
            return self._silent()[0]
        strangers = self._strangers()
        if self._is_full() or (not trusted and len(strangers) >= self._limits.candidates_max):
            return min(strangers, key=attrgetter("met")) if strangers else self._silent()[0]
        return None

    def _has_all_candidates(self) -> bool:
        candidates = sum(not peer.known_to_user for peer in self.peers.values())
        return candidates - len(self._strangers()) >= self._limits.candidates_max

    def _is_full(self) -> bool:
        """Whether all places are taken, strangers' included."""
        return len(self.peers) >= self._limits.peers_max + any(self._absent())

    def _absent(self) -> Iterator[Peer]:
        """Peers that are given up, or were and can be reached, but have no place for us."""
        until = self._clock.unix - self._timing.usable_s - self._timing.give_up_s
        for peer in self.peers.values():
            is_back = peer.state is PeerState.SYNCHRONIZING and peer.lost
            if peer.state is PeerState.GIVEN_UP or (is_back and peer.since <= until):
                yield peer

    def to_be_replaced(self) -> list[Peer]:
        """The peers whose places newcomers have taken over, if any: those absent for longest."""
        known = sum(
            peer.known_to_user or peer.state is PeerState.JOINED for peer in self.peers.values()
        )
        over = max(0, known - self._limits.peers_max)
        return sorted(self._absent(), key=attrgetter("since"))[:over]

    def _strangers(self) -> list[Peer]:
        """Servers that have proved nothing, and that no trusted server has named."""
        known = self._links.has_heard_of
        return [peer for sid, peer in self.peers.items() if not (peer.known_to_user or known(sid))]

    def _silent(self) -> list[Peer]:
        """Candidates that may be out of reach, and that our user has not named."""
        known = self._links.has_heard_of
        return [
            peer
            for sid, peer in self.peers.items()
            if not (peer.known_to_user or peer.wanted or peer.is_heard) and known(sid)
        ]

    def add(self, sid: bytes) -> Peer:
        """Make server `sid` a peer; it must not be one yet, and there must be room."""
        self.tombstones.pop(sid, None)
        outgoing = Outgoing(
            Synchronize(
                self.broadcast_sequence,
                self._numbers.next_start(),
                self._limits.message_size_max,
                self._limits.tags_size_max,
            ),
            window=self._limits.window_max,
            queue_max=self._limits.queue_max,
            timing=self._timing,
            rng=self._rng,
        )
        self.peers[sid] = peer = Peer(sid, outgoing, self._clock.unix, self._clock.unix)
        self._links.add(sid)
        return peer

    def forget(self, peer: Peer) -> None:
        del self.peers[peer.sid]
        self._links.remove(peer.sid)

    def bury(self, peer: Peer) -> None:
        """Replace `peer`, which has synchronized and has left for good, by a tombstone."""
        assert peer.incoming is not None
        while len(self.tombstones) >= self._limits.peers_max:
            self._unbury(next(iter(self.tombstones)))
        until = self._clock.unix + self._timing.usable_s + self._timing.give_up_s
        self.tombstones[peer.sid] = Tombstone(peer.incoming, until)
        del self.peers[peer.sid]
        self._links.retire(peer.sid)

    def expire(self) -> None:
        """Forget servers that left long ago."""
        now = self._clock.unix
        for sid in [sid for sid, tomb in self.tombstones.items() if tomb.until <= now]:
            self._unbury(sid)

    def _unbury(self, sid: bytes) -> None:
        del self.tombstones[sid]
        self._links.remove(sid)
