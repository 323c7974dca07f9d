"""The links of a peer, their turns, and their deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import NamedTuple

from culm import ssb
from culm.buffer import Buffer, check_buffer, check_size_max
from culm.machine import (
    Closed,
    ContractErrorCode,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    StreamMachine,
    Timed,
)
from culm.replication import Liveness
from culm.ssb.box_stream import BoxStream
from culm.ssb.ebt import SessionEnded, SessionRole
from culm.ssb.events import Authenticated
from culm.ssb.feed_id import feed_id_of
from culm.ssb.muxrpc import Connection, State, ValueReceived
from culm.ssb.peer.context import MANIFEST, Context
from culm.ssb.peer.conversation import Conversation
from culm.ssb.peer.errors import ErrorCode
from culm.ssb.peer.events import PeerConnected, PeerDisconnected
from culm.ssb.peer.history import LinkHistory
from culm.stack import over, then
from culm.timers import Deadlines, earliest


class _HalfSentPacket(NamedTuple):
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
        self._parts: dict[int, _HalfSentPacket] = {}  # by number of the link

    def note(self, link: int, size: int, now: float) -> None:
        """Record the bytes that a link holds; if they are fewer than before, the packet is new."""
        part = self._parts.get(link, _HalfSentPacket(0, now))
        self.size += size - part.size
        if size < part.size:
            del self._parts[link]
            part = _HalfSentPacket(0, now)
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


def _pace(part: _HalfSentPacket, now: float) -> float:
    """Bytes a second; infinite if the packet has only begun."""
    return part.size / (now - part.since) if now > part.since else inf


def sealed(handshake: StreamMachine, rpc: Connection, *, limits: ssb.Limits) -> StreamMachine:
    """`rpc` inside a box stream, after the handshake."""

    def build(event: Event) -> StreamMachine | None:
        if not isinstance(event, Authenticated):
            return None
        return over(BoxStream(keys=event.keys, limits=limits), rpc)

    return then(handshake, build)


class PeerLink:
    """A `culm.machine.Link`.

    role: whether we have dialled.
    rpc: the calls of this connection.
    liveness: tracks the peer's silence.
    """

    __slots__ = (
        "_eof",
        "_fault",
        "_kept",
        "_links",
        "_machine",
        "_timed",
        "closed",
        "liveness",
        "number",
        "role",
        "rpc",
    )

    def __init__(
        self,
        *,
        number: int,
        role: SessionRole,
        rpc: Connection,
        machine: StreamMachine,
        liveness: Liveness,
        links: Links,
    ) -> None:
        self.number = number
        self.role = role
        self.rpc = rpc
        self.closed = False
        self.liveness = liveness
        self._machine = machine
        self._timed = machine if isinstance(machine, Timed) else None  # kept: the check is slow
        self._links = links
        self._fault: RemoteProtocolError | None = None
        self._kept: Event | None = None
        self._eof = False

    # Bytes

    def receive_data(self, data: Buffer) -> None:
        if self._eof:
            raise LocalProtocolError(ContractErrorCode.DATA_AFTER_EOF)
        check_buffer(data)
        if not self.closed:
            self._machine.receive_data(data)
            self.liveness.heard(self._links.time.now)
            self._links.wake(self)

    def receive_eof(self) -> None:
        self._eof = True
        self._machine.receive_eof()
        self._links.wake(self)

    def read_size(self) -> int:
        if self.closed or self._eof or self._links.holds(self):
            return 0
        return self._machine.read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        parts: list[bytes] = []
        was_held_up, all_left = self.rpc.is_held_up, False
        while size_max is None or size_max > 0:
            self._links.fill(self)
            data = self._machine.data_to_send(size_max)
            if not data:
                all_left = True
                break
            parts.append(data)
            if size_max is not None:
                size_max -= len(data)
        if parts or all_left:
            self.liveness.taken(self._links.time.now, all_left=all_left)
        if parts and was_held_up:
            self._links.wake(self)
        return b"".join(parts)

    def close(self) -> None:
        """Say goodbye; the machine reports the end, `Timing.goodbye_s` later at most."""
        self._links.close(self)

    # For the peer

    def say_goodbye(self) -> None:
        self._machine.close()
        self._links.wake(self)

    @property
    def is_failing(self) -> bool:
        """Whether the link has failed, and waits for nothing more."""
        return self._fault is not None

    @property
    def _is_open(self) -> bool:
        return self._fault is None and self.rpc.state is State.OPEN

    def next_value(self, number: int) -> ValueReceived | None:
        """`next_event`, if it is a value in that call; another one is kept for later."""
        if self._kept is None and self._is_open:
            event = self.next_event()
            if isinstance(event, ValueReceived) and event.number == number:
                return event
            self._kept = event
        return None

    def next_event(self) -> Event | None:
        kept, self._kept = self._kept, None
        if isinstance(kept, Closed) or (kept is not None and self._is_open):
            return kept  # after our goodbye, earlier events are dropped
        if self.closed:
            return None
        if self._fault is not None:
            self.closed = True
            return Closed(error=self._fault)
        event = self._machine.next_event()
        if isinstance(event, Closed):
            self.closed = True
        return event

    def fail(self, error: RemoteProtocolError) -> None:
        """End the link: the peer has sent well-formed packets against a rule, or nothing."""
        self._fault = error.detached()
        self._machine.close()
        self._links.wake(self)

    def next_deadline(self) -> float | None:
        """The deadline of the handshake."""
        return None if self._timed is None else self._timed.next_deadline()

    def advance(self, now: float) -> None:
        if self._timed is not None:
            self._timed.advance(now)
            self._links.wake(self)


class Links:
    """All links by number, and the conversations over those whose peers are known."""

    __slots__ = (
        "_awake",
        "_blocked",
        "_context",
        "_conversations",
        "_deadlines",
        "_goodbyes",
        "_half_sent",
        "_limits",
        "_links",
        "_manifest",
        "_numbers",
        "_of_peer",
        "_stirred",
        "time",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self.time = context.time
        self._limits = limits = context.limits
        offers_all = context.settings.speaks_ebt
        self._manifest = MANIFEST if offers_all else MANIFEST.allowed(deny=["ebt"])
        self._numbers = count(1)
        self._links: dict[int, PeerLink] = {}
        self._conversations: dict[int, Conversation] = {}
        self._of_peer: dict[str, dict[int, Conversation]] = {}  # the same, by peer and number
        self._awake: dict[int, PeerLink] = {}  # may have events
        self._blocked: dict[int, PeerLink] = {}  # wait for the store
        self._half_sent = HalfSent(size_max=limits.half_sent_size_max, links_max=limits.links_max)
        self._stirred: dict[int, PeerLink] = {}  # may have something to send, or have ended
        self._deadlines: Deadlines[int] = Deadlines()  # of handshakes and conversations
        self._goodbyes: Deadlines[int] = Deadlines()  # of links that we have closed

    @property
    def all(self) -> Sequence[PeerLink]:
        return tuple(self._links.values())

    @property
    def half_sent_size(self) -> int:
        return self._half_sent.size

    # Beginnings and ends

    def open(self, role: SessionRole, handshake: StreamMachine | None) -> PeerLink:
        """Raises `LocalProtocolError` (``TOO_MANY_LINKS``)."""
        if len(self._links) >= self._limits.links_max:
            raise LocalProtocolError(ErrorCode.TOO_MANY_LINKS)
        rpc = Connection(manifest=self._manifest, limits=self._limits.rpc)
        machine: StreamMachine = rpc
        if handshake is not None:
            machine = sealed(handshake, rpc, limits=self._limits.ssb)
        patience_s = self._context.timing.patience_s
        liveness = Liveness(idle_timeout_s=patience_s, keepalive_s=patience_s)
        liveness.advance(self.time.now)
        link = PeerLink(
            number=next(self._numbers),
            role=role,
            rpc=rpc,
            machine=machine,
            liveness=liveness,
            links=self,
        )
        self._links[link.number] = link
        link.advance(self.time.now)
        self.wake(link)
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
            wake=partial(self.wake, link),
        )
        self._conversations[link.number] = conversation
        self._of_peer.setdefault(peer, {})[link.number] = conversation
        self._context.events.append(PeerConnected(link=link.number, peer=peer))
        conversation.begin(self.time.now)
        self.wake(link)
        if self._context.core.blocks(self._context.core.me, peer):
            self.close(link)  # we have blocked it since we began to dial

    def _make_room(self, peer: str) -> None:
        """End the oldest link of a peer that has as many as it may."""
        theirs = [
            self._links[number]
            for number in self._of_peer.get(peer, ())
            if not self._links[number].is_failing
        ]
        if len(theirs) >= self._limits.links_of_peer_max:
            theirs[0].fail(RemoteProtocolError(ErrorCode.REPLACED))

    def _count_half_sent(self, link: PeerLink) -> None:
        """Record the bytes that a link holds in part; the slowest one may have to end."""
        held, now = self._half_sent, self.time.now
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
        for number in tuple(self._of_peer.get(peer, ())):
            self.close(self._links[number])

    def close_all(self) -> None:
        """Say goodbye to all peers."""
        for link in self._links.values():
            self.close(link)

    def close(self, link: PeerLink) -> None:
        """Say goodbye, and wait only `goodbye_s` for the answer."""
        if link.number in self._links and link.number not in self._goodbyes:
            link.say_goodbye()
            self._goodbyes.set(link.number, self.time.now + self._context.timing.goodbye_s)

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
            del self._of_peer[peer][number]
            if not self._of_peer[peer]:
                del self._of_peer[peer]
            conversation.disconnect()
            self._resume(peer)
        self._context.events.append(PeerDisconnected(link=number, peer=peer, error=closed.error))

    # Steps

    def step(self) -> bool:
        """Let a link move one step; false if none can."""
        if not self._awake:
            return False
        number, link = next(iter(self._awake.items()))
        conversation = self._conversations.get(number)
        exchange = None if conversation is None or link.is_failing else conversation.exchange
        if exchange is not None and exchange.holds:
            self._blocked[number] = self._awake.pop(number)
            self._set_deadline(link)
            return True
        self._stirred[number] = link
        if exchange is not None and exchange.frames:
            exchange.take_frames()
            return True
        event = link.next_event()
        if event is None:
            del self._awake[number]
            if not self._awake:
                self._awake.clear()  # of its room, too
            self._set_deadline(link)
            self._count_half_sent(link)
        elif isinstance(event, Closed):
            self._ended(link, event)
        elif isinstance(event, Authenticated):
            self.connected(link, feed_id_of(event.peer))
        elif conversation is not None:
            conversation.receive(event, self.time.now)
        return True

    def session_ended(self, event: SessionEnded) -> None:
        """Pass on that the replicator has ended a session."""
        number = self._context.sessions.pop(event.session, 0)
        conversation = self._conversations.get(number)
        if conversation is not None:
            conversation.exchange.session_ended(event)
            self.wake(self._links[number])
        self._resume(event.peer)

    def _resume(self, peer: str) -> None:
        """If a peer has no session left, let its newest suitable link request one.

        One that has done so in vain comes after the others: it may be dead.
        """
        if self._context.core.has_session(peer):
            return
        newest_first = reversed(self._of_peer.get(peer, {}).items())
        for number, conversation in sorted(newest_first, key=lambda each: each[1].exchange.resumed):
            if conversation.resume(self.time.now):
                self.wake(self._links[number])
                return

    def update(self, feed: str) -> None:
        """Look again with which peers a feed is exchanged."""
        for history in self._histories():
            history.update(feed)

    def grown(self, feed: str) -> None:
        """Serve new messages of a feed."""
        for history in self._histories():
            history.grown(feed)

    def _histories(self) -> list[LinkHistory]:
        made = (conversation.exchange.history for conversation in self._conversations.values())
        return [history for history in made if history is not None]

    def release(self) -> None:
        """Let links go on that wait no longer for the store, which has answered one effect."""
        free = {
            number: link
            for number, link in self._blocked.items()
            if not self._conversations[number].exchange.holds
        }
        for number in free:
            del self._blocked[number]
        self._awake.update(free)
        self._stirred.update(free)

    def take_stirred(self) -> list[PeerLink]:
        for session in self._context.core.sessions_to_send():
            link = self._links.get(self._context.sessions.get(session, 0))
            if link is not None:
                self._stirred[link.number] = link
        stirred, self._stirred = self._stirred, {}
        return list(stirred.values())

    # For links

    def wake(self, link: PeerLink) -> None:
        if link.number in self._links:
            self._awake[link.number] = self._stirred[link.number] = link

    def fill(self, link: PeerLink) -> None:
        conversation = self._conversations.get(link.number)
        if conversation is not None:
            conversation.fill(self._limits.fill_size_max)

    def holds(self, link: PeerLink) -> bool:
        conversation = self._conversations.get(link.number)
        return conversation is not None and conversation.exchange.holds_bytes

    def gather(self) -> None:
        """Let frames that wait for verdicts be joined by those that have come after them."""
        for number, link in self._blocked.items():
            conversation = self._conversations.get(number)
            if conversation is not None:
                conversation.exchange.gather(link.next_value)

    # Time

    def _set_deadline(self, link: PeerLink) -> None:
        conversation = self._conversations.get(link.number)
        due = link.next_deadline() if conversation is None else conversation.next_deadline()
        if due is None:
            self._deadlines.cancel(link.number)
        elif due != self._deadlines.get(link.number):
            self._deadlines.set(link.number, due)

    def next_deadline(self) -> float | None:
        return earliest(self._deadlines.next(), self._goodbyes.next())

    def advance(self, now: float) -> None:
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
            self.wake(link)  # its next deadline is known when it has moved
