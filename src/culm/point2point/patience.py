"""How long the peer is waited for."""

from __future__ import annotations

from culm.machine import check_time
from culm.point2point.control import ControlChannel
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import GivenUp
from culm.point2point.limits import Limits
from culm.point2point.progress import Debt, Owed, Progress, debt_of, taking
from culm.point2point.receiving import DataReceiver
from culm.point2point.sending import DataSender
from culm.point2point.silence import Silence

__all__ = ["Patience"]


class Patience:
    """Life (`Silence`) and progress (`Progress`) of the peer, and what follows if they lack.

    What it sends is no excuse for not taking, nor the other way round: each has its `Progress`.
    """

    __slots__ = (
        "_control",
        "_progress",
        "_receiver",
        "_sender",
        "_setup_is_due",
        "_silence",
        "_taking",
    )

    def __init__(
        self,
        *,
        limits: Limits,
        control: ControlChannel,
        sender: DataSender,
        receiver: DataReceiver,
    ) -> None:
        self._control = control
        self._sender = sender
        self._receiver = receiver
        self._silence = Silence(silence_max_s=limits.silence_max_s, keepalive_s=limits.keepalive_s)
        self._progress = Progress(limits.progress_max_s)
        self._taking = Progress(limits.progress_max_s)
        self._setup_is_due = True

    def established(self) -> None:
        """The peer's setup has come."""
        self._setup_is_due = False
        self._silence.heard()

    def heard(self) -> None:
        """Bytes have come."""
        self._silence.heard()

    def moved(self) -> None:
        """Data has come."""
        self._progress.moved()

    def excuse(self) -> None:
        """The peer could not go on because of us."""
        self._silence.heard()
        self._progress.moved()
        self._taking.moved()

    def deadline(self) -> float | None:
        """When `advance` is due."""
        deadlines = [self._silence.deadline(self._is_inside())]
        if not self._is_idle():
            deadlines.append(self._progress.deadline())
        if self._is_waited_for():
            deadlines.append(self._taking.deadline())
        return min((each for each in deadlines if each is not None), default=None)

    def advance(self, now: float) -> bool:
        """Tell the time; returns whether the peer is to be asked for a sign of life.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        check_time(now, self._silence.now)
        self._progress.advance(now, idle=self._is_idle())
        self._taking.advance(now, idle=not self._is_waited_for())
        return self._silence.advance(now, self._is_inside())

    def judge(self) -> None:
        """Give up requests that are stalled, and raise `Violation` if that is not enough."""
        if self._silence.is_over(self._is_inside()):
            raise Violation(ErrorCode.PEER_SILENT)
        stalled = self._progress.stalled(self._owed)
        stalled += self._taking.stalled(self._taken)
        for debt, request, _ in stalled:
            if request is None or debt is Debt.CANCELLATION:
                raise Violation(ErrorCode.PEER_STALLED, debt.value)
            if not request.cancelled_by_us:  # neither for what it sends nor for what it takes
                self._control.give_up(request, GivenUp.STALLED)

    def _owed(self) -> dict[int | None, Owed]:
        if self._control.over:
            return {None: Owed(Debt.GOODBYE)}
        debts = ((debt_of(each, self._receiver), each) for each in self._control.requests.values())
        return {each.request_id: Owed(debt, each) for debt, each in debts if debt is not None}

    def _taken(self) -> dict[int | None, Owed]:
        return {} if self._control.over else taking(self._control.requests.values(), self._sender)

    def _is_waited_for(self) -> bool:
        return self._sender.waits() and not self._control.over

    def _is_idle(self) -> bool:
        return not (self._control.requests or self._control.over)

    def _is_inside(self) -> bool:
        return self._setup_is_due or self._receiver.inside
