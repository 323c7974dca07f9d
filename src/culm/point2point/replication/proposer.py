"""What the replicas of all logs ask of their one connection."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from culm.bamboo.entry import LogKey
from culm.point2point.connection import Connection
from culm.point2point.handles import Request
from culm.point2point.replication.facts import Stage
from culm.point2point.replication.ours import OurRequest, Prepared
from culm.point2point.replication.replica import Replica
from culm.point2point.replication.traffic import Traffic

__all__ = ["Proposer"]


class _Wish(NamedTuple):
    """A proposal that we want to make."""

    replica: Replica
    ours: OurRequest
    prepared: Prepared


class Proposer:
    """Makes proposals as far as there is credit, in the order of the wishes (`ReplicaOwner`).

    If there are more logs than requests, those without end share what there is: one for which
    both have all that there is ends, and is proposed again when there is something new.
    """

    def __init__(self, connection: Connection, traffic: Traffic) -> None:
        self._connection = connection
        self._traffic = traffic
        self._wishes: deque[_Wish] = deque()  # that wait for credit
        self._leaving: set[int] = set()  # requests that end to make room for them
        # Replicas that are to try again when there is room.  What is taken from the front of a dict
        # has to be passed over every time after that.
        self._deferred: OrderedDict[Replica, None] = OrderedDict()
        self._unsettled: dict[Replica, None] = {}  # all that are so, and some that were

    @property
    def waiting(self) -> bool:
        """Whether something is to be proposed as soon as there is credit."""
        return bool(self._wishes)

    @property
    def expecting(self) -> bool:
        """Whether there will be credit for what waits as soon as the peer answers."""
        return bool(self._wishes and self._leaving)

    @property
    def settled(self) -> bool:
        """Whether all replicas are; each is looked at once after something has happened to it."""
        while self._unsettled and next(reversed(self._unsettled)).settled:
            self._unsettled.popitem()
        return not self._unsettled

    def ended(self, request_id: int) -> None:
        """A request is over."""
        self._leaving.discard(request_id)

    def make_room(self, *, patient: bool = True) -> None:
        """End requests that only wait for what is to come.

        `patient`: only where the peer has said how far it has the log, and so has sent it.
        """
        stirred = self._traffic.stirred
        if not patient:
            stirred.update(dict.fromkeys(self._connection.requests))
        while stirred and len(self._wishes) > len(self._leaving):
            request_id, _ = stirred.popitem(last=False)
            # If it is not idle, something will happen to it again.
            replica = self._traffic.idle(request_id)
            if replica is not None and replica.may_rest(request_id, patient=patient):
                self._leaving.add(request_id)
                replica.ours.rest()

    def give_up(self) -> None:
        """Nobody makes room: what waits is refused, rather than kept waiting in silence."""
        self.make_room(patient=False)
        if self._leaving:
            return
        wishes, self._wishes = self._wishes, deque()
        for wish in wishes:
            wish.replica.crowded_out(wish.ours)

    def go_on(self) -> None:
        """Propose what there is credit for."""
        while self._wishes and self._connection.proposal_credit:
            replica, ours, prepared = self._wishes.popleft()
            self.unsettle(replica)
            if replica.ours.still_wants(ours, prepared):
                request = self._connection.propose(prepared.proposal, links=prepared.links)
                self._traffic.open(request, replica, prepared.begun_payload)
                replica.ours.sent(ours, request)

    def retry(self) -> None:
        """A request has ended: there may be room for one that was refused for lack of it."""
        while self._deferred:
            replica, _ = self._deferred.popitem(last=False)
            if replica.deferred:
                self.unsettle(replica)
                replica.retry()
                return

    # What replicas ask for.

    def defer(self, replica: Replica) -> None:
        """There has been no room for what it proposes."""
        self._deferred[replica] = None

    def propose(self, replica: Replica, ours: OurRequest, prepared: Prepared) -> None:
        """Propose as soon as there is credit."""
        self._wishes.append(_Wish(replica, ours, prepared))
        self.go_on()
        if ours.stage is Stage.QUEUED:
            replica.queued()

    def confirmed(self, request: Request, replica: Replica) -> None:
        """Data of a request may flow."""
        self._traffic.open(request, replica, None)
        self._traffic.rouse(request.request_id)

    def payload_stored(self, log: LogKey) -> None:
        """A payload that has been waited for is in the store."""
        self._traffic.wake(log)

    def unsettle(self, replica: Replica) -> None:
        """Something has happened to a replica: see again whether it has settled."""
        self._unsettled[replica] = None

    def stir(self, request: Request | None) -> None:
        """Something has happened that may let a request rest."""
        if request is not None:
            self._traffic.stirred[request.request_id] = None

    def under_way(self, log: LogKey) -> list[Request]:
        """The requests about a log for which data may flow."""
        return self._traffic.under_way(log)
