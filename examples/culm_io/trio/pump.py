"""The common part of drivers for trio, whatever carries the bytes: time and work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import trio
from trio import current_time
from trio.lowlevel import ParkingLot

from culm.pump import Engine

__all__ = ["PumpDriver"]

Pump_co = TypeVar("Pump_co", bound=Engine[Any, Any], covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class PumpDriver(Generic[Pump_co]):
    """Tells a pump the time, and has its jobs done in threads; `news` wakes the waiting tasks."""

    pump: Pump_co

    def __init__(self) -> None:
        self.news = ParkingLot()

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine, from any task; its outcome follows."""
        return self.pump.call(current_time(), verb, *args, **kwargs)

    def start_work(self, nursery: trio.Nursery) -> None:
        """Start the tasks that see to the pump's work, without end."""
        nursery.start_soon(self._work)
        for _ in range(self.pump.verifiers):
            nursery.start_soon(self._verify)

    async def _work(self) -> None:
        """Do the pump's jobs, one after the other."""
        while True:
            while (job := self.pump.next_job()) is None:
                await self.news.park()
            self.pump.finish(await trio.to_thread.run_sync(job), current_time())

    async def _verify(self) -> None:
        """Verify signatures, beside others that do."""
        while True:
            while (job := self.pump.next_to_verify()) is None:
                await self.news.park()
            await trio.to_thread.run_sync(job)
            self.pump.finish_verifying(job, current_time())

    async def keep_time(self) -> None:
        """Tell the time until the pump is over; if it is cancelled before, that is the end."""
        try:
            while not self.pump.over:
                deadline = self.pump.next_deadline()
                with trio.move_on_at(math.inf if deadline is None else deadline) as waiting:
                    await self.news.park()
                if waiting.cancelled_caught:
                    self.pump.advance(current_time())
        finally:
            self.pump.abort()  # not one more event, whatever the store says
