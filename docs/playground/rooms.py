"""How the machines of each protocol are made for the playground, and what is shown of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from culm import bymux, oxen
from culm.garlic import raft
from culm.garlic.events import DialWanted
from culm.garlic.limits import Timing
from culm.garlic.node import Node
from culm.garlic.store import MemoryStore
from culm.machine import Event
from culm.ssb import muxrpc
from culm.testing.raft_store_model import Values

__all__ = ["BYMUX", "MUXRPC", "OXEN", "RAFT", "Room", "Seat"]

Facts = list[tuple[str, str]]
Deed = Callable[[Any, "Seat"], object]


@dataclass(slots=True)
class Seat:
    """A member's place in a conversation, which outlives its machine.

    others: the names of all members.
    lives: how often its machine has been started.
    said: how many values it has been given to say.
    """

    name: str
    others: Sequence[str]
    store: Any = None
    lives: int = 0
    said: int = 0

    def word(self) -> bytes:
        """The next value that this member is given to say."""
        self.said += 1
        return f"{self.name} says {self.said}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A protocol in the playground.

    protocol, options: for `culm.capture.dissect.dissect`.
    make: the machine of a member, with chance of its own, at a time in seconds.
    facts: what is shown of a machine beside its state.
    deeds: what a reader can have a member do, by a word; with the words on its button.
    leads: whether a machine is the one that a scenario calls the leader.
    wanted: the member to which an event asks for a connection.
    """

    name: str
    title: str
    page: str
    protocol: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    make: Callable[[Seat, Random, float], Any]
    facts: Callable[[Any, Seat], Facts]
    deeds: Mapping[str, tuple[str, Deed]]
    restarts: bool = True
    leads: Callable[[Any], bool] = lambda machine: False
    wanted: Callable[[Event], str | None] = lambda event: None


# bymux: two ends of a connection.  The first member has connected, and may create two streams.

_INITIAL = bymux.InitialState(local_creation_credit=2)
_TEXT = b"the quick brown fox jumps over the lazy dog "


def _bymux(seat: Seat, rng: Random, now: float) -> bymux.Connection:
    first = seat.name == seat.others[0]
    return bymux.Connection(
        role=bymux.Role.PROACTIVE if first else bymux.Role.REACTIVE,
        initial=_INITIAL if first else _INITIAL.mirrored(),
        limits=bymux.Limits(write_size_max=24, piece_size_max=24),
    )


def _bymux_facts(machine: bymux.Connection, seat: Seat) -> Facts:
    return [
        (f"stream {number}", ", ".join(_credits(stream)) or "nothing to do")
        for number, stream in machine.streams.items()
    ]


def _credits(stream: bymux.Stream) -> Iterator[str]:
    for amount, words in (
        (stream.unsent_size, "waiting"),
        (stream.send_credit, "of credit"),
        (stream.receive_credit, "granted"),
    ):
        if amount:
            yield f"{'no end' if amount == bymux.INFINITE else amount} {words}"


def _write(number: int) -> Deed:
    return lambda machine, seat: machine.stream(number).send_data(_TEXT)


BYMUX = Room(
    name="bymux",
    title="bymux",
    page="bymux.html",
    protocol="bymux",
    make=_bymux,
    facts=_bymux_facts,
    deeds={
        "create": ("Create a stream", lambda machine, seat: machine.create_stream()),
        "write0": ("Write 44 bytes on stream 0", _write(0)),
        "write2": ("Write 44 bytes on stream 2", _write(2)),
        "grant0": ("Grant 20 bytes on stream 0", lambda m, seat: m.stream(0).grant(20)),
        "grant2": ("Grant 20 bytes on stream 2", lambda m, seat: m.stream(2).grant(20)),
        "unlimited2": ("Grant stream 2 no end", lambda m, seat: m.stream(2).grant_infinite()),
        "ping": ("Ping", lambda machine, seat: machine.ping()),
        "close": ("Close the connection", lambda machine, seat: machine.close()),
    },
    restarts=False,
)


# muxrpc: two ends of a connection of Scuttlebutt, without the handshake and the boxes around it.

_MANIFEST = muxrpc.Manifest(
    {
        "whoami": muxrpc.CallType.ASYNC,
        "createHistoryStream": muxrpc.CallType.SOURCE,
        "ebt.replicate": muxrpc.CallType.DUPLEX,
    }
)
_OWED, _SENDING = muxrpc.CallState.OWED, muxrpc.CallState.SENDING
_RECEIVING, _EXCHANGING = muxrpc.CallState.RECEIVING, muxrpc.CallState.EXCHANGING


def _muxrpc_facts(machine: muxrpc.Connection, seat: Seat) -> Facts:
    return [
        (f"call {number}", f"{'.'.join(call.name)}: {call.state.name.lower()}")
        for number, call in machine.calls.items()
    ]


def _first(machine: muxrpc.Connection, *states: muxrpc.CallState) -> muxrpc.Call:
    """The first call in the first of these states that has any; the machine refuses the rest."""
    calls = machine.calls
    found = [number for state in states for number in calls if calls[number].state is state]
    return machine.call(next(iter(found), 0))


def _send_note(machine: muxrpc.Connection, seat: Seat) -> None:
    call = _first(machine, _SENDING, _EXCHANGING)
    seat.said += 1
    call.send({f"@{seat.name}": seat.said})


MUXRPC = Room(
    name="muxrpc",
    title="Scuttlebutt (muxrpc)",
    page="ssb-muxrpc.html",
    protocol="ssb-muxrpc",
    make=lambda seat, rng, now: muxrpc.Connection(manifest=_MANIFEST),
    facts=_muxrpc_facts,
    deeds={
        "whoami": (
            "Ask who the other is",
            lambda machine, seat: machine.make_call(["whoami"], muxrpc.CallType.ASYNC),
        ),
        "reply": (
            "Reply to that",
            lambda machine, seat: _first(machine, _OWED).reply({"id": f"@{seat.name}"}),
        ),
        "history": (
            "Ask for a feed",
            lambda machine, seat: machine.make_call(
                ["createHistoryStream"], muxrpc.CallType.SOURCE, {"id": "@alice"}
            ),
        ),
        "replicate": (
            "Begin to replicate",
            lambda machine, seat: machine.make_call(
                ["ebt", "replicate"], muxrpc.CallType.DUPLEX, {"version": 3}
            ),
        ),
        "send": ("Send a value", _send_note),
        "end": (
            "End a stream",
            lambda machine, seat: _first(machine, _SENDING, _RECEIVING, _EXCHANGING).end(),
        ),
        "fail": (
            "Fail a call",
            lambda machine, seat: _first(machine, _OWED, _SENDING, _EXCHANGING).fail("not now"),
        ),
        "close": ("Close the connection", lambda machine, seat: machine.close()),
    },
    restarts=False,
)


# Oxen: a cluster.  The first member starts it, and others join by way of the first.

_EPOCH = 1_700_000_000.0
_OXEN_TIMING = oxen.Timing(
    keepalive_s=3.0, usable_s=6.0, give_up_s=4.0, gossip_s=2.0, redelivery_max_s=2.0
)
_JOINED = oxen.PeerState.JOINED
_OXEN_LIMITS = oxen.Limits(datagram_size_max=512, message_size_max=4096)


def _oxen(seat: Seat, rng: Random, now: float) -> oxen.Node:
    node = oxen.Node(
        me=seat.name.encode(), rng=rng, epoch=_EPOCH, timing=_OXEN_TIMING, limits=_OXEN_LIMITS
    )
    node.advance(now)
    first, *rest = seat.others
    if seat.name != first:
        node.join(first.encode())
    elif seat.lives == 1:
        node.start()
    else:
        node.join(rest[0].encode())
    return node


def _oxen_facts(node: oxen.Node, seat: Seat) -> Facts:
    facts = []
    for sid, view in node.peers().items():
        way = "direct" if view.usable else "by others" if view.reachable else "no way"
        words = view.state.name.lower().replace("_", " ") if view.state is not _JOINED else way
        waiting = f", {view.queued} waiting" if view.queued else ""
        facts.append((sid.decode(errors="replace"), words + waiting))
    return facts


def _to_next(machine: oxen.Node, seat: Seat) -> object:
    at = seat.others.index(seat.name)
    to = seat.others[(at + 1) % len(seat.others)]
    return machine.send_in_order(to.encode(), seat.word())


OXEN = Room(
    name="oxen",
    title="Oxen",
    page="oxen.html",
    protocol="oxen",
    make=_oxen,
    facts=_oxen_facts,
    deeds={
        "say": ("Say something to all", lambda m, seat: m.broadcast_in_order(seat.word())),
        "tell": ("Tell the next one something", _to_next),
        "large": (
            "Say 1200 bytes to all",
            lambda m, seat: m.broadcast_in_order(seat.word().ljust(1200, b".")),
        ),
        "leave": ("Leave", lambda machine, seat: machine.leave()),
    },
)


# Raft: servers of Garlic Farm, with connections.

_RAFT_TIMING = Timing(
    dial_pause_s=0.5,
    raft=raft.Timing(
        election_timeout_min_s=1.0,
        election_timeout_max_s=2.0,
        heartbeat_interval_s=0.5,
        request_timeout_s=1.0,
    ),
)


def _number(name: str) -> int:
    return int(name.removeprefix("n"))


def _raft(seat: Seat, rng: Random, now: float) -> Node:
    if seat.store is None:
        servers = [raft.Server(_number(name), f"tcp://{name}:9001") for name in seat.others]
        seat.store = MemoryStore(Values(), raft.Stored.founding(servers))
    return Node(
        server_id=_number(seat.name),
        stored=seat.store.load(),
        rng=rng,
        now=now,
        timing=_RAFT_TIMING,
    )


def _raft_facts(node: Node, seat: Seat) -> Facts:
    return [
        ("term", f"{node.term}"),
        ("log", f"{node.last_index}, committed {node.commit_index}"),
        ("leader", "nobody" if node.leader is None else f"n{node.leader}"),
    ]


RAFT = Room(
    name="raft",
    title="Raft (Garlic Farm)",
    page="garlic.html",
    protocol="garlic",
    make=_raft,
    facts=_raft_facts,
    deeds={
        "propose": ("Propose a value", lambda node, seat: node.propose([seat.word()])),
        "read": ("Read", lambda node, seat: node.read()),
    },
    leads=lambda node: bool(node.state is raft.State.LEADER),
    wanted=lambda event: f"n{event.server.server_id}" if isinstance(event, DialWanted) else None,
)
