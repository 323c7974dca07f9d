"""Conversations to be had twice: piece by piece, and in runs.

`converse` lets the two players of a `Duel` act at random, and keeps the calls and the input of one
of them.  `replay` repeats these with a new connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

import pytest
from p2p_model import Dice, Duel, Log, Step
from p2p_snapshots import connection_as_it_is
from p2p_support import Told, drain, published

from culm.machine import Event, LocalProtocolError
from culm.point2point import (
    CancelReason,
    Connection,
    EntriesReceived,
    ErrorCode,
    Limits,
    MetadataReceived,
    PayloadReceived,
    RequestState,
    Role,
    Setup,
)
from culm.testing.pipe import Chunker
from culm.wire.multihash import HashFamily
from specs.point2point import joined

LENGTH = 45


@cache
def make_log(family: HashFamily, length: int = LENGTH, *, ended: bool = False) -> Log:
    """Payloads of all kinds: none, small, large, compressible and incompressible."""
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


@dataclass(repr=False)
class Conversation:
    """The history of one connection."""

    role: Role
    setup: Setup
    limits: Limits
    family: HashFamily
    log: Log
    trusted: bool = True  # so that it may send runs
    steps: list[Step] = field(default_factory=list)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For failing examples: the whole would be longer than anyone can read."""
        printer.text(f"<{len(self.steps)} steps of the {self.role.name} one, {self.limits}>")

    def __repr__(self) -> str:
        return f"<{len(self.steps)} steps>"


def converse(seed: int, kept: Conversation, peer: Setup, *, steps: int = 25) -> Conversation:
    """A random conversation, which begins with a request that both agree on.

    Usually it is for the whole log, most of which comes in runs.
    """
    chance = Random(seed)
    duel = Duel(
        (kept.setup, peer) if kept.role is Role.PROACTIVE else (peer, kept.setup),
        (kept.limits, kept.limits),
        logs={kept.log[1].entry.log: kept.log},
        family=kept.family,
        trust_caller=kept.trusted,
    )
    opener, other = chance.sample(duel.players, 2)
    simple = chance.random() < 0.7
    opener.propose(Dice(()) if simple else _dice(chance))
    duel.settle()
    for game in other.games.values():
        other.control(game, Dice(()) if simple else _dice(chance))
    for _ in range(steps):
        _act(duel, chance)
    if chance.random() < 0.3:
        duel.players[chance.randrange(2)].do(None, "close")
    duel.settle()
    kept.steps = duel.players[kept.role].steps
    return kept


def _dice(chance: Random) -> Dice:
    return Dice(chance.choices(range(1 << 16), k=16))


def _act(duel: Duel, chance: Random) -> None:
    """Take a random action."""
    side = chance.randrange(2)
    player = duel.players[side]
    game = chance.choice(list(player.games.values())) if player.games else None
    if chance.random() < 0.35:
        duel.deliver(side, chance.choice([None, None, chance.randint(1, 3000)]))
    elif game is None or chance.random() < 0.05:
        player.propose(_dice(chance))
    elif game.state is RequestState.PROPOSED_BY_PEER or chance.random() < 0.12:
        player.control(game, _dice(chance))
    elif chance.random() < 0.1:
        verb, *arguments = chance.choice(_REFUSED)
        with pytest.raises(LocalProtocolError):
            player.do(game.request, verb, *arguments)
    else:
        for _ in range(chance.choice([1, 3, 30, 100])):
            player.stream(game, _dice(chance))


# Never legal
_REFUSED = (("notify", 0), ("adjust",), ("jump", 1 << 63), ("cancel", CancelReason.CONFIRM))


# Once more


class Outcome(Told):
    """Everything that can be seen of a connection."""

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
    """The state of a connection and its requests, as values."""
    snapshot = connection_as_it_is(connection)
    return snapshot.state, sorted(snapshot.requests, key=lambda request: request.request_id)


def _perform(
    connection: Connection, request_id: int | None, verb: str, arguments: Any, options: Any
) -> object:
    """Apply it; returns the error of a refusal."""
    try:
        target = connection if request_id is None else connection.request(request_id)
        getattr(target, verb)(*arguments, **options)
    except LocalProtocolError as error:
        return error.code
    return None


def replay(kept: Conversation, *, in_runs: bool, chunker: Chunker) -> Outcome:
    """Have the conversation with a new connection, whose bytes come in such chunks."""
    connection = Connection(
        role=kept.role,
        setup=kept.setup,
        limits=kept.limits,
        family=kept.family,
        in_runs=in_runs,
        trust_caller=kept.trusted,
    )
    found = Outcome(connection)
    for request_id, verb, arguments, options in kept.steps:
        if verb != "receive_data":
            found.refusals.append(_perform(connection, request_id, verb, arguments, options))
            found.events += drain(connection, kept.log)
        else:
            at, [data] = 0, arguments
            while at < len(data):
                size = chunker(len(data) - at)
                connection.receive_data(data[at : at + size])
                found.events += drain(connection, kept.log)
                at += size
        found.sent.append(connection.data_to_send())
        found.snapshots.append(requests_of(connection))
    return found


def by_request(events: Sequence[Event]) -> dict[int | None, list[Event]]:
    """The events of each request: a run does not wait for the end of another request."""
    found: dict[int | None, list[Event]] = {}
    for event in events:
        found.setdefault(getattr(event, "request_id", None), []).append(event)
    return {id: expanded(told) for id, told in found.items()}


def of_one_payload(one: Event, other: Event) -> bool:
    """Whether both are beginnings of the same payload, as far as it had come."""
    if not (isinstance(one, PayloadReceived) and isinstance(other, PayloadReceived)):
        return False
    shorter, longer = sorted((one.data, other.data), key=len)
    same = replace(one, data=b"") == replace(other, data=b"") and longer.startswith(shorter)
    return same and not one.finished


def assert_alike(plain: Outcome, runs: Outcome) -> None:
    """Both give the same events; after the last whole entry before a fault only pieces give more.

    How much they give of the payload at fault depends on its pieces.
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
                assert event.verified  # and more bytes came after it
                assert plain.code is ErrorCode.BAD_COMPRESSION
        for id, events in told.items():
            if events and of_one_payload(events[-1], told_in_runs[id][-1]):
                told_in_runs[id][-1] = events[-1]
    assert told_in_runs == told
    assert runs.refusals == plain.refusals
    assert runs.sent == plain.sent
    if plain.code is None:
        assert runs.snapshots == plain.snapshots
