"""Stores of operations: their interface, and one in memory."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from culm.bamboo.entry import LogKey
from culm.bamboo.links import open_targets
from culm.bamboo.records import Head
from culm.machine import Effect
from culm.p2panda.document import Tips
from culm.p2panda.effects import (
    AppendOperations,
    Conflict,
    DocumentLogs,
    FindDocuments,
    Found,
    Located,
    LocateOperations,
    LogState,
    LookUp,
    NewOperation,
    OpenRange,
    OperationState,
    Range,
    ReadNew,
    ReadOperations,
    Span,
    StoredOperation,
)
from culm.p2panda.heights import Height, RangeTrees
from culm.p2panda.operation import Operation
from culm.p2panda.operation import decode as decode_operation
from culm.reconcile.monoids import DEFAULT


class DocumentState(NamedTuple):
    """The state of a document, as far as an author needs it for a change.

    tips: the ids of its operations that no other follows, ascending.
    """

    schema_id: str
    tips: tuple[bytes, ...]
    deleted: bool


class OperationStore(ABC):
    """A synchronous store of entries (with YASMF hashes) and their operations; logs have no gaps.

    A log belongs to one document, and a document to one schema.  Schemas are given by their ids.
    """

    @abstractmethod
    def range(self, schema_ids: Sequence[str], *, monoid: str = DEFAULT) -> Range:
        """The heights of the logs of these schemas.

        Further calls cost little: the store keeps its tree up to date.
        """

    @abstractmethod
    def look_up(self, logs: Iterable[LogKey], operations: Iterable[bytes]) -> Found:
        """Find the states of these logs, and of the operations with these ids."""

    @abstractmethod
    def append(self, operations: Sequence[NewOperation]) -> list[int]:
        """Store these, in this order: all of them or none.  Returns their positions.

        An entry that is already there stays as it is.  Raises `Conflict`, and `ValueError` for an
        entry with a gap before it.
        """

    @abstractmethod
    def documents_of(self, logs: Iterable[LogKey]) -> dict[LogKey, DocumentLogs]:
        """The documents of these logs, as far as they exist."""

    @abstractmethod
    def read(
        self, spans: Sequence[Span], *, after: int = 0, count_max: int, size_max: int
    ) -> list[StoredOperation]:
        """The operations in these spans (one span for each log), by ascending position.

        Only those after position `after`.  Stops before exceeding `count_max` of them or `size_max`
        bytes of entries and operations, but gives at least one if there is any.
        """

    @abstractmethod
    def locate(self, spans: Sequence[Span], *, after: int = 0, count_max: int) -> list[Located]:
        """The positions of the operations in these spans (one span for each log), ascending.

        The first `count_max` of those after position `after`, or all if there are fewer.
        """

    @abstractmethod
    def read_new(
        self,
        schema_ids: Sequence[str],
        *,
        after: int = 0,
        end: int | None = None,
        count_max: int,
        size_max: int,
    ) -> list[StoredOperation]:
        """The operations of these schemas after position `after`, and up to `end` if that is given.

        Bounds as in `read`.
        """

    @abstractmethod
    def documents(self, schema_id: str) -> list[bytes]:
        """The ids of all documents of a schema, ascending."""

    @abstractmethod
    def operations(self, document_id: bytes) -> dict[bytes, Operation]:
        """All operations of a document by id; none if there is no such document."""

    @abstractmethod
    def backlinks(self, document_id: bytes) -> dict[bytes, bytes]:
        """The operation before each in its log, for all of a document; both by id."""

    @abstractmethod
    def state_of(self, document_id: bytes) -> DocumentState | None:
        """The state of a document, if it exists.

        Further calls cost little: only operations that have arrived meanwhile are looked at.
        """

    @abstractmethod
    def logs_of(self, author: bytes) -> dict[int, bytes]:
        """The ids of an author's logs, ascending, and of the documents that they belong to."""

    def perform(self, effect: Effect[Any]) -> Any:
        """Perform `effect`; returns the result that the machine waits for.

        A `Conflict` is returned as a result.  Other exceptions pass through; raises `TypeError`
        for an effect that is not for a store of operations.
        """
        method = _METHODS.get(type(effect))
        if method is None:
            raise TypeError(f"{type(effect).__name__} is not an effect for a store of operations")
        try:
            return method(self, effect)
        except Conflict as conflict:
            return conflict


_METHODS: dict[type[Effect[Any]], Callable[[OperationStore, Any], object]] = {
    OpenRange: lambda store, e: store.range(e.schema_ids, monoid=e.monoid),
    LookUp: lambda store, e: store.look_up(e.logs, e.operations),
    AppendOperations: lambda store, e: store.append(e.operations),
    FindDocuments: lambda store, e: store.documents_of(e.logs),
    LocateOperations: lambda store, e: store.locate(e.spans, after=e.after, count_max=e.count_max),
    ReadOperations: lambda store, e: store.read(
        e.spans, after=e.after, count_max=e.count_max, size_max=e.size_max
    ),
    ReadNew: lambda store, e: store.read_new(
        e.schema_ids, after=e.after, end=e.end, count_max=e.count_max, size_max=e.size_max
    ),
}


@dataclass(slots=True)
class _Document:
    id: bytes
    schema_id: str
    ids: list[bytes] = field(default_factory=list[bytes])
    logs: list[LogKey] = field(default_factory=list[LogKey])
    tips: Tips = field(default_factory=Tips)  # among the operations looked at, the first ones


@dataclass(slots=True)
class _Log:
    document: _Document
    hashes: list[bytes] = field(default_factory=list[bytes])  # of all entries, from the first on
    positions: list[int] = field(default_factory=list[int])
    end_of_log: bool = False

    def take(self, id: bytes, position: int, end_of_log: bool) -> None:
        """Add the next entry, kept at this position."""
        self.hashes.append(id)
        self.document.ids.append(id)
        self.positions.append(position)
        self.end_of_log = end_of_log

    def take_back(self) -> bytes:
        """Undo the last `take`; returns the id."""
        self.document.ids.pop()
        self.positions.pop()
        self.end_of_log = False  # since an entry after the end would not have been taken
        return self.hashes.pop()


@dataclass(slots=True)
class _Schema:
    positions: list[int] = field(default_factory=list[int])
    documents: dict[bytes, _Document] = field(default_factory=dict[bytes, _Document])


class MemoryStore(OperationStore):
    """An `OperationStore` in memory."""

    def __init__(self) -> None:
        self._kept: list[StoredOperation] = []  # by position, of which the first is 1
        self._positions: dict[bytes, int] = {}  # by id
        self._logs: dict[LogKey, _Log] = {}
        self._documents: dict[bytes, _Document] = {}
        self._schemas: dict[str, _Schema] = {}
        self._trees = RangeTrees()

    def range(self, schema_ids: Sequence[str], *, monoid: str = DEFAULT) -> Range:
        return Range(self._trees.snapshot(schema_ids, monoid, self._heights), len(self._kept))

    def _heights(self, schema_id: str) -> Iterator[Height]:
        documents = self._schemas[schema_id].documents if schema_id in self._schemas else {}
        for log in sorted(log for document in documents.values() for log in document.logs):
            yield Height(log, len(self._logs[log].hashes))

    def look_up(self, logs: Iterable[LogKey], operations: Iterable[bytes]) -> Found:
        states: dict[LogKey, LogState] = {}
        for log in logs:
            kept = self._logs.get(log)
            if kept is not None:
                count, hashes = len(kept.hashes), kept.hashes
                head = Head(count, hashes[-1], kept.end_of_log)
                known = {n: hashes[n - 1] for n in open_targets(count)}
                document = kept.document
                states[log] = LogState(head, known, document.id, document.schema_id)
        found: dict[bytes, OperationState] = {}
        for each in operations:
            position = self._positions.get(each)
            if position is not None:
                document = self._logs[self._kept[position - 1].log].document
                found[each] = OperationState(document.id, document.schema_id)
        return Found(states, found)

    def append(self, operations: Sequence[NewOperation]) -> list[int]:
        before = len(self._kept)
        grown: dict[LogKey, int] = {}  # the heights before
        try:
            positions = [self._keep(new, grown) for new in operations]
        except (Conflict, ValueError):
            while len(self._kept) > before:
                self._take_back()
            raise
        for log, height in grown.items():
            kept = self._logs[log]
            self._trees.grow(log, kept.document.schema_id, height, len(kept.hashes))
        return positions

    def _keep(self, new: NewOperation, grown: dict[LogKey, int]) -> int:
        """Store an operation, unless it is there; returns its position."""
        entry, operation, _ = new
        log, seqnum, id = entry.log, entry.seqnum, entry.hash()
        kept = self._logs.get(log)
        height = 0 if kept is None else len(kept.hashes)
        if kept is not None and seqnum <= height:
            if kept.hashes[seqnum - 1] != id:
                raise Conflict(log, seqnum)
            return kept.positions[seqnum - 1]
        if seqnum != height + 1:
            raise ValueError(f"entry {seqnum} has a gap before it")
        if kept is None:
            kept = self._open(log, new)
        if log not in grown:
            grown[log] = height
        position = len(self._kept) + 1
        self._kept.append(
            StoredOperation(position, log, seqnum, entry.encode(), operation.encode())
        )
        self._positions[id] = position
        self._schemas[kept.document.schema_id].positions.append(position)
        kept.take(id, position, entry.end_of_log)
        return position

    def _open(self, log: LogKey, new: NewOperation) -> _Log:
        """Begin a log and, if it is new, its document."""
        id = new.document_id
        document = self._documents.get(id)
        if document is None:
            document = self._documents[id] = _Document(id, new.operation.schema_id)
            self._schemas.setdefault(document.schema_id, _Schema()).documents[id] = document
        document.logs.append(log)
        kept = self._logs[log] = _Log(document)
        return kept

    def _take_back(self) -> None:
        """Undo the storing of the last operation."""
        log = self._kept.pop().log
        kept = self._logs[log]
        document = kept.document
        del self._positions[kept.take_back()]
        schema = self._schemas[document.schema_id]
        schema.positions.pop()
        if not kept.hashes:
            del self._logs[log]
            document.logs.pop()
        if not document.ids:
            del self._documents[document.id], schema.documents[document.id]

    def documents_of(self, logs: Iterable[LogKey]) -> dict[LogKey, DocumentLogs]:
        found: dict[LogKey, DocumentLogs] = {}
        for log in logs:
            kept = self._logs.get(log)
            if kept is not None:
                found[log] = DocumentLogs(kept.document.id, len(kept.document.logs))
        return found

    def read(
        self, spans: Sequence[Span], *, after: int = 0, count_max: int, size_max: int
    ) -> list[StoredOperation]:
        runs: list[list[int]] = []
        for span in spans:
            kept = self._logs.get(span.log)
            if kept is not None:
                start = max(span.start - 1, bisect_right(kept.positions, after))
                runs.append(kept.positions[start : min(span.end, start + count_max)])
        return self._bounded(runs, count_max, size_max)

    def locate(self, spans: Sequence[Span], *, after: int = 0, count_max: int) -> list[Located]:
        runs: list[Iterator[int]] = []
        for span in spans:
            kept = self._logs.get(span.log)
            if kept is not None:
                start = max(span.start - 1, bisect_right(kept.positions, after))
                places = range(start, min(span.end, len(kept.positions)))
                runs.append(map(kept.positions.__getitem__, places))
        found = islice(heapq.merge(*runs), count_max)
        stored = (self._kept[position - 1] for position in found)
        return [Located(each.position, each.log, each.seqnum) for each in stored]

    def read_new(
        self,
        schema_ids: Sequence[str],
        *,
        after: int = 0,
        end: int | None = None,
        count_max: int,
        size_max: int,
    ) -> list[StoredOperation]:
        last = len(self._kept) if end is None else end
        runs: list[list[int]] = []
        for positions in [
            self._schemas[id].positions for id in set(schema_ids) if id in self._schemas
        ]:
            start = bisect_right(positions, after)
            runs.append(positions[start : min(bisect_right(positions, last), start + count_max)])
        return self._bounded(runs, count_max, size_max)

    def _bounded(
        self, runs: Sequence[list[int]], count_max: int, size_max: int
    ) -> list[StoredOperation]:
        """The operations at the positions in the runs, each of which ascends."""
        # If there is not much more than is wanted, sorting is the quickest way to merge.
        few = sum(map(len, runs)) <= 8 * count_max
        found: list[StoredOperation] = []
        size = 0
        for position in sorted(chain.from_iterable(runs)) if few else heapq.merge(*runs):
            stored = self._kept[position - 1]
            size += len(stored.entry) + len(stored.operation)
            if found and (len(found) >= count_max or size > size_max):
                break
            found.append(stored)
        return found

    def documents(self, schema_id: str) -> list[bytes]:
        return sorted(self._schemas[schema_id].documents) if schema_id in self._schemas else []

    def operations(self, document_id: bytes) -> dict[bytes, Operation]:
        document = self._documents.get(document_id)
        ids = [] if document is None else document.ids
        kept = {each: self._kept[self._positions[each] - 1] for each in ids}
        return {each: decode_operation(stored.operation) for each, stored in kept.items()}

    def backlinks(self, document_id: bytes) -> dict[bytes, bytes]:
        document = self._documents.get(document_id)
        logs = [] if document is None else document.logs
        runs = (pairwise(self._logs[log].hashes) for log in logs)
        return {after: before for before, after in chain.from_iterable(runs)}

    def state_of(self, document_id: bytes) -> DocumentState | None:
        document = self._documents.get(document_id)
        if document is None:
            return None
        tips = document.tips
        for each in document.ids[tips.count :]:
            tips.add(each, decode_operation(self._kept[self._positions[each] - 1].operation))
        return DocumentState(document.schema_id, tips.ascending(), tips.deleted)

    def logs_of(self, author: bytes) -> dict[int, bytes]:
        logs = sorted(log for log in self._logs if log.author == author)
        return {log.log_id: self._logs[log].document.id for log in logs}
