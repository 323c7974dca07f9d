"""Noticing a peer that lives, but does not do what it owes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from culm.point2point.receiving import DataReceiver
from culm.point2point.request import Request
from culm.point2point.sending import DataSender
from culm.point2point.states import RequestState

__all__ = ["Debt", "Owed", "Progress", "debt_of", "taking"]


class Debt(Enum):
    """What the peer may owe."""

    ANSWER = "a confirmation of our proposal, or a cancel"
    DATA = "the rest of a range that has an end, or of an entry"
    CANCELLATION = "its two messages of the cancellation of a request"
    GOODBYE = "its part in closing the connection"
    TAKING = "credit for, or the taking of, data that it has asked for"


class Owed(NamedTuple):
    """A debt, and the request of which it is, unless it is the connection's.

    `paid`: how much has been paid of what is paid bit by bit.
    """

    debt: Debt
    request: Request | None = None
    paid: int = 0


def debt_of(request: Request, receiver: DataReceiver) -> Debt | None:
    """What the peer owes for `request`, as far as it does not wait for something itself.

    A range without an end is never owed: there may be nothing new in that log for years.
    """
    state = request.state
    if state is RequestState.PROPOSED_BY_US:
        return Debt.ANSWER
    if state is RequestState.CONFIRMED and not request.discarding:
        demand, cursor = request.our_demand, request.receive_cursor
        asked = request.ours and demand is not None and demand.eagerness.wants_metadata
        unfinished = cursor.range.end is not None and cursor.piece is not None
        return Debt.DATA if (asked and unfinished) or receiver.is_inside(request) else None
    cancelled = state in (RequestState.CANCELLING, RequestState.CANCELLED)
    return Debt.CANCELLATION if cancelled else None


def taking(requests: Iterable[Request], sender: DataSender) -> dict[int | None, Owed]:
    """What the peer owes as long as data waits for it.

    Of each request that has data there; if none goes on that has, of the connection.
    """
    if not sender.waits():
        return {}
    flushed = sender.flushed_total()
    waiting = [
        each
        for each in requests
        if each.state is RequestState.CONFIRMED and each.sent_until > flushed
    ]
    if not waiting:
        return {None: Owed(Debt.TAKING, paid=flushed)}
    return {each.request_id: Owed(Debt.TAKING, each, flushed) for each in waiting}


class Progress:
    """Looks at what the peer owes, every `progress_max_s` (seconds).

    What it owes at two looks in a row is stalled if nothing else that was owed has been paid
    in between, and no data at all has come.  Whatever comes is a reason to wait for the
    rest: each request has to wait for its turn.
    """

    __slots__ = ("_max_s", "_moved", "_now", "_owed", "_since")

    def __init__(self, progress_max_s: float) -> None:
        self._max_s = progress_max_s
        self._now: float | None = None
        self._since = 0.0  # when was looked last
        self._moved = False  # since then
        self._owed: Mapping[int | None, Owed] = {}  # then, by request id

    def moved(self) -> None:
        """Data has come, or could not come because of us."""
        self._moved = True

    def deadline(self) -> float | None:
        """When `advance` is due, if there is something to look at."""
        return None if self._now is None else self._since + self._max_s

    def advance(self, now: float, *, idle: bool) -> None:
        """Tell the time, and whether there is nothing to look at."""
        if self._now is None or idle:
            self._since = now
        self._now = now

    def stalled(self, owed: Callable[[], Mapping[int | None, Owed]]) -> list[Owed]:
        """What the peer owes and has not begun to pay, if it is time to look."""
        if self._now is None or self._now < self._since + self._max_s:
            return []
        before, now = self._owed, owed()
        goes_on = self._moved or any(_is_paid(each, now.get(key)) for key, each in before.items())
        self._owed, self._since, self._moved = now, self._now, False
        return [] if goes_on else [each for key, each in now.items() if each == before.get(key)]


def _is_paid(before: Owed, now: Owed | None) -> bool:
    """Whether the peer has paid a debt; that of a request which we have cancelled it has not."""
    return now is None or (now != before and now.debt is not Debt.CANCELLATION)
