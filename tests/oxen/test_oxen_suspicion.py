"""Silent peers: others are asked to reach them, which is faster than waiting."""

from __future__ import annotations

import pytest
from oxen_support import ME, Table, joining

from culm.oxen import (
    FailReason,
    LeaveReason,
    PeerLeft,
    PeerState,
    PeerUnreachable,
    SendFailed,
    Timing,
)
from culm.oxen.messages import (
    Finalize,
    MessageAck,
    MessageData,
    OneToOne,
    Synchronize,
    read_message,
)
from culm.testing.cluster import Cluster
from culm.testing.network import Conditions, Network

P, Q, R = b"P", b"Q", b"R"
SUSPECT_S = 6.0
TIMING = Timing(keepalive_s=2.0, suspect_s=SUSPECT_S)


def joined(timing: Timing = TIMING) -> Table:
    """A node that is in touch with `P`, `Q` and `R` now."""
    table = Table(timing=timing)
    for sid in (P, Q, R):
        table.join(sid)
    table.wait(3.0, alive=(P, Q, R))
    table.said()
    table.events()
    return table


def asked_by_others(table: Table) -> list[tuple[bytes, MessageData]]:
    """Messages sent to `P` by way of others, by forwarder."""
    return [
        (hop, parcel.body)
        for hop, parcel in table.sent
        if hop != P and isinstance(parcel.body, MessageData) and parcel.body.to == P
    ]


def test_nobody_is_asked_unless_that_is_wished() -> None:
    table = joined(Timing(keepalive_s=2.0))
    table.wait(70.0, alive=(Q, R))
    assert asked_by_others(table) == []
    assert table.events() == []


def test_others_are_asked_to_reach_one_that_is_silent() -> None:
    table = joined()
    table.wait(SUSPECT_S - 3.0, alive=(Q, R))
    assert asked_by_others(table) == []
    table.wait(4.0, alive=(Q, R))
    asked = asked_by_others(table)
    assert {hop for hop, _ in asked} == {Q, R}
    # A message before the first one, which every server acknowledges and ignores.
    assert {read_message(body.d) for _, body in asked} == {OneToOne(table.starts[P].one, b"")}
    assert len({body.id for _, body in asked}) == 1


def test_one_that_nobody_reaches_is_given_up() -> None:
    table = joined()
    number = table.node.send_in_order(P, b"in vain")
    table.wait(2 * SUSPECT_S - 3.0, alive=(Q, R))
    assert table.events() == []
    table.wait(4.0, alive=(Q, R))
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.PEER_UNREACHABLE),
        PeerUnreachable(peer=P),
    ]
    assert table.node.peers()[P].state is PeerState.GIVEN_UP


def test_an_answer_by_way_of_others_is_a_sign_of_life() -> None:
    table = joined()
    for _ in range(6):
        table.wait(SUSPECT_S + 1.0, alive=(Q, R))
        hop, body = asked_by_others(table)[-1]
        assert body.id is not None
        table.tell(hop, MessageAck(ME, P, body.id))
        table.said()
    assert table.events() == []
    assert table.node.peers()[P].state is PeerState.JOINED
    table.wait(2 * SUSPECT_S + 2.0, alive=(Q, R))
    assert table.events() == [PeerUnreachable(peer=P)]


def test_gossip_of_others_is_a_sign_of_life() -> None:
    table = joined()
    for _ in range(10):
        table.wait(4.0, alive=(Q, R))
        table.gossip(Q, Q={P: table.now - 1.0})
    assert asked_by_others(table) == []
    assert table.events() == []


def test_who_was_stopped_himself_blames_nobody() -> None:
    """Time has passed, but without a question."""
    table = joined()
    table.now += 70.0
    table.node.advance(table.now)
    table.drain()
    for sid in (P, Q, R):
        for parcel in [parcel for hop, parcel in table.sent if hop == sid]:
            if parcel.ka is not None:
                table.tell(sid, kk=parcel.ka)
    table.wait(10.0, alive=(P, Q, R))
    assert [event for event in table.events() if isinstance(event, PeerUnreachable)] == []


def test_who_was_given_up_is_not_back_because_of_old_news() -> None:
    table = joined()
    last = table.now
    table.wait(2 * SUSPECT_S + 2.0, alive=(Q, R))
    assert table.events() == [PeerUnreachable(peer=P)]
    table.gossip(Q, Q={P: last})  # before it fell silent, and younger than `usable_s`
    table.wait(2.0, alive=(Q, R))
    assert table.node.peers()[P].state is PeerState.GIVEN_UP
    table.gossip(Q, Q={P: table.now})
    table.wait(2.0, alive=(Q, R))
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING


def test_one_that_says_goodbye_and_falls_silent_is_given_up_as_well() -> None:
    table = joined()
    table.tell_message(P, Finalize(0, 7))  # and the messages never come
    table.wait(2 * SUSPECT_S + 2.0, alive=(Q, R))
    assert table.events() == [PeerUnreachable(peer=P)]


def test_who_leaves_forgets_one_that_is_given_up_and_asks_it_nothing() -> None:
    table = joined()
    table.wait(100.0, alive=(P, Q, R))
    table.node.leave()
    table.wait(2 * SUSPECT_S + 2.0, alive=(Q, R))
    assert PeerUnreachable(peer=P) in table.events()
    assert P not in table.node.peers()


def test_one_alone_asks_nobody_and_gives_up_as_fast() -> None:
    table = Table(timing=TIMING)
    table.join(P)
    table.wait(2 * SUSPECT_S + 3.0)
    assert PeerUnreachable(peer=P) in table.events()


def test_a_claim_of_a_restart_is_still_settled() -> None:
    table = joined()
    table.wait(SUSPECT_S + 1.0, alive=(Q, R))  # a question is out already
    table.said()
    table.tell_message(P, Synchronize(0, 2**50))
    table.wait(8.0, alive=(P, Q, R))
    table.said()
    table.tell_message(P, Synchronize(0, 2**50))
    assert PeerLeft(peer=P, reason=LeaveReason.RESTARTED) in table.events()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_it_is_a_time(value: float) -> None:
    with pytest.raises(ValueError, match="suspect_s"):
        Timing(suspect_s=value)


def cluster_of(size: int, timing: Timing) -> Cluster:
    network = Network(seed=2, conditions=Conditions(delay_min=0.005, delay_max=0.02))
    cluster = joining(network, [b"N%d" % index for index in range(size)], timing=timing)
    network.run(10.0)
    return cluster


def unreachable(cluster: Cluster, since: float) -> list[tuple[float, bytes]]:
    return [
        (time - since, event.peer)
        for host in cluster
        for time, event in host.events
        if time > since and isinstance(event, PeerUnreachable)
    ]


def test_a_crash_is_found_out_in_twice_that_time_and_a_cut_is_none() -> None:
    cluster = cluster_of(4, TIMING)
    network = cluster.network
    with network:
        network.cut(b"N0", b"N1")
        network.set_conditions(Conditions(loss=0.05, delay_min=0.005, delay_max=0.02))
        begin = network.clock.now
        network.run(begin + 60.0)
        assert unreachable(cluster, begin) == []
        begin = network.clock.now
        cluster[b"N3"].crash()
        network.run(begin + 20.0)
    found = unreachable(cluster, begin)
    assert {sid for _, sid in found} == {b"N3"}
    assert len(found) == 3
    assert all(SUSPECT_S < seconds < 2 * SUSPECT_S + 3.0 for seconds, _ in found)
