"""A request: its state, and the verbs by which the caller takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar, Unpack

from culm.arguments import check_int, check_type
from culm.bamboo.entry import Entry, verify_signature
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.bamboo.records import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer
from culm.machine import ContractErrorCode, LocalProtocolError
from culm.point2point import messages
from culm.point2point.channels import Output
from culm.point2point.codec import PacketType, encode_control
from culm.point2point.direction import Incoming, Outgoing
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.messages import Adjust, Cancel, CancelReason, Demand, Eagerness
from culm.point2point.pieces import Candidates, Cursor, Part, Piece, PieceRange
from culm.point2point.states import Input, RequestState, after
from culm.wire import varu64
from culm.wire.multihash import HashFamily

P = ParamSpec("P")
S = TypeVar("S", bound="Openable")
R = TypeVar("R")

_ENCODE = varu64.encode
_OVER: Final = (RequestState.CANCELLING, RequestState.CANCELLED, RequestState.ENDED)


class Openable:
    """An object whose verbs may be called only as long as the connection lasts."""

    __slots__ = ()

    _output: Output

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        if self._output.over:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)


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


class Intake(Enum):
    """The use of data that comes in for a request."""

    TAKEN = "taken"
    WAITING = "waiting for the caller's answer"
    PASSED_OVER = "passed over"


@dataclass(slots=True, eq=False, repr=False)
class Request(Openable):
    """One synchronisation request of a `Connection`.

    It outlives its end: then its verbs raise, and a later request with the same id is another
    one.

    Every verb raises `LocalProtocolError` if a rule forbids it; nothing has changed
    then.  The codes are those that the peer's connection would be closed with.
    """

    request_id: int
    proposal: messages.Proposal
    _output: Output
    ours: bool
    """Whether we have proposed it."""
    unanswered: bool = True
    """Whether the other side has yet to answer it."""
    life: RequestState = field(init=False)
    """Its place in the table of states, also when it is too late for any verb."""
    incoming: Incoming = field(init=False)
    outgoing: Outgoing = field(init=False)
    intake: Intake = Intake.TAKEN
    marked: bool = False
    """The peer has confirmed the cancellation on the data channel: it sends nothing more."""
    sent_until: int = 0
    """The end of its data among all bytes that we have put on the data channel."""

    def __post_init__(self) -> None:
        self.life = RequestState.PROPOSED_BY_US if self.ours else RequestState.PROPOSED_BY_PEER
        proposal, range_ = self.proposal, PieceRange(self.proposal)
        of_us, of_peer = (Demand.of(proposal), None) if self.ours else (None, Demand.of(proposal))
        self.incoming = Incoming(Candidates(range_, of_us))
        self.outgoing = Outgoing(Candidates(range_, of_peer))
        self.incoming.face(self.outgoing)
        self.outgoing.face(self.incoming)
        if proposal.expected_hash is not None:
            self.outgoing.links[proposal.expected_seqnum] = proposal.expected_hash

    def __repr__(self) -> str:
        return f"<Request {self.request_id} {self.state.value}>"

    # Queries.

    @property
    def state(self) -> RequestState:
        """``ENDED``, too, as soon as it is too late for any verb."""
        return RequestState.ENDED if self._output.over else self.life

    @property
    def is_open(self) -> bool:
        """Whether it is proposed or confirmed, and neither side has cancelled it."""
        return self.state not in _OVER

    @property
    def discarding(self) -> bool:
        """Whether data that still comes is passed over."""
        return self.intake is Intake.PASSED_OVER

    @property
    def send_cursor(self) -> Cursor:
        """Our place in the range: the next piece to send."""
        return self.outgoing.cursor

    @property
    def receive_cursor(self) -> Cursor:
        """The peer's place in the range: the next piece to come."""
        return self.incoming.cursor

    @property
    def all_received(self) -> bool:
        """Whether nothing more will come that counts.

        After an adjustment the peer may still be within the larger range, in pieces that are no
        longer wanted.
        """
        return any(cursor.piece is None for cursor in self.incoming.candidates)

    @property
    def passed_cursor(self) -> Cursor:
        """The place that the peer has reached, without a piece that it has to take back.

        The end of the range if `all_received`, even where the peer may be elsewhere, too.
        """
        incoming = self.incoming
        for cursor in incoming.candidates.possible.cursors:
            if cursor.piece is None:
                return cursor
        passed = incoming.candidates.first
        return Cursor(passed.range, passed.index - 1) if incoming.apology_owed else passed

    @property
    def behind(self) -> int:
        """The number of pieces that we may pass over because the peer has passed them.

        Metadata that the peer has only notified does not count if the peer is due to send its
        payload: we can send that payload only after the metadata.
        """
        passed, cursor = self.passed_cursor, self.outgoing.cursor
        behind = cursor.is_behind(passed)
        if passed.piece is None:  # it may also be elsewhere, and want some of these
            behind = min(behind, self.incoming.ahead_of(cursor))
            passed = Cursor(cursor.range, cursor.index + behind)
        if not behind or passed.piece is None or passed.piece.part is Part.METADATA:
            return behind
        return behind - 1 if self.incoming.payload_told(passed) is None else behind

    @property
    def due_entry(self) -> Entry | None:
        """The entry whose payload we send next, if the connection knows it."""
        return self.outgoing.entry

    @property
    def apology_owed(self) -> bool:
        """Whether our last piece was wrong: only `apologize` is allowed."""
        return self.outgoing.apology_owed

    @property
    def peer_demand(self) -> Demand | None:
        """The peer's demand on us; ``None`` before it has confirmed."""
        return self.outgoing.demand

    @property
    def our_demand(self) -> Demand | None:
        """Our demand on the peer; ``None`` before we have confirmed."""
        return self.incoming.demand

    @property
    def takes_data(self) -> bool:
        """Whether data of the peer may come, and counts: after its cancel, too."""
        ended = self.life is RequestState.ENDED
        return self.intake is Intake.TAKEN and not ended and self.expects_data

    @property
    def expects_data(self) -> bool:
        """Whether the peer may have been right to send data, before it was cancelled, too."""
        asked = self.incoming.demand is not None
        answered = self.outgoing.demand is not None
        return asked and (answered or self.life is not RequestState.CANCELLED)

    def link(self, seqnum: int) -> bytes | None:
        """The hash of entry `seqnum`, if the request tells it."""
        return self.outgoing.link(seqnum)

    def agrees(self, seqnum: int, hash: bytes) -> bool:
        """Whether all that this request tells of entry `seqnum` is that it has that hash."""
        sent, received = self.outgoing.links, self.incoming.links
        return sent.get(seqnum, hash) == received.get(seqnum, hash) == hash

    # Control channel.

    def move(self, input: Input) -> None:
        """Take one step through the table of states; raises `Violation`."""
        self.life = after(self.life, input)

    @local
    def confirm(
        self,
        eagerness: Eagerness,
        *,
        links: Mapping[int, bytes] | None = None,
        verifier: PayloadVerifier | None = None,
        **changes: Unpack[messages.Changes],
    ) -> None:
        """Accept the peer's proposal; from now on data may flow in both directions.

        `links` are hashes of stored entries (by sequence number) that entries of the
        range link to, so that they need not be asked for with `HashWanted`; the open
        targets of ``start - 1`` suffice.  `verifier` has seen the bytes before the
        proposal's ``start_offset``.  `changes`: see `adjust`.
        """
        check_knowledge(links, verifier, family=self._output.family)
        adjust = Adjust(request_id=self.request_id, eagerness=eagerness, **changes)
        if adjust.eagerness is None:
            raise Violation(ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS)
        self._adjust(adjust, Input.CONFIRM, self.incoming.adjust)  # data comes after it has arrived
        self.answer()
        self.know(links, verifier)

    def know(self, links: Mapping[int, bytes] | None, verifier: PayloadVerifier | None) -> None:
        """Remember the caller's knowledge of the log; see `confirm`."""
        self.outgoing.links.update(links or {})
        self.incoming.know_beginning(verifier)

    @local
    def adjust(
        self, *, eagerness: Eagerness | None = None, **changes: Unpack[messages.Changes]
    ) -> None:
        """Narrow the range, or change our demand on the peer.

        `changes` are the other fields of `Adjust`: `allow_skipping`, `end`, `upper_certpool`,
        `size_min`, `size_max`.  An `end` or `upper_certpool` that is not less than the one in
        force is ignored.
        """
        adjust = Adjust(request_id=self.request_id, eagerness=eagerness, **changes)
        self._adjust(adjust, Input.ADJUST, self.incoming.may_adjust)

    def _adjust(
        self, adjust: Adjust, input: Input, adjust_incoming: Callable[[Adjust, Demand], None]
    ) -> None:
        demand = self.incoming.demand_after(adjust)
        self.check_adjust(adjust)
        if input is Input.ADJUST and self.is_ambiguous(adjust):
            raise Violation(ErrorCode.SPARSE_END_FIXED, f"request {self.request_id}")
        if self.incoming.candidates.count >= self._output.limits.request_adjustments_max:
            raise Violation(ErrorCode.TOO_MANY_ADJUSTMENTS, f"request {self.request_id}")
        encoded = encode_control(adjust)
        self.move(input)
        adjust_incoming(adjust, demand)
        self.outgoing.adjust(adjust)
        self._output.say(encoded)

    def check_adjust(self, adjust: Adjust) -> None:
        """An adjustment has to change something, its end and upper certpool info have to fit.

        Raises `Violation`.
        """
        if adjust == Adjust(request_id=adjust.request_id):
            raise Violation(ErrorCode.EMPTY_PACKET, "adjustment of nothing")
        bounds = self.outgoing.cursor.range.bounds.tightened(adjust.end, None)
        messages.check_end(self.proposal.start, bounds.end, adjust.upper_certpool)

    def is_ambiguous(self, adjust: Adjust) -> bool:
        """Whether it is impossible to tell the entry of data that crosses the adjustment.

        The path through a sparse range depends on its end.  Metadata proves by its signature
        which entry it is; payloads alone do not.
        """
        bounds = self.outgoing.cursor.range.bounds
        closed = self.proposal.sparse and self.proposal.payload_only
        return closed and bounds.tightened(adjust.end, None) != bounds

    def answer(self) -> None:
        """The other side has answered, or never will: it overlaps nothing from now on."""
        self.unanswered = False

    @local
    def cancel(
        self,
        reason: CancelReason,
        *,
        entry: Entry | None = None,
        seqnum: int | None = None,
        proof: ForkProof | None = None,
    ) -> None:
        """Cancel; data that still comes for this request is ignored.

        `entry` is needed with ``HASH_MISMATCH``, `seqnum` with ``END_OF_LOG`` and `proof`
        with ``FORK``.
        """
        if reason is CancelReason.CONFIRM:
            raise Violation(ErrorCode.BAD_CANCEL_CONFIRMATION, "nothing to confirm")
        cancel = Cancel(
            request_id=self.request_id, reason=reason, entry=entry, seqnum=seqnum, proof=proof
        )
        cancel.check(self.proposal)
        self.end_with(cancel)

    def end_with(self, cancel: Cancel) -> None:
        """Cancel it, and pass over all that still comes."""
        self.move(Input.CANCEL)
        self.pass_over()
        self.say_cancel(cancel)

    def say_cancel(self, cancel: Cancel) -> None:
        """Send a cancel, and the marker after the last of our data."""
        if not self.ours:
            self.answer()
        self._output.say(encode_control(cancel))
        self._output.mark_cancelled(self.request_id)

    # Data channel, outgoing.

    @local
    def send_metadata(self, entry: Entry) -> None:
        """Send the metadata of the entry that is due."""
        self._check_entry(entry)
        self.move(Input.SEND)
        possible = self.outgoing.check_metadata()
        self._check_due(entry, possible.piece)
        if self._output.checks and not self._is_valid(entry, unknown_links=True):
            raise Violation(ErrorCode.INVALID_DATA, f"metadata of entry {entry.seqnum}")
        packet = (
            b"\x81" if entry.end_of_log else b"\x80",
            self._backlink_to_send(entry),
            _ENCODE(entry.payload_size),
            entry.payload_hash,
            entry.signature,
        )
        self._put(b"".join(packet))
        self.outgoing.take_metadata(possible, entry)

    @local
    def send_payload(
        self, data: Buffer, *, entry: Entry | None = None, compress: bool = True
    ) -> bool:
        """Send the next bytes of the payload that is due; returns whether it is complete.

        `entry` is needed unless its metadata was sent just before.  An empty payload is sent as
        such.  Compression is used where it makes the packet smaller.
        """
        self.move(Input.SEND)
        outgoing, output, view = self.outgoing, self._output, memoryview(data).cast("B")
        given = self._given(entry)
        possible = outgoing.check_payload(len(view), given)
        hashed = not (output.trusts_caller and output.is_safe)
        if output.checks:
            due = outgoing.payload_entry(given)
            assert due is not None
            if outgoing.cursor.offset + len(view) == due.payload_size:
                self._check_payload(due, view)
                hashed = False  # it has been
        self._put(*output.packets(view, compress=compress))
        outgoing.begin_payload(possible, given)
        return outgoing.take_payload(view, hashed=hashed)[0]

    @local
    def send_entries(self, entries: Iterable[StoredEntry]) -> int:
        """Send metadata and payloads of entries that follow each other, in one go.

        Takes the first of `entries`, as many as make about a packet of the size that is
        our limit, and returns how many.  None if the first is not the one that is due, if
        its payload is not there, or if there is something to decide: then it has to be
        sent piece by piece; and none but from a trusted caller.
        """
        self.move(Input.SEND)
        output = self._output
        if not (output.is_safe and output.trusts_caller):
            return 0
        packets, hashes = output.run(self.proposal.log, self.outgoing, entries)
        if hashes:
            self._put(*packets)
            self.outgoing.take_run(hashes)
        return len(hashes)

    @local
    def notify(self, count: int = 1) -> None:
        """Pass over `count` pieces that the peer does not want or has sent itself."""
        check_int("count", count)
        self.move(Input.SEND)
        self.outgoing.notify(count)
        self._put(b"\x02" if count == 1 else b"\x03" + _ENCODE(count))

    @local
    def skip_payload(self, reason: SkipReason) -> None:
        """Pass over the payload that is due."""
        check_type("reason", reason, SkipReason)
        self.move(Input.SEND)
        self.outgoing.skip(reason)
        self._put(bytes([reason.value]))

    @local
    def jump(self, size: int, *, entry: Entry | None = None) -> None:
        """Pass over `size` bytes of the payload that is due, which the peer has sent."""
        check_int("size", size)
        self.move(Input.SEND)
        self.outgoing.jump(size, self._given(entry))
        self._put(b"\x07" + _ENCODE(size))

    @local
    def apologize(self) -> None:
        """Take back the last piece, which was invalid (greedy mode only)."""
        self.move(Input.SEND)
        if self._output.is_safe:
            raise Violation(ErrorCode.APOLOGY_IN_SAFE_MODE)
        pieces, last = self.outgoing.check_apology(), self.outgoing.last
        if pieces[0].part is Part.METADATA and last and self._is_valid(last.entry):
            raise Violation(ErrorCode.APOLOGY_FOR_VALID_DATA, f"for {pieces[0]}")
        self._put(bytes([PacketType.APOLOGY]))
        self.outgoing.apologize(pieces)

    def _put(self, *pieces: Buffer) -> None:
        self._output.put(self.request_id, *pieces)
        self.sent_until = self._output.queued_total

    # Checks before sending.

    def _check_entry(self, entry: object) -> None:
        family = self._output.family
        if not isinstance(entry, Entry) or entry.family is not family:
            raise TypeError(f"no entry of {family}: {type(entry).__name__}")

    def _check_due(self, entry: Entry, piece: Piece) -> None:
        if entry.seqnum != piece.seqnum or entry.log != self.proposal.log:
            part = piece.part.name.lower()
            why = f"{part} of entry {entry.seqnum} although {piece.seqnum} is due"
            raise Violation(ErrorCode.PIECE_OUT_OF_TURN, why)

    def _given(self, entry: Entry | None) -> Entry | None:
        if entry is None:
            return None
        self._check_entry(entry)
        piece = self.outgoing.cursor.piece
        if piece is None or piece.part is Part.METADATA:
            return None
        self._check_due(entry, piece)
        return entry

    def _check_payload(self, entry: Entry, data: memoryview) -> None:
        """The payload of `entry`, which ends with `data`, is right."""
        if self.outgoing.cursor.offset == 0:
            verifier: PayloadVerifier | None = PayloadVerifier(entry)
        else:  # nothing is known of a payload whose beginning was not sent here
            verifier = self.outgoing.verifier and self.outgoing.verifier.copy()
        if verifier is not None:
            verifier.update(data)
            if verifier.fault() is not None:
                raise Violation(ErrorCode.INVALID_DATA, f"payload of entry {entry.seqnum}")

    def _backlink_to_send(self, entry: Entry) -> bytes:
        """The backlink, unless there is none to send because the peer can tell it."""
        if entry.backlink is None or not has_lipmaalink(entry.seqnum):
            return b""
        return b"" if self.outgoing.tells_metadata(entry.seqnum - 1) else entry.backlink

    def _is_valid(self, entry: Entry, *, unknown_links: bool = False) -> bool:
        """Whether the peer will find the metadata of `entry` valid.

        Links that are left out must be known to the request or, with `unknown_links`, unknown to
        it: then the peer has them, or asks.  A backlink that is sent proves itself.
        """
        left_out = [(lipmaa(entry.seqnum), entry.lipmaalink)]
        if not self._backlink_to_send(entry):
            left_out.append((entry.seqnum - 1, entry.backlink))
        for target, link in left_out:
            told = self.outgoing.link(target)
            if link is not None and told != link and not (unknown_links and told is None):
                return False
        return verify_signature(entry)

    # Data channel, incoming.

    def provide_hash(self, seqnum: int, hash: bytes) -> None:
        """Answer `HashWanted`; or tell the hash of a stored entry before it is asked for."""
        check_knowledge({seqnum: hash}, family=self._output.family)
        self.outgoing.links[seqnum] = hash
        self.resume()

    def provide_entry(self, entry: Entry) -> None:
        """Answer `EntryWanted`."""
        check_type("entry", entry, Entry)
        if self.incoming.entry is None or self.intake is Intake.WAITING:
            self.incoming.know_entry(entry)
        self.resume()

    def pass_over(self) -> None:
        """Pass over all that still comes for this request.

        An answer to `HashWanted` and `EntryWanted`, too, for a request that is cancelled already.
        """
        self.intake = Intake.PASSED_OVER

    def refuse(self) -> None:
        """Close the connection: data of the peer cannot be right.

        To be used if a payload that came with ``verified=None`` is wrong, or if
        `EntryWanted` asks for an entry that the peer had to send first.
        """
        self._output.refuse()
        self.resume()

    def wait(self) -> None:
        """Take no more of the peer's data before the caller's answer."""
        self.intake = Intake.WAITING

    def resume(self) -> None:
        if self.intake is Intake.WAITING:
            self.intake = Intake.TAKEN

    def mark(self) -> None:
        self.marked = True
