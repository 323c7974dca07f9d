"""A small machine with several links that keeps the contract: `Chat`, with its spec."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from culm.buffer import check_buffer
from culm.machine import (
    Buffer,
    Closed,
    ContractErrorCode,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
)
from culm.machines import Dialling, MachineType, Receive, call
from culm.testing.spec import Attacks, Bounds, Comparison, Flood, MachineSpec, Meeting, Usage, Work
from toy_machines import LineReceived, Lines, ToyErrorCode, ToyState


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWanted(Event):
    guest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Event):
    link: int
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HungUp(Event):
    link: int
    error: RemoteProtocolError | None


class ChatLink:
    """The lines of one guest."""

    lines_type: type[Lines] = Lines

    def __init__(self, number: int, chat: Chat) -> None:
        self.number = number
        self.closed = False
        self._chat = chat
        self.lines = self.lines_type()

    def receive_data(self, data: Buffer) -> None:
        check_buffer(data)
        if not self.closed:
            self.lines.receive_data(data)

    def receive_eof(self) -> None:
        self.lines.receive_eof()

    def read_size(self) -> int:
        return 0 if self.closed else self.lines.read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        return self.lines.data_to_send(size_max)

    def close(self) -> None:
        self.lines.close()
        self._chat.stirred[self.number] = self


class Chat:
    """Passes the user's lines to all guests; a guest says goodbye with ``bye``."""

    link_type: type[ChatLink] = ChatLink

    def __init__(self, *, links_max: int = 4) -> None:
        self.state = ToyState.OPEN
        self.stirred: dict[int, ChatLink] = {}
        self._links_max = links_max
        self._numbers = 0
        self._guests: dict[int, ChatLink] = {}
        self._calls: deque[str] = deque()
        self._wanted: set[str] = set()
        self._closing = False

    @property
    def links(self) -> list[ChatLink]:
        return list(self._guests.values())

    def links_to_send(self) -> list[ChatLink]:
        stirred, self.stirred = self.stirred, {}
        return list(stirred.values())

    def accepted(self) -> ChatLink:
        if self._closing or len(self._guests) >= self._links_max:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        self._numbers += 1
        link = self._guests[self._numbers] = self.link_type(self._numbers, self)
        return link

    def call(self, guest: str) -> None:
        if self._closing or guest in self._wanted:
            raise LocalProtocolError(ToyErrorCode.NO_SUCH_PEER)
        self._wanted.add(guest)
        self._calls.append(guest)

    def reached(self, guest: str) -> ChatLink:
        if guest not in self._wanted:
            raise LocalProtocolError(ToyErrorCode.NO_SUCH_PEER)
        link = self.accepted()
        self._wanted.remove(guest)
        return link

    def not_reached(self, guest: str) -> None:
        self._wanted.discard(guest)

    def say(self, text: bytes) -> None:
        if self._closing:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        open_links = [link for link in self.links if link.lines.state is ToyState.OPEN]
        if not open_links:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        for link in open_links:
            link.lines.say(text)  # refused by all or by none
            self.stirred[link.number] = link

    def next_event(self) -> Event | None:
        if self._calls:
            return CallWanted(guest=self._calls.popleft())
        for link in self.links:
            event = link.lines.next_event()
            if isinstance(event, LineReceived):
                return Said(link=link.number, text=event.text)
            if isinstance(event, Closed):
                link.closed = True
                self.stirred[link.number] = self._guests.pop(link.number)
                return HungUp(link=link.number, error=event.error)
        return self._end() if self._closing else None

    def _end(self) -> Event | None:
        if self._guests or self.state is ToyState.CLOSED:
            return None
        self.state = ToyState.CLOSED
        return Closed()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._wanted.clear()
            self._calls.clear()
            for link in self.links:
                link.close()


def heard(events: Any) -> dict[int, bytes]:
    """The lines heard on each link."""
    said: dict[int, bytes] = {}
    for event in events:
        if isinstance(event, Said):
            said[event.link] = said.get(event.link, b"") + event.text
    return said


CHAT = MachineSpec(
    machine=MachineType(
        name="chat",
        build=lambda config: Chat(**config),
        dialling=Dialling(
            wanted=lambda event: event.guest if isinstance(event, CallWanted) else None,
            made=lambda guest: call("reached", guest=guest),
            failed=lambda guest: call("not_reached", guest=guest),
            accepted=call("accepted"),
        ),
    ),
    bounds=Bounds(
        retained_max=8192,
        work=Work(base=1000, per_byte=20),
    ),
    usage=Usage(
        meetings=[
            Meeting(
                name="two guests",
                members={"host": {}, "one": {}, "two": {}},
                script=[
                    ("host", call("call", guest="one")),
                    ("host", call("call", guest="two")),
                    ("host", call("call", guest="nobody")),
                    ("host", call("say", text=b"hello all")),
                    ("one", call("say", text=b"hello host")),
                    ("two", call("say", text=b"x" * 40)),
                    ("one", call("close")),
                    ("host", call("say", text=b"you are left")),
                    ("host", call("close")),
                    ("two", call("close")),
                ],
            ),
            Meeting(
                name="a stranger",
                members={"host": {}},
                script=[("host", call("accepted")), ("host", Receive(b"may I\ncome in", 1))],
            ),
        ],
        bad_calls=[call("say", text=b"\n"), call("reached", guest="stranger")],
    ),
    attacks=Attacks(floods=[Flood(unit=b"x\n", after="a stranger/host", link=1)]),
    comparison=Comparison(normalise=heard),
)
