"""What we propose for one log, a proposal at a time: what comes next, and ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from culm.bamboo.entry import LogKey
from culm.bamboo.links import lipmaa, lower_pool, open_targets
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason, Proposal
from culm.point2point.replication.events import LogRefused, LogSynced, Want
from culm.point2point.replication.inventory import Inventory
from culm.point2point.replication.payloads import BegunPayload
from culm.point2point.replication.proposals import (
    propose_next,
    propose_probe,
    propose_range,
)
from culm.point2point.states import RequestState

if TYPE_CHECKING:
    from culm.point2point.replication.replica import Replica

__all__ = ["NextSeeking", "Owner", "RangeSeeking", "Seeking"]

_UNDER_WAY = frozenset({RequestState.PROPOSED_BY_US, RequestState.CONFIRMED})
# After these the same is proposed again, or what comes before the fork.
_GOES_ON = frozenset({CancelReason.END_OF_RANGE, CancelReason.RESOURCE_LIMIT, CancelReason.FORK})


class Owner(Protocol):
    """What a replica needs of its replicator."""

    def propose(
        self,
        seeking: Seeking,
        proposal: Proposal,
        links: dict[int, bytes],
        begun_payload: BegunPayload | None,
    ) -> None:
        """Propose as soon as there is credit; `Seeking.proposed` is told then."""
        ...

    def confirmed(self, request: Request, replica: Replica) -> None:
        """We have confirmed a request of the peer."""
        ...

    def payload_stored(self, log: LogKey) -> None:
        """A payload that has been waited for is in the store."""
        ...

    def unsettle(self, replica: Replica) -> None:
        """Something has happened: `Replica.settled` may not hold any more."""
        ...

    def defer(self, replica: Replica) -> None:
        """There has been no room for a proposal; `Replica.retry` is called when there may be."""
        ...

    def stir(self, request: Request | None) -> None:
        """Something has happened that may let a request of ours rest."""
        ...

    def under_way(self, log: LogKey) -> list[Request]:
        """The requests about a log for which data may flow, now or once they are confirmed."""
        ...


class Seeking(ABC):
    """One proposal of ours at a time, from the wish to the end of the request."""

    def __init__(self, replica: Replica, owner: Owner) -> None:
        self.replica = replica
        self.request: Request | None = None
        self.deferred = False  # there has been no room for our proposal
        self.queued = False  # a proposal waits for credit
        self.refused = False  # the peer will not have what we propose, or we not what it sends
        self._proposing = False  # a proposal is being made
        self._ended_by_peer = False  # it says that it has sent all
        self._owner = owner

    @property
    def inventory(self) -> Inventory:
        return self.replica.inventory

    @property
    def coming(self) -> bool:
        """Whether a proposal is on its way, or is not answered."""
        return self._proposing or (self.request is not None and self.request.unanswered)

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether nothing is under way that will come to an end by itself."""

    @abstractmethod
    def _lacks_something(self) -> bool:
        """Whether there is something to propose."""

    @abstractmethod
    def _prepare(self) -> None:
        """Find out what the proposal needs, and go on with `_offer`."""

    def seek(self) -> None:
        """Propose what is wanted, unless that is under way."""
        if self._may_propose() and self._lacks_something():
            self._proposing = True
            self._owner.unsettle(self.replica)
            self._prepare()

    def _may_propose(self) -> bool:
        idle = self.request is None and not self._proposing and not self.deferred
        # What is still on its way into the store would be fetched again.
        return idle and self.inventory.loaded and not self.replica.writing

    def look_again(self) -> None:
        """What was about to be proposed has been overtaken."""
        self._proposing = False
        self.seek()

    def still_wants(self, proposal: Proposal) -> bool:
        """Whether the proposal, which had to wait for credit, is still the right one."""
        return True

    def waits(self, *, queued: bool) -> None:
        """The proposal waits for credit; or it has its turn."""
        self.queued = queued

    def allow_again(self) -> None:
        """There may be room for a proposal."""
        self.deferred = False

    def refuse(self) -> None:
        """The peer will not have what we propose, or we not what it sends."""
        self.refused = True

    def forgive(self) -> None:
        """It may have something for us after all."""
        self.refused = False

    def crowded_out(self) -> None:
        """There is no credit, and nothing will come of waiting for it."""
        self._proposing, self.queued, self.deferred = False, False, True
        self.replica.crowded_out()

    @property
    def _coming_soon(self) -> bool:
        return self._proposing and not self.queued

    def _offer(
        self, proposal: Proposal, links: dict[int, bytes], begun_payload: BegunPayload | None = None
    ) -> None:
        self._owner.propose(self, proposal, links, begun_payload)

    def proposed(self, request: Request) -> None:
        """The proposal has been sent."""
        self._proposing, self._ended_by_peer, self.request = False, False, request

    def peer_cancels(self, reason: CancelReason) -> None:
        """The peer has cancelled the request; what it has sent may still arrive."""
        self._ended_by_peer = reason is CancelReason.END_OF_RANGE
        self.deferred = reason is CancelReason.RESOURCE_LIMIT

    def over(self, *, dropped: bool) -> None:
        """The request has ended; `dropped`: by the overlap rule, before it began."""
        request, self.request = self.request, None
        assert request is not None
        endless = request.proposal.end is None  # then that is no more than a rest
        received = endless or request.discarding or request.receive_cursor.piece is None
        if self._ended_by_peer and not received:
            # A peer that ends a range without having sent it would do so again.
            self.refused = True
            self.replica.emit(LogRefused(log=self.replica.log, reason=CancelReason.END_OF_RANGE))

    def cancel(self, reason: CancelReason) -> None:
        """End the request, if there is one."""
        if self.request is not None and self.request.state in _UNDER_WAY:
            self.request.cancel(reason)


class NextSeeking(Seeking):
    """What comes after what we have.

    An entry of which the peer may have another one than we (`probe`) goes before.
    """

    def __init__(self, replica: Replica, owner: Owner, want: Want) -> None:
        super().__init__(replica, owner)
        self.want = want
        self.probe: int | None = None
        self._outdated = False  # the proposal that is being made is not what is wanted any more
        self._resting = False  # there is room for a request only when there is something new
        self._told = 0  # the peer knows that we have all before this entry

    @property
    def settled(self) -> bool:
        return not self._coming_soon and (self.queued or self.refused or not self._is_behind())

    @property
    def start(self) -> int:
        """The entry at which our proposal starts."""
        return self.inventory.position + (not self._payload_due)

    @property
    def _payload_due(self) -> bool:
        """Whether the payload at the head comes first, rather than by itself."""
        inventory = self.inventory
        return inventory.payload_due and not self.replica.ranges.fetches_payload(inventory.position)

    def _is_behind(self) -> bool:
        replica, inventory = self.replica, self.inventory
        if not replica.following:
            return False
        position, offered = inventory.position, replica.offered
        return max(position, replica.passed) < offered or (
            self._payload_due and position <= offered
        )

    def _lacks_something(self) -> bool:
        return self.probe is not None or self._lacks_next()

    def _lacks_next(self) -> bool:
        if self.refused or not self.replica.following:
            return False
        return self._is_endless() or self._is_behind()

    def _is_endless(self) -> bool:
        """Whether a proposal without end is due.

        If the log is forked, or a request of the peer is open already, it only tells the peer
        of what we have, and is cancelled at once.
        """
        live = self.replica.interest.live
        if self.inventory.fork is None and not self._resting:
            return live and (self.replica.answering.joined is None or not self._told)
        return live and self._told < self.start

    def may_rest(self, request_id: int, *, patient: bool) -> bool:
        """Whether the request is ours, without end, and both have all there is of the log."""
        request, replica = self.request, self.replica
        if request is None or request.request_id != request_id:
            return False
        if request.proposal.end is not None or request.state is not RequestState.CONFIRMED:
            return False
        return not (self._is_behind() or replica.writing) and (replica.heard or not patient)

    def probe_for(self, seqnum: int) -> None:
        """The peer may have another one of that entry: ask for it."""
        self.probe = seqnum

    def rest(self) -> None:
        """Leave the request to other logs, until there is something new."""
        self._resting = True
        self.cancel(CancelReason.END_OF_RANGE)

    def peer_rests(self) -> None:
        """The peer has done so."""
        self._resting = True

    def wake(self) -> None:
        """The user wants the log now."""
        self.refused = self.deferred = self._resting = False

    def replace(self, want: Want) -> None:
        """Something else is wanted from now on."""
        self.want = want
        self._outdated = self._proposing
        self.cancel(CancelReason.RESOURCE_LIMIT)

    def still_wants(self, proposal: Proposal) -> bool:
        outdated, self._outdated = self._outdated, False
        if outdated:
            return False
        finite = proposal.end is not None
        return finite or (proposal.start == self.start and self._is_endless())

    def _prepare(self) -> None:
        inventory = self.inventory
        if self.probe is not None:
            inventory.hashes(lower_pool(self.probe), self._offer_probe)
        elif self._payload_due:
            position = inventory.position
            inventory.resume(position, lambda begun: self._offer_rest(position, begun))
        else:
            self._prepare_next()

    def _prepare_next(self) -> None:
        position = self.inventory.position
        self.inventory.hashes(
            open_targets(position), lambda links: self._offer_next(position, links, None)
        )

    def _offer_probe(self, links: dict[int, bytes]) -> None:
        probe, self.probe = self.probe, None
        if probe is None or (probe > 1 and lipmaa(probe) not in links):
            self.look_again()  # what would be needed to compare is not here
        else:
            self._offer(propose_probe(self.replica.log, probe, links), links)

    def _offer_rest(self, position: int, begun_payload: BegunPayload | None) -> None:
        if begun_payload is None or position != self.inventory.position:
            self.look_again()  # it is complete, or there is something behind it
        else:
            self.inventory.hashes(
                open_targets(position),
                lambda links: self._offer_next(position, links, begun_payload),
            )

    def _offer_next(
        self, position: int, links: dict[int, bytes], begun_payload: BegunPayload | None
    ) -> None:
        inventory = self.inventory
        if position != inventory.position or not self._lacks_next():
            self.look_again()  # something was written meanwhile
            return
        end = None if self._is_endless() else max(self.replica.offered, position)
        if begun_payload is None and position and lipmaa(position + 1) not in links:
            inventory.look(self.look_again)  # the log has become shorter: it is forked
            return
        proposal = propose_next(inventory, self.want, links, begun_payload, end=end)
        self._offer(proposal, links, begun_payload)

    def proposed(self, request: Request) -> None:
        super().proposed(request)
        if request.proposal.end is not None:
            return
        self._told = max(self._told, request.proposal.start)
        fork, joined = self.inventory.fork, self.replica.answering.joined
        if request.state in _UNDER_WAY and (fork is not None or joined is not None):
            request.cancel(CancelReason.END_OF_RANGE)

    def peer_cancels(self, reason: CancelReason) -> None:
        super().peer_cancels(reason)
        if reason not in _GOES_ON:
            self.refused = True
        request = self.request
        if self._ended_by_peer and request is not None and request.proposal.end is None:
            self._resting = True


class RangeSeeking(Seeking):
    """Ranges that the user has asked for, one after the other."""

    def __init__(self, replica: Replica, owner: Owner) -> None:
        super().__init__(replica, owner)
        self._once_more = False  # what has come of the range is lost
        self._wants: deque[Want] = deque()
        self._complete = False
        self._end_asked = False

    @property
    def settled(self) -> bool:
        endless = self.request is not None and self.request.proposal.end is None
        return endless or self.deferred or self.queued or not self._wants

    def add(self, want: Want, *, again: bool = False) -> None:
        """Fetch another range; `again`: even if it is the one that is being fetched."""
        if again and self.request is not None and want == self._wants[0]:
            self._once_more = True
        if want not in self._wants:
            self._wants.append(want)
        self.deferred = False
        self.seek()

    def fetches_payload(self, seqnum: int) -> bool:
        """Whether the payload of that entry is being fetched by itself."""
        return Want(first=seqnum, last=seqnum, payload_only=True) in self._wants

    def ask_for_end(self, seqnum: int) -> None:
        """The peer says that the log ends there, before what we have asked for: see that entry.

        Once is enough: who says something else then has nothing to show.
        """
        if self._wants and not self._end_asked:
            self._end_asked = True
            self._wants.append(
                replace(self._wants[0], first=seqnum, last=seqnum, sparse=False, payload_only=False)
            )

    def _lacks_something(self) -> bool:
        return bool(self._wants)

    def _prepare(self) -> None:
        want = self._wants[0]
        first = want.first or 1

        def got_links(links: dict[int, bytes]) -> None:
            if first in links:
                self.inventory.resume(first, lambda begun: self._offer_range(want, links, begun))
            else:
                self._offer_range(want, links, None)

        self.inventory.hashes(lower_pool(first), got_links)

    def _offer_range(
        self, want: Want, links: dict[int, bytes], begun_payload: BegunPayload | None
    ) -> None:
        if begun_payload is not None and not begun_payload.stored:
            begun_payload = None
        replica = self.replica
        proposal = propose_range(replica.log, want, links, begun_payload, newest=replica.offered)
        self._offer(proposal, links, None if proposal.start_offset is None else begun_payload)

    def proposed(self, request: Request) -> None:
        super().proposed(request)
        self._complete = False

    def received_all(self) -> None:
        """The peer has sent all; the store will have it before this is told."""
        request, last = self.request, self._wants[0].last
        if request is not None and last is not None and request.receive_cursor.range.end == last:
            self._complete = True
            self.replica.emit(LogSynced(log=self.replica.log, seqnum=last))

    def over(self, *, dropped: bool) -> None:
        complete = self._complete
        super().over(dropped=dropped)
        done = complete or not (dropped or self.deferred)
        if done and not self._once_more:
            self._wants.popleft()
        self._once_more = False
        self.refused = False
