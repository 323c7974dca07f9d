"""Takes messages from the peers' queues to the links, again and again until they arrive."""

from __future__ import annotations

from collections.abc import Container, Mapping

from culm.oxen.context import Context
from culm.oxen.events import Delivery
from culm.oxen.incoming import KIND_OF
from culm.oxen.links import Links
from culm.oxen.messages import (
    Message,
    MessageAck,
    MessageData,
    Missing,
    new_tuple,
    write_message,
)
from culm.oxen.peer import Peer
from culm.oxen.stream import Item
from culm.timers import Deadlines

# A peer that may be reached, but acknowledges nothing, is given up after as many times the patience
# with one that may not: after the first it has to show itself.
_SILENCES = 2

# A message is late after as many attempts at it, too.
_ATTEMPTS = 32


class Courier:
    """Owns the deadlines of redelivery, one for each peer."""

    def __init__(self, context: Context, links: Links) -> None:
        self._me, self._clock = context.me, context.clock
        self._timing = context.timing
        self._patience_s = context.timing.usable_s + context.timing.give_up_s
        attempts_s = _ATTEMPTS * context.timing.redelivery_max_s
        self._late_s = max(_SILENCES * self._patience_s, attempts_s)
        self._links = links
        self._deadlines: Deadlines[bytes] = Deadlines()

    def synchronize(self, peer: Peer, *, at_once: bool = True) -> None:
        """Send our synchronize message under a new ID, or leave that to redelivery."""
        item = peer.outgoing.synchronize(self._clock.now, known=peer.known)
        self._send(peer, [item] if at_once else [])

    def seek(self, peer: Peer) -> None:
        """Synchronize with a peer that was given up and is reported to be back.

        If it had long acknowledged nothing, the reports still pay for what is sent to it.
        """
        if peer.mute:
            self._links.expect(peer.sid, told=True)
        self.synchronize(peer)

    def challenge(self, peer: Peer) -> None:
        """Send a question that the peer can answer only if it has not restarted, or send it again.

        Not at once: one that does not know us takes it for a reason to claim that again.
        """
        outgoing, claim, now = peer.outgoing, peer.claim, self._clock.now
        asked, item = outgoing.challenged, outgoing.challenge(now)
        if asked:
            if claim and claim.asked and now < item.sent + self._timing.redelivery_min_s:
                return
            outgoing.flight.repeat(item, now)
        self._send(peer, [item])

    def tell(self, peer: Peer, version: int, tags: Mapping[str, str]) -> None:
        """Send our tags; earlier ones are not sent again."""
        self._send(peer, [peer.outgoing.tell(version, tags, self._clock.now)])

    def ask_through_others(self, peer: Peer) -> None:
        """Send that question through several neighbours at once; redelivery takes one at a time."""
        asked = peer.outgoing.challenged
        item = peer.outgoing.challenge(self._clock.now)
        if not asked:
            self._send(peer, [item])
        self._links.send_through_some(MessageData(peer.sid, self._me, item.id, item.d))

    def question(self, peer: Peer) -> None:
        """Ask a peer that has long acknowledged nothing whether it still counts us as its peer.

        If others alone report that it is there, it has to show itself.  Without those reports it
        would be given up; they may be wrong, or forged.
        """
        flight, now = peer.outgoing.flight, self._clock.now
        silence = flight.silence(now)
        if silence >= self._patience_s and self._links.question(peer.sid, self._patience_s):
            peer.fall_silent()
            self.ask_through_others(peer)
        elif max(silence, flight.rest(now)) >= self._patience_s and not peer.outgoing.challenged:
            self.challenge(peer)

    def expire(self, peer: Peer) -> list[int]:
        """Drop whole messages that never arrive, although others do; returns their numbers.

        They may be too large for the path or the peer.  To be called once in each review.
        """
        outgoing = peer.outgoing
        outgoing.flight.review()
        if outgoing.flight.silence(self._clock.now) >= self._patience_s:
            return []
        numbers = outgoing.expire(self._late_s)
        if numbers:
            self.pump(peer)
        return numbers

    def waits_in_vain(self, peer: Peer) -> bool:
        """Whether a peer that may be reached has acknowledged nothing for far too long.

        One that has forgotten us for want of room answers keepalives, as any server does.  The same
        holds if a piece or a word of our own does not arrive, for which others wait.
        """
        silence = peer.outgoing.flight.silence(self._clock.now)
        held_up = not all(item.number for item in peer.outgoing.late(self._late_s))
        return held_up or silence >= _SILENCES * self._patience_s

    def ask_for_missing(self, peer: Peer, begun: Container[Delivery]) -> None:
        """Ask a joined peer whether messages missing for long will never come.

        begun: the streams with a message of which only the first pieces have come.
        """
        assert peer.incoming is not None
        now = self._clock.now
        for delivery, wait in peer.waits.due(peer.incoming, begun, now, self._timing):
            id = peer.outgoing.flight.unused_id() if wait.id is None else wait.id
            d = write_message(Missing(KIND_OF[delivery], wait.sequence))
            if self._links.send(MessageData(peer.sid, self._me, id, d), wait.asked):
                wait.ask(id, now, self._timing)

    def hear(self, peer: Peer) -> None:
        """Note that a silent peer has acknowledged something."""
        peer.speak()
        self._links.accept(peer.sid)

    def pump(self, peer: Peer) -> None:
        """Send the messages that wait for `peer` and may go now."""
        self._send(peer, peer.outgoing.ready(self._clock.now))

    def send_once(self, peer: Peer, data: bytes) -> None:
        """Send a datagram without asking for an acknowledgement."""
        self._links.send(MessageData(peer.sid, self._me, None, data), 0)

    def answer(self, source: bytes, peer: Peer, message: Message) -> None:
        """Send `message`, which needs no acknowledgement, back through `source`."""
        body = MessageData(peer.sid, self._me, None, write_message(message))
        self._links.answer(source, body)

    def say(self, peer: Peer, message: Message) -> None:
        """Send `message` once: if it is lost, a later repetition will do."""
        self._links.send(MessageData(peer.sid, self._me, None, write_message(message)), 0)

    def acknowledge(self, source: bytes, body: MessageData) -> None:
        """Acknowledge a message that came through `source`, if it asks for an acknowledgement."""
        if body.id is not None:
            ack = new_tuple(MessageAck, (body.fr, self._me, body.id))
            self._links.answer(source, ack)

    def resend(self, peers: Mapping[bytes, Peer]) -> None:
        """Send again the messages that are due."""
        now = self._clock.now
        while (sid := self._deadlines.pop_due(now)) is not None:
            self._send(peers[sid], peers[sid].outgoing.due(now))
            again = self._deadlines.get(sid)
            if again is not None and again <= now:
                self._deadlines.set(sid, self._clock.after(0.0))

    def next_deadline(self) -> float | None:
        """When `resend` is due: perhaps too early, never too late."""
        return self._deadlines.next()

    def forget(self, sid: bytes) -> None:
        self._deadlines.cancel(sid)

    def _is_paid(self, peer: Peer, item: Item) -> bool:
        """Whether `item` may be sent while there is a claim that the peer has restarted.

        The claim may be an attacker's, made only to have the peer flooded with questions.
        """
        if not peer.outgoing.is_challenge(item):
            return True
        size = self._links.size_of(MessageData(peer.sid, self._me, item.id, item.d))
        return peer.may_be_asked(size)

    def _send(self, peer: Peer, items: list[Item]) -> None:
        sid = peer.sid
        if peer.claim is not None:
            items = [item for item in items if self._is_paid(peer, item)]
        for item in items:
            self._links.send(new_tuple(MessageData, (sid, self._me, item.id, item.d)), item.way)
        outgoing = peer.outgoing
        deadline = (outgoing if outgoing.resting else outgoing.flight).next_deadline()
        if deadline is not None:
            earliest = self._deadlines.get(sid)
            if earliest is None or deadline < earliest:
                self._deadlines.set(sid, deadline)
