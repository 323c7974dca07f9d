"""Setups, and the messages of the control channel.

Names and meanings: seed, "Session Setup" and "The Control Channel".  Their encoding is in
`culm.point2point.codec`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TypedDict, Unpack

from culm.arguments import check_fields, check_int, check_type
from culm.bamboo.entry import Entry, LogKey, check_log, verify_signature
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa, lower_pool, upper_pool
from culm.point2point.errors import ErrorCode, Violation
from culm.wire.multihash import HashFamily
from culm.wire.varu64 import MAX


class Mode(Enum):
    """Whether data may be sent before it is verified."""

    SAFE = "safe"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Wishes of one endpoint.  Windows in bytes; 0 means: no compression.

    Source: seed, "Session Setup" and "Running Bamboo-Point-2-Point Over Bymux".
    """

    send_mode: Mode = Mode.SAFE
    receive_mode: Mode = Mode.SAFE
    send_window_max: int = 1 << 16
    receive_window_max: int = 1 << 16

    def __post_init__(self) -> None:
        check_type("send_mode", self.send_mode, Mode)
        check_type("receive_mode", self.receive_mode, Mode)
        check_fields(self, "send_window_max", "receive_window_max")

    def within(self, window_max: int) -> Setup:
        """The same with windows of no more than `window_max` bytes."""
        return replace(
            self,
            send_window_max=min(self.send_window_max, window_max),
            receive_window_max=min(self.receive_window_max, window_max),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Negotiated:
    """Modes and windows of one endpoint, negotiated by both setups."""

    send_mode: Mode
    receive_mode: Mode
    compression_window: int
    decompression_window: int

    @classmethod
    def derive(cls, ours: Setup, theirs: Setup) -> Negotiated:
        return cls(
            send_mode=_both_greedy(ours.send_mode, theirs.receive_mode),
            receive_mode=_both_greedy(ours.receive_mode, theirs.send_mode),
            compression_window=min(ours.send_window_max, theirs.receive_window_max),
            decompression_window=min(ours.receive_window_max, theirs.send_window_max),
        )


def _both_greedy(one: Mode, other: Mode) -> Mode:
    return Mode.GREEDY if one is other is Mode.GREEDY else Mode.SAFE


@dataclass(frozen=True, slots=True, order=True)
class Eagerness:
    """The part of a range that an endpoint wants to be sent.

    `payload_size_max` is -1 for notifications only, and more than any size for everything; else
    metadata is sent and payloads up to that many bytes; larger ones are notified.
    """

    payload_size_max: int

    def __post_init__(self) -> None:
        check_int("payload_size_max", self.payload_size_max, -1, MAX + 1)

    @property
    def wants_metadata(self) -> bool:
        return self.payload_size_max >= 0

    def wants_payload(self, size: int) -> bool:
        """Whether a payload of `size` bytes should be sent rather than notified."""
        return size <= self.payload_size_max


NOTIFY = Eagerness(-1)
"""Send nothing, only notify."""

EVERYTHING = Eagerness(MAX + 1)
"""Send all metadata and all payloads."""


def payloads_up_to(size: int) -> Eagerness:
    """Eagerness for all metadata, and payloads of at most `size` bytes."""
    return Eagerness(size)


class CancelReason(IntEnum):
    """Reasons to cancel a request; the values are the first bytes on the wire."""

    DO_NOT_RETRY = 128
    RESOURCE_LIMIT = 129
    END_OF_RANGE = 130
    CONFIRM = 131
    PAYLOAD_MISSING = 132
    HASH_MISMATCH = 133
    END_OF_LOG = 134
    FORK = 135


class Wishes(TypedDict, total=False):
    """Wishes of the proposing endpoint for a range: fields of `Proposal`."""

    eagerness: Eagerness
    payload_only: bool
    sparse: bool
    payload_mandatory: bool
    size_min: int
    size_max: int


class Changes(TypedDict, total=False):
    """Changes of a request by either endpoint, besides its eagerness: fields of `Adjust`."""

    allow_skipping: bool
    end: int | None
    upper_certpool: int | None
    size_min: int | None
    size_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A range of a log to synchronise, and the wishes of the proposing endpoint for it.

    `of_range`, `of_certified_range`, `of_everything_after` and `of_payload` make the usual ones.

    Sequence numbers are 1 or more.  `start_offset` makes the range begin inside the
    payload of the start entry; `lower_certpool` is then ``None``.  `end` (inclusive)
    and `upper_certpool` are both given or both ``None`` (no end).  `expected_hash` is
    the hash of the start entry if there is a `start_offset`, else that of the
    lipmaalink target of entry `lower_certpool`, and ``None`` if that is 1.
    """

    log: LogKey
    start: int
    lower_certpool: int | None
    expected_hash: bytes | None
    eagerness: Eagerness = EVERYTHING
    end: int | None = None
    upper_certpool: int | None = None
    start_offset: int | None = None
    payload_only: bool = False
    sparse: bool = False
    payload_mandatory: bool = False
    size_min: int = 0
    size_max: int = MAX

    def __post_init__(self) -> None:
        check_log(self.log)
        check_type("eagerness", self.eagerness, Eagerness)
        check_fields(self, "start", "size_min", "size_max")
        check_fields(self, "lower_certpool", "end", "upper_certpool", "start_offset", optional=True)
        if self.expected_hash is not None:
            check_type("expected_hash", self.expected_hash, bytes)

    @classmethod
    def of_range(
        cls,
        log: LogKey,
        first: int,
        last: int | None,
        *,
        link: bytes | None = None,
        **wishes: Unpack[Wishes],
    ) -> Proposal:
        """Entries `first` to `last`, both included, and nothing around them.

        ``None`` as `last`: to the end of the log, as yet unknown.

        link: the hash of entry ``lipmaa(first)``, by which the first entry is verified: known
            to an endpoint that has the entries before.  There is none if `first` is 1.
        """
        return cls(
            log=log,
            start=first,
            lower_certpool=first,
            expected_hash=link,
            end=last,
            upper_certpool=last,
            **wishes,
        )

    @classmethod
    def of_everything_after(
        cls, log: LogKey, known: int, *, link: bytes | None = None, **wishes: Unpack[Wishes]
    ) -> Proposal:
        """The entries after `known`, the last one that is known; 0: the whole log.

        link: the hash of entry ``lipmaa(known + 1)``, unless `known` is 0.
        """
        return cls.of_range(log, known + 1, None, link=link, **wishes)

    @classmethod
    def of_certified_range(
        cls, log: LogKey, first: int, last: int, *, newest: int, **wishes: Unpack[Wishes]
    ) -> Proposal:
        """Entries `first` to `last` with the certificate pools around them.

        So even a peer that knows nothing of the log can verify them.

        newest: the last entry that the peer is known to have; of the upper pool no more is
            wanted.
        """
        return cls(
            log=log,
            start=first,
            lower_certpool=1,
            expected_hash=None,
            end=last,
            upper_certpool=max([last, *(n for n in upper_pool(last) if n <= newest)]),
            **wishes,
        )

    @classmethod
    def of_payload(
        cls, log: LogKey, seqnum: int, *, offset: int, hash: bytes, **wishes: Unpack[Wishes]
    ) -> Proposal:
        """The payload of one entry that is known, from `offset` on.

        hash: that of the entry.
        """
        return cls(
            log=log,
            start=seqnum,
            lower_certpool=None,
            expected_hash=hash,
            start_offset=offset,
            end=seqnum,
            upper_certpool=seqnum,
            **wishes,
        )

    def check(self, *, family: HashFamily) -> None:
        """Raise `Violation` unless its numbers fit together."""
        start, lower, end = self.start, self.lower_certpool, self.end
        upper, hash = self.upper_certpool, self.expected_hash
        if 0 in (start, lower):
            raise Violation(ErrorCode.ZERO_SEQNUM)
        check_end(start, end, upper)
        if end is not None and upper is None:
            raise Violation(ErrorCode.UPPER_CERTPOOL_BEFORE_END, f"{upper} < {end}")
        if lower is not None and lower > start:
            raise Violation(ErrorCode.LOWER_CERTPOOL_AFTER_START, f"{lower} > {start}")
        if lower is not None and lower != start and lower not in lower_pool(start):
            raise Violation(ErrorCode.LOWER_CERTPOOL_NOT_IN_POOL, f"{lower} for {start}")
        if self.sparse and end is None:
            raise Violation(ErrorCode.SPARSE_WITHOUT_END)
        well_formed = hash is not None and len(hash) == family.encoded_size
        if (lower == 1 and hash is not None) or (lower != 1 and not well_formed):
            raise Violation(ErrorCode.BAD_HASH, "of the expected start")

    @property
    def first_seqnum(self) -> int:
        """The first entry that is transmitted in any part."""
        return self.start if self.lower_certpool is None else self.lower_certpool

    @property
    def expected_seqnum(self) -> int:
        """The entry of which `expected_hash` is the hash; 0 if there is none."""
        if self.lower_certpool is None:
            return self.start
        return lipmaa(self.lower_certpool) if self.lower_certpool > 1 else 0


def check_end(start: int, end: int | None, upper_certpool: int | None) -> None:
    """Raise `Violation` unless a range that starts there may end like this."""
    if 0 in (end, upper_certpool):
        raise Violation(ErrorCode.ZERO_SEQNUM)
    if end is not None and end < start:
        raise Violation(ErrorCode.END_BEFORE_START, f"{end} < {start}")
    if upper_certpool is not None and (end is None or upper_certpool < end):
        raise Violation(ErrorCode.UPPER_CERTPOOL_BEFORE_END, f"{upper_certpool} < {end}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantCredit:
    """The receiver may send `amount` more proposals."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """A synchronisation proposal under a fresh id."""

    request_id: int
    proposal: Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjust:
    """A change of a request; the first one of the other endpoint confirms a proposal.

    A field that is ``None`` (or false) changes nothing.
    """

    request_id: int
    eagerness: Eagerness | None = None
    allow_skipping: bool = False
    end: int | None = None
    upper_certpool: int | None = None
    size_min: int | None = None
    size_max: int | None = None

    def __post_init__(self) -> None:
        if self.eagerness is not None:
            check_type("eagerness", self.eagerness, Eagerness)
        check_fields(self, "end", "upper_certpool", "size_min", "size_max", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The end of a request.

    `entry` goes with ``HASH_MISMATCH``, `seqnum` with ``END_OF_LOG`` and `proof` with
    ``FORK``.
    """

    request_id: int
    reason: CancelReason
    entry: Entry | None = None
    seqnum: int | None = None
    proof: ForkProof | None = None

    def __post_init__(self) -> None:
        check_type("reason", self.reason, CancelReason)
        check_fields(self, "seqnum", optional=True)
        if self.entry is not None:
            check_type("entry", self.entry, Entry)
        if self.proof is not None:
            check_type("proof", self.proof, ForkProof)

    def check(self, proposal: Proposal) -> None:
        """Raise `Violation` unless it proves its claim about the range that was proposed."""
        needed = {
            CancelReason.HASH_MISMATCH: self.entry,
            CancelReason.END_OF_LOG: self.seqnum,
            CancelReason.FORK: self.proof,
        }
        for reason, given in needed.items():
            if (given is not None) != (self.reason is reason):
                raise _bogus(f"{self.reason.name} without its proof")
        first, entry, proof = proposal.first_seqnum, self.entry, self.proof
        if entry is not None:
            _check_mismatch(entry, proposal)
        if self.seqnum == 0:
            raise Violation(ErrorCode.ZERO_SEQNUM)
        if self.seqnum is not None and self.seqnum >= first:
            raise _bogus(f"end of log {self.seqnum} is not before it")
        if proof is not None and not (proof.log == proposal.log and proof.verify()):
            raise _bogus("not a fork of this log")
        if proof is not None and proof.seqnum > first:
            raise _bogus(f"fork at {proof.seqnum} is not before it")


def _check_mismatch(entry: Entry, proposal: Proposal) -> None:
    seqnum = proposal.expected_seqnum
    if entry.log != proposal.log or entry.seqnum != seqnum:
        raise _bogus(f"not entry {seqnum} of this log")
    if entry.hash() == proposal.expected_hash:
        raise _bogus("the entry has the expected hash")
    if not verify_signature(entry):
        raise _bogus("bad signature")


def _bogus(why: str) -> Violation:
    return Violation(ErrorCode.BOGUS_PROOF, why)


ControlMessage = GrantCredit | Propose | Adjust | Cancel


@dataclass(frozen=True, slots=True)
class Demand:
    """Wishes of the receiver of data.  Sizes in bytes."""

    eagerness: Eagerness = EVERYTHING
    skipping_allowed: bool = False
    size_min: int = 0
    size_max: int = MAX

    @classmethod
    def of(cls, proposal: Proposal) -> Demand:
        """The wishes of the proposing endpoint."""
        return cls(
            proposal.eagerness, not proposal.payload_mandatory, proposal.size_min, proposal.size_max
        )

    def adjusted(self, adjust: Adjust) -> Demand:
        """The demand after an adjustment.

        Raises `Violation` if the minimum size decreases or the maximum increases.
        """
        size_min = self.size_min if adjust.size_min is None else adjust.size_min
        size_max = self.size_max if adjust.size_max is None else adjust.size_max
        if size_min < self.size_min:
            raise Violation(ErrorCode.SIZE_MIN_DECREASED, f"{self.size_min} to {size_min}")
        if size_max > self.size_max:
            raise Violation(ErrorCode.SIZE_MAX_INCREASED, f"{self.size_max} to {size_max}")
        return Demand(
            self.eagerness if adjust.eagerness is None else adjust.eagerness,
            self.skipping_allowed or adjust.allow_skipping,
            size_min,
            size_max,
        )

    def admits_payload(self, size: int) -> bool:
        """Whether a payload of `size` bytes is within the sizes of interest."""
        return self.size_min <= size <= self.size_max

    def wants_payload(self, size: int) -> bool:
        """Whether a payload of `size` bytes should be sent."""
        return self.admits_payload(size) and self.eagerness.wants_payload(size)
