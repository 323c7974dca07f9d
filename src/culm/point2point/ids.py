"""Which request ids are free."""

from __future__ import annotations

from collections.abc import Container

from culm.bymux import Role
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.sending import DataSender
from culm.wire.varu64 import MAX

__all__ = ["Ids"]


class Ids:
    """Ids of requests.  The proactive endpoint's are even, the reactive one's odd.

    An id of ours whose request has ended is free for the peer when our marker on the data
    channel has arrived, so a proposal that uses it again must not overtake that.
    """

    __slots__ = ("_last_use", "_next", "_role", "_sender", "_used")

    def __init__(self, *, role: Role, used: Container[int], sender: DataSender) -> None:
        self._role = role
        self._used = used  # by requests that are
        self._sender = sender
        self._next = int(role)  # no id of ours from here on has ever been used
        self._last_use: dict[int, int] = {}  # ended request -> where our marker ends

    def check(self, request_id: int, *, ours: bool) -> None:
        """The id may be used for a proposal; raises `Violation`."""
        parity = self._role if ours else self._role.peer
        if request_id % 2 != parity:
            raise Violation(ErrorCode.WRONG_ID_PARITY, f"{request_id}")
        if request_id in self._used or (ours and not self.is_free(request_id)):
            raise Violation(ErrorCode.ID_IN_USE, f"{request_id}")

    def is_free(self, request_id: int) -> bool:
        """Whether nothing of ours speaks of that id any more."""
        flushed = self._sender.flushed_total()
        self._last_use = {n: end for n, end in self._last_use.items() if end > flushed}
        return request_id not in self._used and request_id not in self._last_use

    def choose(self) -> int:
        """An id for a proposal of ours."""
        if self._next <= MAX:
            return self._next
        free = int(self._role)
        while not self.is_free(free):
            free += 2
        return free

    def take(self, request_id: int) -> None:
        """We have used that id."""
        self._next = max(self._next, request_id + 2)

    def release(self, request_id: int) -> None:
        """Our request of that id has ended; its marker is on its way."""
        self._last_use[request_id] = self._sender.queued_total
