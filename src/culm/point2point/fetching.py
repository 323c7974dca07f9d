"""What the peer sends for one request, on its way into the store."""

from __future__ import annotations

from culm.bamboo.effects import (
    AppendEntries,
    DiscardPayload,
    FinishPayload,
    ReadEntry,
    ReadHashes,
    WritePayload,
)
from culm.bamboo.entry import Entry, decode
from culm.bamboo.store import NewEntry, StoredEntry, StoreError
from culm.machine import Event
from culm.point2point.desk import Desk, Slot
from culm.point2point.events import (
    Apologized,
    EntryWanted,
    ForkSuspected,
    HashWanted,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
)
from culm.point2point.messages import CancelReason
from culm.point2point.pieces import Part
from culm.point2point.replica import Replica
from culm.point2point.replication_events import (
    EntryStored,
    PayloadProgress,
    PiecesNotified,
    ReplicatorLimits,
)
from culm.point2point.request import Request
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

__all__ = ["Fetching"]

_ENTRY_SIZE = 400  # what an entry costs in memory, about


class Fetching:
    """Batches verified entries with small payloads, and stages large payloads in pieces."""

    def __init__(
        self,
        request: Request,
        replica: Replica,
        *,
        desk: Desk,
        limits: ReplicatorLimits,
        family: HashFamily,
    ) -> None:
        self.request = request
        self.replica = replica
        self._desk = desk
        self._limits = limits
        self._family = family
        self._batch: list[NewEntry] = []
        self._batch_size = 0
        self._batch_slot: Slot | None = None
        self._appending = 0  # batches that the store has not confirmed
        self._complete = False  # the range is at its end
        self._entry: Entry | None = None  # whose payload is coming in
        self._pieces: list[bytes] = []  # of that payload, not written
        self._pieces_size = 0
        self._staged_size: int | None = None  # bytes of it in the store, once it is staged

    def resume_payload(self, entry: Entry, stored: int) -> None:
        """The range begins inside the payload of `entry`."""
        self._entry, self._staged_size = entry, stored

    def handle(self, event: Event) -> None:
        """Take one event of the connection about this request."""
        match event:
            case MetadataReceived():
                self._give_up_payload()
                if event.verified:
                    self._entry = event.entry
                    if self.request.receive_cursor.piece is None or (
                        self.request.receive_cursor.piece.part is Part.METADATA
                    ):
                        self._give_up_payload()  # metadata only
            case PayloadReceived():
                self._take_payload(event)
            case Notified():
                self._give_up_payload()
                self._tell(event)
            case PayloadSkipped():
                self._give_up_payload()
            case Apologized():
                self._take_back()
            case ForkSuspected():
                self.replica.suspect(self.request, event.entry.seqnum - 1)
            case HashWanted():
                self._desk.ask(
                    ReadHashes,
                    lambda hashes: self._provide_hash(event.seqnum, hashes),
                    log=self.replica.log,
                    seqnums=(event.seqnum,),
                )
            case EntryWanted():
                self._desk.ask(
                    ReadEntry, self._provide_entry, log=self.replica.log, seqnum=event.seqnum
                )
            case _:
                pass
        if self.request.receive_cursor.piece is None and not self._complete:
            self._complete = True
            self.replica.received_all()

    def _tell(self, event: Notified) -> None:
        self._desk.emit(
            PiecesNotified(
                log=self.replica.log, seqnum=event.seqnum, part=event.part, count=event.count
            )
        )

    def finish(self) -> None:
        """Nothing more will come: write what is of use when the payload is resumed."""
        if self._entry is not None and self._pieces_size:
            self._stage(self._entry, finished=False)
        self._append()

    def flush(self) -> None:
        """Write what is complete, unless the store is still busy with the batch before.

        A slow store gets few large batches this way, and a fast one gets small ones soon.
        """
        if not self._appending:
            self._append()

    def _append(self) -> None:
        if not self._batch:
            return
        self._appending += 1
        batch, slot, size = self._batch, self._batch_slot, self._batch_size
        self._batch, self._batch_slot, self._batch_size = [], None, 0
        assert slot is not None
        self._desk.ask(
            AppendEntries,
            lambda result: self._appended(batch, size, slot, result),
            log=self.replica.log,
            entries=tuple(batch),
        )

    # Payloads.

    def _take_payload(self, event: PayloadReceived) -> None:
        entry = self._entry
        if entry is None or entry.seqnum != event.seqnum:
            return  # its metadata was not verified
        self._pieces.append(event.data)
        self._pieces_size += len(event.data)
        if event.finished and event.verified is not True:
            # Nothing that this replicator has asked for comes without its beginning, so
            # unverified means wrong, and an apology has to follow.
            self._take_back()
        elif event.finished and self._staged_size is None:
            payload = self._take_pieces()
            self._entry = None
            self._add(NewEntry(entry, payload))
        elif event.finished or self._pieces_size >= self._limits.payload_inline_max:
            self._stage(entry, finished=event.finished)

    def _stage(self, entry: Entry, *, finished: bool) -> None:
        """Write what has come of a large payload."""
        data, staged = self._take_pieces(), self._staged_size
        self._staged_size = len(data) + (staged or 0)
        if staged is None:
            # The beginning goes in with the entry: one that has lost its payload and one
            # whose payload is on its way can be told apart after a crash.
            self._add(NewEntry(entry, data, staged=True))
            self._append()
        elif data:
            self._write(entry, staged, data)
        if finished:
            self._entry, self._staged_size = None, None
            slot = self._desk.reserve()
            self._desk.ask(
                FinishPayload,
                lambda result: self._finished(entry, slot, result),
                log=self.replica.log,
                seqnum=entry.seqnum,
            )

    def _write(self, entry: Entry, offset: int, data: bytes) -> None:
        self._desk.unwritten_size += len(data)
        slot = self._desk.reserve()
        self._desk.ask(
            WritePayload,
            lambda result: self._written(entry, offset, len(data), slot, result),
            log=self.replica.log,
            seqnum=entry.seqnum,
            offset=offset,
            data=data,
        )

    def _take_pieces(self) -> bytes:
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._pieces_size = [], 0
        return data

    def _give_up_payload(self) -> None:
        """The payload that was due will not come (any further): keep the entry alone."""
        entry, staged = self._entry, self._staged_size
        self._entry, self._staged_size = None, None
        self._take_pieces()
        if entry is not None and staged is None:
            self._add(NewEntry(entry))

    def _take_back(self) -> None:
        """The last piece was wrong."""
        entry, staged = self._entry, self._staged_size
        self._take_pieces()
        self._staged_size = None
        if entry is not None and staged is not None:
            self._desk.ask(
                DiscardPayload, lambda result: None, log=self.replica.log, seqnum=entry.seqnum
            )

    # Entries.

    def _add(self, new: NewEntry) -> None:
        if self._batch_slot is None:
            self._batch_slot = self._desk.reserve()
        size = _ENTRY_SIZE + len(new.payload or b"")
        self._batch.append(new)
        self._batch_size += size
        self._desk.unwritten_size += size
        limits = self._limits
        if len(self._batch) >= limits.batch_count_max or self._batch_size >= limits.batch_size_max:
            self._append()

    def _appended(self, batch: list[NewEntry], size: int, slot: Slot, result: object) -> None:
        self._appending -= 1
        self._desk.unwritten_size -= size
        if isinstance(result, StoreError):
            slot.events = []
            self.replica.inventory.contradicted(result, [new.entry for new in batch])
            return
        slot.events = [
            EntryStored(
                log=self.replica.log,
                seqnum=new.entry.seqnum,
                payload_size=new.entry.payload_size,
                payload_stored=new.payload is not None and not new.staged,
            )
            for new in batch
        ]
        slot.events += self.replica.stored(batch[-1])

    def _written(self, entry: Entry, offset: int, size: int, slot: Slot, result: object) -> None:
        self._desk.unwritten_size -= size
        progress = PayloadProgress(
            log=self.replica.log,
            seqnum=entry.seqnum,
            stored=offset + size,
            size=entry.payload_size,
        )
        slot.events = [] if isinstance(result, StoreError) else [progress]

    def _finished(self, entry: Entry, slot: Slot, result: object) -> None:
        slot.events = []
        if not isinstance(result, StoreError):
            slot.events = [
                EntryStored(
                    log=self.replica.log,
                    seqnum=entry.seqnum,
                    payload_size=entry.payload_size,
                    payload_stored=True,
                ),
                *self.replica.payload_stored(entry),
            ]

    # Answers.

    def _provide_hash(self, seqnum: int, hashes: dict[int, bytes]) -> None:
        if seqnum in hashes:
            self.request.provide_hash(seqnum, hashes[seqnum])
        elif self.request.state is RequestState.CONFIRMED:
            self.request.cancel(CancelReason.DO_NOT_RETRY)

    def _provide_entry(self, stored: StoredEntry | None) -> None:
        if stored is None:
            self.request.refuse()
        else:
            self.request.provide_entry(decode(stored.encoded, family=self._family))
