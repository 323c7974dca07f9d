"""Room in gossip, and its receivers: nodes that hear of others from one peer alone come first."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import pytest
from oxen_support import EPOCH, ME, Table, all_joined, joining

from culm.oxen import DropReason, PeerJoined, PeerUnreachable
from culm.oxen.contacts import ContactTable
from culm.oxen.gossip import fragment
from culm.oxen.messages import (
    Gossip,
    MessageAck,
    MessageData,
    Parcel,
    Synchronize,
    encode_parcel,
)
from culm.testing.network import Conditions, Network

NOW = EPOCH + 1000.0
OTHERS = [b"N%02d" % index for index in range(31)]


@pytest.mark.parametrize("sid_size", [3, 8, 16, 32])
def test_the_one_link_to_a_server_is_always_told(sid_size: int) -> None:
    """Of 32 rows one to three fit; one server is in touch with a single other one.

    Columns filled the datagram if IDs were long, and nobody heard of that server.
    """
    contacts = ContactTable(ME, 20.0)
    others = [sid.ljust(sid_size, b"-") for sid in OTHERS]
    hub, lonely = others[7], b"N99".ljust(sid_size, b"-")
    for sid in [*others, lonely]:
        contacts.add(sid)
    for fr in [ME, *others]:
        for to in [ME, *others]:
            contacts.put(fr, to, NOW - 1)
    contacts.put(hub, lonely, NOW - 1)
    for seed in range(100):
        gossip = fragment(
            contacts,
            [*others, lonely],
            NOW,
            size_max=1200,
            resolution_s=1.0,
            rng=Random(seed),
        )
        assert gossip is not None
        assert gossip.rows[hub][gossip.columns.index(lonely)] > 0
        assert len(encode_parcel(Parcel(1, 1, gossip))) <= 1200


@pytest.mark.parametrize(("resolution_s", "time_size"), [(1.0, 14), (0.3, 22)])
def test_there_are_as_many_rows_as_have_room(resolution_s: float, time_size: int) -> None:
    """With 64 bytes to spare, for keepalives and for the frame of rows and columns."""
    sids = [b"server %03d" % index for index in range(12)]
    contacts = ContactTable(sids[0], 20.0)
    for sid in sids[1:]:
        contacts.add(sid)
    for fr in sids:
        for to in sids:
            contacts.put(fr, to, NOW - 1)
    none = len(encode_parcel(Parcel(body=Gossip({}, []))))
    row_size = 3 + 10 + 2 + 12 * time_size  # its server, its ends, and its times
    for size_max in range(700, 1300):
        gossip = fragment(
            contacts, sids[1:], NOW, size_max=size_max, resolution_s=resolution_s, rng=Random(1)
        )
        assert gossip is not None
        assert sorted(gossip.columns) == sids
        size = len(encode_parcel(Parcel(body=gossip))) - none
        size += len(gossip.rows) * (time_size - 5)  # no node is in touch with itself: t0.0e
        assert 64 + size <= size_max < 64 + size + row_size


def test_who_depends_on_us_is_told_every_other_time() -> None:
    table = Table()
    peers = [b"N%02d" % index for index in range(12)]
    for sid in peers:
        table.join(sid)
    lonely, *others = peers
    told: list[bytes] = []
    for _ in range(60):
        table.gossip(others[0], N01=dict.fromkeys(others, table.now), N02={b"N01": table.now})
        table.said()
        table.wait(1.0, alive=tuple(peers))
        told += [to for to, parcel in table.sent if isinstance(parcel.body, Gossip)]
    assert told.count(lonely) >= 25
    for sid in others:
        at = [index for index, to in enumerate(told) if to == sid]
        assert max(b - a for a, b in pairwise(at)) <= 26


def test_nobody_has_to_wait_for_luck() -> None:
    """All nodes around a star's centre are told by turns."""
    table = Table()
    peers = [b"N%02d" % index for index in range(15)]
    for sid in peers:
        table.join(sid)
    told: list[bytes] = []
    table.said()
    table.wait(60.0, alive=tuple(peers))
    told = [to for to, parcel in table.sent if isinstance(parcel.body, Gossip)]
    assert len(told) >= 58
    for start in range(45):
        assert set(told[start : start + 15]) == set(peers)


def test_who_joins_is_told_of_others_as_soon_as_it_has_proved_itself() -> None:
    """Before that it gets three times the bytes it has sent, which is too little for gossip."""
    table = Table()
    table.join(b"A")
    table.said()
    table.tell_message(b"P", Synchronize(0, 0))
    parcels = table.said(b"P")
    ours = next(
        parcel.body
        for parcel in parcels
        if isinstance(parcel.body, MessageData) and parcel.body.to == b"P"
    )
    table.tell(b"P", MessageAck(ME, b"P", ours.id or 0))
    assert PeerJoined(peer=b"P") in table.events()
    assert table.bodies(Gossip, b"P") == []
    asked = next(parcel.ka for parcel in parcels if parcel.ka is not None)
    table.tell(b"P", kk=asked)
    (gossip,) = table.bodies(Gossip, b"P")
    assert b"A" in gossip.columns
    assert table.node.dropped[DropReason.UNPROVED] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "star"), [(16, True), (32, False)])
def test_nobody_alive_is_unreachable_without_loss(size: int, star: bool) -> None:
    """In a star, and where one server reaches only one other; a minute is enough to give up."""
    network = Network(seed=size, conditions=Conditions(delay_min=0.005, delay_max=0.05))
    names = [b"N%02d" % index for index in range(size)]
    for one, other in combinations(names[1:], 2):
        if star or names[-1] in (one, other):
            network.cut(one, other)
    cluster = joining(network, names)
    network.run(460.0)
    for host in cluster:
        assert not [event for _, event in host.events if isinstance(event, PeerUnreachable)]
        assert all(view.reachable for view in host.machine.peers().values())
    assert all_joined(cluster)
