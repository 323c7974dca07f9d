"""The open requests, from proposal to end, and what the peer says of them on both channels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import compress

from culm.arguments import check_int, check_type
from culm.bamboo.entry import Entry, LogKey
from culm.buffer import Buffer, Queue, ReceiveBuffer
from culm.bymux import Role
from culm.intervals import Intervals
from culm.point2point import events, messages
from culm.point2point.channels import Output, PayloadBody, RunReader, RunVerifier
from culm.point2point.codec import (
    NUMBERS,
    PacketType,
    decode_control,
    decode_metadata,
    encode_control,
    message_size_max,
    metadata_size_max,
)
from culm.point2point.direction import HashMissing
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.handles import Intake, Request
from culm.point2point.messages import Mode, Negotiated
from culm.point2point.pieces import TooManyCandidates
from culm.point2point.states import Input, RequestState
from culm.wire import varu64
from culm.wire.errors import Truncated
from culm.wire.varu64 import MAX

_PACKET_HEADER_SIZE_MAX = 1 + 2 * 9

# Rules that data of another branch break.
_OF_A_BRANCH = frozenset(
    {
        ErrorCode.APOLOGY_OWED,
        ErrorCode.EAGERNESS_VIOLATED,
        ErrorCode.EMPTY_PACKET,
        ErrorCode.INVALID_DATA,
        ErrorCode.PAYLOAD_SIZE_EXCEEDED,
        ErrorCode.SKIP_DISPROVED,
        ErrorCode.UNWANTED_PAYLOAD,
    }
)


class ControlChannel:
    """The state of the control channel: proposal credit, and the requests that have not ended.

    Ids of the proactive endpoint's proposals are even, those of the reactive one's odd.  An
    id of ours whose request has ended is free for the peer when our marker on the data
    channel has arrived, so a proposal that uses it again must not overtake that.

    Methods raise `Violation`: a mistake of the caller in a verb, of the peer in a step.
    """

    def __init__(self, *, role: Role, output: Output) -> None:
        self.requests: dict[int, Request] = {}
        """The requests that have not ended, by id."""
        self.credit = 0
        """Proposals that we may send."""
        self.granted = 0
        """Proposals that the peer may send."""
        self._role = role
        self._output = output
        self._inbox = ReceiveBuffer()
        self._events: Queue[events.ConnectionEvent] = Queue()
        # First and last entries, by log and whether they are ours, in the order of the proposals.
        self._sides: dict[tuple[LogKey, bool], dict[int, tuple[int, int]]] = {}
        self._next = int(role)  # where to look for a free id of ours
        # Where our marker ends, by ended request, in order, until that id is told to be free.
        self._leaving: OrderedDict[int, int] = OrderedDict()
        # Halves of the ids (all of one parity) of the peer's proposals that the overlap rule
        # dropped, and of some between them: it may have adjusted or cancelled them before it knew.
        self._dropped = Intervals()

    def next_event(self) -> events.ConnectionEvent | None:
        if self._events:
            return self._events.popleft()
        if not self._leaving or self._output.over:
            return None
        if next(iter(self._leaving.values())) > self._output.flushed_total:
            return None
        return events.IdFreed(request_id=self._leaving.popitem(last=False)[0])

    @property
    def inside(self) -> bool:
        return bool(self._inbox.size)

    # Our messages.

    def grant(self, amount: int) -> None:
        _check_credit(self.granted, amount)
        self.granted += amount
        self._output.say(encode_control(messages.GrantCredit(amount=amount)))

    def propose(self, proposal: messages.Proposal, request_id: int | None = None) -> Request:
        check_type("proposal", proposal, messages.Proposal)
        if request_id is not None:
            check_int("request id", request_id)
        proposal.check(family=self._output.family)
        if self.credit == 0:
            raise Violation(ErrorCode.NO_CREDIT)
        if request_id is None:  # the next one that is free
            request_id = self._next
            while request_id in self.requests or request_id in self._leaving:
                request_id = self._id_after(request_id)
        self.check_id(request_id, ours=True)
        encoded = encode_control(messages.Propose(request_id=request_id, proposal=proposal))
        request = self.open(request_id, proposal, ours=True)
        self.credit -= 1
        self._output.say(encoded)
        self._drop_overlaps(request)
        return request

    def give_up(self, request: Request, reason: events.GivenUp) -> None:
        limit = messages.CancelReason.RESOURCE_LIMIT
        request.end_with(messages.Cancel(request_id=request.request_id, reason=limit))
        self._events.append(events.RequestGivenUp(request_id=request.request_id, reason=reason))

    # The peer's messages.

    def receive(self, data: Buffer) -> None:
        self._inbox.append(data)

    def step(self) -> bool:
        """Deal with one message of the peer, if there is a whole one."""
        if not self._inbox.size:
            return False
        size_max = message_size_max(self._output.family)
        try:
            message, size = decode_control(self._inbox.peek(size_max), family=self._output.family)
        except Truncated:
            return False
        self._inbox.consume(size)
        match message:
            case messages.GrantCredit():
                self._take_credit(message.amount)
            case messages.Propose():
                self._take_proposal(message)
            case _:
                request = self.addressed(message.request_id)
                if request is None:
                    pass  # it was dropped
                elif isinstance(message, messages.Adjust):
                    self._take_adjust(request, message)
                else:
                    self._take_cancel(request, message)
        return True

    def _take_credit(self, amount: int) -> None:
        _check_credit(self.credit, amount)
        self.credit += amount
        self._events.append(events.CreditReceived(amount=amount, credit=self.credit))

    def _take_proposal(self, message: messages.Propose) -> None:
        request_id, proposal = message.request_id, message.proposal
        if self.granted == 0:
            raise Violation(ErrorCode.NO_CREDIT, f"proposal {request_id}")
        self.check_id(request_id, ours=False)
        proposal.check(family=self._output.family)
        self.granted -= 1
        request = self.open(request_id, proposal, ours=False)
        self._events.append(events.Proposed(request_id=request_id, proposal=proposal))
        self._drop_overlaps(request)

    def _take_adjust(self, request: Request, message: messages.Adjust) -> None:
        before, answers = request.life, request.ours and request.unanswered
        if answers and message.eagerness is None:
            raise Violation(ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS)
        incoming, outgoing = request.incoming, request.outgoing
        demand = outgoing.demand_after(message)
        request.check_adjust(message)
        ambiguous = request.is_ambiguous(message)
        request.move(Input.PEER_ADJUST)
        if answers:
            request.answer()
        outgoing.adjust(message, demand)
        event = events.Confirmed if before is RequestState.PROPOSED_BY_US else events.Adjusted
        self._events.append(event(request_id=request.request_id, adjustment=message))
        if before is not RequestState.CONFIRMED:  # data follows it
            incoming.adjust(message)
            return
        incoming.may_adjust(message)
        count_max = self._output.limits.request_adjustments_max
        if ambiguous or incoming.candidates.count > count_max:
            self.give_up(request, events.GivenUp.UNTRACEABLE)

    def _take_cancel(self, request: Request, message: messages.Cancel) -> None:
        message.check(request.proposal)
        confirms = message.reason is messages.CancelReason.CONFIRM
        crossed = request.life is RequestState.CANCELLING
        request.move(Input.PEER_CONFIRM_CANCEL if confirms else Input.PEER_CANCEL)
        request.answer()
        request_id = request.request_id
        if not confirms:
            self._events.append(events.Cancelled(request_id=request_id, cancel=message))
        if not crossed:
            request.say_cancel(
                messages.Cancel(request_id=request_id, reason=messages.CancelReason.CONFIRM)
            )
        self.end_if_due(request)

    # Ends of requests.

    def end_if_due(self, request: Request) -> None:
        """End the request if all four messages of its cancellation have been exchanged."""
        if request.life is not RequestState.CANCELLED or not request.marked:
            return
        request.move(Input.END)
        self._remove(request)
        if not request.ours and self.granted < MAX:
            self.grant(1)
        self._events.append(events.RequestEnded(request_id=request.request_id))

    def _drop_overlaps(self, new: Request) -> None:
        """As if the losers had never been sent: both ends give the credit back to the proposer."""
        for loser, winner in self.overlaps(new):
            self.drop(loser)
            dropped = events.ProposalDropped(
                request_id=loser.request_id, ours=loser.ours, winner_id=winner.request_id
            )
            self._events.append(dropped)
            if loser.ours:
                self._take_credit(min(1, MAX - self.credit))
            else:
                self.granted = min(self.granted + 1, MAX)

    # The table of requests, and their ids.

    def addressed(
        self, request_id: int, code: ErrorCode = ErrorCode.UNKNOWN_REQUEST
    ) -> Request | None:
        """The request with that id; ``None`` if the peer may be unaware that it was dropped.

        Raises `Violation` with that code if there is none.
        """
        request = self.requests.get(request_id)
        if request is None:
            theirs = request_id % 2 == self._role.peer
            if not (theirs and request_id // 2 in self._dropped):
                raise Violation(code, f"{request_id}")
        return request

    def check_id(self, request_id: int, *, ours: bool) -> None:
        """The id may be used for a proposal; raises `Violation`."""
        parity = self._role if ours else self._role.peer
        if request_id % 2 != parity:
            raise Violation(ErrorCode.WRONG_ID_PARITY, f"{request_id}")
        if request_id in self.requests or (ours and request_id in self._leaving):
            raise Violation(ErrorCode.ID_IN_USE, f"{request_id}")

    def _id_after(self, request_id: int) -> int:
        following = request_id + 2
        return following if following <= MAX else int(self._role)

    def open(self, request_id: int, proposal: messages.Proposal, *, ours: bool) -> Request:
        """It has been proposed, under an id that has been checked."""
        request = Request(request_id, proposal, self._output, ours=ours)
        self.requests[request_id] = request
        self._sides.setdefault((proposal.log, ours), {})[request_id] = _span(proposal)
        if not ours:
            self._dropped.discard(request_id // 2)
        elif request_id >= self._next:
            self._next = self._id_after(request_id)
        return request

    def drop(self, request: Request) -> None:
        """Forget it as if it had never been proposed."""
        request.move(Input.DROP)
        self._remove(request)
        if not request.ours:
            self._dropped.add(request.request_id // 2)
            self._dropped.join_lowest(max(1, self._output.limits.dropped_max))

    def _remove(self, request: Request) -> None:
        request_id, side = request.request_id, (request.proposal.log, request.ours)
        request.answer()
        del self.requests[request_id], self._sides[side][request_id]
        if not self._sides[side]:
            del self._sides[side]
        if request.ours:
            self._leaving[request_id] = self._output.queued_total

    # Proposals that overlap.

    def overlaps(self, new: Request) -> Iterator[tuple[Request, Request]]:
        """Losers and winners of overlapping proposals that crossed; drop the losers.

        Both endpoints compare the same pairs in the same order, because each message on
        the control channel is in order and a proposal takes part until it is answered.
        """
        side = self._sides.get((new.proposal.log, not new.ours))
        if not side:
            return
        start, end = _span(new.proposal)
        # There may be many: built-in functions go through them.
        starts, ends = zip(*side.values(), strict=True)
        both = map(all, zip(map(end.__ge__, starts), map(start.__le__, ends), strict=True))
        for rival in [self.requests[request_id] for request_id in compress(side, both)]:
            if rival.unanswered:
                loser, winner = (new, rival) if _rank(rival) < _rank(new) else (rival, new)
                yield loser, winner
                if loser is new:
                    return


def _span(proposal: messages.Proposal) -> tuple[int, int]:
    return proposal.start, MAX if proposal.end is None else proposal.end


def _rank(request: Request) -> tuple[int, bool]:
    """The order of rank: of two with one start, the one of the reactive endpoint loses."""
    return request.proposal.start, request.request_id % 2 == Role.REACTIVE


def _check_credit(old: int, amount: int) -> None:
    """Outstanding credit must not exceed 2^64 - 1."""
    if not 0 <= amount <= MAX - old:
        raise Violation(ErrorCode.CREDIT_OVERFLOW, f"{old} + {amount}")


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
            except Violation as violation:
                request = self._current
                doubted = None if request is None else request.incoming.doubtful_entry()
                if request is None or doubted is None or violation.code not in _OF_A_BRANCH:
                    raise
                event = self._suspect(request, *doubted)
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
            self._inbox.peek(metadata_size_max(self._output.family)), family=self._output.family
        )
        request = self._data_request()
        incoming = request.incoming
        if request.discarding:
            self._inbox.consume(size)
            return None
        possible = incoming.check_metadata()
        try:
            rebuilt = incoming.rebuild(possible, metadata, family=self._output.family)
        except HashMissing as missing:
            request.wait()
            return events.HashWanted(request_id=request.request_id, seqnum=missing.seqnum)
        request_id, (entry, signed, linked) = request.request_id, rebuilt
        doubtful = entry.seqnum - 1 if signed else incoming.doubtful_link(entry.seqnum)
        if self._safe and not (signed or doubtful):
            raise Violation(ErrorCode.INVALID_DATA, f"metadata of entry {entry.seqnum}")
        self._inbox.consume(size)
        if signed and linked:
            incoming.take_metadata(possible, entry, valid=True)
        elif signed or self._safe:
            return self._suspect(request, entry, doubtful)
        else:
            incoming.take_invalid_metadata(possible, entry)
        return events.MetadataReceived(request_id=request_id, entry=entry, verified=signed)

    def _suspect(self, request: Request, entry: Entry, seqnum: int) -> events.ForkSuspected:
        request.pass_over()
        return events.ForkSuspected(request_id=request.request_id, entry=entry, seqnum=seqnum)

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
