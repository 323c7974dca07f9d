"""The common part of drivers for Twisted, whatever carries the bytes: time, work, the end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, ParamSpec, TypeVar

from twisted.internet.base import DelayedCall, ReactorBase
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from culm.effects import Answer
from culm.machine import Closed
from culm.pump import Engine, Job, VerifyJob
from culm_io.verifiers import start_verifying

__all__ = ["PumpDriver"]

Pump_co = TypeVar("Pump_co", bound=Engine[Any, Any], covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class PumpDriver(Generic[Pump_co]):
    """Tells a pump the time, has its jobs done in the reactor's threads, and says when it is over.

    closed: fires when machine, connections and store are done, with the machine's last event,
        or with the error of the store or a handler.  Cancelling it aborts.
    """

    pump: Pump_co

    def __init__(self, reactor: ReactorBase) -> None:
        self.closed: Deferred[Closed] = Deferred(lambda _: self.abort())
        self._reactor = reactor
        self._alarm: DelayedCall | None = None

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine, in the reactor's thread; its outcome follows."""
        return self.pump.call(monotonic(), verb, *args, **kwargs)

    def abort(self) -> None:
        """End all connections at once: `closed` fails with `AbortedError`."""
        self.pump.abort()

    def update(self) -> None:
        """Carry out the pump's requests."""
        self._wake_at(self.pump.next_deadline())
        if (job := self.pump.next_job()) is not None:
            self._perform(job)
        if self.pump.verifiers:
            start_verifying(self.pump, self._verified)
        if self._is_over() and not self.closed.called:
            maybeDeferred(self.pump.result).chainDeferred(self.closed)

    def _perform(self, job: Job) -> None:
        reactor: Any = self._reactor  # all of them have threads

        def gone(failure: Failure) -> list[Answer[Any]]:  # the pool was stopped
            return job.failed(RuntimeError(f"the store is gone: {failure.value}"))

        work = deferToThreadPool(reactor, reactor.getThreadPool(), job)
        work.addErrback(gone).addCallback(lambda answers: self.pump.finish(answers, monotonic()))

    def _verified(self, job: VerifyJob) -> None:  # in another thread
        reactor: Any = self._reactor
        reactor.callFromThread(lambda: self.pump.finish_verifying(job, monotonic()))

    def _is_over(self) -> bool:
        return self.pump.over

    def _wake_at(self, deadline: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        wait = 0.0 if deadline is None else max(0.0, deadline - monotonic())
        self._alarm = None if deadline is None else self._reactor.callLater(wait, self._advance)

    def _advance(self) -> None:  # perhaps too early: `update` sets the alarm again
        self._alarm = None
        self.pump.advance(monotonic())
