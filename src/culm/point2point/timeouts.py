"""Patience with the peer: with its silence, and with its debts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from culm.machine import check_time
from culm.point2point.channels import Output
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.handles import Request
from culm.point2point.limits import Timing
from culm.point2point.receiving import DataReceiver
from culm.point2point.states import RequestState
from culm.replication import Debts, Liveness
from culm.timers import earliest

_CANCELLED = frozenset({RequestState.CANCELLING, RequestState.CANCELLED})


class Debt(Enum):
    """Debts that the peer may have."""

    ANSWER = "a confirmation of our proposal, or a cancel"
    DATA = "the rest of a range that has an end, or of an entry"
    CANCELLATION = "its two messages of the cancellation of a request"
    GOODBYE = "its part in closing the connection"
    TAKING = "credit for, or the taking of, data that it has asked for"


class Owed(NamedTuple):
    """A debt, and the request that it belongs to, unless it is the connection's.

    `paid`: the part that has been paid, of a debt that is paid bit by bit.
    """

    debt: Debt
    request: Request | None = None
    paid: int = 0


class Timeouts:
    """Signs of life (`Liveness`) and debts (`Debts`) of the peer, and their consequences.

    A peer that sends must also take, and the other way round: each direction has its own
    `Debts`.
    """

    def __init__(
        self,
        timing: Timing,
        output: Output,
        requests: Mapping[int, Request],
        receiver: DataReceiver,
    ) -> None:
        self._requests = requests
        self._output = output
        self._receiver = receiver
        self._liveness = Liveness(
            idle_timeout_s=timing.idle_timeout_s, keepalive_s=timing.keepalive_s
        )
        self._sending = Debts[int | None, Owed](timing.progress_max_s, is_paid=_is_paid)
        self._taking = Debts[int | None, Owed](timing.progress_max_s, is_paid=_is_paid)
        self._setup_is_due = True
        self._saying_goodbye = False
        self._brought = 0  # bytes that the receiver has had at a look
        self._taken_total = 0  # bytes

    def established(self) -> None:
        self._setup_is_due = False
        self._liveness.heard()

    def say_goodbye(self) -> None:
        self._saying_goodbye = True

    def heard(self) -> None:
        self._liveness.heard()

    def taken(self, size: int) -> None:
        self._taken_total += size
        self._liveness.taken()

    def excuse(self) -> None:
        """The peer could not go on because of us."""
        self._liveness.heard()
        self._sending.moved()
        self._taking.moved()

    def deadline(self) -> float | None:
        deadlines = [self._liveness.deadline(self._is_inside())]
        if not self._is_idle():
            deadlines.append(self._sending.deadline())
        if self._is_waited_for():
            deadlines.append(self._taking.deadline())
        return earliest(*deadlines)

    def advance(self, now: float) -> bool:
        """Tell the time; returns whether to ask the peer for a sign of life.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        check_time(now, self._liveness.now)
        self._sending.advance(now, idle=self._is_idle())
        self._taking.advance(now, idle=not self._is_waited_for())
        return self._liveness.advance(now, self._is_inside())

    def stalled(self) -> list[Request]:
        """The requests to be given up.  Raises `Violation` if that is not enough."""
        if self._liveness.now is None:
            return []  # the time was never told
        if self._liveness.is_over(self._is_inside()):
            raise Violation(ErrorCode.PEER_SILENT)
        if self._receiver.brought > self._brought and not self._saying_goodbye:
            self._sending.moved()
        self._brought = max(self._brought, self._receiver.brought)
        requests: dict[int, Request] = {}  # one may be stalled both ways
        owed, taken = self._sending.stalled(self._owed), self._taking.stalled(self._taken)
        for debt, request, _ in owed + taken:
            if request is None or debt is Debt.CANCELLATION:
                raise Violation(ErrorCode.PEER_STALLED, debt.value)
            requests[request.request_id] = request
        return list(requests.values())

    def _owed(self) -> dict[int | None, Owed]:
        if self._saying_goodbye:
            return {None: Owed(Debt.GOODBYE, paid=self._taken_total)}
        debts = ((_debt_of(each, self._receiver), each) for each in self._requests.values())
        return {each.request_id: Owed(debt, each) for debt, each in debts if debt is not None}

    def _taken(self) -> dict[int | None, Owed]:
        """Data that it does not take: by request, or of the connection if none has any waiting."""
        if not self._is_waited_for():
            return {}
        flushed = self._output.flushed_total
        waiting = [
            each
            for each in self._requests.values()
            if each.life is RequestState.CONFIRMED and each.sent_until > flushed
        ]
        if not waiting:
            return {None: Owed(Debt.TAKING, paid=flushed)}
        return {each.request_id: Owed(Debt.TAKING, each, flushed) for each in waiting}

    def _is_waited_for(self) -> bool:
        return self._output.unsent_size > 0 and not self._saying_goodbye

    def _is_idle(self) -> bool:
        return not (self._requests or self._saying_goodbye)

    def _is_inside(self) -> bool:
        return self._setup_is_due or self._receiver.inside


def _debt_of(request: Request, receiver: DataReceiver) -> Debt | None:
    """The peer's debt for a request, unless it waits for something itself.

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


def _is_paid(before: Owed, now: Owed | None) -> bool:
    """Whether a debt is paid, or part of it; a cancellation is owed until it is over."""
    return now is None or (now != before and now.debt is not Debt.CANCELLATION)
