"""The operations of a log store as effects.

A machine that needs a store hands these out (`culm.machine.Durable`); a driver calls
``Answer.of(effect, store.perform).give(machine)`` for each (`culm.effects.Answer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias, TypeGuard, TypeVar

from culm.arguments import is_list
from culm.bamboo.answers import are_hashes, are_logs, is_head, stored_size
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.machine import Effect

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEffect(Effect[R]):
    """Work for a `LogStore`: `LogStore.perform` does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLogs(StoreEffect[list[LogKey]]):
    """`LogStore.logs`; answered with ``list[LogKey]``."""

    after: LogKey | None = None
    count_max: int | None = None

    def accepts(self, result: object) -> TypeGuard[list[LogKey]]:
        return are_logs(result, self.after) and _at_most(self.count_max, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEntry(StoreEffect[StoredEntry | None]):
    """`LogStore.entry`; answered with ``StoredEntry | None``."""

    log: LogKey
    seqnum: int

    def accepts(self, result: object) -> TypeGuard[StoredEntry | None]:
        return _is_entry(result, self.log, self.seqnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEntries(StoreEffect[list[StoredEntry]]):
    """`LogStore.entries`; answered with ``list[StoredEntry]``."""

    log: LogKey
    start: int = 1
    end: int | None = None
    count_max: int | None = None
    size_max: int | None = None
    payload_size_max: int | None = None

    def accepts(self, result: object) -> TypeGuard[list[StoredEntry]]:
        if not is_list(result) or not _at_most(self.count_max, result):
            return False
        size = stored_size(
            result,
            self.log,
            first=self.start,
            last=self.end,
            payload_size_max=self.payload_size_max,
        )
        if size is None:
            return False
        return len(result) == 1 or self.size_max is None or size <= self.size_max


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHashes(StoreEffect[dict[int, bytes]]):
    """`LogStore.hashes`; answered with ``dict[int, bytes]``."""

    log: LogKey
    seqnums: Sequence[int]

    def accepts(self, result: object) -> TypeGuard[dict[int, bytes]]:
        return are_hashes(result, self.seqnums)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPayload(StoreEffect[bytes]):
    """`LogStore.read_payload`; answered with ``bytes``."""

    log: LogKey
    seqnum: int
    offset: int
    size: int

    def accepts(self, result: object) -> TypeGuard[bytes]:
        return type(result) is bytes and len(result) <= self.size


class LogStatus(NamedTuple):
    """The state of one log in a store; see `ReadLog`."""

    fork: ForkProof | None
    head: Head | None
    newest: Head | None
    last: StoredEntry | None
    entry: StoredEntry | None
    hashes: dict[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog(StoreEffect[LogStatus]):
    """The whole state of a log at once; answered with `LogStatus`.

    That is `LogStore.fork`, `head`, `newest`, the entry at the head (`last`), and on request one
    `entry` and the `hashes` of others.
    """

    log: LogKey
    entry: int | None = None
    hashes: Sequence[int] = ()

    def accepts(self, result: object) -> TypeGuard[LogStatus]:
        if not isinstance(result, LogStatus):
            return False
        fork, head, newest, last, entry, hashes = result
        return (
            self._is_fork(fork)
            and (head is None or is_head(head))
            and (newest is None or is_head(newest))
            and _is_entry(last, self.log, None if head is None else head.seqnum)
            and _is_entry(entry, self.log, self.entry)
            and are_hashes(hashes, self.hashes)
        )

    def _is_fork(self, fork: object) -> bool:
        return fork is None or (isinstance(fork, ForkProof) and fork.log == self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteEffect(StoreEffect[StoreError | None]):
    """A write; answered with ``None``, or with a refusal that another writer may have caused.

    Any other exception of the store is no answer: report it with `Durable.fail`.
    """

    REFUSALS: ClassVar[frozenset[StoreErrorCode]] = frozenset()

    log: LogKey

    def accepts(self, result: object) -> TypeGuard[StoreError | None]:
        if result is None:
            return True
        if not isinstance(result, StoreError) or result.code not in self.REFUSALS:
            return False
        return result.log == self.log and self._concerns(result.seqnum)

    def _concerns(self, seqnum: int) -> bool:
        """Whether it is about that entry, among others."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntries(WriteEffect):
    """`LogStore.append`."""

    REFUSALS: ClassVar = frozenset(
        {
            StoreErrorCode.WRONG_LOG,
            StoreErrorCode.CONFLICT,
            StoreErrorCode.FORKED,
            StoreErrorCode.PAYLOAD_SIZE,
        }
    )

    entries: Sequence[NewEntry]

    def _concerns(self, seqnum: int) -> bool:
        return any(new.entry.seqnum == seqnum for new in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PayloadWrite(WriteEffect):
    seqnum: int

    def _concerns(self, seqnum: int) -> bool:
        return seqnum == self.seqnum


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePayload(_PayloadWrite):
    """`LogStore.write_payload`."""

    REFUSALS: ClassVar = frozenset(
        {StoreErrorCode.UNKNOWN_ENTRY, StoreErrorCode.WRONG_OFFSET, StoreErrorCode.PAYLOAD_SIZE}
    )

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishPayload(_PayloadWrite):
    """`LogStore.finish_payload`."""

    REFUSALS: ClassVar = frozenset({StoreErrorCode.UNKNOWN_ENTRY, StoreErrorCode.PAYLOAD_SIZE})


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardStaged(_PayloadWrite):
    """`LogStore.discard_staged`."""

    REFUSALS: ClassVar = frozenset({StoreErrorCode.UNKNOWN_ENTRY})


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFork(WriteEffect):
    """`LogStore.add_fork`, which no other writer can prevent."""

    proof: ForkProof


LogEffect: TypeAlias = (
    ReadLogs
    | ReadEntry
    | ReadEntries
    | ReadHashes
    | ReadPayload
    | ReadLog
    | AppendEntries
    | WritePayload
    | FinishPayload
    | DiscardStaged
    | AddFork
)


def _is_entry(value: object, log: LogKey, seqnum: int | None) -> bool:
    if value is None or seqnum is None:
        return value is None
    return stored_size([value], log, first=seqnum, last=seqnum) is not None


def _at_most(count_max: int | None, items: Sequence[object]) -> bool:
    return count_max is None or len(items) <= max(count_max, 1)
