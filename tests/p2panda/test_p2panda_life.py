"""After an attack, and beside a stuck peer, everything goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from p2panda_faults import BLAMED, left_out
from p2panda_nodes import OTHER, SCHEMA, Node, connect
from p2panda_victim import Victim
from test_p2panda_faults import VALID
from test_p2panda_unsent import ATTACKS

from culm.machine import Closed
from culm.p2panda import Mode, OperationLeftOut
from culm.p2panda.messages import (
    EmptySet,
    Have,
    Message,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("mode", Mode)
def test_after_an_attack_an_honest_peer_gets_everything_in_one_session(
    attack: Callable[[], Iterator[Message]], mode: Mode
):
    victim = Victim(documents=5)
    for each in islice(attack(), 300):
        if victim.machine.read_size():
            victim.tell(each)
    other = Node(2)
    other.create(name="theirs")
    connect(other, victim.node, mode=mode)
    assert other.documents() == victim.node.documents()
    assert len(other.documents()) >= 6


@pytest.mark.parametrize("mode", [0, 1])
def test_what_was_left_out_or_refused_holds_up_nothing_of_the_next_session(mode: int):
    """On the same connection."""
    victim = Victim()
    bad = [each.entry for each in left_out().values()]
    bad += [entry for entry, _ in BLAMED.values()]
    for session_id, each in enumerate(bad):
        victim.tell(SyncRequest(session_id, 1, (SCHEMA,)))
        victim.tell(SendEntry(session_id, each.entry, each.operation))
        victim.tell(SyncDone(session_id, False))
    last = len(bad)
    victim.tell(SyncRequest(last, mode, (SCHEMA,)))
    if mode == 0:
        victim.tell(Have(last, ()))
    events = victim.tell(*(SendEntry(last, each.entry, each.operation) for each in VALID))
    assert {each.entry for each in VALID} <= victim.entries()
    assert not [each for each in events if isinstance(each, OperationLeftOut | Closed)]


@pytest.mark.parametrize("mode", [0, 1])
def test_a_session_in_which_the_peer_says_nothing_more_holds_up_no_other(mode: int):
    stories = []
    for stuck in (False, True):
        victim = Victim(batch_count_max=1)
        node = victim.node
        for number in range(20):
            node.create(name=f"{number}")
            node.author.create(OTHER, {"n": number})
        victim.machine.announce((SCHEMA, OTHER), timestamp=2)
        victim.run()
        if stuck:
            victim.tell(SyncRequest(0, mode, (SCHEMA,)))
        victim.said.clear()
        victim.tell(SyncRequest(1, mode, (OTHER,)))
        victim.tell(Have(1, ()) if mode == 0 else Reconcile(1, EmptySet(False)))
        stories.append([each for each in victim.said if getattr(each, "session_id", 0) == 1])
    assert stories[0] == stories[1]
    assert len([each for each in stories[1] if isinstance(each, SendEntry)]) == 20
