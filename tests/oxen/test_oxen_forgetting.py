"""A peer that our user wants to forget."""

from __future__ import annotations

import gc
from collections import deque

import pytest
from oxen_support import ME, Dice, Table
from test_oxen_costs import joined

from culm.machine import Closed, Event, LocalProtocolError
from culm.oxen import (
    Delivered,
    ErrorCode,
    FailReason,
    LeaveReason,
    Limits,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    SendFailed,
    Timing,
)
from culm.oxen.flight import Flight
from culm.oxen.messages import (
    MessageAck,
    MessageData,
    OneToOne,
    Synchronize,
    Tags,
    read_message,
)
from culm.oxen.stream import Item

P, Q = b"P", b"Q"


def test_all_that_waits_for_it_fails_and_nothing_of_it_stays() -> None:
    table = Table()
    table.join(P)
    table.join(Q)
    table.gossip(Q, P={b"Q": table.now}, Q={b"P": table.now})
    table.events()
    one = table.node.send_in_order(P, b"x")
    two = table.node.send(P, b"y")
    table.node.forget(P)
    table.drain()
    failed = [
        SendFailed(peer=P, message=number, reason=FailReason.PEER_FORGOTTEN)
        for number in (one, two)
    ]
    assert table.events() == [*failed, PeerForgotten(peer=P)]
    assert set(table.node.peers()) == {Q}
    assert set(table.node.contacts()) == {ME, Q}
    assert all(P not in row for row in table.node.contacts().values())
    table.said()
    table.wait(300.0, alive=(Q,))
    assert table.said(P) == []
    assert table.events() == []
    with pytest.raises(LocalProtocolError) as caught:
        table.node.send(P, b"z")
    assert caught.value.code is ErrorCode.NOT_JOINED


def test_no_table_keeps_its_name() -> None:
    """Whatever questions and news of it came before."""
    sid = b"a name that is nowhere else"
    table = Table()
    table.join(Q)
    table.join(sid)
    table.node.send(sid, b"x")
    table.wait(30.0, alive=(Q,))
    table.node.forget(sid)
    table.drain()
    table.events()
    table.said()
    table.wait(100.0, alive=(Q,))
    table.said()
    held = [
        found for found in _reachable(table.node) if isinstance(found, (dict, set)) and sid in found
    ]
    assert held == []


def test_one_that_is_not_known_is_forgotten_already() -> None:
    table = Table()
    table.node.forget(P)
    table.node.forget(ME)
    assert table.events() == []
    table.join(P)
    table.node.forget(P)
    table.node.forget(P)
    table.drain()
    assert table.events() == [PeerJoined(peer=P), PeerForgotten(peer=P)]


def test_one_that_was_given_up_is_no_longer_looked_for() -> None:
    table = Table()
    table.join(P)
    table.wait(90.0)
    table.node.forget(P)
    table.drain()
    assert table.events() == [PeerJoined(peer=P), PeerUnreachable(peer=P), PeerForgotten(peer=P)]


def test_who_was_asked_to_help_and_never_joined_goes_without_a_word() -> None:
    table = Table()
    table.node.join(P)
    table.node.forget(P)
    table.wait(120.0)
    assert table.events() == []


def test_a_goodbye_does_not_wait_for_it() -> None:
    table = Table()
    table.join(P)
    table.node.send(P, b"x")
    table.node.leave()
    table.drain()
    table.events()
    table.node.forget(P)
    table.drain()
    assert table.events()[-2:] == [PeerForgotten(peer=P), Closed()]


def test_an_acknowledgement_that_comes_late_has_no_effect() -> None:
    table = Table()
    table.join(P)
    table.events()
    table.node.send(P, b"x")
    table.drain()
    (body,) = table.bodies(MessageData, P)
    table.node.forget(P)
    table.drain()
    table.events()
    table.tell(P, MessageAck(ME, P, body.id))
    table.tell_message(P, OneToOne(1, b"late"))
    assert table.events() == []


def test_one_that_is_alive_joins_again() -> None:
    """Its user sees a restart: the former association is over."""
    cluster = joined(3)
    network = cluster.network
    one, other = cluster[b"N00"], cluster[b"N01"]
    one.events.clear()
    other.events.clear()
    one.call("forget", sid=b"N01")
    network.run(network.clock.now + 10.0)
    assert [event for _, event in one.events] == [
        PeerForgotten(peer=b"N01"),
        PeerJoined(peer=b"N01"),
    ]
    assert [event for _, event in other.events] == [
        PeerLeft(peer=b"N00", reason=LeaveReason.RESTARTED),
        PeerJoined(peer=b"N00"),
    ]
    for host in cluster:
        assert {view.state for view in host.machine.peers().values()} == {PeerState.JOINED}


def _reachable(root: object) -> list[object]:
    """All objects of culm, and all containers, reachable from `root`."""
    seen: dict[int, object] = {}
    frontier = [root]
    while frontier:
        found = gc.get_referents(*frontier)
        frontier = []
        for each in found:
            kind = type(each)
            ours = kind.__module__.startswith("culm") or kind in (dict, set, list, tuple, deque)
            if ours and id(each) not in seen:
                seen[id(each)] = each
                frontier.append(each)
    return [*seen.values()]


def test_one_that_is_there_and_has_forgotten_us_for_want_of_room_is_given_up() -> None:
    """It answers keepalives, as any server does, and acknowledges nothing of a stranger's."""
    table = Table()
    table.join(P)
    table.join(Q)
    table.events()
    table.members.discard(P)
    number = table.node.send(P, b"x")
    table.wait(150.0, alive=(P, Q))
    assert table.events() == []
    table.wait(20.0, alive=(P, Q))
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.PEER_UNREACHABLE),
        PeerUnreachable(peer=P),
    ]
    table.wait(1000.0, alive=(P, Q))
    assert table.events() == []
    table.said()
    table.wait(10.0, alive=(P, Q))
    table.accept(P, P)
    assert table.events() == [PeerReachable(peer=P)]


def test_one_that_has_forgotten_us_is_given_up_though_nothing_is_sent_to_it() -> None:
    """It is asked whether it still counts us as its peer; one that does is asked as rarely."""
    table = Table()
    table.join(P)
    table.join(Q)
    table.events()
    table.members.discard(P)
    table.wait(230.0, alive=(P, Q))
    assert table.events() == []
    table.wait(20.0, alive=(P, Q))
    assert table.events() == [PeerUnreachable(peer=P)]
    table.said()
    table.wait(800.0, alive=(P, Q))
    questions = table.bodies(MessageData, Q)
    assert 9 <= len(questions) <= 10
    assert table.events() == []


def talk_on(table: Table, rounds: int) -> list[Event]:
    """The events of as many times eight seconds in which small datagrams arrive."""
    found: list[Event] = []
    for _ in range(rounds):
        table.wait(8.0, alive=(P,))
        table.node.send(P, b"small")
        table.drain()
        for body in table.bodies(MessageData, P):
            if body.d == b"small":
                table.tell(P, MessageAck(ME, P, body.id))
        found += [event for event in table.events() if not isinstance(event, Delivered)]
    return found


def test_a_piece_that_never_arrives_ends_although_others_do() -> None:
    """It may be too large for the path, or for the peer."""
    table = Table(limits=Limits(message_size_max=5_000))
    table.tell_message(P, Synchronize(0, 0, 5_000))
    table.accept(P, P)
    table.events()
    number = table.node.send_in_order(P, b"large" * 999)
    assert talk_on(table, 19) == []
    failed = SendFailed(peer=P, message=number, reason=FailReason.PEER_UNREACHABLE)
    table.wait(15.0, alive=(P,))
    events = table.events()
    assert failed in events
    assert events[-1] == PeerUnreachable(peer=P)


def test_a_message_in_order_that_never_arrives_fails_alone() -> None:
    """The peer is told to go on after it, and later ones come out there only then."""
    table = Table()
    start = table.join(P, broadcast=7, one=5)
    first, second = (table.node.send_in_order(P, data) for data in (b"large", b"other"))
    table.drain()
    ids = {body.d[b"d"]: body.id for body in table.bodies(MessageData, P) if b"d" in body.d}
    table.tell(P, MessageAck(ME, P, ids[b"other"]))
    table.events()
    assert talk_on(table, 19) == []
    failed = SendFailed(peer=P, message=first, reason=FailReason.TOO_LARGE)
    assert talk_on(table, 2) == [failed]
    table.said()
    table.wait(8.0, alive=(P,))
    [id] = {body.id for body in table.bodies(MessageData, P)}
    table.wait(8.0, alive=(P,))
    [body, *_] = table.bodies(MessageData, P)
    assert read_message(body.d) == start._replace(one=start.one + 1, known=5)
    table.tell(P, MessageAck(ME, P, id))
    assert table.events() == [Delivered(peer=P, message=second)]


def test_a_datagram_or_tags_that_never_arrive_fail_alone() -> None:
    """Nothing has to wait for them, and the peer says that it counts us as its peer."""
    table = Table(limits=Limits(tags_size_max=100))
    table.node.set_tags({"role": "x"})
    table.tell_message(P, Synchronize(0, 0, 0, 100))
    table.accept(P, P)
    table.events()
    first, second = (table.node.send(P, b"large" * size) for size in (2, 1))
    table.wait(150.0, alive=(P,))
    assert table.events() == []
    table.wait(15.0, alive=(P,))
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.TOO_LARGE)
        for number in (first, second)
    ]
    table.said()
    table.wait(500.0, alive=(P,))
    assert table.events() == []
    assert {type(read_message(body.d)) for body in table.bodies(MessageData, P)} == {Tags, OneToOne}


def test_silence_is_that_of_messages_under_way() -> None:
    """A message that was withdrawn, unanswered, does not make the next one look old."""
    flight = Flight(timing=Timing(), rng=Dice())
    first, second = Item(1, b""), Item(2, b"")
    flight.dispatch(first, 1.0)
    for now in (10.0, 20.0, 30.0):
        flight.look(now)
        flight.take_lost(now)
    assert flight.silence(30.0) == 29.0
    assert flight.forget(first)
    assert flight.silence(500.0) == 0.0
    flight.dispatch(second, 500.0)
    assert flight.silence(501.0) == 1.0
