"""A folder restored from a backup, and a key that others have, too.

Nothing is published before the length of our own feed is known: a message in the place of one that
others have would fork it for ever.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
from peer_support import Node, connect, feed_of, packet, run

from culm.machine import LocalProtocolError
from culm.ssb.ebt import FeedForked, SessionRole
from culm.ssb.peer import ErrorCode, OwnFeedConfirmed, Peer
from culm.ssb.store import MemoryStore

POST = {"type": "post", "text": "hello"}
OPEN = b'{"name":["ebt","replicate"],"args":[{"version":3,"format":"classic"}],"type":"duplex"}'


def write(node: Node, count: int, text: str = "hello") -> None:
    for _ in range(count):
        node.peer.publish({"type": "post", "text": text})
    run(node)


def friends(backup: MemoryStore, *, follows: bool = True) -> tuple[Node, Node]:
    """Alice from her backup, and Bob, who has all her messages."""
    alice = Node("alice", store=backup, restored=True)
    alice.peer.follow(feed_of("bob"), follows)
    return alice, Node("bob", store=deepcopy(BOBS))


def _lives() -> tuple[MemoryStore, MemoryStore, MemoryStore]:
    """Alice's store after one message and after two, and Bob's after four of them."""
    alice, bob = Node("alice"), Node("bob")
    for node, other in ((alice, "bob"), (bob, "alice")):
        node.peer.follow(feed_of(other))
    write(alice, 1)
    first = deepcopy(alice.store)
    write(alice, 1)
    near, _ = connect(alice, bob)
    run(alice, bob)
    near.close()
    run(alice, bob)
    backup = deepcopy(alice.store)
    connect(alice, bob)
    write(alice, 2)
    run(alice, bob)
    assert len(bob.store.messages(feed_of("alice"))) == 4
    return first, backup, bob.store


FIRST, BACKUP, BOBS = _lives()


def refuses(peer: Peer) -> bool:
    with pytest.raises(LocalProtocolError) as caught:
        peer.publish(POST)
    return caught.value.code is ErrorCode.RESTORED


def test_publishing_waits_for_the_end_of_our_own_feed() -> None:
    alice, bob = friends(deepcopy(BACKUP))
    bob.peer.follow(alice.peer.me)
    assert alice.peer.restored
    assert refuses(alice.peer)
    connect(alice, bob)
    run(alice, bob)
    assert alice.told(OwnFeedConfirmed) == [OwnFeedConfirmed(last=4)]
    assert not alice.peer.restored
    write(alice, 1)
    run(alice, bob)
    assert bob.peer.clock[alice.peer.me] == alice.peer.clock[alice.peer.me] == 5
    assert bob.told(FeedForked) == []


def test_without_that_the_feed_is_forked() -> None:
    """The reason: by the time the other branch shows, it is too late."""
    bob = Node("bob", store=deepcopy(BOBS))
    bob.peer.follow(feed_of("alice"))
    alice = Node("alice", store=deepcopy(BACKUP))
    write(alice, 3, "another branch")
    connect(alice, bob)
    run(alice, bob)
    assert bob.told(FeedForked)


@pytest.mark.parametrize("sequence", [0, 1, 3, 2**40])
def test_strangers_prove_nothing(sequence: int) -> None:
    alice, _ = friends(deepcopy(BACKUP), follows=False)
    assert says(alice, "bob", sequence) == []
    assert refuses(alice.peer)


def says(alice: Node, name: str, sequence: int) -> list[OwnFeedConfirmed]:
    link = alice.peer.attached(feed_of(name), role=SessionRole.SERVER)
    link.receive_data(packet(1, OPEN) + packet(1, {alice.peer.me: 2 * sequence}))
    run(alice)
    return alice.told(OwnFeedConfirmed)


@pytest.mark.parametrize(("sequence", "confirmed"), [(0, 0), (1, 0), (2, 1), (3, 0)])
def test_a_friend_that_has_as_much_as_we_confirms_it(sequence: int, confirmed: int) -> None:
    alice, _ = friends(deepcopy(BACKUP))
    assert len(says(alice, "bob", sequence)) == confirmed


def test_a_friend_that_has_less_than_another_one_does_not_count() -> None:
    alice, _ = friends(deepcopy(BACKUP))
    alice.peer.follow(feed_of("carol"))
    assert says(alice, "carol", 5) == []
    assert says(alice, "bob", 2) == []


@pytest.mark.parametrize("had", [0, 1])
def test_a_friend_that_had_less_confirms_it_after_a_while(had: int) -> None:
    """Not at once: another friend may know of more."""
    alice, bob = friends(deepcopy(BACKUP))[0], Node("bob")
    bob.peer.follow(alice.peer.me)
    if had:
        old = Node("alice", store=deepcopy(FIRST))
        connect(old, bob)
        run(old, bob)
    connect(alice, bob)
    run(alice, bob)
    assert bob.peer.clock[alice.peer.me] == 2
    assert refuses(alice.peer)
    due = alice.peer.next_deadline()
    assert due is not None
    assert due == 30.0
    alice.advance(29.0)
    assert refuses(alice.peer)
    alice.advance(due)
    assert alice.told(OwnFeedConfirmed) == [OwnFeedConfirmed(last=2)]
    write(alice, 1)
    run(alice, bob)
    assert bob.peer.clock[alice.peer.me] == 3


def of_the_key_alone() -> Node:
    """Alice, whose friends are to send her everything."""
    alice = Node("alice", restored=True)
    for name in ("bob", "carol"):
        alice.peer.follow(feed_of(name))
    return alice


def test_a_friend_that_knows_nothing_of_a_feed_without_messages_does_not_confirm_it() -> None:
    alice = of_the_key_alone()
    assert says(alice, "carol", 0) == []
    assert refuses(alice.peer)
    alice.advance(20.0)
    bob = Node("bob", store=deepcopy(BOBS))
    bob.peer.follow(alice.peer.me)
    connect(alice, bob)
    run(alice, bob)
    assert alice.told(OwnFeedConfirmed) == [OwnFeedConfirmed(last=4)]
    write(alice, 1)
    run(alice, bob)
    assert bob.told(FeedForked) == []


def test_but_after_a_while_it_does() -> None:
    """No friend has anything of a new feed."""
    alice = of_the_key_alone()
    assert says(alice, "carol", 0) == []
    assert alice.peer.next_deadline() is not None
    alice.advance(30.0)
    assert alice.told(OwnFeedConfirmed) == [OwnFeedConfirmed(last=0)]


def test_meanwhile_another_friend_may_know_of_more() -> None:
    alice, bob = friends(deepcopy(BACKUP))[0], Node("bob")
    bob.peer.follow(alice.peer.me)
    connect(alice, bob)
    run(alice, bob)
    alice.peer.follow(feed_of("carol"))
    assert says(alice, "carol", 3) == []
    alice.advance(100.0)
    assert refuses(alice.peer)


def test_a_friend_that_leaves_before_has_confirmed_nothing() -> None:
    alice, bob = friends(deepcopy(BACKUP))[0], Node("bob")
    bob.peer.follow(alice.peer.me)
    near, _ = connect(alice, bob)
    run(alice, bob)
    near.close()
    run(alice, bob)
    assert alice.peer.next_deadline() is None
    alice.advance(100.0)
    assert refuses(alice.peer)


@pytest.mark.parametrize(("note", "confirmed"), [(-1, 0), (2 * 0 + 1, 1), (2 * 1 + 1, 1)])
def test_a_friend_that_stands_by_confirms_it_and_one_that_refuses_does_not(
    note: int, confirmed: int
) -> None:
    """It gets the feed from another peer, and would say if it had more."""
    alice, _ = friends(deepcopy(BACKUP))
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    link.receive_data(packet(1, OPEN) + packet(1, {alice.peer.me: note}))
    run(alice)
    assert refuses(alice.peer)
    alice.advance(30.0)
    assert len(alice.told(OwnFeedConfirmed)) == confirmed


def test_who_knows_better_may_say_so() -> None:
    alice, _ = friends(deepcopy(BACKUP))
    alice.peer.confirm()
    write(alice, 1)
    assert alice.peer.clock[alice.peer.me] == 3
    assert alice.told(OwnFeedConfirmed) == []


def test_a_copy_of_the_key_is_seen_when_the_feed_goes_on_elsewhere() -> None:
    """A host that has seen both branches stops the feed, for good."""
    first, second = Node("alice"), Node("alice")
    write(first, 1)
    carol = Node("carol")
    carol.peer.follow(feed_of("alice"))
    connect(first, carol)
    run(first, carol)
    write(second, 2, "another branch")
    connect(second, carol)
    run(second, carol)
    assert [event.feed for event in carol.told(FeedForked)] == [feed_of("alice")]
