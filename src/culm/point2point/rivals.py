"""Which proposals the overlap rule may concern."""

from __future__ import annotations

from culm.bamboo.entry import LogKey
from culm.point2point.request import Request

__all__ = ["Rivals"]


class Rivals:
    """Proposals that have not been answered, by log and by whose they are.

    Looking for those that overlap one costs time linear in those of its log that the other
    endpoint has made, so that nobody pays for proposals that have nothing to do with it.
    """

    __slots__ = ("_proposed",)

    def __init__(self) -> None:
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

    def of(self, new: Request) -> list[Request]:
        """Those of the other endpoint that overlap `new`, in the order in which they were made."""
        proposed = self._proposed.get((new.proposal.log, not new.ours), {})
        return [
            rival
            for rival in proposed.values()
            if rival.original_range.overlaps(new.original_range)
        ]
