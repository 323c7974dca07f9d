"""Conversations to be had twice: piece by piece, and in runs.

`converse` has two connections do things at random, and keeps what one of them was told to
do and what it received.  `replay` does that again to a new connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

from p2p_support import Told, proposal, published, stored

from culm.bamboo.links import lower_pool, upper_pool
from culm.bamboo.store import NewEntry
from culm.machine import Event, LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Connection,
    EntriesReceived,
    EntryWanted,
    ErrorCode,
    HashWanted,
    Limits,
    MetadataReceived,
    Part,
    PayloadReceived,
    Request,
    RequestState,
    Role,
    Setup,
    SkipReason,
    payloads_up_to,
)
from culm.testing.link import Chunker
from culm.testing.machines.point2point import joined
from culm.wire.multihash import HashFamily

Log = dict[int, NewEntry]

LENGTH = 45


@cache
def make_log(family: HashFamily, length: int = LENGTH, *, ended: bool = False) -> Log:
    """Payloads of all kinds: none, small, large, such as can be compressed and such as not."""
    chance = Random(length)
    payloads = [
        (
            b"",
            b"bamboo " * (seqnum % 9 + 1),
            chance.randbytes(seqnum),
            b"bamboo bamboo! " * 300 if seqnum % 10 == 3 else chance.randbytes(247 + seqnum % 4),
            chance.randbytes(3000 if seqnum % 10 == 4 else 70),
        )[seqnum % 5]
        for seqnum in range(1, length + 1)
    ]
    news = published(payloads, family=family, log_id=300, seed=5, ended=ended)
    return dict(enumerate(news, 1))


# What a connection is told to do.  All that can be refused is refused by both twins.


def send(connection: Connection, log: Log, request_id: int, count: int, seed: int) -> None:
    """Send what is due, `count` pieces at most, mostly as the peer wants it."""
    request, chance = connection.request(request_id), Random(seed)
    for _ in range(count):
        piece, demand = request.send_cursor.piece, request.peer_demand
        if piece is None or piece.seqnum not in log or demand is None:
            return
        entry, payload, _ = log[piece.seqnum]
        assert payload is not None
        if not demand.eagerness.wants_metadata:
            request.notify()
        elif piece.part is Part.METADATA:
            request.send_metadata(entry)
        elif len(payload) < demand.size_min:
            request.skip_payload(SkipReason.TOO_SMALL)
        elif len(payload) > demand.size_max:
            request.skip_payload(SkipReason.TOO_LARGE)
        elif not demand.eagerness.wants_payload(len(payload)):
            request.notify()
        else:
            rest = payload[request.send_cursor.offset :]
            if chance.random() < 0.1 and len(rest) > 1:
                rest = rest[: chance.randint(1, len(rest))]
            request.send_payload(rest, entry=entry, compress=chance.random() < 0.7)


def send_run(connection: Connection, log: Log, request_id: int, count: int, seed: int) -> None:
    """Send entries in one go, if that is possible now."""
    request = connection.request(request_id)
    piece = request.send_cursor.piece
    first = 0 if piece is None else piece.seqnum
    request.send_entries(stored(log[n]) for n in range(first, first + count) if n in log)


VERBS: dict[str, Callable[..., object]] = {
    "propose": lambda connection, log, **options: connection.propose(
        proposal(entries=log, **options)
    ),
    "confirm": lambda connection, log, id, **options: connection.request(id).confirm(**options),
    "adjust": lambda connection, log, id, **options: connection.request(id).adjust(**options),
    "cancel": lambda connection, log, id: connection.request(id).cancel(
        CancelReason.RESOURCE_LIMIT
    ),
    "notify": lambda connection, log, id, count: connection.request(id).notify(count),
    "jump": lambda connection, log, id, size, seqnum: connection.request(id).jump(
        size, entry=log[seqnum].entry
    ),
    "skip": lambda connection, log, id: connection.request(id).skip_payload(SkipReason.UNAVAILABLE),
    "send": send,
    "send_run": send_run,
    "close": lambda connection, log: connection.close(),
}

Step = tuple[str, Any]  # a verb and its options, or "receive" and bytes


def perform(connection: Connection, log: Log, verb: str, options: dict[str, Any]) -> object:
    """Do it; tells how it was refused, if it was."""
    try:
        VERBS[verb](connection, log, **options)
    except LocalProtocolError as error:
        return error.code
    return None


def drain(connection: Connection, log: Log) -> list[Event]:
    """All events; what is wanted is given."""
    found: list[Event] = []
    while (event := connection.next_event()) is not None:
        found.append(event)
        if not isinstance(event, HashWanted | EntryWanted):
            continue
        request = connection.request(event.request_id)
        if event.seqnum not in log:
            request.pass_over()
        elif isinstance(event, HashWanted):
            request.provide_hash(event.seqnum, log[event.seqnum].entry.hash())
        else:
            request.provide_entry(log[event.seqnum].entry)
    return found


@dataclass(repr=False)
class Conversation:
    """What one connection has been through."""

    role: Role
    setup: Setup
    limits: Limits
    family: HashFamily
    log: Log
    steps: list[Step] = field(default_factory=list)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a failing example shows: the whole of it would be longer than anyone can read."""
        printer.text(f"<{len(self.steps)} steps of the {self.role.name} one, {self.limits}>")

    def __repr__(self) -> str:
        return f"<{len(self.steps)} steps>"


class Talk:
    """Two connections; what happens to the one of them that has `role` is written down."""

    def __init__(self, kept: Conversation, peer: Setup, *, runs: bool) -> None:
        self.kept = kept
        self.verb = "send_run" if runs else "send"
        self.sides = [
            Connection(
                role=role,
                setup=kept.setup if role is kept.role else peer,
                limits=kept.limits,
                family=kept.family,
                trust_caller=True,
            )
            for role in (Role.PROACTIVE, Role.REACTIVE)
        ]
        self.under_way = [b"", b""]
        for _ in range(2):
            self.deliver(0, None)
            self.deliver(1, None)

    def deliver(self, sender: int, size: int | None) -> bool:
        """Bytes reach the other one."""
        self.under_way[sender] += self.sides[sender].data_to_send()
        data = self.under_way[sender][:size]
        self.under_way[sender] = self.under_way[sender][len(data) :]
        receiver = self.sides[1 - sender]
        if data:
            if 1 - sender == self.kept.role:
                self.kept.steps.append(("receive", data))
            receiver.receive_data(data)
        drain(receiver, self.kept.log)
        return bool(data)

    def call(self, side: int, verb: str, **options: Any) -> object:
        if side == self.kept.role:
            self.kept.steps.append((verb, options))
        return perform(self.sides[side], self.kept.log, verb, options)

    def settle(self) -> None:
        while self.deliver(0, None) | self.deliver(1, None):
            pass

    def act(self, chance: Random) -> None:
        """Do something."""
        side = chance.randrange(2)
        requests = list(self.sides[side].requests.values())
        request = chance.choice(requests) if requests else None
        if chance.random() < 0.35:
            self.deliver(side, chance.choice([None, None, chance.randint(1, 3000)]))
        elif request is None or chance.random() < 0.05:
            self.call(side, "propose", **any_proposal(chance))
        elif request.state is RequestState.PROPOSED_BY_PEER:
            options = any_adjustment(chance, request) if chance.random() < 0.4 else {}
            eagerness = options.pop("eagerness", EVERYTHING)
            self.call(side, "confirm", id=request.request_id, eagerness=eagerness, **options)
        else:
            self.act_on(side, request, chance)

    def act_on(self, side: int, request: Request, chance: Random) -> None:
        id, chosen = request.request_id, chance.random()
        piece, ahead = request.send_cursor.piece, request.receive_cursor
        if chosen < 0.03:
            self.call(side, "cancel", id=id)
        elif chosen < 0.12:
            self.call(side, "adjust", id=id, **any_adjustment(chance, request))
        elif chosen < 0.2 and piece is not None and piece.seqnum in self.kept.log:
            match chance.randrange(3):
                case 0:
                    self.call(side, "notify", id=id, count=chance.randint(1, 4))
                case 1:
                    self.call(side, "skip", id=id)
                case _:
                    size = chance.choice([ahead.offset or 1, chance.randint(1, 70)])
                    self.call(side, "jump", id=id, size=size, seqnum=piece.seqnum)
        else:
            verb = chance.choice(["send", "send", self.verb])
            count, seed = chance.choice([1, 3, 30, 100]), chance.randrange(1 << 30)
            self.call(side, verb, request_id=id, count=count, seed=seed)


def any_eagerness(chance: Random) -> Any:
    return chance.choice([EVERYTHING] * 5 + [NOTIFY, payloads_up_to(0), payloads_up_to(250)])


def any_proposal(chance: Random) -> dict[str, Any]:
    start = chance.choice([1, 1, 1, 2, 4, 13, 14])
    made: dict[str, Any] = {"start": start}
    kind = chance.choice(["plain"] * 5 + ["sparse", "payload only", "inside"])
    if kind == "inside" and start > 1:
        made |= {"start_offset": chance.choice([0, 3])}
    else:
        made |= {"lower_certpool": chance.choice([start, start, *lower_pool(start)])}
    if kind == "payload only":
        made |= {"payload_only": True}
    if kind == "sparse" or chance.random() < 0.5:
        end = start + chance.choice([0, 5, 12, 30])
        made |= {"end": end, "upper_certpool": chance.choice([end, end, *upper_pool(end)])}
        made |= {"sparse": kind == "sparse"}
    if chance.random() < 0.3:
        made |= {"size_min": chance.choice([0, 1, 30]), "size_max": chance.choice([250, 5000])}
    made |= {"eagerness": any_eagerness(chance), "payload_mandatory": chance.random() < 0.5}
    return made


def any_adjustment(chance: Random, request: Request) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if chance.random() < 0.5:
        made["eagerness"] = any_eagerness(chance)
    if chance.random() < 0.5:
        made["end"] = request.proposal.start + chance.choice([3, 11, 20])
    if chance.random() < 0.2:
        made["size_max"] = chance.choice([250, 5000])
    return made or {"allow_skipping": True}


def converse(
    seed: int, kept: Conversation, peer: Setup, *, steps: int = 25, runs: bool = False
) -> Conversation:
    """A conversation at random, which begins with a request that both agree on."""
    chance = Random(seed)
    talk = Talk(kept, peer, runs=runs)
    opener = chance.randrange(2)
    talk.call(opener, "propose", **any_proposal(chance))
    talk.settle()
    for request in list(talk.sides[1 - opener].requests.values()):
        talk.call(1 - opener, "confirm", id=request.request_id, eagerness=EVERYTHING)
    for _ in range(steps):
        talk.act(chance)
    if chance.random() < 0.3:
        talk.call(chance.randrange(2), "close")
    talk.settle()
    return kept


# Once more.


class Outcome(Told):
    """All that can be seen of a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.refusals: list[object] = []
        self.sent: list[bytes] = []
        self.snapshots: list[object] = []


def expanded(events: Sequence[Event]) -> list[Event]:
    """Entries as their pieces, and the pieces of each payload joined."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, EntriesReceived):
            assert event.entries
            for entry, payload, staged in event.entries:
                assert payload is not None
                assert not staged
                id, seqnum = event.request_id, entry.seqnum
                found += [
                    MetadataReceived(request_id=id, entry=entry, verified=True),
                    PayloadReceived(
                        request_id=id,
                        seqnum=seqnum,
                        offset=0,
                        data=payload,
                        finished=True,
                        verified=True,
                    ),
                ]
        else:
            found.append(event)
    return joined(found)


def requests_of(connection: Connection) -> object:
    """What a connection says of its requests, and would say."""
    snapshot = connection.snapshot()
    return snapshot.state, sorted(snapshot.requests, key=lambda request: request.request_id)


def replay(kept: Conversation, *, in_runs: bool, chunker: Chunker) -> Outcome:
    """Have the conversation with a new connection, to which bytes come in such chunks."""
    connection = Connection(
        role=kept.role,
        setup=kept.setup,
        limits=kept.limits,
        family=kept.family,
        in_runs=in_runs,
        trust_caller=True,
    )
    found = Outcome(connection)
    for step, argument in kept.steps:
        if step != "receive":
            found.refusals.append(perform(connection, kept.log, step, dict(argument)))
            found.events += drain(connection, kept.log)
        else:
            at = 0
            while at < len(argument):
                size = chunker(len(argument) - at)
                connection.receive_data(argument[at : at + size])
                found.events += drain(connection, kept.log)
                at += size
        found.sent.append(connection.data_to_send())
        found.snapshots.append(requests_of(connection))
    return found


def by_request(events: Sequence[Event]) -> dict[int | None, list[Event]]:
    """What happened to each request: a run does not wait for the end of another request."""
    found: dict[int | None, list[Event]] = {}
    for event in events:
        found.setdefault(getattr(event, "request_id", None), []).append(event)
    return {id: expanded(told) for id, told in found.items()}


def of_one_payload(one: Event, other: Event) -> bool:
    """Whether both are the beginning of the same payload, as much as had come."""
    if not (isinstance(one, PayloadReceived) and isinstance(other, PayloadReceived)):
        return False
    shorter, longer = sorted((one.data, other.data), key=len)
    same = replace(one, data=b"") == replace(other, data=b"") and longer.startswith(shorter)
    return same and not one.finished


def assert_alike(plain: Outcome, runs: Outcome) -> None:
    """Both tell the same; behind the last whole entry before a fault only pieces tell more.

    How much they tell of the payload that turned out to be wrong depends on its pieces.
    """
    assert plain.code == runs.code
    told, told_in_runs = by_request(plain.events), by_request(runs.events)
    if plain.code is not None:
        more: list[Event] = []
        for id, events in told.items():
            count = len(told_in_runs.setdefault(id, []))
            more += events[count:]
            del events[count:]
        assert len(more) <= 2
        for event in more:
            assert isinstance(event, MetadataReceived | PayloadReceived)
            if isinstance(event, PayloadReceived) and event.finished:
                assert event.verified  # and there were more bytes behind it
                assert plain.code is ErrorCode.BAD_COMPRESSION
        for id, events in told.items():
            if events and of_one_payload(events[-1], told_in_runs[id][-1]):
                told_in_runs[id][-1] = events[-1]
    assert told_in_runs == told
    assert runs.refusals == plain.refusals
    assert runs.sent == plain.sent
    if plain.code is None:
        assert runs.snapshots == plain.snapshots
