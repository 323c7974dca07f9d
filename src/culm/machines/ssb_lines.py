"""A replicator of Epidemic Broadcast Trees over lines of JSON, without crypto.

The core knows no bytes; here a link begins with the name of the dialling peer, as a JSON string,
and every further line is a frame: notes or a message.  Messages are not signed: one is
invalid if its author says that it is not ``"valid"``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, TypeVar

from culm.arguments import check_text, check_type, is_dict
from culm.buffer import Buffer, Outbox, ReceiveBuffer, check_buffer, check_size_max
from culm.machine import (
    Closed,
    ContractErrorCode,
    Effect,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    Ticket,
)
from culm.ssb.ebt import (
    ErrorCode,
    ForkedFeedError,
    Head,
    InvalidMessageError,
    Limits,
    Message,
    Replicator,
    SessionEnded,
    SessionRole,
    State,
    StoredFeeds,
    Timing,
    decode_notes,
)
from culm.ssb.ebt.notes import SEQUENCE_MAX
from culm.ssb.feed_id import check_feed_id, feed_id_of, is_feed_id
from culm.ssb.v8json import JsonError, parse

R = TypeVar("R")

_LINE_SIZE_MAX = 8192
_PIECE = 16384


def feed(name: str) -> str:
    """The id of a named feed, the same in every run."""
    check_text("name", name)
    return feed_id_of(sha256(name.encode()).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class DialWanted(Event):
    """The user wants a connection with that peer."""

    peer: str


def encode_fields(fields: dict[str, Any]) -> Message:
    """A message with these fields; its id is a hash of its bytes."""
    data = json.dumps(fields, separators=(",", ":")).encode()
    return Message(fields["author"], fields["sequence"], sha256(data).hexdigest(), data)


def next_message(author: str, after: Head | None, text: str) -> Message:
    """The next message of a feed, which follows `after`."""
    sequence, previous = (1, None) if after is None else (after.sequence + 1, after.id)
    content = {"type": "post", "text": text}
    return encode_fields(
        {"previous": previous, "author": author, "sequence": sequence, "content": content}
    )


_DEPTH_MAX = 64


class LineFormat:
    """The format of unsigned messages, for the core to check."""

    __slots__ = ()

    def check(self, previous: str | None, received: dict[str, Any]) -> Message:
        if received.get("valid") is False:
            raise InvalidMessageError("it says so itself")
        found = encode_fields(received)
        if received.get("previous") != previous:
            raise ForkedFeedError(found.data)
        return found


class LineLink:
    """A `culm.machine.Link`: one peer's lines."""

    def __init__(
        self,
        number: int,
        role: SessionRole,
        *,
        read_size: Callable[[LineLink], int],
        wake: Callable[[LineLink], None],
        owner: str,
    ) -> None:
        self.number = number
        self.role = role
        self.session: int | None = None
        self.closed = False
        self.eof = False
        self.inbox = ReceiveBuffer()
        self.outbox = Outbox()
        self.fill: Callable[[LineLink, int], None] = lambda link, size: None
        self._read_size = read_size
        self._wake = wake
        if role is SessionRole.CLIENT:
            self.outbox.append(json.dumps(owner).encode() + b"\n")

    def begin(self, session: int) -> None:
        """Begin a session with the peer, which has given its name."""
        self.session = session

    def end(self) -> None:
        self.closed = True
        self.inbox.clear()

    def receive_data(self, data: Buffer) -> None:
        check_buffer(data)
        if not self.closed:
            self.inbox.append(data)
            self._wake(self)

    def receive_eof(self) -> None:
        self.eof = True
        self._wake(self)

    def read_size(self) -> int:
        return 0 if self.closed or self.eof else self._read_size(self)

    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        while size_max is None or self.outbox.size < size_max:
            before = self.outbox.size
            self.fill(self, _PIECE)
            if self.outbox.size == before:
                break
        return self.outbox.take(size_max)

    def close(self) -> None:
        self.inbox.clear()
        self.receive_eof()


class ReplicatorOverLines:
    """A `culm.machine.LinkedMachine`."""

    def __init__(self, me: str, *, now: float, timing: Timing, limits: Limits) -> None:
        self.me = me
        self._core = Replicator(
            me=me, stored=StoredFeeds(), format=LineFormat(), now=now, timing=timing, limits=limits
        )
        self._numbers = count(1)
        self._links: dict[int, LineLink] = {}
        self._by_session: dict[int, LineLink] = {}
        self._dials: list[str] = []
        self._stirred: dict[int, LineLink] = {}
        self._awake: dict[int, LineLink] = {}

    @property
    def state(self) -> State:
        return self._core.state

    @property
    def links(self) -> Sequence[LineLink]:
        return tuple(self._links.values())

    def open(self, role: SessionRole, peer: str | None) -> LineLink:
        check_type("role", role, SessionRole)
        self._check_open()
        session = None if peer is None else self._core.connect(peer, role=role)
        link = LineLink(
            next(self._numbers), role, read_size=self._read_size, wake=self._wake, owner=self.me
        )
        link.fill = self._fill
        if session is not None:
            link.session = session
            self._by_session[session] = link
        self._links[link.number] = self._stirred[link.number] = link
        return link

    def head(self, feed: str) -> Head | None:
        return self._core.head(feed)

    def follow(self, feed: str, value: bool) -> None:
        self._core.follow(feed, value)

    def block(self, author: str, target: str, value: bool) -> None:
        self._core.block(author, target, value)

    def append(self, message: Message) -> None:
        self._core.append(message)

    def dial(self, peer: str) -> None:
        check_feed_id("peer", peer)
        self._check_open()
        self._dials.append(peer)

    def _wake(self, link: LineLink) -> None:
        if not link.closed:
            self._awake[link.number] = link

    def _check_open(self) -> None:
        if self.state is not State.OPEN:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    def close(self) -> None:
        self._dials.clear()
        self._core.close()
        for link in list(self._links.values()):
            if link.session is None:
                self._end(link)

    # The contract

    def next_event(self) -> Event | None:
        while True:
            event = self._core.next_event()
            if isinstance(event, SessionEnded):
                self._end(self._by_session.pop(event.session))
            if isinstance(event, Closed) or event is not None:
                return event
            if self._dials:
                return DialWanted(peer=self._dials.pop(0))
            if not self._step_any():
                return None

    def _step_any(self) -> bool:
        for link in list(self._awake.values()):
            if self._step(link):
                return True
            if link.closed or self._takes(link):
                del self._awake[link.number]  # it waits for its peer, not for the store
        return False

    def _step(self, link: LineLink) -> bool:
        """Take one line of a link, or its end; false if there is nothing to take."""
        if link.closed or not self._takes(link):
            return False
        end = link.inbox.find(b"\n", 0, _LINE_SIZE_MAX + 1)
        if end < 0 and link.inbox.size > _LINE_SIZE_MAX:
            self._fail(link, RemoteProtocolError(ErrorCode.NOT_NOTES, "a line is too long"))
        elif end >= 0:
            self._read(link, link.inbox.take(end + 1)[:-1])
        elif link.eof:
            self._fail(link, None)
        else:
            return False
        return True

    def _takes(self, link: LineLink) -> bool:
        ready = link.session is None or self._core.is_ready(link.session)
        return link.eof or (ready and self._core.takes_messages)

    def _read(self, link: LineLink, line: bytes) -> None:
        try:
            value = parse(line, depth_max=_DEPTH_MAX)
        except JsonError as error:
            return self._fail(link, RemoteProtocolError(ErrorCode.NOT_NOTES, str(error)))
        if link.session is not None and not self._core.is_ready(link.session):
            return self._fail(link, None)  # the end has arrived
        if link.session is None:
            return self._introduced(link, value)
        if _is_message(value):
            self._core.receive_message(link.session, value["author"], value["sequence"], value)
        else:
            try:
                self._core.receive_notes(link.session, decode_notes(value))
            except RemoteProtocolError as error:
                self._fail(link, error.with_traceback(None))
        return None

    def _introduced(self, link: LineLink, name: object) -> None:
        if not isinstance(name, str) or not is_feed_id(name):
            return self._end(link)
        try:
            self._begin(link, name)
        except LocalProtocolError:  # blocked, or too many
            self._end(link)
        return None

    def _begin(self, link: LineLink, peer: str) -> None:
        session = self._core.connect(peer, role=link.role)
        link.begin(session)
        self._by_session[session] = link

    def _fail(self, link: LineLink, error: RemoteProtocolError | None) -> None:
        if link.session is None:
            self._end(link)
        else:
            self._core.disconnect(link.session, error)

    def _end(self, link: LineLink) -> None:
        link.end()
        self._links.pop(link.number, None)
        self._stirred[link.number] = link

    def _read_size(self, link: LineLink) -> int:
        room = _LINE_SIZE_MAX + 1 - link.inbox.size
        return max(0, room) if self._takes(link) else 0

    def _fill(self, link: LineLink, size: int) -> None:
        if link.session is not None:
            for frame in self._core.frames_to_send(link.session, size):
                link.outbox.append(frame + b"\n")

    def links_to_send(self) -> Sequence[LineLink]:
        for session in self._core.sessions_to_send():
            if (link := self._by_session.get(session)) is not None:
                self._stirred[link.number] = link
        stirred, self._stirred = self._stirred, {}
        return list(stirred.values())

    def next_effect(self) -> Effect[Any] | None:
        return self._core.next_effect()

    def complete(self, ticket: Ticket[R], result: R) -> None:
        self._core.complete(ticket, result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        self._core.fail(ticket, error)
        self.close()

    def next_deadline(self) -> float | None:
        return self._core.next_deadline()

    def advance(self, now: float) -> None:
        self._core.advance(now)


def _is_message(value: Any) -> bool:
    return (
        is_dict(value)
        and isinstance(value.get("author"), str)
        and type(value.get("sequence")) is int
        and 1 <= value["sequence"] <= SEQUENCE_MAX
        and "content" in value
    )
