"""The operations that the peer lacks, sent in an order in which they can be verified.

An operation follows others of its document, in any log, which have lower positions in the store.
So all wanted operations of a document are read together, by position.  Until it is known that the
peer lacks nothing else, only documents of a single log are sent.

Strangers may give a document any number of logs.  Looking at all of them for each batch would
take time in proportion to their square, so the positions of many entries are asked for at a time.

Source: seed, "Synchronization of data"; decision 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

from culm.bamboo.entry import LogKey
from culm.buffer import Queue
from culm.effects import StoreWork
from culm.intervals import Intervals
from culm.p2panda.comparison import Offers
from culm.p2panda.effects import (
    DocumentLogs,
    FindDocuments,
    Located,
    LocateOperations,
    ReadNew,
    ReadOperations,
    Span,
    StoredOperation,
    StoreEffect,
)
from culm.p2panda.limits import Policy, ReplicatorLimits
from culm.p2panda.sessions import Session
from culm.p2panda.states import MessageGroup
from culm.replication import Room, Turns

R = TypeVar("R")

_ENCODED = attrgetter("entry", "operation")  # of a stored operation


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """The things that all sessions of a replicator share: its store, its settings, its room."""

    work: StoreWork
    limits: ReplicatorLimits
    policy: Policy
    monoid: str
    offers: Offers
    turns: Turns[Session]
    room: Room[Session]


class _Stage(Enum):
    """The state of our knowledge of the operations that the peer lacks."""

    OPEN = "open"
    """More may come."""
    KNOWN = "known"
    """That is all."""
    FOLLOWING = "following"
    """All of that was sent, and new operations follow."""


class Serving:
    """The operations that one session sends.

    It gets a turn whenever there may be something to ask the store for.

    theirs: positions of operations that came from the peer itself; they are not sent back.
    """

    def __init__(self, session: Session, context: SessionContext) -> None:
        self.theirs = Intervals()
        self._session = session
        self._work, self._limits = context.work, context.limits
        self._turns, self._room = context.turns, context.room
        self._has_room = True  # for the last read
        self._stage = _Stage.OPEN
        self._asked = 0  # answers of the store that are outstanding: at most one
        self._wanted: Queue[Span] = Queue()  # whose documents are not known
        self._source: Iterator[Span] = iter(())  # more of these, taken as they are needed
        self._documents: dict[bytes, list[Span]] = {}  # of several logs: wait for the others
        self._ready: Queue[list[Span]] = Queue()  # the wanted spans of one document each
        self._crowd: list[Span] = []  # those of a document of very many logs
        self._located = 0  # the position up to which entries of the crowd are located
        self._parts: Queue[tuple[Span, ...]] = Queue()  # located, to be read one by one
        self._chunk: tuple[Span, ...] = ()  # that is being read
        self._left = 0  # entries of the chunk that are still to come
        self._after = 0  # the position after which to read on
        self._scan: tuple[int, int | None] | None = None  # between positions, in all documents

    # Wanted operations.

    def want(self, spans: Iterable[Span]) -> None:
        """The peer lacks these, and perhaps more."""
        self._wanted.extend(spans)
        self._turns.add(self._session)

    def want_last(self, spans: Iterable[Span]) -> None:
        """The peer lacks these and nothing else; they are taken as they are needed."""
        self._source = iter(spans)
        self._stage = _Stage.KNOWN
        self._turns.add(self._session)

    def want_everything(self, end: int) -> None:
        """The peer has nothing: it lacks everything up to position `end`."""
        self._scan = (0, end) if end else None
        self._stage = _Stage.KNOWN
        self._turns.add(self._session)

    @property
    def waits(self) -> bool:
        """Whether the store has yet to answer, or there is no room for more.

        If neither, `ask` says whether there is more to send.
        """
        return self._asked > 0 or not self._has_room

    @property
    def follows(self) -> bool:
        """Whether new operations are sent, or were."""
        return self._stage is _Stage.FOLLOWING

    def follow(self, position: int) -> None:
        """From now on, send new operations: all after this position except the peer's own."""
        self._stage = _Stage.FOLLOWING
        self._after = position
        self.wake()

    def wake(self) -> None:
        """Note that there is something new in the store."""
        if self._stage is _Stage.FOLLOWING:
            self._scan = self._after, None
            self._turns.add(self._session)

    def stop(self) -> None:
        """The session is over, and leaves its turn to others."""
        self._turns.discard(self._session)
        self._room.forget(self._session)

    # Reading.

    def ask(self) -> bool:
        """Ask the store for the next operations; returns whether there was anything to ask."""
        if self._asked:
            return False
        self._has_room = True
        self._draw()
        if self._wanted and not self._has_found:
            self._find_documents()
            return True
        if not self._wanted and self._stage is _Stage.KNOWN and self._documents:
            self._ready.extend(self._documents.values())
            self._documents = {}
        if self._has_found:
            if self._has_chunk():
                return self._claim() and self._read_chunk()
            self._locate()
            return True
        if self._scan is not None:
            return self._claim() and self._read_new(*self._scan)
        self._room.forget(self._session)
        return False

    @property
    def _has_found(self) -> bool:
        """Whether something can be read: before more is looked for, as the peer's time passes."""
        return bool(self._chunk or self._parts or self._crowd or self._ready)

    def _claim(self) -> bool:
        """Whether there is room for the next read; if not, it gets a turn when there is."""
        self._has_room = self._room.claim(self._session, self._limits.batch_size_max) > 0
        return self._has_room

    def _draw(self) -> None:
        """Take more wanted spans, if there are none."""
        if not self._wanted:
            self._wanted.extend(islice(self._source, self._limits.spans_max))

    def _ask(
        self, kind: Callable[..., StoreEffect[R]], then: Callable[[R], None], **of: Any
    ) -> None:
        def answered(result: R) -> None:
            self._asked -= 1
            then(result)
            self._room.hold(self._session, 0)
            self._turns.add(self._session, fresh=False)

        self._asked += 1
        self._work.ask(kind, answered, **of)

    def _find_documents(self) -> None:
        count = min(len(self._wanted), self._limits.spans_max)
        spans = [self._wanted.popleft() for _ in range(count)]

        def found(documents: dict[LogKey, DocumentLogs]) -> None:
            for span in spans:
                document = documents.get(span.log)
                if document is None:
                    continue
                if document.log_count == 1:
                    self._ready.append([span])
                else:
                    self._documents.setdefault(document.document_id, []).append(span)

        self._ask(FindDocuments, found, logs=tuple(dict.fromkeys(span.log for span in spans)))

    def _has_chunk(self) -> bool:
        """Whether there is a chunk to read; otherwise entries have to be located first."""
        if self._chunk:
            return True
        if self._parts:
            self._begin(self._parts.popleft())
            return True
        spans_max = self._limits.spans_max
        chunk: list[Span] = []
        while not self._crowd and self._ready and len(chunk) < spans_max:
            if len(self._ready[0]) <= spans_max:
                chunk += self._ready.popleft()
            elif chunk:
                break
            else:
                self._crowd, self._located = self._ready.popleft(), 0
        if chunk:
            self._begin(tuple(chunk))
        return bool(chunk)

    def _begin(self, chunk: tuple[Span, ...]) -> None:
        self._chunk, self._after = chunk, 0
        self._left = sum(span.end - span.start + 1 for span in chunk)

    def _locate(self) -> None:
        """Ask for the positions of entries of a document of very many logs: of more than logs."""
        count_max = max(self._limits.batch_count_max, 4 * len(self._crowd))

        def located(found: list[Located]) -> None:
            count = self._limits.batch_count_max
            for first in range(0, len(found), count):
                self._parts.append(_spans_of(found[first : first + count]))
            if len(found) == count_max:
                self._located = found[-1].position
            else:
                self._crowd = []

        spans = tuple(self._crowd)
        self._ask(LocateOperations, located, spans=spans, after=self._located, count_max=count_max)

    def _send(self, operations: Sequence[StoredOperation]) -> None:
        if operations and self._session.may_send(MessageGroup.ENTRY):
            self._session.send_entries(map(_ENCODED, operations))

    def _read_chunk(self) -> bool:
        def read(operations: list[StoredOperation]) -> None:
            self._send(operations)
            self._left -= len(operations)
            if operations and self._left > 0:
                self._after = operations[-1].position
            else:
                self._chunk = ()

        self._ask(ReadOperations, read, spans=self._chunk, after=self._after, **self._bounds)
        return True

    def _read_new(self, after: int, end: int | None) -> bool:
        self._scan = None

        def read(operations: list[StoredOperation]) -> None:
            theirs = self.theirs
            news = operations
            if theirs:
                news = [stored for stored in operations if stored.position not in theirs]
            self._send(news)
            if operations:
                self._after = last = operations[-1].position
                self.theirs.forget_until(last)
                if last != end:
                    self._scan = last, end

        schema_ids = self._session.schema_ids
        self._ask(ReadNew, read, schema_ids=schema_ids, after=after, end=end, **self._bounds)
        return True

    @property
    def _bounds(self) -> dict[str, int]:
        return {"count_max": self._limits.batch_count_max, "size_max": self._limits.batch_size_max}


def _spans_of(found: Iterable[Located]) -> tuple[Span, ...]:
    """The spans of just these entries, which are neighbours in their logs."""
    ends: dict[LogKey, tuple[int, int]] = {}
    for _, log, seqnum in found:
        ends[log] = ends.get(log, (seqnum, 0))[0], seqnum
    return tuple(Span(log, start, end) for log, (start, end) in ends.items())
