"""Peers that hold former numbers of ours: a synchronize message names them.

``CULM_OXEN_NUMBERS_SEEDS`` sets the number of stories of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
from oxen_network import WatchedNetwork
from oxen_simulation import EPOCH, LIMITS, SUSPICION
from oxen_support import ME, Table

import effort
from culm.oxen import DropReason, LeaveReason, MessageReceived, Node, PeerLeft, PeerState
from culm.oxen.incoming import RESTART_GAP, START_MAX
from culm.oxen.messages import (
    SEQUENCE_MAX,
    Broadcast,
    MessageAck,
    MessageData,
    OneToOne,
    Synchronize,
    read_message,
)
from culm.oxen.outgoing import Outgoing
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions

P, Q = b"P", b"Q"
ONE, OTHER = b"N01", b"N02"
SETBACK_S = 1.0
STORIES = effort.seeds("OXEN_NUMBERS", usual=60, long=5_000)

BOUND_S = 5.0
"""Within this many seconds of the last fault both have joined, and hear each other."""


def our_start(table: Table) -> Synchronize:
    """The last synchronize message sent."""
    return [each for each in table.messages(P) if isinstance(each, Synchronize)][-1]


def asked() -> tuple[Table, int]:
    """A node that `P` has asked for help, and its one-to-one number."""
    table = Table()
    table.tell_message(P, Synchronize(0, 5), id=1)
    start = our_start(table)
    assert start.known == 5
    return table, start.one


@pytest.mark.parametrize("known", [2**61, START_MAX - 1])
def test_how_far_we_go_on_above_a_former_number_is_up_to_chance(known: int) -> None:
    """Or lives that are told of the same number have the same, and each takes what was sent to or
    by another; and whoever makes one up knows ours."""
    numbers: list[int] = []
    for seed in range(20):
        table = Table(seed=seed)
        table.tell_message(P, Synchronize(0, 5, known=known))
        numbers.append(our_start(table).one)
    numbers.sort()
    assert all(later - earlier >= RESTART_GAP for earlier, later in pairwise([known, *numbers]))
    assert len({number % RESTART_GAP for number in numbers}) == len(numbers)


def test_only_one_that_holds_our_number_is_acknowledged() -> None:
    table, ours = asked()
    for known, acknowledged in ((ours - 2**30, []), (ours, [3]), (0, [4])):
        id = acknowledged[0] if acknowledged else 2
        table.tell_message(P, Synchronize(0, 5, known=known), id=id)
        assert table.acknowledged() == acknowledged
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING


def test_the_numbers_of_one_that_holds_others_are_taken_all_the_same() -> None:
    """Otherwise two that both go on with new numbers would refuse each other for ever."""
    table, ours = asked()
    table.tell_message(P, Synchronize(0, 2**40, known=ours - 2**30), id=2)
    start = our_start(table)
    assert (start.one, start.known) == (ours, 2**40)


def test_we_go_on_above_a_greater_number_that_a_peer_holds() -> None:
    table, ours = asked()
    held = ours + 2**40
    table.tell_message(P, Synchronize(0, 5, known=held), id=2)
    assert our_start(table).one >= held + RESTART_GAP


@pytest.mark.parametrize("known", [START_MAX, SEQUENCE_MAX])
def test_a_number_that_was_never_ours_is_not_acknowledged_and_nothing_goes_on_above_it(
    known: int,
) -> None:
    table, ours = asked()
    table.tell_message(P, Synchronize(0, 5, known=known), id=2)
    assert table.said() == []
    table.tell_message(P, Synchronize(0, 5, known=ours), id=3)
    assert table.acknowledged() == [3]


@pytest.mark.parametrize("distance", [-(2**30), 2**40])
def test_in_an_association_it_is_a_claim(distance: int) -> None:
    table = Table()
    ours = table.join(P, one=5).one
    table.events()
    message = Synchronize(0, 5, known=ours + distance)
    table.tell_message(P, message, id=9)
    assert table.messages(P) == [OneToOne(ours, b"")]
    assert table.node.dropped[DropReason.STALE_SYNCHRONIZE] == 1
    table.wait(8.0, alive=(P,))
    table.said()
    table.tell_message(P, message, id=9)
    assert table.events() == [PeerLeft(peer=P, reason=LeaveReason.RESTARTED)]
    sent = table.said(P)
    assert not any(isinstance(parcel.body, MessageAck) for parcel in sent)
    starts = [
        read_message(parcel.body.d) for parcel in sent if isinstance(parcel.body, MessageData)
    ]
    assert isinstance(starts[-1], Synchronize)
    assert starts[-1].one >= max(ours, message.known) + RESTART_GAP


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_new_life_that_names_our_number_at_once_hears_which_messages_are_over(
    acknowledged: bool,
) -> None:
    """It would wait without end for messages that its former life has acknowledged.

    The former life never named our number, so it may have been an invention, and is not asked.
    """
    table = Table()
    ours = table.join(P, broadcast=7, one=5)
    table.node.broadcast_in_order(b"x")
    table.node.send_in_order(P, b"y")
    table.drain()
    if acknowledged:
        for body in table.bodies(MessageData, P):
            table.tell(P, MessageAck(ME, P, body.id))
    table.said()
    table.tell_message(P, Synchronize(2**40, 2**41, known=ours.one))
    start = our_start(table)
    assert start.known == 2**41
    assert start.one == ours.one + acknowledged
    assert start.broadcast == ours.broadcast + acknowledged


def test_a_new_life_is_never_sent_back_before_what_was_left_out() -> None:
    """Its streams would go back, too, and messages that had come would be forgotten."""
    table = Table()
    table.join(Q)
    table.tell_message(P, Synchronize(7, 5))
    table.node.broadcast_in_order(b"not for P")
    ours = table.answer(P, P)
    left_out = our_start(table)
    assert left_out.broadcast == ours.broadcast + 1
    table.node.broadcast_in_order(b"for P")
    table.drain()
    table.said()
    table.tell_message(P, Synchronize(2**40, 2**41, known=ours.one))
    assert our_start(table)._replace(known=5) == left_out
    # Both are still under way, with the new number.
    table.wait(3.0, alive=(P, Q))
    again = table.messages(P)
    assert Broadcast(ours.broadcast + 2, b"for P") in again
    named = {(each.broadcast, each.known) for each in again if isinstance(each, Synchronize)}
    assert named == {(left_out.broadcast, 2**41)}


LIVES = [Synchronize(0, 5), Synchronize(2**40, 2**41)]


@pytest.mark.parametrize(("former", "present"), [LIVES, LIVES[::-1]], ids=["later", "set back"])
def test_what_a_former_life_has_said_is_repeated_in_vain(
    former: Synchronize, present: Synchronize
) -> None:
    """Both lives have named our number, so it must not be the same for both.

    Our streams would go back with the former one, and then wait without end for messages that were
    skipped or acknowledged.
    """
    table = Table()
    table.tell_message(P, former)
    ours = our_start(table).one
    old = former._replace(known=ours)
    table.tell_message(P, old, id=101)
    assert table.acknowledged() == [101]
    table.tell_message(P, present._replace(known=ours), id=102)
    table.tell_message(P, present._replace(known=ours), id=103)
    start = our_start(table)
    assert start.one >= ours + RESTART_GAP
    assert start.known == present.one
    table.tell_message(P, present._replace(known=start.one), id=104)
    left_out = present._replace(broadcast=present.broadcast + 1, known=start.one)
    table.tell_message(P, left_out, id=105)
    assert table.acknowledged() == [104, 105]
    table.tell_message(P, old, id=106)
    assert table.acknowledged() == []
    table.wait(1.0)
    table.answer(P, P)
    table.events()
    table.tell_message(P, Broadcast(present.broadcast + 2, b"next"), id=107)
    assert [event.data for event in table.events() if isinstance(event, MessageReceived)] == [
        b"next"
    ]


class Pair:
    """Two nodes that have joined; the clock of a second life is set back."""

    def __init__(self, seed: int) -> None:
        self.network = WatchedNetwork(seed=seed)
        self.end = 0.0  # of all faults
        self.rng = self.network.random("story")
        self.cluster = Cluster(self.network)
        self.one, self.other = (self.cluster.add(sid, self._build) for sid in (ONE, OTHER))
        self.network.set_conditions(Conditions(delay_min=0.001, delay_max=0.02))
        self.one.call("start")
        self.ask(self.other, ONE)
        assert self.run(3.0, self.have_joined)

    def _build(self, host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = self.network.random(f"{host.address!r} {host.incarnation}")
        epoch = EPOCH - (SETBACK_S if host.incarnation > 1 else 0.0)
        return Node(me=host.address, rng=rng, epoch=epoch, limits=LIMITS, timing=SUSPICION)

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        return self.network.run(self.network.clock.now + seconds, done=done)

    def ask(self, host: Host, sid: bytes) -> None:
        self.network.introduce(host.address, sid)
        host.call("join", sid=sid)

    def state(self, host: Host, sid: bytes) -> PeerState | None:
        view = host.machine.peers().get(sid)
        return None if view is None else view.state

    def have_joined(self) -> bool:
        pairs = (self.one, OTHER), (self.other, ONE)
        return all(self.state(host, sid) is PeerState.JOINED for host, sid in pairs)

    def hear(self) -> bool:
        """Whether both have got the last word of the other."""
        return all(
            any(
                isinstance(event, MessageReceived) for time, event in host.events if time > self.end
            )
            for host in (self.one, self.other)
        )

    def suffer(self) -> None:
        """Half of all datagrams are lost, for a while or not at all, and none after that."""
        loss = self.rng.choice([0.0, 0.3, 0.5])
        self.network.set_conditions(Conditions(loss=loss, delay_min=0.001, delay_max=0.02))
        self.run(self.rng.choice([0.1, 0.5, 1.0, 2.0]))
        self.network.set_conditions(Conditions(delay_min=0.001, delay_max=0.02))

    def check(self) -> None:
        """Both join, and stay joined, and messages from then on arrive."""
        self.run(BOUND_S)
        assert self.have_joined(), (self.state(self.one, OTHER), self.state(self.other, ONE))
        self.end = self.network.clock.now
        self.one.call("send_in_order", to=OTHER, data=b"to the other")
        self.other.call("send_in_order", to=ONE, data=b"to the one")
        assert self.run(BOUND_S, self.hear)


@pytest.mark.parametrize("part", range(2))
def test_one_that_is_taken_back_has_forgotten_us(part: int) -> None:
    for seed in STORIES[part::2]:
        pair = Pair(seed)
        with pair.network:
            pair.network.cut(ONE, OTHER)
            pair.run(8.0)
            assert pair.state(pair.one, OTHER) is PeerState.GIVEN_UP
            pair.other.call("forget", sid=ONE)
            pair.network.heal()
            pair.ask(pair.other, ONE)
            pair.suffer()
            pair.check()


@pytest.mark.parametrize("part", range(2))
def test_a_former_life_with_greater_numbers_is_repeated(part: int) -> None:
    for seed in STORIES[part::2]:
        pair = Pair(seed)
        with pair.network:
            said = [start for start in pair.network.starts if start[0] == OTHER]
            pair.other.crash()
            pair.one.call("forget", sid=OTHER)
            pair.other.start()
            pair.ask(pair.other, ONE)
            for _ in range(pair.rng.randrange(1, 8)):
                start = pair.rng.choice(said)
                delay = pair.rng.random() * pair.rng.choice([0.05, 1.0])
                pair.network.timetable.after(delay, partial(pair.network.replay, start))
            pair.suffer()
            pair.check()


AHEAD = [Synchronize(90, 5), Synchronize(7, 90), Synchronize(90, 90)]


@pytest.mark.parametrize("wrong", ["none", "below", "above"])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("ahead", AHEAD)
def test_nothing_is_skipped_for_one_that_does_not_name_our_number(
    ahead: Synchronize, joined: bool, wrong: str
) -> None:
    """Skipped messages would be acknowledged as duplicates, and never delivered."""
    table = Table()
    table.tell_message(P, Synchronize(7, 5))
    start = table.answer(P, P) if joined else our_start(table)
    ours = start.one
    table.said()
    known = {"none": 0, "below": ours - 1, "above": ours + 1}[wrong]
    table.tell_message(P, ahead._replace(known=known), id=99)
    # If these were its numbers, and the first ones forged, it would wait for one that names them.
    named = [start._replace(known=ahead.one)] if ahead.one != start.known else []
    assert table.messages(P) == ([OneToOne(ours, b"")] if joined else named)
    assert table.node.dropped[DropReason.STALE_SYNCHRONIZE] == 1
    table.tell_message(P, ahead._replace(known=ours), id=98)
    assert table.acknowledged() == [98]


def test_what_one_says_that_does_not_name_our_number_is_still_delivered() -> None:
    table = Table()
    table.join(P, broadcast=7, one=5)
    table.events()
    for each in (*AHEAD, OneToOne(6, b"one"), Broadcast(8, b"all")):
        table.tell_message(P, each)
    got = [event.data for event in table.events() if isinstance(event, MessageReceived)]
    assert got == [b"one", b"all"]


def test_canary_whoever_names_a_number_of_ours_is_said_to_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Outgoing, "holds", lambda self, known: True)
    with pytest.raises(AssertionError):
        test_one_that_is_taken_back_has_forgotten_us(0)
