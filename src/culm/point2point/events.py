"""Events of a Point-2-Point `Connection`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from culm.bamboo.entry import Entry
from culm.bamboo.records import NewEntry
from culm.machine import Closed, Event
from culm.point2point.messages import Adjust, Cancel, Negotiated, Proposal
from culm.point2point.pieces import Part


class SkipReason(Enum):
    """Reasons to pass over a payload."""

    TOO_SMALL = 4
    TOO_LARGE = 5
    UNAVAILABLE = 6


class GivenUp(Enum):
    """Reasons for which we cancel a request on our own account.

    ``UNTRACEABLE``: it is impossible to tell the piece that the peer's data is for.  It has
    adjusted the range so often that more than ``Limits.request_adjustments_max`` may be in force
    for its data, or these differ at more places than we keep apart; or it has adjusted the end of a
    sparse range of payloads alone.

    ``STALLED``: for longer than ``Timing.progress_max_s`` the peer has neither answered our
    proposal nor sent a range that it has confirmed, or has taken none of the data that it wants.
    """

    UNTRACEABLE = "untraceable"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent(Event):
    """Something about one request."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Established(Event):
    """Both setups are known."""

    session: Negotiated


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditReceived(Event):
    """We may send `amount` more proposals, `credit` in all.

    The peer has granted them, or a proposal of ours was dropped and so cost nothing.
    """

    amount: int
    credit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed(RequestEvent):
    """The peer proposes; answer with `Request.confirm` or `Request.cancel`."""

    proposal: Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalDropped(RequestEvent):
    """An overlapping proposal with a smaller start won: this one was never made.

    `ours`: whether the dropped proposal was ours.
    """

    ours: bool
    winner_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed(RequestEvent):
    """The peer confirmed our proposal; data may flow."""

    adjustment: Adjust


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusted(RequestEvent):
    """The peer adjusted a request."""

    adjustment: Adjust


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(RequestEvent):
    """The peer cancelled a request.  Data that it sent before may still arrive.

    Proofs in `cancel` are verified.
    """

    cancel: Cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEnded(RequestEvent):
    """The request is over: all four messages of its cancellation are exchanged.

    Ours on the data channel may still have to leave.  The id of a proposal of ours is free when
    `IdFreed` follows; one of the peer's is free for the peer.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class IdFreed(RequestEvent):
    """A proposal of ours, which has ended or was dropped, is over on the wire, too.

    Nothing under its id is still to leave, so `Connection.propose` takes that id again.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGivenUp(RequestEvent):
    """We have cancelled a request on our own account, with ``RESOURCE_LIMIT``."""

    reason: GivenUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified(RequestEvent):
    """The peer passed over `count` pieces, the first of which is `part` of entry `seqnum`."""

    seqnum: int
    part: Part
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSkipped(RequestEvent):
    """The peer passed over the payload of entry `seqnum`."""

    seqnum: int
    reason: SkipReason


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataReceived(RequestEvent):
    """An entry, rebuilt from its packet and from the context.

    `verified`: signature and links are good.  False only in greedy mode; an apology
    must follow.
    """

    entry: Entry
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesReceived(RequestEvent):
    """Verified entries that follow each other, with their verified payloads.

    Comes only from a connection made with ``in_runs=True``, instead of the `MetadataReceived` and
    `PayloadReceived` of each entry.  How many come together depends on how the bytes arrived.
    """

    entries: tuple[NewEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSuspected(RequestEvent):
    """The peer seems to have another entry `seqnum` than we, or than an entry of its links to.

    `entry` has come, signed, with another backlink; or cannot be verified with the link that we
    know, of which neither has told the other; or its payload, which was wanted alone, is not what
    comes.  All that still comes for this request is discarded.  The peer is not to blame.  Cancel
    the request, and ask for entry `seqnum` if you want the proof.
    """

    entry: Entry
    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReceived(RequestEvent):
    """Bytes of the payload of entry `seqnum`, from `offset` on.

    With the last bytes `finished` is true, and `verified` says whether size and hash
    are right: ``None`` if the connection has not seen all of the payload, so that the
    caller has to check (and to call `Request.refuse` if it is wrong).
    """

    seqnum: int
    offset: int
    data: bytes
    finished: bool
    verified: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Apologized(RequestEvent):
    """The peer takes back the last piece: forget it, it will come again."""

    seqnum: int
    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class HashWanted(RequestEvent):
    """The hash of entry `seqnum` is needed to rebuild an entry.

    Answer with `Request.provide_hash`, or cancel the request (`Request.pass_over` if the peer has
    cancelled it meanwhile); until then nothing more is read.
    """

    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryWanted(RequestEvent):
    """The entry `seqnum` is needed to follow its payload.

    Answer with `Request.provide_entry`, or cancel the request (`Request.pass_over` if the peer has
    cancelled it meanwhile); until then nothing more is read.
    """

    seqnum: int


ConnectionEvent: TypeAlias = (
    Established
    | CreditReceived
    | Proposed
    | ProposalDropped
    | Confirmed
    | Adjusted
    | Cancelled
    | RequestEnded
    | IdFreed
    | RequestGivenUp
    | Notified
    | PayloadSkipped
    | MetadataReceived
    | EntriesReceived
    | ForkSuspected
    | PayloadReceived
    | Apologized
    | HashWanted
    | EntryWanted
    | Closed
)
