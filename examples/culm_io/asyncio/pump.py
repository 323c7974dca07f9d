"""The common part of drivers for asyncio, whatever carries the bytes: time, work, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeVar

from culm.machine import Closed
from culm.pump import Engine, Job, VerifyJob
from culm_io.verifiers import start_verifying

__all__ = ["PumpDriver"]

Pump_co = TypeVar("Pump_co", bound=Engine[Any, Any], covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class PumpDriver(Generic[Pump_co]):
    """Tells a pump the time, has its jobs done in `executor`, and waits for its end.

    Signatures are verified in `Engine.verifiers` threads.
    """

    pump: Pump_co

    def __init__(self, executor: Executor | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._alarm: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine; its outcome follows."""
        return self.pump.call(self._loop.time(), verb, *args, **kwargs)

    async def wait_closed(self) -> Closed:
        """Wait until machine, connections and store are done; the machine's last event.

        Raises the error of the store or of a handler.  Cancelling it aborts.
        """
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait([self._over])  # a thread may still be at work in the store
            raise
        return self.pump.result()

    def abort(self, error: Exception | None = None) -> None:
        """End all connections at once: `wait_closed` raises `error`, or `AbortedError`."""
        self.pump.abort(error)

    def update(self) -> None:
        """Carry out the pump's requests."""
        self._wake_at(self.pump.next_deadline())
        if (job := self.pump.next_job()) is not None:
            self._work = self._loop.create_task(self._perform(job))
        if self.pump.verifiers:
            start_verifying(self.pump, self._verified)
        if self._is_over() and not self._over.done():
            self._over.set_result(None)

    def _is_over(self) -> bool:
        return self.pump.over

    def _wake_at(self, deadline: float | None) -> None:
        if self._alarm is not None and (deadline is None or self._alarm.when() > deadline):
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None and deadline is not None:
            self._alarm = self._loop.call_at(deadline, self._advance)

    def _advance(self) -> None:  # perhaps too early: `update` sets the alarm again
        self._alarm = None
        self.pump.advance(self._loop.time())

    def _verified(self, job: VerifyJob) -> None:  # in another thread
        with suppress(RuntimeError):  # the loop is closed, and waits no more
            self._loop.call_soon_threadsafe(
                lambda: self.pump.finish_verifying(job, self._loop.time())
            )

    async def _perform(self, job: Job) -> None:
        try:
            answers = await self._loop.run_in_executor(self._executor, job)
        except (RuntimeError, asyncio.CancelledError) as error:  # the executor was shut down
            answers = job.failed(RuntimeError(f"the store is gone: {error}"))
        self.pump.finish(answers, self._loop.time())
