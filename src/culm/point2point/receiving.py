"""The data channel, incoming: packets, their checks, and their events."""

from __future__ import annotations

from typing import NamedTuple

from culm.bamboo.entry import Entry, decode, verify_signature
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.buffer import Buffer, ReceiveBuffer
from culm.point2point import events
from culm.point2point.channels import Output, PayloadBody, RunReader, RunVerifier
from culm.point2point.codec import NUMBERS, Metadata, PacketType, decode_metadata, metadata_size_max
from culm.point2point.control import ControlChannel
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.handles import Intake, Request
from culm.point2point.messages import Mode, Negotiated
from culm.point2point.pieces import Possible, TooManyCandidates
from culm.point2point.states import Input, RequestState
from culm.wire import varu64
from culm.wire.errors import Truncated
from culm.wire.multihash import HashFamily

_PACKET_HEADER_SIZE_MAX = 1 + 2 * 9


class DataReceiver:
    """The peer's bytes on the data channel.

    `step` raises `Violation`, always for the peer's mistakes.
    """

    def __init__(
        self,
        *,
        output: Output,
        control: ControlChannel,
        in_runs: bool,
        verifier: RunVerifier | None = None,
    ) -> None:
        self._inbox = ReceiveBuffer()
        self._family = output.family
        self._control = control
        self._output = output
        self._safe = True
        self._current: Request | None = None
        self._only_switch = False  # the current request was cancelled
        self._received_size = self._switches_size = 0
        self._body = PayloadBody(self._inbox, limits=output.limits)
        self._in_runs = in_runs
        self._runs = RunReader(self._inbox, self._body, family=output.family, verifier=verifier)

    def establish(self, session: Negotiated) -> None:
        self._safe = session.receive_mode is Mode.SAFE
        self._body.establish(session.decompression_window)

    def receive(self, data: Buffer) -> None:
        self._inbox.append(data)
        self._received_size += len(data)

    @property
    def waiting(self) -> bool:
        """Whether the caller owes an answer before more is taken."""
        current = self._current
        if current is not None and current.intake is Intake.WAITING:
            return current.life is not RequestState.ENDED
        return self._runs.waits and current is not None and current.takes_data

    @property
    def gathers(self) -> bool:
        """Whether it waits, and yet more of the same may come."""
        return self.waiting and self._runs.gathers

    def ask_verifier(self) -> bool:
        """Ask for verdicts on signatures; whether there was anything to ask."""
        return self.gathers and self._runs.ask()

    @property
    def current_id(self) -> int | None:
        return None if self._current is None else self._current.request_id

    @property
    def brought(self) -> int:
        """The number of received bytes about entries.

        The bytes of a switch, which brings nothing by itself, count only until it is complete.
        """
        return self._received_size - self._switches_size

    @property
    def inside(self) -> bool:
        return self._in_packet or (self._current is not None and self.is_inside(self._current))

    @property
    def _in_packet(self) -> bool:
        return self._inbox.size > 0 or self._body.open

    def is_inside(self, request: Request) -> bool:
        """Whether the peer has begun a packet or a payload of that request, and not finished it."""
        if request.life is not RequestState.CONFIRMED:
            return False
        # After an adjustment it may have stopped, as far as we know.
        in_payload = all(
            cursor.offset > cursor.start_of(cursor.piece) for cursor in request.incoming.candidates
        )
        return in_payload or (self._in_packet and self._current is request)

    def want_no_more(self) -> None:
        """All that still comes is of no use."""
        self._body.want_no_more()

    # Packets.

    def step(self) -> events.ConnectionEvent | None:
        """Take packets up to the next event; ``None`` if bytes, or the caller's answer, are due."""
        if self._output.refuses:
            raise Violation(ErrorCode.INVALID_DATA, "refused by the caller")
        if self._runs.fault is not None and self._current is not None:
            self._runs.check(discarding=self._current.discarding)
        event: events.ConnectionEvent | None
        while not self.waiting:
            try:
                if self._body.open:
                    event = self._bring(self._data_request(), self._body.take())
                elif self._inbox.size:
                    event = self._take_run() or self._take_packet()
                else:
                    return None
            except Truncated:
                return None
            except TooManyCandidates:
                self._control.give_up(self._data_request(), events.GivenUp.UNTRACEABLE)
                event = self._control.next_event()
            if event is not None:
                return event
        return None

    def _take_run(self) -> events.ConnectionEvent | None:
        """Many entries at a time, if that is wanted and possible."""
        request = self._current
        if not self._in_runs or request is None or self._inbox[0] != PacketType.METADATA:
            return None
        if not self._safe or not request.takes_data:
            self._runs.forget()
            return None
        entries = self._runs.take(request.proposal.log, request.incoming)
        if entries:
            return events.EntriesReceived(request_id=request.request_id, entries=entries)
        if self._runs.waits:
            raise Truncated(0)  # for verdicts
        self._runs.check(discarding=request.discarding)
        return None

    def _take_packet(self) -> events.ConnectionEvent | None:
        first = self._inbox[0]
        if first >= PacketType.METADATA:
            return self._take_metadata(first)
        count = NUMBERS.get(first)
        if count is None:
            raise Violation(ErrorCode.UNUSED_DATA_BYTE, f"{first}")
        numbers, end = varu64.decode_many(self._inbox.peek(_PACKET_HEADER_SIZE_MAX), 1, count)
        event: events.ConnectionEvent | None = None
        if first == PacketType.SWITCH:
            self._switch(*numbers)
            self._switches_size += end
        elif first == PacketType.CANCELLED:
            event = self._take_marker(*numbers)
        else:
            event = self._take_for_current(first, *numbers)
        if not self.waiting:
            self._inbox.consume(end)
        return event

    def _switch(self, request_id: int) -> None:
        request = self._control.addressed(request_id, ErrorCode.SWITCH_TO_UNKNOWN_REQUEST)
        if request is not None and request.marked:
            raise Violation(ErrorCode.SWITCH_TO_UNKNOWN_REQUEST, f"{request_id} is cancelled")
        self._current, self._only_switch = request, False

    def _take_marker(self, request_id: int) -> events.ConnectionEvent | None:
        if self._only_switch:
            raise Violation(ErrorCode.NO_CURRENT_REQUEST, f"marker for {request_id}")
        request = self._control.addressed(request_id)
        if request is None:
            return None
        if request.marked:
            raise Violation(ErrorCode.ALREADY_MARKED_CANCELLED, f"{request_id}")
        if self._current is request:
            self._current, self._only_switch = None, True
        request.mark()
        self._control.end_if_due(request)
        return self._control.next_event()

    def _data_request(self) -> Request:
        request = self._current
        if request is None or request.life is RequestState.ENDED:  # the overlap rule dropped it
            raise Violation(ErrorCode.NO_CURRENT_REQUEST)
        if request.life is not RequestState.CONFIRMED:
            request.move(Input.PEER_DATA)
            if not request.expects_data:
                raise Violation(ErrorCode.NOT_CONFIRMED, "and now cancelled")
        return request

    def _take_for_current(
        self, first: int, count: int = 1, packed_size: int | None = None
    ) -> events.ConnectionEvent | None:
        request = self._data_request()
        request_id, incoming = request.request_id, request.incoming
        has_body = first in (PacketType.RAW, PacketType.COMPRESSED)
        if not request.discarding and (has_body or first == PacketType.JUMP):
            unknown = incoming.unknown_payload()
            if unknown is not None:
                request.wait()
                return events.EntryWanted(request_id=request_id, seqnum=unknown)
        if has_body:
            if not request.discarding:
                incoming.begin_payload(incoming.check_payload(count))
            self._body.begin(count, packed_size)
            return None
        if request.discarding:
            return None
        match first:
            case PacketType.NOTIFY_ONE | PacketType.NOTIFY:
                seqnum, part = incoming.notify(count)
                return events.Notified(request_id=request_id, seqnum=seqnum, part=part, count=count)
            case PacketType.JUMP:
                seqnum, at, finished = incoming.jump(count)
                return events.PayloadReceived(
                    request_id=request_id, seqnum=seqnum, offset=at, data=b"", finished=finished
                )
            case PacketType.APOLOGY:
                if self._safe:
                    raise Violation(ErrorCode.APOLOGY_IN_SAFE_MODE)
                pieces = incoming.check_apology()
                incoming.apologize(pieces)
                seqnum, part = pieces[0]
                return events.Apologized(request_id=request_id, seqnum=seqnum, part=part)
            case _:
                reason = events.SkipReason(first)
                seqnum, _ = incoming.skip(reason)
                return events.PayloadSkipped(request_id=request_id, seqnum=seqnum, reason=reason)

    # Metadata.

    def _take_metadata(self, first: int) -> events.ConnectionEvent | None:
        if first > PacketType.METADATA_END_OF_LOG:
            raise Violation(ErrorCode.UNUSED_DATA_BYTE, f"{first}")
        metadata, size = decode_metadata(
            self._inbox.peek(metadata_size_max(self._family)), family=self._family
        )
        request = self._data_request()
        incoming = request.incoming
        if request.discarding:
            self._inbox.consume(size)
            return None
        possible = incoming.check_metadata()
        try:
            rebuilt = rebuild_one(request, possible, metadata, family=self._family)
        except HashMissing as missing:
            request.wait()
            return events.HashWanted(request_id=request.request_id, seqnum=missing.seqnum)
        request_id, (entry, signed, linked) = request.request_id, rebuilt
        if not signed and self._safe:
            raise Violation(ErrorCode.INVALID_DATA, f"metadata of entry {entry.seqnum}")
        self._inbox.consume(size)
        if not signed:
            incoming.take_invalid_metadata(possible, entry)
        elif linked:
            incoming.take_metadata(possible, entry, valid=True)
        else:
            request.pass_over()
            return events.ForkSuspected(request_id=request_id, entry=entry)
        return events.MetadataReceived(request_id=request_id, entry=entry, verified=signed)

    def _bring(self, request: Request, data: bytes) -> events.ConnectionEvent | None:
        """Bytes of a payload have come (none: of an empty one)."""
        incoming = request.incoming
        if request.discarding or not (data or self._body.is_empty):
            return None
        seqnum, offset = incoming.payload_due().seqnum, incoming.cursor.offset
        finished, verified = incoming.take_payload(data)
        if verified is False and self._safe:
            raise Violation(ErrorCode.INVALID_DATA, f"payload of entry {seqnum}")
        return events.PayloadReceived(
            request_id=request.request_id,
            seqnum=seqnum,
            offset=offset,
            data=data,
            finished=finished,
            verified=verified,
        )


# Entries rebuilt from metadata packets.


class Rebuilt(NamedTuple):
    """An entry, and whether its author has signed it.

    linked: its links are those that the request knows.
    """

    entry: Entry
    signed: bool
    linked: bool


class HashMissing(Exception):
    """The hash of entry `seqnum` is needed, and the request does not tell it."""

    def __init__(self, seqnum: int) -> None:
        super().__init__(seqnum)
        self.seqnum = seqnum


def rebuild_one(
    request: Request, possible: Possible, metadata: Metadata, *, family: HashFamily
) -> Rebuilt:
    """Of the entries that may be due, rebuild the one for which it works.

    There is more than one candidate only after an adjustment of the range.  Raises
    `HashMissing`, or `Violation` if the sender should (not) have sent the backlink.
    """
    found: Rebuilt | None = None
    errors: list[Exception] = []
    candidates = (cursor.piece.seqnum for cursor in possible.cursors if cursor.piece)
    for seqnum in dict.fromkeys(candidates):
        try:
            rebuilt = _rebuild(request, seqnum, metadata, family=family)
        except (HashMissing, Violation) as error:
            errors.append(error)
        else:
            if rebuilt.signed:
                return rebuilt
            found = found or rebuilt
    missing = next((error for error in errors if isinstance(error, HashMissing)), None)
    if missing is not None or found is None:
        raise missing or errors[0]
    return found


def _rebuild(request: Request, seqnum: int, metadata: Metadata, *, family: HashFamily) -> Rebuilt:
    log, incoming, before = request.proposal.log, request.incoming, seqnum - 1
    known = incoming.link(before)
    backlink, lipmaalink = known, None
    if has_lipmaalink(seqnum):
        if metadata.backlink is not None:
            # We may have transmitted the entry before while this packet was on its way, but
            # the sender knows its own transmissions.
            if before in incoming.metadata:
                raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"metadata {before} was sent before")
            backlink = metadata.backlink
        elif not incoming.tells_metadata(before):
            raise Violation(ErrorCode.BACKLINK_MISSING, f"of entry {seqnum}")
    elif metadata.backlink is not None:
        raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"entry {seqnum} has one link")
    if seqnum > 1 and backlink is None:
        raise HashMissing(before)
    if has_lipmaalink(seqnum):
        lipmaalink = incoming.link(lipmaa(seqnum))
        if lipmaalink is None:
            raise HashMissing(lipmaa(seqnum))
    encoded = b"".join(
        (
            b"\1" if metadata.end_of_log else b"\0",
            log.author,
            varu64.encode(log.log_id),
            varu64.encode(seqnum),
            lipmaalink or b"",
            (backlink or b"") if seqnum > 1 else b"",
            metadata.tail,
        )
    )
    entry = decode(encoded, family=family)
    linked = known is None or entry.backlink in (None, known)
    return Rebuilt(entry, verify_signature(entry), linked)
