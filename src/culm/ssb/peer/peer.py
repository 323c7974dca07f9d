"""The machine: one peer of Secure Scuttlebutt and all its connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.arguments import check_bytes, check_type
from culm.buffer import Queue
from culm.machine import (
    Closed,
    ContractErrorCode,
    LinkedMachine,
    LocalProtocolError,
    StreamMachine,
    Ticket,
)
from culm.replication import Quiet
from culm.signatures import Verification
from culm.ssb.ebt import (
    FeedExtended,
    FeedForked,
    ForkedFeedError,
    Head,
    InvalidMessageError,
    Message,
    Replicator,
    SessionEnded,
    SessionRole,
    State,
    StoredFeeds,
    SyncProgress,
)
from culm.ssb.feed_id import check_feed_id, feed_id_of, public_key_of
from culm.ssb.history import EarlyRoom
from culm.ssb.messages import (
    ClassicMessage,
    FeedPlace,
    MessageError,
    MessageErrorCode,
    create_message,
)
from culm.ssb.peer.context import Context
from culm.ssb.peer.errors import ErrorCode
from culm.ssb.peer.events import LinkEvent, OwnFeedConfirmed, PeerEffect, PeerEvent
from culm.ssb.peer.frames import Frame, FrameVerifier, Judged
from culm.ssb.peer.limits import Limits, Settings, Timing
from culm.ssb.peer.links import Links, PeerLink
from culm.ssb.secret_handshake import MAIN_NETWORK, ClientHandshake, ServerHandshake
from culm.ssb.v8json import JsonValue
from culm.timers import LocalTime, earliest


class OwnFeed:
    """Our own feed, of which others may have more if it comes from a backup.

    restored: whether it does, and its length is not confirmed.
    confirm_s: the wait for others once a friend has told that it has less, or nothing.
    """

    def __init__(self, core: Replicator, *, restored: bool, confirm_s: float, now: float) -> None:
        self.restored = restored
        self._core = core
        self._now = now
        self._unsurpassed = Quiet(confirm_s)  # since a friend has told that it has less

    def confirm(self) -> None:
        """Take the user's word that no peer has more of it."""
        self.restored = False

    def look(self) -> bool:
        """Whether the restored feed is confirmed just now, by peers that we follow or by time."""
        self._unsurpassed.advance(self._now, quiet=self._is_unsurpassed())
        due = self._core.is_confirmed(self._core.me) or self._unsurpassed.lasts
        self.restored = not due
        return due

    def _is_unsurpassed(self) -> bool:
        return self._core.is_unsurpassed(self._core.me)

    def next_deadline(self) -> float | None:
        return self._unsurpassed.deadline(self.restored and self._is_unsurpassed())

    def advance(self, now: float) -> None:
        self._now = now


R = TypeVar("R")

_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_SETTINGS: Final = Settings()
_DEFAULT_TIMING: Final = Timing()


class ClassicFormat:
    """The classic format, as far as a replicator has to know it.

    hmac_key: 32 bytes, of a network whose messages are signed with a key.
    """

    name: Final = "classic"

    def __init__(self, *, hmac_key: bytes | None = None) -> None:
        self._hmac_key = hmac_key

    def check(self, previous: str | None, received: ClassicMessage | MessageError) -> Message:
        if isinstance(received, MessageError):
            raise InvalidMessageError(str(received))
        if not received.verify(hmac_key=self._hmac_key):
            raise InvalidMessageError(str(MessageError(MessageErrorCode.BAD_SIGNATURE)))
        if received.previous != previous:
            raise ForkedFeedError(received.data)
        return Message(received.author, received.sequence, received.id, received.data)


class _JudgedFormat(ClassicFormat):
    """The same, of messages on which there may be a verdict."""

    def check(
        self, previous: str | None, received: ClassicMessage | MessageError | Judged
    ) -> Message:
        if not isinstance(received, Judged):
            return super().check(previous, received)
        message, is_signed = received
        if not is_signed:
            raise InvalidMessageError(str(MessageError(MessageErrorCode.BAD_SIGNATURE)))
        if message.previous != previous:
            raise ForkedFeedError(message.data)
        return Message(message.author, message.sequence, message.id, message.data)


class Peer(LinkedMachine[PeerEvent]):
    """Wires handshake, box stream, muxrpc and Epidemic Broadcast Trees to a store of feeds.

    identity
        Our long-term key; its public half names our feed, which is followed.
    stored
        The feeds in the store (`culm.ssb.store.FeedStore`).
    now
        The time (monotonic seconds).
    epoch
        The Unix time, in seconds, at which the clock of `advance` shows 0: for timestamps of
        messages, and pings.
    network
        The network key.
    hmac_key
        32 bytes, of a network whose messages are signed with a key.
    restored
        Whether the feeds come from a backup, or from a copy.  Then nothing can be published
        (``RESTORED``) until a peer that we follow has told how long our own feed is, and all of it
        is here (`OwnFeedConfirmed`), or until `confirm`: a message in the place of one that others
        have would fork the feed for ever.
    settings, limits, timing
        Ways to exchange feeds, bounds on the memory that peers may make us use, and times.

    A `culm.machine.LinkedMachine`: `accepted`, `dialled` and `attached` open its links.  Follow all
    feeds that others may have from us, not only those that we want: feeds that are not followed are
    refused.
    """

    def __init__(
        self,
        *,
        identity: SigningKey,
        stored: StoredFeeds,
        now: float,
        epoch: float = 0.0,
        network: bytes = MAIN_NETWORK,
        hmac_key: bytes | None = None,
        restored: bool = False,
        settings: Settings = _DEFAULT_SETTINGS,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
    ) -> None:
        check_type("identity", identity, SigningKey)
        check_type("epoch", epoch, int, float)
        check_type("restored", restored, bool)
        check_type("settings", settings, Settings)
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        check_bytes("network", network, 32)
        if hmac_key is not None:
            check_bytes("hmac_key", hmac_key, 32)
        self._identity = identity
        self._network = network
        self._hmac_key = hmac_key
        self._limits = limits
        self._timing = timing
        self._time = LocalTime(now, epoch)
        self._core = Replicator(
            me=feed_id_of(bytes(identity.verify_key)),
            stored=stored,
            format=(_JudgedFormat if limits.verifying_max else ClassicFormat)(hmac_key=hmac_key),
            now=now,
            timing=timing.ebt,
            limits=limits.ebt,
        )
        self._core.follow(self._core.me)
        self._own = OwnFeed(self._core, restored=restored, confirm_s=timing.confirm_s, now=now)
        self._ending: Closed | None = None  # the replicator has ended
        self._closed: Closed | None = None
        self._events: Queue[LinkEvent] = Queue()
        self._early_room = EarlyRoom(size_max=limits.early_size_max)
        self._verifier = _verifier_of(self._core, limits.verifying_max, hmac_key)
        self._links = Links(
            Context(
                core=self._core,
                settings=settings,
                timing=timing,
                limits=limits,
                early_room=self._early_room,
                time=self._time,
                verifier=self._verifier,
                events=self._events,
            )
        )

    # Its state

    @property
    def state(self) -> State:
        if self._closed is not None:
            return State.CLOSED
        return State.CLOSING if self._core.state is State.CLOSED else self._core.state

    @property
    def me(self) -> str:
        """The id of our own feed."""
        return self._core.me

    @property
    def clock(self) -> dict[str, int]:
        """The last sequence in the store of each feed that is known."""
        return self._core.clock

    @property
    def progress(self) -> SyncProgress:
        return self._core.progress

    @property
    def links(self) -> Sequence[PeerLink]:
        return self._links.all

    @property
    def half_sent_size(self) -> int:
        """Bytes of packets that have come in part, of all links."""
        return self._links.half_sent_size

    @property
    def early_size(self) -> int:
        """Bytes of messages that have come before their turn, of all links."""
        return self._early_room.size

    def head(self, feed: str) -> Head | None:
        """The last message taken of a feed, perhaps not stored yet."""
        return self._core.head(feed)

    @property
    def restored(self) -> bool:
        """Whether others may have more of our own feed, since it comes from a backup."""
        return self._own.restored

    def source(self, feed: str) -> str | None:
        """The peer from which a feed is received."""
        return self._core.source(feed)

    def follows(self, feed: str) -> bool:
        return self._core.follows(feed)

    def blocks(self, author: str, target: str) -> bool:
        return self._core.blocks(author, target)

    # Requests of the user

    def follow(self, feed: str, value: bool = True) -> None:
        """Exchange a feed with all peers, or stop doing so; see `Replicator.follow`."""
        self._core.follow(feed, value)
        self._links.update(feed)

    def block(self, author: str, target: str, value: bool = True) -> None:
        """Note that `author` blocks `target`, or no longer does; see `Replicator.block`.

        A peer that we block ourselves is disconnected.
        """
        self._core.block(author, target, value)
        self._links.update(author)
        if value and author == self.me:
            self._links.close_peer(target)

    def publish(self, content: JsonValue, *, timestamp: float | None = None) -> ClassicMessage:
        """Append a message to our own feed; `FeedExtended` says when it is stored.

        content: an object with a ``type``, or the text of a private box.
        timestamp: milliseconds since 1970; by default our clock's.

        Raises `LocalProtocolError` (``RESTORED``), and the errors of `Replicator.append` and of
        `culm.ssb.messages.create_message`.
        """
        if self._own.restored:
            raise LocalProtocolError(ErrorCode.RESTORED, "our feed comes from a backup")
        head = self._core.head(self.me)
        message = create_message(
            self._identity,
            content=content,
            timestamp=self._time.unix_ms if timestamp is None else timestamp,
            last=None if head is None else FeedPlace(self.me, head.sequence, head.id),
            hmac_key=self._hmac_key,
        )
        self._core.append(Message(self.me, message.sequence, message.id, message.data))
        return message

    def confirm(self) -> None:
        """Note that no peer has more of our own feed than the store, though it is from a backup."""
        self._own.confirm()

    # Connections

    def accepted(self, *, ephemeral: PrivateKey) -> PeerLink:
        """Open a link over an accepted connection; `ephemeral` is a ``PrivateKey.generate()``.

        Raises `LocalProtocolError`: ``TOO_MANY_LINKS``, ``ALREADY_CLOSED``.
        """
        check_type("ephemeral", ephemeral, PrivateKey)
        handshake = ServerHandshake(
            identity=self._identity,
            ephemeral=ephemeral,
            network=self._network,
            admits=lambda key: not self.blocks(self.me, feed_id_of(key)),
            limits=self._limits.ssb,
            timing=self._timing.ssb,
        )
        return self._open(SessionRole.SERVER, handshake)

    def dialled(self, peer: str, *, ephemeral: PrivateKey) -> PeerLink:
        """Open a link over a connection that was made to `peer`; see `accepted`.

        Raises `LocalProtocolError` as `accepted` does, and ``BLOCKED``; `ValueError` for something
        that is not a peer's id.
        """
        self._check_peer(peer)
        check_type("ephemeral", ephemeral, PrivateKey)
        handshake = ClientHandshake(
            identity=self._identity,
            server=public_key_of(peer),
            ephemeral=ephemeral,
            network=self._network,
            limits=self._limits.ssb,
            timing=self._timing.ssb,
        )
        return self._open(SessionRole.CLIENT, handshake)

    def attached(self, peer: str, *, role: SessionRole) -> PeerLink:
        """Open a link over a connection that is known to lead to `peer`.

        Nothing is sealed: only for safe connections, such as a pipe between two processes.
        Raises as `dialled` does.
        """
        self._check_peer(peer)
        check_type("role", role, SessionRole)
        link = self._open(role, None)
        self._links.connected(link, peer)
        return link

    def _check_peer(self, peer: str) -> None:
        check_feed_id("peer", peer)
        if self.blocks(self.me, peer):
            raise LocalProtocolError(ErrorCode.BLOCKED, peer)

    def _open(self, role: SessionRole, handshake: StreamMachine | None) -> PeerLink:
        if self._core.state is not State.OPEN:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        return self._links.open(role, handshake)

    # The contract

    def next_event(self) -> PeerEvent | None:
        while self._closed is None:
            if self._events:
                return self._events.popleft()
            if self._own.restored and self._own.look():
                return OwnFeedConfirmed(last=self._core.stored(self.me))
            event = self._core.next_event()
            if event is None:
                if self._links.step():
                    continue
                if self._ending is None or self._links.all:
                    break
                self._closed = self._ending
                return self._closed
            if isinstance(event, Closed):
                self._ending = event
            else:
                self._heed(event)
                return event
        return None

    def _heed(self, event: PeerEvent) -> None:
        """Let links react to an event of the replicator."""
        match event:
            case SessionEnded():
                self._links.session_ended(event)
            case FeedExtended(feed=feed):
                self._links.grown(feed)
            case FeedForked(feed=feed):
                self._links.update(feed)
            case _:
                pass

    def next_effect(self) -> PeerEffect | None:
        effect = self._core.next_effect()
        if effect is None and self._verifier is not None:
            self._links.gather()
            if self._verifier.verification.ask():
                effect = self._core.next_effect()
        return effect

    def complete(self, ticket: Ticket[R], result: R) -> None:
        self._core.complete(ticket, result)
        self._links.release()

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """The store could not do it: everything ends; see `Replicator.fail`."""
        self._core.fail(ticket, error)
        self._links.close_all()

    def links_to_send(self) -> list[PeerLink]:
        return self._links.take_stirred()

    def next_deadline(self) -> float | None:
        if self._closed is not None:
            return None
        return earliest(
            self._core.next_deadline(), self._links.next_deadline(), self._own.next_deadline()
        )

    def advance(self, now: float) -> None:
        """Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``)."""
        self._core.advance(now)
        self._time.advance(now)
        self._own.advance(now)
        self._links.advance(now)

    def close(self) -> None:
        """Say goodbye to all peers; messages taken are still written, and peers' clocks saved."""
        self._links.close_all()
        self._core.close()


def _verifier_of(core: Replicator, count_max: int, hmac_key: bytes | None) -> FrameVerifier | None:
    if not count_max:
        return None
    verification = Verification[Frame](core.verify, count_max=count_max, then=_judge)
    return FrameVerifier(count_max, verification, hmac_key)


def _judge(frames: Iterable[tuple[Frame, bool | None]]) -> None:
    for frame, is_signed in frames:
        frame.judge(is_signed)
