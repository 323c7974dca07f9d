"""Epidemic Broadcast Trees: rings, forks, stalled and changing peers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from culm.arguments import is_dict
from culm.machine import Effect, Event
from culm.machines import Advance, Config, Eof, Operation, Receive, call, lookup
from culm.machines.ssb_lines import DialWanted, encode_fields, feed, next_message
from culm.ssb.ebt import (
    AppendMessages,
    FeedExtended,
    Head,
    SessionEnded,
    SessionOpened,
    SessionSynced,
    SourceChanged,
)
from culm.testing.contents import JSON
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Flood,
    Frame,
    MachineSpec,
    Meeting,
    Usage,
    Work,
)

__all__ = ["EBT", "kept"]


def _normalised(events: Sequence[Event]) -> list[Event]:
    """The stored messages and the ended sessions; the way there is a matter of chance."""
    last: dict[str, int] = {}
    for event in events:
        if isinstance(event, FeedExtended):
            last[event.feed] = event.last
    kinds = (FeedExtended, SourceChanged, DialWanted, SessionEnded, SessionOpened, SessionSynced)
    others = [event for event in events if not isinstance(event, kinds)]
    return [
        *others,
        *(FeedExtended(feed=name, first=1, last=last[name]) for name in sorted(last)),
    ]


def kept(effect: Effect[Any] | Event) -> list[tuple[str, int, str]]:
    """The messages that it writes."""
    messages = effect.messages if isinstance(effect, AppendMessages) else ()
    return [(each.author, each.sequence, each.id) for each in messages]


def confirms(effect: Effect[Any], message: bytes) -> bool:
    """Notes that report a message written by the effect."""
    try:
        notes = json.loads(message)
    except ValueError:
        return False
    return is_dict(notes) and any(
        isinstance(note := notes.get(each.author), int) and note >> 1 >= each.sequence
        for each in (effect.messages if isinstance(effect, AppendMessages) else ())
    )


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _feed_of(name: str, count: int, text: str = "text") -> list[bytes]:
    """The lines of a feed's first messages."""
    lines: list[bytes] = []
    head: Head | None = None
    for _ in range(count):
        message = next_message(feed(name), head, text)
        head = Head(message.sequence, message.id)
        lines.append(message.data + b"\n")
    return lines


def _hello(name: str, **notes: int) -> bytes:
    """The first frames of `name`: its id, and notes."""
    return _line(feed(name)) + _line({feed(each): value for each, value in notes.items()})


_ALL = ["alice", "bob", "carol"]

_BOBS = _feed_of("bob", 6)

_INVALID = _BOBS[1].replace(b'"content"', b'"valid":false,"content"')

_OTHER = _feed_of("bob", 4, "another")


def _members(*names: str, **config: Any) -> dict[str, Config]:
    return {name: {"me": name, "follows": _ALL, **config} for name in names}


def _said(name: str, text: str) -> tuple[str, Operation]:
    return name, call("publish", text=text)


_MEETINGS = (
    Meeting(
        name="three in a ring",
        members=_members(*_ALL),
        script=(
            _said("alice", "one"),
            _said("alice", "two"),
            _said("bob", "hello"),
            ("alice", call("dial", name="bob")),
            ("bob", call("dial", name="carol")),
            ("carol", call("dial", name="alice")),
            _said("alice", "three"),
            _said("carol", "hi"),
            _said("alice", "four"),
            ("alice", Advance(1.0)),
            ("bob", call("close_link", link=1)),
            _said("alice", "five"),
            ("alice", Advance(5.0)),
            ("carol", call("close")),
            ("alice", call("close")),
        ),
    ),
    Meeting(
        name="small limits",
        members=_members("alice", "bob", read_count_max=2, unsent_size_max=300, notes_max=1),
        script=(
            *(_said("alice", f"message {number}") for number in range(7)),
            ("bob", call("dial", name="alice")),
            _said("alice", "live"),
        ),
    ),
    Meeting(
        name="changes of mind",
        members={**_members("alice"), "bob": {"me": "bob", "follows": ["bob"]}},
        script=(
            _said("alice", "one"),
            ("bob", call("dial", name="alice")),
            ("bob", call("follow", name="alice")),
            ("bob", call("follow", name="alice", value=False)),
            _said("alice", "two"),
            ("alice", call("block", author="alice", target="bob")),
            ("alice", call("block", author="alice", target="bob", value=False)),
            ("bob", call("follow", name="alice")),
            ("bob", call("dial", name="alice")),
            ("alice", call("block", author="carol", target="bob")),
            ("bob", call("close_link", link=2)),
            ("bob", call("dial", name="alice")),
            ("bob", call("dial", name="dave")),
        ),
    ),
    Meeting(
        name="a stalled peer",
        members=_members("alice"),
        script=(
            ("alice", call("accepted")),
            ("alice", Receive(_hello("carol", bob=10), 1)),
            ("alice", call("accepted")),
            ("alice", Receive(_hello("dave", bob=12), 2)),
            ("alice", Receive(_BOBS[0] + _BOBS[1], 1)),
            ("alice", Advance(3.5)),
            ("alice", Receive(b"".join(_BOBS[2:]), 2)),
            ("alice", Advance(9.0)),
            ("alice", Eof(2)),
            ("alice", Eof(1)),
        ),
    ),
    Meeting(
        name="a fork",
        members=_members("alice"),
        script=(
            ("alice", call("accepted")),
            ("alice", Receive(_hello("dave", bob=10, eve=4, alice=0), 1)),
            ("alice", Receive(_BOBS[0] + _BOBS[1], 1)),
            ("alice", Receive(_OTHER[2] + _OTHER[3] + _line({feed("carol"): 2}), 1)),
        ),
    ),
    Meeting(
        name="what is not valid",
        members=_members("alice"),
        script=(
            ("alice", call("dialled", name="dave")),
            ("alice", Receive(_line({feed("bob"): 10}), 1)),
            (
                "alice",
                Receive(_BOBS[0] + _BOBS[1].replace(b'"content"', b'"valid":false,"content"'), 1),
            ),
            ("alice", Receive(_BOBS[1], 1)),
        ),
    ),
    Meeting(
        name="a new connection", members=_members("alice"), script=(("alice", call("accepted")),)
    ),
    Meeting(
        name="a session",
        members=_members("alice"),
        script=(
            _said("alice", "one"),
            ("alice", call("accepted")),
            ("alice", Receive(_hello("dave", alice=0), 1)),
        ),
    ),
)


def _stranger(number: int) -> bytes:
    """A note of a feed without followers."""
    return _line({feed(f"stranger {number}"): 2})


def _again(number: int) -> bytes:
    """The first feed is wanted, then not wanted."""
    return _line({feed("alice"): number % 2})


def _growing(number: int) -> bytes:
    """Bob's messages, without end."""
    fields = {"previous": None, "author": feed("bob"), "sequence": number + 1, "content": "x" * 64}
    return encode_fields(fields).data + b"\n"


_TIGHT = {
    "sessions_max": 4,
    "feeds_max": 16,
    "unsent_size_max": 1024,
    "read_count_max": 4,
    "unwritten_size_max": 8192,
    "write_count_max": 8,
}


def _many_messages(count: int) -> Meeting:
    return Meeting(
        name="messages",
        members=_members("alice", "bob"),
        script=(
            *(_said("alice", f"message {number}") for number in range(count)),
            ("bob", call("dial", name="alice")),
        ),
    )


def _many_feeds(count: int) -> Meeting:
    """Alice follows as many feeds as a peer mentions, each with a message."""
    names = [f"feed {number}" for number in range(count)]
    told = b"".join(_feed_of(name, 1)[0] for name in names)
    return Meeting(
        name="feeds",
        members={"alice": {"me": "alice", "follows": names}},
        script=(
            ("alice", call("accepted")),
            ("alice", Receive(_hello("carol", **dict.fromkeys(names, 2)), 1)),
            ("alice", Receive(told, 1)),
        ),
    )


def _many_links(count: int) -> Meeting:
    """Each peer wants a feed, and then a new message of it."""
    links = range(1, count + 1)
    return Meeting(
        name="links",
        members={"alice": {"me": "alice", "follows": ["alice"], "sessions_max": count}},
        script=(
            *(("alice", call("accepted")) for _ in links),
            *(("alice", Receive(_hello(f"peer {n}", alice=0), n)) for n in links),
            _said("alice", "new"),
            *(("alice", Eof(n)) for n in links),
        ),
    )


EBT = register(
    MachineSpec(
        machine=lookup("ssb-ebt"),
        bounds=Bounds(
            # For each link an incoming line, the unsent output, and feeds' notes; once, the
            # messages waiting to be written.
            retained_max=80_000,
            work=Work(base=2500, per_byte=25),
            tight=_TIGHT,
        ),
        usage=Usage(
            meetings=_MEETINGS,
            growth={"messages": _many_messages, "feeds": _many_feeds, "links": _many_links},
            bad_calls=(call("close_link", link=99),),
        ),
        attacks=Attacks(
            floods=(
                Flood(unit=_stranger, after="a session/alice", link=1),
                Flood(unit=_again, after="a session/alice", link=1),
                Flood(unit=_growing, after="a session/alice", link=1),
                Flood(unit=b"x", after="a new connection/alice", link=1),
            ),
            frames=(
                Frame(
                    name="a line",
                    wrap=lambda body: body + b"\n",
                    contents=JSON,
                    size=8000,
                    after="a session/alice",
                    link=1,
                ),
                Frame(
                    name="a post",
                    wrap=lambda body: _BOBS[0][:-2] + b',"more":' + body + b"}\n",
                    contents=JSON,
                    size=6000,
                    after="a session/alice",
                    link=1,
                ),
            ),
        ),
        comparison=Comparison(
            kept=kept,
            confirms=confirms,
            normalise=_normalised,
            lazy_output=True,
        ),
    )
)
