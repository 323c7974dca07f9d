"""The caller's handle on one request, and the state that both channels share of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from culm.arguments import check_int, check_type
from culm.bamboo.entry import Entry
from culm.bamboo.forks import ForkProof
from culm.bamboo.store import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer
from culm.machine import LocalProtocolError
from culm.point2point.demand import Demand
from culm.point2point.errors import Violation
from culm.point2point.events import SkipReason
from culm.point2point.messages import Adjust, CancelReason, Eagerness, Proposal
from culm.point2point.pieces import Cursor, Range
from culm.point2point.states import Input, RequestState, after
from culm.point2point.track import Track
from culm.wire.multihash import HashFamily

if TYPE_CHECKING:
    from culm.point2point.control import ControlChannel
    from culm.point2point.receiving import DataReceiver
    from culm.point2point.sending import DataSender

__all__ = ["Request", "check_knowledge", "local"]

P = ParamSpec("P")
S = TypeVar("S", bound="Openable")
R = TypeVar("R")


class Openable(Protocol):
    """Something whose verbs are of use only as long as the connection lasts."""

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        ...


def local(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make every rule that `verb` breaks the caller's mistake, and coming too late, too."""

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
    """Raise `TypeError` or `ValueError` for what is no hashes of entries, or no verifier."""
    if links is not None:
        check_type("links", links, Mapping)
        for seqnum, hash in links.items():
            check_int("seqnum", seqnum, 1)
            family.check("hash", hash)
    if verifier is not None:
        check_type("verifier", verifier, PayloadVerifier)


class Request:
    """One synchronisation request: a light handle for its verbs, and its state.

    Every verb raises `LocalProtocolError` if a rule forbids it; nothing has changed
    then.  The codes are those that the peer's connection would be closed with.
    """

    __slots__ = (
        "_control",
        "_receiver",
        "_sender",
        "cancelled_by_us",
        "discarding",
        "incoming",
        "marked_by_peer",
        "original_range",
        "ours",
        "outgoing",
        "proposal",
        "request_id",
        "sent_until",
        "state",
        "unanswered",
        "verifier",
    )

    def __init__(
        self,
        request_id: int,
        proposal: Proposal,
        *,
        ours: bool,
        control: ControlChannel,
        sender: DataSender,
        receiver: DataReceiver,
    ) -> None:
        self.request_id = request_id
        self.proposal = proposal
        self.ours = ours
        self.state = RequestState.PROPOSED_BY_US if ours else RequestState.PROPOSED_BY_PEER
        self.unanswered = True  # the other endpoint has neither confirmed nor cancelled
        self.cancelled_by_us = self.marked_by_peer = False
        self.sent_until = 0  # where the data of this request ends among all that we have queued
        self.discarding = False  # we do not want what the peer has on its way
        self.verifier: PayloadVerifier | None = None  # of the payload that is coming in
        self.original_range = Range.of(proposal)
        self.incoming, self.outgoing = Track(self.original_range), Track(self.original_range)
        self.incoming.other, self.outgoing.other = self.outgoing, self.incoming
        self.incoming.views.join(self.outgoing.views)
        (self.incoming if ours else self.outgoing).views.demand(Demand.of(proposal))
        if proposal.expected_hash is not None:
            self.know_link(proposal.expected_seqnum, proposal.expected_hash)
        self._control, self._sender, self._receiver = control, sender, receiver

    def __repr__(self) -> str:
        return f"<Request {self.request_id} {self.state.value}>"

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        self._control.check_open()

    def move(self, input: Input) -> None:
        """Take one step through the table of states; raises `Violation`."""
        self.state = after(self.state, input)

    def know_link(self, seqnum: int, hash: bytes) -> None:
        """Remember the hash of an entry that others may link to."""
        self.outgoing.links[seqnum] = hash

    def agrees(self, seqnum: int, hash: bytes) -> bool:
        """Whether all that this request tells of entry `seqnum` is that it has that hash."""
        sent, received = self.outgoing.links, self.incoming.links
        return sent.get(seqnum, hash) == received.get(seqnum, hash) == hash

    @property
    def send_cursor(self) -> Cursor:
        """What we send next."""
        return self.outgoing.cursor

    @property
    def receive_cursor(self) -> Cursor:
        """What the peer sends next."""
        return self.incoming.cursor

    @property
    def all_received(self) -> bool:
        """Whether nothing more will come that counts.

        After an adjustment the peer may be told to be within the larger range yet; what it
        has on its way there is not wanted any more.
        """
        return any(cursor.piece is None for cursor in self.incoming.views)

    @property
    def peer_demand(self) -> Demand | None:
        """What the peer wants of us; ``None`` before it has confirmed."""
        demands = self.outgoing.views.demands
        return demands[-1] if demands else None

    @property
    def our_demand(self) -> Demand | None:
        """What we want of the peer; ``None`` before we have confirmed."""
        demands = self.incoming.views.demands
        return demands[-1] if demands else None

    # Control channel.

    @local
    def confirm(
        self,
        eagerness: Eagerness,
        *,
        allow_skipping: bool = False,
        end: int | None = None,
        upper_certpool: int | None = None,
        size_min: int | None = None,
        size_max: int | None = None,
        links: Mapping[int, bytes] | None = None,
        verifier: PayloadVerifier | None = None,
    ) -> None:
        """Accept the peer's proposal; from now on data may flow in both directions.

        `links` are hashes of stored entries (by sequence number) that entries of the
        range link to, so that they need not be asked for with `HashWanted`; the open
        targets of ``start - 1`` suffice.  `verifier` has seen the bytes before the
        proposal's ``start_offset``.
        """
        check_knowledge(links, verifier, family=self._control.family)
        adjust = Adjust(
            request_id=self.request_id,
            eagerness=eagerness,
            allow_skipping=allow_skipping,
            end=end,
            upper_certpool=upper_certpool,
            size_min=size_min,
            size_max=size_max,
        )
        self._control.confirm(self, adjust)
        self.outgoing.links.update(links or {})
        self.verifier = verifier

    @local
    def adjust(
        self,
        *,
        eagerness: Eagerness | None = None,
        allow_skipping: bool = False,
        end: int | None = None,
        upper_certpool: int | None = None,
        size_min: int | None = None,
        size_max: int | None = None,
    ) -> None:
        """Narrow the range, or change what we want of the peer.

        An `end` or `upper_certpool` that is not less than the one in force is ignored.
        """
        self._control.adjust(
            self,
            Adjust(
                request_id=self.request_id,
                eagerness=eagerness,
                allow_skipping=allow_skipping,
                end=end,
                upper_certpool=upper_certpool,
                size_min=size_min,
                size_max=size_max,
            ),
        )

    @local
    def cancel(
        self,
        reason: CancelReason,
        *,
        entry: Entry | None = None,
        seqnum: int | None = None,
        proof: ForkProof | None = None,
    ) -> None:
        """Cancel; what the peer still sends for this request is passed over in silence.

        `entry` is needed with ``HASH_MISMATCH``, `seqnum` with ``END_OF_LOG`` and `proof`
        with ``FORK``.
        """
        self._control.cancel(self, reason, entry=entry, seqnum=seqnum, proof=proof)

    # Data channel, what we send.

    @local
    def send_metadata(self, entry: Entry) -> None:
        """Send the metadata of the entry that is due."""
        self._sender.metadata(self, entry)

    @local
    def send_payload(
        self, data: Buffer, *, entry: Entry | None = None, compress: bool = True
    ) -> bool:
        """Send the next bytes of the payload that is due; returns whether it is complete.

        `entry` is needed if its metadata was not sent just before.  An empty payload is
        sent as such.  Compression is used where it makes the packet smaller.
        """
        return self._sender.payload(self, data, entry=entry, compress=compress)

    @local
    def send_entries(self, entries: Iterable[StoredEntry]) -> int:
        """Send metadata and payloads of entries that follow each other, in one go.

        Takes the first of `entries`, as many as make about a packet of the size that is
        our limit, and returns how many.  None if the first is not the one that is due, if
        its payload is not there, or if there is something to decide: then it has to be
        sent piece by piece; and none but from a trusted caller.
        """
        return self._sender.entries(self, entries)

    @local
    def notify(self, count: int = 1) -> None:
        """Pass over `count` pieces that the peer does not want or has sent itself."""
        check_int("count", count)
        self._sender.notify(self, count)

    @local
    def skip_payload(self, reason: SkipReason) -> None:
        """Pass over the payload that is due."""
        check_type("reason", reason, SkipReason)
        self._sender.skip(self, reason)

    @local
    def jump(self, size: int, *, entry: Entry | None = None) -> None:
        """Pass over `size` bytes of the payload that is due, which the peer has sent."""
        check_int("size", size)
        self._sender.jump(self, size, entry=entry)

    @local
    def apologize(self) -> None:
        """Take back the last piece, which was invalid (greedy mode only)."""
        self._sender.apologize(self)

    # Data channel, what we receive.

    def provide_hash(self, seqnum: int, hash: bytes) -> None:
        """Answer `HashWanted`."""
        check_knowledge({seqnum: hash}, family=self._control.family)
        self.know_link(seqnum, hash)
        self._receiver.resume(self)

    def provide_entry(self, entry: Entry) -> None:
        """Answer `EntryWanted`."""
        check_type("entry", entry, Entry)
        self.incoming.entry = entry
        self._receiver.resume(self)

    def pass_over(self) -> None:
        """Take nothing more of what the peer sends for this request.

        An answer to `HashWanted` and `EntryWanted`, too, for a request that is cancelled already.
        """
        self.discarding = True
        self._receiver.resume(self)

    def refuse(self) -> None:
        """Close the connection: what the peer has sent cannot be right.

        To be used if a payload that came with ``verified=None`` is wrong, or if
        `EntryWanted` asks for an entry that the peer had to send first.
        """
        self._receiver.refuse()
        self._receiver.resume(self)
