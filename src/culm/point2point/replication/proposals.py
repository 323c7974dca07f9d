"""What a replicator proposes."""

from __future__ import annotations

from collections.abc import Mapping

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa, lower_pool, upper_pool
from culm.point2point.messages import Proposal
from culm.point2point.replication.events import Want
from culm.point2point.replication.inventory import Inventory
from culm.point2point.replication.payloads import BegunPayload

__all__ = ["propose_forked", "propose_next", "propose_probe", "propose_range"]

Links = Mapping[int, bytes]  # hashes of stored entries, by sequence number


def propose_next(
    inventory: Inventory,
    want: Want,
    links: Links,
    resumption: BegunPayload | None,
    *,
    end: int | None,
) -> Proposal:
    """What comes after what we have, from the middle of a payload on if need be."""
    if resumption is None:
        start = inventory.position + 1
        expected = links[lipmaa(start)] if start > 1 else None
    else:
        start, expected = inventory.position, resumption.entry.hash()
    return Proposal(
        log=inventory.log,
        start=start,
        lower_certpool=start if resumption is None else None,
        expected_hash=expected,
        start_offset=None if resumption is None else resumption.stored,
        end=end,
        upper_certpool=end,
        payload_mandatory=want.payload_mandatory,
        **want.demand(),
    )


def propose_range(
    log: LogKey, want: Want, links: Links, resumption: BegunPayload | None, *, newest: int
) -> Proposal:
    """A range, with what we lack of the certificate pools around it.

    If we lack nothing of the lower pool, it begins where a payload that was begun ends.
    `newest`: the last entry that the peer is known to have.
    """
    start, end = want.first or 1, want.last
    lowest = next((n for n in lower_pool(start) if n not in links), start)
    expected = links[lipmaa(lowest)] if lowest > 1 else None
    begun = resumption if lowest == start else None
    if begun is not None and not want.admits_payload(begun.entry.payload_size):
        begun = None
    upper = None
    if end is not None:
        above = [] if want.payload_only else upper_pool(end)
        upper = max([end, *(n for n in above if n <= newest)])
    return Proposal(
        log=log,
        start=start,
        lower_certpool=None if begun is not None else lowest,
        expected_hash=expected if begun is None else begun.entry.hash(),
        start_offset=None if begun is None else begun.stored,
        end=end,
        upper_certpool=upper,
        sparse=want.sparse,
        payload_only=want.payload_only,
        payload_mandatory=want.payload_mandatory,
        **want.demand(),
    )


def propose_probe(log: LogKey, seqnum: int, links: Links) -> Proposal:
    """The metadata of one entry, to compare it with ours."""
    return Proposal(
        log=log,
        start=seqnum,
        lower_certpool=seqnum,
        expected_hash=links[lipmaa(seqnum)] if seqnum > 1 else None,
        end=seqnum,
        upper_certpool=seqnum,
        size_max=0,
    )


def propose_forked(proof: ForkProof) -> Proposal:
    """The forked entry, of which nobody can have what comes before: to be cancelled with `proof`.

    It begins inside the payload, so that nothing before it has to be known.
    """
    return Proposal(
        log=proof.log,
        start=proof.seqnum,
        lower_certpool=None,
        expected_hash=proof.first.hash(),
        start_offset=0,
        end=proof.seqnum,
        upper_certpool=proof.seqnum,
    )
