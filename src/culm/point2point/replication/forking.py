"""What the fork of a log means for what is proposed and what is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm.bamboo.forks import ForkProof
from culm.machine import LocalProtocolError
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason, Proposal
from culm.point2point.replication.proposals import propose_forked
from culm.point2point.replication.seeking import Owner, Seeking
from culm.point2point.states import RequestState

if TYPE_CHECKING:
    from culm.point2point.replication.replica import Replica

__all__ = ["ForkSeeking"]

_OPEN = frozenset(
    {RequestState.PROPOSED_BY_US, RequestState.PROPOSED_BY_PEER, RequestState.CONFIRMED}
)


class ForkSeeking(Seeking):
    """Shows the peer the fork of the log, and lets what comes before it be sent as ever.

    To show it, what is forked is proposed, and cancelled with the proof.
    """

    def __init__(self, replica: Replica, owner: Owner) -> None:
        super().__init__(replica, owner)
        self._peer_knows: int | None = None  # the earliest fork

    @property
    def settled(self) -> bool:
        return not self._coming_soon

    def _lacks_something(self) -> bool:
        fork, known = self.inventory.fork, self._peer_knows
        return fork is not None and (known is None or known > fork.seqnum)

    def _prepare(self) -> None:
        fork = self.inventory.fork
        assert fork is not None
        self._offer(propose_forked(fork), {})

    def still_wants(self, proposal: Proposal) -> bool:
        fork = self.inventory.fork
        return self._lacks_something() and fork is not None and proposal.start == fork.seqnum

    def proposed(self, request: Request) -> None:
        super().proposed(request)
        fork = self.inventory.fork
        if fork is not None and request.state in _OPEN:
            self.tell(request, fork)

    def tell(self, request: Request, fork: ForkProof) -> None:
        """Cancel a request to show the peer the fork."""
        self.peer_knows(fork)
        request.cancel(CancelReason.FORK, proof=fork)

    def peer_knows(self, fork: ForkProof) -> None:
        """The peer has seen that proof, or will."""
        self._peer_knows = min(fork.seqnum, self._peer_knows or fork.seqnum)

    def peer_cancels(self, reason: CancelReason) -> None:
        super().peer_cancels(reason)
        if self.deferred:
            self._peer_knows = None  # it has no room for the log, nor for its fork

    def over(self, *, dropped: bool) -> None:
        super().over(dropped=dropped)
        if dropped:
            self._peer_knows = None  # our proposal counts for nothing, nor does its end

    # What is under way, or about to be.

    def shorten(self) -> None:
        """Let all that is under way end before the fork."""
        for request in self._owner.under_way(self.replica.log):
            if request.state in _OPEN and not self.cut_off(request):
                self._shorten(request)

    def _shorten(self, request: Request) -> None:
        last = self.last_before(request)
        if last is None:
            return
        try:
            request.adjust(end=last, upper_certpool=last)
        except LocalProtocolError:  # once too often, or it is a path of payloads alone
            request.cancel(CancelReason.DO_NOT_RETRY)

    def cut_off(self, request: Request) -> bool:
        """Cancel a request that begins at the fork or behind it; whether it was one."""
        fork, proposal = self.inventory.fork, request.proposal
        if fork is None or proposal.start < fork.seqnum:
            return False
        if proposal.first_seqnum < fork.seqnum:  # something of its pool comes before
            request.cancel(CancelReason.DO_NOT_RETRY)
        else:
            self.tell(request, fork)
        return True

    def last_before(self, request: Request) -> int | None:
        """The entry before the fork if the range of a request reaches over that."""
        fork, upper = self.inventory.fork, request.send_cursor.range.upper_certpool
        if fork is None or (upper is not None and upper < fork.seqnum):
            return None
        return fork.seqnum - 1
