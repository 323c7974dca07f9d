"""Two replicators over stores: documents converge, in either mode, once or live."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from p2panda_nodes import OTHER, SCHEMA, Node, connect, kinds, replicators

from culm.machine import Closed, Effect, LocalProtocolError
from culm.p2panda import (
    Announced,
    Ignored,
    Limits,
    Mode,
    ReplicatorLimits,
    RequestIgnored,
    SessionEnded,
    SessionLive,
    SessionState,
)
from culm.p2panda.effects import OpenRange
from culm.p2panda.events import OperationStored
from culm.testing.link import MachinePair, random_chunks

MODES = pytest.mark.parametrize("mode", Mode)


def diverged(seed: int, size: int = 40) -> tuple[Node, Node]:
    """Two nodes with something in common, and more of their own."""
    rng = Random(seed)
    left, right = Node(1), Node(2)
    for _ in range(size // 4):
        rng.choice((left, right)).create(name="common")
    connect(left, right)
    for _ in range(size):
        node = rng.choice((left, right))
        known = list(node.documents(SCHEMA))
        if not known or rng.random() < 0.3:
            node.create(name=f"{rng.random()}", age=rng.randrange(9))
        else:
            node.author.update(rng.choice(known), {"age": rng.randrange(100)})
    return left, right


@MODES
def test_both_converge_to_the_same_state(mode: Mode):
    for seed in range(3):
        left, right = diverged(seed)
        assert left.documents() != right.documents()
        link = connect(left, right, mode=mode)
        assert left.documents() == right.documents() != {}
        for side in (link.left, link.right):
            assert side.events[-1] == SessionEnded(session_id=0)


@MODES
def test_start_from_an_empty_set_on_either_side_and_on_both(mode: Mode):
    full = Node(1)
    for number in range(5):
        document = full.create(name=str(number))
        full.author.update(document, {"age": number})
    left, right = Node(2), Node(3)
    connect(left, full, mode=mode)
    connect(full, right, mode=mode)
    assert left.documents() == right.documents() == full.documents()
    link = connect(Node(4), Node(5), mode=mode)
    assert link.left.events[-1] == link.right.events[-1] == SessionEnded(session_id=0)


@MODES
def test_nothing_is_sent_that_the_peer_has(mode: Mode):
    left, right = diverged(7)
    connect(left, right, mode=mode)
    link = connect(left, right, mode=mode)
    assert "OperationStored" not in kinds(link.left.events + link.right.events)
    before = len(left.store.read_new((SCHEMA,), count_max=10**6, size_max=10**9))
    right.author.update(next(iter(right.documents(SCHEMA))), {"name": "one more"})
    link = connect(left, right, mode=mode)
    assert kinds(link.left.events).count("OperationStored") == 1
    assert "OperationStored" not in kinds(link.right.events)
    assert len(left.store.read_new((SCHEMA,), count_max=10**6, size_max=10**9)) == before + 1


@MODES
def test_entries_come_in_document_order(mode: Mode):
    """Later operations come after earlier ones, even across authors."""
    left, right, third = Node(1), Node(2), Node(3)
    document = left.create(name="Lu")
    for turn in range(9):
        writer, reader = ((left, right), (right, left))[turn % 2]
        connect(writer, reader)
        reader.author.update(document, {"age": turn})
    connect(left, right)
    link = connect(third, left, mode=mode)
    assert kinds(link.left.events).count("OperationStored") == 10
    assert third.documents() == left.documents() == right.documents()


@pytest.mark.parametrize("mode", Mode)
def test_an_author_may_begin_behind_any_operations_of_a_document(mode: Mode):
    """Other implementations do not name its creation, as our `Author` does."""
    left, right = Node(1), Node(3)
    document = left.create(name="x")
    first = left.author.update(document, {"name": "y"})
    second = left.author.update(document, {"name": "z"})
    for name, previous in ((2, [second]), (4, [first]), (5, [first, second])):
        Node(name, left.store).author.update(document, {"n": name}, previous=previous)
    connect(left, right, mode=mode)
    assert len(right.store.operations(document)) == 6
    assert left.documents() == right.documents()


def test_only_what_was_requested_is_replicated():
    left, right = Node(1), Node(2)
    one = left.create(name="Lu")
    left.author.create(OTHER, {"name": "here"})
    connect(right, left, schema_ids=(SCHEMA,))
    assert set(right.documents()) == {one}
    link = connect(right, left, schema_ids=(OTHER,))
    assert len(right.documents()) == 2
    assert kinds(link.left.events).count("OperationStored") == 1


def test_several_sessions_at_once_with_one_peer():
    left, right = Node(1), Node(2)
    for node in (left, right):
        node.create(name="Lu")
        node.author.create(OTHER, {"name": "here"})
    machines = replicators(asks=(False, False))
    link = connect(left, right, machines=machines)
    machines[0].request((SCHEMA,))
    machines[1].request((OTHER,), mode=Mode.LOG_HEIGHT)
    machines[0].request((SCHEMA, OTHER))
    link.run()
    assert left.documents() == right.documents()
    ends = [each for each in link.left.events if isinstance(each, SessionEnded)]
    assert len(ends) == 3
    assert not any(each.error for each in ends)


def test_requests_that_cross_replicate_once():
    for seed in range(8):
        left, right = diverged(seed, 12)
        connect(left, right, asks=(True, True), rng=Random(seed))
        assert left.documents() == right.documents()


@MODES
def test_live_mode_passes_on_what_is_new(mode: Mode):
    left, right = diverged(1)
    link = connect(left, right, mode=mode, live=True)
    assert link.left.events[-1] == link.right.events[-1] == SessionLive(session_id=0)
    document = left.create(name="live")
    link.left.machine.stored()  # type: ignore[attr-defined]
    link.run()
    right.author.update(document, {"age": 1})
    link.right.machine.stored()  # type: ignore[attr-defined]
    link.run()
    assert left.documents() == right.documents()
    assert isinstance(link.left.events[-1], OperationStored)
    link.left.machine.leave(0)  # type: ignore[attr-defined]
    link.run()
    assert link.left.events[-1] == link.right.events[-1] == SessionEnded(session_id=0)
    left.create(name="too late")
    link.left.machine.stored()  # type: ignore[attr-defined]
    link.run()
    assert left.documents() != right.documents()


def test_what_was_stored_while_the_session_ran_follows_in_live_mode():
    """The heights are those of one moment; later entries are sent when both have all of these."""
    left, right = diverged(2)
    late: list[bytes] = []

    def perform_and_create(effect: Effect[Any]) -> object:
        result = left.store.perform(effect)
        if isinstance(effect, OpenRange):
            late.append(left.create(name="late"))
        return result

    machines = replicators(live=True)
    for machine in machines:
        machine.announce((SCHEMA, OTHER), timestamp=1)
    respond = (perform_and_create, right.store.perform)
    MachinePair.of_machines(*machines, respond=respond).run()
    assert late
    assert left.documents() == right.documents()


def test_what_is_learned_of_the_peer_by_another_way_is_asked_for():
    asker, _ = replicators()
    asker.announce((SCHEMA,), timestamp=1)
    assert not asker.connection.sessions
    assert asker.learn((SCHEMA,), timestamp=1)
    [session] = asker.connection.sessions
    assert not asker.learn((SCHEMA,), timestamp=1)  # nothing new
    assert asker.connection.sessions == [session]


def test_interests_may_change_again_and_again():
    """In the end there is one live session, about everything in which both are then interested."""
    left, right = Node(1), Node(2)
    limits = ReplicatorLimits(connection=Limits(sessions_max=3))
    machines = replicators(live=True, asks=(True, True), limits=limits)
    link = connect(left, right, machines=machines, schema_ids=())
    for turn in range(2, 12):
        interests = (f"{SCHEMA[:-2]}{turn:02x}", f"{OTHER[:-1]}{turn % 3}")
        for machine in machines:
            machine.announce(interests, timestamp=turn)
        link.run()
        for schema_id in interests:
            right.author.create(schema_id, {"n": turn})
        machines[1].stored()
        link.run()
        assert left.documents(*interests) == right.documents(*interests)
        (session,) = machines[0].connection.sessions
        assert session.schema_ids == interests
        assert session.state is SessionState.LIVE


@pytest.mark.parametrize("places", [(1, 1), (1, 16), (16, 1)])
@pytest.mark.parametrize("asks", [(True, True), (True, False)])
@pytest.mark.parametrize("order", [[(0,), (1,)], [(1,), (0,)], [(0, 1)]])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("mode", Mode)
def test_a_session_makes_room_for_the_one_that_replaces_it(
    places: tuple[int, int],
    asks: tuple[bool, bool],
    order: list[tuple[int, ...]],
    live: bool,
    mode: Mode,
):
    left, right = Node(1), Node(2)
    machines = tuple(
        replicators(
            mode=mode,
            live=live,
            asks=asks,
            limits=ReplicatorLimits(connection=Limits(sessions_max=places[side])),
        )[side]
        for side in (0, 1)
    )
    for machine in machines:
        machine.advance(0.0)
    link = connect(left, right, machines=(machines[0], machines[1]), schema_ids=(SCHEMA,))
    for node in (left, right):
        node.author.create(OTHER, {"n": 1})
    for sides in order:
        for side in sides:
            machines[side].announce((SCHEMA, OTHER), timestamp=2)
        link.run()
    for now in (31.0, 62.0, 93.0):
        for machine in machines:
            machine.advance(now)
        link.run()
    assert len(left.documents()) == 2
    assert left.documents() == right.documents()
    running = [(each.schema_ids, each.state) for each in machines[0].connection.sessions]
    assert running == [((SCHEMA, OTHER), SessionState.LIVE)] * live


def test_what_the_user_asks_for_ends_no_session_that_he_has_asked_for():
    left, right = Node(1), Node(2)
    full = ReplicatorLimits(connection=Limits(sessions_max=1))
    left_one, _ = replicators(live=True, asks=(False, False), limits=full)
    _, right_one = replicators(live=True, asks=(False, False))
    machines = left_one, right_one
    for machine in machines:
        machine.advance(0.0)
    link = connect(left, right, machines=machines)
    machines[1].request((SCHEMA,))
    link.run()
    machines[1].request((OTHER,))
    link.run()
    for now in (31.0, 62.0, 93.0):
        machines[1].advance(now)
        link.run()
    (session,) = machines[0].connection.sessions
    assert (session.schema_ids, session.state) == ((SCHEMA,), SessionState.LIVE)


def test_what_was_announced_again_while_a_request_went_unanswered_is_asked_for_again():
    left, right = Node(1), Node(2)
    right.create(name="Lu")
    machines = replicators()
    for machine in machines:
        machine.advance(0.0)
    asker, asked = machines
    link = connect(left, right, machines=machines, schema_ids=(SCHEMA,), run=False)
    asker.receive_data(asked.data_to_send())
    assert isinstance(asker.next_event(), Announced)  # and it has asked
    asked.announce((), timestamp=2)
    asked.receive_data(asker.data_to_send())
    link.run()
    assert RequestIgnored(session_id=0, reason=Ignored.NOT_ANNOUNCED) in link.right.events
    asked.announce((SCHEMA,), timestamp=3)
    link.run()
    assert left.documents() == {}
    asker.advance(31.0)
    link.run()
    assert left.documents() == right.documents() != {}


def test_what_came_from_the_peer_is_not_sent_back():
    left, right = diverged(3)
    link = connect(left, right, live=True)
    stored = [each for each in link.left.events + link.right.events if "Stored" in kinds([each])[0]]
    assert len({each.operation_id for each in stored}) == len(stored)
    for machine in (link.left.machine, link.right.machine):
        machine.stored()  # type: ignore[attr-defined]
    before = len(link.left.events) + len(link.right.events)
    link.run()
    assert len(link.left.events) + len(link.right.events) == before
    said = bytes(link.left.sent) + bytes(link.right.sent)
    kept = left.store.read_new((SCHEMA, OTHER), count_max=1_000, size_max=1 << 20)
    assert {said.count(each.entry) for each in kept} <= {0, 1}
    assert any(each.entry in said for each in kept)


def test_three_nodes_converge_through_the_one_in_the_middle():
    left, middle, right = Node(1), Node(2), Node(3)
    document = left.create(name="Lu")
    one = connect(left, middle, live=True)
    two = connect(middle, right, live=True)
    right.author.update(document, {"age": 3})
    two.right.machine.stored()  # type: ignore[attr-defined]
    two.run()
    one.right.machine.stored()  # type: ignore[attr-defined]
    one.run()
    assert left.documents() == middle.documents() == right.documents()
    assert left.documents()[document].fields["age"] == 3


@pytest.mark.parametrize("seed", range(4))
@MODES
def test_every_chunking_and_every_turn_ends_the_same(mode: Mode, seed: int):
    left, right = diverged(seed, 16)
    machines = replicators(mode=mode)
    connect(left, right, machines=machines, rng=Random(seed), chunker=random_chunks(Random(seed)))
    assert left.documents() == right.documents()


def test_close_stores_what_has_come():
    left, right = diverged(4)
    link = connect(left, right)
    link.left.machine.close()
    link.run()
    assert isinstance(link.left.events[-1], Closed)


def test_deleted_documents_are_deleted_everywhere():
    left, right = Node(1), Node(2)
    document = left.create(name="Lu")
    connect(left, right)
    left.author.delete(document)
    right.author.update(document, {"age": 7})
    connect(left, right)
    assert left.documents() == right.documents()
    assert left.documents()[document].deleted


def test_an_author_who_has_lost_his_store_goes_on_behind_what_comes_back():
    left, right = Node(1), Node(2)
    left.create(name="Lu")
    connect(left, right)
    left = Node(1)
    connect(left, right)
    left.create(name="Lo")
    link = connect(left, right)
    assert link.right.events[-1] == SessionEnded(session_id=0)
    assert left.documents() == right.documents()
    assert len(right.documents()) == 2


def test_the_monoid_that_withstands_crafted_items_serves_too():
    left, right = diverged(5)
    machines = replicators(monoid="blake3-lthash")
    connect(left, right, machines=machines)
    assert left.documents() == right.documents()


def test_peers_with_different_monoids_notice():
    left, right = diverged(6)
    one, _ = replicators(monoid="blake3-lthash")
    _, two = replicators()
    link = connect(left, right, machines=(one, two))
    (ended,) = [each for each in link.left.events if isinstance(each, SessionEnded)]
    assert ended.error is not None
    assert ended.error.code.name == "BAD_FINGERPRINT"


def test_effects_are_for_a_store_of_operations():
    with pytest.raises(TypeError):
        Node(1).store.perform(object())  # type: ignore[arg-type]


def test_a_session_can_be_left_only_while_it_is_live():
    left, right = diverged(8)
    link = connect(left, right, live=True)
    machine = link.left.machine
    machine.announce((), timestamp=2)  # type: ignore[attr-defined]
    machine.leave(0)  # type: ignore[attr-defined]
    for session_id, code in ((0, "UNEXPECTED_MESSAGE"), (7, "NO_SUCH_SESSION")):
        with pytest.raises(LocalProtocolError) as caught:
            machine.leave(session_id)  # type: ignore[attr-defined]
        assert caught.value.code.name == code
