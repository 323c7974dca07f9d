"""Fetching large payloads by themselves: of some files only, or from several servers at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from os import fsdecode

from culm.bamboo import LogKey, LogStore
from culm_io.programs.directory.fetch import Failure, Fetched, Terms
from culm_io.programs.directory.look import Lookout
from culm_io.programs.directory.records import PACK_SIZE_MAX, PAYLOAD_SIZE_MAX, RecordError
from culm_io.programs.directory.several import (
    Address,
    Job,
    fetch_from_all,
    fetch_from_fastest,
    final_of,
)
from culm_io.programs.directory.thread import StoreThread
from culm_io.programs.directory.tree import TreeReader

__all__ = ["all_lacking", "chooser", "fetch_parts", "lacking_of"]

_READ_SIZE_MAX = 1 << 20


def chooser(patterns: Collection[str] | None) -> Callable[[bytes], bool]:
    """Whether a path, its name or a directory above matches a pattern (see `fnmatch`)."""

    def is_chosen(path: bytes) -> bool:
        names = fsdecode(path).split("/")
        texts = {"/".join(names[: n + 1]) for n in range(len(names))} | set(names)
        return any(fnmatchcase(text, pattern) for pattern in patterns or () for text in texts)

    return (lambda path: True) if patterns is None else is_chosen


def lacking_of(chosen: Callable[[bytes], bool]) -> Callable[[LogStore, LogKey], list[int]]:
    """Finds the missing payloads of the newest versions of chosen files.

    In a log from before there were cuts, their files are unknown: then all are of interest.
    """

    def lacking(store: LogStore, log: LogKey) -> list[int]:
        reader = TreeReader(store, log, payload_size_max=PACK_SIZE_MAX)
        try:
            reader.read()
        except RecordError:
            return []  # making the directory will report it
        ranges = [
            r for place in reader.lacking() if chosen(place.record.path) for r in place.ranges
        ]
        mine = {seqnum for first, last in ranges for seqnum in range(first, last + 1)}
        mine.update(reader.unclaimed)
        return [seqnum for seqnum in _missing(store, log, PAYLOAD_SIZE_MAX) if seqnum in mine]

    return lacking


def all_lacking(payload_size_max: int) -> Callable[[LogStore, LogKey], list[int]]:
    """Finds the missing payloads of at most that number of bytes."""
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
    """Fetch entries and small payloads, then the `lacking` ones from all servers at once.

    A server that fails is left out; its share is asked of the others.  A log that does not
    verify costs nothing but that log.
    """
    servers = list(dict.fromkeys(servers))
    terms = replace(terms, payload_size_max=min(PACK_SIZE_MAX, terms.want.size_max))

    def missing_of() -> dict[LogKey, list[int]]:
        logs = [log for log in store.logs() if terms.wanted in (None, log)]
        return {log: lacking(store, log) for log in logs}

    with StoreThread(store) as thread:
        job = Job(thread, terms, on_progress)
        total = job.total
        outcomes = await _fetch_small(job, servers)
        working, failure = _those_that_work(servers, outcomes)
        total.unsound.clear()  # from here on: logs with a large payload that does not verify
        before: dict[LogKey, list[int]] | None = None
        while working and final_of(outcomes) is None:
            found = await thread.call(missing_of)
            missing = {log: each for log, each in found.items() if log not in total.unsound}
            if not any(missing.values()) or missing == before:
                break
            before = missing
            outcomes = await fetch_from_all(job, working, missing)
            working, failed = _those_that_work(working, outcomes)
            failure = failure or failed
            on_progress(total)
        if failure is not None:
            total.fail(failure)
        elif any((await thread.call(missing_of)).values()):
            total.fail(Failure("INCOMPLETE", "no server has all missing payloads"))
    return total


def _those_that_work(
    servers: Sequence[Address], outcomes: Mapping[Address, Failure | None]
) -> tuple[list[Address], Failure | None]:
    """The servers that can be asked for more; the failure, if none of them is well."""
    failures = {server: each for server, each in outcomes.items() if each is not None}
    working = [
        each for each in servers if each not in failures or failures[each].code == "INVALID_DATA"
    ]
    if len(failures) < len(outcomes):
        return working, final_of(outcomes)
    return working, final_of(outcomes) or next(iter(failures.values()))


async def _fetch_small(job: Job, servers: Sequence[Address]) -> dict[Address, Failure | None]:
    """Fetch entries and small payloads from one server, and further ones from the others."""
    outcomes: dict[Address, Failure | None] = {}
    thread, terms = job.thread, job.terms
    lookout = Lookout(thread, servers if len(servers) > 1 else (), terms)
    asked = servers
    try:
        while asked and final_of(outcomes) is None:
            outcomes |= await fetch_from_fastest(job, asked)
            offers = await lookout.offers()
            ahead = await thread.call(partial(_ahead, thread.store, offers, terms))
            asked = [server for server in ahead if server not in outcomes]
            for failure in filter(None, map(outcomes.get, () if asked else ahead)):
                job.total.fail(failure)
    finally:
        await lookout.end(job.total)
    return outcomes


def _ahead(
    store: LogStore, offers: Mapping[Address, Mapping[LogKey, int]], terms: Terms
) -> list[Address]:
    """The servers that have wanted entries which the store lacks."""
    heads = {log: store.head(log) for log in store.logs()}
    positions = {log: head.seqnum for log, head in heads.items() if head is not None}
    return [
        server
        for server, offered in offers.items()
        if any(
            seqnum > positions.get(log, 0) and (terms.wanted in (None, log) or log in heads)
            for log, seqnum in offered.items()
        )
    ]
