"""The caller's view of requests: handles, and snapshots to look at and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack

from culm.arguments import check_int, check_type
from culm.bamboo.entry import Entry
from culm.bamboo.forks import ForkProof
from culm.bamboo.store import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer
from culm.machine import LocalProtocolError
from culm.point2point.control import ControlChannel
from culm.point2point.direction import Direction, Intake
from culm.point2point.errors import Violation
from culm.point2point.events import SkipReason
from culm.point2point.messages import (
    Adjust,
    Cancel,
    CancelReason,
    Changes,
    Demand,
    Eagerness,
    Proposal,
)
from culm.point2point.pieces import Bounds, Cursor, Part, Piece
from culm.point2point.receiving import DataReceiver
from culm.point2point.requests import RequestRecord
from culm.point2point.sending import DataSender
from culm.point2point.states import RequestState, State
from culm.wire.multihash import HashFamily

__all__ = [
    "Channels",
    "ConnectionSnapshot",
    "DirectionSnapshot",
    "Request",
    "RequestSnapshot",
    "Requests",
    "check_knowledge",
    "local",
]

P = ParamSpec("P")
S = TypeVar("S", bound="Openable")
R = TypeVar("R")


class Openable(Protocol):
    """Something whose verbs are of use only as long as the connection lasts."""

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        ...


def local(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make breaking a rule in `verb`, or calling it too late, the caller's mistake."""

    @wraps(verb)
    def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.check_open()
        try:
            return verb(self, *args, **kwargs)
        except Violation as violation:
            raise LocalProtocolError(violation.code, violation.message) from None

    return checked


def check_knowledge(
    links: Mapping[int, bytes] | None,
    verifier: PayloadVerifier | None = None,
    *,
    family: HashFamily,
) -> None:
    """Raise `TypeError` or `ValueError` unless these are hashes of entries and a verifier."""
    if links is not None:
        check_type("links", links, Mapping)
        for seqnum, hash in links.items():
            check_int("seqnum", seqnum, 1)
            family.check("hash", hash)
    if verifier is not None:
        check_type("verifier", verifier, PayloadVerifier)


class Channels(NamedTuple):
    """What carries out the verbs of a request."""

    control: ControlChannel
    sender: DataSender
    receiver: DataReceiver


class Request:
    """A light handle on one synchronisation request of a `Connection`.

    Handles on the same request are equal.  A handle outlives its request: then its verbs
    raise, and a later request with the same id has handles of its own.

    Every verb raises `LocalProtocolError` if a rule forbids it; nothing has changed
    then.  The codes are those that the peer's connection would be closed with.
    """

    __slots__ = ("_channels", "_record")

    def __init__(self, record: RequestRecord, channels: Channels) -> None:
        self._record = record
        self._channels = channels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and other._record is self._record

    def __hash__(self) -> int:
        return hash(self._record)

    def __repr__(self) -> str:
        return f"<Request {self.request_id} {self.state.value}>"

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        self._channels.control.check_open()

    # What there is to know.

    @property
    def request_id(self) -> int:
        return self._record.request_id

    @property
    def proposal(self) -> Proposal:
        return self._record.proposal

    @property
    def ours(self) -> bool:
        """Whether we have proposed it."""
        return self._record.ours

    @property
    def state(self) -> RequestState:
        """``ENDED``, too, as soon as it is too late for any verb."""
        over = self._channels.control.over
        return RequestState.ENDED if over else self._record.state

    @property
    def unanswered(self) -> bool:
        """Whether who did not propose it has neither confirmed nor cancelled it."""
        return self._channels.control.requests.is_unanswered(self._record)

    @property
    def discarding(self) -> bool:
        """Whether what the peer still sends is passed over."""
        return self._record.incoming.discarding

    @property
    def send_cursor(self) -> Cursor:
        """What we send next."""
        return self._record.outgoing.cursor

    @property
    def receive_cursor(self) -> Cursor:
        """What the peer sends next."""
        return self._record.incoming.cursor

    @property
    def all_received(self) -> bool:
        """Whether nothing more will come that counts.

        After an adjustment the peer may still be within the larger range; what it is sending there
        is no longer wanted.
        """
        return any(cursor.piece is None for cursor in self._record.incoming.candidates)

    @property
    def passed_cursor(self) -> Cursor:
        """How far the peer has come, without what it has to take back.

        At the end of the range if `all_received`, wherever else the peer may be.
        """
        incoming = self._record.incoming
        for cursor in incoming.candidates.possible.cursors:
            if cursor.piece is None:
                return cursor
        passed = incoming.candidates.first
        return Cursor(passed.range, passed.index - 1) if incoming.apology_owed else passed

    @property
    def behind(self) -> int:
        """How many pieces we may pass over because the peer has passed them.

        Metadata that the peer has only notified does not count if its payload is what the peer is
        due to send: we can send that payload only after the metadata.
        """
        incoming, outgoing, passed = (
            self._record.incoming,
            self._record.outgoing,
            self.passed_cursor,
        )
        behind, due = outgoing.cursor.is_behind(passed), passed.piece
        if not behind or due is None or due.part is Part.METADATA:
            return behind
        return behind - 1 if incoming.payload_told(passed) is None else behind

    @property
    def due_entry(self) -> Entry | None:
        """The entry whose payload we send next, if the connection knows it."""
        return self._record.outgoing.entry

    @property
    def apology_owed(self) -> bool:
        """Whether what we have sent last was wrong: only `apologize` is allowed."""
        return self._record.outgoing.apology_owed

    @property
    def peer_demand(self) -> Demand | None:
        """What the peer wants of us; ``None`` before it has confirmed."""
        return self._record.outgoing.demand

    @property
    def our_demand(self) -> Demand | None:
        """What we want of the peer; ``None`` before we have confirmed."""
        return self._record.incoming.demand

    def snapshot(self) -> RequestSnapshot:
        """All that is known of the request, as a value."""
        return RequestSnapshot.of(self._record)

    def link(self, seqnum: int) -> bytes | None:
        """The hash of entry `seqnum`, where the request tells it."""
        return self._record.outgoing.link(seqnum)

    def agrees(self, seqnum: int, hash: bytes) -> bool:
        """Whether all that this request tells of entry `seqnum` is that it has that hash."""
        return self._record.agrees(seqnum, hash)

    # Control channel.

    @local
    def confirm(
        self,
        eagerness: Eagerness,
        *,
        links: Mapping[int, bytes] | None = None,
        verifier: PayloadVerifier | None = None,
        **changes: Unpack[Changes],
    ) -> None:
        """Accept the peer's proposal; from now on data may flow in both directions.

        `links` are hashes of stored entries (by sequence number) that entries of the
        range link to, so that they need not be asked for with `HashWanted`; the open
        targets of ``start - 1`` suffice.  `verifier` has seen the bytes before the
        proposal's ``start_offset``.  `changes`: see `adjust`.
        """
        control, record = self._channels.control, self._record
        check_knowledge(links, verifier, family=control.family)
        adjust = Adjust(request_id=record.request_id, eagerness=eagerness, **changes)
        control.confirm(record, adjust)
        record.outgoing.know_links(links or {})
        record.incoming.know_beginning(verifier)

    @local
    def adjust(self, *, eagerness: Eagerness | None = None, **changes: Unpack[Changes]) -> None:
        """Narrow the range, or change what we want of the peer.

        `changes` are the other fields of `Adjust`: `allow_skipping`, `end`, `upper_certpool`,
        `size_min`, `size_max`.  An `end` or `upper_certpool` that is not less than the one in
        force is ignored.
        """
        adjust = Adjust(request_id=self._record.request_id, eagerness=eagerness, **changes)
        self._channels.control.adjust(self._record, adjust)

    @local
    def cancel(
        self,
        reason: CancelReason,
        *,
        entry: Entry | None = None,
        seqnum: int | None = None,
        proof: ForkProof | None = None,
    ) -> None:
        """Cancel; what the peer still sends for this request is ignored.

        `entry` is needed with ``HASH_MISMATCH``, `seqnum` with ``END_OF_LOG`` and `proof`
        with ``FORK``.
        """
        request_id = self._record.request_id
        cancel = Cancel(
            request_id=request_id, reason=reason, entry=entry, seqnum=seqnum, proof=proof
        )
        self._channels.control.cancel(self._record, cancel)

    # Data channel, what we send.

    @local
    def send_metadata(self, entry: Entry) -> None:
        """Send the metadata of the entry that is due."""
        self._channels.sender.metadata(self._record, entry)

    @local
    def send_payload(
        self, data: Buffer, *, entry: Entry | None = None, compress: bool = True
    ) -> bool:
        """Send the next bytes of the payload that is due; returns whether it is complete.

        `entry` is needed if its metadata was not sent just before.  An empty payload is
        sent as such.  Compression is used where it makes the packet smaller.
        """
        return self._channels.sender.payload(self._record, data, entry=entry, compress=compress)

    @local
    def send_entries(self, entries: Iterable[StoredEntry]) -> int:
        """Send metadata and payloads of entries that follow each other, in one go.

        Takes the first of `entries`, as many as make about a packet of the size that is
        our limit, and returns how many.  None if the first is not the one that is due, if
        its payload is not there, or if there is something to decide: then it has to be
        sent piece by piece; and none but from a trusted caller.
        """
        return self._channels.sender.entries(self._record, entries)

    @local
    def notify(self, count: int = 1) -> None:
        """Pass over `count` pieces that the peer does not want or has sent itself."""
        check_int("count", count)
        self._channels.sender.notify(self._record, count)

    @local
    def skip_payload(self, reason: SkipReason) -> None:
        """Pass over the payload that is due."""
        check_type("reason", reason, SkipReason)
        self._channels.sender.skip(self._record, reason)

    @local
    def jump(self, size: int, *, entry: Entry | None = None) -> None:
        """Pass over `size` bytes of the payload that is due, which the peer has sent."""
        check_int("size", size)
        self._channels.sender.jump(self._record, size, entry=entry)

    @local
    def apologize(self) -> None:
        """Take back the last piece, which was invalid (greedy mode only)."""
        self._channels.sender.apologize(self._record)

    # Data channel, what we receive.

    def provide_hash(self, seqnum: int, hash: bytes) -> None:
        """Answer `HashWanted`; or tell the hash of a stored entry before it is asked for."""
        check_knowledge({seqnum: hash}, family=self._channels.control.family)
        self._record.outgoing.know_links({seqnum: hash})
        self._record.incoming.resume()

    def provide_entry(self, entry: Entry) -> None:
        """Answer `EntryWanted`."""
        check_type("entry", entry, Entry)
        self._record.incoming.know_entry(entry)

    def pass_over(self) -> None:
        """Take nothing more of what the peer sends for this request.

        An answer to `HashWanted` and `EntryWanted`, too, for a request that is cancelled already.
        """
        self._record.incoming.discard()

    def refuse(self) -> None:
        """Close the connection: what the peer has sent cannot be right.

        To be used if a payload that came with ``verified=None`` is wrong, or if
        `EntryWanted` asks for an entry that the peer had to send first.
        """
        self._channels.receiver.refuse()
        self._record.incoming.resume()


class Requests(Mapping[int, Request]):
    """The requests that have not ended, by id: a view that follows the connection."""

    __slots__ = ("_channels",)

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def __getitem__(self, request_id: int) -> Request:
        return Request(self._channels.control.requests.by_id[request_id], self._channels)

    def __iter__(self) -> Iterator[int]:
        return iter(self._channels.control.requests.by_id)

    def __len__(self) -> int:
        return len(self._channels.control.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionSnapshot:
    """What one endpoint has sent for a request, and may send next.

    cursors, demands, ranges
        Where it may be, what it may have been asked for, and where the range may end for it;
        the oldest possibility first.
    metadata
        First and last sequence number of each run of entries whose metadata was sent.
    links
        Hashes of entries, by sequence number, that later ones may link to.
    entry
        Whose payload is due, where that is known.
    hashes
        Whether that payload is being hashed.
    last
        What it may take back, and the entry that it is of.
    reached
        Where it was before it went back.
    """

    cursors: tuple[Cursor, ...]
    demands: tuple[Demand, ...]
    ranges: tuple[Bounds, ...]
    metadata: tuple[tuple[int, int], ...]
    links: Mapping[int, bytes]
    end_of_log: int | None
    entry: Entry | None
    hashes: bool
    last: tuple[tuple[Piece, ...], Entry] | None
    apology_owed: bool
    apologized: Piece | None
    reached: Cursor | None

    @classmethod
    def of(cls, direction: Direction) -> DirectionSnapshot:
        """A direction as it is now."""
        return cls(
            cursors=tuple(cursor.copy() for cursor in direction.candidates),
            demands=direction.candidates.possible.demands,
            ranges=direction.candidates.ranges,
            metadata=direction.metadata.runs(),
            links=dict(direction.links),
            end_of_log=direction.end_of_log,
            entry=direction.entry,
            hashes=direction.verifier is not None,
            last=direction.last,
            apology_owed=direction.apology_owed,
            apologized=direction.apologized,
            reached=direction.reached,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshot:
    """A request as it is now.  `marked`: the peer sends nothing more for it."""

    request_id: int
    proposal: Proposal
    ours: bool
    state: RequestState
    intake: Intake
    marked: bool
    incoming: DirectionSnapshot
    outgoing: DirectionSnapshot

    @classmethod
    def of(cls, record: RequestRecord) -> RequestSnapshot:
        """The request of that record."""
        return cls(
            request_id=record.request_id,
            proposal=record.proposal,
            ours=record.ours,
            state=record.state,
            intake=record.incoming.intake,
            marked=record.incoming.marked,
            incoming=DirectionSnapshot.of(record.incoming),
            outgoing=DirectionSnapshot.of(record.outgoing),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSnapshot:
    """A connection as it is now.

    credit, granted
        Proposals that we may make, and that the peer may.
    dropped
        First and last id of each run of ids of the peer's proposals that the overlap rule has
        dropped, as far as they are remembered.
    control_size, data_size, markers_size
        Bytes that wait on either channel; and how many of data are cancellation markers.
    queued_total
        Bytes that we have ever put on the data channel, where `current_id` is the request
        that we have switched to.
    """

    state: State
    credit: int
    granted: int
    requests: tuple[RequestSnapshot, ...]
    dropped: tuple[tuple[int, int], ...]
    control_size: int
    data_size: int
    markers_size: int
    queued_total: int
    current_id: int | None
