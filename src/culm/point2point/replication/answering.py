"""What we say to the peer's proposals for one log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm.bamboo.effects import ReadEntry
from culm.bamboo.entry import decode
from culm.bamboo.links import open_targets
from culm.bamboo.store import StoredEntry
from culm.effects import StoreWork
from culm.point2point.handles import Request
from culm.point2point.messages import NOTIFY, CancelReason, Proposal
from culm.point2point.replication.seeking import Owner
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

if TYPE_CHECKING:
    from culm.point2point.replication.replica import Replica

__all__ = ["Answering"]


class Answering:
    """Confirms or cancels what the peer proposes."""

    def __init__(
        self, replica: Replica, owner: Owner, *, work: StoreWork, family: HashFamily
    ) -> None:
        self.joined: Request | None = None  # for what comes next: we take part, or think about it
        self._replica = replica
        self._owner = owner
        self._work = work
        self._family = family
        self._undecided: list[Request] = []
        self._let_gone: list[Request] = []  # that a proposal of ours is to displace

    @property
    def settled(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self._undecided and not self._let_gone

    def loaded(self) -> None:
        """It is known what the store has."""
        undecided, self._undecided = self._undecided, []
        for request in undecided:
            self._decide(request)

    def reconsider(self) -> None:
        """What we were about to propose may have come to nothing."""
        if self._let_gone and not self._replica.next.coming:
            let_gone, self._let_gone = self._let_gone, []
            for request in let_gone:
                self._decide(request)

    def give_way(self) -> None:
        """Our proposals wait for credit: what they were to displace gives the peer some back."""
        let_gone, self._let_gone = self._let_gone, []
        for request in let_gone:
            if _is_open(request):
                request.cancel(CancelReason.RESOURCE_LIMIT)

    def over(self, request_id: int) -> None:
        """A request has ended."""
        self._let_gone = [r for r in self._let_gone if r.request_id != request_id]
        if self.joined is not None and self.joined.request_id == request_id:
            self.joined = None

    def consider(self, request: Request | None) -> None:
        """Answer a proposal (``None``: it is over already) as soon as the store is known."""
        if request is not None and self._replica.inventory.loaded:
            self._decide(request)
        elif request is not None:
            self._undecided = [r for r in self._undecided if _is_open(r)] + [request]
        elif self._replica.inventory.loaded:
            self._replica.seek()

    def _decide(self, request: Request) -> None:
        proposal, inventory = request.proposal, self._replica.inventory
        self._replica.tell_news()
        if not _is_open(request):
            self._replica.seek()
            return
        if self._replica.forks.cut_off(request):
            pass
        elif inventory.ended and proposal.first_seqnum > inventory.position:
            request.cancel(CancelReason.END_OF_LOG, seqnum=inventory.position)
        elif proposal.expected_seqnum > inventory.newest:
            self._let_go(request)
        else:
            if self._is_wanted(proposal):
                self.joined = request
            self._work.ask(
                ReadEntry,
                lambda stored: self._compare(request, stored),
                log=self._replica.log,
                seqnum=proposal.expected_seqnum,
            )

    def _is_wanted(self, proposal: Proposal) -> bool:
        """Whether we want to take what the peer has there, now and later."""
        endless = proposal.end is None and not proposal.payload_only
        return endless and self._replica.interest.live and self._replica.following

    def _compare(self, request: Request, stored: StoredEntry | None) -> None:
        """The peer's log before the range has to be ours."""
        if not _is_open(request):
            return
        if stored is not None and stored.hash != request.proposal.expected_hash:
            entry = decode(stored.encoded, family=self._family)
            request.cancel(CancelReason.HASH_MISMATCH, entry=entry)
        elif self._in_reach(request.proposal, stored):
            self._replica.inventory.hashes(
                open_targets(request.proposal.start - 1),
                lambda links: self._confirm(request, links),
            )
        else:
            self._let_go(request)

    def _in_reach(self, proposal: Proposal, stored: StoredEntry | None) -> bool:
        """Whether the range begins where our log ends, or before.

        `stored` is the entry inside whose payload the range starts, if it does.
        """
        inventory, wanted = self._replica.inventory, self._is_wanted(proposal)
        if not wanted and not self._replica.interest.offer_stored:
            return False
        if proposal.end is not None:
            return proposal.first_seqnum <= inventory.newest
        if not wanted:
            return proposal.start <= inventory.position
        if proposal.start == inventory.position and inventory.payload_due:
            # Of the payload that is due to both, the peer may have more than we.
            return stored is None or (proposal.start_offset or 0) <= stored.payload_stored
        return proposal.start <= self._replica.next.start

    def _confirm(self, request: Request, links: dict[int, bytes]) -> None:
        if not _is_open(request) or self._replica.forks.cut_off(request):
            return
        end = self._replica.forks.last_before(request)
        if self._is_wanted(request.proposal):
            want = self._replica.next.want
            skipping = not want.payload_mandatory
            request.confirm(
                **want.demand(), allow_skipping=skipping, end=end, upper_certpool=end, links=links
            )
        else:
            request.confirm(NOTIFY, allow_skipping=True, end=end, upper_certpool=end)
        self._owner.confirmed(request, self._replica)
        self._replica.seek()

    def _let_go(self, request: Request) -> None:
        """Do not take part; ask for what we lack instead.

        If that will be a proposal that begins before this one, the overlap rule drops this
        one.
        """
        self.joined = None
        replica = self._replica
        replica.seek()
        comes_before = replica.next.coming and replica.next.start < request.proposal.start
        if comes_before and replica.interest.live and not replica.next.queued:
            self._let_gone.append(request)
            return
        wanted = self._is_wanted(request.proposal)
        request.cancel(CancelReason.RESOURCE_LIMIT if wanted else CancelReason.DO_NOT_RETRY)


def _is_open(request: Request) -> bool:
    return request.state is RequestState.PROPOSED_BY_PEER
