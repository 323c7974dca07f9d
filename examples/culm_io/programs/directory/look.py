"""The offers of servers: heard, and not asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from culm.bamboo import LogKey, LogStore
from culm.point2point.replication import Interest
from culm_io.programs.directory.fetch import Fetched, Fetcher, Terms
from culm_io.programs.directory.several import Address
from culm_io.programs.directory.survey import Survey
from culm_io.programs.directory.thread import StoreThread

__all__ = ["Lookout", "look_at_servers"]


class _Looker(Fetcher):
    """Hears a server's offers, and asks for nothing."""

    def __init__(self, thread: StoreThread, terms: Terms) -> None:
        interest = Interest(live=False, accept_new_logs=True, want=None)
        super().__init__(thread, terms, Fetched(), interest)

    def prepare(self) -> None:
        """Nothing is wanted."""

    def survey(self, log: LogKey) -> Survey:
        head = self.store.head(log)
        return Survey(0 if head is None else head.seqnum)

    def why_incomplete(self) -> str | None:
        return None


class Lookout:
    """Hears the offers of servers, while other work is under way.

    Those that say nothing for `Terms.patience_s` are not heard.
    """

    def __init__(self, thread: StoreThread, servers: Sequence[Address], terms: Terms) -> None:
        self._lookers = {each: _Looker(thread, terms) for each in servers}
        runs = (looker.run(*server) for server, looker in self._lookers.items())
        self._tasks = [asyncio.create_task(run) for run in runs]
        self._until = asyncio.get_running_loop().time() + terms.patience_s

    async def offers(self) -> dict[Address, dict[LogKey, int]]:
        """How far each server has each log, as far as it has said."""
        left_s = max(0.0, self._until - asyncio.get_running_loop().time())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=left_s)
        return {server: looker.fetched.offered for server, looker in self._lookers.items()}

    async def end(self, total: Fetched) -> None:
        """Hear no more, and count the bytes received."""
        for looker in self._lookers.values():
            looker.abandon()
        for task, looker in zip(self._tasks, self._lookers.values(), strict=True):
            if not looker.connected_to_server:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        total.wire_bytes += sum(each.fetched.wire_bytes for each in self._lookers.values())


async def look_at_servers(
    store: LogStore, servers: Sequence[Address], terms: Terms
) -> list[Fetched]:
    """The offers of each server."""
    with StoreThread(store) as thread:
        lookers = [_Looker(thread, terms) for _ in servers]
        runs = (each.run(*server) for each, server in zip(lookers, servers, strict=True))
        await asyncio.gather(*runs)
    return [each.fetched for each in lookers]
