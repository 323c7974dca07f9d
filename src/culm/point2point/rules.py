"""Rules on what control messages say; each raises `Violation`."""

from __future__ import annotations

from culm.bamboo.entry import Entry, verify_signature
from culm.bamboo.links import lower_pool
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.messages import Adjust, Cancel, CancelReason, Proposal
from culm.point2point.request import RequestRecord
from culm.wire.multihash import HashFamily
from culm.wire.varu64 import MAX

__all__ = ["check_adjust", "check_credit", "check_proof", "check_proposal", "is_ambiguous"]


def check_credit(old: int, amount: int) -> None:
    """Outstanding credit must not exceed 2^64 - 1."""
    if not 0 <= amount <= MAX - old:
        raise Violation(ErrorCode.CREDIT_OVERFLOW, f"{old} + {amount}")


def check_proposal(proposal: Proposal, *, family: HashFamily) -> None:
    """The numbers of a proposal have to fit together."""
    start, lower, end = proposal.start, proposal.lower_certpool, proposal.end
    upper = proposal.upper_certpool
    if 0 in (start, lower, end, upper):
        raise Violation(ErrorCode.ZERO_SEQNUM)
    if end is not None and end < start:
        raise Violation(ErrorCode.END_BEFORE_START, f"{end} < {start}")
    if (upper is None) != (end is None) or (end is not None and upper is not None and upper < end):
        raise Violation(ErrorCode.UPPER_CERTPOOL_BEFORE_END, f"{upper} < {end}")
    if lower is not None and lower > start:
        raise Violation(ErrorCode.LOWER_CERTPOOL_AFTER_START, f"{lower} > {start}")
    if lower is not None and lower != start and lower not in lower_pool(start):
        raise Violation(ErrorCode.LOWER_CERTPOOL_NOT_IN_POOL, f"{lower} for {start}")
    if proposal.sparse and end is None:
        raise Violation(ErrorCode.SPARSE_WITHOUT_END)
    hash = proposal.expected_hash
    well_formed = hash is not None and len(hash) == family.encoded_size
    if (lower == 1 and hash is not None) or (lower != 1 and not well_formed):
        raise Violation(ErrorCode.BAD_HASH, "of the expected start")


def check_adjust(record: RequestRecord, adjust: Adjust) -> None:
    """An adjustment has to change something, its end and upper certpool info have to fit."""
    if adjust == Adjust(request_id=adjust.request_id):
        raise Violation(ErrorCode.EMPTY_PACKET, "adjustment of nothing")
    if 0 in (adjust.end, adjust.upper_certpool):
        raise Violation(ErrorCode.ZERO_SEQNUM)
    if adjust.end is not None and adjust.end < record.proposal.start:
        raise Violation(ErrorCode.END_BEFORE_START, f"{adjust.end} < {record.proposal.start}")
    end = record.outgoing.cursor.range.bounds.tightened(adjust.end, None).end
    upper = adjust.upper_certpool
    if upper is not None and (end is None or upper < end):
        raise Violation(ErrorCode.UPPER_CERTPOOL_BEFORE_END, f"{upper} < {end}")


def is_ambiguous(record: RequestRecord, adjust: Adjust) -> bool:
    """Whether nobody could tell which entry data is for that crosses the adjustment.

    The path through a sparse range depends on its end.  Metadata tells by its signature what it
    is; payloads alone do not.
    """
    bounds = record.outgoing.cursor.range.bounds
    closed = record.proposal.sparse and record.proposal.payload_only
    return closed and bounds.tightened(adjust.end, None) != bounds


def check_proof(record: RequestRecord, cancel: Cancel) -> None:
    """What a cancel carries has to prove what it says."""
    proposal = record.proposal
    needed = {
        CancelReason.HASH_MISMATCH: cancel.entry,
        CancelReason.END_OF_LOG: cancel.seqnum,
        CancelReason.FORK: cancel.proof,
    }
    for reason, proof in needed.items():
        if (proof is not None) != (cancel.reason is reason):
            raise Violation(ErrorCode.BOGUS_PROOF, f"{cancel.reason.name} without its proof")
    if cancel.entry is not None:
        _check_mismatch(cancel.entry, proposal)
    if cancel.seqnum == 0:
        raise Violation(ErrorCode.ZERO_SEQNUM)
    if cancel.seqnum is not None and cancel.seqnum >= proposal.first_seqnum:
        raise Violation(ErrorCode.BOGUS_PROOF, f"end of log {cancel.seqnum} is not before it")
    if cancel.proof is not None and not (
        cancel.proof.log == proposal.log and cancel.proof.verify()
    ):
        raise Violation(ErrorCode.BOGUS_PROOF, "not a fork of this log")
    if cancel.proof is not None and cancel.proof.seqnum > proposal.first_seqnum:
        raise Violation(ErrorCode.BOGUS_PROOF, f"fork at {cancel.proof.seqnum} is not before it")


def _check_mismatch(entry: Entry, proposal: Proposal) -> None:
    seqnum = proposal.expected_seqnum
    if entry.log != proposal.log or entry.seqnum != seqnum:
        raise Violation(ErrorCode.BOGUS_PROOF, f"not entry {seqnum} of this log")
    if entry.hash() == proposal.expected_hash:
        raise Violation(ErrorCode.BOGUS_PROOF, "the entry has the expected hash")
    if not verify_signature(entry):
        raise Violation(ErrorCode.BOGUS_PROOF, "bad signature")
