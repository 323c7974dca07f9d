"""Which request ids are free."""

from __future__ import annotations

from collections import deque
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

    __slots__ = ("_last_used", "_leaving", "_next", "_role", "_sender", "_used")

    def __init__(self, *, role: Role, used: Container[int], sender: DataSender) -> None:
        self._role = role
        self._used = used  # by requests that are
        self._sender = sender
        self._next = int(role)  # where to look for a free id of ours
        self._leaving: deque[tuple[int, int]] = deque()  # where our marker ends, ended request
        self._last_used: set[int] = set()  # those ended requests

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
        while self._leaving and self._leaving[0][0] <= flushed:
            self._last_used.discard(self._leaving.popleft()[1])
        return request_id not in self._used and request_id not in self._last_used

    def choose(self) -> int:
        """An id for a proposal of ours."""
        free = self._next
        while not self.is_free(free):
            free = self._after(free)
        return free

    def take(self, request_id: int) -> None:
        """We have used that id."""
        if request_id >= self._next:
            self._next = self._after(request_id)

    def _after(self, request_id: int) -> int:
        following = request_id + 2
        return following if following <= MAX else int(self._role)

    def release(self, request_id: int) -> None:
        """Our request of that id has ended; its marker is on its way."""
        self._leaving.append((self._sender.queued_total, request_id))
        self._last_used.add(request_id)
