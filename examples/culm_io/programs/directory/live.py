"""Fetching without an end: new entries of the peer come as soon as they are there."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from culm.bamboo import LogKey, LogStore
from culm.machine import Event
from culm.measures import Measure
from culm.point2point.replication import EntryStored, LogSynced
from culm_io.programs.directory.fetch import Failure, Fetched, Fetcher, Terms, fetch_all_sound
from culm_io.programs.directory.report import log_id
from culm_io.programs.directory.serve import numbers_of
from culm_io.programs.directory.thread import StoreThread
from culm_io.programs.numbers import Metrics

__all__ = ["block_signals", "follow_logs"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)

# How long entries are collected before the directory is brought up to date, in seconds.
_UPDATE_DELAY_S = 0.2


async def follow_logs(
    store: LogStore,
    host: str,
    port: int,
    terms: Terms,
    *,
    metrics: Metrics,
    update: Callable[[Fetched], Failure | None],
    on_progress: Callable[[Fetched], object] = lambda fetched: None,
) -> Fetched:
    """Fetch the peer's present and future entries, until SIGINT or SIGTERM.

    `update` is called, in the thread in which the store is used, when all that the peer had is
    here, soon after something has come later, and at the end.  If it fails, so does all.
    """
    fetched = Fetched()
    # A signal that reached the thread of the store would be too late for our handlers.
    with StoreThread(store, initializer=block_signals) as thread:
        followers: list[_Follower] = []

        def follower(left_out: Collection[LogKey]) -> Fetcher:
            for before in followers:
                before.replaced = True
            made = _Follower(thread, terms, fetched, update, on_progress, left_out, metrics)
            followers.append(made)
            return made

        def numbers() -> Iterator[Measure]:
            for name, logs in ("positions", fetched.positions), ("offered", fetched.offered):
                for log, seqnum in logs.items():
                    yield Measure(name, seqnum, (("log", log_id(log)),))
            for each in followers[-1:]:
                yield from numbers_of(each.replicator)

        async with metrics.served("directory", numbers):
            await fetch_all_sound(follower, host, port)
    return fetched


def block_signals() -> None:
    """Keep from this thread the signals that end us."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class _Follower(Fetcher):
    def __init__(
        self,
        thread: StoreThread,
        terms: Terms,
        fetched: Fetched,
        update: Callable[[Fetched], Failure | None],
        on_progress: Callable[[Fetched], object],
        left_out: Collection[LogKey],
        metrics: Metrics,
    ) -> None:
        interest = terms.interest(live=True)
        super().__init__(thread, terms, fetched, interest, on_progress, left_out=left_out)
        self._handle = metrics.counted(super().handle)
        self._update = update
        self._caught_up = False
        self._stale = True  # there is something of which `update` has not been told
        self._updating: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self.replaced = False  # another connection is being made

    def connected(self) -> None:
        # Until the loop ends: there may be a second signal, which must not cut short the end.
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        if self.is_open:
            self.say_goodbye()
        elif self.replaced and self._task is not None:
            self._task.cancel()

    def handle(self, event: Event) -> None:
        self._handle(event)
        if isinstance(event, EntryStored) and self.is_all_of(event):
            self._stale = True
        if isinstance(event, LogSynced):
            self._caught_up = True
        if self.fetched.failure is not None:
            self.say_goodbye()
        self._bring_up_to_date()

    def settled(self) -> None:
        self._caught_up = True
        if self.is_behind():  # and will stay so: the peer has refused
            self.say_goodbye()

    def left_by_peer(self) -> None:
        if self.is_behind():
            super().left_by_peer()

    async def finish(self) -> None:
        if self._updating is not None:
            await self._updating
        if self._stale:
            await self._call_update()

    def _bring_up_to_date(self) -> None:
        if self._caught_up and self._stale and self._updating is None and not self.over:
            loop = asyncio.get_running_loop()
            self._updating = loop.create_task(self._update_later())

    async def _update_later(self) -> None:
        await asyncio.sleep(_UPDATE_DELAY_S)
        try:
            await self._call_update()
        except Exception:
            self.protocol.abort()
            raise  # in `finish`
        self._updating = None
        self._bring_up_to_date()

    async def _call_update(self) -> None:
        self._stale = False
        failure = await self.thread.call(partial(self._update, self.fetched))
        if failure is not None:
            self.fetched.fail(failure)
            self.say_goodbye()
