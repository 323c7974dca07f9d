"""What the store has of one log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from culm.bamboo.effects import (
    AddFork,
    ReadEntry,
    ReadFork,
    ReadHashes,
    ReadHead,
    ReadNewest,
    ReadPayload,
)
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.forks import ForkProof, find_fork
from culm.bamboo.store import Head, NewEntry, StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.point2point.desk import Desk
from culm.point2point.replication_events import ForkFound, Want
from culm.wire.multihash import HashFamily

__all__ = ["Inventory", "Resumption"]

_READ_SIZE = 1 << 20


class Resumption:
    """The payload at the end of the log of which only a beginning is stored, or nothing."""

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

    `forked` is called when a fork has become known and is in the store, or about to be.
    """

    def __init__(
        self, log: LogKey, *, desk: Desk, family: HashFamily, forked: Callable[[ForkProof], None]
    ) -> None:
        self.log = log
        self.loaded = False
        self.fork: ForkProof | None = None
        self.head: Head | None = None
        self.newest = 0  # the last entry, whatever is missing before it
        self.payload_due = False  # of the entry at the head: it is on its way into the store
        self.want = Want()  # which payloads are
        self._desk = desk
        self._family = family
        self._forked = forked
        self._waiting: list[Callable[[], None]] = []  # for what is being read
        self._later: list[Callable[[], None]] = []  # for what has to be read after that

    @property
    def position(self) -> int:
        """The last entry of the unbroken log; 0: there is none."""
        return 0 if self.head is None else self.head.seqnum

    @property
    def ended(self) -> bool:
        """Whether the author has ended the log, and all of it is here."""
        return self.head is not None and self.head.end_of_log and not self.payload_due

    # Looking.

    def look(self, then: Callable[[], None]) -> None:
        """Ask the store how things stand; what asks meanwhile is answered in one go."""
        if self._waiting:
            self._later.append(then)
            return
        self._waiting = [then]
        self._read()

    def _read(self) -> None:
        def got_fork(fork: ForkProof | None) -> None:
            if fork is not None and (self.fork is None or fork.seqnum < self.fork.seqnum):
                self.fork = fork
                if self.loaded:  # by another replicator over the same store
                    self._forked(fork)
            self._desk.ask(ReadNewest, got_newest, log=self.log)

        def got_newest(newest: Head | None) -> None:
            self.newest = 0 if newest is None else newest.seqnum
            self._desk.ask(ReadHead, got_head, log=self.log)

        def got_head(head: Head | None) -> None:
            shorter = (0 if head is None else head.seqnum) < self.position  # there is a fork
            if head is None:
                self._looked(None, None, shorter=shorter)
            else:
                self._desk.ask(
                    ReadEntry,
                    lambda last: self._looked(head, last, shorter=shorter),
                    log=self.log,
                    seqnum=head.seqnum,
                )

        self._desk.ask(ReadFork, got_fork, log=self.log)

    def _looked(self, head: Head | None, last: StoredEntry | None, *, shorter: bool) -> None:
        self.loaded = True
        seqnum = 0 if head is None else head.seqnum
        self.newest = max(self.newest, seqnum)  # the log may have grown since it was asked for
        if shorter or seqnum >= self.position:  # else we have stored more since
            self.head = head
            self.payload_due = last is not None and self._is_due(last)
        waiting, self._waiting, self._later = self._waiting, self._later, []
        if self._waiting:
            self._read()
        for then in waiting:
            then()

    def _is_due(self, last: StoredEntry) -> bool:
        """Whether the payload at the head is wanted, and was begun or must not be missing."""
        want = self.want
        if last.payload_complete or not want.admits_payload(last.payload_size):
            return False
        return last.payload_begun or want.payload_mandatory  # which was deleted, then

    def resume(self, seqnum: int, then: Callable[[Resumption | None], None]) -> None:
        """Read and hash what is stored of the payload of an entry: it was never verified.

        There is no resumption if there is nothing to resume (any more).
        """

        def got(stored: StoredEntry | None) -> None:
            if stored is None or stored.payload_complete:
                if seqnum == self.position:
                    self.payload_due = False
                then(None)
            else:
                resumption = Resumption(decode(stored.encoded, family=self._family))
                self._read_payload(resumption, stored.payload_stored, lambda: then(resumption))

        self._desk.ask(ReadEntry, got, log=self.log, seqnum=seqnum)

    def verify_payload(self, entry: Entry, then: Callable[[bool], None]) -> None:
        """Read and hash the whole payload of `entry`; tells whether it is the right one."""
        stored = Resumption(entry)
        self._read_payload(
            stored, entry.payload_size, lambda: then(stored.verifier.fault() is None)
        )

    def _read_payload(self, into: Resumption, size: int, then: Callable[[], None]) -> None:
        def got(data: bytes) -> None:
            into.add(data)
            if data:
                self._read_payload(into, size, then)
            else:
                then()

        left = size - into.stored
        if left <= 0:
            then()
            return
        self._desk.ask(
            ReadPayload,
            got,
            log=self.log,
            seqnum=into.entry.seqnum,
            offset=into.stored,
            size=min(_READ_SIZE, left),
        )

    def hashes(self, seqnums: list[int], then: Callable[[dict[int, bytes]], None]) -> None:
        """Read the hashes of those of the entries that are stored."""
        self._desk.ask(ReadHashes, then, log=self.log, seqnums=tuple(seqnums))

    # What has been stored.

    def stored(self, batch: Sequence[NewEntry]) -> None:
        """The entries of a batch are in the store."""
        first, last = self.position + 1, self.position + len(batch)
        if batch and [new.entry.seqnum for new in batch] == list(range(first, last + 1)):
            entry, _, staged = batch[-1]  # those before it would not leave a trace
            self.newest = max(self.newest, last)
            self.head, self.payload_due = Head(last, entry.hash(), entry.end_of_log), staged
        else:
            for new in batch:
                self._stored(new)

    def _stored(self, new: NewEntry) -> None:
        entry = new.entry
        self.newest = max(self.newest, entry.seqnum)
        if entry.seqnum == self.position + 1:
            self.head = Head(entry.seqnum, entry.hash(), entry.end_of_log)
            self.payload_due = new.staged
        elif entry.seqnum == self.position and new.payload is not None and not new.staged:
            self.payload_due = False

    def payload_stored(self, entry: Entry) -> None:
        """The payload of `entry` is complete."""
        if entry.seqnum == self.position:
            self.payload_due = False

    def payload_given_up(self, entry: Entry) -> None:
        """The rest of the payload of `entry` will not come from this peer."""
        self.payload_stored(entry)

    # Forks.

    def compare(self, entry: Entry, then: Callable[[], None] = lambda: None) -> None:
        """The peer has this signed entry; find out whether it forks the log."""

        def got(stored: StoredEntry | None) -> None:
            if stored is not None:
                proof = find_fork(entry, decode(stored.encoded, family=self._family))
                if proof is not None:
                    self.add_fork(proof)
            then()

        self._desk.ask(ReadEntry, got, log=self.log, seqnum=entry.seqnum)

    def add_fork(self, proof: ForkProof) -> None:
        """A (verified) fork of the log has become known; the log ends before it."""
        if self.fork is not None and self.fork.seqnum <= proof.seqnum:
            return
        self.fork = proof
        slot = self._desk.reserve()

        def kept(_: object) -> None:
            slot.events = [ForkFound(log=self.log, proof=proof)]
            self.look(lambda: self._forked(proof))

        self._desk.ask(AddFork, kept, log=self.log, proof=proof)
