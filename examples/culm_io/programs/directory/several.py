"""Fetching from several servers, none of which holds up the others by being slow or stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from culm.bamboo import LogKey
from culm.machine import Event
from culm.point2point.replication import (
    EntryStored,
    Interest,
    LogOffered,
    LogRefused,
    LogSynced,
    Settled,
)
from culm_io.programs.directory.fetch import (
    Added,
    Failure,
    Fetched,
    Fetcher,
    Terms,
    fetch_all_sound,
)
from culm_io.programs.directory.records import PAYLOAD_SIZE_MAX
from culm_io.programs.directory.shares import Shares
from culm_io.programs.directory.survey import Survey, survey_log
from culm_io.programs.directory.thread import StoreThread

__all__ = ["Address", "Job", "fetch_from_all", "fetch_from_fastest", "final_of"]

Address = tuple[str, int]

# How long servers that are not needed any more may take to answer our goodbye, in seconds.
_GOODBYE_S = 0.5
# Failures that no other server makes good.
_FINAL = frozenset({"FORK", "TOO_MUCH", "CANNOT_STORE"})


@dataclass(frozen=True, slots=True)
class Job:
    """The logs to fetch, and the outcome over all connections."""

    thread: StoreThread
    terms: Terms
    on_progress: Callable[[Fetched], object]
    total: Fetched = field(default_factory=Fetched)
    added: Added = field(default_factory=Added)


class _Run:
    """A fetcher at work with one server."""

    def __init__(self, fetcher: Fetcher, server: Address) -> None:
        self.fetcher = fetcher
        self.server = server
        self.task = asyncio.create_task(self._work())
        self._received_size = 0

    async def _work(self) -> None:
        await self.fetcher.run(*self.server)

    @property
    def failure(self) -> Failure | None:
        """Why not all has come."""
        return self.fetcher.fetched.failure

    def came_lately(self) -> int:
        """How many bytes have come since this was asked last."""
        fetcher, before = self.fetcher, self._received_size
        earlier = fetcher.fetched.wire_bytes  # over connections that have ended
        self._received_size = earlier + fetcher.protocol.pump.bytes_received
        return self._received_size - before


class _SoundRun(_Run):
    """At work with one server, over one connection more for each log that does not verify.

    `make` makes a fetcher that leaves out such logs.
    """

    def __init__(self, make: Callable[[Collection[LogKey]], Fetcher], server: Address) -> None:
        self._make = make
        super().__init__(make(()), server)

    async def _work(self) -> None:
        await fetch_all_sound(self._next, *self.server)

    def _next(self, left_out: Collection[LogKey]) -> Fetcher:
        self.fetcher = self._make(left_out)
        return self.fetcher


async def _end(runs: Iterable[_Run], total: Fetched) -> None:
    """End runs that are not needed any more, and count their results."""
    runs = list(runs)
    tasks = [run.task for run in runs]
    for run in runs:
        if run.fetcher.connected_to_server:
            run.fetcher.say_goodbye()
        else:
            run.task.cancel()
    await asyncio.wait(tasks, timeout=_GOODBYE_S)
    for run in runs:
        if not run.task.done():
            run.fetcher.abandon()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for run in runs:
        total.add(run.fetcher.fetched)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def fetch_from_fastest(job: Job, servers: Sequence[Address]) -> dict[Address, Failure | None]:
    """Fetch everything wanted from one server; the outcomes of those that are done.

    A server that is not done after `Terms.patience_s` has to be faster than the next one: for as
    long again both are asked, and then the one goes on from which more has come.
    """
    terms = job.terms
    untried, runs, going_on = list(servers), list[_Run](), list[_Run]()
    outcomes: dict[Address, Failure | None] = {}

    def start(server: Address) -> _Run:
        fetched, interest = Fetched(), terms.interest(live=False)

        def make(left_out: Collection[LogKey]) -> Fetcher:
            return Fetcher(
                job.thread,
                terms,
                fetched,
                interest,
                job.on_progress,
                added=job.added,
                left_out=left_out,
            )

        return _SoundRun(make, server)

    try:
        while (untried or going_on) and None not in outcomes.values() and not final_of(outcomes):
            if untried:
                runs.append(start(untried.pop(0)))
                going_on.append(runs[-1])
            patience_s = terms.patience_s if untried or len(going_on) > 1 else None
            done, _ = await asyncio.wait(
                [run.task for run in going_on],
                timeout=patience_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended = [run for run in going_on if run.task in done]
            outcomes |= {run.server: run.failure for run in ended}
            going_on = [run for run in going_on if run not in ended]
            if not ended and len(going_on) > 1:
                slower = min(going_on, key=_Run.came_lately)
                going_on.remove(slower)
                slower.fetcher.abandon()
    finally:
        await _end(runs, job.total)
    return outcomes


def final_of(outcomes: Mapping[Address, Failure | None]) -> Failure | None:
    """A failure that no other server makes good."""
    failures = (each for each in outcomes.values() if each is not None)
    return next((each for each in failures if each.code in _FINAL), None)


async def fetch_from_all(
    job: Job, servers: Sequence[Address], missing: Mapping[LogKey, Sequence[int]]
) -> dict[Address, Failure | None]:
    """Fetch payloads that are missing, each from one of the servers; how it went with each."""

    def look() -> dict[LogKey, Survey]:
        return {
            log: survey_log(
                job.thread.store, log, payload_size_max=PAYLOAD_SIZE_MAX, chosen=frozenset(numbers)
            )
            for log, numbers in missing.items()
        }

    surveys = await job.thread.call(look)
    shares = Shares(missing, {log: survey.gaps for log, survey in surveys.items()})
    crew = _Crew(shares)
    for number in range(len(servers)):
        crew.members.append(_PartFetcher(job, surveys, crew, number))
    runs = [_Run(each, server) for each, server in zip(crew.members, servers, strict=True)]
    for run, member in zip(runs, crew.members, strict=True):
        run.task.add_done_callback(partial(crew.left, member))
    try:
        await crew.over.wait()
    finally:
        outcomes = {run.server: run.failure for run in runs}
        await _end(runs, job.total)
    return outcomes


class _Crew:
    """The fetchers that share the missing payloads, each with one server.

    over: all has come, or no server has more of it.
    """

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.members: list[_PartFetcher] = []
        self.over = asyncio.Event()

    def go_on(self) -> None:
        """Give work to those that have none."""
        for member in self.members:
            member.ask()
        if self.shares.done or all(member.has_nothing_to_do for member in self.members):
            self.over.set()

    def left(self, member: _PartFetcher, _: object = None) -> None:
        """A connection is over."""
        failure = member.fetched.failure
        if failure is not None and failure.code in _FINAL:
            self.over.set()
        self.shares.over(member.number)
        member.over = True
        self.go_on()


class _PartFetcher(Fetcher):
    """Asks one server for shares of the missing payloads."""

    def __init__(
        self, job: Job, surveys: Mapping[LogKey, Survey], crew: _Crew, number: int
    ) -> None:
        self.number = number
        self._part_surveys = surveys
        self._crew = crew
        self._heard = False  # the server's offers
        interest = Interest(live=False, accept_new_logs=False, want=None)
        super().__init__(job.thread, job.terms, Fetched(), interest, added=job.added)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether the server has no more missing payloads, as far as it has said."""
        return self.over or (self._heard and self._crew.shares.under_way(self.number) is None)

    def prepare(self) -> None:
        """Want nothing but the shares."""

    def survey(self, log: LogKey) -> Survey:
        found = self._part_surveys.get(log) or Survey()
        return replace(found, last_lacks=False, gaps=[])

    def handle(self, event: Event) -> None:
        super().handle(event)
        shares = self._crew.shares
        share = shares.under_way(self.number)
        match event:
            case EntryStored(log=log, seqnum=seqnum, payload_stored=True):
                shares.came(log, seqnum)
            case LogSynced(log=log, seqnum=seqnum):
                if share is not None and (log, seqnum) == (share.log, share.want.last):
                    shares.over(self.number)
            case LogRefused(log=log):
                if share is not None and log == share.log:
                    shares.over(self.number)
            case LogOffered() | Settled():
                pass
            case _:
                return
        self._crew.go_on()

    def settled(self) -> None:
        if self._is_offered():
            self._heard = True
        else:  # perhaps the server is slow
            loop = asyncio.get_running_loop()
            loop.call_later(self.terms.patience_s, self._hear_no_more)

    def _hear_no_more(self) -> None:
        self._heard = True
        self._crew.go_on()

    def ask(self) -> None:
        """Ask the server for its next share, if it has none."""
        shares, offered = self._crew.shares, self.fetched.offered
        if self.over or not self.is_open or not offered or shares.under_way(self.number):
            return
        share = shares.take(self.number, offered, servers=len(self._crew.members))
        if share is not None:
            self.ask_for(share.log, share.want)

    def why_incomplete(self) -> str | None:
        return None
