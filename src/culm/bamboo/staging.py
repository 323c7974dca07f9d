"""A large payload on its way into the store, piece by piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, TypeVar

from culm.bamboo.effects import DiscardStaged, FinishPayload, ReadPayload, WritePayload
from culm.bamboo.entry import Entry
from culm.bamboo.records import StoreError
from culm.bamboo.verify import PayloadVerifier
from culm.effects import Place, StoreWork
from culm.machine import Effect, Event

R = TypeVar("R")

_READ_SIZE = 1 << 20


def read_beginning(
    work: StoreWork, entry: Entry, size: int, then: Callable[[PayloadVerifier], None]
) -> None:
    """Read back and hash the first `size` bytes of a payload, or as many as are stored."""
    read = PayloadVerifier(entry)

    def ask() -> None:
        left = size - read.size
        if left <= 0:
            then(read)
            return
        work.ask(
            ReadPayload,
            got,
            log=entry.log,
            seqnum=entry.seqnum,
            offset=read.size,
            size=min(_READ_SIZE, left),
        )

    def got(data: bytes) -> None:
        read.update(data)
        if data:
            ask()
        else:
            then(read)

    ask()


class Arrival(Enum):
    """The part of a payload that is still to come."""

    COMING = "more may come"
    WHOLE = "the last piece has come"
    STOPPED = "nothing more comes, though it is not whole"
    WRONG = "nothing more comes, and the received part was wrong"


class Kept(Enum):
    """The stored part of a payload, up to the beginning of the next piece."""

    SAME = "the received part"
    LESS = "less than the received part"
    OTHER = "something other than the received part"


class Task(Enum):
    """The task for a payload of which no piece waits to be written."""

    WAIT = "wait for more of it"
    CONCLUDE = "see whether it is right"
    DISCARD = "drop the stored part"
    END = "nothing more"


TASKS: Final[dict[tuple[Arrival, Kept], Task]] = {
    **{(Arrival.COMING, kept): Task.WAIT for kept in Kept},
    **{(Arrival.WHOLE, kept): Task.CONCLUDE for kept in Kept},
    **{(Arrival.STOPPED, kept): Task.END for kept in Kept},
    **{(Arrival.WRONG, kept): Task.END for kept in Kept},
    (Arrival.WRONG, Kept.SAME): Task.DISCARD,
}


class Verdict(Enum):
    """The verdict on the received part of a payload."""

    RIGHT = "its hash is that of the payload"
    WRONG = "its hash is another one"
    UNKNOWN = "it has not been seen as a whole"


class Conclusion(Enum):
    """Conclusions on a payload that is whole."""

    FINISH = "it counts as stored"
    READ_BACK = "read all of it back, and hash it"
    START_OVER = "drop the stored part, and fetch it again"
    FETCH_AGAIN = "fetch it again, unless another writer has stored it"


CONCLUSIONS: Final[dict[tuple[Kept, Verdict], Conclusion]] = {
    (Kept.SAME, Verdict.RIGHT): Conclusion.FINISH,
    (Kept.SAME, Verdict.WRONG): Conclusion.START_OVER,
    (Kept.SAME, Verdict.UNKNOWN): Conclusion.READ_BACK,
    **{(Kept.LESS, verdict): Conclusion.FETCH_AGAIN for verdict in Verdict},
    (Kept.OTHER, Verdict.RIGHT): Conclusion.START_OVER,
    (Kept.OTHER, Verdict.WRONG): Conclusion.FETCH_AGAIN,
    (Kept.OTHER, Verdict.UNKNOWN): Conclusion.FETCH_AGAIN,
}


class Writing(Enum):
    """The work of the store on the payload."""

    IDLE = "nothing, for now"
    BUSY = "something, for now"
    STORED = "all of it is there"
    LOST = "nothing more, and it has to be fetched again"
    LEFT = "nothing more: there is as much as there will be"


_OVER = (Writing.STORED, Writing.LOST, Writing.LEFT)


class StagedPayload:
    """Puts the pieces of one payload into the store, one after the other.

    Others may be at the same payload: replicators of other peers over the same store.
    So the store decides where a piece goes.  Bytes that it has already are read back and
    compared, so that everything up to our position is as our peer has sent it.  As soon as that
    is not the case, nothing more is written; if our peer's payload then turns out to be the
    right one, the stored bytes are dropped, and the payload is fetched again.

    over: called when no more will be written (`done`); returns the events for that.
    progress: makes the event that says how much is stored (``log``, ``seqnum``, ``stored``,
        ``size``).
    offset: where the first piece begins.
    verifier: has seen everything before that; without one, a payload with an offset is read back as
        a whole at the end.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        work: StoreWork,
        over: Callable[[StagedPayload], Iterable[Event]],
        progress: Callable[..., Event],
        offset: int = 0,
        verifier: PayloadVerifier | None = None,
    ) -> None:
        self.entry = entry
        self.received = offset  # the beginning of the next piece
        self._work = work
        self._over = over
        self._progress = progress
        self._verifier = verifier
        self._pieces: deque[tuple[bytes, Place]] = deque()
        self._at = offset  # where the first of the pieces begins
        self._arrival = Arrival.COMING
        self._kept = Kept.SAME
        self.writing = Writing.IDLE
        self._verdict = Verdict.UNKNOWN
        self._last_place: Place | None = None  # for the events at the end

    @property
    def done(self) -> bool:
        """Whether no more will be written."""
        return self.writing in _OVER

    # Pieces.

    def begin(self, data: bytes) -> None:
        """The first piece, which may be empty, is about to be stored together with its entry."""
        self.writing = Writing.BUSY
        self.received += len(data)
        if data:
            self._queue(data)

    def begun(self, *, needed: bool) -> None:
        """The entry is stored, and its first piece if there was none before.

        Not `needed`: it was not, or its payload is complete.
        """
        self.writing = Writing.IDLE
        if needed:
            self._compare()
        else:
            self._go_astray(Kept.LESS)

    def take(self, data: bytes) -> None:
        """The next piece has come."""
        self.received += len(data)
        if self._verifier is not None:
            self._verifier.update(data)
        if data and self._kept is Kept.SAME:
            self._queue(data)
            self._go_on()

    def finish(self, *, verified: bool) -> None:
        """The last piece has come; `verified`: the connection says that all are right."""
        self._arrival = Arrival.WHOLE
        if self._verifier is not None:
            verified = verified or self._verifier.fault() is None
            self._verdict = Verdict.RIGHT if verified else Verdict.WRONG
        elif verified:
            self._verdict = Verdict.RIGHT
        self._last_place = self._work.reserve()
        self._go_on()

    def stop(self) -> None:
        """Nothing more comes, though the payload is not complete."""
        if self._arrival is Arrival.COMING:
            self._arrival = Arrival.STOPPED
            self._go_on()

    def take_back(self) -> None:
        """The received part was wrong."""
        self._arrival = Arrival.WRONG
        self._drop_pieces()
        self._go_on()

    # The store.

    def _queue(self, data: bytes) -> None:
        self._work.hold(len(data))
        self._pieces.append((data, self._work.reserve()))

    def _go_on(self) -> None:
        if self.writing is not Writing.IDLE:
            return
        if self._pieces:
            self._ask(WritePayload, self._written, offset=self._at, data=self._pieces[0][0])
            return
        match TASKS[self._arrival, self._kept]:
            case Task.CONCLUDE:
                self._conclude()
            case Task.DISCARD:
                self._discard(Writing.LEFT)
            case Task.END:
                self._end(Writing.LEFT)
            case Task.WAIT:
                pass

    def _ask(
        self, kind: Callable[..., Effect[R]], then: Callable[[R], None], **fields: object
    ) -> None:
        """Ask the store for something about this payload, and for nothing else until then."""
        self.writing = Writing.BUSY
        self._work.ask(kind, then, log=self.entry.log, seqnum=self.entry.seqnum, **fields)

    def _written(self, refusal: StoreError | None) -> None:
        self.writing = Writing.IDLE
        if refusal is not None and self._pieces:
            self._compare()
        elif self._pieces:
            self._have_stored()
        self._go_on()

    def _compare(self) -> None:
        """Another writer has been there: compare the stored part."""
        if not self._pieces:
            self._go_on()
            return
        self._ask(ReadPayload, self._compared, offset=self._at, size=len(self._pieces[0][0]))

    def _compared(self, found: bytes) -> None:
        self.writing = Writing.IDLE
        if self._pieces:
            data, place = self._pieces[0]
            if found == data:
                self._have_stored()
            elif found and data.startswith(found):
                self._at += len(found)
                self._work.release(len(found))
                self._pieces[0] = data[len(found) :], place
            else:
                self._go_astray(Kept.OTHER if found else Kept.LESS)
        self._go_on()

    def _have_stored(self) -> None:
        """The first piece is in the store."""
        data, place = self._pieces.popleft()
        self._at += len(data)
        self._work.release(len(data))
        progress = self._progress(
            log=self.entry.log,
            seqnum=self.entry.seqnum,
            stored=self._at,
            size=self.entry.payload_size,
        )
        place.fill([progress])

    def _go_astray(self, kept: Kept) -> None:
        self._kept = kept
        self._drop_pieces()
        self._go_on()

    def _drop_pieces(self) -> None:
        for data, place in self._pieces:
            self._work.release(len(data))
            place.fill()
        self._pieces.clear()

    def _discard(self, writing: Writing) -> None:
        place = self._work.reserve()

        def discarded(_: object) -> None:
            place.fill()
            self._end(writing)

        self._ask(DiscardStaged, discarded)

    # The end.

    def _conclude(self) -> None:
        match CONCLUSIONS[self._kept, self._verdict]:
            case Conclusion.FINISH:
                self._ask(FinishPayload, self._finished)
            case Conclusion.READ_BACK:
                self.writing = Writing.BUSY
                read_beginning(self._work, self.entry, self.entry.payload_size, self._read_back)
            case Conclusion.START_OVER:
                self._discard(Writing.LOST)
            case Conclusion.FETCH_AGAIN:
                self._end(Writing.LOST)

    def _read_back(self, read: PayloadVerifier) -> None:
        self._verdict = Verdict.RIGHT if read.fault() is None else Verdict.WRONG
        self._conclude()

    def _finished(self, refusal: StoreError | None) -> None:
        self._end(Writing.STORED if refusal is None else Writing.LOST)

    def _end(self, writing: Writing) -> None:
        self.writing = writing
        events = self._over(self)
        if self._last_place is not None:
            self._last_place.fill(events)
