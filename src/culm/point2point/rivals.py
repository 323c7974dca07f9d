"""The overlap rule: which of two proposals counts as never sent."""

from __future__ import annotations

from collections.abc import Iterator

from culm.bamboo.entry import LogKey
from culm.bymux import Role
from culm.point2point.request import Request

__all__ = ["Rivals"]


class Rivals:
    """Proposals that have not been answered, by log and by whose they are.

    Looking for those that overlap one costs time linear in those of its log that the other
    endpoint has made, so that nobody pays for proposals that have nothing to do with it.
    """

    __slots__ = ("_proposed", "_role")

    def __init__(self, *, role: Role) -> None:
        self._role = role
        self._proposed: dict[tuple[LogKey, bool], dict[int, Request]] = {}

    def add(self, request: Request) -> None:
        """A proposal has been made."""
        key = request.proposal.log, request.ours
        self._proposed.setdefault(key, {})[request.request_id] = request

    def discard(self, request: Request) -> None:
        """It has been answered, or has been dropped."""
        key = request.proposal.log, request.ours
        proposed = self._proposed.get(key)
        if proposed is not None:
            proposed.pop(request.request_id, None)
            if not proposed:
                del self._proposed[key]

    def overlaps(self, new: Request) -> Iterator[tuple[Request, Request]]:
        """Who loses to whom of overlapping proposals that crossed each other.

        Both endpoints compare the same pairs in the same order, because each message on
        the control channel is in order and a proposal takes part until it is answered.
        """
        proposed = self._proposed.get((new.proposal.log, not new.ours), {})
        for rival in list(proposed.values()):
            if rival.original_range.overlaps(new.original_range):
                loser = max(new, rival, key=self._precedence)
                yield loser, (new if loser is rival else rival)
                if loser is new:
                    return

    def _precedence(self, request: Request) -> tuple[int, bool]:
        by_reactive = request.ours is (self._role is Role.REACTIVE)
        return request.proposal.start, by_reactive
