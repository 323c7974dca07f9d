"""The operations of an `OperationStore` as effects, and their answers.

A `Replicator` hands these out; `OperationStore.perform` does them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import le, lt
from typing import Any, NamedTuple, TypeAlias, TypeGuard, TypeVar

from culm.arguments import UINT64_MAX, is_dict, is_list, is_mapping
from culm.bamboo.answers import is_head
from culm.bamboo.entry import AUTHOR_SIZE, Entry, LogKey
from culm.bamboo.links import open_targets
from culm.bamboo.records import Head
from culm.machine import Effect
from culm.p2panda.heights import ITEM_SIZE_MAX
from culm.p2panda.operation import Operation
from culm.p2panda.schema import is_operation_id
from culm.reconcile.monoids import DEFAULT
from culm.reconcile.tree import View
from culm.signatures import Verify

R = TypeVar("R")


# The parts of questions and answers.


class Conflict(Exception):
    """The store has another entry in the place of a new one."""

    def __init__(self, log: LogKey, seqnum: int) -> None:
        super().__init__(log, seqnum)
        self.log = log
        self.seqnum = seqnum

    def __str__(self) -> str:
        return f"entry {self.seqnum} of log {self.log.author.hex()}/{self.log.log_id}"


class NewOperation(NamedTuple):
    """A verified entry with its valid operation, to be kept."""

    entry: Entry
    operation: Operation
    document_id: bytes


class StoredOperation(NamedTuple):
    """An entry and its operation as they are kept, both encoded.

    position: its number in the order of storing, from 1 on; everything that it depends on has a
        lower one.
    """

    position: int
    log: LogKey
    seqnum: int
    entry: bytes
    operation: bytes


class Located(NamedTuple):
    """The position of an entry of a log."""

    position: int
    log: LogKey
    seqnum: int


class LogState(NamedTuple):
    """The state of a log that has entries.

    hashes: those of the entries that later ones can link to (`culm.bamboo.links.open_targets`).
    """

    head: Head
    hashes: Mapping[int, bytes]
    document_id: bytes
    schema_id: str


class OperationState(NamedTuple):
    """The document and the schema of an operation."""

    document_id: bytes
    schema_id: str


class Found(NamedTuple):
    """The states found in a look-up."""

    logs: Mapping[LogKey, LogState]
    operations: Mapping[bytes, OperationState]


@dataclass(frozen=True, slots=True)
class Range:
    """The heights of all logs of some schemas, at one moment.

    view: their items (`culm.p2panda.heights`); it does not change.
    position: that of the last operation stored at that moment; 0 if there was none.
    """

    view: View = field(compare=False)
    position: int


class DocumentLogs(NamedTuple):
    """The document of a log, and how many logs that document has; if it has many, 2 will do."""

    document_id: bytes
    log_count: int


class Span(NamedTuple):
    """Entries of a log, from `start` to `end`, both included."""

    log: LogKey
    start: int
    end: int


# Effects.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEffect(Effect[R]):
    """Work for an `OperationStore`, whose `perform` does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRange(StoreEffect[Range]):
    """`OperationStore.range`; answered with `Range`."""

    schema_ids: tuple[str, ...]
    monoid: str = DEFAULT

    def accepts(self, result: object) -> TypeGuard[Range]:
        if not isinstance(result, Range) or not _is_view(result.view):
            return False
        return result.view.monoid.name == self.monoid and _is_position(result.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp(StoreEffect[Found]):
    """`OperationStore.look_up`; answered with `Found`."""

    logs: tuple[LogKey, ...]
    operations: tuple[bytes, ...]

    def accepts(self, result: object) -> TypeGuard[Found]:
        if not isinstance(result, Found):
            return False
        return _are_found(result.logs, self.logs, _is_log_state) and _are_found(
            result.operations, self.operations, _is_operation_state
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOperations(StoreEffect[list[int] | Conflict]):
    """`OperationStore.append`; answered with the positions, or with the conflict."""

    operations: tuple[NewOperation, ...]

    def accepts(self, result: object) -> TypeGuard[list[int] | Conflict]:
        if isinstance(result, Conflict):
            return any(
                new.entry.log == result.log and new.entry.seqnum == result.seqnum
                for new in self.operations
            )
        if not is_list(result) or len(result) != len(self.operations):
            return False
        if not set(map(type, result)) <= {int}:
            return False
        return bool(min(result, default=1) > 0 and max(result, default=1) <= UINT64_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDocuments(StoreEffect[dict[LogKey, DocumentLogs]]):
    """`OperationStore.documents_of`; answered with ``dict[LogKey, DocumentLogs]``."""

    logs: tuple[LogKey, ...]

    def accepts(self, result: object) -> TypeGuard[dict[LogKey, DocumentLogs]]:
        return is_dict(result) and _are_found(result, self.logs, _is_in_document)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOperations(StoreEffect[list[StoredOperation]]):
    """`OperationStore.read`; answered with ``list[StoredOperation]``."""

    spans: tuple[Span, ...]
    after: int = 0
    count_max: int
    size_max: int

    def accepts(self, result: object) -> TypeGuard[list[StoredOperation]]:
        if not _are_stored(result, self.after, self.count_max, self.size_max):
            return False
        if not result:
            return True
        spans = {span.log: span for span in self.spans}
        _, logs, seqnums, _, _ = zip(*result, strict=True)
        if not spans.keys() >= set(logs):
            return False
        _, starts, ends = zip(*map(spans.__getitem__, logs), strict=True)
        return all(map(le, starts, seqnums)) and all(map(le, seqnums, ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateOperations(StoreEffect[list[Located]]):
    """`OperationStore.locate`; answered with ``list[Located]``."""

    spans: tuple[Span, ...]
    after: int = 0
    count_max: int

    def accepts(self, result: object) -> TypeGuard[list[Located]]:
        if not is_list(result) or len(result) > self.count_max:
            return False
        spans = {span.log: span for span in self.spans}
        if not all(_is_located(each, spans) for each in result):
            return False
        positions = [located.position for located in result]
        return all(map(lt, chain([self.after], positions), positions))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNew(StoreEffect[list[StoredOperation]]):
    """`OperationStore.read_new`; answered with ``list[StoredOperation]``."""

    schema_ids: tuple[str, ...]
    after: int = 0
    end: int | None = None
    count_max: int
    size_max: int

    def accepts(self, result: object) -> TypeGuard[list[StoredOperation]]:
        if not _are_stored(result, self.after, self.count_max, self.size_max):
            return False
        return self.end is None or not result or result[-1].position <= self.end


ReplicatorEffect: TypeAlias = (
    OpenRange
    | LookUp
    | AppendOperations
    | FindDocuments
    | LocateOperations
    | ReadOperations
    | ReadNew
    | Verify
)


def _are_stored(
    values: object, after: int, count_max: int, size_max: int
) -> TypeGuard[list[StoredOperation]]:
    """Whether these are operations after a position, ascending, and no more than were asked for."""
    if not is_list(values) or not set(map(type, values)) <= {StoredOperation}:
        return False
    if not values:
        return True
    # By columns: there may be many.
    columns: Iterator[tuple[Any, ...]] = zip(*values, strict=True)
    positions, logs, seqnums, entries, operations = columns
    if set(map(type, logs)) != {LogKey}:
        return False
    columns = zip(*logs, strict=True)
    authors, log_ids = columns
    if set(map(type, chain(authors, entries, operations))) != {bytes}:
        return False
    if set(map(len, authors)) != {AUTHOR_SIZE}:
        return False
    numbers = (*positions, *seqnums, *log_ids)
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > UINT64_MAX:
        return False
    if not all(map(lt, chain([after], positions), positions)):
        return False
    size = sum(map(len, entries)) + sum(map(len, operations))
    return len(values) == 1 or (len(values) <= count_max and size <= size_max)


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= UINT64_MAX


def _is_located(value: Any, spans: dict[LogKey, Span]) -> bool:
    """Whether this can be the place of an entry in one of the spans, which are given by log."""
    if not isinstance(value, Located) or type(value.log) is not LogKey or value.log not in spans:
        return False
    span = spans[value.log]
    is_number = type(value.seqnum) is int
    return is_number and _is_position(value.position) and span.start <= value.seqnum <= span.end


def _is_view(value: object) -> bool:
    return isinstance(value, View) and value.varying and value.item_size == ITEM_SIZE_MAX


def _are_found(value: object, asked: Collection[Hashable], suits: Callable[[object], bool]) -> bool:
    """Whether all values are valid, and among those that were asked for."""
    return is_mapping(value) and value.keys() <= set(asked) and all(map(suits, value.values()))


def _is_in_document(value: object) -> bool:
    return (
        isinstance(value, DocumentLogs)
        and is_operation_id(value.document_id)
        and type(value.log_count) is int
        and value.log_count > 0
    )


def _is_log_state(value: object) -> bool:
    return (
        isinstance(value, LogState)
        and is_head(value.head)
        and is_operation_id(value.head.hash)
        and _are_targets(value.hashes, value.head.seqnum)
        and is_operation_id(value.document_id)
        and _is_text(value.schema_id)
    )


def _are_targets(hashes: object, head: int) -> bool:
    """Whether all hashes are there that entries after the head can link to."""
    return is_mapping(hashes) and all(
        is_operation_id(hashes.get(seqnum)) for seqnum in open_targets(head)
    )


def _is_operation_state(value: object) -> bool:
    return (
        isinstance(value, OperationState)
        and is_operation_id(value.document_id)
        and _is_text(value.schema_id)
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)
