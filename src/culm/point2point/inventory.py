"""What the store has of one log."""

from __future__ import annotations

from collections.abc import Callable

from culm.bamboo.effects import AddFork, ReadEntry, ReadFork, ReadHead, ReadNewest, ReadPayload
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.forks import ForkProof, find_fork
from culm.bamboo.store import Head, NewEntry, StoredEntry, StoreError
from culm.bamboo.verify import PayloadVerifier
from culm.point2point.desk import Desk
from culm.point2point.replication_events import ForkFound
from culm.wire.multihash import HashFamily

__all__ = ["Inventory", "Resumption"]

_PREFIX_READ_SIZE = 1 << 20


class Resumption:
    """The payload at the end of the log of which only a beginning, or nothing, is stored."""

    __slots__ = ("entry", "stored", "verifier")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.stored = 0
        self.verifier = PayloadVerifier(entry)

    def add(self, data: bytes) -> None:
        """Take stored bytes, in order."""
        self.verifier.update(data)
        self.stored += len(data)


class Inventory:
    """Fork, unbroken log and newest entry, as far as the store has told.

    `forked` is called when a fork has become known and is in the store.
    """

    def __init__(
        self, log: LogKey, *, desk: Desk, family: HashFamily, forked: Callable[[ForkProof], None]
    ) -> None:
        self.log = log
        self.loaded = False
        self.fork: ForkProof | None = None
        self.head: Head | None = None
        self.newest = 0  # the last entry, whatever is missing before it
        self.payload_due = False  # of the entry at the head: not all of it is stored
        self.resumption: Resumption | None = None
        self._desk = desk
        self._family = family
        self._forked = forked

    @property
    def position(self) -> int:
        """The last entry of the unbroken log; 0: there is none."""
        return 0 if self.head is None else self.head.seqnum

    @property
    def ended(self) -> bool:
        """Whether the author has ended the log, and all of it is here."""
        return self.head is not None and self.head.end_of_log and not self.payload_due

    # Loading.

    def load(self, then: Callable[[], None], *, payload_mandatory: bool = False) -> None:
        """Ask the store for everything.

        If nothing of the last payload is there, it has been deleted, unless the payload is
        mandatory: then it is due.
        """

        def got_fork(fork: ForkProof | None) -> None:
            self.fork, self.payload_due, self.resumption = fork, False, None
            self._desk.ask(ReadNewest, got_newest, log=self.log)

        def got_newest(newest: Head | None) -> None:
            self.newest = 0 if newest is None else newest.seqnum
            self._desk.ask(ReadHead, got_head, log=self.log)

        def got_head(head: Head | None) -> None:
            self.head = head
            if head is None:
                finish()
            else:
                self._desk.ask(ReadEntry, got_last, log=self.log, seqnum=head.seqnum)

        def got_last(last: StoredEntry | None) -> None:
            due = last is not None and (last.payload_stored > 0 or payload_mandatory)
            if last is None or last.payload_complete or not due:
                finish()
            else:
                self.payload_due = True
                self._read_beginning(decode(last.encoded, family=self._family), last, finish)

        def finish() -> None:
            self.loaded = True
            then()

        self._desk.ask(ReadFork, got_fork, log=self.log)

    def _read_beginning(self, entry: Entry, last: StoredEntry, then: Callable[[], None]) -> None:
        """Hash what is stored of a payload again: it was not verified when it was stored."""
        resumption = self.resumption = Resumption(entry)

        def read() -> None:
            self._desk.ask(
                ReadPayload,
                got,
                log=self.log,
                seqnum=entry.seqnum,
                offset=resumption.stored,
                size=min(_PREFIX_READ_SIZE, last.payload_stored - resumption.stored),
            )

        def got(data: bytes) -> None:
            resumption.add(data)
            if data and resumption.stored < last.payload_stored:
                read()
            else:
                then()

        read()

    def refresh(self, then: Callable[[], None]) -> None:
        """Somebody else may have stored entries."""

        def got(head: Head | None) -> None:
            if head is not None and head.seqnum > self.position:
                self.head, self.newest = head, max(self.newest, head.seqnum)
            then()

        self._desk.ask(ReadHead, got, log=self.log)

    # What has been stored.

    def stored(self, new: NewEntry) -> None:
        """`new` and all before it in its batch are in the store."""
        entry = new.entry
        self.newest = max(self.newest, entry.seqnum)
        if entry.seqnum > self.position:
            self.head = Head(entry.seqnum, entry.hash(), entry.end_of_log)
            self.payload_due = new.staged

    def payload_stored(self, entry: Entry) -> None:
        """The payload of `entry` is complete."""
        if entry.seqnum == self.position:
            self.payload_due = False

    # Forks.

    def contradicted(self, refusal: StoreError, entries: list[Entry]) -> None:
        """The store has another entry than one of those that the peer has sent."""
        for entry in entries:
            if entry.seqnum == refusal.seqnum:
                self.compare(entry)

    def compare(self, entry: Entry) -> None:
        """The peer has this signed entry; find out whether it forks the log."""

        def got(stored: StoredEntry | None) -> None:
            if stored is not None:
                proof = find_fork(entry, decode(stored.encoded, family=self._family))
                if proof is not None:
                    self.add_fork(proof)

        self._desk.ask(ReadEntry, got, log=self.log, seqnum=entry.seqnum)

    def add_fork(self, proof: ForkProof) -> None:
        """A (verified) fork of the log has become known; the log ends before it."""
        if self.fork is not None and self.fork.seqnum <= proof.seqnum:
            return
        self.fork = proof
        slot = self._desk.reserve()

        def kept(_: object) -> None:
            slot.events = [ForkFound(log=self.log, proof=proof)]
            self._desk.ask(ReadHead, shortened, log=self.log)

        def shortened(head: Head | None) -> None:
            self.head = head
            self.newest = min(self.newest, proof.seqnum - 1)
            self.payload_due, self.resumption = False, None

        self._desk.ask(AddFork, kept, log=self.log, proof=proof)
        self._forked(proof)
