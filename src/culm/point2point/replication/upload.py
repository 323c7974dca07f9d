"""Entries of one request for the peer, read from the store as far as there is room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import islice, takewhile

from culm.bamboo.effects import ReadEntries, ReadPayload
from culm.bamboo.entry import Entry
from culm.bamboo.errors import Reason
from culm.bamboo.links import lipmaa
from culm.bamboo.records import StoredEntry
from culm.buffer import NOTHING, Buffer
from culm.point2point.events import SkipReason
from culm.point2point.handles import Request
from culm.point2point.limits import ENTRY_SIZE
from culm.point2point.messages import CancelReason, Demand
from culm.point2point.pieces import Cursor, Part, Piece
from culm.point2point.replication.download import TransferContext
from culm.point2point.replication.steps import GivenUp
from culm.point2point.states import RequestState

_NOTHING = memoryview(b"")


class _State(Enum):
    IDLE = "the store is asked for nothing"
    ASKED = "the store has been asked"
    OUTDATED = "it has been asked, and something was stored since: the answer may lack that"
    CLOSED = "nothing more is sent: answers that still come take no room"


class Reading:
    """Entries with small payloads, in order, and the next of the bytes of a large one.

    As many as there is room for; when there is room again, the request gets a turn.  The entry that
    is due is kept even without room, if its payload is not read with it.
    """

    def __init__(self, request: Request, shared: TransferContext) -> None:
        self.entries: deque[StoredEntry] = NOTHING  # the one that is due, and later ones
        self._state = _State.IDLE
        self._request_id = request.request_id
        self._log = request.proposal.log
        self._shared = shared
        self._size = 0  # of the entries
        self._entry: Entry | None = None  # decoded, the first of them
        self.data = _NOTHING  # of the payload that is due

    # Entries on hand.

    @property
    def busy(self) -> bool:
        return self._state in (_State.ASKED, _State.OUTDATED)

    def find(self, seqnum: int) -> StoredEntry | None:
        """That entry, if it is here; those before it are not needed any more."""
        while self.entries and self.entries[0].seqnum < seqnum:
            self.pass_over(1)
        due = self.entries[0] if self.entries else None
        return due if due is not None and due.seqnum == seqnum else None

    def decoded(self, stored: StoredEntry) -> Entry:
        if self._entry is None:
            self._entry = self._shared.logs[self._log].decode(stored)
        return self._entry

    def take_data(self, size_max: int) -> Buffer:
        """The next bytes of the payload that is due."""
        data, self.data = self.data[:size_max], self.data[size_max:]
        if not self.data:
            self._hold(self._size)
        return data

    def _hold(self, size: int) -> None:
        self._shared.room.hold(self._request_id, size)

    # Entries not needed.

    def pass_over(self, count: int) -> None:
        """The first entries have been dealt with."""
        for _ in range(count):
            self.entries.popleft()
        self._entry, self.data = None, _NOTHING
        if not self.entries:
            self.entries, self._size = NOTHING, 0
        self._hold(self._size)

    def forget_incomplete(self) -> None:
        """The store may have more entries and more of the payloads by now."""
        if self._state is _State.ASKED:
            self._state = _State.OUTDATED
        known = list(takewhile(lambda stored: stored.payload_complete, self.entries))
        if len(known) < len(self.entries):
            self.keep(known)

    def rest(self) -> None:
        """The request cannot go on for now: leave the room to others."""
        if not self.busy:
            self.keep([due for due in islice(self.entries, 1) if due.payload is None])
            if not self._shared.room.awaits(self._request_id):
                self._shared.room.forget(self._request_id)

    def close(self) -> None:
        self._state = _State.CLOSED
        self._shared.room.forget(self._request_id)

    def keep(self, entries: Sequence[StoredEntry]) -> None:
        """Nothing but these is of use."""
        if not (entries and self.entries and entries[0] is self.entries[0]):
            self._entry = None
        self.entries, self.data = deque(entries) or NOTHING, _NOTHING
        self._size = sum(ENTRY_SIZE + len(each.payload or b"") for each in entries)
        if entries and entries[0].payload is None:
            self._size -= ENTRY_SIZE
        self._hold(self._size)

    # The store.

    def ask(
        self,
        seqnum: int,
        end: int | None,
        then: Callable[[list[StoredEntry]], None],
        payloads: bool,
    ) -> None:
        """Read from entry `seqnum` on, as soon as there is room; with small `payloads`, or none."""
        limits = self._shared.limits
        size, count = limits.batch_size_max, limits.batch_count_max
        self.keep(())
        whole = size + count * ENTRY_SIZE
        room = self._shared.room.claim(self._request_id, whole)
        if not room:
            return
        if room < whole:  # half of it for the entries, half for their payloads
            size, count = min(size, room // 2), min(count, max(1, room // 2 // ENTRY_SIZE))

        def got(entries: list[StoredEntry]) -> None:
            if self._state is _State.CLOSED:
                return
            outdated, self._state = self._state is _State.OUTDATED, _State.IDLE
            if outdated:
                entries = list(takewhile(lambda stored: stored.payload_complete, entries))
            self.keep(entries)
            if outdated and (not entries or entries[0].seqnum != seqnum):
                self._shared.turns.add(self._request_id, fresh=False)  # to ask again
            else:
                then(entries)

        self._state = _State.ASKED
        self._shared.work.ask(
            ReadEntries,
            got,
            log=self._log,
            start=seqnum,
            end=end,
            count_max=count,
            size_max=size,
            payload_size_max=limits.connection.packet_size_max if payloads else None,
        )

    def ask_payload(self, seqnum: int, offset: int, left: int) -> None:
        """Read of the payload that is due, of which there are `left` bytes, when there is room."""
        limits, request_id = self._shared.limits, self._request_id
        size_max = min(max(1, limits.batch_size_max), left)
        room = self._shared.room.claim(request_id, size_max, lasting=True)
        if not room:
            return

        def got(data: bytes) -> None:
            if self._state is _State.CLOSED:
                return
            self._state = _State.IDLE
            self.data = memoryview(data)
            self._hold(self._size + len(data))
            if not data:  # deleted a moment ago
                self.keep(())
            self._shared.turns.add(request_id, fresh=False)

        self._state = _State.ASKED
        size = min(size_max, room)
        if size < left:
            size -= size % min(size, limits.connection.packet_size_max)  # whole packets
        self._hold(self._size + size)
        work, log = self._shared.work, self._log
        work.ask(ReadPayload, got, log=log, seqnum=seqnum, offset=offset, size=size)


class Upload:
    """Sends the due pieces of one request, a packet at a time."""

    def __init__(self, request: Request, shared: TransferContext) -> None:
        self.request = request
        self.log = request.proposal.log
        self.reading = Reading(request, shared)
        self._shared = shared
        self._missing_from: int | None = None  # the store has nothing from here on
        self._lacks_payload: int | None = None  # of this entry, and none is on its way
        self._spoiled: int | None = None  # of this entry the store has a wrong payload

    def wake(self) -> None:
        """The store may have new entries, and more of their payloads."""
        self._missing_from = self._lacks_payload = None
        self.reading.forget_incomplete()

    @property
    def inside(self) -> bool:
        """Whether one of us is within an entry."""
        request = self.request
        # Pieces that the peer has by now from others, or as the author, are passed over later.
        due = request.passed_cursor if request.behind else request.send_cursor
        pieces = [due.piece, request.receive_cursor.piece]
        if due.piece and pieces[1] and pieces[1].seqnum < due.piece.seqnum:
            pieces.pop()  # the peer passes over it later, as we have sent it
        return any(piece is not None and piece.part is Part.PAYLOAD for piece in pieces)

    def prepare(self) -> None:
        """Have the store read the due pieces, so that they are here when their turn comes."""
        cursor, passed = self.request.send_cursor, self.request.passed_cursor
        if cursor.piece is None or self._demand() is None:
            return
        if not (cursor.is_behind(passed) or _is_further(passed, cursor)):
            self._find(cursor.piece.seqnum)

    def step(self) -> bool:
        """Send one packet, if one is due; returns whether there may be more."""
        request, demand = self.request, self._demand()
        if demand is None:
            return False
        cursor = request.send_cursor
        piece = cursor.piece
        if piece is None:
            if request.all_received or not self._wants_metadata():
                request.cancel(CancelReason.END_OF_RANGE)
            return False
        passed, behind = request.passed_cursor, request.behind
        begun = cursor.offset > cursor.start_of(piece)
        target = piece if not behind else passed.piece
        within = piece.part is Part.PAYLOAD  # the peer would wait for the rest for ever
        if target is None or (behind and within):
            request.notify(behind)
            return True
        if _is_further(passed, cursor):
            return False
        stored = self._find(target.seqnum)
        if stored is None:
            return False
        if behind:
            request.notify(behind)
        elif piece.part is Part.METADATA and (count := request.send_entries(self.reading.entries)):
            self.reading.pass_over(count)
        elif not begun and (forked := self._forked_at(stored)) is not None:
            self._shared.inputs.put(self.log, GivenUp(request, Reason.FORK, forked))
            return False
        elif piece.part is Part.PAYLOAD:
            return self._send_payload(piece, stored, demand)
        elif demand.eagerness.wants_metadata:
            request.send_metadata(self.reading.decoded(stored))
        else:
            request.notify()
        return True

    def _demand(self) -> Demand | None:
        """The wishes of the peer, unless we wait, or it alone moves through the range."""
        request, demand = self.request, self.request.peer_demand
        if request.state is not RequestState.CONFIRMED or demand is None or self.reading.busy:
            return None
        fetches = request.ours and request.proposal.end is not None
        alone = fetches and not demand.eagerness.wants_metadata
        return None if alone and request.receive_cursor.piece is not None else demand

    def _forked_at(self, stored: StoredEntry) -> int | None:
        """An entry of which the request tells another than we have, if there is one.

        The peer would take our data for part of the other branch.
        """
        entry, request = self.reading.decoded(stored), self.request
        known = (
            (stored.seqnum, stored.hash),
            (stored.seqnum - 1, entry.backlink),
            (lipmaa(stored.seqnum), entry.lipmaalink),
        )
        return next((n for n, hash in known if hash and not request.agrees(n, hash)), None)

    # Reading.

    def _find(self, seqnum: int) -> StoredEntry | None:
        """The entry that is due, if it has been read; else it is asked for."""
        found = self.reading.find(seqnum)
        if found is None and (self._missing_from is None or seqnum < self._missing_from):
            self._ask(seqnum)
        return found

    def _ask(self, seqnum: int) -> None:
        proposal, end = self.request.proposal, self.request.send_cursor.range.end
        # Only within a range without gaps will the entries after this one be due, too.
        in_a_row = not proposal.sparse and proposal.start <= seqnum <= (end or seqnum)
        # Without credit only the entry is read, for a decision: no byte of a payload.
        ahead = self._shared.connection.send_credit > 0
        last = end if in_a_row and ahead else seqnum
        self.reading.ask(seqnum, last, partial(self._got, seqnum), payloads=ahead)

    def _got(self, seqnum: int, entries: list[StoredEntry]) -> None:
        self._shared.turns.add(self.request.request_id)
        if not entries or entries[0].seqnum != seqnum:
            self.reading.keep(())
            self._missing_from = seqnum
            confirmed = self.request.state is RequestState.CONFIRMED
            if confirmed and self._never_comes(seqnum):
                self.request.cancel(CancelReason.DO_NOT_RETRY)
        # To be judged now, while the log is known no better than the answer says.
        elif not entries[0].payload_complete and not self._on_its_way(entries[0]):
            self._lacks_payload = seqnum

    def _never_comes(self, seqnum: int) -> bool:
        """Whether the gap will stay, or the log ends before the range does."""
        log = self._shared.logs[self.log]
        if seqnum < log.newest:
            return not (self.request.ours or self._wants_metadata())
        return log.ended and self.request.send_cursor.range.end is not None

    def _wants_metadata(self) -> bool:
        ours = self.request.our_demand
        return ours is not None and ours.eagerness.wants_metadata

    # Sending.

    def _send_payload(self, piece: Piece, stored: StoredEntry, demand: Demand) -> bool:
        """Deal with the payload that is due; returns whether there may be more."""
        request, size = self.request, stored.payload_size
        if request.send_cursor.offset > size:  # where the proposal would have it begin
            request.cancel(CancelReason.DO_NOT_RETRY)
            return False
        if size < demand.size_min:
            request.skip_payload(SkipReason.TOO_SMALL)
        elif size > demand.size_max:
            request.skip_payload(SkipReason.TOO_LARGE)
        elif stored.payload_complete and piece.seqnum != self._spoiled:
            if demand.eagerness.wants_payload(size):
                return self._send_data(piece, stored)
            request.notify()
        elif piece.seqnum not in (self._lacks_payload, self._spoiled):
            if not self._on_its_way(stored):
                self._ask(piece.seqnum)  # it was missing when it was read, with others
            return False
        elif demand.skipping_allowed:
            request.skip_payload(SkipReason.UNAVAILABLE)
        else:
            request.cancel(CancelReason.PAYLOAD_MISSING)
        return True

    def _on_its_way(self, stored: StoredEntry) -> bool:
        """Whether the payload is coming in, from this peer or another one.

        A peer from which we want nothing is not kept waiting: it gets the part there is now.
        """
        log, request = self._shared.logs[self.log], self.request
        ours = request.our_demand
        if ours is None or not ours.eagerness.wants_payload(stored.payload_size):
            return False
        fetched = request.ours and request.proposal.end is not None
        # Entries after the head have been stored a moment ago: we shall be told of them.
        at_head = log.payload_due and stored.seqnum == log.position
        return fetched or at_head or stored.seqnum > log.position

    def _send_data(self, piece: Piece, stored: StoredEntry) -> bool:
        offset, payload = self.request.send_cursor.offset, stored.payload
        if payload is not None:
            packet: Buffer = payload[offset:] if offset else payload
        elif self.reading.data or offset == stored.payload_size:
            packet = self.reading.take_data(self._shared.limits.connection.packet_size_max)
        else:
            left = stored.payload_size - offset
            self.reading.ask_payload(piece.seqnum, offset, left)
            return False
        entry = None if self.request.due_entry is not None else self.reading.decoded(stored)
        self.request.send_payload(packet, entry=entry)
        if self.request.apology_owed:  # the stored payload is not the one that was verified
            self._spoiled = piece.seqnum
            self.request.apologize()
        return True


def _is_further(passed: Cursor, cursor: Cursor) -> bool:
    """Whether the peer sends us the payload that is due to it, and is ahead of us: it has it."""
    due = passed.piece
    within = due is not None and passed.offset > passed.start_of(due)
    return within and due == cursor.piece and passed.offset > cursor.offset
