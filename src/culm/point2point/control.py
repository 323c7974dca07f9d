"""The control channel: proposal credit, and the open requests from proposal to end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import compress

from culm.arguments import check_int, check_type
from culm.bamboo.entry import LogKey
from culm.buffer import Buffer, Queue, ReceiveBuffer
from culm.bymux import Role
from culm.intervals import Intervals
from culm.point2point import events, messages
from culm.point2point.channels import Output
from culm.point2point.codec import decode_control, encode_control, message_size_max
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.handles import Request
from culm.point2point.states import Input, RequestState
from culm.wire.errors import Truncated
from culm.wire.varu64 import MAX


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
