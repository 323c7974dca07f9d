"""The control channel: proposal credit, and what becomes of requests."""

from __future__ import annotations

from collections import deque

from culm.arguments import check_int, check_type
from culm.buffer import Buffer, ReceiveBuffer
from culm.bymux import Stream
from culm.machine import ContractErrorCode, LocalProtocolError
from culm.point2point.control_codec import decode_control, encode_control, message_size_max
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import (
    Adjusted,
    Cancelled,
    Confirmed,
    ConnectionEvent,
    CreditReceived,
    GivenUp,
    ProposalDropped,
    Proposed,
    RequestEnded,
    RequestGivenUp,
)
from culm.point2point.limits import Limits
from culm.point2point.messages import (
    Adjust,
    Cancel,
    CancelReason,
    ControlMessage,
    Demand,
    GrantCredit,
    Proposal,
    Propose,
)
from culm.point2point.requests import RequestRecord, RequestTable
from culm.point2point.sending import DataSender
from culm.point2point.states import Input, RequestState
from culm.wire.errors import Truncated
from culm.wire.multihash import HashFamily
from culm.wire.varu64 import MAX

__all__ = ["ControlChannel"]


class ControlChannel:
    """What has been agreed on the control channel.

    Its methods raise `Violation`; whose mistake that is depends on who has called.
    """

    def __init__(
        self,
        *,
        family: HashFamily,
        limits: Limits,
        requests: RequestTable,
        stream: Stream,
        sender: DataSender,
    ) -> None:
        self.family = family
        self.requests = requests
        self.credit = 0
        """Proposals that we may send."""
        self.granted = 0
        """Proposals that the peer may send."""
        self.over = False
        """Nothing more is sent."""
        self._adjustments_max = limits.request_adjustments_max
        self._stream = stream
        self._sender = sender
        self._inbox = ReceiveBuffer()
        self._events: deque[ConnectionEvent] = deque()

    def next_event(self) -> ConnectionEvent | None:
        """What has happened, in its order."""
        return self._events.popleft() if self._events else None

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        if self.over:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    @property
    def inside(self) -> bool:
        """Whether part of a message has come; meaningful when there are no more events."""
        return bool(self._inbox.size)

    def end(self) -> None:
        """Send nothing from now on."""
        self.over = True

    # What we do.

    def grant(self, amount: int) -> None:
        """Let the peer make `amount` more proposals."""
        _check_credit(self.granted, amount)
        self.granted += amount
        self._send(encode_control(GrantCredit(amount=amount)))

    def propose(self, proposal: Proposal, request_id: int | None = None) -> RequestRecord:
        """Spend a unit of credit on a proposal."""
        check_type("proposal", proposal, Proposal)
        if request_id is not None:
            check_int("request id", request_id)
        proposal.check(family=self.family)
        if self.credit == 0:
            raise Violation(ErrorCode.NO_CREDIT)
        flushed = self._sender.flushed_total()
        if request_id is None:
            request_id = self.requests.free_id(flushed=flushed)
        self.requests.check_id(request_id, ours=True, flushed=flushed)
        encoded = encode_control(Propose(request_id=request_id, proposal=proposal))
        record = self.requests.open(request_id, proposal, ours=True)
        self.credit -= 1
        self._send(encoded)
        self._drop_overlaps(record)
        return record

    def confirm(self, record: RequestRecord, adjust: Adjust) -> None:
        """Accept a proposal of the peer."""
        if adjust.eagerness is None:
            raise Violation(ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS)
        demand, encoded = self._checked(record, adjust, Input.CONFIRM)
        record.move(Input.CONFIRM)
        self.requests.answer(record)
        record.incoming.adjust(adjust, demand)  # what is sent is sent after it has arrived
        record.outgoing.adjust(adjust)
        self._send(encoded)

    def adjust(self, record: RequestRecord, adjust: Adjust) -> None:
        """Adjust a request."""
        demand, encoded = self._checked(record, adjust, Input.ADJUST)
        record.move(Input.ADJUST)
        record.incoming.may_adjust(adjust, demand)
        record.outgoing.adjust(adjust)
        self._send(encoded)

    def _checked(self, record: RequestRecord, adjust: Adjust, input: Input) -> tuple[Demand, bytes]:
        """What we want after a valid adjustment, and its bytes."""
        demand = record.incoming.demand_after(adjust)
        record.check_adjust(adjust)
        if input is Input.ADJUST and record.is_ambiguous(adjust):
            raise Violation(ErrorCode.SPARSE_END_FIXED, f"request {record.request_id}")
        if record.incoming.candidates.count >= self._adjustments_max:
            raise Violation(ErrorCode.TOO_MANY_ADJUSTMENTS, f"request {record.request_id}")
        return demand, encode_control(adjust)

    def cancel(self, record: RequestRecord, cancel: Cancel) -> None:
        """Cancel a request for a reason of our own."""
        if cancel.reason is CancelReason.CONFIRM:
            raise Violation(ErrorCode.BAD_CANCEL_CONFIRMATION, "nothing to confirm")
        cancel.check(record.proposal)
        record.move(Input.CANCEL)
        record.incoming.discard()
        self._send_cancel(record, cancel)

    def give_up(self, record: RequestRecord, reason: GivenUp) -> None:
        """Cancel a request that we give up."""
        request_id = record.request_id
        self.cancel(record, Cancel(request_id=request_id, reason=CancelReason.RESOURCE_LIMIT))
        self._events.append(RequestGivenUp(request_id=request_id, reason=reason))

    # What the peer does.

    def receive(self, data: Buffer) -> None:
        """Take bytes of the channel."""
        self._inbox.append(data)

    def step(self) -> bool:
        """Deal with one message of the peer, if there is a whole one."""
        if not self._inbox.size:
            return False
        size_max = message_size_max(self.family)
        try:
            message, size = decode_control(self._inbox.peek(size_max), family=self.family)
        except Truncated:
            return False
        self._inbox.consume(size)
        self._take(message)
        return True

    def _take(self, message: ControlMessage) -> None:
        match message:
            case GrantCredit():
                self._take_credit(message.amount)
            case Propose():
                self._take_proposal(message)
            case Adjust():
                self._take_adjust(message)
            case Cancel():
                self._take_cancel(message)

    def _take_credit(self, amount: int) -> None:
        _check_credit(self.credit, amount)
        self.credit += amount
        self._events.append(CreditReceived(amount=amount, credit=self.credit))

    def _take_proposal(self, message: Propose) -> None:
        request_id, proposal = message.request_id, message.proposal
        if self.granted == 0:
            raise Violation(ErrorCode.NO_CREDIT, f"proposal {request_id}")
        self.requests.check_id(request_id, ours=False, flushed=self._sender.flushed_total())
        proposal.check(family=self.family)
        self.granted -= 1
        record = self.requests.open(request_id, proposal, ours=False)
        self._events.append(Proposed(request_id=request_id, proposal=proposal))
        self._drop_overlaps(record)

    def _take_adjust(self, message: Adjust) -> None:
        record = self.requests.addressed(message.request_id)
        if record is None:
            return
        before, answers = record.state, record.ours and self.requests.is_unanswered(record)
        if answers and message.eagerness is None:
            raise Violation(ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS)
        incoming, outgoing = record.incoming, record.outgoing
        demand = outgoing.demand_after(message)
        record.check_adjust(message)
        ambiguous = record.is_ambiguous(message)
        record.move(Input.PEER_ADJUST)
        if answers:
            self.requests.answer(record)
        outgoing.adjust(message, demand)
        event = Confirmed if before is RequestState.PROPOSED_BY_US else Adjusted
        self._events.append(event(request_id=record.request_id, adjustment=message))
        if before is not RequestState.CONFIRMED:  # what is sent is sent after it
            incoming.adjust(message)
            return
        incoming.may_adjust(message)
        if ambiguous or incoming.candidates.count > self._adjustments_max:
            self.give_up(record, GivenUp.UNTRACEABLE)

    def _take_cancel(self, message: Cancel) -> None:
        record = self.requests.addressed(message.request_id)
        if record is None:
            return
        message.check(record.proposal)
        confirms = message.reason is CancelReason.CONFIRM
        crossed = record.state is RequestState.CANCELLING
        record.move(Input.PEER_CONFIRM_CANCEL if confirms else Input.PEER_CANCEL)
        self.requests.answer(record)
        request_id = record.request_id
        if not confirms:
            self._events.append(Cancelled(request_id=request_id, cancel=message))
        if not crossed:
            self._send_cancel(record, Cancel(request_id=request_id, reason=CancelReason.CONFIRM))
        self.end_if_due(record)

    # What both do.

    def end_if_due(self, record: RequestRecord) -> None:
        """End the request if all four messages of its cancellation have been exchanged."""
        if record.state is not RequestState.CANCELLED or not record.incoming.marked:
            return
        self.requests.end(record, marked_at=self._sender.queued_total)
        if not record.ours and self.granted < MAX:
            self.grant(1)
        self._events.append(RequestEnded(request_id=record.request_id))

    def _send(self, encoded: bytes) -> None:
        if not self.over:
            self._stream.send_data(encoded)

    def _send_cancel(self, record: RequestRecord, cancel: Cancel) -> None:
        if not record.ours:
            self.requests.answer(record)
        self._send(encode_control(cancel))
        self._sender.mark_cancelled(record)

    def _drop_overlaps(self, new: RequestRecord) -> None:
        for loser, winner in self.requests.overlaps(new):
            self._drop(loser, winner)

    def _drop(self, loser: RequestRecord, winner: RequestRecord) -> None:
        """As if it had never been sent: both ends give its credit back to its proposer."""
        self.requests.drop(loser, marked_at=self._sender.queued_total)
        self._events.append(
            ProposalDropped(
                request_id=loser.request_id, ours=loser.ours, winner_id=winner.request_id
            )
        )
        if loser.ours:
            self._take_credit(min(1, MAX - self.credit))
        else:
            self.granted = min(self.granted + 1, MAX)


def _check_credit(old: int, amount: int) -> None:
    """Outstanding credit must not exceed 2^64 - 1."""
    if not 0 <= amount <= MAX - old:
        raise Violation(ErrorCode.CREDIT_OVERFLOW, f"{old} + {amount}")
