"""The control channel: proposal credit, the table of requests, the overlap rule."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from culm.arguments import check_int, check_type
from culm.bamboo.entry import Entry
from culm.bamboo.forks import ForkProof
from culm.buffer import ReceiveBuffer
from culm.bymux import Role
from culm.machine import ContractErrorCode, Event, LocalProtocolError
from culm.point2point.control_codec import decode_control, encode_control, message_size_max
from culm.point2point.demand import Demand
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import (
    Adjusted,
    Cancelled,
    Confirmed,
    CreditReceived,
    GivenUp,
    ProposalDropped,
    Proposed,
    RequestEnded,
    RequestGivenUp,
)
from culm.point2point.ids import Ids
from culm.point2point.intervals import Intervals
from culm.point2point.limits import Limits
from culm.point2point.messages import (
    Adjust,
    Cancel,
    CancelReason,
    GrantCredit,
    Proposal,
    Propose,
)
from culm.point2point.receiving import DataReceiver
from culm.point2point.request import Request
from culm.point2point.rivals import Rivals
from culm.point2point.rules import (
    check_adjust,
    check_credit,
    check_proof,
    check_proposal,
    is_riddle,
)
from culm.point2point.sending import DataSender
from culm.point2point.states import Input, RequestState
from culm.wire.errors import Truncated
from culm.wire.multihash import HashFamily
from culm.wire.varu64 import MAX

__all__ = ["ControlChannel"]


class ControlChannel:
    """What has been agreed on the control channel.

    Owns credit and requests.  Its methods raise `Violation`; whose mistake that is
    depends on who has called.
    """

    def __init__(
        self,
        *,
        role: Role,
        family: HashFamily,
        limits: Limits,
        sender: DataSender,
        receiver: DataReceiver,
        send: Callable[[bytes], None],
    ) -> None:
        self.family = family
        self.requests: dict[int, Request] = {}
        self.events: deque[Event] = deque()
        self.credit = 0  # proposals that we may send
        self.granted = 0  # proposals that the peer may send
        self.inbox = ReceiveBuffer()
        self.over = False  # nothing more is sent
        self._role = role
        self._limits = limits
        self._sender = sender
        self._receiver = receiver
        self._send = send
        self._rivals = Rivals(role=role)
        self._ids = Ids(role=role, used=self.requests, sender=sender)
        # Halves of the ids (all of one parity) of the peer's proposals that the overlap rule
        # dropped: it may have adjusted or cancelled them before it knew.
        self._dropped = Intervals()

    # What we do.

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if it is too late for any verb."""
        if self.over:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    def grant(self, amount: int) -> None:
        """Let the peer make `amount` more proposals."""
        check_credit(self.granted, amount)
        self.granted += amount
        self._send(encode_control(GrantCredit(amount=amount)))

    def propose(self, proposal: Proposal, request_id: int | None = None) -> Request:
        """Spend a unit of credit on a proposal."""
        check_type("proposal", proposal, Proposal)
        if request_id is not None:
            check_int("request id", request_id)
        check_proposal(proposal, family=self.family)
        if self.credit == 0:
            raise Violation(ErrorCode.NO_CREDIT)
        if request_id is None:
            request_id = self._ids.choose()
        self._ids.check(request_id, ours=True)
        encoded = encode_control(Propose(request_id=request_id, proposal=proposal))
        request = self._open(request_id, proposal, ours=True)
        self.credit -= 1
        self._ids.take(request_id)
        self._send(encoded)
        self._drop_overlaps(request)
        return request

    def confirm(self, request: Request, adjust: Adjust) -> None:
        """Accept a proposal of the peer."""
        self._apply_ours(request, Input.CONFIRM, adjust)

    def adjust(self, request: Request, adjust: Adjust) -> None:
        """Adjust a request."""
        self._apply_ours(request, Input.ADJUST, adjust)

    def cancel(
        self,
        request: Request,
        reason: CancelReason,
        *,
        entry: Entry | None,
        seqnum: int | None,
        proof: ForkProof | None,
    ) -> None:
        """Cancel a request for a reason of our own."""
        cancel = Cancel(
            request_id=request.request_id, reason=reason, entry=entry, seqnum=seqnum, proof=proof
        )
        if reason is CancelReason.CONFIRM:
            raise Violation(ErrorCode.BAD_CANCEL_CONFIRMATION, "nothing to confirm")
        check_proof(request, cancel)
        request.move(Input.CANCEL)
        request.discarding = True
        self._receiver.resume(request)
        self._send_cancel(request, cancel)

    # What the peer does.

    def step(self) -> bool:
        """Take one message of the peer from the inbox, if there is a whole one."""
        if not self.inbox.size:
            return False
        size_max = message_size_max(self.family)
        try:
            message, size = decode_control(self.inbox.peek(size_max), family=self.family)
        except Truncated:
            return False
        self.inbox.consume(size)
        match message:
            case GrantCredit():
                self._receive_credit(message.amount)
            case Propose():
                self._receive_proposal(message)
            case Adjust():
                self._receive_adjust(message)
            case Cancel():
                self._receive_cancel(message)
        return True

    def receive_marker(self, request_id: int) -> None:
        """The peer has confirmed a cancellation on the data channel."""
        request = self.requests.get(request_id)
        if request is None:
            if self.was_dropped(request_id):
                return
            raise Violation(ErrorCode.UNKNOWN_REQUEST, f"marker for {request_id}")
        if request.marked_by_peer:
            raise Violation(ErrorCode.ALREADY_MARKED_CANCELLED, f"{request_id}")
        request.marked_by_peer = True
        self._end_if_due(request)

    def was_dropped(self, request_id: int) -> bool:
        """Whether the peer may not know that its proposal of this id has been dropped."""
        return request_id // 2 in self._dropped and request_id % 2 == self._role.peer

    def give_up(self, request: Request, reason: GivenUp) -> None:
        """Cancel a request that comes to nothing."""
        self.cancel(request, CancelReason.RESOURCE_LIMIT, entry=None, seqnum=None, proof=None)
        self.events.append(RequestGivenUp(request_id=request.request_id, reason=reason))

    def _receive_credit(self, amount: int) -> None:
        check_credit(self.credit, amount)
        self.credit += amount
        self.events.append(CreditReceived(amount=amount, credit=self.credit))

    def _receive_proposal(self, message: Propose) -> None:
        request_id, proposal = message.request_id, message.proposal
        if self.granted == 0:
            raise Violation(ErrorCode.NO_CREDIT, f"proposal {request_id}")
        self._ids.check(request_id, ours=False)
        check_proposal(proposal, family=self.family)
        self.granted -= 1
        self._dropped.discard(request_id // 2)
        request = self._open(request_id, proposal, ours=False)
        self.events.append(Proposed(request_id=request_id, proposal=proposal))
        self._drop_overlaps(request)

    def _receive_adjust(self, message: Adjust) -> None:
        request = self._addressed(message.request_id)
        if request is None:
            return
        before = request.state
        demand = request.peer_demand or Demand()
        if request.ours and request.unanswered and message.eagerness is None:
            raise Violation(ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS)
        demand = demand.adjusted(message)
        check_adjust(request, message)
        riddle = is_riddle(request, message)
        request.move(Input.PEER_ADJUST)
        if request.ours:
            self._answered(request)
        request.outgoing.views.demand(demand)
        request.outgoing.retarget(message.end, message.upper_certpool)
        event = Confirmed if before is RequestState.PROPOSED_BY_US else Adjusted
        self.events.append(event(request_id=request.request_id, adjustment=message))
        views = request.incoming.views
        if before is not RequestState.CONFIRMED:  # what is sent is sent after it
            views.retarget(message.end, message.upper_certpool)
            return
        views.may_be_retargeted(message.end, message.upper_certpool, by_sender=True)
        if riddle or views.possibilities > self._limits.request_adjustments_max:
            self.give_up(request, GivenUp.UNTRACEABLE)

    def _receive_cancel(self, message: Cancel) -> None:
        request = self._addressed(message.request_id)
        if request is None:
            return
        check_proof(request, message)
        confirms = message.reason is CancelReason.CONFIRM
        crossed = request.cancelled_by_us
        request.move(Input.PEER_CONFIRM_CANCEL if confirms else Input.PEER_CANCEL)
        self._answered(request)
        if not confirms:
            self.events.append(Cancelled(request_id=request.request_id, cancel=message))
        if not crossed:
            confirmation = Cancel(request_id=request.request_id, reason=CancelReason.CONFIRM)
            self._send_cancel(request, confirmation)
        self._end_if_due(request)

    def _addressed(self, request_id: int) -> Request | None:
        """The request that the peer speaks of; ``None`` if it cannot know that it is gone."""
        request = self.requests.get(request_id)
        if request is None and not self.was_dropped(request_id):
            raise Violation(ErrorCode.UNKNOWN_REQUEST, f"{request_id}")
        return request

    # What both do.

    def _apply_ours(self, request: Request, input: Input, adjust: Adjust) -> None:
        if input is Input.CONFIRM and adjust.eagerness is None:
            raise Violation(ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS)
        demand = (request.our_demand or Demand()).adjusted(adjust)
        check_adjust(request, adjust)
        if input is Input.ADJUST and is_riddle(request, adjust):
            raise Violation(ErrorCode.SPARSE_END_FIXED, f"request {request.request_id}")
        if request.incoming.views.possibilities >= self._limits.request_adjustments_max:
            raise Violation(ErrorCode.TOO_MANY_ADJUSTMENTS, f"request {request.request_id}")
        encoded = encode_control(adjust)
        request.move(input)
        if not request.ours:
            self._answered(request)
        views = request.incoming.views
        if input is Input.CONFIRM:  # what is sent is sent after it has arrived
            views.demand(demand)
            views.retarget(adjust.end, adjust.upper_certpool)
        else:
            views.may_be_demanded(demand)
            views.may_be_retargeted(adjust.end, adjust.upper_certpool, by_sender=False)
        request.outgoing.retarget(adjust.end, adjust.upper_certpool)
        self._send(encoded)

    def _send_cancel(self, request: Request, cancel: Cancel) -> None:
        request.cancelled_by_us = True
        if not request.ours:
            self._answered(request)
        self._send(encode_control(cancel))
        self._sender.mark_cancelled(request)

    def _answered(self, request: Request) -> None:
        """Who did not propose it has confirmed or cancelled it: it overlaps nothing any more."""
        request.unanswered = False
        self._rivals.discard(request)

    def _end_if_due(self, request: Request) -> None:
        if request.state is RequestState.CANCELLED and request.marked_by_peer:
            request.move(Input.END)
            self._forget(request)
            if not request.ours and self.granted < MAX:
                self.grant(1)
            self.events.append(RequestEnded(request_id=request.request_id))

    def _forget(self, request: Request) -> None:
        del self.requests[request.request_id]
        self._rivals.discard(request)
        self._receiver.forget(request)
        self._sender.forget(request)
        if request.ours:
            self._ids.release(request.request_id)

    def _open(self, request_id: int, proposal: Proposal, *, ours: bool) -> Request:
        request = Request(
            request_id,
            proposal,
            ours=ours,
            control=self,
            sender=self._sender,
            receiver=self._receiver,
        )
        self.requests[request_id] = request
        self._rivals.add(request)
        return request

    def _drop_overlaps(self, new: Request) -> None:
        for loser, winner in self._rivals.overlaps(new):
            self._drop(loser, winner)

    def _drop(self, loser: Request, winner: Request) -> None:
        """As if it had never been sent: its credit is its proposer's again, at both ends."""
        loser.move(Input.DROP)
        self._forget(loser)
        self.events.append(
            ProposalDropped(
                request_id=loser.request_id, ours=loser.ours, winner_id=winner.request_id
            )
        )
        if loser.ours:
            self._receive_credit(min(1, MAX - self.credit))
        else:
            self.granted = min(self.granted + 1, MAX)
            self._dropped.add(loser.request_id // 2)
            self._dropped.keep_last(self._limits.dropped_max)
