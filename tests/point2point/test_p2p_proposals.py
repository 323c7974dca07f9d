"""Proposals by their purpose."""

from __future__ import annotations

from p2p_support import KEY, entry

from culm.bamboo.links import lipmaa
from culm.point2point import NOTIFY, Proposal
from culm.wire.multihash import YAMF


def test_a_range_from_the_beginning_needs_to_know_nothing() -> None:
    proposal = Proposal.of_range(KEY, 1, 3)
    proposal.check(family=YAMF)
    assert proposal == Proposal(
        log=KEY, start=1, lower_certpool=1, expected_hash=None, end=3, upper_certpool=3
    )


def test_a_range_in_the_middle_hangs_on_a_link() -> None:
    link = entry(lipmaa(5)).hash()
    proposal = Proposal.of_range(KEY, 5, 7, link=link, eagerness=NOTIFY, size_max=10)
    proposal.check(family=YAMF)
    assert (proposal.expected_seqnum, proposal.expected_hash) == (lipmaa(5), link)
    assert (proposal.eagerness, proposal.size_max) == (NOTIFY, 10)


def test_everything_after_an_entry_has_no_end() -> None:
    proposal = Proposal.of_everything_after(KEY, 4, link=entry(lipmaa(5)).hash())
    proposal.check(family=YAMF)
    assert (proposal.start, proposal.end, proposal.upper_certpool) == (5, None, None)
    assert Proposal.of_everything_after(KEY, 0) == Proposal.of_range(KEY, 1, None)


def test_a_certified_range_comes_with_its_pools() -> None:
    proposal = Proposal.of_certified_range(KEY, 5, 6, newest=8)
    proposal.check(family=YAMF)
    assert (proposal.first_seqnum, proposal.expected_hash) == (1, None)
    assert proposal.upper_certpool == 8
    assert Proposal.of_certified_range(KEY, 5, 6, newest=6).upper_certpool == 6


def test_the_rest_of_a_payload() -> None:
    proposal = Proposal.of_payload(KEY, 3, offset=100, hash=entry(3).hash())
    proposal.check(family=YAMF)
    assert (proposal.start, proposal.start_offset, proposal.end) == (3, 100, 3)
    assert (proposal.lower_certpool, proposal.expected_seqnum) == (None, 3)
