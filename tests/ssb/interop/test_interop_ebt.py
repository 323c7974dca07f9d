"""Epidemic Broadcast Trees with peers on Node.js: whole peers on both sides."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from interop_support import INTEROP, NETWORK, JsPeer, all_of, ask, feed_of, key_of, posts, until
from our_peer import OurPeer

from culm.machine import Ticket
from culm.ssb.ebt import (
    TURNS,
    AppendMessages,
    EndReason,
    FeedExtended,
    FeedForked,
    Message,
    SessionEnded,
    SessionOpened,
)
from culm.ssb.messages import ClassicMessage, create_message, read_message
from culm.ssb.muxrpc import CallType
from culm.ssb.peer import (
    ExchangeInput,
    FellBack,
    OwnFeedConfirmed,
    PeerConnected,
    PeerDisconnected,
    PeerLink,
)
from culm.ssb.store import MemoryStore

pytestmark = INTEROP

StartPeer = Callable[..., JsPeer]
StartOurs = Callable[..., OurPeer]


@pytest.fixture
def ours() -> Iterator[StartOurs]:
    """``ours(name)`` makes a peer of ours, which listens."""
    started: list[OurPeer] = []

    def start(name: str = "culm", **options: Any) -> OurPeer:
        started.append(OurPeer(key_of(name), network=NETWORK, **options))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def follow_each_other(peer: OurPeer, alice: JsPeer) -> None:
    """Its own feed, too, has to be requested there."""
    peer.call(peer.peer.follow, alice.id)
    for feed in (alice.id, peer.id):
        ask(alice, "request", peer.turn, feed=feed, value=True)


def clock_of(alice: JsPeer, *turns: Callable[[], None]) -> dict[str, int]:
    found = ask(alice, "clock", *turns)
    return {feed: int(sequence) for feed, sequence in found.items()}


def until_level(peer: OurPeer, *theirs: JsPeer, **counts: int) -> None:
    """All have these numbers of messages of the named feeds."""
    wanted = {feed_of(name): count for name, count in counts.items()}

    def level(clock: Mapping[str, int]) -> bool:
        return all(clock.get(feed, 0) == count for feed, count in wanted.items())

    until(lambda: level(peer.peer.clock), peer.turn)
    for each in theirs:
        until(lambda each=each: level(clock_of(each, peer.turn)), peer.turn)  # type: ignore[misc]


def told(peer: OurPeer, kind: type[Any]) -> list[Any]:
    return list(all_of(peer.events, kind))


@pytest.mark.parametrize("we_dial", [True, False])
def test_each_replicates_the_others_feed(
    js_peer: StartPeer, ours: StartOurs, we_dial: bool
) -> None:
    alice, peer = js_peer("alice"), ours()
    keys = ask(alice, "publish", contents=posts(40))
    published = peer.publish(*posts(25))
    follow_each_other(peer, alice)
    if we_dial:
        peer.dial(alice)
    else:
        alice.begin("dial", port=peer.port, peer=peer.id)
    until_level(peer, alice, alice=40, culm=25)
    stored = [read_message(data) for data in peer.store.messages(alice.id)]
    assert [message.id for message in stored] == keys
    there = ask(alice, "messages", peer.turn, feed=peer.id)
    there.sort(key=lambda each: each["value"]["sequence"])  # those of one millisecond are not
    assert [each["key"] for each in there] == [message.id for message in published]
    # Live, both ways.
    peer.publish(*posts(3, "live"))
    ask(alice, "publish", peer.turn, contents=posts(2, "live"))
    until_level(peer, alice, alice=42, culm=28)
    assert len(told(peer, SessionOpened)) == 1
    assert told(peer, SessionEnded) == []


def test_what_has_not_changed_is_not_told_in_the_next_session(
    js_peer: StartPeer, ours: StartOurs
) -> None:
    alice, peer = js_peer("alice"), ours()
    ask(alice, "publish", contents=posts(4))
    peer.publish(*posts(3))
    follow_each_other(peer, alice)
    link = peer.dial(alice)
    until_level(peer, alice, alice=4, culm=3)
    ask(alice, "status", peer.turn, feed=peer.id)

    def again() -> list[Mapping[str, int]]:
        """Disconnect, connect; the peer's first notes."""
        nonlocal link
        peer.call(link.close)
        until(lambda: link.closed, peer.turn)
        peer.notes.clear()
        link = peer.dial(alice)
        until(lambda: bool(peer.notes), peer.turn)
        return list(peer.notes)

    assert set(again()[0]) <= {alice.id}  # the peer has not heard of our present messages
    assert again()[0] == {}
    peer.publish(*posts(1, "one more"))
    until_level(peer, alice, culm=4)
    ask(alice, "publish", peer.turn, contents=posts(2, "two more"))
    until_level(peer, alice, alice=6)
    again()
    ask(alice, "publish", peer.turn, contents=posts(1, "the last"))
    until_level(peer, alice, alice=7, culm=4)


def test_who_is_blocked_gets_nothing(js_peer: StartPeer, ours: StartOurs) -> None:
    """Dave blocks Alice: she gets our feed and not his."""
    alice, peer = js_peer("alice"), ours(store=store_of("dave", 5))
    dave = feed_of("dave")
    peer.publish(*posts(3))
    peer.call(peer.peer.follow, dave)
    peer.call(peer.peer.block, dave, alice.id)
    for feed in (peer.id, dave):
        ask(alice, "request", peer.turn, feed=feed, value=True)
    peer.dial(alice)
    until_level(peer, alice, culm=3)
    peer.call(peer.peer.block, dave, alice.id, False)
    until_level(peer, alice, dave=5)  # without the block it would have come
    peer.call(peer.peer.block, peer.id, alice.id)
    until(lambda: bool(told(peer, PeerDisconnected)), peer.turn)
    assert told(peer, SessionEnded)[0].reason is EndReason.BLOCKED
    assert alice.begin("dial", port=peer.port, peer=peer.id)
    until(lambda: len(told(peer, PeerDisconnected)) == 2, peer.turn)
    assert len(told(peer, PeerConnected)) == 1


def test_whom_it_blocks_gets_nothing(js_peer: StartPeer, ours: StartOurs) -> None:
    alice, peer = js_peer("alice"), ours()
    bob = js_peer("bob")
    for each in (alice, bob):
        ask(each, "publish", contents=posts(3))
        follow_each_other(peer, each)
    ask(alice, "block", **{"from": alice.id, "to": peer.id, "value": True})
    peer.dial(alice)
    peer.dial(bob)
    until_level(peer, bob, bob=3)
    assert peer.peer.clock[alice.id] == 0


def test_unknown_methods_leave_the_session_as_it_is(js_peer: StartPeer, ours: StartOurs) -> None:
    alice, peer = js_peer("alice"), ours()
    follow_each_other(peer, alice)
    alice.begin("dial", port=peer.port, peer=peer.id)
    until(lambda: bool(told(peer, SessionOpened)), peer.turn)
    call = alice.begin("remote", peer=peer.id, type="async", name=["ebt", "clock"], args=[{}])
    until(lambda: alice.is_done(call), peer.turn)
    with pytest.raises(RuntimeError, match="method:ebt,clock is not in list of allowed methods"):
        alice.result(call)
    peer.call(peer.peer.links[0].rpc.make_call, ["foo", "bar"], CallType.DUPLEX)
    peer.call(peer.peer.links[0].rpc.make_call, ["foo"], CallType.ASYNC)
    peer.publish(*posts(2))
    ask(alice, "publish", peer.turn, contents=posts(1))
    until_level(peer, alice, alice=1, culm=2)
    assert told(peer, SessionEnded) == []


def test_either_side_closes(js_peer: StartPeer, ours: StartOurs) -> None:
    alice, peer = js_peer("alice"), ours()
    follow_each_other(peer, alice)
    link = peer.dial(alice)
    until(lambda: bool(told(peer, SessionOpened)), peer.turn)
    peer.call(link.close)
    until(lambda: alice.happened("disconnected"), peer.turn)
    until(lambda: link.closed, peer.turn)
    assert told(peer, PeerDisconnected)[0].error is None
    alice.begin("dial", port=peer.port, peer=peer.id)
    until(lambda: len(told(peer, SessionOpened)) == 2, peer.turn)
    alice.begin("hang_up", peer=peer.id)
    until(lambda: len(told(peer, PeerDisconnected)) == 2, peer.turn)
    assert told(peer, PeerDisconnected)[1].error is None
    assert told(peer, FellBack) == []


def test_a_peer_that_is_killed_in_the_middle(js_peer: StartPeer, ours: StartOurs) -> None:
    """First theirs, then ours: received messages are not asked for again, and the rest comes."""
    alice, peer = js_peer("alice"), ours()
    ask(alice, "publish", contents=posts(2000))
    follow_each_other(peer, alice)
    peer.dial(alice)
    until(lambda: peer.peer.clock[alice.id] > 0, peer.turn)
    alice.kill()
    until(lambda: bool(told(peer, PeerDisconnected)), peer.turn)
    had = peer.peer.clock[alice.id]
    alice = js_peer("alice", port=alice.port)
    follow_each_other(peer, alice)
    peer.dial(alice)
    until(lambda: peer.peer.clock[alice.id] > had or had == 2000, peer.turn)
    peer.stop()
    again = ours(store=peer.store)
    had = again.peer.clock[alice.id]
    follow_each_other(again, alice)
    again.publish(*posts(2))
    again.dial(alice)
    until_level(again, alice, alice=2000, culm=2)
    came = [event.first for event in told(again, FeedExtended) if event.feed == alice.id]
    assert came[:1] in ([], [had + 1])


def hang_up(peer: OurPeer, link: PeerLink) -> None:
    peer.call(link.close)
    until(lambda: link.closed, peer.turn)


def sessions_until(peer: OurPeer, alice: JsPeer, is_level: Callable[[], bool]) -> int:
    """Connect again and again, for a second each; the number of connections."""
    for number in range(1, TURNS + 1):
        link = peer.dial(alice)
        for _ in range(100):
            if is_level():
                return number
            peer.turn()
        hang_up(peer, link)
    raise AssertionError("they do not become level")


def test_a_folder_from_a_backup_catches_up(js_peer: StartPeer, ours: StartOurs) -> None:
    """With the clocks of that time; its own feed comes back before it publishes."""
    alice, peer = js_peer("alice"), ours()
    ask(alice, "publish", contents=posts(4))
    peer.publish(*posts(3))
    follow_each_other(peer, alice)
    link = peer.dial(alice)
    until_level(peer, alice, alice=4, culm=3)
    hang_up(peer, link)
    backup = deepcopy(peer.store)
    for count in (1, 2):  # the second time, we have told it our position
        link = peer.dial(alice)
        ask(alice, "publish", peer.turn, contents=posts(1, "since then"))
        peer.publish(*posts(1, "since then"))
        until_level(peer, alice, alice=4 + count, culm=3 + count)
        hang_up(peer, link)
    peer.stop()
    again = ours(store=backup, restored=True)
    again.call(again.peer.follow, alice.id)
    sessions_until(again, alice, lambda: again.peer.clock == {again.id: 5, alice.id: 6})
    until(lambda: not again.peer.restored, again.turn)
    assert told(again, OwnFeedConfirmed) == [OwnFeedConfirmed(last=5)]
    again.publish(*posts(1, "after all"))
    until_level(again, alice, culm=6)
    assert told(again, FeedForked) == []


def test_a_feed_that_was_followed_late_survives_a_kill(js_peer: StartPeer, ours: StartOurs) -> None:
    """It remembers that we did not want its feed, and was killed before it could learn better."""
    alice, peer = js_peer("alice"), ours()
    ask(alice, "publish", contents=posts(2))
    for feed in (alice.id, peer.id):
        ask(alice, "request", peer.turn, feed=feed, value=True)
    link = peer.dial(alice)
    until(lambda: any(alice.id in notes for notes in peer.notes), peer.turn)
    hang_up(peer, link)
    peer.call(peer.peer.follow, alice.id)
    peer.dial(alice)
    until_level(peer, alice=2)
    alice.kill()
    until(lambda: not peer.peer.links, peer.turn)
    alice = js_peer("alice", port=alice.port)
    for feed in (alice.id, peer.id):
        ask(alice, "request", peer.turn, feed=feed, value=True)
    ask(alice, "publish", peer.turn, contents=posts(1, "one more"))
    sessions_until(peer, alice, lambda: peer.peer.clock[alice.id] == 3)


def test_a_stalled_peer_is_replaced_by_another_one(js_peer: StartPeer, ours: StartOurs) -> None:
    """We get Bob's feed from Alice, who stops; then from Bob himself."""
    alice, bob, peer = js_peer("alice"), js_peer("bob"), ours()
    ask(bob, "publish", contents=posts(5))
    for each in (alice, bob):
        ask(each, "request", feed=bob.id, value=True)
    ask(bob, "dial", port=alice.port, peer=alice.id)
    until(lambda: clock_of(alice).get(bob.id) == 5)
    peer.call(peer.peer.follow, bob.id)
    peer.dial(alice)
    until_level(peer, bob=5)
    peer.dial(bob)
    until(lambda: len(told(peer, SessionOpened)) == 2, peer.turn)
    assert peer.peer.source(bob.id) == alice.id
    alice.process.send_signal(signal.SIGSTOP)
    try:
        ask(bob, "publish", peer.turn, contents=posts(3, "more"))
        until_level(peer, bob=8)
        assert peer.peer.source(bob.id) == bob.id
    finally:
        alice.process.send_signal(signal.SIGCONT)
    ask(bob, "publish", peer.turn, contents=posts(1, "still more"))
    until_level(peer, alice, bob=9)


def test_a_peer_without_ebt_is_asked_for_its_feed(js_peer: StartPeer, ours: StartOurs) -> None:
    """Scenario 1."""
    alice, peer = js_peer("alice", ebt=False, history=True), ours()
    keys = ask(alice, "publish", contents=posts(30))
    peer.call(peer.peer.follow, alice.id)
    peer.dial(alice)
    until_level(peer, alice=30)
    assert [event.reason for event in told(peer, FellBack)] == [ExchangeInput.SESSION_REFUSED]
    stored = [read_message(data) for data in peer.store.messages(alice.id)]
    assert [message.id for message in stored] == keys


def store_of(name: str, count: int) -> MemoryStore:
    """A store with the first messages of that author."""
    made: list[ClassicMessage] = []
    for content in posts(count):
        last = made[-1].place if made else None
        made.append(create_message(key_of(name), content=content, timestamp=1, last=last))
    messages = tuple(Message(each.author, each.sequence, each.id, each.data) for each in made)
    store = MemoryStore()
    store.perform(AppendMessages(ticket=Ticket(1), messages=messages))
    return store
