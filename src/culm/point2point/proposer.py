"""What the replicas of all logs ask of their one connection."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from culm.bamboo.entry import LogKey
from culm.point2point.connection import Connection
from culm.point2point.inventory import Resumption
from culm.point2point.messages import Proposal
from culm.point2point.replica import Replica
from culm.point2point.request import Request
from culm.point2point.seeking import Seeking
from culm.point2point.traffic import Traffic

__all__ = ["Proposer"]


class _Wish(NamedTuple):
    """A proposal that we want to make."""

    seeking: Seeking
    proposal: Proposal
    links: dict[int, bytes]
    resumption: Resumption | None


class Proposer:
    """Makes proposals as far as there is credit, in the order of the wishes (`Owner`)."""

    def __init__(self, connection: Connection, traffic: Traffic) -> None:
        self._connection = connection
        self._traffic = traffic
        self._wishes: deque[_Wish] = deque()  # that wait for credit

    @property
    def waiting(self) -> bool:
        """Whether something is to be proposed as soon as there is credit."""
        return bool(self._wishes)

    def go_on(self) -> None:
        """Propose what there is credit for."""
        while self._wishes and self._connection.proposal_credit:
            wish = self._wishes.popleft()
            if not wish.seeking.still_wants(wish.proposal):
                wish.seeking.look_again()
                continue
            request = self._connection.propose(wish.proposal, links=wish.links)
            self._traffic.open(request, wish.seeking.replica, wish.resumption)
            wish.seeking.proposed(request)

    # What replicas ask for.

    def propose(
        self,
        seeking: Seeking,
        proposal: Proposal,
        links: dict[int, bytes],
        resumption: Resumption | None,
    ) -> None:
        """Propose as soon as there is credit."""
        self._wishes.append(_Wish(seeking, proposal, links, resumption))
        self.go_on()

    def confirmed(self, request: Request, replica: Replica) -> None:
        """Data of a request may flow."""
        self._traffic.open(request, replica, None)
        self._traffic.rouse(request.request_id)

    def payload_stored(self, log: LogKey) -> None:
        """A payload that has been waited for is in the store."""
        self._traffic.wake(log)

    def under_way(self, log: LogKey) -> list[Request]:
        """The requests about a log for which data may flow."""
        return self._traffic.under_way(log)
