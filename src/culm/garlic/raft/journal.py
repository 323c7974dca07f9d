"""The durable state of a server, and the messages that wait for its writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from culm.effects import StoreWork
from culm.garlic.raft.effects import Persist
from culm.garlic.raft.log import RaftLog
from culm.garlic.raft.membership import Membership
from culm.garlic.raft.messages import Message, RaftRequest
from culm.garlic.raft.model import Entry, Snapshot, Stored, new_entry


class _Write(NamedTuple):
    """A `Persist` under way: the changes up to it, its entries, if any, and its commit index."""

    changes: int
    first: int | None
    last: int
    commit_index: int


class Journal:
    """Term, vote and log, in memory and on their way to the store.

    Changes are counted.  Up to `writes_max` writes are under way at a time, each with all changes
    made since the one before it; a write counts once all before it are done, too.  A message sent
    with `send` leaves when all changes that preceded it are written.  `stable_index` is the last
    entry that is durable in its present form, `known_index` the commit index that the store has.
    """

    def __init__(self, stored: Stored, work: StoreWork, writes_max: int) -> None:
        self.log = RaftLog(stored)
        known = max(stored.commit_index, stored.applied_index)
        if known > self.log.last_index:
            raise ValueError(
                f"the store's log ends at {self.log.last_index}, and {known} was committed"
            )
        self.term = max(stored.term, self.log.last_term)
        self.voted_for = stored.voted_for if self.term == stored.term else None
        self.commit_index = max(stored.snapshot.index, known)
        self.membership = Membership(stored.snapshot, self.commit_index)
        first = self.log.base_index + 1
        self.membership.append(first, self.log.slice(first, self.log.last_index))
        self.stable_index = self.log.last_index
        self._work = work
        self._writes_max = max(1, writes_max)
        self._writes: deque[_Write] = deque()  # under way, in order
        self._done: set[_Write] = set()  # of them, done before an older one
        self._changes = 0
        self._term_change = 0  # the latest of term or vote
        self._handed = 0  # changes that are in a write, done or not
        self._saved = 0
        self.known_index = self.commit_index
        self._owed_index = 0  # a commit index that has to be written, as the members changed
        self._unsaved_from: int | None = None  # where the log begins to differ from the writes
        self._waiting: deque[tuple[int, Message]] = deque()
        self._outbox: list[Message] = []

    @property
    def saved(self) -> bool:
        """Whether everything is durable."""
        return self._saved == self._changes

    @property
    def has_term(self) -> bool:
        """Whether our term and our vote are durable."""
        return self._saved >= self._term_change

    def commit(self, index: int) -> bool:
        """Note that everything up to `index` is committed; returns whether the members changed.

        Such a commit index is written even if nothing else is: after a restart the members before
        would be needed, and of these some may be gone for good.
        """
        self.commit_index = index
        changed = self.membership.commit(index)
        if changed:
            self._owed_index = index
        return changed

    def set_term(self, term: int, voted_for: int | None) -> None:
        self.term, self.voted_for = term, voted_for
        self._changes += 1
        self._term_change = self._changes

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end."""
        first = self.log.last_index + 1
        self.log.append(entries)
        self.membership.append(first, entries)
        self._changed_from(first)

    def append_values(self, values: Sequence[bytes]) -> None:
        """Add values (not configurations) as entries of the current term."""
        term, log = self.term, self.log
        if self._unsaved_from is None:
            self._unsaved_from = log.last_index + 1
        self._changes += 1
        log.append([new_entry(Entry, (term, value)) for value in values])

    def truncate(self, first: int) -> None:
        """Drop entries from `first` on; new ones are appended right after."""
        self.log.truncate(first)
        self.membership.truncate(first)
        self._changed_from(first)
        self.stable_index = min(self.stable_index, first - 1)

    def _changed_from(self, first: int) -> None:
        if self._unsaved_from is None or first < self._unsaved_from:
            self._unsaved_from = first
        self._changes += 1

    def reset(self, snapshot: Snapshot) -> None:
        """Note that store and memory now hold only `snapshot`."""
        self.log.reset(snapshot)
        self.membership.reset(snapshot)
        self.commit_index = self.stable_index = self.known_index = snapshot.index
        self._owed_index = 0

    def send(self, message: Message) -> None:
        """Let `message` leave once everything so far is durable."""
        if self.saved:
            self._outbox.append(message)
        else:
            self._waiting.append((self._changes, message))

    def send_now(self, message: Message) -> None:
        """Let `message` leave at once: it depends on no write under way."""
        self._outbox.append(message)

    def withdraw(self, peer: int) -> None:
        """Drop the requests to `peer` that have not left: others take their place."""

        def stays(message: Message) -> bool:
            return message.destination != peer or not isinstance(message, RaftRequest)

        self._keep(stays)

    def withdraw_responses(self, sequences: Collection[int]) -> None:
        """Drop the responses with these sequences that have not left: nobody waits for them."""

        def stays(message: Message) -> bool:
            return message.sequence not in sequences or isinstance(message, RaftRequest)

        self._keep(stays)

    def _keep(self, stays: Callable[[Message], bool]) -> None:
        self._outbox = list(filter(stays, self._outbox))
        self._waiting = deque(item for item in self._waiting if stays(item[1]))

    def take_messages(self) -> list[Message]:
        messages, self._outbox = self._outbox, []
        return messages

    def next_effect(self) -> Persist | None:
        """The next write, if one is due and not too many are under way.

        Its commit index covers only entries that are durable already: if the write is torn, the
        entries that it replaces must not be taken for committed ones.
        """
        if self._handed == self._changes and not 0 < self._owed_index <= self.stable_index:
            return None
        if len(self._writes) >= self._writes_max:
            return None
        commit_index = min(self.commit_index, self.stable_index)
        if self._owed_index <= commit_index:
            self._owed_index = 0
        first, self._unsaved_from = self._unsaved_from, None
        last, self._handed = self.log.last_index, self._changes
        write = _Write(self._changes, first, last, commit_index)
        self._writes.append(write)
        return self._work.hand_out(
            Persist,
            lambda _: self.written(write),
            term=self.term,
            voted_for=self.voted_for,
            commit_index=commit_index,
            first_index=first,
            entries=() if first is None else self.log.slice(first, last),
        )

    def written(self, write: _Write) -> None:
        """Note that the store has done a write; earlier ones may still be under way."""
        writes, done, waiting = self._writes, self._done, self._waiting
        done.add(write)
        while writes and writes[0] in done:
            write = writes.popleft()
            done.remove(write)
            self._saved = write.changes
            self.known_index = max(self.known_index, write.commit_index)
            if write.first is not None:
                self.stable_index = self._unchanged_up_to(write.last)
        while waiting and waiting[0][0] <= self._saved:
            self._outbox.append(waiting.popleft()[1])

    def _unchanged_up_to(self, last: int) -> int:
        """The part of the log up to `last` that no later change replaces."""
        if self._unsaved_from is not None and self._unsaved_from <= last:
            last = self._unsaved_from - 1
        for write in self._writes:
            if write.first is not None and write.first <= last:
                last = write.first - 1
        return last

    def drop_messages(self) -> None:
        self._outbox.clear()
        self._waiting.clear()
