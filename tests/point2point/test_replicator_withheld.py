"""A payload that has begun here, and that the peer does not have either: all comes to rest."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from replicator_support import FETCH, KEEP, Node, World, key_of, news_of, same, store_of

from culm.bamboo.forks import ForkProof
from culm.bamboo.records import NewEntry
from culm.point2point.replication import EntryStored, Interest, Want

NEWS = news_of((1000, 10))
LOG = key_of(NEWS)
FORK = ForkProof(NEWS[1].entry, news_of((1000, 10), branch=b"other", fork_at=2)[1].entry)


def begun(world: World, interest: Interest = KEEP, *, left: int = 0) -> Node:
    """A node that has entry 1, and the beginning of its payload if some is `left`."""
    node = world.node(interest=interest)
    data = NEWS[0].payload or b""
    node.store.append(LOG, [NewEntry(NEWS[0].entry, data[:100], staged=True)])
    if not left:
        node.store.discard_payload(LOG, 1)
    return node


def without(world: World) -> Node:
    """A node that has entry 1, without its payload."""
    node = world.node(store_of(NEWS[:1]))
    node.store.discard_payload(LOG, 1)
    return node


def fork_ours(ours: Node, theirs: Node) -> None:
    ours.store.add_fork(LOG, FORK)


def fork_theirs(ours: Node, theirs: Node) -> None:
    theirs.store.add_fork(LOG, FORK)


def fork_both(ours: Node, theirs: Node) -> None:
    fork_ours(ours, theirs)
    fork_theirs(ours, theirs)


def no_fork(ours: Node, theirs: Node) -> None:
    pass


@pytest.mark.parametrize("interest", [KEEP, FETCH], ids=["live", "fetch"])
@pytest.mark.parametrize("left", [0, 100])
@pytest.mark.parametrize("fork", [no_fork, fork_ours, fork_theirs, fork_both])
def test_what_the_peer_lacks_is_asked_of_it_once(
    interest: Interest, left: int, fork: Callable[[Node, Node], None]
) -> None:
    world = World(steps_max=300)
    ours, theirs = begun(world, interest, left=left), without(world)
    fork(ours, theirs)
    world.connect(ours, theirs)
    world.wait(60)
    assert not ours.end.of(EntryStored)  # nothing has come
    assert ours.end.settled


def test_who_is_told_of_changes_does_not_ask_again() -> None:
    """Two peers over one store, and neither has it: they do not wake each other for ever."""
    world = World(steps_max=600)
    ours = begun(world, FETCH)
    for _ in range(2):
        world.connect(ours, without(world))
    world.wait(60)
    for end in ours.ends:
        end.machine.stored(LOG)
        end.drain()
    sent = [end.sent_size for end in ours.ends]
    world.run()
    assert [end.sent_size for end in ours.ends] == sent


def test_what_an_author_has_left_behind_half_there_is_fetched_if_asked_for() -> None:
    """On its own a replicator checks only the last entry."""
    world = World(steps_max=600)
    ours, theirs = begun(world, left=100), world.node(store_of(NEWS[:1]))
    ours.store.append(LOG, NEWS[1:])
    world.connect(ours, theirs)
    world.wait(5)
    stored = ours.store.entry(LOG, 1)
    assert stored is not None
    assert stored.payload_stored == 100
    ours.end.machine.replicate(LOG, Want(first=1, last=1, payload_only=True))
    ours.end.drain()
    world.wait(5)
    stored = ours.store.entry(LOG, 1)
    assert stored is not None
    assert stored.payload_complete


def test_whoever_wants_the_log_asks_again() -> None:
    world = World(steps_max=600)
    ours, theirs = begun(world, FETCH), without(world)
    world.connect(ours, theirs)
    world.wait(5)
    theirs.store.append(LOG, [NEWS[0]])
    theirs.tell(LOG, None)
    ours.end.machine.replicate(LOG)
    ours.end.drain()
    world.wait(5)
    stored = ours.store.entry(LOG, 1)
    assert stored is not None
    assert stored.payload_complete


@pytest.mark.parametrize("relayed", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_an_entry_does_not_wait_for_a_payload_that_nobody_has(relayed: bool, again: bool) -> None:
    """An author that has lost it learns of its entry; if the payload is found, it comes."""
    world = World(steps_max=2000)
    sources, ours = begun(world, left=100), world.node()
    nodes = [sources, world.node(), ours] if relayed else [sources, ours]
    cables = [world.connect(one, other) for one, other in pairwise(nodes)]
    world.wait(5)
    stored = ours.store.entry(LOG, 1)
    assert stored is not None
    assert (stored.payload_stored, stored.payload_begun) == (0, True)
    if again:
        for cable in cables:
            world.cut(cable)
        for one, other in pairwise(nodes):
            world.connect(one, other)
    sources.store.write_payload(LOG, 1, 100, (NEWS[0].payload or b"")[100:])
    sources.store.finish_payload(LOG, 1)
    sources.tell(LOG, None)
    world.wait(5)
    assert same(*nodes)


def test_a_payload_that_the_peer_has_passed_over_is_not_due_when_another_begins_it() -> None:
    """Unless it is asked for again, when it is fetched although later entries have come."""
    world = World(steps_max=600)
    ours, theirs = world.node(), without(world)
    world.connect(ours, theirs)
    world.wait(5)
    ours.store.write_payload(LOG, 1, 0, (NEWS[0].payload or b"")[:100])
    ours.tell(LOG, None)
    world.wait(5)
    assert ours.end.settled
    theirs.store.append(LOG, [NEWS[0]])
    theirs.tell(LOG, None)
    ours.end.machine.replicate(LOG)
    ours.end.drain()
    world.wait(5)
    assert ours.end.settled
    assert same(ours, theirs)
