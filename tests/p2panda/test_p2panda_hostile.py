"""Attempts by a peer: its session or connection ends, with a code, and nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2panda_nodes import OTHER, SCHEMA, Node
from p2panda_victim import CODEC, Victim, rounds

from culm.bamboo import LogKey
from culm.bamboo.entry import sign
from culm.machine import Closed, Event, LocalProtocolError
from culm.machines import Advance, Receive
from culm.p2panda import (
    Action,
    ErrorCode,
    Height,
    Limits,
    Operation,
    OperationLeftOut,
    OperationStored,
    Reason,
    RequestedAgain,
    SessionLive,
    SessionRequested,
    Timing,
)
from culm.p2panda.effects import AppendOperations, Conflict
from culm.p2panda.heights import encode_item
from culm.p2panda.messages import (
    Done,
    EmptyPayload,
    EmptySet,
    Fingerprint,
    Have,
    LowerBound,
    Message,
    Payload,
    RangeMessage,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
    Terminal,
)
from culm.reconcile import Parameters, SessionLimits
from culm.testing.record import conversations
from culm.testing.suite.work import Worker
from culm.wire.multihash import YASMF
from specs import spec_of
from specs.p2panda import AGAIN

KEY = SigningKey(b"k" * 32)
LOG = LogKey(bytes(KEY.verify_key), 0)


def operation(action: Action = Action.CREATE, schema_id: str = SCHEMA, **of: Any) -> Operation:
    if action is Action.DELETE:
        return Operation(action=action, schema_id=schema_id, **of)
    return Operation(action=action, schema_id=schema_id, **{"fields": {"name": "x"}, **of})


def entry(payload: bytes, seqnum: int = 1, log_id: int = 0, **of: Any) -> bytes:
    return sign(KEY, family=YASMF, log_id=log_id, seqnum=seqnum, payload=payload, **of).encode()


def message(made: Operation | bytes, **of: Any) -> SendEntry:
    payload = made if isinstance(made, bytes) else made.encode()
    return SendEntry(0, entry(payload, **of), payload)


GOOD = message(operation())
FIRST = YASMF.hash(GOOD.entry)
UPDATE = operation(Action.UPDATE, previous=(FIRST,))


def test_what_is_valid_is_stored():
    victim = Victim()
    victim.begin()
    events = victim.tell(GOOD, message(UPDATE, seqnum=2, backlink=FIRST))
    assert [type(each) for each in events] == [OperationStored] * 2
    assert victim.node.documents()[FIRST].fields == {"name": "x"}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (SendEntry(0, b"nothing", b""), Reason.MALFORMED_ENTRY),
        (SendEntry(0, GOOD.entry[:-1] + b"\0", GOOD.operation), Reason.BAD_SIGNATURE),
        (SendEntry(0, GOOD.entry, b"other"), Reason.WRONG_PAYLOAD),
    ],
)
def test_an_entry_for_which_the_peer_is_to_blame_ends_its_session(bad: SendEntry, code: Any):
    victim = Victim()
    victim.begin()
    assert victim.code(bad) is code
    assert victim.said[-1] == SyncDone(0, False)
    victim.tell(SyncDone(0, False), SyncRequest(1, 1, (SCHEMA,)))  # the connection is usable
    assert victim.machine.connection.sessions[-1].session_id == 1


LAST = message(UPDATE, seqnum=2, backlink=FIRST, end_of_log=True)


@pytest.mark.parametrize(
    ("before", "misfit", "reason"),
    [
        ((), message(UPDATE), Reason.UNKNOWN_PREVIOUS),
        ((), message(UPDATE, seqnum=2, backlink=FIRST), Reason.GAP),
        ((), message(UPDATE, seqnum=3, backlink=FIRST), Reason.GAP),
        ((GOOD,), message(UPDATE, seqnum=2, backlink=YASMF.hash(b"")), Reason.WRONG_LINK),
        (
            (GOOD, LAST),
            message(UPDATE, seqnum=3, backlink=YASMF.hash(LAST.entry)),
            Reason.AFTER_END_OF_LOG,
        ),
    ],
)
def test_an_entry_that_does_not_fit_to_ours_is_left_out_and_its_sender_is_not_blamed(
    before: Sequence[SendEntry], misfit: SendEntry, reason: Reason
):
    victim = Victim()
    victim.begin()
    victim.tell(*before)
    (left_out,) = victim.tell(misfit)
    assert isinstance(left_out, OperationLeftOut)
    assert (left_out.session_id, left_out.log, left_out.reason) == (0, LOG, reason)
    other = message(operation(fields={"name": "y"}), log_id=1)
    (stored,) = victim.tell(other)
    assert isinstance(stored, OperationStored)
    assert misfit.entry not in victim.entries()


def test_a_signature_is_looked_at_before_an_entry_is_left_out():
    victim = Victim()
    victim.begin()
    victim.tell(GOOD)
    torn = message(UPDATE, seqnum=2, backlink=YASMF.hash(b""))
    forged = SendEntry(0, torn.entry[:-1] + b"\0", torn.operation)
    assert victim.code(forged) is Reason.BAD_SIGNATURE


def test_entries_that_we_have_are_skipped_but_not_for_ever():
    victim = Victim(repeated_max=5)
    victim.begin()
    assert len(victim.tell(GOOD)) == 1
    assert victim.tell(*[GOOD] * 5) == []
    assert victim.code(GOOD) is ErrorCode.TOO_MANY_DUPLICATES


def test_each_new_entry_makes_up_for_one_that_we_have():
    victim = Victim(repeated_max=1)
    victim.begin()
    assert len(victim.tell(GOOD)) == 1
    for log_id in range(1, 5):
        assert victim.tell(GOOD) == []
        (stored,) = victim.tell(message(operation(fields={"name": "y"}), log_id=log_id))
        assert isinstance(stored, OperationStored)


@pytest.mark.parametrize("mode", [0, 1])
def test_what_the_peer_could_know_us_to_have_counts_as_repeated_the_first_time(mode: int):
    victim = Victim(documents=3, repeated_max=2)
    news = victim.node.store.read_new((SCHEMA,), count_max=9, size_max=1 << 20)
    victim.begin(mode)
    if mode == 0:
        victim.tell(Have(0, ()))
    one, two, three = (SendEntry(0, each.entry, each.operation) for each in news)
    assert victim.tell(one, two) == []
    assert victim.code(three) is ErrorCode.TOO_MANY_DUPLICATES


def test_a_fork_that_another_has_stored_meanwhile_is_left_out():
    victim = Victim()
    victim.begin()
    victim.tell(GOOD)
    mine, theirs = (
        message(operation(Action.UPDATE, previous=(FIRST,), fields={"name": name}), **behind)
        for name, behind in zip("mt", [{"seqnum": 2, "backlink": FIRST}] * 2, strict=True)
    )
    other = Victim()
    other.node = victim.node
    other.begin()
    other.tell(mine)
    (left_out,) = victim.tell(theirs)
    assert isinstance(left_out, OperationLeftOut)
    assert left_out.reason is Reason.FORK
    assert "AppendOperations" in victim.effects
    assert theirs.entry not in victim.entries()
    with pytest.raises(Conflict, match="entry 2"):
        raise Conflict(LOG, 2)


def written(count: int) -> list[SendEntry]:
    """A log of another node, in the form in which it is sent."""
    node = Node(9)
    document = node.create()
    for number in range(count - 1):
        node.author.update(document, {"age": number})
    found = node.store.read_new((SCHEMA,), count_max=count, size_max=1 << 20)
    return [SendEntry(0, each.entry, each.operation) for each in found]


def two_peers(**limits: Any) -> tuple[Victim, Victim]:
    """Of one node, which both sessions find empty."""
    first, second = Victim(**limits), Victim(**limits)
    second.node = first.node
    first.begin()
    second.begin()
    return first, second


def test_what_another_peer_has_brought_meanwhile_is_no_fault():
    first, second = two_peers(repeated_max=1)
    entries = written(9)
    assert len(first.tell(*entries)) == 9
    assert second.tell(*entries) == []


def test_an_entry_behind_what_another_peer_has_brought_leaves_no_gap():
    first, second = two_peers()
    entries = written(5)
    assert len(first.tell(*entries[:2])) == 2
    assert len(second.tell(*entries[2:4])) == 2
    assert len(first.tell(entries[4])) == 1
    assert [type(each) for each in second.tell(written(7)[6])] == [OperationLeftOut]


def test_live_mode_is_left_when_it_has_been_told_and_not_before():
    victim = Victim()
    victim.begin(mode=0)
    machine = victim.machine
    for each in (Have(0, ()), SyncDone(0, True)):
        machine.receive_data(CODEC.encode(each))
    while machine.next_event() is not None:
        pass
    assert machine.next_effect() is None  # now all has been sent
    with pytest.raises(LocalProtocolError, match="not live"):
        machine.leave(0)
    assert victim.run() == [SessionLive(session_id=0)]
    machine.leave(0)
    victim.node.create(name="too late")
    machine.stored()
    assert victim.run() == []


LOW, HIGH = encode_item(LogKey(bytes(32), 0), 1), encode_item(LogKey(b"\xff" * 32, 0), 9)
MIDDLE = encode_item(LogKey(b"\x80" * 32, 0), 5)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (rounds(Terminal()), ErrorCode.UNEXPECTED_MESSAGE),
        (rounds(LowerBound(LOW), LowerBound(LOW)), ErrorCode.UNEXPECTED_MESSAGE),
        (rounds(LowerBound(LOW), Done(HIGH), Done(MIDDLE)), ErrorCode.BAD_BOUND),
        (rounds(LowerBound(LOW), Done(HIGH), Done(HIGH)), ErrorCode.BAD_BOUND),
        (rounds(LowerBound(LOW), Payload(HIGH), Payload(MIDDLE)), ErrorCode.BAD_ITEM),
        (rounds(LowerBound(LOW), Payload(HIGH, MIDDLE, True)), ErrorCode.BAD_ITEM),
        (rounds(LowerBound(LOW), Fingerprint(bytes(23), HIGH)), ErrorCode.BAD_FINGERPRINT),
        (rounds(LowerBound(LOW), EmptySet(True)), ErrorCode.UNEXPECTED_MESSAGE),
    ],
)
def test_ranges_that_break_a_rule_end_the_session(said: Sequence[Message], code: ErrorCode):
    victim = Victim(documents=20)
    victim.begin()
    assert victim.code(*said) is code


def test_two_heights_of_one_log_are_a_fault():
    victim = Victim(documents=20)
    victim.begin()
    log = LogKey(victim.node.author.public_key, 3)
    items = [encode_item(log, height) for height in (7, 8)]
    assert victim.code(*rounds(LowerBound(LOW), *map(Payload, items))) is ErrorCode.BAD_ITEM


@pytest.mark.parametrize(
    ("question", "answers", "code"),
    [
        # 99 items, which we do not have: we ask back, as often as rounds are allowed.
        (Fingerprint(b"\x01" * 16 + bytes(7) + b"\x63", LOW), 2, ErrorCode.TOO_MANY_ROUNDS),
        # A list of everything has one answer, and is not asked about again.
        (Payload(HIGH, LOW, True), 1, ErrorCode.UNEXPECTED_MESSAGE),
        (EmptyPayload(LOW), 1, ErrorCode.UNEXPECTED_MESSAGE),
    ],
)
def test_a_peer_that_asks_for_ever_is_cut_off(
    question: RangeMessage, answers: int, code: ErrorCode
):
    limits = SessionLimits(rounds_max=6)
    victim = Victim(documents=20, parameters=Parameters(list_from=4), comparison=limits)
    victim.begin()
    for _ in range(answers):
        assert victim.tell(*rounds(LowerBound(LOW), question, Terminal())) == []
    assert victim.code(*rounds(LowerBound(LOW), question, Terminal())) is code
    said = [each for each in victim.said if not isinstance(each, SendEntry)]
    assert [each for each in said if isinstance(each, SyncDone)][-1:] == [said[-1]]
    assert len([each for each in said if each == Reconcile(0, Terminal())]) == 1 + answers


@pytest.mark.parametrize("documents", [0, 3])
def test_a_peer_says_once_that_it_has_nothing(documents: int):
    victim = Victim(documents=documents)
    victim.begin()
    answer = Reconcile(0, EmptySet(False))
    assert victim.tell(answer) == []
    assert victim.code(answer) is ErrorCode.UNEXPECTED_MESSAGE


def test_a_peer_that_claims_everything_of_2_to_the_63_costs_nothing():
    victim = Victim(documents=3)
    victim.begin(mode=0)
    huge = LogKey(b"\xff" * 32, 2**64 - 1)
    assert victim.tell(Have(0, (Height(huge, 2**63),))) == []
    assert len([each for each in victim.said if isinstance(each, SendEntry)]) == 3


def test_spoilt_sessions_are_counted():
    victim = Victim(connection=Limits(faults_max=3))
    bad = SendEntry(0, b"nothing", b"")
    for session_id in range(4):
        events = victim.tell(
            SyncRequest(session_id, 1, (SCHEMA,)),
            SendEntry(session_id, bad.entry, b""),
            SyncDone(session_id, False),
        )
    assert isinstance(events[-1], Closed)
    assert events[-1].error is not None
    assert events[-1].error.code is ErrorCode.TOO_MANY_FAULTS


def test_nothing_is_stored_before_it_is_verified():
    victim = Victim()
    victim.begin()
    victim.tell(SendEntry(0, GOOD.entry[:-1] + b"\0", GOOD.operation))
    assert AppendOperations.__name__ not in victim.effects


def test_heights_that_a_peer_does_not_read_are_said_when_there_is_room():
    victim = Victim(documents=10, unsent_size_max=1)
    machine = victim.machine
    schema_ids = (SCHEMA, OTHER)
    machine.announce(schema_ids, timestamp=2)
    victim.run()
    about = (SCHEMA,), (OTHER,), schema_ids
    for session_id, each in enumerate(about):
        machine.receive_data(CODEC.encode(SyncRequest(session_id, 0, each)))
    busy = True
    while busy:  # without anything taken for the peer
        busy = False
        while machine.next_event() is not None:
            busy = True
        while (effect := machine.next_effect()) is not None:
            machine.complete(effect.ticket, victim.node.store.perform(effect))
            busy = True
    heights = tuple(Height(LogKey(victim.node.author.public_key, n), 1) for n in range(10))
    said = [Have(number, heights if SCHEMA in each else ()) for number, each in enumerate(about)]
    assert machine.connection.unsent_size == len(CODEC.encode(said[0]))
    victim.said.clear()
    victim.run()
    assert victim.said == said


@pytest.mark.parametrize(
    ("rest", "outcome"),
    [
        (CODEC.encode(SyncRequest(0, 0, (SCHEMA,))), SessionRequested),
        (b"\x83\x18\x63", Closed),  # the type in two bytes
    ],
)
def test_the_smallest_receive_buffer_lets_each_message_in(rest: bytes, outcome: type[Event]):
    machine = Victim(connection=Limits(receive_buffer_max=1)).machine
    machine.learn((SCHEMA,), timestamp=1)
    while rest:
        size = machine.read_size()
        assert size
        machine.receive_data(rest[:size])
        rest = rest[size:]
        event = machine.next_event()
    assert isinstance(event, outcome)


def test_work_for_our_store_does_not_excuse_a_peer_that_does_not_answer():
    victim = Victim(timing=Timing(answer_max_s=5.0))
    machine = victim.machine
    machine.advance(100.0)
    machine.learn((SCHEMA, OTHER), timestamp=1)
    machine.announce((SCHEMA, OTHER), timestamp=2)
    machine.request((SCHEMA,))
    ended: list[Event] = []
    for session_id in range(1, 12):
        now = 100.0 + session_id
        machine.advance(now)
        # The peer keeps the store at work at every look.
        machine.receive_data(CODEC.encode(SyncRequest(session_id, 1, (OTHER,))))
        ended += iter(machine.next_event, None)
        machine.advance(now + 0.125)
        ended += victim.tell(SyncDone(session_id, False))
    again = [each.session_id for each in ended if isinstance(each, RequestedAgain)]
    assert again == [0]


@pytest.mark.once
@pytest.mark.parametrize("times", [1, 3, 8])
def test_sessions_that_are_asked_for_and_end_at_once_cost_no_more_than_their_bytes(
    times: int,
) -> None:
    spec = spec_of("p2panda-replicator")
    told = replace(conversations(spec)[0], operations=[Advance(0.0), Receive(AGAIN * times)])
    Worker(spec, told).tell(told.operations)
