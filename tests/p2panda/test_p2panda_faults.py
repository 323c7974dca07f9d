"""Faults are local: one invalid entry of any kind, at any place, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from p2panda_faults import BLAMED, LAX, Bad, creation, left_out, signed
from p2panda_nodes import OTHER, SCHEMA, Node
from p2panda_victim import CODEC, Victim

from culm.machine import Closed, Event
from culm.p2panda import (
    Dialect,
    ErrorCode,
    Limits,
    OperationLeftOut,
    OperationStored,
    Reason,
    Replicator,
    SessionEnded,
)
from culm.p2panda.codec import Codec
from culm.p2panda.messages import Have, Message, SendEntry, SyncDone, SyncRequest
from culm.signatures import with_signatures
from culm.wire import cbor

LEFT_OUT = left_out()


def conversation() -> list[SendEntry]:
    """Valid entries: of documents on their own, and of one that two authors write."""
    node = Node(9)
    document = node.create(name="shared")
    other = Node(8, node.store)
    for number in range(3):
        node.create(name=f"{number}")
        (node, other)[number % 2].author.update(document, {"n": number})
    found = node.store.read_new((SCHEMA,), count_max=99, size_max=1 << 20)
    return [SendEntry(0, each.entry, each.operation) for each in found]


VALID = conversation()
Cut = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def cut_by(seed: int, size_max: int) -> Cut:
    def cut(data: bytes) -> list[bytes]:
        rng, pieces = Random(seed), []
        while data:
            size = rng.randint(1, size_max)
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    return cut


CUTS = {"whole": whole, "small": cut_by(1, 40), "large": cut_by(2, 1000)}
BATCHES = {"together": {}, "one by one": {"batch_count_max": 1}, "by three": {"batch_count_max": 3}}


def heard(said: Sequence[Message], cut: Cut, **limits: Any) -> tuple[Victim, list[Event]]:
    """The victim, and its reaction."""
    victim = Victim(**limits)
    victim.begin()
    data = b"".join(map(CODEC.encode, said))
    return victim, [event for piece in cut(data) for event in victim.tell(piece)]


def places() -> range:
    return range(len(VALID) + 1)


@pytest.mark.costly
@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("kind", LEFT_OUT)
def test_an_entry_that_is_left_out_costs_itself_and_what_depends_on_it(kind: str, batches: str):
    bad: Bad = LEFT_OUT[kind]
    kept = {each.entry for each in (*VALID, *bad.before)}
    for place in places():
        said = [*bad.before, *VALID[:place], bad.entry, *bad.behind, *VALID[place:]]
        for cut in CUTS.values():
            victim, events = heard(said, cut, **BATCHES[batches])
            assert victim.entries() == kept, (place, cut)
            told = [each for each in events if isinstance(each, OperationLeftOut)]
            (first,) = told  # the rest of its log is passed over
            assert (first.log, first.seqnum, first.reason) == (*bad.place, bad.reason)
            assert not [each for each in events if isinstance(each, SessionEnded | Closed)]


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("kind", BLAMED)
def test_what_came_before_the_fault_of_a_peer_is_stored_however_it_is_cut(kind: str, batches: str):
    entry, reason = BLAMED[kind]
    for place in places():
        said = [*VALID[:place], entry, *VALID[place:]]
        for cut in CUTS.values():
            victim, events = heard(said, cut, **BATCHES[batches])
            assert victim.entries() == {each.entry for each in VALID[:place]}, (place, cut)
            ended = [each.error for each in events if isinstance(each, SessionEnded)]
            assert [error and error.code for error in ended] == [reason]


#: A peer's messages after a faulty entry, and the resulting end of the connection.
BEHIND: dict[str, tuple[list[Message], bytes, ErrorCode | None]] = {
    "no message": ([], b"\x00", ErrorCode.MALFORMED),
    "of the other mode": ([Have(0, ())], b"", None),
    "the end": ([SyncDone(0, live_mode=False)], b"", None),
    "another fault": ([SendEntry(0, b"", b"")], b"", None),
    "two of these": ([SendEntry(0, b"", b""), Have(0, ())], b"\xff", ErrorCode.MALFORMED),
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", BLAMED)
def test_no_later_fault_swallows_that_of_an_entry(kind: str, behind: str):
    """The store reports an entry's fault after more has arrived, if it came in one piece."""
    (entry, reason), (said, more, error) = BLAMED[kind], BEHIND[behind]
    data = b"".join(map(CODEC.encode, [*VALID, entry, *said])) + more
    for cut in CUTS.values():
        victim = Victim()
        victim.begin()
        events = [event for piece in cut(data) for event in victim.tell(piece)]
        (ended,) = [each for each in events if isinstance(each, SessionEnded)]
        assert ended.error is not None
        assert ended.error.code == reason
        closed = [each.error and each.error.code for each in events if isinstance(each, Closed)]
        assert closed == ([] if error is None else [error])


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_peer_garbles_is_told_alike_however_it_is_cut(seed: int):
    rng = Random(seed)
    data = bytearray(b"".join(map(CODEC.encode, [*VALID, SyncDone(0, live_mode=False)])))
    for _ in range(rng.choice((1, 1, 2, 5))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    told: list[list[Event]] = []
    stored: list[set[bytes]] = []
    for cut in CUTS.values():
        victim = Victim()
        victim.begin()
        told.append([event for piece in cut(bytes(data)) for event in victim.tell(piece)])
        stored.append(victim.entries())
    assert [list(map(repr, each)) for each in told] == [list(map(repr, told[0]))] * len(CUTS)
    assert stored == [stored[0]] * len(CUTS)


@pytest.mark.parametrize("size", [401, 500, 5000])
def test_an_operation_that_is_too_large_is_left_out(size: int):
    """A laxer implementation may have larger ones; it is passed over as it comes."""
    bad = signed(creation("x" * (size - len(creation("")))), 9)
    limits = {"connection": Limits(operation_size_max=400, operation_skip_max=6000)}
    for place in places():
        for cut in CUTS.values():
            said = [*VALID[:place], bad, *VALID[place:]]
            victim, events = heard(said, cut, **limits)
            assert victim.entries() == {each.entry for each in VALID}, (place, cut)
            (told,) = [each for each in events if isinstance(each, OperationLeftOut)]
            assert told.reason is Reason.TOO_LARGE
            assert not [each for each in events if isinstance(each, SessionEnded | Closed)]


def test_a_large_operation_in_a_message_without_a_session_is_not_passed_over():
    entry = signed(creation(), 9).entry
    front = b"\x84\x02" + cbor.encode("no id") + cbor.encode(entry)
    victim = Victim(connection=Limits(operation_size_max=400, operation_skip_max=6000))
    (closed,) = victim.tell(front + cbor.encode(bytes(5000)))
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("kind", range(8))
@pytest.mark.parametrize("argument", [0, 23, 24, 25, 26, 27, 28, 31])
def test_whatever_stands_in_the_place_of_an_operation_is_no_accident(kind: int, argument: int):
    """It is too large, or too deep, or not an operation."""
    victim = Victim(connection=Limits(operation_size_max=0))
    victim.begin()
    data = CODEC.encode(SendEntry(0, VALID[0].entry, b""))[:-1]
    events = victim.tell(data + bytes([kind << 5 | argument]) + b"\xff" * 8)
    assert {type(each) for each in events} <= {OperationLeftOut, SessionEnded, Closed}


@pytest.mark.parametrize("missing", [1, 4000])
def test_the_end_of_the_bytes_within_a_large_operation_is_a_fault(missing: int):
    victim = Victim(connection=Limits(operation_size_max=400))
    victim.begin()
    victim.tell(CODEC.encode(signed(creation("x" * 4500), 9))[:-missing])
    victim.machine.receive_eof()
    (*_, closed) = victim.run()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.EOF_IN_MESSAGE


def test_what_came_before_a_fault_survives_a_conflict():
    """Meanwhile another peer has stored another branch, so that the batch is written again."""
    victim, other = Victim(), Victim()
    other.node = victim.node
    victim.begin()
    other.begin()
    mine, theirs = (signed(creation(name), 7) for name in ("mine", "theirs"))
    for each in (*VALID, mine, BLAMED["a wrong signature"][0], signed(creation(), 6)):
        victim.machine.receive_data(CODEC.encode(each))
    assert list(iter(victim.machine.next_event, None)) == []
    look_up = victim.machine.next_effect()
    assert look_up is not None
    found = victim.node.store.perform(look_up)
    other.tell(theirs)
    victim.machine.complete(look_up.ticket, found)
    events = victim.run()
    assert [each.reason for each in events if isinstance(each, OperationLeftOut)] == [Reason.FORK]
    assert isinstance(events[-1], SessionEnded)
    assert victim.entries() == {each.entry for each in (*VALID, theirs)}


def test_an_operation_that_the_peer_lacks_is_left_out():
    """aquadoggo sends null then."""
    machine = Replicator(local_peer=b"a", remote_peer=b"b", dialect=Dialect.AQUADOGGO)
    machine.announce((SCHEMA,), timestamp=1)
    codec = Codec(dialect=Dialect.AQUADOGGO, limits=Limits())
    store = Node(1).store
    one, *others = VALID
    said = [SendEntry(0, one.entry, None), *others]
    for each in (SyncRequest(0, 0, (SCHEMA,)), Have(0, ()), *said):
        machine.receive_data(codec.encode(each))
    events: list[Event] = []
    for _ in range(9):
        events += iter(machine.next_event, None)
        while (effect := machine.next_effect()) is not None:
            machine.complete(effect.ticket, store.perform(effect))
    told = [each.reason for each in events if isinstance(each, OperationLeftOut)]
    assert told[0] is Reason.MISSING_OPERATION
    assert not [each for each in events if isinstance(each, SessionEnded)]
    assert [each for each in events if isinstance(each, OperationStored)]


def test_what_a_peer_is_blamed_for_counts_once_in_each_session():
    victim = Victim(connection=Limits(faults_max=3))
    entry, _ = BLAMED["a wrong signature"]
    ends: list[bool] = []
    for session_id in range(4):
        events = victim.tell(
            SyncRequest(session_id, 1, (SCHEMA,)),
            SendEntry(session_id, entry.entry, entry.operation),
            SyncDone(session_id, False),
        )
        ends.append(any(isinstance(each, Closed) for each in events))
    assert ends == [False, False, False, True]


def test_what_is_left_out_in_each_of_many_sessions_does_not_end_the_connection():
    victim = Victim(connection=Limits(faults_max=3))
    bad = LEFT_OUT["a 64-bit float of 1.5"].entry
    for session_id in range(20):
        events = victim.tell(
            SyncRequest(session_id, 1, (SCHEMA,)),
            SendEntry(session_id, bad.entry, bad.operation),
            SyncDone(session_id, False),
        )
        assert not [each for each in events if isinstance(each, Closed)]
    assert [each for each in events if isinstance(each, OperationLeftOut)]


@pytest.mark.parametrize(("others", "again"), [(3, []), (4, [0, 1])])
def test_what_is_left_out_has_a_limit_of_its_own_for_a_connection(others: int, again: list[int]):
    """Whichever sessions have left them out: beyond the limit, the first ones are forgotten."""
    victim = Victim(left_out_max=5)
    victim.machine.announce((SCHEMA, OTHER), timestamp=2)
    for session_id, schema_id in enumerate((SCHEMA, OTHER)):
        victim.tell(SyncRequest(session_id, 1, (schema_id,)))
    bad = [signed(LAX["a long integer"][0], log_id) for log_id in range(6)]
    first = bad[:2]
    assert [type(each) for each in victim.tell(*first)] == [OperationLeftOut] * 2
    for each in bad[2 : 2 + others]:
        (told,) = victim.tell(SendEntry(1, each.entry, each.operation))
        assert isinstance(told, OperationLeftOut)
    events = victim.tell(*first)
    assert [each.log.log_id for each in events if isinstance(each, OperationLeftOut)] == again
    assert len(victim.machine.connection.sessions) == 2


def test_however_much_is_left_out_it_does_not_end_the_connection():
    """So many logs that the first ones are forgotten, and their entries reported again."""
    victim = Victim(left_out_max=5)
    victim.begin()
    bad = [signed(LAX["a long integer"][0], log_id) for log_id in range(20)]
    assert [type(each) for each in victim.tell(*bad)] == [OperationLeftOut] * 20
    assert victim.tell(*bad[-5:]) == []
    assert [type(each) for each in victim.tell(*bad[:5])] == [OperationLeftOut] * 5
    victim.tell(*VALID)
    assert victim.entries() == {each.entry for each in VALID}


@pytest.mark.parametrize("verifying_max", [0, 4])
@pytest.mark.parametrize("kind", BLAMED)
def test_the_store_is_asked_the_same_however_the_bytes_are_cut(kind: str, verifying_max: int):
    bad, _ = BLAMED[kind]
    limits = {"unwritten_size_max": 4000, "verifying_max": verifying_max}
    for place in places():
        said = b"".join(map(CODEC.encode, [*VALID[:place], bad, *VALID[place:]]))
        asked = [asked_when_all_is_heard(cut(said), limits) for cut in CUTS.values()]
        assert asked[0] == asked[1] == asked[2], place


def asked_when_all_is_heard(pieces: Sequence[bytes], limits: dict[str, int]) -> list[Any]:
    """The effects of a replicator that takes all pieces before the store answers any."""
    victim = Victim(**limits)
    victim.begin()
    machine, asked = victim.machine, []
    for piece in pieces:
        machine.receive_data(piece)
        list(iter(machine.next_event, None))
    while (effect := machine.next_effect()) is not None:
        asked.append(effect)
        machine.complete(effect.ticket, with_signatures(victim.node.store.perform)(effect))
        list(iter(machine.next_event, None))
    return asked
