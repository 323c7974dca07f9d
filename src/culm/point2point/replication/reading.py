"""What has been read from the store for one request and is not sent yet, and the room for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import takewhile

from culm.bamboo.effects import ReadEntries, ReadPayload
from culm.bamboo.entry import Entry
from culm.bamboo.store import StoredEntry
from culm.buffer import Buffer
from culm.effects import StoreWork
from culm.point2point.replication.inventory import Inventory
from culm.point2point.replication.limits import ReplicatorLimits

__all__ = ["ENTRY_SIZE", "ReadAhead", "Reading"]


ENTRY_SIZE = 400  # what an entry costs in memory besides its payload, about


class ReadAhead:
    """Shares out `size_max` bytes.  Who wants some may have half of what is free.

    So there is something left for those who come later, down to `read_size_max`: so much a
    single read may bring, however little was asked for.  Then one waits for the others, in
    order.  One read is always possible.
    """

    def __init__(self, *, size_max: int, read_size_max: int) -> None:
        self.size = 0  # of what is held
        self._size_max = size_max
        self._read_size_max = read_size_max
        self._waiting: dict[Reading, None] = {}

    def share(self, reading: Reading, size: int, *, lasting: bool) -> int:
        """How much `reading` may have of `size` bytes; if nothing, it is roused later.

        `lasting`: for something that will go on for long.  It leaves a quarter of all to others.
        """
        free = self._size_max - self.size - (self._size_max // 4 if lasting else 0)
        share = max(min(size, free // 2), self._read_size_max)
        if share > free and self.size:
            self._waiting[reading] = None
            return 0
        return share

    def resize(self, old: int, new: int) -> None:
        """One holds `new` bytes now; rouse as many as there is room for."""
        self.size += new - old
        if new >= old:
            return
        places = max((self._size_max - self.size) // self._read_size_max, self.size == 0)
        for reading in list(self._waiting)[:places]:
            del self._waiting[reading]
            reading.rouse()

    def forget(self, reading: Reading) -> None:
        """It does not wait any more."""
        self._waiting.pop(reading, None)


_NOTHING = memoryview(b"")


class _State(Enum):
    IDLE = "the store is asked for nothing"
    ASKED = "the store has been asked"
    OUTDATED = "it has been asked, and something was stored since: the answer may lack that"
    CLOSED = "nothing more is sent: what is still answered takes no room"


class Reading:
    """Entries with small payloads, in order, and the next of the bytes of a large one.

    As much as there is room for; `rouse` is called when there is again.  The entry that is due
    is held whatever there is room for, if its payload is not read with it.
    """

    def __init__(
        self,
        inventory: Inventory,
        *,
        work: StoreWork,
        limits: ReplicatorLimits,
        ahead: ReadAhead,
        rouse: Callable[[], None],
    ) -> None:
        self.entries: deque[StoredEntry] = deque()  # the one that is due, and later ones
        self._state = _State.IDLE
        self.rouse = rouse
        self._inventory = inventory
        self._work = work
        self._limits = limits
        self._ahead = ahead
        self._held = 0  # of the room
        self._size = 0  # of the entries
        self._entry: Entry | None = None  # decoded, the first of them
        self._data = _NOTHING  # of the payload that is due

    # What there is.

    @property
    def busy(self) -> bool:
        """Whether the store has been asked."""
        return self._state in (_State.ASKED, _State.OUTDATED)

    def find(self, seqnum: int) -> StoredEntry | None:
        """That entry, if it is here; those before it are not needed any more."""
        passed = 0
        while passed < len(self.entries) and self.entries[passed].seqnum < seqnum:
            passed += 1
        if passed:
            self.pass_over(passed)
        due = self.entries[0] if self.entries else None
        return due if due is not None and due.seqnum == seqnum else None

    def decoded(self, stored: StoredEntry) -> Entry:
        """The entry that is due."""
        if self._entry is None:
            self._entry = self._inventory.decode(stored)
        return self._entry

    def take_data(self, size_max: int) -> Buffer:
        """The next bytes of the payload that is due."""
        data, self._data = self._data[:size_max], self._data[size_max:]
        if not self._data:
            self._hold(self._size)
        return data

    @property
    def has_data(self) -> bool:
        """Whether there are bytes of the payload that is due."""
        return bool(self._data)

    # What is not needed.

    def pass_over(self, count: int) -> None:
        """The first entries have been dealt with."""
        for _ in range(count):
            self.entries.popleft()
        self._entry, self._data = None, _NOTHING
        if not self.entries:
            self._size = 0
        self._hold(self._size)

    def forget_incomplete(self) -> None:
        """The store may have more entries and more of the payloads by now."""
        if self._state is _State.ASKED:
            self._state = _State.OUTDATED
        known = list(takewhile(lambda stored: stored.payload_complete, self.entries))
        if len(known) < len(self.entries):
            self._keep(known)

    def drop(self) -> None:
        """Nothing of it is of use."""
        self._keep(())

    def rest(self) -> None:
        """The request cannot go on for now: leave the room to others."""
        if self.busy:
            return
        due = self.entries[0] if self.entries and self.entries[0].payload is None else None
        self._keep(() if due is None else (due,))

    def close(self) -> None:
        """Nothing more is sent."""
        self._state = _State.CLOSED
        self._ahead.forget(self)
        self._hold(0)

    def _keep(self, entries: Sequence[StoredEntry]) -> None:
        if not (entries and self.entries and entries[0] is self.entries[0]):
            self._entry = None
        self.entries, self._data = deque(entries), _NOTHING
        self._size = sum(ENTRY_SIZE + len(each.payload or b"") for each in entries)
        if entries and entries[0].payload is None:
            self._size -= ENTRY_SIZE
        self._hold(self._size)

    # The room.

    def _claim(self, size: int, *, lasting: bool = False) -> int:
        """Room for a read in the place of what is held: how much, `size` bytes or less.

        0 if there is none for the moment: `rouse` is called when there is.
        """
        self._hold(0)
        share = self._ahead.share(self, size, lasting=lasting)
        self._hold(share)
        return share

    def _hold(self, size: int) -> None:
        old, self._held = self._held, size
        if old != size:
            self._ahead.resize(old, size)

    # The store.

    def ask(
        self,
        seqnum: int,
        end: int | None,
        then: Callable[[list[StoredEntry]], None],
        *,
        payloads: bool,
    ) -> None:
        """Read from entry `seqnum` on, as soon as there is room; with small `payloads`, or none."""
        limits = self._limits
        size, count = limits.batch_size_max, limits.batch_count_max
        self._keep(())
        whole = size + count * ENTRY_SIZE
        room = self._claim(whole)
        if not room:
            return
        if room < whole:  # half of it for the entries, half for what is in them
            size, count = min(size, room // 2), min(count, max(1, room // 2 // ENTRY_SIZE))

        def got(entries: list[StoredEntry]) -> None:
            if self._state is _State.CLOSED:
                return
            outdated, self._state = self._state is _State.OUTDATED, _State.IDLE
            if outdated:
                entries = list(takewhile(lambda stored: stored.payload_complete, entries))
            self._keep(entries)
            if outdated and (not entries or entries[0].seqnum != seqnum):
                self.rouse()  # to ask again
            else:
                then(entries)

        self._state = _State.ASKED
        self._work.ask(
            ReadEntries,
            got,
            log=self._inventory.log,
            start=seqnum,
            end=end,
            count_max=count,
            size_max=size,
            payload_size_max=limits.connection.packet_size_max if payloads else None,
        )

    def ask_payload(self, seqnum: int, offset: int, left: int, then: Callable[[], None]) -> None:
        """Read of the payload that is due, of which there are `left` bytes, when there is room."""
        size_max = min(self._limits.batch_size_max, left)
        room = self._claim(size_max, lasting=True)
        if not room:
            return

        def got(data: bytes) -> None:
            if self._state is _State.CLOSED:
                return
            self._state = _State.IDLE
            self._data = memoryview(data)
            self._hold(self._size + len(data))
            if not data:  # deleted a moment ago
                self.drop()
            then()

        self._state = _State.ASKED
        size = min(size_max, room)
        if size < left:
            size -= size % min(size, self._limits.connection.packet_size_max)  # whole packets
        self._hold(self._size + size)
        self._work.ask(
            ReadPayload,
            got,
            log=self._inventory.log,
            seqnum=seqnum,
            offset=offset,
            size=size,
        )
