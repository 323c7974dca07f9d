"""A live peer is never left, however slow its line; a dead one is, by either side.

``CULM_SSB_LINES_SEEDS`` sets the number of lines, ``CULM_SSB_LINES_FIRST_SEED`` the first one.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from peer_lines import Pair, World
from peer_support import Node, feed_of, packet, packets

from culm.replication import Liveness
from culm.ssb.ebt import AppendMessages, SessionEnded, SessionOpened, SessionRole
from culm.ssb.ebt import ErrorCode as EbtErrorCode
from culm.ssb.ebt import Limits as EbtLimits
from culm.ssb.muxrpc import Limits as RpcLimits
from culm.ssb.peer import ErrorCode, Limits, PeerDisconnected, PeerLink, Settings, Timing
from effort import seeds

OPEN = b'{"name":["ebt","replicate"],"args":[{"version":3,"format":"classic"}],"type":"duplex"}'
PING = b'{"name":["gossip","ping"],"args":[{"timeout":10000}],"type":"duplex"}'
REFUSAL = {"message": "method:gossip,ping is not in list of allowed methods", "name": "Error"}
LINES = seeds("SSB_LINES", usual=20, long=2_000)


@pytest.mark.parametrize("seed", LINES)
def test_a_slow_line_is_not_dead(seed: int) -> None:
    world = World(seed).live(60.0)
    assert world.lost() == []


@pytest.mark.parametrize("seed", LINES)
def test_a_dead_line_is_noticed_at_both_ends(seed: int) -> None:
    world = World(seed)
    world.live(world.rng.random() * 60.0)
    world.line.is_cut = True
    world.live(2 * world.patience_s + 1.0)
    assert len(world.lost()) == 2
    for node in world.nodes:
        assert node.told(PeerDisconnected)[0].error.code is ErrorCode.SILENT


def test_canary_a_peer_that_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Liveness, "heard", lambda self, now: None)
    assert World(0).live(60.0).lost()


def test_canary_a_peer_that_blames_others_for_its_own_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Liveness, "taken", lambda self, now, all_left: None)
    assert World(0).live(60.0).lost()


def silent(role: SessionRole, *said: bytes, **times: Any) -> tuple[Node, PeerLink]:
    """Alice, and a peer that sends these, and nothing more."""
    alice = Node("alice", timing=Timing(**times))
    link = alice.peer.attached(feed_of("bob"), role=role)
    alice.drain()
    for each in said:
        link.receive_data(each)
        alice.drain()
    return alice, link


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (SessionRole.SERVER, []),
        (SessionRole.SERVER, [packet(1, OPEN), packet(1, {})]),
        (SessionRole.SERVER, [packet(1, PING)]),
        (SessionRole.SERVER, [packet(1, PING), packet(1, 5)]),
        (SessionRole.SERVER, [packet(1, PING), packet(1, True, flags=14)]),
        (SessionRole.SERVER, [packet(1, PING)[:20]]),
        (SessionRole.CLIENT, []),
        (SessionRole.CLIENT, [packet(-1, {})]),
        (SessionRole.CLIENT, [packet(-2, REFUSAL, flags=14), packet(-1, {})]),
        (SessionRole.CLIENT, [packet(-2, True, flags=14)]),
    ],
)
@pytest.mark.parametrize("times", [{"ping_s": 10.0}, {"idle_timeout_s": 10.0}])
def test_who_falls_silent_is_left(
    role: SessionRole, said: list[bytes], times: dict[str, float]
) -> None:
    if role is SessionRole.CLIENT and "idle_timeout_s" in times:
        said = [each for each in said if not each.startswith(packet(-2, {}, flags=14)[:1])]
    alice, link = silent(role, *said, **times)
    for now in range(1, 32):
        alice.advance(float(now))
    assert link.closed
    assert alice.told(PeerDisconnected)[0].error.code is ErrorCode.SILENT
    assert alice.peer.next_deadline() is None


def test_by_default_silence_ends_after_ten_minutes() -> None:
    alice, link = silent(SessionRole.SERVER, packet(1, OPEN), packet(1, {}))
    while not link.closed:
        due = alice.peer.next_deadline()
        assert due is not None
        alice.advance(due)
    assert alice.peer.next_deadline() is None
    assert (due, alice.told(PeerDisconnected)[0].error.code) == (600.0, ErrorCode.SILENT)


@pytest.mark.parametrize("piece_size", [None, 1])
def test_news_on_their_way_to_a_dead_link_do_not_keep_it(piece_size: int | None) -> None:
    """Each message that left had the wait for an answer begin anew."""
    alice, link = silent(SessionRole.SERVER, packet(1, OPEN), packet(1, {feed_of("alice"): 0}))
    alice.piece_size = piece_size
    for now in range(0, 601, 50):
        assert not link.closed
        alice.advance(float(now))
        alice.peer.publish({"type": "post"})
        alice.drain()
    assert alice.told(PeerDisconnected)[0].error.code is ErrorCode.SILENT


def test_a_server_asks_for_a_sign_of_life_and_any_byte_is_one() -> None:
    alice, link = silent(SessionRole.SERVER, packet(1, OPEN), packet(1, {}), idle_timeout_s=10.0)
    alice.take(link)
    alice.advance(10.0)
    assert [body for _, _, body in packets(alice.take(link))] == [
        {"name": ["gossip", "ping"], "args": [{"timeout": 10000}], "type": "duplex"},
        1700000010000,
    ]
    link.receive_data(packet(-1, REFUSAL, flags=14)[:1])
    alice.advance(19.9)
    link.receive_data(packet(-1, REFUSAL, flags=14)[1:])
    alice.take(link)
    alice.advance(29.9)  # asked again: the first call has ended
    assert [number for _, number, _ in packets(alice.take(link))] == [2, 2]
    alice.advance(39.8)
    assert not link.closed
    alice.advance(39.9)
    assert link.closed


def test_a_question_that_is_not_answered_is_not_asked_twice() -> None:
    alice, link = silent(SessionRole.SERVER, packet(1, OPEN), packet(1, {}), idle_timeout_s=10.0)
    alice.take(link)
    alice.advance(10.0)
    assert len(packets(alice.take(link))) == 2
    link.receive_data(packet(5, {"name": ["foo"], "args": []}, flags=2))
    alice.take(link)
    alice.advance(20.0)
    assert alice.take(link) == b""
    assert not link.closed
    alice.advance(30.0)
    assert link.closed


def test_whose_bytes_are_not_taken_is_silent_all_the_same() -> None:
    """A link that takes nothing is dead, or its peer wants it to look so."""
    alice = Node("alice", timing=Timing(idle_timeout_s=10.0))
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    for now in (0.0, 10.0, 20.0):
        alice.peer.advance(now)
        while alice.peer.next_event() is not None:
            pass
    assert link.closed


def test_the_silence_of_our_own_store_is_nobodys_fault() -> None:
    alice = Node("alice", timing=Timing(idle_timeout_s=10.0))
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    alice.drain()
    link.receive_data(packet(1, OPEN))
    while alice.peer.next_event() is not None:
        pass
    effect = alice.peer.next_effect()
    assert effect is not None
    for now in (10.0, 20.0, 30.0):
        alice.peer.advance(now)
        while alice.peer.next_event() is not None:
            pass
    assert not link.closed
    alice.peer.complete(effect.ticket, alice.store.perform(effect))
    alice.advance(40.0)
    assert len(packets(alice.take(link))) == 3  # notes, and a ping


@pytest.mark.parametrize("times", [{"ping_s": 0.0}, {"idle_timeout_s": 0.0}])
def test_who_waits_for_our_store_is_not_looked_at_again_at_once(times: dict[str, float]) -> None:
    """With no patience at all, the deadline was always past."""
    alice = Node("alice", timing=Timing(**times))
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    link.receive_data(packet(1, OPEN))
    while alice.peer.next_event() is not None:
        pass  # the session waits for the peer's clock
    for _ in range(3):
        due = alice.peer.next_deadline()
        assert due is not None
        alice.peer.advance(due)
        while alice.peer.next_event() is not None:
            pass
    assert not link.closed
    assert due > 0.2


def test_without_patience_nobody_is_asked() -> None:
    alice, _ = silent(SessionRole.SERVER, packet(1, OPEN), packet(1, {}), idle_timeout_s=inf)
    alice.advance(5.0)
    assert alice.peer.next_deadline() is None


def test_who_has_served_does_not_serve_again_before_the_answer() -> None:
    """Over a slow line it is late: the second of two answers would be volleyed, for ever."""
    alice, link = silent(SessionRole.CLIENT, packet(-1, {}), ping_s=10.0)
    link.receive_data(packet(-2, 5))
    alice.take(link)
    served = []
    for now in range(1, 61):
        alice.advance(float(now))
        if now > 10:
            link.receive_data(packet(-1, {}))  # a feed, say, with much data before the answer
        served += [now for _, number, _ in packets(alice.take(link)) if number == 2]
    assert served == [10]


def test_a_ping_is_answered_once_there_is_room_for_the_answer() -> None:
    """It was never answered, and whoever has served waits: the link ended with `SILENT`."""
    alice = Node("alice", limits=Limits(rpc=RpcLimits(unsent_size_max=1)))
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    manifest = packet(1, {"name": ["manifest"], "args": []}, flags=2)
    link.receive_data(manifest + packet(2, PING) + packet(2, 5) + packet(2, 6))
    alice.drain()
    assert [number for _, number, _ in packets(alice.take(link))] == [-1, -2]


# The first notes of a server


def test_first_notes_over_a_slow_line_are_waited_for() -> None:
    """As long as any bytes come: here one every ten seconds."""
    alice, link = silent(SessionRole.CLIENT)
    notes = packet(-1, {feed_of(name): 0 for name in "abcdefghij"})
    for number in range(len(notes)):
        alice.advance(number * 10.0)
        link.receive_data(notes[number : number + 1])
    alice.drain()
    assert not alice.told(SessionEnded)
    assert alice.told(SessionOpened)


def test_first_notes_of_which_nothing_more_comes_are_not_waited_for() -> None:
    alice, link = silent(SessionRole.CLIENT)
    alice.advance(20.0)
    link.receive_data(packet(-1, {feed_of("bob"): 0})[:20])
    alice.advance(49.0)
    assert not alice.told(SessionEnded)
    alice.advance(50.0)
    assert alice.told(SessionEnded)[0].error.code is EbtErrorCode.NO_NOTES


def test_who_has_waited_for_first_notes_in_vain_asks_again() -> None:
    """The line may have been disturbed: otherwise the link stays, with nothing exchanged."""
    alice, link = silent(SessionRole.CLIENT)
    alice.advance(30.0)
    alice.take(link)
    due = alice.peer.next_deadline()
    assert due in (35.0, 40.0)
    alice.advance(due)
    assert OPEN in alice.take(link)
    link.receive_data(packet(-2, {}))
    alice.drain()
    assert alice.told(SessionOpened)


def test_first_notes_are_waited_for_while_our_own_store_is_at_work() -> None:
    """Nothing is then taken from any line, and no peer can be blamed."""
    limits = Limits(ebt=EbtLimits(unwritten_size_max=1))
    alice = Node("alice", limits=limits)
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.CLIENT)
    alice.drain()
    alice.peer.publish({"type": "post"})
    while alice.peer.next_event() is not None:
        pass
    write = alice.peer.next_effect()
    assert isinstance(write, AppendMessages)
    alice.advance(100.0)
    assert link.read_size() == 0
    assert not alice.told(SessionEnded)
    alice.peer.complete(write.ticket, alice.store.perform(write))  # type: ignore[func-returns-value]
    assert link.read_size() > 0
    alice.advance(129.0)
    assert not alice.told(SessionEnded)
    alice.advance(130.0)
    assert alice.told(SessionEnded)


# Feeds requested one by one


def histories(follows: str, **limits: Any) -> tuple[Node, Node]:
    """Alice, without sessions, and Bob, who has a long message of each of these authors."""
    settings = Settings(speaks_ebt=False, falls_back=True)
    alice, bob = (Node(name, settings=settings, **limits) for name in ("alice", "bob"))
    for name in follows:
        author = Node(name, store=bob.store)
        author.peer.publish({"type": "post", "text": "x" * 5000})
        author.drain()
    bob = Node("bob", store=bob.store, settings=Settings(speaks_ebt=False, falls_back=False))
    for name in follows:
        alice.peer.follow(feed_of(name))
        bob.peer.follow(feed_of(name))
    return alice, bob


def test_feeds_over_a_slow_line_are_waited_for() -> None:
    """Each takes most of a minute, and all are asked for at once."""
    alice, bob = histories("cdefg")
    Pair((alice, bob), (100, 100), 0.0).live(300.0)
    assert alice.peer.clock == {alice.peer.me: 0} | {feed_of(name): 1 for name in "cdefg"}


def test_feeds_of_which_nothing_more_comes_are_not_waited_for() -> None:
    alice, bob = histories("c")
    pair = Pair((alice, bob), (100, 100), 0.0).live(30.0)
    pair.line.is_cut = True
    link, _ = pair.line.links
    pair.live(59.0)
    alice.sent.clear()
    assert b"true" not in link.data_to_send()
    pair.live(1.0)
    assert b"true" in link.data_to_send()  # the call is ended


@pytest.mark.parametrize("names", [("alice", "bob"), ("bob", "alice")])
def test_a_link_that_has_died_before_the_first_notes_is_gone_in_time(names: list[str]) -> None:
    """Each further request for a session loads a clock, and that is no sign of life."""
    node: Any = Node(names[0])
    node.carry = lambda link: False  # the line takes nothing
    node.peer.attached(feed_of(names[1]), role=SessionRole.CLIENT)
    node.drain()
    while not node.told(PeerDisconnected):
        due = node.peer.next_deadline()
        assert due is not None
        assert due <= 600.0
        node.advance(due)
    assert node.told(PeerDisconnected)[0].error.code is ErrorCode.SILENT
