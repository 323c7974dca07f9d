"""The links of a peer, their turns, and their deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count

from culm.machine import Closed, LocalProtocolError, RemoteProtocolError, StreamMachine
from culm.ssb.ebt import SessionEnded, SessionRole
from culm.ssb.events import Authenticated
from culm.ssb.feed_id import feed_id_of
from culm.ssb.muxrpc import Connection
from culm.ssb.peer.conversation import MANIFEST, Context, Conversation
from culm.ssb.peer.errors import ErrorCode
from culm.ssb.peer.events import PeerConnected, PeerDisconnected
from culm.ssb.peer.half_sent import HalfSent
from culm.ssb.peer.limits import Limits
from culm.ssb.peer.link import PeerLink, sealed
from culm.ssb.peer.liveness import Liveness
from culm.timers import Deadlines

__all__ = ["Links"]


class Links:
    """All links by number, and the conversations over those whose peers are known."""

    def __init__(self, context: Context, *, limits: Limits, now: float) -> None:
        self._context = context
        self._limits = limits
        self._now = now
        offers_all = context.settings.speaks_ebt
        self._manifest = MANIFEST if offers_all else MANIFEST.allowed(deny=["ebt"])
        self._numbers = count(1)
        self._links: dict[int, PeerLink] = {}
        self._conversations: dict[int, Conversation] = {}
        self._awake: dict[int, PeerLink] = {}  # may have events
        self._blocked: dict[int, PeerLink] = {}  # wait for the store
        self._half_sent = HalfSent(size_max=limits.half_sent_size_max, links_max=limits.links_max)
        self._stirred: dict[int, PeerLink] = {}  # may have something to send, or have ended
        self._deadlines: Deadlines[int] = Deadlines()  # of handshakes and conversations
        self._goodbyes: Deadlines[int] = Deadlines()  # of links that we have closed

    @property
    def all(self) -> Sequence[PeerLink]:
        return tuple(self._links.values())

    # Beginnings and ends

    def open(self, role: SessionRole, handshake: StreamMachine | None) -> PeerLink:
        """Raises `LocalProtocolError` (``TOO_MANY_LINKS``)."""
        if len(self._links) >= self._limits.links_max:
            raise LocalProtocolError(ErrorCode.TOO_MANY_LINKS)
        rpc = Connection(manifest=self._manifest, limits=self._limits.rpc)
        machine: StreamMachine = rpc
        if handshake is not None:
            machine = sealed(handshake, rpc, packets_max=self._limits.packets_max)
        link = PeerLink(
            number=next(self._numbers),
            role=role,
            rpc=rpc,
            machine=machine,
            liveness=Liveness(patience_s=self._context.settings.patience_s, now=self._context.now),
            wake=self._wake,
            fill=self._fill,
            holds=self._holds,
        )
        self._links[link.number] = link
        link.advance(self._now)
        self._wake(link)
        return link

    def connected(self, link: PeerLink, peer: str) -> None:
        """Begin a conversation with the peer of a link, which has proved who it is."""
        self._make_room(peer)
        conversation = Conversation(
            link=link.number,
            peer=peer,
            role=link.role,
            rpc=link.rpc,
            liveness=link.liveness,
            context=self._context,
            wake=partial(self._wake, link),
        )
        self._conversations[link.number] = conversation
        self._context.tell(PeerConnected(link=link.number, peer=peer))
        conversation.begin(self._now)
        self._wake(link)
        if self._context.core.blocks(self._context.core.me, peer):
            self._close(link)  # we have blocked it since we began to dial

    def _make_room(self, peer: str) -> None:
        """End the oldest link of a peer that has as many as it may."""
        theirs = [
            self._links[number]
            for number, conversation in self._conversations.items()
            if conversation.peer == peer and not self._links[number].is_failing
        ]
        if len(theirs) >= self._limits.links_of_peer_max:
            theirs[0].fail(RemoteProtocolError(ErrorCode.REPLACED))

    def _count_half_sent(self, link: PeerLink) -> None:
        """Record the bytes that a link holds in part; the slowest one may have to end."""
        held, now = self._half_sent, self._now
        held.note(
            link.number, 0 if link.closed or link.is_failing else link.rpc.half_sent_size, now
        )
        while (slowest := held.excess(now, self._is_known)) is not None:
            self._links[slowest].fail(RemoteProtocolError(ErrorCode.HALF_SENT))
            held.note(slowest, 0, now)

    def _is_known(self, number: int) -> bool:
        """Whether a link's peer is one that we follow, or have dialled."""
        conversation = self._conversations.get(number)
        if conversation is None:
            return False
        is_dialled = self._links[number].role is SessionRole.CLIENT
        return is_dialled or self._context.core.follows(conversation.peer)

    def close_peer(self, peer: str) -> None:
        """Say goodbye to a peer."""
        for number, conversation in tuple(self._conversations.items()):
            if conversation.peer == peer:
                self._close(self._links[number])

    def close_all(self) -> None:
        """Say goodbye to all peers."""
        for link in self._links.values():
            self._close(link)

    def _close(self, link: PeerLink) -> None:
        """Say goodbye, and wait only `goodbye_s` for the answer."""
        if link.number not in self._goodbyes:
            link.close()
            self._goodbyes.set(link.number, self._now + self._context.settings.goodbye_s)

    def _ended(self, link: PeerLink, closed: Closed) -> None:
        number = link.number
        self._count_half_sent(link)
        del self._links[number]
        self._awake.pop(number, None)
        self._blocked.pop(number, None)
        self._stirred[number] = link
        self._deadlines.cancel(number)
        self._goodbyes.cancel(number)
        conversation = self._conversations.pop(number, None)
        peer = None
        if conversation is not None:
            peer = conversation.peer
            conversation.disconnect()
            self._resume(peer)
        self._context.tell(PeerDisconnected(link=number, peer=peer, error=closed.error))

    # Steps

    def step(self) -> bool:
        """Let a link move one step; false if none can."""
        if not self._awake:
            return False
        number, link = next(iter(self._awake.items()))
        conversation = self._conversations.get(number)
        if conversation is not None and conversation.exchange.holds and not link.is_failing:
            self._blocked[number] = self._awake.pop(number)
            self._set_deadline(link)
            return True
        self._stirred[number] = link
        event = link.next_event()
        if event is None:
            del self._awake[number]
            self._set_deadline(link)
            self._count_half_sent(link)
        elif isinstance(event, Closed):
            self._ended(link, event)
        elif isinstance(event, Authenticated):
            self.connected(link, feed_id_of(event.peer))
        elif conversation is not None:
            conversation.receive(event, self._now)
        return True

    def session_ended(self, event: SessionEnded) -> None:
        """Pass on that the replicator has ended a session."""
        exchange = self._context.sessions.get(event.session)
        if exchange is not None:
            exchange.session_ended(event)
            link = self._links.get(exchange.link)
            if link is not None:
                self._wake(link)
        self._resume(event.peer)

    def _resume(self, peer: str) -> None:
        """If a peer has no session left, let its newest suitable link request one."""
        if self._context.core.has_session(peer):
            return
        for number, conversation in reversed(self._conversations.items()):
            if conversation.peer == peer and conversation.resume(self._now):
                self._wake(self._links[number])
                return

    def update(self, feed: str) -> None:
        """Look again with which peers a feed is exchanged."""
        for conversation in self._conversations.values():
            conversation.history.update(feed)

    def grown(self, feed: str) -> None:
        """Serve new messages of a feed."""
        for conversation in self._conversations.values():
            conversation.history.grown(feed)

    def release(self) -> None:
        """Let links that wait for the store look again: it has answered."""
        blocked, self._blocked = self._blocked, {}
        self._awake.update(blocked)
        self._stirred.update(blocked)

    def take_stirred(self) -> list[PeerLink]:
        for session in self._context.core.sessions_to_send():
            exchange = self._context.sessions.get(session)
            link = None if exchange is None else self._links.get(exchange.link)
            if link is not None:
                self._stirred[link.number] = link
        stirred, self._stirred = self._stirred, {}
        return list(stirred.values())

    # Callbacks of links

    def _wake(self, link: PeerLink) -> None:
        if link.number in self._links:
            self._awake[link.number] = self._stirred[link.number] = link

    def _fill(self, link: PeerLink) -> None:
        conversation = self._conversations.get(link.number)
        if conversation is not None:
            conversation.fill(self._limits.fill_size_max)

    def _holds(self, link: PeerLink) -> bool:
        conversation = self._conversations.get(link.number)
        return conversation is not None and conversation.exchange.holds

    # Time

    def _set_deadline(self, link: PeerLink) -> None:
        conversation = self._conversations.get(link.number)
        due = link.next_deadline() if conversation is None else conversation.next_deadline()
        if due is None:
            self._deadlines.cancel(link.number)
        elif due != self._deadlines.get(link.number):
            self._deadlines.set(link.number, due)

    def next_deadline(self) -> float | None:
        times = (self._deadlines.next(), self._goodbyes.next())
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: float) -> None:
        self._now = now
        while (number := self._goodbyes.pop_due(now)) is not None:
            self._links[number].fail(RemoteProtocolError(ErrorCode.NO_GOODBYE))
        while (number := self._deadlines.pop_due(now)) is not None:
            link = self._links[number]
            conversation = self._conversations.get(number)
            try:
                if conversation is None:
                    link.advance(now)
                else:
                    conversation.advance(now)
            except RemoteProtocolError as error:
                link.fail(error)
            self._wake(link)  # its next deadline is known when it has moved
