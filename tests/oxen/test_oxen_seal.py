"""A cluster with a key: anything not sealed with it, by that server for this one, is ignored."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pytest
from nacl.bindings import crypto_secretbox
from oxen_simulation import EPOCH, TIMING
from oxen_support import DEFAULT_LIMITS, ME, Dice, Table

from culm.machine import Closed, LocalProtocolError
from culm.machines.memory import retained_size
from culm.oxen import (
    Delivery,
    Dialect,
    DropReason,
    ErrorCode,
    Limits,
    MessageReceived,
    Node,
    PeerJoined,
    PeerState,
)
from culm.oxen.messages import (
    Gossip,
    MessageAck,
    MessageData,
    OneToOne,
    Outlived,
    Parcel,
    Synchronize,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.seal import OVERHEAD, close_box, open_box
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

OLD, NEW, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(32)
P, Q = b"P", b"Q"
LIFE, LATER = b"\0\0\0\0\0\1" + b"salt of P.", b"\0\0\0\0\0\2" + b"a new life"
EARLIER = b"\0\0\0\0\0\0" + b"before all"


def sealed(
    parcel: bytes,
    counter: int = 1,
    *,
    life: bytes = LIFE,
    key: bytes = OLD,
    source: bytes = P,
    to: bytes = ME,
) -> bytes:
    return close_box(parcel, life + counter.to_bytes(8), key=key, source=source, to=to)


def start(number: int = 0) -> bytes:
    """A synchronize message of `P`, with a question."""
    d = write_message(Synchronize(0, number))
    return encode_parcel(Parcel(5, None, MessageData(ME, P, 1, d)))


def table(keys: Sequence[bytes] = (OLD,), **config: Any) -> Table:
    return Table(keys=keys, **config)


def heard(table: Table, datagram: bytes, source: bytes = P) -> bool:
    """Whether that datagram has any effect."""
    before = table.node.dropped
    counts = [before[reason] for reason in (DropReason.UNAUTHENTICATED, DropReason.REPLAYED)]
    table.node.receive_datagram(datagram, source=source)
    table.drain()
    after = [table.node.dropped[r] for r in (DropReason.UNAUTHENTICATED, DropReason.REPLAYED)]
    said, known = table.said(), table.node.peers()
    if after != counts:
        assert sum(after) == sum(counts) + 1
        messages = [parcel.body.d for parcel in said if isinstance(parcel.body, MessageData)]
        assert all(type(read_message(d)) is Outlived for d in messages)
        assert len(messages) == len(said) <= 1
        return False
    return bool(said or known)


# -- on the wire --------------------------------------------------------------------------------


def test_a_datagram_is_a_nonce_and_a_secretbox_under_the_key_of_one_direction() -> None:
    nonce = LIFE + b"\0\0\0\0\0\0\0\7"
    key = blake2b(b"1:PME", key=OLD, digest_size=32, person=b"culm oxen seal").digest()
    assert sealed(b"parcel", 7) == nonce + crypto_secretbox(b"parcel", nonce, key)
    assert open_box(sealed(b"parcel", 7), key=OLD, source=P, to=ME) == b"parcel"
    assert len(sealed(b"parcel")) == len(b"parcel") + OVERHEAD == 46


def test_names_that_run_into_each_other_have_different_keys() -> None:
    assert open_box(sealed(b"", source=b"AB", to=b"C"), key=OLD, source=b"A", to=b"BC") is None


def test_a_nonce_is_the_time_of_the_start_chance_and_a_counter() -> None:
    nodes = [Node(me=ME, rng=Dice(seed), epoch=EPOCH, keys=[OLD]) for seed in range(2)]
    nonces: list[bytes] = []
    for node in nodes:
        node.advance(1.5)
        node.join(P)
        for second in range(2, 9):
            nonces += [data[:24] for _, data in node.datagrams_to_send()]
            node.advance(float(second))
            assert node.next_event() is None
    assert len(set(nonces)) == len(nonces) > 5
    assert len({nonce[6:16] for nonce in nonces}) == len(nodes)
    assert {nonce[:6] for nonce in nonces} == {int((EPOCH + 1.5) * 1000).to_bytes(6)}
    first = [nonce[16:] for nonce in nonces if nonce[6:16] == nonces[0][6:16]]
    assert first == [number.to_bytes(8) for number in range(1, len(first) + 1)]


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_message_is_shorter_by_what_the_seal_takes(dialect: Dialect, delivery: Delivery) -> None:
    open_node, node = (
        Node(me=ME, rng=Dice(), epoch=EPOCH, dialect=dialect, keys=keys) for keys in ([], [OLD])
    )
    assert node.payload_size_max(delivery) == open_node.payload_size_max(delivery) - OVERHEAD


def test_no_datagram_is_larger_than_it_may_be() -> None:
    limits = Limits(datagram_size_max=300, message_size_max=5_000)
    cluster = cluster_of(3, keys=[OLD], limits=limits)
    largest = watch(cluster.network)
    with cluster:
        host = cluster[b"N0"]
        for delivery, verb in ((Delivery.DATAGRAM, "send"), (Delivery.IN_ORDER, "send_in_order")):
            size = host.machine.payload_size_max(delivery)
            host.call(verb, to=b"N1", data=bytes(size))
        host.call("send_in_order", to=b"N2", data=bytes(5_000))
        cluster.network.run(cluster.network.clock.now + 5.0)
    assert 200 < max(largest) <= 300
    assert sum(isinstance(event, MessageReceived) for _, event in cluster[b"N1"].events) == 2
    assert sum(isinstance(event, MessageReceived) for _, event in cluster[b"N2"].events) == 1


# -- trust ---------------------------------------------------------------------------------------


def test_what_is_sealed_is_taken() -> None:
    assert heard(table(), sealed(start()))


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        start(),
        sealed(start())[:24],
        sealed(start())[:39],
        sealed(start())[:40],
        sealed(start())[:-1],
        sealed(start()) + b"x",
        sealed(start(), key=NEW),
        sealed(start(), source=Q),
        sealed(start(), to=P),
        sealed(start(), source=ME, to=P),
        close_box(start(), LIFE + bytes(8), key=OLD, source=b"", to=b""),
        bytes(1200),
        b"\xff" * 1200,
    ],
)
def test_what_is_not_is_not_even_answered(datagram: bytes) -> None:
    table_ = table()
    assert not heard(table_, datagram)
    assert table_.node.dropped[DropReason.UNAUTHENTICATED] == 1
    assert table_.node.peers() == {}


def test_no_byte_can_be_changed() -> None:
    table_ = table()
    genuine = sealed(start())
    for at in range(len(genuine)):
        assert not heard(table_, genuine[:at] + bytes([genuine[at] ^ 1]) + genuine[at + 1 :])
    assert heard(table_, genuine)


def test_what_is_too_large_is_not_opened() -> None:
    table_ = table()
    table_.node.receive_datagram(sealed(bytes(1200)), source=P)
    table_.drain()
    assert table_.node.dropped == {DropReason.TOO_LARGE: 1}


def test_what_is_sealed_and_no_parcel_is_malformed() -> None:
    table_ = table()
    table_.node.receive_datagram(sealed(b"junk"), source=P)
    table_.drain()
    assert table_.node.dropped == {DropReason.MALFORMED: 1}


def test_who_has_no_keys_finds_it_malformed() -> None:
    table_ = Table()
    table_.node.receive_datagram(sealed(start()), source=P)
    table_.drain()
    assert table_.node.dropped == {DropReason.MALFORMED: 1}


# -- replays -----------------------------------------------------------------------------------


def test_what_came_before_is_nothing() -> None:
    table_ = table()
    assert heard(table_, sealed(start(), 7))
    assert not heard(table_, sealed(start(), 7))
    assert not heard(table_, sealed(start(5), 7))
    assert table_.node.dropped[DropReason.REPLAYED] == 2


@pytest.mark.parametrize("counters", [[3, 1, 2], [9, 1, 8, 2**14, 10, 1 + 2**14, 3], [1, 0]])
def test_what_was_overtaken_is_taken_once(counters: list[int]) -> None:
    table_ = table()
    assert all(heard(table_, sealed(start(), counter)) for counter in counters)
    assert not any(heard(table_, sealed(start(), counter)) for counter in counters)


def test_what_was_overtaken_by_too_many_may_have_come() -> None:
    table_ = table()
    assert heard(table_, sealed(start(), 2**14 + 1))
    assert heard(table_, sealed(start(), 2))
    assert not heard(table_, sealed(start(), 1))


@pytest.mark.parametrize("counter", [2**63, 2**64 - 1])
def test_the_highest_numbers_are_numbers(counter: int) -> None:
    table_ = table()
    assert heard(table_, sealed(start(), 1))
    assert heard(table_, sealed(start(), counter))
    assert not heard(table_, sealed(start(), 2))
    assert not heard(table_, sealed(start(), counter))
    assert heard(table_, sealed(start(), counter - 1))


@pytest.mark.parametrize("forged", [[2**64 - 1], range(3, 2**14 + 3)])
def test_no_number_shuts_a_server_out_for_good(forged: Sequence[int]) -> None:
    """Somebody with the key has used up its numbers: it hears that, and goes on as a later life."""
    table_ = table()
    assert heard(table_, sealed(start(), 1))
    for counter in forged:
        assert heard(table_, sealed(start(), counter))
    told = []
    for _ in range(22):
        table_.wait(1.0)
        table_.said()
        table_.node.receive_datagram(sealed(start(), 4), source=P)
        table_.drain()
        told.append(table_.messages())
    assert told == [[]] * 19 + [[Outlived(1)]] * 3
    assert heard(table_, sealed(start(), 1, life=LATER))


@pytest.mark.parametrize("used", [(1, 2, 3), (1, 2), (1,), ()])
def test_nor_do_numbers_of_which_some_are_left(used: Sequence[int]) -> None:
    """With a quarter of them, or a third, two servers were apart.  Doubles alone are everyday."""
    table_ = table()
    for counter in range(1, 200):
        if counter % 4 in used:
            heard(table_, sealed(start(), counter))
    table_.said()
    told = []
    for counter in range(1, 100):
        table_.wait(0.5)
        for _ in range(2):
            table_.node.receive_datagram(sealed(start(), counter), source=P)
            table_.drain()
        told += [message for message in table_.messages() if isinstance(message, Outlived)]
    assert bool(told) == bool(used)


def test_a_cluster_hears_one_whose_numbers_were_used_up() -> None:
    """Those of all servers at the same time: none of them hears another's answers."""
    cluster = cluster_of(3, keys=[OLD])
    lives: dict[Any, bytes] = {}
    send = cluster.network.send

    def noted(source: Any, destination: Any, payload: bytes) -> None:
        lives[source] = payload[:16]
        send(source, destination, payload)

    cluster.network.send = noted  # type: ignore[method-assign]
    with cluster:
        cluster.network.run(cluster.network.clock.now + 3.0)
        for source, life in list(lives.items()):
            for host in cluster:
                if host.address != source:
                    parcel = encode_parcel(Parcel())
                    nonce = life + b"\xff" * 8
                    last = close_box(parcel, nonce, key=OLD, source=source, to=host.address)  # type: ignore[arg-type]
                    send(source, host.address, last)
        cluster.network.run(cluster.network.clock.now + TIMING.usable_s + TIMING.give_up_s)
        assert [joined(host) for host in cluster] == [2, 2, 2]
        cluster[b"N0"].call("broadcast_in_order", data=b"all is well")
        cluster.network.run(cluster.network.clock.now + 1.0)
        assert all(
            any(isinstance(event, MessageReceived) for _, event in cluster[sid].events)
            for sid in (b"N1", b"N2")
        )


def test_who_starts_anew_begins_to_count_anew() -> None:
    table_ = table()
    assert heard(table_, sealed(start(), 9))
    assert heard(table_, sealed(start(), 1, life=LATER))
    assert not heard(table_, sealed(start(), 1, life=LATER))
    assert not heard(table_, sealed(start(), 9))
    assert not heard(table_, sealed(start(), 10))  # sent earlier, or so it claims


@pytest.mark.parametrize("silence", [0.0, 19.0, 100.0, 10_000.0])
@pytest.mark.parametrize("lives", [1, 2, 5])
def test_a_sealed_datagram_counts_once_however_often_its_sender_restarts(
    silence: float, lives: int
) -> None:
    """Decision 19: even after a long silence."""
    table_ = table()
    datagrams = [
        sealed(start(), counter, life=bytes(5) + bytes([life]) + b"salt of P.")
        for life in range(lives)
        for counter in (1, 2)
    ]
    assert all(heard(table_, datagram) for datagram in datagrams)
    table_.wait(silence)
    table_.said()
    assert not any(heard(table_, datagram) for datagram in datagrams * 2)


def test_a_former_life_that_never_was_heard_is_not_heard_later() -> None:
    table_ = table()
    assert heard(table_, sealed(start()))
    table_.wait(1_000.0)
    table_.said()
    assert not heard(table_, sealed(start(), life=EARLIER))


def test_a_server_whose_clock_was_set_back_is_told_and_goes_on() -> None:
    """It is told once a second at most, and replays are told nothing."""
    table_ = table()
    heard(table_, sealed(start(), life=LATER))
    table_.said()
    for counter in range(1, 4):
        table_.node.receive_datagram(sealed(start(), counter, life=LIFE), source=P)
    table_.node.receive_datagram(sealed(start(), life=LATER), source=P)
    table_.drain()
    assert table_.messages() == [Outlived(2)]
    assert table_.node.dropped[DropReason.REPLAYED] == 4


def test_a_server_is_told_once_a_second_at_most_in_all_its_lives() -> None:
    """Or a single repeated datagram of a former life had it begin a new one each round trip."""
    table_, told = table(), []
    for number in range(2, 7):
        assert heard(table_, sealed(start(), life=bytes(5) + bytes([number]) + b"salt of P."))
        table_.node.receive_datagram(sealed(start(), life=LIFE), source=P)
        table_.drain()
        told += [message for message in table_.messages() if isinstance(message, Outlived)]
    assert told == [Outlived(2)]


@pytest.mark.parametrize("milliseconds", [2**40, 2**42, 2**47, 2**48 - 1, 2**48, 2**63 - 1])
def test_a_life_begins_anew_after_the_latest_that_is_known(milliseconds: int) -> None:
    """Not before it, and not more than a century ahead."""
    table_ = table()
    table_.node.join(P)
    before = int((EPOCH + 1.0) * 1000)
    for said in (0, before - 1, milliseconds):
        parcel = encode_parcel(Parcel(body=MessageData(ME, P, None, write_message(Outlived(said)))))
        table_.node.receive_datagram(sealed(parcel, said + 1), source=P)
        assert table_.node.next_event() is None
    (first, *_) = (data for _, data in table_.node.datagrams_to_send())
    began = milliseconds + 1 if milliseconds == 2**42 else before
    assert int.from_bytes(first[:6]) == began


def test_a_cluster_hears_one_whose_clock_was_set_back() -> None:
    """It is heard again at once, and the datagrams sealed by its former life are not."""
    cluster = cluster_of(3, keys=[OLD], setback_s=86_400)
    network = cluster.network
    recorded: list[tuple[Any, bytes]] = []
    send = network.send

    def noted(source: Any, destination: Any, payload: bytes) -> None:
        if source == b"N2" and len(recorded) < 100:
            recorded.append((destination, payload))
        send(source, destination, payload)

    network.send = noted  # type: ignore[method-assign]
    with cluster:
        cluster[b"N2"].call("broadcast_in_order", data=b"of before")
        network.run(network.clock.now + 1.0)
        network.send = send  # type: ignore[method-assign]
        host = cluster[b"N2"]
        host.crash()
        host.start()
        host.call("join", sid=b"N0")
        assert network.run(network.clock.now + 10.0, done=lambda: joined(host) == 2)
        before = [cluster[sid].machine.dropped[DropReason.REPLAYED] for sid in (b"N0", b"N1")]
        for destination, payload in recorded:
            send(b"N2", destination, payload)
        network.run(network.clock.now + 1.0)
        after = [cluster[sid].machine.dropped[DropReason.REPLAYED] for sid in (b"N0", b"N1")]
    assert len(recorded) <= sum(after) - sum(before)


def joined(host: Host) -> int:
    return sum(view.state is PeerState.JOINED for view in host.machine.peers().values())


def test_a_replay_is_no_way_to_make_a_victim_listen() -> None:
    """It is of no use anywhere else, nor from elsewhere, nor on the way back."""
    table_ = table()
    assert heard(table_, sealed(start()))
    datagrams = [sealed(start(), 2, to=Q), sealed(start(), 2, source=ME, to=P)]
    assert not any(heard(table_, datagram) for datagram in datagrams)
    assert not heard(table_, sealed(start(), 2), source=Q)
    assert heard(table_, sealed(start(), 2))


def test_memory_for_sources_is_bounded() -> None:
    table_ = table(limits=Limits(peers_max=4))
    sizes: list[int] = []
    for number in range(80):
        source = b"x%d" % number
        for life in (LIFE, LATER):
            table_.node.receive_datagram(
                sealed(b"de", 2**40, life=life, source=source), source=source
            )
            table_.drain()
        sizes.append(retained_size(table_.node))
    assert sizes[4] > sizes[0]
    assert max(sizes[10:]) < sizes[10] + 100


def test_memory_for_what_one_source_has_sent_is_bounded() -> None:
    """A bit for each datagram of the window, and nothing for others."""
    table_ = table()
    before = retained_size(table_.node)
    for counter in range(1, 60):
        table_.node.receive_datagram(sealed(b"de", counter * 10**4), source=P)
        table_.drain()
    assert retained_size(table_.node) < before + 2**14 / 8 + 500


def test_who_is_forgotten_is_not_heard_as_before() -> None:
    """Beyond the bound, the one with the earliest life is forgotten, and told so on its return."""
    table_ = table(limits=Limits(peers_max=1))
    lives = {b"x%d" % number: bytes(5) + bytes([number]) + bytes(10) for number in range(3)}
    for source, life in lives.items():
        table_.node.receive_datagram(sealed(b"de", life=life, source=source), source=source)
        table_.drain()
    table_.said()
    for source in (b"x0", b"new"):
        datagram = sealed(b"de", life=lives[b"x0"], source=source)
        table_.node.receive_datagram(datagram, source=source)
    table_.drain()
    assert table_.node.dropped[DropReason.REPLAYED] == 2
    parcel = encode_parcel(Parcel(ka=5))
    later = sealed(parcel, life=lives[b"x1"], source=b"new")
    table_.node.receive_datagram(later, source=b"new")
    table_.drain()
    assert [to for to, _ in table_.sent] == [b"x0", b"new"]


def test_of_those_with_equal_lives_the_one_known_for_longest_is_forgotten() -> None:
    """It was any of them, by the hashes of their names, which differ from process to process."""
    table_ = table(limits=Limits(peers_max=8))
    names = [b"x%d" % number for number in range(17)]
    for source in names:
        table_.node.receive_datagram(sealed(b"de", source=source), source=source)
        table_.drain()
    forgotten: list[bytes] = []
    for source in names:
        before = table_.node.dropped[DropReason.REPLAYED]
        table_.node.receive_datagram(sealed(b"de", 2, source=source), source=source)
        table_.drain()
        forgotten += [source] * (table_.node.dropped[DropReason.REPLAYED] - before)
    assert forgotten == [b"x0"]


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys", [[b"short"], [bytes(33)], [OLD] * 9, [OLD, b""], OLD, "key" * 11, [1], None]
)
def test_what_is_no_key_is_refused(keys: Any) -> None:
    node = Node(me=ME, rng=Dice(), epoch=EPOCH, keys=[OLD])
    if keys is not None:
        with pytest.raises((TypeError, ValueError)):
            Node(me=ME, rng=Dice(), epoch=EPOCH, keys=keys)
    with pytest.raises((TypeError, ValueError)):
        node.rekey(keys)


def test_a_cluster_with_keys_stays_one() -> None:
    node = Node(me=ME, rng=Dice(), epoch=EPOCH, keys=[OLD])
    with pytest.raises(ValueError, match="keys"):
        node.rekey([])


def test_a_node_without_keys_gets_none() -> None:
    node = Node(me=ME, rng=Dice(), epoch=EPOCH)
    with pytest.raises(LocalProtocolError) as caught:
        node.rekey([OLD])
    assert caught.value.code is ErrorCode.NO_KEYS


def test_datagrams_have_room_for_the_seal() -> None:
    smallest = 160 + 2 * 32
    for size, keys in ((smallest, []), (smallest + 40, [OLD])):
        Node(me=ME, rng=Dice(), epoch=EPOCH, limits=Limits(datagram_size_max=size), keys=keys)
    limits = Limits(datagram_size_max=smallest + 39)
    with pytest.raises(ValueError, match="datagram_size_max"):
        Node(me=ME, rng=Dice(), epoch=EPOCH, limits=limits, keys=[OLD])


def test_all_keys_open_and_the_first_seals() -> None:
    table_ = table([NEW, OLD])
    assert heard(table_, sealed(start(), 1, key=OLD))  # the answer is opened with the first key
    assert heard(table_, sealed(start(), 2, key=NEW))
    assert not heard(table_, sealed(start(), 3, key=OTHER))
    assert not heard(table_, sealed(start(), 2, key=OLD))  # which came under the other one


def test_a_key_is_replaced_in_three_steps_and_nobody_notices() -> None:
    cluster = cluster_of(3, keys=[OLD])
    names, network = [b"N0", b"N1", b"N2"], cluster.network
    sent: list[bytes] = []
    with cluster:
        for keys in ([OLD, NEW], [NEW, OLD], [NEW]):
            for sid in names:
                cluster[sid].call("rekey", keys=keys)
                sent.append(b"%d" % len(sent))
                cluster[b"N0"].call("broadcast_in_order", data=sent[-1])
                network.run(network.clock.now + 1.0)
    for sid in names[1:]:
        events = [event for _, event in cluster[sid].events if isinstance(event, MessageReceived)]
        assert [event.data for event in events] == sent
        assert DropReason.UNAUTHENTICATED not in cluster[sid].machine.dropped


def test_who_has_only_the_old_key_is_cut_off_in_the_end() -> None:
    cluster = cluster_of(3, keys=[OLD])
    with cluster:
        for sid in (b"N0", b"N1"):
            cluster[sid].call("rekey", keys=[NEW])
        cluster.network.run(cluster.network.clock.now + 10.0)
        for sid in (b"N0", b"N1"):
            peers = cluster[sid].machine.peers()
            assert peers[b"N2"].state is PeerState.GIVEN_UP
        assert cluster[b"N0"].machine.peers()[b"N1"].state is PeerState.JOINED
        assert cluster[b"N2"].machine.dropped[DropReason.UNAUTHENTICATED] > 10


# -- clusters ----------------------------------------------------------------------------------


def cluster_of(
    size: int, *, keys: Sequence[bytes], limits: Limits = DEFAULT_LIMITS, setback_s: float = 0.0
) -> Cluster:
    """`setback_s`: for the clock of a node that starts anew."""
    network = Network(seed=3, conditions=Conditions(delay_min=0.001, delay_max=0.01))
    cluster = Cluster(network)
    names = [b"N%d" % index for index in range(size)]

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = network.random(f"{host.address!r} {host.incarnation}")
        epoch = EPOCH - (setback_s if host.incarnation > 1 else 0.0)
        return Node(me=host.address, rng=rng, epoch=epoch, timing=TIMING, limits=limits, keys=keys)

    for sid in names:
        cluster.add(sid, build)
    cluster[names[0]].call("start")
    for sid in names[1:]:
        cluster[sid].call("join", sid=names[0])
    network.run(3.0)
    for host in cluster:
        states = [view.state for view in host.machine.peers().values()]
        assert states == [PeerState.JOINED] * (size - 1)
    return cluster


def watch(network: Network) -> list[int]:
    """The sizes of the datagrams from now on."""
    sizes: list[int] = []
    send = network.send

    def noted(source: Any, destination: Any, payload: bytes) -> None:
        sizes.append(len(payload))
        send(source, destination, payload)

    network.send = noted  # type: ignore[method-assign]
    return sizes


def test_what_is_forwarded_is_sealed_anew_on_each_link() -> None:
    cluster = cluster_of(3, keys=[OLD])
    with cluster:
        cluster.network.cut(b"N0", b"N2")
        cluster.network.run(cluster.network.clock.now + 6.0)
        assert cluster[b"N0"].machine.peers()[b"N2"].usable is False
        cluster[b"N0"].call("send_in_order", to=b"N2", data=b"around")
        cluster.network.run(cluster.network.clock.now + 2.0)
    assert any(
        isinstance(event, MessageReceived) and event.data == b"around"
        for _, event in cluster[b"N2"].events
    )


def test_parcels_mean_what_they_mean_without_a_seal() -> None:
    table_ = table()
    table_.join(P)
    table_.gossip(P, P={b"Q": table_.now})
    assert table_.events() == [PeerJoined(peer=P)]
    assert set(table_.node.peers()) == {P, Q}
    table_.tell_message(P, OneToOne(1, b"message"))
    assert table_.bodies(MessageAck)
    table_.node.send_in_order(P, b"answer")
    table_.drain()
    assert [message.data for message in table_.messages(P)] == [b"answer"]
    table_.wait(2.0, alive=(P,))
    assert table_.bodies(Gossip) is not None


# -- forgetting ---------------------------------------------------------------------------------


def test_no_member_is_forgotten_for_those_who_come_and_go() -> None:
    """Long-running members have the earliest lives of all."""
    table_ = table(limits=Limits(peers_max=2))
    assert heard(table_, sealed(start(), life=LIFE))
    for number in range(20):
        source, life = b"x%d" % number, LATER[:5] + bytes([9 + number]) + bytes(10)
        table_.node.receive_datagram(sealed(b"de", life=life, source=source), source=source)
        table_.drain()
    assert heard(table_, sealed(start(), 2, life=LIFE))


def test_two_that_have_forgotten_each_other_hear_each_other() -> None:
    """Each tells the other that it is not heard, and these messages are heard."""
    table_ = table(limits=Limits(peers_max=1))
    late = int((EPOCH + 100.0) * 1000)
    for number in range(3):
        life = (late + number).to_bytes(6) + bytes(10)
        source = b"x%d" % number
        table_.node.receive_datagram(sealed(b"de", life=life, source=source), source=source)
        table_.drain()
    told = encode_parcel(Parcel(body=MessageData(ME, P, None, write_message(Outlived(late + 5)))))
    table_.node.receive_datagram(sealed(told, life=LIFE), source=P)
    table_.sent.clear()
    assert table_.node.next_event() is None
    datagrams = [data for to, data in table_.node.datagrams_to_send() if to == P]
    assert datagrams
    assert int.from_bytes(datagrams[-1][:6]) == late + 6


@pytest.mark.parametrize("others", range(5))
def test_no_later_lives_of_others_shut_a_server_out(others: int) -> None:
    """Of those who have come and gone, or whom somebody with the key has made up."""
    table_ = table(limits=Limits(peers_max=1))
    for number in range(others):
        life, source = LATER[:5] + bytes([9 + number]) + bytes(10), b"x%d" % number
        assert heard(table_, sealed(encode_parcel(Parcel(5)), life=life, source=source), source)
    told = 0 if others < 3 else 9 + others - 3  # the latest life that is forgotten
    assert heard(table_, sealed(start(), life=LIFE)) == (others < 3)
    if told:
        assert heard(table_, sealed(start(), life=(told + 1).to_bytes(6) + bytes(10)))


CENTURY_MS = 100 * 365 * 86_400 * 1000
BEYOND = [2**48 - 1, 2**48 - 2, int((EPOCH + 3600.0) * 1000) + CENTURY_MS]


@pytest.mark.parametrize("beyond", BEYOND)
def test_a_life_from_beyond_shuts_nobody_out(beyond: int) -> None:
    """A stranger with the key has forged it, in the name of a member or of many others."""
    table_ = table(limits=Limits(peers_max=1))
    for source in (P, b"x0", b"x1", b"x2", b"x3"):
        life = beyond.to_bytes(6) + bytes(10)
        assert not heard(table_, sealed(start(), life=life, source=source), source=source)
    assert heard(table_, sealed(start(), life=LIFE))


@pytest.mark.parametrize("told", [*BEYOND, 2**63 - 1])
def test_nobody_goes_on_as_a_life_from_beyond(told: int) -> None:
    table_ = table()
    table_.tell_message(P, Outlived(told))
    table_.sent.clear()
    table_.node.join(P)
    assert table_.node.next_event() is None
    datagrams = [data for to, data in table_.node.datagrams_to_send() if to == P]
    assert datagrams
    assert int.from_bytes(datagrams[-1][:6]) == int((EPOCH + 1.0) * 1000)


def test_the_latest_life_that_is_heard_is_outlived_at_once() -> None:
    latest = int((EPOCH + 1.0) * 1000) + CENTURY_MS
    table_ = table()
    table_.tell_message(P, Outlived(latest))
    table_.node.join(P)
    assert table_.node.next_event() is None
    datagrams = [data for to, data in table_.node.datagrams_to_send() if to == P]
    assert int.from_bytes(datagrams[-1][:6]) == latest + 1


def test_the_latest_life_that_is_heard_can_be_outlived() -> None:
    latest = int((EPOCH + 1.0) * 1000) + CENTURY_MS
    table_ = table()
    assert heard(table_, sealed(start(), life=latest.to_bytes(6) + bytes(10)))
    table_.wait(0.002)
    assert heard(table_, sealed(start(), 2, life=(latest + 1).to_bytes(6) + bytes(10)))


def test_one_that_leaves_before_it_has_begun_answers_nobody() -> None:
    """Its datagrams would have no life to carry."""
    key = bytes(32)
    node = Node(me=ME, rng=Dice(), epoch=EPOCH, keys=[key])
    node.advance(1.0)
    node.leave()
    nonce = bytes(23) + b"\x01"
    asking = close_box(encode_parcel(Parcel(ka=5)), nonce, key=key, source=P, to=ME)
    node.receive_datagram(asking, source=P)
    assert node.next_event() == Closed()
    assert node.datagrams_to_send() == []
