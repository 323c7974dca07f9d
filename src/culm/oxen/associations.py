"""Associations with peers: who is of the cluster, and what goes between us and them.

Source: manual/dev-oxen.md, "Handling failure" and "Message data (`md`) body types".
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from culm.machine import Event
from culm.oxen.clock import Clock
from culm.oxen.courier import Courier
from culm.oxen.errors import DropReason
from culm.oxen.events import (
    Delivery,
    FailReason,
    LeaveReason,
    MessageReceived,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerUnreachable,
    SendFailed,
)
from culm.oxen.incoming import Age, Incoming
from culm.oxen.limits import Limits, Timing
from culm.oxen.links import Links
from culm.oxen.messages import (
    Broadcast,
    Datagram,
    Finalize,
    Gossip,
    Message,
    MessageAck,
    MessageData,
    OneToOne,
    ParcelError,
    Synchronize,
    read_message,
    write_message,
)
from culm.oxen.peer import Peer, PeerState
from culm.oxen.roster import Roster

__all__ = ["Associations"]

_TALKING = (PeerState.JOINED, PeerState.FINALIZING)


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
        self.events: deque[Event] = deque()
        self.leaving = False
        self._me = me
        self._roster = roster
        self.peers = roster.peers
        self._links = links
        self._limits = limits
        self._timing = timing
        self._clock = clock
        self._dropped = dropped
        self.courier = Courier(me, links=links, timing=timing, clock=clock)
        self._handlers: dict[type, Callable[[Peer, Any], bool]] = {
            Datagram: self._receive_datagram,
            Synchronize: self._receive_synchronize,
            Finalize: self._receive_finalize,
            Broadcast: self._receive_in_order,
            OneToOne: self._receive_in_order,
        }

    # -- what the user asks for ---------------------------------------------------------

    def ask_for_help(self, sid: bytes) -> None:
        """Synchronize with `sid`, which is a peer or for which there is room."""
        peer = self.peers.get(sid) or self._roster.add(sid)
        if not peer.known_to_user:
            peer.since = self._clock.unix  # it has all the time to answer
        peer.wanted = True
        if peer.state is PeerState.SYNCHRONIZING:
            self.courier.synchronize(peer)

    def joined(self) -> list[Peer]:
        """Peers to which messages can be sent."""
        return [peer for peer in self.peers.values() if peer.state is PeerState.JOINED]

    def send(self, peer: Peer, number: int, delivery: Delivery, data: bytes) -> None:
        """Send to one peer that has joined and has room."""
        peer.outgoing.add(number, delivery, data)
        self.courier.pump(peer)

    def broadcast(self, number: int, data: bytes) -> None:
        """Send to all in order; also to those that will have joined when they get it."""
        self._roster.broadcast_sequence += 1
        d = write_message(Broadcast(self._roster.broadcast_sequence, data))
        for peer in self.peers.values():
            if peer.state is PeerState.SYNCHRONIZING and peer.outgoing.full:
                # It has joined nobody's broadcasts yet: let it begin with later ones.
                peer.outgoing.restart(self._roster.broadcast_sequence)
                self.courier.synchronize(peer)
            elif peer.state in (PeerState.JOINED, PeerState.SYNCHRONIZING):
                peer.outgoing.add_broadcast(number, self._roster.broadcast_sequence, d)
                self.courier.pump(peer)

    def finalize(self) -> None:
        """Say goodbye to everybody who may take us for a peer, and forget the others."""
        self.leaving = True
        for peer in list(self.peers.values()):
            if peer.state is PeerState.JOINED or (
                peer.state is PeerState.SYNCHRONIZING and peer.incoming is not None
            ):
                peer.outgoing.add_finalize()
                self.courier.pump(peer)
            elif peer.state is not PeerState.FINALIZING:
                self._forget(peer)

    @property
    def settled(self) -> bool:
        """Whether everybody has got what we sent, and we what those announced who leave."""
        return not any(
            len(peer.outgoing) or peer.state is PeerState.FINALIZING for peer in self.peers.values()
        )

    def abandon(self) -> None:
        """Wait for nothing any more."""
        for peer in self.peers.values():
            self._fail(peer, FailReason.NODE_CLOSED)
            self.courier.forget(peer.sid)
        self.peers.clear()

    # -- time ---------------------------------------------------------------------------

    def review(self) -> None:
        """Give up who is unreachable for long, and take back who is reachable again."""
        now = self._clock.unix
        for peer in list(self.peers.values()):
            if peer.state is PeerState.GIVEN_UP:
                if self._links.contacts.reachable(peer.sid, now):
                    self._take_back(peer)
                elif now - peer.since >= self._timing.forget_s:
                    self._forget(peer)
            elif self._is_overdue(peer, now):
                if peer.known_to_user:
                    self._give_up(peer)
                else:
                    self._forget(peer)
                    if peer.wanted:
                        self.events.append(PeerUnreachable(peer=peer.sid))
        self._roster.expire()

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
        self._fail(peer, FailReason.PEER_UNREACHABLE)
        peer.enter(PeerState.GIVEN_UP, self._clock.unix)
        self._links.ban(peer.sid)
        if not peer.lost:
            peer.present, peer.lost = False, True
            self.events.append(PeerUnreachable(peer=peer.sid))
        if self.leaving:
            self._forget(peer)

    def _take_back(self, peer: Peer) -> None:
        peer.outgoing.restart(self._roster.broadcast_sequence)
        peer.enter(PeerState.SYNCHRONIZING, self._clock.unix)
        self._links.unban(peer.sid)
        self.courier.synchronize(peer)

    # -- what comes from others -----------------------------------------------------------

    def receive(self, source: bytes, body: MessageData | MessageAck | Gossip) -> None:
        """Take the body of a parcel that is for us and came by way of `source`."""
        if isinstance(body, MessageData):
            self._receive_data(source, body)
        elif isinstance(body, MessageAck):
            self._receive_ack(body)
        else:
            self._receive_gossip(body)

    def _receive_gossip(self, gossip: Gossip) -> None:
        found = [
            self._roster.add(sid)
            for sid in self._links.strangers(gossip)
            if sid not in self._roster.tombstones and self._admits()
        ]
        self._links.merge(gossip)
        for peer in found:  # now that it may be known which way leads there
            self.courier.synchronize(peer)

    def _admits(self) -> bool:
        """Whether an unknown server may become known now."""
        if self.leaving or not self._roster.has_room:
            self._dropped[DropReason.PEERS_LIMIT] += 1
            return False
        return True

    def _receive_data(self, source: bytes, body: MessageData) -> None:
        try:
            message = read_message(body.d)
        except ParcelError:
            self._dropped[DropReason.MALFORMED] += 1
            return
        peer = self.peers.get(body.fr) or self._welcome(source, body, message)
        if peer is None:
            return
        if peer.state is PeerState.GIVEN_UP:
            self._dropped[DropReason.GIVEN_UP] += 1
        elif self._handlers[type(message)](peer, message):
            self.courier.acknowledge(source, body)

    def _welcome(self, source: bytes, body: MessageData, message: Message) -> Peer | None:
        """Make a peer of the unknown sender, unless it is one that has left."""
        tombstone = self._roster.tombstones.get(body.fr)
        if tombstone is not None:
            fresh = (
                isinstance(message, Synchronize) and tombstone.incoming.age_of(message) is Age.NEWER
            )
            if not fresh:
                if tombstone.covers(message):
                    self.courier.acknowledge(source, body)
                return None
        if not self._admits():
            return None
        peer = self._roster.add(body.fr)
        if not isinstance(message, Synchronize):  # that is answered by ours anyway
            self.courier.synchronize(peer)
        return peer

    def _receive_ack(self, body: MessageAck) -> None:
        peer = self.peers.get(body.fr)
        item = None if peer is None else peer.outgoing.acknowledge(body.id)
        if peer is None or item is None:
            self._dropped[DropReason.STRAY_ACKNOWLEDGE] += 1
        elif peer.state is PeerState.SYNCHRONIZING:
            # Nothing else is in flight then but our latest synchronize message, which was
            # first sent after the peer's own had arrived, if it has.
            if peer.incoming is not None:
                self._join(peer)
        else:
            self.courier.pump(peer)
            self._bury_if_complete(peer)

    def _receive_datagram(self, peer: Peer, message: Datagram) -> bool:
        if peer.state not in _TALKING:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        self._deliver(peer, Delivery.DATAGRAM, [message.data])
        return True

    def _receive_in_order(self, peer: Peer, message: Broadcast | OneToOne) -> bool:
        incoming = peer.incoming
        if peer.state not in _TALKING or incoming is None:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        if type(message) is OneToOne:
            stream, delivery = incoming.one, Delivery.IN_ORDER
        else:
            stream, delivery = incoming.broadcast, Delivery.IN_ORDER_BROADCAST
        if message.sequence <= stream.position:
            self._dropped[DropReason.DUPLICATE] += 1
            return True
        released = stream.accept(message.sequence, message.data)
        if released is None:
            return self._refuse(DropReason.BEYOND_WINDOW)
        peer.doubt = None
        self._deliver(peer, delivery, released)
        self._bury_if_complete(peer)
        return True

    def _receive_synchronize(self, peer: Peer, message: Synchronize) -> bool:
        incoming = peer.incoming
        if incoming is None:
            if self.leaving:
                return False
            peer.incoming = Incoming(message, self._limits.window_max)
            self.courier.synchronize(peer)  # again: only this time we know to whom
            return True
        age = incoming.age_of(message)
        if age is Age.SAME:
            peer.doubt = None
            broadcasts = incoming.broadcast.skip(message.broadcast)
            ones = incoming.one.skip(message.one)
            if peer.state in _TALKING:
                self._deliver(peer, Delivery.IN_ORDER_BROADCAST, broadcasts)
                self._deliver(peer, Delivery.IN_ORDER, ones)
            return True
        if age is Age.OLDER and not self._is_insistent(peer, message):
            return self._refuse(DropReason.STALE_SYNCHRONIZE)
        return self._restart(peer, message)

    def _is_insistent(self, peer: Peer, message: Synchronize) -> bool:
        """Whether `message` has come for so long that it cannot be a late duplicate."""
        now = self._clock.unix
        if peer.doubt is None or peer.doubt[0] != message:
            peer.doubt = message, now
        return now - peer.doubt[1] >= self._timing.redelivery_max_s

    def _restart(self, peer: Peer, message: Synchronize) -> bool:
        """The peer has started anew: so does the association with it."""
        self._fail(peer, FailReason.PEER_RESTARTED)
        if peer.present:
            peer.present = False
            self.events.append(PeerLeft(peer=peer.sid, reason=LeaveReason.RESTARTED))
        if self.leaving:
            self._forget(peer)
            return False
        peer.incoming = Incoming(message, self._limits.window_max)
        peer.doubt = None
        peer.enter(PeerState.SYNCHRONIZING, self._clock.unix)
        self.courier.synchronize(peer)
        return True

    def _receive_finalize(self, peer: Peer, message: Finalize) -> bool:
        incoming = peer.incoming
        if incoming is None:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        if incoming.age_of(message) is not Age.SAME:
            return self._refuse(DropReason.STALE_SYNCHRONIZE)
        if incoming.finalized is None:
            incoming.finalized = message
            if not self.leaving:  # who is leaving, too, delivers what it has announced
                self._fail(peer, FailReason.PEER_LEFT)
            if peer.state is PeerState.JOINED:
                peer.enter(PeerState.FINALIZING, self._clock.unix)
            else:  # it never got through to the user
                self._bury(peer)
        self._bury_if_complete(peer)
        return True

    # -- steps that several of the above share ---------------------------------------------

    def _join(self, peer: Peer) -> None:
        peer.enter(PeerState.JOINED, self._clock.unix)
        sid, lost = peer.sid, peer.lost
        peer.present, peer.lost = True, False
        self.events.append(PeerReachable(peer=sid) if lost else PeerJoined(peer=sid))
        self._links.share(sid)
        peer.outgoing.open = True
        self.courier.pump(peer)

    def _deliver(self, peer: Peer, delivery: Delivery, messages: list[bytes]) -> None:
        for data in messages:
            self.events.append(MessageReceived(peer=peer.sid, data=data, delivery=delivery))

    def _fail(self, peer: Peer, reason: FailReason) -> None:
        """Send nothing more of what waits for `peer`, and say so to the user."""
        told = peer.present
        for item in peer.outgoing.restart(self._roster.broadcast_sequence):
            if told:
                self.events.append(SendFailed(peer=peer.sid, message=item.number, reason=reason))

    def _bury_if_complete(self, peer: Peer) -> None:
        if peer.state is PeerState.FINALIZING and not (self.leaving and len(peer.outgoing)):
            assert peer.incoming is not None
            if peer.incoming.complete:
                self._bury(peer)

    def _bury(self, peer: Peer) -> None:
        """The peer has left for good."""
        assert peer.incoming is not None
        if peer.known_to_user:
            self.events.append(PeerLeft(peer=peer.sid, reason=LeaveReason.FINALIZED))
        self.courier.forget(peer.sid)
        self._roster.bury(peer)

    def _forget(self, peer: Peer) -> None:
        self.courier.forget(peer.sid)
        self._roster.forget(peer)

    def _refuse(self, reason: DropReason) -> bool:
        self._dropped[reason] += 1
        return False
