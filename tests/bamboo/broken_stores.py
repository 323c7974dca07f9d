"""Stores that break one rule each, for the suite of stores to find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError
from culm.bamboo.store import KeptLog, MemoryStore
from culm.wire.multihash import YAMF, HashFamily

BROKEN: list[tuple[str, type[MemoryStore]]] = []


def breaks(rule: str) -> Callable[[type[MemoryStore]], type[MemoryStore]]:
    """Enter a store that must fail the test of that name."""

    def enter(store: type[MemoryStore]) -> type[MemoryStore]:
        BROKEN.append((f"test_{rule}", store))
        return store

    return enter


class Reopened(MemoryStore):
    """Survives a restart, more or less."""

    def reopened(self) -> MemoryStore:
        return self


@breaks("it_is_a_log_store_of_its_family")
class OfOneFamily(MemoryStore):
    @property
    def family(self) -> HashFamily:
        return YAMF


@breaks("an_empty_store_has_nothing")
class KnowsNoUnknownLog(MemoryStore):
    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        return {n: self._logs[log].kept[n].entry.hash() for n in seqnums}


@breaks("what_was_appended_is_read_back")
class LosesTheLastEntryAtARestart(Reopened):
    def reopened(self) -> MemoryStore:
        for log in self._logs.values():
            log.truncate(log.seqnums[-1])
        return self


@breaks("what_was_appended_is_read_back")
class ReadsPayloadsFromTheirStart(MemoryStore):
    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        return super().read_payload(log, seqnum, 0, size)


@breaks("head_is_the_end_of_the_unbroken_run_and_newest_that_of_all")
class TakesTheNewestForTheHead(MemoryStore):
    def head(self, log: LogKey) -> Head | None:
        return self.newest(log)


@breaks("an_end_of_log_is_seen_in_the_head")
class NeverEnds(MemoryStore):
    def newest(self, log: LogKey) -> Head | None:
        newest = super().newest(log)
        return newest and replace(newest, end_of_log=False)


class _OtherEntries(MemoryStore):
    """Answers `entries` differently."""

    def other(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return bounds

    def entries(self, log: LogKey, start: int = 1, end: int | None = None, **bounds: Any) -> Any:
        bounds = self.other({"start": start, "end": end, **bounds})
        return super().entries(log, **bounds)


@breaks("entries_come_ascending_within_bounds")
class LeavesOutTheEnd(_OtherEntries):
    def other(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "end": bounds["end"] and bounds["end"] - 1}


@breaks("entries_come_ascending_within_bounds")
class DoesNotCount(_OtherEntries):
    def other(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "count_max": None}


@breaks("entries_come_ascending_within_bounds")
class DoesNotMeasure(_OtherEntries):
    def other(self, bounds: dict[str, Any]) -> dict[str, Any]:
        return {**bounds, "size_max": None}


@breaks("entries_come_ascending_within_bounds")
class Descends(_OtherEntries):
    def entries(self, *args: Any, **bounds: Any) -> Any:
        return super().entries(*args, **bounds)[::-1]


@breaks("an_entry_of_the_greatest_numbers_is_kept")
class HasSignedNumbers(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        if any(new.entry.payload_size >= 1 << 63 for new in entries):
            raise OverflowError
        super().append(log, entries)


@breaks("logs_come_by_the_bytes_of_authors_and_by_numbers")
class ListsLogsAsTheyCame(MemoryStore):
    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        logs = [log for log in self._logs if after is None or log > after]
        return logs[:count_max]


@breaks("logs_come_by_the_bytes_of_authors_and_by_numbers")
class BeginsWithTheLogItIsToComeAfter(MemoryStore):
    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        logs = [log for log in super().logs() if after is None or log >= after]
        return logs[:count_max]


@breaks("appending_again_changes_nothing")
class ForgetsPayloadsThatAreNotGivenAgain(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        super().append(log, entries)
        for new in entries:
            if new.payload is None:
                self.discard_payload(log, new.entry.seqnum)


@breaks("appending_no_entries_makes_no_log")
class MakesEmptyLogs(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        self._logs.setdefault(log, KeptLog())
        super().append(log, entries)


@breaks("an_append_is_all_or_nothing")
class AppendsOneByOne(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        for new in entries:
            super().append(log, [new])


@breaks("an_entry_of_another_log_or_family_is_refused")
class PutsEverythingIntoOneLog(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        for new in entries:
            super().append(new.entry.log, [new])


@breaks("a_payload_given_later_completes_the_entry")
class TakesPayloadsOnlyWithTheirEntries(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        known = [self.entry(log, new.entry.seqnum) is not None for new in entries]
        super().append(
            log,
            [
                NewEntry(new.entry) if there else new
                for new, there in zip(entries, known, strict=True)
            ],
        )


@breaks("a_payload_comes_in_pieces")
class PutsPiecesAnywhere(MemoryStore):
    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        stored = self.entry(log, seqnum)
        super().write_payload(log, seqnum, stored.payload_stored if stored else 0, data)


@breaks("a_payload_comes_in_pieces")
class LosesPiecesAtARestart(Reopened):
    def reopened(self) -> MemoryStore:
        for log in self._logs.values():
            log.pieces.clear()
        return self


@breaks("a_beginning_of_a_payload_goes_in_with_its_entry")
class TakesEveryBeginningForBetter(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        for new in entries:
            stored = self.entry(log, new.entry.seqnum)
            if new.staged and stored is not None and not stored.payload_complete:
                self.discard_payload(log, new.entry.seqnum)
        super().append(log, entries)


@breaks("a_beginning_that_is_empty_gives_way_to_another")
class KeepsAnEmptyBeginning(MemoryStore):
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        began = [self._began(log, new) for new in entries]
        super().append(
            log,
            [NewEntry(new.entry) if had else new for new, had in zip(entries, began, strict=True)],
        )

    def _began(self, log: LogKey, new: NewEntry) -> bool:
        found = self._logs.get(log)
        return new.staged and found is not None and new.entry.seqnum in found.pieces


@breaks("a_payload_in_many_pieces_is_read_from_anywhere")
class ReadsTheFirstPiece(MemoryStore):
    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        found = self._logs.get(log)
        pieces = None if found is None else found.pieces.get(seqnum)
        if pieces is None or not pieces.pieces:
            return super().read_payload(log, seqnum, offset, size)
        return pieces.pieces[0][offset : offset + size]


@breaks("small_complete_payloads_come_along_with_entries")
class SendsBeginningsAlong(_OtherEntries):
    def entries(self, log: LogKey, *args: Any, **bounds: Any) -> Any:
        found = super().entries(log, *args, **bounds)
        if bounds.get("payload_size_max") is None:
            return found
        return [
            each
            if each.payload is not None
            else each._replace(payload=self.read_payload(log, each.seqnum, 0, 1000))
            for each in found
        ]


@breaks("small_complete_payloads_come_along_with_entries")
class DoesNotMeasurePayloads(_OtherEntries):
    def entries(self, log: LogKey, *args: Any, **bounds: Any) -> list[StoredEntry]:
        bare: list[StoredEntry] = super().entries(
            log, *args, **{**bounds, "payload_size_max": None}
        )
        size_max = bounds.get("payload_size_max")
        last = bare[-1].seqnum if bare else 0
        whole: list[StoredEntry] = super().entries(log, payload_size_max=size_max)
        return [each for each in whole if bare and bare[0].seqnum <= each.seqnum <= last]


@breaks("an_empty_payload_is_complete_once_it_is_finished")
class TakesEmptyForComplete(MemoryStore):
    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        found = super().entry(log, seqnum)
        if found is None or found.payload_size:
            return found
        return found._replace(payload_complete=True)


@breaks("a_discarded_payload_leaves_the_entry")
class DiscardsOnce(MemoryStore):
    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        stored = self.entry(log, seqnum)
        assert stored is None or stored.payload_stored
        super().discard_payload(log, seqnum)


@breaks("only_what_is_staged_is_discarded_with_it")
class DiscardsWhatSomebodyHasFinished(MemoryStore):
    def discard_staged(self, log: LogKey, seqnum: int) -> None:
        self.discard_payload(log, seqnum)


@breaks("payloads_of_unknown_entries_are_refused")
class IsSilentAboutUnknownEntries(MemoryStore):
    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        if self.entry(log, seqnum) is not None:
            super().write_payload(log, seqnum, offset, data)


@breaks("a_fork_ends_the_log_before_it")
class KeepsWhatIsForked(MemoryStore):
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        found = self._logs.setdefault(log, KeptLog())
        found.fork = proof


@breaks("the_earliest_fork_is_kept")
class KeepsTheFirstFork(MemoryStore):
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        if self.fork(log) is None:
            super().add_fork(log, proof)


@breaks("of_two_forks_of_one_entry_the_first_is_kept")
class KeepsTheLastOfTwoForks(MemoryStore):
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        super().add_fork(log, proof)
        if self._logs[log].fork.seqnum == proof.seqnum:  # type: ignore[union-attr]
            self._logs[log].fork = proof


@breaks("a_fork_of_an_unknown_log_is_kept")
class WantsEntriesBeforeForks(MemoryStore):
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        if log in self._logs:
            super().add_fork(log, proof)


@breaks("a_fork_of_another_log_or_family_is_refused")
class IgnoresForksOfOtherLogs(MemoryStore):
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        with suppress(StoreError):
            super().add_fork(log, proof)


@breaks("a_random_walk_agrees_with_a_store_in_memory")
class DiscardsTheNextPayloadToo(MemoryStore):
    """A fault that no rule names: damage far away from the operation."""

    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        super().discard_payload(log, seqnum)
        if self.entry(log, seqnum + 2) is not None:
            super().discard_payload(log, seqnum + 2)
