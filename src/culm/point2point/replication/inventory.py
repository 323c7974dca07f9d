"""What the store has of one log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from culm.bamboo.effects import AddFork, LogStatus, ReadEntry, ReadHashes, ReadLog
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.forks import ForkProof, find_fork
from culm.bamboo.store import Head, NewEntry, StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.effects import StoreWork
from culm.point2point.replication.events import ForkFound, Want
from culm.point2point.replication.payloads import read_beginning
from culm.wire.multihash import HashFamily

__all__ = ["Inventory"]

R = TypeVar("R")


class Inventory:
    """Fork, unbroken log and newest entry, as far as the store has reported them.

    `forked` is called when a fork has become known and is, or is about to be, in the store.
    """

    def __init__(
        self,
        log: LogKey,
        *,
        work: StoreWork,
        family: HashFamily,
        forked: Callable[[ForkProof], None],
    ) -> None:
        self.log = log
        self.loaded = False
        self.questions = 0  # to the store that it has not answered
        self.fork: ForkProof | None = None
        self.head: Head | None = None
        self.newest = 0  # the last entry, whatever is missing before it
        self.payload_due = False  # of the entry at the head: it is on its way into the store
        self.want = Want()  # of what comes next
        self._withheld = 0  # the entry of whose payload the peer has no more than has come
        self._work = work
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

    def change_want(self, want: Want) -> None:
        """That is wanted of what comes next, now."""
        self.want = want
        self._withheld = 0

    # Looking.

    def look(self, then: Callable[[], None]) -> None:
        """Ask the store how things stand; whoever asks meanwhile is answered together."""
        if self._waiting:
            self._later.append(then)
            return
        self._waiting = [then]
        self._read()

    def _read(self) -> None:
        self._work.ask(ReadLog, self._counted(self._looked), log=self.log)

    def _counted(self, then: Callable[[R], None]) -> Callable[[R], None]:
        """Count a question until it is answered."""
        self.questions += 1

        def answered(found: R) -> None:
            self.questions -= 1
            then(found)

        return answered

    def _looked(self, status: LogStatus) -> None:
        self._take(status)
        self.loaded = True
        waiting, self._waiting, self._later = self._waiting, self._later, []
        if self._waiting:
            self._read()
        for then in waiting:
            then()

    def read(
        self,
        then: Callable[[LogStatus], None],
        *,
        entry: int | None = None,
        hashes: Sequence[int] = (),
    ) -> None:
        """Ask for an entry and for the hashes of others, and see whether the log is as it was."""

        def got(status: LogStatus) -> None:
            if status.head != self.head:
                self._take(status)
            then(status)

        self._work.ask(ReadLog, self._counted(got), log=self.log, entry=entry, hashes=tuple(hashes))

    def _take(self, status: LogStatus) -> None:
        fork, head = status.fork, status.head
        seqnum = 0 if head is None else head.seqnum
        if fork is not None and (self.fork is None or fork.seqnum < self.fork.seqnum):
            self.fork = fork
            if self.loaded:  # by another replicator over the same store
                self._forked(fork)
        newest = 0 if status.newest is None else status.newest.seqnum
        self.newest = max(newest, seqnum)  # the log may have grown since it was asked for
        # Else it is shorter because of a fork, or we have stored more since.
        if seqnum >= self.position or status.fork is not None:
            self.head = head
            self.payload_due = status.last is not None and self._is_due(status.last)

    def _is_due(self, last: StoredEntry) -> bool:
        """Whether the payload at the head is wanted, and has been begun or is mandatory."""
        want = self.want
        if last.seqnum == self._withheld:
            return False
        if last.payload_complete or not want.admits_payload(last.payload_size):
            return False
        return last.payload_begun or want.payload_mandatory  # which was deleted, then

    def decode(self, stored: StoredEntry) -> Entry:
        """An entry as the store has it."""
        return decode(stored.encoded, family=self._family)

    def read_back(self, stored: StoredEntry, then: Callable[[PayloadVerifier], None]) -> None:
        """Read and hash what is stored of a payload: it was never verified."""
        read_beginning(self._work, self.decode(stored), stored.payload_stored, then)

    def hashes(self, seqnums: list[int], then: Callable[[dict[int, bytes]], None]) -> None:
        """Read the hashes of those of the entries that are stored."""
        self._work.ask(ReadHashes, self._counted(then), log=self.log, seqnums=tuple(seqnums))

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

    def payload_over(self, seqnum: int) -> None:
        """The payload of an entry is complete, or this peer will not send the rest."""
        if seqnum == self.position:
            self.payload_due = False

    def payload_withheld(self, seqnum: int) -> None:
        """The peer has no more of a payload: it is not asked again until the user wants the log."""
        self._withheld = seqnum
        self.payload_over(seqnum)

    # Forks.

    def compare(self, entry: Entry, then: Callable[[], None] = lambda: None) -> None:
        """The peer has this signed entry; find out whether it forks the log."""

        def got(stored: StoredEntry | None) -> None:
            if stored is not None:
                proof = find_fork(entry, self.decode(stored))
                if proof is not None:
                    self.add_fork(proof)
            then()

        self._work.ask(ReadEntry, got, log=self.log, seqnum=entry.seqnum)

    def add_fork(self, proof: ForkProof) -> bool:
        """A (verified) fork of the log has become known: whether it is news.

        The log ends before it then.
        """
        if self.fork is not None and self.fork.seqnum <= proof.seqnum:
            return False
        self.fork = proof
        place = self._work.reserve()

        def kept(_: object) -> None:
            place.fill([ForkFound(log=self.log, proof=proof)])
            self.look(lambda: self._forked(proof))

        self._work.ask(AddFork, kept, log=self.log, proof=proof)
        return True
