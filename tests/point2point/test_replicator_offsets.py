"""A proposal that begins inside a payload, at any declared offset."""

from __future__ import annotations

import pytest
from p2p_support import adjust, cancel, propose, varu64
from replicator_raw import RawPeer
from replicator_support import KEEP, SERVE, key_of, news_of

from culm.bamboo.store import MemoryStore
from culm.point2point.replication import Interest
from culm.wire.multihash import YAMF

SIZES = (5, 0, 20, 700, 5)
NEWS = news_of(SIZES)
LOG = key_of(NEWS)
MAX = 2**64 - 1


@pytest.mark.parametrize("interest", [KEEP, SERVE])
@pytest.mark.parametrize("payload_only", [False, True])
@pytest.mark.parametrize("beyond", [1, 10_000, MAX])
@pytest.mark.parametrize("seqnum", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("ends", [True, False])
def test_one_that_begins_beyond_it_is_cancelled(
    seqnum: int, beyond: int, payload_only: bool, interest: Interest, ends: bool
) -> None:
    peer = RawPeer(NEWS, interest=interest)
    offset = min(MAX, SIZES[seqnum - 1] + beyond)
    seen = len(peer.data_seen)
    peer.control(
        propose(
            0,
            seqnum,
            log=LOG,
            hash=NEWS[seqnum - 1].entry.hash(),
            offset=offset,
            end=(seqnum, seqnum) if ends else None,
            flags=4 if payload_only else 0,
        )
    )
    peer.control(*(adjust(n, "all") for n in peer.machine.connection.requests if n % 2))
    assert peer.code is None
    assert cancel(0, 128) in peer.control_seen
    assert NEWS[seqnum - 1].entry.signature not in peer.data_seen[seen:]


@pytest.mark.parametrize("seqnum", [1, 2, 3, 4, 5])
def test_one_that_begins_at_its_end_is_served(seqnum: int) -> None:
    """Nothing of it is missing except the confirmation that this is all."""
    peer = RawPeer(NEWS, interest=SERVE)
    size = SIZES[seqnum - 1]
    peer.control(
        propose(0, seqnum, log=LOG, hash=NEWS[seqnum - 1].entry.hash(), offset=size, end=(5, 5))
    )
    assert peer.code is None
    assert b"\x08" + varu64(0) in peer.data_seen
    assert cancel(0, 130) in peer.control_seen


@pytest.mark.parametrize("beyond", [1, MAX - 700])
def test_the_entry_may_come_to_be_here_only_afterwards(beyond: int) -> None:
    """Entry 4 is missing when the proposal comes: it cannot be judged yet."""
    store = MemoryStore(family=YAMF)
    store.append(LOG, [*NEWS[:3], NEWS[4]])
    peer = RawPeer(store=store, interest=SERVE)
    peer.control(
        propose(0, 4, log=LOG, hash=NEWS[3].entry.hash(), offset=700 + beyond, end=(4, 4), flags=4)
    )
    peer.stored(NEWS[3])
    assert peer.code is None
    assert cancel(0, 128) in peer.control_seen
