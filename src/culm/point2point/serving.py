"""What the peer wants of one request, out of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from culm.bamboo.effects import ReadEntries, ReadPayload
from culm.bamboo.entry import Entry, decode
from culm.bamboo.store import StoredEntry
from culm.point2point.demand import Demand
from culm.point2point.desk import Desk
from culm.point2point.events import SkipReason
from culm.point2point.messages import CancelReason
from culm.point2point.pieces import Part, Piece
from culm.point2point.replica import Replica
from culm.point2point.replication_events import ReplicatorLimits
from culm.point2point.request import Request
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

__all__ = ["Serving"]


class Serving:
    """Sends what is due for one request, a packet at a time."""

    def __init__(
        self,
        request: Request,
        replica: Replica,
        *,
        desk: Desk,
        limits: ReplicatorLimits,
        family: HashFamily,
        rouse: Callable[[], None],
    ) -> None:
        self.request = request
        self.replica = replica
        self._desk = desk
        self._limits = limits
        self._family = family
        self._rouse = rouse
        self._read: deque[StoredEntry] = deque()  # of the entry that is due, and later ones
        self._reading = False
        self._entry: Entry | None = None  # decoded, of self._read[0]
        self._data = b""  # read of the payload that is due, and not sent
        self._missing_from: int | None = None  # the store has nothing from here on

    def wake(self) -> None:
        """There may be new entries in the store."""
        self._missing_from = None

    def step(self) -> bool:
        """Send one packet, if one is due; returns whether there may be more."""
        request = self.request
        demand = request.peer_demand
        if self._reading or demand is None or not self._is_confirmed():
            return False
        cursor = request.send_cursor
        piece = cursor.piece
        if piece is None:
            request.cancel(CancelReason.END_OF_RANGE)
            return False
        behind = cursor.is_behind(request.receive_cursor)
        target = piece if not behind else request.receive_cursor.piece
        if target is None:
            request.notify(behind)
            return True
        stored = self._find(target.seqnum)
        if stored is None:
            return False
        if behind:
            request.notify(behind)
        elif piece.part is Part.METADATA:
            self._send_metadata(stored, demand)
        else:
            return self._send_payload(piece, stored, demand)
        return True

    # Reading.

    def _find(self, seqnum: int) -> StoredEntry | None:
        """The entry that is due, if it has been read; else it is asked for."""
        while self._read and self._read[0].seqnum < seqnum:
            self._read.popleft()
            self._entry, self._data = None, b""
        if self._read and self._read[0].seqnum == seqnum:
            return self._read[0]
        if self._missing_from is None or seqnum < self._missing_from:
            self._ask(seqnum)
        return None

    def _ask(self, seqnum: int) -> None:
        limits, proposal = self._limits, self.request.proposal
        # Only within a range without gaps will the entries after this one be due, too.
        in_a_row = not proposal.sparse and seqnum >= proposal.start
        end = self.request.send_cursor.range.end
        if end is not None and seqnum > end:
            in_a_row = False
        self._reading = True
        self._desk.ask(
            ReadEntries,
            lambda entries: self._got(seqnum, entries),
            log=self.replica.log,
            start=seqnum,
            end=end if in_a_row else seqnum,
            count_max=limits.batch_count_max,
            size_max=limits.batch_size_max,
            payload_size_max=limits.connection.packet_size_max,
        )

    def _got(self, seqnum: int, entries: list[StoredEntry]) -> None:
        self._reading = False
        self._rouse()
        if not entries or entries[0].seqnum != seqnum:
            self._missing_from = seqnum
            if seqnum < self.replica.inventory.newest and self._is_confirmed():
                self.request.cancel(CancelReason.DO_NOT_RETRY)  # a gap that will stay
        else:
            self._read = deque(entries)
            self._entry, self._data = None, b""

    def _decoded(self, stored: StoredEntry) -> Entry:
        if self._entry is None:
            self._entry = decode(stored.encoded, family=self._family)
        return self._entry

    def _is_confirmed(self) -> bool:
        return self.request.state is RequestState.CONFIRMED

    # Sending.

    def _send_metadata(self, stored: StoredEntry, demand: Demand) -> None:
        if demand.eagerness.wants_metadata:
            self.request.send_metadata(self._decoded(stored))
        else:
            self.request.notify()

    def _send_payload(self, piece: Piece, stored: StoredEntry, demand: Demand) -> bool:
        """Deal with the payload that is due; returns whether there may be more."""
        request, size = self.request, stored.payload_size
        if self._on_its_way(piece):
            return False  # it is on its way to us
        if size < demand.size_min:
            request.skip_payload(SkipReason.TOO_SMALL)
        elif size > demand.size_max:
            request.skip_payload(SkipReason.TOO_LARGE)
        elif stored.payload_complete:
            if demand.eagerness.wants_payload(size):
                return self._send_data(piece, stored)
            request.notify()
        elif demand.skipping_allowed:
            request.skip_payload(SkipReason.UNAVAILABLE)
        else:
            request.cancel(CancelReason.PAYLOAD_MISSING)
            return False
        return True

    def _on_its_way(self, piece: Piece) -> bool:
        inventory = self.replica.inventory
        return inventory.payload_due and piece.seqnum == inventory.position

    def _send_data(self, piece: Piece, stored: StoredEntry) -> bool:
        offset = self.request.send_cursor.offset
        data = self._data
        if stored.payload is not None:
            data = stored.payload[offset:] if offset else stored.payload
        elif not data and offset < stored.payload_size:
            self._read_payload(piece.seqnum, offset)
            return False
        size_max = self._limits.connection.packet_size_max
        packet = data if len(data) <= size_max else data[:size_max]
        self._data = data[size_max:] if stored.payload is None else b""
        entry = None if self.request.outgoing.entry is not None else self._decoded(stored)
        self.request.send_payload(packet, entry=entry)
        return True

    def _read_payload(self, seqnum: int, offset: int) -> None:
        def got(data: bytes) -> None:
            self._reading = False
            self._rouse()
            self._data = data
            if not data:  # deleted a moment ago
                self._read.clear()

        self._reading = True
        self._desk.ask(
            ReadPayload,
            got,
            log=self.replica.log,
            seqnum=seqnum,
            offset=offset,
            size=self._limits.batch_size_max,
        )
