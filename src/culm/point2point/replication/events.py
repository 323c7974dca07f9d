"""Events of a `Replicator`, and the wishes of its user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, cast

from culm.arguments import check_fields, check_type
from culm.bamboo.effects import LogEffect
from culm.bamboo.entry import LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.machine import Closed, Event, StoreFailed
from culm.point2point.messages import EVERYTHING, CancelReason, Eagerness, Wishes
from culm.point2point.pieces import Part
from culm.signatures import Verify
from culm.wire.varu64 import MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent(Event):
    """Something about one log."""

    log: LogKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffered(LogEvent):
    """The peer has the log up to entry `seqnum` (0: it has nothing and wants the log)."""

    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStored(LogEvent):
    """The verified entry `seqnum` is in the store.

    `payload_stored`: its payload, of `payload_size` bytes, is there, too.
    """

    seqnum: int
    payload_size: int
    payload_stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesNotified(LogEvent):
    """The peer has `count` pieces that it did not send, from `part` of entry `seqnum` on."""

    seqnum: int
    part: Part
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadProgress(LogEvent):
    """`stored` of the `size` bytes of the payload of entry `seqnum` are in the store."""

    seqnum: int
    stored: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSynced(LogEvent):
    """The store has all entries that the peer has offered, up to `seqnum`."""

    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnded(LogEvent):
    """Entry `seqnum` ends the log; nothing more will come."""

    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkFound(LogEvent):
    """The author has forked the log.  The proof is in the store, the log ends before it."""

    proof: ForkProof


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRefused(LogEvent):
    """The peer will not replicate this log with us (now), or we not with it.

    `reason` is the peer's, or that there are too many logs here; `fault` was found by us.
    There may be neither: the peer does not go on, or our store has another entry.  Before a
    `Closed` with ``INVALID_DATA``, the fault is that of the log whose data does not verify.
    """

    reason: CancelReason | None = None
    fault: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Event):
    """Nothing is under way, and nothing has been for ``Timing.settle_s``."""


ReplicatorEvent: TypeAlias = (
    LogOffered
    | EntryStored
    | PiecesNotified
    | PayloadProgress
    | LogSynced
    | LogEnded
    | ForkFound
    | LogRefused
    | Settled
    | StoreFailed
    | Closed
)
ReplicatorEffect: TypeAlias = LogEffect | Verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Wishes for one log.  Sizes in bytes.

    Raises `TypeError` for other types, `ValueError` for impossible values: a number that is no
    sequence number (1 to 2^64-1) or size, a `last` before the `first`.

    first, last
        A range of entries, fetched once, with the missing entries of its certificate pools.
        Without them: the entries after the stored ones.  Without `last`: without end.
    sparse
        Of a range only the shortest path of links from `last` to `first`.
    payload_only
        Of a range the payloads alone; the entries are stored already.
    eagerness
        ``NOTIFY`` for notifications only, `payloads_up_to` for payloads of some size.
    payload_mandatory
        Payloads may not be left out because the peer does not have them.
    size_min, size_max
        Payloads of other sizes are left out.
    """

    first: int | None = None
    last: int | None = None
    sparse: bool = False
    payload_only: bool = False
    eagerness: Eagerness = EVERYTHING
    payload_mandatory: bool = False
    size_min: int = 0
    size_max: int = MAX

    def __post_init__(self) -> None:
        check_fields(self, "first", "last", low=1, optional=True)
        check_fields(self, "size_min", "size_max")
        check_type("eagerness", self.eagerness, Eagerness)
        for name in ("sparse", "payload_only", "payload_mandatory"):
            check_type(name, getattr(self, name), bool)
        if (self.sparse or self.payload_only or self.last is not None) and self.first is None:
            raise ValueError("a range needs its first entry")
        if self.sparse and self.last is None:
            raise ValueError("a sparse range needs its last entry")
        if self.first is not None and self.last is not None and self.last < self.first:
            raise ValueError(f"a range from {self.first} does not end with {self.last}")

    @classmethod
    def payload_of(cls, seqnum: int) -> Want:
        """The payload of one entry that is stored already."""
        return cls(first=seqnum, last=seqnum, payload_only=True)

    @property
    def is_range(self) -> bool:
        """Whether this is a range of its own rather than the next entries."""
        return self.first is not None

    def admits_payload(self, size: int) -> bool:
        """Whether a payload of `size` bytes is wanted."""
        return self.size_min <= size <= self.size_max and self.eagerness.wants_payload(size)

    def wishes(self) -> Wishes:
        """The part of it that goes into a proposal unchanged."""
        return cast("Wishes", {name: getattr(self, name) for name in Wishes.__annotations__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """The wishes of the user of a `Replicator`.

    live
        Keep logs up to date for as long as the connection lasts, in both directions.
        Otherwise fetch the entries that the peer offers when we hear of them.
    accept_new_logs
        Replicate logs that the peer offers although the store does not have them.
    offer_stored
        Serve stored entries to a peer that asks for a range of them.  (Live logs are served
        anyway; and only live logs are offered.)
    want
        Wishes for each log; those of `Replicator.replicate` are for one.  ``None``: nothing is
        wanted unless `replicate` asks for it; logs are reported (`LogOffered`), and served.
    """

    live: bool = True
    accept_new_logs: bool = False
    offer_stored: bool = True
    want: Want | None = field(default_factory=Want)

    def __post_init__(self) -> None:
        if self.want is not None:
            check_type("want", self.want, Want)
