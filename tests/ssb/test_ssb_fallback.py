"""The seed's fallback mechanism: two peers, one of them without Epidemic Broadcast Trees."""

from __future__ import annotations

from typing import Any

import pytest
from ebt_support import ALICE, Host
from peer_support import Node, connect, feed_of, identity, packet, packets, run

from culm.machine import LocalProtocolError
from culm.ssb import history
from culm.ssb.ebt import FeedForked, MessageRefused, SessionOpened, SessionRole, State
from culm.ssb.messages import create_message
from culm.ssb.peer import (
    ExchangeInput,
    FellBack,
    Limits,
    PeerDisconnected,
    PeerLink,
    Settings,
    Timing,
)
from culm.ssb.peer.states import EXCHANGE_RULES, ONE_BY_ONE, ExchangeMode

POST = {"type": "post", "text": "hello"}
SESSION = {"name": ["ebt", "replicate"], "args": [{"version": 3}], "type": "duplex"}
WITHOUT = Settings(speaks_ebt=False)
#: It answers others' requests, and makes none itself.
ANSWERS_ONLY = Settings(speaks_ebt=False, falls_back=False)


def pair(client: Settings, server: Settings, **options: Any) -> tuple[Node, Node]:
    """Bob, who has dialled Alice; each follows the other, and has published something."""
    bob, alice = Node("bob", settings=client), Node("alice", settings=server, **options)
    for node, other in ((alice, bob), (bob, alice)):
        node.peer.follow(other.peer.me)
        for _ in range(3):
            node.peer.publish(POST)
    connect(bob, alice, sealed=True)
    run(alice, bob)
    return bob, alice


def publish(*nodes: Node) -> None:
    """Each publishes something new."""
    for node in nodes:
        node.peer.publish({"type": "post", "text": "later"})
    run(*nodes)


def reasons(node: Node) -> list[ExchangeInput]:
    return [event.reason for event in node.told(FellBack)]


def assert_level(*nodes: Node, count: int) -> None:
    for node in nodes:
        assert node.peer.clock == {each.peer.me: count for each in nodes}
        for other in nodes:
            assert node.store.messages(other.peer.me) == other.store.messages(other.peer.me)


def test_scenario_1_the_server_ends_the_session_with_an_error() -> None:
    bob, alice = pair(Settings(), WITHOUT)
    assert reasons(bob) == [ExchangeInput.SESSION_REFUSED]
    assert not bob.told(SessionOpened)
    assert_level(alice, bob, count=3)
    publish(alice, bob)
    assert_level(alice, bob, count=4)


def test_scenario_2_the_client_asks_for_a_feed_at_once() -> None:
    bob, alice = pair(WITHOUT, Settings(asks_as_server=True))
    assert reasons(alice) == [ExchangeInput.HISTORY_ASKED]
    assert_level(alice, bob, count=3)
    publish(alice, bob)
    assert_level(alice, bob, count=4)
    alice.advance(100.0)  # scenario 4 is not attempted
    run(alice, bob)
    assert len(reasons(alice)) == 1


def test_scenario_3_the_client_opens_no_session_in_time() -> None:
    bob, alice = pair(ANSWERS_ONLY, Settings(), timing=Timing(session_s=7.0))
    assert alice.peer.clock[bob.peer.me] == 0
    assert alice.peer.next_deadline() == 7.0
    alice.advance(7.0)
    run(alice, bob)
    assert reasons(alice) == [ExchangeInput.WAITED]
    publish(bob)
    run(alice, bob)
    assert alice.peer.clock == {alice.peer.me: 3, bob.peer.me: 4}
    assert bob.peer.clock == {alice.peer.me: 0, bob.peer.me: 4}


def test_scenario_4_the_server_asks_for_a_session_and_is_refused() -> None:
    bob, alice = pair(ANSWERS_ONLY, Settings(asks_as_server=True))
    alice.advance(5.0)
    run(alice, bob)
    assert reasons(alice) == [ExchangeInput.SESSION_REFUSED]
    assert alice.peer.clock == {alice.peer.me: 3, bob.peer.me: 3}


def test_scenario_4_the_server_asks_for_a_session_and_gets_it() -> None:
    """Both have EBT, and both were dialled, as may happen with rooms."""
    alice, bob = (
        Node(name, settings=Settings(asks_as_server=asks))
        for name, asks in (("alice", True), ("bob", False))
    )
    alice.peer.follow(bob.peer.me)
    bob.peer.publish(POST)
    links = [
        node.peer.attached(other.peer.me, role=SessionRole.SERVER)
        for node, other in ((alice, bob), (bob, alice))
    ]
    alice.ways[links[0].number] = bob, links[1]
    bob.ways[links[1].number] = alice, links[0]
    run(alice, bob)
    alice.advance(5.0)
    run(alice, bob)
    assert reasons(alice) == reasons(bob) == []
    assert alice.peer.clock[bob.peer.me] == 1


def test_two_peers_without_ebt() -> None:
    bob, alice = pair(WITHOUT, WITHOUT)
    assert reasons(alice) == reasons(bob) == []
    assert_level(alice, bob, count=3)
    publish(alice, bob)
    assert_level(alice, bob, count=4)


def test_who_does_not_fall_back_tells_of_it_and_asks_for_nothing() -> None:
    bob, alice = pair(Settings(falls_back=False), WITHOUT)
    assert reasons(bob) == [ExchangeInput.SESSION_REFUSED]
    assert bob.peer.clock[alice.peer.me] == 0
    assert alice.peer.clock[bob.peer.me] == 3  # but it answers


def test_every_mode_goes_on_as_the_table_says() -> None:
    for mode, rules in EXCHANGE_RULES.items():
        does = mode not in ONE_BY_ONE
        assert (ExchangeMode.HISTORY in rules.values()) is does
        assert rules[ExchangeInput.SESSION_OPENED] is ExchangeMode.EBT


# One side only: the other one is written here.


def asked(name: str, **fields: Any) -> dict[str, Any]:
    arguments = [{"id": feed_of(name), "keys": False, **fields}]
    return {"name": ["createHistoryStream"], "args": arguments, "type": "source"}


def asker(*follows: str, **options: Any) -> tuple[Node, PeerLink]:
    """Alice without EBT, whom Bob has dialled."""
    options.setdefault("settings", WITHOUT)
    alice = Node("alice", **options)
    for name in follows:
        alice.peer.follow(feed_of(name))
    return alice, alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)


def bodies(data: bytes) -> list[tuple[int, Any]]:
    """Number and body of each packet."""
    return [(number, body) for _, number, body in packets(data)]


def tell(node: Node, link: PeerLink, *data: bytes) -> list[tuple[int, Any]]:
    for each in data:
        link.receive_data(each)
    return bodies(node.take(link))


@pytest.mark.parametrize("words", ["unexpected end of parent stream", "reconnected to peer"])
def test_an_end_of_the_connection_is_no_reason_to_fall_back(words: str) -> None:
    bob = Node("bob")
    link = bob.peer.attached(feed_of("alice"), role=SessionRole.CLIENT)
    bob.take(link)
    tell(bob, link, packet(-1, {"message": words, "name": "Error", "stack": ""}, flags=14))
    assert reasons(bob) == []


def test_a_session_in_time_is_no_reason_to_fall_back() -> None:
    alice, link = asker(settings=Settings())
    tell(alice, link, packet(1, SESSION))
    alice.advance(100.0)
    assert reasons(alice) == []


def test_a_session_that_the_peer_opens_later_takes_over() -> None:
    alice, link = asker("carol", settings=Settings())
    alice.take(link)
    alice.peer.advance(5.0)
    assert [body["name"] for _, body in bodies(alice.take(link))] == [["createHistoryStream"]] * 2
    said = tell(alice, link, packet(1, SESSION))
    assert said == [(1, True), (2, True), (-1, {feed_of("alice"): 0, feed_of("carol"): 0})]


def test_what_is_not_followed_is_not_handed_out() -> None:
    alice, link = asker()
    alice.take(link)
    (answer,) = tell(alice, link, packet(1, asked("carol")))
    assert answer[1]["message"] == "not for you"


def test_what_is_not_followed_any_more_is_withdrawn() -> None:
    alice, link = asker("carol")
    alice.take(link)
    tell(alice, link, packet(1, asked("carol", live=True)))
    alice.peer.follow(feed_of("carol"), False)
    said = bodies(alice.take(link))
    assert [number for number, _ in said] == [-1, 2]  # our answer ends, and so does our question
    assert said[0][1]["message"] == "not for you"
    alice.peer.follow(feed_of("carol"))
    assert bodies(alice.take(link))[0][1]["args"][0]["id"] == feed_of("carol")


def test_whom_the_author_blocks_gets_nothing_of_it() -> None:
    alice, link = asker("carol")
    alice.take(link)
    tell(alice, link, packet(1, asked("carol", live=True)))
    alice.peer.block(feed_of("carol"), feed_of("bob"))
    assert bodies(alice.take(link))[0][1]["message"] == "not for you"
    assert tell(alice, link, packet(2, asked("carol")))[0][1]["message"] == "not for you"


def test_a_message_with_a_wrong_signature_is_refused() -> None:
    alice, link = asker("carol")
    alice.take(link)
    good = Node("carol").peer.publish(POST)
    forged = good.data.replace(b"hello", b"hallo")
    assert tell(alice, link, packet(-2, forged)) == [(2, True)]  # it is asked for nothing more
    (refused,) = alice.told(MessageRefused)
    assert (refused.session, refused.feed, refused.sequence) == (None, feed_of("carol"), 1)
    assert alice.peer.clock[feed_of("carol")] == 0


def test_a_fork_is_found_in_histories_too() -> None:
    carol = Node("carol")
    first = carol.peer.publish(POST)
    second = carol.peer.publish(POST)
    other = create_message(identity("carol"), content=POST, timestamp=9, last=None)
    third = create_message(
        identity("carol"), content=POST, timestamp=10, last=other.place._replace(sequence=2)
    )
    alice, link = asker("carol")
    alice.take(link)
    tell(alice, link, packet(-2, first.data), packet(-2, second.data), packet(-2, third.data))
    (forked,) = alice.told(FeedForked)
    assert (forked.ours, forked.theirs) == (second.data, third.data)
    assert tell(alice, link, packet(1, asked("carol")))[0][1]["message"] == "not for you"


def test_a_reader_that_falls_behind_gets_the_rest_from_the_store() -> None:
    alice, link = asker(limits=Limits(history=history.Limits(read_count_max=2, reads_max=1)))
    for _ in range(7):
        alice.peer.publish(POST)
    alice.take(link)
    said = tell(alice, link, packet(1, asked("alice", live=True)))
    assert [body["sequence"] for _, body in said] == [1, 2, 3, 4, 5, 6, 7]
    alice.peer.publish(POST)
    assert [body["sequence"] for _, body in bodies(alice.take(link))] == [8]


@pytest.mark.parametrize("failing", [False, True])
def test_what_is_being_read_at_the_end_is_not_sent(failing: bool) -> None:
    alice, link = asker()
    alice.peer.publish(POST)
    alice.take(link)
    link.receive_data(packet(1, asked("alice")))
    while alice.peer.next_event() is not None:
        pass
    effect = alice.peer.next_effect()
    assert effect is not None
    if failing:
        alice.peer.fail(effect.ticket, OSError("no disk"))
    else:
        alice.peer.close()
        alice.peer.complete(effect.ticket, alice.store.perform(effect))
    alice.drain()
    alice.peer.advance(5.0)
    alice.drain()
    assert alice.peer.state is State.CLOSED
    assert b'"sequence":1' not in alice.take(link)


def test_time_passes_while_a_goodbye_is_not_answered() -> None:
    """Pings and feeds are no longer asked for."""
    timing = Timing(ping_s=3.0, history=history.Timing(patience_s=2.0))
    alice, link = asker("carol", timing=timing)
    alice.take(link)
    ping = {"name": ["gossip", "ping"], "args": [], "type": "duplex"}
    tell(alice, link, packet(1, ping), packet(1, 5))
    alice.peer.close()
    for now in (2.0, 3.0, 4.0, 5.0):
        alice.advance(now)
    assert alice.told(PeerDisconnected)


def test_reading_outside_of_sessions_checks_its_arguments() -> None:
    host = Host(ALICE)
    host.follow(ALICE)
    host.write(ALICE, 1)
    core = host.machine
    for wrong in ({"first": 2}, {"first": 0}, {"count_max": 0}, {"size_max": 0}):
        good = {"first": 1, "count_max": 1, "size_max": 1}
        with pytest.raises(ValueError, match=next(iter(wrong))):
            core.read(ALICE, **{**good, **wrong}, then=lambda messages: None)
    core.close()
    host.drain()
    with pytest.raises(LocalProtocolError):
        host.write(ALICE, 1)
    assert not core.receive_outside(feed_of("bob"), ALICE, 2, None)
