"""How long to wait for the peer: for signs of life, and for what it owes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from culm.machine import check_time
from culm.point2point.control import RequestTable
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.handles import Request
from culm.point2point.output import Output
from culm.point2point.receiving import DataReceiver
from culm.point2point.states import RequestState

__all__ = ["Debt", "Owed", "Timeouts"]

_CANCELLED = frozenset({RequestState.CANCELLING, RequestState.CANCELLED})


class Debt(Enum):
    """What the peer may owe."""

    ANSWER = "a confirmation of our proposal, or a cancel"
    DATA = "the rest of a range that has an end, or of an entry"
    CANCELLATION = "its two messages of the cancellation of a request"
    GOODBYE = "its part in closing the connection"
    TAKING = "credit for, or the taking of, data that it has asked for"


class Owed(NamedTuple):
    """A debt, and the request that it belongs to, unless it is the connection's.

    `paid`: how much has been paid of what is paid bit by bit.
    """

    debt: Debt
    request: Request | None = None
    paid: int = 0


class Timeouts:
    """Signs of life (`Liveness`) and progress (`Progress`) of the peer, and what they lead to.

    A peer that sends must also take, and the other way round: each direction has its own
    `Progress`.
    """

    __slots__ = (
        "_brought",
        "_liveness",
        "_output",
        "_receiver",
        "_requests",
        "_saying_goodbye",
        "_sending",
        "_setup_is_due",
        "_taken_total",
        "_taking",
    )

    def __init__(
        self,
        *,
        output: Output,
        requests: RequestTable,
        receiver: DataReceiver,
    ) -> None:
        limits = output.limits
        self._requests = requests
        self._output = output
        self._receiver = receiver
        self._liveness = Liveness(
            idle_timeout_s=limits.idle_timeout_s, keepalive_s=limits.keepalive_s
        )
        self._sending = Progress(limits.progress_max_s)
        self._taking = Progress(limits.progress_max_s)
        self._setup_is_due = True
        self._saying_goodbye = False
        self._brought = 0  # how much the receiver had when was looked last
        self._taken_total = 0  # bytes

    def established(self) -> None:
        """The peer's setup has come."""
        self._setup_is_due = False
        self._liveness.heard()

    def say_goodbye(self) -> None:
        """From now on the peer owes nothing but its goodbye."""
        self._saying_goodbye = True

    def heard(self) -> None:
        """Bytes have come."""
        self._liveness.heard()

    def taken(self, size: int) -> None:
        """So many bytes have left."""
        self._taken_total += size
        self._liveness.taken()

    def excuse(self) -> None:
        """The peer could not go on because of us."""
        self._liveness.heard()
        self._sending.moved()
        self._taking.moved()

    def deadline(self) -> float | None:
        """When `advance` is due."""
        deadlines = [self._liveness.deadline(self._is_inside())]
        if not self._is_idle():
            deadlines.append(self._sending.deadline())
        if self._is_waited_for():
            deadlines.append(self._taking.deadline())
        return min((each for each in deadlines if each is not None), default=None)

    def advance(self, now: float) -> bool:
        """Tell the time; returns whether the peer is to be asked for a sign of life.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        check_time(now, self._liveness.now)
        self._sending.advance(now, idle=self._is_idle())
        self._taking.advance(now, idle=not self._is_waited_for())
        return self._liveness.advance(now, self._is_inside())

    def stalled(self) -> list[Request]:
        """The requests to be given up.  Raises `Violation` if that is not enough."""
        if self._liveness.now is None:
            return []  # nobody has told the time
        if self._liveness.is_over(self._is_inside()):
            raise Violation(ErrorCode.PEER_SILENT)
        if self._receiver.brought > self._brought and not self._saying_goodbye:
            self._sending.moved()
        self._brought = self._receiver.brought
        requests: dict[int, Request] = {}  # one may lack what it sends and what it takes
        for debt, request, _ in self._sending.stalled(self._owed) + self._taking.stalled(
            self._taken
        ):
            if request is None or debt is Debt.CANCELLATION:
                raise Violation(ErrorCode.PEER_STALLED, debt.value)
            requests[request.request_id] = request
        return list(requests.values())

    def _owed(self) -> dict[int | None, Owed]:
        if self._saying_goodbye:
            return {None: Owed(Debt.GOODBYE, paid=self._taken_total)}
        debts = ((_debt_of(each, self._receiver), each) for each in self._requests)
        return {each.request_id: Owed(debt, each) for debt, each in debts if debt is not None}

    def _taken(self) -> dict[int | None, Owed]:
        """What it does not take: of each request that has data waiting, else of the connection."""
        if not self._is_waited_for():
            return {}
        flushed = self._output.flushed_total
        waiting = [
            each
            for each in self._requests
            if each.life is RequestState.CONFIRMED and each.outgoing.sent_until > flushed
        ]
        if not waiting:
            return {None: Owed(Debt.TAKING, paid=flushed)}
        return {each.request_id: Owed(Debt.TAKING, each, flushed) for each in waiting}

    def _is_waited_for(self) -> bool:
        return self._output.unsent_size > 0 and not self._saying_goodbye

    def _is_idle(self) -> bool:
        return not (len(self._requests) or self._saying_goodbye)

    def _is_inside(self) -> bool:
        return self._setup_is_due or self._receiver.inside


def _debt_of(request: Request, receiver: DataReceiver) -> Debt | None:
    """What the peer owes for a request, unless it is waiting for something itself.

    A range without an end is never owed: there may be nothing new in that log for years.
    """
    state, incoming = request.life, request.incoming
    if state is RequestState.PROPOSED_BY_US:
        return Debt.ANSWER
    if state is RequestState.CONFIRMED and not incoming.discarding:
        demand, cursor = incoming.demand, incoming.cursor
        asked = request.ours and demand is not None and demand.eagerness.wants_metadata
        unfinished = cursor.range.end is not None and cursor.piece is not None
        begun = receiver.is_inside(request) or incoming.owes_payload()
        return Debt.DATA if (asked and unfinished) or begun else None
    return Debt.CANCELLATION if state in _CANCELLED else None


class Liveness:
    """How long the peer has been silent, and what is to be done about it.

    Times are monotonic seconds.  Nothing is known before the first `advance`.  A sign of life
    counts from the time told last before it.  A peer that has begun something (`inside`) must go
    on within `idle_timeout_s`.  If no time at all was told from its last sign of life until that
    was over, it has as long again.  Otherwise it is asked for a sign of life after `keepalive_s`,
    however late the time is told, and then has `idle_timeout_s`: counted from when bytes of ours
    last left, because the question may be queued behind them on the line.
    """

    __slots__ = ("_asked_at", "_heard", "_idle_timeout_s", "_keepalive_s", "_since", "now")

    def __init__(self, *, idle_timeout_s: float, keepalive_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._keepalive_s = keepalive_s
        self.now: float | None = None
        self._since: float | None = None  # when the peer was heard last
        self._heard = False  # since the clock moved last
        self._asked_at: float | None = None  # or when bytes left last since then

    def heard(self) -> None:
        """The peer has given a sign of life, at the time told last."""
        self._since, self._heard, self._asked_at = self.now, True, None

    def taken(self) -> None:
        """Bytes of ours have left."""
        if self._asked_at is not None:
            self._asked_at = self.now

    def deadline(self, inside: bool) -> float | None:
        """When `advance` is due."""
        if self._since is None:
            return None
        if inside:
            return self._since + self._idle_timeout_s
        if self._asked_at is None:
            return self._since + self._keepalive_s
        return self._asked_at + self._idle_timeout_s

    def advance(self, now: float, inside: bool) -> bool:
        """Tell the time; returns whether the peer is to be asked for a sign of life."""
        heard = self._heard and inside
        if self._since is None or (heard and now > self._since + self._idle_timeout_s):
            self._since = now  # a peer is not silent because we are slow
        self._heard = self._heard and now == self.now
        self.now = now
        if inside or self._asked_at is not None or now < self._since + self._keepalive_s:
            return False
        self._asked_at = now
        return True

    def is_over(self, inside: bool) -> bool:
        """Whether the peer has been silent for too long."""
        deadline = self.deadline(inside)
        return (
            deadline is not None
            and self.now is not None
            and self.now >= deadline
            and (inside or self._asked_at is not None)
        )


class Progress:
    """Looks at what the peer owes, every `progress_max_s` (seconds).

    What it owes at two checks in a row is stalled if nothing else that was owed has been paid in
    between, and no data at all has come.  Whatever comes is a reason to wait for the rest, because
    requests have to wait for their turn.
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
        """What the peer owes and has not begun to pay, if it is time to check."""
        if self._now is None or self._now < self._since + self._max_s:
            return []
        before, now = self._owed, owed()
        goes_on = self._moved or any(_is_paid(each, now.get(key)) for key, each in before.items())
        self._owed, self._since, self._moved = now, self._now, False
        return [] if goes_on else [each for key, each in now.items() if each == before.get(key)]


def _is_paid(before: Owed, now: Owed | None) -> bool:
    """Whether a debt is paid, or part of it; a cancellation is owed until it is over."""
    return now is None or (now != before and now.debt is not Debt.CANCELLATION)
