"""Handling of messages, acknowledgements and gossip from peers.

Source: manual/dev-oxen.md, "Message data (`md`) body types".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from culm.oxen.associations import Associations
from culm.oxen.context import Context
from culm.oxen.errors import DropReason
from culm.oxen.events import Delivered, Delivery, FailReason
from culm.oxen.incoming import DELIVERY_OF, RESTART_GAP, START_MAX, Age
from culm.oxen.links import Links
from culm.oxen.messages import (
    Broadcast,
    Datagram,
    Finalize,
    Gossip,
    Message,
    MessageAck,
    MessageData,
    Missing,
    OneToOne,
    Outlived,
    ParcelError,
    Piece,
    Position,
    Synchronize,
    Tags,
    Turn,
    read_message,
)
from culm.oxen.peer import Peer
from culm.oxen.roster import Roster
from culm.oxen.states import PeerState, Pressure
from culm.oxen.tags import fits

# Global names, because a lookup in the class costs more than a message can afford.
_SYNCHRONIZING, _JOINED, _FINALIZING, _GIVEN_UP = PeerState
_DATAGRAM, _IN_ORDER, _IN_ORDER_BROADCAST = Delivery
_NONE = Pressure.NONE
_TALKING = (_JOINED, _FINALIZING)


class Reception:
    """Takes bodies of parcels that are for us.

    Each handler takes a message and the size of its datagram, and returns whether to acknowledge
    it: without an acknowledgement the peer sends it again.
    """

    def __init__(
        self, context: Context, *, associations: Associations, roster: Roster, links: Links
    ) -> None:
        self._clock, self._rng, self._dropped = context.clock, context.rng, context.dropped
        self._limits, self._timing = context.limits, context.timing
        self._associations = associations
        self._courier = associations.courier
        self._roster = roster
        self._links = links
        self._handlers: dict[type, Callable[[Peer, Any, int], bool]] = {
            Datagram: self._receive_datagram,
            Synchronize: self._receive_synchronize,
            Finalize: self._receive_finalize,
            Broadcast: self._receive_broadcast,
            OneToOne: self._receive_one,
            Piece: self._receive_piece,
            Tags: self._receive_tags,
            Turn: self._receive_turn,
            Missing: self._receive_missing,
            Outlived: self._receive_outlived,
        }

    def receive(self, source: bytes, body: MessageData | MessageAck | Gossip, size: int) -> None:
        """Take the body of a parcel for us, which came through `source` in `size` bytes."""
        if isinstance(body, MessageData):
            self._receive_data(source, body, size)
        elif isinstance(body, MessageAck):
            self._receive_ack(body)
        else:
            self._receive_gossip(source, body, size)

    def _receive_gossip(self, source: bytes, gossip: Gossip, size: int) -> None:
        trusted = self._links.trusts(source)
        if source not in self._links.contacts:  # it seems to count us among its peers
            peer = self._associations.admit(source, told=trusted, speaks=True)
            if peer is not None:
                self._courier.synchronize(peer)
        if not trusted:
            self._dropped[DropReason.UNPROVED] += 1
            return
        lively = self._links.lively(gossip)
        sought = [sid for sid in lively if self._associations.is_sought(sid)]
        for sid in sought:
            self._links.expect(sid, told=True)
        # A server that has left is in the table, and so no stranger, until its tombstone goes.
        strangers = [sid for sid in lively if sid not in self._links.contacts]
        self._rng.shuffle(strangers)  # places may be too few for all
        found = [self._associations.admit(sid, told=True, speaks=False) for sid in strangers]
        self._links.hear_rumour(lively, size)
        self._links.merge(gossip)
        for peer in filter(None, found):  # only now, when the table may have a path there
            self._courier.synchronize(peer)

    def _receive_data(self, source: bytes, body: MessageData, size: int) -> None:
        try:
            message = read_message(body.d)
        except ParcelError:
            self._dropped[DropReason.MALFORMED] += 1
            return
        peer = self._roster.peers.get(body.fr)
        if peer is None:
            peer = self._welcome(source, body, message, size)
            if peer is None:
                return
        elif source != body.fr:
            self._links.hear_of(body.fr, source, size)
        if peer.state is _GIVEN_UP and type(message) is not Outlived:
            self._dropped[DropReason.GIVEN_UP] += 1
            return
        if self._handlers[type(message)](peer, message, size):
            self._courier.acknowledge(source, body)
        elif isinstance(message, Piece) and self._waits(peer, message):
            self._courier.answer(source, peer, Turn(message.kind, message.sequence, False))

    def _welcome(
        self, source: bytes, body: MessageData, message: Message, size: int
    ) -> Peer | None:
        """Make the unknown sender a peer, unless it has left."""
        if type(message) is Outlived:
            self._receive_outlived(None, message, size)
            return None
        tombstone = self._roster.tombstones.get(body.fr)
        if tombstone is not None:
            # A new life has smaller numbers if its clock was set back.
            fresh = isinstance(message, Synchronize) and (
                tombstone.incoming.age_of(message) is not Age.SAME
            )
            if not fresh:
                if tombstone.covers(message):
                    self._courier.acknowledge(source, body)
                return None
            # It may as well be repeated by somebody, so its sender has to prove itself anew.
            self._links.doubt(body.fr, size if source == body.fr else 0)
        # A trusted server that forwards the message vouches for its sender.
        told = source != body.fr and self._links.trusts(source)
        peer = self._associations.admit(body.fr, told=told, speaks=True)
        if told:
            self._links.hear_of(body.fr, source, size)
        if peer is not None and not isinstance(message, Synchronize):  # its handler sends ours
            self._courier.synchronize(peer)
        return peer

    def _receive_ack(self, body: MessageAck) -> None:
        peer = self._roster.peers.get(body.fr)
        told = None if peer is None else peer.outgoing.acknowledge(body.id, self._clock.now)
        if peer is None or told is None:
            if peer is not None and self._never_comes(peer, body.id):
                self._associations.part(peer)
            else:
                self._dropped[DropReason.STRAY_ACKNOWLEDGE] += 1
            return
        if peer.claim is not None and not peer.outgoing.challenged:
            peer.answer()
        if peer.mute:
            self._courier.hear(peer)
        if peer.state is _SYNCHRONIZING:
            # Only our latest synchronize message is under way in this state; if the peer's own
            # has arrived, ours was first sent after that.
            if peer.incoming is not None:
                self._associations.join(peer, peer.incoming)
        else:
            if peer.outgoing.resumed:
                self._associations.resume(peer)
            for number in told:
                self._associations.events.append(Delivered(peer=peer.sid, message=number))
            if peer.outgoing.pressure is not _NONE:
                self._associations.relieve_one(peer)
            if not peer.outgoing.idle:
                self._courier.pump(peer)
            if peer.state is _FINALIZING:
                self._associations.bury_if_complete(peer)

    def _never_comes(self, peer: Peer, id: int) -> bool:
        """Whether `peer` says, by acknowledging `id`, that it never sends the missing ones."""
        incoming = peer.incoming
        waits = peer.state is _JOINED and not self._associations.leaving  # which ends what comes
        return waits and incoming is not None and peer.waits.is_vain(incoming, id)

    def _receive_datagram(self, peer: Peer, message: Datagram, _size: int) -> bool:
        if peer.state not in _TALKING:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        self._associations.deliver(peer, _DATAGRAM, [message.data])
        return True

    def _receive_one(self, peer: Peer, message: OneToOne, _size: int) -> bool:
        return self._take(peer, _IN_ORDER, message.sequence, message.data)

    def _receive_broadcast(self, peer: Peer, message: Broadcast, _size: int) -> bool:
        return self._take(peer, _IN_ORDER_BROADCAST, message.sequence, message.data)

    def _receive_piece(self, peer: Peer, message: Piece, _size: int) -> bool:
        """Find a place for the whole message before acknowledging any piece of it."""
        if not self._limits.message_size_max:
            return self._refuse(DropReason.MALFORMED)
        delivery = DELIVERY_OF[message.kind]
        if (
            message.position is Position.FIRST
            and peer.state in _TALKING
            and peer.incoming is not None
            and peer.incoming.stream(delivery).expects(message.sequence)
            and not self._associations.admit_piece(peer, delivery, message.sequence)
        ):
            return self._refuse(DropReason.ASSEMBLIES_LIMIT)
        return self._take(peer, delivery, message.sequence, message)

    def _waits(self, peer: Peer, message: Piece) -> bool:
        key = peer.sid, DELIVERY_OF[message.kind]
        return self._associations.assemblies.waits(key, message.sequence)

    def _receive_turn(self, peer: Peer, message: Turn, _size: int) -> bool:
        turn = self._associations.come if message.has_come else self._associations.wait
        turn(peer, DELIVERY_OF[message.kind], message.sequence)
        return True

    def _receive_missing(self, peer: Peer, message: Missing, _size: int) -> bool:
        """Say whether a message will never come.

        The question may be old, or a third party's, and so is no reason to start anew ourselves.
        """
        if peer.state not in _TALKING:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        return peer.outgoing.never_sends(DELIVERY_OF[message.kind], message.sequence)

    def _take(self, peer: Peer, delivery: Delivery, sequence: int, content: bytes | Piece) -> bool:
        """Take a numbered message, or a piece, of one of the peer's streams."""
        incoming = peer.incoming
        if peer.state not in _TALKING or incoming is None:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        stream = incoming.one if delivery is _IN_ORDER else incoming.broadcast
        if sequence <= stream.position:
            self._dropped[DropReason.DUPLICATE] += 1
            return True
        released = stream.accept(sequence, content)
        if released is None:
            return self._refuse(DropReason.BEYOND_WINDOW)
        if peer.claim is not None:
            peer.trust()
        self._associations.deliver(peer, delivery, released)
        if peer.state is _FINALIZING:
            self._associations.bury_if_complete(peer)
        return True

    def _receive_synchronize(self, peer: Peer, message: Synchronize, size: int) -> bool:
        """Take the peer's numbers; acknowledge them only if it names ours, or none."""
        outgoing, known, is_first = peer.outgoing, message.known, peer.incoming is None
        excess = outgoing.excess_of(known)
        if excess and peer.state in _TALKING:
            taken = self._associations.doubt(peer, message, size)
        else:
            if excess >= RESTART_GAP and known < START_MAX:
                self._associations.outbid(peer, known)
            taken = self._follow(peer, message, size)
        if not taken or outgoing.excess_of(known):  # again: our numbers may have changed
            return False
        if peer.state is _SYNCHRONIZING:
            now = self._clock.unix
            if is_first or outgoing.holds(known):  # the peer waits for us anew from now on
                peer.wait_anew(now)
            elif now - peer.since >= self._timing.usable_s:
                return False  # it may be old; a genuine one comes again until it names our number
        return True

    def _follow(self, peer: Peer, message: Synchronize, size: int) -> bool:
        """Follow the peer's numbers, after which its messages in order count."""
        incoming = peer.incoming
        if incoming is None:
            if self._associations.leaving:
                return False
            peer.synchronize(self._associations.begin(peer, message))
            self._courier.synchronize(peer)  # again, now that ours can name the peer's number
            return True
        named, age = peer.outgoing.holds(message.known), incoming.age_of(message)
        if named and not incoming.vouched:
            incoming.vouch()
            if age is not Age.SAME or not incoming.leads_to(message):
                return self._associations.correct(peer, message)
            if peer.state is _SYNCHRONIZING and incoming.is_passed_by(message):
                incoming.go_on(message)
                self._courier.synchronize(peer)  # ours has named another number
        beginning = peer.state is _SYNCHRONIZING and not incoming.vouched
        if beginning and age is Age.SAME and message.one != peer.known:
            # If it is genuine and the current one is made up, it takes nothing that names the
            # latter.
            self._courier.say(peer, peer.outgoing.naming(message.one))
        if age is Age.SAME and (named or not incoming.is_passed_by(message)):
            peer.trust()
            incoming.go_on(message)
            if peer.state in _TALKING:
                self._associations.hand_out(peer, incoming)
                self._associations.bury_if_complete(peer)
            return True
        if peer.state in _TALKING:
            return self._associations.doubt(peer, message, size)
        if named or incoming.gives_way_to(age):
            # Another life of the peer has named our number, too: its messages must not any more.
            return self._associations.restart(peer, message, renumber=incoming.vouched)
        # A genuine one comes again, when the peer has joined and can be asked, or names our number.
        return self._refuse(DropReason.STALE_SYNCHRONIZE)

    def _receive_tags(self, peer: Peer, message: Tags, _size: int) -> bool:
        """Take the peer's tags; the user is told of them once the peer has joined."""
        incoming = peer.incoming
        if not fits(message.table, self._limits.tags_size_max):
            return self._refuse(DropReason.MALFORMED)
        if incoming is None:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        if incoming.age_of(message) is not Age.SAME:
            return self._refuse(DropReason.STALE_SYNCHRONIZE)
        if incoming.tag(message) and peer.present:
            self._associations.describe(peer)
        return True

    def _receive_outlived(self, _peer: Peer | None, message: Outlived, _size: int) -> bool:
        self._links.outlive(message.milliseconds)
        return False

    def _receive_finalize(self, peer: Peer, message: Finalize, _size: int) -> bool:
        incoming = peer.incoming
        if incoming is None:
            return self._refuse(DropReason.NOT_SYNCHRONIZED)
        has_to_name_us = incoming.vouched or peer.state is _SYNCHRONIZING
        if incoming.age_of(message) is not Age.SAME or (
            has_to_name_us and not peer.outgoing.holds(message.known)
        ):
            return self._refuse(DropReason.STALE_SYNCHRONIZE)
        if incoming.finalized is None:
            incoming.finalize(message)
            if (
                not self._associations.leaving
            ):  # if we are leaving, too, the peer still takes our messages
                self._associations.fail(peer, FailReason.PEER_LEFT)
            if peer.state is _SYNCHRONIZING and incoming.complete:  # without telling the user
                self._associations.bury(peer)
            else:
                if peer.state is _SYNCHRONIZING:
                    self._associations.appear(peer, incoming)  # whose answer comes later
                peer.enter(_FINALIZING, self._clock.unix)
        self._associations.bury_if_complete(peer)
        return True

    def _refuse(self, reason: DropReason) -> bool:
        self._dropped[reason] += 1
        return False
