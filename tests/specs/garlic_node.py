"""Garlic Farm: a cluster of servers, and clients at one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.messages import RESPONSE_OF, MessageType, RequestFrame
from culm.garlic.raft import Apply, Entry, Persist
from culm.garlic.values import LogEntry, ValueType, encode_entries, encode_log, encode_server
from culm.machine import Effect, Event
from culm.machines import Advance, Config, Eof, Operation, Receive, call, lookup
from culm.machines.garlic_node import server
from culm.testing.registry import register
from culm.testing.spec import Attacks, Bounds, Comparison, Flood, MachineSpec, Meeting, Usage, Work
from specs.garlic_contents import entries_frame
from specs.garlic_hostile import NODE_BOMBS

__all__ = ["NODE", "TIGHT_SETTINGS", "kept", "server"]

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
    "unanswered_max": 4,
}


def _normalised(events: Sequence[Event]) -> list[Event]:
    """Without the parts that are the connection's business."""
    return [event for event in events if not isinstance(event, (DialWanted, LinkClosed))]


def kept(result: Effect[Any] | Event) -> list[tuple[object, ...]]:
    """The entries that it writes or applies, by index."""
    match result:
        case Persist(first_index=int(first), entries=entries):
            return [("written", first + at, each) for at, each in enumerate(entries)]
        case Apply(first_index=first, entries=entries):
            return [("applied", first + at, each) for at, each in enumerate(entries)]
        case _:
            return []


def _confirms(effect: Effect[Any], message: bytes) -> bool:
    """A server answers once the log has its entries; applying them is its own business."""
    return isinstance(effect, Persist) and message[:1] in _RESPONSES


def _is_answer(message: bytes) -> bool:
    """Whether it is a response, or the beginning of an HTTP response."""
    return message[:1] in _RESPONSES or message.startswith(b"HTTP/")


_RESPONSES = {bytes((number,)) for number in RESPONSE_OF.values()}


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
        members={
            name: config
            for name, config in _members(1, 2, 3, unanswered_max=1).items()
            if name != "3"
        },
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
    return RequestFrame(type=kind, log=encode_entries(entries)).encode()


_VALUE = LogEntry(0, ValueType.APPLICATION, b"value")

_ASKED = _client_request(MessageType.CLIENT_REQUEST, _VALUE, _VALUE)

_ADDED = _client_request(
    MessageType.ADD_SERVER_REQUEST, LogEntry(0, ValueType.CLUSTER_SERVER, encode_server(server(9)))
)


def _append(number: int, entries: Sequence[Entry] = ()) -> bytes:
    return RequestFrame(
        type=MessageType.APPEND_ENTRIES_REQUEST,
        source=2,
        destination=1,
        term=number + 1,
        log=encode_log(entries),
    ).encode()


def _vote(number: int) -> bytes:
    return RequestFrame(
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


def _many_requests(count: int) -> Meeting:
    """Requests of one client."""
    return Meeting(
        name="requests of clients",
        members=_members(1),
        script=(
            ("1", Advance(0.5)),
            ("1", call("accepted")),
            *(("1", Receive(_ASKED, 1)) for _ in range(count)),
        ),
    )


def _many_values(count: int) -> Meeting:
    return Meeting(
        name="values",
        members=_members(1, 2, 3),
        script=(
            ("1", Advance(0.5)),
            *(("1", call("propose", values=[b"value"])) for _ in range(count)),
            ("1", Advance(0.7)),
        ),
    )


def _many_clients(count: int) -> Meeting:
    """Each on a link of its own."""
    links = range(1, count + 1)
    return Meeting(
        name="clients",
        members=_members(1, links_max=2 * count, strangers_max=2 * count),
        script=(
            ("1", Advance(0.5)),
            *(("1", call("accepted")) for _ in links),
            *(("1", Receive(_ASKED, number)) for number in links),
            *(("1", Eof(number)) for number in links),
        ),
    )


NODE = register(
    MachineSpec(
        machine=lookup("garlic-node"),
        bounds=Bounds(
            # Four links, each with an incoming request, four unanswered ones, five sent ones, and a
            # handshake; and the core's proposals, snapshot and log.
            retained_max=4 * 20_000 + 20_000,
            # Twice the measured cost: an answer of 26 bytes may be the last that a decision waits
            # for, and the next batch of entries, which counts towards the base. A byte of a log
            # pack stands for up to 1,032 of a value, which is made twice.
            work=Work(base=5000, per_byte=130),
            tight=_TIGHT,
        ),
        usage=Usage(
            meetings=(*_MEETINGS, *_CLIENTS),
            growth={
                "requests of a client": _many_requests,
                "values": _many_values,
                "clients": _many_clients,
            },
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
        ),
        attacks=Attacks(
            bombs=NODE_BOMBS,
            frames=(entries_frame("a new connection/1", 1),),
            floods=(
                Flood(unit=_append, after="a new connection/1", link=1),
                Flood(unit=_vote, after="a new connection/1", link=1),
                Flood(unit=_ASKED, after="a client/1", link=1),
                Flood(unit=_ADDED, after="a client/1", link=1),
            ),
        ),
        comparison=Comparison(
            normalise=_normalised, kept=kept, confirms=_confirms, is_answer=_is_answer
        ),
    )
)
