"""Unsent output is bounded, whatever a peer sends that never reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from p2panda_nodes import OTHER, SCHEMA, Node
from p2panda_support import decoded
from p2panda_victim import CODEC

from culm.machines.memory import retained_size
from culm.p2panda import Limits, Replicator, ReplicatorLimits
from culm.p2panda.effects import ReadNew
from culm.p2panda.messages import (
    Announce,
    EmptySet,
    Have,
    Message,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
)
from culm.p2panda.outbox import AnswerOutbox
from culm.wire.multihash import YASMF

# So that our request is much larger than the message that makes us repeat it.
MANY = tuple(f"panda_{YASMF.hash(bytes([number])).hex()}" for number in range(30))
REQUEST_SIZE = len(CODEC.encode(SyncRequest(0, 1, MANY)))
ANSWERS_SIZE_MAX, ENTRIES_SIZE_MAX, BATCH_SIZE_MAX = 2048, 2048, 1024
DOCUMENTS = 40
HAVE_SIZE = 90 * DOCUMENTS


def ids_of_ours() -> Iterator[Message]:
    """Requests with the id of one of ours, which is each time repeated with another id."""
    for session_id in count():
        yield SyncRequest(session_id, 1, (OTHER,))
        yield SyncDone(session_id, False)


def changing_announcements() -> Iterator[Message]:
    for timestamp in count(2):
        yield Announce(timestamp, (*MANY[timestamp % 2 :], SCHEMA))
        yield from (SyncDone(timestamp, False), SyncDone(timestamp - 1, False))


def sessions_that_end() -> Iterator[Message]:
    for session_id in count(100):
        yield SyncRequest(session_id, session_id % 2, (SCHEMA,))
        yield SyncDone(session_id, False)


def sessions_that_are_spoilt() -> Iterator[Message]:
    for session_id in count(100):
        yield SyncRequest(session_id, 1, (SCHEMA,))
        yield Have(session_id, ())
        yield SyncDone(session_id, False)


def live_mode_left_again() -> Iterator[Message]:
    for session_id in count(100):
        yield SyncRequest(session_id, 1, (SCHEMA,))
        yield Reconcile(session_id, EmptySet(False))
        yield SyncDone(session_id, True)
        yield SyncDone(session_id, False)


def junk() -> Iterator[Message]:
    for session_id in count(100):
        yield SyncRequest(session_id, 1, (SCHEMA,))
        yield SendEntry(session_id, b"no entry", b"")
        yield SyncDone(session_id, False)


ATTACKS = (
    ids_of_ours,
    changing_announcements,
    sessions_that_end,
    sessions_that_are_spoilt,
    live_mode_left_again,
    junk,
)


def settle(machine: Replicator, node: Node) -> None:
    """Everything that can be done while nothing is taken."""
    busy = True
    while busy:
        busy = False
        while machine.next_event() is not None:
            busy = True
        while (effect := machine.next_effect()) is not None:
            machine.complete(effect.ticket, node.store.perform(effect))
            busy = True


@pytest.mark.parametrize("documents", [0, DOCUMENTS])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("piece", [7, 5000])
def test_what_waits_for_a_peer_that_never_reads_is_bounded(
    attack: Callable[[], Iterator[Message]], documents: int, piece: int
):
    node = Node(1)
    for _ in range(documents):
        node.create()
    limits = ReplicatorLimits(
        connection=Limits(answers_size_max=ANSWERS_SIZE_MAX, faults_max=1 << 20),
        unsent_size_max=ENTRIES_SIZE_MAX,
        batch_size_max=BATCH_SIZE_MAX,
    )
    machine = Replicator(local_peer=b"a", remote_peer=b"b", limits=limits)
    machine.announce((*MANY, SCHEMA, OTHER), timestamp=1)
    machine.learn(MANY, timestamp=1)
    waiting = b"".join(map(CODEC.encode, islice(attack(), 3000)))
    size_max = ANSWERS_SIZE_MAX + 2 * REQUEST_SIZE + ENTRIES_SIZE_MAX + BATCH_SIZE_MAX + HAVE_SIZE
    while waiting and (size := min(machine.read_size(), piece)):
        machine.receive_data(waiting[:size])
        waiting = waiting[size:]
        settle(machine, node)
        assert machine.connection.unsent_size < size_max
    assert waiting  # reading has stopped
    said = machine.data_to_send()
    settle(machine, node)
    assert len(said) > ANSWERS_SIZE_MAX
    assert machine.read_size()


def test_sessions_share_the_room_for_what_is_read_where_the_store_answers_late():
    """They take turns, and beyond the output there is one batch, not one for each."""
    node = Node(1)
    for number in range(DOCUMENTS):
        node.author.create((SCHEMA, OTHER)[number % 2], {"name": "Lu"})
    limits = ReplicatorLimits(unsent_size_max=BATCH_SIZE_MAX, batch_size_max=BATCH_SIZE_MAX)
    machine = Replicator(local_peer=b"a", remote_peer=b"b", limits=limits)
    machine.announce((SCHEMA, OTHER), timestamp=1)
    for session_id, schema_id in enumerate((SCHEMA, OTHER)):
        machine.receive_data(CODEC.encode(SyncRequest(session_id, 1, (schema_id,))))
    settle(machine, node)
    for session_id in range(2):
        machine.receive_data(CODEC.encode(Reconcile(session_id, EmptySet(False))))
    assert not list(iter(machine.next_event, None))
    said, reads = machine.data_to_send(), list[str]()
    while effects := list(iter(machine.next_effect, None)):
        (effect,) = effects  # no further question before its answer
        assert isinstance(effect, ReadNew)
        reads += effect.schema_ids
        machine.complete(effect.ticket, node.store.perform(effect))
        assert machine.connection.unsent_size < 2 * BATCH_SIZE_MAX
        said += machine.data_to_send()
    assert reads[:6] == [SCHEMA, OTHER] * 3
    sent = [each for each in decoded(said, CODEC) if isinstance(each, SendEntry)]
    assert len(sent) == DOCUMENTS


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30), st.integers(0, 5))
def test_answers_are_counted_until_they_are_taken(parts: list[tuple[bool, int]], often: int):
    """Compared with a twin that marks every byte."""
    outbox, twin = AnswerOutbox(), ""
    for turn, (is_answer, size) in enumerate(parts):
        (outbox.answer if is_answer else outbox.append)(bytes(size))
        twin += ("a" if is_answer else "-") * size
        if often and turn % often == 0:
            assert len(outbox.take(size)) == len(twin[:size])
            twin = twin[size:]
        assert (outbox.size, outbox.answers_size) == (len(twin), twin.count("a"))
    outbox.take()
    assert (outbox.size, outbox.answers_size) == (0, 0)


def test_answers_in_a_row_are_counted_in_one_place():
    """A peer may ask for any number of small ones: each would cost more than its bytes."""

    def retained(count: int) -> int:
        outbox = AnswerOutbox()
        for _ in range(count):
            outbox.answer(b"abcd")
        return retained_size(outbox)

    assert retained(2000) - retained(1000) < 1000 * 8


def test_two_that_announce_much_at_once_hear_each_other():
    """Over a line that holds little: announcements, unlike answers, do not stop our reading."""
    schemas = [[f"name_{1000 * turn + n}_{SCHEMA[-68:]}" for n in range(200)] for turn in range(90)]
    limits = ReplicatorLimits(connection=Limits(answers_size_max=1 << 16))
    peers = [
        Replicator(local_peer=me, remote_peer=other, limits=limits)
        for me, other in ((b"a", b"b"), (b"b", b"a"))
    ]
    nodes = [Node(1), Node(2)]
    for timestamp, schema_ids in enumerate(schemas, 1):
        for machine, node in zip(peers, nodes, strict=True):
            machine.announce(schema_ids, timestamp=timestamp)
            settle(machine, node)
    moved = True
    while moved:
        moved = False
        for machine, other, node in zip(peers, peers[::-1], nodes[::-1], strict=True):
            if data := machine.data_to_send(min(1 << 12, other.read_size())):
                other.receive_data(data)
                settle(other, node)
                moved = True
    assert [machine.connection.unsent_size for machine in peers] == [0, 0]
    assert [set(machine.connection.remote_announced) for machine in peers] == [set(schemas[-1])] * 2


def test_a_peer_that_never_reads_is_not_asked_again_for_ever():
    victim = Replicator(
        local_peer=b"a",
        remote_peer=b"b",
        limits=ReplicatorLimits(unsent_size_max=ANSWERS_SIZE_MAX),
    )
    victim.advance(0.0)
    victim.announce(MANY, timestamp=1)
    victim.data_to_send()
    victim.receive_data(CODEC.encode(Announce(1, MANY)))
    while victim.next_event() is not None:
        pass
    for _ in range(100):
        deadline = victim.next_deadline()
        assert deadline is not None  # it is asked when it has read
        victim.advance(deadline)
        while victim.next_event() is not None:
            pass
    assert victim.connection.unsent_size <= ANSWERS_SIZE_MAX + 3 * REQUEST_SIZE
    victim.data_to_send()
    deadline = victim.next_deadline()
    assert deadline is not None
    victim.advance(deadline)
    assert victim.data_to_send()
