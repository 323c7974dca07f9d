"""Associations with peers: who is of the cluster, and what goes between us and them.

Source: manual/dev-oxen.md, "Handling failure" and "Message data (`md`) body types".
"""

from __future__ import annotations

from collections import Counter, deque

from culm.oxen.clock import Clock
from culm.oxen.courier import Courier
from culm.oxen.errors import DropReason
from culm.oxen.events import (
    Delivery,
    FailReason,
    LeaveReason,
    MessageReceived,
    NodeEvent,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerUnreachable,
    SendFailed,
    Writable,
)
from culm.oxen.incoming import Incoming
from culm.oxen.limits import Limits, Timing
from culm.oxen.links import Links
from culm.oxen.messages import (
    Broadcast,
    Synchronize,
    write_message,
)
from culm.oxen.peer import ClaimState, Peer
from culm.oxen.roster import Roster
from culm.oxen.seeds import Seeds
from culm.oxen.states import PeerState, Pressure

__all__ = ["Associations"]

# By themselves: to look one up in its class costs more than a message can afford.
_SYNCHRONIZING, _JOINED, _FINALIZING, _GIVEN_UP = PeerState


class Associations:
    """All associations of a node."""

    def __init__(
        self,
        me: bytes,
        *,
        roster: Roster,
        links: Links,
        limits: Limits,
        timing: Timing,
        clock: Clock,
        dropped: Counter[DropReason],
    ) -> None:
        self.events: deque[NodeEvent] = deque()
        self.leaving = False
        self._me = me
        self._roster = roster
        self.peers = roster.peers
        self._links = links
        self._limits = limits
        self._timing = timing
        self._clock = clock
        self._dropped = dropped
        self.courier = Courier(me, links=links, clock=clock)
        self._seeds = Seeds(timing)

    # -- what the user asks for ---------------------------------------------------------

    def ask_for_help(self, sid: bytes, *, again: bool) -> None:
        """Synchronize with `sid`, which is a peer or for which there is room.

        again: also whenever it is no peer later.
        """
        if again:
            self._seeds.add(sid, self._clock.unix)
        self._links.trust(sid)
        peer = self.peers.get(sid) or self._add(sid, trusted=True)
        peer.ask(self._clock.unix)
        if peer.state is _SYNCHRONIZING:
            self.courier.synchronize(peer)

    def joined(self) -> list[Peer]:
        """Peers to which messages can be sent."""
        return [peer for peer in self.peers.values() if peer.state is _JOINED]

    def send(self, peer: Peer, number: int, delivery: Delivery, data: bytes) -> None:
        """Send to one peer that has joined and has room."""
        peer.outgoing.add(number, delivery, data)
        self.courier.pump(peer)

    def broadcast_datagram(self, number: int, data: bytes) -> None:
        """Send to all that have joined; it fails for those that have no room."""
        for peer in self.joined():
            if peer.outgoing.full:
                self._miss(peer, number)
            else:
                self.send(peer, number, Delivery.DATAGRAM, data)

    def broadcast(self, number: int, data: bytes) -> None:
        """Send to all in order; also to those that will have joined when they get it.

        It fails for those that have joined and have no room.
        """
        sequence = self._roster.next_broadcast()
        d = write_message(Broadcast(sequence, data))
        for peer in self.peers.values():
            if peer.state is _SYNCHRONIZING and peer.outgoing.full:
                # It has joined nobody's broadcasts yet: let it begin with later ones.
                peer.outgoing.restart(sequence)
                self.courier.synchronize(peer)
            elif peer.state is _JOINED and peer.outgoing.full:
                peer.outgoing.skip_broadcast(sequence)
                self._miss(peer, number)
            elif peer.state is _JOINED or peer.state is _SYNCHRONIZING:
                peer.outgoing.add_broadcast(number, sequence, d)
                self.courier.pump(peer)

    def _miss(self, peer: Peer, number: int) -> None:
        self.events.append(SendFailed(peer=peer.sid, message=number, reason=FailReason.QUEUE_FULL))

    def relieve(self) -> None:
        """Tell the user whose queues keep nothing waiting any more."""
        for peer in self.peers.values():
            if peer.outgoing.pressure is not Pressure.NONE:
                self.relieve_one(peer)

    def relieve_one(self, peer: Peer) -> None:
        """The queue of `peer` was full, and may no longer be."""
        if peer.outgoing.relieve() and peer.state is _JOINED:
            self.events.append(Writable(peer=peer.sid))

    def dismiss(self, peer: Peer) -> None:
        """Know nothing of `peer` any more, whatever it still owes us or we it."""
        self.fail(peer, FailReason.PEER_FORGOTTEN)
        self._forget(peer)
        if peer.known_to_user:
            self.events.append(PeerForgotten(peer=peer.sid))

    def finalize(self) -> None:
        """Say goodbye to everybody who may take us for a peer, and forget the others."""
        self.leaving = True
        self._seeds.clear()
        for peer in list(self.peers.values()):
            if peer.state is _JOINED or (
                peer.state is _SYNCHRONIZING and peer.incoming is not None
            ):
                peer.outgoing.add_finalize()
                self.courier.pump(peer)
            elif peer.state is not _FINALIZING:
                self._forget(peer)

    @property
    def settled(self) -> bool:
        """Whether everybody has got what we sent, and we what those announced who leave."""
        return not any(
            len(peer.outgoing) or peer.state is _FINALIZING for peer in self.peers.values()
        )

    def abandon(self) -> None:
        """Wait for nothing any more."""
        for peer in self.peers.values():
            self.fail(peer, FailReason.NODE_CLOSED)
            self.courier.forget(peer.sid)
        self.peers.clear()

    # -- time ---------------------------------------------------------------------------

    def review(self) -> None:
        """Give up on peers that stay unreachable, and take back those that are reachable again."""
        now = self._clock.unix
        for peer in list(self.peers.values()):
            if peer.state is _GIVEN_UP:
                if self._links.contacts.reachable(peer.sid, now):
                    self._take_back(peer)
                elif now - peer.since >= self._timing.forget_s and peer.sid not in self._seeds:
                    self.dismiss(peer)
            elif self._is_overdue(peer, now):
                if peer.known_to_user:
                    self._give_up(peer)
                else:
                    self._forget(peer)
                    if peer.wanted:
                        self.events.append(PeerUnreachable(peer=peer.sid))
        self._roster.expire()
        self._seek_seeds(now)

    def _seek_seeds(self, now: float) -> None:
        """Ask those for help again that are no peers."""
        for sid in self._seeds:
            peer = self.peers.get(sid)
            if peer is not None and peer.known_to_user:
                self._seeds.found(sid)
            elif (
                peer is None
                and sid not in self._roster.tombstones  # its last words may still come
                and self._roster.has_room_for(trusted=True)
                and self._seeds.miss(sid, now)
            ):
                self._seeds.asked(sid)
                peer = self._add(sid, trusted=True)
                peer.ask_again(now - self._timing.give_up_s)
                self.courier.synchronize(peer)

    def forget(self, sid: bytes) -> None:
        """Know nothing of `sid` any more, and do not ask it for help again."""
        self._seeds.remove(sid)
        peer = self.peers.get(sid)
        if peer is not None:
            self.dismiss(peer)

    def _is_overdue(self, peer: Peer, now: float) -> bool:
        """Whether all links to `peer` are unusable for long, or it takes long to join."""
        deadline = now - self._timing.usable_s - self._timing.give_up_s
        if peer.since > deadline:
            return False
        if not peer.known_to_user:
            return True
        contacts = self._links.contacts
        return (
            contacts.get(self._me, peer.sid) <= deadline and contacts.newest(peer.sid) <= deadline
        )

    def _give_up(self, peer: Peer) -> None:
        self.fail(peer, FailReason.PEER_UNREACHABLE)
        peer.enter(_GIVEN_UP, self._clock.unix)
        self._links.ban(peer.sid)
        if peer.vanish():
            self.events.append(PeerUnreachable(peer=peer.sid))
        if self.leaving:
            self._forget(peer)

    def _take_back(self, peer: Peer) -> None:
        peer.outgoing.restart(self._roster.broadcast_sequence)
        peer.enter(_SYNCHRONIZING, self._clock.unix)
        self._links.unban(peer.sid)
        self.courier.synchronize(peer)

    def admit(self, sid: bytes, *, trusted: bool) -> Peer | None:
        """Make a peer of an unknown server, if there is room."""
        if self.leaving or not self._roster.has_room_for(trusted=trusted):
            self._dropped[DropReason.PEERS_LIMIT] += 1
            return None
        return self._add(sid, trusted=trusted)

    def _add(self, sid: bytes, *, trusted: bool) -> Peer:
        stranger = self._roster.in_the_way(trusted=trusted)
        if stranger is not None:
            self._forget(stranger)
            self._dropped[DropReason.PEERS_LIMIT] += 1
        if trusted:
            self._links.trust(sid)
        return self._roster.add(sid)

    # -- turns that an association takes ----------------------------------------------------

    def join(self, peer: Peer, incoming: Incoming) -> None:
        peer.enter(_JOINED, self._clock.unix)
        sid = peer.sid
        self.events.append(PeerReachable(peer=sid) if peer.appear() else PeerJoined(peer=sid))
        self.hand_out(peer, incoming)
        self._links.share(sid)
        peer.outgoing.release()
        self.courier.pump(peer)

    def doubt(self, peer: Peer, message: Synchronize) -> bool:
        """Somebody says that the peer has started anew: ask it, and believe silence only.

        A forged message, or an old one that comes again, so changes nothing, while the peer can
        answer for the association; one that has started anew cannot, and says it again.  One
        that has not, but was not heard, learns by our numbers, which are new as well, what we
        took it for.
        """
        now, claim = self._clock.unix, peer.claim
        if claim is not None and claim.state is ClaimState.ASKED and claim.message == message:
            if now >= claim.until:
                return self.restart(peer, message, one=self._roster.next_start())
        elif claim is None or now >= claim.until:
            peer.doubt(message, now + peer.outgoing.flight.patience)
            if not peer.outgoing.challenged:
                self.courier.challenge(peer)
        self._dropped[DropReason.STALE_SYNCHRONIZE] += 1
        return False

    def go_in_peace(self, peer: Peer, incoming: Incoming) -> None:
        """A peer says goodbye of which we did not know that it had joined.

        It has, or it could not have: its acknowledgement has been overtaken.
        """
        peer.enter(_JOINED, self._clock.unix)
        sid = peer.sid
        self.events.append(PeerReachable(peer=sid) if peer.appear() else PeerJoined(peer=sid))
        self.hand_out(peer, incoming)

    def restart(self, peer: Peer, message: Synchronize, *, one: int | None = None) -> bool:
        """The peer has started anew: so does the association with it, unless we are leaving.

        one: number after which our one-to-one messages go on, if not after the last.
        """
        self.fail(peer, FailReason.PEER_RESTARTED)
        if peer.leave():
            self.events.append(PeerLeft(peer=peer.sid, reason=LeaveReason.RESTARTED))
        if self.leaving:
            self._forget(peer)
            return False
        if one is not None:
            peer.outgoing.renumber(one)
        peer.start_anew(Incoming(message, self._limits.window_max), self._clock.unix)
        self.courier.synchronize(peer)
        return True

    def deliver(self, peer: Peer, delivery: Delivery, messages: list[bytes]) -> None:
        for data in messages:
            self.events.append(MessageReceived(peer=peer.sid, data=data, delivery=delivery))

    def hand_out(self, peer: Peer, incoming: Incoming) -> None:
        """Deliver what waited for messages that the peer has given up meanwhile.

        It was acknowledged, so nobody sends it again, however we stood with the peer since.
        """
        for delivery, data in incoming.take_ready():
            self.deliver(peer, delivery, [data])

    def fail(self, peer: Peer, reason: FailReason) -> None:
        """Send nothing more of what waits for `peer`, and say so to the user."""
        told = peer.present
        for number in peer.outgoing.restart(self._roster.broadcast_sequence):
            if told:
                self.events.append(SendFailed(peer=peer.sid, message=number, reason=reason))

    def bury_if_complete(self, peer: Peer) -> None:
        if peer.state is _FINALIZING and not (self.leaving and len(peer.outgoing)):
            assert peer.incoming is not None
            if peer.incoming.complete:
                self.bury(peer)

    def bury(self, peer: Peer) -> None:
        """The peer has left for good."""
        assert peer.incoming is not None
        if peer.known_to_user:
            self.events.append(PeerLeft(peer=peer.sid, reason=LeaveReason.FINALIZED))
        self.courier.forget(peer.sid)
        self._roster.bury(peer)

    def _forget(self, peer: Peer) -> None:
        self.courier.forget(peer.sid)
        self._roster.forget(peer)
