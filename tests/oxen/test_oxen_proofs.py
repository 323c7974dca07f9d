"""Nobody is sent much before proving that it asked for it.

Source: RFC 9000, section 8: at most three times the bytes that came, until an address is validated.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import pytest
from oxen_simulation import EPOCH as SIM_EPOCH
from oxen_simulation import LIMITS, TIMING
from oxen_support import EPOCH, ME, Table, all_joined, builder, joining

from culm.machines.memory import retained_size
from culm.oxen import (
    Delivered,
    Dialect,
    DropReason,
    Limits,
    Node,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    Timing,
)
from culm.oxen.messages import (
    Datagram,
    Finalize,
    Gossip,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.proofs import Proofs
from culm.testing.cluster import Cluster
from culm.testing.network import Conditions, Network

STRANGER = b"X"

SMALL = {
    "datagram": Parcel(body=MessageData(ME, STRANGER, None, b"")),
    "message": Parcel(body=MessageData(ME, STRANGER, 1, write_message(OneToOne(1, b"")))),
    "synchronize": Parcel(1, None, MessageData(ME, STRANGER, 1, write_message(Synchronize(0, 0)))),
    "acknowledgement": Parcel(body=MessageAck(ME, STRANGER, 1)),
    "keepalive": Parcel(ka=1),
    "gossip": Parcel(body=Gossip({STRANGER: [EPOCH]}, [ME])),
    "nothing": Parcel(),
}


def sizes(node: Node) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while node.next_event() is not None:
        pass
    for to, data in node.datagrams_to_send():
        assert isinstance(to, bytes)
        found[to] += len(data)
    return found


@pytest.mark.parametrize("kind", SMALL)
def test_a_small_datagram_draws_at_most_three_times_its_size(kind: str) -> None:
    table = Table()
    table.join(b"P")
    data = encode_parcel(SMALL[kind])
    table.node.receive_datagram(data, source=STRANGER)
    drawn = sizes(table.node)
    for second in range(100):
        table.node.advance(table.now + second)
        drawn += sizes(table.node)
    assert drawn[STRANGER] <= 3 * len(data)


def test_what_comes_in_a_strangers_name_gives_it_credit_by_the_byte() -> None:
    proofs = Proofs(2, share_max=191)
    proofs.receive(b"X", 10)
    assert proofs.spend(b"X", 20)
    assert not proofs.spend(b"X", 11)
    assert proofs.spend(b"X", 10)
    assert not proofs.spend(b"X", 1)
    proofs.receive(b"X", 1)
    assert proofs.spend(b"X", 3)


def test_a_stranger_of_whom_nothing_came_gets_not_a_byte() -> None:
    proofs = Proofs(4, share_max=191)
    assert not proofs.spend(STRANGER, 1)
    proofs.expect(STRANGER, told=False)
    assert not proofs.spend(STRANGER, 1)
    proofs.expect(STRANGER, told=True)
    assert not proofs.spend(STRANGER, 1)


def test_however_often_one_is_told_of_it_is_enough_for_a_message_and_an_answer() -> None:
    proofs = Proofs(4, share_max=191)
    proofs.expect(STRANGER, told=True)
    for _ in range(5):
        proofs.hear_rumour([STRANGER], 1000)
    assert proofs.spend(STRANGER, 2 * 192)
    assert not proofs.spend(STRANGER, 1)


def test_account_is_kept_of_so_many_strangers_and_the_one_heard_of_first_is_forgotten() -> None:
    proofs = Proofs(size_max=2, share_max=191)
    for source in (b"A", b"B", b"A", b"C"):
        proofs.receive(source, 10)
    assert [proofs.spend(hop, 30) for hop in (b"A", b"B", b"C")] == [False, True, True]


def test_what_a_stranger_says_of_others_is_not_believed() -> None:
    table = Table()
    table.join(b"P")
    table.gossip(STRANGER, X={b"victim": table.now})
    assert sorted(table.node.peers()) == [b"P", STRANGER]
    assert table.node.dropped[DropReason.UNPROVED] == 1
    table.wait(30.0)
    assert b"victim" not in {to for to, _ in table.sent}


def test_nothing_is_forwarded_for_a_stranger() -> None:
    table = Table()
    table.join(b"P")
    table.tell(STRANGER, MessageData(b"P", STRANGER, 1, b"x" * 100))
    assert not table.bodies(MessageData, b"P")
    assert table.node.dropped[DropReason.UNPROVED] == 1


def test_what_cannot_be_forwarded_is_counted() -> None:
    table = Table()
    table.join(b"P")
    table.tell(b"P", MessageData(b"nobody", b"P", 1, b"x"))  # who is that?
    table.tell(b"P", MessageData(b"P", b"Q", 1, b"x"))  # only where it came from
    assert table.node.dropped[DropReason.NO_ROUTE] == 2


def test_a_stranger_that_answers_a_keepalive_is_believed() -> None:
    table = Table()
    table.join(b"P")
    table.tell_message(STRANGER, Synchronize(0, 0))
    asked = [parcel.ka for parcel in table.said(STRANGER) if parcel.ka is not None]
    table.tell(STRANGER, kk=asked[0])
    table.tell(STRANGER, MessageData(b"P", STRANGER, 1, b"x" * 100))
    assert len(table.bodies(MessageData, b"P")) == 1


def test_one_that_had_joined_is_looked_for_though_it_has_answered_no_keepalive() -> None:
    """Its acknowledgement is as good a proof, or neither would ever find the other again."""
    table = Table(timing=Timing(usable_s=5.0, give_up_s=5.0))
    start = table.tell_message(STRANGER, Synchronize(0, 0))
    assert start
    (body,) = table.bodies(MessageData, STRANGER)
    table.tell(STRANGER, MessageAck(ME, STRANGER, body.id))
    for _ in range(100):
        table.node.send(STRANGER, b"x" * 20)
        table.drain()
    table.wait(12.0)
    assert table.events()[-1] == PeerUnreachable(peer=STRANGER)
    table.said()
    table.wait(30.0)
    asked = [parcel.ka for parcel in table.said(STRANGER) if parcel.ka is not None]
    assert 1 < len(asked) < 10
    table.tell(STRANGER, kk=asked[-1])
    table.wait(1.0, alive=(STRANGER,))
    table.accept(STRANGER, STRANGER)
    assert table.events()[-1] == PeerReachable(peer=STRANGER)


def test_a_guess_is_no_proof() -> None:
    table = Table()
    table.tell_message(STRANGER, Synchronize(0, 0))
    asked = [parcel.ka for parcel in table.said(STRANGER) if parcel.ka is not None]
    table.tell(STRANGER, kk=asked[0] ^ 1)
    table.tell(STRANGER, MessageData(b"P", STRANGER, 1, b""))
    assert table.node.dropped[DropReason.UNPROVED] == 1


def test_who_restarted_and_forgot_is_asked_by_those_who_remember() -> None:
    """A peer that still counts us among its own sends nothing but gossip."""
    table = Table()
    table.gossip(b"P", P={ME: table.now})
    messages = [read_message(body.d) for body in table.bodies(MessageData, b"P")]
    assert any(isinstance(message, Synchronize) for message in messages)


def test_made_up_servers_keep_nobody_out() -> None:
    """Some thousand of them, while a server joins: later ones take the places of earlier ones."""
    limits = Limits(candidates_max=8, peers_max=16)
    table = Table(limits=limits)
    for index in range(1000):
        table.tell_message(b"x%d" % index, Datagram(b""))
    assert len(table.node.peers()) == 8
    table.wait(Timing().redelivery_max_s)
    table.tell_message(b"P", Synchronize(0, 0))
    for index in range(7):
        table.tell_message(b"y%d" % index, Datagram(b""))
    table.accept(b"P", b"P")
    for index in range(100):
        table.tell_message(b"z%d" % index, Datagram(b""))
    assert [event for event in table.events() if isinstance(event, PeerJoined)] == [
        PeerJoined(peer=b"P")
    ]
    assert len(table.node.peers()) == 9
    assert table.node.peers()[b"P"].state is PeerState.JOINED
    assert table.node.dropped[DropReason.PEERS_LIMIT] == 1000 - 8 + 8 + 100 - 1


@pytest.mark.parametrize("one", [7, 2**50])
def test_who_left_is_a_stranger_again_and_keeps_nobody_out(one: int) -> None:
    """Anybody can repeat what it said in a former life, or make it up."""
    table = Table(limits=Limits(peers_max=1))
    table.join(STRANGER, one=2**40)
    table.tell_message(STRANGER, Finalize(0, 2**40))
    said = write_message(Synchronize(0, one))
    data = encode_parcel(Parcel(body=MessageData(ME, STRANGER, 1, said)))
    table.said()
    for second in range(100):
        if not second % 25:
            table.node.receive_datagram(data, source=STRANGER)
        table.wait(1.0)
    drawn = sum(len(encode_parcel(parcel)) for parcel in table.said(STRANGER))
    assert drawn <= 3 * 4 * len(data)
    table.events()
    table.join(b"P")
    assert table.events() == [PeerJoined(peer=b"P")]


def test_nothing_is_kept_of_strangers_that_came_and_left() -> None:
    """They have joined, and never answered a keepalive."""
    table = Table(limits=Limits(peers_max=8))

    def visit(sid: bytes) -> None:
        table.tell_message(sid, Synchronize(0, 0))
        (body,) = table.bodies(MessageData, sid)
        table.tell(sid, MessageAck(ME, sid, body.id))
        table.tell_message(sid, Finalize(0, 0))
        assert [type(event) for event in table.events()] == [PeerJoined, PeerLeft]

    def kept_after(visitors: range) -> int:
        for index in visitors:
            visit(b"visitor %d" % index)
            table.wait(100.0)
        assert table.node.peers() == {}
        table.said()
        return retained_size(table.node)

    assert kept_after(range(10, 40)) == kept_after(range(40, 70))


def test_made_up_servers_make_room_for_those_that_are_named() -> None:
    table = Table(limits=Limits(candidates_max=8, peers_max=9))
    table.join(b"P")
    for index in range(8):
        table.tell_message(b"x%d" % index, Datagram(b""))
    assert len(table.node.peers()) == 9
    table.gossip(b"P", P={b"Q": table.now})
    assert b"Q" in table.node.peers()
    table.node.join(b"R")
    assert b"R" in table.node.peers()
    assert len(table.node.peers()) == 9


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("sid_size", [1, 16, 32, 200])
@pytest.mark.parametrize("size", [3, 6])
def test_servers_that_know_each_other_by_others_alone_soon_join_however_long_their_ids(
    size: int, sid_size: int, dialect: Dialect
) -> None:
    """All but the first reach only that one; reports pay for our message and for an answer.

    They paid for 192 bytes in advance: too few for both, and between long IDs for either.
    """
    network = Network(seed=1, conditions=Conditions(delay_min=0.005, delay_max=0.02))
    limits = Limits(sid_size_max=max(32, sid_size), message_size_max=2**20, tags_size_max=512)
    names = [(b"%d" % index).ljust(sid_size, b"-") for index in range(size)]
    for one, other in combinations(names[1:], 2):
        network.cut(one, other)
    cluster = joining(network, names, limits=limits, dialect=dialect)
    assert network.run(30.0, done=lambda: all_joined(cluster))


def test_a_cluster_sends_no_more_to_a_victim_than_three_times_what_came() -> None:
    """Small datagrams of all kinds to all sixteen nodes, in the name of one that never asked."""
    network = Network(seed=3, conditions=Conditions(delay_min=0.001, delay_max=0.01))
    names = [b"N%02d" % index for index in range(8)]
    joining(network, names, limits=LIMITS, timing=TIMING)
    network.run(3.0)
    drawn = 0

    def count(payload: bytes, source: object) -> None:
        nonlocal drawn
        drawn += len(payload)

    network.attach(STRANGER, count)
    paid = 0
    for sid in names:
        for parcel in (
            Parcel(body=MessageData(sid, STRANGER, None, b"")),
            Parcel(body=MessageData(names[0], STRANGER, 1, b"")),
            Parcel(body=Gossip({STRANGER: [SIM_EPOCH + 3]}, [names[1]])),
        ):
            data = encode_parcel(parcel)
            paid += len(data)
            network.send(STRANGER, sid, data)
    network.run(12.0)
    assert 0 < drawn <= 3 * paid


# -- in the name of a member ---------------------------------------------------------------------

CROWD = [b"V%02d" % number for number in range(40)]
RUMOURS = {
    "gossip of one": Parcel(body=Gossip({b"P": [EPOCH + 1]}, CROWD[:1])),
    "gossip of many": Parcel(body=Gossip({b"P": [EPOCH + 1] * 40}, CROWD)),
    "gossip with a question": Parcel(2**31, None, Gossip({b"P": [EPOCH + 1] * 2}, CROWD[:2])),
    "rows of many": Parcel(body=Gossip({sid: [EPOCH + 1] for sid in CROWD}, [b"P"])),
    "datagram": Parcel(body=MessageData(ME, CROWD[0], None, b"")),
    "message": Parcel(5, None, MessageData(ME, CROWD[0], 1, write_message(OneToOne(1, b"")))),
    "synchronize": Parcel(5, None, MessageData(ME, CROWD[0], 1, write_message(Synchronize(0, 0)))),
    "acknowledgement": Parcel(body=MessageAck(ME, CROWD[0], 1)),
    "to be forwarded": Parcel(body=MessageData(CROWD[0], b"P", 1, b"")),
}


@pytest.mark.parametrize("kind", RUMOURS)
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_rumour_in_a_members_name_draws_three_times_its_bytes_at_most(
    kind: str, repeats: int
) -> None:
    """Decision 20: wherever they go, as long as the servers they mention do not answer."""
    table = Table()
    for sid in (b"P", b"Q"):
        table.join(sid)
    table.wait(0.1, alive=(b"P", b"Q"))
    rumour, asked = encode_parcel(RUMOURS[kind]), RUMOURS[kind].ka
    table.said()
    for _ in range(repeats):
        table.node.receive_datagram(rumour, source=b"P")
        table.wait(5.0, alive=(b"P", b"Q"))
    table.wait(200.0, alive=(b"P", b"Q"))
    drawn = [
        encode_parcel(parcel)
        for hop, parcel in table.sent
        if hop in CROWD or b"3:V" in encode_parcel(parcel) or parcel.kk == asked is not None
    ]
    spent = sum(map(len, drawn))
    assert spent <= 3 * len(rumour) * repeats


def test_a_rumour_that_one_is_back_draws_no_more() -> None:
    table = Table()
    for sid in (b"P", b"Q"):
        table.join(sid)
    table.wait(100.0, alive=(b"Q",))
    assert table.node.peers()[b"P"].state is PeerState.GIVEN_UP
    table.said()
    rumour = encode_parcel(Parcel(body=Gossip({b"Q": [EPOCH + table.now]}, [b"P"])))
    table.node.receive_datagram(rumour, source=b"Q")
    table.wait(200.0, alive=(b"Q",))
    said = [encode_parcel(parcel) for parcel in table.said() if parcel.body is not None]
    drawn = [len(encoded) for encoded in said if b"1:m1:s" in encoded]
    assert len(rumour) < sum(drawn) <= 3 * len(rumour)


def _drawn_by_rumours(rumours: int) -> int:
    """Bytes to P, which fell silent with messages under way, or by way of Q, which reaches it."""
    table = Table()
    for sid in (b"P", b"Q"):
        table.join(sid)
    for _ in range(3):
        table.node.send(b"P", b"x" * 1000)
        table.node.send_in_order(b"P", b"y" * 1000)
    table.drain()
    for _ in range(30):
        if rumours:
            rumours -= 1
            table.gossip(b"Q", Q={b"P": table.now})
        table.wait(10.0, alive=(b"Q",))
    table.wait(200.0, alive=(b"Q",))
    parcels = [encode_parcel(parcel) for hop, parcel in table.sent if hop == b"P"]
    parcels += [
        encode_parcel(parcel)
        for hop, parcel in table.sent
        if hop == b"Q" and isinstance(parcel.body, MessageData) and parcel.body.to == b"P"
    ]
    return sum(map(len, parcels))


def test_a_rumour_that_a_silent_member_is_there_draws_three_times_its_bytes_at_most() -> None:
    """Q is made to say every ten seconds that it reaches P, which is gone: P is not given up."""
    rumour = encode_parcel(Parcel(body=Gossip({b"Q": [EPOCH]}, [b"P"])))
    silence, rumours = _drawn_by_rumours(0), 30
    # Keepalives are asked for at falling intervals in any case.
    assert _drawn_by_rumours(rumours) - silence <= 3 * rumours * len(rumour)


def test_a_silent_member_that_others_reach_is_asked_and_gets_everything_when_it_answers() -> None:
    """Our parcels were lost for longer than our patience without the others' help."""
    table = Table()
    for sid in (b"P", b"Q"):
        table.join(sid)
    sent = [table.node.send(b"P", b"x" * 1000) for _ in range(3)]
    table.drain()
    for _ in range(12):
        table.gossip(b"Q", Q={b"P": table.now})
        table.wait(10.0, alive=(b"Q",))
    assert table.node.peers()[b"P"].state is PeerState.JOINED
    table.said()
    table.events()
    for _ in range(10):
        table.gossip(b"Q", Q={b"P": table.now})
        table.wait(1.0, alive=(b"Q",))
        for body in table.bodies(MessageData, b"Q"):
            if body.to == b"P":
                table.tell(b"Q", MessageAck(ME, b"P", body.id))
    delivered = [event.message for event in table.events() if isinstance(event, Delivered)]
    assert sorted(delivered) == sent


def test_a_datagram_too_small_to_pay_for_a_question_to_one_given_up_draws_none() -> None:
    table = Table()
    for sid in (b"P", b"Q"):
        table.join(sid)
    table.wait(100.0, alive=(b"Q",))
    assert table.node.peers()[b"P"].state is PeerState.GIVEN_UP
    table.said()
    nothing, question = encode_parcel(Parcel()), encode_parcel(Parcel(ka=1))
    for data in (nothing, question):
        table.wait(2.0, alive=(b"Q",))
        table.said()
        table.node.receive_datagram(data, source=b"P")
        table.drain()
        drawn = sum(len(encode_parcel(parcel)) for parcel in table.said(b"P"))
        assert drawn <= 3 * len(data)
    assert drawn


def test_those_of_whom_many_tell_are_reached_all_the_same() -> None:
    """Each portion of gossip pays for some, and those that answer pay for themselves."""
    table = Table()
    table.join(b"P")
    rumour = RUMOURS["gossip of many"]
    reached: set[bytes] = set()
    for _ in range(10):
        table.tell(b"P", rumour.body)
        table.wait(1.0, alive=(b"P",))
        reached |= {hop for hop, _ in table.sent if hop in CROWD}
    assert reached == set(CROWD)


def test_what_a_report_pays_for_goes_the_way_that_the_report_came() -> None:
    """Over the direct link, which nobody has tried, it might be lost, and another is not paid."""
    table = Table()
    table.join(b"Q")
    table.said()
    table.tell_message(STRANGER, Synchronize(0, 7), source=b"Q")
    sent = [(hop, parcel.body) for hop, parcel in table.sent if parcel.body is not None]
    assert [hop for hop, body in sent if isinstance(body, MessageData)] == [b"Q"]


@pytest.mark.parametrize("seed", range(6))
def test_a_line_is_soon_together_though_each_server_has_room_for_one_candidate(seed: int) -> None:
    network = Network(seed=seed, conditions=Conditions(delay_min=0.005, delay_max=0.05))
    names = [b"N%02d" % index for index in range(6)]
    neighbours = list(pairwise(names))
    for pair in combinations(names, 2):
        if pair not in neighbours:
            network.cut(*pair)
    cluster, build = Cluster(network), builder(network, limits=Limits(candidates_max=1))
    for sid in names:
        cluster.add(sid, build)
    cluster[names[0]].call("start")
    for one, other in neighbours:
        cluster[other].call("join", sid=one)
    assert network.run(60.0, done=lambda: all_joined(cluster))
