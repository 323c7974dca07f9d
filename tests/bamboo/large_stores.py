"""Stores that break a rule of large numbers, or whose answers no machine accepts."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from broken_stores import breaks

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry
from culm.bamboo.store import KeptLog, MemoryStore
from culm.wire.multihash import HashFamily

_SIGNED_END = 1 << 63


def fits(*numbers: int | None) -> None:
    """Like a database with signed integers."""
    if any(number is not None and number >= _SIGNED_END for number in numbers):
        raise OverflowError


def signed(number: int) -> int:
    return number - 2 * _SIGNED_END if number >= _SIGNED_END else number


@breaks("what_was_appended_is_read_back")
class GivesBytesThatMayChange(MemoryStore):
    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        return bytearray(super().read_payload(log, seqnum, offset, size))


@breaks("what_was_appended_is_read_back")
class GivesEntriesThatMayChange(MemoryStore):
    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        found = super().entry(log, seqnum)
        return found and found._replace(encoded=bytearray(found.encoded))


@breaks("what_was_appended_is_read_back")
class GivesNumbersForTruth(MemoryStore):
    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        found = super().entry(log, seqnum)
        return found and found._replace(payload_complete=int(found.payload_complete))


@breaks("an_end_of_log_is_seen_in_the_head")
class GivesNumbersForTheEnd(MemoryStore):
    def head(self, log: LogKey) -> Head | None:
        head = super().head(log)
        return head and replace(head, end_of_log=int(head.end_of_log))


@breaks("what_was_appended_is_read_back")
class GivesHashesThatMayChange(MemoryStore):
    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        return {n: bytearray(hash) for n, hash in super().hashes(log, seqnums).items()}


@breaks("what_was_appended_is_read_back")
class GivesAnotherMapping(MemoryStore):
    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> Any:
        return UserDict(super().hashes(log, seqnums))


@breaks("logs_come_by_the_bytes_of_authors_and_by_numbers")
class GivesRowsForLogs(MemoryStore):
    def logs(self, *args: Any, **bounds: Any) -> Any:
        return [tuple(log) for log in super().logs(*args, **bounds)]


@breaks("what_was_appended_is_read_back")
class KeepsTheListOfTheCaller(MemoryStore):
    """Writes late: the last thing it was given is stored just before the next call."""

    late: tuple[LogKey, Sequence[NewEntry]] | None = None

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        found = self._logs.get(log, KeptLog())
        batch: dict[int, Entry] = {}
        for new in entries:
            self._check_new(log, found, new, batch)
        self.late = log, entries

    def __getattribute__(self, name: str) -> Any:
        late = None if name.startswith("_") or name == "late" else self.late
        if late is not None:
            self.late = None
            super().append(*late)
        return super().__getattribute__(name)


@breaks("great_numbers_are_answered_as_any_others")
class FindsNoGreatEntries(MemoryStore):
    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        fits(seqnum)
        return super().entry(log, seqnum)


@breaks("great_numbers_are_answered_as_any_others")
class CountsWithASign(MemoryStore):
    def entries(self, *args: Any, **bounds: Any) -> Any:
        fits(*bounds.values())
        return super().entries(*args, **bounds)


@breaks("great_numbers_are_answered_as_any_others")
class CountsLogsWithASign(MemoryStore):
    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        fits(count_max)
        return super().logs(after, count_max=count_max)


@breaks("great_numbers_are_answered_as_any_others")
class FindsNoGreatHashes(MemoryStore):
    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        fits(*(numbers := list(seqnums)))
        return super().hashes(log, numbers)


@breaks("great_numbers_are_answered_as_any_others")
class FindsNoGreatLogs(MemoryStore):
    def head(self, log: LogKey) -> Head | None:
        fits(log.log_id)
        return super().head(log)


@breaks("great_numbers_are_answered_as_any_others")
class FindsNoForksOfGreatLogs(MemoryStore):
    def fork(self, log: LogKey) -> ForkProof | None:
        fits(log.log_id)
        return super().fork(log)


@breaks("great_numbers_are_answered_as_any_others")
class ListsNothingBehindGreatLogs(MemoryStore):
    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        fits(after and after.log_id)
        return super().logs(after, count_max=count_max)


@breaks("great_numbers_are_answered_as_any_others")
class ReadsWithASign(MemoryStore):
    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        fits(seqnum, offset, size)
        return super().read_payload(log, seqnum, offset, size)


@breaks("great_numbers_are_answered_as_any_others")
class WritesWithASign(MemoryStore):
    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        fits(offset)
        super().write_payload(log, seqnum, offset, data)


@breaks("great_numbers_are_answered_as_any_others")
class FinishesWithASign(MemoryStore):
    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        fits(seqnum)
        super().finish_payload(log, seqnum)


class _OtherOrder(MemoryStore):
    def place(self, log: LogKey) -> tuple[Any, ...]:
        return log

    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        logs = sorted(super().logs(), key=self.place)
        behind = [log for log in logs if after is None or self.place(log) > self.place(after)]
        return behind[:count_max]


@breaks("logs_come_by_the_bytes_of_authors_and_by_numbers")
class OrdersNumbersAsText(_OtherOrder):
    def place(self, log: LogKey) -> tuple[Any, ...]:
        return log.author, str(log.log_id)


@breaks("logs_come_by_the_bytes_of_authors_and_by_numbers")
class OrdersNumbersWithASign(_OtherOrder):
    def place(self, log: LogKey) -> tuple[Any, ...]:
        return log.author, signed(log.log_id)


@breaks("logs_come_by_the_bytes_of_authors_and_by_numbers")
class OrdersAuthorsFromTheirEnd(_OtherOrder):
    def place(self, log: LogKey) -> tuple[Any, ...]:
        return log.author[::-1], log.log_id


@breaks("entries_of_great_numbers_are_in_order_and_can_be_forked")
class OrdersEntriesWithASign(MemoryStore):
    def entries(self, *args: Any, **bounds: Any) -> list[StoredEntry]:
        found = super().entries(*args, **bounds)
        return sorted(found, key=lambda entry: signed(entry.seqnum))


@breaks("entries_of_great_numbers_are_in_order_and_can_be_forked")
class ForksWithASign(MemoryStore):
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        fits(proof.seqnum)
        super().add_fork(log, proof)


@breaks("the_earliest_fork_is_kept")
class RemembersTheHeadOfAForkedLog(MemoryStore):
    def __init__(self, *, family: HashFamily) -> None:
        super().__init__(family=family)
        self.known: dict[LogKey, Head] = {}

    def head(self, log: LogKey) -> Head | None:
        head = super().head(log)
        if head is None:
            return self.known.get(log)
        self.known[log] = head
        return head


@breaks("a_large_payload_is_kept_whole")
class ReadsAMebibyteAtMost(MemoryStore):
    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        return super().read_payload(log, seqnum, offset, min(size, 1 << 20))


@breaks("many_entries_are_given_at_once")
class GivesAThousandAtMost(MemoryStore):
    def entries(self, *args: Any, **bounds: Any) -> list[StoredEntry]:
        return super().entries(*args, **bounds)[:1000]


@breaks("many_entries_are_given_at_once")
class GivesFiveHundredHashesAtMost(MemoryStore):
    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        return super().hashes(log, list(seqnums)[:500])
