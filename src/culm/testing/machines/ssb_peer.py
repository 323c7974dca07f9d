"""Peers of Secure Scuttlebutt: ``ssb-peer``, all layers over links.

Members of a meeting are named by words, of which their keys are made; verbs take words, too.
``dial`` asks for a connection, ``dialled`` and ``accepted`` open sealed links, ``attached`` one on
which nothing is sealed; ``close_link`` ends one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.arguments import check_int, check_text, check_type
from culm.machine import ContractErrorCode, Event, LocalProtocolError, Ticket
from culm.ssb import ebt, history, muxrpc
from culm.ssb.ebt import (
    AppendMessages,
    FeedExtended,
    FeedForked,
    LoadClock,
    Message,
    ReadMessages,
    SessionRole,
    State,
)
from culm.ssb.feed_id import feed_id_of
from culm.ssb.messages import ClassicMessage, create_message
from culm.ssb.muxrpc.packets import BodyType, encode_header
from culm.ssb.peer import (
    Limits,
    Peer,
    PeerConnected,
    PeerDisconnected,
    PeerEvent,
    PeerLink,
    Settings,
)
from culm.ssb.store import MemoryStore
from culm.testing.contents import JSON
from culm.testing.encodings import BIG_ENDIAN, DECIMAL
from culm.testing.machines import (
    Advance,
    Config,
    Flood,
    Frame,
    Key,
    MachineSpec,
    Meeting,
    Operation,
    Receive,
    call,
    close_link,
    keys_of,
    register,
)
from culm.testing.machines.ssb_ebt import dial_failed, dialling, kept, peer_clock
from culm.testing.messages import sized
from culm.testing.ssb_lines import DialWanted

__all__ = ["PEER"]

_SETTINGS = keys_of(Settings, without=["ebt", "history"])
_EPOCH = 1.7e9
_POSTS_MAX = 1000


def _key(name: str) -> SigningKey:
    check_text("name", name)
    return SigningKey(sha256(name.encode()).digest())


@cache
def _feed(name: str) -> str:
    return feed_id_of(bytes(_key(name).verify_key))


_NAMES = {_feed(name): name for name in ("alice", "bob", "carol", "dave")}


class _DiallingPeer(Peer):
    """A peer whose user may want connections."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(identity=_key(name), **options)
        self.name = name
        self._dials: list[str] = []

    def dial(self, name: str) -> None:
        """Ask for a connection."""
        check_type("name", name, str)
        if self.state is not State.OPEN:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        self._dials.append(_feed(name))

    def next_event(self) -> PeerEvent | DialWanted | None:  # type: ignore[override]
        if self._dials:
            return DialWanted(peer=self._dials.pop(0))
        return super().next_event()


def _store(config: Config) -> MemoryStore:
    """With the first messages of the peer's own feed."""
    check_int("posts", config["posts"], 0, _POSTS_MAX)
    store = MemoryStore()
    if config["posts"]:
        made = _messages(config["me"], config["posts"])
        messages = tuple(Message(each.author, each.sequence, each.id, each.data) for each in made)
        store.perform(AppendMessages(ticket=Ticket(1), messages=messages))
    return store


def _build(config: Config) -> _DiallingPeer:
    small = config["small"]
    peer = _DiallingPeer(
        config["me"],
        stored=_store(config).load(),
        now=0.0,
        epoch=_EPOCH,
        restored=config["restored"],
        settings=Settings(**{key.name: config[key.name] for key in _SETTINGS}),
        limits=_SMALL if small else Limits(),
    )
    for name in config["follows"]:
        peer.follow(_feed(name))
    return peer


_SMALL = Limits(
    links_max=4,
    links_of_peer_max=2,
    half_sent_size_max=4096,
    early_size_max=8192,
    packets_max=2,
    fill_size_max=1024,
    rpc=muxrpc.Limits(
        body_size_max=2048,
        control_size_max=512,
        calls_max=8,
        unanswered_max=16,
        answers_max=8,
        unsent_size_max=2048,
    ),
    ebt=ebt.Limits(
        sessions_max=4,
        feeds_max=16,
        unsent_size_max=2048,
        read_count_max=4,
        unwritten_size_max=8192,
        write_count_max=8,
    ),
    history=history.Limits(replies_max=8, read_count_max=4, read_size_max=2048),
)


def _follow(machine: Peer, name: str, value: bool = True) -> None:
    machine.follow(_feed(name), value)


def _block(machine: Peer, author: str, target: str, value: bool = True) -> None:
    machine.block(_feed(author), _feed(target), value)


def _publish(machine: Peer, text: str) -> None:
    check_type("text", text, str)
    machine.publish({"type": "post", "text": text})


def _confirm(machine: Peer) -> None:
    machine.confirm()


def _ephemeral(machine: _DiallingPeer) -> PrivateKey:
    """The key of the next connection, which is no secret here."""
    return PrivateKey(sha256(f"{machine.name} {len(machine.links)}".encode()).digest())


def _dialled(machine: _DiallingPeer, name: str) -> PeerLink:
    return machine.dialled(_feed(name), ephemeral=_ephemeral(machine))


def _accepted(machine: _DiallingPeer) -> PeerLink:
    return machine.accepted(ephemeral=_ephemeral(machine))


def _attached(machine: Peer, name: str, role: SessionRole) -> PeerLink:
    return machine.attached(_feed(name), role=role)


def _normalised(events: Sequence[Event]) -> object:
    """What is stored in the end, and who was there; how it came there is a matter of chance."""
    last = {event.feed: event.last for event in events if isinstance(event, FeedExtended)}
    kinds = (PeerConnected, PeerDisconnected, FeedForked)
    return sorted(last.items()), [event for event in events if isinstance(event, kinds)]


# What a peer says on a link on which nothing is sealed.


def _packet(number: int, body: Any, *, end: bool = False, stream: bool = True) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return encode_header(number, len(data), BodyType.JSON, stream=stream, end=end) + data


def _request(number: int, name: str, kind: str, *args: Any) -> bytes:
    body = {"name": name.split("."), "args": args, "type": kind}
    return _packet(number, body, stream=kind != "async")


@cache
def _messages(name: str, count: int, text: str = "text") -> tuple[ClassicMessage, ...]:
    made: list[ClassicMessage] = []
    for number in range(count):
        last = made[-1].place if made else None
        content = {"type": "post", "text": text}
        made.append(create_message(_key(name), content=content, timestamp=number, last=last))
    return tuple(made)


def _said(name: str, first: int, last: int, *, number: int, text: str = "text") -> bytes:
    """Messages of a feed in a call."""
    return b"".join(
        _packet(number, message.data) for message in _messages(name, last, text)[first - 1 :]
    )


def _notes(number: int, **notes: int) -> bytes:
    return _packet(number, {_feed(name): value for name, value in notes.items()})


def _asked(number: int, name: str, **fields: Any) -> bytes:
    return _request(number, "createHistoryStream", "source", {"id": _feed(name), **fields})


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
                Receive(_asked(6, "alice", live=True, keys=False), 1),
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


def _stranger(number: int) -> bytes:
    return _notes(1, **{f"stranger {number}": 2})


def _early(number: int) -> bytes:
    """A message that comes before its turn, in one of three live calls; nobody has signed it."""
    made, call = _messages(_ALL[number % 3], 2, "early " * 200)[1], 5 + number % 3
    sequence = b'"sequence":%d' % (3 + number // 3 % 40)
    return _packet(-call, made.data.replace(b'"sequence":2', sequence))


def _history(number: int) -> bytes:
    return _asked(number + 2, "alice", live=True)


PEER = register(
    MachineSpec(
        name="ssb-peer",
        build=_build,
        # For each of four links a packet and what waits to be sent, and feeds' notes; once what
        # waits to be written, and what has come before its turn.
        retained_max=60_000,
        encodings=(DECIMAL, *BIG_ENDIAN),
        messages=sized(9, slice(1, 5)),
        keys=(
            Key(name="me", type=str, default="alice", meaning="Whose peer it is, by a word."),
            Key(
                name="follows",
                type=list,
                default=("alice", "bob"),
                meaning="The feeds that it follows, by words.",
            ),
            Key(name="posts", type=int, default=0, meaning="How many messages its own feed has."),
            Key(
                name="restored",
                type=bool,
                default=False,
                meaning="Whether its feeds come from a backup.",
            ),
            Key(name="small", type=bool, default=False, meaning="Whether its limits are small."),
            *_SETTINGS,
        ),
        tight={"small": True},
        verbs={
            "follow": _follow,
            "block": _block,
            "publish": _publish,
            "confirm": _confirm,
            "dialled": _dialled,
            "dial_failed": dial_failed,
            "accepted": _accepted,
            "attached": _attached,
            "close_link": close_link,
        },
        respond=lambda config: _store(config).perform,
        kept=kept,
        results={LoadClock: peer_clock, ReadMessages: tuple},
        meetings=_MEETINGS,
        dialling=dialling(_NAMES),
        bad_calls=(
            call("close_link", link=99),
            call("attached", name="dave", role="server"),
        ),
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
        normalise=_normalised,
        lazy_output=True,
    )
)
