"""Entries of one request on their way into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, cast

from culm.bamboo.effects import AppendEntries, ReadEntries, ReadEntry, ReadHashes
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.records import NewEntry, StoredEntry, StoreError
from culm.bamboo.staging import StagedPayload, Writing
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Outbox, Queue
from culm.effects import Place, StoreWork
from culm.intervals import Intervals
from culm.machine import Event
from culm.point2point import events
from culm.point2point.connection import Connection
from culm.point2point.handles import Request
from culm.point2point.limits import ENTRY_SIZE, ReplicatorLimits
from culm.point2point.pieces import Part, Piece
from culm.point2point.replication import steps
from culm.point2point.replication.events import (
    EntryStored,
    LogRefused,
    PayloadProgress,
    PiecesNotified,
)
from culm.point2point.replication.log_state import LogState, compared_by
from culm.point2point.states import RequestState
from culm.replication import Room, Turns, Writes


@dataclass(eq=False)
class TransferContext:
    """The common context of all transfers of a replicator."""

    connection: Connection
    logs: Mapping[LogKey, LogState]
    work: StoreWork
    limits: ReplicatorLimits

    def __post_init__(self) -> None:
        self.inputs = steps.Inputs()  # for the logs of the requests
        self.turns: Turns[int] = Turns()  # of the requests that may have something to send
        self.room = Room(
            self.turns,
            size_max=self.limits.read_ahead_size_max,
            read_size_max=self.limits.connection.packet_size_max + ENTRY_SIZE,
        )


def _stored(entry: Entry, *, with_payload: bool) -> EntryStored:
    return EntryStored(
        log=entry.log,
        seqnum=entry.seqnum,
        payload_size=entry.payload_size,
        payload_stored=with_payload,
    )


class _Batch(NamedTuple):
    """Entries that go into the store in one step; `staging` goes on with the last of them."""

    news: tuple[NewEntry, ...]
    size: int
    place: Place
    staging: StagedPayload | None


class _Batches:
    """The entries of one request, in order.

    A batch waits until the payload before it is complete: if later entries were stored first, a
    crash would leave no sign that the payload was on its way.  And it waits until the batch before
    it is stored: once the store has refused one, later entries would lack their links.
    """

    def __init__(self, request: Request, shared: TransferContext) -> None:
        self._request = request
        self._log = request.proposal.log
        self._inputs, self._work = shared.inputs, shared.work
        # Entries, and the payload that goes on with the last of them.
        self._writes = Writes[NewEntry | StagedPayload](
            size_max=shared.limits.batch_size_max, count_max=shared.limits.batch_count_max
        )
        self._places: Queue[Place] = Queue()  # one for each write that waits
        self._refused = False  # the store has not taken one, and nothing after it may go in
        self._unfinished: StagedPayload | None = None  # which has to be over before the next batch

    def if_taken(self, told: list[Event]) -> Iterator[Event]:
        """Tells that all is here, unless the store has refused something by then."""
        refused = LogRefused(log=self._log, fault=Reason.FORK)
        yield from (refused if self._refused else each for each in told)

    def add(self, news: Sequence[NewEntry]) -> None:
        """Take entries, of which only the last may be staged: `go_on_with` follows then."""
        if self._refused:
            return
        sizes = [ENTRY_SIZE + len(new.payload or b"") for new in news]
        self._work.hold(sum(sizes))
        for _ in range(self._writes.extend(news, sizes)):
            self._begin()
        if self._writes.is_full and not news[-1].staged:
            self.flush()

    def _begin(self) -> None:
        self._inputs.put(self._log, steps.Happening.WRITE_BEGUN)
        self._places.append(self._work.reserve())

    def go_on_with(self, staging: StagedPayload) -> None:
        """More of the payload of the last entry may come."""
        if self._refused:
            staging.begun(needed=False)
        else:
            self._writes.add_last(staging)
        self.flush()

    def wait_for(self, staging: StagedPayload) -> None:
        """Let a payload whose entry is stored have its turn."""
        self._writes.close()
        self._writes.add(staging, 0)
        self._begin()
        self._writes.close()
        self.flush()

    def flush(self) -> None:
        """Hand the next batch to the store, unless the one before is not complete there."""
        while self._unfinished is None and (write := self._writes.next()) is not None:
            last = write.items[-1]
            staging = last if isinstance(last, StagedPayload) else None
            items = write.items if staging is None else write.items[:-1]
            news = cast("tuple[NewEntry, ...]", tuple(items))
            batch = _Batch(news, write.size, self._places.popleft(), staging)
            if not news or self._refused:
                self._writes.done()
                self._pass(batch)
            else:
                self._unfinished = staging
                self._append(batch, partial(self._answered, batch))

    def _append(self, batch: _Batch, then: Callable[[StoreError | None], None]) -> None:
        self._work.ask(AppendEntries, then, log=self._log, entries=batch.news)

    def _pass(self, batch: _Batch) -> None:
        """The batch must not be stored, or only marks the turn of a payload."""
        self._work.release(batch.size)
        batch.place.fill()
        self._inputs.put(self._log, steps.Happening.APPENDED)
        if batch.staging is None or batch.staging.done:
            self._inputs.put(self._log, steps.Happening.WRITE_ENDED)
            return
        self._unfinished = batch.staging
        if batch.news:
            batch.staging.begun(needed=False)

    def payload_over(self, staging: StagedPayload) -> list[Event]:
        """No more of a payload will be written; returns the events for that."""
        told: list[Event] = []
        if staging.writing is Writing.STORED:
            self._inputs.put(self._log, _stored(staging.entry, with_payload=True), told)
        if staging is self._unfinished:
            self._unfinished = None
            self.flush()
            self._inputs.put(self._log, steps.Happening.WRITE_ENDED)
        if staging.writing is Writing.LOST:
            self._inputs.put(self._log, steps.PayloadLost(staging.entry.seqnum))
        return told

    def _answered(self, batch: _Batch, refusal: StoreError | None) -> None:
        self._work.release(batch.size)
        self._writes.done()
        self._refused = refusal is not None
        self._keep(batch, refusal)
        if refusal is not None:
            for entry, *_ in batch.news:
                if entry.seqnum == refusal.seqnum:
                    self._inputs.put(self._log, steps.Compare(entry, self._request))
            if batch.staging is not None:
                batch.staging.begun(needed=False)
        self._end(batch)
        self.flush()

    def _end(self, batch: _Batch) -> None:
        self._inputs.put(self._log, steps.Happening.APPENDED)
        if batch.staging is None:
            self._inputs.put(self._log, steps.Happening.WRITE_ENDED)

    def _appended(self, batch: _Batch) -> None:
        """Report the entries; the store may have had the payloads of those that came without."""
        log, told = self._log, list[Event]()
        news, _, place, staging = batch
        self._inputs.put(log, steps.EntriesStored(news, self._request.request_id), told)
        missing = {entry.seqnum for entry, payload, staged in news if payload is None or staged}
        uncertain = Intervals()
        for seqnum in sorted(missing):
            uncertain.add(seqnum)
        rows, answers = uncertain.runs(), list[list[StoredEntry]]()

        def got(found: list[StoredEntry]) -> None:
            answers.append(found)
            missing.difference_update(each.seqnum for each in found if each.payload_complete)
            if len(answers) < len(rows):
                return
            whole = None if staging is None or staging.entry.seqnum in missing else staging.entry
            if whole is not None:  # the log takes its payload to be on its way
                self._inputs.put(log, _stored(whole, with_payload=True), told)
            new = (each for each, *_ in self._new(news) if each is not whole)
            stored = (_stored(each, with_payload=each.seqnum not in missing) for each in new)
            place.fill(chain(stored, told))
            if staging is not None:
                staging.begun(needed=whole is None)

        for first, last in rows:
            count_max = last - first + 1
            self._work.ask(ReadEntries, got, log=log, start=first, end=last, count_max=count_max)
        if not rows:
            got([])

    def _new(self, news: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """Without the peer's entry that was only compared with ours, if it is the same."""
        request, links = self._request, self._request.outgoing.links
        if not request.ours or compared_by(request.proposal) is None:
            return news
        return [new for new in news if links.get(new.entry.seqnum) != new.entry.hash()]

    def _keep(self, batch: _Batch, refusal: StoreError | None) -> None:
        """The batch is stored, or to be stored without the entry that the store does not take."""
        if refusal is None:
            self._appended(batch)
            return
        valid = tuple(new for new in batch.news if new.entry.seqnum < refusal.seqnum)
        if valid:
            self._inputs.put(self._log, steps.Happening.WRITE_BEGUN)
            kept = batch._replace(news=valid, staging=None)
            self._append(kept, partial(self._kept, kept))
        else:
            batch.place.fill()

    def _kept(self, batch: _Batch, refusal: StoreError | None) -> None:
        self._keep(batch, refusal)
        self._end(batch)


class Download:
    """Batches verified entries with small payloads, and stages large payloads in pieces.

    begun: the payload of which the beginning is stored, if the range begins inside one.
    """

    def __init__(
        self, request: Request, shared: TransferContext, begun: PayloadVerifier | None
    ) -> None:
        self.request = request
        self._log = request.proposal.log
        self._logs = shared.logs
        self._inputs, self._work = shared.inputs, shared.work
        self._piece_size = shared.limits.payload_piece_size
        self.batches = _Batches(request, shared)
        self._entry: Entry | None = None  # whose payload is coming in
        self._is_stored = False  # it was before
        self._received = Outbox()  # of that payload, not written
        self._staging: StagedPayload | None = None  # of that payload, once it is too large
        if begun is not None:
            self._expect(begun.entry, begun.size, begun)

    def handle(self, event: Event) -> None:
        """Take one event of the connection about this request."""
        match event:
            case events.MetadataReceived(entry=entry, verified=verified):
                self._give_up_payload()
                if verified:
                    self._entry, self._is_stored = entry, False
                    if self.request.receive_cursor.piece != Piece(entry.seqnum, Part.PAYLOAD):
                        self._give_up_payload()  # metadata only
            case events.PayloadReceived():
                self._take_payload(event)
            case events.EntriesReceived():
                self._give_up_payload()
                self.batches.add(event.entries)
            case events.Notified(seqnum=seqnum, part=part, count=count):
                self._pass()
                notified = PiecesNotified(log=self._log, seqnum=seqnum, part=part, count=count)
                self._work.emit(notified)
            case events.PayloadSkipped(seqnum=seqnum, reason=reason):
                self._pass()
                if reason is events.SkipReason.UNAVAILABLE:
                    self._put(steps.PayloadWithheld(seqnum))
            case events.Apologized():
                self._take_back()
            case events.ForkSuspected():
                alone = self.request.proposal.payload_only
                fault = Reason.PAYLOAD_HASH if alone else Reason.WRONG_BACKLINK
                self._put(steps.GivenUp(self.request, fault, event.seqnum))
            case events.HashWanted(seqnum=seqnum):
                provide_hash = partial(self._provide_hash, seqnum)
                self._work.ask(ReadHashes, provide_hash, log=self._log, seqnums=(seqnum,))
            case events.EntryWanted(seqnum=seqnum):
                provide_entry = partial(self._provide_entry, seqnum)
                self._work.ask(ReadEntry, provide_entry, log=self._log, seqnum=seqnum)
            case _:
                pass
        if self.request.receive_cursor.piece is None:
            told: list[Event] = []
            self._inputs.put(self._log, steps.Received(self.request), told)
            self._work.reserve().fill(self.batches.if_taken(told))

    def _pass(self) -> None:
        """The peer has passed over pieces: so far it owes nothing more."""
        self._give_up_payload()
        cursor = self.request.receive_cursor
        passed = cursor.range.end if cursor.piece is None else cursor.piece.seqnum - 1
        self._put(steps.Passed(self.request, passed or 0))

    def _put(self, input: steps.Input) -> None:
        self._inputs.put(self._log, input)

    def finish(self) -> None:
        """Nothing more will come: write the part that is of use when the payload is resumed."""
        entry = self._entry
        due = self.request.receive_cursor.piece
        if entry is not None and due != Piece(entry.seqnum, Part.PAYLOAD):
            self._take_back()  # it was complete, and wrong: no apology will come any more
        if entry is not None:
            large = self._is_wanted(entry) and entry.payload_size > self._piece_size
            if large or self._received.size:
                self._stage(entry)
        if self._staging is not None:
            self._staging.stop()
        self.batches.flush()
        self._forget_payload()

    def keep_entry(self) -> bool:
        """Nothing comes for now: an entry that waits for its payload waits no more; if one did."""
        entry = self._entry
        if entry is None or self._staging is not None or self._is_stored:
            return False
        self._stage(entry)
        return True

    # Payloads.

    def _take_payload(self, event: events.PayloadReceived) -> None:
        entry = self._entry_of(event)
        if entry is None:
            return
        staged = 0 if self._staging is None else self._staging.received
        if event.offset != staged + self._received.size:
            self._give_up_payload()  # a jump over bytes that we have sent, and so have
            return
        self._received.append(event.data)
        if event.finished and event.verified is False:
            self._take_back()  # an apology has to follow
        elif self._staging is not None or entry.payload_size > self._piece_size:
            self._stage_pieces(entry, event)
        elif event.finished:
            self._entry = None
            self.batches.add([NewEntry(entry, self._received.take(entry.payload_size))])

    def _is_wanted(self, entry: Entry) -> bool:
        """Whether the payload is wanted with the entry, which is not stored yet."""
        demand = self.request.our_demand
        wanted = demand is not None and demand.wants_payload(entry.payload_size)
        return wanted and not self._is_stored

    def _stage_pieces(self, entry: Entry, event: events.PayloadReceived) -> None:
        """Write a large payload in pieces of one size, however it comes."""
        while self._received.size >= self._piece_size:
            self._stage(entry, self._piece_size)
        if event.finished:
            self._stage(entry)
            assert self._staging is not None
            self._staging.finish(verified=event.verified is True)
            self._entry = self._staging = None

    def _entry_of(self, event: events.PayloadReceived) -> Entry | None:
        entry = self._entry
        if entry is not None and entry.seqnum == event.seqnum:
            return entry
        # Metadata that was transmitted by us, and so is stored.
        entry = self.request.due_entry
        if entry is None or entry.seqnum != event.seqnum:
            return None
        self._give_up_payload()
        self._expect(entry, event.offset)
        return entry

    def _expect(self, entry: Entry, offset: int, verifier: PayloadVerifier | None = None) -> None:
        """The payload of a stored entry is coming, from `offset` on; see `StagedPayload`."""
        self._entry, self._is_stored = entry, True
        if offset:
            self._staging = self._new_staging(entry, offset, verifier)
            self.batches.wait_for(self._staging)

    def _new_staging(
        self, entry: Entry, offset: int = 0, verifier: PayloadVerifier | None = None
    ) -> StagedPayload:
        return StagedPayload(
            entry,
            work=self._work,
            offset=offset,
            verifier=verifier,
            over=self.batches.payload_over,
            progress=PayloadProgress,
        )

    def _stage(self, entry: Entry, size: int | None = None) -> None:
        """Write the received part of a large payload, `size` bytes at most."""
        data = self._received.take(self._received.size if size is None else size)
        if self._staging is not None:
            self._staging.take(data)
            return
        # The beginning goes in with the entry: one that has lost its payload and one
        # whose payload is on its way can be told apart after a crash.
        self._staging, self._is_stored = self._new_staging(entry), True
        self.batches.add([NewEntry(entry, data, staged=True)])
        self._staging.begin(data)
        self.batches.go_on_with(self._staging)

    def _give_up_payload(self) -> None:
        """The payload that was due will not come (any further): keep the entry alone."""
        entry, staging = self._entry, self._staging
        self._forget_payload()
        if entry is None:
            return
        if staging is None and not self._is_stored:
            if self._is_wanted(entry) and self._logs[self._log].begun == entry.seqnum:
                self._stage(entry)  # with nothing of it, as it is still on its way to the peer
                self.finish()
            else:
                self.batches.add([NewEntry(entry)])
            return
        if staging is not None:
            staging.stop()
        self._put(steps.PayloadWithheld(entry.seqnum))

    def _forget_payload(self) -> None:
        self._entry = self._staging = None
        self._received.clear()

    def _take_back(self) -> None:
        self._received.clear()
        staging, self._staging = self._staging, None
        if staging is not None:
            staging.take_back()

    # Answers.

    def _passes_over(self) -> bool:
        """Whether it is too late for the answer, so that what waited for it is passed over.

        The log may have no place any more, or the connection is being closed.
        """
        over = self.request.state is RequestState.ENDED
        if over:
            self.request.pass_over()
        return over

    def _provide_hash(self, seqnum: int, hashes: dict[int, bytes]) -> None:
        if self._passes_over():
            return
        if seqnum in hashes:
            self.request.provide_hash(seqnum, hashes[seqnum])
        else:
            self._put(steps.GivenUp(self.request, Reason.GAP))

    def _provide_entry(self, seqnum: int, stored: StoredEntry | None) -> None:
        request = self.request
        if self._passes_over():
            return
        if stored is None:
            self._put(steps.Missing(request, seqnum))
            return
        entry = self._logs[self._log].decode(stored)
        if self._entry is None or self._entry.seqnum != entry.seqnum:
            self._give_up_payload()
            self._expect(entry, request.receive_cursor.offset)
        request.provide_entry(entry)
