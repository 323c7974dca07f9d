"""Garlic Farm: ``garlic-node``, a server with its connections.

Members of a meeting are named by their ids.  Verbs: ``accepted`` and ``dialled`` open links
(with the handshake, if the config says so), ``add_server`` takes an id and whether it votes,
``close_link`` gives one connection up.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

from culm.garlic import raft
from culm.garlic.digest import Challenge, CredentialCache, Nonces
from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.limits import Limits
from culm.garlic.messages import MessageType, Request
from culm.garlic.node import Node
from culm.garlic.raft import (
    Entry,
    Server,
    Stored,
    Timing,
)
from culm.garlic.store import MemoryStore
from culm.garlic.values import LogEntry, ValueType, encode_entries, encode_log, encode_server
from culm.machine import Event, Link
from culm.testing.encodings import BIG_ENDIAN
from culm.testing.garlic_hostile import NODE_BOMBS
from culm.testing.machines import (
    Advance,
    Config,
    Dialling,
    Eof,
    Flood,
    Key,
    MachineSpec,
    Meeting,
    Operation,
    Receive,
    Responder,
    Work,
    call,
    close_link,
    keys_of,
    register,
)

__all__ = [
    "CORE_KEYS",
    "NODE",
    "TIGHT_SETTINGS",
    "Values",
    "founded",
    "limits_of",
    "server",
    "timing_of",
]

_USER, _PASSWORD = "farm", "wonderland"

# Small limits, for floods.
TIGHT_SETTINGS = {
    "append_entries_max": 8,
    "append_size_max": 1024,
    "chunk_size": 512,
    "snapshot_distance": 8,
    "trailing_entries": 0,
    "proposals_max": 16,
    "proposal_size_max": 2048,
    "reads_max": 8,
}
_TIGHT = {
    **TIGHT_SETTINGS,
    "log_size_max": 2048,
    "entries_max": 16,
    "inflated_size_max": 2048,
    "servers_max": 8,
    "endpoint_size_max": 64,
    "head_size_max": 1024,
    "links_max": 2,
    "strangers_max": 2,
    "requests_max": 4,
}

CORE_KEYS = (
    Key(name="id", type=int, default=1, meaning="The server's id."),
    Key(
        name="founders",
        type=list,
        default=(1, 2, 3),
        meaning="Ids of the servers that found the cluster; none for who will be added.",
    ),
    *keys_of(Timing),
    *keys_of(raft.Limits),
)
_LIMITS = keys_of(Limits, without=["raft"])
_NODE = keys_of(Node, without=("timing", "limits"))
_KEYS = (
    *CORE_KEYS,
    *_LIMITS,
    *_NODE,
    Key(name="handshake", type=bool, default=False, meaning="Connections begin with it."),
)


def chance(seed: int) -> Random:
    return Random(seed)


def chosen(config: Config, keys: Sequence[Key]) -> dict[str, Any]:
    """What the config has for `keys`, by name."""
    return {key.name: config[key.name] for key in keys}


class Values:
    """A state machine that keeps the last few values."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, index: int, value: bytes) -> None:
        self.values = [*self.values[-7:], value]

    def snapshot(self) -> bytes:
        return b"\n".join(self.values)

    def restore(self, image: bytes) -> None:
        self.values = image.split(b"\n") if image else []


def server(number: int) -> Server:
    """The server of that id."""
    return Server(number, f"tcp://farm:{9000 + number}")


def founded(config: Config) -> Stored:
    """What a server starts from: the cluster of ``founders``, or nothing if there are none."""
    founders = tuple(server(number) for number in config["founders"])
    return Stored.founding(founders)


def timing_of(config: Config) -> Timing:
    """The core's times that the config has."""
    return Timing(**chosen(config, keys_of(Timing)))


def limits_of(config: Config) -> raft.Limits:
    """The core's limits that the config has."""
    return raft.Limits(**chosen(config, keys_of(raft.Limits)))


class _Cache(CredentialCache):
    """A challenge is used once more when that is said, and not when a handshake looks at it."""

    def use(self, server: str, now: float) -> tuple[Challenge, int] | None:
        entry = self._entries.get(server)
        found = super().use(server, now)
        if entry is not None and found is not None:
            self._entries[server] = entry
        return found

    def count(self, server: str) -> None:
        super().use(server, 0.0)


class _Member(Node):
    """A node with what its handshakes need."""

    def __init__(self, config: Config) -> None:
        number = config["id"]
        super().__init__(
            server_id=number,
            stored=founded(config),
            rng=chance(number),
            now=0.0,
            timing=timing_of(config),
            limits=Limits(**chosen(config, _LIMITS), raft=limits_of(config)),
            **chosen(config, _NODE),
        )
        self.shakes_hands = config["handshake"]
        self.nonces = Nonces(rng=chance(number), nonces_max=8)
        self.cache = _Cache(entries_max=8)
        self._chance = chance(number)

    def reach(self, peer: int) -> Link:
        """A connection that begins with a handshake; one that is refused uses up nothing."""
        host, chance = server(peer).endpoint, copy(self._chance)
        handshake = ClientHandshake(
            host=host,
            user=_USER,
            password=_PASSWORD,
            cache=self.cache,
            rng=chance,
        )
        link = self.dialled(peer, handshake=handshake)
        self._chance = chance
        self.cache.count(host)
        return link


def _accepted(machine: _Member) -> Link:
    handshake = ServerHandshake(lookup={_USER: _PASSWORD}.get, nonces=machine.nonces)
    return machine.accepted(handshake=handshake if machine.shakes_hands else None)


def _dialled(machine: _Member, peer: int) -> Link:
    return machine.reach(peer) if machine.shakes_hands else machine.dialled(peer)


def _add_server(machine: _Member, server_id: int, voter: bool = True) -> None:
    machine.add_server(replace(server(server_id), voter=voter))


def _respond(config: Config) -> Responder:
    return MemoryStore(Values(), founded(config)).perform


def _wanted(event: Event) -> str | None:
    return str(event.server.server_id) if isinstance(event, DialWanted) else None


def _normalised(events: Sequence[Event]) -> list[Event]:
    """Without what is a connection's affair."""
    return [event for event in events if not isinstance(event, (DialWanted, LinkClosed))]


def _members(*numbers: int, **config: Any) -> dict[str, Config]:
    return {str(number): {"id": number, "founders": list(numbers), **config} for number in numbers}


_ELECTION: list[tuple[str, Operation]] = [
    ("1", Advance(0.5)),
    ("1", call("propose", values=[b"one", b"two"])),
    ("1", call("read")),
    ("1", Advance(0.6)),
]
_SNAPSHOTS = {"snapshot_distance": 4, "trailing_entries": 0, "chunk_size": 16, "sync_gap": 2}
_JOINER: Config = {"id": 3, "founders": []}

_MEETINGS = (
    Meeting(
        name="election",
        members=_members(1, 2, 3),
        script=(
            *_ELECTION,
            ("1", call("transfer_leadership", target=2)),
            ("1", Advance(0.9)),
            ("2", call("propose", values=[b"three"])),
            ("2", Advance(1.0)),
            ("1", call("close")),
            ("2", Advance(1.2)),
            ("3", call("close")),
            ("2", call("close")),
        ),
    ),
    Meeting(
        name="handshake",
        members=_members(1, 2, handshake=True),
        script=(
            *_ELECTION,
            ("2", call("read")),
            ("2", call("forward", values=[b"three", b"four"])),
            ("2", Advance(0.7)),
            ("1", Advance(0.7)),
            ("2", Advance(0.8)),
        ),
    ),
    Meeting(
        name="nobody there",
        members={name: config for name, config in _members(1, 2, 3).items() if name != "3"},
        script=(*_ELECTION, ("1", call("close_link", link=1)), ("1", Advance(1.0))),
    ),
    Meeting(
        name="join and leave",
        members={**_members(1), "3": _JOINER},
        script=(
            *_ELECTION,
            ("1", call("add_server", server_id=3)),
            ("1", Advance(1.0)),
            ("1", call("propose", values=[b"x" * 100] * 3)),
            ("1", Advance(1.2)),
            ("1", call("remove_server", server_id=3)),
            ("1", Advance(2.5)),
        ),
    ),
    Meeting(
        name="learn and vote",
        members={
            **_members(1, handshake=True),
            "3": {**_JOINER, "handshake": True},
        },
        script=(
            *_ELECTION,
            ("1", call("add_server", server_id=3, voter=False)),
            ("1", Advance(1.0)),
            ("1", call("propose", values=[b"three"])),
            ("1", Advance(1.2)),
            ("1", call("add_server", server_id=3)),
            ("1", Advance(1.6)),
            ("1", call("propose", values=[b"four"])),
            ("1", Advance(2.0)),
        ),
    ),
    Meeting(
        name="snapshot",
        members={**_members(1, **_SNAPSHOTS), "3": {**_JOINER, **_SNAPSHOTS}},
        script=(
            *_ELECTION,
            *(("1", call("propose", values=[b"value %d" % n])) for n in range(12)),
            ("1", call("add_server", server_id=3)),
            ("1", Advance(1.0)),
            ("1", call("propose", values=[b"after"])),
            ("1", Advance(1.1)),
        ),
    ),
)


def _client_request(kind: MessageType, *entries: LogEntry) -> bytes:
    return Request(type=kind, log=encode_entries(entries)).encode()


_VALUE = LogEntry(0, ValueType.APPLICATION, b"value")
_ASKED = _client_request(MessageType.CLIENT_REQUEST, _VALUE, _VALUE)
_ADDED = _client_request(
    MessageType.ADD_SERVER_REQUEST, LogEntry(0, ValueType.CLUSTER_SERVER, encode_server(server(9)))
)


def _append(number: int, entries: Sequence[Entry] = ()) -> bytes:
    return Request(
        type=MessageType.APPEND_ENTRIES_REQUEST,
        source=2,
        destination=1,
        term=number + 1,
        log=encode_log(entries),
    ).encode()


def _vote(number: int) -> bytes:
    return Request(
        type=MessageType.REQUEST_VOTE_REQUEST, source=2, destination=1, term=number + 1
    ).encode()


_CLIENTS = (
    Meeting(
        name="clients",
        members=_members(1),
        script=(
            ("1", Advance(0.5)),
            ("1", call("accepted")),
            ("1", Receive(_ASKED * 3, 1)),
            ("1", Receive(_ADDED, 1)),
            ("1", Eof(1)),
        ),
    ),
    Meeting(
        name="a new connection",
        members={"1": {"id": 1}},
        script=(("1", call("accepted")),),
    ),
    Meeting(
        name="a client",
        members=_members(1),
        script=(("1", Advance(0.5)), ("1", call("accepted")), ("1", Receive(_ASKED, 1))),
    ),
)


NODE = register(
    MachineSpec(
        name="garlic-node",
        build=_Member,
        # Four links, each with a request that comes in, four unanswered ones, five that were
        # sent, and a handshake; and the core's proposals, snapshot and log.
        retained_max=4 * 20_000 + 20_000,
        # Measured twofold: an answer of 26 bytes may be what a decision waited for, and the
        # next batch of entries, which counts to the base.  A byte of a log pack stands for up to
        # 1,032 of a value, which is made twice.
        work=Work(base=5000, per_byte=130),
        encodings=BIG_ENDIAN,
        bombs=NODE_BOMBS,
        keys=_KEYS,
        tight=_TIGHT,
        verbs={
            "accepted": _accepted,
            "dialled": _dialled,
            "close_link": close_link,
            "add_server": _add_server,
        },
        respond=_respond,
        meetings=(*_MEETINGS, *_CLIENTS),
        dialling=Dialling(
            wanted=_wanted,
            made=lambda name: call("dialled", peer=int(name)),
            failed=lambda name: call("dial_failed", peer=int(name)),
            accepted=call("accepted"),
        ),
        bad_calls=(
            call("propose", values=[b"not the leader"]),
            call("read"),
            call("forward", values=[b"nobody leads"]),
            call("dialled", peer=9),
            call("add_server", server_id=1),
            call("remove_server", server_id=7),
            call("transfer_leadership", target=1),
            call("close_link", link=99),
        ),
        floods=(
            Flood(unit=_append, after="a new connection/1", link=1),
            Flood(unit=_vote, after="a new connection/1", link=1),
            Flood(unit=_ASKED, after="a client/1", link=1),
            Flood(unit=_ADDED, after="a client/1", link=1),
        ),
        normalise=_normalised,
    )
)
