"""Peers of Secure Scuttlebutt: on sealed connections, and clients and servers of all kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from culm.machine import Event
from culm.machines import Advance, Config, Operation, Receive, call, lookup
from culm.machines.ssb_peer import feed_of, messages_of
from culm.ssb.ebt import FeedExtended, FeedForked
from culm.ssb.muxrpc import BodyType
from culm.ssb.muxrpc.calls import encode_header
from culm.ssb.peer import PeerConnected, PeerDisconnected
from culm.testing.contents import JSON
from culm.testing.registry import register
from culm.testing.spec import Attacks, Bounds, Comparison, Flood, Frame, MachineSpec, Meeting, Usage
from specs.ssb_ebt import confirms, kept

__all__ = ["PEER"]


def _normalised(events: Sequence[Event]) -> object:
    """The stored messages and the peers that were there; the way there is a matter of chance."""
    last = {event.feed: event.last for event in events if isinstance(event, FeedExtended)}
    kinds = (PeerConnected, PeerDisconnected, FeedForked)
    return sorted(last.items()), [event for event in events if isinstance(event, kinds)]


def _packet(number: int, body: Any, *, end: bool = False, stream: bool = True) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return encode_header(number, len(data), BodyType.JSON, stream=stream, end=end) + data


def _request(number: int, name: str, kind: str, *args: Any) -> bytes:
    body = {"name": name.split("."), "args": args, "type": kind}
    return _packet(number, body, stream=kind != "async")


def _said(name: str, first: int, last: int, *, number: int, text: str = "text") -> bytes:
    """Messages of a feed in a call."""
    return b"".join(
        _packet(number, message.data) for message in messages_of(name, last, text)[first - 1 :]
    )


def _notes(number: int, **notes: int) -> bytes:
    return _packet(number, {feed_of(name): value for name, value in notes.items()})


def _asked(number: int, name: str, **fields: Any) -> bytes:
    return _request(number, "createHistoryStream", "source", {"id": feed_of(name), **fields})


_SESSION = _request(1, "ebt.replicate", "duplex", {"version": 3, "format": "classic"})

_PING = _request(2, "gossip.ping", "duplex", {"timeout": 300000})

_ERROR = {"message": "method:ebt,replicate is not in list of allowed methods", "name": "Error"}

_GOODBYE = bytes(9)

_ALL = ["alice", "bob", "carol"]


def _members(*names: str, **config: Any) -> dict[str, Config]:
    return {name: {"me": name, "follows": _ALL, "posts": 1, **config} for name in names}


def _post(name: str, text: str) -> tuple[str, Operation]:
    return name, call("publish", text=text)


def _alice(*operations: Operation) -> tuple[tuple[str, Operation], ...]:
    return tuple(("alice", operation) for operation in operations)


def _attach(role: str) -> Operation:
    return call("attached", name="dave", role=role)


_MEETINGS = (
    Meeting(
        name="two peers on a sealed connection",
        members=_members("alice", "bob", ping_s=30.0),
        script=(
            ("bob", call("dial", name="alice")),
            _post("alice", "live"),
            ("alice", Advance(35.0)),
            ("bob", call("dial", name="nobody")),
            ("bob", call("close")),
            ("alice", call("close")),
        ),
    ),
    Meeting(
        name="one of them has no EBT",
        members={**_members("alice"), **_members("bob", speaks_ebt=False)},
        script=(
            ("bob", call("dial", name="alice")),
            _post("alice", "live"),
            ("alice", call("close_link", link=1)),
        ),
    ),
    Meeting(
        name="a client, and all that it may call",
        members=_members("alice"),
        script=(
            *_alice(
                _attach("server"),
                Receive(_SESSION + _PING, 1),
                Receive(_notes(1, alice=0, carol=6, dave=2), 1),
                Receive(_packet(2, 1700000000123) + _said("carol", 1, 2, number=1), 1),
                Receive(_request(3, "manifest", "async"), 1),
                Receive(_request(4, "foo.bar", "duplex") + _packet(4, True, end=True), 1),
                Receive(_request(5, "blobs.createWants", "source"), 1),
                Receive(_asked(6, "alice", live=True, keys=False) + _asked(7, "alice"), 1),
            ),
            _post("alice", "live"),
            *_alice(
                Receive(_said("carol", 3, 3, number=1) + _packet(6, True, end=True), 1),
                Receive(_packet(1, True, end=True) + _GOODBYE, 1),
                call("close"),
            ),
        ),
    ),
    Meeting(
        name="a server without EBT",
        members=_members("alice"),
        script=_alice(
            _attach("client"),
            Receive(_packet(-1, _ERROR, end=True), 1),
            Receive(_said("bob", 1, 3, number=-3) + _packet(-3, True, end=True), 1),
            Receive(_packet(-4, True, end=True), 1),
            call("block", author="carol", target="dave"),
            Advance(1.0),
            call("follow", name="carol", value=False),
            Receive(_said("bob", 4, 4, number=-5), 1),
            Receive(_asked(1, "bob") + _asked(2, "carol"), 1),
            Advance(100.0),
            Receive(_GOODBYE, 1),
        ),
    ),
    Meeting(
        name="feeds that rest, and are forgotten",
        members=_members("alice"),
        script=_alice(
            _attach("client"),
            Receive(_packet(-1, _ERROR, end=True), 1),
            *(Receive(_packet(-number, _ERROR, end=True), 1) for number in (2, 3, 4)),
            call("follow", name="bob", value=False),
            call("block", author="carol", target="dave"),
            call("follow", name="bob"),
            Receive(_packet(-5, _ERROR, end=True), 1),
            Advance(290.0),
            Receive(_asked(1, "bob") + _asked(2, "carol"), 1),
            Advance(550.0),
            Receive(_asked(3, "alice"), 1),
            Advance(601.0),
            call("block", author="carol", target="dave", value=False),
            Receive(_GOODBYE, 1),
        ),
    ),
    Meeting(
        name="a fork, and a feed that is blocked",
        members=_members("alice"),
        script=_alice(
            _attach("client"),
            Receive(_notes(-1, bob=8, carol=2, alice=0), 1),
            Receive(_said("bob", 1, 2, number=-1), 1),
            Receive(_said("bob", 3, 3, number=-1, text="another"), 1),
            call("block", author="alice", target="dave"),
            Receive(_GOODBYE, 1),
        ),
    ),
    Meeting(
        name="a session",
        members=_members("alice"),
        script=(*_alice(_attach("server"), Receive(_SESSION + _notes(1, alice=0, bob=2), 1)),),
    ),
    Meeting(
        name="a backup",
        members=_members("alice", restored=True),
        script=_alice(
            _attach("client"),
            Receive(_notes(-1, alice=6), 1),
            Receive(_said("alice", 2, 3, number=-1), 1),
            _attach("server"),
            Receive(_SESSION + _notes(1, alice=6), 2),
            call("confirm"),
            call("publish", text="live"),
            Receive(_GOODBYE, 1),
            call("close"),
        ),
    ),
    Meeting(name="a link", members=_members("alice"), script=_alice(_attach("server"))),
    Meeting(
        name="live calls",
        members=_members("alice"),
        script=_alice(
            _attach("client"),
            Receive(_packet(-1, _ERROR, end=True), 1),
            *(Receive(_packet(-number, True, end=True), 1) for number in (2, 3, 4)),
        ),
    ),
)

_VERIFIED = [
    Meeting(
        name=f"{meeting.name}, and drivers that verify",
        members={
            name: {**member, "verifying_max": count_max}
            for (name, member), count_max in zip(meeting.members.items(), (4, 64), strict=False)
        },
        script=meeting.script,
    )
    for meeting in _MEETINGS
    if meeting.name
    in {
        "two peers on a sealed connection",
        "a client, and all that it may call",
        "a fork, and a feed that is blocked",
    }
]


def _stranger(number: int) -> bytes:
    return _notes(1, **{f"stranger {number}": 2})


def _early(number: int) -> bytes:
    """An unsigned message that comes before its turn, in one of three live calls."""
    made, call = messages_of(_ALL[number % 3], 2, "early " * 200)[1], 5 + number % 3
    sequence = b'"sequence":%d' % (3 + number // 3 % 40)
    return _packet(-call, made.data.replace(b'"sequence":2', sequence))


def _history(number: int) -> bytes:
    return _asked(number + 2, "alice", live=True)


def _many_messages(count: int) -> Meeting:
    return Meeting(
        name="messages",
        members={**_members("alice", posts=count), **_members("bob")},
        script=(("bob", call("dial", name="alice")),),
    )


def _many_links(count: int) -> Meeting:
    links = range(1, count + 1)
    return Meeting(
        name="links",
        members=_members("alice"),
        script=(
            *(("alice", call("attached", name=f"peer {n}", role="server")) for n in links),
            *(("alice", Receive(_SESSION + _notes(1, alice=0), n)) for n in links),
            _post("alice", "new"),
            *(("alice", Receive(_GOODBYE, n)) for n in links),
        ),
    )


def _many_histories(count: int) -> Meeting:
    """`count` calls for a feed on one link, each waiting for new messages."""
    return Meeting(
        name="histories",
        members=_members("alice"),
        script=(
            *_alice(_attach("server")),
            *_alice(*(Receive(_history(number), 1) for number in range(count))),
            _post("alice", "new"),
        ),
    )


PEER = register(
    MachineSpec(
        machine=lookup("ssb-peer"),
        bounds=Bounds(
            # For each of four links a packet and the unsent output, and feeds' notes; once, the
            # messages waiting to be written, and those that came before their turn.
            retained_max=60_000,
            tight={"small": True},
        ),
        usage=Usage(
            meetings=(*_MEETINGS, *_VERIFIED),
            growth={
                "messages": _many_messages,
                "links": _many_links,
                "calls for a feed": _many_histories,
            },
            bad_calls=(
                call("close_link", link=99),
                call("attached", name="dave", role="server"),
            ),
        ),
        attacks=Attacks(
            floods=(
                Flood(unit=_stranger, after="a session/alice", link=1),
                Flood(unit=_history, after="a session/alice", link=1),
                Flood(unit=_packet(2, 5), opening=_PING, after="a link/alice", link=1),
                Flood(unit=_early, after="live calls/alice", link=1),
            ),
            frames=(
                Frame(
                    name="a ping",
                    wrap=lambda body: _packet(
                        1, b'{"name":["gossip","ping"],"type":"duplex","args":[' + body + b"]}"
                    ),
                    contents=JSON,
                    after="a link/alice",
                    link=1,
                ),
                Frame(
                    name="in a ping",
                    wrap=lambda body: _PING + _packet(2, body),
                    contents=JSON,
                    after="a link/alice",
                    link=1,
                ),
                Frame(
                    name="notes",
                    wrap=lambda body: _packet(1, body),
                    contents=JSON,
                    after="a session/alice",
                    link=1,
                ),
                Frame(
                    name="a message",
                    wrap=lambda body: _packet(1, b'{"previous":null,"content":' + body + b"}"),
                    contents=JSON,
                    size=6000,
                    after="a session/alice",
                    link=1,
                ),
            ),
        ),
        comparison=Comparison(
            kept=kept,
            confirms=lambda effect, packet: confirms(effect, packet[9:]),
            normalise=_normalised,
            lazy_output=True,
        ),
    )
)
