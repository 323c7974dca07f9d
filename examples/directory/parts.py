"""Fetching large payloads by themselves: of some files only, or from several servers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from os import fsdecode

from culm.bamboo import LogKey, LogStore
from culm.point2point.replication import Interest
from directory.fetch import Failure, Fetched, Fetcher, Terms
from directory.records import PACK_SIZE_MAX, PAYLOAD_SIZE_MAX, RecordError
from directory.survey import Survey, survey_log
from directory.thread import StoreThread
from directory.tree import TreeReader

__all__ = ["Address", "all_lacking", "chooser", "fetch_parts", "lacking_of", "look_at_servers"]

Address = tuple[str, int]

_READ_SIZE_MAX = 1 << 20
# Of so many ranges at most a server is asked at once.
_GAPS_MAX = 100


def chooser(patterns: Collection[str] | None) -> Callable[[bytes], bool]:
    """Whether a path matches a pattern, or its name does, or a directory above (see `fnmatch`)."""

    def is_chosen(path: bytes) -> bool:
        names = fsdecode(path).split("/")
        texts = {"/".join(names[: n + 1]) for n in range(len(names))} | set(names)
        return any(fnmatchcase(text, pattern) for pattern in patterns or () for text in texts)

    return (lambda path: True) if patterns is None else is_chosen


def lacking_of(chosen: Callable[[bytes], bool]) -> Callable[[LogStore, LogKey], list[int]]:
    """Which payloads are missing of the newest versions of files that are chosen.

    In a log from before there were cuts, nobody knows whose those are: then all are of interest.
    """

    def lacking(store: LogStore, log: LogKey) -> list[int]:
        reader = TreeReader(store, log, payload_size_max=PACK_SIZE_MAX)
        try:
            reader.read()
        except RecordError:
            return []  # whoever makes the directory says so
        ranges = [
            r for place in reader.lacking() if chosen(place.record.path) for r in place.ranges
        ]
        mine = {seqnum for first, last in ranges for seqnum in range(first, last + 1)}
        mine.update(reader.unclaimed)
        return [seqnum for seqnum in _missing(store, log, PAYLOAD_SIZE_MAX) if seqnum in mine]

    return lacking


def all_lacking(payload_size_max: int) -> Callable[[LogStore, LogKey], list[int]]:
    """Which payloads of at most so many bytes are missing."""
    return lambda store, log: list(_missing(store, log, payload_size_max))


def _missing(store: LogStore, log: LogKey, payload_size_max: int) -> Iterator[int]:
    seqnum = 1
    while entries := store.entries(log, seqnum, size_max=_READ_SIZE_MAX):
        for entry in entries:
            if not entry.payload_complete and entry.payload_size <= payload_size_max:
                yield entry.seqnum
        seqnum = entries[-1].seqnum + 1


async def fetch_parts(
    store: LogStore,
    servers: Sequence[Address],
    terms: Terms,
    lacking: Callable[[LogStore, LogKey], list[int]],
    *,
    on_progress: Callable[[Fetched], object] = lambda fetched: None,
) -> Fetched:
    """Fetch entries and small payloads from one server, and what is `lacking` then from all.

    A server that fails is left out; what it was asked for is asked of the others.
    """
    total = Fetched()
    terms = replace(terms, payload_size_max=min(PACK_SIZE_MAX, terms.want.size_max))

    def missing_of() -> dict[LogKey, list[int]]:
        logs = [log for log in store.logs() if terms.wanted in (None, log)]
        return {log: lacking(store, log) for log in logs}

    with StoreThread(store) as thread:
        working = await _fetch_small(thread, servers, terms, total, on_progress)
        idle = 0
        before: dict[LogKey, list[int]] | None = None
        while working and total.failure is None:
            missing = await thread.call(missing_of)
            idle = idle + 1 if missing == before else 0
            if not any(missing.values()) or idle > len(working):
                break
            before = missing
            # Who has not what was asked of it is asked for something else the next time.
            turn = idle % len(working)
            working = working[turn:] + working[:turn]
            working = await _fetch_large(thread, working, terms, missing, total)
            on_progress(total)
        if working and any((await thread.call(missing_of)).values()):
            total.fail(Failure("INCOMPLETE", "no server has all of what is missing"))
    return total


async def _fetch_small(
    thread: StoreThread,
    servers: Sequence[Address],
    terms: Terms,
    total: Fetched,
    on_progress: Callable[[Fetched], object],
) -> list[Address]:
    """From the first server that is able to; that one, and those that have not been tried."""
    for number, (host, port) in enumerate(servers):
        fetcher = Fetcher(thread, terms, total, terms.interest(live=False), on_progress)
        await fetcher.run(host, port)
        if total.failure is None:
            return list(servers[number:])
        if total.failure.code == "FORK":
            break
    return []


async def _fetch_large(
    thread: StoreThread,
    servers: Sequence[Address],
    terms: Terms,
    missing: dict[LogKey, list[int]],
    total: Fetched,
) -> list[Address]:
    """Ask each server for a share; those that did not fail."""
    added_max = terms.added_size_max
    each = replace(terms, added_size_max=None if added_max is None else added_max // len(servers))
    results = [Fetched() for _ in servers]
    fetchers = []
    for number, result in enumerate(results):
        share = {log: _share(numbers, number, len(servers)) for log, numbers in missing.items()}
        fetchers.append(_PartFetcher(thread, each, result, share))
    runs = (f.run(*server) for f, server in zip(fetchers, servers, strict=True))
    await asyncio.gather(*runs)
    for result in results:
        total.entries += result.entries
        total.payload_bytes += result.payload_bytes
        total.wire_bytes += result.wire_bytes
    pairs = list(zip(servers, results, strict=True))
    working = [server for server, result in pairs if result.failure is None]
    stop = next((r.failure for r in results if r.failure and r.failure.code in _FINAL), None)
    if stop is not None or not working:
        failure = stop or next(result.failure for result in results if result.failure)
        total.fail(failure)
    return working


# What no other server makes good.
_FINAL = frozenset({"FORK", "TOO_MUCH", "CANNOT_STORE"})


def _share(numbers: Sequence[int], index: int, count: int) -> frozenset[int]:
    return frozenset(numbers[len(numbers) * index // count : len(numbers) * (index + 1) // count])


class _PartFetcher(Fetcher):
    """Asks for payloads of these entries, and else for what is new."""

    def __init__(
        self,
        thread: StoreThread,
        terms: Terms,
        fetched: Fetched,
        share: dict[LogKey, frozenset[int]],
    ) -> None:
        self._share = share
        super().__init__(thread, terms, fetched, terms.interest(live=False))

    def survey(self, log: LogKey) -> Survey:
        chosen = self._share.get(log, frozenset())
        found = survey_log(self.store, log, payload_size_max=PAYLOAD_SIZE_MAX, chosen=chosen)
        # What is too much for now is asked for the next time.
        return replace(found, last_lacks=False, gaps=list(islice(found.gaps, _GAPS_MAX)))


class _Looker(Fetcher):
    """Hears what a server has, and asks for nothing."""

    def prepare(self) -> None:
        """Nothing is wanted."""

    def survey(self, log: LogKey) -> Survey:
        head = self.store.head(log)
        return Survey(0 if head is None else head.seqnum)

    def why_incomplete(self) -> str | None:
        return None


async def look_at_servers(
    store: LogStore, servers: Sequence[Address], terms: Terms
) -> list[Fetched]:
    """What each of the servers offers."""
    interest = Interest(live=False, accept_new_logs=True, want=None)
    results = [Fetched() for _ in servers]
    with StoreThread(store) as thread:
        lookers = [_Looker(thread, terms, result, interest) for result in results]
        runs = (each.run(*server) for each, server in zip(lookers, servers, strict=True))
        await asyncio.gather(*runs)
    return results
