"""What gossip has room for, and who is told: whoever hears of others from one peer alone."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from oxen_support import EPOCH, ME, Table

from culm.oxen.contacts import ContactTable
from culm.oxen.gossip import fragment
from culm.oxen.messages import Gossip

NOW = EPOCH + 1000.0
OTHERS = [b"N%02d" % index for index in range(31)]


def test_the_one_link_to_a_server_is_always_told() -> None:
    """Of 32 rows there is room for two or three; one server is in touch with another one only."""
    contacts = ContactTable(ME, 20.0)
    hub, lonely = OTHERS[7], b"N99"
    for sid in [*OTHERS, lonely]:
        contacts.add(sid)
    for fr in [ME, *OTHERS]:
        for to in [ME, *OTHERS]:
            contacts.put(fr, to, NOW - 1)
    contacts.put(hub, lonely, NOW - 1)
    for seed in range(100):
        gossip = fragment(
            contacts,
            [*OTHERS, lonely],
            NOW,
            size_max=1200,
            resolution_s=1.0,
            rng=Random(seed),
        )
        assert gossip is not None
        assert gossip.rows[hub][gossip.columns.index(lonely)] > 0


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
    """All in the middle of a star are told in turn."""
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
