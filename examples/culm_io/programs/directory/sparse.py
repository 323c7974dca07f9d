"""Fetching one entry, with the proof that it belongs to its log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from culm.bamboo import (
    LogKey,
    LogStore,
    LogVerifier,
    Reason,
    StoredEntry,
    VerificationError,
)
from culm.bamboo.entry import Entry, decode
from culm.bamboo.links import lower_pool, upper_pool
from culm.bamboo.verify import payload_fault
from culm.machine import Event
from culm.point2point.replication import (
    EntryStored,
    Interest,
    LogOffered,
    LogRefused,
    LogSynced,
    PayloadProgress,
)
from culm_io.programs.directory.fetch import Fetched, Fetcher, Terms, log_name, several_logs
from culm_io.programs.directory.thread import StoreThread

__all__ = ["Certified", "certify", "fetch_entry"]


@dataclass(frozen=True, slots=True)
class Certified:
    """An entry, the path of links from it to entry 1, and the stored part of the pool above it.

    Sequence numbers; the path descends, the pool above ascends.
    """

    stored: StoredEntry
    path: list[int]
    above: list[int]


async def fetch_entry(
    store: LogStore, host: str, port: int, terms: Terms, seqnum: int
) -> tuple[Fetched, LogKey | None]:
    """Fetch entry `seqnum`, its payload, and the metadata of its certificate pools.

    Of the log that is wanted, or of the only one that the peer offers; also returns which.
    """
    fetched = Fetched()
    with StoreThread(store) as thread:
        fetcher = _EntryFetcher(thread, terms, fetched, seqnum)
        await fetcher.run(host, port)
    return fetched, fetcher.log


def certify(store: LogStore, log: LogKey, seqnum: int) -> Certified:
    """Verify entry `seqnum`, its payload, and the path from there to entry 1.

    Raises `culm.bamboo.VerificationError` if something is missing or wrong.
    """
    stored: StoredEntry | None = None
    entry: Entry | None = None
    verifier = LogVerifier(log, family=store.family, sparse=True)
    path = lower_pool(seqnum)
    for number in path:
        stored = store.entry(log, number)
        if stored is None:
            raise VerificationError(Reason.GAP, number)
        entry = decode(stored.encoded, family=store.family)
        verifier.verify(entry)
    assert stored is not None
    assert entry is not None
    payload = store.read_payload(log, seqnum, 0, entry.payload_size)
    if (fault := payload_fault(entry, payload)) is not None:
        raise VerificationError(fault, seqnum)
    there = store.hashes(log, upper_pool(seqnum))
    return Certified(stored, path[::-1], sorted(there))


class _EntryFetcher(Fetcher):
    def __init__(self, thread: StoreThread, terms: Terms, fetched: Fetched, seqnum: int) -> None:
        self.log: LogKey | None = None
        self._seqnum = seqnum
        # To hear of the logs, and fetch nothing but the entry.
        interest = Interest(live=False, accept_new_logs=True, want=None)
        super().__init__(thread, terms, fetched, interest)
        self._complete = False
        self._deadline: asyncio.TimerHandle | None = None

    def look_at(self, log: LogKey) -> None:
        entry = self.store.entry(log, self._seqnum)
        if entry is not None and not entry.payload_complete:
            self.begun[log, self._seqnum] = entry.payload_stored

    def prepare(self) -> None:
        """Ask for nothing before the length of the log is known: the upper pool ends there."""

    def handle(self, event: Event) -> None:
        super().handle(event)
        match event:
            case LogOffered(log=log, seqnum=seqnum):
                if log == self.terms.wanted and seqnum:
                    self._ask(log)
            case EntryStored() | PayloadProgress():
                self._be_patient()
                pool = isinstance(event, EntryStored) and event.seqnum != self._seqnum
                self.fetched.entries += pool
            case LogSynced(log=log, seqnum=seqnum):
                if (log, seqnum) == (self.log, self._seqnum):
                    self._complete = True
                    self.say_goodbye()
            case LogRefused(log=log):
                if log == self.log:
                    self.say_goodbye()

    def settled(self) -> None:
        logs = [log for log, seqnum in self.fetched.offered.items() if seqnum]
        if self.log is not None:
            return
        if self.terms.wanted is not None or not logs:
            super().settled()
        elif len(logs) == 1:
            self._ask(logs[0])
        else:
            self.fetched.fail(several_logs(logs))
            self.say_goodbye()

    def _ask(self, log: LogKey) -> None:
        if self.log is None:
            self.log = log
            want = replace(self.terms.want, first=self._seqnum, last=self._seqnum, sparse=True)
            self._be_patient()
            self.ask_for(log, want)

    def _be_patient(self) -> None:
        """A peer that does not have the entry may wait until it has."""
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self.terms.patience_s, self.say_goodbye)

    def why_incomplete(self) -> str | None:
        if self._complete or self.log is None:
            return None
        name = log_name(self.log)
        return "; ".join(self.refusals) or f"{name}: the peer does not have entry {self._seqnum}"
