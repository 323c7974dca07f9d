"""What both channels know of one request."""

from __future__ import annotations

from culm.point2point.direction import Incoming, Intake, Outgoing
from culm.point2point.messages import Demand, Proposal
from culm.point2point.pieces import Range
from culm.point2point.states import Input, RequestState, after

__all__ = ["RequestRecord"]


class RequestRecord:
    """One request: what was proposed, its state, and its two directions."""

    __slots__ = ("incoming", "ours", "outgoing", "proposal", "range", "request_id", "state")

    def __init__(self, request_id: int, proposal: Proposal, *, ours: bool) -> None:
        self.request_id = request_id
        self.proposal = proposal
        self.ours = ours
        self.state = RequestState.PROPOSED_BY_US if ours else RequestState.PROPOSED_BY_PEER
        self.range = Range.of(proposal)
        """As it was proposed."""
        demand = Demand.of(proposal)
        self.incoming = Incoming(self.range, demand if ours else None)
        self.outgoing = Outgoing(self.range, None if ours else demand)
        if proposal.expected_hash is not None:
            self.outgoing.know_links({proposal.expected_seqnum: proposal.expected_hash})

    def move(self, input: Input) -> None:
        """Take one step through the table of states; raises `Violation`."""
        self.state = after(self.state, input)

    @property
    def takes_data(self) -> bool:
        """Whether data of the peer may come, and counts: also what comes behind its cancel."""
        if self.state is RequestState.CONFIRMED:
            return self.incoming.intake is Intake.TAKEN
        alive = self.state is not RequestState.ENDED and self.expects_data
        return alive and self.incoming.intake is Intake.TAKEN

    @property
    def expects_data(self) -> bool:
        """Whether the peer may have been right to send data, before it was cancelled, too."""
        asked = self.incoming.candidates.demand is not None
        answered = self.outgoing.candidates.demand is not None
        return asked and (answered or self.state is not RequestState.CANCELLED)

    def agrees(self, seqnum: int, hash: bytes) -> bool:
        """Whether all that this request tells of entry `seqnum` is that it has that hash."""
        sent, received = self.outgoing.links, self.incoming.links
        return sent.get(seqnum, hash) == received.get(seqnum, hash) == hash
