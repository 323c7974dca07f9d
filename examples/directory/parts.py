"""Fetching large payloads by themselves: of some files only, or from several servers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from os import fsdecode

from culm.bamboo import LogKey, LogStore
from culm.point2point.replication import Interest
from directory.fetch import Added, Failure, Fetched, Fetcher, Terms
from directory.records import PACK_SIZE_MAX, PAYLOAD_SIZE_MAX, RecordError
from directory.several import Address, fetch_from_all, fetch_from_fastest
from directory.survey import Survey
from directory.thread import StoreThread
from directory.tree import TreeReader

__all__ = ["all_lacking", "chooser", "fetch_parts", "lacking_of", "look_at_servers"]

_READ_SIZE_MAX = 1 << 20


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
    total, added = Fetched(), Added()
    terms = replace(terms, payload_size_max=min(PACK_SIZE_MAX, terms.want.size_max))

    def missing_of() -> dict[LogKey, list[int]]:
        logs = [log for log in store.logs() if terms.wanted in (None, log)]
        return {log: lacking(store, log) for log in logs}

    with StoreThread(store) as thread:
        working = await fetch_from_fastest(thread, servers, terms, total, added, on_progress)
        before: dict[LogKey, list[int]] | None = None
        while working and total.failure is None:
            missing = await thread.call(missing_of)
            if not any(missing.values()) or missing == before:
                break
            before = missing
            working = await fetch_from_all(thread, working, terms, missing, total, added)
            on_progress(total)
        if working and total.failure is None and any((await thread.call(missing_of)).values()):
            total.fail(Failure("INCOMPLETE", "no server has all of what is missing"))
    return total


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
