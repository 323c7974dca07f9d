"""A large payload on its way into the store, piece by piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from culm.bamboo.effects import DiscardPayload, FinishPayload, ReadPayload, WritePayload
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.store import StoreError
from culm.bamboo.verify import PayloadVerifier
from culm.machine import Event
from culm.point2point.desk import Desk, Slot
from culm.point2point.replication_events import EntryStored, PayloadProgress

__all__ = ["Staging", "StagingOwner"]


class StagingOwner(Protocol):
    """What staging needs of the log's replica."""

    @property
    def log(self) -> LogKey: ...

    def payload_stored(self, entry: Entry) -> list[Event]:
        """The payload is complete; returns what there is to say of that."""
        ...

    def payload_lost(self, entry: Entry) -> None:
        """What is stored of the payload is not what came: it has to be fetched again."""
        ...

    def verify_payload(self, entry: Entry, then: Callable[[bool], None]) -> None:
        """Read back the whole payload and tell whether it is right."""
        ...


class Staging:
    """Puts the pieces of one payload into the store, one after the other.

    Others may be at the same payload: replicators of other peers over the same store.
    So the store decides where a piece goes.  What it has already is read back and
    compared, and everything from the beginning to where we are is what our peer has sent.  As
    soon as that is not so, nothing more is written; once our peer's payload turns out to be
    the right one, what is stored is dropped, and the payload is fetched again.

    `over` is called when no more will be written.

    `offset` is where what comes begins.  `verifier` has seen all before that; without it and
    with an offset, the whole payload is read back at the end.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        owner: StagingOwner,
        desk: Desk,
        offset: int = 0,
        verifier: PayloadVerifier | None = None,
        over: Callable[[Staging], None],
    ) -> None:
        self.entry = entry
        self._owner = owner
        self._desk = desk
        self._pieces: deque[tuple[bytes, Slot]] = deque()
        self._at = offset  # where the first of the pieces begins
        self.received = offset  # where what comes next begins
        self._verifier = verifier
        self._busy = False  # the store has something to do for us
        self._astray = False  # what is stored is not what came
        self._contradicted = False  # ... and it differs, rather than being too short
        self._finish_slot: Slot | None = None
        self._verified = False  # by the connection, from beginning to end
        self._discarding = False
        self._stopped = False
        self._ended = False
        self._over = over

    @property
    def ended(self) -> bool:
        """Whether no more will be written."""
        return self._ended

    def _finish_work(self) -> None:
        if not self._ended:
            self._ended = True
            self._over(self)

    # What comes.

    def begin(self, data: bytes) -> None:
        """The first piece is about to be stored together with its entry."""
        self._busy = True
        self.received += len(data)
        self._queue(data)

    def begun(self, *, stored: bool) -> None:
        """The entry is stored, and its first piece if there was none before; or not."""
        self._busy = False
        if stored:
            self._compare()
        else:
            self._go_astray()

    def take(self, data: bytes) -> None:
        """The next piece has come."""
        self.received += len(data)
        if self._verifier is not None:
            self._verifier.update(data)
        if data and not self._astray:
            self._queue(data)
            self._go_on()

    def finish(self, *, verified: bool) -> None:
        """The last piece has come; `verified`: the connection says that all are right."""
        self._verified = verified
        self._finish_slot = self._desk.reserve()
        self._go_on()

    def stop(self) -> None:
        """Nothing more comes, though the payload is not complete."""
        self._stopped = True
        self._go_on()

    def discard(self) -> None:
        """What came was wrong."""
        self._discarding = self._stopped = True
        self._drop_pieces()
        self._go_on()

    # What the store does.

    def _queue(self, data: bytes) -> None:
        self._desk.unwritten_size += len(data)
        self._pieces.append((data, self._desk.reserve()))

    def _go_on(self) -> None:
        if self._busy:
            return
        if self._discarding:
            self._discarding = False
            if self._astray:
                self._finish_work()
            else:
                self._discard_stored(self._finish_work)
        elif self._pieces:
            self._busy = True
            self._desk.ask(
                WritePayload,
                self._written,
                log=self._owner.log,
                seqnum=self.entry.seqnum,
                offset=self._at,
                data=self._pieces[0][0],
            )
        elif self._finish_slot is not None:
            self._busy = True
            self._end()
        elif self._stopped:
            self._finish_work()

    def _written(self, refusal: object) -> None:
        self._busy = False
        if isinstance(refusal, StoreError) and self._pieces:
            self._compare()
        elif self._pieces:
            self._done()
        self._go_on()

    def _compare(self) -> None:
        """Somebody else has written: see what is there."""
        if not self._pieces:
            self._go_on()
            return
        self._busy = True
        self._desk.ask(
            ReadPayload,
            self._compared,
            log=self._owner.log,
            seqnum=self.entry.seqnum,
            offset=self._at,
            size=len(self._pieces[0][0]),
        )

    def _compared(self, found: bytes) -> None:
        self._busy = False
        if self._pieces:
            data, slot = self._pieces[0]
            if found == data:
                self._done()
            elif found and data.startswith(found):
                self._at += len(found)
                self._desk.unwritten_size -= len(found)
                self._pieces[0] = data[len(found) :], slot
            else:
                self._contradicted = bool(found)
                self._go_astray()
        self._go_on()

    def _done(self) -> None:
        """The first piece is in the store."""
        data, slot = self._pieces.popleft()
        self._at += len(data)
        self._desk.unwritten_size -= len(data)
        slot.events = [
            PayloadProgress(
                log=self._owner.log,
                seqnum=self.entry.seqnum,
                stored=self._at,
                size=self.entry.payload_size,
            )
        ]

    def _go_astray(self) -> None:
        self._astray = True
        self._drop_pieces()
        self._go_on()

    def _drop_pieces(self) -> None:
        for data, slot in self._pieces:
            self._desk.unwritten_size -= len(data)
            slot.events = []
        self._pieces.clear()

    # The end.

    def _end(self) -> None:
        whole = self._verified or (self._verifier is not None and self._verifier.fault() is None)
        if self._astray:
            if whole and self._contradicted:
                self._discard_stored(self._lose)
            else:
                self._lose()
        elif whole:
            self._finish_stored()
        elif self._verifier is not None:
            self._discard_stored(self._lose)
        else:
            self._owner.verify_payload(self.entry, self._read_back)

    def _read_back(self, right: bool) -> None:
        if right:
            self._finish_stored()
        else:
            self._discard_stored(self._lose)

    def _finish_stored(self) -> None:
        self._desk.ask(FinishPayload, self._finished, log=self._owner.log, seqnum=self.entry.seqnum)

    def _finished(self, refusal: object) -> None:
        if isinstance(refusal, StoreError):
            self._lose()
            return
        stored = EntryStored(
            log=self._owner.log,
            seqnum=self.entry.seqnum,
            payload_size=self.entry.payload_size,
            payload_stored=True,
        )
        self._fill([stored, *self._owner.payload_stored(self.entry)])

    def _lose(self) -> None:
        self._fill([])
        self._owner.payload_lost(self.entry)

    def _discard_stored(self, then: Callable[[], None]) -> None:
        slot = self._desk.reserve()

        def discarded(_: object) -> None:
            slot.events = []
            then()

        self._busy = True
        self._desk.ask(DiscardPayload, discarded, log=self._owner.log, seqnum=self.entry.seqnum)

    def _fill(self, events: list[Event]) -> None:
        assert self._finish_slot is not None
        self._finish_slot.events = events
        self._finish_work()
