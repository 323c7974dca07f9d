"""Forgeries in a member's name: they have no effect, or not for long."""

from __future__ import annotations

import pytest
from oxen_network import OverheardNetwork
from oxen_simulation import EPOCH, KEYS, LIMITS, TIMING
from oxen_support import ME, Table

from culm.machine import Event
from culm.oxen import (
    Delivery,
    DropReason,
    FailReason,
    LeaveReason,
    Limits,
    MessageReceived,
    Node,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    SendFailed,
    Timing,
)
from culm.oxen.messages import (
    Broadcast,
    Finalize,
    Message,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    encode_parcel,
    write_message,
)
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

P = b"P"
ONE, OTHER = b"N01", b"N02"
NEAR = [-(2**25), -1, 0, 1, 2**25]
FAR = [-(2**40), 2**40, 2**62, 2**63 - 1]

# The time of a peer that answers at once, if a message is lost three times.
PATIENCE_S = (1 + 2 + 4) * Timing().redelivery_min_s


def forge(network: Network, source: bytes, to: bytes, message: Message) -> None:
    """Send `message` in the name of `source`."""
    body = MessageData(to, source, 1, write_message(message))
    network.send(source, to, encode_parcel(Parcel(body=body)))


def pair(keys: list[bytes] | None = None, ahead_s: float = 0.0) -> Cluster:
    """Two nodes that have not started.

    ahead_s: the lead of a restarted node's clock over the others.
    """
    conditions = Conditions(delay_min=0.001, delay_max=0.02)
    network = OverheardNetwork(seed=1, conditions=conditions)
    cluster = Cluster(network)

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = network.random(f"{host.address!r} {host.incarnation}")
        epoch = EPOCH + (ahead_s if host.incarnation > 1 else 0.0)
        return Node(
            me=host.address, rng=rng, epoch=epoch, limits=LIMITS, timing=TIMING, keys=keys or []
        )

    for sid in (ONE, OTHER):
        cluster.add(sid, build)
    return cluster


def have_joined(cluster: Cluster) -> bool:
    return all(
        [view.state for view in host.machine.peers().values()] == [PeerState.JOINED]
        for host in cluster
    )


def met(cluster: Cluster) -> Cluster:
    """The same two, joined, with each having heard the other."""
    cluster[ONE].call("start")
    cluster[OTHER].call("join", sid=ONE)
    assert cluster.network.run(3.0, done=lambda: have_joined(cluster))
    cluster.network.run(cluster.network.clock.now + 1.0)
    return cluster


def numbers(cluster: Cluster, sid: bytes, to: bytes) -> tuple[int, int]:
    """The last numbers from `sid` to `to` in order, broadcasts first."""
    assert isinstance(cluster.network, OverheardNetwork)
    return cluster.network.numbers[sid, to]


def talk(cluster: Cluster) -> None:
    """Messages of both arrive, and nothing else."""
    network = cluster.network
    begin = network.clock.now
    for host, to in ((cluster[ONE], OTHER), (cluster[OTHER], ONE)):
        host.call("send_in_order", to=to, data=b"to you")
        host.call("broadcast_in_order", data=b"to all")
    network.run(begin + 2.0)
    for host in cluster:
        got = [event for time, event in host.events if time >= begin]
        assert sorted(event.data for event in got if isinstance(event, MessageReceived)) == [
            b"to all",
            b"to you",
        ]


def told(host: Host, since: float) -> list[Event]:
    """Its user's news of peers."""
    kinds = (PeerJoined, PeerLeft, PeerReachable, PeerUnreachable)
    return [event for time, event in host.events if time >= since and isinstance(event, kinds)]


@pytest.mark.parametrize("by", NEAR)
@pytest.mark.parametrize("known", [0, -1, 1])
def test_a_goodbye_that_does_not_name_our_number_is_not_believed(by: int, known: int) -> None:
    cluster = met(pair())
    begin = cluster.network.clock.now
    broadcast, one = numbers(cluster, OTHER, ONE)
    ours = numbers(cluster, ONE, OTHER)[1]
    forge(
        cluster.network,
        OTHER,
        ONE,
        Finalize(broadcast + by, one + by, known and ours + known),
    )
    cluster.network.run(begin + 1.0)
    assert cluster[ONE].machine.dropped[DropReason.STALE_SYNCHRONIZE] == 1
    talk(cluster)
    assert told(cluster[ONE], begin) == []


def test_one_that_does_not_leave_after_its_goodbye_is_back_after_a_while() -> None:
    """A stranger has heard our number, and says goodbye in its name, with messages to come."""
    cluster = met(pair())
    network = cluster.network
    begin = network.clock.now
    broadcast, one = numbers(cluster, OTHER, ONE)
    ours = numbers(cluster, ONE, OTHER)[1]
    forge(network, OTHER, ONE, Finalize(broadcast + 2**25, one, ours))
    network.run(begin + TIMING.leave_s - 0.1)
    assert cluster[ONE].machine.peers()[OTHER].state is PeerState.FINALIZING
    assert told(cluster[ONE], begin) == []
    network.run(begin + TIMING.leave_s + 1.0)
    assert told(cluster[ONE], begin) == [PeerUnreachable(peer=OTHER), PeerReachable(peer=OTHER)]
    assert told(cluster[OTHER], begin) == []
    talk(cluster)
    cluster[OTHER].call("leave")
    network.run(network.clock.now + 1.0)
    assert told(cluster[ONE], begin)[2:] == [PeerLeft(peer=OTHER, reason=LeaveReason.FINALIZED)]


@pytest.mark.parametrize("by", [*NEAR, *FAR])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("after_s", [0.0, 0.03])
def test_who_is_there_first_with_made_up_numbers_keeps_nobody_out(
    by: int, both: bool, after_s: float
) -> None:
    """They count until the peer names our number, which it does before it has joined."""
    cluster, heard = pair(), met(pair())  # the same two: their later messages are known in advance
    network = cluster.network
    cluster[ONE].call("start")
    cluster[OTHER].call("join", sid=ONE)
    network.run(after_s)
    for source, to in ((OTHER, ONE), (ONE, OTHER))[: 1 + both]:
        number, _ = numbers(heard, source, to)
        made_up = min(max(0, number + by), 2**63 - 1)
        for one in (made_up, min(max(0, made_up + 2**27), 2**63 - 1)):
            forge(network, source, to, Synchronize(made_up, one))
    network.run(network.clock.now + 5.0)
    assert have_joined(cluster)
    talk(cluster)


@pytest.mark.parametrize("ahead", [(1, -1), (-1, 1), (1000, -1000), (-1000, 1000), (1, 1)])
def test_two_that_are_both_forestalled_do_not_wait_until_they_forget_each_other(
    ahead: tuple[int, int],
) -> None:
    """Each named only the forged number, and heard no peer that did not name its own."""
    cluster, heard = pair(), met(pair())  # the same two: their later messages are known in advance
    network = cluster.network
    cluster[ONE].call("start")
    cluster[OTHER].call("join", sid=ONE)
    for source, to in ((OTHER, ONE), (ONE, OTHER)):
        made_up = (each + by for each, by in zip(numbers(heard, source, to), ahead, strict=True))
        lie = Synchronize(*made_up)
        for _ in range(9):  # one of them comes first
            forge(network, source, to, lie)
    assert network.run(network.clock.now + 1.0, done=lambda: have_joined(cluster))
    talk(cluster)


@pytest.mark.parametrize("ahead_s", [-60.0, 0.0, 60.0, 1e6])
@pytest.mark.parametrize("sealed", [False, True])
def test_one_that_restarts_by_another_clock_and_asks_nobody_is_noticed(
    ahead_s: float, sealed: bool
) -> None:
    """It answers keepalives, as its former life did, and by its clock all gossip is old."""
    cluster = met(pair(list(KEYS[:1]) if sealed else None, ahead_s))
    begin = cluster.network.clock.now
    cluster[OTHER].crash()
    cluster[OTHER].start()
    cluster[OTHER].call("start")
    cluster.network.run(begin + 3.0)
    assert told(cluster[ONE], begin) == [
        PeerLeft(peer=OTHER, reason=LeaveReason.RESTARTED),
        PeerJoined(peer=OTHER),
    ]
    assert told(cluster[OTHER], begin) == [PeerJoined(peer=ONE)]


def test_what_was_said_with_made_up_numbers_is_delivered_again_with_its_own() -> None:
    """We have joined with forged numbers, which are close: the peer had not joined yet."""
    table = Table()
    table.tell_message(P, Synchronize(7 + 2**20, 5 + 2**20))
    ours = table.answer(P, P).one
    assert table.node.peers()[P].state is PeerState.JOINED
    table.tell_message(P, Synchronize(7, 5, known=ours), id=9)
    table.tell_message(P, OneToOne(6, b"x"), id=10)
    assert table.acknowledged() == [9, 10]
    assert table.events()[-1] == MessageReceived(peer=P, data=b"x", delivery=Delivery.IN_ORDER)
    # It has now named our number for the first time: it has begun, and does not go back.
    table.tell_message(P, Synchronize(7, 5, known=ours), id=11)
    table.tell_message(P, OneToOne(6, b"y"), id=12)
    assert table.acknowledged() == [11, 12]
    assert table.node.dropped[DropReason.DUPLICATE] == 1
    assert table.node.me == ME


@pytest.mark.parametrize("overtaking", [1, 2, 3])
@pytest.mark.parametrize("passed", [0, 1, 3])
def test_messages_that_overtake_the_first_that_names_us_are_not_forgotten(
    overtaking: int, passed: int
) -> None:
    """They were acknowledged, so they never come again; the peer goes on after them."""
    table = Table()
    table.tell_message(P, Synchronize(7, 5))
    ours = table.answer(P, P).one
    said = list[bytes]()
    for number in range(overtaking):
        said += b"1%d" % number, b"b%d" % number
        table.tell_message(P, OneToOne(6 + number, said[-2]))
        table.tell_message(P, Broadcast(8 + number, said[-1]))
    # Its sender had heard that some of them had arrived.
    passed = min(passed, overtaking)
    table.tell_message(P, Synchronize(7 + passed, 5 + passed, known=ours))
    for number in range(overtaking + 1):  # those that came are sent again, and one more of each
        table.tell_message(P, OneToOne(6 + number, b"1%d" % number))
        table.tell_message(P, Broadcast(8 + number, b"b%d" % number))
    said += b"1%d" % overtaking, b"b%d" % overtaking
    got = [event.data for event in table.events() if isinstance(event, MessageReceived)]
    assert got == said
    assert table.node.dropped[DropReason.DUPLICATE] == 2 * overtaking


def test_a_goodbye_with_made_up_numbers_is_void_when_its_own_come() -> None:
    """It was kept for the waiting time of a leaving peer."""
    table = Table()
    table.tell_message(P, Synchronize(7 + 2**20, 5 + 2**20))
    ours = table.answer(P, P).one
    number = table.node.send_in_order(P, b"lost")
    table.tell_message(P, Finalize(9 + 2**20, 9 + 2**20))
    assert table.node.peers()[P].state is PeerState.FINALIZING
    table.events()
    table.said()
    table.tell_message(P, Synchronize(7, 5, known=ours))
    table.answer(P, P)
    assert table.events() == [
        PeerLeft(peer=P, reason=LeaveReason.RESTARTED),
        PeerJoined(peer=P),
    ]
    assert table.node.send_in_order(P, b"again") == number + 1


def test_one_that_has_restarted_is_not_acknowledged_by_one_that_leaves() -> None:
    """It would wait for messages of an association that no longer exists."""
    table = Table()
    table.join(P)
    table.node.send_in_order(P, b"x")
    table.node.leave()
    table.drain()
    for delay in (0.0, 0.8, 6.0):
        table.wait(delay, alive=(P,))
        table.tell_message(P, Synchronize(2**50, 2**50))
    assert P not in table.node.peers()
    assert table.acknowledged() == []


@pytest.mark.parametrize("over", [False, True])
def test_a_claim_is_believed_from_the_moment_on_that_the_peer_had_for_its_answer(
    over: bool,
) -> None:
    table = Table()
    table.join(P)
    claim = Synchronize(2**50, 2**50)
    table.tell_message(P, claim)
    table.tell_message(P, claim)  # it has been asked twice
    wait_for_claim(table, over=over)
    table.tell_message(P, claim)
    state = PeerState.SYNCHRONIZING if over else PeerState.JOINED
    assert table.node.peers()[P].state is state


@pytest.mark.parametrize("over", [False, True])
def test_another_claim_is_asked_about_from_that_moment_on(over: bool) -> None:
    table = Table()
    ours = table.join(P)
    table.tell_message(P, Synchronize(2**50, 2**50))
    wait_for_claim(table, over=over)
    table.said()
    table.tell_message(P, Synchronize(2**51, 2**51))
    assert bool(challenges(table, ours)) is over


def wait_for_claim(table: Table, *, over: bool) -> None:
    """Wait until just after the deadline for the answer of `P`, or just before."""
    table.wait(PATIENCE_S + (1e-6 if over else -1e-6))


@pytest.mark.parametrize("waits", [True, False])
def test_numbers_that_were_made_up_are_named_no_more_in_what_is_skipped(waits: bool) -> None:
    """A skipped broadcast is reported with the peer's number, which has to be its own."""
    table = Table(limits=Limits(queue_max=1))
    table.tell_message(P, Synchronize(7, 5 + 2**20))
    ours = table.answer(P, P).one
    table.node.broadcast_in_order(b"one")
    table.drain()
    (first,) = [body for body in table.bodies(MessageData, P) if body.id is not None]
    table.wait(8.0, alive=(P,))  # it answers keepalives, and acknowledges nothing
    number = table.node.broadcast_in_order(b"two")
    table.drain()
    failed = SendFailed(peer=P, message=number, reason=FailReason.QUEUE_FULL)
    assert failed in table.events()
    if not waits:
        table.tell(P, MessageAck(ME, P, first.id))
    table.said()
    table.tell_message(P, Synchronize(7, 5, known=ours))
    if waits:
        table.tell(P, MessageAck(ME, P, first.id))
    table.wait(2.0, alive=(P,))
    told = [message for message in table.messages(P) if isinstance(message, Synchronize)]
    assert told
    assert {message.known for message in told} == {5}


def challenges(table: Table, ours: Synchronize) -> list[Parcel]:
    """Challenges since the last call, whatever their receiver."""
    asked = write_message(OneToOne(ours.one, b""))
    return [
        parcel
        for parcel in table.said()
        if isinstance(parcel.body, MessageData) and parcel.body.d == asked
    ]


@pytest.mark.parametrize("queued", [0, 1, 20])
@pytest.mark.parametrize("at", [(0.0,), (0.0, 0.0, 0.0, 0.1), (0.0, 1.0, 9.0, 40.0)])
@pytest.mark.parametrize("id", [None, 7])
def test_a_claim_draws_three_times_its_bytes_at_most(
    id: int | None, at: tuple[float, ...], queued: int
) -> None:
    """Its peer may be down, and cannot say that it has not started anew."""
    table = Table()
    table.join(b"Q")
    ours = table.join(P)
    for _ in range(queued):
        table.node.send_in_order(P, b"x")
    begin, claimed, asked = table.now, 0, 0
    for index, delay in enumerate(at):
        table.wait(begin + delay - table.now, alive=(b"Q",))
        claim = MessageData(ME, P, id, write_message(Synchronize(index + 1 << 40, index + 1 << 40)))
        claimed += len(encode_parcel(Parcel(body=claim)))
        table.tell(P, claim)
    table.wait(75.0 - (table.now - begin), alive=(b"Q",))
    drawn = challenges(table, ours)
    asked = sum(len(encode_parcel(parcel)) for parcel in drawn)
    assert len(drawn) >= 1
    assert asked <= 3 * claimed, (asked, claimed)


def test_claims_that_are_believed_of_one_that_is_down_draw_no_more() -> None:
    """No server has proved its presence since."""
    table = Table()
    table.join(b"Q")
    table.join(P)
    table.wait(3.0, alive=(b"Q", P))
    claim = MessageData(ME, P, None, write_message(Synchronize(2**50, 2**50)))
    table.said()
    for delay in (0.0, 0.8, 1.6):
        table.wait(delay, alive=(b"Q",))
        before = len(table.sent)
        table.tell(P, claim)
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING
    table.wait(75.0, alive=(b"Q",))
    drawn = [
        len(encode_parcel(parcel))
        for _, parcel in table.sent[before:]
        if isinstance(parcel.body, MessageData) and parcel.body.to == P
    ]
    assert sum(drawn) <= 3 * len(encode_parcel(Parcel(body=claim))), drawn


@pytest.mark.parametrize("queued", [0, 1, 20])
def test_one_that_has_restarted_is_believed_at_its_third_word(queued: int) -> None:
    """By then it has been asked at least twice, however much else is under way."""
    table = Table()
    ours = table.join(P)
    for _ in range(queued):
        table.node.send_in_order(P, b"x")
    drawn = 0
    for delay in (0.0, 0.8, 1.6):
        assert table.node.peers()[P].state is PeerState.JOINED
        table.wait(delay)
        table.tell_message(P, Synchronize(2**50, 2**50))
        drawn += len(challenges(table, ours))
    assert drawn >= 2
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING


def test_what_is_asked_because_of_a_claim_is_forgotten_in_time() -> None:
    table = Table()
    table.join(P)
    table.tell_message(P, Synchronize(2**50, 2**50))
    assert table.node.peers()[P].queued == 1
    table.wait(90.0, alive=(P,))
    assert table.node.peers()[P].queued == 0
    # It is asked again before it is believed.
    ours = table.starts[P]
    table.said()
    table.tell_message(P, Synchronize(2**50, 2**50))
    assert len(challenges(table, ours)) == 1
    assert table.node.peers()[P].state is PeerState.JOINED


@pytest.mark.parametrize("made_up", [(5, 3), (7, 3), (5, 9)])
def test_numbers_that_were_made_up_behind_its_own_are_named_no_more(
    made_up: tuple[int, int],
) -> None:
    """It would not acknowledge a message that names one that it has never had."""
    table = Table()
    table.tell_message(P, Synchronize(*made_up))
    first = table.messages(P)[-1]
    assert isinstance(first, Synchronize)
    assert first.known == made_up[1]
    table.tell_message(P, Synchronize(7, 9, known=first.one))
    said = [message for message in table.messages(P) if isinstance(message, Synchronize)]
    assert [message.known for message in said] == [9]
