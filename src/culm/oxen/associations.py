"""Associations with peers: the members of the cluster, and the messages to and from them.

Source: manual/dev-oxen.md, "Handling failure" and "Message data (`md`) body types".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from culm.oxen.context import Context
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
    SendResumed,
    SendWaiting,
    TagsChanged,
    Writable,
)
from culm.oxen.incoming import KIND_OF, Incoming
from culm.oxen.links import Links
from culm.oxen.messages import Piece, Position, Synchronize, Turn, write_broadcast
from culm.oxen.peer import ClaimState, Peer
from culm.oxen.pieces import Assemblies, cut, cut_broadcast
from culm.oxen.roster import Roster
from culm.oxen.seeds import Seeds
from culm.oxen.states import PeerState, Pressure
from culm.oxen.tags import OwnTags
from culm.wire.xenc import Value

# Global names, because a lookup in the class costs more than a message can afford.
_SYNCHRONIZING, _JOINED, _FINALIZING, _GIVEN_UP = PeerState
_IN_ORDER, _IN_ORDER_BROADCAST = Delivery.IN_ORDER, Delivery.IN_ORDER_BROADCAST

# A stream loses its turn for a place after this many of the longest redelivery intervals
# without a request.
_TURN_INTERVALS = 4

# A peer is asked this often before a claim that it has restarted is believed, and the claim
# lapses unless it is repeated within this many of the longest intervals.
_ASKED_MIN = 2
_CLAIM_INTERVALS = 10


class Associations:
    """All associations of a node.

    alone_max: bytes of the largest message in order that goes in one piece.
    """

    def __init__(self, context: Context, *, roster: Roster, links: Links, alone_max: int) -> None:
        self.events: deque[NodeEvent] = deque()
        self.leaving = False
        self._me, self._clock, self._dropped = context.me, context.clock, context.dropped
        self._limits, self._timing = limits, timing = context.limits, context.timing
        self._roster = roster
        self.peers = roster.peers
        self._links = links
        self.courier = Courier(context, links)
        self._seeds = Seeds(timing)
        self._alone_max = alone_max
        self.tags = OwnTags(limits.tags_size_max)
        self.assemblies = Assemblies(
            size_max=limits.message_size_max,
            count_max=limits.assemblies_max,
            patience_s=_TURN_INTERVALS * timing.redelivery_max_s,
            dropped=self._dropped,
        )

    # -- requests of the user -----------------------------------------------------------

    def ask_for_help(self, sid: bytes, *, again: bool) -> None:
        """Synchronize with `sid`, which is already a peer or for which there is room.

        again: repeat this whenever `sid` is no peer later.
        """
        if again:
            self._seeds.add(sid, self._clock.unix)
        self._links.trust(sid)
        peer = self.peers.get(sid) or self._add(sid, trusted=True)
        peer.ask(self._clock.unix)
        if peer.state is _SYNCHRONIZING:
            self.courier.synchronize(peer)
        elif peer.state is _GIVEN_UP:
            self._links.wonder(sid)

    def joined(self) -> list[Peer]:
        """Peers to which messages can be sent."""
        return [peer for peer in self.peers.values() if peer.state is _JOINED]

    def send(self, peer: Peer, number: int, delivery: Delivery, data: bytes) -> None:
        """Send to a joined peer, which has room and accepts pieces if the message needs them."""
        if delivery is _IN_ORDER and len(data) > self._alone_max:
            for position, piece in cut(data, self._alone_max - 1):
                ending = number if position is Position.LAST else 0
                peer.outgoing.add_piece(ending, position, piece)
                if position is Position.FIRST:
                    peer.outgoing.begin(delivery, number)
        else:
            peer.outgoing.add(number, delivery, data)
        self.courier.pump(peer)

    def send_to_each(
        self, peers: Iterable[Peer], number: int, delivery: Delivery, data: bytes
    ) -> None:
        """Send to each of some joined peers.

        Sending fails for peers without room and for those that do not accept a message this large.
        """
        for peer in peers:
            if not self._fails(peer, number, delivery, len(data)):
                self.send(peer, number, delivery, data)

    def broadcast(self, number: int, data: bytes) -> None:
        """Send to all joined peers, in order.

        Sending fails for peers without room and for those that do not accept a message this large.
        Peers that have yet to join are told which broadcast to begin with.
        """
        if len(data) > self._alone_max:
            parts = cut_broadcast(data, self._alone_max - 1, number, self._roster.next_broadcast)
        else:
            sequence = self._roster.next_broadcast()
            parts = [(number, sequence, write_broadcast(sequence, data))]
        for peer in self.peers.values():
            if peer.state is _JOINED:
                if self._fails(peer, number, _IN_ORDER_BROADCAST, len(data)):
                    self._skip(peer, parts)
                else:
                    self._add_broadcast(peer, number, parts)
                self.courier.pump(peer)
            elif peer.state is _SYNCHRONIZING:
                self._skip(peer, parts)

    def _add_broadcast(self, peer: Peer, number: int, parts: list[tuple[int, int, Value]]) -> None:
        first, *others = parts
        peer.outgoing.add_broadcast(*first)
        if others:
            peer.outgoing.begin(_IN_ORDER_BROADCAST, number)
        for part in others:
            peer.outgoing.add_broadcast(*part)

    def _skip(self, peer: Peer, parts: list[tuple[int, int, Value]]) -> None:
        """Leave out a broadcast for `peer`, which learns of the gap when it gets there."""
        for _, sequence, _ in parts:
            peer.outgoing.skip_broadcast(sequence)

    def _fails(self, peer: Peer, number: int, delivery: Delivery, size: int) -> bool:
        """Report it if a joined peer has no room, or accepts no message this large."""
        if peer.outgoing.is_full(delivery):
            self._miss(peer, number, FailReason.QUEUE_FULL)
            return True
        if delivery is not Delivery.DATAGRAM and size > max(self._alone_max, peer.message_size_max):
            self._miss(peer, number, FailReason.TOO_LARGE)
            return True
        return False

    def _miss(self, peer: Peer, number: int, reason: FailReason) -> None:
        self.events.append(SendFailed(peer=peer.sid, message=number, reason=reason))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replace our tags, and tell every peer that accepts tags."""
        if self.tags.replace(tags):
            for peer in self.joined():
                self._tell(peer)

    def _tell(self, peer: Peer) -> None:
        """Tell a peer our tags if it accepts tags and we have ever had any."""
        assert peer.incoming is not None
        size_max = peer.incoming.tags_size_max
        if size_max and self.tags.version:
            self.courier.tell(peer, self.tags.version, self.tags.for_one_that_takes(size_max))

    def relieve(self) -> None:
        """Tell the user which queues no longer hold anything up."""
        for peer in self.peers.values():
            if peer.outgoing.pressure is not Pressure.NONE:
                self.relieve_one(peer)

    def relieve_one(self, peer: Peer) -> None:
        """Tell the user if the queue of `peer`, which was full, no longer holds anything up."""
        if peer.outgoing.relieve() and peer.state is _JOINED:
            self.events.append(Writable(peer=peer.sid))

    def dismiss(self, peer: Peer) -> None:
        """Forget `peer`, including any message still owed on either side."""
        self.fail(peer, FailReason.PEER_FORGOTTEN)
        self._forget(peer)
        if peer.known_to_user:
            self.events.append(PeerForgotten(peer=peer.sid))

    def finalize(self) -> None:
        """Say goodbye to peers that may count us among theirs, and forget the others."""
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
        """Whether every message of ours is acknowledged, and leaving peers owe us nothing."""
        return not any(
            len(peer.outgoing) or peer.state is _FINALIZING for peer in self.peers.values()
        )

    def abandon(self) -> None:
        """Stop waiting for anything."""
        for peer in self.peers.values():
            self.fail(peer, FailReason.NODE_CLOSED)
            self.courier.forget(peer.sid)
            self.assemblies.remove(peer.sid)
        self.peers.clear()

    # -- time ---------------------------------------------------------------------------

    def review(self) -> None:
        """Give up on peers that stay unreachable, and take back those that can be reached again."""
        now = self._clock.unix
        for peer in list(self.peers.values()):
            if peer.state is _GIVEN_UP:
                if self._is_back(peer, now):
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
            elif peer.state is not _SYNCHRONIZING:
                self.courier.question(peer)
                for number in self.courier.expire(peer):
                    self._miss(peer, number, FailReason.TOO_LARGE)
                if peer.state is _JOINED and not self.leaving:  # a goodbye ends what would come
                    self.courier.ask_for_missing(peer, self.assemblies.begun(peer.sid))
                self._drop_claim(peer, now)
                self._watch(peer, now)  # last, as a peer given up while we leave is forgotten
        self._dismiss_replaced()
        self._roster.expire()
        self.assemblies.expire(self._clock.now)
        self._invite()
        self._seek_seeds(now)

    def _seek_seeds(self, now: float) -> None:
        """Ask seeds that are not peers for help again."""
        for sid in self._seeds:
            peer = self.peers.get(sid)
            if peer is not None and peer.known_to_user:
                self._seeds.found(sid)
            elif (
                peer is None
                and sid not in self._roster.tombstones  # its last messages may still arrive
                and self._roster.has_room_for(trusted=True)
                and self._seeds.miss(sid, now)
            ):
                self._seeds.asked(sid)
                self._links.trust(sid)
                peer = self._add(sid, trusted=True)
                peer.wait_anew(now - self._timing.give_up_s)
                self.courier.synchronize(peer)

    def forget(self, sid: bytes) -> None:
        """Forget `sid`, and do not ask it for help again."""
        self._seeds.remove(sid)
        peer = self.peers.get(sid)
        if peer is not None:
            self.dismiss(peer)

    def _is_overdue(self, peer: Peer, now: float) -> bool:
        """Whether `peer` was out of reach or silent for too long, or is long in joining or leaving.

        A peer that leaves closes within `leave_s`: one that is still there then never said goodbye.
        """
        if peer.state is _FINALIZING and now - peer.since >= self._timing.leave_s:
            return True
        deadline = now - self._timing.usable_s - self._timing.give_up_s
        if peer.since > deadline:
            return False
        if not peer.known_to_user:
            return True
        in_vain = peer.state is _JOINED and self.courier.waits_in_vain(peer)
        return in_vain or self._links.contacts.newest(peer.sid) <= deadline

    def _watch(self, peer: Peer, now: float) -> None:
        """Let others try to reach a silent peer, and give it up if none of them can.

        Attempts count rather than time, because this node may have been stopped in between.
        """
        timing = self._timing
        silent = min(
            now - max(self._links.contacts.newest(peer.sid), peer.since),
            self._clock.now - peer.outgoing.answered,
        )
        if silent < timing.suspect_s:
            peer.believe()
        elif peer.suspect() * timing.keepalive_retry_s < timing.suspect_s:
            self.courier.ask_through_others(peer)
        else:
            self._give_up(peer)

    def _drop_claim(self, peer: Peer, now: float) -> None:
        """Drop an old claim that the peer has restarted: a true one would have been repeated."""
        patience = _CLAIM_INTERVALS * self._timing.redelivery_max_s
        if peer.claim is not None and now >= peer.claim.until + patience:
            peer.trust()
            if not peer.suspicion:
                peer.outgoing.withdraw()

    def _give_up(self, peer: Peer) -> None:
        """Expect nothing more of `peer`, but go on looking for it.

        It may never have answered a keepalive.  But it had joined, and so has acknowledged a
        message sent to it alone: we may ask it for a sign of life before it sends anything.
        """
        self._links.trust(peer.sid)
        self.fail(peer, FailReason.PEER_UNREACHABLE)
        peer.give_up(self._clock.unix)
        self.assemblies.skip(peer.sid)
        self._links.ban(peer.sid)
        if peer.vanish():
            self.events.append(PeerUnreachable(peer=peer.sid))
        if self.leaving:
            self._forget(peer)

    def _is_back(self, peer: Peer, now: float) -> bool:
        """Whether any server has been in touch with `peer` since it fell silent."""
        contacts = self._links.contacts
        silent = peer.since - self._timing.suspect_s
        return contacts.reachable(peer.sid, now) and contacts.newest(peer.sid) > silent

    def _take_back(self, peer: Peer) -> None:
        peer.outgoing.restart(self._roster.broadcast_sequence)
        peer.enter(_SYNCHRONIZING, self._clock.unix)
        self._links.unban(peer.sid)
        self.courier.seek(peer)

    def admit(self, sid: bytes, *, told: bool, speaks: bool) -> Peer | None:
        """Make a peer of an unknown server, if there is room.

        told: whether a trusted server has told of it; speaks: whether a message of it has come.
        """
        if self.leaving or not self._roster.has_room_for(trusted=told, speaks=speaks):
            self._dropped[DropReason.PEERS_LIMIT] += 1
            return None
        peer = self._add(sid, trusted=told)
        self._links.expect(sid, told=told)
        return peer

    def is_sought(self, sid: bytes) -> bool:
        """Whether news of `sid` is a reason to seek contact with it, or to go on seeking."""
        peer = self.peers.get(sid)
        if peer is None or peer.state in (_JOINED, _FINALIZING):
            return False
        return peer.state is _GIVEN_UP or not self._links.trusts(sid)

    def _add(self, sid: bytes, *, trusted: bool) -> Peer:
        other = self._roster.in_the_way(trusted=trusted)
        if other is not None:
            self._forget(other)
            self._dropped[DropReason.PEERS_LIMIT] += 1
        return self._roster.add(sid)

    # -- the life of an association -----------------------------------------------------------

    def join(self, peer: Peer, incoming: Incoming) -> None:
        self._links.accept(peer.sid)
        self.appear(peer, incoming)
        self._links.share(peer.sid)
        peer.outgoing.release(peer.known)
        self._tell(peer)
        self.courier.pump(peer)

    def appear(self, peer: Peer, incoming: Incoming) -> None:
        """Tell the user that a peer has joined or is back, then its tags and waiting messages."""
        peer.enter(_JOINED, self._clock.unix)
        self._dismiss_replaced()
        sid = peer.sid
        self.events.append(PeerReachable(peer=sid) if peer.appear() else PeerJoined(peer=sid))
        if incoming.tags:
            self.describe(peer)
        self.hand_out(peer, incoming)

    def _dismiss_replaced(self) -> None:
        """Forget absent peers, perhaps only now absent, in whose places others have joined."""
        for peer in self._roster.to_be_replaced():
            self.dismiss(peer)

    def describe(self, peer: Peer) -> None:
        """Tell the user of a peer's tags."""
        self.events.append(TagsChanged(peer=peer.sid, tags=dict(peer.tags)))

    def doubt(self, peer: Peer, message: Synchronize, size: int) -> bool:
        """Check a claim that the peer has restarted: ask it, and believe the claim if it is silent.

        size: bytes of the claim, which pay for asking.

        So a forged or replayed message changes nothing as long as the peer can answer for the
        association.  A restarted peer cannot, and repeats the claim.  A peer whose answer was lost
        learns from our new numbers that we took it for restarted.
        """
        now, claim = self._clock.unix, peer.claim
        if claim is not None and claim.state is ClaimState.ASKED and claim.is_repeated_by(message):
            if now >= claim.until and claim.asked >= _ASKED_MIN:
                self._links.doubt(peer.sid, size)
                return self.restart(peer, message, renumber=True)
            peer.pay(size)
            self.courier.challenge(peer)
        elif claim is None or now >= claim.until:
            peer.doubt(message, now + peer.outgoing.flight.patience)
            peer.pay(size)
            self.courier.challenge(peer)
        self._dropped[DropReason.STALE_SYNCHRONIZE] += 1
        return False

    def outbid(self, peer: Peer, known: int) -> None:
        """Go on above the greater numbers, of a former life of ours, that the peer holds.

        The peer, which has not joined, would take our present numbers for older ones.
        """
        if not self.leaving:
            peer.outgoing.renumber(self._roster.next_start(known))
            self.courier.synchronize(peer)

    def begin(self, peer: Peer, message: Synchronize) -> Incoming:
        """The peer's streams, which begin after its numbers in `message`."""
        vouched = peer.outgoing.holds(message.known)
        return Incoming(message, self._limits.window_max, vouched=vouched)

    def correct(self, peer: Peer, message: Synchronize) -> bool:
        """Take over the peer's numbers from the first message of it that names our number.

        Earlier messages in its name, which did not name ours, were forged, a goodbye included.
        """
        if peer.state is not _JOINED:
            return self.restart(peer, message)
        self.assemblies.remove(peer.sid)
        peer.synchronize(self.begin(peer, message))
        peer.outgoing.release(peer.known)
        peer.trust()
        # Or they were a former life's, which has acknowledged the ones that this life waits for.
        self.courier.synchronize(peer)
        self.tags.renew()
        self._tell(peer)
        return True

    def restart(self, peer: Peer, message: Synchronize, *, renumber: bool = False) -> bool:
        """Restart the association with a peer that has restarted, unless we are leaving.

        renumber: whether our one-to-one messages go on far above those that its old life named.
        """
        reasons = FailReason.PEER_RESTARTED, LeaveReason.RESTARTED
        one = self._roster.next_start(message.known) if renumber else None
        return self._start_anew(peer, message, one, *reasons)

    def part(self, peer: Peer) -> None:
        """Start anew with a peer that counts messages as delivered which have never come.

        Early messages are acknowledged, and go with it: that is all the same to the user.
        """
        reasons = FailReason.OUT_OF_STEP, LeaveReason.OUT_OF_STEP
        self._start_anew(peer, None, self._roster.next_start(0), *reasons)

    def _start_anew(
        self,
        peer: Peer,
        message: Synchronize | None,
        one: int | None,
        failed: FailReason,
        left: LeaveReason,
    ) -> bool:
        """End the association, and begin another one, after `message` if there is one."""
        self.fail(peer, failed)
        if peer.leave(self._clock.unix):
            self.events.append(PeerLeft(peer=peer.sid, reason=left))
        if self.leaving:
            self._forget(peer)
            return False
        if one is not None:
            peer.outgoing.renumber(one)
        self.assemblies.remove(peer.sid)
        incoming = None if message is None else self.begin(peer, message)
        at_once = peer.start_anew(incoming, self._clock.unix, self._timing.redelivery_min_s)
        self.courier.synchronize(peer, at_once=at_once)
        return True

    def deliver(self, peer: Peer, delivery: Delivery, messages: Sequence[bytes | Piece]) -> None:
        """Hand messages to the user, and pieces once they make a whole message."""
        if self.assemblies.size_max and delivery is not Delivery.DATAGRAM:
            messages = self._put_together(peer, delivery, messages)
        for data in messages:  # all complete: without `size_max` there are no pieces
            self.events.append(MessageReceived(peer=peer.sid, data=data, delivery=delivery))  # type: ignore[arg-type]

    def _put_together(
        self, peer: Peer, delivery: Delivery, messages: Sequence[bytes | Piece]
    ) -> list[bytes]:
        """The messages that are complete, some perhaps by the pieces among `messages`."""
        sid, whole = peer.sid, list[bytes]()
        for each in messages:
            data = self.assemblies.add(sid, delivery, each) if isinstance(each, Piece) else each
            if data is not None:
                whole.append(data)
        assert peer.incoming is not None
        self.assemblies.settle(sid, delivery, peer.incoming.stream(delivery).position)
        self._invite()
        return whole

    def admit_piece(self, peer: Peer, delivery: Delivery, sequence: int) -> bool:
        """Find a place for a message of `peer` that comes in pieces; false if there is none.

        A peer that was given up halfway through a message makes room for one that is still there.
        """
        key, now = (peer.sid, delivery), self._clock.now
        if self.assemblies.admit(key, sequence, now):
            return True
        for sid in self.assemblies.holders():
            if self.peers[sid].state is _GIVEN_UP:
                self.dismiss(self.peers[sid])
                return self.assemblies.admit(key, sequence, now)
        return False

    def _invite(self) -> None:
        """Tell the peers whose turn for a place has come."""
        if self.assemblies.queue:
            for (sid, delivery), sequence in self.assemblies.invite():
                self.courier.say(self.peers[sid], Turn(KIND_OF[delivery], sequence, True))

    def wait(self, peer: Peer, delivery: Delivery, sequence: int) -> None:
        """Let a large message wait for a place at the peer, while other messages go on."""
        if number := peer.outgoing.refuse(delivery, sequence, self._clock.now):
            self.events.append(SendWaiting(peer=peer.sid, message=number))
        if peer.outgoing.pressure is not Pressure.NONE:
            self.relieve_one(peer)
        self.courier.pump(peer)

    def resume(self, peer: Peer) -> None:
        """Tell the user which messages have found a place."""
        outgoing = peer.outgoing
        for number in outgoing.resumed:
            self.events.append(SendResumed(peer=peer.sid, message=number))
        outgoing.resumed.clear()

    def come(self, peer: Peer, delivery: Delivery, sequence: int) -> None:
        """Send on a large message, for which the peer has a place now."""
        peer.outgoing.come(delivery, sequence)
        self.courier.pump(peer)

    def hand_out(self, peer: Peer, incoming: Incoming) -> None:
        """Deliver messages that waited for others, which the peer has given up in the meantime.

        They were acknowledged, so they are never sent again, whatever has become of the peer.
        """
        for delivery, messages in incoming.take_ready().items():
            self.deliver(peer, delivery, messages)

    def fail(self, peer: Peer, reason: FailReason) -> None:
        """Drop the messages that wait for `peer`, and tell the user."""
        for number in peer.outgoing.restart(self._roster.broadcast_sequence):
            if peer.present:
                self._miss(peer, number, reason)

    def bury_if_complete(self, peer: Peer) -> None:
        if peer.state is _FINALIZING and not (self.leaving and len(peer.outgoing)):
            assert peer.incoming is not None
            if peer.incoming.complete:
                self.bury(peer)

    def bury(self, peer: Peer) -> None:
        """Note that the peer has left for good."""
        assert peer.incoming is not None
        if peer.known_to_user:
            self.events.append(PeerLeft(peer=peer.sid, reason=LeaveReason.FINALIZED))
        self.courier.forget(peer.sid)
        self.assemblies.remove(peer.sid)
        self._roster.bury(peer)

    def _forget(self, peer: Peer) -> None:
        self.courier.forget(peer.sid)
        self.assemblies.remove(peer.sid)
        self._roster.forget(peer)
