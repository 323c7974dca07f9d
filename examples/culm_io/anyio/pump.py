"""The common part of drivers for anyio, whatever carries the bytes: time and work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import anyio
from anyio import current_time

from culm.pump import Engine
from culm_io.anyio.connection import News

__all__ = ["PumpDriver"]

Pump_co = TypeVar("Pump_co", bound=Engine[Any, Any], covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class PumpDriver(Generic[Pump_co]):
    """Tells a pump the time, and has its jobs done in threads."""

    pump: Pump_co

    def __init__(self) -> None:
        self.news = News()

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine, from any task; its outcome follows."""
        return self.pump.call(current_time(), verb, *args, **kwargs)

    def start_work(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start the tasks that see to the pump's work, without end."""
        tasks.start_soon(self._work)
        for _ in range(self.pump.verifiers):
            tasks.start_soon(self._verify)

    async def _work(self) -> None:
        """Do the pump's jobs, one after the other."""
        while True:
            while (job := self.pump.next_job()) is None:
                await self.news.wait()
            self.pump.finish(await anyio.to_thread.run_sync(job), current_time())

    async def _verify(self) -> None:
        """Verify signatures, beside others that do."""
        while True:
            while (job := self.pump.next_to_verify()) is None:
                await self.news.wait()
            await anyio.to_thread.run_sync(job)
            self.pump.finish_verifying(job, current_time())

    async def keep_time(self) -> None:
        """Tell the time until the pump is over; if it is cancelled before, that is the end."""
        try:
            while not self.pump.over:
                deadline = self.pump.next_deadline()
                until = math.inf if deadline is None else deadline
                with anyio.CancelScope(deadline=until) as waiting:
                    await self.news.wait()
                if waiting.cancelled_caught:
                    self.pump.advance(current_time())
        finally:
            self.pump.abort()  # not one more event, whatever the store says
