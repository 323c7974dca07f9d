"""Comparing, and its consequences, message by message."""

from __future__ import annotations

from typing import Any

import pytest
from p2panda_nodes import OTHER, SCHEMA, Node
from p2panda_support import HIGH, LOW
from p2panda_victim import Victim, rounds

from culm.bamboo import LogKey
from culm.bamboo.entry import decode
from culm.machine import Closed
from culm.p2panda import (
    Connection,
    Dialect,
    ErrorCode,
    Height,
    Limits,
    Offers,
    SessionEnded,
    SessionRequested,
)
from culm.p2panda.codec import Codec
from culm.p2panda.comparison import Comparison
from culm.p2panda.effects import Span
from culm.p2panda.heights import decode_item, encode_item
from culm.p2panda.messages import (
    EmptySet,
    Fingerprint,
    Have,
    LowerBound,
    Message,
    Payload,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
    Terminal,
)
from culm.p2panda.store import OperationStore
from culm.reconcile import Parameters
from culm.wire.multihash import YASMF


def heights(store: OperationStore, *schema_ids: str) -> list[Height]:
    view = store.range(schema_ids).view
    return list(map(decode_item, view.read(0, len(view))))


def grown(victim: Victim, *sizes: int) -> list[Height]:
    """Make documents of these numbers of operations; the heights of their logs."""
    author = victim.node.author
    for size in sizes:
        document = victim.node.create()
        for age in range(1, size):
            author.update(document, {"age": age})
    return heights(victim.node.store, SCHEMA)


def sent(said: list[Message]) -> list[tuple[LogKey, int]]:
    """The entries among messages."""
    entries = [decode(each.entry, family=YASMF) for each in said if isinstance(each, SendEntry)]
    return [(each.log, each.seqnum) for each in entries]


def test_the_sync_range_is_all_heights_of_all_logs_of_the_schemas_sorted():
    """All authors of a document count, each with all of their entries there."""
    ours = Node(1)
    theirs = Node(2, ours.store)
    document = ours.create()
    for node in (theirs, theirs, ours):
        node.author.update(document, {"age": 1})
    ours.author.create(OTHER, {"name": "elsewhere"})
    keys = [ours.author.public_key, theirs.author.public_key]
    wanted = sorted(Height(LogKey(key, 0), 2) for key in keys)
    assert heights(ours.store, SCHEMA) == wanted
    elsewhere = Height(LogKey(keys[0], 1), 1)
    assert heights(ours.store, SCHEMA, OTHER) == sorted([*wanted, elsewhere])


def test_what_a_named_height_says_of_what_the_peer_lacks():
    victim = Victim()
    (ours,) = grown(victim, 3)
    unknown = LogKey(b"\xff" * 32, 0)
    wanted: dict[Height, list[Span]] = {
        Height(unknown, 5): [],
        Height(ours.log, 7): [],
        Height(ours.log, 3): [],
        Height(ours.log, 1): [Span(ours.log, 2, 3)],
    }
    for height, spans in wanted.items():
        view = victim.node.store.range([SCHEMA]).view
        comparison = Comparison(view, first=False, parameters=Parameters(), offers=Offers())
        comparison.hear(LowerBound(LOW))
        comparison.hear(Payload(encode_item(*height), LOW, False))
        assert comparison.take_wanted() == spans


def test_entries_are_sent_while_ranges_are_compared():
    victim = Victim()
    (ours,) = grown(victim, 3)
    victim.begin()
    victim.said.clear()
    victim.tell(
        *rounds(LowerBound(LOW), Payload(encode_item(ours.log, 1)), Payload(HIGH, LOW, True))
    )
    assert sent(victim.said) == [(ours.log, 2), (ours.log, 3)]
    assert victim.tell(*rounds(Terminal())) == []
    assert [each for each in victim.said if isinstance(each, Reconcile)][-1].message == Terminal()


def test_a_log_that_the_peer_keeps_quiet_about_is_missing_there():
    """It names one of two that are listed, so it does not have the other one."""
    victim = Victim()
    first, second = grown(victim, 1, 2)
    victim.begin()
    lift = b"\x01" * 16 + bytes(7) + b"\x63"
    victim.tell(*rounds(LowerBound(LOW), Fingerprint(lift, LOW), Terminal()))
    assert victim.said[-4:-1] == rounds(
        LowerBound(LOW),
        Payload(encode_item(*first)),
        Payload(encode_item(*second), LOW, True),
    )
    assert sent(victim.said) == []
    victim.tell(*rounds(LowerBound(LOW), Payload(encode_item(*first), LOW, False), Terminal()))
    assert sent(victim.said) == [(second.log, 1), (second.log, 2)]
    assert victim.said[-1] == SyncDone(0, True)


@pytest.mark.parametrize("times", [1, 2, 4])
def test_what_a_peer_has_us_name_again_and_again_is_sent_once(times: int):
    """It asks for the same range each time, as if ours had not come, and has nothing there."""
    victim = Victim()
    logs = [each.log for each in grown(victim, 1, 2, 1)]
    victim.begin()
    lift = b"\x01" * 16 + bytes(7) + b"\x63"
    for _ in range(times):
        victim.said.clear()
        victim.tell(*rounds(LowerBound(LOW), Fingerprint(lift, LOW), Terminal()))
        named = [each.message for each in victim.said if isinstance(each, Reconcile)]
        assert sum(isinstance(each, Payload) for each in named) == len(logs)
    victim.tell(*rounds(LowerBound(LOW), Payload(HIGH, LOW, True), Terminal()))
    assert sent(victim.said) == [(logs[0], 1), (logs[1], 1), (logs[1], 2), (logs[2], 1)]


def test_a_have_follows_the_request_and_names_all_logs():
    victim = Victim()
    wanted = grown(victim, 1, 3, 2)
    victim.node.author.create(OTHER, {"name": "not asked for"})
    victim.said.clear()
    victim.begin(mode=0)
    assert victim.said[-1] == Have(0, tuple(wanted))


@pytest.mark.parametrize("said", [[], [Have(0, ())]])
def test_who_has_more_logs_than_go_into_a_have_gives_up(said: list[Message]):
    """And sends nothing more, whatever the peer has said by then."""
    victim = Victim(documents=3, connection=Limits(logs_max=2))
    victim.begin(mode=0)
    assert victim.said[1:] == [SyncDone(0, False)]
    (ended,) = victim.tell(*said, SyncDone(0, False))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.TOO_MANY_LOGS
    assert victim.said[2:] == []


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("authors", [1, 200])
def test_a_have_of_more_logs_than_we_take_ends_its_session_alone(
    dialect: Dialect, size: int, authors: int
):
    """It is passed over as it comes, in little memory, and is no fault."""
    few = {"logs_max": 30, "schemas_max": 2, "schema_id_size_max": 200}
    limits = Limits(**few, faults_max=0, receive_buffer_max=1)
    machine = Connection(local_peer=b"a", remote_peer=b"b", dialect=dialect, limits=limits)
    machine.announce((SCHEMA, OTHER), timestamp=1)
    keys = [number.to_bytes(32, "big") for number in range(authors)]
    logs = tuple(Height(LogKey(keys[n % authors], n // authors << 40), 1) for n in range(200))
    codec = Codec(dialect=dialect, limits=Limits())
    said = [SyncRequest(0, 0, (SCHEMA,)), Have(0, logs), SyncRequest(1, 0, (OTHER,)), Have(1, ())]
    stream = b"".join(map(codec.encode, [*said, SyncDone(0, False)]))
    events = list[Any]()
    while stream:
        room = machine.read_size()
        assert 0 < room < 5_000
        machine.receive_data(stream[: min(size, room)])
        stream = stream[min(size, room) :]
        events += iter(machine.next_event, None)
    requested, ended, other, have = events
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.TOO_MANY_LOGS
    assert (requested.session_id, other.session_id, have.session_id) == (0, 1, 1)


@pytest.mark.parametrize(
    ("at", "byte"), [(2, 0x82), (2, 0x20), (3, 0x5B), (9000, 0x9F), (9000, 0x80)]
)
def test_a_have_that_is_passed_over_has_to_be_one_however_it_is_cut(at: int, byte: int):
    logs = tuple(Height(LogKey(bytes([n]) * 32, 1), 1) for n in range(200))
    said = bytearray(Codec(dialect=Dialect.SEED, limits=Limits()).encode(Have(0, logs)))
    said[at : at + 60] = bytes([byte]) * 60
    told = list[list[object]]()
    for size in (1, len(said)):
        limits = Limits(logs_max=3)
        machine = Connection(local_peer=b"a", remote_peer=b"b", limits=limits)
        events = list[object]()
        for start in range(0, len(said), size):
            machine.receive_data(said[start : start + size])
            events += iter(machine.next_event, None)
        told.append(events)
    assert told[0] == told[1]
    assert isinstance(told[0][-1], Closed)


def test_a_session_id_may_come_again_once_it_is_free():
    victim = Victim()
    for _ in range(2):
        (event,) = victim.tell(SyncRequest(0, 1, (SCHEMA,)))
        assert isinstance(event, SessionRequested)
        (ended,) = victim.tell(Reconcile(0, EmptySet(False)), SyncDone(0, False))
        assert ended == SessionEnded(session_id=0)
