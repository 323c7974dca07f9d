"""Two peers may be connected more than once: one link has the session, whichever is lost.

``CULM_SSB_TWO_LINKS_SEEDS`` sets the number of worlds, ``CULM_SSB_TWO_LINKS_FIRST_SEED`` the first
one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from math import inf
from random import Random

import pytest
from peer_support import Node, connect, feed_of, packet, packets, run

from culm.ssb.ebt import SessionEnded, SessionOpened, SessionRole
from culm.ssb.peer import PeerLink, Settings, Timing
from culm.ssb.peer.conversation import LinkExchange
from effort import seeds

POST = {"type": "post", "text": "hello"}
OPEN = b'{"name":["ebt","replicate"],"args":[{"version":3,"format":"classic"}],"type":"duplex"}'
SUPERSEDED = {"message": "reconnected to peer", "name": "Error", "stack": ""}
WORLDS = seeds("SSB_TWO_LINKS", usual=20, long=5_000)


def pair(*, asks_as_server: bool = False) -> tuple[Node, Node]:
    nodes = Node("alice", settings=Settings(asks_as_server=asks_as_server)), Node("bob")
    for node, other in (nodes, nodes[::-1]):
        node.peer.follow(other.peer.me)
    return nodes


def assert_they_exchange(*nodes: Node) -> None:
    for node in nodes:
        node.peer.publish(POST)
    run(*nodes)
    first, second = (node.peer.clock for node in nodes)
    assert first == second


def pass_time(*nodes: Node, now: float) -> None:
    """Every node that is due moves, in order."""
    while dues := [due for node in nodes if (due := node.peer.next_deadline()) is not None]:
        if (due := min(dues)) > now:
            break
        for node in nodes:
            node.advance(due)
        run(*nodes)


def lose(nodes: tuple[Node, Node], ends: tuple[PeerLink, PeerLink]) -> None:
    for node, end in zip(nodes, ends, strict=True):
        node.ways.pop(end.number)
        end.receive_eof()
    run(*nodes)


def test_two_peers_that_dial_each_other_at_once() -> None:
    """Each session gives way to the other one, and both are gone."""
    alice, bob = pair()
    connect(alice, bob)
    connect(bob, alice)
    run(alice, bob)
    pass_time(alice, bob, now=60.0)
    assert_they_exchange(alice, bob)


def test_when_a_second_link_is_lost_the_first_one_has_the_session_again() -> None:
    for is_reversed in (False, True):
        alice, bob = pair()
        connect(alice, bob)
        run(alice, bob)
        nodes = (bob, alice) if is_reversed else (alice, bob)
        ends = connect(*nodes)
        run(alice, bob)
        lose(nodes, ends)
        pass_time(alice, bob, now=60.0)
        assert_they_exchange(alice, bob)


def test_a_second_link_that_is_dead_does_not_keep_the_session_from_the_first_one() -> None:
    """It was asked for over the dead one again and again, until that was silent for too long."""
    alice, bob = pair()
    connect(alice, bob)
    run(alice, bob)
    for node, link in zip((alice, bob), connect(alice, bob), strict=True):
        node.ways.pop(link.number)
    run(alice, bob)
    pass_time(alice, bob, now=100.0)
    assert_they_exchange(alice, bob)


def test_a_session_is_asked_for_again_after_a_pause_that_doubles() -> None:
    """Half of it for the peer whose name comes first: if both ask, one is earlier."""
    pauses = {}
    for ours, theirs in (("alice", "bob"), ("bob", "alice")):
        node = Node(ours, timing=Timing(idle_timeout_s=inf))
        link = node.peer.attached(feed_of(theirs), role=SessionRole.CLIENT)
        node.take(link)
        now, asked = 0.0, []
        for number in range(1, 10):
            link.receive_data(packet(-number, SUPERSEDED, flags=14))
            node.take(link)
            due = node.peer.next_deadline()
            assert due is not None
            node.advance(due)
            asked.append(due - now)
            now = due
            (again,) = packets(node.take(link))
            assert again == (10, number + 1, packets(packet(1, OPEN))[0][2])
        pauses[node.peer.me] = asked
    first, second = (pauses[name] for name in sorted(pauses))
    assert first == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 320.0, 320.0]
    assert second == [2 * pause for pause in first]


def test_nobody_is_asked_as_long_as_there_is_a_session() -> None:
    alice, bob = pair()
    connect(alice, bob)
    run(alice, bob)
    connect(alice, bob)
    run(alice, bob)
    pass_time(alice, bob, now=299.0)
    assert [len(node.told(SessionOpened)) for node in (alice, bob)] == [2, 2]


def test_a_server_does_not_ask_unless_it_is_told_to() -> None:
    for asks in (False, True):
        alice = Node("alice", settings=Settings(asks_as_server=asks))
        link = alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
        link.receive_data(packet(1, OPEN))
        alice.take(link)
        link.receive_data(packet(1, SUPERSEDED, flags=14))
        alice.take(link)
        alice.advance(20.0)
        assert (OPEN in alice.take(link)) is asks


class World:
    """Two peers, lines of all lengths between them, and no patience: both dial at once."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.nodes = pair(asks_as_server=self.rng.random() < 0.5)
        self.now = 0.0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ways: dict[PeerLink, tuple[PeerLink, float]] = {}

    def dial_at_random(self) -> None:
        self.dial(*self.rng.sample(self.nodes, 2), self.rng.choice([0.01, 0.1, 1.0, 8.0]))

    def dial(self, client: Node, server: Node, delay_s: float) -> None:
        ends = connect(client, server)
        for end, other in (ends, ends[::-1]):
            self._ways[end] = other, delay_s
        for node in self.nodes:
            node.ways.clear()  # lines carry their bytes

    def lose(self) -> None:
        if len(self._ways) > 2:
            end = self.rng.choice(list(self._ways))
            other, _ = self._ways.pop(end)
            del self._ways[other]
            end.receive_eof()
            other.receive_eof()

    def settle(self) -> None:
        for node in self.nodes:
            node.peer.advance(self.now)
            node.drain()
            node.sent.clear()

    def live(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            self.carry()
            times = [due for node in self.nodes if (due := node.peer.next_deadline()) is not None]
            times += [due for due, _, _ in self._due[:1]]
            self.now = min([end, *times])
            if self.now == end:
                self.carry()
                return
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()

    def carry(self) -> None:
        for node in self.nodes:
            node.carry = self._take  # type: ignore[method-assign]
        self.settle()

    def _take(self, link: PeerLink) -> bool:
        data = link.data_to_send()
        if data and link in self._ways:
            other, delay_s = self._ways[link]
            arrive = partial(self._arrive, link, other, data)
            heapq.heappush(self._due, (self.now + delay_s, next(self._order), arrive))
        return bool(data)

    def _arrive(self, link: PeerLink, other: PeerLink, data: bytes) -> None:
        if link in self._ways:
            other.receive_data(data)


def comes_and_goes(seed: int) -> World:
    """A time in which links come and go, and at least one stays."""
    world = World(seed)
    world.dial_at_random()
    for _ in range(world.rng.randrange(12)):
        world.rng.choice([world.dial_at_random, world.dial_at_random, world.lose])()
        world.live(world.rng.choice([0.0, 0.05, 1.0, 30.0]))
    return world


def crosses(seed: int) -> World:
    """Both dial at once, over lines of equal length."""
    world = World(seed)
    for nodes in (world.nodes, world.nodes[::-1]):
        world.dial(*nodes, 8.0)
    return world


def exchanges(world: World, seconds: float = 2_000.0) -> bool:
    """Whether two peers have the same in the end, and a session that stays."""
    for node in world.nodes:
        node.peer.publish(POST)
    world.live(seconds)
    ended = [len(node.told(SessionEnded)) for node in world.nodes]
    world.live(seconds)
    if ended != [len(node.told(SessionEnded)) for node in world.nodes]:
        return False
    first, second = (node.peer.clock for node in world.nodes)
    return first == second == {node.peer.me: 1 for node in world.nodes}


@pytest.mark.parametrize("seed", WORLDS)
def test_links_come_and_go(seed: int) -> None:
    assert exchanges(comes_and_goes(seed))


def test_long_lines_that_cross() -> None:
    assert exchanges(crosses(0), 100.0)


def test_canary_sessions_that_are_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkExchange, "pause_s", None)
    assert not exchanges(crosses(0), 100.0)


def test_canary_both_ask_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then they go on as they began, for ever."""
    pause_s = LinkExchange.pause_s.fget
    assert pause_s is not None
    monkeypatch.setattr(LinkExchange, "pause_s", property(lambda self: pause_s(self) and 5.0))
    assert not exchanges(crosses(0), 100.0)
